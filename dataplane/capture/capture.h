/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A capture: copies of a port's frames on their way into a pcapng file. Engines put them into byte
 * rings, one per engine, and never wait: a frame without room is counted as dropped. The capture's
 * own thread takes them out and writes the file. No DPDK; nic/roce_port/tap.c sees the frames.
 *
 * Life: create, let producers begin, start; then a limit, an error or capture_stop() ends it; when
 * capture_fd() hangs up it is over and can be destroyed. Main lcore, except capture_put().
 */
#ifndef WEIR_CAPTURE_H
#define WEIR_CAPTURE_H

#include "ipc/invariant.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CAPTURE_RING_BYTES (4u << 20)
#define CAPTURE_RINGS_MAX 32u
#define CAPTURE_SNAP 9216u /* bytes of a frame that are kept */

/* A frame in a ring; its bytes follow, then padding to 8. */
struct capture_frame {
	uint64_t time; /* ns of the data plane's clock */
	uint32_t captured, original;
	uint16_t queue;
	uint8_t out; /* 1: sent, 0: received */
	uint8_t reserved[5];
};

struct capture_ring {
	_Alignas(64) _Atomic uint64_t head; /* engine writes, writer reads: bytes ever put */
	_Atomic uint64_t dropped;	    /* engine writes, writer reads: frames */
	uint64_t tail_seen;		    /* engine's: tail as last read */
	_Alignas(64) _Atomic uint64_t tail; /* writer writes, engine reads */
	_Alignas(64) uint8_t *bytes;	    /* CAPTURE_RING_BYTES; set at creation */
};

struct capture_config {
	const char *port, *driver, *application; /* texts for the file */
	uint8_t mac[6];
	unsigned rings;
	uint64_t epoch; /* ns since 1970 when the data plane's clock was 0 */
	uint64_t limit; /* frames; 0: none */
	int fd;		/* of a file or pipe, the capture's once capture_start() said 0 */
	/* Starts the writer. */
	int (*thread)(pthread_t *thread, void *(*run)(void *), void *arg);
	/* On the writer's thread: returns when no engine puts anything any more. */
	void (*detach)(void *user);
	void *user;
};

struct capture_result {
	uint64_t frames;  /* in the file */
	uint64_t bytes;	  /* of the file */
	uint64_t dropped; /* frames that passed the port before it ended and are not in the file */
	int status;	  /* 0, or -errno of what ended it: the file is good up to there */
};

struct capture;

/* 0, or -errno and a line "cause; remedy" in error. */
int capture_create(const struct capture_config *config, struct capture **capture, char *error,
		   size_t size);
/* The ring of an engine. */
struct capture_ring *capture_ring(struct capture *c, unsigned ring);
int capture_start(struct capture *c);
void capture_stop(struct capture *c);
/* Hangs up when it is over. */
int capture_fd(const struct capture *c);
/* Of one that is over. */
void capture_result(const struct capture *c, struct capture_result *result);
/* Stops it if need be, and waits; a second at most for who reads a pipe. */
void capture_destroy(struct capture *c);

static inline void
capture_copy_in(struct capture_ring *r, uint64_t at, const void *from, size_t n)
{
	size_t offset = at % CAPTURE_RING_BYTES, first = CAPTURE_RING_BYTES - offset;

	first = first < n ? first : n;
	memcpy(r->bytes + offset, from, first);
	memcpy(r->bytes, (const uint8_t *)from + first, n - first);
}

/* Engine: a frame whose first frame->captured bytes are at `data`; at most CAPTURE_SNAP. */
static inline void
capture_put(struct capture_ring *r, const struct capture_frame *frame, const void *data)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint64_t bytes = sizeof(*frame) + ((frame->captured + 7ull) & ~7ull);

	weir_assert(frame->captured <= CAPTURE_SNAP && frame->captured <= frame->original);
	weir_assert(head - r->tail_seen <= CAPTURE_RING_BYTES);
	if (head + bytes - r->tail_seen > CAPTURE_RING_BYTES) {
		/* pairs with the release in take_some() of capture.c */
		r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
		if (head + bytes - r->tail_seen > CAPTURE_RING_BYTES) {
			atomic_store_explicit(
			    &r->dropped,
			    atomic_load_explicit(&r->dropped, memory_order_relaxed) + 1,
			    memory_order_relaxed);
			return;
		}
	}
	capture_copy_in(r, head, frame, sizeof(*frame));
	capture_copy_in(r, head + sizeof(*frame), data, frame->captured);
	/* pairs with the acquire in oldest() of capture.c */
	atomic_store_explicit(&r->head, head + bytes, memory_order_release);
}

#endif
