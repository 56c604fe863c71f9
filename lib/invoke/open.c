/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening and closing invokers. The members of the group tell each other where they listen, how
 * many threads they have, and a hash of their functions; then the tables that differ. A word of
 * rank 0 goes with each HELLO, so that no process outside the group makes calls.
 */
#include "invoker.h"

#include "client/reason.h"
#include "client/session.h"
#include "client/sized.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define INVOKE_VERSION 1u /* of the messages */
#define ALIGNED 64u

static _Atomic uint64_t serials = 1;

/* ---- fork ---- */

/* A child has none of the memory that lines pack in, and no session: all of its calls fail. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, weir_invoker) all;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
before_fork(void)
{
	pthread_mutex_lock(&all_lock);
}

static void
in_parent(void)
{
	pthread_mutex_unlock(&all_lock);
}

static void
in_child(void)
{
	struct weir_invoker *v;

	LIST_FOREACH(v, &all, in_all)
	for (uint32_t i = 0; i < v->o.threads; i++)
		lines_close_fast_path(&v->threads[i]);
	in_parent();
}

static void
install(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

static void
note(struct weir_invoker *v)
{
	pthread_once(&once, install);
	pthread_mutex_lock(&all_lock);
	LIST_INSERT_HEAD(&all, v, in_all);
	pthread_mutex_unlock(&all_lock);
}

static void
unnote(struct weir_invoker *v)
{
	pthread_mutex_lock(&all_lock);
	LIST_REMOVE(v, in_all);
	pthread_mutex_unlock(&all_lock);
}

/* ---- opening ---- */

/* A member tells it to the others. */
struct card {
	uint64_t word;	    /* random: rank 0's is the invoker's, and all are in names */
	uint64_t functions; /* hash of the table */
	uint32_t version;
	uint32_t function_count, threads, pool_threads;
};

struct hello {
	uint64_t word;
	uint32_t version;
	uint32_t zero;
};

/* ---- options ---- */

int
batching_check(const struct weir_batching *b)
{
	if (b->mode > WEIR_BATCH_OVERFLOW)
		return weir_fail(-EINVAL, "invalid mode %u; see enum weir_batch_mode", b->mode);
	if (b->bytes < 64 || b->bytes > WEIR_BATCH_MAX)
		return weir_fail(-EINVAL, "invalid batch of %u bytes (expected 64 to %u)", b->bytes,
				 WEIR_BATCH_MAX);
	return 0;
}

static int
check(const struct weir_invoker_options *o)
{
	if (o->layout != WEIR_INVOKE_LAYOUT)
		return weir_fail(-EINVAL,
				 "the program was compiled for layout %u of lines, this is %u; "
				 "compile it again",
				 o->layout, WEIR_INVOKE_LAYOUT);
	if (o->function_count > WEIR_FUNCTIONS_MAX || (o->function_count && !o->functions))
		return weir_fail(-EINVAL, "%u functions; give a table of at most %u",
				 o->function_count, WEIR_FUNCTIONS_MAX);
	if (o->threads > WEIR_INVOKE_THREADS_MAX || o->pool_threads > WEIR_INVOKE_POOL_MAX)
		return weir_fail(-EINVAL, "%u threads and a pool of %u; give at most %u and %u",
				 o->threads, o->pool_threads, WEIR_INVOKE_THREADS_MAX,
				 WEIR_INVOKE_POOL_MAX);
	if (o->arity < 2 || o->arity > WEIR_ARITY_MAX || o->reserved)
		return weir_fail(-EINVAL,
				 "invalid arity %u (expected 2 to %u), or reserved is not 0",
				 o->arity, WEIR_ARITY_MAX);
	if (o->queue_bytes < WEIR_BATCH_MAX)
		return weir_fail(-EINVAL, "queue_bytes is %llu (expected at least %u)",
				 (unsigned long long)o->queue_bytes, WEIR_BATCH_MAX);
	return batching_check(&o->batching);
}

/* ---- callbacks of the messenger ---- */

static bool
greeted(uint16_t process, uint32_t receiver, const void *data, size_t length, void *user)
{
	const struct weir_invoker *v = user;
	struct hello its = {0};

	(void)process;
	if (length != sizeof(its) || (receiver != MESSAGE_HANDLERS && receiver >= v->o.threads))
		return false;
	memcpy(&its, data, sizeof(its));
	return its.word == v->word && its.version == INVOKE_VERSION && !its.zero;
}

/* Invokers do not reply. */
static bool
replied(struct message_lane *lane, const struct message_taken *taken, void *user)
{
	(void)lane;
	(void)taken;
	(void)user;
	return false;
}

/* The line's thread acts on it in its next turn. */
static void
lane_ended(struct message_lane *lane, int status, void *user)
{
	struct line *l = message_lane_user(lane);

	(void)user;
	if (!l || !status) /* all that was sent has been taken */
		return;
	atomic_store_explicit(&l->ended, status, memory_order_relaxed);
	/* pairs with the acquire in lines_ended() */
	atomic_store_explicit(&l->thread->lane_ended, true, memory_order_release);
}

static void
link_changed(uint16_t process, enum weir_link_event event, int status, void *user)
{
	struct weir_invoker *v = user;
	struct invoke_process *p = &v->processes[process];

	if (event != WEIR_LINK_LOST) {
		atomic_store_explicit(&p->status, 0, memory_order_relaxed);
		return;
	}
	atomic_store_explicit(&p->status, status, memory_order_relaxed);
	/* pairs with the acquire in tell() */
	if (!atomic_exchange_explicit(&p->unheard, true, memory_order_release))
		atomic_fetch_add_explicit(&v->news, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < v->o.threads; i++)
		if (atomic_load_explicit(&v->threads[i].asleep, memory_order_relaxed))
			message_wake(v->m, i);
}

/* ---- what members tell each other ---- */

/* Whether a member below `rank` has the same functions. */
static bool
is_repeated(const struct card *cards, uint32_t rank)
{
	uint32_t i = 0;

	while (i < rank && cards[i].functions != cards[rank].functions)
		i++;
	return i < rank;
}

/* All members take part in the broadcast of `root`, whose table most of them do not have. */
static int
learn_table(struct weir_invoker *v, struct weir_group *g, const struct card *cards, uint32_t root,
	    const struct function_table *own)
{
	uint32_t count = cards[root].function_count;
	struct function_table *table = NULL;
	int rc;

	if (count > WEIR_FUNCTIONS_MAX)
		return weir_fail(-EPROTO, "process %u has %u functions; start one release", root,
				 count);
	if (root != v->self) {
		table = function_table_make(v, count);
		if (!table)
			return weir_fail(-ENOMEM, "no memory for functions; free some");
	}
	rc = weir_group_broadcast(g, root, table ? table->entries : own->entries,
				  count * sizeof(*own->entries), -1);
	if (rc || !table)
		return rc;
	rc = function_table_complete(v, table);
	if (!rc && table->hash != cards[root].functions)
		rc = weir_fail(-EPROTO, "process %u has told another table than it has", root);
	return rc;
}

static int
learn_tables(struct weir_invoker *v, struct weir_group *g, const struct card *cards,
	     const struct function_table *own)
{
	const struct function_table *table;
	bool differ = false;
	int rc = 0;

	for (uint32_t i = 0; i < v->process_count; i++)
		differ |= cards[i].functions != cards[0].functions;
	for (uint32_t i = 0; differ && i < v->process_count && !rc; i++)
		if (!is_repeated(cards, i))
			rc = learn_table(v, g, cards, i, own);
	for (uint32_t i = 0; i < v->process_count && !rc; i++) {
		/* the own one is not replaced by what others say it is */
		table = own->hash == cards[i].functions ? own : SLIST_FIRST(&v->tables);
		while (table->hash != cards[i].functions)
			table = SLIST_NEXT(table, next);
		v->processes[i].table = table;
	}
	return rc;
}

/* Learns who the processes are, and where they listen. 0 or -errno. */
static int
learn(struct weir_invoker *v, struct weir_group *g, const struct function_table *own,
      struct message_process *at)
{
	struct card *cards = calloc(v->process_count, sizeof(*cards)), mine;
	int rc = 0;

	if (!cards)
		return weir_fail(-ENOMEM, "no memory for %u processes; free some",
				 v->process_count);
	mine = (struct card){.functions = own->hash,
			     .version = INVOKE_VERSION,
			     .function_count = v->o.function_count,
			     .threads = v->o.threads,
			     .pool_threads = v->o.pool_threads};
	if (getrandom(&mine.word, sizeof(mine.word), 0) != sizeof(mine.word))
		rc = weir_fail(-errno, "no random word: %s", strerror(errno));
	if (!rc)
		rc = weir_group_allgather(g, &mine, sizeof(mine), cards, -1);
	for (uint32_t i = 0; i < v->process_count && !rc; i++) {
		struct weir_member member;

		if (cards[i].version != INVOKE_VERSION ||
		    cards[i].threads > WEIR_INVOKE_THREADS_MAX ||
		    cards[i].pool_threads > WEIR_INVOKE_POOL_MAX) {
			rc = weir_fail(-EPROTO,
				       "process %u speaks version %u of calls, this one %u; start "
				       "one release",
				       i, cards[i].version, INVOKE_VERSION);
			break;
		}
		v->processes[i].threads = cards[i].threads;
		v->processes[i].pool_threads = cards[i].pool_threads;
		v->processes[i].seat = v->seat_count;
		if (cards[i].threads)
			v->seats[v->seat_count++] = i;
		rc = weir_group_member(g, i, &member);
		at[i].node = member.node;
		snprintf(at[i].service, sizeof(at[i].service), "call.%016llx",
			 (unsigned long long)cards[i].word);
	}
	v->word = cards[0].word;
	if (!rc)
		rc = learn_tables(v, g, cards, own);
	free(cards);
	return rc;
}

/* ---- opening ---- */

static struct invoke_thread *
make_threads(struct weir_invoker *v, uint32_t count, bool pool)
{
	struct invoke_thread *t = aligned_alloc(ALIGNED, (count + 1) * sizeof(*t));

	if (!t)
		return NULL;
	memset(t, 0, (count + 1) * sizeof(*t));
	for (uint32_t i = 0; i < count; i++) {
		t[i].v = v;
		t[i].index = pool ? WEIR_THREAD_ANY : i;
		TAILQ_INIT(&t[i].busy);
		t[i].ended_last = &t[i].ended;
		futures_init(&t[i]);
		gets_init(&t[i]);
	}
	return t;
}

static void
free_threads(struct invoke_thread *t, uint32_t count)
{
	for (uint32_t i = 0; t && i < count; i++)
		thread_drop(&t[i]);
	for (uint32_t i = 0; t && i < count; i++)
		thread_free(&t[i]);
	free(t);
}

static uint32_t
pool_size(const struct weir_invoker *v)
{
	return v->o.pool_threads ? v->o.pool_threads : 1; /* one looks after connections */
}

static void
free_invoker(struct weir_invoker *v)
{
	free_threads(v->threads, v->o.threads);
	free_threads(v->pool, pool_size(v));
	if (v->has_key)
		pthread_key_delete(v->key);
	functions_free(v);
	meeting_free(v);
	free(v->seats);
	free(v->processes);
	free(v);
}

static int
open_messenger(struct weir_invoker *v, const struct message_process *at)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct hello hello = {.word = v->word, .version = INVOKE_VERSION};
	struct message_model model = {.processes = at,
				      .process_count = v->process_count,
				      .self = (uint16_t)v->self,
				      .guests = v->o.threads,
				      .hello = &hello,
				      .hello_length = sizeof(hello),
				      .greeted = greeted,
				      .take = thread_take,
				      .replied = replied,
				      .ended = lane_ended,
				      .turn = thread_work,
				      .dropped = payloads_broken,
				      .user = v};

	o.handler_threads = pool_size(v);
	o.receivers = o.handler_threads;
	o.connections = v->process_count;
	o.window = v->o.window;
	o.link = link_changed;
	o.user = v;
	return message_open(v->w, &o, &model, &v->m);
}

int
weir_invoker_open(struct weir *w, struct weir_group *g, const struct weir_invoker_options *options,
		  struct weir_invoker **invoker)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	struct message_process *at = NULL;
	struct function_table *own;
	struct weir_invoker *v;
	int rc = weir_sized_read(&o, sizeof(o), options, "WEIR_INVOKER_OPTIONS_INIT");

	if (!rc)
		rc = check(&o);
	if (rc)
		return rc;
	v = calloc(1, sizeof(*v));
	if (!v)
		return weir_fail(-ENOMEM, "no memory for an invoker; free some");
	v->w = w;
	v->g = g;
	v->o = o;
	meeting_init(v);
	v->serial = atomic_fetch_add(&serials, 1);
	v->process_count = weir_group_size(g);
	v->self = weir_group_rank(g);
	SLIST_INIT(&v->tables);
	v->processes = calloc(v->process_count, sizeof(*v->processes));
	v->seats = calloc(v->process_count, sizeof(*v->seats));
	v->threads = make_threads(v, o.threads, false);
	v->pool = make_threads(v, pool_size(v), true);
	at = calloc(v->process_count, sizeof(*at));
	rc = functions_adopt(v, &o, &own);
	if (!rc && (!v->processes || !v->seats || !v->threads || !v->pool || !at))
		rc = weir_fail(-ENOMEM, "no memory for %u processes; free some", v->process_count);
	/* before the messenger's: of a thread that ends, lines go first */
	if (!rc) {
		rc = -pthread_key_create(&v->key, thread_ended);
		v->has_key = !rc;
	}
	if (!rc)
		rc = learn(v, g, own, at);
	if (!rc)
		rc = open_messenger(v, at);
	/* the first call of a member finds all the others listening */
	if (!rc)
		rc = weir_group_barrier(g, -1);
	free(at);
	if (rc) {
		weir_messenger_close(v->m);
		v->m = NULL;
		free_invoker(v);
		return rc;
	}
	note(v);
	*invoker = v;
	return 0;
}

int
weir_invoker_close(struct weir_invoker *v)
{
	struct invoke_thread *t;
	int rc;

	if (!v || weir_state(v->w) == WEIR_FORKED)
		return 0;
	t = thread_own(v);
	if (t && (thread_is_inside(t) || t->index == WEIR_THREAD_ANY))
		return weir_fail(-EDEADLK, "called in a function; let it return first");
	for (uint32_t i = 0; i < v->o.threads; i++)
		if (atomic_load(&v->threads[i].taken) && &v->threads[i] != t)
			return weir_fail(-EBUSY, "thread %u has not left; let it leave first", i);
	if (t)
		weir_invoker_leave(v);
	rc = weir_messenger_close(v->m);
	if (rc)
		return rc;
	unnote(v);
	v->m = NULL; /* and with it lanes of the pool */
	free_invoker(v);
	return 0;
}

/* ---- what the program may know ---- */

uint32_t
weir_invoker_threads(const struct weir_invoker *v, uint32_t process)
{
	uint32_t n = 0;

	if (process != UINT32_MAX)
		return process < v->process_count ? v->processes[process].threads : 0;
	for (uint32_t i = 0; i < v->process_count; i++)
		n += v->processes[i].threads;
	return n;
}

uint32_t
weir_invoker_processes(const struct weir_invoker *v)
{
	return v->process_count;
}

int
weir_invoker_status(const struct weir_invoker *v, uint32_t process)
{
	if (process >= v->process_count)
		return weir_fail(-ENOENT, "process %u of %u; give a number below that", process,
				 v->process_count);
	return atomic_load_explicit(&v->processes[process].status, memory_order_relaxed);
}

static void
add(struct weir_invoker_stats *sum, const struct invoke_counters *n)
{
#define ADD(name, help) sum->name += atomic_load_explicit(&n->name, memory_order_relaxed);
	WEIR_INVOKER_COUNTERS(ADD)
#undef ADD
}

int
weir_invoker_stats(const struct weir_invoker *v, struct weir_invoker_stats *stats)
{
	struct weir_messenger_stats of_lanes = WEIR_MESSENGER_STATS_INIT;
	struct weir_invoker_stats sum = {0};

	for (uint32_t i = 0; i < v->o.threads; i++)
		add(&sum, &v->threads[i].counters);
	for (uint32_t i = 0; i < pool_size(v); i++)
		add(&sum, &v->pool[i].counters);
	weir_messenger_stats(v->m, &of_lanes);
	sum.malformed = of_lanes.malformed;
	sum.queue_bytes = atomic_load_explicit(&v->queued, memory_order_relaxed);
	sum.queue_peak = atomic_load_explicit(&v->queue_peak, memory_order_relaxed);
	return weir_sized_write(stats, &sum, sizeof(sum), "WEIR_INVOKER_STATS_INIT");
}
