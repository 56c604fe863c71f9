/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The session socket, or what a test or the simulator puts in its place. request(): one round trip;
 * 0 and *reply (checked by the caller, WEIR_MSG_REFUSED included), descriptors in fds are the
 * caller's (-1: none); or -ENODEV, -ETIMEDOUT. fd: hangs up when the data plane goes; -1: there is
 * none, no watcher runs, weir_lost() says so instead. reopen(): makes another one, to the data
 * plane that has come back; NULL: that can't be.
 */
#ifndef WEIR_CLIENT_TRANSPORT_H
#define WEIR_CLIENT_TRANSPORT_H

#include "public.h"

#include "ipc/session_msg.h"

struct weir_transport {
	int (*request)(void *user, const struct weir_session_msg *request,
		       struct weir_session_msg *reply, int fds[WEIR_SESSION_FDS]);
	void (*close)(void *user);
	/* Another one, to the data plane that has come back; NULL: that can't be. 0 or -errno. */
	int (*reopen)(void *user, const char *instance, struct weir_transport *transport);
	void *user;
	int fd;
};

/* weir_attach() over a given transport, which belongs to the handle from success on. */
int weir_attach_with(const struct weir_options *options, const struct weir_transport *transport,
		     struct weir **handle);
/* Connects the session socket of an instance. 0 or -errno. */
int weir_socket_open(const char *instance, struct weir_transport *transport);

#endif
