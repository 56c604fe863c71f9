/* SPDX-License-Identifier: BSD-3-Clause */
/* What the small programs of smoke tests have in common. */
#ifndef TEST_SMOKE_PROGRAM_H
#define TEST_SMOKE_PROGRAM_H

#include "weir/stream.h"

#include <stddef.h>
#include <stdint.h>

#define LARGEST (256u << 10)
#define PATIENCE_MS 60000 /* for the machine: what a test waits for is sure to come */

/*
 * Contents of message `number`: length and bytes follow from number and seed alone. One of so many
 * is large. `buf` has room for 8 bytes beyond LARGEST.
 */
static inline size_t
contents(uint64_t number, uint64_t seed, unsigned one_of, uint64_t *buf)
{
	uint64_t x = (number + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xbf58476d1ce4e5b9ull;
	size_t length;

	x ^= x >> 29;
	x *= 0x94d049bb133111ebull;
	x ^= x >> 32;
	length = x % one_of == 0 ? x % LARGEST : (x >> 8) % (1ull << (x % 14));
	for (size_t i = 0; i * 8 < length + 8; i++)
		buf[i] = x += 0x9e3779b97f4a7c15ull;
	return length;
}

static inline int
dial(struct weir *w, const char *text, struct weir_conn **c)
{
	struct weir_address a;
	int r = weir_address_parse(text, &a);

	return r ? r : weir_connect(w, &a, PATIENCE_MS, c);
}

#endif
