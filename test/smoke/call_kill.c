/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A member of a group whose threads call those of all members, for calls_kill.sh, which kills
 * members at random.
 *
 *   call_kill INSTANCE GROUP SIZE RANK
 *
 * Says "calling" when all members have entered, and makes calls until SIGTERM: with results, given
 * at once or when a nested call has its own, with syncs, and of all threads. Says "idle" when each
 * of its futures and syncs has ended; still serves the others until SIGUSR1. Then it says for each
 * rank R
 *   lost R     calls to it have failed
 *   gave R N   results that it has given to the threads of R
 *   got R N    results of threads of R that have arrived
 * A future or sync that does not end, and a result that is wrong, end the program with an error.
 */
#include "program.h"

#include "weir/invoke.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 2u
#define MEMBERS 16u
#define WINDOW 32u /* results that a thread waits for */
#define NOTES 16u  /* calls per sync */
#define VIA 1000   /* and a rank: the error of a nested call to it */

enum { ADD, PASS, NOTE, FUNCTIONS };

static _Atomic bool stopping, leaving;
static struct weir_invoker *v;
static uint32_t self, size;
static _Atomic bool lost[MEMBERS];
static _Atomic uint64_t gave[MEMBERS], got[MEMBERS];
static _Atomic uint32_t idle; /* threads */

/* All other threads block the signals. */
static void *
await_signals(void *arg)
{
	int signal;

	for (;;) {
		sigwait(arg, &signal);
		atomic_store(signal == SIGTERM ? &stopping : &leaving, true);
	}
	return NULL;
}

static _Noreturn void
give_up(const char *what, int rc)
{
	failed(what, rc);
	exit(1);
}

static bool
may_fail(int rc)
{
	return rc == -EHOSTUNREACH || rc == -ECONNREFUSED;
}

/* ---- functions ---- */

struct order {
	uint64_t number;
	uint32_t via, thread; /* PASS: whom it asks */
};

static void
give(struct weir_incoming *c, uint64_t number)
{
	number++;
	if (!weir_incoming_result(c, &number, sizeof(number)))
		atomic_fetch_add(&gave[weir_incoming_from(c).process], 1);
}

static void
run_add(struct weir_incoming *c, const void *args, size_t length)
{
	struct order o;

	(void)length;
	memcpy(&o, args, sizeof(o));
	give(c, o.number);
}

struct passed {
	struct weir_future f;
	struct weir_answer answer;
	uint64_t result;
	uint32_t from, via;
};

static void
pass_back(struct weir_future *f, void *user)
{
	struct passed *p = user;
	int rc;

	if (f->status)
		rc = weir_answer(v, &p->answer, VIA + (int)p->via, NULL, 0);
	else
		rc = weir_answer(v, &p->answer, 0, &p->result, sizeof(p->result));
	if (!rc && !f->status)
		atomic_fetch_add(&gave[p->from], 1);
	if (!f->status)
		atomic_fetch_add(&got[p->via], 1);
	free(p);
}

/* Asks the thread that the order names. */
static void
run_pass(struct weir_incoming *c, const void *args, size_t length)
{
	struct passed *p = calloc(1, sizeof(*p));
	struct order o;
	int rc;

	(void)length;
	memcpy(&o, args, sizeof(o));
	if (!p)
		give_up("memory", -ENOMEM);
	p->from = weir_incoming_from(c).process;
	p->via = o.via;
	p->f.then = pass_back;
	p->f.user = p;
	rc = weir_call_return(v, (struct weir_to){o.via, o.thread}, ADD, &o, sizeof(o), &p->f,
			      &p->result, sizeof(p->result), NULL);
	if (rc) {
		if (!may_fail(rc))
			give_up("nested call", rc);
		weir_incoming_refuse(c, VIA + (int)o.via);
		free(p);
		return;
	}
	if (weir_incoming_later(c, &p->answer))
		give_up("later", -EINVAL);
}

static void
run_note(struct weir_incoming *c, const void *args, size_t length)
{
	(void)c;
	(void)args;
	(void)length;
}

static const struct weir_function table[FUNCTIONS] = {
    [ADD] = {.name = "add", .min_length = 16, .max_length = 16, .run = run_add},
    [PASS] = {.name = "pass", .min_length = 16, .max_length = 16, .run = run_pass},
    [NOTE] = {.name = "note", .max_length = 16, .run = run_note},
};

/* ---- a thread ---- */

struct asked {
	struct weir_future f;
	struct order order;
	uint32_t to;
	uint64_t result;
};

struct thread {
	uint32_t index;
	pthread_t thread;
	uint64_t random;
	struct asked asked[WINDOW];
	struct weir_sync notes, all;
	uint32_t noted; /* rank that the notes went to */
};

static uint32_t
below(struct thread *t, uint32_t n)
{
	t->random = t->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(t->random >> 33) % n;
}

/* A call to that rank has failed. */
static void
lose(uint32_t rank)
{
	atomic_store(&lost[rank], true);
}

static uint32_t
anybody(struct thread *t)
{
	uint32_t rank;

	do
		rank = below(t, size);
	while (atomic_load(&lost[rank]));
	return rank;
}

/* Looks at a future that has ended. */
static void
look(struct asked *a)
{
	int rc = a->f.status;

	if (!rc) {
		if (a->f.length != sizeof(a->result) || a->result != a->order.number + 1)
			give_up("a wrong result", -EBADMSG);
		atomic_fetch_add(&got[a->to], 1);
	} else if (rc <= -VIA && rc > -VIA - (int)size) {
		lose((uint32_t)(-rc - VIA));
	} else if (may_fail(rc)) {
		lose(a->to);
	} else {
		give_up("a result", rc);
	}
	a->to = UINT32_MAX;
}

static void
ask(struct thread *t, struct asked *a)
{
	struct weir_to to = {anybody(t), below(t, THREADS)};
	int rc;

	memset(a, 0, sizeof(*a));
	a->to = to.process;
	a->order = (struct order){t->random, anybody(t), below(t, THREADS)};
	rc = weir_call_return(v, to, below(t, 3) ? ADD : PASS, &a->order, sizeof(a->order), &a->f,
			      &a->result, sizeof(a->result), NULL);
	if (!rc)
		return;
	if (!may_fail(rc))
		give_up("call", rc);
	lose(to.process);
	a->to = UINT32_MAX;
}

static void
note(struct thread *t)
{
	struct weir_call_options o = {.timeout_ms = -1, .sync = &t->notes};
	uint64_t failures;
	uint32_t made = 0;
	int rc = 0;

	if (weir_sync_left(&t->notes, &failures))
		return;
	if (failures)
		lose(t->noted);
	t->noted = anybody(t);
	weir_sync_init(&t->notes, 1, NULL, NULL);
	for (; made < NOTES && !rc; made += !rc) {
		weir_sync_add(&t->notes, 1);
		rc = weir_call(v, (struct weir_to){t->noted, below(t, THREADS)}, NOTE, t,
			       below(t, 17), &o);
	}
	if (rc && !may_fail(rc))
		give_up("call with a sync", rc);
	if (rc)
		lose(t->noted);
	/* the one that keeps it, and the one that was refused: a call to itself */
	o.flags = WEIR_CALL_SYNC_SENT;
	for (uint32_t i = 0; i <= (rc != 0); i++)
		if (weir_call(v, (struct weir_to){self, t->index}, NOTE, NULL, 0, &o))
			give_up("call to itself", -EINVAL);
}

static void
call_all(struct thread *t)
{
	struct weir_call_options o = {.timeout_ms = -1, .sync = &t->all};
	int rc;

	if (weir_sync_left(&t->all, NULL))
		return;
	weir_sync_init(&t->all, 1, NULL, NULL);
	rc = weir_call_all(v, NOTE, NULL, 0, &o);
	if (!rc)
		return;
	if (!may_fail(rc))
		give_up("call of all", rc);
	weir_sync_init(&t->all, 0, NULL, NULL);
}

/* The number of results that are outstanding. */
static uint32_t
collect(struct thread *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < WINDOW; i++)
		if (t->asked[i].to != UINT32_MAX && t->asked[i].f.status == -EINPROGRESS)
			n++;
		else if (t->asked[i].to != UINT32_MAX)
			look(&t->asked[i]);
	return n;
}

static void
progress(int timeout_ms)
{
	int rc = weir_invoker_progress(v, 0, timeout_ms);

	if (rc < 0)
		give_up("progress", rc);
}

static void *
be_thread(void *arg)
{
	struct thread *t = arg;
	uint64_t failures, end;
	int rc = weir_invoker_enter(v, t->index);

	if (!rc)
		rc = weir_invoker_barrier(v, PATIENCE_MS);
	if (rc)
		give_up("begin", rc);
	if (!t->index)
		say("calling");
	while (!atomic_load(&stopping)) {
		for (uint32_t i = 0; i < WINDOW; i++)
			if (t->asked[i].to == UINT32_MAX)
				ask(t, &t->asked[i]);
		note(t);
		if (!below(t, 10))
			call_all(t);
		progress(10);
		collect(t);
	}
	end = now_ms() + PATIENCE_MS;
	while (collect(t) || weir_sync_left(&t->notes, &failures) ||
	       weir_sync_left(&t->all, NULL)) {
		progress(10);
		if (now_ms() > end) {
			say("%u results, %u and %u calls of syncs are outstanding", collect(t),
			    (unsigned)weir_sync_left(&t->notes, NULL),
			    (unsigned)weir_sync_left(&t->all, NULL));
			exit(1);
		}
	}
	if (failures)
		lose(t->noted);
	if (atomic_fetch_add(&idle, 1) == THREADS - 1)
		say("idle");
	while (!atomic_load(&leaving))
		progress(10);
	rc = weir_invoker_leave(v);
	if (rc)
		give_up("leave", rc);
	return NULL;
}

static void
on_lost(struct weir_invoker *invoker, uint32_t process, int status, void *user)
{
	(void)invoker;
	(void)user;
	if (status)
		lose(process);
}

int
main(int argc, char **argv)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	struct weir_group_options in = WEIR_GROUP_OPTIONS_INIT;
	pthread_t listener;
	sigset_t signals;
	struct thread threads[THREADS];
	struct weir_group *g;
	struct weir *w;
	int rc;

	size = (uint32_t)number_at(argc, argv, 3);
	self = (uint32_t)number_at(argc, argv, 4);
	if (!size || size > MEMBERS || self >= size) {
		fprintf(stderr, "call_kill: INSTANCE GROUP SIZE RANK\n");
		return 2;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (pthread_create(&listener, NULL, await_signals, &signals))
		return failed("thread", -EAGAIN);
	if (attach_to(argv[1], "call_kill", 0, &w))
		return 1;
	in.size = size;
	in.rank = self;
	rc = weir_group_join(w, argv[2], &in, PATIENCE_MS, &g);
	if (rc)
		return failed("join", rc);
	o.functions = table;
	o.function_count = FUNCTIONS;
	o.threads = THREADS;
	o.arity = 2;
	o.lost = on_lost;
	rc = weir_invoker_open(w, g, &o, &v);
	if (rc)
		return failed("open", rc);
	for (uint32_t i = 0; i < THREADS; i++) {
		threads[i] = (struct thread){.index = i, .random = self * 1000 + i};
		for (uint32_t k = 0; k < WINDOW; k++)
			threads[i].asked[k].to = UINT32_MAX;
		weir_sync_init(&threads[i].notes, 0, NULL, NULL);
		weir_sync_init(&threads[i].all, 0, NULL, NULL);
		if (i && pthread_create(&threads[i].thread, NULL, be_thread, &threads[i]))
			return failed("thread", -EAGAIN);
	}
	be_thread(&threads[0]);
	for (uint32_t i = 1; i < THREADS; i++)
		pthread_join(threads[i].thread, NULL);
	for (uint32_t i = 0; i < size; i++) {
		if (atomic_load(&lost[i]))
			say("lost %u", i);
		say("gave %u %llu", i, (unsigned long long)atomic_load(&gave[i]));
		say("got %u %llu", i, (unsigned long long)atomic_load(&got[i]));
	}
	rc = weir_invoker_close(v);
	if (rc)
		return failed("close", rc);
	weir_group_leave(g);
	weir_detach(w);
	return 0;
}
