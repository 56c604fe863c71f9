/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of rows of a record batch: first the exact size, then the bytes. */
#ifndef WEIR_SHUFFLE_ARROW_WRITE_H
#define WEIR_SHUFFLE_ARROW_WRITE_H

#include "type.h"

struct arrow_writer;

/* `s` and `rows`, which has been checked, stay until arrow_writer_close(). 0 or -ENOMEM. */
int arrow_writer_open(const struct arrow_schema *s, const struct ArrowArray *rows,
		      struct arrow_writer **w);
void arrow_writer_close(struct arrow_writer *w);

/*
 * Chooses n rows and computes the bytes of their block. `row` stays until arrow_write(). Returns 0,
 * -ENOMEM, or -EMSGSIZE: an array of more than ARROW_LENGTH_MAX elements or WEIR_RECORD_MAX bytes.
 */
int arrow_plan(struct arrow_writer *w, const uint32_t *row, uint32_t n, uint64_t *bytes);
/* Writes the block of the last plan. */
void arrow_write(struct arrow_writer *w, uint8_t *to);
/* Bytes of a block that do not depend on its rows, at most. */
uint64_t arrow_overhead(const struct arrow_schema *s);

#endif
