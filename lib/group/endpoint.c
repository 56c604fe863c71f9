/* SPDX-License-Identifier: BSD-3-Clause */
/* Where neighbours connect to: one listener for a joined group and all that are made from it. */
#include "handle.h"

#include "client/progress.h"
#include "ipc/invariant.h"
#include "stream/listen.h"
#include "stream/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define BACKLOG 1024u

void
endpoint_service(uint64_t id, char service[WEIR_SERVICE_MAX])
{
	snprintf(service, WEIR_SERVICE_MAX, "gm.%016llx", (unsigned long long)id);
}

int
endpoint_create(struct weir *w, struct endpoint **out)
{
	const struct weir_listen_options o = {.size = sizeof(o), .backlog = BACKLOG};
	struct endpoint *e = calloc(1, sizeof(*e));
	char service[WEIR_SERVICE_MAX];
	int rc;

	if (!e)
		return group_no_memory();
	if (getrandom(&e->id, sizeof(e->id), 0) != sizeof(e->id)) {
		free(e);
		return weir_fail(-EAGAIN, "the system has no random numbers yet; try again");
	}
	endpoint_service(e->id, service);
	rc = weir_listen_silent(w, service, &o, &e->listener);
	if (rc) {
		free(e);
		return rc;
	}
	e->worker = e->listener->worker;
	e->w = e->worker->w;
	e->users = 1;
	TAILQ_INIT(&e->incoming);
	pthread_mutex_init(&e->lock, NULL);
	*out = e;
	return 0;
}

void
endpoint_keep(struct endpoint *e)
{
	pthread_mutex_lock(&e->lock);
	weir_assert(e->users);
	e->users++;
	pthread_mutex_unlock(&e->lock);
}

static void
forget(struct endpoint *e, struct incoming *in)
{
	TAILQ_REMOVE(&e->incoming, in, next);
	free(in);
}

void
endpoint_drop(struct endpoint *e)
{
	struct incoming *in;
	bool last;

	pthread_mutex_lock(&e->lock);
	weir_assert(e->users);
	last = !--e->users;
	pthread_mutex_unlock(&e->lock);
	if (!last)
		return;
	while ((in = TAILQ_FIRST(&e->incoming))) {
		weir_close(in->conn);
		forget(e, in);
	}
	weir_listener_close(e->listener);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

int
endpoint_connect(struct endpoint *e, uint16_t node, const char *service, struct weir_conn **c)
{
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE, .id = node};
	int rc;

	snprintf(a.service, sizeof(a.service), "%s", service);
	weir_lock(e->worker);
	rc = weir_conn_start(e->worker, &a, NULL, c);
	if (!rc)
		(*c)->silent = true;
	weir_unlock(e->worker);
	return rc;
}

bool
group_hello_valid(const struct group_hello *h, size_t length)
{
	return length == sizeof(*h) && h->magic == GROUP_MAGIC && h->version == GROUP_VERSION;
}

void
endpoint_accept(struct endpoint *e)
{
	uint32_t count[2] = {0}; /* silent, unclaimed */
	struct incoming *in, *next;
	struct weir_conn *c;
	int rc;

	pthread_mutex_lock(&e->lock);
	while (!weir_accept(e->listener, 0, &c)) {
		in = calloc(1, sizeof(*in));
		if (!in) {
			weir_close(c); /* its program takes this one for ended */
			continue;
		}
		in->conn = c;
		TAILQ_INSERT_TAIL(&e->incoming, in, next);
	}
	for (in = TAILQ_FIRST(&e->incoming); in; in = next) {
		size_t length = 0;

		next = TAILQ_NEXT(in, next);
		if (in->said)
			continue;
		rc = weir_recv(in->conn, &in->hello, sizeof(in->hello), &length, 0);
		if (rc == -EAGAIN)
			continue;
		if (rc || !group_hello_valid(&in->hello, length)) {
			/* a probe that has ended, or not a member of this release */
			weir_close(in->conn);
			forget(e, in);
			continue;
		}
		in->said = true;
		TAILQ_REMOVE(&e->incoming, in, next);
		TAILQ_INSERT_TAIL(&e->incoming, in, next);
	}
	/*
	 * Of connections that say nothing, which may be probes, and of hellos that no group claims,
	 * the oldest go: their number is bounded. Each group of the endpoint awaits
	 * GROUP_NEIGHBOURS at most, its own or those of one that it makes.
	 */
	for (in = TAILQ_LAST(&e->incoming, incomings); in; in = next) {
		next = TAILQ_PREV(in, incomings, next);
		if (++count[in->said] <= e->users * GROUP_NEIGHBOURS)
			continue;
		weir_close(in->conn);
		forget(e, in);
	}
	pthread_mutex_unlock(&e->lock);
}

struct weir_conn *
endpoint_claim(struct endpoint *e, uint64_t context, uint32_t from)
{
	struct weir_conn *c = NULL;
	struct incoming *in;

	pthread_mutex_lock(&e->lock);
	TAILQ_FOREACH(in, &e->incoming, next)
	if (in->said && in->hello.context == context && in->hello.from == from) {
		c = in->conn;
		forget(e, in);
		break;
	}
	pthread_mutex_unlock(&e->lock);
	return c;
}
