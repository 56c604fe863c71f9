/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control slots: the library's requests and reports to the engine besides messages. Consumption,
 * posts and released places have a ring of their own, in which nothing waits for a message; for the
 * others messages leave some slots of tx free. A connection whose slots find no room waits on a
 * list.
 */
#include "conn.h"
#include "ctrl_slots.h"
#include "rx_place.h"

#include "base/vec.h"
#include "client/channel.h"
#include "client/thread.h"
#include "client/wait.h"
#include "ipc/remote.h"

/* r: tx, or the ring of returns. False: no room. */
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
weir_ctrl_release(struct weir_channel *ch, weir_place place)
{
	weir_assert(weir_worker_locked(ch->pipe.worker));
	/* more places than there are: the data plane is mistaken */
	if (WEIR_PLACE_REGION(place) ||
	    ch->release_count > ch->pipe.worker->w->geometry.recv_blocks)
		return;
	ch->release[ch->release_count++] = place;
	ch->pipe.empty = 0; /* reported when nothing else comes */
	if (ch->release_count >= WEIR_RELEASES)
		put_releases(ch);
}

#define NOTICED_MOST 16u /* notices taken until they are reported while more wait */

static bool
put_noticed(struct weir_channel *ch)
{
	struct weir_slot s = {.op = WEIR_OP_NOTICED, .length = ch->noticed_conns};

	static_assert(sizeof(ch->noticed_by) == sizeof(s.place), "one slot");
	memcpy(s.place, ch->noticed_by, sizeof(s.place));
	if (ch->noticed && !put(ch, &ch->returns, &s))
		return false;
	ch->noticed_conns = ch->noticed = 0;
	return true;
}

bool
weir_ctrl_noticed(struct weir_channel *ch, uint32_t vqpn, bool last)
{
	uint32_t i = 0;

	weir_assert(weir_worker_locked(ch->pipe.worker));
	while (i < ch->noticed_conns && (uint32_t)ch->noticed_by[i] != vqpn)
		i++;
	if (i == WEIR_RELEASES) {
		if (!put_noticed(ch))
			return false;
		i = 0;
	}
	if (i == ch->noticed_conns)
		ch->noticed_by[ch->noticed_conns++] = vqpn;
	ch->noticed_by[i] += 1ull << 32;
	ch->pipe.empty = 0; /* reported when nothing else comes */
	if (++ch->noticed >= NOTICED_MOST || last)
		put_noticed(ch);
	return true;
}

static bool
put_close(struct weir_channel *ch, uint32_t vqpn)
{
	struct weir_slot s = {.op = WEIR_OP_CLOSE, .vqpn = vqpn};

	return put(ch, &ch->pipe.tx, &s);
}

int
weir_ctrl_may_refuse(struct weir_channel *ch)
{
	return VEC_RESERVE(ch->refused, ch->refused_room, ch->refused_count + 1u);
}

void
weir_ctrl_refuse(struct weir_channel *ch, uint32_t vqpn)
{
	weir_conn_refused(ch->pipe.worker, vqpn);
	/* another refusal may have used the room that was seen to */
	if (!put_close(ch, vqpn) && !weir_ctrl_may_refuse(ch))
		ch->refused[ch->refused_count++] = vqpn;
}

void
weir_ctrl_flush(struct weir_channel *ch)
{
	struct weir_ring *tx = &ch->pipe.tx;
	struct weir_conn *c;

	for (; ch->refused_count; ch->refused_count--)
		if (!put_close(ch, ch->refused[ch->refused_count - 1]))
			break;
	while ((c = TAILQ_FIRST(&ch->control))) {
		bool last = c->control & CTRL_CLOSE && c->end_held;
		struct weir_slot s = {.vqpn = c->vqpn};

		weir_assert(c->control && c->channel == ch);
		if (c->control & CTRL_POST) {
			for (; weir_posts_next(c, &s); c->posts->announced++)
				if (!put(ch, &ch->returns, &s))
					return;
			s = (struct weir_slot){.vqpn = c->vqpn};
			c->control &= (uint8_t)~CTRL_POST;
		}
		if (c->control & CTRL_CONSUMED) {
			s.op = WEIR_OP_CONSUMED;
			s.value = c->consumed;
			s.length = c->lent;
			s.status = c->threshold;
			/* places first: consumed bytes may be granted again */
			if (!put_releases(ch) || !put(ch, &ch->returns, &s))
				return;
			c->returned = s.value;
			c->lent_told = s.length;
			weir_conn_set_due(c, c->due);
			c->control &= (uint8_t)~CTRL_CONSUMED;
		}
		if (c->control & CTRL_WANT) {
			s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_WANT};
			s.length = c->wanted;
			if (!put(ch, tx, &s))
				return;
			c->control &= (uint8_t)~CTRL_WANT;
		}
		if (c->control & CTRL_ROOM) {
			s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_WANT};
			if (!put(ch, tx, &s))
				return;
			c->control &= (uint8_t)~CTRL_ROOM;
		}
		if (c->control & CTRL_UNLOCK) {
			struct weir_cell_lock cell = {.handle = WEIR_HANDLE_FIRST,
						      .kind = c->lock_unlock};

			s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_UNLOCK};
			s.order = (uint16_t)c->sent;
			memcpy(s.data, &cell, sizeof(cell));
			if (!put(ch, tx, &s))
				return;
			c->sent++;
			c->control &= (uint8_t)~CTRL_UNLOCK;
		}
		if (c->control & CTRL_FLUSH) {
			s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_FLUSH};
			s.order = (uint16_t)c->sent;
			if (!put(ch, tx, &s))
				return;
			c->control &= (uint8_t)~CTRL_FLUSH;
		}
		if (c->control & CTRL_END) {
			s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_END};
			s.order = (uint16_t)c->sent;
			if (!put(ch, tx, &s))
				return;
			c->control &= (uint8_t)~CTRL_END;
		}
		if (c->control & CTRL_CLOSE) {
			s = (struct weir_slot){.vqpn = c->vqpn, .op = WEIR_OP_CLOSE};
			s.order = c->local ? 0 : (uint16_t)c->sent; /* messages by the channel */
			if (!put(ch, tx, &s))
				return;
			c->control &= (uint8_t)~CTRL_CLOSE;
		}
		TAILQ_REMOVE(&ch->control, c, in_control);
		/* CLOSED has come already: nothing else will */
		if (last)
			weir_conn_free(c);
	}
}

void
weir_ctrl_add(struct weir_conn *c, uint8_t control)
{
	weir_assert(weir_worker_locked(c->worker));
	if (!c->control)
		TAILQ_INSERT_TAIL(&c->channel->control, c, in_control);
	c->control |= control;
	weir_ctrl_flush(c->channel);
}

/*
 * ---- room in the ring ----
 * The engine does not report room, so a connection that may sleep asks for it: the answer to a WANT
 * says that all slots before it are taken. One connection asks for all. If each did, thousands of
 * WANTs would fill the ring as soon as there is room, and no message would ever find any.
 */

#define ROOM_AT_ONCE 32u /* connections reported WRITABLE per call */

static void
ask_for_room(struct weir_channel *ch)
{
	struct weir_conn *c = TAILQ_FIRST(&ch->needs_room);

	if (!c || ch->asking)
		return;
	ch->asking = c;
	weir_ctrl_add(c, CTRL_ROOM);
}

void
weir_ctrl_need_room(struct weir_conn *c)
{
	if (!c->needs_room)
		TAILQ_INSERT_TAIL(&c->channel->needs_room, c, in_needs_room);
	c->needs_room = true;
	ask_for_room(c->channel);
}

void
weir_ctrl_want_answered(struct weir_conn *c)
{
	if (c->channel->asking == c)
		c->channel->asking = NULL;
}

void
weir_ctrl_room_unneeded(struct weir_conn *c)
{
	if (c->needs_room)
		TAILQ_REMOVE(&c->channel->needs_room, c, in_needs_room);
	c->needs_room = false;
	weir_ctrl_want_answered(c);
	ask_for_room(c->channel);
}

void
weir_ctrl_report_room(struct weir_channel *ch)
{
	struct weir_ring *r = &ch->pipe.tx;
	struct weir_conn *c;

	if (weir_ring_room(r) <= r->mask / 4 && !weir_ring_refresh(r))
		return;
	for (unsigned i = 0; i < ROOM_AT_ONCE && weir_ring_room(r) > r->mask / 4; i++) {
		c = TAILQ_FIRST(&ch->needs_room);
		if (!c)
			return;
		TAILQ_REMOVE(&ch->needs_room, c, in_needs_room);
		c->needs_room = false;
		if (c->blocked && !c->want_heap) {
			c->blocked = false;
			weir_conn_report(c, PENDING_WRITABLE);
		}
	}
	ask_for_room(ch);
}

void
weir_ctrl_report(struct weir_channel *ch)
{
	struct weir_conn *c;

	while ((c = TAILQ_FIRST(&ch->to_report))) {
		TAILQ_REMOVE(&ch->to_report, c, in_to_report);
		weir_conn_set_due(c, false);
		weir_ctrl_add(c, CTRL_CONSUMED);
	}
	weir_ctrl_flush(ch);
	put_releases(ch);
	put_noticed(ch);
}

bool
weir_ctrl_pending(const struct weir_channel *ch)
{
	return ch->release_count || ch->noticed || ch->refused_count || !TAILQ_EMPTY(&ch->control);
}

void
weir_ctrl_wake(struct weir_channel *ch)
{
	struct weir_thread *t = ch->pipe.worker;

	if (t->armed && weir_ctrl_pending(ch))
		weir_thread_wake(t);
}
