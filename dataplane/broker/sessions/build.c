/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of memory under construction. Users take turns by the CPU time that their memory has
 * cost, so that no program waits for all memory of another user. Of one user the memory that is
 * complete soonest comes first: an arena does not wait for a large region.
 */
#include "build.h"
#include "memfd.h"
#include "pace.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"

#define WAIT_NS BROKER_SECOND_NS /* between two WAIT messages to a program */

static size_t
left(const struct broker_build *e)
{
	return e->memory->bytes - e->memory->present;
}

void
build_enter(struct broker_build *e, const struct build_kind *kind, struct broker_session *s,
	    const struct memfd *memory)
{
	struct broker *b = s->b;

	*e = (struct broker_build){.kind = kind, .session = s, .memory = memory};
	if (TAILQ_EMPTY(&b->building))
		b->told_to_wait = broker_now(b);
	if (s->owner->built_ns < b->built_ns)
		s->owner->built_ns = b->built_ns; /* it has none to catch up with */
	TAILQ_INSERT_TAIL(&b->building, e, entry);
}

void
build_leave(struct broker_build *e)
{
	if (e->kind)
		TAILQ_REMOVE(&e->session->b->building, e, entry);
	e->kind = NULL;
}

uint64_t
build_timers(struct broker *b, uint64_t now)
{
	struct broker_build *e = NULL, *other;
	const struct build_kind *kind;
	struct broker_session *s;
	uint64_t begin, cost;
	int rc;

	TAILQ_FOREACH(other, &b->building, entry)
	{
		const struct broker_user *u = other->session->owner, *of_e;

		of_e = e ? e->session->owner : NULL;
		if (!e || (u == of_e ? left(other) < left(e) : u->built_ns < of_e->built_ns))
			e = other;
	}
	if (!e)
		return UINT64_MAX;
	s = e->session;
	b->built_ns = s->owner->built_ns;
	kind = e->kind;
	begin = pace_clock();
	rc = kind->piece(e);
	cost = pace_clock() - begin;
	s->owner->built_ns += cost;
	kind->charge(e, cost);
	if (rc <= 0)
		build_leave(e);
	if (!rc)
		rc = kind->complete(e);
	if (rc < 0)
		kind->failed(e, rc);
	if (now - b->told_to_wait >= WAIT_NS) {
		struct weir_session_msg m = session_msg(WEIR_MSG_WAIT);

		b->told_to_wait = now;
		/* libraries see that the data plane is alive */
		TAILQ_FOREACH(e, &b->building, entry)
		if (e->session->pending && e->session->reply)
			e->session->reply(e->session->user, &m, NULL, 0);
	}
	return TAILQ_EMPTY(&b->building) ? UINT64_MAX : now;
}
