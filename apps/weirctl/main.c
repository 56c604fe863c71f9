/* SPDX-License-Identifier: BSD-3-Clause */
#include "weirctl.h"

#include <stdarg.h>
#include <stdio.h>
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

int
main(int argc, char **argv)
{
	struct weirctl_options o;
	char **words, error[256];
	int count, status;

	if (argc > 1 && !strcmp(argv[1], "pki"))
		return pki(argc - 1, argv + 1);
	if (option_defaults(&weirctl_option_table, &o, error, sizeof(error)))
		return weirctl_fail(WEIRCTL_USAGE, "%s", error);
	status = weirctl_parse(&o, argc, argv, &words, &count);
	if (status >= 0)
		return status;
	return count || o.help ? command_run(&o, count, words) : prompt(&o);
}
