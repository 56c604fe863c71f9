/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of rings: freed when the engine has left it and every engine has finished its turn twice,
 * made again when the engine wants it.
 */
#include "worlds/broker_net.h"

#include "broker/link.h"

#define LEAST (ENGINE_RING_LEAST * WEIR_SLOT_SIZE)

static void
says(struct net *n, struct engine_rings rings)
{
	struct broker_link *l = the_link(n, 0);
	struct engine_event e = {.type = ENGINE_EVENT_LINK_RINGS, .conn = {.link = l->id}};

	e.rings = rings;
	if (!e.rings.life)
		e.rings.life = l->rings.life;
	fake_event(n->f[0], 0, &e);
}

TEST_NET(test_returned_and_made, bring_up)
{
	struct fake *f = n->f[0];
	struct broker_link *l = the_link(n, 0);
	size_t before = f->live_memory, ring = l->ring.bytes, staging = l->staging.bytes;
	uint32_t mrs = f->live_mrs, quiet = f->count[ENGINE_QUIET];

	/* late news of an earlier life of the id */
	says(n, (struct engine_rings){.life = l->rings.life + 1, .ring_least = true});
	assert_int_equal(f->live_memory, before);
	f->hold = true;
	says(n, (struct engine_rings){.ring_least = true});
	assert_int_equal(f->live_memory, before); /* a WRITE may be under way */
	assert_int_equal(f->live_mrs, mrs - 1);
	/* wanted again meanwhile: later, and once */
	says(n, (struct engine_rings){.ring_least = true, .ring_wanted = true});
	fake_let_go(f);
	assert_int_equal(f->count[ENGINE_QUIET], quiet + 2);
	assert_int_equal(f->count[ENGINE_LINK_RING], 1);
	assert_ptr_equal(f->last[ENGINE_LINK_RING].link.ring, l->ring.at);
	assert_int_equal(f->live_memory, before);
	assert_int_equal(f->live_mrs, mrs);
	/* news from before the engine has used it don't take it back */
	says(n, (struct engine_rings){.ring_least = true});
	assert_int_equal(f->live_memory, before);
	says(n, (struct engine_rings){.staging_least = true});
	assert_int_equal(f->live_memory, before - staging);
	says(n, (struct engine_rings){.ring_least = true, .staging_least = true});
	assert_int_equal(f->live_memory, before - staging - ring);
	assert_int_equal(link_memory_bytes(l), l->memory_bytes);
	/* without memory the engine is told so */
	f->no_memory = true;
	says(n, (struct engine_rings){
		    .ring_least = true, .staging_least = true, .staging_wanted = 512});
	assert_int_equal(f->count[ENGINE_LINK_STAGING], 1);
	assert_null(f->last[ENGINE_LINK_STAGING].link.staging);
	f->no_memory = false;
	says(n, (struct engine_rings){
		    .ring_least = true, .staging_least = true, .staging_wanted = 512});
	assert_int_equal(f->last[ENGINE_LINK_STAGING].link.staging_lines, 512);
	assert_int_equal(l->staging.bytes, 512 * 64 + engine_staging_bytes(512));
}

/* The engine does not want it any more. */
TEST_NET(test_refused, bring_up)
{
	struct fake *f = n->f[0];
	size_t before = f->live_memory, ring = the_link(n, 0)->ring.bytes;

	says(n, (struct engine_rings){.ring_least = true});
	f->fail_type = ENGINE_LINK_RING;
	f->fail_rc = -EBUSY;
	says(n, (struct engine_rings){.ring_least = true, .ring_wanted = true});
	assert_int_equal(f->count[ENGINE_LINK_RING], 1);
	assert_int_equal(f->live_memory, before - ring);
}

/* A repair offers the ring that is in use, with a new key, and leaves the other one's. */
TEST_NET(test_repaired, bring_up)
{
	struct fake *f = n->f[0];
	struct broker_link *l = the_link(n, 0);
	uint32_t key = l->least.ring_mr.rkey, other = l->ring.mr.rkey;

	f->rings = (struct engine_rings){.ring_least = true, .ring_lines = ENGINE_RING_LEAST};
	says(n, (struct engine_rings){.staging_least = true});
	link_repair(l, WEIR_RESUME_BOTH);
	broker_flush(f->b);
	exchange(n);
	assert_int_equal(l->state, LINK_UP);
	assert_null(f->last[ENGINE_LINK_RESUME].link.staging);
	assert_null(f->last[ENGINE_LINK_RESUME].link.work);
	assert_int_not_equal(l->least.ring_mr.rkey, key);
	assert_int_equal(l->ring.mr.rkey, other);
	assert_int_equal(the_link(n, 1)->peer.ring_rkey, l->least.ring_mr.rkey);
	assert_int_equal(the_link(n, 1)->peer.ring_lines, ENGINE_RING_LEAST);
	assert_int_equal(n->f[1]->last[ENGINE_LINK_RESUME].link.peer_ring_lines, ENGINE_RING_LEAST);
}
