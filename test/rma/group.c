/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective calls, groups made from groups, members that leave. */
#include "cases.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The calls on any group, whose members' values are functions of their ranks. */
static void
use(struct ranks *r, struct weir_group *g)
{
	uint32_t rank = weir_group_rank(g), size = weir_group_size(g);
	uint64_t all[RANKS_MAX], mine[RANKS_MAX], v, sum = 0;
	uint8_t bytes[5000];
	bool right = true;

	OK(r, weir_group_barrier(g, CASE_MS));
	for (uint32_t root = 0; root < size; root++) {
		for (uint32_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = rank == root ? pattern(root, 3, i) : 0;
		OK(r, weir_group_broadcast(g, root, bytes, sizeof(bytes), CASE_MS));
		for (uint32_t i = 0; i < sizeof(bytes); i++)
			right &= bytes[i] == pattern(root, 3, i);
	}
	CHECK(r, right);
	v = rank * 11 + 5;
	OK(r, weir_group_allgather(g, &v, sizeof(v), all, CASE_MS));
	for (uint32_t i = 0; i < size; i++) {
		CHECK(r, all[i] == i * 11 + 5);
		sum += i * 11 + 5;
		mine[i] = rank * 100 + i;
	}
	OK(r, weir_group_allreduce(g, &v, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM, CASE_MS));
	CHECK(r, v == sum);
	OK(r, weir_group_alltoall(g, mine, sizeof(v), all, CASE_MS));
	for (uint32_t i = 0; i < size; i++)
		CHECK(r, all[i] == i * 100 + rank);
}

static void
group_calls(struct ranks *r)
{
	for (unsigned i = 0; i < 10; i++)
		use(r, r->g);
}

/* By color and key, by host, by a list; ranks are translated. */
static void
group_split(struct ranks *r)
{
	struct weir_group *odd = NULL, *host = NULL, *last = NULL, *self = NULL;
	uint32_t other = r->size - 1, out = 0;

	OK(r, weir_group_split(r->g, (int)(r->rank % 2), -(int)r->rank, CASE_MS, &odd));
	if (odd) {
		CHECK(r, weir_group_size(odd) == (r->size + 1 - r->rank % 2) / 2);
		use(r, odd);
		OK(r, weir_group_translate(odd, 1, &(uint32_t){weir_group_rank(odd)}, r->g, &out));
		CHECK(r, out == r->rank);
	}
	OK(r, weir_group_split_host(r->g, CASE_MS, &host));
	if (host) {
		for (uint32_t i = 0; i < weir_group_size(host); i++) {
			struct weir_member is = {0};

			OK(r, weir_group_member(host, i, &is));
			CHECK(r, is.local);
		}
		use(r, host);
	}
	if (r->rank == other || !r->rank) {
		const uint32_t ranks[2] = {other, 0};

		OK(r, weir_group_subset(r->g, ranks, r->size > 1 ? 2 : 1, CASE_MS, &last));
		if (last) {
			CHECK(r, weir_group_rank(last) == (r->rank == other ? 0 : 1));
			use(r, last);
		}
	}
	OK(r, weir_group_self(r->w, &self));
	if (self)
		use(r, self);
	weir_group_leave(self);
	weir_group_leave(last);
	weir_group_leave(host);
	weir_group_leave(odd);
	together(r);
}

/* The last rank leaves a group; the others learn of it, and go on without it. */
static void
group_survivors(struct ranks *r)
{
	struct weir_group *g = NULL, *rest = NULL;
	uint32_t failed[RANKS_MAX];
	int rc = 0;

	OK(r, weir_group_split(r->g, 0, (int)r->rank, CASE_MS, &g));
	together(r); /* else it may end while others still make it */
	if (r->size > 1 && g) {
		if (r->rank == r->size - 1) {
			weir_group_leave(g);
			g = NULL;
		} else {
			while (!rc)
				rc = weir_group_barrier(g, CASE_MS);
			CHECK(r, rc == -ECONNRESET);
			OK(r, weir_group_survivors(g, CASE_MS, &rest));
			CHECK(r, weir_group_failed(g, failed, RANKS_MAX) == 1 &&
				     failed[0] == r->size - 1);
			if (rest) {
				CHECK(r, weir_group_size(rest) == r->size - 1);
				use(r, rest);
			}
		}
	}
	weir_group_leave(rest);
	weir_group_leave(g);
	together(r);
}

const struct rma_case group_cases[] = {
    {"group/calls", group_calls},
    {"group/split", group_split},
    {"group/survivors", group_survivors},
    {NULL, NULL},
};
