/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection of a thread to the memory of a handle. It is made with the thread's first
 * operation. Where a limit leaves no room for another one, the thread closes those that it has not
 * used for longest and that are idle; their next operation makes them again. All operations of a
 * closed connection are complete, so none is lost, and none is begun twice.
 *
 * Where the program has no connection left and the thread has none to give, it closes one of
 * another thread. That thread may be inside a call with the connection that it has used last, so
 * this one stays; of others it holds no pointer outside the lock of the worker.
 */
#include "handle.h"
#include "window.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"
#include "stream/model.h"

#include <stdlib.h>

#define ROOM_MS 5000 /* until closed connections have ended: as long as a link may take */
/* After a connection has ended here, the data plane counts it a little longer. */
#define COUNTED_LATE_NS 100000000u  /* until yet another one is closed */
#define REFUSED_LATE_NS 1000000000u /* until a refusal counts, if no other one can be closed */
#define REFUSALS_MOST 4u /* refusals for lack of room that one call answers by closing another */

/* Where a connection finds no room. */
enum lack {
	LACK_NOTHING,
	LACK_HERE,	/* this program, its user or this data plane has no connection left */
	LACK_AT_TARGET, /* the exporting program, its user or its data plane has none */
	LACK_LINK,	/* the data plane here, or there, has no link left */
};

/* Why a connection was refused, if for lack of room. */
static enum lack
lack_of(const struct weir_conn *c)
{
	if (c->state != CONN_ENDED || !c->never_opened)
		return LACK_NOTHING;
	return c->end == -EMFILE ? LACK_AT_TARGET : c->end == -ENOSPC ? LACK_LINK : LACK_NOTHING;
}

int
weir_remote_ended(const struct weir_conn *c, int end)
{
	int rc = end == -ESHUTDOWN ? -ECONNRESET : end;

	if (rc == -EKEYREJECTED && c->remote->opened)
		return weir_lane_rejected(c->remote, rc);
	if (rc == -ESTALE)
		return weir_fail(rc, "the export was revoked, or its memory freed; get a new key");
	if (rc == -ECONNRESET)
		return weir_fail(rc, "the exporting program has ended; get a key of its next run");
	if (rc == -EKEYREJECTED)
		return weir_fail(rc, "there is no such export; get the key of one that exists");
	if (rc == -EACCES)
		return weir_fail(rc, "the key does not grant these rights; get one that does, or "
				     "ask for less");
	if (rc == -EMFILE)
		return weir_fail(rc, "the exporting program, or its user, has no connection left; "
				     "close some, or raise --session-connections there");
	return weir_conn_failed(c, rc);
}

int
weir_lane_rejected(const struct weir_remote_lane *l, int rc)
{
	if (rc != -EKEYREJECTED || !l->opened)
		return rc;
	return weir_fail(-ESTALE, "the export has ended, or its program has, while this thread's "
				  "connection was closed to make room; get a new key");
}

/* ---- which ones are there ---- */

/* The lane of thread t; NULL: it has none. */
static struct weir_remote_lane *
lane_of(struct weir_remote *r, const struct weir_thread *t)
{
	_Atomic(struct weir_remote_lane *) *recent = weir_lane_recent(r, t);
	/* pairs with the releases below and in weir_remote_make_conn() */
	struct weir_remote_lane *l = atomic_load_explicit(recent, memory_order_acquire);

	if (weir_likely(l && l->worker == t))
		return l;
	pthread_mutex_lock(&r->lock);
	LIST_FOREACH(l, &r->lanes, in_remote)
	if (l->worker == t)
		break;
	pthread_mutex_unlock(&r->lock);
	if (l)
		atomic_store_explicit(recent, l, memory_order_release);
	return l;
}

void
weir_lane_used(struct weir_remote_lane *l)
{
	struct weir_remote_lanes *all = &l->worker->remote_lanes;

	weir_assert(weir_worker_locked(l->worker) && l->conn);
	TAILQ_REMOVE(all, l, in_worker);
	TAILQ_INSERT_TAIL(all, l, in_worker);
}

/* ---- closing ---- */

/* Closes the lane's connection, whose operations, if it had any, are complete. Worker locked. */
static void
close_conn(struct weir_remote_lane *l)
{
	struct weir_remote *r = l->remote;
	struct weir_conn *c = l->conn;

	TAILQ_REMOVE(&l->worker->remote_lanes, l, in_worker);
	l->before += c->sent;
	weir_lane_count_refusals(l);
	l->refusals = l->refusals_counted = 0;
	l->opened |= !c->never_opened && c->state != CONN_OPENING;
	pthread_mutex_lock(&r->lock);
	if (!r->length) {
		r->length = atomic_load_explicit(&c->remote_bytes, memory_order_relaxed);
		r->node = c->peer_node;
	}
	if (r->first == c)
		r->first = NULL;
	l->conn = NULL;
	pthread_mutex_unlock(&r->lock);
	weir_conn_close(c);
}

/* Whether nothing of the connection is under way, and nothing would be lost with it. Worker locked.
 */
static bool
is_idle(const struct weir_remote_lane *l)
{
	struct weir_conn *c = l->conn;

	if (c->state != CONN_OPEN || c->lock_held || c->lock_member || c->control)
		return false;
	weir_conn_update_completed(c);
	weir_results_take(c);
	if (l->remote->dynamic && l->asked != l->before + c->sent) /* see expect_idle() */
		return false;
	return c->completed == c->sent && !weir_results_last(c);
}

static void
close_for_other(struct weir_remote_lane *l)
{
	l->conn->makes_room = true;
	l->worker->making_room++;
	close_conn(l);
}

/* The connection beside a mapping stays: it alone tells how the export ends. */
static bool
is_pinned(const struct weir_remote_lane *l)
{
	return l->remote->direct.at && l->remote->first == l->conn;
}

static struct weir_key_fields
key_of(const struct weir_remote *r)
{
	struct weir_key_fields k;

	memcpy(&k, r->key.bytes, sizeof(k));
	return k;
}

/* Whether the end of o's connection helps l, where l->lack says what it lacks. */
static bool
helps(const struct weir_remote_lane *l, const struct weir_remote_lane *o, bool same)
{
	struct weir_key_fields a = key_of(l->remote), b = key_of(o->remote);

	if (o == l || is_pinned(o))
		return false;
	if (l->lack == LACK_AT_TARGET)
		return a.incarnation == b.incarnation &&
		       (!same || WEIR_KEY_SESSION(a.index) == WEIR_KEY_SESSION(b.index));
	if (l->lack == LACK_LINK) /* a link ends when none of its connections is left */
		return a.incarnation != b.incarnation && !o->remote->local;
	return true;
}

static void
room_is_made(struct weir_remote_lane *l)
{
	l->next_at = weir_clock() + COUNTED_LATE_NS;
	l->refused_at = weir_clock() + REFUSED_LATE_NS;
}

/*
 * Closes the connection that is idle and that the thread has not used for longest, of those that
 * help l; where a link lacks, all idle ones to that node. `same`: only of the same program. False:
 * there is none. Worker locked.
 */
static bool
close_idle(struct weir_remote_lane *l, bool same)
{
	struct weir_thread *t = l->worker;
	struct weir_remote_lane *o, *next;
	uint64_t node = 0;
	bool found = false;

	for (o = TAILQ_FIRST(&t->remote_lanes); o; o = next) {
		next = TAILQ_NEXT(o, in_worker);
		if (!helps(l, o, same) || (found && key_of(o->remote).incarnation != node) ||
		    !is_idle(o))
			continue;
		node = key_of(o->remote).incarnation;
		found = true;
		close_for_other(o);
		if (l->lack != LACK_LINK)
			break;
	}
	if (found)
		room_is_made(l);
	return found;
}

bool
weir_lanes_give_blocks(struct weir_thread *t)
{
	struct weir_remote_lane *l;

	weir_assert(weir_worker_locked(t));
	TAILQ_FOREACH(l, &t->remote_lanes, in_worker)
	{
		struct weir_conn *c = l->conn;

		weir_conn_update_completed(c);
		weir_results_give_lines(c); /* and takes answers */
		if (weir_conn_is_open(c) && weir_remote_has_blocks(c))
			weir_remote_ask_done(c);
	}
	return !atomic_load_explicit(&t->starved, memory_order_relaxed);
}

/* Whether a connection that helps l will be idle: its operations are under way, or it opens. */
static bool
expect_idle(const struct weir_remote_lane *l)
{
	struct weir_remote_lane *o;

	TAILQ_FOREACH(o, &l->worker->remote_lanes, in_worker)
	{
		if (!helps(l, o, false) || o->conn->lock_held || o->conn->lock_member)
			continue;
		if (o->conn->state == CONN_OPEN && o->remote->dynamic)
			weir_lane_ask_refusals(o);
		if (o->conn->state == CONN_OPEN)
			weir_remote_ask_done(o->conn);
		if (o->conn->state == CONN_OPEN || o->conn->state == CONN_OPENING)
			return true;
	}
	return false;
}

/* False: no connection of the thread will give room. Worker locked. */
static bool
make_room(struct weir_remote_lane *l)
{
	return close_idle(l, true) || close_idle(l, false) || expect_idle(l);
}

/*
 * Of another thread, whose object is locked: the idle one that it has not used for longest. It may
 * be inside a call with the last one. NULL: there is none.
 */
static struct weir_remote_lane *
idle_of(const struct weir_thread *t)
{
	struct weir_remote_lane *o;

	TAILQ_FOREACH(o, &t->remote_lanes, in_worker)
	if ((t->orphan || TAILQ_NEXT(o, in_worker)) && !is_pinned(o) && is_idle(o))
		return o;
	return NULL;
}

/* Closes an idle connection of another thread, unless one ends already. False: there is none. No
 * lock held. */
static bool
make_room_elsewhere(struct weir_remote_lane *l)
{
	struct weir_remote_lane *o;
	struct weir_thread *t;
	bool found = false;

	weir_threads_lock();
	LIST_FOREACH(t, &l->remote->w->threads, in_session)
	{
		if (t == l->worker)
			continue;
		weir_bias_lock_slow(&t->lock);
		found = t->making_room;
		if (found)
			weir_progress(t, NULL); /* it may not look itself */
		o = found ? NULL : idle_of(t);
		if (o)
			close_for_other(o);
		weir_progress_leave(t);
		weir_bias_unlock_passing(&t->lock);
		found |= o != NULL;
		if (found)
			break;
	}
	weir_threads_unlock();
	if (found)
		room_is_made(l);
	return found;
}

/* ---- making ---- */

/* 0, -EAGAIN: others are closed for it, or will be, or an error. Worker locked. */
static int
start(struct weir_remote_lane *l)
{
	struct weir_remote *r = l->remote;
	struct weir_memory_answer a;
	uint64_t now = l->lack ? weir_clock() : 0;
	int rc;

	if (l->lack && l->worker->making_room && now < l->refused_at) {
		l->next_at = now + COUNTED_LATE_NS;
		return -EAGAIN;
	}
	if (l->lack && now >= l->next_at && make_room(l))
		return -EAGAIN;
	rc = weir_conn_start_memory(l->worker, l, r->key.bytes, r->rights, &a);
	if (!rc) {
		TAILQ_INSERT_TAIL(&l->worker->remote_lanes, l, in_worker);
		pthread_mutex_lock(&r->lock);
		l->conn = a.conn;
		if (!r->first) {
			r->local = a.local;
			r->first = a.conn;
		}
		pthread_mutex_unlock(&r->lock);
	}
	l->lack = LACK_NOTHING;
	if (!a.refused || (rc != -EMFILE && rc != -EDQUOT))
		return weir_lane_rejected(l, rc);
	l->lack = LACK_HERE;
	now = weir_clock();
	if (now < l->refused_at || make_room(l))
		return -EAGAIN;
	return rc;
}

static int
make_conn(struct weir_remote_lane *l, int timeout_ms)
{
	int most = timeout_ms < 0 || timeout_ms > ROOM_MS ? ROOM_MS : timeout_ms;
	struct weir_thread *t = l->worker;
	struct weir_wait wait;
	int rc, end = 0;

	weir_wait_init(&wait, t, most);
	wait.nap_always = true; /* nobody rings when the data plane counts one less */
	do {
		weir_lock(t);
		if (l->lack)
			weir_progress(t, NULL);
		rc = start(l);
		weir_progress_leave(t);
		weir_unlock(t);
		/* a connection that made room is not lost if another thread got its place */
		if (rc && l->lack && rc != -EAGAIN && (make_room_elsewhere(l) || l->opened))
			rc = -EAGAIN;
		if (rc == -EAGAIN)
			end = weir_wait_next(&wait);
	} while (rc == -EAGAIN && !end);
	weir_wait_end(&wait);
	if (rc == -EAGAIN && !most)
		return rc;
	l->lack = LACK_NOTHING;
	l->next_at = l->refused_at = 0;
	if (rc != -EAGAIN)
		return rc;
	return end != -EAGAIN
		   ? end
		   : weir_fail(-EMFILE,
			       "all connections are in use, and none of this thread has become "
			       "free in %d ms; close some, or raise --session-connections",
			       most);
}

/* Leaves a connection that was refused for lack of room. False: there will be none. */
static bool
leave_refused(struct weir_remote_lane *l)
{
	bool room;

	weir_lock(l->worker);
	l->lack = lack_of(l->conn);
	close_conn(l);
	room = make_room(l);
	weir_progress_leave(l->worker);
	weir_unlock(l->worker);
	return room;
}

/* The connection of a lane, from now on the one that was used last. */
static struct weir_conn *
use(struct weir_remote_lane *l)
{
	struct weir_conn *c;

	weir_lock(l->worker);
	c = l->conn;
	if (c)
		weir_lane_use(l);
	weir_unlock(l->worker);
	return c;
}

struct weir_conn *
weir_remote_conn(struct weir_remote *r)
{
	struct weir_thread *t = weir_thread_get(r->w);
	struct weir_remote_lane *l = t ? lane_of(r, t) : NULL;

	return l ? use(l) : NULL;
}

struct weir_conn *
weir_remote_make_conn(struct weir_remote *r, int timeout_ms, int *rc)
{
	struct weir_thread *t = weir_thread_get(r->w);
	struct weir_remote_lane *l = t ? lane_of(r, t) : NULL;
	struct weir_conn *c = l ? use(l) : NULL;

	*rc = 0;
	if (weir_likely(c && !lack_of(c)))
		return c;
	if (weir_state(r->w) != WEIR_UP) {
		*rc = weir_gone(r->w);
		return NULL;
	}
	t = weir_thread_own(r->w, rc);
	if (!t)
		return NULL;
	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l) {
			*rc = weir_fail(-ENOMEM, "no memory for a connection; free some");
			return NULL;
		}
		l->worker = t;
		l->remote = r;
		/* no other thread takes its place */
		atomic_fetch_add_explicit(&t->users, 1, memory_order_relaxed);
		pthread_mutex_lock(&r->lock);
		LIST_INSERT_HEAD(&r->lanes, l, in_remote);
		pthread_mutex_unlock(&r->lock);
		/* pairs with the acquire in lane_of() */
		atomic_store_explicit(weir_lane_recent(r, t), l, memory_order_release);
	}
	if (c) /* there may be room now */
		leave_refused(l);
	*rc = make_conn(l, timeout_ms);
	return *rc ? NULL : l->conn;
}

/* 0, -EAGAIN, -EINTR, or how the attempt ended. */
static int
await_open(struct weir_conn *c, int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, c->worker, timeout_ms);
	while ((rc = weir_conn_opened(c)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc && rc != -EAGAIN && rc != -EINTR ? weir_remote_ended(c, c->end) : rc;
}

int
weir_remote_await_open(struct weir_conn **c, int timeout_ms)
{
	uint64_t end = weir_clock() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000, now;
	struct weir_remote_lane *l = (*c)->remote;
	int left = timeout_ms, rc, again;

	for (unsigned refusals = 0;; refusals++) {
		rc = await_open(*c, left);
		if (!lack_of(*c) || refusals == REFUSALS_MOST || !leave_refused(l))
			break;
		again = make_conn(l, left);
		if (again)
			return again;
		*c = l->conn;
		now = weir_clock();
		if (timeout_ms > 0)
			left = now < end ? (int)((end - now) / 1000000) : 0;
	}
	return rc;
}

/* ---- the end ---- */

void
weir_lanes_close(struct weir_remote *r)
{
	struct weir_remote_lane *l;

	while ((l = LIST_FIRST(&r->lanes))) {
		struct weir_thread *t = l->worker;

		LIST_REMOVE(l, in_remote);
		weir_lock(t);
		if (l->conn)
			close_conn(l);
		weir_progress_leave(t);
		weir_unlock(t);
		atomic_fetch_sub_explicit(&t->users, 1, memory_order_relaxed);
		free(l);
	}
	if (weir_unlikely(weir_state(r->w) != WEIR_UP))
		weir_threads_release(r->w);
}

void
weir_lanes_free(struct weir_remote *r)
{
	struct weir_remote_lane *l;

	while ((l = LIST_FIRST(&r->lanes))) {
		LIST_REMOVE(l, in_remote);
		free(l);
	}
}

/* Of the export; else something lacks here. */
static bool
is_end(int rc)
{
	return rc == -ECONNRESET || rc == -EHOSTDOWN || rc == -ESTALE;
}

int
weir_remote_check(struct weir_remote *r)
{
	struct weir_remote_lane *l;
	struct weir_conn *c;
	int rc = 0;

	if (weir_state(r->w) != WEIR_UP)
		return weir_gone(r->w);
	c = weir_remote_make_conn(r, 0, &rc);
	if (!c)
		return is_end(rc) ? rc : 0;
	weir_lock(c->worker);
	weir_progress(c->worker, NULL);
	weir_unlock(c->worker);
	pthread_mutex_lock(&r->lock);
	LIST_FOREACH(l, &r->lanes, in_remote)
	if (l->conn && (rc = atomic_load_explicit(&l->conn->remote_end, memory_order_relaxed))) {
		rc = weir_remote_ended(l->conn, rc);
		break;
	}
	pthread_mutex_unlock(&r->lock);
	return is_end(rc) ? rc : 0;
}
