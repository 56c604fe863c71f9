/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of the program, and the message that a handler thread has in hand. */
#ifndef WEIR_MESSAGE_HANDLE_H
#define WEIR_MESSAGE_HANDLE_H

#include "public.h"

#include <stdbool.h>

struct assembly;
struct held;
struct lane;
struct worker;

struct handler {
	struct weir_handler h;
	struct handler *retired; /* unregistered, kept until the messenger closes */
};

/* Deals with the message in the worker's hand. Nothing locked. */
void message_handle(struct worker *k);
/* Puts it down. Home not locked. */
void message_finish(struct worker *k);
/* Tells a handler that a message broke off. In the worker's thread, or when that has ended. */
void message_broken(struct worker *k, uint16_t node, const struct assembly *a);
/* The type's handler, which stays until handler_release(); NULL: there is none. */
const struct weir_handler *handler_hold(struct worker *k, uint16_t type);
void handler_release(struct worker *k);
/* The message leaves the worker's hand to wait. m->leaf. */
void message_hold(struct worker *k, struct held *e);
/* And comes into one's hand. True: its lane is about to close. */
bool message_resume(struct worker *k, const struct held *e);
/* The lane's place for one that waits; NULL: no memory. By who has `running`. */
struct held *lane_held(struct lane *lane);
/* Goes on with those that waited for memory and have it. How many. */
unsigned messages_admitted(struct worker *k);
void handlers_free(struct weir_messenger *m);

#endif
