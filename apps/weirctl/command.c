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
    {"evict", "vqpn.N|session.ID",
     "ends a connection or a program's session; the program gets --reason TEXT", .least = 1,
     .most = 1, .word = {WORD_VICTIM}, .run = evict},
    {"help", "[COMMAND]", "prints this text, or the help of one command", .most = 1,
     .word = {WORD_COMMAND}, .run = help},
    {"pki", "DIR ca|node ID", "certificates for weir-control --tls: pki --help",
     .word = {WORD_FILE}}, // in main() and command_line(): it has options of its own
    {"set", "KEY VALUE", "changes a setting while the data plane runs; show settings lists them",
     .least = 2, .most = 2, .word = {WORD_KEY, WORD_VALUE}, .run = set},
    {"show", "KIND",
     "prints a table, with --json an array of objects; KIND: nodes, engines,\n"
     "      sessions, connections, qps, ports, counters, settings or services",
     .least = 1, .most = 1, .word = {WORD_ROWS}, .run = show},
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

static int
unknown(const char *name)
{
	return weirctl_fail(WEIRCTL_USAGE, "unknown command '%s'; see help", name);
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
		return unknown(argv[0]);
	if (c) {
		print_command(c);
		return WEIRCTL_OK;
	}
	puts("Usage: weirctl [OPTION]... [COMMAND [WORD]...]\n"
	     "Asks the weir-dataplane of an instance.\n");
	for (c = weirctl_commands; c->name; c++)
		print_command(c);
	putchar('\n');
	option_print_help(&weirctl_option_table, stdout);
	return WEIRCTL_OK;
}

static int
show(const struct weirctl_options *o, int argc, char **argv)
{
	static struct query q;
	uint32_t kind = weir_kind_named(argv[0]);
	struct rows rows;
	json_t *array;
	int status;

	if (!kind)
		return weirctl_fail(WEIRCTL_USAGE,
				    "cannot show '%s'; give nodes, engines, sessions, "
				    "connections, qps, ports, counters, settings or services",
				    argv[0]);
	status = query_once(&q, o->instance, WEIRCTL_ANSWER_SECONDS, kind, &rows);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	array = rows_json(&rows);
	free(rows.records);
	if (!array)
		return weirctl_fail(WEIRCTL_RESOURCE, "out of memory for %u records", rows.count);
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
		return unknown(argv[0]);
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
