/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of the heads of slots: a peer may change the slot itself at any time. */
#ifndef WEIR_STREAM_HEAD_H
#define WEIR_STREAM_HEAD_H

#include "ipc/slot.h"

/* The 16 bytes before a slot's data, copied once. */
struct weir_head {
	uint32_t seq;
	uint8_t op, flags;
	uint16_t order;
	uint32_t vqpn, length;
};
static_assert(sizeof(struct weir_head) == offsetof(struct weir_slot, data), "head of a slot");

static inline struct weir_head
weir_head_copy(const struct weir_slot *s)
{
	struct weir_head h;

	memcpy(&h, s, sizeof(h));
	atomic_signal_fence(memory_order_seq_cst); /* never read again */
	return h;
}

#endif
