/* SPDX-License-Identifier: BSD-3-Clause */
/* The session socket, or a replacement by a test or the simulator. */
#ifndef WEIR_CLIENT_TRANSPORT_H
#define WEIR_CLIENT_TRANSPORT_H

#include "public.h"

#include "ipc/session_msg.h"

struct weir_transport {
	/*
	 * One round trip: 0 and *reply (checked by the caller, WEIR_MSG_REFUSED included), or
	 * -ENODEV, -ETIMEDOUT. Descriptors in fds belong to the caller (-1: none).
	 */
	int (*request)(void *user, const struct weir_session_msg *request,
		       struct weir_session_msg *reply, int fds[WEIR_SESSION_FDS]);
	void (*close)(void *user); /* NULL: closed */
	/* Opens a transport to the restarted data plane; NULL: not possible. 0 or -errno. */
	int (*reopen)(void *user, const char *instance, struct weir_transport *transport);
	void *user;
	int fd; /* hangs up when the data plane ends; -1: no watcher, weir_lost() is called instead
		 */
};

/* Closes a transport once: afterwards its descriptor number may be another file's. */
static inline void
weir_transport_end(struct weir_transport *t)
{
	if (t->close)
		t->close(t->user);
	t->close = NULL;
}

/* weir_attach() over a transport, which the handle owns on success. */
int weir_attach_with(const struct weir_options *options, const struct weir_transport *transport,
		     struct weir **handle);
/* Connects the session socket of an instance. 0 or -errno. */
int weir_socket_open(const char *instance, struct weir_transport *transport);

#endif
