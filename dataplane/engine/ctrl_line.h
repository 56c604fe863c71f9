/* SPDX-License-Identifier: BSD-3-Clause */
/* Control lines in the ring of a link: open, grant, reclaim, announce, close. */
#ifndef WEIR_ENGINE_CTRL_LINE_H
#define WEIR_ENGINE_CTRL_LINE_H

#include "engine.h"

struct conn;
struct link;

enum {
	REJECTS = 4096, /* rejections of connection requests that wait for room in the ring */
};

/* Control lines that a connection owes its peer, in the order in which they are written. */
enum owed {
	OWE_CONNECT = 0x1,
	OWE_ACCEPT = 0x2,
	OWE_GRANT = 0x4,
	OWE_RECLAIM = 0x8, /* no GRANT between this and its answer */
	OWE_RECLAIMED = 0x10,
	OWE_STALLED = 0x20,
	OWE_RTS = 0x40,
	OWE_CTS = 0x80,
	OWE_FIN = 0x100,
	OWE_RESET = 0x200,
	OWE_FIN_ACK = 0x400,
};

struct reject {
	struct link *link;
	uint32_t peer_vqpn, status;
};

/* Marks the control lines `what` (enum owed) as due. */
void owe(struct engine *e, struct conn *c, unsigned what);
/* Writes the control lines that are due on this link, as far as the frame has room. */
void control_send(struct engine *e, struct link *l);
/* Takes a control line. False: no peer of ours sends this. */
bool control_receive(struct engine *e, struct link *l, const struct weir_slot *s);
/* Queues the rejection of a connection request. False: too many wait. */
bool reject_later(struct engine *e, struct link *l, uint32_t peer_vqpn, uint32_t status);

#endif
