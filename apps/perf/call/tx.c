/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that make calls, and await that each has its result, or with -w is answered by a call
 * back. */
#include "call.h"
#include "tx.h"

#include "clock.h"

#include <errno.h>
#include <stdlib.h>

#define BURST 1024u /* calls between two readings of the clock */

struct call_run {
	struct tx_run tx; /* the first member */
	struct weir_invoker *v;
	struct perf_message request;
};

/* A call whose result is awaited. */
struct awaited {
	struct weir_future f;
	struct caller *caller;
	uint64_t number, since; /* ns */
	uint8_t *result;
	struct awaited *next; /* free */
};

struct caller {
	struct tx_thread *t;
	struct weir_invoker *v;
	struct weir_line *line;
	struct perf_schedule schedule;
	bool verify;
	uint64_t made, answered;
	uint32_t window;
	uint64_t *since; /* ns, of the `window` latest calls */
	struct weir_to to;
	/* -t return: `window` results, and their bytes */
	struct awaited *results, *spare;
	uint8_t *bytes;
};

/* The calling thread, if it makes calls. */
static __thread struct caller *own;

void
call_answered(struct weir_incoming *c, const void *args, size_t length)
{
	struct caller *me = own;

	if (!me || !me->window) /* a peer may call any thread */
		return;
	if (me->answered == me->made ||
	    (me->verify && !perf_schedule_check(&me->schedule, me->answered, args, length))) {
		atomic_fetch_add_explicit(&me->t->errors, 1, memory_order_relaxed);
		return;
	}
	histogram_record(&me->t->latency, now_ns() - me->since[me->answered % me->window]);
	me->answered++;
}

static void
call_returned(struct weir_future *f, void *user)
{
	struct awaited *a = user;
	struct caller *me = a->caller;

	me->answered++;
	a->next = me->spare;
	me->spare = a;
	if (f->status || f->length != me->t->run->size ||
	    (me->verify && !perf_schedule_check(&me->schedule, a->number, a->result, f->length)))
		atomic_fetch_add_explicit(&me->t->errors, 1, memory_order_relaxed);
	else
		histogram_record(&me->t->latency, now_ns() - a->since);
}

static int
alloc_window(struct caller *me, uint32_t size)
{
	me->since = calloc(me->window + 1, sizeof(*me->since));
	if (!me->since)
		return -ENOMEM;
	if (((const struct call_run *)me->t->run)->request.test != PERF_RETURNS)
		return 0;
	me->results = calloc(me->window, sizeof(*me->results));
	me->bytes = calloc(me->window, size + 1);
	if (!me->results || !me->bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < me->window; i++) {
		me->results[i] = (struct awaited){
		    .caller = me, .result = me->bytes + (size_t)i * size, .next = me->spare};
		me->spare = &me->results[i];
	}
	return 0;
}

static void
free_window(struct caller *me)
{
	free(me->since);
	free(me->results);
	free(me->bytes);
}

/* Makes the call that expects its arguments back. */
static int
call_return(struct caller *me, uint32_t size)
{
	struct awaited *a = me->spare;
	int rc;

	me->spare = a->next;
	a->number = me->made;
	a->since = now_ns();
	a->f = (struct weir_future){.then = call_returned, .user = a};
	rc = weir_call_return(me->v, me->to, CALL_COUNT, me->t->out, size, &a->f, a->result, size,
			      NULL);
	if (rc) {
		a->next = me->spare;
		me->spare = a;
	}
	return rc;
}

/* `n` calls with arguments of constant length, as programs make them. */
static inline int
call_many(struct caller *me, size_t length, uint64_t n)
{
	uint64_t i;
	int rc = 0;

	for (i = 0; i < n; i++) {
		rc = weir_line_call(me->line, CALL_COUNT, me->t->out, length);
		if (rc)
			break;
	}
	me->made += i;
	return rc;
}

static int
call_burst(struct caller *me, uint32_t size, uint64_t n)
{
	switch (size) {
	case 8:
		return call_many(me, 8, n);
	case 16:
		return call_many(me, 16, n);
	case 32:
		return call_many(me, 32, n);
	case 64:
		return call_many(me, 64, n);
	case 128:
		return call_many(me, 128, n);
	case 256:
		return call_many(me, 256, n);
	default:
		return call_many(me, size, n);
	}
}

/* Runs answers until less than `most` calls have none. 0 or -errno. */
static int
await_answers(struct caller *me, uint64_t most, struct idle *idle)
{
	int rc = 0;

	while (me->made - me->answered >= most && rc >= 0) {
		rc = weir_invoker_progress(me->v, 0, idle->sleeping ? IDLE_SLEEP_MS : 0);
		if (rc > 0)
			idle->empty = 0;
		else if (!rc && !idle->sleeping)
			perf_idle(idle);
		if (!rc && atomic_load_explicit(&me->t->run->failed, memory_order_relaxed))
			return -ECANCELED;
	}
	atomic_store_explicit(&me->t->received, me->answered, memory_order_relaxed);
	return rc < 0 ? rc : 0;
}

/* Calls one by one: with contents that are looked at, or answered. */
static int
call_each(struct caller *me, uint32_t size, uint64_t n, struct idle *idle)
{
	int rc = 0;

	for (uint64_t i = 0; i < n && !rc; i++) {
		if (me->window) {
			rc = await_answers(me, me->window, idle);
			if (!me->results)
				me->since[me->made % me->window] = now_ns();
		}
		if (me->verify)
			perf_schedule_fill(&me->schedule, me->made, me->t->out, size);
		if (!rc && me->results) {
			rc = call_return(me, size);
			me->made += !rc;
			continue;
		}
		/* an answer may come within the call that makes it */
		me->made++;
		if (!rc)
			rc = weir_line_call(me->line, CALL_COUNT, me->t->out, size);
		me->made -= rc != 0;
	}
	return rc;
}

static int
call_all(struct tx_thread *t)
{
	const struct call_run *run = (const struct call_run *)t->run;
	const struct perf_message *request = &run->request;
	const struct driver *d = t->run->driver;
	struct weir_to to = {request->group ? 1 : 0,
			     t->number + (request->group ? 0 : request->threads)};
	struct caller me = {.t = t,
			    .v = run->v,
			    .schedule = call_schedule(request, t->number),
			    .verify = request->flags & PERF_VERIFY,
			    .window = request->window,
			    .to = to};
	uint64_t count = tx_share(t), n;
	struct idle idle;
	int rc;

	perf_idle_init(&idle, NULL, request->flags & PERF_SLEEP);
	rc = alloc_window(&me, request->size);
	if (!rc)
		rc = weir_invoker_enter(run->v, t->number);
	if (rc) {
		free_window(&me);
		return rc;
	}
	own = &me;
	rc = weir_line_open(run->v, to, NULL, d->options->patience_s * 1000, &me.line);
	rc = rc == -EAGAIN ? -ETIMEDOUT : rc;
	while (!rc && !atomic_load_explicit(&t->run->stop, memory_order_relaxed) &&
	       (t->run->count ? me.made < count : now_ns() < t->run->end_ns)) {
		n = me.window ? 1 : BURST; /* the clock is read for each answer anyway */
		if (t->run->count && n > count - me.made)
			n = count - me.made;
		rc = me.verify || me.window ? call_each(&me, request->size, n, &idle)
					    : call_burst(&me, request->size, n);
		atomic_store_explicit(&t->sent, me.made, memory_order_relaxed);
	}
	if (!rc && me.window)
		rc = await_answers(&me, 1, &idle);
	/* a thread that ends leaves, too, and drops what nobody takes */
	if (!rc)
		rc = weir_invoker_leave(run->v);
	own = NULL;
	free_window(&me);
	t->to[0] = me.made;
	return rc;
}

int
call_inside_open(struct driver *d, uint32_t test, uint32_t size)
{
	struct perf_message request = driver_request(d, test, size, 0);

	call_pair_close(&d->own_server->inside);
	return call_pair_open(&d->own_server->inside, d->weir, &request, 0,
			      d->options->patience_s * 1000);
}

int
driver_call(struct driver *d, struct perf_result *r)
{
	int rc = 0, timeout_ms = d->options->patience_s * 1000;
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct call_pair own_pair = {0}, *pair = &own_pair;
	static struct call_run run;

	memset(&run, 0, sizeof(run));
	run.request = driver_request(d, r->test, r->size, 0);
	if (d->options->inside) {
		pair = &d->own_server->inside;
	} else {
		rc = call_pair_open(pair, d->weir, &run.request, 0, timeout_ms);
		if (!rc) /* all threads of the server have entered */
			rc = weir_group_barrier(pair->g, timeout_ms);
		if (rc == -ECONNRESET)
			snprintf(d->reason, sizeof(d->reason),
				 "the server can't run calls; see what it says there");
	}
	run.tx.driver = d;
	run.tx.body = call_all;
	run.tx.size = r->size;
	run.tx.threads = d->options->threads;
	run.tx.count = d->options->count;
	run.v = pair->v;
	if (!rc)
		rc = tx_run_threads(&run.tx, r);
	if (!rc)
		rc = weir_invoker_stats(pair->v, &stats);
	r->made = stats.made;
	r->messages = stats.messages;
	call_pair_close(&own_pair);
	return rc;
}
