/* SPDX-License-Identifier: BSD-3-Clause */
/* The process id of a data plane and the counters of its ports, from control.sock. */
#ifndef WEIR_PERF_PORTS_H
#define WEIR_PERF_PORTS_H

#include "message.h"

#include <sys/types.h>

/* Sums over all ports of the instance (NULL: the default one). 0 or -errno; `pid` is set then. */
int perf_ports_read(const char *instance, struct perf_ports *ports, pid_t *pid);
/* Counted between two readings. */
struct perf_ports perf_ports_since(const struct perf_ports *before, const struct perf_ports *after);

#endif
