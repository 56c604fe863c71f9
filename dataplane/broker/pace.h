/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits CPU time of main: a burst at once, and in the long run a share of the time. Main commonly
 * shares its CPU with engines or programs; without limits, a program that attaches or sends
 * requests in a loop would take half of it.
 */
#ifndef WEIR_PACE_H
#define WEIR_PACE_H

#include <stdint.h>
#include <time.h>

#define PACE_SHARE 20u		    /* 1/20 of the time, unless pace.share is set */
#define PACE_LONGEST_NS 3000000000u /* ns: longest wait */

struct pace {
	uint64_t used_ns, seen; /* used time that counts; when it was last reduced */
	uint32_t share;		/* 1/share of the time is allowed; 0: PACE_SHARE */
};

static inline uint32_t
pace_share(const struct pace *p)
{
	return p->share ? p->share : PACE_SHARE;
}

/* CPU time of this thread, ns. */
static inline uint64_t
pace_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void
pace_use(struct pace *p, uint64_t burst_ns, uint64_t ns)
{
	if (!burst_ns)
		return;
	p->used_ns += ns;
	if (p->used_ns > burst_ns + PACE_LONGEST_NS / pace_share(p))
		p->used_ns = burst_ns + PACE_LONGEST_NS / pace_share(p);
}

/* ns of used time that count at `now`; callers may have read the clock before `seen`. */
static inline uint64_t
pace_left(struct pace *p, uint64_t now)
{
	uint64_t drained;

	if (now <= p->seen)
		return p->used_ns;
	drained = (now - p->seen) / pace_share(p);
	p->used_ns -= drained < p->used_ns ? drained : p->used_ns;
	p->seen = now;
	return p->used_ns;
}

/* When work may continue: 0 for now, or a time after `now`. A burst of 0: no limit. */
static inline uint64_t
pace_due(struct pace *p, uint64_t burst_ns, uint64_t now)
{
	if (!burst_ns || pace_left(p, now) < burst_ns)
		return 0;
	return now + (p->used_ns - burst_ns + 1) * pace_share(p);
}

#endif
