/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for a word of an own export. Engines store signals with release, and ring the threads
 * that sleep for them: a Dekker pair of the sleep flags in the thread's channels and the word
 * (docs/shared-memory.md). Nobody tells of plain stores and puts: a sleep is short.
 */
#include "handle.h"
#include "window.h"

#include "client/channel.h"
#include "client/progress.h"
#include "client/region.h"
#include "client/wait.h"

#define LOOKS_CHECK 64u /* looks at the word until one at what else ends the wait */

static bool
holds(enum weir_compare compare, uint64_t seen, uint64_t value)
{
	switch (compare) {
	case WEIR_EQ:
		return seen == value;
	case WEIR_NE:
		return seen != value;
	case WEIR_GT:
		return seen > value;
	case WEIR_GE:
		return seen >= value;
	case WEIR_LT:
		return seen < value;
	default:
		return seen <= value;
	}
}

struct word {
	const _Atomic uint64_t *at;
	enum weir_compare compare;
	uint64_t value, seen;
	int (*check)(void *arg); /* NULL, or 0 while the wait goes on */
	void *arg;
};

static bool
look(struct word *s)
{
	/* pairs with the release in notice_execute() in dataplane/engine/bulk/notice.c */
	s->seen = atomic_load_explicit(s->at, memory_order_acquire);
	return holds(s->compare, s->seen, s->value);
}

static int
await(struct weir *w, struct word *s, int timeout_ms)
{
	uint32_t channel[WEIR_ENGINES_MAX];
	struct weir_wait wait;
	struct weir_thread *t;
	uint32_t looks = 0;
	int rc;

	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	t = weir_thread_own(w, &rc);
	if (!t)
		return rc;
	weir_lock(t);
	rc = weir_channel_get_all(t, channel); /* any engine may ring */
	weir_unlock(t);
	if (rc)
		return rc;
	weir_wait_init(&wait, t, timeout_ms);
	wait.signals = wait.nap_always = true;
	while (!rc && !look(s)) {
		for (uint32_t i = 1; i < wait.looks; i++) {
			weir_pause();
			if (look(s))
				break;
		}
		if (holds(s->compare, s->seen, s->value))
			break;
		weir_lock(t);
		weir_progress(t, NULL);
		weir_unlock(t);
		if (s->check && (wait.armed || ++looks % LOOKS_CHECK == 0))
			rc = s->check(s->arg);
		if (!rc)
			rc = weir_wait_next(&wait);
		else if (look(s)) /* it was set before */
			rc = 0;
	}
	weir_wait_end(&wait);
	return rc;
}

int
weir_signal_wait(struct weir_export *x, uint64_t offset, enum weir_compare compare, uint64_t value,
		 int timeout_ms, uint64_t *seen)
{
	return weir_signal_wait_with(x, offset, compare, value, timeout_ms, seen, NULL, NULL);
}

int
weir_signal_wait_with(struct weir_export *x, uint64_t offset, enum weir_compare compare,
		      uint64_t value, int timeout_ms, uint64_t *seen, int (*check)(void *arg),
		      void *arg)
{
	struct word s = {.compare = compare, .value = value, .check = check, .arg = arg};
	struct weir_region *region;
	uintptr_t at;
	int rc;

	if (!x || compare < WEIR_EQ || compare > WEIR_LE)
		return weir_fail(-EINVAL, "no export, or an unknown comparison; see weir/remote.h");
	if (weir_state(x->w) == WEIR_FORKED)
		return weir_gone(x->w);
	rc = weir_remote_range(x->length, offset, sizeof(uint64_t));
	if (rc)
		return rc;
	at = (uintptr_t)x->base + offset; /* of a dynamic export the base is 0 */
	if (at % sizeof(uint64_t))
		return weir_fail(-EINVAL,
				 "the word lies at an address that 8 does not divide; correct the "
				 "offset");
	/* the memory stays as long as this call uses it */
	region = weir_region_use(x->w, (void *)at, sizeof(uint64_t), WEIR_ADOPT_EXPOSE);
	if (!region)
		return weir_fail(-ESTALE, "the memory of the export was freed; export other "
					  "memory");
	s.at = (const _Atomic uint64_t *)at;
	rc = look(&s) ? 0 : await(x->w, &s, timeout_ms);
	weir_region_drop(region);
	if (!rc && seen)
		*seen = s.seen;
	return rc;
}
