/* SPDX-License-Identifier: BSD-3-Clause */
/* What tools have in common: options, exit codes. No DPDK. */
#ifndef WEIR_TOOL_H
#define WEIR_TOOL_H

#include <stddef.h>
#include <stdint.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_RESOURCE = 3 };

int tool_exit_code(int rc);
/* Where in argv the options behind EAL's begin: at `--`, or at 0 when there is none. */
int tool_split(int argc, char **argv);

/* -EINVAL, and why in error. */
int tool_bad(char *error, size_t size, const char *option, const char *value, const char *remedy);
/* -EINVAL for getopt's ':' (no value) or '?' at `word`. */
int tool_unknown(char *error, size_t size, int id, const char *word);

/* A number from low to high, k or m may follow. 0 or -EINVAL. */
int tool_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value);
int tool_parse_small(const char *text, uint32_t low, uint32_t high, uint32_t *value);

#endif
