/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire: connects the ports of all nodes and does to frames what the scenario says. A frame that
 * is delivered is the very buffer that was sent, as between two ports of one host; only a corrupted
 * one is a copy.
 */
#include "wire.h"

#include "node.h"

#include <string.h>

#define NS_PER_KBYTE 80u /* 100 Gbit/s */
#define BACKLOG_NS (20 * SIM_US)
#define BURST 64u /* frames that a port receives per turn, at most */

/* When the last frame from a to b arrives: later ones come after it, unless they overtake. */
static uint64_t last_arrival[SIM_NODES_MAX][SIM_NODES_MAX];
/* The highest number of a frame from a to b that has arrived. */
static uint64_t arrived[SIM_NODES_MAX][SIM_NODES_MAX];

static struct frame_port *
port_of(struct frame_net *n, uint32_t node, uint32_t engine)
{
	return &sim_port(n->user, node, engine)->frames;
}

static void
handed(struct frame_port *p)
{
	sim_engine_wake(p->net->user, p->node, p->context);
}

static void
broken(struct frame_net *n, const char *why)
{
	sim_fail(n->user, "%s", why);
}

static const struct frame_net_ops ops = {.port = port_of, .handed = handed, .broken = broken};
static struct frame_net frames = {
    .ops = &ops, .port_room = SIM_RX_QUEUE, .burst = BURST, .limit = UINT64_MAX};

uint64_t
sim_frames_out(void)
{
	return frames.live;
}

void
sim_frames_forget(void)
{
	frames.live = frames.under_way = 0;
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

static void
arrive(struct sim *s, void *arg)
{
	struct frame_delivery *d = arg;
	bool dark = d->from != d->to && sim_node_dark(s, d->to);
	struct sim_port *p = sim_rx_port(s, d->to);
	uint64_t *last = &arrived[d->from][d->to];

	s->counts.overtaken += d->number < *last;
	*last = d->number > *last ? d->number : *last;
	s->counts.dark += dark;
	if (dark) {
		frame_end(d);
		return;
	}
	if (!frame_arrive(d, &p->frames))
		return;
	if (p->event_fd || s->node[p->frames.node]->engine[p->frames.context].state == SIM_AWAKE)
		sim_engine_wake(s, p->frames.node, p->frames.context);
}

static void
launch(struct sim *s, uint32_t from, uint32_t to, struct frame *f, uint64_t at)
{
	struct frame_delivery *d = frame_launch(f, from, to);

	d->number = s->frames;
	sim_call(s, at, arrive, d);
}

static bool
is_arp(const uint8_t *data)
{
	return data[12] == 0x08 && data[13] == 0x06;
}

/* A copy with one to three bits flipped, or cut short. The ICRC finds up to three for certain. */
static struct frame *
corrupt(struct sim *s, const struct frame *f)
{
	struct frame *copy = frame_new(&frames);
	uint8_t *data = copy->data;

	copy->length = f->length;
	memcpy(data, f->data, f->length);
	if (is_arp(data) || rng_chance(&s->rng, 300)) {
		copy->length = rng_below(&s->rng, f->length);
		return copy;
	}
	/* not in the Ethernet header: it has its own check on a real wire */
	for (uint32_t n = 1 + rng_below(&s->rng, 3); n > 0; n--) {
		uint32_t bit = 14 * 8 + rng_below(&s->rng, (f->length - 14) * 8);

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
carry(struct sim *s, uint32_t from, uint32_t to, struct frame *f, uint64_t at)
{
	const struct sim_wire_plan *w = &s->sc.wire;
	struct frame *copy = NULL;
	uint64_t arrival = at + w->delay + rng_below(&s->rng, (uint32_t)w->jitter + 1);

	s->frames++;
	if (happens(s, SIM_loss, w->loss, s->counts.lost)) {
		s->counts.lost++;
		return;
	}
	if (happens(s, SIM_corrupt, w->corrupt, s->counts.corrupted)) {
		s->counts.corrupted++;
		s->damaged++;
		f = copy = corrupt(s, f);
	}
	if (happens(s, SIM_reorder, w->reorder, s->counts.overtaken)) {
		arrival += rng_log(&s->rng, SIM_US, 100 * SIM_US);
	} else {
		if (arrival <= last_arrival[from][to])
			arrival = last_arrival[from][to] + 1;
		last_arrival[from][to] = arrival;
	}
	launch(s, from, to, f, arrival);
	if (happens(s, SIM_dup, w->dup, s->counts.doubled)) {
		s->counts.doubled++;
		s->damaged += copy != NULL;
		launch(s, from, to, f, arrival + rng_log(&s->rng, 1, 300 * SIM_US));
	}
	if (copy)
		frame_put(copy);
}

/* Takes over the port's reference. */
static void
transmit(struct sim_port *p, struct frame *f)
{
	struct sim *s = p->s;
	uint32_t from = p->frames.node;

	if (p->busy_until < s->now)
		p->busy_until = s->now;
	p->busy_until += (f->length * NS_PER_KBYTE) / 1024 + 1;
	for (uint32_t n = 0; n < s->sc.nodes; n++)
		if (frame_is_to(f, n) && (n != from || !(f->data[0] & 1))) {
			if (n == from || !sim_node_dark(s, from))
				carry(s, from, n, f, p->busy_until);
			else
				s->counts.dark++;
		}
	frame_put(f);
}

/* ---- struct roce_wire ---- */

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
	struct frame *f = frame;

	frame_sent(f, length);
	if (length > ROCE_FRAME_MAX(p->s->sc.mtu))
		sim_fail(p->s, "a frame of %u bytes with an MTU of %u", length, p->s->sc.mtu);
	f->refs += keep;
	if (p->tx_count == SIM_TX_QUEUE || p->s->now < p->full_until) {
		roce_count(&roce_counters(p->ctx)->drop_tx_full, 1);
		frame_put(f);
		return;
	}
	p->tx[p->tx_count++] = f;
}

static void
wire_flush(void *user, uint64_t now)
{
	struct sim_port *p = user;

	for (uint32_t i = 0; i < p->tx_count; i++)
		transmit(p, p->tx[i]);
	p->tx_count = 0;
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
    .data_offset = offsetof(struct frame, data),
    .alloc = frame_port_alloc,
    .drop = frame_port_drop,
    .send = wire_send,
    .room = wire_room,
    .receive = frame_port_receive,
    .flush = wire_flush,
    .arm = wire_arm,
};

/* ---- ports ---- */

void
sim_port_init(struct sim_port *p, struct sim *s, uint32_t node, uint32_t engine, bool event_fd)
{
	memset(p, 0, sizeof(*p));
	frames.user = s;
	frame_port_init(&p->frames, &frames, node, engine);
	p->s = s;
	p->event_fd = event_fd;
}

bool
sim_port_readable(const struct sim_port *p)
{
	return p->frames.rx.count || p->frames.handed.count;
}

void
sim_port_fini(struct sim_port *p)
{
	frame_port_fini(&p->frames);
	for (uint32_t i = 0; i < p->tx_count; i++)
		frame_put(p->tx[i]);
	p->tx_count = 0;
}

static void
drop_delivery(struct sim *s, void *arg)
{
	frame_end(arg);
}

void
sim_wire_reset(struct sim *s)
{
	sim_cancel(s, arrive, drop_delivery);
	memset(last_arrival, 0, sizeof(last_arrival));
	memset(arrived, 0, sizeof(arrived));
}
