/* SPDX-License-Identifier: BSD-3-Clause */
#include "offers.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>

void
offers_fini(struct offers *o)
{
	free(o->list);
	*o = (struct offers){0};
}

void
offers_clear(struct offers *o)
{
	o->count = 0;
}

static struct offer *
find(struct offers *o, uint8_t engine, uint8_t peer_engine)
{
	for (uint32_t i = 0; i < o->count; i++)
		if (o->list[i].link.engine == engine && o->list[i].link.peer_engine == peer_engine)
			return &o->list[i];
	return NULL;
}

static void
drop(struct offers *o, struct offer *offer)
{
	weir_assert(offer >= o->list && offer < o->list + o->count);
	*offer = o->list[--o->count];
}

int
offers_put(struct offers *o, const struct weir_link_offer *link, uint64_t now)
{
	struct offer *offer = find(o, link->engine, link->peer_engine);

	if (!offer) {
		if (VEC_RESERVE(o->list, o->room, o->count + 1))
			return -ENOMEM;
		offer = &o->list[o->count++];
		*offer = (struct offer){0};
	}
	offer->repeated = offer->sends && offer->link.attempt == link->attempt &&
			  offer->taken_up != link->attempt;
	if (link->refused) // sent once: the peer asks again, or does not
		offer->taken_up = link->attempt;
	else if (offer->link.refused)
		offer->taken_up = 0;
	offer->link = *link;
	offer->due = now;
	offer->sends = 0;
	return 0;
}

void
offers_answered(struct offers *o, const struct weir_link_offer *peer)
{
	struct offer *offer = find(o, peer->peer_engine, peer->engine);

	if (offer)
		offer->taken_up = peer->answered;
}

void
offers_drop(struct offers *o, uint8_t engine, uint8_t peer_engine)
{
	struct offer *offer = find(o, engine, peer_engine);

	if (offer)
		drop(o, offer);
}

void
offers_restart(struct offers *o, uint64_t peer_incarnation, uint64_t now)
{
	for (uint32_t i = o->count; i-- > 0;) {
		struct offer *offer = &o->list[i];
		uint64_t meant = offer->link.peer_incarnation;

		offer->due = now;
		offer->sends = 0;
		if (meant && meant != peer_incarnation)
			drop(o, offer);
	}
}

const struct weir_link_offer *
offers_next(struct offers *o, uint64_t now)
{
	for (uint32_t i = 0; i < o->count; i++) {
		struct offer *offer = &o->list[i];
		uint64_t wait = (uint64_t)OFFER_RETRY_MIN << (offer->sends < 5 ? offer->sends : 5);

		weir_assert(offer->sends <= OFFER_SENDS);
		if (now < offer->due || offer->sends == OFFER_SENDS)
			continue;
		// Taken up: what it says beyond that (`answered`) is sent once, not until it is
		// answered.
		if (offer->sends && offer->taken_up == offer->link.attempt)
			continue;
		o->again = offer->sends++ || offer->repeated;
		offer->due = now + (wait < OFFER_RETRY_MAX ? wait : OFFER_RETRY_MAX);
		return &offer->link;
	}
	return NULL;
}
