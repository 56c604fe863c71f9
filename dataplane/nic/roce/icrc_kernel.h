/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways to compute an ICRC, one per set of CPU instructions, and constants that they share. All
 * but the first take CRCs by carry-less multiplication and copy in the same pass (after Gopal et
 * al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel 2009).
 */
#ifndef WEIR_ROCE_ICRC_KERNEL_H
#define WEIR_ROCE_ICRC_KERNEL_H

#include "packet.h"

struct icrc_kernel {
	const char *name;
	bool (*supported)(void); /* by this CPU */
	/* The functions of icrc.h; lengths of roce_icrc() and roce_icrc6() are multiples of 4. */
	uint32_t (*check)(const uint8_t *ip, size_t length);
	uint32_t (*copy)(uint8_t *ip, size_t headers, const void *payload, size_t length);
	uint32_t (*check6)(const uint8_t *ip, size_t length);
	uint32_t (*copy6)(uint8_t *ip, size_t headers, const void *payload, size_t length);
	uint32_t (*place)(const uint8_t *ip, size_t headers, size_t length, uint8_t *to);
	uint32_t (*place6)(const uint8_t *ip, size_t headers, size_t length, uint8_t *to);
	uint32_t (*frame)(uint8_t *ip, const uint8_t *begin, uint64_t numbers, uint64_t e0,
			  uint64_t e1, uint64_t e2, uint32_t bth, size_t headers,
			  const void *payload, size_t length);
};

extern const struct icrc_kernel icrc_isal, icrc_pclmul, icrc_vpclmul, icrc_avx512;
/* From the fastest one to the one that every CPU has; NULL ends the list. */
extern const struct icrc_kernel *const icrc_kernels[];

/*
 * x^(32n + 32) and x^(32n - 32) modulo the polynomial, bit-reflected: they shift a register by n
 * words of 4 bytes. Index n - 1.
 */
extern const uint64_t icrc_over[24][2];

/*
 * The mask to OR; the IP header begins at ONES_IP. The initial state and the eight ones are equal
 * to four zeros and four ones before the header; zeros before that change nothing.
 */
#define ONES_IP 24
extern const uint8_t icrc_ones[ONES_IP + 60], icrc_ones6[ONES_IP + 88];

#ifdef __x86_64__
#include <immintrin.h>

/* The CRC of 96 bits, by Barrett's reduction. */
static inline __attribute__((target("sse4.1,pclmul"))) uint32_t
icrc_reduce(__m128i x)
{
	/* the quotient of 96 bits by the polynomial, without its x^64; the polynomial */
	const __m128i constants = _mm_set_epi64x(0x1db710640, (int64_t)0xb4e5b025f7011640);
	__m128i y = _mm_xor_si128(_mm_clmulepi64_si128(x, constants, 0x00), x);

	y = _mm_clmulepi64_si128(y, constants, 0x10);
	return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(x, y), 2);
}
#endif

#endif
