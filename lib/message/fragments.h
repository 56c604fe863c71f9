/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that go, and come, in pieces. */
#ifndef WEIR_MESSAGE_FRAGMENTS_H
#define WEIR_MESSAGE_FRAGMENTS_H

#include "header.h"
#include "public.h"

#include <sys/uio.h>

struct lane;
struct handler_thread;

/* A message that arrives in pieces. */
struct assembly {
	struct message_pieces pieces;
	uint8_t *data; /* NULL: the pieces are dropped */
	/* data is the library's: bytes allocated, and bytes of m->room_used that are its. 0:
	 * place() gave it */
	uint64_t allocated, reserved;
	uint64_t deadline; /* ns; later than this it gives its room to messages that wait */
	bool revoked;	   /* it did: no more of it may arrive */
	const struct weir_handler *handler; /* registered when the first piece came */
};

/* Sends what is longer than WEIR_MESSAGE_WHOLE. */
int pieces_send(struct lane *lane, const struct message_header *h, const struct iovec *iov,
		unsigned n, uint64_t total, int timeout_ms);
/* The handler thread has a piece in hand. 1: now it has the whole message; 0; -EAGAIN: it waits for
 * memory and has left the handler thread's hand; how its lane has to end. */
int piece_take(struct handler_thread *k, const uint8_t *data, uint32_t length);
/* Forgets what is under way; the program is told if it gave the memory. m->lock. */
void assembly_drop(struct lane *lane);
/* Ends one that is whole and was handled. */
void assembly_done(struct lane *lane);

/* Messages that should be whole by now give their memory to those that wait for it. m->lock. */
void assemblies_press(struct weir_messenger *m);

#endif
