/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside libweir: the session, its threads, and the pipes (channels and segments) that a thread
 * owns.
 *
 * One lock a thread object protects everything that hangs on it: its pipes, its connections, its
 * lists. The thread itself pays nothing for it (biased_lock.h); another one that calls on a
 * connection of this thread takes it, and so sends, receives and makes progress in its place. A
 * connection never changes the thread object it hangs on, its `home`.
 *
 * Order of locks: the lock of thread objects (thread.c), a home, cache.lock, adopt_lock,
 * weir.request_lock, then the leaves (heap, region_lock, foreign_lock). Two homes are never locked
 * at once.
 */
#ifndef WEIR_CLIENT_INTERNAL_H
#define WEIR_CLIENT_INTERNAL_H

/* What programs may call is all that the library shows. */
#pragma GCC visibility push(default)
#include "weir/memory.h"
#include "weir/node.h"
#include "weir/stream.h"
#include "weir/weir.h"
#pragma GCC visibility pop

#include "ipc/block.h"
#include "ipc/bell.h"
#include "ipc/session_msg.h"
#include "ipc/shm.h"

#include "biased_lock.h"

#include <errno.h>
#include <sys/queue.h>

struct weir_again;
struct weir_conn;
struct weir_listener;
struct weir_parked;
struct weir_table;
struct weir_thread;

/* ---- how requests reach the data plane ---- */

/*
 * The session socket, or what a test or the simulator puts in its place. request(): one round trip;
 * 0 and *reply (checked by the caller, WEIR_MSG_REFUSED included), descriptors in fds are the
 * caller's
 * (-1: none); or -ENODEV, -ETIMEDOUT. fd: hangs up when the data plane goes; -1: there is none, no
 * watcher runs, weir_lost() says so instead. reopen(): makes another one, to the data plane that
 * has come back; NULL: that can't be.
 */
struct weir_transport {
	int (*request)(void *user, const struct weir_session_msg *request,
		       struct weir_session_msg *reply, int fds[WEIR_SESSION_FDS]);
	void (*close)(void *user);
	/* Another one, to the data plane that has come back; NULL: that can't be. 0 or -errno. */
	int (*reopen)(void *user, const char *instance, struct weir_transport *transport);
	void *user;
	int fd;
};

/* weir_attach() over a given transport, which belongs to the handle from success on. */
int weir_attach_with(const struct weir_options *options, const struct weir_transport *transport,
		     struct weir **handle);
/* The data plane is gone. Any thread. */
void weir_lost(struct weir *w);
/* Ends the watcher thread, which runs. No lock held. */
void weir_watcher_end(struct weir *w);
/* Connects the session socket of an instance. 0 or -errno. */
int weir_socket_open(const char *instance, struct weir_transport *transport);

/*
 * Tests: the calling thread becomes another one as far as w is concerned: makes a thread object, or
 * takes up one that it made before. Without it each OS thread has one object a session.
 */
struct weir_thread *weir_thread_new(struct weir *w);
void weir_thread_use(struct weir_thread *t);

/* ---- session ---- */

/* In a page of its own that is zeroed in a forked child. */
enum { WEIR_FORKED = 0, WEIR_UP = 1, WEIR_DEAD = 2 };
struct weir_life {
	_Atomic uint32_t state; /* watcher writes DEAD, the kernel FORKED; all read */
};

/* The send heap: blocks in the arena, given out to all threads. */
struct weir_heap {
	pthread_mutex_t lock;
	struct weir_blocks blocks; /* under lock */
	uint64_t *map;
	uint32_t *run; /* blocks of the allocation that starts here; 0: none does. By its owner */
	uint32_t cache_room;		  /* blocks that a thread may keep to itself */
	_Atomic uint32_t starving;	  /* threads that wait for blocks; written under lock */
	LIST_HEAD(, weir_thread) starved; /* under lock */
};

/* A range of the program's memory that was adopted. */
struct weir_region {
	struct weir *w;
	uint8_t *addr;
	uint64_t bytes;
	uint32_t index;		/* number at the data plane, 1 ... WEIR_REGIONS_MAX */
	uint32_t flags;		/* WEIR_ADOPT_* */
	_Atomic uint32_t users; /* messages sent out of it, memory posted; all threads */
};
#define WEIR_REGION_CACHED 0x80u /* flag: adopted by the cache, for sending */

/* Ranges that are sent with WEIR_CACHED. */
#define WEIR_CACHE 16u
#define WEIR_CACHE_BYTES (256u << 10) /* smaller ones are copied: docs/performance.md */
struct weir_cached {
	const uint8_t *addr; /* NULL: unused */
	size_t length;
	int uses;      /* sends without it */
	uint64_t last; /* clock of the last one */
	struct weir_region *region;
};
struct weir_cache {
	pthread_mutex_t lock; /* of all of it */
	int pagemap;	      /* /proc/self/pagemap, -1: not opened */
	uint64_t clock;
	struct weir_cached entry[WEIR_CACHE];
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

/* ---- reattach.c ---- */
struct weir *weir_latest(struct weir *w) __attribute__((cold));
#define WEIR_RENEW_MS 50u /* between tries of WEIR_REATTACH */
/* One try, if it is time to. 0: attached; -EAGAIN: not yet; or why it never will be. */
int weir_renew(struct weir *w);

/* ---- fork.c ---- */
void weir_fork_note(struct weir *w);
void weir_fork_forget(struct weir *w);
/* thread.c: that of all thread objects. */
void weir_threads_lock(void);
void weir_threads_unlock(void);

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

/* ---- pipes ---- */

/* A pair of rings towards an engine or a local thread. */
struct weir_pipe {
	struct weir_ring rx, tx;
	_Atomic uint32_t *tx_sleeping; /* other end writes: ring me */
	_Atomic uint32_t *rx_sleeping; /* we write */
	struct weir_bell bell;	       /* of a channel: a socket to wait on, an eventfd to ring */
	bool fence;	    /* a full fence is due between publishing and looking at tx_sleeping */
	bool local;	    /* a segment */
	uint8_t slow_rings; /* in a row took longer than WEIR_BELL_SLOW_NS */
	bool untold;	    /* a segment: something was consumed since the peer was told last */
	uint32_t empty;	    /* polls in a row that found nothing */
	uint32_t burst;	    /* messages received since the last send */
	uint32_t rung; /* messages of a program that rang since it last gave up its CPU for it */
	uint64_t caught_up; /* position where the consumer last found nothing */
	struct weir_thread *home;
};

#define WEIR_RELEASES 6u /* places in a slot */
/* Slots of a channel's tx ring that messages leave free for control. */
#define WEIR_CONTROL_RESERVE 8u

struct weir_channel {
	struct weir_pipe pipe;
	struct weir_ring returns; /* producer */
	SLIST_ENTRY(weir_channel) next;
	uint32_t index, engine;
	uint32_t release_count;
	weir_place *release;		 /* receive places to give back; room for all there are */
	TAILQ_HEAD(, weir_conn) control; /* connections with slots to be written */
	TAILQ_HEAD(, weir_conn) dues;	 /* connections with consumption not told yet */
	TAILQ_HEAD(, weir_conn) cramped; /* found no room in tx, and want to be told of it */
	struct weir_conn *asking;	 /* one of those: its WANT is under way for all; or NULL */
};

/* A piece of a segment's byte area between arrival and release. */
struct weir_span {
	uint64_t end;
	bool free;
};

struct weir_segment {
	struct weir_pipe pipe;
	LIST_ENTRY(weir_segment) next;
	uint32_t id, side;
	uint32_t users;		/* connections and loans */
	uint32_t endings;	/* connections whose end waits for what the segment holds */
	int error;		/* 0, or -EPROTO: the peer spoilt it */
	bool left;		/* we have said WEIR_SEGMENT_LEFT */
	uint64_t unknown_since; /* ns: a message for nobody we know is at the head; 0: none */
	uint8_t *base;
	struct weir_segment_geometry geometry;
	struct weir_segment_side *out, *in; /* of the direction we write, we read */
	struct weir_segment_conn *out_conns, *in_conns;
	uint8_t *out_area, *in_area;
	uint64_t out_pos, out_limit; /* byte area we write: next byte; first byte not known free */
	/* place in that area that a program fills for a message to come; one at a time */
	struct weir_conn *reserver; /* NULL: none */
	uint64_t reserved, reserved_bytes;
	uint64_t in_pos, in_free,
	    in_told;		 /* byte area we read: end of what came; free up to; told so */
	struct weir_span *spans; /* ring of what is in between, in order of arrival */
	uint32_t span_room;	 /* a power of two */
	uint64_t span_head, span_tail;
	uint64_t held; /* rx position + 1 of a message reported but left in place, 0 = none */
	TAILQ_HEAD(, weir_conn) conns;
	TAILQ_HEAD(, weir_conn) dues;
};

#define WEIR_SEGMENT_OF(p) ((struct weir_segment *)(p))
#define WEIR_CHANNEL_OF(p) ((struct weir_channel *)(p))
static_assert(offsetof(struct weir_segment, pipe) == 0, "a segment begins with its pipe");
static_assert(offsetof(struct weir_channel, pipe) == 0, "a channel begins with its pipe");

/* ---- threads ---- */

/* Sleeps, or is about to: is written to when another thread has moved something at this home. */
struct weir_waiter {
	LIST_ENTRY(weir_waiter) next;
	int fd;
};

/* Another thread's object whose connections report to this thread. */
struct weir_foreign {
	LIST_ENTRY(weir_foreign) next;
	struct weir_thread *home;
	bool own; /* the thread's own object, of an earlier session; goes with its last user */
	_Atomic uint32_t conns; /* up: the thread; down: any; 0: the thread drops it */
	struct weir_waiter waiter;
};

/* Which of a home's vQPNs are whose: pages by index, so that finding one is two loads. */
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
	    users; /* connections and listeners that hang on this home; read for adoption */
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
	int epoll_fd;	  /* epoll: rings_fd of this and of foreign homes, nudge_fd */
	uint32_t armed;	  /* sleepers: > 0 means that the sleep flags are up */
	uint32_t closing; /* connections that we have closed and that are not over */
	bool unsettled;	  /* something could not be told for want of room: no long sleep */
	LIST_HEAD(, weir_waiter) waiters;
	bool fd_armed; /* weir_arm() said 0; the owner's alone */
	struct weir_waiter fd_waiter;
	/* connections of other homes that report here */
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

/* The calling thread's object for w, made if need be; NULL and errno. */
struct weir_thread *weir_thread_get(struct weir *w);
/* Frees w's thread objects; nobody is inside a call. */
void weir_threads_free(struct weir *w);
/* Gives back the memory of a session that another has followed, if nothing of it is used. No lock
 * held. */
void weir_threads_shed(struct weir *w);
/* The calling thread's channel to an engine, UINT32_MAX: to any. 0 or -errno. Home locked. */
int weir_channel_get(struct weir_thread *t, uint32_t engine, struct weir_channel **ch);
/* The session's socket has hung up for ever, and was closed maybe: t sleeps on it no more. */
void weir_thread_forget_socket(struct weir_thread *t);
/* Calls f for each thread object of w. No lock held. */
void weir_threads_each(struct weir *w, void (*f)(struct weir_thread *t));
/* A pipe was made: its doorbell wakes this home. 0 or -errno. */
int weir_thread_add_bell(struct weir_thread *t, struct weir_pipe *p);
/* The pipe ends before its home does: its doorbell wakes nobody any more. Home locked. */
void weir_thread_remove_bell(struct weir_thread *t, struct weir_pipe *p);
/* One more connection of `home` reports to t, the caller's own. NULL and errno. */
struct weir_foreign *weir_thread_add_foreign(struct weir_thread *t, struct weir_thread *home);
/* Forgets homes of which none reports to t any more. */
void weir_thread_reap_foreign(struct weir_thread *t);
/* Writes to a waiter's eventfd. */
void weir_nudge(int fd);
/* Wakes everybody who waits at this home but `self`. */
void weir_thread_wake(struct weir_thread *t, const struct weir_waiter *self);

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

/* ---- requests ---- */

/* Asks; `want` is the reply expected. 0 or -errno with the reason set. Lock order: see above. */
int weir_request(struct weir *w, struct weir_session_msg *m, uint32_t want,
		 struct weir_session_msg *reply, int fds[WEIR_SESSION_FDS]);
/* A message of this type, its length set, else zero. */
struct weir_session_msg weir_message(uint32_t type);

/* ---- reasons ---- */

/* Sets weir_reason() and returns `rc`. */
int weir_fail(int rc, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
/* Why a session is over: -ECONNABORTED, an operator has ended it; -ENODEV, the data plane is gone.
 */
int weir_loss(const struct weir *w) __attribute__((cold));
/* The same with its reason; -ENOTCONN in a forked child. */
int weir_gone(const struct weir *w) __attribute__((cold));
/* Keeps why an operator ends the session. request_lock held. */
void weir_evicted(struct weir *w, const struct weir_session_msg *said) __attribute__((cold));
/* What weir_wait_next() gives when the session of its home is over. */
static inline bool
weir_is_loss(int rc)
{
	return weir_unlikely(rc == -ENODEV || rc == -ECONNABORTED);
}

/* ---- send heap ---- */

int weir_heap_init(struct weir *w);
void weir_heap_fini(struct weir *w);
/* Memory of `length` bytes: first block, or WEIR_BLOCK_NONE: none now, the thread is told when. */
uint32_t weir_heap_take(struct weir_thread *t, uint32_t length);
void weir_heap_give(struct weir_thread *t, uint32_t first);
/* Whether a program holds some of it, when nothing is under way. */
bool weir_heap_reserved(struct weir *w);
/* Whether `length` bytes could ever be had. */
bool weir_heap_fits(const struct weir *w, uint32_t length);
/* Gives back what the thread keeps. */
void weir_heap_flush(struct weir_thread *t);

static inline uint64_t
weir_heap_offset(const struct weir *w, uint32_t block)
{
	return weir_arena_send(&w->geometry) + (uint64_t)block * WEIR_BLOCK_SIZE;
}

/* ---- adopted memory ---- */

/*
 * The region that holds [addr, addr + length) and was adopted for `flags`, or NULL; it can't be
 * disowned until weir_region_drop(). Any lock but region_lock may be held.
 */
struct weir_region *weir_region_use(struct weir *w, const void *addr, size_t length,
				    unsigned flags);
void weir_region_drop(struct weir_region *r);
/* The range isn't the region's any more: gives only the region back. -EBUSY as weir_disown(). */
int weir_region_abandon(struct weir_region *r);
void weir_cache_init(struct weir *w);
void weir_cache_fini(struct weir *w);
/*
 * The region to send [addr, addr + length) out of, kept; adopts the range if it is time to. NULL:
 * it is copied. No home locked.
 */
struct weir_region *weir_cache_use(struct weir *w, const void *addr, size_t length);
/* Gives all of it back to the program. Nobody is inside a call. */
void weir_regions_fini(struct weir *w);

/* ---- segments ---- */

/* Maps side `side` of segment `id`, or finds it mapped. Home locked. 0 or -errno. */
int weir_segment_get(struct weir_thread *t, uint32_t id, uint32_t side, struct weir_segment **seg);
/* Unmaps it whatever uses it. Home locked, or nobody else there. */
void weir_segment_free(struct weir_segment *seg);
/* Room for `bytes` in one piece in the area we write: 0 and *offset, -EAGAIN, -EPROTO. */
int weir_area_take(struct weir_segment *seg, uint32_t bytes, uint64_t *offset);
bool weir_area_room(struct weir_segment *seg, uint32_t bytes);
/* Largest message that goes in one piece now. */
static inline uint64_t
weir_area_whole(const struct weir_segment *seg)
{
	return seg->geometry.area_bytes / (seg->reserver ? 4 : 2);
}

/*
 * Keeps a place for a message of c, at most a quarter of the area: 0 and *offset, -EAGAIN, -EPROTO,
 * -EBUSY (another has one). What is taken meanwhile goes around it.
 */
int weir_area_reserve(struct weir_segment *seg, struct weir_conn *c, uint32_t bytes,
		      uint64_t *offset);
/* The message has so many bytes: takes the place. 0 and *offset, -EAGAIN, -EPROTO. */
int weir_area_take_reserved(struct weir_segment *seg, uint32_t bytes, uint64_t *offset);
/* A piece arrived: checks it; *span names it until weir_area_free(). 0, -EPROTO, -ENOMEM (try
 * again). */
int weir_area_arrived(struct weir_segment *seg, uint64_t offset, uint64_t bytes, uint64_t *span);
void weir_area_free(struct weir_segment *seg, uint64_t span);
/* Tells the peer what we have consumed; rings if it wanted to know. */
void weir_segment_tell(struct weir_segment *seg);

/* ---- doorbells ---- */

void weir_pipe_ring(struct weir_pipe *p) __attribute__((cold));

/* Messages were published: whether the other end has to be woken. */
static inline bool
weir_pipe_asleep(const struct weir_pipe *p)
{
	/*
	 * Pairs with the fence in weir_thread_arm() of a local peer, engine_sleep_prepare() of an
	 * engine: a membarrier there, where both processes are registered.
	 */
	if (weir_unlikely(p->fence))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	return weir_unlikely(atomic_load_explicit(p->tx_sleeping, memory_order_relaxed));
}

static inline void
weir_pipe_published(struct weir_pipe *p)
{
	if (weir_pipe_asleep(p))
		weir_pipe_ring(p);
}

/* Steps over n slots of a message; `order` and `flags` are its head's. */
static inline void
weir_pipe_pop(struct weir_pipe *p, uint16_t order, uint8_t flags, uint32_t n)
{
	if (!p->local) {
		weir_ring_pop(&p->rx, n);
		return;
	}
	p->untold = true;
	weir_ring_answered(&p->tx, order);
	weir_ring_pop_paired(&p->rx, flags, n);
}

/* ---- waiting ---- */

struct weir_wait {
	struct weir_thread *home; /* whose rings hold what is waited for */
	struct weir_thread *self; /* the caller's own; NULL until it sleeps */
	bool events; /* for anything that self reports: home is self, and foreign homes count */
	int timeout_ms;
	bool armed;	 /* sleep flags are up: one more look, then sleep */
	bool nap;	 /* home was unsettled */
	uint32_t polls;	 /* since the last yield */
	uint32_t yields; /* since the start */
	uint32_t looks;	 /* a poll may look so often at its rings before it gives up */
	bool nap_always; /* what is waited for rings no bell */
	uint32_t ends;	 /* naps since the data plane has gone */
	uint32_t nap_ns; /* less than 1 s: sleep so long first, and raise no flags; 0: no */
	uint64_t start, deadline; /* ns; 0: clock not looked at yet */
	struct weir_waiter waiter;
};

/* Raises the sleep flags and looks nowhere: look again, then sleep. Home locked. */
void weir_thread_arm(struct weir_thread *t, struct weir_waiter *waiter);
/* Lowers them again and takes rung doorbells off. Home locked. */
void weir_thread_disarm(struct weir_thread *t, struct weir_waiter *waiter);

static inline void
weir_wait_init(struct weir_wait *wait, struct weir_thread *home, int timeout_ms)
{
	*wait = (struct weir_wait){.home = home, .timeout_ms = timeout_ms};
}

/*
 * After a look that found nothing: pauses, yields or sleeps. 0: look again; -EAGAIN: time is over
 * (or there was none); -ENODEV. No lock held.
 */
int weir_wait_next(struct weir_wait *wait);
void weir_wait_disarm(struct weir_wait *wait);
/* After success, or when giving up otherwise. */
static inline void
weir_wait_end(struct weir_wait *wait)
{
	if (weir_unlikely(wait->armed))
		weir_wait_disarm(wait);
}

/*
 * Raises or lowers the flags of t and of the foreign homes that report to it. No lock held. True:
 * some home is unsettled.
 */
bool weir_thread_arm_all(struct weir_thread *t, struct weir_waiter *waiter);
void weir_thread_disarm_all(struct weir_thread *t, struct weir_waiter *waiter);
uint64_t weir_clock(void);

static inline void
weir_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#endif
}

/* ---- upwards: what lib/stream does for the above ---- */

/* Moves what waits on the home's rings; returns how much. `want`: its next message stays in the
 * ring. */
unsigned weir_drive(struct weir_thread *t, struct weir_conn *want);
/* Before sleep: everything that others may wait for is told, wishes are made known. Home locked. */
void weir_drive_settle(struct weir_thread *t);
/* After a call that gave something back: who sleeps here would not tell it. Home locked. */
void weir_drive_leave(struct weir_thread *t);
/* Frees connections and listeners of a home at detach. */
void weir_thread_clear(struct weir_thread *t);
/* The caller's own, armed or not: what it sleeps on has changed, its descriptor says look again. */
void weir_thread_rouse(struct weir_thread *t);
/* Waits until closed connections have delivered all, or for a while. */
void weir_linger(struct weir *w);
/* The data plane is gone: what lies in the home's rings is taken in, its connections end. No lock
 * held. Those with local peers end in weir_thread_last(), which sets w->chores if one has not. */
void weir_thread_lost(struct weir_thread *t);
void weir_thread_last(struct weir_thread *t);
/* t is the calling thread's object for the present session, p was it for an earlier one. */
void weir_thread_follow(struct weir_thread *t, struct weir_thread *p);
/* Its OS thread ends: what only that asked for goes. Under the lock of thread objects. */
void weir_thread_ended(struct weir_thread *t);

#endif
