/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver.h"

#include "call.h"
#include "clock.h"
#include "ports.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define CLOCK_EVERY 256u	   /* waits between two readings of the clock */
#define WARMUP_LAT 1000u	   /* round trips that are not measured */
#define WARMUP_MESSAGES 10000u	   /* messages that are not measured, or fewer: */
#define WARMUP_BYTES (64u << 20)   /* bytes that are not measured */
#define PROGRESS_NS (NS_PER_S / 4) /* between two progress lines */
#define LIVE_NS (NS_PER_S / 100)   /* between two updates of struct team_live */
#define ARRIVE_SLEEP_US 200u	   /* between two looks at the other members */

atomic_bool perf_stop;

static uint64_t
sent_so_far(const struct driver *d)
{
	return d->flow_count == 1 ? d->flow->sent : d->sent;
}

static uint64_t
received_so_far(const struct driver *d)
{
	return d->flow_count == 1 ? d->flow->received : d->received;
}

int
driver_wait(struct driver *d)
{
	struct perf_flow *f = d->flow;
	uint64_t now;
	int rc = 0;

	if (f->blocked || d->flow_count > 1)
		perf_idle_events(&d->idle, 0);
	if (d->own_server) {
		rc = server_step(d->own_server);
		if (rc < 0)
			return rc;
	}
	if (rc)
		d->idle.empty = 0; /* both ends had work: no probe whether the CPU is shared */
	else if (!perf_queue_count(&d->ready) || d->options->rate)
		perf_idle(&d->idle);
	if (!d->idle.sleeping && !f->wait_ms && ++d->idles % CLOCK_EVERY)
		return 0;
	if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
		return -EINTR;
	if (d->team && atomic_load_explicit(&d->team->failed, memory_order_relaxed))
		return -ECANCELED;
	now = now_ns();
	if (sent_so_far(d) + received_so_far(d) != d->moved) {
		d->moved = sent_so_far(d) + received_so_far(d);
		d->moved_ns = now;
	}
	if (now - d->moved_ns > (uint64_t)d->options->patience_s * NS_PER_S)
		return -ETIMEDOUT;
	driver_progress(d, now);
	return 0;
}

/* Updates the counters that the starter of the team reads. */
static void
publish(struct driver *d, uint64_t errors)
{
	struct team_live *live = &d->team->member[d->number].live;

	atomic_store_explicit(&live->sent, sent_so_far(d), memory_order_relaxed);
	atomic_store_explicit(&live->received, received_so_far(d), memory_order_relaxed);
	atomic_store_explicit(&live->errors, errors, memory_order_relaxed);
}

void
driver_progress(struct driver *d, uint64_t now)
{
	if (now - d->looked_ns < (d->team ? LIVE_NS : PROGRESS_NS))
		return;
	d->looked_ns = now;
	if (d->team)
		publish(d, d->flow->errors);
	if (d->progress)
		fprintf(stderr, "\r%s %u B: %llu sent, %llu received \033[K",
			perf_test_name(d->flow->out.test), d->flow->out.size,
			(unsigned long long)sent_so_far(d), (unsigned long long)received_so_far(d));
}

void
driver_pick(struct driver *d)
{
	uint32_t i = (uint32_t)(d->flow - d->flows) + 1;

	if (d->random) {
		d->random = perf_mix(d->random + 0x9e3779b97f4a7c15ull) | 1;
		i = (uint32_t)(d->random >> 32);
	}
	d->flow = &d->flows[i % d->flow_count];
}

/* Sends a control message, waiting as needed. */
static int
send_control(struct driver *d, struct perf_flow *f, struct perf_message *m, enum perf_kind kind)
{
	int rc;

	d->flow = f;
	while ((rc = perf_flow_send_control(f, m, kind)) == -EAGAIN) {
		rc = driver_wait(d);
		if (rc)
			return rc;
	}
	return rc;
}

/* The part of connection i in a number that all connections share. */
static uint64_t
share(const struct driver *d, uint64_t whole, uint32_t i)
{
	uint32_t n = d->flow_count;

	if (d->options->alltoall)
		return whole; /* to each node */
	return whole / n + (i < whole % n);
}

struct perf_message
driver_request(const struct driver *d, uint32_t test, uint32_t size, uint32_t i)
{
	const struct perf_options *o = d->options;
	bool many = d->flow_count > 1 || d->team, window = perf_in_window(o, test);
	struct perf_message m = {
	    .test = test,
	    .size = size,
	    .window = test == PERF_READ ? 0 : o->window,
	    .batch = o->batch,
	    .count = share(d, o->count, i),
	    .large = test == PERF_MIX ? share(d, o->large, i) : 0,
	    .region = o->region,
	    .threads = o->threads,
	    .type = test == PERF_ACC || test == PERF_FOP ? o->type : 0,
	    .op = test == PERF_ACC || test == PERF_FOP ? o->op : 0,
	    .block = perf_has_layout(test) ? o->block : 0,
	    .stride = o->stride,
	    .seed = o->seed + (uint64_t)d->number * d->flow_count + i,
	    .flags = (o->both && test < PERF_READ && test != PERF_LAT ? PERF_BOTH : 0) |
		     (o->verify ? PERF_VERIFY : 0) | (o->sleep ? PERF_SLEEP : 0) |
		     (d->own_server ? PERF_HERE : 0) | (o->copy ? PERF_COPY : 0) |
		     (o->adopt && test == PERF_BW ? PERF_ADOPT : 0) | (o->flags & PERF_TRANSFERS) |
		     (o->flags & WEIR_UD ? PERF_UD : 0) | (many ? PERF_MANY : 0) |
		     (o->stop && perf_is_remote(test) ? PERF_STOP : 0) |
		     (i || d->number ? PERF_NO_PORTS : 0),
	};

	if (window) {
		m.group = d->group;
		m.members = o->alltoall ? d->team->count : 2 * o->programs;
		m.rank = o->alltoall ? d->number : driver_rank(d, i);
		if (test == PERF_PSCW)
			m.partners = o->partners ? o->partners : 1;
		/* else a flush would wait for the operations of all threads */
		m.options = (o->threads > 1 ? WEIR_WINDOW_THREADS : 0) |
			    (o->apart ? WEIR_WINDOW_APART : 0) |
			    (o->by_engine ? WEIR_WINDOW_BY_ENGINE : 0);
	}
	if (perf_is_call(test)) {
		m.group = o->inside	? 0
			  : o->alltoall ? d->group
					: perf_mix(d->group + d->number) | 1;
		m.members = o->alltoall ? d->team->count : 2;
		m.rank = o->alltoall ? d->number : 1;
		m.mode = o->mode;
		if (test == PERF_RETURNS && !m.window)
			m.window = 1;
		m.flags |= o->many ? PERF_ROWS : 0;
	}
	if (test == PERF_READ && !(m.flags & PERF_TRANSFERS))
		m.flags |= WEIR_READ;
	m.warmup = test == PERF_LAT ? WARMUP_LAT : WARMUP_BYTES / (size + 1);
	if (m.warmup > WARMUP_MESSAGES)
		m.warmup = WARMUP_MESSAGES;
	if (m.count && m.warmup > m.count / 10)
		m.warmup = m.count / 10;
	if (many)
		m.warmup = 1; /* all connections begin and end together */
	return m;
}

/* Requests the test on every connection and awaits READY from each. */
static int
request_all(struct driver *d, uint32_t test, uint32_t size, struct perf_result *r)
{
	struct perf_message m;
	uint64_t datagrams;
	struct perf_flow *f;
	int rc = 0;

	for (uint32_t i = 0; i < d->flow_count && !rc; i++) {
		m = driver_request(d, test, size, i);
		rc = send_control(d, &d->flows[i], &m, PERF_REQUEST);
		d->moved_ns = now_ns();
	}
	for (uint32_t i = 0; i < d->flow_count && !rc; i++) {
		d->flow = f = &d->flows[i];
		while ((rc = perf_flow_recv_control(f)) == -EAGAIN) {
			rc = driver_wait(d);
			if (rc)
				return rc;
		}
		if (!rc)
			rc = perf_message_read(&m, &f->control, f->control_length, PERF_READY);
		if (rc == -EPROTONOSUPPORT)
			weir_version_choose(PERF_VERSIONS, m.versions, "weir-perf's protocol",
					    "weir-perf here", "weir-perf there", d->reason);
		if (!rc && m.pid)
			r->peer_pid = (pid_t)m.pid;
		if (!rc && m.status)
			rc = -(int)m.status;
		if (rc && m.status && perf_is_remote(test))
			snprintf(d->reason, sizeof(d->reason),
				 "the server's target exports no memory: %s; see what the server "
				 "says, or lower --size or --threads",
				 strerror(-rc));
		if (rc)
			break;
		f->tx_client = m.threads;
		memcpy(f->key, m.key, sizeof(f->key));
		datagrams = m.datagrams;
		m = driver_request(d, test, size, i);
		rc = perf_flow_start(f, &m, true);
		if (!rc && f->datagrams)
			rc = driver_connect_datagrams(d, f, datagrams);
		d->moved_ns = now_ns();
	}
	d->flow = &d->flows[0];
	return rc;
}

/* Adds what both ends of a connection counted; lost and doubled messages are errors. */
static void
add_counts(const struct perf_flow *f, const struct perf_message *result, struct perf_result *r)
{
	uint64_t there = result->received, here = f->received;

	r->count += f->sent;
	r->errors += f->errors + result->errors;
	if (f->datagrams) {
		/* of round trips, those that had no answer */
		bool lat = f->out.test == PERF_LAT;

		r->lost += f->sent - (lat ? here : there < f->sent ? there : f->sent);
		if (!lat && here < result->sent)
			r->lost += result->sent - here;
		r->errors += there > f->sent || (!lat && here > result->sent);
	} else {
		if (there != f->sent)
			r->errors += there < f->sent ? f->sent - there : 1;
		if (here != result->sent)
			r->errors += here < result->sent ? result->sent - here : 1;
	}
	if (r->test != PERF_READ) {
		r->payload += result->bytes;
		r->received += result->received;
		r->measured += result->measured;
		if (result->measured && (!r->start_ns || result->start_ns < r->start_ns))
			r->start_ns = result->start_ns;
		if (result->measured && result->last_ns > r->last_ns)
			r->last_ns = result->last_ns;
	}
	if (result->ports_known) {
		r->peer_ports_known = true;
		r->peer_ports = result->ports;
	}
}

/* Ends the test on connections `first` to `end` - 1 and collects their results. */
static int
finish(struct driver *d, uint32_t first, uint32_t end, struct perf_result *r)
{
	struct perf_message m;
	struct perf_flow *f;
	int rc = 0;

	for (uint32_t i = first; i < end && !rc; i++) {
		m = (struct perf_message){0};
		rc = send_control(d, &d->flows[i], &m, PERF_END);
		d->moved_ns = now_ns();
	}
	for (uint32_t i = first; i < end && !rc; i++) {
		d->flow = f = &d->flows[i];
		/* with -b, messages of the schedule still arrive before the result */
		while ((rc = perf_flow_recv(f)) != FLOW_CONTROL) {
			if (rc == -EAGAIN)
				rc = driver_wait(d);
			else if (!rc)
				d->received++;
			if (rc)
				return rc;
		}
		rc = perf_message_read(&m, &f->control, f->control_length, PERF_RESULT);
		if (!rc)
			add_counts(f, &m, r);
		d->moved_ns = now_ns();
	}
	return rc;
}

static int
arrive(struct driver *d, enum team_phase phase)
{
	int rc = d->team ? team_arrive(d->team, phase, d->own_server) : 0;

	d->moved_ns = now_ns();
	return rc;
}

int
driver_run(struct driver *d, uint32_t test, uint32_t size, struct perf_result *r, const char **what)
{
	/* one of a node's programs reads the ports */
	bool reads = d->weir && (!d->number || d->options->alltoall);
	struct perf_ports before, after;
	int rc;

	memset(r, 0, sizeof(*r));
	histogram_clear(&r->latency);
	r->test = test;
	r->size = size;
	d->sent = d->received = 0;
	d->moved = UINT64_MAX;
	d->moved_ns = d->looked_ns = now_ns();
	d->group = d->team ? d->team->group : perf_mix(now_ns() ^ (uint64_t)getpid() << 40) | 1;
	r->ports_known = reads && perf_ports_read(d->options->instance, &before, &r->pid) == 0;
	*what = "asking the server";
	rc = perf_is_call(test) && d->own_server ? call_own_open(d, test, size) : 0;
	if (!rc)
		rc = request_all(d, test, size, r);
	if (!rc && d->team && !d->number)
		memcpy(d->team->key, d->flows[0].key, sizeof(d->team->key));
	if (!rc)
		rc = arrive(d, TEAM_READY);
	if (!rc) {
		*what = "the messages";
		if (test == PERF_READ)
			rc = driver_read(d, r);
		else if (perf_is_remote(test))
			rc = driver_remote(d, r);
		else if (perf_is_message(test))
			rc = driver_tx(d, r);
		else if (perf_is_call(test))
			rc = driver_call(d, r);
		else if (test == PERF_LAT)
			rc = driver_latency(d, r);
		else
			rc = d->flow_count > 1 ? driver_many(d, r) : driver_stream(d, r);
	}
	if (!rc) {
		*what = "the server's result";
		/* the server reads its ports when the first connection ends, so that one is last */
		rc = finish(d, 1, d->flow_count, r);
	}
	if (!rc)
		rc = arrive(d, TEAM_DONE);
	if (!rc)
		rc = finish(d, 0, 1, r);
	/* the other drivers may still need this one's server */
	if (!rc && d->window.win)
		rc = arrive(d, TEAM_CHECKED);
	if (!rc && d->window.win)
		rc = remote_window_close(&d->window, d->options->patience_s * 1000);
	if (d->progress)
		fputs("\r\033[K", stderr);
	if (!rc && r->ports_known) {
		r->ports_known = perf_ports_read(d->options->instance, &after, &r->pid) == 0;
		r->ports = perf_ports_since(&before, &after);
	}
	if (!rc)
		perf_result_rate(r);
	if (d->team)
		publish(d, r->errors);
	return rc;
}

int
team_arrive(struct team *t, enum team_phase phase, struct server *server)
{
	int rc;

	weir_assert(phase < TEAM_PHASES);

	atomic_fetch_add(&t->arrived[phase], 1);
	while (atomic_load(&t->arrived[phase]) < t->count) {
		if (atomic_load(&t->failed) || atomic_load(&perf_stop))
			return -ECANCELED;
		rc = server ? server_step(server) : 0;
		if (rc < 0)
			return rc;
		if (!rc)
			usleep(ARRIVE_SLEEP_US);
	}
	return 0;
}
