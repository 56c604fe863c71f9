/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One export that several programs use. Each of its ranges belongs to one program at a time, whose
 * operations there have one legal result each. It passes the range on in one of the ways that put
 * what the next one does behind what it did: by a notice or a signal word, behind operations that
 * may be under way; by a message, or a word of mouth, after a flush; by the lock. The exporting
 * program loads and stores where others put and get. Other words are raced for (racing.c). Bytes
 * around the export stay as they are.
 */
#include "common_state.h"
#include "memory.h"
#include "node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAD 2048u /* bytes of the region before the export, unless programs map it whole */
#define RETRY (200 * SIM_US)

void
sim_common_create(struct sim *s)
{
	struct sim_common *k;

	s->common = NULL;
	if (!s->sc.common.users)
		return;
	s->common = k = aligned_alloc(64, (sizeof(*k) + 63) / 64 * 64);
	if (!k)
		abort();
	memset(k, 0, sizeof(*k));
	k->plan = &s->sc.common;
	k->racing = racing_create(RACING);
	for (uint32_t i = 0; i < RANGES; i++)
		k->range[i] = (struct range){.at = FIRST + i * SMALL,
					     .bytes = i == BIG ? LARGE : SMALL,
					     .holder = k->plan->owner,
					     .left = k->plan->passes,
					     .todo = 1};
	k->repaired = SMALL;
	for (uint32_t i = 0; i < RACING_USERS; i++) {
		struct user *u = &k->user[i];

		u->rng.state = sim_hash(s->sc.seed, 93, i);
		u->done = !(k->plan->users & 1u << i);
		u->races = k->plan->races;
		u->rounds = k->plan->rounds;
		u->wait_until = k->plan->start;
	}
}

void
sim_common_destroy(struct sim *s)
{
	struct sim_common *k = s->common;

	if (!k)
		return;
	for (uint32_t i = 0; i < RACING_USERS; i++)
		common_forget(&k->user[i]);
	free(k->racing);
	free(k);
}

void
sim_common_attached(struct sim_program *p)
{
	struct sim_common *k = p->s->common;
	struct weir_region_info info;
	int rc;

	if (!k || k->plan->owner != p->id)
		return;
	k->start = k->plan->maps ? 0 : LEAD;
	k->length = k->plan->maps ? REGION : BYTES;
	rc = weir_region_alloc(p->w, REGION, NULL, &k->region);
	if (!rc)
		rc = weir_export(k->region, k->start, k->length,
				 RIGHTS | (k->plan->maps ? WEIR_MAY_MAP : 0), &k->x, &k->key);
	if (rc)
		sim_fail(p->s, "program %u: exports no common memory: %d: %s", p->id, rc,
			 weir_reason());
	weir_region_info(k->region, &info);
	k->base = info.base;
	for (uint32_t i = 0; i < REGION; i++)
		if (i < k->start || i >= k->start + BYTES)
			k->base[i] = common_byte(i, i >> 8);
	k->exported = true;
	for (uint32_t i = 0; i < p->s->sc.programs; i++)
		sim_program_poke(p->s, i);
}

/* ---- the end of a user ---- */

void
common_poke_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->sc.programs; i++)
		sim_program_poke(s, i);
}

/*
 * The user has ended, or cannot reach the memory any more. Ranges are lost that it has, or gets, or
 * has passed on behind operations which may not have taken effect.
 */
static void
lose(struct sim *s, uint32_t id)
{
	struct sim_common *k = s->common;
	struct user *u = &k->user[id];

	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state <= PASSED && i != BY_LOCK &&
		    (r->holder == id || (r->state == PASSED && r->from == id && r->edge != TOLD)))
			r->state = LOST;
	}
	if (u->kind == WEIR_LOCK_EXCLUSIVE) {
		k->in_doubt |= u->lock >= HOLDS;
		k->maybe |= u->lock < HOLDS; /* its UNLOCK may not have left */
		if (u->lock >= HOLDS && u->wrote)
			k->repaired = 0;
	}
	k->maybe |= u->owes;
	racing_lost(k->racing, id);
	common_forget(u);
	u->lock = IDLE;
	u->done = true;
	common_poke_all(s);
}

static void
give_up(struct user *u)
{
	weir_remote_close(u->r);
	u->r = NULL;
	u->done = true;
}

static bool
is_cut_off(const struct sim *s, uint32_t a, uint32_t b)
{
	return s->now >= s->sc.cut_at && (s->sc.program[a].node == s->sc.cut_node) !=
					     (s->sc.program[b].node == s->sc.cut_node);
}

/* An operation, or opening, has failed. */
void
common_failed(struct sim_program *p, struct user *u, int rc)
{
	struct sim *s = p->s;
	uint32_t owner = s->common->plan->owner;

	sim_trace(s, "program %u: common memory of program %u: %d", p->id, owner, rc);
	sim_progress(s);
	if (s->program[owner]->dead || is_cut_off(s, p->id, owner)) {
		give_up(u);
		lose(s, p->id);
	} else if (!u->opened &&
		   (rc == -ENOSPC || rc == -EMFILE || rc == -EHOSTUNREACH ||
		    (rc == -ENOMEM && s->sc.faults) ||
		    (rc == -ETIMEDOUT && sim_offers_lost(s, p->node, s->sc.program[owner].node)))) {
		weir_remote_close(u->r);
		u->r = NULL;
		u->wait_until = s->now + RETRY + rng_below(&u->rng, RETRY);
	} else {
		sim_fail(s, "program %u: common memory of program %u: %d: %s", p->id, owner, rc,
			 weir_reason());
	}
}

/* rc: of a call that begins an operation. True: the operation has begun. */
bool
common_has_begun(struct sim_program *p, struct user *u, int rc)
{
	if (!rc && !u->opened) { /* others may pass ranges on to it */
		u->opened = true;
		common_poke_all(p->s);
	}
	if (!rc) {
		sim_progress(p->s);
		return true;
	}
	/* the handle waits for room for a link to a node that is cut off for good, which this
	 * control tells only data planes that have one */
	if (rc == -EAGAIN && !u->opened && is_cut_off(p->s, p->id, p->s->common->plan->owner) &&
	    p->s->now - p->s->sc.cut_at > 12 * SIM_S)
		rc = -ENOSPC;
	if (rc == -EAGAIN)
		u->wait_until = p->s->now + 20 * SIM_US;
	else
		common_failed(p, u, rc);
	return false;
}

/* ---- users ---- */

/* A signal word was read. */
static void
polled(struct sim_program *p, struct user *u, const struct operation *o)
{
	struct range *r = &p->s->common->range[o->range % RANGES];

	u->polls = false;
	if (o->range == RANGES)
		return; /* it has opened */
	if (r->state != PASSED || r->edge != BY_SIGNAL || r->holder != p->id)
		return; /* it was lost */
	if (common_is_signalled(p->s, r, o->word))
		common_take_over(p, &u->rng, r);
	else
		u->poll_at = p->s->now + rng_log(&u->rng, SIM_US, 50 * SIM_US);
}

/* All operations of u are complete. */
void
common_complete(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;

	for (uint32_t i = 0; i < RANGES; i++)
		if (k->range[i].state == HELD &&
		    (i == BY_LOCK ? u->lock >= HOLDS : k->range[i].holder == p->id))
			k->range[i].under_way = 0;
	for (uint32_t i = 0; i < u->ops; i++) {
		const struct operation *o = &u->op[i];

		if (o->kind == RACE)
			racing_complete(p->s, k->racing, p->id, &o->race);
		else if (o->kind == POLL)
			polled(p, u, o);
		else
			common_check_result(p->s, p->id, o);
		if (o->kind < POLL)
			common_count(p->s, o);
	}
	common_forget(u);
	u->flushing = false;
	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state == HELD && r->holder == p->id && i != BY_LOCK && r->chosen &&
		    (!r->left || r->edge < BY_NOTICE))
			common_pass_flushed(p, &u->rng, r);
	}
	sim_progress(p->s);
}

static bool
flush(struct sim_program *p, struct user *u)
{
	int rc = weir_remote_flush(u->r, 0);

	if (rc == -EAGAIN) /* its doorbell rings when that has changed */
		return false;
	if (rc)
		common_failed(p, u, rc);
	else
		common_complete(p, u);
	return true;
}

bool
common_operate(struct sim_program *p, struct user *u, struct range *r, bool reads)
{
	struct operation *o = common_next_operation(u);

	common_draw(&u->rng, r, reads, o);
	return common_has_begun(p, u, common_start(p->s->common, u, r, o));
}

static bool
race(struct sim_program *p, struct user *u)
{
	struct operation *o = common_next_operation(u);
	int rc = racing_begin(p->s->common->racing, &u->rng, p->id, u->r, &o->race);

	o->kind = RACE;
	u->ops += !rc;
	u->races -= !rc;
	return common_has_begun(p, u, rc);
}

/* Reads the signal word of a range: the first operation of u, or one that waits for a signal. */
static bool
poll_word(struct sim_program *p, struct user *u, uint32_t which)
{
	struct operation *o = common_next_operation(u);
	uint64_t at = which * sizeof(o->word);
	int rc;

	o->kind = POLL;
	o->range = u->opened ? (uint8_t)which : RANGES;
	if (rng_chance(&u->rng, 500))
		rc = weir_remote_get(u->r, at, &o->word, sizeof(o->word), WEIR_NOWAIT);
	else
		rc = weir_remote_fetch_op(u->r, at, NULL, &o->word, WEIR_T_UINT64, WEIR_ACC_NO_OP,
					  WEIR_NOWAIT);
	if (!common_has_begun(p, u, rc))
		return false;
	u->ops++;
	u->polls = u->flushing = true;
	return true;
}

/* ---- steps ---- */

static bool
is_over(const struct sim_common *k)
{
	for (uint32_t i = 0; i < RANGES; i++)
		if (i != BY_LOCK && k->range[i].state < RETIRED)
			return false;
	return true;
}

/* One thing that u has to do. False: nothing, or not now. */
static bool
act(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	uint32_t first = rng_below(&u->rng, RANGES);

	if (u->ops == UNDER_WAY || (u->ops && rng_chance(&u->rng, 30))) {
		u->flushing = true;
		return true;
	}
	if (u->lock == HOLDS && rng_chance(&u->rng, 500))
		return common_hold(p, u);
	if (u->races && rng_chance(&u->rng, 300))
		return race(p, u);
	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[(first + i) % RANGES];

		if (r->state != HELD || r->holder != p->id || r == &k->range[BY_LOCK])
			continue;
		if (!r->todo)
			return common_pass_on(p, u, r);
		if (!common_operate(p, u, r, false))
			return false;
		r->todo--;
		return true;
	}
	if (u->lock == HOLDS)
		return common_hold(p, u);
	return u->races && race(p, u);
}

/* Takes over what was passed on to u, or looks whether it was. */
static bool
look(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	bool any = false;

	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state != PASSED || r->holder != p->id)
			continue;
		if (common_is_told(p->s, r)) {
			common_take_over(p, &u->rng, r);
			any = true;
		} else if (r->edge == BY_SIGNAL && !u->polls && p->s->now >= u->poll_at &&
			   u->ops < UNDER_WAY) {
			any |= poll_word(p, u, i);
		}
	}
	return any;
}

static bool
begin_some(struct sim_program *p, struct user *u)
{
	uint32_t burst = 1 + rng_below(&u->rng, 8);
	bool any = look(p, u);

	while (burst-- && !u->flushing && !u->done && u->r && p->s->now >= u->wait_until &&
	       u->lock <= HOLDS && act(p, u))
		any = true;
	return any;
}

/* Opens the memory, which the first operation waits for. */
static bool
open_memory(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	uint32_t flags = rng_chance(&u->rng, 300) ? WEIR_OPEN_APART : 0;
	int rc;

	if (!k->exported)
		return false;
	rc = weir_remote_open(p->w, &k->key, RIGHTS, flags, 0, &u->r);
	if (rc)
		common_failed(p, u, rc);
	return true;
}

/* Closes the handle, with gets under way, whose memory is the program's from then on. */
static void
end(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	struct weir_remote_info info;

	weir_remote_info(u->r, &info);
	p->s->counts.mapped += info.mapped != NULL;
	for (uint32_t n = rng_below(&u->rng, 4); n; n--) {
		struct operation *o = common_next_operation(u);

		o->kind = GET;
		o->length = sim_borders[rng_below(&u->rng, 14)];
		common_draw_offset(&u->rng, &k->range[BIG], o, 1);
		if (common_start(k, u, &k->range[BIG], o))
			break;
	}
	give_up(u);
	for (uint32_t i = 0; i < u->ops; i++)
		memcpy(u->op[i].legal, u->op[i].result, u->op[i].length);
	common_poke_all(p->s);
}

static bool
use(struct sim_program *p, struct user *u)
{
	struct sim *s = p->s;
	struct sim_common *k = s->common;
	bool any = false;

	if (u->done || s->now < u->wait_until)
		return false;
	if (!u->r && sim_program_gone(s, k->plan->owner)) {
		u->done = true;
		return true;
	}
	if (!u->r)
		return open_memory(p, u);
	if (!u->opened)
		return poll_word(p, u, 0);
	if (u->lock == ASKS)
		return common_ask(p, u);
	if (u->lock == LEAVES)
		return common_leave(p, u);
	if (u->flushing)
		any = flush(p, u);
	if (u->flushing || u->done)
		return any;
	if (u->lock == IDLE && u->rounds && s->now >= u->lock_at) {
		u->kind = rng_chance(&u->rng, 300) ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE;
		u->asked = false;
		u->lock = ASKS;
		common_ask(p, u);
		return true;
	}
	any |= begin_some(p, u);
	if (u->r && !u->done && u->lock == IDLE && !u->rounds && !u->races && is_over(k)) {
		u->flushing = u->ops;
		if (!u->ops)
			end(p, u);
		any = true;
	}
	return any;
}

/* A message came to one thread, and the range that it passes on is for another one. */
static void
tell_thread(struct sim_program *p)
{
	struct sim_common *k = p->s->common;

	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state != PASSED || r->holder != p->id || r->edge != BY_MESSAGE || r->woken ||
		    !common_is_told(p->s, r))
			continue;
		r->woken = true;
		sim_program_poke(p->s, p->id);
	}
}

bool
sim_common_step(struct sim_program *p, uint32_t thread)
{
	struct sim_common *k = p->s->common;
	bool owns = k && k->plan->owner == p->id;

	if (!k)
		return false;
	if (thread != (owns ? 0 : p->threads - 1)) {
		tell_thread(p);
		return false;
	}
	if (owns)
		return common_serve(p);
	return k->plan->users & 1u << p->id && use(p, &k->user[p->id]);
}

/* When a signal word is to be looked at that says when p may take a range over. */
static uint64_t
signal_timer(const struct sim_program *p, uint64_t at)
{
	const struct sim_common *k = p->s->common;

	for (uint32_t i = 0; i < RANGES; i++) {
		const struct range *r = &k->range[i];

		if (r->state == PASSED && r->edge == BY_SIGNAL && r->holder == p->id)
			return at > p->s->now ? at : p->s->now + SIM_US;
	}
	return SIM_NEVER;
}

uint64_t
sim_common_timer(const struct sim_program *p)
{
	const struct sim_common *k = p->s->common;
	const struct user *u = k ? &k->user[p->id] : NULL;
	uint64_t now = p->s->now, at;

	if (!k)
		return SIM_NEVER;
	if (k->plan->owner == p->id)
		return signal_timer(p, now + 20 * SIM_US);
	if (u->done || (!u->r && now >= u->wait_until))
		return SIM_NEVER;
	if (now < u->wait_until)
		return u->wait_until;
	if (is_cut_off(p->s, p->id, k->plan->owner)) /* it hears of it in a second */
		return now + SIM_MS;
	/* nothing wakes it when there is room */
	if (!u->opened || (u->lock == ASKS && !u->asked))
		return now + 20 * SIM_US;
	if (u->flushing || u->lock == ASKS || u->lock == LEAVES)
		return SIM_NEVER;
	at = signal_timer(p, u->poll_at);
	if (u->lock == IDLE && u->rounds && u->lock_at < at)
		at = u->lock_at > now ? u->lock_at : now + SIM_US;
	return at;
}

bool
sim_common_over(const struct sim_program *p)
{
	const struct sim_common *k = p->s->common;

	if (!k)
		return true;
	for (uint32_t i = 0; i < p->s->sc.programs; i++)
		if (!k->user[i].done && (i == p->id || k->plan->owner == p->id) &&
		    !sim_program_gone(p->s, i))
			return false;
	return true;
}

void
sim_common_waits_for(const struct sim *s, char *text, size_t size)
{
	const struct sim_common *k = s->common;
	size_t at = strlen(text);

	for (uint32_t i = 0; k && i < RANGES && at < size; i++)
		if (k->range[i].state < RETIRED && i != BY_LOCK)
			at += (size_t)snprintf(
			    text + at, size - at, "[range %u: p%u %s %u]", i, k->range[i].holder,
			    k->range[i].state == HELD ? "todo" : "by",
			    k->range[i].state == HELD ? k->range[i].todo : k->range[i].edge);
	for (uint32_t i = 0; k && i < s->sc.programs && at < size; i++)
		if (!k->user[i].done)
			at += (size_t)snprintf(text + at, size - at,
					       "[p%u%s%s: lock %u, %u under way, %u races]", i,
					       k->user[i].opened ? "" : " opens",
					       k->user[i].flushing ? " flushes" : "",
					       k->user[i].lock, k->user[i].ops, k->user[i].races);
}

/* Nobody uses the memory any more. */
static void
check_left(struct sim *s, const struct sim_common *k)
{
	common_check_around(s, k);
	racing_check(s, k->racing, k->base + k->start + RACING);
	for (uint32_t i = 0; i < RANGES; i++)
		if (i == BY_LOCK ? k->repaired == SMALL : k->range[i].state == RETIRED)
			common_check_loads(s, k, &k->range[i], "at the end");
}

void
sim_common_left(struct sim_program *p, bool dies)
{
	struct sim_common *k = p->s->common;
	struct user *u = k ? &k->user[p->id] : NULL;

	if (!k)
		return;
	if (k->plan->owner == p->id) {
		if (k->base && !dies)
			check_left(p->s, k);
		k->base = NULL;
		for (uint32_t i = 0; i < RANGES; i++)
			if (k->range[i].state < RETIRED)
				k->range[i].state = LOST;
	}
	if (!u->done)
		lose(p->s, p->id);
	for (uint32_t i = 0; i < u->ops; i++)
		common_check_result(p->s, p->id, &u->op[i]);
	common_forget(u);
	u->r = NULL; /* detached */
}
