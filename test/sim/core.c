/* SPDX-License-Identifier: BSD-3-Clause */
/* Chance, events, trace and failure of the simulator. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

void
sim_schedule(struct sim *s, struct sim_actor *actor, uint64_t at)
{
	if (at < s->now)
		at = s->now;
	if (at >= actor->due)
		return;
	actor->due = at;
	queue_push(&s->queue, (struct queued){at, rng_next(&s->rng), NULL, actor});
}

void
sim_unschedule(struct sim_actor *actor)
{
	actor->due = SIM_NEVER;
}

void
sim_call(struct sim *s, uint64_t at, void (*run)(struct sim *s, void *arg), void *arg)
{
	queue_push(&s->queue,
		   (struct queued){at < s->now ? s->now : at, rng_next(&s->rng), run, arg});
}

static void
nothing(struct sim *s, void *arg)
{
}

void
sim_cancel(struct sim *s, void (*run)(struct sim *s, void *arg),
	   void (*release)(struct sim *s, void *arg))
{
	for (size_t i = 0; i < s->queue.count; i++) {
		struct queued *e = &s->queue.heap[i];

		if (e->run != run)
			continue;
		release(s, e->subject);
		e->run = nothing;
	}
}

bool
sim_step(struct sim *s)
{
	struct sim_actor *actor;
	struct queued ev;

	while (queue_pop(&s->queue, SIM_NEVER, &ev)) {
		actor = ev.run ? NULL : ev.subject;
		/* an actor that was moved leaves a stale event behind */
		if (actor && actor->due != ev.at)
			continue;
		s->steps++;
		if (actor) {
			actor->due = SIM_NEVER;
			actor->run(s, actor->arg);
		} else {
			ev.run(s, ev.subject);
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
	if (s->options.exits) {
		printf("seed %lu: %s\n", s->sc.seed, s->cause);
		exit(1);
	}
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
