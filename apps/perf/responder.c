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
#define LOST_NS                                                                                    \
	(NS_PER_S / 5) /* datagrams that have not come by then after the last one are lost */

void
responder_init(struct responder *r, struct server *server)
{
	*r = (struct responder){.server = server, .rx_client = -1};
	perf_flow_init(&r->flow, &server->buffers);
}

/* Of the last run, if it has failed. */
static void
end_others(struct responder *r)
{
	target_end(&r->target);
	call_rx_close(r->calls, &r->request, NULL);
	r->calls = NULL;
}

void
responder_fini(struct responder *r)
{
	struct perf_message nobody;

	if (r->rx_client >= 0)
		rx_close(&r->server->rx, (uint32_t)r->rx_client, &nobody);
	end_others(r);
	weir_listener_close(r->datagrams);
	perf_flow_close(&r->flow);
}

void
responder_accept(struct responder *r)
{
	struct weir_conn *conn;

	if (!r->datagrams || weir_accept(r->datagrams, 0, &conn))
		return;
	weir_listener_close(r->datagrams);
	r->datagrams = NULL;
	perf_flow_data(&r->flow, conn);
	if (r->flow.queue)
		perf_queue_push(r->flow.queue, &r->flow);
}

/* Listens for the datagrams of a run. 0 or -errno. */
static int
open_datagrams(struct responder *r, uint64_t *number)
{
	char name[WEIR_SERVICE_MAX];

	weir_listener_close(r->datagrams);
	r->datagrams = NULL;
	if (!r->flow.weir)
		return -EOPNOTSUPP;
	*number = (uint64_t)getpid() << 32 | ++r->server->runs;
	perf_datagram_service(*number, name);
	return weir_listen(r->flow.weir, name, 1, &r->datagrams);
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

/* --alltoall through a window: this program is a member itself. 0 or -errno. */
static int
prepare_part(struct responder *r)
{
	struct remote_part *part = &r->server->part;
	const struct perf_message *request = &r->request;
	uint64_t bytes = remote_layout(remote_extent(request), request->threads).bytes;
	int rc;

	if (!r->server->options->alltoall)
		return -EOPNOTSUPP;
	rc = part_open(part, r->flow.weir, request, request->members);
	if (rc)
		return rc;
	if (remote_base(request) + bytes > part->bytes) /* not of this run */
		return -EINVAL;
	if (request->test == PERF_GET)
		remote_fill(request, part_of(part, request));
	return 0;
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
	if (r->calls) {
		r->reply = (struct perf_message){0};
		call_rx_close(r->calls, &r->request, &r->reply);
		r->calls = NULL;
	}
	if (r->server->part.region && r->request.group) {
		remote_check(&r->request, part_of(&r->server->part, &r->request),
			     &r->reply.received, &r->reply.errors);
		r->reply.bytes = r->reply.received * r->request.size;
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
	uint64_t datagrams = 0;
	uint32_t number;
	pid_t pid = 0;
	int rc = perf_flow_recv_control(f);

	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	end_others(r);
	rc = perf_message_read(request, &f->control, f->control_length, PERF_REQUEST);
	if (!rc) {
		f->region = NULL;
		if (request->test == PERF_READ) {
			rc = request->region > region->size ? -E2BIG
							    : perf_region_open(region, f->weir);
			f->region = region->memory;
		} else if (perf_is_call(request->test)) {
			rc = call_rx_start(&r->calls, f->weir, &r->server->calls, request,
					   r->server->options->patience_s * 1000);
		} else if (request->group && request->flags & PERF_HERE) {
			rc = prepare_part(r);
		} else if (perf_is_remote(request->test)) {
			rc = target_start(&r->target, r->server->options->instance, request);
		} else if (perf_is_message(request->test)) {
			rc = rx_open(&r->server->rx, f->weir, r->server->service, request, &number);
			r->rx_client = rc ? -1 : (int)number;
		}
		if (!rc)
			rc = perf_flow_start(f, request, false);
		if (!rc && request->flags & PERF_UD)
			rc = open_datagrams(r, &datagrams);
	}
	r->ports_known = !rc && read_ports(r, &r->before, &pid);
	r->reply = (struct perf_message){.status = (uint32_t)-rc,
					 .pid = (uint32_t)pid,
					 .threads = (uint32_t)r->rx_client,
					 .datagrams = datagrams};
	r->start_ns = r->last_ns = now_ns();
	r->state = r->target.pid || r->calls ? RESPONDER_PREPARING : RESPONDER_READY;
	return 1;
}

/* Awaits the program that exports memory, or threads that run calls. */
static int
step_preparing(struct responder *r)
{
	int rc = r->calls ? call_rx_ready(r->calls) : target_ready(&r->target, r->reply.key);

	if (rc == -EAGAIN) {
		usleep(DRAIN_SLEEP_US); /* they need the CPU */
		return 1;
	}
	if (rc)
		end_others(r);
	r->reply.status = (uint32_t)-rc;
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

	responder_accept(r);
	/* a round trip's answer leaves before the next message is looked for */
	received =
	    perf_flow_recv_burst(f, lat ? 1 : BURST, r->request.warmup, &r->start_ns, &control);
	if (received < 0)
		return received;
	if (lat)
		until = f->datagrams ? f->due : f->received;
	else if (r->request.flags & PERF_BOTH)
		until = r->request.count ? r->request.count : UINT64_MAX;
	if (until && !control && (f->data || !f->conn))
		sent = perf_flow_send_burst(f, until, BURST);
	if (received)
		r->last_ns = now_ns();
	r->drained = !lat && !control && f->batch <= 1 && received < BURST && sent < BURST;
	if (!control)
		return sent < 0 ? sent : received + sent;
	/* everything the driver sent on this connection precedes END */
	rc = perf_message_read(&end, &f->control, f->control_length, PERF_END);
	if (rc)
		return rc;
	if (r->target.pid) {
		target_ask(&r->target);
		r->state = RESPONDER_DRAINING;
	} else if (r->rx_client >= 0 || r->calls || f->datagrams) {
		r->due = end.sent;
		r->due_ns = now_ns() + (f->datagrams ? LOST_NS : DRAIN_NS);
		r->state = RESPONDER_DRAINING;
	} else {
		conclude(r);
	}
	return 1;
}

/* Datagrams that END has overtaken. The amount of work done, or -errno. */
static int
drain_datagrams(struct responder *r)
{
	struct perf_flow *f = &r->flow;
	bool control;
	int n;

	responder_accept(r);
	n = perf_flow_recv_burst(f, BURST, r->request.warmup, &r->start_ns, &control);
	if (n < 0 || control)
		return control ? -EPROTO : n;
	if (n) {
		r->last_ns = now_ns();
		r->due_ns = r->last_ns + LOST_NS;
	} else if (f->received >= r->due || now_ns() >= r->due_ns) {
		conclude(r);
	}
	return 1;
}

/* Awaits what the program that exports memory has found there. */
static int
drain_target(struct responder *r)
{
	struct perf_message found = {0};
	int rc = target_result(&r->target, &found);

	if (rc == -EAGAIN) {
		usleep(DRAIN_SLEEP_US);
		return 1;
	}
	/* a member frees the window with the driver, and ends by itself */
	if (rc || !r->request.group)
		target_end(&r->target);
	conclude(r);
	r->reply.status = (uint32_t)-rc;
	r->reply.received = found.received;
	r->reply.bytes = found.bytes;
	r->reply.errors = found.errors;
	return 1;
}

/* Awaits calls that have been made, and the end of the threads that run them. */
static int
drain_calls(struct responder *r)
{
	uint64_t n = call_rx_count(r->calls, &r->request);

	if (n > r->flow.received)
		r->due_ns = now_ns() + DRAIN_NS;
	r->flow.received = n;
	if ((n < r->due && now_ns() < r->due_ns) || !call_rx_end(r->calls, &r->request))
		usleep(DRAIN_SLEEP_US);
	else
		conclude(r);
	return 1;
}

int
responder_step(struct responder *r)
{
	switch (r->state) {
	case RESPONDER_IDLE:
		return step_idle(r);
	case RESPONDER_PREPARING:
		return step_preparing(r);
	case RESPONDER_READY:
		return answer(r, PERF_READY, RESPONDER_RUNNING);
	case RESPONDER_RUNNING:
		return step_running(r);
	case RESPONDER_DRAINING:
		if (r->target.pid)
			return drain_target(r);
		if (r->calls)
			return drain_calls(r);
		if (r->flow.datagrams)
			return drain_datagrams(r);
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
