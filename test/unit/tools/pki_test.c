/* SPDX-License-Identifier: BSD-3-Clause */
/* `weirctl pki`: files that cannot be written whole. */
#include "pki/pki.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The error of a full disk, here a limit of the file size, is the one that the user reads. */
static void
test_full(void **state)
{
	struct pki_order order = {.cluster = "c", .from = time(NULL), .until = time(NULL) + 3600};
	struct rlimit before, none;
	char dir[] = "/tmp/weir-pki-XXXXXX", path[64], error[256] = "";
	int rc;

	assert_non_null(mkdtemp(dir));
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = before;
	none.rlim_cur = 16;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	rc = pki_make_ca(dir, &order, error, sizeof(error));
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(rc, -EFBIG);
	assert_non_null(strstr(error, strerror(EFBIG)));
	assert_non_null(strstr(error, "; make room on that disk"));
	/* no part of a file remains, and the next try succeeds */
	assert_int_equal(pki_make_ca(dir, &order, error, sizeof(error)), 0);
	snprintf(path, sizeof(path), "%s/ca.pem", dir);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/ca.key", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_full)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
