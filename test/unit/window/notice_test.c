/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices of windows, from the public calls down to rings and engines: how many wait, their order,
 * and that each is found once. Whatever all ranks run alike is in test/rma/notify.c.
 */
#include "../group/team.h"
#include "window/handle.h"
#include "worlds/test.h"

#include "weir/window.h"

#define PART 4096u

#define FEW 2u

/* No more notices wait than the options say, besides those on their way; none is lost. */
static int
few_notices(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), other = 1 - rank, sent = 0;
	const uint32_t most = FEW + 2 * NOTICE_SLOTS;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_window *win;
	struct weir_watch watch;
	void *at;
	int rc;

	o.notices = WEIR_WINDOW_NOTICES_MAX + 1;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &at, &win) != -EINVAL)
		return __LINE__;
	o.notices = FEW;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &at, &win) ||
	    weir_window_lock_all(win, 0, PATIENT))
		return __LINE__;
	weir_watch_init(&watch, win, other, WEIR_TAG_ANY, 1);
	if (rank) {
		for (unsigned n = 0; n < 1000 && sent < 3 * most; n++) {
			rc = weir_window_notify(win, other, sent, WEIR_NOWAIT);
			sent += !rc;
			if (rc == -EAGAIN)
				usleep(100);
			else if (rc)
				return __LINE__;
		}
		if (sent > most || weir_window_put(win, other, 8, &sent, sizeof(sent), 0) ||
		    weir_window_flush(win, other, PATIENT))
			return __LINE__;
	} else {
		struct weir_watch none;

		/* looks for what does not come, until all is sent */
		weir_watch_init(&none, win, other, UINT32_MAX - 1, 1);
		while (!(sent = __atomic_load_n((uint32_t *)at + 2, __ATOMIC_ACQUIRE)))
			if (weir_watch_test(&none))
				return __LINE__;
		for (uint32_t k = 0; k < sent; k++) {
			weir_watch_start(&watch);
			if (weir_watch_wait(&watch, PATIENT) || watch.last_tag != k)
				return __LINE__;
		}
	}
	if (weir_group_barrier(t->g[i], PATIENT))
		return __LINE__;
	return weir_window_unlock_all(win, PATIENT) || weir_window_free(win, PATIENT) ? __LINE__
										      : 0;
}

/* Also windows beyond the last one that has rings: their notices go by the engine. */
static int
windows_without_rings(struct team *t, uint32_t i)
{
	static const uint32_t numbers[] = {0, NOTICE_WINDOWS - 1, NOTICE_WINDOWS,
					   WEIR_WINDOWS_MAX - 1};
	uint32_t other = 1 - weir_group_rank(t->g[i]);
	struct board *b = NULL;
	struct weir_window *win;
	struct weir_watch watch;
	void *at;

	for (unsigned n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
		uint64_t used = (UINT64_C(1) << numbers[n]) - 1;

		if (b)
			b->used = used;
		if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &at, &win) ||
		    win->number != numbers[n])
			return __LINE__;
		b = win->board;
		if (!win->sources != (!b->lines || numbers[n] >= NOTICE_WINDOWS))
			return __LINE__;
		weir_window_lock_all(win, 0, PATIENT);
		for (uint32_t k = 0; k < NOTICE_SLOTS; k++)
			if (weir_window_notify(win, other, k, 0))
				return __LINE__;
		for (uint32_t k = 0; k < NOTICE_SLOTS; k++) {
			weir_watch_init(&watch, win, other, WEIR_TAG_ANY, 1);
			if (weir_watch_wait(&watch, PATIENT) || watch.last_tag != k)
				return __LINE__;
		}
		weir_window_unlock_all(win, PATIENT);
		if (weir_window_free(win, PATIENT) || b->used != used)
			return __LINE__;
	}
	b->used = 0;
	return 0;
}

#define MANY 500u /* more than wait at an engine */

/* A member in a collective call takes in notices, also if another thread joined the group. */
static int
notices_in_a_barrier(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), other = 1 - rank;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_window *win;
	struct weir_watch watch;
	void *at;

	o.flags = WEIR_WINDOW_APART;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &at, &win) ||
	    weir_window_lock_all(win, 0, PATIENT))
		return __LINE__;
	for (uint32_t k = 0; rank && k < MANY; k++)
		if (weir_window_notify(win, other, k, 0))
			return __LINE__;
	if (weir_group_barrier(t->g[i], PATIENT))
		return __LINE__;
	for (uint32_t k = 0; !rank && k < MANY; k++) {
		weir_watch_init(&watch, win, other, k, 1);
		if (weir_watch_wait(&watch, PATIENT))
			return __LINE__;
	}
	return weir_window_unlock_all(win, PATIENT) || weir_window_free(win, PATIENT) ? __LINE__
										      : 0;
}

/* Both are here, and what the other one has put is seen. */
static bool
step(struct weir_window *win, uint32_t other, uint64_t number)
{
	const uint64_t at = PART / 2;

	return !weir_window_put(win, other, at, &number, sizeof(number), 0) &&
	       !weir_window_flush(win, other, PATIENT) &&
	       !weir_window_signal_wait(win, at, WEIR_GE, number, PATIENT, NULL);
}

#define BEHIND 10u

/* Notices are found behind others for which there is no room, and each once; of one tag the oldest
 * first, whether it was kept or not. */
static int
notices_behind(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), other = 1 - rank;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_transfer put = {.notify = WEIR_WITH_NOTICE, .tag = BEHIND};
	struct weir_window *win;
	struct weir_watch watch;
	uint64_t bytes[2] = {1, 2};
	void *at;

	o.notices = FEW;
	put.buf = bytes;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &at, &win) ||
	    weir_window_lock_all(win, 0, PATIENT))
		return __LINE__;
	for (uint32_t k = 0; rank && k < BEHIND; k++)
		if (weir_window_notify(win, other, k, 0))
			return __LINE__;
	if (!step(win, other, 1))
		return __LINE__;
	for (uint32_t n = 1; !rank && n <= 2; n++) { /* from one, from any */
		weir_watch_init(&watch, win, n == 1 ? other : WEIR_RANK_ANY, BEHIND - n, 1);
		if (weir_watch_wait(&watch, PATIENT))
			return __LINE__;
	}
	for (uint32_t k = 0; !rank && k < BEHIND - 2; k++) {
		weir_watch_init(&watch, win, other, WEIR_TAG_ANY, 1);
		if (weir_watch_wait(&watch, PATIENT) || watch.last_tag != k)
			return __LINE__;
	}
	for (uint32_t n = 1; !rank && n <= 2; n++) {
		weir_watch_init(&watch, win, other, BEHIND - n, 1);
		if (weir_watch_test(&watch))
			return __LINE__;
	}
	/* one that is kept since another one was looked for, and one that comes after it */
	for (uint32_t n = 1; n <= 2; n++) {
		put.length = 8 * n;
		if (rank && weir_window_put_with(win, other, &put))
			return __LINE__;
		if (!step(win, other, 2 * n))
			return __LINE__;
		weir_watch_init(&watch, win, other, BEHIND + 1, 1);
		if (!rank && n == 1 && weir_watch_test(&watch))
			return __LINE__;
		if (!step(win, other, 2 * n + 1))
			return __LINE__;
	}
	for (uint32_t n = 1; !rank && n <= 2; n++) {
		weir_watch_init(&watch, win, other, BEHIND, 1);
		if (weir_watch_wait(&watch, PATIENT) || watch.bytes != 8 * n)
			return __LINE__;
	}
	return weir_window_unlock_all(win, PATIENT) || weir_window_free(win, PATIENT) ? __LINE__
										      : 0;
}

#define NOTICES 3000u

/* Notices of a member come in their order, and behind its puts, also those for which the ring of
 * its host has no room. */
static int
notice_in_order(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), other = 1 - rank;
	struct weir_window *win;
	struct weir_watch watch;
	_Atomic uint64_t *base;
	uint64_t sent;
	void *at;
	int rc;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &at, &win) ||
	    weir_window_lock_all(win, 0, PATIENT))
		return __LINE__;
	base = at;
	for (uint64_t k = 1; rank && k <= NOTICES; k++) {
		struct weir_transfer put = {.buf = &k, .length = 8, .tag = (uint32_t)k};

		put.notify = WEIR_WITH_NOTICE;
		put.flags = k < 2000 || k % 7 ? 0 : WEIR_NOWAIT;
		if (k % 3 == 0) { /* the engine sets the signal, the notice may go by the ring */
			put.notify = WEIR_WITH_SIGNAL_SET;
			put.flags = 0;
			put.signal = 8;
			put.operand = k;
			if (weir_window_put_with(win, other, &put))
				return __LINE__;
			GO_ON(rc,
			      weir_window_notify(win, other, (uint32_t)k, k % 2 ? 0 : WEIR_NOWAIT));
			if (rc)
				return __LINE__;
		}
		while (k % 3) {
			rc = weir_window_put_with(win, other, &put);
			if (!rc)
				break;
			if (rc != -EAGAIN || !put.flags)
				return __LINE__;
		}
	}
	weir_watch_init(&watch, win, other, WEIR_TAG_ANY, 1);
	for (uint32_t k = 1; !rank && k <= NOTICES; k++) {
		if (k == 1 || k == 1500)
			/* the ring fills, and what goes by the engine comes before it is looked at
			 */
			if (weir_window_signal_wait(win, 16, WEIR_EQ, 1, 50, NULL) != -EAGAIN)
				return __LINE__;
		weir_watch_start(&watch);
		if (weir_watch_wait(&watch, PATIENT) || watch.last_tag != k || base[0] < k ||
		    watch.bytes != (k % 3 ? 8 : 0) || (k % 3 == 0 && base[1] < k))
			return __LINE__;
	}
	if (weir_group_barrier(t->g[i], PATIENT))
		return __LINE__;
	/* all were taken: the ring is free again, and takes as many as it has slots */
	sent = rank ? window_member_find(win, other)->ring_sent : 0;
	for (uint32_t k = 0; rank && k < 4 * NOTICE_SLOTS; k++) {
		if (weir_window_notify(win, other, k, 0))
			return __LINE__;
		if (k + 1 == NOTICE_SLOTS && window_member_find(win, other)->ring &&
		    window_member_find(win, other)->ring_sent != sent + NOTICE_SLOTS)
			return __LINE__;
	}
	if (!rank && weir_window_signal_wait(win, 16, WEIR_EQ, 1, 50, NULL) != -EAGAIN)
		return __LINE__;
	for (uint32_t k = 0; !rank && k < 4 * NOTICE_SLOTS; k++) {
		weir_watch_start(&watch);
		if (weir_watch_wait(&watch, PATIENT) || watch.last_tag != k)
			return __LINE__;
	}
	return weir_window_unlock_all(win, PATIENT) || weir_window_free(win, PATIENT) ? __LINE__
										      : 0;
}

TEST(test_few_notices)
{
	team_of_one_node(2, few_notices);
	team_of(2, few_notices);
}

TEST(test_windows_without_rings)
{
	team_of_one_node(2, windows_without_rings);
	team_of(2, windows_without_rings);
}

TEST(test_notices_in_a_barrier)
{
	team_of_one_node(2, notices_in_a_barrier);
	team_of(2, notices_in_a_barrier);
}

TEST(test_notices_behind)
{
	team_of_one_node(2, notices_behind);
	team_of(2, notices_behind);
}

TEST(test_notice_order)
{
	team_of_one_node(2, notice_in_order);
	team_of(2, notice_in_order);
}
