/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs go to files when memory is short. Whole blocks go, for no less gives memory back; those of
 * selected attempts first. Runs of a partition become one, sorted if its readers want that. Blocks
 * and their runs are chosen under the lock of the store, copied without it, and replaced under it
 * where no reader has come in between.
 */
#include "batch.h"
#include "format/block.h"
#include "runs.h"
#include "store_inner.h"

#include "base/vec.h"

#include <stdio.h>

/* A run that leaves. */
struct move {
	struct run run;
	uint64_t id;	       /* of an attempt that is not selected; 0: the partition's */
	uint32_t map, attempt; /* with id */
	uint32_t partition, part, part_count;
	uint32_t index;		 /* among the runs of the part */
	bool alone;		 /* it stays a run of its own */
	bool fails;		 /* it cannot leave */
	struct spilled *spilled; /* what it has become; NULL: a run before it has taken it in */
};

struct evict {
	struct shuffle_thread *t;
	struct weir_shuffle *s;
	struct files *f;
	struct held **blocks, *single; /* `single` is larger than the buffer, and leaves alone */
	uint32_t block_count, block_room;
	uint64_t bytes, fragments;
	struct move *moves;
	uint32_t count, room;
	bool full, no_memory;
	struct batch *batch;
	uint32_t length; /* of the batch */
	struct run_source sources[MERGE_SOURCES_MAX];
	struct merge_source *list[MERGE_SOURCES_MAX];
	struct weir_record same[COMBINE_RUN];
};

static bool
is_grouped(const struct weir_shuffle *s)
{
	return s->o.flags & (WEIR_SHUFFLE_SORTED | WEIR_SHUFFLE_GROUPED);
}

/* ---- choosing; the store's lock is held ---- */

/* Whether the number of its runs may change. */
static bool
may_merge(const struct weir_shuffle *s, const struct part *p)
{
	if (p->state == PART_OVER || p->pinned)
		return false;
	return p->state == PART_FREE || is_grouped(s);
}

/* Its runs may go to a file, one by one at least. */
static bool
may_leave(const struct part *p)
{
	return p->state != PART_OVER && !p->pinned;
}

static void
pick(struct evict *e, struct held *b)
{
	/* space for padding remains */
	uint64_t most = e->f->room - e->f->room / 8,
		 most_fragments = e->f->room / 4 / sizeof(struct move);

	if (e->full || b->leaving || b->stuck)
		return;
	if (is_grouped(e->s) && !(b->head.flags & BLOCK_SORTED)) {
		b->stuck = true;
		return;
	}
	if (e->block_count &&
	    (e->bytes + b->head.raw > most || e->fragments + b->head.fragments > most_fragments)) {
		e->full = true;
		return;
	}
	if (VEC_RESERVE(e->blocks, e->block_room, e->block_count + 1)) {
		e->full = true;
		return;
	}
	if (b->head.raw > most) {
		e->single = b;
		e->full = true;
	}
	held_ref(b);
	b->leaving = true;
	e->blocks[e->block_count++] = b;
	e->bytes += b->head.raw;
	e->fragments += b->head.fragments;
}

static void
pick_published(struct evict *e, bool all)
{
	const struct store *st = e->s->store;

	for (uint32_t i = 0; i < e->s->o.partitions && !e->full; i++) {
		const struct partition *p = st->partitions[i];

		for (uint32_t k = 0; p && k < p->part_count; k++) {
			const struct part *part = &p->parts[k];

			if (all ? !may_leave(part) : !may_merge(e->s, part))
				continue;
			for (uint32_t n = 0; n < part->count && !e->full; n++)
				if (part->runs[n].b)
					pick(e, part->runs[n].b);
		}
	}
}

static void
pick_attempts(struct evict *e)
{
	struct attempt *a;
	struct held *b;

	for (uint32_t i = 0; i < e->s->o.maps && !e->full; i++)
		for (a = e->s->store->maps[i].attempts; a; a = a->next)
			STAILQ_FOREACH(b, &a->blocks, next)
	pick(e, b);
}

static void
add_move(struct evict *e, const struct move *m)
{
	if (VEC_RESERVE(e->moves, e->room, e->count + 1)) {
		e->no_memory = true;
		return;
	}
	e->moves[e->count++] = *m;
}

static void
collect_published(struct evict *e)
{
	const struct store *st = e->s->store;

	for (uint32_t i = 0; i < e->s->o.partitions; i++) {
		const struct partition *p = st->partitions[i];

		for (uint32_t k = 0; p && k < p->part_count; k++) {
			const struct part *part = &p->parts[k];

			for (uint32_t n = 0; may_leave(part) && n < part->count; n++) {
				const struct run *r = &part->runs[n];

				if (!r->b || !r->b->leaving)
					continue;
				add_move(e, &(struct move){.run = *r,
							   .partition = i,
							   .part = k,
							   .part_count = p->part_count,
							   .index = n,
							   .alone = e->single ||
								    r->flags & FRAGMENT_OPAQUE ||
								    !may_merge(e->s, part)});
			}
		}
	}
}

/* The fragments of a block of an attempt. 0 or -EBADMSG. */
static int
collect_block(struct evict *e, const struct attempt *a, struct held *b)
{
	const struct weir_shuffle *s = e->s;
	uint32_t own = thread_number(s, (struct weir_to){s->self, b->t->index});
	struct block_walk w;
	int rc;

	block_walk_begin(&w, &b->head, b->raw);
	while (!(rc = block_walk_next(&w))) {
		if (w.fragment.partition >= s->o.partitions ||
		    owner_of(s, w.fragment.partition) != own)
			return -EBADMSG;
		add_move(e,
			 &(struct move){.run = {.b = b,
						.bytes = w.bytes,
						.length = w.fragment.bytes,
						.records = w.fragment.records,
						.flags = w.fragment.flags},
					.id = a->id,
					.map = b->head.map,
					.attempt = b->head.attempt,
					.partition = w.fragment.partition,
					.index = e->count,
					.alone = e->single || w.fragment.flags & FRAGMENT_OPAQUE});
	}
	return rc == -ENODATA ? 0 : rc;
}

static void
collect_attempts(struct evict *e)
{
	struct attempt *a;
	struct held *b;

	for (uint32_t i = 0; i < e->s->o.maps; i++)
		for (a = e->s->store->maps[i].attempts; a; a = a->next)
			STAILQ_FOREACH(b, &a->blocks, next)
			{
				uint32_t before = e->count;

				if (!b->leaving || !collect_block(e, a, b))
					continue;
				/* publishing it fails with a reason */
				e->count = before;
				b->leaving = false;
				b->stuck = true;
			}
}

static int
compare_moves(const void *one, const void *other)
{
	const struct move *a = one, *b = other;

	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	if (a->partition != b->partition)
		return a->partition < b->partition ? -1 : 1;
	if (a->part != b->part)
		return a->part < b->part ? -1 : 1;
	return (a->index > b->index) - (a->index < b->index);
}

/* 0, -ENODATA: there is nothing to move, or -ENOMEM. */
static int
choose(struct evict *e)
{
	pick_published(e, false);
	if (!e->block_count)
		pick_published(e, true);
	if (e->block_count) {
		collect_published(e);
	} else {
		pick_attempts(e);
		collect_attempts(e);
		if (e->count)
			qsort(e->moves, e->count, sizeof(*e->moves), compare_moves);
	}
	if (e->no_memory)
		return weir_fail(-ENOMEM, "no memory to spill; free some");
	return e->block_count ? 0 : -ENODATA;
}

/* ---- copying ---- */

static void
append(struct evict *e, const void *bytes, uint32_t length)
{
	weir_assert(length <= e->f->room - e->length);
	memcpy(e->f->buffer + e->length, bytes, length);
	e->length += length;
}

/* A run of about that many bytes begins. */
static void
align(struct evict *e, uint64_t bytes)
{
	uint32_t unit = bytes >= RUN_ALIGNED ? SPILL_ALIGN : 8,
		 at = (e->length + unit - 1) / unit * unit;

	memset(e->f->buffer + e->length, 0, at - e->length);
	e->length = at;
}

/* The longest record, if there are as many as the run says. 0 or -EBADMSG. */
static int
measure(const uint8_t *at, uint32_t length, uint32_t records, uint32_t *longest)
{
	const uint8_t *end = at + length;
	struct weir_record r;

	for (; records; records--) {
		size_t n = record_read(at, (size_t)(end - at), &r);

		if (!n)
			return -EBADMSG;
		*longest = n > *longest ? (uint32_t)n : *longest;
		at += n;
	}
	return at == end ? 0 : -EBADMSG;
}

/* Runs become one, as they are. */
static int
copy_runs(struct evict *e, const struct move *m, uint32_t n, struct spilled *like)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct run *r = &m[i].run;

		if (!(r->flags & FRAGMENT_OPAQUE) &&
		    measure(r->bytes, r->length, r->records, &like->longest))
			return -EBADMSG;
		if (!e->single)
			append(e, r->bytes, r->length);
		like->records += r->records;
	}
	return 0;
}

static void
append_record(struct evict *e, const struct weir_record *r, struct spilled *like)
{
	uint32_t bytes = record_size(r->key_length, r->value_length);

	weir_assert(bytes <= e->f->room - e->length);
	record_write(e->f->buffer + e->length, r);
	e->length += bytes;
	like->records++;
	like->longest = bytes > like->longest ? bytes : like->longest;
}

/* Records of one key; combined if that does not make them longer. */
static void
append_key(struct evict *e, uint32_t n, struct spilled *like)
{
	const struct weir_shuffle *s = e->s;
	struct combiner c = {s->o.combine, order_of(s)};
	struct weir_emit out = {.bytes = e->f->buffer, .length = e->length};

	for (uint32_t i = 0; i < n; i++)
		out.room += record_size(e->same[i].key_length, e->same[i].value_length);
	out.most = out.room += e->length;
	if (n > 1 && !combine_run(&c, e->same, n, &out) &&
	    !measure(out.bytes + e->length, (uint32_t)out.length - e->length, out.records,
		     &like->longest)) {
		e->length = (uint32_t)out.length;
		like->records += out.records;
		shuffle_count(&e->t->n.combined, n - out.records);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		append_record(e, &e->same[i], like);
}

/* Sorted runs become one. */
static int
merge_runs(struct evict *e, const struct move *m, uint32_t n, struct spilled *like)
{
	struct key_order order = order_of(e->s);
	struct weir_record r;
	struct merge *merge;
	uint32_t held = 0;
	bool same;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		run_source_init(&e->sources[i], &m[i].run);
		e->list[i] = &e->sources[i].base;
	}
	rc = merge_open(&order, e->list, n, &merge);
	if (rc)
		return rc;
	while (!(rc = merge_next(merge, &r, &same))) {
		if (!e->s->o.combine) {
			append_record(e, &r, like);
			continue;
		}
		if (held && (!same || held == COMBINE_RUN)) {
			append_key(e, held, like);
			held = 0;
		}
		e->same[held++] = r;
	}
	if (held)
		append_key(e, held, like);
	merge_close(merge);
	return rc == -ENODATA ? 0 : rc;
}

/* Moves that become one run. 0 or -errno. */
static int
move_runs(struct evict *e, struct move *m, uint32_t n)
{
	struct spilled like = {.map = m->run.b->head.map, .attempt = m->run.b->head.attempt};
	uint32_t before = e->length;
	uint64_t bytes = 0;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		bytes += m[i].run.length;
	if (e->single) {
		const uint8_t *base = e->batch->data.iov_base;

		like.offset = (uint32_t)(m->run.bytes - base);
	} else {
		align(e, bytes);
		like.offset = e->length;
	}
	rc = n > 1 && is_grouped(e->s) ? merge_runs(e, m, n, &like) : copy_runs(e, m, n, &like);
	like.length = e->single ? m->run.length : e->length - like.offset;
	if (e->single && like.offset + like.length > e->length)
		e->length = like.offset + like.length;
	m->spilled = rc ? NULL : spilled_make(e->f, e->batch, &like);
	if (m->spilled)
		return 0;
	e->length = before;
	return rc ? rc : -ENOMEM;
}

/* Whether both moves are of one list of runs. */
static bool
are_of_one(const struct move *a, const struct move *b)
{
	return a->id == b->id && a->partition == b->partition && a->part == b->part;
}

/* Of a block that leaves from where it lies. */
static const uint8_t *
first_bytes(const struct evict *e)
{
	const uint8_t *first = e->single->raw + e->single->head.raw;

	for (uint32_t i = 0; i < e->count; i++)
		first = e->moves[i].run.bytes < first ? e->moves[i].run.bytes : first;
	return first;
}

static void
move_all(struct evict *e)
{
	uint32_t n;

	if (e->single)
		e->batch->data.iov_base = (void *)(uintptr_t)first_bytes(e);
	for (uint32_t i = 0; i < e->count; i += n) {
		struct move *m = &e->moves[i];

		for (n = 1; !m->alone && n < MERGE_SOURCES_MAX && i + n < e->count; n++)
			if (m[n].alone || !are_of_one(m, &m[n]))
				break;
		if (move_runs(e, m, n))
			for (uint32_t k = 0; k < n; k++)
				m[k].fails = true;
	}
	e->batch->data.iov_len = e->length ? e->length : 1; /* a write has bytes */
}

/* ---- replacing; the store's lock is held ---- */

static struct run
run_of(struct move *m)
{
	struct run r = {.spilled = m->spilled,
			.length = m->spilled->length,
			.records = m->spilled->records,
			.flags = m->run.flags};

	m->spilled = NULL;
	return r;
}

/* Moves of one part. */
static void
replace(struct evict *e, struct move *m, uint32_t n)
{
	struct partition *p = e->s->store->partitions[m->partition];
	struct part *part;
	uint32_t kept = 0;

	/* it may have moved to another owner, or have been divided */
	if (!p || p->part_count != m->part_count || !may_leave(&p->parts[m->part]))
		return;
	part = &p->parts[m->part];
	for (uint32_t i = 0; i < n; i++) {
		struct run *r = &part->runs[m[i].index];

		/* the list may have been divided, and its runs have other numbers */
		if (m[i].index >= part->count || r->b != m[i].run.b || r->bytes != m[i].run.bytes)
			return;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct run *r = &part->runs[m[i].index];

		if (m[i].fails || (!m[i].alone && !may_merge(e->s, part)))
			continue;
		held_unref(r->b);
		*r = m[i].spilled ? run_of(&m[i]) : (struct run){0};
	}
	if (!may_merge(e->s, part))
		return;
	for (uint32_t i = 0; i < part->count; i++)
		if (part->runs[i].b || part->runs[i].spilled)
			part->runs[kept++] = part->runs[i];
	part->count = kept;
}

/* Moves of an attempt: all of its blocks that were chosen leave, or none. */
static void
replace_attempt(struct evict *e, struct move *m, uint32_t n)
{
	struct map_task *task = &e->s->store->maps[m->map];
	struct attempt *a = *attempt_find(task, m->attempt);
	struct helds stay = STAILQ_HEAD_INITIALIZER(stay);
	struct held *b;

	if (!a || a->id != m->id || a->dropped ||
	    VEC_RESERVE(a->spilled, a->spilled_room, a->spilled_count + n))
		return;
	for (uint32_t i = 0; i < n; i++)
		if (m[i].fails)
			return;
	while ((b = STAILQ_FIRST(&a->blocks))) {
		STAILQ_REMOVE_HEAD(&a->blocks, next);
		if (b->leaving)
			held_unref(b);
		else
			STAILQ_INSERT_TAIL(&stay, b, next);
	}
	STAILQ_CONCAT(&a->blocks, &stay);
	for (uint32_t i = 0; i < n; i++)
		if (m[i].spilled)
			a->spilled[a->spilled_count++] =
			    (struct spilled_run){m[i].partition, run_of(&m[i])};
}

static void
replace_all(struct evict *e)
{
	uint32_t n;

	for (uint32_t i = 0; i < e->count; i += n) {
		struct move *m = &e->moves[i];

		for (n = 1; i + n < e->count; n++)
			if (m->id ? m->id != m[n].id : !are_of_one(m, &m[n]))
				break;
		if (m->id)
			replace_attempt(e, m, n);
		else
			replace(e, m, n);
	}
}

/* ---- all of it ---- */

/* Moves a batch. 0, -ENODATA: there is nothing to move; -ENOMEM. */
static int
evict(struct evict *e)
{
	struct store *st = e->s->store;
	int rc;

	pthread_mutex_lock(&st->lock);
	rc = choose(e);
	pthread_mutex_unlock(&st->lock);
	if (!rc) {
		e->batch = files_batch(e->f, e->single);
		rc = e->batch ? 0 : weir_fail(-ENOMEM, "no memory to spill; free some");
	}
	if (!rc)
		move_all(e);
	pthread_mutex_lock(&st->lock);
	if (!rc)
		replace_all(e);
	for (uint32_t i = 0; i < e->block_count; i++)
		e->blocks[i]->leaving = false;
	for (uint32_t i = 0; i < e->count; i++)
		if (e->moves[i].fails)
			e->moves[i].run.b->stuck = true;
	pthread_mutex_unlock(&st->lock);
	for (uint32_t i = 0; i < e->count; i++)
		spilled_free(e->f, e->moves[i].spilled);
	for (uint32_t i = 0; i < e->block_count; i++)
		held_unref(e->blocks[i]);
	free(e->moves);
	free(e->blocks);
	if (!rc)
		shuffle_count(&e->t->n.spilled_bytes, e->length);
	return rc;
}

static int
evict_batch(struct shuffle_thread *t)
{
	struct evict *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return weir_fail(-ENOMEM, "no memory to spill; free some");
	e->t = t;
	e->s = t->s;
	e->f = t->s->files;
	rc = evict(e);
	free(e);
	/* it begins to write; how that ends is seen when the buffer is needed */
	if (!rc)
		files_settle(t->s->files, 0);
	return rc;
}

int
store_spill(struct shuffle_thread *t, uint64_t bytes, int timeout_ms)
{
	struct weir_shuffle *s = t->s;
	struct files *f = s->files;
	char why[160];
	int rc = 0;

	if (!f)
		return no_buffers(t);
	pthread_mutex_lock(&f->lock);
	/* asked once: others take memory meanwhile, and a batch needs the buffer that this frees */
	if (!memory_is_free(s, bytes)) {
		rc = files_settle(f, timeout_ms);
		if (!rc && !memory_is_free(s, bytes))
			rc = evict_batch(t);
	}
	pthread_mutex_unlock(&f->lock);
	memory_wake(s);
	snprintf(why, sizeof(why), "%s", rc == -ENOSPC ? weir_reason() : "");
	switch (rc) {
	case -EAGAIN:
		return 0;
	case -ENODATA:
		return no_buffers(t);
	case -ENOSPC:
		return weir_fail(-ENOBUFS, "blocks that are not read yet fill `memory`; %s", why);
	default:
		return rc;
	}
}

/* Bytes that all threads hold of one side. */
static uint64_t
held_by_all(const struct weir_shuffle *s, enum memory_side side)
{
	uint64_t held = 0;

	for (uint32_t i = 0; i < s->own_threads; i++) {
		const struct shuffle_thread *t =
		    atomic_load_explicit(&s->threads[i], memory_order_acquire);

		if (t)
			held += atomic_load_explicit(&t->held[side], memory_order_relaxed);
	}
	return held;
}

int
store_take(struct shuffle_thread *t, uint64_t bytes)
{
	struct weir_shuffle *s = t->s;
	struct wait w;
	int rc = 0;

	while (!rc && !memory_take(t, MEMORY_READ, bytes)) {
		if (bytes > s->memory.shared)
			return no_buffers(t);
		rc = store_spill(t, bytes, -1);
		/* what is on its way to others needs no file */
		if (rc == -ENOBUFS && held_by_all(s, MEMORY_TX)) {
			w = wait_begin(1);
			rc = shuffle_turn(t, &w);
		}
	}
	return rc;
}

bool
store_fills(const struct weir_shuffle *s)
{
	return s->files && held_by_all(s, MEMORY_RX) > s->memory.shared / 4;
}
