/* SPDX-License-Identifier: BSD-3-Clause */
/* What the session and its threads need of the stream model. */
#ifndef WEIR_STREAM_PROGRESS_H
#define WEIR_STREAM_PROGRESS_H

#include "client/public.h"

struct weir_conn;
struct weir_thread;

/* Moves what waits on the worker's rings; returns how much. `want`: its next message stays in the
 * ring. */
unsigned weir_drive(struct weir_thread *t, struct weir_conn *want);
/* Before sleep: tells everything that others may wait for, makes wishes known. Worker locked. */
void weir_drive_settle(struct weir_thread *t);
/* After a call that gave something back: who sleeps here would not tell it. Worker locked. */
void weir_drive_leave(struct weir_thread *t);
/* Frees connections and listeners of a worker at detach. */
void weir_thread_clear(struct weir_thread *t);
/* The caller's own, armed or not: what it sleeps on has changed, its descriptor says look again. */
void weir_thread_rouse(struct weir_thread *t);
/* Waits until closed connections have delivered all, or for a while. */
void weir_linger(struct weir *w);
/* The data plane is gone: what lies in the worker's rings is taken in, its connections end. No lock
 * held. Those with local peers end in weir_thread_last(), which sets w->chores if one has not. */
void weir_thread_lost(struct weir_thread *t);
void weir_thread_last(struct weir_thread *t);
/* t is the calling thread's object for the present session, p was it for an earlier one. */
void weir_thread_follow(struct weir_thread *t, struct weir_thread *p);
/* Its OS thread ends: what only that asked for goes. Under the lock of thread objects. */
void weir_thread_ended(struct weir_thread *t);

#endif
