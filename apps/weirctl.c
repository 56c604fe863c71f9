/* SPDX-License-Identifier: BSD-3-Clause */
#include "weirctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: weirctl [--instance NAME] [--json] show "
    "nodes|engines|sessions|connections|qps|ports|counters\n"
    "       weirctl [--instance NAME] wait up|node:ID|connections:K [--timeout SECONDS]\n"
    "       weirctl [--instance NAME] [--json] capture PORT FILE [--seconds S] [--packets N]\n"
    "       weirctl [--instance NAME] set KEY VALUE\n"
    "       weirctl pki DIR ca|node ID [OPTION...]\n"
    "Asks the weir-dataplane of an instance.\n"
    "\n"
    "  show KIND          prints a table; with --json an array of objects\n"
    "  wait up            until the data plane answers and weir-control has told it its node\n"
    "  wait node:ID       until that node is up\n"
    "  wait connections:K until at least K ends of connections are open; 0: until there are none\n"
    "  capture PORT FILE  writes the frames of a port as pcapng until Ctrl-C; FILE - is stdout\n"
    "  set KEY VALUE      KEY: session.ID.weight or program.NAME.weight, VALUE 1 to 100: its part\n"
    "                     of links; session.ID.rate or program.NAME.rate, VALUE RATE[,BURST] in\n"
    "                     bytes/s and bytes, or none: what it may send to peers;\n"
    "                     user.NAME.sessions, .connections, .memory, .rate: what all programs\n"
    "                     of a user may use\n"
    "  pki DIR ...        certificates for weir-control --tls; weirctl pki --help\n"
    "\n"
    "  --instance NAME    which Weir of this host (default: $WEIR_INSTANCE, else \"default\")\n"
    "  --json             JSON instead of a table\n"
    "  --packets N        capture ends after so many frames\n"
    "  --seconds S        capture ends after so long, may be a fraction\n"
    "  --timeout SECONDS  of wait, may be a fraction (default 30)\n"
    "  --address, --cluster, --days, --force: weirctl pki --help\n"
    "  --help, --version\n"
    "\n"
    "Exit codes: 0 ok, 1 failure, 2 usage, 3 resource or permission, 4 time is over.\n";

struct options {
	const char *instance;
	bool json;
	double timeout;
	struct capture_options capture;
};

int
weirctl_fail(int code, const char *format, ...)
{
	va_list list;

	fputs("weirctl: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	return code;
}

static int
show(const struct options *o, const char *name)
{
	static struct query q;
	struct rows rows;
	uint32_t kind = rows_kind(name);
	json_t *array;
	int status;

	if (!kind)
		return weirctl_fail(WEIRCTL_USAGE,
				    "cannot show '%s'; give nodes, engines, sessions, "
				    "connections, qps, ports or counters",
				    name);
	status = query_open(&q, o->instance, WEIRCTL_ANSWER_SECONDS);
	if (!status)
		status = query_rows(&q, kind, &rows);
	query_close(&q);
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
		table_print(kind, array);
	}
	json_decref(array);
	if (fflush(stdout) || ferror(stdout))
		return weirctl_fail(WEIRCTL_FAILED,
				    "cannot write the answer; see where stdout goes");
	return WEIRCTL_OK;
}

static int
run_capture(const struct options *o, char **argv)
{
	struct capture_options c = o->capture;

	c.port = argv[1];
	c.file = argv[2];
	c.json = o->json;
	if (c.json && !strcmp(c.file, "-"))
		return weirctl_fail(WEIRCTL_USAGE,
				    "--json and the frames can't both go to stdout; name a file");
	return capture(o->instance, &c);
}

static int
run(const struct options *o, int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[0], "show"))
		return show(o, argv[1]);
	if (argc == 2 && !strcmp(argv[0], "wait"))
		return wait_for(o->instance, argv[1], o->timeout);
	if (argc == 3 && !strcmp(argv[0], "capture"))
		return run_capture(o, argv);
	if (argc == 3 && !strcmp(argv[0], "set"))
		return set(o->instance, argv[1], argv[2]);
	if (argc && strcmp(argv[0], "show") && strcmp(argv[0], "wait") &&
	    strcmp(argv[0], "capture") && strcmp(argv[0], "set"))
		return weirctl_fail(WEIRCTL_USAGE, "unknown command '%s'; see --help", argv[0]);
	return weirctl_fail(WEIRCTL_USAGE,
			    "give 'show KIND', 'wait WHAT', 'capture PORT FILE' or 'set KEY "
			    "VALUE'; see --help");
}

static bool
parse_packets(const char *text, uint64_t *packets)
{
	char *end;

	errno = 0;
	*packets = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *packets;
}

static bool
parse_timeout(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && !*end && *seconds >= 0 && *seconds <= 1e6;
}

int
main(int argc, char **argv)
{
	static const struct option long_options[] = {
	    {"instance", required_argument, NULL, 'i'}, {"json", no_argument, NULL, 'j'},
	    {"timeout", required_argument, NULL, 't'},	{"help", no_argument, NULL, 'h'},
	    {"packets", required_argument, NULL, 'p'},	{"seconds", required_argument, NULL, 's'},
	    {"version", no_argument, NULL, 'v'},	{0},
	};
	struct options o = {.instance = getenv("WEIR_INSTANCE"), .timeout = 30};
	int id;

	if (argc > 1 && !strcmp(argv[1], "pki"))
		return pki(argc - 1, argv + 1);
	opterr = 0;
	while ((id = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		if (id == 'i') {
			o.instance = optarg;
		} else if (id == 'j') {
			o.json = true;
		} else if (id == 'h') {
			fputs(help, stdout);
			return WEIRCTL_OK;
		} else if (id == 'v') {
			puts("weirctl " WEIR_VERSION);
			return WEIRCTL_OK;
		} else if (id == 't') {
			if (!parse_timeout(optarg, &o.timeout))
				return weirctl_fail(WEIRCTL_USAGE,
						    "--timeout '%s' is no time; give seconds",
						    optarg);
		} else if (id == 's') {
			if (!parse_timeout(optarg, &o.capture.seconds) || o.capture.seconds <= 0)
				return weirctl_fail(WEIRCTL_USAGE,
						    "--seconds '%s' is no time; give seconds",
						    optarg);
		} else if (id == 'p') {
			if (!parse_packets(optarg, &o.capture.packets))
				return weirctl_fail(WEIRCTL_USAGE,
						    "--packets '%s' is no number of frames; give "
						    "one from 1 on",
						    optarg);
		} else {
			return weirctl_fail(WEIRCTL_USAGE,
					    id == ':' ? "%s needs a value; see --help"
						      : "unknown option '%s'; see --help",
					    argv[optind - 1]);
		}
	}
	if (!o.instance || !*o.instance)
		o.instance = "default";
	if (strchr(o.instance, '/') || o.instance[0] == '.')
		return weirctl_fail(WEIRCTL_USAGE, "--instance '%s' is no name; see --help",
				    o.instance);
	return run(&o, argc - optind, argv + optind);
}
