/* SPDX-License-Identifier: BSD-3-Clause */
/* The ICRC's ways to compute it, against each other and against the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "nic/roce/wire/icrc.c"

#define LONGEST 4300u

static uint32_t
crc32_bitwise(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	while (n--) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

static void
fill(uint8_t *p, size_t n, uint32_t seed)
{
	while (n--) {
		seed = seed * 1103515245u + 12345u;
		*p++ = (uint8_t)(seed >> 16);
	}
}

static bool six; /* IPv6 */

static uint32_t
by_definition(const uint8_t *ip, size_t n)
{
	static const uint8_t ones8[8] = {255, 255, 255, 255, 255, 255, 255, 255};
	static const uint8_t masked[] = {1, 8, 10, 11, 26, 27, 32};
	static const uint8_t masked6[] = {1, 2, 3, 7, 46, 47, 52};
	static uint8_t plain[128 + LONGEST];

	memcpy(plain, ip, n);
	for (size_t i = 0; i < sizeof(masked); i++)
		plain[six ? masked6[i] : masked[i]] = 0xff;
	if (six)
		plain[0] |= 0x0f;
	return crc32_bitwise(crc32_bitwise(0, ones8, 8), plain, n);
}

static void
every_length(void **state)
{
	uint8_t *frame = malloc(ETH_BYTES + LONGEST);

	six = *state != NULL;
	for (size_t n = six ? 60 : 40; n < LONGEST - 60; n += n < 700 ? 1 : 61) {
		/* of exactly this length, so that a sanitizer finds reads behind the end */
		uint8_t *ip = (frame = realloc(frame, ETH_BYTES + n)) + ETH_BYTES;
		uint32_t expected;

		fill(frame, ETH_BYTES + n, (uint32_t)n);
		expected = by_definition(ip, n);
		assert_int_equal(six ? icrc6_plain(ip, n) : icrc_plain(ip, n), expected);
		assert_int_equal(six ? roce_icrc6(ip, n) : roce_icrc(ip, n), expected);
	}
	free(frame);
}

/* Copies as memcpy does and zeros as far as the pad; nothing else is written. */
static void
check_copy(uint32_t (*copy)(uint8_t *, size_t, const void *, size_t), size_t headers, size_t n,
	   unsigned from_at, unsigned to_at)
{
	static uint8_t source[64 + LONGEST], frame[320 + LONGEST], before[sizeof(frame)];
	uint8_t *ip = frame + 64 + to_at, *from = source + from_at;
	size_t pad = -n & 3;
	uint32_t crc;

	fill(source, sizeof(source), (uint32_t)n + 7);
	fill(frame, sizeof(frame), (uint32_t)headers);
	memcpy(before, frame, sizeof(frame));
	crc = copy(ip, headers, from, n);
	assert_int_equal(crc, by_definition(ip, headers + n + pad));
	memcpy(before + 64 + to_at + headers, from, n);
	memset(before + 64 + to_at + headers + n, 0, pad);
	assert_memory_equal(frame, before, sizeof(frame));
}

static void
copies(void **state)
{
	static const size_t headers[] = {40, 44, 56, 60}, headers6[] = {60, 64, 76, 88};

	six = *state != NULL;
	for (size_t n = 0; n <= 4224; n += n < 700 ? 1 : 41)
		for (unsigned h = 0; h < 4; h++) {
			unsigned a = (unsigned)(n * 5 + h) % 64,
				 b = (unsigned)(n * 3 + h * 17) % 64;

			check_copy(six ? roce_icrc6_copy : roce_icrc_copy,
				   six ? headers6[h] : headers[h], n, a, b);
			check_copy(six ? icrc6_copy_plain : icrc_copy_plain,
				   six ? headers6[h] : headers[h], n, a, b);
		}
	for (size_t n = 256; n <= 4096; n *= 2)
		for (unsigned at = 0; at < 64; at++)
			check_copy(six ? roce_icrc6_copy : roce_icrc_copy, six ? 60 : 40, n, at,
				   63 - at);
}

static _Atomic bool scribbled_enough;

static void *
scribble(void *payload)
{
	uint64_t x = 1;

	while (!atomic_load_explicit(&scribbled_enough, memory_order_relaxed))
		for (unsigned i = 0; i < 512; i++)
			__atomic_store_n((uint64_t *)payload + i, x += 0x9e3779b97f4a7c15u,
					 __ATOMIC_RELAXED);
	return NULL;
}

/* Somebody writes the payload meanwhile: the CRC is that of the bytes in the frame. */
static void
payload_changes(void **state)
{
	static _Alignas(64) uint8_t payload[4096], frame[128 + 4096];
	uint8_t *ip = frame + 64;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, scribble, payload), 0);
	for (unsigned i = 0; i < 20000; i++) {
		size_t n = i % 4 ? 4096 : i % 4096;
		uint32_t crc = roce_icrc_copy(ip, 40, payload, n);

		assert_int_equal(crc, icrc_plain(ip, 40 + ((n + 3) & ~(size_t)3)));
	}
	atomic_store(&scribbled_enough, true);
	pthread_join(thread, NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_length),
	    cmocka_unit_test(copies),
	    {"every_length, IPv6", every_length, NULL, NULL, (void *)"six"},
	    {"copies, IPv6", copies, NULL, NULL, (void *)"six"},
	    cmocka_unit_test(payload_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
