/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Impairments on transmit, for tests: loss, duplication, reordering, corruption, delay, jitter and
 * a rate limit. Everything follows from a seed. Frames are opaque; the owner decides what to do
 * with each fate. No DPDK. One thread, but for impair_set(), which another thread may call
 * meanwhile.
 */
#ifndef WEIR_ROCE_IMPAIR_H
#define WEIR_ROCE_IMPAIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMPAIR_HELD 8192u	  /* frames that can wait, a power of two */
#define IMPAIR_REORDER_NS 200000u /* a reordered frame is late by up to this */
#define IMPAIR_QUEUE_NS 50000000u /* of a rate limit: frames that would wait longer are dropped */

struct impair_config {
	double loss, dup, reorder, corrupt; /* percent of frames */
	double rate;			    /* Mbit/s of all frames of a context; 0: no limit */
	uint32_t delay_us;		    /* of each frame */
	uint32_t jitter_us;		    /* added to delay_us: uniform, from 0 to this */
	uint64_t seed;
};

/* Fates of a frame; more than one bit may be set. */
#define IMPAIR_LOSE 0x1u
#define IMPAIR_TWICE 0x2u
#define IMPAIR_LATE 0x4u
#define IMPAIR_CORRUPT 0x8u
#define IMPAIR_DELAYED 0x10u  /* by delay */
#define IMPAIR_JITTERED 0x20u /* by jitter */
#define IMPAIR_LIMITED 0x40u  /* waits for its turn at the rate */
#define IMPAIR_FULL 0x80u     /* would wait longer than IMPAIR_QUEUE_NS: dropped */

struct impair_frame {
	uint64_t due;
	void *frame;
	uint32_t length;
};

struct impair {
	/* impair_set() writes, the owner reads; each by itself: relaxed */
	_Atomic uint32_t loss, dup, reorder, corrupt; /* of 2^32 */
	_Atomic uint64_t delay_ns, jitter_ns;
	_Atomic uint64_t byte_ps;  /* ps that a byte takes at the rate; 0: no limit */
	uint64_t idle_at;	   /* ns: when all frames of before have left at the rate */
	uint64_t last_due;	   /* ns: of the latest frame that is not reordered */
	uint64_t random;	   /* state of the generator */
	uint32_t first, count;	   /* held[first ... first + count), earliest due first */
	uint32_t room;		   /* frames that may be held, at most IMPAIR_HELD */
	struct impair_frame *held; /* IMPAIR_HELD of them; the owner's memory */
};

/* Whether the configuration impairs anything. */
bool impair_wanted(const struct impair_config *config);
/* `stream` makes the sequences of several engines differ. `held`: IMPAIR_HELD frames, of which
 * `room` are used. */
void impair_init(struct impair *i, const struct impair_config *config, uint64_t stream,
		 struct impair_frame *held, uint32_t room);
/* Changes all but the seed. Any thread; the owner's next frames meet the new values. */
void impair_set(struct impair *i, const struct impair_config *config);
/* "loss=1 delay=50", what is not 0; "" if nothing is impaired. */
void impair_text(const struct impair_config *config, char *text, size_t size);
/* Draws the fate of the next frame. */
unsigned impair_fate(struct impair *i);
/* Time at which a frame of this length (bytes) that is sent `now` leaves; adds to *fate why that is
 * later. With IMPAIR_FULL it never leaves. */
uint64_t impair_due(struct impair *i, unsigned *fate, uint32_t length, uint64_t now);
/* A number below `n`, for what the owner does with a fate. */
uint32_t impair_below(struct impair *i, uint32_t n);
/* Keeps a frame until `due`; false when there is no place. */
bool impair_hold(struct impair *i, void *frame, uint32_t length, uint64_t due);
/* Next frame that is due, or NULL. */
void *impair_release(struct impair *i, uint64_t now, uint32_t *length);
/* When the next frame is due, UINT64_MAX: none waits. */
uint64_t impair_next(const struct impair *i);

#endif
