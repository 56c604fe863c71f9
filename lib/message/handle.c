/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers: registered by type, called by handler threads; exclusive ones one at a time. */
#include "handle.h"
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "pool.h"
#include "room.h"

#include "client/membarrier.h"
#include "client/reason.h"
#include "client/sized.h"
#include "client/wait.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define ADMITTED_MAX 64u   /* messages between looks at the rings */
#define RUNNING_NS 200000u /* ns between looks at handlers that still run */

/* ---- registration ---- */

int
weir_message_register(struct weir_messenger *m, uint16_t type, const struct weir_handler *h)
{
	struct weir_handler given = WEIR_HANDLER_INIT;
	struct handler *n;
	int rc = weir_sized_read(&given, sizeof(given), h, "WEIR_HANDLER_INIT");

	if (rc)
		return rc;
	if (m->model)
		return weir_fail(-EINVAL, "a model takes all messages of this messenger; open "
					  "another one with weir_messenger_open()");
	if (!given.handle || given.flags & ~(WEIR_HANDLER_EXCLUSIVE | WEIR_HANDLER_UNORDERED))
		return weir_fail(-EINVAL, "no handler, or an unknown flag; see weir/message.h");
	if (given.place_from && !given.place)
		return weir_fail(-EINVAL, "place_from without `place`; set both or none");
	n = malloc(sizeof(*n));
	if (!n)
		return weir_fail(-ENOMEM, "no memory for a handler; free some");
	n->h = given;
	if (!given.place)
		n->h.place_from = UINT32_MAX;
	else if (!given.place_from)
		n->h.place_from = WEIR_MESSAGE_WHOLE + 1;
	pthread_mutex_lock(&m->leaf);
	if (atomic_load_explicit(&m->handlers[type], memory_order_relaxed))
		rc = -EEXIST;
	else /* pairs with the acquire in handler_hold() */
		atomic_store_explicit(&m->handlers[type], n, memory_order_release);
	pthread_mutex_unlock(&m->leaf);
	if (!rc)
		return 0;
	free(n);
	return weir_fail(rc, "type %u.%u has a handler already; unregister that first", type >> 8,
			 type & 0xff);
}

int
weir_message_unregister(struct weir_messenger *m, uint16_t type, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	struct handler *h;
	bool running;

	if (weir_state(m->w) == WEIR_FORKED)
		return weir_gone(m->w);
	pthread_mutex_lock(&m->leaf);
	h = atomic_load_explicit(&m->handlers[type], memory_order_relaxed);
	atomic_store_explicit(&m->handlers[type], NULL, memory_order_relaxed);
	if (h) { /* a thread may be about to call it */
		h->retired = m->retired;
		m->retired = h;
	}
	pthread_mutex_unlock(&m->leaf);
	if (!h)
		return weir_fail(-ENOENT, "type %u.%u has no handler; nothing is to be done",
				 type >> 8, type & 0xff);
	/* pairs with the fence in handler_hold() */
	if (m->fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		weir_barrier_threads();
	/* neither a signal nor a wake ends it: the call cannot be repeated */
	for (;;) {
		/* in another handler thread; pairs with the release in handler_release() */
		running = false;
		for (uint32_t i = 0; i < m->o.handler_threads; i++)
			running |= atomic_load_explicit(&m->pool[i].type, memory_order_acquire) ==
				       type + 1u &&
				   !pthread_equal(m->pool[i].thread, pthread_self());
		if (!running)
			return 0;
		if (weir_clock() >= end)
			return weir_fail(-EAGAIN,
					 "a handler of type %u.%u still runs; wait longer, or see "
					 "weirctl show sessions (IN HANDLER)",
					 type >> 8, type & 0xff);
		weir_sleep(RUNNING_NS);
	}
}

void
handlers_free(struct weir_messenger *m)
{
	struct handler *h;

	for (uint32_t i = 0; i < TYPES; i++)
		free(atomic_load_explicit(&m->handlers[i], memory_order_relaxed));
	while ((h = m->retired)) {
		m->retired = h->retired;
		free(h);
	}
	free(m->handlers);
}

/* ---- messages that wait ---- */

struct held *
lane_held(struct lane *lane)
{
	if (!lane->held)
		lane->held = malloc(sizeof(*lane->held));
	return lane->held;
}

void
message_hold(struct handler_thread *k, struct held *e)
{
	weir_assert(k->lane && is_locked(&k->m->leaf));
	*e = (struct held){.lane = k->lane,
			   .life = k->life,
			   .taken = k->taken,
			   .header = k->header,
			   .message = k->message};
	if (k->taken.data == k->buffer) {
		memcpy(e->small, k->buffer, k->taken.length);
		e->taken.data = e->small;
		if (k->message.data >= (void *)k->buffer &&
		    k->message.data < (void *)(k->buffer + sizeof(k->buffer)))
			e->message.data = e->small + ((const uint8_t *)k->message.data - k->buffer);
	}
	k->lane = NULL;
}

bool
message_resume(struct handler_thread *k, const struct held *e)
{
	bool ends;

	weir_assert(!k->lane);
	k->lane = e->lane;
	k->life = e->life;
	k->taken = e->taken;
	k->header = e->header;
	k->message = e->message;
	weir_lock(k->lane->worker);
	k->lane->running = k;
	ends = k->lane->closing;
	weir_unlock(k->lane->worker);
	return ends;
}

/* ---- one message ---- */

/* The lane's next message need not wait for this one. */
static __attribute__((noinline)) void
let_lane_go(struct handler_thread *k)
{
	struct lane *lane = k->lane;

	weir_lock(lane->worker);
	if (lane->running == k) {
		lane->running = NULL;
		lane_resume(lane);
	}
	weir_unlock(lane->worker);
}

/* Moves the message in hand, which is whole, to memory of the program. False: there is none. */
static __attribute__((noinline)) bool
place_whole(struct handler_thread *k, const struct weir_handler *h)
{
	struct weir_message *message = &k->message;
	const void *from = message->data;
	void *to;

	message->data = NULL;
	to = h->place(k->m, message, h->user);
	if (!to) {
		count(&k->oversized);
		if (message->flags & WEIR_MESSAGE_REQUEST)
			weir_message_refuse(k->m, &message->reply, EMSGSIZE);
		return false;
	}
	memcpy(to, from, message->length);
	message->data = to;
	return true;
}

static inline void
call(struct handler_thread *k, const struct weir_handler *h)
{
	if (weir_unlikely(k->message.length >= h->place_from) && k->header.kind != KIND_FRAGMENT &&
	    !place_whole(k, h))
		return;
	if (weir_unlikely(h->flags & WEIR_HANDLER_UNORDERED && k->header.kind != KIND_FRAGMENT))
		let_lane_go(k);
	h->handle(k->m, &k->message, h->user);
	count(&k->handled);
}

static void
unknown(struct handler_thread *k)
{
	count(&k->unknown);
	if (k->message.flags & WEIR_MESSAGE_REQUEST)
		weir_message_refuse(k->m, &k->message.reply, ENOMSG);
}

/* The handler of the message in hand, held; of a reassembled one only if it gave the memory. */
static const struct weir_handler *
hold_whole(struct handler_thread *k)
{
	const struct weir_handler *h = handler_hold(k, k->message.type);

	return k->header.kind != KIND_FRAGMENT || h == k->lane->in.handler ? h : NULL;
}

/* Handles the message in hand and then those that wait, or lets it wait if another has the turn. */
static void
dispatch_exclusive(struct handler_thread *k, const struct weir_handler *h)
{
	struct weir_messenger *m = k->m;
	struct held *e = lane_held(k->lane);

	pthread_mutex_lock(&m->leaf);
	while (m->exclusive_taken && !e) { /* no memory to store it: the thread waits */
		pthread_mutex_unlock(&m->leaf);
		sched_yield();
		pthread_mutex_lock(&m->leaf);
	}
	if (m->exclusive_taken) {
		message_hold(k, e);
		TAILQ_INSERT_TAIL(&m->exclusive, e, next);
		pthread_mutex_unlock(&m->leaf);
		return;
	}
	m->exclusive_taken = true;
	pthread_mutex_unlock(&m->leaf);
	do {
		if (h)
			call(k, h);
		else
			unknown(k);
		handler_release(k);
		if (k->header.kind == KIND_FRAGMENT)
			assembly_done(k->lane);
		message_finish(k);
		pthread_mutex_lock(&m->leaf);
		e = TAILQ_FIRST(&m->exclusive);
		if (e)
			TAILQ_REMOVE(&m->exclusive, e, next);
		else
			m->exclusive_taken = false;
		pthread_mutex_unlock(&m->leaf);
		if (e) {
			message_resume(k, e);
			h = hold_whole(k);
		}
	} while (e);
}

static inline void
dispatch_to(struct handler_thread *k, const struct weir_handler *h)
{
	if (weir_unlikely(!h))
		unknown(k);
	else if (weir_unlikely(h->flags & WEIR_HANDLER_EXCLUSIVE))
		dispatch_exclusive(k, h);
	else
		call(k, h);
	handler_release(k);
}

static inline void
dispatch(struct handler_thread *k)
{
	dispatch_to(k, handler_hold(k, k->message.type));
}

static void
malformed(struct handler_thread *k, int status)
{
	count(&k->malformed);
	lane_ended(k->lane, k->life, status);
}

static void
hello(struct handler_thread *k, const uint8_t *data, uint32_t length)
{
	struct weir_messenger *m = k->m;
	struct lane *lane = k->lane;
	struct message_hello more;
	bool speaks = messenger_speaks(m, &k->header), bad = !speaks || length < sizeof(more);

	pthread_mutex_lock(&m->lock);
	if (!bad && lane->life == k->life && lane->conn) {
		memcpy(&more, data, sizeof(more));
		bad = lane->hello_received ||
		      !model_greets(lane, data + sizeof(more), length - sizeof(more));
		if (!bad) {
			lane->hello_received = true;
			lane->key = more.key;
			peer_hello(lane, k->header.id, MESSAGE_HELLO_RECEIVERS(k->header.status));
			peer_lane_open(lane);
			if (m->model)
				lane_answer(lane, true);
		}
	} else if (!speaks && m->model && lane->life == k->life && lane->conn &&
		   !lane->hello_received) {
		lane_answer(lane, false);
	}
	pthread_mutex_unlock(&m->lock);
	if (bad)
		malformed(k, speaks ? -EPROTO : -EPROTONOSUPPORT);
}

static void
take_fragment(struct handler_thread *k, const uint8_t *data, uint32_t length)
{
	struct lane *lane = k->lane;
	int rc = fragment_take(k, data, length);

	if (rc == 1) {
		dispatch_to(k, hold_whole(k));
		if (k->lane == lane)
			assembly_done(lane);
	} else if (rc == -EPROTO) {
		malformed(k, -EPROTO);
	} else if (rc && rc != -EAGAIN) {
		lane_ended(k->lane, k->life, rc);
	}
}

/* Anything but a plain message that is whole. */
static __attribute__((noinline)) void
handle_other(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct message_header *h = &k->header;
	uint32_t head = message_header_read(h, k->taken.data, k->taken.length);

	k->message = (struct weir_message){.data = k->taken.data + head,
					   .length = k->taken.length - head,
					   .node = k->lane->peer->node,
					   .type = h->type};
	switch (head ? h->kind : 0) {
	case KIND_REQUEST:
		k->message.flags = WEIR_MESSAGE_REQUEST;
		k->message.reply =
		    (struct weir_reply){{(uint64_t)(uintptr_t)k->lane, k->life, h->id}};
		dispatch(k);
		break;
	case KIND_FRAGMENT:
		take_fragment(k, k->taken.data + head, k->taken.length - head);
		break;
	case KIND_HELLO:
		hello(k, k->taken.data + head, k->taken.length - head);
		break;
	case KIND_BYE:
		pthread_mutex_lock(&m->lock);
		if (k->lane->life == k->life && k->lane->conn)
			peer_bye_for(m, k->lane->peer, k->header.id);
		pthread_mutex_unlock(&m->lock);
		break;
	default:
		malformed(k, -EPROTO);
	}
}

void
message_handle(struct handler_thread *k)
{
	const uint8_t *data = k->taken.data;
	uint32_t length = k->taken.length;
	uint16_t type;

	if (weir_unlikely(!message_header_plain(data, length, &type))) {
		if (length < HEADER_SHORT || data[0] < KIND_MODEL)
			handle_other(k);
		else if (!model_take(k))
			malformed(k, -EPROTO);
		return;
	}
	k->header.kind = KIND_MESSAGE;
	k->message = (struct weir_message){.data = data + HEADER_SHORT,
					   .length = length - HEADER_SHORT,
					   .node = k->lane->peer->node,
					   .type = type};
	dispatch(k);
}

void
message_bare(struct handler_thread *k)
{
	k->lane->bare = 0;
	if (!model_take_bare(k))
		malformed(k, -EPROTO);
}

unsigned
messages_admitted(struct handler_thread *k)
{
	unsigned n = 0;
	struct held *e;

	while (n < ADMITTED_MAX && (e = room_next(k->m))) {
		n++;
		if (!message_resume(k, e))
			take_fragment(k, k->taken.data + HEADER_LONG,
				      k->taken.length - HEADER_LONG);
		if (k->lane)
			message_finish(k);
	}
	return n;
}

void
message_broken(struct handler_thread *k, uint16_t node, const struct assembly *a)
{
	uint16_t type = a->fragments.header.type;
	const struct weir_handler *h = handler_hold(k, type);
	struct weir_message message = {.data = a->data,
				       .length = a->fragments.total,
				       .node = node,
				       .type = type,
				       .flags = WEIR_MESSAGE_BROKEN};

	if (h && h == a->handler)
		h->handle(k->m, &message, h->user);
	handler_release(k);
}
