/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -t message and request, the receiving end: handlers of the message model, a type for each thread
 * of each client, so that what a thread sends is checked in its order.
 */
#ifndef WEIR_PERF_HEAR_H
#define WEIR_PERF_HEAR_H

#include "message.h"

#include "weir/message.h"

#define HEAR_CLIENTS 128u
#define HEAR_THREADS 256u

struct hearing;

/*
 * Of a server. Messengers are opened when somebody asks first and stay: one for all nodes of a
 * cluster, which send by their own; one for each other client, as two programs of a node that send
 * to the same one would take turns in being connected.
 */
struct hearer {
	struct weir_messenger *all, *own[HEAR_CLIENTS];
	struct hearing *client[HEAR_CLIENTS];
};

/* Name of a messenger beside a stream service: of client `number`, or (negative) for all. */
int hear_service(const char *service, int number, char *to, size_t size);
/* Type of the messages of a client's thread; the client's number is told in READY. */
static inline uint16_t
hear_type(bool request, uint32_t client, uint32_t thread)
{
	return WEIR_TYPE((request ? HEAR_CLIENTS : 0) + client, thread);
}
/* The plan of a thread's messages. */
struct perf_plan hear_plan(const struct perf_message *request, uint32_t thread);

/* Begins to hear what a request announces. 0 and its number, or -errno. */
int hear_open(struct hearer *h, struct weir *weir, const char *service,
	      const struct perf_message *request, uint32_t *number);
/* Messages whose handlers have begun. */
uint64_t hear_count(const struct hearer *h, uint32_t number);
/* Ends that and writes what was heard into a RESULT. */
void hear_close(struct hearer *h, uint32_t number, struct perf_message *result);
void hear_fini(struct hearer *h);

#endif
