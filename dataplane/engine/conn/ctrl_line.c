/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control lines between engines. A line that is due is a bit of its connection until the ring has
 * room. It is filled in when it is written, from the state at that time.
 */
#include "answer.h"
#include "batch.h"
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "datagram.h"
#include "deliver.h"
#include "events.h"
#include "link.h"
#include "lock.h"
#include "base/list.h"
#include "region.h"
#include "rndv.h"
#include "send_queue.h"
#include "session.h"
#include "slot_head.h"
#include "state.h"

#include "ipc/text.h"

#include <errno.h>

void
ctrl_line_due(struct engine *e, struct conn *c, unsigned what)
{
	/* after FIN or RESET an end only acknowledges the other's */
	if (c->state == CONN_FINISHED || c->state == CONN_PEER_GONE || c->reset_sent)
		what &= CTRL_FIN_ACK;
	c->ctrl_lines |= what;
	if (!c->link || !c->ctrl_lines || !c->link->up)
		return;
	list_append_once(&c->link->ctrl_due, &c->ctrl_due);
	link_busy(e, c->link);
	e->ctrl_added = true;
}

static void rejects_send(struct engine *e, struct peer_link *l);

bool
reject_later(struct engine *e, struct peer_link *l, uint32_t peer_vqpn, uint32_t status)
{
	uint16_t at;

	weir_assert(l->up && status <= UINT16_MAX);
	if (l->rejects.count >= REJECTS_OWN && l->rejects.count - REJECTS_OWN >= e->rejects_left)
		rejects_send(e, l); /* places of a peer that takes answers become free */
	if (l->rejects.count >= REJECTS_OWN) {
		if (l->rejects.count - REJECTS_OWN >= e->rejects_left) {
			l->unanswered = true;
			return false;
		}
		e->rejects_left--;
	}
	at = e->reject_free;
	if (at)
		e->reject_free = e->rejects[at].next;
	else
		at = ++e->rejects_fresh;
	e->rejects[at] = (struct reject){.peer_vqpn = peer_vqpn, .status = (uint16_t)status};
	if (l->rejects.count++)
		e->rejects[l->rejects.last].next = at;
	else
		l->rejects.first = at;
	l->rejects.last = at;
	link_busy(e, l);
	return true;
}

struct reject
reject_take(struct engine *e, struct peer_link *l)
{
	uint16_t at = l->rejects.first;
	struct reject r = e->rejects[at];

	weir_assert(l->rejects.count);
	e->rejects_left += l->rejects.count-- > REJECTS_OWN;
	l->rejects.first = r.next;
	e->rejects[at].next = e->reject_free;
	e->reject_free = at;
	return r;
}

static struct weir_slot *
put(struct peer_link *l, uint8_t op, uint32_t vqpn, uint32_t length)
{
	struct weir_slot *s = link_put_line(l);
	struct head h = {.op = op, .vqpn = vqpn, .length = length};

	memset(s, 0, sizeof(*s));
	head_store(s, 0, h);
	return s;
}

/* Writes RTS, CTS and FETCHED lines: several may be due. False: no room for all. */
static bool
send_bulk_lines(struct engine *e, struct peer_link *l, struct conn *c)
{
	const struct session *s = c->session;

	while (c->ctrl_lines & CTRL_RTS && c->rts_next && c->asked_count < RTS_MAX) {
		struct pend *p = c->rts_next;
		struct weir_wire_rts w = {.number = p->number};

		if (link_room(e, l, 1) != ROOM)
			return false;
		if (s->limited) /* peers would read faster than the rate allows */
			p->slot.flags =
			    (uint8_t)((p->slot.flags & ~WEIR_SLOT_READ) | WEIR_SLOT_WRITE);
		w.ways = bulk_ways(p);
		if (w.ways & WEIR_RTS_READ) {
			w.address = (uintptr_t)place_memory(s, p->slot.place[0]);
			w.rkey = place_mr(s, p->slot.place[0])->rkey;
		}
		memcpy(put(l, WEIR_WIRE_RTS, c->peer_vqpn, p->slot.length)->data, &w, sizeof(w));
		bulk_ask(c, p);
	}
	c->ctrl_lines &= ~(unsigned)CTRL_RTS;
	for (uint32_t i = 0; c->ctrl_lines & CTRL_CTS && i < c->rts_count;) {
		struct rts *r = &c->cold->rts[i];
		struct weir_wire_cts w = {.number = r->number};

		if (r->state != RTS_PLACED && r->state != RTS_REFUSED && r->state != RTS_READ) {
			i++;
			continue;
		}
		if (link_room(e, l, 1) != ROOM)
			return false;
		if (r->state == RTS_READ) {
			struct weir_slot *line = put(l, WEIR_WIRE_FETCHED, c->peer_vqpn, 0);

			line->value = r->number;
			line->extra = r->delivered;
			r->state = RTS_FETCHED;
			if (r->delivered)
				bulk_remove(c, i);
			continue;
		}
		if (r->state == RTS_PLACED) {
			w.address = (uintptr_t)place_memory(s, r->place);
			w.rkey = place_mr(s, r->place)->rkey;
			r->state = RTS_ANSWERED;
		} else {
			w.status = EMSGSIZE;
			bulk_remove(c, i);
		}
		memcpy(put(l, WEIR_WIRE_CTS, c->peer_vqpn, 0)->data, &w, sizeof(w));
	}
	c->ctrl_lines &= ~(unsigned)CTRL_CTS;
	return true;
}

/* Lines that put_line() writes. */
static uint32_t
lines_of(const struct conn *c, unsigned what)
{
	return what == CTRL_REJECT && c->reasoned ? 1 + weir_reason_slots(c->cold->refusal) : 1;
}

/* Writes what a line of one kind takes; the frame has room. */
static void
put_line(struct engine *e, struct peer_link *l, struct conn *c, unsigned what)
{
	const struct weir_wire_datagram datagrams = {e->datagrams.qpn, e->datagrams.is.qkey};
	struct weir_wire_connect w;
	const char *reason;
	struct weir_slot *s;

	switch (what) {
	case CTRL_CONNECT:
		s = put(l, WEIR_WIRE_CONNECT, 0, 0);
		w = (struct weir_wire_connect){.vqpn = c->vqpn,
					       .window = c->rx_window_max,
					       .granted = (uint32_t)c->rx_granted,
					       .node = e->node};
		if (c->kind == CONN_DATAGRAM) {
			c->cold->dgram.qpn = datagrams.qpn;
			w.datagram = datagrams;
			s->flags = WEIR_SLOT_DATAGRAM;
		}
		if (c->kind == CONN_MEMORY)
			w.flags = WEIR_CONNECTS_MEMORY;
		memcpy(w.service, c->service, sizeof(w.service));
		memcpy(s->data, &w, sizeof(w));
		break;
	case CTRL_ACCEPT:
		s = put(l, WEIR_WIRE_ACCEPT, c->peer_vqpn,
			c->kind == CONN_DATAGRAM ? 0 : c->rx_window);
		s->extra = c->vqpn;
		if (c->kind == CONN_DATAGRAM) {
			c->cold->dgram.qpn = datagrams.qpn;
			s->flags = WEIR_SLOT_DATAGRAM;
			memcpy(&s->value, &datagrams, sizeof(datagrams));
		} else if (c->kind == CONN_MEMORY) {
			s->value = c->cold->memory.length;
			s->length = c->cold->memory.rights;
			s->place[2] = c->rx_granted;
			memcpy(&s->place[3], &c->cold->memory.key, sizeof(c->cold->memory.key));
		} else {
			s->value = c->rx_granted;
		}
		break;
	case CTRL_GRANT:
		s = put(l, WEIR_WIRE_GRANT, c->peer_vqpn, c->rx_window);
		s->value = c->rx_granted;
		s->place[2] = c->rx_consumed;
		break;
	case CTRL_RECLAIM:
		put(l, WEIR_WIRE_RECLAIM, c->peer_vqpn, 0);
		break;
	case CTRL_RECLAIMED:
		put(l, WEIR_WIRE_RECLAIMED, c->peer_vqpn, 0)->value = c->granted;
		break;
	case CTRL_STALLED:
		if (!credit_missing(c))
			break; /* GRANT has come meanwhile */
		put(l, WEIR_WIRE_STALLED, c->peer_vqpn, 0)->value = credit_missing(c);
		c->stall_told = true;
		break;
	case CTRL_LOCKED:
		put(l, WEIR_WIRE_LOCKED, c->peer_vqpn, 0)->status = c->cold->memory.lock.status;
		break;
	case CTRL_END:
		put(l, WEIR_WIRE_END, c->peer_vqpn, 0)->value = c->sent;
		c->end_sent = true;
		break;
	case CTRL_FIN:
		put(l, WEIR_WIRE_FIN, c->peer_vqpn, 0)->value = conn_wire_sent(c);
		conn_enter(c, CONN_FINISHED);
		c->ctrl_lines &= CTRL_FIN_ACK;
		break;
	case CTRL_RESET:
		s = put(l, WEIR_WIRE_RESET, c->peer_vqpn, 0);
		s->value = c->rx_messages;
		if (c->kind == CONN_MEMORY && c->cold->memory.lock.cut)
			s->value--; /* the last one, which waited */
		s->status = c->status == ESTALE ? ESTALE : ECONNRESET;
		c->reset_sent = true;
		c->ctrl_lines &= CTRL_FIN_ACK;
		ctrl_line_release(e, c);
		credit_withdraw(e, c);
		break;
	case CTRL_REJECT:
		reason = c->reasoned ? c->cold->refusal : "";
		for (uint32_t i = lines_of(c, what); i > 1; i--, reason += WEIR_SLOT_HEAD_BYTES)
			memcpy(put(l, WEIR_WIRE_REASON, c->peer_vqpn, 0)->data, reason,
			       WEIR_SLOT_HEAD_BYTES);
		s = put(l, WEIR_WIRE_REJECT, c->peer_vqpn, 0);
		s->status = ECONNREFUSED;
		memcpy(s->reason, reason, strnlen(reason, sizeof(s->reason) - 1));
		conn_refused(e, c, ECONNREFUSED);
		break;
	default:
		weir_assert(what == CTRL_FIN_ACK);
		put(l, WEIR_WIRE_FIN_ACK, c->peer_vqpn, 0);
	}
}

COLD void
ctrl_line_hold(struct conn *c)
{
	struct peer_link *l = c->link;

	if (!(c->ctrl_lines & CTRL_RESET) || c->holds)
		return;
	c->holds = true;
	if (!l->holds++)
		l->held_at = l->rx_pos;
}

COLD void
ctrl_line_release(struct engine *e, struct conn *c)
{
	struct peer_link *l = c->link;

	if (!c->holds)
		return;
	c->holds = false;
	weir_assert(l->holds);
	if (--l->holds)
		return;
	l->credit_due = e->now;
	link_busy(e, l);
}

/* As far as there is room. */
static void
rejects_send(struct engine *e, struct peer_link *l)
{
	l->frame_max = FRAME_LINES + CONTROL_LINES; /* lines that messages can't take */
	while (l->rejects.count && link_room(e, l, 1) == ROOM) {
		struct reject r = reject_take(e, l);

		put(l, WEIR_WIRE_REJECT, r.peer_vqpn, 0)->status = r.status;
	}
	l->frame_max = FRAME_LINES;
}

void
ctrl_lines_send(struct engine *e, struct peer_link *l)
{
	bool room = true;

	if (UNLIKELY(l->rejects.count))
		rejects_send(e, l);
	l->frame_max = FRAME_LINES + CONTROL_LINES;
	while (room && !list_empty(&l->ctrl_due)) {
		struct conn *c = LIST_OWNER(l->ctrl_due.next, struct conn, ctrl_due);

		while (room && c->ctrl_lines) {
			unsigned what = c->ctrl_lines & (~c->ctrl_lines + 1); /* lowest bit first */

			if (what & (CTRL_RTS | CTRL_CTS)) {
				room = send_bulk_lines(e, l, c);
				continue;
			}
			/* these say that no WRITE or READ of ours is under way, and no answer */
			if (what & (CTRL_FIN | CTRL_RESET | CTRL_FIN_ACK) &&
			    (c->bulk_flight || answers_wait(c)))
				break;
			room = link_room(e, l, lines_of(c, what)) == ROOM;
			if (!room)
				break;
			c->ctrl_lines &= ~what;
			put_line(e, l, c, what);
			if (what == CTRL_ACCEPT) {
				conn_refresh(c);
				conn_advance(e, c);
			}
		}
		if (room) {
			list_remove(&c->ctrl_due);
			conn_settle_later(e, c);
		}
	}
	l->frame_max = FRAME_LINES;
}

/* ---- receiving ---- */

static bool
take_connect(struct engine *e, struct peer_link *l, const struct weir_slot *s)
{
	struct weir_wire_connect w;
	struct engine_event *event;
	bool memory;

	memcpy(&w, s->data, sizeof(w));
	if (!link_lasts(l)) /* its last line has come */
		return false;
	memory = w.flags & WEIR_CONNECTS_MEMORY;
	if (s->vqpn || !w.vqpn || (!memory && !memchr(w.service, 0, sizeof(w.service))) ||
	    (memory && s->flags & WEIR_SLOT_DATAGRAM))
		return false;
	if (e->connect_end - e->connect_first == CONNECTS)
		return reject_later(e, l, w.vqpn, ECONNREFUSED);
	event = &e->connects[e->connect_end++ % CONNECTS];
	e->rare = true;
	*event = (struct engine_event){
	    .type = ENGINE_EVENT_CONNECT,
	    .conn = {.link = l->is.link, .peer_node = l->is.peer_node, .peer_vqpn = w.vqpn},
	};
	if (s->flags & WEIR_SLOT_DATAGRAM) {
		event->conn.kind = CONN_DATAGRAM;
		event->conn.to = w.datagram;
	} else if (memory) {
		event->conn.kind = CONN_MEMORY;
	} else {
		event->conn.window = w.window;
		event->conn.granted = w.granted;
	}
	memcpy(event->conn.service, w.service, sizeof(w.service));
	return true;
}

/*
 * Takes a line for a stream that has opened. Only open ends use lines of the window and of bulk
 * messages; the others ignore them. False: the peer broke the rules of the connection.
 */
static bool
take_flow(struct engine *e, struct conn *c, const struct weir_slot *s)
{
	bool open = conn_is_open(c);
	struct weir_wire_rts rts;
	struct weir_wire_cts cts;

	switch (s->op) {
	case WEIR_WIRE_GRANT:
		if (!open)
			return true;
		if (s->value < c->granted || s->place[2] > c->spent)
			return false;
		credit_return(e, c, s->value, s->place[2], s->length);
		return true;
	case WEIR_WIRE_RECLAIM:
		if (open)
			credit_hand_back(e, c);
		return true;
	case WEIR_WIRE_STALLED:
		if (c->accepts)
			credit_wanted(e, c,
				      s->value < UINT32_MAX ? (uint32_t)s->value : UINT32_MAX);
		return true;
	case WEIR_WIRE_RECLAIMED:
		if (!c->accepts)
			return true;
		if (!c->reclaiming || s->value > c->rx_granted || s->value < c->rx_delivered)
			return false;
		credit_reclaimed(e, c, s->value);
		return true;
	case WEIR_WIRE_RTS:
		memcpy(&rts, s->data, sizeof(rts));
		return !open || bulk_asked(e, c, &rts, s->length);
	case WEIR_WIRE_CTS:
		memcpy(&cts, s->data, sizeof(cts));
		return !open || bulk_answered(e, c, &cts);
	case WEIR_WIRE_FETCHED:
		return !open || bulk_fetched(e, c, s->value, s->extra);
	default:
		weir_assert(s->op == WEIR_WIRE_BULK);
		return !c->accepts || bulk_arrived(e, c, s->value);
	}
}

bool
ctrl_line_receive(struct engine *e, struct peer_link *l, const struct weir_slot *s)
{
	char reason[WEIR_REFUSAL_MAX];
	struct conn *c;
	uint64_t value;
	bool memory;

	if (s->op == WEIR_WIRE_CONNECT)
		return take_connect(e, l, s);
	if (UNLIKELY(s->op >= WEIR_WIRE_LINK_CLOSE && s->op <= WEIR_WIRE_LINK_LEFT))
		return !s->vqpn && link_line_receive(e, l, s);
	if ((s->op < WEIR_WIRE_CONNECT || s->op > WEIR_WIRE_REASON) && s->op != WEIR_WIRE_LOCKED)
		return false;
	c = conn_find(e, s->vqpn);
	if (!c || c->link != l)
		return false;
	if ((c->state == CONN_OPENING) !=
	    (s->op == WEIR_WIRE_ACCEPT || s->op == WEIR_WIRE_REJECT || s->op == WEIR_WIRE_REASON))
		return false;
	/* a peer opens no connection that our program holds */
	if (c->state == CONN_OPENING && c->listener != ENGINE_LISTENER_NONE)
		return false;
	memory = c->kind == CONN_MEMORY;
	switch (s->op) {
	case WEIR_WIRE_ACCEPT:
		if (!s->extra || c->reasoned ||
		    !(s->flags & WEIR_SLOT_DATAGRAM) != (c->kind != CONN_DATAGRAM))
			return false;
		if (c->kind == CONN_DATAGRAM) {
			memcpy(&l->datagrams_to, &s->value, sizeof(l->datagrams_to));
			datagrams_open(e, c, s->extra);
		} else if (memory) {
			c->cold->memory.length = c->cold->memory.direct = s->value;
			c->cold->memory.rights = s->length & WEIR_RIGHTS_KNOWN;
			memcpy(&c->cold->memory.key, &s->place[3], sizeof(c->cold->memory.key));
			conn_opened(e, c, s->extra, s->place[2], 0);
		} else {
			conn_opened(e, c, s->extra, s->value, s->length);
		}
		return true;
	case WEIR_WIRE_REASON:
		return c->kind != CONN_MEMORY &&
		       conn_add_refusal(c, (const char *)s->data, sizeof(s->data));
	case WEIR_WIRE_REJECT:
		if (c->kind == CONN_MEMORY) { /* no program refuses it, and gives a reason */
			conn_refused(e, c, s->status ? s->status : ECONNREFUSED);
			return true;
		}
		if (!conn_add_refusal(c, s->reason, sizeof(s->reason)))
			return false;
		memcpy(reason, c->cold->refusal, sizeof(reason));
		conn_set_refusal(c, reason);
		conn_refused(e, c, s->status ? s->status : ECONNREFUSED);
		return true;
	case WEIR_WIRE_LOCKED:
		if (c->kind != CONN_MEMORY || !lock_answered(e, c, s->status))
			peer_misbehaved(e, c);
		return true;
	case WEIR_WIRE_END:
		if (c->kind == CONN_MEMORY ||
		    (c->accepts && c->kind != CONN_DATAGRAM && s->value != c->rx_messages) ||
		    !conn_peer_shut(e, c))
			peer_misbehaved(e, c);
		return true;
	case WEIR_WIRE_FIN:
		if ((c->accepts || (conn_is_passive(c) && conn_is_open(c))) &&
		    c->kind != CONN_DATAGRAM && s->value != c->rx_messages)
			peer_misbehaved(e, c);
		else
			conn_peer_ended(e, c, 0, false);
		return true;
	case WEIR_WIRE_RESET:
		/* messages that it has read may have been delivered before our BULK; what it has
		 * executed has been answered. It counts no transfers: those that we count came
		 * before all cells that are not known to be executed. */
		value = s->value + (c->sent - conn_wire_sent(c));
		if (!c->sealed && value <= c->sent + (memory ? 0 : c->asked_count) &&
		    value >= c->completed && value <= answers_before(c)) {
			c->completed = value;
			atomic_store_explicit(&c->desc->completed, c->completed,
					      memory_order_release);
		}
		conn_peer_ended(e, c, s->status ? s->status : ECONNRESET, true);
		return true;
	case WEIR_WIRE_FIN_ACK:
		if (c->state != CONN_FINISHED && !(c->state == CONN_DEAD && c->reset_sent))
			return false;
		conn_peer_acknowledged(e, c);
		return true;
	default:
		if (c->kind == CONN_DATAGRAM ||
		    (c->kind == CONN_MEMORY && (s->op != WEIR_WIRE_GRANT || conn_is_passive(c))) ||
		    !take_flow(e, c, s))
			peer_misbehaved(e, c);
		return true;
	}
}
