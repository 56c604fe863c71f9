/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cholesky factorization by tiles: window_cholesky [--apart] NAME SIZE TILES N. SIZE programs, on
 * any nodes, join the group NAME and factor a symmetric positive definite matrix A = L L^T of TILES
 * x TILES tiles, each of N x N numbers.
 *
 * Tiles belong to the members in a cyclic grid. A member puts each tile of L that is done to those
 * that need it, with a notice that names the tile. Notices start tasks: a tile is updated as soon
 * as the tiles are there that its next update needs. There is no other synchronization.
 *
 * At the end the members get the tiles of L from their owners and check |A - L L^T| / |A|.
 */
#include "members.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct matrix {
	struct members m;
	struct weir_window *win;
	size_t tiles, n;	  /* tiles in each dimension; numbers in each of a tile's */
	size_t rows, columns;	  /* of the grid of members */
	double *tile;		  /* the window: tile (i, j) at i * tiles + j, i >= j, by rows */
	double *fresh;		  /* tiles of L from their owners, for the check */
	bool *there;		  /* by tile: it is one of L */
	size_t *updates;	  /* by own tile: how many were made */
	uint32_t *ready;	  /* stack of tiles of L that may start tasks */
	size_t ready_count, left; /* own tiles to finish */
	bool *needed;		  /* by member */
	struct weir_watch watch;  /* of any tile */
};

/* An element of A: by chance between -1 and 1, but for the diagonal. */
static double
element(const struct matrix *a, size_t i, size_t j)
{
	return i == j ? (double)(a->tiles * a->n)
		      : noise(i > j ? (uint64_t)i << 32 | j : (uint64_t)j << 32 | i);
}

static uint32_t
owner(const struct matrix *a, size_t i, size_t j)
{
	return (uint32_t)(i % a->rows * a->columns + j % a->columns);
}

static double *
tile(const struct matrix *a, size_t i, size_t j)
{
	return a->tile + (i * a->tiles + j) * a->n * a->n;
}

/* ---- numerics: tiles by rows; L has zeros above the diagonal ---- */

/* c -= a b^T */
static void
multiply(size_t n, double *c, const double *a, const double *b)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++) {
			double sum = 0;

			for (size_t k = 0; k < n; k++)
				sum += a[i * n + k] * b[j * n + k];
			c[i * n + j] -= sum;
		}
}

/* x l^T = x: the rows of x by forward substitution */
static void
solve(size_t n, double *x, const double *l)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++) {
			double sum = x[i * n + j];

			for (size_t k = 0; k < j; k++)
				sum -= x[i * n + k] * l[j * n + k];
			x[i * n + j] = sum / l[j * n + j];
		}
}

/* a becomes its factor */
static void
factor(size_t n, double *a)
{
	for (size_t j = 0; j < n; j++) {
		double root;

		for (size_t k = 0; k < j; k++)
			a[j * n + j] -= a[j * n + k] * a[j * n + k];
		root = a[j * n + j] = sqrt(a[j * n + j]);
		for (size_t i = j + 1; i < n; i++) {
			for (size_t k = 0; k < j; k++)
				a[i * n + j] -= a[i * n + k] * a[j * n + k];
			a[i * n + j] /= root;
		}
		for (size_t i = 0; i < j; i++)
			a[i * n + j] = 0;
	}
}

/* ---- tasks ---- */

static void
make_ready(struct matrix *a, uint32_t at)
{
	a->there[at] = true;
	a->ready[a->ready_count++] = at;
}

/* Takes the notices that have come. */
static int
take(struct matrix *a)
{
	int rc;

	while ((rc = weir_watch_test(&a->watch)) == 1) {
		make_ready(a, a->watch.last_tag);
		weir_watch_start(&a->watch);
	}
	return rc;
}

/* Gives a tile of L to those that update a tile of its row, or of the column of that number. */
static int
give(struct matrix *a, size_t i, size_t j)
{
	uint32_t at = (uint32_t)(i * a->tiles + j);
	struct weir_transfer t = {.offset = at,
				  .buf = tile(a, i, j),
				  .length = a->n * a->n * sizeof(double),
				  .notify = WEIR_WITH_NOTICE,
				  .tag = at};
	int rc = 0;

	memset(a->needed, 0, a->m.size * sizeof(*a->needed));
	for (size_t k = j + 1; k <= i; k++)
		a->needed[owner(a, i, k)] = true;
	for (size_t k = i + (i == j); k < a->tiles; k++)
		a->needed[owner(a, k, i)] = true;
	a->needed[a->m.rank] = false;
	for (uint32_t rank = 0; !rc && rank < a->m.size; rank++) {
		if (!a->needed[rank])
			continue;
		/* two that put to each other never wait for room for notices: each takes its own */
		rc = take(a);
		if (!rc)
			rc = weir_window_put_with(a->win, rank, &t);
	}
	a->left--;
	make_ready(a, at);
	return rc;
}

/* Updates an own tile as far as the tiles of L allow; the last update makes it one of L. */
static int
advance(struct matrix *a, size_t i, size_t j)
{
	size_t *k = &a->updates[i * a->tiles + j];
	const bool *row_i = &a->there[i * a->tiles], *row_j = &a->there[j * a->tiles];

	if (row_i[j])
		return 0;
	for (; *k < j; ++*k) {
		if (!row_i[*k] || !row_j[*k])
			return 0;
		multiply(a->n, tile(a, i, j), tile(a, i, *k), tile(a, j, *k));
	}
	if (i == j)
		factor(a->n, tile(a, i, i));
	else if (row_j[j])
		solve(a->n, tile(a, i, j), tile(a, j, j));
	else
		return 0;
	return give(a, i, j);
}

/* Tasks that a tile of L may start: own tiles of its row, and of the column of that number. */
static int
start_tasks(struct matrix *a, uint32_t at)
{
	size_t i = at / a->tiles, j = at % a->tiles;
	int rc = 0;

	for (size_t k = j + 1; !rc && k <= i; k++)
		if (owner(a, i, k) == a->m.rank)
			rc = advance(a, i, k);
	for (size_t k = i; !rc && k < a->tiles; k++)
		if (owner(a, k, i) == a->m.rank)
			rc = advance(a, k, i);
	return rc;
}

static int
factorize(struct matrix *a)
{
	int rc = weir_window_lock_all(a->win, WEIR_NO_CHECK, -1);

	weir_watch_init(&a->watch, a->win, WEIR_RANK_ANY, WEIR_TAG_ANY, 1);
	if (!rc && a->m.rank == owner(a, 0, 0))
		rc = advance(a, 0, 0);
	while (!rc && a->left) {
		if (!a->ready_count)
			rc = weir_watch_wait(&a->watch, -1);
		if (!rc)
			rc = take(a);
		if (!rc && a->ready_count)
			rc = start_tasks(a, a->ready[--a->ready_count]);
	}
	return rc ? rc : weir_window_unlock_all(a->win, -1);
}

/* ---- the check ---- */

/* Gets all tiles of L from their owners. */
static int
collect(struct matrix *a)
{
	size_t bytes = a->n * a->n * sizeof(double);
	int rc = weir_window_fence(a->win, WEIR_NO_PRECEDE, -1);

	for (size_t i = 0; i < a->tiles; i++)
		for (size_t j = 0; !rc && j <= i; j++) {
			size_t at = i * a->tiles + j;

			rc = weir_window_get(a->win, owner(a, i, j), at,
					     a->fresh + at * a->n * a->n, bytes, 0);
		}
	return rc ? rc : weir_window_fence(a->win, WEIR_NO_SUCCEED, -1);
}

static int
check(struct matrix *a)
{
	size_t n = a->n, area = n * n;
	double *c = malloc(area * sizeof(double));
	double sums[2] = {0}; /* squares of A - L L^T and of A, in the lower triangle's tiles */
	int rc = c ? collect(a) : -ENOMEM;

	for (size_t i = 0; !rc && i < a->tiles; i++)
		for (size_t j = 0; j <= i; j++) {
			if (owner(a, i, j) != a->m.rank)
				continue;
			for (size_t k = 0; k < area; k++) {
				c[k] = element(a, i * n + k / n, j * n + k % n);
				sums[1] += c[k] * c[k];
			}
			for (size_t k = 0; k <= j; k++)
				multiply(n, c, a->fresh + (i * a->tiles + k) * area,
					 a->fresh + (j * a->tiles + k) * area);
			for (size_t k = 0; k < area; k++)
				sums[0] += c[k] * c[k];
		}
	free(c);
	if (!rc)
		rc = weir_group_allreduce(a->m.g, sums, sums, 2, WEIR_T_DOUBLE, WEIR_ACC_SUM, -1);
	if (rc)
		return rc;
	if (!a->m.rank)
		printf("|A - L L^T| / |A| = %.1e\n", sqrt(sums[0] / sums[1]));
	return sums[0] <= sums[1] * 1e-28 ? 0 : MEMBERS_WRONG;
}

/* ---- the program ---- */

static int
prepare(struct matrix *a)
{
	size_t count = a->tiles * a->tiles, bytes = count * a->n * a->n * sizeof(double);
	void *memory;
	int rc;

	for (size_t i = 1; i * i <= a->m.size; i++)
		if (a->m.size % i == 0)
			a->rows = i;
	a->columns = a->m.size / a->rows;
	a->fresh = calloc(1, bytes);
	a->there = calloc(count, sizeof(*a->there));
	a->updates = calloc(count, sizeof(*a->updates));
	a->ready = calloc(count, sizeof(*a->ready));
	a->needed = calloc(a->m.size, sizeof(*a->needed));
	if (!a->fresh || !a->there || !a->updates || !a->ready || !a->needed)
		return -ENOMEM;
	rc = members_window(&a->m, bytes, (uint32_t)(a->n * a->n * sizeof(double)), &memory,
			    &a->win);
	if (rc)
		return rc;
	a->tile = memory;
	for (size_t i = 0; i < a->tiles; i++)
		for (size_t j = 0; j <= i; j++) {
			if (owner(a, i, j) != a->m.rank)
				continue;
			a->left++;
			for (size_t k = 0; k < a->n * a->n; k++)
				tile(a, i, j)[k] =
				    element(a, i * a->n + k / a->n, j * a->n + k % a->n);
		}
	return weir_group_barrier(a->m.g, -1);
}

static int
compute(struct matrix *a)
{
	double begin;
	int rc = prepare(a);

	begin = seconds();
	if (!rc)
		rc = factorize(a);
	if (!rc)
		rc = weir_group_barrier(a->m.g, -1);
	if (rc)
		return rc;
	members_report(&a->m, "cholesky by notices", seconds() - begin, a->tiles);
	rc = check(a);
	return rc ? rc : weir_window_free(a->win, -1);
}

int
main(int argc, char **argv)
{
	static struct matrix a = {.m.program = "window_cholesky"};
	size_t arguments[2];
	int rc;

	if (!members_arguments(&a.m, argc, argv, "[--apart] NAME SIZE TILES N", arguments, 2))
		return 2;
	a.tiles = arguments[0];
	a.n = arguments[1];
	if (a.tiles > 1000 || a.n > 1000) {
		fprintf(stderr, "window_cholesky: at most 1000 tiles, of at most 1000 numbers\n");
		return 2;
	}
	rc = members_join(&a.m);
	if (!rc)
		rc = compute(&a);
	return members_leave(&a.m, rc);
}
