/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for sending: taken from the wire in batches. */
#include "core.h"

bool
roce_frame_ready(struct roce_context *ctx)
{
	if (ctx->spare_count == 0)
		ctx->spare_count = ctx->wire.alloc(ctx->wire_user, ctx->spare, ROCE_SPARE);
	return ctx->spare_count != 0;
}

void *
roce_frame_take(struct roce_context *ctx, uint8_t **data)
{
	void *frame;

	if (!roce_frame_ready(ctx))
		return NULL;
	frame = ctx->spare[--ctx->spare_count];
	*data = (uint8_t *)frame + ctx->wire.data_offset;
	return frame;
}

void
roce_frame_send(struct roce_context *ctx, void *frame, uint32_t length, bool keep)
{
	roce_count(&ctx->counters.tx_frames, 1);
	roce_count(&ctx->counters.tx_bytes, length);
	ctx->wire.send(ctx->wire_user, frame, length, keep);
}
