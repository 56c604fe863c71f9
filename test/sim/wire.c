/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire: connects the ports of all nodes and does to frames what the scenario says. A frame that
 * is delivered is the very buffer that was sent, as between two ports of one host; only a corrupted
 * one is a copy.
 */
#include "wire.h"

#include "node.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_KBYTE 80u /* 100 Gbit/s */
#define BACKLOG_NS (20 * SIM_US)

struct flight {
	struct sim_frame *frame;
	uint64_t number;
	uint32_t length;
	uint32_t from, to;
	struct flight *next;
};

static struct sim_frame *free_frames;
static struct flight *free_flights;
static uint64_t frames_out;
/* When the last frame from a to b arrives: later ones come after it, unless they overtake. */
static uint64_t last_arrival[SIM_NODES_MAX][SIM_NODES_MAX];
/* The highest number of a frame from a to b that has arrived. */
static uint64_t arrived[SIM_NODES_MAX][SIM_NODES_MAX];

static uint8_t *
frame_data(struct sim_frame *f)
{
	return (uint8_t *)f + sizeof(*f);
}

static struct sim_frame *
frame_get(void)
{
	struct sim_frame *f = free_frames;

	if (f)
		free_frames = f->next;
	else if (!(f = malloc(sizeof(*f) + SIM_FRAME_ROOM)))
		abort();
	f->refs = 1;
	f->sent_length = 0;
	frames_out++;
	return f;
}

static void
frame_put(struct sim *s, struct sim_frame *f)
{
	if (f->refs == 0)
		sim_fail(s, "a frame was given back more often than it was taken");
	if (--f->refs)
		return;
	frames_out--;
	f->next = free_frames;
	free_frames = f;
}

uint64_t
sim_frames_out(void)
{
	return frames_out;
}

void
sim_frames_forget(void)
{
	frames_out = 0;
	memset(last_arrival, 0, sizeof(last_arrival));
	memset(arrived, 0, sizeof(arrived));
}

uint32_t
sim_node_ip(uint32_t node)
{
	return 0x0a000001u + node;
}

bool
sim_node_dark(const struct sim *s, uint32_t node)
{
	const struct sim_wire_plan *w = &s->sc.wire;

	if (s->sc.cut_at <= s->now && s->sc.cut_node == node)
		return true;
	return w->outage_for && w->outage_node == node && s->now >= w->outage_at &&
	       s->now < w->outage_at + w->outage_for;
}

static bool
queue_put(struct sim_queue *q, struct sim_frame *f, uint32_t length)
{
	if (q->head - q->tail == SIM_RX_QUEUE)
		return false;
	q->slot[q->head % SIM_RX_QUEUE].frame = f;
	q->slot[q->head % SIM_RX_QUEUE].length = length;
	q->head++;
	return true;
}

static void
arrive(struct sim *s, void *arg)
{
	struct flight *fl = arg;
	struct sim_frame *f = fl->frame;
	uint32_t to = fl->to, length = fl->length;
	bool dark = fl->from != to && sim_node_dark(s, to);
	struct sim_port *p = sim_rx_port(s, to);
	uint64_t *last = &arrived[fl->from][to];

	s->counts.overtaken += fl->number < *last;
	*last = fl->number > *last ? fl->number : *last;
	fl->next = free_flights;
	free_flights = fl;
	s->counts.dark += dark;
	if (dark || !queue_put(&p->rx, f, length)) {
		frame_put(s, f);
		return;
	}
	if (p->event_fd || s->node[p->node]->engine[p->engine].state == SIM_AWAKE)
		sim_engine_wake(s, p->node, p->engine);
}

static void
launch(struct sim *s, uint32_t from, uint32_t to, struct sim_frame *f, uint32_t length, uint64_t at)
{
	struct flight *fl = free_flights;

	if (fl)
		free_flights = fl->next;
	else if (!(fl = malloc(sizeof(*fl))))
		abort();
	f->refs++;
	fl->frame = f;
	fl->number = s->frames;
	fl->length = length;
	fl->from = from;
	fl->to = to;
	sim_call(s, at, arrive, fl);
}

static bool
is_arp(const uint8_t *data)
{
	return data[12] == 0x08 && data[13] == 0x06;
}

/* A copy with one to three bits flipped, or cut short. The ICRC finds up to three for certain. */
static struct sim_frame *
corrupt(struct sim *s, struct sim_frame *f, uint32_t *length)
{
	struct sim_frame *copy = frame_get();
	uint8_t *data = frame_data(copy);

	memcpy(data, frame_data(f), *length);
	if (is_arp(data) || rng_chance(&s->rng, 300)) {
		*length = rng_below(&s->rng, *length);
		return copy;
	}
	/* not in the Ethernet header: it has its own check on a real wire */
	for (uint32_t n = 1 + rng_below(&s->rng, 3); n > 0; n--) {
		uint32_t bit = 14 * 8 + rng_below(&s->rng, (*length - 14) * 8);

		data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	return copy;
}

/* `count` times it has happened in this seed: once at least, unless it is left out. */
static bool
happens(struct sim *s, enum sim_part part, uint32_t permille, uint64_t count)
{
	bool bound = !count && s->frames >= s->sc.wire.due[part];

	return rng_chance(&s->rng, permille) || bound;
}

/* One frame from node `from` to node `to`; it has left the port at `at`. */
static void
carry(struct sim *s, uint32_t from, uint32_t to, struct sim_frame *f, uint32_t length, uint64_t at)
{
	const struct sim_wire_plan *w = &s->sc.wire;
	struct sim_frame *copy = NULL;
	uint64_t arrival = at + w->delay + rng_below(&s->rng, (uint32_t)w->jitter + 1);

	s->frames++;
	if (happens(s, SIM_loss, w->loss, s->counts.lost)) {
		s->counts.lost++;
		return;
	}
	if (happens(s, SIM_corrupt, w->corrupt, s->counts.corrupted)) {
		s->counts.corrupted++;
		s->damaged++;
		f = copy = corrupt(s, f, &length);
	}
	if (happens(s, SIM_reorder, w->reorder, s->counts.overtaken)) {
		arrival += rng_log(&s->rng, SIM_US, 100 * SIM_US);
	} else {
		if (arrival <= last_arrival[from][to])
			arrival = last_arrival[from][to] + 1;
		last_arrival[from][to] = arrival;
	}
	launch(s, from, to, f, length, arrival);
	if (happens(s, SIM_dup, w->dup, s->counts.doubled)) {
		s->counts.doubled++;
		s->damaged += copy != NULL;
		launch(s, from, to, f, length, arrival + rng_log(&s->rng, 1, 300 * SIM_US));
	}
	if (copy)
		frame_put(s, copy);
}

/* Takes over the port's reference. */
static void
transmit(struct sim_port *p, struct sim_frame *f, uint32_t length)
{
	struct sim *s = p->s;
	const uint8_t *data = frame_data(f);
	bool all = data[0] & 1;
	uint32_t ip = (uint32_t)data[30] << 24 | (uint32_t)data[31] << 16 |
		      (uint32_t)data[32] << 8 | data[33];

	if (is_arp(data)) /* target protocol address */
		ip = (uint32_t)data[38] << 24 | (uint32_t)data[39] << 16 | (uint32_t)data[40] << 8 |
		     data[41];
	if (p->busy_until < s->now)
		p->busy_until = s->now;
	p->busy_until += (length * NS_PER_KBYTE) / 1024 + 1;
	for (uint32_t n = 0; n < s->sc.nodes; n++)
		if (all ? n != p->node : sim_node_ip(n) == ip) {
			if (n == p->node || !sim_node_dark(s, p->node))
				carry(s, p->node, n, f, length, p->busy_until);
			else
				s->counts.dark++;
		}
	frame_put(s, f);
}

/* ---- struct roce_wire ---- */

static unsigned
wire_alloc(void *user, void **frames, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		frames[i] = frame_get();
	return n;
}

static void
wire_drop(void *user, void *const *frames, unsigned n)
{
	struct sim_port *p = user;

	for (unsigned i = 0; i < n; i++)
		frame_put(p->s, frames[i]);
}

static unsigned
wire_room(void *user)
{
	struct sim_port *p = user;
	struct sim *s = p->s;

	if (s->now >= p->full_until && happens(s, SIM_full, s->sc.wire.full, s->counts.full)) {
		s->counts.full++;
		p->full_until = s->now + rng_log(&s->rng, 100, 100 * SIM_US);
	}
	if (s->now < p->full_until || p->busy_until > s->now + BACKLOG_NS)
		return 0;
	return SIM_TX_QUEUE - p->tx_count;
}

static void
wire_send(void *user, void *frame, uint32_t length, bool keep)
{
	struct sim_port *p = user;
	struct sim_frame *f = frame;

	if (f->sent_length && f->sent_length != length)
		sim_fail(p->s, "a frame was sent again with another length");
	if (length > ROCE_FRAME_MAX(p->s->sc.mtu))
		sim_fail(p->s, "a frame of %u bytes with an MTU of %u", length, p->s->sc.mtu);
	f->sent_length = length;
	if (keep)
		f->refs++;
	if (p->tx_count == SIM_TX_QUEUE || p->s->now < p->full_until) {
		roce_count(&roce_counters(p->ctx)->drop_tx_full, 1);
		frame_put(p->s, f);
		return;
	}
	p->tx[p->tx_count].frame = f;
	p->tx[p->tx_count++].length = length;
}

static void
wire_flush(void *user, uint64_t now)
{
	struct sim_port *p = user;

	for (uint32_t i = 0; i < p->tx_count; i++)
		transmit(p, p->tx[i].frame, p->tx[i].length);
	p->tx_count = 0;
}

/* A frame of another engine's QP goes to that engine's port. */
static void
hand_over(struct sim_port *p, uint32_t owner, struct sim_frame *f, uint32_t length)
{
	struct sim_port *other = sim_port(p->s, p->node, owner);

	f->refs++;
	if (!queue_put(&other->handed, f, length)) {
		roce_count(&roce_counters(p->ctx)->drop_handover_full, 1);
		frame_put(p->s, f);
		return;
	}
	sim_engine_wake(p->s, p->node, owner);
}

static unsigned
wire_receive(void *user, struct roce_context *ctx, uint64_t now)
{
	struct sim_port *p = user;
	unsigned done = 0;

	for (; done < 32 && p->handed.tail != p->handed.head; done++) {
		uint32_t i = p->handed.tail++ % SIM_RX_QUEUE;
		struct sim_frame *f = p->handed.slot[i].frame;

		if (roce_input_handed(ctx, frame_data(f), p->handed.slot[i].length, now) !=
		    ROCE_DONE)
			sim_fail(p->s, "a frame was handed to an engine that doesn't own its QP");
		frame_put(p->s, f);
	}
	for (; done < 64 && p->rx.tail != p->rx.head; done++) {
		uint32_t i = p->rx.tail++ % SIM_RX_QUEUE;
		struct sim_frame *f = p->rx.slot[i].frame;
		int owner = roce_input(ctx, frame_data(f), p->rx.slot[i].length, now);

		if (owner != ROCE_DONE)
			hand_over(p, (uint32_t)owner, f, p->rx.slot[i].length);
		frame_put(p->s, f);
	}
	return done;
}

static uint64_t
wire_arm(void *user, uint64_t now, int *fd)
{
	struct sim_port *p = user;

	/* never polled: sim_engine_wake() stands for it */
	*fd = p->event_fd ? 0 : -1;
	if (p->full_until > p->s->now)
		return p->full_until;
	if (p->busy_until > p->s->now + BACKLOG_NS)
		return p->busy_until - BACKLOG_NS;
	return SIM_NEVER;
}

const struct roce_wire sim_wire = {
    .data_offset = sizeof(struct sim_frame),
    .alloc = wire_alloc,
    .drop = wire_drop,
    .send = wire_send,
    .room = wire_room,
    .receive = wire_receive,
    .flush = wire_flush,
    .arm = wire_arm,
};

/* ---- ports ---- */

void
sim_port_init(struct sim_port *p, struct sim *s, uint32_t node, uint32_t engine, bool event_fd)
{
	memset(p, 0, sizeof(*p));
	p->s = s;
	p->node = node;
	p->engine = engine;
	p->event_fd = event_fd;
}

bool
sim_port_readable(const struct sim_port *p)
{
	return p->rx.head != p->rx.tail || p->handed.head != p->handed.tail;
}

static void
queue_drain(struct sim *s, struct sim_queue *q)
{
	while (q->tail != q->head)
		frame_put(s, q->slot[q->tail++ % SIM_RX_QUEUE].frame);
}

void
sim_port_fini(struct sim_port *p)
{
	queue_drain(p->s, &p->rx);
	queue_drain(p->s, &p->handed);
	for (uint32_t i = 0; i < p->tx_count; i++)
		frame_put(p->s, p->tx[i].frame);
	p->tx_count = 0;
}

static void
drop_flight(struct sim *s, void *arg)
{
	struct flight *fl = arg;

	frame_put(s, fl->frame);
	fl->next = free_flights;
	free_flights = fl;
}

void
sim_wire_reset(struct sim *s)
{
	sim_cancel(s, arrive, drop_flight);
	memset(last_arrival, 0, sizeof(last_arrival));
	memset(arrived, 0, sizeof(arrived));
}
