/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The FIFO of WRITEs and READs of a link. Its bounds leave room for many small transfers, and keep
 * what large ones move at a time in the caches.
 */
#include "flight.h"
#include "conn.h"
#include "ctrl_line.h"
#include "link.h"
#include "rndv.h"
#include "send_queue.h"
#include "state.h"

#include <assert.h>
#include <errno.h>

static_assert(FLIGHT_WRS <= ENGINE_SEND_WRS, "all that is in flight fits the send queue");

/* Owners take turns in this order. */
static const struct flight_owner *const owners[] = {&rndv_write, &rndv_read};
enum { OWNERS = sizeof(owners) / sizeof(owners[0]) };

static struct flight *
flight_at(const struct peer_link *l, uint64_t wr_id)
{
	return &l->flights->wrs[wr_id % FLIGHT_WRS];
}

/* Whether the QP takes posts. */
static bool
is_usable(const struct peer_link *l)
{
	return !l->bulk_broken && !l->hold;
}

/* Whether one more segment of any length fits. */
static bool
has_room(const struct peer_link *l)
{
	return is_usable(l) && l->burst < FLIGHT_BURST &&
	       l->sq_posted[BULK] - l->sq_done[BULK] < FLIGHT_WRS &&
	       l->flight_bytes + FLIGHT_SEGMENT <= FLIGHT_BYTES;
}

/* Whether some owner has something to post. */
static bool
owner_waits(const struct peer_link *l)
{
	bool any = false;

	for (unsigned i = 0; i < OWNERS; i++)
		any |= owners[i]->waits(l);
	return any;
}

bool
flight_waits(const struct peer_link *l)
{
	return l->burst || owner_waits(l);
}

bool
flight_may_post(const struct peer_link *l)
{
	return l->burst ? is_usable(l) : has_room(l) && owner_waits(l);
}

/* Posts the burst, whose last WR is signaled. The rest leaves later if the driver is full. */
static void
post_burst(struct engine *e, struct peer_link *l)
{
	struct nic_send_wr *wr = l->flights->burst;
	int n;

	wr[l->burst - 1].flags = NIC_SIGNALED;
	n = nic_post_send(l->is.qp[BULK], wr, l->burst);
	if (n < 0) {
		link_break(e, l, BULK, (uint32_t)-n, 0);
		return;
	}
	l->burst -= (uint32_t)n;
	l->burst_bytes = 0;
	memmove(wr, wr + n, l->burst * sizeof(*wr));
}

void
flight_put(struct engine *e, struct peer_link *l, const struct nic_send_wr *wr, struct flight f)
{
	struct nic_send_wr *to = &l->flights->burst[l->burst];

	weir_assert(has_room(l) && f.bytes <= FLIGHT_SEGMENT);
	*to = *wr;
	to->wr_id = ++l->sq_posted[BULK];
	*flight_at(l, to->wr_id) = f;
	f.conn->bulk_flight++;
	l->flight_bytes += f.bytes;
	l->burst_bytes += f.bytes;
	if (++l->burst == FLIGHT_BURST || l->burst_bytes >= FLIGHT_BURST_BYTES)
		post_burst(e, l);
}

void
flight_turn(struct engine *e, struct peer_link *l)
{
	bool posted = true;

	while (posted) {
		posted = false;
		for (unsigned i = 0; i < OWNERS; i++)
			posted |= has_room(l) && owners[i]->post(e, l);
	}
	if (l->burst && is_usable(l))
		post_burst(e, l);
}

/* Nothing of c is in flight any more: continues the steps that waited for that. */
static void
conn_landed(struct engine *e, struct conn *c)
{
	if (!conn_is_open(c))
		pend_drop(c);
	if (c->forget)
		bulk_forget(e, c);
	ctrl_line_due(e, c, 0); /* FIN, RESET and FIN_ACK */
	conn_settle_later(e, c);
}

void
flight_done(struct engine *e, struct peer_link *l, uint64_t wr_id)
{
	while (l->sq_done[BULK] < wr_id) {
		struct flight f = *flight_at(l, ++l->sq_done[BULK]);

		weir_assert(f.conn->bulk_flight && l->flight_bytes >= f.bytes);
		l->bulk_unproven = false;
		l->flight_bytes -= f.bytes;
		f.conn->bulk_flight--;
		if (UNLIKELY(f.conn->bulk_doubts))
			f.conn->bulk_doubts = 0;
		f.owner->done(e, &f);
		if (!f.conn->bulk_flight)
			conn_landed(e, f.conn);
	}
}

/* ---- faults ---- */

/*
 * A NIC may refuse a WR that has no fault: Linux's rxe numbers packets wrongly if an ACK crosses
 * its retransmission, on a slow machine again and again. So a WR leaves once more; its connection
 * ends when FLIGHT_DOUBTS + 1 are refused and none succeeds between them. A peer
 * refuses a WR behind all that it has taken, of which few are signaled.
 */
void
flight_failed(struct engine *e, struct peer_link *l, const struct nic_wc *wc)
{
	struct conn *c;

	if (l->bulk_broken || wc->wr_id <= l->sq_done[BULK] || wc->wr_id > l->sq_posted[BULK])
		return;
	c = flight_at(l, wc->wr_id)->conn;
	switch (wc->status) {
	case NIC_WC_REM_ACCESS_ERR:
	case NIC_WC_REM_INV_REQ_ERR:
	case NIC_WC_REM_OP_ERR:
	case NIC_WC_BAD_RESP_ERR:
		flight_done(e, l, wc->wr_id - 1);
		/* fall through */
	case NIC_WC_LOC_LEN_ERR:
	case NIC_WC_LOC_PROT_ERR:
		c->bulk_refused = c->bulk_doubts == FLIGHT_DOUBTS;
		c->bulk_doubts += !c->bulk_refused;
		break;
	default: /* nothing is known of the WR */
		break;
	}
}

uint32_t
flight_rewound(uint32_t posted, uint32_t in_flight)
{
	return ((posted + FLIGHT_SEGMENT - 1) / FLIGHT_SEGMENT - in_flight) * FLIGHT_SEGMENT;
}

/*
 * The QP is a new one, and the old ones can't write any more. WRITEs and READs of unknown outcome
 * leave again: the place of a WRITE is promised until BULK, FIN_ACK or RESET, the source of a READ
 * until FETCHED, FIN_ACK or RESET, and none of these has left while they were in flight. Repeating
 * them changes nothing.
 */
void
flight_resume(struct engine *e, struct peer_link *l)
{
	while (l->sq_done[BULK] != l->sq_posted[BULK]) {
		struct flight f = *flight_at(l, ++l->sq_done[BULK]);
		uint32_t n = f.owner->rewind(e, l, &f);
		struct conn *c = f.conn;

		if (!n)
			continue;
		count(&e->counters.bulk_replayed, n);
		c->bulk_flight -= n;
		if (c->bulk_refused && !c->bulk_flight)
			conn_abort(e, c, ECONNRESET, false);
		if (conn_is_open(c))
			l->bulk_unproven = true;
		if (!c->bulk_flight)
			conn_landed(e, c);
	}
	l->flight_bytes = l->burst = l->burst_bytes = 0;
}
