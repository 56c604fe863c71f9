/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short packets: one pass by carry-less multiplication, 64 bytes a step, the masked bytes ORed in
 * registers (after Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ",
 * Intel 2009). Long ones, and machines that can't: ISA-L, after a masked copy of the headers.
 */
#include "icrc.h"
#include "packet.h"

#include <isa-l/crc.h>

/* CRC-32 state after eight bytes of ones, which stand for the local route header that Ethernet
 * lacks. */
#define ICRC_SEED 0x2144df1cu

static uint32_t
icrc_long(const uint8_t *ip, size_t length)
{
	uint8_t head[IP_BYTES + UDP_BYTES + BTH_BYTES];

	memcpy(head, ip, sizeof(head));
	head[1] = 0xff;	 /* type of service */
	head[8] = 0xff;	 /* time to live */
	head[10] = 0xff; /* header checksum */
	head[11] = 0xff;
	head[26] = 0xff; /* UDP checksum */
	head[27] = 0xff;
	head[32] = 0xff; /* resv8a with FECN and BECN */
	return crc32_gzip_refl(crc32_gzip_refl(ICRC_SEED, head, sizeof(head)), ip + sizeof(head),
			       length - sizeof(head));
}

#ifdef __x86_64__
#include <immintrin.h>

#define ICRC_SHORT 1024u /* beyond, ISA-L's 256 bytes a step win */
#define FAST __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul")))

/*
 * x^(128n + 32) and x^(128n - 32) modulo the polynomial, bit-reflected: they move a block of 16
 * bytes over n blocks. The first three bring the four blocks of a register over its last one.
 */
static const uint64_t fold[10] = {
    0x03db1ecdc, 0x174359406, /* n = 3 */
    0x0f1da05aa, 0x15a546366, /* 2 */
    0x1751997d0, 0x0ccaa009e, /* 1 */
    0,		 0,	      /* the last stays */
    0x154442bd4, 0x1c6e41596, /* 4 */
};
#define FOLD_1 (fold + 4)
#define FOLD_4 (fold + 8)
static const uint64_t fold_half[2] = {0x163cd6124, 0};
static const uint64_t barrett[2] = {0x1db710641, 0x1f7011641};

/*
 * What is ORed; the IP header begins at ONES_IP. The initial state and the eight ones come to four
 * zeros and four ones before the header; zeros before that change nothing.
 */
#define ONES_IP 80
static const uint8_t ones[ONES_IP + 128] = {
    [ONES_IP - 4] = 0xff,  [ONES_IP - 3] = 0xff,  [ONES_IP - 2] = 0xff,	 [ONES_IP - 1] = 0xff,
    [ONES_IP + 1] = 0xff,  [ONES_IP + 8] = 0xff,  [ONES_IP + 10] = 0xff, [ONES_IP + 11] = 0xff,
    [ONES_IP + 26] = 0xff, [ONES_IP + 27] = 0xff, [ONES_IP + 32] = 0xff,
};

static inline FAST uint32_t
reduce(__m128i x)
{
	const __m128i low32 = _mm_setr_epi32(-1, 0, -1, 0);
	const __m128i poly = _mm_loadu_si128((const void *)barrett);
	__m128i y;

	/* 128 to 96 to 64 bits, then Barrett */
	y = _mm_clmulepi64_si128(x, _mm_loadu_si128((const void *)FOLD_1), 0x10);
	x = _mm_xor_si128(_mm_srli_si128(x, 8), y);
	y = _mm_srli_si128(x, 4);
	x = _mm_and_si128(x, low32);
	x = _mm_clmulepi64_si128(x, _mm_loadu_si128((const void *)fold_half), 0x00);
	x = _mm_xor_si128(x, y);
	y = _mm_clmulepi64_si128(_mm_and_si128(x, low32), poly, 0x10);
	y = _mm_clmulepi64_si128(_mm_and_si128(y, low32), poly, 0x00);
	return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(x, y), 1);
}

static inline FAST __m512i
multiply(__m512i x, __m512i k, __m512i plus)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),
					 _mm512_clmulepi64_epi128(x, k, 0x11), plus, 0x96);
}

/* `length` is a multiple of 4, at least 40. */
static FAST uint32_t
icrc_short(const uint8_t *ip, size_t length)
{
	/* zeros fill the message up in front to whole registers: `skip` bytes lie before the IP
	 * header */
	size_t skip = 4 + (-(length + 4) & 63), rest = (skip + length) / 64 - 1;
	const uint8_t *p = (const uint8_t *)((uintptr_t)ip - skip);
	const __m512i k4 = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)FOLD_4));
	__mmask64 kept = skip == 64 ? 0 : UINT64_MAX << skip;
	__m512i x, next;
	__m256i half;

	x = _mm512_or_si512(_mm512_maskz_loadu_epi8(kept, p),
			    _mm512_loadu_si512(ones + ONES_IP - skip));
	if (rest > 0) {
		next = _mm512_or_si512(_mm512_loadu_si512(p + 64),
				       _mm512_loadu_si512(ones + ONES_IP - skip + 64));
		x = multiply(x, k4, next);
	}
	for (p += 128; rest > 1; rest--, p += 64)
		x = multiply(x, k4, _mm512_loadu_si512(p));
	/* the last block isn't moved: multiplied by 0, it is what is added */
	x = multiply(x, _mm512_loadu_si512(fold), _mm512_maskz_mov_epi64(0xc0, x));
	half = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
	return reduce(
	    _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

static bool short_possible; /* written before main() */

__attribute__((constructor)) static void
look_at_cpu(void)
{
	__builtin_cpu_init();
	short_possible = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
			 __builtin_cpu_supports("vpclmulqdq");
}
#endif

uint32_t
roce_icrc(const uint8_t *ip, size_t length)
{
#ifdef __x86_64__
	if (short_possible && length <= ICRC_SHORT && (length & 3) == 0)
		return icrc_short(ip, length);
#endif
	return icrc_long(ip, length);
}
