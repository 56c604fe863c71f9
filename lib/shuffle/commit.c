/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attempts (STAGE). A producer waits until its blocks lie with their consumers, then tells each
 * process what it has sent there, then asks process 0, which selects the first that asks and tells
 * all. So a process that learns of a winner has its blocks and counts.
 *
 * A partition that moves (move.c) makes tasks missing again: their data went with the old owner. An
 * attempt that began before may have pushed to the old one, and is not selected any more.
 */
#include "store.h"

#define NONE UINT32_MAX

/* Attempts that this process has begun, and that process 0 has selected. */
struct commits {
	pthread_mutex_t lock; /* of begun */
	uint64_t *begun;      /* by map: attempts of this process, as bits */
	/* process 0's thread 0 */
	uint32_t *winners; /* by map; NONE: none yet, or again */
	uint32_t *since;   /* by map: the epoch from which on attempts count */
	uint32_t moved;	   /* epoch of the last partition that moved, likewise */
};

struct commits *
commits_make(struct weir_shuffle *s)
{
	struct commits *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	c->begun = calloc(s->o.maps, sizeof(*c->begun));
	c->winners = malloc(s->o.maps * sizeof(*c->winners));
	c->since = calloc(s->o.maps, sizeof(*c->since));
	for (uint32_t i = 0; c->winners && i < s->o.maps; i++)
		c->winners[i] = NONE;
	s->commits = c;
	if (c->begun && c->winners && c->since)
		return c;
	commits_free(s);
	return NULL;
}

void
commits_free(struct weir_shuffle *s)
{
	struct commits *c = s->commits;

	if (!c)
		return;
	pthread_mutex_destroy(&c->lock);
	free(c->begun);
	free(c->winners);
	free(c->since);
	free(c);
	s->commits = NULL;
}

int
commit_begin(struct weir_shuffle *s, uint32_t map, uint32_t attempt)
{
	struct commits *c = s->commits;
	uint64_t bit = UINT64_C(1) << attempt;
	bool begun;

	_Static_assert(WEIR_SHUFFLE_ATTEMPTS_MAX <= 64, "as bits");
	pthread_mutex_lock(&c->lock);
	begun = c->begun[map] & bit;
	c->begun[map] |= bit;
	pthread_mutex_unlock(&c->lock);
	return begun ? weir_fail(-EEXIST,
				 "attempt %u of map %u was used before; give another "
				 "number",
				 attempt, map)
		     : 0;
}

/* ---- process 0 ---- */

int
commit_ask(struct shuffle_thread *t, const struct say_args *a, struct say_answer *answer)
{
	struct weir_shuffle *s = t->s;
	struct commits *c = s->commits;
	struct say_args won = *a;
	bool first;

	/* nobody hears of an epoch before process 0 */
	if (a->attempt >= WEIR_SHUFFLE_ATTEMPTS_MAX ||
	    a->epoch > atomic_load_explicit(&s->epoch, memory_order_relaxed))
		return -EBADMSG;
	first = c->winners[a->map] == NONE && a->epoch >= c->since[a->map] && a->epoch >= c->moved;
	if (first)
		c->winners[a->map] = a->attempt;
	answer->winner = c->winners[a->map];
	if (!first)
		return 0;
	won.kind = SAY_WON;
	store_say(t, &won);
	/* a process that does not hear of it was lost */
	for (uint32_t p = 1; p < s->processes; p++)
		if (weir_invoker_threads(s->v, p) &&
		    !atomic_load_explicit(&s->lost[p], memory_order_relaxed))
			say(s, (struct weir_to){p, 0}, &won, NULL);
	return 0;
}

void
commit_moved(struct shuffle_thread *t, bool gone)
{
	struct weir_shuffle *s = t->s;
	struct commits *c = s->commits;
	struct say_args again = {.kind = SAY_AGAIN};

	c->moved = atomic_load_explicit(&s->epoch, memory_order_relaxed);
	for (uint32_t i = 0; gone && i < s->o.maps; i++) {
		if (c->winners[i] == NONE)
			continue;
		again.map = i;
		move_tell(t, &again);
		c->winners[i] = NONE;
		c->since[i] = again.epoch;
	}
}

/* ---- the producer ---- */

/* Sums of the targets of a process. */
static struct say_args
counts_for(const struct weir_map *m, uint32_t process)
{
	const struct weir_shuffle *s = m->s;
	struct say_args a = {.kind = SAY_COUNTS,
			     .map = m->map,
			     .attempt = m->attempt,
			     .producer = producer_word(m->self),
			     .epoch = m->epoch};

	for (uint32_t i = 0; i < weir_invoker_threads(s->v, process); i++) {
		const struct target *to = &m->targets[s->first[process] + i];

		a.blocks += to->blocks;
		a.records += to->records;
		a.sum += to->sum;
	}
	return a;
}

/* A process that owns nothing has no blocks to count, and one that was lost has none to drop. */
static bool
needs(const struct weir_shuffle *s, uint32_t process, enum say_kind kind)
{
	if (!weir_invoker_threads(s->v, process))
		return false;
	return kind == SAY_COUNTS ? owns_any(s, process)
				  : !atomic_load_explicit(&s->lost[process], memory_order_relaxed);
}

/* Says a word to one thread of each process, which counts with *sync or not. */
static int
tell_all(struct weir_map *m, enum say_kind kind, struct weir_sync *sync)
{
	struct weir_shuffle *s = m->s;
	struct weir_call_options o = {.sync = sync, .flags = WEIR_CALL_FULL_FAILS};
	struct say_args a;
	int rc = 0;

	for (uint32_t p = 0; p < s->processes && !rc; p++) {
		if (!needs(s, p, kind))
			continue;
		a = counts_for(m, p);
		a.kind = kind;
		if (sync)
			weir_sync_add(sync, 1);
		while ((rc = say(s, (struct weir_to){p, 0}, &a, &o)) == -EAGAIN) {
			rc = shuffle_turn(m->t, &(struct wait){.end = UINT64_MAX});
			if (rc)
				break;
		}
		if (rc && sync)
			weir_sync_add(sync, (uint64_t)-1);
		if ((rc == -EHOSTUNREACH || rc == -ECONNREFUSED) && kind == SAY_DROP)
			rc = 0;
		if (rc)
			rc = shuffle_failed(s, rc, p);
	}
	return rc;
}

static int
tell_counts(struct weir_map *m)
{
	struct weir_sync *told = calloc(1, sizeof(*told));
	uint64_t failed;
	int rc;

	if (!told)
		return weir_fail(-ENOMEM, "no memory to end an attempt; free some");
	/* one more, so that it does not end before all are told */
	weir_sync_init(told, 1, NULL, NULL);
	rc = tell_all(m, SAY_COUNTS, told);
	weir_sync_add(told, (uint64_t)-1);
	while (!rc && weir_sync_left(told, NULL))
		rc = shuffle_turn(m->t, &(struct wait){.end = UINT64_MAX});
	if (weir_sync_left(told, &failed))
		return rc; /* the library may still write there */
	if (!rc && failed)
		rc = shuffle_failed(m->s, -EHOSTUNREACH, m->s->self);
	free(told);
	return rc;
}

static int
stale(const struct weir_map *m)
{
	return weir_fail(-ESTALE,
			 "a partition has another owner since attempt %u of map %u began; end it, "
			 "and begin another",
			 m->attempt, m->map);
}

/* Waits until this process has heard of the epoch. */
static int
await_epoch(struct weir_map *m, uint32_t epoch)
{
	struct weir_shuffle *s = m->s;
	int rc = 0;

	while (!rc && atomic_load_explicit(&s->epoch, memory_order_relaxed) < epoch)
		rc = shuffle_turn(m->t, &(struct wait){.end = UINT64_MAX});
	return rc;
}

int
map_stale(const struct weir_map *m)
{
	if (atomic_load_explicit(&m->s->moved, memory_order_relaxed) <= m->epoch)
		return 0;
	return stale(m);
}

/* 0 or why not; -EALREADY: another attempt was selected. */
static int
ask(struct weir_map *m)
{
	struct say_args a = {.kind = SAY_ASK,
			     .map = m->map,
			     .attempt = m->attempt,
			     .producer = producer_word(m->self),
			     .epoch = m->epoch};
	struct say_answer answer;
	int rc = say_ask(m->t, &a, &answer);

	if (rc || answer.winner == m->attempt)
		return rc;
	if (answer.winner != NONE)
		return weir_fail(-EALREADY, "attempt %u of map %u was selected", answer.winner,
				 m->map);
	/* the next attempt shall know what this one did not */
	rc = await_epoch(m, answer.epoch);
	return rc ? rc : stale(m);
}

/* Sends all of its blocks, and has one attempt selected. As weir_map_end(). */
static int
commit(struct weir_map *m)
{
	int rc = map_stale(m);

	if (rc)
		return rc;
	envelopes_leave(m);
	rc = envelopes_await(m, &(struct wait){.end = UINT64_MAX});
	if (!rc)
		rc = tell_counts(m);
	return rc ? rc : ask(m);
}

int
commit_attempt(struct weir_map *m, bool ok)
{
	int rc = ok ? commit(m) : 0;

	if (rc == -ENOBUFS || rc == -EINTR || (ok && (!rc || rc == -EALREADY)))
		return rc;
	envelopes_drop(m);
	/* blocks that are under way may come behind the word: it stays known there */
	if (!shuffle_state(m->s))
		tell_all(m, SAY_DROP, NULL);
	return rc;
}
