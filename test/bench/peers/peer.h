/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One message layer under measurement: two processes, rank 0 and rank 1, and messages between them
 * out of and into ordinary buffers. peers.c runs the same work over each.
 */
#ifndef WEIR_PEER_H
#define WEIR_PEER_H

#include <stdbool.h>
#include <stddef.h>

#define PEER_SLOTS 64u /* messages under way per direction, at most */

struct peer {
	/* The processes are started by the layer's own launcher, not by fork(). */
	bool launched;
	/*
	 * Connects the two ranks. pipe: a stream socket to the other rank, for addresses; -1 if
	 * launched. nodes: as between two nodes, otherwise within a host. Returns the rank, or -1
	 * after an error was printed.
	 */
	int (*open)(int rank, int pipe, bool nodes);
	/* Starts a send; the buffer stays unchanged until sent(slot) has returned. */
	void (*send)(unsigned slot, const void *buf, size_t size);
	void (*sent)(unsigned slot);
	/* Provides a buffer for the next message; received(slot) waits until the message is in it.
	 */
	void (*recv)(unsigned slot, void *buf, size_t size);
	void (*received)(unsigned slot);
	void (*close)(void);
};

/* Defined by the layer that the program is linked with. */
extern const struct peer peer;

/* Prints "peer: WHAT" with an optional reason and ends the process with status 1. */
void peer_die(const char *what, const char *reason);

/* Sends own bytes over the pipe and receives as many from the other rank. */
void peer_exchange(int pipe, const void *own, void *other, size_t size);

#endif
