/* SPDX-License-Identifier: BSD-3-Clause */
/* Each kernel that computes ICRCs, against the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "nic/roce/icrc.h"
#include "nic/roce/icrc_kernel.h"
#include "nic/roce/roce.h"

#include <errno.h>

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

static bool six;			 /* IPv6 */
static const struct icrc_kernel *kernel; /* under test */

/* Runs a test for IPv4 and IPv6 with each kernel that this CPU supports. */
static void
with_each(void (*test)(void))
{
	unsigned tested = 0;

	for (const struct icrc_kernel *const *k = icrc_kernels; *k; k++) {
		kernel = *k;
		if (!kernel->supported()) {
			assert_int_equal(roce_icrc_choose(kernel->name), -ENOTSUP);
			print_message("not tested on this CPU: %s\n", kernel->name);
			continue;
		}
		assert_int_equal(roce_icrc_choose(kernel->name), 0);
		assert_string_equal(roce_icrc_name(), kernel->name);
		for (unsigned i = 0; i < 2; i++) {
			six = i != 0;
			test();
		}
		tested++;
	}
	assert_in_range(tested, 1, 4);
}

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
try_every_length(void)
{
	uint8_t *frame = malloc(ETH_BYTES + LONGEST);

	for (size_t n = six ? 60 : 40; n < LONGEST - 60; n += n < 1200 ? 1 : 61) {
		/* of exactly this length, so that a sanitizer finds reads behind the end */
		uint8_t *ip = (frame = realloc(frame, ETH_BYTES + n)) + ETH_BYTES;

		fill(frame, ETH_BYTES + n, (uint32_t)n);
		assert_int_equal(six ? roce_icrc6(ip, n) : roce_icrc(ip, n), by_definition(ip, n));
	}
	free(frame);
}

static void
every_length(void **state)
{
	with_each(try_every_length);
}

/* Copies as memcpy does and zeros as far as the pad; nothing else is written. */
static void
check_copy(size_t headers, size_t n, unsigned from_at, unsigned to_at)
{
	static uint8_t source[64 + LONGEST], frame[320 + LONGEST], before[sizeof(frame)];
	uint8_t *ip = frame + 64 + to_at, *from = source + from_at;
	size_t pad = -n & 3;
	uint32_t crc;

	fill(source, sizeof(source), (uint32_t)n + 7);
	fill(frame, sizeof(frame), (uint32_t)headers);
	memcpy(before, frame, sizeof(frame));
	crc = (six ? roce_icrc6_copy : roce_icrc_copy)(ip, headers, from, n);
	assert_int_equal(crc, by_definition(ip, headers + n + pad));
	memcpy(before + 64 + to_at + headers, from, n);
	memset(before + 64 + to_at + headers + n, 0, pad);
	assert_memory_equal(frame, before, sizeof(frame));
}

static void
try_copies(void)
{
	for (size_t n = 0; n <= 4224; n += n < 1200 ? 1 : 41) {
		unsigned h = (unsigned)n % 6;
		size_t headers = six ? 60 + 4 * (h + (h > 3) * 2) : 40 + 4 * h;

		check_copy(headers, n, (unsigned)(n * 5 + h) % 64, (unsigned)(n * 3 + h * 17) % 64);
		if (n < 300)
			for (h = 0; h < (six ? 8 : 6); h++)
				check_copy((six ? 60 : 40) + 4 * h, n, h, 63 - h);
	}
	for (size_t n = 256; n <= 4096; n *= 2)
		for (unsigned at = 0; at < 64; at++)
			check_copy(six ? 60 : 40, n, at, 63 - at);
}

static void
copies(void **state)
{
	with_each(try_copies);
}

/* A source of exactly this length, so that a sanitizer finds reads behind its end. */
static void
try_source_end(void)
{
	static uint8_t frame[128 + LONGEST];
	size_t headers = six ? 64 : 44;

	for (size_t n = 1; n < 700; n++) {
		uint8_t *source = malloc(n);
		uint32_t crc;

		fill(source, n, (uint32_t)n);
		crc = (six ? roce_icrc6_copy : roce_icrc_copy)(frame, headers, source, n);
		assert_int_equal(crc, by_definition(frame, headers + n + (-n & 3)));
		free(source);
	}
}

static void
source_end(void **state)
{
	with_each(try_source_end);
}

/* Headers given as words are those that icrc_copy() takes from memory. */
static void
try_frames(void)
{
	static uint8_t begin[28 + 36], frame[128 + LONGEST], other[sizeof(frame)], payload[LONGEST];

	for (size_t n = 0; !six && n <= 4096; n += n < 300 ? 1 : 127)
		for (size_t headers = 40; headers <= 60; headers += 4) {
			uint64_t words[4];
			uint32_t bth;

			fill(begin, sizeof(begin), (uint32_t)(n + headers));
			fill(payload, n, (uint32_t)n);
			memcpy(&bth, begin + 28, sizeof(bth));
			memcpy(words, begin + 32, sizeof(words));
			memcpy(other, begin, sizeof(begin));
			assert_int_equal(roce_icrc_frame(frame, begin, words[0], words[1], words[2],
							 words[3], bth, headers, payload, n),
					 roce_icrc_copy(other, headers, payload, n));
			assert_memory_equal(frame, other, headers + n + (-n & 3));
		}
}

static void
frames(void **state)
{
	with_each(try_frames);
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
try_payload_changes(void)
{
	static _Alignas(64) uint8_t payload[4096], frame[128 + 4096];
	uint8_t *ip = frame + 64;
	pthread_t thread;

	atomic_store(&scribbled_enough, false);
	assert_int_equal(pthread_create(&thread, NULL, scribble, payload), 0);
	for (unsigned i = 0; !six && i < 10000; i++) {
		size_t n = i % 4 ? 4096 : i % 4096;
		uint32_t crc = roce_icrc_copy(ip, 40, payload, n);

		assert_int_equal(crc, icrc_isal.check(ip, 40 + ((n + 3) & ~(size_t)3)));
	}
	atomic_store(&scribbled_enough, true);
	pthread_join(thread, NULL);
}

static void
payload_changes(void **state)
{
	with_each(try_payload_changes);
}

static void
unknown_kernel(void **state)
{
	const char *before = roce_icrc_name();

	assert_int_equal(roce_icrc_choose("md5"), -EINVAL);
	assert_int_equal(roce_icrc_choose(""), -EINVAL);
	assert_string_equal(roce_icrc_name(), before);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_length),    cmocka_unit_test(copies),
	    cmocka_unit_test(source_end),      cmocka_unit_test(frames),
	    cmocka_unit_test(payload_changes), cmocka_unit_test(unknown_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
