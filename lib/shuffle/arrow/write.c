/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan chooses the elements of each array that go into the block; sizes follow. A struct's
 * children have the elements of the struct. A list's child gets a list of its own, and a dictionary
 * too: a block has only the values that its rows use, since the whole dictionary in each block of
 * each partition can be many times the rows. Values keep their order in an ordered dictionary,
 * otherwise they are in the order of their first use.
 *
 * Nulls are written in one way: no bytes, no elements, index 0. Elements of fixed width are copied
 * in any case, which is faster.
 */
#include "write.h"

#include "array.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>

/* The elements of an array that a block has. Number k is at the place base + row[k] + the array's
 * offset. */
struct choice {
	const struct ArrowArray *array;
	const uint32_t *row;
	uint64_t base;
	uint32_t n, nulls;
	uint64_t data;	/* bytes or elements that the chosen offsets cover */
	uint32_t *list; /* memory for `row`, below lists and dictionaries */
	size_t room;	/* elements of `list` */
	uint32_t *used; /* index of a dictionary's value in the block, from 1; 0: not used */
};

struct arrow_writer {
	const struct arrow_schema *s;
	uint64_t bytes; /* of the plan, or written so far */
	uint8_t *to;
	struct choice choice[]; /* one per node */
};

/* ---- arrays ---- */

static void
assign(struct arrow_writer *w, uint32_t node, const struct ArrowArray *a)
{
	const struct arrow_type *t = &w->s->type[node];
	uint32_t below = node + 1;

	w->choice[node].array = a;
	if (t->dictionary)
		assign(w, below, a->dictionary);
	for (uint32_t i = 0; i < t->children; i++) {
		assign(w, below, a->children[i]);
		below += w->s->type[below].nodes;
	}
}

int
arrow_writer_open(const struct arrow_schema *s, const struct ArrowArray *rows,
		  struct arrow_writer **w)
{
	*w = calloc(1, sizeof(**w) + s->nodes * sizeof((*w)->choice[0]));
	if (!*w)
		return weir_fail(-ENOMEM, "no memory to push a batch of %u columns", s->nodes);
	(*w)->s = s;
	assign(*w, 0, rows);
	return 0;
}

void
arrow_writer_close(struct arrow_writer *w)
{
	for (uint32_t i = 0; i < w->s->nodes; i++) {
		free(w->choice[i].list);
		free(w->choice[i].used);
	}
	free(w);
}

static uint64_t
table_at(const struct arrow_schema *s)
{
	return sizeof(struct arrow_head) + (((uint64_t)s->bytes + 7) & ~7ull);
}

uint64_t
arrow_overhead(const struct arrow_schema *s)
{
	return table_at(s) + (uint64_t)s->nodes * (sizeof(struct arrow_node) + 3 * ARROW_ALIGN);
}

static uint64_t
place_of(const struct choice *c, uint32_t k)
{
	return c->base + c->row[k] + (uint64_t)c->array->offset;
}

/* ---- planning ---- */

/* Bytes of the next buffer. */
static void
plan_buffer(struct arrow_writer *w, uint64_t bytes)
{
	w->bytes = arrow_align(w->bytes) + bytes;
}

static int
reserve_list(struct choice *c, uint64_t n)
{
	uint32_t *list;

	if (n <= c->room)
		return 0;
	list = realloc(c->list, n * sizeof(*list));
	if (!list)
		return weir_fail(-ENOMEM, "no memory to choose %llu elements",
				 (unsigned long long)n);
	c->list = list;
	c->room = n;
	return 0;
}

static int
by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Chooses the values of a dictionary that are in use. */
static int
plan_dictionary(const struct arrow_type *t, const struct choice *c, struct choice *values)
{
	uint64_t all = (uint64_t)values->array->length;
	int rc = reserve_list(values, c->n < all ? c->n : all);

	if (rc)
		return rc;
	if (!values->used)
		values->used = calloc(all ? all : 1, sizeof(*values->used));
	if (!values->used)
		return weir_fail(-ENOMEM, "no memory for a dictionary of %llu values",
				 (unsigned long long)all);
	for (uint32_t k = 0; k < values->n; k++) /* of the plan before */
		values->used[values->list[k]] = 0;
	values->n = 0;
	for (uint32_t k = 0; k < c->n; k++) {
		uint64_t place = place_of(c, k), index;

		if (arrow_is_null(c->array, place))
			continue;
		index = arrow_index(t, c->array->buffers[1], place);
		if (values->used[index])
			continue;
		values->list[values->n++] = (uint32_t)index;
		values->used[index] = values->n;
	}
	if (!values->n || !(t->flags & ARROW_FLAG_DICTIONARY_ORDERED))
		return 0;
	qsort(values->list, values->n, sizeof(*values->list), by_number);
	for (uint32_t k = 0; k < values->n; k++)
		values->used[values->list[k]] = k + 1;
	return 0;
}

/* Counts bytes or elements below the chosen offsets. */
static uint64_t
count_data(const struct arrow_type *t, const struct choice *c)
{
	uint64_t sum = 0;

	for (uint32_t k = 0; k < c->n; k++) {
		uint64_t place = place_of(c, k);

		if (!arrow_is_null(c->array, place))
			sum += (uint64_t)(arrow_offset(t, c->array, place + 1) -
					  arrow_offset(t, c->array, place));
	}
	return sum;
}

/* Chooses the elements of lists. */
static int
plan_elements(const struct arrow_type *t, struct choice *c, struct choice *elements)
{
	bool fixed = t->layout == ARROW_FIXED_LIST;
	uint32_t *to;
	int rc;

	c->data = fixed ? (uint64_t)c->n * t->width : count_data(t, c);
	if (c->data > ARROW_LENGTH_MAX)
		return -EMSGSIZE;
	rc = reserve_list(elements, c->data);
	if (rc)
		return rc;
	to = elements->list;
	for (uint32_t k = 0; k < c->n; k++) {
		uint64_t place = place_of(c, k), at = place * t->width, end = at + t->width;

		if (!fixed && arrow_is_null(c->array, place))
			continue;
		if (!fixed) {
			at = (uint64_t)arrow_offset(t, c->array, place);
			end = (uint64_t)arrow_offset(t, c->array, place + 1);
		}
		while (at < end)
			*to++ = (uint32_t)at++;
	}
	return 0;
}

static uint32_t
count_nulls(const struct choice *c)
{
	uint32_t nulls = 0;

	if (!arrow_has_nulls(c->array))
		return 0;
	for (uint32_t k = 0; k < c->n; k++)
		nulls += !arrow_bit(c->array->buffers[0], place_of(c, k));
	return nulls;
}

static int
plan(struct arrow_writer *w, uint32_t node, const uint32_t *row, uint32_t n, uint64_t base)
{
	const struct arrow_type *t = &w->s->type[node];
	struct choice *c = &w->choice[node], *below = c + 1;
	int rc = 0;

	if (n > ARROW_LENGTH_MAX)
		return -EMSGSIZE;
	c->row = row;
	c->n = n;
	c->base = base;
	c->nulls = t->layout == ARROW_NULL ? n : count_nulls(c);
	if (t->layout == ARROW_NULL)
		return 0;
	if (c->nulls)
		plan_buffer(w, arrow_bitmap(n));
	switch (t->layout) {
	case ARROW_BOOL:
		plan_buffer(w, arrow_bitmap(n));
		return 0;
	case ARROW_FIXED:
		plan_buffer(w, (uint64_t)n * t->width);
		if (t->dictionary)
			rc = plan_dictionary(t, c, below);
		return rc || !t->dictionary ? rc : plan(w, node + 1, below->list, below->n, 0);
	case ARROW_BYTES:
	case ARROW_LARGE_BYTES:
		c->data = count_data(t, c);
		if (c->data > WEIR_RECORD_MAX) /* and sums of sizes do not overflow */
			return -EMSGSIZE;
		plan_buffer(w, ((uint64_t)n + 1) * arrow_offset_width(t));
		plan_buffer(w, c->data);
		return 0;
	case ARROW_LIST:
	case ARROW_LARGE_LIST:
		plan_buffer(w, ((uint64_t)n + 1) * arrow_offset_width(t));
		/* fall through */
	case ARROW_FIXED_LIST:
		rc = plan_elements(t, c, below);
		return rc ? rc : plan(w, node + 1, below->list, (uint32_t)c->data, 0);
	default:
		break;
	}
	weir_assert(t->layout == ARROW_STRUCT);
	base += (uint64_t)c->array->offset;
	node++;
	for (uint32_t i = 0; !rc && i < t->children; i++, node += w->s->type[node].nodes)
		rc = plan(w, node, row, n, base);
	return rc;
}

int
arrow_plan(struct arrow_writer *w, const uint32_t *row, uint32_t n, uint64_t *bytes)
{
	int rc;

	w->bytes = table_at(w->s) + (uint64_t)w->s->nodes * sizeof(struct arrow_node);
	rc = plan(w, 0, row, n, 0);
	*bytes = w->bytes = arrow_length(w->bytes, n);
	return rc;
}

/* ---- writing ---- */

/* Returns the memory of the next buffer, behind zeroes. */
static uint8_t *
write_buffer(struct arrow_writer *w, uint64_t bytes)
{
	uint64_t at = arrow_align(w->bytes);

	memset(w->to + w->bytes, 0, at - w->bytes);
	w->bytes = at + bytes;
	return w->to + at;
}

static void
write_bits(struct arrow_writer *w, const struct choice *c, const uint8_t *bits)
{
	uint8_t *to = write_buffer(w, arrow_bitmap(c->n)), byte = 0;

	for (uint32_t k = 0; k < c->n; k++) {
		byte |= (uint8_t)(arrow_bit(bits, place_of(c, k)) << k % 8);
		if (k % 8 < 7 && k + 1 < c->n)
			continue;
		*to++ = byte;
		byte = 0;
	}
}

/* With a constant width, each copy is one load and one store. */
static inline __attribute__((always_inline)) void
copy_elements(uint8_t *to, const uint8_t *from, const struct choice *c, uint32_t width)
{
	from += (c->base + (uint64_t)c->array->offset) * width;
	for (uint32_t k = 0; k < c->n; k++, to += width)
		memcpy(to, from + (uint64_t)c->row[k] * width, width);
}

static void
write_fixed(struct arrow_writer *w, const struct choice *c, uint32_t width)
{
	uint8_t *to = write_buffer(w, (uint64_t)c->n * width);
	const uint8_t *from = c->array->buffers[1];

	if (!c->n || !width)
		return;
	switch (width) {
	case 1:
		copy_elements(to, from, c, 1);
		break;
	case 2:
		copy_elements(to, from, c, 2);
		break;
	case 4:
		copy_elements(to, from, c, 4);
		break;
	case 8:
		copy_elements(to, from, c, 8);
		break;
	case 16:
		copy_elements(to, from, c, 16);
		break;
	default:
		copy_elements(to, from, c, width);
	}
}

static void
write_indices(struct arrow_writer *w, const struct arrow_type *t, const struct choice *c,
	      const struct choice *values)
{
	uint8_t *to = write_buffer(w, (uint64_t)c->n * t->width);

	for (uint32_t k = 0; k < c->n; k++, to += t->width) {
		uint64_t place = place_of(c, k), index = 0;

		if (!arrow_is_null(c->array, place))
			index =
			    values->used[arrow_index(t, c->array->buffers[1], place)] - UINT64_C(1);
		memcpy(to, &index, t->width);
	}
}

static void
write_offsets(struct arrow_writer *w, const struct arrow_type *t, const struct choice *c)
{
	uint32_t width = arrow_offset_width(t);
	uint8_t *to = write_buffer(w, ((uint64_t)c->n + 1) * width);
	uint64_t sum = 0;

	memcpy(to, &sum, width);
	for (uint32_t k = 0; k < c->n; k++) {
		uint64_t place = place_of(c, k);

		if (!arrow_is_null(c->array, place))
			sum += (uint64_t)(arrow_offset(t, c->array, place + 1) -
					  arrow_offset(t, c->array, place));
		to += width;
		memcpy(to, &sum, width);
	}
	weir_assert(sum == c->data);
}

static void
write_bytes(struct arrow_writer *w, const struct arrow_type *t, const struct choice *c)
{
	uint8_t *to = write_buffer(w, c->data);
	const uint8_t *from = c->array->buffers[2];

	for (uint32_t k = 0; k < c->n; k++) {
		uint64_t place = place_of(c, k), at, n;

		if (arrow_is_null(c->array, place))
			continue;
		at = (uint64_t)arrow_offset(t, c->array, place);
		n = (uint64_t)arrow_offset(t, c->array, place + 1) - at;
		if (n)
			memcpy(to, from + at, n);
		to += n;
	}
}

static void
write_node(struct arrow_writer *w, uint32_t node)
{
	const struct arrow_type *t = &w->s->type[node];
	const struct choice *c = &w->choice[node];

	if (t->layout == ARROW_NULL)
		return;
	if (c->nulls)
		write_bits(w, c, c->array->buffers[0]);
	switch (t->layout) {
	case ARROW_BOOL:
		write_bits(w, c, c->array->buffers[1]);
		break;
	case ARROW_FIXED:
		if (t->dictionary)
			write_indices(w, t, c, c + 1);
		else
			write_fixed(w, c, t->width);
		break;
	case ARROW_BYTES:
	case ARROW_LARGE_BYTES:
		write_offsets(w, t, c);
		write_bytes(w, t, c);
		break;
	case ARROW_LIST:
	case ARROW_LARGE_LIST:
		write_offsets(w, t, c);
		break;
	default: /* children alone */
		break;
	}
}

void
arrow_write(struct arrow_writer *w, uint8_t *to)
{
	const struct arrow_schema *s = w->s;
	uint64_t at = table_at(s), planned = w->bytes;
	struct arrow_head head = {
	    .magic = ARROW_MAGIC,
	    .version = ARROW_VERSION,
	    .bytes = (uint32_t)planned,
	    .schema = s->bytes,
	    .nodes = s->nodes,
	};

	weir_assert(planned <= WEIR_RECORD_MAX);
	memcpy(to, &head, sizeof(head));
	memcpy(to + sizeof(head), s->image, s->bytes);
	memset(to + sizeof(head) + s->bytes, 0, at - sizeof(head) - s->bytes);
	for (uint32_t i = 0; i < s->nodes; i++, at += sizeof(struct arrow_node)) {
		struct arrow_node n = {w->choice[i].n, w->choice[i].nulls};

		memcpy(to + at, &n, sizeof(n));
	}
	w->to = to;
	w->bytes = at;
	for (uint32_t i = 0; i < s->nodes; i++)
		write_node(w, i);
	weir_assert(arrow_length(w->bytes, w->choice[0].n) == planned);
	memset(to + w->bytes, 0, planned - w->bytes);
}
