/* SPDX-License-Identifier: BSD-3-Clause */
/* Matches: between settings, and with programs that speak HTP well or badly. */
#include "hex/match.h"
#include "hex/player.h"
#include "worlds/hex_world.h"

#include <math.h>
#include <signal.h>
#include <time.h>

static char error[512];

static struct hex_options
options(unsigned size, unsigned games)
{
	struct hex_options o;

	assert_int_equal(option_defaults(&hex_option_table, &o, error, sizeof(error)), 0);
	o.size = size;
	o.games = games;
	o.rollouts = 64;
	o.nodes = 1u << 14;
	return o;
}

static int
run(const struct hex_options *o, const char *a, const char *b, struct match_result *r)
{
	error[0] = '\0';
	return match_run(o, (const char *const[]){a, b}, r, error, sizeof(error));
}

TEST(test_settings)
{
	struct hex_options o = options(4, 40);
	struct match_result r, again, other;

	assert_int_equal(run(&o, "rollouts=300", "rollouts=2", &r), 0);
	assert_int_equal(r.games, 40);
	assert_true(r.wins > 26);
	assert_true(r.low < r.wins / 40.0 && r.wins / 40.0 < r.high + 1e-9);
	assert_true(r.low > 0.5 && r.high < 1 + 1e-9);
	/* the other way round, and the same again */
	assert_int_equal(run(&o, "rollouts=2", "rollouts=300", &other), 0);
	assert_true(other.wins < 14);
	assert_int_equal(run(&o, "rollouts=300", "rollouts=2", &again), 0);
	assert_int_equal(again.wins, r.wins);
}

/* Each opening is played by both: the one who begins has no advantage in sum. */
TEST(test_colours)
{
	struct hex_options o = options(3, 60);
	struct match_result r;

	/* on 3 x 3, both play without mistakes: each wins one game of each opening */
	assert_int_equal(run(&o, "rollouts=2000", "rollouts=2000", &r), 0);
	assert_int_equal(r.wins, 30);
}

/* Eight threads play as well as one with as many rollouts: within three sigmas. WEIR_HEX_GAMES:
 * that many games, on 7 x 7. */
TEST(test_strength)
{
	const char *text = getenv("WEIR_HEX_GAMES");
	unsigned games = text ? (unsigned)strtoul(text, NULL, 10) : 24;
	struct hex_options o = options(text ? 7 : 5, games);
	struct match_result r;

	o.rollouts = text ? 4096 : 1500;
	o.nodes = 1u << 18;
	assert_int_equal(run(&o, "virtual=2x4", "", &r), 0);
	print_message("eight threads win %u of %u\n", r.wins, games);
	assert_true(r.wins >= games * (0.5 - 1.5 / sqrt(games)));
}

TEST(test_virtual)
{
	struct hex_options o = options(4, 10);
	struct match_result r;

	assert_int_equal(run(&o, "virtual=2x2,rollouts=300", "rollouts=2,playout=flood", &r), 0);
	assert_true(r.wins >= 6);
}

TEST(test_refuses)
{
	static const char *const bad[] = {"rollouts",	 "rollouts=",	"rollouts=x", "none=1",
					  "json",	 "rollouts=1,", "=",	      "picture=x",
					  "virtual=0x1", "size=5",	"games=3"};
	struct hex_options o = options(4, 2);
	struct match_result r;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int rc = run(&o, bad[i], "", &r);

		if (!strcmp(bad[i], "rollouts=1,")) /* nothing behind the comma */
			assert_int_equal(rc, 0);
		else if (rc != -EINVAL || (!strstr(error, "expected") && !strstr(error, "; use")))
			fail_msg("'%s': %d, %s", bad[i], rc, error);
	}
}

/* Figures of another process, whose best move is on a stone. */
static bool
lie(void *arg)
{
	struct player *p = arg;
	struct mcts_message m = {STATS, .move = 0, .other = player_front(p)->number, .wins = 1};

	mcts_receive(p->search->processes[0]->threads, 0, &m, sizeof(m));
	return true;
}

TEST(test_illegal_move)
{
	struct hex_options o = options(4, 1);
	struct player *p;
	struct board b;

	assert_int_equal(player_open(&p, &o, error, sizeof(error)), 0);
	board_start(&b, 4);
	board_put(&b, 0, 1);
	assert_int_equal(player_think(p, &b, 1u << 20, UINT64_MAX, lie, p), -EPROTO);
	player_close(p);
}

TEST(test_programs)
{
	struct hex_options o = options(4, 2);
	struct match_result r;

	/* it resigns at once, and draws a picture before */
	assert_int_equal(run(&o,
			     "htp:while read -r c rest; do case $c in genmove) printf "
			     "'gogui-gfx:\\nuct\\n\\n= resign\\n\\n';; *) printf '= \\n\\n';; "
			     "esac; done",
			     "", &r),
			 0);
	assert_int_equal(r.wins, 0);
	assert_int_equal(r.games, 2);
	/* it is not there, ends, refuses, or makes moves that are none */
	assert_int_equal(run(&o, "htp:exit 0", "", &r), -EPROTO);
	assert_non_null(strstr(error, "has ended (exit status 0) without an answer to 'boardsize"));
	assert_int_equal(run(&o, "htp:read -r c; kill -9 $$", "", &r), -EPROTO);
	assert_non_null(strstr(error, "has ended (signal 9)"));
	assert_int_equal(run(&o, "htp:read -r c; printf '? no\\n\\n'; read -r c", "", &r), -EPROTO);
	assert_non_null(strstr(error, "answers '? no'"));
	assert_int_equal(run(&o, "", "htp:while read -r c; do printf '= z9\\n\\n'; done", &r),
			 -EPROTO);
	assert_non_null(strstr(error, "makes the move 'z9'"));
}

static bool
is_zombie(int pid)
{
	char name[64], state = 0;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	f = fopen(name, "r");
	if (f && fscanf(f, "%*d %*s %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return state == 'Z';
}

/* A program that goes on behind the end of its input is killed, with what it has started. */
TEST(test_program_without_end)
{
	struct hex_options o = options(4, 1);
	char name[] = "/tmp/hex_match_XXXXXX", command[256];
	struct match_result r;
	int fd = mkstemp(name), pids[2];
	FILE *f;

	assert_true(fd >= 0);
	snprintf(command, sizeof(command),
		 "htp:sleep 3600 & echo $$ $! >%s; while read -r c rest; do case $c in genmove) "
		 "printf '= resign\n\n';; *) printf '= \n\n';; esac; done; wait",
		 name);
	assert_int_equal(run(&o, command, "", &r), 0);
	f = fdopen(fd, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d %d", &pids[0], &pids[1]), 2);
	fclose(f);
	unlink(name);
	assert_int_equal(kill(pids[0], 0), -1);
	/* the other one's parent reaps it, sooner or later */
	while (!kill(pids[1], 0) && !is_zombie(pids[1]))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
