/* SPDX-License-Identifier: BSD-3-Clause */
/* Words of an export that several programs update, put and get at once. */
#ifndef WEIR_TEST_SIM_RACING_H
#define WEIR_TEST_SIM_RACING_H

#include "sim.h"

#include "weir/remote.h"

#define RACING_BYTES 192u /* of the export */
#define RACING_USERS 8u
#define RACING_MOST 60u /* operations of each user */

struct racing;

/* An operation under way, where it stays until it is complete. */
struct race {
	uint8_t kind, at, words;
	bool fetches;
	uint64_t value;
	uint64_t before[8]; /* what the user's operations before it have made of each word */
	uint64_t result[8];
};

/* `offset`: of the words in the export, a multiple of 16. */
struct racing *racing_create(uint32_t offset);
/* Draws an operation of `user` and begins it: what the call returns. 0: it is `o`. */
int racing_begin(struct racing *x, struct rng *r, uint32_t user, struct weir_remote *remote,
		 struct race *o);
/* The oldest one of the user is complete: checks its result. */
void racing_complete(struct sim *s, struct racing *x, uint32_t user, const struct race *o);
/* The user has ended. Its operations that are not complete took effect or did not. */
void racing_lost(struct racing *x, uint32_t user);
/* No operation is under way: checks the words. `at`: where they are. */
void racing_check(struct sim *s, const struct racing *x, const uint8_t *at);

#endif
