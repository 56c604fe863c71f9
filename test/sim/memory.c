/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports and puts. Puts of one thread take effect in order, once: after a flush the memory is what
 * the puts so far make of it, and bytes around the export are as they were. When the owner revokes,
 * it holds the result of some first puts, at least of those known to be complete, for ever.
 */
#include "memory.h"
#include "node.h"

#include "weir/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define START 2048u /* of the export in its region */
#define EXPORT 4096u
#define PUT_MAX 2500u
#define CELL_MAX 932u /* longer puts take effect in parts */
#define RETRY (200 * SIM_US)

struct put {
	uint16_t offset, length;
};

struct sim_memory {
	const struct sim_memory_plan *plan;
	struct rng rng;
	/* the owner's */
	struct weir_region *region;
	struct weir_export *x;
	uint8_t *base; /* of the region; NULL: not there yet, or gone */
	bool exported, revoking, revoked;
	uint8_t left[SIM_MEMORY_REGION]; /* what was there when it was revoked */
	/* the user's */
	struct weir_key key;
	struct weir_remote *r;
	uint64_t wait_until;
	uint32_t begun, complete; /* puts */
	bool opened, flushing, done;
	uint8_t model[EXPORT]; /* after `begun` puts */
	struct put put[320];
};

void
sim_memories_create(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_MEMORIES; i++)
		s->memory[i] = NULL;
	for (uint32_t i = 0; i < s->sc.memories; i++) {
		s->memory[i] = calloc(1, sizeof(*s->memory[i]));
		if (!s->memory[i])
			abort();
		s->memory[i]->plan = &s->sc.memory[i];
		s->memory[i]->rng.state = sim_hash(s->sc.seed, 80, i);
		s->memory[i]->wait_until = s->sc.memory[i].start;
	}
}

void
sim_memories_destroy(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_MEMORIES; i++)
		free(s->memory[i]);
}

/* ---- the owner ---- */

void
sim_memory_attached(struct sim_program *p)
{
	struct weir_region_info info;
	int rc;

	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		struct sim_memory *m = p->s->memory[i];

		if (m->plan->owner != p->id)
			continue;
		rc = weir_region_alloc(p->w, SIM_MEMORY_REGION, NULL, &m->region);
		if (!rc)
			rc = weir_export(m->region, START, EXPORT, WEIR_MAY_WRITE, &m->x, &m->key);
		if (rc)
			sim_fail(p->s, "program %u: exports nothing: %d: %s", p->id, rc,
				 weir_reason());
		weir_region_info(m->region, &info);
		m->base = info.base;
		m->exported = true;
		sim_trace(p->s, "program %u: exports memory %u", p->id, i);
	}
}

static uint8_t
byte_of(uint32_t number, uint32_t at)
{
	return (uint8_t)(number * 37 + at * 11 + 1);
}

static void
apply(uint8_t *to, const struct put *put, uint32_t number)
{
	for (uint32_t i = 0; i < put->length; i++)
		to[put->offset + i] = byte_of(number, i);
}

static void
check_around(struct sim *s, const struct sim_memory *m)
{
	for (uint32_t i = 0; i < SIM_MEMORY_REGION; i++)
		if ((i < START || i >= START + EXPORT) && m->base[i])
			sim_fail(s, "a put changed byte %u of a region, %u to %u are exported", i,
				 START, START + EXPORT - 1);
}

/* The memory holds the result of the first puts: of those complete, and maybe of more. */
static void
check_prefix(struct sim *s, const struct sim_memory *m)
{
	uint8_t is[EXPORT] = {0};

	check_around(s, m);
	for (uint32_t i = 0; i < m->complete; i++)
		apply(is, &m->put[i], i);
	for (uint32_t i = m->complete; i <= m->begun; i++) {
		if (!memcmp(m->base + START, is, EXPORT))
			return;
		if (i < m->begun)
			apply(is, &m->put[i], i);
	}
	sim_fail(s, "memory of program %u holds no result of the first %u to %u puts",
		 m->plan->owner, m->complete, m->begun);
}

static bool
revoke(struct sim_program *p, struct sim_memory *m)
{
	int rc;

	if (m->revoking || !m->exported || m->begun < m->plan->revoked_at || m->done)
		return false;
	m->revoking = true;
	rc = weir_revoke(m->x);
	if (rc)
		sim_fail(p->s, "program %u: revoke gives %d: %s", p->id, rc, weir_reason());
	m->x = NULL;
	m->revoked = true;
	check_prefix(p->s, m);
	memcpy(m->left, m->base, sizeof(m->left));
	p->s->counts.exports_revoked++;
	sim_progress(p->s);
	return true;
}

/* ---- the user ---- */

static bool
excused(const struct sim *s, const struct sim_memory *m)
{
	return s->program[m->plan->owner]->dead || s->sc.cut_at != SIM_NEVER;
}

static void
give_up(struct sim_memory *m)
{
	weir_remote_close(m->r);
	m->r = NULL;
	m->done = true;
}

/* An operation, or opening, has failed. */
static void
failed(struct sim *s, struct sim_memory *m, int rc)
{
	uint32_t from = s->sc.program[m->plan->user].node, to = s->sc.program[m->plan->owner].node;

	sim_trace(s, "program %u: memory of program %u: %d", m->plan->user, m->plan->owner, rc);
	sim_progress(s);
	if (m->revoking && (rc == -ESTALE || (rc == -EKEYREJECTED && !m->opened))) {
		if (m->revoked && m->base && memcmp(m->left, m->base, sizeof(m->left)))
			sim_fail(s, "memory of program %u changed after it was revoked",
				 m->plan->owner);
		give_up(m);
	} else if (!m->opened && !excused(s, m) &&
		   (rc == -ENOSPC || rc == -EHOSTUNREACH || (rc == -ENOMEM && s->sc.faults) ||
		    (rc == -ETIMEDOUT && sim_offers_lost(s, from, to)))) {
		weir_remote_close(m->r);
		m->r = NULL;
		m->wait_until = s->now + RETRY + rng_below(&m->rng, RETRY);
	} else if (excused(s, m)) {
		give_up(m);
	} else {
		sim_fail(s, "program %u: memory of program %u: %d: %s", m->plan->user,
			 m->plan->owner, rc, weir_reason());
	}
}

static bool
put_next(struct sim *s, struct sim_memory *m)
{
	uint32_t most = m->plan->revoked_at != UINT32_MAX ? CELL_MAX
			: rng_chance(&m->rng, 100)	  ? PUT_MAX
							  : 64;
	struct put *put = &m->put[m->begun];
	struct rng before = m->rng;
	uint8_t bytes[PUT_MAX];
	int rc;

	put->length = (uint16_t)(1 + rng_below(&m->rng, most));
	put->offset = (uint16_t)rng_below(&m->rng, EXPORT - put->length + 1);
	for (uint32_t i = 0; i < put->length; i++)
		bytes[i] = byte_of(m->begun, i);
	rc = weir_remote_put(m->r, put->offset, bytes, put->length, WEIR_NOWAIT);
	if (rc == -EAGAIN) { /* the same one later */
		m->rng = before;
		m->wait_until = s->now + 20 * SIM_US;
		return false;
	}
	if (rc) {
		failed(s, m, rc);
		return false;
	}
	m->opened = true;
	apply(m->model, put, m->begun++);
	m->flushing = m->begun == m->plan->puts || rng_chance(&m->rng, 50);
	return true;
}

static bool
flush(struct sim *s, struct sim_memory *m)
{
	int rc = weir_remote_flush(m->r, 0);

	if (rc == -EAGAIN) /* its doorbell rings when that has changed */
		return false;
	if (rc) {
		failed(s, m, rc);
		return true;
	}
	if (m->base && !m->revoking) {
		check_around(s, m);
		if (memcmp(m->base + START, m->model, EXPORT))
			sim_fail(s, "after %u puts and a flush memory of program %u differs",
				 m->begun, m->plan->owner);
	}
	s->counts.puts += m->begun - m->complete;
	if (s->sc.program[m->plan->owner].node == s->sc.program[m->plan->user].node)
		s->counts.puts_apart += m->begun - m->complete;
	m->complete = m->begun;
	m->flushing = false;
	sim_progress(s);
	if (m->complete == m->plan->puts)
		give_up(m);
	return true;
}

static bool
use(struct sim_program *p, struct sim_memory *m)
{
	struct sim *s = p->s;
	uint32_t burst = 1 + rng_below(&m->rng, 8);
	bool any = false;
	int rc;

	if (m->done || s->now < m->wait_until)
		return false;
	if (!m->r && sim_program_gone(s, m->plan->owner)) {
		m->done = true;
		return true;
	}
	if (!m->exported)
		return false;
	if (!m->r) {
		rc = weir_remote_open(p->w, &m->key, WEIR_MAY_WRITE, 0, &m->r);
		if (rc)
			failed(s, m, rc);
		return true;
	}
	while (!m->flushing && !m->done && m->r && burst--) {
		if (!put_next(s, m))
			break;
		any = true;
	}
	return m->flushing ? flush(s, m) || any : any;
}

/* ---- both ---- */

bool
sim_memory_step(struct sim_program *p, uint32_t thread)
{
	bool any = false;

	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		struct sim_memory *m = p->s->memory[i];

		if (m->plan->owner == p->id && thread == 0)
			any |= revoke(p, m);
		if (m->plan->user == p->id && thread == i % p->threads)
			any |= use(p, m);
	}
	return any;
}

uint64_t
sim_memory_timer(const struct sim_program *p)
{
	uint64_t at = SIM_NEVER;

	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		const struct sim_memory *m = p->s->memory[i];
		uint64_t until = m->wait_until;

		if (m->done)
			continue;
		/* nothing wakes the owner when it is to revoke, nor the user when it is exported */
		if ((m->plan->owner == p->id && m->plan->revoked_at != UINT32_MAX &&
		     !m->revoking) ||
		    (m->plan->user == p->id && !m->r))
			until = until > p->s->now ? until : p->s->now + 50 * SIM_US;
		else if (m->plan->user != p->id || until <= p->s->now)
			continue;
		if (until < at)
			at = until;
	}
	return at;
}

bool
sim_memory_over(const struct sim_program *p)
{
	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		const struct sim_memory *m = p->s->memory[i];

		if (!m->done &&
		    (m->plan->user == p->id ||
		     (m->plan->owner == p->id && !sim_program_gone(p->s, m->plan->user))))
			return false;
	}
	return true;
}

void
sim_memory_left(struct sim_program *p)
{
	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		struct sim_memory *m = p->s->memory[i];

		if (m->plan->owner == p->id)
			m->base = NULL;
		if (m->plan->user == p->id) {
			m->r = NULL; /* detached */
			m->done = true;
		}
	}
}
