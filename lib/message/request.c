/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: each has a slot in the table of its sender. The request's id is slot and generation; a
 * response whose generation is not the slot's is for a request that has ended.
 */
#include "request.h"
#include "lane.h"
#include "sender.h"

#include "base/vec.h"
#include "client/reason.h"
#include "client/wait.h"
#include "stream/model.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_MAX (1u << 20) /* per sender */
#define ERRNO_MAX 4095u

enum { STATE_NONE = 0, STATE_WAITING = 0x57414954, STATE_ENDED = 0x454e4445 };

/* Content of weir_request.internal. */
struct inside {
	struct sender *sender;
	void *buffer;
	size_t size;
	uint32_t slot;
	_Atomic uint32_t state;
	uint64_t unused[2];
};
static_assert(sizeof(struct inside) == sizeof(((struct weir_request *)0)->internal), "its place");

static inline struct inside *
inside(struct weir_request *r)
{
	return (struct inside *)r->internal;
}

/* ---- slots; worker locked ---- */

static int
slot_take(struct sender *s, struct weir_request *r, struct lane *lane, uint64_t *id)
{
	uint32_t room = s->slot_count;
	struct request_slot *slot;

	if (weir_unlikely(s->slot_free == UINT32_MAX)) {
		if (room == SLOTS_MAX)
			return weir_fail(
			    -ENOSPC, "%u requests of a thread are outstanding; collect some", room);
		if (VEC_RESERVE(s->slots, room, s->slot_count + 1))
			return weir_fail(-ENOMEM, "no memory for another request; free some");
		for (uint32_t i = s->slot_count; i < room; i++)
			s->slots[i] = (struct request_slot){
			    .generation = 1, .next = i + 1 < room ? i + 1 : UINT32_MAX};
		s->slot_free = s->slot_count;
		s->slot_count = room;
	}
	inside(r)->slot = s->slot_free;
	slot = &s->slots[s->slot_free];
	s->slot_free = slot->next;
	slot->request = r;
	slot->lane = lane;
	*id = (uint64_t)slot->generation << 32 | inside(r)->slot;
	atomic_store_explicit(&lane->outstanding,
			      atomic_load_explicit(&lane->outstanding, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	return 0;
}

static void
request_end(struct sender *s, struct weir_request *r, int status, size_t length)
{
	struct request_slot *slot = &s->slots[inside(r)->slot];
	struct lane *lane = slot->lane;

	weir_assert(inside(r)->slot < s->slot_count && slot->request == r);
	weir_assert(atomic_load_explicit(&lane->outstanding, memory_order_relaxed));
	slot->request = NULL;
	slot->generation++;
	slot->next = s->slot_free;
	s->slot_free = inside(r)->slot;
	atomic_store_explicit(&lane->outstanding,
			      atomic_load_explicit(&lane->outstanding, memory_order_relaxed) - 1,
			      memory_order_relaxed);
	r->status = status;
	r->length = length;
	atomic_store_explicit(&inside(r)->state, STATE_ENDED, memory_order_release);
}

/* NULL: it has ended. */
static struct weir_request *
find(const struct sender *s, const struct lane *lane, uint64_t id)
{
	const struct request_slot *slot;

	if ((uint32_t)id >= s->slot_count)
		return NULL;
	slot = &s->slots[(uint32_t)id];
	return slot->generation == id >> 32 && slot->lane == lane ? slot->request : NULL;
}

void
request_response(struct lane *lane, const struct message_header *h, const uint8_t *data,
		 uint32_t length)
{
	struct sender *s = lane->sender;
	struct weir_request *r = find(s, lane, h->id);
	struct inside *in;

	if (!r) {
		count(&s->late);
		return;
	}
	in = inside(r);
	if (h->status) {
		request_end(s, r, h->status <= ERRNO_MAX ? -(int)h->status : -EPROTO, 0);
		return;
	}
	if (length && in->size)
		memcpy(in->buffer, data, length < in->size ? length : in->size);
	request_end(s, r, length > in->size ? -EMSGSIZE : 0, length);
}

bool
request_piece(struct lane *lane, const struct message_header *h, const uint8_t *data,
	      uint32_t length)
{
	struct sender *s = lane->sender;
	struct weir_request *r = find(s, lane, h->id);
	struct message_fragments *a = &lane->in.fragments;
	struct message_fragment fragment;
	struct inside *in;

	if (!message_fragment_read(&fragment, data, length) || h->flags != KIND_RESPONSE)
		return false;
	if (!fragment.offset)
		message_fragments_begin(a, h, &fragment);
	if (!message_fragments_next(a, h, &fragment))
		return false;
	length -= (uint32_t)sizeof(fragment);
	a->got += length;
	if (r) {
		in = inside(r);
		if (fragment.offset < in->size)
			memcpy((uint8_t *)in->buffer + fragment.offset, data + sizeof(fragment),
			       length < in->size - fragment.offset ? length
								   : in->size - fragment.offset);
	}
	if (a->got < a->total)
		return true;
	a->total = 0;
	if (r)
		request_end(s, r, a->got > in->size ? -EMSGSIZE : 0, a->got);
	else
		count(&s->late);
	return true;
}

void
requests_end(struct lane *lane, int status)
{
	struct sender *s = lane->sender;

	weir_assert(s && weir_worker_locked(s->worker));
	if (!atomic_load_explicit(&lane->outstanding, memory_order_relaxed))
		return;
	for (uint32_t i = 0; i < s->slot_count; i++)
		if (s->slots[i].request && s->slots[i].lane == lane)
			request_end(s, s->slots[i].request, status, 0);
}

uint32_t
requests_cancel(struct sender *s, uint32_t node)
{
	uint32_t n = 0;

	weir_lock(s->worker);
	for (uint32_t i = 0; i < s->slot_count; i++) {
		struct weir_request *r = s->slots[i].request;

		if (!r || (node != UINT32_MAX && r->node != node))
			continue;
		request_end(s, r, -ECANCELED, 0);
		n++;
	}
	if (n)
		weir_thread_wake(s->worker, NULL);
	weir_unlock(s->worker);
	return n;
}

int
weir_message_cancel(struct weir_messenger *m, uint16_t node)
{
	struct sender *s;
	uint32_t n = 0;

	if (weir_state(m->w) != WEIR_UP)
		return messenger_gone(m);
	pthread_mutex_lock(&m->lock);
	TAILQ_FOREACH(s, &m->senders, next)
	n += requests_cancel(s, node);
	pthread_mutex_unlock(&m->lock);
	return (int)n;
}

/* ---- sending ---- */

static __attribute__((noinline)) int
start_slow(struct weir_messenger *m, struct sender *s, struct weir_request *r, uint16_t type,
	   const void *buf, size_t length, int timeout_ms)
{
	struct message_header h = {.kind = KIND_REQUEST, .type = type};
	struct iovec parts[2] = {{&h, HEADER_LONG}, {(void *)(uintptr_t)buf, length}};
	struct lane *lane;
	int rc;

	if (length > m->o.message_max)
		return weir_fail(-EMSGSIZE,
				 "a request of %zu bytes is longer than message_max, %llu; send "
				 "less or raise that",
				 length, (unsigned long long)m->o.message_max);
	rc = lane_pin(s, r->node, timeout_ms, &lane);
	if (rc)
		return rc;
	weir_lock(s->worker);
	rc = slot_take(s, r, lane, &h.id);
	weir_unlock(s->worker);
	if (!rc) {
		rc = length > WEIR_MESSAGE_WHOLE
			 ? fragments_send(lane, &h, parts + 1, 1, length, timeout_ms)
			 : lane_send(lane, parts, 2, HEADER_LONG + length, timeout_ms);
		if (rc) {
			weir_lock(s->worker);
			if (find(s, lane, h.id) == r)
				request_end(s, r, rc, 0);
			weir_unlock(s->worker);
		}
	}
	lane_unpin(lane);
	return rc ? message_error(m, rc) : 0;
}

int
weir_request_start(struct weir_messenger *m, struct weir_request *r, uint16_t node, uint16_t type,
		   const void *buf, size_t length, void *response, size_t size, int send_timeout_ms)
{
	struct message_header h = {.kind = KIND_REQUEST, .type = type};
	struct sender *s;
	struct lane *lane;
	int rc = -EAGAIN;

	r->internal[0] = 0;
	s = sender_get(m, &rc);
	if (!s)
		return rc;
	r->node = node;
	r->status = 0;
	r->length = 0;
	*inside(r) =
	    (struct inside){.sender = s, .buffer = response, .size = size, .state = STATE_WAITING};
	rc = -EAGAIN;
	if (length <= WEIR_INLINE_SMALL - HEADER_LONG) {
		weir_lock(s->worker);
		lane = sender_lane(s, node);
		if (weir_likely(lane && !lane->hello_due && s->slot_free != UINT32_MAX))
			rc = slot_take(s, r, lane, &h.id);
		if (weir_likely(!rc)) {
			rc = weir_send_headed(lane->conn, &h, buf, (uint32_t)length);
			if (weir_likely(!rc))
				lane_used(lane);
			else
				request_end(s, r, rc, 0);
		}
		if (rc)
			atomic_store_explicit(&inside(r)->state, STATE_WAITING,
					      memory_order_relaxed);
		weir_unlock(s->worker);
	}
	if (rc)
		rc = start_slow(m, s, r, type, buf, length, send_timeout_ms);
	if (rc)
		r->internal[0] = 0;
	return rc;
}

/* ---- collecting ---- */

bool
request_ended(const struct weir_request *r)
{
	return atomic_load_explicit(&inside((struct weir_request *)(uintptr_t)r)->state,
				    memory_order_acquire) == STATE_ENDED;
}

static bool
look(struct sender *s, const struct weir_request *r)
{
	bool done;

	weir_lock(s->worker);
	if (!request_ended(r))
		sender_take(s, r);
	done = request_ended(r);
	weir_unlock(s->worker);
	return done;
}

/* Ends a request without a response. */
static void
give_up(struct sender *s, struct weir_request *r, int status)
{
	weir_lock(s->worker);
	if (!request_ended(r)) {
		request_end(s, r, status, 0);
		weir_thread_wake(s->worker, NULL);
	}
	weir_unlock(s->worker);
}

static int
result(const struct weir_messenger *m, const struct weir_request *r, int timeout_ms)
{
	switch (r->status) {
	case 0:
		return 0;
	case -ETIMEDOUT:
		return weir_fail(-ETIMEDOUT,
				 "node %u has not responded within %d ms; wait longer, or see "
				 "weirctl show sessions there",
				 r->node, timeout_ms);
	case -ECANCELED:
		return weir_fail(-ECANCELED, "the request was cancelled; start it again");
	case -ENOMSG:
		return weir_fail(-ENOMSG,
				 "nobody on node %u has registered the type; see that both ends "
				 "are of one release",
				 r->node);
	case -EMSGSIZE:
		return weir_fail(-EMSGSIZE, "the response has %zu bytes; give a larger buffer",
				 r->length);
	default:
		if (weir_state(m->w) != WEIR_UP && r->status == weir_loss(m->w))
			return messenger_gone(m);
		return weir_fail(r->status, "the request to node %u failed: %s; see its program",
				 r->node, strerror(-r->status));
	}
}

int
weir_request_wait(struct weir_request *r, int timeout_ms)
{
	struct sender *s = inside(r)->sender;
	struct weir_wait wait;
	int rc = 0;

	if (!s)
		return weir_fail(-EINVAL, "the request was not started; look at what "
					  "weir_request_start() returned");
	if (weir_state(s->m->w) == WEIR_FORKED)
		return weir_gone(s->m->w);
	if (timeout_ms == -1)
		timeout_ms = (int)s->m->o.request_timeout_ms;
	weir_wait_init(&wait, s->worker, timeout_ms < 0 ? -1 : timeout_ms);
	while (!look(s, r)) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if (rc == -EAGAIN && !timeout_ms)
		return rc;
	if (rc)
		give_up(s, r, rc == -EAGAIN ? -ETIMEDOUT : rc);
	return result(s->m, r, timeout_ms);
}

void
weir_request_cancel(struct weir_request *r)
{
	struct sender *s = inside(r)->sender;

	if (s && weir_state(s->m->w) != WEIR_FORKED)
		give_up(s, r, -ECANCELED);
}

int
weir_message_request(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf,
		     size_t length, void *response, size_t size, size_t *response_length,
		     int timeout_ms)
{
	struct weir_request r;
	int send_ms = timeout_ms == -1		      ? (int)m->o.request_timeout_ms
		      : timeout_ms == WEIR_NO_TIMEOUT ? -1
						      : timeout_ms;
	int rc = weir_request_start(m, &r, node, type, buf, length, response, size, send_ms);

	if (rc == -EAGAIN)
		return weir_fail(-ETIMEDOUT,
				 "the request to node %u found no room within %d ms; wait longer, "
				 "or see weirctl show connections",
				 node, send_ms);
	if (rc)
		return rc;
	rc = weir_request_wait(&r, timeout_ms);
	if (rc == -EAGAIN) {
		weir_request_cancel(&r); /* its memory ends here */
		rc = -ETIMEDOUT;
	}
	if (response_length)
		*response_length = r.length;
	return rc;
}
