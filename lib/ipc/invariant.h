/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_INVARIANT_H
#define WEIR_INVARIANT_H

/*
 * A precondition or an invariant of our own code: never input of a program or a peer. Aborts in
 * builds with WEIR_ASSERTS (all but release builds, and what simulators link in these); in others
 * the condition is compiled, not evaluated.
 */
#ifdef WEIR_ASSERTS
#include <assert.h>
#define weir_assert(condition) assert(condition)
#else
#define weir_assert(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

/* Moves a state machine: legal[from] has the bit of each state that may follow. */
#define weir_enter(legal, state, to)                                                               \
	do {                                                                                       \
		weir_assert((legal)[state] >> (to)&1u);                                            \
		(state) = (to);                                                                    \
	} while (0)

#endif
