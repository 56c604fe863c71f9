/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames between two engines: the messages and control lines of one pass, which travel together.
 * Messages are put into the open frame of a link; a frame that arrived is taken apart.
 */
#ifndef WEIR_ENGINE_BATCH_H
#define WEIR_ENGINE_BATCH_H

#include "conn.h"
#include "link.h"
#include "scheduler.h"
#include "slot_head.h"

enum {
	FRAME_LINES = 512,   /* lines per frame, without those for control lines */
	CONTROL_LINES = 128, /* lines per frame for control lines, beyond FRAME_LINES */
};

enum room { ROOM, ROOM_LATER, ROOM_FULL };

/* Slow path of link_room(). */
enum room link_find_room(struct engine *e, struct peer_link *l, uint32_t lines);
/* Room for a message that must go into a frame of one kind: the open frame, or the next. */
enum room link_room_of_way(struct engine *e, struct peer_link *l, uint32_t lines, uint8_t way);
struct weir_slot *link_put_line(struct peer_link *l);
/* An inline message from memory in one piece. */
void link_put_inline(struct peer_link *l, struct head h, const uint8_t *from);
/* A message as a head and bare payload. */
void link_put_place(struct peer_link *l, struct head h, const uint8_t *from);
/* Writes the head of the open frame, which leaves with the next replay. */
void link_seal(struct engine *e, struct peer_link *l);

/* A frame of this length has arrived in the ring, by its immediate. False: malformed. */
bool frame_receive(struct engine *e, struct peer_link *l, uint32_t lines);
/* A frame came by SEND. It has a place among the ring's lines, which stays unwritten. */
bool frame_receive_sent(struct engine *e, struct peer_link *l, const uint8_t *frame,
			uint32_t lines);

/* Copies slots of the ring unchanged, but for the words of the head. */
static inline void
copy_to_batch(const struct peer_link *l, uint64_t at, const struct weir_ring *r, uint64_t a,
	      uint64_t b, uint32_t n)
{
	struct weir_slot *to = link_at(l, at);

	memcpy(to, &a, 8);
	memcpy((char *)to + 8, &b, 8);
	memcpy(to->data, weir_ring_at(r, r->pos)->data, WEIR_SLOT_HEAD_BYTES);
	for (uint32_t i = 1; i < n; i++)
		memcpy(link_at(l, at + i), weir_ring_at(r, r->pos + i), WEIR_SLOT_SIZE);
}

/* Room for a message in the frame of this turn, which is opened if need be. */
static inline enum room
link_room(struct engine *e, struct peer_link *l, uint32_t lines)
{
	if (LIKELY(l->tx_pos + lines <= l->tx_limit))
		return ROOM;
	return link_find_room(e, l, lines);
}

/* Room for a message with these flags, which may need a frame of their kind. */
static inline enum room
link_room_for(struct engine *e, struct peer_link *l, uint32_t lines, uint8_t flags)
{
	if (UNLIKELY(flags & (WEIR_SLOT_SEND | WEIR_SLOT_RING)))
		return link_room_of_way(e, l, lines, flags);
	return link_room(e, l, lines);
}

/* Room in the frame, and in the program's part of it while several programs want room. */
static inline enum room
link_room_of(struct engine *e, struct peer_link *l, struct session *s, uint32_t lines,
	     uint8_t flags)
{
	enum room room;

	if (UNLIKELY(l->split) && share_lines(l, s) < lines) {
		share_pressed(e, l, s);
		return ROOM_LATER;
	}
	room = link_room_for(e, l, lines, flags);
	if (UNLIKELY(room == ROOM_LATER))
		share_pressed(e, l, s);
	else if (UNLIKELY(l->split) && room == ROOM)
		queue_of(s, l, RING)->lines -= lines;
	return room;
}

/* Counts messages of c that are put into the open frame. */
static inline void
link_count(const struct peer_link *l, struct conn *c, uint32_t messages)
{
	if (UNLIKELY(l->by_send))
		c->by_send += messages;
}

/* Messages of c were put: they complete when the peer has consumed up to the current line. */
static inline void
link_sent(struct peer_link *l, struct conn *c, uint32_t messages, bool notify)
{
	struct run *r = l->run;

	c->sent += messages;
	if (LIKELY(r && r->conn == c)) {
		r->end = (uint32_t)l->tx_pos;
		r->count += messages;
		r->notify |= notify;
		return;
	}
	share_seen(l, queue_of(c->session, l, RING));
	l->run = r = &l->runs[l->run_end++ & l->mask];
	*r = (struct run){
	    .end = (uint32_t)l->tx_pos, .count = messages, .notify = notify, .conn = c};
}

#endif
