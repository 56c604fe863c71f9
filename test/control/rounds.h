/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases that say what must not happen within a time: a process that gets no CPU for long makes it
 * happen, and that is no fault. Each round runs in a process of its own, beside a witness of how
 * long the processes of the round did not run. A round that fails while one of them was starved
 * says nothing and is repeated; one that fails while none was is a failure, the third time at the
 * latest (a witness may miss something), and at once if a control crashed or SURELY() says so.
 */
#ifndef WEIR_TEST_CONTROL_ROUNDS_H
#define WEIR_TEST_CONTROL_ROUNDS_H

#include <stdbool.h>
#include <sys/types.h>

/* In the place of cmocka_unit_test_setup_teardown(). */
#define ROUNDS(name, before, after)                                                                \
	{                                                                                          \
#name, rounds_run, NULL, NULL, &(struct CMUnitTest)                                \
		{                                                                                  \
#name, name, before, after, NULL                                           \
		}                                                                                  \
	}

void rounds_run(void **state);

/* Process `i` of this round is to run from now on; pid 0: it isn't any more. Only 0 and 1 count. */
void rounds_watch(int i, pid_t pid);
/* Something is wrong that no starvation explains: no other round is tried. */
void rounds_broken(void);

#define SURELY(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			rounds_broken();                                                           \
			fail_msg("not so: %s", #condition);                                        \
		}                                                                                  \
	} while (0)

#endif
