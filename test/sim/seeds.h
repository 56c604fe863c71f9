/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line of the simulators. */
#ifndef WEIR_TEST_SIM_SEEDS_H
#define WEIR_TEST_SIM_SEEDS_H

#include "base/options.h"

#include <stdlib.h>

/* Fills in `into` from the table, whose head is the usage; ends the process on --help or an error.
 */
static inline void
seeds_parse(const struct option_table *table, void *into, const bool *help, int argc, char **argv)
{
	char error[256];

	argc--;
	if (option_defaults(table, into, error, sizeof(error)) ||
	    option_parse(table, into, &argc, argv + 1, error, sizeof(error))) {
		fprintf(stderr, "%s\n", error);
		exit(2);
	}
	if (!*help)
		return;
	option_print_help(table, stdout);
	exit(0);
}

#endif
