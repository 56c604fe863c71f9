/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of the cases: rma-cases INSTANCE GROUP SIZE map|apart [CASE...]. All ranks are started
 * with the same arguments but INSTANCE. Prints a line per case, by rank 0 and by those that fail.
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct rma_case *const lists[] = {access_cases, update_cases, sync_cases, group_cases};

void
check(struct ranks *r, bool holds, const char *what, int line)
{
	if (holds)
		return;
	r->failures++;
	fprintf(stderr, "%s: rank %u, line %d: %s\n", r->name, r->rank, line, what);
}

void
check_rc(struct ranks *r, int rc, int want, const char *what, int line)
{
	if (rc == want)
		return;
	r->failures++;
	fprintf(stderr, "%s: rank %u, line %d: %s: %d instead of %d: %s\n", r->name, r->rank, line,
		what, rc, want, rc < 0 ? weir_reason() : "");
}

void
together(struct ranks *r)
{
	OK(r, weir_group_barrier(r->g, CASE_MS));
}

void
flush_all(struct ranks *r, struct memory *m)
{
	for (uint32_t i = 0; i < r->size; i++)
		OK(r, weir_remote_flush(m->at[i], CASE_MS));
	together(r);
}

struct memory
memory_make(struct ranks *r, uint64_t bytes)
{
	unsigned rights =
	    WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY | WEIR_MAY_LOCK;
	struct weir_region_info info;
	struct memory m = {0};
	struct weir_key key;

	OK(r, weir_region_alloc(r->w, bytes, NULL, &m.region));
	weir_region_info(m.region, &info);
	m.base = info.base;
	bytes = info.bytes; /* only a whole region can be mapped */
	OK(r, weir_export(m.region, 0, bytes, rights | (r->maps ? WEIR_MAY_MAP : 0), &m.x, &key));
	OK(r, weir_group_allgather(r->g, &key, sizeof(key), m.keys, CASE_MS));
	for (uint32_t i = 0; i < r->size; i++)
		OK(r, weir_remote_open(r->w, &m.keys[i], rights, 0, CASE_MS, &m.at[i]));
	together(r);
	return m;
}

void
memory_free(struct ranks *r, struct memory *m)
{
	flush_all(r, m);
	for (uint32_t i = 0; i < r->size; i++)
		weir_remote_close(m->at[i]);
	OK(r, weir_revoke(m->x));
	OK(r, weir_region_free(m->region));
}

static bool
is_wanted(const char *name, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return !n;
}

/* Failures of all ranks in a case. */
static uint64_t
run_case(struct ranks *r, const struct rma_case *c)
{
	uint64_t mine, all = 0;

	r->name = c->name;
	r->failures = 0;
	c->run(r);
	mine = r->failures;
	OK(r, weir_group_allreduce(r->g, &mine, &all, 1, WEIR_T_UINT64, WEIR_ACC_SUM, CASE_MS));
	all += r->failures - mine;
	if (!r->rank)
		printf("%-24s %s\n", c->name, all ? "FAILED" : "ok");
	fflush(stdout);
	return all;
}

int
main(int argc, char **argv)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct weir_options session = WEIR_OPTIONS_INIT;
	struct ranks r = {0};
	unsigned failed = 0, ran = 0;
	int rc;

	if (argc < 5 || (strcmp(argv[4], "map") && strcmp(argv[4], "apart"))) {
		fprintf(stderr, "usage: rma-cases INSTANCE GROUP SIZE map|apart [CASE...]\n");
		return 2;
	}
	session.instance = argv[1];
	session.name = "rma-cases";
	o.size = (uint32_t)strtoul(argv[3], NULL, 10);
	if (o.size > RANKS_MAX) {
		fprintf(stderr, "rma-cases: more than %u ranks\n", RANKS_MAX);
		return 2;
	}
	rc = weir_attach(&session, &r.w);
	if (!rc)
		rc = weir_group_join(r.w, argv[2], &o, CASE_MS, &r.g);
	if (rc) {
		fprintf(stderr, "rma-cases: %s\n", weir_reason());
		return 1;
	}
	r.rank = weir_group_rank(r.g);
	r.size = weir_group_size(r.g);
	r.maps = !strcmp(argv[4], "map");
	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		for (const struct rma_case *c = lists[l]; c->name; c++)
			if (is_wanted(c->name, argv + 5, argc - 5)) {
				failed += run_case(&r, c) != 0;
				ran++;
			}
	weir_group_leave(r.g);
	weir_detach(r.w);
	if (!r.rank)
		printf("%u cases, %u failed\n", ran, failed);
	return failed || !ran;
}
