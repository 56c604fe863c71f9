/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that operate on memory, as remote memory (access.c) or through a window (window.c). */
#ifndef WEIR_PERF_LANES_H
#define WEIR_PERF_LANES_H

#include "driver.h"
#include "remote.h"

#include <errno.h>
#include <pthread.h>

struct remote_run;

struct lane {
	pthread_t thread;
	struct remote_run *run;
	struct perf_flow *flow;	    /* to the server whose memory it is */
	struct weir_remote *remote; /* the memory, unless it is of a window: */
	uint32_t rank;		    /* of the member whose memory it is */
	uint32_t number;	    /* among the threads that use it */
	struct perf_schedule schedule;
	struct weir_watch watch; /* PERF_NOTIFY through a window */
	uint64_t begun;		 /* operations */
	_Atomic uint64_t so_far; /* the lane writes, main reads */
	uint64_t bare, bare_ns;	 /* operations of blocks that were timed as a whole */
	uint64_t rated, rate_ns; /* operations and time of the rate's part */
	int rc;
	struct histogram latency;
	uint8_t *buffer;
	_Alignas(16) uint8_t fetched[PERF_ELEMENT_MAX]; /* by the last operation */
	uint64_t errors;
};

/* Operations of one kind; a further one is a line in a table and a test in schedule.h. */
struct remote_kind {
	unsigned rights; /* of remote memory */
	/* Operation i. 0, REMOTE_LAST or -errno. */
	int (*begin)(struct lane *l, uint64_t i);
	/* Waits until the operations are complete, or the last one was answered; NULL: they are. */
	int (*complete)(struct lane *l);
	/* Whether operation i, which is complete, had the right result; NULL: it has none. */
	bool (*right)(const struct lane *l, uint64_t i);
};
#define REMOTE_LAST 1 /* no member makes another operation */

extern const struct remote_kind access_kinds[PERF_TESTS], window_kinds[PERF_TESTS];

struct remote_run {
	struct driver *driver;
	const struct remote_kind *kind;
	struct weir_remote **remotes; /* one per connection */
	struct weir_remote *lock;     /* of a team's first program: all contend for it */
	struct weir_window *win;      /* NULL: remote memory */
	struct remote_rounds rounds;  /* PERF_FENCE, PERF_PSCW */
	uint64_t base;		      /* in a member's part, where this program's threads operate */
	int lock_kind;
	struct remote_layout layout;
	struct weir_layout there; /* pieces of an operation */
	struct weir_region *region;
	struct weir_export *x; /* of it, for answers; NULL: there are none */
	struct perf_message request;
	uint32_t threads; /* for each memory */
	uint32_t lanes;	  /* for all */
	int patience_ms;
	uint64_t start_ns, end_ns; /* end_ns of the latency's part; without a count */
	atomic_bool failed;	   /* a lane writes: the others end */
};

/* Opens the memory of all servers. 0 or -errno; access_close() follows. */
int access_open(struct remote_run *run);
void access_close(struct remote_run *run);
/* Writes the number of the lane's operations behind them. 0 or -errno. */
int access_end(struct lane *l);

/* The same with a window that is open: begins the epoch of all lanes, and ends it. */
int window_begin(struct remote_run *run);
int window_end(struct lane *l);
int window_finish(struct remote_run *run);

static inline void
lane_fill(struct lane *l, uint64_t i)
{
	const struct perf_message *request = &l->run->request;

	if (request->flags & PERF_VERIFY)
		perf_schedule_fill(&l->schedule, i, l->buffer, request->size);
	else
		perf_schedule_stamp(i, l->buffer, request->size);
}

/* Operation i, with pieces or what else it has beside bytes. */
static inline struct weir_transfer
lane_transfer(const struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;

	return (struct weir_transfer){.offset =
					  run->base + remote_slot_at(&run->layout, l->number, i),
				      .buf = l->buffer,
				      .length = run->request.size,
				      .there = run->there.block ? &run->there : NULL};
}

/* The buffer holds ones. */
static inline struct weir_update
lane_update(const struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	uint32_t type = perf_element(run->request.type);

	return (struct weir_update){.offset =
					run->base + remote_slot_at(&run->layout, l->number, i),
				    .operand = l->buffer,
				    .count = run->request.size / perf_element_size(type),
				    .there = run->there.block ? &run->there : NULL,
				    .type = type,
				    .op = perf_acc(run->request.op)};
}

/* Looks at the result of the last operation once a flush has returned rc. */
static inline int
lane_flushed(struct lane *l, int rc)
{
	const struct remote_kind *kind = l->run->kind;

	if (!rc && kind->right && l->begun)
		l->errors += !kind->right(l, l->begun - 1);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* remote_kind.right of gets, and of operations that fetch. */
bool lane_got_right(const struct lane *l, uint64_t i);
bool lane_fetched_right(const struct lane *l, uint64_t i);

#endif
