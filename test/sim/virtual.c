/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual time, chance, and what of libevent and libc controls would reach past them. */
#include "virtual.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct world world;

uint64_t
world_random(uint64_t limit)
{
	return rng_next(&world.rng) % limit;
}

// Mostly fast; one in a hundred waits for a CPU.
uint64_t
world_delay(void)
{
	return world_random(100) ? 50 + world_random(400) : world_random(20 * MS);
}

bool
world_cut(const struct host *a, const struct host *b)
{
	return world.cut && a->side != b->side;
}

// ---- tasks ----

static void
push(struct task *t, uint64_t at)
{
	queue_push(&world.queue, (struct queued){at, world.queue.pushed, NULL, t});
}

void
world_at(uint64_t at, struct host *host, task_fn run, void *arg, uint64_t tag)
{
	struct task *t = malloc(sizeof(*t));

	if (!t)
		abort();
	*t = (struct task){
	    .host = host, .life = host ? host->life : 0, .tag = tag, .run = run, .arg = arg};
	push(t, at);
}

// Runs the next task that is due by `until`.
static bool
run_next(uint64_t until)
{
	struct queued next;
	struct task *t;
	struct host *h;
	bool alive;

	if (!queue_pop(&world.queue, until, &next))
		return false;
	t = next.subject;
	h = t->host;
	alive = !h || (h->running && h->life == t->life);
	if (h && alive && h->paused) {
		t->next = NULL;
		*h->kept_last = t;
		h->kept_last = &t->next;
		return true;
	}
	world.steps++;
	t->run(t->arg, t->tag, alive);
	free(t);
	return true;
}

bool
world_step(void)
{
	return run_next(UINT64_MAX);
}

void
world_run(uint64_t until)
{
	while (run_next(until))
		;
	world.now = until;
}

void
world_resume(struct host *host)
{
	while (host->kept) {
		struct task *t = host->kept;

		host->kept = t->next;
		push(t, world.now);
	}
	host->kept_last = &host->kept;
}

void
world_free(void)
{
	struct queued next;

	while (queue_pop(&world.queue, UINT64_MAX, &next)) {
		struct task *t = next.subject;

		t->run(t->arg, t->tag, false);
		free(t);
	}
	queue_free(&world.queue);
}

// ---- libevent: timers ----

struct event {
	struct host *host;
	event_callback_fn callback;
	void *user;
	uint64_t turn; // it fires when a task of this turn comes
	unsigned tasks;
	bool freed;
};

struct event *
event_new(struct event_base *base, evutil_socket_t fd, short what, event_callback_fn callback,
	  void *user)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->host = base->host;
	e->callback = callback;
	e->user = user;
	return e;
}

static void
fire(void *arg, uint64_t turn, bool alive)
{
	struct event *e = arg;

	e->tasks--;
	if (e->freed) {
		if (!e->tasks)
			free(e);
		return;
	}
	if (!alive || turn != e->turn)
		return;
	e->turn++;
	e->callback(-1, EV_TIMEOUT, e->user);
}

static void
schedule(struct event *e, uint64_t delay)
{
	e->tasks++;
	world_at(world.now + delay, e->host, fire, e, e->turn);
}

int
event_add(struct event *e, const struct timeval *wait)
{
	e->turn++;
	schedule(e, (uint64_t)wait->tv_sec * SECOND + (uint64_t)wait->tv_usec);
	return 0;
}

int
event_del(struct event *e)
{
	e->turn++;
	return 0;
}

void
event_active(struct event *e, int what, short calls)
{
	schedule(e, 0);
}

void
event_free(struct event *e)
{
	e->turn++;
	e->freed = true;
	if (!e->tasks)
		free(e);
}

// ---- time and chance ----

// Hosts' clocks say the same here; in test-membership they don't.
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int
__wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	uint64_t base = id == CLOCK_REALTIME ? UINT64_C(1700000000) : 0;

	ts->tv_sec = (time_t)(base + world.now / SECOND);
	ts->tv_nsec = (long)(world.now % SECOND * 1000);
	return 0;
}

ssize_t __wrap_getrandom(void *buf, size_t length, unsigned flags);
ssize_t
__wrap_getrandom(void *buf, size_t length, unsigned flags)
{
	uint8_t *at = buf;

	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)world_random(256);
	return (ssize_t)length;
}

// ---- log ----

static void
say(const char *format, va_list list)
{
	if (!world.trace)
		return;
	printf("%10.3f ms  ", (double)world.now / 1e3);
	vprintf(format, list);
	putchar('\n');
}

#define SAY(format)                                                                                \
	do {                                                                                       \
		va_list list_;                                                                     \
		va_start(list_, format);                                                           \
		say(format, list_);                                                                \
		va_end(list_);                                                                     \
	} while (0)

void
log_once(struct log_memory *memory, const char *format, ...)
{
	SAY(format);
}

void
log_once_about(struct log_memory *memory, const struct log_field *fields, size_t count,
	       const char *format, ...)
{
	SAY(format);
}

void
log_limited(struct log_memory *memory, uint64_t now_ms, const struct log_field *fields,
	    size_t count, const char *format, ...)
{
	SAY(format);
}

void
log_metered(struct log_cause *cause, uint64_t now_ms, enum log_level level,
	    const struct log_field *fields, size_t count, const char *format, ...)
{
	SAY(format);
}

void
log_blamed(struct log_budget *budget, const char *kind, const char *who, uint64_t now_ms,
	   const struct log_field *fields, size_t count, const char *format, ...)
{
	SAY(format);
}

void
log_forget(struct log_memory *memory)
{
}
