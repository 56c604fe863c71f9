/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that run calls. The first one makes the invoker with the driver, since that waits for the
 * driver and the server's own thread may not.
 */
#include "call.h"
#include "idle.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ENTER_US 100 /* between two looks whether all threads have entered */

/* Calls of one program to a thread: the thread writes, the server's thread reads. */
struct source {
	_Alignas(64) _Atomic uint64_t run; /* read at any time */
	uint64_t errors;
	uint64_t start_ns, last_ns; /* of the first and the last call */
	_Atomic uint64_t noted;	    /* calls until last_ns */
	/* the server's thread writes, before the driver may begin */
	struct perf_schedule schedule;
	atomic_bool open;
};

struct lane {
	struct source *sources;
	bool verify, answer, returns, shared;
	pthread_t thread;
	struct call_rx *rx;
	uint32_t number;
};

struct call_rx {
	struct weir *weir;
	struct call_group group; /* the first thread's, or that of --inside and --alltoall */
	struct perf_message request;
	int timeout_ms;
	atomic_uint entered;		    /* threads that have, or have failed */
	atomic_bool ended;		    /* the first thread writes, the server's reads */
	_Atomic int status;		    /* why a thread has failed */
	atomic_bool stop;		    /* the server's thread writes */
	_Atomic(struct weir_waker *) waker; /* of the first thread, until it runs calls */
	/* the server's thread writes before the others start, and alone reads and writes `requests`
	 */
	struct call_rx **shared; /* --alltoall: where others find it; NULL: one request has it */
	uint32_t requests;	 /* that have not closed it */
	struct source *sources;	 /* of each thread `source_count`, by rank if it is shared */
	uint32_t source_count;
	struct lane lane[];
};

/* The calling thread, if it runs calls. */
static __thread struct lane *own;

/* Looks at a call and answers it, as the request says. */
static void
look(const struct lane *l, struct source *s, struct weir_incoming *c, uint64_t i, const void *args,
     size_t length)
{
	if (l->verify && !perf_schedule_check(&s->schedule, i, args, length))
		s->errors++;
	if (l->answer && weir_call(weir_incoming_invoker(c), weir_incoming_from(c), CALL_ANSWER,
				   args, length, NULL))
		s->errors++;
	if (l->returns && weir_incoming_result(c, args, length))
		s->errors++;
}

void
call_count_row(struct weir_incoming *c, const void *args, size_t length, size_t stride,
	       size_t count)
{
	const struct lane *l = own;
	struct source *s;
	uint64_t run;

	if (!l) /* a peer may call any thread */
		return;
	s = l->sources + (l->shared ? weir_incoming_from(c).process : 0);
	/* pairs with the release in open_sources() */
	if (!atomic_load_explicit(&s->open, memory_order_acquire))
		return;
	run = atomic_load_explicit(&s->run, memory_order_relaxed);
	if (!run)
		s->start_ns = now_ns();
	if (l->verify || l->answer || l->returns)
		for (size_t i = 0; i < count; i++)
			look(l, s, c, run + i, (const uint8_t *)args + i * stride, length);
	atomic_store_explicit(&s->run, run + count, memory_order_relaxed);
}

void
call_count(struct weir_incoming *c, const void *args, size_t length)
{
	call_count_row(c, args, length, 0, 1);
}

/* ---- threads ---- */

/* The first failure counts. */
static void
fail(struct call_rx *rx, int rc)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&rx->status, &none, rc) && rc != -EINTR)
		fprintf(stderr, "weir-perf: calls of a client: %s\n", weir_reason());
}

/* Notes the time of the calls that the thread has run since the last time. */
static void
note(struct lane *l)
{
	uint64_t now = now_ns(), n;

	for (uint32_t i = 0; i < l->rx->source_count; i++) {
		struct source *s = &l->sources[i];

		n = atomic_load_explicit(&s->run, memory_order_relaxed);
		if (n == atomic_load_explicit(&s->noted, memory_order_relaxed))
			continue;
		s->last_ns = now;
		/* pairs with the acquire in call_rx_end() */
		atomic_store_explicit(&s->noted, n, memory_order_release);
	}
}

/* Runs calls until the server has heard of all of them, or the driver is gone. */
static int
run_calls(struct lane *l)
{
	struct call_rx *rx = l->rx;
	bool sleeps = rx->request.flags & PERF_SLEEP, fresh = false;
	struct idle idle;
	int rc = 0;

	perf_idle_init(&idle, NULL, false);
	while (!atomic_load_explicit(&rx->stop, memory_order_relaxed)) {
		rc = weir_invoker_progress(rx->group.v, 0, sleeps && !fresh ? IDLE_SLEEP_MS : 0);
		if (rc < 0 && rc != -EINTR)
			break;
		if (rc > 0) {
			fresh = true;
			idle.empty = 0;
			/* other programs may call for long when one has ended */
			if (l->shared)
				note(l);
			continue;
		}
		/* the clock is read only when there is time for it */
		if (fresh)
			note(l);
		fresh = false;
		if (!sleeps)
			perf_idle(&idle);
		rc = 0;
	}
	if (fresh)
		note(l);
	return rc < 0 && rc != -EINTR ? rc : 0;
}

/* The first thread: the driver's calls find all threads. 0 or -errno. */
static int
begin_together(struct call_rx *rx)
{
	int status;

	while (atomic_load(&rx->entered) < rx->request.threads)
		usleep(ENTER_US);
	status = atomic_load(&rx->status);
	return status ? status : weir_group_barrier(rx->group.g, rx->timeout_ms);
}

static void
enter_and_run(struct lane *l)
{
	struct call_rx *rx = l->rx;
	bool here = rx->request.flags & PERF_HERE;
	int rc;

	own = l;
	rc = weir_invoker_enter(rx->group.v, l->number + (here ? rx->request.threads : 0));
	if (rc)
		fail(rx, rc);
	atomic_fetch_add(&rx->entered, 1);
	if (!l->number && !here)
		rc = begin_together(rx);
	/* a wake that no wait takes would end one of the next thread's */
	if (!l->number)
		atomic_store(&rx->waker, NULL);
	if (!rc)
		rc = run_calls(l);
	if (rc)
		fail(rx, rc);
	weir_invoker_leave(rx->group.v);
}

static void *
other_main(void *arg)
{
	struct lane *l = arg;

	enter_and_run(l);
	return NULL;
}

/* The first thread, which has the others. */
static void *
first_main(void *arg)
{
	struct call_rx *rx = arg;
	bool here = rx->request.flags & PERF_HERE;
	struct weir_waker *waker;
	uint32_t started = 1;
	int rc = weir_thread_waker(rx->weir, &waker);

	if (!rc)
		atomic_store(&rx->waker, waker);
	if (!rc && !here && !atomic_load(&rx->stop))
		rc = call_group_open(&rx->group, rx->weir, &rx->request, rx->request.rank,
				     rx->timeout_ms);
	if (!rc && rx->group.v) {
		while (started < rx->request.threads && !rc) {
			rc = -pthread_create(&rx->lane[started].thread, NULL, other_main,
					     &rx->lane[started]);
			started += !rc;
		}
		if (rc)
			atomic_store(&rx->stop, true);
		else
			enter_and_run(&rx->lane[0]);
		for (uint32_t i = 1; i < started; i++)
			pthread_join(rx->lane[i].thread, NULL);
	}
	if (rc)
		fail(rx, rc);
	if (!here)
		call_group_close(&rx->group);
	atomic_store(&rx->ended, true);
	return NULL;
}

/* ---- of the server ---- */

/* The sources of a request, of which thread i has the one at i * source_count. */
static struct source *
sources_of(const struct call_rx *rx, const struct perf_message *request)
{
	return rx->sources + (rx->shared ? request->rank : 0);
}

/* Lets the threads run the calls of a request. 0 or -errno. */
static int
open_sources(struct call_rx *rx, const struct perf_message *request)
{
	struct source *s = sources_of(rx, request);

	/* not of this run */
	if (request->threads != rx->request.threads ||
	    (rx->shared && request->rank >= rx->source_count))
		return -EINVAL;
	if (atomic_load(&s->open))
		return -EBUSY;
	for (uint32_t i = 0; i < request->threads; i++, s += rx->source_count) {
		s->schedule = call_schedule(request, i);
		/* pairs with the acquire in call_count_row() */
		atomic_store_explicit(&s->open, true, memory_order_release);
	}
	rx->requests++;
	return 0;
}

static void
free_rx(struct call_rx *rx)
{
	free(rx->sources);
	free(rx);
}

/* The threads before they start, with the sources of the first request. 0 or -errno. */
static int
make_rx(struct call_rx **rx, struct weir *w, struct call_group *calls,
	const struct perf_message *request, int timeout_ms)
{
	bool here = request->flags & PERF_HERE;
	uint32_t programs = here ? weir_group_size(calls->g) : 1;
	size_t bytes = request->threads * programs * sizeof(struct source);
	struct call_rx *x = calloc(1, sizeof(*x) + request->threads * sizeof(x->lane[0]));
	int rc;

	if (!x)
		return -ENOMEM;
	x->weir = w;
	x->request = *request;
	x->timeout_ms = timeout_ms;
	x->source_count = programs;
	x->sources = aligned_alloc(_Alignof(struct source), bytes);
	if (!x->sources) {
		free(x);
		return -ENOMEM;
	}
	memset(x->sources, 0, bytes);
	if (here)
		x->group = *calls;
	if (programs > 1)
		x->shared = &calls->rx;
	for (uint32_t i = 0; i < request->threads; i++)
		x->lane[i] = (struct lane){.rx = x,
					   .number = i,
					   .sources = x->sources + i * programs,
					   .shared = x->shared,
					   .verify = request->flags & PERF_VERIFY,
					   .answer = request->test == PERF_CALLS && request->window,
					   .returns = request->test == PERF_RETURNS};
	rc = open_sources(x, request);
	if (rc)
		free_rx(x);
	else
		*rx = x;
	return rc;
}

int
call_rx_start(struct call_rx **rx, struct weir *w, struct call_group *calls,
	      const struct perf_message *request, int timeout_ms)
{
	bool here = request->flags & PERF_HERE;
	struct call_rx *x;
	int rc;

	if (here && !calls->v)
		return -EOPNOTSUPP;
	if (here && calls->rx) {
		*rx = calls->rx;
		rc = open_sources(*rx, request);
		if (rc)
			*rx = NULL;
		return rc;
	}
	rc = make_rx(&x, w, calls, request, timeout_ms);
	if (rc)
		return rc;
	rc = -pthread_create(&x->lane[0].thread, NULL, first_main, x);
	if (rc) {
		free_rx(x);
		return rc;
	}
	if (x->shared)
		*x->shared = x;
	*rx = x;
	return 0;
}

int
call_rx_ready(struct call_rx *rx)
{
	int status = atomic_load(&rx->status);

	if (!(rx->request.flags & PERF_HERE) || status)
		return status;
	return atomic_load(&rx->entered) < rx->request.threads ? -EAGAIN : 0;
}

uint64_t
call_rx_count(const struct call_rx *rx, const struct perf_message *request)
{
	const struct source *s = sources_of(rx, request);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < rx->request.threads; i++, s += rx->source_count)
		sum += atomic_load_explicit(&s->run, memory_order_relaxed);
	return sum;
}

/* Asks the threads to end. Whether they have. */
static bool
stop(struct call_rx *rx)
{
	struct weir_waker *waker = atomic_load(&rx->waker);

	if (!atomic_exchange(&rx->stop, true) && waker)
		weir_wake_thread(waker);
	return atomic_load(&rx->ended);
}

bool
call_rx_end(struct call_rx *rx, const struct perf_message *request)
{
	const struct source *s = sources_of(rx, request);

	if (rx->requests == 1)
		return stop(rx);
	/* pairs with the release in note() */
	for (uint32_t i = 0; i < rx->request.threads; i++, s += rx->source_count)
		if (atomic_load_explicit(&s->noted, memory_order_acquire) !=
		    atomic_load_explicit(&s->run, memory_order_relaxed))
			return false;
	return true;
}

void
call_rx_close(struct call_rx *rx, const struct perf_message *request, struct perf_message *result)
{
	const struct source *s;

	if (!rx)
		return;
	if (rx->requests == 1) {
		stop(rx);
		pthread_join(rx->lane[0].thread, NULL);
	}
	s = sources_of(rx, request);
	for (uint32_t i = 0; result && i < rx->request.threads; i++, s += rx->source_count) {
		uint64_t n = atomic_load_explicit(&s->run, memory_order_relaxed);

		result->received += n;
		result->bytes += n * request->size;
		result->errors += s->errors;
		result->measured += n;
		if (n && (!result->start_ns || s->start_ns < result->start_ns))
			result->start_ns = s->start_ns;
		if (n && s->last_ns > result->last_ns)
			result->last_ns = s->last_ns;
	}
	if (--rx->requests)
		return;
	if (rx->shared)
		*rx->shared = NULL;
	free_rx(rx);
}
