/* SPDX-License-Identifier: BSD-3-Clause */
/* The range that the lock protects: its holder repairs it if the one before ended in the middle. */
#include "common_state.h"

#include "remote/lock.h"

#include <errno.h>

#define REPAIR 900u /* bytes of a put that makes the range consistent */

/* It was granted. */
static void
enter(struct sim_program *p, struct user *u, bool told)
{
	struct sim *s = p->s;
	struct sim_common *k = s->common;
	/* its connections end one after the other: a holder may not have heard of it yet */
	bool ends = s->program[k->plan->owner]->dead;

	for (uint32_t i = 0; i < s->sc.programs && !ends; i++) {
		const struct user *v = &k->user[i];

		if (v != u && v->lock >= HOLDS &&
		    (u->kind == WEIR_LOCK_EXCLUSIVE || v->kind == WEIR_LOCK_EXCLUSIVE))
			sim_fail(s, "programs %u and %u hold the lock of common memory", p->id, i);
	}
	if (told != k->in_doubt && (!told || !k->maybe) && !ends)
		sim_fail(s, "program %u: a holder has %sended, and it is told %s", p->id,
			 k->in_doubt ? "" : "not ", told ? "so" : "nothing");
	if (u->kind == WEIR_LOCK_EXCLUSIVE)
		k->in_doubt = false;
	u->lock = HOLDS;
	u->owes = false; /* requests take effect in order */
	u->wrote = false;
	u->todo = 1 + rng_below(&u->rng, 5);
	s->counts.passed_lock++;
	sim_progress(s);
}

bool
common_ask(struct sim_program *p, struct user *u)
{
	bool asked = u->asked;
	int rc = weir_lock_step(u->r, u->kind, &u->asked);

	if (rc == -EAGAIN)
		return u->asked && !asked;
	if (rc && rc != -EOWNERDEAD)
		common_failed(p, u, rc);
	else
		enter(p, u, rc);
	return true;
}

/* Writes the next part of a range that a holder has left in doubt. */
static bool
repair(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	struct range *r = &k->range[BY_LOCK];
	struct operation *o = common_next_operation(u);

	o->kind = PUT;
	o->offset = r->at + k->repaired;
	o->length = SMALL - k->repaired < REPAIR ? SMALL - k->repaired : REPAIR;
	if (!common_has_begun(p, u, common_start(k, u, r, o)))
		return false;
	k->repaired += o->length;
	return true;
}

bool
common_leave(struct sim_program *p, struct user *u)
{
	int rc = weir_remote_unlock(u->r, 0);

	if (rc == -EAGAIN)
		return false;
	if (rc) {
		common_failed(p, u, rc);
		return true;
	}
	common_complete(p, u);
	u->lock = IDLE;
	u->owes |= u->kind == WEIR_LOCK_EXCLUSIVE;
	u->rounds--;
	u->lock_at = p->s->now + rng_log(&u->rng, SIM_US, 100 * SIM_US);
	return true;
}

/* One thing that u does while it holds the lock. */
bool
common_hold(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	bool reads = u->kind == WEIR_LOCK_SHARED;

	if (!reads && k->repaired < SMALL)
		return repair(p, u);
	if (!u->todo || k->repaired < SMALL) {
		u->lock = LEAVES;
		return true;
	}
	if (!common_operate(p, u, &k->range[BY_LOCK], reads))
		return false;
	u->todo--;
	return true;
}
