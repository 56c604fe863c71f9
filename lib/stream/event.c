/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events: connections with something to report are on a list, so that finding the next one takes no
 * scan. weir_poll() reports, weir_wait() may sleep, weir_fd() and weir_arm() let the program sleep.
 */
#include "conn.h"
#include "listen.h"
#include "nodes.h"
#include "reconnect.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"
#include "client/wake.h"

#include <sys/epoll.h>
#include <unistd.h>

struct batch {
	struct weir_event *at;
	unsigned left;
	struct weir_thread *t; /* the caller's own; its former objects report here too */
};

static bool
put(struct batch *b, uint32_t type, int32_t status, struct weir_conn *c, uint64_t cookie)
{
	if (!b->left)
		return false;
	*b->at++ = (struct weir_event){.type = type,
				       .status = status,
				       .conn = c,
				       .user = c ? c->user : NULL,
				       .cookie = cookie};
	b->left--;
	return true;
}

/* False: there is no room for all of its events. */
static bool
put_conn(struct batch *b, struct weir_conn *c)
{
	static const struct {
		uint8_t pending;
		uint32_t type;
	} plain[] = {{PENDING_OPENED, WEIR_EVENT_OPENED},
		     {PENDING_READABLE, WEIR_EVENT_READABLE},
		     {PENDING_WRITABLE, WEIR_EVENT_WRITABLE}};
	int status = -(int)c->end_status;
	struct weir_notes *n = &c->cookies;
	uint32_t type = WEIR_EVENT_CLOSED;
	uint64_t cookie = 0;

	for (unsigned i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (!(c->pending & plain[i].pending))
			continue;
		if (!put(b, plain[i].type, 0, c, 0))
			return false;
		c->pending &= (uint8_t)~plain[i].pending;
	}
	/* one event per message with a cookie that is complete, or never will be */
	while (c->pending & PENDING_SENT && n->head != n->tail) {
		struct weir_note *note = &n->ring[n->head & (n->room - 1)];
		bool done = note->number < c->completed;

		if (!done && c->state != CONN_ENDED)
			break;
		if (!put(b, WEIR_EVENT_SENT, done ? 0 : c->send_error, c, note->value))
			return false;
		n->head++;
	}
	c->pending &= (uint8_t)~PENDING_SENT;
	/* after the last message: recv reports again when it has taken that */
	if (c->queue)
		return true;
	if (c->pending & PENDING_END && !put(b, WEIR_EVENT_END, 0, c, 0))
		return false;
	c->pending &= (uint8_t)~PENDING_END;
	if (!(c->pending & PENDING_CLOSED))
		return true;
	if (!b->left)
		return false;
	if (c->reconnect_state && weir_reconnect_begin(b->t, c, status, &cookie))
		type = WEIR_EVENT_LOST;
	c->pending &= (uint8_t)~PENDING_CLOSED;
	return put(b, type, status, c, cookie);
}

/* Worker locked. */
static void
put_worker(struct batch *b, struct weir_thread *t)
{
	struct weir_listener *l;
	struct weir_conn *c;

	while (b->left && (l = TAILQ_FIRST(&t->accepts))) {
		TAILQ_REMOVE(&t->accepts, l, in_accepts);
		l->queued = false;
		put(b, WEIR_EVENT_ACCEPT, 0, NULL, 0);
		b->at[-1].listener = l->handle;
	}
	if (weir_unlikely(atomic_load_explicit(&t->lane_news, memory_order_relaxed)) &&
	    put(b, WEIR_EVENT_MESSAGES, 0, NULL, 0))
		atomic_store_explicit(&t->lane_news, false, memory_order_relaxed);
	/* a former object's exports have ended with their session */
	if (weir_unlikely(t->notice_news) && t == b->t && put(b, WEIR_EVENT_NOTICE, 0, NULL, 0))
		t->notice_news = false;
	while (b->left && t->node_count) {
		struct weir_node_event *n = &t->nodes[--t->node_count];

		put(b, WEIR_EVENT_NODE, n->status, NULL, n->node);
	}
	while (b->left && (c = TAILQ_FIRST(&t->ready))) {
		if (weir_unlikely(c->is_attempt) && weir_reconnect_tried(b->t, c))
			continue;
		if (!put_conn(b, c))
			return;
		TAILQ_REMOVE(&t->ready, c, in_ready);
		c->queued = false;
	}
}

/* Connections of other workers that report to t. */
static void
put_foreign(struct batch *b, struct weir_thread *t)
{
	while (b->left && atomic_load_explicit(&t->foreign_count, memory_order_relaxed)) {
		struct weir_conn *c;

		pthread_mutex_lock(&t->foreign_lock);
		c = TAILQ_FIRST(&t->foreign_ready);
		if (c) {
			TAILQ_REMOVE(&t->foreign_ready, c, in_ready);
			atomic_fetch_sub_explicit(&t->foreign_count, 1, memory_order_relaxed);
		}
		pthread_mutex_unlock(&t->foreign_lock);
		if (!c)
			return;
		weir_lock(c->worker);
		c->queued = false;
		if (!put_conn(b, c))
			weir_conn_report(c, 0);
		weir_unlock(c->worker);
	}
}

/* Events of this thread's objects of earlier sessions. */
static void
put_formers(struct batch *b, struct weir_thread *t)
{
	const struct weir_foreign *of_former;
	struct weir_foreign *f;

	LIST_FOREACH(f, &t->foreign, next)
	{
		struct weir_thread *p = f->worker;
		bool spent = true;

		if (!f->own || !atomic_load_explicit(&f->conns, memory_order_relaxed))
			continue;
		weir_lock(p);
		put_worker(b, p);
		LIST_FOREACH(of_former, &p->foreign, next)
		if (!of_former->own &&
		    atomic_load_explicit(&of_former->conns, memory_order_relaxed))
			spent = false;
		/* it never has anything to report again */
		if (spent && !atomic_load_explicit(&p->users, memory_order_relaxed) &&
		    TAILQ_EMPTY(&p->ready) && TAILQ_EMPTY(&p->accepts)) {
			t->former_workers--;
			atomic_store_explicit(&f->conns, 0, memory_order_relaxed);
		}
		weir_unlock(p);
		put_foreign(b, p);
	}
}

/* Collects up to n events of the caller's thread t and the workers that report to it. How many. */
static unsigned
collect(struct weir_thread *t, struct weir_event *events, unsigned n)
{
	struct batch b = {events, n, t};
	struct weir_foreign *f;
	unsigned got;

	if (weir_unlikely(t->former_workers))
		put_formers(&b, t);
	if (weir_unlikely(t->timer_at || !LIST_EMPTY(&t->lost_conns))) {
		got = weir_reconnect_step(t, b.at, b.left);
		b.at += got;
		b.left -= got;
	}
	weir_lock(t);
	weir_progress(t, NULL);
	put_worker(&b, t);
	weir_unlock(t);
	if (weir_unlikely(t->table)) {
		got = weir_nodes_take(t, b.at, b.left);
		b.at += got;
		b.left -= got;
	}
	LIST_FOREACH(f, &t->foreign, next)
	{
		weir_lock(f->worker);
		weir_progress(f->worker, NULL);
		weir_unlock(f->worker);
	}
	if (weir_unlikely(atomic_load_explicit(&t->foreign_count, memory_order_relaxed)))
		put_foreign(&b, t);
	return n - b.left;
}

void
weir_thread_disarm_fd(struct weir_thread *t)
{
	uint64_t count;

	if (t->fd_armed) {
		t->fd_armed = false;
		weir_thread_disarm_all(t, &t->fd_waiter);
		if (read(t->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
			return;
	}
	weir_thread_reap_foreign(t);
}

void
weir_thread_rouse(struct weir_thread *t)
{
	if (!t->fd_armed)
		return;
	weir_thread_disarm_fd(t);
	weir_wake_fd(t->wake_fd);
}

/* The same for the session that w is attached to now. */
static struct weir_thread *
own(struct weir *w, int *rc)
{
	w = weir_now(w);
	if (weir_likely(weir_state(w) != WEIR_FORKED))
		return weir_thread_own(w, rc);
	*rc = weir_gone(w);
	return NULL;
}

/* The same, disarmed. */
static struct weir_thread *
enter(struct weir *w, int *rc)
{
	struct weir_thread *t = own(w, rc);

	if (t && weir_unlikely(t->fd_armed || !LIST_EMPTY(&t->foreign)))
		weir_thread_disarm_fd(t);
	return t;
}

/*
 * The session is over. With WEIR_REATTACH tries to attach again when due, unless an operator has
 * ended the session. 0, or why the call fails.
 */
static int
come_back(struct weir_thread *t)
{
	int rc;

	if (!t->w->reattaches || weir_loss(t->w) != -ENODEV)
		return weir_gone(t->w);
	rc = weir_reattach_attempt(t->w);
	return rc == -EAGAIN ? 0 : rc;
}

int
weir_poll(struct weir *w, struct weir_event *events, unsigned n)
{
	struct weir_thread *t;
	unsigned got;
	int rc = 0;

	t = enter(w, &rc);
	if (!t)
		return rc;
	got = collect(t, events, n);
	if (got)
		return (int)got;
	if (weir_unlikely(weir_state(t->w) != WEIR_UP)) {
		rc = come_back(t);
		return rc == -EINTR ? 0 : rc;
	}
	weir_pause();
	return 0;
}

/* weir_wait(); `g` guards it while there is no data plane. */
static int
wait_events(struct weir *w, struct weir_event *events, unsigned n, int timeout_ms,
	    struct weir_guard *g)
{
	uint64_t start = w->reattaches ? weir_clock() : 0, gone;
	struct weir_wait wait;
	int left = timeout_ms;
	unsigned got;

	for (;;) {
		int rc = 0;
		struct weir_thread *t = enter(w, &rc);

		if (!t)
			return rc;
		weir_wait_init(&wait, t, left);
		wait.events = true;
		do {
			got = collect(t, events, n);
			rc = got ? 0 : weir_wait_next(&wait);
		} while (!got && !rc);
		weir_wait_end(&wait);
		if (got)
			return (int)got;
		if (rc != -ENODEV)
			return rc == -EAGAIN ? 0 : rc;
		if (left && !g->blocked)
			weir_guard_block(g);
		rc = come_back(t);
		if (rc)
			return rc;
		if (weir_state(weir_now(w)) == WEIR_UP) {
			weir_guard_end(g);
			continue;
		}
		if (!left)
			return 0;
		/* sleep until the next try to attach */
		gone = timeout_ms >= 0 && (unsigned)timeout_ms < WEIR_REATTACH_MS
			   ? (unsigned)timeout_ms
			   : WEIR_REATTACH_MS;
		rc = weir_wake_await(g, w, -1, weir_clock() + gone * 1000000u);
		if (rc == -EINTR)
			return rc;
		gone = (weir_clock() - start) / 1000000u;
		if (timeout_ms >= 0)
			left = gone < (uint64_t)timeout_ms ? timeout_ms - (int)gone : 0;
	}
}

int
weir_wait(struct weir *w, struct weir_event *events, unsigned n, int timeout_ms)
{
	struct weir_guard g = {0};
	int got = wait_events(w, events, n, timeout_ms, &g);

	weir_guard_end(&g);
	return got;
}

int
weir_fd(struct weir *w)
{
	int rc = 0;
	struct weir_thread *t = own(w, &rc);

	return t ? t->epoll_fd : rc;
}

static bool
has_news(struct weir_thread *t)
{
	bool found;

	weir_lock(t);
	weir_progress(t, NULL);
	found = !TAILQ_EMPTY(&t->ready) || !TAILQ_EMPTY(&t->accepts) || t->node_count ||
		t->notice_news || atomic_load_explicit(&t->lane_news, memory_order_relaxed);
	weir_unlock(t);
	return found;
}

int
weir_arm(struct weir *w)
{
	struct weir_foreign *f;
	struct weir_thread *t;
	bool report_pending, found;
	int rc = 0;

	t = enter(w, &rc);
	if (!t)
		return rc;
	if (weir_unlikely(atomic_load_explicit(&w->first->woken, memory_order_relaxed)) &&
	    weir_waker_take(w))
		return -EAGAIN;
	if (weir_state(t->w) != WEIR_UP) {
		rc = come_back(t);
		if (rc == -EINTR || (!rc && weir_state(weir_now(w)) == WEIR_UP))
			return -EAGAIN;
		if (rc)
			return rc;
		/* a socket that has hung up, as is known, must not end each sleep */
		weir_thread_forget_socket(t);
		LIST_FOREACH(f, &t->foreign, next)
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, f->worker->rings_fd, NULL);
		weir_reconnect_timer(t, WEIR_REATTACH_MS);
		return 0;
	}
	report_pending = weir_thread_arm_all(t, &t->fd_waiter);
	t->fd_armed = true;
	/* look once more now that the flags are up, without taking anything */
	found = has_news(t);
	LIST_FOREACH(f, &t->foreign, next)
	if (has_news(f->worker) && f->own)
		found = true;
	found = found || atomic_load_explicit(&t->foreign_count, memory_order_relaxed) ||
		(t->table && weir_nodes_any(t));
	if (!found && !report_pending)
		return 0;
	weir_thread_disarm_fd(t);
	return -EAGAIN;
}

void
weir_thread_follow(struct weir_thread *t, struct weir_thread *p)
{
	weir_node_table_follow(t, p);
	weir_listeners_follow(t, p);
	weir_reconnects_follow(t, p);
}

void
weir_thread_ended(struct weir_thread *t)
{
	weir_node_table_free(t); /* a thread that watches keeps node events from the others */
}
