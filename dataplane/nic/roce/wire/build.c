/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes frames out of work requests. */
#include "build.h"
#include "icrc.h"
#include "transmit.h"

uint32_t
roce_template_make(const struct roce_device *dev, struct address ip, uint8_t traffic_class,
		   uint8_t priority, uint8_t *template)
{
	uint8_t *t = template + ROCE_TEMPLATE_AT, ecn_capable = (traffic_class & 0xfc) | 2;
	uint8_t *ip4 = t + IP_AT, *ip6 = t + IP6_AT;

	roce_frame_ethernet(dev, t, (const uint8_t[6]){0});
	if (dev->headers.vlan && priority)
		put16(t - dev->headers.front + TAG_AT,
		      (uint16_t)((priority - 1) << 13 | dev->headers.vlan));
	if (dev->headers.six) { /* flow label 0: the UDP source port tells flows apart */
		put32(ip6, 6u << 28 | (uint32_t)ecn_capable << 20);
		ip6[6] = 17;
		ip6[7] = 64;
		put_address(ip6 + 8, dev->address);
		put_address(ip6 + 24, ip);
	} else {
		ip4[0] = 0x45;
		ip4[1] = ecn_capable;
		put16(ip4 + 6, 0x4000); /* never fragmented */
		ip4[8] = 64;
		ip4[9] = 17;
		put32(ip4 + 12, (uint32_t)dev->address.low);
		put32(ip4 + 16, (uint32_t)ip.low);
	}
	put16(t + UDP_AT + 2, ROCE_UDP_PORT);
	put16(t + BTH_AT + 2, ROCE_PKEY);
	return dev->headers.six ? 0 : ip_sum(t + IP_AT);
}

uint16_t
roce_source_port(uint32_t qpn, uint32_t peer_qpn)
{
	return (uint16_t)(0xc000 | (qpn ^ peer_qpn) * 2654435761u >> 18);
}

/* Lengths, checksum and MAC. The UDP checksum is 0 (annex A17), with IPv6 too. */
static void
fit(const struct headers *h, uint8_t *t, uint32_t sum, uint64_t mac, uint32_t end)
{
	uint32_t length = end + ICRC_BYTES - UDP_AT;

	memcpy(t - h->front, &mac, 6);
	put16(t + UDP_AT + 4, (uint16_t)length);
	if (h->six) {
		put16(t + IP6_AT + 4, (uint16_t)length);
		return;
	}
	length += IP_BYTES;
	put16(t + IP_AT + 2, (uint16_t)length);
	put16(t + IP_AT + 10, (uint16_t)~ip_fold(sum + length));
}

/* A cache line, and longer headers before it: 4, 20 or 24 bytes. */
static inline void
copy_template(const struct headers *h, uint8_t *frame, const uint8_t *t)
{
	enum { LONGER = IP6_BYTES - IP_BYTES };

	if (h->front != 0) {
		memcpy(frame - h->front, t - h->front, VLAN_BYTES);
		if (h->six)
			memcpy(frame - LONGER, t - LONGER, LONGER);
	}
	memcpy(frame, t, CACHE_LINE);
}

void
roce_template_use(const struct headers *h, const uint8_t *template, uint32_t sum, uint64_t mac,
		  uint8_t *frame, uint32_t end)
{
	copy_template(h, frame, template + ROCE_TEMPLATE_AT);
	fit(h, frame, sum, mac, end);
}

static __attribute__((noinline)) void
fit_template(struct roce_qp *qp, uint32_t end, uint64_t mac)
{
	fit(&qp->headers, qp->template + ROCE_TEMPLATE_AT, qp->ip_sum, mac, end);
	qp->fits_end = end;
	qp->fits_mac = mac;
}

static uint32_t
put_icrc(uint8_t *frame, uint32_t end, uint32_t crc)
{
	crc = htole32(crc);
	memcpy(frame + end, &crc, ICRC_BYTES);
	return end + ICRC_BYTES;
}

uint32_t
roce_build_copy(const struct roce_qp *qp, uint8_t *frame, uint32_t at, const void *payload,
		uint32_t n)
{
	uint32_t crc = frame_icrc_copy(qp->headers.six, frame, at, payload, n);

	return put_icrc(frame, at + n + (-n & 3), crc);
}

const void *
roce_build_payload(const struct roce_qp *qp, const struct sq_entry *wr, uint32_t offset, uint32_t n)
{
	const struct nic_sge *sge = wr->sge;
	uint32_t part;
	uint8_t *to;

	if (wr->flags & NIC_INLINE)
		return wr->data + offset;
	if (wr->sge_count == 1)
		return (const void *)(uintptr_t)(wr->sge[0].address + offset);
	for (to = qp->ctx->gathered; n > 0;) {
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
	return qp->ctx->gathered;
}

/* IPv4 without a tag goes through registers: bytes that were just stored in pieces load slowly. */
static inline __attribute__((always_inline)) uint32_t
build_packet(struct roce_qp *qp, uint8_t *frame, uint32_t bth, uint64_t psn, uint64_t e0,
	     uint64_t e1, uint64_t e2, uint32_t extended, const void *payload, uint32_t n)
{
	uint32_t pad = -n & 3, at = EXT_AT + extended, end = at + n + pad, crc;
	uint64_t numbers = htobe64((uint64_t)qp->peer_qpn << 32 | psn);
	uint64_t mac = neighbour_mac(qp->neighbour);
	const uint8_t *template = qp->template + ROCE_TEMPLATE_AT;

	/* most frames are as long as the one before */
	if (end != qp->fits_end || mac != qp->fits_mac)
		fit_template(qp, end, mac);
	bth = htobe32(bth | pad << 20 | ROCE_PKEY);
	if (qp->headers.front != 0) {
		const uint64_t behind[] = {numbers, e0, e1, e2};

		copy_template(&qp->headers, frame, template);
		memcpy(frame + BTH_AT, &bth, sizeof(bth));
		memcpy(frame + BTH_AT + sizeof(bth), behind, sizeof(behind));
		return roce_build_copy(qp, frame, at, payload, n);
	}
	memcpy(frame, template, 16);
	crc = roce_icrc_frame(frame + IP_AT, template + IP_AT, numbers, e0, e1, e2, bth, at - IP_AT,
			      payload, n);
	return put_icrc(frame, end, crc);
}

uint32_t
roce_build_packet(struct roce_qp *qp, uint8_t *frame, uint32_t bth, uint64_t psn, uint64_t e0,
		  uint64_t e1, uint64_t e2, uint32_t extended, const void *payload, uint32_t n)
{
	return build_packet(qp, frame, bth, psn, e0, e1, e2, extended, payload, n);
}

/*
 * A packet of a request. `psn` has the bit that asks for an answer; first, last: of its message,
 * whose length is `whole`.
 */
static inline __attribute__((always_inline)) uint32_t
build_request(struct roce_qp *qp, uint8_t *frame, struct wire_form form, uint16_t flags,
	      uint32_t imm, uint64_t remote_address, uint32_t rkey, uint32_t whole, uint32_t psn,
	      bool first, bool last, const void *payload, uint32_t n)
{
	uint32_t extended = 0,
		 bth = BTH(last ? (first ? form.only : form.last) : form.first + !first);
	uint64_t e0 = 0, e1 = 0, e2 = 0;

	/* the standard allows the bit only where a receive WR is taken */
	if (last && (flags & NIC_SOLICITED) && form.last != RC_WRITE_LAST)
		bth |= BTH_SOLICITED << 16;
	if (last && form.has_imm) {
		e0 = htobe64((uint64_t)imm << 32);
		extended = IMM_BYTES;
	}
	if (first && form.first == RC_WRITE_FIRST) {
		e2 = e0;
		e0 = htobe64(remote_address);
		e1 = htobe64((uint64_t)rkey << 32 | whole);
		extended += RETH_BYTES;
	}
	return build_packet(qp, frame, bth, psn, e0, e1, e2, extended, payload, n);
}

uint32_t
roce_build_frame(struct roce_qp *qp, struct sq_entry *wr, uint8_t *frame, bool more)
{
	struct requester *rq = &qp->rq;
	uint32_t rest = wr->length - rq->offset, n = rest < qp->mtu ? rest : qp->mtu;
	bool first = rq->offset == 0, last = n == rest;
	uint32_t psn = rq->next & PSN_MASK, length;

	/* a window is never smaller than ROCE_MIN_FRAMES: one of its frames asks for an answer */
	if (!more || psn % ROCE_MIN_FRAMES == ROCE_MIN_FRAMES - 1)
		psn |= (uint32_t)BTH_ACK_REQ << 24;
	length = build_request(qp, frame, wr->wire, wr->flags, wr->imm, wr->remote_address,
			       wr->rkey, wr->length, psn, first, last,
			       roce_build_payload(qp, wr, rq->offset, n), n);
	rq->offset += n;
	weir_assert(rq->offset <= wr->length);
	if (last) {
		wr->last_psn = rq->next;
		rq->built++;
		rq->offset = 0;
	}
	return length;
}

/* Inlined where a lone WR is posted: a call with its registers is a tenth of this. */
inline __attribute__((always_inline)) uint32_t
roce_build_only(struct roce_qp *qp, const struct nic_send_wr *wr, struct wire_form form,
		uint8_t *frame)
{
	uint32_t psn = (qp->rq.next & PSN_MASK) | (uint32_t)BTH_ACK_REQ << 24;
	const struct nic_sge *sge = &wr->sge[0];

	return build_request(qp, frame, form, wr->flags, wr->imm, wr->remote_address, wr->rkey,
			     sge->length, psn, true, true, (const void *)(uintptr_t)sge->address,
			     sge->length);
}
