/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: memory of a program that it has adopted for sending and receiving. */
#ifndef WEIR_BROKER_REGION_H
#define WEIR_BROKER_REGION_H

#include "broker.h"
#include "memfd.h"

#include <sys/queue.h>

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
	TAILQ_ENTRY(broker_region) building; /* in state BUILDING */
	struct memfd memory;
	int guard; /* of sigbus.h */
	uint64_t bytes;
	uint32_t flags;		    /* WEIR_ADOPT_* */
	uint32_t waiting;	    /* engines that have not answered */
	int result;		    /* first error of ADD */
	struct engine_region *view; /* one per engine */
	struct broker_release *release;
};

void adopt_request(struct broker_session *s, const struct weir_session_msg *m);
void disown_request(struct broker_session *s, const struct weir_session_msg *m);
/* Makes a piece of the regions asked for. Returns when to be called again. */
uint64_t regions_build(struct broker *b, uint64_t now);
/* The session closes: its ADOPT gets no answer. */
void adopt_stop_waiting(struct broker_session *s);
/* arena_cut() for all regions of the session. */
bool regions_cut(struct broker_session *s);
/* Frees all regions, once no engine knows the session any more. */
void regions_free(struct broker_session *s);

#endif
