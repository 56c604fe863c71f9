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
static _Atomic bool timed;
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

void
log_find_format(int argc, char **argv)
{
	const char *text = getenv("WEIR_LOG_FORMAT");
	enum log_format format;

	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "--log-format=", strlen("--log-format=")))
			text = argv[i] + strlen("--log-format=");
		else if (!strcmp(argv[i], "--log-format") && i + 1 < argc)
			text = argv[i + 1];
	}
	if (text && log_format_parse(text, &format))
		log_set_format(format);
}

enum log_format
log_format(void)
{
	return (enum log_format)atomic_load_explicit(&format_now, memory_order_relaxed);
}

void
log_timed(void)
{
	atomic_store_explicit(&timed, true, memory_order_relaxed);
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

/* Digits of a number, with zeros in front. */
static char *
put_digits(char *at, unsigned width, uint64_t number)
{
	for (unsigned i = width; i-- > 0; number /= 10)
		at[i] = (char)('0' + number % 10);
	return at + width;
}

/* "2026-11-23T01:02:03.456Z"; async-signal-safe, as gmtime_r() need not be. */
#define TIME_ROOM 25
static void
put_time(char text[TIME_ROOM])
{
	struct timespec now;
	char *at = text;
	int64_t days, era, year;
	unsigned second, day, month;

	clock_gettime(CLOCK_REALTIME, &now);
	second = (unsigned)(now.tv_sec % 86400);
	/* days since 0000-03-01: years begin in March, so that leap days are last */
	days = now.tv_sec / 86400 + 719468;
	era = days / 146097;
	day = (unsigned)(days - era * 146097);
	year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	day -= (unsigned)(365 * year + year / 4 - year / 100);
	month = (5 * day + 2) / 153;
	day -= (153 * month + 2) / 5 - 1;
	month = month < 10 ? month + 3 : month - 9;
	year += era * 400 + (month <= 2);
	at = put_digits(at, 4, (uint64_t)year);
	*at++ = '-';
	at = put_digits(at, 2, month);
	*at++ = '-';
	at = put_digits(at, 2, day);
	*at++ = 'T';
	at = put_digits(at, 2, second / 3600);
	*at++ = ':';
	at = put_digits(at, 2, second / 60 % 60);
	*at++ = ':';
	at = put_digits(at, 2, second % 60);
	*at++ = '.';
	at = put_digits(at, 3, (uint64_t)now.tv_nsec / 1000000);
	*at++ = 'Z';
	*at = '\0';
}

static bool
has_time(void)
{
	return atomic_load_explicit(&timed, memory_order_relaxed) && !journal;
}

void
log_event_list(enum log_level level, const struct log_field *fields, size_t count,
	       const char *format, va_list args)
{
	int form = atomic_load_explicit(&format_now, memory_order_relaxed);
	struct line l = {.length = 0};
	char text[TEXT_MAX], time[TIME_ROOM];

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
		if (has_time()) {
			put_time(time);
			put(&l, time);
			put(&l, " ");
		}
		put(&l, program_invocation_short_name);
		put(&l, ": ");
		put(&l, text);
	} else {
		bool json = form == LOG_FORMAT_JSON;
		struct log_field head[] = {
		    {"level", 0, level_name[level]},
		    {"program", 0, program_invocation_short_name},
		    {"pid", (uint64_t)getpid(), NULL},
		    {"msg", 0, text},
		};

		put_time(time);
		put(&l, json ? "{\"time\":" : "time=");
		put_quoted(&l, time);
		for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
			put_field(&l, json, &head[i]);
		if (instance)
			put_field(&l, json, &(struct log_field){"instance", 0, instance});
		for (size_t i = 0; i < count; i++)
			put_field(&l, json, &fields[i]);
		if (json)
			put(&l, "}");
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

/* ---- lines of others ---- */

struct stream {
	enum log_level level;
	size_t length;
	char line[LOG_STREAM_LINE];
};

static void
end_line(struct stream *s)
{
	char *from = s->line;

	s->line[s->length] = '\0';
	s->length = 0;
	from += strspn(from, " \t");
	if (*from)
		log_event(s->level, NULL, 0, "%s", from);
}

static ssize_t
stream_write(void *cookie, const char *bytes, size_t count)
{
	struct stream *s = cookie;

	for (size_t i = 0; i < count; i++) {
		if (bytes[i] == '\n' || s->length == sizeof(s->line) - 1)
			end_line(s);
		if (bytes[i] != '\n')
			s->line[s->length++] = bytes[i];
	}
	return (ssize_t)count;
}

static int
stream_close(void *cookie)
{
	struct stream *s = cookie;

	if (s->length)
		end_line(s);
	free(s);
	return 0;
}

FILE *
log_stream(enum log_level level)
{
	struct stream *s = calloc(1, sizeof(*s));
	FILE *f = NULL;

	if (s)
		f = fopencookie(
		    s, "w", (cookie_io_functions_t){.write = stream_write, .close = stream_close});
	if (!f) {
		free(s);
		return NULL;
	}
	s->level = level;
	setvbuf(f, NULL, _IOLBF, 0);
	return f;
}

/* ---- lines of signal handlers ---- */

struct raw {
	char *at, *end;
};

static void
raw_add(struct raw *r, const char *text)
{
	while (*text && r->at < r->end)
		*r->at++ = *text++;
}

void
log_raw_begin(enum log_level level, char *text, size_t size)
{
	bool json = log_format() == LOG_FORMAT_JSON, plain = log_format() == LOG_FORMAT_TEXT;
	struct raw r = {text, text + size - 1};
	char time[TIME_ROOM], pid[8];

	raw_add(&r, log_prefix(level));
	put_time(time);
	*put_digits(pid, 7, (uint64_t)getpid()) = '\0';
	if (plain) {
		if (has_time()) {
			raw_add(&r, time);
			raw_add(&r, " ");
		}
		raw_add(&r, program_invocation_short_name);
		raw_add(&r, ": ");
	} else {
		raw_add(&r, json ? "{\"time\":\"" : "time=\"");
		raw_add(&r, time);
		raw_add(&r, json ? "\",\"level\":\"" : "\" level=\"");
		raw_add(&r, level_name[level]);
		raw_add(&r, json ? "\",\"program\":\"" : "\" program=\"");
		raw_add(&r, program_invocation_short_name);
		raw_add(&r, json ? "\",\"pid\":" : "\" pid=");
		raw_add(&r, pid + strspn(pid, "0"));
		raw_add(&r, json ? ",\"instance\":\"" : " instance=\"");
		raw_add(&r, instance ? instance : "");
		raw_add(&r, json ? "\",\"msg\":\"" : "\" msg=\"");
	}
	*r.at = '\0';
}

const char *
log_raw_end(void)
{
	int format = log_format();

	return format == LOG_FORMAT_TEXT ? "\n" : format == LOG_FORMAT_JSON ? "\"}\n" : "\"\n";
}
