/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks. LOCK is a cell with an answer, which comes when the lock is granted; meanwhile its
 * thread sleeps, so that no other operation of its connection waits behind it. UNLOCK is a control
 * slot, for which there is always room in the end: a request that nobody waits for any more is
 * surely taken back.
 */
#include "lock.h"
#include "handle.h"
#include "window.h"

#include "client/channel.h"
#include "client/progress.h"
#include "client/wait.h"
#include "ipc/remote.h"
#include "stream/ctrl_slots.h"

#define GRANTED_BY_WORDS 1

/* Asks for the lock. 0, -EAGAIN (not now), or an error. Worker locked. */
static int
ask(struct weir_conn *c, int kind)
{
	struct weir_cell_lock cell = {
	    .handle = WEIR_HANDLE_FIRST, .kind = (uint32_t)kind, .member = c->lock_member};
	int rc = weir_remote_room(c, 1);

	if (rc == -EAGAIN) {
		c->blocked = true;
		weir_ctrl_need_room(c);
	}
	if (rc)
		return rc;
	/* the answer to a request that was taken back is on its way */
	rc = c->lock_upto > c->completed
		 ? -EAGAIN
		 : weir_result_reserve(c, sizeof(c->lock_status), NULL, &cell.result);
	if (rc == -EAGAIN)
		weir_remote_ask_done(c);
	if (rc)
		return rc;
	weir_result_await(c, c->sent, &c->lock_status);
	weir_cell_write(c, WEIR_OP_LOCK, &cell);
	c->lock_upto = c->sent;
	weir_remote_ask_done(c);
	return 0;
}

static void
put_unlock(struct weir_conn *c, uint8_t kind)
{
	c->lock_unlock = kind;
	weir_ctrl_add(c, CTRL_UNLOCK);
}

/* Whether the request was granted: 0, -EOWNERDEAD, GRANTED_BY_WORDS; or how the connection ended.
 * -EAGAIN: neither. Worker locked. */
static int
look(struct weir_conn *c, int kind)
{
	weir_progress(c->worker, NULL);
	weir_conn_update_completed(c);
	weir_results_take(c);
	if (c->completed >= c->lock_upto && c->lock_status == WEIR_LOCKED_BY_WORDS)
		return GRANTED_BY_WORDS;
	if (c->completed >= c->lock_upto) {
		c->lock_held = (uint8_t)kind;
		return c->lock_status == EOWNERDEAD ? -EOWNERDEAD : 0;
	}
	return c->state == CONN_ENDED ? weir_remote_ended(c, c->end) : -EAGAIN;
}

static int
step(struct weir_conn *c, int kind, bool *asked)
{
	struct weir_thread *t = c->worker;
	int rc = -EAGAIN;

	weir_lock(t);
	if (*asked) {
		rc = look(c, kind);
	} else {
		weir_progress(t, NULL);
		weir_conn_update_completed(c);
		weir_results_take(c);
		if (c->state == CONN_OPENING)
			rc = -EAGAIN;
		else if (c->state == CONN_ENDED)
			rc = weir_remote_ended(c, c->end);
		else
			rc = ask(c, kind);
		*asked = !rc;
		if (!rc)
			rc = -EAGAIN;
	}
	weir_unlock(t);
	return rc;
}

/* Takes the request back, unless it has just been granted. */
static int
give_up(struct weir_conn *c, int kind, int why)
{
	int rc;

	weir_lock(c->worker);
	rc = look(c, kind);
	if (rc == -EAGAIN) {
		put_unlock(c, WEIR_LOCKS_UNSEEN);
		rc = why;
	}
	weir_unlock(c->worker);
	return rc;
}

int
weir_lock_step(struct weir_remote *r, int kind, bool *asked)
{
	int rc;
	struct weir_conn *c = weir_remote_make_conn(r, 0, &rc);

	return c ? step(c, kind, asked) : rc;
}

int
weir_lock_give_up(struct weir_remote *r, int kind, int why)
{
	return give_up(weir_remote_conn(r), kind, why);
}

static int
await(struct weir_conn *c, int kind, int timeout_ms)
{
	struct weir_wait wait;
	bool asked = false;
	int rc, end = 0;

	weir_wait_init(&wait, c->worker, timeout_ms);
	while ((rc = step(c, kind, &asked)) == -EAGAIN && !end)
		end = weir_wait_next(&wait);
	weir_wait_end(&wait);
	if (!end || rc != -EAGAIN)
		return rc;
	return asked ? give_up(c, kind, end) : end;
}

int
weir_remote_lock(struct weir_remote *r, int kind, int timeout_ms)
{
	return weir_remote_lock_as(r, kind, 0, timeout_ms);
}

int
weir_remote_lock_as(struct weir_remote *r, int kind, uint32_t member, int timeout_ms)
{
	struct weir_conn *c;
	int rc;

	static_assert(WEIR_LOCK_SHARED == WEIR_LOCKS_SHARED &&
			  WEIR_LOCK_EXCLUSIVE == WEIR_LOCKS_EXCLUSIVE,
		      "the same numbers");
	if (kind != WEIR_LOCK_SHARED && kind != WEIR_LOCK_EXCLUSIVE)
		return weir_fail(-EINVAL,
				 "unknown kind of lock %d; see WEIR_LOCK_* in "
				 "weir/remote.h",
				 kind);
	if (!(r->rights & WEIR_MAY_LOCK))
		return weir_fail(-EACCES, "opened without WEIR_MAY_LOCK; open it with that");
	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	c = weir_remote_make_conn(r, timeout_ms, &rc);
	if (!c)
		return rc;
	if (c->state == CONN_OPENING) {
		rc = weir_remote_await_open(&c, timeout_ms);
		if (rc)
			return rc;
	}
	if (c->state == CONN_ENDED)
		return weir_remote_ended(c, c->end);
	if (c->lock_held)
		return weir_fail(-EALREADY, "this thread holds the lock already; unlock it first");
	if (member && r->local && !r->member) { /* the end of one releases what the words say */
		weir_lock(c->worker);
		c->lock_member = (uint16_t)member;
		weir_unlock(c->worker);
		r->member = c;
		r->words.session = &r->w->life->state;
		r->words.ended = &c->remote_end;
	}
	rc = await(c, kind, timeout_ms);
	if (rc == GRANTED_BY_WORDS)
		r->words.granted = true;
	if (c == r->member && (rc == -EAGAIN || rc == -EINTR))
		r->words.withdrawn = true;
	if (rc == -EOWNERDEAD)
		return weir_fail(-EOWNERDEAD, "the lock is held, and its last exclusive holder "
					      "ended with it; make the data consistent");
	return rc;
}

const struct weir_words_known *
weir_remote_words(const struct weir_remote *r)
{
	return &r->words;
}

bool
weir_remote_knows_words(struct weir_remote *r)
{
	struct weir_conn *c = r->member;

	if (r->words.withdrawn && weir_state(r->w) == WEIR_UP) {
		weir_lock(c->worker);
		weir_progress(c->worker, NULL);
		weir_conn_update_completed(c);
		/* it stays so until the request that was taken back last is over, and UNLOCK will
		 * not meet another lock */
		r->words.withdrawn = c->control & CTRL_UNLOCK || c->completed != c->sent;
		weir_unlock(c->worker);
	}
	return weir_words_ready(&r->words);
}

int
weir_remote_unlock(struct weir_remote *r, int timeout_ms)
{
	struct weir_conn *c;
	int rc;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	c = weir_remote_conn(r);
	if (!c || !c->lock_held)
		return weir_fail(-ENOLCK, "this thread does not hold the lock; lock it first");
	weir_lock(c->worker);
	weir_progress(c->worker, NULL); /* it may have been lost */
	rc = c->state == CONN_ENDED ? weir_remote_ended(c, c->end) : 0;
	weir_unlock(c->worker);
	if (!rc)
		rc = weir_remote_flush(r, timeout_ms);
	if (rc == -EAGAIN || rc == -EINTR)
		return rc;
	weir_lock(c->worker);
	c->lock_held = 0; /* or lost with its connection */
	if (!rc)
		put_unlock(c, 0);
	weir_unlock(c->worker);
	return rc;
}

void
weir_remote_unlock_all(struct weir_remote *r)
{
	struct weir_remote_lane *l;

	if (weir_state(r->w) == WEIR_FORKED)
		return;
	pthread_mutex_lock(&r->lock);
	l = LIST_FIRST(&r->lanes);
	pthread_mutex_unlock(&r->lock);
	for (; l; l = LIST_NEXT(l, in_remote)) {
		struct weir_conn *c;

		weir_lock(l->worker);
		c = l->conn;
		if (c && c->lock_held) {
			c->lock_held = 0; /* or lost with its connection */
			if (c->state != CONN_ENDED)
				put_unlock(c, 0);
			weir_progress_leave(l->worker);
		}
		weir_unlock(l->worker);
	}
}
