/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithms of collective calls, as sequences of steps. A step sends to at most one member and
 * receives from at most one; the next one begins when both are done. All partners are a power of
 * two ranks away, modulo the size. Pure: no time, no connections.
 */
#ifndef WEIR_GROUP_STEP_H
#define WEIR_GROUP_STEP_H

#include "weir/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOBODY UINT32_MAX

enum collective_kind {
	COLLECTIVE_NONE,
	COLLECTIVE_BARRIER,
	COLLECTIVE_BROADCAST,
	COLLECTIVE_ALLGATHER,
	COLLECTIVE_ALLREDUCE,
	COLLECTIVE_ALLTOALL,
	COLLECTIVE_MEETING, /* without steps: members meet in another way (board.h) */
};

/* The arguments of a call. */
struct collective_call {
	uint32_t kind; /* enum collective_kind */
	uint32_t root; /* BROADCAST */
	const void *mine;
	void *all;	   /* buffer of BROADCAST, result of ALLREDUCE */
	size_t length;	   /* bytes; of a block in ALLGATHER, ALLTOALL */
	uint32_t type, op; /* ALLREDUCE */
};

struct step {
	uint32_t to; /* rank; NOBODY: nothing is sent */
	const uint8_t *data;
	uint32_t from; /* rank; NOBODY: nothing is received */
	uint8_t *place;
	size_t send, receive; /* bytes */
	uint16_t label;	      /* equal at sender and receiver, growing within a call per partner */
};

struct collective {
	struct collective_call call;
	uint32_t rank, size;
	uint32_t k;    /* of the next step's distance, 1 << k */
	uint32_t mask; /* BROADCAST: distance to the parent; 0: none */
	enum { STAGE_FIRST, STAGE_REDUCE, STAGE_SPREAD, STAGE_DONE } stage;
	bool begun;
	bool combine; /* scratch has an operand */
	bool unpack;  /* scratch has blocks */
	uint8_t *scratch;
};

/* Distances that are used: 1 << 0 to 1 << (n - 1). */
uint32_t collective_rounds(uint32_t size);
/* Begins a call of a member; nothing is read yet. 0, or -ENOMEM. */
int collective_begin(struct collective *c, const struct collective_call *call, uint32_t rank,
		     uint32_t size);
/* The step before is done; the next one. False: the call is complete. */
bool collective_next(struct collective *c, struct step *s);
/* Frees what it has; nothing else may be called but begin. */
void collective_end(struct collective *c);

#endif
