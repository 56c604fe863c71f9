/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large puts and gets between two nodes, which WRITEs and READs do: every border size, memory of
 * the program and of the send heap, order, forced methods, revocation, ends.
 */
#define BYTES (1u << 20)
#define START 4096u
#include "places.h"

#include "remote/handle.h"
#include "remote/revoke.h"

#include <pthread.h>
#include <stdatomic.h>

static struct weir_region *own; /* of a */
static uint8_t *mine;		/* its memory */

static struct memory
large_make(enum place place)
{
	struct memory m = memory_make(place, &(struct plane_options){.send_blocks = 128}, ALL);
	struct weir_region_info info;

	assert_int_equal(weir_region_alloc(m.a, BYTES, NULL, &own), 0);
	weir_region_info(own, &info);
	mine = info.base;
	return m;
}

/* Each byte of the region but these is 0. */
static void
check_around(const struct memory *m, uint64_t from, uint64_t to)
{
	for (uint64_t i = 0; i < BYTES; i++)
		if ((i < START + from || i >= START + to) && m->base[i - START])
			fail_msg("byte %lu of the region was stored", (unsigned long)i);
}

static const uint32_t lengths[] = {1,	   8192,   8193,   65535,  65536,  65537,
				   131072, 200000, 262144, 262145, 500000, LENGTH};
#define EACH_LENGTH(n)                                                                             \
	for (unsigned n##_i = 0; n##_i < sizeof(lengths) / sizeof(lengths[0]); n##_i++)

static void
test_lengths(void **state)
{
	static const unsigned puts[] = {0, WEIR_KEEP, WEIR_WRITE, WEIR_RING, WEIR_BEHIND};
	static const unsigned gets[] = {0, WEIR_READ, WEIR_RING, WEIR_BEHIND, 0};

	for (unsigned k = 0; k < 10; k++) {
		struct memory m =
		    large_make(k == 9 ? APART : REMOTE); /* on one host the flags have no effect */
		struct weir_remote *r = open_key(&m, ALL);
		uint8_t *heap = malloc(LENGTH + 2);

		EACH_LENGTH(n)
		{
			uint32_t n = lengths[n_i], at = LENGTH - n > 5 ? 5 : LENGTH - n;
			uint8_t *from = k % 2 ? mine : heap;

			for (uint32_t i = 0; i < n; i++)
				from[i] = pattern(n_i + k, i);
			assert_int_equal(weir_remote_put(r, at, from, n, puts[k % 5]), 0);
			if (!(puts[k % 5] & WEIR_KEEP)) /* it is the library's no more */
				memset(from, 0xff, n);
			assert_int_equal(weir_remote_flush(r, PATIENT), 0);
			check_message(m.base + at, n_i + k, n);
			check_around(&m, at, at + n);
			from = k / 2 % 2 ? mine + 64 : heap + 1;
			memset(from - 1, 0xee, n + 2);
			assert_int_equal(weir_remote_get(r, at, from, n, gets[k % 5]), 0);
			assert_int_equal(n_i % 2 ? weir_remote_flush(r, PATIENT)
						 : weir_remote_flush_local(r, PATIENT),
					 0);
			check_message(from, n_i + k, n);
			assert_true(from[-1] == 0xee && from[n] == 0xee);
			memset(m.base, 0, LENGTH);
		}
		assert_int_equal(weir_remote_flush_local(r, 0), 0);
		free(heap);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* Operations of other kinds wait for large ones, and large ones that say so for all others. */
static void
test_order(void **state)
{
	struct memory m = large_make(REMOTE);
	struct weir_remote *r = open_key(&m, ALL);
	uint8_t *a = make_message(1, 300000), *b = make_message(2, 300000), *to = malloc(300000);
	struct weir_notice notice;
	struct weir_export *x;
	struct weir_key key;
	struct memory other = m;

	/* its notices go to this thread */
	assert_int_equal(weir_export(m.region, START, LENGTH, ALL, &x, &key), 0);
	other.key = key;
	weir_remote_close(r);
	r = open_key(&other, ALL);
	for (uint64_t i = 1; i < 40; i++) {
		uint64_t is = 0;

		assert_int_equal(weir_remote_put(r, 0, i % 2 ? a : b, 300000, 0), 0);
		assert_int_equal(weir_remote_put(r, 200000, &i, 8, 0), 0);
		assert_int_equal(weir_remote_get(r, 200000, &is, 8, 0), 0);
		assert_int_equal(weir_remote_get(r, 0, to, 300000, WEIR_BEHIND), 0);
		if (i % 3 == 0) {
			assert_int_equal(weir_remote_notify(r, (uint32_t)i, 0, 0), 0);
			assert_int_equal(weir_notice_next(m.b, &notice, PATIENT), 0);
			assert_int_equal(notice.tag, i);
			check_message(m.base, i % 2 ? 1 : 2, 200000);
			check_message(m.base + 200008, 0, 0);
		}
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_int_equal(is, i);
		check_message(to, i % 2 ? 1 : 2, 200000);
		assert_memory_equal(to + 200000, &i, 8);
		/* small ones before it */
		assert_int_equal(weir_remote_put(r, 100, &i, 8, 0), 0);
		assert_int_equal(weir_remote_put(r, 0, i % 2 ? b : a, 9000, WEIR_BEHIND), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		check_message(m.base, i % 2 ? 2 : 1, 9000);
	}
	free(a);
	free(b);
	free(to);
	weir_remote_close(r);
	assert_int_equal(weir_revoke(x), 0);
	memory_close(&m);
}

/* Large contiguous pieces of transfers with layouts and notices: a cell each, and the notice. */
static void
test_pieces(void **state)
{
	struct memory m = large_make(REMOTE), other = m;
	const struct weir_layout two = {
	    .block = 100000, .dims = 1, .dim = {{.count = 2, .stride = 150000}}};
	struct weir_transfer t = {.offset = 7, .notify = WEIR_WITH_NOTICE, .tag = 1};
	uint8_t *bytes = make_message(4, 200000), *to = malloc(200000);
	struct weir_notice notice;
	struct weir_remote *r;
	struct weir_export *x;
	struct weir_key key;
	struct weir_op op;
	uint64_t sent;

	/* its notices go to this thread */
	assert_int_equal(weir_export(m.region, START, LENGTH, ALL, &x, &key), 0);
	other.key = key;
	r = open_key(&other, ALL);
	assert_int_equal(weir_remote_put(r, 0, bytes, 1, 0), 0);
	assert_int_equal(weir_remote_flush(r, PATIENT), 0);
	for (unsigned i = 0; i < 8; i++) {
		bool laid = i & 1, keep = i & 2, ring = i & 4;

		memset(m.base, 0, LENGTH);
		memcpy(mine, bytes, 200000);
		t.buf = keep ? mine : bytes;
		t.length = 200000;
		t.there = laid ? &two : NULL;
		t.flags = (keep ? WEIR_KEEP : 0) | (ring ? WEIR_RING : 0);
		sent = LIST_FIRST(&r->lanes)->conn->sent;
		assert_int_equal(weir_remote_put_with(r, &t), 0);
		sent = LIST_FIRST(&r->lanes)->conn->sent - sent;
		assert_true(ring ? sent > 200 : sent == (laid ? 3 : 2));
		assert_int_equal(weir_notice_next(m.b, &notice, PATIENT), 0);
		assert_int_equal(notice.bytes, 200000);
		assert_memory_equal(m.base + 7, bytes, 100000);
		assert_memory_equal(m.base + 7 + (laid ? 150000 : 100000), bytes + 100000, 100000);
		check_around(&m, 7, laid ? 250007 : 200007);
		memset(to, 0, 200000);
		t.buf = keep ? mine : to;
		t.op = &op;
		assert_int_equal(weir_remote_get_with(r, &t), 0);
		t.op = NULL;
		/* the owner is told when the bytes were read */
		assert_int_equal(weir_notice_next(m.b, &notice, PATIENT), 0);
		memset(m.base, 0, LENGTH);
		assert_int_equal(weir_op_wait(&op, PATIENT), 0);
		assert_memory_equal(t.buf, bytes, 200000);
	}
	/* all at once: as cells, which never find room */
	t.flags = WEIR_NOWAIT;
	expect(weir_remote_put_with(r, &t), -EMSGSIZE);
	free(bytes);
	free(to);
	weir_remote_close(r);
	assert_int_equal(weir_revoke(x), 0);
	memory_close(&m);
}

static void
test_nowait(void **state)
{
	struct memory m = large_make(REMOTE);
	struct weir_remote *r = open_key(&m, ALL);
	uint8_t *bytes = make_message(1, LENGTH);
	unsigned n = 0;
	int rc;

	/* a quarter of the send heap has 256 KiB */
	expect(weir_remote_put(r, 0, bytes, 262145, WEIR_NOWAIT), -EMSGSIZE);
	expect(weir_remote_get(r, 0, bytes, 262145, WEIR_NOWAIT), -EMSGSIZE);
	plane_hold(m.f, true);
	while (!(rc = weir_remote_put(r, 300000, bytes, 262144, WEIR_NOWAIT)))
		n++;
	assert_int_equal(rc, -EAGAIN);
	assert_true(n >= 2);
	/* memory of a region needs none of the heap */
	memcpy(mine, bytes, LENGTH);
	assert_int_equal(weir_remote_put(r, 0, mine, LENGTH, WEIR_NOWAIT | WEIR_KEEP), 0);
	assert_int_equal(weir_remote_flush_local(r, 20), -EAGAIN);
	expect(weir_region_free(own), -EBUSY);
	plane_hold(m.f, false);
	assert_int_equal(weir_remote_flush_local(r, PATIENT), 0);
	check_message(m.base, 1, 300000);
	assert_int_equal(weir_remote_flush(r, PATIENT), 0);
	assert_int_equal(weir_region_free(own), 0);
	free(bytes);
	weir_remote_close(r);
	memory_close(&m);
}

static void
test_misuse(void **state)
{
	struct memory m = large_make(REMOTE);
	struct weir_remote *r = open_key(&m, WEIR_MAY_WRITE), *reads = open_key(&m, WEIR_MAY_READ);
	uint8_t *to = calloc(1, LENGTH + 1);

	expect(weir_remote_put(r, 1, to, LENGTH, 0), -ERANGE);
	expect(weir_remote_put(r, UINT64_MAX - 100, to, 9000, 0), -ERANGE);
	expect(weir_remote_get(r, 0, to, 9000, 0), -EACCES);
	expect(weir_remote_put(reads, 0, to, 9000, 0), -EACCES);
	expect(weir_remote_get(reads, LENGTH - 8999, to, 9000, 0), -ERANGE);
	expect(weir_remote_put(r, 0, to, 9000, WEIR_READ), -EINVAL);
	expect(weir_remote_get(reads, 0, to, 9000, WEIR_WRITE), -EINVAL);
	expect(weir_remote_put(r, 0, to, 9000, WEIR_WRITE | WEIR_RING), -EINVAL);
	/* the NICs know each with its own rights */
	assert_int_equal(weir_remote_put(r, 0, to, 9000, 0), 0);
	assert_int_equal(weir_remote_get(reads, 0, to, 9000, 0), 0);
	assert_int_equal(weir_remote_flush(r, PATIENT), 0);
	assert_int_equal(weir_remote_flush(reads, PATIENT), 0);
	free(to);
	weir_remote_close(r);
	weir_remote_close(reads);
	memory_close(&m);
}

struct writer {
	struct memory *m;
	pthread_t thread;
	uint8_t byte;
	bool gets;
	int rc; /* how it ended */
	_Atomic unsigned done;
};

static void *
writes(void *arg)
{
	struct writer *w = arg;
	uint8_t *bytes = malloc(LENGTH);
	struct weir_remote *r;
	int rc;

	memset(bytes, w->byte, LENGTH);
	rc = weir_remote_open(w->m->a, &w->m->key, ALL, 0, PATIENT, &r);
	for (unsigned i = 0; !rc; i++) {
		uint64_t at = i % 7 * 1000, n = 9000 + i % 11 * 30000;

		rc = w->gets ? weir_remote_get(r, at, bytes, n, 0)
			     : weir_remote_put(r, at, bytes, n, i % 2 ? WEIR_KEEP : 0);
		if (!rc && i % 5 == 0)
			rc = weir_remote_flush(r, PATIENT);
		atomic_fetch_add(&w->done, 1);
	}
	w->rc = rc;
	weir_remote_close(r);
	free(bytes);
	return NULL;
}

/* Nothing is stored once an export was revoked, or its memory is another's. */
static void
test_revoke(void **state)
{
	for (unsigned i = 0; i < 24; i++) {
		struct memory m = large_make(REMOTE);
		struct writer w[3] = {
		    {.m = &m, .byte = 1}, {.m = &m, .byte = 2}, {.m = &m, .gets = true}};
		uint8_t *left = malloc(BYTES);
		int rc;

		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(pthread_create(&w[k].thread, NULL, writes, &w[k]), 0);
		while (atomic_load(&w[0].done) < 1 + i || !atomic_load(&w[1].done) ||
		       !atomic_load(&w[2].done))
			sched_yield();
		if (i % 3 == 0) { /* again and again, as long as peers are not done */
			while ((rc = weir_export_revoke(m.x, 0)) == -EAGAIN)
				assert_true(strlen(weir_reason()) > 20);
			assert_int_equal(rc, 0);
		} else if (i % 3 == 1) {
			assert_int_equal(weir_revoke(m.x), 0);
		} else {
			plane_die(m.f, m.b);
		}
		if (i % 3 != 2) {
			memcpy(left, m.base - START, BYTES);
			memset(m.base, 0x55, LENGTH);
		}
		for (unsigned k = 0; k < 3; k++) {
			pthread_join(w[k].thread, NULL);
			assert_int_equal(w[k].rc, i % 3 == 2 ? -ECONNRESET : -ESTALE);
		}
		for (uint32_t at = 0; i % 3 != 2 && at < LENGTH; at++) {
			assert_true(left[START + at] <= 2);
			assert_int_equal(m.base[at], 0x55);
		}
		free(left);
		memory_close(&m);
	}
}

/* The exporting program frees the region: nothing waits, and its addresses are the program's. */
static void
test_freed_region(void **state)
{
	for (unsigned i = 0; i < 8; i++) {
		struct memory m = large_make(REMOTE);
		struct writer w = {.m = &m, .byte = 1};
		struct weir_region *again;

		assert_int_equal(pthread_create(&w.thread, NULL, writes, &w), 0);
		while (atomic_load(&w.done) < 2 + i)
			sched_yield();
		assert_int_equal(weir_region_free(m.region), 0);
		assert_int_equal(weir_region_alloc(m.b, BYTES, NULL, &again), 0);
		pthread_join(w.thread, NULL);
		assert_int_equal(w.rc, -ESTALE);
		assert_int_equal(weir_revoke(m.x), 0);
		memory_close(&m);
	}
}

/* Handles that are closed, and sessions that end, with transfers under way. */
static void
test_ends(void **state)
{
	for (unsigned i = 0; i < 6; i++) {
		struct memory m = large_make(REMOTE);
		struct weir_remote *r = open_key(&m, ALL);
		uint8_t *to = malloc(LENGTH), *from = make_message(3, LENGTH);

		memset(to, 0x77, LENGTH);
		plane_hold(m.f, true);
		assert_int_equal(weir_remote_get(r, 500000, to, 200000, 0), 0);
		assert_int_equal(weir_remote_put(r, 0, from, 200000, 0), 0);
		if (i / 2 == 0) {
			weir_remote_close(r);
			plane_hold(m.f, false);
			/* they take effect; and the heap is whole again */
			r = open_key(&m, ALL);
			assert_int_equal(weir_remote_get(r, 0, from, LENGTH, 0), 0);
			assert_int_equal(weir_remote_flush(r, PATIENT), 0);
			for (uint32_t k = 0; k < LENGTH; k++)
				assert_int_equal(to[k], 0x77);
			weir_remote_close(r);
		} else {
			plane_hold(m.f, false);
			plane_die(m.f, i / 2 == 1 ? m.a : m.b);
			if (i / 2 == 1)
				assert_int_equal(weir_revoke(m.x), 0);
			weir_remote_close(r);
		}
		free(to);
		free(from);
		memory_close(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_lengths), cmocka_unit_test(test_order),
	    cmocka_unit_test(test_nowait),  cmocka_unit_test(test_misuse),
	    cmocka_unit_test(test_revoke),  cmocka_unit_test(test_freed_region),
	    cmocka_unit_test(test_ends),    cmocka_unit_test(test_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
