/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "log.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX 1024
#define LINE_ROOM 8192 /* all of the text may be escapes, \u001f */

static const char *const level_name[] = {"error", "warning", "info", "debug"};
static const char *const format_name[] = {"text", "logfmt", "json"};

static const char *instance;
static bool journal;
/* Main writes, any thread reads; each by itself: relaxed. */
static _Atomic int level_now = LOG_LEVEL_INFO, format_now = LOG_FORMAT_TEXT;

struct line {
	char text[LINE_ROOM];
	size_t length;
};

void
log_open(const char *name)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char is[48] = "";
	struct stat st;

	/* systemd names the file that stderr is, if it is the journal: DEVICE:INODE */
	if (!fstat(STDERR_FILENO, &st))
		snprintf(is, sizeof(is), "%llu:%llu", (unsigned long long)st.st_dev,
			 (unsigned long long)st.st_ino);
	instance = name;
	journal = stream && *is && !strcmp(stream, is);
}

void
log_set_level(enum log_level level)
{
	atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

void
log_set_format(enum log_format format)
{
	atomic_store_explicit(&format_now, (int)format, memory_order_relaxed);
}

enum log_level
log_level(void)
{
	return (enum log_level)atomic_load_explicit(&level_now, memory_order_relaxed);
}

bool
log_level_parse(const char *name, enum log_level *level)
{
	for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++)
		if (!strcmp(name, level_name[i])) {
			*level = (enum log_level)i;
			return true;
		}
	return false;
}

bool
log_format_parse(const char *name, enum log_format *format)
{
	for (int i = LOG_FORMAT_TEXT; i <= LOG_FORMAT_JSON; i++)
		if (!strcmp(name, format_name[i])) {
			*format = (enum log_format)i;
			return true;
		}
	return false;
}

const char *
log_level_name(enum log_level level)
{
	return level_name[level];
}

const char *
log_prefix(enum log_level level)
{
	static const char *const prefix[] = {"<3>", "<4>", "<6>", "<7>"};

	return journal ? prefix[level] : "";
}

static void
put(struct line *l, const char *text)
{
	size_t n = strlen(text), room = sizeof(l->text) - 1 - l->length;

	n = n < room ? n : room;
	memcpy(l->text + l->length, text, n);
	l->length += n;
}

/* In quotes: for JSON, and for logfmt, whose readers take the same. Bytes that are no ASCII may be
 * no UTF-8 either. */
static void
put_quoted(struct line *l, const char *text)
{
	char one[8];

	put(l, "\"");
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			snprintf(one, sizeof(one), "\\%c", c);
		else if (c < ' ' || c >= 0x7f)
			snprintf(one, sizeof(one), c < ' ' ? "\\u%04x" : "?", c);
		else
			snprintf(one, sizeof(one), "%c", c);
		put(l, one);
	}
	put(l, "\"");
}

static void
put_field(struct line *l, bool json, const struct log_field *f)
{
	char number[24];

	put(l, json ? ",\"" : " ");
	put(l, f->key);
	put(l, json ? "\":" : "=");
	if (f->text) {
		put_quoted(l, f->text);
	} else {
		snprintf(number, sizeof(number), "%llu", (unsigned long long)f->number);
		put(l, number);
	}
}

static void
structured(struct line *l, bool json, enum log_level level, const struct log_field *fields,
	   size_t count, const char *text)
{
	struct log_field head[] = {
	    {"level", 0, level_name[level]},
	    {"program", 0, program_invocation_short_name},
	    {"pid", (uint64_t)getpid(), NULL},
	    {"msg", 0, text},
	};

	struct timespec now;
	struct tm tm;
	char time[40];
	size_t n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(time + n, sizeof(time) - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
	put(l, json ? "{\"time\":" : "time=");
	put_quoted(l, time);
	for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		put_field(l, json, &head[i]);
	if (instance)
		put_field(l, json, &(struct log_field){"instance", 0, instance});
	for (size_t i = 0; i < count; i++)
		put_field(l, json, &fields[i]);
	if (json)
		put(l, "}");
}

void
log_event_list(enum log_level level, const struct log_field *fields, size_t count,
	       const char *format, va_list args)
{
	int form = atomic_load_explicit(&format_now, memory_order_relaxed);
	struct line l = {.length = 0};
	char text[TEXT_MAX];

	if (level > log_level())
		return;
	vsnprintf(text, sizeof(text), format, args);
	weir_assert(level >= LOG_LEVEL_ERROR && level <= LOG_LEVEL_DEBUG);
	put(&l, log_prefix(level));
	if (form == LOG_FORMAT_TEXT) {
		/* no character may end the line or control a terminal */
		for (char *c = text; *c; c++)
			if ((unsigned char)*c < ' ' || *c == 0x7f)
				*c = '?';
		put(&l, program_invocation_short_name);
		put(&l, ": ");
		put(&l, text);
	} else {
		structured(&l, form == LOG_FORMAT_JSON, level, fields, count, text);
	}
	l.text[l.length++] = '\n';
	/* one write, so that lines of several processes on one terminal don't mix */
	if (write(STDERR_FILENO, l.text, l.length) < 0)
		return; /* nowhere to say so */
}

void
log_event(enum log_level level, const struct log_field *fields, size_t count, const char *format,
	  ...)
{
	va_list args;

	va_start(args, format);
	log_event_list(level, fields, count, format, args);
	va_end(args);
}

#define LOGGER(name, level)                                                                        \
	void name(const char *format, ...)                                                         \
	{                                                                                          \
		va_list args;                                                                      \
                                                                                                   \
		va_start(args, format);                                                            \
		log_event_list(level, NULL, 0, format, args);                                      \
		va_end(args);                                                                      \
	}

LOGGER(log_error, LOG_LEVEL_ERROR)
LOGGER(log_warning, LOG_LEVEL_WARNING)
LOGGER(log_info, LOG_LEVEL_INFO)
LOGGER(log_debug, LOG_LEVEL_DEBUG)
