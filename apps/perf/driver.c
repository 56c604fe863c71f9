/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver.h"

#include "clock.h"
#include "ports.h"

#include <errno.h>
#include <string.h>

#define LOOK_EVERY 256u /* waits between two looks at the clock */
#define WARMUP_LAT 1000u
#define WARMUP_MESSAGES 10000u
#define WARMUP_BYTES (64u << 20)
#define PROGRESS_NS (NS_PER_S / 4)

atomic_bool perf_stop;

int
driver_wait(struct driver *d)
{
	struct perf_flow *f = &d->flow;
	uint64_t now;
	int rc = 0;

	if (f->blocked || (d->here && d->here->flow.blocked))
		perf_idle_events(&d->idle, 0);
	if (d->here) {
		rc = responder_step(d->here);
		if (rc < 0)
			return rc;
	}
	if (rc)
		d->idle.empty = 0; /* both ends' work: no reason to look for others on the CPU */
	else
		perf_idle(&d->idle);
	if (!d->idle.sleeping && !f->wait_ms && ++d->idles % LOOK_EVERY)
		return 0;
	if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
		return -EINTR;
	now = now_ns();
	if (f->sent + f->received != d->moved) {
		d->moved = f->sent + f->received;
		d->moved_ns = now;
	}
	if (now - d->moved_ns > (uint64_t)d->options->patience_s * NS_PER_S)
		return -ETIMEDOUT;
	driver_progress(d, now);
	return 0;
}

void
driver_progress(struct driver *d, uint64_t now)
{
	if (!d->progress || now - d->looked_ns < PROGRESS_NS)
		return;
	d->looked_ns = now;
	fprintf(stderr, "\r%s %u B: %llu sent, %llu received \033[K",
		perf_test_name(d->flow.out.test), d->flow.out.size,
		(unsigned long long)d->flow.sent, (unsigned long long)d->flow.received);
}

/* Sends a control message, however long that takes. */
static int
tell(struct driver *d, struct perf_message *m, enum perf_kind kind)
{
	int rc;

	while ((rc = perf_flow_send_control(&d->flow, m, kind)) == -EAGAIN) {
		rc = driver_wait(d);
		if (rc)
			return rc;
	}
	return rc;
}

static int
await_ready(struct driver *d, struct perf_message *ready)
{
	struct perf_flow *f = &d->flow;
	int rc;

	while ((rc = perf_flow_recv_control(f)) == -EAGAIN) {
		rc = driver_wait(d);
		if (rc)
			return rc;
	}
	if (!rc)
		rc = perf_message_read(ready, &f->control, f->control_length, PERF_READY);
	if (!rc && ready->status)
		rc = -(int)ready->status;
	return rc;
}

/* With -b messages of the plan still arrive before the result does. */
static int
await_result(struct driver *d, struct perf_message *result)
{
	struct perf_flow *f = &d->flow;
	int rc;

	for (;;) {
		rc = perf_flow_recv(f);
		if (rc == FLOW_CONTROL)
			return perf_message_read(result, &f->control, f->control_length,
						 PERF_RESULT);
		if (rc == -EAGAIN)
			rc = driver_wait(d);
		if (rc)
			return rc;
	}
}

static struct perf_message
request_of(const struct perf_options *o, uint32_t test, uint32_t size)
{
	struct perf_message m = {
	    .test = test,
	    .size = size,
	    .window = o->window,
	    .count = o->count,
	    .large = test == PERF_MIX ? o->large : 0,
	    .seed = o->seed,
	    .flags = (o->both && test != PERF_LAT ? PERF_BOTH : 0) | (o->verify ? PERF_VERIFY : 0) |
		     (o->sleep ? PERF_SLEEP : 0) | (o->loop ? PERF_HERE : 0) |
		     (o->copy ? PERF_COPY : 0) | (o->flags & PERF_WAYS),
	};

	m.warmup = test == PERF_LAT ? WARMUP_LAT : WARMUP_BYTES / (size + 1);
	if (m.warmup > WARMUP_MESSAGES)
		m.warmup = WARMUP_MESSAGES;
	if (o->count && m.warmup > o->count / 10)
		m.warmup = o->count / 10;
	return m;
}

/* What both ends saw, put together. */
static void
conclude(const struct perf_flow *f, const struct perf_message *result, struct perf_result *r)
{
	r->count = f->sent;
	r->errors = f->errors + result->errors;
	/* all that was sent has arrived, in both directions */
	if (result->received != f->sent)
		r->errors += result->received < f->sent ? f->sent - result->received : 1;
	if (f->received != result->sent)
		r->errors += f->received < result->sent ? result->sent - f->received : 1;
	r->payload = result->bytes;
	if (r->test != PERF_LAT && result->measured_ns) {
		r->duration_s = (double)result->measured_ns / 1e9;
		r->msgs_per_s = (double)result->measured / r->duration_s;
		/* mixed sizes: the measured part has the whole's mean size */
		if (result->received)
			r->bytes_per_s =
			    r->msgs_per_s * (double)result->bytes / (double)result->received;
	}
	r->peer_ports_known = result->ports_known;
	r->peer_ports = result->ports;
}

static int
run_test(struct driver *d, const struct perf_message *request, struct perf_result *r,
	 const char **what)
{
	struct perf_message m = *request, end, result;
	int rc;

	*what = "asking the server";
	rc = tell(d, &m, PERF_REQUEST);
	if (!rc)
		rc = await_ready(d, &m);
	if (!rc)
		rc = perf_flow_start(&d->flow, request, true);
	if (rc)
		return rc;
	r->peer_pid = (pid_t)m.pid;
	*what = "the messages";
	rc = request->test == PERF_LAT ? driver_latency(d, r) : driver_stream(d, r);
	if (rc)
		return rc;
	*what = "the server's result";
	end = (struct perf_message){.sent = d->flow.sent};
	rc = tell(d, &end, PERF_END);
	if (!rc)
		rc = await_result(d, &result);
	if (!rc)
		conclude(&d->flow, &result, r);
	return rc;
}

int
driver_run(struct driver *d, uint32_t test, uint32_t size, struct perf_result *r, const char **what)
{
	struct perf_message request = request_of(d->options, test, size);
	struct perf_ports before, after;
	int rc;

	memset(r, 0, sizeof(*r));
	histogram_clear(&r->latency);
	r->test = test;
	r->size = size;
	d->moved = d->flow.sent + d->flow.received;
	d->moved_ns = d->looked_ns = now_ns();
	r->ports_known = perf_ports_read(d->options->instance, &before, &r->pid) == 0;
	rc = run_test(d, &request, r, what);
	if (d->progress)
		fputs("\r\033[K", stderr);
	if (!rc && r->ports_known) {
		r->ports_known = perf_ports_read(d->options->instance, &after, &r->pid) == 0;
		r->ports = perf_ports_since(&before, &after);
	}
	return rc;
}
