/* SPDX-License-Identifier: BSD-3-Clause */
/* What tools have in common: command lines, exit codes. No DPDK. */
#ifndef WEIR_TOOL_H
#define WEIR_TOOL_H

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_RESOURCE = 3 };

int tool_exit_code(int rc);
/* Where in argv the options behind EAL's begin: at `--`, or at 0 when there is none. */
int tool_split(int argc, char **argv);

#endif
