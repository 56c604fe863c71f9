/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "idle.h"

#include "clock.h"
#include "engine/engine.h"
#include "timeslice.h"

#include <sched.h>
#include <sys/resource.h>

void
idle_init(struct idle *i, enum idle_mode mode, uint64_t spin_ns, bool told_shared)
{
	*i = (struct idle){
	    .mode = mode, .spin_ns = spin_ns, .told_shared = told_shared, .shared = told_shared};
}

void
idle_start(struct idle *i, uint64_t now)
{
	i->slice_ns = slice_now();
	i->last_work = now;
}

/*
 * If other threads want this CPU, this one is switched away from although it may spin. A
 * sched_yield() that found no other thread does not count as a switch, so the end of the sharing is
 * soon noticed.
 */
bool
idle_detect_sharing(struct idle *i, uint64_t now)
{
	struct rusage usage;

	if (now - i->usage_checked < idle_tuning.usage_ns || getrusage(RUSAGE_THREAD, &usage))
		return i->shared;
	weir_assert((uint64_t)usage.ru_nivcsw >= i->switches);
	if ((uint64_t)usage.ru_nivcsw - i->switches >= idle_tuning.switches)
		i->shared_until = now + idle_tuning.shared_ns;
	i->switches = (uint64_t)usage.ru_nivcsw;
	i->usage_checked = now;
	i->shared = i->told_shared || now < i->shared_until;
	return i->shared;
}

void
idle_yield(struct idle *i, struct engine *e, const struct clock *clock)
{
	uint64_t before = clock_now(clock);

	sched_yield();
	i->yield_end = clock_now(clock);
	i->yield_took = i->yield_end - before;
	/* after many other threads the caches are theirs: a turn has to be worth more, and credit
	 * waits for a frame that may carry it */
	engine_set_away(e, i->yield_took >= idle_tuning.crowd_ns ? i->yield_took : 0);
	if (i->yield_took >= idle_tuning.alone_ns)
		i->lonely = 0;
	else if (i->lonely < idle_tuning.lonely)
		i->lonely++;
	i->others_idle = i->yield_took < idle_tuning.others_ns;
	i->yielded = true;
	i->busy_turns = 0;
}

void
idle_sleeps(struct idle *i, struct engine *e)
{
	i->yield_took = 0;
	engine_set_away(e, 0);
}

enum idle_step
idle_next_shared(struct idle *i, const struct engine *e, unsigned work, uint64_t now)
{
	uint64_t turn_ns = i->yield_took / idle_tuning.turn_part;
	uint32_t channels;

	weir_assert(i->shared && i->lonely <= idle_tuning.lonely);
	if (!work) {
		/* Programs on this CPU have seen what came of the last work, and had nothing to do:
		 * what they wait for comes from the wire, soon. A frame that arrives while the
		 * engine is switched away waits for two switches. */
		bool expecting = i->yielded && i->others_idle &&
				 i->busy_turns < idle_tuning.few_turns &&
				 now - i->last_work < idle_tuning.expect_ns;
		/* the last yields found no other thread: one now and then is enough */
		bool alone =
		    i->lonely == idle_tuning.lonely && i->empty_turns % idle_tuning.lonely_turns;

		return expecting || alone ? IDLE_PAUSE : IDLE_YIELD;
	}
	channels = engine_active_channels(e);
	/*
	 * Many program threads on this CPU that wait by yields: each of them runs before the engine
	 * runs again. Their messages of one round leave in the next, and are answered in the one
	 * after, so that each thread looks in vain every other time. An engine that runs more often
	 * than they do passes on the messages of some while others still work.
	 */
	if (!i->busy_turns++ && channels && i->slice_ns) {
		i->channels = (15 * i->channels + 256 * channels) / 16;
		if (now - i->slice_at >= idle_tuning.slice_ns) {
			i->slice_at = now;
			if (i->channels > 256 * idle_tuning.many_channels &&
			    i->slice_shift < idle_tuning.slice_shift)
				slice_set(i->slice_ns >> ++i->slice_shift);
			else if (i->channels < 256 * idle_tuning.few_channels && i->slice_shift)
				slice_set(i->slice_ns >> --i->slice_shift);
		}
	}
	if (engine_served(e))
		i->yielded = false;
	if (turn_ns < idle_tuning.turn_ns)
		turn_ns = idle_tuning.turn_ns;
	else if (turn_ns > idle_tuning.turn_most_ns)
		turn_ns = idle_tuning.turn_most_ns;
	if (now - i->yield_end >= turn_ns)
		return IDLE_YIELD; /* others run even while a stream never ends */
	/* few messages were delivered, and their programs run here: answers follow their turn */
	if (i->lonely < idle_tuning.lonely && work <= idle_tuning.few_work && engine_delivered(e))
		return IDLE_YIELD;
	return IDLE_RUN;
}
