/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl: asks a data plane over control.sock. Exit codes: 0, 1, 2, 3 as everywhere; 4: time is
 * over. */
#ifndef WEIR_APPS_WEIRCTL_H
#define WEIR_APPS_WEIRCTL_H

#include "common/dpctl.h"

#include <jansson.h>
#include <stdbool.h>

enum { WEIRCTL_OK, WEIRCTL_FAILED, WEIRCTL_USAGE, WEIRCTL_RESOURCE, WEIRCTL_TIMEOUT };

#define WEIRCTL_REASON_MAX 256
#define WEIRCTL_ANSWER_SECONDS 5.0

/* A connection to control.sock. */
struct query {
	int fd;
	char reason[WEIRCTL_REASON_MAX]; /* why the last call failed: cause; remedy */
	union {
		struct weir_ctl_msg m;
		uint8_t bytes[WEIR_CTL_MAX];
	} in;
};

/* All records of one kind. */
struct rows {
	uint32_t kind; /* enum weir_ctl_rows */
	uint32_t count, bytes;
	uint8_t *records;
};

/* ---- weirctl_pki.c ---- */
/* `weirctl pki ...`, argv[0] is "pki": its exit code. */
int pki(int argc, char **argv);

/* ---- weirctl_query.c ---- */
/* 0, or an exit code and q->reason. No call of q blocks longer than `seconds` for an answer. */
int query_open(struct query *q, const char *instance, double seconds);
void query_limit(struct query *q, double seconds);
void query_close(struct query *q);
/* A message of fixed size, with a descriptor or -1; one checked message of `type` into q->in. */
int query_send(struct query *q, struct weir_ctl_msg *m, int fd);
int query_receive(struct query *q, uint32_t type);
/* 0 and *rows (free rows->records), or an exit code and q->reason. */
int query_rows(struct query *q, uint32_t kind, struct rows *rows);

static inline const void *
rows_at(const struct rows *rows, uint32_t i)
{
	return rows->records + (size_t)i * rows->bytes;
}

/* ---- weirctl_rows.c ---- */
/* Kind of a name such as "nodes", 0 if there is none. */
uint32_t rows_kind(const char *name);
/* The records as an array of objects; NULL: out of memory. */
json_t *rows_json(const struct rows *rows);

/* ---- weirctl_table.c ---- */
/* Prints the array as an aligned table with units. */
void table_print(uint32_t kind, const json_t *array);

/* ---- weirctl_wait.c ---- */
/* Waits until `what` holds. Returns the exit code; prints why not. */
int wait_for(const char *instance, const char *what, double seconds);

/* ---- weirctl_capture.c ---- */
struct capture_options {
	const char *port, *file; /* file "-": stdout */
	double seconds;		 /* 0: until a signal */
	uint64_t packets;	 /* 0: no limit */
	bool json;
};
/* Until its end. Returns the exit code; prints how it went. */
int capture(const char *instance, const struct capture_options *o);

/* ---- weirctl_set.c ---- */
/* Returns the exit code; prints why not. */
int set(const char *instance, const char *key, const char *value);

/* Prints "weirctl: ..." on stderr; returns `code`. */
__attribute__((format(printf, 2, 3))) int weirctl_fail(int code, const char *format, ...);

#endif
