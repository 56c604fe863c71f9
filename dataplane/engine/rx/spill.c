/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spilling: slots that find their program's ring full are packed into receive blocks, which were
 * promised for that, and replayed in order. So a slow program stalls its own connections only. A
 * program can write into its blocks: replayed slots are read as carefully as those it sends. Their
 * messages are complete for the senders: the program is shown where they wait, and takes them
 * itself if this data plane dies (lib/stream/plane_lost.c).
 */
#include "channel.h"
#include "conn.h"
#include "events.h"
#include "base/list.h"
#include "session.h"
#include "slot_head.h"
#include "state.h"

#include <assert.h>

#define SLOTS WEIR_SPILL_SLOTS
#define CHAIN_END 0x7fffffffu

static struct weir_slot *
spill_at(const struct session *s, uint32_t block, uint32_t slot)
{
	return (struct weir_slot *)(void *)(s->base + s->recv_at +
					    (uint64_t)block * WEIR_BLOCK_SIZE +
					    slot * WEIR_SLOT_SIZE);
}

uint64_t
spill_slack(const struct channel *ch)
{
	if (ch->spill_last == WEIR_BLOCK_NONE)
		return WEIR_BLOCK_SIZE;
	return ch->spill_to * WEIR_SLOT_SIZE;
}

static uint64_t
arena_block(const struct session *s, uint32_t block)
{
	return s->recv_at / WEIR_BLOCK_SIZE + block;
}

/* Shows the program where its spilled slots are; called after they were stored. */
static void
show_spilled(struct channel *ch)
{
	uint64_t at = 0;

	if (ch->spill_count)
		at = WEIR_SPILL(arena_block(ch->session, ch->spill_first), ch->spill_from,
				ch->spill_count);
	/* pairs with the acquire in recover() in lib/stream/plane_lost.c */
	atomic_store_explicit(&ch->head->spilled, at, memory_order_release);
}

static struct weir_slot *
next_place(struct channel *ch)
{
	struct session *s = ch->session;

	if (ch->spill_last == WEIR_BLOCK_NONE || ch->spill_to == SLOTS) {
		uint32_t b = weir_blocks_take(&s->blocks);

		assert(b != WEIR_BLOCK_NONE); /* it was promised */
		s->runs[b] = RUN_CHAIN | CHAIN_END;
		if (ch->spill_last == WEIR_BLOCK_NONE) {
			ch->spill_first = b;
			ch->spill_from = 0;
		} else {
			s->runs[ch->spill_last] = RUN_CHAIN | b;
			atomic_store_explicit(&spill_at(s, ch->spill_last, 0)->seq,
					      (uint32_t)arena_block(s, b), memory_order_relaxed);
		}
		ch->spill_last = b;
		ch->spill_to = 0;
	}
	ch->spill_count++;
	return spill_at(s, ch->spill_last, ch->spill_to++);
}

void
spill_slots(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *head,
	    const struct weir_slot *ring, uint32_t mask, uint64_t pos, uint32_t n)
{
	memcpy(next_place(ch), head, WEIR_SLOT_SIZE);
	for (uint32_t i = 1; i < n; i++)
		memcpy(next_place(ch), &ring[(pos + i) & mask], WEIR_SLOT_SIZE);
	show_spilled(ch);
	if (c)
		c->spilled++;
	count(&e->counters.spilled, n);
	channel_update_backlog(e, ch);
}

/* Removes the first spilled slot. */
static void
step(struct channel *ch)
{
	struct session *s = ch->session;
	uint32_t b = ch->spill_first;

	weir_assert(ch->spill_count && b < s->blocks.count && s->runs[b] & RUN_CHAIN);
	ch->spill_count--;
	if (++ch->spill_from < SLOTS && ch->spill_count)
		return;
	ch->spill_from = 0;
	ch->spill_first = s->runs[b] & ~RUN_CHAIN;
	if (ch->spill_first == CHAIN_END)
		ch->spill_first = ch->spill_last = WEIR_BLOCK_NONE;
	s->runs[b] = 0;
	weir_blocks_give(&s->blocks, b, 1);
}

/* Replays spilled messages as far as the ring has room. */
static void
spill_drain(struct engine *e, struct channel *ch)
{
	struct session *s = ch->session;
	struct weir_ring *r = &ch->rx;
	bool any = false;

	while (ch->spill_count) {
		struct weir_slot head;
		struct conn *c;
		uint32_t n;

		line_load(&head, spill_at(s, ch->spill_first, ch->spill_from));
		n = head.op == WEIR_OP_INLINE && head.length <= WEIR_INLINE_MAX
			? weir_slots_inline(head.length)
			: 1;
		if (n > ch->spill_count) {
			session_violate(e, s, "wrote into its receive memory");
			return;
		}
		if (!channel_room(e, ch, n))
			break;
		memcpy((char *)weir_ring_at(r, r->pos) + 4, (const char *)&head + 4,
		       WEIR_SLOT_SIZE - 4);
		step(ch);
		for (uint32_t i = 1; i < n; i++) {
			memcpy((char *)weir_ring_at(r, r->pos + i) + 4,
			       (char *)spill_at(s, ch->spill_first, ch->spill_from) + 4,
			       WEIR_SLOT_SIZE - 4);
			weir_ring_continue(r, i);
			step(ch);
		}
		weir_ring_publish(r, n);
		show_spilled(ch);
		any = true;
		c = conn_find(e, head.vqpn);
		if (!c || c->session != s || !c->spilled)
			continue;
		if (!--c->spilled && c->events_due & (APP_END | APP_CLOSED))
			list_append_once(&c->channel->events, &c->events);
	}
	if (any) {
		channel_published(e, ch);
		session_memory_freed(e, s);
	}
}

void
backlogs_drain(struct engine *e)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, &e->backlog) {
		struct channel *ch = LIST_OWNER(node, struct channel, backlog);

		if (ch->session->violated) {
			list_remove(node);
			continue;
		}
		app_events_put(e, ch);
		spill_drain(e, ch);
		if (!ch->spill_count)
			app_events_put(e, ch); /* CLOSED may have waited for the last message */
		ch->spilling = ch->opening || ch->spill_count;
		if (!ch->spilling && list_empty(&ch->events))
			list_remove(node);
	}
}
