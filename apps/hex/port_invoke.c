/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Real threads of the processes of a group. A message is a call (weir/invoke.h), which runs in the
 * thread that it is for. Thread 0 of process 0 is the program's own, and works inside run(). All
 * others work until it calls END in each of them.
 */
#include "crew.h"
#include "search.h"

#include "base/fail.h"
#include "base/monotonic.h"
#include "base/vec.h"
#include "weir/invoke.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNED 64u
#define BUSY_MS 1    /* a thread that waits for rollouts, or looks at what else there is */
#define IDLE_MS 1000 /* a thread that waits for calls; each one wakes it */
#define END_MS 10    /* the same, until all others have ended */

#define STEPS 4u /* pieces of work between two looks at calls, which cost a third of one */

enum { RECEIVE, END, FUNCTIONS };
enum phase { ENTERING, CONNECTING, OVER };

struct calls;

/* A thread of this process. */
struct worker {
	struct calls *s;
	struct mcts_thread *t;
	pthread_t thread;
	bool calling; /* in a call, which runs functions while it waits */
	bool inside;  /* in a function */
	bool asked;   /* to end; nothing is received any more */
	struct weir_answer answer;
	/* messages that came while it was calling, each behind its thread and length, from `head`
	 * to `tail` */
	uint64_t *queue;
	size_t head, tail, room; /* words */
} __attribute__((aligned(ALIGNED)));

struct calls {
	struct search search;
	struct mcts_port port;
	struct crew *crew;
	struct weir_invoker *v;
	struct mcts m, *others; /* others: of each process, for its counts alone */
	struct mcts **processes;
	struct dice dice;
	struct worker *workers;
	uint32_t threads, started; /* of this process */
	cpu_set_t cpus;
	bool finished;
	_Atomic bool settled;	/* the group waits for the end */
	_Atomic uint32_t ready; /* threads that are done with the phase */
	_Atomic uint32_t phase; /* enum phase */
	_Atomic bool fails;	/* one thread has an error to tell */
	_Atomic int error;	/* the search has failed: 0 or -errno */
	char reason[256];	/* of it */
};

static _Thread_local struct worker *own;

static struct calls *
of_port(struct mcts_port *p)
{
	return (struct calls *)((char *)p - offsetof(struct calls, port));
}

/* ---- errors: the first one ends the search ---- */

static int __attribute__((format(printf, 3, 4)))
fail_search(struct calls *s, int rc, const char *format, ...)
{
	va_list args;

	if (atomic_exchange(&s->fails, true))
		return rc;
	va_start(args, format);
	vsnprintf(s->reason, sizeof(s->reason), format, args);
	va_end(args);
	atomic_store(&s->error, rc);
	return rc;
}

static void
lost(struct weir_invoker *v, uint32_t process, int status, void *user)
{
	struct calls *s = user;

	(void)v;
	/* from then on the group tells: others may close when all have met */
	if (atomic_load(&s->settled))
		return;
	if (status)
		fail_search(s, -EHOSTUNREACH, "process %u was lost: %s; start all of them again",
			    process, strerror(-status));
	else
		fail_search(s, -EHOSTUNREACH,
			    "process %u has given up the search; see its output, and start all of "
			    "them again",
			    process);
}

/* A call to a thread of `process` has failed; the news of its loss may come later. */
static int
fail_call(struct calls *s, uint32_t process, int rc)
{
	switch (rc) {
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EHOSTDOWN:
	case -EHOSTUNREACH:
		return fail_search(s, rc,
				   "process %u has ended; see its output, and start all of them "
				   "again",
				   process);
	default:
		return fail_search(s, rc, "process %u: %s", process, weir_reason());
	}
}

/* Whether a call succeeds, or did not in time and may be repeated. */
static bool
is_patient(int rc)
{
	return rc >= 0 || rc == -EAGAIN || rc == -EINTR;
}

/* Runs calls; above 0: some have run. */
static int
progress(struct worker *w, int timeout_ms)
{
	int rc = weir_invoker_progress(w->s->v, 0, timeout_ms);

	return is_patient(rc) ? rc : fail_search(w->s, rc, "%s", weir_reason());
}

/* ---- messages ---- */

/* Without room it waits outside functions, and the others run meanwhile what they have got. */
static void
call(struct mcts_port *p, uint32_t to, const struct mcts_message *m, size_t bytes)
{
	struct calls *s = of_port(p);
	struct weir_to receiver = {to / s->threads, to % s->threads};
	struct weir_call_options o = {.timeout_ms = IDLE_MS};
	struct worker *w = own;
	int rc;

	w->calling = true;
	do
		rc = weir_call(s->v, receiver, RECEIVE, m, bytes, &o);
	while (rc && is_patient(rc) && !w->inside && !atomic_load(&s->error));
	w->calling = false;
	if (rc)
		fail_call(s, receiver.process, rc);
}

static void
enqueue(struct worker *w, uint32_t from, const void *message, size_t bytes)
{
	size_t words = 2 + (bytes + 7) / 8;

	if (w->head == w->tail)
		w->head = w->tail = 0;
	if (VEC_RESERVE(w->queue, w->room, w->tail + words)) {
		fail_search(w->s, -ENOMEM, "no memory for messages; free some");
		return;
	}
	w->queue[w->tail] = from;
	w->queue[w->tail + 1] = bytes;
	memcpy(w->queue + w->tail + 2, message, bytes);
	w->tail += words;
}

static void
run_receive(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to thread = weir_incoming_from(c);
	struct worker *w = own;
	uint32_t from = thread.process * w->s->threads + thread.thread;

	if (w->asked)
		return;
	if (w->calling || w->head < w->tail) {
		enqueue(w, from, args, length);
		return;
	}
	w->inside = true;
	mcts_receive(w->t, from, args, length);
	w->inside = false;
}

/* Process 0 has no more to do. The counts are told when the thread has ended its piece of work. */
static void
run_end(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);

	(void)args;
	(void)length;
	if (from.process || from.thread || own->asked)
		weir_incoming_refuse(c, EPERM);
	else if (!weir_incoming_later(c, &own->answer))
		own->asked = true;
}

static const struct weir_function functions[FUNCTIONS] = {
    [RECEIVE] = {.name = "hex.receive",
		 .version = 1,
		 .min_length = sizeof(struct mcts_message),
		 .max_length = MCTS_MESSAGE_MAX,
		 .run = run_receive},
    [END] = {.name = "hex.end", .version = 1, .run = run_end},
};
_Static_assert(MCTS_MESSAGE_MAX <= WEIR_ARGS_MAX, "a message is a call's arguments");

/* ---- threads ---- */

/* Messages that came meanwhile. False: there were none. */
static bool
receive_queued(struct worker *w)
{
	uint64_t message[(MCTS_MESSAGE_MAX + 7) / 8];
	bool any = false;

	while (w->head < w->tail) {
		uint32_t from = (uint32_t)w->queue[w->head];
		size_t bytes = w->queue[w->head + 1];

		/* the queue may move when more come */
		memcpy(message, w->queue + w->head + 2, bytes);
		w->head += 2 + (bytes + 7) / 8;
		mcts_receive(w->t, from, (struct mcts_message *)message, bytes);
		any = true;
	}
	return any;
}

/* Runs calls, and pieces of work. False: there were none, and the thread has slept. */
static bool
work(struct worker *w, int idle_ms)
{
	bool any = progress(w, 0) > 0;
	unsigned steps = 0;

	any |= receive_queued(w);
	while (steps < STEPS && mcts_step(w->t))
		steps++;
	if (steps || any)
		return true;
	progress(w, w->t->launching ? BUSY_MS : idle_ms);
	return false;
}

static bool
has_failed(struct calls *s)
{
	return atomic_load_explicit(&s->error, memory_order_relaxed);
}

/* Works until process 0 wants an end, and tells what has been done. */
static void
serve(struct worker *w)
{
	struct calls *s = w->s;
	int rc;

	while (!w->asked && !has_failed(s))
		work(w, IDLE_MS);
	if (!w->asked)
		return;
	rc = weir_answer(s->v, &w->answer, 0, &w->t->counts, sizeof(w->t->counts));
	if (!rc)
		rc = weir_invoker_flush(s->v);
	if (rc)
		fail_search(s, rc, "%s", weir_reason());
}

/* Thread i gets the i-th CPU, if there is one for each: so does weir-run distribute them. Else
 * other processes may be on the same CPUs, and the kernel knows better. */
static void
pin(struct calls *s, uint32_t thread)
{
	cpu_set_t one;
	int cpu = -1;

	if ((uint32_t)CPU_COUNT(&s->cpus) != s->threads)
		return;
	for (uint32_t n = 0; n <= thread; n++)
		do
			cpu++;
		while (!CPU_ISSET(cpu, &s->cpus));
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	/* the CPU may be taken away at any time: it goes on elsewhere */
	(void)!pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static void
enter(struct worker *w)
{
	struct calls *s = w->s;
	uint32_t index = (uint32_t)(w - s->workers);
	int rc;

	own = w;
	pin(s, index);
	rc = weir_invoker_enter(s->v, index);
	if (rc)
		fail_search(s, rc, "%s", weir_reason());
	else
		atomic_fetch_add(&s->ready, 1);
}

/* Lines to all threads, so that no message of the game waits for one. */
static void
connect_all(struct worker *w)
{
	struct calls *s = w->s;
	uint32_t all = s->m.o.processes * s->threads;
	struct weir_line *l;

	for (uint32_t i = 0; i < all; i++) {
		struct weir_to to = {i / s->threads, i % s->threads};
		int rc;

		do
			rc = weir_line_open(s->v, to, NULL, IDLE_MS, &l);
		while (rc && is_patient(rc) && !has_failed(s));
		if (rc) {
			fail_call(s, to.process, rc);
			return;
		}
	}
	atomic_fetch_add(&s->ready, 1);
}

static void *
run_thread(void *arg)
{
	struct worker *w = arg;
	struct calls *s = w->s;

	enter(w);
	while (atomic_load(&s->phase) == ENTERING && !has_failed(s))
		progress(w, BUSY_MS);
	if (!has_failed(s))
		connect_all(w);
	serve(w);
	atomic_fetch_add(&s->ready, 1);
	/* what others send to it is taken, else they would wait */
	while (atomic_load(&s->phase) != OVER && !has_failed(s))
		progress(w, END_MS);
	weir_invoker_leave(s->v);
	return NULL;
}

/* ---- thread 0 ---- */

static int
serve_calls(void *arg)
{
	int rc = progress(arg, 0);

	return rc > 0 ? rc : 0;
}

static int
await_processes(struct calls *s)
{
	int rc;

	do
		rc = weir_group_barrier(s->crew->g, IDLE_MS);
	while (rc && is_patient(rc) && !has_failed(s));
	return rc ? fail_search(s, rc, "%s", weir_reason()) : 0;
}

/* Waits until all threads of all processes are ready. 0 or -errno. */
static int
await_all(struct calls *s)
{
	while (atomic_load(&s->ready) < s->threads && !has_failed(s))
		progress(s->workers, BUSY_MS);
	if (has_failed(s))
		return atomic_load(&s->error);
	atomic_store(&s->ready, 0);
	return await_processes(s);
}

static int
run(struct search *search, const bool *until, unsigned pieces)
{
	struct calls *s = (struct calls *)search;

	/* after a sleep the program looks at what else there is */
	while (!*until && !has_failed(s) && pieces-- > 0 && work(s->workers, BUSY_MS))
		;
	return atomic_load(&s->error);
}

static int
serve_search(struct search *search)
{
	struct calls *s = (struct calls *)search;

	serve(s->workers);
	/* all threads have ended their work then */
	while (atomic_load(&s->ready) < s->threads - 1 && !has_failed(s))
		progress(s->workers, BUSY_MS);
	return atomic_load(&s->error);
}

static uint64_t
now(struct search *s)
{
	(void)s;
	return monotonic_ns();
}

static uint64_t
port_now(struct mcts_port *p)
{
	(void)p;
	return monotonic_ns();
}

static uint64_t
port_random(struct mcts_port *p)
{
	return dice_next(&of_port(p)->dice);
}

/* Waits for the counts of `n` threads from number 1 on. 0 or -errno. */
static int
await_counts(struct calls *s, struct weir_future *f, const struct mcts_counts *counts, uint32_t n)
{
	int rc = 0;

	for (uint32_t i = 1; i < n && !rc; i++) {
		uint32_t process = i / s->threads;

		do
			rc = weir_future_wait(s->v, &f[i], IDLE_MS);
		while (rc && is_patient(rc) && !has_failed(s));
		if (!rc && f[i].length != sizeof(*counts))
			rc = -EPROTO;
		if (rc)
			fail_search(s, rc,
				    "process %u tells no figures: %s; start all of them again",
				    process, strerror(-rc));
		else if (process)
			s->others[process].threads[i % s->threads].counts = counts[i];
	}
	return rc;
}

static int
finish(struct search *search)
{
	struct calls *s = (struct calls *)search;
	uint32_t all = s->m.o.processes * s->threads, asked = 1;
	struct mcts_counts *counts = calloc(all, sizeof(*counts));
	struct weir_future *f = calloc(all, sizeof(*f));
	struct weir_call_options o = {.timeout_ms = IDLE_MS};
	int rc = counts && f ? 0 : -ENOMEM;

	if (rc)
		fail_search(s, rc, "no memory for the end of the search; free some");
	while (asked < all && !rc) {
		struct weir_to to = {asked / s->threads, asked % s->threads};

		do
			rc = weir_call_return(s->v, to, END, NULL, 0, &f[asked], &counts[asked],
					      sizeof(*counts), &o);
		while (rc && is_patient(rc) && !has_failed(s));
		if (rc)
			fail_call(s, to.process, rc);
		asked += !rc;
	}
	if (!rc)
		rc = await_counts(s, f, counts, all);
	for (uint32_t i = 1; i < asked; i++)
		weir_future_cancel(s->v, &f[i]); /* unless it has ended */
	free(f);
	free(counts);
	s->finished = true;
	return rc;
}

/* ---- opening and closing ---- */

static void
close_calls(struct search *search)
{
	struct calls *s = (struct calls *)search;

	if (!has_failed(s) && !s->finished && !weir_group_rank(s->crew->g))
		finish(search);
	atomic_store(&s->settled, true);
	/* nobody calls any more behind that */
	if (!has_failed(s))
		await_processes(s);
	atomic_store(&s->phase, OVER);
	weir_group_idle(s->crew->g, NULL, NULL);
	if (own) /* its entry fails calls to it, for which others might wait */
		weir_invoker_leave(s->v);
	own = NULL;
	for (uint32_t i = 1; i < s->started; i++)
		pthread_join(s->workers[i].thread, NULL);
	weir_invoker_close(s->v);
	(void)!pthread_setaffinity_np(pthread_self(), sizeof(s->cpus), &s->cpus);
	for (uint32_t i = 0; s->workers && i < s->threads; i++)
		free(s->workers[i].queue);
	free(s->workers);
	for (uint32_t i = 0; s->others && i < s->m.o.processes; i++)
		free(s->others[i].threads);
	free(s->others);
	free(s->processes);
	mcts_close(&s->m);
	free(s);
}

/* For figures of other processes, in process 0. 0 or -ENOMEM. */
static int
make_others(struct calls *s)
{
	uint32_t count = s->m.o.processes;

	s->processes = calloc(count, sizeof(*s->processes));
	s->others = calloc(count, sizeof(*s->others));
	if (!s->processes || !s->others)
		return -ENOMEM;
	s->processes[0] = &s->m;
	for (uint32_t i = 1; i < count && !s->m.o.process; i++) {
		s->others[i].o = s->m.o;
		s->others[i].threads = calloc(s->threads, sizeof(*s->others[i].threads));
		if (!s->others[i].threads)
			return -ENOMEM;
		s->processes[i] = &s->others[i];
	}
	s->search.processes = s->processes;
	s->search.count = s->m.o.process ? 1 : count;
	return 0;
}

static int
open_invoker(struct calls *s)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	int rc;

	o.functions = functions;
	o.function_count = FUNCTIONS;
	o.threads = s->threads;
	o.batching.mode = s->crew->mode;
	o.lost = lost;
	o.user = s;
	rc = weir_invoker_open(s->crew->w, s->crew->g, &o, &s->v);
	return rc ? fail_search(s, rc, "%s", weir_reason()) : 0;
}

/* Threads enter, and open their lines. */
static int
start_threads(struct calls *s)
{
	int rc = 0;

	while (s->started < s->threads && !rc) {
		struct worker *w = &s->workers[s->started];

		w->s = s;
		w->t = &s->m.threads[s->started];
		if (s->started)
			rc = -pthread_create(&w->thread, NULL, run_thread, w);
		if (rc)
			fail_search(s, rc, "cannot start a thread: %s; give less --threads",
				    strerror(-rc));
		s->started += !rc;
	}
	if (rc)
		return rc;
	enter(s->workers);
	weir_group_idle(s->crew->g, serve_calls, s->workers);
	rc = await_all(s);
	atomic_store(&s->phase, CONNECTING);
	if (rc)
		return rc;
	connect_all(s->workers);
	return await_all(s);
}

int
port_invoke_open(const struct mcts_options *o, struct crew *crew, struct search **search,
		 char *error, size_t size)
{
	struct calls *s = calloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (!s)
		return fail(error, size, rc, "no memory for a search; free some");
	s->search = (struct search){.run = run,
				    .now = now,
				    .close = close_calls,
				    .finish = finish,
				    .serve = serve_search,
				    .reason = s->reason};
	s->port = (struct mcts_port){call, port_now, port_random};
	s->crew = crew;
	s->threads = o->threads;
	s->dice = dice_of(dice_mix(o->seed) + o->process);
	sched_getaffinity(0, sizeof(s->cpus), &s->cpus);
	s->workers = aligned_alloc(ALIGNED, s->threads * sizeof(*s->workers));
	if (s->workers)
		memset(s->workers, 0, s->threads * sizeof(*s->workers));
	rc = mcts_open(&s->m, o, &s->port);
	if (!rc)
		rc = make_others(s);
	if (!s->workers && !rc)
		rc = -ENOMEM;
	if (rc)
		fail_search(s, rc, "cannot open a search: %s; ask for less --nodes", strerror(-rc));
	if (!rc)
		rc = open_invoker(s);
	if (!rc)
		rc = start_threads(s);
	if (!rc) {
		*search = &s->search;
		return 0;
	}
	fail(error, size, rc, "%s", s->reason);
	close_calls(&s->search);
	return rc;
}
