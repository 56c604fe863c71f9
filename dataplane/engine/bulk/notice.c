/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices and signals. The window of notices is kept in the fields of a connection that streams use
 * for theirs: granted, spent and returned at the beginning end; rx_granted, rx_delivered and
 * rx_consumed at the executing end. Apart one connection is both ends, and the receive memory is
 * that of the exporting session, not its own.
 */
#include "channel.h"
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "dynamic.h"
#include "events.h"
#include "execute.h"
#include "export.h"
#include "notice.h"
#include "session.h"
#include "state.h"

/* Windows of a connection, in notices. An opener that never notifies keeps the small one. */
enum { NOTICES_FIRST = 8, NOTICES_MOST = 64 };

bool
notice_ok(const struct conn *c, const struct weir_slot *head)
{
	uint64_t length = c->cold->memory.length;
	struct weir_cell_notice n;
	uint32_t signals;

	memcpy(&n, head->data, sizeof(n));
	signals = n.options & WEIR_NOTICE_SIGNALS;
	if (n.handle != WEIR_HANDLE_FIRST || !(c->cold->memory.rights & WEIR_RIGHT_NOTIFY) ||
	    !n.options || n.options & ~(WEIR_NOTICE_DELIVER | WEIR_NOTICE_SIGNALS) ||
	    signals == WEIR_NOTICE_SIGNALS || n.reserved)
		return false;
	if (!(n.options & WEIR_NOTICE_DELIVER) && (n.tag || n.source || n.bytes))
		return false;
	if (!signals)
		return !n.signal && !n.operand;
	return n.signal % sizeof(n.operand) == 0 && length >= sizeof(n.operand) &&
	       n.signal <= length - sizeof(n.operand);
}

void
notice_wake(struct engine *e, const struct export *x)
{
	list_append_once(&e->signalled, &session_find(e, x->session)->signalled);
}

void
notice_execute(struct engine *e, struct conn *c, const struct weir_slot *head)
{
	struct export *x = c->cold->memory.export;
	_Atomic bool *updating = x->updating;
	struct weir_cell_notice n;
	uint64_t *word;

	memcpy(&n, head->data, sizeof(n));
	if (n.options & WEIR_NOTICE_SIGNALS) {
		word = x->ranges ? dynamic_word(x, n.signal, &updating)
				 : (uint64_t *)(void *)(x->base + n.signal);
		if (word) {
			if (UNLIKELY(!x->alone_from))
				updates_begin(updating);
			/* pairs with the acquire in weir_signal_wait(): operations before it are
			 * seen with it */
			if (n.options & WEIR_NOTICE_SET)
				__atomic_store_n(word, n.operand, __ATOMIC_RELEASE);
			else
				__atomic_fetch_add(word, n.operand, __ATOMIC_RELEASE);
			if (UNLIKELY(!x->alone_from))
				updates_end(updating);
		} else {
			c->cold->memory.refused++;
			export_count_refused(e, x);
		}
		notice_wake(e, x);
	}
	/* into the ring of the exporting thread, or its spills */
	if (n.options & WEIR_NOTICE_DELIVER) {
		struct session *s = session_find(e, x->session);
		struct channel *ch = &s->channels[x->channel];
		struct weir_slot slot = {.op = WEIR_OP_NOTICE, .vqpn = c->vqpn};
		struct weir_slot_notice to = {.number = x->number,
					      .generation = x->generation,
					      .tag = n.tag,
					      .source = n.source,
					      .bytes = n.bytes};

		weir_assert(c->rx_granted - c->rx_delivered >= WEIR_NOTICE_COST);
		memcpy(slot.data, &to, sizeof(to));
		c->rx_delivered += WEIR_NOTICE_COST;
		s->promised -= WEIR_NOTICE_COST;
		e->delivered = true;
		if (ch->spilling || !channel_put_event(e, ch, &slot))
			spill_slots(e, ch, NULL, &slot, NULL, 0, 0, 1);
	}
	x->counters.notices++;
}

/* ---- the window ---- */

/* Grants what is due. Whether there was anything. */
static bool
grant_notices(struct engine *e, struct conn *c)
{
	struct session *s = session_find(e, c->cold->memory.export->session);
	uint32_t window = (c->rx_consumed ? NOTICES_MOST : NOTICES_FIRST) * WEIR_NOTICE_COST;
	uint64_t left = c->rx_granted - c->rx_delivered, due, spare;

	weir_assert(c->rx_consumed + window >= c->rx_granted);
	due = c->rx_consumed + window - c->rx_granted;
	if (left && due < window / 2)
		return false;
	spare = session_spare(s);
	if (due > spare)
		due = spare - spare % WEIR_NOTICE_COST;
	if (!due && !left && c->rx_delivered == c->rx_consumed) /* no NOTICED comes back here */
		session_await_memory(e, s, &s->awaits_grant, &c->cold->awaits_grant);
	else
		list_remove(&c->cold->awaits_grant);
	if (!due)
		return false;
	c->rx_window = window;
	c->rx_granted += due;
	s->promised += due;
	return true;
}

/* The beginning end of an apart connection is this end, too. */
static void
show_notices(struct engine *e, struct conn *c)
{
	if (!conn_is_passive(c))
		credit_return(e, c, c->rx_granted, c->rx_consumed, c->rx_window);
}

void
notices_open(struct engine *e, struct conn *c)
{
	if (c->cold->memory.rights & WEIR_RIGHT_NOTIFY && grant_notices(e, c))
		show_notices(e, c);
}

void
notices_grant(struct engine *e, struct conn *c)
{
	if (!c->cold->memory.export || (!conn_is_open(c) && c->state != CONN_LOCAL)) {
		list_remove(&c->cold->awaits_grant);
		return;
	}
	if (!grant_notices(e, c))
		return;
	show_notices(e, c);
	if (conn_is_passive(c))
		ctrl_line_due(e, c, CTRL_GRANT);
}

void
notices_end(struct engine *e, struct conn *c)
{
	struct session *s = session_find(e, c->cold->memory.export->session);

	list_remove(&c->cold->awaits_grant);
	weir_assert(s->promised >= c->rx_granted - c->rx_delivered);
	s->promised -= c->rx_granted - c->rx_delivered;
	c->rx_granted = c->rx_delivered;
	session_memory_freed(e, s);
}

const char *
notices_taken(struct engine *e, struct session *s, const struct weir_slot *slot)
{
	if (!slot->length || slot->length > WEIR_SLOT_HEAD_BYTES / sizeof(slot->place[0]))
		return "a wrong number of notices taken";
	for (uint32_t i = 0; i < slot->length; i++) {
		struct conn *c = conn_find(e, (uint32_t)slot->place[i]);
		uint64_t cost = (slot->place[i] >> 32) * WEIR_NOTICE_COST;
		const struct export *x;

		/* of a connection or an export that has ended, it is stale */
		x = c && c->kind == CONN_MEMORY ? c->cold->memory.export : NULL;
		if (!x || x->session != s->shared->id)
			continue;
		if (cost > c->rx_delivered - c->rx_consumed)
			return "took more notices than were delivered";
		c->rx_consumed += cost;
		notices_grant(e, c);
	}
	return NULL;
}
