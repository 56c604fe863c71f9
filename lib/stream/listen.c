/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening and accepting. */
#include "stream/conn.h"
#include "stream/service.h"

#include <stdio.h>
#include <stdlib.h>

/* A connection of a peer is accepted on the channel of the engine where it ends: one to each. */
static int
get_channels(struct weir_thread *t, struct weir_session_msg *m)
{
	for (uint32_t i = 0; i < t->w->geometry.engines; i++) {
		struct weir_channel *ch;
		int rc = weir_channel_get(t, i, &ch);

		if (rc)
			return rc;
		m->listen.channel[i] = ch->index;
	}
	return 0;
}

static int
start(struct weir_thread *t, struct weir_session_msg *m, struct weir_listener *l)
{
	struct weir_session_msg r;
	int fds[2], rc;

	rc = get_channels(t, m);
	if (!rc)
		rc = weir_request(t->w, m, WEIR_MSG_LISTENING, &r, fds);
	if (rc)
		return rc;
	l->id = r.listening.listener;
	LIST_INSERT_HEAD(&t->listening, l, in_home);
	atomic_fetch_add_explicit(&t->users, 1, memory_order_relaxed);
	return 0;
}

int
weir_listen_with(struct weir *w, const char *service, const struct weir_listen_options *o,
		 struct weir_listener **listener)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_LISTEN);
	struct weir_listener *l;
	struct weir_thread *t;
	int n, rc;

	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	n = snprintf(m.listen.service, sizeof(m.listen.service), "%s", service ? service : "");
	if (n <= 0 || (size_t)n >= sizeof(m.listen.service))
		return weir_fail(-EINVAL,
				 "not a service name; give 1 to %u letters, digits, '_', '-', '.'",
				 WEIR_SERVICE_MAX - 1);
	static_assert(WEIR_LISTEN_KNOWN == WEIR_LISTEN_PUBLIC, "the same bit");
	if (o && o->flags & ~WEIR_LISTEN_PUBLIC)
		return weir_fail(-EINVAL, "unknown flag; only WEIR_LISTEN_PUBLIC is known");
	if (o && o->flags && w->version < WEIR_SESSION_SERVICES)
		return weir_no_services();
	m.listen.backlog = o ? o->backlog : 0;
	m.listen.flags = o ? o->flags : 0;
	t = weir_thread_get(w);
	l = t ? calloc(1, sizeof(*l)) : NULL;
	if (!l)
		return weir_fail(t ? -ENOMEM : -errno,
				 "no resources for a listener; raise the limits of memory and "
				 "files");
	l->home = t;
	TAILQ_INIT(&l->conns);
	weir_lock(t);
	rc = start(t, &m, l);
	weir_unlock(t);
	if (rc) {
		free(l);
		return rc;
	}
	*listener = l;
	return 0;
}

int
weir_listen(struct weir *w, const char *service, unsigned backlog, struct weir_listener **listener)
{
	const struct weir_listen_options o = {.backlog = backlog};

	return weir_listen_with(w, service, &o, listener);
}

void
weir_listener_took(struct weir_listener *l)
{
	struct weir_arena_head *head = (struct weir_arena_head *)l->home->w->arena;

	/* the data plane counts from here how many wait */
	atomic_fetch_add_explicit(&head->accepted[l->id % WEIR_LISTENERS], 1, memory_order_relaxed);
}

static int
try_accept(struct weir_listener *l, struct weir_conn **conn)
{
	struct weir_thread *t = l->home;
	struct weir_conn *c;
	int rc;

	weir_lock(t);
	weir_drive(t, NULL);
	c = TAILQ_FIRST(&l->conns);
	if (!c) {
		weir_unlock(t);
		return -EAGAIN;
	}
	TAILQ_REMOVE(&l->conns, c, in_accept);
	weir_listener_took(l);
	c->listener = NULL;
	if (l->queued && TAILQ_EMPTY(&l->conns)) {
		TAILQ_REMOVE(&t->accepts, l, in_accepts);
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

int
weir_accept(struct weir_listener *l, int timeout_ms, struct weir_conn **conn)
{
	struct weir_wait wait;
	int rc;

	if (weir_state(l->home->w) != WEIR_UP)
		return weir_gone(l->home->w);
	weir_wait_init(&wait, l->home, timeout_ms);
	while ((rc = try_accept(l, conn)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc;
}

void
weir_listener_free(struct weir_listener *l)
{
	struct weir_thread *t = l->home;
	struct weir_conn *c;

	while ((c = TAILQ_FIRST(&l->conns))) {
		TAILQ_REMOVE(&l->conns, c, in_accept);
		weir_listener_took(l);
		c->listener = NULL;
		weir_conn_close(c);
	}
	if (l->queued)
		TAILQ_REMOVE(&t->accepts, l, in_accepts);
	LIST_REMOVE(l, in_home);
	atomic_fetch_sub_explicit(&t->users, 1, memory_order_relaxed);
	free(l);
}

void
weir_listener_close(struct weir_listener *l)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_UNLISTEN), r;
	struct weir_thread *t;
	int fds[2];

	if (!l || weir_state(l->home->w) == WEIR_FORKED)
		return;
	t = l->home;
	m.listening.listener = l->id;
	weir_lock(t);
	if (weir_state(t->w) == WEIR_UP)
		weir_request(t->w, &m, WEIR_MSG_OK, &r, fds);
	weir_drive(t, NULL);
	weir_listener_free(l);
	weir_unlock(t);
}
