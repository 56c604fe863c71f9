/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ACKs, NAKs and congestion notifications. At most one answer per QP and turn: an ACK covers all
 * that came before, a NAK too.
 */
#include "ack.h"
#include "build.h"
#include "read_responder.h"
#include "transmit.h"

void
roce_ack_later(struct roce_qp *qp, enum response response)
{
	weir_assert(!qp->ud);
	if (response > qp->rs.response)
		qp->rs.response = response;
	if (response != RESPOND_ACK)
		qp->ctx->acks_urgent = true;
	qp->ctx->acks_lazy = false;
	list_append_once(&qp->ctx->acks, &qp->ack);
}

void
roce_ack_lazily(struct roce_qp *qp)
{
	bool lazy = list_empty(&qp->ctx->acks) || qp->ctx->acks_lazy;

	roce_ack_later(qp, RESPOND_ACK);
	qp->ctx->acks_lazy = lazy && ++qp->rs.lazy < ROCE_ACK_LAZY;
}

/* Sends the answers of one QP. False: some could not leave. */
static bool
ack_qp(struct roce_qp *qp, unsigned *room)
{
	struct roce_context *ctx = qp->ctx;
	struct nic_counters *c = &ctx->counters;
	struct responder *rs = &qp->rs;
	uint64_t *counter = &c->naks_sent;
	uint32_t length, psn = rs->expected; /* a NAK names the first PSN that was not taken */
	uint8_t syndrome;
	void *frame;

	if (!neighbour_known(qp->neighbour)) {
		roce_count(&c->drop_no_neighbour, 1);
		roce_read_serve_stop(qp);
		rs->response = RESPOND_NONE;
		return true;
	}
	if (rs->serving != rs->served_next) {
		if (*room == UINT32_MAX)
			*room = ctx->wire.room(ctx->wire_user);
		if (!roce_read_serve_answers(qp, room))
			return false;
	}
	if (rs->response == RESPOND_NONE)
		return true;
	frame = roce_frame_take(ctx);
	if (frame == NULL)
		return false;
	switch (rs->response) {
	case RESPOND_RNR:
		counter = &c->rnr_sent;
		syndrome = AETH(AETH_RNR, ctx->dev->config.rnr_timer);
		break;
	case RESPOND_SEQUENCE:
		syndrome = AETH(AETH_NAK, NAK_SEQUENCE);
		break;
	case RESPOND_FATAL:
		syndrome = AETH(AETH_NAK, rs->nak);
		psn = rs->nak_psn;
		break;
	default:
		counter = &c->acks_sent;
		syndrome = AETH(AETH_ACK, AETH_UNLIMITED);
		psn--; /* an ACK names the last PSN that was taken */
	}
	roce_count(counter, 1);
	length = roce_build_packet(qp, roce_frame_data(ctx, frame), BTH(RC_ACK), psn & PSN_MASK,
				   packet_aeth(syndrome, rs->msn), 0, 0, AETH_BYTES, NULL, 0);
	roce_frame_send(ctx, frame, length, false);
	rs->response = RESPOND_NONE;
	rs->lazy = 0;
	return true;
}

/*
 * An ACK would delay the program's answer to a request, and one ACK covers several requests that
 * come one by one: ACKs wait until the engine is idle, or for a short time. ACKs of short messages
 * alone wait even if it is idle.
 */
bool
roce_ack_due(struct roce_context *ctx, uint64_t now)
{
	if (list_empty(&ctx->acks))
		return false;
	if (ctx->acks_urgent || (!ctx->received && !ctx->acks_lazy))
		return true;
	if (ctx->acks_since == 0)
		ctx->acks_since = now;
	return now - ctx->acks_since >= (ctx->acks_lazy ? ROCE_ACK_LAZY_NS : ROCE_ACK_WAIT_NS);
}

void
roce_ack_all(struct roce_context *ctx)
{
	unsigned room = UINT32_MAX; /* not asked yet */
	struct list_node waiting;

	list_init(&waiting);
	while (!list_empty(&ctx->acks)) {
		struct roce_qp *qp = LIST_OWNER(ctx->acks.next, struct roce_qp, ack);
		bool done = ack_qp(qp, &room);

		list_remove(&qp->ack);
		if (!done) /* again in this turn, if there is room */
			list_append(room != 0 && ctx->spare_count != 0 ? &ctx->acks : &waiting,
				    &qp->ack);
	}
	list_move(&ctx->acks, &waiting);
	ctx->acks_urgent = !list_empty(&ctx->acks);
	ctx->acks_lazy = false;
	ctx->acks_since = 0;
}

void
roce_ack_congestion(struct roce_qp *qp, uint64_t now)
{
	uint32_t length;
	void *frame;

	if (now < qp->rs.cnp_next || !neighbour_known(qp->neighbour))
		return;
	frame = roce_frame_take(qp->ctx);
	if (frame == NULL)
		return;
	qp->rs.cnp_next = now + ROCE_CNP_GAP_NS;
	length = roce_build_packet(qp, roce_frame_data(qp->ctx, frame), BTH(ROCE_CNP),
				   (uint64_t)BTH_BECN << 56, 0, 0, 0, CNP_BYTES, NULL, 0);
	roce_frame_send(qp->ctx, frame, length, false);
}
