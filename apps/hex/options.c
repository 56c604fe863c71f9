/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "base/fail.h"
#include "board.h"

#include <errno.h>
#include <string.h>

#define AT(field) OPTION_FIELD(struct hex_options, field)
#define NS UINT64_C(1000000000)

/* PROCESSESxTHREADS */
static int
take_virtual(void *into, const char *text, char *error, size_t size)
{
	struct hex_options *o = into;
	const char *x = strchr(text, 'x');
	uint64_t processes, threads;
	char first[8];

	(void)error;
	(void)size;
	if (!x || (size_t)(x - text) >= sizeof(first))
		return -EINVAL;
	snprintf(first, sizeof(first), "%.*s", (int)(x - text), text);
	if (option_number(first, false, 1, MCTS_THREADS_MAX, &processes) ||
	    option_number(x + 1, false, 1, MCTS_THREADS_MAX / processes, &threads))
		return -EINVAL;
	o->processes = (uint32_t)processes;
	o->threads = (uint32_t)threads;
	return 0;
}

static const struct option_spec specs[] = {
    {"between-ns", 0, OPTION_UNSIGNED, AT(between_ns), "N", "3000",
     "virtual time of a message between processes, on average", .max = NS},
    {"effort", 0, OPTION_FLAG, AT(effort), NULL, NULL,
     "print the percentage of the rollouts that each cell got"},
    {"games", 'n', OPTION_UNSIGNED, AT(games), "N", "100",
     "games of a match; two in a row have the same opening, with colours swapped", .min = 1,
     .max = 1000000},
    {"help", 'h', OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"instance", 0, OPTION_TEXT, AT(instance), "NAME", "default",
     "name of the data plane by which threads call each other", .env = "WEIR_INSTANCE"},
    {"json", 0, OPTION_FLAG, AT(json), NULL, NULL, "print results as JSON"},
    {"message-ns", 0, OPTION_UNSIGNED, AT(message_ns), "N", "60",
     "virtual time to send a message, and to receive it", .max = NS},
    {"mode", 0, OPTION_WORD, AT(mode), NULL, "auto",
     "when calls leave: packed while the data plane is behind, one by one, in full messages, or "
     "packed while there is no room",
     .words = "auto|eager|full|overflow"},
    {"nodes", 0, OPTION_UNSIGNED, AT(nodes), "N", "4194304",
     "nodes of the tree per thread, after which it grows no more", .min = 1, .max = 1u << 28},
    {"picture", 0, OPTION_TEXT, AT(picture), "FILE", NULL,
     "write the search effort of each phase to FILE, an SVG picture", .min = 1},
    {"place", 0, OPTION_WORD, AT(local), NULL, "random",
     "thread that a new node belongs to: any one, by the position, or the one that adds it",
     .words = "random|local"},
    {"playout", 0, OPTION_WORD, AT(flood), NULL, "fast",
     "random ends of games, several at once or cell by cell", .words = "fast|flood"},
    {"progress", 0, OPTION_FLAG, AT(progress), NULL, NULL,
     "write a line per quarter of a second to stderr"},
    {"remote", 0, OPTION_WORD, AT(remote_always), NULL, "needed",
     "send messages between processes, or also between threads of one", .words = "needed|always"},
    {"rollouts", 0, OPTION_UNSIGNED, AT(rollouts), "N", "0",
     "rollouts per move; 0: 4096 per thread, or no limit with --seconds", .max = 1u << 31},
    {"seconds", 0, OPTION_REAL, AT(seconds), "S", "0", "time per move; 0: no limit", .least = 0,
     .most = 86400},
    {"seed", 0, OPTION_UNSIGNED, AT(seed), "N", "1", "of all random numbers", .max = UINT64_MAX},
    {"selection-ns", 0, OPTION_UNSIGNED, AT(selection_ns), "N", "600",
     "virtual time of a selection on one node", .min = 1, .max = NS}, /* 0: it could stand still */
    {"simulation-ns", 0, OPTION_UNSIGNED, AT(simulation_ns), "N", "130",
     "virtual time of a simulation; a rollout has 16", .max = NS},
    {"size", 's', OPTION_UNSIGNED, AT(size), "N", "11", "rows and columns of the board",
     .min = BOARD_LEAST, .max = BOARD_MOST},
    {"threads", 0, OPTION_UNSIGNED, AT(real_threads), "N", NULL,
     "search by N real threads of this process, and of all others that weir-run has started",
     .min = 1, .max = 64},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
    {"virtual", 0, OPTION_CALL, AT(processes), "PxT", NULL,
     "search by P processes of T threads in virtual time, instead of one thread; equal seeds make "
     "equal games",
     .expected = "processes and threads, as 4x8, up to 1024 threads", .take = take_virtual},
    {"within-ns", 0, OPTION_UNSIGNED, AT(within_ns), "N", "200",
     "virtual time of a message between threads of a process, on average", .max = NS},
};

const struct option_table hex_option_table = {
    .specs = specs,
    .count = sizeof(specs) / sizeof(specs[0]),
    .size = sizeof(struct hex_options),
    .operands = 3,
    .head = "Usage: weir-hex [options] [play]\n"
	    "       weir-hex [options] htp\n"
	    "       weir-hex [options] match A B\n"
	    "       weir-hex [options] solve\n"
	    "Plays Hex by Monte-Carlo tree search: a game against itself (play), with people and "
	    "other\n"
	    "programs by the Hex Text Protocol (htp), or many games between two players (match), "
	    "each\n"
	    "of which is a list of settings, as rollouts=1000,playout=flood, or htp:COMMAND, a "
	    "program.\n"
	    "Boards of up to 5 x 5 can be solved.\n"
	    "\n",
    .tail = "\n"
	    "Exit codes: 0 done, 1 failure, 2 usage.\n",
};

uint64_t
hex_rollouts(const struct hex_options *o)
{
	uint64_t threads = o->processes ? o->processes * o->threads : 1;

	if (o->rollouts)
		return o->rollouts;
	return o->seconds > 0 ? UINT64_C(1) << 40 : MCTS_PHASE * threads;
}

uint64_t
hex_ns(const struct hex_options *o)
{
	return o->seconds > 0 ? (uint64_t)(o->seconds * 1e9) : UINT64_MAX;
}

int
hex_settings(struct hex_options *o, const char *text, char *error, size_t size)
{
	while (*text) {
		size_t length = strcspn(text, ","), name = strcspn(text, "=,");
		const struct option_spec *spec = option_find(&hex_option_table, text, name);
		char value[64];

		if (!spec || name == length || !(spec->argument || spec->words) ||
		    spec->type == OPTION_TEXT || length - name > sizeof(value))
			return fail(error, size, -EINVAL,
				    "invalid setting '%.*s' (expected NAME=VALUE of an option)",
				    (int)length, text);
		snprintf(value, sizeof(value), "%.*s", (int)(length - name - 1), text + name + 1);
		if (option_store(spec, o, spec->name, value, error, size))
			return -EINVAL;
		text += length + (text[length] == ',');
	}
	return 0;
}
