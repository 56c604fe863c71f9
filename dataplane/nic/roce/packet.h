/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes of RoCEv2 frames (IBTA volume 1 chapter 9 and annex A17): offsets, opcodes, and the one
 * decoder through which every received frame goes.
 *
 * Offsets are those of IPv4 without a VLAN tag. Where headers are longer, a frame begins
 * headers.front bytes before offset 0, and the UDP header has the same offset.
 */
#ifndef WEIR_ROCE_PACKET_H
#define WEIR_ROCE_PACKET_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nic/nic.h"

enum {
	ETH_BYTES = 14,
	TAG_AT = ETH_BYTES, /* of the VLAN tag's second half, from the frame's first byte */
	VLAN_BYTES = 4,
	IP_BYTES = 20,
	IP6_BYTES = 40,
	UDP_BYTES = 8,
	BTH_BYTES = 12,
	RETH_BYTES = 16,
	AETH_BYTES = 4,
	IMM_BYTES = 4, /* an immediate, or a key to invalidate */
	ATOMIC_BYTES = 28,
	VALUE_BYTES = 8, /* of an atomic's answer, behind the AETH */
	ICRC_BYTES = 4,
	ARP_BYTES = 28,
	CNP_BYTES = 16, /* reserved bytes behind the BTH */
	IP_AT = ETH_BYTES,
	UDP_AT = IP_AT + IP_BYTES,
	BTH_AT = UDP_AT + UDP_BYTES,
	EXT_AT = BTH_AT + BTH_BYTES, /* where extended headers begin */
	IP6_AT = UDP_AT - IP6_BYTES,
	FRONT_MAX = IP6_BYTES - IP_BYTES + VLAN_BYTES,
	ETH_MIN = 60, /* shortest frame on Ethernet, FCS not counted */
};

/* Headers in front of UDP in a device's frames. */
struct headers {
	uint8_t front; /* bytes more than Ethernet and IPv4 have */
	bool six;      /* IPv6 */
	bool checked;  /* the port has verified the IPv4 header's checksum */
	uint16_t vlan; /* ID; 0: no tag */
	uint16_t tag;  /* what follows 0x8100 */
};

/* An address in host order; IPv4: high is 0. */
struct address {
	uint64_t high, low;
};

#define ETH_TYPE_IP 0x0800u
#define ETH_TYPE_ARP 0x0806u
#define ETH_TYPE_VLAN 0x8100u
#define ETH_TYPE_IP6 0x86ddu
#define VLAN_ID_MASK 0xfffu
#define ROCE_UDP_PORT 4791u
#define ROCE_PKEY 0xffffu
#define PSN_MASK 0xffffffu
#define QPN_MASK 0xffffffu

#define BTH(opcode) ((uint32_t)(opcode) << 24) /* its first word in host order */
#define BTH_SOLICITED 0x80u		       /* in byte 1 */
#define BTH_BECN 0x40u			       /* in byte 4 */
#define BTH_ACK_REQ 0x80u		       /* in byte 8 */

enum opcode {
	RC_SEND_FIRST = 0x00,
	RC_SEND_MIDDLE,
	RC_SEND_LAST,
	RC_SEND_LAST_IMM,
	RC_SEND_ONLY,
	RC_SEND_ONLY_IMM,
	RC_WRITE_FIRST,
	RC_WRITE_MIDDLE,
	RC_WRITE_LAST,
	RC_WRITE_LAST_IMM,
	RC_WRITE_ONLY,
	RC_WRITE_ONLY_IMM,
	RC_READ_REQUEST,
	RC_READ_RESPONSE_FIRST,
	RC_READ_RESPONSE_MIDDLE,
	RC_READ_RESPONSE_LAST,
	RC_READ_RESPONSE_ONLY,
	RC_ACK,
	RC_ATOMIC_ACK,
	RC_CMP_SWAP,
	RC_FETCH_ADD,
	RC_RESERVED, /* as are 0x18 to RC_END */
	RC_SEND_LAST_INV,
	RC_SEND_ONLY_INV,
	RC_END = 0x1f,
	UD_SEND_ONLY = 0x64,
	UD_SEND_ONLY_IMM,
	ROCE_CNP = 0x81,
};

enum packet_kind {
	PACKET_NONE, /* unknown opcode */
	PACKET_ARP,
	PACKET_ND, /* ICMPv6 */
	PACKET_SEND,
	PACKET_WRITE,
	PACKET_READ,
	PACKET_ATOMIC,
	PACKET_RESERVED, /* RC opcode without a meaning, or one that is not offered: a request */
	PACKET_ACK,
	PACKET_RESPONSE, /* to READ and atomics */
	PACKET_DATAGRAM,
	PACKET_CNP,
};

/* AETH syndrome: type in bits 5-6, value in bits 0-4. */
enum aeth_type { AETH_ACK = 0, AETH_RNR = 1, AETH_NAK = 3 };
enum nak_code { NAK_SEQUENCE, NAK_INVALID_REQUEST, NAK_REMOTE_ACCESS, NAK_REMOTE_OPERATION };
#define AETH(type, value) ((uint8_t)((type) << 5 | (value)))
#define AETH_TYPE(syndrome) ((syndrome) >> 5)
#define AETH_VALUE(syndrome) ((syndrome)&0x1fu)
#define AETH_UNLIMITED 31u /* credit count: the responder grants none, the requester asks none */

/* Reasons to drop, named like the counters of struct nic_counters. */
enum drop {
#define X(name, help) DROP_##name,
	NIC_DROP_REASONS(X)
#undef X
	    DROP_NONE,
};

enum {			    /* flags of an opcode, and so of a packet */
       PACKET_FIRST = 0x01, /* of its message */
       PACKET_LAST = 0x02,
       PACKET_RETH = 0x04,
       PACKET_IMM = 0x08,
       PACKET_AETH = 0x10,
       PACKET_PAYLOAD = 0x20,
       PACKET_INV = 0x40,   /* a key in the place of an immediate */
       PACKET_VALUE = 0x80, /* of an atomic */
       PACKET_ONLY = PACKET_FIRST | PACKET_LAST,
};

/* A decoded packet. Pointers are into the frame. */
struct packet {
	uint8_t kind;  /* enum packet_kind */
	uint8_t flags; /* PACKET_FIRST ... */
	bool ack_request;
	bool marked;	  /* congestion experienced */
	uint8_t syndrome; /* AETH */
	struct address source, dest;
	uint32_t qpn, psn;
	uint32_t imm;		   /* or key */
	uint32_t source_qpn;	   /* of a datagram */
	uint64_t address;	   /* RETH, atomics */
	uint32_t rkey, dma_length; /* dma_length: not of atomics */
	const uint8_t *payload;
	uint32_t payload_length; /* without pad */
	uint32_t icrc_at;	 /* offset of the ICRC */
};

static inline uint16_t
get16(const uint8_t *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}

static inline uint32_t
get32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static inline uint64_t
get64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static inline void
put16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void
put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void
put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

static inline bool
address_same(struct address a, struct address b)
{
	return a.low == b.low && a.high == b.high;
}

static inline struct address
get_address(const uint8_t *p)
{
	return (struct address){get64(p), get64(p + 8)};
}

static inline void
put_address(uint8_t *p, struct address a)
{
	put64(p, a.high);
	put64(p + 8, a.low);
}

/* An AETH for roce_build_packet(), alone or before the value of an atomic. */
static inline uint64_t
packet_aeth(uint8_t syndrome, uint32_t msn)
{
	return htobe64((uint64_t)syndrome << 56 | (uint64_t)msn << 32);
}

/* Operands of an atomic and its answer lie in front of the payload's place. */
static inline uint64_t
packet_swap_add(const struct packet *p)
{
	return get64(p->payload - 16);
}

static inline uint64_t
packet_compare(const struct packet *p)
{
	return get64(p->payload - 8);
}

static inline uint64_t
packet_value(const struct packet *p)
{
	return get64(p->payload - VALUE_BYTES);
}

/* Sum of the 16-bit words of an IP header (20 bytes), for an Internet checksum. */
static inline uint32_t
ip_sum(const uint8_t *p)
{
	uint32_t w[5];
	uint64_t sum;

	/* the sum of the words in wrong byte order is the sum in wrong byte order (RFC 1071) */
	memcpy(w, p, sizeof(w));
	sum = (uint64_t)w[0] + w[1] + w[2] + w[3] + w[4];
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return be16toh((uint16_t)((sum & 0xffff) + (sum >> 16)));
}

/* Whether the checksum in an IP header (20 bytes, not all zeros) is right. */
static inline bool
ip_sum_ok(const uint8_t *p)
{
	uint64_t a, b;
	uint32_t c;

	/* 2^16 is 1 modulo 0xffff: this sums 16-bit words, and their byte order does not matter */
	memcpy(&a, p, sizeof(a));
	memcpy(&b, p + 8, sizeof(b));
	memcpy(&c, p + 16, sizeof(c));
	return ((a >> 32) + (uint32_t)a + (b >> 32) + (uint32_t)b + c) % 0xffff == 0;
}

static inline uint16_t
ip_fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/*
 * Checks a frame's structure up to the end of its headers and fills *p: VLAN, lengths, checksum of
 * the IP header, version, opcode, pad, P_Key. Not checked: the destination, the ICRC, ARP and
 * ICMPv6. DROP_NONE: the frame is correct.
 */
enum drop roce_packet_decode(const uint8_t *data, size_t length, const struct headers *h,
			     struct packet *p);

#endif
