/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fourier transforms in three dimensions: window_fft [--apart] [--by messages] [--pencils] NAME
 * SIZE N STEPS. SIZE programs, on any nodes, join the group NAME and divide a cube of N^3 complex
 * numbers, N a power of two. A program transforms lines that it has whole; between two dimensions
 * the members transpose the cube. Slabs divide one dimension, pencils two.
 *
 * Each step is a transform and its inverse, which must return the input. A last transform must
 * agree with its closed form. With --by messages the members pack, send and unpack.
 */
#include "members.h"

#include <complex.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double complex number;

/*
 * Members form a grid of rows and columns. Each array of the cube is [a][b][c], c whole:
 *
 *   [x][y][z]   x divided among the rows, y among the columns
 *   [x][z][y]   after the transposition of the columns' dimension with the whole one
 *   [y][z][x]   and of the rows'
 *
 * The members of a row divide what the columns divide, and exchange with one another alone;
 * likewise those of a column.
 */
enum dimension { ROWS, COLUMNS }; /* a, which the rows divide; b, which the columns divide */

/* A member's part of the cube. */
struct part {
	uint32_t rank;
	size_t first[2], count[2]; /* of each dimension that is divided */
};

struct cube {
	struct members m;
	struct weir_window *win;
	size_t n;		  /* numbers in each dimension */
	size_t grid[2];		  /* rows and columns */
	struct part own;	  /* its array is [count[ROWS]][count[COLUMNS]][n] */
	number *array[2];	  /* of the window: transpositions go from one to the other */
	unsigned at;		  /* which array holds the data */
	number *root;		  /* exp(-2 pi i k / n), k < n / 2 */
	uint32_t *ranks;	  /* of the partners */
	struct piece *out, *in;	  /* messages */
	number *packed, *arrived; /* and their memory, as large as an array */
};

/* The part of the member that is k places away in the grid along a dimension. */
static struct part
part(const struct cube *c, enum dimension along, size_t k)
{
	size_t place[2] = {c->m.rank / c->grid[COLUMNS], c->m.rank % c->grid[COLUMNS]};
	struct part p;

	place[along] = (place[along] + k) % c->grid[along];
	p.rank = (uint32_t)(place[ROWS] * c->grid[COLUMNS] + place[COLUMNS]);
	for (enum dimension d = ROWS; d <= COLUMNS; d++) {
		p.first[d] = part_first(c->n, c->grid[d], place[d]);
		p.count[d] = part_size(c->n, c->grid[d], place[d]);
	}
	return p;
}

/* The transform of n numbers, or n times its inverse. */
static void
transform_line(const struct cube *c, number *line, bool inverse)
{
	size_t n = c->n;

	for (size_t i = 1, j = 0; i < n; i++) { /* j: the bits of i, reversed */
		size_t bit = n >> 1;

		for (; j & bit; bit >>= 1)
			j ^= bit;
		j ^= bit;
		if (i < j) {
			number swap = line[i];

			line[i] = line[j];
			line[j] = swap;
		}
	}
	for (size_t half = 1; half < n; half *= 2)
		for (size_t first = 0; first < n; first += 2 * half)
			for (size_t k = 0; k < half; k++) {
				number w = c->root[k * (n / (2 * half))], *even = &line[first + k];
				number odd = even[half] * (inverse ? conj(w) : w);

				even[half] = *even - odd;
				*even += odd;
			}
}

static void
transform_lines(const struct cube *c, bool inverse)
{
	for (size_t i = 0; i < c->own.count[ROWS] * c->own.count[COLUMNS]; i++)
		transform_line(c, c->array[c->at] + i * c->n, inverse);
}

/* ---- transpositions ---- */

static size_t
numbers(const struct cube *c, const struct part *p)
{
	return p->count[ROWS] * p->count[COLUMNS] * c->n;
}

/* Bytes between neighbours in a dimension of a part's array. */
static int64_t
stride(const struct cube *c, const struct part *p, enum dimension d)
{
	return (int64_t)((d == ROWS ? p->count[COLUMNS] : 1) * c->n * sizeof(number));
}

/*
 * The block for another part, from [0][0][to->first[d]] of the own array on: lines along d, one for
 * each of the other part's share of the whole dimension, and that for each index of the third one.
 */
static struct weir_layout
block_from(const struct cube *c, enum dimension d, const struct part *to)
{
	enum dimension third = d == ROWS ? COLUMNS : ROWS;
	struct weir_layout l = {.block = sizeof(number), .dims = 3};

	l.dim[0].count = c->own.count[d];
	l.dim[0].stride = stride(c, &c->own, d);
	l.dim[1].count = to->count[d];
	l.dim[1].stride = sizeof(number);
	l.dim[2].count = c->own.count[third];
	l.dim[2].stride = stride(c, &c->own, third);
	return l;
}

/* The same in the other part's array, from [0][0][from->first[d]] on: the lines are contiguous. */
static struct weir_layout
block_to(const struct cube *c, enum dimension d, const struct part *from, const struct part *to)
{
	enum dimension third = d == ROWS ? COLUMNS : ROWS;
	struct weir_layout l = {.block = from->count[d] * sizeof(number), .dims = 2};

	l.dim[0].count = to->count[d];
	l.dim[0].stride = stride(c, to, d);
	l.dim[1].count = to->count[third];
	l.dim[1].stride = stride(c, to, third);
	return l;
}

static int
put_blocks(struct cube *c, enum dimension d)
{
	uint32_t n = (uint32_t)c->grid[d];
	int rc;

	for (uint32_t k = 1; k < n; k++)
		c->ranks[k - 1] = part(c, d, k).rank;
	/* the other array is free: the puts out of it have returned */
	rc = weir_window_post(c->win, c->ranks, n - 1, 0);
	if (!rc)
		rc = weir_window_start(c->win, c->ranks, n - 1, 0, -1);
	for (uint32_t k = 1; !rc && k < n; k++) {
		struct part to = part(c, d, k);
		struct weir_layout here = block_from(c, d, &to);
		struct weir_layout there = block_to(c, d, &c->own, &to);
		struct weir_transfer t = {.buf = c->array[c->at] + to.first[d],
					  .offset = !c->at * numbers(c, &to) + c->own.first[d],
					  .here = &here,
					  .there = &there};

		rc = weir_window_put_with(c->win, to.rank, &t);
	}
	if (!rc)
		rc = weir_window_complete(c->win, -1);
	return rc ? rc : weir_window_wait(c->win, -1);
}

/* Copies the pieces of a layout to contiguous memory, or back. Returns the end of the latter. */
static number *
copy(const struct weir_layout *l, number *array, number *contiguous, bool pack)
{
	size_t counts[3] = {1, 1, 1}, numbers = l->block / sizeof(number);
	int64_t strides[3] = {0};

	for (unsigned d = 0; d < l->dims; d++) {
		counts[d] = l->dim[d].count;
		strides[d] = l->dim[d].stride / (int64_t)sizeof(number);
	}
	for (size_t k = 0; k < counts[2]; k++)
		for (size_t j = 0; j < counts[1]; j++)
			for (size_t i = 0; i < counts[0]; i++, contiguous += numbers) {
				number *piece = array + (int64_t)i * strides[0] +
						(int64_t)j * strides[1] + (int64_t)k * strides[2];

				if (pack)
					memcpy(contiguous, piece, l->block);
				else
					memcpy(piece, contiguous, l->block);
			}
	return contiguous;
}

static int
send_blocks(struct cube *c, enum dimension d)
{
	size_t n = c->grid[d];
	number *packed = c->packed, *arrived = c->arrived;
	int rc;

	for (size_t k = 1; k < n; k++) {
		struct part to = part(c, d, k), from = part(c, d, n - k);
		struct weir_layout here = block_from(c, d, &to);
		struct weir_layout there = block_to(c, d, &from, &c->own);

		c->out[k] = (struct piece){to.rank, packed, weir_layout_bytes(&here)};
		c->in[k] = (struct piece){from.rank, arrived, weir_layout_bytes(&there)};
		packed = copy(&here, c->array[c->at] + to.first[d], packed, true);
		arrived += c->in[k].length / sizeof(number);
	}
	rc = members_exchange(&c->m, c->out + 1, n - 1, c->in + 1, n - 1);
	for (size_t k = 1; !rc && k < n; k++) {
		struct part from = part(c, d, n - k);
		struct weir_layout there = block_to(c, d, &from, &c->own);

		copy(&there, c->array[!c->at] + from.first[d], c->in[k].buf, false);
	}
	return rc;
}

/* Exchanges a dimension that is divided with the one that is whole. It is its own inverse. */
static int
transpose(struct cube *c, enum dimension d)
{
	struct weir_layout from = block_from(c, d, &c->own);
	struct weir_layout to = block_to(c, d, &c->own, &c->own);
	int rc = 0;

	copy(&from, c->array[c->at] + c->own.first[d], c->packed, true);
	copy(&to, c->array[!c->at] + c->own.first[d], c->packed, false);
	if (c->grid[d] > 1)
		rc = c->m.by_messages ? send_blocks(c, d) : put_blocks(c, d);
	c->at = !c->at;
	return rc;
}

/* [x][y][z] becomes its transform, [y][z][x]. */
static int
transform(struct cube *c)
{
	int rc;

	transform_lines(c, false);
	rc = transpose(c, COLUMNS);
	if (rc)
		return rc;
	transform_lines(c, false);
	rc = transpose(c, ROWS);
	if (!rc)
		transform_lines(c, false);
	return rc;
}

static int
transform_back(struct cube *c)
{
	double all = (double)c->n * (double)c->n * (double)c->n;
	int rc;

	transform_lines(c, true);
	rc = transpose(c, ROWS);
	if (rc)
		return rc;
	transform_lines(c, true);
	rc = transpose(c, COLUMNS);
	if (rc)
		return rc;
	transform_lines(c, true);
	for (size_t i = 0; i < numbers(c, &c->own); i++)
		c->array[c->at][i] /= all;
	return 0;
}

/* ---- input and result ---- */

/* One of the three factors of a function of three dimensions. */
typedef number factor(size_t n, unsigned dimension, size_t i);

static const number base[3] = {0.95 + 0.2 * I, 0.8 - 0.55 * I, -0.3 + 0.9 * I};
static const unsigned xyz[3] = {0, 1, 2}, yzx[3] = {1, 2, 0};

static number
power(size_t n, unsigned dimension, size_t i)
{
	(void)n;
	return cpow(base[dimension], (double)i);
}

/* The transform of n powers: a geometric series. */
static number
series(size_t n, unsigned dimension, size_t k)
{
	number ratio = base[dimension] * cexp(-2 * M_PI * I * (double)k / (double)n);

	return (1 - cpow(base[dimension], (double)n)) / (1 - ratio);
}

/* Writes a function to an array with this order of its dimensions. */
static void
fill(const struct cube *c, number *array, factor *f, const unsigned order[3])
{
	for (size_t i = 0; i < c->own.count[ROWS]; i++)
		for (size_t j = 0; j < c->own.count[COLUMNS]; j++) {
			number ab = f(c->n, order[0], c->own.first[ROWS] + i) *
				    f(c->n, order[1], c->own.first[COLUMNS] + j);

			for (size_t k = 0; k < c->n; k++)
				*array++ = ab * f(c->n, order[2], k);
		}
}

/* Compares the data with a function, relative to its largest value. */
static int
check(const struct cube *c, factor *f, const unsigned order[3])
{
	double most[2] = {0}; /* error, value */
	int rc;

	fill(c, c->packed, f, order);
	for (size_t i = 0; i < numbers(c, &c->own); i++) {
		most[0] = fmax(most[0], cabs(c->array[c->at][i] - c->packed[i]));
		most[1] = fmax(most[1], cabs(c->packed[i]));
	}
	rc = weir_group_allreduce(c->m.g, most, most, 2, WEIR_T_DOUBLE, WEIR_ACC_MAX, -1);
	return rc ? rc : most[0] <= 1e-10 * most[1] ? 0 : MEMBERS_WRONG;
}

/* ---- the program ---- */

static int
prepare(struct cube *c)
{
	size_t columns = 1, bytes;
	void *memory;
	int rc;

	for (size_t i = 1; c->m.pencils && i * i <= c->m.size; i++)
		if (c->m.size % i == 0)
			columns = i;
	c->grid[ROWS] = c->m.size / columns;
	c->grid[COLUMNS] = columns;
	c->own = part(c, ROWS, 0);
	bytes = numbers(c, &c->own) * sizeof(number);
	c->packed = malloc(bytes);
	c->arrived = malloc(bytes);
	c->ranks = calloc(c->m.size, sizeof(*c->ranks));
	c->out = calloc(c->m.size, sizeof(*c->out));
	c->in = calloc(c->m.size, sizeof(*c->in));
	c->root = calloc(c->n, sizeof(number));
	if (!c->packed || !c->arrived || !c->ranks || !c->out || !c->in || !c->root)
		return -ENOMEM;
	for (size_t k = 0; k < c->n / 2; k++)
		c->root[k] = cexp(-2 * M_PI * I * (double)k / (double)c->n);
	rc = members_window(&c->m, 2 * bytes, sizeof(number), &memory, &c->win);
	if (rc)
		return rc;
	c->array[0] = memory;
	c->array[1] = c->array[0] + numbers(c, &c->own);
	return c->m.by_messages ? members_connect(&c->m) : 0;
}

static int
compute(struct cube *c, size_t steps)
{
	char what[32];
	double begin;
	int rc = prepare(c);

	if (!rc) {
		fill(c, c->array[c->at], power, xyz);
		rc = weir_group_barrier(c->m.g, -1);
	}
	begin = seconds();
	for (size_t s = 0; !rc && s < steps; s++) {
		rc = transform(c);
		if (!rc)
			rc = transform_back(c);
	}
	if (rc)
		return rc;
	snprintf(what, sizeof(what), "%s by %s", c->m.pencils ? "pencils" : "slabs",
		 c->m.by_messages ? "messages" : "puts");
	members_report(&c->m, what, seconds() - begin, steps);
	rc = check(c, power, xyz);
	if (!rc)
		rc = transform(c);
	if (!rc)
		rc = check(c, series, yzx);
	return rc ? rc : weir_window_free(c->win, -1);
}

int
main(int argc, char **argv)
{
	static struct cube c = {.m.program = "window_fft"};
	size_t arguments[2];
	int rc;

	if (!members_arguments(&c.m, argc, argv,
			       "[--apart] [--by messages] [--pencils] NAME SIZE N STEPS", arguments,
			       2))
		return 2;
	c.n = arguments[0];
	if (c.n & (c.n - 1) || c.n < c.m.size) {
		fprintf(stderr, "window_fft: N is a power of two, and at least SIZE\n");
		return 2;
	}
	rc = members_join(&c.m);
	if (!rc)
		rc = compute(&c, arguments[1]);
	return members_leave(&c.m, rc);
}
