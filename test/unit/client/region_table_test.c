/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of regions: every size, and threads that search while regions come and go. */
#include "worlds/message_world.h"
#include "worlds/test.h"

#include "client/region.h"
#include "client/session.h"
#include "client/wait.h"

#include <pthread.h>
#include <sched.h>

#define SLOT 0x10000u /* of addresses, each for at most one region */
#define PAGE 4096u

static struct weir *
session(void)
{
	struct weir *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	return w;
}

static struct weir_region *
put(struct weir *w, uint32_t slot, uint64_t bytes, uint32_t flags)
{
	struct weir_region *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	*r = (struct weir_region){.w = w,
				  .addr = (uint8_t *)(uintptr_t)((slot + 1ull) * SLOT),
				  .bytes = bytes,
				  .index = slot + 1,
				  .flags = flags};
	assert_int_equal(weir_regions_reserve(&w->regions), 0);
	weir_regions_put(&w->regions, r);
	return r;
}

static bool
finds(struct weir *w, uint32_t slot, uint64_t offset, uint64_t length, const struct weir_region *r)
{
	const void *at = (const void *)(uintptr_t)((slot + 1ull) * SLOT + offset);
	struct weir_region *found = weir_region_use(w, at, length, WEIR_ADOPT_SEND);

	if (found)
		weir_region_drop(found);
	return found == r;
}

TEST(test_all)
{
	struct weir_region *at[WEIR_REGIONS_MAX] = {0};
	struct weir *w = session();
	uint32_t count = 0;

	assert_true(finds(w, 0, 0, 1, NULL));
	/* 1,367 is prime to the number of slots: each comes once in every WEIR_REGIONS_MAX steps */
	for (uint32_t i = 0; i < 2 * WEIR_REGIONS_MAX; i++) {
		uint32_t slot = i * 1367 % WEIR_REGIONS_MAX;
		uint64_t bytes = PAGE * (1 + slot % 16);

		at[slot] = put(w, slot, bytes, WEIR_ADOPT_SEND);
		count++;
		assert_true(finds(w, slot, 0, bytes, at[slot]));
		assert_true(finds(w, slot, bytes - 1, 1, at[slot]));
		assert_true(finds(w, slot, bytes - 1, 2, NULL));
		assert_true(finds(w, slot, 1, UINT64_MAX, NULL));
		if (slot == 0) /* the neighbour may touch it */
			assert_true(finds(w, slot, UINT64_MAX, 1, NULL));
		assert_true(finds(w, slot, PAGE, 0, bytes > PAGE ? at[slot] : NULL));
		if (count < WEIR_REGIONS_MAX - 100)
			continue;
		slot = (i + 101) * 1367 % WEIR_REGIONS_MAX; /* the oldest, or soon */
		if (at[slot]) {
			weir_regions_take(&w->regions, at[slot]);
			free(at[slot]);
			at[slot] = NULL;
			count--;
			assert_true(finds(w, slot, 0, 1, NULL));
		}
	}
	for (uint32_t i = 0; i < count; i++) {
		struct weir_region *r = weir_regions_at(&w->regions, i);

		assert_true(r && (!i || weir_regions_at(&w->regions, i - 1)->addr < r->addr));
	}
	assert_null(weir_regions_at(&w->regions, count));
	while (count--) {
		struct weir_region *r = weir_regions_at(&w->regions, count / 2);

		weir_regions_take(&w->regions, r);
		free(r);
	}
	weir_regions_free(&w->regions);
	free(w);
}

/* Other uses, and one that is leaving, are not found. */
TEST(test_uses)
{
	struct weir *w = session();
	struct weir_region *r = put(w, 1, PAGE, WEIR_ADOPT_RECV), *s;

	assert_true(finds(w, 1, 0, PAGE, NULL));
	r->flags |= WEIR_ADOPT_SEND;
	assert_true(finds(w, 1, 0, PAGE, r));
	s = weir_region_use(w, r->addr, 1, WEIR_ADOPT_RECV);
	assert_ptr_equal(s, r);
	assert_int_equal(atomic_load(&r->users), 1);
	weir_region_drop(s);
	atomic_store(&r->users, WEIR_REGION_LEAVING);
	assert_true(finds(w, 1, 0, PAGE, NULL));
	assert_int_equal(atomic_load(&r->users), WEIR_REGION_LEAVING);
	weir_regions_take(&w->regions, r);
	free(r);
	weir_regions_free(&w->regions);
	free(w);
}

struct taker {
	struct weir_region *r;
	_Atomic bool done;
};

static void *
take(void *arg)
{
	struct taker *t = arg;

	weir_regions_take(&t->r->w->regions, t->r);
	atomic_store(&t->done, true);
	return NULL;
}

/* A region leaves the table at once, but its memory stays while a thread searches. */
TEST(test_waits_for_searchers)
{
	struct weir *w = session();
	struct taker k = {.r = put(w, 1, PAGE, WEIR_ADOPT_SEND)};
	struct weir_region_list *before = atomic_load(&w->regions.list);
	uint32_t phase = weir_regions_enter(&w->regions);
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, take, &k), 0);
	while (atomic_load(&w->regions.list) == before)
		sched_yield();
	assert_true(finds(w, 1, 0, 1, NULL)); /* it keeps no new one waiting, and waits for none */
	weir_sleep(20000000);
	assert_false(atomic_load(&k.done));
	weir_regions_leave(&w->regions, phase);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(atomic_load(&k.done));
	free(k.r);
	weir_regions_free(&w->regions);
	free(w);
}

#define MOVING 8u /* regions that come and go */
#define ROUNDS 3000u

struct searcher {
	struct weir *w;
	_Atomic bool *stop;
	uint64_t found, wrong;
};

static void *
search(void *arg)
{
	struct searcher *s = arg;

	for (uint32_t i = 0; !atomic_load_explicit(s->stop, memory_order_relaxed); i++) {
		uint32_t slot = i % (2 * MOVING);
		struct weir_region *r = weir_region_use(
		    s->w, (const void *)(uintptr_t)((slot + 1ull) * SLOT), PAGE, WEIR_ADOPT_SEND);

		/* those that stay are always found */
		if (slot % 2)
			s->wrong += !r;
		if (!r)
			continue;
		s->found++;
		s->wrong += r->index != slot + 1 || r->w != s->w;
		weir_region_drop(r);
	}
	return NULL;
}

/* Regions leave, and their memory is reused, while others search and use them. */
TEST(test_threads)
{
	struct weir *w = session();
	struct weir_region *r[2 * MOVING];
	struct searcher s[3];
	_Atomic bool stop = false;
	uint64_t left = 0;
	pthread_t t[3];

	for (uint32_t i = 0; i < 2 * MOVING; i++)
		r[i] = put(w, i, PAGE, WEIR_ADOPT_SEND);
	for (unsigned i = 0; i < 3; i++) {
		s[i] = (struct searcher){.w = w, .stop = &stop};
		assert_int_equal(pthread_create(&t[i], NULL, search, &s[i]), 0);
	}
	for (uint32_t i = 0; i < ROUNDS || left < ROUNDS / 10; i++) {
		uint32_t slot = i % MOVING * 2, none = 0;

		if (!atomic_compare_exchange_strong(&r[slot]->users, &none, WEIR_REGION_LEAVING))
			continue; /* in use */
		left++;
		weir_regions_take(&w->regions, r[slot]);
		assert_int_equal(atomic_load(&r[slot]->users), WEIR_REGION_LEAVING);
		memset(r[slot], 0xff, sizeof(*r[slot]));
		free(r[slot]);
		r[slot] = put(w, slot, PAGE, WEIR_ADOPT_SEND);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(s[i].wrong, 0);
	}
	for (uint32_t i = 0; i < 2 * MOVING; i++) {
		assert_int_equal(atomic_load(&r[i]->users), 0);
		weir_regions_take(&w->regions, r[i]);
		free(r[i]);
	}
	weir_regions_free(&w->regions);
	free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_all),
	    cmocka_unit_test(test_uses),
	    cmocka_unit_test(test_waits_for_searchers),
	    cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
