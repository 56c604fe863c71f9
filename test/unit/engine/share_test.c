/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares of a link: turns by weight, whatever programs send, and rates. */
#include "worlds/engine_world.h"

#include "engine/batch.h"
#include "engine/channel.h"
#include "base/list.h"
#include "engine/rndv.h"
#include "engine/session.h"
#include "engine/state.h"
#include "weir/memory.h"
#include "weir/type.h"

#define STEP_NS 500u

/* A program that always has something to send, by some connections, and where it goes. */
struct load {
	struct program *p, *to;
	struct pconn *from[CONNS], *at[CONNS];
	unsigned conns, turn;
	uint32_t length;
	uint64_t before; /* bytes that had arrived when the measurement began */
};

static struct load
load_open(struct world *w, unsigned node, unsigned conns, unsigned channels, uint32_t length)
{
	struct load l = {.p = program_open(w, node, channels),
			 .to = program_open(w, !node, 1),
			 .conns = conns,
			 .length = length};

	for (unsigned i = 0; i < conns; i++) {
		world_connect(l.p, l.to, &l.from[i], &l.at[i]);
		l.from[i]->channel = i % channels;
	}
	return l;
}

/* No more under way than there is memory for. */
static bool
has_memory(const struct pconn *c, uint32_t length)
{
	return length <= WEIR_BLOCK_SIZE || c->sent - pconn_completed(c) < RTS_MAX;
}

static void
push(struct load *l)
{
	for (unsigned i = 0; i < l->conns; i++) {
		struct pconn *c = l->from[(i + l->turn) % l->conns];

		for (unsigned k = 0; k < 64 && has_memory(c, l->length); k++)
			if (!pconn_send(c, l->length, 0))
				break;
	}
	l->turn++;
}

static uint64_t
arrived(const struct load *l)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < l->conns; i++)
		n += l->at[i]->received * l->length;
	return n - l->before;
}

/* All push for warm + steps turns; arrivals count from turn `warm` on. */
static void
run(struct world *w, unsigned warm, unsigned steps, struct load **loads)
{
	for (unsigned i = 0; i < warm + steps; i++) {
		for (struct load **l = loads; *l; l++)
			push(*l);
		for (struct load **l = loads; *l && i == warm; l++) {
			(*l)->before = 0;
			(*l)->before = arrived(*l);
		}
		world_step(w);
	}
}
#define RUN(w, warm, steps, ...) run(w, warm, steps, (struct load *[]){__VA_ARGS__, NULL})

/* Everything that was sent arrives. */
static void
drain(struct world *w, struct load **loads)
{
	for (struct load **l = loads; *l; l++)
		for (unsigned i = 0; i < (*l)->conns; i++)
			STEP_MOST(w, 400000, (*l)->at[i]->received < (*l)->from[i]->sent);
	world_run(w, 50);
	for (struct load **l = loads; *l; l++)
		for (unsigned i = 0; i < (*l)->conns; i++)
			assert_complete((*l)->from[i], (*l)->at[i]);
}
#define DRAIN(w, ...) drain(w, (struct load *[]){__VA_ARGS__, NULL})

/* a has `a_part` where b has `b_part`, within `percent`. */
static void
in_ratio(uint64_t a, uint64_t a_part, uint64_t b, uint64_t b_part, unsigned percent)
{
	double is = (double)a / (double)b * (double)b_part / (double)a_part;

	if (is < 1 - percent / 100.0 || is > 1 + percent / 100.0)
		fail_msg("%lu and %lu are not as %lu to %lu", (unsigned long)a, (unsigned long)b,
			 (unsigned long)a_part, (unsigned long)b_part);
}

/* The ring is what is scarce: sixty connections get no more than one. */
static void
test_many_against_one(void **state)
{
	struct world *w =
	    WORLD(.ring_lines = 256, .delay_ns = 1500, .recv_blocks = 4096, .window = 2 << 20);
	struct load many = load_open(w, 0, 60, 3, 400), one = load_open(w, 0, 1, 1, 400);

	RUN(w, 2000, 6000, &many, &one);
	in_ratio(arrived(&many), 1, arrived(&one), 1, 5);
	DRAIN(w, &many, &one);
}

/* By lines, not by messages. */
static void
test_large_against_small(void **state)
{
	struct world *w = WORLD(.ring_lines = 512, .delay_ns = 1500, .recv_blocks = 4096);
	struct load large = load_open(w, 0, 8, 1, 8192), small = load_open(w, 0, 4, 1, 48);

	RUN(w, 2000, 6000, &large, &small);
	in_ratio(arrived(&large) / 8192 * 129, 1, arrived(&small) / 48, 1, 10);
	DRAIN(w, &large, &small);
}

static void
test_weights(void **state)
{
	struct world *w = WORLD(.ring_lines = 512, .delay_ns = 1500, .recv_blocks = 4096);
	struct load a = load_open(w, 0, 9, 1, 400), b = load_open(w, 0, 3, 2, 400);
	struct load c = load_open(w, 0, 5, 3, 400);

	program_share(b.p, 3 * ENGINE_WEIGHT, 0, 0);
	program_share(c.p, 1, 0, 0); /* less a round than a message may have */
	RUN(w, 2000, 12000, &a, &b, &c);
	in_ratio(arrived(&b), 3, arrived(&a), 1, 5);
	in_ratio(arrived(&a), 10, arrived(&c), 1, 10);
	DRAIN(w, &a, &b, &c);
}

/* The ring has room for all, the frame of a pass hasn't: messages never wait in the engine. */
static void
test_frames_are_shared(void **state)
{
	struct world *w = WORLD(.ring_lines = 1 << 16, .ring_slots = 4096, .recv_blocks = 8192,
				.recv_wrs = 1024, .window = 2 << 20);
	struct load many = load_open(w, 0, 45, 3, 48), one = load_open(w, 0, 8, 1, 48);

	RUN(w, 600, 1500, &many, &one);
	in_ratio(arrived(&many), 1, arrived(&one), 1, 10);
	assert_true(arrived(&one) / 48 > 1500 * 200);
	/* alone, neither is held back */
	RUN(w, 10, 500, &many);
	assert_true(arrived(&many) / 48 > 500 * 350);
	DRAIN(w, &many, &one);
}

/* The other program falls silent while this one saves up lines of its part for a large message. */
static void
test_part_of_a_silent_frame(void **state)
{
	struct world *w = WORLD(.ring_lines = 1 << 16, .ring_slots = 4096, .recv_blocks = 8192,
				.recv_wrs = 1024, .window = 2 << 20);
	struct load heavy = load_open(w, 0, 45, 3, 48), light = load_open(w, 0, 1, 1, 8192);

	program_share(heavy.p, 1000, 0, 0);
	program_share(light.p, 1, 0, 0);
	RUN(w, 0, 600, &light); /* its window grows */
	RUN(w, 0, 600, &heavy);
	DRAIN(w, &heavy, &light);
	world_run(w, 1000); /* nothing else makes the link send */
	push(&heavy);
	pconn_sends(light.from[0], 8192, 0, 6);
	DRAIN(w, &heavy, &light);
}

static void
test_bulk_is_shared(void **state)
{
	struct world *w = WORLD(.delay_ns = 3000, .recv_blocks = 16384);
	struct load many = load_open(w, 0, 6, 1, 300000);
	struct load one = load_open(w, 0, 1, 1, 300000);

	program_share(one.p, 2 * ENGINE_WEIGHT, 0, 0);
	RUN(w, 500, 3000, &many, &one);
	in_ratio(arrived(&one), 2, arrived(&many), 1, 15);
	DRAIN(w, &many, &one);
}

/* A rate holds for every size; programs without one don't notice. */
static void
test_rate(void **state)
{
	static const uint32_t sizes[] = {64, 8192, 200000};

	for (unsigned i = 0; i < 3; i++) {
		struct world *w = WORLD(.delay_ns = 1000, .recv_blocks = 8192);
		struct load slow = load_open(w, 0, 4, 2, sizes[i]);
		struct load free_one = load_open(w, 0, 1, 1, 1000);
		uint64_t want = 400000000ull * 20000 * STEP_NS / 1000000000, alone;

		RUN(w, 500, 1000, &free_one);
		alone = arrived(&free_one) * 20;
		program_share(slow.p, ENGINE_WEIGHT, 400000000, 100000);
		RUN(w, 2000, 20000, &slow, &free_one);
		in_ratio(arrived(&slow), 100, want, 100, 5);
		in_ratio(arrived(&free_one), 100, alone, 100, 5);
		assert_true(atomic_load(&node_counters(w, 0)->rate_limited) > 0);
		program_share(slow.p, ENGINE_WEIGHT, 0, 0);
		DRAIN(w, &slow, &free_one);
	}
}

/* Two engines take from one bucket. */
static void
test_rate_of_two_engines(void **state)
{
	struct world *w = WORLD(.delay_ns = 1000, .recv_blocks = 4096);
	struct load a = load_open(w, 0, 4, 1, 1000), b = load_open(w, 1, 4, 1, 3000);

	b.p->view.share = &a.p->share;
	w->node[1].engine->sessions[b.p->id].share = &a.p->share;
	program_share(a.p, ENGINE_WEIGHT, 400000000, 100000);
	program_command(
	    b.p, &(struct engine_command){.type = ENGINE_SESSION_SHARE, .session = &b.p->view});
	RUN(w, 2000, 20000, &a, &b);
	in_ratio(arrived(&a) + arrived(&b), 100, 400000000ull * 20000 * STEP_NS / 1000000000, 100,
		 5);
	assert_true(arrived(&a) && arrived(&b));
}

/* The rate of a user holds for two programs together, and that of each program as well. */
static void
test_rate_of_a_user(void **state)
{
	struct world *w = WORLD(.delay_ns = 1000, .recv_blocks = 8192);
	struct load a = load_open(w, 0, 4, 2, 1000), b = load_open(w, 0, 4, 1, 6000);
	struct engine_share user = {.rate = 400000000, .burst_ns = 100000};
	uint64_t of_user = 400000000ull * 20000 * STEP_NS / 1000000000;

	a.p->share.above = b.p->share.above = &user;
	program_share(a.p, ENGINE_WEIGHT, 0, 0);
	program_share(b.p, ENGINE_WEIGHT, 0, 0);
	RUN(w, 2000, 20000, &a, &b);
	in_ratio(arrived(&a) + arrived(&b), 100, of_user, 100, 5);
	/* neither starves the other */
	assert_true(arrived(&a) > of_user / 5 && arrived(&b) > of_user / 5);
	program_share(b.p, ENGINE_WEIGHT, 100000000, 100000);
	RUN(w, 2000, 20000, &a, &b);
	in_ratio(arrived(&b), 100, of_user / 4, 100, 5);
	in_ratio(arrived(&a) + arrived(&b), 100, of_user, 100, 5);
	atomic_store(&user.rate, 0);
	program_share(a.p, ENGINE_WEIGHT, 0, 0);
	RUN(w, 2000, 20000, &a, &b);
	assert_true(arrived(&a) > of_user);
	DRAIN(w, &a, &b);
}

/* Unused rate may be used later, up to the burst. */
static void
test_burst(void **state)
{
	struct world *w = WORLD(.recv_blocks = 4096);
	struct load l = load_open(w, 0, 4, 1, 1000);

	RUN(w, 0, 500, &l); /* windows grow */
	DRAIN(w, &l);
	program_share(l.p, ENGINE_WEIGHT, 1000000, 500000000);
	w->now += 10000000000;
	RUN(w, 0, 3000, &l);
	assert_in_range(arrived(&l), 490000, 530000);
}

/* An engine that sleeps wakes when something may leave. */
static void
test_rate_wakes(void **state)
{
	struct world *w = WORLD();
	struct load l = load_open(w, 0, 1, 1, 400);
	struct engine *e = w->node[0].engine;

	program_share(l.p, ENGINE_WEIGHT, 10000, 0);
	assert_true(pconn_send(l.from[0], 400, 0));
	assert_receives(l.at[0], 100, 1);
	assert_true(pconn_send(l.from[0], 400, 0));
	assert_receives(l.at[0], 100, 1);
	assert_true(engine_sleep_prepare(e, w->now) <= w->now + 45000000);
	assert_false(engine_sleep_check(e));
	engine_sleep_cancel(e);
	w->now += 45000000;
	assert_receives(l.at[0], 100, 2);
}

/* Messages wait for their rate while the link ends, or the program. */
static void
test_limited_ends(void **state)
{
	struct world *w = WORLD(.recv_blocks = 4096);
	struct load a = load_open(w, 0, 4, 1, 4000), b = load_open(w, 0, 2, 1, 100000);

	program_share(a.p, ENGINE_WEIGHT, 1000, 1000);
	program_share(b.p, ENGINE_WEIGHT, 1000, 1000);
	RUN(w, 0, 500, &a, &b);
	assert_false(list_empty(&w->node[0].engine->limited));
	program_die(a.p);
	world_later(w, 600000000, 200);
	assert_true(a.p->removed);
	world_link_fail(w, 0, EHOSTDOWN);
	world_run(w, 10);
	assert_true(list_empty(&w->node[0].engine->limited));
}

/* One consumer of many doesn't receive, then one connection of a consumer isn't looked at. */
static void
test_stalled_consumer(void **state)
{
	struct world *w =
	    WORLD(.ring_lines = 1024, .delay_ns = 1500, .recv_blocks = 8192, .window = 64 << 10);
	struct load others = load_open(w, 0, 50, 1, 200);
	struct program *stalled = program_open(w, 1, 1);
	struct load one = {.p = others.p, .to = stalled, .conns = 1, .length = 8192};
	uint64_t alone;

	world_connect(others.p, stalled, &one.from[0], &one.at[0]);
	RUN(w, 2000, 3000, &others);
	alone = arrived(&others);
	stalled->stopped = true;
	RUN(w, 2000, 3000, &others, &one);
	in_ratio(arrived(&others), 100, alone, 100, 5);
	stalled->stopped = false;
	DRAIN(w, &others, &one);
}

/* ---- the engine's time ---- */

/* A program whose slots do nothing: messages on a connection that is over, news that is none. */
struct junk {
	struct program *p;
	uint32_t vqpn;
	unsigned channels;
};

static struct junk
junk_open(struct world *w, struct program *to, unsigned channels)
{
	struct junk j = {.p = program_open(w, 0, channels), .channels = channels};
	struct pconn *a, *b;

	world_connect(j.p, to, &a, &b);
	j.vqpn = a->vqpn;
	pconn_close(a);
	pconn_close(b);
	world_run(w, 60);
	assert_true(a->freed);
	return j;
}

static void
fill(struct weir_ring *r, const struct weir_slot *s)
{
	weir_ring_refresh(r);
	while (weir_ring_room(r))
		ring_put(r, s);
}

static void
junk_fill(struct junk *j)
{
	struct weir_slot s = {.op = WEIR_OP_INLINE, .vqpn = j->vqpn, .length = 8};
	struct weir_slot consumed = {.op = WEIR_OP_CONSUMED, .vqpn = j->vqpn};

	for (unsigned i = 0; i < j->channels; i++) {
		s.op = i % 2 ? WEIR_OP_INLINE : WEIR_OP_WANT;
		fill(&j->p->tx[i], &s);
		fill(&j->p->returns[i], &consumed);
	}
}

static uint64_t
taken_of(const struct world *w, const struct program *p, uint32_t channel)
{
	const struct channel *ch = &w->node[0].engine->sessions[p->id].channels[channel];

	return ch->tx.pos + ch->returns.pos;
}

static uint64_t
taken(const struct world *w, const struct program *p)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < CHANNELS; i++)
		if (w->node[0].engine->sessions[p->id].channels[i].session)
			n += taken_of(w, p, i);
	return n;
}

static const struct world_options roomy = {.ring_lines = 1 << 16,
					   .ring_slots = 1024,
					   .recv_blocks = 8192,
					   .recv_wrs = 1024,
					   .window = 2 << 20};

/* A full channel gives 128 slots a turn, as alone; all 32 with junk together no more than 40. */
static void
test_junk_beside_a_stream(void **state)
{
	struct world *w = world_create(&roomy);
	struct load one = load_open(w, 0, 8, 1, 48);
	struct junk junk = junk_open(w, one.to, 32);
	uint64_t alone, start, spent;

	RUN(w, 600, 500, &one);
	alone = arrived(&one);
	start = one.before + alone;
	spent = taken(w, junk.p);
	for (unsigned i = 0; i < 500; i++) {
		junk_fill(&junk);
		RUN(w, 0, 1, &one);
	}
	one.before = start;
	spent = taken(w, junk.p) - spent;
	in_ratio(arrived(&one), 100, alone, 100, 5);
	assert_in_range(spent, 500, 500 * (FRAME_LINES / DEAR + 8));
	assert_false(junk.p->violated);
	DRAIN(w, &one);
}

/* It is by weight, and among a program's channels in turns. */
static void
test_junk_by_weight(void **state)
{
	struct world *w = world_create(&roomy);
	struct program *to = program_open(w, 1, 1);
	struct junk a = junk_open(w, to, 32), b = junk_open(w, to, 2);
	uint64_t of_a, of_b, least = UINT64_MAX, most = 0;

	program_share(b.p, 3 * ENGINE_WEIGHT, 0, 0);
	of_a = taken(w, a.p);
	of_b = taken(w, b.p);
	for (unsigned i = 0; i < 3200; i++) {
		junk_fill(&a);
		junk_fill(&b);
		world_step(w);
	}
	/* a look at each of many channels is charged, too */
	in_ratio(taken(w, b.p) - of_b, 3, taken(w, a.p) - of_a, 1, 30);
	for (unsigned i = 0; i < 32; i++) {
		uint64_t n = taken_of(w, a.p, i);

		least = n < least ? n : least;
		most = n > most ? n : most;
	}
	if (least * 2 < most)
		fail_msg("one channel gave %lu, another %lu", (unsigned long)least,
			 (unsigned long)most);
}

/* A program alone, or beside a quiet one, gets the whole engine. */
static void
test_nothing_is_wasted(void **state)
{
	struct world *w = world_create(&roomy);
	struct load one = load_open(w, 0, 1, 1, 48);
	struct junk junk = junk_open(w, one.to, 32);
	uint64_t before;

	program_share(junk.p, 1, 0, 0); /* the least: in debt for a long time */
	for (unsigned i = 0; i < 1000; i++) {
		junk_fill(&junk);
		if (i % 10 == 0)
			assert_true(pconn_send(one.from[0], 48, 0));
		before = taken(w, junk.p) + taken(w, one.p);
		world_step(w);
		assert_true(taken(w, junk.p) + taken(w, one.p) > before);
	}
	world_run(w, 2 * RIVALS_NS / STEP_NS);
	for (unsigned i = 0; i < 100; i++) {
		junk_fill(&junk);
		before = taken(w, junk.p);
		world_step(w);
		assert_true(taken(w, junk.p) - before >= 32 * 8);
	}
	assert_int_equal(one.at[0]->received, one.from[0]->sent);
}

/* A program that only receives is a rival as well. */
static void
test_junk_beside_a_receiver(void **state)
{
	struct world *w = world_create(&roomy);
	struct load from_there = load_open(w, 1, 4, 1, 48);
	struct program *to = from_there.to;
	struct junk junk = junk_open(w, from_there.p, 32);
	uint64_t spent;

	RUN(w, 0, 500, &from_there); /* windows grow */
	DRAIN(w, &from_there);
	to->stopped = true; /* it gives nothing back, either */
	for (unsigned i = 0; i < 2 * RIVALS_NS / STEP_NS; i++) {
		junk_fill(&junk);
		world_step(w);
	}
	spent = taken(w, junk.p);
	for (unsigned i = 0; i < 300; i++) {
		junk_fill(&junk);
		assert_true(pconn_send(from_there.from[0], 48, 0));
		world_step(w);
	}
	spent = taken(w, junk.p) - spent;
	/* before the first message arrived it had all */
	assert_in_range(spent, 300, 300 * (FRAME_LINES / DEAR + 8) + 10 * 32 * 40);
	to->stopped = false;
	assert_receives(from_there.at[0], 100, from_there.from[0]->sent);
}

/* ---- operations on remote memory ---- */

#define MEMORY 4096u /* bytes of an export */

/* Operations of one kind that a program always has, by a connection per channel. */
struct ops {
	struct program *p;
	struct pconn *c[CHANNELS];
	unsigned channels;
	uint8_t op, type;
	uint32_t count;	 /* elements; PUT: bytes */
	uint64_t before; /* operations executed when the measurement began */
};

static const struct weir_wire_export the_export = {
    .index = 1, .generation = 77, .rights = WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE};

static struct program *
exporter_open(struct world *w, unsigned node)
{
	struct program *p = program_open(w, node, 1);
	struct engine_command k = {.type = ENGINE_EXPORT_ADD,
				   .export = {.session = p->id,
					      .number = the_export.index,
					      .generation = the_export.generation,
					      .region = 1,
					      .length = MEMORY,
					      .rights = the_export.rights}};

	program_adopt(p, 1, MEMORY, WEIR_ADOPT_SEND);
	memset(p->region[0].base, 0, MEMORY);
	assert_int_equal(program_command(p, &k), 0);
	return p;
}

/* By a program on node 0. */
static struct ops
ops_open(struct world *w, const struct program *exporter, unsigned channels, uint8_t op,
	 enum weir_type type, uint32_t count)
{
	struct ops o = {.p = program_open(w, 0, channels),
			.channels = channels,
			.op = op,
			.type = (uint8_t)type,
			.count = count};

	for (unsigned i = 0; i < channels; i++) {
		if (exporter->node == 0)
			o.c[i] = pconn_open_apart(o.p, exporter, &the_export);
		else
			o.c[i] = pconn_connect_memory(o.p, &the_export);
		STEP_MOST(w, 200, !o.c[i]->opened);
		assert_true(o.c[i]->opened && !o.c[i]->open_status);
	}
	return o;
}

static uint64_t
executed(const struct ops *o)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < o->channels; i++)
		n += pconn_completed(o->c[i]);
	return n - o->before;
}

static void
ops_push(const struct ops *o)
{
	struct weir_cell_access a = {
	    .handle = WEIR_HANDLE_FIRST, .type = o->type, .acc = WEIR_ACC_SUM, .count = o->count};
	struct weir_cell_put put = {.handle = WEIR_HANDLE_FIRST};
	uint8_t cell[WEIR_INLINE_MAX] = {0};
	struct weir_slot s = {.op = o->op, .length = o->count};

	if (o->op == WEIR_OP_PUT) {
		memcpy(cell, &put, sizeof(put));
	} else {
		memcpy(cell, &a, sizeof(a));
		s.length *= (uint32_t)weir_type_size((enum weir_type)o->type);
	}
	for (unsigned i = 0; i < o->channels; i++) {
		struct weir_ring *r = &o->p->tx[i];

		weir_ring_refresh(r);
		while (weir_ring_room(r) >= weir_cell_slots(s.op, s.length)) {
			s.order = (uint16_t)o->c[i]->sent++;
			s.vqpn = o->c[i]->vqpn;
			memcpy((char *)weir_ring_at(r, r->pos) + 4, (char *)&s + 4, 12);
			weir_ring_put_inline(r, cell, weir_cell_fields(s.op) + s.length);
			weir_ring_publish(r, weir_cell_slots(s.op, s.length));
		}
	}
}

static void
ops_run(struct world *w, unsigned warm, unsigned steps, struct ops *a, struct ops *b)
{
	for (unsigned i = 0; i < warm + steps; i++) {
		ops_push(a);
		ops_push(b);
		if (i == warm) {
			a->before = b->before = 0;
			a->before = executed(a);
			b->before = executed(b);
		}
		world_step(w);
	}
}

/* Updates beside puts of 8 bytes: each update is charged as this number of puts. */
static void
updates_charged(const struct world_options *options, unsigned node, unsigned channels,
		enum weir_type type, uint32_t count, unsigned charge, unsigned steps)
{
	unsigned percent = node ? 10 : 20; /* a look at each channel is charged, too */
	struct world *w = world_create(options);
	struct program *exporter = exporter_open(w, node);
	struct ops updates = ops_open(w, exporter, channels, WEIR_OP_UPDATE, type, count);
	struct ops puts = ops_open(w, exporter, channels, WEIR_OP_PUT, 0, 8);

	ops_run(w, 2000, steps, &updates, &puts);
	assert_true(executed(&updates) > 100);
	in_ratio(executed(&updates) * charge, 1, executed(&puts), 1, percent);
	assert_false(updates.p->violated || puts.p->violated);
}

/* An update is charged its lines, its elements after the first, and 8 for a wide type. */
static void
test_updates_wait_for_room(void **state)
{
	struct world_options o = {.ring_lines = 512, .delay_ns = 1500};

	updates_charged(&o, 1, 1, WEIR_T_INT64, 1, 1, 2000);
	updates_charged(&o, 1, 1, WEIR_T_INT8, 924, 16 + 923, 6000);
	updates_charged(&o, 1, 1, WEIR_T_DOUBLE, 115, 16 + 114, 3000);
	updates_charged(&o, 1, 1, WEIR_T_LONG_DOUBLE, 57, 16 + 56 + 8, 3000);
	updates_charged(&o, 1, 1, WEIR_T_LONG_DOUBLE, 1, 1 + 8, 2000);
}

static void
test_updates_share_frames(void **state)
{
	struct world_options o = {.ring_lines = 1 << 16, .ring_slots = 4096, .recv_wrs = 1024};

	updates_charged(&o, 1, 8, WEIR_T_INT64, 1, 1, 1000);
	updates_charged(&o, 1, 8, WEIR_T_INT8, 8, 1 + 7, 1000);
	updates_charged(&o, 1, 8, WEIR_T_INT8, 924, 16 + 923, 3000);
	updates_charged(&o, 1, 8, WEIR_T_LONG_DOUBLE, 57, 16 + 56 + 8, 1000);
}

/* Apart the program's own engine executes them: they are charged to its part of that. */
static void
test_updates_apart(void **state)
{
	struct world_options o = {.no_link = true, .ring_slots = 1024};

	updates_charged(&o, 0, 8, WEIR_T_INT64, 1, 1, 1000);
	updates_charged(&o, 0, 8, WEIR_T_INT8, 924, 16 + 923, 3000);
	updates_charged(&o, 0, 8, WEIR_T_LONG_DOUBLE, 57, 16 + 56 + 8, 1000);
}

ENGINE_TESTS(TEST(test_many_against_one), TEST(test_large_against_small), TEST(test_weights),
	     TEST(test_frames_are_shared), TEST(test_part_of_a_silent_frame),
	     TEST(test_bulk_is_shared), TEST(test_rate), TEST(test_rate_of_two_engines),
	     TEST(test_rate_of_a_user), TEST(test_burst), TEST(test_rate_wakes),
	     TEST(test_limited_ends), TEST(test_stalled_consumer), TEST(test_junk_beside_a_stream),
	     TEST(test_junk_by_weight), TEST(test_nothing_is_wasted),
	     TEST(test_junk_beside_a_receiver), TEST(test_updates_wait_for_room),
	     TEST(test_updates_share_frames), TEST(test_updates_apart))
