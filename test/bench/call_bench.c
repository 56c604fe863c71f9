/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of a call of a function of another program of the host, in instructions of the library:
 * one thread makes the calls and runs them, of two processes of a group.
 *
 * call_bench SIZE CALLS WORK; under callgrind with --toggle-collect=make_calls, run_calls or
 * take_calls, which takes results. WORK: packed, many (packed, and run_many), eager, return (eager,
 * each with a result of SIZE bytes), idle (run_calls makes turns without work). A burst before them
 * is not counted: the line connects, and memory is there.
 */
#include "group/team.h"
#include "worlds/test.h"

#include "weir/invoke.h"

#define BURST 64u	   /* eager calls between turns */
#define BURST_PACKED 1024u /* packed ones */

static struct weir_invoker *invoker[2];
static const struct weir_to to = {1, 0};
static struct weir_line *line;
static _Alignas(8) uint8_t args[WEIR_ARGS_MAX];
static _Alignas(8) uint8_t results[BURST][64];
static struct weir_future futures[BURST];
static uint64_t runs;
static uint32_t size, burst;
static bool eager, many, returning, idle;

static void
must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "call_bench: %s: %s\n", what, weir_reason());
	exit(1);
}

static void
count(struct weir_incoming *c, const void *bytes, size_t length)
{
	runs++;
}

static void
give(struct weir_incoming *c, const void *bytes, size_t length)
{
	runs++;
	must(!weir_incoming_result(c, bytes, length), "result");
}

static void
count_row(struct weir_incoming *c, const void *bytes, size_t length, size_t stride, size_t n)
{
	runs += n;
}

/* Many calls per turn of the loop, so that the loop counts for little. */
#define CALLS_OF(length)                                                                           \
	for (uint32_t i = 0; i < burst; i += 16) {                                                 \
		_Pragma("GCC unroll 16") for (uint32_t k = 0; k < 16; k++) rc |=                   \
		    weir_line_call(l, 0, args, length);                                            \
	}

/* With arguments of constant length, as programs make them. */
static inline __attribute__((always_inline)) void
make(void)
{
	struct weir_line *l = line;
	int rc = 0;

	if (idle)
		return;
	if (returning)
		for (uint32_t i = 0; i < burst; i++)
			rc |= weir_call_return(invoker[0], to, 0, args, size, &futures[i],
					       results[i], size, NULL);
	else if (size == 8)
		CALLS_OF(8)
	else
		CALLS_OF(64)
	rc |= weir_invoker_flush(invoker[0]);
	must(!rc, "calls");
}

static inline __attribute__((always_inline)) void
turn(uint32_t i)
{
	must(weir_invoker_progress(invoker[i], 0, 0) >= 0, "progress");
}

static inline __attribute__((always_inline)) void
run(uint64_t until)
{
	for (uint32_t i = 0; idle && i < burst; i++)
		must(!weir_invoker_progress(invoker[1], 0, 0), "turn");
	while (!idle && runs < until)
		turn(1);
}

/* All results have come, those that found no room, too. */
static void
settle(void)
{
	do {
		turn(1);
		turn(0);
	} while (returning && futures[burst - 1].status == -EINPROGRESS);
}

static __attribute__((noinline)) void
make_calls(void)
{
	make();
}

static __attribute__((noinline)) void
run_calls(uint64_t until)
{
	run(until);
}

static __attribute__((noinline)) void
take_calls(void)
{
	turn(0);
}

static int
open_one(struct team *t, uint32_t i)
{
	struct weir_function f = {.name = "count", .min_length = size, .max_length = size};
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	uint32_t rank = weir_group_rank(t->g[i]);

	f.run = many ? NULL : returning ? give : count;
	f.run_many = many ? count_row : NULL;
	o.functions = &f;
	o.function_count = 1;
	o.threads = 1;
	o.batching.mode = eager ? WEIR_BATCH_EAGER : WEIR_BATCH_FULL;
	o.batching.delay_us = 1000000;
	return weir_invoker_open(t->w[i], t->g[i], &o, &invoker[rank]);
}

static int
close_one(struct team *t, uint32_t i)
{
	return weir_invoker_close(invoker[weir_group_rank(t->g[i])]);
}

int
main(int argc, char **argv)
{
	uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
	const char *work = argc > 3 ? argv[3] : "";
	struct team t;

	size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 0;
	many = !strcmp(work, "many");
	returning = !strcmp(work, "return");
	idle = !strcmp(work, "idle");
	eager = returning || idle || !strcmp(work, "eager");
	burst = eager ? BURST : BURST_PACKED;
	if ((size != 8 && size != 64) || !calls || calls % burst ||
	    (!eager && !many && strcmp(work, "packed") != 0)) {
		fprintf(stderr,
			"usage: call_bench 8|64 CALLS packed|many|eager|return|idle; calls: "
			"a multiple of 1024\n");
		return 2;
	}
	team_open(&t, 2, true);
	team_join(&t);
	team_run(&t, open_one);
	must(!t.result[0] && !t.result[1], "open");
	for (uint32_t i = 0; i < 2; i++)
		must(!weir_invoker_enter(invoker[i], 0), "enter");
	must(!weir_line_open(invoker[0], to, NULL, PATIENT, &line), "line");
	make();
	run(burst);
	settle();
	for (uint64_t made = burst; made <= calls; made += burst) {
		make_calls();
		run_calls(made + burst);
		take_calls();
		settle();
	}
	for (uint32_t i = 0; i < 2; i++)
		must(!weir_invoker_leave(invoker[i]), "leave");
	team_run(&t, close_one);
	team_close(&t);
	return 0;
}
