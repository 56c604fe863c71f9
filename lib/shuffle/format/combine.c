/* SPDX-License-Identifier: BSD-3-Clause */
#include "combine.h"

#include "block.h"
#include "ipc/invariant.h"
#include "weir/weir.h"

#include <errno.h>
#include <stdlib.h>

#define EMIT_LEAST 4096u /* bytes of the first allocation */

/* 0 or -ENOMEM. */
static int
emit_reserve(struct weir_emit *e, size_t bytes)
{
	size_t room = e->room ? e->room : EMIT_LEAST;
	uint8_t *moved;

	if (bytes <= e->room - e->length)
		return 0;
	if (bytes > e->most || e->length > e->most - bytes)
		return weir_fail(-ENOMEM, "a combiner's output exceeds %zu bytes", e->most);
	while (room < e->length + bytes)
		room *= 2;
	room = room < e->most ? room : e->most;
	moved = realloc(e->bytes, room);
	if (!moved)
		return weir_fail(-ENOMEM, "no memory for the output of a combiner");
	e->bytes = moved;
	e->room = room;
	return 0;
}

static int
emit(struct weir_emit *e, const struct weir_record *r)
{
	uint32_t bytes = record_size(r->key_length, r->value_length);
	int rc = emit_reserve(e, bytes);

	if (rc)
		return rc;
	record_write(e->bytes + e->length, r);
	e->length += bytes;
	e->records++;
	return 0;
}

int
weir_emit(struct weir_emit *e, const struct weir_record *r)
{
	if (e->rc)
		return e->rc;
	if ((uint64_t)r->key_length + r->value_length > WEIR_RECORD_MAX)
		e->rc = weir_fail(-EINVAL, "a combiner emitted a record of more than %u bytes",
				  WEIR_RECORD_MAX);
	else if (key_compare(&e->combiner->order, r, e->of))
		e->rc = weir_fail(-EINVAL, "a combiner emitted another key than that of its "
					   "records");
	else
		e->rc = emit(e, r);
	return e->rc;
}

void
emit_free(struct weir_emit *e)
{
	free(e->bytes);
	*e = (struct weir_emit){.most = e->most};
}

int
combine_run(const struct combiner *c, const struct weir_record *r, size_t n, struct weir_emit *e)
{
	size_t length = e->length;
	uint32_t records = e->records;
	int rc;

	weir_assert(n);
	e->combiner = c;
	e->of = r;
	e->rc = 0;
	rc = c->combine(r, n, e, c->order.user);
	if (e->rc) /* even if the program's function overlooked it */
		rc = e->rc;
	else if (rc)
		weir_fail(rc < 0 ? rc : -EINVAL, "the program's combiner failed");
	if (!rc)
		return 0;
	e->length = length;
	e->records = records;
	return rc < 0 ? rc : -EINVAL;
}

static int
flush(const struct combiner *c, const struct weir_record *run, size_t n, struct weir_emit *e)
{
	return n == 1 ? emit(e, run) : combine_run(c, run, n, e);
}

/* Combines the records of the current fragment. */
static int
combine_records(const struct combiner *c, struct block_walk *w, struct weir_emit *e)
{
	struct weir_record run[COMBINE_RUN], r;
	size_t n = 0;
	int end, rc;

	while (!(end = block_walk_record(w, &r))) {
		if (n == COMBINE_RUN || (n && key_compare(&c->order, run, &r))) {
			rc = flush(c, run, n, e);
			if (rc)
				return rc;
			n = 0;
		}
		run[n++] = r;
	}
	if (end != -ENODATA)
		return end;
	return n ? flush(c, run, n, e) : 0;
}

/* Writes the current fragment again. */
static int
combine_fragment(const struct combiner *c, struct block_walk *w, struct weir_emit *e)
{
	struct fragment_head f = {.partition = w->fragment.partition};
	size_t head = e->length;
	uint32_t before = e->records, pad;
	int rc = emit_reserve(e, sizeof(f));

	if (rc)
		return rc;
	e->length += sizeof(f);
	rc = combine_records(c, w, e);
	f.bytes = (uint32_t)(e->length - head - sizeof(f));
	f.records = e->records - before;
	pad = pad8(f.bytes) - f.bytes;
	if (!rc)
		rc = emit_reserve(e, pad);
	if (rc)
		return rc;
	memcpy(e->bytes + head, &f, sizeof(f));
	memset(e->bytes + e->length, 0, pad);
	e->length += pad;
	return 0;
}

int
combine_block(const struct combiner *c, const struct block_head *h, const void *sorted,
	      struct weir_emit *e, struct block_head *out)
{
	uint32_t fragments = 0;
	struct block_walk w;
	int end, rc = 0;

	weir_assert(h->flags & BLOCK_SORTED && h->codec == WEIR_CODEC_NONE);
	weir_assert(e->most <= BLOCK_RAW_MAX);
	e->length = e->records = 0;
	block_walk_begin(&w, h, sorted);
	while (!(end = block_walk_next(&w)) && !(rc = combine_fragment(c, &w, e)))
		fragments++;
	if (end != -ENODATA) {
		e->length = e->records = 0;
		return rc ? rc : end;
	}
	*out = *h;
	out->fragments = fragments;
	out->records = e->records;
	out->raw = out->stored = (uint32_t)e->length;
	return 0;
}
