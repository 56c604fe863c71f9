/* SPDX-License-Identifier: BSD-3-Clause */
#include "psn_window.h"

#include "ipc/invariant.h"

#define WINDOW_START 65536u
#define WINDOW_DELAY_FLOOR 262144u /* growing delay alone doesn't shrink the window below this */
#define WINDOW_QUEUED_NS 14000u	   /* a shorter round trip has no room for a queue */
#define WINDOW_RTO_MIN_NS 200000u  /* a timeout that is premature costs little */
#define WINDOW_RTO_FIRST_NS 400000u
#define WINDOW_BACKOFF 20
#define WINDOW_DELAY_NS 1000000u /* queueing beyond this is congestion; less is scheduling */

static uint32_t
larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

void
roce_window_init(struct window *w, uint32_t frame, uint32_t frames_min, uint32_t cap)
{
	weir_assert(frame && frames_min);
	*w = (struct window){.floor = frame * frames_min, .step = frame};
	w->cap = larger(cap, w->floor);
	w->size = larger(w->cap < WINDOW_START ? w->cap : WINDOW_START, w->floor);
	w->threshold = w->cap;
}

static void
decrease(struct window *w, uint32_t size, uint32_t next)
{
	if (w->recovering)
		return;
	weir_assert(w->size >= w->floor && w->size <= w->cap);
	w->before = w->size;
	w->size = larger(size, w->floor);
	w->threshold = w->size;
	w->recovering = true;
	w->recover = next;
}

void
roce_window_acked(struct window *w, uint32_t bytes, uint32_t una, uint32_t next, uint64_t now)
{
	uint64_t grown, rtt, difference;

	weir_assert((int32_t)(next - una) >= 0);
	weir_assert(w->size >= w->floor && w->size <= w->cap);
	if (w->recovering && (int32_t)(una - w->recover) >= 0) {
		w->recovering = false;
		w->before = 0;
	}
	if (w->sampling && (int32_t)(una - w->sample_psn) > 0) {
		w->sampling = false;
		if (!w->resent || w->rtt == 0) { /* too long at first is better than nothing */
			rtt = now - w->sample_time;
			difference = rtt > w->rtt ? rtt - w->rtt : w->rtt - rtt;
			if (w->rtt == 0) {
				w->rtt = rtt;
				w->variance = rtt / 2;
			} else {
				w->variance += difference / 4;
				w->variance -= w->variance / 4;
				w->rtt += rtt / 8;
				w->rtt -= w->rtt / 8;
			}
			w->backoff = 0;
			/* the shortest ages slowly, so that a longer path is learnt in time */
			if (w->rtt_min == 0 || rtt < w->rtt_min)
				w->rtt_min = rtt;
			else
				w->rtt_min += w->rtt_min / 1024 + 1;
			if (rtt > 2 * w->rtt_min + WINDOW_DELAY_NS && w->size > WINDOW_DELAY_FLOOR)
				decrease(w, larger(w->size - w->size / 8, WINDOW_DELAY_FLOOR),
					 next);
		}
	}
	if (w->size == w->cap || (w->recovering && w->size >= w->threshold))
		return;
	if (w->size < w->threshold)
		grown = (uint64_t)w->size + bytes;
	else
		grown = w->size + (uint64_t)w->step * bytes / w->size + 1;
	w->size = grown < w->cap ? (uint32_t)grown : w->cap;
}

void
roce_window_marked(struct window *w, uint32_t next)
{
	decrease(w, w->size / 2, next);
}

void
roce_window_lost(struct window *w, uint32_t next)
{
	bool queued = w->rtt == 0 || w->rtt >= WINDOW_QUEUED_NS;

	w->resent = true;
	/* without a queue the loss was chance, not overflow; the window shrinks little, so that
	 * less is sent again */
	decrease(w, w->size - w->size / (queued ? 2 : 8), next);
}

void
roce_window_lost_again(struct window *w, uint32_t next)
{
	roce_window_lost(w, next);
	w->size = w->floor;
}

void
roce_window_timeout(struct window *w, uint32_t next)
{
	roce_window_lost_again(w, next);
	if (w->backoff < WINDOW_BACKOFF)
		w->backoff++;
}

uint64_t
roce_window_stale(const struct window *w)
{
	/* NAKs leave at once; the measured ACKs may have waited */
	uint64_t shortest = w->rtt_min - w->rtt_min / 8;

	if (w->rtt == 0)
		return WINDOW_RTO_FIRST_NS;
	return shortest > w->rtt / 2 ? shortest : w->rtt / 2;
}

void
roce_window_restore(struct window *w)
{
	if (w->before == 0)
		return;
	w->size = w->before;
	w->threshold = larger(w->threshold, w->size);
	w->before = 0;
	w->recovering = false;
}

uint64_t
roce_window_rto(const struct window *w, uint64_t most)
{
	uint64_t rto = w->rtt == 0 ? WINDOW_RTO_FIRST_NS : w->rtt + 4 * w->variance;

	rto = (rto < WINDOW_RTO_MIN_NS ? WINDOW_RTO_MIN_NS : rto) << w->backoff;
	return rto < most ? rto : most;
}
