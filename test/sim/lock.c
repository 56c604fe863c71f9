/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock, which several programs ask for again and again, exclusive and shared, for a while or for
 * ever. No two hold it that exclude each other; each gets it in the end; the lock of a program that
 * died, or whose node is cut off, passes on, and says so if it was exclusive. A count in the
 * memory, which holders read, add to and write, is theirs in the end. A holder that is cut off
 * hears of it, and counts as one no more when the lock has passed on. The owner engine's queue is
 * compared from turn to turn: first come, first served, and all that may enter have entered.
 */
#include "lock.h"
#include "node.h"

#include "engine/export.h"
#include "engine/state.h"
#include "ipc/key.h"
#include "remote/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY (200 * SIM_US)
#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_LOCK)
#define SHARED WEIR_LOCK_SHARED
#define EXCLUSIVE WEIR_LOCK_EXCLUSIVE
#define WAITERS (2 * SIM_PROGRAMS_MAX) /* and of connections that end */

enum state { IDLE, ASKS, READS, WRITES, HOLDS };

struct user {
	struct weir_remote *r;
	uint8_t state;
	bool asked, opened, done;
	bool lost;    /* its connection has ended, or will */
	bool keeps;   /* it holds the lock until it hears that it is cut off */
	bool fetches; /* and meanwhile reads the count */
	bool owes;    /* the owner may not know that it has left an exclusive lock or request */
	int kind;
	uint32_t rounds;     /* to go */
	uint64_t wait_until; /* IDLE: asks; ASKS: gives up; HOLDS: unlocks */
	uint64_t word;
};

/* A request in the owner engine's queue: two of one connection differ in their time or turn. */
struct waiter {
	uint64_t since;
	uint32_t vqpn, turn;
};

struct sim_lock {
	const struct sim_lock_plan *plan;
	struct waiter queue[WAITERS]; /* when it was looked at last */
	uint32_t waiters;
	uint64_t granted; /* until then */
	struct rng rng;
	struct weir_region *region;
	struct weir_export *x;
	uint8_t *base; /* NULL: not there yet, or gone */
	bool exported;
	struct weir_key key;
	bool in_doubt;	 /* an exclusive holder has died, and no exclusive one was told */
	bool maybe;	 /* one has died who may have been granted it */
	bool unsure;	 /* and whether its last put took effect */
	bool cut;	 /* an exclusive holder is cut off, and nobody was told */
	uint64_t writes; /* of holders */
	struct user user[SIM_PROGRAMS_MAX];
};

void
sim_lock_create(struct sim *s)
{
	s->lock = NULL;
	if (!s->sc.lock.users)
		return;
	s->lock = calloc(1, sizeof(*s->lock));
	if (!s->lock)
		abort();
	s->lock->plan = &s->sc.lock;
	s->lock->rng.state = sim_hash(s->sc.seed, 91, 0);
	for (uint32_t i = 0; i < s->sc.programs; i++) {
		s->lock->user[i].rounds = s->sc.lock.rounds;
		s->lock->user[i].wait_until = s->sc.lock.start + i * SIM_US;
		s->lock->user[i].done = !(s->sc.lock.users & 1u << i);
	}
}

void
sim_lock_destroy(struct sim *s)
{
	free(s->lock);
}

void
sim_lock_attached(struct sim_program *p)
{
	struct sim_lock *k = p->s->lock;
	struct weir_region_info info;
	int rc;

	if (!k || k->plan->owner != p->id)
		return;
	rc = weir_region_alloc(p->w, 4096, NULL, &k->region);
	if (!rc)
		rc = weir_export(k->region, 0, 4096, RIGHTS, &k->x, &k->key);
	if (rc)
		sim_fail(p->s, "program %u: exports no lock: %d: %s", p->id, rc, weir_reason());
	weir_region_info(k->region, &info);
	k->base = info.base;
	k->exported = true;
}

static void
give_up(struct user *u)
{
	weir_remote_close(u->r);
	u->r = NULL;
	u->done = true;
}

/* Whether the wire between it and the memory is cut, now or later. */
static bool
is_across(const struct sim *s, uint32_t id)
{
	const struct sim_program_plan *p = s->sc.program;

	return s->sc.cut_at != SIM_NEVER &&
	       (p[id].node == s->sc.cut_node) != (p[s->lock->plan->owner].node == s->sc.cut_node);
}

static bool
is_cut_off(const struct sim *s, uint32_t id)
{
	return s->sc.cut_at <= s->now && is_across(s, id);
}

/* The lock of u passes on, if it holds it. */
static void
lose(struct sim_lock *k, struct user *u)
{
	if (!u->lost && u->kind == EXCLUSIVE) {
		k->in_doubt |= u->state > ASKS;
		k->maybe |= u->state <= ASKS; /* its UNLOCK may not have left */
		k->unsure |= u->state == HOLDS;
	}
	k->maybe |= !u->lost && u->owes;
	u->lost = true;
}

/* The same of those that are cut off: to the others they hold the lock no more. */
static void
lose_cut_off(struct sim *s)
{
	struct sim_lock *k = s->lock;

	for (uint32_t i = 0; i < s->sc.programs; i++) {
		struct user *u = &k->user[i];

		if (u->lost || !is_cut_off(s, i))
			continue;
		k->cut |= u->kind == EXCLUSIVE && u->state > ASKS;
		lose(k, u);
	}
}

/* An operation, or opening, has failed. */
static void
failed(struct sim_program *p, struct user *u, int rc)
{
	struct sim *s = p->s;
	uint32_t owner = s->lock->plan->owner;

	sim_trace(s, "program %u: lock of program %u: %d", p->id, owner, rc);
	sim_progress(s);
	if (s->program[owner]->dead) {
		give_up(u);
	} else if (is_cut_off(s, p->id)) {
		lose_cut_off(s);
		s->counts.cut_off += u->keeps && u->fetches;
		give_up(u);
	} else if (!u->opened &&
		   (rc == -ENOSPC || rc == -EHOSTUNREACH || (rc == -ENOMEM && s->sc.faults) ||
		    (rc == -ETIMEDOUT &&
		     sim_offers_lost(s, s->sc.program[p->id].node, s->sc.program[owner].node)))) {
		weir_remote_close(u->r);
		u->r = NULL;
		u->state = IDLE;
		u->wait_until = s->now + RETRY + rng_below(&s->lock->rng, RETRY);
	} else {
		sim_fail(s, "program %u: lock of program %u: %d: %s", p->id, owner, rc,
			 weir_reason());
	}
}

/* It was granted. */
static void
enter(struct sim_program *p, struct user *u, bool told)
{
	struct sim *s = p->s;
	struct sim_lock *k = s->lock;
	/* its connections end one after the other: a holder may not have heard of it yet */
	bool ends = s->program[k->plan->owner]->dead;

	if (s->sc.cut_at <= s->now)
		lose_cut_off(s);
	/* it was granted before the wire was cut, or when it was */
	ends |= u->lost;
	for (uint32_t i = 0; i < s->sc.programs && !ends; i++) {
		const struct user *v = &k->user[i];

		if (v != u && !v->lost && v->state > ASKS &&
		    (u->kind == EXCLUSIVE || v->kind == EXCLUSIVE))
			sim_fail(s, "programs %u and %u hold a lock, %s", p->id, i,
				 u->kind == v->kind ? "both exclusive" : "one of them exclusive");
	}
	if (told != k->in_doubt && (!told || !k->maybe) && !ends)
		sim_fail(s, "program %u: a holder has %sdied, and it is told %s", p->id,
			 k->in_doubt ? "" : "not ", told ? "so" : "nothing");
	if (u->kind == EXCLUSIVE && !u->lost)
		k->in_doubt = false;
	s->counts.locks_cut += told && k->cut;
	k->cut &= !told;
	s->counts.locks++;
	s->counts.locks_shared += u->kind == SHARED;
	s->counts.locks_dead += told;
	sim_trace(s, "program %u: holds the lock%s", p->id, told ? " of one that died" : "");
	u->state = READS;
	u->owes = false; /* requests take effect in order */
	u->word = UINT64_MAX;
	u->wait_until = s->now + rng_log(&k->rng, 1, 100 * SIM_US);
	/* a program that is to die does it with the lock */
	if (s->sc.program[p->id].killed_at != SIM_NEVER && u->kind == EXCLUSIVE)
		u->wait_until = SIM_NEVER;
	u->keeps = is_across(s, p->id) && u->kind == EXCLUSIVE && s->now < s->sc.cut_at &&
		   sim_hash(s->sc.seed, 105, u->rounds) % 8;
	sim_progress(s);
}

static bool
ask(struct sim_program *p, struct user *u)
{
	struct sim_lock *k = p->s->lock;
	bool asked = u->asked;
	int rc = weir_lock_step(u->r, u->kind, &u->asked);

	if (u->asked && !asked) {
		sim_trace(p->s, "program %u: asks for the lock, %s", p->id,
			  u->kind == SHARED ? "shared" : "exclusive");
	}
	u->opened |= u->asked;
	if (rc == -EAGAIN && p->s->now >= u->wait_until && u->asked) {
		rc = weir_lock_give_up(u->r, u->kind, -ETIME);
		if (rc == -ETIME) {
			p->s->counts.locks_given_up++;
			sim_trace(p->s, "program %u: gives up the lock", p->id);
			u->state = IDLE;
			u->owes |= u->kind == EXCLUSIVE;
			u->wait_until = p->s->now + rng_log(&k->rng, SIM_US, 200 * SIM_US);
			sim_progress(p->s);
			return true;
		}
	}
	if (rc == -EAGAIN)
		return u->asked && !asked;
	if (rc && rc != -EOWNERDEAD)
		failed(p, u, rc);
	else
		enter(p, u, rc);
	return true;
}

/* The wire is cut: reads the count until that fails. Both say that the holder is cut off. */
static bool
keep(struct sim_program *p, struct user *u)
{
	int rc = 0;

	if (!u->fetches)
		rc = weir_remote_get(u->r, 64, &u->word, sizeof(u->word), WEIR_NOWAIT);
	if (!rc) {
		u->fetches = true;
		rc = weir_remote_flush(u->r, 0);
	}
	if (!rc) /* it was answered just before */
		u->fetches = false;
	if (rc && rc != -EAGAIN)
		failed(p, u, rc);
	return rc && rc != -EAGAIN;
}

/* Reads the count, and as an exclusive holder adds to it. */
static bool
hold(struct sim_program *p, struct user *u)
{
	struct sim_lock *k = p->s->lock;
	int rc = 0;

	if (u->lost)
		u->state = HOLDS;
	if (u->state == HOLDS && u->keeps && p->s->now < p->s->sc.cut_at)
		return false;
	if (u->state == HOLDS && u->keeps)
		return keep(p, u);
	if (u->state == READS && u->word == UINT64_MAX) {
		rc = weir_remote_get(u->r, 64, &u->word, sizeof(u->word), WEIR_NOWAIT);
		if (!rc)
			u->word = UINT64_MAX - 1;
	}
	if (!rc && u->state == READS) {
		rc = weir_remote_flush(u->r, 0);
		if (!rc && k->unsure && u->word + 1 == k->writes)
			k->writes--;
		if (!rc)
			k->unsure = false;
		if (!rc && u->word != k->writes)
			sim_fail(p->s, "program %u reads %lu under its lock, not %lu", p->id,
				 (unsigned long)u->word, (unsigned long)k->writes);
		if (!rc)
			u->state = u->kind == EXCLUSIVE ? WRITES : HOLDS;
	}
	if (!rc && u->state == WRITES) {
		u->word++;
		rc = weir_remote_put(u->r, 64, &u->word, sizeof(u->word), WEIR_NOWAIT);
		if (rc)
			u->word--;
		else
			k->writes++, u->state = HOLDS;
	}
	if (!rc && u->state == HOLDS) {
		if (p->s->now < u->wait_until)
			return false;
		rc = weir_remote_unlock(u->r, 0);
		if (!rc) {
			sim_trace(p->s, "program %u: unlocks", p->id);
			u->state = IDLE;
			u->owes |= u->kind == EXCLUSIVE;
			u->wait_until = p->s->now + rng_log(&k->rng, SIM_US, 100 * SIM_US);
			if (!--u->rounds || u->lost)
				give_up(u);
		}
	}
	if (rc && rc != -EAGAIN)
		failed(p, u, rc);
	if (!rc)
		sim_progress(p->s);
	return !rc;
}

/* ---- the queue ---- */

/* The lock in its owner engine; NULL: e is another one, or has none. */
static struct export *
owned_by(const struct sim *s, struct engine *e, uint32_t node)
{
	const struct sim_lock *k = s->lock;
	struct weir_key_fields key;
	uint32_t session, number;

	if (!k || !k->exported || s->sc.program[k->plan->owner].node != node)
		return NULL;
	memcpy(&key, &k->key, sizeof(key));
	session = WEIR_KEY_SESSION(key.index);
	number = WEIR_KEY_EXPORT(key.index) + 1;
	if (engine_lock_owner(session, number, e->config.count) != e->config.id)
		return NULL;
	return export_known(e, session, number, key.generation);
}

static bool
same_request(const struct waiter *a, const struct waiter *b)
{
	return a->since == b->since && a->vqpn == b->vqpn && a->turn == b->turn;
}

const char *
sim_lock_watch(struct sim *s, struct engine *e, uint32_t node)
{
	struct export *x = owned_by(s, e, node);
	struct sim_lock *k = s->lock;
	struct waiter queue[WAITERS];
	struct list_node *at, *next;
	uint32_t n = 0, stayed = 0, left = 0;
	const struct engine_seat *first;
	uint64_t granted;

	if (!x || x->lock.ended)
		return NULL;
	LIST_EACH (at, next, &x->lock.queue) {
		const struct engine_seat *seat = LIST_OWNER(at, struct engine_seat, queued);

		if (n == WAITERS)
			return "more requests wait for a lock than there are programs";
		queue[n++] = (struct waiter){.since = seat->since,
					     .vqpn = seat->vqpn,
					     .turn = seat->command ? seat->command->lock.turn : 0};
	}
	/* those that stay lie first, as before; those before them have entered, or given up */
	for (uint32_t i = 0; i < k->waiters; i++) {
		if (stayed < n && same_request(&k->queue[i], &queue[stayed]))
			stayed++;
		else
			left += !stayed;
	}
	for (uint32_t i = stayed; i < n; i++)
		for (uint32_t j = 0; j < k->waiters; j++)
			if (same_request(&queue[i], &k->queue[j]))
				return "a request for a lock lies before an earlier one";
	granted = x->counters.locks - k->granted;
	if (stayed && granted > left)
		return "a lock was granted to a request behind others that wait";
	s->counts.locks_queued += stayed ? granted : 0;
	memcpy(k->queue, queue, n * sizeof(queue[0]));
	k->waiters = n;
	k->granted = x->counters.locks;
	if (!n)
		return NULL;
	first = LIST_OWNER(x->lock.queue.next, const struct engine_seat, queued);
	return (first->kind == WEIR_LOCKS_EXCLUSIVE ? x->lock.holders > 0 : x->lock.exclusive)
		   ? NULL
		   : "the first request for a lock waits for nobody";
}

bool
sim_lock_step(struct sim_program *p, uint32_t thread)
{
	struct sim *s = p->s;
	struct sim_lock *k = s->lock;
	struct user *u;
	int rc;

	if (!k || thread)
		return false;
	u = &k->user[p->id];
	if (u->done)
		return false;
	if (u->state > ASKS)
		return hold(p, u);
	if (u->state == ASKS)
		return ask(p, u);
	if (s->now < u->wait_until)
		return false;
	if (!u->r && sim_program_gone(s, k->plan->owner)) {
		u->done = true;
		return true;
	}
	if (!k->exported)
		return false;
	if (!u->r) {
		rc = weir_remote_open(p->w, &k->key, RIGHTS, 0, 0, &u->r);
		if (rc)
			failed(p, u, rc);
		return true;
	}
	u->kind = rng_chance(&k->rng, 400) ? SHARED : EXCLUSIVE;
	u->asked = false;
	u->state = ASKS;
	u->wait_until =
	    rng_chance(&k->rng, 300) ? s->now + rng_log(&k->rng, SIM_US, SIM_MS) : SIM_NEVER;
	return ask(p, u);
}

uint64_t
sim_lock_timer(const struct sim_program *p)
{
	const struct sim_lock *k = p->s->lock;
	const struct user *u = k ? &k->user[p->id] : NULL;

	if (!u || u->done)
		return SIM_NEVER;
	/* its doorbell rings when it hears of its end, which takes a second */
	if (is_cut_off(p->s, p->id))
		return p->s->now + SIM_MS;
	if (u->keeps && u->state == HOLDS)
		return p->s->sc.cut_at;
	/* waiting for the export, for an opening, for room: nothing wakes it */
	if (u->wait_until <= p->s->now || !u->r || (u->state == ASKS && !u->asked) ||
	    u->state > ASKS)
		return p->s->now + 20 * SIM_US;
	return u->wait_until;
}

bool
sim_lock_over(const struct sim_program *p)
{
	const struct sim_lock *k = p->s->lock;

	if (!k)
		return true;
	for (uint32_t i = 0; i < p->s->sc.programs; i++)
		if (!k->user[i].done && (i == p->id || k->plan->owner == p->id) &&
		    !sim_program_gone(p->s, i))
			return false;
	return true;
}

void
sim_lock_left(struct sim_program *p, bool dies)
{
	struct sim_lock *k = p->s->lock;
	struct user *u = k ? &k->user[p->id] : NULL;

	if (!k)
		return;
	if (k->plan->owner == p->id) {
		if (k->base && !dies && !k->unsure &&
		    memcmp(k->base + 64, &k->writes, sizeof(k->writes)))
			sim_fail(p->s, "the count of %lu holders is wrong",
				 (unsigned long)k->writes);
		k->base = NULL;
	}
	if (!u->done && dies)
		lose(k, u);
	u->state = IDLE;
	u->r = NULL;
	u->done = true;
}
