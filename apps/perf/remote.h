/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of remote memory. The server has another program export memory, its target, and says the
 * key in READY. The driver's threads operate on the memory; the target sleeps or is stopped, and
 * looks at its memory when END has come.
 *
 * Through a window the drivers of a run and their targets form a group, driver n as rank 2n and its
 * target as 2n + 1. With --alltoall the drivers alone do, and operate on each other's parts.
 */
#ifndef WEIR_PERF_REMOTE_H
#define WEIR_PERF_REMOTE_H

#include "result.h"

#include "weir/window.h"

#include <sys/types.h>

/*
 * The exported memory, per thread of the driver: a line with the number of its operations, written
 * last, then slots. Operation i is on slot i % slots.
 */
#define REMOTE_LINE 64u
#define REMOTE_SLOTS_MAX 64u
#define REMOTE_THREAD_BYTES (1u << 20) /* of the slots of a thread, but one is always there */

/* Bytes in which an operation's bytes lie. */
static inline uint32_t
remote_extent(const struct perf_message *request)
{
	if (!request->block)
		return request->size;
	return (request->size / request->block - 1) * request->stride + request->block;
}

struct remote_layout {
	uint64_t stride, slots; /* bytes of a slot; their number */
	uint64_t thread;	/* bytes of a thread's part */
	uint64_t bytes;
};

static inline struct remote_layout
remote_layout(uint32_t extent, uint32_t threads)
{
	struct remote_layout l = {.stride = extent ? ((uint64_t)extent + 7) / 8 * 8 : 8};

	l.slots = REMOTE_THREAD_BYTES / l.stride;
	l.slots = l.slots < 1 ? 1 : l.slots > REMOTE_SLOTS_MAX ? REMOTE_SLOTS_MAX : l.slots;
	l.thread = (REMOTE_LINE + l.slots * l.stride + REMOTE_LINE - 1) / REMOTE_LINE * REMOTE_LINE;
	l.bytes = threads * l.thread;
	return l;
}

/* Offset of the count of a thread, and of the slot of its operation i. */
static inline uint64_t
remote_count_at(const struct remote_layout *l, uint32_t thread)
{
	return thread * l->thread;
}

static inline uint64_t
remote_slot_at(const struct remote_layout *l, uint32_t thread, uint64_t i)
{
	return thread * l->thread + REMOTE_LINE + i % l->slots * l->stride;
}

/*
 * PERF_NOTIFY, PERF_SIGNAL: the driver puts the key of its own export behind the slots and sends
 * REMOTE_HELLO. From then on the target answers each notice by one with the same tag, or the number
 * that a signal has set in the word behind the key by the same in the first word of that export.
 */
#define REMOTE_HELLO UINT32_MAX

static inline uint64_t
remote_key_at(const struct remote_layout *l)
{
	return l->bytes;
}

static inline uint64_t
remote_signal_at(const struct remote_layout *l)
{
	return l->bytes + PERF_KEY_BYTES;
}

/* ---- windows ---- */

/*
 * A member's part: a line with a word, then what is above for each driver that operates on it. A
 * program waits for its word with PERF_SIGNAL and PERF_FLAG; with PERF_FENCE and PERF_PSCW it is
 * the number of the last round.
 */
#define REMOTE_WORD_AT 0u

/* Offset in a part of what the driver of the request operates on. */
static inline uint64_t
remote_base(const struct perf_message *request)
{
	struct remote_layout l = remote_layout(remote_extent(request), request->threads);

	return REMOTE_LINE + (request->flags & PERF_HERE ? request->rank * l.bytes : 0);
}

/* Memory of a part. */
struct remote_part {
	struct weir_region *region; /* NULL: none */
	uint8_t *base;
	uint64_t bytes;
};

/* Allocates it once, for that many drivers with such requests. 0 or -errno. */
int part_open(struct remote_part *p, struct weir *weir, const struct perf_message *request,
	      uint32_t drivers);
void part_close(struct remote_part *p);
/* Waits until the word of a part is at least that: *seen. Nobody rings for a plain put, so it looks
 * and yields. 0 or -EAGAIN. */
int part_await(const uint8_t *base, uint64_t least, int timeout_ms, uint64_t *seen);
/* The memory of what the driver of a request operates on. */
static inline uint8_t *
part_of(const struct remote_part *p, const struct perf_message *request)
{
	return p->base + remote_base(request);
}

struct remote_window {
	struct weir_group *g;
	struct weir_window *win; /* NULL: none */
	struct remote_part own;	 /* of a driver that nobody operates on */
};

/* Collective: makes the group and the window over the part. 0 or -errno; remote_window_close()
 * follows. */
int remote_window_open(struct remote_window *w, struct weir *weir,
		       const struct perf_message *request, uint32_t rank,
		       const struct remote_part *part, int timeout_ms);
/* Collective. 0, or -errno: it may be open still. */
int remote_window_close(struct remote_window *w, int timeout_ms);

/*
 * Ranks of the partners of a member: at the distances 1, 3, 5, ... to its right or left. Where the
 * drivers are on one host and the targets on another, all are on the other host.
 */
static inline uint32_t
remote_partner(uint32_t rank, uint32_t members, uint32_t i, bool right)
{
	return (rank + (right ? 2 * i + 1 : members - 2 * i - 1)) % members;
}

/* Calls that all members make together, equally often. */
struct remote_rounds {
	struct weir_window *win;
	const uint8_t *base; /* own part */
	uint32_t test, partners, members;
	uint32_t right[PERF_PROGRAMS_MAX], left[PERF_PROGRAMS_MAX]; /* the neighbours are first */
	uint64_t done, last; /* rounds; number of the last one, 0: not known yet */
	bool told;	     /* the member to the right knows the last one */
	bool timed;	     /* the calls of the next rounds, each alone */
	struct perf_calls calls;
	int patience_ms;
};

/* For such a request. 0 or -errno. */
int rounds_begin(struct remote_rounds *r, struct weir_window *win, const uint8_t *base,
		 const struct perf_message *request, int patience_ms);
/* A fence, or post, start, complete and wait in a ring; before its end `length` bytes are put to
 * the member to the right. 0; 1: the round was the last one; or -errno. */
int rounds_one(struct remote_rounds *r, uint64_t at, const void *bytes, size_t length);
/* Makes the rounds that remain, and then another one with that put. 0 or -errno. */
int rounds_end(struct remote_rounds *r, uint64_t at, const void *bytes, size_t length);

/* Contents of a thread's operations. */
static inline struct perf_schedule
remote_schedule(const struct perf_message *request, uint32_t thread)
{
	return (struct perf_schedule){.test = request->test,
				      .size = request->size,
				      .seed = perf_mix(request->seed ^ perf_mix(thread + 1))};
}

/* Writes the contents of the slots that gets find. */
void remote_fill(const struct perf_message *request, uint8_t *memory);
/* Counts the operations in memory, and the wrong slots of the last ones of each thread. */
void remote_check(const struct perf_message *request, const uint8_t *memory, uint64_t *count,
		  uint64_t *errors);

/* ---- the target, as the server sees it ---- */

struct perf_target {
	pid_t pid; /* 0: none */
	int fd;	   /* to and from it */
	struct perf_message request;
};

/* Starts the program. 0 or -errno. */
int target_start(struct perf_target *t, const char *instance, const struct perf_message *request);
/* Its key, once it has exported; none of a window. 0; -EAGAIN: not yet; or why it can't. Doesn't
 * wait. */
int target_ready(struct perf_target *t, uint8_t key[PERF_KEY_BYTES]);
/* Has it look at its memory. */
void target_ask(struct perf_target *t);
/* Fills the counts of the RESULT. 0, -EAGAIN: not yet; or -errno. Doesn't wait. */
int target_result(struct perf_target *t, struct perf_message *result);
/* Ends it. */
void target_end(struct perf_target *t);

#endif
