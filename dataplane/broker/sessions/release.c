/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that programs have had: released piece by piece, so that main works between them, and
 * charged to its user until no program can reach it. A program may keep a descriptor or a mapping
 * for as long as it likes; the memory exists, and counts, until then.
 */
#include "memfd.h"
#include "pace.h"
#include "release.h"
#include "sigbus.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>

/* ns between two attempts while a program has the memory: the first, and the longest pause. */
#define FIRST_NS 1000000u
#define LAST_NS BROKER_SECOND_NS

struct broker_release {
	LIST_ENTRY(broker_release) entry;
	struct memfd memory;
	struct broker_user *owner;
	uint64_t charged[USER_LIMITS];
	uint64_t due, pause; /* ns: the next attempt, and the pause after it */
	int guard;	     /* until no engine touches the memory; -1: none */
	bool quiet;	     /* that is so */
	uint64_t moment;     /* it is so once this has passed, see broker_config.quiet_begin */
};

static void
finish(struct broker_release *r)
{
	for (enum user_limit i = 0; i < USER_LIMITS; i++)
		user_give(r->owner, i, r->charged[i]);
	LIST_REMOVE(r, entry);
	free(r);
}

struct broker_release *
release_new(void)
{
	return broker_alloc(sizeof(struct broker_release));
}

void
release_memory(struct broker *b, struct broker_release *r, struct memfd *memory, int guard,
	       struct broker_user *owner, uint64_t bytes, enum user_limit also)
{
	weir_assert(r && owner && also < USER_LIMITS);
	r->memory = memfd_move(memory);
	r->owner = owner;
	r->charged[USER_MEMORY] = bytes;
	if (also != USER_MEMORY)
		r->charged[also] = 1;
	r->pause = FIRST_NS;
	r->guard = guard;
	r->quiet = !b->config.quiet_begin;
	r->moment = r->quiet ? 0 : b->config.quiet_begin(b->config.user);
	LIST_INSERT_HEAD(&b->releases, r, entry);
	b->release_due = 0;
	if (!r->memory.bytes)
		finish(r);
}

/* Releases a piece of the first memory that is due and that no program has. */
uint64_t
release_timers(struct broker *b, uint64_t now)
{
	struct broker_release *r, *after;
	uint64_t next = UINT64_MAX, begin;
	int rc = -EBUSY;

	if (now < b->release_due)
		return LIST_EMPTY(&b->releases) ? UINT64_MAX : b->release_due;
	for (r = LIST_FIRST(&b->releases); r && rc < 0; r = after) {
		after = LIST_NEXT(r, entry);
		if (r->due <= now) {
			begin = pace_clock();
			/* an engine's copy that is under way must not fault */
			if (!r->quiet)
				r->quiet = b->config.quiet_passed(b->config.user, r->moment);
			if (r->quiet) {
				sigbus_guard_remove(r->guard);
				r->guard = -1;
				rc = memfd_release(&r->memory, MEMFD_PIECE);
			}
			user_charge(r->owner, pace_clock() - begin, false);
		}
		if (!rc) {
			finish(r);
		} else if (rc < 0) {
			if (r->due <= now) {
				r->due = now + r->pause;
				r->pause = r->pause < LAST_NS / 2 ? 2 * r->pause : LAST_NS;
			}
			next = r->due < next ? r->due : next;
		}
	}
	b->release_due = rc < 0 ? next : now;
	return LIST_EMPTY(&b->releases) ? UINT64_MAX : b->release_due;
}

void
release_all(struct broker *b)
{
	struct broker_release *r;

	while ((r = LIST_FIRST(&b->releases))) {
		sigbus_guard_remove(r->guard);
		memfd_close(&r->memory);
		finish(r);
	}
}
