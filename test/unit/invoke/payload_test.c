/* SPDX-License-Identifier: BSD-3-Clause */
/* Payloads: with their call, behind it, in memory of the program, kept, overtaken. */
#include "caller.h"

#include "invoke/line.h"

#include "weir/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { TAKE, PLACE, REFUSE, KEEP, LATE, NOTE, EARLY, EARLIER, HALF };

#define PLACED_BYTES (3u << 20) /* per process that calls */
#define KEPT 16u

struct expected {
	uint32_t seed, number;
	uint64_t length;
};

static __thread uint32_t runs, late, noted; /* of the thread that runs the calls */
static __thread uint8_t *place_memory;
static __thread struct weir_kept kept[KEPT];
static __thread struct expected kept_as[KEPT];
static __thread uint32_t kept_count;

static const uint32_t sizes[] = {
    1, 100, 8072, 8073, 8080, 8081, 20000, 256 << 10, 262145, (512 << 10) - 1, 512 << 10, 1000003};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static uint8_t
byte_at(uint32_t seed, size_t i)
{
	return (uint8_t)(seed + i * 7 + (i >> 13));
}

static uint8_t *
made(uint32_t seed, size_t length)
{
	uint8_t *p = malloc(length);

	for (size_t i = 0; p && i < length; i++)
		p[i] = byte_at(seed, i);
	return p;
}

static bool
is_made(const uint8_t *p, uint32_t seed, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (p[i] != byte_at(seed, i))
			return false;
	return true;
}

static void
check(struct weir_incoming *c, const void *args, size_t args_length, struct expected *e)
{
	size_t length = 0;
	const void *payload = weir_incoming_payload(c, &length);

	memcpy(e, args, sizeof(*e));
	runs++;
	if (length != e->length || (uintptr_t)payload % 8 || (uintptr_t)args % 8 ||
	    !is_made(payload, e->seed, length))
		own->wrong++;
	if (args_length != sizeof(*e))
		own->wrong++;
}

static void
run_take(struct weir_incoming *c, const void *args, size_t length)
{
	struct expected e;
	uint64_t sum;

	check(c, args, length, &e);
	sum = e.length + e.seed;
	/* it expects a result, or not */
	weir_incoming_result(c, &sum, sizeof(sum));
	if (e.number != own->next[weir_incoming_from(c).process][0]++)
		own->wrong++;
}

static uint8_t *
place_of(struct weir_incoming *c)
{
	return place_memory + weir_incoming_from(c).process * PLACED_BYTES;
}

static void *
place(struct weir_incoming *c, const void *args, size_t length, size_t payload)
{
	struct expected e;

	memcpy(&e, args, sizeof(e));
	if (e.length != payload || weir_incoming_invoker(c) != own->v)
		own->wrong++;
	return place_of(c);
}

static void
run_place(struct weir_incoming *c, const void *args, size_t length)
{
	struct expected e;
	struct weir_kept k;
	size_t bytes;

	check(c, args, length, &e);
	if (e.length > WEIR_BATCH_MAX && weir_incoming_payload(c, &bytes) != place_of(c))
		own->wrong++;
	if (weir_incoming_keep(c, &k) || k.length != e.length)
		own->wrong++;
	weir_kept_release(own->v, &k);
}

static void *
place_nowhere(struct weir_incoming *c, const void *args, size_t length, size_t payload)
{
	return NULL;
}

static void
run_keep(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_kept again;

	struct expected *e = &kept_as[kept_count];

	check(c, args, length, e);
	if (weir_incoming_keep(c, &kept[kept_count]) || weir_incoming_keep(c, &again) != -EINVAL)
		own->wrong++;
	if (kept[kept_count].length != e->length ||
	    !is_made(kept[kept_count].data, e->seed, e->length))
		own->wrong++;
	/* half of the memory for receiving: others need it */
	if (e->length == 256 << 10)
		weir_kept_release(own->v, &kept[kept_count]);
	else
		kept_count++;
}

static void
run_late(struct weir_incoming *c, const void *args, size_t length)
{
	struct expected e;

	check(c, args, length, &e);
	late++;
}

static void
run_note(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_kept k;
	size_t bytes = 5;

	if (weir_incoming_payload(c, &bytes) || bytes || weir_incoming_keep(c, &k) != -EINVAL)
		own->wrong++;
	noted = runs;
}

/* ---- results that come before the payload is read ---- */

static pthread_barrier_t all; /* the thread that calls and the one that runs */

static void
run_early(struct weir_incoming *c, const void *args, size_t length)
{
	struct expected e;

	if (weir_incoming_result(c, NULL, 0))
		own->wrong++;
	pthread_barrier_wait(&all);
	pthread_barrier_wait(&all);
	check(c, args, length, &e);
}

static void *
place_early(struct weir_incoming *c, const void *args, size_t length, size_t payload)
{
	if (weir_incoming_result(c, NULL, 0))
		own->wrong++;
	noted++;
	return place_of(c);
}

/* ---- a payload that breaks off while its thread leaves ---- */

static int entered; /* how another thread could enter as the one that leaves */

static void *
enter_instead(void *arg)
{
	entered = weir_invoker_enter(arg, 0);
	if (!entered)
		weir_invoker_leave(arg);
	return NULL;
}

static void
note_broken(struct weir_invoker *v, void *memory, void *user)
{
	pthread_t other;

	if (memory != place_memory ||
	    weir_call(v, (struct weir_to){0, 0}, NOTE, NULL, 0, NULL) >= 0)
		own->wrong++;
	if (pthread_create(&other, NULL, enter_instead, v))
		abort();
	pthread_join(other, NULL);
}

#define ENTRY(NAME, RUN)                                                                           \
	.name = NAME, .version = 1, .min_length = sizeof(struct expected),                         \
	.max_length = sizeof(struct expected), .run = RUN
static const struct weir_function table[] = {
    [TAKE] = {ENTRY("take", run_take)},
    [PLACE] = {ENTRY("place", run_place), .place = place},
    [REFUSE] = {ENTRY("refuse", run_late), .place = place_nowhere},
    [KEEP] = {ENTRY("keep", run_keep)},
    [LATE] = {ENTRY("late", run_late), .flags = WEIR_FUNCTION_UNORDERED},
    [NOTE] = {.name = "note", .run = run_note},
    [EARLY] = {ENTRY("early", run_early)},
    [EARLIER] = {ENTRY("earlier", run_late), .place = place_early,
		 .flags = WEIR_FUNCTION_UNORDERED},
    [HALF] = {ENTRY("half", run_late), .place = place_early, .broken = note_broken},
};

static struct weir_invoker_options
options(void)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;

	o.functions = table;
	o.function_count = sizeof(table) / sizeof(table[0]);
	return o;
}

static int
end_and_read(struct team *t, uint32_t index, struct caller *c, struct weir_invoker_stats *stats)
{
	if (weir_group_barrier(t->g[index], PATIENT) || weir_invoker_stats(c->v, stats))
		return __LINE__;
	return end(t, index, c);
}

static void
be_fresh(void)
{
	runs = late = noted = kept_count = 0;
}

/* ---- in order, whatever their size ---- */

struct order {
	struct weir_future small[SIZES], large[SIZES];
	uint64_t sums[SIZES];
	uint8_t *data[SIZES];
	struct weir_sync ran, sent;
};

static int
make_all(struct caller *c, struct order *o, struct weir_to to, uint32_t function)
{
	struct weir_call_options with = {.timeout_ms = -1}, bare = {.timeout_ms = -1};
	struct expected e = {0};

	weir_sync_init(&o->ran, SIZES, NULL, NULL);
	weir_sync_init(&o->sent, SIZES, NULL, NULL);
	for (uint32_t i = 0; i < SIZES; i++) {
		e.seed = 100 * c->process + i;
		o->data[i] = made(e.seed, sizes[i]);
		CHECK(o->data[i]);
		with.payload = o->data[i];
		with.payload_length = e.length = sizes[i];
		with.flags = 0;
		with.sync = NULL;
		CHECK(!weir_call_return(c->v, to, function, &e, sizeof(e), &o->large[i],
					&o->sums[i], 8, &with));
		e.number++;
		with.sync = &o->ran;
		CHECK(!weir_call(c->v, to, function, &e, sizeof(e), &with));
		e.number++;
		/* the same bytes, as small calls have them */
		bare.payload = o->data[i];
		bare.payload_length = e.length = sizes[i] < 50 ? sizes[i] : 50;
		CHECK(!weir_call_return(c->v, to, function, &e, sizeof(e), &o->small[i], NULL, 0,
					&bare));
		e.number++;
		with.sync = &o->sent;
		with.flags = WEIR_CALL_SYNC_SENT;
		e.length = sizes[i];
		CHECK(!weir_call(c->v, to, function, &e, sizeof(e), &with));
		e.number++;
	}
	return 0;
}

static int
await_all(struct caller *c, struct order *o)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		CHECK(!weir_future_wait(c->v, &o->large[i], PATIENT));
		CHECK(o->large[i].length == 8 && o->sums[i] == sizes[i] + 100 * c->process + i);
		CHECK(!weir_future_wait(c->v, &o->small[i], PATIENT));
	}
	CHECK(!weir_sync_wait(c->v, &o->ran, PATIENT));
	CHECK(!weir_sync_wait(c->v, &o->sent, PATIENT));
	for (uint32_t i = 0; i < SIZES; i++)
		free(o->data[i]);
	return 0;
}

static uint32_t mode;

static int
in_order(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = options();
	struct order order = {0};
	struct caller c;
	int rc;

	o.batching.mode = mode;
	be_fresh();
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	for (uint32_t p = 0; p < t->size; p++) {
		rc = make_all(&c, &order, (struct weir_to){p, 0}, TAKE);
		CHECK(!rc);
		rc = await_all(&c, &order);
		CHECK(!rc);
	}
	while (runs < 4 * SIZES * t->size)
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
	return end(t, index, &c);
}

TEST(test_in_order)
{
	for (mode = WEIR_BATCH_AUTO; mode <= WEIR_BATCH_OVERFLOW; mode++)
		team_of(2, in_order);
	mode = WEIR_BATCH_AUTO;
	team_of_one_node(3, in_order);
}

/* ---- memory of the program ---- */

static bool adopted;

static int
in_place(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct weir_region_info info;
	struct weir_region *r = NULL;
	uint32_t large = 0;
	struct expected e;
	struct weir_future f = {0};
	struct caller c;
	uint8_t *data;
	int rc;

	be_fresh();
	place_memory = malloc(2 * PLACED_BYTES);
	if (adopted) {
		free(place_memory);
		CHECK(!weir_region_alloc(t->w[index], 2 * PLACED_BYTES, NULL, &r));
		weir_region_info(r, &info);
		place_memory = info.base;
	}
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	for (uint32_t p = 0; p < t->size; p++)
		for (uint32_t i = 0; i < SIZES; i++) {
			e = (struct expected){i + index, 0, sizes[i]};
			data = made(e.seed, e.length);
			CHECK(data);
			with.payload = data;
			with.payload_length = e.length;
			CHECK(!weir_call_return(c.v, (struct weir_to){p, 0}, PLACE, &e, sizeof(e),
						&f, NULL, 0, &with));
			CHECK(!weir_future_wait(c.v, &f, PATIENT));
			CHECK(!weir_call_return(c.v, (struct weir_to){p, 0}, REFUSE, &e, sizeof(e),
						&f, NULL, 0, &with));
			large += e.length > WEIR_BATCH_MAX - 24 - sizeof(e);
			CHECK(weir_future_wait(c.v, &f, PATIENT) ==
			      (e.length > WEIR_BATCH_MAX - 24 - sizeof(e) ? -ENOMEM : 0));
			free(data);
		}
	/* more than there is memory for receiving: most of it is posted before it comes */
	e = (struct expected){index, 0, PLACED_BYTES};
	data = made(e.seed, e.length);
	CHECK(data);
	with.payload = data;
	with.payload_length = e.length;
	CHECK(!weir_call_return(c.v, (struct weir_to){1 - c.process, 0}, PLACE, &e, sizeof(e), &f,
				NULL, 0, &with));
	CHECK(!weir_future_wait(c.v, &f, PATIENT));
	free(data);
	rc = end_and_read(t, index, &c, &stats);
	CHECK(!rc);
	CHECK(stats.unplaced == large && stats.placed + stats.copied == large + 1);
	CHECK(adopted || !stats.placed);
	if (!adopted)
		free(place_memory);
	return r && weir_region_free(r) ? __LINE__ : 0;
}

TEST(test_in_place)
{
	for (uint32_t i = 0; i < 2; i++) {
		adopted = i;
		team_of(2, in_place);
	}
	team_of_one_node(2, in_place);
}

/* ---- aligned, also if the caller's memory is not ---- */

static int
unaligned(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_call_options with = {.timeout_ms = -1};
	static const uint32_t takers[] = {LATE, KEEP, PLACE};
	struct weir_invoker_options o = options();
	struct expected e = {3, 0, 100000};
	const struct weir_to to = {0, 0};
	struct weir_future f = {0};
	struct caller c;
	uint8_t *data, *from = made(e.seed, e.length);
	int rc;

	be_fresh();
	data = malloc(e.length + 7);
	place_memory = malloc(PLACED_BYTES);
	rc = begin(t, index, &o, &c);
	CHECK(!rc && data && from && place_memory);
	with.payload_length = e.length;
	for (uint32_t i = 0; i < 3 * 8; i++) {
		with.payload = memcpy(data + i / 3, from, e.length);
		CHECK(!weir_call_return(c.v, to, takers[i % 3], &e, sizeof(e), &f, NULL, 0, &with));
		CHECK(!weir_future_wait(c.v, &f, PATIENT));
		CHECK(!c.v->assembled);
		memset(data, 0, e.length + 7);
	}
	CHECK(runs == 3 * 8 && kept_count == 8);
	while (kept_count--) {
		CHECK(is_made(kept[kept_count].data, e.seed, e.length));
		weir_kept_release(c.v, &kept[kept_count]);
	}
	/* no memory for a copy, which only the unaligned one needs */
	c.v->assembled = 2 * WEIR_PAYLOAD_MAX - e.length + 1;
	for (uint32_t i = 0; i < 2; i++) {
		with.payload = memcpy(data + i, from, e.length);
		CHECK(!weir_call_return(c.v, to, LATE, &e, sizeof(e), &f, NULL, 0, &with));
		CHECK(weir_future_wait(c.v, &f, PATIENT) == (i ? -ENOMEM : 0));
	}
	CHECK(c.v->assembled == 2 * WEIR_PAYLOAD_MAX - e.length + 1);
	c.v->assembled = 0;
	free(data);
	free(from);
	rc = end_and_read(t, index, &c, &stats);
	free(place_memory);
	CHECK(stats.unplaced == 1);
	return rc;
}

TEST(test_unaligned)
{
	team_of(1, unaligned);
}

/* ---- kept ---- */

static int
keep(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct expected e;
	struct weir_future f = {0};
	struct weir_to to = {0, 0};
	struct caller c;
	uint8_t *data;
	int rc;

	be_fresh();
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	to.process = (c.process + 1) % t->size;
	/* what is kept leaves no room for the largest: these come first */
	for (uint32_t i = SIZES; i--;) {
		e = (struct expected){i + index, 0, sizes[i]};
		data = made(e.seed, e.length);
		CHECK(data);
		with.payload = data;
		with.payload_length = e.length;
		CHECK(!weir_call_return(c.v, to, KEEP, &e, sizeof(e), &f, NULL, 0, &with));
		CHECK(!weir_future_wait(c.v, &f, PATIENT));
		memset(data, 0, e.length);
		free(data);
	}
	while (kept_count < SIZES - 1)
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	for (uint32_t i = 0; i < SIZES - 1; i++) {
		CHECK(kept[i].length == kept_as[i].length &&
		      is_made(kept[i].data, kept_as[i].seed, kept[i].length));
		weir_kept_release(c.v, &kept[i]);
		CHECK(!kept[i].data);
		weir_kept_release(c.v, &kept[i]); /* once more: nothing */
	}
	return end(t, index, &c);
}

TEST(test_keep)
{
	team_of(2, keep);
	team_of_one_node(2, keep);
	team_of(1, keep);
}

/* ---- overtaken ---- */

static int
overtake(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct weir_sync ran, sent;
	struct weir_to to = {0, 0};
	struct expected e;
	struct caller c;
	uint8_t *data;
	int rc;

	be_fresh();
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	to.process = (c.process + 1) % t->size;
	weir_sync_init(&ran, 70, NULL, NULL);
	weir_sync_init(&sent, 70, NULL, NULL);
	e = (struct expected){5, 0, 1500001};
	data = made(e.seed, e.length);
	CHECK(data);
	with.payload = data;
	/* more than a line has numbers: the rest keep the order */
	for (uint32_t i = 0; i < 140; i++) {
		e.length = with.payload_length = i ? 300000 : 1500001;
		with.sync = i % 2 ? &sent : &ran;
		with.flags = i % 2 ? WEIR_CALL_SYNC_SENT : 0;
		CHECK(!weir_call(c.v, to, LATE, &e, sizeof(e), &with));
		if (!i)
			CHECK(!weir_call(c.v, to, NOTE, NULL, 0, NULL));
	}
	CHECK(!weir_sync_wait(c.v, &ran, PATIENT) && !weir_sync_wait(c.v, &sent, PATIENT));
	free(data);
	while (late < 140)
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
	CHECK(!noted); /* it ran when no other had */
	return end(t, index, &c);
}

TEST(test_overtake)
{
	team_of(2, overtake);
	team_of_one_node(2, overtake);
}

/* ---- what the program may not ---- */

static int
misuse(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct weir_to to = {0, 0};
	struct expected e = {0, 0, 9000};
	struct weir_sync s;
	uint8_t *data = made(0, 9000);
	struct caller c;
	int rc;

	be_fresh();
	rc = begin(t, index, &o, &c);
	CHECK(!rc && data);
	weir_sync_init(&s, 1, NULL, NULL);
	with.payload = data;
	with.payload_length = 9000;
	CHECK(weir_call(c.v, to, TAKE, &e, sizeof(e), &with) == -EINVAL);
	with.sync = &s;
	with.payload_length = WEIR_PAYLOAD_MAX + 1;
	CHECK(weir_call(c.v, to, TAKE, &e, sizeof(e), &with) == -EMSGSIZE);
	with.payload_length = 9000;
	with.payload = NULL;
	CHECK(weir_call(c.v, to, TAKE, &e, sizeof(e), &with) == -EINVAL);
	with.more[2] = 1;
	CHECK(weir_call(c.v, to, TAKE, &e, sizeof(e), &with) == -EINVAL);
	CHECK(weir_sync_left(&s, NULL) == 1);
	free(data);
	return end(t, index, &c);
}

TEST(test_misuse)
{
	team_of(1, misuse);
}

/* ---- threads of a process ---- */

#define THREADS_BESIDE 2u

static struct weir_invoker *shared;
static uint32_t takes; /* calls that thread 1 waits for */

/* Thread 1 takes what thread 0 sends; thread 0 has left by then, or not. */
static void *
take_beside(void *arg)
{
	struct caller c = {.v = shared, .self = pthread_self()};

	own = &c;
	be_fresh();
	if (weir_invoker_enter(shared, 1))
		abort();
	pthread_barrier_wait(&all);
	pthread_barrier_wait(&all);
	while (runs < takes)
		if (weir_invoker_progress(shared, 0, 10) < 0)
			break;
	*(uint32_t *)arg = c.wrong + (runs != takes);
	if (weir_invoker_leave(shared))
		abort();
	return NULL;
}

static int
beside(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.flags = WEIR_CALL_SYNC_SENT, .timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct weir_to to = {0, 1};
	struct expected e = {3, 0, 100000};
	struct weir_sync s, ran;
	uint32_t wrong = 1;
	pthread_t thread;
	uint8_t *data = made(e.seed, e.length);
	struct caller c;
	int rc;

	o.threads = THREADS_BESIDE;
	takes = 3;
	pthread_barrier_init(&all, NULL, 2);
	rc = begin(t, index, &o, &c);
	CHECK(!rc && data);
	shared = c.v;
	CHECK(!pthread_create(&thread, NULL, take_beside, &wrong));
	pthread_barrier_wait(&all);
	weir_sync_init(&s, 2, NULL, NULL);
	with.sync = &s;
	with.payload = data;
	with.payload_length = e.length;
	CHECK(!weir_call(c.v, to, LATE, &e, sizeof(e), &with));
	CHECK(!weir_call(c.v, to, LATE, &e, sizeof(e), &with));
	weir_sync_init(&ran, 1, NULL, NULL);
	with.sync = &ran;
	with.flags = 0;
	CHECK(!weir_call(c.v, to, LATE, &e, sizeof(e), &with));
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_invoker_leave(c.v));
	/* its memory is still read */
	CHECK(weir_sync_left(&s, NULL) == 2 && weir_sync_left(&ran, NULL) == 1);
	pthread_barrier_wait(&all);
	pthread_join(thread, NULL);
	CHECK(!wrong && weir_sync_left(&s, NULL) == 2 && weir_sync_left(&ran, NULL) == 1);
	CHECK(!weir_invoker_close(c.v));
	CHECK(!weir_sync_left(&s, NULL) && !weir_sync_left(&ran, NULL));
	pthread_barrier_destroy(&all);
	free(data);
	return 0;
}

TEST(test_beside)
{
	team_of(1, beside);
}

/* ---- the caller's memory is read when its future might end ---- */

/* A thread of the process reads it, or has not yet begun. */
static int
lend(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct weir_to to = {0, 1};
	struct expected e = {3, 0, 100000};
	struct weir_future f = {0};
	uint32_t wrong = 1;
	uint64_t failed = 0;
	struct weir_sync s;
	pthread_t thread;
	uint8_t *data = made(e.seed, e.length);
	struct caller c;
	int rc;

	o.threads = THREADS_BESIDE;
	takes = 2;
	pthread_barrier_init(&all, NULL, 2);
	rc = begin(t, index, &o, &c);
	CHECK(!rc && data);
	shared = c.v;
	CHECK(!pthread_create(&thread, NULL, take_beside, &wrong));
	pthread_barrier_wait(&all);
	with.payload = data;
	with.payload_length = e.length;
	with.sync = &s;
	weir_sync_init(&s, 1, NULL, NULL);
	CHECK(!weir_call_return(c.v, to, LATE, &e, sizeof(e), &f, NULL, 0, &with));
	weir_future_cancel(c.v, &f);
	CHECK(f.status == -ECANCELED && weir_sync_left(&s, NULL) == 1);
	with.sync = NULL;
	CHECK(!weir_call_return(c.v, to, EARLY, &e, sizeof(e), &f, NULL, 0, &with));
	pthread_barrier_wait(&all);
	/* it runs, and has given its result */
	pthread_barrier_wait(&all);
	for (uint32_t i = 0; i < 5; i++) {
		CHECK(weir_invoker_progress(c.v, 0, 0) >= 0);
		CHECK(f.status == -EINPROGRESS);
	}
	pthread_barrier_wait(&all);
	CHECK(!weir_future_wait(c.v, &f, PATIENT));
	memset(data, 0, e.length);
	free(data);
	CHECK(weir_sync_wait(c.v, &s, PATIENT) == -ECANCELED);
	CHECK(!weir_sync_left(&s, &failed) && failed == 1);
	pthread_join(thread, NULL);
	CHECK(!wrong);
	pthread_barrier_destroy(&all);
	return end(t, index, &c);
}

TEST(test_lend)
{
	team_of(1, lend);
}

/* It waits for room, and the other end has the result already. */
static int
answer_early(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct expected e = {index, 0, PLACED_BYTES};
	uint8_t *data = made(e.seed, e.length);
	struct weir_future f = {0}, cancelled = {0};
	struct weir_sync s;
	struct caller c;
	int rc;

	be_fresh();
	place_memory = malloc(2 * PLACED_BYTES);
	rc = begin(t, index, &o, &c);
	CHECK(!rc && data && place_memory);
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	if (c.process) {
		while (noted < 2)
			CHECK(weir_invoker_progress(c.v, 1, 10) >= 0);
		/* takes nothing more for a while */
		CHECK(!late);
		pthread_barrier_wait(&all);
		pthread_barrier_wait(&all);
		while (late < 2)
			CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
		free(data);
		rc = end(t, index, &c);
		free(place_memory);
		return rc;
	}
	with.payload = data;
	with.payload_length = e.length;
	CHECK(!weir_call_return(c.v, (struct weir_to){1, 0}, EARLIER, &e, sizeof(e), &f, NULL, 0,
				&with));
	weir_sync_init(&s, 1, NULL, NULL);
	with.sync = &s;
	CHECK(!weir_call_return(c.v, (struct weir_to){1, 0}, EARLIER, &e, sizeof(e), &cancelled,
				NULL, 0, &with));
	weir_future_cancel(c.v, &cancelled);
	CHECK(cancelled.status == -ECANCELED);
	pthread_barrier_wait(&all);
	for (uint32_t i = 0; i < 50; i++) {
		CHECK(weir_invoker_progress(c.v, 0, 1) >= 0);
		CHECK(f.status == -EINPROGRESS && weir_sync_left(&s, NULL) == 1);
	}
	pthread_barrier_wait(&all);
	CHECK(!weir_future_wait(c.v, &f, PATIENT));
	CHECK(weir_sync_wait(c.v, &s, PATIENT) == -ECANCELED);
	memset(data, 0, e.length);
	free(data);
	free(place_memory);
	return end(t, index, &c);
}

TEST(test_answer_early)
{
	pthread_barrier_init(&all, NULL, 2);
	team_of(2, answer_early);
	team_of_one_node(2, answer_early);
	pthread_barrier_destroy(&all);
}

/* ---- a thread leaves, and another one enters in its place ---- */

static int
leave_half(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct expected e = {index, 0, PLACED_BYTES};
	uint8_t *data = made(e.seed, e.length);
	struct weir_future f = {0};
	struct caller c;
	int rc;

	be_fresh();
	place_memory = malloc(PLACED_BYTES);
	rc = begin(t, index, &o, &c);
	CHECK(!rc && data && place_memory);
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	if (c.process) {
		while (!noted)
			CHECK(weir_invoker_progress(c.v, 1, 10) >= 0);
		entered = 0;
		CHECK(!weir_invoker_leave(c.v));
		CHECK(entered == -EBUSY && !late);
		CHECK(!weir_invoker_enter(c.v, 0));
	} else {
		with.payload = data;
		with.payload_length = e.length;
		CHECK(!weir_call_return(c.v, (struct weir_to){1, 0}, HALF, &e, sizeof(e), &f, NULL,
					0, &with));
		/* it has its result, but the payload is lost */
		CHECK(!weir_future_wait(c.v, &f, PATIENT));
	}
	rc = end(t, index, &c);
	free(data);
	free(place_memory);
	return rc;
}

TEST(test_leave_half)
{
	team_of(2, leave_half);
}

/* ---- a line that is lost, as for want of room for results, while its connection stays ---- */

static uint32_t number_of; /* LATE: later calls overtake it; KEEP: they do not */

static int
lose_line(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = options();
	struct expected e = {index, 0, PLACED_BYTES}, small = {7, 0, 300000};
	uint8_t *data = made(e.seed, e.length), *less = made(small.seed, small.length);
	struct weir_to to = {1, 0};
	struct weir_future f = {0}, later = {0};
	struct caller c;
	int rc;

	be_fresh();
	rc = begin(t, index, &o, &c);
	CHECK(!rc && data && less);
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	if (!c.process) {
		with.payload = data;
		with.payload_length = e.length;
		CHECK(!weir_call_return(c.v, to, number_of, &e, sizeof(e), &f, NULL, 0, &with));
		line_lose(line_find(&c.v->threads[0], to), -EHOSTUNREACH);
		CHECK(weir_future_wait(c.v, &f, PATIENT) == -EHOSTUNREACH);
	}
	/* the other end begins to take what has come */
	pthread_barrier_wait(&all);
	if (c.process) {
		while (late < 3)
			CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
	} else {
		with.payload = less;
		with.payload_length = small.length;
		for (uint32_t i = 0; i < 3; i++) {
			CHECK(!weir_call_return(c.v, to, LATE, &small, sizeof(small), &later, NULL,
						0, &with));
			CHECK(!weir_future_wait(c.v, &later, PATIENT));
		}
	}
	free(data);
	free(less);
	return end(t, index, &c);
}

TEST(test_lose_line)
{
	pthread_barrier_init(&all, NULL, 2);
	for (uint32_t i = 0; i < 2; i++) {
		number_of = i ? LATE : KEEP;
		team_of(2, lose_line);
	}
	team_of_one_node(2, lose_line);
	pthread_barrier_destroy(&all);
}
