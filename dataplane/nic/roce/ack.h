/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: ACKs and NAKs, which leave after other frames. */
#ifndef WEIR_ROCE_ACK_H
#define WEIR_ROCE_ACK_H

#include "roce.h"

struct roce_context;
struct roce_qp;

#define ROCE_ACK_WAIT_NS 1000u	/* ns for which ACKs wait while frames come and leave */
#define ROCE_ACK_LAZY_NS 10000u /* ns for which ACKs of short messages wait */
#define ROCE_ACK_LAZY_BYTES 512u
#define ROCE_ACK_LAZY 8u       /* short messages of one QP per ACK, at most */
#define ROCE_CNP_GAP_NS 50000u /* between congestion notifications of one QP */

enum response { RESPOND_NONE, RESPOND_ACK, RESPOND_RNR, RESPOND_SEQUENCE, RESPOND_FATAL };

void roce_ack_later(struct roce_qp *qp, enum response response);
/*
 * ACKs a short message that took a receive WR. A program answers it soon, and sees from that answer
 * that it arrived, so that one ACK for several such messages will do.
 */
void roce_ack_lazily(struct roce_qp *qp);
/* Whether the waiting ACKs and NAKs should leave. */
bool roce_ack_due(struct roce_context *ctx, uint64_t now);
void roce_ack_all(struct roce_context *ctx);
void roce_ack_congestion(struct roce_qp *qp, uint64_t now);

#endif
