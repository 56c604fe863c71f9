/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing, and how a shuffle ends. */
#include "batch.h"
#include "format/block.h"
#include "store.h"

#include "base/monotonic.h"

#include <stdio.h>
#include <sys/random.h>

#define BLOCK_DEFAULT 65536u
#define BLOCK_HEADS 128u /* bytes: of the block, a fragment and a record */
#define DELAY_US 1000u
#define VERSION 1u
#define GONE_MS 1000 /* to tell one process that this one has closed */

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, weir_shuffle) list;
	uint32_t next; /* number that no shuffle of this process has had */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The part that the calling thread looked for last. */
static __thread struct {
	uint64_t ends; /* shuffles that had ended then */
	const struct weir_invoker *v;
	uint32_t number;
	struct shuffle_thread *t;
} latest;
static _Atomic uint64_t ends;

/* ---- who calls ---- */

struct weir_to
thread_of_number(const struct weir_shuffle *s, uint32_t number)
{
	uint32_t low = 0, high = s->processes;

	/* processes without threads have the number of the next one */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (s->first[middle] <= number)
			low = middle;
		else
			high = middle;
	}
	return (struct weir_to){low, number - s->first[low]};
}

static struct shuffle_thread *
own_part(struct weir_shuffle *s)
{
	struct weir_to self;

	if (weir_invoker_self(s->v, &self))
		return NULL;
	return atomic_load_explicit(&s->threads[self.thread], memory_order_relaxed);
}

struct shuffle_thread *
shuffle_own(struct weir_shuffle *s)
{
	struct shuffle_thread *t = own_part(s);

	if (!t)
		weir_fail(-EPERM, "the thread has not opened the shuffle, or has closed it");
	return t;
}

struct shuffle_thread *
shuffle_called(const struct weir_incoming *c, uint32_t number)
{
	struct weir_invoker *v = weir_incoming_invoker(c);
	/* pairs with the addition in close_last() */
	uint64_t now = atomic_load_explicit(&ends, memory_order_acquire);
	struct shuffle_thread *t;
	struct weir_shuffle *s;

	if (latest.v == v && latest.number == number && latest.ends == now)
		return latest.t;
	pthread_mutex_lock(&all.lock);
	LIST_FOREACH(s, &all.list, in_all)
	if (s->v == v && s->number == number)
		break;
	/* under the lock: without a part of this thread in it, s may go at any time */
	t = s ? own_part(s) : NULL;
	pthread_mutex_unlock(&all.lock);
	if (!t)
		return NULL;
	latest.v = v;
	latest.number = number;
	latest.ends = now;
	latest.t = t;
	return t;
}

/* ---- the end ---- */

void
shuffle_end(struct weir_shuffle *s, int why, uint32_t process)
{
	int none = 0;

	/* pairs with the acquire in shuffle_state() */
	if (!atomic_load_explicit(&s->over, memory_order_relaxed)) {
		atomic_store_explicit(&s->culprit, process, memory_order_relaxed);
		atomic_compare_exchange_strong_explicit(&s->over, &none, why, memory_order_release,
							memory_order_relaxed);
	}
}

/* A process was lost. A STAGE goes on without one that owns nothing. */
static void
process_lost(struct weir_shuffle *s, uint32_t process)
{
	if (s->o.kind == WEIR_SHUFFLE_STREAM || !process) {
		shuffle_end(s, -EHOSTDOWN, process);
		return;
	}
	if (atomic_exchange_explicit(&s->lost[process], true, memory_order_relaxed))
		return;
	store_lost(s, process);
}

int
shuffle_state(struct weir_shuffle *s)
{
	uint32_t process;
	int over;

	for (uint32_t p = 0; p < s->processes; p++)
		if (p != s->self && weir_invoker_status(s->v, p))
			process_lost(s, p);
	over = atomic_load_explicit(&s->over, memory_order_acquire);
	process = atomic_load_explicit(&s->culprit, memory_order_relaxed);
	switch (over) {
	case 0:
		return 0;
	case -EHOSTDOWN:
		return weir_fail(over, "process %u was lost, and the shuffle with it", process);
	case -ECANCELED:
		return weir_fail(over, "process %u has closed the shuffle", process);
	case -EBADMSG:
		return weir_fail(over, "records of process %u differ from those that it has pushed",
				 process);
	default:
		return weir_fail(over, "no memory for records that have arrived; the shuffle has "
				       "ended");
	}
}

int
shuffle_failed(struct weir_shuffle *s, int rc, uint32_t process)
{
	switch (rc) {
	case -EHOSTUNREACH:
		if (s->o.kind == WEIR_SHUFFLE_STREAM)
			shuffle_end(s, -EHOSTDOWN, process);
		return weir_fail(-EHOSTDOWN, "process %u was lost", process);
	case -ECONNREFUSED:
		return weir_fail(-ECANCELED, "a thread of process %u has left; its shuffle is over",
				 process);
	default:
		return rc;
	}
}

void
shuffle_gone(struct shuffle_thread *t, uint32_t process)
{
	struct weir_shuffle *s = t->s;

	if (s->o.kind == WEIR_SHUFFLE_STREAM || !process)
		shuffle_end(s, -ECANCELED, process);
	else
		process_lost(s, process);
	shuffle_wake(s, true);
}

/* ---- options ---- */

static int
check_size(const struct weir_shuffle_options *o)
{
	if (!o || o->size == sizeof(*o))
		return 0;
	return weir_fail(-EINVAL,
			 "options of %zu bytes (expected %zu); begin with "
			 "WEIR_SHUFFLE_OPTIONS_INIT",
			 o->size, sizeof(*o));
}

static int
no_memory(void)
{
	return weir_fail(-ENOMEM, "no memory for a shuffle; free some");
}

static int
check_numbers(const struct weir_shuffle_options *o)
{
	bool stream = o->kind == WEIR_SHUFFLE_STREAM;
	uint32_t flags = stream ? WEIR_SHUFFLE_PROMPT : WEIR_SHUFFLE_SORTED | WEIR_SHUFFLE_GROUPED;

	if (o->kind > WEIR_SHUFFLE_STAGE || o->flags & ~flags)
		return weir_fail(-EINVAL,
				 "kind %u with flags 0x%x; see enum weir_shuffle_kind and "
				 "WEIR_SHUFFLE_*",
				 o->kind, o->flags);
	if (o->partitions > WEIR_PARTITIONS_MAX)
		return weir_fail(-EINVAL, "%u partitions (expected at most %u)", o->partitions,
				 WEIR_PARTITIONS_MAX);
	if (o->maps > WEIR_SHUFFLE_MAPS_MAX || (!stream && !o->maps))
		return weir_fail(-EINVAL, "%u maps (expected %s to %u)", o->maps,
				 stream ? "0" : "1", WEIR_SHUFFLE_MAPS_MAX);
	if (o->block && (o->block < WEIR_SHUFFLE_BLOCK_MIN || o->block > WEIR_SHUFFLE_BLOCK_MAX ||
			 o->block % 64))
		return weir_fail(-EINVAL,
				 "blocks of %u bytes (expected a multiple of 64 within "
				 "%u to %u)",
				 o->block, WEIR_SHUFFLE_BLOCK_MIN, WEIR_SHUFFLE_BLOCK_MAX);
	if (o->combine && stream)
		return weir_fail(-EINVAL, "a combiner of a STREAM; a STAGE has one");
	if (o->spill && stream)
		return weir_fail(-ENOTSUP, "directories of a STREAM; a STAGE spills");
	return codec_check(o->codec, o->level);
}

/* The bytes of a block, and the shared part of the memory. */
static int
divide_memory(struct weir_shuffle *s)
{
	struct weir_shuffle_options *o = &s->o;
	uint64_t threads = s->own_threads, least, files = 0;

	if (!o->block) {
		o->block = BLOCK_DEFAULT;
		while (o->block > WEIR_SHUFFLE_BLOCK_MIN && o->memory < 16 * threads * o->block)
			o->block /= 2;
	}
	/* a record of as many bytes fits, and the block is one piece on its way */
	if (o->block < WEIR_SHUFFLE_BLOCK_MAX)
		o->block = memory_round(o->block + BLOCK_HEADS);
	s->memory.reserve[MEMORY_TX] = o->block;
	/* a turn takes one message of a thread of the process, and one of a peer */
	s->memory.reserve[MEMORY_RX] = 2 * (uint64_t)o->block + MEMORY_CHUNK;
	/* and as much may come while a thread waits for room for a call */
	least = threads * (s->memory.reserve[MEMORY_TX] + 2 * s->memory.reserve[MEMORY_RX]);
	s->memory.lent_max = MEMORY_LENT / threads;
	if (is_sorted(s))
		least += threads * (2 * (uint64_t)o->block + sort_memory(sorted_records_max(s)));
	if (o->spill && files_make(s, &files))
		return no_memory();
	least += files;
	if (o->memory < least + o->block)
		return weir_fail(-ENOMEM,
				 "memory of %llu bytes; %llu threads take at least %llu with "
				 "blocks of %u",
				 (unsigned long long)o->memory, (unsigned long long)threads,
				 (unsigned long long)(least + o->block), o->block);
	s->memory.shared = o->memory - least;
	return memory_open(s) ? no_memory() : 0;
}

/* ---- opening ---- */

/* Values that all threads give, so that its maximum over them shows whether they agree. */
struct agreement {
	uint64_t number, word, failed; /* failed: errno */
	uint64_t kind, flags, partitions, maps, block, version;
	uint64_t inverse[6];
};

static int
agree(struct weir_invoker *v, const struct weir_shuffle_options *o, int failed, struct agreement *a)
{
	static const char *const names[] = {"kind", "flags", "partitions",
					    "maps", "block", "the library's version"};
	uint64_t *values = &a->kind;
	struct agreement mine = {.failed = (uint64_t)-failed,
				 .kind = o->kind,
				 .flags = o->flags,
				 .partitions = o->partitions,
				 .maps = o->maps,
				 .block = o->block,
				 .version = VERSION};
	int rc;

	if (getrandom(&mine.word, sizeof(mine.word), 0) != (ssize_t)sizeof(mine.word))
		mine.word = monotonic_ns();
	pthread_mutex_lock(&all.lock);
	mine.number = all.next;
	pthread_mutex_unlock(&all.lock);
	for (uint32_t i = 0; i < 6; i++)
		mine.inverse[i] = ~(&mine.kind)[i];
	rc = weir_invoker_reduce(v, &mine, a, sizeof(*a) / sizeof(uint64_t), WEIR_T_UINT64,
				 WEIR_ACC_MAX, -1);
	if (!rc && a->failed && !failed)
		rc = weir_fail(-EINVAL, "another thread gave options that it cannot give: %s",
			       strerror((int)a->failed));
	for (uint32_t i = 0; i < 6 && !rc && !failed; i++)
		if (values[i] != ~a->inverse[i])
			rc =
			    weir_fail(-EINVAL, "threads differ in %s; all give the same", names[i]);
	return rc;
}

static void
shuffle_free(struct weir_shuffle *s)
{
	store_free(s);
	files_free(s);
	commits_free(s);
	for (uint32_t i = 0; s->threads && i < s->own_threads; i++) {
		struct shuffle_thread *t = s->gone[i];

		if (!t)
			continue;
		codec_free(&t->codec);
		emit_free(&t->combined);
		free(t->sorted);
		free(t->scratch);
		free(t);
	}
	pthread_mutex_destroy(&s->local_lock);
	memory_close(s);
	pthread_mutex_destroy(&s->memory.lock);
	free((void *)s->threads);
	free(s->gone);
	free((void *)s->lost);
	free((void *)s->owned);
	free(s->first);
	free((void *)s->owners);
	free(s);
}

/* Each partition gets its owner. */
static int
assign(struct weir_shuffle *s)
{
	for (uint32_t i = 0; i < s->o.partitions; i++) {
		struct weir_to to;

		to = s->o.owner ? s->o.owner(i, s->o.user)
				: thread_of_number(s, i % s->thread_count);
		if (to.process >= s->processes ||
		    to.thread >= weir_invoker_threads(s->v, to.process))
			return weir_fail(-EINVAL,
					 "owner of partition %u: no thread %u of process "
					 "%u",
					 i, to.thread, to.process);
		s->owners[i] = thread_number(s, to);
		s->owned[to.process]++;
	}
	return 0;
}

static int
fill(struct weir_shuffle *s, struct weir_to self)
{
	int records = weir_invoker_function(s->v, "weir.shuffle.records", 1),
	    block = weir_invoker_function(s->v, "weir.shuffle.block", 1),
	    word = weir_invoker_function(s->v, "weir.shuffle.say", 1), rc;

	if (records < 0 || block < 0 || word < 0)
		return weir_fail(-ENOSYS, "the invoker's functions lack WEIR_SHUFFLE_FUNCTIONS; "
					  "add them to its table");
	s->function_records = (uint32_t)records;
	s->function_block = (uint32_t)block;
	s->function_say = (uint32_t)word;
	s->self = self.process;
	s->processes = weir_invoker_processes(s->v);
	s->own_threads = weir_invoker_threads(s->v, s->self);
	s->first = calloc(s->processes + 1, sizeof(*s->first));
	s->lost = calloc(s->processes, sizeof(*s->lost));
	s->owned = calloc(s->processes, sizeof(*s->owned));
	s->threads = calloc(s->own_threads, sizeof(*s->threads));
	s->gone = calloc(s->own_threads, sizeof(struct shuffle_thread *));
	if (!s->first || !s->lost || !s->owned || !s->threads || !s->gone)
		return no_memory();
	for (uint32_t p = 0; p < s->processes; p++)
		s->first[p + 1] = s->first[p] + weir_invoker_threads(s->v, p);
	s->thread_count = s->first[s->processes];
	if (!s->o.partitions)
		s->o.partitions = s->thread_count;
	s->once = s->o.kind == WEIR_SHUFFLE_STREAM && !s->o.maps;
	if (s->once)
		s->o.maps = s->thread_count;
	if (!s->o.delay_us)
		s->o.delay_us = DELAY_US;
	s->owners = calloc(s->o.partitions, sizeof(*s->owners));
	if (!s->owners)
		return no_memory();
	rc = divide_memory(s);
	if (!rc)
		rc = assign(s);
	if (!rc && s->o.kind == WEIR_SHUFFLE_STAGE && (!store_make(s) || !commits_make(s)))
		rc = no_memory();
	return rc || !s->files ? rc : files_open(s);
}

/* The part of the calling thread, of an object that the first thread of the process makes. */
static int
attach(struct weir_invoker *v, const struct weir_shuffle_options *o, const struct agreement *a,
       struct weir_shuffle **shuffle)
{
	struct shuffle_thread *t = NULL;
	struct weir_shuffle *s;
	struct weir_to self;
	int rc = weir_invoker_self(v, &self);

	if (rc)
		return rc;
	pthread_mutex_lock(&all.lock);
	if (all.next <= a->number)
		all.next = (uint32_t)a->number + 1;
	LIST_FOREACH(s, &all.list, in_all)
	if (s->v == v && s->number == (uint32_t)a->number)
		break;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s) {
			pthread_mutex_unlock(&all.lock);
			return no_memory();
		}
		s->v = v;
		s->o = *o;
		s->number = (uint32_t)a->number;
		s->word = a->word;
		pthread_mutex_init(&s->local_lock, NULL);
		pthread_mutex_init(&s->memory.lock, NULL);
		rc = fill(s, self);
		if (rc) {
			shuffle_free(s);
			s = NULL;
		} else {
			LIST_INSERT_HEAD(&all.list, s, in_all);
		}
	}
	if (s)
		t = calloc(1, sizeof(*t));
	if (t && s->o.kind == WEIR_SHUFFLE_STREAM) {
		t->queue = queue_make(s);
		if (!t->queue) {
			free(t);
			t = NULL;
		}
	}
	if (s && !t)
		rc = no_memory();
	if (t) {
		t->s = s;
		t->index = self.thread;
		LIST_INIT(&t->maps);
		atomic_fetch_add_explicit(&s->users, 1, memory_order_relaxed);
		s->gone[t->index] = t;
		/* pairs with the acquire of threads of the process that wake this one */
		atomic_store_explicit(&s->threads[t->index], t, memory_order_release);
		*shuffle = s;
	}
	pthread_mutex_unlock(&all.lock);
	return rc;
}

int
weir_shuffle_open(struct weir_invoker *v, const struct weir_shuffle_options *options,
		  struct weir_shuffle **shuffle)
{
	struct weir_shuffle_options o = WEIR_SHUFFLE_OPTIONS_INIT;
	struct agreement a;
	uint64_t most;
	char why[256];
	int rc, failed;

	*shuffle = NULL;
	/* the others wait for this thread, too, if its options are no good */
	failed = check_size(options);
	if (options && !failed)
		o = *options;
	if (!failed)
		failed = check_numbers(&o);
	snprintf(why, sizeof(why), "%s", failed ? weir_reason() : "");
	rc = agree(v, &o, failed, &a);
	if (failed)
		return weir_fail(failed, "%s", why);
	if (rc)
		return rc;
	rc = attach(v, &o, &a, shuffle);
	snprintf(why, sizeof(why), "%s", rc ? weir_reason() : "");
	most = (uint64_t)-rc;
	/* nobody sends before all are there */
	if (weir_invoker_reduce(v, &most, &most, 1, WEIR_T_UINT64, WEIR_ACC_MAX, -1) && !rc) {
		rc = -EHOSTDOWN;
		snprintf(why, sizeof(why), "%.200s", weir_reason());
	}
	if (!rc && most) {
		rc = -(int)most;
		snprintf(why, sizeof(why), "another thread could not open it: %s", strerror(-rc));
	}
	if (!rc) {
		atomic_store_explicit(&(*shuffle)->opened, true, memory_order_relaxed);
		return 0;
	}
	weir_shuffle_close(*shuffle);
	*shuffle = NULL;
	return weir_fail(rc, "%s", why);
}

/* ---- closing ---- */

/* Whether others still need this process. */
static bool
is_complete(struct weir_shuffle *s)
{
	if (!atomic_load_explicit(&s->opened, memory_order_relaxed))
		return true;
	if (s->o.kind == WEIR_SHUFFLE_STAGE)
		return !store_missing(s, NULL, 0);
	return atomic_load_explicit(&s->complete, memory_order_relaxed) == s->own_threads;
}

static void
close_last(struct weir_shuffle *s)
{
	struct say_args a = {.kind = SAY_GONE};
	struct weir_call_options o = {.timeout_ms = GONE_MS};

	for (uint32_t p = 0; !is_complete(s) && p < s->processes; p++)
		if (p != s->self && weir_invoker_threads(s->v, p))
			say(s, (struct weir_to){p, 0}, &a, &o);
	weir_invoker_flush(s->v);
	pthread_mutex_lock(&all.lock);
	LIST_REMOVE(s, in_all);
	pthread_mutex_unlock(&all.lock);
	/* pairs with the acquire in shuffle_called() */
	atomic_fetch_add_explicit(&ends, 1, memory_order_release);
	if (!atomic_load_explicit(&s->stays, memory_order_relaxed))
		shuffle_free(s);
}

void
weir_shuffle_close(struct weir_shuffle *s)
{
	struct shuffle_thread *t = s ? own_part(s) : NULL;

	if (!t)
		return;
	if (s->o.kind == WEIR_SHUFFLE_STREAM)
		atomic_fetch_add_explicit(&s->complete, queue_is_complete(t), memory_order_relaxed);
	queue_close(t);
	/* what comes now finds nobody */
	atomic_store_explicit(&s->threads[t->index], NULL, memory_order_relaxed);
	latest.v = NULL;
	weir_invoker_flush(s->v);
	/* the last one sees what the others did */
	if (atomic_fetch_sub_explicit(&s->users, 1, memory_order_acq_rel) == 1)
		close_last(s);
}

/* ---- inspection ---- */

uint32_t
weir_shuffle_partitions(const struct weir_shuffle *s)
{
	return s->o.partitions;
}

struct weir_to
weir_shuffle_owner(const struct weir_shuffle *s, uint32_t partition)
{
	return thread_of_number(s, owner_of(s, partition < s->o.partitions ? partition : 0));
}

int
weir_shuffle_missing(struct weir_shuffle *s, uint32_t *list, unsigned n)
{
	if (s->o.kind != WEIR_SHUFFLE_STAGE)
		return weir_fail(-EINVAL, "a STREAM has no map tasks");
	return store_missing(s, list, n);
}

int
weir_shuffle_partition(struct weir_shuffle *s, uint32_t partition, struct weir_partition_info *info)
{
	memset(info, 0, sizeof(*info));
	if (s->o.kind != WEIR_SHUFFLE_STAGE || partition >= s->o.partitions)
		return weir_fail(-EINVAL, "partition %u of %u of a STAGE", partition,
				 s->o.partitions);
	if (weir_shuffle_owner(s, partition).process != s->self)
		return weir_fail(-ENOTCONN, "partition %u is of another process", partition);
	store_info(s, partition, info);
	return 0;
}

int
weir_shuffle_stats(const struct weir_shuffle *s, struct weir_shuffle_stats *stats)
{
	const struct account *a = &s->memory;

	if (stats->size != sizeof(*stats))
		return weir_fail(-EINVAL,
				 "statistics of %zu bytes (expected %zu); begin with "
				 "WEIR_SHUFFLE_STATS_INIT",
				 stats->size, sizeof(*stats));
	*stats = (struct weir_shuffle_stats)WEIR_SHUFFLE_STATS_INIT;
	for (uint32_t i = 0; i < s->own_threads; i++) {
		/* also of threads that have closed it */
		const struct shuffle_thread *t = s->gone[i];

		if (!t)
			continue;
#define SHUFFLE_ADD(name, help)                                                                    \
	stats->name += atomic_load_explicit(&t->n.name, memory_order_relaxed);
		WEIR_SHUFFLE_COUNTERS(SHUFFLE_ADD)
#undef SHUFFLE_ADD
	}
	stats->dropped += atomic_load_explicit(&s->dropped, memory_order_relaxed);
	stats->memory = atomic_load_explicit(&a->used, memory_order_relaxed);
	stats->memory_peak = atomic_load_explicit(&a->peak, memory_order_relaxed);
	return 0;
}
