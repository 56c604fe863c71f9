/* SPDX-License-Identifier: BSD-3-Clause */
#include "impair.h"

#include "ipc/invariant.h"

#include <stddef.h>

bool
impair_wanted(const struct impair_config *config)
{
	return config->loss > 0 || config->dup > 0 || config->reorder > 0 || config->delay_us > 0;
}

static uint32_t
share(double percent)
{
	double s = percent / 100 * 4294967296.0;

	return s >= 4294967295.0 ? UINT32_MAX : (uint32_t)s;
}

void
impair_init(struct impair *i, const struct impair_config *config, uint64_t stream,
	    struct impair_frame *held)
{
	i->loss = share(config->loss);
	i->dup = share(config->dup);
	i->reorder = share(config->reorder);
	i->delay_ns = config->delay_us * 1000ull;
	i->random = config->seed * 0x9e3779b97f4a7c15u + stream;
	i->first = 0;
	i->count = 0;
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

/* UINT32_MAX means always, not all but one in 2^32. */
static bool
happens(struct impair *i, uint32_t of)
{
	return of && (next_random(i) < of || of == UINT32_MAX);
}

unsigned
impair_fate(struct impair *i)
{
	unsigned fate = 0;

	if (happens(i, i->loss))
		fate |= IMPAIR_LOSE;
	if (happens(i, i->dup))
		fate |= IMPAIR_TWICE;
	if (happens(i, i->reorder))
		fate |= IMPAIR_LATE;
	return fate;
}

uint64_t
impair_due(struct impair *i, unsigned fate, uint64_t now)
{
	uint64_t late = fate & IMPAIR_LATE ? 1 + next_random(i) % IMPAIR_REORDER_NS : 0;

	return now + i->delay_ns + late;
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

	if (i->count == IMPAIR_HELD)
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
