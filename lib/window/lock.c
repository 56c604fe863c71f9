/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of members' parts. Between programs of a host that map each other's parts, a free lock is
 * taken by words that they share, without an engine; the first time by the engine, which learns
 * the program's number there, so that it can release what a program that has died held.
 */
#include "handle.h"

#include "client/session.h"
#include "remote/window.h"

int
window_lock_take(struct weir_window *win, struct window_member *m, int kind, int timeout_ms)
{
	int rc;

	if (!m->words)
		return weir_remote_lock(m->locks, kind, timeout_ms);
	if (weir_remote_knows_words(m->locks) && window_words_take(win, m, kind))
		return 0;
	rc = weir_remote_lock_as(m->locks, kind, win->own, timeout_ms);
	if (rc != 1)
		return rc;
	m->by_words = kind;
	return 0;
}

void
window_lock_leave(const struct weir_window *win, struct window_member *m)
{
	if (weir_state(win->w) == WEIR_FORKED) /* nothing is mapped */
		return;
	if (m->by_words)
		window_words_leave(win, m);
	else
		weir_remote_unlock_all(m->locks);
}
