/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Circular buffers: turns, growth and limits, marks on a data plane that stands still or ends,
 * several remotes, holds, shared units, random use, many threads.
 */
#include "../remote/places.h"
#include "worlds/test.h"

#include "weir/buffer.h"

#include <pthread.h>

#define UNIT 256u

static uint32_t
next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static struct weir_chunks *
chunks_of(struct weir *w, uint64_t most)
{
	struct weir_chunks_options o = WEIR_CHUNKS_OPTIONS_INIT;
	struct weir_chunks *c;

	o.chunk = 4096;
	o.step = 16 * 4096;
	o.most = most;
	assert_int_equal(weir_chunks_create(w, &o, &c), 0);
	return c;
}

static struct weir_circular *
circular(struct weir_chunks *c, uint32_t first, uint32_t most, uint32_t growth, uint32_t linear)
{
	struct weir_circular_options o = WEIR_CIRCULAR_OPTIONS_INIT;
	struct weir_circular *q;

	o.unit = UNIT;
	o.first = first;
	o.most = most;
	o.growth = growth;
	o.linear = linear;
	assert_int_equal(weir_circular_create(c, &o, &q), 0);
	return q;
}

static void
expect_none(struct weir_circular *q)
{
	void *at = weir_circular_get(q, 1);
	int error = errno;

	assert_null(at);
	assert_int_equal(error, ENOBUFS);
}

static void *
get(struct weir_circular *q, uint32_t bytes)
{
	void *at = weir_circular_get(q, bytes);

	assert_non_null(at);
	return at;
}

/* A unit that is posted to r, with few bytes: the channel has room while the data plane stands
 * still. */
static uint8_t *
send_unit(struct weir_circular *q, struct weir_remote *r)
{
	uint8_t *at = get(q, UNIT);

	assert_int_equal(weir_remote_put(r, 0, at, 8, WEIR_KEEP), 0);
	weir_circular_posted(q, r);
	return at;
}

static uint32_t
chunks_left(struct weir_chunks *c)
{
	void *at[64];
	uint32_t n = 0;

	while (n < 64 && (at[n] = weir_chunk_get(c)))
		n++;
	for (uint32_t i = n; i--;)
		weir_chunk_put(c, at[i]);
	return n;
}

/* A remote on which operations stay under way until go_on(). */
static struct memory
stopped(enum place place)
{
	struct memory m = memory_open(place);

	memory_flush(&m);
	plane_hold(m.f, true);
	return m;
}

static void
go_on(struct memory *m)
{
	plane_hold(m->f, false);
	memory_flush(m);
}

/* ---- units ---- */

TEST(test_invalid_options)
{
	const struct weir_circular_options bad[] = {
	    {.unit = 32, .first = 1, .most = 1},
	    {.unit = 96, .first = 1, .most = 1},
	    {.unit = 8192, .first = 1, .most = 1},
	    {.unit = 64, .first = 0, .most = 1},
	    {.unit = 64, .first = 2, .most = 1},
	    {.unit = 64, .first = 1, .most = 1, .linear = 2},
	    {.unit = 64, .first = 1, .most = 1, .reserved = 1},
	    {.unit = 64, .first = 1, .most = 1, .more = {0, 0, 1, 0}},
	    {.unit = 4096, .first = 9, .most = 9}, /* chunks have 8 */
	};
	struct plane *f = plane_create(NULL);
	struct weir *w = plane_attach(f);
	struct weir_chunks *c = chunks_of(w, 8 * 4096);
	struct weir_circular *q;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect(weir_circular_create(c, &bad[i], &q), i == 8 ? -ENOSPC : -EINVAL);
	assert_int_equal(chunks_left(c), 8);
	q = circular(c, 1, 1, 0, 0);
	assert_null(weir_circular_get(q, UNIT + 1));
	assert_int_equal(errno, EMSGSIZE);
	assert_null(weir_circular_get(q, UINT32_MAX));
	assert_int_equal(errno, EMSGSIZE);
	get(q, 0);
	weir_circular_destroy(q);
	q = circular(c, 1, 1, 0, 1);
	assert_null(weir_circular_get(q, UINT32_MAX));
	assert_int_equal(errno, EMSGSIZE);
	assert_ptr_not_equal(get(q, 0), get(q, 0));
	weir_circular_destroy(q);
	weir_chunks_destroy(c);
	weir_detach(w);
	plane_destroy(f);
}

/* Without posts, each unit is handed out once, up to `most`, and chunks are taken when needed. */
TEST(test_growth)
{
	const struct {
		uint32_t first, most, growth;
		uint32_t chunks[4]; /* of 16 units, after `at` units */
		uint32_t at[4];
	} runs[] = {
	    {16, 64, 0, {1, 2, 4, 4}, {16, 17, 33, 64}},     /* 16, 32, 64 */
	    {3, 50, 0, {1, 1, 3, 4}, {3, 6, 25, 50}},	     /* 3, 6, 12, 24, 48, 50 */
	    {16, 64, 100, {1, 2, 4, 4}, {16, 17, 33, 64}},   /* the same */
	    {32, 128, 50, {2, 3, 5, 8}, {32, 33, 49, 128}},  /* 32, 48, 72, 108, 128 */
	    {16, 33, 1, {1, 2, 2, 3}, {16, 17, 32, 33}},     /* one by one */
	    {16, 128, 300, {1, 4, 8, 8}, {16, 17, 65, 128}}, /* 16, 64, 128 */
	};
	struct plane *f = plane_create(NULL);
	struct weir *w = plane_attach(f);
	struct weir_chunks *c = chunks_of(w, 8 * 4096);

	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		struct weir_circular *q =
		    circular(c, runs[i].first, runs[i].most, runs[i].growth, 0);
		uint8_t *at[128];
		uint32_t n = 0;

		for (unsigned k = 0; k < 4; k++) {
			for (; n < runs[i].at[k]; n++) {
				at[n] = get(q, n % (UNIT + 1));
				assert_int_equal((uintptr_t)at[n] % 64, 0);
				for (uint32_t j = 0; j < n; j++)
					assert_true(at[n] >= at[j] + UNIT || at[n] + UNIT <= at[j]);
			}
			assert_int_equal(8 - chunks_left(c), runs[i].chunks[k]);
		}
		expect_none(q);
		weir_circular_destroy(q);
		assert_int_equal(chunks_left(c), 8);
	}
	weir_chunks_destroy(c);
	weir_detach(w);
	plane_destroy(f);
}

/* A buffer that gets no chunk goes on with its units, and takes chunks that others give back. */
TEST(test_no_more_chunks)
{
	struct memory m = stopped(REMOTE);
	struct weir_chunks *c = chunks_of(m.a, 2 * 4096);
	struct weir_circular *q = circular(c, 4, 1000, 0, 0);
	void *other = weir_chunk_get(c);

	for (unsigned i = 0; i < 16; i++)
		send_unit(q, m.r);
	expect_none(q);
	expect_none(q);
	weir_chunk_put(c, other);
	for (unsigned i = 0; i < 16; i++)
		send_unit(q, m.r);
	expect_none(q);
	go_on(&m);
	for (unsigned i = 0; i < 100; i++) {
		send_unit(q, m.r);
		if (i % 20 == 19)
			memory_flush(&m);
	}
	weir_circular_destroy(q);
	weir_chunks_destroy(c);
	memory_close(&m);
}

/* ---- marks ---- */

TEST(test_in_turn)
{
	for (unsigned place = 0; place < PLACES; place++) {
		struct memory m = memory_open(place);
		struct weir_chunks *c = chunks_of(m.a, 0);
		struct weir_circular *q = circular(c, 5, 5, 0, 0);
		uint8_t *at[5];

		for (unsigned i = 0; i < 5; i++)
			at[i] = send_unit(q, m.r);
		for (unsigned i = 0; i < 500; i++) {
			memory_flush(&m);
			assert_ptr_equal(send_unit(q, m.r), at[i % 5]);
		}
		memory_flush(&m);
		weir_circular_destroy(q);
		weir_chunks_destroy(c);
		memory_close(&m);
	}
}

/* Memory with operations under way is not handed out; one mark frees all that was posted before it.
 */
TEST(test_marks)
{
	for (unsigned place = 0; place < MAPPED; place++) {
		struct memory m = stopped(place);
		struct weir_chunks *c = chunks_of(m.a, 0);
		struct weir_circular *q = circular(c, 8, 8, 0, 0);
		uint8_t *at[8];

		for (unsigned i = 0; i < 4; i++)
			at[i] = get(q, UNIT);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(weir_remote_put(m.r, 0, at[i], UNIT, WEIR_KEEP), 0);
		weir_circular_posted(q, m.r);
		at[4] = send_unit(q, m.r);
		for (unsigned i = 5; i < 8; i++) /* not posted yet */
			at[i] = get(q, UNIT);
		expect_none(q);
		go_on(&m);
		plane_hold(m.f, true);
		for (unsigned i = 0; i < 5; i++)
			assert_ptr_equal(get(q, 1), at[i]);
		expect_none(q);
		expect_none(q);
		/* ties all eight, behind operations that are under way */
		assert_int_equal(weir_remote_put(m.r, 0, at[5], UNIT, WEIR_KEEP), 0);
		weir_circular_posted(q, m.r);
		expect_none(q);
		go_on(&m);
		for (unsigned i = 0; i < 8; i++)
			assert_ptr_equal(get(q, 1), at[(i + 5) % 8]);
		expect_none(q);
		weir_circular_destroy(q);
		weir_chunks_destroy(c);
		memory_close(&m);
	}
}

/* The second batch is under way when the first is complete. The ring of ties grows and wraps. */
TEST(test_batches)
{
	struct memory m = stopped(REMOTE);
	struct weir_chunks *c = chunks_of(m.a, 0);
	struct weir_circular *q = circular(c, 64, 64, 0, 0);
	uint8_t *batch[2][32];

	for (unsigned i = 0; i < 32; i++)
		batch[0][i] = send_unit(q, m.r);
	for (unsigned round = 0; round < 10; round++) {
		go_on(&m);
		plane_hold(m.f, true);
		for (unsigned i = 0; i < 32; i++) {
			uint8_t *at = send_unit(q, m.r);

			batch[1][i] = round ? batch[1][i] : at;
			assert_ptr_equal(at, batch[1][i]);
		}
		for (unsigned i = 0; i < 32; i++)
			assert_ptr_equal(send_unit(q, m.r), batch[0][i]);
		expect_none(q);
	}
	go_on(&m);
	weir_circular_destroy(q);
	weir_chunks_destroy(c);
	memory_close(&m);
}

/* The same memory, posted to one remote whose operations are complete and one where they are not.
 */
TEST(test_two_remotes)
{
	for (unsigned first = 0; first < 2; first++) {
		struct memory m = memory_open(MAPPED);
		struct weir_chunks *c = chunks_of(m.a, 0);
		struct weir_circular *q = circular(c, 2, 2, 0, 0);
		struct weir_remote *r[2] = {m.r};
		uint8_t *at[2];

		assert_int_equal(
		    weir_remote_open(m.a, &m.key, ALL, WEIR_OPEN_APART, PATIENT, &r[1]), 0);
		plane_hold(m.f, true);
		for (unsigned i = 0; i < 2; i++) {
			at[i] = get(q, UNIT);
			for (unsigned k = 0; k < 2; k++)
				assert_int_equal(
				    weir_remote_put(r[k], i * UNIT, at[i], UNIT, WEIR_KEEP), 0);
			for (unsigned k = 0; k < 4; k++) /* repeated, it changes nothing */
				weir_circular_posted(q, r[(k + first) % 2]);
		}
		expect_none(q);
		plane_hold(m.f, false);
		assert_int_equal(weir_remote_flush(r[1], PATIENT), 0);
		assert_ptr_equal(get(q, 1), at[0]);
		assert_ptr_equal(get(q, 1), at[1]);
		expect_none(q);
		weir_circular_destroy(q);
		weir_chunks_destroy(c);
		weir_remote_close(r[1]);
		memory_close(&m);
	}
}

/* A remote that ends keeps what is tied to it, until it is forgotten; then it may be closed. */
TEST(test_remote_ends)
{
	struct memory m = stopped(REMOTE);
	struct weir_chunks *c = chunks_of(m.a, 0);
	struct weir_circular *q = circular(c, 4, 4, 0, 0);
	uint8_t *at[4];

	for (unsigned i = 0; i < 4; i++)
		at[i] = send_unit(q, m.r);
	plane_die(m.f, m.b);
	plane_hold(m.f, false);
	assert_int_equal(weir_remote_flush(m.r, PATIENT), -ECONNRESET);
	expect_none(q);
	weir_circular_forget(q, NULL);
	expect_none(q);
	weir_circular_forget(q, m.r);
	weir_remote_close(m.r);
	m.r = NULL;
	for (unsigned i = 0; i < 4; i++)
		assert_ptr_equal(get(q, 1), at[i]);
	expect_none(q);
	weir_circular_destroy(q);
	weir_chunks_destroy(c);
	memory_close(&m);
}

/* ---- hold and release ---- */

TEST(test_hold)
{
	struct memory m = memory_open(REMOTE);
	struct weir_chunks *c = chunks_of(m.a, 0);
	struct weir_circular *q = circular(c, 4, 4, 0, 0);
	uint8_t *at[4];

	for (unsigned i = 0; i < 4; i++)
		at[i] = send_unit(q, m.r);
	weir_circular_hold(q, at[1]);
	weir_circular_hold(q, at[1] + UNIT - 1);
	for (unsigned i = 0; i < 30; i++) {
		memory_flush(&m);
		assert_ptr_equal(send_unit(q, m.r), at[i % 3 ? i % 3 + 1 : 0]);
	}
	memory_flush(&m);
	for (unsigned i = 0; i < 3; i++)
		get(q, 1);
	expect_none(q);
	weir_circular_release(q, at[1]);
	expect_none(q);
	weir_circular_release(q, at[1]);
	assert_ptr_equal(get(q, 1), at[1]);
	expect_none(q);
	/* held and released before its turn comes: as if nothing had been */
	weir_circular_hold(q, at[1]);
	weir_circular_release(q, at[1]);
	expect_none(q);
	weir_circular_posted(q, m.r);
	for (unsigned i = 0; i < 4; i++)
		get(q, 1);
	/* all are held */
	for (unsigned i = 0; i < 4; i++)
		weir_circular_hold(q, at[i]);
	weir_circular_posted(q, m.r);
	expect_none(q);
	weir_circular_release(q, at[2]);
	weir_circular_release(q, at[0]);
	assert_ptr_equal(get(q, 1), at[2]);
	assert_ptr_equal(get(q, 1), at[0]);
	expect_none(q);
	weir_circular_destroy(q);
	weir_chunks_destroy(c);
	memory_close(&m);
}

/* ---- shared units ---- */

TEST(test_linear)
{
	struct memory m = stopped(REMOTE);
	struct weir_chunks *c = chunks_of(m.a, 0);
	struct weir_circular *q = circular(c, 2, 2, 0, 1);
	uint8_t *first = get(q, 100), *second;

	/* 112 of 256 bytes are used; a post does not end the unit */
	assert_int_equal(weir_remote_put(m.r, 0, first, 100, WEIR_KEEP), 0);
	weir_circular_posted(q, m.r);
	assert_ptr_equal(get(q, 1), first + 112);
	weir_circular_posted(q, m.r);
	assert_ptr_equal(get(q, 128), first + 128); /* the last bytes */
	assert_int_equal(weir_remote_put(m.r, 0, first + 128, 128, WEIR_KEEP), 0);
	weir_circular_posted(q, m.r);
	second = get(q, 250);
	assert_true(second >= first + UNIT || second + UNIT <= first);
	expect_none(q); /* does not fit */
	assert_int_equal(weir_remote_put(m.r, 0, second, 250, WEIR_KEEP), 0);
	weir_circular_posted(q, m.r);
	expect_none(q);
	go_on(&m);
	plane_hold(m.f, true);
	assert_ptr_equal(get(q, 200), first);
	assert_int_equal(weir_remote_put(m.r, 0, first, 200, WEIR_KEEP), 0);
	weir_circular_posted(q, m.r);
	assert_ptr_equal(get(q, 100), second);
	assert_null(weir_circular_get(q, 200));
	/* `second` was obtained and not posted: what completes does not free it */
	go_on(&m);
	assert_ptr_equal(get(q, 200), first);
	assert_null(weir_circular_get(q, 200));
	weir_circular_posted(q, m.r); /* nothing is under way */
	assert_ptr_equal(get(q, 200), second);
	assert_ptr_equal(get(q, 200), first);
	weir_circular_destroy(q);
	weir_chunks_destroy(c);
	memory_close(&m);
}

/* With one unit, whose requests were posted to two remotes. */
TEST(test_linear_one_unit)
{
	struct memory m = memory_open(MAPPED);
	struct weir_chunks *c = chunks_of(m.a, 0);
	struct weir_circular *q = circular(c, 1, 1, 0, 1);
	struct weir_remote *apart;
	uint8_t *at = NULL, *got;

	assert_int_equal(weir_remote_open(m.a, &m.key, ALL, WEIR_OPEN_APART, PATIENT, &apart), 0);
	for (unsigned round = 0; round < 20; round++) {
		plane_hold(m.f, true);
		for (unsigned i = 0; i < 4; i++) {
			struct weir_remote *r = i % 2 == round % 2 ? apart : m.r;

			got = get(q, 64);
			at = at ? at : got;
			assert_ptr_equal(got, at + 64 * i);
			assert_int_equal(weir_remote_put(r, 64 * i, got, 64, WEIR_KEEP), 0);
			weir_circular_posted(q, r);
		}
		expect_none(q);
		expect_none(q);
		plane_hold(m.f, false);
		assert_int_equal(weir_remote_flush(apart, PATIENT), 0);
	}
	weir_circular_destroy(q);
	weir_chunks_destroy(c);
	weir_remote_close(apart);
	memory_close(&m);
}

/* ---- random use ---- */

#define UNITS 24u
#define OPS 12u /* of a unit; more are not begun */

/* A unit as it was handed out last. */
struct shadow {
	uint8_t *base; /* NULL: not seen yet */
	struct weir_op op[OPS];
	uint32_t ops, holds, requests;
	uint32_t untied; /* requests */
};

struct use {
	struct memory m;
	struct weir_remote *r[2];
	struct weir_circular *q;
	struct shadow unit[UNITS];
	uint8_t want[BYTES];
};

static struct shadow *
shadow_of(struct use *u, uint8_t *at)
{
	uint8_t *base = at - (uintptr_t)at % UNIT;
	unsigned i = 0;

	while (u->unit[i].base && u->unit[i].base != base)
		assert_true(++i < UNITS); /* never more memory than `most` */
	u->unit[i].base = base;
	return &u->unit[i];
}

/* A new request: nothing else may use its memory. */
static void
look_at_request(struct shadow *s, const uint8_t *at, bool linear)
{
	if (linear && at != s->base)
		return;
	assert_int_equal(s->holds, 0);
	assert_int_equal(s->untied, 0);
	for (uint32_t i = 0; i < s->ops; i++)
		assert_int_equal(weir_op_test(&s->op[i]), 1);
	s->ops = s->requests = 0;
}

static void
use_randomly(struct use *u, uint32_t seed, bool linear)
{
	uint32_t number = 0;

	for (unsigned i = 0; i < 4000; i++) {
		struct shadow *s = &u->unit[next_random(&seed) % UNITS];
		uint32_t act = next_random(&seed) % 100, k = next_random(&seed) % 2;
		uint32_t length = 1 + next_random(&seed) % (linear ? 100 : UNIT);
		struct weir_transfer t = {.length = length, .flags = WEIR_KEEP | WEIR_AT_TARGET};
		uint8_t *at;

		if (act < 6 && s->requests && s->holds < 3) {
			weir_circular_hold(u->q, s->base);
			s->holds++;
		} else if (act < 16 && s->holds) {
			weir_circular_release(u->q, s->base + length - 1);
			s->holds--;
		} else if (act < 20) {
			assert_int_equal(weir_remote_flush(u->r[k], PATIENT), 0);
		}
		at = weir_circular_get(u->q, length);
		if (!at) {
			assert_int_equal(errno, ENOBUFS);
			for (unsigned j = 0; j < 2; j++)
				assert_int_equal(weir_remote_flush(u->r[j], PATIENT), 0);
			for (unsigned j = 0; j < UNITS; j++)
				for (; u->unit[j].holds; u->unit[j].holds--)
					weir_circular_release(u->q, u->unit[j].base);
			continue;
		}
		s = shadow_of(u, at);
		look_at_request(s, at, linear);
		s->requests++;
		s->untied++;
		for (uint32_t j = 0; j < length; j++)
			at[j] = pattern(number, j);
		number++;
		t.buf = at;
		if (s->ops + 2 <= OPS) {
			unsigned both = act % 4 == 0;

			for (unsigned j = 0; j < 1 + both; j++) {
				uint32_t to = (k + j) % 2, room = BYTES / 2 - length;

				/* a half of the target's memory per remote: order is a thread's
				 * with one handle */
				t.offset = to * (BYTES / 2) + next_random(&seed) % room;
				t.op = &s->op[s->ops++];
				assert_int_equal(weir_remote_put_with(u->r[to], &t), 0);
				memcpy(u->want + t.offset, at, length);
			}
			if (both) {
				weir_circular_posted(u->q, u->r[k]);
				k = 1 - k;
			} else if (act % 4 == 1) {
				continue; /* tied by a later call */
			}
		}
		/* memory that is still to be tied may have been posted to the other one */
		weir_circular_posted(u->q, u->r[k]);
		weir_circular_posted(u->q, u->r[1 - k]);
		for (unsigned j = 0; j < UNITS; j++)
			u->unit[j].untied = 0;
	}
}

TEST(test_random)
{
	const char *given = getenv("WEIR_SEED");
	uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)getpid();
	static struct use u;

	print_message("random: WEIR_SEED=%u\n", seed);
	for (unsigned run = 0; run < 4; run++) {
		struct weir_chunks *c;

		memset(&u, 0, sizeof(u));
		u.m = memory_open(run / 2 ? APART : REMOTE);
		u.r[0] = u.m.r;
		assert_int_equal(
		    weir_remote_open(u.m.a, &u.m.key, ALL, WEIR_OPEN_APART, PATIENT, &u.r[1]), 0);
		c = chunks_of(u.m.a, 0);
		u.q = circular(c, 2, UNITS, 30, run % 2);
		use_randomly(&u, seed + run, run % 2);
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(weir_remote_flush(u.r[k], PATIENT), 0);
		assert_memory_equal(u.m.base, u.want, BYTES);
		weir_circular_destroy(u.q);
		weir_chunks_destroy(c);
		weir_remote_close(u.r[1]);
		memory_close(&u.m);
	}
}

/* ---- threads ---- */

#define THREADS 4u
#define ROUNDS 1500u
#define PART (BYTES / THREADS)

struct sender {
	struct memory *m;
	struct weir_chunks *c;
	uint32_t number;
	int line;
};

/* Each thread sends through a buffer of its own over the same chunks. */
static void *
send_units(void *arg)
{
	struct sender *s = arg;
	struct weir_circular_options o = WEIR_CIRCULAR_OPTIONS_INIT;
	struct weir_circular *q;
	uint32_t *at;

	o.unit = UNIT;
	o.first = 2;
	o.most = 32;
	if (weir_circular_create(s->c, &o, &q)) {
		s->line = __LINE__;
		return NULL;
	}
	for (uint32_t i = 0; i < ROUNDS && !s->line; i++) {
		while (!(at = weir_circular_get(q, UNIT)))
			if (errno != ENOBUFS || weir_remote_flush(s->m->r, PATIENT))
				s->line = __LINE__;
		for (uint32_t k = 0; k < UNIT / 4; k++)
			at[k] = s->number << 24 | i;
		if (weir_remote_put(s->m->r, s->number * PART + i % (PART / UNIT) * UNIT, at, UNIT,
				    WEIR_KEEP))
			s->line = __LINE__;
		if (i % 3 == 0)
			weir_circular_posted(q, s->m->r);
	}
	if (weir_remote_flush(s->m->r, PATIENT))
		s->line = __LINE__;
	weir_circular_destroy(q);
	return NULL;
}

TEST(test_threads)
{
	for (unsigned place = 0; place < PLACES; place++) {
		struct memory m = memory_open(place);
		struct weir_chunks *c = chunks_of(m.a, 0);
		struct sender s[THREADS];
		pthread_t thread[THREADS];

		for (uint32_t i = 0; i < THREADS; i++) {
			s[i] = (struct sender){&m, c, i, 0};
			assert_int_equal(pthread_create(&thread[i], NULL, send_units, &s[i]), 0);
		}
		for (uint32_t i = 0; i < THREADS; i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(s[i].line, 0);
		}
		for (uint32_t i = 0; i < THREADS; i++)
			for (uint32_t k = 0; k < PART / 4; k++) {
				uint32_t unit = k / (UNIT / 4), units = PART / UNIT;
				uint32_t last = (ROUNDS - 1 - unit) / units * units + unit;

				assert_int_equal(((uint32_t *)m.base)[i * (PART / 4) + k],
						 i << 24 | last);
			}
		weir_chunks_destroy(c);
		memory_close(&m);
	}
}
