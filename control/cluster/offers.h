/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Link offers of our data plane to one peer, kept until the peer's own offer says that it has taken
 * them up. Sending one again does no harm, so nothing is remembered about what arrived. Pure.
 */
#ifndef WEIR_CONTROL_OFFERS_H
#define WEIR_CONTROL_OFFERS_H

#include "ipc/dpctl.h"

#define OFFER_RETRY_MIN 500u  /* ms, doubling */
#define OFFER_RETRY_MAX 8000u /* ms */
#define OFFER_SENDS 8u	      /* then it rests until the peer's control or data plane comes anew */

struct offer {
	struct weir_link_offer link;
	uint64_t due; /* ms: when it is to be sent (again) */
	uint32_t sends;
	uint32_t taken_up; /* attempt of ours that the peer has answered */
	bool repeated;	   /* our data plane has offered this attempt before */
};

struct offers {
	struct offer *list;
	uint32_t count, room;
	bool again; /* offers_next(): the one that it gave was sent before, and not answered */
};

void offers_fini(struct offers *o);
/* Keeps the newest offer of its link, due at once. 0 or -ENOMEM. */
int offers_put(struct offers *o, const struct weir_link_offer *link, uint64_t now);
/* An offer of the peer came: what it answers needs no more sending. */
void offers_answered(struct offers *o, const struct weir_link_offer *peer);
/* The link failed, or starts anew. */
void offers_drop(struct offers *o, uint8_t engine, uint8_t peer_engine);
/* All are to be sent now, but those meant for an incarnation that is gone are dropped. */
void offers_restart(struct offers *o, uint64_t peer_incarnation, uint64_t now);
void offers_clear(struct offers *o);
/* Next offer that is due, marked as sent; NULL: none. Valid until the next call. */
const struct weir_link_offer *offers_next(struct offers *o, uint64_t now);

#endif
