/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -t call, return: threads of the driver call a function in threads of the server, thread i in
 * thread i.
 * Both programs form a group, whose invoker lives as long as the run. With --inside they are one
 * program, and the second half of its threads are those of the server.
 */
#ifndef WEIR_PERF_CALL_H
#define WEIR_PERF_CALL_H

#include "message.h"

#include "weir/invoke.h"

#include <stdbool.h>

/* Functions: counts. Its result are the arguments, or with -t call and -w it calls CALL_ANSWER of
 * the caller with them. */
enum { CALL_COUNT, CALL_ANSWER, CALL_FUNCTIONS };

struct call_pair {
	struct weir_group *g;
	struct weir_invoker *v; /* NULL: none */
};

/* Collective of both programs, or with --inside alone: makes group and invoker. 0 or -errno. */
int call_pair_open(struct call_pair *p, struct weir *w, const struct perf_message *request,
		   uint32_t rank, int timeout_ms);
void call_pair_close(struct call_pair *p);

void call_count(struct weir_incoming *c, const void *args, size_t length);
void call_count_row(struct weir_incoming *c, const void *args, size_t length, size_t stride,
		    size_t count);
void call_answered(struct weir_incoming *c, const void *args, size_t length);

/* The contents of a thread's calls. */
struct perf_schedule call_schedule(const struct perf_message *request, uint32_t thread);

struct driver;

/* --inside: makes the invoker of a run, before the server is asked. 0 or -errno. */
int call_inside_open(struct driver *d, uint32_t test, uint32_t size);

/* The threads of the server, for one request. */
struct call_rx;

/* Starts them. `inside` has the invoker; NULL: they make it with the driver. 0 or -errno. */
int call_rx_start(struct call_rx **rx, struct weir *w, const struct call_pair *inside,
		  const struct perf_message *request, int timeout_ms);
/* Whether the driver may begin: 0, -EAGAIN, or why not. */
int call_rx_ready(struct call_rx *rx);
/* Calls that they have run. */
uint64_t call_rx_count(const struct call_rx *rx);
/* Asks them to end. Whether they have. */
bool call_rx_end(struct call_rx *rx);
/* Ends them and writes their counts into a RESULT. NULL is allowed. */
void call_rx_close(struct call_rx *rx, struct perf_message *result);

#endif
