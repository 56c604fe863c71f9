/* SPDX-License-Identifier: BSD-3-Clause */
/* Control lines in the ring of a link: open, grant, reclaim, announce, close. */
#ifndef WEIR_ENGINE_CTRL_LINE_H
#define WEIR_ENGINE_CTRL_LINE_H

#include "engine.h"

struct conn;
struct peer_link;

/*
 * Places for rejections of connection requests that wait for room in the ring of the peer. A link
 * has its own ones, and takes as many of the common ones as it leaves to the other links.
 */
enum {
	REJECTS = 8192,	 /* common to all links */
	REJECTS_OWN = 8, /* of each link */
};

/* Control lines that a connection owes its peer, in the order in which they are written. */
enum ctrl_line {
	CTRL_CONNECT = 0x1,
	CTRL_ACCEPT = 0x2,
	CTRL_GRANT = 0x4,
	CTRL_RECLAIM = 0x8, /* no GRANT between this and its answer */
	CTRL_RECLAIMED = 0x10,
	CTRL_STALLED = 0x20,
	CTRL_RTS = 0x40,
	CTRL_CTS = 0x80,
	CTRL_LOCKED = 0x100,
	CTRL_END = 0x200,
	CTRL_FIN = 0x400,
	CTRL_RESET = 0x800,
	CTRL_FIN_ACK = 0x1000,
	CTRL_REJECT = 0x2000, /* of a connection that its program held; its last */
};

struct reject {
	uint32_t peer_vqpn;
	uint16_t status;
	uint16_t next; /* index of the next one of the link, or that is free; 0: none */
};

/* Entries of engine.rejects, of which the first is not used. */
static inline uint32_t
reject_entries(uint32_t links)
{
	static_assert(1 + REJECTS + ENGINE_LINKS_MOST * REJECTS_OWN <= UINT16_MAX, "reject.next");
	return 1 + REJECTS + links * REJECTS_OWN;
}

/* Marks the control lines `what` (enum ctrl_line) as due. */
void ctrl_line_due(struct engine *e, struct conn *c, unsigned what);
/* Writes the control lines that are due on this link, as far as the frame has room. */
void ctrl_lines_send(struct engine *e, struct peer_link *l);
/*
 * A message of the frame at hand was consumed that c refuses. If c owes the RESET that says so, the
 * peer takes nothing from this frame on for executed, until that has left: room in the ring must
 * not depend on it, since a RESET of the peer may need it.
 */
void ctrl_line_hold(struct conn *c);
/* The RESET has been put into a frame, or is not due any more. */
void ctrl_line_release(struct engine *e, struct conn *c);
/* Takes a control line. False: no peer of ours sends this. */
bool ctrl_line_receive(struct engine *e, struct peer_link *l, const struct weir_slot *s);
/* Queues the rejection of a connection request. False: the peer lets too many wait. */
bool reject_later(struct engine *e, struct peer_link *l, uint32_t peer_vqpn, uint32_t status);
/* Takes the oldest rejection out of the queue of a link, which is not empty. */
struct reject reject_take(struct engine *e, struct peer_link *l);

#endif
