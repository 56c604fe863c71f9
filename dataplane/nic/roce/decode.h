/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoder itself, for the one place where its speed matters; all others call
 * roce_packet_decode(). */
#ifndef WEIR_ROCE_DECODE_H
#define WEIR_ROCE_DECODE_H

#include "packet.h"

struct opcode_info {
	uint8_t kind; /* enum packet_kind */
	uint8_t flags;
	uint8_t headers; /* bytes behind the BTH */
};

extern const struct opcode_info roce_opcodes[256];

#define BTH_FIXED_MASK 0x000f7fffu /* version, and P_Key without the bit of full membership */
#define BTH_FIXED (ROCE_PKEY & BTH_FIXED_MASK)

/* All that isn't IP, and what is too short for RoCE. */
static inline enum drop
decode_other(const uint8_t *frame, size_t length, struct packet *p)
{
	if (length < ETH_BYTES)
		return DROP_too_short;
	if (get16(frame + 12) == ETH_TYPE_IP)
		return DROP_too_short;
	if (get16(frame + 12) != ETH_TYPE_ARP)
		return DROP_not_ours;
	p->kind = PACKET_ARP;
	return length < ETH_BYTES + ARP_BYTES ? DROP_too_short : DROP_NONE;
}

/* IP and UDP: *end is the offset behind the UDP payload. */
static inline enum drop
decode_ip(const uint8_t *frame, size_t length, struct packet *p, uint32_t *end)
{
	const uint8_t *ip = frame + IP_AT, *udp = frame + UDP_AT;
	uint32_t first = get32(ip), ip_length = first & 0xffff;

	/* version and header length; no fragments: RoCE never needs any */
	if (first >> 24 != 0x45 || ip_length > length - IP_AT || !ip_sum_ok(ip) ||
	    (get16(ip + 6) & 0x3fff) != 0)
		return DROP_bad_ip;
	if (ip[9] != 17 || get16(udp + 2) != ROCE_UDP_PORT)
		return DROP_not_ours;
	if (ip_length < EXT_AT + ICRC_BYTES - IP_AT)
		return DROP_too_short;
	if (get16(udp + 4) != ip_length - IP_BYTES)
		return DROP_bad_ip;
	p->marked = (first >> 16 & 3) == 3;
	p->source_ip = get32(ip + 12);
	p->dest_ip = get32(ip + 16);
	*end = IP_AT + ip_length;
	return DROP_NONE;
}

static inline void
decode_headers(const uint8_t *h, struct packet *p)
{
	if (p->flags & PACKET_RETH) {
		p->address = get64(h);
		p->rkey = get32(h + 8);
		p->dma_length = get32(h + 12);
		h += RETH_BYTES;
	}
	if (p->flags & (PACKET_IMM | PACKET_INV | PACKET_AETH)) { /* no packet has two of them */
		p->syndrome = h[0];
		p->imm = get32(h);
	}
}

static inline enum drop
decode(const uint8_t *frame, size_t length, struct packet *p)
{
	const uint8_t *bth = frame + BTH_AT;
	const struct opcode_info *op;
	uint32_t pad, headers, rest, end, psn;
	enum drop drop;

	if (length < EXT_AT + ICRC_BYTES || get16(frame + 12) != ETH_TYPE_IP)
		return decode_other(frame, length, p);
	drop = decode_ip(frame, length, p, &end);
	if (drop != DROP_NONE)
		return drop;
	op = &roce_opcodes[bth[0]];
	if (op->kind == PACKET_NONE || (get32(bth) & BTH_FIXED_MASK) != BTH_FIXED)
		return DROP_bad_bth;
	headers = EXT_AT + op->headers;
	if (end < headers + ICRC_BYTES)
		return DROP_too_short;
	pad = bth[1] >> 4 & 3;
	rest = end - headers - ICRC_BYTES;
	if (rest < pad || (rest & 3) != 0 || (rest != 0 && !(op->flags & PACKET_PAYLOAD)))
		return DROP_bad_bth;
	psn = get32(bth + 8);
	p->kind = op->kind;
	p->flags = op->flags;
	p->qpn = get32(bth + 4) & QPN_MASK;
	p->ack_request = psn >> 31;
	p->psn = psn & PSN_MASK;
	p->payload = frame + headers;
	p->payload_length = rest - pad;
	p->icrc_at = end - ICRC_BYTES;
	decode_headers(frame + EXT_AT, p);
	return DROP_NONE;
}

#endif
