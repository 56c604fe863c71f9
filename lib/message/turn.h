/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns of the threads that take messages. */
#ifndef WEIR_MESSAGE_TURN_H
#define WEIR_MESSAGE_TURN_H

#include <stdbool.h>

struct handler_thread;

#define BATCH 64u /* messages between looks at everything else */

/* One turn, with at most `most` messages. *stepping: a connection is closing. How much was done. */
unsigned handler_turn(struct handler_thread *k, unsigned most, bool *stepping);
/* The same of a guest, which takes no part in the work of the handler threads. */
unsigned guest_turn(struct handler_thread *k, unsigned most);
/* The worker, and its descriptor, may be replaced meanwhile: not under leaf. */
void handler_wake(struct handler_thread *k);

#endif
