/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The counters of an export. A new one is a line here: engines and main add up their parts, and
 * rows, tables, JSON and telemetry (fields.c) loop over the lines.
 */
#ifndef WEIR_IPC_EXPORT_COUNTERS_H
#define WEIR_IPC_EXPORT_COUNTERS_H

#include <stdint.h>

/* X(name, column of weirctl's table, its unit) */
#define WEIR_EXPORT_COUNTERS(X)                                                                    \
	X(puts, "PUTS", UNIT_COUNT)                                                                \
	X(bytes_put, "PUT", UNIT_BYTES)                                                            \
	X(gets, "GETS", UNIT_COUNT)                                                                \
	X(bytes_got, "GOT", UNIT_BYTES)                                                            \
	X(updates, "UPDATES", UNIT_COUNT)                                                          \
	X(notices, "NOTICES", UNIT_COUNT) /* and signals */                                        \
	X(locks, "LOCKS", UNIT_COUNT)	  /* that were granted */                                  \
	X(refused, "REFUSED", UNIT_COUNT) /* connections, and operations outside range or rights   \
					   */

struct weir_export_counters {
#define X(name, title, unit) uint64_t name;
	WEIR_EXPORT_COUNTERS(X)
#undef X
};

static inline void
weir_export_count(struct weir_export_counters *to, const struct weir_export_counters *from)
{
#define X(name, title, unit) to->name += from->name;
	WEIR_EXPORT_COUNTERS(X)
#undef X
}

#endif
