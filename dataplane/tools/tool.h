/* SPDX-License-Identifier: BSD-3-Clause */
/* Common to tools: command lines, exit codes. No DPDK. */
#ifndef WEIR_TOOL_H
#define WEIR_TOOL_H

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_RESOURCE = 3 };

int tool_exit_code(int rc);
/* Index of `--` in argv, which ends the options of EAL; 0: there is none. */
int tool_split(int argc, char **argv);

#endif
