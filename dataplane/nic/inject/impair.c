/* SPDX-License-Identifier: BSD-3-Clause */
#include "impair.h"

#include "ipc/invariant.h"

#include <stdio.h>

bool
impair_wanted(const struct impair_config *config)
{
	return config->loss > 0 || config->dup > 0 || config->reorder > 0 || config->corrupt > 0 ||
	       config->rate > 0 || config->delay_us > 0 || config->jitter_us > 0;
}

void
impair_text(const struct impair_config *config, char *text, size_t size)
{
	const struct {
		const char *name;
		double value;
	} all[] = {{"loss", config->loss},	 {"dup", config->dup},
		   {"reorder", config->reorder}, {"corrupt", config->corrupt},
		   {"rate", config->rate},	 {"delay", config->delay_us},
		   {"jitter", config->jitter_us}};
	size_t n = 0;

	text[0] = '\0';
	for (size_t k = 0; k < sizeof(all) / sizeof(all[0]) && n < size; k++)
		if (all[k].value > 0)
			n += (size_t)snprintf(text + n, size - n, "%s%s=%g", n ? " " : "",
					      all[k].name, all[k].value);
}

static uint32_t
share(double percent)
{
	double s = percent / 100 * 4294967296.0;

	return s >= 4294967295.0 ? UINT32_MAX : (uint32_t)s;
}

void
impair_set(struct impair *i, const struct impair_config *config)
{
	double rate = config->rate > 0 ? 8e6 / config->rate : 0; /* ps per byte */

	atomic_store_explicit(&i->loss, share(config->loss), memory_order_relaxed);
	atomic_store_explicit(&i->dup, share(config->dup), memory_order_relaxed);
	atomic_store_explicit(&i->reorder, share(config->reorder), memory_order_relaxed);
	atomic_store_explicit(&i->corrupt, share(config->corrupt), memory_order_relaxed);
	atomic_store_explicit(&i->delay_ns, config->delay_us * 1000ull, memory_order_relaxed);
	atomic_store_explicit(&i->jitter_ns, config->jitter_us * 1000ull, memory_order_relaxed);
	atomic_store_explicit(&i->byte_ps, rate > 0 && rate < 1 ? 1 : (uint64_t)rate,
			      memory_order_relaxed);
}

void
impair_init(struct impair *i, const struct impair_config *config, uint64_t stream,
	    struct impair_frame *held, uint32_t room)
{
	weir_assert(room <= IMPAIR_HELD);
	impair_set(i, config);
	i->random = config->seed * 0x9e3779b97f4a7c15u + stream;
	i->idle_at = 0;
	i->last_due = 0;
	i->first = 0;
	i->count = 0;
	i->room = room;
	i->held = held;
}

/* splitmix64 */
static uint32_t
next_random(struct impair *i)
{
	uint64_t z = i->random += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)((z ^ z >> 31) >> 32);
}

uint32_t
impair_below(struct impair *i, uint32_t n)
{
	return next_random(i) % n;
}

static uint64_t
get(const _Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

/* UINT32_MAX means always, not all but one in 2^32. */
static bool
happens(struct impair *i, const _Atomic uint32_t *share)
{
	uint32_t of = atomic_load_explicit(share, memory_order_relaxed);

	return of && (next_random(i) < of || of == UINT32_MAX);
}

unsigned
impair_fate(struct impair *i)
{
	unsigned fate = 0;

	if (happens(i, &i->loss))
		fate |= IMPAIR_LOSE;
	if (happens(i, &i->dup))
		fate |= IMPAIR_TWICE;
	if (happens(i, &i->reorder))
		fate |= IMPAIR_LATE;
	if (happens(i, &i->corrupt))
		fate |= IMPAIR_CORRUPT;
	return fate;
}

uint64_t
impair_due(struct impair *i, unsigned *fate, uint32_t length, uint64_t now)
{
	uint64_t delay = get(&i->delay_ns), jitter = get(&i->jitter_ns), byte = get(&i->byte_ps);
	uint64_t due = now;

	if (byte) { /* as a port of this speed would: one frame behind the other */
		uint64_t begin = i->idle_at > now ? i->idle_at : now;

		if (begin - now > IMPAIR_QUEUE_NS) {
			*fate |= IMPAIR_FULL;
			return now;
		}
		due = i->idle_at = begin + length * byte / 1000;
		*fate |= IMPAIR_LIMITED;
	}
	if (delay) {
		due += delay;
		*fate |= IMPAIR_DELAYED;
	}
	if (jitter) {
		due += next_random(i) % (jitter + 1);
		*fate |= IMPAIR_JITTERED;
	}
	if (*fate & IMPAIR_LATE)
		return due + 1 + next_random(i) % IMPAIR_REORDER_NS;
	/* reorder alone reorders: neither jitter nor a delay that became shorter does */
	if (due < i->last_due && i->count)
		due = i->last_due;
	i->last_due = due;
	return due;
}

static struct impair_frame *
held_at(const struct impair *i, uint32_t n)
{
	return &i->held[(i->first + n) & (IMPAIR_HELD - 1)];
}

bool
impair_hold(struct impair *i, void *frame, uint32_t length, uint64_t due)
{
	uint32_t at = i->count;

	if (i->count == i->room)
		return false;
	/* frames with equal due keep their order */
	for (; at > 0 && held_at(i, at - 1)->due > due; at--)
		*held_at(i, at) = *held_at(i, at - 1);
	*held_at(i, at) = (struct impair_frame){due, frame, length};
	i->count++;
	return true;
}

void *
impair_release(struct impair *i, uint64_t now, uint32_t *length)
{
	struct impair_frame *f = held_at(i, 0);

	if (i->count == 0 || f->due > now)
		return NULL;
	weir_assert(i->count <= IMPAIR_HELD);
	*length = f->length;
	i->first = (i->first + 1) & (IMPAIR_HELD - 1);
	i->count--;
	return f->frame;
}

uint64_t
impair_next(const struct impair *i)
{
	return i->count ? held_at(i, 0)->due : UINT64_MAX;
}
