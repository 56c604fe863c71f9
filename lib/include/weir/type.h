/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element types, update operations and memory layouts of operations on remote memory. Types and
 * operations are the predefined ones of MPI-3 (MPI 3.1, sections 5.9.2 to 5.9.4) under C names.
 */
#ifndef WEIR_TYPE_H
#define WEIR_TYPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weir_type {
	WEIR_T_BYTE = 1, /* 8 uninterpreted bits */
	WEIR_T_BOOL,	 /* C's _Bool, 1 byte; any byte other than 0 counts as true */
	WEIR_T_INT8,
	WEIR_T_UINT8,
	WEIR_T_INT16,
	WEIR_T_UINT16,
	WEIR_T_INT32,
	WEIR_T_UINT32,
	WEIR_T_INT64,
	WEIR_T_UINT64,
	WEIR_T_FLOAT,
	WEIR_T_DOUBLE,
	WEIR_T_LONG_DOUBLE,
	WEIR_T_FLOAT_COMPLEX,
	WEIR_T_DOUBLE_COMPLEX,
	WEIR_T_LONG_DOUBLE_COMPLEX,
	/* Pairs of a value and an index: the structs below. */
	WEIR_T_INT16_AT,
	WEIR_T_INT32_AT,
	WEIR_T_INT64_AT,
	WEIR_T_FLOAT_AT,
	WEIR_T_DOUBLE_AT,
	WEIR_T_LONG_DOUBLE_AT,
};

/* Padded as C does it, like the pairs of MPI. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpadded"
#endif
struct weir_int16_at {
	int16_t value;
	int32_t at;
};
struct weir_int32_at {
	int32_t value;
	int32_t at;
};
struct weir_int64_at {
	int64_t value;
	int32_t at;
};
struct weir_float_at {
	float value;
	int32_t at;
};
struct weir_double_at {
	double value;
	int32_t at;
};
struct weir_long_double_at {
	long double value;
	int32_t at;
};
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/*
 * Update operations: target = target OP operand, per element. Operations per type:
 *
 *   integers       all but MINLOC and MAXLOC      BOOL        LAND, LOR, LXOR
 *   floating       SUM, PROD, MIN, MAX            BYTE        BAND, BOR, BXOR
 *   complex        SUM, PROD                      pairs       MINLOC, MAXLOC
 *   every type     REPLACE, NO_OP
 *
 * Integer sums and products wrap. MIN, MAX, MINLOC and MAXLOC use C's comparison: with a NaN on
 * either side the target keeps its value. Logical operations store 0 or 1.
 */
enum weir_acc {
	WEIR_ACC_SUM = 1,
	WEIR_ACC_PROD,
	WEIR_ACC_MIN,
	WEIR_ACC_MAX,
	WEIR_ACC_LAND,
	WEIR_ACC_LOR,
	WEIR_ACC_LXOR,
	WEIR_ACC_BAND,
	WEIR_ACC_BOR,
	WEIR_ACC_BXOR,
	WEIR_ACC_MINLOC,
	WEIR_ACC_MAXLOC,  /* both, equal values: the lower index */
	WEIR_ACC_REPLACE, /* atomic write */
	WEIR_ACC_NO_OP,	  /* in calls that fetch: atomic read */
};

/* Size and alignment of an element in bytes; 0: unknown type. Any thread. */
size_t weir_type_size(enum weir_type t);
size_t weir_type_align(enum weir_type t);

/* 1: `op` is defined for `t`; 0: it is not. Any thread. */
int weir_acc_valid(enum weir_type t, enum weir_acc op);

/*
 * Describes noncontiguous memory. Offsets and strides are bytes, relative to the start of the
 * transfer. Pieces are taken in the order of their description, dim[0] innermost.
 *
 *   n contiguous bytes           {.block = n}
 *   a column of a matrix         {.block = 8, .dims = 1, .dim = {{rows, row_bytes}}}
 *   a face of a cuboid           {.block = 8, .dims = 2, .dim = {{ny, sy}, {nz, sz}}}
 *   an arbitrary list            {.list = pieces, .count = n}
 */
#define WEIR_LAYOUT_DIMS 4

struct weir_piece {
	int64_t offset;
	uint64_t length;
};

struct weir_layout {
	uint64_t block;	   /* bytes per piece; 0: use the list */
	uint32_t dims;	   /* 0 to WEIR_LAYOUT_DIMS */
	uint32_t reserved; /* 0 */
	struct {
		uint64_t count; /* at least 1 */
		int64_t stride;
	} dim[WEIR_LAYOUT_DIMS];
	const struct weir_piece *list;
	size_t count; /* of the list, at least 1 */
};

/*
 * Bytes of a layout. UINT64_MAX: invalid layout (too many dimensions, a count of 0, no list,
 * reserved not 0, more than 2^63 bytes, or a byte more than 2^63 - 1 away from the start). Any
 * thread.
 */
uint64_t weir_layout_bytes(const struct weir_layout *l);

#ifdef __cplusplus
}
#endif

#endif
