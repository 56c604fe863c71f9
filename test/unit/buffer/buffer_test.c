/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks, pools and general allocators: limits, lack of memory, alignment, random use against a map
 * of all bytes, many threads. The data plane grants a session 3 regions and 192 MiB.
 */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "weir/buffer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* ---- the allocator: linked with --wrap=malloc ---- */

static unsigned fails_at; /* the call, counted from now on, that finds no memory; 0: none */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *
__wrap_malloc(size_t size)
{
	if (!fails_at || --fails_at)
		return __real_malloc(size);
	errno = ENOMEM;
	return NULL;
}

/* ---- a session ---- */

#define KIB 1024ull
#define MIB (1024 * KIB)
#define THREADS 4u

struct world {
	struct plane *f;
	struct weir *w;
	struct weir_chunks *c;
};

static struct world
world_open(uint64_t chunk, uint64_t step, uint64_t most)
{
	struct weir_chunks_options o = WEIR_CHUNKS_OPTIONS_INIT;
	struct world d = {.f = plane_create(NULL)};

	o.chunk = chunk;
	o.step = step;
	o.most = most;
	d.w = plane_attach(d.f);
	assert_int_equal(weir_chunks_create(d.w, &o, &d.c), 0);
	return d;
}

static void
world_close(struct world *d)
{
	weir_chunks_destroy(d->c);
	plane_settle(d->f);
	assert_int_equal(plane_regions(d->f, d->w), 0);
	weir_detach(d->w);
	plane_destroy(d->f);
}

static uint32_t
random_seed(const char *test)
{
	const char *given = getenv("WEIR_SEED");
	uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)getpid();

	print_message("%s: WEIR_SEED=%u\n", test, seed);
	return seed;
}

static uint32_t
next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static void
expect_null(const void *at, int want)
{
	int error = errno;

	assert_null(at);
	assert_int_equal(error, want);
	assert_true(strlen(weir_reason()) > 20);
}

/* ---- chunks ---- */

TEST(test_invalid_options)
{
	struct world d = world_open(64 * KIB, 64 * KIB, 0);
	const struct weir_chunks_options bad[] = {
	    {.chunk = 3000, .numa_node = -1},
	    {.chunk = 2048, .numa_node = -1},
	    {.chunk = 12 * KIB, .numa_node = -1},
	    {.step = MIB, .numa_node = -1},
	    {.most = MIB, .numa_node = -1},
	    {.chunk = 4096, .step = 4096ull << 20, .numa_node = -1},
	    {.numa_node = -2},
	    {.numa_node = -1, .flags = WEIR_ALLOC_EXACT},
	    {.numa_node = -1, .more = {0, 0, 0, 1}},
	};
	struct weir_general *h;
	struct weir_chunks *c;
	struct weir_pool *p;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(weir_chunks_create(d.w, &bad[i], &c), -EINVAL);
		assert_true(strlen(weir_reason()) > 20);
	}
	assert_int_equal(weir_pool_create(d.c, 0, 8, &p), -EINVAL);
	assert_int_equal(weir_pool_create(d.c, 64 * KIB + 1, 8, &p), -EINVAL);
	assert_int_equal(
	    weir_chunks_create(
		d.w, &(struct weir_chunks_options){.chunk = 128ull << 30, .numa_node = -1}, &c),
	    0);
	assert_int_equal(weir_general_create(c, &h), -EINVAL);
	weir_chunks_destroy(c);
	weir_chunks_destroy(NULL);
	weir_circular_destroy(NULL);
	weir_pool_destroy(NULL);
	weir_general_destroy(NULL);
	world_close(&d);
}

TEST(test_chunks_and_where)
{
	struct world d = world_open(64 * KIB, 256 * KIB, 700 * KIB); /* 4, 4, 2 chunks */
	struct weir_region_info info;
	struct weir_region *region;
	uint8_t *at[10];
	uint64_t offset;

	assert_int_equal(weir_chunk_where(d.c, &offset, &region, &offset), -ENOENT);
	assert_int_equal(plane_regions(d.f, d.w), 0);
	for (unsigned i = 0; i < 10; i++) {
		at[i] = weir_chunk_get(d.c);
		assert_non_null(at[i]);
		assert_int_equal(plane_regions(d.f, d.w), i / 4 + 1);
		for (unsigned k = 0; k < 64 * KIB; k++)
			assert_int_equal(at[i][k], 0);
		memset(at[i], (int)i + 1, 64 * KIB);
	}
	expect_null(weir_chunk_get(d.c), ENOSPC);
	for (unsigned i = 0; i < 10; i++) {
		for (unsigned k = 0; k < 64 * KIB; k++)
			assert_int_equal(at[i][k], i + 1);
		for (unsigned k = 0; k < 3; k++) {
			uint64_t in = k * (64 * KIB - 1) / 2;

			assert_int_equal(weir_chunk_where(d.c, at[i] + in, &region, &offset), 0);
			weir_region_info(region, &info);
			assert_ptr_equal((uint8_t *)info.base + offset, at[i] + in);
			assert_int_equal((offset - in) % (64 * KIB), 0);
			assert_int_equal(info.bytes, i < 8 ? 256 * KIB : 128 * KIB);
		}
		assert_int_equal(
		    weir_chunk_where(d.c, (uint8_t *)info.base + info.bytes - 1, &region, &offset),
		    0);
	}
	assert_int_equal(weir_chunk_where(d.c, &offset, &region, &offset), -ENOENT);
	/* the last one that was given back comes first */
	weir_chunk_put(d.c, at[3]);
	weir_chunk_put(d.c, NULL);
	weir_chunk_put(d.c, at[9]);
	memset(at[3], 0xee, 64 * KIB); /* no record lies there */
	memset(at[9], 0xee, 64 * KIB);
	assert_ptr_equal(weir_chunk_get(d.c), at[9]);
	assert_ptr_equal(weir_chunk_get(d.c), at[3]);
	expect_null(weir_chunk_get(d.c), ENOSPC);
	world_close(&d);
}

/* Without a step, regions are as large as the session's limit permits. */
TEST(test_smaller_regions)
{
	struct world d = world_open(0, 0, 0);
	struct weir_chunks_options o = WEIR_CHUNKS_OPTIONS_INIT;
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_chunks *exact;
	uint64_t offset;
	void *at;

	o.step = 256 * MIB;
	assert_int_equal(weir_chunks_create(d.w, &o, &exact), 0);
	expect_null(weir_chunk_get(exact), ENOSPC);
	weir_chunks_destroy(exact);
	for (unsigned i = 0; i < 96; i++) {
		at = weir_chunk_get(d.c);
		assert_non_null(at);
		assert_int_equal(weir_chunk_where(d.c, at, &region, &offset), 0);
		weir_region_info(region, &info);
		assert_int_equal(info.bytes, (i < 64 ? 128 : 64) * MIB);
		assert_int_equal(offset % (2 * MIB), 0);
	}
	expect_null(weir_chunk_get(d.c), ENOSPC);
	weir_chunk_put(d.c, at);
	assert_ptr_equal(weir_chunk_get(d.c), at);
	world_close(&d);
}

TEST(test_regions_run_out)
{
	struct world d = world_open(4096, 4096, 0);

	for (unsigned i = 0; i < 3; i++)
		assert_non_null(weir_chunk_get(d.c));
	expect_null(weir_chunk_get(d.c), EMFILE);
	world_close(&d);
}

/* Whichever memory is missing, nothing is left of the region, and the next call finds all. */
TEST(test_memory_runs_out)
{
	struct world d = world_open(4096, 4 * 4096, 8 * 4096);
	unsigned n = 0, chunks = 0;
	void *at;

	for (; chunks < 4; chunks++)
		assert_non_null(weir_chunk_get(d.c));
	do {
		fails_at = ++n;
		at = weir_chunk_get(d.c);
		if (!fails_at)
			expect_null(at, ENOMEM);
		plane_settle(d.f);
		assert_int_equal(plane_regions(d.f, d.w), at ? 2 : 1);
	} while (!at);
	assert_true(n > 2); /* the chunks have two records of a region */
	fails_at = 0;
	for (chunks++; weir_chunk_get(d.c); chunks++)
		;
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(chunks, 8);
	world_close(&d);
}

/* The largest region that the user's limit leaves; what there is stays, and the limit may rise. */
TEST(test_limit_of_the_user)
{
	struct world d = world_open(32 * MIB, 0, 0);
	void *at;

	plane_set(d.f, "user.0.memory", "64M"); /* of which the arena takes a part */
	at = weir_chunk_get(d.c);
	assert_non_null(at);
	expect_null(weir_chunk_get(d.c), EDQUOT);
	weir_chunk_put(d.c, at);
	assert_ptr_equal(weir_chunk_get(d.c), at);
	plane_set(d.f, "user.0.memory", "none");
	assert_non_null(weir_chunk_get(d.c));
	world_close(&d);
}

#define FEW 6u /* chunks for THREADS threads */

static struct {
	struct weir_chunks *c;
	uint8_t *at[FEW];
	_Atomic uint32_t holder[FEW]; /* thread + 1 */
	_Atomic uint32_t wrong;
	pthread_barrier_t start;
} crowd;

static unsigned
number_of(const void *chunk)
{
	unsigned i = 0;

	while (i < FEW && crowd.at[i] != chunk)
		i++;
	return i;
}

/* Chunks are of one thread at a time, however often they come back meanwhile. */
static void *
exchange_chunks(void *arg)
{
	uint32_t self = (uint32_t)(uintptr_t)arg, seed = self, none = 0, mine = self;
	uint8_t *at[3];

	for (unsigned i = 0; i < 60000 && !atomic_load(&crowd.wrong); i++) {
		unsigned n = 0, want = 1 + next_random(&seed) % 3;

		for (; n < want && (at[n] = weir_chunk_get(crowd.c)); n++) {
			unsigned k = number_of(at[n]);

			none = 0;
			if (k == FEW ||
			    !atomic_compare_exchange_strong(&crowd.holder[k], &none, self))
				atomic_fetch_add(&crowd.wrong, 1);
			memset(at[n], (int)self, 64);
		}
		while (n--) {
			unsigned k = number_of(at[n]);

			mine = self;
			if (at[n][0] != self || at[n][63] != self || k == FEW ||
			    !atomic_compare_exchange_strong(&crowd.holder[k], &mine, 0))
				atomic_fetch_add(&crowd.wrong, 1);
			weir_chunk_put(crowd.c, at[n]);
		}
	}
	return NULL;
}

TEST(test_chunks_of_threads)
{
	struct world d = world_open(4096, 2 * 4096, FEW * 4096);
	pthread_t thread[THREADS];

	memset(&crowd, 0, sizeof(crowd));
	crowd.c = d.c;
	for (unsigned i = 0; i < FEW; i++)
		crowd.at[i] = weir_chunk_get(d.c);
	for (unsigned i = 0; i < FEW; i++)
		weir_chunk_put(d.c, crowd.at[i]);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(
		    pthread_create(&thread[i], NULL, exchange_chunks, (void *)(uintptr_t)(i + 1)),
		    0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(crowd.wrong, 0);
	for (unsigned i = 0; i < FEW; i++) {
		unsigned k = number_of(weir_chunk_get(d.c));

		assert_true(k < FEW);
		crowd.at[k] = NULL; /* each once */
	}
	expect_null(weir_chunk_get(d.c), ENOSPC);
	world_close(&d);
}

static void *
get_many(void *arg)
{
	void **at = arg;

	pthread_barrier_wait(&crowd.start);
	for (unsigned i = 0; i < 8; i++)
		at[i] = weir_chunk_get(crowd.c);
	return NULL;
}

/* Threads that find no chunk at once allocate no region more than needed. */
TEST(test_regions_of_threads)
{
	struct world d = world_open(4096, 16 * 4096, 0);
	void *at[THREADS][8];
	pthread_t thread[THREADS];

	crowd.c = d.c;
	pthread_barrier_init(&crowd.start, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, get_many, at[i]), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&crowd.start);
	for (unsigned i = 0; i < THREADS * 8; i++) {
		assert_non_null(at[i / 8][i % 8]);
		for (unsigned k = 0; k < i; k++)
			assert_ptr_not_equal(at[i / 8][i % 8], at[k / 8][k % 8]);
	}
	assert_int_equal(plane_regions(d.f, d.w), 2);
	world_close(&d);
}

/* ---- pool ---- */

TEST(test_pool_pieces)
{
	struct world d = world_open(4096, 16 * 4096, 8 * 4096);
	const uint32_t sizes[] = {1, 64, 65, 1000, 4096}, each[] = {64, 64, 32, 4, 1};
	uint8_t *at[8 * 64 + 1], *again;
	struct weir_pool *p;

	for (unsigned s = 0; s < 5; s++) {
		uint32_t step = (sizes[s] + 63) / 64 * 64, n = 0;

		assert_int_equal(weir_pool_create(d.c, sizes[s], s % 2 ? 8 : 0, &p), 0);
		for (; (at[n] = weir_pool_get(p)); n++) {
			assert_int_equal((uintptr_t)at[n] % 64, 0);
			for (unsigned k = 0; k < n; k++)
				assert_true(at[n] >= at[k] + step || at[n] + step <= at[k]);
			memset(at[n], (int)n, sizes[s]);
		}
		assert_int_equal(errno, ENOSPC);
		assert_int_equal(n, 8 * each[s]);
		for (unsigned k = 0; k < n; k++)
			assert_true(at[k][0] == (uint8_t)k && at[k][sizes[s] - 1] == (uint8_t)k);
		weir_pool_put(p, NULL);
		for (unsigned k = 0; k < n; k++) {
			weir_pool_put(p, at[k]);
			memset(at[k], 0xee, sizes[s]);
		}
		for (unsigned k = 0; k < n; k++) { /* each once, and no other */
			unsigned i = 0;

			again = weir_pool_get(p);
			while (i < n && at[i] != again)
				i++;
			assert_true(again && i < n);
			at[i] = NULL;
		}
		expect_null(weir_pool_get(p), ENOSPC);
		weir_pool_destroy(p); /* gives all chunks back */
	}
	world_close(&d);
}

static struct {
	struct weir_pool *p;
	void *at[8];
	pthread_barrier_t step;
} keeper;

static void *
keep_pieces(void *unused)
{
	for (unsigned i = 0; i < 8; i++)
		keeper.at[i] = weir_pool_get(keeper.p);
	for (unsigned i = 0; i < 8; i++)
		weir_pool_put(keeper.p, keeper.at[i]);
	pthread_barrier_wait(&keeper.step);
	pthread_barrier_wait(&keeper.step);
	return NULL;
}

/* A thread keeps its share at most, and all pieces come back when it ends. */
TEST(test_pool_thread_ends)
{
	for (unsigned keep = 0; keep < 6; keep++) {
		struct world d = world_open(4096, 4096, 4096);
		pthread_t thread;
		unsigned n = 0;

		assert_int_equal(weir_pool_create(d.c, 512, keep, &keeper.p), 0);
		pthread_barrier_init(&keeper.step, NULL, 2);
		assert_int_equal(pthread_create(&thread, NULL, keep_pieces, NULL), 0);
		pthread_barrier_wait(&keeper.step);
		while (weir_pool_get(keeper.p))
			n++;
		assert_true(n >= 8 - keep);
		assert_true(keep < 2 || n < 8);
		pthread_barrier_wait(&keeper.step);
		pthread_join(thread, NULL);
		while (weir_pool_get(keeper.p))
			n++;
		assert_int_equal(n, 8);
		pthread_barrier_destroy(&keeper.step);
		weir_pool_destroy(keeper.p);
		world_close(&d);
	}
}

/* Pieces that threads get from an allocator, and that others give back. */
struct swap {
	struct weir_pool *p;
	struct weir_general *h;
	uint32_t seed;
	_Atomic(uint32_t *)
	    place[16]; /* word 0: its bytes, then bytes with that number's pattern */
	_Atomic uint32_t wrong;
};

static void
mark(uint32_t *at, uint32_t bytes)
{
	at[0] = bytes;
	memset(at + 1, (int)(bytes * 31 >> 3), bytes - 4);
}

static bool
marked(const uint32_t *at)
{
	const uint8_t *byte = (const uint8_t *)at;
	uint32_t bytes = at[0];

	if (bytes < 8 || bytes > 20000)
		return false;
	for (uint32_t i = 4; i < bytes; i++)
		if (byte[i] != (uint8_t)(bytes * 31 >> 3))
			return false;
	return true;
}

static void *
swap_pieces(void *arg)
{
	struct swap *s = arg;
	uint32_t seed = s->seed ^ (uint32_t)(uintptr_t)pthread_self();

	for (unsigned i = 0; i < 20000 && !atomic_load(&s->wrong); i++) {
		uint32_t bytes = s->p ? 200 : 8 + next_random(&seed) % 9000;
		uint32_t *at = s->p ? weir_pool_get(s->p) : weir_general_get(s->h, bytes);

		if (at)
			mark(at, bytes);
		at = atomic_exchange(&s->place[next_random(&seed) % 16], at);
		if (at && !marked(at))
			atomic_fetch_add(&s->wrong, 1);
		if (s->p)
			weir_pool_put(s->p, at);
		else
			weir_general_put(s->h, at);
	}
	return NULL;
}

static void
swap_by_threads(struct swap *s)
{
	pthread_t thread[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, swap_pieces, s), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(s->wrong, 0);
	for (unsigned i = 0; i < 16; i++)
		if (s->p)
			weir_pool_put(s->p, s->place[i]);
		else
			weir_general_put(s->h, s->place[i]);
}

TEST(test_pool_of_threads)
{
	struct world d = world_open(4096, 16 * 4096, 4 * 4096);
	struct swap s = {.seed = random_seed("pool of threads")};
	unsigned n = 0;

	assert_int_equal(weir_pool_create(d.c, 200, 5, &s.p), 0);
	swap_by_threads(&s);
	for (; weir_pool_get(s.p); n++) /* all threads have ended: nothing is lost */
		;
	assert_int_equal(n, 4 * 16);
	weir_pool_destroy(s.p);
	world_close(&d);
}

/* ---- general ---- */

static uint32_t
chunks_left(struct world *d)
{
	void *at[64];
	uint32_t n = 0;

	while (n < 64 && (at[n] = weir_chunk_get(d->c)))
		n++;
	for (uint32_t i = n; i--;)
		weir_chunk_put(d->c, at[i]);
	return n;
}

TEST(test_general_fits_best)
{
	const uint32_t hole[] = {70, 66, 40, 64, 36, 67, 200, 33, 12, 9};
	const struct {
		uint32_t want, hole;
	} expected[] = {{65, 66}, {34, 36}, {10, 12}, {9, 9}, {68, 70}, {33, 33}, {199, 200}};
	struct world d = world_open(64 * KIB, 64 * KIB, 64 * KIB);
	struct weir_general *h;
	void *at[10];

	assert_int_equal(weir_general_create(d.c, &h), 0);
	for (unsigned i = 0; i < 10; i++) {
		at[i] = weir_general_get(h, hole[i] * 64);
		assert_non_null(weir_general_get(h, 0)); /* so that holes are not joined */
	}
	for (unsigned i = 0; i < 10; i++)
		weir_general_put(h, at[i]);
	for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		void *got = weir_general_get(h, expected[i].want * 64 - 63);
		unsigned k = 0;

		while (hole[k] != expected[i].hole)
			k++;
		assert_ptr_equal(got, at[k]);
	}
	weir_general_destroy(h);
	assert_int_equal(chunks_left(&d), 1);
	world_close(&d);
}

/* Pieces above a chunk have a region of their own, which serves others when they are back. */
TEST(test_general_large)
{
	struct world d = world_open(64 * KIB, 64 * KIB, 320 * KIB);
	struct weir_region *first, *last;
	struct weir_general *h;
	uint8_t *large, *small;
	uint64_t from, to;

	assert_int_equal(weir_general_create(d.c, &h), 0);
	expect_null(weir_general_get(h, 320 * KIB + 1), ENOSPC);
	expect_null(weir_general_get(h, UINT64_MAX), ENOSPC);
	assert_int_equal(plane_regions(d.f, d.w), 0);
	large = weir_general_get(h, 250 * KIB);
	assert_non_null(large);
	memset(large, 1, 250 * KIB);
	assert_int_equal(weir_chunk_where(d.c, large, &first, &from), 0);
	assert_int_equal(weir_chunk_where(d.c, large + 250 * KIB - 1, &last, &to), 0);
	assert_ptr_equal(first, last);
	assert_int_equal(to - from, 250 * KIB - 1);
	small = weir_general_get(h, 6 * KIB); /* the rest of the fourth chunk */
	assert_ptr_equal(small, large + 250 * KIB);
	expect_null(weir_general_get(h, 64 * KIB + 1), ENOSPC);
	weir_general_put(h, large);
	weir_general_put(h, small);
	assert_ptr_equal(weir_general_get(h, 256 * KIB), large);
	small = weir_general_get(h, 64 * KIB); /* the last chunk */
	assert_non_null(small);
	assert_int_equal(plane_regions(d.f, d.w), 2);
	expect_null(weir_general_get(h, 1), ENOSPC);
	weir_general_put(h, NULL);
	weir_general_destroy(h);
	assert_int_equal(chunks_left(&d), 5);
	world_close(&d);
}

#define PIECES 400u

struct piece {
	uint8_t *at;
	uint32_t bytes, number;
};

/* One byte of the map per granule of each region: which piece it is of. */
static uint16_t map[3][4096];
static const struct weir_region *mapped_region[3];

static uint16_t *
map_of(struct world *d, const uint8_t *at)
{
	struct weir_region *region;
	uint64_t offset;
	unsigned i = 0;

	assert_int_equal(weir_chunk_where(d->c, at, &region, &offset), 0);
	while (mapped_region[i] && mapped_region[i] != region)
		i++;
	assert_true(i < 3);
	mapped_region[i] = region;
	assert_int_equal(offset % 64, 0);
	return &map[i][offset / 64];
}

static void
drop_piece(struct world *d, struct weir_general *h, struct piece *p)
{
	uint16_t *owner = map_of(d, p->at);

	check_message(p->at, p->number, p->bytes);
	for (uint32_t k = 0; k < (p->bytes + 63) / 64; k++) {
		assert_int_equal(owner[k], 1);
		owner[k] = 0;
	}
	weir_general_put(h, p->at);
	memset(p->at, 0xee, p->bytes); /* no record lies there */
	p->at = NULL;
}

TEST(test_general_random)
{
	struct world d = world_open(32 * KIB, 128 * KIB, 320 * KIB);
	uint32_t seed = random_seed("general random"), number = 0, chunks = 0;
	static struct piece piece[PIECES];
	struct weir_general *h;

	memset(map, 0, sizeof(map));
	memset(mapped_region, 0, sizeof(mapped_region));
	memset(piece, 0, sizeof(piece));
	assert_int_equal(weir_general_create(d.c, &h), 0);
	for (unsigned i = 0; i < 60000; i++) {
		/* many small ones at some times, few large ones at others */
		uint32_t most = i / 5000 % 3 == 0 ? 200 : i / 5000 % 3 == 1 ? 4000 : 40000;
		struct piece *p = &piece[next_random(&seed) % PIECES];
		uint16_t *owner;

		if (p->at) {
			drop_piece(&d, h, p);
			continue;
		}
		p->bytes = 1 + next_random(&seed) % most;
		p->number = number++;
		p->at = weir_general_get(h, p->bytes);
		if (!p->at) {
			assert_int_equal(errno, ENOSPC);
			continue;
		}
		assert_int_equal((uintptr_t)p->at % 64, 0);
		owner = map_of(&d, p->at);
		for (uint32_t k = 0; k < (p->bytes + 63) / 64; k++) {
			assert_int_equal(owner[k], 0);
			owner[k] = 1;
		}
		for (uint32_t k = 0; k < p->bytes; k++)
			p->at[k] = pattern(p->number, k);
	}
	for (unsigned i = 0; i < PIECES; i++)
		if (piece[i].at)
			drop_piece(&d, h, &piece[i]);
	/* all is joined again: every chunk can be had as a whole */
	while (weir_general_get(h, 32 * KIB))
		chunks++;
	assert_int_equal(chunks, 10);
	weir_general_destroy(h);
	assert_int_equal(chunks_left(&d), 10);
	world_close(&d);
}

TEST(test_general_of_threads)
{
	struct world d = world_open(16 * KIB, 64 * KIB, 128 * KIB);
	struct swap s = {.seed = random_seed("general of threads")};
	unsigned n = 0;

	assert_int_equal(weir_general_create(d.c, &s.h), 0);
	swap_by_threads(&s);
	for (; weir_general_get(s.h, 16 * KIB); n++)
		;
	assert_int_equal(n, 8);
	weir_general_destroy(s.h);
	world_close(&d);
}

/* ---- the data plane ends ---- */

/* Chunks stay; further regions are of the next session. */
TEST(test_data_plane_restarts)
{
	struct weir_chunks_options o = WEIR_CHUNKS_OPTIONS_INIT;
	struct world d = {.f = plane_create(&(struct plane_options){.watched = true})};
	struct weir_region *region;
	uint8_t *at[4];
	uint64_t offset;

	o.chunk = 4096;
	o.step = 2 * 4096;
	d.w = plane_attach(d.f);
	assert_int_equal(weir_chunks_create(d.w, &o, &d.c), 0);
	for (unsigned i = 0; i < 2; i++) {
		at[i] = weir_chunk_get(d.c);
		assert_non_null(at[i]);
		memset(at[i], (int)i + 1, 4096);
	}
	plane_kill(d.f);
	while (weir_state(d.w) == WEIR_UP)
		weir_sleep(1000000);
	expect_null(weir_chunk_get(d.c), ENODEV);
	weir_chunk_put(d.c, at[1]);
	assert_ptr_equal(weir_chunk_get(d.c), at[1]);
	plane_come_back(d.f);
	assert_int_equal(weir_reattach(d.w, PATIENT), 0);
	for (unsigned i = 2; i < 4; i++) {
		at[i] = weir_chunk_get(d.c);
		assert_non_null(at[i]);
		memset(at[i], (int)i + 1, 4096);
	}
	assert_int_equal(plane_regions(d.f, d.w), 1);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(weir_chunk_where(d.c, at[i], &region, &offset), 0);
		assert_true(at[i][0] == i + 1 && at[i][4095] == i + 1);
	}
	world_close(&d);
}

/* ---- fork ---- */

static int
in_child(struct world *d, struct weir_pool *p, struct weir_general *h, struct weir_circular *q,
	 void *at)
{
	if (weir_chunk_get(d->c) || errno != ENOTCONN)
		return 1;
	if (weir_pool_get(p) || errno != ENOTCONN)
		return 2;
	if (weir_general_get(h, 1) || errno != ENOTCONN)
		return 3;
	if (weir_circular_get(q, 1) || errno != ENOTCONN)
		return 4;
	weir_pool_put(p, at);
	weir_general_put(h, at);
	weir_circular_hold(q, at);
	weir_circular_release(q, at);
	weir_circular_posted(q, NULL);
	weir_circular_destroy(q);
	weir_pool_destroy(p);
	weir_general_destroy(h);
	weir_chunks_destroy(d->c);
	return 0;
}

TEST(test_child)
{
	struct weir_circular_options o = WEIR_CIRCULAR_OPTIONS_INIT;
	struct world d = world_open(64 * KIB, 256 * KIB, 0);
	struct weir_circular *q;
	struct weir_general *h;
	struct weir_pool *p;
	void *at;
	int status;
	pid_t pid;

	o.first = 1;
	assert_int_equal(weir_circular_create(d.c, &o, &q), 0);
	assert_int_equal(weir_pool_create(d.c, 100, 4, &p), 0);
	assert_int_equal(weir_general_create(d.c, &h), 0);
	at = weir_general_get(h, 100);
	assert_non_null(at);
	weir_pool_put(p, weir_pool_get(p)); /* in this thread's cache */
	pid = fork();
	if (!pid)
		_exit(in_child(&d, p, h, q, at));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	weir_general_put(h, at);
	weir_circular_destroy(q);
	weir_pool_destroy(p);
	weir_general_destroy(h);
	world_close(&d);
}
