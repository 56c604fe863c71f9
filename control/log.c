/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND 1000u
#define MINUTE (60u * SECOND)

static void
print(const char *line)
{
	fprintf(stderr, "weir-control: %s\n", line);
}

void
log_line(const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list list;

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	print(line);
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
	print(line);
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
	print(line);
}

void
log_forget(struct log_memory *memory)
{
	memory->last[0] = 0;
}
