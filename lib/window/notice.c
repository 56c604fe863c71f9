/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices, and watches for them. They come to the object of the thread that made the window; other
 * threads look there in its place.
 */
#include "notice.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"

#include <errno.h>
#include <string.h>

#define NOTICES_KEPT 1024u /* that wait and use no window of their connections */
#define LOOKS_CHECK 64u	   /* looks at notices until one at the members that should send them */

static bool
came(struct weir_notice_sink *s, const struct weir_remote_notice *n)
{
	struct weir_window *win =
	    (struct weir_window *)(void *)((char *)s - offsetof(struct weir_window, sink));
	struct match_notice *added = match_add(&win->match, n);

	/* so that a member that waits for post or complete gets them beside notices of programs */
	if (added && win->match.count <= NOTICES_KEPT)
		added->returned = weir_notice_return(n, false);
	return added;
}

void
window_notices_begin(struct weir_window *win)
{
	match_init(&win->match);
	win->sink.came = came;
	weir_export_set_sink(win->x, &win->sink);
}

void
window_notices_end(struct weir_window *win)
{
	if (!win->sink.came)
		return;
	weir_export_set_sink(win->x, NULL);
	match_fini(&win->match);
	win->sink.came = NULL;
}

int
window_notice_send(struct weir_window *win, struct window_member *m, enum match_kind kind,
		   uint32_t tag, uint64_t length, unsigned flags)
{
	int rc = 0;

	/* a handle's notices are behind its own operations alone */
	if (m->locks != m->memory)
		rc = weir_remote_flush(m->memory, -1);
	if (!rc && m->updates != m->memory)
		rc = weir_remote_flush(m->updates, -1);
	if (!rc)
		rc = weir_remote_notify_with(m->locks, tag, weir_group_rank(win->g),
					     match_bytes(kind, length), flags);
	return window_note(win, m->rank, rc);
}

int
window_notice_send_by(struct weir_window *win, struct window_member *m, enum match_kind kind,
		      uint32_t tag, uint64_t end)
{
	struct weir_thread *t;
	struct weir_wait wait;
	int rc;

	t = weir_thread_own(win->w, &rc);
	if (!t)
		return rc;
	weir_wait_init(&wait, t, weir_time_left(end));
	wait.nap_always = true;
	while ((rc = window_notice_send(win, m, kind, tag, 0, WEIR_NOWAIT)) == -EAGAIN) {
		weir_lock(t);
		weir_progress(t, NULL);
		weir_unlock(t);
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc;
}

int
window_notice_take(struct weir_window *win, enum match_kind kind, uint32_t source, uint32_t tag,
		   struct weir_remote_notice *n)
{
	struct weir_thread *t = weir_export_thread(win->x);
	struct match_notice *found;
	int rc = 0;

	weir_lock(t);
	found = match_find(&win->match, kind, source, tag);
	if (!found && weir_state(win->w) == WEIR_UP) {
		weir_progress(t, NULL);
		found = match_find(&win->match, kind, source, tag);
	}
	if (found && (found->returned || weir_notice_return(&found->is, win->match.count == 1))) {
		*n = found->is;
		match_remove(&win->match, found);
		rc = 1;
	}
	weir_progress_leave(t);
	weir_unlock(t);
	return rc || weir_state(win->w) == WEIR_UP ? rc : weir_gone(win->w);
}

int
weir_window_notify(struct weir_window *win, uint32_t rank, uint32_t tag, unsigned flags)
{
	struct window_member *m;
	int rc;

	if (!win || tag == WEIR_TAG_ANY)
		return weir_fail(-EINVAL, "no window, or a tag that stands for any; see "
					  "weir/window.h");
	rc = window_target_slow(win, rank, &m);
	if (rc || !m)
		return rc;
	if (!(win->args.rights & WEIR_MAY_NOTIFY))
		return weir_fail(-EACCES, "the window was made without WEIR_MAY_NOTIFY");
	return window_notice_send(win, m, MATCH_TAG, tag, 0, flags);
}

/* ---- watches ---- */

static struct weir_window *
window_of(const struct weir_watch *watch)
{
	return (struct weir_window *)(uintptr_t)watch->internal[0];
}

void
weir_watch_init(struct weir_watch *watch, struct weir_window *win, uint32_t source, uint32_t tag,
		uint32_t count)
{
	*watch = (struct weir_watch){.source = source, .tag = tag, .count = count};
	watch->internal[0] = (uintptr_t)win;
}

void
weir_watch_start(struct weir_watch *watch)
{
	watch->found = 0;
	watch->bytes = 0;
}

int
weir_watch_test(struct weir_watch *watch)
{
	struct weir_window *win = window_of(watch);
	struct weir_remote_notice n;
	int rc = 1;

	while (watch->found < watch->count && rc == 1) {
		rc = window_notice_take(win, MATCH_TAG, watch->source, watch->tag, &n);
		if (rc != 1)
			break;
		watch->found++;
		watch->last_source = n.source;
		watch->last_tag = n.tag;
		watch->bytes += n.bytes;
	}
	return rc;
}

/* Whether the member that it waits for lives: 0, or how it has ended. */
static int
check_source(const struct weir_watch *watch)
{
	struct weir_window *win = window_of(watch);
	struct window_member *m;

	if (watch->source == WEIR_RANK_ANY || window_member_open(win, watch->source, &m))
		return 0; /* it, or what lacks here, is told when it is accessed */
	return window_note(win, watch->source, weir_remote_check(m->locks));
}

/* Index of one that is done; -EAGAIN; or an error. `check`: also the members that should send. */
static int
look(struct weir_watch *const *watches, unsigned n, bool check)
{
	int rc;

	for (unsigned i = 0; i < n; i++) {
		rc = weir_watch_test(watches[i]);
		if (rc)
			return rc < 0 ? rc : (int)i;
	}
	for (unsigned i = 0; check && i < n; i++) {
		rc = check_source(watches[i]);
		if (rc) /* it may have sent before it ended */
			return weir_watch_test(watches[i]) == 1 ? (int)i : rc;
	}
	return -EAGAIN;
}

int
weir_watch_wait_any(struct weir_watch *const *watches, unsigned n, int timeout_ms)
{
	struct weir_wait wait;
	uint32_t looks = 0;
	int rc, end = 0;

	if (!n || !watches)
		return weir_fail(-EINVAL, "no watches");
	weir_wait_init(&wait, weir_export_thread(window_of(watches[0])->x), timeout_ms);
	/* others may be of windows of other threads; that a member has ended, no doorbell tells
	 * another thread than that of the window */
	wait.nap_always = n > 1 || weir_thread_get(window_of(watches[0])->w) != wait.worker;
	while ((rc = look(watches, n, wait.armed || ++looks % LOOKS_CHECK == 0)) == -EAGAIN) {
		end = weir_wait_next(&wait);
		if (end)
			break;
	}
	weir_wait_end(&wait);
	return end ? end : rc;
}

int
weir_watch_wait(struct weir_watch *watch, int timeout_ms)
{
	int rc;

	if (!watch)
		return weir_fail(-EINVAL, "no watch");
	rc = weir_watch_wait_any(&watch, 1, timeout_ms);
	return rc > 0 ? 0 : rc;
}

/* ---- signals ---- */

int
weir_window_signal_wait(struct weir_window *win, uint64_t disp, enum weir_compare compare,
			uint64_t value, int timeout_ms, uint64_t *seen)
{
	uint64_t at;

	if (!win)
		return weir_fail(-EINVAL, "no window");
	if (win->args.kind == WEIR_WINDOW_SHARED)
		return weir_fail(-EINVAL, "shared windows have no signals: members load and store");
	if (win->args.kind == WEIR_WINDOW_DYNAMIC)
		return weir_signal_wait(win->x, disp, compare, value, timeout_ms, seen);
	if (__builtin_mul_overflow(disp, win->args.disp_unit, &at) || at > win->args.bytes ||
	    win->args.bytes - at < sizeof(uint64_t))
		return weir_fail(-ERANGE, "the word is not within the part of %llu bytes",
				 (unsigned long long)win->args.bytes);
	return weir_signal_wait(win->x, at, compare, value, timeout_ms, seen);
}
