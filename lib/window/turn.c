/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Turns: members that map a part update it by plain loops, one at a time. Only windows with
 * WEIR_WINDOW_BY_ENGINE may do so, since nothing else updates their memory, and only if all members
 * are on one host: an engine, which updates for those of other hosts, waits for no program. A word
 * of the part has the number of the member whose turn it is. A turn is as long as a call, and ends
 * with its member: what that one has updated stays.
 */
#include "handle.h"

#include "client/wait.h"
#include "group/board.h"

#define LOOKS_CHECK 64u /* looks at the word until one at the member whose turn it is */
#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE)

bool
window_takes_turns(const struct weir_window *win)
{
	const struct window_args *a = &win->args;

	return a->flags & WEIR_WINDOW_BY_ENGINE && !(a->flags & WEIR_WINDOW_APART) &&
	       a->kind != WEIR_WINDOW_DYNAMIC && win->board->lines && win->board->hosts == 1 &&
	       (a->kind == WEIR_WINDOW_SHARED || !(RIGHTS & ~a->rights));
}

/* A thread of this program, or a member that has not ended; others do not keep a turn. */
static bool
may_have_it(struct weir_window *win, uint32_t holder)
{
	const struct board *b = win->board;

	return holder == win->own ||
	       (holder <= b->local_count && !group_has_failed(win->g, b->local[holder - 1]));
}

/* `check`: also from a member that has ended. */
static inline bool
take(struct weir_window *win, struct window_member *m, bool check)
{
	uint32_t holder = atomic_load_explicit(m->turn, memory_order_relaxed);

	if (holder && (!check || may_have_it(win, holder)))
		return false;
	/* pairs with the release in window_turn_leave() */
	return atomic_compare_exchange_strong_explicit(m->turn, &holder, win->own,
						       memory_order_acquire, memory_order_relaxed);
}

static __attribute__((noinline)) int
await(struct weir_window *win, struct window_member *m, unsigned flags)
{
	struct weir_wait wait;
	struct weir_thread *t;
	uint32_t looks = 0;
	int rc;

	t = weir_thread_own(win->w, &rc);
	if (!t)
		return rc;
	weir_wait_init(&wait, t, flags & WEIR_NOWAIT ? 0 : -1);
	wait.nap_always = true; /* nobody rings at the end of a turn */
	while (!take(win, m, flags & WEIR_NOWAIT || wait.armed || ++looks % LOOKS_CHECK == 0)) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc;
}

int
window_turn_take(struct weir_window *win, struct window_member *m, unsigned flags)
{
	return weir_likely(take(win, m, false)) ? 0 : await(win, m, flags);
}

void
window_turn_leave(const struct weir_window *win, struct window_member *m)
{
	uint32_t own = win->own;

	/* it may be another one's: of those that wait, if an operator has ended this session */
	atomic_compare_exchange_strong_explicit(m->turn, &own, 0, memory_order_release,
						memory_order_relaxed);
}
