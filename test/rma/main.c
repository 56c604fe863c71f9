/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of the cases: rma-cases INSTANCE GROUP SIZE map|apart [CASE...]. All ranks are started
 * with the same arguments but INSTANCE. Prints a line per case, by rank 0 and by those that fail.
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
main(int argc, char **argv)
{
	struct weir_options session = WEIR_OPTIONS_INIT;
	struct ranks r = {0};
	unsigned failed;
	int rc;

	if (argc < 5 || (strcmp(argv[4], "map") && strcmp(argv[4], "apart"))) {
		fprintf(stderr, "usage: rma-cases INSTANCE GROUP SIZE map|apart [CASE...]\n");
		return 2;
	}
	session.instance = argv[1];
	session.name = "rma-cases";
	r.size = (uint32_t)strtoul(argv[3], NULL, 10);
	if (!r.size || r.size > RANKS_MAX) {
		fprintf(stderr, "rma-cases: '%s' ranks (expected 1 to %u)\n", argv[3], RANKS_MAX);
		return 2;
	}
	rc = weir_attach(&session, &r.w);
	if (!rc)
		rc = ranks_join(&r, argv[2]);
	if (rc) {
		fprintf(stderr, "rma-cases: %s\n", weir_reason());
		return 1;
	}
	r.maps = !strcmp(argv[4], "map");
	r.says_ok = true;
	failed = cases_run(&r, argv + 5, argc - 5);
	weir_group_leave(r.g);
	weir_detach(r.w);
	if (!r.rank)
		printf("%u cases, %u failed\n", r.ran, failed);
	return failed || !r.ran;
}
