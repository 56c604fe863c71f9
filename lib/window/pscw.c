/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post, start, complete, wait: epochs of members that know each other. Post and complete send
 * notices; start and wait take them. Nothing is kept per member of the group: notices that wait
 * lie in the session, within the windows of their connections.
 */
#include "notice.h"

#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_CHECK 64u

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
	uint32_t *kept = malloc((n ? n : 1) * sizeof(*kept)), count = 0;
	int rc = 0;

	if (!kept)
		return weir_fail(-ENOMEM, "no memory for %u ranks; free some", n);
	for (uint32_t i = 0; i < n && !rc; i++) {
		if (ranks[i] == WEIR_RANK_NULL)
			continue;
		kept[count++] = ranks[i];
		rc = window_member_open(win, ranks[i], &m);
	}
	if (rc) {
		free(kept);
		return rc;
	}
	win->exposed = kept;
	win->exposed_count = count;
	win->told = asserts & WEIR_NO_CHECK ? count : 0;
	win->completed = 0;
	if (++win->exposures == WEIR_TAG_ANY)
		win->exposures = 1;
	win->exposure = asserts & WEIR_NO_CHECK ? 0 : win->exposures;
	return 0;
}

static void
end_exposure(struct weir_window *win)
{
	free(win->exposed);
	win->exposed = NULL;
}

int
weir_window_post(struct weir_window *win, const uint32_t *ranks, uint32_t n, unsigned asserts)
{
	int rc = 0;

	if (!ranks_ok(win, ranks, n) || asserts & ~(WEIR_NO_STORE | WEIR_NO_PUT | WEIR_NO_CHECK))
		return misused();
	if (win->exposed && (win->told == win->exposed_count || !same_ranks(win, ranks, n)))
		return weir_fail(-EALREADY, "the part is exposed already; see weir_window_wait()");
	if (!win->exposed)
		rc = begin_exposure(win, ranks, n, asserts);
	for (; !rc && win->told < win->exposed_count; win->told += !rc) {
		struct window_member *m = window_member_find(win, win->exposed[win->told]);

		rc = window_notice_send(win, m, MATCH_POST, win->exposure, 0, 0);
	}
	if (rc && rc != -EINTR)
		end_exposure(win);
	return rc;
}

/* Waits for a notice of the kind from `rank`, WEIR_RANK_ANY: from any member, while those of n
 * ranks live. 0 and *notice, or -errno. */
static int
await(struct weir_window *win, enum match_kind kind, uint32_t rank, uint32_t tag,
      const uint32_t *ranks, uint32_t n, uint64_t end, struct weir_remote_notice *notice)
{
	struct window_member *m;
	struct weir_wait wait;
	uint32_t looks = 0;
	int rc, failed = 0;

	weir_wait_init(&wait, weir_export_thread(win->x), weir_time_left(end));
	/* no doorbell tells another thread than that of the window that a member has ended */
	wait.nap_always = weir_thread_get(win->w) != wait.worker;
	while (!(rc = window_notice_take(win, kind, rank, tag, notice)) && !failed) {
		if (wait.armed || ++looks % LOOKS_CHECK == 0)
			for (uint32_t i = 0; !failed && i < n; i++) {
				m = window_member_find(win, ranks[i]);
				failed =
				    window_note(win, ranks[i], m ? weir_remote_check(m->locks) : 0);
			}
		/* it may have sent before it ended: one more look */
		if (!failed)
			failed = weir_wait_next(&wait);
	}
	weir_wait_end(&wait);
	return rc > 0 ? 0 : rc ? rc : failed;
}

int
weir_window_start(struct weir_window *win, const uint32_t *ranks, uint32_t n, unsigned asserts,
		  int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	struct weir_remote_notice notice;
	struct window_member *m;
	uint32_t epoch;
	int rc = 0;

	if (!ranks_ok(win, ranks, n) || asserts & ~WEIR_NO_CHECK)
		return misused();
	epoch = atomic_load_explicit(&win->epoch, memory_order_relaxed);
	if (epoch != EPOCH_NONE && epoch != EPOCH_FENCED)
		return weir_fail(-EALREADY, "an epoch is open; end it first");
	for (uint32_t i = 0; !rc && i < n; i++) {
		if (ranks[i] == WEIR_RANK_NULL)
			continue;
		rc = window_member_open(win, ranks[i], &m);
		if (rc || m->admitted)
			continue;
		notice.tag = 0;
		if (!(asserts & WEIR_NO_CHECK))
			rc = await(win, MATCH_POST, ranks[i], WEIR_TAG_ANY, &ranks[i], 1, end,
				   &notice);
		m->exposure = notice.tag;
		m->admitted = !rc;
	}
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		m = ranks[i] == WEIR_RANK_NULL ? NULL : window_member_find(win, ranks[i]);
		if (m)
			/* pairs with the acquire in target(): what the member did before */
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
	if (atomic_load_explicit(&win->epoch, memory_order_relaxed) != EPOCH_STARTED)
		return weir_fail(-ENOLCK, "no epoch was begun by weir_window_start()");
	for (m = window_members(win); m; m = m->next_of_all) {
		if (atomic_load_explicit(&m->lock, memory_order_relaxed) != LOCK_STARTED)
			continue;
		rc = window_member_flush(win, m, false, end);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		if (!rc)
			rc = window_notice_send_by(win, m, MATCH_COMPLETE, m->exposure, end);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		first = first ? first : rc;
		m->admitted = false;
		atomic_store_explicit(&m->lock, LOCK_NONE, memory_order_relaxed);
	}
	atomic_store_explicit(&win->epoch, EPOCH_NONE, memory_order_relaxed);
	return first ? first : window_refusals(win, NULL);
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

int
weir_window_wait(struct weir_window *win, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	struct weir_remote_notice notice;
	int rc = 0;

	if (!win)
		return misused();
	if (!win->exposed || win->told < win->exposed_count)
		return weir_fail(-ENOLCK, "the part is not exposed; see weir_window_post()");
	while (!rc && win->completed < win->exposed_count) {
		rc = await(win, MATCH_COMPLETE, WEIR_RANK_ANY, win->exposure,
			   win->exposed + win->completed, win->exposed_count - win->completed, end,
			   &notice);
		if (!rc)
			note_complete(win, notice.source);
	}
	if (rc != -EAGAIN && rc != -EINTR)
		end_exposure(win);
	return rc;
}
