/* SPDX-License-Identifier: BSD-3-Clause */
/* Map tasks of the programs of apps/shuffle: handed out once, again if they fail or are slow. */
#include "worlds/test.h"

#include "shuffle/tasks.h"

#define SECOND UINT64_C(1000000000)

static uint32_t map, attempt;

/* A task for a process at a time in seconds. */
static enum task_answer
choose(struct tasks *t, uint32_t process, uint64_t second)
{
	return tasks_choose(t, process, second * SECOND, &map, &attempt);
}

static void
end(struct tasks *t, uint32_t which, bool ok, uint64_t second)
{
	tasks_ended(t, which, ok, second * SECOND);
}

TEST(all_run_once)
{
	struct tasks t;

	assert_int_equal(tasks_open(&t, 3), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(choose(&t, i, 0), TASK_RUN);
		assert_int_equal(map, i);
		assert_int_equal(attempt, 0);
	}
	assert_int_equal(choose(&t, 0, 100), TASK_WAIT); /* nothing to compare their time with */
	end(&t, 1, true, 1);
	end(&t, 0, true, 1);
	end(&t, 7, true, 1); /* there is none */
	assert_int_equal(choose(&t, 0, 2), TASK_WAIT);
	end(&t, 2, true, 2);
	assert_int_equal(choose(&t, 0, 2), TASK_OVER);
	tasks_close(&t);
}

TEST(a_failed_one_runs_again)
{
	struct tasks t;

	assert_int_equal(tasks_open(&t, 2), 0);
	assert_int_equal(choose(&t, 0, 0), TASK_RUN);
	assert_int_equal(choose(&t, 0, 0), TASK_RUN);
	for (uint32_t i = 1; i < TASK_ATTEMPTS_MAX; i++) {
		end(&t, 0, false, i);
		assert_int_equal(choose(&t, 1, i), TASK_RUN);
		assert_int_equal(map, 0);
		assert_int_equal(attempt, i);
	}
	end(&t, 0, false, 20);
	assert_int_equal(choose(&t, 0, 20), TASK_FAILED);
	assert_int_equal(choose(&t, 1, 20), TASK_FAILED);
	tasks_close(&t);
}

TEST(a_slow_one_runs_twice)
{
	struct tasks t;

	assert_int_equal(tasks_open(&t, 3), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(choose(&t, i, i), TASK_RUN);
	end(&t, 1, true, 11); /* took 10 s */
	assert_int_equal(choose(&t, 1, 20), TASK_WAIT);
	assert_int_equal(choose(&t, 1, 21), TASK_RUN);
	assert_int_equal(map, 0);
	assert_int_equal(attempt, 1);
	assert_int_equal(choose(&t, 1, 22), TASK_WAIT);
	assert_int_equal(choose(&t, 1, 23), TASK_RUN);
	assert_int_equal(map, 2);
	assert_int_equal(choose(&t, 1, 90), TASK_WAIT); /* not a third time */
	/* one of both fails: the other one still runs */
	end(&t, 0, false, 91);
	assert_int_equal(choose(&t, 1, 91), TASK_RUN);
	assert_int_equal(map, 0);
	assert_int_equal(attempt, 2);
	end(&t, 0, true, 92);
	end(&t, 0, true, 93); /* the other one, too late */
	end(&t, 2, true, 93);
	assert_int_equal(t.done, 3);
	assert_int_equal(choose(&t, 1, 93), TASK_OVER);
	tasks_close(&t);
}

TEST(those_of_a_lost_process_run_again)
{
	struct tasks t;

	assert_int_equal(tasks_open(&t, 4), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(choose(&t, i % 2, 0), TASK_RUN);
	end(&t, 3, true, 1);
	tasks_lost(&t, 1);
	assert_int_equal(choose(&t, 0, 1), TASK_RUN);
	assert_int_equal(map, 1);
	assert_int_equal(attempt, 1);
	assert_int_equal(choose(&t, 0, 1), TASK_WAIT);
	tasks_close(&t);
}
