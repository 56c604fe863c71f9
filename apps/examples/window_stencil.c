/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Halos through windows: window_stencil NAME SIZE N STEPS. SIZE programs, on any nodes, join the
 * group NAME and divide a grid of N rows and columns. Each step sets a cell to the mean of its nine
 * neighbours, plus 1; rows at the border of two programs go to the other one by fences, by post and
 * start, and by notices. Then a pipeline: a row can be computed as far as the program to the left
 * has sent its last cell. Both have closed forms, which each program checks.
 */
#include <weir/window.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum way { BY_FENCE, BY_POST, BY_NOTICE, WAYS };
static const char *const way_name[] = {"fence", "post and start", "notices"};

struct part {
	struct weir_group *g;
	struct weir_window *win;
	uint32_t rank, size;
	uint32_t near[2], nears; /* ranks of the neighbours */
	size_t n, first, rows;	 /* of the grid: its size; own rows */
	double *grid[2];	 /* of the steps in turn: own rows, and one above and below */
};

static double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* A cell after some steps: the mean of a linear function is its value in the middle. */
static double
value(size_t i, size_t j, size_t step)
{
	return (double)(2 * i + 3 * j + step);
}

static size_t
first_row(const struct part *p, uint32_t rank)
{
	return p->n * rank / p->size;
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
		bool up = p->near[k] < p->rank;
		size_t there = first_row(p, p->near[k] + 1) - first_row(p, p->near[k]);
		struct weir_transfer t = {.length = p->n * sizeof(double), .tag = (uint32_t)s};

		t.buf = p->grid[s % 2] + (up ? 1 : p->rows) * p->n;
		/* a program's grids have as many rows as it has, and two more */
		t.offset = s % 2 * (there + 2) * p->n + (up ? there + 1 : 0) * p->n;
		t.notify = way == BY_NOTICE ? WEIR_WITH_NOTICE : 0;
		rc = weir_window_put_with(p->win, p->near[k], &t);
	}
	return rc;
}

static int
exchange(const struct part *p, size_t s, enum way way)
{
	struct weir_watch watch;
	int rc;

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
	rc = weir_group_barrier(p->g, -1);
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
	if (!p->rank)
		printf("halo by %s: %.1f us a step\n", way_name[way],
		       1e6 * (seconds() - begin) / (double)steps);
	for (size_t i = 1; i <= p->rows; i++)
		for (size_t j = 0; j < p->n; j++)
			if (p->grid[steps % 2][i * p->n + j] != value(p->first + i - 1, j, steps))
				return 1;
	return 0;
}

/* ---- the pipeline: cell (i, j) = (i - 1, j) + (i, j - 1) - (i - 1, j - 1) = i + j ---- */

static int
pipeline(struct part *p)
{
	size_t left = first_row(p, p->rank), columns = p->rows, n = p->n;
	double *edge = p->grid[0]; /* cells of the column to the left, as they come */
	double *row = calloc(columns + 1, sizeof(double));
	double *before = calloc(columns + 1, sizeof(double));
	struct weir_watch watch;
	int rc = row && before ? weir_window_lock_all(p->win, WEIR_NO_CHECK, -1) : -ENOMEM;

	for (size_t j = 0; !rc && j <= columns; j++)
		before[j] = (double)(left + j) - 1;
	for (size_t i = 1; i < n && !rc; i++) {
		row[0] = (double)i - 1; /* the cell in front of the first column */
		if (p->rank) {
			weir_watch_init(&watch, p->win, p->rank - 1, (uint32_t)i, 1);
			rc = weir_watch_wait(&watch, -1);
			row[0] = edge[i];
		}
		for (size_t j = 1; j <= columns; j++)
			row[j] = before[j] + row[j - 1] - before[j - 1];
		if (!rc && p->rank + 1 < p->size) {
			struct weir_transfer t = {.offset = i,
						  .buf = &row[columns],
						  .length = sizeof(double),
						  .notify = WEIR_WITH_NOTICE,
						  .tag = (uint32_t)i};

			rc = weir_window_put_with(p->win, p->rank + 1, &t);
		}
		memcpy(before, row, (columns + 1) * sizeof(double));
	}
	if (!rc)
		rc = weir_window_unlock_all(p->win, -1);
	for (size_t j = 1; !rc && j <= columns; j++)
		rc = before[j] != (double)(n - 1 + left + j - 1);
	free(before);
	free(row);
	return rc;
}

static int
compute(struct part *p, size_t steps)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	size_t cells;
	void *base;
	int rc;

	p->rank = weir_group_rank(p->g);
	p->size = weir_group_size(p->g);
	p->first = first_row(p, p->rank);
	p->rows = first_row(p, p->rank + 1) - p->first;
	if (p->rank)
		p->near[p->nears++] = p->rank - 1;
	if (p->rank + 1 < p->size)
		p->near[p->nears++] = p->rank + 1;
	cells = (p->rows + 2) * p->n;
	o.name = "stencil";
	o.disp_unit = sizeof(double);
	rc = weir_window_allocate(p->g, 2 * cells * sizeof(double), &o, -1, &base, &p->win);
	if (rc)
		return rc;
	p->grid[0] = base;
	p->grid[1] = p->grid[0] + cells;
	for (enum way way = 0; way < WAYS && !rc; way++)
		rc = halo(p, steps, way);
	if (!rc)
		rc = weir_group_barrier(p->g, -1);
	if (!rc)
		rc = pipeline(p);
	if (rc > 0)
		fprintf(stderr, "window_stencil: rank %u: wrong values\n", p->rank);
	else if (!rc && !p->rank)
		printf("pipeline: right\n");
	if (!rc)
		rc = weir_window_free(p->win, -1);
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct part p = {0};
	struct weir *w;
	int rc;

	if (argc != 5) {
		fprintf(stderr, "usage: window_stencil NAME SIZE N STEPS\n");
		return 2;
	}
	o.size = (uint32_t)strtoul(argv[2], NULL, 10);
	p.n = strtoul(argv[3], NULL, 10);
	if (!o.size || p.n < 2 * (size_t)o.size) {
		fprintf(stderr, "window_stencil: give at least two rows to each of %u programs\n",
			o.size);
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (!rc) {
		rc = weir_group_join(w, argv[1], &o, 30000, &p.g);
		if (!rc)
			rc = compute(&p, strtoul(argv[4], NULL, 10));
		if (rc < 0)
			fprintf(stderr, "window_stencil: %s\n", weir_reason());
		weir_group_leave(p.g);
		weir_detach(w);
	} else {
		fprintf(stderr, "window_stencil: %s\n", weir_reason());
	}
	return rc ? 1 : 0;
}
