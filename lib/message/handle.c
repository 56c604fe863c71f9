/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers: registered by type, called by workers; the exclusive ones one at a time. */
#include "message/internal.h"

#include "client/barrier.h"

#include <sched.h>
#include <stdlib.h>

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

/* Whether a worker other than the caller runs the type's handler. */
static bool
is_running(const struct weir_messenger *m, uint16_t type)
{
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (atomic_load_explicit(&m->workers[i].type, memory_order_acquire) == type + 1u &&
		    !pthread_equal(m->workers[i].thread, pthread_self()))
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
	weir_wait_init(&wait, m->workers[0].home, timeout_ms);
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

/* False: another has the turn; the message waits for it, and its lane for the message. */
static bool
exclusive_enter(struct worker *k)
{
	struct weir_messenger *m = k->m;
	struct lane *lane = k->lane;
	struct exclusive *e = lane->held;
	bool mine;

	if (!e)
		e = lane->held = malloc(sizeof(*e));
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
		*e = (struct exclusive){.lane = lane,
					.life = k->life,
					.taken = k->taken,
					.header = k->header,
					.message = k->message};
		if (k->taken.data == k->buffer) {
			memcpy(e->bytes, k->buffer, k->taken.length);
			e->taken.data = e->bytes;
			if (k->message.data >= (void *)k->buffer &&
			    k->message.data < (void *)(k->buffer + sizeof(k->buffer)))
				e->message.data =
				    e->bytes + ((const uint8_t *)k->message.data - k->buffer);
		}
		*m->exclusive_end = e;
		m->exclusive_end = &e->next;
		k->lane = NULL;
	}
	pthread_mutex_unlock(&m->leaf);
	return mine;
}

/* The next one that waits comes into the worker's hand. False: none does. */
static bool
exclusive_next(struct worker *k)
{
	struct weir_messenger *m = k->m;
	struct exclusive *e;

	pthread_mutex_lock(&m->leaf);
	e = m->exclusive;
	if (e) {
		m->exclusive = e->next;
		if (!e->next)
			m->exclusive_end = &m->exclusive;
	} else {
		m->exclusive_taken = false;
	}
	pthread_mutex_unlock(&m->leaf);
	if (!e)
		return false;
	k->lane = e->lane;
	k->life = e->life;
	k->taken = e->taken;
	k->header = e->header;
	k->message = e->message;
	weir_lock(k->lane->home);
	k->lane->running = k;
	weir_unlock(k->lane->home);
	return true;
}

/* ---- one message ---- */

/* The lane's next message need not wait. */
static void
let_go(struct worker *k)
{
	struct lane *lane = k->lane;

	weir_lock(lane->home);
	if (lane->running == k) {
		lane->running = NULL;
		lane_resume(lane);
	}
	weir_unlock(lane->home);
}

static inline void
call(struct worker *k, const struct weir_handler *h)
{
	if (weir_unlikely(h->flags & WEIR_HANDLER_UNORDERED && k->header.kind != KIND_PIECE))
		let_go(k);
	h->handle(k->m, &k->message, h->user);
	count(&k->handled);
}

static void
unknown(struct worker *k)
{
	count(&k->unknown);
	if (k->message.flags & WEIR_MESSAGE_REQUEST)
		weir_message_refuse(k->m, &k->message.reply, ENOMSG);
}

/* The type's handler, which stays until call_done(); NULL: there is none. */
static inline const struct weir_handler *
call_begin(struct worker *k)
{
	const struct handler *h;

	atomic_store_explicit(&k->type, k->message.type + 1u, memory_order_relaxed);
	/* pairs with the fence in weir_message_unregister() */
	if (weir_unlikely(k->m->fence))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	/* pairs with the release in weir_message_register() */
	h = atomic_load_explicit(&k->m->handlers[k->message.type], memory_order_acquire);
	return h ? &h->h : NULL;
}

static inline void
call_end(struct worker *k)
{
	/* pairs with the acquire in is_running() */
	atomic_store_explicit(&k->type, 0, memory_order_release);
}

static void
put_down(struct worker *k)
{
	call_end(k);
	if (k->header.kind == KIND_PIECE)
		assembly_done(k->lane);
	message_finish(k);
}

static void
dispatch_exclusive(struct worker *k, const struct weir_handler *h)
{
	if (!exclusive_enter(k))
		return;
	call(k, h);
	put_down(k);
	while (exclusive_next(k)) {
		h = call_begin(k);
		if (h)
			call(k, h);
		else
			unknown(k);
		put_down(k);
	}
}

static inline void
dispatch(struct worker *k)
{
	const struct weir_handler *h = call_begin(k);

	if (weir_unlikely(!h))
		unknown(k);
	else if (weir_unlikely(h->flags & WEIR_HANDLER_EXCLUSIVE))
		dispatch_exclusive(k, h);
	else
		call(k, h);
	call_end(k);
}

static void
dispatch_whole(struct worker *k)
{
	struct lane *lane = k->lane;

	dispatch(k);
	if (k->lane == lane)
		assembly_done(lane);
}

static void
hello(struct worker *k)
{
	struct weir_messenger *m = k->m;
	struct lane *lane = k->lane;

	pthread_mutex_lock(&m->lock);
	if (lane->life == k->life && lane->conn) {
		peer_hello(lane, k->header.id, k->header.status);
		peer_lane_open(lane);
	}
	pthread_mutex_unlock(&m->lock);
}

static void
bye(struct worker *k)
{
	struct weir_messenger *m = k->m;

	pthread_mutex_lock(&m->lock);
	if (k->lane->life == k->life && k->lane->conn)
		peer_bye(m, k->lane->peer);
	pthread_mutex_unlock(&m->lock);
}

static void
malformed(struct worker *k)
{
	count(&k->malformed);
	lane_ended(k->lane, k->life, -EPROTO);
}

/* Anything but a plain message that is whole. */
static __attribute__((noinline)) void
handle_other(struct worker *k)
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
		switch (piece_take(k, k->taken.data + head, k->taken.length - head)) {
		case 0:
			break;
		case 1:
			dispatch_whole(k);
			break;
		default:
			malformed(k);
		}
		break;
	case KIND_HELLO:
		hello(k);
		break;
	case KIND_BYE:
		bye(k);
		break;
	default:
		malformed(k);
	}
}

void
message_handle(struct worker *k)
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

void
message_broken(struct weir_messenger *m, const struct event *e)
{
	const struct handler *h =
	    atomic_load_explicit(&m->handlers[e->broken.header.type], memory_order_acquire);
	struct weir_message message = {.data = e->broken.data,
				       .length = e->broken.total,
				       .node = e->node,
				       .type = e->broken.header.type,
				       .flags = WEIR_MESSAGE_BROKEN};

	if (h)
		h->h.handle(m, &message, h->h.user);
}
