/* SPDX-License-Identifier: BSD-3-Clause */
/* An export with a lock, between two nodes and apart on one, and programs that ask for it. */
#ifndef TEST_ENGINE_LOCKS_H
#define TEST_ENGINE_LOCKS_H

#include "worlds/engine_world.h"

#include "engine/export.h"
#include "engine/session.h"
#include "engine/state.h"
#include "weir/memory.h"

#define BYTES 8192u
#define LENGTH 4096u
#define GENERATION 77
#define RIGHTS (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_LOCK)
#define SHARED WEIR_LOCKS_SHARED
#define EXCLUSIVE WEIR_LOCKS_EXCLUSIVE
#define PLACE 7u /* block of the send area, for answers */
#define UNTOLD 0x77777777u

static inline struct engine_export
the_export_of(const struct program *p)
{
	return (struct engine_export){.session = p->id,
				      .number = 2,
				      .generation = GENERATION,
				      .region = 1,
				      .length = LENGTH,
				      .rights = RIGHTS};
}

static inline int
export_command(struct program *p, enum engine_command_type type)
{
	struct engine_command k = {.type = type, .export = the_export_of(p)};

	return program_command(p, &k);
}

static inline struct pair
lock_programs(const struct world_options *o)
{
	struct pair p = pair_programs(o, 1);

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	memset(p.pb->region[0].base, 0, BYTES);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_ADD), 0);
	return p;
}

static inline struct pconn *
open_remote(struct pair *p, uint32_t rights)
{
	struct weir_wire_export x = {.index = 2, .generation = GENERATION, .rights = rights};
	struct pconn *c = pconn_connect_memory(p->pa, &x);

	STEP_MOST(p->w, 400, !c->opened);
	assert_true(c->opened && !c->open_status);
	return c;
}

static inline struct pconn *
open_apart(struct program *by, const struct program *exporter, uint32_t rights)
{
	return pconn_open_apart(
	    by, exporter,
	    &(struct weir_wire_export){.index = 2, .generation = GENERATION, .rights = rights});
}

/* A connection with these rights: i even: of the other node; odd: apart. */
static inline struct pconn *
open_one(struct pair *p, unsigned i, uint32_t rights)
{
	if (i % 2 == 0)
		return open_remote(p, rights);
	return open_apart(program_open(p->w, 1, 1), p->pb, rights);
}

static inline uint32_t
place_of(const struct pconn *c)
{
	uint64_t at = weir_arena_send(&c->p->view.geometry) + PLACE * WEIR_BLOCK_SIZE;

	return (uint32_t)(at / WEIR_SLOT_SIZE) + c->desc;
}

static inline uint8_t *
answer_of(const struct pconn *c)
{
	return c->p->arena + (uint64_t)place_of(c) * WEIR_SLOT_SIZE;
}

/* Status of the last LOCK; UNTOLD: none has come. */
static inline uint32_t
status_of(const struct pconn *c)
{
	uint32_t status;

	memcpy(&status, answer_of(c), sizeof(status));
	return status;
}

static inline void
push(struct pconn *c, uint8_t op, struct weir_cell_lock cell)
{
	struct weir_slot s = {.op = op, .order = (uint16_t)c->sent, .vqpn = c->vqpn};

	memcpy(s.data, &cell, sizeof(cell));
	program_slot(c->p, 0, &s);
	c->sent++;
}

/* As the program with this number among the words; 0: none. */
static inline void
lock_as(struct pconn *c, uint32_t kind, uint32_t member)
{
	uint32_t untold = UNTOLD;

	memcpy(answer_of(c), &untold, sizeof(untold));
	push(c, WEIR_OP_LOCK,
	     (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST,
				     .kind = kind,
				     .result = place_of(c),
				     .member = member});
}

static inline void
lock(struct pconn *c, uint32_t kind)
{
	lock_as(c, kind, 0);
}

static inline void
unlock(struct pconn *c)
{
	push(c, WEIR_OP_UNLOCK, (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST});
}

static inline void
put(struct pconn *c, uint64_t offset, uint64_t value)
{
	struct weir_cell_put cell = {.handle = WEIR_HANDLE_FIRST, .offset = offset};
	struct weir_slot s = {
	    .op = WEIR_OP_PUT, .order = (uint16_t)c->sent, .vqpn = c->vqpn, .length = 8};

	memcpy(cell.payload, &value, sizeof(value));
	memcpy(s.data, &cell, sizeof(cell));
	program_slot(c->p, 0, &s);
	c->sent++;
}

static inline void
get(struct pconn *c, uint64_t offset, uint32_t count)
{
	struct weir_cell_access cell = {.handle = WEIR_HANDLE_FIRST,
					.offset = offset,
					.result = place_of(c) + 64,
					.count = count};
	struct weir_slot s = {.op = WEIR_OP_GET, .order = (uint16_t)c->sent, .vqpn = c->vqpn};

	memcpy(s.data, &cell, sizeof(cell));
	program_slot(c->p, 0, &s);
	c->sent++;
}

static inline uint64_t
completed(const struct pconn *c)
{
	return pconn_completed(c);
}

static inline bool
has(struct pair *p, const struct pconn *c, uint32_t status)
{
	STEP_MOST(p->w, 300, status_of(c) == UNTOLD);
	return status_of(c) == status && completed(c) == c->sent;
}

static inline bool
waits(struct pair *p, const struct pconn *c)
{
	world_run(p->w, 60);
	return status_of(c) == UNTOLD && completed(c) == c->sent - 1;
}

static inline const struct export *
the_export(const struct pair *p)
{
	return &p->w->node[1].engine->sessions[p->pb->id].exports[1];
}

/* Counters of the owner engine, of all its locks. */
static inline void
assert_levels(const struct pair *p, uint64_t holders, uint64_t waiters)
{
	assert_int_equal(node_counters(p->w, 1)->lock_holders, holders);
	assert_int_equal(node_counters(p->w, 1)->lock_waiters, waiters);
}

#endif
