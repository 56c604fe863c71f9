/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of calls on remote memory, in instructions of the library: the memory is of the same
 * host, mapped or apart. The data plane turns between bursts of calls, so that none waits.
 *
 * remote_bench [SIZE [CALLS [WORK]]]; under callgrind with --toggle-collect=calls_*. WORK: put,
 * get, update, fetch, all with map_ before them for mapped memory; flush with nothing under way,
 * mark (weir_mark_done()), notice (weir_notice_next()). Of get and fetch apart, taking the results
 * counts.
 */
#include "remote/places.h"

#include <stdio.h>

#define BURST 8u /* calls between turns; the window of notices that a connection has at first */

static struct memory m;
static struct weir_mark mark;
static size_t size; /* of a put or get */
static _Alignas(8) uint8_t bytes[64];
static uint64_t one = 1, was[BURST];

static void
must(int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "remote_bench: %d, %s\n", rc, weir_reason());
	exit(1);
}

static __attribute__((noinline)) void
calls_put(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_remote_put(m.r, i * sizeof(bytes), bytes, size, 0));
}

static __attribute__((noinline)) void
calls_get(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_remote_get(m.r, i * sizeof(bytes), bytes, size, 0));
}

static __attribute__((noinline)) void
calls_update(void)
{
	struct weir_update u = {
	    .operand = &one, .count = 1, .type = WEIR_T_UINT64, .op = WEIR_ACC_SUM};

	for (unsigned i = 0; i < BURST; i++) {
		u.offset = i * sizeof(one);
		must(weir_remote_update(m.r, &u));
	}
}

static __attribute__((noinline)) void
calls_fetch(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_remote_fetch_op(m.r, i * sizeof(one), &one, &was[i], WEIR_T_UINT64,
					  WEIR_ACC_SUM, 0));
}

static __attribute__((noinline)) void
calls_flush(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_remote_flush(m.r, 0));
}

static __attribute__((noinline)) void
calls_mark(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(!weir_mark_done(&mark));
}

static __attribute__((noinline)) void
calls_notice(void)
{
	struct weir_notice n;

	for (unsigned i = 0; i < BURST; i++)
		must(weir_notice_next(m.b, &n, 0));
}

static __attribute__((noinline)) void
calls_take(void)
{
	must(weir_remote_flush(m.r, 0));
}

static void
send_notices(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_remote_notify(m.r, i, 0, WEIR_NOWAIT));
}

static void
put_marked(void)
{
	must(weir_remote_put(m.r, 0, bytes, size, 0));
	weir_remote_mark(m.r, &mark);
}

static const struct work {
	const char *name;
	enum place place;
	void (*before)(void); /* NULL: nothing; not counted, nor is what it begins */
	void (*calls)(void);
	bool takes; /* results */
} works[] = {
    {"map_put", MAPPED, NULL, calls_put, false},
    {"map_get", MAPPED, NULL, calls_get, false},
    {"map_update", MAPPED, NULL, calls_update, false},
    {"map_fetch", MAPPED, NULL, calls_fetch, false},
    {"map_flush", MAPPED, NULL, calls_flush, false},
    {"put", APART, NULL, calls_put, false},
    {"get", APART, NULL, calls_get, true},
    {"update", APART, NULL, calls_update, false},
    {"fetch", APART, NULL, calls_fetch, true},
    {"flush", APART, put_marked, calls_flush, false},
    {"mark", APART, put_marked, calls_mark, false},
    {"notice", APART, send_notices, calls_notice, false},
};
#define WORKS (sizeof(works) / sizeof(works[0]))

/* All that was begun is complete. */
static void
settle(void)
{
	plane_settle(m.f);
	must(weir_remote_flush(m.r, 0));
}

int
main(int argc, char **argv)
{
	unsigned long calls = argc > 2 ? strtoul(argv[2], NULL, 0) : 100000;
	const char *name = argc > 3 ? argv[3] : works[0].name;
	const struct work *w = works;

	size = argc > 1 ? strtoul(argv[1], NULL, 0) : 8;
	while (w < works + WORKS && strcmp(w->name, name) != 0)
		w++;
	if (w == works + WORKS || !size || size > sizeof(bytes))
		return 2;
	m = memory_open(w->place);
	plane_stop(m.f);
	for (unsigned long i = 0; i < calls; i += BURST) {
		if (w->before) {
			w->before();
			settle();
		}
		w->calls();
		plane_settle(m.f);
		if (w->takes)
			calls_take();
		else
			settle();
	}
	memory_close(&m);
	return 0;
}
