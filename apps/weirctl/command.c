/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands of weirctl, on its command line and at its prompt. */
#include "weirctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int show(const struct weirctl_options *o, int argc, char **argv);
static int help(const struct weirctl_options *o, int argc, char **argv);

const struct weirctl_command weirctl_commands[] = {
    {"capture", "PORT FILE", "writes the frames of a port as pcapng until Ctrl-C; FILE - is stdout",
     .least = 2, .most = 2, .word = {WORD_PORT, WORD_FILE}, .run = capture},
    {"drain", "NODE|self [off]",
     "refuses new connections to a node, or (self) all new connections and programs,\n"
     "      and waits until existing ones have ended (--timeout S: at most S); off: ends that",
     .least = 1, .most = 2, .word = {WORD_NODE, WORD_SWITCH}, .run = drain},
    {"evict", "vqpn.N|session.ID|export.N",
     "ends a connection, a program's session, or its export of memory; the program gets\n"
     "      --reason TEXT",
     .least = 1, .most = 1, .word = {WORD_VICTIM}, .run = evict},
    {"help", "[COMMAND]", "prints this text, or the help of one command", .most = 1,
     .word = {WORD_COMMAND}, .run = help},
    {"pki", "DIR ca|node ID", "creates certificates for weir-control --tls; see pki --help",
     .word = {WORD_FILE}}, // in main() and command_line(): it has options of its own
    {"set", "KEY VALUE", "changes a setting while the data plane runs; show settings lists them",
     .least = 2, .most = 2, .word = {WORD_KEY, WORD_VALUE}, .run = set},
    {"show", "KIND",
     "prints a table, with --json an array of objects; KIND: status, version, config,\n"
     "      memory, nodes, links, engines, sessions, users, connections, exports, qps, ports,\n"
     "      xstats, counters, settings or services",
     .least = 1, .most = 3, .word = {WORD_ROWS}, .run = show},
    {"top", "",
     "refreshes engines, programs and connections with their rates; q quits,\n"
     "      space refreshes now",
     .run = top},
    {"wait", "up|node:ID|connections:K",
     "waits until the data plane answers and knows its node, the node is up, or at\n"
     "      least K ends of connections are open (0: until none is left)",
     .least = 1, .most = 1, .word = {WORD_CONDITION}, .run = wait_for},
    {0},
};

const struct weirctl_command *
command_find(const char *name)
{
	for (const struct weirctl_command *c = weirctl_commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

// Words that users of DPDK's testpmd type, and what to type instead.
static const struct {
	const char *words, *instead;
} foreign[] = {
    {"clear",
     "counters only grow, since others read them too; top shows rates, show ports twice the "
     "difference"},
    {"port start", "ports start with their data plane: systemctl start weir-dataplane@INSTANCE"},
    {"port stop", "drain self takes the node out of service; a port stops with its data plane: "
		  "systemctl stop weir-dataplane@INSTANCE"},
    {"port close", "a port closes with its data plane: systemctl stop weir-dataplane@INSTANCE"},
    {"port reset", "restart the data plane: systemctl restart weir-dataplane@INSTANCE"},
    {"port", "ports are set up by --nic and EAL's options; show ports, set port.NAME.KEY VALUE"},
    {"start", "engines run as long as their data plane; drain self off takes programs again"},
    {"stop", "drain self takes the node out of service; drain self off undoes it"},
};

static int
unknown(int argc, char **argv)
{
	char words[64];

	snprintf(words, sizeof(words), "%s%s%s", argv[0], argc > 1 ? " " : "",
		 argc > 1 ? argv[1] : "");
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		size_t n = strlen(foreign[i].words);

		if (!strncmp(words, foreign[i].words, n) && (!words[n] || words[n] == ' '))
			return weirctl_fail(WEIRCTL_USAGE, "no command '%s'; %s", words,
					    foreign[i].instead);
	}
	return weirctl_fail(WEIRCTL_USAGE, "unknown command '%s'; see help", argv[0]);
}

static void
print_command(const struct weirctl_command *c)
{
	printf("  %s%s%s\n      %s\n", c->name, *c->usage ? " " : "", c->usage, c->help);
}

static int
help(const struct weirctl_options *o, int argc, char **argv)
{
	const struct weirctl_command *c = argc ? command_find(argv[0]) : NULL;

	if (argc && !c)
		return unknown(1, argv);
	if (c) {
		print_command(c);
		return WEIRCTL_OK;
	}
	puts("Usage: weirctl [OPTION]... [COMMAND [WORD]...]\n"
	     "Queries and controls the weir-dataplane of an instance.\n");
	for (c = weirctl_commands; c->name; c++)
		print_command(c);
	putchar('\n');
	option_print_help(&weirctl_option_table, stdout);
	return WEIRCTL_OK;
}

// The rows of one port: its name, or its place in the order of --nic; "all". A new array.
static json_t *
of_port(const json_t *array, const char *port)
{
	json_t *some = json_array();
	const char *before = "";
	int at = -1;

	for (size_t i = 0; some && i < json_array_size(array); i++) {
		json_t *row = json_array_get(array, i), *of = json_object_get(row, "port");
		const char *name = json_string_value(of ? of : json_object_get(row, "name"));
		char number[16];

		at += strcmp(name ? name : "", before) != 0;
		before = name ? name : "";
		snprintf(number, sizeof(number), "%d", at);
		if (!strcmp(port, "all") || !strcmp(port, before) || !strcmp(port, number))
			json_array_append(some, row);
	}
	return some;
}

static int
show(const struct weirctl_options *o, int argc, char **argv)
{
	static struct query q;
	const char *port = argc > 2 ? argv[2] : "all";
	uint32_t kind = weir_kind_named(argv[0]);
	struct rows rows;
	char known[256];
	json_t *array, *some;
	size_t n = 0;
	int status;

	// testpmd's words: show port stats|info|summary|xstats PORT|all
	if (argc > 1 && !strcmp(argv[0], "port"))
		kind = !strcmp(argv[1], "xstats") ? WEIR_ROWS_XSTATS
		       : !strcmp(argv[1], "stats") || !strcmp(argv[1], "info") ||
			       !strcmp(argv[1], "summary")
			   ? WEIR_ROWS_PORTS
			   : 0;
	else if (argc > 1)
		return weirctl_fail(WEIRCTL_USAGE, "give 'show KIND'; see help show");
	if (!kind) {
		// "nodes, engines ... or users"
		for (uint32_t i = WEIR_ROWS_NODES; i <= WEIR_ROWS_LAST && n < sizeof(known); i++)
			n += snprintf(known + n, sizeof(known) - n, "%s%s",
				      i == WEIR_ROWS_NODES  ? ""
				      : i == WEIR_ROWS_LAST ? " or "
							    : ", ",
				      weir_kind(i)->name);
		return weirctl_fail(WEIRCTL_USAGE, "cannot show '%s'; give %s", argv[0], known);
	}
	status = query_once(&q, o->instance, WEIRCTL_ANSWER_SECONDS, kind, &rows);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	array = rows_json(&rows);
	free(rows.records);
	if (array && kind == WEIR_ROWS_VERSION)
		json_array_append_new(array, json_pack("{s:s, s:s, s:s}", "name", "weirctl",
						       "value", WEIR_VERSION, "from", "weirctl"));
	if (array && argc > 1) {
		some = of_port(array, port);
		json_decref(array);
		array = some;
	}
	if (!array)
		return weirctl_fail(WEIRCTL_RESOURCE, "out of memory for %u records", rows.count);
	if (argc > 1 && !json_array_size(array) && strcmp(port, "all")) {
		json_decref(array);
		return weirctl_fail(WEIRCTL_USAGE, "no port '%s'; see show ports", port);
	}
	if (o->json) {
		json_dumpf(array, stdout, JSON_INDENT(2));
		putchar('\n');
	} else {
		table_print(weir_kind(kind)->fields, weir_kind(kind)->count, array);
	}
	json_decref(array);
	if (fflush(stdout) || ferror(stdout))
		return weirctl_fail(WEIRCTL_FAILED, "cannot write to stdout; check its target");
	return WEIRCTL_OK;
}

int
command_run(const struct weirctl_options *o, int argc, char **argv)
{
	const struct weirctl_command *c;

	if (!argc)
		return o->help ? help(o, 0, NULL) : WEIRCTL_OK;
	c = command_find(argv[0]);
	if (!c)
		return unknown(argc, argv);
	if (o->help)
		return help(o, 1, argv);
	if (!c->run)
		return weirctl_fail(WEIRCTL_USAGE, "give options after %s; see help", c->name);
	if (argc - 1 < c->least || argc - 1 > c->most)
		return weirctl_fail(WEIRCTL_USAGE, "give '%s%s%s'; see help %s", c->name,
				    *c->usage ? " " : "", c->usage, c->name);
	return c->run(o, argc - 1, argv + 1);
}

// The next word of *line, ended there; quotes hold blanks together. NULL: none; *bad: a quote
// without an end.
static char *
next_word(char **line, bool *bad)
{
	char *from = *line + strspn(*line, " \t\r\n"), *to = from, *word = from, quote = 0;

	if (!*from || *from == '#')
		return NULL;
	for (; *from && (quote || !strchr(" \t\r\n", *from)); from++) {
		if (quote ? *from == quote : *from == '"' || *from == '\'')
			quote = quote ? 0 : *from;
		else
			*to++ = *from;
	}
	*bad |= quote != 0;
	*line = *from ? from + 1 : from;
	*to = 0;
	return word;
}

int
command_line(const struct weirctl_options *base, char *line)
{
	struct weirctl_options o = *base;
	char *argv[WEIRCTL_WORDS + 1] = {""}, **words;
	int argc = 1, count, status;
	bool bad = false;

	while (argc < WEIRCTL_WORDS && (argv[argc] = next_word(&line, &bad)))
		argc++;
	if (bad)
		return weirctl_fail(WEIRCTL_USAGE, "a quote is not closed; close it");
	if (argc == WEIRCTL_WORDS)
		return weirctl_fail(WEIRCTL_USAGE,
				    "a line has at most %d words; quote what belongs "
				    "together",
				    WEIRCTL_WORDS - 2);
	if (argc > 1 && !strcmp(argv[1], "pki"))
		return pki(argc - 1, argv + 1);
	status = weirctl_parse(&o, argc, argv, &words, &count);
	return status >= 0 ? status : command_run(&o, count, words);
}
