/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleep: one half of the Dekker pair with programs (docs/shared-memory.md). Frames wake the engine
 * through the NIC's event fd; timers cover changes that neither a doorbell nor a frame announces.
 */
#include "channel.h"
#include "link.h"
#include "base/list.h"
#include "state.h"

enum {
	RETRY_NS = 200000,     /* ns between looks for room in the queues of programs and main */
	ACK_WAIT_NS = 1000000, /* ns between looks for credit, which comes without a wake-up */
};

static void
set_sleeping(struct list_node *channels, uint32_t value)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, channels)
		atomic_store_explicit(&LIST_OWNER(node, struct channel, polled)->head->tx_sleeping,
				      value, memory_order_relaxed);
}

static uint64_t
sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t
engine_sleep_prepare(struct engine *e, uint64_t now)
{
	struct list_node *node, *following;
	uint64_t next = doorbells_next(e);

	e->sleeps = e->flags_up = true;
	set_sleeping(&e->hot, 1);
	set_sleeping(&e->cold, 1);
	/* not announced: room in the ring of a program, or in main's queue; the end of a lock that
	 * a program holds by words */
	if (!list_empty(&e->backlog) || engine_tells_later(e))
		next = sooner(next, now + RETRY_NS);
	if (!list_empty(&e->busy)) /* credit by credit line comes without a completion */
		next = sooner(next, now + ACK_WAIT_NS);
	next = sooner(next, e->limited_at);
	if (!list_empty(&e->links_in_use))
		next = sooner(next, e->keepalive_at);
	LIST_EACH (node, following, &e->hot)
		if (LIST_OWNER(node, struct channel, polled)->blocked)
			next = sooner(next, now + ACK_WAIT_NS);
	for (uint32_t i = 0; i < e->config.sessions; i++)
		if (e->sessions[i].shared &&
		    (e->sessions[i].lacks_memory || e->sessions[i].node_seen != e->node_event_end))
			next = sooner(next, now + RETRY_NS);
	return next;
}

static bool
any_has_work(const struct list_node *channels)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, channels)
		if (channel_has_work(LIST_OWNER(node, struct channel, polled)))
			return true;
	return false;
}

bool
engine_sleep_check(struct engine *e)
{
	struct list_node *node, *following;

	if (any_has_work(&e->hot) || any_has_work(&e->cold))
		return true;
	LIST_EACH (node, following, &e->busy)
		if (link_is_pressing(LIST_OWNER(node, struct peer_link, busy)))
			return true;
	return e->done != NULL;
}

void
engine_sleep_cancel(struct engine *e)
{
	e->flags_up = false;
	set_sleeping(&e->hot, 0);
	set_sleeping(&e->cold, 0);
}
