/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for sending: taken from the wire in batches. */
#include "transmit.h"

bool
roce_frame_refill(struct roce_context *ctx)
{
	weir_assert(ctx->spare_count <= ROCE_SPARE);
	ctx->spare_count += ctx->wire.alloc(ctx->wire_user, ctx->spare + ctx->spare_count,
					    ROCE_SPARE - ctx->spare_count);
	return ctx->spare_count != 0;
}

void
roce_frame_ethernet(const struct roce_device *dev, uint8_t *frame, const uint8_t *mac)
{
	const struct headers *h = &dev->headers;
	uint8_t *start = frame - h->front;

	memcpy(start, mac, 6);
	memcpy(start + 6, dev->config.mac, 6);
	start += 12;
	if (h->vlan) {
		put16(start, ETH_TYPE_VLAN);
		put16(start + 2, h->tag);
		start += VLAN_BYTES;
	}
	put16(start, h->six ? ETH_TYPE_IP6 : ETH_TYPE_IP);
}

void
roce_frame_send(struct roce_context *ctx, void *frame, uint32_t length, bool keep)
{
	weir_assert(frame && length <= ROCE_FRAME_MAX(ctx->dev->config.mtu));
	length += ctx->front;
	roce_count(&ctx->counters.tx_frames, 1);
	roce_count(&ctx->counters.tx_bytes, length);
	ctx->wire.send(ctx->wire_user, frame, length, keep);
}
