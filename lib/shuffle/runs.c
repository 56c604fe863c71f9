/* SPDX-License-Identifier: BSD-3-Clause */
#include "runs.h"

#include "batch.h"
#include "store_inner.h"

#include <stdio.h>

/* A run in a file. */
struct file_source {
	struct merge_source base;
	struct loader loader;
	struct runs *runs;
};

/* A merge of runs that is a run of another. */
struct inner {
	struct merge_source base;
	struct merge *merge;
};

struct runs {
	struct shuffle_thread *t;
	struct weir_shuffle *s;
	uint32_t partition;
	struct part *part;
	struct run_source *sources;
	struct file_source *files;
	uint32_t file_count;
	uint64_t charged; /* bytes */
	struct inner *inner;
	uint32_t inner_count;
	struct merge_source **list;
	struct merge *merge;
};

static int
no_memory(uint32_t runs)
{
	return weir_fail(-ENOMEM, "no memory for %u runs; free some", runs);
}

/* ---- sources ---- */

static int
next_of_run(struct merge_source *base, struct weir_record *r)
{
	struct run_source *s = (struct run_source *)base;
	size_t n;

	if (!s->left)
		return s->at == s->end ? -ENODATA : -EBADMSG;
	n = record_read(s->at, (size_t)(s->end - s->at), r);
	s->at += n;
	s->left--;
	return n ? 0 : weir_fail(-EBADMSG, "a malformed record in a sorted run");
}

void
run_source_init(struct run_source *source, const struct run *run)
{
	*source = (struct run_source){.base.next = next_of_run,
				      .at = run->bytes,
				      .end = run->bytes + run->length,
				      .left = run->records};
}

static int
next_of_file(struct merge_source *base, struct weir_record *r)
{
	struct file_source *s = (struct file_source *)base;
	int rc = loader_next(&s->loader, r);

	if (rc != -EBADMSG)
		return rc;
	shuffle_count(&s->runs->t->n.corrupt, 1);
	return weir_fail(rc, "partition %u: a file differs from what was written to it",
			 s->runs->partition);
}

static int
next_of_inner(struct merge_source *base, struct weir_record *r)
{
	return merge_next(((struct inner *)base)->merge, r, NULL);
}

/* ---- runs in files ---- */

static uint32_t
longest_of(const struct spilled *r)
{
	uint32_t longest = 0;

	for (; r; r = r->next)
		longest = r->longest > longest ? r->longest : longest;
	return longest;
}

static uint64_t
least_memory(const struct runs *r, const struct spilled *run)
{
	uint32_t front, body;

	return loader_size(r->s->files, longest_of(run), 0, &front, &body);
}

/* Opens `n` files sources with `memory` bytes, which suffice. */
static int
open_sources(struct runs *r, struct spilled *const *runs, uint32_t n, uint64_t memory)
{
	uint64_t spare = memory;
	uint32_t front, body;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		spare -= least_memory(r, runs[i]);
	r->files = calloc(n, sizeof(*r->files));
	if (!r->files)
		return no_memory(n);
	for (uint32_t i = 0; i < n && !rc; i++) {
		loader_size(r->s->files, longest_of(runs[i]), least_memory(r, runs[i]) + spare / n,
			    &front, &body);
		rc = loader_open(&r->files[i].loader, r->s->files, front, body);
		if (rc)
			break;
		r->file_count++;
		r->files[i].runs = r;
		r->files[i].base.next = next_of_file;
		loader_begin(&r->files[i].loader, runs[i]);
	}
	return rc;
}

static void
close_sources(struct runs *r)
{
	for (uint32_t i = 0; i < r->file_count; i++)
		loader_close(&r->files[i].loader);
	free(r->files);
	r->files = NULL;
	r->file_count = 0;
	if (r->charged)
		memory_give(r->t, MEMORY_READ, r->charged);
	r->charged = 0;
}

/* ---- merges before reading ---- */

/* A run that is written in several batches. */
struct output {
	struct runs *r;
	struct spilled *first, **end, like;
};

static int
flush(struct output *o)
{
	struct files *f = o->r->s->files;
	struct batch *b = files_batch(f, NULL);

	if (!b)
		return no_memory(1);
	b->data.iov_len = o->like.length ? o->like.length : 1; /* a write has bytes */
	*o->end = spilled_make(f, b, &o->like);
	if (!*o->end)
		return no_memory(1);
	o->end = &(*o->end)->next;
	shuffle_count(&o->r->t->n.spilled_bytes, o->like.length);
	shuffle_count(&o->r->t->n.merged_bytes, o->like.length);
	o->like = (struct spilled){0};
	/* the buffer is needed again */
	return files_settle(f, -1);
}

static int
output(struct output *o, const struct weir_record *r)
{
	struct files *f = o->r->s->files;
	uint32_t bytes = record_size(r->key_length, r->value_length);
	int rc;

	if (bytes > f->room)
		return weir_fail(-ENOBUFS,
				 "a record of %u bytes in a partition of many runs; raise `memory`",
				 bytes);
	if (o->like.length + bytes > f->room) {
		rc = flush(o);
		if (rc)
			return rc;
	}
	record_write(f->buffer + o->like.length, r);
	o->like.length += bytes;
	o->like.records++;
	o->like.longest = bytes > o->like.longest ? bytes : o->like.longest;
	return 0;
}

/* The first n runs become one, whose place is behind all others. Holds the lock of the files. */
static int
merge_first(struct runs *r, struct spilled **runs, uint32_t n, struct spilled **merged)
{
	struct key_order order = order_of(r->s);
	struct merge_source *list[MERGE_SOURCES_MAX];
	struct output o = {.r = r, .end = &o.first};
	struct weir_record record;
	struct merge *merge;
	int rc = files_settle(r->s->files, -1);

	if (!rc)
		rc = open_sources(r, runs, n, r->charged);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++)
		list[i] = &r->files[i].base;
	rc = merge_open(&order, list, n, &merge);
	if (rc)
		return rc;
	while (!(rc = merge_next(merge, &record, NULL)) && !(rc = output(&o, &record)))
		;
	merge_close(merge);
	if (rc == -ENODATA)
		rc = o.like.length || !o.first ? flush(&o) : 0;
	if (rc)
		spilled_free(r->s->files, o.first);
	else
		*merged = o.first;
	return rc;
}

/* How many of the first runs the memory suffices for, at least 2. */
static uint32_t
fan_in(const struct runs *r, struct spilled *const *runs, uint32_t count, uint64_t *memory)
{
	uint64_t most = r->s->memory.reserve[MEMORY_READ], size;
	uint32_t n = 0;

	*memory = 0;
	for (; n < count && n < MERGE_SOURCES_MAX; n++) {
		size = least_memory(r, runs[n]);
		if (n >= 2 && *memory + size > most)
			break;
		*memory += size;
	}
	*memory = *memory < most ? most : *memory; /* larger reads */
	return n;
}

static int
no_space(struct runs *r, int rc)
{
	char why[160];

	if (rc != -ENOSPC)
		return rc;
	snprintf(why, sizeof(why), "%s", weir_reason());
	return weir_fail(-ENOBUFS, "partition %u has too many runs to read them at once; %s",
			 r->partition, why);
}

/* Takes memory for the runs in files, of which there are few enough at the end. */
static int
shorten(struct runs *r, struct spilled **runs, uint32_t *count)
{
	struct part *part = r->part;
	struct files *f = r->s->files;
	struct spilled *merged;
	uint64_t memory;
	uint32_t n, kept;
	int rc;

	for (;;) {
		n = fan_in(r, runs, *count, &memory);
		rc = store_take(r->t, memory);
		if (rc)
			return rc;
		r->charged = memory;
		if (n == *count)
			return open_sources(r, runs, n, memory);
		/* no more than is needed */
		if (n > *count - n + 1)
			n = *count - n + 1 < 2 ? 2 : *count - n + 1;
		pthread_mutex_lock(&f->lock);
		rc = no_space(r, merge_first(r, runs, n, &merged));
		pthread_mutex_unlock(&f->lock);
		close_sources(r);
		if (rc)
			return rc;
		kept = 0;
		for (uint32_t i = 0; i < part->count; i++) {
			bool gone = false;

			for (uint32_t k = 0; k < n; k++)
				gone |= part->runs[i].spilled == runs[k];
			if (!part->runs[i].spilled || !gone)
				part->runs[kept++] = part->runs[i];
		}
		part->runs[kept++] = (struct run){.spilled = merged};
		part->count = kept;
		for (uint32_t k = 0; k < n; k++)
			spilled_free(f, runs[k]);
		*count -= n;
		memmove(runs, runs + n, *count * sizeof(struct spilled *));
		runs[(*count)++] = merged;
	}
}

/* ---- all of them ---- */

static int
check(const struct part *p)
{
	for (uint32_t i = 0; i < p->count; i++) {
		const struct run *run = &p->runs[i];

		if (run->b &&
		    (!(run->b->head.flags & BLOCK_SORTED) || run->flags & FRAGMENT_OPAQUE))
			return weir_fail(-EBADMSG, "map %u attempt %u: a block that is not sorted",
					 run->b->head.map, run->b->head.attempt);
		if (run->flags & FRAGMENT_OPAQUE)
			return weir_fail(-EBADMSG, "map %u attempt %u: a block that is not sorted",
					 run->spilled->map, run->spilled->attempt);
	}
	return 0;
}

/* A list of all sources: those in files, then those in memory. */
static int
collect(struct runs *r, uint32_t *count)
{
	struct part *p = r->part;
	uint32_t most = p->count, files = 0, n = 0;
	struct spilled **spilled;
	int rc = check(p);

	if (rc || !most)
		return rc;
	r->list = calloc(most, sizeof(struct merge_source *));
	r->sources = calloc(most, sizeof(*r->sources));
	spilled = calloc(most, sizeof(struct spilled *));
	if (!r->list || !r->sources || !spilled) {
		free(spilled);
		return no_memory(most);
	}
	for (uint32_t i = 0; i < p->count; i++)
		if (p->runs[i].spilled)
			spilled[files++] = p->runs[i].spilled;
	if (files)
		rc = shorten(r, spilled, &files);
	free(spilled);
	for (uint32_t i = 0; i < r->file_count && !rc; i++)
		r->list[(*count)++] = &r->files[i].base;
	for (uint32_t i = 0; i < p->count && !rc; i++) {
		if (!p->runs[i].b)
			continue;
		run_source_init(&r->sources[n], &p->runs[i]);
		r->list[(*count)++] = &r->sources[n++].base;
	}
	return rc;
}

/* Merges of at most MERGE_SOURCES_MAX runs each, and one of these; nothing is written between. */
static int
merge_all(struct runs *r, uint32_t count)
{
	struct key_order order = order_of(r->s);
	uint32_t groups = (count + MERGE_SOURCES_MAX - 1) / MERGE_SOURCES_MAX;
	struct merge_source *tops[MERGE_SOURCES_MAX];
	int rc;

	if (groups > MERGE_SOURCES_MAX)
		return weir_fail(-ENOMEM,
				 "%u runs in a part; read it in more parts, or push larger "
				 "blocks",
				 count);
	if (groups <= 1)
		return merge_open(&order, r->list, count, &r->merge);
	r->inner = calloc(groups, sizeof(*r->inner));
	if (!r->inner)
		return no_memory(count);
	for (uint32_t i = 0; i < groups; i++) {
		uint32_t first = i * MERGE_SOURCES_MAX, n = count - first;

		r->inner[i].base.next = next_of_inner;
		rc = merge_open(&order, r->list + first,
				n < MERGE_SOURCES_MAX ? n : MERGE_SOURCES_MAX, &r->inner[i].merge);
		if (rc)
			return rc;
		r->inner_count++;
		tops[i] = &r->inner[i].base;
	}
	return merge_open(&order, tops, groups, &r->merge);
}

int
runs_open(struct shuffle_thread *t, struct partition *p, uint32_t number, uint32_t part,
	  struct runs **runs)
{
	struct runs *r = calloc(1, sizeof(*r));
	uint32_t count = 0;
	int rc;

	if (!r)
		return weir_fail(-ENOMEM, "no memory to read a partition; free some");
	r->t = t;
	r->s = t->s;
	r->partition = number;
	r->part = store_pin(t->s, p, part);
	rc = collect(r, &count);
	if (!rc)
		rc = merge_all(r, count);
	if (rc)
		runs_close(r);
	else
		*runs = r;
	return rc;
}

void
runs_close(struct runs *r)
{
	if (!r)
		return;
	merge_close(r->merge);
	for (uint32_t i = 0; i < r->inner_count; i++)
		merge_close(r->inner[i].merge);
	close_sources(r);
	free(r->inner);
	free(r->list);
	free(r->sources);
	free(r);
}

int
runs_next(struct runs *r, struct weir_record *record, bool *same)
{
	return merge_next(r->merge, record, same);
}
