/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections: the table and the states. docs/protocol.md has the table of transitions.
 *
 * The last line of an end is FIN (all its messages are in the ring) or RESET (the peer's messages
 * beyond a count are refused). The other end answers FIN_ACK, its own last line; then another
 * connection can use the entry.
 */
#include "answer.h"
#include "channel.h"
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "datagram.h"
#include "events.h"
#include "export.h"
#include "link.h"
#include "base/list.h"
#include "lock.h"
#include "region.h"
#include "remote.h"
#include "rndv.h"
#include "scheduler.h"
#include "send_queue.h"
#include "session.h"
#include "state.h"

#include "ipc/text.h"

#include <errno.h>

void
conn_enter(struct conn *c, enum engine_conn_state to)
{
	static const uint8_t legal[] = {
	    [CONN_FREE] = 1u << CONN_OPENING,
	    [CONN_OPENING] =
		1u << CONN_OPEN | 1u << CONN_FINISHING | 1u << CONN_LOCAL | 1u << CONN_PEER_GONE,
	    [CONN_OPEN] = 1u << CONN_FINISHING | 1u << CONN_DEAD | 1u << CONN_PEER_GONE,
	    [CONN_FINISHING] = 1u << CONN_FINISHED | 1u << CONN_DEAD | 1u << CONN_PEER_GONE,
	    [CONN_FINISHED] = 1u << CONN_PEER_GONE,
	    [CONN_DEAD] = 1u << CONN_PEER_GONE,
	    [CONN_LOCAL] = 1u << CONN_PEER_GONE,
	    [CONN_PEER_GONE] = 1u << CONN_PEER_GONE | 1u << CONN_FREE,
	};

	weir_enter(legal, c->state, to);
}

void
conn_refresh(struct conn *c)
{
	c->fast = c->state == CONN_OPEN && !c->shut && !c->pend_first &&
		  !(c->ctrl_lines & CTRL_ACCEPT) && c->link && c->kind == CONN_STREAM &&
		  !c->session->limited;
}

struct conn *
conn_new(struct engine *e, struct session *s, const struct engine_conn_command *k)
{
	uint32_t window = k->window ? k->window : e->config.window, generation;
	struct conn *c;
	uint8_t *descs;

	if (e->free_count)
		c = &e->conns[e->free_conns[--e->free_count]];
	else if (e->conns_fresh < e->config.connections)
		c = &e->conns[e->conns_fresh++];
	else
		return NULL;
	generation = c->generation % 4095 + 1;
	memset(c, 0, sizeof(*c));
	c->cold = &e->cold_conns[c - e->conns];
	/* an idle connection leaves its cold entry untouched */
	if (c->cold->post_next)
		c->cold->post_next = 0;
	if (c->cold->rx_lent)
		c->cold->rx_lent = 0;
	c->generation = (uint16_t)generation;
	c->vqpn = WEIR_VQPN(e->first_index + (uint32_t)(c - e->conns), generation);
	conn_enter(c, CONN_OPENING);
	c->session = s;
	c->kind = k->kind;
	if (k->channel != ENGINE_CHANNEL_NONE) {
		c->channel = &s->channels[k->channel];
		descs = s->base + weir_arena_descs(&s->shared->geometry);
		c->desc = (struct weir_conn_desc *)(void *)descs + k->desc;
	} else {
		c->desc = &e->no_desc;
	}
	c->rx_window_max = window < 1u << 30 ? window : 1u << 30;
	c->peer_node = k->peer_node;
	c->listener = k->listener;
	c->segment = k->segment;
	c->conn_index = k->conn_index;
	if (c->kind == CONN_DATAGRAM) {
		memset(&c->cold->dgram, 0, sizeof(c->cold->dgram));
		c->cold->dgram.mtu = k->mtu;
	} else if (c->kind == CONN_MEMORY) {
		memset(&c->cold->memory, 0, sizeof(c->cold->memory));
	}
	list_append(&s->conns, &c->of_session);
	atomic_store_explicit(&c->desc->granted, 0, memory_order_relaxed);
	atomic_store_explicit(&c->desc->completed, 0, memory_order_relaxed);
	atomic_store_explicit(&c->desc->window, 0, memory_order_relaxed);
	atomic_store_explicit(&c->desc->recv_window, 0, memory_order_relaxed);
	atomic_store_explicit(&c->desc->recv_due, 0, memory_order_relaxed);
	atomic_store_explicit(&c->desc->status, 0, memory_order_relaxed);
	atomic_store_explicit(&c->desc->vqpn, c->vqpn, memory_order_release);
	return c;
}

void
conn_attach(struct engine *e, struct conn *c, struct peer_link *l)
{
	weir_assert(!c->link);
	c->link = l;
	queue_of(c->session, l, RING)->link = queue_of(c->session, l, BULK)->link = l;
	link_join(e, l, &c->of_link);
}

static void
detach(struct engine *e, struct conn *c)
{
	list_remove(&c->ctrl_due);
	list_remove(&c->cold->reading);
	if (c->link) {
		ctrl_line_release(e, c);
		queue_leave(queue_of(c->session, c->link, RING), &c->active);
		queue_leave(queue_of(c->session, c->link, BULK), &c->cold->writing);
		link_leave(e, c->link, &c->of_link);
	}
	c->link = NULL;
	c->ctrl_lines = 0;
}

static void
set_status(struct conn *c, uint32_t status)
{
	if (!c->status)
		c->status = status;
	/* as CLOSED says it, which may come later: programs that map memory look only here */
	atomic_store_explicit(&c->desc->status, c->status ? c->status : ECONNRESET,
			      memory_order_relaxed);
}

/* ---- opening ---- */

void
conn_opened(struct engine *e, struct conn *c, uint32_t peer_vqpn, uint64_t granted, uint32_t window)
{
	memset(c->service, 0, sizeof(c->service)); /* from now on it counts sends */
	c->peer_vqpn = peer_vqpn;
	c->accepts = c->kind != CONN_MEMORY;
	c->granted = granted;
	c->peer_window = window;
	atomic_store_explicit(&c->desc->granted, granted, memory_order_relaxed);
	atomic_store_explicit(&c->desc->window, window, memory_order_relaxed);
	if (c->user_closed) {
		conn_enter(c, CONN_FINISHING);
	} else {
		conn_enter(c, CONN_OPEN);
		app_event(e, c,
			  c->listener == ENGINE_LISTENER_NONE || c->held ? APP_OPENED
									 : APP_ACCEPTED);
	}
	c->held = false;
	conn_advance(e, c);
}

void
conn_set_refusal(struct conn *c, const char *reason)
{
	weir_assert(c->state == CONN_OPENING || c->state == CONN_LOCAL);
	weir_assert(c->kind != CONN_MEMORY); /* which keeps other fields there until its end */
	weir_text_copy(c->cold->refusal, reason, sizeof(c->cold->refusal));
	c->reasoned = c->cold->refusal[0];
}

bool
conn_add_refusal(struct conn *c, const char *part, size_t length)
{
	weir_assert(c->state == CONN_OPENING && c->kind != CONN_MEMORY);
	if (!c->reasoned)
		c->cold->refusal[0] = 0;
	c->reasoned = true;
	return weir_reason_append(c->cold->refusal, part, length);
}

int
conn_decide(struct engine *e, struct conn *c, const struct engine_conn_command *k,
	    const char *refusal)
{
	if (k->window)
		c->rx_window_max = k->window < WEIR_WINDOW_LIMIT ? k->window : WEIR_WINDOW_LIMIT;
	if (!c->held)
		return 0;
	if (c->state != CONN_OPENING && c->state != CONN_LOCAL)
		return -ENOENT; /* the other end has gone */
	if (k->status) {
		conn_set_refusal(c, refusal);
		conn_user_close(e, c, false);
	} else if (c->local) {
		c->held = false;
		app_event(e, c, APP_OPENED);
	} else {
		ctrl_line_due(e, c, CTRL_ACCEPT);
		if (c->kind == CONN_DATAGRAM)
			datagrams_open(e, c, c->peer_vqpn);
		else
			conn_opened(e, c, c->peer_vqpn, c->peer_window, c->peer_window);
	}
	return 0;
}

void
conn_refused(struct engine *e, struct conn *c, uint32_t status)
{
	detach(e, c);
	memset(c->service, 0, sizeof(c->service));
	conn_enter(c, CONN_PEER_GONE);
	c->sealed = c->refused = true;
	set_status(c, status);
	if (status != ECONNREFUSED) /* a part of the peer's, when the link failed */
		c->reasoned = false;
	credit_withdraw(e, c);
	pend_drop(c);
	if (c->user_closed)
		conn_settle_later(e, c);
	else
		app_event(e, c, APP_OPENED);
}

/* ---- closing ---- */

void
conn_try_finish(struct engine *e, struct conn *c)
{
	if (c->pend_first)
		return;
	if (c->state == CONN_OPEN && c->shut && !c->end_sent)
		ctrl_line_due(e, c, CTRL_END);
	if (c->state != CONN_FINISHING)
		return;
	if (c->abort) {
		conn_enter(c, CONN_DEAD);
		ctrl_line_due(e, c, CTRL_RESET);
	} else {
		c->ctrl_lines &= ~(unsigned)CTRL_END; /* FIN says it, too */
		ctrl_line_due(e, c, CTRL_FIN);
	}
}

/* Once both programs have shut down their sending, the connection ends as if this one closed it. */
static void
finish_if_shut(struct engine *e, struct conn *c)
{
	if (c->state == CONN_OPEN && c->shut && c->peer_shut)
		conn_enter(c, CONN_FINISHING);
	conn_try_finish(e, c);
}

void
conn_user_shut(struct engine *e, struct conn *c)
{
	weir_assert(!c->shut && !c->user_closed);
	c->shut = true;
	c->wants = false;
	conn_refresh(c);
	finish_if_shut(e, c);
}

bool
conn_peer_shut(struct engine *e, struct conn *c)
{
	/* a connection that takes no more messages fetches none that were announced */
	if (c->peer_shut || (c->accepts && c->rts_count))
		return false;
	c->peer_shut = true;
	if (c->accepts)
		credit_withdraw(e, c);
	c->ctrl_lines &= ~(unsigned)(CTRL_GRANT | CTRL_RECLAIM);
	posts_forget(c, UINT64_MAX);
	if (c->state == CONN_OPEN)
		app_event(e, c, APP_END);
	finish_if_shut(e, c);
	return true;
}

static void
close_local(struct engine *e, struct conn *c, uint32_t status)
{
	conn_enter(c, CONN_PEER_GONE);
	set_status(c, status);
	list_append_once(&e->closing, &c->cold->closing);
	e->rare = true;
	conn_settle_later(e, c);
}

void
conn_user_close(struct engine *e, struct conn *c, bool abort)
{
	c->user_closed = true;
	c->abort |= abort && !(c->shut && c->peer_shut); /* else it ends in order */
	c->wants = false;
	switch (c->state) {
	case CONN_OPENING:
		if (!c->link)
			conn_refused(e, c, 0);
		else if (c->held)
			ctrl_line_due(e, c, CTRL_REJECT);
		c->held = false;
		break; /* else the answer decides */
	case CONN_OPEN:
		conn_enter(c, CONN_FINISHING);
		/* fall through */
	case CONN_FINISHING:
		conn_refresh(c);
		conn_try_finish(e, c);
		break;
	case CONN_LOCAL:
		close_local(e, c, 0);
		break;
	default:
		conn_settle_later(e, c);
	}
}

void
conn_local_closed(struct engine *e, struct conn *c, uint32_t status)
{
	c->local_told = true;
	close_local(e, c, status);
}

void
conn_abort(struct engine *e, struct conn *c, uint32_t status, bool refuse)
{
	if (refuse && c->accepts)
		credit_withdraw(e, c);
	if (!conn_is_open(c))
		return;
	conn_enter(c, CONN_DEAD);
	set_status(c, status);
	conn_refresh(c);
	pend_drop(c);
	lock_leave(e, c);
	c->ctrl_lines &= CTRL_ACCEPT | CTRL_LOCKED;
	ctrl_line_due(e, c, CTRL_RESET);
}

void
conn_peer_ended(struct engine *e, struct conn *c, uint32_t status, bool seal)
{
	bool waits = c->state == CONN_FINISHED && !seal;

	if (c->state == CONN_PEER_GONE || (c->reset_sent && !seal))
		return;
	c->sealed |= seal;
	if (c->accepts)
		credit_withdraw(e, c);
	bulk_forget(e, c);
	pend_drop(c);
	answers_forget(e, c);
	ctrl_line_release(e, c);
	c->ctrl_lines = 0;
	set_status(c, status);
	ctrl_line_due(e, c, CTRL_FIN_ACK);
	if (!waits && !c->reset_sent)
		conn_enter(c, CONN_PEER_GONE);
	conn_refresh(c);
	conn_settle_later(e, c);
}

void
conn_peer_acknowledged(struct engine *e, struct conn *c)
{
	conn_enter(c, CONN_PEER_GONE);
	if (c->accepts)
		credit_withdraw(e, c);
	bulk_forget(e, c);
	answers_forget(e, c);
	conn_settle_later(e, c);
}

void
conn_link_failed(struct engine *e, struct conn *c, uint32_t status)
{
	if (c->state == CONN_OPENING) {
		conn_refused(e, c, status);
		return;
	}
	for (uint32_t i = 0; i < c->asked_count; i++)
		c->cold->asked[i]->in_flight = 0;
	c->landed = c->sent;
	c->bulk_flight = 0;
	c->sealed = true;
	detach(e, c);
	if (c->accepts)
		credit_withdraw(e, c);
	bulk_forget(e, c);
	pend_drop(c);
	answers_forget(e, c);
	if (c->state != CONN_PEER_GONE)
		/* programs learn that the node is lost, or only this connection */
		set_status(c, status == EHOSTDOWN ? EHOSTDOWN : ECONNRESET);
	conn_enter(c, CONN_PEER_GONE);
	conn_refresh(c);
	conn_settle_later(e, c);
}

/* n more of its messages have taken effect. */
static void
complete(struct engine *e, struct conn *c, uint32_t n, bool notify)
{
	uint64_t upto = c->completed + n;

	c->landed += n;
	if (UNLIKELY(c->kind == CONN_MEMORY))
		upto = answers_complete(c);
	if (!c->sealed && upto != c->completed) {
		c->completed = upto;
		/* the program may reuse the memory of these */
		atomic_store_explicit(&c->desc->completed, c->completed, memory_order_release);
		e->served = true;
		if (notify || UNLIKELY(c->done_at))
			app_event(e, c, APP_DONE);
		if (UNLIKELY(c->done_at) && c->completed >= c->done_at)
			c->done_at = 0;
	}
	if (UNLIKELY(c->state != CONN_OPEN))
		conn_settle_later(e, c);
}

void
conn_completed(struct engine *e, struct conn *c, uint32_t n, bool notify)
{
	complete(e, c, n, notify);
	if (UNLIKELY(c->kind == CONN_MEMORY) && transfer_awaits_cells(c))
		conn_advance(e, c);
}

void
conn_transferred(struct engine *e, struct conn *c)
{
	c->sent++;
	complete(e, c, 1, false);
}

void
conn_settle_later(struct engine *e, struct conn *c)
{
	if (c->state != CONN_PEER_GONE || c->ended)
		return;
	list_append_once(&e->settling, &c->cold->settling);
	e->rare = true;
}

void
conns_settle(struct engine *e)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, &e->settling) {
		struct conn *c = conn_of_cold(e, LIST_OWNER(node, struct conn_cold, settling));

		weir_assert(c->state == CONN_PEER_GONE && !c->ended);
		list_remove(node);
		lock_leave(e, c);	/* before the peer has acknowledged: nothing of c follows */
		if (conn_is_passive(c)) /* no program closes it */
			c->user_closed = true;
		region_lent_back(c);
		/* the memory of puts and gets is the program's again with CLOSED */
		if (!c->closed_told && !(c->events_due & (APP_OPENED | APP_CLOSED)) &&
		    (c->sealed || c->landed == c->sent) &&
		    (c->kind != CONN_MEMORY || !c->bulk_flight))
			app_event(e, c, APP_CLOSED);
		if (!c->user_closed || !c->closed_told || c->landed != c->sent || c->bulk_flight ||
		    c->ctrl_lines)
			continue;
		if (c->link)
			detach(e, c);
		if (c->kind == CONN_MEMORY) {
			export_unbind(e, c);
			export_unkey(c);
		}
		c->ended = true;
		c->ended_vqpn = c->vqpn;
		c->vqpn = 0;
		atomic_store_explicit(&c->desc->vqpn, 0, memory_order_relaxed);
		list_append_once(&e->closing, &c->cold->closing);
		e->rare = true;
	}
}
