/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "plane_fake.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SESSIONS 16u
#define CHANNELS 16u
#define ENDS 256u
#define SEGMENTS 8u
#define LISTENERS 64u
#define REGIONS 3u
#define POSTS 64u
#define NODES 64u

struct packet { /* something for a program's ring that has not got in yet */
	struct packet *next;
	uint32_t slots;
	struct weir_slot slot[WEIR_INLINE_SLOTS];
};

struct channel {
	bool used;
	uint32_t engine;
	int bell, bell_theirs;
	bool watches; /* nodes */
	struct weir_ring tx, rx, returns;
	struct weir_channel_head *head;
	struct packet *first, **last;
};

struct session {
	struct fake *f;
	bool used, dead;
	int memory;
	uint8_t *base;
	struct weir_geometry g;
	struct channel channel[CHANNELS];
	uint32_t channels;
	struct weir_blocks blocks;
	uint64_t map[64];
	uint8_t *out; /* blocks that the program holds: how many from here */
	struct weir *w;
	int socket[2];	/* nothing is ever sent on it */
	struct region { /* adopted memory: number i + 1 */
		uint8_t *base;
		uint64_t bytes;
		uint32_t flags;
	} region[REGIONS];
};

struct post { /* memory for message `number` */
	uint64_t number, room;
	weir_place place;
};

struct end {
	bool used, open, user_closed, told_closed, local;
	uint32_t vqpn, desc_index, session, channel, segment, conn_index, listener;
	struct end *peer;
	struct weir_conn_desc *desc;
	uint64_t taken, completed, spent;      /* what its program sent */
	uint64_t delivered, consumed, granted; /* what came for its program; granted to its peer */
	uint32_t window;
	bool want;
	uint32_t want_cost;
	bool notify;
	uint64_t arrived; /* messages */
	struct post post[POSTS];
	uint32_t posts;
	uint64_t post_next;
};

struct segment {
	uint32_t id;
	int memory, bell[2];
	uint8_t *base;
	struct weir_segment_geometry g;
	uint32_t session[2], channel[2], lines;
	bool dropped[2];
};

struct listener {
	bool used;
	uint32_t id, session, channel;
	char service[WEIR_SERVICE_MAX];
};

struct fake {
	struct fake_options o;
	pthread_mutex_t lock;
	struct session session[SESSIONS];
	struct end end[ENDS];
	uint16_t generation[ENDS];
	struct segment segment[SEGMENTS];
	struct listener listener[LISTENERS];
	uint32_t listeners;
	pthread_t thread;
	_Atomic bool stop;
	bool running;
	_Atomic bool held;
	uint8_t way; /* of the last message */
	struct {
		struct weir_node_info is;
		uint64_t changed;
	} node[NODES]; /* in the order of `changed` */
	uint32_t nodes;
	uint64_t node_changes;
	bool synced;
	uint32_t lists; /* asked for */
	const struct weir_found *found;
	uint32_t found_count, found_asked, found_flags, listen_flags;
	_Atomic bool down;
};

static void
broken(const char *what)
{
	fprintf(stderr, "the library breaks a rule: %s\n", what);
	abort();
}

static void
require(bool ok, const char *what)
{
	if (!ok)
		broken(what);
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
			require(weir_ring_refresh(r), "a tail that goes back or ahead");
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

static struct packet *
packet(struct fake *f, const struct end *e, uint8_t op)
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
tell_closed(struct fake *f, struct end *e, uint32_t status)
{
	if (e->told_closed)
		return;
	e->told_closed = true;
	atomic_store(&e->desc->status, status ? status : ECONNRESET);
	packet(f, e, WEIR_OP_CLOSED)->slot[0].status = status;
}

static void
grant(struct end *e)
{
	/* e's program may be sent so much: its peer reads it */
	atomic_store(&e->peer->desc->granted, e->granted);
	atomic_store(&e->peer->desc->window, e->window);
	atomic_store(&e->desc->recv_window, e->window);
}

/* ---- ends ---- */

static struct end *
new_end(struct fake *f, uint32_t session, uint32_t channel)
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
find_end(struct fake *f, uint32_t vqpn)
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

static void
end_peer(struct fake *f, struct end *e, uint32_t status)
{
	if (e->peer)
		tell_closed(f, e->peer, status);
}

/* ---- the engine ---- */

static void
put_done(struct fake *f, struct end *e)
{
	if (e->notify)
		packet(f, e, WEIR_OP_DONE)->slot[0].value = e->completed;
	e->notify = false;
}

uint8_t
fake_way(const struct fake *f)
{
	return f->way;
}

/* A place that must lie in adopted memory. */
static uint8_t *
region_at(struct session *s, weir_place place, uint64_t length, uint32_t use)
{
	struct region *r = &s->region[WEIR_PLACE_REGION(place) - 1];
	uint64_t at = WEIR_PLACE_OFFSET(place);

	require(WEIR_PLACE_REGION(place) <= REGIONS && r->base && r->flags & use,
		"a place in memory that is not adopted for this");
	require(at <= r->bytes && length <= r->bytes - at, "a place beyond the adopted memory");
	return r->base + at;
}

static uint8_t *
source(struct session *s, weir_place place, uint64_t length)
{
	uint64_t at = WEIR_PLACE_OFFSET(place);

	if (WEIR_PLACE_REGION(place))
		return region_at(s, place, length, WEIR_ADOPT_SEND);
	require(at >= weir_arena_send(&s->g) && at + length <= weir_arena_end(&s->g),
		"payload outside the send heap");
	return s->base + at;
}

/* Where the next message of e shall lie: what was posted for it, else blocks. 0: nowhere now. */
static weir_place
find_place(struct session *s, struct end *e, uint32_t length)
{
	uint32_t n = (length + WEIR_BLOCK_SIZE - 1) / WEIR_BLOCK_SIZE, first;

	for (uint32_t i = 0; i < e->posts; i++)
		if (length > WEIR_BLOCK_SIZE && e->post[i].number == e->arrived &&
		    e->post[i].room >= length)
			return e->post[i].place;
	first = n == 1 ? weir_blocks_take(&s->blocks) : weir_blocks_take_run(&s->blocks, n);
	if (first == WEIR_BLOCK_NONE)
		return 0;
	s->out[first] = (uint8_t)n;
	return WEIR_PLACE(0, weir_arena_recv(&s->g) + (uint64_t)first * WEIR_BLOCK_SIZE);
}

static void
posted(struct session *s, struct end *e, const struct weir_slot *slot)
{
	region_at(s, slot->place[0], slot->length, WEIR_ADOPT_RECV);
	require(slot->place[1] >= e->post_next, "memory posted for a message twice");
	e->post_next = slot->place[1] + 1;
	while (e->posts && e->post[0].number < e->arrived)
		memmove(e->post, e->post + 1, --e->posts * sizeof(e->post[0]));
	require(e->posts < POSTS, "too much is posted");
	if (slot->place[1] >= e->arrived)
		e->post[e->posts++] = (struct post){slot->place[1], slot->length, slot->place[0]};
}

static bool
deliver(struct fake *f, struct end *from, const struct weir_slot *s, struct weir_ring *tx)
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
	require(from->spent + cost <= to->granted, "more sent than granted");
	if (s->op == WEIR_OP_PLACE) {
		at = source(here, s->place[0], s->length);
		place = find_place(there, to, s->length);
		if (!place)
			return false;
		memcpy(WEIR_PLACE_REGION(place)
			   ? region_at(there, place, s->length, WEIR_ADOPT_RECV)
			   : there->base + WEIR_PLACE_OFFSET(place),
		       at, s->length);
		/* what is sent may not be used again before it is complete */
		if (!WEIR_PLACE_REGION(s->place[0]))
			memset(at, 0xdd, s->length);
	} else {
		require(!(s->flags & WEIR_SLOT_BULK), "an inline message marked as bulk");
	}
	f->way = s->flags & (WEIR_SLOT_WAYS | WEIR_SLOT_BULK);
	p = packet(f, to, s->op);
	p->slots = slots;
	for (uint32_t i = 1; i < slots; i++)
		p->slot[i] = *weir_ring_at(tx, tx->pos + i);
	memcpy(p->slot[0].data, s->data, sizeof(s->data));
	p->slot[0].length = s->length;
	p->slot[0].order = s->order;
	p->slot[0].flags = bulk ? WEIR_SLOT_BULK : 0;
	if (s->op == WEIR_OP_PLACE)
		p->slot[0].place[0] = place;
	to->arrived++;
	from->spent += cost;
	to->delivered += cost;
	return true;
}

static void
answer_want(struct fake *f, struct end *e)
{
	struct end *to = e->peer;

	if (!e->want || !to)
		return;
	if (to->granted - e->spent < e->want_cost) {
		/* what waits is made room for */
		if (to->delivered != to->consumed)
			return;
		to->granted = e->spent + e->want_cost;
		grant(to);
	}
	e->want = false;
	packet(f, e, WEIR_OP_WRITABLE);
}

static void
consumed(struct fake *f, struct end *e, uint64_t value)
{
	require(value <= e->delivered && value >= e->consumed, "consumed what was not delivered");
	e->consumed = value;
	if (e->window < f->o.window)
		e->window = e->window * 2 < f->o.window ? e->window * 2 : f->o.window;
	if (e->consumed + e->window > e->granted)
		e->granted = e->consumed + e->window;
	if (!e->peer)
		return;
	grant(e);
	answer_want(f, e->peer);
}

static void
release(struct session *s, const struct weir_slot *slot)
{
	require(slot->length >= 1 && slot->length <= 6, "count of places released");
	for (uint32_t i = 0; i < slot->length; i++) {
		uint64_t at = WEIR_PLACE_OFFSET(slot->place[i]) - weir_arena_recv(&s->g);
		uint32_t b = (uint32_t)(at / WEIR_BLOCK_SIZE);

		require(at % WEIR_BLOCK_SIZE == 0 && b < s->g.recv_blocks && s->out[b],
			"released a place that was not out");
		weir_blocks_give(&s->blocks, b, s->out[b]);
		s->out[b] = 0;
	}
}

static bool
take(struct fake *f, struct session *s, struct weir_ring *tx, const struct weir_slot *in)
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
	require(&f->session[e->session] == s, "a connection of somebody else");
	require(!e->user_closed, "an op after CLOSE");
	if (message) {
		require(!e->local && e->open, "a message on a local or unopened connection");
		require(slot.order == (uint16_t)e->taken, "order");
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
		require(slot.order == (uint16_t)e->taken, "order of CLOSE");
		e->user_closed = true;
		put_done(f, e);
		end_peer(f, e, 0);
		tell_closed(f, e, 0);
		maybe_free(e);
		break;
	case WEIR_OP_CONSUMED:
		consumed(f, e, slot.value);
		break;
	case WEIR_OP_POST:
		posted(s, e, &slot);
		break;
	case WEIR_OP_WANT:
		e->want = true;
		e->want_cost = slot.length;
		answer_want(f, e);
		break;
	default:
		broken("an unknown op");
	}
	return true;
}

static unsigned
channel_turn(struct fake *f, struct session *s, struct channel *ch)
{
	struct weir_slot *slot;
	unsigned n = 0;

	for (; !f->held && (slot = weir_ring_peek(&ch->returns)); n++) {
		require(slot->op == WEIR_OP_RELEASE || slot->op == WEIR_OP_CONSUMED ||
			    slot->op == WEIR_OP_POST,
			"an op that gives nothing back");
		take(f, s, NULL, slot);
		weir_ring_pop(&ch->returns, 1);
	}
	while (!f->held && (slot = weir_ring_peek(&ch->tx))) {
		uint32_t slots = slot->op == WEIR_OP_INLINE ? weir_slots_inline(slot->length) : 1;

		require(slots <= WEIR_INLINE_SLOTS, "length of an inline message");
		require(slot->op != WEIR_OP_RELEASE && slot->op != WEIR_OP_CONSUMED,
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

static void
push_all(struct fake *f)
{
	for (uint32_t i = 0; i < SESSIONS; i++)
		for (uint32_t k = 0; f->session[i].used && k < CHANNELS; k++)
			if (f->session[i].channel[k].used)
				push_packets(&f->session[i].channel[k]);
}

static unsigned
turn(struct fake *f)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < SESSIONS; i++)
		for (uint32_t k = 0; f->session[i].used && !f->session[i].dead && k < CHANNELS; k++)
			if (f->session[i].channel[k].used)
				n += channel_turn(f, &f->session[i], &f->session[i].channel[k]);
	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && !f->held)
			put_done(f, &f->end[i]);
	push_all(f);
	return n;
}

unsigned
fake_turn(struct fake *f)
{
	unsigned n;

	pthread_mutex_lock(&f->lock);
	n = turn(f);
	pthread_mutex_unlock(&f->lock);
	return n;
}

void
fake_settle(struct fake *f)
{
	while (fake_turn(f))
		;
}

static void *
run(void *arg)
{
	struct fake *f = arg;

	while (!atomic_load(&f->stop)) {
		fake_turn(f);
		sched_yield();
	}
	return NULL;
}

void
fake_run(struct fake *f)
{
	atomic_store(&f->stop, false);
	f->running = !pthread_create(&f->thread, NULL, run, f);
}

void
fake_stop(struct fake *f)
{
	if (f->running) {
		atomic_store(&f->stop, true);
		pthread_join(f->thread, NULL);
	}
	f->running = false;
}

/* ---- requests ---- */

static int
memory(const char *name, uint64_t bytes, uint8_t **base)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	require(fd >= 0 && !ftruncate(fd, (off_t)bytes), "no memory for the fake");
	*base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	require(*base != MAP_FAILED, "no mapping for the fake");
	return fd;
}

static void
hello(struct fake *f, struct session *s, struct weir_session_msg *r, int fds[2])
{
	struct weir_geometry *g = &s->g;

	*g = (struct weir_geometry){.magic = WEIR_ARENA_MAGIC,
				    .version = WEIR_LAYOUT_VERSION,
				    .connections = ENDS,
				    .channels = f->o.channels,
				    .ring_slots = f->o.ring_slots,
				    .recv_blocks = f->o.recv_blocks,
				    .engines = f->o.engines,
				    .send_blocks = f->o.send_blocks};
	g->bytes = WEIR_ALIGN_UP(weir_arena_end(g), 4096);
	s->memory = memory("arena", g->bytes, &s->base);
	weir_blocks_init(&s->blocks, s->map, g->recv_blocks);
	s->out = calloc(g->recv_blocks, 1);
	fds[0] = dup(s->memory);
	r->type = WEIR_MSG_WELCOME;
	r->welcome.version = f->o.old ? WEIR_SESSION_WAIT : WEIR_SESSION_VERSION_MAX;
	r->welcome.flags = f->o.fence ? 0 : WEIR_WELCOME_MEMBARRIER;
	r->welcome.geometry = *g;
}

static void
do_adopt(struct session *s, const struct weir_session_msg *m, struct weir_session_msg *r,
	 int fds[2])
{
	uint32_t i = 0;

	while (i < REGIONS && s->region[i].base)
		i++;
	if (i == REGIONS) {
		r->type = WEIR_MSG_REFUSED;
		r->refused.code = EMFILE;
		return;
	}
	fds[0] = memory("region", m->adopt.bytes, &s->region[i].base);
	s->region[i].bytes = m->adopt.bytes;
	s->region[i].flags = m->adopt.flags;
	r->type = WEIR_MSG_REGION;
	r->region.region = i + 1;
	r->region.bytes = m->adopt.bytes;
	r->region.page = 4096;
}

static void
do_disown(struct session *s, const struct weir_session_msg *m)
{
	struct region *g = &s->region[m->region.region - 1];

	require(m->region.region - 1 < REGIONS && g->base, "a region that there isn't");
	munmap(g->base, g->bytes);
	g->base = NULL;
}

static void
add_channel(struct session *s, const struct weir_session_msg *m, struct weir_session_msg *r,
	    int fds[2])
{
	struct channel *ch = &s->channel[s->channels];
	struct weir_slot *slots;
	int pair[2];

	if (s->channels == s->g.channels) {
		r->type = WEIR_MSG_REFUSED;
		r->refused.code = EMFILE;
		return;
	}
	require(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
		"socketpair");
	ch->used = true;
	ch->engine = m->add_channel.engine == UINT32_MAX ? 0 : m->add_channel.engine;
	require(ch->engine < s->g.engines, "an engine that there isn't");
	ch->bell = pair[0];
	fds[0] = pair[1];
	ch->last = &ch->first;
	ch->head = (struct weir_channel_head *)(s->base + weir_arena_channel(&s->g, s->channels));
	slots = (struct weir_slot *)(ch->head + 1);
	weir_ring_init(&ch->tx, slots, s->g.ring_slots, &ch->head->tx_tail, false);
	weir_ring_init(&ch->rx, slots + s->g.ring_slots, s->g.ring_slots, &ch->head->rx_tail, true);
	weir_ring_init(&ch->returns, slots + 2 * s->g.ring_slots, WEIR_RETURN_SLOTS,
		       &ch->head->return_tail, false);
	r->type = WEIR_MSG_CHANNEL;
	r->channel.channel = s->channels++;
	r->channel.engine = ch->engine;
}

static void
do_listen(struct fake *f, uint32_t session, const struct weir_session_msg *m,
	  struct weir_session_msg *r)
{
	struct listener *l = &f->listener[f->listeners];

	for (uint32_t i = 0; i < f->listeners; i++)
		if (f->listener[i].used && !strcmp(f->listener[i].service, m->listen.service) &&
		    (!f->o.nodes || f->listener[i].session == session)) {
			r->type = WEIR_MSG_REFUSED;
			r->refused.code = EADDRINUSE;
			return;
		}
	require(f->listeners < LISTENERS, "listeners");
	*l = (struct listener){true, 256u + f->listeners++, session, m->listen.channel[0]};
	memcpy(l->service, m->listen.service, sizeof(l->service));
	f->listen_flags = m->listen.flags;
	r->type = WEIR_MSG_LISTENING;
	r->listening.listener = l->id;
}

static void
do_find(struct fake *f, const struct weir_session_msg *m, struct weir_session_msg *r)
{
	uint32_t from = m->find.from;

	r->type = WEIR_MSG_FOUND;
	f->found_asked++;
	f->found_flags = m->find.flags;
	for (; from < f->found_count && r->found.count < WEIR_FOUND_MAX; from++)
		r->found.node[r->found.count++] = f->found[from];
	if (from < f->found_count && !m->find.flags)
		r->found.next = from;
}

void
fake_found(struct fake *f, const struct weir_found *list, uint32_t n)
{
	f->found = list;
	f->found_count = n;
	f->found_asked = 0;
}

uint32_t
fake_found_asked(const struct fake *f, uint32_t *flags)
{
	*flags = f->found_flags;
	return f->found_asked;
}

uint32_t
fake_listen_flags(const struct fake *f)
{
	return f->listen_flags;
}

static struct segment *
get_segment(struct fake *f, uint32_t s0, uint32_t c0, uint32_t s1, uint32_t c1)
{
	struct segment *g = NULL;
	uint32_t i;

	for (i = 0; i < SEGMENTS; i++) {
		g = &f->segment[i];
		if (g->id && !g->dropped[0] && !g->dropped[1] && g->session[0] == s0 &&
		    g->session[1] == s1 && g->channel[0] == c0 && g->channel[1] == c1)
			return g;
	}
	for (i = 0; i < SEGMENTS && f->segment[i].id; i++)
		;
	require(i < SEGMENTS, "segments");
	g = &f->segment[i];
	*g = (struct segment){.id = i + 100, .session = {s0, s1}, .channel = {c0, c1}};
	g->g = (struct weir_segment_geometry){.magic = WEIR_SEGMENT_MAGIC,
					      .version = WEIR_LAYOUT_VERSION,
					      .ring_slots = f->o.segment_slots,
					      .connections = 32,
					      .area_bytes = f->o.area_bytes};
	g->g.bytes = WEIR_ALIGN_UP(weir_segment_end(&g->g), 4096);
	g->memory = memory("segment", g->g.bytes, &g->base);
	require(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, g->bell),
		"bell");
	return g;
}

static void
tell_opened(struct fake *f, struct end *x)
{
	struct end *y = x->peer;
	struct packet *p;

	if (!y)
		return;
	x->open = y->open = true;
	p = packet(f, y, WEIR_OP_ACCEPTED);
	p->slot[0].length = y->desc_index;
	p->slot[0].accept =
	    (struct weir_slot_accept){.listener = y->listener,
				      .peer_node = f->o.nodes ? (uint16_t)FAKE_NODE(x->session) : 0,
				      .segment = y->segment,
				      .mtu = f->o.mtu,
				      .peer_vqpn = x->vqpn,
				      .conn_index = y->conn_index};
	p = packet(f, x, WEIR_OP_OPENED);
	p->slot[0].extra = f->o.nodes ? FAKE_NODE(y->session) : 0;
	p->slot[0].length = f->o.mtu;
	if (!x->local) {
		grant(x);
		grant(y);
	}
}

/* False: the channel leads to an engine whose port does not reach the peer. */
static bool
reaches(const struct fake *f, uint32_t session, const struct weir_session_msg *m,
	struct weir_session_msg *r)
{
	uint32_t engine = f->session[session].channel[m->connect.channel].engine;

	r->connecting.engine = f->o.fickle ? (engine + 1) % f->o.engines : f->o.reaches;
	return engine == r->connecting.engine;
}

static void
do_connect(struct fake *f, uint32_t session, const struct weir_session_msg *m,
	   struct weir_session_msg *r)
{
	struct listener *l = NULL;
	struct end *x, *y;

	for (uint32_t i = 0; i < f->listeners; i++)
		if (f->listener[i].used &&
		    !strcmp(f->listener[i].service, m->connect.address.service) &&
		    (!f->o.nodes || m->connect.address.id == FAKE_NODE(f->listener[i].session)))
			l = &f->listener[i];
	if (!l && m->connect.address.id == 0) {
		r->type = WEIR_MSG_REFUSED;
		r->refused.code = ECONNREFUSED;
		snprintf(r->refused.reason, sizeof(r->refused.reason), "nobody listens; start it");
		return;
	}
	r->type = WEIR_MSG_CONNECTING;
	if (m->connect.address.id && !reaches(f, session, m, r))
		return;
	x = new_end(f, session, m->connect.channel);
	r->connecting.vqpn = x->vqpn;
	r->connecting.desc = x->desc_index;
	if (!l) { /* remote ends are refused later */
		packet(f, x, WEIR_OP_OPENED)->slot[0].status = ECONNREFUSED;
		x->used = false;
		return;
	}
	y = new_end(f, l->session, l->channel);
	y->listener = l->id;
	x->peer = y;
	y->peer = x;
	if (m->connect.address.id == 0) {
		struct segment *g =
		    get_segment(f, session, m->connect.channel, l->session, l->channel);

		x->local = y->local = true;
		x->segment = y->segment = g->id;
		x->conn_index = y->conn_index = g->lines++;
		require(g->lines <= 32, "lines of a segment");
		r->connecting.segment = g->id;
		r->connecting.conn_index = x->conn_index;
		r->connecting.peer_vqpn = y->vqpn;
	}
	if (!f->o.slow_open)
		tell_opened(f, x);
}

static void
map_segment(struct fake *f, uint32_t session, const struct weir_session_msg *m,
	    struct weir_session_msg *r, int fds[2])
{
	struct segment *g = &f->segment[m->segment.segment - 100];

	require(m->segment.segment - 100 < SEGMENTS && g->id == m->segment.segment &&
		    m->segment.side < 2 && g->session[m->segment.side] == session,
		"a segment of somebody else");
	fds[0] = dup(g->memory);
	fds[1] = dup(g->bell[m->segment.side]);
	r->type = WEIR_MSG_SEGMENT_MAP;
	r->segment_map.segment = g->id;
	r->segment_map.side = m->segment.side;
	r->segment_map.flags = f->o.fence ? 0 : WEIR_WELCOME_MEMBARRIER;
	r->segment_map.geometry = g->g;
}

static void
drop_segment(struct fake *f, const struct weir_session_msg *m, struct weir_session_msg *r)
{
	struct segment *g = &f->segment[m->segment.segment - 100];

	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && f->end[i].segment == g->id) {
			r->type = WEIR_MSG_REFUSED;
			r->refused.code = EBUSY;
			return;
		}
	g->dropped[m->segment.side] = true;
}

static void
do_nodes(struct fake *f, struct session *s, const struct weir_session_msg *m,
	 struct weir_session_msg *r)
{
	uint32_t i = 0;

	require(m->nodes.channel == UINT32_MAX || m->nodes.channel < s->channels,
		"a channel that there isn't");
	if (m->nodes.channel != UINT32_MAX)
		s->channel[m->nodes.channel].watches = m->nodes.watch;
	f->lists++;
	r->type = WEIR_MSG_NODE_LIST;
	while (i < f->nodes && f->node[i].changed <= m->nodes.since)
		i++;
	for (; i < f->nodes && r->node_list.count < WEIR_NODES_A_MSG; i++) {
		r->node_list.node[r->node_list.count++] = f->node[i].is;
		r->node_list.upto = f->node[i].changed;
	}
	r->node_list.more = i < f->nodes;
	r->node_list.whole = i == f->nodes && f->synced;
	if (i == f->nodes)
		r->node_list.upto = f->node_changes;
}

static int
request(void *user, const struct weir_session_msg *m, struct weir_session_msg *r, int fds[2])
{
	struct session *s = user;
	struct fake *f = s->f;
	uint32_t index = (uint32_t)(s - f->session);

	require(!weir_session_check(m, m->length), "a malformed request");
	if (m->type == WEIR_MSG_LISTEN)
		usleep(f->o.listen_ms * 1000);
	memset(r, 0, sizeof(*r));
	r->type = WEIR_MSG_OK;
	pthread_mutex_lock(&f->lock);
	switch (m->type) {
	case WEIR_MSG_HELLO:
		hello(f, s, r, fds);
		break;
	case WEIR_MSG_ADD_CHANNEL:
		add_channel(s, m, r, fds);
		break;
	case WEIR_MSG_LISTEN:
		do_listen(f, index, m, r);
		break;
	case WEIR_MSG_UNLISTEN:
		f->listener[m->listening.listener - 256].used = false;
		break;
	case WEIR_MSG_CONNECT:
		do_connect(f, index, m, r);
		if (f->o.prompt)
			push_all(f);
		break;
	case WEIR_MSG_SEGMENT:
		map_segment(f, index, m, r, fds);
		break;
	case WEIR_MSG_DROP_SEGMENT:
		drop_segment(f, m, r);
		break;
	case WEIR_MSG_ADOPT:
		do_adopt(s, m, r, fds);
		break;
	case WEIR_MSG_DISOWN:
		do_disown(s, m);
		break;
	case WEIR_MSG_NODES:
		do_nodes(f, s, m, r);
		break;
	case WEIR_MSG_FIND:
		do_find(f, m, r);
		break;
	case WEIR_MSG_BYE:
		break;
	default:
		broken("an unknown request");
	}
	pthread_mutex_unlock(&f->lock);
	return 0;
}

static void
close_session(void *user)
{
	struct session *s = user;

	if (s->socket[0] >= 0)
		close(s->socket[0]);
}

/* ---- for tests ---- */

struct fake *
fake_create(const struct fake_options *o)
{
	struct fake *f = calloc(1, sizeof(*f));

	if (o)
		f->o = *o;
	f->o.ring_slots = f->o.ring_slots ? f->o.ring_slots : 256;
	f->o.recv_blocks = f->o.recv_blocks ? f->o.recv_blocks : 64;
	f->o.send_blocks = f->o.send_blocks ? f->o.send_blocks : 64;
	f->o.engines = f->o.engines ? f->o.engines : 1;
	f->o.channels = f->o.channels ? f->o.channels : 8;
	f->o.window = f->o.window ? f->o.window : 65536;
	f->o.first = f->o.first ? f->o.first : 512;
	f->o.area_bytes = f->o.area_bytes ? f->o.area_bytes : 65536;
	f->o.segment_slots = f->o.segment_slots ? f->o.segment_slots : 256;
	pthread_mutex_init(&f->lock, NULL);
	return f;
}

static void
free_session(struct session *s)
{
	for (uint32_t k = 0; k < CHANNELS; k++) {
		struct packet *p;

		while ((p = s->channel[k].first)) {
			s->channel[k].first = p->next;
			free(p);
		}
		if (s->channel[k].used)
			close(s->channel[k].bell);
	}
	for (uint32_t k = 0; k < REGIONS; k++)
		if (s->region[k].base)
			munmap(s->region[k].base, s->region[k].bytes);
	munmap(s->base, s->g.bytes);
	close(s->memory);
	free(s->out);
	if (s->socket[1] >= 0)
		close(s->socket[1]);
}

void
fake_destroy(struct fake *f)
{
	fake_stop(f);
	for (uint32_t i = 0; i < SESSIONS; i++)
		if (f->session[i].used)
			free_session(&f->session[i]);
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		struct segment *g = &f->segment[i];

		if (!g->id)
			continue;
		munmap(g->base, g->g.bytes);
		close(g->memory);
		close(g->bell[0]);
		close(g->bell[1]);
	}
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static int reopen(void *user, const char *instance, struct weir_transport *t);

static struct session *
new_session(struct fake *f, struct weir_transport *t)
{
	struct session *s;
	uint32_t i = 0;

	while (i < SESSIONS && f->session[i].used)
		i++;
	require(i < SESSIONS, "sessions of the fake");
	s = &f->session[i];
	s->used = true;
	s->socket[0] = s->socket[1] = -1;
	if (f->o.watched)
		require(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->socket),
			"socketpair");
	s->f = f;
	*t = (struct weir_transport){.request = request,
				     .close = close_session,
				     .reopen = reopen,
				     .user = s,
				     .fd = s->socket[0]};
	return s;
}

static int
reopen(void *user, const char *instance, struct weir_transport *t)
{
	struct fake *f = ((struct session *)user)->f;

	(void)instance;
	if (f->down)
		return -ENOENT;
	new_session(f, t);
	return 0;
}

struct weir *
fake_attach_with(struct fake *f, const struct weir_options *o)
{
	struct weir_transport t;
	struct session *s = new_session(f, &t);
	struct weir *w;

	assert_int_equal(weir_attach_with(o, &t, &w), 0);
	s->w = w;
	return w;
}

struct weir *
fake_attach(struct fake *f)
{
	return fake_attach_with(f, NULL);
}

void
fake_kill(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
	f->down = true;
	f->nodes = 0;
	f->node_changes = 0;
	f->synced = false;
	for (uint32_t i = 0; i < LISTENERS; i++)
		f->listener[i].used = false;
	for (uint32_t i = 0; i < ENDS; i++)
		f->end[i].used = false;
	for (uint32_t i = 0; i < SESSIONS; i++) {
		f->session[i].dead = true;
		if (f->session[i].used && f->session[i].socket[1] >= 0)
			close(f->session[i].socket[1]);
		f->session[i].socket[1] = -1;
	}
	pthread_mutex_unlock(&f->lock);
}

void
fake_come_back(struct fake *f)
{
	for (uint32_t i = 0; i < SESSIONS; i++)
		if (!f->session[i].used)
			f->session[i].dead = false;
	f->down = false;
}

static struct session *
session_of(struct fake *f, struct weir *w)
{
	for (uint32_t i = 0; i < SESSIONS; i++)
		if (f->session[i].used && f->session[i].w == w)
			return &f->session[i];
	fail_msg("no such session");
	return NULL;
}

void
fake_hold(struct fake *f, bool held)
{
	f->held = held;
}

void
fake_open(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && !f->end[i].open && !f->end[i].listener)
			tell_opened(f, &f->end[i]);
	pthread_mutex_unlock(&f->lock);
}

void
fake_die(struct fake *f, struct weir *w)
{
	struct session *s = session_of(f, w);

	pthread_mutex_lock(&f->lock);
	s->dead = true;
	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && &f->session[f->end[i].session] == s)
			end_peer(f, &f->end[i], ECONNRESET);
	pthread_mutex_unlock(&f->lock);
}

void
fake_cut(struct fake *f, struct weir *w)
{
	struct session *s = session_of(f, w);

	close(s->socket[1]);
	s->socket[1] = -1;
}

uint32_t
fake_recv_blocks_free(struct fake *f, struct weir *w)
{
	struct session *s = session_of(f, w);
	uint32_t n;

	pthread_mutex_lock(&f->lock);
	n = s->blocks.free;
	pthread_mutex_unlock(&f->lock);
	return n;
}

uint32_t
fake_regions(struct fake *f, struct weir *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < REGIONS; i++)
		n += session_of(f, w)->region[i].base != NULL;
	return n;
}

uint32_t
fake_open_ends(struct fake *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ENDS; i++)
		n += f->end[i].used;
	return n;
}

uint8_t *
fake_segment(struct fake *f, struct weir_segment_geometry *g)
{
	*g = f->segment[0].g;
	return f->segment[0].base;
}

uint32_t
fake_segments(struct fake *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < SEGMENTS; i++)
		n += f->segment[i].id && !(f->segment[i].dropped[0] && f->segment[i].dropped[1]);
	return n;
}

void
fake_node_event(struct fake *f, uint16_t node, uint32_t status)
{
	struct end any = {0};
	struct packet *p;

	pthread_mutex_lock(&f->lock);
	p = packet(f, &any, WEIR_OP_NODE);
	p->slot[0].value = node;
	p->slot[0].status = status;
	pthread_mutex_unlock(&f->lock);
}

static void
publish_nodes(struct fake *f)
{
	for (uint32_t i = 0; i < SESSIONS; i++) {
		struct session *s = &f->session[i];

		if (!s->used || s->dead || !s->base)
			continue;
		atomic_store(&((struct weir_arena_head *)s->base)->nodes, f->node_changes);
		for (uint32_t k = 0; k < s->channels; k++)
			if (s->channel[k].watches)
				send(s->channel[k].bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

void
fake_node(struct fake *f, const struct weir_node_info *is)
{
	uint32_t i = 0;

	pthread_mutex_lock(&f->lock);
	while (i < f->nodes && f->node[i].is.id != is->id)
		i++;
	require(i < NODES, "nodes of the fake");
	if (i < f->nodes) /* the latest change comes last */
		memmove(&f->node[i], &f->node[i + 1], (--f->nodes - i) * sizeof(f->node[0]));
	f->node[f->nodes].is = *is;
	f->node[f->nodes++].changed = ++f->node_changes;
	publish_nodes(f);
	pthread_mutex_unlock(&f->lock);
}

void
fake_synced(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
	f->synced = true;
	f->node_changes++;
	publish_nodes(f);
	pthread_mutex_unlock(&f->lock);
}

uint32_t
fake_lists(const struct fake *f)
{
	return f->lists;
}
