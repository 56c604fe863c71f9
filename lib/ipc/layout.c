/* SPDX-License-Identifier: BSD-3-Clause */
#include "layout.h"

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

static bool
list_extent(const struct weir_layout *l, struct extent *x)
{
	if (!l->list || !l->count)
		return false;
	for (size_t i = 0; i < l->count; i++) {
		struct weir_piece p = l->list[i];

		if (!p.length)
			continue;
		if (!x->bytes || p.offset < x->first)
			x->first = p.offset;
		if (!x->bytes || (wide)p.offset + p.length > x->end)
			x->end = (wide)p.offset + p.length;
		x->bytes += p.length;
		if (!is_in_range(x))
			return false;
	}
	return true;
}

static bool
strided_extent(const struct weir_layout *l, struct extent *x)
{
	x->bytes = x->end = l->block;
	if (l->dims > WEIR_LAYOUT_DIMS || !is_in_range(x))
		return false;
	for (uint32_t i = 0; i < l->dims; i++) {
		wide span = (wide)(l->dim[i].count - 1) * l->dim[i].stride;

		if (!l->dim[i].count)
			return false;
		x->bytes *= l->dim[i].count;
		if (span < 0)
			x->first += span;
		else
			x->end += span;
		if (!is_in_range(x))
			return false;
	}
	return true;
}

uint64_t
weir_layout_bounds(const struct weir_layout *l, int64_t *first, int64_t *end)
{
	struct extent x = {0};

	if (l->reserved || !(l->block ? strided_extent(l, &x) : list_extent(l, &x)))
		return INVALID;
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

static uint64_t
next_of_list(struct weir_layout_walk *w, uint64_t most, int64_t *offset)
{
	while (w->piece < w->l.count) {
		struct weir_piece p = w->l.list[w->piece];

		if (w->taken < p.length) {
			uint64_t n = p.length - w->taken < most ? p.length - w->taken : most;

			*offset = p.offset + (int64_t)w->taken;
			w->taken += n;
			return n;
		}
		w->taken = 0;
		w->piece++;
	}
	return 0;
}

uint64_t
weir_layout_next(struct weir_layout_walk *w, uint64_t most, int64_t *offset)
{
	uint64_t n;

	if (!w->l.block)
		return next_of_list(w, most, offset);
	if (w->taken == w->l.block) {
		if (!step(w)) /* the last one stays the one at hand */
			w->l.dims = 0;
		else
			w->taken = 0;
	}
	n = w->l.block - w->taken < most ? w->l.block - w->taken : most;
	*offset = (int64_t)((uint64_t)w->offset + w->taken);
	w->taken += n;
	return n;
}
