/* SPDX-License-Identifier: BSD-3-Clause */
#include "part.h"

#include <float.h>

/* Cases compare all bytes, and the compiler may copy those behind the value. */
#define LONG_DOUBLE_BYTES (LDBL_MANT_DIG == 64 ? 10 : sizeof(long double))

bool
is_filled(const uint8_t *at, uint8_t with, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (at[i] != with)
			return false;
	return true;
}

/* One element in zeroed memory. */
static void
fill(enum weir_type t, uint32_t round, void *to)
{
	long double v = (long double)((int)(round * 5 % 23) - 7);

	switch (t) {
#define CASE(name, T)                                                                              \
	case name:                                                                                 \
		*(T *)to = (T)v;                                                                   \
		break
		CASE(WEIR_T_FLOAT, float);
		CASE(WEIR_T_DOUBLE, double);
		CASE(WEIR_T_FLOAT_COMPLEX, float); /* the real part; the other is 0 */
		CASE(WEIR_T_DOUBLE_COMPLEX, double);
#undef CASE
#define CASE(name, T, V)                                                                           \
	case name:                                                                                 \
		((struct T *)to)->value = (V)v; /* nothing else: not what lies between */          \
		((struct T *)to)->at = (int32_t)round;                                             \
		break
		CASE(WEIR_T_INT16_AT, weir_int16_at, int16_t);
		CASE(WEIR_T_INT32_AT, weir_int32_at, int32_t);
		CASE(WEIR_T_INT64_AT, weir_int64_at, int64_t);
		CASE(WEIR_T_FLOAT_AT, weir_float_at, float);
		CASE(WEIR_T_DOUBLE_AT, weir_double_at, double);
#undef CASE
	case WEIR_T_LONG_DOUBLE_AT:
		((struct weir_long_double_at *)to)->at = (int32_t)round;
		memcpy(to, &v, LONG_DOUBLE_BYTES);
		break;
	case WEIR_T_LONG_DOUBLE:
	case WEIR_T_LONG_DOUBLE_COMPLEX:
		memcpy(to, &v, LONG_DOUBLE_BYTES);
		break;
	case WEIR_T_BOOL:
		*(bool *)to = round & 1;
		break;
	default:
		memset(to, (int)(round * 29 + 3), weir_type_size(t));
	}
}

void
operands(enum weir_type t, uint32_t round, unsigned n, void *to)
{
	size_t size = weir_type_size(t);

	for (unsigned i = 0; i < n; i++) {
		_Alignas(ELEMENT_MAX) uint8_t element[ELEMENT_MAX] = {0};

		fill(t, round + i, element);
		memcpy((uint8_t *)to + i * size, element, size);
	}
}

enum weir_acc
first_operation(enum weir_type t)
{
	unsigned op = WEIR_ACC_SUM;

	while (!weir_acc_valid(t, (enum weir_acc)op))
		op++;
	return (enum weir_acc)op;
}

void
epoch_begin(struct ranks *r, struct weir_window *win, enum epoch_kind kind)
{
	uint32_t all[RANKS_MAX];

	for (uint32_t i = 0; i < r->size; i++)
		all[i] = i;
	switch (kind) {
	case BY_FENCE:
		OK(r, weir_window_fence(win, 0, CASE_MS));
		break;
	case BY_START:
		OK(r, weir_window_post(win, all, r->size, 0));
		OK(r, weir_window_start(win, all, r->size, 0, CASE_MS));
		break;
	case BY_LOCKS:
		together(r);
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_lock(win, i, WEIR_LOCK_SHARED, 0, CASE_MS));
		break;
	default:
		together(r);
		OK(r, weir_window_lock_all(win, 0, CASE_MS));
	}
}

void
epoch_end(struct ranks *r, struct weir_window *win, enum epoch_kind kind)
{
	switch (kind) {
	case BY_FENCE:
		OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
		break;
	case BY_START:
		OK(r, weir_window_complete(win, CASE_MS));
		OK(r, weir_window_wait(win, CASE_MS));
		break;
	case BY_LOCKS:
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_unlock(win, i, CASE_MS));
		together(r);
		break;
	default:
		OK(r, weir_window_unlock_all(win, CASE_MS));
		together(r);
	}
}

struct ranks
host_ranks(struct ranks *r)
{
	struct ranks host = *r;

	host.failures = 0;
	OK(r, weir_group_split_host(r->g, CASE_MS, &host.g));
	host.rank = weir_group_rank(host.g);
	host.size = weir_group_size(host.g);
	return host;
}

void
host_done(struct ranks *r, struct ranks *host)
{
	weir_group_leave(host->g);
	r->failures += host->failures;
	together(r);
}
