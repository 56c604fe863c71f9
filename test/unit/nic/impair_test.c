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
	impair_init(&i, &config, 0, held);
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
	impair_init(&i, &none, 0, held);
	for (int n = 0; n < 1000; n++)
		assert_int_equal(impair_fate(&i), 0);
	impair_init(&i, &all, 0, held);
	for (int n = 0; n < 1000; n++)
		assert_int_equal(impair_fate(&i), IMPAIR_LOSE);
}

static void
seed_decides(void **state)
{
	struct impair_config config = {.loss = 50, .seed = 1}, other = {.loss = 50, .seed = 2};
	struct impair a, b, c, d;
	int differs_seed = 0, differs_stream = 0;

	impair_init(&a, &config, 0, held);
	impair_init(&b, &config, 0, held);
	impair_init(&c, &other, 0, held);
	impair_init(&d, &config, 1, held);
	for (int n = 0; n < 1000; n++) {
		unsigned fate = impair_fate(&a);

		assert_int_equal(fate, impair_fate(&b));
		differs_seed += fate != impair_fate(&c);
		differs_stream += fate != impair_fate(&d);
	}
	assert_in_range(differs_seed, 300, 700);
	assert_in_range(differs_stream, 300, 700);
}

static void
held_frames_leave_when_due(void **state)
{
	struct impair_config config = {.delay_us = 10, .reorder = 50, .seed = 3};
	struct impair i;
	char frame[4];
	uint32_t length;

	impair_init(&i, &config, 0, held);
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
	assert_int_equal(impair_due(&i, 0, 100), 10100);
	assert_in_range(impair_due(&i, IMPAIR_LATE, 100), 10101, 10100 + IMPAIR_REORDER_NS);
}

static void
full_and_wrapped(void **state)
{
	struct impair_config config = {.delay_us = 10, .seed = 3};
	struct impair i;
	uint32_t length;
	char frame;

	impair_init(&i, &config, 0, held);
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shares_are_met),	cmocka_unit_test(ends_of_the_scale),
	    cmocka_unit_test(seed_decides),	cmocka_unit_test(held_frames_leave_when_due),
	    cmocka_unit_test(full_and_wrapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
