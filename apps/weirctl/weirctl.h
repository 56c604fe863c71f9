/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weirctl: asks a data plane over control.sock. One command line, or a prompt whose lines are
 * parsed the same way. Exit codes: 0, 1, 2, 3 as everywhere; 4: time is over.
 */
#ifndef WEIR_APPS_WEIRCTL_H
#define WEIR_APPS_WEIRCTL_H

#include "options.h"

#include "ipc/ctl_client.h"
#include "ipc/fields.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>

enum { WEIRCTL_OK, WEIRCTL_FAILED, WEIRCTL_USAGE, WEIRCTL_RESOURCE, WEIRCTL_TIMEOUT };

#define WEIRCTL_REASON_MAX 256
#define WEIRCTL_ANSWER_SECONDS 5.0
#define WEIRCTL_WORDS 32 /* of a line */

/* A connection to control.sock. */
struct query {
	struct weir_ctl_client c;
	bool late;			 /* the last call waited for an answer in vain */
	char reason[WEIRCTL_REASON_MAX]; /* why the last call failed: cause; remedy */
};

/* All records of one kind. */
struct rows {
	uint32_t kind; /* enum weir_ctl_rows */
	uint32_t count, bytes;
	uint8_t *records;
	size_t room; /* bytes that records has room for */
};

/* Kind of a word of a command, for completion. */
enum weirctl_word {
	WORD_NONE,
	WORD_COMMAND,
	WORD_ROWS,
	WORD_CONDITION,
	WORD_PORT,
	WORD_FILE,
	WORD_KEY,
	WORD_VALUE,
	WORD_VICTIM,
	WORD_NODE,
	WORD_SWITCH,
};

struct weirctl_command {
	const char *name;
	const char *usage; /* its words */
	const char *help;
	int least, most; /* words behind the name */
	enum weirctl_word word[3];
	int (*run)(const struct weirctl_options *o, int argc, char **argv);
};

/* ---- main.c ---- */
/* Monotonic seconds. */
double weirctl_now(void);
/* Prints "weirctl: ..." on stderr; returns `code`. */
__attribute__((format(printf, 2, 3))) int weirctl_fail(int code, const char *format, ...);
/* Sets a prefix of messages: the place that a line came from; "": none. */
void weirctl_place(const char *place);

/* ---- command.c ---- */
/* Runs one command with these options. Returns the exit code; what went wrong has been said. */
int command_run(const struct weirctl_options *o, int argc, char **argv);
/* The same for a line as it was typed. */
int command_line(const struct weirctl_options *base, char *line);
/* All commands; the last one has no name. */
extern const struct weirctl_command weirctl_commands[];
const struct weirctl_command *command_find(const char *name);

/* ---- prompt.c ---- */
/* Commands from a terminal until its end; from anything else until one fails. The exit code. */
int prompt(const struct weirctl_options *o);

/* ---- complete.c ---- */
struct words {
	char **word;
	size_t count, room;
};
/* Finds completions of `text`, the word behind those in argv; sorted. */
void complete(const struct weirctl_options *o, int argc, char **argv, const char *text,
	      struct words *found);
void words_free(struct words *w);

/* ---- pki.c ---- */
/* `weirctl pki ...`, argv[0] is "pki": its exit code. It has options of its own. */
int pki(int argc, char **argv);

/* ---- query.c ---- */
/* 0, or an exit code and q->reason. No call of q blocks longer than `seconds` for an answer. */
int query_open(struct query *q, const char *instance, double seconds);
/* A message, with a descriptor or -1; one checked message of `type` into q->c.in. */
int query_send(struct query *q, struct weir_ctl_msg *m, int fd);
int query_receive(struct query *q, uint32_t type);
/* 0 and *rows (free rows->records), or an exit code and q->reason. */
int query_rows(struct query *q, uint32_t kind, struct rows *rows);
/* The same by a connection of its own. */
int query_once(struct query *q, const char *instance, double seconds, uint32_t kind,
	       struct rows *rows);
/* Sends a request by a connection of its own; 0: it was done, *count of them, or an exit code. */
int query_change(struct query *q, const char *instance, struct weir_ctl_msg *m, uint32_t *count);

static inline const void *
rows_at(const struct rows *rows, uint32_t i)
{
	return rows->records + (size_t)i * rows->bytes;
}

/* ---- signal.c ---- */
/* A descriptor that is readable once the user wants an end; signals_close() undoes it. */
int signals_open(sigset_t *before);
void signals_close(int fd, const sigset_t *before);

/* ---- rows.c ---- */
#define ROWS_FIELDS 32 /* of a table */
/* The records as an array of objects; NULL: out of memory. */
json_t *rows_json(const struct rows *rows);
json_t *rows_value(const struct weir_field *f, const void *row);
/* Text of a program's as JSON, whatever its bytes. */
json_t *rows_text(const char *text);
/* Prints the array as an aligned table of the fields that have a title. */
void table_print(const struct weir_field *f, uint32_t count, const json_t *array);

/* ---- rate.c ---- */
/* The rows of a data plane at one time. */
struct sample {
	double at,
	    conns_at; /* s; conns_at: of the connections, which are not asked for each time */
	struct rows engines, sessions, conns;
};
/* Tables that no single kind of record makes. */
struct table {
	const struct weir_field *fields;
	uint32_t count;
};
extern const struct table top_engines, top_programs, top_connections;
/* The rates between two samples, one array per table top_*. */
struct rates {
	json_t *engines, *programs, *conns;
};
/* false: out of memory. Arrays of programs and connections: largest rates first. */
bool rates_make(const struct sample *before, const struct sample *now, struct rates *r);
void rates_free(struct rates *r);
/* By vqpn, as rates_make() wants them. */
void rates_sort(struct rows *conns);

/* ---- one file a command ---- */
int top(const struct weirctl_options *o, int argc, char **argv);
int wait_for(const struct weirctl_options *o, int argc, char **argv);
int capture(const struct weirctl_options *o, int argc, char **argv);
int set(const struct weirctl_options *o, int argc, char **argv);
int evict(const struct weirctl_options *o, int argc, char **argv);
int drain(const struct weirctl_options *o, int argc, char **argv);

#endif
