/* SPDX-License-Identifier: BSD-3-Clause */
#include "array.h"

#include <errno.h>

static int
bad(const struct arrow_type *t, const char *what)
{
	return weir_fail(-EINVAL, "column '%s' of type '%s' %s; see Arrow's C data interface",
			 t->name, t->format, what);
}

/* Numbers of buffers, as the interface counts them: -1 is not checked. */
static int64_t
buffers_of(const struct arrow_type *t)
{
	switch (t->layout) {
	case ARROW_NULL:
		return -1; /* older producers give one */
	case ARROW_FIXED_LIST:
	case ARROW_STRUCT:
		return 1;
	case ARROW_BYTES:
	case ARROW_LARGE_BYTES:
		return 3;
	default:
		return 2;
	}
}

static int
check_head(const struct arrow_type *t, const struct ArrowArray *a)
{
	int64_t buffers = buffers_of(t);

	if (!a || !a->release)
		return bad(t, "has been released");
	if (a->length < 0 || a->offset < 0 || a->null_count < -1 || a->null_count > a->length)
		return bad(t, "has a length, offset or number of nulls out of range");
	if (a->length > UINT32_MAX || a->offset > UINT32_MAX - a->length)
		return weir_fail(
		    -EMSGSIZE, "column '%s' has more than 2^32 - 1 elements; push smaller batches",
		    t->name);
	if (a->n_children != t->children || (t->children && !a->children))
		return bad(t, "has another number of children than its schema");
	if ((a->dictionary != NULL) != t->dictionary)
		return bad(t, "differs from its schema in having a dictionary");
	if (buffers < 0)
		return 0;
	if (a->n_buffers != buffers || !a->buffers)
		return bad(t, "has a wrong number of buffers");
	return a->null_count > 0 && !a->buffers[0] ? bad(t, "has nulls without a bitmap") : 0;
}

/* Offsets do not go back. Returns in `end` the last one. */
static int
check_offsets(const struct arrow_type *t, const struct ArrowArray *a, int64_t *end)
{
	int64_t at, first;

	*end = 0;
	if (!a->length)
		return 0; /* the buffer may be missing */
	if (!a->buffers[1])
		return bad(t, "has no offsets");
	at = first = arrow_offset(t, a, (uint64_t)a->offset);
	if (at < 0)
		return bad(t, "has a negative offset");
	for (int64_t i = 1; i <= a->length; i++) {
		int64_t next = arrow_offset(t, a, (uint64_t)(a->offset + i));

		if (next < at)
			return bad(t, "has an offset that goes back");
		at = next;
	}
	*end = at > first ? at : 0;
	return 0;
}

/* Indices of elements that are not null lie in the dictionary, which has been checked. */
static int
check_indices(const struct arrow_type *t, const struct ArrowArray *a)
{
	for (int64_t i = a->offset; i < a->offset + a->length; i++) {
		if (!arrow_is_null(a, (uint64_t)i) &&
		    arrow_index(t, a->buffers[1], (uint64_t)i) >= (uint64_t)a->dictionary->length)
			return bad(t, "has an index outside its dictionary");
	}
	return 0;
}

static int
check(const struct arrow_type *t, const struct ArrowArray *a)
{
	const struct arrow_type *below = t + 1;
	int64_t places, least = 0;
	int rc = check_head(t, a);

	if (rc)
		return rc;
	rc = t->dictionary ? check(below, a->dictionary) : 0;
	for (int64_t i = 0; !rc && i < t->children; i++, below += below->nodes)
		rc = check(below, a->children[i]);
	if (rc)
		return rc;

	places = a->offset + a->length;
	switch (t->layout) {
	case ARROW_BOOL:
	case ARROW_FIXED:
		if (a->length && !a->buffers[1] && (t->width || t->layout == ARROW_BOOL))
			return bad(t, "has no elements");
		return t->dictionary ? check_indices(t, a) : 0;
	case ARROW_BYTES:
	case ARROW_LARGE_BYTES:
		rc = check_offsets(t, a, &least);
		return !rc && least && !a->buffers[2] ? bad(t, "has no bytes") : rc;
	case ARROW_LIST:
	case ARROW_LARGE_LIST:
		rc = check_offsets(t, a, &least);
		break;
	case ARROW_FIXED_LIST:
		least = places * t->width; /* 2^32 * 2^24 at most */
		break;
	case ARROW_STRUCT:
		least = places;
		break;
	default:
		return 0;
	}
	for (int64_t i = 0; !rc && i < t->children; i++) {
		if (a->children[i]->length < least)
			rc = bad(t, "has more elements than its child");
	}
	return rc;
}

int
arrow_array_check(const struct arrow_schema *s, const struct ArrowArray *a)
{
	return check(&s->type[0], a);
}
