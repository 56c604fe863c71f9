/* SPDX-License-Identifier: BSD-3-Clause */
#include "log_once.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND 1000u
#define MINUTE (60u * SECOND)

static void
once(struct log_memory *memory, const struct log_field *fields, size_t count, const char *format,
     va_list list)
{
	char line[LOG_LINE_MAX];

	vsnprintf(line, sizeof(line), format, list);
	if (!strcmp(line, memory->last))
		return;
	memcpy(memory->last, line, sizeof(line));
	log_event(LOG_LEVEL_WARNING, fields, count, "%s", line);
}

void
log_once(struct log_memory *memory, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	once(memory, LOG_NO_FIELDS, format, list);
	va_end(list);
}

void
log_once_about(struct log_memory *memory, const struct log_field *fields, size_t count,
	       const char *format, ...)
{
	va_list list;

	va_start(list, format);
	once(memory, fields, count, format, list);
	va_end(list);
}

void
log_limited(struct log_memory *memory, uint64_t now_ms, const struct log_field *fields,
	    size_t count, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list list;

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	if (memory->last[0] && now_ms - memory->at < (strcmp(line, memory->last) ? SECOND : MINUTE))
		return;
	memcpy(memory->last, line, sizeof(line));
	memory->at = now_ms;
	log_event(LOG_LEVEL_WARNING, fields, count, "%s", line);
}

void
log_metered(struct log_cause *cause, uint64_t now_ms, enum log_level level,
	    const struct log_field *fields, size_t count, const char *format, ...)
{
	va_list list;

	if (!log_cause_take(cause, now_ms))
		return;
	va_start(list, format);
	log_event_list(level, fields, count, format, list);
	va_end(list);
}

void
log_blamed(struct log_budget *budget, const char *kind, const char *who, uint64_t now_ms,
	   const struct log_field *fields, size_t count, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list list;

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	if (log_budget_take(budget, kind, who, line, now_ms))
		log_event(LOG_LEVEL_WARNING, fields, count, "%s", line);
}

void
log_forget(struct log_memory *memory)
{
	memory->last[0] = 0;
}
