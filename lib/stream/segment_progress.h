/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress of a segment: slots that its peer has written. Worker locked. */
#ifndef WEIR_STREAM_SEGMENT_PROGRESS_H
#define WEIR_STREAM_SEGMENT_PROGRESS_H

#include "rx_queue.h"

unsigned weir_segment_progress(struct weir_segment *seg, struct weir_conn *want);

/* Nothing has come: reports consumption soon, but not at each pause of a conversation. */
static inline void
weir_segment_idle(struct weir_segment *seg)
{
	if (weir_unlikely(++seg->pipe.empty == 8))
		weir_segment_report(seg);
}

/* CLOSED has come: ends the connection when all that the peer wrote before is taken in. */
void weir_segment_finish(struct weir_conn *c, uint32_t status);
/*
 * Takes the message or fragment at the ring's head: whole messages go to the connection's queue. 0,
 * -EPROTO, -ENOMEM.
 */
int weir_segment_take_fragment(struct weir_conn *c, const struct weir_head *h);
/*
 * Copies the lengths of the bundle at the ring's head, checked: the number of messages, -EPROTO.
 * *offset: of the first payload in the area, valid after weir_area_arrived() of the bundle.
 */
int weir_bundle_lengths(const struct weir_segment *seg, const struct weir_head *h,
			uint16_t lengths[WEIR_BUNDLE_MAX], uint64_t *offset);
/* *offset: of the whole message at the ring's head in the area. False: it is a fragment only. */
bool weir_segment_whole(struct weir_segment *seg, const struct weir_head *h, uint64_t *offset);
/*
 * The next message, of `length` bytes in fragments, is put together in a caller's buffer. 0,
 * -ENOMEM: memory to move it to is taken beforehand.
 */
int weir_assembly_lend(struct weir_conn *c, uint8_t *buf, uint32_t length);
/* The caller takes its buffer back: moves what has arrived. */
void weir_assembly_reclaim(struct weir_conn *c);

static inline bool
weir_assembly_is_lent(const struct weir_conn *c)
{
	return c->assembly && c->assembly_at != c->assembly->data;
}

/* A message is whole in a lent buffer: nothing more is taken in until weir_recv() returns it. */
static inline bool
weir_assembly_is_whole(const struct weir_conn *c)
{
	return c->assembly && c->assembled == c->assembly->length;
}
/* The peer broke the rules: ends the segment's connections. */
void weir_segment_spoil(struct weir_segment *seg);

#endif
