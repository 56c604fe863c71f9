/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending half of a QP: posts, frames in flight, acknowledgements. */
#include "requester.h"
#include "arp.h"
#include "build.h"
#include "qp_poll.h"
#include "read_requester.h"
#include "timer.h"
#include "transmit.h"
#include "ud.h"

#include <errno.h>

static const struct wire_form wire_forms[] = {
    [NIC_SEND] = {RC_SEND_FIRST, RC_SEND_LAST, RC_SEND_ONLY, false},
    [NIC_SEND_IMM] = {RC_SEND_FIRST, RC_SEND_LAST_IMM, RC_SEND_ONLY_IMM, true},
    [NIC_WRITE] = {RC_WRITE_FIRST, RC_WRITE_LAST, RC_WRITE_ONLY, false},
    [NIC_WRITE_IMM] = {RC_WRITE_FIRST, RC_WRITE_LAST_IMM, RC_WRITE_ONLY_IMM, true},
    [NIC_READ] = {RC_READ_REQUEST, RC_READ_REQUEST, RC_READ_REQUEST, false},
    [NIC_CMP_SWAP] = {RC_CMP_SWAP, RC_CMP_SWAP, RC_CMP_SWAP, false},
    [NIC_FETCH_ADD] = {RC_FETCH_ADD, RC_FETCH_ADD, RC_FETCH_ADD, false},
    [NIC_SEND_INV] = {RC_SEND_FIRST, RC_SEND_LAST_INV, RC_SEND_ONLY_INV, true},
};

/* READs, atomics, keys to invalidate, fences, inline data. */
static __attribute__((noinline)) int
take_special(struct roce_qp *qp, struct sq_entry *e, const struct nic_send_wr *wr)
{
	int error = 0;

	if (qp->ud)
		error = roce_ud_take(qp, e, wr);
	else if (wr->opcode == NIC_SEND_INV)
		e->imm = wr->rkey;
	else if (wr->opcode > NIC_WRITE_IMM)
		error = roce_read_take(e, wr);
	if (error)
		return error;
	if ((wr->flags & NIC_INLINE) && qp_orders_copy_inline(e->data, wr) < 0)
		return -EINVAL;
	qp->rq.special += !qp->ud && wr_special(e);
	return 0;
}

/* Checks a WR and copies it into its place. */
static inline int
take_wr(struct roce_qp *qp, struct sq_entry *e, const struct nic_send_wr *wr)
{
	uint64_t length = 0;

	if (!qp_orders_wr_ok(wr))
		return -EINVAL;
	if (wr->sge_count != 0)
		length = wr->sge[0].length;
	if (wr->sge_count == 2)
		length += wr->sge[1].length;
	if (length > ROCE_MESSAGE_MAX)
		return -EINVAL;
	e->wr_id = wr->wr_id;
	e->remote_address = wr->remote_address;
	e->rkey = wr->rkey;
	e->imm = wr->imm;
	e->length = (uint32_t)length;
	e->flags = wr->flags;
	e->opcode = wr->opcode;
	e->sge_count = wr->sge_count;
	e->wire = wire_forms[wr->opcode];
	e->sge[0] = wr->sge[0];
	e->sge[1] = wr->sge[1];
	if (__builtin_expect(wr->opcode > NIC_WRITE_IMM || qp->ud ||
				 (wr->flags & (NIC_INLINE | NIC_FENCE)) != 0,
			     0))
		return take_special(qp, e, wr);
	return 0;
}

void
roce_requester_wake(struct roce_qp *qp)
{
	weir_assert(qp_state(qp) == NIC_QP_RTS);
	list_append_once(&qp->ctx->senders, &qp->sender);
}

static bool
window_open(const struct requester *rq, uint32_t frame)
{
	return rq->in_flight == 0 || rq->in_flight + frame <= rq->window.size;
}

/* Starts the timer: for an answer, the peer's MAC, or the port. */
static void
start_waiting(struct roce_qp *qp, uint64_t now)
{
	struct requester *rq = &qp->rq;

	rq->progress = now;
	rq->retries = 0;
	roce_timer_start(qp, now + roce_window_rto(&rq->window, rq->timeout_ns));
}

/* New frames that may be made now, apart from window and posts; all have a buffer. */
static uint32_t
frames_allowed(const struct roce_qp *qp, uint32_t limit)
{
	struct roce_context *ctx = qp->ctx;
	const struct requester *rq = &qp->rq;
	uint32_t room = rq->frame_mask + 1 - (rq->next - rq->una);
	uint32_t held = ctx->dev->config.tx_frames - ctx->held;

	weir_assert(ctx->held <= ctx->dev->config.tx_frames);
	if (held < room)
		room = held;
	if (limit < room)
		room = limit;
	if (room > ctx->spare_count)
		roce_frame_refill(ctx);
	return room < ctx->spare_count ? room : ctx->spare_count;
}

/* frames_allowed() for one frame. */
static inline bool
frame_allowed(const struct roce_qp *qp)
{
	struct roce_context *ctx = qp->ctx;

	return qp->rq.next - qp->rq.una <= qp->rq.frame_mask &&
	       ctx->held < ctx->dev->config.tx_frames && roce_frame_ready(ctx);
}

/* Sends a frame that was just made, and keeps it. */
static inline __attribute__((always_inline)) void
send_new(struct roce_qp *qp, void *frame, uint32_t length, uint64_t now)
{
	struct roce_context *ctx = qp->ctx;
	struct requester *rq = &qp->rq;
	uint32_t psn = rq->next, slot = psn & rq->frame_mask;

	weir_assert(rq->next - rq->una <= rq->frame_mask);
	ctx->held++;
	rq->in_flight += length;
	rq->frames[slot] = frame;
	rq->lengths[slot] = (uint16_t)length;
	rq->send = rq->next = psn + 1;
	window_sent(&rq->window, psn, now);
	roce_frame_send(ctx, frame, length, true);
}

/*
 * A WR of one frame that no other waits before needs no turn among queue pairs: its frame is made
 * when it is posted, and leaves with the others of this turn. False: it takes the long way.
 * `opcode`: of the WR, a constant for the most frequent one.
 */
static inline __attribute__((always_inline)) bool
send_at_once(struct roce_qp *qp, const struct nic_send_wr *wr, uint8_t opcode)
{
	const struct nic_sge *sge = &wr->sge[0];
	struct requester *rq = &qp->rq;
	struct roce_context *ctx = qp->ctx;
	struct sq_entry *e = &rq->sq[rq->posted & rq->sq_mask];
	bool idle = rq->una == rq->next;
	void *frame;

	if (wr->sge_count != 1 || opcode > NIC_WRITE_IMM || sge->length - 1u >= qp->mtu ||
	    (wr->flags & (NIC_INLINE | NIC_FENCE)) != 0 || rq->posted != rq->built ||
	    rq->send != rq->next || qp->ud || rq->draining || rq->rnr_wait ||
	    !list_empty(&ctx->senders) || !neighbour_known(qp->neighbour) ||
	    rq->posted - rq->freed == rq->sq_depth || !window_open(rq, ROCE_FRAME_MAX(qp->mtu)) ||
	    !mr_check(&ctx->dev->mrs, sge->lkey, sge->address, sge->length, 0) ||
	    ctx->head.now == 0)
		return false;
	if (ctx->at_once == 0) { /* the first one since the last flush */
		unsigned room = ctx->wire.room(ctx->wire_user);

		ctx->at_once = room < ROCE_QUANTUM ? room + 1 : ROCE_QUANTUM + 1;
	}
	if (ctx->at_once == 1 || !frame_allowed(qp))
		return false;
	ctx->at_once--;
	e->wr_id = wr->wr_id;
	e->length = sge->length;
	e->last_psn = rq->next;
	e->flags = wr->flags;
	e->opcode = opcode;
	rq->posted = ++rq->built;
	frame = ctx->spare[--ctx->spare_count];
	send_new(qp, frame,
		 roce_build_only(qp, wr, wire_forms[opcode], roce_frame_data(ctx, frame)),
		 ctx->head.now);
	if (idle)
		start_waiting(qp, ctx->head.now);
	return true;
}

int
roce_post_send(struct nic_qp *nqp, const struct nic_send_wr *wr, unsigned n)
{
	struct roce_qp *qp = (struct roce_qp *)nqp;
	struct requester *rq = &qp->rq;
	uint32_t end, room;
	unsigned i;
	int error;

	if (!qp_orders_may_send(qp_state(qp)))
		return -ENOTCONN;
	if (n == 1 && (wr->opcode == NIC_WRITE_IMM ? send_at_once(qp, wr, NIC_WRITE_IMM)
						   : send_at_once(qp, wr, wr->opcode)))
		return 1;
	end = rq->posted + rq->parked;
	weir_assert(end - rq->freed <= rq->sq_depth);
	room = rq->sq_depth - (end - rq->freed);
	if (n > room)
		n = room;
	for (i = 0; i < n; i++) {
		error = take_wr(qp, &rq->sq[end & rq->sq_mask], &wr[i]);
		if (error) {
			if (i == 0)
				return error;
			break;
		}
		end++;
	}
	if (__builtin_expect(rq->draining, 0)) {
		rq->parked = end - rq->posted;
		return (int)i;
	}
	rq->posted = end;
	if (i > 0 && !rq->rnr_wait)
		roce_requester_wake(qp);
	return (int)i;
}

/* Makes frames of posted WRs; returns how many. special: some may be READs, atomics or fences. */
static inline __attribute__((always_inline)) uint32_t
burst(struct roce_qp *qp, uint32_t limit, uint64_t now, bool special)
{
	struct requester *rq = &qp->rq;
	uint32_t most = ROCE_FRAME_MAX(qp->mtu), allowed = frames_allowed(qp, limit), n = 0;
	bool idle = rq->una == rq->next;

	while (n < allowed && rq->built != rq->posted && window_open(rq, most)) {
		struct sq_entry *wr = &rq->sq[rq->built & rq->sq_mask];
		enum read_result read = READ_NONE;
		void *frame;
		bool more;

		if (special)
			read = roce_read_next(qp, wr, now);
		if (read == READ_WAITS)
			break;
		n++;
		if (read == READ_SENT) {
			allowed = n + frames_allowed(qp, limit - n);
			continue;
		}
		if (rq->offset == 0 && !memory_ok(qp, wr, 0)) {
			roce_qp_fail(qp, rq->built, NIC_WC_LOC_PROT_ERR);
			return n - 1;
		}
		/* whether another frame follows at once: else this one asks for an answer */
		more = n < allowed && rq->in_flight + 2 * most <= rq->window.size &&
		       (rq->posted - rq->built > 1 || wr->length - rq->offset > qp->mtu);
		if (special && more && wr->length - rq->offset <= qp->mtu)
			more = !wr_special(&rq->sq[(rq->built + 1) & rq->sq_mask]);
		frame = qp->ctx->spare[--qp->ctx->spare_count]; /* counted by frames_allowed() */
		send_new(qp, frame, roce_build_frame(qp, wr, roce_frame_data(qp->ctx, frame), more),
			 now);
	}
	if (n != 0 && idle && (!special || rq->una != rq->next))
		start_waiting(qp, now);
	return n;
}

static __attribute__((noinline)) uint32_t
send_special_burst(struct roce_qp *qp, uint32_t limit, uint64_t now)
{
	return burst(qp, limit, now, true);
}

/* Sends up to `limit` frames. False: nothing more can leave until something happens. */
static bool
transmit(struct roce_qp *qp, unsigned limit, unsigned *sent, uint64_t now)
{
	struct requester *rq = &qp->rq;

	if (qp->ud)
		return roce_ud_transmit(qp, limit, sent, now);
	if (rq->rnr_wait)
		return false;
	if (!neighbour_known(qp->neighbour)) {
		if (rq->built != rq->posted) {
			roce_arp_ask(qp->ctx, qp->neighbour, now);
			if (!list_linked(&qp->timer))
				start_waiting(qp, now);
		}
		return false;
	}
	for (; rq->send != rq->next; ++*sent) { /* again */
		uint32_t slot = rq->send & rq->frame_mask;

		if (*sent == limit)
			return true;
		if (!window_open(rq, rq->lengths[slot]))
			return false;
		if (rq->unframed != 0 && rq->frames[slot] == NULL) {
			if (!roce_read_again(qp))
				return false;
			continue;
		}
		rq->in_flight += rq->lengths[slot];
		rq->send++;
		roce_count(&qp->ctx->counters.retransmits, 1);
		roce_frame_send(qp->ctx, rq->frames[slot], rq->lengths[slot], true);
	}
	*sent += rq->special != 0 ? send_special_burst(qp, limit - *sent, now)
				  : burst(qp, limit - *sent, now, false);
	return *sent == limit;
}

/* Whether a QP waits for buffers, its own or the pool's: only its place in the list wakes it.
 */
static bool
waits_for_frames(const struct roce_qp *qp)
{
	const struct requester *rq = &qp->rq;

	if (qp_state(qp) != NIC_QP_RTS)
		return false;
	if (qp->ud)
		return rq->out_of_frames;
	if (rq->rnr_wait || !neighbour_known(qp->neighbour))
		return false;
	if (rq->out_of_frames)
		return true;
	if (rq->special != 0 && rq->built != rq->posted &&
	    roce_read_waits(qp, &rq->sq[rq->built & rq->sq_mask]))
		return false; /* an answer wakes it */
	return rq->send == rq->next && rq->built != rq->posted &&
	       rq->next - rq->una <= rq->frame_mask && window_open(rq, ROCE_FRAME_MAX(qp->mtu));
}

void
roce_requester_flush(struct roce_context *ctx, uint64_t now)
{
	unsigned room = ctx->wire.room(ctx->wire_user);
	uint64_t end = ctx->counters.tx_bytes + ROCE_TURN_BYTES;
	struct list_node waiting, *l, *following;

	if (room == 0) {
		/* the port takes nothing: QPs that wait for it fail when their time is over */
		LIST_EACH (l, following, &ctx->senders) {
			struct roce_qp *qp = LIST_OWNER(l, struct roce_qp, sender);

			if (!list_linked(&qp->timer))
				start_waiting(qp, now);
		}
	}
	list_init(&waiting);
	while (room > 0 && ctx->counters.tx_bytes < end && !list_empty(&ctx->senders)) {
		struct roce_qp *qp = LIST_OWNER(ctx->senders.next, struct roce_qp, sender);
		unsigned sent = 0, n = ROCE_TURN_BYTES / 2 / qp->mtu;
		bool again;

		/* of long messages half of a turn before the next QP's, of others a fixed number */
		if (n > ROCE_QUANTUM || qp->rq.sq[qp->rq.built & qp->rq.sq_mask].length < qp->mtu)
			n = ROCE_QUANTUM;
		again = transmit(qp, room < n ? room : n, &sent, now);
		weir_assert(sent <= room);
		room -= sent;
		list_remove(&qp->sender);
		if (again)
			list_append(&ctx->senders, &qp->sender);
		else if (waits_for_frames(qp))
			list_append(&waiting, &qp->sender);
	}
	ctx->unsent = room > 0 && !list_empty(&ctx->senders);
	list_move(&ctx->senders, &waiting);
}

void
roce_requester_advance(struct roce_qp *qp, uint32_t to, uint64_t now)
{
	struct requester *rq = &qp->rq;
	uint32_t bytes = 0, n = to - rq->una;

	weir_assert((int32_t)(rq->next - to) >= 0);
	for (uint32_t psn = rq->una; psn != to; psn++) {
		if ((int32_t)(psn - rq->send) < 0)
			bytes += rq->lengths[psn & rq->frame_mask];
	}
	weir_assert(rq->in_flight >= bytes);
	rq->in_flight -= bytes;
	roce_qp_drop_frames(qp, n);
	if ((int32_t)(rq->send - rq->una) < 0) { /* frames to be sent again had arrived */
		rq->send = rq->una;
		roce_window_restore(&rq->window);
	}
	while (rq->retired != rq->built &&
	       (int32_t)(rq->una - rq->sq[rq->retired & rq->sq_mask].last_psn) > 0)
		roce_qp_complete(qp, NIC_WC_SUCCESS);
	rq->progress = now;
	rq->retries = 0;
	rq->rnr_wait = false;
	rq->rnr_left = rq->rnr_retry;
	rq->went_back = 0;
	roce_window_acked(&rq->window, bytes, rq->una, rq->next, now);
	if (rq->una == rq->next) {
		list_remove(&qp->timer);
		if (__builtin_expect(rq->draining, 0))
			roce_qp_drained(qp);
	} else {
		rq->deadline = now + roce_window_rto(&rq->window, rq->timeout_ns);
	}
	if (rq->send != rq->next || rq->built != rq->posted)
		roce_requester_wake(qp);
}

void
roce_requester_go_back(struct roce_qp *qp)
{
	struct requester *rq = &qp->rq;

	rq->send = rq->una;
	rq->in_flight = 0;
	roce_requester_wake(qp);
}

/* The peer had no receive WR for the oldest frame. */
static enum drop
receiver_not_ready(struct roce_qp *qp, unsigned code, uint64_t now)
{
	/* IBTA volume 1, table 45, in units of 10 us */
	static const uint32_t waits[32] = {65536, 1,	2,    3,     4,	    6,	   8,	  12,
					   16,	  24,	32,   48,    64,    96,	   128,	  192,
					   256,	  384,	512,  768,   1024,  1536,  2048,  3072,
					   4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
	struct requester *rq = &qp->rq;

	if (rq->rnr_wait)
		return DROP_duplicate;
	if (rq->rnr_retry != 7 && rq->rnr_left-- == 0) {
		roce_qp_fail(qp, rq->retired, NIC_WC_RNR_RETRY_EXC_ERR);
		return DROP_NONE;
	}
	rq->window.resent = true;
	roce_requester_go_back(qp);
	list_remove(&qp->sender);
	rq->rnr_wait = true;
	rq->progress = now;
	rq->retries = 0;
	roce_timer_start(qp, now + waits[code] * UINT64_C(10000));
	return DROP_NONE;
}

void
roce_requester_lost(struct roce_qp *qp, uint64_t now)
{
	struct requester *rq = &qp->rq;

	/* a NAK of before the repeated frames can have arrived */
	if (rq->una == rq->next ||
	    (rq->went_back != 0 &&
	     (rq->send == rq->una || now - rq->went_back < roce_window_stale(&rq->window))))
		return;
	if (rq->went_back == 0)
		roce_window_lost(&rq->window, rq->next);
	else /* lost again, or only late: the next round is smaller */
		roce_window_lost_again(&rq->window, rq->next);
	rq->went_back = now;
	if (!rq->rnr_wait)
		roce_requester_go_back(qp);
}

enum drop
roce_requester_ack(struct roce_qp *qp, const struct packet *p, uint64_t now)
{
	static const uint8_t status[] = {
	    [NAK_INVALID_REQUEST] = NIC_WC_REM_INV_REQ_ERR,
	    [NAK_REMOTE_ACCESS] = NIC_WC_REM_ACCESS_ERR,
	    [NAK_REMOTE_OPERATION] = NIC_WC_REM_OP_ERR,
	};
	struct requester *rq = &qp->rq;
	struct nic_counters *c = &qp->ctx->counters;
	uint32_t distance = (p->psn - rq->una) & PSN_MASK, outstanding = rq->next - rq->una;
	uint32_t bound, wr, psn = rq->una + distance;
	unsigned type = AETH_TYPE(p->syndrome), value = AETH_VALUE(p->syndrome);

	if (qp_state(qp) != NIC_QP_RTS)
		return DROP_no_qp;
	if (type == AETH_ACK) {
		roce_count(&c->acks_received, 1);
		if (distance >= outstanding)
			return DROP_duplicate;
		/* an ACK beyond a missing answer: that answer was lost */
		if (rq->unframed != 0 && (int32_t)(psn - roce_read_next_psn(rq)) >= 0)
			return roce_read_lost(qp, now);
		roce_requester_advance(qp, psn + 1, now);
		return DROP_NONE;
	}
	/* a NAK names the first PSN that was not taken: all before it are acknowledged */
	if ((type != AETH_RNR && type != AETH_NAK) || (p->syndrome & 0x80) != 0 ||
	    (type == AETH_NAK && value > NAK_REMOTE_OPERATION))
		return DROP_bad_request;
	roce_count(type == AETH_RNR ? &c->rnr_received : &c->naks_received, 1);
	if (distance > outstanding ||
	    (distance == outstanding && (type == AETH_RNR || value != NAK_SEQUENCE)))
		return DROP_duplicate;
	bound = rq->unframed != 0 ? roce_read_next_psn(rq) : psn;
	if ((int32_t)(psn - bound) > 0 && (type == AETH_RNR || value == NAK_SEQUENCE))
		return roce_read_lost(qp, now);
	if ((int32_t)(psn - bound) <= 0)
		bound = psn;
	if (bound != rq->una)
		roce_requester_advance(qp, bound, now);
	if (type == AETH_RNR)
		return receiver_not_ready(qp, value, now);
	if (value == NAK_SEQUENCE) {
		roce_requester_lost(qp, now);
		return DROP_NONE;
	}
	wr = rq->retired; /* the WR whose request has this PSN */
	while (wr != rq->built && (int32_t)(rq->sq[wr & rq->sq_mask].last_psn - psn) < 0)
		wr++;
	roce_qp_fail(qp, wr, status[value]);
	return DROP_NONE;
}
