/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* One write a line, so that lines of several processes on one terminal don't mix. */
static void
log_line(const char *level, const char *format, va_list args)
{
	char line[1024];
	int head = snprintf(line, sizeof(line), "%s: %s", program_invocation_short_name, level);
	int text = vsnprintf(line + head, sizeof(line) - head - 1, format, args);
	size_t length = head;

	if (text > 0)
		length +=
		    (size_t)text < sizeof(line) - head - 1 ? (size_t)text : sizeof(line) - head - 2;
	line[length++] = '\n';
	if (write(STDERR_FILENO, line, length) < 0)
		return; /* nowhere to say so */
}

void
log_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_line("", format, args);
	va_end(args);
}

void
log_warning(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_line("warning: ", format, args);
	va_end(args);
}

void
log_info(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_line("", format, args);
	va_end(args);
}
