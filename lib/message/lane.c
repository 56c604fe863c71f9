/* SPDX-License-Identifier: BSD-3-Clause */
/* Senders and their lanes: made by a thread's first message to a node, ended with either. */
#include "lane.h"
#include "peer.h"
#include "pool.h"
#include "request.h"
#include "room.h"
#include "sender.h"

#include "client/reason.h"
#include "client/wait.h"
#include "stream/progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define WORD_NS 100000000u

__thread struct sender_latest sender_last;

/* ---- senders ---- */

/* One that a thread which has ended left behind on the same worker. m->lock. */
static struct sender *
find_left(struct weir_messenger *m, const struct weir_thread *t)
{
	struct sender *s;

	TAILQ_FOREACH(s, &m->senders, next)
	if (s->worker == t)
		return s;
	return NULL;
}

/* Shares with whom fewest share. m->lock. */
static struct sender *
find_shared(struct weir_messenger *m)
{
	struct sender *s, *best = NULL;

	TAILQ_FOREACH(s, &m->senders, next)
	if (s->users && (!best || s->users < best->users))
		best = s;
	return best;
}

/* m->lock. NULL: *rc says why. */
static struct sender *
sender_make(struct weir_messenger *m, int *rc)
{
	struct weir_thread *t = weir_thread_get(m->w);
	struct weir_channel *ch;
	struct sender *s;

	if (!t) {
		*rc = weir_fail(-errno,
				"no resources for another thread: %s; raise the limit of "
				"open files",
				strerror(errno));
		return NULL;
	}
	s = find_left(m, t);
	if (s)
		return s;
	if (m->sender_count >= m->o.lanes && find_shared(m))
		return find_shared(m);
	weir_lock(t);
	*rc = weir_channel_get(t, UINT32_MAX, &ch);
	weir_unlock(t);
	if (*rc) /* no channel for another thread */
		return find_shared(m);
	s = aligned_alloc(64, WEIR_ALIGN_UP(sizeof(*s), 64));
	if (!s) {
		*rc = weir_fail(-ENOMEM, "no memory for a thread that sends; free some");
		return NULL;
	}
	memset(s, 0, sizeof(*s));
	s->m = m;
	s->index = m->sender_count;
	s->worker = t;
	s->slot_free = UINT32_MAX;
	SLIST_INIT(&s->spares);
	TAILQ_INSERT_TAIL(&m->senders, s, next);
	m->sender_count++;
	return s;
}

static struct sender *
sender_find(struct weir_messenger *m, int *rc)
{
	struct sender *s = pthread_getspecific(m->key);

	if (!s) {
		pthread_mutex_lock(&m->lock);
		s = sender_make(m, rc);
		if (s)
			s->users++;
		pthread_mutex_unlock(&m->lock);
		if (!s)
			return NULL;
		pthread_setspecific(m->key, s);
	}
	sender_last = (struct sender_latest){m->serial, s};
	return s;
}

struct sender *
sender_get(struct weir_messenger *m, int *rc)
{
	struct sender *s = sender_latest(m);

	if (s)
		return s;
	if (weir_state(m->w) != WEIR_UP) {
		*rc = messenger_gone(m);
		return NULL;
	}
	return sender_find(m, rc);
}

/* The thread ends; its lanes do, unless others use them. */
void
sender_leave(void *arg)
{
	struct sender *s = arg;
	struct weir_messenger *m = s->m;

	if (weir_state(m->w) == WEIR_FORKED)
		return;
	pthread_mutex_lock(&m->lock);
	if (!--s->users) {
		requests_cancel(s, UINT32_MAX);
		for (uint32_t i = 0; i < NODES; i++) {
			if (!s->page[i / NODE_PAGE])
				i += NODE_PAGE - 1;
			else if (s->page[i / NODE_PAGE][i % NODE_PAGE])
				lane_end(s->page[i / NODE_PAGE][i % NODE_PAGE], 0);
		}
	}
	pthread_mutex_unlock(&m->lock);
}

/* ---- making ---- */

int
messenger_gone(const struct weir_messenger *m)
{
	int rc = weir_gone(m->w);

	return rc == -ENODEV ? weir_fail(rc, "this messenger has ended with its data plane; "
					     "weir_reattach(), close it and open another one")
			     : rc;
}

int
message_error(const struct weir_messenger *m, int rc)
{
	if (weir_is_loss(rc) && weir_state(m->w) != WEIR_UP && rc == weir_loss(m->w))
		return messenger_gone(m);
	switch (rc) {
	case -ECONNABORTED:
	case -ECONNRESET:
	case -EHOSTDOWN:
	case -EPIPE:
	case -ESHUTDOWN:
		return weir_fail(-EHOSTUNREACH, "the connection to the node is lost; what was "
						"under way may not have arrived, send again");
	case -ETIMEDOUT:
		return weir_fail(-EHOSTUNREACH, "no link to the node came up; see weirctl show "
						"nodes, qps");
	default:
		return rc;
	}
}

/* m->lock and worker. */
static struct lane *
lane_take(struct weir_messenger *m, struct peer *p, struct weir_thread *worker, struct sender *s,
	  struct lane *lane)
{
	if (!lane) {
		lane = calloc(1, sizeof(*lane));
		if (!lane)
			return NULL;
		lane->m = m;
		lane->worker = worker;
		lane->sender = s;
		lane->last = &lane->first;
	}
	lane->peer = p;
	lane->life++;
	lane->greet = true;
	atomic_store_explicit(&lane->incarnation, 0, memory_order_relaxed);
	lane->client = lane->greeted = lane->parted = lane->named = false;
	lane->key = lane->made = 0;
	atomic_store_explicit(&lane->spoilt, 0, memory_order_relaxed);
	atomic_store_explicit(&lane->hello, 0, memory_order_relaxed);
	atomic_store_explicit(&lane->asked, 0, memory_order_relaxed);
	atomic_store_explicit(&lane->used, atomic_load_explicit(&m->epoch, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&lane->outstanding, 0, memory_order_relaxed);
	TAILQ_INSERT_TAIL(&p->lanes, lane, in_peer);
	return lane;
}

static void
lane_attach(struct lane *lane, struct weir_conn *c)
{
	c->lane = (struct weir_lane *)lane;
	c->threshold = (uint8_t)lane->m->o.threshold;
	if (c->local && c->pipe)
		c->due_at = WEIR_SEGMENT_WINDOW / 100 * c->threshold;
	lane->conn = c;
}

static uint32_t
lane_threads(const struct weir_messenger *m)
{
	return m->o.flags & WEIR_MESSENGER_CLIENT ? 0 : m->receivers;
}

static struct message_header
hello_header(const struct weir_messenger *m)
{
	return (struct message_header){.kind = KIND_HELLO,
				       .type = MESSAGE_VERSION,
				       .status = lane_threads(m),
				       .id = m->incarnation};
}

static int
no_memory(void)
{
	return weir_fail(-ENOMEM, "no memory for a connection; free some");
}

/* Senders are spread over the peer's handler threads, each of which listens on a name. m->lock. */
static int
start(struct sender *s, struct peer *p, uint32_t k, struct weir_conn **c)
{
	struct weir_messenger *m = s->m;
	struct weir_connect_options o = {.window = m->o.window};
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE, .id = p->node};

	memcpy(a.service, m->service, sizeof(a.service));
	if (k)
		snprintf(a.service + strlen(a.service), sizeof(a.service) - strlen(a.service),
			 ".%u", k);
	return weir_conn_start(s->worker, &a, &o, c);
}

/* What proves to say BYE for the lane. */
static uint64_t
random_key(void)
{
	uint64_t key = 0;

	if (getrandom(&key, sizeof(key), 0) != sizeof(key))
		key = 0; /* nobody can, then */
	return key;
}

int
lane_make(struct sender *s, struct peer *p, bool probe)
{
	struct lane ***page = &s->page[p->node / NODE_PAGE], *lane;
	uint32_t k = probe ? 0 : s->index % p->threads;
	struct weir_conn *c;
	int rc;

	weir_lock(s->worker);
	if (!*page)
		*page = calloc(NODE_PAGE, sizeof(**page));
	rc = *page ? start(s, p, k, &c) : no_memory();
	if (rc)
		goto out;
	lane = SLIST_FIRST(&s->spares);
	if (lane)
		SLIST_REMOVE_HEAD(&s->spares, spare);
	lane = lane_take(s->m, p, s->worker, s, lane);
	if (!lane) {
		weir_conn_close(c);
		rc = no_memory();
		goto out;
	}
	lane_attach(lane, c);
	lane->named = !k;
	lane->made = ++p->made;
	if (probe) {
		p->probe = lane;
	} else {
		lane->key = random_key();
		(*page)[p->node % NODE_PAGE] = lane;
		if (!k && !p->named)
			p->named = weir_clock();
	}
out:
	weir_unlock(s->worker);
	return rc;
}

int
lane_accept(struct handler_thread *k, struct peer *p, struct weir_conn *c)
{
	struct message_header h = hello_header(k->m);
	struct iovec part = {&h, HEADER_LONG};
	struct lane *lane = SLIST_FIRST(&k->spares);

	if (lane)
		SLIST_REMOVE_HEAD(&k->spares, spare);
	weir_lock(k->worker);
	lane = lane_take(k->m, p, k->worker, NULL, lane);
	if (lane) {
		lane_attach(lane, c);
		lane->greet = false;
		lane_say(lane, &part, 1, HEADER_LONG);
		/* it may have ended, or have messages, already */
		lane_resume(lane);
	}
	weir_unlock(k->worker);
	if (!lane) {
		weir_close(c);
		return no_memory();
	}
	p->incoming++;
	return 0;
}

/* ---- ending ---- */

/* Nobody uses its connection any more: closes that. m->lock and worker. */
static void
lane_close(struct lane *lane)
{
	struct waiting *w;

	weir_conn_close(lane->conn);
	lane->conn = NULL;
	lane->doomed = false;
	while ((w = lane->first)) {
		lane->first = w->next;
		free(w);
	}
	lane->last = &lane->first;
	assembly_drop(lane);
}

/* m->lock. */
static void
lane_put_by(struct lane *lane, int status)
{
	struct weir_messenger *m = lane->m;

	TAILQ_REMOVE(&lane->peer->lanes, lane, in_peer);
	peer_lane_gone(lane, status);
	if (lane->sender)
		SLIST_INSERT_HEAD(&lane->sender->spares, lane, spare);
	else
		for (uint32_t i = 0; i < m->o.handler_threads; i++)
			if (m->pool[i].worker == lane->worker)
				SLIST_INSERT_HEAD(&m->pool[i].spares, lane, spare);
}

void
lane_end(struct lane *lane, int status)
{
	bool closed;

	weir_lock(lane->worker);
	if (!lane->conn) {
		weir_unlock(lane->worker);
		return;
	}
	if (lane->sender) {
		struct lane **at =
		    &lane->sender->page[lane->peer->node / NODE_PAGE][lane->peer->node % NODE_PAGE];

		if (*at == lane)
			*at = NULL;
		requests_end(lane, status ? message_error(lane->m, status) : -ECANCELED);
	}
	/* who waits to send on it, or for its next message, sees that first */
	lane->doomed = lane->pins || lane->running;
	if (lane->doomed) {
		weir_conn_ended(lane->conn, ECONNRESET);
		room_forget(lane, lane->life);
	} else {
		lane_close(lane);
	}
	closed = !lane->conn;
	weir_thread_wake(lane->worker, NULL);
	weir_unlock(lane->worker);
	if (closed)
		lane_put_by(lane, status);
}

void
lane_ended(struct lane *lane, uint64_t life, int status)
{
	struct weir_messenger *m = lane->m;

	pthread_mutex_lock(&m->lock);
	if (lane->life == life && lane->conn)
		lane_end(lane, status);
	pthread_mutex_unlock(&m->lock);
}

/* ---- pins ---- */

void
lane_unpin(struct lane *lane)
{
	uint64_t life = lane->life;
	bool last;

	weir_lock(lane->worker);
	lane->pins--;
	last = lane->doomed && !lane->pins && !lane->running;
	weir_unlock(lane->worker);
	if (last)
		lane_ended(lane, life, -ECONNRESET);
}

int
lane_pin_reply(struct lane *lane, uint64_t life)
{
	int rc = -EHOSTUNREACH;

	weir_lock(lane->worker);
	if (lane->life == life && lane->conn && !lane->doomed) {
		lane->pins++;
		rc = 0;
	}
	weir_unlock(lane->worker);
	return rc ? weir_fail(rc, "who asked has gone; nothing is to be done") : 0;
}

int
lane_greet(struct lane *lane)
{
	struct message_header h = hello_header(lane->m);
	struct message_hello hello = {.key = lane->key};
	struct iovec parts[2] = {{&h, HEADER_LONG}, {&hello, sizeof(hello)}};
	struct weir_conn *c = lane->conn;
	int rc;

	if (c->state == CONN_OPENING)
		weir_drive(lane->worker, NULL);
	if (c->state == CONN_OPENING)
		return -EAGAIN;
	if (c->state != CONN_OPEN)
		return c->state == CONN_ENDED ? c->end : -EPIPE;
	rc = weir_send_now(c, parts, 2, HEADER_LONG + sizeof(hello));
	if (!rc)
		lane->greet = false;
	return rc;
}

/* One look. 0: pinned; -ENOENT: there is no lane; -EAGAIN; or how it ended. */
static int
pin(struct sender *s, uint16_t node, struct lane **out, bool *opened)
{
	struct lane *lane;
	uint64_t life = 0;
	int rc = -ENOENT;

	weir_lock(s->worker);
	lane = sender_lane(s, node);
	if (lane && lane->conn && !lane->doomed) {
		*opened = lane->greet;
		life = lane->life;
		rc = lane->conn->state == CONN_ENDED ? lane->conn->end
		     : lane->greet		     ? lane_greet(lane)
						     : 0;
		if (!rc)
			lane->pins++;
		*out = lane;
	}
	weir_unlock(s->worker);
	if (rc && rc != -ENOENT && rc != -EAGAIN)
		lane_ended(lane, life, rc);
	return rc;
}

/*
 * The peer says on how many names it listens when somebody connects to the first one. Threads that
 * begin to send at the same time wait for that a moment, so that they are spread over all. m->lock.
 */
static bool
waits_for_word(struct peer *p)
{
	if (p->said_by || !p->named || weir_clock() - p->named > WORD_NS)
		return false;
	peer_listen(p);
	return !p->said_by;
}

static int
make(struct sender *s, uint16_t node)
{
	struct weir_messenger *m = s->m;
	struct peer *p;
	int rc;

	pthread_mutex_lock(&m->lock);
	p = peer_get(m, node);
	rc = p ? peer_use(m, p, false) : no_memory();
	if (!rc && !sender_lane(s, node))
		rc = waits_for_word(p) ? -EAGAIN : lane_make(s, p, false);
	if (rc && p)
		peer_unuse(m, p);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

/* The peer has fewer handler threads than it said: its first one is there for sure. */
static bool
one_thread(struct sender *s, uint16_t node)
{
	struct peer *p;
	bool more;

	pthread_mutex_lock(&s->m->lock);
	p = peer_get(s->m, node);
	more = p && s->index % p->threads;
	if (more)
		p->threads = 1;
	pthread_mutex_unlock(&s->m->lock);
	return more;
}

static int
not_opened(const struct weir_messenger *m, int rc)
{
	if (rc == -EHOSTUNREACH)
		return weir_fail(rc, "no such node, or no way to it; see weirctl show nodes");
	if (rc == -ECONNREFUSED)
		return weir_fail(rc, "no messenger of that name is open on the node; start its "
				     "program");
	return message_error(m, rc);
}

int
lane_pin(struct sender *s, uint16_t node, int timeout_ms, struct lane **lane)
{
	struct weir_wait wait;
	bool opened = false;
	int rc;

	weir_wait_init(&wait, s->worker, timeout_ms);
	for (;;) {
		rc = pin(s, node, lane, &opened);
		if (rc == -ECONNREFUSED && one_thread(s, node))
			continue;
		if (rc == -ENOENT) {
			rc = make(s, node);
			if (!rc)
				continue;
			wait.nap_always = true; /* another connection closes first */
		}
		if (rc != -EAGAIN)
			break;
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if (!rc && opened) {
		pthread_mutex_lock(&s->m->lock);
		peer_lane_open(*lane);
		pthread_mutex_unlock(&s->m->lock);
	}
	return rc && rc != -EAGAIN ? not_opened(s->m, rc) : rc;
}
