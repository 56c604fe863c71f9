/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that are formed again and again, for tests of hostile programs.
 *
 *   member INSTANCE meet NAME SIZE   joins the group NAME, whose secret strangers lack, makes
 *                                    collective calls, checks their results and leaves; each time
 *                                    it says "received N", and "wrong" if a call fails
 *   member INSTANCE bear NAME        the same with one member that may do anything, and no secret:
 *                                    calls may fail, but they end, and the session stays
 */
#include "program.h"

#include "weir/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int
meet(struct weir *w, const char *name, uint32_t size)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	uint64_t all[WEIR_GROUP_MAX], mine, sum;
	struct weir_group *g;

	o.size = size;
	o.secret = "open sesame";
	for (uint64_t n = 1;; n++) {
		int rc = weir_group_join(w, name, &o, PATIENCE_MS, &g);

		if (rc)
			return failed("wrong: join", rc);
		mine = sum = weir_group_rank(g) + n;
		rc = weir_group_allgather(g, &mine, sizeof(mine), all, PATIENCE_MS);
		if (!rc)
			rc = weir_group_allreduce(g, &sum, &sum, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
						  PATIENCE_MS);
		if (!rc)
			rc = weir_group_barrier(g, PATIENCE_MS);
		if (rc) {
			rc = failed("wrong: collective call", rc);
			weir_group_leave(g);
			return rc;
		}
		for (uint32_t i = 0; i < size; i++) {
			if (all[i] != i + n) {
				say("wrong: rank %u has counted %llu instead of %llu", i,
				    (unsigned long long)all[i], (unsigned long long)(i + n));
				return 1;
			}
			sum -= all[i];
		}
		if (sum) {
			say("wrong: the sum");
			return 1;
		}
		weir_group_leave(g);
		say("received %llu", (unsigned long long)n);
	}
}

static int
bear(struct weir *w, const char *name)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	unsigned formed = 0, refused = 0;
	uint64_t word = 1;

	o.size = 2;
	for (uint64_t n = 1; weir_node(w) >= 0; n++) {
		struct weir_group *g = NULL;
		int rc = weir_group_join(w, name, &o, 2000, &g);

		refused += rc && rc != -EAGAIN;
		if (!rc) {
			formed++;
			weir_group_allreduce(g, &word, &word, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 500);
			weir_group_leave(g);
		}
		say("received %llu: %u formed, %u failed", (unsigned long long)n, formed, refused);
	}
	return failed("session", weir_node(w));
}

int
main(int argc, char **argv)
{
	struct weir_options o = {.size = sizeof(o), .name = "member"};
	struct weir *w;
	int rc;

	if (argc < 4)
		return 2;
	o.instance = argv[1];
	rc = weir_attach(&o, &w);
	if (rc)
		return failed("attach", rc);
	if (!strcmp(argv[2], "bear"))
		rc = bear(w, argv[3]);
	else if (!strcmp(argv[2], "meet"))
		rc = meet(w, argv[3], (uint32_t)number_at(argc, argv, 4));
	else
		rc = 2;
	weir_detach(w);
	return rc;
}
