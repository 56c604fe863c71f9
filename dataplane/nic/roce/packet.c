/* SPDX-License-Identifier: BSD-3-Clause */
#include "packet.h"

enum {
	OP_FIRST = 0x01,
	OP_LAST = 0x02,
	OP_RETH = 0x04,
	OP_IMM = 0x08,
	OP_AETH = 0x10,
	OP_PAYLOAD = 0x20,
	OP_ONLY = OP_FIRST | OP_LAST,
};

struct opcode_info {
	uint8_t kind; /* enum packet_kind */
	uint8_t flags;
	uint8_t headers; /* bytes behind the BTH */
};

static const struct opcode_info opcodes[256] = {
    [RC_SEND_FIRST] = {PACKET_SEND, OP_FIRST | OP_PAYLOAD, 0},
    [RC_SEND_MIDDLE] = {PACKET_SEND, OP_PAYLOAD, 0},
    [RC_SEND_LAST] = {PACKET_SEND, OP_LAST | OP_PAYLOAD, 0},
    [RC_SEND_LAST_IMM] = {PACKET_SEND, OP_LAST | OP_IMM | OP_PAYLOAD, IMM_BYTES},
    [RC_SEND_ONLY] = {PACKET_SEND, OP_ONLY | OP_PAYLOAD, 0},
    [RC_SEND_ONLY_IMM] = {PACKET_SEND, OP_ONLY | OP_IMM | OP_PAYLOAD, IMM_BYTES},
    [RC_WRITE_FIRST] = {PACKET_WRITE, OP_FIRST | OP_RETH | OP_PAYLOAD, RETH_BYTES},
    [RC_WRITE_MIDDLE] = {PACKET_WRITE, OP_PAYLOAD, 0},
    [RC_WRITE_LAST] = {PACKET_WRITE, OP_LAST | OP_PAYLOAD, 0},
    [RC_WRITE_LAST_IMM] = {PACKET_WRITE, OP_LAST | OP_IMM | OP_PAYLOAD, IMM_BYTES},
    [RC_WRITE_ONLY] = {PACKET_WRITE, OP_ONLY | OP_RETH | OP_PAYLOAD, RETH_BYTES},
    [RC_WRITE_ONLY_IMM] = {PACKET_WRITE, OP_ONLY | OP_RETH | OP_IMM | OP_PAYLOAD,
			   RETH_BYTES + IMM_BYTES},
    [RC_READ_REQUEST] = {PACKET_READ, OP_ONLY | OP_RETH, RETH_BYTES},
    [RC_READ_RESPONSE_FIRST] = {PACKET_RESPONSE, OP_FIRST | OP_AETH | OP_PAYLOAD, AETH_BYTES},
    [RC_READ_RESPONSE_MIDDLE] = {PACKET_RESPONSE, OP_PAYLOAD, 0},
    [RC_READ_RESPONSE_LAST] = {PACKET_RESPONSE, OP_LAST | OP_AETH | OP_PAYLOAD, AETH_BYTES},
    [RC_READ_RESPONSE_ONLY] = {PACKET_RESPONSE, OP_ONLY | OP_AETH | OP_PAYLOAD, AETH_BYTES},
    [RC_ACK] = {PACKET_ACK, OP_AETH, AETH_BYTES},
    [RC_ATOMIC_ACK] = {PACKET_RESPONSE, OP_ONLY | OP_AETH, AETH_BYTES + 8},
    [RC_CMP_SWAP] = {PACKET_ATOMIC, OP_ONLY, 28},
    [RC_FETCH_ADD] = {PACKET_ATOMIC, OP_ONLY, 28},
    [UD_SEND_ONLY] = {PACKET_DATAGRAM, OP_ONLY | OP_PAYLOAD, 8},
    [UD_SEND_ONLY_IMM] = {PACKET_DATAGRAM, OP_ONLY | OP_PAYLOAD, 8 + IMM_BYTES},
    [ROCE_CNP] = {PACKET_CNP, 0, CNP_BYTES},
};

uint32_t
roce_ip_sum(const uint8_t *p, size_t length)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < length; i += 2)
		sum += get16(p + i);
	return sum;
}

/* IP and UDP: on success *end is the offset behind the UDP payload. */
static enum drop
decode_ip(const uint8_t *frame, size_t length, struct packet *p, uint32_t *end)
{
	const uint8_t *ip = frame + IP_AT, *udp = frame + UDP_AT;
	uint32_t ip_length;

	if (length < BTH_AT)
		return DROP_too_short;
	if (ip[0] != 0x45)
		return DROP_bad_ip;
	ip_length = get16(ip + 2);
	if (ip_length < IP_BYTES + UDP_BYTES || ip_length > length - IP_AT)
		return DROP_bad_ip;
	if (ip_fold(roce_ip_sum(ip, IP_BYTES)) != 0xffff)
		return DROP_bad_ip;
	/* 17 = UDP; no fragments: RoCE never needs any */
	if (ip[9] != 17 || get16(udp + 2) != ROCE_UDP_PORT)
		return DROP_not_ours;
	if ((get16(ip + 6) & 0x3fff) != 0 || get16(udp + 4) != ip_length - IP_BYTES)
		return DROP_bad_ip;
	p->marked = (ip[1] & 3) == 3;
	p->source_ip = get32(ip + 12);
	p->dest_ip = get32(ip + 16);
	*end = IP_AT + ip_length;
	return DROP_NONE;
}

static void
decode_headers(const uint8_t *h, const struct opcode_info *op, struct packet *p)
{
	if (op->flags & OP_RETH) {
		p->address = get64(h);
		p->rkey = get32(h + 8);
		p->dma_length = get32(h + 12);
		h += RETH_BYTES;
	}
	if (op->flags & OP_AETH)
		p->syndrome = h[0];
	p->has_imm = (op->flags & OP_IMM) != 0;
	if (p->has_imm)
		p->imm = get32(h);
}

static enum drop
decode_bth(const uint8_t *frame, uint32_t end, struct packet *p)
{
	const uint8_t *bth = frame + BTH_AT;
	const struct opcode_info *op;
	uint32_t pad, headers, rest;

	if (end < EXT_AT + ICRC_BYTES)
		return DROP_too_short;
	op = &opcodes[bth[0]];
	/* transport version 0; the P_Key's top bit only says full or limited member */
	if (op->kind == PACKET_NONE || (bth[1] & 0x0f) != 0 ||
	    ((get16(bth + 2) ^ ROCE_PKEY) & 0x7fff) != 0)
		return DROP_bad_bth;
	headers = EXT_AT + op->headers;
	if (end < headers + ICRC_BYTES)
		return DROP_too_short;
	pad = bth[1] >> 4 & 3;
	rest = end - headers - ICRC_BYTES;
	if (rest < pad || (rest & 3) != 0 || (!(op->flags & OP_PAYLOAD) && rest != 0))
		return DROP_bad_bth;
	p->kind = op->kind;
	p->opcode = bth[0];
	p->first = (op->flags & OP_FIRST) != 0;
	p->last = (op->flags & OP_LAST) != 0;
	p->solicited = (bth[1] & BTH_SOLICITED) != 0;
	p->becn = (bth[4] & BTH_BECN) != 0;
	p->qpn = get32(bth + 4) & QPN_MASK;
	p->ack_request = (bth[8] & BTH_ACK_REQ) != 0;
	p->psn = get32(bth + 8) & PSN_MASK;
	p->payload = frame + headers;
	p->payload_length = rest - pad;
	p->icrc_at = end - ICRC_BYTES;
	decode_headers(frame + EXT_AT, op, p);
	return DROP_NONE;
}

enum drop
roce_packet_decode(const uint8_t *frame, size_t length, struct packet *p)
{
	enum drop drop;
	uint32_t end;

	if (length < ETH_BYTES)
		return DROP_too_short;
	if (get16(frame + 12) == ETH_TYPE_ARP) {
		p->kind = PACKET_ARP;
		return length < ETH_BYTES + ARP_BYTES ? DROP_too_short : DROP_NONE;
	}
	if (get16(frame + 12) != ETH_TYPE_IP)
		return DROP_not_ours;
	drop = decode_ip(frame, length, p, &end);
	if (drop != DROP_NONE)
		return drop;
	return decode_bth(frame, end, p);
}
