/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: the timers of QPs. */
#ifndef WEIR_ROCE_TIMER_H
#define WEIR_ROCE_TIMER_H

#include <stdint.h>

struct roce_context;
struct roce_qp;

#define ROCE_TICK_NS 50000u   /* between two runs of the timers, at least */
#define ROCE_TICK_QP_NS 2000u /* added to ROCE_TICK_NS per QP that waits */
#define ROCE_DEFER_MAX 64u    /* consecutive turns with frames that may defer due timers */

void roce_timer_start(struct roce_qp *qp, uint64_t deadline);
void roce_timer_run(struct roce_context *ctx, uint64_t now);

#endif
