/* SPDX-License-Identifier: BSD-3-Clause */
/* What control has to say, through common/log.h: once, or not too often. */
#ifndef WEIR_CONTROL_LOG_H
#define WEIR_CONTROL_LOG_H

#include <stdint.h>

#define LOG_LINE_MAX 320

/* Memory of what was said last about one thing, so that it isn't said at each retry. Zeroed =
 * nothing. */
struct log_memory {
	char last[LOG_LINE_MAX];
	uint64_t at; /* ms */
};

/* Level info; once and limited warn. */
__attribute__((format(printf, 1, 2))) void log_line(const char *format, ...);

/* Logs unless it is what was logged last in this memory. */
__attribute__((format(printf, 2, 3))) void log_once(struct log_memory *memory, const char *format,
						    ...);

/* For what strangers can cause: at most a line a second, the same line once a minute. */
__attribute__((format(printf, 3, 4))) void log_limited(struct log_memory *memory, uint64_t now_ms,
						       const char *format, ...);

/* For what a member can cause: a burst of lines, then one a second. */
struct log_meter {
	uint64_t full_at; /* ms: when the whole burst is there again; 0 = it is */
};
__attribute__((format(printf, 3, 4))) void log_metered(struct log_meter *meter, uint64_t now_ms,
						       const char *format, ...);

void log_forget(struct log_memory *memory);

#endif
