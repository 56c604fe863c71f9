/* SPDX-License-Identifier: BSD-3-Clause */
#include "calibrate.h"
#include "clock.h"
#include "histogram.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void
histogram_clear(struct histogram *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

void
histogram_add(struct histogram *to, const struct histogram *from)
{
	to->count += from->count;
	to->sum += from->sum;
	if (from->min < to->min)
		to->min = from->min;
	if (from->max > to->max)
		to->max = from->max;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

uint64_t
histogram_value(uint32_t bucket)
{
	uint32_t shift;
	uint64_t first;

	if (bucket < 2 * HISTOGRAM_STEPS)
		return bucket;
	shift = bucket / HISTOGRAM_STEPS - 1;
	first = (uint64_t)(bucket - shift * HISTOGRAM_STEPS) << shift;
	return first + (1ull << shift) / 2;
}

uint64_t
histogram_percentile(const struct histogram *h, double share)
{
	uint64_t seen = 0, rank = (uint64_t)(share * (double)h->count);
	uint64_t value;

	if (!h->count)
		return 0;
	if ((double)rank < share * (double)h->count)
		rank++; /* the smallest whole number of values that is at least that share */
	if (!rank)
		rank = 1;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen < rank)
			continue;
		value = histogram_value(i);
		if (value < h->min)
			return h->min;
		return value > h->max ? h->max : value;
	}
	return h->max;
}

double
histogram_mean(const struct histogram *h)
{
	return h->count ? (double)h->sum / (double)h->count : 0;
}

double
histogram_deviation(const struct histogram *h)
{
	double mean = histogram_mean(h), squares = 0, root = 1;

	if (!h->count)
		return 0;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		double off = (double)histogram_value(i) - mean;

		squares += (double)h->bucket[i] * off * off;
	}
	squares /= (double)h->count;
	if (squares <= 0)
		return 0;
	/* Newton's square root from above, without libm: halves at first, then doubles its digits
	 */
	if (squares > 1)
		root = squares;
	for (double next = (root + squares / root) / 2; next < root;
	     next = (root + squares / root) / 2)
		root = next;
	return root;
}

#define BATCHES 31u
#define LINE_TURNS 1000u /* round trips per batch */
#define RING_SLOTS 256u
#define RING_PUBLISH 32u
#define RING_TURNS (1u << 17) /* slots per batch */
#define COPY_BYTES (64u << 10)
#define COPY_TURNS 64u /* copies per batch */
#define CHAIN 4u
#define CHAIN_TURNS 50u		 /* round trips per batch */
#define BUDGET_NS (NS_PER_S / 4) /* after this time no further batch of a measurement begins */

struct slot {
	_Alignas(64) uint64_t word[8];
};

/* Shared by the threads, or the processes, of one measurement. */
struct shared {
	_Alignas(64) _Atomic uint64_t ask;    /* measuring side writes, other side reads */
	_Alignas(64) _Atomic uint64_t answer; /* the other way round */
	_Alignas(64) _Atomic uint64_t turn;   /* chain: process n % CHAIN adds 1 to number n */
	_Alignas(64) _Atomic uint64_t head;   /* producer writes, consumer reads */
	_Alignas(64) _Atomic uint64_t tail;   /* consumer writes, producer reads */
	_Alignas(64) _Atomic uint32_t ready;  /* both: how many have started */
	_Atomic bool stop;		      /* measuring side writes: enough */
	_Alignas(64) double batch[BATCHES];   /* the measuring side's */
	unsigned batches;
	struct slot ring[RING_SLOTS];
};

static void
pin(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double
median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

static bool
stopped(struct shared *s)
{
	return atomic_load_explicit(&s->stop, memory_order_relaxed);
}

/* Whether to measure another batch. */
static bool
go_on(const struct shared *s, uint64_t begin)
{
	return s->batches < BATCHES && (!s->batches || now_ns() - begin < BUDGET_NS);
}

/* A round trip moves a cache line each way, as a message and its answer do. */
static void
line_answer(struct shared *s)
{
	for (uint64_t i = 1;; i++) {
		/* pairs with the release in line_ask() */
		while (atomic_load_explicit(&s->ask, memory_order_acquire) != i) {
			if (stopped(s))
				return;
			cpu_relax();
		}
		atomic_store_explicit(&s->answer, i, memory_order_release);
	}
}

static void
line_ask(struct shared *s)
{
	uint64_t i = 0, start = now_ns();

	while (go_on(s, start)) {
		uint64_t begin = now_ns();

		for (uint64_t end = i + LINE_TURNS; i < end;) {
			atomic_store_explicit(&s->ask, ++i, memory_order_release);
			/* pairs with the release in line_answer() */
			while (atomic_load_explicit(&s->answer, memory_order_acquire) != i)
				cpu_relax();
		}
		s->batch[s->batches++] = (double)(now_ns() - begin) / LINE_TURNS;
	}
	atomic_store(&s->stop, true);
}

/* One word of each slot is written and read: the moving cache line is the cost. */
static void
ring_consume(struct shared *s)
{
	uint64_t pos = 0, sum = 0;

	for (;;) {
		/* pairs with the release in ring_produce() */
		uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);

		if (head == pos) {
			if (stopped(s))
				break;
			cpu_relax();
			continue;
		}
		for (; pos < head; pos++)
			sum += s->ring[pos % RING_SLOTS].word[0];
		/* pairs with the acquire in ring_produce() */
		atomic_store_explicit(&s->tail, pos, memory_order_release);
	}
	/* keeps the compiler from removing the reads */
	atomic_store_explicit(&s->answer, sum, memory_order_relaxed);
}

static void
ring_produce(struct shared *s)
{
	uint64_t free_until = RING_SLOTS, pos = 0, start = now_ns();

	while (go_on(s, start)) {
		uint64_t begin = now_ns();

		for (uint64_t end = pos + RING_TURNS; pos < end; pos += RING_PUBLISH) {
			while (free_until - pos < RING_PUBLISH) {
				/* pairs with the release in ring_consume() */
				free_until = RING_SLOTS +
					     atomic_load_explicit(&s->tail, memory_order_acquire);
				if (free_until - pos < RING_PUBLISH)
					cpu_relax();
			}
			for (unsigned i = 0; i < RING_PUBLISH; i++)
				s->ring[(pos + i) % RING_SLOTS].word[0] = pos + i;
			/* pairs with the acquire in ring_consume() */
			atomic_store_explicit(&s->head, pos + RING_PUBLISH, memory_order_release);
		}
		s->batch[s->batches++] = RING_TURNS * 1e3 / (double)(now_ns() - begin);
	}
	atomic_store(&s->stop, true);
}

/*
 * Messages of 64 bytes as the library lays them out: 48 behind the head of a slot, 16 in a second
 * one. Each is published by itself, copied in and out, and nothing else is done.
 */
static void
slots_consume(struct shared *s)
{
	uint64_t pos = 0, out[8], sum = 0;

	for (;;) {
		const struct slot *a = &s->ring[pos % RING_SLOTS], *b = a + 1;

		/* pairs with the release in slots_produce() */
		if (__atomic_load_n(&a->word[0], __ATOMIC_ACQUIRE) != pos + 1) {
			if (stopped(s))
				break;
			cpu_relax();
			continue;
		}
		memcpy(out, &a->word[2], 48);
		memcpy(&out[6], &b->word[1], 16);
		sum += out[0] + out[7];
		pos += 2;
		/* pairs with the acquire in slots_produce() */
		if (pos % (RING_SLOTS / 8) == 0)
			atomic_store_explicit(&s->tail, pos, memory_order_release);
	}
	/* keeps the compiler from removing the reads */
	atomic_store_explicit(&s->answer, sum, memory_order_relaxed);
}

static void
slots_produce(struct shared *s)
{
	uint64_t free_until = RING_SLOTS, pos = 0, start = now_ns(), message[8] = {0};

	while (go_on(s, start)) {
		uint64_t begin = now_ns();

		for (uint64_t end = pos + RING_TURNS; pos < end; pos += 2) {
			struct slot *a = &s->ring[pos % RING_SLOTS], *b = a + 1;

			while (free_until - pos < 2) {
				/* pairs with the release in slots_consume() */
				free_until = RING_SLOTS +
					     atomic_load_explicit(&s->tail, memory_order_acquire);
				if (free_until - pos < 2)
					cpu_relax();
			}
			message[0] = pos;
			memcpy(&b->word[1], &message[6], 16);
			b->word[0] = pos + 2;
			memcpy(&a->word[2], message, 48);
			a->word[1] = 64;
			/* pairs with the acquire in slots_consume() */
			__atomic_store_n(&a->word[0], pos + 1, __ATOMIC_RELEASE);
		}
		s->batch[s->batches++] = RING_TURNS / 2 * 1e3 / (double)(now_ns() - begin);
	}
	atomic_store(&s->stop, true);
}

/* Yields until the line holds number i. False: the measurement has ended. */
static bool
chain_await(struct shared *s, uint64_t i)
{
	/* pairs with the release of the process that has the number before */
	while (atomic_load_explicit(&s->turn, memory_order_acquire) != i) {
		if (stopped(s))
			return false;
		sched_yield();
	}
	return true;
}

/* Process 0 measures. */
static void
chain_measure(struct shared *s)
{
	uint64_t i = 0, start = now_ns();

	while (go_on(s, start)) {
		uint64_t begin = now_ns();

		for (unsigned n = 0; n < CHAIN_TURNS; n++) {
			atomic_store_explicit(&s->turn, i + 1, memory_order_release);
			i += CHAIN;
			chain_await(s, i);
		}
		s->batch[s->batches++] = (double)(now_ns() - begin) / (1e3 * CHAIN_TURNS);
	}
	atomic_store(&s->stop, true);
}

struct side {
	struct shared *shared;
	void (*work)(struct shared *s);
	int cpu;
};

static void *
side_main(void *arg)
{
	struct side *side = arg;
	struct shared *s = side->shared;

	pin(side->cpu);
	/* both sides begin when both have started */
	atomic_fetch_add(&s->ready, 1);
	while (atomic_load(&s->ready) < 2) {
		if (atomic_load(&s->stop))
			return NULL;
		sched_yield();
	}
	side->work(s);
	return NULL;
}

/* Runs each side on its own thread. False: a thread could not be created. */
static bool
run_pair(struct shared *s, void (*measure)(struct shared *), void (*other)(struct shared *),
	 const int cpus[2])
{
	struct side sides[2] = {{s, measure, cpus[0]}, {s, other, cpus[1]}};
	pthread_t threads[2];

	memset(s, 0, sizeof(*s));
	if (pthread_create(&threads[0], NULL, side_main, &sides[0]))
		return false;
	if (pthread_create(&threads[1], NULL, side_main, &sides[1])) {
		atomic_store(&s->stop, true);
		pthread_join(threads[0], NULL);
		return false;
	}
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return true;
}

/* Processes on both CPUs alternately; all die with this one. */
static bool
run_chain(struct shared *s, const int cpus[2])
{
	pid_t pids[CHAIN], parent = getpid();
	bool ok = true;
	unsigned n;

	memset(s, 0, sizeof(*s));
	for (n = 0; n < CHAIN; n++) {
		pids[n] = fork();
		if (pids[n] < 0)
			break;
		if (pids[n] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() == parent) {
				pin(cpus[n % 2]);
				if (n == 0)
					chain_measure(s);
				/* process n passes on each number that is n modulo CHAIN */
				for (uint64_t i = n; n && chain_await(s, i); i += CHAIN)
					atomic_store_explicit(&s->turn, i + 1,
							      memory_order_release);
			}
			_exit(0);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		if (n < CHAIN) {
			ok = false;
			kill(pids[i], SIGKILL);
		}
		waitpid(pids[i], NULL, 0);
	}
	return ok;
}

/* The calling thread copies on `cpu`, then goes back to where it may run. */
static bool
run_copy(struct shared *s, int cpu)
{
	uint8_t *from = malloc(2 * COPY_BYTES), *to = from + COPY_BYTES;
	cpu_set_t allowed;
	uint64_t start;

	if (!from || sched_getaffinity(0, sizeof(allowed), &allowed)) {
		free(from);
		return false;
	}
	memset(s, 0, sizeof(*s));
	memset(from, 1, 2 * COPY_BYTES);
	pin(cpu);
	start = now_ns();
	while (go_on(s, start)) {
		uint64_t begin = now_ns();

		for (unsigned n = 0; n < COPY_TURNS; n++) {
			memcpy(to, from, COPY_BYTES);
			__asm__ __volatile__("" : : "r"(to) : "memory"); /* leaves no copy out */
		}
		s->batch[s->batches++] =
		    (double)COPY_TURNS * COPY_BYTES / (double)(now_ns() - begin);
	}
	sched_setaffinity(0, sizeof(allowed), &allowed);
	free(from);
	return true;
}

struct calibration
calibrate(const cpu_set_t *allowed, int cpu)
{
	struct calibration c = {0};
	struct shared *s;
	int cpus[2], n = 0;

	if (cpu >= 0)
		cpus[n++] = cpu;
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (i != cpu && CPU_ISSET(i, allowed))
			cpus[n++] = i;
	if (n < 2)
		return c;
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		return c;
	if (run_pair(s, line_ask, line_answer, cpus)) {
		c.line_ns = median(s->batch, s->batches);
		if (run_pair(s, ring_produce, ring_consume, cpus)) {
			c.ring_mps = median(s->batch, s->batches);
			if (run_pair(s, slots_produce, slots_consume, cpus)) {
				c.slots_mps = median(s->batch, s->batches);
				if (run_chain(s, cpus)) {
					c.chain4_us = median(s->batch, s->batches);
					c.valid = run_copy(s, cpus[0]);
					if (c.valid)
						c.copy_gbps = median(s->batch, s->batches);
				}
			}
		}
	}
	munmap(s, sizeof(*s));
	return c;
}

const char *
calibration_label(const struct calibration *before, const struct calibration *after)
{
	double low = before->line_ns, high = after->line_ns;

	if (!before->valid || !after->valid)
		return "none";
	if (low > high) {
		low = after->line_ns;
		high = before->line_ns;
	}
	return high > low * (1 + CALIBRATE_STEADY) ? "unsteady" : "steady";
}

struct calibration
calibration_mean(const struct calibration *before, const struct calibration *after)
{
	return (struct calibration){
	    .valid = before->valid && after->valid,
	    .line_ns = (before->line_ns + after->line_ns) / 2,
	    .ring_mps = (before->ring_mps + after->ring_mps) / 2,
	    .slots_mps = (before->slots_mps + after->slots_mps) / 2,
	    .chain4_us = (before->chain4_us + after->chain4_us) / 2,
	    .copy_gbps = (before->copy_gbps + after->copy_gbps) / 2,
	};
}
