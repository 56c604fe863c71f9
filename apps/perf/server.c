/* SPDX-License-Identifier: BSD-3-Clause */
#include "server.h"

#include "driver.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 4096
#define BATCH 32	  /* connections per step */
#define EVENTS_EVERY 64u  /* busy steps between two polls for events */
#define SINGLE_EVERY 512u /* the same with one connection, which every step handles */

void
server_init(struct server *s, const struct perf_options *o, struct weir *weir, struct idle *idle)
{
	*s = (struct server){
	    .options = o, .weir = weir, .idle = idle, .socket = -1, .region.size = o->region};
	LIST_INIT(&s->all);
}

int
server_listen(struct server *s, const char *service)
{
	struct weir_listen_options options = {.size = sizeof(options),
					      .backlog = BACKLOG,
					      .flags =
						  s->options->is_public ? WEIR_LISTEN_PUBLIC : 0};

	snprintf(s->service, sizeof(s->service), "%s", service);
	if (s->weir)
		return weir_listen_with(s->weir, service, &options, &s->listener);
	s->socket = perf_socket_listen(service);
	return s->socket < 0 ? s->socket : perf_idle_watch(s->idle, s->socket, NULL);
}

int
server_add(struct server *s, struct weir_conn *conn, int fd)
{
	struct responder *r = malloc(sizeof(*r));
	int rc = r ? perf_queue_reserve(&s->ready, s->count + 1) : -ENOMEM;

	if (rc) {
		free(r);
		return rc;
	}
	responder_init(r, s);
	r->flow.queue = &s->ready;
	if (conn) {
		perf_flow_conn(&r->flow, s->weir, conn);
	} else {
		perf_flow_socket(&r->flow, fd);
		rc = perf_idle_watch(s->idle, fd, &r->flow);
	}
	LIST_INSERT_HEAD(&s->all, r, next);
	s->count++;
	/* a single connection is stepped without events, which may have been missed */
	if (s->count <= 2)
		LIST_FOREACH(r, &s->all, next)
	perf_queue_push(&s->ready, &r->flow);
	return rc;
}

static void
accept_all(struct server *s)
{
	struct weir_conn *conn = NULL;
	struct responder *r;
	int rc = 0, fd = -1;

	s->idle->accepts = false;
	LIST_FOREACH(r, &s->all, next)
	responder_accept(r);
	while (!rc) {
		if (s->listener)
			rc = weir_accept(s->listener, 0, &conn);
		else
			rc = fd = perf_socket_accept(s->socket);
		if (rc < 0)
			break;
		rc = server_add(s, conn, fd);
	}
	if (rc == -EAGAIN || rc == -ETIMEDOUT || rc == -EINTR ||
	    (rc == -ECONNABORTED && !s->listener))
		return;
	if (rc)
		s->failed = rc;
}

/*
 * Whether the client wants this end to poll. Handler threads and those that run calls, where they
 * work, get the CPU; memory needs nobody.
 */
static bool
polls(const struct responder *r)
{
	if (r->state == RESPONDER_RUNNING && (r->rx_client >= 0 || r->calls || r->target.pid))
		return false;
	return r->state != RESPONDER_IDLE && !(r->request.flags & PERF_SLEEP);
}

/* Steps a connection and frees it if it has ended. Returns the amount of work done. */
static int
step(struct server *s, struct responder *r)
{
	int rc;

	s->polling -= polls(r);
	rc = responder_step(r);
	if (rc >= 0) {
		s->polling += polls(r);
		/* what other connections receive next is not looked at for nothing */
		if (rc && !(r->state == RESPONDER_RUNNING && r->drained))
			perf_queue_push(&s->ready, &r->flow);
		return rc;
	}
	if (rc == -ENODEV)
		s->failed = rc;
	else if (rc != -ESHUTDOWN && rc != -ECONNRESET)
		fprintf(stderr, "weir-perf: a client's connection ended: %s; serving the others\n",
			strerror(-rc));
	weir_assert(s->count && s->polling < s->count);
	LIST_REMOVE(r, next);
	s->count--;
	responder_fini(r);
	free(r);
	if (s->count == 1)
		perf_queue_push(&s->ready, &LIST_FIRST(&s->all)->flow);
	return 1;
}

int
server_step(struct server *s)
{
	struct responder *only = s->count == 1 ? LIST_FIRST(&s->all) : NULL;
	struct perf_flow *f;
	int work = 0;

	if (s->idle->accepts)
		accept_all(s);
	if (only)
		work = step(s, only);
	else if (!perf_queue_count(&s->ready))
		perf_idle_events(s->idle, 0);
	if (!only) /* the flow is the responder's first member */
		for (int n = 0; n < BATCH && (f = perf_queue_pop(&s->ready, 0)); n++)
			work += step(s, (struct responder *)f);
	only = s->count == 1 ? LIST_FIRST(&s->all) : NULL;
	if (++s->turns % (only ? SINGLE_EVERY : EVENTS_EVERY) == 0 ||
	    (!work && (!only || only->flow.blocked)))
		perf_idle_events(s->idle, 0);
	return s->failed ? s->failed : work;
}

bool
server_rests(const struct server *s)
{
	return s->polling == 0;
}

void
server_close(struct server *s)
{
	struct responder *r;

	while ((r = LIST_FIRST(&s->all))) {
		LIST_REMOVE(r, next);
		responder_fini(r);
		free(r);
	}
	rx_fini(&s->rx);
	call_group_close(&s->calls);
	weir_listener_close(s->listener);
	if (s->socket >= 0)
		close(s->socket);
	perf_buffers_free(&s->buffers);
	perf_region_close(&s->region);
	part_close(&s->part);
	perf_queue_free(&s->ready);
}

/* Serves until a signal or an error, which may be the end of the data plane. 0 or -errno. */
static int
serve(struct weir *weir, const struct perf_options *o)
{
	struct idle idle;
	struct server s;
	int node, rc;

	perf_idle_init(&idle, weir, true);
	server_init(&s, o, weir, &idle);
	rc = server_listen(&s, o->service);
	if (!rc) {
		node = weir ? weir_node(weir) : -1;
		if (weir)
			printf("weir-perf: serving '%s' on instance %s", o->service, o->instance);
		else
			printf("weir-perf: serving TCP on %s", o->service);
		printf(node >= 0 ? ", node %d\n" : "\n", node);
		fflush(stdout);
	}
	while (!rc && !atomic_load_explicit(&perf_stop, memory_order_relaxed)) {
		rc = server_step(&s);
		if (rc > 0) {
			idle.empty = 0;
			rc = 0;
		} else if (!rc) {
			idle.sleeping = o->sleep || server_rests(&s);
			perf_idle(&idle);
		}
	}
	if (rc && !(weir && rc == -ENODEV))
		fprintf(stderr, "weir-perf: %s\n", weir ? weir_reason() : strerror(-rc));
	server_close(&s);
	if (idle.epoll >= 0)
		close(idle.epoll);
	return rc;
}

int
perf_serve(struct weir *weir, const struct perf_options *o)
{
	int rc;

	while ((rc = serve(weir, o)) == -ENODEV && weir) {
		fprintf(stderr,
			"weir-perf: the data plane is gone; waiting until instance %s is "
			"back\n",
			o->instance);
		do
			rc = weir_reattach(weir, -1);
		while (rc == -EINTR && !atomic_load(&perf_stop));
		if (atomic_load(&perf_stop))
			return 0;
		if (rc) {
			fprintf(stderr, "weir-perf: %s\n", weir_reason());
			break;
		}
	}
	return rc;
}
