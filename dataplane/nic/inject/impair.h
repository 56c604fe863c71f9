/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Impairments on transmit, for tests: loss, duplication, reordering, delay. Everything follows from
 * a seed. Frames are opaque; the owner decides what to do with each fate. No DPDK; one thread.
 */
#ifndef WEIR_ROCE_IMPAIR_H
#define WEIR_ROCE_IMPAIR_H

#include <stdbool.h>
#include <stdint.h>

#define IMPAIR_HELD 8192u	  /* frames that can wait, a power of two */
#define IMPAIR_REORDER_NS 200000u /* a reordered frame is late by up to this */

struct impair_config {
	double loss, dup, reorder; /* percent */
	uint32_t delay_us;
	uint64_t seed;
};

/* Fates of a frame; more than one bit may be set. */
#define IMPAIR_LOSE 0x1u
#define IMPAIR_TWICE 0x2u
#define IMPAIR_LATE 0x4u

struct impair_frame {
	uint64_t due;
	void *frame;
	uint32_t length;
};

struct impair {
	uint32_t loss, dup, reorder; /* of 2^32 */
	uint64_t delay_ns;
	uint64_t random;	   /* state of the generator */
	uint32_t first, count;	   /* held[first ... first + count), earliest due first */
	struct impair_frame *held; /* IMPAIR_HELD of them; the owner's memory */
};

/* Whether the configuration impairs anything. */
bool impair_wanted(const struct impair_config *config);
/* `stream` makes the sequences of several engines differ. `held`: IMPAIR_HELD frames. */
void impair_init(struct impair *i, const struct impair_config *config, uint64_t stream,
		 struct impair_frame *held);
/* Draws the fate of the next frame. */
unsigned impair_fate(struct impair *i);
/* Time at which a frame sent `now` leaves. */
uint64_t impair_due(struct impair *i, unsigned fate, uint64_t now);
/* Keeps a frame until `due`; false when there is no place. */
bool impair_hold(struct impair *i, void *frame, uint32_t length, uint64_t due);
/* Next frame that is due, or NULL. */
void *impair_release(struct impair *i, uint64_t now, uint32_t *length);
/* When the next frame is due, UINT64_MAX: none waits. */
uint64_t impair_next(const struct impair *i);

#endif
