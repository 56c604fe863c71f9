/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoder, inline for received frames; other places call roce_packet_decode(). */
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

/* Frames that are not IP, or too short for RoCE. */
static inline enum drop
decode_other(const uint8_t *data, size_t length, const struct headers *h, struct packet *p)
{
	size_t ethernet = ETH_BYTES + (h->vlan ? VLAN_BYTES : 0);
	uint16_t type;

	if (length < ethernet)
		return DROP_too_short;
	if (h->vlan &&
	    (get16(data + 12) != ETH_TYPE_VLAN || (get16(data + 14) & VLAN_ID_MASK) != h->vlan))
		return DROP_not_ours;
	type = get16(data + ethernet - 2);
	if (type == (h->six ? ETH_TYPE_IP6 : ETH_TYPE_IP))
		return DROP_too_short;
	if (type != ETH_TYPE_ARP || h->six)
		return DROP_not_ours;
	p->kind = PACKET_ARP;
	return length < ethernet + ARP_BYTES ? DROP_too_short : DROP_NONE;
}

/* IPv4: its length is that of header and payload. `room`: bytes of the frame from there on. */
static inline enum drop
decode_ip4(const uint8_t *ip, size_t room, bool checked, struct packet *p, uint32_t *payload)
{
	uint32_t first = get32(ip), ip_length = first & 0xffff;

	/* version and header length; no fragments: RoCE never needs any */
	if (first >> 24 != 0x45 || ip_length > room || !(checked || ip_sum_ok(ip)) ||
	    (get16(ip + 6) & 0x3fff) != 0)
		return DROP_bad_ip;
	if (ip[9] != 17)
		return DROP_not_ours;
	p->marked = (first >> 16 & 3) == 3;
	p->source = (struct address){0, get32(ip + 12)};
	p->dest = (struct address){0, get32(ip + 16)};
	*payload = ip_length - IP_BYTES;
	return DROP_NONE;
}

/* IPv6: no extension headers, RoCE never needs any. ICMPv6 is left to nd.c. */
static inline enum drop
decode_ip6(const uint8_t *ip, size_t room, struct packet *p, uint32_t *payload)
{
	uint32_t first = get32(ip);

	*payload = get16(ip + 4);
	if (first >> 28 != 6 || *payload > room - IP6_BYTES || ip[8] == 0xff)
		return DROP_bad_ip;
	p->source = get_address(ip + 8);
	p->dest = get_address(ip + 24);
	p->marked = (first >> 20 & 3) == 3;
	p->kind = ip[6] == 58 ? PACKET_ND : PACKET_NONE;
	return ip[6] == 17 || ip[6] == 58 ? DROP_NONE : DROP_not_ours;
}

/* IP and UDP: *end is the offset behind the UDP payload. */
static inline enum drop
decode_ip(const uint8_t *frame, size_t length, const struct headers *h, struct packet *p,
	  uint32_t *end)
{
	const uint8_t *udp = frame + UDP_AT;
	uint32_t payload;
	enum drop drop;

	if (h->six)
		drop = decode_ip6(frame + IP6_AT, length - (size_t)IP6_AT, p, &payload);
	else
		drop = decode_ip4(frame + IP_AT, length - IP_AT, h->checked, p, &payload);
	if (drop != DROP_NONE || (h->six && p->kind == PACKET_ND))
		return drop;
	if (get16(udp + 2) != ROCE_UDP_PORT)
		return DROP_not_ours;
	/* negative lengths count as very long */
	if (payload - (EXT_AT + ICRC_BYTES - UDP_AT) > UINT16_MAX)
		return DROP_too_short;
	if (get16(udp + 4) != payload)
		return DROP_bad_ip;
	*end = UDP_AT + payload;
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

/* Whether the frame has the length of RoCE's headers and the right tag and type. */
static inline bool
decode_ethernet(const uint8_t *data, size_t length, const struct headers *h)
{
	if (length < h->front + (size_t)(EXT_AT + ICRC_BYTES))
		return false;
	if (h->vlan &&
	    (get16(data + 12) != ETH_TYPE_VLAN || (get16(data + 14) & VLAN_ID_MASK) != h->vlan))
		return false;
	return h->six ? get16(data + h->front + IP6_AT - 2) == ETH_TYPE_IP6
		      : get16(data + h->front + IP_AT - 2) == ETH_TYPE_IP;
}

/* All offsets and pointers in *p count from data + h->front. */
static inline __attribute__((always_inline)) enum drop
decode(const uint8_t *data, size_t length, const struct headers *h, struct packet *p)
{
	const uint8_t *frame = data + h->front, *bth = frame + BTH_AT;
	const struct opcode_info *op;
	uint32_t pad, headers, rest, end, psn;
	enum drop drop;

	if (!decode_ethernet(data, length, h))
		return decode_other(data, length, h, p);
	drop = decode_ip(frame, length - h->front, h, p, &end);
	if (drop != DROP_NONE || (h->six && p->kind == PACKET_ND))
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
