/* SPDX-License-Identifier: BSD-3-Clause */
/* A program on each of two nodes, and a connection between them. */
#ifndef TEST_ENGINE_PAIR_H
#define TEST_ENGINE_PAIR_H

#include "engine_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct pair {
	struct world *w;
	struct program *pa, *pb;
	struct pconn *a, *b;
};

/* Not connected yet. */
static inline struct pair
pair_programs(const struct world_options *o, unsigned channels)
{
	struct pair p = {.w = world_create(o)};

	p.pa = program_open(p.w, 0, channels);
	p.pb = program_open(p.w, 1, channels);
	return p;
}

static inline struct pair
pair_open(const struct world_options *o, unsigned channels)
{
	struct pair p = pair_programs(o, channels);

	world_connect(p.pa, p.pb, &p.a, &p.b);
	return p;
}

/* Sends n messages, retrying as a program would. */
static inline void
pair_send(struct pair *p, struct pconn *c, uint32_t length, unsigned n)
{
	for (unsigned i = 0; n && i < 100000; i++) {
		while (n && pconn_send(c, length, 0))
			n--;
		world_step(p->w);
	}
	assert_int_equal(n, 0);
}

#endif
