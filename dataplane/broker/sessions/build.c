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

static struct broker_build *
next_build(struct broker *b)
{
	struct broker_build *next = NULL, *e;

	TAILQ_FOREACH(e, &b->building, entry)
	{
		const struct broker_user *u = e->session->owner, *of_next;

		of_next = next ? next->session->owner : NULL;
		if (!next ||
		    (u == of_next ? left(e) < left(next) : u->built_ns < of_next->built_ns))
			next = e;
	}
	if (next)
		b->built_ns = next->session->owner->built_ns;
	return next;
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

/* Libraries see that the data plane is alive. */
static void
tell_to_wait(struct broker *b)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_WAIT);
	struct broker_build *e;

	TAILQ_FOREACH(e, &b->building, entry)
	if (e->session->pending && e->session->reply)
		e->session->reply(e->session->user, &m, NULL, 0);
}

uint64_t
build_timers(struct broker *b, uint64_t now)
{
	struct broker_build *e = next_build(b);
	const struct build_kind *kind;
	struct broker_session *s;
	uint64_t begin, cost;
	int rc;

	if (!e)
		return UINT64_MAX;
	s = e->session;
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
		b->told_to_wait = now;
		tell_to_wait(b);
	}
	return TAILQ_EMPTY(&b->building) ? UINT64_MAX : now;
}
