/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: each has a slot in the table of its sender. The request's id is slot and generation; a
 * response whose generation is not the slot's is for a request that has ended.
 */
#include "request.h"
#include "lane.h"
#include "peer.h"
#include "sender.h"

#include "base/vec.h"
#include "client/reason.h"
#include "client/sized.h"
#include "client/wait.h"
#include "stream/model.h"
#include "stream/rx_queue.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_MAX (1u << 20) /* per sender */
#define ERRNO_MAX 4095u
#define ENDS_MAX 5000u /* naps until the end of lanes is given up */

enum { STATE_NONE = 0, STATE_WAITING = 0x57414954, STATE_ENDED = 0x454e4445 };

/* Content of weir_request.internal. */
struct inside {
	struct sender *sender;
	void *buffer;
	size_t size;
	uint32_t slot;
	_Atomic uint32_t state;
	void (*done)(struct weir_request *r, void *user); /* NULL: a thread waits for it */
	uint32_t flags;					  /* WEIR_REQUEST_* */
	void *user;
	struct weir_request *next; /* ended, to be reported */
	/* WEIR_REQUEST_LOAN: memory for a response in fragments, until it is whole; the response */
	uint8_t *memory;
	struct weir_rx_message *loan;
};
static_assert(sizeof(struct inside) <= sizeof(((struct weir_request *)0)->internal), "its place");

static inline struct inside *
inside(struct weir_request *r)
{
	return (struct inside *)r->internal;
}

struct weir_request **
request_next(struct weir_request *r)
{
	return &inside(r)->next;
}

void
request_report(struct weir_request *r)
{
	inside(r)->done(r, inside(r)->user);
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
	s->slots_used++;
	*id = (uint64_t)slot->generation << 32 | inside(r)->slot;
	lane_outstanding(lane, 1);
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
	s->slots_used--;
	slot->next = s->slot_free;
	s->slot_free = inside(r)->slot;
	lane_outstanding(lane, -1);
	r->status = status;
	r->length = length;
	if (weir_likely(!(inside(r)->flags & WEIR_REQUEST_LOAN))) {
		r->data = inside(r)->buffer;
	} else if (status) {
		weir_buffer_give(s->worker->w, inside(r)->memory);
		inside(r)->memory = NULL;
	}
	if (weir_unlikely(inside(r)->done != NULL)) {
		atomic_store_explicit(&inside(r)->state, STATE_ENDED, memory_order_release);
		completion_request(s, r);
		return;
	}
	/* the last access: the program may free it */
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

/* ---- responses on loan; worker locked ---- */

/* The response lies in p, at `data`, from now on. */
static void
lend(struct weir_request *r, struct weir_rx_message *p, const uint8_t *data)
{
	inside(r)->loan = p;
	r->data = data;
}

/*
 * A fragment of a response: the memory grows with arriving bytes, and is lent with the last ones.
 * 0, -EMSGSIZE, -ENOMEM.
 */
static int
keep_fragment(struct lane *lane, struct weir_request *r, const struct message_fragment *fragment,
	      const uint8_t *data, uint32_t length)
{
	uint64_t got = fragment->offset + length, bytes = fragments_memory(got, fragment->total);
	struct weir *w = lane->worker->w;
	struct weir_rx_message *p;
	uint8_t *grown;

	if (fragment->total > lane->m->o.message_max)
		return -EMSGSIZE;
	grown = weir_buffer_grow(w, inside(r)->memory, fragment->offset, bytes);
	if (!grown)
		return -ENOMEM;
	inside(r)->memory = grown;
	memcpy(grown + fragment->offset, data, length);
	if (got < fragment->total)
		return 0;
	p = weir_rx_message_new(lane->worker, 0);
	if (!p)
		return -ENOMEM;
	p->kind = RX_BUFFER;
	p->data = grown;
	p->vqpn = lane->conn->vqpn;
	inside(r)->memory = NULL;
	LIST_INSERT_HEAD(&lane->worker->loans, p, in_loans);
	lend(r, p, p->data);
	return 0;
}

void
weir_request_release(struct weir_request *r)
{
	struct weir_loan loan = {0};
	struct weir_rx_message *p;

	if (!(inside(r)->flags & WEIR_REQUEST_LOAN) || !request_ended(r) || !inside(r)->loan)
		return;
	p = inside(r)->loan;
	loan.internal[0] = (uintptr_t)p;
	inside(r)->loan = NULL;
	r->data = NULL;
	weir_release(p->worker->w, &loan);
}

/* ---- responses ---- */

/*
 * Makes room for the first `got` bytes of a response of `total`: the buffer of WEIR_REQUEST_GROW
 * grows with the bytes that arrive. 0, -EMSGSIZE, -ENOMEM.
 */
static int
grow(const struct weir_messenger *m, struct weir_request *r, uint64_t got, uint64_t total)
{
	struct inside *in = inside(r);
	uint64_t bytes = fragments_memory(got, total);
	void *grown;

	if (weir_likely(!(in->flags & WEIR_REQUEST_GROW)))
		return 0;
	if (total > m->o.message_max)
		return -EMSGSIZE;
	if (got <= in->size)
		return 0;
	grown = realloc(in->buffer, bytes);
	if (!grown)
		return -ENOMEM;
	in->buffer = grown;
	in->size = bytes;
	return 0;
}

void
request_response(struct lane *lane, const struct message_header *h, const uint8_t *data,
		 uint32_t length, struct weir_taken *taken)
{
	struct sender *s = lane->sender;
	struct weir_request *r = find(s, lane, h->id);
	struct weir_rx_message *p = taken->loan;
	struct inside *in;
	int rc;

	if (!r) {
		count(&s->late);
		return;
	}
	in = inside(r);
	if (h->status) {
		request_end(s, r, h->status <= ERRNO_MAX ? -(int)h->status : -EPROTO, 0);
		return;
	}
	/* what was taken is kept, or copied if it lies in the sender's buffer */
	if (weir_unlikely(in->flags & WEIR_REQUEST_LOAN)) {
		if (p) {
			weir_loan_begin(p, lane->conn);
			taken->loan = NULL;
		} else if ((p = weir_rx_message_new(lane->worker, length))) {
			if (length)
				memcpy(p->bytes, data, length);
			p->vqpn = lane->conn->vqpn;
			LIST_INSERT_HEAD(&lane->worker->loans, p, in_loans);
			data = p->bytes;
		}
		if (p)
			lend(r, p, data);
		request_end(s, r, p ? 0 : -ENOMEM, length);
		return;
	}
	rc = grow(lane->m, r, length, length);
	if (length && in->size)
		memcpy(in->buffer, data, length < in->size ? length : in->size);
	request_end(s, r, rc ? rc : length > in->size ? -EMSGSIZE : 0, length);
}

bool
request_piece(struct lane *lane, const struct message_header *h, const uint8_t *data,
	      uint32_t length)
{
	struct sender *s = lane->sender;
	struct weir_request *r = find(s, lane, h->id);
	struct message_fragments *a = &lane->in.fragments;
	struct message_fragment fragment;
	const struct inside *in;
	int rc;

	if (!message_fragment_read(&fragment, data, length) || h->flags != KIND_RESPONSE)
		return false;
	if (!fragment.offset)
		message_fragments_begin(a, h, &fragment);
	if (!message_fragments_next(a, h, &fragment))
		return false;
	/* the first fragment came before the request: nobody has sent that request */
	if (fragment.offset && r && inside(r)->flags & WEIR_REQUEST_LOAN && !inside(r)->memory)
		return false;
	length -= (uint32_t)sizeof(fragment);
	a->got += length;
	if (r && inside(r)->flags & WEIR_REQUEST_LOAN) {
		rc = keep_fragment(lane, r, &fragment, data + sizeof(fragment), length);
		if (rc) { /* the rest is late */
			request_end(s, r, rc, a->total);
			r = NULL;
		}
	} else if (r) {
		in = inside(r);
		rc = grow(lane->m, r, fragment.offset + length, fragment.total);
		if (fragment.offset < in->size)
			memcpy((uint8_t *)in->buffer + fragment.offset, data + sizeof(fragment),
			       length < in->size - fragment.offset ? length
								   : in->size - fragment.offset);
		if (rc) { /* the rest is late */
			request_end(s, r, rc, a->total);
			r = NULL;
		}
	}
	if (a->got < a->total)
		return true;
	a->total = 0;
	if (r)
		request_end(s, r,
			    !(inside(r)->flags & WEIR_REQUEST_LOAN) && a->got > inside(r)->size
				? -EMSGSIZE
				: 0,
			    a->got);
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
		weir_thread_wake(s->worker);
	weir_unlock(s->worker);
	return n;
}

int
weir_message_cancel(struct weir_messenger *m, uint16_t node)
{
	struct sender *s;
	uint32_t n = 0;
	int rc;

	rc = messenger_follow(m);
	if (rc)
		return rc;
	pthread_mutex_lock(&m->lock);
	TAILQ_FOREACH(s, &m->senders, next)
	n += requests_cancel(s, node);
	pthread_mutex_unlock(&m->lock);
	return (int)n;
}

/* ---- sending ---- */

/* Fills r; fields that only a callback or a loan uses are filled when there is one. */
static inline void
fill(struct weir_request *r, struct sender *s, uint16_t node,
     const struct weir_request_options *options, void *response, size_t size)
{
	struct inside *in = inside(r);

	r->node = node;
	r->status = 0;
	r->length = 0;
	in->sender = s;
	in->buffer = response;
	in->size = size;
	in->done = NULL;
	in->flags = 0;
	atomic_store_explicit(&in->state, STATE_WAITING, memory_order_relaxed);
	if (!options)
		return;
	in->done = options->done;
	in->user = options->user;
	in->flags = options->flags;
	in->memory = NULL;
	in->loan = NULL;
	r->data = NULL;
}

int
request_begin(struct lane *lane, struct weir_request *r, const struct weir_request_options *options,
	      uint64_t *id)
{
	weir_assert(weir_worker_locked(lane->worker));
	fill(r, lane->sender, lane->peer->node, options, options->response, options->response_size);
	return slot_take(lane->sender, r, lane, id);
}

/*
 * r was not sent, because of rc: frees its slot. Returns rc, or 0: it had ended before, and `done`
 * reports that.
 */
static int
unsent(struct lane *lane, struct weir_request *r, uint64_t id, int rc)
{
	struct sender *s = lane->sender;

	weir_lock(s->worker);
	if (find(s, lane, id) == r) {
		inside(r)->done = NULL; /* the caller learns of the failure */
		request_end(s, r, rc, 0);
	}
	rc = inside(r)->done ? 0 : rc;
	weir_unlock(s->worker);
	return rc;
}

int
request_undo(struct lane *lane, struct weir_request *r, uint64_t id, int rc)
{
	rc = unsent(lane, r, id, rc);
	if (rc)
		r->internal[0] = 0;
	return rc;
}

static __attribute__((noinline)) int
start_slow(struct weir_messenger *m, struct sender *s, struct weir_request *r, uint16_t type,
	   const struct iovec *iov, unsigned n, size_t length, int timeout_ms)
{
	struct message_header h = {.kind = KIND_REQUEST, .type = type};
	struct iovec parts[WEIR_MESSAGE_PARTS + 1];
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
	parts[0] = (struct iovec){&h, HEADER_LONG};
	if (n)
		memcpy(parts + 1, iov, n * sizeof(*iov));
	weir_lock(s->worker);
	rc = slot_take(s, r, lane, &h.id);
	weir_unlock(s->worker);
	if (!rc) {
		rc = length > WEIR_MESSAGE_WHOLE
			 ? fragments_send(lane, &h, iov, n, length, NULL, timeout_ms)
			 : lane_send(lane, parts, n + 1, HEADER_LONG + length, NULL, timeout_ms);
		if (rc)
			rc = unsent(lane, r, h.id, rc);
	}
	lane_unpin(lane);
	return rc ? message_error(m, rc) : 0;
}

int
weir_request_start(struct weir_messenger *m, struct weir_request *r, uint16_t node, uint16_t type,
		   const void *buf, size_t length, void *response, size_t size, int send_timeout_ms)
{
	struct message_header h = {.kind = KIND_REQUEST, .type = type};
	struct iovec part = {(void *)(uintptr_t)buf, length};
	struct sender *s;
	struct lane *lane;
	int rc = -EAGAIN;

	r->internal[0] = 0;
	s = sender_get(m, &rc);
	if (!s)
		return rc;
	fill(r, s, node, NULL, response, size);
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
		rc = start_slow(m, s, r, type, &part, 1, length, send_timeout_ms);
	if (rc)
		r->internal[0] = 0;
	return rc;
}

int
request_options(struct weir_request_options *own, const struct weir_request_options *given)
{
	int rc = weir_sized_read(own, sizeof(*own), given, "WEIR_REQUEST_OPTIONS_INIT");

	if (rc)
		return rc;
	if (own->flags & ~(WEIR_REQUEST_LOAN | WEIR_REQUEST_GROW))
		return weir_fail(-EINVAL, "unknown flag; only WEIR_REQUEST_LOAN and "
					  "WEIR_REQUEST_GROW are known");
	if (own->flags & WEIR_REQUEST_LOAN &&
	    (own->flags & WEIR_REQUEST_GROW || own->response || own->response_size))
		return weir_fail(-EINVAL, "a response buffer and WEIR_REQUEST_LOAN; give one");
	if (own->flags & WEIR_REQUEST_GROW && !own->response != !own->response_size)
		return weir_fail(-EINVAL, "a buffer to grow without memory, or without its size; "
					  "give both or none");
	return 0;
}

int
weir_request_start_with(struct weir_messenger *m, struct weir_request *r, uint16_t node,
			uint16_t type, const struct weir_request_options *options,
			int send_timeout_ms)
{
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	uint64_t length;
	struct sender *s;
	int rc;

	r->internal[0] = 0;
	rc = request_options(&o, options);
	if (!rc)
		rc = message_length(m, o.iov, o.parts, &length);
	s = rc ? NULL : sender_get(m, &rc);
	if (!s)
		return rc;
	fill(r, s, node, &o, o.response, o.response_size);
	rc = start_slow(m, s, r, type, o.iov, o.parts, length, send_timeout_ms);
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
		weir_thread_wake(s->worker);
	}
	weir_unlock(s->worker);
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
	if (inside(r)->done)
		return weir_fail(-EINVAL, "the request reports its end; wait for its `done` in "
					  "weir_messenger_progress()");
	if (weir_state(s->worker->w) == WEIR_FORKED)
		return weir_gone(s->worker->w);
	if (timeout_ms == -1)
		timeout_ms = (int)s->m->o.request_timeout_ms;
	weir_wait_init(&wait, s->worker, timeout_ms < 0 ? -1 : timeout_ms);
	wait.awaits = r;
	while (!look(s, r)) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if ((rc == -EAGAIN && !timeout_ms) || rc == -EINTR)
		return rc;
	if (rc)
		give_up(s, r, rc == -EAGAIN ? -ETIMEDOUT : rc);
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
	case -EPROTONOSUPPORT:
		return message_error(s->m, r->status);
	case -EMSGSIZE:
		return weir_fail(-EMSGSIZE, "the response has %zu bytes; give a larger buffer",
				 r->length);
	default:
		if (r->status == -ENODEV ||
		    (weir_state(s->m->w) != WEIR_UP && r->status == weir_loss(s->m->w)))
			return messenger_gone(s->m);
		return weir_fail(r->status, "the request to node %u failed: %s; see its program",
				 r->node, strerror(-r->status));
	}
}

int
weir_request_wait_any(struct weir_request *const *list, unsigned n, int timeout_ms)
{
	struct sender *s = NULL, *its;
	struct weir_wait wait;
	int rc = 0, first = -1;

	for (unsigned i = 0; i < n; i++) {
		if (!list[i])
			continue;
		its = inside(list[i])->sender;
		/* it may be of a former session */
		if (its && !inside(list[i])->done && request_ended(list[i]))
			return (int)i;
		if (!its || (s && its != s) || inside(list[i])->done)
			return weir_fail(-EINVAL,
					 "request %u was not started, was started by another "
					 "thread, or has `done`; wait for those of one thread",
					 i);
		s = its;
	}
	if (!s)
		return weir_fail(-EINVAL, "no request to wait for; give one");
	if (weir_state(s->worker->w) == WEIR_FORKED)
		return weir_gone(s->worker->w);
	weir_wait_init(&wait, s->worker, timeout_ms);
	for (;;) {
		weir_lock(s->worker);
		for (unsigned look = 0; look < 2 && first < 0; look++) {
			if (look)
				sender_take(s, NULL);
			for (unsigned i = 0; i < n && first < 0; i++)
				if (list[i] && request_ended(list[i]))
					first = (int)i;
		}
		weir_unlock(s->worker);
		if (first >= 0)
			break;
		rc = weir_wait_next(&wait);
		if (weir_is_loss(rc)) { /* their lanes are about to end, and they with them */
			weir_sleep(200000);
			rc = wait.ends++ == ENDS_MAX ? rc : 0;
		}
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc ? rc : first;
}

void
weir_request_cancel(struct weir_request *r)
{
	struct sender *s = inside(r)->sender;

	if (s && weir_state(s->worker->w) != WEIR_FORKED)
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
	/* a handler may refuse with these, too */
	if ((rc == -EAGAIN || rc == -EINTR) && !request_ended(&r)) {
		weir_request_cancel(&r); /* its memory ends here */
		rc = rc == -EAGAIN ? -ETIMEDOUT : rc;
	}
	if (response_length)
		*response_length = r.length;
	return rc;
}
