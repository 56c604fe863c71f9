/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Updates by plain code, of types that no CPU updates by one instruction and of exports that
 * engines alone update: two engines of a data plane, each turned by a thread of its own, execute
 * those of their programs on the same memory. None is lost.
 */
#include "worlds/engine_world.h"

#include "weir/memory.h"
#include "weir/type.h"

#include <pthread.h>

#define BYTES 4096u
#define UPDATES 30000u /* of each engine */

static const struct weir_wire_export the_export = {
    .index = 1, .generation = 77, .rights = WEIR_RIGHT_UPDATE};

/* An engine with a program that exports memory, and another one that opens it. */
struct side {
	struct engine *engine;
	struct pconn *c;
	struct weir_cell_access cell; /* of each update */
	uint32_t bytes;		      /* of its operand */
	uint64_t now;
	pthread_t thread;
};

/* `like`: the region, which several engines know. */
static struct side
side_open(struct world *w, unsigned node, const struct engine_region *like, uint32_t more_rights)
{
	struct program *exporter = program_open(w, node, 1);
	struct engine_command region = {.type = ENGINE_REGION_ADD, .region = *like};
	struct engine_command export = {.type = ENGINE_EXPORT_ADD,
					.export = {.session = exporter->id,
						   .number = the_export.index,
						   .generation = the_export.generation,
						   .region = 1,
						   .length = BYTES,
						   .rights = the_export.rights | more_rights}};

	region.region.session = exporter->id;
	assert_int_equal(program_command(exporter, &region), 0);
	assert_int_equal(program_command(exporter, &export), 0);
	return (struct side){
	    .engine = w->node[node].engine,
	    .c = pconn_open_apart(program_open(w, node, 1), exporter, &the_export),
	};
}

static void
turn(struct side *s)
{
	s->now += 1000;
	engine_turn(s->engine, s->now);
}

static void *
adds(void *arg)
{
	struct side *s = arg;
	struct weir_ring *r = &s->c->p->tx[0];

	for (uint32_t i = 0; i < UPDATES; i++) {
		struct weir_slot slot = {.op = WEIR_OP_UPDATE,
					 .order = (uint16_t)s->c->sent,
					 .vqpn = s->c->vqpn,
					 .length = s->bytes};

		memcpy(slot.data, &s->cell, sizeof(s->cell));
		while (!weir_ring_room(r)) {
			turn(s);
			weir_ring_refresh(r);
		}
		ring_put(r, &slot);
		s->c->sent++;
	}
	while (pconn_completed(s->c) < UPDATES)
		turn(s);
	return NULL;
}

/* Both add `one` to the same element, of which the sum is returned. */
static void
two_engines(uint8_t type, const void *one, uint32_t bytes, uint32_t more_rights, void *sum)
{
	struct world *w = world_create(&(struct world_options){.no_link = true});
	struct program *owner = program_open(w, 0, 1);
	struct side s[2];

	program_adopt(owner, 1, BYTES, WEIR_ADOPT_SEND);
	memset(owner->region[0].base, 0, BYTES);
	for (unsigned i = 0; i < 2; i++)
		s[i] = side_open(w, i, &owner->region[0], more_rights);
	for (unsigned i = 0; i < 2; i++) {
		s[i].now = w->now;
		s[i].cell = (struct weir_cell_access){.handle = WEIR_HANDLE_FIRST,
						      .type = type,
						      .acc = WEIR_ACC_SUM,
						      .offset = 64,
						      .count = 1};
		memcpy(s[i].cell.payload, one, bytes);
		s[i].bytes = bytes;
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&s[i].thread, NULL, adds, &s[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(s[i].thread, NULL);
	w->now = s[0].now > s[1].now ? s[0].now : s[1].now;
	memcpy(sum, owner->region[0].base + 64, bytes);
}

static void
test_wide(void **state)
{
	long double one = 1, sum;

	two_engines(WEIR_T_LONG_DOUBLE, &one, sizeof(one), 0, &sum);
	assert_true(sum == 2 * UPDATES);
}

static void
test_engines_alone(void **state)
{
	uint64_t one = 1, sum;

	two_engines(WEIR_T_UINT64, &one, sizeof(one), WEIR_RIGHT_ALONE, &sum);
	assert_int_equal(sum, 2 * UPDATES);
}

ENGINE_TESTS(TEST(test_wide), TEST(test_engines_alone))
