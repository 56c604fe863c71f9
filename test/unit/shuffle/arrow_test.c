/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Record batches: random batches of all types beside a model of text, borders of blocks, partitions
 * by hash, releases, refused schemas and arrays, and blocks of liars. The shuffle is the test's
 * own: it keeps blocks in memory, each exactly as long as it is, until its release.
 */
#include "worlds/test.h"

#include "worlds/arrow_touch.h"

#include "shuffle/core.h"
#include "shuffle/arrow/block.h"
#include "shuffle/arrow/type.h"
#include "weir/arrow.h"

#include <math.h>
#include <pthread.h>

#define PARTITIONS 7u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- chance ---- */

static uint64_t random_state;

static uint64_t
rnd(uint64_t below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (random_state >> 33) % below;
}

static uint64_t
seed_of(unsigned i)
{
	const char *given = getenv("WEIR_SEED");

	return given ? strtoull(given, NULL, 0) : i;
}

/* ---- memory that runs out ---- */

static int fail_in = -1; /* allocations until one fails; below 0: none does */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t n);

static bool
fails(void)
{
	return fail_in >= 0 && !fail_in--;
}

void *
__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *
__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *
__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

/* ---- a shuffle in memory ---- */

struct held {
	struct held *next;
	struct weir_block block;
};

struct weir_shuffle {
	uint32_t partitions;
	struct held *first[64], **last[64];
	unsigned puts, loans, held;
	int fail;	   /* every second put fails with this, if it is not 0 */
	size_t memory_max; /* bytes of a block; 0: no limit */
	size_t largest;	   /* block that was put */
	int timeout_ms;	   /* of the call */
};
static struct weir_shuffle world;

struct weir_map {
	int unused;
};
static struct weir_map map;

struct weir_reduce {
	uint32_t partition;
	int fail; /* instead of the next block */
};

static int
setup(void **state)
{
	world = (struct weir_shuffle){.partitions = PARTITIONS};
	for (unsigned i = 0; i < COUNT(world.last); i++)
		world.last[i] = &world.first[i];
	return 0;
}

uint32_t
weir_shuffle_partitions(const struct weir_shuffle *s)
{
	return s->partitions;
}

struct weir_shuffle *
map_shuffle(const struct weir_map *m)
{
	assert_ptr_equal(m, &map);
	return &world;
}

struct weir_shuffle *
reduce_shuffle(const struct weir_reduce *r)
{
	return &world;
}

int
weir_map_put_block(struct weir_map *m, uint32_t partition, const void *data, size_t length,
		   uint32_t records, int timeout_ms)
{
	struct held *h;
	void *copy;

	assert_true(partition < world.partitions && length <= WEIR_RECORD_MAX);
	assert_true(records && records <= length);
	assert_true(world.timeout_ms > 0 ? timeout_ms >= 0 && timeout_ms <= world.timeout_ms
					 : timeout_ms == world.timeout_ms);
	if (world.puts++ % 2 && world.fail)
		return weir_fail(world.fail, "as the test wants it");
	if (world.memory_max && length > world.memory_max)
		return weir_fail(-EMSGSIZE, "as the test wants it");
	copy = __real_malloc(length);
	h = __real_calloc(1, sizeof(*h));
	assert_true(copy && h);
	memcpy(copy, data, length);
	h->block = (struct weir_block){
	    .data = copy, .length = length, .records = records, .partition = partition};
	*world.last[partition] = h;
	world.last[partition] = &h->next;
	world.held++;
	world.largest = length > world.largest ? length : world.largest;
	return 0;
}

int
weir_reduce_block(struct weir_reduce *r, struct weir_block *block, int timeout_ms)
{
	struct held *h = world.first[r->partition];

	assert_int_equal(timeout_ms, -1);
	if (r->fail)
		return weir_fail(r->fail, "the test fails");
	if (!h)
		return weir_fail(-ENODATA, "no more");
	*block = h->block;
	block->internal[0] = 1;
	world.loans++;
	world.held--;
	world.first[r->partition] = h->next;
	if (!h->next)
		world.last[r->partition] = &world.first[r->partition];
	free(h);
	return 0;
}

void
weir_block_release(struct weir_shuffle *s, struct weir_block *block)
{
	assert_ptr_equal(s, &world);
	assert_int_equal(block->internal[0], 1);
	block->internal[0] = 0;
	assert_true(world.loans);
	world.loans--;
	free((void *)(uintptr_t)block->data);
}

/* ---- text ---- */

struct text {
	char *s;
	size_t length, room;
};

static void
add(struct text *t, const char *s, size_t length)
{
	if (t->length + length + 1 > t->room) {
		t->room = 2 * (t->length + length + 1);
		t->s = realloc(t->s, t->room);
		assert_non_null(t->s);
	}
	memcpy(t->s + t->length, s, length);
	t->length += length;
	t->s[t->length] = 0;
}

static void
add_string(struct text *t, const char *s)
{
	add(t, s, strlen(s));
}

static void
add_hex(struct text *t, const void *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = bytes;

	add(t, "x", 1);
	for (size_t i = 0; i < n; i++) {
		add(t, &digits[p[i] >> 4], 1);
		add(t, &digits[p[i] & 15], 1);
	}
}

/* ---- schemas and arrays of the test ---- */

static unsigned alive; /* schemas and arrays that are not released */

static void *
zeroed(size_t n, size_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	assert_non_null(p);
	return p;
}

static void
free_schema(struct ArrowSchema *s)
{
	for (int64_t i = 0; i < s->n_children; i++) {
		s->children[i]->release(s->children[i]);
		free(s->children[i]);
	}
	if (s->dictionary) {
		s->dictionary->release(s->dictionary);
		free(s->dictionary);
	}
	free(s->children);
	free((void *)(uintptr_t)s->format);
	free((void *)(uintptr_t)s->name);
	s->release = NULL;
	alive--;
}

static struct ArrowSchema
new_schema(const char *format, const char *name, unsigned children)
{
	struct ArrowSchema s = {
	    .format = strdup(format),
	    .name = strdup(name),
	    .flags = ARROW_FLAG_NULLABLE,
	    .n_children = children,
	    .children = children ? zeroed(children, sizeof(*s.children)) : NULL,
	    .release = free_schema,
	};

	for (unsigned i = 0; i < children; i++)
		s.children[i] = zeroed(1, sizeof(**s.children));
	alive++;
	return s;
}

static void
free_array(struct ArrowArray *a)
{
	for (int64_t i = 0; i < a->n_children; i++) {
		a->children[i]->release(a->children[i]);
		free(a->children[i]);
	}
	if (a->dictionary) {
		a->dictionary->release(a->dictionary);
		free(a->dictionary);
	}
	for (int64_t i = 0; i < a->n_buffers; i++)
		free((void *)(uintptr_t)a->buffers[i]);
	free(a->buffers);
	free(a->children);
	a->release = NULL;
	alive--;
}

/* clang-format off */
static const char *const leaves[] = {
    "n", "b", "c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g", "z", "Z", "u", "U", "tdD",
    "tdm", "tts", "ttm", "ttu", "ttn", "tDs", "tDm", "tDu", "tDn", "tiM", "tiD", "tin", "w:0",
    "w:3", "w:8", "w:16", "w:33", "tss:", "tsm:UTC", "tsu:Europe/Paris", "tsn:", "d:9,2,32",
    "d:18,-4,64", "d:38,10", "d:38,10,128", "d:76,0,256",
};
/* clang-format on */

/* A random type, of at most `depth` levels. */
static struct ArrowSchema
random_schema(unsigned depth, const char *name)
{
	static const char *const indices[] = {"c", "C", "s", "S", "i", "I", "l", "L"};
	unsigned kind = depth ? (unsigned)rnd(10) : 9;
	struct ArrowSchema s;
	unsigned children;
	char format[16];

	switch (kind) {
	case 0:
	case 1:
		s = new_schema(kind ? "+l" : "+L", name, 1);
		*s.children[0] = random_schema(depth - 1, "item");
		return s;
	case 2:
		snprintf(format, sizeof(format), "+w:%u", (unsigned)rnd(4));
		s = new_schema(format, name, 1);
		*s.children[0] = random_schema(depth - 1, "item");
		return s;
	case 3:
	case 4:
		children = (unsigned)rnd(4);
		s = new_schema("+s", name, children);
		for (unsigned i = 0; i < children; i++)
			*s.children[i] = random_schema(depth - 1, "field");
		return s;
	case 5:
		s = new_schema("+m", name, 1);
		*s.children[0] = new_schema("+s", "entries", 2);
		*s.children[0]->children[0] = random_schema(0, "key");
		*s.children[0]->children[1] = random_schema(depth - 1, "value");
		return s;
	case 6:
	case 7:
		s = new_schema(indices[rnd(COUNT(indices))], name, 0);
		s.dictionary = zeroed(1, sizeof(*s.dictionary));
		*s.dictionary = random_schema(depth - 1, "values");
		if (rnd(2))
			s.flags |= ARROW_FLAG_DICTIONARY_ORDERED;
		return s;
	default:
		return new_schema(leaves[rnd(COUNT(leaves))], name, 0);
	}
}

/* A batch of some columns. */
static struct ArrowSchema
random_batch_schema(unsigned depth)
{
	struct ArrowSchema s = new_schema("+s", "", 1 + (unsigned)rnd(5));

	for (int64_t i = 0; i < s.n_children; i++)
		*s.children[i] = random_schema(depth, "column");
	return s;
}

static void
set_bit(uint8_t *bits, uint64_t i, bool value)
{
	bits[i / 8] = (uint8_t)((bits[i / 8] & ~(1u << i % 8)) | (unsigned)value << i % 8);
}

static struct ArrowArray
new_array(int64_t length, int64_t offset, unsigned buffers, unsigned children)
{
	struct ArrowArray a = {
	    .length = length,
	    .offset = offset,
	    .n_buffers = buffers,
	    .n_children = children,
	    .buffers = zeroed(buffers, sizeof(void *)),
	    .children = children ? zeroed(children, sizeof(void *)) : NULL,
	    .release = free_array,
	};

	for (unsigned i = 0; i < children; i++)
		a.children[i] = zeroed(1, sizeof(**a.children));
	alive++;
	return a;
}

/* Random bytes, none beyond those that are asked for. */
static uint8_t *
random_bytes(size_t n)
{
	uint8_t *p = malloc(n ? n : 1);

	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rnd(256);
	return p;
}

static bool null_here(const struct ArrowArray *a, int64_t i);

/* Validity at random: no bitmap, none null, some, or all. */
static void
random_validity(struct ArrowArray *a)
{
	uint64_t places = (uint64_t)(a->offset + a->length), how = rnd(5);
	uint8_t *bits;

	if (!how)
		return;
	bits = random_bytes((places + 7) / 8);
	for (uint64_t i = 0; i < places; i++)
		set_bit(bits, i, how == 1 || (how < 4 && rnd(4)));
	a->buffers[0] = bits;
	a->null_count = -1;
	if (rnd(2))
		return;
	a->null_count = 0;
	for (int64_t i = 0; i < a->length; i++)
		a->null_count += !arrow_bit(bits, (uint64_t)(a->offset + i));
}

static bool
null_here(const struct ArrowArray *a, int64_t i)
{
	return a->n_buffers && a->buffers[0] &&
	       !arrow_bit(a->buffers[0], (uint64_t)(a->offset + i));
}

/* Offsets of random steps from a random begin. Returns the last one. */
static int64_t
random_offsets(struct ArrowArray *a, unsigned width)
{
	int64_t places = a->offset + a->length, at = (int64_t)rnd(5);
	uint8_t *to = malloc((size_t)(places + 1) * width);

	assert_non_null(to);
	for (int64_t i = 0; i <= places; i++) {
		memcpy(to + i * width, &at, width);
		at += i < places ? (int64_t)(rnd(3) ? rnd(6) : 0) : 0;
	}
	a->buffers[1] = to;
	return at;
}

static int64_t
offset_of(const struct ArrowArray *a, int64_t place, unsigned width)
{
	int64_t at = 0;

	memcpy(&at, (const uint8_t *)a->buffers[1] + place * width, width);
	return at;
}

static char **random_array(const struct ArrowSchema *s, int64_t length, struct ArrowArray *a);

static void
free_texts(char **text, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		free(text[i]);
	free(text);
}

/* Adds the elements [at, end) of a child. */
static void
add_elements(struct text *t, char **child, int64_t at, int64_t end)
{
	add(t, "[", 1);
	for (; at < end; at++) {
		add_string(t, child[at]);
		add(t, ",", 1);
	}
	add(t, "]", 1);
}

static void
random_list(const struct ArrowSchema *s, struct ArrowArray *a, struct text *t)
{
	unsigned width = s->format[1] == 'L' ? 8 : 4;
	int64_t fixed = s->format[1] == 'w' ? strtol(s->format + 3, NULL, 10) : -1, elements;
	char **child;

	elements = fixed < 0 ? random_offsets(a, width) : (a->offset + a->length) * fixed;
	elements += (int64_t)rnd(3);
	child = random_array(s->children[0], elements, a->children[0]);
	for (int64_t i = 0; i < a->length; i++) {
		int64_t place = a->offset + i;

		if (null_here(a, i))
			add(&t[i], "~", 1);
		else if (fixed < 0)
			add_elements(&t[i], child, offset_of(a, place, width),
				     offset_of(a, place + 1, width));
		else
			add_elements(&t[i], child, place * fixed, (place + 1) * fixed);
	}
	free_texts(child, elements);
}

static void
random_struct(const struct ArrowSchema *s, struct ArrowArray *a, struct text *t)
{
	for (int64_t k = 0; k < s->n_children; k++) {
		int64_t elements = a->offset + a->length + (int64_t)rnd(3);
		char **child = random_array(s->children[k], elements, a->children[k]);

		for (int64_t i = 0; i < a->length; i++) {
			add(&t[i], k ? "," : "{", 1);
			add_string(&t[i], child[a->offset + i]);
		}
		free_texts(child, elements);
	}
	for (int64_t i = 0; i < a->length; i++) {
		add_string(&t[i], s->n_children ? "}" : "{}");
		if (null_here(a, i))
			t[i].length = 0, add(&t[i], "~", 1);
	}
}

static void
random_dictionary(const struct ArrowSchema *s, struct ArrowArray *a, struct text *t, unsigned width)
{
	int64_t places = a->offset + a->length, values = 1 + (int64_t)rnd(9);
	uint8_t *to = random_bytes((size_t)places * width); /* indices of nulls may be anything */
	char **value;

	if (a->buffers[0] && rnd(2)) {
		memset((void *)(uintptr_t)a->buffers[0], 0, (size_t)(places + 7) / 8);
		a->null_count = a->length;
		values = 0;
	}
	a->buffers[1] = to;
	a->dictionary = zeroed(1, sizeof(*a->dictionary));
	value = random_array(s->dictionary, values, a->dictionary);
	for (int64_t i = 0; i < a->length; i++) {
		uint64_t index;

		if (null_here(a, i)) {
			add(&t[i], "~", 1);
			continue;
		}
		index = rnd((uint64_t)values);
		memcpy(to + (a->offset + i) * width, &index, width);
		add_string(&t[i], value[index]);
	}
	free_texts(value, values);
}

static void
random_leaf(const struct ArrowSchema *s, struct ArrowArray *a, struct text *t)
{
	bool large = strchr("UZ", s->format[0]), bytes = large || strchr("uz", s->format[0]);
	unsigned width = bytes ? (large ? 8 : 4) : (unsigned)arrow_touch_width(s->format);
	size_t places = (size_t)(a->offset + a->length);
	bool bits = s->format[0] == 'b';

	if (bytes)
		a->buffers[2] = random_bytes((size_t)random_offsets(a, width));
	else
		a->buffers[1] = random_bytes(bits ? (places + 7) / 8 : places * width);
	for (int64_t i = 0; i < a->length; i++) {
		int64_t place = a->offset + i, at, end;

		if (null_here(a, i)) {
			add(&t[i], "~", 1);
		} else if (bits) {
			add(&t[i], arrow_bit(a->buffers[1], (uint64_t)place) ? "1" : "0", 1);
		} else if (bytes) {
			at = offset_of(a, place, width);
			end = offset_of(a, place + 1, width);
			add_hex(&t[i], (const uint8_t *)a->buffers[2] + at, (size_t)(end - at));
		} else {
			add_hex(&t[i], (const uint8_t *)a->buffers[1] + place * width, width);
		}
	}
}

/* Makes a random array of a type, and the text of each element. */
static char **
random_array(const struct ArrowSchema *s, int64_t length, struct ArrowArray *a)
{
	int64_t offset = rnd(2) ? (int64_t)rnd(20) : 0;
	struct text *t = zeroed((size_t)length, sizeof(*t));
	char **text = zeroed((size_t)length, sizeof(*text));
	char kind = s->format[0];

	if (kind == 'n') {
		*a = new_array(length, offset, 0, 0);
		a->null_count = length;
		for (int64_t i = 0; i < length; i++)
			add(&t[i], "~", 1);
	} else if (kind == '+') {
		bool offsets = strchr("lLm", s->format[1]);

		*a = new_array(length, offset, 1 + offsets, (unsigned)s->n_children);
		random_validity(a);
		if (s->format[1] == 's')
			random_struct(s, a, t);
		else
			random_list(s, a, t);
	} else {
		*a = new_array(length, offset, strchr("uzUZ", kind) ? 3 : 2, 0);
		random_validity(a);
		if (s->dictionary)
			random_dictionary(s, a, t, (unsigned)arrow_touch_width(s->format));
		else
			random_leaf(s, a, t);
	}
	for (int64_t i = 0; i < length; i++)
		text[i] = t[i].s;
	free(t);
	return text;
}

/* A batch has rows that are not null. */
static char **
random_batch(const struct ArrowSchema *s, int64_t length, struct ArrowArray *a)
{
	int64_t offset = (int64_t)rnd(10);
	struct text *t = zeroed((size_t)length, sizeof(*t));
	char **text = zeroed((size_t)length, sizeof(*text));

	*a = new_array(length, offset, 1, (unsigned)s->n_children);
	random_struct(s, a, t);
	for (int64_t i = 0; i < length; i++)
		text[i] = t[i].s;
	free(t);
	return text;
}

/* ---- reading ---- */

/* Adds the text of element i, as another reading of Arrow's specification has it. */
static void
render(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t i, struct text *t)
{
	int64_t place = a->offset + i, at, end;
	unsigned width = (unsigned)arrow_touch_width(s->format);

	assert_true(i >= 0 && i < a->length);
	if (!strcmp(s->format, "n") || (a->null_count && null_here(a, i))) {
		add(t, "~", 1);
	} else if (s->dictionary) {
		uint64_t index = 0;

		memcpy(&index, (const uint8_t *)a->buffers[1] + place * width, width);
		render(s->dictionary, a->dictionary, (int64_t)index, t);
	} else if (!strcmp(s->format, "+s")) {
		for (int64_t k = 0; k < s->n_children; k++) {
			add(t, k ? "," : "{", 1);
			render(s->children[k], a->children[k], place, t);
		}
		add_string(t, s->n_children ? "}" : "{}");
	} else if (s->format[0] == '+') {
		width = s->format[1] == 'L' ? 8 : 4;
		if (s->format[1] == 'w') {
			width = (unsigned)strtoul(s->format + 3, NULL, 10);
			at = place * width;
			end = at + width;
		} else {
			at = offset_of(a, place, width);
			end = offset_of(a, place + 1, width);
		}
		add(t, "[", 1);
		for (; at < end; at++) {
			render(s->children[0], a->children[0], at, t);
			add(t, ",", 1);
		}
		add(t, "]", 1);
	} else if (s->format[0] == 'b') {
		add(t, arrow_bit(a->buffers[1], (uint64_t)place) ? "1" : "0", 1);
	} else if (strchr("uzUZ", s->format[0])) {
		width = strchr("UZ", s->format[0]) ? 8 : 4;
		at = offset_of(a, place, width);
		end = offset_of(a, place + 1, width);
		add_hex(t, (const uint8_t *)a->buffers[2] + at, (size_t)(end - at));
	} else {
		add_hex(t, (const uint8_t *)a->buffers[1] + place * width, width);
	}
}

static bool
same_schema(const struct ArrowSchema *a, const struct ArrowSchema *b)
{
	if (strcmp(a->format, b->format) != 0 || strcmp(a->name, b->name) != 0 ||
	    a->flags != b->flags || a->n_children != b->n_children ||
	    !a->dictionary != !b->dictionary)
		return false;
	for (int64_t i = 0; i < a->n_children; i++) {
		if (!same_schema(a->children[i], b->children[i]))
			return false;
	}
	return !a->dictionary || same_schema(a->dictionary, b->dictionary);
}

/* The text of each row of a partition. */
struct rows {
	char **text;
	size_t n;
	unsigned batches;
};

static void
rows_add(struct rows *r, const char *text)
{
	r->text = realloc(r->text, (r->n + 1) * sizeof(*r->text));
	assert_non_null(r->text);
	r->text[r->n] = strdup(text);
	assert_non_null(r->text[r->n++]);
}

static void
rows_free(struct rows *r)
{
	free_texts(r->text, (int64_t)r->n);
}

/* Reads a partition, whose schema must be this one unless it is empty. */
static struct rows
read_rows(uint32_t partition, const struct ArrowSchema *want)
{
	struct weir_reduce r = {.partition = partition};
	struct ArrowArrayStream stream;
	struct ArrowSchema schema;
	struct rows rows = {0};
	struct ArrowArray a;

	assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
	assert_int_equal(stream.get_schema(&stream, &schema), 0);
	for (;;) {
		assert_int_equal(stream.get_next(&stream, &a), 0);
		if (!a.release)
			break;
		assert_true(same_schema(&schema, want));
		arrow_touch(&schema, &a);
		rows.batches++;
		for (int64_t i = 0; i < a.length; i++) {
			struct text t = {0};

			render(&schema, &a, i, &t);
			rows_add(&rows, t.s);
			free(t.s);
		}
		a.release(&a);
		assert_null(a.release);
	}
	if (!rows.batches)
		assert_true(!strcmp(schema.format, "+s") && !schema.n_children);
	schema.release(&schema);
	stream.release(&stream);
	assert_null(stream.release);
	return rows;
}

/* Reads all partitions and compares them with the model, which is emptied. */
static void
check_rows(const struct ArrowSchema *s, struct rows model[PARTITIONS])
{
	for (uint32_t p = 0; p < PARTITIONS; p++) {
		struct rows got = read_rows(p, s);

		assert_int_equal(got.n, model[p].n);
		for (size_t i = 0; i < got.n; i++)
			assert_string_equal(got.text[i], model[p].text[i]);
		rows_free(&got);
		rows_free(&model[p]);
		model[p] = (struct rows){0};
	}
	assert_int_equal(world.loans, 0);
	assert_int_equal(world.held, 0);
}

/* Pushes a batch, trying again after errors that allow it. */
static void
push_batch(const struct ArrowSchema *s, const struct ArrowArray *a, const uint32_t *partition,
	   const uint32_t *keys, uint32_t n)
{
	uint64_t progress = 0;
	unsigned tries = 0;
	int rc;

	do {
		assert_true(tries++ < 64);
		rc = weir_map_arrow(&map, s, a, partition, keys, n, world.timeout_ms, &progress);
	} while (rc && rc == world.fail);
	if (rc)
		print_message("%s\n", weir_reason());
	assert_int_equal(rc, 0);
	assert_int_equal(progress, 0);
}

/* Pushes a random batch by partition numbers and notes its rows in the model. */
static void
push_random(const struct ArrowSchema *s, int64_t length, struct rows model[PARTITIONS])
{
	uint32_t *partition = zeroed((size_t)length, sizeof(*partition));
	struct ArrowArray a;
	char **text = random_batch(s, length, &a);

	for (int64_t i = 0; i < length; i++) {
		partition[i] = (uint32_t)rnd(PARTITIONS);
		rows_add(&model[partition[i]], text[i]);
	}
	push_batch(s, &a, partition, NULL, 0);
	a.release(&a);
	free_texts(text, length);
	free(partition);
}

/* ---- round trips ---- */

TEST_IN(setup, NULL, each_type_arrives)
{
	struct rows model[PARTITIONS] = {0};

	for (unsigned i = 0; i < COUNT(leaves); i++) {
		for (unsigned k = 0; k < 6; k++) {
			struct ArrowSchema s = new_schema("+s", "", 1);

			random_state = 100 * i + k;
			*s.children[0] = new_schema(leaves[i], "column", 0);
			push_random(&s, 50, model);
			check_rows(&s, model);
			s.release(&s);
		}
	}
	assert_int_equal(alive, 0);
}

TEST_IN(setup, NULL, random_batches_arrive)
{
	struct rows model[PARTITIONS] = {0};

	for (unsigned i = 0; i < 400; i++) {
		struct ArrowSchema s;

		random_state = seed_of(i);
		print_message("WEIR_SEED=%llu\n", (unsigned long long)random_state);
		s = random_batch_schema(4);
		for (uint64_t batches = 1 + rnd(3); batches; batches--)
			push_random(&s, (int64_t)rnd(80), model);
		check_rows(&s, model);
		s.release(&s);
	}
	assert_int_equal(alive, 0);
}

/* Puts that fail let the same call go on, without a row twice or never. */
TEST_IN(setup, NULL, push_goes_on_after_no_room)
{
	struct rows model[PARTITIONS] = {0};

	for (unsigned i = 0; i < 40; i++) {
		struct ArrowSchema s;

		random_state = seed_of(i);
		world.fail = i % 2 ? -EAGAIN : -ENOBUFS;
		world.timeout_ms = (int)i % 3 * 1000 - 1000;
		s = random_batch_schema(2);
		push_random(&s, 100, model);
		check_rows(&s, model);
		s.release(&s);
	}
}

TEST_IN(setup, NULL, progress_of_another_batch_is_refused)
{
	static const uint32_t partition[10];
	struct ArrowSchema s = new_schema("+s", "", 1);
	uint64_t progress = 11; /* rows of partition 0 */
	struct ArrowArray a;
	char **text;

	*s.children[0] = new_schema("i", "column", 0);
	text = random_batch(&s, 10, &a);
	assert_int_equal(weir_map_arrow(&map, &s, &a, partition, NULL, 0, 0, &progress), -EINVAL);
	a.release(&a);
	free_texts(text, 10);
	s.release(&s);
	assert_int_equal(world.held, 0);
}

/* One column of text: `length` rows of `bytes` bytes. */
static struct ArrowArray
text_batch(int64_t length, int64_t bytes)
{
	struct ArrowArray a = new_array(length, 0, 1, 1);
	int64_t *offsets = zeroed((size_t)length + 1, sizeof(*offsets));

	*a.children[0] = new_array(length, 0, 3, 0);
	for (int64_t i = 0; i <= length; i++)
		offsets[i] = i * bytes;
	a.children[0]->buffers[1] = offsets;
	a.children[0]->buffers[2] = random_bytes((size_t)(length * bytes));
	return a;
}

static unsigned
count_rows(uint32_t partition, unsigned *rows)
{
	struct weir_reduce r = {.partition = partition};
	struct ArrowArrayStream stream;
	struct ArrowArray a;
	unsigned batches = 0;

	*rows = 0;
	assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
	for (; !stream.get_next(&stream, &a) && a.release; batches++) {
		*rows += (unsigned)a.length;
		a.release(&a);
	}
	stream.release(&stream);
	return batches;
}

TEST_IN(setup, NULL, large_batches_are_cut)
{
	static const uint32_t partition[40000];
	struct ArrowSchema s = new_schema("+s", "", 1);
	struct ArrowArray a;
	unsigned rows;

	*s.children[0] = new_schema("Z", "column", 0);
	a = text_batch(40000, 100); /* 4.3 MB with offsets */
	push_batch(&s, &a, partition, NULL, 0);
	assert_true(world.largest <= (1u << 20) + 1024);
	assert_in_range(count_rows(0, &rows), 5, 6);
	assert_int_equal(rows, 40000);

	/* little memory */
	world.memory_max = 8192;
	push_batch(&s, &a, partition, NULL, 0);
	assert_in_range(count_rows(0, &rows), 500, 1500);
	assert_int_equal(rows, 40000);
	world.memory_max = 0;

	/* going on within a partition */
	world.fail = -EAGAIN;
	push_batch(&s, &a, partition, NULL, 0);
	assert_in_range(count_rows(0, &rows), 5, 6);
	assert_int_equal(rows, 40000);
	world.fail = 0;
	a.release(&a);

	/* more than one block can have */
	a = text_batch(12, 3000000);
	push_batch(&s, &a, partition, NULL, 0);
	assert_int_equal(count_rows(0, &rows), 12);
	assert_int_equal(rows, 12);
	a.release(&a);
	s.release(&s);
	assert_int_equal(alive, 0);
}

TEST_IN(setup, NULL, too_large_row_is_refused)
{
	static const uint32_t partition[2] = {3, 3};
	struct ArrowSchema s = new_schema("+s", "", 1);
	struct ArrowArray a = text_batch(2, WEIR_RECORD_MAX - 100);
	uint64_t progress = 0;

	*s.children[0] = new_schema("Z", "column", 0);
	assert_int_equal(weir_map_arrow(&map, &s, &a, partition, NULL, 0, 0, &progress), -EMSGSIZE);
	assert_non_null(strstr(weir_reason(), "row 0"));
	a.release(&a);

	/* fixed-size lists of nulls: no bytes, but too many elements */
	s.children[0]->release(s.children[0]);
	*s.children[0] = new_schema("+w:16777216", "column", 1);
	*s.children[0]->children[0] = new_schema("n", "item", 0);
	a = new_array(2, 0, 1, 1);
	*a.children[0] = new_array(2, 0, 1, 1);
	*a.children[0]->children[0] = new_array(1 << 25, 0, 0, 0);
	push_batch(&s, &a, partition, NULL, 0); /* one row per block */
	assert_int_equal(world.held, 2);
	world.largest = 0;
	a.release(&a);
	while (world.held) {
		unsigned rows;

		assert_int_equal(count_rows(3, &rows), 2);
	}
	s.release(&s);
	assert_int_equal(alive, 0);
}

TEST_IN(setup, NULL, nothing_is_pushed_without_rows)
{
	struct ArrowSchema s = new_schema("+s", "", 0);
	struct ArrowArray a = new_array(0, 0, 1, 0);
	static const uint32_t none[1], many[5] = {1, 1, 1, 1, 1};
	unsigned rows;

	push_batch(&s, &a, none, NULL, 0);
	assert_int_equal(world.held, 0);
	a.release(&a);

	a = new_array(5, 0, 1, 0); /* rows without columns */
	push_batch(&s, &a, many, NULL, 0);
	assert_int_equal(count_rows(1, &rows), 1);
	assert_int_equal(rows, 5);
	a.release(&a);
	s.release(&s);
}

/* Rows of nulls and of bits: blocks have no fewer bytes than rows. */
TEST_IN(setup, NULL, rows_of_few_bytes_arrive)
{
	static const uint32_t partition[100000];
	struct ArrowSchema s = new_schema("+s", "", 2);
	struct ArrowArray a = new_array(100000, 0, 1, 2);
	unsigned rows;

	*s.children[0] = new_schema("n", "null", 0);
	*s.children[1] = new_schema("b", "bits", 0);
	*a.children[0] = new_array(100000, 0, 0, 0);
	*a.children[1] = new_array(100000, 0, 2, 0);
	a.children[1]->buffers[1] = random_bytes(12500);
	push_batch(&s, &a, partition, NULL, 0);
	assert_int_equal(world.largest, 100000);
	assert_int_equal(count_rows(0, &rows), 1);
	assert_int_equal(rows, 100000);
	a.release(&a);
	s.release(&s);
}

TEST_IN(setup, NULL, ordered_dictionary_keeps_its_order)
{
	static const uint8_t indices[] = {3, 1, 3, 0, 1}, values[] = {10, 20, 30, 40, 50};
	static const uint32_t partition[5];

	for (unsigned ordered = 0; ordered < 2; ordered++) {
		struct ArrowSchema s = new_schema("+s", "", 1);
		struct ArrowArray a = new_array(5, 0, 1, 1), *column = a.children[0], got;
		struct weir_reduce r = {0};
		struct ArrowArrayStream stream;
		const uint8_t *value;

		*s.children[0] = new_schema("C", "column", 0);
		s.children[0]->flags |= ordered ? ARROW_FLAG_DICTIONARY_ORDERED : 0;
		s.children[0]->dictionary = zeroed(1, sizeof(s));
		*s.children[0]->dictionary = new_schema("C", "values", 0);
		*column = new_array(5, 0, 2, 0);
		column->buffers[1] = memcpy(malloc(5), indices, 5);
		column->dictionary = zeroed(1, sizeof(a));
		*column->dictionary = new_array(5, 0, 2, 0);
		column->dictionary->buffers[1] = memcpy(malloc(5), values, 5);
		push_batch(&s, &a, partition, NULL, 0);

		assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
		assert_int_equal(stream.get_next(&stream, &got), 0);
		assert_int_equal(got.children[0]->dictionary->length, 3); /* those that are used */
		value = got.children[0]->dictionary->buffers[1];
		assert_memory_equal(value, ordered ? "\x0a\x14\x28" : "\x28\x14\x0a", 3);
		got.release(&got);
		stream.release(&stream);
		a.release(&a);
		s.release(&s);
	}
}

/* ---- hashes ---- */

/* Where the first row of a batch of one column goes. */
static uint64_t
hash_partition(const struct ArrowSchema *s, const struct ArrowArray *a)
{
	static const uint32_t key;
	uint64_t where = UINT64_MAX;
	unsigned rows;

	push_batch(s, a, NULL, &key, 1);
	for (uint32_t p = 0; p < world.partitions; p++) {
		while (world.first[p]) {
			where = p;
			count_rows(p, &rows);
		}
	}
	return where;
}

/* Many partitions, so that different hashes show. */
#define MANY 64u

static uint64_t
hash_bytes(const char *format, const void *value, unsigned width)
{
	struct ArrowSchema s = new_schema("+s", "", 1);
	unsigned offset = (unsigned)rnd(5);
	struct ArrowArray a = new_array(1, 0, 1, 1);
	uint8_t *data = random_bytes((size_t)(offset + 1) * width);
	uint64_t where;

	memcpy(data + (size_t)offset * width, value, width);
	*s.children[0] = new_schema(format, "column", 0);
	*a.children[0] = new_array(1, offset, 2, 0);
	a.children[0]->buffers[1] = data;
	where = hash_partition(&s, &a);
	a.release(&a);
	s.release(&s);
	return where;
}

TEST_IN(setup, NULL, equal_floats_hash_alike)
{
	double zero[] = {0.0, -0.0}, nan_value[] = {NAN, -NAN};
	float small_zero[] = {0.0f, -0.0f};
	uint32_t small_nan[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff},
		 infinity[] = {0x7f800000, 0xff800000};
	uint64_t nan_bits[] = {0x7ff8000000000000, 0x7ff0000000000001, 0xffffffffffffffff};
	uint16_t half_zero[] = {0, 0x8000}, half_nan[] = {0x7e00, 0xfe00, 0x7c01};
	unsigned differ = 0;

	world.partitions = MANY;
	assert_int_equal(hash_bytes("g", &zero[0], 8), hash_bytes("g", &zero[1], 8));
	assert_int_equal(hash_bytes("f", &small_zero[0], 4), hash_bytes("f", &small_zero[1], 4));
	assert_int_equal(hash_bytes("e", &half_zero[0], 2), hash_bytes("e", &half_zero[1], 2));
	assert_int_equal(hash_bytes("g", &nan_value[0], 8), hash_bytes("g", &nan_value[1], 8));
	for (unsigned i = 1; i < 4; i++)
		assert_int_equal(hash_bytes("f", &small_nan[0], 4),
				 hash_bytes("f", &small_nan[i], 4));
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(hash_bytes("g", &nan_value[0], 8),
				 hash_bytes("g", &nan_bits[i], 8));
	for (unsigned i = 1; i < 3; i++)
		assert_int_equal(hash_bytes("e", &half_nan[0], 2),
				 hash_bytes("e", &half_nan[i], 2));
	for (unsigned i = 0; i < 40; i++) {
		double x = i + 1, y = -x;

		differ += hash_bytes("g", &x, 8) != hash_bytes("g", &y, 8);
	}
	assert_true(differ > 30);
	/* infinities differ from NaNs, and from each other; these bits by luck of the hash too */
	assert_int_not_equal(hash_bytes("f", &infinity[0], 4), hash_bytes("f", &small_nan[0], 4));
	assert_int_not_equal(hash_bytes("f", &infinity[0], 4), hash_bytes("f", &infinity[1], 4));
	/* integers of the same bits do differ */
	differ = 0;
	for (uint32_t i = 0; i < 40; i++) {
		uint32_t x = i, y = i | 0x80000000;

		differ += hash_bytes("i", &x, 4) != hash_bytes("i", &y, 4);
	}
	assert_true(differ > 30);
}

/* The partition of each row of a batch, by columns. */
static void
hash_rows(const struct ArrowSchema *s, const struct ArrowArray *a, const uint32_t *keys, uint32_t n,
	  uint32_t *partition)
{
	for (int64_t i = 0; i < a->length; i++) {
		struct ArrowArray row = *a;

		row.offset += i;
		row.length = 1;
		push_batch(s, &row, NULL, keys, n);
		for (uint32_t p = 0; p < world.partitions; p++) {
			unsigned rows;

			if (world.first[p]) {
				partition[i] = p;
				count_rows(p, &rows);
			}
		}
	}
}

/* Rows whose keys have the same text are in the same partition, whatever holds them. */
TEST_IN(setup, NULL, equal_values_hash_alike)
{
	unsigned differ = 0;

	world.partitions = MANY;
	for (unsigned i = 0; i < 150; i++) {
		uint32_t partition[2][40], keys[2] = {1, 0};
		struct ArrowSchema s = new_schema("+s", "", 2);
		struct ArrowArray a[2];
		char **text[2];

		random_state = seed_of(i);
		*s.children[0] = random_schema(i % 3, "first");
		*s.children[1] = new_schema("b", "second", 0);
		for (unsigned k = 0; k < 2; k++) {
			text[k] = random_batch(&s, 40, &a[k]);
			hash_rows(&s, &a[k], keys, 2, partition[k]);
		}
		for (unsigned x = 0; x < 80; x++) {
			for (unsigned y = 0; y < x; y++) {
				uint32_t px = partition[x / 40][x % 40],
					 py = partition[y / 40][y % 40];

				/* random floats may be NaNs */
				if (!strcmp(text[x / 40][x % 40], text[y / 40][y % 40]))
					assert_int_equal(px, py);
				else
					differ += px != py;
			}
		}
		for (unsigned k = 0; k < 2; k++) {
			a[k].release(&a[k]);
			free_texts(text[k], 40);
		}
		s.release(&s);
	}
	assert_true(differ > 50000);
	assert_int_equal(alive, 0);
}

/* A dictionary hashes as its values, and text of 64-bit offsets as that of 32. */
TEST_IN(setup, NULL, encodings_hash_alike)
{
	static const char words[] = "onetwothreefour";
	static const int32_t small[] = {0, 3, 6, 11, 15};
	static const int64_t large[] = {0, 3, 6, 11, 15};
	static const uint16_t indices[] = {0, 1, 2, 3};
	static const uint32_t key;
	uint32_t partition[3][4];

	world.partitions = MANY;
	for (unsigned i = 0; i < 3; i++) {
		struct ArrowSchema s = new_schema("+s", "", 1), *type = s.children[0];
		struct ArrowArray a = new_array(4, 0, 1, 1), *column = a.children[0];

		if (i == 2) {
			*type = new_schema("S", "column", 0);
			type->dictionary = zeroed(1, sizeof(s));
			type = type->dictionary;
			*column = new_array(4, 0, 2, 0);
			column->buffers[1] =
			    memcpy(malloc(sizeof(indices)), indices, sizeof(indices));
			column->dictionary = zeroed(1, sizeof(a));
			column = column->dictionary;
		}
		*type = new_schema(i == 1 ? "U" : "u", "column", 0);
		*column = new_array(4, 0, 3, 0);
		column->buffers[1] = i == 1 ? memcpy(malloc(sizeof(large)), large, sizeof(large))
					    : memcpy(malloc(sizeof(small)), small, sizeof(small));
		column->buffers[2] = memcpy(malloc(15), words, 15);
		hash_rows(&s, &a, &key, 1, partition[i]);
		a.release(&a);
		s.release(&s);
	}
	assert_memory_equal(partition[0], partition[1], sizeof(partition[0]));
	assert_memory_equal(partition[0], partition[2], sizeof(partition[0]));
}

TEST_IN(setup, NULL, hash_spreads_rows)
{
	static const uint32_t key;
	struct ArrowSchema s = new_schema("+s", "", 1);
	struct ArrowArray a = new_array(100000, 0, 1, 1);
	int32_t *data = zeroed(100000, sizeof(*data));
	unsigned rows, sum = 0;

	for (int i = 0; i < 100000; i++)
		data[i] = i;
	*s.children[0] = new_schema("i", "column", 0);
	*a.children[0] = new_array(100000, 0, 2, 0);
	a.children[0]->buffers[1] = data;
	world.partitions = 16;
	push_batch(&s, &a, NULL, &key, 1);
	for (uint32_t p = 0; p < 16; p++) {
		count_rows(p, &rows);
		assert_in_range(rows, 5800, 6700);
		sum += rows;
	}
	assert_int_equal(sum, 100000);
	a.release(&a);
	s.release(&s);
}

/* ---- releases ---- */

/* One batch of a struct and a dictionary, read. */
static struct ArrowArray
two_columns(struct ArrowSchema *s)
{
	static const uint32_t partition[30];
	struct weir_reduce r = {0};
	struct ArrowArrayStream stream;
	struct ArrowArray a;
	char **text;

	random_state = 5;
	*s = new_schema("+s", "", 2);
	*s->children[0] = new_schema("+s", "struct", 1);
	*s->children[0]->children[0] = new_schema("u", "text", 0);
	*s->children[1] = new_schema("i", "dictionary", 0);
	s->children[1]->dictionary = zeroed(1, sizeof(*s));
	*s->children[1]->dictionary = new_schema("l", "values", 0);
	text = random_batch(s, 30, &a);
	push_batch(s, &a, partition, NULL, 0);
	a.release(&a);
	free_texts(text, 30);
	assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
	assert_int_equal(stream.get_next(&stream, &a), 0);
	stream.release(&stream);
	assert_int_equal(world.loans, 1);
	return a;
}

TEST_IN(setup, NULL, block_returns_with_the_last_array)
{
	struct ArrowSchema s;
	struct ArrowArray a = two_columns(&s), text, values;

	text = *a.children[0]->children[0];
	a.children[0]->children[0]->release = NULL;
	values = *a.children[1]->dictionary;
	a.children[1]->dictionary->release = NULL;
	a.release(&a);
	assert_null(a.release);
	assert_int_equal(world.loans, 1);
	arrow_touch(s.children[0]->children[0], &text);
	text.release(&text);
	assert_int_equal(world.loans, 1);
	arrow_touch(s.children[1]->dictionary, &values);
	values.release(&values);
	assert_int_equal(world.loans, 0);

	/* a child is released before its parent */
	s.release(&s);
	a = two_columns(&s);
	a.children[0]->release(a.children[0]);
	assert_null(a.children[0]->release);
	arrow_touch(s.children[1], a.children[1]);
	a.release(&a);
	assert_int_equal(world.loans, 0);
	s.release(&s);
	assert_int_equal(alive, 0);
}

/* A thread releases its half of the columns, and the schema's. */
struct half {
	struct ArrowArray column[2];
	struct ArrowSchema schema[2];
};

static void *
release_half(void *argument)
{
	struct half *h = argument;

	for (unsigned i = 0; i < 2; i++) {
		arrow_touch(&h->schema[i], &h->column[i]);
		h->column[i].release(&h->column[i]);
		h->schema[i].release(&h->schema[i]);
	}
	return NULL;
}

TEST_IN(setup, NULL, threads_release_arrays)
{
	static const uint32_t partition[20];
	struct ArrowSchema s = new_schema("+s", "", 4), got;
	struct ArrowArray a;

	for (unsigned i = 0; i < 4; i++)
		*s.children[i] = new_schema(leaves[i + 13], "column", 0);
	for (unsigned round = 0; round < 50; round++) {
		struct weir_reduce r = {0};
		struct ArrowArrayStream stream;
		pthread_t thread[2];
		struct half half[2];

		free_texts(random_batch(&s, 20, &a), 20);
		push_batch(&s, &a, partition, NULL, 0);
		a.release(&a);
		assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
		assert_int_equal(stream.get_schema(&stream, &got), 0);
		assert_int_equal(stream.get_next(&stream, &a), 0);
		for (unsigned i = 0; i < 4; i++) {
			half[i / 2].column[i % 2] = *a.children[i];
			half[i / 2].schema[i % 2] = *got.children[i];
			a.children[i]->release = NULL;
			got.children[i]->release = NULL;
		}
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&thread[i], NULL, release_half, &half[i]),
					 0);
		a.release(&a);
		got.release(&got);
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pthread_join(thread[i], NULL), 0);
		stream.release(&stream);
		assert_int_equal(world.loans, 0);
	}
	s.release(&s);
	assert_int_equal(alive, 0);
}

TEST_IN(setup, NULL, schema_lives_on_its_own)
{
	struct ArrowSchema s, got, column;
	struct ArrowArray a = two_columns(&s);
	static const uint32_t partition[30];
	struct weir_reduce r = {0};
	struct ArrowArrayStream stream;

	a.release(&a);
	a = new_array(0, 0, 1, 0);
	a.release(&a);
	random_state = 6;
	free_texts(random_batch(&s, 30, &a), 30);
	push_batch(&s, &a, partition, NULL, 0);
	a.release(&a);
	assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
	assert_int_equal(stream.get_schema(&stream, &got), 0);
	got.release(&got);
	assert_int_equal(stream.get_schema(&stream, &got), 0);
	stream.release(&stream); /* with a block that was not read */
	assert_int_equal(world.loans, 0);
	assert_true(same_schema(&got, &s));
	column = *got.children[1];
	got.children[1]->release = NULL;
	got.release(&got);
	assert_null(got.release);
	assert_true(same_schema(&column, s.children[1]));
	column.release(&column);
	s.release(&s);
	assert_int_equal(alive, 0);
}

/* ---- streams ---- */

TEST_IN(setup, NULL, other_schema_ends_the_stream)
{
	static const uint32_t partition[5];
	struct ArrowSchema s[2] = {new_schema("+s", "", 1), new_schema("+s", "", 1)};
	struct weir_reduce r = {0};
	struct ArrowArrayStream stream;
	struct ArrowArray a;

	for (unsigned i = 0; i < 2; i++) {
		*s[i].children[0] = new_schema(i ? "I" : "i", "column", 0);
		free_texts(random_batch(&s[i], 5, &a), 5);
		push_batch(&s[i], &a, partition, NULL, 0);
		a.release(&a);
	}
	assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
	assert_null(stream.get_last_error(&stream));
	assert_int_equal(stream.get_next(&stream, &a), 0);
	a.release(&a);
	assert_int_equal(stream.get_next(&stream, &a), EINVAL);
	assert_non_null(strstr(stream.get_last_error(&stream), "schema"));
	weir_fail(0, "another reason");
	assert_int_equal(stream.get_next(&stream, &a), EINVAL);
	assert_non_null(strstr(stream.get_last_error(&stream), "schema"));
	stream.release(&stream);
	assert_int_equal(world.loans, 0);
	for (unsigned i = 0; i < 2; i++)
		s[i].release(&s[i]);
}

TEST_IN(setup, NULL, stream_passes_errors_on)
{
	struct weir_reduce r = {.fail = -EPROTO};
	struct ArrowArrayStream stream;
	struct ArrowSchema s;
	struct ArrowArray a;

	assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
	assert_int_equal(stream.get_schema(&stream, &s), EPROTO);
	assert_string_equal(stream.get_last_error(&stream), "the test fails");
	r.fail = -EHOSTDOWN;
	assert_int_equal(stream.get_next(&stream, &a), EHOSTDOWN);
	r.fail = 0;
	assert_int_equal(stream.get_next(&stream, &a), 0);
	assert_null(a.release);
	r.fail = -EHOSTDOWN; /* the end is final */
	assert_int_equal(stream.get_next(&stream, &a), 0);
	assert_null(a.release);
	stream.release(&stream);
}

/* Whatever allocation fails, pushing and reading go on later, and nothing is lost or leaks. */
TEST_IN(setup, NULL, memory_may_run_out)
{
	static const uint32_t partition[60], keys[] = {0};

	for (unsigned i = 0; i < 20; i++) {
		struct weir_reduce r = {0};
		struct ArrowArrayStream stream;
		struct ArrowSchema s, got;
		uint64_t progress = 0;
		int rc = -ENOMEM, fails = 0;
		struct ArrowArray a;

		world.partitions = 1;
		random_state = seed_of(i);
		s = random_batch_schema(3);
		free_texts(random_batch(&s, 60, &a), 60);
		for (int n = 0; rc; n++) {
			fail_in = n;
			rc = weir_map_arrow(&map, &s, &a, i % 2 ? partition : NULL,
					    i % 2 ? NULL : keys, i % 2 ? 0 : 1, 0, &progress);
			assert_true(!rc || rc == -ENOMEM);
			fails += rc != 0;
		}
		fail_in = -1;
		assert_true(fails > 3);
		assert_int_equal(world.held, 1);
		a.release(&a);

		fail_in = 0;
		assert_int_equal(weir_reduce_arrow(&r, &stream), -ENOMEM);
		fail_in = -1;
		assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
		for (unsigned n = 0; n < 2; n++) { /* schema of the block, and the copy */
			fail_in = 0;
			assert_int_equal(stream.get_schema(&stream, &got), ENOMEM);
			fail_in = -1;
			assert_int_equal(stream.get_schema(&stream, &got), 0);
			got.release(&got);
		}
		fail_in = 0;
		assert_int_equal(stream.get_next(&stream, &a), ENOMEM);
		fail_in = -1;
		assert_int_equal(stream.get_next(&stream, &a), 0);
		assert_int_equal(a.length, 60);
		a.release(&a);
		stream.release(&stream);
		s.release(&s);
		assert_int_equal(world.loans, 0);
	}
	assert_int_equal(alive, 0);
}

/* ---- what is refused ---- */

static int
push_once(const struct ArrowSchema *s, const struct ArrowArray *a)
{
	static const uint32_t partition[64];
	uint64_t progress = 0;

	return weir_map_arrow(&map, s, a, partition, NULL, 0, 0, &progress);
}

static int
push_format(const char *format, unsigned children)
{
	struct ArrowSchema s = new_schema("+s", "", 1);
	struct ArrowArray a = new_array(0, 0, 1, 1);
	int rc;

	*s.children[0] = new_schema(format, "odd", children);
	for (unsigned i = 0; i < children; i++)
		*s.children[0]->children[i] = new_schema("i", "child", 0);
	*a.children[0] = new_array(0, 0, 2, 0);
	rc = push_once(&s, &a);
	a.release(&a);
	s.release(&s);
	return rc;
}

TEST_IN(setup, NULL, unsupported_types_are_named)
{
	static const struct {
		const char *format, *name;
		unsigned children;
	} odd[] = {
	    {"+ud:0,1", "dense union", 2},
	    {"+us:0,1", "sparse union", 2},
	    {"+r", "run-end encoded", 2},
	    {"+vl", "'+vl' (list view)", 1},
	    {"+vL", "large list view", 1},
	    {"vu", "utf8 view", 0},
	    {"vz", "binary view", 0},
	    {"x", "'x'", 0},
	    {"", "''", 0},
	    {"ts", "'ts'", 0},
	    {"tsx:", "'tsx:'", 0},
	    {"tss", "'tss'", 0},
	    {"w:", "'w:'", 0},
	    {"w:-1", "'w:-1'", 0},
	    {"w:16777217", "w:1677", 0},
	    {"w:3x", "'w:3x'", 0},
	    {"+w:", "'+w:'", 1},
	    {"d:", "'d:'", 0},
	    {"d:10", "'d:10'", 0},
	    {"d:10,2,65", "d:10,2,65", 0},
	    {"d:99,2", "'d:99,2'", 0},
	    {"d:9,2,", "'d:9,2,'", 0},
	    {"ii", "'ii'", 0},
	    {"+x", "'+x'", 0},
	    {"w:99999999999999999999", "w:9", 0},
	};

	for (unsigned i = 0; i < COUNT(odd); i++) {
		assert_int_equal(push_format(odd[i].format, odd[i].children), -ENOTSUP);
		assert_non_null(strstr(weir_reason(), odd[i].name));
		assert_non_null(strstr(weir_reason(), "'odd'"));
	}
	assert_int_equal(push_format("i", 0), 0);
	assert_int_equal(push_format("i", 1), -EINVAL);
	assert_int_equal(push_format("+l", 0), -EINVAL);
	assert_int_equal(push_format("+l", 2), -EINVAL);
	assert_int_equal(push_format("+w:3", 0), -EINVAL);
	assert_int_equal(push_format("+m", 1), -EINVAL);
	assert_int_equal(alive, 0);
}

static struct ArrowSchema
deep_schema(unsigned levels)
{
	struct ArrowSchema s = new_schema(levels ? "+s" : "i", "deep", levels != 0);

	if (levels)
		*s.children[0] = deep_schema(levels - 1);
	return s;
}

static int
read_schema(struct ArrowSchema *s)
{
	struct arrow_schema *own = NULL;
	int rc = arrow_schema_of(s, &own);

	arrow_schema_free(own);
	s->release(s);
	return rc;
}

TEST_IN(setup, NULL, schemas_have_limits)
{
	char name[ARROW_TEXT_MAX + 2];
	struct ArrowSchema s;

	s = deep_schema(ARROW_DEPTH_MAX);
	assert_int_equal(read_schema(&s), 0);
	s = deep_schema(ARROW_DEPTH_MAX + 1);
	assert_int_equal(read_schema(&s), -EINVAL);
	assert_non_null(strstr(weir_reason(), "16 levels"));

	for (unsigned more = 0; more < 2; more++) {
		s = new_schema("+s", "", ARROW_COLUMNS_MAX / 2 + 1);
		for (int64_t i = 0; i < s.n_children; i++)
			*s.children[i] = new_schema("i", "", 0);
		s.children[0]->release(s.children[0]);
		*s.children[0] = new_schema("+s", "", ARROW_COLUMNS_MAX / 2 - 1 + more);
		for (int64_t i = 0; i < s.children[0]->n_children; i++)
			*s.children[0]->children[i] = new_schema("i", "", 0);
		assert_int_equal(read_schema(&s), more ? -EINVAL : 0);
	}
	for (unsigned more = 0; more < 2; more++) {
		memset(name, 'x', sizeof(name));
		name[ARROW_TEXT_MAX + more] = 0;
		s = new_schema("+s", name, 0);
		assert_int_equal(read_schema(&s), more ? -EINVAL : 0);
	}
	s = new_schema("i", "", 0);
	assert_int_equal(read_schema(&s), -EINVAL); /* no batch */
	s = new_schema("+s", "", 1);
	*s.children[0] = new_schema("f", "float", 0);
	s.children[0]->dictionary = zeroed(1, sizeof(s));
	*s.children[0]->dictionary = new_schema("u", "values", 0);
	assert_int_equal(read_schema(&s), -EINVAL);
	s = (struct ArrowSchema){.format = "+s"};
	assert_int_equal(push_once(&s, NULL), -EINVAL); /* released */
	assert_int_equal(alive, 0);
}

/* The image of structs in structs, as a liar may send it. */
TEST_IN(setup, NULL, images_have_limits)
{
	static const uint8_t level[] = {2, 0, 0, 0, 1, 0, '+', 's', 0, 0};
	uint8_t image[sizeof(level) * (ARROW_DEPTH_MAX + 2)];

	for (uint32_t more = 0; more < 2; more++) {
		uint32_t nodes = ARROW_DEPTH_MAX + 1 + more,
			 bytes = nodes * (uint32_t)sizeof(level);
		struct arrow_schema *s = NULL;

		for (uint32_t i = 0; i < nodes; i++)
			memcpy(image + i * sizeof(level), level, sizeof(level));
		image[bytes - sizeof(level) + 4] = 0;
		assert_int_equal(arrow_schema_read(image, bytes, nodes, &s), more ? -EINVAL : 0);
		arrow_schema_free(s);
	}
	assert_int_equal(arrow_schema_read(image, sizeof(image), 0, NULL), -EINVAL);
	assert_int_equal(arrow_schema_read(image, sizeof(image), ARROW_COLUMNS_MAX + 2, NULL),
			 -EINVAL);
}

/* One column of the type with its arrays right, then one thing wrong. */
struct wrong {
	struct ArrowSchema s;
	struct ArrowArray a, *column;
};

static struct wrong
right(const char *format)
{
	struct wrong w = {.s = new_schema("+s", "", 1)};
	bool child = format[0] == '+', bytes = format[0] == 'u';
	int32_t offsets[] = {1, 1, 3, 3, 7};

	*w.s.children[0] = new_schema(format, "wrong", child);
	w.a = new_array(4, 0, 1, 1);
	w.column = w.a.children[0];
	*w.column = new_array(4, 0, format[1] == 's' || format[1] == 'w' ? 1 : 2 + bytes, child);
	if (w.column->n_buffers > 1)
		w.column->buffers[1] = memcpy(malloc(sizeof(offsets)), offsets, sizeof(offsets));
	if (bytes)
		w.column->buffers[2] = random_bytes(7);
	if (child) {
		*w.s.children[0]->children[0] = new_schema("c", "child", 0);
		*w.column->children[0] = new_array(8, 0, 2, 0);
		w.column->children[0]->buffers[1] = random_bytes(8);
	}
	return w;
}

static void
done(struct wrong *w)
{
	w->a.release(&w->a);
	w->s.release(&w->s);
}

/* The batch is refused with this change, and pushed without it. */
#define WRONG(format, member, value)                                                               \
	do {                                                                                       \
		struct wrong w = right(format);                                                    \
		__typeof__(member) was = (member);                                                 \
		assert_int_equal(push_once(&w.s, &w.a), 0);                                        \
		(member) = (value);                                                                \
		assert_int_equal(push_once(&w.s, &w.a), -EINVAL);                                  \
		(member) = was;                                                                    \
		done(&w);                                                                          \
	} while (0)

#define OFFSETS ((int32_t *)(uintptr_t)w.column->buffers[1])

TEST_IN(setup, NULL, wrong_arrays_are_refused)
{
	unsigned rows;

	WRONG("u", OFFSETS[2], 0);
	WRONG("u", OFFSETS[0], -1);
	WRONG("u", OFFSETS[4], 2);
	WRONG("+l", OFFSETS[2], 0);
	WRONG("+l", OFFSETS[0], -1);
	WRONG("+l", OFFSETS[4], 9);
	WRONG("+l", w.column->children[0]->length, 6);
	WRONG("+s", w.column->children[0]->length, 3);
	WRONG("+s", w.column->offset, 5);
	WRONG("+w:2", w.column->children[0]->length, 7);
	WRONG("i", w.a.length, 5);
	WRONG("i", w.a.n_children, 0);
	WRONG("i", w.a.null_count, 5);
	WRONG("i", w.a.null_count, -2);
	WRONG("i", w.a.n_buffers, 0);
	WRONG("i", w.column->null_count, 1);
	WRONG("i", w.column->length, -1);
	WRONG("i", w.column->offset, -1);
	WRONG("i", w.column->n_buffers, 3);
	WRONG("i", w.column->buffers, NULL);
	WRONG("i", w.column->buffers[1], NULL);
	WRONG("u", w.column->buffers[1], NULL);
	WRONG("u", w.column->buffers[2], NULL);
	WRONG("i", w.column->release, NULL);
	WRONG("i", w.column->dictionary, w.column);
	WRONG("i", w.s.children[0]->release, NULL);
	WRONG("i", w.s.children[0]->format, NULL);
	WRONG("i", w.s.children, NULL);
	WRONG("i", w.s.n_children, -1);
	while (world.held)
		count_rows(0, &rows);
	assert_int_equal(alive, 0);
}

TEST_IN(setup, NULL, wrong_indices_are_refused)
{
	static const int8_t indices[] = {0, 4, -1};
	static const uint32_t one[1];
	uint64_t progress = 0;

	for (unsigned i = 0; i < COUNT(indices); i++) {
		struct ArrowSchema s = new_schema("+s", "", 1);
		struct ArrowArray a = new_array(1, 0, 1, 1), *column = a.children[0];
		int8_t *data = malloc(1);
		unsigned rows;

		*data = indices[i];
		*s.children[0] = new_schema("c", "column", 0);
		s.children[0]->dictionary = zeroed(1, sizeof(s));
		*s.children[0]->dictionary = new_schema("n", "values", 0);
		*column = new_array(1, 0, 2, 0);
		column->buffers[1] = data;
		column->dictionary = zeroed(1, sizeof(a));
		*column->dictionary = new_array(4, 0, 0, 0);
		assert_int_equal(weir_map_arrow(&map, &s, &a, one, NULL, 0, 0, &progress),
				 i ? -EINVAL : 0);
		count_rows(0, &rows);
		assert_int_equal(rows, !i);
		a.release(&a);
		s.release(&s);
	}
}

TEST_IN(setup, NULL, wrong_arguments_are_refused)
{
	struct wrong w = right("i");
	uint32_t partition[4] = {0, 0, PARTITIONS, 0}, key = 0, no_key = 1;
	uint64_t progress = 0;

	assert_int_equal(weir_map_arrow(&map, &w.s, &w.a, partition, NULL, 0, 0, &progress),
			 -EINVAL);
	partition[2] = PARTITIONS - 1;
	assert_int_equal(weir_map_arrow(&map, &w.s, &w.a, partition, &key, 1, 0, &progress),
			 -EINVAL);
	assert_int_equal(weir_map_arrow(&map, &w.s, &w.a, NULL, NULL, 0, 0, &progress), -EINVAL);
	assert_int_equal(weir_map_arrow(&map, &w.s, &w.a, NULL, &key, 0, 0, &progress), -EINVAL);
	assert_int_equal(weir_map_arrow(&map, &w.s, &w.a, NULL, &no_key, 1, 0, &progress), -EINVAL);
	w.a.length = 1ll << 32;
	assert_int_equal(weir_map_arrow(&map, &w.s, &w.a, partition, NULL, 0, 0, &progress),
			 -EMSGSIZE);
	w.a.length = 4;
	assert_int_equal(world.puts, 0);
	done(&w);
}

/* ---- blocks of liars ---- */

/* Reads a block from memory that is exactly as long. Returns whether it was taken. */
static bool
read_block(const uint8_t *data, size_t length, uint32_t records)
{
	struct held *h = zeroed(1, sizeof(*h));
	struct weir_reduce r = {0};
	struct ArrowArrayStream stream;
	struct ArrowSchema s;
	struct ArrowArray a;
	bool taken;
	int rc;

	h->block = (struct weir_block){
	    .data = memcpy(malloc(length ? length : 1), data, length),
	    .length = length,
	    .records = records,
	};
	*world.last[0] = h;
	world.last[0] = &h->next;
	world.held++;
	assert_int_equal(weir_reduce_arrow(&r, &stream), 0);
	rc = stream.get_next(&stream, &a);
	taken = !rc;
	assert_true(taken || rc == EBADMSG);
	if (taken) {
		assert_int_equal(stream.get_schema(&stream, &s), 0);
		arrow_touch(&s, &a);
		a.release(&a);
		s.release(&s);
	} else {
		assert_true(strlen(stream.get_last_error(&stream)));
		assert_int_equal(stream.get_next(&stream, &a), EBADMSG);
	}
	stream.release(&stream);
	assert_int_equal(world.loans, 0);
	return taken;
}

/* Takes the only block of partition 0 out of the shuffle. */
static struct weir_block
take_block(void)
{
	struct held *h = world.first[0];
	struct weir_block b;

	assert_true(h && !h->next);
	b = h->block;
	world.first[0] = NULL;
	world.last[0] = &world.first[0];
	world.held--;
	free(h);
	return b;
}

/* A block of four rows, in which the four bytes there are another number. */
static bool
read_lie(const struct weir_block *b, size_t at, uint32_t lie)
{
	uint8_t *data = (uint8_t *)(uintptr_t)b->data;
	uint32_t was;
	bool taken;

	memcpy(&was, data + at, 4);
	memcpy(data + at, &lie, 4);
	taken = read_block(data, b->length, 4);
	memcpy(data + at, &was, 4);
	return taken;
}

/* The place of an array's length; its number of nulls follows. */
static size_t
node_at(const struct weir_block *b, size_t node)
{
	struct arrow_head h;

	memcpy(&h, b->data, sizeof(h));
	return sizeof(h) + ((h.schema + 7u) & ~7u) + node * sizeof(struct arrow_node);
}

TEST_IN(setup, NULL, lies_are_refused)
{
	static const uint8_t valid = 0x5; /* two of four */
	struct wrong w = right("i");
	struct weir_block b;
	size_t node;

	w.column->buffers[0] = memcpy(malloc(1), &valid, 1);
	w.column->null_count = -1;
	assert_int_equal(push_once(&w.s, &w.a), 0);
	done(&w);
	b = take_block();
	node = node_at(&b, 1);
	assert_true(read_lie(&b, node, 4) && read_lie(&b, node + 4, 2));
	assert_false(read_lie(&b, node, 3));
	assert_false(read_lie(&b, node, 5));
	assert_false(read_lie(&b, node + 4, 1));
	assert_false(read_lie(&b, node + 4, 3));
	assert_false(read_lie(&b, node + 4, 0));
	for (size_t at = 0; at < offsetof(struct arrow_head, zero); at += 4)
		assert_false(read_lie(&b, at, 77));
	free((void *)(uintptr_t)b.data);

	w = right("u");
	assert_int_equal(push_once(&w.s, &w.a), 0);
	done(&w);
	b = take_block();
	node = arrow_align(node_at(&b, 2)); /* offsets 0, 0, 2, 2, 6 */
	assert_true(read_lie(&b, node + 8, 1));
	assert_false(read_lie(&b, node, 1));
	assert_false(read_lie(&b, node, (uint32_t)-1));
	assert_false(read_lie(&b, node + 8, 3));
	assert_false(read_lie(&b, node + 8, (uint32_t)-1));
	assert_false(read_lie(&b, node + 16, 5));
	assert_false(read_lie(&b, node + 16, 7));
	assert_false(read_lie(&b, node + 16, UINT32_MAX));
	free((void *)(uintptr_t)b.data);
	assert_int_equal(alive, 0);
}

/* An index outside its dictionary, and one of an empty dictionary. */
TEST_IN(setup, NULL, lying_indices_are_refused)
{
	static const uint32_t indices[4] = {2, 2, 0, 2};
	struct wrong w = right("I");
	struct weir_block b;
	size_t at;

	w.s.children[0]->dictionary = zeroed(1, sizeof(w.s));
	*w.s.children[0]->dictionary = new_schema("n", "values", 0);
	memcpy((void *)(uintptr_t)w.column->buffers[1], indices, sizeof(indices));
	w.column->dictionary = zeroed(1, sizeof(w.a));
	*w.column->dictionary = new_array(3, 0, 0, 0);
	w.column->dictionary->null_count = 3;
	assert_int_equal(push_once(&w.s, &w.a), 0);
	done(&w);
	b = take_block();
	at = arrow_align(node_at(&b, 3)); /* indices 0, 0, 1, 0 */
	assert_true(read_lie(&b, at, 1));
	assert_false(read_lie(&b, at, 2));
	assert_false(read_lie(&b, at, UINT32_MAX));
	assert_false(read_lie(&b, node_at(&b, 2), 0));
	assert_false(read_lie(&b, node_at(&b, 2), ARROW_LENGTH_MAX + 1));
	free((void *)(uintptr_t)b.data);
	assert_int_equal(alive, 0);
}

TEST_IN(setup, NULL, corrupt_blocks_are_harmless)
{
	static const uint32_t partition[12];

	for (unsigned i = 0; i < 15; i++) {
		struct ArrowSchema s;
		struct ArrowArray a;
		struct weir_block b;
		uint8_t *data;
		size_t length;

		random_state = seed_of(i);
		s = random_batch_schema(3);
		free_texts(random_batch(&s, 12, &a), 12);
		push_batch(&s, &a, partition, NULL, 0);
		a.release(&a);
		s.release(&s);
		b = take_block();
		length = b.length;
		data = (uint8_t *)(uintptr_t)b.data;
		assert_true(read_block(data, length, 12));
		assert_false(read_block(data, length, 13));
		for (size_t at = 0; at < length; at++) {
			uint8_t was = data[at], values[] = {0, 0xff, was ^ 1, was ^ 0x80, was + 1};

			for (unsigned k = 0; k < COUNT(values); k++) {
				data[at] = values[k];
				read_block(data, length, 12);
			}
			data[at] = was;
		}
		for (size_t shorter = 0; shorter < length; shorter++)
			assert_false(read_block(data, shorter, 12));
		free(data);
	}
	assert_int_equal(alive, 0);
}
