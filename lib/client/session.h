/* SPDX-License-Identifier: BSD-3-Clause */
/* A session with the data plane of this host, and its requests. */
#ifndef WEIR_CLIENT_SESSION_H
#define WEIR_CLIENT_SESSION_H

#include "adopt_cache.h"
#include "buffer_pool.h"
#include "likely.h"
#include "public.h"
#include "region_table.h"
#include "send_heap.h"
#include "transport.h"

#include "ipc/session_msg.h"
#include "ipc/shm.h"

#include <pthread.h>
#include <sys/queue.h>

#define WEIR_EXPORT_LISTS 64u

struct weir_export;
struct weir_region;
struct weir_remote;
struct weir_thread;
struct weir_waker;

/* In a page of its own that is zeroed in a forked child. */
enum { WEIR_FORKED = 0, WEIR_UP = 1, WEIR_DEAD = 2 };
struct weir_life {
	_Atomic uint32_t state; /* watcher writes DEAD, the kernel FORKED; all read */
};

/*
 * A session. The program's handle is the first one. After a restart of the data plane a new session
 * replaces it (reattach.c): calls on the handle go there, while connections, loans and memory stay
 * with the former session.
 */
struct weir {
	struct weir_transport transport;
	struct weir_life *life;
	struct weir *first;		     /* the handle */
	_Atomic uint32_t woken;		     /* of the handle: WEIR_WOKEN_*; never reset */
	_Atomic(struct weir_waker *) wakers; /* of the handle: all, added under the lock of thread
						objects, read by all */
	struct weir *former;		     /* the session before this one; NULL: none */
	_Atomic(struct weir *) latest; /* of the handle: the present session, NULL: itself. Written
					  under reattach_lock, read by all */
	_Atomic uint64_t reattach_at;  /* of the handle: ns, next attempt of WEIR_REATTACH */
	pthread_mutex_t reattach_lock; /* of the handle: one thread at a time attaches again or
				       restores a listener */
	char instance[108], name[WEIR_NAME_MAX]; /* given to weir_attach() */
	uint64_t arena_wish;
	uint8_t *arena;
	uint64_t arena_bytes; /* mapped bytes; fewer after `shed` */
	bool shed;	      /* only the arena's head is left. Under the lock of thread objects */
	struct weir_geometry geometry;
	bool fence;	 /* the data plane or this process is not registered for membarrier */
	bool polling;	 /* WEIR_POLLING */
	bool reattaches; /* WEIR_REATTACH */
	uint32_t node;	 /* own id in WELCOME, UINT32_MAX: unknown */
	_Atomic uint32_t watchers; /* threads that watch nodes; all write and read */
	uint32_t turn; /* number of threads created, plus the session's number; under the lock of
			  thread objects */
	pthread_mutex_t request_lock;
	char end_reason[WEIR_REASON_MAX]; /* reason of an operator who ended this session. Written
					    once, under request_lock, before `evicted`; all read
					    after it */
	_Atomic bool evicted;		  /* as above; the session ends or has ended */
	_Atomic uint32_t
	    handler_lines; /* bits of the arena's head in use; by threads of messengers */
	struct weir_heap heap;
	struct weir_buffer_pool buffers;  /* of the handle */
	pthread_mutex_t adopt_lock;	  /* one thread at a time adopts or disowns */
	struct weir_region_table regions; /* written under adopt_lock, read by all */
	struct weir_cache cache;
	pthread_mutex_t remote_lock; /* of the next two; nothing is locked inside it */
	LIST_HEAD(, weir_remote) remotes;
	LIST_HEAD(, weir_export) exports[WEIR_EXPORT_LISTS]; /* by number */
	_Atomic uint32_t notice_sinks;	  /* exports whose notices go to a window; all threads */
	LIST_HEAD(, weir_thread) threads; /* under the lock of thread objects */
	/* watcher */
	pthread_t watcher;
	bool watched;
	/* a request found that the data plane has hung up; the watcher will notice. Written by any
	 * thread, read by weir_reattach() */
	_Atomic bool hung_up;
	int watcher_fd;	       /* eventfd: stop, or chores */
	_Atomic uint32_t stop; /* detach writes, watcher reads */
	bool chores;	       /* the watcher's: work is left */
	bool late;	    /* the watcher's: the time for last messages of local peers is over */
	uint32_t lingering; /* detach's: connections that wait for CLOSED */
	LIST_ENTRY(weir) in_sessions; /* fork.c's */
};

/* The data plane is gone. Any thread. */
void weir_lost(struct weir *w);
/* Ends the running watcher thread. No lock held. */
void weir_watcher_end(struct weir *w);

/* Frees the handles of lib/remote. No thread is inside a call. */
void weir_remotes_free(struct weir *w);

/* Sends a request; `want` is the expected reply. 0 or -errno with the reason set. Lock order:
 * thread.h. */
int weir_request(struct weir *w, struct weir_session_msg *m, uint32_t want,
		 struct weir_session_msg *reply, int fds[WEIR_SESSION_FDS]);
/* A message with type and length set, else zero. */
struct weir_session_msg weir_message(uint32_t type);

struct weir *weir_latest(struct weir *w) __attribute__((cold));
#define WEIR_REATTACH_MS 50u /* between two attempts of WEIR_REATTACH */
/* One attempt, if it is due. 0: attached; -EAGAIN: not yet; else a final error. */
int weir_reattach_attempt(struct weir *w);

/* Adds and removes a session that a forked child must not use. */
void weir_fork_note(struct weir *w);
void weir_fork_forget(struct weir *w);

static inline uint32_t
weir_state(const struct weir *w)
{
	return atomic_load_explicit(&w->life->state, memory_order_relaxed);
}

/* The present session of a handle. */
static inline struct weir *
weir_now(struct weir *w)
{
	return weir_likely(weir_state(w) == WEIR_UP) ? w : weir_latest(w);
}

static inline uint64_t
weir_heap_offset(const struct weir *w, uint32_t block)
{
	return weir_arena_send(&w->geometry) + (uint64_t)block * WEIR_BLOCK_SIZE;
}

#endif
