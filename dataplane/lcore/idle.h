/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How an engine's thread waits: it spins, yields its CPU, or sleeps. On a CPU that other threads
 * want too it yields between turns as well, and asks for shorter time slices where many programs
 * yield to it; on a dedicated CPU idle_next_shared() is never called.
 */
#ifndef WEIR_IDLE_H
#define WEIR_IDLE_H

#include <stdbool.h>
#include <stdint.h>

struct clock;
struct engine;

enum idle_mode {
	IDLE_POLL,     /* spins for ever */
	IDLE_ADAPTIVE, /* sleeps after config.spin_ns without work */
};

/* The next action of the thread. */
enum idle_step { IDLE_RUN, IDLE_PAUSE, IDLE_YIELD, IDLE_SLEEP };

struct idle_tuning {
	uint32_t empty_turns; /* turns without work, at least, before a sleep */

	/* detection: other threads run on the CPU */
	uint32_t usage_ns;  /* ns between two looks at involuntary switches */
	uint32_t switches;  /* involuntary switches in that time that mean a shared CPU */
	uint32_t shared_ns; /* ns to keep treating the CPU as shared after the last such look */

	/* without work on a shared CPU */
	uint32_t alone_ns;     /* ns; a yield that took less found no other thread */
	uint32_t lonely;       /* such yields in a row until the thread yields rarely */
	uint32_t lonely_turns; /* turns between two yields from then on */
	uint32_t expect_ns;    /* ns to spin after work whose answer comes from the wire */
	uint32_t others_ns;    /* ns; spin only if the last yield returned within this time */
	uint32_t few_turns;    /* spin only with fewer turns with work since that yield */

	/* with work on a shared CPU */
	uint32_t turn_ns;      /* ns between two yields, at least */
	uint32_t turn_most_ns; /* ns between two yields, at most */
	uint32_t turn_part;    /* between these two: 1/turn_part of the last yield's duration */
	uint32_t few_work;     /* yield at once after a turn that did no more work */

	/* many programs on a shared CPU */
	uint32_t crowd_ns;	/* ns; credit waits for a frame if a yield took this long */
	uint32_t many_channels; /* halve slices if more channels had slots per turn */
	uint32_t few_channels;	/* double them again if fewer had */
	uint32_t slice_ns;	/* ns between two changes of the slice */
	uint32_t slice_shift;	/* halvings, at most */
};

/* A constant of the build, which the compiler folds. */
static const struct idle_tuning idle_tuning = {
    .empty_turns = 20,

    .usage_ns = 40000000,
    .switches = 4,
    .shared_ns = 500000000,

    .alone_ns = 1000,
    .lonely = 8,
    .lonely_turns = 16,
    .expect_ns = 16000,
    .others_ns = 5000,
    .few_turns = 4,

    .turn_ns = 30000,
    .turn_most_ns = 300000,
    .turn_part = 4,
    .few_work = 4,

    .crowd_ns = 200000,
    .many_channels = 6,
    .few_channels = 2,
    .slice_ns = 2000000,
    .slice_shift = 3,
};

struct idle {
	/* set before the start, then constant */
	enum idle_mode mode;
	uint64_t spin_ns;
	bool told_shared; /* another engine is pinned to the same CPU */

	uint64_t last_work; /* ns */
	uint64_t empty_turns;
	bool shared; /* told or detected */

	/* detection */
	uint64_t usage_checked; /* ns */
	uint64_t shared_until;	/* ns */
	uint64_t switches;	/* involuntary, at the last look */

	/* of yields */
	uint64_t yield_end;  /* ns */
	uint64_t yield_took; /* ns; 0: slept since */
	uint32_t lonely;     /* yields in a row that found no other thread */
	uint32_t busy_turns; /* since the last yield */
	bool yielded;	     /* since programs sent or received */
	bool others_idle;    /* the last yield returned soon */

	/* time slices */
	uint64_t slice_ns;    /* of the thread at its start; 0: it can't be changed */
	uint32_t slice_shift; /* halvings in effect */
	uint64_t slice_at;    /* ns: changed last */
	uint32_t channels;    /* x 256: with work after a yield, moving average */
};

void idle_init(struct idle *i, enum idle_mode mode, uint64_t spin_ns, bool told_shared);
/* The thread starts. */
void idle_start(struct idle *i, uint64_t now);
/* Looks now and then whether the CPU is shared. Returns what holds. */
bool idle_detect_sharing(struct idle *i, uint64_t now);
/* Yields the CPU. */
void idle_yield(struct idle *i, struct engine *e, const struct clock *clock);
/* The thread is about to sleep. */
void idle_sleeps(struct idle *i, struct engine *e);
/* The half of idle_next() for a shared CPU. */
enum idle_step idle_next_shared(struct idle *i, const struct engine *e, unsigned work,
				uint64_t now);

/* The next action after a turn that did `work`. */
static inline enum idle_step
idle_next(struct idle *i, const struct engine *e, unsigned work, uint64_t now)
{
	if (work) {
		i->last_work = now;
		i->empty_turns = 0;
		return i->shared ? idle_next_shared(i, e, work, now) : IDLE_RUN;
	}
	i->empty_turns++;
	if (i->mode == IDLE_ADAPTIVE && now - i->last_work >= i->spin_ns &&
	    i->empty_turns >= idle_tuning.empty_turns)
		return IDLE_SLEEP;
	if (i->shared)
		return idle_next_shared(i, e, 0, now);
	return i->mode == IDLE_ADAPTIVE && now - i->last_work >= i->spin_ns / 2 ? IDLE_YIELD
										: IDLE_PAUSE;
}

#endif
