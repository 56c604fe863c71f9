/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels for ICRCs, in turn: GB/s of copying a payload behind its headers with the CRC of both,
 * and of checking a received frame. "by8" copies with memcpy and takes ISA-L's CRC for CPUs without
 * VPCLMULQDQ. Best of many short stretches.
 *
 * icrc_bench [PAYLOAD [MiB]]: the payload walks through this number of MiB.
 */
#include "clock.h"

#include "nic/roce/icrc.h"
#include "nic/roce/icrc_kernel.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define HEADERS 40u
#define FRAMES 64u
#define FRAME_BYTES 9216u

uint32_t crc32_gzip_refl_by8_02(uint32_t seed, const uint8_t *p, uint64_t n);

static uint32_t
by8_check(const uint8_t *ip, size_t length)
{
	return crc32_gzip_refl_by8_02(0, ip, length);
}

static uint32_t
by8_copy(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	memcpy(ip + headers, payload, length);
	return by8_check(ip, headers + length);
}

static bool
always(void)
{
	return true;
}

static const struct icrc_kernel by8 = {
    .name = "by8", .supported = always, .check = by8_check, .copy = by8_copy};

static _Atomic uint32_t sink; /* so that no sum is left out */

/* ns of a stretch of 256 payloads; from: where the first one lies. */
static uint64_t
stretch(const struct icrc_kernel *k, bool copies, uint8_t *frames, const uint8_t *memory,
	uint64_t bytes, uint64_t *at, uint32_t size)
{
	uint64_t t = clock_ns();

	for (unsigned i = 0; i < 256; i++) {
		uint8_t *ip = frames + i % FRAMES * FRAME_BYTES + 24;

		if (*at + size > bytes)
			*at = 0;
		atomic_store_explicit(&sink,
				      copies ? k->copy(ip, HEADERS, memory + *at, size)
					     : k->check(ip, HEADERS + size),
				      memory_order_relaxed);
		*at += size;
	}
	return clock_ns() - t;
}

int
main(int argc, char **argv)
{
	uint32_t size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4096;
	uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) << 20, at = 0;
	uint8_t *frames = aligned_alloc(4096, FRAMES * FRAME_BYTES),
		*memory = aligned_alloc(4096, bytes);
	const struct icrc_kernel *kernels[8];
	uint64_t best[8][2], n = 0;

	if (!size || size % 4 || size + 128 > FRAME_BYTES || size > bytes || !frames || !memory)
		return 2;
	memset(frames, 1, FRAMES * FRAME_BYTES);
	memset(memory, 2, bytes);
	memset(best, 0xff, sizeof(best));
	for (const struct icrc_kernel *const *k = icrc_kernels; *k; k++)
		if ((*k)->supported())
			kernels[n++] = *k;
	kernels[n++] = &by8;
	for (unsigned round = 0; round < 200; round++) /* in turn, for the same machine */
		for (unsigned i = 0; i < 2 * n; i++) {
			uint64_t ns =
			    stretch(kernels[i / 2], i % 2, frames, memory, bytes, &at, size);

			if (ns < best[i / 2][i % 2])
				best[i / 2][i % 2] = ns;
		}
	for (unsigned i = 0; i < n; i++)
		printf("%-8s %u B: check %.1f GB/s, copy %.1f GB/s\n", kernels[i]->name, size,
		       256.0 * size / (double)best[i][0], 256.0 * size / (double)best[i][1]);
	return 0;
}
