/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls behind puts, and gets in functions: order, borders, room, failures, the end of a thread. */
#include "caller.h"

#include "weir/memory.h"
#include "weir/remote.h"

#include <stdlib.h>

enum { SEEN, NUMBERED, BACK, FETCH, BAD_FETCH, TABLE };

#define BYTES (2u << 20)
#define EACH 40u	  /* calls of a test */
#define LONG (192u << 10) /* bytes of a get: ten are more than are under way at a time */

/* Bytes of `seed` at an offset of memory. */
struct piece {
	uint32_t number, seed;
	uint64_t offset, length;
};

static const uint32_t sizes[] = {1, 8, 100, 4096, 8192, 8193, 30000, 65536, 200000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

enum place { FAR, APART, MAPPED };
static enum place place;

/* By member: memory that it exports. */
static uint8_t *base[2];
static struct weir_key keys[2];
static pthread_barrier_t both; /* ThreadSanitizer does not see the order that the group's makes */

/* A member's, in its thread. */
struct member {
	struct caller c;
	struct weir_region *region;
	struct weir_export *x;
	struct weir_remote *r; /* the other one's memory */
	uint32_t number;       /* of the next call */
	uint32_t back, fetched, ended;
	int status; /* of the last get */
};
static __thread struct member *me;

static uint8_t
byte_at(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 12));
}

static void
fill(uint8_t *p, uint32_t seed, size_t length)
{
	for (size_t i = 0; i < length; i++)
		p[i] = byte_at(seed, i);
}

static bool
is_filled(const uint8_t *p, uint32_t seed, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (p[i] != byte_at(seed, i))
			return false;
	return true;
}

static void
run_seen(struct weir_incoming *c, const void *args, size_t length)
{
	struct piece p;

	memcpy(&p, args, sizeof(p));
	if (p.number != me->number++ || !is_filled(base[1] + p.offset, p.seed, p.length))
		me->c.wrong++;
}

static void
run_numbered(struct weir_incoming *c, const void *args, size_t length)
{
	uint32_t number;

	memcpy(&number, args, sizeof(number));
	if (number != me->number++)
		me->c.wrong++;
}

/* Puts into the caller's memory and calls it until there is no room, which takes 4,096 calls. */
static void
run_back(struct weir_incoming *c, const void *args, size_t length)
{
	uint8_t bytes[64];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < 20000; i++) {
		fill(bytes, i, sizeof(bytes));
		rc = weir_call_put(weir_incoming_invoker(c), weir_incoming_from(c), NUMBERED, &i,
				   sizeof(i), me->r, 64 * (i % (BYTES / 64)), bytes, sizeof(bytes),
				   NULL);
		me->back += !rc;
	}
	/* puts into mapped memory end at once: there is room while the other thread runs calls */
	if (rc != -EAGAIN && (rc || place != MAPPED))
		me->c.wrong++;
}

static void
give_fetched(struct weir_invoker *v, const struct weir_answer *a, void *to, size_t bytes,
	     int status)
{
	uint64_t sum = 0;

	me->ended++;
	me->status = status;
	for (size_t i = 0; i < bytes; i++)
		sum += ((uint8_t *)to)[i];
	if (weir_answer(v, a, -status, &sum, sizeof(sum)))
		me->c.wrong++;
	free(to);
}

static void
run_fetch(struct weir_incoming *c, const void *args, size_t length)
{
	struct piece p;
	void *to;

	memcpy(&p, args, sizeof(p));
	to = malloc(p.length + 1);
	me->fetched++;
	if (weir_incoming_get(c, me->r, p.offset, to, p.length, give_fetched))
		me->c.wrong++;
	/* it is given later */
	if (weir_incoming_result(c, NULL, 0) != -EINVAL)
		me->c.wrong++;
}

/* The get cannot begin, or its caller expects nothing: the function still answers. */
static void
run_bad_fetch(struct weir_incoming *c, const void *args, size_t length)
{
	uint8_t to[8];
	uint32_t way;
	int rc;

	memcpy(&way, args, sizeof(way));
	rc = weir_incoming_get(c, me->r, way ? 0 : BYTES, to, sizeof(to), give_fetched);
	if (rc != (way ? -EINVAL : -ERANGE) || (!way && weir_incoming_result(c, &rc, sizeof(rc))))
		me->c.wrong++;
	me->fetched++;
}

static const struct weir_function table[TABLE] = {
    [SEEN] = {.name = "seen",
	      .min_length = sizeof(struct piece),
	      .max_length = sizeof(struct piece),
	      .run = run_seen},
    [NUMBERED] = {.name = "numbered", .min_length = 4, .max_length = 4, .run = run_numbered},
    [BACK] = {.name = "back", .run = run_back},
    [FETCH] = {.name = "fetch",
	       .min_length = sizeof(struct piece),
	       .max_length = sizeof(struct piece),
	       .run = run_fetch},
    [BAD_FETCH] = {.name = "bad fetch", .min_length = 4, .max_length = 4, .run = run_bad_fetch},
};

static const struct weir_to other = {1, 0}, first = {0, 0};

/* Enters, exports memory, and opens the other's. */
static int
come(struct team *t, uint32_t index, struct member *m, uint32_t queue_bytes, unsigned rights)
{
	struct weir_invoker_options o = standard();
	struct weir_region_info info;
	int rc;

	*m = (struct member){0};
	me = m;
	o.functions = table;
	o.function_count = TABLE;
	if (queue_bytes)
		o.queue_bytes = queue_bytes;
	CHECK(!weir_region_alloc(t->w[index], BYTES, NULL, &m->region));
	rc = begin(t, index, &o, &m->c);
	CHECK(!rc);
	weir_region_info(m->region, &info);
	base[m->c.process] = info.base;
	CHECK(!weir_export(m->region, 0, BYTES,
			   WEIR_MAY_READ | WEIR_MAY_WRITE | (place == MAPPED ? WEIR_MAY_MAP : 0),
			   &m->x, &keys[m->c.process]));
	pthread_barrier_wait(&both);
	CHECK(!weir_remote_open(t->w[index], &keys[1 - m->c.process], rights,
				place == APART ? WEIR_OPEN_APART : 0, PATIENT, &m->r));
	return 0;
}

static int
go(struct team *t, uint32_t index, struct member *m)
{
	int rc = end(t, index, &m->c);

	CHECK(!rc);
	weir_remote_close(m->r);
	CHECK(!weir_group_barrier(m->c.g, PATIENT));
	weir_revoke(m->x); /* which may have been evicted */
	weir_region_free(m->region);
	return 0;
}

static void
run_at(enum place at, int (*run)(struct team *t, uint32_t index))
{
	place = at;
	pthread_barrier_init(&both, NULL, 2);
	if (place == FAR)
		team_of(2, run);
	else
		team_of_one_node(2, run);
	pthread_barrier_destroy(&both);
}

static void
everywhere(int (*run)(struct team *t, uint32_t index))
{
	for (unsigned at = FAR; at <= MAPPED; at++)
		run_at((enum place)at, run);
}

/* ---- puts ---- */

static int
call_behind_puts(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = PATIENT};
	uint8_t *from = malloc(BYTES);
	struct piece p = {0};
	struct weir_sync s;
	struct member m;
	int rc = come(t, index, &m, 0, WEIR_MAY_READ | WEIR_MAY_WRITE);

	CHECK(!rc && from);
	weir_sync_init(&s, 0, NULL, NULL);
	for (; !m.c.process && p.number < EACH; p.number++) {
		p.seed = p.number;
		p.length = sizes[p.number % SIZES];
		with.flags = p.number % 5 == 4 ? WEIR_CALL_SYNC_SENT : 0;
		with.sync = p.number % 2 ? &s : NULL;
		weir_sync_add(&s, p.number % 2);
		if (p.number % 4 == 3) { /* keeps the order */
			CHECK(!weir_call(m.c.v, other, NUMBERED, &p.number, 4, &with));
			continue;
		}
		fill(from, p.seed, p.length);
		CHECK(!weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, p.offset, from,
				     p.length, &with));
		memset(from, 0, p.length);
		p.offset += p.length;
	}
	if (!m.c.process) {
		CHECK(!weir_sync_wait(m.c.v, &s, PATIENT));
		/* also without a sync, and to the own thread, which looks there itself */
		fill(from, 99, 100);
		p = (struct piece){.seed = 99, .length = 100};
		CHECK(!weir_call_put(m.c.v, first, SEEN, &p, sizeof(p), m.r, 0, from, 100, NULL));
		while (!m.number)
			CHECK(weir_invoker_progress(m.c.v, 0, PATIENT) >= 0);
	}
	free(from);
	CHECK(!weir_invoker_quiet(m.c.v, PATIENT));
	CHECK(m.number == (m.c.process ? EACH : 1));
	return go(t, index, &m);
}

/* A function finds what was put; the line keeps its order. */
TEST(test_put)
{
	everywhere(call_behind_puts);
}

static int
put_in_function(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct member m;
	int rc = come(t, index, &m, 1u << 16, WEIR_MAY_READ | WEIR_MAY_WRITE);

	CHECK(!rc);
	/* a function does not wait for the connection */
	CHECK(!weir_remote_put(m.r, 0, "", 1, 0) && !weir_remote_flush(m.r, PATIENT));
	CHECK(!weir_group_barrier(m.c.g, PATIENT));
	if (!m.c.process)
		CHECK(!weir_call(m.c.v, other, BACK, NULL, 0, NULL));
	CHECK(!weir_invoker_quiet(m.c.v, PATIENT));
	CHECK(!weir_invoker_stats(m.c.v, &stats));
	CHECK(stats.queue_bytes == 0 && stats.dropped == 0);
	if (m.c.process)
		CHECK(stats.made == m.back && m.back > 1);
	else
		CHECK(stats.run == m.number && m.number > 1);
	return go(t, index, &m);
}

/* A function does not wait: calls behind puts are queued as others are, and all of them run. */
TEST(test_put_in_function)
{
	everywhere(put_in_function);
}

static int
put_badly(struct team *t, uint32_t index)
{
	struct weir_call_options with = {
	    .timeout_ms = PATIENT, .payload = "x", .payload_length = 1};
	struct piece p = {.length = 8};
	struct weir_sync s;
	struct member m;
	uint8_t from[8] = {0};
	int rc = come(t, index, &m, 0, WEIR_MAY_READ);

	CHECK(!rc);
	weir_sync_init(&s, 1, NULL, NULL);
	if (!m.c.process) {
		CHECK(weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, 0, from, 8, &with) ==
		      -EINVAL);
		with = (struct weir_call_options){.timeout_ms = PATIENT, .sync = &s};
		CHECK(weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, 0, from, 8, &with) ==
		      -EACCES);
		weir_remote_close(m.r);
		CHECK(!weir_remote_open(t->w[index], &keys[1], WEIR_MAY_WRITE,
					place == APART ? WEIR_OPEN_APART : 0, PATIENT, &m.r));
		CHECK(weir_call_put(m.c.v, other, SEEN, &p, 1, m.r, 0, from, 8, &with) ==
		      -EMSGSIZE);
		CHECK(weir_call_put(m.c.v, other, TABLE, &p, sizeof(p), m.r, 0, from, 8, &with) ==
		      -EINVAL);
		CHECK(weir_call_put(m.c.v, (struct weir_to){2, 0}, SEEN, &p, sizeof(p), m.r, 0,
				    from, 8, &with) == -ENOENT);
		CHECK(weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, BYTES - 7, from, 8,
				    &with) == -ERANGE);
		CHECK(weir_sync_left(&s, NULL) == 1);
		/* the line is as it was */
		fill(from, 0, 8);
		CHECK(!weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, 0, from, 8, &with));
		CHECK(!weir_sync_wait(m.c.v, &s, PATIENT));
	}
	CHECK(!weir_invoker_quiet(m.c.v, PATIENT));
	CHECK(m.number == m.c.process);
	return go(t, index, &m);
}

/* Refused calls leave nothing behind. */
TEST(test_put_badly)
{
	everywhere(put_badly);
}

static int
put_late(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct piece p = {.length = 8};
	uint8_t from[8] = {0};
	uint64_t failed;
	struct weir_sync s;
	struct weir_call_options with = {.timeout_ms = PATIENT, .sync = &s};
	struct member m;
	int rc = come(t, index, &m, 0, WEIR_MAY_READ | WEIR_MAY_WRITE);

	CHECK(!rc);
	if (!m.c.process) {
		weir_sync_init(&s, 1, NULL, NULL);
		fill(from, 0, 8);
		CHECK(!weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, 0, from, 8, &with));
		CHECK(!weir_sync_wait(m.c.v, &s, PATIENT));
		/* two are under way when the export ends; a call behind them runs */
		plane_hold(t->f, true);
		weir_sync_init(&s, 2, NULL, NULL);
		for (unsigned i = 0; i < 2; i++)
			CHECK(!weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, 0, from, 8,
					     &with));
		CHECK(plane_evict_export(t->f, t->w[1 - index], 1) == 1);
		plane_hold(t->f, false);
		CHECK(weir_sync_wait(m.c.v, &s, PATIENT) == -ESTALE);
		CHECK(!weir_sync_left(&s, &failed) && failed == 2);
		weir_sync_init(&s, 1, NULL, NULL);
		p.number = 1;
		CHECK(!weir_call(m.c.v, other, NUMBERED, &p.number, 4, &with));
		CHECK(!weir_sync_wait(m.c.v, &s, PATIENT));
		CHECK(weir_call_put(m.c.v, other, SEEN, &p, sizeof(p), m.r, 0, from, 8, &with) ==
		      -ESTALE);
		CHECK(!weir_invoker_stats(m.c.v, &stats) && stats.dropped == 2);
		CHECK(!stats.queue_bytes);
	}
	/* calls have not run */
	CHECK(weir_invoker_quiet(m.c.v, PATIENT) == -EHOSTUNREACH);
	CHECK(m.number == 2 * m.c.process);
	return go(t, index, &m);
}

/* A put that fails later ends its call, and no other. */
TEST(test_put_fails)
{
	run_at(FAR, put_late);
}

/* ---- gets ---- */

static int
get_in_function(struct team *t, uint32_t index)
{
	struct weir_future f[EACH] = {0};
	uint64_t sum[EACH] = {0}, is;
	struct member m;
	int rc = come(t, index, &m, 0, WEIR_MAY_READ), gave = 0;

	CHECK(!rc);
	if (!m.c.process) {
		fill(base[0], 5, BYTES);
		for (uint32_t i = 0; i < EACH; i++) {
			struct piece p = {.offset = i * 100, .length = i ? sizes[i % SIZES] : 0};

			CHECK(!weir_call_return(m.c.v, other, FETCH, &p, sizeof(p), &f[i], &sum[i],
						sizeof(sum[i]), NULL));
		}
		for (uint32_t i = 0; i < EACH; i++) {
			CHECK(!weir_future_wait(m.c.v, &f[i], PATIENT));
			is = 0;
			for (uint32_t k = 0; i && k < sizes[i % SIZES]; k++)
				is += byte_at(5, i * 100 + k);
			CHECK(sum[i] == is);
		}
		/* beyond the export, and without a result */
		CHECK(!weir_call_return(m.c.v, other, BAD_FETCH, &(uint32_t){0}, 4, &f[0], &gave,
					sizeof(gave), NULL));
		CHECK(!weir_future_wait(m.c.v, &f[0], PATIENT) && gave == -ERANGE);
		CHECK(!weir_call(m.c.v, other, BAD_FETCH, &(uint32_t){1}, 4, NULL));
		/* its first parts are within the export */
		CHECK(!weir_call_return(m.c.v, other, FETCH,
					&(struct piece){.offset = BYTES - 20000, .length = 20001},
					sizeof(struct piece), &f[0], NULL, 0, NULL));
		CHECK(weir_future_wait(m.c.v, &f[0], PATIENT) == -ERANGE);
	}
	CHECK(!weir_invoker_quiet(m.c.v, PATIENT));
	if (m.c.process)
		CHECK(m.fetched == EACH + 3 && m.ended == EACH + 1 && m.status == -ERANGE);
	return go(t, index, &m);
}

/* Results come behind gets of all lengths, many at a time. */
TEST(test_get)
{
	everywhere(get_in_function);
}

static int
leave_with_gets(struct team *t, uint32_t index)
{
	struct weir_future f[EACH] = {0};
	uint64_t sum[EACH] = {0}, is = 0;
	struct member m;
	int rc = come(t, index, &m, 0, WEIR_MAY_READ);

	CHECK(!rc);
	if (!m.c.process) {
		fill(base[0], 9, LONG);
		for (uint32_t i = 0; i < LONG; i++)
			is += byte_at(9, i);
		for (uint32_t i = 0; i < EACH; i++) {
			struct piece p = {.length = LONG};

			CHECK(!weir_call_return(m.c.v, other, FETCH, &p, sizeof(p), &f[i], &sum[i],
						sizeof(sum[i]), NULL));
		}
	} else {
		while (m.fetched < EACH)
			CHECK(weir_invoker_progress(m.c.v, 0, PATIENT) >= 0);
	}
	weir_group_idle(m.c.g, NULL, NULL);
	if (m.c.process) {
		CHECK(!weir_invoker_leave(m.c.v) && m.ended == EACH && !m.status);
	} else {
		for (uint32_t i = 0; i < EACH; i++)
			CHECK(!weir_future_wait(m.c.v, &f[i], PATIENT) && sum[i] == is);
		CHECK(!weir_invoker_leave(m.c.v));
	}
	CHECK(!m.c.wrong && !weir_group_barrier(m.c.g, PATIENT));
	CHECK(!weir_invoker_close(m.c.v));
	weir_remote_close(m.r);
	CHECK(!weir_group_barrier(m.c.g, PATIENT));
	CHECK(!weir_revoke(m.x));
	weir_region_free(m.region);
	return 0;
}

/* A thread leaves behind its gets, which are longer than there is room for at a time. */
TEST(test_leave)
{
	everywhere(leave_with_gets);
}
