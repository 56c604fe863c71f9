/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND 1000u
#define MINUTE (60u * SECOND)
#define BURST 20u

void
log_line(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	log_event_list(LOG_LEVEL_INFO, NULL, 0, format, list);
	va_end(list);
}

void
log_once(struct log_memory *memory, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list list;

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	if (!strcmp(line, memory->last))
		return;
	memcpy(memory->last, line, sizeof(line));
	log_warning("%s", line);
}

void
log_limited(struct log_memory *memory, uint64_t now_ms, const char *format, ...)
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
	log_warning("%s", line);
}

void
log_metered(struct log_meter *meter, uint64_t now_ms, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list list;

	if (meter->full_at < now_ms)
		meter->full_at = now_ms;
	if (meter->full_at - now_ms > BURST * SECOND)
		return;
	meter->full_at += SECOND;
	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	log_info("%s", line);
}

void
log_forget(struct log_memory *memory)
{
	memory->last[0] = 0;
}
