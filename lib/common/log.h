/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log of a daemon or a tool: one line an event on stderr, one write a line. Text is lowercase; an
 * error says "cause; remedy". Formats: text, `PROGRAM: text`; logfmt and json, with time, level,
 * program, instance, pid, what was said as `msg`, and fields. Before the journal of systemd each
 * line begins with its priority, <3> to <7>. Any thread but an engine's; the settings are main's.
 */
#ifndef WEIR_COMMON_LOG_H
#define WEIR_COMMON_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

/* What a line is about: a number, or a text if there is one. Not in lines of format text. */
struct log_field {
	const char *key;
	uint64_t number;
	const char *text;
};

/* Instance to name (a string that stays, NULL: none); notices whether stderr is the journal. */
void log_open(const char *instance);
void log_set_level(enum log_level level);
void log_set_format(enum log_format format);
enum log_level log_level(void);
/* "error", "warning", "info", "debug"; "text", "logfmt", "json". False: no such name. */
bool log_level_parse(const char *name, enum log_level *level);
bool log_format_parse(const char *name, enum log_format *format);
const char *log_level_name(enum log_level level);
/* The journal's prefix of a line, "" elsewhere; async-signal-safe. */
const char *log_prefix(enum log_level level);

void log_event(enum log_level level, const struct log_field *fields, size_t count,
	       const char *format, ...) __attribute__((format(printf, 4, 5)));
void log_event_list(enum log_level level, const struct log_field *fields, size_t count,
		    const char *format, va_list args);
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
