/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: memory of a program, allocated or adopted, for the NICs of all engines. */
#ifndef WEIR_BROKER_REGION_H
#define WEIR_BROKER_REGION_H

#include "broker.h"
#include "build.h"
#include "memfd.h"

struct broker_release;
struct broker_session;

enum region_state {
	REGION_FREE,
	REGION_BUILDING, /* its memory is being made; ADOPT has no answer yet */
	REGION_ADDING,	 /* engines are being told; ADOPT has no answer yet */
	REGION_OPEN,
	REGION_LEAVING, /* engines may have messages under way in it */
};

struct broker_region {
	enum region_state state;
	struct broker_session *session;
	struct broker_build build; /* in state BUILDING */
	struct memfd memory;
	int guard; /* of sigbus.h */
	uint64_t bytes;
	uint32_t flags;		    /* WEIR_ADOPT_* */
	bool adopted;		    /* it replaces memory of the program */
	bool lent;		    /* another program may write it, and punch holes into it */
	bool damaged;		    /* one of both did: engines have zeroes in its place */
	int numa_node;		    /* preferred; -1: any */
	uint64_t cost_ns, since;    /* CPU time for making it; when it was complete */
	uint32_t waiting;	    /* engines that have not answered */
	int result;		    /* first error of ADD */
	struct engine_region *view; /* one per engine */
	_Atomic bool updating;	    /* engine_region.updating of all views */
	struct broker_release *release;
};

void adopt_request(struct broker_session *s, const struct weir_session_msg *m);
void disown_request(struct broker_session *s, const struct weir_session_msg *m);
/* Refuses those that have waited too long for room. Returns the next deadline. */
uint64_t adopt_timers(struct broker *b, uint64_t now);
/* The session closes: its ADOPT gets no answer. */
void adopt_stop_waiting(struct broker_session *s);
/*
 * arena_cut() for all regions of the session. Returns the number of one into which the session
 * alone could punch a hole, or 0; of others only the exports end.
 */
uint32_t regions_cut(struct broker_session *s);
/* Frees all regions, once no engine knows the session any more. */
void regions_free(struct broker_session *s);

#endif
