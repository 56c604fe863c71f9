/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's side of a QP's life. */
#ifndef WEIR_ROCE_QP_POLL_H
#define WEIR_ROCE_QP_POLL_H

#include "packet.h"
#include "wr.h"

struct roce_context;

void roce_qp_take_orders(struct roce_context *ctx);
/*
 * Ends a QP: WR number `wr` (a count as requester.posted) completes with `status`, all others that
 * are outstanding with WR_FLUSH_ERR. wr = posted: no WR completes with `status`.
 */
void roce_qp_fail(struct roce_qp *qp, uint32_t wr, enum nic_wc_status status);
/* For a QP in SQD: reports once that nothing is under way. */
void roce_qp_drained(struct roce_qp *qp);
/* Drops the n oldest frames that the QP holds. */
void roce_qp_drop_frames(struct roce_qp *qp, uint32_t n);
/* The oldest WR ends: a work completion if it is wanted, or if it failed. */
void roce_qp_complete(struct roce_qp *qp, enum nic_wc_status status);
/* The receive WR of a message of `length` bytes ends; that of the message under way ends without
 * it. */
struct cq_entry *roce_qp_received(struct roce_qp *qp, const struct nic_recv_wr *wr,
				  enum nic_opcode opcode, const struct packet *p, uint32_t length);
void roce_qp_not_received(struct roce_qp *qp, enum nic_wc_status status);

#endif
