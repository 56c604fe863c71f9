/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles of remote memory. Each thread that uses one has a lane of its own, whose lock only it
 * takes. The lane's connection stays until the handle is closed, also after its end, unless the
 * thread closes it while it is idle, for another one (lane.c).
 */
#ifndef WEIR_REMOTE_HANDLE_H
#define WEIR_REMOTE_HANDLE_H

#include "window.h"

#include "client/reason.h"
#include "client/session.h"
#include "ipc/key.h"
#include "ipc/layout.h"
#include "stream/conn.h"

struct weir_export {
	struct weir *w;
	uint32_t number, generation; /* at the data plane */
	struct weir_thread *worker;  /* gets its notices; NULL: there are none */
	uint8_t *base;		     /* in a region, which may have ended */
	uint64_t length;
	/* takes its notices instead of weir_notice_next(); NULL: none. Written and read with the
	 * worker locked */
	struct weir_notice_sink *sink;
	LIST_ENTRY(weir_export) in_session;
};

#define WEIR_RECENT_LANES 8u

struct weir_remote {
	struct weir *w;
	struct weir_key key;
	uint32_t rights; /* WEIR_MAY_* */
	bool local;
	bool dynamic;		   /* of a dynamic export: weir_remote_set_dynamic() */
	_Atomic uint64_t refused;  /* operations outside its ranges, that weir_remote_refused() has
				      not told yet */
	struct weir_direct direct; /* memory of this host that the key lets programs map */
	uint64_t mapped_room;	   /* bytes of the mapping */
	/* by weir_thread.number: the lane of a thread with that remainder, a hint, so that few
	 * threads share one; its worker is set before the release that publishes it */
	_Atomic(struct weir_remote_lane *) recent[WEIR_RECENT_LANES];
	/* mapped: a thread has begun what the data plane does, which a flush awaits. All threads */
	_Atomic bool by_engine;
	struct weir_conn *lender; /* stands for memory that is lent; NULL: it is not */
	/* the opening thread's; mapped: stays, and tells how the export ends */
	struct weir_conn *first;
	/* stays: that with the number of this program among the words of the lock; NULL: none yet.
	 * By the thread that locks, one at a time */
	struct weir_conn *member;
	struct weir_words_known words;
	/* of the next three, and of `conn` of lanes; nothing is locked inside it */
	pthread_mutex_t lock;
	uint64_t length; /* of the export; 0: connections know it, and its node */
	uint16_t node;
	LIST_HEAD(, weir_remote_lane) lanes;
	LIST_ENTRY(weir_remote) in_session;
};

/*
 * The part of a handle that one thread uses: a connection, or none while it lacks. Handles of
 * operations and marks refer to the lane, and count from its first connection on.
 */
struct weir_remote_lane {
	struct weir_thread *worker;
	/* NULL: none. Written with worker and remote locked; read so, or by the thread after
	 * weir_lane_use() */
	struct weir_conn *conn;
	/* if it has one: in order of use. Worker locked */
	TAILQ_ENTRY(weir_remote_lane) in_worker;
	uint64_t before; /* operations of its former connections, all complete. As conn */
	struct weir_remote *remote;
	/* of a dynamic export: how many operations of the connection were outside its ranges, as
	 * the engine has answered, and as remote.refused has; operations of the lane before the
	 * last question. Worker locked */
	uint64_t refusals, refusals_counted, asked;
	bool opened;  /* a former one was open */
	uint8_t lack; /* enum lack: why the last attempt was refused. The thread's */
	/* ns, if others were closed for it: when yet another one is; when a refusal counts again.
	 * The thread's */
	uint64_t next_at, refused_at;
	LIST_ENTRY(weir_remote_lane) in_remote;
};

static inline _Atomic(struct weir_remote_lane *) *
weir_lane_recent(struct weir_remote *r, const struct weir_thread *t)
{
	return r->recent + t->number % WEIR_RECENT_LANES;
}

/* ---- lane.c ---- */

/* The calling thread's connection, which may still be opening. NULL: there is none. The thread may
 * use it until it asks for that of another handle. */
struct weir_conn *weir_remote_conn(struct weir_remote *r);
/*
 * The same; makes one if there is none. NULL: *rc says with the reason why none can be made. It
 * waits for connections that are closed for it, at most for the time; -EAGAIN, only with a time of
 * 0: call again.
 */
struct weir_conn *weir_remote_make_conn(struct weir_remote *r, int timeout_ms, int *rc);
/*
 * Waits until it is open; *c is another one if the first found no room. 0, -EAGAIN (not within the
 * time), or how the attempt ended.
 */
int weir_remote_await_open(struct weir_conn **c, int timeout_ms);
/* How a connection ended, -errno, with the reason. */
int weir_remote_ended(const struct weir_conn *c, int end);
/* -ESTALE, with the reason, where the key of memory that was open is rejected; else rc. */
int weir_lane_rejected(const struct weir_remote_lane *l, int rc);
/* Closes all connections of a handle that nobody uses any more. */
void weir_lanes_close(struct weir_remote *r);
/* The same at detach, where the session frees the connections. */
void weir_lanes_free(struct weir_remote *r);
/* Moves the lane behind the others of its thread. Worker locked. */
void weir_lane_used(struct weir_remote_lane *l);

/* The thread uses the lane's connection: other threads do not close it before it uses another one.
 * Worker locked. */
static inline void
weir_lane_use(struct weir_remote_lane *l)
{
	if (weir_unlikely(TAILQ_NEXT(l, in_worker)))
		weir_lane_used(l);
}

/* -ERANGE, with the reason, where the bytes are not within `whole`. */
static inline int
weir_remote_range(uint64_t whole, uint64_t offset, uint64_t length)
{
	if (weir_likely(offset <= whole && length <= whole - offset))
		return 0;
	return weir_fail(-ERANGE, "%llu bytes at %llu are not within the export of %llu",
			 (unsigned long long)length, (unsigned long long)offset,
			 (unsigned long long)whole);
}

/* Maps the export of a handle that has its first connection, if the key lets it. */
void weir_remote_map(struct weir_remote *r);
void weir_remote_unmap(struct weir_remote *r);
/* Why these bytes cannot be accessed: how session or export has ended, or -ERANGE. */
int weir_mapped_refused(const struct weir_remote *r, uint64_t offset, uint64_t length);
/* Where these bytes of mapped memory are. NULL: not accessible, as the above says. */
static inline uint8_t *
weir_mapped_at(const struct weir_remote *r, uint64_t offset, uint64_t length)
{
	if (weir_unlikely(!weir_direct_open(&r->direct) || offset > r->direct.bytes ||
			  length > r->direct.bytes - offset))
		return NULL;
	return r->direct.at + offset; /* only now is it an address */
}
/* 0, or how session or export has ended. */
int weir_mapped_ended(const struct weir_remote *r);

/* ---- operation.c; worker locked ---- */

/* Room for n slots, behind an UNLOCK that is due. 0, -EAGAIN, -EPROTO. */
int weir_remote_room(struct weir_conn *c, uint64_t n);
/* Writes a cell without payload, WEIR_SLOT_HEAD_BYTES, for which there is room. */
void weir_cell_write(struct weir_conn *c, uint8_t op, const void *cell);
/* Has the engine say, once, when all that was begun is complete. */
void weir_remote_ask_done(struct weir_conn *c);

/*
 * Its completed operations, and below those with an answer, for the thread of the lane without the
 * lock: another one may complete them (window.h). Each load pairs with the store that another
 * thread makes with the lock.
 */
static inline uint64_t
weir_remote_completed(const struct weir_conn *c)
{
	return __atomic_load_n(&c->completed, __ATOMIC_RELAXED);
}

/* ---- flush.c; worker locked ---- */

/* Asks a dynamic export, behind all operations of the lane, how many were refused, unless that was
 * asked. 0, -EAGAIN (no room), or how the connection has ended. */
int weir_lane_ask_refusals(struct weir_remote_lane *l);
/* Counts what has been answered. */
void weir_lane_count_refusals(struct weir_remote_lane *l);

/* ---- result.c; worker locked ---- */

#define WEIR_SCATTER_LIST 64u /* pieces of a list that an answer can be copied to */
/*
 * Memory of the session that the answer to the next operation, of `length` bytes, is put into:
 * *place is its offset in the arena / 64. `scatter`: it goes to these pieces; NULL: to one. 0,
 * -ENOMEM, or -EAGAIN: too many answers are awaited, or the send heap has no block now; a flush, or
 * the heap, says when.
 */
int weir_result_reserve(struct weir_conn *c, uint32_t length,
			const struct weir_layout_walk *scatter, uint32_t *place);
/* The operation `number` was begun: its answer, in the memory reserved last, is copied to `to`, or
 * to pieces around it. */
void weir_result_await(struct weir_conn *c, uint64_t number, void *to);
/* Copies the answers that have come to the program's memory. */
void weir_results_take(struct weir_conn *c);
/* Operations up to the last one with an answer that was not taken; 0: there is none. */
uint64_t weir_results_last(const struct weir_conn *c);
/* Gives back the memory of small answers, if none is awaited. Worker locked. */
void weir_results_give_lines(struct weir_conn *c);
/* Operations under way have send blocks. Worker locked. */
static inline bool
weir_remote_has_blocks(const struct weir_conn *c)
{
	return weir_results_last(c) || c->blocks.head != c->blocks.tail;
}

#endif
