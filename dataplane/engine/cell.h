/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cells: operations on remote memory, as the slots of a channel or the lines of a frame hold them
 * (ipc/remote.h). Both engines check each one on a private copy of its head.
 */
#ifndef WEIR_ENGINE_CELL_H
#define WEIR_ENGINE_CELL_H

#include "conn.h"

#include "ipc/pieces.h"
#include "ipc/remote.h"

enum {
	WIDE_LINES = 8, /* lines that cost the executing engine as much as a wide type's detour */
};

/* The fields of a PUT before its payload. */
struct put_fields {
	uint32_t handle, options;
	uint64_t offset;
};
static_assert(sizeof(struct put_fields) == WEIR_PUT_FIELDS, "the start of struct weir_cell_put");

/* Copied once, as its memory may be a program's or a peer's. */
static inline struct put_fields
put_fields(const uint8_t *data)
{
	struct put_fields put;

	memcpy(&put, data, sizeof(put));
	atomic_signal_fence(memory_order_seq_cst);
	return put;
}

/* Whether the connection may put `length` bytes there, within `whole`. */
static inline bool
put_ok(const struct conn *c, const struct put_fields *put, uint32_t length, uint64_t whole)
{
	return put->handle == WEIR_HANDLE_FIRST && !put->options &&
	       c->cold->memory.rights & WEIR_RIGHT_WRITE && put->offset <= whole &&
	       length <= whole - put->offset;
}

/* Where the slots of a cell are: at `pos` of a ring. */
struct cell_at {
	const struct weir_slot *ring;
	uint32_t mask;
	uint64_t pos;
};

/* The memory of a cell with a layout, and its payload. */
struct cell_laid {
	uint32_t head; /* bytes of the payload that describe it; 0: the cell has no layout */
	struct weir_pieces pieces;
	uint8_t payload[WEIR_PUT_MAX];
};

/* Whether c may do what a cell says. */
bool cell_ok(const struct conn *c, const struct weir_slot *head, const struct cell_at *at,
	     struct cell_laid *laid);
/* Parts of that. `length`: bytes of operands. */
bool cell_get_ok(const struct weir_cell_access *a, uint32_t length);
bool cell_elements_ok(uint8_t op, const struct weir_cell_access *a, const struct cell_laid *laid,
		      uint32_t length);
/* Bytes of memory that an UPDATE, CAS or GET is about. */
uint64_t cell_bytes(uint8_t op, const struct weir_cell_access *a);
/* Bytes of the answer to an operation that has been checked; 0: it has none. */
uint32_t cell_answer_bytes(const struct weir_slot *cell);
/* Lines that an operation that has been checked is charged beyond those that it takes. */
uint32_t cell_charge(const struct weir_slot *cell);
uint32_t cell_charge_of(uint8_t op, const struct weir_cell_access *a);
/* `data`: that of the head, which may be in private memory. */
void cell_copy_payload(uint8_t *to, uint8_t op, uint32_t left, const uint8_t *data,
		       const struct cell_at *at);

#endif
