/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting. */
#include "store.h"

#include "base/monotonic.h"

/* ms of one sleep, if nothing else ends it: a process that was lost wakes all threads, but one of
 * them may be told in the place of another. */
#define SLEEP_MS 500
#define SLEEP_BUSY_MS 1
#define SPILL_MS 10 /* one wait for a file */

struct wait
wait_begin(int timeout_ms)
{
	struct wait w = {.end = timeout_ms < 0 ? UINT64_MAX : 0};

	if (timeout_ms > 0)
		w.end = monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
	return w;
}

int
wait_left(const struct wait *w, int most_ms)
{
	uint64_t now, left;

	if (w->end == UINT64_MAX || !w->end)
		return w->end ? most_ms : 0;
	now = monotonic_ns();
	left = now < w->end ? (w->end - now + 999999u) / 1000000u : 0;
	return left < (uint64_t)most_ms ? (int)left : most_ms;
}

int
no_buffers(const struct shuffle_thread *t)
{
	const struct weir_shuffle *s = t->s;

	if (s->o.kind == WEIR_SHUFFLE_STREAM)
		return weir_fail(-ENOBUFS,
				 "unread records of the thread leave no room in `memory`, %llu "
				 "bytes; read some, then call again",
				 (unsigned long long)s->o.memory);
	return weir_fail(-ENOBUFS,
			 "blocks that are not read yet fill `memory`, %llu bytes; raise it",
			 (unsigned long long)s->o.memory);
}

/* Whether the thread has something to do that no call tells of. */
static bool
is_busy(const struct shuffle_thread *t)
{
	const struct weir_map *m;

	LIST_FOREACH(m, &t->maps, in_thread)
	if (m->open || !TAILQ_EMPTY(&m->waiting))
		return true;
	return false;
}

int
shuffle_turn(struct shuffle_thread *t, const struct wait *w)
{
	struct weir_shuffle *s = t->s;
	struct weir_map *m;
	int rc = shuffle_state(s);

	if (rc)
		return rc;
	if (!memory_begin_turn(t)) {
		rc = store_spill(t, s->memory.reserve[MEMORY_RX], wait_left(w, SPILL_MS));
		/* others may have moved what it held */
		if (rc != -ENOBUFS || !memory_begin_turn(t))
			return rc;
	}
	memory_wake(s);
	rc = weir_invoker_progress(s->v, 1, wait_left(w, is_busy(t) ? SLEEP_BUSY_MS : SLEEP_MS));
	memory_end_turn(t);
	LIST_FOREACH(m, &t->maps, in_thread)
	{
		envelopes_leave_late(m);
		envelopes_push(m);
	}
	return rc < 0 ? shuffle_failed(s, rc, s->self) : 0;
}
