/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes with THREADS threads each, which have entered an invoker. */
#ifndef WEIR_TEST_INVOKE_CREW_H
#define WEIR_TEST_INVOKE_CREW_H

#include "caller.h"

struct hand {
	struct caller c;
	pthread_t thread;
	uint32_t number; /* among the threads of all processes */
	int line;	 /* that fails; 0: none */
};

struct crew_run {
	struct weir_invoker_options o;
	int (*run)(struct hand *h);
};
static struct crew_run crew;

static inline void *
be_hand(void *arg)
{
	struct hand *h = arg;

	own = &h->c;
	h->c.self = pthread_self();
	h->line = weir_invoker_enter(h->c.v, h->c.thread) ? __LINE__ : crew.run(h);
	if (!h->line && h->c.wrong)
		h->line = __LINE__;
	if (h->line)
		fprintf(stderr, "process %u thread %u: line %d: %s\n", h->c.process, h->c.thread,
			h->line, weir_reason());
	return NULL;
}

/* Opens, and has o.threads threads run; the one that has joined the group is thread 0. */
static inline int
be_process(struct team *t, uint32_t index)
{
	struct hand hands[THREADS] = {0};
	struct weir_invoker *v;
	int line = 0;

	CHECK(!weir_invoker_open(t->w[index], t->g[index], &crew.o, &v));
	for (uint32_t i = 0; i < crew.o.threads; i++) {
		hands[i].c = (struct caller){
		    .v = v, .g = t->g[index], .process = weir_group_rank(t->g[index]), .thread = i};
		hands[i].number = hands[i].c.process * crew.o.threads + i;
		if (i)
			CHECK(!pthread_create(&hands[i].thread, NULL, be_hand, &hands[i]));
	}
	be_hand(&hands[0]);
	for (uint32_t i = 0; i < crew.o.threads; i++) {
		if (i)
			pthread_join(hands[i].thread, NULL);
		line = line ? line : hands[i].line;
	}
	CHECK(!line);
	return weir_invoker_close(v) ? __LINE__ : 0;
}

/* Of `size` processes on two nodes. */
static inline void
crew_of(uint32_t size, const struct weir_function *table, uint32_t count,
	int (*run)(struct hand *h))
{
	crew.o.functions = table;
	crew.o.function_count = count;
	crew.run = run;
	team_of(size, be_process);
}

static inline void
crew_init(void)
{
	crew.o = (struct weir_invoker_options)WEIR_INVOKER_OPTIONS_INIT;
	crew.o.threads = THREADS;
}

#endif
