/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Halos through windows: window_stencil [--apart] NAME SIZE N STEPS. SIZE programs, on any nodes,
 * join the group NAME and divide a grid of N rows and columns. Each step sets a cell to the mean of
 * its nine neighbours, plus 1; rows at the border of two programs go to the other one by fences, by
 * post and start, by notices, and without the window by messages. Then a pipeline: a row can be
 * computed as far as the program to the left has sent its last cell. Both have closed forms, which
 * each program checks.
 */
#include "members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum way { BY_FENCE, BY_POST, BY_NOTICE, BY_MESSAGE, WAYS };
static const char *const way_name[] = {"halo by fence", "halo by post and start", "halo by notices",
				       "halo by messages"};

struct part {
	struct members m;
	struct weir_window *win;
	uint32_t near[2], nears; /* ranks of the neighbours */
	size_t n, first, rows;	 /* of the grid: its size; own rows */
	double *grid[2];	 /* of the steps in turn: own rows, and one above and below */
};

/* A cell after some steps: the mean of a linear function is its value in the middle. */
static double
value(size_t i, size_t j, size_t step)
{
	return (double)(2 * i + 3 * j + step);
}

static void
step(const struct part *p, size_t s)
{
	const double *from = p->grid[s % 2];
	double *to = p->grid[(s + 1) % 2];

	for (size_t i = 1; i <= p->rows; i++) {
		size_t row = p->first + i - 1;
		const double *above = from + (i - 1) * p->n, *here = above + p->n,
			     *below = here + p->n;

		for (size_t j = 0; j < p->n; j++)
			if (!row || row == p->n - 1 || !j || j == p->n - 1)
				to[i * p->n + j] = value(row, j, s + 1);
			else
				to[i * p->n + j] = (above[j - 1] + above[j] + above[j + 1] +
						    here[j - 1] + here[j] + here[j + 1] +
						    below[j - 1] + below[j] + below[j + 1]) /
						       9 +
						   1;
	}
}

/* Puts the first and the last row next to the rows of the neighbours. */
static int
put_rows(const struct part *p, size_t s, enum way way)
{
	int rc = 0;

	for (uint32_t k = 0; k < p->nears && !rc; k++) {
		bool up = p->near[k] < p->m.rank;
		size_t there = part_size(p->n, p->m.size, p->near[k]);
		struct weir_transfer t = {.length = p->n * sizeof(double), .tag = (uint32_t)s};

		t.buf = p->grid[s % 2] + (up ? 1 : p->rows) * p->n;
		/* a program's grids have as many rows as it has, and two more */
		t.offset = s % 2 * (there + 2) * p->n + (up ? there + 1 : 0) * p->n;
		t.notify = way == BY_NOTICE ? WEIR_WITH_NOTICE : 0;
		rc = weir_window_put_with(p->win, p->near[k], &t);
	}
	return rc;
}

/* The same by messages. The lists have the order that members_exchange() wants. */
static int
send_rows(struct part *p, size_t s)
{
	struct piece out[2], in[2];
	double *grid = p->grid[s % 2];

	for (uint32_t k = 0; k < p->nears; k++) {
		bool up = p->near[k] < p->m.rank;

		out[p->nears - 1 - k] = (struct piece){p->near[k], grid + (up ? 1 : p->rows) * p->n,
						       p->n * sizeof(double)};
		in[k] = (struct piece){p->near[k], grid + (up ? 0 : p->rows + 1) * p->n,
				       p->n * sizeof(double)};
	}
	return members_exchange(&p->m, out, p->nears, in, p->nears);
}

static int
exchange(struct part *p, size_t s, enum way way)
{
	struct weir_watch watch;
	int rc;

	if (way == BY_MESSAGE)
		return send_rows(p, s);
	if (way == BY_FENCE) {
		rc = put_rows(p, s, way);
		return rc ? rc : weir_window_fence(p->win, 0, -1);
	}
	if (way == BY_POST) {
		rc = weir_window_post(p->win, p->near, p->nears, 0);
		if (!rc)
			rc = weir_window_start(p->win, p->near, p->nears, 0, -1);
		if (!rc)
			rc = put_rows(p, s, way);
		if (!rc)
			rc = weir_window_complete(p->win, -1);
		return rc ? rc : weir_window_wait(p->win, -1);
	}
	rc = put_rows(p, s, way);
	for (uint32_t k = 0; k < p->nears && !rc; k++) {
		weir_watch_init(&watch, p->win, p->near[k], (uint32_t)s, 1);
		rc = weir_watch_wait(&watch, -1);
	}
	return rc;
}

/* 0, 1: wrong values, or -errno. */
static int
halo(struct part *p, size_t steps, enum way way)
{
	double begin;
	int rc;

	for (unsigned b = 0; b < 2; b++)
		memset(p->grid[b], 0, (p->rows + 2) * p->n * sizeof(double));
	for (size_t i = 0; i < p->rows + 2; i++)
		for (size_t j = 0; j < p->n; j++)
			p->grid[0][i * p->n + j] = value(p->first + i, j, 0) - 2; /* row i - 1 */
	rc = weir_group_barrier(p->m.g, -1);
	if (!rc)
		rc = way == BY_FENCE	? weir_window_fence(p->win, WEIR_NO_PRECEDE, -1)
		     : way == BY_NOTICE ? weir_window_lock_all(p->win, WEIR_NO_CHECK, -1)
					: 0;
	begin = seconds();
	for (size_t s = 0; s < steps && !rc; s++) {
		step(p, s);
		rc = exchange(p, s + 1, way);
	}
	if (!rc && way == BY_FENCE)
		rc = weir_window_fence(p->win, WEIR_NO_SUCCEED, -1);
	if (!rc && way == BY_NOTICE)
		rc = weir_window_unlock_all(p->win, -1);
	if (rc)
		return rc;
	members_report(&p->m, way_name[way], seconds() - begin, steps);
	for (size_t i = 1; i <= p->rows; i++)
		for (size_t j = 0; j < p->n; j++)
			if (p->grid[steps % 2][i * p->n + j] != value(p->first + i - 1, j, steps))
				return MEMBERS_WRONG;
	return 0;
}

/* ---- the pipeline: cell (i, j) = (i - 1, j) + (i, j - 1) - (i - 1, j - 1) = i + j ---- */

static int
pipeline(struct part *p)
{
	size_t left = p->first, columns = p->rows, n = p->n;
	double *edge = p->grid[0]; /* cells of the column to the left, as they come */
	double *row = calloc(columns + 1, sizeof(double));
	double *before = calloc(columns + 1, sizeof(double));
	struct weir_watch watch;
	int rc = row && before ? weir_window_lock_all(p->win, WEIR_NO_CHECK, -1) : -ENOMEM;

	for (size_t j = 0; !rc && j <= columns; j++)
		before[j] = (double)(left + j) - 1;
	for (size_t i = 1; i < n && !rc; i++) {
		row[0] = (double)i - 1; /* the cell in front of the first column */
		if (p->m.rank) {
			weir_watch_init(&watch, p->win, p->m.rank - 1, (uint32_t)i, 1);
			rc = weir_watch_wait(&watch, -1);
			row[0] = edge[i];
		}
		for (size_t j = 1; j <= columns; j++)
			row[j] = before[j] + row[j - 1] - before[j - 1];
		if (!rc && p->m.rank + 1 < p->m.size) {
			struct weir_transfer t = {.offset = i,
						  .buf = &row[columns],
						  .length = sizeof(double),
						  .notify = WEIR_WITH_NOTICE,
						  .tag = (uint32_t)i};

			rc = weir_window_put_with(p->win, p->m.rank + 1, &t);
		}
		memcpy(before, row, (columns + 1) * sizeof(double));
	}
	if (!rc)
		rc = weir_window_unlock_all(p->win, -1);
	for (size_t j = 1; !rc && j <= columns; j++)
		rc = before[j] == (double)(n - 1 + left + j - 1) ? 0 : MEMBERS_WRONG;
	free(before);
	free(row);
	return rc;
}

static int
compute(struct part *p, size_t steps)
{
	uint32_t rank = p->m.rank, size = p->m.size;
	size_t cells;
	void *base;
	int rc;

	p->first = part_first(p->n, size, rank);
	p->rows = part_size(p->n, size, rank);
	if (rank)
		p->near[p->nears++] = rank - 1;
	if (rank + 1 < size)
		p->near[p->nears++] = rank + 1;
	cells = (p->rows + 2) * p->n;
	rc = members_window(&p->m, 2 * cells * sizeof(double), sizeof(double), &base, &p->win);
	if (!rc)
		rc = members_connect(&p->m);
	if (rc)
		return rc;
	p->grid[0] = base;
	p->grid[1] = p->grid[0] + cells;
	for (enum way way = 0; way < WAYS && !rc; way++)
		rc = halo(p, steps, way);
	if (!rc)
		rc = weir_group_barrier(p->m.g, -1);
	if (!rc)
		rc = pipeline(p);
	if (!rc && !rank)
		printf("pipeline: right\n");
	return rc ? rc : weir_window_free(p->win, -1);
}

int
main(int argc, char **argv)
{
	struct part p = {.m.program = "window_stencil"};
	size_t arguments[2];
	int rc;

	if (!members_arguments(&p.m, argc, argv, "[--apart] NAME SIZE N STEPS", arguments, 2))
		return 2;
	p.n = arguments[0];
	if (p.n < 2 * (size_t)p.m.size) {
		fprintf(stderr, "window_stencil: give at least two rows to each of %u programs\n",
			p.m.size);
		return 2;
	}
	rc = members_join(&p.m);
	if (!rc)
		rc = compute(&p, arguments[1]);
	return members_leave(&p.m, rc);
}
