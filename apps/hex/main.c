/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-hex: plays Hex. */
#include "crew.h"
#include "htp.h"
#include "match.h"
#include "player.h"
#include "report.h"
#include "solve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DONE, FAILED, USAGE }; /* exit codes */

static int
failed(const char *error)
{
	fprintf(stderr, "weir-hex: %s\n", error);
	return FAILED;
}

static int
usage(const char *error)
{
	failed(error);
	return USAGE;
}

/* ---- a game against itself ---- */

struct game_report {
	const struct hex_options *o;
	struct player *player;
	unsigned moves;
	uint64_t begin; /* of this search */
};

static double
per_ms(uint64_t n, uint64_t ns)
{
	return ns ? (double)n / ((double)ns / 1e6) : 0;
}

static bool
show_progress(void *arg)
{
	struct game_report *g = arg;
	struct mcts_front *f = player_front(g->player);
	struct search *s = g->player->search;
	char text[4], share[REPORT_SHARE_MAX];

	if (!g->o->progress || !f->fresh)
		return true;
	f->fresh = false;
	fprintf(stderr, "move %u: %llu simulations, %.0f/ms, best %s, %s\n", g->moves + 1,
		(unsigned long long)f->visits, per_ms(f->visits, s->now(s) - g->begin),
		f->best < 0
		    ? "-"
		    : board_name(board_mirrored((unsigned)f->best, g->o->size), g->o->size, text),
		report_share_text(f, share));
	return true;
}

static void
print_move(const struct hex_options *o, const struct board *b, const struct mcts_front *f,
	   uint64_t ns)
{
	char text[4], share[REPORT_SHARE_MAX];

	printf("\nmove %u: %c %s, %llu simulations, %.0f/ms, share of wins %s\n", b->count,
	       "OX"[b->count % 2],
	       board_name(board_mirrored((unsigned)f->best, o->size), o->size, text),
	       (unsigned long long)f -> visits, per_ms(f->visits, ns), report_share_text(f, share));
	report_board(stdout, b, true, "XO");
}

struct work {
	uint64_t visits, simulations, playouts, messages;
	uint64_t busiest, threads; /* most playouts of a thread */
};

/* Adds what a process has done. */
static void
add_work(struct work *w, const struct mcts *m)
{
	for (uint32_t i = 0; i < m->o.threads; i++) {
		const struct mcts_counts *c = &m->threads[i].counts;

		w->visits += c->rollouts * MCTS_SIMULATIONS;
		w->simulations += c->simulations;
		w->playouts += c->playouts;
		w->messages += c->sent;
		w->busiest = c->playouts > w->busiest ? c->playouts : w->busiest;
		w->threads++;
	}
}

/* Playouts of the busiest thread, relative to the mean. */
static double
imbalance(const struct work *w)
{
	return w->playouts ? (double)(w->busiest * w->threads) / (double)w->playouts : 1;
}

static void
print_totals(const struct search *s, uint64_t ns)
{
	struct work all = {0};

	for (uint32_t i = 0; i < s->count; i++) {
		struct work w = {0};

		add_work(&w, s->processes[i]);
		add_work(&all, s->processes[i]);
		printf("process %u: %llu visits, %llu simulations, %.1f ms, %.1f visits/ms, "
		       "%.1f simulations/ms, %llu messages\n",
		       i, (unsigned long long)w.visits, (unsigned long long)w.simulations,
		       (double)ns / 1e6, per_ms(w.visits, ns), per_ms(w.simulations, ns),
		       (unsigned long long)w.messages);
	}
	printf("all: %.1f simulations/ms; playouts per thread:", per_ms(all.simulations, ns));
	for (uint64_t i = 0; i < all.threads; i++) {
		const struct mcts *m = s->processes[i * s->count / all.threads];
		uint64_t n = m->threads[i % m->o.threads].counts.playouts;

		printf(" %.1f%%", all.playouts ? 100.0 * (double)n / (double)all.playouts : 0);
	}
	printf(", maximum/mean %.3f\n", imbalance(&all));
}

static void
print_json(const struct hex_options *o, const struct board *b, const struct search *s, uint64_t ns)
{
	struct work all = {0};
	char text[4];
	uint64_t rollouts = o->seconds > 0 ? o->rollouts : hex_rollouts(o);

	printf("{\"size\": %u, \"seed\": %llu, \"rollouts\": %llu, \"seconds\": %g, \"winner\": "
	       "\"%c\", \"moves\": [",
	       o->size, (unsigned long long)o->seed, (unsigned long long)rollouts, o->seconds,
	       b->winner > 0 ? 'X' : 'O');
	for (unsigned i = 0; i < b->count; i++)
		printf("%s\"%s\"", i ? ", " : "",
		       board_name(board_mirrored(b->history[i], o->size), o->size, text));
	printf("], \"processes\": [");
	for (uint32_t i = 0; i < s->count; i++) {
		const struct mcts *m = s->processes[i];
		struct work w = {0};

		add_work(&w, m);
		add_work(&all, m);
		printf("%s{\"visits\": %llu, \"simulations\": %llu, \"messages\": %llu, "
		       "\"playouts\": [",
		       i ? ", " : "", (unsigned long long)w.visits,
		       (unsigned long long)w.simulations, (unsigned long long)w.messages);
		for (uint32_t k = 0; k < m->o.threads; k++)
			printf("%s%llu", k ? ", " : "",
			       (unsigned long long)m->threads[k].counts.playouts);
		printf("]}");
	}
	printf(
	    "], \"ms\": %.3f, \"simulations_per_ms\": %.3f, \"playouts_maximum_to_mean\": %.4f}\n",
	    (double)ns / 1e6, per_ms(all.simulations, ns), imbalance(&all));
}

static int
play(const struct hex_options *o)
{
	struct player *player;
	struct game_report g = {o};
	struct mcts_front *f;
	struct board b;
	char error[512];
	uint64_t ns = 0, took;
	int rc = player_open(&player, o, error, sizeof(error));

	if (rc)
		return failed(error);
	g.player = player;
	f = player_front(player);
	board_start(&b, o->size);
	while (!rc && !b.winner) {
		g.moves = b.count;
		g.begin = player->search->now(player->search);
		rc = player_think(player, &b, hex_rollouts(o), hex_ns(o), show_progress, &g);
		took = player->search->now(player->search) - g.begin;
		ns += took;
		if (!rc && o->effort)
			report_effort(stdout, &b, true, f);
		if (rc)
			snprintf(error, sizeof(error), "%s", player_reason(player, rc));
		else if (o->picture && (rc = report_picture(o->picture, &b, true, f)))
			snprintf(error, sizeof(error),
				 "cannot write '%s': %s; choose another --picture", o->picture,
				 strerror(-rc));
		if (!rc)
			rc = board_put(&b, (unsigned)f->best, board_turn(&b));
		if (!rc && !o->json)
			print_move(o, &b, f, took);
	}
	if (!rc && player->search->finish && (rc = player->search->finish(player->search)))
		snprintf(error, sizeof(error), "%s", player_reason(player, rc));
	if (rc) {
		player_close(player);
		return failed(error);
	}
	if (o->json)
		print_json(o, &b, player->search, ns);
	else
		printf("\n%c wins\n", b.winner > 0 ? 'X' : 'O');
	if (!o->json)
		print_totals(player->search, ns);
	player_close(player);
	return DONE;
}

/* ---- the others ---- */

static int
match(const struct hex_options *o, const char *const players[2])
{
	struct match_result r;
	char error[512];
	int rc = match_run(o, players, &r, error, sizeof(error));

	if (rc)
		return rc == -EINVAL ? usage(error) : failed(error);
	printf(
	    o->json
		? "{\"games\": %u, \"wins\": %u, \"rate\": %.4f, \"low\": %.4f, \"high\": %.4f}\n"
		: "%u games, A wins %u: rate %.4f (95 %%: %.4f ... %.4f)\n",
	    r.games, r.wins, (double)r.wins / r.games, r.low, r.high);
	return DONE;
}

/* Winners by first move, as +1's edges are left and right. */
static int
solve(const struct hex_options *o)
{
	struct solved *all = NULL;
	uint64_t wins[2], searched = 0, n;
	int8_t winners[BOARD_CELLS];

	if (o->size > SOLVE_SEARCH_MOST)
		return usage("this board is too large (expected --size 2 ... 5)");
	if (o->size <= SOLVE_ALL_MOST && !(all = solve_all(o->size)))
		return failed("out of memory");
	for (unsigned cell = 0; cell < o->size * o->size; cell++) {
		struct board b;

		board_start(&b, o->size);
		board_put(&b, cell, 1);
		winners[cell] = (int8_t)(all ? solve_winner(all, &b) : solve_search(&b, &n));
		if (!winners[cell])
			return failed("out of memory");
		searched += all ? 0 : n;
	}
	report_winners(stdout, o->size, true, winners);
	if (all) {
		solve_count(all, wins);
		printf("%llu positions: X wins in %llu, O in %llu\n",
		       (unsigned long long)(wins[0] + wins[1]), (unsigned long long)wins[0],
		       (unsigned long long)wins[1]);
	} else {
		printf("%llu positions searched\n", (unsigned long long)searched);
	}
	solve_free(all);
	return DONE;
}

static int
htp(const struct hex_options *o)
{
	char error[512];

	return htp_run(o, STDIN_FILENO, stdout, error, sizeof(error)) ? failed(error) : DONE;
}

/* A command that searches: process 0 of a crew obeys it, the others serve. */
static int
search(struct hex_options *o, int (*command)(const struct hex_options *o))
{
	struct crew crew = {.mode = o->mode};
	char error[512];
	int status;

	if (!o->real_threads)
		return command(o);
	if (crew_open(&crew, o->instance, error, sizeof(error)))
		return failed(error);
	o->crew = &crew;
	o->processes = weir_group_size(crew.g);
	o->threads = o->real_threads;
	if ((uint64_t)o->processes * o->threads > MCTS_THREADS_MAX) {
		snprintf(error, sizeof(error), "%u processes of %u threads; give at most %u in all",
			 o->processes, o->threads, MCTS_THREADS_MAX);
		status = usage(error);
	} else if (weir_group_rank(crew.g)) {
		status = player_serve(o, error, sizeof(error)) ? failed(error) : DONE;
	} else {
		status = command(o);
		if (status == DONE && player_dismiss(o, error, sizeof(error)))
			status = failed(error);
	}
	crew_close(&crew);
	return status;
}

/* Of the words that name what is to be done. */
static int
run(struct hex_options *o, int words, const char *const *word)
{
	const char *command = words ? word[0] : "play";
	char error[256];

	if (o->json && (o->effort || !strcmp(command, "solve"))) {
		snprintf(error, sizeof(error), "'%s' prints no JSON; leave --json out",
			 o->effort ? "--effort" : "solve");
		return usage(error);
	}
	if (o->real_threads && o->processes)
		return usage("--threads are real, --virtual ones are not; leave one of both out");
	if (o->real_threads && (!strcmp(command, "match") || !strcmp(command, "solve"))) {
		snprintf(error, sizeof(error), "'%s' has no --threads; leave them out", command);
		return usage(error);
	}
	if (!strcmp(command, "match"))
		return words == 3 ? match(o, word + 1)
				  : usage("'match' takes two players; see --help");
	if (strcmp(command, "play") && strcmp(command, "htp") && strcmp(command, "solve")) {
		snprintf(error, sizeof(error),
			 "invalid command '%s' (expected play, htp, match A B or solve)", command);
		return usage(error);
	}
	if (words > 1) {
		snprintf(error, sizeof(error), "'%s' takes no arguments; see --help", command);
		return usage(error);
	}
	return command[0] == 's' ? solve(o) : search(o, command[0] == 'p' ? play : htp);
}

int
main(int argc, char **argv)
{
	struct hex_options o;
	int words = argc - 1, status;

	status = option_main(&hex_option_table, &o, "weir-hex", WEIR_VERSION, &words, argv + 1);
	if (status >= 0)
		return status;
	status = run(&o, words, (const char *const *)argv + 1);
	if (status == DONE && (fflush(stdout) || ferror(stdout)))
		return failed("cannot write to stdout; check its target");
	return status;
}
