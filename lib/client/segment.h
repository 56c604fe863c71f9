/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory shared by threads of two programs on this host: rings and byte areas. */
#ifndef WEIR_CLIENT_SEGMENT_H
#define WEIR_CLIENT_SEGMENT_H

#include "pipe.h"

#include <sys/queue.h>

struct weir_conn;
struct weir_thread;

/* A piece of a segment's byte area between arrival and release. */
struct weir_span {
	uint64_t end;
	bool free;
};

struct weir_segment {
	struct weir_pipe pipe;
	LIST_ENTRY(weir_segment) next;
	uint32_t id, side;
	uint32_t users;		/* connections and loans */
	uint32_t endings;	/* connections whose end waits for messages in the segment */
	int error;		/* 0, or -EPROTO: the peer broke the protocol */
	bool left;		/* WEIR_SEGMENT_LEFT is sent */
	uint64_t unknown_since; /* ns: since then a message for an unknown connection is at the
				   head; 0: none */
	uint8_t *base;
	struct weir_segment_geometry geometry;
	struct weir_segment_side *out, *in; /* of the direction written, read by us */
	struct weir_segment_conn *out_conns, *in_conns;
	uint8_t *out_area, *in_area;
	uint64_t out_pos,
	    out_limit; /* area written by us: next byte; first byte not known to be free */
	uint64_t skipped_at, skipped; /* position before bytes that were free when out_pos skipped
					 them; how many */
	/* buffer in that area that a program fills; one at a time */
	struct weir_conn *reserver; /* NULL: none */
	uint64_t reserved, reserved_bytes;
	uint64_t reported; /* position of rx that was reported last */
	uint64_t in_pos, in_free,
	    in_reported; /* area read by us: end of arrived bytes; freed up to; reported up to */
	struct weir_span
	    *spans;	    /* ring of the pieces between in_free and in_pos, in order of arrival */
	uint32_t span_room; /* a power of two */
	uint64_t span_head, span_tail;
	TAILQ_HEAD(, weir_conn) conns;
	TAILQ_HEAD(, weir_conn) to_report;
};

#define WEIR_SEGMENT_OF(p) ((struct weir_segment *)(p))
static_assert(offsetof(struct weir_segment, pipe) == 0, "a segment begins with its pipe");

/* Side `side` of segment `id`, mapped on first use. Worker locked. 0 or -errno. */
int weir_segment_get(struct weir_thread *t, uint32_t id, uint32_t side, struct weir_segment **seg);
/* Unmaps a segment, used or not. Worker locked, or no other thread there. */
void weir_segment_free(struct weir_segment *seg);
/* Takes `bytes` in one piece from the area written by us: 0 and *offset, -EAGAIN, -EPROTO. */
int weir_area_take(struct weir_segment *seg, uint32_t bytes, uint64_t *offset);
bool weir_area_room(struct weir_segment *seg, uint32_t bytes);
/* Largest message that fits in one piece now. */
static inline uint64_t
weir_area_whole(const struct weir_segment *seg)
{
	return seg->geometry.area_bytes / (seg->reserver ? 4 : 2);
}

/*
 * Reserves a buffer for a message of c, at most a quarter of the area: 0 and *offset, -EAGAIN,
 * -EPROTO, -EBUSY (another connection has one). weir_area_take() skips it.
 */
int weir_area_reserve(struct weir_segment *seg, struct weir_conn *c, uint32_t bytes,
		      uint64_t *offset);
/* Takes the first `bytes` of the reserved buffer. 0 and *offset, -EAGAIN, -EPROTO. */
int weir_area_take_reserved(struct weir_segment *seg, uint32_t bytes, uint64_t *offset);
/* Checks an arrived piece; *span names it until weir_area_free(). 0, -EPROTO, -ENOMEM (try again).
 */
int weir_area_arrived(struct weir_segment *seg, uint64_t offset, uint64_t bytes, uint64_t *span);
void weir_area_free(struct weir_segment *seg, uint64_t span);
/* Reports consumption to the peer, and rings if the peer waits for it. */
void weir_segment_report(struct weir_segment *seg);

#endif
