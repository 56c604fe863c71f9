/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory. Both engines check each one on a private copy of its head: a program
 * that writes a wrong one ends, and so does the connection of a peer. The payload is not copied
 * first: its sender decides anyway which bytes it stores.
 */
#include "remote.h"
#include "batch.h"
#include "deliver.h"
#include "events.h"
#include "export.h"
#include "link.h"
#include "scheduler.h"
#include "send_queue.h"
#include "slot_head.h"
#include "state.h"

static bool
put_ok(const struct conn *c, const struct weir_slot *head)
{
	struct weir_cell_put put;

	memcpy(&put, head->data, sizeof(put));
	return put.handle == WEIR_HANDLE_FIRST && !put.options &&
	       c->cold->memory.rights & WEIR_RIGHT_WRITE && put.offset <= c->cold->memory.length &&
	       head->length <= c->cold->memory.length - put.offset;
}

/* Programs of this host see aligned 1, 2, 4 and 8 bytes whole. */
static inline void
store_whole(uint8_t *to, const uint8_t *from, uint32_t n)
{
#define WHOLE(type)                                                                                \
	case sizeof(type): {                                                                       \
		type v;                                                                            \
                                                                                                   \
		memcpy(&v, from, sizeof(v));                                                       \
		__atomic_store_n((type *)(void *)to, v, __ATOMIC_RELAXED);                         \
		return;                                                                            \
	}
	if (!((uintptr_t)to & (n - 1)))
		switch (n) {
			WHOLE(uint8_t)
			WHOLE(uint16_t)
			WHOLE(uint32_t)
			WHOLE(uint64_t)
		}
#undef WHOLE
	memcpy(to, from, n);
}

/* Stores a PUT that is ok. `ring`: where its continuations are, behind `pos`. */
static void
put_execute(struct engine *e, struct conn *c, const struct weir_slot *head,
	    const struct weir_slot *ring, uint32_t mask, uint64_t pos)
{
	uint32_t left = head->length, part = sizeof(((struct weir_cell_put *)0)->payload);
	struct weir_cell_put put;
	uint8_t *to;

	memcpy(&put, head->data, sizeof(put));
	to = c->cold->memory.export->base + put.offset;
	if (left <= part) {
		store_whole(to, put.payload, left);
	} else {
		memcpy(to, put.payload, part);
		for (to += part, left -= part; left; to += part, left -= part) {
			const void *more = &ring[++pos & mask];

			part = left < WEIR_SLOT_MORE_BYTES ? left : WEIR_SLOT_MORE_BYTES;
			memcpy(to, ((const struct weir_slot_more *)more)->data, part);
		}
	}
	count(&e->counters.remote_operations, 1);
	count(&e->counters.remote_bytes, head->length);
}

/* ---- the beginning end ---- */

void
remote_sent(struct peer_link *l, const struct conn *c)
{
	l->prompt |= c->done_at && c->sent == c->done_at;
}

/* The program awaits DONE: credit for what has left is asked for now, or with the last one. */
static enum take
take_flush(struct engine *e, struct channel *ch, struct conn *c)
{
	weir_ring_pop(&ch->tx, 1);
	if (c->completed >= c->taken) {
		app_event(e, c, APP_DONE);
	} else if (conn_is_open(c)) {
		c->done_at = c->taken;
		if (c->sent == c->taken && c->link) {
			c->link->prompt = true;
			link_busy(e, c->link);
		}
	} /* else CLOSED answers */
	return TAKEN_DEAR;
}

/* Puts the operation into the open frame. False: it can't leave now. */
static bool
send_operation(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *cell,
	       uint32_t n, enum room *room)
{
	struct peer_link *l = c->link;
	struct weir_slot *to;

	if (c->state != CONN_OPEN || c->pend_first || !l || c->session->limited ||
	    !list_empty(&l->active))
		return false;
	*room = link_room_of(e, l, c->session, n, 0);
	if (*room != ROOM)
		return false;
	to = link_put_line(l);
	memcpy(to, cell, sizeof(*to));
	to->vqpn = c->peer_vqpn;
	for (uint32_t i = 1; i < n; i++)
		memcpy(link_put_line(l), weir_ring_at(&ch->tx, ch->tx.pos + i), WEIR_SLOT_SIZE);
	link_count(l, c, 1);
	link_sent(l, c, 1, false);
	remote_sent(l, c);
	return true;
}

enum take
remote_take(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot)
{
	enum room room = ROOM;
	struct weir_slot cell;
	uint32_t n;

	line_load(&cell, slot);
	if (cell.vqpn != c->vqpn || cell.order != (uint16_t)c->taken)
		return channel_refuse(e, ch, "slot changed after it was published");
	if (c->kind != CONN_MEMORY || conn_is_passive(c) || c->state == CONN_OPENING ||
	    c->user_closed)
		return channel_refuse(e, ch, "operation on a connection without memory");
	if (cell.op == WEIR_OP_FLUSH)
		return take_flush(e, ch, c);
	if (cell.op != WEIR_OP_PUT || cell.length > WEIR_PUT_MAX || cell.flags || !put_ok(c, &cell))
		return channel_refuse(e, ch, "operation outside its memory or its rights");
	n = weir_put_slots(cell.length);
	if (c->state == CONN_LOCAL) {
		put_execute(e, c, &cell, ch->tx.slots, ch->tx.mask, ch->tx.pos - ch->tx.base);
		channel_taken(e, ch, c, 1, n, cell.length);
		c->sent++;
		conn_completed(e, c, 1, false);
		return TAKEN;
	}
	if (c->state == CONN_PEER_GONE || c->state == CONN_DEAD) {
		channel_taken(e, ch, c, 1, n, cell.length);
		return TAKEN_DEAR;
	}
	if (!send_operation(e, ch, c, &cell, n, &room)) {
		if (room == ROOM_LATER)
			return STAYS;
		if (!pend_message(e, c, ch, head_load(&cell), 0, &cell)) {
			ch->blocked = true;
			return STAYS;
		}
	}
	channel_taken(e, ch, c, 1, n, cell.length);
	return TAKEN;
}

/* ---- the executing end ---- */

int
remote_receive(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	struct weir_slot cell;
	struct conn *c;
	uint32_t n;

	line_load(&cell, &l->rx[pos & l->rx_mask]);
	if (cell.op != WEIR_OP_PUT || cell.length > WEIR_PUT_MAX)
		return -1;
	n = weir_put_slots(cell.length);
	c = conn_find(e, cell.vqpn);
	if (n > end - pos || !c || c->link != l || c->state == CONN_OPENING)
		return -1;
	if (!conn_is_open(c) || !c->cold->memory.export) { /* it has ended at our side */
		count(&e->counters.stray, 1);
	} else if (!conn_is_passive(c) || cell.order != (uint16_t)c->rx_messages ||
		   !put_ok(c, &cell)) {
		peer_misbehaved(e, c);
	} else {
		put_execute(e, c, &cell, l->rx, l->rx_mask, pos);
		c->rx_messages++;
		c->by_send += l->rx_send;
	}
	return (int)n;
}
