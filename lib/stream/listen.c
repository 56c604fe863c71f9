/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening and accepting. */
#include "conn.h"
#include "listen.h"
#include "model.h"

#include "client/channel.h"
#include "client/progress.h"
#include "client/reason.h"
#include "client/sized.h"
#include "client/wait.h"
#include "ipc/text.h"

#include <stdio.h>
#include <stdlib.h>

/* Of whom a listener is. */
enum owner { OF_PROGRAM, OF_LANES, SILENT };

static int
make(struct weir_thread *t, const char *service, const struct weir_listen_options *o,
     enum owner owner, struct weir_listener **out)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_LISTEN), r;
	struct weir_listener *l = calloc(1, sizeof(*l));
	int fds[WEIR_SESSION_FDS], rc;

	if (!l)
		return weir_fail(-ENOMEM, "no memory for a listener; free some");
	l->worker = t;
	l->handle = l;
	l->backlog = o->backlog;
	l->flags = o->flags;
	l->of_lanes = owner == OF_LANES;
	l->silent = owner == SILENT;
	memcpy(l->service, service, sizeof(l->service));
	TAILQ_INIT(&l->conns);
	memcpy(m.listen.service, l->service, sizeof(m.listen.service));
	m.listen.backlog = l->backlog;
	m.listen.flags = l->flags;
	weir_lock(t);
	/* a connection is accepted on the channel of the engine where it ends: one per engine */
	rc = weir_channel_get_all(t, m.listen.channel);
	if (!rc)
		rc = weir_request(t->w, &m, WEIR_MSG_LISTENING, &r, fds);
	if (!rc) {
		l->id = r.listening.listener;
		LIST_INSERT_HEAD(&t->listening, l, in_worker);
		atomic_fetch_add_explicit(&t->users, 1, memory_order_relaxed);
		*out = l;
	}
	weir_unlock(t);
	if (rc)
		free(l);
	return rc;
}

static int
listen_with(struct weir *w, const char *service, const struct weir_listen_options *options,
	    enum owner owner, struct weir_listener **listener)
{
	struct weir_listen_options o = WEIR_LISTEN_OPTIONS_INIT;
	char name[WEIR_SERVICE_MAX] = "";
	struct weir_thread *t;
	int n, rc;

	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	n = snprintf(name, sizeof(name), "%s", service ? service : "");
	if (n <= 0 || (size_t)n >= sizeof(name))
		return weir_fail(-EINVAL,
				 "not a service name; give 1 to %u letters, digits, '_', '-', '.'",
				 WEIR_SERVICE_MAX - 1);
	static_assert(WEIR_LISTENS_PUBLIC == WEIR_LISTEN_PUBLIC &&
			  WEIR_LISTENS_HOLDING == WEIR_LISTEN_HOLD,
		      "the same bits");
	rc = weir_sized_read(&o, sizeof(o), options, "WEIR_LISTEN_OPTIONS_INIT");
	if (rc)
		return rc;
	if (o.flags & ~WEIR_LISTEN_KNOWN)
		return weir_fail(-EINVAL, "unknown flag; see WEIR_LISTEN_* in weir/stream.h");
	t = weir_thread_own(w, &rc);
	if (!t)
		return rc;
	return make(t, name, &o, owner, listener);
}

int
weir_listen_with(struct weir *w, const char *service, const struct weir_listen_options *o,
		 struct weir_listener **listener)
{
	return listen_with(w, service, o, OF_PROGRAM, listener);
}

int
weir_listen_lanes(struct weir *w, const char *service, const struct weir_listen_options *o,
		  struct weir_listener **listener)
{
	return listen_with(w, service, o, OF_LANES, listener);
}

int
weir_listen_silent(struct weir *w, const char *service, const struct weir_listen_options *o,
		   struct weir_listener **listener)
{
	return listen_with(w, service, o, SILENT, listener);
}

bool
weir_listener_in(const struct weir_listener *l, const struct weir *w)
{
	while (l && l->worker->w != w)
		l = atomic_load(&l->successor);
	return l;
}

/* ---- after a restart of the data plane ---- */

/*
 * Listens in place of l on t. reattach_lock held. 0, or why nobody listens: weir_loss(),
 * -ETIMEDOUT: this session is over, too.
 */
static int
follow(struct weir_thread *t, struct weir_listener *l)
{
	const struct weir_listen_options o = {
	    .size = sizeof(o), .backlog = l->backlog, .flags = l->flags};
	struct weir_listener *n = NULL;
	int rc;

	if (atomic_load(&l->successor) || l->error)
		return l->error;
	rc = make(t, l->service, &o, l->silent ? SILENT : l->of_lanes ? OF_LANES : OF_PROGRAM, &n);
	if (weir_is_loss(rc) || rc == -ETIMEDOUT)
		return rc; /* the next session is asked */
	weir_lock(l->worker);
	l->error = rc;
	if (rc) {
		/* weir_accept() tells why */
		weir_listener_report(l);
	} else {
		n->handle = l->handle;
		l->replaced = true;
		atomic_fetch_sub_explicit(&l->worker->users, 1, memory_order_relaxed);
		atomic_store(&l->successor, n);
	}
	weir_unlock(l->worker);
	return rc;
}

static void
follow_all(struct weir_thread *t, struct weir_thread *p)
{
	struct weir_listener *l;

	do {
		weir_lock(p);
		LIST_FOREACH(l, &p->listening, in_worker)
		if (!atomic_load(&l->successor) && !l->error)
			break;
		weir_unlock(p);
	} while (l && (!follow(t, l) || l->error));
}

void
weir_listeners_follow(struct weir_thread *t, struct weir_thread *p)
{
	pthread_mutex_t *lock = &t->w->first->reattach_lock;
	struct weir_foreign *f;

	pthread_mutex_lock(lock);
	follow_all(t, p);
	/* and those of earlier sessions, if the data plane went again before they could */
	LIST_FOREACH(f, &t->foreign, next)
	if (f->own)
		follow_all(t, f->worker);
	pthread_mutex_unlock(lock);
}

int
weir_listen(struct weir *w, const char *service, unsigned backlog, struct weir_listener **listener)
{
	const struct weir_listen_options o = {.size = sizeof(o), .backlog = backlog};

	return weir_listen_with(w, service, &o, listener);
}

void
weir_listener_report(struct weir_listener *l)
{
	if (l->queued || l->silent)
		return;
	l->queued = true;
	TAILQ_INSERT_TAIL(weir_accepts_list(l), l, in_accepts);
	if (l->of_lanes)
		atomic_store_explicit(&l->worker->lane_news, true, memory_order_relaxed);
}

void
weir_listener_took(struct weir_listener *l)
{
	struct weir_arena_head *head = (struct weir_arena_head *)l->worker->w->arena;

	/* the data plane counts from here how many wait */
	if (!l->replaced)
		atomic_fetch_add_explicit(&head->accepted[l->id % WEIR_LISTENERS], 1,
					  memory_order_relaxed);
}

static int
take_accepted(struct weir_listener *l, struct weir_conn **conn)
{
	struct weir_thread *t = l->worker;
	struct weir_conn *c;
	int rc;

	weir_lock(t);
	weir_progress(t, NULL);
	c = TAILQ_FIRST(&l->conns);
	if (!c) {
		weir_unlock(t);
		return -EAGAIN;
	}
	TAILQ_REMOVE(&l->conns, c, in_accept);
	weir_listener_took(l);
	c->listener = NULL;
	c->silent = l->silent;
	if (l->queued && TAILQ_EMPTY(&l->conns)) {
		TAILQ_REMOVE(weir_accepts_list(l), l, in_accepts);
		l->queued = false;
	}
	rc = weir_conn_map(c);
	if (rc) {
		weir_conn_close(c);
	} else {
		if (c->pending)
			weir_conn_report(c, 0);
		*conn = c;
	}
	weir_unlock(t);
	return rc;
}

/* ---- deciding ---- */

static int
check_accept(const struct weir_accept_options *o, uint32_t known)
{
	if (o->flags & ~known)
		return weir_fail(-EINVAL,
				 "unknown flag, or WEIR_ACCEPT_HOLD for a listener without "
				 "WEIR_LISTEN_HOLD; see weir/stream.h");
	if (o->window && o->window < WEIR_WINDOW_MIN)
		return weir_fail(-EINVAL,
				 "a window of %u bytes doesn't hold a message; give %u or more, or "
				 "0 for the default",
				 o->window, WEIR_WINDOW_MIN);
	return 0;
}

/* Opens a held connection, or sets the window of an open one. */
static int
admit(struct weir_conn *c, uint32_t window)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_DECIDE), r;
	struct weir_wait wait;
	int fds[WEIR_SESSION_FDS], rc;
	bool held;

	weir_lock(c->worker);
	held = c->undecided;
	if (window && c->local && c->pipe)
		weir_conn_set_window(c, window);
	weir_unlock(c->worker);
	if (!held && (!window || c->local))
		return 0;
	m.decide.vqpn = c->vqpn;
	m.decide.window = window;
	rc = weir_request(c->worker->w, &m, WEIR_MSG_OK, &r, fds);
	if (rc || !held)
		return rc;
	weir_wait_init(&wait, c->worker, -1);
	while ((rc = weir_conn_opened(c)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc && rc != -EINTR) /* it is decided: no signal undoes that */
			break;
	}
	weir_wait_end(&wait);
	weir_lock(c->worker);
	if (!rc && c->undecided) /* it has ended instead */
		rc = c->end;
	weir_unlock(c->worker);
	return rc ? weir_conn_failed(c, rc) : 0;
}

int
weir_admit(struct weir_conn *c, const struct weir_accept_options *options)
{
	struct weir_accept_options o = WEIR_ACCEPT_OPTIONS_INIT;
	int rc = weir_sized_read(&o, sizeof(o), options, "WEIR_ACCEPT_OPTIONS_INIT");

	if (!rc)
		rc = check_accept(&o, 0);
	if (rc)
		return rc;
	if (weir_state(c->worker->w) != WEIR_UP)
		return weir_gone(c->worker->w);
	if (!c->undecided)
		return weir_fail(-EISCONN, "the connection is open already; just use it");
	return admit(c, o.window);
}

int
weir_refuse(struct weir_conn *c, const char *reason)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_DECIDE), r;
	struct weir_thread *t = c->worker;
	int fds[WEIR_SESSION_FDS], rc = -ENODEV;

	static_assert(WEIR_REFUSAL_TEXT_MAX == WEIR_REFUSAL_MAX, "the same limit");
	if (weir_state(t->w) == WEIR_FORKED)
		return weir_gone(t->w);
	if (!c->undecided)
		return weir_fail(-EISCONN,
				 "the connection is open already; close it, or accept with "
				 "WEIR_ACCEPT_HOLD");
	m.decide.vqpn = c->vqpn;
	m.decide.flags = WEIR_DECIDE_REFUSE;
	if (reason)
		weir_text_copy(m.decide.reason, reason, sizeof(m.decide.reason));
	if (weir_state(t->w) == WEIR_UP)
		rc = weir_request(t->w, &m, WEIR_MSG_OK, &r, fds);
	weir_lock(t);
	if (!rc)
		c->never_opened = true; /* the engine forgets it: no CLOSE is owed */
	weir_conn_close(c); /* any other rc: the connecting program is lost, and its end is told */
	weir_progress_leave(t);
	weir_unlock(t);
	if (weir_unlikely(weir_state(t->w) != WEIR_UP))
		weir_threads_release(t->w);
	return 0;
}

/* ---- accepting ---- */

static int
try_accept(struct weir_listener *l, const struct weir_accept_options *o, struct weir_conn **conn)
{
	struct weir_conn *c = NULL;
	bool held;
	int rc;

	for (;;) {
		rc = take_accepted(l, &c);
		if (rc)
			return rc;
		held = c->undecided;
		if (held && c->state == CONN_ENDED) {
			weir_close(c); /* the connecting program has not waited */
			continue;
		}
		if (held && o->flags & WEIR_ACCEPT_HOLD)
			break;
		rc = admit(c, o->window);
		if (!rc || !held) /* how an open one has ended, the next call on it says */
			break;
		weir_close(c);
	}
	*conn = c;
	return 0;
}

int
weir_accept(struct weir_listener *l, int timeout_ms, struct weir_conn **conn)
{
	return weir_accept_with(l, NULL, timeout_ms, conn);
}

int
weir_accept_with(struct weir_listener *l, const struct weir_accept_options *options, int timeout_ms,
		 struct weir_conn **conn)
{
	struct weir_accept_options o = WEIR_ACCEPT_OPTIONS_INIT;
	struct weir_wait wait;
	struct weir_thread *t;
	struct weir *w;
	int rc = weir_sized_read(&o, sizeof(o), options, "WEIR_ACCEPT_OPTIONS_INIT");

	if (!rc)
		rc = check_accept(&o, l->flags & WEIR_LISTEN_HOLD ? WEIR_ACCEPT_HOLD : 0);
	if (rc)
		return rc;
	if (weir_state(l->worker->w) == WEIR_FORKED)
		return weir_gone(l->worker->w);
	for (;;) {
		/* of an earlier session: first the connections that arrived before it ended */
		weir_wait_init(&wait, l->worker, timeout_ms);
		while ((rc = try_accept(l, &o, conn)) == -EAGAIN) {
			rc = weir_wait_next(&wait);
			if (rc)
				break;
		}
		weir_wait_end(&wait);
		if (!weir_is_loss(rc))
			return rc;
		/* then the listener in its place, made now if its thread has not done so yet */
		w = weir_now(l->worker->w);
		if (weir_state(w) != WEIR_UP)
			return weir_gone(w);
		t = weir_thread_own(w, &rc);
		if (!t)
			return rc;
		pthread_mutex_lock(&w->first->reattach_lock);
		rc = follow(t, l);
		pthread_mutex_unlock(&w->first->reattach_lock);
		if (rc && !weir_is_loss(rc))
			weir_fail(rc,
				  "nobody listens on %s any more, after the data plane was "
				  "restarted: %s; listen again, or on another name",
				  l->service, strerror(-rc));
		l = atomic_load(&l->successor);
		if (!l)
			return rc;
	}
}

/* Worker locked. */
void
weir_listener_free(struct weir_listener *l)
{
	struct weir_thread *t = l->worker;
	struct weir_conn *c;

	weir_assert(weir_worker_locked(l->worker));
	while ((c = TAILQ_FIRST(&l->conns))) {
		TAILQ_REMOVE(&l->conns, c, in_accept);
		weir_listener_took(l);
		c->listener = NULL;
		weir_conn_close(c);
	}
	if (l->queued)
		TAILQ_REMOVE(weir_accepts_list(l), l, in_accepts);
	LIST_REMOVE(l, in_worker);
	if (!l->replaced)
		atomic_fetch_sub_explicit(&t->users, 1, memory_order_relaxed);
	free(l);
}

void
weir_listener_close(struct weir_listener *l)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_UNLISTEN), r;
	struct weir_listener *now;
	int fds[WEIR_SESSION_FDS];

	if (!l || weir_state(l->worker->w) == WEIR_FORKED)
		return;
	for (; l; l = now) {
		struct weir_thread *t = l->worker;

		now = atomic_load(&l->successor);
		m.listening.listener = l->id;
		weir_lock(t);
		if (weir_state(t->w) == WEIR_UP)
			weir_request(t->w, &m, WEIR_MSG_OK, &r, fds);
		weir_progress(t, NULL);
		weir_listener_free(l);
		weir_unlock(t);
	}
}
