/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line of the simulators. */
#ifndef WEIR_TEST_SIM_SEEDS_H
#define WEIR_TEST_SIM_SEEDS_H

#include "base/options.h"

#include <stdlib.h>

/* Specs of fields of `type` that each simulator has; greatest: the last seed there is. */
/* clang-format off */
#define SEED_FROM(type, greatest)                                                                  \
	{"from", 0, OPTION_UNSIGNED, OPTION_FIELD(type, from), "SEED", "1", "first seed",          \
	 .max = (greatest)}
#define SEED_HELP(type) {"help", 0, OPTION_STOP, OPTION_FIELD(type, help), NULL, NULL, "this text"}
#define SEED_TO(type, greatest)                                                                    \
	{"to", 0, OPTION_UNSIGNED, OPTION_FIELD(type, to), "SEED", NULL,                           \
	 "last seed; default: the first", .max = (greatest)}
/* clang-format on */

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
