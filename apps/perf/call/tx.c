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
	struct perf_message request; /* the first one */
};

/* A thread that is called. */
struct callee {
	struct weir_to to;
	struct weir_line *line;
	struct perf_schedule schedule;
	uint64_t made, answered;
	uint64_t *since; /* ns, of the `window` latest calls */
};

/* A call whose result is awaited. */
struct awaited {
	struct weir_future f;
	struct caller *caller;
	const struct callee *callee;
	uint64_t number, since; /* ns */
	uint8_t *result;
	struct awaited *next; /* free */
};

struct caller {
	struct tx_thread *t;
	struct weir_invoker *v;
	bool verify;
	uint64_t made, answered; /* of all callees */
	uint32_t window;
	struct callee *callees; /* one per connection */
	uint32_t count;
	/* -t return: `window` results, and their bytes */
	struct awaited *results, *spare;
	uint8_t *bytes;
};

/* The calling thread, if it makes calls. */
static __thread struct caller *own;

void
call_answered(struct weir_incoming *c, const void *args, size_t length)
{
	uint32_t process = weir_incoming_from(c).process, i = 0;
	struct caller *me = own;
	struct callee *by;

	if (!me || !me->window) /* a peer may call any thread */
		return;
	while (i < me->count && me->callees[i].to.process != process)
		i++;
	by = &me->callees[i];
	if (i == me->count || by->answered == by->made ||
	    (me->verify && !perf_schedule_check(&by->schedule, by->answered, args, length))) {
		atomic_fetch_add_explicit(&me->t->errors, 1, memory_order_relaxed);
		return;
	}
	histogram_record(&me->t->latency, now_ns() - by->since[by->answered % me->window]);
	by->answered++;
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
	    (me->verify &&
	     !perf_schedule_check(&a->callee->schedule, a->number, a->result, f->length)))
		atomic_fetch_add_explicit(&me->t->errors, 1, memory_order_relaxed);
	else
		histogram_record(&me->t->latency, now_ns() - a->since);
}

static int
alloc_window(struct caller *me, uint32_t size)
{
	if (((const struct call_run *)me->t->run)->request.test != PERF_RETURNS) {
		for (uint32_t i = 0; me->window && i < me->count; i++) {
			me->callees[i].since = calloc(me->window, sizeof(uint64_t));
			if (!me->callees[i].since)
				return -ENOMEM;
		}
		return 0;
	}
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
free_caller(struct caller *me)
{
	for (uint32_t i = 0; me->callees && i < me->count; i++)
		free(me->callees[i].since);
	free(me->callees);
	free(me->results);
	free(me->bytes);
}

/* Makes the call that expects its arguments back. */
static int
call_return(struct caller *me, const struct callee *to, uint64_t number, uint32_t size)
{
	struct awaited *a = me->spare;
	int rc;

	me->spare = a->next;
	a->callee = to;
	a->number = number;
	a->since = now_ns();
	a->f = (struct weir_future){.then = call_returned, .user = a};
	rc = weir_call_return(me->v, to->to, CALL_COUNT, me->t->out, size, &a->f, a->result, size,
			      NULL);
	if (rc) {
		a->next = me->spare;
		me->spare = a;
	}
	return rc;
}

/* `n` calls with arguments of constant length, as programs make them. */
static inline int
call_many(struct caller *me, struct callee *to, size_t length, uint64_t n)
{
	uint64_t i;
	int rc = 0;

	for (i = 0; i < n; i++) {
		rc = weir_line_call(to->line, CALL_COUNT, me->t->out, length);
		if (rc)
			break;
	}
	to->made += i;
	me->made += i;
	return rc;
}

static int
call_burst(struct caller *me, struct callee *to, uint32_t size, uint64_t n)
{
	switch (size) {
	case 8:
		return call_many(me, to, 8, n);
	case 16:
		return call_many(me, to, 16, n);
	case 32:
		return call_many(me, to, 32, n);
	case 64:
		return call_many(me, to, 64, n);
	case 128:
		return call_many(me, to, 128, n);
	case 256:
		return call_many(me, to, 256, n);
	default:
		return call_many(me, to, size, n);
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
call_each(struct caller *me, struct callee *to, uint32_t size, uint64_t n, struct idle *idle)
{
	uint64_t number;
	int rc = 0;

	for (uint64_t i = 0; i < n && !rc; i++) {
		if (me->window) {
			rc = await_answers(me, me->window, idle);
			if (!me->results)
				to->since[to->made % me->window] = now_ns();
		}
		if (me->verify)
			perf_schedule_fill(&to->schedule, to->made, me->t->out, size);
		/* an answer may come within the call that makes it */
		number = to->made++;
		me->made++;
		if (!rc)
			rc = me->results ? call_return(me, to, number, size)
					 : weir_line_call(to->line, CALL_COUNT, me->t->out, size);
		to->made -= rc != 0;
		me->made -= rc != 0;
	}
	return rc;
}

/* The threads that are called, one per connection. 0 or -errno. */
static int
make_callees(struct caller *me)
{
	const struct call_run *run = (const struct call_run *)me->t->run;
	const struct driver *d = run->tx.driver;
	const struct perf_options *o = d->options;
	struct perf_message request;
	struct callee *to;

	me->callees = calloc(d->flow_count, sizeof(*me->callees));
	if (!me->callees)
		return -ENOMEM;
	me->count = d->flow_count;
	for (uint32_t i = 0; i < me->count; i++) {
		to = &me->callees[i];
		request = driver_request(d, run->request.test, run->request.size, i);
		to->schedule = call_schedule(&request, me->t->number);
		to->to.process = o->inside ? 0 : o->alltoall ? driver_rank(d, i) : 1;
		to->to.thread = me->t->number + (d->own_server ? request.threads : 0);
	}
	return 0;
}

static int
call_all(struct tx_thread *t)
{
	const struct call_run *run = (const struct call_run *)t->run;
	const struct perf_message *request = &run->request;
	const struct driver *d = t->run->driver;
	struct caller me = {
	    .t = t, .v = run->v, .verify = request->flags & PERF_VERIFY, .window = request->window};
	uint64_t count = tx_share(t), n; /* to each callee */
	struct callee *to;
	struct idle idle;
	int rc;

	perf_idle_init(&idle, NULL, request->flags & PERF_SLEEP);
	rc = make_callees(&me);
	if (!rc)
		rc = alloc_window(&me, request->size);
	if (!rc)
		rc = weir_invoker_enter(run->v, t->number);
	if (rc) {
		free_caller(&me);
		return rc;
	}
	own = &me;
	for (uint32_t i = 0; i < me.count && !rc; i++)
		rc = weir_line_open(run->v, me.callees[i].to, NULL, d->options->patience_s * 1000,
				    &me.callees[i].line);
	rc = rc == -EAGAIN ? -ETIMEDOUT : rc;
	for (uint32_t i = 0;
	     !rc && !atomic_load_explicit(&t->run->stop, memory_order_relaxed) &&
	     (t->run->count ? me.made < count * me.count : now_ns() < t->run->end_ns);
	     i = i + 1 < me.count ? i + 1 : 0) {
		to = &me.callees[i];
		n = me.window ? 1 : BURST; /* the clock is read for each answer anyway */
		if (t->run->count && n > count - to->made)
			n = count - to->made;
		rc = me.verify || me.window ? call_each(&me, to, request->size, n, &idle)
					    : call_burst(&me, to, request->size, n);
		atomic_store_explicit(&t->sent, me.made, memory_order_relaxed);
	}
	if (!rc && me.window)
		rc = await_answers(&me, 1, &idle);
	/* a thread that ends leaves, too, and drops what nobody takes */
	if (!rc)
		rc = weir_invoker_leave(run->v);
	own = NULL;
	for (uint32_t i = 0; i < me.count; i++)
		t->to[i] = me.callees[i].made;
	free_caller(&me);
	return rc;
}

int
call_own_open(struct driver *d, uint32_t test, uint32_t size)
{
	struct perf_message request = driver_request(d, test, size, 0);

	call_group_close(&d->own_server->calls);
	return call_group_open(&d->own_server->calls, d->weir, &request,
			       d->options->alltoall ? request.rank : 0,
			       d->options->patience_s * 1000);
}

int
driver_call(struct driver *d, struct perf_result *r)
{
	int rc = 0, timeout_ms = d->options->patience_s * 1000;
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct call_group pair = {0}, *g = &pair;
	static struct call_run run;

	memset(&run, 0, sizeof(run));
	run.request = driver_request(d, r->test, r->size, 0);
	if (d->own_server) {
		g = &d->own_server->calls;
	} else {
		rc = call_group_open(g, d->weir, &run.request, 0, timeout_ms);
		if (!rc) /* all threads of the server have entered */
			rc = weir_group_barrier(g->g, timeout_ms);
		if (rc == -ECONNRESET)
			snprintf(d->reason, sizeof(d->reason),
				 "the server can't run calls; see what it says there");
	}
	run.tx.driver = d;
	run.tx.body = call_all;
	run.tx.size = r->size;
	run.tx.threads = d->options->threads;
	run.tx.count = d->options->count;
	run.v = g->v;
	if (!rc)
		rc = tx_run_threads(&run.tx, r);
	/* with -w this program also makes calls that answer others */
	if (!rc && d->options->alltoall)
		rc = team_arrive(d->team, TEAM_CHECKED, d->own_server);
	if (!rc)
		rc = weir_invoker_stats(g->v, &stats);
	r->made = stats.made;
	r->messages = stats.messages;
	call_group_close(&pair);
	return rc;
}
