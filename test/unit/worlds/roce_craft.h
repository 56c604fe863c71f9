/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames made by hand, with right checksums, for tests and fuzzing of the receiving side. */
#ifndef WEIR_TEST_ROCE_CRAFT_H
#define WEIR_TEST_ROCE_CRAFT_H

#include "nic/roce/icrc.h"
#include "nic/roce/packet.h"

struct craft {
	uint8_t opcode;
	uint32_t source_ip, dest_ip, qpn, psn;
	uint8_t source_mac[6], dest_mac[6];
	uint8_t tos, bth4;
	bool ack_request;
	bool reth, immediate;
	uint64_t address;
	uint32_t rkey, dma_length, imm;
	bool atomic; /* operands behind address and key */
	uint64_t swap_add, compare;
	bool aeth;
	uint8_t syndrome;
	bool value; /* behind the AETH: compare */
	const uint8_t *payload;
	uint32_t length;
};

/* Makes IP checksum, lengths and ICRC right for a frame whose headers up to the BTH are there. */
static inline void
craft_fix(uint8_t *f, uint32_t length)
{
	uint32_t crc;

	put16(f + IP_AT + 2, (uint16_t)(length - IP_AT));
	put16(f + UDP_AT + 4, (uint16_t)(length - UDP_AT));
	put16(f + IP_AT + 10, 0);
	put16(f + IP_AT + 10, (uint16_t)~ip_fold(ip_sum(f + IP_AT)));
	crc = htole32(roce_icrc(f + IP_AT, length - IP_AT - ICRC_BYTES));
	memcpy(f + length - ICRC_BYTES, &crc, ICRC_BYTES);
}

/* Returns the length. `f` has room for ROCE_FRAME_MAX(4096) + 28 bytes. */
static inline uint32_t
craft_frame(const struct craft *c, uint8_t *f)
{
	uint32_t at = EXT_AT, pad = -c->length & 3;

	memset(f, 0, EXT_AT);
	memcpy(f, c->dest_mac, 6);
	memcpy(f + 6, c->source_mac, 6);
	put16(f + 12, ETH_TYPE_IP);
	f[IP_AT] = 0x45;
	f[IP_AT + 1] = c->tos;
	f[IP_AT + 8] = 64;
	f[IP_AT + 9] = 17;
	put32(f + IP_AT + 12, c->source_ip);
	put32(f + IP_AT + 16, c->dest_ip);
	put16(f + UDP_AT, 0xd000);
	put16(f + UDP_AT + 2, ROCE_UDP_PORT);
	f[BTH_AT] = c->opcode;
	f[BTH_AT + 1] = (uint8_t)(pad << 4);
	put16(f + BTH_AT + 2, ROCE_PKEY);
	put32(f + BTH_AT + 4, c->qpn | (uint32_t)c->bth4 << 24);
	put32(f + BTH_AT + 8, c->psn | (c->ack_request ? 0x80000000u : 0));
	if (c->reth) {
		put64(f + at, c->address);
		put32(f + at + 8, c->rkey);
		put32(f + at + 12, c->dma_length);
		at += RETH_BYTES;
	}
	if (c->atomic) {
		put64(f + at, c->address);
		put32(f + at + 8, c->rkey);
		put64(f + at + 12, c->swap_add);
		put64(f + at + 20, c->compare);
		at += ATOMIC_BYTES;
	}
	if (c->aeth) {
		put32(f + at, (uint32_t)c->syndrome << 24);
		at += AETH_BYTES;
	}
	if (c->value) {
		put64(f + at, c->compare);
		at += VALUE_BYTES;
	}
	if (c->immediate) {
		put32(f + at, c->imm);
		at += IMM_BYTES;
	}
	if (c->length)
		memcpy(f + at, c->payload, c->length);
	memset(f + at + c->length, 0, pad + ICRC_BYTES);
	at += c->length + pad + ICRC_BYTES;
	craft_fix(f, at);
	return at;
}

/* The GID of an address: IPv4's, or fe80::IP; 0 is nobody in either. */
static inline struct nic_gid
craft_gid(bool six, uint32_t ip)
{
	struct nic_gid gid = nic_gid_ipv4(ip);

	if (six) {
		memset(gid.raw, 0, 12);
		gid.raw[0] = ip ? 0xfe : 0;
		gid.raw[1] = ip ? 0x80 : 0;
	}
	return gid;
}

/*
 * A plain IPv4 frame with other headers; its ICRC stays as right or wrong as it is. `f` has room
 * for FRONT_MAX more bytes. Returns the length.
 */
static inline uint32_t
craft_dress(const struct headers *h, const uint8_t *plain, uint32_t n, uint8_t *f)
{
	uint32_t length = n >= UDP_AT ? get16(plain + IP_AT + 2) : 0, end = IP_AT + length, crc;
	uint8_t *start = f;

	memcpy(f, plain, n < 12 ? n : 12);
	if (n <= 12)
		return n;
	f += 12;
	if (h->vlan) {
		put16(f, ETH_TYPE_VLAN);
		put16(f + 2, h->tag);
		f += VLAN_BYTES;
	}
	if (!h->six || n < UDP_AT || get16(plain + 12) != ETH_TYPE_IP) {
		memcpy(f, plain + 12, n - 12);
		return (uint32_t)(f - start) + n - 12;
	}
	put16(f, ETH_TYPE_IP6);
	f += 2;
	put32(f, 6u << 28 | (uint32_t)plain[IP_AT + 1] << 20 | 0x12345);
	put16(f + 4, (uint16_t)(length - IP_BYTES));
	f[6] = plain[IP_AT + 9];
	f[7] = plain[IP_AT + 8];
	memcpy(f + 8, craft_gid(true, get32(plain + IP_AT + 12)).raw, 16);
	memcpy(f + 24, craft_gid(true, get32(plain + IP_AT + 16)).raw, 16);
	memcpy(f + IP6_BYTES, plain + UDP_AT, n - UDP_AT);
	if (end <= n && end >= EXT_AT + ICRC_BYTES) {
		memcpy(&crc, plain + end - ICRC_BYTES, ICRC_BYTES);
		crc ^= htole32(roce_icrc(plain + IP_AT, length - ICRC_BYTES));
		length += IP6_BYTES - IP_BYTES - ICRC_BYTES;
		crc ^= htole32(roce_icrc6(f, length));
		memcpy(f + length, &crc, ICRC_BYTES);
	}
	return (uint32_t)(f - start) + IP6_BYTES + n - UDP_AT;
}

/* Makes the checksum of an ICMPv6 message right, whose IPv6 header begins at `ip`. */
static inline void
craft_icmp6(uint8_t *ip)
{
	uint32_t length = get16(ip + 4), sum = length + 58;

	put16(ip + IP6_BYTES + 2, 0);
	for (uint32_t at = 8; at < IP6_BYTES + length; at++)
		sum += (uint32_t)ip[at] << (at % 2 ? 0 : 8);
	put16(ip + IP6_BYTES + 2, (uint16_t)~ip_fold(sum));
}

#endif
