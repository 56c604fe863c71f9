/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines that would come again and again: once, or not too often. */
#ifndef WEIR_LOG_ONCE_H
#define WEIR_LOG_ONCE_H

#include "log.h"

#include <stdint.h>

#define LOG_LINE_MAX 320

/* Memory of what was said last about one thing, so that it isn't said at each retry. Zeroed =
 * nothing. */
struct log_memory {
	char last[LOG_LINE_MAX];
	uint64_t at; /* ms */
};

/* `fields` and `count` of the calls below: what a line is about, for programs that read the log. */
#define LOG_NO_FIELDS NULL, 0
#define LOG_NODE(id) (struct log_field[]){{"node", id, NULL}}, 1
#define LOG_NODE_AT(id, place) (struct log_field[]){{"node", id, NULL}, {"peer", 0, place}}, 2
#define LOG_NODE_WHY(id, place, why)                                                               \
	(struct log_field[]){{"node", id, NULL}, {"peer", 0, place}, {"reason", 0, why}}, 3

/* Warns unless it is what was logged last in this memory. */
__attribute__((format(printf, 2, 3))) void log_once(struct log_memory *memory, const char *format,
						    ...);
__attribute__((format(printf, 4, 5))) void log_once_about(struct log_memory *memory,
							  const struct log_field *fields,
							  size_t count, const char *format, ...);

/* For what goes wrong again and again: at most a line a second, the same line once a minute. */
__attribute__((format(printf, 5, 6))) void log_limited(struct log_memory *memory, uint64_t now_ms,
						       const struct log_field *fields, size_t count,
						       const char *format, ...);

/* For what one member can cause, by a budget of its own. */
__attribute__((format(printf, 6, 7))) void log_metered(struct log_cause *cause, uint64_t now_ms,
						       enum log_level level,
						       const struct log_field *fields, size_t count,
						       const char *format, ...);
/* For what anybody can cause, by a budget of this kind and causer; the same line once a minute. */
__attribute__((format(printf, 7, 8))) void log_blamed(struct log_budget *budget, const char *kind,
						      const char *who, uint64_t now_ms,
						      const struct log_field *fields, size_t count,
						      const char *format, ...);

void log_forget(struct log_memory *memory);

#endif
