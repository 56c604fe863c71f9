/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks of random layouts against plain loops and a map of bytes; limits and overflow. */
#include "worlds/test.h"
#include "ipc/pieces.h"

#define MAP 4096
#define WITHIN 65536
#define START 2048

static uint32_t seed = 1;

static uint32_t
draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

/* The offset of each byte in order, by plain loops. Returns how many there are. */
static size_t
plain(const struct weir_layout *l, int64_t *offsets)
{
	uint64_t count[WEIR_LAYOUT_DIMS] = {1, 1, 1, 1};
	size_t n = 0;

	if (!l->block) {
		for (size_t i = 0; i < l->count; i++)
			for (uint64_t k = 0; k < l->list[i].length; k++)
				offsets[n++] = l->list[i].offset + (int64_t)k;
		return n;
	}
	for (uint32_t d = 0; d < l->dims; d++)
		count[d] = l->dim[d].count;
	for (uint64_t i3 = 0; i3 < count[3]; i3++)
		for (uint64_t i2 = 0; i2 < count[2]; i2++)
			for (uint64_t i1 = 0; i1 < count[1]; i1++)
				for (uint64_t i0 = 0; i0 < count[0]; i0++)
					for (uint64_t k = 0; k < l->block; k++)
						offsets[n++] = (int64_t)i3 * l->dim[3].stride +
							       (int64_t)i2 * l->dim[2].stride +
							       (int64_t)i1 * l->dim[1].stride +
							       (int64_t)i0 * l->dim[0].stride +
							       (int64_t)k;
	return n;
}

/* Pieces are loaded, stored and skipped in any parts. They may overlap: then the last one stays. */
static void
check_copies(const struct weir_layout *l, const int64_t *offsets, size_t n, uint64_t start)
{
	static uint8_t from[WITHIN], to[WITHIN], want[WITHIN], bytes[WITHIN];
	struct weir_layout_walk w, before;
	uint64_t k;

	for (size_t i = 0; i < WITHIN; i++) {
		from[i] = (uint8_t)(i * 7 + i / 256);
		to[i] = want[i] = 0;
	}
	weir_layout_start(&w, l);
	for (size_t at = 0; at < n; at += k) {
		k = 1 + draw((uint32_t)(n - at));
		before = w;
		if (l->block && w.taken == w.l.block && w.l.dims) {
			int64_t offset;

			weir_layout_rest(&w, &offset);
			assert_int_equal(weir_layout_before(&w) * w.l.block, at);
			weir_layout_start_at(&before, &w.l, weir_layout_before(&w));
		}
		weir_layout_load(&w, from, start, bytes, k);
		for (size_t i = 0; i < k; i++)
			assert_int_equal(bytes[i], from[(int64_t)start + offsets[at + i]]);
		for (size_t i = 0; i < k; i++)
			bytes[i] = want[(int64_t)start + offsets[at + i]] = (uint8_t)draw(256);
		w = before;
		weir_layout_store(&w, to, start, bytes, k);
		weir_layout_skip(&before, k);
		assert_int_equal(before.offset, w.offset);
		assert_int_equal(before.taken, w.taken);
	}
	assert_memory_equal(to, want, WITHIN);
}

static void
check(const struct weir_layout *l)
{
	static int64_t offsets[1 << 16];
	size_t n = plain(l, offsets), at = 0;
	int64_t least = 0, most = 0, first, end, offset;
	uint64_t start, length, most_at_once = draw(3) ? UINT64_MAX : 1 + draw(9), got;
	struct weir_layout_walk w;

	for (size_t i = 0; i < n; i++) {
		least = !i || offsets[i] < least ? offsets[i] : least;
		most = !i || offsets[i] + 1 > most ? offsets[i] + 1 : most;
	}
	assert_int_equal(weir_layout_bytes(l), n);
	assert_int_equal(weir_layout_bounds(l, &first, &end), n);
	assert_true(first == least && end == most);
	start = least < 0 ? (uint64_t)-least : 0;
	length = (uint64_t)((int64_t)start + most);
	assert_true(weir_layout_fits(l, start, length));
	assert_false(n && length && weir_layout_fits(l, start, length - 1));
	assert_false(least < 0 && weir_layout_fits(l, start - 1, WITHIN));
	weir_layout_start(&w, l);
	while ((got = weir_layout_next(&w, most_at_once, &offset))) {
		assert_true(got <= most_at_once && got <= n - at);
		for (uint64_t k = 0; k < got; k++)
			if (offsets[at++] != offset + (int64_t)k)
				fail_msg("byte %zu lies at %ld, not %ld", at - 1,
					 (long)offsets[at - 1], (long)(offset + (int64_t)k));
	}
	assert_int_equal(at, n);
	assert_int_equal(weir_layout_next(&w, most_at_once, &offset), 0);
	check_copies(l, offsets, n, start);
}

TEST(test_random_strides)
{
	for (unsigned round = 0; round < 20000; round++) {
		struct weir_layout l = {.block = 1 + draw(9), .dims = draw(WEIR_LAYOUT_DIMS + 1)};

		for (uint32_t d = 0; d < l.dims; d++) {
			l.dim[d].count = 1 + draw(4);
			/* often adjacent, so that pieces are joined */
			l.dim[d].stride =
			    draw(3)
				? (int64_t)draw(100) - 50
				: (int64_t)(d ? l.dim[d - 1].count * (uint64_t)l.dim[d - 1].stride
					      : l.block);
		}
		check(&l);
	}
}

TEST(test_random_lists)
{
	for (unsigned round = 0; round < 5000; round++) {
		struct weir_piece piece[8];
		struct weir_layout l = {.list = piece, .count = 1 + draw(8)};

		for (size_t i = 0; i < l.count; i++)
			piece[i] = (struct weir_piece){(int64_t)draw(200) - 100, draw(20)};
		check(&l);
	}
}

TEST(test_scatter)
{
	/* a face of a cuboid of bytes, walked in pieces, covers exactly its bytes */
	struct weir_layout l = {.block = 2, .dims = 2, .dim = {{5, 16}, {4, -256}}};
	uint8_t map[MAP] = {0}, want[MAP] = {0};
	struct weir_layout_walk w;
	int64_t offset;
	uint64_t n;

	for (int z = 0; z < 4; z++)
		for (int y = 0; y < 5; y++)
			for (int x = 0; x < 2; x++)
				want[START + x + y * 16 - z * 256] = 1;
	weir_layout_start(&w, &l);
	while ((n = weir_layout_next(&w, UINT64_MAX, &offset)))
		memset(map + START + offset, 1, n);
	assert_memory_equal(map, want, MAP);
	/* rows that lie one behind the other are one piece */
	l = (struct weir_layout){.block = 8, .dims = 3, .dim = {{4, 8}, {1, 999}, {3, 32}}};
	weir_layout_start(&w, &l);
	assert_int_equal(weir_layout_next(&w, UINT64_MAX, &offset), 96);
	assert_int_equal(weir_layout_next(&w, UINT64_MAX, &offset), 0);
}

static bool
is_invalid(const struct weir_layout *l)
{
	return weir_layout_bytes(l) == UINT64_MAX && !weir_layout_fits(l, 0, UINT64_MAX);
}
#define LAYOUT(...) (&(struct weir_layout){__VA_ARGS__})

/* A layout in a cell is read again as it was; a byte less is too little. */
TEST(test_in_cells)
{
	struct weir_layout l = {.block = 7, .dims = 3, .dim = {{2, 9}, {3, -40}, {5, 200}}};
	struct weir_piece list[WEIR_CELL_LIST_MAX + 1];
	uint8_t payload[WEIR_PUT_MAX];
	struct weir_pieces p;
	uint32_t n = weir_pieces_put(payload, &l, 4);

	assert_int_equal(n, 64);
	for (uint32_t length = 0; length < n; length++)
		assert_int_equal(weir_pieces_get(&p, payload, length), 0);
	assert_int_equal(weir_pieces_get(&p, payload, sizeof(payload)), n);
	assert_int_equal(p.first, 4);
	assert_memory_equal(&p.l, &l, sizeof(l));
	for (uint32_t k = 0; k <= WEIR_CELL_LIST_MAX; k++)
		list[k] = (struct weir_piece){k * 100 - 500, k};
	memcpy(payload + weir_described(0), list, WEIR_CELL_LIST_MAX * sizeof(list[0]));
	n = weir_list_put(payload, WEIR_CELL_LIST_MAX);
	assert_int_equal(weir_pieces_get(&p, payload, n - 1), 0);
	assert_int_equal(weir_pieces_get(&p, payload, n), n);
	assert_int_equal(p.l.count, WEIR_CELL_LIST_MAX);
	assert_memory_equal(p.l.list, list, WEIR_CELL_LIST_MAX * sizeof(list[0]));
	n = weir_list_put(payload, WEIR_CELL_LIST_MAX + 1);
	assert_int_equal(weir_pieces_get(&p, payload, n), 0);
}

TEST(test_limits)
{
	struct weir_piece far[] = {{INT64_MAX - 7, 7}, {INT64_MIN, 1}};
	struct weir_piece beyond = {INT64_MAX, 1},
			  huge[] = {{0, 1ull << 62}, {0, (1ull << 62) + 1}};

	assert_true(is_invalid(LAYOUT(0)));
	assert_true(is_invalid(LAYOUT(.list = far)));
	assert_true(is_invalid(LAYOUT(.count = 2)));
	assert_true(is_invalid(LAYOUT(.block = 8, .dims = WEIR_LAYOUT_DIMS + 1,
				      .dim = {{1, 1}, {1, 1}, {1, 1}, {1, 1}})));
	assert_true(is_invalid(LAYOUT(.block = 8, .dims = 1, .dim = {{0, 8}})));
	assert_true(is_invalid(LAYOUT(.block = 8, .dims = 2, .dim = {{2, 8}, {0, 0}})));
	assert_true(is_invalid(LAYOUT(.block = (1ull << 63) + 1)));
	assert_true(is_invalid(LAYOUT(.block = UINT64_MAX)));
	assert_true(is_invalid(LAYOUT(.block = 8, .reserved = 1)));
	/* count x stride, block x count and their sums */
	assert_true(is_invalid(LAYOUT(.block = 1, .dims = 1, .dim = {{1ull << 33, 1ll << 31}})));
	assert_true(is_invalid(LAYOUT(.block = 1, .dims = 1, .dim = {{3, INT64_MIN}})));
	assert_true(is_invalid(LAYOUT(.block = 1ull << 32, .dims = 1, .dim = {{1ull << 32, 0}})));
	assert_true(is_invalid(
	    LAYOUT(.block = 1ull << 40, .dims = 4,
		   .dim = {{1ull << 40, 0}, {1ull << 40, 0}, {1ull << 40, 0}, {1ull << 40, 0}})));
	assert_true(is_invalid(LAYOUT(.block = 1, .dims = 2, .dim = {{2, INT64_MAX - 1}, {2, 1}})));
	assert_true(is_invalid(LAYOUT(.block = 1, .dims = 1, .dim = {{UINT64_MAX, INT64_MIN}})));
	assert_true(is_invalid(LAYOUT(.list = &beyond, .count = 1)));
	assert_true(is_invalid(LAYOUT(.list = huge, .count = 2)));
	/* the largest that are valid */
	assert_int_equal(weir_layout_bytes(LAYOUT(.block = INT64_MAX)), INT64_MAX);
	assert_int_equal(weir_layout_bytes(LAYOUT(.block = 1ull << 62, .dims = 1, .dim = {{2, 0}})),
			 1ull << 63);
	assert_int_equal(weir_layout_bytes(LAYOUT(.block = 1, .dims = 1, .dim = {{2, INT64_MIN}})),
			 2);
	assert_int_equal(weir_layout_bytes(LAYOUT(.list = far, .count = 2)), 8);
	/* the last byte, and a start that wraps */
	assert_true(weir_layout_fits(LAYOUT(.block = 8), UINT64_MAX - 8, UINT64_MAX));
	assert_false(weir_layout_fits(LAYOUT(.block = 8), UINT64_MAX - 7, UINT64_MAX));
	assert_false(weir_layout_fits(LAYOUT(.block = 8), UINT64_MAX - 3, 64));
	assert_false(weir_layout_fits(LAYOUT(.block = 1, .dims = 1, .dim = {{2, -8}}), 7, 64));
	assert_true(weir_layout_fits(LAYOUT(.block = 1, .dims = 1, .dim = {{2, -8}}), 8, 9));
}
