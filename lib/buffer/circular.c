/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Circular buffers. A unit goes round from list to list: free ones, oldest first; obtained since
 * the last weir_circular_posted(); then that of a tie, which is a mark and the units that are free
 * when it is done. Ties end in their order, and lists are joined as a whole, so freeing takes one
 * step per tie. A unit that is held leaves the free ones when its turn comes.
 */
#include "chunks.h"

#include "base/vec.h"
#include "client/reason.h"
#include "ipc/invariant.h"
#include "ipc/shm.h"
#include "remote/window.h"

#include <errno.h>
#include <stdlib.h>

#define NONE UINT32_MAX
#define UNIT_MIN 64u
#define UNITS_MAX (1u << 31)
#define LINEAR_ALIGN 16u
#define TIES_LEAST 16u

struct unit {
	uint32_t next; /* in its list */
	uint32_t holds : 31;
	uint32_t parked : 1; /* its turn came while it was held: in no list */
};

struct list {
	uint32_t first, last; /* NONE: empty */
};

/* Operations of this thread on a remote, and units that are free when they and those of all ties
 * before are complete. */
struct tie {
	const struct weir_remote *remote; /* NULL: forgotten, with a mark that is done */
	struct weir_mark mark;
	struct list units;
};

struct weir_circular {
	struct weir_chunks *chunks;
	uint32_t unit, most, growth;
	bool linear;
	bool refused;		/* chunks had no more: only free ones are taken */
	bool fresh;		/* memory was obtained since the last weir_circular_posted() */
	uint32_t current, used; /* linear: unit that requests share, NONE; bytes of it */
	uint32_t count;		/* units */
	struct unit *units;
	uint32_t per_chunk, chunk_count;
	uint8_t **chunk;
	struct list free, obtained;
	struct tie *ties;			 /* a ring, oldest first */
	uint32_t tie_first, tie_count, tie_room; /* room: a power of two */
};

static const struct list empty = {NONE, NONE};

/* Appends `more` to a list; then `more` is empty. */
static void
join(struct weir_circular *q, struct list *to, struct list *more)
{
	if (more->first == NONE)
		return;
	if (to->first == NONE)
		to->first = more->first;
	else
		q->units[to->last].next = more->first;
	to->last = more->last;
	*more = empty;
}

static void
append(struct weir_circular *q, struct list *to, uint32_t unit)
{
	struct list one = {unit, unit};

	q->units[unit].next = NONE;
	join(q, to, &one);
}

static uint8_t *
address(const struct weir_circular *q, uint32_t unit)
{
	return q->chunk[unit / q->per_chunk] + (uint64_t)(unit % q->per_chunk) * q->unit;
}

static struct unit *
unit_of(const struct weir_circular *q, const void *at)
{
	uint32_t chunk = *weir_chunk_tag(q->chunks, at);
	uint64_t offset;

	weir_assert(chunk < q->chunk_count);
	offset = (uint64_t)((const uint8_t *)at - q->chunk[chunk]);
	return &q->units[chunk * q->per_chunk + offset / q->unit];
}

static struct tie *
tie_at(struct weir_circular *q, uint32_t i)
{
	weir_assert(i < q->tie_count);
	return &q->ties[(q->tie_first + i) & (q->tie_room - 1)];
}

/* Units all of whose operations are tied are free behind the last tie. */
static void
settle(struct weir_circular *q, struct list *units)
{
	join(q, q->tie_count ? &tie_at(q, q->tie_count - 1)->units : &q->free, units);
}

/* Adds units up to that number. 0, or -errno: there are fewer, as many as the chunks permit. */
static int
extend(struct weir_circular *q, uint32_t count)
{
	uint32_t chunks = count / q->per_chunk + (count % q->per_chunk != 0), room;
	struct unit *units = realloc(q->units, count * sizeof(*units));
	uint8_t **list = NULL;
	int rc = 0;

	if (units) {
		q->units = units;
		list = realloc(q->chunk, chunks * sizeof(*list));
	}
	if (!list)
		return weir_fail(-ENOMEM, "no memory for the records of %u units; free some",
				 count);
	q->chunk = list;
	while (q->chunk_count < chunks) {
		void *chunk = q->refused ? weir_chunk_pop(q->chunks) : weir_chunk_get(q->chunks);

		if (!chunk) {
			rc = q->refused ? -ENOBUFS : -errno;
			break;
		}
		*weir_chunk_tag(q->chunks, chunk) = q->chunk_count;
		list[q->chunk_count++] = chunk;
	}
	room = q->chunk_count > count / q->per_chunk ? count : q->chunk_count * q->per_chunk;
	for (; q->count < room; q->count++) {
		units[q->count] = (struct unit){.next = NONE};
		append(q, &q->free, q->count);
	}
	return rc;
}

/* The oldest free unit that is not held. NONE: all are busy. */
static uint32_t
take_free(struct weir_circular *q)
{
	uint32_t i;

	while ((i = q->free.first) != NONE) {
		if (i == q->free.last)
			q->free = empty;
		else
			q->free.first = q->units[i].next;
		if (!q->units[i].holds)
			return i;
		q->units[i].parked = 1;
	}
	return NONE;
}

static uint32_t
take_unit(struct weir_circular *q)
{
	uint32_t i = take_free(q);

	if (i == NONE) {
		/* units whose operations are complete are free */
		while (q->tie_count && weir_mark_done(&tie_at(q, 0)->mark)) {
			join(q, &q->free, &tie_at(q, 0)->units);
			q->tie_first = (q->tie_first + 1) & (q->tie_room - 1);
			q->tie_count--;
		}
		i = take_free(q);
	}
	if (i == NONE && q->count < q->most) {
		uint64_t add = q->growth ? (uint64_t)q->count * q->growth / 100 : q->count;

		add = add ? add : 1;
		if (extend(q, add < q->most - q->count ? q->count + (uint32_t)add : q->most))
			q->refused = true;
		i = take_free(q);
	}
	return i;
}

void *
weir_circular_get(struct weir_circular *q, uint32_t bytes)
{
	uint32_t size = q->linear ? WEIR_ALIGN_UP(bytes ? bytes : 1, LINEAR_ALIGN) : q->unit, i;

	if (weir_chunks_forked(q->chunks))
		return NULL;
	if (weir_unlikely(bytes > q->unit)) {
		errno = -weir_fail(-EMSGSIZE, "%u bytes of a unit of %u; use larger units", bytes,
				   q->unit);
		return NULL;
	}
	if (q->current != NONE && size > q->unit - q->used) {
		/* the request does not fit the unit that requests share */
		struct list one = empty;

		append(q, q->fresh ? &q->obtained : &one, q->current);
		settle(q, &one);
		q->current = NONE;
	}
	if (q->current == NONE) {
		i = take_unit(q);
		if (weir_unlikely(i == NONE)) {
			errno = ENOBUFS;
			return NULL;
		}
		if (!q->linear) {
			append(q, &q->obtained, i);
			q->fresh = true;
			return address(q, i);
		}
		q->current = i;
		q->used = 0;
	}
	q->fresh = true;
	q->used += size;
	return address(q, q->current) + q->used - size;
}

/* One of the last ties that free no unit, and of that remote: its mark may move on. Or NULL. */
static struct tie *
last_tie_of(struct weir_circular *q, const struct weir_remote *r)
{
	for (uint32_t i = q->tie_count; i--;) {
		struct tie *t = tie_at(q, i);

		if (t->units.first != NONE)
			break;
		if (t->remote == r)
			return t;
	}
	return NULL;
}

void
weir_circular_posted(struct weir_circular *q, struct weir_remote *r)
{
	struct list units = q->obtained;
	struct tie *t;

	if (weir_chunks_forked(q->chunks))
		return;
	/* another remote for the memory that was tied last */
	if (!q->fresh && q->tie_count) {
		t = tie_at(q, q->tie_count - 1);
		units = t->units;
		t->units = empty;
	}
	q->obtained = empty;
	q->fresh = false;
	t = last_tie_of(q, r);
	if (!t && !RING_RESERVE(q->ties, q->tie_room, q->tie_first, q->tie_count, TIES_LEAST)) {
		q->tie_count++;
		t = tie_at(q, q->tie_count - 1);
		*t = (struct tie){.remote = r, .units = empty};
	}
	if (t)
		weir_remote_mark(r, &t->mark);
	else /* without the tie, what was posted must be complete, or have ended */
		weir_remote_flush_uninterrupted(r);
	settle(q, &units);
}

void
weir_circular_forget(struct weir_circular *q, const struct weir_remote *r)
{
	for (uint32_t i = 0; i < q->tie_count; i++) {
		struct tie *t = tie_at(q, i);

		if (t->remote == r) {
			t->remote = NULL;
			t->mark = (struct weir_mark){{0}};
		}
	}
}

void
weir_circular_hold(struct weir_circular *q, void *at)
{
	if (weir_chunks_forked(q->chunks))
		return;
	unit_of(q, at)->holds++;
}

void
weir_circular_release(struct weir_circular *q, void *at)
{
	struct unit *u;

	if (weir_chunks_forked(q->chunks))
		return;
	u = unit_of(q, at);
	weir_assert(u->holds);
	if (--u->holds || !u->parked)
		return;
	u->parked = 0;
	append(q, &q->free, (uint32_t)(u - q->units));
}

/* ---- creation ---- */

static int
acceptable(const struct weir_circular_options *o, uint64_t chunk)
{
	uint64_t set = o->reserved;

	for (unsigned i = 0; i < sizeof(o->more) / sizeof(o->more[0]); i++)
		set |= o->more[i];
	if (set || o->linear > 1)
		return weir_fail(-EINVAL, "weir_circular_options: linear is not 0 or 1, or a "
					  "reserved field not 0; initialize with "
					  "WEIR_CIRCULAR_OPTIONS_INIT");
	if (o->unit < UNIT_MIN || o->unit & (o->unit - 1) || o->unit > chunk)
		return weir_fail(-EINVAL,
				 "invalid unit of %u bytes (expected a power of two, %u to the "
				 "chunk size of %llu)",
				 o->unit, UNIT_MIN, (unsigned long long)chunk);
	if (!o->first || o->most < o->first)
		return weir_fail(-EINVAL,
				 "invalid numbers of units: first %u, most %u (expected 1 or more, "
				 "and most not below first)",
				 o->first, o->most);
	return 0;
}

int
weir_circular_create(struct weir_chunks *c, const struct weir_circular_options *options,
		     struct weir_circular **out)
{
	static const struct weir_circular_options usual = WEIR_CIRCULAR_OPTIONS_INIT;
	const struct weir_circular_options *o = options ? options : &usual;
	uint64_t chunk = weir_chunk_bytes(c);
	int rc = acceptable(o, chunk);
	struct weir_circular *q;

	if (rc)
		return rc;
	if (chunk / o->unit > UNITS_MAX) /* of one chunk; the rest of it is not used */
		chunk = (uint64_t)UNITS_MAX * o->unit;
	q = calloc(1, sizeof(*q));
	if (!q)
		return weir_fail(-ENOMEM, "no memory for a circular buffer; free some");
	*q = (struct weir_circular){.chunks = c,
				    .unit = o->unit,
				    .most = o->most,
				    .growth = o->growth,
				    .linear = o->linear,
				    .current = NONE,
				    .per_chunk = (uint32_t)(chunk / o->unit),
				    .free = empty,
				    .obtained = empty};
	rc = extend(q, o->first);
	if (rc) {
		weir_circular_destroy(q);
		return rc;
	}
	*out = q;
	return 0;
}

void
weir_circular_destroy(struct weir_circular *q)
{
	if (!q)
		return;
	for (uint32_t i = 0; i < q->chunk_count; i++)
		weir_chunk_put(q->chunks, q->chunk[i]);
	free(q->chunk);
	free(q->units);
	free(q->ties);
	free(q);
}
