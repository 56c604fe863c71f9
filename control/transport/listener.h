/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A TCP port of control's. Connections beyond its rate of accepting wait in the backlog; without
 * descriptors or memory it logs that and tries again each second, without spinning.
 */
#ifndef WEIR_CONTROL_LISTENER_H
#define WEIR_CONTROL_LISTENER_H

#include <sys/socket.h>

#define LISTENER_TICK_MS 50u
#define LISTENER_PAUSE_MS 1000u /* after accept() failed */

struct event_base;
struct listener;

struct listener_config {
	const char *option; /* that names the port, for the log */
	unsigned burst;	    /* accepted in a tick at most */
	/* Takes over fd. */
	void (*accepted)(void *user, int fd, struct sockaddr *address, int length);
	void *user;
};

/* 0 and *listener, or -errno. The option's text stays the caller's. */
int listener_open(struct event_base *base, const struct sockaddr *address, socklen_t length,
		  const struct listener_config *config, struct listener **listener);
/* NULL is allowed. */
void listener_close(struct listener *l);
int listener_fd(const struct listener *l);

#endif
