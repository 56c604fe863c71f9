/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WRITEs and READs in flight on the second QP of a link: one FIFO for all owners. An owner is a
 * kind of transfer; owners take turns. Few WRs are signaled: the last of each burst of posts.
 */
#ifndef WEIR_ENGINE_FLIGHT_H
#define WEIR_ENGINE_FLIGHT_H

#include "engine.h"

struct conn;
struct flight;
struct peer_link;
struct pend;

enum {
	FLIGHT_WRS = 128,	   /* WRITEs and READs in flight per link, a power of two */
	FLIGHT_SEGMENT = 65536,	   /* bytes per WRITE or READ */
	FLIGHT_BYTES = 8 * 65536,  /* bytes in flight per link */
	FLIGHT_BURST = 8,	   /* WRs per post */
	FLIGHT_BURST_BYTES = 8192, /* bytes gathered after which a burst is posted */
	FLIGHT_DOUBT_BITS = 2,	   /* bits that count refusals */
	FLIGHT_DOUBTS = (1 << FLIGHT_DOUBT_BITS) - 1, /* refusals that a connection survives */
};

struct flight_owner {
	/* Whether there is something to post. */
	bool (*waits)(const struct peer_link *l);
	/* One step, with at most one flight_put(). False: there was nothing to do. */
	bool (*post)(struct engine *e, struct peer_link *l);
	/* The oldest WR in flight of the owner has succeeded. */
	void (*done)(struct engine *e, const struct flight *f);
	/* The outcome is unknown: this WR and all younger ones of the same transfer leave again, if
	 * its connection is open. Returns their number; 0: an older one's call included it. */
	uint32_t (*rewind)(struct engine *e, struct peer_link *l, const struct flight *f);
};

struct flight {
	const struct flight_owner *owner;
	struct conn *conn;
	union {
		struct pend *pend; /* WRITE of a message */
		uint64_t number;   /* READ of the message with this number */
	};
	uint32_t bytes;
};

/* Memory of a link for them, which only links with large transfers touch. */
struct flight_queue {
	struct flight wrs[FLIGHT_WRS];		/* at sq_done ... sq_posted of the QP */
	struct nic_send_wr burst[FLIGHT_BURST]; /* the newest of them, not posted yet */
};

/* Whether some owner has something to post, or a burst is left. */
bool flight_waits(const struct peer_link *l);
/* Whether a turn would post something. */
bool flight_may_post(const struct peer_link *l);
/* Posts WRITEs and READs as far as there is room. */
void flight_turn(struct engine *e, struct peer_link *l);
/* For owners: adds one WRITE or READ of `f.bytes`, with one element. */
void flight_put(struct engine *e, struct peer_link *l, const struct nic_send_wr *wr,
		struct flight f);
/* WRs up to this one have succeeded. */
void flight_done(struct engine *e, struct peer_link *l, uint64_t wr_id);
/* A WR has failed, the first one of its QP. */
void flight_failed(struct engine *e, struct peer_link *l, const struct nic_wc *wc);
/* Repeats what is in flight when the link's second QP is a new one. */
void flight_resume(struct engine *e, struct peer_link *l);
/* Where a transfer continues: at its oldest segment in flight; they are in order. */
uint32_t flight_rewound(uint32_t posted, uint32_t in_flight);

#endif
