/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attempts (STAGE). A producer waits until its blocks lie with their consumers, then tells each
 * process what it has sent there, then asks process 0, which selects the first that asks and tells
 * all. So a process that learns of a winner has its blocks and counts.
 */
#include "store.h"

#define NONE UINT32_MAX
#define DROP_MS 1000

/* Attempts that this process has begun, and that process 0 has selected. */
struct commits {
	pthread_mutex_t lock;
	uint64_t *begun;   /* by map: attempts of this process, as bits */
	uint32_t *winners; /* process 0: by map; NONE: none yet */
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
	for (uint32_t i = 0; c->winners && i < s->o.maps; i++)
		c->winners[i] = NONE;
	s->commits = c;
	if (c->begun && c->winners)
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
commit_ask(struct shuffle_thread *t, const struct say_args *a, uint32_t *winner)
{
	struct weir_shuffle *s = t->s;
	struct commits *c = s->commits;
	struct say_args won = *a;
	bool first;

	if (a->attempt >= WEIR_SHUFFLE_ATTEMPTS_MAX)
		return -EBADMSG;
	pthread_mutex_lock(&c->lock);
	first = c->winners[a->map] == NONE;
	if (first)
		c->winners[a->map] = a->attempt;
	*winner = c->winners[a->map];
	pthread_mutex_unlock(&c->lock);
	if (!first)
		return 0;
	won.kind = SAY_WON;
	store_say(t, &won);
	/* a process that does not hear of it was lost */
	for (uint32_t p = 1; p < s->processes; p++)
		if (weir_invoker_threads(s->v, p))
			say(s, (struct weir_to){p, 0}, &won, NULL);
	return 0;
}

/* ---- the producer ---- */

/* The words that are under way, in memory that outlives a wait which fails. */
struct asking {
	struct weir_sync told;
	struct weir_future answer;
	uint32_t winner;
	bool answered;
};

static void
answered(struct weir_future *f, void *user)
{
	struct asking *q = user;

	(void)f;
	q->answered = true;
}

/* Sums of the targets of a process. */
static struct say_args
counts_for(const struct weir_map *m, uint32_t process)
{
	const struct weir_shuffle *s = m->s;
	struct say_args a = {.kind = SAY_COUNTS,
			     .map = m->map,
			     .attempt = m->attempt,
			     .producer = producer_word(m->self)};

	for (uint32_t i = 0; i < weir_invoker_threads(s->v, process); i++) {
		const struct target *to = &m->targets[s->first[process] + i];

		a.blocks += to->blocks;
		a.records += to->records;
		a.sum += to->sum;
	}
	return a;
}

/* A process that was lost, and owned nothing, need not know. */
static bool
is_spared(const struct weir_shuffle *s, uint32_t process)
{
	return process && !s->owns[process] &&
	       atomic_load_explicit(&s->lost[process], memory_order_relaxed);
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
		if (!weir_invoker_threads(s->v, p) || is_spared(s, p))
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
		if ((rc == -EHOSTUNREACH || rc == -ECONNREFUSED) && !s->owns[p])
			rc = 0;
		if (rc)
			rc = shuffle_failed(s, rc, p);
	}
	return rc;
}

static int
tell_counts(struct weir_map *m, struct asking *q)
{
	uint64_t failed;
	int rc;

	/* one more, so that it does not end before all are told */
	weir_sync_init(&q->told, 1, NULL, NULL);
	rc = tell_all(m, SAY_COUNTS, &q->told);
	weir_sync_add(&q->told, (uint64_t)-1);
	while (!rc && weir_sync_left(&q->told, &failed))
		rc = shuffle_turn(m->t, &(struct wait){.end = UINT64_MAX});
	weir_sync_left(&q->told, &failed);
	if (!rc && failed)
		rc = shuffle_failed(m->s, -EHOSTUNREACH, m->s->self);
	return rc;
}

static int
ask(struct weir_map *m, struct asking *q)
{
	struct weir_shuffle *s = m->s;
	struct say_args a = {.shuffle = s->number,
			     .kind = SAY_ASK,
			     .map = m->map,
			     .attempt = m->attempt,
			     .producer = producer_word(m->self)};
	int rc;

	q->answer = (struct weir_future){.then = answered, .user = q};
	rc = weir_call_return(s->v, (struct weir_to){0, 0}, s->function_say, &a, sizeof(a),
			      &q->answer, &q->winner, sizeof(q->winner), NULL);
	if (rc) {
		q->answer.then = NULL;
		return shuffle_failed(s, rc, 0);
	}
	while (!q->answered && !rc)
		rc = shuffle_turn(m->t, &(struct wait){.end = UINT64_MAX});
	if (!rc && q->answer.status)
		rc = shuffle_failed(s, q->answer.status, 0);
	return rc;
}

int
commit_attempt(struct weir_map *m, bool ok)
{
	struct asking *q = calloc(1, sizeof(*q));
	int rc = q ? 0 : weir_fail(-ENOMEM, "no memory to end an attempt; free some");
	struct wait drop;
	uint32_t winner = NONE;

	if (ok) {
		envelopes_leave(m);
		if (!rc)
			rc = envelopes_await(m, &(struct wait){.end = UINT64_MAX});
		if (rc == -ENOBUFS || rc == -EINTR) {
			free(q);
			return rc;
		}
		if (!rc)
			rc = tell_counts(m, q);
		if (!rc)
			rc = ask(m, q);
		winner = rc ? NONE : q->winner;
	}
	if (q && (weir_sync_left(&q->told, NULL) || (q->answer.then && !q->answered)))
		q = NULL; /* the library may still write there */
	free(q);
	if (ok && !rc && winner != m->attempt)
		return weir_fail(-EALREADY, "attempt %u of map %u was selected", winner, m->map);
	if (!ok || rc) {
		drop = wait_begin(DROP_MS);
		envelopes_drop(m);
		/* blocks that are under way come before the word, which goes to one thread */
		envelopes_await(m, &drop);
		if (!shuffle_state(m->s))
			tell_all(m, SAY_DROP, NULL);
	}
	return ok ? rc : 0;
}
