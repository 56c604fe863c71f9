/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message and request: threads send by the message model, each in its own order to all nodes in
 * turn. The main thread serves the connections that control the test.
 */
#include "rx.h"
#include "tx.h"

#include "clock.h"

#include "weir/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEND_MS 100		       /* how long one call may wait for room */
#define LOOK_US 2000		       /* between two looks of the main thread at the threads */
#define CLOCK_EVERY 64u		       /* messages between two readings of the clock */
#define PACE_MAX_NS (100 * 1000000ull) /* one sleep of a thread that waits for --rate */

struct message_run {
	struct tx_run tx; /* the first member */
	struct weir_messenger *messenger;
	uint16_t node[TEAM_MAX];
	bool request;
	struct perf_message asked[TEAM_MAX]; /* the REQUEST to each server */
};

static int
send_all(struct tx_thread *t)
{
	struct message_run *run = (struct message_run *)t->run;
	struct driver *d = t->run->driver;
	uint32_t nodes = d->flow_count, node = t->number % nodes, size = t->run->size;
	uint64_t count = tx_share(t), n = 0, now, due, then;
	double rate = d->options->rate / t->run->threads;
	struct perf_schedule schedule;
	size_t length;
	uint16_t type;
	int rc = 0;

	while (!atomic_load_explicit(&t->run->stop, memory_order_relaxed)) {
		if (t->run->count
			? n >= count
			: (n % CLOCK_EVERY == 0 || run->request) && now_ns() >= t->run->end_ns)
			break;
		if (rate > 0) {
			due = t->run->start_ns + (uint64_t)((double)n / rate * 1e9);
			now = now_ns();
			if (due > now)
				usleep((useconds_t)((due - now < PACE_MAX_NS ? due - now
									     : PACE_MAX_NS) /
						    1000));
		}
		if (d->options->verify) {
			schedule = rx_schedule(&run->asked[node], t->number);
			perf_schedule_fill(&schedule, t->to[node], t->out, size);
		} else {
			perf_schedule_stamp(t->to[node], t->out, size);
		}
		type = rx_type(run->request, d->flows[node].tx_client, t->number);
		do {
			if (!run->request) {
				rc = weir_message_send(run->messenger, run->node[node], type,
						       t->out, size, SEND_MS);
				continue;
			}
			then = now_ns();
			length = 0;
			rc = weir_message_request(run->messenger, run->node[node], type, t->out,
						  size, t->in, size, &length, -1);
			if (!rc) {
				histogram_record(&t->latency, now_ns() - then);
				atomic_fetch_add_explicit(&t->received, 1, memory_order_relaxed);
				if (length != size || memcmp(t->in, t->out, size) != 0)
					atomic_fetch_add_explicit(&t->errors, 1,
								  memory_order_relaxed);
			} else if (rc == -ETIMEDOUT) {
				/* counts as an error; the thread continues */
				atomic_fetch_add_explicit(&t->timeouts, 1, memory_order_relaxed);
				rc = 0;
			}
		} while (rc == -EAGAIN &&
			 !atomic_load_explicit(&t->run->stop, memory_order_relaxed));
		if (rc)
			break;
		t->to[node]++;
		node = node + 1 < nodes ? node + 1 : 0;
		atomic_store_explicit(&t->sent, ++n, memory_order_relaxed);
	}
	return rc;
}

static void *
run_body(void *arg)
{
	struct tx_thread *t = arg;
	struct tx_run *run = t->run;
	struct driver *d = run->driver;
	uint64_t begin = now_ns();
	int rc = run->body(t);

	t->ns = now_ns() - begin;
	t->rc = rc == -EAGAIN ? 0 : rc;
	/* the cause, not what others that are woken say */
	if (t->rc && !atomic_exchange(&run->failed, true))
		snprintf(d->reason, sizeof(d->reason), "%s", weir_reason());
	atomic_fetch_add(&run->ended, 1);
	return NULL;
}

static void
free_threads(const struct tx_run *run, struct tx_thread *t)
{
	for (uint32_t i = 0; t && i < run->threads; i++) {
		free(t[i].out);
		free(t[i].in);
	}
	free(t);
}

/* The threads with their buffers. NULL: out of memory. */
static struct tx_thread *
make_threads(struct tx_run *run)
{
	size_t size = run->size ? run->size : 1;
	struct tx_thread *t = aligned_alloc(_Alignof(struct tx_thread), run->threads * sizeof(*t));
	bool ok = t;

	if (t)
		memset(t, 0, run->threads * sizeof(*t));
	for (uint32_t i = 0; t && i < run->threads; i++) {
		t[i].run = run;
		t[i].number = i;
		t[i].out = malloc(size);
		t[i].in = malloc(size);
		histogram_clear(&t[i].latency);
		if (t[i].out && t[i].in)
			memset(t[i].out, 0x5a, size);
		else
			ok = false;
	}
	if (ok)
		return t;
	free_threads(run, t);
	return NULL;
}

int
tx_run_threads(struct tx_run *run, struct perf_result *r)
{
	uint64_t sent, received, now = now_ns();
	struct driver *d = run->driver;
	struct tx_thread *t = make_threads(run);
	uint32_t started = 0;
	int rc = t ? 0 : -ENOMEM, code;
	bool ended = false;

	run->start_ns = now;
	run->end_ns = run->start_ns + (uint64_t)(d->options->duration_s * 1e9);
	d->moved_ns = run->start_ns;
	while (started < run->threads && !rc) {
		rc = -pthread_create(&t[started].thread, NULL, run_body, &t[started]);
		started += !rc;
	}
	/* serves own_server, progress and time-outs until the threads have finished */
	while (rc >= 0 && !ended && !atomic_load(&run->failed)) {
		usleep(LOOK_US);
		ended = atomic_load(&run->ended) == started;
		rc = d->own_server ? server_step(d->own_server) : 0;
		sent = received = 0;
		for (uint32_t i = 0; i < run->threads; i++) {
			sent += atomic_load_explicit(&t[i].sent, memory_order_relaxed);
			received += atomic_load_explicit(&t[i].received, memory_order_relaxed);
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
		if (driver_stopped(d))
			atomic_store(&run->stop, true);
	}
	rc = rc < 0 ? rc : 0;
	if (!ended) {
		atomic_store(&run->failed, true);
		atomic_store(&run->stop, true);
		/* of threads that wait without a limit */
		weir_wake(d->weir);
	}
	for (uint32_t i = 0; i < started; i++) {
		code = -pthread_join(t[i].thread, NULL);
		rc = rc ? rc : code ? code : t[i].rc;
	}
	for (uint32_t k = 0; k < d->flow_count && !rc; k++)
		d->flows[k].sent = 0;
	for (uint32_t i = 0; i < started && !rc; i++) {
		for (uint32_t k = 0; k < d->flow_count; k++)
			d->flows[k].sent += t[i].to[k];
		r->errors += atomic_load(&t[i].errors) + atomic_load(&t[i].timeouts);
		r->timeouts += atomic_load(&t[i].timeouts);
		histogram_add(&r->latency, &t[i].latency);
		if (run->threads > 1 && t[i].ns)
			perf_shares_add(&r->shares,
					(double)atomic_load(&t[i].sent) * 1e9 / (double)t[i].ns);
	}
	r->mean_us = histogram_mean(&r->latency) / 1e3;
	free_threads(run, t);
	return rc;
}

int
driver_tx(struct driver *d, struct perf_result *r)
{
	static struct message_run run;
	struct weir_messenger_options options = WEIR_MESSENGER_OPTIONS_INIT;
	char service[WEIR_SERVICE_MAX];
	int rc = 0, local;

	memset(&run, 0, sizeof(run));
	run.tx.driver = d;
	run.tx.body = send_all;
	run.tx.size = r->size;
	run.tx.threads = d->options->threads;
	run.tx.count = d->options->count * (d->options->alltoall ? d->flow_count : 1);
	run.request = r->test == PERF_REQUESTS;
	for (uint32_t i = 0; i < d->flow_count && !rc; i++) {
		run.asked[i] = driver_request(d, r->test, r->size, i);
		rc = weir_conn_peer(d->flows[i].conn, &run.node[i], &local);
	}
	if (d->own_server) {
		/* --alltoall: the server's own messenger sends */
		run.messenger = d->own_server->rx.all;
	} else if (!rc) {
		rc = rx_service(d->service, (int)d->flows[0].tx_client, service, sizeof(service));
		options.service = service;
		options.flags = WEIR_MESSENGER_CLIENT;
		options.lanes = WEIR_LANES_MAX;
		if (!rc)
			rc = weir_messenger_open(d->weir, &options, &run.messenger);
	}
	if (!rc)
		rc = tx_run_threads(&run.tx, r);
	if (!d->own_server)
		weir_messenger_close(run.messenger);
	return rc;
}
