/* SPDX-License-Identifier: BSD-3-Clause */
/* Updates: every type and operation against plain calls, and all ranks on one element. */
#include "part.h"

#include "ipc/apply.h"

#include <errno.h>
#include <stdio.h>

#define PART 4096u

/* Every type and operation, of some elements, with and without the values before. */
static void
update_types(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	uint32_t to = (r->rank + 1) % r->size, owner = (r->rank + r->size - 1) % r->size;
	char what[64];
	_Alignas(32) uint8_t is[4 * 32], operand[4 * 32], before[4 * 32], got[4 * 32];

	for (unsigned t = WEIR_T_BYTE; t <= WEIR_T_LONG_DOUBLE_AT; t++)
		for (unsigned op = WEIR_ACC_SUM; op <= WEIR_ACC_NO_OP; op++) {
			size_t size = weir_type_size((enum weir_type)t), n = 3;
			struct weir_update u = {.offset = 64,
						.operand = operand,
						.result = op % 2 ? NULL : got,
						.count = n,
						.type = t,
						.op = op};

			operands((enum weir_type)t, 11 * op, (unsigned)n, is);
			operands((enum weir_type)t, 3 + op, (unsigned)n, operand);
			memcpy(m.base + 64, is, n * size);
			memset(got, 0, sizeof(got));
			memset(before, 0, sizeof(before));
			together(r);
			if (!weir_acc_valid((enum weir_type)t, (enum weir_acc)op)) {
				WANT(r, weir_remote_update(m.at[to], &u), -EINVAL);
				continue;
			}
			OK(r, weir_remote_update(m.at[to], &u));
			flush_all(r, &m);
			OK(r, weir_apply((enum weir_type)t, (enum weir_acc)op, is, operand,
					 u.result ? before : NULL, n));
			if (memcmp(m.base + 64, is, n * size) || memcmp(got, before, sizeof(got))) {
				snprintf(what, sizeof(what), "type %u, operation %u", t, op);
				check(r, false, what, __LINE__);
			}
		}
	CHECK(r, owner < r->size);
	memory_free(r, &m);
}

/* All add to one element, as often as it takes to meet; nothing is lost. */
static void
update_sums(struct ranks *r)
{
	static const enum weir_type types[] = {WEIR_T_INT64, WEIR_T_DOUBLE, WEIR_T_LONG_DOUBLE,
					       WEIR_T_LONG_DOUBLE_COMPLEX};
	enum { N = 3000 };
	struct memory m = memory_make(r, PART);

	for (unsigned k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
		_Alignas(32) uint8_t one[32] = {0};
		long double sum = 0;

		switch (types[k]) {
		case WEIR_T_INT64:
			*(int64_t *)(void *)one = 1;
			break;
		case WEIR_T_DOUBLE:
			*(double *)(void *)one = 1;
			break;
		default: /* a complex number begins with its real part */
			*(long double *)(void *)one = 1;
		}
		for (unsigned i = 0; i < N; i++) {
			const struct weir_update u = {.offset = 32 * k,
						      .operand = one,
						      .count = 1,
						      .type = types[k],
						      .op = WEIR_ACC_SUM};

			OK(r, weir_remote_update(m.at[0], &u));
		}
		flush_all(r, &m);
		if (r->rank)
			continue;
		if (types[k] == WEIR_T_INT64)
			sum = (long double)*(int64_t *)(void *)(m.base + 32 * k);
		else if (types[k] == WEIR_T_DOUBLE)
			sum = (long double)*(double *)(void *)(m.base + 32 * k);
		else
			sum = *(long double *)(void *)(m.base + 32 * k);
		CHECK(r, sum == (long double)N * r->size);
	}
	memory_free(r, &m);
}

/* Every rank takes tickets; each number is taken once. */
static void
update_tickets(struct ranks *r)
{
	enum { N = 500 };
	struct memory m = memory_make(r, 3 * (uint64_t)PART);
	uint32_t total = N * r->size;
	uint8_t taken = 1;
	uint64_t one = 1, mine[N];

	for (unsigned i = 0; i < N; i++)
		OK(r, weir_remote_fetch_op(m.at[0], 0, &one, &mine[i], WEIR_T_UINT64, WEIR_ACC_SUM,
					   0));
	OK(r, weir_remote_flush(m.at[0], CASE_MS));
	for (unsigned i = 0; i < N; i++) {
		CHECK(r, mine[i] < total && (!i || mine[i] > mine[i - 1]));
		if (mine[i] < total)
			OK(r, weir_remote_fetch_op(m.at[0], PART + mine[i], &taken, &mine[i],
						   WEIR_T_UINT8, WEIR_ACC_SUM, 0));
	}
	flush_all(r, &m);
	if (!r->rank)
		for (uint32_t i = 0; i < total; i++)
			CHECK(r, m.base[PART + i] == 1);
	memory_free(r, &m);
}

/* Read, compute, compare and swap: one step against all others. */
static void
update_cas(struct ranks *r)
{
	enum { N = 100 };
	struct memory m = memory_make(r, PART);
	uint32_t was = 0, next, seen;

	for (unsigned i = 0; i < N;) {
		next = was * 3 + 1;
		OK(r, weir_remote_compare_swap(m.at[0], 4, &was, &next, &seen, WEIR_T_UINT32, 0));
		if (weir_remote_flush(m.at[0], CASE_MS))
			break;
		i += seen == was;
		was = seen == was ? next : seen;
	}
	together(r);
	next = 0;
	for (unsigned i = 0; i < N * r->size; i++)
		next = next * 3 + 1;
	memcpy(&seen, m.base + 4, 4);
	CHECK(r, r->rank || seen == next);
	WANT(r, weir_remote_compare_swap(m.at[0], 0, &was, &next, &seen, WEIR_T_FLOAT, 0), -EINVAL);
	memory_free(r, &m);
}

/* A pair that all replace is read whole. */
static void
update_pair_get(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	struct weir_double_at is;

	for (int32_t i = 1; i <= 300; i++) {
		const struct weir_double_at next = {(double)(i * 16 + (int32_t)r->rank),
						    i * 16 + (int32_t)r->rank};

		memset(&is, 0xff, sizeof(is));
		OK(r, weir_remote_fetch_op(m.at[0], 48, &next, &is, WEIR_T_DOUBLE_AT,
					   i % 3 ? WEIR_ACC_REPLACE : WEIR_ACC_NO_OP, 0));
		OK(r, weir_remote_flush(m.at[0], CASE_MS));
		CHECK(r, is.value == (double)is.at);
	}
	memory_free(r, &m);
}

/* The least and the greatest value of all, and which rank has it. */
static void
update_loc(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	const struct weir_layout two = {
	    .block = sizeof(struct weir_double_at),
	    .dims = 1,
	    .dim = {{.count = 2, .stride = 2 * sizeof(struct weir_double_at)}}};
	struct weir_double_at *at = (void *)m.base, mine[2];
	struct weir_update u = {.operand = mine,
				.count = 2,
				.there = &two,
				.type = WEIR_T_DOUBLE_AT,
				.op = WEIR_ACC_MAXLOC};

	for (unsigned i = 0; i < 4; i++)
		at[i] = (struct weir_double_at){-1e30, -1};
	together(r);
	for (unsigned i = 0; i < 2; i++)
		mine[i] =
		    (struct weir_double_at){(double)((r->rank * 7 + 3 * i) % 5), (int32_t)r->rank};
	OK(r, weir_remote_update(m.at[0], &u));
	flush_all(r, &m);
	if (!r->rank)
		for (unsigned i = 0; i < 2; i++) {
			struct weir_double_at most = {-1e30, -1};

			for (uint32_t k = 0; k < r->size; k++)
				if ((double)((k * 7 + 3 * i) % 5) > most.value)
					most = (struct weir_double_at){
					    (double)((k * 7 + 3 * i) % 5), (int32_t)k};
			CHECK(r, at[2 * i].value == most.value && at[2 * i].at == most.at);
			CHECK(r, at[2 * i + 1].at == -1);
		}
	memory_free(r, &m);
}

const struct rma_case update_cases[] = {
    {"update/types", update_types},
    {"update/sums", update_sums},
    {"remote/tickets", update_tickets},
    {"remote/cas", update_cas},
    {"remote/pair_get", update_pair_get},
    {"remote/loc", update_loc},
    {NULL, NULL},
};
