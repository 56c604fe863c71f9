/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of remote memory. The server has another program export memory, its target, and says the
 * key in READY. The driver's threads operate on the memory; the target sleeps or is stopped, and
 * looks at its memory when END has come.
 */
#ifndef WEIR_PERF_REMOTE_H
#define WEIR_PERF_REMOTE_H

#include "message.h"

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
	bool stopped;
	struct perf_message request;
};

/* Starts the program. 0 or -errno. */
int target_start(struct perf_target *t, const char *instance, const struct perf_message *request);
/* Its key, once it has exported. 0; -EAGAIN: not yet; or why it can't. Doesn't wait. */
int target_ready(struct perf_target *t, uint8_t key[PERF_KEY_BYTES]);
/* Has it look at its memory. */
void target_ask(struct perf_target *t);
/* Fills the counts of the RESULT. 0, -EAGAIN: not yet; or -errno. Doesn't wait. */
int target_result(struct perf_target *t, struct perf_message *result);
/* Ends it. */
void target_end(struct perf_target *t);

#endif
