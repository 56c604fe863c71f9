/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers with layouts at both ends against a map of bytes, between two nodes, apart and mapped:
 * each place gives the same. With them come notices, signals, no waiting, refusals.
 */
#include "places.h"

#include <time.h>

#define PIECES 300u
#define EXTENT 30000 /* bytes between the first and the last of a layout, about */

static uint32_t seed;

static uint32_t
draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

/* A layout with the place of each byte. */
struct drawn {
	struct weir_layout l;
	bool contiguous;
	struct weir_piece list[PIECES];
	int64_t least, most; /* first byte, behind the last one */
	int64_t at[BYTES];
};

static void
note_bytes(struct drawn *d, uint64_t *n, int64_t offset, uint64_t length)
{
	for (uint64_t k = 0; k < length; k++, offset++) {
		d->least = !*n || offset < d->least ? offset : d->least;
		d->most = !*n || offset + 1 > d->most ? offset + 1 : d->most;
		d->at[(*n)++] = offset;
	}
}

static void
place_bytes(struct drawn *d, uint64_t bytes)
{
	uint64_t count[WEIR_LAYOUT_DIMS] = {1, 1, 1, 1}, n = 0;

	d->least = d->most = 0;
	for (size_t i = 0; !d->l.block && i < d->l.count; i++)
		note_bytes(d, &n, d->list[i].offset, d->list[i].length);
	for (uint32_t i = 0; i < d->l.dims; i++)
		count[i] = d->l.dim[i].count;
	for (uint64_t i = 0; d->l.block && i < count[0] * count[1] * count[2] * count[3]; i++) {
		int64_t offset = 0;
		uint64_t rest = i;

		for (uint32_t k = 0; k < d->l.dims; rest /= count[k++])
			offset += (int64_t)(rest % count[k]) * d->l.dim[k].stride;
		note_bytes(d, &n, offset, d->l.block);
	}
	assert_int_equal(n, bytes);
}

static uint64_t
draw_divisor(uint64_t n)
{
	uint64_t d = 1 + draw((uint32_t)n);

	while (n % d)
		d--;
	return d;
}

/* n elements of `unit` bytes in pieces that do not overlap. */
static void
draw_layout(struct drawn *d, uint64_t n, uint64_t unit)
{
	uint64_t left = n;
	int64_t extent = 0;

	d->l = (struct weir_layout){.block = n * unit};
	d->contiguous = !draw(4);
	if (d->contiguous) {
		place_bytes(d, n * unit);
		return;
	}
	if (draw(2)) { /* a list: some adjacent, some empty, in any order */
		d->l = (struct weir_layout){.list = d->list};
		while (left) {
			uint64_t most = draw(3) ? 20 : 3000, k = draw((uint32_t)most + 1);

			k = k > left || d->l.count == PIECES - 1 ? left : k;
			extent += draw(3) ? draw(60) * unit : 0;
			d->list[d->l.count++] = (struct weir_piece){extent, k * unit};
			extent += k * unit;
			left -= k;
		}
		for (size_t i = d->l.count; i > 1; i--) {
			size_t with = draw((uint32_t)i);
			struct weir_piece p = d->list[with];

			d->list[with] = d->list[i - 1];
			d->list[i - 1] = p;
		}
	} else {
		d->l.block = draw(3) ? 1 + draw(40) : draw_divisor(n);
		while (n % d->l.block)
			d->l.block--;
		left = n / d->l.block;
		extent = (int64_t)(d->l.block *= unit);
		while (left > 1) {
			uint64_t count = d->l.dims == 3 ? left : draw_divisor(left);
			int64_t stride = extent + (int64_t)(draw(30) * unit);

			if (stride * (int64_t)count > EXTENT && extent * (int64_t)left < EXTENT)
				stride = extent; /* adjacent */
			d->l.dim[d->l.dims].count = count;
			d->l.dim[d->l.dims].stride = draw(3) ? stride : -stride;
			d->l.dims++;
			extent += stride * (int64_t)(count - 1);
			left /= count;
		}
	}
	place_bytes(d, n * unit);
}

/* Where it may start to lie within BYTES, a multiple of unit; UINT64_MAX: nowhere. */
static uint64_t
draw_start(const struct drawn *d, uint32_t unit)
{
	int64_t before = d->least < 0 ? -d->least : 0, room = (int64_t)BYTES - d->most - before;

	if (room < 0)
		return UINT64_MAX;
	switch (draw(4)) { /* the borders often */
	case 0:
		room = 0;
		break;
	case 1:
		room -= room % unit;
		break;
	default:
		room = draw((uint32_t)room + 1);
		room -= room % unit;
	}
	return (uint64_t)(room + before);
}

static struct drawn here, there;
static uint8_t model[BYTES], ours[BYTES], want[BYTES];

static void
scribble(uint8_t *bytes)
{
	for (uint32_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)draw(256);
}

/* Draws both ends of n elements. */
static void
draw_ends(struct weir_transfer *t, uint64_t *from)
{
	do {
		uint64_t n = draw(3) ? 1 + draw(300) : 1 + draw(20000);

		draw_layout(&here, n, 1);
		draw_layout(&there, n, 1);
		*from = draw_start(&here, 1);
		t->offset = draw_start(&there, 1);
		t->length = here.contiguous || there.contiguous ? n : 0;
	} while (*from == UINT64_MAX || t->offset == UINT64_MAX);
	t->buf = (uint8_t *)((uintptr_t)ours + *from);
	t->here = here.contiguous ? NULL : &here.l;
	t->there = there.contiguous ? NULL : &there.l;
}

static uint64_t
bytes_of(const struct weir_transfer *t)
{
	return t->length ? t->length : weir_layout_bytes(t->here);
}

static void
end_transfer(struct memory *m, struct weir_transfer *t)
{
	if (t->op)
		assert_int_equal(weir_op_wait(t->op, PATIENT), 0);
	else
		memory_flush(m);
}

/* No pieces are at the place of other ones, so the order of pieces does not matter. */
static void
put_once(struct memory *m, unsigned flags)
{
	struct weir_op op;
	struct weir_transfer t = {.op = draw(2) ? &op : NULL,
				  .flags = WEIR_AT_TARGET | flags | (draw(2) ? WEIR_BEHIND : 0)};
	uint64_t from;
	int rc;

	draw_ends(&t, &from);
	for (uint64_t i = 0; i < bytes_of(&t); i++)
		model[t.offset + (uint64_t)there.at[i]] = ours[from + (uint64_t)here.at[i]];
	while ((rc = weir_remote_put_with(m->r, &t)) == -EAGAIN)
		assert_true(flags & WEIR_NOWAIT);
	if (rc == -EMSGSIZE) {
		t.flags &= ~WEIR_NOWAIT;
		rc = weir_remote_put_with(m->r, &t);
	}
	assert_int_equal(rc, 0);
	scribble(ours); /* it is the library's business no more */
	memset(&here, 0xee, sizeof(here));
	end_transfer(m, &t);
	assert_memory_equal(m->base, model, BYTES);
}

static void
get_once(struct memory *m, unsigned flags)
{
	struct weir_op op;
	struct weir_transfer t = {.op = draw(2) ? &op : NULL, .flags = flags};
	uint64_t from;
	int rc;

	draw_ends(&t, &from);
	memcpy(want, ours, BYTES);
	for (uint64_t i = 0; i < bytes_of(&t); i++)
		want[from + (uint64_t)here.at[i]] = model[t.offset + (uint64_t)there.at[i]];
	while ((rc = weir_remote_get_with(m->r, &t)) == -EAGAIN)
		assert_true(flags & WEIR_NOWAIT);
	if (rc == -EMSGSIZE) {
		t.flags &= ~WEIR_NOWAIT;
		rc = weir_remote_get_with(m->r, &t);
	}
	assert_int_equal(rc, 0);
	memset(&here, 0xee, sizeof(here));
	memset(&there, 0xee, sizeof(there));
	end_transfer(m, &t);
	assert_memory_equal(ours, want, BYTES);
	assert_memory_equal(m->base, model, BYTES);
}

/* Several under way at a time, each into memory of its own: pieces of 4 bytes, some empty. */
static void
get_many(struct memory *m)
{
	struct weir_layout column = {.block = 8, .dims = 1, .dim = {{40, 24}}};
	struct weir_piece list[90];
	struct weir_layout pieces = {.list = list, .count = 90};
	struct weir_transfer t = {.offset = 16, .there = &column};

	memcpy(want, ours, BYTES);
	for (unsigned k = 0; k < 64; k++) {
		for (unsigned i = 0; i < 90; i++)
			list[i] = (struct weir_piece){i * 6, i % 9 == 3 ? 0 : 4};
		t.buf = ours + k * 1000;
		t.here = k % 2 ? &pieces : NULL;
		t.length = k % 2 ? 0 : 320;
		for (unsigned i = 0; i < 320; i++) {
			unsigned piece = i / 4, of_nine = piece % 8;

			piece = piece / 8 * 9 + of_nine + (of_nine >= 3);
			want[k * 1000 + (k % 2 ? piece * 6 + i % 4 : i)] =
			    model[16 + i / 8 * 24 + i % 8];
		}
		assert_int_equal(weir_remote_get_with(m->r, &t), 0);
		memset(list, 0xee, sizeof(list));
	}
	memory_flush(m);
	assert_memory_equal(ours, want, BYTES);
}

static void
test_random(void **state)
{
	struct timespec now;
	uint32_t first;

	clock_gettime(CLOCK_REALTIME, &now);
	first = (uint32_t)now.tv_nsec;
	print_message("seed %u\n", first);
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);

		seed = first; /* the same in each place */
		scribble(m.base);
		memcpy(model, m.base, BYTES);
		scribble(ours);
		for (unsigned k = 0; k < 150; k++) {
			put_once(&m, k % 4 ? 0 : WEIR_NOWAIT);
			get_once(&m, k % 3 ? 0 : WEIR_NOWAIT);
		}
		get_many(&m);
		memory_close(&m);
	}
}

static void
update_once(struct memory *m)
{
	static const struct {
		enum weir_type type;
		uint32_t size;
	} types[] = {{WEIR_T_UINT8, 1}, {WEIR_T_INT16, 2}, {WEIR_T_UINT32, 4}, {WEIR_T_UINT64, 8}};
	uint32_t of = draw(4), size = types[of].size;
	struct weir_op op;
	struct weir_update u = {.operand = ours,
				.result = draw(2) ? want : NULL,
				.there = &there.l,
				.handle = draw(2) ? &op : NULL,
				.type = types[of].type,
				.op = draw(4) ? WEIR_ACC_BXOR : WEIR_ACC_NO_OP,
				.flags = WEIR_AT_TARGET};
	static uint8_t before[BYTES];

	do {
		u.count = draw(3) ? 1 + draw(200) : 1 + draw(2000);
		draw_layout(&there, u.count, size);
		u.offset = draw_start(&there, size);
	} while (u.offset == UINT64_MAX || u.offset % size);
	for (uint64_t i = 0; i < u.count * size; i++) {
		uint8_t *at = &model[u.offset + (uint64_t)there.at[i]];

		before[i] = *at;
		*at ^= u.op == WEIR_ACC_BXOR ? ours[i] : 0;
	}
	memset(want, 0, BYTES);
	assert_int_equal(weir_remote_update(m->r, &u), 0);
	scribble(ours);
	if (u.handle)
		assert_int_equal(weir_op_wait(&op, PATIENT), 0);
	else
		memory_flush(m);
	assert_memory_equal(m->base, model, BYTES);
	if (u.result)
		assert_memory_equal(want, before, u.count * size);
}

static void
test_update(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);

		seed = 7;
		scribble(m.base);
		memcpy(model, m.base, BYTES);
		for (unsigned k = 0; k < 120; k++)
			update_once(&m);
		memory_close(&m);
	}
}

/* A column of 8-byte words takes as many slots as the same bytes in a row, and a tenth more. */
static void
test_compact(void **state)
{
	struct weir_layout column = {.block = 8, .dims = 1, .dim = {{512, 64}}};
	struct weir_transfer t = {.buf = ours, .length = 4096, .there = &column};
	struct memory m = memory_open(APART);
	struct weir_thread *self;
	uint64_t before, row;

	memory_flush(&m);
	assert_int_equal(weir_remote_put(m.r, 0, ours, 4096, 0), 0);
	memory_flush(&m);
	self = weir_thread_get(m.a);
	before = SLIST_FIRST(&self->channels)->pipe.tx.pos;
	assert_int_equal(weir_remote_put(m.r, 0, ours, 4096, 0), 0);
	row = SLIST_FIRST(&self->channels)->pipe.tx.pos - before;
	memory_flush(&m);
	before = SLIST_FIRST(&self->channels)->pipe.tx.pos;
	assert_int_equal(weir_remote_put_with(m.r, &t), 0);
	assert_true(SLIST_FIRST(&self->channels)->pipe.tx.pos - before <= row + row / 10);
	memory_flush(&m);
	memory_close(&m);
}

static void
test_notice(void **state)
{
	struct weir_layout column = {.block = 4, .dims = 1, .dim = {{100, -12}}};
	struct weir_transfer t = {.offset = 4000,
				  .buf = ours,
				  .length = 400,
				  .there = &column,
				  .notify = WEIR_WITH_NOTICE | WEIR_WITH_SIGNAL_ADD,
				  .tag = 5,
				  .source = 6,
				  .signal = 8192,
				  .operand = 3};
	struct weir_notice n;
	uint64_t seen;

	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);

		memset(ours, 0x77, 400);
		for (unsigned k = 0; k < 100; k++) {
			memset(m.base, 0, 8192);
			assert_int_equal(weir_remote_put_with(m.r, &t), 0);
			assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
			assert_true(n.x == m.x && n.tag == 5 && n.source == 6 && n.bytes == 400);
			for (unsigned b = 0; b < 400; b++)
				assert_int_equal(m.base[4000 - b / 4 * 12 + b % 4], 0x77);
			assert_int_equal(
			    weir_signal_wait(m.x, 8192, WEIR_GE, 3 * (k + 1), 0, &seen), 0);
			assert_int_equal(seen, 3 * (k + 1));
		}
		/* behind a get it says that the bytes were read */
		t.notify = WEIR_WITH_NOTICE | WEIR_WITH_SIGNAL_SET;
		assert_int_equal(weir_remote_get_with(m.r, &t), 0);
		assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
		memset(m.base, 0, 8192);
		assert_true(n.tag == 5 && n.bytes == 400);
		memory_flush(&m);
		for (unsigned b = 0; b < 400; b++)
			assert_int_equal(ours[b], 0x77);
		assert_int_equal(weir_signal_wait(m.x, 8192, WEIR_EQ, 3, 0, NULL), 0);
		/* a notice and nothing else */
		assert_int_equal(
		    weir_remote_put_with(m.r, &(struct weir_transfer){.notify = WEIR_WITH_NOTICE}),
		    0);
		assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
		assert_true(!n.tag && !n.source && !n.bytes);
		t.notify = WEIR_WITH_NOTICE | WEIR_WITH_SIGNAL_ADD;
		memory_close(&m);
	}
}

/* Without room nothing begins, neither pieces nor notice. */
static void
test_nowait(void **state)
{
	struct weir_layout column = {.block = 8, .dims = 1, .dim = {{200, 16}}};
	struct weir_transfer t = {.buf = ours,
				  .length = 1600,
				  .there = &column,
				  .flags = WEIR_NOWAIT,
				  .notify = WEIR_WITH_NOTICE};
	struct weir_notice n;
	uint64_t word = 1;

	memset(ours, 0x55, sizeof(ours));
	for (unsigned i = 0; i < MAPPED; i++) {
		struct memory m = memory_open(i);

		memory_flush(&m);
		plane_hold(m.f, true);
		while (!weir_remote_put(m.r, 8192, &word, sizeof(word), WEIR_NOWAIT))
			;
		for (unsigned k = 0; k < 10; k++)
			assert_int_equal(weir_remote_put_with(m.r, &t), -EAGAIN);
		plane_hold(m.f, false);
		memory_flush(&m);
		for (unsigned b = 0; b < 8192; b++)
			assert_int_equal(m.base[b], 0);
		/* nor with room, but no window */
		for (unsigned k = 0; k < 8; k++)
			assert_int_equal(weir_remote_notify(m.r, 1, 0, 0), 0);
		assert_int_equal(weir_remote_put_with(m.r, &t), -EAGAIN);
		memory_flush(&m);
		assert_int_equal(m.base[0], 0);
		for (unsigned k = 0; k < 8; k++)
			assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
		while (weir_remote_put_with(m.r, &t) == -EAGAIN)
			;
		assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
		assert_int_equal(n.bytes, 1600);
		assert_int_equal(m.base[199 * 16], 0x55);
		/* more than seven eighths of the channel, whose engine tells of eighths: it asks
		 * for room */
		column.dim[0].count = 1600;
		t.length = 12800;
		t.notify = 0;
		for (unsigned k = 0; k < 40; k++) {
			for (unsigned small = 0; small < k; small++)
				assert_int_equal(weir_remote_put(m.r, 0, &word, sizeof(word), 0),
						 0);
			memory_flush(&m);
			while (weir_remote_put_with(m.r, &t) == -EAGAIN)
				;
		}
		t.notify = WEIR_WITH_NOTICE;
		column.dim[0].count = 4000;
		t.length = 32000;
		expect(weir_remote_put_with(m.r, &t), -EMSGSIZE);
		expect(weir_remote_get_with(m.r, &t), -EMSGSIZE);
		column.dim[0].count = 200;
		t.length = 1600;
		memory_close(&m);
	}
}

/* Of the calling thread, since the test counts those of operations. */
static __thread unsigned allocations;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *
__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__real_calloc(size_t k, size_t n);
void *__wrap_calloc(size_t k, size_t n);
void *
__wrap_calloc(size_t k, size_t n)
{
	allocations++;
	return __real_calloc(k, n);
}

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *
__wrap_realloc(void *p, size_t n)
{
	allocations++;
	return __real_realloc(p, n);
}

/* Operations need no memory of their own, once the connection has some for answers. */
static void
test_no_allocation(void **state)
{
	struct weir_layout column = {.block = 8, .dims = 1, .dim = {{100, 24}}};
	struct weir_piece list[] = {{0, 300}, {400, 500}};
	struct weir_layout pieces = {.list = list, .count = 2};
	struct weir_op op;
	struct weir_transfer t = {.buf = ours,
				  .here = &pieces,
				  .there = &column,
				  .op = &op,
				  .flags = WEIR_AT_TARGET,
				  .notify = WEIR_WITH_SIGNAL_ADD,
				  .signal = 8192,
				  .operand = 1};
	struct weir_update u = {.operand = ours,
				.result = want,
				.count = 100,
				.there = &column,
				.handle = &op,
				.type = WEIR_T_UINT64,
				.op = WEIR_ACC_SUM};
	struct weir_mark mark;

	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);

		for (unsigned k = 0; k < 200; k++) {
			if (k == 10)
				allocations = 0;
			assert_int_equal(weir_remote_put_with(m.r, &t), 0);
			assert_int_equal(weir_remote_get_with(m.r, &t), 0);
			assert_int_equal(weir_remote_update(m.r, &u), 0);
			weir_remote_mark(m.r, &mark);
			assert_int_equal(weir_op_wait(&op, PATIENT), 0);
			memory_flush(&m); /* signals of mapped memory are cells */
			assert_int_equal(weir_mark_done(&mark), 1);
		}
		assert_int_equal(allocations, 0);
		memory_close(&m);
	}
}

static void
refuse(struct memory *m, struct weir_transfer t, int want_rc)
{
	struct weir_op op = {.state = 99};

	t.op = &op;
	expect(weir_remote_put_with(m->r, &t), want_rc);
	assert_int_equal(op.state, 0);
	expect(weir_remote_get_with(m->r, &t), want_rc);
}

static void
test_refused(void **state)
{
	struct weir_piece past = {BYTES - 7, 8}, before = {-1, 8};
	struct weir_layout column = {.block = 8, .dims = 1, .dim = {{4, 16}}}, row = {.block = 32},
			   bad = {.block = 1, .dims = 5}, far_off = column, back = column,
			   wrap = {.block = 8, .dims = 2, .dim = {{1ull << 40, 8}, {1 << 20, 8}}},
			   odd = {.block = 4, .dims = 1, .dim = {{8, 9}}},
			   list = {.list = &past, .count = 1};
	const struct weir_transfer good = {.buf = ours, .length = 32, .there = &column};
	struct weir_transfer t;

	back.dim[0].stride = -16;
	far_off.dim[0].stride = INT64_MAX / 2;
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);
		struct weir_remote *r;
		struct weir_update u = {.operand = ours,
					.count = 4,
					.there = &column,
					.type = WEIR_T_UINT64,
					.op = WEIR_ACC_SUM};

#define REFUSE(want_rc, ...)                                                                       \
	do {                                                                                       \
		t = good;                                                                          \
		__VA_ARGS__;                                                                       \
		refuse(&m, t, want_rc);                                                            \
	} while (0)
		memset(ours, 1, 64);
		expect(weir_remote_put_with(m.r, NULL), -EINVAL);
		expect(weir_remote_get_with(m.r, NULL), -EINVAL);
		REFUSE(-EINVAL, t.flags = 0x10);
		REFUSE(-EINVAL, t.notify = 8);
		REFUSE(-EINVAL, t.notify = WEIR_WITH_SIGNAL_SET | WEIR_WITH_SIGNAL_ADD);
		REFUSE(-EINVAL, t.notify = WEIR_WITH_SIGNAL_SET; t.signal = 4);
		REFUSE(-ERANGE, t.notify = WEIR_WITH_SIGNAL_SET; t.signal = BYTES);
		REFUSE(-EINVAL, t.length = 31);
		REFUSE(-EINVAL, t.length = 33);
		REFUSE(-EINVAL, t.buf = NULL);
		REFUSE(-EINVAL, t.buf = (void *)8; t.here = &back);
		REFUSE(-EINVAL, t.buf = (void *)(UINTPTR_MAX - 30));
		REFUSE(-EINVAL, t.there = &bad);
		REFUSE(-EINVAL, t.here = &bad);
		REFUSE(-EINVAL, t.there = &wrap);
		REFUSE(-EINVAL, t.there = &far_off; t.here = &far_off);
		REFUSE(-ERANGE, t.there = &back; t.offset = 47);
		REFUSE(-ERANGE, t.offset = BYTES - 55);
		REFUSE(-ERANGE, t.offset = UINT64_MAX);
		REFUSE(-ERANGE, t.offset = UINT64_MAX - 31; t.there = NULL);
		REFUSE(-ERANGE, t.there = &list; t.length = 8);
		list.list = &before;
		REFUSE(-ERANGE, t.there = &list; t.length = 8);
		list.list = &past;
		REFUSE(-ERANGE, t.length = 0; t.there = NULL; t.offset = BYTES + 1);
		u.there = &odd;
		expect(weir_remote_update(m.r, &u), -EINVAL);
		u.there = &row;
		u.offset = 4;
		expect(weir_remote_update(m.r, &u), -EINVAL);
		u.offset = BYTES - 24;
		expect(weir_remote_update(m.r, &u), -ERANGE);
		u.count = 5;
		expect(weir_remote_update(m.r, &u), -EINVAL);
		memory_flush(&m);
		for (unsigned k = 0; k < BYTES; k++)
			assert_int_equal(m.base[k], 0);
		/* the borders themselves */
		t = good;
		t.offset = BYTES - 56;
		assert_int_equal(weir_remote_put_with(m.r, &t), 0);
		t.there = &back;
		t.offset = 48;
		assert_int_equal(weir_remote_put_with(m.r, &t), 0);
		memory_flush(&m);
		assert_true(m.base[0] == 1 && m.base[BYTES - 1] == 1);
		assert_int_equal(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, PATIENT, &r), 0);
		expect(weir_remote_get_with(r, &t), -EACCES);
		t.notify = WEIR_WITH_SIGNAL_SET;
		expect(weir_remote_put_with(r, &t), -EACCES);
		expect(weir_remote_update(r, &u), -EACCES);
		weir_remote_close(r);
		memory_close(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_random),  cmocka_unit_test(test_update),
	    cmocka_unit_test(test_compact), cmocka_unit_test(test_notice),
	    cmocka_unit_test(test_nowait),  cmocka_unit_test(test_no_allocation),
	    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
