/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of a version: the highest common one, or one line that says which side is older. */
#include "worlds/test.h"

#include "ipc/dpctl.h"
#include "ipc/session_msg.h"
#include "ipc/version.h"

static uint32_t
choose(struct weir_versions ours, struct weir_versions theirs, char *why)
{
	return weir_version_choose(ours, theirs, "x.sock", "this", "that", why);
}

TEST(test_highest_common)
{
	/* ours and theirs of all small ranges, against a search */
	for (uint32_t a = 1; a < 6; a++)
		for (uint32_t b = a; b < 6; b++)
			for (uint32_t c = 1; c < 6; c++)
				for (uint32_t d = c; d < 6; d++) {
					struct weir_versions ours = {a, b}, theirs = {c, d};
					char why[WEIR_VERSION_WHY] = "untouched";
					uint32_t want = 0;

					for (uint32_t v = 1; v < 6; v++)
						if (v >= a && v <= b && v >= c && v <= d)
							want = v;
					assert_int_equal(choose(ours, theirs, why), want);
					assert_int_equal(choose(theirs, ours, NULL), want);
					assert_true(!strcmp(why, "untouched") == (want != 0));
				}
}

TEST(test_older_side)
{
	char why[WEIR_VERSION_WHY];

	assert_int_equal(choose((struct weir_versions){4, 4}, (struct weir_versions){5, 6}, why),
			 0);
	assert_string_equal(why, "this speaks version 4 of x.sock, that version 5 to 6; upgrade "
				 "this, which is older");
	assert_int_equal(choose((struct weir_versions){4, 5}, (struct weir_versions){3, 3}, why),
			 0);
	assert_string_equal(why, "this speaks version 4 to 5 of x.sock, that version 3; upgrade "
				 "that, which is older");
}

/* Before there were ranges, a hello named one version; the number behind it was another field. */
TEST(test_single)
{
	const struct weir_versions ours = {4, 5};
	char why[WEIR_VERSION_WHY];

	assert_int_equal(choose(ours, (struct weir_versions){4, 0}, NULL), 4);
	assert_int_equal(choose(ours, (struct weir_versions){5, 3}, NULL), 5);
	assert_int_equal(choose(ours, (struct weir_versions){6, 2}, why), 0);
	assert_non_null(strstr(why, "that version 6; upgrade this"));
	assert_int_equal(choose(ours, (struct weir_versions){0, 0}, why), 0);
	assert_non_null(strstr(why, "that version 0; upgrade that"));
	assert_int_equal(choose(ours, (struct weir_versions){0, UINT32_MAX}, NULL), 5);
}

/* The longest fits where it is put. */
TEST(test_length)
{
	const struct weir_versions most = {UINT32_MAX - 1, UINT32_MAX};
	char why[WEIR_VERSION_WHY];

	static_assert(WEIR_VERSION_WHY <= WEIR_REASON_MAX, "fits a REFUSED");
	assert_int_equal(weir_version_choose((struct weir_versions){1, 2}, most,
					     "the control protocol", "this weir-control",
					     "the other", why),
			 0);
	assert_non_null(strstr(why, "which is older"));
}
