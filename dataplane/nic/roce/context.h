/* SPDX-License-Identifier: BSD-3-Clause */
/* What context.c gives to the table of operations. */
#ifndef WEIR_ROCE_CONTEXT_H
#define WEIR_ROCE_CONTEXT_H

#include "roce.h"

void roce_context_destroy(struct roce_context *ctx);
unsigned roce_context_poll(struct nic_context *ctx, struct nic_wc *wc, unsigned n, uint64_t now,
			   bool *busy);
void roce_context_flush(struct nic_context *ctx, uint64_t now);
uint64_t roce_context_arm(struct nic_context *ctx, uint64_t now, int *fd);
void roce_context_counters(const struct nic_context *ctx, struct nic_counters *out);

#endif
