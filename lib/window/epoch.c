/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Epochs. One thread at a time begins and ends them; operations of any thread look at the epoch's
 * kind, and turn the one that a fence has prepared into an open one.
 */
#include "handle.h"

#include "client/reason.h"
#include "client/wait.h"
#include "group/board.h"
#include "remote/window.h"

#include <errno.h>

/* Time for a data plane's answer, also where the caller does not wait: a first lock is asked for.
 */
#define ANSWER_MS 10

static uint32_t
epoch_of(struct weir_window *win)
{
	return atomic_load_explicit(&win->epoch, memory_order_relaxed);
}

static void
set_epoch(struct weir_window *win, uint32_t epoch)
{
	atomic_store_explicit(&win->epoch, epoch, memory_order_relaxed);
}

static int
misused(void)
{
	return weir_fail(-EINVAL, "no window, or an argument is invalid; see weir/window.h");
}

static int
no_epoch(void)
{
	return weir_fail(-ENOLCK, "no epoch is open; begin one by weir_window_fence(), _start(), "
				  "_lock() or _lock_all()");
}

static int
other_epoch(void)
{
	return weir_fail(-EALREADY, "an epoch is open; end it first");
}

/* ---- targets of operations ---- */

/* Within lock_all: the member's lock. */
static int
acquire(struct weir_window *win, struct window_member *m, int timeout_ms)
{
	int rc = 0;

	pthread_mutex_lock(&m->acquiring);
	if (!atomic_load_explicit(&m->lock, memory_order_relaxed)) {
		if (!win->unchecked)
			rc = window_lock_take(win, m, WEIR_LOCK_SHARED, timeout_ms);
		if (!rc || rc == -EOWNERDEAD) {
			atomic_fetch_add_explicit(&win->acquired, 1, memory_order_relaxed);
			/* pairs with the acquire in window_member_ready(): what the lock protects
			 */
			atomic_store_explicit(&m->lock, win->unchecked ? LOCK_UNCHECKED : LOCK_HELD,
					      memory_order_release);
		}
	}
	pthread_mutex_unlock(&m->acquiring);
	return window_note(win, m->rank, rc);
}

int
window_target_slow(struct weir_window *win, uint32_t rank, struct window_member **m)
{
	uint32_t fenced = EPOCH_FENCED, epoch = epoch_of(win);
	int rc;

	*m = NULL;
	if (epoch == EPOCH_NONE)
		return no_epoch();
	if (rank == WEIR_RANK_NULL)
		return 0;
	if (rank >= weir_group_size(win->g))
		return weir_fail(-EINVAL, "rank %u of %u members", rank, weir_group_size(win->g));
	if (epoch == EPOCH_LOCKS || epoch == EPOCH_STARTED) {
		*m = window_member_find(win, rank);
		if (*m && atomic_load_explicit(&(*m)->lock, memory_order_acquire))
			return 0;
		return weir_fail(-ENOLCK,
				 "member %u is neither locked nor started; see "
				 "weir_window_lock() and _start()",
				 rank);
	}
	if (epoch == EPOCH_FENCED)
		atomic_compare_exchange_strong_explicit(&win->epoch, &fenced, EPOCH_FENCE,
							memory_order_relaxed, memory_order_relaxed);
	rc = window_member_open(win, rank, m);
	if (!rc && epoch == EPOCH_ALL && !atomic_load_explicit(&(*m)->lock, memory_order_acquire))
		rc = acquire(win, *m, win->all_ms);
	return rc;
}

int
window_addressed(struct weir_window *win, struct window_member *m)
{
	_Atomic(struct window_member *) *at = &win->addressed;
	struct window_member *next;

	pthread_mutex_lock(&win->lock);
	if (!m->addressed) {
		while ((next = atomic_load_explicit(at, memory_order_relaxed)) &&
		       next->rank < m->rank)
			at = &next->next_addressed;
		atomic_store_explicit(&m->next_addressed, next, memory_order_relaxed);
		/* pairs with the acquire in addressed_behind() */
		atomic_store_explicit(at, m, memory_order_release);
		m->addressed = true;
	}
	pthread_mutex_unlock(&win->lock);
	return epoch_of(win) == EPOCH_ALL ? acquire(win, m, win->all_ms) : 0;
}

/* ---- fence ---- */

int
weir_window_fence(struct weir_window *win, unsigned asserts, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	uint32_t epoch;
	int rc;

	if (!win || asserts & ~(WEIR_NO_STORE | WEIR_NO_PUT | WEIR_NO_PRECEDE | WEIR_NO_SUCCEED))
		return misused();
	epoch = epoch_of(win);
	if (epoch != EPOCH_NONE && epoch != EPOCH_FENCED && epoch != EPOCH_FENCE)
		return other_epoch();
	if (!(asserts & WEIR_NO_PRECEDE)) {
		rc = window_members_flush(win, false, end);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		rc = rc ? rc : window_refusals(win, NULL);
		win->fence_rc = win->fence_rc ? win->fence_rc : rc;
	}
	if (win->board->lines && !(win->args.flags & WEIR_WINDOW_APART))
		rc = board_meet(win->board, end);
	else
		rc = weir_group_barrier(win->g, weir_time_left(end));
	if (rc && group_is_calling(win->g))
		return rc;
	set_epoch(win, rc || asserts & WEIR_NO_SUCCEED ? EPOCH_NONE : EPOCH_FENCED);
	rc = rc ? rc : win->fence_rc;
	win->fence_rc = 0;
	return rc;
}

/* ---- locks ---- */

/* 0, or why no epoch of locks can begin. */
static int
may_lock(const struct weir_window *win, unsigned asserts)
{
	if (!win || asserts & ~WEIR_NO_CHECK)
		return misused();
	if (win->args.flags & WEIR_WINDOW_NO_LOCKS)
		return weir_fail(-EINVAL, "the window was made with WEIR_WINDOW_NO_LOCKS");
	return 0;
}

/* By words, as before: 100 instructions less than what the first call checks. False: not so. */
static inline bool
lock_again(struct weir_window *win, uint32_t rank, int kind)
{
	struct window_member *m = window_member_find(win, rank);
	uint32_t epoch = epoch_of(win);

	if (!m || !m->words || !weir_words_ready(m->known) ||
	    atomic_load_explicit(&m->lock, memory_order_relaxed) ||
	    (epoch != EPOCH_NONE && epoch != EPOCH_FENCED && epoch != EPOCH_LOCKS) ||
	    !window_words_take(win, m, kind))
		return false;
	atomic_store_explicit(&m->lock, LOCK_HELD, memory_order_release);
	win->locks++;
	set_epoch(win, EPOCH_LOCKS);
	return true;
}

/* A lock that was taken so, if all operations were loads and stores. False: not so. */
static inline bool
unlock_words(struct weir_window *win, uint32_t rank)
{
	struct window_member *m = window_member_find(win, rank);

	if (!m || epoch_of(win) != EPOCH_LOCKS || !m->by_words ||
	    atomic_load_explicit(&m->lock, memory_order_relaxed) != LOCK_HELD ||
	    !window_member_flush_direct(m))
		return false;
	window_words_leave(win, m);
	atomic_store_explicit(&m->lock, LOCK_NONE, memory_order_relaxed);
	if (!--win->locks && !win->null_locks)
		set_epoch(win, EPOCH_NONE);
	return true;
}

int
weir_window_lock(struct weir_window *win, uint32_t rank, int kind, unsigned asserts, int timeout_ms)
{
	struct window_member *m;
	uint32_t epoch;
	int rc;

	if (weir_likely(win && !asserts &&
			(kind == WEIR_LOCK_SHARED || kind == WEIR_LOCK_EXCLUSIVE) &&
			lock_again(win, rank, kind)))
		return 0;
	rc = may_lock(win, asserts);
	if (rc)
		return rc;
	if (kind != WEIR_LOCK_SHARED && kind != WEIR_LOCK_EXCLUSIVE)
		return misused();
	epoch = epoch_of(win);
	if (epoch != EPOCH_NONE && epoch != EPOCH_FENCED && epoch != EPOCH_LOCKS)
		return other_epoch();
	if (rank != WEIR_RANK_NULL) {
		rc = window_member_open(win, rank, &m);
		if (rc)
			return rc;
		if (atomic_load_explicit(&m->lock, memory_order_relaxed))
			return weir_fail(-EALREADY, "member %u is locked already", rank);
		if (!(asserts & WEIR_NO_CHECK))
			rc = window_lock_take(win, m, kind, timeout_ms);
		if (rc && rc != -EOWNERDEAD)
			return window_note(win, rank, rc);
		atomic_store_explicit(&m->lock,
				      asserts & WEIR_NO_CHECK ? LOCK_UNCHECKED : LOCK_HELD,
				      memory_order_release);
	}
	win->locks += rank != WEIR_RANK_NULL;
	win->null_locks += rank == WEIR_RANK_NULL;
	set_epoch(win, EPOCH_LOCKS);
	return rc;
}

/* Completes the operations to a member and releases its lock. -EAGAIN, -EINTR: it is held. */
static int
release(struct weir_window *win, struct window_member *m, uint64_t end)
{
	int rc = window_member_flush(win, m, false, end);

	if (rc == -EAGAIN || rc == -EINTR)
		return rc;
	if (atomic_load_explicit(&m->lock, memory_order_relaxed) == LOCK_HELD)
		window_lock_leave(win, m);
	atomic_store_explicit(&m->lock, LOCK_NONE, memory_order_relaxed);
	return rc;
}

int
weir_window_unlock(struct weir_window *win, uint32_t rank, int timeout_ms)
{
	struct window_member *m = NULL;
	int rc = 0;

	if (weir_likely(win && unlock_words(win, rank)))
		return 0;
	if (!win || (rank != WEIR_RANK_NULL && rank >= weir_group_size(win->g)))
		return misused();
	if (epoch_of(win) != EPOCH_LOCKS)
		return no_epoch();
	if (rank == WEIR_RANK_NULL && !win->null_locks)
		return weir_fail(-ENOLCK, "WEIR_RANK_NULL is not locked");
	if (rank != WEIR_RANK_NULL) {
		m = window_member_find(win, rank);
		if (!m || !atomic_load_explicit(&m->lock, memory_order_relaxed))
			return weir_fail(-ENOLCK, "member %u is not locked", rank);
		rc = release(win, m, weir_time_end(timeout_ms));
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		rc = rc ? rc : window_refusals(win, m);
	}
	win->locks -= m != NULL;
	win->null_locks -= !m;
	if (!win->locks && !win->null_locks)
		set_epoch(win, EPOCH_NONE);
	return rc;
}

/* Whether it says that a member's part has ended: operations there fail by themselves. */
static bool
has_ended(int rc)
{
	return rc == -ECONNRESET || rc == -EHOSTDOWN || rc == -ESTALE;
}

/* Parts that the program may load and store without asking for their address: its own and, since
 * all lie in one memory, those of a shared window. 0 or -errno. */
static int
address_parts(struct weir_window *win)
{
	bool shared = win->args.kind == WEIR_WINDOW_SHARED;
	uint32_t own = weir_group_rank(win->g), end = shared ? weir_group_size(win->g) : own + 1;
	struct window_member *m;
	int rc;

	if (!win->args.bytes && !shared && win->args.kind != WEIR_WINDOW_DYNAMIC)
		end = own;
	for (uint32_t i = shared ? 0 : own; i < end; i++) {
		rc = window_member_open(win, i, &m);
		if (!rc)
			window_addressed(win, m);
		else if (!has_ended(rc))
			return rc;
	}
	win->parts_addressed = true;
	return 0;
}

/* The member behind `at` in the list of those that are addressed. */
static struct window_member *
addressed_behind(_Atomic(struct window_member *) *at)
{
	/* pairs with the release in window_addressed() */
	return atomic_load_explicit(at, memory_order_acquire);
}

/*
 * Acquires the locks of parts that the program may load and store, in the order of ranks: programs
 * that do so cannot wait for each other. 0, -EOWNERDEAD, or another error: none is held.
 */
static int
lock_addressed(struct weir_window *win, int timeout_ms)
{
	uint32_t doubtful = WEIR_RANK_ANY, n = 0;
	struct window_member *m;
	uint64_t end = 0;
	int rc = 0;

	for (m = addressed_behind(&win->addressed); m; m = addressed_behind(&m->next_addressed)) {
		rc = 0;
		if (!m->words || !weir_words_ready(m->known) ||
		    !window_words_take(win, m, WEIR_LOCK_SHARED)) {
			end = end ? end : weir_time_end(timeout_ms ? timeout_ms : ANSWER_MS);
			rc = window_lock_take(win, m, WEIR_LOCK_SHARED, weir_time_left(end));
		}
		if (rc == -EOWNERDEAD)
			doubtful = m->rank;
		else if (has_ended(window_note(win, m->rank, rc)))
			continue;
		else if (rc)
			break;
		/* pairs with the acquire in window_member_ready(): what the lock protects */
		atomic_store_explicit(&m->lock, LOCK_HELD, memory_order_release);
		n++;
	}
	if (!m) {
		atomic_store_explicit(&win->acquired, n, memory_order_relaxed);
		return doubtful == WEIR_RANK_ANY
			   ? 0
			   : weir_fail(-EOWNERDEAD,
				       "the last exclusive holder of member %u's lock ended with "
				       "it; make the data of the part consistent",
				       doubtful);
	}
	for (m = addressed_behind(&win->addressed); m; m = addressed_behind(&m->next_addressed)) {
		if (atomic_load_explicit(&m->lock, memory_order_relaxed) != LOCK_HELD)
			continue;
		window_lock_leave(win, m);
		atomic_store_explicit(&m->lock, LOCK_NONE, memory_order_relaxed);
	}
	return rc;
}

int
weir_window_lock_all(struct weir_window *win, unsigned asserts, int timeout_ms)
{
	uint32_t epoch;
	int rc = may_lock(win, asserts);

	if (rc)
		return rc;
	epoch = epoch_of(win);
	if (epoch != EPOCH_NONE && epoch != EPOCH_FENCED)
		return other_epoch();
	win->unchecked = asserts & WEIR_NO_CHECK;
	win->all_ms = timeout_ms ? timeout_ms : ANSWER_MS;
	if (!win->unchecked) {
		rc = win->parts_addressed ? 0 : address_parts(win);
		rc = rc ? rc : lock_addressed(win, timeout_ms);
		if (rc && rc != -EOWNERDEAD)
			return rc;
	}
	set_epoch(win, EPOCH_ALL);
	return rc;
}

int
weir_window_unlock_all(struct weir_window *win, int timeout_ms)
{
	struct window_member *m = NULL;
	int first = 0, rc;
	uint64_t end = 0;

	if (!win)
		return misused();
	if (epoch_of(win) != EPOCH_ALL)
		return no_epoch();
	if (atomic_load_explicit(&win->acquired, memory_order_relaxed))
		m = window_members(win);
	for (; m; m = m->next_of_all) {
		if (!atomic_load_explicit(&m->lock, memory_order_relaxed))
			continue;
		if (m->by_words && window_member_flush_direct(m)) {
			window_words_leave(win, m);
			atomic_store_explicit(&m->lock, LOCK_NONE, memory_order_relaxed);
			continue;
		}
		end = end ? end : weir_time_end(timeout_ms);
		rc = release(win, m, end);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		first = first ? first : rc;
	}
	atomic_store_explicit(&win->acquired, 0, memory_order_relaxed);
	set_epoch(win, EPOCH_NONE);
	return first ? first : window_refusals(win, NULL);
}

/* ---- flush ---- */

/* Out of line, so that the calls below save no registers for it. */
static __attribute__((noinline)) int
flush_any(struct weir_window *win, uint32_t rank, bool local, int timeout_ms)
{
	struct window_member *m;
	uint32_t epoch;
	int rc;

	if (!win || (rank != WEIR_RANK_NULL && rank >= weir_group_size(win->g)))
		return misused();
	epoch = epoch_of(win);
	if (epoch == EPOCH_NONE)
		return no_epoch();
	m = rank == WEIR_RANK_NULL ? NULL : window_member_find(win, rank);
	if ((epoch == EPOCH_LOCKS || epoch == EPOCH_STARTED) && rank != WEIR_RANK_NULL &&
	    (!m || !atomic_load_explicit(&m->lock, memory_order_relaxed)))
		return weir_fail(-ENOLCK, "member %u is not locked", rank);
	rc = m ? window_member_flush(win, m, local, weir_time_end(timeout_ms)) : 0;
	return rc || !m ? rc : window_refusals(win, m);
}

static inline int
flush_one(struct weir_window *win, uint32_t rank, bool local, int timeout_ms)
{
	const struct window_member *m = win ? window_member_ready(win, rank) : NULL;

	if (weir_likely(m && window_member_flush_direct(m)))
		return 0;
	return flush_any(win, rank, local, timeout_ms);
}

static int
flush_all(struct weir_window *win, bool local, int timeout_ms)
{
	int rc;

	if (!win)
		return misused();
	if (epoch_of(win) == EPOCH_NONE)
		return no_epoch();
	rc = window_members_flush(win, local, weir_time_end(timeout_ms));
	return rc ? rc : window_refusals(win, NULL);
}

int
weir_window_flush(struct weir_window *win, uint32_t rank, int timeout_ms)
{
	return flush_one(win, rank, false, timeout_ms);
}

int
weir_window_flush_all(struct weir_window *win, int timeout_ms)
{
	return flush_all(win, false, timeout_ms);
}

int
weir_window_flush_local(struct weir_window *win, uint32_t rank, int timeout_ms)
{
	return flush_one(win, rank, true, timeout_ms);
}

int
weir_window_flush_local_all(struct weir_window *win, int timeout_ms)
{
	return flush_all(win, true, timeout_ms);
}

void
weir_window_sync(struct weir_window *win)
{
	(void)win;
	atomic_thread_fence(memory_order_seq_cst);
}
