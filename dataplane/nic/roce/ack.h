/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: ACKs and NAKs, which wait for frames to go first. */
#ifndef WEIR_ROCE_ACK_H
#define WEIR_ROCE_ACK_H

#include "roce.h"

struct roce_context;
struct roce_qp;

#define ROCE_ACK_WAIT_NS 1000u /* that ACKs let frames go first which keep coming and going */
#define ROCE_CNP_GAP_NS 50000u /* between congestion notifications of one QP */

enum response { RESPOND_NONE, RESPOND_ACK, RESPOND_RNR, RESPOND_SEQUENCE, RESPOND_FATAL };

void roce_answer_later(struct roce_qp *qp, enum response response);
/* Whether what waits there should leave. */
bool roce_answer_due(struct roce_context *ctx, uint64_t now);
void roce_answer_all(struct roce_context *ctx);
void roce_answer_congestion(struct roce_qp *qp, uint64_t now);

#endif
