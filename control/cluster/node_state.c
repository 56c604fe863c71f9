/* SPDX-License-Identifier: BSD-3-Clause */
#include "node_state.h"

#include "ipc/invariant.h"

#include <string.h>

void
node_state_init(struct node_state *p, uint32_t timeout_ms, uint64_t now)
{
	weir_assert(timeout_ms);
	memset(p, 0, sizeof(*p));
	p->timeout = timeout_ms;
	p->silent_at = now + timeout_ms;
}

bool
conn_replaces(const struct old_conn *old, uint16_t own, uint16_t id, enum swim_status status)
{
	bool lives = status == SWIM_ALIVE || status == SWIM_SUSPECT;

	// Another life of its control, while the connection of the last one stands: two nodes with
	// one id, unless that one doesn't answer any more, or this one is in its place.
	if (old->joined && !old->same_life)
		return old->same_place || !lives;
	return id < own;
}

static unsigned
enter(struct node_state *p, enum weir_node_state state)
{
	static const unsigned legal[] = {
	    [WEIR_NODE_JOINING] = 1u << WEIR_NODE_UP | 1u << WEIR_NODE_DOWN,
	    [WEIR_NODE_UP] = 1u << WEIR_NODE_SUSPECT | 1u << WEIR_NODE_DOWN,
	    [WEIR_NODE_SUSPECT] = 1u << WEIR_NODE_UP | 1u << WEIR_NODE_DOWN,
	    [WEIR_NODE_DOWN] = 1u << WEIR_NODE_UP,
	};

	if (p->state == state)
		return 0;
	weir_enter(legal, p->state, state);
	if (state == WEIR_NODE_DOWN)
		p->linked = p->doubted = false;
	return NODE_DO_REPORT;
}

/*
 * Silence of control alone is suspicion. It is death together with a link on which nobody answers,
 * and where there is no link that could.
 */
static unsigned
judge(struct node_state *p, uint64_t now)
{
	bool known = p->state == WEIR_NODE_UP || p->state == WEIR_NODE_SUSPECT;
	unsigned actions = 0;

	if (!p->silent_at || now < p->silent_at)
		return 0;
	if (p->link_down_at && p->link_down_at + p->timeout >= p->silent_at)
		return enter(p, WEIR_NODE_DOWN);
	if (p->state == WEIR_NODE_UP)
		actions = enter(p, WEIR_NODE_SUSPECT);
	else if (known && !p->linked && now - p->silent_at >= p->timeout / 4)
		actions = enter(p, WEIR_NODE_DOWN);
	return actions;
}

static unsigned
take_record(struct node_state *p, uint64_t now, enum swim_status status, const struct dp_view *view,
	    bool hearsay)
{
	enum swim_status before = p->status;
	bool gone = status == SWIM_LEFT ||
		    (status == SWIM_ALIVE && view->state != DP_UNKNOWN &&
		     (view->state == DP_DOWN ||
		      (p->dp.incarnation && view->incarnation != p->dp.incarnation)));
	bool answers = p->linked && !(p->link_down_at && now - p->link_down_at <= p->timeout);
	bool renewed, again;
	unsigned doubt = 0;

	p->status = status;
	// Links that answer prove more than hearsay.
	p->doubted = hearsay && gone && answers;
	if (p->doubted) {
		if (status == SWIM_ALIVE) {
			p->silent_at = 0;
			return NODE_DO_ASK;
		}
		doubt = NODE_DO_ASK;
		status = SWIM_DEAD;
	}
	switch (status) {
	case SWIM_UNKNOWN:
		return 0;
	case SWIM_ALIVE: // its control says this of its data plane
		p->silent_at = 0;
		if (view->state == DP_UNKNOWN) {
			p->dp.state = DP_UNKNOWN;
			return 0;
		}
		if (view->state == DP_DOWN) {
			p->dp.state = DP_DOWN;
			return enter(p, WEIR_NODE_DOWN);
		}
		renewed = p->dp.incarnation != view->incarnation;
		again = p->dp.state != DP_UP;
		// The first that we hear of it says nothing against links from before our own
		// start.
		if (renewed && p->dp.incarnation)
			p->linked = false;
		p->dp = *view;
		if (p->state != WEIR_NODE_UP)
			return enter(p, WEIR_NODE_UP) | NODE_DO_OFFERS;
		// Whatever was offered before it came (again) may not have reached it.
		return (renewed || again ? NODE_DO_OFFERS : 0) | (renewed ? NODE_DO_REPORT : 0);
	case SWIM_SUSPECT: // to be refuted, or else dead
		return 0;
	case SWIM_DEAD:
		if (before == SWIM_DEAD)
			return 0;
		p->silent_at = now;
		p->dp.state = DP_UNKNOWN;
		return judge(p, now) | (doubt ? doubt : NODE_DO_CLOSE);
	case SWIM_LEFT:
		p->silent_at = now;
		p->dp.state = DP_DOWN;
		return enter(p, WEIR_NODE_DOWN) | NODE_DO_CLOSE;
	}
	return 0;
}

unsigned
node_state_step(struct node_state *p, enum node_event event, uint64_t now, enum swim_status status,
		const struct dp_view *view, bool hearsay)
{
	switch (event) {
	case NODE_TICK:
		return judge(p, now);
	case NODE_RECORD:
		return take_record(p, now, status, view, hearsay);
	case NODE_LINKED:
		p->linked = true;
		return 0;
	case NODE_LINK_DOWN:
		p->link_down_at = now;
		return judge(p, now) | NODE_DO_PROBE;
	case NODE_UNLINKED:
		p->linked = false;
		return 0;
	}
	return 0;
}
