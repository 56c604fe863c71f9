/* SPDX-License-Identifier: BSD-3-Clause */
/* Service names of this data plane and their listeners. Main thread. */
#ifndef WEIR_SERVICE_H
#define WEIR_SERVICE_H

#include "ipc/services.h"
#include "ipc/session_msg.h"

#include <sys/queue.h>

struct broker_session;

#define SERVICE_BACKLOG_DEFAULT 128u

struct service_listener {
	struct broker_session *session;
	uint32_t id; /* index in weir_arena_head.accepted | generation << 8 */
	uint32_t channel[WEIR_ENGINES_MAX];
	uint32_t backlog;
	uint32_t created; /* connections handed to the program since LISTEN */
	bool public;	  /* known to the whole cluster */
	bool holding;	  /* its program decides about each connection */
	uint64_t since;
	char service[WEIR_SERVICE_MAX];
	LIST_ENTRY(service_listener) entry; /* of its bucket */
};

#define SERVICE_BUCKETS 256u

struct service_table {
	LIST_HEAD(, service_listener) bucket[SERVICE_BUCKETS];
};

struct service_listener *service_find(const struct service_table *t, const char *name);
/* 0, or -EADDRINUSE. The listener stays the caller's. */
int service_add(struct service_table *t, struct service_listener *l);
void service_remove(struct service_listener *l);

#endif
