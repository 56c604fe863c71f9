/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log of a daemon or a tool: one line an event on stderr, one write a line. Text is lowercase; an
 * error says "cause; remedy". Formats: text, `PROGRAM: text`; logfmt and json, with time, level,
 * program, instance, pid, what was said as `msg`, and fields. Text has the time in front of it once
 * the daemon is up (log_timed). Before the journal of systemd each
 * line begins with its priority, <3> to <7>. Any thread but an engine's; the settings are main's.
 */
#ifndef WEIR_COMMON_LOG_H
#define WEIR_COMMON_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

/* A field of a log line: a number, or a text if there is one. Not shown in format text. */
struct log_field {
	const char *key;
	uint64_t number;
	const char *text;
};

/* Instance to name (a string that stays, NULL: none); notices whether stderr is the journal. */
void log_open(const char *instance);
void log_set_level(enum log_level level);
void log_set_format(enum log_format format);
/* Sets the format that $WEIR_LOG_FORMAT or --log-format among these words asks for, before options
 * are parsed: an error of any of them is a line of that format. */
void log_find_format(int argc, char **argv);
enum log_level log_level(void);
enum log_format log_format(void);
/* From now on lines of format text begin with the time, but in the journal, which has its own.
 * Earlier lines have none: they go to whoever starts the daemon. */
void log_timed(void);
/*
 * A stream of which each line becomes a line of the log, for libraries that print. The caller
 * closes it. NULL: out of memory. Lines longer than LOG_STREAM_LINE bytes are cut in pieces.
 */
#define LOG_STREAM_LINE 512
FILE *log_stream(enum log_level level);
/*
 * Puts what stands before the message of a line of the present format into text, as a string;
 * log_raw_end() what stands behind it, with the newline. For signal handlers: async-signal-safe.
 */
void log_raw_begin(enum log_level level, char *text, size_t size);
const char *log_raw_end(void);
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

/*
 * Budgets for lines that others cause: one per kind of line and causer, so that one causer's lines
 * do not displace another's. Lines beyond a budget are counted, and a summary line gives their
 * number: "N lines left out (KIND, WHO)". Lines about nodes, ports and operators take no budget of
 * a program or a stranger. One thread.
 */
#define LOG_CAUSES 64	     /* causes at a time; further ones share the last entry */
#define LOG_BURST 20	     /* lines of one cause in a burst */
#define LOG_PACE_MS 1000     /* ms per line of one cause after a burst */
#define LOG_SUMMARY_MS 60000 /* ms between summaries while lines are left out */
#define LOG_QUIET_MS 5000    /* ms without lines after which a burst has ended */

struct log_cause {
	const char *kind;	     /* a string that stays; NULL: free */
	char who[48];		     /* "user 1000", "node 5", an address */
	uint64_t full_at;	     /* ms: when the whole burst is there again */
	uint64_t left_from, left_at; /* ms: the first and the last that `left_out` counts */
	uint64_t left_out;
	uint64_t line, line_at; /* hash of the last line, when it went out (log_budget_take) */
};

struct log_budget {
	struct log_cause cause[LOG_CAUSES];
};

/* May one more line of this cause go out? */
bool log_cause_take(struct log_cause *c, uint64_t now_ms);
/* Says what was left out, if it is time to. */
void log_cause_tell(struct log_cause *c, uint64_t now_ms);
/* The same of the cause that has this kind and causer. `line` not NULL: the same one again counts
 * as left out for a minute. */
bool log_budget_take(struct log_budget *b, const char *kind, const char *who, const char *line,
		     uint64_t now_ms);
/* True: some lines were left out that it has not said yet. */
bool log_budget_tell(struct log_budget *b, uint64_t now_ms);

#endif
