/* SPDX-License-Identifier: BSD-3-Clause */
/* ICRCs with AVX-512: 64 bytes per step, masked loads and stores at both ends. */
#include "icrc_kernel.h"

#ifdef __x86_64__
#define FAST __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,vpclmulqdq,pclmul")))
#define BLOCK sizeof(__m512i)

#define OVER_BLOCK icrc_over[15]
static const uint64_t over_2_blocks[2] = {0x1e88ef372, 0x14a7fe880};
static const uint64_t over_3_blocks[2] = {0x1821d8bc0, 0x12e958ac4};
static const uint64_t over_4_blocks[2] = {0x11542778a, 0x1322d1430};
/* The words of a register over the last one, which stays: times 0, and added. */
static const uint64_t over_words[8] = {
    0x1c6e41596, 0x03db1ecdc, 0x174359406, 0x0f1da05aa, 0x15a546366, 0x1751997d0, 0x0ccaa009e, 0,
};
/* The same for the words of the register before it. */
static const uint64_t over_words_before[8] = {
    0x14a7fe880, 0x1ea89367e, 0x1d7cfc6ac, 0x0df068dc2,
    0x18cb44e58, 0x1c7569e54, 0x0ae0b5394, 0x154442bd4,
};
static inline FAST __m512i
constant(const uint64_t k[2])
{
	return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)k));
}

static inline FAST __m512i
multiply(__m512i x, __m512i k, __m512i plus)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),
					 _mm512_clmulepi64_epi128(x, k, 0x11), plus, 0x96);
}

/* The CRC of the sum of four parts of 96 bits. */
static inline FAST uint32_t
reduce_parts(__m512i z)
{
	__m256i half = _mm256_xor_si256(_mm512_castsi512_si256(z), _mm512_extracti64x4_epi64(z, 1));
	__m128i x = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));

	_mm256_zeroupper();
	return icrc_reduce(x);
}

static inline FAST __m512i
last_word(__m512i z)
{
	return _mm512_maskz_permutexvar_epi64(0x40, _mm512_set1_epi64(7), z);
}

static inline FAST uint32_t
reduce(__m512i z)
{
	return reduce_parts(multiply(z, _mm512_loadu_si512(over_words), last_word(z)));
}

/*
 * The bytes of a block that `kept` names, zeros for the others; those that `written` names also go
 * to `to`, which may be NULL.
 */
static inline FAST __m512i
take(const uint8_t *from, __mmask64 kept, uint8_t *to, __mmask64 written)
{
	__m512i x = _mm512_maskz_loadu_epi8(kept, from);

	/* not read again, since others may be writing: the sum is that of the stored bytes */
	__asm__("" : "+v"(x));
	if (to)
		_mm512_mask_storeu_epi8(to, written, x);
	return x;
}

#define ALL UINT64_MAX
#define AT(p, block) ((p) ? (p) + (block)*BLOCK : NULL)

/* `x` and the blocks that follow, four at a time, as long as more than four are left. */
static inline FAST __m512i
take_fours(__m512i x, const uint8_t **from, uint8_t **to, size_t *blocks)
{
	const __m512i k = constant(over_4_blocks);
	const uint8_t *p = *from;
	uint8_t *q = *to;
	__m512i y, z, w;

	y = take(p, ALL, q, ALL);
	z = take(p + BLOCK, ALL, AT(q, 1), ALL);
	w = take(p + 2 * BLOCK, ALL, AT(q, 2), ALL);
	p += 3 * BLOCK;
	q = AT(q, 3);
	for (*blocks -= 3; *blocks > 4; *blocks -= 4) {
		x = multiply(x, k, take(p, ALL, q, ALL));
		y = multiply(y, k, take(p + BLOCK, ALL, AT(q, 1), ALL));
		z = multiply(z, k, take(p + 2 * BLOCK, ALL, AT(q, 2), ALL));
		w = multiply(w, k, take(p + 3 * BLOCK, ALL, AT(q, 3), ALL));
		p += 4 * BLOCK;
		q = AT(q, 4);
	}
	*from = p;
	*to = q;
	x = multiply(x, constant(over_3_blocks), w);
	y = multiply(y, constant(over_2_blocks), x);
	return multiply(z, constant(OVER_BLOCK), y);
}

/* Headers that end at the end of a register, with ones where they are masked. */
static inline FAST __m512i
masked(__m512i x, size_t headers)
{
	size_t front = BLOCK - headers;

	return _mm512_or_si512(
	    x, _mm512_maskz_loadu_epi8(ALL << (front - 4), icrc_ones + ONES_IP - front));
}

/*
 * Headers in x, masked, then n bytes at `from`, which are copied to `to` unless that is NULL, and a
 * pad. All of it ends at the end of a register: the payload's first block is filled up in front.
 */
static inline FAST uint32_t
icrc_fast(__m512i x, const uint8_t *from, uint8_t *to, size_t n)
{
	size_t pad = -n & 3, skip = -(n + pad) & (BLOCK - 1), blocks = (n + pad + skip) / BLOCK;
	__mmask64 first = ALL << skip, last = ALL >> pad;
	const __m512i k = constant(OVER_BLOCK);

	if (n == BLOCK) { /* two registers at once */
		__m512i z = take(from, ALL, to, ALL);

		z = multiply(z, _mm512_loadu_si512(over_words), last_word(z));
		return reduce_parts(multiply(x, _mm512_loadu_si512(over_words_before), z));
	}
	if (blocks == 0)
		return reduce(x);
	from = (const uint8_t *)((uintptr_t)from - skip);
	if (to)
		to = (uint8_t *)((uintptr_t)to - skip);
	x = multiply(x, constant(icrc_over[15 - skip / 4]),
		     take(from, blocks == 1 ? first & last : first, to, first));
	from += BLOCK;
	to = AT(to, 1);
	blocks--;
	if (blocks >= 8)
		x = take_fours(x, &from, &to, &blocks);
	for (; blocks > 1; blocks--, from += BLOCK, to = AT(to, 1))
		x = multiply(x, k, take(from, ALL, to, ALL));
	if (blocks == 1)
		x = multiply(x, k, take(from, last, to, ALL));
	return reduce(x);
}

/* Headers in memory, 40 ... 60 bytes. */
static inline FAST __m512i
headers_at(const uint8_t *ip, size_t headers)
{
	size_t front = BLOCK - headers;

	return masked(_mm512_maskz_loadu_epi8(ALL << front, (const void *)((uintptr_t)ip - front)),
		      headers);
}

/* Headers of IPv6 in memory, 60 bytes and more, behind four bytes of ones: up to two registers. */
static inline FAST __m512i
headers6_at(const uint8_t *ip, size_t headers)
{
	size_t more = headers + 4 - BLOCK; /* bytes of the second one */
	__m512i x =
	    _mm512_or_si512(_mm512_maskz_loadu_epi8(ALL << 4, (const void *)((uintptr_t)ip - 4)),
			    _mm512_loadu_si512(icrc_ones6 + ONES_IP - 4));

	if (more == 0)
		return x;
	/* none of these is masked */
	return multiply(x, constant(icrc_over[more / 4 - 1]),
			_mm512_maskz_loadu_epi8(ALL << (BLOCK - more),
						(const void *)((uintptr_t)ip + headers - BLOCK)));
}

static FAST uint32_t
icrc_check(const uint8_t *ip, size_t length)
{
	/* often the payload is whole blocks, and the headers are longer than the shortest */
	size_t more = (length - 40) % BLOCK, headers = more <= 20 ? 40 + more : 40;

	return icrc_fast(headers_at(ip, headers), ip + headers, NULL, length - headers);
}

static FAST uint32_t
icrc_copy(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	return icrc_fast(headers_at(ip, headers), payload, ip + headers, length);
}

static FAST uint32_t
icrc6_check(const uint8_t *ip, size_t length)
{
	size_t headers = 60 + (length - 60) % BLOCK;

	return icrc_fast(headers6_at(ip, headers), ip + headers, NULL, length - headers);
}

static FAST uint32_t
icrc6_copy(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	return icrc_fast(headers6_at(ip, headers), payload, ip + headers, length);
}

static FAST uint32_t
icrc_place(const uint8_t *ip, size_t headers, size_t length, uint8_t *to)
{
	return icrc_fast(headers_at(ip, headers), ip + headers, to, length);
}

static FAST uint32_t
icrc6_place(const uint8_t *ip, size_t headers, size_t length, uint8_t *to)
{
	return icrc_fast(headers6_at(ip, headers), ip + headers, to, length);
}

/* The headers are assembled in a register: bytes that were just stored in pieces load slowly. */
static FAST uint32_t
icrc_frame(uint8_t *ip, const uint8_t *begin, uint64_t numbers, uint64_t e0, uint64_t e1,
	   uint64_t e2, uint32_t bth, size_t headers, const void *payload, size_t length)
{
	static const uint8_t bytes[BLOCK] = {
	    0,	1,  2,	3,  4,	5,  6,	7,  8,	9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
	    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
	    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
	};
	const __m256i low = _mm256_blend_epi32(_mm256_loadu_si256((const void *)begin),
					       _mm256_set1_epi32((int)bth), 0x80);
	const __m256i high =
	    _mm256_set_epi64x((int64_t)e2, (int64_t)e1, (int64_t)e0, (int64_t)numbers);
	__m512i x = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
	const char front = (char)(BLOCK - headers);

	_mm512_storeu_si512(ip, x);
	x = _mm512_maskz_permutexvar_epi8(
	    ALL << front, _mm512_sub_epi8(_mm512_loadu_si512(bytes), _mm512_set1_epi8(front)), x);
	return icrc_fast(masked(x, headers), payload, ip + headers, length);
}

static bool
icrc_avx512_supported(void)
{
	return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("vpclmulqdq");
}

const struct icrc_kernel icrc_avx512 = {
    .name = "avx512",
    .supported = icrc_avx512_supported,
    .check = icrc_check,
    .copy = icrc_copy,
    .check6 = icrc6_check,
    .copy6 = icrc6_copy,
    .place = icrc_place,
    .place6 = icrc6_place,
    .frame = icrc_frame,
};
#endif
