/* SPDX-License-Identifier: BSD-3-Clause */
#include "apply.h"

#include <complex.h>
#include <errno.h>
#include <float.h>
#include <string.h>

/* name, C type of an element, operations besides REPLACE and NO_OP */
#define INTEGER_OPS                                                                                \
	(1u << WEIR_ACC_SUM | 1u << WEIR_ACC_PROD | 1u << WEIR_ACC_MIN | 1u << WEIR_ACC_MAX |      \
	 LOGICAL_OPS | BITWISE_OPS)
#define LOGICAL_OPS (1u << WEIR_ACC_LAND | 1u << WEIR_ACC_LOR | 1u << WEIR_ACC_LXOR)
#define BITWISE_OPS (1u << WEIR_ACC_BAND | 1u << WEIR_ACC_BOR | 1u << WEIR_ACC_BXOR)
#define COMPLEX_OPS (1u << WEIR_ACC_SUM | 1u << WEIR_ACC_PROD)
#define FLOATING_OPS (COMPLEX_OPS | 1u << WEIR_ACC_MIN | 1u << WEIR_ACC_MAX)
#define PAIR_OPS (1u << WEIR_ACC_MINLOC | 1u << WEIR_ACC_MAXLOC)
#define EACH_TYPE(X)                                                                               \
	X(WEIR_T_BYTE, uint8_t, BITWISE_OPS)                                                       \
	X(WEIR_T_BOOL, uint8_t, LOGICAL_OPS)                                                       \
	X(WEIR_T_INT8, int8_t, INTEGER_OPS)                                                        \
	X(WEIR_T_UINT8, uint8_t, INTEGER_OPS)                                                      \
	X(WEIR_T_INT16, int16_t, INTEGER_OPS)                                                      \
	X(WEIR_T_UINT16, uint16_t, INTEGER_OPS)                                                    \
	X(WEIR_T_INT32, int32_t, INTEGER_OPS)                                                      \
	X(WEIR_T_UINT32, uint32_t, INTEGER_OPS)                                                    \
	X(WEIR_T_INT64, int64_t, INTEGER_OPS)                                                      \
	X(WEIR_T_UINT64, uint64_t, INTEGER_OPS)                                                    \
	X(WEIR_T_FLOAT, float, FLOATING_OPS)                                                       \
	X(WEIR_T_DOUBLE, double, FLOATING_OPS)                                                     \
	X(WEIR_T_LONG_DOUBLE, long double, FLOATING_OPS)                                           \
	X(WEIR_T_FLOAT_COMPLEX, float complex, COMPLEX_OPS)                                        \
	X(WEIR_T_DOUBLE_COMPLEX, double complex, COMPLEX_OPS)                                      \
	X(WEIR_T_LONG_DOUBLE_COMPLEX, long double complex, COMPLEX_OPS)                            \
	X(WEIR_T_INT16_AT, struct weir_int16_at, PAIR_OPS)                                         \
	X(WEIR_T_INT32_AT, struct weir_int32_at, PAIR_OPS)                                         \
	X(WEIR_T_INT64_AT, struct weir_int64_at, PAIR_OPS)                                         \
	X(WEIR_T_FLOAT_AT, struct weir_float_at, PAIR_OPS)                                         \
	X(WEIR_T_DOUBLE_AT, struct weir_double_at, PAIR_OPS)                                       \
	X(WEIR_T_LONG_DOUBLE_AT, struct weir_long_double_at, PAIR_OPS)

const struct weir_type_facts weir_type_facts[WEIR_TYPES] = {
#define X(name, type, defined)                                                                     \
	[name] = {sizeof(type), _Alignof(type),                                                    \
		  (defined) | 1u << WEIR_ACC_REPLACE | 1u << WEIR_ACC_NO_OP},
    EACH_TYPE(X)
#undef X
};

size_t
weir_type_size(enum weir_type t)
{
	return (unsigned)t < WEIR_TYPES ? weir_type_facts[t].size : 0;
}

size_t
weir_type_align(enum weir_type t)
{
	return (unsigned)t < WEIR_TYPES ? weir_type_facts[t].align : 0;
}

int
weir_acc_valid(enum weir_type t, enum weir_acc op)
{
	return (unsigned)t < WEIR_TYPES && (unsigned)op < 16 && weir_type_facts[t].ops >> op & 1;
}

/* so that none saves the registers of all */
#define OUT_OF_LINE __attribute__((noinline))

/* ---- narrow types ---- */

/*
 * Functions for one type: U, its bits, is what the CPU updates; V, its value, is what operations
 * compute with; W, unsigned and at least as wide as int, is what sums and products wrap in. get and
 * put convert between U and V.
 */
#define EACH_ELEMENT(U, statement)                                                                 \
	do {                                                                                       \
		for (uint64_t i = 0; i < count; i++) {                                             \
			U x = 0, old;                                                              \
                                                                                                   \
			if (operand)                                                               \
				memcpy(&x, operand + i * sizeof(U), sizeof(U));                    \
			statement;                                                                 \
			if (result)                                                                \
				memcpy(result + i * sizeof(U), &old, sizeof(U));                   \
		}                                                                                  \
	} while (0)
/* A value that stays as it is needs no store: the load was the atomic operation. */
#define EXCHANGE(U, new_bits)                                                                      \
	EACH_ELEMENT(U, {                                                                          \
		old = __atomic_load_n(&at[i], __ATOMIC_RELAXED);                                   \
		for (;;) {                                                                         \
			U next = (new_bits);                                                       \
                                                                                                   \
			if (next == old ||                                                         \
			    __atomic_compare_exchange_n(&at[i], &old, next, true,                  \
							__ATOMIC_RELAXED, __ATOMIC_RELAXED))       \
				break;                                                             \
		}                                                                                  \
	})

#define COMMON_CASES(U)                                                                            \
	case WEIR_ACC_REPLACE:                                                                     \
		EACH_ELEMENT(U, old = __atomic_exchange_n(&at[i], x, __ATOMIC_RELAXED));           \
		break;                                                                             \
	default: /* NO_OP */                                                                       \
		EACH_ELEMENT(U, old = __atomic_load_n(&at[i], __ATOMIC_RELAXED));                  \
		break

#define BITWISE_CASES(U)                                                                           \
	case WEIR_ACC_BAND:                                                                        \
		EACH_ELEMENT(U, old = __atomic_fetch_and(&at[i], x, __ATOMIC_RELAXED));            \
		break;                                                                             \
	case WEIR_ACC_BOR:                                                                         \
		EACH_ELEMENT(U, old = __atomic_fetch_or(&at[i], x, __ATOMIC_RELAXED));             \
		break;                                                                             \
	case WEIR_ACC_BXOR:                                                                        \
		EACH_ELEMENT(U, old = __atomic_fetch_xor(&at[i], x, __ATOMIC_RELAXED));            \
		break

#define LOGICAL_CASES(U)                                                                           \
	case WEIR_ACC_LAND:                                                                        \
		EXCHANGE(U, old &&x);                                                              \
		break;                                                                             \
	case WEIR_ACC_LOR:                                                                         \
		EXCHANGE(U, old || x);                                                             \
		break;                                                                             \
	case WEIR_ACC_LXOR:                                                                        \
		EXCHANGE(U, !old != !x);                                                           \
		break

#define APPLY_ARGUMENTS(U)                                                                         \
	enum weir_acc op, U *at, const uint8_t *operand, uint8_t *result, uint64_t count

/* Programs access the same memory by other types. */
typedef uint8_t __attribute__((may_alias)) bits8;
typedef uint16_t __attribute__((may_alias)) bits16;
typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;

#define INTEGER(name, U, V, W)                                                                     \
	static OUT_OF_LINE void apply_##name(APPLY_ARGUMENTS(U))                                   \
	{                                                                                          \
		switch (op) {                                                                      \
		case WEIR_ACC_SUM:                                                                 \
			EACH_ELEMENT(U, old = __atomic_fetch_add(&at[i], x, __ATOMIC_RELAXED));    \
			break;                                                                     \
		case WEIR_ACC_PROD:                                                                \
			EXCHANGE(U, (U)((W)old * (W)x));                                           \
			break;                                                                     \
		case WEIR_ACC_MIN:                                                                 \
			EXCHANGE(U, (V)x < (V)old ? x : old);                                      \
			break;                                                                     \
		case WEIR_ACC_MAX:                                                                 \
			EXCHANGE(U, (V)x > (V)old ? x : old);                                      \
			break;                                                                     \
			LOGICAL_CASES(U);                                                          \
			BITWISE_CASES(U);                                                          \
			COMMON_CASES(U);                                                           \
		}                                                                                  \
	}

INTEGER(int8, bits8, int8_t, uint32_t)
INTEGER(uint8, bits8, uint8_t, uint32_t)
INTEGER(int16, bits16, int16_t, uint32_t)
INTEGER(uint16, bits16, uint16_t, uint32_t)
INTEGER(int32, bits32, int32_t, uint32_t)
INTEGER(uint32, bits32, uint32_t, uint32_t)
INTEGER(int64, bits64, int64_t, uint64_t)
INTEGER(uint64, bits64, uint64_t, uint64_t)

static OUT_OF_LINE void
apply_byte(APPLY_ARGUMENTS(bits8))
{
	switch (op) {
		BITWISE_CASES(bits8);
		COMMON_CASES(bits8);
	}
}

/* A _Bool that is neither 0 nor 1 is no value of C: none is stored, and none is fetched. */
static OUT_OF_LINE void
apply_bool(APPLY_ARGUMENTS(bits8))
{
	switch (op) {
		LOGICAL_CASES(bits8);
	case WEIR_ACC_REPLACE:
		EACH_ELEMENT(bits8, old = __atomic_exchange_n(&at[i], !!x, __ATOMIC_RELAXED));
		break;
	default: /* NO_OP */
		EACH_ELEMENT(bits8, old = __atomic_load_n(&at[i], __ATOMIC_RELAXED));
	}
	for (uint64_t i = 0; result && i < count; i++)
		result[i] = !!result[i];
}

#define FLOATING(name, U)                                                                          \
	static inline U name##_bits(name v)                                                        \
	{                                                                                          \
		U bits;                                                                            \
                                                                                                   \
		memcpy(&bits, &v, sizeof(bits));                                                   \
		return bits;                                                                       \
	}                                                                                          \
	static inline name name##_value(U bits)                                                    \
	{                                                                                          \
		name v;                                                                            \
                                                                                                   \
		memcpy(&v, &bits, sizeof(v));                                                      \
		return v;                                                                          \
	}                                                                                          \
	static OUT_OF_LINE void apply_##name(APPLY_ARGUMENTS(U))                                   \
	{                                                                                          \
		switch (op) {                                                                      \
		case WEIR_ACC_SUM:                                                                 \
			EXCHANGE(U, name##_bits(name##_value(old) + name##_value(x)));             \
			break;                                                                     \
		case WEIR_ACC_PROD:                                                                \
			EXCHANGE(U, name##_bits(name##_value(old) * name##_value(x)));             \
			break;                                                                     \
		case WEIR_ACC_MIN:                                                                 \
			EXCHANGE(U, name##_value(x) < name##_value(old) ? x : old);                \
			break;                                                                     \
		case WEIR_ACC_MAX:                                                                 \
			EXCHANGE(U, name##_value(x) > name##_value(old) ? x : old);                \
			break;                                                                     \
			COMMON_CASES(U);                                                           \
		}                                                                                  \
	}

FLOATING(float, bits32)
FLOATING(double, bits64)

/* ---- wide types ---- */

/*
 * Bytes between the parts of an element are the memory's, or the operand's where that takes its
 * place: an engine's own never get there.
 */
#define LONG_DOUBLE_BYTES (LDBL_MANT_DIG == 64 ? 10 : sizeof(long double))

static void
store_long_double(uint8_t *at, long double v)
{
	memcpy(at, &v, LONG_DOUBLE_BYTES);
}

static void
store_float_complex(uint8_t *at, float complex v)
{
	memcpy(at, &v, sizeof(v));
}

static void
store_double_complex(uint8_t *at, double complex v)
{
	memcpy(at, &v, sizeof(v));
}

static void
store_long_double_complex(uint8_t *at, long double complex v)
{
	store_long_double(at, creall(v));
	store_long_double(at + sizeof(long double), cimagl(v));
}

#define WIDE(name, T, cases)                                                                       \
	static OUT_OF_LINE void apply_##name(enum weir_acc op, void *memory,                       \
					     const uint8_t *operand, uint8_t *result,              \
					     uint64_t count)                                       \
	{                                                                                          \
		uint8_t *at = memory;                                                              \
                                                                                                   \
		for (uint64_t i = 0; i < count; i++, at += sizeof(T)) {                            \
			const uint8_t *with = operand ? operand + i * sizeof(T) : at;              \
			bool takes = true; /* the operand's place */                               \
			T a, b;                                                                    \
                                                                                                   \
			memcpy(&a, at, sizeof(a));                                                 \
			memcpy(&b, with, sizeof(b));                                               \
			if (result)                                                                \
				memcpy(result + i * sizeof(T), at, sizeof(T));                     \
			switch (op) {                                                              \
				cases;                                                             \
			case WEIR_ACC_REPLACE:                                                     \
				break;                                                             \
			default: /* NO_OP */                                                       \
				takes = false;                                                     \
			}                                                                          \
			if (takes)                                                                 \
				memcpy(at, with, sizeof(T));                                       \
		}                                                                                  \
	}

#define COMPLEX_CASES(name)                                                                        \
	case WEIR_ACC_SUM:                                                                         \
		store_##name(at, a + b);                                                           \
		takes = false;                                                                     \
		break;                                                                             \
	case WEIR_ACC_PROD:                                                                        \
		store_##name(at, a *b);                                                            \
		takes = false;                                                                     \
		break

#define WIDE_CASES(name)                                                                           \
	COMPLEX_CASES(name);                                                                       \
	case WEIR_ACC_MIN:                                                                         \
		takes = b < a;                                                                     \
		break;                                                                             \
	case WEIR_ACC_MAX:                                                                         \
		takes = b > a;                                                                     \
		break

#define PAIR_CASES                                                                                 \
	case WEIR_ACC_MINLOC:                                                                      \
		takes = b.value < a.value || (b.value == a.value && b.at < a.at);                  \
		break;                                                                             \
	case WEIR_ACC_MAXLOC:                                                                      \
		takes = b.value > a.value || (b.value == a.value && b.at < a.at);                  \
		break

WIDE(long_double, long double, WIDE_CASES(long_double))
WIDE(float_complex, float complex, COMPLEX_CASES(float_complex))
WIDE(double_complex, double complex, COMPLEX_CASES(double_complex))
WIDE(long_double_complex, long double complex, COMPLEX_CASES(long_double_complex))
WIDE(int16_at, struct weir_int16_at, PAIR_CASES)
WIDE(int32_at, struct weir_int32_at, PAIR_CASES)
WIDE(int64_at, struct weir_int64_at, PAIR_CASES)
WIDE(float_at, struct weir_float_at, PAIR_CASES)
WIDE(double_at, struct weir_double_at, PAIR_CASES)
WIDE(long_double_at, struct weir_long_double_at, PAIR_CASES)

/* Types that are plain C numbers up to 8 bytes; x(type, suffix of its functions). */
#define NUMBERS(x)                                                                                 \
	x(WEIR_T_INT8, int8);                                                                      \
	x(WEIR_T_UINT8, uint8);                                                                    \
	x(WEIR_T_INT16, int16);                                                                    \
	x(WEIR_T_UINT16, uint16);                                                                  \
	x(WEIR_T_INT32, int32);                                                                    \
	x(WEIR_T_UINT32, uint32);                                                                  \
	x(WEIR_T_INT64, int64);                                                                    \
	x(WEIR_T_UINT64, uint64);                                                                  \
	x(WEIR_T_FLOAT, float);                                                                    \
	x(WEIR_T_DOUBLE, double)

void
weir_apply_valid(enum weir_type t, enum weir_acc op, void *at, const void *operand, void *result,
		 uint64_t count)
{
	switch (t) {
#define X(name, function)                                                                          \
	case name:                                                                                 \
		apply_##function(op, at, operand, result, count);                                  \
		break
		X(WEIR_T_BYTE, byte);
		X(WEIR_T_BOOL, bool);
		NUMBERS(X);
		X(WEIR_T_LONG_DOUBLE, long_double);
		X(WEIR_T_FLOAT_COMPLEX, float_complex);
		X(WEIR_T_DOUBLE_COMPLEX, double_complex);
		X(WEIR_T_LONG_DOUBLE_COMPLEX, long_double_complex);
		X(WEIR_T_INT16_AT, int16_at);
		X(WEIR_T_INT32_AT, int32_at);
		X(WEIR_T_INT64_AT, int64_at);
		X(WEIR_T_FLOAT_AT, float_at);
		X(WEIR_T_DOUBLE_AT, double_at);
		X(WEIR_T_LONG_DOUBLE_AT, long_double_at);
#undef X
	}
}

int
weir_apply(enum weir_type t, enum weir_acc op, void *at, const void *operand, void *result,
	   uint64_t count)
{
	if (!weir_applies(t, op, at))
		return -EINVAL;
	weir_apply_valid(t, op, at, operand, result, count);
	return 0;
}

/* ---- narrow types without atomics ---- */

/* Compiled once per set of instructions. */
#define IN_EACH inline __attribute__((always_inline))

/* Loads and stores of whole vectors do not tear their elements. */
#define ALONE_EACH(T, value)                                                                       \
	do {                                                                                       \
		for (uint64_t i = 0; i < count; i++) {                                             \
			T x = with[i], old = at[i];                                                \
                                                                                                   \
			at[i] = (value);                                                           \
		}                                                                                  \
		return true;                                                                       \
	} while (0)

/* T: of elements; W: in which sums and products wrap; more: cases. False: there is no loop. */
#define ALONE(name, T, W, more)                                                                    \
	static IN_EACH bool alone_##name(enum weir_acc op, void *memory, const void *operand,      \
					 uint64_t count)                                           \
	{                                                                                          \
		typedef T __attribute__((may_alias)) element;                                      \
		typedef T __attribute__((may_alias, aligned(1))) packed;                           \
		const packed *restrict with = operand;                                             \
		element *restrict at = memory;                                                     \
                                                                                                   \
		switch (op) {                                                                      \
			more;                                                                      \
		case WEIR_ACC_SUM:                                                                 \
			ALONE_EACH(T, (T)((W)old + (W)x));                                         \
		case WEIR_ACC_PROD:                                                                \
			ALONE_EACH(T, (T)((W)old * (W)x));                                         \
		case WEIR_ACC_MIN:                                                                 \
			ALONE_EACH(T, x < old ? x : old);                                          \
		case WEIR_ACC_MAX:                                                                 \
			ALONE_EACH(T, x > old ? x : old);                                          \
		default:                                                                           \
			return false;                                                              \
		}                                                                                  \
	}
#define ALONE_BITS(T)                                                                              \
	case WEIR_ACC_BAND:                                                                        \
		ALONE_EACH(T, (T)(old & x));                                                       \
	case WEIR_ACC_BOR:                                                                         \
		ALONE_EACH(T, (T)(old | x));                                                       \
	case WEIR_ACC_BXOR:                                                                        \
		ALONE_EACH(T, (T)(old ^ x))
#define ALONE_INTEGER(name, T, W) ALONE(name, T, W, ALONE_BITS(T))

ALONE_INTEGER(int8, int8_t, uint32_t)
ALONE_INTEGER(uint8, uint8_t, uint32_t)
ALONE_INTEGER(int16, int16_t, uint32_t)
ALONE_INTEGER(uint16, uint16_t, uint32_t)
ALONE_INTEGER(int32, int32_t, uint32_t)
ALONE_INTEGER(uint32, uint32_t, uint32_t)
ALONE_INTEGER(int64, int64_t, uint64_t)
ALONE_INTEGER(uint64, uint64_t, uint64_t)
ALONE(float, float, float, )
ALONE(double, double, double, )

/* False: plain code already, or there is no loop for `op`. */
static IN_EACH bool
alone_of(enum weir_type t, enum weir_acc op, void *at, const void *operand, uint64_t count)
{
	switch (t) {
#define X(name, function)                                                                          \
	case name:                                                                                 \
		return alone_##function(op, at, operand, count)
		X(WEIR_T_BYTE, uint8);
		NUMBERS(X);
#undef X
	default:
		return false;
	}
}

static OUT_OF_LINE bool
alone_base(enum weir_type t, enum weir_acc op, void *at, const void *operand, uint64_t count)
{
	return alone_of(t, op, at, operand, count);
}

#ifdef __x86_64__
static OUT_OF_LINE __attribute__((target("avx2"))) bool
alone_avx2(enum weir_type t, enum weir_acc op, void *at, const void *operand, uint64_t count)
{
	return alone_of(t, op, at, operand, count);
}
#endif

static bool
alone(enum weir_type t, enum weir_acc op, void *at, const void *operand, uint64_t count)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return alone_avx2(t, op, at, operand, count);
#endif
	return alone_base(t, op, at, operand, count);
}

int
weir_apply_alone(enum weir_type t, enum weir_acc op, void *at, const void *operand, void *result,
		 uint64_t count)
{
	if (!weir_applies(t, op, at))
		return -EINVAL;
	/* with results the elements' old values go out one by one */
	if (!result && alone(t, op, at, operand, count))
		return 0;
	weir_apply_valid(t, op, at, operand, result, count);
	return 0;
}

/* ---- compare and swap ---- */

#define COMPARE_SWAP(U)                                                                            \
	do {                                                                                       \
		U expected, next;                                                                  \
                                                                                                   \
		memcpy(&expected, compare, sizeof(expected));                                      \
		memcpy(&next, operand, sizeof(next));                                              \
		__atomic_compare_exchange_n((U *)at, &expected, next, false, __ATOMIC_RELAXED,     \
					    __ATOMIC_RELAXED);                                     \
		if (result)                                                                        \
			memcpy(result, &expected, sizeof(expected));                               \
	} while (0)

int
weir_apply_compare_swap(enum weir_type t, void *at, const void *compare, const void *operand,
			void *result)
{
	if (!weir_type_swaps(t) || (uintptr_t)at % weir_type_facts[t].align)
		return -EINVAL;
	if (t == WEIR_T_BOOL) {
		bits8 *byte = at, old = __atomic_load_n(byte, __ATOMIC_RELAXED);
		bool is = *(const uint8_t *)compare, then = *(const uint8_t *)operand;

		/* of any byte that is not 0 the value is true */
		while (!old == !is &&
		       !__atomic_compare_exchange_n(byte, &old, then, true, __ATOMIC_RELAXED,
						    __ATOMIC_RELAXED))
			;
		if (result)
			*(uint8_t *)result = !!old;
		return 0;
	}
	if (weir_type_facts[t].size == 1)
		COMPARE_SWAP(bits8);
	else if (weir_type_facts[t].size == 2)
		COMPARE_SWAP(bits16);
	else if (weir_type_facts[t].size == 4)
		COMPARE_SWAP(bits32);
	else
		COMPARE_SWAP(bits64);
	return 0;
}
