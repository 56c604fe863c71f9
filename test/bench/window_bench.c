/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of calls on a window of two members of one host, in instructions of the library: the
 * memory is mapped, and no data plane turns meanwhile.
 *
 * window_bench [SIZE [CALLS [WORK]]]; under callgrind with --toggle-collect=calls_*. WORK: put,
 * get, add (of 64 bits), update (a sum of 32), fetch (and add), swap (compare and swap), flush,
 * notice (a notified put), these within an epoch; without an operation, all: lock_all and
 * unlock_all; lock: exclusive, and unlock; fence; pscw: post, start, complete and wait, the last
 * two when the other member has come.
 */
#include "../unit/group/team.h"

#include "weir/window.h"

#include <errno.h>
#include <stdio.h>

#define BURST 8u /* calls of a function that counts */
#define PART 4096u

static struct weir_window *windows[2];
static struct weir_window *win; /* of the member that calls */
static uint32_t rank;		/* of the other one */
static size_t size;		/* of a put or get */
static _Alignas(8) uint8_t bytes[64];
static uint64_t one = 1, was;

static void
must(int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "window_bench: %d, %s\n", rc, weir_reason());
	exit(1);
}

static __attribute__((noinline)) void
calls_put(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_put(win, rank, i * sizeof(bytes), bytes, size, 0));
}

static __attribute__((noinline)) void
calls_get(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_get(win, rank, i * sizeof(bytes), bytes, size, 0));
}

static __attribute__((noinline)) void
calls_add(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_accumulate(win, rank, i * sizeof(one), &one, 1, WEIR_T_UINT64,
					    WEIR_ACC_SUM, 0));
}

static __attribute__((noinline)) void
calls_update(void)
{
	static const uint32_t narrow = 1;

	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_accumulate(win, rank, i * sizeof(one), &narrow, 1, WEIR_T_UINT32,
					    WEIR_ACC_SUM, 0));
}

static __attribute__((noinline)) void
calls_fetch(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_fetch_op(win, rank, i * sizeof(one), &one, &was, WEIR_T_UINT64,
					  WEIR_ACC_SUM, 0));
}

static __attribute__((noinline)) void
calls_swap(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_compare_swap(win, rank, i * sizeof(one), &was, &one, &was,
					      WEIR_T_UINT64, 0));
}

static __attribute__((noinline)) void
calls_notice(void)
{
	const struct weir_transfer t = {
	    .buf = bytes, .length = size, .notify = WEIR_WITH_NOTICE, .tag = 1};

	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_put_with(win, rank, &t));
}

static void
notices(void)
{
	struct weir_watch watch;

	calls_notice();
	weir_watch_init(&watch, windows[1], 1 - rank, 1, BURST);
	must(weir_watch_test(&watch) != 1);
}

static __attribute__((noinline)) void
calls_flush(void)
{
	for (unsigned i = 0; i < BURST; i++)
		must(weir_window_flush(win, rank, 0));
}

static __attribute__((noinline)) void
calls_all(void)
{
	for (unsigned i = 0; i < BURST; i++) {
		must(weir_window_lock_all(win, 0, -1));
		must(weir_window_unlock_all(win, 0));
	}
}

static __attribute__((noinline)) void
calls_lock(void)
{
	for (unsigned i = 0; i < BURST; i++) {
		must(weir_window_lock(win, rank, WEIR_LOCK_EXCLUSIVE, 0, 0));
		must(weir_window_unlock(win, rank, 0));
	}
}

static __attribute__((noinline)) void
calls_fence(void)
{
	must(weir_window_fence(win, WEIR_NO_SUCCEED, 0));
}

static void
fences(void)
{
	for (unsigned i = 0; i < BURST; i++) {
		must(weir_window_fence(windows[1], WEIR_NO_SUCCEED, 0) != -EAGAIN);
		calls_fence();
		must(weir_window_fence(windows[1], WEIR_NO_SUCCEED, 0));
	}
}

static __attribute__((noinline)) void
calls_access(void)
{
	must(weir_window_post(win, &rank, 1, 0));
	must(weir_window_start(win, &rank, 1, 0, 0));
	must(weir_window_complete(win, 0));
}

static __attribute__((noinline)) void
calls_wait(void)
{
	must(weir_window_wait(win, 0));
}

static void
rounds(void)
{
	uint32_t here = 1 - rank;

	for (unsigned i = 0; i < BURST; i++) {
		must(weir_window_post(windows[1], &here, 1, 0));
		calls_access();
		must(weir_window_start(windows[1], &here, 1, 0, 0));
		must(weir_window_complete(windows[1], 0));
		calls_wait();
		must(weir_window_wait(windows[1], 0));
	}
}

static const struct work {
	const char *name;
	void (*calls)(void);
	bool within; /* an epoch */
} works[] = {
    {"add", calls_add, true},	    {"put", calls_put, true},	  {"get", calls_get, true},
    {"update", calls_update, true}, {"fetch", calls_fetch, true}, {"swap", calls_swap, true},
    {"flush", calls_flush, true},   {"notice", notices, true},	  {"all", calls_all, false},
    {"lock", calls_lock, false},    {"fence", fences, false},	  {"pscw", rounds, false},
};
#define WORKS (sizeof(works) / sizeof(works[0]))

static int
open_window(struct team *t, uint32_t i)
{
	void *base;

	return weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &windows[i]);
}

static int
free_window(struct team *t, uint32_t i)
{
	return weir_window_free(windows[i], PATIENT);
}

int
main(int argc, char **argv)
{
	unsigned long calls = argc > 2 ? strtoul(argv[2], NULL, 0) : 100000;
	const char *name = argc > 3 ? argv[3] : works[0].name;
	const struct work *w = works;
	struct team t;

	size = argc > 1 ? strtoul(argv[1], NULL, 0) : 8;
	while (w < works + WORKS && strcmp(w->name, name) != 0)
		w++;
	if (w == works + WORKS || !size || size > sizeof(bytes))
		return 2;
	team_open(&t, 2, true);
	team_join(&t);
	team_run(&t, open_window);
	must(t.result[0] ? t.result[0] : t.result[1]);
	win = windows[0];
	rank = 1 - weir_group_rank(t.g[0]);
	/* opens the other member, and its lock; the own one, too */
	if (w->within || w->calls == calls_all) {
		must(weir_window_lock_all(win, 0, PATIENT));
		must(weir_window_put(win, rank, 0, bytes, size, 0));
	}
	if (w->calls == calls_all)
		must(weir_window_unlock_all(win, PATIENT));
	else if (!w->within) /* each the other one */
		for (unsigned i = 0; i < 2; i++) {
			uint32_t other = i ? 1 - rank : rank;

			must(weir_window_lock(windows[i], other, WEIR_LOCK_EXCLUSIVE, 0, PATIENT));
			must(weir_window_put(windows[i], other, 0, bytes, size, 0));
			must(weir_window_unlock(windows[i], other, PATIENT));
		}
	plane_stop(t.f);
	for (unsigned long i = 0; i < calls; i += BURST)
		w->calls();
	plane_run(t.f);
	if (w->within)
		must(weir_window_unlock_all(win, PATIENT));
	team_run(&t, free_window);
	must(t.result[0] ? t.result[0] : t.result[1]);
	team_close(&t);
	return 0;
}
