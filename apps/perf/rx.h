/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -t message and request, the receiving end: handlers of the message model, one type per thread of
 * each client, so that the messages of a thread are checked in their order.
 */
#ifndef WEIR_PERF_RX_H
#define WEIR_PERF_RX_H

#include "message.h"

#include "weir/message.h"

#define RX_CLIENTS 128u
struct rx_client;

/*
 * Messengers of a server, opened at the first request and kept: one for all nodes of a cluster; one
 * per other client, because two programs of a node connected to the same messenger would replace
 * each other.
 */
struct perf_rx {
	struct weir_messenger *all, *own[RX_CLIENTS];
	struct rx_client *client[RX_CLIENTS];
};

/* Name of a messenger beside a stream service: of client `number`, or (negative) for all. */
int rx_service(const char *service, int number, char *to, size_t size);
/* Message type of a client's thread; READY carries the client number. */
static inline uint16_t
rx_type(bool request, uint32_t client, uint32_t thread)
{
	return WEIR_TYPE((request ? RX_CLIENTS : 0) + client, thread);
}
/* The schedule of a thread's messages. */
struct perf_schedule rx_schedule(const struct perf_message *request, uint32_t thread);

/* Registers the handlers for a request. 0 and the client number, or -errno. */
int rx_open(struct perf_rx *h, struct weir *weir, const char *service,
	    const struct perf_message *request, uint32_t *number);
/* Number of messages handled. */
uint64_t rx_count(const struct perf_rx *h, uint32_t number);
/* Unregisters the handlers and writes their counts into a RESULT. */
void rx_close(struct perf_rx *h, uint32_t number, struct perf_message *result);
void rx_fini(struct perf_rx *h);

#endif
