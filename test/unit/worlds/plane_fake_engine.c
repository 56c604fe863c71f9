/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "plane_fake_internal.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cmocka.h>

void
plane_broken(const char *what)
{
	fprintf(stderr, "the library breaks a rule: %s\n", what);
	abort();
}

void
plane_require(bool ok, const char *what)
{
	if (!ok)
		plane_broken(what);
}

/* ---- to programs ---- */

static void
push_packets(struct channel *ch)
{
	struct weir_ring *r = &ch->rx;
	bool any = false;

	while (ch->first) {
		struct packet *p = ch->first;

		if (weir_ring_room(r) < p->slots)
			plane_require(weir_ring_refresh(r), "a tail that goes back or ahead");
		if (weir_ring_room(r) < p->slots)
			break;
		for (uint32_t i = 1; i < p->slots; i++) {
			memcpy((char *)weir_ring_at(r, r->pos + i) + 4, (char *)&p->slot[i] + 4,
			       60);
			weir_ring_continue(r, i);
		}
		memcpy((char *)weir_ring_at(r, r->pos) + 4, (char *)&p->slot[0] + 4, 60);
		weir_ring_publish(r, p->slots);
		ch->first = p->next;
		if (!ch->first)
			ch->last = &ch->first;
		free(p);
		any = true;
	}
	if (!any)
		return;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&ch->head->rx_sleeping))
		send(ch->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

struct packet *
plane_packet(struct plane *f, const struct end *e, uint8_t op)
{
	struct channel *ch = &f->session[e->session].channel[e->channel];
	struct packet *p = calloc(1, sizeof(*p));

	p->slots = 1;
	p->slot[0].op = op;
	p->slot[0].vqpn = e->vqpn;
	*ch->last = p;
	ch->last = &p->next;
	return p;
}

static void
tell_closed(struct plane *f, struct end *e, uint32_t status)
{
	if (e->told_closed)
		return;
	e->told_closed = true;
	atomic_store(&e->desc->status, status ? status : ECONNRESET);
	plane_packet(f, e, WEIR_OP_CLOSED)->slot[0].status = status;
}

void
plane_grant(struct end *e)
{
	/* the grant to e's program, which its peer reads */
	atomic_store(&e->peer->desc->granted, e->granted);
	atomic_store(&e->peer->desc->window, e->window);
	atomic_store(&e->desc->recv_window, e->window);
}

/* ---- ends ---- */

struct end *
plane_new_end(struct plane *f, uint32_t session, uint32_t channel)
{
	for (uint32_t i = 0; i < ENDS; i++) {
		struct end *e = &f->end[i];
		struct session *s = &f->session[session];

		if (e->used)
			continue;
		f->generation[i] = (uint16_t)(f->generation[i] % 4095 + 1);
		*e = (struct end){.used = true,
				  .vqpn = i | (uint32_t)f->generation[i] << 20,
				  .desc_index = i,
				  .session = session,
				  .channel = channel};
		e->desc = (struct weir_conn_desc *)(s->base + weir_arena_descs(&s->g)) + i;
		memset(e->desc, 0, sizeof(*e->desc));
		e->granted = f->o.first;
		e->window = f->o.first;
		return e;
	}
	fail_msg("the fake has no more ends");
	return NULL;
}

static struct end *
find_end(struct plane *f, uint32_t vqpn)
{
	uint32_t i = vqpn & 0xfffff;

	return i < ENDS && f->end[i].used && f->end[i].vqpn == vqpn ? &f->end[i] : NULL;
}

static void
maybe_free(struct end *e)
{
	if (!e->user_closed || !e->told_closed)
		return;
	e->used = false;
	if (e->peer)
		e->peer->peer = NULL;
}

void
plane_end_peer(struct plane *f, struct end *e, uint32_t status)
{
	if (e->peer)
		tell_closed(f, e->peer, status);
}

/* ---- the engine ---- */

static void
put_done(struct plane *f, struct end *e)
{
	if (e->notify)
		plane_packet(f, e, WEIR_OP_DONE)->slot[0].value = e->completed;
	e->notify = false;
}

static uint8_t *
source(struct session *s, weir_place place, uint64_t length)
{
	uint64_t at = WEIR_PLACE_OFFSET(place);

	plane_require(!WEIR_PLACE_REGION(place) && at >= weir_arena_send(&s->g) &&
			  at + length <= weir_arena_end(&s->g),
		      "payload outside the send heap");
	return s->base + at;
}

/* Blocks for a message. 0: none now. */
static weir_place
find_place(struct session *s, uint32_t length)
{
	uint32_t n = (length + WEIR_BLOCK_SIZE - 1) / WEIR_BLOCK_SIZE, first;

	first = n == 1 ? weir_blocks_take(&s->blocks) : weir_blocks_take_run(&s->blocks, n);
	if (first == WEIR_BLOCK_NONE)
		return 0;
	s->out[first] = (uint8_t)n;
	return WEIR_PLACE(0, weir_arena_recv(&s->g) + (uint64_t)first * WEIR_BLOCK_SIZE);
}

static bool
deliver(struct plane *f, struct end *from, const struct weir_slot *s, struct weir_ring *tx)
{
	struct end *to = from->peer;
	struct session *here = &f->session[from->session], *there;
	uint32_t slots = s->op == WEIR_OP_INLINE ? weir_slots_inline(s->length) : 1;
	bool bulk = s->flags & WEIR_SLOT_BULK || s->length > WEIR_BLOCK_SIZE;
	uint32_t cost = bulk ? 0 : weir_cost(s->length);
	weir_place place = 0;
	struct packet *p;
	uint8_t *at;

	if (!to || to->told_closed || to->user_closed)
		return true; /* nobody's */
	there = &f->session[to->session];
	plane_require(from->spent + cost <= to->granted, "more sent than granted");
	if (s->op == WEIR_OP_PLACE) {
		at = source(here, s->place[0], s->length);
		place = find_place(there, s->length);
		if (!place)
			return false;
		memcpy(there->base + WEIR_PLACE_OFFSET(place), at, s->length);
		/* what is sent may not be used again before it is complete */
		memset(at, 0xdd, s->length);
	} else {
		plane_require(!(s->flags & WEIR_SLOT_BULK), "an inline message marked as bulk");
	}
	p = plane_packet(f, to, s->op);
	p->slots = slots;
	for (uint32_t i = 1; i < slots; i++)
		p->slot[i] = *weir_ring_at(tx, tx->pos + i);
	memcpy(p->slot[0].data, s->data, sizeof(s->data));
	p->slot[0].length = s->length;
	p->slot[0].order = s->order;
	p->slot[0].flags = bulk ? WEIR_SLOT_BULK : 0;
	if (s->op == WEIR_OP_PLACE)
		p->slot[0].place[0] = place;
	from->spent += cost;
	to->delivered += cost;
	return true;
}

static void
answer_want(struct plane *f, struct end *e)
{
	struct end *to = e->peer;

	if (!e->want || !to)
		return;
	if (to->granted - e->spent < e->want_cost) {
		/* what waits is made room for */
		if (to->delivered != to->consumed)
			return;
		to->granted = e->spent + e->want_cost;
		plane_grant(to);
	}
	e->want = false;
	plane_packet(f, e, WEIR_OP_WRITABLE);
}

static void
consumed(struct plane *f, struct end *e, uint64_t value)
{
	plane_require(value <= e->delivered && value >= e->consumed,
		      "consumed what was not delivered");
	e->consumed = value;
	if (e->window < f->o.window)
		e->window = e->window * 2 < f->o.window ? e->window * 2 : f->o.window;
	if (e->consumed + e->window > e->granted)
		e->granted = e->consumed + e->window;
	if (!e->peer)
		return;
	plane_grant(e);
	answer_want(f, e->peer);
}

static void
release(struct session *s, const struct weir_slot *slot)
{
	plane_require(slot->length >= 1 && slot->length <= 6, "count of places released");
	for (uint32_t i = 0; i < slot->length; i++) {
		uint64_t at = WEIR_PLACE_OFFSET(slot->place[i]) - weir_arena_recv(&s->g);
		uint32_t b = (uint32_t)(at / WEIR_BLOCK_SIZE);

		plane_require(at % WEIR_BLOCK_SIZE == 0 && b < s->g.recv_blocks && s->out[b],
			      "released a place that was not out");
		weir_blocks_give(&s->blocks, b, s->out[b]);
		s->out[b] = 0;
	}
}

static bool
take(struct plane *f, struct session *s, struct weir_ring *tx, const struct weir_slot *in)
{
	struct weir_slot slot = *in;
	struct end *e = find_end(f, slot.vqpn);
	bool message = slot.op == WEIR_OP_INLINE || slot.op == WEIR_OP_PLACE;

	if (slot.op == WEIR_OP_RELEASE) {
		release(s, &slot);
		return true;
	}
	if (!e)
		return true;
	plane_require(&f->session[e->session] == s, "a connection of somebody else");
	plane_require(!e->user_closed, "an op after CLOSE");
	if (message) {
		plane_require(!e->local && e->open, "a message on a local or unopened connection");
		plane_require(slot.order == (uint16_t)e->taken, "order");
		if (!deliver(f, e, &slot, tx))
			return false;
		e->taken++;
		e->completed++;
		e->notify |= slot.flags & WEIR_SLOT_NOTIFY;
		if (e->told_closed)
			e->completed--;
		atomic_store(&e->desc->completed, e->completed);
		return true;
	}
	switch (slot.op) {
	case WEIR_OP_CLOSE:
		plane_require(slot.order == (uint16_t)e->taken, "order of CLOSE");
		e->user_closed = true;
		put_done(f, e);
		plane_end_peer(f, e, 0);
		tell_closed(f, e, 0);
		maybe_free(e);
		break;
	case WEIR_OP_END:
		plane_require(slot.order == (uint16_t)e->taken, "order of END");
		if (e->peer && !e->peer->told_closed)
			plane_packet(f, e->peer, WEIR_OP_END);
		break;
	case WEIR_OP_CONSUMED:
		consumed(f, e, slot.value);
		break;
	case WEIR_OP_WANT:
		e->want = true;
		e->want_cost = slot.length;
		answer_want(f, e);
		break;
	default:
		plane_broken("an unknown op");
	}
	return true;
}

static unsigned
channel_turn(struct plane *f, struct session *s, struct channel *ch)
{
	struct weir_slot *slot;
	unsigned n = 0;

	for (; !f->held && (slot = weir_ring_peek(&ch->returns)); n++) {
		plane_require(slot->op == WEIR_OP_RELEASE || slot->op == WEIR_OP_CONSUMED,
			      "an op that gives nothing back");
		take(f, s, NULL, slot);
		weir_ring_pop(&ch->returns, 1);
	}
	while (!f->held && (slot = weir_ring_peek(&ch->tx))) {
		uint32_t slots = slot->op == WEIR_OP_INLINE ? weir_slots_inline(slot->length) : 1;

		plane_require(slots <= WEIR_INLINE_SLOTS, "length of an inline message");
		plane_require(slot->op != WEIR_OP_RELEASE && slot->op != WEIR_OP_CONSUMED,
			      "what waits for no message, among them");
		if (!take(f, s, &ch->tx, slot))
			break;
		weir_ring_pop(&ch->tx, slots);
		n++;
	}
	if (n)
		weir_ring_publish_tail(&ch->tx);
	return n;
}

void
plane_push_all(struct plane *f)
{
	for (uint32_t i = 0; i < SESSIONS; i++)
		for (uint32_t k = 0; f->session[i].used && k < CHANNELS; k++)
			if (f->session[i].channel[k].used)
				push_packets(&f->session[i].channel[k]);
}

static unsigned
turn(struct plane *f)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < SESSIONS; i++)
		for (uint32_t k = 0; f->session[i].used && !f->session[i].dead && k < CHANNELS; k++)
			if (f->session[i].channel[k].used)
				n += channel_turn(f, &f->session[i], &f->session[i].channel[k]);
	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && !f->held)
			put_done(f, &f->end[i]);
	plane_push_all(f);
	return n;
}

unsigned
plane_turn(struct plane *f)
{
	unsigned n;

	pthread_mutex_lock(&f->lock);
	n = turn(f);
	pthread_mutex_unlock(&f->lock);
	return n;
}

void
plane_settle(struct plane *f)
{
	while (plane_turn(f))
		;
}

static void *
run(void *arg)
{
	struct plane *f = arg;

	while (!atomic_load(&f->stop)) {
		plane_turn(f);
		sched_yield();
	}
	return NULL;
}

void
plane_run(struct plane *f)
{
	atomic_store(&f->stop, false);
	f->running = !pthread_create(&f->thread, NULL, run, f);
}

void
plane_stop(struct plane *f)
{
	if (f->running) {
		atomic_store(&f->stop, true);
		pthread_join(f->thread, NULL);
	}
	f->running = false;
}
