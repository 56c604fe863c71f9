/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: the MAC that an IPv6 address has. */
#ifndef WEIR_ROCE_ND_H
#define WEIR_ROCE_ND_H

#include "packet.h"

struct roce_context;

void roce_nd_ask(struct roce_context *ctx, struct address ip);
enum drop roce_nd_input(struct roce_context *ctx, const uint8_t *frame, const struct packet *p);

#endif
