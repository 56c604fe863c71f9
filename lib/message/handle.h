/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of the program, and the message that a handler thread has in hand. */
#ifndef WEIR_MESSAGE_HANDLE_H
#define WEIR_MESSAGE_HANDLE_H

#include "public.h"

#include <stdbool.h>

struct assembly;
struct held;
struct lane;
struct handler_thread;

struct handler {
	struct weir_handler h;
	struct handler *retired; /* unregistered, kept until the messenger closes */
};

/* Deals with the message in the handler thread's hand. Nothing locked. */
void message_handle(struct handler_thread *k);
/* Puts it down. Worker not locked. */
void message_finish(struct handler_thread *k);
/* Tells a handler that a message broke off. In the handler thread, or when that has ended. */
void message_broken(struct handler_thread *k, uint16_t node, const struct assembly *a);
/* The type's handler, which stays until handler_release(); NULL: there is none. */
const struct weir_handler *handler_hold(struct handler_thread *k, uint16_t type);
void handler_release(struct handler_thread *k);
/* The message leaves the handler thread's hand to wait. m->leaf. */
void message_hold(struct handler_thread *k, struct held *e);
/* And comes into one's hand. True: its lane is about to close. */
bool message_resume(struct handler_thread *k, const struct held *e);
/* The lane's place for one that waits; NULL: no memory. By who has `running`. */
struct held *lane_held(struct lane *lane);
/* Goes on with those that waited for memory and have it. How many. */
unsigned messages_admitted(struct handler_thread *k);
void handlers_free(struct weir_messenger *m);

#endif
