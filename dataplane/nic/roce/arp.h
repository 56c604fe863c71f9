/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: the MAC of an IPv4 address. A new one wakes waiting QPs. */
#ifndef WEIR_ROCE_ARP_H
#define WEIR_ROCE_ARP_H

#include "packet.h"

struct neighbour;
struct roce_context;

void roce_arp_ask(struct roce_context *ctx, struct neighbour *n, uint64_t now);
void roce_arp_learn(struct roce_context *ctx, struct neighbour *n, struct address ip,
		    const uint8_t *mac);
enum drop roce_arp_input(struct roce_context *ctx, const uint8_t *frame);

#endif
