/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates: queues kept full until the time is over or the count is reached. */
#define _GNU_SOURCE
#include "nicperf.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <rte_lcore.h>
#include <rte_spinlock.h>

#define WARM_NS 50000000u
#define PEAK_NS 5000000u
#define TIMEOUT_NS 5000000000ull /* without any completion the run has failed */

struct run {
	struct nicperf *np;
	struct nicperf_result *result;
	uint64_t mark;	/* one of this many WRs of a QP is signaled */
	uint64_t limit; /* of each QP; UINT64_MAX: none */
	/* threads: all of the above is shared under the lock */
	rte_spinlock_t lock;
	_Atomic bool stop; /* main sets, threads read */
	_Atomic int rc;	   /* of the thread that failed */
	/* Threads write it under the lock, main reads it without: they leave it no turn for
	 * seconds. */
	_Atomic uint64_t completed;
};

static void
describe(const struct run *r, const struct nicperf_flow *f, struct nic_send_wr *wr)
{
	static const uint8_t opcodes[] = {NIC_WRITE, NIC_READ, NIC_SEND, NIC_FETCH_ADD,
					  NIC_CMP_SWAP};
	const struct nicperf_result *result = r->result;
	uint64_t number = f->posted + 1;

	*wr = (struct nic_send_wr){
	    .wr_id = number,
	    .sge = {{f->local, result->size, r->np->end[0]->mr.lkey}},
	    .sge_count = 1,
	    .opcode = opcodes[result->test],
	    .flags = number % r->mark == 0 || number == r->limit ? NIC_SIGNALED : 0,
	    .remote_address = f->remote,
	    .rkey = f->rkey,
	};
	if (result->test == NICPERF_FADD)
		wr->compare_add = 1;
	if (result->test == NICPERF_CAS)
		wr->compare_add = wr->swap = number;
}

/* Fills the queue, up to `until` WRs in all. */
static int
fill(struct run *r, struct nicperf_flow *f, uint64_t until)
{
	struct nic_send_wr wr[NIC_POLL_MAX];
	uint32_t list = r->np->options->list, depth = r->np->options->depth;

	while (f->posted < until && depth - (f->posted - f->done) >= list) {
		uint64_t before = f->posted, n = until - before < list ? until - before : list;
		int rc;

		for (uint64_t i = 0; i < n;) {
			unsigned k = 0;

			for (; k < NIC_POLL_MAX && i < n; k++, i++, f->posted++)
				describe(r, f, &wr[k]);
			rc = nic_post_send(f->qp, wr, k);
			if (rc == (int)k)
				continue;
			f->posted -= rc < 0 ? k : k - (unsigned)rc;
			if (rc >= 0)
				return 0;
			if (rc == -ENOTSUP || rc == -EOPNOTSUPP || rc == -EINVAL)
				return nicperf_fail(r->np, -EOPNOTSUPP,
						    "driver %s does not offer %s; leave it out of "
						    "-t",
						    NIC_OPS(r->np->dev)->driver,
						    nicperf_test_name(r->result->test));
			return nicperf_fail(r->np, rc,
					    "a work request is refused: %s; look at "
					    "both ends",
					    strerror(-rc));
		}
	}
	return 0;
}

static uint64_t
done(const struct run *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->np->qps; i++)
		sum += r->np->end[0]->flow[i].done;
	return sum;
}

/* One turn of all QPs. */
static int
turn(struct run *r)
{
	int rc = 0;

	for (uint32_t i = 0; i < r->np->qps && !rc; i++)
		rc = fill(r, &r->np->end[0]->flow[i], r->limit);
	return rc ? rc : nicperf_turn(r->np);
}

/* Completes all posted WRs, the last one signaled: the next run starts with an empty queue. */
static int
drain(struct run *r)
{
	uint64_t end = clock_now(&r->np->clock) + TIMEOUT_NS;
	int rc = 0;

	for (uint32_t i = 0; i < r->np->qps && !rc; i++) {
		struct nicperf_flow *f = &r->np->end[0]->flow[i];
		uint64_t until = r->limit;

		if (until == UINT64_MAX)
			until = (f->posted + r->mark - 1) / r->mark * r->mark;
		while (!rc && f->done < until) {
			rc = fill(r, f, until);
			if (!rc)
				rc = nicperf_turn(r->np);
			if (!rc && clock_now(&r->np->clock) > end)
				rc = nicperf_fail(r->np, -ETIMEDOUT,
						  "no completion for 5 s; look at the other end");
		}
		f->posted = f->done = 0;
	}
	return rc;
}

/* Turns until `until`, or until all WRs are done; best: rate in the best 5 ms. */
static int
turns(struct run *r, uint64_t until, double *best)
{
	uint64_t now = clock_now(&r->np->clock), last = now, moved = now, at = done(r), n = at;
	uint64_t total = r->limit == UINT64_MAX ? UINT64_MAX : r->limit * r->np->qps;
	int rc = 0;

	while (!rc && now < until && n < total) {
		uint64_t before = n;

		rc = turn(r);
		n = done(r);
		now = clock_now(&r->np->clock);
		if (n != before)
			moved = now;
		else if (now - moved > TIMEOUT_NS)
			rc = nicperf_fail(r->np, -ETIMEDOUT,
					  "no completion for 5 s; look at the other end");
		if (now - last >= PEAK_NS) {
			double rate = (double)(n - at) * 1e9 / (double)(now - last);

			*best = rate > *best ? rate : *best;
			last = now;
			at = n;
		}
	}
	return rc;
}

static void *
thread_main(void *arg)
{
	struct run *r = arg;
	int rc = 0;

	rte_thread_register(); /* for a cache of its own in the pools */
	while (!rc && !atomic_load_explicit(&r->stop, memory_order_relaxed)) {
		rte_spinlock_lock(&r->lock);
		rc = turn(r);
		atomic_store_explicit(&r->completed, done(r), memory_order_relaxed);
		rte_spinlock_unlock(&r->lock);
	}
	rte_thread_unregister();
	if (rc) {
		atomic_store(&r->rc, rc);
		atomic_store(&r->stop, true);
	}
	return NULL;
}

/* Threads take turns at the one QP; this one looks at the clock. */
static int
shared_turns(struct run *r, uint64_t until, double *best)
{
	uint64_t now = clock_now(&r->np->clock), last = now, at = done(r);
	pthread_t thread[NICPERF_THREADS_MAX];
	cpu_set_t all;
	unsigned n = 0;

	CPU_ZERO(&all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		CPU_SET(cpu, &all);
	rte_spinlock_init(&r->lock);
	atomic_store(&r->stop, false);
	atomic_store(&r->rc, 0);
	atomic_store(&r->completed, at);
	for (; n < r->np->options->qps; n++) {
		if (pthread_create(&thread[n], NULL, thread_main, r))
			break;
		pthread_setaffinity_np(thread[n], sizeof(all), &all);
	}
	while (n == r->np->options->qps && now < until && !atomic_load(&r->stop)) {
		struct timespec pause = {.tv_nsec = PEAK_NS};
		uint64_t count;

		nanosleep(&pause, NULL);
		count = atomic_load_explicit(&r->completed, memory_order_relaxed);
		now = clock_now(&r->np->clock);
		if ((double)(count - at) * 1e9 / (double)(now - last) > *best)
			*best = (double)(count - at) * 1e9 / (double)(now - last);
		last = now;
		at = count;
	}
	atomic_store(&r->stop, true);
	for (unsigned i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	if (n < r->np->options->qps)
		return nicperf_fail(r->np, -EAGAIN,
				    "only %u threads can be made; give a smaller -q", n);
	return atomic_load(&r->rc);
}

int
nicperf_stream(struct nicperf *np, struct nicperf_result *result)
{
	const struct nicperf_options *o = np->options;
	struct run r = {.np = np, .result = result, .limit = UINT64_MAX};
	uint64_t begin, before, until;
	double warm = 0;
	int rc;

	/* a list must fit beside WRs that no signaled one has completed yet */
	r.mark = o->depth - o->list + 1 < o->depth / 4 ? o->depth - o->list + 1 : o->depth / 4;
	rc = turns(&r, clock_now(&np->clock) + WARM_NS, &warm);
	if (rc)
		return rc;
	if (o->count) {
		rc = drain(&r);
		r.limit = o->count;
	}
	begin = clock_now(&np->clock);
	before = done(&r);
	until = o->count ? UINT64_MAX : begin + (uint64_t)(o->duration * 1e9);
	if (!rc)
		rc = o->shared && !o->count ? shared_turns(&r, until, &result->peak)
					    : turns(&r, until, &result->peak);
	result->seconds = (double)(clock_now(&np->clock) - begin) / 1e9;
	result->count = done(&r) - before;
	return rc ? rc : drain(&r);
}
