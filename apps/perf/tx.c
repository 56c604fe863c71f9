/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message and request: threads that send by the message model, each in its own order to all nodes
 * in turn, while this one looks after the connections on which the test was asked for.
 */
#include "driver.h"

#include "clock.h"

#include "weir/message.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEND_MS 100
#define LOOK_US 2000
#define CLOCK_EVERY 64u
#define NODES_MAX TEAM_MAX

struct talk;

struct talker {
	pthread_t thread;
	struct talk *talk;
	uint32_t number;
	uint64_t to[NODES_MAX]; /* messages so far, by connection */
	/* the thread writes, the one that started it reads */
	_Alignas(64) _Atomic uint64_t sent;
	_Atomic uint64_t received, errors, timeouts;
	uint64_t ns; /* of its part of the run */
	int rc;
	struct histogram latency;
	uint8_t *out, *in;
};

struct talk {
	struct driver *driver;
	struct weir_messenger *messenger;
	uint16_t node[NODES_MAX];
	bool request;
	uint32_t size, threads;
	struct perf_message asked[NODES_MAX]; /* what each server was asked for */
	uint64_t count, start_ns, end_ns;     /* count: of all threads; 0: until end_ns */
	atomic_bool stop;
};

/* Writes message i of a thread to a node. */
static void
write_message(struct talker *t, uint32_t node, uint64_t i)
{
	const struct talk *x = t->talk;
	struct perf_plan plan;

	if (!x->driver->options->verify) {
		perf_plan_stamp(i, t->out, x->size);
		return;
	}
	plan = hear_plan(&x->asked[node], t->number);
	perf_plan_fill(&plan, i, t->out, x->size);
}

static int
cast(struct talker *t, uint32_t node)
{
	struct talk *x = t->talk;

	return weir_message_send(x->messenger, x->node[node],
				 hear_type(false, x->driver->flows[node].talker, t->number), t->out,
				 x->size, SEND_MS);
}

/* A request whose answer takes too long counts as wrong, and the thread goes on. */
static int
call(struct talker *t, uint32_t node)
{
	struct talk *x = t->talk;
	uint64_t then = now_ns();
	size_t length = 0;
	int rc = weir_message_request(x->messenger, x->node[node],
				      hear_type(true, x->driver->flows[node].talker, t->number),
				      t->out, x->size, t->in, x->size, &length, -1);

	if (rc == -ETIMEDOUT) {
		atomic_fetch_add_explicit(&t->timeouts, 1, memory_order_relaxed);
		return 0;
	}
	if (rc)
		return rc;
	histogram_record(&t->latency, now_ns() - then);
	atomic_fetch_add_explicit(&t->received, 1, memory_order_relaxed);
	if (length != x->size || memcmp(t->in, t->out, x->size) != 0)
		atomic_fetch_add_explicit(&t->errors, 1, memory_order_relaxed);
	return 0;
}

static bool
is_over(const struct talker *t, uint64_t n)
{
	struct talk *x = t->talk;

	if (atomic_load_explicit(&x->stop, memory_order_relaxed))
		return true;
	if (x->count)
		return n >= x->count / x->threads + (t->number < x->count % x->threads);
	return (n % CLOCK_EVERY == 0 || x->request) && now_ns() >= x->end_ns;
}

/* With --rate: waits until message n of this thread is due. */
static void
pace(const struct talk *x, uint64_t n)
{
	double rate = x->driver->options->rate / x->threads;
	uint64_t due = x->start_ns + (uint64_t)((double)n / rate * 1e9), now = now_ns();

	if (due > now)
		usleep((useconds_t)((due - now) / 1000 < 100000 ? (due - now) / 1000 : 100000));
}

static void *
talk_on(void *arg)
{
	struct talker *t = arg;
	struct talk *x = t->talk;
	uint32_t nodes = x->driver->flow_count;
	uint32_t node = t->number % nodes;
	uint64_t n = 0, begin = now_ns();
	int rc = 0;

	while (!is_over(t, n)) {
		if (x->driver->options->rate > 0)
			pace(x, n);
		write_message(t, node, t->to[node]);
		do
			rc = x->request ? call(t, node) : cast(t, node);
		while (rc == -EAGAIN && !atomic_load_explicit(&x->stop, memory_order_relaxed));
		if (rc)
			break;
		t->to[node]++;
		node = node + 1 < nodes ? node + 1 : 0;
		atomic_store_explicit(&t->sent, ++n, memory_order_relaxed);
	}
	t->ns = now_ns() - begin;
	t->rc = rc == -EAGAIN ? 0 : rc;
	if (t->rc)
		snprintf(t->talk->driver->reason, sizeof(t->talk->driver->reason), "%s",
			 weir_reason());
	return NULL;
}

/* Looks after everything else until the threads have done their part. */
static int
look_after(struct driver *d, struct talk *x, struct talker *t)
{
	uint64_t sent, received, now = now_ns();
	int rc = 0;

	do {
		usleep(LOOK_US);
		rc = d->here ? server_step(d->here) : 0;
		sent = received = 0;
		for (uint32_t i = 0; i < x->threads; i++) {
			sent += atomic_load_explicit(&t[i].sent, memory_order_relaxed);
			received += atomic_load_explicit(&t[i].received, memory_order_relaxed);
			if (t[i].rc)
				rc = t[i].rc;
		}
		d->sent = sent;
		d->received = received;
		if (sent != d->moved)
			d->moved_ns = now;
		d->moved = sent;
		now = now_ns();
		driver_progress(d, now);
		if (now - d->moved_ns > (uint64_t)d->options->patience_s * NS_PER_S)
			rc = -ETIMEDOUT;
		if (atomic_load(&perf_stop))
			rc = -EINTR;
	} while (rc >= 0 && !driver_stopped(d) && (x->count ? sent < x->count : now < x->end_ns));
	return rc < 0 ? rc : 0;
}

/* What the threads found; each connection's plan has what went there. */
static void
sum_up(struct driver *d, struct talk *x, struct talker *t, struct perf_result *r)
{
	for (uint32_t k = 0; k < d->flow_count; k++)
		d->flows[k].sent = 0;
	for (uint32_t i = 0; i < x->threads; i++) {
		uint64_t sent = atomic_load(&t[i].sent);

		for (uint32_t k = 0; k < d->flow_count; k++)
			d->flows[k].sent += t[i].to[k];
		r->errors += atomic_load(&t[i].errors) + atomic_load(&t[i].timeouts);
		r->timeouts += atomic_load(&t[i].timeouts);
		histogram_add(&r->latency, &t[i].latency);
		if (x->threads > 1 && t[i].ns)
			perf_shares_add(&r->shares, (double)sent * 1e9 / (double)t[i].ns);
	}
	r->mean_us = histogram_mean(&r->latency) / 1e3;
}

static int
run_threads(struct driver *d, struct talk *x, struct talker *t)
{
	uint32_t started = 0;
	int rc = 0, code;

	x->start_ns = now_ns();
	x->end_ns = x->start_ns + (uint64_t)(d->options->duration_s * 1e9);
	d->moved_ns = x->start_ns;
	while (started < x->threads && !rc) {
		rc = -pthread_create(&t[started].thread, NULL, talk_on, &t[started]);
		started += !rc;
	}
	if (!rc)
		rc = look_after(d, x, t);
	atomic_store(&x->stop, rc || !x->count || driver_stopped(d));
	for (uint32_t i = 0; i < started; i++) {
		code = -pthread_join(t[i].thread, NULL);
		rc = rc ? rc : code ? code : t[i].rc;
	}
	return rc;
}

/* A thread's memory. 0 or -ENOMEM. */
static int
make_talkers(struct talk *x, struct talker **talkers)
{
	size_t size = x->size ? x->size : 1;
	struct talker *t = aligned_alloc(_Alignof(struct talker), x->threads * sizeof(*t));

	*talkers = t;
	if (!t)
		return -ENOMEM;
	memset(t, 0, x->threads * sizeof(*t));
	for (uint32_t i = 0; i < x->threads; i++) {
		t[i].talk = x;
		t[i].number = i;
		t[i].out = malloc(size);
		t[i].in = malloc(size);
		histogram_clear(&t[i].latency);
		if (!t[i].out || !t[i].in)
			return -ENOMEM;
		memset(t[i].out, 0x5a, size);
	}
	return 0;
}

static void
free_talkers(struct talk *x, struct talker *t)
{
	for (uint32_t i = 0; t && i < x->threads; i++) {
		free(t[i].out);
		free(t[i].in);
	}
	free(t);
}

/* To alltoall's nodes its own server's messenger sends, else one that is opened for that. */
static int
open_messenger(struct driver *d, struct talk *x)
{
	struct weir_messenger_options options = WEIR_MESSENGER_OPTIONS;
	char service[WEIR_SERVICE_MAX];
	int rc, local;

	for (uint32_t i = 0; i < d->flow_count; i++) {
		rc = weir_conn_peer(d->flows[i].conn, &x->node[i], &local);
		if (rc)
			return rc;
	}
	if (d->here) {
		x->messenger = d->here->hearer.all;
		return 0;
	}
	rc = hear_service(d->service, (int)d->flows[0].talker, service, sizeof(service));
	if (rc)
		return rc;
	options.service = service;
	options.flags = WEIR_MESSENGER_CLIENT;
	options.lanes = WEIR_LANES_MAX;
	return weir_messenger_open(d->weir, &options, &x->messenger);
}

int
driver_talk(struct driver *d, struct perf_result *r)
{
	static struct talk x;
	struct talker *t = NULL;
	int rc;

	memset(&x, 0, sizeof(x));
	x.driver = d;
	x.request = r->test == PERF_CALL;
	x.size = r->size;
	x.threads = d->options->threads;
	x.count = d->options->count * (d->options->alltoall ? d->flow_count : 1);
	for (uint32_t i = 0; i < d->flow_count; i++)
		x.asked[i] = driver_request(d, r->test, r->size, i);
	rc = open_messenger(d, &x);
	if (!rc)
		rc = make_talkers(&x, &t);
	if (!rc)
		rc = run_threads(d, &x, t);
	if (!rc)
		sum_up(d, &x, t, r);
	free_talkers(&x, t);
	if (!d->here)
		weir_messenger_close(x.messenger);
	return rc;
}
