/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More handles than connections: limits of the opening program, of the exporting one and of links.
 * Idle connections are closed and made again; operations, handles of operations, marks, locks,
 * notices and mappings do not notice.
 */
#define _GNU_SOURCE
#include "worlds/stream_pair.h"

#include "remote/handle.h"

#include "weir/remote.h"

#include <pthread.h>
#include <stdio.h>

#define BYTES 65536u
#define ALL (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY | WEIR_MAY_LOCK)
#define OWNERS 2u
#define EACH 4u /* exports of an owner, in regions of their own */
#define KEYS (OWNERS * EACH)

/* a opens what the owners export: the first one is on the other node. */
struct world {
	struct plane *f;
	struct weir *a, *owner[OWNERS], *third;
	struct weir_region *region[OWNERS];
	uint8_t *base[KEYS];
	struct weir_export *x[KEYS];
	struct weir_key key[KEYS];
	struct weir_remote *r[KEYS];
};

static void
expect(int rc, int want)
{
	assert_int_equal(rc, want);
	assert_true(strlen(weir_reason()) > 20);
}

static struct weir *
attach_named(struct plane *f, const char *name)
{
	struct weir_options o = WEIR_OPTIONS_INIT;

	o.name = name;
	return plane_attach_with(f, &o);
}

/* all: owners are on the other node; else each is on one. */
static void
begin(struct world *w, struct plane_options o, bool all)
{
	struct weir_region_info info;

	*w = (struct world){.f = plane_create(&o)};
	w->a = attach_named(w->f, "origin");
	for (unsigned i = 0; i < OWNERS; i++) {
		w->owner[i] =
		    o.nodes ? plane_attach(w->f) : plane_attach_at(w->f, all || i == 0 ? 1 : 0);
		assert_int_equal(weir_region_alloc(w->owner[i], EACH * BYTES, NULL, &w->region[i]),
				 0);
		weir_region_info(w->region[i], &info);
		for (unsigned k = i * EACH; k < (i + 1) * EACH; k++) {
			w->base[k] = (uint8_t *)info.base + k % EACH * BYTES;
			assert_int_equal(weir_export(w->region[i], k % EACH * BYTES, BYTES, ALL,
						     &w->x[k], &w->key[k]),
					 0);
		}
	}
	plane_run(w->f);
}

static void
open_all(struct world *w)
{
	for (unsigned k = 0; k < KEYS; k++)
		assert_int_equal(weir_remote_open(w->a, &w->key[k], ALL, 0, PATIENT, &w->r[k]), 0);
}

static void
end(struct world *w)
{
	for (unsigned k = 0; k < KEYS; k++)
		weir_remote_close(w->r[k]);
	plane_stop(w->f);
	plane_settle(w->f);
	weir_detach(w->a);
	for (unsigned i = 0; i < OWNERS; i++)
		weir_detach(w->owner[i]);
	if (w->third)
		weir_detach(w->third);
	plane_destroy(w->f);
}

/* The calling thread's connection; looking is no use of it. */
static struct weir_conn *
conn_of(const struct weir_remote *r)
{
	const struct weir_remote_lane *l;

	LIST_FOREACH(l, &r->lanes, in_remote)
	if (l->worker == weir_thread_get(r->w))
		return l->conn;
	return NULL;
}

/* Connections of the handles. */
static unsigned
connected(const struct world *w)
{
	unsigned n = 0;

	for (unsigned k = 0; k < KEYS; k++)
		n += w->r[k] && conn_of(w->r[k]);
	return n;
}

static uint64_t
word(const struct world *w, unsigned k, unsigned at)
{
	uint64_t v;

	memcpy(&v, w->base[k] + at * 8, sizeof(v));
	return v;
}

static void
add(struct world *w, unsigned k, uint64_t n, uint64_t *before)
{
	const struct weir_update u = {
	    .operand = &n, .result = before, .count = 1, .type = WEIR_T_UINT64, .op = WEIR_ACC_SUM};

	assert_int_equal(weir_remote_update(w->r[k], &u), 0);
}

/* ---- operations ---- */

#define BIG 20000u /* bytes of a put that is no cell */

/* A thread that uses all handles: the words as it left them, and its operations. */
struct model {
	uint64_t sum[KEYS], put[KEYS];
	struct weir_op op[64];
	struct weir_mark mark[16];
	unsigned ops, marks;
	uint32_t seed;
};

static uint32_t
draw(struct model *m)
{
	m->seed = m->seed * 1103515245u + 12345;
	return m->seed >> 8;
}

/*
 * Random operations on random handles: none is lost, none takes effect twice, results are the
 * values before, and handles and marks of operations end.
 */
static void
churn(struct world *w, struct model *m, unsigned rounds, unsigned limit)
{
	static uint8_t big[BIG], got[BIG];
	uint64_t before, seen;

	for (unsigned i = 0; i < rounds; i++) {
		unsigned k = draw(m) % KEYS, what = draw(m) % 8;
		struct weir_transfer t = {.offset = 4096,
					  .buf = big,
					  .length = what == 5 ? BIG : 100,
					  .flags = WEIR_AT_TARGET,
					  .op = &m->op[m->ops % 64]};

		switch (what) {
		case 0:
		case 1:
			add(w, k, i, NULL);
			m->sum[k] += i;
			break;
		case 2:
			add(w, k, 1, &before);
			assert_int_equal(weir_remote_flush_local(w->r[k], PATIENT), 0);
			assert_int_equal(before, m->sum[k]++);
			break;
		case 3:
			m->put[k] = draw(m);
			assert_int_equal(
			    weir_remote_put(w->r[k], 8, &m->put[k], sizeof(m->put[k]), 0), 0);
			break;
		case 4:
		case 5:
			assert_int_equal(weir_op_wait(t.op, PATIENT), 0);
			assert_int_equal(weir_remote_put_with(w->r[k], &t), 0);
			m->ops++;
			break;
		case 6:
			assert_int_equal(weir_remote_get(w->r[k], 8, &seen, sizeof(seen), 0), 0);
			weir_remote_mark(w->r[k], &m->mark[m->marks++ % 16]);
			assert_int_equal(weir_remote_flush(w->r[k], PATIENT), 0);
			assert_int_equal(seen, m->put[k]);
			break;
		default:
			assert_int_equal(weir_remote_get(w->r[k], 4096, got, BIG, 0), 0);
			assert_int_equal(weir_remote_flush(w->r[k], PATIENT), 0);
		}
		assert_true(connected(w) <= limit);
	}
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(weir_op_wait(&m->op[i], PATIENT), 0);
		assert_int_equal(m->op[i].status, 0);
	}
	for (unsigned k = 0; k < KEYS; k++)
		assert_int_equal(weir_remote_flush(w->r[k], PATIENT), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(weir_mark_done(&m->mark[i]), 1);
	for (unsigned k = 0; k < KEYS; k++) {
		assert_int_equal(word(w, k, 0), m->sum[k]);
		assert_int_equal(word(w, k, 1), m->put[k]);
	}
}

static void
test_churn(void **state)
{
	static const struct {
		const char *text;
		unsigned is;
	} limits[] = {{"1", 1}, {"2", 2}, {"3", 3}, {"7", 7}};

	for (unsigned i = 0; i < 4; i++) {
		struct model m = {.seed = i};
		struct world w;

		begin(&w, (struct plane_options){.engines = 1 + i % 2}, false);
		plane_set(w.f, "program.origin.connections", limits[i].text);
		open_all(&w);
		churn(&w, &m, 400, limits[i].is);
		end(&w);
	}
}

/* The same while frames are lost and queue pairs are repaired. */
static void
test_churn_lossy(void **state)
{
	struct model m = {.seed = 1};
	struct world w;

	begin(&w, (struct plane_options){.engines = 1}, true);
	plane_impair(w.f, 5, 2, 5);
	plane_set(w.f, "program.origin.connections", "2");
	open_all(&w);
	churn(&w, &m, 150, 2);
	end(&w);
}

/* The limit is that of the exporting programs, which have the same name. */
static void
test_target(void **state)
{
	char key[80];
	struct model m = {.seed = 1};
	struct world w;

	begin(&w, (struct plane_options){.engines = 1}, true);
	snprintf(key, sizeof(key), "program.%s.connections", program_invocation_short_name);
	plane_set(w.f, key, "2");
	open_all(&w);
	/* those of an owner were closed for its own */
	for (unsigned k = 0; k < KEYS; k++)
		assert_true(k % EACH == EACH - 1 ? !!conn_of(w.r[k])
						 : k % EACH >= 2 || !conn_of(w.r[k]));
	churn(&w, &m, 300, 4);
	end(&w);
}

/* ---- which one is closed ---- */

static void
test_order(void **state)
{
	struct weir_remote_info info;
	struct world w;

	begin(&w, (struct plane_options){.engines = 1}, false);
	plane_set(w.f, "program.origin.connections", "4");
	for (unsigned k = 0; k < 4; k++)
		assert_int_equal(weir_remote_open(w.a, &w.key[k], ALL, 0, PATIENT, &w.r[k]), 0);
	/* used last: 2, 0, 3, 1 */
	for (unsigned i = 0; i < 4; i++) {
		static const unsigned order[] = {2, 0, 3, 1};

		add(&w, order[i], 1, NULL);
		assert_int_equal(weir_remote_flush(w.r[order[i]], PATIENT), 0);
	}
	for (unsigned k = 4; k < 7; k++) {
		static const unsigned left[] = {2, 0, 3};

		assert_int_equal(weir_remote_open(w.a, &w.key[k], ALL, 0, PATIENT, &w.r[k]), 0);
		assert_null(conn_of(w.r[left[k - 4]]));
	}
	assert_non_null(conn_of(w.r[1]));
	/* the handle says what it said */
	weir_remote_info(w.r[2], &info);
	assert_int_equal(info.length, BYTES);
	assert_int_equal(weir_remote_flush(w.r[2], 0), 0);
	add(&w, 2, 1, NULL);
	assert_int_equal(weir_remote_flush(w.r[2], PATIENT), 0);
	assert_int_equal(word(&w, 2, 0), 2);
	end(&w);
}

/* Locks, operations under way and other threads keep their connections. */
static void
test_kept(void **state)
{
	uint64_t one = 1;
	struct world w;

	begin(&w, (struct plane_options){.engines = 1}, false);
	plane_set(w.f, "program.origin.connections", "2");
	for (unsigned k = 0; k < 2; k++) {
		assert_int_equal(weir_remote_open(w.a, &w.key[k], ALL, 0, PATIENT, &w.r[k]), 0);
		assert_int_equal(weir_remote_lock(w.r[k], WEIR_LOCK_EXCLUSIVE, PATIENT), 0);
	}
	expect(weir_remote_open(w.a, &w.key[2], ALL, 0, PATIENT, &w.r[2]), -EMFILE);
	w.r[2] = NULL;
	assert_int_equal(connected(&w), 2);
	assert_int_equal(weir_remote_unlock(w.r[1], PATIENT), 0);
	assert_int_equal(weir_remote_open(w.a, &w.key[2], ALL, 0, PATIENT, &w.r[2]), 0);
	assert_null(conn_of(w.r[1]));
	/* that lock is free, and can be had again by the same handle */
	assert_int_equal(weir_remote_unlock(w.r[1], PATIENT), -ENOLCK);
	assert_int_equal(weir_remote_lock(w.r[1], WEIR_LOCK_EXCLUSIVE, PATIENT), 0);
	assert_null(conn_of(w.r[2]));
	assert_int_equal(weir_remote_unlock(w.r[1], PATIENT), 0);
	assert_int_equal(weir_remote_unlock(w.r[0], PATIENT), 0);
	/* an operation under way: who may not wait is told to try again, until it is complete */
	assert_int_equal(weir_remote_lock(w.r[0], WEIR_LOCK_EXCLUSIVE, PATIENT), 0);
	plane_hold(w.f, true);
	add(&w, 1, 5, NULL);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(weir_remote_put(w.r[2], 0, &one, sizeof(one), WEIR_NOWAIT),
				 -EAGAIN);
	assert_non_null(conn_of(w.r[1]));
	plane_hold(w.f, false);
	while (weir_remote_put(w.r[2], 0, &one, sizeof(one), WEIR_NOWAIT) == -EAGAIN)
		;
	assert_int_equal(weir_remote_flush(w.r[2], PATIENT), 0);
	assert_null(conn_of(w.r[1]));
	assert_int_equal(word(&w, 1, 0), 5);
	assert_int_equal(word(&w, 2, 0), 1);
	assert_int_equal(weir_remote_unlock(w.r[0], PATIENT), 0);
	end(&w);
}

static void *
use_all(void *arg)
{
	struct world *w = arg;
	uint64_t n = 0;

	for (unsigned i = 0; i < 200; i++) {
		unsigned k = i % KEYS;
		int rc = weir_remote_fetch_op(w->r[k], 16, &(uint64_t){1}, &n, WEIR_T_UINT64,
					      WEIR_ACC_SUM, 0);

		if (!rc)
			rc = weir_remote_flush(w->r[k], PATIENT);
		if (rc)
			return (void *)(intptr_t)rc;
	}
	return NULL;
}

/*
 * Threads with more handles than the program has connections: each closes its own, and where it has
 * none those of others, but for the one that they used last. Opening does not wait.
 */
static void
test_threads(void **state)
{
	pthread_t t[3];
	struct world w;
	void *rc;

	begin(&w, (struct plane_options){.engines = 2}, false);
	plane_set(w.f, "program.origin.connections", "3");
	for (unsigned k = 0; k < KEYS; k++)
		assert_int_equal(weir_remote_open(w.a, &w.key[k], ALL, 0, 0, &w.r[k]), 0);
	for (unsigned k = 0; k < KEYS; k++)
		add(&w, k, 1, NULL);
	for (unsigned k = 0; k < KEYS; k++)
		assert_int_equal(weir_remote_flush(w.r[k], PATIENT), 0);
	assert_true(connected(&w) <= 3);
	plane_set(w.f, "program.origin.connections", "4");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, use_all, &w), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(t[i], &rc), 0);
		assert_int_equal((intptr_t)rc, 0);
	}
	for (unsigned k = 0; k < KEYS; k++)
		assert_int_equal(word(&w, k, 2), 3 * 200 / KEYS);
	end(&w);
}

static void *
use_first(void *arg)
{
	struct world *w = arg;
	uint64_t one = 1;
	int rc = weir_remote_put(w->r[0], 0, &one, sizeof(one), 0);

	if (!rc)
		rc = weir_remote_flush(w->r[0], PATIENT);
	return (void *)(intptr_t)rc;
}

/* A thread that may be inside a call with its connection keeps that, and gives up others. */
static void
test_other_thread(void **state)
{
	pthread_t t;
	struct world w;
	void *rc;

	begin(&w, (struct plane_options){.engines = 1}, false);
	plane_set(w.f, "program.origin.connections", "1");
	assert_int_equal(weir_remote_open(w.a, &w.key[0], ALL, 0, PATIENT, &w.r[0]), 0);
	assert_int_equal(pthread_create(&t, NULL, use_first, &w), 0);
	assert_int_equal(pthread_join(t, &rc), 0);
	assert_int_equal((intptr_t)rc, -EMFILE);
	assert_non_null(conn_of(w.r[0]));
	plane_set(w.f, "program.origin.connections", "2");
	assert_int_equal(weir_remote_open(w.a, &w.key[1], ALL, 0, PATIENT, &w.r[1]), 0);
	assert_int_equal(pthread_create(&t, NULL, use_first, &w), 0);
	assert_int_equal(pthread_join(t, &rc), 0);
	assert_int_equal((intptr_t)rc, 0);
	assert_null(conn_of(w.r[0]));
	assert_non_null(conn_of(w.r[1]));
	/* that thread has ended: so may its connection */
	add(&w, 0, 1, NULL);
	assert_int_equal(weir_remote_flush(w.r[0], PATIENT), 0);
	assert_int_equal(word(&w, 0, 0), 2);
	end(&w);
}

/* Threads that use one handle in turn do not displace each other's lanes. */
static void
test_turns(void **state)
{
	struct weir_thread *t[2];
	struct world w;

	begin(&w, (struct plane_options){.engines = 2}, false);
	assert_int_equal(weir_remote_open(w.a, &w.key[0], ALL, 0, PATIENT, &w.r[0]), 0);
	t[0] = weir_thread_get(w.a);
	t[1] = weir_thread_new(w.a);
	assert_non_null(t[1]);
	for (unsigned i = 0; i < 8; i++) {
		weir_thread_use(t[i % 2]);
		add(&w, 0, 1, NULL);
		assert_int_equal(weir_remote_flush(w.r[0], PATIENT), 0);
		for (unsigned k = 0; k < 2 && i; k++)
			assert_ptr_equal(atomic_load(weir_lane_recent(w.r[0], t[k]))->worker, t[k]);
	}
	assert_int_equal(word(&w, 0, 0), 8);
	end(&w);
}

/* ---- ends ---- */

/* An end while nobody looked is told as an end, by each call, and not as a wrong key. */
static void
test_ended(void **state)
{
	uint64_t one = 1;
	struct world w;

	for (unsigned i = 0; i < OWNERS; i++) {
		begin(&w, (struct plane_options){.engines = 1}, false);
		plane_set(w.f, "program.origin.connections", "1");
		open_all(&w);
		assert_null(conn_of(w.r[i * EACH]));
		assert_int_equal(weir_revoke(w.x[i * EACH]), 0);
		assert_int_equal(weir_remote_flush(w.r[i * EACH], 0), 0);
		for (unsigned k = 0; k < 3; k++)
			expect(weir_remote_put(w.r[i * EACH], 0, &one, sizeof(one), 0), -ESTALE);
		expect(weir_remote_lock(w.r[i * EACH], WEIR_LOCK_SHARED, PATIENT), -ESTALE);
		/* the others are as they were */
		for (unsigned k = 0; k < KEYS; k++)
			if (k != i * EACH)
				add(&w, k, 1, NULL);
		end(&w);
	}
}

/* Notices come once and in order, though their connections are many. */
static void
test_notices(void **state)
{
	struct weir_notice n;
	struct world w;

	begin(&w, (struct plane_options){.engines = 1}, false);
	plane_set(w.f, "program.origin.connections", "1");
	open_all(&w);
	for (uint32_t i = 0; i < 60; i++)
		assert_int_equal(weir_remote_notify(w.r[i % KEYS], i, i % KEYS, 0), 0);
	for (unsigned o = 0; o < OWNERS; o++) {
		for (uint32_t i = 0; i < 60; i++) {
			if (i % KEYS / EACH != o)
				continue;
			assert_int_equal(weir_notice_next(w.owner[o], &n, PATIENT), 0);
			assert_int_equal(n.tag, i);
			assert_ptr_equal(n.x, w.x[i % KEYS]);
		}
		assert_int_equal(weir_notice_next(w.owner[o], &n, 0), -EAGAIN);
	}
	end(&w);
}

/* A mapping keeps the connection that tells how the export ends. */
static void
test_mapped(void **state)
{
	struct weir_region *region;
	struct weir_export *x;
	struct weir_remote *r;
	struct weir_key key;
	uint64_t one = 1;
	struct world w;

	begin(&w, (struct plane_options){.engines = 1}, false);
	assert_int_equal(weir_revoke(w.x[EACH]), 0);
	assert_int_equal(weir_region_alloc(w.owner[1], BYTES, NULL, &region), 0);
	assert_int_equal(weir_export(region, 0, BYTES, ALL | WEIR_MAY_MAP, &x, &key), 0);
	plane_set(w.f, "program.origin.connections", "2");
	assert_int_equal(weir_remote_open(w.a, &key, ALL, 0, PATIENT, &r), 0);
	assert_non_null(r->direct.at);
	assert_int_equal(weir_remote_notify(r, 1, 0, 0), 0);
	for (unsigned k = 0; k < EACH; k++) { /* it is the one that was not used for longest */
		assert_int_equal(weir_remote_open(w.a, &w.key[k], ALL, 0, PATIENT, &w.r[k]), 0);
		assert_int_equal(weir_remote_put(r, 0, &one, sizeof(one), 0), 0);
	}
	assert_int_equal(connected(&w), 1);
	assert_int_equal(weir_remote_flush(r, PATIENT), 0);
	assert_int_equal(weir_revoke(x), 0);
	while (!weir_remote_put(r, 0, &one, sizeof(one), 0))
		weir_remote_flush(r, 0);
	expect(weir_remote_put(r, 0, &one, sizeof(one), 0), -ESTALE);
	weir_remote_close(r);
	end(&w);
}

/* Each program is on a node of its own, and the data plane of `a` has links to two of three. */
static void
test_links(void **state)
{
	struct weir_region *region;
	struct weir_export *x;
	struct weir_remote *r;
	struct weir_key key;
	struct world w;

	begin(&w, (struct plane_options){.engines = 1, .nodes = true, .links = 2}, true);
	w.third = plane_attach(w.f);
	assert_int_equal(weir_region_alloc(w.third, BYTES, NULL, &region), 0);
	assert_int_equal(weir_export(region, 0, BYTES, ALL, &x, &key), 0);
	open_all(&w);
	assert_int_equal(connected(&w), KEYS);
	for (unsigned k = 0; k < EACH; k++) { /* the second node was used less recently */
		add(&w, k, 1, NULL);
		assert_int_equal(weir_remote_flush(w.r[k], PATIENT), 0);
	}
	assert_int_equal(weir_remote_open(w.a, &key, ALL, 0, PATIENT, &r), 0);
	for (unsigned k = 0; k < KEYS; k++)
		assert_int_equal(!!conn_of(w.r[k]), k < EACH);
	weir_remote_close(r);
	weir_remote_close(w.r[0]);
	w.r[0] = NULL;
	end(&w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_churn),	 cmocka_unit_test(test_churn_lossy),
	    cmocka_unit_test(test_target),	 cmocka_unit_test(test_order),
	    cmocka_unit_test(test_kept),	 cmocka_unit_test(test_threads),
	    cmocka_unit_test(test_other_thread), cmocka_unit_test(test_ended),
	    cmocka_unit_test(test_notices),	 cmocka_unit_test(test_mapped),
	    cmocka_unit_test(test_links),	 cmocka_unit_test(test_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
