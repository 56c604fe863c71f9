/* SPDX-License-Identifier: BSD-3-Clause */
#include "responder.h"

#include "clock.h"
#include "ports.h"
#include "server.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <unistd.h>

#define BURST 64		/* messages per direction of one step */
#define DRAIN_NS (2 * NS_PER_S) /* how long messages may arrive after END */
#define DRAIN_SLEEP_US 100	/* between two looks for them */

void
responder_init(struct responder *r, struct server *server)
{
	*r = (struct responder){.server = server, .rx_client = -1};
	perf_flow_init(&r->flow, &server->buffers);
}

void
responder_fini(struct responder *r)
{
	struct perf_message nobody;

	if (r->rx_client >= 0)
		rx_close(&r->server->rx, (uint32_t)r->rx_client, &nobody);
	perf_flow_close(&r->flow);
}

/* One connection of a program reads the ports; sockets have none. */
static bool
read_ports(const struct responder *r, struct perf_ports *ports, pid_t *pid)
{
	return r->flow.conn && !(r->request.flags & PERF_NO_PORTS) &&
	       perf_ports_read(r->server->options->instance, ports, pid) == 0;
}

/* Sends r->reply and enters `next`. */
static int
answer(struct responder *r, enum perf_kind kind, enum responder_state next)
{
	int rc = perf_flow_send_control(&r->flow, &r->reply, kind);

	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	r->state = r->reply.status ? RESPONDER_IDLE : next;
	return 1;
}

/* Everything that counts has arrived: fills the RESULT. */
static void
conclude(struct responder *r)
{
	struct perf_flow *f = &r->flow;
	struct perf_ports after;
	pid_t pid;

	weir_assert(r->state == RESPONDER_RUNNING || r->state == RESPONDER_DRAINING);
	r->reply = (struct perf_message){
	    .received = f->received,
	    .bytes = f->bytes,
	    .errors = f->errors,
	    /* fewer than the warm-up: then all count, from READY on */
	    .measured =
		f->received > r->request.warmup ? f->received - r->request.warmup : f->received,
	    .start_ns = r->start_ns,
	    .last_ns = r->last_ns,
	};
	if (r->rx_client >= 0) {
		r->reply = (struct perf_message){0};
		rx_close(&r->server->rx, (uint32_t)r->rx_client, &r->reply);
		r->rx_client = -1;
	}
	if (r->ports_known && read_ports(r, &after, &pid)) {
		r->reply.ports_known = 1;
		r->reply.ports = perf_ports_since(&r->before, &after);
	}
	r->state = RESPONDER_RESULT;
}

/* Receives a request and prepares the run; READY carries the error if the request is invalid. */
static int
step_idle(struct responder *r)
{
	struct perf_region *region = &r->server->region;
	struct perf_message *request = &r->request;
	struct perf_flow *f = &r->flow;
	uint32_t number;
	pid_t pid = 0;
	int rc = perf_flow_recv_control(f);

	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	rc = perf_message_read(request, &f->control, f->control_length, PERF_REQUEST);
	if (!rc) {
		f->region = NULL;
		if (request->test == PERF_READ) {
			rc = request->region > region->size ? -E2BIG
							    : perf_region_open(region, f->weir);
			f->region = region->memory;
		} else if (request->test >= PERF_MESSAGES) {
			rc = rx_open(&r->server->rx, f->weir, r->server->service, request, &number);
			r->rx_client = rc ? -1 : (int)number;
		}
		if (!rc)
			rc = perf_flow_start(f, request, false);
	}
	r->ports_known = !rc && read_ports(r, &r->before, &pid);
	r->reply = (struct perf_message){
	    .status = (uint32_t)-rc, .pid = (uint32_t)pid, .threads = (uint32_t)r->rx_client};
	r->start_ns = r->last_ns = now_ns();
	r->state = RESPONDER_READY;
	return 1;
}

/* Receives messages and sends those of the other direction, until the driver sends END. */
static int
step_running(struct responder *r)
{
	bool lat = r->request.test == PERF_LAT || r->request.test == PERF_READ, control;
	struct perf_flow *f = &r->flow;
	struct perf_message end;
	uint64_t until = 0;
	int received, sent = 0, rc;

	/* a round trip's answer leaves before the next message is looked for */
	received =
	    perf_flow_recv_burst(f, lat ? 1 : BURST, r->request.warmup, &r->start_ns, &control);
	if (received < 0)
		return received;
	if (lat)
		until = f->received;
	else if (r->request.flags & PERF_BOTH)
		until = r->request.count ? r->request.count : UINT64_MAX;
	if (until && !control)
		sent = perf_flow_send_burst(f, until, BURST);
	if (received)
		r->last_ns = now_ns();
	if (!control)
		return sent < 0 ? sent : received + sent;
	/* everything the driver sent on this connection precedes END */
	rc = perf_message_read(&end, &f->control, f->control_length, PERF_END);
	if (rc)
		return rc;
	if (r->rx_client >= 0) {
		r->due = end.sent;
		r->due_ns = now_ns() + DRAIN_NS;
		r->state = RESPONDER_DRAINING;
	} else {
		conclude(r);
	}
	return 1;
}

int
responder_step(struct responder *r)
{
	switch (r->state) {
	case RESPONDER_IDLE:
		return step_idle(r);
	case RESPONDER_READY:
		return answer(r, PERF_READY, RESPONDER_RUNNING);
	case RESPONDER_RUNNING:
		return step_running(r);
	case RESPONDER_DRAINING:
		if (rx_count(&r->server->rx, (uint32_t)r->rx_client) >= r->due ||
		    now_ns() >= r->due_ns)
			conclude(r);
		else
			usleep(DRAIN_SLEEP_US); /* the handler threads need the CPU */
		return 1;
	case RESPONDER_RESULT:
		return answer(r, PERF_RESULT, RESPONDER_IDLE);
	}
	return -EINVAL;
}
