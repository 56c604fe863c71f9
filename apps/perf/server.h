/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_PERF_SERVER_H
#define WEIR_PERF_SERVER_H

#include "options.h"

#include "weir/weir.h"

/* Serves one client after another until a signal. 0 or -errno; what failed has been said. */
int perf_serve(struct weir *weir, const struct perf_options *o);

#endif
