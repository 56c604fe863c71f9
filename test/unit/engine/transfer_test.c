/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets by WRITEs and READs: bytes and no others, order to cells, fences, revocation while
 * they are under way, wrong ones.
 */
#define BYTES (1u << 20) /* of region 1 of each program */
#define START 4096u
#define LENGTH (BYTES - 2 * START)
#include "exports.h"

#include "engine/export.h"

#define RIGHTS (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE)
#define USES (WEIR_ADOPT_SEND | WEIR_ADOPT_RECV)

static struct pair
memory_programs(const struct world_options *o)
{
	struct pair p = pair_programs(o, 2);
	struct nic_mr mr;

	program_adopt(p.pa, 1, BYTES, USES);
	program_adopt(p.pb, 1, BYTES, USES);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_ADD, RIGHTS), 0);
	mr = fake_mr(&p.w->net, p.pb->region[0].base + START, LENGTH,
		     NIC_REMOTE_WRITE | NIC_REMOTE_READ);
	p.w->node[1].key = (struct engine_export_key){mr.address, mr.rkey};
	for (uint32_t i = 0; i < BYTES; i++)
		p.pa->region[0].base[i] = (uint8_t)(i * 7 + i / 256);
	return p;
}

static void
push(struct pconn *c, const struct weir_slot *is)
{
	struct weir_slot s = *is;

	s.order = (uint16_t)c->sent;
	s.vqpn = c->vqpn;
	program_slot(c->p, 0, &s);
	c->sent++;
}

static struct weir_slot
transfer(uint64_t offset, uint32_t length, uint32_t options)
{
	struct weir_cell_transfer t = {.place = WEIR_PLACE(1, offset),
				       .handle = WEIR_HANDLE_FIRST,
				       .options = options,
				       .offset = offset};
	struct weir_slot s = {.op = WEIR_OP_TRANSFER, .length = length};

	memcpy(s.data, &t, sizeof(t));
	return s;
}

static void
move(struct pconn *c, uint64_t offset, uint32_t length, uint32_t options)
{
	struct weir_slot s = transfer(offset, length, options);

	push(c, &s);
}

static struct peer_link *
link_of(const struct pair *p)
{
	return &p->w->node[0].engine->links[1];
}

static bool
idle(const struct pair *p)
{
	return link_of(p)->sq_posted[BULK] == link_of(p)->sq_done[BULK];
}

static void
assert_stored(const struct pair *p, uint64_t from, uint64_t to)
{
	const uint8_t *base = p->pb->region[0].base;

	for (uint64_t i = 0; i < BYTES; i++) {
		bool in = i >= START + from && i < START + to;

		if (base[i] != (in ? p->pa->region[0].base[i - START] : 0xaa))
			fail_msg("byte %lu of the region is not as it should be", (unsigned long)i);
	}
}

static const uint32_t lengths[] = {1, 8, 8193, 65535, 65536, 65537, 200000, LENGTH};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void
test_lengths(void **state)
{
	for (unsigned i = 0; i < 2 * LENGTHS; i++) {
		uint32_t n = lengths[i / 2], at = LENGTH - n > 100 ? 100 : LENGTH - n;
		struct pair p =
		    memory_programs(&(struct world_options){.delay_ns = 2000, .fence = i % 2});
		struct pconn *c = open_remote(p.pa, RIGHTS);
		uint64_t reads = p.w->net.reads,
			 segments = (n + FLIGHT_SEGMENT - 1) / FLIGHT_SEGMENT;

		move(c, at, n, 0);
		STEP_MOST(p.w, 3000, !pconn_completed(c));
		assert_int_equal(pconn_completed(c), 1);
		assert_true(idle(&p));
		assert_stored(&p, at, at + n);
		/* a fence per put */
		assert_int_equal(p.w->net.reads - reads, i % 2);
		memset(p.pa->region[0].base, 0, BYTES);
		reads = p.w->net.reads;
		move(c, at, n, WEIR_TRANSFER_GET);
		STEP_MOST(p.w, 3000, pconn_completed(c) < 2);
		assert_int_equal(p.w->net.reads - reads, segments);
		assert_stored(&p, at, at + n);
		assert_int_equal(c->p->violated, 0);
		world_end(state);
	}
}

/* With a fence a put is complete only behind a READ that left after its last WRITE. */
static void
test_fence(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 20000, .fence = true});
	struct pconn *c = open_remote(p.pa, RIGHTS);
	uint64_t before = link_of(&p)->sq_posted[BULK];

	move(c, 0, 3 * FLIGHT_SEGMENT, 0);
	STEP_MOST(p.w, 1000, link_of(&p)->sq_done[BULK] - before < 3);
	assert_int_equal(link_of(&p)->sq_posted[BULK] - before, 4);
	if (!idle(&p))
		assert_int_equal(pconn_completed(c), 0);
	STEP_MOST(p.w, 1000, !pconn_completed(c));
	assert_true(pconn_completed(c) == 1 && idle(&p));
	assert_stored(&p, 0, 3 * FLIGHT_SEGMENT);
}

/* Cells wait for the transfers before them; transfers leave at once, unless BEHIND. */
static void
test_order(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = memory_programs(&(struct world_options){.delay_ns = 20000});
		struct pconn *c = open_remote(p.pa, RIGHTS);
		uint8_t *base = p.pb->region[0].base + START;
		uint64_t before = link_of(&p)->sq_posted[BULK];
		uint64_t word;

		pconn_put_word(c, 0, 1);
		move(c, 0, 100000, i ? WEIR_TRANSFER_BEHIND : 0);
		move(c, 0, 100000, WEIR_TRANSFER_GET | (i ? WEIR_TRANSFER_BEHIND : 0));
		pconn_put_word(c, 0, 2);
		world_turn(p.w, 0);
		/* two segments each */
		assert_int_equal(link_of(&p)->sq_posted[BULK] - before, i ? 0 : 4);
		for (unsigned n = 0; n < 3000 && pconn_completed(c) < 4; n++) {
			memcpy(&word, base, sizeof(word));
			if (pconn_completed(c) < 3)
				assert_int_not_equal(word, 2);
			if (i && link_of(&p)->sq_posted[BULK] != before)
				assert_true(pconn_completed(c) >= 1);
			world_step(p.w);
		}
		assert_int_equal(pconn_completed(c), 4);
		memcpy(&word, base, sizeof(word));
		assert_int_equal(word, 2);
		pconn_close(c);
		world_run(p.w, 200);
		assert_true(c->freed);
		world_end(state);
	}
}

/* A transfer that is done before the credit of a cell in front of it is not complete before that.
 */
static void
test_credit(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 1000});
	struct pconn *c = open_remote(p.pa, RIGHTS);

	for (unsigned i = 1; i < 30; i++) {
		pconn_put_word(c, 0, i);
		move(c, 100, 100 * i, i % 2 ? WEIR_TRANSFER_GET : 0);
		STEP_MOST(p.w, 3000, pconn_completed(c) < 2 * i - 1);
		assert_int_equal(pconn_completed(c), 2 * i);
	}
}

/* Many at once, more than may be begun, and small ones between them. */
static void
test_many(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 5000});
	struct pconn *c = open_remote(p.pa, RIGHTS);

	for (unsigned round = 0; round < 20; round++) {
		uint64_t sent = c->sent;

		for (unsigned i = 0; i < 12; i++)
			move(c, i * 20000, 20000, i % 3 ? 0 : WEIR_TRANSFER_BEHIND);
		if (round % 2)
			pconn_put_word(c, 300000, round);
		STEP_MOST(p.w, 3000, pconn_completed(c) < c->sent);
		assert_int_equal(pconn_completed(c), sent + 12 + round % 2);
		pconn_put_word(c, 310000, round); /* leaves at once */
		STEP_MOST(p.w, 3000, pconn_completed(c) < c->sent);
		assert_int_equal(pconn_completed(c), c->sent);
	}
	pconn_close(c);
	world_run(p.w, 200);
	assert_true(c->freed);
	assert_int_equal(node_counters(p.w, 1)->bad_frames, 0); /* FIN has the count of cells */
}

/* The node's engine turns, and main takes its answers; no other engine does anything. */
static void
turn_alone(struct world *w, unsigned node)
{
	struct engine_command *k;

	world_turn(w, node);
	while ((k = engine_done(w->node[node].engine))) {
		w->node[node].exports_removed += k->type == ENGINE_EXPORT_REMOVE;
		w->node[node].program[0]->disowned[0] |= k->type == ENGINE_REGION_REMOVE;
		free(k);
	}
}

/*
 * The export has no peer with its key only when none of its WRITEs and READs is under way; the
 * region stays until then. A peer that never says so is given 10 s.
 */
static void
test_revoke(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		struct pair p = memory_programs(&(struct world_options){.delay_ns = 20000});
		struct pconn *c = open_remote(p.pa, RIGHTS);
		struct engine_command *remove = calloc(1, sizeof(*remove));
		struct weir_wire_export x = the_key(RIGHTS);
		struct node *b = &p.w->node[1];
		bool silent = i == 11, done;
		struct pconn *late;
		struct engine_command stop = {.type = ENGINE_EXPORT_STOP,
					      .export = the_export(p.pb, RIGHTS)};

		for (unsigned k = 0; k < 4; k++)
			move(c, k * 200000, 200000, k % 2 ? WEIR_TRANSFER_GET : 0);
		world_run(p.w, 1 + 3 * i);
		assert_int_equal(program_command(p.pb, &stop), 0);
		assert_int_equal(stop.export.keyed, 1);
		program_disown(p.pb, 1);
		late = pconn_connect_memory(p.pa, &x);
		remove->type = ENGINE_EXPORT_REMOVE;
		remove->export = the_export(p.pb, RIGHTS);
		done = engine_execute(b->engine, remove);
		assert_false(done); /* the peer has not said that it is done */
		for (unsigned n = 0; n < 3000 && !done; n++) {
			if (silent)
				turn_alone(p.w, 1);
			else
				world_step(p.w);
			done = b->exports_removed;
			assert_false(!done && p.pb->disowned[0]);
			/* its program has the memory back then */
			assert_false(c->done && !idle(&p));
		}
		if (silent) {
			assert_false(done);
			p.w->now += ENGINE_KEYED_NS;
			for (unsigned n = 0; n < 600 && !done; n++) {
				turn_alone(p.w, 1);
				done = b->exports_removed;
			}
		} else {
			assert_true(idle(&p));
		}
		assert_true(done);
		if (silent)
			turn_alone(p.w, 1);
		assert_int_equal(p.pb->disowned[0], silent);
		if (!silent) {
			memset(p.pb->region[0].base, 0x55, BYTES);
			world_run(p.w, 300);
			for (uint32_t k = 0; k < BYTES; k++)
				assert_int_equal(p.pb->region[0].base[k], 0x55);
			assert_int_equal(pconn_status(c), ESTALE);
			assert_int_equal(late->open_status, ESTALE);
			pconn_ends(c, 100);
			assert_true(p.pb->disowned[0]);
		}
		world_end(state);
	}
}

/* The count of a RESET is one of cells; operations that are complete are counted with transfers. */
static void
test_reset_count(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 1000});
	struct pconn *c = open_remote(p.pa, RIGHTS);
	uint8_t *base = p.pb->region[0].base + START;
	uint64_t word = 0;

	for (unsigned i = 0; i < 3; i++)
		pconn_put_word(c, 0, i);
	move(c, 100, 100000, 0);
	STEP_MOST(p.w, 3000, pconn_completed(c) < 4);
	assert_int_equal(pconn_completed(c), 4);
	pconn_put_word(c, 8, 5);
	pconn_put_word(c, 8, 6);
	while (word != 6) {
		world_step(p.w);
		memcpy(&word, base + 8, sizeof(word));
	}
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP, RIGHTS), 0);
	world_run(p.w, 300);
	assert_closed(c, ESTALE);
	assert_int_equal(pconn_completed(c), 6);
}

/* A program that writes a wrong one ends, and moves nothing. */
static void
test_bad_programs(void **state)
{
	for (unsigned i = 0; i < 14; i++) {
		struct pair p = memory_programs(NULL);
		struct pconn *c;
		struct weir_slot s = transfer(0, 9000, i == 9 ? WEIR_TRANSFER_GET : 0);
		struct weir_cell_transfer t;

		if (i == 12)
			p.w->node[1].key.rkey = 0;
		c = open_remote(p.pa, i == 9	? WEIR_RIGHT_WRITE
				      : i == 10 ? WEIR_RIGHT_READ
						: RIGHTS);
		memcpy(&t, s.data, sizeof(t));
		if (i == 0)
			t.handle++;
		else if (i == 1)
			t.options = 4;
		else if (i == 2)
			t.offset = LENGTH - 8999;
		else if (i == 3)
			t.offset = UINT64_MAX - 100;
		else if (i == 4)
			t.place = WEIR_PLACE(2, 0);
		else if (i == 5)
			t.place = WEIR_PLACE(1, BYTES - 8999);
		else if (i == 6)
			t.place = WEIR_PLACE(0, 0); /* receive blocks, or what is before them */
		else if (i == 7)
			s.length = 0;
		else if (i == 8)
			s.length = WEIR_TRANSFER_MAX + 1;
		else if (i == 11)
			t.reserved[1] = 1;
		else if (i == 13)
			s.flags = WEIR_SLOT_NOTIFY;
		memcpy(s.data, &t, sizeof(t));
		push(c, &s);
		world_run(p.w, 50);
		assert_true(p.pa->violated);
		assert_false(p.pb->violated);
		assert_stored(&p, 0, 0);
		world_end(state);
	}
}

/* A program without the right to be written to, or read from, memory of its own. */
static void
test_own_memory(void **state)
{
	static const uint32_t uses[] = {WEIR_ADOPT_SEND, WEIR_ADOPT_RECV};

	for (unsigned i = 0; i < 4; i++) {
		struct pair p = memory_programs(NULL);
		struct pconn *c = open_remote(p.pa, RIGHTS);
		struct weir_slot s = transfer(0, 9000, i / 2 ? WEIR_TRANSFER_GET : 0);
		struct weir_cell_transfer t;

		program_adopt(p.pa, 2, 16384, uses[i % 2]);
		memcpy(&t, s.data, sizeof(t));
		t.place = WEIR_PLACE(2, 0);
		memcpy(s.data, &t, sizeof(t));
		push(c, &s);
		world_run(p.w, 200);
		assert_int_equal(p.pa->violated, i / 2 != i % 2);
		world_end(state);
	}
}

/* The rate of the program holds for what it gets, too. */
static void
test_rate(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, RIGHTS);
	uint64_t start;

	program_share(p.pa, ENGINE_WEIGHT, 100000000, 1000000); /* 100 MB/s, 1 ms of burst */
	start = p.w->now;
	for (unsigned i = 0; i < 8; i++)
		move(c, 0, 200000, i % 2 ? WEIR_TRANSFER_GET : 0);
	STEP_MOST(p.w, 400000, pconn_completed(c) < 8);
	assert_int_equal(pconn_completed(c), 8);
	assert_in_range(p.w->now - start, 12000000, 20000000);
}

ENGINE_TESTS(TEST(test_lengths), TEST(test_fence), TEST(test_order), TEST(test_credit),
	     TEST(test_many), TEST(test_revoke), TEST(test_reset_count), TEST(test_bad_programs),
	     TEST(test_own_memory), TEST(test_rate))
