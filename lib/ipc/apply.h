/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Updates of memory: all pairs of type and operation. The library calls them on mapped memory,
 * engines call them on regions, so that all updates of a host are atomic to each other, but for
 * weir_apply_alone().
 *
 * Narrow types (integers, BOOL, BYTE, float, double) are updated by lock-free CPU instructions:
 * atomic per element to each other, to C11 atomics and to plain aligned loads. Wide types (long
 * double, complex, pairs) are updated by plain code: one thread at a time may do so.
 */
#ifndef WEIR_COMMON_APPLY_H
#define WEIR_COMMON_APPLY_H

#include "weir/type.h"

#include <stdbool.h>
#include <string.h>

/* Stores n bytes; programs see aligned 1, 2, 4 and 8 bytes whole. */
static inline void
weir_store_whole(void *to, const void *from, size_t n)
{
#define WHOLE(type)                                                                                \
	case sizeof(type): {                                                                       \
		type v;                                                                            \
                                                                                                   \
		memcpy(&v, from, sizeof(v));                                                       \
		__atomic_store_n((type *)to, v, __ATOMIC_RELAXED);                                 \
		return;                                                                            \
	}
	if (!((uintptr_t)to & (n - 1)))
		switch (n) {
			WHOLE(uint8_t)
			WHOLE(uint16_t)
			WHOLE(uint32_t)
			WHOLE(uint64_t)
		}
#undef WHOLE
	memcpy(to, from, n);
}

/* The same for loads: programs that store them see no torn result either. */
static inline void
weir_load_whole(void *to, const void *from, size_t n)
{
#define WHOLE(type)                                                                                \
	case sizeof(type): {                                                                       \
		type v = __atomic_load_n((const type *)from, __ATOMIC_RELAXED);                    \
                                                                                                   \
		memcpy(to, &v, sizeof(v));                                                         \
		return;                                                                            \
	}
	if (!((uintptr_t)from & (n - 1)))
		switch (n) {
			WHOLE(uint8_t)
			WHOLE(uint16_t)
			WHOLE(uint32_t)
			WHOLE(uint64_t)
		}
#undef WHOLE
	memcpy(to, from, n);
}

/* Of the elements of each type. */
#define WEIR_TYPES (WEIR_T_LONG_DOUBLE_AT + 1)
struct weir_type_facts {
	uint8_t size, align; /* bytes */
	uint16_t ops;	     /* bit enum weir_acc: what is defined for it */
};
extern const struct weir_type_facts weir_type_facts[WEIR_TYPES];

/* Whether updates of the type are not lock-free: one thread at a time may perform them. */
static inline bool
weir_type_is_wide(enum weir_type t)
{
	return t >= WEIR_T_LONG_DOUBLE;
}

/* Whether weir_apply_compare_swap() takes the type: an integer, BOOL or BYTE. */
static inline bool
weir_type_swaps(enum weir_type t)
{
	return t >= WEIR_T_BYTE && t <= WEIR_T_UINT64;
}

/* Whether `op` is defined for `t`, and `at` is aligned for it. */
static inline bool
weir_applies(enum weir_type t, enum weir_acc op, const void *at)
{
	return (unsigned)t < WEIR_TYPES && (unsigned)op < 16 && weir_type_facts[t].ops >> op & 1 &&
	       !((uintptr_t)at & (weir_type_facts[t].align - 1u));
}

/*
 * For each of `count` elements: *result = *at; *at = *at OP *operand. Elements of `at` are aligned;
 * operands and results are packed, of any alignment. operand may be NULL with NO_OP, result may be
 * NULL. The caller owns the memory and has checked its bounds, and weir_applies(). Relaxed order.
 */
void weir_apply_valid(enum weir_type t, enum weir_acc op, void *at, const void *operand,
		      void *result, uint64_t count);
/* The same for the sum of one 64-bit integer, signed or not: counters and tickets. */
static inline void
weir_apply_add64(void *at, const void *operand, void *result)
{
	typedef uint64_t __attribute__((may_alias)) bits;
	uint64_t x, old;

	memcpy(&x, operand, sizeof(x));
	old = __atomic_fetch_add((bits *)at, x, __ATOMIC_RELAXED);
	if (result)
		memcpy(result, &old, sizeof(old));
}

/* The same. 0, or -EINVAL: weir_applies() is false, and nothing was done. */
int weir_apply(enum weir_type t, enum weir_acc op, void *at, const void *operand, void *result,
	       uint64_t count);

/*
 * The same for callers that exclude all other updates of these elements: narrow types take plain
 * loops, which compilers turn into vectors. Concurrent loads still see elements whole.
 */
int weir_apply_alone(enum weir_type t, enum weir_acc op, void *at, const void *operand,
		     void *result, uint64_t count);

/*
 * One element of an integer type, BOOL or BYTE: *result = *at; if that equals *compare, *at =
 * *operand. result may be NULL. Relaxed order. Returns 0, or -EINVAL as above.
 */
int weir_apply_compare_swap(enum weir_type t, void *at, const void *compare, const void *operand,
			    void *result);

#endif
