/* SPDX-License-Identifier: BSD-3-Clause */
/* Two connections of which one is honest: what else happens must not disturb it. */
#ifndef TEST_ENGINE_HONEST_H
#define TEST_ENGINE_HONEST_H

#include "engine_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>

struct pair {
	struct world *w;
	struct program *pa, *pb, *honest;
	struct pconn *a, *b, *x, *y; /* x belongs to the honest program on the hostile one's node */
};

static inline struct pair
pair_open(void)
{
	struct pair p;

	p.w = world_create(NULL);
	p.pa = program_open(p.w, 0, 2);
	p.pb = program_open(p.w, 1, 2);
	p.honest = program_open(p.w, 0, 1);
	world_connect(p.pa, p.pb, &p.a, &p.b);
	world_connect(p.honest, p.pb, &p.x, &p.y);
	return p;
}

static inline void
honest_traffic(struct pair *p)
{
	uint64_t want = p->y->received + 20;

	for (unsigned n = 20, i = 0; i < 2000 && p->y->received < want; i++) {
		if (n && pconn_send(p->x, 400, 0))
			n--;
		world_step(p->w);
	}
	assert_int_equal(p->y->received, want);
	assert_int_equal(p->y->received, p->x->sent);
	assert_false(p->honest->violated || p->pb->violated);
}

static inline uint32_t
next_random(uint32_t *r)
{
	*r ^= *r << 13;
	*r ^= *r >> 17;
	*r ^= *r << 5;
	return *r;
}

#endif
