/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every type and operation against plain C at every alignment of operands and results, refusals,
 * and the atomicity of narrow types.
 */
#include "worlds/test.h"
#include "ipc/apply.h"

#include <complex.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#define TYPES WEIR_T_LONG_DOUBLE_AT
#define OPS WEIR_ACC_NO_OP
#define COUNT 37 /* some vectors and a rest */

static uint32_t seed = 1;

static uint32_t
draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

/* ---- the reference: one element, in plain C ---- */

static const double doubles[] = {0.0, -0.0, 1.0, -1.5, 3.0, 1e30, -1e30, INFINITY, -INFINITY, NAN};
#define DRAW_DOUBLE() doubles[draw(sizeof(doubles) / sizeof(doubles[0]))]
static const uint64_t words[] = {
    0,	   1,	  2,	     3,		 127,	     128,	255,	    32767,
    32768, 65535, INT32_MAX, 1ull << 31, UINT32_MAX, INT64_MAX, 1ull << 63, UINT64_MAX};
#define DRAW_WORD() (draw(4) ? words[draw(16)] : (uint64_t)draw(1 << 20) * draw(1 << 20) * 977)

__extension__ typedef unsigned __int128 wide;

#define INTEGER(T)                                                                                 \
	static void draw_##T(void *to)                                                             \
	{                                                                                          \
		*(T *)to = (T)DRAW_WORD();                                                         \
	}                                                                                          \
	static bool same_##T(const void *a, const void *b)                                         \
	{                                                                                          \
		return *(const T *)a == *(const T *)b;                                             \
	}                                                                                          \
	static void ref_##T(enum weir_acc op, void *at, const void *operand)                       \
	{                                                                                          \
		T a = *(T *)at, b = *(const T *)operand;                                           \
                                                                                                   \
		*(T *)at = op == WEIR_ACC_SUM	    ? (T)((wide)a + (wide)b)                       \
			   : op == WEIR_ACC_PROD    ? (T)((wide)a * (wide)b)                       \
			   : op == WEIR_ACC_MIN	    ? (a < b ? a : b)                              \
			   : op == WEIR_ACC_MAX	    ? (a > b ? a : b)                              \
			   : op == WEIR_ACC_LAND    ? (T)(a && b)                                  \
			   : op == WEIR_ACC_LOR	    ? (T)(a || b)                                  \
			   : op == WEIR_ACC_LXOR    ? (T)((a && !b) || (!a && b))                  \
			   : op == WEIR_ACC_BAND    ? (T)(a & b)                                   \
			   : op == WEIR_ACC_BOR	    ? (T)(a | b)                                   \
			   : op == WEIR_ACC_BXOR    ? (T)(a ^ b)                                   \
			   : op == WEIR_ACC_REPLACE ? b                                            \
						    : a;                                           \
	}
INTEGER(int8_t)
INTEGER(uint8_t)
INTEGER(int16_t)
INTEGER(uint16_t)
INTEGER(int32_t)
INTEGER(uint32_t)
INTEGER(int64_t)
INTEGER(uint64_t)

static void
draw_bool(void *to)
{
	*(bool *)to = draw(2);
}

#define FLOATING(T, name)                                                                          \
	static void draw_##name(void *to)                                                          \
	{                                                                                          \
		*(T *)to = (T)DRAW_DOUBLE();                                                       \
	}                                                                                          \
	static bool same_##name(const void *x, const void *y)                                      \
	{                                                                                          \
		T a = *(const T *)x, b = *(const T *)y;                                            \
                                                                                                   \
		return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));             \
	}                                                                                          \
	static void ref_##name(enum weir_acc op, void *at, const void *operand)                    \
	{                                                                                          \
		T a = *(T *)at, b = *(const T *)operand;                                           \
                                                                                                   \
		if (op == WEIR_ACC_SUM)                                                            \
			*(T *)at = a + b;                                                          \
		else if (op == WEIR_ACC_PROD)                                                      \
			*(T *)at = a * b;                                                          \
		else if ((op == WEIR_ACC_MIN && b < a) || (op == WEIR_ACC_MAX && b > a) ||         \
			 op == WEIR_ACC_REPLACE)                                                   \
			*(T *)at = b;                                                              \
	}
FLOATING(float, float)
FLOATING(double, double)
FLOATING(long double, long_double)

#define COMPLEX(T, name)                                                                           \
	static void draw_##name##_complex(void *to)                                                \
	{                                                                                          \
		((T *)to)[0] = (T)DRAW_DOUBLE();                                                   \
		((T *)to)[1] = (T)DRAW_DOUBLE();                                                   \
	}                                                                                          \
	static bool same_##name##_complex(const void *x, const void *y)                            \
	{                                                                                          \
		const T *a = x, *b = y;                                                            \
                                                                                                   \
		return same_##name(&a[0], &b[0]) && same_##name(&a[1], &b[1]);                     \
	}                                                                                          \
	static void ref_##name##_complex(enum weir_acc op, void *at, const void *operand)          \
	{                                                                                          \
		T complex a = *(T complex *)at, b = *(const T complex *)operand;                   \
                                                                                                   \
		*(T complex *)at = op == WEIR_ACC_SUM	    ? a + b                                \
				   : op == WEIR_ACC_PROD    ? a * b                                \
				   : op == WEIR_ACC_REPLACE ? b                                    \
							    : a;                                   \
	}
COMPLEX(float, float)
COMPLEX(double, double)
COMPLEX(long double, long_double)

#define PAIR(name, value_name)                                                                     \
	static void draw_##name(void *to)                                                          \
	{                                                                                          \
		struct weir_##name *p = to;                                                        \
                                                                                                   \
		draw_##value_name(&p->value);                                                      \
		p->at = (int32_t)draw(4) - 1;                                                      \
	}                                                                                          \
	static bool same_##name(const void *x, const void *y)                                      \
	{                                                                                          \
		const struct weir_##name *a = x, *b = y;                                           \
                                                                                                   \
		return same_##value_name(&a->value, &b->value) && a->at == b->at;                  \
	}                                                                                          \
	static void ref_##name(enum weir_acc op, void *at, const void *operand)                    \
	{                                                                                          \
		struct weir_##name *a = at;                                                        \
		const struct weir_##name *b = operand;                                             \
                                                                                                   \
		if (op == WEIR_ACC_REPLACE || (op == WEIR_ACC_MINLOC && b->value < a->value) ||    \
		    (op == WEIR_ACC_MAXLOC && b->value > a->value) ||                              \
		    ((op == WEIR_ACC_MINLOC || op == WEIR_ACC_MAXLOC) && a->value == b->value &&   \
		     b->at < a->at)) {                                                             \
			a->value = b->value;                                                       \
			a->at = b->at;                                                             \
		}                                                                                  \
	}
PAIR(int16_at, int16_t)
PAIR(int32_at, int32_t)
PAIR(int64_at, int64_t)
PAIR(float_at, float)
PAIR(double_at, double)
PAIR(long_double_at, long_double)

static const struct {
	size_t size;
	void (*draw)(void *to);
	bool (*same)(const void *a, const void *b);
	void (*ref)(enum weir_acc op, void *at, const void *operand);
} types[TYPES + 1] = {
#define X(name, T, f) [name] = {sizeof(T), draw_##f, same_##f, ref_##f}
    [WEIR_T_BOOL] = {sizeof(bool), draw_bool, same_uint8_t, ref_uint8_t},
    X(WEIR_T_BYTE, uint8_t, uint8_t),
    X(WEIR_T_INT8, int8_t, int8_t),
    X(WEIR_T_UINT8, uint8_t, uint8_t),
    X(WEIR_T_INT16, int16_t, int16_t),
    X(WEIR_T_UINT16, uint16_t, uint16_t),
    X(WEIR_T_INT32, int32_t, int32_t),
    X(WEIR_T_UINT32, uint32_t, uint32_t),
    X(WEIR_T_INT64, int64_t, int64_t),
    X(WEIR_T_UINT64, uint64_t, uint64_t),
    X(WEIR_T_FLOAT, float, float),
    X(WEIR_T_DOUBLE, double, double),
    X(WEIR_T_LONG_DOUBLE, long double, long_double),
    X(WEIR_T_FLOAT_COMPLEX, float complex, float_complex),
    X(WEIR_T_DOUBLE_COMPLEX, double complex, double_complex),
    X(WEIR_T_LONG_DOUBLE_COMPLEX, long double complex, long_double_complex),
    X(WEIR_T_INT16_AT, struct weir_int16_at, int16_at),
    X(WEIR_T_INT32_AT, struct weir_int32_at, int32_at),
    X(WEIR_T_INT64_AT, struct weir_int64_at, int64_at),
    X(WEIR_T_FLOAT_AT, struct weir_float_at, float_at),
    X(WEIR_T_DOUBLE_AT, struct weir_double_at, double_at),
    X(WEIR_T_LONG_DOUBLE_AT, struct weir_long_double_at, long_double_at),
#undef X
};

/* The table of weir/type.h, once more. */
static bool
is_defined(enum weir_type t, enum weir_acc op)
{
	static const char *const of[] = {"BYTE", "BOOL", "integer", "floating", "complex", "pair"};
	unsigned kind = t <= WEIR_T_BOOL		  ? t - WEIR_T_BYTE
			: t <= WEIR_T_UINT64		  ? 2
			: t <= WEIR_T_LONG_DOUBLE	  ? 3
			: t <= WEIR_T_LONG_DOUBLE_COMPLEX ? 4
							  : 5;

	switch (op) {
	case WEIR_ACC_REPLACE:
	case WEIR_ACC_NO_OP:
		return true;
	case WEIR_ACC_SUM:
	case WEIR_ACC_PROD:
		return strchr("ifc", of[kind][0]);
	case WEIR_ACC_MIN:
	case WEIR_ACC_MAX:
		return kind == 2 || kind == 3;
	case WEIR_ACC_LAND:
	case WEIR_ACC_LOR:
	case WEIR_ACC_LXOR:
		return kind == 1 || kind == 2;
	case WEIR_ACC_BAND:
	case WEIR_ACC_BOR:
	case WEIR_ACC_BXOR:
		return kind == 0 || kind == 2;
	default:
		return kind == 5;
	}
}

static void
check(enum weir_type t, enum weir_acc op, unsigned shift, bool fetch, bool alone)
{
	size_t size = types[t].size, bytes = COUNT * size;
	_Alignas(32) uint8_t at[32 * (COUNT + 2)], want[32 * (COUNT + 2)], old[32 * COUNT];
	_Alignas(32) uint8_t x[32 * COUNT], operand[32 * COUNT + 16], result[32 * COUNT + 16];
	size_t start = size; /* an element before, and one behind, stay as they are */

	for (size_t i = 0; i < COUNT + 2; i++)
		types[t].draw(at + i * size);
	for (size_t i = 0; i < COUNT; i++)
		types[t].draw(x + i * size);
	memcpy(want, at, bytes + 2 * size);
	memcpy(old, at + start, bytes);
	memcpy(operand + shift, x, bytes);
	memset(result, 0xa5, sizeof(result));
	for (size_t i = 0; i < COUNT; i++)
		types[t].ref(op, want + start + i * size, x + i * size);
	assert_int_equal((alone ? weir_apply_alone : weir_apply)(t, op, at + start, operand + shift,
								 fetch ? result + shift : NULL,
								 COUNT),
			 0);
	for (size_t i = 0; i < COUNT + 2; i++)
		if (!types[t].same(at + i * size, want + i * size))
			fail_msg("type %u, operation %u: element %zu differs", t, op, i);
	assert_memory_equal(at, want, size);
	assert_int_equal(result[shift + bytes], 0xa5);
	if (!fetch)
		return;
	memmove(result, result + shift, bytes);
	for (size_t i = 0; i < COUNT; i++)
		if (!types[t].same(result + i * size, old + i * size))
			fail_msg("type %u, operation %u: element %zu is not its former value", t,
				 op, i);
}

TEST(test_every_pair)
{
	for (unsigned t = WEIR_T_BYTE; t <= TYPES; t++)
		for (unsigned op = WEIR_ACC_SUM; op <= OPS; op++) {
			assert_int_equal(weir_acc_valid(t, op), is_defined(t, op));
			for (unsigned k = 0; is_defined(t, op) && k < 320; k++)
				check(t, op, k % 16, k & 16, k & 32);
		}
}

/* Bytes between the parts of an element are the memory's or the operand's, never the engine's. */
TEST(test_padding)
{
	for (unsigned t = WEIR_T_LONG_DOUBLE; t <= TYPES; t++)
		for (unsigned k = 0; k < 50 * OPS; k++) {
			_Alignas(32) uint8_t zeroes[32], at[32], was[32], operand[32], result[32];
			enum weir_acc op = WEIR_ACC_SUM + k % OPS;
			uint32_t before = seed;

			memset(zeroes, 0, sizeof(zeroes));
			memset(at, 0xaa, sizeof(at));
			memset(operand, 0xbb, sizeof(operand));
			types[t].draw(zeroes);
			seed = before;
			types[t].draw(at);
			memcpy(was, at, sizeof(was));
			types[t].draw(operand);
			if (!is_defined(t, op))
				continue;
			assert_int_equal(weir_apply(t, op, at, operand, result, 1), 0);
			for (size_t i = 0; i < types[t].size; i++) {
				bool is_value = was[i] == zeroes[i];

				assert_true(is_value || at[i] == 0xaa || at[i] == 0xbb);
				assert_true(is_value || result[i] == 0xaa);
			}
		}
}

TEST(test_refusals)
{
	_Alignas(32) uint8_t at[64] = {0}, zero[64] = {0}, operand[32];

	memset(operand, 1, sizeof(operand));
	for (unsigned t = 0; t <= TYPES + 2; t++) {
		bool known = t >= WEIR_T_BYTE && t <= TYPES;

		assert_int_equal(weir_type_size(t), known ? types[t].size : 0);
		for (unsigned op = 0; op <= 40; op++)
			if (!known || op < WEIR_ACC_SUM || op > OPS || !is_defined(t, op)) {
				assert_false(weir_acc_valid(t, op));
				assert_int_equal(weir_apply(t, op, at, operand, NULL, 1), -EINVAL);
				assert_int_equal(weir_apply_alone(t, op, at, operand, NULL, 1),
						 -EINVAL);
			}
		for (unsigned off = 1; known && off < 32; off++)
			if (off % weir_type_align(t))
				assert_int_equal(
				    weir_apply(t, WEIR_ACC_REPLACE, at + off, operand, NULL, 1),
				    -EINVAL);
		if (!known || t > WEIR_T_UINT64)
			assert_int_equal(weir_apply_compare_swap(t, at, zero, operand, NULL),
					 -EINVAL);
		else if (t >= WEIR_T_INT16)
			assert_int_equal(weir_apply_compare_swap(t, at + 1, zero, operand, NULL),
					 -EINVAL);
	}
	assert_memory_equal(at, zero, sizeof(at));
	assert_int_equal(weir_type_align(0) + weir_type_align(TYPES + 1), 0);
	/* without an operand */
	assert_int_equal(weir_apply(WEIR_T_UINT32, WEIR_ACC_NO_OP, operand, NULL, at, 2), 0);
	assert_memory_equal(at, operand, 8);
}

TEST(test_bool)
{
	uint8_t at = 7, operand = 9, result = 5, no = 0;

	assert_int_equal(weir_apply(WEIR_T_BOOL, WEIR_ACC_NO_OP, &at, NULL, &result, 1), 0);
	assert_int_equal(result, 1);
	assert_int_equal(weir_apply(WEIR_T_BOOL, WEIR_ACC_REPLACE, &at, &operand, &result, 1), 0);
	assert_int_equal(at, 1);
	at = 7;
	assert_int_equal(weir_apply_compare_swap(WEIR_T_BOOL, &at, &no, &operand, &result), 0);
	assert_int_equal(at, 7);
	assert_int_equal(weir_apply_compare_swap(WEIR_T_BOOL, &at, &operand, &no, &result), 0);
	assert_true(at == 0 && result == 1);
}

TEST(test_compare_swap)
{
	for (unsigned t = WEIR_T_BYTE; t <= WEIR_T_UINT64; t++)
		for (unsigned k = 0; k < 200; k++) {
			size_t size = types[t].size;
			_Alignas(8) uint8_t at[16], old[16], compare[8], operand[8], result[16];

			types[t].draw(at);
			types[t].draw(at + 8);
			types[t].draw(compare);
			types[t].draw(operand);
			if (k % 2)
				memcpy(compare, at, size);
			memcpy(old, at, sizeof(at));
			assert_int_equal(
			    weir_apply_compare_swap(t, at, compare, operand, k % 3 ? result : NULL),
			    0);
			assert_memory_equal(at, memcmp(old, compare, size) ? old : operand, size);
			assert_memory_equal(at + size, old + size, 16 - size);
			if (k % 3)
				assert_memory_equal(result, old, size);
		}
}

/* ---- threads ---- */

#define THREADS 4u
#define ROUNDS 3000u

static struct {
	_Atomic uint64_t sum, ticket;
	_Atomic uint32_t most;
	_Atomic uint16_t halves[2];
	_Atomic uint8_t bytes[4];
	uint64_t real, chain; /* double; compare and swap */
	uint32_t real32;      /* float */
	uint8_t taken[THREADS * ROUNDS];
} shared;

static void
update(enum weir_type t, enum weir_acc op, void *at, uint64_t operand, uint64_t *old)
{
	assert_int_equal(weir_apply(t, op, at, &operand, old, 1), 0);
}

static void *
worker(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg;
	double one = 1.0;
	float half = 0.5f;
	uint64_t old, bits = 0;
	uint32_t bits32;

	memcpy(&bits, &one, sizeof(one));
	memcpy(&bits32, &half, sizeof(half));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t seen = 0, next;

		if (me % 2) /* C11's atomics and ours are of one kind */
			atomic_fetch_add(&shared.sum, 3);
		else
			update(WEIR_T_INT64, WEIR_ACC_SUM, &shared.sum, 3, NULL);
		update(WEIR_T_UINT64, WEIR_ACC_SUM, &shared.ticket, 1, &old);
		shared.taken[old]++; /* nobody else has it */
		update(WEIR_T_UINT32, WEIR_ACC_MAX, &shared.most, i * THREADS + me, NULL);
		update(WEIR_T_UINT16, WEIR_ACC_SUM, &shared.halves[me % 2], 1, NULL);
		update(WEIR_T_BYTE, WEIR_ACC_BXOR, &shared.bytes[i % 4], 1u << me, NULL);
		update(WEIR_T_DOUBLE, WEIR_ACC_SUM, &shared.real, bits, NULL);
		update(WEIR_T_FLOAT, WEIR_ACC_SUM, &shared.real32, bits32, NULL);
		do {
			next = seen + 1;
			old = seen;
			weir_apply_compare_swap(WEIR_T_UINT64, &shared.chain, &old, &next, &seen);
		} while (seen != old);
	}
	return NULL;
}

TEST(test_threads)
{
	pthread_t thread[THREADS];
	double real;
	float real32;

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, worker, (void *)i), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	memcpy(&real, &shared.real, sizeof(real));
	memcpy(&real32, &shared.real32, sizeof(real32));
	assert_int_equal(shared.sum, 3 * THREADS * ROUNDS);
	assert_int_equal(shared.ticket, THREADS * ROUNDS);
	assert_int_equal(shared.most, THREADS * ROUNDS - 1);
	assert_int_equal(shared.halves[0] + shared.halves[1], THREADS * ROUNDS);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(shared.bytes[i], ROUNDS / 4 % 2 ? (1u << THREADS) - 1 : 0);
	assert_true(real == THREADS * ROUNDS && real32 == THREADS * ROUNDS / 2);
	assert_int_equal(shared.chain, THREADS * ROUNDS);
	for (uint32_t i = 0; i < THREADS * ROUNDS; i++)
		assert_int_equal(shared.taken[i], 1);
}
