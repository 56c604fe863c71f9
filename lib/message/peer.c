/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logical connections: one a node, made of lanes both ways. The least recently used one makes room;
 * a connection closes in order, in steps that the first handler thread takes.
 */
#include "peer.h"
#include "lane.h"
#include "pool.h"
#include "sender.h"

#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define PROBE_NS 1000000000ull

/* m->lock. */
struct peer *
peer_get(struct weir_messenger *m, uint16_t node)
{
	struct peer ***page = &m->peers[node / NODE_PAGE], **at;

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

	p->told = event == WEIR_LINK_CREATED;
	if (p->told)
		m->created++;
	else
		m->lost++;
	event_add(m, &e);
}

/* ---- which one goes ---- */

static uint32_t
outstanding(const struct peer *p)
{
	const struct lane *lane;
	uint32_t n = 0;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	n += atomic_load_explicit(&lane->outstanding, memory_order_relaxed);
	return n;
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

/* Idle ones first, of these the one that was used least recently. */
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

		if (p->state != PEER_OPEN)
			return; /* one is about to go */
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

int
peer_use(struct weir_messenger *m, struct peer *p, bool must)
{
	if (p->state == PEER_OPEN)
		return 0;
	if (p->state != PEER_DOWN && !must)
		return -EAGAIN;
	if (p->state == PEER_BYE) /* to say good-bye on */
		peer_enter(p, PEER_LEAVING);
	if (p->state != PEER_DOWN)
		return 0;
	if (m->connected >= m->o.connections) {
		evict(m);
		if (!must)
			return weir_fail(-EAGAIN, "as many nodes are connected as may be, and none "
						  "has closed in time; allow more connections");
	}
	m->connected++;
	peer_enter(p, PEER_OPEN);
	p->lost = 0;
	TAILQ_INSERT_TAIL(&m->open, p, in_open);
	/* what is used from now on was used later than what was used before */
	p->used = atomic_fetch_add_explicit(&m->epoch, 1, memory_order_relaxed) + 1;
	return 0;
}

static void
down(struct weir_messenger *m, struct peer *p)
{
	if (p->state == PEER_DOWN)
		return;
	peer_enter(p, PEER_DOWN);
	p->lives++;
	m->connected--;
	TAILQ_REMOVE(&m->open, p, in_open);
	if (p->stepping)
		TAILQ_REMOVE(&m->stepping, p, in_stepping);
	p->stepping = false;
	/* the next program over there may be another one */
	p->threads = 1;
	p->incarnation = p->said_by = p->named = 0;
	if (p->told)
		tell(m, p, WEIR_LINK_LOST, p->lost);
	pthread_cond_broadcast(&m->changed);
}

void
peer_unuse(struct weir_messenger *m, struct peer *p)
{
	if (p->state == PEER_OPEN && TAILQ_EMPTY(&p->lanes))
		down(m, p);
}

/* ---- lanes ---- */

void
peer_lane_open(struct lane *lane)
{
	struct peer *p = lane->peer;

	if (!lane->conn || lane->open)
		return;
	lane->open = true;
	if (!p->told)
		tell(lane->m, p, WEIR_LINK_CREATED, 0);
}

/* Ends what claims to be of another program than the one that has the name. */
static void
end_others(struct peer *p)
{
	struct lane *lane, *next;

	for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
		uint64_t its = atomic_load_explicit(&lane->incarnation, memory_order_relaxed);

		next = TAILQ_NEXT(lane, in_peer);
		if (its && its != p->incarnation)
			lane_end(lane, -ECONNRESET);
	}
}

void
peer_lane_gone(struct lane *lane, int status)
{
	struct peer *p = lane->peer;
	uint32_t at = atomic_load_explicit(&lane->used, memory_order_relaxed);

	if ((int32_t)(at - p->used) > 0)
		p->used = at;
	p->incoming -= !lane->sender;
	lane->open = false;
	if (lane == p->probe)
		p->probe = NULL;
	/* in order: closed by us, or by its program */
	else if (status != -ESHUTDOWN && status && p->state == PEER_OPEN)
		p->lost = status;
	if (TAILQ_EMPTY(&p->lanes))
		down(lane->m, p);
	else if (p->probe && TAILQ_FIRST(&p->lanes) == TAILQ_LAST(&p->lanes, lane_list))
		lane_end(p->probe, 0); /* nobody is left to be asked about */
	else if (p->stepping)
		pool_call(lane->m);
}

/*
 * Whoever has the messenger's name over there is the peer, and nobody else: a HELLO that comes from
 * a program of the node is no more than a claim. Which one has the name says who answers when the
 * name is connected to.
 */
static void
heard(struct lane *lane, uint64_t incarnation, uint32_t threads)
{
	struct weir_messenger *m = lane->m;
	struct peer *p = lane->peer;
	uint64_t before = p->incarnation;

	p->said_by = lane->made;
	p->threads = threads && threads <= WEIR_HANDLER_THREADS_MAX ? threads : 1;
	p->incarnation = incarnation;
	/* another program than before */
	if (before && before != incarnation && p->told)
		tell(m, p, WEIR_LINK_LOST, -ECONNRESET);
	end_others(p);
	if (!p->told)
		tell(m, p, WEIR_LINK_CREATED, 0);
}

void
peer_hello(struct lane *lane, uint64_t incarnation, uint32_t threads)
{
	struct peer *p = lane->peer;

	/* several programs of a node may be clients, beside the one that listens */
	lane->client = !threads && !lane->sender;
	if (lane->client)
		return;
	atomic_store_explicit(&lane->incarnation, incarnation, memory_order_relaxed);
	if (lane->named && lane->made > p->said_by)
		heard(lane, incarnation, threads);
	else if (!p->incarnation)
		p->incarnation = incarnation;
}

/* ---- closing ---- */

void
peer_leave(struct weir_messenger *m, struct peer *p, enum peer_state state)
{
	if (p->state != PEER_OPEN)
		return;
	peer_enter(p, state);
	p->leave_status = 0;
	p->deadline = weir_clock() + LEAVE_NS;
	p->stepping = true;
	TAILQ_INSERT_TAIL(&m->stepping, p, in_stepping);
	pool_call(m);
}

static void
end_lanes(struct peer *p, bool incoming, int status)
{
	struct lane *lane, *next;

	for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, in_peer);
		if (incoming || lane->sender)
			lane_end(lane, status);
	}
}

struct lanes {
	uint32_t ours, theirs, clients;
};

static struct lanes
lanes_of(const struct peer *p)
{
	struct lanes n = {0};
	const struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		if (lane->sender)
			n.ours++;
		else if (lane->client)
			n.clients++;
		else
			n.theirs++;
	}
	return n;
}

/* False: not now. */
static bool
put_bye(struct lane *lane, uint64_t key)
{
	const struct message_header bye = {.kind = KIND_BYE, .id = key};
	int rc = -EAGAIN;

	weir_lock(lane->worker);
	if (lane->conn && !lane->doomed && !lane->greet)
		rc = lane_put(lane, &bye);
	weir_unlock(lane->worker);
	return rc != -EAGAIN;
}

/* Says good-bye, for a lane that has the key, on any of ours. False: not now. */
static bool
say_bye_on_ours(struct peer *p, uint64_t key)
{
	struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	if (lane->sender && lane != p->probe && put_bye(lane, key))
		return true;
	return false;
}

/* For each lane from there; on it, if nothing else leads there for sure. False: not all now. */
static bool
say_bye(struct peer *p)
{
	struct lane *lane;
	bool all = true;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		if (lane->sender || lane->parted)
			continue;
		lane->parted =
		    lane->client || !lane->key ? put_bye(lane, 0) : say_bye_on_ours(p, lane->key);
		all &= lane->parted;
	}
	return all;
}

/* None of our lanes leads there: the first handler thread makes one for the word. */
static bool
has_lane(struct weir_messenger *m, struct peer *p)
{
	struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	if (lane->sender && lane != p->probe)
		return true;
	lane_make(m->pool[0].sender, p, false);
	return false;
}

/* A lane that was made for the good-bye has nobody else who opens it. */
static void
open_lanes(struct peer *p)
{
	struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		if (!lane->sender || lane == p->probe)
			continue;
		weir_lock(lane->worker);
		if (lane->conn && lane->greet)
			lane_greet(lane);
		weir_unlock(lane->worker);
	}
}

static void
step_leaving(struct weir_messenger *m, struct peer *p, const struct lanes *n)
{
	if (n->theirs && has_lane(m, p))
		open_lanes(p);
	if (say_bye(p))
		peer_enter(p, PEER_BYE);
}

/* Clients of the node may go on when its own program has gone. */
static void
step_asked(struct weir_messenger *m, struct peer *p, const struct lanes *n, bool late)
{
	struct lane *lane, *next;

	for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, in_peer);
		if (lane->sender || (late && !lane->client))
			lane_end(lane, 0);
	}
	if (p->state != PEER_ASKED || n->ours || n->theirs || !n->clients)
		return;
	peer_enter(p, PEER_OPEN);
	p->stepping = false;
	TAILQ_REMOVE(&m->stepping, p, in_stepping);
}

/* One step. The peer may be DOWN after it. */
static void
step(struct weir_messenger *m, struct peer *p, uint64_t now)
{
	struct lanes n = lanes_of(p);
	bool late = now >= p->deadline, waits = outstanding(p);

	if (p->state == PEER_ASKED) {
		if (late || !waits)
			step_asked(m, p, &n, late);
		return;
	}
	if (late) {
		p->leave_status = -ETIMEDOUT;
		end_lanes(p, true, 0);
		return;
	}
	if (p->state == PEER_LEAVING && !waits)
		step_leaving(m, p, &n);
	if (p->state == PEER_BYE && !p->incoming)
		end_lanes(p, false, 0);
}

bool
peers_step(struct weir_messenger *m)
{
	uint64_t now = weir_clock();
	struct peer *p, *next;

	for (p = TAILQ_FIRST(&m->stepping); p; p = next) {
		next = TAILQ_NEXT(p, in_stepping);
		step(m, p, now);
	}
	return !TAILQ_EMPTY(&m->stepping);
}

/* Whether it is said by the program that a lane of ours leads to: no other one knows the key. */
static bool
has_key(const struct peer *p, uint64_t key)
{
	const struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	if (lane->sender && key && lane->key == key)
		return true;
	return false;
}

void
peer_bye_for(struct weir_messenger *m, struct peer *p, uint64_t key)
{
	if (has_key(p, key))
		peer_bye(m, p);
}

void
peer_bye(struct weir_messenger *m, struct peer *p)
{
	/* who has said it too waits for our lanes as we wait for its */
	if (p->state == PEER_LEAVING || p->state == PEER_BYE)
		end_lanes(p, false, 0);
	else
		peer_leave(m, p, PEER_ASKED);
}

static struct peer *
peer_known(struct weir_messenger *m, uint16_t node)
{
	struct peer **page = m->peers[node / NODE_PAGE];

	return page ? page[node % NODE_PAGE] : NULL;
}

int
weir_message_disconnect(struct weir_messenger *m, uint16_t node)
{
	struct peer *p;
	uint32_t life;
	int rc;

	if (weir_state(m->w) != WEIR_UP)
		return messenger_gone(m);
	pthread_mutex_lock(&m->lock);
	p = peer_known(m, node);
	if (!p || p->state == PEER_DOWN) {
		pthread_mutex_unlock(&m->lock);
		return weir_fail(-ENOTCONN, "node %u is not connected; nothing is to be closed",
				 node);
	}
	life = p->lives;
	while (p->lives == life && weir_state(m->w) == WEIR_UP) {
		/* what the other end asked for may end first, and leave clients connected */
		peer_leave(m, p, PEER_LEAVING);
		messenger_await(m);
	}
	rc = weir_state(m->w) == WEIR_UP ? p->leave_status : -ENODEV;
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

/* ---- what nobody looks at ---- */

/* What came on a lane of ours was taken in by a thread that didn't hold m->lock. */
static void
look_lane(struct lane *lane)
{
	struct weir_messenger *m = lane->m;
	uint32_t threads = atomic_load_explicit(&lane->hello, memory_order_acquire);
	int status;

	if (!lane->conn)
		return;
	if (threads) {
		atomic_store_explicit(&lane->hello, 0, memory_order_relaxed);
		peer_hello(lane, atomic_load_explicit(&lane->incarnation, memory_order_relaxed),
			   threads - 1);
		if (lane == lane->peer->probe)
			lane_end(lane, 0);
	}
	if (atomic_load_explicit(&lane->asked, memory_order_acquire)) {
		atomic_store_explicit(&lane->asked, 0, memory_order_relaxed);
		peer_bye(m, lane->peer);
	}
	if (atomic_load_explicit(&lane->spoilt, memory_order_acquire)) {
		lane_end(lane, -EPROTO);
		return;
	}
	if (!lane->conn || (weir_state(m->w) == WEIR_UP &&
			    !atomic_load_explicit(&lane->conn->desc->status, memory_order_relaxed)))
		return;
	weir_lock(lane->worker);
	status = lane->conn->state == CONN_ENDED ? lane->conn->end : 0;
	weir_unlock(lane->worker);
	if (status)
		lane_end(lane, status);
}

static void
look_sender(struct sender *s)
{
	weir_bias_lock_slow(&s->worker->lock);
	sender_take(s, NULL);
	weir_bias_unlock_passing(&s->worker->lock);
}

/* Threads that don't look themselves. */
static void
look_senders(struct weir_messenger *m)
{
	struct sender *s;

	TAILQ_FOREACH(s, &m->senders, next)
	if (s->users)
		look_sender(s);
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

/* Whether lanes claim to be of different programs. */
static bool
is_doubtful(const struct peer *p)
{
	const struct lane *lane;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	{
		uint64_t its = atomic_load_explicit(&lane->incarnation, memory_order_relaxed);

		if (its && p->incarnation && its != p->incarnation)
			return true;
	}
	return false;
}

/* Asks who has the name, one lane at a time and one a second. */
static void
probe(struct weir_messenger *m, struct peer *p)
{
	uint64_t now = weir_clock();

	if (!is_doubtful(p) || p->probe || p->state != PEER_OPEN ||
	    (p->probed && now - p->probed < PROBE_NS) || weir_state(m->w) != WEIR_UP)
		return;
	p->probed = now;
	lane_make(m->pool[0].sender, p, true);
}

void
peers_look(struct weir_messenger *m)
{
	struct peer *p, *next_peer;
	struct lane *lane, *next;

	pthread_mutex_lock(&m->lock);
	atomic_fetch_add_explicit(&m->epoch, 1, memory_order_relaxed);
	if (!TAILQ_EMPTY(&m->open))
		look_senders(m);
	for (p = TAILQ_FIRST(&m->open); p; p = next_peer) {
		next_peer = TAILQ_NEXT(p, in_open);
		for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
			next = TAILQ_NEXT(lane, in_peer);
			if (lane->sender)
				look_lane(lane);
		}
		probe(m, p);
	}
	assemblies_press(m);
	pthread_mutex_unlock(&m->lock);
}
