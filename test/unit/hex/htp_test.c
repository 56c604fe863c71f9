/* SPDX-License-Identifier: BSD-3-Clause */
/* The Hex Text Protocol, as HexGui speaks it and as nobody should. */
#include "hex/htp.h"
#include "worlds/hex_world.h"

#include <ctype.h>
#include <pthread.h>
#include <time.h>

struct writer {
	int fd;
	const char *text;
	size_t length;
	unsigned delay_ms; /* before the rest behind `first` bytes */
	size_t first;
};

static void
write_all(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t n = write(fd, text, length);

		if (n <= 0)
			return;
		text += n;
		length -= (size_t)n;
	}
}

static void *
run_writer(void *arg)
{
	struct writer *w = arg;

	write_all(w->fd, w->text, w->first);
	if (w->delay_ms)
		nanosleep(&(struct timespec){0, w->delay_ms * 1000000L}, NULL);
	write_all(w->fd, w->text + w->first, w->length - w->first);
	close(w->fd);
	return NULL;
}

static struct hex_options
defaults(void)
{
	struct hex_options o;
	char error[256];

	assert_int_equal(option_defaults(&hex_option_table, &o, error, sizeof(error)), 0);
	o.nodes = 1u << 16;
	o.rollouts = 200;
	return o;
}

/* All that is written. */
static char *
converse_and_draw(const struct hex_options *o, struct writer *w)
{
	char *text = NULL, error[256];
	size_t length;
	FILE *out = open_memstream(&text, &length);
	pthread_t thread;
	int fds[2];

	assert_non_null(out);
	assert_int_equal(pipe(fds), 0);
	w->fd = fds[1];
	assert_int_equal(pthread_create(&thread, NULL, run_writer, w), 0);
	assert_int_equal(htp_run(o, fds[0], out, error, sizeof(error)), 0);
	close(fds[0]);
	pthread_join(thread, NULL);
	fclose(out);
	return text;
}

/* All that is answered. A search that takes long, as on a slow machine, draws meanwhile. */
static char *
converse_by(const struct hex_options *o, struct writer *w)
{
	char *text = converse_and_draw(o, w), *at = text, *end;

	while ((at = strstr(at, "gogui-gfx:\n"))) {
		end = strstr(at, "\n\n");
		assert_non_null(end);
		memmove(at, end + 2, strlen(end + 2) + 1);
	}
	return text;
}

static char *
converse(const struct hex_options *o, const char *text)
{
	struct writer w = {.text = text, .length = strlen(text)};

	return converse_by(o, &w);
}

/* Answers are exactly these. */
static void
expect(const struct hex_options *o, const char *input, const char *answers)
{
	char *text = converse(o, input);

	assert_string_equal(text, answers);
	free(text);
}

/* Takes the next answer; HexGui reads up to an empty line, and wants "= " or "? " before it. */
static char *
next_answer(char **text)
{
	char *begin = *text, *end = strstr(begin, "\n\n");

	assert_non_null(end);
	*end = '\0';
	*text = end + 2;
	assert_true(!strncmp(begin, "= ", 2) || !strncmp(begin, "? ", 2) ||
		    !strncmp(begin, "gogui-gfx:", 10));
	return begin;
}

/* HexGui's commands at its start, in a game, and when one goes back and forth. */
TEST(test_hexgui)
{
	struct hex_options o = defaults();
	char *text = converse(&o, "name\nversion\nhexgui-analyze_commands\nboardsize 6 6\n"
				  "showboard\nplay black a3\nshowboard\ngenmove white\nundo\nundo\n"
				  "play black c3\nplay white d3\nparam_hex\nall_legal_moves\n"
				  "final_score\nquit\n");
	char *at = text, *answer;
	unsigned definitions = 0;

	assert_string_equal(next_answer(&at), "= weir-hex");
	assert_true(strlen(next_answer(&at)) > 2);
	for (answer = next_answer(&at) + 2; answer; answer = strchr(answer, '\n')) {
		answer += *answer == '\n';
		assert_non_null(strchr(strchr(answer, '/') + 1, '/'));
		definitions++;
	}
	assert_true(definitions >= 2);
	assert_string_equal(next_answer(&at), "= ");
	next_answer(&at);
	assert_string_equal(next_answer(&at), "= ");
	assert_non_null(strstr(next_answer(&at), "3 B . . . . . \n"));
	answer = next_answer(&at);
	assert_true(board_cell(answer + 2, 6) >= 0 && strcmp(answer + 2, "a3"));
	for (unsigned i = 0; i < 4; i++)
		assert_string_equal(next_answer(&at), "= ");
	answer = next_answer(&at);
	assert_non_null(strstr(answer, "[string] rollouts 200\n"));
	assert_non_null(strstr(answer, "[bool] swap 0"));
	answer = next_answer(&at);
	assert_int_equal(strncmp(answer, "= a1 b1 c1", 10), 0);
	assert_null(strstr(answer, "c3"));
	assert_non_null(strstr(answer, "a3"));
	assert_string_equal(next_answer(&at), "? the game is not over");
	assert_string_equal(next_answer(&at), "= ");
	assert_string_equal(at, "");
	free(text);
}

/* Black's edges are top and bottom, White's left and right, whatever the search calls them. */
TEST(test_edges)
{
	struct hex_options o = defaults();

	o.size = 4;
	expect(&o,
	       "play black b1\nplay white a1\nplay black b2\nplay white a2\nplay black b3\n"
	       "play white d1\nfinal_score\nplay black b4\nfinal_score\nplay white d4\n"
	       "genmove white\nall_legal_moves\n",
	       "= \n\n= \n\n= \n\n= \n\n= \n\n= \n\n? the game is not over\n\n= \n\n= B+\n\n"
	       "? the game is over; undo a move, or clear the board\n\n"
	       "? the game is over; undo a move, or clear the board\n\n= \n\n");
	expect(
	    &o,
	    "play black a1\nplay white a2\nplay black b1\nplay white b2\nplay black c1\n"
	    "play white c2\nplay black d1\nfinal_score\nplay white d2\nfinal_score\n",
	    "= \n\n= \n\n= \n\n= \n\n= \n\n= \n\n= \n\n? the game is not over\n\n= \n\n= W+\n\n");
	/* a win across this border by a move of the search: there is one cell to join */
	expect(&o,
	       "play black b1\nplay white a1\nplay black b2\nplay white a2\nplay black b3\n"
	       "play white a4\ngenmove black\nfinal_score\nundo\ngenmove black\n",
	       "= \n\n= \n\n= \n\n= \n\n= \n\n= \n\n= b4\n\n= B+\n\n= \n\n= b4\n\n");
	/* and by White, who begins here */
	expect(&o,
	       "play white a2\nplay black a1\nplay white b2\nplay black b1\nplay white c2\n"
	       "play black d1\ngenmove white\nfinal_score\n",
	       "= \n\n= \n\n= \n\n= \n\n= \n\n= \n\n= d2\n\n= W+\n\n");
}

/* Stones may come in any order, as those of a position that was set up. */
TEST(test_set_up)
{
	struct hex_options o = defaults();

	o.size = 4;
	expect(&o,
	       "play black b1\nplay black b2\nplay black b3\nplay white a1\ngenmove black\n"
	       "play white a2\nplay white a4\nreg_genmove black\nplay black c1\n"
	       "reg_genmove black\n",
	       "= \n\n= \n\n= \n\n= \n\n? this colour is not next, by the numbers of stones\n\n"
	       "= \n\n= \n\n= b4\n\n= \n\n? this colour is not next, by the numbers of stones\n\n");
}

TEST(test_swap)
{
	struct hex_options o = defaults();
	char *text, *at;

	o.size = 3;
	o.rollouts = 3000;
	/* the stone stays, and White is to move */
	expect(&o,
	       "play white swap-pieces\nplay black b2\nplay black swap-pieces\n"
	       "play white swap-pieces\nplay white swap-pieces\nplay white b2\nplay white a1\n"
	       "undo\nundo\nplay white c1\nplay white swap-pieces\n",
	       "? only the second move may be a swap\n\n= \n\n"
	       "? only the second move may be a swap\n\n= \n\n"
	       "? only the second move may be a swap\n\n? the cell has a stone\n\n= \n\n"
	       "= \n\n= \n\n= \n\n? only the second move may be a swap\n\n");
	/* it is a good move after a good one, if it is allowed */
	expect(&o, "param_hex swap 1\nplay black b2\ngenmove white\n",
	       "= \n\n= \n\n= swap-pieces\n\n");
	text = converse(&o, "param_hex swap 1\nplay black a1\ngenmove white\n"
			    "clear_board\nparam_hex swap 0\nplay black b2\ngenmove white\n");
	at = text;
	next_answer(&at);
	next_answer(&at);
	assert_true(board_cell(next_answer(&at) + 2, 3) >= 0);
	next_answer(&at);
	next_answer(&at);
	next_answer(&at);
	assert_true(board_cell(next_answer(&at) + 2, 3) >= 0);
	free(text);
}

/* Without a rollout nothing is known: any move is made, but sides are not changed. */
TEST(test_no_rollout)
{
	struct hex_options o = defaults();
	char *text, *at;

	o.size = 3;
	o.seconds = 1e-10;
	at = text = converse(&o, "param_hex swap 1\nplay black b2\ngenmove white\n");
	next_answer(&at);
	next_answer(&at);
	assert_true(board_cell(next_answer(&at) + 2, 3) >= 0);
	free(text);
}

TEST(test_resign)
{
	struct hex_options o = defaults();

	expect(
	    &o,
	    "play black a1\nplay white resign\nfinal_score\nplay black a2\nundo\nplay white a2\n",
	    "= \n\n= \n\n= B+\n\n? the game is over; undo a move, or clear the board\n\n= \n\n"
	    "= \n\n");
}

TEST(test_commands)
{
	struct hex_options o = defaults();
	char *text = converse(&o, "list_commands\n"), *name, *rest = text + 2;
	char line[64], answer[16];

	/* all that are listed are known, and the other way round */
	while ((name = strsep(&rest, "\n")) && *name) {
		snprintf(line, sizeof(line), "known_command %s\n", name);
		expect(&o, line, "= true\n\n");
	}
	free(text);
	expect(&o, "known_command none\nprotocol_version\n", "= false\n\n= 2\n\n");
	/* numbers of commands come back; comments and empty lines are no commands */
	expect(&o, "12 name\n\n  # comment\n\t name # of it\r\n7 none\n",
	       "=12 weir-hex\n\n= weir-hex\n\n?7 unknown command 'none'; see list_commands\n\n");
	/* sizes */
	for (unsigned size = 0; size < 25; size++) {
		snprintf(line, sizeof(line), "boardsize %u %u\n", size, size);
		snprintf(answer, sizeof(answer), "%c ", size >= 2 && size <= 19 ? '=' : '?');
		text = converse(&o, line);
		assert_int_equal(strncmp(text, answer, 2), 0);
		free(text);
	}
	expect(&o, "boardsize 5\nboardsize 5 6\n",
	       "= \n\n? unacceptable size (expected 2 2 ... 19 19)\n\n");
}

TEST(test_params)
{
	struct hex_options o = defaults();

	expect(
	    &o,
	    "param_hex rollouts 77\nparam_hex seconds 0.5\nparam_hex seed 9\nparam_hex swap 1\n"
	    "param_hex\nparam_hex rollouts x\nparam_hex size 5\nparam_hex swap 2\n"
	    "param_hex rollouts\n",
	    "= \n\n= \n\n= \n\n= \n\n= \n[string] rollouts 77\n[string] seconds 0.5\n"
	    "[string] seed 9\n[bool] swap 1\n\n"
	    "? invalid value 'x' for rollouts (expected a number from 0 to 2147483648)\n\n"
	    "? invalid parameter (expected rollouts, seconds or seed and a number, or swap and 0 "
	    "or 1)\n\n"
	    "? invalid parameter (expected rollouts, seconds or seed and a number, or swap and 0 "
	    "or 1)\n\n"
	    "? invalid parameter (expected rollouts, seconds or seed and a number, or swap and 0 "
	    "or 1)\n\n");
}

/* Each line of nonsense gets its reason, and the next one is obeyed. */
TEST(test_nonsense)
{
	static const char *const lines[] = {
	    "play",
	    "play black",
	    "play black a1 b1",
	    "play green a1",
	    "play black z9",
	    "play black a0",
	    "play black a12",
	    "play black 11",
	    "play black \xff\xfe",
	    "genmove",
	    "genmove a1",
	    "undo",
	    "boardsize",
	    "boardsize -1 -1",
	    "boardsize 11 11 11",
	    "BOARDSIZE 5 5",
	    "1 2 3 4 5 6",
	    "99999999999999",
	    "\x01\x02\x03",
	    "= ",
	    "genmove black now",
	    "list_commands x",
	    "play black swap",
	    "known_command",
	};
	struct hex_options o = defaults();

	for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char input[128], *text, *at;

		snprintf(input, sizeof(input), "%s\nname\n", lines[i]);
		at = text = converse(&o, input);
		if (strncmp(at, "?", 1))
			fail_msg("'%s' is obeyed: %s", lines[i], at);
		at = strstr(at, "\n\n") + 2;
		assert_string_equal(at, "= weir-hex\n\n");
		free(text);
	}
}

/* Lines that have a word before their comment, or a zero byte anywhere. */
static unsigned
lines_to_answer(const char *bytes, size_t length)
{
	unsigned lines = 0;
	bool word = false, zero = false, comment = false;

	for (size_t i = 0; i <= length; i++) {
		char c = '\n';

		if (i < length)
			c = bytes[i];
		zero |= !c;
		comment |= c == '#';
		word |= c && !comment && !isspace((unsigned char)c);
		if (c == '\n') {
			lines += word || zero;
			word = zero = comment = false;
		}
	}
	return lines;
}

/* Bytes from a seed: each line has one answer, which ends with the only empty line. */
TEST(test_random_bytes)
{
	struct hex_options o = defaults();
	struct dice d = dice_of(1);

	o.size = 3;
	for (unsigned i = 0; i < 50; i++) {
		char bytes[3000], *text, *at;
		struct writer w = {.text = bytes, .length = sizeof(bytes)};
		unsigned answers = 0;

		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (char)(dice_below(&d, 8) ? dice_next(&d) : '\n');
		text = converse_by(&o, &w);
		for (at = text; *at; answers++) {
			char *end = strstr(at, "\n\n");

			assert_true(*at == '=' || *at == '?');
			assert_true(end && end - at >= 2);
			for (; at < end; at++)
				assert_true(*at == '\n' || isprint((unsigned char)*at));
			at = end + 2;
		}
		assert_int_equal(answers, lines_to_answer(bytes, sizeof(bytes)));
		free(text);
	}
}

/* A line of a megabyte is refused once, and does no harm, whatever it has been cut into. */
TEST(test_long_lines)
{
	struct hex_options o = defaults();
	size_t length = 1 << 20;
	char *line = malloc(length + 64), *text;
	struct writer w = {.text = line};
	const char *refused = "? the line is too long (expected up to 4096 bytes)\n\n";
	char both[256];

	assert_non_null(line);
	snprintf(both, sizeof(both), "%s= weir-hex\n\n", refused);
	for (size_t n = length - 3; n < length; n++) {
		memset(line, 'x', n);
		for (size_t i = 0; i < n; i += 9)
			memcpy(line + i, " name", 5);
		w.length = n + (size_t)snprintf(line + n, 64, "\nname\n");
		text = converse_by(&o, &w);
		assert_string_equal(text, both);
		free(text);
	}
	/* the longest one that is not, and the shortest one that is */
	for (size_t n = HTP_LINE_MAX - 2; n < HTP_LINE_MAX + 3; n++) {
		memset(line, ' ', n);
		memcpy(line, "name", 4);
		w.length = n + (size_t)snprintf(line + n, 64, "\n");
		text = converse_by(&o, &w);
		assert_string_equal(text, n <= HTP_LINE_MAX - 1 ? "= weir-hex\n\n" : refused);
		free(text);
	}
	/* without an end */
	memset(line, 'x', length);
	w.length = length;
	text = converse_by(&o, &w);
	assert_string_equal(text, refused);
	free(text);
	free(line);
}

/* The input ends in the midst of a line, and while a search is going on. */
TEST(test_end_of_input)
{
	struct hex_options o = defaults();
	char *text;

	expect(&o, "", "");
	expect(&o, "name", "= weir-hex\n\n");
	o.size = 4;
	text = converse(&o, "genmove black\ngenmove white");
	assert_int_equal(text[0], '=');
	assert_int_equal(strstr(text, "\n\n")[2], '=');
	free(text);
}

/* A search of hours is ended by a line, which may come before or after it has begun. */
TEST(test_interrupt)
{
	struct hex_options o = defaults();
	const char *lines = "boardsize 4 4\ngenmove black\n";

	o.seconds = 3600;
	o.rollouts = 0;
	for (unsigned delay = 0; delay <= 100; delay += 50) {
		char input[128], *text, *at;
		struct writer w = {.text = input, .delay_ms = delay, .first = strlen(lines)};

		snprintf(input, sizeof(input), "%sname\n# interrupt\nname\n", lines);
		w.length = strlen(input);
		at = text = converse_by(&o, &w);
		next_answer(&at);
		assert_true(board_cell(next_answer(&at) + 2, 4) >= 0);
		/* lines around it are kept */
		assert_string_equal(at, "= weir-hex\n\n= weir-hex\n\n");
		free(text);
	}
}

/* Lines that came before the interrupt are kept, whatever their number, and obeyed. */
TEST(test_interrupt_behind_lines)
{
	static const char *const begin = "boardsize 4 4\ngenmove black\n";
	struct hex_options o = defaults();
	unsigned lines = 40000, names = 0;
	struct writer w = {0};
	char *input, *text, *at;
	FILE *f = open_memstream(&input, &w.length);

	assert_non_null(f);
	fprintf(f, "%s", begin);
	for (unsigned i = 0; i < lines; i++)
		fprintf(f, "name\n");
	fprintf(f, "# interrupt\nversion\n");
	assert_int_equal(fclose(f), 0);
	w.text = input;
	o.seconds = 3600;
	o.rollouts = 0;
	at = text = converse_by(&o, &w);
	next_answer(&at);
	assert_true(board_cell(next_answer(&at) + 2, 4) >= 0);
	for (; !strncmp(at, "= weir-hex\n", 11); names++)
		next_answer(&at);
	assert_int_equal(names, lines);
	next_answer(&at);
	assert_string_equal(at, "");
	free(text);
	free(input);
}

/* An answer repeats a line in letters only, and a zero byte does not end it. */
TEST(test_bytes_that_are_no_text)
{
	static const char zero[] = "name\0 list_commands\nname\n";
	struct hex_options o = defaults();
	struct writer w = {.text = zero, .length = sizeof(zero) - 1};
	char *text = converse_by(&o, &w);

	assert_string_equal(text, "? the line has a zero byte (expected text)\n\n= weir-hex\n\n");
	free(text);
	expect(&o, "\x1b[2Jx\nparam_hex rollouts \x1b[2J\n",
	       "? unknown command '?[2Jx'; see list_commands\n\n"
	       "? invalid value '?[2J' for rollouts (expected a number from 0 to 2147483648)\n\n");
}

/* While it thinks, HexGui draws the best line and the visits. */
TEST(test_drawing)
{
	struct hex_options o = defaults();
	struct writer w = {.text = "genmove white\n", .length = 14};
	char *text, *at, *answer;
	unsigned drawn = 0;

	o.size = 4;
	o.processes = 1; /* in virtual time, as it draws by the clock */
	o.threads = 2;
	o.rollouts = 2000;
	o.simulation_ns = 100000;
	at = text = converse_and_draw(&o, &w);
	while (!strncmp(at, "gogui-gfx:\n", 11)) {
		answer = next_answer(&at) + 11;
		/* the words that HexGui looks for, in its order */
		assert_int_equal(strncmp(answer, "uct\nVAR W ", 10), 0);
		answer = strstr(answer, "\nINFLUENCE ");
		assert_non_null(answer);
		answer = strstr(answer, "\nLABEL ");
		assert_non_null(answer);
		assert_non_null(strstr(answer, "\nTEXT "));
		drawn++;
	}
	assert_true(drawn >= 3);
	assert_true(board_cell(next_answer(&at) + 2, 4) >= 0);
	free(text);
}

TEST(test_picture)
{
	struct hex_options o = defaults();
	char name[] = "/tmp/hex_test_XXXXXX", line[256];
	int fd = mkstemp(name);
	unsigned cells = 0, stones = 0;
	char *text;
	FILE *f;

	assert_true(fd >= 0);
	close(fd);
	o.size = 4;
	o.picture = name;
	text = converse(&o, "play black a1\nplay white b1\ngenmove black\n");
	free(text);
	f = fopen(name, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		cells += !strncmp(line, "<use ", 5);
		stones += !strncmp(line, "<circle ", 8);
	}
	fclose(f);
	unlink(name);
	assert_int_equal(cells, 16);
	assert_int_equal(stones, 2);
}
