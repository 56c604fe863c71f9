/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots from programs. A program is never trusted: each head is copied once, and only the copy is
 * checked and used. A slot that breaks the rules ends its own session and no other.
 */
#include "batch.h"
#include "channel.h"
#include "conn.h"
#include "credit.h"
#include "datagram.h"
#include "events.h"
#include "link.h"
#include "base/list.h"
#include "notice.h"
#include "region.h"
#include "remote.h"
#include "scheduler.h"
#include "send_queue.h"
#include "session.h"
#include "slot_head.h"
#include "state.h"

#include <limits.h>

enum {
	CHANNEL_BUDGET = 128, /* slots of messages taken from one channel per turn */
	COLD_CHANNELS = 8,    /* idle channels polled per turn */
	COLD_AFTER = 1024,    /* turns without slots after which a channel is idle */
};

void
channel_init(struct engine *e, struct session *s, uint32_t index, uint32_t doorbell, bool fence)
{
	const struct weir_geometry *g = &s->shared->geometry;
	struct channel *ch = &s->channels[index];
	uint8_t *at = s->base + weir_arena_channel(g, index);
	uint64_t ring_bytes = (uint64_t)g->ring_slots * WEIR_SLOT_SIZE;

	memset(ch, 0, sizeof(*ch));
	ch->session = s;
	ch->head = (struct weir_channel_head *)(void *)at;
	ch->doorbell = doorbell;
	ch->fence = fence;
	weir_ring_init(&ch->tx, at + sizeof(*ch->head), g->ring_slots, &ch->head->tx_tail, false);
	weir_ring_init(&ch->rx, at + sizeof(*ch->head) + ring_bytes, g->ring_slots,
		       &ch->head->rx_tail, true);
	weir_ring_init(&ch->returns, at + sizeof(*ch->head) + 2 * ring_bytes, WEIR_RETURN_SLOTS,
		       &ch->head->return_tail, false);
	list_init(&ch->events);
	ch->spill_first = ch->spill_last = WEIR_BLOCK_NONE;
	if (s->channel_end <= index)
		s->channel_end = index + 1;
	list_append(&e->hot, &ch->polled);
}

void
channel_fini(struct channel *ch)
{
	if (!ch->session)
		return;
	list_remove(&ch->polled);
	list_remove(&ch->backlog);
	list_remove(&ch->bell);
	ch->session = NULL;
}

enum take
channel_refuse(struct engine *e, struct channel *ch, const char *reason)
{
	session_violate(e, ch->session, reason);
	return STAYS;
}

/* A slot for a connection that has ended is legal; one for a vQPN that no engine gave out is not.
 */
static bool
is_stale(struct engine *e, const struct conn *c, uint32_t vqpn)
{
	return !c && WEIR_VQPN_INDEX(vqpn) - e->first_index < e->config.connections;
}

/* Takes a message that can't go straight into the open frame. */
static enum take
take_slowly(struct engine *e, struct channel *ch, struct conn *c, struct head h, weir_place place)
{
	uint32_t slots = message_slots(h.op, h.length);

	if (c->state == CONN_LOCAL || c->user_closed || c->shut || c->kind == CONN_MEMORY)
		return channel_refuse(
		    e, ch, "message on a local, closed or shut connection, or to memory");
	if (c->kind == CONN_DATAGRAM && h.length > c->cold->dgram.mtu)
		return channel_refuse(e, ch, "datagram too long");
	if (c->kind == CONN_DATAGRAM && c->state == CONN_OPEN && !c->pend_first &&
	    share_pays(e, c->session)) {
		if (!datagram_send(e, c, &ch->tx, h, place)) {
			ch->blocked = true;
			return STAYS;
		}
		c->session->tokens -= h.length;
	} else if (c->state == CONN_PEER_GONE || c->state == CONN_DEAD) {
		channel_taken(e, ch, c, 1, slots, h.length);
		return TAKEN_DEAR;
	} else if (!pend_message(e, c, ch, h, place, NULL)) {
		ch->blocked = true;
		return STAYS;
	}
	channel_taken(e, ch, c, 1, slots, h.length);
	return TAKEN;
}

static inline enum take
take_inline(struct engine *e, struct channel *ch, struct conn *c, struct head h)
{
	uint32_t slots = weir_slots_inline(h.length), cost = slots * WEIR_SLOT_SIZE;
	struct peer_link *l = c->link;

	if (UNLIKELY(h.length > WEIR_INLINE_MAX ||
		     h.flags & (WEIR_SLOT_BULK | WEIR_SLOT_READ | WEIR_SLOT_WRITE)))
		return channel_refuse(e, ch, "inline message too long, or marked as bulk");
	if (LIKELY(c->fast && c->granted - c->spent >= cost && list_empty(&l->active))) {
		enum room room = link_room_of(e, l, ch->session, slots, h.flags);

		if (LIKELY(room == ROOM)) {
			bool notify = h.flags & WEIR_SLOT_NOTIFY;

			credit_spend(c, cost);
			copy_to_batch(l, l->tx_pos, &ch->tx, head_word(h.op, h.order),
				      head_whose(c->peer_vqpn, h.length), slots);
			l->tx_pos += slots;
			link_count(l, c, 1);
			link_sent(l, c, 1, notify);
			channel_taken(e, ch, c, 1, slots, h.length);
			return TAKEN;
		}
		if (room == ROOM_LATER)
			return STAYS;
	}
	return take_slowly(e, ch, c, h, 0);
}

static enum take
take_place(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot,
	   struct head h)
{
	weir_place place = ((const struct weir_slot *)slot)->place[0];
	uint32_t cost, lines;
	const uint8_t *from;

	atomic_signal_fence(memory_order_seq_cst); /* read once */
	from = session_source(ch->session, place, h.length);
	if (h.length > WEIR_MESSAGE_MAX || !from)
		return channel_refuse(e, ch, "payload outside the send area, or too long");
	if (UNLIKELY(WEIR_PLACE_REGION(place)))
		count(&e->counters.tx_adopted, 1);
	if (h.length > WEIR_BLOCK_SIZE)
		h.flags |= WEIR_SLOT_BULK;
	cost = weir_cost(h.length);
	lines = message_lines(h.length);
	if (UNLIKELY(h.flags & WEIR_SLOT_TRANSFERS)) {
		uint8_t way = h.flags & WEIR_SLOT_TRANSFERS;
		bool bulk = way & (WEIR_SLOT_READ | WEIR_SLOT_WRITE);

		if (way & (way - 1) || bulk != !!(h.flags & WEIR_SLOT_BULK) ||
		    (way & WEIR_SLOT_SEND && lines >= WEIR_SEND_LINES))
			return channel_refuse(e, ch, "a way that can't take the message");
	}
	if (c->fast && !(h.flags & WEIR_SLOT_BULK) && c->granted - c->spent >= cost &&
	    list_empty(&c->link->active)) {
		enum room room = link_room_of(e, c->link, ch->session, lines, h.flags);

		if (room == ROOM) {
			struct head out = {
			    .order = h.order, .vqpn = c->peer_vqpn, .length = h.length};

			if (h.length <= WEIR_INLINE_MAX)
				link_put_inline(c->link, out, from);
			else
				link_put_place(c->link, out, from);
			credit_spend(c, cost);
			link_count(c->link, c, 1);
			link_sent(c->link, c, 1, h.flags & WEIR_SLOT_NOTIFY);
			channel_taken(e, ch, c, 1, 1, h.length);
			return TAKEN;
		}
		if (room == ROOM_LATER)
			return STAYS;
	}
	return take_slowly(e, ch, c, h, place);
}

/*
 * Takes the inline messages of one connection at the channel's head that go into the open frame.
 * Returns their number. As in batch.c, the connection's fields stay in registers.
 */
static unsigned
take_messages(struct engine *e, struct channel *ch, const struct weir_slot *slot, uint32_t vqpn,
	      uint64_t end)
{
	uint32_t messages = 0, most, lines = 0, to;
	struct conn *c = conn_find(e, vqpn);
	struct weir_ring r = ch->tx;
	struct peer_link *l;
	uint64_t bytes = 0, room, a, seen = 0;

	if (!c || c->session != ch->session || !c->fast || !list_empty(&c->link->active) ||
	    c->link->tx_pos >= c->link->tx_limit)
		return 0;
	l = c->link;
	room = l->tx_limit - l->tx_pos;
	if (room > (c->granted - c->spent) / WEIR_SLOT_SIZE)
		room = (c->granted - c->spent) / WEIR_SLOT_SIZE;
	if (UNLIKELY(l->split) && room > share_lines(l, ch->session))
		room = share_lines(l, ch->session);
	most = (uint32_t)(room < end - r.pos ? room : end - r.pos);
	a = head_word(WEIR_OP_INLINE, (uint16_t)c->taken);
	to = c->peer_vqpn;
	do {
		struct head_words h = head_words(slot);
		uint32_t length = (uint32_t)(h.b >> 32), n = weir_slots_inline(length);

		if ((h.a & ~HEAD_NOTIFY & ~HEAD_SEQ) != a || (uint32_t)h.b != vqpn ||
		    length > WEIR_INLINE_MAX || n > most - lines)
			break;
		copy_to_batch(l, l->tx_pos + lines, &r, a, head_whose(to, length), n);
		r.pos += n;
		lines += n;
		messages++;
		bytes += length;
		seen |= h.a;
		a += HEAD_NEXT;
		slot = weir_ring_peek(&r);
	} while (slot);
	if (!messages)
		return 0;
	credit_spend(c, lines * WEIR_SLOT_SIZE);
	l->tx_pos += lines;
	if (UNLIKELY(l->split))
		queue_of(ch->session, l, RING)->lines -= lines;
	link_count(l, c, messages);
	link_sent(l, c, messages, seen & HEAD_NOTIFY);
	channel_taken(e, ch, c, messages, lines, bytes);
	return messages;
}

/* Takes slots that return memory and credit: they wait for nothing, whatever messages wait for. */
static COLD unsigned
take_returns(struct engine *e, struct channel *ch)
{
	const struct weir_slot *slot;
	unsigned n = 0;

	while (n < WEIR_RETURN_SLOTS && (slot = weir_ring_peek(&ch->returns))) {
		const char *wrong = NULL;
		struct weir_slot copy;
		struct conn *c;

		line_load(&copy, slot);
		c = conn_find(e, copy.vqpn);
		if (copy.op == WEIR_OP_RELEASE) {
			bool ok =
			    copy.length && copy.length <= WEIR_SLOT_HEAD_BYTES / sizeof(weir_place);

			for (uint32_t i = 0; ok && i < copy.length; i++)
				ok = session_release(ch->session, copy.place[i]);
			if (ok)
				session_memory_freed(e, ch->session);
			else
				wrong = "released a block that was not out";
		} else if (copy.op == WEIR_OP_NOTICED) {
			wrong = notices_taken(e, ch->session, &copy);
		} else if (copy.op != WEIR_OP_CONSUMED && copy.op != WEIR_OP_POST) {
			wrong = "unknown op in a slot";
		} else if (!c || c->session != ch->session) {
			if (!is_stale(e, c, copy.vqpn))
				wrong = "op on a connection that isn't the program's";
		} else if (copy.op == WEIR_OP_POST) {
			wrong = post_take(e, c, &copy);
		} else if (!credit_consumed(e, c, copy.value, copy.length, copy.status)) {
			wrong = "consumed more than was delivered";
		}
		if (wrong) {
			channel_refuse(e, ch, wrong);
			break;
		}
		weir_ring_pop(&ch->returns, 1);
		n++;
	}
	return n;
}

/* Takes a slot that is not a message. */
static enum take
take_control(struct engine *e, struct channel *ch, const struct weir_slot *slot)
{
	struct weir_slot copy;
	struct conn *c;

	line_load(&copy, slot);
	if (copy.op != WEIR_OP_CLOSE && copy.op != WEIR_OP_END && copy.op != WEIR_OP_WANT)
		return channel_refuse(e, ch, "unknown op in a slot");
	c = conn_find(e, copy.vqpn);
	if (!c || c->session != ch->session) {
		if (!is_stale(e, c, copy.vqpn))
			return channel_refuse(e, ch, "op on a connection that isn't the program's");
		weir_ring_pop(&ch->tx, 1);
		return TAKEN_DEAR;
	}
	if (copy.op != WEIR_OP_WANT && (uint16_t)c->taken != copy.order) {
		ch->blocked = true;
		return STAYS;
	}
	weir_ring_pop(&ch->tx, 1);
	if (copy.op == WEIR_OP_END) {
		if (c->state == CONN_LOCAL || c->state == CONN_OPENING || c->user_closed || c->shut)
			return channel_refuse(e, ch, "end of messages out of turn");
		conn_user_shut(e, c);
	} else if (copy.op == WEIR_OP_CLOSE) {
		if (c->user_closed)
			return channel_refuse(e, ch, "connection closed twice");
		conn_user_close(e, c, false);
	} else if (copy.length) {
		c->wants = true;
		c->wanted = copy.length;
		credit_answer_want(e, c);
	} else { /* the program waited for room in its ring: all slots before are taken now */
		app_event(e, c, APP_WRITABLE);
	}
	return TAKEN_DEAR;
}

/* A message for a connection that has ended, or never was the program's. */
static COLD enum take
take_stray(struct engine *e, struct channel *ch, const struct conn *c, struct head h)
{
	if (!is_stale(e, c, h.vqpn) || (h.op == WEIR_OP_INLINE && h.length > WEIR_INLINE_MAX) ||
	    (weir_op_is_cell(h.op) && !weir_cell_length_ok(h.op, h.length)))
		return channel_refuse(e, ch, "message on a connection that isn't the program's");
	weir_ring_pop(&ch->tx, message_slots(h.op, h.length));
	count(&e->counters.stray, 1);
	return TAKEN_DEAR;
}

static __attribute__((noinline)) unsigned
take_slots(struct engine *e, struct channel *ch)
{
	/* where programs share frames, one with a single channel gets no less than others */
	uint32_t most = e->turn <= e->split_turn ? FRAME_LINES : CHANNEL_BUDGET;
	uint64_t end = ch->tx.pos + most;
	unsigned n = 0, returns = 0;

	e->cost = 0; /* operations apart add what they cost beyond their slots */
	if (UNLIKELY(ch->session->unpolled))
		return 0;
	if (UNLIKELY(weir_ring_peek(&ch->returns))) {
		n = returns = take_returns(e, ch);
		if (ch->session->unpolled) /* a return broke the rules */
			return n;
	}
	ch->blocked = false;
	while (ch->tx.pos < end) {
		const struct weir_slot *slot = weir_ring_peek(&ch->tx);
		struct conn *c;
		enum take t;
		struct head h;

		if (!slot)
			break;
		h = head_load(slot);
		if (n && h.op == WEIR_OP_INLINE) { /* the first message opens the frame */
			unsigned run = take_messages(e, ch, slot, h.vqpn, end);

			n += run;
			if (run)
				continue;
		}
		c = conn_find(e, h.vqpn);
		if (UNLIKELY(h.op != WEIR_OP_INLINE && h.op != WEIR_OP_PLACE &&
			     !is_operation(h.op))) {
			t = take_control(e, ch, slot);
		} else if (UNLIKELY(!c || c->session != ch->session)) {
			t = take_stray(e, ch, c, h);
		} else if (UNLIKELY((uint16_t)c->taken != h.order)) {
			ch->blocked = true; /* the earlier one is published in another channel */
			t = STAYS;
		} else if (LIKELY(h.op == WEIR_OP_INLINE)) {
			t = take_inline(e, ch, c, h);
		} else if (is_operation(h.op)) {
			unsigned run = n ? remote_take_run(e, ch, c, slot, end) : 0;

			n += run;
			if (run)
				continue;
			t = remote_take(e, ch, c, slot);
		} else {
			t = take_place(e, ch, c, slot, h);
		}
		if (t == STAYS)
			break;
		n++;
		if (LIKELY(t == TAKEN))
			continue;
		end -= DEAR - 1;
	}
	e->cost += DEAR * returns + most - (int64_t)(end - ch->tx.pos);
	if (n)
		session_active(e, ch->session);
	ch->empty = n ? 0 : ch->empty + 1;
	return n;
}

static inline unsigned
channel_poll(struct engine *e, struct channel *ch)
{
	if (LIKELY(!weir_ring_peek(&ch->tx) && !weir_ring_peek(&ch->returns))) {
		e->cost = 0;
		ch->empty++;
		return 0;
	}
	return take_slots(e, ch);
}

/* The same while programs compete: the program's part of this round may be used up. */
static COLD unsigned
channel_poll_fairly(struct engine *e, struct channel *ch)
{
	struct session *s = ch->session;
	unsigned n;

	if (s->round != e->round)
		share_round(e, s);
	if (s->left <= 0) {
		e->held = true;
		return 0;
	}
	n = channel_poll(e, ch);
	s->left -= (e->cost + DEAR) * ENGINE_WEIGHT;
	if (n && s->left <= 0) { /* the program's other channels are first in the next round */
		list_remove(&ch->polled);
		list_append(&e->hot, &ch->polled);
	}
	return n;
}

static unsigned
poll_hot(struct engine *e, bool fairly)
{
	struct list_node *node, *following, *last = e->hot.prev;
	unsigned n = 0;

	for (node = e->hot.next; node != &e->hot; node = following) {
		struct channel *ch = LIST_OWNER(node, struct channel, polled);
		unsigned some;

		following = node == last ? &e->hot : node->next;
		some = UNLIKELY(fairly) ? channel_poll_fairly(e, ch) : channel_poll(e, ch);
		n += some;
		e->active_channels += some != 0;
	}
	return n;
}

static __attribute__((noinline)) unsigned
poll_all(struct engine *e)
{
	bool fairly = e->now < e->rivals_until;
	struct list_node *node, *following;
	/* a doorbell that has rung does not say for which channel, and does not ring again */
	unsigned n, left = e->flags_up ? UINT_MAX : COLD_CHANNELS;

	n = list_empty(&e->hot) ? 0 : poll_hot(e, fairly);
	if (UNLIKELY(e->held && !n)) { /* no other program has slots */
		e->round += FORGIVEN;
		n = poll_hot(e, fairly);
	} else if (!e->held && e->hot.next != e->hot.prev) {
		node = e->hot.next; /* another channel is first in the next turn */
		list_remove(node);
		list_append(&e->hot, node);
	}
	for (node = e->cold.next; node != &e->cold && left; left--, node = following) {
		struct channel *ch = LIST_OWNER(node, struct channel, polled);
		unsigned some;

		following = node->next;
		some = UNLIKELY(fairly && !e->flags_up) ? channel_poll_fairly(e, ch)
							: channel_poll(e, ch);
		if (!some)
			continue;
		list_remove(node);
		list_append(&e->hot, node);
		n += some;
		e->active_channels++;
	}
	if (node != &e->cold) /* others are first in the next turn */
		list_begin_at(&e->cold, node);
	return n;
}

unsigned
channels_poll(struct engine *e)
{
	struct list_node *first = e->hot.next;
	unsigned n;

	e->active_channels = 0;
	e->held = false;
	e->round++;
	/* an only channel takes no turns with others */
	if (first == &e->hot || first->next != &e->hot || !list_empty(&e->cold) ||
	    e->now < e->rivals_until)
		return poll_all(e);
	n = channel_poll(e, LIST_OWNER(first, struct channel, polled));
	e->active_channels = n != 0;
	return n;
}

bool
channel_out_of_order(struct engine *e, const struct channel *ch)
{
	const struct weir_slot *slot = weir_ring_peek(&ch->tx);
	struct conn *c;
	struct head h;

	if (!slot)
		return false;
	h = head_load(slot);
	if (h.op != WEIR_OP_INLINE && h.op != WEIR_OP_PLACE && h.op != WEIR_OP_CLOSE &&
	    h.op != WEIR_OP_END && !is_operation(h.op))
		return false;
	c = conn_find(e, h.vqpn);
	return c && c->session == ch->session && (uint16_t)c->taken != h.order;
}

/* Whether all channels of s with slots wait for a message that no channel has. Once per turn. */
static bool
waits_for_nothing(struct engine *e, struct session *s)
{
	uint32_t channels = s->shared->geometry.channels, stuck = 0;

	if (s->stuck_at == e->turn)
		return false;
	s->stuck_at = e->turn;
	/* twice: the message may have been published in a channel looked at before */
	for (uint32_t k = 0; k < 2; k++)
		for (uint32_t i = 0; i < channels; i++) {
			const struct channel *ch = &s->channels[i];

			if (!ch->session || !weir_ring_peek(&ch->tx))
				continue;
			if (!channel_out_of_order(e, ch))
				return false;
			stuck++;
		}
	return stuck;
}

void
channels_housekeeping(struct engine *e)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, &e->hot) {
		struct channel *ch = LIST_OWNER(node, struct channel, polled);

		if (ch->blocked && !ch->session->unpolled && channel_out_of_order(e, ch) &&
		    waits_for_nothing(e, ch->session)) {
			channel_refuse(e, ch, "messages out of order: one is missing");
		} else if (ch->empty > COLD_AFTER && !ch->blocked) {
			list_remove(node);
			list_append(&e->cold, node);
		}
	}
}

bool
channel_has_work(const struct channel *ch)
{
	return !ch->session->unpolled &&
	       (weir_ring_peek(&ch->returns) || (!ch->blocked && weir_ring_peek(&ch->tx)));
}
