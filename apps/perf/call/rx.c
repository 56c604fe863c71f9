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

/* A thread: it writes, the server's thread reads once it has ended. */
struct lane {
	_Alignas(64) _Atomic uint64_t run; /* read at any time */
	uint64_t errors;
	bool verify, answer, returns;
	struct perf_schedule schedule;
	uint64_t start_ns, last_ns; /* of the first and the last call */
	pthread_t thread;
	struct call_rx *rx;
	uint32_t number;
};

struct call_rx {
	struct weir *weir;
	struct call_pair pair; /* the first thread's, or that of --inside */
	struct perf_message request;
	int timeout_ms;
	atomic_uint entered;		    /* threads that have, or have failed */
	atomic_bool ended;		    /* the first thread writes, the server's reads */
	_Atomic int status;		    /* why a thread has failed */
	atomic_bool stop;		    /* the server's thread writes */
	_Atomic(struct weir_waker *) waker; /* of the first thread, until it runs calls */
	struct lane lane[];
};

/* The calling thread, if it runs calls. */
static __thread struct lane *own;

/* Looks at a call and answers it, as the request says. */
static void
look(struct lane *l, struct weir_incoming *c, uint64_t i, const void *args, size_t length)
{
	if (l->verify && !perf_schedule_check(&l->schedule, i, args, length))
		l->errors++;
	if (l->answer && weir_call(weir_incoming_invoker(c), weir_incoming_from(c), CALL_ANSWER,
				   args, length, NULL))
		l->errors++;
	if (l->returns && weir_incoming_result(c, args, length))
		l->errors++;
}

void
call_count_row(struct weir_incoming *c, const void *args, size_t length, size_t stride,
	       size_t count)
{
	struct lane *l = own;
	uint64_t run;

	if (!l) /* a peer may call any thread */
		return;
	run = atomic_load_explicit(&l->run, memory_order_relaxed);
	if (!run)
		l->start_ns = now_ns();
	if (l->verify || l->answer || l->returns)
		for (size_t i = 0; i < count; i++)
			look(l, c, run + i, (const uint8_t *)args + i * stride, length);
	atomic_store_explicit(&l->run, run + count, memory_order_relaxed);
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
		rc = weir_invoker_progress(rx->pair.v, 0, sleeps && !fresh ? IDLE_SLEEP_MS : 0);
		if (rc < 0 && rc != -EINTR)
			break;
		if (rc > 0) {
			fresh = true;
			idle.empty = 0;
			continue;
		}
		/* the clock is read only when there is time for it */
		if (fresh)
			l->last_ns = now_ns();
		fresh = false;
		if (!sleeps)
			perf_idle(&idle);
		rc = 0;
	}
	if (fresh)
		l->last_ns = now_ns();
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
	return status ? status : weir_group_barrier(rx->pair.g, rx->timeout_ms);
}

static void
enter_and_run(struct lane *l)
{
	struct call_rx *rx = l->rx;
	bool inside = !rx->request.group;
	int rc;

	own = l;
	rc = weir_invoker_enter(rx->pair.v, l->number + (inside ? rx->request.threads : 0));
	if (rc)
		fail(rx, rc);
	atomic_fetch_add(&rx->entered, 1);
	if (!l->number && !inside)
		rc = begin_together(rx);
	/* a wake that no wait takes would end one of the next thread's */
	if (!l->number)
		atomic_store(&rx->waker, NULL);
	if (!rc)
		rc = run_calls(l);
	if (rc)
		fail(rx, rc);
	weir_invoker_leave(rx->pair.v);
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
	bool inside = !rx->request.group;
	struct weir_waker *waker;
	uint32_t started = 1;
	int rc = weir_thread_waker(rx->weir, &waker);

	if (!rc)
		atomic_store(&rx->waker, waker);
	if (!rc && !inside && !atomic_load(&rx->stop))
		rc = call_pair_open(&rx->pair, rx->weir, &rx->request, rx->request.rank,
				    rx->timeout_ms);
	if (!rc && rx->pair.v) {
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
	if (!inside)
		call_pair_close(&rx->pair);
	atomic_store(&rx->ended, true);
	return NULL;
}

/* ---- of the server ---- */

int
call_rx_start(struct call_rx **rx, struct weir *w, const struct call_pair *inside,
	      const struct perf_message *request, int timeout_ms)
{
	struct call_rx *x;
	size_t bytes = sizeof(*x) + request->threads * sizeof(x->lane[0]);
	int rc;

	if (!request->group && !inside->v)
		return -EOPNOTSUPP;
	x = aligned_alloc(_Alignof(struct lane), bytes);
	if (!x)
		return -ENOMEM;
	memset(x, 0, bytes);
	x->weir = w;
	x->request = *request;
	x->timeout_ms = timeout_ms;
	if (!request->group)
		x->pair = *inside;
	for (uint32_t i = 0; i < request->threads; i++)
		x->lane[i] = (struct lane){.rx = x,
					   .number = i,
					   .verify = request->flags & PERF_VERIFY,
					   .answer = request->test == PERF_CALLS && request->window,
					   .returns = request->test == PERF_RETURNS,
					   .schedule = call_schedule(request, i)};
	rc = -pthread_create(&x->lane[0].thread, NULL, first_main, x);
	if (rc)
		free(x);
	else
		*rx = x;
	return rc;
}

int
call_rx_ready(struct call_rx *rx)
{
	int status = atomic_load(&rx->status);

	if (rx->request.group || status)
		return status;
	return atomic_load(&rx->entered) < rx->request.threads ? -EAGAIN : 0;
}

uint64_t
call_rx_count(const struct call_rx *rx)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < rx->request.threads; i++)
		sum += atomic_load_explicit(&rx->lane[i].run, memory_order_relaxed);
	return sum;
}

bool
call_rx_end(struct call_rx *rx)
{
	struct weir_waker *waker = atomic_load(&rx->waker);

	if (!atomic_exchange(&rx->stop, true) && waker)
		weir_wake_thread(waker);
	return atomic_load(&rx->ended);
}

void
call_rx_close(struct call_rx *rx, struct perf_message *result)
{
	if (!rx)
		return;
	call_rx_end(rx);
	pthread_join(rx->lane[0].thread, NULL);
	for (uint32_t i = 0; i < rx->request.threads; i++) {
		const struct lane *l = &rx->lane[i];
		uint64_t n = atomic_load(&l->run);

		result->received += n;
		result->bytes += n * rx->request.size;
		result->errors += l->errors;
		result->measured += n;
		if (n && (!result->start_ns || l->start_ns < result->start_ns))
			result->start_ns = l->start_ns;
		if (n && l->last_ns > result->last_ns)
			result->last_ns = l->last_ns;
	}
	free(rx);
}
