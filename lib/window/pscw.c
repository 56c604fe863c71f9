/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post, start, complete, wait: epochs of members that know each other. Between members of a host
 * post and complete write a word, which start and wait read (ipc/lock_words.h). Between hosts, and
 * in windows apart, they send notices. Nothing is kept per member of the group: notices that wait
 * lie in the session, within the windows of their connections.
 */
#include "notice.h"

#include "base/vec.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"
#include "group/board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPINS 64u	/* looks at words before anything else */
#define LOOKS_CHECK 64u /* looks until one at the members that are awaited */

static int
misused(void)
{
	return weir_fail(-EINVAL, "no window, or an argument is invalid; see weir/window.h");
}

/* Whether all ranks are members, or WEIR_RANK_NULL. */
static bool
ranks_ok(const struct weir_window *win, const uint32_t *ranks, uint32_t n)
{
	if (!win || (n && !ranks))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (ranks[i] >= weir_group_size(win->g) && ranks[i] != WEIR_RANK_NULL)
			return false;
	return true;
}

/* Whether the exposure that was begun is to the same ranks. */
static bool
same_ranks(const struct weir_window *win, const uint32_t *ranks, uint32_t n)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++)
		if (ranks[i] != WEIR_RANK_NULL &&
		    (k == win->exposed_count || win->exposed[k++] != ranks[i]))
			return false;
	return k == win->exposed_count;
}

/* Keeps the ranks and opens the members, so that none is told unless all can be. */
static int
begin_exposure(struct weir_window *win, const uint32_t *ranks, uint32_t n, unsigned asserts)
{
	struct window_member *m;
	int rc = 0;

	if (VEC_RESERVE(win->exposed, win->exposed_room, n))
		return weir_fail(-ENOMEM, "no memory for %u ranks; free some", n);
	win->exposed_count = 0;
	for (uint32_t i = 0; i < n && !rc; i++) {
		if (ranks[i] == WEIR_RANK_NULL)
			continue;
		win->exposed[win->exposed_count++] = ranks[i];
		rc = window_member_open(win, ranks[i], &m);
	}
	if (rc)
		return rc;
	win->is_exposed = true;
	win->told = 0;
	win->completed = 0;
	if (++win->exposures == WEIR_TAG_ANY)
		win->exposures = 1;
	win->exposure = asserts & WEIR_NO_CHECK ? 0 : win->exposures;
	return 0;
}

/* Writes a word for a member of this host. Pairs with the loads in posted() and all_completed():
 * what this member did before. */
static void
tell(const struct weir_window *win, const struct window_member *m, _Atomic uint64_t *word,
     uint64_t number)
{
	atomic_store_explicit(word, number, memory_order_seq_cst);
	board_wake(win->board, m->on_host);
}

int
weir_window_post(struct weir_window *win, const uint32_t *ranks, uint32_t n, unsigned asserts)
{
	int rc = 0;

	if (!ranks_ok(win, ranks, n) || asserts & ~(WEIR_NO_STORE | WEIR_NO_PUT | WEIR_NO_CHECK))
		return misused();
	if (weir_state(win->w) == WEIR_FORKED)
		return weir_gone(win->w);
	if (win->is_exposed && (win->told == win->exposed_count || !same_ranks(win, ranks, n)))
		return weir_fail(-EALREADY, "the part is exposed already; see weir_window_wait()");
	if (!win->is_exposed)
		rc = begin_exposure(win, ranks, n, asserts);
	for (; !rc && win->told < win->exposed_count; win->told += !rc) {
		struct window_member *m = window_member_find(win, win->exposed[win->told]);

		if (m->words)
			tell(win, m, &m->words->member[win->own - 1].posted, win->exposures);
		else if (win->exposure)
			rc = window_notice_send(win, m, MATCH_POST, win->exposure, 0, 0);
	}
	if (rc && rc != -EINTR)
		win->is_exposed = false;
	return rc;
}

/* Whether a member has posted what was not started yet. 1, 0, or how the session has ended. */
static int
posted(struct weir_window *win, struct window_member *m)
{
	struct weir_remote_notice notice;
	uint64_t number;
	int rc;

	if (m->words) {
		/* pairs with the store in tell() */
		number = atomic_load_explicit(&m->from->posted, memory_order_seq_cst);
		if (number == m->exposure)
			return 0;
		m->exposure = number;
		return 1;
	}
	rc = window_notice_take(win, MATCH_POST, m->rank, WEIR_TAG_ANY, &notice);
	if (rc == 1)
		m->exposure = notice.tag;
	return rc;
}

/* A member has completed: it is not awaited any more. A notice of another one counts for nothing.
 */
static void
note_complete(struct weir_window *win, uint32_t rank)
{
	for (uint32_t i = win->completed; i < win->exposed_count; i++)
		if (win->exposed[i] == rank) {
			win->exposed[i] = win->exposed[win->completed];
			win->exposed[win->completed++] = rank;
			return;
		}
}

/* Whether all members to which the part is exposed have completed; as posted(). */
static int
all_completed(struct weir_window *win)
{
	struct weir_remote_notice notice;
	struct window_member *m;
	bool by_notice = false;
	int rc = 1;

	for (uint32_t i = win->completed; i < win->exposed_count; i++) {
		m = window_member_find(win, win->exposed[i]);
		by_notice |= !m->words;
		/* pairs with the store in tell() */
		if (m->words && atomic_load_explicit(&m->from->completed, memory_order_seq_cst) ==
				    win->exposures)
			note_complete(win, m->rank);
	}
	while (by_notice && rc == 1 && win->completed < win->exposed_count) {
		rc = window_notice_take(win, MATCH_COMPLETE, WEIR_RANK_ANY, win->exposure, &notice);
		if (rc == 1)
			note_complete(win, notice.source);
	}
	return rc < 0 ? rc : win->completed == win->exposed_count;
}

/* Whether what a call awaits has come: POST of `from`, or, if that is NULL, COMPLETE of all. */
static int
has_come(struct weir_window *win, struct window_member *from)
{
	return from ? posted(win, from) : all_completed(win);
}

/* 0, or how a member has ended from which something is awaited; *naps as group_look(). */
static int
check_awaited(struct weir_window *win, struct window_member *from, bool *naps)
{
	uint32_t rank;
	int rc = 0;

	group_look(win->g, &rank, naps); /* members pass on what they hear of others */
	if (from)
		return window_note(win, from->rank, weir_remote_check(from->locks));
	for (uint32_t i = win->completed; !rc && i < win->exposed_count; i++)
		rc =
		    window_note(win, win->exposed[i],
				weir_remote_check(window_member_find(win, win->exposed[i])->locks));
	return rc;
}

/* Waits for it. 0, or -errno. */
static int
await(struct weir_window *win, struct window_member *from, uint64_t end)
{
	bool words = from && from->words, notices = from && !from->words, sleeps = false;
	struct weir_wait wait;
	uint32_t looks = 0;
	int rc = 0, failed = 0;

	for (uint32_t i = win->completed; !from && i < win->exposed_count; i++) {
		bool by_words = window_member_find(win, win->exposed[i])->words;

		words |= by_words;
		notices |= !by_words;
	}
	for (uint32_t i = 0; words && i < SPINS; i++) {
		rc = has_come(win, from);
		if (rc)
			return rc < 0 ? rc : 0;
		weir_pause();
	}
	weir_wait_init(&wait, weir_export_thread(win->x), weir_time_left(end));
	/* no doorbell tells another thread than that of the window that a member has ended */
	wait.nap_always = words || weir_thread_get(win->w) != wait.worker;
	while (!failed) {
		if (words && !notices) /* else doorbells ring, and the nap is for the words */
			board_before_look(win->board, &wait, &sleeps);
		rc = has_come(win, from);
		/* a member may have ended after what it sent: then it is awaited no more */
		if (!rc && (wait.armed || ++looks % LOOKS_CHECK == 0) &&
		    check_awaited(win, from, &wait.nap_always)) {
			rc = has_come(win, from);
			failed = rc ? 0 : check_awaited(win, from, &wait.nap_always);
		}
		if (!rc && !failed)
			failed = weir_wait_next(&wait);
		for (uint32_t i = 1; words && !rc && !failed && i < wait.looks; i++) {
			weir_pause();
			rc = has_come(win, from);
		}
		if (rc)
			break;
	}
	if (words)
		board_awake(win->board, &sleeps);
	weir_wait_end(&wait);
	return rc > 0 ? 0 : rc ? rc : failed;
}

int
weir_window_start(struct weir_window *win, const uint32_t *ranks, uint32_t n, unsigned asserts,
		  int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	struct window_member *m;
	uint32_t epoch;
	int rc = 0;

	if (!ranks_ok(win, ranks, n) || asserts & ~WEIR_NO_CHECK)
		return misused();
	if (weir_state(win->w) == WEIR_FORKED)
		return weir_gone(win->w);
	epoch = atomic_load_explicit(&win->epoch, memory_order_relaxed);
	if (epoch != EPOCH_NONE && epoch != EPOCH_FENCED)
		return weir_fail(-EALREADY, "an epoch is open; end it first");
	for (uint32_t i = 0; !rc && i < n; i++) {
		if (ranks[i] == WEIR_RANK_NULL)
			continue;
		rc = window_member_open(win, ranks[i], &m);
		if (rc || m->admitted)
			continue;
		if (!(asserts & WEIR_NO_CHECK))
			rc = await(win, m, end);
		else if (m->words)
			posted(win, m); /* the program knows that it has come */
		else
			m->exposure = 0;
		m->admitted = !rc;
	}
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		m = ranks[i] == WEIR_RANK_NULL ? NULL : window_member_find(win, ranks[i]);
		if (m)
			/* pairs with the acquire in window_member_ready(): what the member did
			 * before */
			atomic_store_explicit(&m->lock, LOCK_STARTED, memory_order_release);
	}
	atomic_store_explicit(&win->epoch, EPOCH_STARTED, memory_order_relaxed);
	return 0;
}

int
weir_window_complete(struct weir_window *win, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	struct window_member *m;
	int first = 0, rc;

	if (!win)
		return misused();
	if (weir_state(win->w) == WEIR_FORKED)
		return weir_gone(win->w);
	if (atomic_load_explicit(&win->epoch, memory_order_relaxed) != EPOCH_STARTED)
		return weir_fail(-ENOLCK, "no epoch was begun by weir_window_start()");
	for (m = window_members(win); m; m = m->next_of_all) {
		if (atomic_load_explicit(&m->lock, memory_order_relaxed) != LOCK_STARTED)
			continue;
		rc = window_member_flush(win, m, false, end);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		if (!rc && m->words)
			tell(win, m, &m->words->member[win->own - 1].completed, m->exposure);
		else if (!rc)
			rc = window_notice_send_by(win, m, MATCH_COMPLETE, (uint32_t)m->exposure,
						   end);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		first = first ? first : rc;
		m->admitted = false;
		atomic_store_explicit(&m->lock, LOCK_NONE, memory_order_relaxed);
	}
	atomic_store_explicit(&win->epoch, EPOCH_NONE, memory_order_relaxed);
	return first ? first : window_refusals(win, NULL);
}

int
weir_window_wait(struct weir_window *win, int timeout_ms)
{
	int rc;

	if (!win)
		return misused();
	if (weir_state(win->w) == WEIR_FORKED)
		return weir_gone(win->w);
	if (!win->is_exposed || win->told < win->exposed_count)
		return weir_fail(-ENOLCK, "the part is not exposed; see weir_window_post()");
	rc = await(win, NULL, weir_time_end(timeout_ms));
	if (rc != -EAGAIN && rc != -EINTR)
		win->is_exposed = false;
	return rc;
}
