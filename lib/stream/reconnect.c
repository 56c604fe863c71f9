/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that the library makes again. The program is told that one was lost; from then on
 * only its address, its options and the program's pointer are left, on a list of the thread that
 * was told. That thread's weir_poll() tries; a try is a connection that nobody knows until it is
 * open.
 */
#include "model.h"
#include "service.h"

#include "client/reason.h"
#include "client/wait.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MS 1000000u
#define MOST_MS 1000u /* max_ms, if it was left 0 */

struct weir_again {
	LIST_ENTRY(weir_again) next; /* while it is lost */
	struct weir_address address;
	struct weir_connect_options o;
	void *user;
	uint64_t cookie;
	struct weir_conn *trial; /* NULL: none is under way */
	uint64_t due, until;	 /* ns */
	uint64_t pause;		 /* ns: before the try after the next one */
	int status;		 /* of the last try */
	uint32_t turn;		 /* among the nodes that offer a service */
	bool tried;		 /* since it was lost */
};

static _Atomic uint64_t cookies = 1;

int
weir_again_wanted(struct weir_conn *c, const struct weir_address *address,
		  const struct weir_connect_options *o)
{
	c->again = calloc(1, sizeof(*c->again));
	if (!c->again)
		return weir_fail(-ENOMEM, "no memory for a connection; free some");
	c->again->address = *address;
	c->again->o = *o;
	if (!o->reconnect.max_ms)
		c->again->o.reconnect.max_ms = MOST_MS;
	return 0;
}

void
weir_again_forget(struct weir_conn *c)
{
	if (c->trying)
		c->again->trial = NULL;
	else
		free(c->again);
	c->again = NULL;
}

/* ---- when ---- */

static int
add_timer(struct weir_thread *t)
{
	struct epoll_event e = {.events = EPOLLIN};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
		close(fd);
		return -errno;
	}
	t->timer_fd = fd;
	return 0;
}

/* Without one a thread that sleeps for long tries late. */
static void
set_timer(struct weir_thread *t, uint64_t at)
{
	struct itimerspec when = {0};

	if (t->timer_fd < 0 && add_timer(t))
		return;
	t->timer_at = at != UINT64_MAX ? at : 0;
	if (at != UINT64_MAX) {
		when.it_value.tv_sec = (time_t)(at / 1000000000u);
		when.it_value.tv_nsec = (long)(at % 1000000000u);
	}
	timerfd_settime(t->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static uint64_t
next_due(const struct weir_thread *t)
{
	const struct weir_again *a;
	uint64_t at = UINT64_MAX;

	LIST_FOREACH(a, &t->agains, next)
	if (!a->trial && a->due < at)
		at = a->due;
	return at;
}

void
weir_again_timer(struct weir_thread *t, uint32_t ms)
{
	uint64_t at = next_due(t), then = weir_clock() + (uint64_t)ms * MS;

	set_timer(t, ms != UINT32_MAX && then < at ? then : at);
}

static void
put_off(struct weir_again *a, uint64_t now)
{
	uint64_t most = (uint64_t)a->o.reconnect.max_ms * MS;

	a->due = now + a->pause;
	if (a->due > a->until)
		a->due = a->until;
	a->pause = a->pause ? a->pause * 2 : MS;
	if (a->pause > most)
		a->pause = most > MS ? most : MS;
}

/* ---- what becomes of one ---- */

static bool
wanted(const struct weir_again *a, int status)
{
	switch (status) {
	case -ENODEV:
		return a->o.reconnect.on & WEIR_AGAIN_RESTART;
	case -ECONNRESET:
	case -EHOSTDOWN:
	case -ETIMEDOUT:
		return a->o.reconnect.on & WEIR_AGAIN_LOSS;
	}
	return false;
}

bool
weir_again_begin(struct weir_thread *t, struct weir_conn *c, int status, uint64_t *cookie)
{
	struct weir_again *a = c->again;
	uint64_t now = weir_clock();

	if (!a->cookie || !wanted(a, status)) /* never open, or not so */
		return false;
	c->again = NULL;
	a->user = c->user;
	a->status = status;
	a->turn = 0;
	a->tried = false;
	a->until =
	    a->o.reconnect.total_ms ? now + (uint64_t)a->o.reconnect.total_ms * MS : UINT64_MAX;
	a->pause = (uint64_t)a->o.reconnect.first_ms * MS;
	put_off(a, now);
	LIST_INSERT_HEAD(&t->agains, a, next);
	weir_again_timer(t, UINT32_MAX);
	*cookie = a->cookie;
	return true;
}

void
weir_again_opened(struct weir_conn *c)
{
	c->again->cookie = atomic_fetch_add_explicit(&cookies, 1, memory_order_relaxed);
}

bool
weir_again_tried(struct weir_thread *t, struct weir_conn *c)
{
	struct weir_again *a = c->again;

	if (c->pending & PENDING_OPENED || !(c->pending & PENDING_CLOSED)) {
		LIST_REMOVE(a, next);
		a->trial = NULL;
		c->trying = false;
		c->user = a->user;
		return false;
	}
	a->status = c->end;
	put_off(a, weir_clock());
	weir_again_forget(c);
	c->trying = false;
	weir_conn_close(c);
	weir_again_timer(t, UINT32_MAX);
	return true;
}

/* A service that any node may offer: those that do in turn, the best one first. 0 or -errno. */
static int
resolve(struct weir_thread *t, struct weir_again *a, struct weir_address *to)
{
	struct weir_found found[WEIR_FOUND_MAX];
	int count;

	*to = a->address;
	if (a->address.kind != WEIR_ADDRESS_SERVICE)
		return 0;
	count = weir_service_best(t->w, a->address.service, found);
	if (count <= 0)
		return count ? count : -ECONNREFUSED;
	to->kind = WEIR_ADDRESS_NODE;
	to->id = found[a->turn++ % (uint32_t)count].node;
	return 0;
}

static void
try_one(struct weir_thread *t, struct weir_again *a)
{
	struct weir_address to;
	struct weir_conn *c;
	int rc = weir_state(t->w) == WEIR_UP ? resolve(t, a, &to) : -ENODEV;

	a->tried = true;
	if (!rc) {
		weir_lock(t);
		rc = weir_conn_start(t, &to, &a->o, &c);
		if (!rc) {
			c->again = a;
			c->trying = true;
			a->trial = c;
		}
		weir_unlock(t);
	}
	if (rc) {
		a->status = rc;
		put_off(a, weir_clock());
	}
}

unsigned
weir_again_step(struct weir_thread *t, struct weir_event *events, unsigned n)
{
	uint64_t now = weir_clock();
	struct weir_again *a, *next;
	unsigned got = 0;
	bool any = t->timer_at && now >= t->timer_at;

	for (a = LIST_FIRST(&t->agains); a; a = next) {
		next = LIST_NEXT(a, next);
		if (a->trial || a->due > now)
			continue;
		any = true;
		/* who calls too late has one all the same */
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
		weir_again_timer(t, UINT32_MAX);
	return got;
}

/* Attached again: the tries begin. */
void
weir_agains_follow(struct weir_thread *t, struct weir_thread *p)
{
	struct weir_again *a;

	while ((a = LIST_FIRST(&p->agains))) {
		LIST_REMOVE(a, next);
		LIST_INSERT_HEAD(&t->agains, a, next);
		if (a->status == -ENODEV && !a->trial) {
			a->pause = (uint64_t)a->o.reconnect.first_ms * MS;
			put_off(a, weir_clock());
		}
	}
	if (p->timer_fd >= 0)
		close(p->timer_fd);
	p->timer_fd = -1;
	if (!LIST_EMPTY(&t->agains))
		weir_again_timer(t, UINT32_MAX);
}

void
weir_agains_free(struct weir_thread *t)
{
	struct weir_again *a;

	while ((a = LIST_FIRST(&t->agains))) {
		LIST_REMOVE(a, next);
		if (a->trial) {
			a->trial->again = NULL;
			a->trial->trying = false;
		}
		free(a);
	}
}

int
weir_reconnect_cancel(struct weir *w, uint64_t cookie)
{
	struct weir_thread *t, *worker;
	struct weir_again *a;

	w = weir_now(w);
	if (weir_state(w) == WEIR_FORKED)
		return weir_gone(w);
	t = weir_thread_get(w);
	a = t ? LIST_FIRST(&t->agains) : NULL;
	while (a && a->cookie != cookie)
		a = LIST_NEXT(a, next);
	if (!a)
		return weir_fail(-ENOENT, "nothing is made again under this cookie by this thread; "
					  "nothing is to be cancelled");
	LIST_REMOVE(a, next);
	if (a->trial) {
		worker = a->trial->worker;
		weir_lock(worker);
		a->trial->again = NULL;
		a->trial->trying = false;
		weir_conn_close(a->trial);
		weir_unlock(worker);
	}
	free(a);
	return 0;
}
