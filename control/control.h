/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running process: one event loop, one thread. control.c starts it, keeps time and speaks with
 * the data plane; member.c speaks with the other nodes' controls; door.c lets them in.
 */
#ifndef WEIR_CONTROL_CONTROL_H
#define WEIR_CONTROL_CONTROL_H

#include "conn.h"
#include "dp.h"
#include "log.h"
#include "offers.h"
#include "options.h"
#include "peer.h"
#include "peers.h"
#include "stream_tls.h"

#include <sys/socket.h>

#define CONTROL_TICK_MS 50u
#define CONTROL_SIGNALS 3     /* that stop, and SIGHUP */
#define CONTROL_STRANGERS 32u /* accepted connections whose handshake isn't done */

/* Another node. */
struct member {
	struct control *control;
	const struct peer_entry *entry;
	struct peer peer;
	struct offers offers; /* of our data plane to it */
	struct conn *conn;    /* NULL: none; dialled, or joined */
	struct sockaddr_storage address;
	socklen_t address_length;
	struct log_memory trouble;
	struct log_meter meter;
};

struct control {
	const struct control_options *options;
	const struct control_transport *transport;
	struct stream_tls *tls; /* NULL: plain TCP */
	const struct peers *peers;
	const struct peer_entry *self;
	struct member *members; /* peers->count - 1 of them */
	uint32_t member_count;
	struct event_base *base;
	struct dp *dp;
	struct log_memory dp_trouble;
	struct event *tick;
	struct event *signal[CONTROL_SIGNALS];
	/* the door */
	struct evconnlistener *listener;
	struct conn *strangers; /* oldest first */
	uint32_t stranger_count;
	uint32_t accepted;     /* in this tick */
	uint64_t closed_until; /* ms: after accept() failed; 0 = open */
	struct log_memory stranger_trouble;
};

/*
 * Runs until SIGTERM or SIGINT; SIGHUP has certificates read again. Returns the exit code; what
 * went wrong has been logged. `socket_path`: the data plane's control.sock.
 */
int control_run(const struct control_options *options, const struct peers *peers,
		const char *socket_path);

uint64_t control_now(void); /* monotonic ms */
struct member *control_member(struct control *c, uint32_t id);

/* ---- door.c ---- */
int door_open(struct control *c, const struct sockaddr *address, socklen_t length);
void door_tick(struct control *c, uint64_t now);
void door_close(struct control *c);
/* A stranger has become a member, or is about to be freed. */
void door_forget(struct control *c, struct conn *conn);

/* ---- member.c ---- */
extern const struct conn_handler member_handler;
void member_init(struct member *m, struct control *c, const struct peer_entry *entry, uint64_t now);
void member_fini(struct member *m);
/* Feeds an event and does what follows from it. */
void member_step(struct member *m, enum peer_event event, const struct dp_view *view);
void member_tick(struct member *m, uint64_t now);
/* Tells our data plane what the node's state is. */
void member_tell(struct member *m);
/* Our data plane's view changed: tells this node's control. */
void member_view(struct member *m, const struct dp_view *view);
/* Messages of our data plane for this node. */
void member_offer(struct member *m, const struct weir_link_offer *link);
void member_resync(struct member *m, const struct weir_ctl_msg *msg);
void member_link_down(struct member *m, const struct weir_ctl_msg *msg);

#endif
