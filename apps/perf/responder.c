/* SPDX-License-Identifier: BSD-3-Clause */
#include "responder.h"

#include "clock.h"
#include "ports.h"
#include "server.h"

#include <errno.h>
#include <unistd.h>

#define BURST 64
#define DRAIN_NS (2 * NS_PER_S)
#define DRAIN_LOOK_US 100

void
responder_init(struct responder *r, struct server *server)
{
	*r = (struct responder){.server = server, .heard = -1};
	perf_flow_init(&r->flow, &server->buffers);
}

void
responder_fini(struct responder *r)
{
	struct perf_message nobody;

	if (r->heard >= 0)
		hear_close(&r->server->hearer, (uint32_t)r->heard, &nobody);
	perf_flow_close(&r->flow);
}

/* Ports are looked at once for all connections of a program, and not at all for sockets. */
static bool
read_ports(const struct responder *r, struct perf_ports *ports, pid_t *pid)
{
	return r->flow.conn && !(r->request.flags & PERF_UNSEEN) &&
	       perf_ports_read(r->server->options->instance, ports, pid) == 0;
}

/* Makes ready for a request that is in order. 0 or -errno. */
static int
prepare(struct responder *r)
{
	struct perf_region *region = &r->server->region;
	struct perf_flow *f = &r->flow;
	uint32_t number;
	int rc = 0;

	f->region = NULL;
	if (r->request.test == PERF_READ) {
		rc = r->request.region > region->size ? -E2BIG : perf_region_open(region, f->weir);
		f->region = region->memory;
	} else if (r->request.test >= PERF_CAST) {
		rc = hear_open(&r->server->hearer, f->weir, r->server->service, &r->request,
			       &number);
		r->heard = rc ? -1 : (int)number;
	}
	return rc ? rc : perf_flow_start(f, &r->request, false);
}

/* Waits for a request; whatever is wrong with it, the answer says so. */
static int
rest(struct responder *r)
{
	struct perf_flow *f = &r->flow;
	pid_t pid = 0;
	int rc = perf_flow_recv_control(f);

	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	rc = perf_message_read(&r->request, &f->control, f->control_length, PERF_REQUEST);
	if (!rc)
		rc = prepare(r);
	r->ports_known = !rc && read_ports(r, &r->before, &pid);
	r->reply = (struct perf_message){
	    .status = (uint32_t)-rc, .pid = (uint32_t)pid, .threads = (uint32_t)r->heard};
	r->start_ns = r->last_ns = now_ns();
	r->state = RESPONDER_READY;
	return 1;
}

/* Sends the waiting answer and goes on to `next`. */
static int
answer(struct responder *r, enum perf_kind kind, enum responder_state next)
{
	int rc = perf_flow_send_control(&r->flow, &r->reply, kind);

	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	r->state = r->reply.status ? RESPONDER_RESTING : next;
	return 1;
}

/* All that counts has come: what came of it. */
static void
conclude(struct responder *r)
{
	struct perf_flow *f = &r->flow;
	struct perf_ports after;
	pid_t pid;

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
	if (r->heard >= 0) {
		r->reply = (struct perf_message){0};
		hear_close(&r->server->hearer, (uint32_t)r->heard, &r->reply);
		r->heard = -1;
	}
	if (r->ports_known && read_ports(r, &after, &pid)) {
		r->reply.ports_known = 1;
		r->reply.ports = perf_ports_since(&r->before, &after);
	}
	r->state = RESPONDER_RESULT;
}

/* The driver has said END: everything it sent on this connection lies before that. */
static int
finish(struct responder *r)
{
	struct perf_flow *f = &r->flow;
	struct perf_message end;
	int rc = perf_message_read(&end, &f->control, f->control_length, PERF_END);

	if (rc)
		return rc;
	if (r->heard >= 0) {
		r->due = end.sent;
		r->due_ns = now_ns() + DRAIN_NS;
		r->state = RESPONDER_DRAINING;
	} else {
		conclude(r);
	}
	return 1;
}

static int
drain(struct responder *r)
{
	if (hear_count(&r->server->hearer, (uint32_t)r->heard) >= r->due || now_ns() >= r->due_ns)
		conclude(r);
	else
		usleep(DRAIN_LOOK_US); /* the handler threads need the CPU */
	return 1;
}

/* Up to `most` messages of the plan. How many, or FLOW_CONTROL in *control. */
static int
take(struct responder *r, int most, bool *control)
{
	struct perf_flow *f = &r->flow;
	int n, rc = 0;

	for (n = 0; n < most; n++) {
		rc = perf_flow_recv(f);
		if (rc)
			break;
		if (f->received == r->request.warmup)
			r->start_ns = now_ns();
	}
	*control = rc == FLOW_CONTROL;
	return rc < 0 && rc != -EAGAIN ? rc : n;
}

/* Sends until the plan asks no more of it now. */
static int
give(struct responder *r, uint64_t until)
{
	struct perf_flow *f = &r->flow;
	int n, rc = 0;

	for (n = 0; n < BURST && f->sent < until; n++) {
		rc = perf_flow_send(f);
		if (rc)
			break;
	}
	return rc < 0 && rc != -EAGAIN ? rc : n;
}

static int
run(struct responder *r)
{
	bool lat = r->request.test == PERF_LAT || r->request.test == PERF_READ, control;
	uint64_t until = 0;
	int got, gave = 0;

	/* a round trip's answer leaves before anything else is looked for */
	got = take(r, lat ? 1 : BURST, &control);
	if (got < 0)
		return got;
	if (lat)
		until = r->flow.received;
	else if (r->request.flags & PERF_BOTH)
		until = r->request.count ? r->request.count : UINT64_MAX;
	if (until && !control)
		gave = give(r, until);
	if (got)
		r->last_ns = now_ns();
	if (control)
		return finish(r);
	return gave < 0 ? gave : got + gave;
}

int
responder_step(struct responder *r)
{
	switch (r->state) {
	case RESPONDER_RESTING:
		return rest(r);
	case RESPONDER_READY:
		return answer(r, PERF_READY, RESPONDER_RUNNING);
	case RESPONDER_RUNNING:
		return run(r);
	case RESPONDER_DRAINING:
		return drain(r);
	case RESPONDER_RESULT:
		return answer(r, PERF_RESULT, RESPONDER_RESTING);
	}
	return -EINVAL;
}
