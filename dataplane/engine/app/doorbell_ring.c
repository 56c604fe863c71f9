/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doorbells wake programs that sleep after slots were published for them. A program that claims to
 * sleep for ever costs no more than one doorbell per BELL_NS: an early one is rung later. A program
 * whose doorbells take long, because of the waiters that it has put there, is closed.
 */
#include "channel.h"
#include "base/list.h"
#include "session.h"
#include "state.h"

#include "ipc/bell.h"

enum {
	BELL_NS = 20000, /* ns between two doorbells of a channel, beyond a burst */
	BELL_SHARE = 20, /* 1/20 of the time may go to slow doorbells */
	BELL_BURST = 4,	 /* doorbells of a channel that may be rung at once */
};

/* ns: when the doorbell may be rung. */
static uint64_t
due(const struct channel *ch)
{
	uint64_t burst = (uint64_t)BELL_NS * (BELL_BURST - 1);
	uint64_t at = ch->bell_at > burst ? ch->bell_at - burst : 0;

	return at > ch->session->bells_at ? at : ch->session->bells_at;
}

/*
 * A slow ring may have been preempted, so the session's next one is timed by CPU time, which still
 * includes softirqs and, in a virtual machine, the host's part. So only slow rings in a row count:
 * each defers the next one for longer, to 1/BELL_SHARE of the engine's time, and WEIR_BELL_SLOW_MAX
 * of them close the session. Returns whether it is to be closed.
 */
static COLD bool
ring(struct engine *e, struct channel *ch)
{
	struct session *s = ch->session;
	uint64_t ns = e->config.ring_doorbell(e->config.user, ch->doorbell, s->slow_bells);

	if (LIKELY(ns <= WEIR_BELL_SLOW_NS)) {
		s->slow_bells = 0;
		return false;
	}
	if (++s->slow_bells > 1)
		s->bells_at = e->now + ns * (s->slow_bells < 5 ? 1u << s->slow_bells : BELL_SHARE);
	return s->slow_bells >= WEIR_BELL_SLOW_MAX;
}

/*
 * Threads that sleep in weir_signal_wait(): the engine does not know which words they wait for,
 * each of the session looks at its own again.
 */
static COLD void
find_signalled(struct engine *e)
{
	while (!list_empty(&e->signalled)) {
		struct session *s = LIST_OWNER(e->signalled.next, struct session, signalled);

		list_remove(&s->signalled);
		for (uint32_t i = 0; i < s->channel_end; i++) {
			struct channel *ch = &s->channels[i];

			if (!ch->session ||
			    !(atomic_load_explicit(&ch->head->rx_sleeping, memory_order_relaxed) &
			      WEIR_SLEEPS_SIGNALS))
				continue;
			ch->bell_due = true;
			list_append_once(&e->doorbells, &ch->bell);
		}
	}
}

void
doorbells_ring(struct engine *e)
{
	struct list_node *node, *following;
	struct session *slow = NULL;
	bool fence = !list_empty(&e->signalled);

	LIST_EACH (node, following, &e->doorbells)
		fence |= LIST_OWNER(node, struct channel, bell)->fence;
	/* fence P of docs/shared-memory.md; if the sleeper uses membarrier, a compiler fence is
	 * enough */
	if (UNLIKELY(fence))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (UNLIKELY(!list_empty(&e->signalled)))
		find_signalled(e);
	LIST_EACH (node, following, &e->doorbells) {
		struct channel *ch = LIST_OWNER(node, struct channel, bell);
		bool asleep = atomic_load_explicit(&ch->head->rx_sleeping, memory_order_relaxed);

		if (asleep && due(ch) > e->now)
			continue;
		list_remove(node);
		ch->bell_due = false;
		if (!asleep)
			continue;
		ch->bell_at = (ch->bell_at > e->now ? ch->bell_at : e->now) + BELL_NS;
		count(&e->counters.doorbells, 1);
		if (ring(e, ch))
			slow = ch->session;
	}
	if (slow)
		session_violate(e, slow, "its doorbell takes milliseconds to ring");
}

uint64_t
doorbells_next(const struct engine *e)
{
	const struct list_node *node;
	uint64_t next = UINT64_MAX;

	for (node = e->doorbells.next; node != &e->doorbells; node = node->next) {
		uint64_t at = due(LIST_OWNER(node, const struct channel, bell));

		if (at < next)
			next = at;
	}
	return next;
}
