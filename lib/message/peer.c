/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logical connections: one per node, made of lanes both ways. The least recently used one makes
 * room; a connection closes in order, in steps that the first handler thread takes.
 */
#include "peer.h"
#include "lane.h"
#include "message.h"
#include "pool.h"
#include "sender.h"

#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define PROBE_NS 1000000000ull /* between probes of a peer */

/* m->lock. */
struct peer *
peer_get(struct weir_messenger *m, uint16_t node)
{
	struct peer ***page = &m->peers[node / NODE_PAGE], **at;

	weir_assert(is_locked(&m->lock));
	if (!*page)
		*page = calloc(NODE_PAGE, sizeof(**page));
	if (!*page)
		return NULL;
	at = &(*page)[node % NODE_PAGE];
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			return NULL;
		(*at)->node = node;
		(*at)->threads = 1;
		TAILQ_INIT(&(*at)->lanes);
	}
	return *at;
}

static void
tell(struct weir_messenger *m, struct peer *p, enum weir_link_event event, int status)
{
	struct event e = {.node = p->node, .link = event, .status = status};

	weir_assert(is_locked(&m->lock));
	p->told = event == WEIR_LINK_CREATED;
	if (p->told)
		m->created++;
	else
		m->lost++;
	event_add(m, &e);
}

/* ---- eviction ---- */

static uint32_t
outstanding(const struct peer *p)
{
	const struct lane *lane;
	uint32_t n = 0;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	n += atomic_load_explicit(&lane->outstanding, memory_order_relaxed);
	return n;
}

/* Whether requests are outstanding, or threads hold lanes of ours and may start some. */
static bool
in_use(const struct peer *p)
{
	struct lane *lane;
	bool held = false;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		if (!lane->sender)
			continue;
		weir_lock(lane->worker);
		held |= lane->pins;
		weir_unlock(lane->worker);
	}
	return held || outstanding(p);
}

static uint32_t
used(const struct peer *p)
{
	const struct lane *lane;
	uint32_t latest = p->used;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		uint32_t at = atomic_load_explicit(&lane->used, memory_order_relaxed);

		if ((int32_t)(at - latest) > 0)
			latest = at;
	}
	return latest;
}

/* A connection to it is about to open: to end it now would help nobody, again and again. */
static bool
is_opening(const struct peer *p)
{
	const struct lane *lane;
	bool opening = false;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		weir_lock(lane->worker);
		opening |= lane->conn && lane->conn->state == CONN_OPENING;
		weir_unlock(lane->worker);
	}
	return opening;
}

/* Closes an idle peer, or else a busy one; of these the least recently used. */
static void
evict(struct weir_messenger *m)
{
	struct peer *p, *best = NULL;
	uint32_t best_used = 0;
	bool best_busy = true;

	TAILQ_FOREACH(p, &m->open, in_open)
	{
		bool busy = outstanding(p);
		uint32_t at = used(p);

		if (!p->counts)
			continue;
		if (p->state != PEER_OPEN)
			return; /* one closes already */
		if (is_opening(p))
			continue;
		if (best &&
		    (busy > best_busy || (busy == best_busy && (int32_t)(at - best_used) >= 0)))
			continue;
		best = p;
		best_used = at;
		best_busy = busy;
	}
	if (!best)
		return;
	m->evicted++;
	peer_leave(m, best, PEER_LEAVING);
}

static void
peer_enter(struct peer *p, enum peer_state to)
{
	static const uint8_t legal[] = {
	    [PEER_DOWN] = 1u << PEER_OPEN,
	    [PEER_OPEN] = 1u << PEER_LEAVING | 1u << PEER_ASKED | 1u << PEER_DOWN,
	    [PEER_LEAVING] = 1u << PEER_BYE | 1u << PEER_DOWN,
	    [PEER_BYE] = 1u << PEER_LEAVING | 1u << PEER_DOWN,
	    [PEER_ASKED] = 1u << PEER_OPEN | 1u << PEER_DOWN,
	};

	weir_enter(legal, p->state, to);
}

/*
 * Whether both ends of the connection may be those of one thread of the program: the one that
 * drives the messenger, or a guest. While it waits for room, it handles no messages, and the
 * connection does not close before they are handled. So that one makes no room for another, and
 * needs none.
 */
static bool
is_own(const struct weir_messenger *m, const struct peer *p)
{
	uint16_t own = m->model ? m->model->self : weir_node(m->w);

	return ((m->driven && !(m->o.flags & WEIR_MESSENGER_CLIENT)) ||
		m->receiving > m->o.handler_threads) &&
	       own == p->node;
}

int
peer_use(struct weir_messenger *m, struct peer *p, bool must)
{
	weir_assert(is_locked(&m->lock));
	if (p->state == PEER_OPEN)
		return 0;
	if (p->state != PEER_DOWN && !must)
		return -EAGAIN;
	if (p->state == PEER_BYE) /* the new lane gets a BYE, too */
		peer_enter(p, PEER_LEAVING);
	if (p->state != PEER_DOWN)
		return 0;
	p->counts = !is_own(m, p);
	if (p->counts && m->counted >= m->o.connections) {
		evict(m);
		if (!must)
			return weir_fail(-EAGAIN, "the limit of connected nodes is reached and "
						  "none closed in time; raise `connections`");
	}
	m->connected++;
	m->counted += p->counts;
	peer_enter(p, PEER_OPEN);
	p->lost = 0;
	TAILQ_INSERT_TAIL(&m->open, p, in_open);
	/* lanes used from now on count as used later than all before */
	p->used = atomic_fetch_add_explicit(&m->epoch, 1, memory_order_relaxed) + 1;
	return 0;
}

/* Forgets which program the node runs: the next HELLO says. */
static void
unlearn(struct peer *p)
{
	p->threads = 1;
	p->incarnation = p->said_by = p->named = 0;
}

static void
down(struct weir_messenger *m, struct peer *p)
{
	if (p->state == PEER_DOWN)
		return;
	peer_enter(p, PEER_DOWN);
	weir_assert(m->connected && m->counted >= p->counts && TAILQ_EMPTY(&p->lanes));
	p->lives++;
	m->connected--;
	m->counted -= p->counts;
	TAILQ_REMOVE(&m->open, p, in_open);
	if (p->stepping)
		TAILQ_REMOVE(&m->stepping, p, in_stepping);
	p->stepping = false;
	/* the next program over there may be another one */
	unlearn(p);
	if (p->told)
		tell(m, p, WEIR_LINK_LOST, p->lost);
	pthread_cond_broadcast(&m->changed);
}

void
peer_unuse(struct weir_messenger *m, struct peer *p)
{
	weir_assert(is_locked(&m->lock));
	if (p->state == PEER_OPEN && TAILQ_EMPTY(&p->lanes))
		down(m, p);
}

/* ---- lanes ---- */

/* Nothing is learnt from it. */
bool
lane_is_former(const struct lane *lane)
{
	return weir_unlikely(lane->worker->w != lane->m->w);
}

void
peer_lane_open(struct lane *lane)
{
	struct peer *p = lane->peer;

	if (!lane->conn || lane->open || lane_is_former(lane))
		return;
	lane->open = true;
	if (!p->told)
		tell(lane->m, p, WEIR_LINK_CREATED, 0);
}

void
peer_lane_gone(struct lane *lane, int status)
{
	struct peer *p = lane->peer;
	uint32_t at = atomic_load_explicit(&lane->used, memory_order_relaxed);

	if ((int32_t)(at - p->used) > 0)
		p->used = at;
	weir_assert(lane->sender || p->incoming);
	p->incoming -= !lane->sender;
	lane->open = false;
	if (lane == p->probe)
		p->probe = NULL;
	/* 0, -ESHUTDOWN: closed in order, by us or by its program. How a client of the node ended
	 * is not how the connection to its messenger does */
	else if (status != -ESHUTDOWN && status && p->state == PEER_OPEN && !lane_is_former(lane) &&
		 (!lane->client || TAILQ_EMPTY(&p->lanes)))
		p->lost = status;
	if (TAILQ_EMPTY(&p->lanes))
		down(lane->m, p);
	else if (p->probe && TAILQ_FIRST(&p->lanes) == TAILQ_LAST(&p->lanes, lane_list))
		lane_end(p->probe, 0); /* no other lane is left to ask about */
	else if (p->stepping)
		pool_call(lane->m);
}

int
peer_adopt(struct lane *lane, uint16_t process)
{
	struct weir_messenger *m = lane->m;
	struct peer *p = peer_get(m, process);

	weir_assert(is_locked(&m->lock) && lane->peer == m->strangers && !lane->in.reserved);
	if (!p || peer_use(m, p, true))
		return -ENOMEM;
	TAILQ_REMOVE(&m->strangers->lanes, lane, in_peer);
	m->strangers->incoming--;
	TAILQ_INSERT_TAIL(&p->lanes, lane, in_peer);
	p->incoming++;
	lane->peer = p;
	return 0;
}

/*
 * The program that listens on the messenger's name over there is the peer, and no other: a HELLO
 * from a program of the node is no more than a claim. The program that answers when the name is
 * connected to has it.
 */
void
peer_hello(struct lane *lane, uint64_t incarnation, uint32_t threads)
{
	struct weir_messenger *m = lane->m;
	struct peer *p = lane->peer;
	uint64_t before = p->incarnation, its;
	struct lane *other, *next;

	if (lane_is_former(lane))
		return;
	/* several programs of a node may be clients, beside the one that listens */
	lane->client = !threads && !lane->sender;
	if (lane->client)
		return;
	atomic_store_explicit(&lane->incarnation, incarnation, memory_order_relaxed);
	if (!lane->named || lane->made <= p->said_by) {
		if (!p->incarnation)
			p->incarnation = incarnation;
		return;
	}
	p->said_by = lane->made;
	p->threads = threads && threads <= WEIR_HANDLER_THREADS_MAX ? threads : 1;
	p->incarnation = incarnation;
	/* another program than before */
	if (before && before != incarnation && p->told)
		tell(m, p, WEIR_LINK_LOST, -ECONNRESET);
	/* lanes that claim to be of another program end */
	for (other = TAILQ_FIRST(&p->lanes); other; other = next) {
		next = TAILQ_NEXT(other, in_peer);
		its = atomic_load_explicit(&other->incarnation, memory_order_relaxed);
		if (its && its != p->incarnation)
			lane_end(other, -ECONNRESET);
	}
	if (!p->told)
		tell(m, p, WEIR_LINK_CREATED, 0);
}

void
peer_unflushed(struct lane *lane)
{
	const struct weir_conn *c = lane->conn;

	/* HELLO alone is no message of the program */
	if (lane->sender && c && c->sent > 1 && c->completed < c->sent)
		lane->peer->unflushed = true;
}

void
peers_lost(struct weir_messenger *m, int status)
{
	struct lane *lane;
	struct peer *p;

	weir_assert(is_locked(&m->lock));
	/* lanes of the former session may stay for a while: they do not count any more */
	TAILQ_FOREACH(p, &m->open, in_open)
	{
		TAILQ_FOREACH(lane, &p->lanes, in_peer)
		{
			weir_lock(lane->worker);
			peer_unflushed(lane);
			weir_unlock(lane->worker);
		}
		if (p->told)
			tell(m, p, WEIR_LINK_LOST, status);
		p->lost = 0;
		unlearn(p);
	}
}

/* ---- closing ---- */

void
peer_leave(struct weir_messenger *m, struct peer *p, enum peer_state state)
{
	struct lane *lane;

	weir_assert(is_locked(&m->lock));
	if (p->state != PEER_OPEN)
		return;
	peer_enter(p, state);
	/* what is sent from now on waits, and connects again */
	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	lane_withdraw(lane);
	p->asked = false;
	p->leave_status = 0;
	p->deadline = weir_clock() + LEAVE_NS;
	p->stepping = true;
	TAILQ_INSERT_TAIL(&m->stepping, p, in_stepping);
	pool_call(m);
}

static void
look_sender(struct sender *s)
{
	weir_bias_lock_slow(&s->worker->lock);
	sender_take(s, NULL);
	weir_bias_unlock_passing(&s->worker->lock);
}

/* How its connection has ended, also if its thread has not looked; 0: not. */
static int
lane_look_end(struct lane *lane)
{
	int end;

	look_sender(lane->sender);
	weir_lock(lane->worker);
	end = lane->conn && lane->conn->state == CONN_ENDED ? lane->conn->end : 0;
	weir_unlock(lane->worker);
	return end;
}

/* Closes our lanes in order, or sees that the other end has. */
static void
finish_lanes(struct peer *p)
{
	struct lane *lane, *next;
	int end;

	for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, in_peer);
		if (!lane->sender)
			continue;
		if (!lane->finishing)
			lane_finish(lane);
		else if ((end = lane_look_end(lane)))
			lane_end(lane, end);
	}
}

/* Sends a BYE with this key. False: not now. */
static bool
put_bye(struct lane *lane, uint64_t key)
{
	struct message_header bye = {.kind = KIND_BYE, .id = key};
	struct iovec part = {&bye, HEADER_LONG};
	int rc = -EAGAIN;

	weir_lock(lane->worker);
	if (lane->conn && !lane->closing && !lane->hello_due)
		rc = weir_send_now(lane->conn, &part, 1, HEADER_LONG, NULL);
	weir_unlock(lane->worker);
	return rc != -EAGAIN;
}

bool
peer_strangers_leave(struct weir_messenger *m)
{
	struct lane *lane;

	weir_assert(is_locked(&m->lock));
	if (!m->strangers)
		return false;
	TAILQ_FOREACH(lane, &m->strangers->lanes, in_peer)
	lane->bye_sent = lane->bye_sent || put_bye(lane, 0);
	return !TAILQ_EMPTY(&m->strangers->lanes);
}

/* A guest may take a message late: handler threads are told. */
static bool
can_say_bye(const struct lane *lane)
{
	return lane->sender && lane->receiver == MESSAGE_HANDLERS && lane != lane->peer->probe &&
	       !lane->finishing;
}

/* No request is outstanding: says good-bye for each lane from there, then goes to BYE. */
static void
step_leaving(struct weir_messenger *m, struct peer *p, bool theirs)
{
	struct lane *lane, *by;
	bool ours = false, all = true;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	ours |= can_say_bye(lane);
	if (theirs && !ours)
		lane_make(m->pool[0].sender, p, LANE_FAREWELL);
	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		/* no thread opens a lane that was made for the good-bye */
		if (!theirs || !ours || !lane->sender || lane == p->probe)
			continue;
		weir_lock(lane->worker);
		if (lane->conn && lane->hello_due)
			lane_greet(lane);
		weir_unlock(lane->worker);
	}
	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		if (lane->sender || lane->bye_sent)
			continue;
		/* on the lane itself if no lane of ours leads to its program for certain */
		if (lane->client || !lane->key) {
			lane->bye_sent = put_bye(lane, 0);
		} else {
			TAILQ_FOREACH(by, &p->lanes, in_peer)
			if (can_say_bye(by) && put_bye(by, lane->key))
				break;
			lane->bye_sent = by;
		}
		all &= lane->bye_sent;
	}
	if (all)
		peer_enter(p, PEER_BYE);
}

/* One step of closing. The peer may be DOWN after it. */
static void
step(struct weir_messenger *m, struct peer *p, uint64_t now)
{
	bool late = now >= p->deadline, waits = in_use(p);
	uint32_t ours = 0, theirs = 0, clients = 0;
	struct lane *lane, *next;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		if (lane->sender)
			ours++;
		else if (lane->client)
			clients++;
		else
			theirs++;
	}
	if (p->state == PEER_ASKED && (late || !waits)) {
		for (lane = TAILQ_FIRST(&p->lanes); lane && late; lane = next) {
			next = TAILQ_NEXT(lane, in_peer);
			if (!lane->client)
				lane_end(lane, 0);
		}
		if (!late)
			finish_lanes(p);
		/* clients of the node may go on when its own program has gone */
		if (p->state != PEER_ASKED || ours || theirs || !clients)
			return;
		peer_enter(p, PEER_OPEN);
		p->stepping = false;
		TAILQ_REMOVE(&m->stepping, p, in_stepping);
		return;
	}
	if (p->state == PEER_ASKED)
		return;
	if (late) {
		p->leave_status = -ETIMEDOUT;
		for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
			next = TAILQ_NEXT(lane, in_peer);
			lane_end(lane, 0);
		}
		return;
	}
	if (p->state == PEER_LEAVING && !waits)
		step_leaving(m, p, theirs);
	/* both sides have said BYE: each waits for the other's lanes */
	if (p->state == PEER_BYE && !waits && (!p->incoming || p->asked))
		finish_lanes(p);
}

bool
peers_step(struct weir_messenger *m)
{
	uint64_t now = weir_clock();
	struct peer *p, *next;

	weir_assert(is_locked(&m->lock));
	for (p = TAILQ_FIRST(&m->stepping); p; p = next) {
		next = TAILQ_NEXT(p, in_stepping);
		step(m, p, now);
	}
	return !TAILQ_EMPTY(&m->stepping);
}

void
peer_bye_for(struct weir_messenger *m, struct peer *p, uint64_t key)
{
	const struct lane *lane;

	/* said by the program that a lane of ours leads to: no other knows the key */
	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	if (lane->sender && key && lane->key == key) {
		peer_bye(m, p);
		return;
	}
}

void
peer_bye(struct weir_messenger *m, struct peer *p)
{
	p->asked = true;
	if (p->state == PEER_OPEN)
		peer_leave(m, p, PEER_ASKED);
	pool_call(m);
}

int
weir_message_disconnect(struct weir_messenger *m, uint16_t node)
{
	/* a thread that drives the messenger and does not is not waited for without limit */
	uint64_t end = weir_clock() + LEAVE_NS + LEAVE_NS / 10;
	struct peer *p, **page;
	struct weir *w;
	uint32_t life;
	int rc;

	if (m->model && guest_own(m))
		return weir_fail(-EDEADLK, "called by a thread that receives, which the connection "
					   "waits for; let it leave, or call in another thread");
	rc = messenger_follow(m);
	if (rc)
		return rc;
	pthread_mutex_lock(&m->lock);
	page = m->peers[node / NODE_PAGE];
	p = page ? page[node % NODE_PAGE] : NULL;
	if (!p || p->state == PEER_DOWN) {
		pthread_mutex_unlock(&m->lock);
		return weir_fail(-ENOTCONN, "node %u is not connected; nothing is to be closed",
				 node);
	}
	w = m->w;
	life = p->lives;
	while (p->lives == life && weir_state(w) == WEIR_UP && weir_clock() < end) {
		/* the close that the other end asked for may end first, and leave clients connected
		 */
		peer_leave(m, p, PEER_LEAVING);
		if (!pool_is_driver(m)) {
			messenger_await(m);
			continue;
		}
		pthread_mutex_unlock(&m->lock);
		pool_last_turn(m);
		pthread_mutex_lock(&m->lock);
	}
	rc = weir_state(w) != WEIR_UP ? -ENODEV : p->lives == life ? -ETIMEDOUT : p->leave_status;
	pthread_mutex_unlock(&m->lock);
	if (rc == -ENODEV)
		return messenger_gone(m);
	return rc ? weir_fail(rc,
			      "node %u did not let go within 10 s; the connection was closed "
			      "all the same",
			      node)
		  : 0;
}

int
weir_message_connect(struct weir_messenger *m, uint16_t node, int timeout_ms)
{
	struct lane *lane;
	struct sender *s;
	int rc = 0;

	s = sender_get(m, &rc);
	if (!s)
		return rc;
	rc = lane_pin(s, node, timeout_ms, &lane);
	if (!rc)
		lane_unpin(lane);
	return rc;
}

/* ---- housekeeping ---- */

/* A model says nothing to a probe that has not said HELLO. m->lock. */
static void
probe_greet(struct lane *lane)
{
	if (!lane->m->model)
		return;
	weir_lock(lane->worker);
	if (lane->conn && lane->hello_due)
		lane_greet(lane);
	weir_unlock(lane->worker);
}

/* Acts on messages of a lane of ours that were taken in without m->lock. */
static void
look_lane(struct lane *lane)
{
	struct weir_messenger *m = lane->m;
	uint32_t threads = atomic_load_explicit(&lane->receivers, memory_order_acquire);
	int status;

	weir_assert(is_locked(&m->lock));
	if (!lane->conn)
		return;
	if (lane == lane->peer->probe)
		probe_greet(lane);
	if (threads) {
		atomic_store_explicit(&lane->receivers, 0, memory_order_relaxed);
		peer_hello(lane, atomic_load_explicit(&lane->incarnation, memory_order_relaxed),
			   threads - 1);
		if (lane == lane->peer->probe)
			lane_end(lane, 0);
	}
	if (atomic_load_explicit(&lane->bye_received, memory_order_acquire)) {
		atomic_store_explicit(&lane->bye_received, 0, memory_order_relaxed);
		peer_bye(m, lane->peer);
	}
	status = -(int)atomic_load_explicit(&lane->malformed, memory_order_acquire);
	if (status) {
		lane_end(lane, status);
		return;
	}
	if (!lane->conn || (weir_state(lane->worker->w) == WEIR_UP &&
			    !atomic_load_explicit(&lane->conn->desc->status, memory_order_relaxed)))
		return;
	weir_lock(lane->worker);
	status = lane->conn->state == CONN_ENDED ? lane->conn->end : 0;
	weir_unlock(lane->worker);
	if (status)
		lane_end(lane, status);
}

void
peer_listen(struct peer *p)
{
	struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	if (lane->named)
		break;
	if (!lane)
		return;
	look_sender(lane->sender);
	look_lane(lane);
}

/* Asks which program has the name if lanes claim to be of different ones: one lane per PROBE_NS. */
static void
probe(struct weir_messenger *m, struct peer *p)
{
	uint64_t now = weir_clock(), its;
	const struct lane *lane;
	bool doubtful = false;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		its = atomic_load_explicit(&lane->incarnation, memory_order_relaxed);
		doubtful |= its && p->incarnation && its != p->incarnation;
	}
	if (!doubtful || p->probe || p->state != PEER_OPEN ||
	    (p->probed && now - p->probed < PROBE_NS) || weir_state(m->w) != WEIR_UP)
		return;
	p->probed = now;
	lane_make(m->pool[0].sender, p, LANE_PROBE);
}

/* Ends connections that had the time for a HELLO. m->lock. */
static void
strangers_look(struct weir_messenger *m)
{
	uint64_t now = weir_clock();
	struct lane *lane, *next;

	for (lane = TAILQ_FIRST(&m->strangers->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, in_peer);
		if (now - lane->accepted >= LEAVE_NS)
			lane_end(lane, -ETIMEDOUT);
	}
}

void
peers_look(struct weir_messenger *m)
{
	struct peer *p, *next_peer;
	struct lane *lane, *next;
	struct sender *s;
	int end;

	pthread_mutex_lock(&m->lock);
	atomic_fetch_add_explicit(&m->epoch, 1, memory_order_relaxed);
	/* for threads that are not inside a call */
	TAILQ_FOREACH(s, &m->senders, next)
	if (s->users && !TAILQ_EMPTY(&m->open))
		look_sender(s);
	for (p = TAILQ_FIRST(&m->open); p; p = next_peer) {
		next_peer = TAILQ_NEXT(p, in_open);
		for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
			next = TAILQ_NEXT(lane, in_peer);
			if (!lane->sender)
				continue;
			/* a thread that has ended left it */
			end = lane->finishing ? lane_look_end(lane) : 0;
			if (end)
				lane_end(lane, end);
			else
				look_lane(lane);
		}
		probe(m, p);
	}
	if (m->strangers)
		strangers_look(m);
	assemblies_reclaim(m);
	pthread_mutex_unlock(&m->lock);
}
