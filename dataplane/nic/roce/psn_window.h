/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes that a QP may have in flight, and its wait for an answer. Additive increase,
 * halving on loss or congestion mark, a gentler decrease when the round trip grows well beyond the
 * shortest one seen; never below a few frames, never above the cap.
 */
#ifndef WEIR_ROCE_WINDOW_H
#define WEIR_ROCE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct window {			  /* engine */
	uint32_t size, threshold; /* bytes; below the threshold growth is exponential */
	uint32_t floor, cap, step;
	uint32_t recover; /* PSN: one decrease until this is acknowledged */
	bool recovering;
	uint32_t before; /* size before that decrease; 0: recovered */
	bool sampling;	 /* a round trip is being measured */
	bool resent;	 /* that frame may have been sent again: the sample is void */
	uint8_t backoff; /* timeouts since a round trip was measured */
	uint32_t sample_psn;
	uint64_t sample_time;
	uint64_t rtt, variance, rtt_min; /* ns, 0 = none yet */
};

/* frame: longest frame of the QP; cap: most bytes in flight. */
void roce_window_init(struct window *w, uint32_t frame, uint32_t frames_min, uint32_t cap);
/* `bytes` in flight were acknowledged, everything before PSN `una` in all; `next` is the next new
 * PSN. */
void roce_window_acked(struct window *w, uint32_t bytes, uint32_t una, uint32_t next, uint64_t now);
/* A frame was lost. */
void roce_window_lost(struct window *w, uint32_t next);
/* A repeated frame was lost again: starts from the floor. */
void roce_window_lost_again(struct window *w, uint32_t next);
/* No answer at all: the same, and the next wait is twice as long. */
void roce_window_timeout(struct window *w, uint32_t next);
/* Time in ns after a frame was sent again in which a NAK still reports its first loss. */
uint64_t roce_window_stale(const struct window *w);
/* Frames that seemed lost were only late. */
void roce_window_restore(struct window *w);
/* A congestion mark: frames queue at a switch or the peer. */
void roce_window_marked(struct window *w, uint32_t next);
/* ns to wait for an answer, `most` at most. */
uint64_t roce_window_rto(const struct window *w, uint64_t most);

/* A new frame leaves. */
static inline void
window_sent(struct window *w, uint32_t psn, uint64_t now)
{
	if (!w->sampling) {
		w->sampling = true;
		w->resent = false;
		w->sample_psn = psn;
		w->sample_time = now;
	}
}

#endif
