/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ICRCs with PCLMULQDQ, 64 bytes per step; with VPCLMULQDQ also long payloads by registers of 256
 * bits, 128 bytes per step, for CPUs without AVX-512.
 */
#include "icrc_kernel.h"

#ifdef __x86_64__
#define CLMUL __attribute__((target("sse4.1,pclmul")))
#define WIDE __attribute__((target("avx2,vpclmulqdq,pclmul")))
#define INLINE inline __attribute__((always_inline))

enum { REGISTER = 16, STEP = 64, WIDE_STEP = 128, WIDE_LEAST = 512 }; /* bytes */

/* `to` may be NULL: then nothing is stored. */
#define BEHIND(p, bytes) ((p) ? (p) + (bytes) : NULL)

static INLINE CLMUL __m128i
load(const void *p)
{
	return _mm_loadu_si128((const __m128i *)p);
}

/* Moves bytes up by n, 0 ... 16: zeros come in below. */
static INLINE CLMUL __m128i
move_up(__m128i x, size_t n)
{
	static const uint8_t places[2 * REGISTER] = {
	    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
	    0,	 1,   2,   3,	4,   5,	  6,   7,   8,	 9,   10,  11,	12,  13,  14,  15,
	};

	return _mm_shuffle_epi8(x, load(places + REGISTER - n));
}

/* x shifted by this number of words, and a register added. */
static INLINE CLMUL __m128i
fold(__m128i x, size_t words, __m128i plus)
{
	const __m128i k = load(icrc_over[words - 1]);
	__m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), plus);
}

/* A register of payload, which also goes to `to`. */
static INLINE CLMUL __m128i
take_register(const uint8_t *from, uint8_t *to)
{
	__m128i x = load(from);

	/* not read again, since others may be writing: the sum is that of the stored bytes */
	__asm__("" : "+x"(x));
	if (to)
		_mm_storeu_si128((__m128i *)(void *)to, x);
	return x;
}

/* The last n bytes, less than a register, and a pad. */
static CLMUL __m128i
take_tail(const uint8_t *from, uint8_t *to, size_t n)
{
	uint8_t bytes[REGISTER] = {0};
	size_t padded = (n + 3) & ~(size_t)3;

	memcpy(bytes + REGISTER - padded, from, n);
	__asm__("" : : "r"(bytes) : "memory"); /* not read again */
	memcpy(to, bytes + REGISTER - padded, padded);
	return load(bytes);
}

/* The sum of headers in memory, masked, up to their end. */
static INLINE CLMUL __m128i
sum_headers(const uint8_t *ip, size_t headers, const uint8_t *ones)
{
	size_t front = -(headers + 4) & (REGISTER - 1), at = REGISTER - 4 - front;
	__m128i x = _mm_or_si128(load(ip + headers - REGISTER), load(ones + headers - REGISTER));

	/* first zeros, four ones, and bytes until whole registers are left */
	x = fold(_mm_or_si128(move_up(load(ip), front + 4), load(ones - 4 - front)),
		 (headers - at) / 4, x);
	for (; at + REGISTER < headers; at += REGISTER)
		x = fold(_mm_or_si128(load(ip + at), load(ones + at)),
			 (headers - at - REGISTER) / 4, x);
	return x;
}

static INLINE WIDE __m256i
take_wide(const uint8_t *from, uint8_t *to)
{
	__m256i x = _mm256_loadu_si256((const __m256i *)(const void *)from);

	__asm__("" : "+x"(x)); /* not read again */
	if (to)
		_mm256_storeu_si256((__m256i *)(void *)to, x);
	return x;
}

static INLINE WIDE __m256i
fold_wide(__m256i x, const uint64_t k[2], __m256i plus)
{
	const __m256i both = _mm256_broadcastsi128_si256(load(k));

	return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(x, both, 0x00),
						 _mm256_clmulepi64_epi128(x, both, 0x11)),
				plus);
}

/* Adds the front of a payload, whole steps of it; returns its length. */
static WIDE size_t
sum_front(__m128i *sum, const uint8_t *from, uint8_t *to, size_t n)
{
	static const uint64_t over_step[2] = {0x1e88ef372, 0x14a7fe880};
	__m256i a = take_wide(from, to), b = take_wide(from + 32, BEHIND(to, 32));
	__m256i c = take_wide(from + 64, BEHIND(to, 64)), d = take_wide(from + 96, BEHIND(to, 96));
	size_t at;

	/* what came before, over the last register of the step */
	d = fold_wide(_mm256_inserti128_si256(_mm256_setzero_si256(), *sum, 1), over_step, d);
	for (at = WIDE_STEP; n - at >= WIDE_STEP; at += WIDE_STEP) {
		a = fold_wide(a, over_step, take_wide(from + at, BEHIND(to, at)));
		b = fold_wide(b, over_step, take_wide(from + at + 32, BEHIND(to, at + 32)));
		c = fold_wide(c, over_step, take_wide(from + at + 64, BEHIND(to, at + 64)));
		d = fold_wide(d, over_step, take_wide(from + at + 96, BEHIND(to, at + 96)));
	}
	c = fold_wide(c, icrc_over[7], d);
	b = fold_wide(b, icrc_over[15], c);
	a = fold_wide(a, icrc_over[23], b);
	*sum = fold(_mm256_castsi256_si128(a), 4, _mm256_extracti128_si256(a, 1));
	return at;
}

/* Headers in x, then n bytes at `from`, which are copied to `to`, and a pad. */
static INLINE CLMUL uint32_t
sum_payload(__m128i x, const uint8_t *from, uint8_t *to, size_t n, bool wide)
{
	static const uint64_t over_half[2] = {0x0ccaa009e, 0};

	if (wide && n >= WIDE_LEAST) {
		size_t front = sum_front(&x, from, to, n);

		from += front;
		to = BEHIND(to, front);
		n -= front;
	}
	if (n >= STEP) {
		__m128i a = take_register(from, to), b = take_register(from + 16, BEHIND(to, 16));
		__m128i c = take_register(from + 32, BEHIND(to, 32));
		__m128i d = fold(x, 16, take_register(from + 48, BEHIND(to, 48)));

		for (;;) {
			from += STEP;
			to = BEHIND(to, STEP);
			n -= STEP;
			if (n < STEP)
				break;
			a = fold(a, 16, take_register(from, to));
			b = fold(b, 16, take_register(from + 16, BEHIND(to, 16)));
			c = fold(c, 16, take_register(from + 32, BEHIND(to, 32)));
			d = fold(d, 16, take_register(from + 48, BEHIND(to, 48)));
		}
		x = fold(a, 12, fold(b, 8, fold(c, 4, d)));
	}
	for (; n >= REGISTER; n -= REGISTER) {
		x = fold(x, 4, take_register(from, to));
		from += REGISTER;
		to = BEHIND(to, REGISTER);
	}
	if (n != 0 && to != NULL) /* what is only checked ends with a register */
		x = fold(x, (n + 3) / 4, take_tail(from, to, n));
	/* the lower half over the upper one */
	return icrc_reduce(
	    _mm_xor_si128(_mm_clmulepi64_si128(x, load(over_half), 0x00), _mm_srli_si128(x, 8)));
}

/* The payload is whole registers: the headers may count some more bytes. */
static INLINE CLMUL uint32_t
clmul_check(const uint8_t *ip, size_t length, size_t headers, const uint8_t *ones, bool wide)
{
	headers += (length - headers) & (REGISTER - 1);
	return sum_payload(sum_headers(ip, headers, ones + ONES_IP), ip + headers, NULL,
			   length - headers, wide);
}

static INLINE CLMUL uint32_t
clmul_copy(const uint8_t *ip, size_t headers, const uint8_t *ones, const void *payload,
	   size_t length, uint8_t *to, bool wide)
{
	return sum_payload(sum_headers(ip, headers, ones + ONES_IP), payload, to, length, wide);
}

/* The headers are assembled in registers: bytes that were just stored in pieces load slowly. */
static INLINE CLMUL uint32_t
clmul_frame(uint8_t *ip, const uint8_t *begin, uint64_t numbers, uint64_t e0, uint64_t e1,
	    uint64_t e2, uint32_t bth, size_t headers, const void *payload, size_t length,
	    bool wide)
{
	const __m128i state = _mm_cvtsi32_si128((int)0xdebb20e3); /* after eight bytes of ones */
	__m128i r0 = load(begin), r1 = _mm_srli_si128(load(begin + 12), 4), x;
	__m128i r2 = _mm_set_epi64x((int64_t)e0, (int64_t)numbers);
	__m128i r3 = _mm_set_epi64x((int64_t)e2, (int64_t)e1);

	r1 = _mm_insert_epi32(r1, (int)bth, 3);
	_mm_storeu_si128((__m128i *)(void *)ip, r0);
	_mm_storeu_si128((__m128i *)(void *)(ip + 16), r1);
	_mm_storeu_si128((__m128i *)(void *)(ip + 32), r2);
	_mm_storeu_si128((__m128i *)(void *)(ip + 48), r3);
	r0 = _mm_xor_si128(_mm_or_si128(r0, load(icrc_ones + ONES_IP)), state);
	r1 = _mm_or_si128(r1, load(icrc_ones + ONES_IP + 16));
	r2 = _mm_or_si128(r2, load(icrc_ones + ONES_IP + 32));
	if (headers <= 48)
		x = move_up(r2, 48 - headers);
	else
		x = fold(r2, (headers - 48) / 4, move_up(r3, 64 - headers));
	x = fold(r0, (headers - 16) / 4, fold(r1, (headers - 32) / 4, x));
	return sum_payload(x, payload, ip + headers, length, wide);
}

#define KERNEL(kind, wide)                                                                         \
	static CLMUL uint32_t kind##_check(const uint8_t *ip, size_t length)                       \
	{                                                                                          \
		return clmul_check(ip, length, IP_BYTES + UDP_BYTES + BTH_BYTES, icrc_ones, wide); \
	}                                                                                          \
                                                                                                   \
	static CLMUL uint32_t kind##_copy(uint8_t *ip, size_t headers, const void *payload,        \
					  size_t length)                                           \
	{                                                                                          \
		return clmul_copy(ip, headers, icrc_ones, payload, length, ip + headers, wide);    \
	}                                                                                          \
                                                                                                   \
	static CLMUL uint32_t kind##_check6(const uint8_t *ip, size_t length)                      \
	{                                                                                          \
		return clmul_check(ip, length, IP6_BYTES + UDP_BYTES + BTH_BYTES, icrc_ones6,      \
				   wide);                                                          \
	}                                                                                          \
                                                                                                   \
	static CLMUL uint32_t kind##_copy6(uint8_t *ip, size_t headers, const void *payload,       \
					   size_t length)                                          \
	{                                                                                          \
		return clmul_copy(ip, headers, icrc_ones6, payload, length, ip + headers, wide);   \
	}                                                                                          \
                                                                                                   \
	static CLMUL uint32_t kind##_place(const uint8_t *ip, size_t headers, size_t length,       \
					   uint8_t *to)                                            \
	{                                                                                          \
		return clmul_copy(ip, headers, icrc_ones, ip + headers, length, to, wide);         \
	}                                                                                          \
                                                                                                   \
	static CLMUL uint32_t kind##_place6(const uint8_t *ip, size_t headers, size_t length,      \
					    uint8_t *to)                                           \
	{                                                                                          \
		return clmul_copy(ip, headers, icrc_ones6, ip + headers, length, to, wide);        \
	}                                                                                          \
                                                                                                   \
	static CLMUL uint32_t kind##_frame(uint8_t *ip, const uint8_t *begin, uint64_t numbers,    \
					   uint64_t e0, uint64_t e1, uint64_t e2, uint32_t bth,    \
					   size_t headers, const void *payload, size_t length)     \
	{                                                                                          \
		return clmul_frame(ip, begin, numbers, e0, e1, e2, bth, headers, payload, length,  \
				   wide);                                                          \
	}                                                                                          \
                                                                                                   \
	const struct icrc_kernel icrc_##kind = {                                                   \
	    .name = #kind,                                                                         \
	    .supported = kind##_supported,                                                         \
	    .check = kind##_check,                                                                 \
	    .copy = kind##_copy,                                                                   \
	    .check6 = kind##_check6,                                                               \
	    .copy6 = kind##_copy6,                                                                 \
	    .place = kind##_place,                                                                 \
	    .place6 = kind##_place6,                                                               \
	    .frame = kind##_frame,                                                                 \
	}

static bool
pclmul_supported(void)
{
	return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

static bool
vpclmul_supported(void)
{
	return pclmul_supported() && __builtin_cpu_supports("avx2") &&
	       __builtin_cpu_supports("vpclmulqdq");
}

KERNEL(pclmul, false);
KERNEL(vpclmul, true);
#endif
