/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices. At the origin they are cells like other operations (operation.c), within a window that
 * the connection's descriptor shows. At the target the engine puts them into the ring of the
 * exporting thread, from where they come into a queue of its own; taking one returns its window.
 */
#include "handle.h"
#include "notice.h"
#include "window.h"

#include "base/vec.h"
#include "client/channel.h"
#include "client/progress.h"
#include "client/wait.h"
#include "stream/ctrl_slots.h"
#include "stream/remote.h"

#include <stdlib.h>

/* ---- the origin ---- */

bool
weir_notice_has_window(struct weir_conn *c)
{
	/* the engine wrote it, and it only grows: relaxed */
	if (c->spent + WEIR_NOTICE_COST > c->granted)
		c->granted = atomic_load_explicit(&c->desc->granted, memory_order_relaxed);
	return c->spent + WEIR_NOTICE_COST <= c->granted;
}

int
weir_notice_pay(struct weir_conn *c, const struct weir_cell_notice *n)
{
	weir_assert(weir_worker_locked(c->worker));
	if (!(n->options & WEIR_NOTICE_DELIVER))
		return 0;
	if (!weir_notice_has_window(c))
		return -EAGAIN;
	c->spent += WEIR_NOTICE_COST;
	return 0;
}

bool
weir_notice_awaits_window(struct weir_conn *c)
{
	if (c->spent + WEIR_NOTICE_COST <= c->granted)
		return false;
	if (!c->wanting) {
		c->wanting = true;
		c->wanted = WEIR_NOTICE_COST;
		weir_ctrl_add(c, CTRL_WANT);
	}
	return true;
}

int
weir_remote_notify_with(struct weir_remote *r, uint32_t tag, uint32_t source, uint64_t bytes,
			unsigned flags)
{
	struct weir_cell_notice n = {.handle = WEIR_HANDLE_FIRST,
				     .options = WEIR_NOTICE_DELIVER,
				     .tag = tag,
				     .source = source,
				     .bytes = bytes};

	return weir_notice_begin(r, &n, flags);
}

int
weir_remote_notify(struct weir_remote *r, uint32_t tag, uint32_t source, unsigned flags)
{
	return weir_remote_notify_with(r, tag, source, 0, flags);
}

/* ---- the target ---- */

struct queued {
	struct weir_channel *channel;
	uint32_t vqpn; /* that brought it */
	struct weir_slot_notice is;
};

/* A FIFO; room is 0 or a power of two. Its engines' windows bound it. */
struct weir_notices {
	struct queued *at;
	uint32_t first, count, room;
};

#define NOTICES_LEAST 64u

/* The export that a notice is for; NULL: it was revoked. w->remote_lock held. */
static struct weir_export *
find_export(const struct weir *w, const struct weir_slot_notice *n)
{
	struct weir_export *x;

	LIST_FOREACH(x, &w->exports[n->number % WEIR_EXPORT_LISTS], in_session)
	if (x->number == n->number && x->generation == n->generation)
		break;
	return x;
}

void
weir_export_set_sink(struct weir_export *x, struct weir_notice_sink *s)
{
	weir_lock(x->worker);
	if (s && !x->sink)
		atomic_fetch_add_explicit(&x->w->notice_sinks, 1, memory_order_relaxed);
	else if (!s && x->sink)
		atomic_fetch_sub_explicit(&x->w->notice_sinks, 1, memory_order_relaxed);
	x->sink = s;
	weir_unlock(x->worker);
}

struct weir_thread *
weir_export_thread(const struct weir_export *x)
{
	return x->worker;
}

bool
weir_notice_return(const struct weir_remote_notice *n, bool last)
{
	/* a data plane that is gone needs no window back */
	return weir_state(n->channel->pipe.worker->w) != WEIR_UP ||
	       weir_ctrl_noticed(n->channel, n->vqpn, last);
}

bool
weir_notice_came(struct weir_channel *ch, uint32_t vqpn, const uint8_t *data)
{
	struct weir_thread *t = ch->pipe.worker;
	struct weir_notices *q = t->notices;
	struct weir_notice_sink *sink = NULL; /* NULL: it goes to the thread's queue */
	const struct weir_export *x;
	struct weir_slot_notice is;
	struct queued *n;

	weir_assert(weir_worker_locked(t));
	memcpy(&is, data, sizeof(is));
	if (atomic_load_explicit(&t->w->notice_sinks, memory_order_relaxed)) {
		pthread_mutex_lock(&t->w->remote_lock); /* another thread may revoke it */
		x = find_export(t->w, &is);
		sink = x ? x->sink : NULL;
		pthread_mutex_unlock(&t->w->remote_lock);
	}
	if (sink) {
		const struct weir_remote_notice sunk = {ch, vqpn, is.tag, is.source, is.bytes};

		return sink->came(sink, &sunk);
	}
	if (!q)
		t->notices = q = calloc(1, sizeof(*q));
	if (!q || RING_RESERVE(q->at, q->room, q->first, q->count, NOTICES_LEAST))
		return false;
	n = &q->at[(q->first + q->count++) & (q->room - 1)];
	n->channel = ch;
	n->vqpn = vqpn;
	n->is = is;
	t->notice_news |= q->count == 1;
	return true;
}

void
weir_notices_free(struct weir_thread *t)
{
	if (t->notices)
		free(t->notices->at);
	free(t->notices);
	t->notices = NULL;
}

/* Takes the oldest notice of t. False: there is none. */
static bool
take(struct weir_thread *t, struct weir_notice *notice)
{
	struct weir_notices *q;
	struct weir_export *x;

	weir_lock(t);
	if (!t->notices || !t->notices->count)
		weir_progress(t, NULL);
	q = t->notices;
	notice->x = NULL;
	while (q && q->count && !notice->x) {
		const struct queued n = q->at[q->first];
		const struct weir_remote_notice sunk = {.channel = n.channel, .vqpn = n.vqpn};

		if (!weir_notice_return(&sunk, q->count == 1))
			break;
		q->first = (q->first + 1) & (q->room - 1);
		q->count--;
		pthread_mutex_lock(&t->w->remote_lock);
		x = find_export(t->w, &n.is);
		pthread_mutex_unlock(&t->w->remote_lock);
		*notice = (struct weir_notice){
		    .x = x, .tag = n.is.tag, .source = n.is.source, .bytes = n.is.bytes};
	}
	if (!notice->x) /* those that stay, for want of room to return their window, are news */
		t->notice_news = q && q->count;
	weir_progress_leave(t);
	weir_unlock(t);
	return notice->x;
}

int
weir_notice_next(struct weir *w, struct weir_notice *notice, int timeout_ms)
{
	struct weir_wait wait;
	struct weir_thread *t;
	int rc;

	if (!w || !notice)
		return weir_fail(-EINVAL, "no session, or no place for the notice; see "
					  "weir/remote.h");
	w = weir_now(w);
	if (weir_state(w) == WEIR_FORKED)
		return weir_gone(w);
	t = weir_thread_own(w, &rc);
	if (!t)
		return rc;
	weir_wait_init(&wait, t, timeout_ms);
	while (!take(t, notice)) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc;
}
