/* SPDX-License-Identifier: BSD-3-Clause */
/* Many games between two players. */
#ifndef HEX_MATCH_H
#define HEX_MATCH_H

#include "options.h"

struct match_result {
	uint32_t games, wins; /* of A */
	double low, high;     /* 95 % interval of A's share of wins */
};

/*
 * Plays o->games games of two players, each of which is settings that differ from *o, or
 * "htp:COMMAND", a program. Openings have a random stone of each colour and are played twice, with
 * colours swapped. 0, or -errno and error.
 */
int match_run(const struct hex_options *o, const char *const players[2], struct match_result *r,
	      char *error, size_t size);

#endif
