/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -t call, return: threads of the driver call a function in threads of the server, thread i in
 * thread i.
 * Both programs form a group, whose invoker lives as long as the run. With --inside they are one
 * program, and the second half of its threads are those of the server. With --alltoall all programs
 * form one group, and each has both halves: thread i calls the second half's thread i of all others
 * in turn.
 */
#ifndef WEIR_PERF_CALL_H
#define WEIR_PERF_CALL_H

#include "message.h"

#include "weir/invoke.h"

#include <stdbool.h>

/* Functions: counts. Its result are the arguments, or with -t call and -w it calls CALL_ANSWER of
 * the caller with them. */
enum { CALL_COUNT, CALL_ANSWER, CALL_FUNCTIONS };

struct call_rx;

struct call_group {
	struct weir_group *g;
	struct weir_invoker *v; /* NULL: none */
	struct call_rx *rx;	/* --alltoall: its threads run the calls of all others */
};

/* Collective of the programs of the group: makes group and invoker. 0 or -errno. */
int call_group_open(struct call_group *p, struct weir *w, const struct perf_message *request,
		    uint32_t rank, int timeout_ms);
void call_group_close(struct call_group *p);

void call_count(struct weir_incoming *c, const void *args, size_t length);
void call_count_row(struct weir_incoming *c, const void *args, size_t length, size_t stride,
		    size_t count);
void call_answered(struct weir_incoming *c, const void *args, size_t length);

/* The contents of a thread's calls. */
struct perf_schedule call_schedule(const struct perf_message *request, uint32_t thread);

struct driver;

/* --inside, --alltoall: makes the invoker of a run, before servers are asked. 0 or -errno. */
int call_own_open(struct driver *d, uint32_t test, uint32_t size);

/* The threads of the server, for one request; with --alltoall for those of all other programs. */

/* Starts them, or finds those of `calls`, which has the invoker of --inside and --alltoall;
 * otherwise they make it with the driver. 0 or -errno. */
int call_rx_start(struct call_rx **rx, struct weir *w, struct call_group *calls,
		  const struct perf_message *request, int timeout_ms);
/* Whether the driver may begin: 0, -EAGAIN, or why not. */
int call_rx_ready(struct call_rx *rx);
/* Calls of the request that they have run. */
uint64_t call_rx_count(const struct call_rx *rx, const struct perf_message *request);
/* Asks them to end, unless they also run calls of others. Whether the counts are final. */
bool call_rx_end(struct call_rx *rx, const struct perf_message *request);
/* Writes the request's counts into a RESULT if it is not NULL; the last request ends the threads.
 * An `rx` of NULL is allowed. */
void call_rx_close(struct call_rx *rx, const struct perf_message *request,
		   struct perf_message *result);

#endif
