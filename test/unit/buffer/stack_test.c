/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stack of free chunks, with every compare and swap interrupted: in between, other threads
 * would take chunks and give some back. Likewise a thread that found no chunk, before its lock.
 */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "ipc/invariant.h"

#include <pthread.h>
#include <stdatomic.h>

static void interrupt(void);
static void overtake(void);

#undef atomic_compare_exchange_weak_explicit
#define atomic_compare_exchange_weak_explicit(at, old, wanted, good, bad)                          \
	(interrupt(), atomic_compare_exchange_strong_explicit(at, old, wanted, good, bad))
#define pthread_mutex_lock(lock) (overtake(), pthread_mutex_lock(lock))
#include "buffer/chunks.c"

#define CHUNKS 8u

static struct {
	struct plane *f;
	struct weir *w;
	struct weir_chunks *c;
	void *at[CHUNKS];
	bool held[CHUNKS];
	bool random, interrupted;
	uint32_t seed;
	unsigned overtake; /* threads that get a chunk before the next lock */
	void *of_overtaking;
} world;

static uint32_t
next_random(void)
{
	world.seed = world.seed * 1664525u + 1013904223u;
	return world.seed >> 8;
}

static unsigned
number_of(const void *chunk)
{
	unsigned i = 0;

	while (i < CHUNKS && world.at[i] != chunk)
		i++;
	assert_true(i < CHUNKS);
	return i;
}

static void *
take(void)
{
	void *chunk = weir_chunk_pop(world.c);

	if (chunk) {
		assert_false(world.held[number_of(chunk)]);
		world.held[number_of(chunk)] = true;
	}
	return chunk;
}

static void
give_back(void *chunk)
{
	/* before the call: an interruption may take it as soon as it is there */
	world.held[number_of(chunk)] = false;
	weir_chunk_put(world.c, chunk);
}

static void
take_or_give(void)
{
	unsigned i = next_random() % (2 * CHUNKS);

	if (i < CHUNKS && world.held[i])
		give_back(world.at[i]);
	else
		take();
}

static void
interrupt(void)
{
	void *first;

	if (world.interrupted)
		return;
	world.interrupted = true;
	if (world.random) {
		for (unsigned n = next_random() % 6; n; n--)
			take_or_give();
		world.interrupted = false;
	} else { /* once */
		first = take();
		take();
		give_back(first);
	}
}

static void
overtake(void)
{
	if (world.overtake) {
		world.overtake--;
		world.of_overtaking = weir_chunk_get(world.c);
	}
}

/* Regions of CHUNKS chunks; `most`: bytes of all, 0: no limit. */
static void
make_chunks(uint64_t most)
{
	struct weir_chunks_options o = WEIR_CHUNKS_OPTIONS_INIT;

	memset(&world, 0, sizeof(world));
	world.interrupted = true;
	world.f = plane_create(NULL);
	world.w = plane_attach(world.f);
	o.chunk = 4096;
	o.step = CHUNKS * 4096;
	o.most = most;
	assert_int_equal(weir_chunks_create(world.w, &o, &world.c), 0);
}

static void
open_world(void)
{
	make_chunks(CHUNKS * 4096);
	for (unsigned i = 0; i < CHUNKS; i++)
		world.at[i] = weir_chunk_get(world.c);
	for (unsigned i = CHUNKS; i--;)
		weir_chunk_put(world.c, world.at[i]);
	world.interrupted = false;
}

static void
close_world(void)
{
	weir_chunks_destroy(world.c);
	plane_settle(world.f);
	weir_detach(world.w);
	plane_destroy(world.f);
}

/* The first chunk has come back, and the second is gone. */
TEST(test_comes_back)
{
	open_world();
	assert_ptr_equal(take(), world.at[0]);
	for (unsigned i = 2; i < CHUNKS; i++)
		assert_ptr_equal(take(), world.at[i]);
	assert_null(take());
	close_world();
}

/* A thread finds no chunk; before its lock, another one allocates a region that serves both. */
TEST(test_regions_of_threads)
{
	void *chunk;

	make_chunks(0);
	world.overtake = 1;
	chunk = weir_chunk_get(world.c);
	assert_non_null(chunk);
	assert_non_null(world.of_overtaking);
	assert_ptr_not_equal(chunk, world.of_overtaking);
	assert_int_equal(plane_regions(world.f, world.w), 1);
	close_world();
}

TEST(test_random)
{
	const char *given = getenv("WEIR_SEED");
	uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)getpid();
	unsigned n = 0;

	open_world();
	print_message("random: WEIR_SEED=%u\n", seed);
	world.seed = seed;
	world.random = true;
	for (unsigned i = 0; i < 200000; i++)
		take_or_give();
	world.interrupted = true;
	for (unsigned i = 0; i < CHUNKS; i++)
		n += world.held[i];
	while (take())
		n++;
	assert_int_equal(n, CHUNKS); /* none is lost */
	close_world();
}
