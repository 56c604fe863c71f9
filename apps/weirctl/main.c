/* SPDX-License-Identifier: BSD-3-Clause */
#include "weirctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *place = "";

double
weirctl_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

int
weirctl_fail(int code, const char *format, ...)
{
	va_list list;

	fprintf(stderr, "weirctl: %s", place);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	return code;
}

void
weirctl_place(const char *text)
{
	place = text;
}

static bool
parse_number(const char *text, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *number;
}

static bool
parse_time(const char *text, double least, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && !*end && *seconds >= least && *seconds <= 1e6;
}

static int
no_time(const char *option, const char *text)
{
	return weirctl_fail(WEIRCTL_USAGE, "invalid value '%s' for --%s (expected seconds)", text,
			    option);
}

static int
set_option(struct weirctl_options *o, int id, const char *value)
{
	switch (id) {
	case 'i':
		o->instance = value;
		if (!*value || strchr(value, '/') || value[0] == '.')
			return weirctl_fail(WEIRCTL_USAGE,
					    "invalid value '%s' for --instance; see --help", value);
		return -1;
	case 'j':
		o->json = true;
		return -1;
	case 'h':
		o->help = true;
		return -1;
	case 't':
		o->timed = true;
		return parse_time(value, 0, &o->timeout) ? -1 : no_time("timeout", value);
	case 's':
		return parse_time(value, 1e-6, &o->seconds) ? -1 : no_time("seconds", value);
	case 'n':
		return parse_time(value, 0.1, &o->interval)
			   ? -1
			   : weirctl_fail(
				 WEIRCTL_USAGE,
				 "invalid value '%s' for --interval (expected 0.1 seconds or more)",
				 value);
	case 'c':
		return parse_number(value, &o->count)
			   ? -1
			   : weirctl_fail(
				 WEIRCTL_USAGE,
				 "invalid value '%s' for --count (expected 1 view or more)", value);
	case 'p':
		return parse_number(value, &o->packets)
			   ? -1
			   : weirctl_fail(
				 WEIRCTL_USAGE,
				 "invalid value '%s' for --packets (expected 1 frame or more)",
				 value);
	case 'r':
		o->reason = value;
		return -1;
	case 'v':
		puts("weirctl " WEIR_VERSION);
		return WEIRCTL_OK;
	}
	return WEIRCTL_USAGE;
}

int
weirctl_parse(struct weirctl_options *o, int argc, char **argv, char ***words, int *count)
{
	static const struct option long_options[] = {
	    {"count", required_argument, NULL, 'c'},
	    {"help", no_argument, NULL, 'h'},
	    {"instance", required_argument, NULL, 'i'},
	    {"interval", required_argument, NULL, 'n'},
	    {"json", no_argument, NULL, 'j'},
	    {"packets", required_argument, NULL, 'p'},
	    {"reason", required_argument, NULL, 'r'},
	    {"seconds", required_argument, NULL, 's'},
	    {"timeout", required_argument, NULL, 't'},
	    {"version", no_argument, NULL, 'v'},
	    {0},
	};
	int id, status;

	opterr = 0;
	optind = 0; // begin anew: a prompt comes here for each line
	while ((id = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
		if (id == ':' || id == '?')
			return weirctl_fail(WEIRCTL_USAGE,
					    id == ':' ? "%s needs a value; see --help"
						      : "unknown option '%s'; see --help",
					    argv[optind - 1]);
		status = set_option(o, id, optarg);
		if (status >= 0)
			return status;
	}
	*words = argv + optind;
	*count = argc - optind;
	return -1;
}

int
main(int argc, char **argv)
{
	struct weirctl_options o = {.timeout = 30, .interval = 2};
	const char *instance = getenv("WEIR_INSTANCE");
	char **words;
	int count, status;

	if (argc > 1 && !strcmp(argv[1], "pki"))
		return pki(argc - 1, argv + 1);
	o.instance = instance && *instance ? instance : "default";
	status = weirctl_parse(&o, argc, argv, &words, &count);
	if (status >= 0)
		return status;
	if (strchr(o.instance, '/') || o.instance[0] == '.')
		return weirctl_fail(WEIRCTL_USAGE,
				    "invalid value '%s' of $WEIR_INSTANCE; see --help", o.instance);
	return count || o.help ? command_run(&o, count, words) : prompt(&o);
}
