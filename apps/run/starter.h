/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes of a group and their standard streams, in one event loop. Each process leads a
 * process group, so that signals reach its own children too.
 */
#ifndef WEIR_RUN_STARTER_H
#define WEIR_RUN_STARTER_H

#include "cpus.h"
#include "lines.h"
#include "run.h"

#include <event2/event.h>
#include <event2/util.h>
#include <stdbool.h>
#include <sys/types.h>

struct evbuffer;
struct starter;

#define EXIT_FAILED 1 /* of weir-run itself */
#define EXIT_USAGE 2

/* Standard output, standard error. */
struct output {
	struct starter *starter;
	int fd;			  /* 1, 2 */
	struct evbuffer *pending; /* whole lines */
	struct event *writable;
	bool paused; /* processes wait: too much is pending */
	bool failed; /* lines are dropped */
};

/* The end of a pipe into which a process writes its output. */
struct source {
	struct output *output;
	struct event *readable; /* NULL: the process has closed it */
	struct lines lines;
};

/* Standard input, for process 0. */
struct input {
	int fd; /* of the pipe to it; -1: closed */
	struct evbuffer *pending;
	struct event *readable, *writable;
	struct event *again; /* after a look in the background of a terminal */
	bool ended;
};

struct process {
	pid_t pid;		 /* 0: has ended */
	struct source source[2]; /* standard output, standard error */
};

struct starter {
	const struct run_options *options;
	char **command; /* ends with NULL */
	struct cpus cpus;
	struct event_base *base;
	struct event *signals[5], *grace;
	struct output output[2];
	struct input input;
	struct process *process; /* by rank */
	uint32_t left;		 /* processes that have not ended */
	int code;		 /* of the first that has failed; 0: none */
	bool ending;		 /* all are told to end */
};

/* ---- processes.c ---- */
/* Starts the processes, and returns the exit code when all have ended. */
int starter_run(const struct run_options *o, char **command);
/* Has all processes end: by SIGTERM, and after 5 s by SIGKILL. */
void starter_end_all(struct starter *s);
/* Something has ended: leaves the loop when nothing is left. */
void starter_settle(struct starter *s);

/* ---- streams.c ---- */
/* Before the processes start. 0 or -ENOMEM. */
int streams_open(struct starter *s);
/* A process has started; takes the ends of its pipes, `in` for process 0. 0 or -ENOMEM. */
int streams_add(struct starter *s, uint32_t rank, int in, int out, int err);
/* All processes have ended: takes what they have written. */
void streams_drain(struct starter *s);
/* Whether all output is written. */
bool streams_done(const struct starter *s);
/* A line of weir-run's own, on standard error. */
void streams_say(struct starter *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void streams_close(struct starter *s);

#endif
