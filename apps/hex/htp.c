/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A line is a command: "[ID] NAME [ARGUMENTS]". The answer is "= TEXT" or "? REASON", and an empty
 * line. Black begins, and joins top and bottom; columns have letters, rows have numbers.
 */
#include "htp.h"

#include "base/fail.h"
#include "base/options.h"
#include "base/vec.h"
#include "player.h"
#include "report.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define WORDS_MAX 4u
#define INPUT_MAX (1u << 20) /* bytes of lines that are kept during a search */

enum { STONE, SWAP, RESIGN };

struct move {
	uint16_t cell; /* as shown: row * size + column */
	int8_t player; /* +1 black, -1 white */
	uint8_t kind;
};

struct htp {
	struct hex_options o;
	struct player *player;
	FILE *out;
	int fd;
	/* lines from `head` to `used`; no line before `seen` is an interrupt */
	char *input;
	size_t head, used, seen, room;
	bool skips, ended; /* the rest of a long line; no more input */
	bool quit, swap;
	int error; /* no search is possible any more: -errno and reason */
	char reason[256];
	struct move moves[BOARD_CELLS + 2];
	unsigned count;
	struct board board; /* black is +1 */
};

/* ---- lines ---- */

/* Reads what there is, or waits for it. */
static void
fill(struct htp *h, bool waits)
{
	struct pollfd p = {.fd = h->fd, .events = POLLIN};
	ssize_t n;

	if (h->head) {
		memmove(h->input, h->input + h->head, h->used - h->head);
		h->used -= h->head;
		h->seen -= h->head < h->seen ? h->head : h->seen;
		h->head = 0;
	}
	if (h->used == h->room && h->room < INPUT_MAX)
		(void)!VEC_RESERVE(h->input, h->room, 2 * h->room); /* else no more is read */
	if (h->ended || h->used == h->room || poll(&p, 1, waits ? -1 : 0) <= 0)
		return;
	n = read(h->fd, h->input + h->used, h->room - h->used);
	if (n > 0)
		h->used += (size_t)n;
	else if (n == 0 || (errno != EINTR && errno != EAGAIN))
		h->ended = true;
}

enum line { LINE, LONG, BINARY, END };

/* Takes a line. LONG: it does not fit, and has been left out; BINARY: it is no text. */
static enum line
take_line(struct htp *h, char *line)
{
	for (;;) {
		size_t left = h->used - h->head, most = left < HTP_LINE_MAX ? left : HTP_LINE_MAX;
		char *begin = h->input + h->head, *end = memchr(begin, '\n', most);
		size_t n = end ? (size_t)(end - begin) : most;
		bool skipped = h->skips;

		if (!end && !h->ended && left < HTP_LINE_MAX) {
			fill(h, true);
			continue;
		}
		if (!end && !n)
			return END;
		memcpy(line, begin, n);
		line[n] = '\0';
		h->head += n + (end != NULL);
		h->skips = !end && (!h->ended || n < left);
		if (!skipped)
			return h->skips ? LONG : memchr(line, '\0', n) ? BINARY : LINE;
	}
}

/* Takes a line "# interrupt", if there is one. */
static bool
take_interrupt(struct htp *h)
{
	fill(h, false); /* moves lines to the beginning */
	for (;;) {
		char *begin = h->input + h->seen, *end = memchr(begin, '\n', h->used - h->seen);
		size_t n = end ? (size_t)(end - begin) + 1 : 0;

		if (!end)
			return false;
		if (n >= 12 && !memcmp(begin, "# interrupt", 11) &&
		    isspace((unsigned char)begin[11])) {
			memmove(begin, begin + n, h->used - h->seen - n);
			h->used -= n;
			return true;
		}
		h->seen += n;
	}
}

/* ---- positions ---- */

/* Cells are those of the board if +1 is white; if he is black, rows are its columns. */
static unsigned
turned(const struct htp *h, unsigned cell, int first)
{
	return first > 0 ? board_mirrored(cell, h->o.size) : cell;
}

static void
set_board(struct htp *h)
{
	board_start(&h->board, h->o.size);
	for (unsigned i = 0; i < h->count; i++)
		if (h->moves[i].kind == STONE)
			board_put(&h->board, turned(h, h->moves[i].cell, 1), h->moves[i].player);
}

/* The colour that has won, by stones or because the other one has resigned; 0. */
static int
winner(const struct htp *h)
{
	const struct move *last = h->count ? &h->moves[h->count - 1] : NULL;

	return last && last->kind == RESIGN ? -last->player : h->board.winner;
}

/*
 * The position for a search, in which the players have moved in turns and `mover` is next. Stones
 * may have been set in any order. Returns the colour of its +1; 0: there is no such order.
 */
static int
position(const struct htp *h, int mover, struct board *b)
{
	unsigned stones[2] = {0}, next[2] = {0}, own = mover < 0; /* of black, of white */
	int first;

	for (unsigned i = 0; i < h->count; i++)
		if (h->moves[i].kind == STONE)
			stones[h->moves[i].player < 0]++;
	if (stones[own] != stones[!own] && stones[own] + 1 != stones[!own])
		return 0;
	first = stones[own] == stones[!own] ? mover : -mover;
	board_start(b, h->o.size);
	for (unsigned n = stones[0] + stones[1]; b->count < n;) {
		int player = board_turn(b) * first;
		unsigned *i = &next[player < 0];

		while (h->moves[*i].kind != STONE || h->moves[*i].player != player)
			++*i;
		board_put(b, turned(h, h->moves[(*i)++].cell, first), board_turn(b));
	}
	return first;
}

/* ---- commands: the answer, or the reason; false: it is a reason ---- */

static int
colour_of(const char *word)
{
	if (!strcasecmp(word, "black") || !strcasecmp(word, "b"))
		return 1;
	return !strcasecmp(word, "white") || !strcasecmp(word, "w") ? -1 : 0;
}

static bool
refuse(FILE *answer, const char *reason)
{
	fputs(reason, answer);
	return false;
}

/* No player answers any more. */
static bool
give_up(struct htp *h, int error, const char *reason, FILE *answer)
{
	h->error = error;
	snprintf(h->reason, sizeof(h->reason), "%s", reason);
	h->quit = true;
	return refuse(answer, reason);
}

/* Another player, for what cannot be changed in one. */
static bool
new_player(struct htp *h, const struct hex_options *o, FILE *answer)
{
	struct player *fresh;
	char error[256];
	int rc;

	if (h->o.crew) {
		player_close(h->player); /* a crew has one at a time */
		h->player = NULL;
	}
	rc = player_open(&fresh, o, error, sizeof(error));
	if (rc)
		return h->player ? refuse(answer, error) : give_up(h, rc, error, answer);
	if (h->player)
		player_close(h->player);
	h->player = fresh;
	h->o = *o;
	return true;
}

static bool
boardsize(struct htp *h, char **words, unsigned n, FILE *answer)
{
	struct hex_options o = h->o;
	uint64_t width, height;

	if (option_number(words[0], false, BOARD_LEAST, BOARD_MOST, &width) ||
	    (n > 1 && option_number(words[1], false, BOARD_LEAST, BOARD_MOST, &height)) ||
	    (n > 1 && width != height))
		return refuse(answer, "unacceptable size (expected 2 2 ... 19 19)");
	o.size = (uint32_t)width;
	if (o.size != h->o.size && !new_player(h, &o, answer))
		return false;
	h->count = 0;
	set_board(h);
	return true;
}

static bool
clear_board(struct htp *h, char **words, unsigned n, FILE *answer)
{
	h->count = 0;
	set_board(h);
	return true;
}

/* The second move may be a change of sides: the stone stays, and White, who is the other player
 * now, is to move. */
static bool
may_swap(const struct htp *h, int player)
{
	return h->count == 1 && h->moves[0].kind == STONE && h->moves[0].player == -player;
}

static bool
play(struct htp *h, char **words, unsigned n, FILE *answer)
{
	struct move m = {.player = (int8_t)colour_of(words[0])};
	int cell = board_cell(words[1], h->o.size);

	if (!m.player)
		return refuse(answer, "invalid colour (expected black or white)");
	if (winner(h))
		return refuse(answer, "the game is over; undo a move, or clear the board");
	if (!strcasecmp(words[1], "swap-pieces") || !strcasecmp(words[1], "swap"))
		m.kind = SWAP;
	else if (!strcasecmp(words[1], "resign"))
		m.kind = RESIGN;
	else if (cell < 0)
		return refuse(answer, "invalid cell (expected a letter and a number, as c4)");
	else if (board_put(&h->board, turned(h, (unsigned)cell, 1), m.player))
		return refuse(answer, "the cell has a stone");
	m.cell = (uint16_t)cell;
	if (m.kind == SWAP && !may_swap(h, m.player))
		return refuse(answer, "only the second move may be a swap");
	h->moves[h->count++] = m;
	return true;
}

/* The figures so far, as HexGui draws them during a search. */
static void
draw(struct htp *h, struct mcts_front *f, int first, int mover)
{
	char text[4];

	f->fresh = false;
	if (!f->line_count)
		return;
	fprintf(h->out, "gogui-gfx:\nuct\nVAR");
	for (unsigned i = 0; i < f->line_count; i++)
		fprintf(h->out, " %c %s", (i % 2 ? -mover : mover) > 0 ? 'B' : 'W',
			board_name(turned(h, f->line[i], first), h->o.size, text));
	fprintf(h->out, "\nINFLUENCE");
	for (unsigned i = 0; i < f->stat_count; i++)
		fprintf(h->out, " %s %.2f",
			board_name(turned(h, f->stats[i].move, first), h->o.size, text),
			f->stats[i].wins / 65535.0);
	fprintf(h->out, "\nLABEL");
	for (unsigned i = 0; i < f->stat_count; i++)
		fprintf(h->out, " %s %u",
			board_name(turned(h, f->stats[i].move, first), h->o.size, text),
			f->stats[i].rollouts);
	fprintf(h->out, "\nTEXT %llu simulations, %.1f %% wins\n\n", (unsigned long long)f->visits,
		100 * report_share(f));
	fflush(h->out);
}

struct watched {
	struct htp *h;
	int first, mover;
};

static bool
watch(void *arg)
{
	struct watched *w = arg;
	struct mcts_front *f = player_front(w->h->player);

	if (f->fresh && !f->done)
		draw(w->h, f, w->first, w->mover);
	return !take_interrupt(w->h);
}

/* A move for a colour; `plays`: it is made, too. */
static bool
think(struct htp *h, const char *colour, bool plays, FILE *answer)
{
	struct move m = {.player = (int8_t)colour_of(colour)};
	struct mcts_front *f = player_front(h->player);
	struct watched w = {h, .mover = m.player};
	struct board b;
	char text[4];
	int rc, picture;

	if (!m.player)
		return refuse(answer, "invalid colour (expected black or white)");
	if (winner(h))
		return refuse(answer, "the game is over; undo a move, or clear the board");
	w.first = position(h, m.player, &b);
	if (!w.first)
		return refuse(answer, "this colour is not next, by the numbers of stones");
	rc = player_think(h->player, &b, hex_rollouts(&h->o), hex_ns(&h->o), watch, &w);
	f = player_front(h->player);
	if (rc && h->o.crew)
		return give_up(h, rc, player_reason(h->player, rc), answer);
	if (rc)
		return refuse(answer, player_reason(h->player, rc));
	picture = h->o.picture ? report_picture(h->o.picture, &b, w.first > 0, f) : 0;
	if (picture) /* the game goes on without it */
		fprintf(stderr, "weir-hex: cannot write '%s': %s; choose another --picture\n",
			h->o.picture, strerror(-picture));
	m.cell = (uint16_t)turned(h, (unsigned)f->best, w.first);
	if (h->swap && may_swap(h, m.player) && report_share(f) >= 0 && report_share(f) < 0.5)
		m.kind = SWAP;
	fputs(m.kind == SWAP ? "swap-pieces" : board_name(m.cell, h->o.size, text), answer);
	if (!plays)
		return true;
	h->moves[h->count++] = m;
	set_board(h);
	return true;
}

static bool
genmove(struct htp *h, char **words, unsigned n, FILE *answer)
{
	return think(h, words[0], true, answer);
}

static bool
reg_genmove(struct htp *h, char **words, unsigned n, FILE *answer)
{
	return think(h, words[0], false, answer);
}

static bool
undo(struct htp *h, char **words, unsigned n, FILE *answer)
{
	if (!h->count)
		return refuse(answer, "there is no move to undo");
	h->count--;
	set_board(h);
	return true;
}

static bool
showboard(struct htp *h, char **words, unsigned n, FILE *answer)
{
	fputc('\n', answer);
	report_board(answer, &h->board, true, "BW");
	return true;
}

static bool
final_score(struct htp *h, char **words, unsigned n, FILE *answer)
{
	if (!winner(h))
		return refuse(answer, "the game is not over");
	fputs(winner(h) > 0 ? "B+" : "W+", answer);
	return true;
}

static bool
all_legal_moves(struct htp *h, char **words, unsigned n, FILE *answer)
{
	const char *gap = "";
	char text[4];

	for (unsigned cell = 0; !winner(h) && cell < h->o.size * h->o.size; cell++)
		if (!board_stone(&h->board, turned(h, cell, 1))) {
			fprintf(answer, "%s%s", gap, board_name(cell, h->o.size, text));
			gap = " ";
		}
	return true;
}

static bool
param_hex(struct htp *h, char **words, unsigned n, FILE *answer)
{
	const struct option_spec *spec =
	    n ? option_find(&hex_option_table, words[0], strlen(words[0])) : NULL;
	struct hex_options o = h->o;
	char error[256];

	if (n == 0) {
		fprintf(answer,
			"\n[string] rollouts %llu\n[string] seconds %g\n[string] seed %llu\n"
			"[bool] swap %d",
			(unsigned long long)o.rollouts, o.seconds, (unsigned long long)o.seed,
			h->swap);
		return true;
	}
	if (n == 2 && !strcmp(words[0], "swap") && words[1][0] / 2 == '0' / 2 && !words[1][1]) {
		h->swap = words[1][0] == '1';
		return true;
	}
	if (n != 2 || !spec || !strstr(" rollouts seconds seed ", words[0]))
		return refuse(answer, "invalid parameter (expected rollouts, seconds or seed and a "
				      "number, or swap and 0 or 1)");
	if (option_store(spec, &o, spec->name, words[1], error, sizeof(error)))
		return refuse(answer, error);
	if (o.seed != h->o.seed)
		return new_player(h, &o, answer);
	h->o = o;
	return true;
}

static bool
quit(struct htp *h, char **words, unsigned n, FILE *answer)
{
	h->quit = true;
	return true;
}

static bool list_commands(struct htp *h, char **words, unsigned n, FILE *answer);
static bool known_command(struct htp *h, char **words, unsigned n, FILE *answer);

static const struct command {
	const char *name;
	bool (*run)(struct htp *h, char **words, unsigned n, FILE *answer);
	uint8_t least, most; /* words behind the name */
	const char *text;    /* the answer, if there is nothing to do */
} commands[] = {
    {"all_legal_moves", all_legal_moves, 0, 1},
    {"boardsize", boardsize, 1, 2},
    {"clear_board", clear_board},
    {"final_score", final_score},
    {"genmove", genmove, 1, 1},
    {"hexgui-analyze_commands", .text = "param/Search Parameters/param_hex\n"
					"string/Final Score/final_score\n"
					"plist/Legal Moves/all_legal_moves"},
    {"known_command", known_command, 1, 1},
    {"list_commands", list_commands},
    {"name", .text = "weir-hex"},
    {"param_hex", param_hex, 0, 2},
    {"play", play, 2, 2},
    {"protocol_version", .text = "2"},
    {"quit", quit},
    {"reg_genmove", reg_genmove, 1, 1},
    {"showboard", showboard},
    {"undo", undo},
    {"version", .text = WEIR_VERSION},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *
find(const char *text)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(commands[i].name, text))
			return &commands[i];
	return NULL;
}

static bool
list_commands(struct htp *h, char **words, unsigned n, FILE *answer)
{
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(answer, "%s%s", i ? "\n" : "", commands[i].name);
	return true;
}

static bool
known_command(struct htp *h, char **words, unsigned n, FILE *answer)
{
	fputs(find(words[0]) ? "true" : "false", answer);
	return true;
}

/* Splits a line at blanks, up to its comment. Returns the number of its words. */
static unsigned
split(char *line, char **words)
{
	unsigned n = 0;

	line[strcspn(line, "#")] = '\0';
	for (char *at = line; *at; at++)
		if (isspace((unsigned char)*at))
			*at = '\0';
		else if ((at == line || !at[-1]) && n++ < WORDS_MAX)
			words[n - 1] = at;
	return n;
}

static bool
obey(struct htp *h, char **words, unsigned n, FILE *answer)
{
	const struct command *c = find(words[0]);

	if (!c) {
		fprintf(answer, "unknown command '%.40s'; see list_commands", words[0]);
		return false;
	}
	if (n - 1 < c->least || n - 1 > c->most)
		return refuse(answer, "wrong number of arguments");
	if (c->run)
		return c->run(h, words + 1, n - 1, answer);
	fputs(c->text, answer);
	return true;
}

static void
answer_line(struct htp *h, enum line kind, char *line)
{
	char *words[WORDS_MAX + 1], *id = "", *text = NULL;
	unsigned n = kind == LINE ? split(line, words) : 0;
	size_t length;
	FILE *answer;
	bool good = false;

	if (kind == LINE && !n)
		return;
	if (n && strspn(words[0], "0123456789") == strlen(words[0])) {
		id = words[0];
		memmove(words, words + 1, sizeof(words) - sizeof(words[0]));
		n--;
	}
	answer = open_memstream(&text, &length);
	if (answer && kind == LONG)
		good = refuse(answer, "the line is too long (expected up to 4096 bytes)");
	else if (answer && kind == BINARY)
		good = refuse(answer, "the line has a zero byte (expected text)");
	else if (answer && !n)
		good = refuse(answer, "a command is missing");
	else if (answer)
		good = obey(h, words, n, answer);
	if (answer)
		fclose(answer);
	/* an empty line would end the answer */
	while (text && length && text[length - 1] == '\n')
		text[--length] = '\0';
	/* words of the line may be quoted */
	for (size_t i = 0; text && i < length; i++)
		if (text[i] != '\n' && !isprint((unsigned char)text[i]))
			text[i] = '?';
	fprintf(h->out, "%c%s %s\n\n", good ? '=' : '?', id, text ? text : "out of memory");
	fflush(h->out);
	free(text);
}

int
htp_run(const struct hex_options *o, int in, FILE *out, char *error, size_t size)
{
	struct htp *h = calloc(1, sizeof(*h));
	char line[HTP_LINE_MAX + 1];
	enum line kind;
	int rc;

	if (!h)
		return fail(error, size, -ENOMEM, "out of memory");
	h->o = *o;
	h->out = out;
	h->fd = in;
	h->room = HTP_LINE_MAX;
	h->input = malloc(h->room);
	rc = h->input ? player_open(&h->player, o, error, size)
		      : fail(error, size, -ENOMEM, "out of memory");
	if (!rc) {
		set_board(h);
		while (!h->quit && (kind = take_line(h, line)) != END)
			answer_line(h, kind, line);
		if (h->player)
			player_close(h->player);
		if (h->error)
			rc = fail(error, size, h->error, "%s", h->reason);
	}
	free(h->input);
	free(h);
	return rc;
}
