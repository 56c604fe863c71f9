/* SPDX-License-Identifier: BSD-3-Clause */
/* Members of a group whose threads call each other, and what each thread expects. */
#ifndef WEIR_TEST_INVOKE_CALLER_H
#define WEIR_TEST_INVOKE_CALLER_H

#include "group/team.h"
#include "worlds/test.h"

#include "weir/invoke.h"

#include <stdatomic.h>

#define THREADS 3u /* per process */

enum { COUNT, ROW, EMPTY, BYTES, ASK, FLOOD, FUNCTIONS };

/* A thread of a process, which makes and runs calls. */
struct caller {
	struct weir_invoker *v;
	struct weir_group *g;
	uint32_t process, thread;
	pthread_t self;
	/* by process and thread that called (the last: any): number expected next, of COUNT, ROW,
	 * EMPTY, BYTES together */
	uint32_t next[MOST][THREADS + 1];
	uint32_t wrong, rows, asked, answered;
	int nested;	  /* what progress said in a function */
	uint32_t flooded; /* calls that FLOOD made */
	uint64_t run;
	void *user;
};

/* The calling thread; of the pool, one for all. */
static __thread struct caller *own;

struct numbered {
	uint32_t number, thread;
};

static inline uint32_t
from_index(struct weir_to from)
{
	return from.thread == WEIR_THREAD_ANY ? THREADS : from.thread;
}

static inline void
expect(struct weir_incoming *c, uint32_t number)
{
	struct weir_to from = weir_incoming_from(c);

	if (own->self != pthread_self() || weir_incoming_invoker(c) != own->v ||
	    number != own->next[from.process][from_index(from)])
		own->wrong++;
	own->next[from.process][from_index(from)] = number + 1;
	own->run++;
}

static inline void
run_count(struct weir_incoming *c, const void *args, size_t length)
{
	struct numbered n;

	memcpy(&n, args, sizeof(n));
	expect(c, n.number);
	if (length != sizeof(n) || (uintptr_t)args % 8 || n.thread != own->thread)
		own->wrong++;
	own->nested = weir_invoker_progress(own->v, 0, 0);
}

static inline void
run_row(struct weir_incoming *c, const void *args, size_t length, size_t stride, size_t count)
{
	uint32_t number;

	own->rows++;
	for (size_t i = 0; i < count; i++) {
		memcpy(&number, (const uint8_t *)args + i * stride, sizeof(number));
		expect(c, number);
	}
	if (length != 12 || stride != 16)
		own->wrong++;
}

static inline void
run_empty(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);

	expect(c, own->next[from.process][from_index(from)]);
	if (length)
		own->wrong++;
}

static inline void
run_bytes(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);
	uint32_t number = own->next[from.process][from_index(from)];

	for (size_t i = 0; i < length; i++)
		if (((const uint8_t *)args)[i] != (uint8_t)(number + i))
			own->wrong++;
	expect(c, number);
}

/* {hops}: calls the sender back until they are over. */
static inline void
run_ask(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);
	uint32_t hops;

	memcpy(&hops, args, sizeof(hops));
	own->asked++;
	if (!hops--)
		own->answered++;
	else if (weir_call(own->v, from, ASK, &hops, sizeof(hops), NULL))
		own->wrong++;
}

/* Calls COUNT of the sender until that is refused. */
static inline void
run_flood(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);
	struct numbered n = {.thread = from.thread};
	int rc = 0;

	while (!rc && own->flooded < 10000000) {
		n.number = own->flooded;
		rc = weir_call(own->v, from, COUNT, &n, sizeof(n), NULL);
		own->flooded += !rc;
	}
	if (rc != -EAGAIN)
		own->wrong++;
}

static const struct weir_function functions[FUNCTIONS] = {
    [COUNT] = {.name = "count", .version = 1, .min_length = 8, .max_length = 8, .run = run_count},
    [ROW] = {.name = "row", .version = 1, .min_length = 12, .max_length = 12, .run_many = run_row},
    [EMPTY] = {.name = "empty", .version = 1, .run = run_empty},
    [BYTES] = {.name = "bytes", .version = 1, .max_length = WEIR_ARGS_MAX, .run = run_bytes},
    [ASK] = {.name = "ask", .version = 1, .min_length = 4, .max_length = 4, .run = run_ask},
    [FLOOD] = {.name = "flood", .version = 1, .run = run_flood},
};

static inline int
serve(void *arg)
{
	int rc = weir_invoker_progress(arg, 0, 0);

	return rc > 0 ? rc : 0;
}

static inline struct weir_invoker_options
standard(void)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;

	o.functions = functions;
	o.function_count = FUNCTIONS;
	return o;
}

/* Opens, enters as thread 0, and waits for the others. 0 or the line that fails. */
static inline int
begin(struct team *t, uint32_t index, const struct weir_invoker_options *o, struct caller *c)
{
	*c = (struct caller){
	    .g = t->g[index], .process = weir_group_rank(t->g[index]), .self = pthread_self()};
	if (weir_invoker_open(t->w[index], t->g[index], o, &c->v))
		return __LINE__;
	if (weir_invoker_enter(c->v, 0))
		return __LINE__;
	own = c;
	weir_group_idle(t->g[index], serve, c->v);
	return weir_group_barrier(t->g[index], PATIENT) ? __LINE__ : 0;
}

static inline int
end(struct team *t, uint32_t index, struct caller *c)
{
	if (weir_group_barrier(t->g[index], PATIENT))
		return __LINE__;
	weir_group_idle(t->g[index], NULL, NULL);
	if (c->wrong)
		return __LINE__;
	if (weir_invoker_leave(c->v) || weir_invoker_close(c->v))
		return __LINE__;
	return 0;
}

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return __LINE__;                                                           \
	} while (0)

#endif
