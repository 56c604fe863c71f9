/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READs and atomics, the sending half. A READ takes as many PSNs as its answer has frames; they
 * count as in flight, so one window bounds our frames and the peer's answers; a long READ goes as
 * several requests for that reason. Requests aren't kept as frames: missing answers are asked for
 * anew.
 */
#include "read_requester.h"
#include "ack.h"
#include "build.h"
#include "qp_poll.h"
#include "transmit.h"

#include <errno.h>

static bool
is_read(const struct sq_entry *wr)
{
	return wr->wire.first >= RC_READ_REQUEST;
}

static struct read_part *
oldest(const struct requester *rq)
{
	return &rq->reads[rq->reads_first & rq->reads_mask];
}

uint32_t
roce_read_next_psn(const struct requester *rq)
{
	uint32_t psn;

	if (rq->reads_first == rq->reads_next)
		return rq->next;
	psn = oldest(rq)->psn;
	return (int32_t)(rq->una - psn) > 0 ? rq->una : psn;
}

int
roce_read_take(struct sq_entry *e, const struct nic_send_wr *wr)
{
	if (wr->flags & NIC_INLINE)
		return -EINVAL;
	if (wr->opcode != NIC_READ && (e->length != VALUE_BYTES || (wr->remote_address & 7) != 0))
		return -EINVAL;
	e->compare_add = wr->compare_add;
	e->swap = wr->swap;
	return 0;
}

/* Bytes that the next request of a READ asks for. */
static uint32_t
next_part(const struct roce_qp *qp, const struct sq_entry *wr)
{
	const struct requester *rq = &qp->rq;
	uint32_t rest = wr->length - rq->offset, most = rq->window.size / 2;

	if (most > ROCE_READ_BYTES)
		most = ROCE_READ_BYTES;
	most /= qp->mtu;
	if (most > (rq->frame_mask + 1) / 2)
		most = (rq->frame_mask + 1) / 2;
	most = most == 0 ? qp->mtu : most * qp->mtu;
	return rest < most ? rest : most;
}

static uint32_t
frames_of(const struct roce_qp *qp, uint32_t bytes)
{
	return bytes == 0 ? 1 : (bytes + qp->mtu - 1) / qp->mtu;
}

static uint32_t
bytes_of(const struct roce_qp *qp, const struct sq_entry *wr, const struct read_part *f)
{
	uint32_t rest = wr->length - f->offset, most = (f->end - f->psn) * qp->mtu;

	return rest < most ? rest : most;
}

/* Asks for the answers from `psn` on. */
static void
send_request(struct roce_qp *qp, void *frame, const struct read_part *f, uint32_t psn)
{
	const struct sq_entry *wr = &qp->rq.sq[f->wr & qp->rq.sq_mask];
	uint32_t skip = (psn - f->psn) * qp->mtu, bth = BTH(wr->wire.only), length;
	uint64_t address = htobe64(wr->remote_address + f->offset + skip);
	uint64_t key = (uint64_t)wr->rkey << 32, compare, swap, ask = BTH_ACK_REQ << 24;
	uint8_t *data = roce_frame_data(qp->ctx, frame);

	ask |= psn & PSN_MASK;
	if (wr->opcode == NIC_READ) {
		key |= bytes_of(qp, wr, f) - skip;
		length = roce_build_packet(qp, data, bth, ask, address, htobe64(key), 0, RETH_BYTES,
					   NULL, 0);
	} else { /* the operand to compare with goes where a payload would */
		swap = wr->opcode == NIC_FETCH_ADD ? wr->compare_add : wr->swap;
		compare = wr->opcode == NIC_FETCH_ADD ? 0 : htobe64(wr->compare_add);
		length = roce_build_packet(qp, data, bth, ask, address, htobe64(key | swap >> 32),
					   htobe64(swap << 32), ATOMIC_BYTES - sizeof(compare),
					   &compare, sizeof(compare));
	}
	roce_frame_send(qp->ctx, frame, length, false);
}

bool
roce_read_waits(const struct roce_qp *qp, const struct sq_entry *wr)
{
	const struct requester *rq = &qp->rq;
	uint32_t count;

	if ((wr->flags & NIC_FENCE) && rq->reads_first != rq->reads_next)
		return true;
	if (!is_read(wr))
		return false;
	count = frames_of(qp, next_part(qp, wr));
	return rq->reads_next - rq->reads_first >= rq->reads_limit ||
	       count > rq->frame_mask + 1 - (rq->next - rq->una) ||
	       (rq->in_flight != 0 &&
		rq->in_flight + count * ROCE_FRAME_MAX(qp->mtu) > rq->window.size);
}

enum read_result
roce_read_next(struct roce_qp *qp, struct sq_entry *wr, uint64_t now)
{
	struct requester *rq = &qp->rq;
	uint32_t bytes, count, frame;
	struct read_part *f;

	if (roce_read_waits(qp, wr))
		return READ_WAITS;
	if (!is_read(wr)) {
		if (wr->flags & NIC_FENCE) { /* passed: from now on an ordinary WR */
			wr->flags &= (uint16_t)~NIC_FENCE;
			rq->special--;
		}
		return READ_NONE;
	}
	if (rq->offset == 0 && !memory_ok(qp, wr, NIC_LOCAL_WRITE)) {
		roce_qp_fail(qp, rq->built, NIC_WC_LOC_PROT_ERR);
		return READ_WAITS;
	}
	weir_assert(rq->reads_next - rq->reads_first <= rq->reads_mask);
	bytes = next_part(qp, wr);
	count = frames_of(qp, bytes);
	frame = ROCE_FRAME_MAX(bytes < qp->mtu ? bytes : qp->mtu);
	f = &rq->reads[rq->reads_next++ & rq->reads_mask];
	*f = (struct read_part){rq->next, rq->next + count, rq->built, rq->offset};
	window_sent(&rq->window, rq->next, now);
	/* the answers have places among the frames in flight */
	for (uint32_t psn = f->psn; psn != f->end; psn++) {
		rq->frames[psn & rq->frame_mask] = NULL;
		rq->lengths[psn & rq->frame_mask] = (uint16_t)frame;
	}
	rq->unframed += count;
	rq->in_flight += count * frame;
	rq->send = rq->next = f->end;
	rq->offset += bytes;
	weir_assert(rq->offset <= wr->length && rq->special > 0);
	if (rq->offset == wr->length) {
		wr->last_psn = rq->next - 1;
		rq->built++;
		rq->offset = 0;
		rq->special--;
	}
	send_request(qp, qp->ctx->spare[--qp->ctx->spare_count], f, f->psn);
	return READ_SENT;
}

bool
roce_read_again(struct roce_qp *qp)
{
	struct requester *rq = &qp->rq;
	uint32_t i = rq->reads_first;
	struct read_part *f = oldest(rq);
	void *frame = roce_frame_take(qp->ctx);

	rq->out_of_frames = frame == NULL;
	if (frame == NULL)
		return false;
	while ((int32_t)(rq->send - f->end) >= 0)
		f = &rq->reads[++i & rq->reads_mask];
	send_request(qp, frame, f, rq->send);
	for (; rq->send != f->end; rq->send++)
		rq->in_flight += rq->lengths[rq->send & rq->frame_mask];
	roce_count(&qp->ctx->counters.retransmits, 1);
	return true;
}

/* Writes n bytes to [offset, offset + n) of the WR's memory. */
static bool
scatter(const struct roce_qp *qp, const struct sq_entry *wr, uint32_t offset, const uint8_t *from,
	uint32_t n)
{
	const struct nic_sge *sge = wr->sge;

	while (n > 0) {
		uint32_t part;

		if (offset >= sge->length) {
			offset -= sge->length;
			sge++;
			continue;
		}
		part = sge->length - offset < n ? sge->length - offset : n;
		/* the region may be gone meanwhile */
		if (!mr_check(&qp->ctx->dev->mrs, sge->lkey, sge->address + offset, part,
			      NIC_LOCAL_WRITE))
			return false;
		if ((uintptr_t)from != sge->address + offset) /* else placed already */
			memcpy((void *)(uintptr_t)(sge->address + offset), from, part);
		from += part;
		n -= part;
		offset += part;
	}
	return true;
}

/* Whether an answer can be the one with `rest` bytes to come. */
static bool
fits(const struct roce_qp *qp, const struct sq_entry *wr, const struct packet *p, uint32_t rest)
{
	if ((p->flags & PACKET_AETH) && (p->syndrome & 0xe0) != AETH(AETH_ACK, 0))
		return false;
	if (wr->opcode != NIC_READ)
		return p->flags & PACKET_VALUE;
	if (p->flags & PACKET_VALUE)
		return false;
	if (rest <= qp->mtu)
		return (p->flags & PACKET_LAST) && p->payload_length == rest;
	return !(p->flags & PACKET_LAST) && p->payload_length == qp->mtu;
}

uint8_t *
roce_read_place(const struct roce_qp *qp, const struct packet *p)
{
	const struct requester *rq = &qp->rq;
	uint32_t psn = roce_read_next_psn(rq), n = p->payload_length, at;
	const struct read_part *f = oldest(rq);
	const struct sq_entry *wr = &rq->sq[f->wr & rq->sq_mask];

	if (rq->reads_first == rq->reads_next || p->psn != (psn & PSN_MASK) ||
	    wr->opcode != NIC_READ || wr->sge_count != 1 || n == 0 || (n & 3) != 0)
		return NULL;
	at = f->offset + (psn - f->psn) * qp->mtu;
	if (!fits(qp, wr, p, bytes_of(qp, wr, f) - (psn - f->psn) * qp->mtu) ||
	    !mr_check(&qp->ctx->dev->mrs, wr->sge[0].lkey, wr->sge[0].address + at, n,
		      NIC_LOCAL_WRITE))
		return NULL;
	return (uint8_t *)(uintptr_t)(wr->sge[0].address + at);
}

enum drop
roce_read_response(struct roce_qp *qp, const struct packet *p, uint64_t now)
{
	struct requester *rq = &qp->rq;
	uint32_t distance = (p->psn - rq->una) & PSN_MASK, psn = roce_read_next_psn(rq), skip;
	struct read_part *f = oldest(rq);
	struct sq_entry *wr;
	uint64_t value;
	bool known, stored;

	if (qp_state(qp) != NIC_QP_RTS)
		return DROP_no_qp;
	if (rq->reads_first == rq->reads_next || distance >= rq->next - rq->una ||
	    (int32_t)(rq->una + distance - psn) < 0)
		return DROP_duplicate;
	/* behind the next answer: that was lost, and is asked for once, unless the answers begin
	 * anew */
	if (rq->una + distance != psn) {
		psn = rq->una + distance;
		known = rq->went_back != 0 && (int32_t)(psn - rq->answer) >= 0;
		rq->answer = psn;
		return known ? DROP_out_of_order : roce_read_lost(qp, now);
	}
	wr = &rq->sq[f->wr & rq->sq_mask];
	skip = (psn - f->psn) * qp->mtu;
	if (!fits(qp, wr, p, bytes_of(qp, wr, f) - skip)) { /* asking again would not help */
		roce_qp_fail(qp, f->wr, NIC_WC_BAD_RESP_ERR);
		return DROP_bad_request;
	}
	if (p->marked) { /* the peer's answers queue at a switch: fewer at once */
		roce_window_marked(&rq->window, rq->next);
		roce_ack_congestion(qp, now);
	}
	if (wr->opcode == NIC_READ) {
		stored = scatter(qp, wr, f->offset + skip, p->payload, p->payload_length);
	} else {
		value = packet_value(p);
		stored = scatter(qp, wr, 0, (const uint8_t *)&value, VALUE_BYTES);
	}
	if (!stored) {
		roce_qp_fail(qp, f->wr, NIC_WC_LOC_PROT_ERR);
		return DROP_NONE;
	}
	if (wr->opcode == NIC_READ)
		roce_count(&qp->ctx->counters.read_bytes, p->payload_length);
	rq->reads_first += psn + 1 == f->end;
	roce_requester_advance(qp, psn + 1, now);
	return DROP_NONE;
}

enum drop
roce_read_lost(struct roce_qp *qp, uint64_t now)
{
	uint32_t psn = roce_read_next_psn(&qp->rq);

	if (psn != qp->rq.una)
		roce_requester_advance(qp, psn, now);
	roce_requester_lost(qp, now);
	return DROP_out_of_order;
}
