/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nic/inject/impair.h"

#define FRAMES 100000

static struct impair_frame held[IMPAIR_HELD];

static void
shares_are_met(void **state)
{
	struct impair_config config = {.loss = 1, .dup = 5, .reorder = 20, .seed = 7};
	unsigned lost = 0, twice = 0, late = 0;
	struct impair i;

	assert_true(impair_wanted(&config));
	impair_init(&i, &config, 0, held, IMPAIR_HELD);
	for (int n = 0; n < FRAMES; n++) {
		unsigned fate = impair_fate(&i);

		lost += !!(fate & IMPAIR_LOSE);
		twice += !!(fate & IMPAIR_TWICE);
		late += !!(fate & IMPAIR_LATE);
	}
	assert_in_range(lost, FRAMES / 100 * 0.8, FRAMES / 100 * 1.2);
	assert_in_range(twice, FRAMES / 20 * 0.9, FRAMES / 20 * 1.1);
	assert_in_range(late, FRAMES / 5 * 0.95, FRAMES / 5 * 1.05);
}

static void
ends_of_the_scale(void **state)
{
	struct impair_config none = {.seed = 1}, all = {.loss = 100, .seed = 1};
	struct impair i;

	assert_false(impair_wanted(&none));
	impair_init(&i, &none, 0, held, IMPAIR_HELD);
	for (int n = 0; n < 1000; n++)
		assert_int_equal(impair_fate(&i), 0);
	impair_init(&i, &all, 0, held, IMPAIR_HELD);
	for (int n = 0; n < 1000; n++)
		assert_int_equal(impair_fate(&i), IMPAIR_LOSE);
}

static void
seed_decides(void **state)
{
	struct impair_config config = {.loss = 50, .seed = 1}, other = {.loss = 50, .seed = 2};
	struct impair a, b, c, d;
	int differs_seed = 0, differs_stream = 0;

	impair_init(&a, &config, 0, held, IMPAIR_HELD);
	impair_init(&b, &config, 0, held, IMPAIR_HELD);
	impair_init(&c, &other, 0, held, IMPAIR_HELD);
	impair_init(&d, &config, 1, held, IMPAIR_HELD);
	for (int n = 0; n < 1000; n++) {
		unsigned fate = impair_fate(&a);

		assert_int_equal(fate, impair_fate(&b));
		differs_seed += fate != impair_fate(&c);
		differs_stream += fate != impair_fate(&d);
	}
	assert_in_range(differs_seed, 300, 700);
	assert_in_range(differs_stream, 300, 700);
}

static uint64_t
due(struct impair *i, unsigned fate, uint64_t now)
{
	return impair_due(i, &fate, 100, now);
}

static void
held_frames_leave_when_due(void **state)
{
	struct impair_config config = {.delay_us = 10, .reorder = 50, .seed = 3};
	struct impair i;
	char frame[4];
	uint32_t length;

	impair_init(&i, &config, 0, held, IMPAIR_HELD);
	assert_true(impair_next(&i) == UINT64_MAX);
	assert_null(impair_release(&i, UINT64_MAX, &length));
	assert_true(impair_hold(&i, &frame[0], 10, 3000));
	assert_true(impair_hold(&i, &frame[1], 11, 1000));
	assert_true(impair_hold(&i, &frame[2], 12, 3000));
	assert_true(impair_hold(&i, &frame[3], 13, 2000));
	assert_int_equal(impair_next(&i), 1000);
	assert_null(impair_release(&i, 999, &length));
	assert_ptr_equal(impair_release(&i, 1000, &length), &frame[1]);
	assert_int_equal(length, 11);
	assert_null(impair_release(&i, 1999, &length));
	assert_ptr_equal(impair_release(&i, 5000, &length), &frame[3]);
	assert_ptr_equal(impair_release(&i, 5000, &length), &frame[0]);
	assert_ptr_equal(impair_release(&i, 5000, &length), &frame[2]);
	assert_null(impair_release(&i, 5000, &length));
	assert_int_equal(due(&i, 0, 100), 10100);
	assert_in_range(due(&i, IMPAIR_LATE, 100), 10101, 10100 + IMPAIR_REORDER_NS);
}

static void
full_and_wrapped(void **state)
{
	struct impair_config config = {.delay_us = 10, .seed = 3};
	struct impair i;
	uint32_t length;
	char frame;

	impair_init(&i, &config, 0, held, IMPAIR_HELD);
	for (uint32_t lap = 0; lap < 3; lap++) {
		for (uint32_t n = 0; n < IMPAIR_HELD; n++)
			assert_true(impair_hold(&i, &frame, n, 100000 - n));
		assert_false(impair_hold(&i, &frame, 0, 1));
		for (uint32_t n = 0; n < IMPAIR_HELD - 5; n++) {
			assert_ptr_equal(impair_release(&i, 100000, &length), &frame);
			assert_int_equal(length, IMPAIR_HELD - 1 - n);
		}
		while (impair_release(&i, 100000, &length))
			;
	}
}

/* Frames of 1,000 bytes at 8 Mbit/s leave one per ms, and no more wait than a queue holds. */
static void
rate_spaces_frames(void **state)
{
	struct impair_config config = {.rate = 8, .seed = 1};
	unsigned fate = 0, n = 1;
	struct impair i;

	assert_true(impair_wanted(&config));
	impair_init(&i, &config, 0, held, IMPAIR_HELD);
	assert_int_equal(impair_due(&i, &fate, 1000, 5000000), 6000000);
	assert_int_equal(fate, IMPAIR_LIMITED);
	for (; n < 1000; n++) {
		uint64_t at;

		fate = 0;
		at = impair_due(&i, &fate, 1000, 5000000);
		if (fate & IMPAIR_FULL)
			break;
		assert_int_equal(at, 5000000 + (n + 1) * 1000000ull);
	}
	assert_in_range(n, IMPAIR_QUEUE_NS / 1000000, IMPAIR_QUEUE_NS / 1000000 + 1);
	/* after a pause nothing is saved up */
	fate = 0;
	assert_true(impair_due(&i, &fate, 500, 900000000) == 900500000);
}

/* Jitter spreads frames over all of its range, and leaves their order alone. */
static void
jitter_keeps_the_order(void **state)
{
	struct impair_config config = {.delay_us = 10, .jitter_us = 100, .seed = 9};
	uint64_t last = 0, most = 0, least = UINT64_MAX;
	struct impair i;
	char frame;

	impair_init(&i, &config, 0, held, IMPAIR_HELD);
	assert_true(impair_hold(&i, &frame, 1, 1)); /* one waits: order is kept */
	for (uint64_t now = 0; now < 10000; now += 10) {
		unsigned fate = 0;
		uint64_t at = impair_due(&i, &fate, 100, now * 1000);

		assert_int_equal(fate, IMPAIR_DELAYED | IMPAIR_JITTERED);
		assert_true(at >= last);
		assert_in_range(at - now * 1000, 10000, 110000);
		most = at - now * 1000 > most ? at - now * 1000 : most;
		least = at - now * 1000 < least ? at - now * 1000 : least;
		last = at;
	}
	assert_true(most > 90000 && least < 60000);
}

static void
corruption_is_drawn(void **state)
{
	struct impair_config config = {.corrupt = 10, .seed = 4};
	unsigned corrupt = 0;
	struct impair i;

	assert_true(impair_wanted(&config));
	impair_init(&i, &config, 0, held, IMPAIR_HELD);
	for (int n = 0; n < FRAMES; n++) {
		unsigned fate = impair_fate(&i);

		assert_int_equal(fate & ~IMPAIR_CORRUPT, 0);
		corrupt += fate != 0;
		assert_in_range(impair_below(&i, 64), 0, 63);
	}
	assert_in_range(corrupt, FRAMES / 10 * 0.9, FRAMES / 10 * 1.1);
}

/* New values hold from the next frame on; what is held stays. */
static void
changed_while_it_runs(void **state)
{
	struct impair_config config = {.loss = 100, .delay_us = 10, .seed = 1}, none = {.seed = 1};
	struct impair i;
	char frame, text[64];
	uint32_t length;

	impair_init(&i, &config, 0, held, IMPAIR_HELD);
	impair_text(&config, text, sizeof(text));
	assert_string_equal(text, "loss=100 delay=10");
	assert_int_equal(impair_fate(&i), IMPAIR_LOSE);
	assert_true(impair_hold(&i, &frame, 7, 10000));
	impair_set(&i, &none);
	impair_text(&none, text, sizeof(text));
	assert_string_equal(text, "");
	for (int n = 0; n < 100; n++)
		assert_int_equal(impair_fate(&i), 0);
	assert_ptr_equal(impair_release(&i, 10000, &length), &frame);
	assert_int_equal(due(&i, 0, 20000), 20000);
}

/* A port that was started without impairments has fewer frames to hold back. */
static void
room_is_a_limit(void **state)
{
	struct impair_config config = {.delay_us = 10, .seed = 3};
	struct impair i;
	char frame;

	impair_init(&i, &config, 0, held, 5);
	for (uint32_t n = 0; n < 5; n++)
		assert_true(impair_hold(&i, &frame, n, n));
	assert_false(impair_hold(&i, &frame, 0, 1));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shares_are_met),	      cmocka_unit_test(ends_of_the_scale),
	    cmocka_unit_test(seed_decides),	      cmocka_unit_test(held_frames_leave_when_due),
	    cmocka_unit_test(full_and_wrapped),	      cmocka_unit_test(rate_spaces_frames),
	    cmocka_unit_test(jitter_keeps_the_order), cmocka_unit_test(corruption_is_drawn),
	    cmocka_unit_test(changed_while_it_runs),  cmocka_unit_test(room_is_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
