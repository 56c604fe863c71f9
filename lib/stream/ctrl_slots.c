/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library tells the engine besides messages: wishes, consumption, places given back,
 * close. Consumption and places have a ring of their own, in which nothing waits for a message; for
 * the rest messages leave some slots of theirs free. What finds no room waits in lists.
 */
#include "conn.h"

#include "client/channel.h"
#include "client/thread.h"

/* In tx, or in the ring of returns. */
static bool
put(struct weir_channel *ch, struct weir_ring *r, const struct weir_slot *from)
{
	struct weir_slot *s;

	if (!weir_ring_room(r) && (!weir_ring_refresh(r) || !weir_ring_room(r)))
		return false;
	s = weir_ring_at(r, r->pos);
	memcpy((uint8_t *)s + sizeof(s->seq), (const uint8_t *)from + sizeof(s->seq),
	       sizeof(*s) - sizeof(s->seq));
	weir_ring_publish(r, 1);
	weir_pipe_published(&ch->pipe);
	return true;
}

static bool
put_releases(struct weir_channel *ch)
{
	while (ch->release_count) {
		uint32_t n = ch->release_count < WEIR_RELEASES ? ch->release_count : WEIR_RELEASES;
		struct weir_slot s = {.op = WEIR_OP_RELEASE, .length = n};

		memcpy(s.place, ch->release + ch->release_count - n, n * sizeof(s.place[0]));
		if (!put(ch, &ch->returns, &s))
			return false;
		ch->release_count -= n;
	}
	return true;
}

void
weir_control_release(struct weir_channel *ch, weir_place place)
{
	/* the data plane would have to be mistaken to give out more places than there are */
	if (WEIR_PLACE_REGION(place) ||
	    ch->release_count > ch->pipe.worker->w->geometry.recv_blocks)
		return;
	ch->release[ch->release_count++] = place;
	ch->pipe.empty = 0; /* told when nothing else comes */
	if (ch->release_count >= WEIR_RELEASES)
		put_releases(ch);
}

static bool
put_one(struct weir_channel *ch, struct weir_conn *c)
{
	struct weir_slot s = {.vqpn = c->vqpn};

	if (c->control & CONTROL_POST) {
		for (; weir_posts_next(c, &s); c->posts->told++)
			if (!put(ch, &ch->returns, &s))
				return false;
		s = (struct weir_slot){.vqpn = c->vqpn};
		c->control &= (uint8_t)~CONTROL_POST;
	}
	if (c->control & CONTROL_CONSUMED) {
		/* places first: what is consumed may be granted again */
		s.op = WEIR_OP_CONSUMED;
		s.value = c->consumed;
		s.status = c->threshold;
		if (!put_releases(ch) || !put(ch, &ch->returns, &s))
			return false;
		c->returned = s.value;
		c->control &= (uint8_t)~CONTROL_CONSUMED;
	}
	if (c->control & CONTROL_WANT) {
		s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_WANT};
		s.length = c->wanted;
		if (!put(ch, &ch->pipe.tx, &s))
			return false;
		c->control &= (uint8_t)~CONTROL_WANT;
	}
	if (c->control & CONTROL_ROOM) {
		s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_WANT};
		if (!put(ch, &ch->pipe.tx, &s))
			return false;
		c->control &= (uint8_t)~CONTROL_ROOM;
	}
	if (c->control & CONTROL_CLOSE) {
		s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_CLOSE};
		s.order = c->local ? 0 : (uint16_t)c->sent; /* of messages by this way */
		if (!put(ch, &ch->pipe.tx, &s))
			return false;
		c->control &= (uint8_t)~CONTROL_CLOSE;
	}
	return true;
}

void
weir_control_flush(struct weir_channel *ch)
{
	struct weir_conn *c;

	while ((c = TAILQ_FIRST(&ch->control))) {
		bool last = c->control & CONTROL_CLOSE && c->end_held;

		if (!put_one(ch, c))
			return;
		TAILQ_REMOVE(&ch->control, c, in_control);
		/* its CLOSED has come already: nothing else will */
		if (last)
			weir_conn_free(c);
	}
}

void
weir_control_post(struct weir_conn *c, uint8_t control)
{
	if (!c->control)
		TAILQ_INSERT_TAIL(&c->channel->control, c, in_control);
	c->control |= control;
	weir_control_flush(c->channel);
}

/*
 * ---- room in the ring ----
 * It comes without a word, so who may sleep asks for one: the answer to a WANT says that all before
 * it is taken. One asks for all. If each did, thousands of WANTs would fill the ring as soon as
 * there is room, and no message would ever find any.
 */

#define ROOM_AT_ONCE 32u

static void
ask_for_room(struct weir_channel *ch)
{
	struct weir_conn *c = TAILQ_FIRST(&ch->cramped);

	if (!c || ch->asking)
		return;
	ch->asking = c;
	weir_control_post(c, CONTROL_ROOM);
}

void
weir_control_cramped(struct weir_conn *c)
{
	if (!c->cramped)
		TAILQ_INSERT_TAIL(&c->channel->cramped, c, in_cramped);
	c->cramped = true;
	ask_for_room(c->channel);
}

void
weir_control_answered(struct weir_conn *c)
{
	if (c->channel->asking == c)
		c->channel->asking = NULL;
}

void
weir_control_uncramp(struct weir_conn *c)
{
	if (c->cramped)
		TAILQ_REMOVE(&c->channel->cramped, c, in_cramped);
	c->cramped = false;
	weir_control_answered(c);
	ask_for_room(c->channel);
}

void
weir_control_make_room(struct weir_channel *ch)
{
	struct weir_ring *r = &ch->pipe.tx;
	struct weir_conn *c;

	if (weir_ring_room(r) <= r->mask / 4 && !weir_ring_refresh(r))
		return;
	for (unsigned i = 0; i < ROOM_AT_ONCE && weir_ring_room(r) > r->mask / 4; i++) {
		c = TAILQ_FIRST(&ch->cramped);
		if (!c)
			return;
		TAILQ_REMOVE(&ch->cramped, c, in_cramped);
		c->cramped = false;
		if (c->blocked && !c->want_heap) {
			c->blocked = false;
			weir_conn_report(c, PENDING_WRITABLE);
		}
	}
	ask_for_room(ch);
}

void
weir_control_settle(struct weir_channel *ch)
{
	struct weir_conn *c;

	while ((c = TAILQ_FIRST(&ch->dues))) {
		TAILQ_REMOVE(&ch->dues, c, in_dues);
		c->due = false;
		weir_control_post(c, CONTROL_CONSUMED);
	}
	weir_control_flush(ch);
	put_releases(ch);
}

void
weir_control_refuse(struct weir_channel *ch, uint32_t vqpn)
{
	struct weir_slot s = {.op = WEIR_OP_CLOSE, .vqpn = vqpn};

	put(ch, &ch->pipe.tx, &s);
}
