/* SPDX-License-Identifier: BSD-3-Clause */
/* Consuming. */
#include "batch.h"
#include "runs.h"

#include "core.h"
#include "base/monotonic.h"
#include "base/vec.h"

#include <stdio.h>

struct weir_reduce {
	struct weir_shuffle *s;
	struct shuffle_thread *t;
	bool own; /* STREAM */
	uint32_t partition, part;
	struct partition *data; /* STAGE */
	/* STAGE: the run that is read */
	uint32_t at;	       /* number of the next one */
	struct run run;	       /* with a reference of its block */
	const uint8_t *record; /* the next one */
	uint32_t left;	       /* records of the run, after that */
	struct loader loader;  /* of a run in a file */
	uint64_t charged;      /* bytes of its memory */
	/* SORTED, GROUPED */
	struct runs *runs;	  /* NULL: not all map tasks are done yet */
	struct weir_record ahead; /* of the next key */
	bool has_ahead, by_keys, over;
	uint8_t *key; /* a copy of the current one */
	uint32_t key_room;
};

static bool
is_grouped(const struct weir_shuffle *s)
{
	return s->o.flags & (WEIR_SHUFFLE_SORTED | WEIR_SHUFFLE_GROUPED);
}

/* ---- the handle ---- */

static int
make(struct weir_shuffle *s, struct shuffle_thread *t, struct weir_reduce **r)
{
	*r = calloc(1, sizeof(**r));
	if (!*r)
		return weir_fail(-ENOMEM, "no memory for a consumer; free some");
	(*r)->s = s;
	(*r)->t = t;
	return 0;
}

int
weir_reduce_begin_own(struct weir_shuffle *s, struct weir_reduce **r)
{
	struct shuffle_thread *t = shuffle_own(s);
	int rc;

	if (!t)
		return -EPERM;
	if (s->o.kind != WEIR_SHUFFLE_STREAM)
		return weir_fail(-EINVAL, "a STAGE is read by partitions; use weir_reduce_begin()");
	if (t->reads || t->reads_no_more)
		return weir_fail(-EBUSY, "the thread %s its queue",
				 t->reads ? "already reads" : "has ended reading");
	rc = make(s, t, r);
	if (rc)
		return rc;
	(*r)->own = t->reads = true;
	(*r)->partition = PARTITION_OF_THREAD;
	return 0;
}

int
weir_reduce_begin(struct weir_shuffle *s, uint32_t partition, uint32_t part, uint32_t parts,
		  struct weir_reduce **r)
{
	struct shuffle_thread *t = shuffle_own(s);
	int rc;

	if (!t)
		return -EPERM;
	if (s->o.kind != WEIR_SHUFFLE_STAGE)
		return weir_fail(-EINVAL, "a STREAM is read by threads; use "
					  "weir_reduce_begin_own()");
	if (partition >= s->o.partitions || !parts || part >= parts)
		return weir_fail(-EINVAL, "part %u of %u of partition %u of %u; give numbers below",
				 part, parts, partition, s->o.partitions);
	rc = make(s, t, r);
	if (rc)
		return rc;
	rc = store_begin(s, partition, part, parts, &(*r)->data);
	if (rc) {
		free(*r);
		return rc;
	}
	(*r)->partition = partition;
	(*r)->part = part;
	return 0;
}

static void
leave_run(struct weir_reduce *r)
{
	if (r->run.b)
		held_unref(r->run.b);
	r->run = (struct run){0};
}

static void
leave_loader(struct weir_reduce *r)
{
	loader_close(&r->loader);
	if (r->charged)
		memory_give(r->t, MEMORY_READ, r->charged);
	r->charged = 0;
}

void
weir_reduce_end(struct weir_reduce *r, bool ok)
{
	leave_run(r);
	leave_loader(r);
	runs_close(r->runs);
	if (r->own) {
		r->t->reads = false;
		r->t->reads_no_more = true;
		queue_drain(r->t);
	} else {
		store_end(r->s, r->data, r->part, ok);
	}
	memory_wake(r->s);
	free(r->key);
	free(r);
}

struct weir_shuffle *
reduce_shuffle(const struct weir_reduce *r)
{
	return r->s;
}

uint32_t
weir_record_partition(const struct weir_reduce *r)
{
	return r->partition;
}

/* ---- STAGE ---- */

/* A run in a file is the one that is read. */
static int
begin_file(struct weir_reduce *r)
{
	struct files *f = r->s->files;
	uint32_t longest = r->run.spilled->longest, front, body;
	uint64_t bytes;
	int rc = 0;

	if (!r->loader.memory || r->loader.front < longest) {
		leave_loader(r);
		bytes = loader_size(f, longest, r->s->memory.reserve[MEMORY_READ], &front, &body);
		rc = store_take(r->t, bytes);
		if (rc)
			return rc;
		r->charged = bytes;
		rc = loader_open(&r->loader, f, front, body);
	}
	if (rc)
		leave_loader(r);
	else
		loader_begin(&r->loader, r->run.spilled);
	return rc;
}

/* Waits until map tasks have given the partition another run. */
static int
await_run(struct weir_reduce *r, const struct wait *w)
{
	struct shuffle_thread *t = r->t;
	uint64_t begin = 0;
	int rc;

	leave_run(r);
	/* pairs with the load in shuffle_wake(): the lock of the store lies between */
	atomic_store_explicit(&t->waits, true, memory_order_relaxed);
	for (;;) {
		rc = store_run(r->s, r->data, r->part, &r->at, &r->run);
		if (rc != -EAGAIN || (begin && wait_over(w)))
			break;
		if (!begin)
			begin = monotonic_ns();
		rc = shuffle_turn(t, w);
		if (rc)
			break;
	}
	atomic_store_explicit(&t->waits, false, memory_order_relaxed);
	if (begin)
		shuffle_count(&t->n.next_wait_us, (monotonic_ns() - begin) / 1000u);
	r->record = r->run.bytes;
	r->left = rc ? 0 : r->run.records;
	if (!rc && r->run.spilled && r->left && !(r->run.flags & FRAGMENT_OPAQUE)) {
		rc = begin_file(r);
		/* again in the next call */
		if (rc) {
			r->left = 0;
			r->at--;
		}
	}
	if (rc == -EAGAIN)
		return weir_fail(rc, "no record in time: %d map tasks are missing",
				 store_missing(r->s, NULL, 0));
	return rc;
}

static int
corrupt(struct weir_reduce *r)
{
	const struct block_head *h = &r->run.b->head;

	shuffle_count(&r->t->n.corrupt, 1);
	return weir_fail(-EBADMSG,
			 "map %u attempt %u of process %u, partition %u: a malformed "
			 "record in block %u",
			 h->map, h->attempt, (uint32_t)(h->producer >> 32), r->partition,
			 h->number);
}

/* A file is not as it was written. */
static int
changed(struct weir_reduce *r)
{
	const struct spilled *run = r->run.spilled;
	char of[64] = "";

	shuffle_count(&r->t->n.corrupt, 1);
	if (r->run.flags & FRAGMENT_OPAQUE)
		snprintf(of, sizeof(of), ", map %u attempt %u", run->map, run->attempt);
	return weir_fail(-EBADMSG, "partition %u%s: a file differs from what was written to it",
			 r->partition, of);
}

static int
stage_next(struct weir_reduce *r, struct weir_record *record, const struct wait *w)
{
	const uint8_t *end;
	size_t n;
	int rc;

	while (!r->left) {
		rc = await_run(r, w);
		if (rc)
			return rc;
	}
	if (r->run.flags & FRAGMENT_OPAQUE)
		return weir_fail(-EPROTO, "the next data are a block of the program; call "
					  "weir_reduce_block()");
	if (r->run.spilled) {
		rc = loader_next(&r->loader, record);
		r->left--;
		return rc == -EBADMSG ? changed(r) : rc;
	}
	end = r->run.bytes + r->run.length;
	n = record_read(r->record, (size_t)(end - r->record), record);
	r->record += n;
	r->left--;
	if (!n || (!r->left && r->record != end))
		return corrupt(r);
	return 0;
}

/* Reads a block of the program into memory. 0 or why not. */
static int
fetch(struct weir_reduce *r, struct held **block)
{
	const struct spilled *run = r->run.spilled;
	uint32_t piece = r->s->files->piece;
	size_t room = (run->length + (size_t)piece - 1) / piece * piece;
	struct held *b = calloc(1, sizeof(*b));
	int64_t n;
	int rc = b ? store_take(r->t, room) : weir_fail(-ENOMEM, "no memory for a block");

	if (rc) {
		free(b);
		return rc;
	}
	b->t = r->t;
	b->side = MEMORY_READ;
	b->charged = room;
	b->head.map = run->map;
	b->head.attempt = run->attempt;
	atomic_init(&b->refs, 1);
	b->raw = b->memory = aligned_alloc(SPILL_ALIGN, room + SPILL_ALIGN);
	n = b->memory ? spilled_read(r->s->files, run, 0, b->memory, room) : -ENOMEM;
	if (n < 0)
		held_unref(b);
	else
		*block = b;
	if (n == -ENOMEM)
		return weir_fail(-ENOMEM, "no memory for a block; free some");
	return n == -EBADMSG ? changed(r) : n < 0 ? (int)n : 0;
}

static int
stage_block(struct weir_reduce *r, struct weir_block *block, const struct wait *w)
{
	const struct run *run = &r->run;
	struct held *b = NULL;
	int rc;

	while (!r->left) {
		rc = await_run(r, w);
		if (rc)
			return rc;
	}
	if (!(run->flags & FRAGMENT_OPAQUE))
		return weir_fail(-EPROTO, "the next data are records; call weir_reduce_next()");
	if (run->spilled) {
		rc = fetch(r, &b);
		if (rc)
			return rc;
	} else {
		b = run->b;
		held_ref(b);
	}
	r->left = 0;
	*block = (struct weir_block){.data = run->spilled ? b->raw : run->bytes,
				     .length = run->length,
				     .records = run->records,
				     .partition = r->partition,
				     .map = b->head.map,
				     .attempt = b->head.attempt,
				     .internal = {(uintptr_t)b}};
	return 0;
}

/* ---- by keys ---- */

/* Waits until all map tasks are done, and opens their runs. */
static int
await_runs(struct weir_reduce *r, const struct wait *w)
{
	int rc = 0;

	/* the first run shows nothing: one with lesser keys may follow */
	while (!rc) {
		r->at = UINT32_MAX;
		rc = await_run(r, w);
	}
	return rc == -ENODATA ? runs_open(r->t, r->data, r->partition, r->part, &r->runs) : rc;
}

static int
sorted_next(struct weir_reduce *r, struct weir_record *record, const struct wait *w)
{
	bool same = false;
	int rc = r->runs ? 0 : await_runs(r, w);

	if (rc)
		return rc;
	if (r->by_keys && r->over)
		return -ENODATA;
	if (r->has_ahead) {
		r->has_ahead = false;
		*record = r->ahead;
		return 0;
	}
	rc = runs_next(r->runs, record, &same);
	r->over = rc;
	if (rc || same || !r->by_keys)
		return rc;
	r->ahead = *record;
	r->has_ahead = r->over = true;
	return -ENODATA;
}

int
weir_reduce_key(struct weir_reduce *r, const void **key, uint32_t *length, int timeout_ms)
{
	struct wait w = wait_begin(timeout_ms);
	struct weir_record record;
	int rc;

	if (r->own || !is_grouped(r->s))
		return weir_fail(-EINVAL, "keys are adjacent with SORTED or GROUPED alone");
	/* the rest of this key */
	while (r->by_keys && !r->over) {
		rc = sorted_next(r, &record, &w);
		if (rc && rc != -ENODATA)
			return rc;
	}
	if (r->by_keys && !r->has_ahead)
		return -ENODATA;
	r->over = false;
	if (!r->by_keys) {
		rc = sorted_next(r, &r->ahead, &w);
		if (rc)
			return rc;
		r->by_keys = r->has_ahead = true;
	}
	if (VEC_RESERVE(r->key, r->key_room, r->ahead.key_length + 1))
		return weir_fail(-ENOMEM, "no memory for a key; free some");
	memcpy(r->key, r->ahead.key, r->ahead.key_length);
	*key = r->key;
	*length = r->ahead.key_length;
	return 0;
}

/* ---- both ---- */

int
weir_reduce_next(struct weir_reduce *r, struct weir_record *record, int timeout_ms)
{
	struct wait w = wait_begin(timeout_ms);
	int rc;

	if (r->own)
		rc = queue_next(r->t, record, &r->partition, &w);
	else if (is_grouped(r->s))
		rc = sorted_next(r, record, &w);
	else
		rc = stage_next(r, record, &w);
	if (!rc)
		shuffle_count(&r->t->n.read, 1);
	return rc;
}

int
weir_reduce_block(struct weir_reduce *r, struct weir_block *block, int timeout_ms)
{
	struct wait w = wait_begin(timeout_ms);
	int rc = r->own ? queue_block(r->t, block, &w) : stage_block(r, block, &w);

	if (!rc)
		shuffle_count(&r->t->n.read, block->records);
	return rc;
}

void
weir_block_release(struct weir_shuffle *s, struct weir_block *block)
{
	(void)s;
	held_unref((struct held *)(uintptr_t)block->internal[0]);
	*block = (struct weir_block){0};
}
