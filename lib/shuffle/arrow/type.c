/* SPDX-License-Identifier: BSD-3-Clause */
#include "type.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN_FLAGS                                                                                \
	(ARROW_FLAG_DICTIONARY_ORDERED | ARROW_FLAG_NULLABLE | ARROW_FLAG_MAP_KEYS_SORTED)

/* ---- formats ---- */

/* Formats without parameters. */
static const struct {
	const char *format;
	uint8_t layout, width, number;
} plain[] = {
    {"n", ARROW_NULL, 0, 0},
    {"b", ARROW_BOOL, 0, 0},
    {"c", ARROW_FIXED, 1, ARROW_SIGNED},
    {"C", ARROW_FIXED, 1, ARROW_UNSIGNED},
    {"s", ARROW_FIXED, 2, ARROW_SIGNED},
    {"S", ARROW_FIXED, 2, ARROW_UNSIGNED},
    {"i", ARROW_FIXED, 4, ARROW_SIGNED},
    {"I", ARROW_FIXED, 4, ARROW_UNSIGNED},
    {"l", ARROW_FIXED, 8, ARROW_SIGNED},
    {"L", ARROW_FIXED, 8, ARROW_UNSIGNED},
    {"e", ARROW_FIXED, 2, ARROW_FLOAT},
    {"f", ARROW_FIXED, 4, ARROW_FLOAT},
    {"g", ARROW_FIXED, 8, ARROW_FLOAT},
    {"z", ARROW_BYTES, 0, 0},
    {"Z", ARROW_LARGE_BYTES, 0, 0},
    {"u", ARROW_BYTES, 0, 0},
    {"U", ARROW_LARGE_BYTES, 0, 0},
    {"tdD", ARROW_FIXED, 4, 0},
    {"tdm", ARROW_FIXED, 8, 0},
    {"tts", ARROW_FIXED, 4, 0},
    {"ttm", ARROW_FIXED, 4, 0},
    {"ttu", ARROW_FIXED, 8, 0},
    {"ttn", ARROW_FIXED, 8, 0},
    {"tDs", ARROW_FIXED, 8, 0},
    {"tDm", ARROW_FIXED, 8, 0},
    {"tDu", ARROW_FIXED, 8, 0},
    {"tDn", ARROW_FIXED, 8, 0},
    {"tiM", ARROW_FIXED, 4, 0},
    {"tiD", ARROW_FIXED, 8, 0},
    {"tin", ARROW_FIXED, 16, 0},
    {"+l", ARROW_LIST, 0, 0},
    {"+L", ARROW_LARGE_LIST, 0, 0},
    {"+m", ARROW_LIST, 0, 0},
    {"+s", ARROW_STRUCT, 0, 0},
};

/* Names of types that are known, but not supported. */
static const struct {
	const char *prefix, *name;
} others[] = {
    {"+ud:", "dense union"}, {"+us:", "sparse union"},	 {"+r", "run-end encoded"},
    {"+vl", "list view"},    {"+vL", "large list view"}, {"vu", "utf8 view"},
    {"vz", "binary view"},
};

/* Reads a decimal number up to `max`. Returns the character behind it; NULL: none, or too large. */
static const char *
read_number(const char *s, uint64_t max, uint64_t *n)
{
	const char *start = s;

	for (*n = 0; *s >= '0' && *s <= '9'; s++) {
		*n = *n * 10 + (uint64_t)(*s - '0');
		if (*n > max)
			return NULL;
	}
	return s > start ? s : NULL;
}

/* "p,s" or "p,s,bits" of a decimal type. Bytes of an element; 0: malformed. */
static uint32_t
decimal_width(const char *s)
{
	uint64_t precision, scale, bits = 128;

	s = read_number(s, 76, &precision);
	if (!s || *s++ != ',')
		return 0;
	s = read_number(s + (*s == '-'), 1000, &scale);
	if (s && *s == ',')
		s = read_number(s + 1, 256, &bits);
	if (!s || *s || (bits != 32 && bits != 64 && bits != 128 && bits != 256))
		return 0;
	return (uint32_t)bits / 8;
}

/* Takes layout, width and number from the format. */
static bool
parse_format(struct arrow_type *t)
{
	const char *s = t->format, *end;
	uint64_t n;

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (strcmp(s, plain[i].format) != 0)
			continue;
		t->layout = plain[i].layout;
		t->width = plain[i].width;
		t->number = plain[i].number;
		return true;
	}
	t->layout = ARROW_FIXED;
	t->number = ARROW_OTHER;
	if (!strncmp(s, "d:", 2)) {
		t->width = decimal_width(s + 2);
		return t->width;
	}
	if (!strncmp(s, "ts", 2)) {
		t->width = 8;
		return s[2] && strchr("smun", s[2]) && s[3] == ':';
	}
	if (!strncmp(s, "+w:", 3)) {
		t->layout = ARROW_FIXED_LIST;
		s++;
	}
	if (strncmp(s, "w:", 2) != 0)
		return false;
	end = read_number(s + 2, WEIR_RECORD_MAX, &n);
	t->width = end ? (uint32_t)n : 0;
	return end && !*end;
}

static int
unsupported(const struct arrow_type *t)
{
	const char *name = "unknown";

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (!strncmp(t->format, others[i].prefix, strlen(others[i].prefix)))
			name = others[i].name;
	}
	return weir_fail(-ENOTSUP,
			 "column '%s' has the unsupported type '%s' (%s); convert it to a type of "
			 "weir/arrow.h",
			 t->name, t->format, name);
}

/* ---- images ---- */

struct encoder {
	uint8_t *to; /* NULL: counts only */
	size_t bytes;
	uint32_t nodes;
};

static void
encode_text(struct encoder *e, const char *text, size_t length)
{
	if (e->to) {
		memcpy(e->to + e->bytes, text, length);
		e->to[e->bytes + length] = 0;
	}
	e->bytes += length + 1;
}

static int
encode(struct encoder *e, const struct ArrowSchema *from, unsigned depth)
{
	const char *name = from && from->name ? from->name : "";
	size_t format_length, name_length = strnlen(name, ARROW_TEXT_MAX + 1);
	int rc;

	if (!from || !from->release || !from->format)
		return weir_fail(-EINVAL, "a schema was released or has no format; pass a "
					  "schema that its producer has filled in");
	format_length = strnlen(from->format, ARROW_TEXT_MAX + 1);
	if (format_length > ARROW_TEXT_MAX || name_length > ARROW_TEXT_MAX)
		return weir_fail(-EINVAL,
				 "format or name of column '%.40s...' has more than %u bytes; "
				 "shorten it",
				 name, ARROW_TEXT_MAX);
	if (depth > ARROW_DEPTH_MAX || ++e->nodes > ARROW_COLUMNS_MAX + 1 || from->n_children < 0 ||
	    from->n_children > ARROW_COLUMNS_MAX)
		return weir_fail(-EINVAL,
				 "the schema has more than %u levels or %u columns; push its "
				 "parts separately",
				 ARROW_DEPTH_MAX, ARROW_COLUMNS_MAX);
	if (from->n_children && !from->children)
		return weir_fail(-EINVAL, "column '%s' claims children, but has none", name);
	if (e->to) {
		uint8_t *to = e->to + e->bytes;
		uint16_t children = (uint16_t)from->n_children;

		to[0] = (uint8_t)format_length;
		to[1] = (uint8_t)name_length;
		to[2] = (uint8_t)(from->flags & KNOWN_FLAGS);
		to[3] = from->dictionary != NULL;
		memcpy(to + 4, &children, 2);
	}
	e->bytes += ARROW_IMAGE_HEAD;
	encode_text(e, from->format, format_length);
	encode_text(e, name, name_length);
	rc = from->dictionary ? encode(e, from->dictionary, depth + 1) : 0;
	for (int64_t i = 0; !rc && i < from->n_children; i++)
		rc = encode(e, from->children[i], depth + 1);
	return rc;
}

struct decoder {
	struct arrow_schema *s;
	uint32_t at;   /* in the image */
	uint32_t node; /* the next one */
};

/* Returns the next `length` characters and their zero; NULL: they are not there. */
static const char *
decode_text(struct decoder *d, uint32_t length)
{
	const char *text = (const char *)d->s->image + d->at;

	if (d->s->bytes - d->at <= length || strnlen(text, length + 1u) != length)
		return NULL;
	d->at += length + 1;
	return text;
}

/* Children and dictionary are those of the layout. */
static int
check_children(const struct arrow_type *t)
{
	bool list = t->layout == ARROW_LIST || t->layout == ARROW_LARGE_LIST ||
		    t->layout == ARROW_FIXED_LIST;
	const struct arrow_type *first = t + 1;

	if (t->layout != ARROW_STRUCT && t->children != list)
		return weir_fail(-EINVAL,
				 "column '%s' of type '%s' has %u children; it must have "
				 "%u",
				 t->name, t->format, t->children, list);
	if (!strcmp(t->format, "+m") && (first->layout != ARROW_STRUCT || first->children != 2))
		return weir_fail(-EINVAL,
				 "the entries of map '%s' are of type '%s'; they must be a struct "
				 "of key and value",
				 t->name, first->format);
	if (t->dictionary && t->number != ARROW_SIGNED && t->number != ARROW_UNSIGNED)
		return weir_fail(-EINVAL,
				 "column '%s' has a dictionary, but its type '%s' is not an "
				 "integer's",
				 t->name, t->format);
	return 0;
}

static int
decode(struct decoder *d, unsigned depth)
{
	struct arrow_schema *s = d->s;
	struct arrow_type *t = &s->type[d->node];
	const uint8_t *head = s->image + d->at;
	int rc;

	if (d->node == s->nodes || depth > ARROW_DEPTH_MAX || s->bytes - d->at < ARROW_IMAGE_HEAD)
		return weir_fail(-EINVAL, "the schema is malformed");
	d->node++;
	d->at += ARROW_IMAGE_HEAD;
	memcpy(&t->children, head + 4, 2);
	t->flags = head[2];
	t->dictionary = head[3];
	t->format = decode_text(d, head[0]);
	t->name = t->format ? decode_text(d, head[1]) : NULL;
	if (!t->name || t->flags & ~KNOWN_FLAGS || t->dictionary > 1)
		return weir_fail(-EINVAL, "the schema is malformed");
	if (!parse_format(t))
		return unsupported(t);
	rc = t->dictionary ? decode(d, depth + 1) : 0;
	for (uint32_t i = 0; !rc && i < t->children; i++)
		rc = decode(d, depth + 1);
	if (rc)
		return rc;
	t->nodes = (uint32_t)(&s->type[d->node] - t);
	return check_children(t);
}

static struct arrow_schema *
schema_new(uint32_t bytes, uint32_t nodes)
{
	struct arrow_schema *s =
	    calloc(1, sizeof(*s) + nodes * sizeof(struct arrow_type) + (size_t)bytes);

	if (!s) {
		weir_fail(-ENOMEM, "no memory for a schema of %u columns", nodes);
		return NULL;
	}
	s->image = (uint8_t *)&s->type[nodes];
	s->bytes = bytes;
	s->nodes = nodes;
	return s;
}

/* Makes the types of the image; frees the schema on failure. */
static int
schema_finish(struct arrow_schema *s, struct arrow_schema **schema)
{
	struct decoder d = {.s = s};
	int rc = decode(&d, 0);

	if (!rc && (d.node != s->nodes || d.at != s->bytes))
		rc = weir_fail(-EINVAL, "the schema is malformed");
	if (!rc && (s->type[0].layout != ARROW_STRUCT))
		rc = weir_fail(-EINVAL,
			       "the schema is of type '%s'; a record batch is a struct ('+s')",
			       s->type[0].format);
	if (rc) {
		free(s);
		return rc;
	}
	*schema = s;
	return 0;
}

int
arrow_schema_of(const struct ArrowSchema *from, struct arrow_schema **schema)
{
	struct encoder e = {0};
	struct arrow_schema *s;
	int rc = encode(&e, from, 0);

	if (rc)
		return rc;
	s = schema_new((uint32_t)e.bytes, e.nodes);
	if (!s)
		return -ENOMEM;
	e = (struct encoder){.to = s->image};
	rc = encode(&e, from, 0);
	weir_assert(!rc && e.bytes == s->bytes && e.nodes == s->nodes);
	return schema_finish(s, schema);
}

int
arrow_schema_read(const uint8_t *image, uint32_t bytes, uint32_t nodes,
		  struct arrow_schema **schema)
{
	struct arrow_schema *s;

	if (!nodes || nodes > ARROW_COLUMNS_MAX + 1 || bytes > ARROW_IMAGE_MAX)
		return weir_fail(-EINVAL, "the schema is malformed");
	s = schema_new(bytes, nodes);
	if (!s)
		return -ENOMEM;
	memcpy(s->image, image, bytes);
	return schema_finish(s, schema);
}

void
arrow_schema_free(struct arrow_schema *s)
{
	free(s);
}

/* ---- export ---- */

/* All structs of an exported schema. A child may be moved out and outlive its parent, so that each
 * struct counts. */
struct exported {
	atomic_uint alive; /* structs that are not released; the thread that releases the last one
			    * frees all */
	struct ArrowSchema node[];
};

static void
release_exported(struct ArrowSchema *s)
{
	struct exported *x = s->private_data;

	for (int64_t i = 0; i < s->n_children; i++) {
		if (s->children[i]->release)
			s->children[i]->release(s->children[i]);
	}
	if (s->dictionary && s->dictionary->release)
		s->dictionary->release(s->dictionary);
	s->release = NULL;
	/* the last thread's free() is after all others' accesses */
	if (atomic_fetch_sub_explicit(&x->alive, 1, memory_order_acq_rel) == 1)
		free(x);
}

int
arrow_schema_export(const struct arrow_schema *s, struct ArrowSchema *out)
{
	size_t nodes = s->nodes;
	struct exported *x =
	    calloc(1, sizeof(*x) + nodes * (sizeof(x->node[0]) + sizeof(void *)) + s->bytes);
	struct ArrowSchema **child;
	char *image;

	if (!x)
		return weir_fail(-ENOMEM, "no memory for a schema of %u columns", s->nodes);
	atomic_init(&x->alive, s->nodes);
	child = (struct ArrowSchema **)&x->node[nodes];
	image = (char *)&child[nodes];
	memcpy(image, s->image, s->bytes);
	for (uint32_t i = 0; i < s->nodes; i++) {
		const struct arrow_type *t = &s->type[i];
		uint32_t below = i + 1;

		x->node[i] = (struct ArrowSchema){
		    .format = image + (t->format - (const char *)s->image),
		    .name = image + (t->name - (const char *)s->image),
		    .flags = t->flags,
		    .n_children = t->children,
		    .children = t->children ? child : NULL,
		    .dictionary = t->dictionary ? &x->node[below] : NULL,
		    .release = release_exported,
		    .private_data = x,
		};
		for (uint32_t k = 0; k < t->children; k++) {
			*child++ = &x->node[below];
			below += s->type[below].nodes;
		}
	}
	*out = x->node[0];
	return 0;
}
