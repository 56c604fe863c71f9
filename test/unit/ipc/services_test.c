/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of services, and who has which: the registry of a control without its network. */
#include "worlds/test.h"
#include "membership/registry.h"

TEST(test_list)
{
	struct weir_services s = {0}, t = {0};
	char name[WEIR_SERVICE_MAX];

	assert_true(weir_services_ok(&s));
	assert_true(weir_services_digest(&s) == 0);
	for (uint32_t i = 0; i < WEIR_SERVICES_MAX; i++) {
		snprintf(name, sizeof(name), "n%02u", i * 37 % WEIR_SERVICES_MAX);
		assert_int_equal(weir_services_add(&s, name), 0);
		assert_int_equal(weir_services_add(&s, name), 0);
		assert_true(weir_services_ok(&s));
		assert_int_equal(s.count, i + 1);
		snprintf(name, sizeof(name), "n%02u", i);
		weir_services_add(&t, name);
	}
	assert_int_equal(weir_services_add(&s, "more"), -ENOSPC);
	assert_int_equal(weir_services_add(&s, "a b"), -EINVAL);
	// The same names in whatever order they came.
	assert_true(weir_services_digest(&s) == weir_services_digest(&t));
	weir_services_remove(&s, "more");
	weir_services_remove(&s, "n63");
	weir_services_remove(&s, "n00");
	assert_int_equal(s.count, WEIR_SERVICES_MAX - 2);
	assert_true(weir_services_ok(&s));
	assert_false(weir_services_has(&s, "n00"));
	assert_true(weir_services_has(&s, "n01"));
	assert_false(weir_services_digest(&s) == weir_services_digest(&t));
	memset(s.name[3], 'x', WEIR_SERVICE_MAX);
	assert_false(weir_services_ok(&s));
	t.count = WEIR_SERVICES_MAX + 1;
	assert_false(weir_services_ok(&t));
}

// "ab", "c" is another list than "a", "bc".
TEST(test_digest)
{
	struct weir_services s = {0}, t = {0};

	weir_services_add(&s, "ab");
	weir_services_add(&s, "c");
	weir_services_add(&t, "a");
	weir_services_add(&t, "bc");
	assert_false(weir_services_digest(&s) == weir_services_digest(&t));
}

// ---- the registry ----

struct world {
	struct registry r;
	struct registry_ask asked;
	uint16_t asked_of, told_to, told_node, some;
	uint32_t asks, tells, changes;
};

static void
on_ask(void *user, uint16_t to, const struct registry_ask *ask)
{
	struct world *w = user;

	w->asked = *ask;
	w->asked_of = to;
	w->asks++;
}

static void
on_tell(void *user, uint16_t to, uint16_t node, const struct weir_services *list)
{
	struct world *w = user;

	assert_non_null(list);
	w->told_to = to;
	w->told_node = node;
	w->tells++;
}

static void
on_changed(void *user, uint16_t node)
{
	struct world *w = user;

	assert_non_null(registry_list(&w->r, node));
	w->changes++;
}

static bool
on_some(void *user, uint16_t *node)
{
	struct world *w = user;

	*node = w->some;
	return w->some != UINT16_MAX;
}

static const struct registry_ops ops = {
    .ask = on_ask,
    .tell = on_tell,
    .changed = on_changed,
    .some = on_some,
};

static struct weir_services
list_of(const char *a, const char *b)
{
	struct weir_services s = {0};

	assert_int_equal(weir_services_add(&s, a), 0);
	if (b)
		assert_int_equal(weir_services_add(&s, b), 0);
	return s;
}

TEST(test_asking)
{
	struct weir_services kv = list_of("kv", NULL), both = list_of("kv", "log");
	struct world w = {.some = 5};

	registry_init(&w.r, 1, &ops, &w);
	assert_null(registry_list(&w.r, 2));
	// None: nothing to ask for, but news for a data plane that may know better days.
	registry_record(&w.r, 2, 0, 1000);
	assert_int_equal(w.changes, 1);
	registry_record(&w.r, 2, weir_services_digest(&kv), 1000);
	assert_null(registry_list(&w.r, 2));
	// Of whom told it, then of anybody, no faster than that.
	registry_heard(&w.r, 3, 1000);
	assert_int_equal(w.asks, 1);
	assert_int_equal(w.asked_of, 3);
	assert_int_equal(w.asked.of[0].node, 2);
	registry_heard(&w.r, 3, 1010);
	registry_tick(&w.r, 1000 + REGISTRY_RETRY - 1);
	assert_int_equal(w.asks, 1);
	registry_tick(&w.r, 1000 + REGISTRY_RETRY);
	assert_int_equal(w.asks, 2);
	assert_int_equal(w.asked_of, 5);
	// Lists that were not asked for change nothing.
	registry_take(&w.r, 2, &both);
	registry_take(&w.r, 4, &kv);
	assert_null(registry_list(&w.r, 2));
	registry_take(&w.r, 2, &kv);
	assert_int_equal(w.changes, 2);
	assert_true(weir_services_has(registry_list(&w.r, 2), "kv"));
	registry_take(&w.r, 2, &kv); // twice
	registry_tick(&w.r, 9000);
	assert_int_equal(w.asks, 2);
	assert_int_equal(w.changes, 2);
	// The next one: the last holds on nowhere until it is there.
	registry_record(&w.r, 2, weir_services_digest(&both), 9000);
	assert_null(registry_list(&w.r, 2));
	registry_record(&w.r, 2, weir_services_digest(&kv), 9000);
	assert_true(weir_services_has(registry_list(&w.r, 2), "kv"));
	registry_forget(&w.r, 2);
	registry_forget(&w.r, 2);
	assert_null(registry_list(&w.r, 2));
	assert_int_equal(w.r.wanting, 0);
	registry_fini(&w.r);
}

TEST(test_answering)
{
	struct weir_services kv = list_of("kv", NULL), both = list_of("kv", "log");
	struct registry_ask ask = {.count = 3};
	struct world w = {.some = UINT16_MAX};

	registry_init(&w.r, 1, &ops, &w);
	registry_own(&w.r, &both);
	registry_record(&w.r, 2, weir_services_digest(&kv), 0);
	registry_tick(&w.r, 1000); // nobody lives
	assert_int_equal(w.asks, 0);
	ask.of[0].node = 1;
	ask.of[0].digest = weir_services_digest(&kv); // ours of another time
	ask.of[1].node = 2;
	ask.of[1].digest = weir_services_digest(&kv); // not there yet
	ask.of[2].node = 3;
	registry_asked(&w.r, 9, &ask);
	assert_int_equal(w.tells, 0);
	registry_take(&w.r, 2, &kv);
	registry_asked(&w.r, 9, &ask);
	assert_int_equal(w.tells, 1);
	assert_int_equal(w.told_node, 2);
	ask.of[0].digest = weir_services_digest(&both);
	ask.count = 1;
	registry_asked(&w.r, 9, &ask);
	assert_int_equal(w.tells, 2);
	assert_int_equal(w.told_to, 9);
	assert_int_equal(w.told_node, 1);
	registry_fini(&w.r);
}

// Of a thousand new lists only REGISTRY_UNDERWAY are asked for at a time.
TEST(test_bounds)
{
	struct weir_services kv = list_of("kv", NULL);
	struct world w = {.some = 5};
	uint64_t now = 1000;

	registry_init(&w.r, 1, &ops, &w);
	for (uint16_t id = 2000; id > 1000; id--)
		registry_record(&w.r, id, weir_services_digest(&kv), now);
	for (uint32_t i = 0; i < 10; i++)
		registry_tick(&w.r, now);
	assert_int_equal(w.asks, REGISTRY_UNDERWAY / REGISTRY_ASKS);
	for (uint32_t round = 0; w.r.wanting && round < 1000 / REGISTRY_ASKS + 2; round++) {
		for (uint32_t i = 0; i < w.asked.count; i++)
			registry_take(&w.r, w.asked.of[i].node, &kv);
		now += REGISTRY_RETRY;
		registry_tick(&w.r, now);
	}
	assert_int_equal(w.r.wanting, 0);
	registry_fini(&w.r);
}
