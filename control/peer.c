/* SPDX-License-Identifier: BSD-3-Clause */
#include "peer.h"

#include <string.h>

void
peer_init(struct peer *p, uint16_t id, uint16_t own_id, uint32_t timeout_ms, uint64_t now)
{
	memset(p, 0, sizeof(*p));
	p->id = id;
	p->dials = own_id < id;
	p->timeout = timeout_ms;
	p->backoff = PEER_RETRY_MIN;
	p->heard_at = now;
	p->retry_at = now;
}

static bool
silent(const struct peer *p, uint64_t now)
{
	return now - p->heard_at > p->timeout;
}

bool
peer_replaceable(const struct peer *p, uint64_t now)
{
	return p->phase != PEER_JOINED || silent(p, now);
}

static unsigned
enter(struct peer *p, enum weir_node_state state)
{
	if (p->state == state)
		return 0;
	p->state = state;
	return PEER_DO_TELL;
}

/*
 * Silence of control alone is suspicion. It is death only together with a link on which nobody has
 * answered since control was last heard.
 */
static unsigned
judge(struct peer *p, uint64_t now)
{
	unsigned actions = 0;

	if (!silent(p, now))
		return 0;
	if (p->state == WEIR_NODE_UP)
		actions |= enter(p, WEIR_NODE_SUSPECT);
	if (p->link_down_at && p->link_down_at >= p->heard_at)
		actions |= enter(p, WEIR_NODE_DOWN);
	return actions;
}

// The peer's control is heard and says that its data plane is up, or said so and hasn't taken it
// back.
static unsigned
alive(struct peer *p)
{
	return p->state == WEIR_NODE_UP ? 0 : enter(p, WEIR_NODE_UP) | PEER_DO_OFFERS;
}

static unsigned
take_view(struct peer *p, const struct dp_view *view)
{
	bool renewed = p->state == WEIR_NODE_UP && p->dp.incarnation != view->incarnation;

	if (view->state == DP_UNKNOWN) {
		p->dp.state = DP_UNKNOWN;
		return 0;
	}
	if (view->state == DP_DOWN) {
		p->dp.state = DP_DOWN;
		return enter(p, WEIR_NODE_DOWN);
	}
	p->dp = *view;
	// Whatever was offered before it came (again) may not have reached it.
	return PEER_DO_OFFERS | (renewed ? PEER_DO_TELL : alive(p));
}

static unsigned
opened(struct peer *p, uint64_t now, const struct dp_view *view)
{
	p->phase = PEER_JOINED;
	p->backoff = PEER_RETRY_MIN;
	p->beat_at = now;
	return take_view(p, view);
}

static void
lost(struct peer *p, uint64_t now)
{
	p->phase = PEER_APART;
	p->dp.state = DP_UNKNOWN;
	p->retry_at = now + p->backoff;
	p->backoff = p->backoff * 2 < PEER_RETRY_MAX ? p->backoff * 2 : PEER_RETRY_MAX;
}

static unsigned
tick(struct peer *p, uint64_t now)
{
	uint64_t close_after = p->timeout * 3u > PEER_CLOSE_MIN ? p->timeout * 3u : PEER_CLOSE_MIN;
	uint32_t beat = p->timeout / 4 < PEER_BEAT ? p->timeout / 4 : PEER_BEAT;
	unsigned actions = judge(p, now);

	if (p->phase == PEER_JOINED && now - p->heard_at > close_after)
		return actions | PEER_DO_CLOSE;
	if (p->phase == PEER_JOINED && now >= p->beat_at) {
		p->beat_at = now + beat;
		actions |= PEER_DO_BEAT;
	}
	if (p->phase == PEER_APART && p->dials && now >= p->retry_at) {
		p->phase = PEER_DIALLING;
		actions |= PEER_DO_DIAL;
	}
	return actions;
}

unsigned
peer_step(struct peer *p, enum peer_event event, uint64_t now, const struct dp_view *view)
{
	switch (event) {
	case PEER_TICK:
		return tick(p, now);
	case PEER_OPENED:
		p->heard_at = now;
		return opened(p, now, view);
	case PEER_HEARD:
		p->heard_at = now;
		return p->dp.state == DP_UP ? alive(p) : 0;
	case PEER_VIEW:
		p->heard_at = now;
		return take_view(p, view);
	case PEER_LOST:
		lost(p, now);
		return 0;
	case PEER_LINK_DOWN:
		p->link_down_at = now;
		return judge(p, now);
	}
	return 0;
}
