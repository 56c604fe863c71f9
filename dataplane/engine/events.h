/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for programs, in the rings of their channels, and for the main lcore, in its queue. An
 * event that finds no room stays with the object that it is about until there is some.
 */
#ifndef WEIR_ENGINE_EVENTS_H
#define WEIR_ENGINE_EVENTS_H

#include "engine.h"

struct channel;
struct conn;

enum {
	CONNECTS = 4096,  /* connection requests of peers kept while main's queue is full */
	NODE_EVENTS = 64, /* changes of nodes kept for sessions whose ring is full */
};

/* Events that a program will get about a connection. */
enum app_event {
	APP_OPENED = 0x1,
	APP_ACCEPTED = 0x2,
	APP_WRITABLE = 0x4,
	APP_DONE = 0x8,
	APP_CLOSED = 0x10,
	APP_END = 0x20,
};

struct node_event {
	uint16_t node;
	uint32_t status;
};

/* Puts the events `what` (enum app_event) into the program's ring, now or when it has room. */
void app_event(struct engine *e, struct conn *c, unsigned what);
/* Drops the events that are due: no program reads them any more. */
void app_events_drop(struct conn *c);
/* Puts the events that are due on this channel, as far as its ring has room. */
void app_events_put(struct engine *e, struct channel *ch);
/* False: the ring has no room. */
bool channel_put_event(struct engine *e, struct channel *ch, const struct weir_slot *event);
/* Puts changes of nodes into the rings of sessions that have not seen them. */
void node_events_put(struct engine *e);

/* Gives main the events that are due, as far as its queue has room. */
void engine_emit_pending(struct engine *e);

#endif
