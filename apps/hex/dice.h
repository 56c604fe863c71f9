/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers (xoroshiro128++): one generator per thread, from one seed of the run. */
#ifndef HEX_DICE_H
#define HEX_DICE_H

#include <stdint.h>

struct dice {
	uint64_t s[2];
};

/* Spreads all bits of x over 64 (splitmix64); a bijection. */
static inline uint64_t
dice_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static inline struct dice
dice_of(uint64_t seed)
{
	uint64_t first = dice_mix(seed);

	return (struct dice){{first, dice_mix(first)}};
}

static inline uint64_t
dice_next(struct dice *d)
{
	uint64_t a = d->s[0], b = d->s[1], sum = a + b;

	b ^= a;
	d->s[0] = (a << 49 | a >> 15) ^ b ^ b << 21;
	d->s[1] = b << 28 | b >> 36;
	return (sum << 17 | sum >> 47) + a;
}

/* 0 ... n - 1, each as likely as 2^32 numbers allow. */
static inline uint32_t
dice_below(struct dice *d, uint32_t n)
{
	return (uint32_t)((dice_next(d) >> 32) * n >> 32);
}

#endif
