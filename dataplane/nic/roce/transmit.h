/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engine: frames taken from the wire and sent on it. Lengths in the core are offsets of a frame's
 * end: bytes before offset 0 don't count.
 */
#ifndef WEIR_ROCE_TRANSMIT_H
#define WEIR_ROCE_TRANSMIT_H

#include "context.h"

/* Takes frames from the wire; false: it has none. */
bool roce_frame_refill(struct roce_context *ctx);
void roce_frame_send(struct roce_context *ctx, void *frame, uint32_t length, bool keep);

static inline bool
roce_frame_ready(struct roce_context *ctx)
{
	return ctx->spare_count != 0 || roce_frame_refill(ctx);
}

/* Ethernet header of a frame to a MAC, up to the type. */
void roce_frame_ethernet(const struct roce_device *dev, uint8_t *frame, const uint8_t *mac);

/* A frame for sending, NULL if the wire has none. */
static inline void *
roce_frame_take(struct roce_context *ctx)
{
	return roce_frame_ready(ctx) ? ctx->spare[--ctx->spare_count] : NULL;
}

static inline uint8_t *
roce_frame_data(const struct roce_context *ctx, void *frame)
{
	return (uint8_t *)frame + ctx->frame_at;
}

#endif
