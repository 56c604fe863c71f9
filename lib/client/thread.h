/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread object, or worker: one thread's part of a session. It owns pipes (channels and segments)
 * and connections.
 *
 * One lock per thread object protects its pipes, connections and lists. It costs its own thread
 * nothing (biased_lock.h); another thread that calls on a connection takes the lock and sends,
 * receives and makes progress in the owner's place. A connection keeps its worker for life.
 *
 * Order of locks: the lock of thread objects (thread.c), a worker, cache.lock, adopt_lock,
 * weir.request_lock, then the leaves (heap, foreign_lock). Two workers are never
 * locked at once.
 */
#ifndef WEIR_CLIENT_THREAD_H
#define WEIR_CLIENT_THREAD_H

#include "biased_lock.h"
#include "public.h"

#include "ipc/session_msg.h"

#include <pthread.h>
#include <sys/queue.h>

struct weir_reconnect_state;
struct weir_reservation;
struct weir_channel;
struct weir_conn;
struct weir_life;
struct weir_listener;
struct weir_remote_lane;
struct weir_rx_message;
struct weir_pipe;
struct weir_segment;
struct weir_node_table;
struct weir_notices;
struct weir_waker;

/* A thread that sleeps, or is about to; another thread that makes progress at the worker writes to
 * `fd`. */
struct weir_waiter {
	LIST_ENTRY(weir_waiter) next;
	int fd;
	const void *awaits; /* a request, for which alone it waits; NULL: anything */
	bool looks;   /* it has woken and looks at all rings next, and wakes those concerned */
	bool signals; /* a word of an own export is awaited */
};

/* Another thread's object whose connections report to this thread. */
struct weir_foreign {
	LIST_ENTRY(weir_foreign) next;
	struct weir_thread *worker;
	bool own; /* the thread's own object of a former session; dropped with its last user */
	_Atomic uint32_t
	    conns; /* the thread adds, any thread subtracts; at 0 the thread drops it */
	struct weir_waiter waiter;
};

/* Connections of a worker by vQPN: pages by index, so that a lookup is two loads. */
#define WEIR_VQPN_PAGE 1024u
struct weir_vqpn_entry {
	uint32_t vqpn;		/* the latest vQPN of this index that was ours */
	struct weir_conn *conn; /* NULL: it has ended */
};

struct weir_node_event {
	uint16_t node;
	int32_t status;
};

#define WEIR_SPARE_CLASSES 3 /* sizes of spare memory for parked messages, see rx_queue.c */

struct weir_thread {
	struct weir_bias lock; /* protects all that follows, unless noted */
	struct weir *w;
	struct weir_life *life;
	_Atomic(struct weir *)
	    session;	 /* w while it is attached; detach writes, its OS thread reads */
	uint32_t number; /* consecutive among the objects of w; does not change */
	SLIST_HEAD(, weir_channel) channels;
	LIST_HEAD(, weir_segment) segments;
	struct weir_channel *channel_to[WEIR_ENGINES_MAX];
	uint32_t engine; /* for its connections, if it has a channel there */
	struct weir_vqpn_entry *vqpn[(1u << 20) / WEIR_VQPN_PAGE];
	_Atomic uint32_t users; /* connections and listeners of this worker; 0: it may be adopted */
	TAILQ_HEAD(weir_ready, weir_conn) ready; /* have events to report here */
	struct weir_ready lanes;		 /* the same, of the message model */
	TAILQ_HEAD(, weir_conn) blocked; /* returned -EAGAIN and report when they can continue */
	TAILQ_HEAD(, weir_conn) tails;	 /* have the rest of a message to push into a segment */
	TAILQ_HEAD(weir_accepts, weir_listener) accepts; /* listeners with connections to report */
	struct weir_accepts lane_accepts;		 /* the same, of the message model */
	/* the message model has something new: WEIR_EVENT_MESSAGES is due. Any thread writes */
	_Atomic bool lane_news;
	LIST_HEAD(, weir_listener) listening;
	/* to remote memory, with a connection, the one that was used last is the last */
	TAILQ_HEAD(weir_remote_lanes, weir_remote_lane) remote_lanes;
	uint32_t making_room;	      /* connections closed for others that have not ended */
	struct weir_notices *notices; /* for its exports, not taken yet; NULL: none ever came */
	bool notice_news;	      /* WEIR_EVENT_NOTICE is due */
	struct weir_node_event *nodes;
	uint32_t node_count, node_room;
	/* connections to reconnect; only the thread uses it */
	LIST_HEAD(, weir_reconnect_state) lost_conns;
	int timer_fd;	   /* wakes the thread for the next attempt; -1: none yet */
	uint64_t timer_at; /* ns; 0: not set */
	struct weir_node_table
	    *table; /* of nodes; NULL: not requested yet. Only the thread uses it */
	LIST_HEAD(, weir_rx_message) loans;		   /* not released by the program yet */
	struct weir_rx_message *spare[WEIR_SPARE_CLASSES]; /* parked messages for reuse, by class */
	uint32_t spare_count[WEIR_SPARE_CLASSES];
	LIST_HEAD(, weir_reservation) spare_reservations;
	uint32_t cache[16]; /* free send blocks */
	uint32_t cache_count;
	uint32_t turns,
	    turns_seen; /* calls that made progress, and the value the watcher saw last */
	/* sleep */
	struct weir_waker *waker;
	int rings_fd;	       /* epoll: doorbells and the session socket */
	int wake_fd;	       /* the waker's eventfd: other threads wake the thread */
	int epoll_fd;	       /* epoll: rings_fd of this and of foreign workers, wake_fd */
	uint32_t armed;	       /* number of waiters; the sleep flags are up while it is > 0 */
	uint32_t signal_waits; /* of these, those that await signals */
	uint32_t arms;	       /* waits of this thread that slept so far; only it uses the number */
	uint32_t closing;      /* connections closed here that have not ended */
	bool report_pending;   /* a report found no room in a ring: no long sleep */
	bool recovered; /* the watcher's: all that a lost data plane left has been taken in */
	LIST_HEAD(, weir_waiter) waiters;
	bool fd_armed; /* weir_arm() returned 0; only the owner uses it */
	struct weir_waiter fd_waiter;
	/* connections of other workers that report here */
	LIST_HEAD(, weir_foreign) foreign; /* only the thread uses it */
	uint32_t former_workers;	   /* those with `own` set; only the thread uses it */
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
/* The calling thread's object for w, created on the first call; NULL and errno. */
struct weir_thread *weir_thread_get(struct weir *w);
/* The same. NULL: no resources; *rc and the reason are set. */
struct weir_thread *weir_thread_own(struct weir *w, int *rc);
/* Frees w's thread objects; no thread is inside a call. */
void weir_threads_free(struct weir *w);
/* Frees the memory of a replaced session if nothing uses it. No lock held. */
void weir_threads_release(struct weir *w);
/* The session socket has hung up and may be closed: t no longer sleeps on it. */
void weir_thread_forget_socket(struct weir_thread *t);
/* Calls f for each thread object of w. No lock held. */
void weir_threads_each(struct weir *w, void (*f)(struct weir_thread *t));
/* One more connection of `worker` reports to t, the caller's own. NULL and errno. */
struct weir_foreign *weir_thread_add_foreign(struct weir_thread *t, struct weir_thread *worker);
/* Drops foreign workers without a connection that reports to t. */
void weir_thread_reap_foreign(struct weir_thread *t);

/*
 * For tests: creates another thread object for the calling thread, or switches to one that it has.
 * Otherwise each OS thread has one object per session.
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

/* For asserts: whether a thread holds the worker's lock. */
static inline bool
weir_worker_locked(struct weir_thread *t)
{
	struct weir_bias_seat *s = atomic_load_explicit(&t->lock.owner, memory_order_relaxed);

	if (atomic_load_explicit(&s->inside, memory_order_relaxed) ||
	    pthread_mutex_trylock(&t->lock.mutex))
		return true;
	pthread_mutex_unlock(&t->lock.mutex);
	return false;
}

#endif
