/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage.h"

#include "tasks.h"
#include "threads.h"

#include "base/monotonic.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PROGRESS_NS UINT64_C(250000000)
#define WAIT_MS 10 /* until a thread without a task asks again */

/* Ends an attempt, and asks for another task. */
struct ask {
	uint32_t map;	  /* UINT32_MAX: there was none */
	uint32_t attempt; /* of it */
	uint32_t failed;
	uint32_t reserved;
	uint64_t bytes; /* of its input */
};

struct answer {
	uint32_t answer; /* enum task_answer */
	uint32_t map, attempt;
	uint32_t reserved;
};

struct run {
	struct stage stage;
	struct transport *t;
	const struct stage_job *job;
	/* process 0 */
	pthread_mutex_t lock; /* of tasks and shown */
	struct tasks tasks;
	uint64_t bytes, shown_ns, begin_ns;
	bool terminal;
	/* without Weir */
	_Atomic uint32_t next; /* task of this process */
	/* thread 0 */
	uint64_t ns, map_ns, cpu_us;
	struct transport_totals totals;
	_Atomic uint64_t records, all_bytes, out_records;
};

static uint64_t
cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* ---- process 0 ---- */

static void
show(struct run *run, uint64_t now)
{
	double seconds = (double)(now - run->begin_ns) / 1e9;
	bool last = run->tasks.done == run->tasks.count;

	if (!run->job->progress || (!last && now - run->shown_ns < PROGRESS_NS))
		return;
	run->shown_ns = now;
	fprintf(stderr, "%s%u of %u map tasks, %.0f MB/s, %llu attempts%s",
		run->terminal ? "\r" : "", run->tasks.done, run->tasks.count,
		(double)run->bytes / seconds / 1e6, (unsigned long long)run->tasks.attempts,
		run->terminal && !last ? "" : "\n");
}

static struct answer
choose(struct run *run, uint32_t process, const struct ask *ask)
{
	struct answer a = {0};
	uint64_t now = monotonic_ns();

	pthread_mutex_lock(&run->lock);
	if (ask->map < run->tasks.count) {
		if (!ask->failed && !run->tasks.all[ask->map].done)
			run->bytes += ask->bytes;
		tasks_ended(&run->tasks, ask->map, !ask->failed, now);
		show(run, now);
	}
	a.answer = tasks_choose(&run->tasks, process, now, &a.map, &a.attempt);
	pthread_mutex_unlock(&run->lock);
	return a;
}

static void
run_ask(struct weir_incoming *c, const void *args, size_t length)
{
	struct run *run = weir_incoming_user(c);
	struct answer a;

	if (run->stage.crew->rank) {
		weir_incoming_refuse(c, EPERM);
		return;
	}
	a = choose(run, weir_incoming_from(c).process, args);
	weir_incoming_result(c, &a, sizeof(a));
}

static void
lost(struct weir_invoker *v, uint32_t process, int status, void *user)
{
	struct run *run = user;

	if (run->stage.crew->rank)
		return;
	pthread_mutex_lock(&run->lock);
	tasks_lost(&run->tasks, process);
	pthread_mutex_unlock(&run->lock);
}

/* ---- map tasks of a thread ---- */

static int
ask_first(struct run *run, const struct ask *ask, struct answer *a)
{
	const struct weir_to driver = {0, WEIR_THREAD_ANY};
	struct weir_future f = {0};
	int rc;

	rc = weir_call_return(run->t->v, driver, 0, ask, sizeof(*ask), &f, a, sizeof(*a), NULL);
	while (!rc && (rc = weir_future_wait(run->t->v, &f, -1)) == -EINTR)
		rc = 0;
	if (!rc && f.length != sizeof(*a))
		rc = weir_fail(-EPROTO, "process 0 hands out no tasks; see its output");
	return rc;
}

static int
ask(struct run *run, const struct ask *ask, struct answer *a)
{
	uint32_t i;

	if (run->t->v)
		return ask_first(run, ask, a);
	i = run->next++ * run->stage.crew->size + run->stage.crew->rank;
	*a = (struct answer){i < run->job->maps ? TASK_RUN : TASK_OVER, i, 0, 0};
	return 0;
}

/* An attempt. 0: it counts, or another one does; -errno: it failed. */
static int
attempt(struct stage_thread *t, const struct answer *a)
{
	struct run *run = (struct run *)t->stage;
	int rc = transport_begin(t->th, a->map, a->attempt), end;

	t->task_records = t->task_bytes = 0;
	if (rc)
		return rc;
	rc = run->job->map(t, a->map);
	if (!rc && !run->t->v)
		while ((rc = transport_flush(t->th)) == -ENOBUFS)
			;
	end = transport_end(t->th, !rc);
	if (!rc && !end) {
		t->records += t->task_records;
		t->bytes += t->task_bytes;
	}
	return rc ? rc : end == -EALREADY ? 0 : end;
}

/* Whether another attempt would fail as this one: the shuffle is over, or `memory` is too small. */
static bool
is_final(int rc)
{
	return rc == -EHOSTDOWN || rc == -ECANCELED || rc == -ENOBUFS || rc == -EMSGSIZE;
}

static int
map_all(struct stage_thread *t)
{
	struct run *run = (struct run *)t->stage;
	struct ask q = {.map = UINT32_MAX};
	struct answer a;
	int rc;

	while (!(rc = ask(run, &q, &a)) && a.answer != TASK_OVER) {
		q = (struct ask){.map = UINT32_MAX};
		if (a.answer == TASK_FAILED)
			return weir_fail(-EIO, "a map task failed %u times; see the output above",
					 TASK_ATTEMPTS_MAX);
		if (a.answer == TASK_WAIT) {
			rc = weir_invoker_progress(run->t->v, 0, WAIT_MS);
			if (rc < 0 && rc != -EINTR)
				return rc;
			continue;
		}
		rc = attempt(t, &a);
		if (rc && (!run->t->v || is_final(rc)))
			return rc;
		if (rc)
			fprintf(stderr, "%s: attempt %u of map task %u: %s\n", run->job->program,
				a.attempt, a.map, weir_reason());
		q = (struct ask){
		    .map = a.map, .attempt = a.attempt, .failed = rc != 0, .bytes = t->task_bytes};
	}
	return rc;
}

static int
reduce_part(struct stage_thread *t, uint32_t partition, uint32_t part)
{
	const struct stage_job *job = t->stage->job;
	int rc;

	if (!transport_owns(t->th, partition, part))
		return 0;
	rc = transport_read(t->th, partition, part, job->parts);
	if (rc)
		return rc;
	rc = job->reduce(t, partition, part);
	transport_read_end(t->th, !rc);
	return rc;
}

static int
reduce_all(struct stage_thread *t)
{
	const struct stage *s = t->stage;
	int rc = 0;

	for (uint32_t i = 0; i < s->partitions * s->job->parts && !rc; i++)
		rc = reduce_part(t, i / s->job->parts, i % s->job->parts);
	return rc;
}

static int
work_entered(struct stage_thread *t)
{
	struct run *run = (struct run *)t->stage;
	bool first = !t->th->index;
	int rc = transport_barrier(t->th);

	if (!rc && first) {
		run->ns = run->begin_ns = monotonic_ns();
		run->cpu_us = cpu_us();
	}
	if (!rc)
		rc = map_all(t);
	if (!rc && first)
		run->map_ns = monotonic_ns() - run->ns;
	if (!rc)
		rc = reduce_all(t);
	if (!rc)
		rc = transport_barrier(t->th);
	if (!rc && first) {
		run->ns = monotonic_ns() - run->ns;
		run->cpu_us = cpu_us() - run->cpu_us;
		transport_totals(t->th, &run->totals);
	}
	run->records += t->records;
	run->all_bytes += t->bytes;
	run->out_records += t->out_records;
	return rc;
}

static int
work(void *arg, uint32_t index)
{
	struct run *run = arg;
	struct stage_thread t = {.stage = &run->stage, .user = run->job->user};
	int rc = transport_enter(run->t, index, &t.th);

	if (!rc)
		rc = work_entered(&t);
	if (rc) {
		/* other threads wait for this one: weir-run ends them */
		fprintf(stderr, "%s: %s\n", run->job->program, weir_reason());
		_exit(1);
	}
	transport_leave(t.th);
	return 0;
}

/* ---- jobs ---- */

static int
collect(struct run *run, struct stage_result *r)
{
	uint64_t most[3] = {run->ns, run->map_ns, run->totals.memory_peak};
	uint64_t sums[9] = {run->records,	run->all_bytes,	     run->out_records,
			    run->cpu_us,	run->tasks.attempts, run->totals.spilled,
			    run->totals.blocks, run->totals.placed,  run->totals.sent_bytes};
	int rc = crew_sum(run->stage.crew, sums, 9);

	if (!rc)
		rc = crew_most(run->stage.crew, most, 3);
	*r = (struct stage_result){.records = sums[0],
				   .bytes = sums[1],
				   .out_records = sums[2],
				   .cpu_us = sums[3],
				   .attempts = sums[4],
				   .spilled = sums[5],
				   .blocks = sums[6],
				   .placed = sums[7],
				   .sent_bytes = sums[8],
				   .ns = most[0],
				   .map_ns = most[1],
				   .memory_peak = most[2]};
	return rc;
}

int
stage_run(struct crew *crew, const struct stage_job *job, struct stage_result *result)
{
	struct run *run = calloc(1, sizeof(*run));
	struct transport_options o = shuffle_transport(job->o);
	const struct weir_function function = {.name = "weir.stage.ask",
					       .version = 1,
					       .min_length = sizeof(struct ask),
					       .max_length = sizeof(struct ask),
					       .run = run_ask,
					       .user = run};
	struct weir_shuffle_options s = job->shuffle;
	char reason[256];
	int rc;

	if (!run || tasks_open(&run->tasks, job->maps)) {
		free(run);
		return weir_fail(-ENOMEM, "no memory for %u map tasks", job->maps);
	}
	pthread_mutex_init(&run->lock, NULL);
	run->stage = (struct stage){job, crew, o.shuffle.partitions};
	if (!run->stage.partitions)
		run->stage.partitions = o.threads * crew->size;
	run->job = job;
	run->terminal = isatty(STDERR_FILENO);
	s.kind = WEIR_SHUFFLE_STAGE;
	s.maps = job->maps;
	s.partitions = run->stage.partitions;
	s.block = o.shuffle.block;
	s.memory = o.shuffle.memory;
	s.codec = o.shuffle.codec;
	s.spill = o.shuffle.spill;
	o.shuffle = s;
	o.stage = true;
	o.functions = &function;
	o.function_count = 1;
	o.lost = lost;
	o.user = run;
	rc = transport_open(crew, &o, &run->t);
	if (!rc) {
		rc = threads_run(o.threads, work, run, reason, sizeof(reason));
		transport_close(run->t);
		rc = rc ? weir_fail(rc, "%s", reason) : collect(run, result);
	}
	pthread_mutex_destroy(&run->lock);
	tasks_close(&run->tasks);
	free(run);
	return rc;
}

void
stage_print_json(const struct stage_job *job, const struct crew *crew, const struct stage_result *r)
{
	printf("{\"transport\": \"%s\", \"processes\": %u, \"threads\": %u, \"maps\": %u, "
	       "\"attempts\": %llu, \"records\": %llu, \"bytes\": %llu, \"out_records\": %llu, "
	       "\"elapsed_s\": %.6f, \"map_s\": %.6f, \"cpu_s\": %.6f, \"spilled\": %llu, "
	       "\"blocks\": %llu, \"placed\": %llu, \"sent_bytes\": %llu, \"memory_peak\": %llu",
	       shuffle_transport_name(job->o), crew->size, job->o->threads, job->maps,
	       (unsigned long long)r->attempts, (unsigned long long)r->records,
	       (unsigned long long)r->bytes, (unsigned long long)r->out_records,
	       (double)r->ns / 1e9, (double)r->map_ns / 1e9, (double)r->cpu_us / 1e6,
	       (unsigned long long)r->spilled, (unsigned long long)r->blocks,
	       (unsigned long long)r->placed, (unsigned long long)r->sent_bytes,
	       (unsigned long long)r->memory_peak);
}

void
stage_print(const struct stage_job *job, const struct stage_result *r)
{
	double seconds = (double)r->ns / 1e9;

	printf("%llu records, %.1f MB in %.3f s (map tasks %.3f s): %.1f MB/s, CPU time of the "
	       "programs %.3f s, %.1f MB spilled\n",
	       (unsigned long long)r->records, (double)r->bytes / 1e6, seconds,
	       (double)r->map_ns / 1e9, (double)r->bytes / 1e6 / seconds, (double)r->cpu_us / 1e6,
	       (double)r->spilled / 1e6);
}

void
stage_path(const struct stage *s, const char *dir, uint32_t partition, char *path, size_t size)
{
	if (s->job->o->transport == TRANSPORT_NONE && s->crew->size > 1)
		snprintf(path, size, "%s/part-%05u-of-%u", dir, partition, s->crew->rank);
	else
		snprintf(path, size, "%s/part-%05u", dir, partition);
}
