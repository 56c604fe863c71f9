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
#include "group/board.h"
#include "ipc/apply.h"
#include "ipc/slot.h"

#include <errno.h>
#include <string.h>

#define RING_PUT 4096u	/* bytes at most that are stored while other threads' notices wait */
#define LOOKS_CHECK 64u /* looks at notices until one at the members that should send them */

/* ---- rings ---- */

#define BYTES_BITS 48u

static uint64_t
lap_of(uint64_t number)
{
	return number / NOTICE_SLOTS % UINT16_MAX + 1;
}

/* Sends by the ring, behind bytes that it stores; `at` NULL: none. False: there is no room, or
 * others went by the engine and wait, and nothing was done. */
static bool
send_by_ring(struct weir_window *win, struct window_member *m, uint32_t tag, uint8_t *at,
	     const void *bytes, uint64_t length)
{
	struct notice_ring *r = m->ring;
	struct notice_slot *slot;
	bool sent;

	pthread_mutex_lock(&m->sending);
	/* the line is the other member's: it is read only when it has news */
	if (m->ring_sent - m->ring_taken >= NOTICE_SLOTS || m->engine_sent != m->engine_taken) {
		/* pairs with the releases in free_slots() and let_ring() */
		m->ring_taken = atomic_load_explicit(&r->taken, memory_order_acquire);
		m->engine_taken = atomic_load_explicit(&r->by_engine, memory_order_acquire);
	}
	sent = m->ring_sent - m->ring_taken < NOTICE_SLOTS && m->engine_sent == m->engine_taken;
	if (sent) {
		slot = &r->slot[m->ring_sent % NOTICE_SLOTS];
		if (at) {
			/* it comes while the stores wait for their lines */
			weir_ring_prefetch((const void *)slot);
			weir_store_whole(at, bytes, length);
		}
		atomic_store_explicit(&slot->tag, tag, memory_order_relaxed);
		/* pairs with the acquire in next_slot(): what the notice is behind */
		atomic_store_explicit(&slot->lap_bytes, lap_of(m->ring_sent) << BYTES_BITS | length,
				      memory_order_seq_cst);
		m->ring_sent++;
	}
	pthread_mutex_unlock(&m->sending);
	if (sent)
		board_wake(win->board, m->on_host);
	return sent;
}

void
window_notice_by_engine(struct window_member *m, bool sent)
{
	pthread_mutex_lock(&m->sending);
	m->engine_sent += sent ? 1 : UINT64_MAX;
	pthread_mutex_unlock(&m->sending);
}

/* Place of a member of this host; local_count: it is of another one, or there is none. */
static uint32_t
place_of(const struct weir_window *win, uint32_t rank)
{
	struct weir_member m = {0};

	if (rank < weir_group_size(win->g))
		weir_group_member(win->g, rank, &m);
	return m.local ? m.on_host : win->board->local_count;
}

/* The places of a source, which may be any, as [*first, *end). */
static void
places_of(const struct weir_window *win, uint32_t source, uint32_t *first, uint32_t *end)
{
	bool any = source == WEIR_RANK_ANY;

	*first = any ? 0 : place_of(win, source);
	*end = any || *first == win->board->local_count ? win->board->local_count : *first + 1;
}

static struct notice_ring *
ring_from(const struct weir_window *win, uint32_t place)
{
	return &board_own_rings(win->board, win->number)[place];
}

/* The next notice in the ring of the member with this place, slot `number`. False: there is none.
 */
static inline bool
next_slot(const struct weir_window *win, uint32_t place, uint64_t number,
	  struct weir_remote_notice *n)
{
	struct notice_slot *slot = &ring_from(win, place)->slot[number % NOTICE_SLOTS];
	/* pairs with the release in send_by_ring() */
	uint64_t word = atomic_load_explicit(&slot->lap_bytes, memory_order_acquire);

	if (word >> BYTES_BITS != lap_of(number))
		return false;
	*n = (struct weir_remote_notice){
	    .source = win->board->local[place],
	    .tag = (uint32_t)atomic_load_explicit(&slot->tag, memory_order_relaxed),
	    .bytes = word & ((UINT64_C(1) << BYTES_BITS) - 1)};
	return true;
}

/* The first n slots of the ring that are not free are, and those behind them that were taken out of
 * turn. The object of the window's thread is locked. */
static inline void
free_slots(struct weir_window *win, uint32_t place, uint32_t n)
{
	struct notice_source *from = &win->sources[place];
	uint64_t taken = atomic_load_explicit(&from->taken, memory_order_relaxed) + n;

	for (from->gone = n < NOTICE_SLOTS ? from->gone >> n : 0; from->gone & 1; from->gone >>= 1)
		taken++;
	atomic_store_explicit(&from->taken, taken, memory_order_relaxed);
	atomic_store_explicit(&ring_from(win, place)->taken, taken, memory_order_release);
}

/* Takes notices of the ring of the member with this place, until `most` of it wait. The object of
 * the window's thread is locked. */
static void
take_slots(struct weir_window *win, uint32_t place, uint32_t most)
{
	struct notice_source *from = &win->sources[place];
	uint64_t first = atomic_load_explicit(&from->taken, memory_order_relaxed);
	struct weir_remote_notice n;
	struct match_notice *added;
	uint32_t i = 0;

	for (; i < NOTICE_SLOTS && from->kept < most && next_slot(win, place, first + i, &n); i++) {
		if (from->gone >> i & 1)
			continue;
		n.bytes = match_bytes(MATCH_TAG, n.bytes);
		added = match_add(&win->match, &n);
		if (!added)
			break;
		added->returned = true; /* it has none */
		added->place = place + 1;
		from->kept++;
	}
	if (i)
		free_slots(win, place, i);
}

/* Takes the first notice with the tag out of the ring of the member with this place, also behind
 * others. The object of the window's thread is locked. */
static bool
take_slot(struct weir_window *win, uint32_t place, uint32_t tag, struct weir_remote_notice *n)
{
	struct notice_source *from = &win->sources[place];
	uint64_t first = atomic_load_explicit(&from->taken, memory_order_relaxed);

	static_assert(NOTICE_SLOTS == 8 * sizeof(from->gone), "a bit for each");
	for (uint32_t i = 0; i < NOTICE_SLOTS && next_slot(win, place, first + i, n); i++) {
		if (from->gone >> i & 1 || (tag != WEIR_TAG_ANY && n->tag != tag))
			continue;
		if (i)
			from->gone |= UINT64_C(1) << i;
		else
			free_slots(win, place, 1);
		return true;
	}
	return false;
}

/* Takes the oldest notice of the members at these places that is in a ring still. None that is kept
 * matches. The object of the window's thread is locked. */
static bool
take_oldest(struct weir_window *win, uint32_t first, uint32_t end, uint32_t tag,
	    struct weir_remote_notice *n)
{
	for (uint32_t i = first; i < end; i++)
		if (take_slot(win, i, tag, n))
			return true;
	return false;
}

/* A notice that went by the engine no longer keeps others from the ring. */
static void
let_ring(struct weir_window *win, uint32_t place)
{
	struct notice_ring *r = ring_from(win, place);

	atomic_store_explicit(&r->by_engine,
			      atomic_load_explicit(&r->by_engine, memory_order_relaxed) + 1,
			      memory_order_release);
}

/* ---- those that the engine brings ---- */

static bool
came(struct weir_notice_sink *s, const struct weir_remote_notice *n)
{
	struct weir_window *win =
	    (struct weir_window *)(void *)((char *)s - offsetof(struct weir_window, sink));
	uint32_t place =
	    win->sources && match_kind_of(n) == MATCH_TAG ? place_of(win, n->source) : UINT32_MAX;
	bool local = win->sources && place < win->board->local_count;
	struct match_notice *added;

	if (local) /* those before it, at most the ring's: from now on the engine's window counts */
		take_slots(win, place, UINT32_MAX);
	added = match_add(&win->match, n);
	/* so that a member that waits for post or complete gets them beside notices of programs */
	if (added && win->match.count <= win->args.notices)
		added->returned = weir_notice_return(n, false);
	if (!added || !local)
		return added;
	added->place = place + 1;
	added->holds_ring = ++win->sources[place].kept > win->args.notices;
	if (!added->holds_ring)
		let_ring(win, place);
	return true;
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
	bool ring = m->ring && kind == MATCH_TAG && weir_state(win->w) != WEIR_FORKED;
	bool complete = ring && weir_direct_flush(&m->direct);
	int wait_ms = flags & WEIR_NOWAIT ? 0 : -1, rc = 0;

	/* a handle's notices are behind its own operations alone, and the ring is behind none */
	if (m->locks != m->memory || (ring && !complete && !(flags & WEIR_NOWAIT))) {
		rc = weir_remote_flush(m->memory, wait_ms);
		complete = !rc;
	}
	if (!rc && m->updates != m->memory)
		rc = weir_remote_flush(m->updates, wait_ms);
	if (!rc && ring && complete && send_by_ring(win, m, tag, NULL, NULL, length))
		return 0;
	if (rc)
		return window_note(win, m->rank, rc);
	if (ring)
		window_notice_by_engine(m, true);
	rc = weir_remote_notify_with(m->locks, tag, weir_group_rank(win->g),
				     match_bytes(kind, length), flags);
	if (rc && ring)
		window_notice_by_engine(m, false);
	return window_note(win, m->rank, rc);
}

int
window_notice_put(struct weir_window *win, struct window_member *m, uint32_t tag, uint8_t *at,
		  const void *bytes, uint64_t length)
{
	if (length <= RING_PUT && weir_direct_flush(&m->direct) &&
	    send_by_ring(win, m, tag, at, bytes, length))
		return 0;
	weir_store_whole(at, bytes, length);
	return window_notice_send(win, m, MATCH_TAG, tag, length, 0);
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
	uint32_t first, end;
	int rc = 0;

	weir_lock(t);
	found = match_find(&win->match, kind, source, tag);
	if (!found && win->sources && kind == MATCH_TAG && weir_state(win->w) == WEIR_UP) {
		bool taken;

		places_of(win, source, &first, &end);
		taken = source != WEIR_RANK_ANY && take_oldest(win, first, end, tag, n);
		if (!taken) {
			for (uint32_t i = first; i < end; i++)
				take_slots(win, i, win->args.notices);
			found = match_find(&win->match, kind, source, tag);
		}
		/* the notices behind those for which there is no room */
		if (taken || (!found && take_oldest(win, first, end, tag, n))) {
			weir_unlock(t);
			return 1;
		}
	}
	if (!found && weir_state(win->w) == WEIR_UP) {
		weir_progress(t, NULL);
		found = match_find(&win->match, kind, source, tag);
	}
	if (found && (found->returned || weir_notice_return(&found->is, win->match.count == 1))) {
		*n = found->is;
		if (found->place) {
			win->sources[found->place - 1].kept--;
			if (found->holds_ring)
				let_ring(win, found->place - 1);
		}
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
	m = window_member_ready(win, rank);
	rc = m ? 0 : window_target_slow(win, rank, &m);
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

/* Index of one that is done; -EAGAIN; or an error. `check`: also the members that should send. */
static int
look(struct weir_watch *const *watches, unsigned n, bool check, bool *naps)
{
	struct window_member *m;
	int rc;

	for (unsigned i = 0; i < n; i++) {
		rc = weir_watch_test(watches[i]);
		if (rc)
			return rc < 0 ? rc : (int)i;
	}
	for (unsigned i = 0; check && i < n; i++) {
		struct weir_window *win = window_of(watches[i]);
		uint32_t source = watches[i]->source, rank = source;

		rc = group_look(win->g, &rank, naps); /* members pass on what they hear of others */
		if (source != WEIR_RANK_ANY && !window_member_open(win, source, &m)) {
			rank = source;
			rc = weir_remote_check(m->locks);
		}
		window_note(win, rank, rc);
		for (unsigned k = 0; rc && k < n; k++) /* it may have sent before it ended */
			if (weir_watch_test(watches[k]) == 1)
				return (int)k;
		if (rc)
			return rc;
	}
	return -EAGAIN;
}

/* Whether all that is awaited comes by rings of one board, and so rings its bell. */
static bool
by_rings_alone(struct weir_watch *const *watches, unsigned n)
{
	const struct board *b = window_of(watches[0])->board;

	for (unsigned i = 0; i < n; i++) {
		const struct weir_window *win = window_of(watches[i]);
		bool local = b->local_count == weir_group_size(win->g) ||
			     place_of(win, watches[i]->source) < win->board->local_count;

		if (!win->sources || win->board != b || !local)
			return false;
	}
	return true;
}

/* Whether a ring of a member from which a notice is awaited has one. Any thread. */
static bool
rings_have(struct weir_watch *const *watches, unsigned n)
{
	struct weir_remote_notice notice;
	uint32_t i, end;
	uint64_t taken;

	for (unsigned k = 0; k < n; k++) {
		const struct weir_window *win = window_of(watches[k]);

		places_of(win, watches[k]->source, &i, &end);
		for (; i < end; i++) {
			taken = atomic_load_explicit(&win->sources[i].taken, memory_order_relaxed);
			if (next_slot(win, i, taken, &notice))
				return true;
		}
	}
	return false;
}

int
weir_watch_wait_any(struct weir_watch *const *watches, unsigned n, int timeout_ms)
{
	bool ring, sleeps = false;
	struct weir_window *win;
	struct weir_wait wait;
	uint32_t looks = 0;
	int rc, end = 0;

	if (!n || !watches)
		return weir_fail(-EINVAL, "no watches");
	win = window_of(watches[0]);
	ring = by_rings_alone(watches, n);
	weir_wait_init(&wait, weir_export_thread(win->x), timeout_ms);
	/* others may be of windows of other threads; that a member has ended, no doorbell tells
	 * another thread than that of the window; and none rings for a ring */
	wait.nap_always = n > 1 || win->sources || weir_thread_get(win->w) != wait.worker;
	for (;;) {
		if (ring)
			board_before_look(win->board, &wait, &sleeps);
		rc = look(watches, n, wait.armed || ++looks % LOOKS_CHECK == 0, &wait.nap_always);
		if (rc != -EAGAIN)
			break;
		end = weir_wait_next(&wait);
		if (end)
			break;
		for (uint32_t i = 1; ring && i < wait.looks && !rings_have(watches, n); i++)
			weir_pause();
	}
	if (ring)
		board_awake(win->board, &sleeps);
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

/* 0, or how a member has ended, whichever. */
static int
check_window(void *arg)
{
	struct weir_window *win = arg;
	bool naps = false; /* it naps anyway */
	uint32_t rank = 0;
	int rc = group_look(win->g, &rank, &naps);

	return window_note(win, rank, rc);
}

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
		return weir_signal_wait_with(win->x, disp, compare, value, timeout_ms, seen,
					     check_window, win);
	if (__builtin_mul_overflow(disp, win->args.disp_unit, &at) || at > win->args.bytes ||
	    win->args.bytes - at < sizeof(uint64_t))
		return weir_fail(-ERANGE, "the word is not within the part of %llu bytes",
				 (unsigned long long)win->args.bytes);
	return weir_signal_wait_with(win->x, at, compare, value, timeout_ms, seen, check_window,
				     win);
}
