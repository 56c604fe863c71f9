/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frames between contexts of the protocol core in one process: their buffers, those under way,
 * those that have arrived at a port. Gives a struct roce_wire its alloc, drop and receive. The user
 * of a net sends: it decides where to, when and whether each frame arrives, and keeps the time
 * (event_queue.h).
 */
#ifndef TEST_FRAME_NET_H
#define TEST_FRAME_NET_H

#include "event_queue.h"

#include "nic/roce/roce.h"

#include <sys/queue.h>

struct frame_net;

struct frame {
	struct frame_net *net;
	uint32_t refs;
	uint32_t length; /* 0: not sent yet */
	uint64_t hash;	 /* strict: of its bytes when it was sent first */
	uint8_t data[ROCE_FRAME_MAX(4096)];
};

/* A frame on its way to a node, or at a port there. */
struct frame_delivery {
	STAILQ_ENTRY(frame_delivery) next;
	struct frame *frame;
	uint32_t from, to; /* nodes */
	uint64_t number;   /* of its user */
};

struct frame_list {
	STAILQ_HEAD(, frame_delivery) first;
	uint32_t count;
};

/* Of a context; the wire's user pointer points to it. */
struct frame_port {
	struct frame_net *net;
	uint32_t node, context;
	struct frame_list rx, handed; /* arrived; of other contexts' ports */
};

struct frame_net_ops {
	struct frame_port *(*port)(struct frame_net *n, uint32_t node, uint32_t context);
	/* Another context has put a frame into this port. May be NULL. */
	void (*handed)(struct frame_port *p);
	/* The core broke a rule of wires. Does not return. */
	void (*broken)(struct frame_net *n, const char *why);
};

struct frame_net {
	const struct frame_net_ops *ops;
	void *user;
	uint32_t port_room; /* frames in each list of a port */
	uint32_t burst;	    /* frames per call of frame_port_receive() */
	/* A frame that was sent never changes, and a receiver reads a copy of just its length, so
	 * that a sanitizer sees reads behind it. */
	bool strict;
	uint64_t live, limit; /* frames that somebody holds; at the limit allocation fails */
	uint64_t under_way;   /* deliveries, until they are received */
};

/* ---- parts of struct roce_wire; `user` is a struct frame_port ---- */
unsigned frame_port_alloc(void *user, void **frames, unsigned n);
void frame_port_drop(void *user, void *const *frames, unsigned n);
/* Up to `burst` frames out of the port's lists; those of another context go to its port. */
unsigned frame_port_receive(void *user, struct roce_context *ctx, uint64_t now);

/* ---- for the one that sends ---- */
void frame_mac(uint32_t node, uint8_t mac[6]);
/* By its MAC address, which may be of many nodes. */
bool frame_is_to(const struct frame *f, uint32_t node);
/* A frame that the core has not allocated. */
struct frame *frame_new(struct frame_net *n);
void frame_put(struct frame *f);
/* The core sends f, maybe again: checks that it is the same as then. */
void frame_sent(struct frame *f, uint32_t length);
/* f is under way, until frame_arrive() or frame_end(). */
struct frame_delivery *frame_launch(struct frame *f, uint32_t from, uint32_t to);
/* False: the port has no room, so the frame is lost. */
bool frame_arrive(struct frame_delivery *d, struct frame_port *p);
void frame_end(struct frame_delivery *d);

void frame_port_init(struct frame_port *p, struct frame_net *n, uint32_t node, uint32_t context);
/* Drops what has arrived. */
void frame_port_fini(struct frame_port *p);
/* Gives the core a frame at once. As roce_input(), or roce_input_handed(). */
int frame_input(struct roce_context *ctx, const struct frame *f, bool handed, uint64_t now);

#endif
