/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reconnecting. The program gets WEIR_EVENT_LOST; from then on only the address, the options and
 * the program's pointer are left of the connection, on a list of the thread that got the event.
 * That thread's weir_poll() tries to connect; the program does not know the new connection before
 * it is open.
 */
#include "model.h"
#include "reconnect.h"
#include "service.h"

#include "client/reason.h"
#include "client/wait.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MS 1000000u
#define MAX_MS 1000u /* default of max_ms */

struct weir_reconnect_state {
	LIST_ENTRY(weir_reconnect_state) next; /* while it is lost */
	struct weir_address address;
	struct weir_connect_options o;
	void *user;
	uint64_t cookie;
	struct weir_conn *attempt; /* NULL: none is under way */
	uint64_t due, until;	   /* ns */
	uint64_t pause;		   /* ns between the next try and the one after it */
	int status;		   /* of the last try */
	uint32_t turn;		   /* among the nodes that offer a service */
	bool tried;		   /* since it was lost */
};

static _Atomic uint64_t cookies = 1;

int
weir_reconnect_enable(struct weir_conn *c, const struct weir_address *address,
		      const struct weir_connect_options *o)
{
	c->reconnect_state = calloc(1, sizeof(*c->reconnect_state));
	if (!c->reconnect_state)
		return weir_fail(-ENOMEM, "no memory for a connection; free some");
	c->reconnect_state->address = *address;
	c->reconnect_state->o = *o;
	if (!o->reconnect.max_ms)
		c->reconnect_state->o.reconnect.max_ms = MAX_MS;
	return 0;
}

void
weir_reconnect_forget(struct weir_conn *c)
{
	if (c->is_attempt)
		c->reconnect_state->attempt = NULL;
	else
		free(c->reconnect_state);
	c->reconnect_state = NULL;
}

/* ---- timer ---- */

/* Without a timer a thread that sleeps tries late. */
void
weir_reconnect_timer(struct weir_thread *t, uint32_t ms)
{
	uint64_t then = weir_clock() + (uint64_t)ms * MS, at = UINT64_MAX;
	struct epoll_event e = {.events = EPOLLIN};
	struct itimerspec when = {0};
	const struct weir_reconnect_state *a;

	LIST_FOREACH(a, &t->lost_conns, next)
	if (!a->attempt && a->due < at)
		at = a->due;
	if (ms != UINT32_MAX && then < at)
		at = then;
	if (t->timer_fd < 0) {
		int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

		if (fd < 0)
			return;
		if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
			close(fd);
			return;
		}
		t->timer_fd = fd;
	}
	t->timer_at = at != UINT64_MAX ? at : 0;
	if (at != UINT64_MAX) {
		when.it_value.tv_sec = (time_t)(at / 1000000000u);
		when.it_value.tv_nsec = (long)(at % 1000000000u);
	}
	timerfd_settime(t->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Sets the time of the next try. */
static void
put_off(struct weir_reconnect_state *a, uint64_t now)
{
	uint64_t most = (uint64_t)a->o.reconnect.max_ms * MS;

	a->due = now + a->pause;
	if (a->due > a->until)
		a->due = a->until;
	a->pause = a->pause ? a->pause * 2 : MS;
	if (a->pause > most)
		a->pause = most > MS ? most : MS;
}

/* ---- tries ---- */

bool
weir_reconnect_begin(struct weir_thread *t, struct weir_conn *c, int status, uint64_t *cookie)
{
	struct weir_reconnect_state *a = c->reconnect_state;
	uint64_t now = weir_clock();
	uint32_t cause = 0;

	weir_assert(c->state == CONN_ENDED && !c->is_attempt);
	if (status == -ENODEV)
		cause = WEIR_AGAIN_RESTART;
	else if (status == -ECONNRESET || status == -EHOSTDOWN || status == -ETIMEDOUT)
		cause = WEIR_AGAIN_LOSS;
	if (!a->cookie || !(a->o.reconnect.on & cause)) /* cookie 0: it never was open */
		return false;
	c->reconnect_state = NULL;
	a->user = c->user;
	a->status = status;
	a->turn = 0;
	a->tried = false;
	a->until =
	    a->o.reconnect.total_ms ? now + (uint64_t)a->o.reconnect.total_ms * MS : UINT64_MAX;
	a->pause = (uint64_t)a->o.reconnect.first_ms * MS;
	put_off(a, now);
	LIST_INSERT_HEAD(&t->lost_conns, a, next);
	weir_reconnect_timer(t, UINT32_MAX);
	*cookie = a->cookie;
	return true;
}

void
weir_reconnect_opened(struct weir_conn *c)
{
	c->reconnect_state->cookie = atomic_fetch_add_explicit(&cookies, 1, memory_order_relaxed);
}

bool
weir_reconnect_tried(struct weir_thread *t, struct weir_conn *c)
{
	struct weir_reconnect_state *a = c->reconnect_state;

	weir_assert(c->is_attempt && a->attempt == c);
	if (c->pending & PENDING_OPENED || !(c->pending & PENDING_CLOSED)) {
		LIST_REMOVE(a, next);
		a->attempt = NULL;
		c->is_attempt = false;
		c->user = a->user;
		return false;
	}
	a->status = c->end;
	put_off(a, weir_clock());
	weir_reconnect_forget(c);
	c->is_attempt = false;
	weir_conn_close(c);
	weir_reconnect_timer(t, UINT32_MAX);
	return true;
}

static void
try_one(struct weir_thread *t, struct weir_reconnect_state *a)
{
	struct weir_found found[WEIR_FOUND_MAX];
	struct weir_address to = a->address;
	struct weir_conn *c;
	int rc = weir_state(t->w) == WEIR_UP ? 0 : -ENODEV, count;

	a->tried = true;
	/* the nodes that offer a public service take turns, the best one first */
	if (!rc && to.kind == WEIR_ADDRESS_SERVICE) {
		count = weir_service_best(t->w, to.service, found);
		if (count > 0) {
			to.kind = WEIR_ADDRESS_NODE;
			to.id = found[a->turn++ % (uint32_t)count].node;
		} else {
			rc = count ? count : -ECONNREFUSED;
		}
	}
	if (!rc) {
		weir_lock(t);
		rc = weir_conn_start(t, &to, &a->o, &c);
		if (!rc) {
			c->reconnect_state = a;
			c->is_attempt = true;
			a->attempt = c;
		}
		weir_unlock(t);
	}
	if (rc) {
		a->status = rc;
		put_off(a, weir_clock());
	}
}

unsigned
weir_reconnect_step(struct weir_thread *t, struct weir_event *events, unsigned n)
{
	uint64_t now = weir_clock();
	struct weir_reconnect_state *a, *next;
	unsigned got = 0;
	bool any = t->timer_at && now >= t->timer_at;

	for (a = LIST_FIRST(&t->lost_conns); a; a = next) {
		next = LIST_NEXT(a, next);
		if (a->attempt || a->due > now)
			continue;
		any = true;
		/* at least one try, however late the call */
		if (now < a->until || !a->tried) {
			try_one(t, a);
		} else if (got < n) {
			events[got++] = (struct weir_event){
			    .type = WEIR_EVENT_CLOSED, .status = a->status, .user = a->user};
			LIST_REMOVE(a, next);
			free(a);
		}
	}
	if (any)
		weir_reconnect_timer(t, UINT32_MAX);
	return got;
}

/* The thread is attached again: the tries begin. */
void
weir_reconnects_follow(struct weir_thread *t, struct weir_thread *p)
{
	struct weir_reconnect_state *a;

	while ((a = LIST_FIRST(&p->lost_conns))) {
		LIST_REMOVE(a, next);
		LIST_INSERT_HEAD(&t->lost_conns, a, next);
		if (a->status == -ENODEV && !a->attempt) {
			a->pause = (uint64_t)a->o.reconnect.first_ms * MS;
			put_off(a, weir_clock());
		}
	}
	if (p->timer_fd >= 0)
		close(p->timer_fd);
	p->timer_fd = -1;
	if (!LIST_EMPTY(&t->lost_conns))
		weir_reconnect_timer(t, UINT32_MAX);
}

void
weir_reconnects_free(struct weir_thread *t)
{
	struct weir_reconnect_state *a;

	while ((a = LIST_FIRST(&t->lost_conns))) {
		LIST_REMOVE(a, next);
		if (a->attempt) {
			a->attempt->reconnect_state = NULL;
			a->attempt->is_attempt = false;
		}
		free(a);
	}
}

int
weir_reconnect_cancel(struct weir *w, uint64_t cookie)
{
	struct weir_thread *t, *worker;
	struct weir_reconnect_state *a;

	w = weir_now(w);
	if (weir_state(w) == WEIR_FORKED)
		return weir_gone(w);
	t = weir_thread_get(w);
	a = t ? LIST_FIRST(&t->lost_conns) : NULL;
	while (a && a->cookie != cookie)
		a = LIST_NEXT(a, next);
	if (!a)
		return weir_fail(-ENOENT, "this thread reconnects nothing under this cookie; give "
					  "that of a WEIR_EVENT_LOST");
	LIST_REMOVE(a, next);
	if (a->attempt) {
		worker = a->attempt->worker;
		weir_lock(worker);
		a->attempt->reconnect_state = NULL;
		a->attempt->is_attempt = false;
		weir_conn_close(a->attempt);
		weir_unlock(worker);
	}
	free(a);
	return 0;
}
