/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive queues that QPs share. */
#ifndef WEIR_ROCE_SRQ_H
#define WEIR_ROCE_SRQ_H

#include "base/list.h"
#include "roce.h"

struct roce_context;

struct roce_srq {
	struct roce_context *ctx;
	struct nic_recv_wr *ring; /* engine, with the following */
	uint32_t mask, depth;
	uint32_t posted, taken, freed; /* freed: completions polled */
	/* main */
	struct list_node all;
	uint32_t users;
	bool destroy_called;
	size_t bytes;
};

int roce_srq_create(struct nic_context *ctx, uint32_t depth, struct nic_srq **srq);
void roce_srq_destroy(struct nic_srq *srq);
void roce_srq_release(struct roce_srq *srq); /* main: a QP stops using it */
void roce_srq_free(struct roce_srq *srq);
int roce_post_srq_recv(struct nic_srq *srq, const struct nic_recv_wr *wr, unsigned n);

#endif
