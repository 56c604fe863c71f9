/* SPDX-License-Identifier: BSD-3-Clause */
#include "layout.h"
#include "apply.h"
#include "invariant.h"

#include <string.h>

#define INVALID UINT64_MAX
#define BYTES_MAX (1ull << 63)

__extension__ typedef __int128 wide; /* products and sums of 64-bit numbers */

struct extent {
	wide bytes, first, end;
};

/* False: beyond what a layout may describe. Called after each step, so that none overflows. */
static bool
is_in_range(const struct extent *x)
{
	return x->bytes <= (wide)BYTES_MAX && x->first >= INT64_MIN && x->end <= INT64_MAX;
}

uint64_t
weir_layout_bounds(const struct weir_layout *l, int64_t *first, int64_t *end)
{
	struct extent x = {0};

	if (l->reserved || (l->block ? l->dims > WEIR_LAYOUT_DIMS : !l->list || !l->count))
		return INVALID;
	x.bytes = x.end = l->block;
	if (!is_in_range(&x))
		return INVALID;
	for (uint32_t i = 0; l->block && i < l->dims; i++) {
		wide span = (wide)(l->dim[i].count - 1) * l->dim[i].stride;

		if (!l->dim[i].count)
			return INVALID;
		x.bytes *= l->dim[i].count;
		if (span < 0)
			x.first += span;
		else
			x.end += span;
		if (!is_in_range(&x))
			return INVALID;
	}
	for (size_t i = 0; !l->block && i < l->count; i++) {
		struct weir_piece p = l->list[i];

		if (!p.length)
			continue;
		if (!x.bytes || p.offset < x.first)
			x.first = p.offset;
		if (!x.bytes || (wide)p.offset + p.length > x.end)
			x.end = (wide)p.offset + p.length;
		x.bytes += p.length;
		if (!is_in_range(&x))
			return INVALID;
	}
	*first = (int64_t)x.first;
	*end = (int64_t)x.end;
	return (uint64_t)x.bytes;
}

uint64_t
weir_layout_bytes(const struct weir_layout *l)
{
	int64_t first, end;

	return weir_layout_bounds(l, &first, &end);
}

bool
weir_layout_fits(const struct weir_layout *l, uint64_t offset, uint64_t length)
{
	int64_t first, end;

	return weir_layout_bounds(l, &first, &end) != INVALID && (wide)offset + first >= 0 &&
	       (wide)offset + end <= (wide)length;
}

void
weir_layout_start(struct weir_layout_walk *w, const struct weir_layout *l)
{
	uint32_t n = 0;

	memset(w, 0, sizeof(*w));
	w->l = *l;
	if (!l->block)
		return;
	for (uint32_t i = 0; i < l->dims; i++) {
		if (l->dim[i].count == 1)
			continue;
		if (!n && l->dim[i].stride > 0 && (uint64_t)l->dim[i].stride == w->l.block)
			w->l.block *= l->dim[i].count;
		else
			w->l.dim[n++] = l->dim[i];
	}
	w->l.dims = n;
}

void
weir_layout_start_at(struct weir_layout_walk *w, const struct weir_layout *l, uint64_t first)
{
	memset(w, 0, sizeof(*w));
	w->l = *l;
	for (uint32_t i = 0; i < l->dims; i++) {
		w->index[i] = first % l->dim[i].count;
		first /= l->dim[i].count;
		w->offset += (int64_t)w->index[i] * l->dim[i].stride;
	}
	weir_assert(l->block && !first);
}

uint64_t
weir_layout_before(const struct weir_layout_walk *w)
{
	uint64_t n = 0;

	for (uint32_t i = w->l.dims; i--;)
		n = n * w->l.dim[i].count + w->index[i];
	return n;
}

/* The next piece, by the innermost dimension that has one. False: there is none. */
static bool
step(struct weir_layout_walk *w)
{
	for (uint32_t i = 0; i < w->l.dims; i++) {
		uint64_t stride = (uint64_t)w->l.dim[i].stride;

		if (++w->index[i] < w->l.dim[i].count) {
			w->offset = (int64_t)((uint64_t)w->offset + stride);
			return true;
		}
		w->offset = (int64_t)((uint64_t)w->offset - (w->index[i] - 1) * stride);
		w->index[i] = 0;
	}
	return false;
}

uint64_t
weir_layout_rest(struct weir_layout_walk *w, int64_t *offset)
{
	if (!w->l.block) {
		const struct weir_piece *p = &w->l.list[w->piece];

		for (; w->piece < w->l.count && w->taken == p->length; w->piece++, p++)
			w->taken = 0;
		if (w->piece == w->l.count)
			return 0;
		*offset = p->offset + (int64_t)w->taken;
		return p->length - w->taken;
	}
	if (w->taken == w->l.block) {
		if (!step(w)) /* the last one stays the one at hand */
			w->l.dims = 0;
		else
			w->taken = 0;
	}
	*offset = (int64_t)((uint64_t)w->offset + w->taken);
	return w->l.block - w->taken;
}

uint64_t
weir_layout_next(struct weir_layout_walk *w, uint64_t most, int64_t *offset)
{
	uint64_t rest = weir_layout_rest(w, offset), n = rest < most ? rest : most;

	w->taken += n;
	return n;
}

/* ---- copies ---- */

/* Pieces of equal length at equal distances. */
struct run {
	uint64_t length, count;
	int64_t offset, stride;
};

/* Takes a run of at most n bytes, at least 1, and returns them; 0: there are none left. */
static uint64_t
take_run(struct weir_layout_walk *w, uint64_t n, struct run *r)
{
	uint64_t rest = weir_layout_rest(w, &r->offset);

	weir_assert(n);
	if (!w->l.block || !w->l.dims || w->taken || n < w->l.block) {
		r->length = n < rest ? n : rest;
		r->count = 1;
		r->stride = 0;
		w->taken += r->length;
		return r->length;
	}
	r->length = w->l.block;
	r->count = w->l.dim[0].count - w->index[0];
	if (r->count > n / r->length)
		r->count = n / r->length;
	r->stride = w->l.dim[0].stride;
	/* the last of them stays the one at hand */
	w->index[0] += r->count - 1;
	w->offset += (int64_t)(r->count - 1) * r->stride;
	w->taken = r->length;
	return r->length * r->count;
}

static inline __attribute__((always_inline)) void
store_run(uint8_t *to, const struct run *r, const uint8_t *from, uint64_t length)
{
	for (uint64_t i = 0; i < r->count; i++, from += length)
		weir_store_whole(to + (int64_t)i * r->stride, from, length);
}

static inline __attribute__((always_inline)) void
load_run(uint8_t *to, const struct run *r, const uint8_t *from, uint64_t length)
{
	for (uint64_t i = 0; i < r->count; i++, to += length)
		weir_load_whole(to, from + (int64_t)i * r->stride, length);
}

void
weir_layout_store(struct weir_layout_walk *w, uint8_t *base, uint64_t start, const void *from,
		  uint64_t n)
{
	const uint8_t *at = from;
	uint64_t taken;
	struct run r;

	for (; n && (taken = take_run(w, n, &r)); n -= taken, at += taken) {
		uint8_t *to = base + (int64_t)(start + (uint64_t)r.offset);

		if (r.length == sizeof(uint64_t)) /* a loop of single stores */
			store_run(to, &r, at, sizeof(uint64_t));
		else
			store_run(to, &r, at, r.length);
	}
}

void
weir_layout_load(struct weir_layout_walk *w, const uint8_t *base, uint64_t start, void *to,
		 uint64_t n)
{
	uint8_t *at = to;
	uint64_t taken;
	struct run r;

	for (; n && (taken = take_run(w, n, &r)); n -= taken, at += taken) {
		const uint8_t *from = base + (int64_t)(start + (uint64_t)r.offset);

		if (r.length == sizeof(uint64_t))
			load_run(at, &r, from, sizeof(uint64_t));
		else
			load_run(at, &r, from, r.length);
	}
}

void
weir_layout_skip(struct weir_layout_walk *w, uint64_t n)
{
	uint64_t taken;
	struct run r;

	while (n && (taken = take_run(w, n, &r)))
		n -= taken;
}
