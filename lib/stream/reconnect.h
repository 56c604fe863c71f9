/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that connect again when they are lost. */
#ifndef WEIR_STREAM_RECONNECT_H
#define WEIR_STREAM_RECONNECT_H

#include "conn.h"

/* c reconnects when it is lost. 0 or -errno. */
int weir_reconnect_enable(struct weir_conn *c, const struct weir_address *address,
			  const struct weir_connect_options *o);
/* c is open: from now on it reconnects. */
void weir_reconnect_opened(struct weir_conn *c);
/* c has ended with this status, which is about to be reported. True: t reconnects; *cookie. */
bool weir_reconnect_begin(struct weir_thread *t, struct weir_conn *c, int status, uint64_t *cookie);
/* A try has an event. True: not one for the program, c may be gone. Worker locked. */
bool weir_reconnect_tried(struct weir_thread *t, struct weir_conn *c);
/* Starts tries that are due. Fills in up to n events of those given up. How many. */
unsigned weir_reconnect_step(struct weir_thread *t, struct weir_event *events, unsigned n);
/* Wakes the thread in `ms`, or earlier for its tries; UINT32_MAX: for these only. */
void weir_reconnect_timer(struct weir_thread *t, uint32_t ms);
/* c is freed. */
void weir_reconnect_forget(struct weir_conn *c);
/* Moves the tries of p, of an earlier session, to t. */
void weir_reconnects_follow(struct weir_thread *t, struct weir_thread *p);
void weir_reconnects_free(struct weir_thread *t);

#endif
