/* SPDX-License-Identifier: BSD-3-Clause */
/* Chance, virtual clock, event queue, trace and failure of the simulator. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* splitmix64: Steele, Lea, Flood 2014. */
uint64_t
rng_next(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint32_t
rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

bool
rng_chance(struct rng *r, uint32_t permille)
{
	return permille > 0 && rng_below(r, 1000) < permille;
}

uint64_t
rng_log(struct rng *r, uint64_t low, uint64_t high)
{
	uint32_t magnitudes = 1;
	uint64_t v;

	while (low << magnitudes < high)
		magnitudes++;
	v = low << rng_below(r, magnitudes);
	return v + rng_next(r) % ((v < high - v ? v : high - v) + 1);
}

uint64_t
sim_hash(uint64_t a, uint64_t b, uint64_t c)
{
	struct rng r = {a * 0xd6e8feb86659fd93ull ^ b * 0xa0761d6478bd642full ^ c};

	rng_next(&r);
	return rng_next(&r);
}

static bool
event_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void
heap_push(struct sim *s, struct sim_event ev)
{
	size_t i = s->heap_count++;

	if (i == s->heap_room) {
		s->heap_room = s->heap_room ? 2 * s->heap_room : 1024;
		s->heap = realloc(s->heap, s->heap_room * sizeof(*s->heap));
		if (!s->heap)
			abort();
	}
	for (; i > 0 && event_before(&ev, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = ev;
}

static struct sim_event
heap_pop(struct sim *s)
{
	struct sim_event top = s->heap[0];
	struct sim_event last = s->heap[--s->heap_count];
	size_t i = 0;

	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= s->heap_count)
			break;
		if (c + 1 < s->heap_count && event_before(&s->heap[c + 1], &s->heap[c]))
			c++;
		if (!event_before(&s->heap[c], &last))
			break;
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = last;
	return top;
}

void
sim_schedule(struct sim *s, struct sim_actor *actor, uint64_t at)
{
	if (at < s->now)
		at = s->now;
	if (at >= actor->due)
		return;
	actor->due = at;
	heap_push(s, (struct sim_event){at, rng_next(&s->rng), actor, NULL, NULL});
}

void
sim_unschedule(struct sim_actor *actor)
{
	actor->due = SIM_NEVER;
}

void
sim_call(struct sim *s, uint64_t at, void (*run)(struct sim *s, void *arg), void *arg)
{
	heap_push(s,
		  (struct sim_event){at < s->now ? s->now : at, rng_next(&s->rng), NULL, run, arg});
}

bool
sim_step(struct sim *s)
{
	while (s->heap_count) {
		struct sim_event ev = heap_pop(s);

		/* an actor that was moved leaves a stale event behind */
		if (ev.actor && ev.actor->due != ev.at)
			continue;
		s->now = ev.at;
		s->steps++;
		if (ev.actor) {
			ev.actor->due = SIM_NEVER;
			ev.actor->run(s, ev.actor->arg);
		} else {
			ev.run(s, ev.arg);
		}
		return true;
	}
	return false;
}

void
sim_progress(struct sim *s)
{
	s->progress_at = s->now;
}

void
sim_fail(struct sim *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(s->cause, sizeof(s->cause), format, args);
	va_end(args);
	longjmp(s->failed, 1);
}

void
sim_trace_line(struct sim *s, const char *format, ...)
{
	va_list args;

	printf("%12.3f us  ", (double)(s->now - SIM_START) / 1e3);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}
