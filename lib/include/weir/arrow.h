/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Record batches as the content of a shuffle, by Arrow's C data and C stream interfaces. Part of
 * libweir-shuffle; no Arrow library is needed. Guide: docs/shuffle.md.
 *
 * A producer pushes batches, whose rows go to partitions by number or by a hash of columns. A
 * consumer reads its partitions as a stream of batches. Rows of one producer for one partition keep
 * their order, as far as its blocks do; the borders of batches change.
 *
 * Types (Arrow's format strings): null n; boolean b; integers c C s S i I l L; floats e f g;
 * decimals d: of 32, 64, 128 and 256 bits; binary and text z Z u U; fixed binary w: of at most
 * WEIR_RECORD_MAX bytes; dates tdD tdm; times tts ttm ttu ttn; timestamps tss: tsm: tsu: tsn:;
 * durations tDs tDm tDu tDn; intervals tiM tiD tin; struct +s, list +l, large list +L, fixed-size
 * list +w:, map +m of these; dictionaries with values of these. At most 4,096 columns, nested ones
 * included, 16 levels deep, with names of at most 255 bytes. Metadata of schemas is not carried.
 *
 * Text is not checked to be UTF-8, at neither end.
 */
#ifndef WEIR_ARROW_H
#define WEIR_ARROW_H

#include "shuffle.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI as Arrow has published it; each macro shows that another header has declared its part. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
	const char *format, *name, *metadata;
	int64_t flags, n_children;
	struct ArrowSchema **children, *dictionary;
	void (*release)(struct ArrowSchema *);
	void *private_data;
};

struct ArrowArray {
	int64_t length, null_count, offset, n_buffers, n_children;
	const void **buffers;
	struct ArrowArray **children, *dictionary;
	void (*release)(struct ArrowArray *);
	void *private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
	int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
	int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
	const char *(*get_last_error)(struct ArrowArrayStream *);
	void (*release)(struct ArrowArrayStream *);
	void *private_data;
};
#endif

/*
 * Pushes a copy of each row of a record batch to its partition, in blocks of about 1 MiB at most; a
 * row that is larger has a block of its own. A batch without rows pushes nothing.
 *
 * @m           handle of the producer
 * @schema      of the batch: a struct, whose children are the columns. All batches of a shuffle
 *              have the same formats, names and flags. Neither kept nor released.
 * @rows        the batch, at most 2^32 - 1 rows; children, too. Neither kept nor released.
 * @partition   partition of each row, rows->length numbers; NULL: by `keys`
 * @keys        numbers of the columns, from 0, that decide on a row's partition; NULL with
 *              `partition`. The hash is the same for equal values of equal types in all processes;
 *              of floats, 0.0 equals -0.0, and each NaN each other. Nulls are equal. A dictionary
 *              counts as its values, large text and binary as their small forms.
 * @n           length of `keys`; 0 with `partition`, otherwise at least 1
 * @timeout_ms  milliseconds to wait for room, in all; 0: does not wait; below 0: no limit
 * @progress    in: 0 for a new batch. Out: 0 if all rows were pushed. After -EAGAIN, -ENOBUFS and
 *              -EINTR, the next call with the same arguments pushes the rest. After other errors
 *              the rows up to there have been pushed: end a STAGE's attempt with ok = false.
 *
 * Returns 0, or
 *   -EINVAL    schema and batch do not match or have been released, an offset goes back, a
 *              dictionary's index lies outside, a limit above is exceeded; no such partition or
 *              column; both or none of `partition` and `keys`; `progress` is of another batch
 *   -ENOTSUP   unsupported type: weir_reason() names it and the column
 *   -EMSGSIZE  a row of more than WEIR_RECORD_MAX bytes, or of more than the shuffle's memory has
 *              room for; more than 2^32 - 1 rows or elements
 *   -ENOMEM    no memory to build a block
 *   and errors of weir_map_put_block().
 * Thread of the handle. The sizes of buffers are not known here: the caller vouches for them.
 */
int weir_map_arrow(struct weir_map *m, const struct ArrowSchema *schema,
		   const struct ArrowArray *rows, const uint32_t *partition, const uint32_t *keys,
		   uint32_t n, int timeout_ms, uint64_t *progress);

/*
 * Makes a stream of the record batches of a partition, or of a thread's queue. Buffers stay where
 * they arrived, aligned to 8 bytes; each is checked to hold what its array claims.
 *
 * @r       handle of the consumer. It belongs to the stream until the stream's release; then call
 *          weir_reduce_end().
 * @stream  is filled in; its former content is not released
 *
 * Returns 0 or -ENOMEM.
 *
 * The stream's functions return 0 or a positive errno, as Arrow specifies; get_last_error() has the
 * text until the next call. They wait without limit.
 *   get_schema()  Waits for the first block. Without any block before the end of data, the schema
 *                 is a struct without children. Each call makes another copy, which the caller
 *                 releases; it may outlive the stream.
 *   get_next()    The next batch, or after the last one an array whose release is NULL. The caller
 *                 releases it. A batch and each array that was moved out of it may outlive the
 *                 stream and the reduce handle, but not the shuffle; its block returns to the
 *                 shuffle with the release of its last array.
 *   EINVAL   a block has another schema than the first one
 *   EBADMSG  a block is not one of weir_map_arrow(), or a buffer contradicts its array
 *   EPROTO   the next data are records
 *   ENOMEM   no memory; the call may be repeated
 *   and errors of weir_reduce_block(). EINVAL and EBADMSG are final: each later call repeats them.
 * Thread of the handle; but release functions of schemas and arrays: any thread.
 */
int weir_reduce_arrow(struct weir_reduce *r, struct ArrowArrayStream *stream);

#ifdef __cplusplus
}
#endif
#endif
