/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-run: starts a group of processes on this machine, and ends with it. */
#include "starter.h"

#include <stdio.h>

static int
usage(const char *error)
{
	fprintf(stderr, "weir-run: %s\n", error);
	return EXIT_USAGE;
}

int
main(int argc, char **argv)
{
	static struct run_options o;
	int words = argc - 1, status;

	status = option_main(&run_option_table, &o, "weir-run", WEIR_VERSION, &words, argv + 1);
	if (status >= 0)
		return status;
	if (!o.processes)
		return usage("-n is missing; see --help");
	if (o.instances > o.processes)
		return usage("more instances than processes; name fewer, or raise -n");
	if (!words)
		return usage("no program; see --help");
	argv[1 + words] = NULL; /* behind the program's arguments */
	return starter_run(&o, argv + 1);
}
