/* SPDX-License-Identifier: BSD-3-Clause */
/* How operations become cells. */
#ifndef WEIR_REMOTE_OPERATION_H
#define WEIR_REMOTE_OPERATION_H

#include "handle.h"

#include "ipc/apply.h"
#include "ipc/pieces.h"
#include "ipc/remote.h"

/*
 * Contiguous bytes of an operation, or one cell with a layout, as far as they are not written yet.
 * Units are bytes, or elements of an update.
 */
struct todo {
	uint8_t op;				/* WEIR_OP_* */
	struct weir_cell_access cell;		/* of the next cell; PUT, NOTICE: its offset only */
	const struct weir_cell_notice *notice;	/* NOTICE: its cell; else NULL */
	const uint8_t *from;			/* its payload; NULL: none */
	uint8_t *to;				/* its answer; NULL: none */
	const struct weir_layout_walk *scatter; /* the pieces of `to` that take it; NULL: one */
	uint64_t left;
	uint32_t described; /* bytes of a layout before the payload */
	uint32_t unit;	    /* bytes of one, in memory */
	uint32_t packed;    /* bytes of payload per unit */
	uint32_t most;	    /* units per cell */
	unsigned flags;	    /* WEIR_NOWAIT and so on, of the call */
	bool transfer;	    /* it goes by TRANSFER, not by cells */
	/* Turns it into what follows. False: the operation ends here. NULL: the same */
	bool (*next)(struct todo *d);
};

/* Slots of all cells, without what follows. */
uint64_t weir_todo_slots(const struct todo *d);

#define WEIR_FLAGS_KNOWN (WEIR_NOWAIT | WEIR_AT_TARGET | WEIR_BEHIND | WEIR_KEEP)

/* 0, or -EINVAL: unknown flags, or -EACCES: r lacks one of these rights. */
int weir_operation_check(const struct weir_remote *r, uint32_t rights, unsigned flags);
/*
 * The calling thread's connection, open, and the bytes of its export, for operations of the data
 * plane. 0, -EAGAIN: WEIR_NOWAIT, or an error of weir_remote_open().
 */
int weir_operation_conn(struct weir_remote *r, unsigned flags, struct weir_conn **c,
			uint64_t *bytes);
/* Begins an operation that has been checked. `op`: ends with it, if `awaited`, or now. */
int weir_operation_begin(struct weir_remote *r, struct todo *d, unsigned flags, struct weir_op *op,
			 bool awaited);
/* Writes what there is room for; where room lacks, the engine is asked for it. 0, -EAGAIN, or an
 * error. Worker locked. */
int weir_operation_try(struct weir_conn *c, struct todo *d);
/* Writes all of an operation that has been checked, and waits unless WEIR_NOWAIT. */
int weir_operation_run(struct weir_conn *c, struct todo *d, unsigned flags);
/* Whether the data plane does it, also where memory is mapped: no CPU instruction does. */
static inline bool
weir_todo_is_wide(const struct todo *d)
{
	return d->op == WEIR_OP_UPDATE && weir_type_is_wide((enum weir_type)d->cell.type);
}

/*
 * Handles (op.c). An operation that was begun: `c`: its end is the completion of all that c has
 * sent; NULL: it has ended.
 */
void weir_op_begun(struct weir_op *op, struct weir_conn *c);

/* ---- mapped memory ---- */

/* Puts and gets on memory that is mapped are complete when they return. */
static inline int
weir_put_mapped(struct weir_remote *r, uint64_t offset, const void *from, uint64_t length)
{
	uint8_t *at = weir_mapped_at(r, offset, length);

	if (weir_unlikely(!at))
		return weir_mapped_refused(r, offset, length);
	if (weir_likely(length))
		weir_store_whole(at, from, length);
	return 0;
}

static inline int
weir_get_mapped(struct weir_remote *r, uint64_t offset, void *to, uint64_t length)
{
	const uint8_t *at = weir_mapped_at(r, offset, length);

	if (weir_unlikely(!at))
		return weir_mapped_refused(r, offset, length);
	if (weir_likely(length))
		weir_load_whole(to, at, length);
	return 0;
}

/* ---- access.c ---- */

/* Type and alignment of elements at `offset`. 0, -EINVAL. */
int weir_elements_check(uint32_t type, uint64_t offset);

/* ---- flush.c ---- */

/* Waits until the operations of c before `all` are complete. 0, -EAGAIN, -EINTR, or how c ended. */
int weir_operation_await(struct weir_conn *c, uint64_t all, int timeout_ms);
/* 1: the operations of a lane before `all` are complete; 0: not yet, and `ask` has the engine say
 * when; or how the connection ended. */
int weir_operation_look(struct weir_remote_lane *l, uint64_t all, bool ask);

/* ---- transfer.c ---- */

/* Slots of all that is left of a transfer, or more than `most`; *answers: how many it has. */
uint64_t weir_transfer_slots(const struct todo *d, uint64_t most, uint64_t *answers);
/* Whether it delivers a notice. */
bool weir_transfer_delivers(const struct todo *d);
/* Updates elements at u->there, for which r has the right. d: the update as if it were contiguous.
 */
int weir_update_pieces(struct weir_remote *r, const struct weir_update *u, const struct todo *d);

#endif
