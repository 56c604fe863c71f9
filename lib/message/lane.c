/* SPDX-License-Identifier: BSD-3-Clause */
/* Senders and their lanes, made by a thread's first message to a node and ended with either. */
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "pool.h"
#include "request.h"
#include "room.h"
#include "sender.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define HELLO_NS 100000000u /* to wait for the HELLO of the first lane to a node */

__thread struct sender_latest sender_last;

/* ---- senders ---- */

/* The sender that fewest threads share. m->lock. */
static struct sender *
find_shared(struct weir_messenger *m)
{
	struct sender *s, *best = NULL;

	TAILQ_FOREACH(s, &m->senders, next)
	if (s->users && s->worker->w == m->w && (!best || s->users < best->users))
		best = s;
	return best;
}

/* m->lock. NULL: *rc says why. */
static struct sender *
sender_make(struct weir_messenger *m, int *rc)
{
	struct weir_thread *t = weir_thread_own(m->w, rc);
	struct weir_channel *ch;
	struct sender *s;

	weir_assert(is_locked(&m->lock));
	if (!t)
		return NULL;
	/* one that a thread which has ended left behind on the same worker */
	TAILQ_FOREACH(s, &m->senders, next)
	if (s->worker == t)
		return s;
	if (m->sender_count >= m->o.lanes && find_shared(m))
		return find_shared(m);
	weir_lock(t);
	*rc = weir_channel_get(t, UINT32_MAX, &ch);
	weir_unlock(t);
	if (*rc) { /* no channel for another thread */
		s = find_shared(m);
		*rc = s ? 0 : *rc;
		return s;
	}
	s = aligned_alloc(64, WEIR_ALIGN_UP(sizeof(*s), 64));
	if (!s) {
		*rc = weir_fail(-ENOMEM, "no memory for a thread that sends; free some");
		return NULL;
	}
	memset(s, 0, sizeof(*s));
	s->m = m;
	s->index = m->sender_count;
	s->worker = t;
	s->life = t->w->life;
	completions_init(&s->done);
	s->slot_free = UINT32_MAX;
	SLIST_INIT(&s->spares);
	TAILQ_INSERT_TAIL(&m->senders, s, next);
	m->sender_count++;
	return s;
}

struct sender *
sender_get(struct weir_messenger *m, int *rc)
{
	struct sender *s = sender_latest(m), *former;

	if (s)
		return s;
	*rc = messenger_follow(m);
	if (*rc)
		return NULL;
	s = former = pthread_getspecific(m->key);
	if (!s || s->worker->w != m->w) {
		pthread_mutex_lock(&m->lock);
		s = sender_make(m, rc);
		if (s && former && former->users == 1 && completions_move(former, s)) {
			*rc = weir_fail(-ENOMEM, "no memory for a thread that sends; free some");
			s = NULL;
		}
		if (s) {
			s->users++;
			if (former)
				former->users--;
		}
		pthread_mutex_unlock(&m->lock);
		if (!s)
			return NULL;
		pthread_setspecific(m->key, s);
	}
	sender_last = (struct sender_latest){m->serial, s};
	return s;
}

/* The thread ends, and its lanes do unless others use them. */
void
sender_leave(void *arg)
{
	struct sender *s = arg;
	struct weir_messenger *m = s->m;
	struct handler_thread *guest;

	if (weir_state(m->w) == WEIR_FORKED)
		return;
	guest = guest_own(m);
	if (guest)
		guest_leave(guest);
	pthread_mutex_lock(&m->lock);
	weir_assert(s->users);
	model_thread_ends(m); /* also if others use its connections to programs */
	if (!--s->users) {
		requests_cancel(s, UINT32_MAX);
		for (uint32_t i = 0; i < NODES; i++) {
			if (!s->page[i / NODE_PAGE])
				i += NODE_PAGE - 1;
			else if (s->page[i / NODE_PAGE][i % NODE_PAGE])
				lane_finish(s->page[i / NODE_PAGE][i % NODE_PAGE]);
		}
	}
	pthread_mutex_unlock(&m->lock);
}

/* ---- making ---- */

int
messenger_gone(const struct weir_messenger *m)
{
	int rc = weir_gone(m->w);

	return rc == -ENODEV
		   ? weir_fail(rc, "the data plane is gone, and what was under way with it; "
				   "weir_reattach() when it is back, then send again")
		   : rc;
}

int
messenger_follow(struct weir_messenger *m)
{
	struct weir *former = m->w, *w = weir_now(former);

	if (weir_likely(weir_state(former) == WEIR_UP))
		return 0;
	if (weir_state(w) != WEIR_UP)
		return messenger_gone(m);
	pthread_mutex_lock(&m->lock);
	if (m->w == former) {
		peers_lost(m, weir_loss(former));
		m->w = w;
		m->sender_count = 0;
		pool_call(m);
	}
	pthread_mutex_unlock(&m->lock);
	return 0;
}

bool
messenger_speaks(struct weir_messenger *m, const struct message_header *hello)
{
	struct weir_versions its = message_hello_versions(hello);

	if (weir_version_choose(MESSAGE_VERSIONS, its, "", "", "", NULL))
		return true;
	atomic_store_explicit(&m->foreign, (uint64_t)its.lowest << 32 | its.highest,
			      memory_order_relaxed);
	return false;
}

int
message_error(const struct weir_messenger *m, int rc)
{
	char why[WEIR_VERSION_WHY] = "the other node speaks another version of messages; install "
				     "one release on both";
	uint64_t foreign;

	if (rc == -ENODEV ||
	    (rc == -ECONNABORTED && weir_state(m->w) != WEIR_UP && rc == weir_loss(m->w)))
		return messenger_gone(m);
	switch (rc) {
	case -ECONNABORTED:
	case -ECONNRESET:
	case -EHOSTDOWN:
	case -EPIPE:
	case -ESHUTDOWN:
		return weir_fail(-EHOSTUNREACH, "the connection to the node is lost; what was "
						"under way may not have arrived, send again");
	case -EPROTONOSUPPORT:
		foreign = atomic_load_explicit(&m->foreign, memory_order_relaxed);
		weir_version_choose(
		    MESSAGE_VERSIONS,
		    (struct weir_versions){(uint32_t)(foreign >> 32), (uint32_t)foreign},
		    "messages", "the messenger here", "the other node's", why);
		return weir_fail(rc, "%s", why);
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
	lane->hello_due = true;
	atomic_store_explicit(&lane->incarnation, 0, memory_order_relaxed);
	lane->client = lane->hello_received = lane->bye_sent = lane->named = false;
	lane->finishing = false;
	lane->at = NULL;
	lane->handle = NULL;
	lane->receiver = MESSAGE_HANDLERS;
	lane->key = lane->made = 0;
	lane->bare = 0;
	atomic_store_explicit(&lane->malformed, 0, memory_order_relaxed);
	atomic_store_explicit(&lane->receivers, 0, memory_order_relaxed);
	atomic_store_explicit(&lane->bye_received, 0, memory_order_relaxed);
	atomic_store_explicit(&lane->used, atomic_load_explicit(&m->epoch, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&lane->outstanding, 0, memory_order_relaxed);
	TAILQ_INSERT_TAIL(&p->lanes, lane, in_peer);
	return lane;
}

static void
lane_attach(struct lane *lane, struct weir_conn *c)
{
	weir_conn_unready(c); /* from the list of the program's connections */
	c->lane = (struct weir_lane *)lane;
	if (c->pending)
		weir_conn_report(c, 0);
	c->threshold = (uint8_t)lane->m->o.threshold;
	if (c->local && c->pipe)
		weir_conn_set_due_at(c, c->window / 100 * c->threshold);
	lane->conn = c;
}

static struct message_header
hello_header(const struct weir_messenger *m)
{
	bool client = m->o.flags & WEIR_MESSENGER_CLIENT;

	return (struct message_header){
	    .kind = KIND_HELLO,
	    .type = MESSAGE_VERSION,
	    .status = MESSAGE_HELLO_STATUS(client ? 0 : m->receivers, MESSAGE_VERSION),
	    .id = m->incarnation};
}

static int
no_memory(void)
{
	return weir_fail(-ENOMEM, "no memory for a connection; free some");
}

/* Connects to a receiver of the peer: its handler thread k, or a guest. m->lock. */
static int
start(struct sender *s, struct peer *p, uint32_t receiver, uint32_t k, struct weir_conn **c)
{
	struct weir_connect_options o = {.size = sizeof(o), .window = s->m->o.window};
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE, .id = messenger_node(s->m, p->node)};

	messenger_name(s->m, p->node, receiver, k, a.service);
	return weir_conn_start(s->worker, &a, &o, c);
}

/* Begins to connect a lane to a receiver of the peer: its handler thread k, or a guest. `at`: where
 * threads of s find it; NULL: nowhere. m->lock and worker. */
static int
make_at(struct sender *s, struct peer *p, uint32_t receiver, uint32_t k, enum lane_use use,
	struct lane **at)
{
	struct weir_conn *c;
	struct lane *lane;
	int rc = start(s, p, receiver, k, &c);

	if (rc)
		return rc;
	lane = SLIST_FIRST(&s->spares);
	if (lane)
		SLIST_REMOVE_HEAD(&s->spares, spare);
	lane = lane_take(s->m, p, s->worker, s, lane);
	if (!lane) {
		weir_conn_close(c);
		return no_memory();
	}
	lane_attach(lane, c);
	lane->receiver = receiver;
	lane->named = !k && receiver == MESSAGE_HANDLERS;
	lane->made = ++p->made;
	if (use == LANE_PROBE) {
		p->probe = lane;
		return 0;
	}
	/* only the program that has the key can say BYE for the lane; 0: none can */
	if (getrandom(&lane->key, sizeof(lane->key), 0) != sizeof(lane->key))
		lane->key = 0;
	lane->at = at;
	if (at)
		*at = lane;
	if (lane->named && !p->named)
		p->named = weir_clock();
	return 0;
}

int
lane_make(struct sender *s, struct peer *p, enum lane_use use)
{
	struct lane ***page = &s->page[p->node / NODE_PAGE], **at = NULL;
	uint32_t k = use == LANE_PROBE ? 0 : s->index % p->threads;
	int rc = 0;

	weir_assert(is_locked(&s->m->lock));
	weir_lock(s->worker);
	if (use == LANE_SENDS) {
		if (!*page)
			*page = calloc(NODE_PAGE, sizeof(**page));
		at = *page ? &(*page)[p->node % NODE_PAGE] : NULL;
		rc = at ? 0 : no_memory();
	}
	if (!rc)
		rc = make_at(s, p, MESSAGE_HANDLERS, k, use, at);
	weir_unlock(s->worker);
	return rc;
}

static bool
has_former(const struct message_lane *to, const struct peer *p)
{
	const struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	if (lane->handle == to)
		return true;
	return false;
}

/* The same for a model's lane. m->lock. */
static int
make_for(struct message_lane *to, struct peer *p)
{
	struct sender *s = to->sender;
	uint32_t k = to->receiver == MESSAGE_HANDLERS ? s->index % p->threads : 0;
	int rc;

	if (weir_unlikely(to->renewed) && has_former(to, p))
		return -EAGAIN;
	to->renewed = false;
	weir_lock(s->worker);
	rc = make_at(s, p, to->receiver, k, LANE_SENDS, &to->now);
	if (!rc)
		to->now->handle = to;
	weir_unlock(s->worker);
	return rc;
}

/* On a lane that was accepted; `all`: not only its head. Worker locked. */
static int
say_hello(struct lane *lane, bool all)
{
	struct message_header h = hello_header(lane->m);
	struct iovec parts[3] = {{&h, HEADER_LONG}};
	struct message_hello_process own;
	size_t more = all ? model_hello(lane, &own, parts + 1) : 0;

	return lane_say(lane, parts, more ? 3 : 1, HEADER_LONG + more);
}

void
lane_answer(struct lane *lane, bool all)
{
	int rc = 0;

	weir_assert(is_locked(&lane->m->lock) && lane->m->model && !lane->sender && lane->conn);
	weir_lock(lane->worker);
	if (!lane->closing)
		rc = say_hello(lane, all);
	weir_unlock(lane->worker);
	if (rc == -ENOMEM)
		lane_end(lane, rc);
}

int
lane_accept(struct handler_thread *k, struct peer *p, struct weir_conn *c)
{
	struct lane *lane = SLIST_FIRST(&k->spares);
	int rc = 0;

	weir_assert(is_locked(&k->m->lock));
	if (lane)
		SLIST_REMOVE_HEAD(&k->spares, spare);
	weir_lock(k->worker);
	lane = lane_take(k->m, p, k->worker, NULL, lane);
	if (lane) {
		lane_attach(lane, c);
		lane->accepted = weir_clock();
		lane->hello_due = false;
		lane->receiver = k->is_guest ? k->index : MESSAGE_HANDLERS;
		/* a model's hello is told to those that have said it: lane_answer() */
		if (!k->m->model)
			rc = say_hello(lane, true);
		/* it may have ended, or have messages, already */
		lane_resume(lane);
	}
	weir_unlock(k->worker);
	if (!lane) {
		weir_close(c);
		return no_memory();
	}
	p->incoming++;
	/* the other end would wait for HELLO; a connection that has ended may have messages */
	if (rc == -ENOMEM)
		lane_end(lane, rc);
	return 0;
}

/* ---- ending ---- */

/* Its thread sends nothing more on it. Worker locked. */
static void
forget(struct lane *lane)
{
	if (lane->at && *lane->at == lane)
		*lane->at = NULL;
	lane->at = NULL;
}

void
lane_withdraw(struct lane *lane)
{
	weir_assert(is_locked(&lane->m->lock));
	if (!lane->sender)
		return;
	weir_lock(lane->worker);
	forget(lane);
	weir_unlock(lane->worker);
}

void
lane_finish(struct lane *lane)
{
	bool open;

	weir_assert(is_locked(&lane->m->lock) && lane->sender);
	weir_lock(lane->worker);
	forget(lane);
	open = lane->conn && !lane->hello_due && lane->conn->state == CONN_OPEN;
	weir_unlock(lane->worker);
	if (!lane->finishing && (!open || weir_shutdown(lane->conn)))
		lane_end(lane, 0);
	lane->finishing = true;
}

/* The model's lane has lost this connection. Worker locked. */
static __attribute__((noinline)) void
tell_handle(struct lane *lane, int status)
{
	const struct message_model *model = lane->m->model;

	/* the other end closes a connection of ours that is finishing once it has taken all */
	if (lane->finishing && status == -ESHUTDOWN)
		status = 0;
	model->ended(lane->handle, status ? message_error(lane->m, status) : 0, model->user);
}

/* How a lane of a model that we end has ended for its messages. Worker locked. */
static __attribute__((noinline)) int
lane_loss(const struct lane *lane)
{
	const struct weir_conn *c = lane->conn;

	if (lane->hello_due)
		return 0;
	if (c->state == CONN_ENDED)
		return c->end;
	/* a complete message has been delivered, but may not have been taken. HELLO alone is no
	 * message of the model */
	return c->sent > 1 ? -ECONNRESET : 0;
}

void
lane_end(struct lane *lane, int status)
{
	struct weir_messenger *m = lane->m;
	struct sender *s = lane->sender;
	struct lane_spares *spares;
	bool closed;

	weir_assert(is_locked(&m->lock));
	weir_lock(lane->worker);
	if (!lane->conn) {
		weir_unlock(lane->worker);
		return;
	}
	if (s && lane->handle && !status)
		status = lane_loss(lane);
	/* the program over there closed it without having taken all that was sent */
	if (s && status == -ESHUTDOWN && lane->conn->completed < lane->conn->sent)
		status = -ECONNRESET;
	if (s) {
		forget(lane);
		if (lane->handle)
			tell_handle(lane, status);
		lane->handle = NULL;
		requests_end(lane, status ? message_error(m, status) : -ECANCELED);
		if (status && status != -ESHUTDOWN && !lane_is_former(lane))
			peer_unflushed(lane);
	}
	/* threads that wait to send on it, or have a message of it in hand, see the end first */
	lane->closing = lane->pins || lane->running;
	if (lane->closing) {
		weir_conn_ended(lane->conn, ECONNRESET);
		room_forget(lane, lane->life);
	} else {
		if (s)
			lane_unsent(lane, status ? message_error(m, status) : -ECANCELED);
		weir_conn_close(lane->conn);
		lane->conn = NULL;
		while (lane->first)
			lane_unsay(lane);
		assembly_drop(lane);
		if (lane->state)
			m->model->dropped(lane->state, m->model->user);
		lane->state = NULL;
	}
	closed = !lane->conn;
	weir_thread_wake(lane->worker);
	weir_unlock(lane->worker);
	if (!closed)
		return;
	TAILQ_REMOVE(&lane->peer->lanes, lane, in_peer);
	peer_lane_gone(lane, status);
	spares = s ? &s->spares : &m->former;
	for (uint32_t i = 0; !s && i < m->receiving; i++)
		if (m->pool[i].worker == lane->worker)
			spares = &m->pool[i].spares;
	SLIST_INSERT_HEAD(spares, lane, spare);
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
	weir_assert(lane->pins);
	lane->pins--;
	last = lane->closing && !lane->pins && !lane->running;
	weir_unlock(lane->worker);
	if (last)
		lane_ended(lane, life, -ECONNRESET);
}

int
lane_pin_reply(struct lane *lane, uint64_t life)
{
	int rc = -EHOSTUNREACH;

	weir_lock(lane->worker);
	if (lane->life == life && lane->conn && !lane->closing) {
		lane->pins++;
		rc = 0;
	}
	weir_unlock(lane->worker);
	return rc ? weir_fail(rc, "the requester is gone; nothing is to be done") : 0;
}

int
lane_greet(struct lane *lane)
{
	struct message_header h = hello_header(lane->m);
	struct message_hello hello = {.key = lane->key};
	struct iovec parts[4] = {{&h, HEADER_LONG}, {&hello, sizeof(hello)}};
	struct message_hello_process own;
	struct weir_conn *c = lane->conn;
	size_t length;
	int rc;

	if (c->state == CONN_OPENING)
		weir_progress(lane->worker, NULL);
	if (c->state == CONN_OPENING)
		return -EAGAIN;
	if (c->state != CONN_OPEN)
		return c->state == CONN_ENDED ? weir_conn_failed(c, c->end) : -EPIPE;
	length = HEADER_LONG + sizeof(hello) + model_hello(lane, &own, parts + 2);
	rc = weir_send_now(c, parts, lane->m->model ? 4 : 2, length, NULL);
	if (!rc)
		lane->hello_due = false;
	return rc;
}

/* 0: pinned; -ENOENT: there is no lane; -EAGAIN: not open yet; or how it ended. */
static inline __attribute__((always_inline)) int
pin(struct sender *s, uint16_t node, const struct message_lane *to, struct lane **out, bool *opened)
{
	struct lane *lane;
	uint64_t life = 0;
	int rc = -ENOENT;

	weir_lock(s->worker);
	lane = to ? to->now : sender_lane(s, node);
	if (lane && lane->conn && !lane->closing) {
		*opened = lane->hello_due;
		life = lane->life;
		rc = lane->hello_due ? lane_greet(lane)
		     : lane->conn->state == CONN_ENDED
			 ? weir_conn_failed(lane->conn, lane->conn->end)
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

/* Makes a lane to the node, or that of the model. 0, -EAGAIN: not now, or why not. */
static int
make(struct sender *s, uint16_t node, struct message_lane *to)
{
	bool guest = to && to->receiver != MESSAGE_HANDLERS;
	struct weir_messenger *m = s->m;
	struct peer *p;
	int rc;

	if (m->model && node >= m->model->process_count)
		return weir_fail(-EINVAL, "process %u of %u; give a number below that", node,
				 m->model->process_count);
	pthread_mutex_lock(&m->lock);
	p = peer_get(m, node);
	rc = p ? peer_use(m, p, false) : no_memory();
	if (!rc && !(to ? to->now : sender_lane(s, node))) {
		/*
		 * The peer tells whoever connects to its first name on how many it listens.
		 * Threads that begin to send at the same time wait HELLO_NS for that, so that they
		 * spread over all of them.
		 */
		if (!guest && !p->said_by && p->named && weir_clock() - p->named <= HELLO_NS) {
			peer_listen(p);
			/* it may have said BYE */
			rc = p->said_by && p->state == PEER_OPEN ? 0 : -EAGAIN;
		}
		if (!rc)
			rc = to ? make_for(to, p) : lane_make(s, p, LANE_SENDS);
	}
	if (rc && p)
		peer_unuse(m, p);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

/* `to`: the model's lane; NULL: that of s to the node. */
static inline __attribute__((always_inline)) int
pin_until(struct sender *s, uint16_t node, struct message_lane *to, int timeout_ms,
	  struct lane **lane)
{
	struct weir_messenger *m = s->m;
	struct weir_wait wait;
	bool opened = false, retry;
	struct peer *p;
	int rc;

	weir_wait_init(&wait, s->worker, timeout_ms);
	for (;;) {
		rc = pin(s, node, to, lane, &opened);
		if (rc == -ECONNREFUSED && (!to || to->receiver == MESSAGE_HANDLERS)) {
			/* the peer has fewer handler threads than it said: one is certain */
			pthread_mutex_lock(&m->lock);
			p = peer_get(m, node);
			retry = p && s->index % p->threads;
			if (retry)
				p->threads = 1;
			pthread_mutex_unlock(&m->lock);
			if (retry)
				continue;
		}
		if (rc == -ENOENT) {
			rc = make(s, node, to);
			if (!rc)
				continue;
			wait.nap_always = true; /* another connection closes first */
		}
		if (rc != -EAGAIN)
			break;
		pool_step(m);
		/* a connection that closes first may await responses to this thread */
		weir_lock(s->worker);
		sender_take(s, NULL);
		weir_unlock(s->worker);
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if (!rc && opened) {
		pthread_mutex_lock(&m->lock);
		peer_lane_open(*lane);
		pthread_mutex_unlock(&m->lock);
	}
	switch (rc) {
	case 0:
	case -EAGAIN:
		return rc;
	case -ECONNREFUSED:
		if (to)
			return weir_fail(rc,
					 "process %u has no such receiver now, or is not open; "
					 "let its thread enter",
					 node);
		return weir_fail(rc, "no messenger of that name is open on the node; start its "
				     "program");
	default:
		return message_error(m, rc);
	}
}

int
lane_pin(struct sender *s, uint16_t node, int timeout_ms, struct lane **lane)
{
	return pin_until(s, node, NULL, timeout_ms, lane);
}

int
lane_pin_for(struct message_lane *to, int timeout_ms, struct lane **lane)
{
	return pin_until(to->sender, to->process, to, timeout_ms, lane);
}
