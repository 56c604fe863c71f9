/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks and memory that all cases use, and the loop that runs them. */
#include "cases.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct rma_case *const lists[] = {
    access_cases, update_cases, sync_cases,    group_cases,  window_cases, epoch_cases,
    lock_cases,	  flush_cases,	many_cases,    atomic_cases, layout_cases, shared_cases,
    notify_cases, error_cases,	dynamic_cases, random_cases};

int
ranks_join(struct ranks *r, const char *group)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	int rc;

	o.size = r->size;
	rc = weir_group_join(r->w, group, &o, CASE_MS, &r->g);
	if (!rc)
		r->rank = weir_group_rank(r->g);
	return rc;
}

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
let_others_run(void)
{
	const struct timespec ts = {.tv_nsec = 20000};

	nanosleep(&ts, NULL); /* in the simulator others go on for as long */
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
is_wanted(const struct rma_case *c, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], c->name))
			return true;
	return !n && !c->on_request;
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
	if (!r->rank && (r->says_ok || all))
		printf("%-24s %s\n", c->name, all ? "FAILED" : "ok");
	fflush(stdout);
	return all;
}

unsigned
cases_run(struct ranks *r, char **names, int n)
{
	unsigned failed = 0;

	r->ran = 0;
	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		for (const struct rma_case *c = lists[l]; c->name; c++)
			if (is_wanted(c, names, n)) {
				failed += run_case(r, c) != 0;
				r->ran++;
			}
	return failed;
}
