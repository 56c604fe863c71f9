/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READs and atomics, the answering half. They are executed in order; their answers leave when the
 * port has room, before any ACK or NAK of later requests. The last ones stay known, because the
 * peer asks again for lost answers: memory is read again, an atomic never executed twice.
 */
#include "read_responder.h"
#include "ack.h"
#include "build.h"
#include "transmit.h"

static struct served *
entry(const struct responder *rs, uint32_t i)
{
	return &rs->served[i & rs->served_mask];
}

static uint32_t
answers_of(const struct roce_qp *qp, uint32_t bytes)
{
	return bytes == 0 ? 1 : (bytes + qp->mtu - 1) / qp->mtu;
}

enum drop
roce_read_serve(struct roce_qp *qp, const struct packet *p)
{
	struct responder *rs = &qp->rs;
	bool atomic = p->kind == PACKET_ATOMIC;
	uint32_t n = atomic ? VALUE_BYTES : p->dma_length;
	uint32_t right = atomic ? NIC_REMOTE_ATOMIC : NIC_REMOTE_READ;
	uint64_t *at, was;
	struct served *e;

	if (atomic ? (p->address & 7) != 0 : n > ROCE_MESSAGE_MAX)
		return roce_responder_refuse(qp, NAK_INVALID_REQUEST, rs->expected);
	if (n != 0 && !mr_check(&qp->ctx->dev->mrs, p->rkey, p->address, n, right))
		return roce_responder_refuse(qp, NAK_REMOTE_ACCESS, rs->expected);
	if (rs->served_next - rs->serving >= rs->served_limit) {
		e = entry(rs, rs->serving);
		/* more under way than was agreed, unless these answers leave again: the peer has
		 * them, or it would not go on */
		if (e->sent != e->end && !e->again)
			return roce_responder_refuse(qp, NAK_INVALID_REQUEST, rs->expected);
		rs->serving++;
	}
	weir_assert(rs->served_next - rs->serving <= rs->served_mask);
	e = entry(rs, rs->served_next++);
	*e = (struct served){
	    .psn = rs->expected, .count = 1, .end = 1, .msn = (rs->msn + 1) & PSN_MASK};
	if (atomic) {
		at = (uint64_t *)(uintptr_t)p->address;
		was = packet_compare(p);
		if (p->payload[-ATOMIC_BYTES - BTH_BYTES] == RC_FETCH_ADD)
			was = __atomic_fetch_add(at, packet_swap_add(p), __ATOMIC_SEQ_CST);
		else
			__atomic_compare_exchange_n(at, &was, packet_swap_add(p), false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		e->atomic = true;
		e->value = was;
	} else {
		e->address = p->address;
		e->rkey = p->rkey;
		e->length = e->stop = n;
		e->count = e->end = answers_of(qp, n);
	}
	rs->expected = (rs->expected + e->count) & PSN_MASK;
	rs->msn = (rs->msn + 1) & PSN_MASK;
	roce_ack_later(qp, RESPOND_NONE);
	return DROP_NONE;
}

enum drop
roce_read_serve_again(struct roce_qp *qp, const struct packet *p)
{
	struct responder *rs = &qp->rs;
	uint32_t known = rs->served_next < rs->served_limit ? rs->served_next : rs->served_limit;

	for (uint32_t i = rs->served_next - known; i != rs->served_next; i++) {
		struct served *e = entry(rs, i);
		uint32_t skip = (p->psn - e->psn) & PSN_MASK, bytes = skip * qp->mtu;

		/* the same request, or one for a part of it from answer `skip` on */
		if (skip >= e->count || e->atomic != (p->kind == PACKET_ATOMIC))
			continue;
		if (!e->atomic && (p->rkey != e->rkey || p->address != e->address + bytes ||
				   p->dma_length > e->length - bytes))
			continue;
		if (e->sent == e->end || e->sent > skip) { /* else they wait already */
			e->again |= e->sent == e->count;
			e->begin = e->sent = skip;
			if (!e->atomic) {
				e->end = skip + answers_of(qp, p->dma_length);
				e->stop = skip * qp->mtu + p->dma_length;
			}
		}
		if ((int32_t)(rs->serving - i) > 0)
			rs->serving = i;
		roce_ack_later(qp, RESPOND_NONE);
		break;
	}
	return DROP_duplicate;
}

void
roce_read_serve_stop(struct roce_qp *qp)
{
	qp->rs.serving = qp->rs.served_next;
}

/* The next answer of *e. False: the memory that it names is gone. */
static bool
send_answer(struct roce_qp *qp, struct served *e, void *frame)
{
	uint8_t *data = roce_frame_data(qp->ctx, frame);
	uint32_t skip = e->sent * qp->mtu, n = e->stop - skip, opcode, length;
	uint64_t aeth = packet_aeth(AETH(AETH_ACK, AETH_UNLIMITED), e->msn);
	bool first = e->sent == e->begin, last = e->sent + 1 == e->end;

	if (n > qp->mtu)
		n = qp->mtu;
	if (n != 0 && !mr_check(&qp->ctx->dev->mrs, e->rkey, e->address + skip, n, NIC_REMOTE_READ))
		return false;
	if (e->atomic) {
		length = roce_build_packet(qp, data, BTH(RC_ATOMIC_ACK), e->psn,
					   aeth | htobe64(e->value >> 32), htobe64(e->value << 32),
					   0, AETH_BYTES + VALUE_BYTES, NULL, 0);
	} else {
		opcode = first	? (last ? RC_READ_RESPONSE_ONLY : RC_READ_RESPONSE_FIRST)
			 : last ? RC_READ_RESPONSE_LAST
				: RC_READ_RESPONSE_MIDDLE;
		length = roce_build_packet(qp, data, BTH(opcode), (e->psn + e->sent) & PSN_MASK,
					   aeth, 0, 0, first || last ? AETH_BYTES : 0,
					   (const void *)(uintptr_t)(e->address + skip), n);
	}
	e->sent++;
	roce_frame_send(qp->ctx, frame, length, false);
	return true;
}

bool
roce_read_serve_answers(struct roce_qp *qp, unsigned *room)
{
	struct responder *rs = &qp->rs;
	unsigned quantum = ROCE_QUANTUM;

	while (rs->serving != rs->served_next) {
		struct served *e = entry(rs, rs->serving);

		if (e->sent == e->end) {
			/* it acknowledges all before it */
			if (rs->response == RESPOND_ACK &&
			    ((e->psn + e->end) & PSN_MASK) == rs->expected)
				rs->response = RESPOND_NONE;
			rs->serving++;
			continue;
		}
		if (*room == 0 || quantum-- == 0)
			return false;
		if (!roce_frame_ready(qp->ctx)) {
			*room = 0;
			return false;
		}
		weir_assert(e->sent >= e->begin && e->sent < e->end && e->end <= e->count);
		if (!send_answer(qp, e, qp->ctx->spare[qp->ctx->spare_count - 1])) {
			if (e->again) { /* a late copy of what has been answered: the peer is done
					 */
				e->sent = e->end;
				continue;
			}
			roce_responder_refuse(qp, NAK_REMOTE_ACCESS, (e->psn + e->sent) & PSN_MASK);
			roce_read_serve_stop(qp);
			return true;
		}
		qp->ctx->spare_count--;
		--*room;
	}
	return true;
}
