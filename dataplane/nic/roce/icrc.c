/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short packets: one pass by carry-less multiplication, the masked bytes ORed in registers (after
 * Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel 2009). Long
 * ones, and machines without the instruction: ISA-L, after a masked copy of the headers.
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

#define ICRC_SHORT 512u /* beyond, ISA-L's wider registers win */
#define FAST __attribute__((target("avx,pclmul")))

/* x^(128n + 32) and x^(128n - 32) modulo the polynomial, bit-reflected: to move a block over n
 * blocks. */
static const uint64_t fold1[2] = {0x1751997d0, 0x0ccaa009e};
static const uint64_t fold2[2] = {0x0f1da05aa, 0x15a546366};
static const uint64_t fold3[2] = {0x03db1ecdc, 0x174359406};
static const uint64_t fold4[2] = {0x154442bd4, 0x1c6e41596};
static const uint64_t fold_half[2] = {0x163cd6124, 0};
static const uint64_t barrett[2] = {0x1db710641, 0x1f7011641};

/*
 * What is ORed, from 16 bytes before the IP header on. The initial state and the eight ones come to
 * four zeros and four ones before the header; zeros before that change nothing.
 */
static const uint8_t ones[80] = {
    [12] = 0xff,      [13] = 0xff,	[14] = 0xff,	  [15] = 0xff,
    [16 + 1] = 0xff,  [16 + 8] = 0xff,	[16 + 10] = 0xff, [16 + 11] = 0xff,
    [16 + 26] = 0xff, [16 + 27] = 0xff, [16 + 32] = 0xff,
};
/* What is kept of the first block. */
static const uint8_t keep[32] = {[16] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
				 0xff,	      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static inline FAST __m128i
load(const void *p)
{
	return _mm_loadu_si128(p);
}

static inline FAST __m128i
fold(__m128i x, __m128i k, __m128i next)
{
	return _mm_xor_si128(
	    _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)),
	    next);
}

static inline FAST uint32_t
reduce(__m128i x)
{
	const __m128i low32 = _mm_setr_epi32(-1, 0, -1, 0), poly = load(barrett);
	__m128i y;

	/* 128 to 96 to 64 bits, then Barrett */
	y = _mm_clmulepi64_si128(x, load(fold1), 0x10);
	x = _mm_xor_si128(_mm_srli_si128(x, 8), y);
	y = _mm_srli_si128(x, 4);
	x = _mm_clmulepi64_si128(_mm_and_si128(x, low32), load(fold_half), 0x00);
	x = _mm_xor_si128(x, y);
	y = _mm_clmulepi64_si128(_mm_and_si128(x, low32), poly, 0x10);
	y = _mm_clmulepi64_si128(_mm_and_si128(y, low32), poly, 0x00);
	return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(x, y), 1);
}

/* `length` is a multiple of 4, at least 40; 12 readable bytes lie before `ip`. */
static FAST uint32_t
icrc_short(const uint8_t *ip, size_t length)
{
	/* the message is filled up with zeros in front to whole blocks; `skip` of them before `ip`
	 */
	size_t skip = 4 + (-(length + 4) & 15), blocks = (skip + length) / 16;
	const uint8_t *p = ip + 16 - skip, *mask = ones + 32 - skip;
	const __m128i k1 = load(fold1), k4 = load(fold4), zero = _mm_setzero_si128();
	__m128i a, b, c, d;

	a = load(ones + 16 - skip);
	if (skip != 16)
		a = _mm_or_si128(a, _mm_and_si128(load(ip - skip), load(keep + 16 - skip)));
	b = _mm_or_si128(load(p), load(mask));
	c = _mm_or_si128(load(p + 16), load(mask + 16));
	if (blocks == 3)
		return reduce(fold(fold(a, k1, b), k1, c));
	d = _mm_or_si128(load(p + 32), load(mask + 32));
	p += 48;
	for (blocks -= 4; blocks >= 4; blocks -= 4, p += 64) {
		a = fold(a, k4, load(p));
		b = fold(b, k4, load(p + 16));
		c = fold(c, k4, load(p + 32));
		d = fold(d, k4, load(p + 48));
	}
	a = _mm_xor_si128(fold(a, load(fold3), d), fold(b, load(fold2), fold(c, k1, zero)));
	for (; blocks > 0; blocks--, p += 16)
		a = fold(a, k1, load(p));
	return reduce(a);
}
#endif

uint32_t
roce_icrc(const uint8_t *ip, size_t length)
{
#ifdef __x86_64__
	if (length <= ICRC_SHORT && (length & 3) == 0 && __builtin_cpu_supports("pclmul") &&
	    __builtin_cpu_supports("avx"))
		return icrc_short(ip, length);
#endif
	return icrc_long(ip, length);
}
