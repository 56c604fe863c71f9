/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A SOCK_SEQPACKET socket of the run directory and its clients: session.sock and control.sock.
 * Messages, and limits on clients, are the owner's.
 */
#ifndef WEIR_BROKER_UNIX_SOCKET_H
#define WEIR_BROKER_UNIX_SOCKET_H

#include "broker.h"
#include "watch.h"

#include <sys/queue.h>

struct unix_listener;

struct unix_client {
	struct broker_watch watch; /* first */
	struct unix_listener *listener;
	LIST_ENTRY(unix_client) entry;
	uint64_t deadline; /* ns: closed then; UINT64_MAX: never */
	bool over;	   /* closed when its socket is handled next */
};

struct unix_listener {
	struct broker_watch watch; /* first; its function calls unix_accept() */
	struct broker *b;
	const char *name;				    /* of the file */
	void (*close)(struct unix_client *c, bool expired); /* calls unix_client_remove() */
	LIST_HEAD(unix_client_list, unix_client) clients;   /* newest first */
	uint32_t count;					    /* clients */
	uint64_t paused_until; /* ns: accepts no client before; 0: not paused */
};

/*
 * Makes the socket and watches it. The caller has set watch.ready, b, name and close. 0, or -errno,
 * logged.
 */
int unix_listen(struct unix_listener *l, unsigned mode, const char *user, const char *group);
/* Closes all clients and the socket, and removes its file. */
void unix_listener_close(struct unix_listener *l);
/* Accepts a connection, or returns -1. Out of descriptors or memory, the listener pauses. */
int unix_accept(struct unix_listener *l);
/* Leaves connections in the kernel's queue until then. */
void unix_accept_pause(struct unix_listener *l, uint64_t until);
/* Ends the pause if it is time, and closes expired clients. Returns the next deadline. */
uint64_t unix_listener_timers(struct unix_listener *l, uint64_t now);

/* Watches a client whose watch and deadline are set. 0 or -errno. */
int unix_client_add(struct unix_listener *l, struct unix_client *c);
/* The opposite. The socket stays open. */
void unix_client_remove(struct unix_client *c);
/* Ends the connection; the client is closed later, since a caller may be using it. */
void unix_client_end(struct unix_client *c);
/* Sends a message with at most WEIR_SESSION_FDS descriptors, without waiting. 0 or -errno. */
int unix_send(int fd, const void *message, size_t length, const int *fds, unsigned fd_count);
/*
 * Receives a message without waiting: its bytes, 0 at the end, or -errno. *passed is the descriptor
 * that came with it, or -1; passed NULL: takes none.
 */
ssize_t unix_receive(int fd, void *room, size_t size, int *passed);

#endif
