/* SPDX-License-Identifier: BSD-3-Clause */
/* What tools have in common: options, exit codes. No DPDK. */
#ifndef WEIR_TOOL_H
#define WEIR_TOOL_H

#include <getopt.h>
#include <stddef.h>
#include <stdint.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_RESOURCE = 3 };

int tool_exit_code(int rc);
/* Where in argv the options behind EAL's begin: at `--`, or at 0 when there is none. */
int tool_split(int argc, char **argv);

/* -EINVAL, and why in error. */
int tool_bad(char *error, size_t size, const char *option, const char *value, const char *remedy);

/* Takes one option; value is NULL if it has none. 0, or -EINVAL and why in error. */
typedef int tool_take_fn(void *options, int id, const char *value, char *error, size_t size);
/*
 * Gives each option of argv to take(): `longs`, and the short ones with getopt's ':' behind those
 * that have a value. --help ('h') and --version ('v') are not taken: their letter is returned, and
 * nothing behind them is looked at. Else 0, or -EINVAL and why in error.
 */
int tool_options(int argc, char **argv, const char *shorts, const struct option *longs,
		 tool_take_fn *take, void *options, char *error, size_t size);
/*
 * Gives each word between the commas of text to take(), ended. -EINVAL if there is none, one is
 * empty or take() doesn't want it.
 */
int tool_parse_list(const char *text, int (*take)(void *options, const char *word), void *options);

/* A number from low to high, k or m may follow. 0 or -EINVAL. */
int tool_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value);
int tool_parse_small(const char *text, uint32_t low, uint32_t high, uint32_t *value);

#endif
