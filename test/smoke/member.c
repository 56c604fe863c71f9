/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that are formed again and again, for tests of hostile programs, and one whose members end.
 *
 *   member INSTANCE meet NAME SIZE   joins the group NAME, whose secret strangers lack, makes
 *                                    collective calls, checks their results and leaves; each time
 *                                    it says "received N", and "wrong" if a call fails
 *   member INSTANCE bear NAME        the same with one member that may do anything, and no secret:
 *                                    calls may fail, but they end, and the session stays
 *   member INSTANCE window NAME SIZE as meet, with a window: locked increments, fences, epochs of
 *                                    post and start, notices
 *   member INSTANCE snared NAME SIZE as bear, with all of these
 *   member INSTANCE endure NAME SIZE RANK
 *                                    in a window with that name, works on the part of each member;
 *                                    says "received N", and "member R: RC" when that of R has
 *                                    ended; "wrong": an operation there gives another RC
 */
#include "program.h"

#include "weir/group.h"
#include "weir/window.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int
meet(struct weir *w, const char *name, uint32_t size)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	uint64_t all[WEIR_GROUP_MAX], mine, sum;
	struct weir_group *g;

	o.size = size;
	o.secret = "open sesame";
	for (uint64_t n = 1;; n++) {
		int rc = weir_group_join(w, name, &o, PATIENCE_MS, &g);

		if (rc)
			return failed("wrong: join", rc);
		mine = sum = weir_group_rank(g) + n;
		rc = weir_group_allgather(g, &mine, sizeof(mine), all, PATIENCE_MS);
		if (!rc)
			rc = weir_group_allreduce(g, &sum, &sum, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
						  PATIENCE_MS);
		if (!rc)
			rc = weir_group_barrier(g, PATIENCE_MS);
		if (rc) {
			rc = failed("wrong: collective call", rc);
			weir_group_leave(g);
			return rc;
		}
		for (uint32_t i = 0; i < size; i++) {
			if (all[i] != i + n) {
				say("wrong: rank %u has counted %llu instead of %llu", i,
				    (unsigned long long)all[i], (unsigned long long)(i + n));
				return 1;
			}
			sum -= all[i];
		}
		if (sum) {
			say("wrong: the sum");
			return 1;
		}
		weir_group_leave(g);
		say("received %llu", (unsigned long long)n);
	}
}

static int
bear(struct weir *w, const char *name)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	unsigned formed = 0, refused = 0;
	uint64_t word = 1;

	o.size = 2;
	for (uint64_t n = 1; weir_node(w) >= 0; n++) {
		struct weir_group *g = NULL;
		int rc = weir_group_join(w, name, &o, 2000, &g);

		refused += rc && rc != -EAGAIN;
		if (!rc) {
			formed++;
			weir_group_allreduce(g, &word, &word, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 500);
			weir_group_leave(g);
		}
		say("received %llu: %u formed, %u failed", (unsigned long long)n, formed, refused);
	}
	return failed("session", weir_node(w));
}

/* ---- windows ---- */

#define ROUNDS 20u
#define PART 4096u
#define SNARED_MS 200

/* Counts at rank 0 under its lock. */
static int
increment(struct weir_window *win, int timeout_ms)
{
	uint64_t n;
	int end, rc = weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, timeout_ms);

	if (rc)
		return rc;
	rc = weir_window_get(win, 0, 0, &n, sizeof(n), 0);
	if (!rc)
		rc = weir_window_flush(win, 0, timeout_ms);
	n++;
	if (!rc)
		rc = weir_window_put(win, 0, 0, &n, sizeof(n), 0);
	end = weir_window_unlock(win, 0, timeout_ms);
	return rc ? rc : end;
}

/* Each puts its number into the next member's part, which that one sees behind the fence. */
static int
shift(struct weir_window *win, uint32_t rank, uint32_t size, uint64_t *part, uint64_t n,
      int timeout_ms)
{
	uint64_t mine = rank + n * size;
	uint32_t from = (rank + size - 1) % size;
	int rc = weir_window_fence(win, 0, timeout_ms);

	if (!rc)
		rc = weir_window_put(win, (rank + 1) % size, 64, &mine, sizeof(mine), 0);
	if (!rc)
		rc = weir_window_fence(win, 0, timeout_ms);
	return rc ? rc : part[8] == from + n * size ? 0 : -EBADMSG;
}

/* The same by post and start, and by a notice. */
static int
pass(struct weir_window *win, uint32_t rank, uint32_t size, uint64_t *part, uint64_t n,
     int timeout_ms)
{
	uint32_t to = (rank + 1) % size, from = (rank + size - 1) % size;
	uint64_t mine = rank + n * size;
	struct weir_watch watch;
	int rc = weir_window_post(win, &from, 1, 0);

	if (!rc)
		rc = weir_window_start(win, &to, 1, 0, timeout_ms);
	if (!rc)
		rc = weir_window_put(win, to, 128, &mine, sizeof(mine), 0);
	if (!rc)
		rc = weir_window_notify(win, to, (uint32_t)n,
					timeout_ms == PATIENCE_MS ? 0 : WEIR_NOWAIT);
	if (!rc)
		rc = weir_window_complete(win, timeout_ms);
	if (!rc)
		rc = weir_window_wait(win, timeout_ms);
	if (!rc && part[16] != from + n * size)
		rc = -EBADMSG;
	weir_watch_init(&watch, win, from, (uint32_t)n, 1);
	return rc ? rc : weir_watch_wait(&watch, timeout_ms);
}

static int
use_window(struct weir_window *win, uint64_t *part, int timeout_ms)
{
	struct weir_group *g = weir_window_group(win);
	uint32_t rank = weir_group_rank(g), size = weir_group_size(g);
	int rc = 0;

	for (uint64_t n = 1; !rc && n <= ROUNDS; n++) {
		rc = increment(win, timeout_ms);
		if (!rc)
			rc = shift(win, rank, size, part, n, timeout_ms);
		if (!rc)
			rc = pass(win, rank, size, part, n, timeout_ms);
	}
	if (!rc)
		rc = weir_window_fence(win, 0, timeout_ms);
	return rc || rank || part[0] == (uint64_t)ROUNDS * size ? rc : -EBADMSG;
}

/* Makes windows of the group again and again. */
static int
meet_windows(struct weir *w, const char *name, uint32_t size)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct weir_window *win;
	struct weir_group *g;
	void *part;

	o.size = size;
	o.secret = "open sesame";
	for (uint64_t n = 1;; n++) {
		int rc = weir_group_join(w, name, &o, PATIENCE_MS, &g);

		if (!rc)
			rc = weir_window_allocate(g, PART, NULL, PATIENCE_MS, &part, &win);
		if (!rc)
			rc = use_window(win, part, PATIENCE_MS);
		if (!rc)
			rc = weir_window_free(win, PATIENCE_MS);
		if (rc)
			return failed("wrong: window", rc);
		weir_group_leave(g);
		say("received %llu", (unsigned long long)n);
	}
}

/*
 * The same with a member that may spoil what they share. A window that could not be freed lasts as
 * long as its session, so each time begins with a new one.
 */
static int
snared(const struct weir_options *options, const char *name, uint32_t size)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	unsigned made = 0, fine = 0;

	o.size = size;
	for (uint64_t n = 1;; n++) {
		struct weir_group *g = NULL;
		struct weir_window *win = NULL;
		struct weir *w;
		void *part;
		int rc = weir_attach(options, &w);

		if (rc)
			return failed("wrong: attach", rc);
		if (!weir_group_join(w, name, &o, 2000, &g) &&
		    !weir_window_allocate(g, PART, NULL, 2000, &part, &win)) {
			made++;
			fine += !use_window(win, part, SNARED_MS);
			/* no lock_all: an operation within it has no time for its lock */
			if (!weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, SNARED_MS)) {
				weir_window_put(win, 0, 0, &n, sizeof(n), WEIR_NOWAIT);
				weir_window_unlock(win, 0, SNARED_MS);
			}
			weir_window_free(win, SNARED_MS);
		}
		if (weir_node(w) < 0)
			return failed("wrong: session", weir_node(w));
		weir_detach(w);
		say("received %llu: %u windows, %u as they should be", (unsigned long long)n, made,
		    fine);
	}
}

/* Operations of all kinds on a member's part: 0, or how it has ended. */
static int
work_on(struct weir_window *win, uint32_t rank, uint64_t n)
{
	uint64_t was[2];
	int rc = weir_window_put(win, rank, 0, &n, sizeof(n), 0);

	if (!rc)
		rc = weir_window_get(win, rank, 8, was, sizeof(was), 0);
	if (!rc)
		rc = weir_window_fetch_op(win, rank, 16, &n, was, WEIR_T_UINT64, WEIR_ACC_SUM, 0);
	return rc ? rc : weir_window_flush(win, rank, PATIENCE_MS);
}

/* Each kind of operation on a part says how it has ended. */
static void
check_end(struct weir_window *win, uint32_t rank, int rc)
{
	uint64_t n = 0, was = 0;
	const int all[] = {
	    weir_window_put(win, rank, 0, &n, sizeof(n), 0),
	    weir_window_get(win, rank, 8, &was, sizeof(was), 0),
	    weir_window_accumulate(win, rank, 16, &n, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
	    weir_window_fetch_op(win, rank, 16, &n, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
	    weir_window_compare_swap(win, rank, 16, &n, &n, &was, WEIR_T_UINT64, 0),
	    weir_window_notify(win, rank, 1, 0),
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i] != rc)
			say("wrong: operation %u on member %u: %d", i, rank, all[i]);
}

static int
endure(struct weir *w, const char *name, uint32_t size, uint32_t rank)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct weir_window_options named = WEIR_WINDOW_OPTIONS_INIT;
	bool ended[WEIR_GROUP_MAX] = {false};
	struct weir_window *win;
	struct weir_group *g;
	void *part;
	int rc;

	o.size = size;
	o.rank = rank;
	named.name = name;
	rc = weir_group_join(w, name, &o, PATIENCE_MS, &g);
	if (!rc)
		rc = weir_window_allocate(g, PART, &named, PATIENCE_MS, &part, &win);
	if (!rc)
		rc = weir_window_lock_all(win, WEIR_NO_CHECK, PATIENCE_MS);
	if (rc)
		return failed("window", rc);
	for (uint64_t n = 1; weir_node(w) >= 0; n++) {
		for (uint32_t i = 0; i < size; i++) {
			rc = ended[i] ? 0 : work_on(win, i, n);
			if (!rc)
				continue;
			ended[i] = true;
			check_end(win, i, rc);
			say("member %u: %d", i, rc);
		}
		if (n % 100 == 0)
			say("received %llu", (unsigned long long)n);
		usleep(100);
	}
	return failed("session", weir_node(w));
}

int
main(int argc, char **argv)
{
	struct weir_options o = {.size = sizeof(o), .name = "member"};
	struct weir *w;
	int rc;

	if (argc < 4)
		return 2;
	o.instance = argv[1];
	if (!strcmp(argv[2], "snared"))
		return snared(&o, argv[3], (uint32_t)number_at(argc, argv, 4));
	if (attach_to(argv[1], o.name, 0, &w))
		return 1;
	if (!strcmp(argv[2], "bear"))
		rc = bear(w, argv[3]);
	else if (!strcmp(argv[2], "meet"))
		rc = meet(w, argv[3], (uint32_t)number_at(argc, argv, 4));
	else if (!strcmp(argv[2], "endure"))
		rc = endure(w, argv[3], (uint32_t)number_at(argc, argv, 4),
			    (uint32_t)number_at(argc, argv, 5));
	else if (!strcmp(argv[2], "window"))
		rc = meet_windows(w, argv[3], (uint32_t)number_at(argc, argv, 4));
	else
		rc = 2;
	weir_detach(w);
	return rc;
}
