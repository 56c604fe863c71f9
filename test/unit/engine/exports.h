/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The export of a program, and connections to it: of the other node, and apart on one. A test
 * defines START, where the export begins in region 1, and LENGTH before it includes this.
 */
#ifndef TEST_ENGINE_EXPORTS_H
#define TEST_ENGINE_EXPORTS_H

#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "engine/session.h"
#include "weir/memory.h"

#define EXPORT 2u     /* its number */
#define GENERATION 77 /* of its number's life */

static inline struct engine_export
the_export(const struct program *p, uint32_t rights)
{
	return (struct engine_export){.session = p->id,
				      .number = EXPORT,
				      .generation = GENERATION,
				      .region = 1,
				      .offset = START,
				      .length = LENGTH,
				      .rights = rights};
}

static inline int
export_command(struct program *p, enum engine_command_type type, uint32_t rights)
{
	struct engine_command k = {.type = type, .export = the_export(p, rights)};

	return program_command(p, &k);
}

static inline struct weir_wire_export
the_key(uint32_t rights)
{
	return (struct weir_wire_export){
	    .index = EXPORT, .generation = GENERATION, .rights = rights};
}

static inline struct pconn *
open_remote(struct program *by, uint32_t rights)
{
	struct weir_wire_export x = the_key(rights);
	struct pconn *c = pconn_open_remote(by, &x);

	assert_int_equal(c->bytes, LENGTH);
	return c;
}

/* By a program on the exporting node. */
static inline struct pconn *
open_apart(struct program *by, const struct program *exporter, uint32_t rights)
{
	struct weir_wire_export x = the_key(rights);
	struct pconn *c = pconn_open_apart(by, exporter, &x);

	assert_int_equal(c->bytes, LENGTH);
	return c;
}

/* A connection with these rights: i even: of the other node; odd: apart. */
static inline struct pconn *
open_one(struct pair *p, unsigned i, uint32_t rights)
{
	if (i % 2 == 0)
		return open_remote(p->pa, rights);
	return open_apart(program_open(p->w, 1, 1), p->pb, rights);
}

#endif
