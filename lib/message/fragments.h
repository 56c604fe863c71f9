/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages in fragments. */
#ifndef WEIR_MESSAGE_FRAGMENTS_H
#define WEIR_MESSAGE_FRAGMENTS_H

#include "header.h"
#include "public.h"

#include <sys/uio.h>

struct lane;
struct handler_thread;

/* A message that arrives in fragments. */
struct assembly {
	struct message_fragments fragments;
	uint8_t *data; /* NULL: the fragments are dropped */
	/* bytes allocated at data, and its part of m->room_used. 0: place() gave the memory */
	uint64_t allocated, reserved;
	uint64_t deadline;		    /* ns; later, messages that wait get its memory */
	bool revoked;			    /* they got it: no more fragments may arrive */
	const struct weir_handler *handler; /* registered when the first fragment came */
};

/* Parts of a message that are not in a fragment yet. */
struct cut {
	const struct iovec *iov;
	unsigned n;
	size_t at; /* in *iov */
};

/* The next fragment: fills parts[], at most WEIR_MESSAGE_PARTS, with *bytes bytes in total. How
 * many parts. */
unsigned fragments_cut(struct cut *cut, struct iovec *parts, size_t *bytes);

/* Sends a message longer than WEIR_MESSAGE_WHOLE. */
int fragments_send(struct lane *lane, const struct message_header *whole, const struct iovec *iov,
		   unsigned n, uint64_t total, const uint64_t *cookie, int timeout_ms);
/* Bytes to allocate for a message of `total` once `got` have arrived: an announced length costs
 * nothing. */
uint64_t fragments_memory(uint64_t got, uint64_t total);
/* Takes the fragment that k has in hand. 1: k has the whole message now; 0; -EAGAIN: the fragment
 * waits for memory, k has nothing in hand; else the status with which the lane has to end. */
int fragment_take(struct handler_thread *k, const uint8_t *data, uint32_t length);
/* Frees the message under way; the program is told if it gave the memory. m->lock. */
void assembly_drop(struct lane *lane);
/* Frees a message that is whole and was handled. */
void assembly_done(struct lane *lane);

/* Takes memory from messages past their deadline for those that wait. m->lock. */
void assemblies_reclaim(struct weir_messenger *m);

#endif
