/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of a link's rings. A peer that sends little leaves its large ring for the small one
 * that the link keeps; when it sends more, main makes a large one again. Positions go on, and the
 * lines LINK_RING and LINK_LEFT travel in the ring, so each end knows which line is the first one
 * in the other memory. An end that has left waits until LINK_LEFT is consumed and acknowledged:
 * neither a frame nor what is repeated after a repair lies in both. docs/protocol.md 2 has the
 * table.
 */
#include "batch.h"
#include "link.h"
#include "slot_head.h"
#include "state.h"

#include <errno.h>

enum { LITTLE_LINES = ENGINE_RING_LEAST / 4 }; /* that an idle peer may write between two looks */

static void
ring_enter(struct peer_link *l, enum link_ring to)
{
	static const uint8_t legal[] = {
	    [RING_SETTLED] = 1u << RING_WANTED | 1u << RING_OFFERED,
	    [RING_WANTED] = 1u << RING_OFFERED | 1u << RING_SETTLED,
	    [RING_OFFERED] = 1u << RING_SETTLED,
	};

	weir_enter(legal, l->ring_state, to);
}

static void
way_enter(struct peer_link *l, enum link_way to)
{
	static const uint8_t legal[] = {
	    [WAY_SETTLED] = 1u << WAY_ASKED | 1u << WAY_LEAVING,
	    [WAY_ASKED] = 1u << WAY_LEAVING,
	    [WAY_LEAVING] = 1u << WAY_LEFT,
	    [WAY_LEFT] = 1u << WAY_SETTLED,
	};

	weir_enter(legal, l->way, to);
}

static void
tell_rings(struct engine *e, struct peer_link *l)
{
	l->news |= LINK_NEWS_RINGS;
	link_tell(e, l);
}

static void
ring_line_due(struct engine *e, struct peer_link *l, uint8_t line)
{
	l->lines_due |= line;
	link_busy(e, l);
	e->ctrl_added = true;
}

void
link_rings_fill(const struct peer_link *l, struct engine_rings *r)
{
	*r = (struct engine_rings){
	    .life = l->is.life,
	    .ring_lines = l->ring_mask + 1,
	    .ring_least = l->ring_least,
	    .staging_least = l->staging == l->is.least.staging,
	    .ring_wanted = l->ring_state == RING_WANTED,
	    .staging_wanted = l->way == WAY_ASKED ? l->next_way.lines : 0,
	};
}

/* ---- our ring ---- */

static void
ring_offer(struct engine *e, struct peer_link *l, void *ring, uint32_t lines,
	   const struct nic_mr *mr)
{
	ring_enter(l, RING_OFFERED);
	l->next_ring.at = ring;
	l->next_ring.lines = lines;
	l->next_ring.mr = *mr;
	ring_line_due(e, l, LINK_LINE_RING);
}

void
links_look(struct engine *e)
{
	struct list_node *node, *following;

	e->look_at = e->now + e->config.ring_idle_ns;
	LIST_EACH (node, following, &e->links_in_use) {
		struct peer_link *l = LIST_OWNER(node, struct peer_link, in_use);

		if (!l->ring_least && l->is.least.ring && l->is.ring_lines > ENGINE_RING_LEAST &&
		    l->rx_pos - l->ring_since < LITTLE_LINES && l->end == LINK_GOES_ON &&
		    l->ring_state == RING_SETTLED)
			ring_offer(e, l, l->is.least.ring, ENGINE_RING_LEAST, &l->is.least.ring_mr);
		l->ring_since = l->rx_pos;
		l->ring_denied = false;
	}
}

COLD void
link_look(struct engine *e, struct peer_link *l)
{
	if (l->ring_state != RING_SETTLED || l->end != LINK_GOES_ON || l->ring_denied ||
	    l->rx_pos - l->ring_since < ENGINE_RING_LEAST)
		return;
	ring_enter(l, RING_WANTED);
	tell_rings(e, l);
}

int
link_ring(struct engine *e, const struct engine_link_command *k)
{
	struct peer_link *l = link_find(e, k->link);

	if (!l)
		return -ENOENT;
	if (l->ring_state != RING_WANTED)
		return -EBUSY;
	if (!k->ring || l->end != LINK_GOES_ON) {
		ring_enter(l, RING_SETTLED);
		l->ring_denied = true;
		return -EBUSY;
	}
	ring_offer(e, l, k->ring, k->ring_lines, &k->ring_mr);
	return 0;
}

/* The peer has left: what follows comes into the other memory. */
static bool
take_left(struct engine *e, struct peer_link *l, uint32_t lines)
{
	if (l->ring_state != RING_OFFERED || l->lines_due & LINK_LINE_RING ||
	    lines < ENGINE_RING_LEAST || lines & (lines - 1) || lines > l->next_ring.lines)
		return false;
	ring_enter(l, RING_SETTLED);
	l->ring = l->next_ring.at;
	l->ring_mask = lines - 1;
	l->is.ring_mr = l->next_ring.mr;
	l->is.ring_lines = l->next_ring.lines;
	l->ring_least = l->ring == l->is.least.ring;
	l->ring_since = l->rx_pos;
	if (!l->rx_send) {
		l->rx = l->ring;
		l->rx_mask = l->ring_mask;
	}
	count(&e->counters.rings_withdrawn, l->ring_least);
	count(&e->counters.rings_regained, !l->ring_least);
	tell_rings(e, l);
	return true;
}

/* ---- the peer's ring ---- */

/* The staging may stay if it is large enough, and is not to be returned. */
static void
way_leave(struct engine *e, struct peer_link *l, struct weir_slot *staging, struct run *runs,
	  const struct nic_mr *mr)
{
	way_enter(l, WAY_LEAVING);
	l->next_way.staging = staging;
	l->next_way.runs = runs;
	l->next_way.mr = *mr;
	ring_line_due(e, l, LINK_LINE_LEFT);
}

static void
way_begin(struct engine *e, struct peer_link *l, struct weir_wire_ring ring)
{
	const struct engine_least *least = &l->is.least;

	l->next_way.address = ring.address;
	l->next_way.rkey = ring.rkey;
	l->next_way.lines = ring.lines;
	if (ring.lines == ENGINE_RING_LEAST && least->staging) {
		way_leave(e, l, least->staging, least->work, &least->staging_mr);
	} else if (ring.lines <= l->staging_lines) {
		way_leave(e, l, l->staging, l->runs, &l->is.staging_mr);
	} else {
		way_enter(l, WAY_ASKED);
		tell_rings(e, l);
	}
}

int
link_staging(struct engine *e, const struct engine_link_command *k)
{
	struct peer_link *l = link_find(e, k->link);

	if (!l)
		return -ENOENT;
	if (l->way != WAY_ASKED || !link_lasts(l)) /* no line follows the last one */
		return -EBUSY;
	if (k->staging && k->staging_lines >= l->next_way.lines) {
		way_leave(e, l, k->staging, k->work, &k->staging_mr);
		return 0;
	}
	/* no memory: a part of the ring is used */
	l->next_way.lines = l->staging_lines;
	way_leave(e, l, l->staging, l->runs, &l->is.staging_mr);
	return -EBUSY;
}

COLD void
link_way_settle(struct engine *e, struct peer_link *l)
{
	bool moves = l->staging != l->next_way.staging;
	uint32_t noted = l->run_end - l->run_first;

	if (l->credited != l->left_at || l->left_wr == PROOF_DUE || l->sq_done[RING] < l->left_wr)
		return;
	weir_assert(l->tx_pos == l->left_at && !l->frame_wrs);
	/* messages that a RESET may still be about stay noted */
	if (UNLIKELY(noted > (moves ? l->next_way.lines : 0)))
		return;
	for (uint32_t i = 0; i < noted; i++)
		l->next_way.runs[i] = l->runs[(l->run_first + i) & l->mask];
	way_enter(l, WAY_SETTLED);
	l->left_wr = 0;
	if (moves)
		l->staging_lines = l->next_way.lines;
	l->staging = l->next_way.staging;
	l->runs = l->next_way.runs;
	l->run_first = 0;
	l->run_end = noted;
	l->mask = l->next_way.lines - 1;
	l->is.staging_mr = l->next_way.mr;
	l->is.peer_ring_address = l->next_way.address;
	l->is.peer_ring_rkey = l->next_way.rkey;
	if (moves)
		tell_rings(e, l);
	if (l->then.lines && link_lasts(l))
		way_begin(e, l, l->then);
	l->then.lines = 0;
}

/* ---- lines ---- */

COLD void
link_ring_put(struct engine *e, struct peer_link *l, uint8_t line)
{
	struct weir_wire_ring ring;
	struct weir_slot *s;

	if (link_room(e, l, 1) != ROOM)
		return;
	s = link_put_line(l);
	memset(s, 0, sizeof(*s));
	l->lines_due &= (uint8_t)~line;
	if (line == LINK_LINE_RING) {
		ring = (struct weir_wire_ring){(uintptr_t)l->next_ring.at, l->next_ring.mr.rkey,
					       l->next_ring.lines};
		head_store(s, 0, (struct head){.op = WEIR_WIRE_LINK_RING});
		memcpy(s->data, &ring, sizeof(ring));
		return;
	}
	head_store(s, 0, (struct head){.op = WEIR_WIRE_LINK_LEFT, .length = l->next_way.lines});
	way_enter(l, WAY_LEFT);
	l->left_at = l->tx_limit = l->tx_pos; /* nothing follows it in this frame either */
	l->left_wr = PROOF_DUE;
	l->stalled = true; /* its credit is wanted at once */
}

bool
link_ring_receive(struct engine *e, struct peer_link *l, const struct weir_slot *s)
{
	struct weir_wire_ring ring;

	if (s->op == WEIR_WIRE_LINK_LEFT)
		return take_left(e, l, s->length);
	memcpy(&ring, s->data, sizeof(ring));
	if (!link_lasts(l) || ring.lines < ENGINE_RING_LEAST || ring.lines > ENGINE_RING_MOST ||
	    ring.lines & (ring.lines - 1))
		return false;
	if (l->way == WAY_LEFT && !l->then.lines) /* it has LINK_LEFT, we lack its credit */
		l->then = ring;
	else if (l->way == WAY_SETTLED)
		way_begin(e, l, ring);
	else
		return false;
	return true;
}
