/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec.h"

#include "ipc/invariant.h"
#include "weir/weir.h"

#include <errno.h>
#include <lz4.h>
#include <lz4hc.h>
#include <stdlib.h>
#include <zstd.h>

#define LEAST 64u	  /* bytes; shorter blocks are not worth a frame */
#define FREE_TRIALS 4u	  /* that may fail in a row before any block is skipped */
#define SKIP_SHIFT_MAX 6u /* at most 64 blocks between trials */
#define LZ4_FASTEST (-64) /* acceleration, negated */

int
codec_check(uint32_t codec, int32_t level)
{
	int least = 0, most = 0;
	const char *name = "no codec";

	if (codec > WEIR_CODEC_ZSTD)
		return weir_fail(-EINVAL, "invalid codec %u (expected one of enum weir_codec)",
				 codec);
	if (codec == WEIR_CODEC_LZ4) {
		name = "LZ4";
		least = LZ4_FASTEST;
		most = LZ4HC_CLEVEL_MAX;
	} else if (codec == WEIR_CODEC_ZSTD) {
		name = "zstd";
		least = ZSTD_minCLevel();
		most = ZSTD_maxCLevel();
	}
	if (level < least || level > most)
		return weir_fail(-EINVAL, "invalid level %d for %s (expected %d ... %d)", level,
				 name, least, most);
	return 0;
}

uint32_t
codec_bound(enum weir_codec codec, uint32_t raw)
{
	return codec == WEIR_CODEC_NONE ? 0 : raw - raw / 20;
}

static uint32_t
pack_lz4(struct codec_tools *t, int32_t level, const void *from, uint32_t raw, void *to,
	 uint32_t room)
{
	bool high = level >= LZ4HC_CLEVEL_MIN;
	void **state = high ? &t->lz4_high : &t->lz4;
	int n;

	if (!*state)
		*state = malloc((size_t)(high ? LZ4_sizeofStateHC() : LZ4_sizeofState()));
	if (!*state)
		return 0;
	n = high ? LZ4_compress_HC_extStateHC(*state, from, to, (int)raw, (int)room, level)
		 : LZ4_compress_fast_extState(*state, from, to, (int)raw, (int)room,
					      level < 0 ? -level : 1);
	return n > 0 ? (uint32_t)n : 0;
}

static uint32_t
pack_zstd(struct codec_tools *t, int32_t level, const void *from, uint32_t raw, void *to,
	  uint32_t room)
{
	size_t n;

	if (!t->in)
		t->in = ZSTD_createCCtx();
	if (!t->in)
		return 0;
	/* the highest levels would take 256 MiB for a record of the maximum */
	if (raw > 2 * WEIR_SHUFFLE_BLOCK_MAX)
		level = 0;
	n = ZSTD_compressCCtx(t->in, to, room, from, raw, level);
	return ZSTD_isError(n) ? 0 : (uint32_t)n;
}

uint32_t
codec_pack(struct codec_tools *t, struct codec_pace *pace, enum weir_codec codec, int32_t level,
	   const void *from, uint32_t raw, void *to)
{
	uint32_t room = codec_bound(codec, raw), stored, shift;

	weir_assert(raw <= BLOCK_RAW_MAX);
	if (codec == WEIR_CODEC_NONE || raw < LEAST)
		return 0;
	if (pace->skip) {
		pace->skip--;
		return 0;
	}
	stored = codec == WEIR_CODEC_LZ4 ? pack_lz4(t, level, from, raw, to, room)
					 : pack_zstd(t, level, from, raw, to, room);
	if (stored) {
		pace->failed = 0;
		return stored;
	}
	if (pace->failed < FREE_TRIALS + SKIP_SHIFT_MAX)
		pace->failed++;
	shift = pace->failed > FREE_TRIALS ? pace->failed - FREE_TRIALS : 0;
	pace->skip = (1u << shift) - 1;
	return 0;
}

/* One frame of the present format, with its size: codec_pack() writes no other. */
static bool
zstd_frame_ok(const void *from, uint32_t stored, uint32_t raw)
{
	uint32_t magic;

	if (stored < sizeof(magic))
		return false;
	memcpy(&magic, from, sizeof(magic));
	return magic == ZSTD_MAGICNUMBER && ZSTD_getFrameContentSize(from, stored) == raw &&
	       ZSTD_findFrameCompressedSize(from, stored) == stored;
}

static int
unpack(struct codec_tools *t, uint32_t codec, const void *from, uint32_t stored, void *to,
       uint32_t raw)
{
	switch (codec) {
	case WEIR_CODEC_NONE:
		if (stored != raw)
			return -EBADMSG;
		if (raw)
			memcpy(to, from, raw);
		return 0;
	case WEIR_CODEC_LZ4:
		return LZ4_decompress_safe(from, to, (int)stored, (int)raw) == (int)raw ? 0
											: -EBADMSG;
	case WEIR_CODEC_ZSTD:
		if (!zstd_frame_ok(from, stored, raw))
			return -EBADMSG;
		if (!t->out && !(t->out = ZSTD_createDCtx()))
			return -ENOMEM;
		return ZSTD_decompressDCtx(t->out, to, raw, from, stored) == raw ? 0 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}

int
codec_unpack(struct codec_tools *t, uint32_t codec, const void *from, uint32_t stored, void *to,
	     uint32_t raw)
{
	int rc = -EBADMSG;

	/* nothing that codec_pack() wrote is empty or longer than what it was made of */
	if (raw <= BLOCK_RAW_MAX && stored <= raw && (stored || codec == WEIR_CODEC_NONE))
		rc = unpack(t, codec, from, stored, to, raw);
	if (rc == -ENOMEM)
		return weir_fail(rc, "no memory to decompress with zstd");
	return rc ? weir_fail(rc, "%u bytes do not decompress to %u (codec %u)", stored, raw, codec)
		  : 0;
}

size_t
codec_memory(const struct codec_tools *t)
{
	return (t->lz4 ? (size_t)LZ4_sizeofState() : 0) +
	       (t->lz4_high ? (size_t)LZ4_sizeofStateHC() : 0) + ZSTD_sizeof_CCtx(t->in) +
	       ZSTD_sizeof_DCtx(t->out);
}

void
codec_free(struct codec_tools *t)
{
	free(t->lz4);
	free(t->lz4_high);
	ZSTD_freeCCtx(t->in);
	ZSTD_freeDCtx(t->out);
	*t = (struct codec_tools){0};
}
