/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread object, or worker: what one thread of the program has of a session. It owns pipes
 * (channels and segments) and connections.
 *
 * One lock per thread object protects everything that hangs on it: its pipes, its connections, its
 * lists. The thread itself pays nothing for it (biased_lock.h); another one that calls on a
 * connection of this thread takes it, and so sends, receives and makes progress in its place. A
 * connection never changes the thread object it hangs on, its `worker`.
 *
 * Order of locks: the lock of thread objects (thread.c), a worker, cache.lock, adopt_lock,
 * weir.request_lock, then the leaves (heap, region_lock, foreign_lock). Two workers are never
 * locked at once.
 */
#ifndef WEIR_CLIENT_THREAD_H
#define WEIR_CLIENT_THREAD_H

#include "biased_lock.h"
#include "public.h"

#include "ipc/session_msg.h"

#include <pthread.h>
#include <sys/queue.h>

struct weir_again;
struct weir_channel;
struct weir_conn;
struct weir_life;
struct weir_listener;
struct weir_parked;
struct weir_pipe;
struct weir_segment;
struct weir_table;

/* Sleeps, or is about to: is written to when another thread has moved something at this worker. */
struct weir_waiter {
	LIST_ENTRY(weir_waiter) next;
	int fd;
};

/* Another thread's object whose connections report to this thread. */
struct weir_foreign {
	LIST_ENTRY(weir_foreign) next;
	struct weir_thread *worker;
	bool own; /* the thread's own object, of an earlier session; goes with its last user */
	_Atomic uint32_t conns; /* up: the thread; down: any; 0: the thread drops it */
	struct weir_waiter waiter;
};

/* Which of a worker's vQPNs are whose: pages by index, so that finding one is two loads. */
#define WEIR_VQPN_PAGE 1024u
struct weir_vqpn_entry {
	uint32_t vqpn;		/* the latest life of this index that was ours */
	struct weir_conn *conn; /* NULL: that life is over */
};

struct weir_node_event {
	uint16_t node;
	int32_t status;
};

#define WEIR_SPARE_CLASSES 3 /* sizes of spare memory for parked messages, see rx_queue.c */

struct weir_thread {
	struct weir_bias lock; /* protects all that follows, but what says otherwise */
	struct weir *w;
	struct weir_life *life;
	_Atomic(struct weir *)
	    session; /* w while it is attached; detach writes, its OS thread reads */
	SLIST_HEAD(, weir_channel) channels;
	LIST_HEAD(, weir_segment) segments;
	struct weir_channel *channel_to[WEIR_ENGINES_MAX];
	uint32_t engine; /* for its connections, if it has a channel there */
	struct weir_vqpn_entry *vqpn[(1u << 20) / WEIR_VQPN_PAGE];
	_Atomic uint32_t
	    users; /* connections and listeners that hang on this worker; read for adoption */
	TAILQ_HEAD(, weir_conn) ready;	 /* have something to report, and report here */
	TAILQ_HEAD(, weir_conn) blocked; /* were told -EAGAIN and want to be told when it is over */
	TAILQ_HEAD(, weir_conn) tails;	 /* have pieces of a message to push into a segment */
	TAILQ_HEAD(, weir_listener) accepts; /* listeners with connections to report */
	LIST_HEAD(, weir_listener) listening;
	struct weir_node_event *nodes;
	uint32_t node_count, node_room;
	/* connections that are made again. The thread's alone */
	LIST_HEAD(, weir_again) agains;
	int timer_fd;			/* wakes it for the next try; -1: none yet */
	uint64_t timer_at;		/* ns; 0: not set */
	struct weir_table *table;	/* of nodes; NULL: never asked for. The thread's alone */
	LIST_HEAD(, weir_parked) loans; /* that the program has not given back */
	struct weir_parked *spare[WEIR_SPARE_CLASSES]; /* parked messages for reuse, by class */
	uint32_t spare_count[WEIR_SPARE_CLASSES];
	uint32_t cache[16]; /* free send blocks */
	uint32_t cache_count;
	uint32_t turns, turns_seen; /* calls that moved something, and what the watcher saw of it */
	/* sleep */
	int rings_fd;	  /* epoll: doorbells and the session socket */
	int nudge_fd;	  /* eventfd: other threads wake the thread; it alone reads */
	int epoll_fd;	  /* epoll: rings_fd of this and of foreign workers, nudge_fd */
	uint32_t armed;	  /* sleepers: > 0 means that the sleep flags are up */
	uint32_t closing; /* connections that we have closed and that are not over */
	bool unsettled;	  /* something could not be told for want of room: no long sleep */
	LIST_HEAD(, weir_waiter) waiters;
	bool fd_armed; /* weir_arm() said 0; the owner's alone */
	struct weir_waiter fd_waiter;
	/* connections of other workers that report here */
	LIST_HEAD(, weir_foreign) foreign; /* the thread's alone */
	uint32_t formers;		   /* of them, those that are its own. The thread's alone */
	pthread_mutex_t foreign_lock;
	TAILQ_HEAD(, weir_conn) foreign_ready; /* under foreign_lock */
	_Atomic uint32_t foreign_count;	       /* written under foreign_lock, read by the thread */
	/* membership */
	LIST_ENTRY(weir_thread) in_session, in_tls, in_starved;
	_Atomic bool starved; /* written under heap.lock, read by all: waits for send blocks */
	bool orphan;	      /* its OS thread has ended; under the lock of thread objects */
};

/* The lock of all thread objects. */
void weir_threads_lock(void);
void weir_threads_unlock(void);
/* The calling thread's object for w, made if need be; NULL and errno. */
struct weir_thread *weir_thread_get(struct weir *w);
/* Frees w's thread objects; nobody is inside a call. */
void weir_threads_free(struct weir *w);
/* Gives back the memory of a session that another has followed, if nothing of it is used. No lock
 * held. */
void weir_threads_shed(struct weir *w);
/* The session's socket has hung up for ever, and was closed maybe: t sleeps on it no more. */
void weir_thread_forget_socket(struct weir_thread *t);
/* Calls f for each thread object of w. No lock held. */
void weir_threads_each(struct weir *w, void (*f)(struct weir_thread *t));
/* A pipe was made: its doorbell wakes this worker. 0 or -errno. */
int weir_thread_add_bell(struct weir_thread *t, struct weir_pipe *p);
/* The pipe ends before its worker does: its doorbell wakes nobody any more. Worker locked. */
void weir_thread_remove_bell(struct weir_thread *t, struct weir_pipe *p);
/* One more connection of `worker` reports to t, the caller's own. NULL and errno. */
struct weir_foreign *weir_thread_add_foreign(struct weir_thread *t, struct weir_thread *worker);
/* Forgets workers of which none reports to t any more. */
void weir_thread_reap_foreign(struct weir_thread *t);
/* Writes to a waiter's eventfd. */
void weir_nudge(int fd);
/* Wakes everybody who waits at this worker but `self`. */
void weir_thread_wake(struct weir_thread *t, const struct weir_waiter *self);

/*
 * Tests: the calling thread becomes another one as far as w is concerned: makes a thread object, or
 * takes up one that it made before. Without it each OS thread has one object a session.
 */
struct weir_thread *weir_thread_new(struct weir *w);
void weir_thread_use(struct weir_thread *t);

static inline void
weir_lock(struct weir_thread *t)
{
	weir_bias_lock(&t->lock);
}

static inline void
weir_unlock(struct weir_thread *t)
{
	weir_bias_unlock(&t->lock);
}

#endif
