/* SPDX-License-Identifier: BSD-3-Clause */
/* -i: a prompt that starts and stops runs and changes settings. See weir-perf(1). */
#ifndef WEIR_PERF_PROMPT_H
#define WEIR_PERF_PROMPT_H

#include "options.h"

/* Reads commands until quit or the end of the input. The exit code: that of the last run. */
int perf_prompt(struct perf_options *o);

#endif
