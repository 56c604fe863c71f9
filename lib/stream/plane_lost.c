/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of the data plane, on a worker. What lies whole in its rings is taken in, then its
 * connections end with weir_loss(). A local peer may have written until it noticed the end itself:
 * it says so in the segment, and what it wrote before counts as delivered, so it is waited for. One
 * that doesn't in time is told that nothing is taken in any more.
 */
#include "conn.h"
#include "progress.h"

#include "client/channel.h"
#include "client/membarrier.h"
#include "client/reason.h"
#include "client/wait.h"

#include <time.h>

#define AWAIT_NS 30000000u /* -ENODEV comes within 100 ms */

static bool
is_open(const struct weir_conn *c)
{
	return c->state == CONN_OPEN || c->state == CONN_OPENING;
}

static void
end_one(struct weir_conn *c)
{
	c->never_opened = true; /* nobody is told of a close any more */
	if (c->state == CONN_CLOSING) {
		c->worker->closing--; /* counted when it was closed */
		weir_conn_free(c);
		return;
	}
	if (!is_open(c))
		return;
	if (c->local && c->pipe) { /* may still receive */
		c->send_error = weir_loss(c->worker->w);
		if (c->blocked)
			weir_conn_report(c, PENDING_WRITABLE);
		c->blocked = false;
		return;
	}
	weir_conn_ended(c, (uint32_t)-weir_loss(c->worker->w));
}

void
weir_thread_lost(struct weir_thread *t)
{
	struct weir_channel *ch;
	struct weir_segment *seg;

	weir_bias_lock_slow(&t->lock);
	SLIST_FOREACH(ch, &t->channels, next)
	{
		while (weir_channel_drive(ch, NULL))
			;
		weir_channel_salvage(ch);
	}
	weir_conns_each(t, end_one);
	LIST_FOREACH(seg, &t->segments, next)
	/* pairs with the acquire in weir_thread_last() of the peer */
	atomic_store_explicit(&seg->out->over, 1, memory_order_release);
	weir_thread_wake(t, NULL);
	weir_bias_unlock_passing(&t->lock);
}

static bool
any_open(const struct weir_segment *seg)
{
	const struct weir_conn *c;

	TAILQ_FOREACH(c, &seg->conns, in_segment)
	if (is_open(c))
		return true;
	return false;
}

static void
end_segment(struct weir_segment *seg)
{
	struct weir_conn *c, *next;
	uint32_t status = (uint32_t)-weir_loss(seg->pipe.worker->w);

	for (c = TAILQ_FIRST(&seg->conns); c; c = next) {
		next = TAILQ_NEXT(c, in_segment);
		if (is_open(c) && !c->ending)
			weir_segment_finish(c, status);
		if (is_open(c) && c->worker->w->late)
			weir_conn_ended(c, status); /* for want of memory to take all in */
	}
}

static void
leave(struct weir_thread *t)
{
	struct weir_segment *seg;

	LIST_FOREACH(seg, &t->segments, next)
	{
		seg->left = true;
		atomic_store_explicit(seg->pipe.rx_sleeping, WEIR_SEGMENT_LEFT,
				      memory_order_relaxed);
	}
	/* pairs with weir_pipe_published() of the peers: who has not seen it yet has published */
	if (!LIST_EMPTY(&t->segments))
		weir_barrier_global();
}

void
weir_thread_last(struct weir_thread *t)
{
	struct weir_segment *seg;

	weir_bias_lock_slow(&t->lock);
	if (t->w->late)
		leave(t);
	LIST_FOREACH(seg, &t->segments, next)
	{
		if (!any_open(seg))
			continue;
		/* pairs with the release in weir_thread_lost() of the peer */
		if (t->w->late || atomic_load_explicit(&seg->in->over, memory_order_acquire))
			end_segment(seg);
		if (any_open(seg))
			t->w->chores = true;
	}
	weir_thread_wake(t, NULL);
	weir_bias_unlock_passing(&t->lock);
}

bool
weir_conn_await_end(struct weir_conn *c)
{
	static const struct timespec nap = {.tv_nsec = 100000};
	uint64_t end = weir_clock() + AWAIT_NS;
	bool open = true;

	while (c->worker->w->watched && open && weir_clock() < end) {
		weir_lock(c->worker);
		open = is_open(c);
		weir_unlock(c->worker);
		if (open)
			nanosleep(&nap, NULL);
	}
	return !open;
}
