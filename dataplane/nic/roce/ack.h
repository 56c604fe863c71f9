/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: ACKs and NAKs, which leave after other frames. */
#ifndef WEIR_ROCE_ACK_H
#define WEIR_ROCE_ACK_H

#include "roce.h"

struct roce_context;
struct roce_qp;

#define ROCE_ACK_WAIT_NS 1000u /* for which ACKs wait while frames come and leave */
#define ROCE_CNP_GAP_NS 50000u /* between congestion notifications of one QP */

enum response { RESPOND_NONE, RESPOND_ACK, RESPOND_RNR, RESPOND_SEQUENCE, RESPOND_FATAL };

void roce_ack_later(struct roce_qp *qp, enum response response);
/* Whether the waiting ACKs and NAKs should leave. */
bool roce_ack_due(struct roce_context *ctx, uint64_t now);
void roce_ack_all(struct roce_context *ctx);
void roce_ack_congestion(struct roce_qp *qp, uint64_t now);

#endif
