/* SPDX-License-Identifier: BSD-3-Clause */
/* When an engine that shares its CPU gives it up. The engine is the test's own. */
#include "worlds/test.h"

#include "engine/engine.h"
#include "lcore/idle.h"
#include "lcore/timeslice.h"

#define US 1000ull

struct engine {
	bool served, delivered;
};

bool
engine_served(const struct engine *e)
{
	return e->served;
}

bool
engine_delivered(const struct engine *e)
{
	return e->delivered;
}

uint32_t
engine_active_channels(const struct engine *e)
{
	(void)e;
	return 0;
}

void
engine_set_away(struct engine *e, uint64_t ns)
{
	(void)e;
	(void)ns;
}

uint64_t
slice_now(void)
{
	return 0;
}

void
slice_set(uint64_t ns)
{
	(void)ns;
}

static struct engine engine;
static struct idle idle;

/* On a shared CPU, behind a yield after which the other threads soon had nothing to do. */
static int
begin(void **state)
{
	(void)state;
	engine = (struct engine){0};
	idle_init(&idle, IDLE_ADAPTIVE, 1000 * US, false);
	idle.shared = true;
	idle.yield_end = idle.last_work = 1000 * US;
	idle.yield_took = 3 * US;
	idle.yielded = idle.others_idle = true;
	return 0;
}

/* Turns with much work, each of 10 us: how long until the engine yields. */
static uint64_t
until_yield(void)
{
	uint64_t now = idle.yield_end;

	do
		now += 10 * US;
	while (idle_next(&idle, &engine, 32, now) == IDLE_RUN);
	return now - idle.yield_end;
}

TEST_IN(begin, NULL, programs_that_were_served_run_soon)
{
	engine.served = true;
	assert_int_equal(until_yield(), idle_tuning.turn_ns);
}

TEST_IN(begin, NULL, segments_of_a_large_message_come_without_yields)
{
	assert_int_equal(until_yield(), idle_tuning.quiet_ns);
}

/* The message is delivered while the engine has had the CPU for longer than others may wait. */
TEST_IN(begin, NULL, the_end_of_a_large_message_is_seen_at_once)
{
	uint64_t now = idle.yield_end + 90 * US;

	assert_int_equal(idle_next(&idle, &engine, 32, now), IDLE_RUN);
	engine.served = true;
	assert_int_equal(idle_next(&idle, &engine, 32, now + US), IDLE_YIELD);
}

TEST_IN(begin, NULL, threads_that_had_work_get_the_cpu_as_often_as_before)
{
	idle.others_idle = false;
	assert_int_equal(until_yield(), idle_tuning.turn_ns);
}

TEST_IN(begin, NULL, programs_that_have_not_looked_do_not_wait)
{
	idle.yielded = false;
	assert_int_equal(until_yield(), idle_tuning.turn_ns);
}

TEST_IN(begin, NULL, another_engine_on_the_cpu_does_not_wait)
{
	idle_init(&idle, IDLE_ADAPTIVE, 1000 * US, true);
	idle.yield_end = 1000 * US;
	idle.yielded = idle.others_idle = true;
	assert_int_equal(until_yield(), idle_tuning.turn_ns);
}

/* Few messages came, and their programs run here. */
TEST_IN(begin, NULL, an_answer_is_awaited_behind_a_yield)
{
	engine.served = engine.delivered = true;
	assert_int_equal(idle_next(&idle, &engine, 1, idle.yield_end + US), IDLE_YIELD);
}
