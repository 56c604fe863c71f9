/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that two threads of programs on this host share: rings and byte areas. */
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
	uint32_t endings;	/* connections whose end waits for what the segment holds */
	int error;		/* 0, or -EPROTO: the peer spoilt it */
	bool left;		/* we have said WEIR_SEGMENT_LEFT */
	uint64_t unknown_since; /* ns: a message for nobody we know is at the head; 0: none */
	uint8_t *base;
	struct weir_segment_geometry geometry;
	struct weir_segment_side *out, *in; /* of the direction we write, we read */
	struct weir_segment_conn *out_conns, *in_conns;
	uint8_t *out_area, *in_area;
	uint64_t out_pos, out_limit; /* byte area we write: next byte; first byte not known free */
	/* place in that area that a program fills for a message to come; one at a time */
	struct weir_conn *reserver; /* NULL: none */
	uint64_t reserved, reserved_bytes;
	uint64_t in_pos, in_free,
	    in_told;		 /* byte area we read: end of what came; free up to; told so */
	struct weir_span *spans; /* ring of what is in between, in order of arrival */
	uint32_t span_room;	 /* a power of two */
	uint64_t span_head, span_tail;
	uint64_t held; /* rx position + 1 of a message reported but left in place, 0 = none */
	TAILQ_HEAD(, weir_conn) conns;
	TAILQ_HEAD(, weir_conn) dues;
};

#define WEIR_SEGMENT_OF(p) ((struct weir_segment *)(p))
static_assert(offsetof(struct weir_segment, pipe) == 0, "a segment begins with its pipe");

/* Maps side `side` of segment `id`, or finds it mapped. Worker locked. 0 or -errno. */
int weir_segment_get(struct weir_thread *t, uint32_t id, uint32_t side, struct weir_segment **seg);
/* Unmaps it whatever uses it. Worker locked, or nobody else there. */
void weir_segment_free(struct weir_segment *seg);
/* Room for `bytes` in one piece in the area we write: 0 and *offset, -EAGAIN, -EPROTO. */
int weir_area_take(struct weir_segment *seg, uint32_t bytes, uint64_t *offset);
bool weir_area_room(struct weir_segment *seg, uint32_t bytes);
/* Largest message that goes in one piece now. */
static inline uint64_t
weir_area_whole(const struct weir_segment *seg)
{
	return seg->geometry.area_bytes / (seg->reserver ? 4 : 2);
}

/*
 * Keeps a place for a message of c, at most a quarter of the area: 0 and *offset, -EAGAIN, -EPROTO,
 * -EBUSY (another has one). What is taken meanwhile goes around it.
 */
int weir_area_reserve(struct weir_segment *seg, struct weir_conn *c, uint32_t bytes,
		      uint64_t *offset);
/* The message has so many bytes: takes the place. 0 and *offset, -EAGAIN, -EPROTO. */
int weir_area_take_reserved(struct weir_segment *seg, uint32_t bytes, uint64_t *offset);
/* A piece arrived: checks it; *span names it until weir_area_free(). 0, -EPROTO, -ENOMEM (try
 * again). */
int weir_area_arrived(struct weir_segment *seg, uint64_t offset, uint64_t bytes, uint64_t *span);
void weir_area_free(struct weir_segment *seg, uint64_t span);
/* Tells the peer what we have consumed; rings if it wanted to know. */
void weir_segment_tell(struct weir_segment *seg);

#endif
