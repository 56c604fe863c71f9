/* SPDX-License-Identifier: BSD-3-Clause */
/* Compression of a block's fragments. */
#ifndef WEIR_SHUFFLE_CODEC_H
#define WEIR_SHUFFLE_CODEC_H

#include "record.h"

/* Working memory of one thread, zeroed at first; the functions here allocate what a codec needs
 * when they first use it. */
struct codec_tools {
	void *lz4, *lz4_high; /* states for fast and for high compression */
	struct ZSTD_CCtx_s *in;
	struct ZSTD_DCtx_s *out;
};

/* Trials of one producer, zeroed at first. Data that does not shrink is tried ever more rarely. */
struct codec_pace {
	uint32_t failed; /* trials that did not pay since the last one that did */
	uint32_t skip;	 /* blocks to store raw before the next trial */
};

/* Checks options. 0, or -EINVAL with the remedy: unknown codec, or a level that it lacks. */
int codec_check(uint32_t codec, int32_t level);

/* Bytes that codec_pack() needs to pack `raw` bytes; fewer than those. */
uint32_t codec_bound(enum weir_codec codec, uint32_t raw);

/*
 * Packs `raw` bytes into codec_bound() bytes at `to`. Returns the bytes written, or 0: store them
 * raw, because packing does not save 5 %, was tried in vain before, or found no memory. `codec` and
 * `level` have passed codec_check().
 */
uint32_t codec_pack(struct codec_tools *t, struct codec_pace *pace, enum weir_codec codec,
		    int32_t level, const void *from, uint32_t raw, void *to);

/*
 * Unpacks `stored` bytes, which a peer may have written, to exactly `raw` bytes at `to`. Returns 0,
 * -EBADMSG: they are anything else, the bytes at `to` are undefined; -ENOMEM.
 */
int codec_unpack(struct codec_tools *t, uint32_t codec, const void *from, uint32_t stored, void *to,
		 uint32_t raw);

/* Bytes that the tools hold. */
size_t codec_memory(const struct codec_tools *t);

/* Frees the memory; the tools are as new. */
void codec_free(struct codec_tools *t);

#endif
