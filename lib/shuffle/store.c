/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch.h"
#include "format/block.h"
#include "store_inner.h"

#include "base/vec.h"

struct store *
store_make(struct weir_shuffle *s)
{
	struct store *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->maps = calloc(s->o.maps, sizeof(*st->maps));
	st->partitions = calloc(s->o.partitions, sizeof(struct partition *));
	pthread_mutex_init(&st->lock, NULL);
	for (uint32_t i = 0; st->maps && i < s->o.maps; i++)
		st->maps[i].winner = NONE;
	s->store = st;
	if (st->maps && st->partitions)
		return st;
	store_free(s);
	return NULL;
}

static void
run_free(struct weir_shuffle *s, struct run *run)
{
	if (run->b)
		held_unref(run->b);
	if (run->spilled)
		spilled_free(s->files, run->spilled);
}

static void
forget_blocks(struct weir_shuffle *s, struct attempt *a, bool drop)
{
	struct held *b;

	if (drop)
		atomic_fetch_add_explicit(&s->dropped, a->got.blocks, memory_order_relaxed);
	while ((b = STAILQ_FIRST(&a->blocks))) {
		STAILQ_REMOVE_HEAD(&a->blocks, next);
		held_unref(b);
	}
	for (uint32_t i = 0; i < a->spilled_count; i++)
		run_free(s, &a->spilled[i].run);
	a->spilled_count = 0;
}

static void
forget(struct weir_shuffle *s, struct attempt *a, bool drop)
{
	forget_blocks(s, a, drop);
	free(a->spilled);
	free(a);
}

static void
runs_free(struct weir_shuffle *s, struct run *runs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		run_free(s, &runs[i]);
	free(runs);
}

static void
partition_free(struct weir_shuffle *s, struct partition *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->part_count; i++)
		runs_free(s, p->parts[i].runs, p->parts[i].count);
	free(p->parts);
	free(p->lacks);
	free(p);
}

void
store_free(struct weir_shuffle *s)
{
	struct store *st = s->store;
	struct attempt *a;

	if (!st)
		return;
	for (uint32_t i = 0; st->maps && i < s->o.maps; i++)
		while ((a = st->maps[i].attempts)) {
			st->maps[i].attempts = a->next;
			forget(s, a, false);
		}
	for (uint32_t i = 0; st->partitions && i < s->o.partitions; i++)
		partition_free(s, st->partitions[i]);
	pthread_mutex_destroy(&st->lock);
	free(st->maps);
	free(st->partitions);
	free(st);
	s->store = NULL;
}

/* ---- attempts; the lock is held ---- */

/* That attempt of this producer, new if need be. NULL: another producer's, or no memory. */
static struct attempt *
attempt_of(struct weir_shuffle *s, uint32_t map, uint32_t number, uint64_t producer, uint32_t epoch)
{
	struct attempt **at = attempt_find(&s->store->maps[map], number), *a = *at;

	if (a)
		return a->producer == producer ? a : NULL;
	a = calloc(1, sizeof(*a) + s->own_threads * sizeof(*a->numbers));
	if (!a)
		return NULL;
	a->id = ++s->store->ids;
	a->number = number;
	a->producer = producer;
	a->epoch = epoch;
	STAILQ_INIT(&a->blocks);
	*at = a;
	return a;
}

static void
is_bad(struct weir_shuffle *s, uint32_t map, uint32_t attempt, uint64_t producer)
{
	struct store *st = s->store;

	if (st->bad.is)
		return;
	st->bad.is = true;
	st->bad.map = map;
	st->bad.attempt = attempt;
	st->bad.process = (uint32_t)(producer >> 32);
}

static struct partition *
partition_of(struct store *st, uint32_t number)
{
	struct partition *p = st->partitions[number];

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (p)
		p->parts = calloc(1, sizeof(*p->parts));
	if (!p || !p->parts) {
		free(p);
		return NULL;
	}
	p->part_count = 1;
	st->partitions[number] = p;
	return p;
}

/* A run for the partition's next part. 0, -ENOMEM, or -ENODATA: nobody reads that any more. */
static int
add_run(struct partition *p, const struct run *run)
{
	struct part *part = &p->parts[p->next % p->part_count];

	p->records += run->records;
	p->bytes += run->length;
	p->blocks++;
	p->next++;
	if (part->state == PART_OVER)
		return -ENODATA;
	if (VEC_RESERVE(part->runs, part->room, part->count + 1))
		return -ENOMEM;
	part->runs[part->count++] = *run;
	return 0;
}

static bool
lacks(const struct partition *p, uint32_t map)
{
	return p->lack_count && p->lacks[map / 64] >> map % 64 & 1;
}

/* The fragments of a block go to their partitions; `again`: to those that lack its map task. */
static int
publish_block(struct weir_shuffle *s, struct held *b, bool again)
{
	uint32_t own = thread_number(s, (struct weir_to){s->self, b->t->index});
	struct block_walk w;
	struct partition *p;
	int rc;

	block_walk_begin(&w, &b->head, b->raw);
	while (!(rc = block_walk_next(&w))) {
		if (w.fragment.partition >= s->o.partitions ||
		    owner_of(s, w.fragment.partition) != own)
			return -EBADMSG;
		p = partition_of(s->store, w.fragment.partition);
		if (p && again && !lacks(p, b->head.map))
			continue;
		rc = p ? add_run(p, &(struct run){.b = b,
						  .bytes = w.bytes,
						  .length = w.fragment.bytes,
						  .records = w.fragment.records,
						  .flags = w.fragment.flags})
		       : -ENOMEM;
		if (rc == -ENOMEM)
			return rc;
		if (!rc)
			held_ref(b);
	}
	return rc == -ENODATA ? 0 : rc;
}

/* Runs that went to files before. */
static int
publish_spilled(struct weir_shuffle *s, struct attempt *a, uint32_t map, bool again)
{
	while (a->spilled_count) {
		struct spilled_run *r = &a->spilled[a->spilled_count - 1];
		struct partition *p = partition_of(s->store, r->partition);
		int rc = -ENOMEM;

		if (p)
			rc = again && !lacks(p, map) ? -ENODATA : add_run(p, &r->run);
		if (rc == -ENOMEM)
			return rc;
		if (rc)
			run_free(s, &r->run);
		a->spilled_count--;
	}
	return 0;
}

static bool
is_complete(const struct attempt *a)
{
	return a->counted && !memcmp(&a->said, &a->got, sizeof(a->said));
}

/* Nobody lacks the task's records any more. */
static void
lack_no_more(struct weir_shuffle *s, uint32_t map)
{
	struct map_task *m = &s->store->maps[map];

	for (uint32_t i = 0; i < s->o.partitions && m->lacking; i++) {
		struct partition *p = s->store->partitions[i];

		if (!p || !lacks(p, map))
			continue;
		p->lacks[map / 64] &= ~(UINT64_C(1) << map % 64);
		p->lack_count--;
		m->lacking--;
	}
}

/* The attempts of epochs before that. */
static void
forget_before(struct weir_shuffle *s, struct map_task *m, uint64_t epoch)
{
	struct attempt *a, **at = &m->attempts;

	while ((a = *at)) {
		if (a->epoch >= epoch) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		forget(s, a, true);
	}
}

/* Whether an attempt of that epoch is of no use here any more. One that knows of a later epoch than
 * this process may be: its task may be missing again. */
static bool
is_late(const struct weir_shuffle *s, const struct map_task *m, uint32_t epoch)
{
	bool served = m->winner != NONE || (m->was && !m->lacking);

	return epoch < m->since || epoch < atomic_load_explicit(&s->moved, memory_order_relaxed) ||
	       (served && epoch <= atomic_load_explicit(&s->epoch, memory_order_relaxed));
}

/* All blocks of an attempt that was selected go to their partitions. */
static bool
publish(struct weir_shuffle *s, uint32_t map, struct attempt *a)
{
	bool again = s->store->maps[map].was;
	struct held *b;

	if (publish_spilled(s, a, map, again))
		return false;
	STAILQ_FOREACH(b, &a->blocks, next)
	if (publish_block(s, b, again))
		return false;
	return true;
}

/* The attempt has been selected: its blocks can be read, those of others go. */
static void
select_attempt(struct weir_shuffle *s, uint32_t map, uint32_t number, uint64_t producer)
{
	struct store *st = s->store;
	struct map_task *m = &st->maps[map];
	struct attempt *a, **at;
	bool good;

	if (m->winner != NONE)
		return;
	m->winner = number;
	if (!m->was || m->lacking) {
		at = attempt_find(m, number);
		a = *at;
		good = !owns_any(s, s->self) || (a && a->producer == producer && is_complete(a));
		if (a)
			*at = a->next;
		if (a && good)
			good = publish(s, map, a);
		if (a)
			forget(s, a, false);
		if (!good)
			is_bad(s, map, number, producer);
		lack_no_more(s, map);
		st->done += !m->was;
		m->was = true;
	}
	/* those that know more than this process: the task is missing again, it has yet to hear */
	forget_before(s, m, UINT64_C(1) + atomic_load_explicit(&s->epoch, memory_order_relaxed));
}

/* ---- other owners ---- */

/* A partition of which nothing has come. NULL: no memory. */
static struct partition *
partition_anew(struct weir_shuffle *s, uint32_t number)
{
	struct store *st = s->store;
	struct partition *p = partition_of(st, number);

	if (p)
		p->lacks = calloc((s->o.maps + 63) / 64, sizeof(*p->lacks));
	if (!p || !p->lacks)
		return NULL;
	for (uint32_t i = 0; i < s->o.maps; i++) {
		if (!st->maps[i].was)
			continue;
		p->lacks[i / 64] |= UINT64_C(1) << i % 64;
		p->lack_count++;
		st->maps[i].lacking++;
	}
	return p;
}

void
store_moved(struct weir_shuffle *s, uint32_t partition, struct weir_to to)
{
	uint32_t before = thread_of_number(s, owner_of(s, partition)).process;
	struct store *st = s->store;
	struct partition *p = NULL;
	bool good = true;

	pthread_mutex_lock(&st->lock);
	/* under the lock: whoever reads it as its owner sees what it lacks */
	atomic_store_explicit(&s->owners[partition], thread_number(s, to), memory_order_relaxed);
	if (before == s->self && to.process != before && (p = st->partitions[partition])) {
		for (uint32_t i = 0; i < s->o.maps && p->lack_count; i++)
			if (lacks(p, i)) {
				st->maps[i].lacking--;
				p->lack_count--;
			}
		st->partitions[partition] = NULL;
		p->gone = true;
		if (p->readers)
			p = NULL;
	}
	if (to.process == s->self && to.process != before)
		good = partition_anew(s, partition);
	pthread_mutex_unlock(&st->lock);
	partition_free(s, p);
	if (!good)
		shuffle_end(s, -ENOMEM, s->self);
}

void
store_again(struct weir_shuffle *s, uint32_t map, uint32_t epoch)
{
	struct map_task *m = &s->store->maps[map];

	pthread_mutex_lock(&s->store->lock);
	m->winner = NONE;
	m->since = epoch;
	forget_before(s, m, epoch);
	pthread_mutex_unlock(&s->store->lock);
}

/* ---- what comes ---- */

void
store_add(struct shuffle_thread *t, struct held *b, struct weir_incoming *c)
{
	struct weir_shuffle *s = t->s;
	struct store *st = s->store;
	struct map_task *m = &st->maps[b->head.map];
	struct attempt *a = NULL;
	bool late;

	pthread_mutex_lock(&st->lock);
	late = is_late(s, m, b->head.epoch);
	if (!late)
		a = attempt_of(s, b->head.map, b->head.attempt, b->head.producer, b->head.epoch);
	late = late || (a && a->dropped);
	/* in order, so that no block is there twice */
	if (a && !late && !a->counted && b->head.number == a->numbers[t->index]) {
		a->numbers[t->index]++;
		a->got.blocks++;
		a->got.records += b->head.records;
		a->got.sum += b->head.checksum;
		STAILQ_INSERT_TAIL(&a->blocks, b, next);
		b = NULL;
	}
	pthread_mutex_unlock(&st->lock);
	if (!b)
		return;
	if (!late) {
		shuffle_count(&t->n.malformed, 1);
		weir_incoming_refuse(c, EBADMSG);
	}
	held_drop(t, b);
}

void
store_say(struct shuffle_thread *t, const struct say_args *word)
{
	struct weir_shuffle *s = t->s;
	struct store *st = s->store;
	struct map_task *m = &st->maps[word->map];
	struct attempt *a = NULL;
	bool bad = word->attempt >= WEIR_SHUFFLE_ATTEMPTS_MAX, late = false;

	pthread_mutex_lock(&st->lock);
	if (!bad && word->kind != SAY_WON) {
		late = is_late(s, m, word->epoch);
		a = late ? *attempt_find(m, word->attempt)
			 : attempt_of(s, word->map, word->attempt, word->producer, word->epoch);
		bad = !late && (!a || a->dropped || (a->counted && word->kind == SAY_COUNTS));
	}
	if (!bad && word->kind == SAY_COUNTS && !late) {
		a->said = (struct sums){word->blocks, word->records, word->sum};
		a->counted = true;
	} else if (!bad && word->kind == SAY_DROP && a && a->producer == word->producer) {
		forget_blocks(s, a, true);
		a->dropped = true;
	} else if (!bad && word->kind == SAY_WON) {
		select_attempt(s, word->map, word->attempt, word->producer);
	}
	pthread_mutex_unlock(&st->lock);
	if (bad)
		shuffle_count(&t->n.malformed, 1);
	if (word->kind == SAY_WON)
		shuffle_wake(s, false);
}

void
store_lost(struct weir_shuffle *s, uint32_t process)
{
	struct store *st = s->store;
	struct attempt *a, **at;

	pthread_mutex_lock(&st->lock);
	for (uint32_t i = 0; i < s->o.maps; i++)
		for (at = &st->maps[i].attempts; (a = *at);) {
			/* one that has all blocks here may still be selected */
			if (a->producer >> 32 != process || a->counted) {
				at = &a->next;
				continue;
			}
			*at = a->next;
			forget(s, a, true);
		}
	pthread_mutex_unlock(&st->lock);
}

int
store_missing(struct weir_shuffle *s, uint32_t *list, unsigned n)
{
	struct store *st = s->store;
	unsigned found = 0;

	pthread_mutex_lock(&st->lock);
	for (uint32_t i = 0; i < s->o.maps; i++) {
		if (st->maps[i].winner != NONE)
			continue;
		if (found < n)
			list[found] = i;
		found++;
	}
	pthread_mutex_unlock(&st->lock);
	return (int)found;
}

void
store_info(struct weir_shuffle *s, uint32_t partition, struct weir_partition_info *info)
{
	const struct partition *p;

	pthread_mutex_lock(&s->store->lock);
	p = s->store->partitions[partition];
	if (p)
		*info = (struct weir_partition_info){
		    .records = p->records, .bytes = p->bytes, .blocks = p->blocks};
	pthread_mutex_unlock(&s->store->lock);
}

/* ---- reading ---- */

/* The runs so far go to their parts. */
static int
divide(struct partition *p, uint32_t count)
{
	struct part whole = p->parts[0], *parts = calloc(count, sizeof(*parts));
	uint32_t blocks = 0;

	if (!parts)
		return -ENOMEM;
	for (uint32_t i = 0; i < whole.count; i++) {
		struct part *to = &parts[blocks % count];

		if (VEC_RESERVE(to->runs, to->room, to->count + 1)) {
			for (uint32_t k = 0; k < count; k++)
				free(parts[k].runs);
			free(parts);
			return -ENOMEM;
		}
		to->runs[to->count++] = whole.runs[i];
		blocks++;
	}
	free(whole.runs);
	free(p->parts);
	p->parts = parts;
	p->part_count = count;
	p->next = blocks;
	p->divided = true;
	return 0;
}

static int
begin(struct partition *p, uint32_t part, uint32_t parts)
{
	if (!p || (!p->divided && divide(p, parts)))
		return weir_fail(-ENOMEM, "no memory for %u parts of a partition; free some",
				 parts);
	if (p->part_count != parts)
		return weir_fail(-EINVAL, "%u parts; another reader has given %u", parts,
				 p->part_count);
	if (p->parts[part].state == PART_READ)
		return weir_fail(-EBUSY, "part %u is being read; end that first", part);
	if (p->parts[part].state == PART_OVER)
		return weir_fail(-ENODATA, "part %u was read to its end", part);
	p->parts[part].state = PART_READ;
	p->readers++;
	return 0;
}

int
store_begin(struct weir_shuffle *s, uint32_t number, uint32_t part, uint32_t parts,
	    struct partition **p)
{
	struct weir_to owner;
	int rc;

	pthread_mutex_lock(&s->store->lock);
	/* under the lock: it does not move meanwhile */
	owner = thread_of_number(s, owner_of(s, number));
	if (owner.process == s->self) {
		*p = partition_of(s->store, number);
		rc = begin(*p, part, parts);
	} else {
		rc =
		    weir_fail(-ENOTCONN, "partition %u is thread %u's of process %u; read it there",
			      number, owner.thread, owner.process);
	}
	pthread_mutex_unlock(&s->store->lock);
	return rc;
}

void
store_end(struct weir_shuffle *s, struct partition *partition, uint32_t part, bool ok)
{
	struct part *p = &partition->parts[part], over = {0};
	bool last;

	pthread_mutex_lock(&s->store->lock);
	p->pinned = false;
	p->state = ok ? PART_OVER : PART_FREE;
	if (ok) {
		over = *p;
		p->runs = NULL;
		p->count = p->room = 0;
	}
	partition->readers--;
	last = partition->gone && !partition->readers;
	pthread_mutex_unlock(&s->store->lock);
	/* freeing space in a file takes time */
	runs_free(s, over.runs, over.count);
	if (last)
		partition_free(s, partition);
}

struct part *
store_pin(struct weir_shuffle *s, struct partition *p, uint32_t part)
{
	pthread_mutex_lock(&s->store->lock);
	p->parts[part].pinned = true;
	pthread_mutex_unlock(&s->store->lock);
	return &p->parts[part];
}

int
store_run(struct weir_shuffle *s, const struct partition *partition, uint32_t part, uint32_t *at,
	  struct run *run)
{
	struct store *st = s->store;
	const struct part *p = &partition->parts[part];
	int rc;

	pthread_mutex_lock(&st->lock);
	if (partition->gone) {
		rc = weir_fail(-ENOTCONN, "the partition was moved to another process; forget what "
					  "was read of it");
	} else if (st->bad.is) {
		rc = weir_fail(-EBADMSG,
			       "map %u attempt %u of process %u: its blocks differ from those that "
			       "were pushed",
			       st->bad.map, st->bad.attempt, st->bad.process);
	} else if (*at < p->count) {
		*run = p->runs[(*at)++];
		if (run->b) /* its memory may go to a file meanwhile */
			held_ref(run->b);
		rc = 0;
	} else {
		rc = st->done == s->o.maps && !partition->lack_count ? -ENODATA : -EAGAIN;
	}
	pthread_mutex_unlock(&st->lock);
	return rc;
}
