/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots and lines in memory that programs or peers may write at any time: each is copied once, and
 * only the copy is checked and used.
 */
#ifndef WEIR_ENGINE_SLOT_HEAD_H
#define WEIR_ENGINE_SLOT_HEAD_H

#include "engine.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* Private copy of a slot's head. */
struct head {
	uint8_t op, flags;
	uint16_t order;
	uint32_t vqpn, length;
};

static inline struct head
head_load(const struct weir_slot *s)
{
	const _Atomic uint64_t *from = (const void *)s;
	uint64_t a = atomic_load_explicit(&from[0], memory_order_relaxed);
	uint64_t b = atomic_load_explicit(&from[1], memory_order_relaxed);

	return (struct head){(uint8_t)(a >> 32), (uint8_t)(a >> 40), (uint16_t)(a >> 48),
			     (uint32_t)b, (uint32_t)(b >> 32)};
}

/*
 * The same as words, in which loops over the messages of one connection compare and count. a:
 * sequence number, op, flags, order; b: vQPN, length.
 */
struct head_words {
	uint64_t a, b;
};

#define HEAD_SEQ UINT64_C(0xffffffff)
#define HEAD_FLAGS (UINT64_C(0xff) << 40)
#define HEAD_NOTIFY ((uint64_t)WEIR_SLOT_NOTIFY << 40)
#define HEAD_NEXT (UINT64_C(1) << 48) /* from a message to the next of its connection */

static inline struct head_words
head_words(const struct weir_slot *s)
{
	const _Atomic uint64_t *from = (const void *)s;

	return (struct head_words){atomic_load_explicit(&from[0], memory_order_relaxed),
				   atomic_load_explicit(&from[1], memory_order_relaxed)};
}

/* Word a without flags and sequence number. */
static inline uint64_t
head_word(uint8_t op, uint16_t order)
{
	return weir_slot_what(op, 0, order);
}

/* Word b. */
static inline uint64_t
head_whose(uint32_t vqpn, uint32_t length)
{
	return vqpn | (uint64_t)length << 32;
}

/* Writes a head together with its sequence field; the caller publishes the slot. */
static inline void
head_store(struct weir_slot *s, uint32_t seq, struct head h)
{
	uint64_t a = (uint64_t)h.order << 48 | (uint64_t)h.flags << 40 | (uint64_t)h.op << 32 | seq;
	uint64_t b = (uint64_t)h.length << 32 | h.vqpn;

	memcpy(s, &a, 8);
	memcpy((char *)s + 8, &b, 8);
}

/* Copies a whole line. */
static inline void
line_load(struct weir_slot *to, const struct weir_slot *from)
{
	memcpy(to, from, sizeof(*to));
	atomic_signal_fence(memory_order_seq_cst); /* the compiler may not read `from` again */
}

/* Whether a program's slot is for remote memory. */
static inline bool
is_operation(uint8_t op)
{
	return weir_op_is_cell(op) || op == WEIR_OP_FLUSH || op == WEIR_OP_TRANSFER;
}

/* Slots that a message takes in a channel. */
static inline uint32_t
message_slots(uint8_t op, uint32_t length)
{
	if (weir_op_is_cell(op))
		return weir_cell_slots(op, length);
	return op == WEIR_OP_INLINE ? weir_slots_inline(length) : 1;
}

/* Bytes of the window that a message or operation which is not bulk uses; `s`: in private memory.
 */
static inline uint32_t
message_cost(const struct weir_slot *s)
{
	return weir_op_is_cell(s->op) ? weir_cell_cost(s->op, s->data) : weir_cost(s->length);
}

/* Lines that a message takes in a peer's ring. */
static inline uint32_t
message_lines(uint32_t length)
{
	if (length <= WEIR_INLINE_MAX)
		return weir_slots_inline(length);
	return 1 + (length + WEIR_SLOT_SIZE - 1) / WEIR_SLOT_SIZE;
}

#endif
