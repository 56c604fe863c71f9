/* SPDX-License-Identifier: BSD-3-Clause */
#include "tasks.h"

#include <errno.h>
#include <stdlib.h>

#define PATIENCE_NS UINT64_C(200000000) /* short tasks are not worth a second attempt */

int
tasks_open(struct tasks *t, uint32_t count)
{
	*t = (struct tasks){.count = count, .all = calloc(count ? count : 1, sizeof(*t->all))};
	return t->all ? 0 : -ENOMEM;
}

void
tasks_close(struct tasks *t)
{
	free(t->all);
}

/* UINT32_MAX: none. */
static uint32_t
find_idle(struct tasks *t)
{
	while (t->next < t->count && (t->all[t->next].done || t->all[t->next].running))
		t->next++;
	return t->next < t->count ? t->next : UINT32_MAX;
}

/* The attempt that has run longest, if it is much slower than all others were. */
static uint32_t
find_slow(const struct tasks *t, uint64_t now_ns)
{
	uint64_t before = now_ns - (2 * t->longest_ns + PATIENCE_NS);
	uint32_t slowest = UINT32_MAX;

	if (!t->done || now_ns < 2 * t->longest_ns + PATIENCE_NS)
		return UINT32_MAX;
	for (uint32_t i = 0; i < t->count; i++) {
		const struct task *task = &t->all[i];

		if (task->done || task->running != 1 || task->begin_ns > before ||
		    task->attempts == TASK_ATTEMPTS_MAX)
			continue;
		if (slowest == UINT32_MAX || task->begin_ns < t->all[slowest].begin_ns)
			slowest = i;
	}
	return slowest;
}

enum task_answer
tasks_choose(struct tasks *t, uint32_t process, uint64_t now_ns, uint32_t *map, uint32_t *attempt)
{
	uint32_t i;
	struct task *task;

	if (t->done == t->count)
		return TASK_OVER;
	i = find_idle(t);
	if (i == UINT32_MAX)
		i = find_slow(t, now_ns);
	if (t->failed)
		return TASK_FAILED;
	if (i == UINT32_MAX)
		return TASK_WAIT;
	task = &t->all[i];
	if (task->attempts == TASK_ATTEMPTS_MAX) {
		t->failed = true;
		return TASK_FAILED;
	}
	*map = i;
	*attempt = task->attempts++;
	task->running++;
	task->process = process;
	task->begin_ns = now_ns;
	t->attempts++;
	return TASK_RUN;
}

static void
stop_running(struct tasks *t, uint32_t map)
{
	struct task *task = &t->all[map];

	if (task->running)
		task->running--;
	if (!task->running && map < t->next)
		t->next = map;
}

void
tasks_ended(struct tasks *t, uint32_t map, bool ok, uint64_t now_ns)
{
	struct task *task;

	if (map >= t->count)
		return;
	task = &t->all[map];
	if (ok && !task->done) {
		task->done = true;
		t->done++;
		if (task->attempts == 1 && now_ns - task->begin_ns > t->longest_ns)
			t->longest_ns = now_ns - task->begin_ns;
	}
	stop_running(t, map);
}

void
tasks_lost(struct tasks *t, uint32_t process)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (!t->all[i].done && t->all[i].running && t->all[i].process == process)
			stop_running(t, i);
}
