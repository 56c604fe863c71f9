/* SPDX-License-Identifier: BSD-3-Clause */
/* A session with the data plane of this host, and the requests that it sends there. */
#ifndef WEIR_CLIENT_SESSION_H
#define WEIR_CLIENT_SESSION_H

#include "adopt_cache.h"
#include "likely.h"
#include "public.h"
#include "send_heap.h"
#include "transport.h"

#include "ipc/session_msg.h"
#include "ipc/shm.h"

#include <pthread.h>
#include <sys/queue.h>

struct weir_region;
struct weir_thread;

/* In a page of its own that is zeroed in a forked child. */
enum { WEIR_FORKED = 0, WEIR_UP = 1, WEIR_DEAD = 2 };
struct weir_life {
	_Atomic uint32_t state; /* watcher writes DEAD, the kernel FORKED; all read */
};

/*
 * A session. The program's handle is its first one. When the data plane has come back another takes
 * its place (reattach.c): calls on the handle go there, while connections, loans and memory of the
 * former stay with the former.
 */
struct weir {
	struct weir_transport transport;
	struct weir_life *life;
	struct weir *first;	       /* the handle */
	struct weir *former;	       /* the session before this one; NULL: none */
	_Atomic(struct weir *) latest; /* of the handle: the present session, NULL: itself. Written
					  under renew_lock, read by all */
	_Atomic uint64_t renew_at;     /* of the handle: ns, when WEIR_REATTACH tries next */
	pthread_mutex_t renew_lock;    /* of the handle: one thread at a time attaches again, or has
					  a listener listen again */
	char instance[108], name[WEIR_NAME_MAX]; /* with which it attached */
	uint64_t arena_wish;
	uint8_t *arena;
	uint64_t arena_bytes; /* mapped; all of it until it is shed */
	bool shed;	      /* all but its head is gone. Under the lock of thread objects */
	struct weir_geometry geometry;
	bool fence;    /* the data plane is not registered for membarrier, or we aren't */
	bool polling;  /* WEIR_POLLING */
	bool renews;   /* WEIR_REATTACH */
	uint32_t node; /* own id that WELCOME told, UINT32_MAX unknown */
	_Atomic uint32_t watchers; /* threads that watch nodes; all write and read */
	uint32_t turn; /* threads made, from the session's number on; under the lock of threads */
	pthread_mutex_t request_lock;
	char last_word[WEIR_REASON_MAX]; /* why an operator ended this session. Written once, under
					    request_lock, before `evicted`; all read after it */
	_Atomic bool evicted;		 /* as above; the session ends, or has */
	_Atomic uint32_t
	    handler_lines; /* of the arena's head, those in use; by threads of messengers */
	struct weir_heap heap;
	pthread_mutex_t adopt_lock;		      /* one thread at a time adopts or disowns */
	pthread_mutex_t region_lock;		      /* of the table */
	struct weir_region *region[WEIR_REGIONS_MAX]; /* by number - 1 */
	_Atomic uint32_t region_count;		      /* written under region_lock, read by all */
	struct weir_cache cache;
	LIST_HEAD(, weir_thread) threads; /* under the lock of thread objects */
	/* watcher */
	pthread_t watcher;
	bool watched;
	/* a request found that the data plane has hung up; the watcher is about to notice. Written
	 * by any thread, read by weir_reattach() */
	_Atomic bool hung_up;
	int watcher_fd;	       /* eventfd: stop, or tails to push */
	_Atomic uint32_t stop; /* detach writes, watcher reads */
	bool chores;	       /* the watcher's: something is left to do */
	bool late;	       /* the watcher's: local peers had time enough for a last word */
	uint32_t lingering;    /* detach's: ends that wait for CLOSED */
	LIST_ENTRY(weir) in_sessions; /* fork.c's */
};

/* The data plane is gone. Any thread. */
void weir_lost(struct weir *w);
/* Ends the watcher thread, which runs. No lock held. */
void weir_watcher_end(struct weir *w);

/* Asks; `want` is the reply expected. 0 or -errno with the reason set. Lock order: thread.h. */
int weir_request(struct weir *w, struct weir_session_msg *m, uint32_t want,
		 struct weir_session_msg *reply, int fds[WEIR_SESSION_FDS]);
/* A message of this type, its length set, else zero. */
struct weir_session_msg weir_message(uint32_t type);

struct weir *weir_latest(struct weir *w) __attribute__((cold));
#define WEIR_RENEW_MS 50u /* between tries of WEIR_REATTACH */
/* One try, if it is time to. 0: attached; -EAGAIN: not yet; or why it never will be. */
int weir_renew(struct weir *w);

/* Notes a session that a forked child must not use, and forgets it. */
void weir_fork_note(struct weir *w);
void weir_fork_forget(struct weir *w);

static inline uint32_t
weir_state(const struct weir *w)
{
	return atomic_load_explicit(&w->life->state, memory_order_relaxed);
}

/* The session that calls on a handle are for. */
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
