/* SPDX-License-Identifier: BSD-3-Clause */
#include "read.h"

#include "array.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BUFFERS_MAX 3 /* of an array */

static int
malformed(const char *what)
{
	return weir_fail(-EBADMSG,
			 "a block of record batches is malformed: %s; its producer is of another "
			 "release, or hostile",
			 what);
}

static int
read_head(const struct weir_block *b, struct arrow_head *h)
{
	uint64_t table;

	if (b->length < sizeof(*h) || b->length > WEIR_RECORD_MAX)
		return malformed("its length");
	memcpy(h, b->data, sizeof(*h));
	if (h->magic != ARROW_MAGIC || h->version != ARROW_VERSION)
		return malformed("magic or version");
	table = sizeof(*h) + (((uint64_t)h->schema + 7) & ~7ull);
	if (h->bytes != b->length ||
	    table + (uint64_t)h->nodes * sizeof(struct arrow_node) > b->length)
		return malformed("its length");
	return 0;
}

int
arrow_read_schema(const struct weir_block *b, const struct arrow_schema *known,
		  struct arrow_schema **schema)
{
	const uint8_t *image = (const uint8_t *)b->data + sizeof(struct arrow_head);
	struct arrow_head h;
	int rc = read_head(b, &h);

	if (rc)
		return rc;
	if (known && h.schema == known->bytes && h.nodes == known->nodes &&
	    !memcmp(image, known->image, h.schema))
		return 0;
	if (known)
		return weir_fail(-EINVAL, "a record batch has another schema than the first one; "
					  "push batches of one schema");
	rc = arrow_schema_read(image, h.schema, h.nodes, schema);
	return rc && rc != -ENOMEM ? malformed("its schema") : rc;
}

/* ---- arrays ---- */

/* All arrays of a block. A child may be moved out and outlive its parent, so that each counts. */
struct batch {
	atomic_uint alive; /* arrays that are not released; the thread that releases the last one
			    * frees all */
	struct weir_shuffle *shuffle;
	struct weir_block block;
	const void **buffer;	   /* BUFFERS_MAX per array */
	struct ArrowArray **child; /* one per array */
	struct ArrowArray array[];
};

static void
release_array(struct ArrowArray *a)
{
	struct batch *x = a->private_data;

	for (int64_t i = 0; i < a->n_children; i++) {
		if (a->children[i]->release)
			a->children[i]->release(a->children[i]);
	}
	if (a->dictionary && a->dictionary->release)
		a->dictionary->release(a->dictionary);
	a->release = NULL;
	/* the block is released after all threads' accesses */
	if (atomic_fetch_sub_explicit(&x->alive, 1, memory_order_acq_rel) != 1)
		return;
	weir_block_release(x->shuffle, &x->block);
	free(x);
}

struct reader {
	const struct arrow_schema *s;
	struct batch *x;
	const uint8_t *data, *table;
	uint64_t length, at; /* bytes of the block; those behind the last buffer */
	uint32_t child;	     /* next one of x->child */
};

/* Gives the array its next buffer, if the block has that many bytes more. */
static bool
read_buffer(struct reader *r, struct ArrowArray *a, uint64_t bytes)
{
	uint64_t at = arrow_align(r->at);

	if (at > r->length || bytes > r->length - at)
		return false;
	a->buffers[a->n_buffers++] = r->data + at;
	r->at = at + bytes;
	return true;
}

/* The bitmap of valid elements has as many nulls as it should: consumers allocate for the rest. */
static int
read_validity(struct reader *r, struct ArrowArray *a)
{
	uint64_t n = (uint64_t)a->length, valid = 0;
	const uint8_t *bits;

	if (!a->null_count) {
		a->buffers[a->n_buffers++] = NULL;
		return 0;
	}
	if (!read_buffer(r, a, arrow_bitmap(n)))
		return malformed("a bitmap goes beyond its end");
	bits = a->buffers[0];
	for (uint64_t i = 0; i < n / 8; i++)
		valid += (unsigned)__builtin_popcount(bits[i]);
	if (n % 8)
		valid += (unsigned)__builtin_popcount(bits[n / 8] & ((1u << n % 8) - 1));
	return valid + (uint64_t)a->null_count == n ? 0 : malformed("a number of nulls");
}

/* Offsets ascend from 0 on. Returns the last one in `end`. */
static int
read_offsets(struct reader *r, const struct arrow_type *t, struct ArrowArray *a, uint64_t *end)
{
	uint64_t n = (uint64_t)a->length;
	int64_t at = 0;

	if (!read_buffer(r, a, (n + 1) * arrow_offset_width(t)))
		return malformed("offsets go beyond its end");
	if (arrow_offset(t, a, 0))
		return malformed("a first offset");
	for (uint64_t i = 1; i <= n; i++) {
		int64_t next = arrow_offset(t, a, i);

		if (next < at)
			return malformed("an offset goes back");
		at = next;
	}
	*end = (uint64_t)at;
	return 0;
}

/* Indices lie in the dictionary; those of nulls are 0, which an empty one does not have. */
static int
check_indices(const struct arrow_type *t, const struct ArrowArray *a)
{
	uint64_t values = (uint64_t)a->dictionary->length;

	for (int64_t i = 0; i < a->length; i++) {
		uint64_t index = arrow_index(t, a->buffers[1], (uint64_t)i);

		if (index >= values && (index || !arrow_is_null(a, (uint64_t)i)))
			return malformed("an index outside its dictionary");
	}
	return 0;
}

static int read_array(struct reader *r, uint32_t node, uint64_t length);

/* Reads the buffers but for validity. Returns in `elements` the length of children. */
static int
read_layout(struct reader *r, const struct arrow_type *t, struct ArrowArray *a, uint64_t *elements)
{
	uint64_t n = (uint64_t)a->length, bytes;
	int rc = 0;

	switch (t->layout) {
	case ARROW_BOOL:
	case ARROW_FIXED:
		bytes = t->layout == ARROW_BOOL ? arrow_bitmap(n) : n * t->width;
		return read_buffer(r, a, bytes) ? 0 : malformed("elements go beyond its end");
	case ARROW_BYTES:
	case ARROW_LARGE_BYTES:
		rc = read_offsets(r, t, a, &bytes);
		if (!rc && !read_buffer(r, a, bytes))
			rc = malformed("bytes go beyond its end");
		return rc;
	case ARROW_LIST:
	case ARROW_LARGE_LIST:
		return read_offsets(r, t, a, elements);
	case ARROW_FIXED_LIST:
		*elements = n * t->width;
		return 0;
	default:
		weir_assert(t->layout == ARROW_STRUCT);
		*elements = n;
		return 0;
	}
}

/* Reads array number `node` and all below it. */
static int
read_array(struct reader *r, uint32_t node, uint64_t length)
{
	const struct arrow_type *t = &r->s->type[node];
	struct ArrowArray *a = &r->x->array[node];
	uint64_t elements = 0;
	struct arrow_node n;
	int rc;

	memcpy(&n, r->table + (size_t)node * sizeof(n), sizeof(n));
	if (n.length != length || length > ARROW_LENGTH_MAX || n.nulls > length)
		return malformed("an array's length");
	*a = (struct ArrowArray){
	    .length = n.length,
	    .null_count = n.nulls,
	    .n_children = t->children,
	    .buffers = r->x->buffer + (size_t)node * BUFFERS_MAX,
	    .children = t->children ? r->x->child + r->child : NULL,
	    .release = release_array,
	    .private_data = r->x,
	};
	r->child += t->children;
	if (t->layout == ARROW_NULL)
		return n.nulls == n.length ? 0 : malformed("a number of nulls");
	rc = read_validity(r, a);
	if (!rc)
		rc = read_layout(r, t, a, &elements);

	node++;
	if (!rc && t->dictionary) {
		a->dictionary = &r->x->array[node];
		memcpy(&n, r->table + (size_t)node * sizeof(n), sizeof(n));
		rc = read_array(r, node, n.length);
		if (!rc)
			rc = check_indices(t, a);
	}
	for (uint32_t i = 0; !rc && i < t->children; i++) {
		a->children[i] = &r->x->array[node];
		rc = read_array(r, node, elements);
		node += r->s->type[node].nodes;
	}
	return rc;
}

int
arrow_read(const struct arrow_schema *s, struct weir_shuffle *shuffle, const struct weir_block *b,
	   struct ArrowArray *out)
{
	size_t nodes = s->nodes, buffers = BUFFERS_MAX * nodes * sizeof(void *);
	struct batch *x =
	    calloc(1, sizeof(*x) + nodes * (sizeof(x->array[0]) + sizeof(x->child[0])) + buffers);
	struct reader r = {.s = s, .x = x, .data = b->data, .length = b->length};
	int rc;

	weir_assert((uintptr_t)b->data % 8 == 0);
	if (!x)
		return weir_fail(-ENOMEM, "no memory for a batch of %u columns", s->nodes);
	atomic_init(&x->alive, s->nodes);
	x->shuffle = shuffle;
	x->block = *b;
	x->child = (struct ArrowArray **)&x->array[nodes];
	x->buffer = (const void **)&x->child[nodes];
	r.table = r.data + sizeof(struct arrow_head) + (((size_t)s->bytes + 7) & ~(size_t)7);
	r.at = (uint64_t)(r.table - r.data) + nodes * sizeof(struct arrow_node);
	rc = read_array(&r, 0, b->records);
	if (!rc && arrow_length(r.at, b->records) != r.length)
		rc = malformed("bytes behind the last buffer");
	if (rc) {
		free(x);
		return rc;
	}
	*out = x->array[0];
	return 0;
}
