/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls between threads of processes, of one node and of two, and of one process. */
#include "caller.h"

#define CALLS 3000u

static const struct weir_batching modes[] = {
    {WEIR_BATCH_AUTO, WEIR_BATCH_MAX, 50},     {WEIR_BATCH_EAGER, WEIR_BATCH_MAX, 50},
    {WEIR_BATCH_FULL, WEIR_BATCH_MAX, 100000}, {WEIR_BATCH_FULL, 64, 0},
    {WEIR_BATCH_OVERFLOW, WEIR_BATCH_MAX, 50},
};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static const struct weir_batching *mode;

/* The threads of all processes have it in common. */
static struct shared {
	pthread_barrier_t entered, over;
	_Atomic uint32_t done; /* threads that have run all their calls */
} shared;

struct thread {
	struct caller c;
	pthread_t thread;
	int line; /* that fails; 0: none */
};

/* Call number `n` on a line, of different functions and lengths. */
static int
make_call(struct caller *me, struct weir_line *l, struct weir_to to, uint32_t n)
{
	struct numbered counted = {n, to.thread};
	uint32_t row[3] = {n, 1, 2};
	uint8_t bytes[WEIR_ARGS_MAX];
	uint32_t length;

	/* long runs, and single calls of others between them */
	switch (n % 100 < 60 ? 0 : n % 100 < 90 ? 1 : n % 5) {
	case 0:
		return n % 3 ? weir_line_call(l, COUNT, &counted, sizeof(counted))
			     : weir_call(me->v, to, COUNT, &counted, sizeof(counted), NULL);
	case 1:
		return weir_line_call(l, ROW, row, sizeof(row));
	case 2:
		return weir_line_call(l, EMPTY, NULL, 0);
	default:
		length = n % 500 == 3 ? WEIR_ARGS_MAX : n % 7 ? n % 120 : n % 1500;
		for (uint32_t i = 0; i < length; i++)
			bytes[i] = (uint8_t)(n + i);
		return weir_line_call(l, BYTES, bytes, length);
	}
}

static int
call_all(struct thread *me, uint32_t processes)
{
	struct weir_line *l[MOST][THREADS];
	struct caller *c = &me->c;
	int rc;

	for (uint32_t p = 0; p < processes; p++)
		for (uint32_t t = 0; t < THREADS; t++)
			if (weir_line_open(c->v, (struct weir_to){p, t}, mode, PATIENT, &l[p][t]))
				return __LINE__;
	for (uint32_t n = 0; n < CALLS; n++)
		for (uint32_t p = 0; p < processes; p++)
			for (uint32_t t = 0; t < THREADS; t++) {
				rc = make_call(c, l[p][t], (struct weir_to){p, t}, n);
				if (rc)
					return __LINE__;
			}
	while (c->run < (uint64_t)CALLS * processes * THREADS) {
		rc = weir_invoker_progress(c->v, 0, PATIENT);
		if (rc <= 0)
			return __LINE__;
	}
	if (c->wrong || c->nested != -EDEADLK || !c->rows)
		return __LINE__;
	return 0;
}

static void *
one_thread(void *arg)
{
	struct thread *me = arg;
	struct caller *c = &me->c;
	uint32_t processes = weir_group_size(c->g);

	c->self = pthread_self();
	own = c;
	me->line = weir_invoker_enter(c->v, c->thread) ? __LINE__ : 0;
	pthread_barrier_wait(&shared.entered);
	if (!me->line)
		me->line = call_all(me, processes);
	if (me->line)
		fprintf(stderr, "line %d: %s\n", me->line, weir_reason());
	/* others wait for calls that this one has packed, or that find no room yet */
	atomic_fetch_add(&shared.done, 1);
	while (!me->line && atomic_load(&shared.done) < processes * THREADS)
		if (weir_invoker_progress(c->v, 0, 1) < 0)
			me->line = __LINE__;
	pthread_barrier_wait(&shared.over);
	if (weir_invoker_leave(c->v) && !me->line)
		me->line = __LINE__;
	return NULL;
}

static int
use_lines(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct thread threads[THREADS] = {0};
	struct weir_invoker *v;
	uint64_t calls = (uint64_t)CALLS * THREADS * THREADS * t->size;

	o.functions = functions;
	o.function_count = FUNCTIONS;
	o.threads = THREADS;
	if (weir_invoker_open(t->w[index], t->g[index], &o, &v))
		return __LINE__;
	if (weir_invoker_threads(v, 0) != THREADS || weir_invoker_threads(v, t->size) ||
	    weir_invoker_threads(v, UINT32_MAX) != THREADS * t->size)
		return __LINE__;
	for (uint32_t i = 0; i < THREADS; i++) {
		threads[i].c = (struct caller){
		    .v = v, .g = t->g[index], .process = weir_group_rank(t->g[index]), .thread = i};
		if (pthread_create(&threads[i].thread, NULL, one_thread, &threads[i]))
			return __LINE__;
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i].thread, NULL);
		if (threads[i].line)
			return threads[i].line;
	}
	if (weir_invoker_stats(v, &stats) || stats.made != calls || stats.run != calls ||
	    stats.dropped || stats.malformed || stats.queue_bytes)
		return __LINE__;
	/* eager calls are never packed; those of the second FULL may be, without room */
	if (mode->mode == WEIR_BATCH_EAGER ? stats.messages != calls
	    : mode == &modes[2]		   ? stats.messages > calls / 100
					   : stats.messages > calls)
		return __LINE__;
	return weir_invoker_close(v) ? __LINE__ : 0;
}

/* Each thread calls each of all processes, itself too: all calls run once and in order. */
TEST(test_lines)
{
	for (uint32_t size = 1; size <= 3; size++)
		for (uint32_t i = 0; i < MODES; i++)
			for (uint32_t one_node = 0; one_node <= (size > 1); one_node++) {
				mode = &modes[i];
				atomic_store(&shared.done, 0);
				pthread_barrier_init(&shared.entered, NULL, size * THREADS);
				pthread_barrier_init(&shared.over, NULL, size * THREADS);
				team_join_and_run(size, one_node, use_lines);
				pthread_barrier_destroy(&shared.entered);
				pthread_barrier_destroy(&shared.over);
			}
}
