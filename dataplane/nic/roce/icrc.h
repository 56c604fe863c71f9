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

#endif
