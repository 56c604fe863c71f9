/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of all threads with payloads, which each process passes on from a copy of its own. */
#include "crew.h"

#include "invoke/batch.h"
#include "invoke/invoker.h"

#include <stdlib.h>

#define EACH 2u /* threads per process */

enum { TAKE, KEEP, AGAIN, TREE_FUNCTIONS };

/* Arguments. */
struct expected {
	uint32_t seed, zero;
	uint64_t length;
};

#define MOST_BYTES (3u << 20)
/* Bytes of the largest payload that travels in a batch. */
#define IN_BATCH (WEIR_BATCH_MAX - 40 - sizeof(struct expected))

static const uint32_t sizes[] = {0, 1, 100, IN_BATCH, IN_BATCH + 1, 8192, 100 << 10, MOST_BYTES};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define KEPT 64u

static _Atomic uint64_t runs;
static __thread struct weir_kept kept[KEPT];
static __thread struct expected kept_as[KEPT];
static __thread uint32_t kept_count;

/* Payloads are parts of it, by their seed: compared and copied at once. */
static uint8_t pattern_bytes[MOST_BYTES + 256];

static void __attribute__((constructor)) make_pattern(void)
{
	for (size_t i = 0; i < sizeof(pattern_bytes); i++)
		pattern_bytes[i] = (uint8_t)(i * 7 + (i >> 13));
}

static void
fill(uint8_t *p, uint32_t seed, size_t length)
{
	memcpy(p, pattern_bytes + seed % 256, length);
}

static uint8_t *
made(uint32_t seed, size_t length)
{
	uint8_t *p = malloc(length + !length);

	if (p)
		fill(p, seed, length);
	return p;
}

static bool
is_made(const uint8_t *p, const struct expected *e, size_t length)
{
	if (length != e->length || (uintptr_t)p % 8 || !p != !length)
		return false;
	return !length || !memcmp(p, pattern_bytes + e->seed % 256, length);
}

static void
check(struct weir_incoming *c, const void *args, size_t length)
{
	struct expected e;
	const void *payload;
	size_t bytes = 5;

	memcpy(&e, args, sizeof(e));
	payload = weir_incoming_payload(c, &bytes);
	if (own->self != pthread_self() || length != sizeof(e) || (uintptr_t)args % 8 ||
	    !is_made(payload, &e, bytes))
		own->wrong++;
	own->run++;
	atomic_fetch_add(&runs, 1);
}

static void
run_take(struct weir_incoming *c, const void *args, size_t length)
{
	check(c, args, length);
	/* it has no result */
	if (weir_incoming_result(c, NULL, 0) != -EINVAL)
		own->wrong++;
}

static void
run_keep(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_kept *k = &kept[kept_count], again;

	run_take(c, args, length);
	memcpy(&kept_as[kept_count], args, sizeof(kept_as[0]));
	if (!kept_as[kept_count].length) {
		if (weir_incoming_keep(c, k) != -EINVAL)
			own->wrong++;
		return;
	}
	if (weir_incoming_keep(c, k) || weir_incoming_keep(c, &again) != -EINVAL)
		own->wrong++;
	kept_count++;
}

/* Calls all with the payload that it has, from memory that lasts. */
static uint8_t *lasts;
static struct weir_sync later;

static void
run_again(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_call_options with = {.timeout_ms = -1, .sync = &later};

	check(c, args, length);
	with.payload = weir_incoming_payload(c, &with.payload_length);
	lasts = malloc(with.payload_length);
	if (!lasts)
		abort();
	memcpy(lasts, with.payload, with.payload_length);
	with.payload = lasts;
	if (weir_call_all(own->v, TAKE, args, length, &with))
		own->wrong++;
}

/* Payloads of calls of all are in memory of the library. */
static void *
never(struct weir_incoming *c, const void *args, size_t length, size_t payload)
{
	own->wrong++;
	return NULL;
}

static void
never_broken(struct weir_invoker *v, void *memory, void *user)
{
	own->wrong++;
}

#define ENTRY(NAME, RUN)                                                                           \
	.name = NAME, .min_length = sizeof(struct expected),                                       \
	.max_length = sizeof(struct expected), .run = RUN
static const struct weir_function table[TREE_FUNCTIONS] = {
    [TAKE] = {ENTRY("take", run_take), .place = never, .broken = never_broken},
    [KEEP] = {ENTRY("keep", run_keep), .flags = WEIR_FUNCTION_UNORDERED},
    [AGAIN] = {ENTRY("again", run_again)},
};

/* Sets up, for calls of processes on one node or two. */
static void
of(uint32_t size, bool one_node, int (*run)(struct hand *h))
{
	atomic_store(&runs, 0);
	crew.o.functions = table;
	crew.o.function_count = TREE_FUNCTIONS;
	crew.run = run;
	if (one_node)
		team_of_one_node(size, be_process);
	else
		team_of(size, be_process);
}

/* All have run what was made, and no copy is left. */
static int
is_over(struct hand *h, uint64_t expected)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;

	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	CHECK(atomic_load(&runs) == expected);
	CHECK(!weir_invoker_stats(h->c.v, &stats));
	CHECK(!stats.dropped && !stats.malformed && !stats.placed && !stats.copied);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	CHECK(!atomic_load(&h->c.v->assembled));
	/* nobody leaves before the others have looked */
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

/* ---- sizes ---- */

/* Threads 0, and all of process 0, which alone makes the largest: one call per size, scope and kind
 * of sync. The caller's memory is another's behind each. */
static int
call_sizes(struct hand *h)
{
	uint32_t processes = weir_group_size(h->c.g), threads = processes * EACH,
		 callers = processes + EACH - 1;
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_sync s;
	struct expected e;
	uint64_t failed;
	uint8_t *data = made(0, sizes[SIZES - 1]);

	CHECK(data);
	kept_count = 0;
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	for (uint32_t i = 0; i < 4 * SIZES && !(h->c.process && h->c.thread); i++) {
		with.flags =
		    (i & 1 ? WEIR_CALL_ONCE_PER_PROCESS : 0) | (i & 2 ? WEIR_CALL_SYNC_SENT : 0);
		e = (struct expected){.seed = 100 * h->number + i, .length = sizes[i / 4]};
		if (h->c.process && i / 4 == SIZES - 1)
			break;
		fill(data, e.seed, e.length);
		with.payload = e.length ? data : NULL;
		with.payload_length = e.length;
		weir_sync_init(&s, 1, NULL, NULL);
		with.sync = &s;
		CHECK(!weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with));
		/* one that fits is copied */
		if (i & 2 && e.length <= IN_BATCH)
			CHECK(!weir_sync_left(&s, NULL));
		CHECK(!weir_sync_wait(h->c.v, &s, PATIENT));
		CHECK(!weir_sync_left(&s, &failed) && !failed);
		memset(data, 0xff, e.length);
		if (e.length > IN_BATCH)
			continue;
		with.sync = NULL;
		with.flags &= ~WEIR_CALL_SYNC_SENT;
		fill(data, e.seed, e.length);
		CHECK(!weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with));
		memset(data, 0xff, e.length);
	}
	free(data);
	/* two calls per size of each scope; four, if it is small */
	return is_over(h, (uint64_t)(processes + threads) *
			      (callers * ((SIZES - 1) * 2 + 4 * 2) + EACH * 2));
}

TEST(test_sizes)
{
	crew_init();
	crew.o.threads = EACH;
	crew.o.arity = 2;
	for (uint32_t size = 1; size <= 5; size++) {
		crew.o.batching.mode = size % 4;
		of(size, false, call_sizes);
		of(size, true, call_sizes);
	}
}

/* ---- many at a time, which the functions keep ---- */

static int
call_and_keep(struct hand *h)
{
	uint32_t processes = weir_group_size(h->c.g), threads = processes * EACH;
	struct weir_call_options with = {.timeout_ms = -1};
	struct expected e[SIZES];
	uint8_t *data[SIZES];
	struct weir_sync s;

	kept_count = 0;
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	weir_sync_init(&s, SIZES, NULL, NULL);
	with.sync = &s;
	for (uint32_t i = 0; i < SIZES && !h->c.thread; i++) {
		e[i] = (struct expected){.seed = 100 * h->number + i, .length = sizes[i]};
		data[i] = made(e[i].seed, e[i].length);
		CHECK(data[i]);
		with.payload = data[i];
		with.payload_length = e[i].length;
		CHECK(!weir_call_all(h->c.v, KEEP, &e[i], sizeof(e[i]), &with));
	}
	if (!h->c.thread) {
		CHECK(!weir_sync_wait(h->c.v, &s, PATIENT));
		for (uint32_t i = 0; i < SIZES; i++) {
			memset(data[i], 0, e[i].length);
			free(data[i]);
		}
	}
	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	CHECK(kept_count == processes * (SIZES - 1));
	for (uint32_t i = 0; i < kept_count; i++) {
		CHECK(is_made(kept[i].data, &kept_as[i], kept[i].length));
		weir_kept_release(h->c.v, &kept[i]);
	}
	return is_over(h, (uint64_t)processes * threads * SIZES);
}

TEST(test_keep)
{
	crew_init();
	crew.o.threads = EACH;
	crew.o.arity = 2;
	for (uint32_t size = 1; size <= 4; size++)
		of(size, size % 2, call_and_keep);
}

/* ---- from a function ---- */

static int
call_from_function(struct hand *h)
{
	uint32_t threads = weir_invoker_threads(h->c.v, UINT32_MAX);
	struct expected e = {.seed = 9, .length = 300000};
	struct weir_call_options with = {.timeout_ms = -1};
	uint8_t *data = made(e.seed, e.length);
	struct weir_sync s;

	CHECK(data);
	if (!h->number)
		weir_sync_init(&later, 1, NULL, NULL);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (!h->number) {
		weir_sync_init(&s, 1, NULL, NULL);
		with.sync = &s;
		with.payload = data;
		with.payload_length = e.length;
		CHECK(!weir_call(h->c.v, (struct weir_to){1, 1}, AGAIN, &e, sizeof(e), &with));
		CHECK(!weir_sync_wait(h->c.v, &s, PATIENT));
	}
	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	CHECK(!weir_sync_left(&later, NULL));
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (!h->number)
		free(lasts);
	free(data);
	return is_over(h, 1 + threads);
}

TEST(test_from_function)
{
	crew_init();
	crew.o.threads = EACH;
	crew.o.arity = 2;
	of(4, false, call_from_function);
}

/* ---- not everywhere ---- */

/* A process has no memory for it: the others run it, and the caller learns why not all have. */
static int
call_where_memory_is_short(struct hand *h)
{
	struct expected e = {.seed = 3, .length = 100000};
	struct weir_call_options with = {.timeout_ms = -1};
	uint8_t *data = made(e.seed, e.length);
	const uint64_t most = 2 * WEIR_PAYLOAD_MAX;
	struct weir_sync s;
	uint64_t failed;

	CHECK(data);
	if (h->number == EACH)
		atomic_fetch_add(&h->c.v->assembled, most);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (!h->number) {
		weir_sync_init(&s, 1, NULL, NULL);
		with.sync = &s;
		with.payload = data;
		with.payload_length = e.length;
		CHECK(!weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with));
		CHECK(weir_sync_wait(h->c.v, &s, PATIENT) == -ENOMEM);
		CHECK(!weir_sync_left(&s, &failed) && failed == 1);
	}
	free(data);
	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	if (h->number == EACH)
		atomic_fetch_sub(&h->c.v->assembled, most);
	/* of five processes, 1 is above 3 and 4 */
	return is_over(h, 2 * EACH);
}

TEST(test_no_memory)
{
	crew_init();
	crew.o.threads = EACH;
	crew.o.arity = 2;
	of(5, false, call_where_memory_is_short);
}

/* A thread has left: both kinds of sync say so. */
static int
call_where_one_has_left(struct hand *h)
{
	uint32_t processes = weir_group_size(h->c.g);
	struct expected e = {.seed = 3, .length = 100000};
	struct weir_call_options with = {.timeout_ms = -1};
	uint8_t *data = made(e.seed, e.length);
	struct weir_sync s;
	uint64_t failed;

	CHECK(data);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (h->number == 1) {
		free(data);
		return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
	}
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	for (uint32_t i = 0; i < 2 && !h->number; i++) {
		weir_sync_init(&s, 1, NULL, NULL);
		with.flags = i ? WEIR_CALL_SYNC_SENT : 0;
		with.sync = &s;
		with.payload = data;
		with.payload_length = e.length;
		CHECK(!weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with));
		CHECK(weir_sync_wait(h->c.v, &s, PATIENT) == -ECONNREFUSED);
		CHECK(!weir_sync_left(&s, &failed) && failed == 1);
	}
	free(data);
	/* after a loss quiet does not say that all has run */
	while (atomic_load(&runs) < 2 * (processes * EACH - 1) || atomic_load(&h->c.v->assembled))
		CHECK(weir_invoker_progress(h->c.v, 0, 10) >= 0);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	CHECK(atomic_load(&runs) == 2 * (processes * EACH - 1));
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_one_has_left)
{
	crew_init();
	crew.o.threads = EACH;
	crew.o.arity = 2;
	of(3, false, call_where_one_has_left);
}

/* ---- the thread that calls leaves ---- */

static pthread_barrier_t both;
static struct weir_sync left[2];
static uint8_t *left_data;

/* Thread 1 has not run it: until then the caller's memory may be read, and no sync counts. */
static int
call_and_leave(struct hand *h)
{
	struct expected e = {.seed = 3, .length = 100000};
	struct weir_call_options with = {.timeout_ms = -1};

	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	pthread_barrier_wait(&both);
	if (h->number) {
		pthread_barrier_wait(&both);
		while (h->c.run < 2)
			CHECK(weir_invoker_progress(h->c.v, 0, 10) >= 0);
		return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
	}
	with.payload = left_data = made(e.seed, e.length);
	with.payload_length = e.length;
	CHECK(left_data);
	for (uint32_t i = 0; i < 2; i++) {
		weir_sync_init(&left[i], 1, NULL, NULL);
		with.sync = &left[i];
		with.flags = i ? WEIR_CALL_SYNC_SENT : 0;
		CHECK(!weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with));
	}
	CHECK(!weir_invoker_leave(h->c.v));
	CHECK(weir_sync_left(&left[0], NULL) == 1 && weir_sync_left(&left[1], NULL) == 1);
	pthread_barrier_wait(&both);
	return 0;
}

TEST(test_caller_leaves)
{
	crew_init();
	crew.o.threads = EACH;
	pthread_barrier_init(&both, NULL, 2);
	of(1, true, call_and_leave);
	pthread_barrier_destroy(&both);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(weir_sync_left(&left[i], NULL), 0);
	free(left_data);
}

/* ---- a process ends ---- */

static _Atomic bool holds, over;

/* Of four, process 1 has a copy for process 3, which takes nothing, and dies. */
static int
lose(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	struct expected e = {.seed = 3, .length = sizes[SIZES - 1]};
	struct weir_call_options with = {.timeout_ms = -1};
	uint64_t failed;
	struct weir_sync s;
	struct caller c;
	uint8_t *data;
	int rc;

	o.functions = table;
	o.function_count = TREE_FUNCTIONS;
	o.arity = 2;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	if (!c.process) {
		data = made(e.seed, e.length);
		CHECK(data);
		weir_sync_init(&s, 1, NULL, NULL);
		with.sync = &s;
		with.payload = data;
		with.payload_length = e.length;
		CHECK(!weir_call_all(c.v, TAKE, &e, sizeof(e), &with));
		rc = weir_sync_wait(c.v, &s, PATIENT);
		/* the latter: its receiver was not connected yet */
		CHECK(rc == -EHOSTUNREACH || rc == -ECONNREFUSED);
		CHECK(!weir_sync_left(&s, &failed) && failed == 1);
		memset(data, 0, e.length);
		free(data);
		atomic_store(&over, true);
	} else if (c.process == 3) {
		while (!atomic_load(&holds))
			usleep(1000);
		plane_die(t->f, t->w[index]);
		return weir_invoker_close(c.v) ? __LINE__ : 0;
	}
	while (!atomic_load(&over) || atomic_load(&c.v->assembled)) {
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
		if (c.process == 1 && c.run && !atomic_load(&holds)) {
			CHECK(atomic_load(&c.v->assembled) == e.length);
			atomic_store(&holds, true);
		}
	}
	CHECK(!c.wrong && c.run == 1);
	return weir_invoker_close(c.v) ? __LINE__ : 0;
}

TEST(test_process_ends)
{
	for (uint32_t i = 0; i < 2; i++) {
		holds = over = false;
		if (i)
			team_of_one_node(4, lose);
		else
			team_of(4, lose);
	}
}

/* ---- what the program may not ---- */

static int
misuse(struct hand *h)
{
	struct expected e = {.seed = 3, .length = 9000};
	struct weir_call_options with = {.timeout_ms = -1};
	uint8_t *data = made(e.seed, e.length);
	struct weir_sync s;

	CHECK(data);
	weir_sync_init(&s, 1, NULL, NULL);
	with.payload = data;
	with.payload_length = e.length;
	CHECK(weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with) == -EINVAL);
	with.flags = WEIR_CALL_SYNC_SENT;
	CHECK(weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with) == -EINVAL);
	with.sync = &s;
	with.payload_length = WEIR_PAYLOAD_MAX + 1;
	CHECK(weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with) == -EMSGSIZE);
	with.payload = NULL;
	with.payload_length = 1;
	CHECK(weir_call_all(h->c.v, TAKE, &e, sizeof(e), &with) == -EINVAL);
	CHECK(weir_sync_left(&s, NULL) == 1);
	free(data);
	return is_over(h, 0);
}

TEST(test_misuse)
{
	crew_init();
	crew.o.threads = 1;
	of(1, true, misuse);
}
