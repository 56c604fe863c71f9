/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes frames out of work requests. */
#include "core.h"
#include "icrc.h"

/* First opcode of the kind; FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM follow each other. */
static uint8_t
opcode_of(const struct sq_entry *wr, bool first, bool last)
{
	bool imm = wr->opcode == NIC_SEND_IMM || wr->opcode == NIC_WRITE_IMM;
	bool send = wr->opcode == NIC_SEND || wr->opcode == NIC_SEND_IMM;
	uint8_t base = send ? RC_SEND_FIRST : RC_WRITE_FIRST;

	if (!last)
		return base + (first ? 0 : 1);
	return base + (first ? 4 : 2) + imm;
}

/* Copies [offset, offset + n) of what the WR's list names. */
static void
gather(const struct sq_entry *wr, uint32_t offset, uint8_t *to, uint32_t n)
{
	const struct nic_sge *sge = wr->sge;

	if (wr->flags & NIC_INLINE) {
		memcpy(to, wr->data + offset, n);
		return;
	}
	while (n > 0) {
		uint32_t part;

		if (offset >= sge->length) {
			offset -= sge->length;
			sge++;
			continue;
		}
		part = sge->length - offset < n ? sge->length - offset : n;
		memcpy(to, (const void *)(uintptr_t)(sge->address + offset), part);
		to += part;
		n -= part;
		offset += part;
	}
}

static uint32_t
put_extended(const struct sq_entry *wr, uint8_t *frame, uint8_t opcode)
{
	uint32_t at = EXT_AT;

	if (opcode == RC_WRITE_FIRST || opcode >= RC_WRITE_ONLY) {
		put64(frame + at, wr->remote_address);
		put32(frame + at + 8, wr->rkey);
		put32(frame + at + 12, wr->length);
		at += RETH_BYTES;
	}
	if (opcode == RC_SEND_LAST_IMM || opcode == RC_SEND_ONLY_IMM ||
	    opcode == RC_WRITE_LAST_IMM || opcode == RC_WRITE_ONLY_IMM) {
		put32(frame + at, wr->imm);
		at += IMM_BYTES;
	}
	return at;
}

void
roce_build_frame(struct roce_qp *qp, uint8_t *frame, bool more, uint32_t *length)
{
	struct requester *rq = &qp->rq;
	struct sq_entry *wr = &rq->sq[rq->built & rq->sq_mask];
	uint32_t rest = wr->length - rq->offset, n = rest < qp->mtu ? rest : qp->mtu;
	uint32_t pad = -n & 3, psn = rq->next, at;
	bool last = n == rest;
	uint8_t *bth = frame + BTH_AT;

	memcpy(frame, qp->template, sizeof(qp->template));
	bth[0] = opcode_of(wr, rq->offset == 0, last);
	bth[1] = (uint8_t)(pad << 4 | (last && (wr->flags & NIC_SOLICITED) ? BTH_SOLICITED : 0));
	put32(bth + 8, psn & PSN_MASK);
	/* a window is never smaller than ROCE_MIN_FRAMES: one of its frames asks for an answer */
	if (!more || psn % ROCE_MIN_FRAMES == ROCE_MIN_FRAMES - 1)
		bth[8] = BTH_ACK_REQ;
	at = put_extended(wr, frame, bth[0]);
	gather(wr, rq->offset, frame + at, n);
	at += n;
	memset(frame + at, 0, 4); /* pad; the ICRC comes behind it */
	*length = roce_build_finish(qp, frame, at + pad);
	if (last) {
		wr->last_psn = psn;
		rq->built++;
		rq->offset = 0;
	} else {
		rq->offset += n;
	}
	rq->next = psn + 1;
}

uint32_t
roce_build_finish(const struct roce_qp *qp, uint8_t *frame, uint32_t end)
{
	uint32_t length = end + ICRC_BYTES - IP_AT, crc;

	neighbour_mac(qp->neighbour, frame);
	put16(frame + IP_AT + 2, (uint16_t)length);
	put16(frame + IP_AT + 10, (uint16_t)~ip_fold(qp->ip_sum + length));
	put16(frame + UDP_AT + 4, (uint16_t)(length - IP_BYTES));
	crc = htole32(roce_icrc(frame + IP_AT, end - IP_AT));
	memcpy(frame + end, &crc, ICRC_BYTES);
	return end + ICRC_BYTES;
}
