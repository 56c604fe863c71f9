/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a dead data plane leaves besides what lies in its rings: messages that are complete for
 * their senders and that its engine kept in the session's memory for want of room in the ring.
 */
#include "conn.h"

#include "client/channel.h"
#include "client/reason.h"
#include "client/thread.h"

struct chain {
	uint64_t block; /* from the arena's start */
	uint32_t from, left;
};

/* NULL: there is no more, or it is not in the receive memory. */
static const struct weir_slot *
next_slot(const struct weir *w, struct chain *at)
{
	uint64_t first = weir_arena_recv(&w->geometry) / WEIR_BLOCK_SIZE;
	const struct weir_slot *block, *slot;

	if (!at->left || at->block < first || at->block - first >= w->geometry.recv_blocks ||
	    at->from >= WEIR_SPILL_SLOTS)
		return NULL;
	block = (const struct weir_slot *)(const void *)(w->arena + at->block * WEIR_BLOCK_SIZE);
	slot = &block[at->from];
	at->left--;
	if (++at->from == WEIR_SPILL_SLOTS) {
		at->from = 0;
		at->block = atomic_load_explicit(&block->seq, memory_order_relaxed);
	}
	return slot;
}

/*
 * Whether c's next message is that one. Another one lay in the ring, too, or comes after one that
 * is lost.
 */
static bool
is_next(struct weir_conn *c, const struct weir_head *h)
{
	if (!c->salvage) {
		c->salvage = c->received + 1;
		for (const struct weir_parked *p = c->queue; p; p = p->next)
			c->salvage++;
	}
	return h->order == (uint16_t)(c->salvage - 1);
}

/* Payload of a message whose head lies in `slot`. False: the chain ends in it. */
static bool
gather(const struct weir *w, struct chain *at, const struct weir_slot *slot, uint8_t *to,
       uint32_t length)
{
	uint32_t n = length < WEIR_SLOT_HEAD_BYTES ? length : WEIR_SLOT_HEAD_BYTES;

	memcpy(to, slot->data, n);
	while (length -= n) {
		slot = next_slot(w, at);
		if (!slot)
			return false;
		to += n;
		n = length < WEIR_SLOT_MORE_BYTES ? length : WEIR_SLOT_MORE_BYTES;
		memcpy(to, ((const struct weir_slot_more *)(const void *)slot)->data, n);
	}
	return true;
}

/* The next message of the chain, with what it needs to be received. NULL: no memory, or no message.
 */
static struct weir_parked *
next_message(struct weir_channel *ch, struct chain *at, struct weir_head *h)
{
	struct weir_thread *t = ch->pipe.worker;
	const struct weir_slot *slot = next_slot(t->w, at);
	struct weir_parked *p;

	if (!slot)
		return NULL;
	*h = weir_head_copy(slot);
	if (h->op != WEIR_OP_PLACE && (h->op != WEIR_OP_INLINE || h->length > WEIR_INLINE_MAX))
		return NULL;
	p = weir_parked_new(t, h->op == WEIR_OP_INLINE ? h->length : 0);
	if (!p)
		return NULL;
	p->vqpn = h->vqpn;
	p->length = h->length;
	if (h->op == WEIR_OP_PLACE) {
		p->at = slot->place[0];
	} else if (!gather(t->w, at, slot, p->data, h->length)) {
		weir_parked_free(p);
		return NULL;
	}
	return p;
}

/* False: it is nobody's, or not the next one. */
static bool
append(struct weir_channel *ch, const struct weir_head *h, struct weir_parked *p)
{
	bool stale;
	struct weir_conn *c = weir_conn_find(ch->pipe.worker, h->vqpn, &stale);

	if (!c || c->state == CONN_CLOSING || c->state == CONN_ENDED || c->pipe != &ch->pipe ||
	    !is_next(c, h))
		return false;
	if (h->op == WEIR_OP_PLACE) {
		p->data =
		    weir_place_data(c, c->received + (uint16_t)(h->order - (uint16_t)c->received),
				    p->at, h->length);
		if (!p->data)
			return false;
		p->kind = WEIR_PLACE_REGION(p->at) ? PARKED_POSTED : PARKED_PLACE;
		p->pipe = c->pipe;
	}
	weir_park_append(c, p);
	c->salvage++;
	return true;
}

void
weir_channel_salvage(struct weir_channel *ch)
{
	const struct weir *w = ch->pipe.worker->w;
	const struct weir_channel_head *head =
	    (const void *)(w->arena + weir_arena_channel(&w->geometry, ch->index));
	struct weir_parked *p;
	struct weir_head h;
	struct chain at;
	uint64_t spilled;

	/* one that lives, and has ended this session, goes on for a while */
	if (weir_loss(w) != -ENODEV)
		return;
	/* pairs with the release in show() in dataplane/engine/rx/spill.c */
	spilled = atomic_load_explicit(&head->spilled, memory_order_acquire);
	at = (struct chain){spilled >> 40, spilled >> 32 & 0xff, (uint32_t)spilled};
	while ((p = next_message(ch, &at, &h)))
		if (!append(ch, &h, p))
			weir_parked_free(p);
}
