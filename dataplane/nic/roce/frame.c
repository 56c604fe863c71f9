/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for sending: taken from the wire in batches. */
#include "core.h"

bool
roce_frame_refill(struct roce_context *ctx)
{
	ctx->spare_count += ctx->wire.alloc(ctx->wire_user, ctx->spare + ctx->spare_count,
					    ROCE_SPARE - ctx->spare_count);
	return ctx->spare_count != 0;
}

void
roce_frame_send(struct roce_context *ctx, void *frame, uint32_t length, bool keep)
{
	roce_count(&ctx->counters.tx_frames, 1);
	roce_count(&ctx->counters.tx_bytes, length);
	ctx->wire.send(ctx->wire_user, frame, length, keep);
}
