/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers: registered by type, called by handler threads; the exclusive ones one at a time. */
#include "handle.h"
#include "lane.h"
#include "peer.h"
#include "pool.h"
#include "room.h"

#include "client/membarrier.h"
#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define ADMITTED_MAX 64u /* between looks at the rings */

/* ---- registration ---- */

int
weir_message_register(struct weir_messenger *m, uint16_t type, const struct weir_handler *h)
{
	struct handler *n;
	int rc = 0;

	if (!h || !h->handle || h->flags & ~(WEIR_HANDLER_EXCLUSIVE | WEIR_HANDLER_UNORDERED))
		return weir_fail(-EINVAL, "no handler, or an unknown flag; see weir/message.h");
	n = malloc(sizeof(*n));
	if (!n)
		return weir_fail(-ENOMEM, "no memory for a handler; free some");
	n->h = *h;
	pthread_mutex_lock(&m->leaf);
	if (atomic_load_explicit(&m->handlers[type], memory_order_relaxed))
		rc = -EEXIST;
	else /* pairs with the acquire in dispatch() */
		atomic_store_explicit(&m->handlers[type], n, memory_order_release);
	pthread_mutex_unlock(&m->leaf);
	if (!rc)
		return 0;
	free(n);
	return weir_fail(rc, "type %u.%u has a handler already; unregister that first", type >> 8,
			 type & 0xff);
}

/* Whether a handler thread other than the caller runs the type's handler. */
static bool
is_running(const struct weir_messenger *m, uint16_t type)
{
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (atomic_load_explicit(&m->pool[i].type, memory_order_acquire) == type + 1u &&
		    !pthread_equal(m->pool[i].thread, pthread_self()))
			return true;
	return false;
}

int
weir_message_unregister(struct weir_messenger *m, uint16_t type, int timeout_ms)
{
	struct weir_wait wait;
	struct handler *h;
	int rc = 0;

	pthread_mutex_lock(&m->leaf);
	h = atomic_load_explicit(&m->handlers[type], memory_order_relaxed);
	atomic_store_explicit(&m->handlers[type], NULL, memory_order_relaxed);
	if (h) { /* it may be about to be called */
		h->retired = m->retired;
		m->retired = h;
	}
	pthread_mutex_unlock(&m->leaf);
	if (!h)
		return weir_fail(-ENOENT, "type %u.%u has no handler; nothing is to be done",
				 type >> 8, type & 0xff);
	/* pairs with the fence in dispatch() */
	if (m->fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		weir_barrier_threads();
	weir_wait_init(&wait, m->pool[0].worker, timeout_ms);
	wait.nap_always = true;
	while (!rc && is_running(m, type))
		rc = weir_wait_next(&wait);
	weir_wait_end(&wait);
	return rc;
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

/* ---- exclusive ones ---- */

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

	k->lane = e->lane;
	k->life = e->life;
	k->taken = e->taken;
	k->header = e->header;
	k->message = e->message;
	weir_lock(k->lane->worker);
	k->lane->running = k;
	ends = k->lane->doomed;
	weir_unlock(k->lane->worker);
	return ends;
}

/* False: another has the turn; the message waits for it, and its lane for the message. */
static bool
exclusive_enter(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct held *e = lane_held(k->lane);
	bool mine;

	pthread_mutex_lock(&m->leaf);
	while (m->exclusive_taken && !e) { /* no memory to put it by: the thread waits */
		pthread_mutex_unlock(&m->leaf);
		sched_yield();
		pthread_mutex_lock(&m->leaf);
	}
	mine = !m->exclusive_taken;
	if (mine) {
		m->exclusive_taken = true;
	} else {
		message_hold(k, e);
		TAILQ_INSERT_TAIL(&m->exclusive, e, next);
	}
	pthread_mutex_unlock(&m->leaf);
	return mine;
}

/* The next one that waits comes into the handler thread's hand. False: none does. */
static bool
exclusive_next(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct held *e;

	pthread_mutex_lock(&m->leaf);
	e = TAILQ_FIRST(&m->exclusive);
	if (e)
		TAILQ_REMOVE(&m->exclusive, e, next);
	else
		m->exclusive_taken = false;
	pthread_mutex_unlock(&m->leaf);
	if (e)
		message_resume(k, e);
	return e;
}

/* ---- one message ---- */

/* The lane's next message need not wait. */
static void
let_go(struct handler_thread *k)
{
	struct lane *lane = k->lane;

	weir_lock(lane->worker);
	if (lane->running == k) {
		lane->running = NULL;
		lane_resume(lane);
	}
	weir_unlock(lane->worker);
}

static inline void
call(struct handler_thread *k, const struct weir_handler *h)
{
	if (weir_unlikely(h->flags & WEIR_HANDLER_UNORDERED && k->header.kind != KIND_PIECE))
		let_go(k);
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

/* As handler_hold(). */
static inline const struct weir_handler *
hold(struct handler_thread *k, uint16_t type)
{
	const struct handler *h;

	atomic_store_explicit(&k->type, type + 1u, memory_order_relaxed);
	/* pairs with the fence in weir_message_unregister() */
	if (weir_unlikely(k->m->fence))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	/* pairs with the release in weir_message_register() */
	h = atomic_load_explicit(&k->m->handlers[type], memory_order_acquire);
	return h ? &h->h : NULL;
}

static inline void
release(struct handler_thread *k)
{
	/* pairs with the acquire in is_running() */
	atomic_store_explicit(&k->type, 0, memory_order_release);
}

const struct weir_handler *
handler_hold(struct handler_thread *k, uint16_t type)
{
	return hold(k, type);
}

void
handler_release(struct handler_thread *k)
{
	release(k);
}

/* The handler of the message in hand; of one that came in pieces only who was asked for its memory.
 */
static const struct weir_handler *
hold_whole(struct handler_thread *k)
{
	const struct weir_handler *h = hold(k, k->message.type);

	return k->header.kind != KIND_PIECE || h == k->lane->in.handler ? h : NULL;
}

static void
put_down(struct handler_thread *k)
{
	release(k);
	if (k->header.kind == KIND_PIECE)
		assembly_done(k->lane);
	message_finish(k);
}

static void
dispatch_exclusive(struct handler_thread *k, const struct weir_handler *h)
{
	if (!exclusive_enter(k))
		return;
	call(k, h);
	put_down(k);
	while (exclusive_next(k)) {
		h = hold_whole(k);
		if (h)
			call(k, h);
		else
			unknown(k);
		put_down(k);
	}
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
	release(k);
}

static inline void
dispatch(struct handler_thread *k)
{
	dispatch_to(k, hold(k, k->message.type));
}

static void
dispatch_whole(struct handler_thread *k)
{
	struct lane *lane = k->lane;

	dispatch_to(k, hold_whole(k));
	if (k->lane == lane)
		assembly_done(lane);
}

static void
malformed(struct handler_thread *k)
{
	count(&k->malformed);
	lane_ended(k->lane, k->life, -EPROTO);
}

static void
hello(struct handler_thread *k, const uint8_t *data, uint32_t length)
{
	struct weir_messenger *m = k->m;
	struct lane *lane = k->lane;
	struct message_hello more;
	bool bad = k->header.type != MESSAGE_VERSION || length != sizeof(more);

	pthread_mutex_lock(&m->lock);
	if (!bad && lane->life == k->life && lane->conn) {
		bad = lane->greeted;
		memcpy(&more, data, sizeof(more));
	}
	if (!bad && lane->life == k->life && lane->conn) {
		lane->greeted = true;
		lane->key = more.key;
		peer_hello(lane, k->header.id, k->header.status);
		peer_lane_open(lane);
	}
	pthread_mutex_unlock(&m->lock);
	if (bad)
		malformed(k);
}

static void
bye(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;

	pthread_mutex_lock(&m->lock);
	if (k->lane->life == k->life && k->lane->conn)
		peer_bye_for(m, k->lane->peer, k->header.id);
	pthread_mutex_unlock(&m->lock);
}

static void
pieces(struct handler_thread *k, const uint8_t *data, uint32_t length)
{
	int rc = piece_take(k, data, length);

	if (rc == 1)
		dispatch_whole(k);
	else if (rc == -EPROTO)
		malformed(k);
	else if (rc && rc != -EAGAIN)
		lane_ended(k->lane, k->life, rc);
}

/* Anything but a plain message that is whole. */
static __attribute__((noinline)) void
handle_other(struct handler_thread *k)
{
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
	case KIND_PIECE:
		pieces(k, k->taken.data + head, k->taken.length - head);
		break;
	case KIND_HELLO:
		hello(k, k->taken.data + head, k->taken.length - head);
		break;
	case KIND_BYE:
		bye(k);
		break;
	default:
		malformed(k);
	}
}

void
message_handle(struct handler_thread *k)
{
	const uint8_t *data = k->taken.data;
	uint32_t length = k->taken.length;
	uint16_t type;

	if (weir_unlikely(!message_header_plain(data, length, &type))) {
		handle_other(k);
		return;
	}
	k->header.kind = KIND_MESSAGE;
	k->message = (struct weir_message){.data = data + HEADER_SHORT,
					   .length = length - HEADER_SHORT,
					   .node = k->lane->peer->node,
					   .type = type};
	dispatch(k);
}

unsigned
messages_admitted(struct handler_thread *k)
{
	unsigned n = 0;
	struct held *e;

	while (n < ADMITTED_MAX && (e = room_next(k->m))) {
		n++;
		if (!message_resume(k, e))
			pieces(k, k->taken.data + HEADER_LONG, k->taken.length - HEADER_LONG);
		if (k->lane)
			message_finish(k);
	}
	return n;
}

void
message_broken(struct handler_thread *k, uint16_t node, const struct assembly *a)
{
	uint16_t type = a->pieces.header.type;
	const struct weir_handler *h = hold(k, type);
	struct weir_message message = {.data = a->data,
				       .length = a->pieces.total,
				       .node = node,
				       .type = type,
				       .flags = WEIR_MESSAGE_BROKEN};

	if (h && h == a->handler)
		h->handle(k->m, &message, h->user);
	release(k);
}
