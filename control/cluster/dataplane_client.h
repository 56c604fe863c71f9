/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our data plane, behind control.sock. Connects again and again until it is there; tells when it
 * comes, speaks and dies.
 */
#ifndef WEIR_CONTROL_DP_H
#define WEIR_CONTROL_DP_H

#include "base/log_once.h"
#include "transport/message.h"

#define DP_RETRY_MS 200u

struct dp;
struct event_base;

struct dp_handler {
	/* The view changed: up after its HELLO, down when nobody is behind the socket. */
	void (*changed)(void *user, const struct dp_view *view);
	/* Its programs' public services are others: dp_services(), and their digest in the view. */
	void (*services)(void *user);
	/* A checked message: LINK, LINK_DOWN or RESYNC. */
	void (*message)(void *user, const struct weir_ctl_msg *m);
};

/*
 * Tries at once, so that the view is known before any peer asks. `hello` is what we say (role,
 * node, cluster, pid are filled in). NULL and errno.
 */
struct dp *dp_create(struct event_base *base, const char *socket_path,
		     const struct weir_ctl_msg *hello, const struct dp_handler *handler,
		     void *user);
/* Closes the connection; the data plane goes on. NULL is allowed. */
void dp_destroy(struct dp *dp);
const struct dp_view *dp_view(const struct dp *dp);
/* Its node id as it said at HELLO; UINT32_MAX: it knows none. */
uint32_t dp_node(const struct dp *dp);
/* Public services of its programs, as it told last. */
const struct weir_services *dp_services(const struct dp *dp);
/* Sets a line of `weirctl show status`, told to each data plane that comes; "": none. Names and
 * values are cut at the length of their members. */
void dp_fact(struct dp *dp, const char *name, const char *value);
/* Queues a message; m->length is set here. Dropped while the data plane is not up. */
void dp_send(struct dp *dp, struct weir_ctl_msg *m);

#endif
