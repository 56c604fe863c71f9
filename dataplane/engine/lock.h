/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of exports. The queue of an export lies in its owner engine, whose number is computed
 * (engine_lock_owner()); connections of other engines ask it by way of main, one request and one
 * release of a connection at a time. A connection holds or awaits a lock once at most, and the
 * answer is a control line of it, so a request needs no memory at the target.
 */
#ifndef WEIR_ENGINE_LOCK_H
#define WEIR_ENGINE_LOCK_H

#include "engine.h"

struct conn;
struct export;

/* ---- the asking end ---- */

/* Whether the program of c may do `op` now: while a lock is awaited, only UNLOCK. */
bool lock_may_begin(const struct conn *c, uint8_t op);
/* It was taken from the program. */
void lock_begun(struct conn *c, uint8_t op);
/* A LOCK of c is put into the frame as the next message, or executed here; `to`: its head. */
void lock_await(struct conn *c, struct weir_slot *to);
/* LOCKED. False: it was not awaited, or no engine says this. */
bool lock_answered(struct engine *e, struct conn *c, weir_lock_status status);

/* ---- the executing end ---- */

/* Whether c may do what a LOCK or UNLOCK says, whatever it has done before. */
bool lock_ok(const struct conn *c, const struct weir_slot *head);
/* Whether the peer of c may do `op` after what it has done before. */
bool lock_in_turn(const struct conn *c, uint8_t op);
/* Executes a LOCK or UNLOCK that is ok and in turn. */
void lock_execute(struct engine *e, struct conn *c, const struct weir_slot *head);
/* c ends: its request leaves the queue, its lock passes on. */
void lock_leave(struct engine *e, struct conn *c);
/* No lock of x is granted any more; requests of other engines end with ESTALE. */
void locks_end(struct engine *e, struct export *x);
/* This engine has no connection to x any more, and those of other engines hold nothing. */
void lock_forget(struct engine *e, struct export *x);
/* ENGINE_LOCK. Whether it is done. */
bool lock_command(struct engine *e, struct engine_command *k);
/* Tells main what other engines are asked for. False: its queue is full. */
bool locks_emit(struct engine *e);
/* Looks whether programs have left the locks that others await here. Whether somebody got one. */
bool locks_poll(struct engine *e);
/* Adds what this engine, if it is the owner, knows of the lock. */
void lock_record(const struct engine *e, const struct export *x, struct engine_export_record *r);

#endif
