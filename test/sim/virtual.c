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
	uint64_t x = world.rng += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % limit;
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

static bool
sooner(const struct task *a, const struct task *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void
push(struct task *t)
{
	uint32_t i = world.heap_count++;

	if (i == world.heap_room) {
		world.heap_room = world.heap_room ? 2 * world.heap_room : 1024;
		world.heap = realloc(world.heap, world.heap_room * sizeof(world.heap[0]));
		if (!world.heap)
			abort();
	}
	t->order = world.order++;
	for (; i && sooner(t, world.heap[(i - 1) / 2]); i = (i - 1) / 2)
		world.heap[i] = world.heap[(i - 1) / 2];
	world.heap[i] = t;
}

static struct task *
pop(void)
{
	struct task *first = world.heap[0], *last = world.heap[--world.heap_count];
	uint32_t i = 0, child;

	for (; (child = 2 * i + 1) < world.heap_count; i = child) {
		child += child + 1 < world.heap_count &&
			 sooner(world.heap[child + 1], world.heap[child]);
		if (!sooner(world.heap[child], last))
			break;
		world.heap[i] = world.heap[child];
	}
	world.heap[i] = last;
	return first;
}

void
world_at(uint64_t at, struct host *host, task_fn run, void *arg, uint64_t tag)
{
	struct task *t = malloc(sizeof(*t));

	if (!t)
		abort();
	*t = (struct task){.at = at,
			   .host = host,
			   .life = host ? host->life : 0,
			   .tag = tag,
			   .run = run,
			   .arg = arg};
	push(t);
}

bool
world_step(void)
{
	struct task *t;
	struct host *h;
	bool alive;

	if (!world.heap_count)
		return false;
	t = pop();
	h = t->host;
	if (t->at > world.now)
		world.now = t->at;
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

void
world_run(uint64_t until)
{
	while (world.heap_count && world.heap[0]->at <= until)
		world_step();
	world.now = until;
}

void
world_resume(struct host *host)
{
	while (host->kept) {
		struct task *t = host->kept;

		host->kept = t->next;
		t->at = world.now;
		push(t);
	}
	host->kept_last = &host->kept;
}

void
world_free(void)
{
	while (world.heap_count) {
		struct task *t = pop();

		t->run(t->arg, t->tag, false);
		free(t);
	}
	free(world.heap);
	world.heap = NULL;
	world.heap_room = 0;
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
log_line(const char *format, ...)
{
	SAY(format);
}

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
