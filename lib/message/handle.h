/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of the program, and the message that a handler thread has in hand. */
#ifndef WEIR_MESSAGE_HANDLE_H
#define WEIR_MESSAGE_HANDLE_H

#include "pool.h"

#include <stdbool.h>

struct handler {
	struct weir_handler h;
	struct handler *retired; /* unregistered ones, kept until the messenger closes */
};

/* Handles the message that k has in hand. Nothing locked. */
void message_handle(struct handler_thread *k);
/* The same without a head. */
void message_bare(struct handler_thread *k);
/* Releases it. Worker not locked. */
void message_finish(struct handler_thread *k);
/* Tells a handler that a message broke off. In the handler thread, or after its end. */
void message_broken(struct handler_thread *k, uint16_t node, const struct assembly *a);

/* The type's handler, which stays until handler_release(); NULL: there is none. */
static inline const struct weir_handler *
handler_hold(struct handler_thread *k, uint16_t type)
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
handler_release(struct handler_thread *k)
{
	/* pairs with the acquire in weir_message_unregister() */
	atomic_store_explicit(&k->type, 0, memory_order_release);
}

/* Moves the message in hand to *e, where it waits. m->leaf. */
void message_hold(struct handler_thread *k, struct held *e);
/* Moves a message that waited to k's hand. True: its lane is about to close. */
bool message_resume(struct handler_thread *k, const struct held *e);
/* The lane's place for a message that waits; NULL: no memory. In the thread of lane->running. */
struct held *lane_held(struct lane *lane);
/* Handles messages that waited for memory and have it. How many. */
unsigned messages_admitted(struct handler_thread *k);
void handlers_free(struct weir_messenger *m);

#endif
