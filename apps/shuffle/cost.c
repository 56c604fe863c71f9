/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weir-shuffle-cost: all threads of all processes send records to all, by Weir, by TCP or not at
 * all, and check what they get. Tells how long it took, and how much CPU time.
 */
#include "options.h"
#include "threads.h"

#include "base/fail.h"
#include "base/monotonic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LOOK 256u    /* puts between two looks at the own queue */
#define WAIT_MS 1000 /* for records, until the thread looks at its job again */

enum { DONE, FAILED, USAGE }; /* exit codes */

struct cost_options {
	struct shuffle_options common;
	uint64_t bytes;
	uint32_t record;
	bool prompt;
	double idle; /* seconds */
	uint32_t slow;
};

#define AT(field) OPTION_FIELD(struct cost_options, field)
static const struct option_spec specs[] = {
    SHUFFLE_BLOCK(struct cost_options),
    {"bytes", 'b', OPTION_SIZE, AT(bytes), "BYTES", "64M", "sent by each thread", .min = 1,
     .max = UINT64_C(1) << 44},
    SHUFFLE_HELP(struct cost_options),
    {"idle", 0, OPTION_REAL, AT(idle), "S", "0",
     "instead of sending, all threads wait for records for this time", .least = 0, .most = 3600},
    SHUFFLE_INSTANCE(struct cost_options),
    SHUFFLE_JSON(struct cost_options),
    SHUFFLE_MEMORY(struct cost_options),
    SHUFFLE_PARTITIONS(struct cost_options, "0",
		       "send to partitions, by a hash of keys; 0: to threads in turn"),
    {"prompt", 0, OPTION_FLAG, AT(prompt), NULL, NULL,
     "each record leaves at once, instead of in blocks"},
    {"record", 's', OPTION_SIZE, AT(record), "BYTES", "64", "size of a record, key and value",
     .min = 16, .max = WEIR_RECORD_MAX},
    {"slow", 0, OPTION_UNSIGNED, AT(slow), "US", "0", "time that a consumer spends on each record",
     .max = 1000000},
    SHUFFLE_SOCKETS(struct cost_options),
    SHUFFLE_SPILL(struct cost_options),
    SHUFFLE_THREADS(struct cost_options),
    SHUFFLE_TRANSPORT(struct cost_options),
    SHUFFLE_VERSION(struct cost_options),
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct cost_options),
    .head =
	"Usage: weir-run -n PROCESSES weir-shuffle-cost [options]\n"
	"Each thread of each process sends records to all threads of all processes in turn, and "
	"checks\n"
	"those that it gets. Prints the time that this took, and CPU time of the processes. The "
	"cost of\n"
	"communication is that of a run less that of one with --transport none.\n"
	"\n",
    .tail = "\n"
	    "Exit codes: 0 done, 1 failure, 2 usage.\n",
};

/* Of all processes, added up. */
struct sums {
	uint64_t sent, received, sent_sum, received_sum, cpu_us, blocks, placed, spilled;
};

struct job {
	const struct cost_options *o;
	struct crew crew;
	struct transport *t;
	uint32_t all; /* threads of all processes */
	/* thread 0 */
	uint64_t ns, cpu_us, memory_peak;
	struct transport_totals totals;
	_Atomic uint64_t sent, received, sent_sum, received_sum;
};

struct worker {
	struct job *job;
	struct transport_thread *th;
	uint64_t number; /* of the thread, of all processes */
	uint8_t *value;
	uint64_t *expected; /* next number of each producer's records, if they keep their order */
	uint64_t sent, received, sent_sum, received_sum;
	bool ordered; /* each producer's records come in their order */
	bool over;    /* no more records come */
};

struct key {
	uint64_t producer : 16, sequence : 48;
};

static uint64_t
mix(const struct key *k)
{
	uint64_t x;

	memcpy(&x, k, sizeof(x));
	x = (x ^ x >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 29;
}

static uint64_t
cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* ---- consuming ---- */

static int
check(struct worker *w, const struct weir_record *r)
{
	const struct cost_options *o = w->job->o;
	struct key k;
	uint64_t first, last;

	if (r->key_length != sizeof(k) || r->key_length + r->value_length != o->record)
		return weir_fail(-EBADMSG, "a record has another size than it was sent with");
	memcpy(&k, r->key, sizeof(k));
	memcpy(&first, r->value, 8);
	memcpy(&last, (const uint8_t *)r->value + r->value_length - 8, 8);
	if (first != mix(&k) || last != first || k.producer >= w->job->all)
		return weir_fail(-EBADMSG, "a record has other bytes than it was sent with");
	if (w->ordered && k.sequence != w->expected[k.producer]++)
		return weir_fail(-EBADMSG, "a record of thread %u was lost, or sent twice",
				 (unsigned)k.producer);
	w->received++;
	w->received_sum += first;
	return 0;
}

static void
be_slow(uint32_t us)
{
	uint64_t end = monotonic_ns() + us * UINT64_C(1000);

	while (us && monotonic_ns() < end)
		;
}

/* Reads what there is; waits for the first one. */
static int
read_all(struct worker *w, int timeout_ms)
{
	struct weir_record r;
	int rc = 0;

	while (!w->over && !(rc = transport_next(w->th, &r, timeout_ms))) {
		rc = check(w, &r);
		if (rc)
			return rc;
		be_slow(w->job->o->slow);
		timeout_ms = 0;
	}
	w->over |= rc == -ENODATA;
	return rc == -ENODATA || rc == -EAGAIN ? 0 : rc;
}

/* ---- producing ---- */

/* Record i of the thread; to thread i, or a partition. */
static int
put(struct worker *w, uint64_t i, bool by_key)
{
	const struct cost_options *o = w->job->o;
	struct weir_record r = {.key_length = 8, .value = w->value, .value_length = o->record - 8};
	uint64_t number = (w->number + i) % w->job->all;
	struct weir_to to = {(uint32_t)number / o->common.threads,
			     (uint32_t)number % o->common.threads};
	struct key k = {.producer = w->number & 0xffff};
	uint64_t word;
	int rc;

	k.sequence = (by_key ? i : i / w->job->all) & ((UINT64_C(1) << 48) - 1);
	word = mix(&k);
	memcpy(w->value, &word, 8);
	memcpy(w->value + r.value_length - 8, &word, 8);
	r.key = &k;
	while ((rc = by_key ? transport_put(w->th, &r) : transport_put_to(w->th, to, &r)) ==
	       -ENOBUFS)
		if ((rc = read_all(w, 0)))
			return rc;
	w->sent++;
	w->sent_sum += word;
	return rc;
}

static int
flush(struct worker *w)
{
	int rc;

	while ((rc = transport_flush(w->th)) == -ENOBUFS)
		if ((rc = read_all(w, 1)))
			return rc;
	return rc;
}

/* A record from each thread to each, so that all connections are there when the clock starts. */
static int
warm_up(struct worker *w)
{
	uint32_t all = w->job->all;
	int rc = transport_begin(w->th, 0, 0);

	for (uint32_t i = 0; i < all && !rc; i++)
		rc = put(w, i, false);
	if (!rc)
		rc = flush(w);
	while (!rc && w->received < all)
		rc = read_all(w, WAIT_MS);
	w->sent = w->received = w->sent_sum = w->received_sum = 0;
	return rc;
}

static int
produce(struct worker *w)
{
	const struct cost_options *o = w->job->o;
	uint64_t count = o->bytes / o->record;
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		rc = put(w, w->job->all + i, o->common.partitions);
		if (!rc && i % LOOK == LOOK - 1)
			rc = read_all(w, 0);
	}
	return rc;
}

static int
stay_idle(struct worker *w)
{
	uint64_t end = monotonic_ns() + (uint64_t)(w->job->o->idle * 1e9), now;
	int rc = 0;

	while (!rc && (now = monotonic_ns()) < end)
		rc = read_all(w, (int)((end - now) / 1000000) + 1);
	return rc;
}

static int
exchange(struct worker *w)
{
	int rc = w->job->o->idle > 0 ? stay_idle(w) : produce(w);

	if (!rc)
		rc = flush(w);
	if (!rc)
		while ((rc = transport_end(w->th, true)) == -ENOBUFS)
			if ((rc = read_all(w, 1)))
				break;
	while (!rc && !w->over)
		rc = read_all(w, WAIT_MS);
	return rc;
}

/* ---- threads ---- */

static int
run(struct worker *w)
{
	struct job *job = w->job;
	bool first = !w->th->index;
	int rc = warm_up(w);

	if (!rc)
		rc = transport_barrier(w->th);
	if (first && !rc) {
		job->ns = monotonic_ns();
		job->cpu_us = cpu_us();
	}
	if (!rc)
		rc = exchange(w);
	if (!rc)
		rc = transport_barrier(w->th);
	if (rc)
		return rc;
	if (first) {
		job->ns = monotonic_ns() - job->ns;
		job->cpu_us = cpu_us() - job->cpu_us;
		transport_totals(w->th, &job->totals);
	}
	job->sent += w->sent;
	job->received += w->received;
	job->sent_sum += w->sent_sum;
	job->received_sum += w->received_sum;
	return 0;
}

static int
work(void *arg, uint32_t index)
{
	struct job *job = arg;
	struct worker w = {.job = job};
	int rc;

	/* without a transport the threads of a process get the records of several */
	w.ordered = !job->o->common.partitions &&
		    (job->o->common.transport != TRANSPORT_NONE || job->crew.size == 1);
	w.number = job->crew.rank * job->o->common.threads + index;
	w.value = calloc(1, job->o->record);
	w.expected = calloc(job->all, sizeof(*w.expected));
	if (!w.value || !w.expected)
		rc = weir_fail(-ENOMEM, "no memory for a thread; free some");
	else
		rc = transport_enter(job->t, index, &w.th);
	if (!rc) {
		rc = run(&w);
		if (!rc)
			transport_leave(w.th);
	}
	free(w.value);
	free(w.expected);
	if (rc) {
		/* the others wait for this thread: weir-run ends them */
		fprintf(stderr, "weir-shuffle-cost: %s\n", weir_reason());
		_exit(FAILED);
	}
	return 0;
}

/* ---- report ---- */

static void
print(const struct job *job, const struct sums *s, const uint64_t most[2])
{
	const struct cost_options *o = job->o;
	double seconds = (double)most[0] / 1e9, bytes = (double)s->received * o->record;

	if (!o->common.json) {
		printf("%llu records of %u bytes in %.3f s: %.3f M/s, %.3f GB/s; CPU time of the "
		       "programs %.3f s\n",
		       (unsigned long long)s->received, o->record, seconds,
		       (double)s->received / seconds / 1e6, bytes / seconds / 1e9,
		       (double)s->cpu_us / 1e6);
		return;
	}
	printf("{\"transport\": \"%s\", \"processes\": %u, \"threads\": %u, \"record\": %u, "
	       "\"prompt\": %s, \"records\": %llu, \"bytes\": %.0f, \"elapsed_s\": %.6f, "
	       "\"records_per_s\": %.0f, \"cpu_s\": %.6f, \"blocks\": %llu, \"placed\": %llu, "
	       "\"spilled\": %llu, \"memory_peak\": %llu}\n",
	       shuffle_transport_name(&o->common), job->crew.size, o->common.threads, o->record,
	       o->prompt ? "true" : "false", (unsigned long long)s->received, bytes, seconds,
	       (double)s->received / seconds, (double)s->cpu_us / 1e6,
	       (unsigned long long)s->blocks, (unsigned long long)s->placed,
	       (unsigned long long)s->spilled, (unsigned long long)most[1]);
}

static int
failed(const char *reason)
{
	fprintf(stderr, "weir-shuffle-cost: %s\n", reason);
	return FAILED;
}

static int
report(struct job *job)
{
	struct sums s = {job->sent,   job->received,	  job->sent_sum,      job->received_sum,
			 job->cpu_us, job->totals.blocks, job->totals.placed, job->totals.spilled};
	uint64_t most[2] = {job->ns, job->totals.memory_peak};
	int rc = crew_sum(&job->crew, (uint64_t *)&s, sizeof(s) / sizeof(uint64_t));

	if (!rc)
		rc = crew_most(&job->crew, most, 2);
	if (rc)
		return failed(weir_reason());
	if (s.sent != s.received || s.sent_sum != s.received_sum)
		return failed("records were lost, sent twice, or changed");
	if (!job->crew.rank)
		print(job, &s, most);
	return DONE;
}

static int
measure(struct job *job)
{
	struct transport_options o = shuffle_transport(&job->o->common);
	char reason[256];
	int rc;

	if (job->o->prompt)
		o.shuffle.flags |= WEIR_SHUFFLE_PROMPT;
	job->all = job->crew.size * o.threads;
	rc = transport_open(&job->crew, &o, &job->t);
	if (rc)
		return failed(weir_reason());
	rc = threads_run(o.threads, work, job, reason, sizeof(reason));
	transport_close(job->t);
	return rc ? failed(reason) : report(job);
}

int
main(int argc, char **argv)
{
	static struct cost_options o;
	struct job job = {.o = &o};
	int words = argc - 1, status;

	status = option_main(&table, &o, "weir-shuffle-cost", WEIR_VERSION, &words, argv + 1);
	if (status >= 0)
		return status;
	if (crew_open(&job.crew, o.common.instance, "weir-shuffle-cost",
		      o.common.transport == TRANSPORT_WEIR))
		return failed(weir_reason());
	status = measure(&job);
	crew_close(&job.crew);
	if (status == DONE && (fflush(stdout) || ferror(stdout)))
		return failed("cannot write to stdout; check its target");
	return status;
}
