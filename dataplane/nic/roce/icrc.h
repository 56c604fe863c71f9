/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariant CRC of RoCEv2 (annex A17): CRC-32 over all fields that routers don't change. */
#ifndef WEIR_ROCE_ICRC_H
#define WEIR_ROCE_ICRC_H

#include "packet.h"

/*
 * CRC of an IPv4 packet that lies behind an Ethernet header; `length` >= 40: from the IP header to
 * the end of the pad, ICRC not counted.
 */
uint32_t roce_icrc(const uint8_t *ip, size_t length);

/*
 * Copies the payload behind the headers of such a packet (40 ... 60 bytes), pads it with zeros to a
 * multiple of 4, and returns the CRC of the whole. The payload may change meanwhile: the CRC is
 * always that of the copy.
 */
uint32_t roce_icrc_copy(uint8_t *ip, size_t headers, const void *payload, size_t length);

/* The same for IPv6: `length` >= 60, headers 60 ... 88 bytes. */
uint32_t roce_icrc6(const uint8_t *ip, size_t length);
uint32_t roce_icrc6_copy(uint8_t *ip, size_t headers, const void *payload, size_t length);

/*
 * Copies the payload of a received packet, a multiple of 4 bytes without a pad, to `to`, and
 * returns the CRC of the packet. Others may write to `to` meanwhile.
 */
uint32_t roce_icrc_place(const uint8_t *ip, size_t headers, size_t length, uint8_t *to);
uint32_t roce_icrc6_place(const uint8_t *ip, size_t headers, size_t length, uint8_t *to);

/* The CRC of a frame whose pad ends at `end`, counted from offset 0 (packet.h). */
static inline uint32_t
frame_icrc(bool six, const uint8_t *frame, uint32_t end)
{
	return six ? roce_icrc6(frame + IP6_AT, end + IP6_BYTES - UDP_AT)
		   : roce_icrc(frame + IP_AT, end - IP_AT);
}

/* The same with n bytes of payload, copied to `at`. */
static inline uint32_t
frame_icrc_copy(bool six, uint8_t *frame, uint32_t at, const void *payload, uint32_t n)
{
	return six ? roce_icrc6_copy(frame + IP6_AT, at + IP6_BYTES - UDP_AT, payload, n)
		   : roce_icrc_copy(frame + IP_AT, at - IP_AT, payload, n);
}

/* The same with n bytes of payload from `at` on, copied to `to`. */
static inline uint32_t
frame_icrc_place(bool six, const uint8_t *frame, uint32_t at, uint32_t n, uint8_t *to)
{
	return six ? roce_icrc6_place(frame + IP6_AT, at + IP6_BYTES - UDP_AT, n, to)
		   : roce_icrc_place(frame + IP_AT, at - IP_AT, n, to);
}

/*
 * The same for a packet whose headers aren't there yet: 28 bytes from `begin` on (IP and UDP), then
 * the words of the BTH and of extended headers as in memory: `bth`, the two behind it, three times
 * eight bytes. The first `headers` of all these bytes are kept (40 ... 60).
 */
uint32_t roce_icrc_frame(uint8_t *ip, const uint8_t *begin, uint64_t numbers, uint64_t e0,
			 uint64_t e1, uint64_t e2, uint32_t bth, size_t headers,
			 const void *payload, size_t length);

#endif
