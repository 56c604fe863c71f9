/* SPDX-License-Identifier: BSD-3-Clause */
#include "shuffle/core.h"

#include "array.h"
#include "hash.h"
#include "read.h"
#include "write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCK_BYTES (1u << 20) /* of rows, at most, if there are several */

/* ---- producing ---- */

/* A batch on its way. */
struct push {
	struct weir_map *map;
	const struct arrow_schema *schema;
	const struct ArrowArray *rows;
	struct arrow_writer *writer;
	uint32_t partitions;
	uint32_t *begin; /* of each partition in `order`; one more at the end */
	uint32_t *order; /* rows by partition, in their order */
	uint8_t *block;
	uint64_t room;	  /* bytes of `block` */
	int timeout_ms;	  /* of the call */
	int64_t start_ms; /* of the call */
};

static int64_t
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ms of the timeout that are left */
static int
time_left(const struct push *p)
{
	int64_t spent;

	if (p->timeout_ms <= 0)
		return p->timeout_ms;
	spent = now_ms() - p->start_ms;
	return spent < p->timeout_ms ? p->timeout_ms - (int)spent : 0;
}

static void *
allocate(uint64_t n, size_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	if (!p)
		weir_fail(-ENOMEM, "no memory to push a batch of %llu rows; push smaller batches",
			  (unsigned long long)n);
	return p;
}

/* Writes the partition of each row by its keys. */
static int
partition_by_keys(const struct push *p, const uint32_t *keys, uint32_t n, uint32_t *partition)
{
	uint64_t rows = (uint64_t)p->rows->length, *hash = allocate(rows, sizeof(*hash));

	if (!hash)
		return -ENOMEM;
	for (uint32_t k = 0; k < n; k++)
		arrow_hash(p->schema, p->rows, keys[k], hash);
	for (uint64_t i = 0; i < rows; i++)
		partition[i] = arrow_partition(hash[i], p->partitions);
	free(hash);
	return 0;
}

/* Sorts rows by partition: a counting sort, which keeps their order. */
static int
group(struct push *p, const uint32_t *partition)
{
	uint32_t rows = (uint32_t)p->rows->length, sum = 0;

	for (uint32_t i = 0; i < rows; i++) {
		if (partition[i] >= p->partitions)
			return weir_fail(-EINVAL,
					 "row %u is for partition %u; the shuffle has %u of them",
					 i, partition[i], p->partitions);
		p->begin[partition[i]]++;
	}
	for (uint32_t i = 0; i <= p->partitions; i++) {
		uint32_t n = p->begin[i];

		p->begin[i] = sum;
		sum += n;
	}
	for (uint32_t i = 0; i < rows; i++)
		p->order[p->begin[partition[i]]++] = i;
	/* each begin has become the next one's */
	memmove(p->begin + 1, p->begin, p->partitions * sizeof(*p->begin));
	p->begin[0] = 0;
	return 0;
}

/* Writes and pushes the rows that were planned. */
static int
put(struct push *p, uint32_t partition, uint32_t n, uint64_t bytes)
{
	if (p->room < bytes) {
		free(p->block);
		p->room = 0;
		p->block = allocate(bytes, 1);
		if (!p->block)
			return -ENOMEM;
		p->room = bytes;
	}
	arrow_write(p->writer, p->block);
	return weir_map_put_block(p->map, partition, p->block, bytes, n, time_left(p));
}

/* Pushes rows to a partition. Returns in `done` how many of the n have been pushed. */
static int
push_rows(struct push *p, uint32_t partition, const uint32_t *row, uint32_t n, uint32_t *done)
{
	uint64_t most = BLOCK_BYTES + arrow_overhead(p->schema), bytes;
	uint32_t chosen = n;
	int rc;

	while (*done < n) {
		chosen = chosen < n - *done ? chosen : n - *done;
		rc = arrow_plan(p->writer, row + *done, chosen, &bytes);
		if (rc == -EMSGSIZE && chosen > 1) {
			chosen /= 2;
			continue;
		}
		if (!rc && bytes > most && chosen > 1) {
			chosen = (uint32_t)(chosen * most / bytes);
			chosen += !chosen;
			continue;
		}
		if (rc == -EMSGSIZE || (!rc && bytes > WEIR_RECORD_MAX))
			return weir_fail(-EMSGSIZE,
					 "row %u of the batch has more than %u bytes or elements; "
					 "divide it",
					 row[*done], WEIR_RECORD_MAX);
		if (!rc)
			rc = put(p, partition, chosen, bytes);
		if (rc == -EMSGSIZE && chosen > 1) { /* the shuffle's memory is small */
			most = bytes / 2;
			chosen = (chosen + 1) / 2;
			continue;
		}
		if (rc)
			return rc;
		*done += chosen;
	}
	return 0;
}

/* Pushes all rows behind `progress`: a partition in the upper half, rows of it in the lower one. */
static int
push_all(struct push *p, uint64_t *progress)
{
	uint32_t done = (uint32_t)*progress;

	for (uint64_t i = *progress >> 32; i < p->partitions; i++, done = 0) {
		uint32_t n = p->begin[i + 1] - p->begin[i];
		int rc;

		if (done > n)
			return weir_fail(-EINVAL, "the progress is of another batch; begin a batch "
						  "with 0");
		rc = push_rows(p, (uint32_t)i, p->order + p->begin[i], n, &done);
		*progress = i << 32 | done;
		if (rc)
			return rc;
	}
	*progress = 0;
	return 0;
}

/* Groups and pushes a batch that has been checked. */
static int
push(struct push *p, const uint32_t *partition, const uint32_t *keys, uint32_t n,
     uint64_t *progress)
{
	uint64_t rows = (uint64_t)p->rows->length;
	uint32_t *by_keys = NULL;
	int rc;

	p->begin = allocate(p->partitions + UINT64_C(1), sizeof(*p->begin));
	p->order = allocate(rows, sizeof(*p->order));
	if (!p->begin || !p->order)
		return -ENOMEM;
	if (!partition) {
		partition = by_keys = allocate(rows, sizeof(*by_keys));
		rc = by_keys ? partition_by_keys(p, keys, n, by_keys) : -ENOMEM;
	} else {
		rc = 0;
	}
	if (!rc)
		rc = group(p, partition);
	free(by_keys);
	if (!rc)
		rc = arrow_writer_open(p->schema, p->rows, &p->writer);
	return rc ? rc : push_all(p, progress);
}

static int
check_arguments(const struct arrow_schema *s, const uint32_t *partition, const uint32_t *keys,
		uint32_t n)
{
	if ((partition != NULL) == (keys != NULL) || (keys != NULL) != (n > 0))
		return weir_fail(-EINVAL, "give either partition numbers or columns to hash");
	for (uint32_t i = 0; i < n; i++) {
		if (keys[i] >= s->type[0].children)
			return weir_fail(-EINVAL, "the key is column %u; the batch has %u columns",
					 keys[i], s->type[0].children);
	}
	return 0;
}

int
weir_map_arrow(struct weir_map *m, const struct ArrowSchema *schema, const struct ArrowArray *rows,
	       const uint32_t *partition, const uint32_t *keys, uint32_t n, int timeout_ms,
	       uint64_t *progress)
{
	struct push p = {.map = m, .rows = rows, .timeout_ms = timeout_ms, .start_ms = now_ms()};
	struct arrow_schema *s;
	int rc = arrow_schema_of(schema, &s);

	if (rc)
		return rc;
	p.schema = s;
	p.partitions = weir_shuffle_partitions(map_shuffle(m));
	rc = arrow_array_check(s, rows);
	if (!rc)
		rc = check_arguments(s, partition, keys, n);
	if (!rc)
		rc = push(&p, partition, keys, n, progress);
	if (p.writer)
		arrow_writer_close(p.writer);
	free(p.block);
	free(p.order);
	free(p.begin);
	arrow_schema_free(s);
	return rc;
}

/* ---- consuming ---- */

struct stream {
	struct weir_reduce *reduce;
	struct arrow_schema *schema; /* of the first block; NULL: none has come */
	struct weir_block block;     /* the next one, if there is one */
	bool has_block, ended;
	int failed;	 /* -errno that is final; 0: none */
	char error[256]; /* reason of the last failure */
};

/* The schema of no columns. */
static const uint8_t empty_image[] = {2, 0, 0, 0, 0, 0, '+', 's', 0, 0};

/* Keeps the reason of a failure, or that of the final one. Returns a positive errno. */
static int
stream_fail(struct stream *x, int rc)
{
	if (x->failed)
		return -rc;
	snprintf(x->error, sizeof(x->error), "%s", weir_reason());
	if (rc == -EINVAL || rc == -EBADMSG)
		x->failed = rc;
	return -rc;
}

static void
drop_block(struct stream *x)
{
	if (x->has_block)
		weir_block_release(reduce_shuffle(x->reduce), &x->block);
	x->has_block = false;
}

/* Waits for the next block, whose schema is that of the stream then, or for the end. */
static int
fetch(struct stream *x)
{
	int rc;

	if (x->failed)
		return x->failed;
	if (!x->has_block && !x->ended) {
		rc = weir_reduce_block(x->reduce, &x->block, -1);
		x->ended = rc == -ENODATA;
		if (rc)
			return x->ended ? 0 : rc;
		x->has_block = true;
	}
	if (!x->has_block)
		return 0;
	rc = arrow_read_schema(&x->block, x->schema, &x->schema);
	if (rc && rc != -ENOMEM)
		drop_block(x);
	return rc;
}

static int
get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
	struct stream *x = stream->private_data;
	struct arrow_schema *empty = NULL;
	int rc = x->schema ? 0 : fetch(x);

	if (!rc && !x->schema)
		rc = arrow_schema_read(empty_image, sizeof(empty_image), 1, &empty);
	if (!rc)
		rc = arrow_schema_export(x->schema ? x->schema : empty, out);
	arrow_schema_free(empty);
	return rc ? stream_fail(x, rc) : 0;
}

static int
get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
	struct stream *x = stream->private_data;
	int rc = fetch(x);

	if (!rc && !x->has_block) {
		*out = (struct ArrowArray){0};
		return 0;
	}
	if (!rc)
		rc = arrow_read(x->schema, reduce_shuffle(x->reduce), &x->block, out);
	if (!rc) {
		x->has_block = false; /* the batch has it */
		return 0;
	}
	if (rc == -EBADMSG)
		drop_block(x);
	return stream_fail(x, rc);
}

static const char *
get_last_error(struct ArrowArrayStream *stream)
{
	const struct stream *x = stream->private_data;

	return x->error[0] ? x->error : NULL;
}

static void
release_stream(struct ArrowArrayStream *stream)
{
	struct stream *x = stream->private_data;

	drop_block(x);
	arrow_schema_free(x->schema);
	free(x);
	stream->release = NULL;
}

int
weir_reduce_arrow(struct weir_reduce *r, struct ArrowArrayStream *stream)
{
	struct stream *x = calloc(1, sizeof(*x));

	if (!x)
		return weir_fail(-ENOMEM, "no memory for a stream");
	x->reduce = r;
	*stream = (struct ArrowArrayStream){
	    .get_schema = get_schema,
	    .get_next = get_next,
	    .get_last_error = get_last_error,
	    .release = release_stream,
	    .private_data = x,
	};
	return 0;
}
