/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <errno.h>

/* Prints rows of cells, each shifted by half a cell; text() has `width` columns. */
static void
print_grid(FILE *to, unsigned size, bool mirrored, unsigned width,
	   void (*text)(FILE *to, unsigned cell, const void *arg), const void *arg)
{
	fprintf(to, "%*s", (int)(3 + width / 2), "");
	for (unsigned x = 0; x < size; x++)
		fprintf(to, "%-*c", (int)width, 'a' + (int)x);
	fputc('\n', to);
	for (unsigned y = 0; y < size; y++) {
		fprintf(to, "%*s%2u ", (int)(y * width / 2), "", y + 1);
		for (unsigned x = 0; x < size; x++) {
			unsigned cell = y * size + x;

			text(to, mirrored ? board_mirrored(cell, size) : cell, arg);
		}
		fputc('\n', to);
	}
}

struct stones {
	const struct board *board;
	const char *marks;
};

static void
print_mark(FILE *to, unsigned cell, const void *stones)
{
	const struct stones *s = stones;
	int stone = board_stone(s->board, cell);

	fprintf(to, "%c ", stone ? s->marks[stone < 0] : '.');
}

void
report_board(FILE *to, const struct board *b, bool mirrored, const char *marks)
{
	print_grid(to, b->size, mirrored, 2, print_mark, &(struct stones){b, marks});
}

static void
print_winner(FILE *to, unsigned cell, const void *winners)
{
	fprintf(to, "%c ", ((const int8_t *)winners)[cell] > 0 ? 'X' : 'O');
}

void
report_winners(FILE *to, unsigned size, bool mirrored, const int8_t *winners)
{
	print_grid(to, size, mirrored, 2, print_winner, winners);
}

static uint64_t
rollouts_of(const struct mcts_front *f, unsigned cell)
{
	for (unsigned i = 0; i < f->stat_count; i++)
		if (f->stats[i].move == cell)
			return f->stats[i].rollouts;
	return 0;
}

struct effort {
	const struct board *board;
	const struct mcts_front *front;
	uint64_t all; /* rollouts */
};

static void
print_percent(FILE *to, unsigned cell, const void *effort)
{
	const struct effort *e = effort;

	if (board_stone(e->board, cell) || !e->all)
		fprintf(to, "  - ");
	else
		fprintf(to, "%3.0f ", 100.0 * (double)rollouts_of(e->front, cell) / (double)e->all);
}

void
report_effort(FILE *to, const struct board *b, bool mirrored, const struct mcts_front *f)
{
	struct effort e = {b, f};

	for (unsigned i = 0; i < f->stat_count; i++)
		e.all += f->stats[i].rollouts;
	print_grid(to, b->size, mirrored, 4, print_percent, &e);
}

double
report_share(const struct mcts_front *f)
{
	for (unsigned i = 0; i < f->stat_count; i++)
		if (f->stats[i].move == f->best)
			return f->stats[i].wins / 65535.0;
	return -1;
}

const char *
report_share_text(const struct mcts_front *f, char text[REPORT_SHARE_MAX])
{
	double share = report_share(f);

	if (share < 0)
		return "-";
	snprintf(text, REPORT_SHARE_MAX, "%.3f", share);
	return text;
}

/* ---- a picture ---- */

#define RADIUS 20.0
#define WIDTH 34.64 /* of a hexagon that stands on a corner */

static void
draw_edge(FILE *to, double x, double y, double to_x, double to_y, const char *colour)
{
	fprintf(to,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
		"stroke-width=\"8\"/>\n",
		x, y, to_x, to_y, colour);
}

static void
draw_cell(FILE *to, double x, double y, int stone, double share, bool best)
{
	int fade = 255 - (int)(share * 215);

	fprintf(to,
		"<use href=\"#cell\" x=\"%.1f\" y=\"%.1f\" fill=\"rgb(255,%d,%d)\""
		" stroke-width=\"%d\"/>\n",
		x, y, (255 + fade) / 2, fade, best ? 4 : 1);
	if (stone)
		fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"13\" fill=\"%s\"/>\n", x, y,
			stone > 0 ? "crimson" : "royalblue");
}

int
report_picture(const char *file, const struct board *b, bool mirrored, const struct mcts_front *f)
{
	double size = b->size, width = WIDTH * 1.5 * size + 60, height = RADIUS * 1.5 * size + 60;
	double low = RADIUS * 1.5 * (size - 1), right = WIDTH * (size - 1), shift = right / 2;
	const char *first = mirrored ? "crimson" : "royalblue";
	const char *second = mirrored ? "royalblue" : "crimson";
	FILE *to = fopen(file, "w");
	uint64_t most = 1;
	int rc;

	if (!to)
		return -errno;
	for (unsigned i = 0; i < f->stat_count; i++)
		if (f->stats[i].rollouts > most)
			most = f->stats[i].rollouts;
	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-40 -40 %.0f %.0f\" "
		"width=\"%.0f\" height=\"%.0f\">\n"
		"<defs><polygon id=\"cell\" points=\"0,-20 17.3,-10 17.3,10 0,20 -17.3,10 "
		"-17.3,-10\" stroke=\"gray\"/></defs>\n",
		width, height, width, height);
	draw_edge(to, 0, -24, right, -24, first);
	draw_edge(to, shift, low + 24, shift + right, low + 24, first);
	draw_edge(to, -24, 0, shift - 24, low, second);
	draw_edge(to, right + 24, 0, right + shift + 24, low, second);
	for (unsigned cell = 0; cell < (unsigned)b->size * b->size; cell++) {
		unsigned shown = mirrored ? board_mirrored(cell, b->size) : cell;

		draw_cell(to, WIDTH * (cell % b->size + cell / b->size / 2.0),
			  RADIUS * 1.5 * (cell / b->size), board_stone(b, shown),
			  (double)rollouts_of(f, shown) / (double)most, (int)shown == f->best);
	}
	fprintf(to, "</svg>\n");
	rc = fflush(to) ? -errno : ferror(to) ? -EIO : 0;
	if (fclose(to) && !rc)
		rc = -errno;
	return rc;
}
