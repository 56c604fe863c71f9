/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections: made, found by vQPN, ended, freed; their reports to weir_poll(). */
#include "conn.h"
#include "ctrl_slots.h"
#include "partial_send.h"
#include "reconnect.h"
#include "remote.h"
#include "reserve.h"
#include "rx_place.h"
#include "rx_queue.h"

#include "base/vec.h"
#include "client/channel.h"
#include "client/reason.h"
#include "client/region.h"
#include "client/sized.h"
#include "client/thread.h"
#include "ipc/wire.h"

#include <stdlib.h>

#define NOTES_MIN 16u

/* ---- table ---- */

void
weir_conn_enter(struct weir_conn *c, enum weir_conn_state to)
{
	static const uint8_t legal[] = {
	    [CONN_OPENING] = 1u << CONN_OPEN | 1u << CONN_ENDED | 1u << CONN_CLOSING,
	    [CONN_OPEN] = 1u << CONN_HALF | 1u << CONN_ENDED | 1u << CONN_CLOSING,
	    [CONN_HALF] = 1u << CONN_ENDED | 1u << CONN_CLOSING,
	    [CONN_ENDED] = 1u << CONN_CLOSING,
	    [CONN_CLOSING] = 0,
	};

	weir_enter(legal, c->state, to);
	weir_conn_update_next(c);
}

void
weir_conn_set_send_error(struct weir_conn *c, int rc)
{
	c->send_error = rc;
	weir_conn_update_quick(c);
}

static struct weir_vqpn_entry *
entry(struct weir_thread *t, uint32_t vqpn)
{
	struct weir_vqpn_entry *page = t->vqpn[WEIR_VQPN_INDEX(vqpn) / WEIR_VQPN_PAGE];

	return page ? &page[WEIR_VQPN_INDEX(vqpn) % WEIR_VQPN_PAGE] : NULL;
}

bool
weir_conn_vqpn_taken(struct weir_thread *t, uint32_t vqpn)
{
	struct weir_vqpn_entry *e = entry(t, vqpn);

	return e && e->conn;
}

void
weir_conn_forget(struct weir_conn *c)
{
	struct weir_vqpn_entry *e = entry(c->worker, c->vqpn);

	if (e->conn == c)
		e->conn = NULL;
}

static struct weir_vqpn_entry *
make_entry(struct weir_thread *t, uint32_t vqpn)
{
	struct weir_vqpn_entry **page = &t->vqpn[WEIR_VQPN_INDEX(vqpn) / WEIR_VQPN_PAGE];

	if (!*page)
		*page = calloc(WEIR_VQPN_PAGE, sizeof(**page));
	return entry(t, vqpn);
}

void
weir_conn_refused(struct weir_thread *t, uint32_t vqpn)
{
	struct weir_vqpn_entry *e = make_entry(t, vqpn);

	weir_assert(weir_worker_locked(t));
	if (e && !e->conn)
		e->vqpn = vqpn;
}

struct weir_conn *
weir_conn_find(struct weir_thread *t, uint32_t vqpn, bool *stale)
{
	struct weir_vqpn_entry *e = entry(t, vqpn);
	uint32_t ahead;

	*stale = false;
	if (!e)
		return NULL;
	if (weir_likely(e->vqpn == vqpn && e->conn))
		return e->conn;
	/*
	 * A generation not later than the last one here is over. A later one is about to be
	 * announced: events and messages come by different rings.
	 */
	ahead = (WEIR_VQPN_GENERATION(vqpn) - WEIR_VQPN_GENERATION(e->vqpn)) & 0xfff;
	*stale = e->vqpn && (ahead == 0 || ahead >= 0x800);
	return NULL;
}

void
weir_conns_each(struct weir_thread *t, void (*f)(struct weir_conn *c))
{
	for (unsigned i = 0; i < sizeof(t->vqpn) / sizeof(t->vqpn[0]); i++)
		for (unsigned k = 0; t->vqpn[i] && k < WEIR_VQPN_PAGE; k++)
			if (t->vqpn[i][k].conn)
				f(t->vqpn[i][k].conn);
}

/* ---- life ---- */

struct weir_conn *
weir_conn_new(struct weir_thread *t, struct weir_channel *ch, uint32_t vqpn, uint32_t desc)
{
	struct weir_vqpn_entry *e;
	struct weir_conn *c;
	uint64_t at = weir_arena_descs(&t->w->geometry) + (uint64_t)desc * sizeof(*c->desc);

	weir_assert(weir_worker_locked(t));
	if (desc >= t->w->geometry.connections)
		return NULL;
	e = make_entry(t, vqpn);
	/* two lives of one index at once: the data plane is mistaken */
	if (!e || e->conn)
		return NULL;
	c = aligned_alloc(64, WEIR_ALIGN_UP(sizeof(*c), 64));
	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	*e = (struct weir_vqpn_entry){vqpn, c};
	c->worker = c->reporter = t;
	c->life = t->life;
	c->channel = ch;
	c->pipe = &ch->pipe;
	c->vqpn = c->send_vqpn = vqpn;
	c->desc = (struct weir_conn_desc *)(t->w->arena + at);
	c->send_error = -EAGAIN;
	c->queue_end = &c->queue;
	weir_conn_update_next(c);
	atomic_fetch_add_explicit(&t->users, 1, memory_order_relaxed);
	return c;
}

static void
join_segment(struct weir_conn *c, struct weir_segment *seg)
{
	if (c->conn_index >= seg->geometry.connections)
		return;
	weir_assert(c->local && !c->pipe);
	seg->users++;
	TAILQ_INSERT_TAIL(&seg->conns, c, in_segment);
	c->pipe = &seg->pipe;
	c->send_vqpn = c->peer_vqpn;
	c->theirs = &seg->out_conns[c->conn_index];
	c->ours = &seg->in_conns[c->conn_index];
	c->peer_window =
	    weir_segment_window(atomic_load_explicit(&c->theirs->window, memory_order_relaxed));
	c->granted = c->peer_window;
	weir_conn_update_quick(c);
	weir_conn_set_due_at(c, c->window / 4);
	if (c->ending)
		seg->endings++;
	if (seg->error)
		weir_conn_ended(c, EPROTO);
}

int
weir_conn_map(struct weir_conn *c)
{
	struct weir_segment *seg;
	int rc;

	if (c->pipe)
		return 0;
	rc = weir_segment_get(c->worker, c->segment_id, c->side, &seg);
	if (rc)
		return rc;
	join_segment(c, seg);
	return c->pipe
		   ? 0
		   : weir_fail(-EPROTO,
			       "the connection's line is not in the segment; close the connection");
}

void
weir_conn_set_window(struct weir_conn *c, uint32_t window)
{
	weir_assert(weir_worker_locked(c->worker) && c->local && c->ours);
	c->window = weir_segment_window(window);
	weir_conn_set_due_at(c, c->window / 4);
	atomic_store_explicit(&c->ours->window, c->window, memory_order_relaxed);
}

void
weir_conn_find_segment(struct weir_conn *c)
{
	struct weir_segment *seg;

	LIST_FOREACH(seg, &c->worker->segments, next)
	if (seg->id == c->segment_id && seg->side == c->side)
		join_segment(c, seg);
}

/* Releases the memory of all messages before `upto`. */
static void
release_memory(struct weir_conn *c, uint64_t upto)
{
	struct weir_notes *b = &c->blocks;

	while (b->head != b->tail && b->ring[b->head & (b->room - 1)].number < upto) {
		uint64_t value = b->ring[b->head++ & (b->room - 1)].value;

		if (value & NOTE_REGION)
			weir_region_drop((struct weir_region *)(uintptr_t)(value & ~NOTE_REGION));
		else
			weir_heap_give(c->worker, (uint32_t)value);
	}
}

void
weir_conn_free(struct weir_conn *c)
{
	struct weir_thread *t = c->worker;

	weir_assert(weir_worker_locked(c->worker));
	weir_assert(t->closing >= (c->state == CONN_CLOSING && !c->never_opened));
	t->closing -= c->state == CONN_CLOSING && !c->never_opened;
	weir_assert(t->making_room >= c->makes_room);
	t->making_room -= c->makes_room;
	weir_reconnect_forget(c);
	weir_partial_drop(c);
	weir_conn_unready(c);
	if (c->foreign)
		atomic_fetch_sub_explicit(&c->foreign->conns, 1, memory_order_relaxed);
	c->foreign = NULL;
	if (c->on_blocked)
		TAILQ_REMOVE(&c->worker->blocked, c, in_blocked);
	if (c->needs_room) /* at detach only: else its end or close came first */
		TAILQ_REMOVE(&c->channel->needs_room, c, in_needs_room);
	weir_ctrl_want_answered(c);
	if (c->control)
		TAILQ_REMOVE(&c->channel->control, c, in_control);
	if (c->due && c->pipe->local)
		TAILQ_REMOVE(&WEIR_SEGMENT_OF(c->pipe)->to_report, c, in_to_report);
	else if (c->due)
		TAILQ_REMOVE(&c->channel->to_report, c, in_to_report);
	c->on_blocked = c->due = c->needs_room = false;
	c->control = 0;
	weir_rx_queue_clear(c);
	weir_posts_free(c);
	weir_reservations_clear(c);
	release_memory(c, UINT64_MAX);
	if (c->results)
		weir_results_free(c);
	free(c->blocks.ring);
	free(c->cookies.ring);
	if (c->assembly)
		weir_rx_message_free(c->assembly);
	free(c->refusal);
	if (c->pipe && c->pipe->local) {
		WEIR_SEGMENT_OF(c->pipe)->users--;
		WEIR_SEGMENT_OF(c->pipe)->endings -= c->ending;
		TAILQ_REMOVE(&WEIR_SEGMENT_OF(c->pipe)->conns, c, in_segment);
	}
	weir_conn_forget(c);
	atomic_fetch_sub_explicit(&t->users, 1, memory_order_relaxed);
	free(c);
}

int
weir_conn_failed(const struct weir_conn *c, int rc)
{
	static const struct {
		int rc;
		const char *reason;
	} known[] = {
	    {-ESHUTDOWN, "end of the stream: the peer has closed it, or sends no more; connect "
			 "again for more"},
	    {-ECONNRESET, "the peer has gone; connect again when it is back"},
	    {-ENODEV, "the data plane is gone; weir_reattach() when it is back, then connect "
		      "again"},
	    {-ECONNABORTED, "an operator has ended the connection (weirctl evict); connect again "
			    "if you may"},
	    {-EHOSTDOWN, "the peer's node is down; connect again when it is up (weirctl wait "
			 "node:ID)"},
	    {-ENOSPC, "all links of the data plane here, or there, are in use; close connections "
		      "with other nodes, or raise its --links or memory"},
	    {-ENOMEM, "no memory to take a message; free some"},
	    {-EPIPE, "sending was shut down here (weir_shutdown()); connect again to send"},
	    {-EPROTO, "the other side spoilt the shared memory; close the connection"},
	    {-EMSGSIZE, "a message was larger than the peer's memory; let the peer attach with a "
			"larger arena"},
	};

	if (rc == -ECONNABORTED && weir_loss(c->worker->w) == rc)
		return weir_gone(c->worker->w);
	if (rc == -ECONNREFUSED && c->refusal)
		return weir_fail(rc, "the program that listens there refused the connection: %s",
				 c->refusal);
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].rc == rc)
			return weir_fail(rc, "%s", known[i].reason);
	return weir_fail(rc, "the connection has ended: %s; connect again", strerror(-rc));
}

void
weir_conn_ended(struct weir_conn *c, uint32_t status)
{
	weir_assert(weir_worker_locked(c->worker));
	if (c->state == CONN_CLOSING) {
		/* CLOSED overtook our CLOSE: that is still written before c is freed */
		c->end_held = true;
		if (c->partial_queued) {
			weir_partial_drop(c);
			weir_ctrl_add(c, CTRL_CLOSE);
		} else if (!(c->control & CTRL_CLOSE)) {
			weir_conn_free(c);
		}
		return;
	}
	if (c->state == CONN_ENDED)
		return;
	/* a message that is not complete now was lost, or delivered without our knowing */
	weir_conn_update_completed(c);
	weir_conn_enter(c, CONN_ENDED);
	c->end_status = status;
	if (!c->end) /* else the peer's last message came before */
		c->end = status ? -(int)status : -ESHUTDOWN;
	atomic_store_explicit(&c->remote_end, c->end, memory_order_relaxed);
	if (status || !c->shut)
		weir_conn_set_send_error(c, status ? -(int)status : -ECONNRESET);
	c->wanting = false;
	weir_partial_drop(c);
	release_memory(c, UINT64_MAX);
	/* WRITABLE tells a blocked sender that it can't send: CLOSED follows the last message */
	weir_conn_report(c, PENDING_CLOSED | (c->blocked ? PENDING_WRITABLE : 0) |
				(c->cookies.head != c->cookies.tail ? PENDING_SENT : 0));
	c->blocked = false;
	weir_ctrl_room_unneeded(c);
}

bool
weir_conn_peer_shut(struct weir_conn *c)
{
	weir_assert(weir_worker_locked(c->worker));
	if (c->end)
		return false;
	weir_conn_enter(c, CONN_HALF);
	c->end = -ESHUTDOWN;
	weir_conn_report(c, PENDING_END);
	/* of a remote connection the engines say so */
	if (c->local && c->shut && !c->end_due)
		weir_conn_ended(c, 0);
	return true;
}

void
weir_conn_close(struct weir_conn *c)
{
	bool ended = c->state == CONN_ENDED || c->ending;
	uint32_t dropped;

	weir_assert(weir_worker_locked(c->worker));
	weir_conn_bind_to(c, c->worker, NULL);
	weir_conn_unready(c);
	dropped = weir_rx_queue_clear(c);
	weir_posts_free(c);
	weir_reservations_clear(c);
	c->cookies.head = c->cookies.tail;
	weir_conn_enter(c, CONN_CLOSING);
	weir_conn_set_send_error(c, -EPIPE);
	c->end_held = ended;
	if (c->never_opened) {
		weir_conn_free(c);
		return;
	}
	c->worker->closing++;
	weir_conn_dropped(c, dropped);
	weir_ctrl_room_unneeded(c);
	c->end_due = false; /* CLOSE says it */
	if (!weir_partial_left(c))
		weir_partial_drop(c);
	/* the rest of a message goes first, then weir_partials_push() closes */
	if (!c->partial_queued)
		weir_ctrl_add(c, CTRL_CLOSE);
}

/* ---- completion ---- */

int
weir_notes_room(struct weir_notes *n)
{
	return RING_RESERVE(n->ring, n->room, n->head, n->tail - n->head, NOTES_MIN);
}

void
weir_notes_put(struct weir_notes *n, uint64_t number, uint64_t value)
{
	weir_assert(n->tail - n->head < n->room);
	n->ring[n->tail++ & (n->room - 1)] = (struct weir_note){number, value};
}

void
weir_conn_completed(struct weir_conn *c, uint64_t upto)
{
	weir_assert(c->completed <= c->sent);
	if (upto <= c->completed || upto > c->sent)
		return;
	/* its thread may look without the lock: weir_remote_completed() */
	__atomic_store_n(&c->completed, upto, __ATOMIC_RELAXED);
	release_memory(c, upto);
	if (c->cookies.head != c->cookies.tail &&
	    c->cookies.ring[c->cookies.head & (c->cookies.room - 1)].number < upto)
		weir_conn_report(c, PENDING_SENT);
}

void
weir_conn_update_completed(struct weir_conn *c)
{
	if (!c->local)
		weir_conn_completed(
		    c, atomic_load_explicit(&c->desc->completed, memory_order_acquire));
	/* read behind the fence of weir_pipe_published(); pairs with weir_thread_end_segments()
	 * there */
	else if (c->pipe && atomic_load_explicit(c->pipe->tx_sleeping, memory_order_relaxed) !=
				WEIR_SEGMENT_LEFT)
		weir_conn_completed(c, c->sent - weir_partial_left(c));
}

/* ---- reports ---- */

void
weir_conn_report(struct weir_conn *c, uint8_t pending)
{
	struct weir_thread *r = c->reporter;

	weir_assert(weir_worker_locked(c->worker));
	c->pending |= pending;
	if (weir_unlikely(c->silent))
		return;
	if (c->queued || c->state == CONN_CLOSING || c->listener)
		return;
	c->queued = true;
	if (weir_likely(r == c->worker)) {
		TAILQ_INSERT_TAIL(weir_ready_list(c), c, in_ready);
		if (weir_unlikely(c->lane))
			atomic_store_explicit(&r->lane_news, true, memory_order_relaxed);
		return;
	}
	pthread_mutex_lock(&r->foreign_lock);
	TAILQ_INSERT_TAIL(&r->foreign_ready, c, in_ready);
	atomic_fetch_add_explicit(&r->foreign_count, 1, memory_order_relaxed);
	pthread_mutex_unlock(&r->foreign_lock);
}

void
weir_conn_unready(struct weir_conn *c)
{
	struct weir_thread *r = c->reporter;

	if (!c->queued)
		return;
	c->queued = false;
	if (r == c->worker) {
		TAILQ_REMOVE(weir_ready_list(c), c, in_ready);
		return;
	}
	pthread_mutex_lock(&r->foreign_lock);
	TAILQ_REMOVE(&r->foreign_ready, c, in_ready);
	atomic_fetch_sub_explicit(&r->foreign_count, 1, memory_order_relaxed);
	pthread_mutex_unlock(&r->foreign_lock);
}

void
weir_conn_bind_to(struct weir_conn *c, struct weir_thread *reporter, struct weir_foreign *foreign)
{
	weir_conn_unready(c);
	if (c->foreign)
		atomic_fetch_sub_explicit(&c->foreign->conns, 1, memory_order_relaxed);
	c->foreign = foreign;
	c->reporter = reporter;
	if (c->pending)
		weir_conn_report(c, 0);
}

/* ---- what the library and the data plane know of a connection ---- */

int
weir_conn_info(struct weir_conn *c, struct weir_conn_info *info)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_WHO), r;
	struct weir_conn_info i = WEIR_CONN_INFO_INIT;
	int fds[WEIR_SESSION_FDS], rc;
	bool opening;

	static_assert(WEIR_PROGRAM_MAX == WEIR_NAME_MAX, "the same limit");
	if (!info || !weir_sized_check(info, "WEIR_CONN_INFO_INIT"))
		return info ? -EINVAL
			    : weir_fail(-EINVAL, "no structure to fill; see weir/stream.h");
	if (weir_state(c->worker->w) != WEIR_UP)
		return weir_gone(c->worker->w);
	weir_lock(c->worker);
	opening = c->state == CONN_OPENING && !c->undecided;
	i.local = c->local;
	if (c->local && !c->mtu) {
		i.send_window = weir_segment_window(
		    c->theirs ? atomic_load_explicit(&c->theirs->window, memory_order_relaxed) : 0);
		i.recv_window = c->window;
	} else if (!c->mtu) {
		i.send_window = atomic_load_explicit(&c->desc->window, memory_order_relaxed);
		i.recv_window = atomic_load_explicit(&c->desc->recv_window, memory_order_relaxed);
	}
	i.mtu = c->mtu ? c->mtu : WEIR_STREAM_MESSAGE_MAX;
	i.send_status = c->send_error;
	i.recv_status = c->end ? c->end : c->undecided ? -EAGAIN : 0;
	i.undecided = c->undecided;
	i.sent_messages = c->sent;
	i.sent_bytes = c->sent_bytes;
	i.recv_messages = c->received;
	i.recv_bytes = c->received_bytes;
	weir_unlock(c->worker);
	if (opening)
		return -EAGAIN;
	m.who.vqpn = c->vqpn;
	rc = weir_request(c->worker->w, &m, WEIR_MSG_PEER, &r, fds);
	if (rc)
		return rc;
	i.node = r.peer.node;
	i.uid = r.peer.local ? r.peer.uid : UINT32_MAX;
	i.pid = r.peer.local ? (int32_t)r.peer.pid : 0;
	memcpy(i.program, r.peer.program, sizeof(i.program));
	i.here = r.peer.here;
	i.there = r.peer.there;
	i.age_ms = r.peer.age_ms;
	i.priority = r.peer.class;
	return weir_sized_write(info, &i, sizeof(i), "WEIR_CONN_INFO_INIT");
}
