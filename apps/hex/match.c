/* SPDX-License-Identifier: BSD-3-Clause */
#include "match.h"

#include "base/fail.h"
#include "ipc/text.h"
#include "player.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "htp:"
#define END_MS 1000u /* that a program has to end, once its input has ended */

extern char **environ;

/* A player: a search of ours, or a program. */
struct side {
	const char *name;
	struct hex_options o;
	struct player *player;
	pid_t pid;     /* 0: no program */
	FILE *program; /* its input and output */
	char answer[64];
};

/* ---- a program: one command after the other ---- */

static int
program_start(struct side *s, char *error, size_t size)
{
	char *arguments[] = {"sh", "-c", (char *)s->name + strlen(PROGRAM), NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int ends[2], rc = ENOMEM;

	/* no pipes: their writer gets a signal if the program has ended */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return fail(error, size, -errno, "cannot run '%s': %s", s->name, strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	s->program = fdopen(ends[0], "r");
	if (s->program)
		rc = posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
	else
		close(ends[0]);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	/* a group of its own, to be killed as a whole */
	if (!rc)
		rc = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
	if (!rc)
		rc = posix_spawn(&s->pid, "/bin/sh", &actions, &attributes, arguments, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	return rc ? fail(error, size, -rc, "cannot run '%s': %s", s->name, strerror(rc)) : 0;
}

/* Ends its input, waits for its end, and kills it if there is none. Returns its wait status. */
static int
program_end(struct side *s)
{
	int status = 0;

	if (s->program)
		fclose(s->program);
	for (unsigned ms = 0; s->pid && !waitpid(s->pid, &status, WNOHANG); ms++) {
		if (ms == END_MS)
			kill(-s->pid, SIGKILL);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	s->program = NULL;
	s->pid = 0;
	return status;
}

/* Sends a command; its answer is in s->answer. 0, or -EPROTO and error. */
static int __attribute__((format(printf, 4, 5)))
program_ask(struct side *s, char *error, size_t size, const char *format, ...)
{
	char line[4096], command[64];
	bool begins = true, answered = false;
	va_list args;
	int n, status;

	va_start(args, format);
	n = vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	/* a program that has ended gives no answer */
	(void)!send(fileno(s->program), command, (size_t)n, MSG_NOSIGNAL);
	(void)!send(fileno(s->program), "\n", 1, MSG_NOSIGNAL);
	/* other blocks than the answer are pictures; all end with an empty line */
	while (fgets(line, sizeof(line), s->program)) {
		char *text = line + 1 + strspn(line + 1, " ");

		line[strcspn(line, "\r\n")] = '\0';
		if (begins && line[0] == '?') {
			weir_text_copy(s->answer, line, sizeof(s->answer));
			return fail(error, size, -EPROTO, "'%s' answers '%s' to '%s'", s->name,
				    s->answer, command);
		}
		if (begins && line[0] == '=') {
			answered = true;
			text[strcspn(text, " ")] = '\0';
			weir_text_copy(s->answer, text, sizeof(s->answer));
		}
		begins = !line[0];
		if (begins && answered)
			return 0;
	}
	status = program_end(s);
	return fail(error, size, -EPROTO,
		    "'%s' has ended (%s %d) without an answer to '%s'; try it in a shell", s->name,
		    WIFSIGNALED(status) ? "signal" : "exit status",
		    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), command);
}

/* ---- either ---- */

static int
side_open(struct side *s, unsigned index, char *error, size_t size)
{
	if (!strncmp(s->name, PROGRAM, strlen(PROGRAM)))
		return program_start(s, error, size);
	if (hex_settings(&s->o, s->name, error, size))
		return -EINVAL;
	s->o.seed += index; /* two equal players have different luck */
	return player_open(&s->player, &s->o, error, size);
}

static void
side_close(struct side *s)
{
	if (s->player)
		player_close(s->player);
	program_end(s);
}

/* A new game, in which `b` has been played. */
static int
side_begin(struct side *s, const struct board *b, char *error, size_t size)
{
	unsigned n = b->size;
	char text[4];
	int rc;

	if (!s->pid)
		return 0;
	rc = program_ask(s, error, size, "boardsize %u %u", n, n);
	if (!rc)
		rc = program_ask(s, error, size, "clear_board");
	for (unsigned i = 0; !rc && i < b->count; i++)
		rc = program_ask(s, error, size, "play %s %s", i % 2 ? "white" : "black",
				 board_name(board_mirrored(b->history[i], n), n, text));
	return rc;
}

/* Finds a move; -1: the side resigns. 0 or -errno. */
static int
side_move(struct side *s, const struct board *b, int *move, char *error, size_t size)
{
	int rc;

	if (!s->pid) {
		rc = player_think(s->player, b, hex_rollouts(&s->o), hex_ns(&s->o), NULL, NULL);
		*move = player_front(s->player)->best;
		return rc ? fail(error, size, rc, "%s", player_reason(s->player, rc)) : 0;
	}
	rc = program_ask(s, error, size, "genmove %s", board_turn(b) > 0 ? "black" : "white");
	if (rc)
		return rc;
	*move = board_cell(s->answer, b->size);
	if (*move >= 0)
		*move = (int)board_mirrored((unsigned)*move, b->size);
	if ((*move < 0 && strcmp(s->answer, "resign")) ||
	    (*move >= 0 && board_stone(b, (unsigned)*move)))
		return fail(error, size, -EPROTO, "'%s' makes the move '%s'", s->name, s->answer);
	return 0;
}

/* The opponent's move. */
static int
side_told(struct side *s, const struct board *b, char *error, size_t size)
{
	unsigned last = b->history[b->count - 1];
	char text[4];

	return s->pid ? program_ask(s, error, size, "play %s %s",
				    board_turn(b) > 0 ? "white" : "black",
				    board_name(board_mirrored(last, b->size), b->size, text))
		      : 0;
}

/* Sides play on from b, the first one as +1. *winner: its index. 0 or -errno. */
static int
play(struct side *sides[2], struct board *b, unsigned *winner, char *error, size_t size)
{
	int rc = side_begin(sides[0], b, error, size), move = 0;

	if (!rc)
		rc = side_begin(sides[1], b, error, size);
	while (!rc && !b->winner && move >= 0) {
		unsigned mover = board_turn(b) < 0;

		rc = side_move(sides[mover], b, &move, error, size);
		if (!rc && move < 0)
			*winner = 1 - mover;
		else if (!rc && !board_put(b, (unsigned)move, board_turn(b)) && !b->winner)
			rc = side_told(sides[1 - mover], b, error, size);
	}
	if (b->winner)
		*winner = b->winner < 0;
	return rc;
}

/* Wilson's interval. */
static void
estimate(struct match_result *r)
{
	double z = 1.96, n = r->games, share = r->wins / n, middle = share + z * z / (2 * n);
	double half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n));

	r->low = (middle - half) / (1 + z * z / n);
	r->high = (middle + half) / (1 + z * z / n);
}

int
match_run(const struct hex_options *o, const char *const players[2], struct match_result *r,
	  char *error, size_t size)
{
	struct side sides[2] = {{players[0], *o}, {players[1], *o}};
	struct dice dice = dice_of(o->seed);
	struct board opening;
	int rc = 0;

	*r = (struct match_result){.games = 0};
	for (unsigned i = 0; !rc && i < 2; i++)
		rc = side_open(&sides[i], i, error, size);
	for (unsigned i = 0; !rc && i < 2; i++)
		if (sides[i].o.size != o->size || sides[i].o.games != o->games)
			rc =
			    fail(error, size, -EINVAL,
				 "players have no size or games of their own; use --size, --games");
	while (!rc && r->games < o->games) {
		unsigned swapped = r->games % 2, winner = 0;
		struct board b;

		if (!swapped) {
			board_start(&opening, o->size);
			while (opening.count < 2)
				board_put(&opening, dice_below(&dice, o->size * o->size),
					  board_turn(&opening));
		}
		b = opening;
		rc = play((struct side *[]){&sides[swapped], &sides[1 - swapped]}, &b, &winner,
			  error, size);
		if (rc)
			break;
		r->games++;
		r->wins += winner == swapped;
		if (o->progress)
			fprintf(stderr, "game %u: %s wins, %u of %u\n", r->games,
				winner == swapped ? "A" : "B", r->wins, r->games);
	}
	side_close(&sides[0]);
	side_close(&sides[1]);
	if (!rc)
		estimate(r);
	return rc;
}
