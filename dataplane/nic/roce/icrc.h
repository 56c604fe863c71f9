/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariant CRC of RoCEv2 (annex A17): CRC-32 over everything that no router may change. */
#ifndef WEIR_ROCE_ICRC_H
#define WEIR_ROCE_ICRC_H

#include <stddef.h>
#include <stdint.h>

/*
 * CRC of an IPv4 packet that lies behind an Ethernet header; `length` >= 40: from the IP header to
 * the end of the pad, ICRC not counted.
 */
uint32_t roce_icrc(const uint8_t *ip, size_t length);

/*
 * Copies the payload behind the headers of such a packet (40 ... 60 bytes), pads it with zeros to a
 * multiple of 4, and returns the CRC of it all. Somebody may be writing the payload: the CRC is
 * that of the copy in any case.
 */
uint32_t roce_icrc_copy(uint8_t *ip, size_t headers, const void *payload, size_t length);

/*
 * The same for a packet whose headers aren't there yet: 28 bytes from `begin` on (IP and UDP), then
 * the words of the BTH and of what extends it, as they stand in memory: `bth`, the two behind it,
 * three times eight bytes. The first `headers` of all these bytes are kept (40 ... 60).
 */
uint32_t roce_icrc_frame(uint8_t *ip, const uint8_t *begin, uint64_t numbers, uint64_t e0,
			 uint64_t e1, uint64_t e2, uint32_t bth, size_t headers,
			 const void *payload, size_t length);

#endif
