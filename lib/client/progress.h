/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the stream model that a session and its threads call: lib/stream defines them. */
#ifndef WEIR_CLIENT_PROGRESS_H
#define WEIR_CLIENT_PROGRESS_H

#include "public.h"

struct weir_conn;
struct weir_thread;

/* Takes slots from the worker's rings; how many. `want`: its next message stays in the ring. */
unsigned weir_progress(struct weir_thread *t, struct weir_conn *want);
/*
 * No send block is free: connections to remote memory give back those of operations that have
 * ended, and the engine is asked about the others. Whether some were given. lib/remote defines it.
 * Worker locked.
 */
bool weir_lanes_give_blocks(struct weir_thread *t);
/* Before sleep: reports all that others may wait for, asks for doorbells. Worker locked. */
void weir_progress_finish(struct weir_thread *t);
/* After a call that released something: reports it if the worker sleeps. Worker locked. */
void weir_progress_leave(struct weir_thread *t);
/* Frees connections and listeners of a worker at detach. */
void weir_thread_clear(struct weir_thread *t);
/* The caller's own: weir_arm() has no effect any more; drops foreign workers without connections.
 */
void weir_thread_disarm_fd(struct weir_thread *t);
/* The caller's own: its sleep set has changed. If it is armed, its descriptor becomes readable. */
void weir_thread_rouse(struct weir_thread *t);
/* Waits until closed connections have delivered all, or for a while. */
void weir_linger(struct weir *w);
/* The data plane is gone: takes in all messages in the worker's rings and ends its connections. If
 * there is no memory for all of them, it sets w->chores, and is called again. No lock held. Local
 * connections end in weir_thread_end_segments(), which sets w->chores if one has not. */
void weir_thread_plane_lost(struct weir_thread *t);
void weir_thread_end_segments(struct weir_thread *t);
/* t is the calling thread's object for the present session, p was it for an earlier one. */
void weir_thread_follow(struct weir_thread *t, struct weir_thread *p);
/* Its OS thread ends: frees its table of nodes. Under the lock of thread objects. */
void weir_thread_ended(struct weir_thread *t);

#endif
