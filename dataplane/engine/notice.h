/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices and signals of remote memory, at the executing end. A notice is a slot for the thread
 * that exported the memory. It has a place in the receive memory of that program before it is sent:
 * each connection with WEIR_RIGHT_NOTIFY has a window of notices, which the program returns with
 * NOTICED. So every notice that arrives is taken out at once, and no connection waits for another.
 */
#ifndef WEIR_ENGINE_NOTICE_H
#define WEIR_ENGINE_NOTICE_H

#include "engine.h"

struct conn;
struct export;
struct session;

/* Whether c may do what a NOTICE says, apart from its window. */
bool notice_ok(const struct conn *c, const struct weir_slot *head);
/* Executes a NOTICE of c that is ok and within its window. */
void notice_execute(struct engine *e, struct conn *c, const struct weir_slot *head);
/* Memory of an export has changed: its sleeping threads look at their words. */
void notice_wake(struct engine *e, const struct export *x);

/* c was bound to its export: the first window. */
void notices_open(struct engine *e, struct conn *c);
/* c is to be unbound: what it was granted and has not used is free. */
void notices_end(struct engine *e, struct conn *c);
/* Grants c the window that is due, as far as the receive memory reaches. */
void notices_grant(struct engine *e, struct conn *c);
/* NOTICED of a program. NULL, or what is wrong with it. */
const char *notices_taken(struct engine *e, struct session *s, const struct weir_slot *slot);

#endif
