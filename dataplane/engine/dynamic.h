/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on dynamic exports, whose offsets are addresses of the exporting program. Such an
 * address may be detached at any time, so an operation elsewhere is no misbehaviour of the peer: it
 * changes nothing, and the program that began it hears of it with its next flush.
 */
#ifndef WEIR_ENGINE_DYNAMIC_H
#define WEIR_ENGINE_DYNAMIC_H

#include "export.h"

#include "ipc/pieces.h"

/* One that has been checked as if all addresses were attached. */
struct dynamic_op {
	uint8_t op;			       /* WEIR_OP_PUT, _GET, _UPDATE or _CAS */
	const struct weir_cell_access *access; /* PUT: NULL */
	uint64_t address, bytes;	       /* of memory */
	const struct weir_pieces *pieces;      /* of it; NULL: one */
	const uint8_t *payload;		       /* bytes to put, or operands */
	uint8_t *result;		       /* NULL: none is wanted */
};

/* False: nothing was done, since not all of its bytes are attached. */
bool dynamic_execute(const struct export *x, const struct dynamic_op *o);
/* The word of a signal; *updating: of its region. NULL: it is not attached. */
uint64_t *dynamic_word(const struct export *x, uint64_t address, _Atomic bool **updating);

#endif
