/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ended messages and requests: noted where they end, in whatever thread, and reported to the
 * program by weir_messenger_progress() in the thread that sent them.
 */
#include "lane.h"
#include "peer.h"
#include "request.h"
#include "sender.h"

#include "base/vec.h"
#include "client/reason.h"
#include "client/wait.h"
#include "stream/model.h"

#include <errno.h>
#include <stdlib.h>

#define REPORT_MAX 32u /* calls of the program between two looks at the lists */

void
completions_init(struct completions *done)
{
	pthread_mutex_init(&done->lock, NULL);
	done->requests_end = &done->requests;
}

void
completions_fini(struct completions *done)
{
	free(done->sent);
	pthread_mutex_destroy(&done->lock);
}

/* Locks the lists of s, or of the sender that has taken its place. */
static struct sender *
lock_last(struct sender *s)
{
	struct sender *next;

	pthread_mutex_lock(&s->done.lock);
	while ((next = s->done.successor)) {
		pthread_mutex_unlock(&s->done.lock);
		s = next;
		pthread_mutex_lock(&s->done.lock);
	}
	return s;
}

/* Room for n more in sent[]. Locked. */
static int
reserve(struct completions *done, uint32_t n)
{
	if (done->first) {
		memmove(done->sent, done->sent + done->first,
			(done->end - done->first) * sizeof(done->sent[0]));
		done->end -= done->first;
		done->first = 0;
	}
	return VEC_RESERVE(done->sent, done->room, done->end + n);
}

int
completion_expect(struct sender *s)
{
	struct completions *done;
	int rc = 0;

	s = lock_last(s);
	done = &s->done;
	if (done->end + done->under_way + 1 > done->room)
		rc = reserve(done, done->under_way + 1);
	done->under_way += !rc;
	pthread_mutex_unlock(&done->lock);
	return rc ? weir_fail(rc, "no memory to note a message; free some") : 0;
}

void
completion_unexpect(struct sender *s)
{
	s = lock_last(s);
	weir_assert(s->done.under_way);
	s->done.under_way--;
	pthread_mutex_unlock(&s->done.lock);
}

/* Something has been added: the thread learns of it. Unlocks. */
static void
added(struct sender *s)
{
	atomic_fetch_add_explicit(&s->done.pending, 1, memory_order_relaxed);
	pthread_mutex_unlock(&s->done.lock);
	/* the first of them wakes */
	if (!atomic_exchange_explicit(&s->worker->lane_news, true, memory_order_relaxed))
		weir_wake_fd(s->worker->wake_fd);
}

void
completion_sent(struct sender *s, uint16_t node, uint64_t cookie, int status)
{
	struct completions *done;

	s = lock_last(s);
	done = &s->done;
	weir_assert(done->under_way && done->end < done->room);
	done->under_way--;
	done->sent[done->end++] =
	    (struct completion){.cookie = cookie, .status = status, .node = node};
	added(s);
}

void
completion_request(struct sender *s, struct weir_request *r)
{
	s = lock_last(s);
	*request_next(r) = NULL;
	*s->done.requests_end = r;
	s->done.requests_end = request_next(r);
	added(s);
}

int
completions_move(struct sender *from, struct sender *to)
{
	struct completions *a = &from->done, *b = &to->done;
	uint32_t n;
	int rc;

	/* `from` is the older one: the order of these locks */
	pthread_mutex_lock(&a->lock);
	pthread_mutex_lock(&b->lock);
	n = a->end - a->first;
	rc = reserve(b, b->under_way + n + a->under_way);
	if (!rc) {
		if (n)
			memcpy(b->sent + b->end, a->sent + a->first, n * sizeof(a->sent[0]));
		b->end += n;
		b->under_way += a->under_way;
		if (a->requests) {
			*b->requests_end = a->requests;
			b->requests_end = a->requests_end;
		}
		atomic_fetch_add_explicit(&b->pending,
					  atomic_load_explicit(&a->pending, memory_order_relaxed),
					  memory_order_relaxed);
		a->requests = NULL;
		a->requests_end = &a->requests;
		a->first = a->end = a->under_way = 0;
		atomic_store_explicit(&a->pending, 0, memory_order_relaxed);
		a->successor = to;
	}
	pthread_mutex_unlock(&b->lock);
	pthread_mutex_unlock(&a->lock);
	return rc;
}

bool
completions_left(struct sender *s)
{
	bool left;

	weir_lock(s->worker);
	left = s->slots_used;
	weir_unlock(s->worker);
	pthread_mutex_lock(&s->done.lock);
	left |= s->done.under_way || atomic_load_explicit(&s->done.pending, memory_order_relaxed);
	pthread_mutex_unlock(&s->done.lock);
	return left;
}

unsigned
completions_report_pending(struct sender *s, unsigned most, struct weir_guard *guard)
{
	struct weir_messenger *m = s->m;
	struct completion sent[REPORT_MAX];
	struct weir_request *requests[REPORT_MAX];
	struct completions *done = &s->done;
	unsigned total = 0, n, k;

	while (total < most && atomic_load_explicit(&done->pending, memory_order_relaxed)) {
		n = k = 0;
		pthread_mutex_lock(&done->lock);
		while (n + k < REPORT_MAX && n + k < most - total && done->first < done->end)
			sent[n++] = done->sent[done->first++];
		if (done->first == done->end)
			done->first = done->end = 0;
		while (n + k < REPORT_MAX && n + k < most - total && done->requests) {
			requests[k] = done->requests;
			done->requests = *request_next(requests[k++]);
		}
		if (!done->requests)
			done->requests_end = &done->requests;
		atomic_fetch_sub_explicit(&done->pending, n + k, memory_order_relaxed);
		pthread_mutex_unlock(&done->lock);
		if (!n && !k)
			break;
		if (guard)
			weir_guard_end(guard);
		for (unsigned i = 0; i < n; i++)
			m->o.sent(m, sent[i].node, sent[i].cookie, sent[i].status, m->o.user);
		for (unsigned i = 0; i < k; i++)
			request_report(requests[i]);
		total += n + k;
	}
	return total;
}

/* ---- lanes ---- */

void
lane_sent(struct lane *lane)
{
	struct weir_conn *c = lane->conn;
	struct weir_notes *n = &c->cookies;

	weir_assert(lane->sender && weir_worker_locked(lane->worker));
	while (n->head != n->tail) {
		const struct weir_note *note = &n->ring[n->head & (n->room - 1)];
		bool done = note->number < c->completed;

		if (!done && c->state != CONN_ENDED)
			return;
		n->head++;
		lane_outstanding(lane, -1);
		completion_sent(lane->sender, lane->peer->node, note->value,
				done ? 0 : message_error(lane->m, c->end));
	}
}

void
lane_unsent(struct lane *lane, int status)
{
	struct weir_notes *n = &lane->conn->cookies;

	lane_sent(lane);
	for (; n->head != n->tail; n->head++) {
		lane_outstanding(lane, -1);
		completion_sent(lane->sender, lane->peer->node,
				n->ring[n->head & (n->room - 1)].value, status);
	}
}

/* ---- sending with a cookie ---- */

int
weir_message_send_notify(struct weir_messenger *m, uint16_t node, uint16_t type,
			 const struct iovec *iov, unsigned n, uint64_t cookie, int timeout_ms)
{
	struct sender *s;
	struct lane *lane;
	uint64_t length;
	int rc;

	if (!m->o.sent)
		return weir_fail(-EINVAL, "the messenger reports no completions; set `sent` in its "
					  "options");
	rc = message_length(m, iov, n, &length);
	s = rc ? NULL : sender_get(m, &rc);
	if (!s)
		return rc;
	rc = lane_pin(s, node, timeout_ms, &lane);
	if (rc)
		return rc;
	rc = completion_expect(s);
	if (!rc) {
		weir_lock(s->worker);
		lane_outstanding(lane, 1);
		weir_unlock(s->worker);
		rc = lane_send_message(lane, type, iov, n, length, &cookie, timeout_ms);
		if (rc) {
			weir_lock(s->worker);
			lane_outstanding(lane, -1);
			weir_unlock(s->worker);
			completion_unexpect(s);
		}
	}
	lane_unpin(lane);
	return rc ? message_error(m, rc) : 0;
}

/* ---- flush ---- */

/* A wait has ended before what it was for. */
static bool
in_vain(int rc)
{
	return rc == -EAGAIN || rc == -EINTR;
}

static int
flush_peer(struct weir_messenger *m, struct peer *p, uint64_t end)
{
	uint64_t made = 0, clock, left;
	struct lane *lane, *next;
	int rc = 0, now;

	pthread_mutex_lock(&m->lock);
	while (!in_vain(rc)) {
		/* the lane of ours that was made next */
		next = NULL;
		TAILQ_FOREACH(lane, &p->lanes, in_peer)
		if (lane->sender && lane->conn && !lane_is_former(lane) && lane != p->probe &&
		    lane->made > made && (!next || lane->made < next->made))
			next = lane;
		if (!next)
			break;
		made = next->made;
		weir_lock(next->worker);
		next->pins++;
		weir_unlock(next->worker);
		pthread_mutex_unlock(&m->lock);
		clock = weir_clock();
		left = end > clock ? end - clock : 0;
		now = weir_flush(next->conn,
				 end == UINT64_MAX ? -1 : (int)((left + 999999) / 1000000u));
		lane_unpin(next);
		rc = in_vain(now) || !rc ? now : rc;
		pthread_mutex_lock(&m->lock);
	}
	if (p->unflushed && !in_vain(rc))
		rc = -ECONNRESET;
	if (!in_vain(rc))
		p->unflushed = false;
	pthread_mutex_unlock(&m->lock);
	return rc && !in_vain(rc) ? message_error(m, rc) : rc;
}

int
weir_messenger_flush(struct weir_messenger *m, int node, int timeout_ms)
{
	uint64_t end = timeout_ms < 0 ? UINT64_MAX : weir_clock() + (uint64_t)timeout_ms * 1000000u;
	int rc = messenger_follow(m), now;

	if (rc)
		return rc;
	if (node != WEIR_ALL_NODES && (node < 0 || node >= (int)NODES))
		return weir_fail(-EINVAL, "not a node, %d; give an id or WEIR_ALL_NODES", node);
	for (uint32_t i = node < 0 ? 0 : (uint32_t)node; i < NODES && !in_vain(rc); i++) {
		struct peer **page;
		struct peer *p;

		/* pages and peers stay until the messenger closes */
		pthread_mutex_lock(&m->lock);
		page = m->peers[i / NODE_PAGE];
		p = page ? page[i % NODE_PAGE] : NULL;
		pthread_mutex_unlock(&m->lock);
		now = p ? flush_peer(m, p, end) : 0;
		rc = in_vain(now) || !rc ? now : rc;
		if (node >= 0)
			break;
		if (!page)
			i |= NODE_PAGE - 1;
	}
	return rc == -EAGAIN ? weir_fail(rc, "not all messages are complete in time; wait longer, "
					     "or see weirctl show connections")
			     : rc;
}
