/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that a dead data plane left behind a full ring are received before -ENODEV. */
#include "worlds/stream_pair.h"

#include "client/wait.h"
#include "stream/conn.h"

#include <limits.h>
#include <stdatomic.h>

static _Atomic int memory_for = INT_MAX; /* allocations that succeed */
static _Atomic int denied;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *
__wrap_malloc(size_t size)
{
	if (memory_for == INT_MAX || atomic_fetch_sub(&memory_for, 1) > 0)
		return __real_malloc(size);
	denied++;
	return NULL;
}

/* Messages written as the engine writes them that keeps them: dataplane/engine/rx/spill.c. */
struct chain {
	struct pair p;
	struct weir_channel_head *head;
	uint32_t block, slot, count;
	uint32_t first_block, first_slot;
	uint32_t order;
};

#define FAR 57u /* the second block */

static struct weir_slot *
block_at(struct chain *k, uint32_t block)
{
	const struct weir_geometry *g = &k->p.b->geometry;

	return (void *)(k->p.b->arena + weir_arena_recv(g) + (uint64_t)block * WEIR_BLOCK_SIZE);
}

static void
show(struct chain *k, uint32_t count)
{
	const struct weir_geometry *g = &k->p.b->geometry;
	uint64_t first = weir_arena_recv(g) / WEIR_BLOCK_SIZE + k->first_block;

	atomic_store(&k->head->spilled, WEIR_SPILL(first, k->first_slot, count));
}

static struct weir_slot *
next_slot(struct chain *k)
{
	struct weir_slot *block = block_at(k, k->block), *s = &block[k->slot];

	k->count++;
	if (++k->slot == WEIR_SPILL_SLOTS) {
		k->slot = 0;
		k->block = FAR;
		atomic_store(&block->seq,
			     (uint32_t)(weir_arena_recv(&k->p.b->geometry) / WEIR_BLOCK_SIZE) +
				 FAR);
	}
	return s;
}

/* One that ends two slots before its first block does. */
static struct chain
open_chain(void)
{
	struct chain k = {
	    .p = pair_open(PLANE_REMOTE, &(struct plane_options){.watched = true}, false)};

	k.head =
	    (void *)(k.p.b->arena + weir_arena_channel(&k.p.b->geometry, k.p.d->channel->index));
	k.block = k.first_block = 3;
	k.slot = k.first_slot = WEIR_SPILL_SLOTS - 2;
	return k;
}

static void
put_head(struct chain *k, struct weir_slot *s, uint8_t op, size_t length)
{
	s->op = op;
	s->flags = 0;
	s->order = (uint16_t)k->order++;
	s->vqpn = k->p.d->vqpn;
	s->length = (uint32_t)length;
}

static void
put(struct chain *k, uint32_t seed, size_t length)
{
	uint8_t *m = make_message(seed, length);
	size_t at = length < WEIR_SLOT_HEAD_BYTES ? length : WEIR_SLOT_HEAD_BYTES;
	struct weir_slot *s = next_slot(k);

	if (length > WEIR_INLINE_MAX) {
		memcpy(block_at(k, 20), m, length);
		put_head(k, s, WEIR_OP_PLACE, length);
		s->place[0] = WEIR_PLACE(0, (uint64_t)((uint8_t *)block_at(k, 20) - k->p.b->arena));
		free(m);
		return;
	}
	put_head(k, s, WEIR_OP_INLINE, length);
	memcpy(s->data, m, at);
	for (size_t n; at < length; at += n) {
		n = length - at < WEIR_SLOT_MORE_BYTES ? length - at : WEIR_SLOT_MORE_BYTES;
		memcpy(((struct weir_slot_more *)(void *)next_slot(k))->data, m + at, n);
	}
	free(m);
}

static void
take(struct chain *k, uint32_t seed, size_t length)
{
	uint8_t in[16384];
	size_t n = 0;

	assert_int_equal(weir_recv(k->p.d, in, sizeof(in), &n, PATIENT), 0);
	assert_int_equal(n, length);
	check_message(in, seed, length);
}

static void
close_chain(struct chain *k)
{
	plane_cut(k->p.f, k->p.a); /* nobody tells it that its peer has gone */
	weir_close(k->p.c);
	weir_close(k->p.d);
	weir_listener_close(k->p.l);
	weir_detach(k->p.a);
	weir_detach(k->p.b);
	plane_destroy(k->p.f);
}

static void
send_one(struct chain *k, uint32_t seed, size_t length)
{
	uint8_t *m = make_message(seed, length);

	assert_int_equal(weir_send(k->p.c, m, length, 0), 0);
	plane_settle(k->p.f);
	free(m);
}

/* A data plane that was only silent moves on what it kept: that was received. */
static void
test_it_lives(void **state)
{
	struct chain k = open_chain();
	uint8_t in[64];
	size_t n;

	put(&k, 0, 30);
	show(&k, k.count);
	plane_cut(k.p.f, k.p.b);
	take(&k, 0, 30);
	send_one(&k, 0, 30);
	for (int i = 0; i < 3; i++)
		weir_poll(k.p.b, &(struct weir_event){0}, 1);
	assert_int_equal(weir_recv(k.p.d, in, sizeof(in), &n, 0), -ENODEV);
	close_chain(&k);
}

/* The ring first; what is in both, once; then the rest, across blocks. */
static void
test_salvage(void **state)
{
	static const size_t sizes[] = {30, 700, 0, 5000, 48, 948, 49};
	struct chain k = open_chain();
	uint8_t in[64];
	size_t n;

	pair_pass(&k.p, k.p.c, k.p.d, 90, 100);
	send_one(&k, 91, 10);
	send_one(&k, 0, sizes[0]);
	k.order = 2;
	for (uint32_t i = 0; i < 7; i++)
		put(&k, i, sizes[i]);
	show(&k, k.count);
	plane_cut(k.p.f, k.p.b);
	take(&k, 91, 10);
	for (uint32_t i = 0; i < 7; i++)
		take(&k, i, sizes[i]);
	assert_int_equal(weir_recv(k.p.d, in, sizeof(in), &n, PATIENT), -ENODEV);
	close_chain(&k);
}

/* The ring has more of them than one, and one that was lost: nothing twice, nothing after that. */
static void
test_order(void **state)
{
	struct chain k = open_chain();
	uint8_t in[64];
	size_t n;

	for (uint32_t i = 0; i < 3; i++)
		send_one(&k, i, 20 + i);
	for (uint32_t i = 0; i < 5; i++)
		put(&k, i, 20 + i);
	k.order++;
	put(&k, 6, 26);
	show(&k, k.count);
	plane_cut(k.p.f, k.p.b);
	for (uint32_t i = 0; i < 5; i++)
		take(&k, i, 20 + i);
	assert_int_equal(weir_recv(k.p.d, in, sizeof(in), &n, 1000), -ENODEV);
	close_chain(&k);
}

/* Chains that no engine writes: what is whole before the fault is received, nothing else is. */
static void
test_bad_chain(void **state)
{
	for (int fault = 0; fault < 6; fault++) {
		struct chain k = open_chain();
		uint8_t in[16384];
		size_t n;

		put(&k, 1, 20);
		put(&k, 2, fault == 4 ? 5000 : 600);
		switch (fault) {
		case 0: /* a link out of the receive memory */
			atomic_store(&block_at(&k, 3)->seq, 0xfffffff0u);
			break;
		case 1: /* and below it */
			atomic_store(&block_at(&k, 3)->seq, 0);
			break;
		case 2: /* ends in a message */
			k.count--;
			break;
		case 3: /* no message */
			block_at(&k, 3)[WEIR_SPILL_SLOTS - 1].op = WEIR_OP_CLOSED;
			break;
		case 4: /* out of the arena */
			block_at(&k, 3)[WEIR_SPILL_SLOTS - 1].place[0] =
			    WEIR_PLACE(0, k.p.b->geometry.bytes - 8);
			break;
		case 5: /* of nobody */
			block_at(&k, 3)[WEIR_SPILL_SLOTS - 1].vqpn ^= 1u << 20;
			break;
		}
		show(&k, k.count);
		plane_cut(k.p.f, k.p.b);
		take(&k, 1, 20);
		assert_int_equal(weir_recv(k.p.d, in, sizeof(in), &n, PATIENT), -ENODEV);
		close_chain(&k);
	}
}

/* Neither a message in the ring nor one that was kept is lost while there is no memory for it. */
static void
test_no_memory(void **state)
{
	for (int kept = 0; kept < 2; kept++) {
		struct chain k = open_chain();
		uint8_t in[64];
		size_t n;

		send_one(&k, k.order++, 20);
		if (kept) {
			put(&k, k.order, 20);
			show(&k, k.count);
		}
		denied = 0;
		memory_for = kept;
		plane_cut(k.p.f, k.p.b);
		while (!denied)
			weir_sleep(100000);
		memory_for = INT_MAX;
		while (!k.p.d->remote_end)
			weir_sleep(100000);
		take(&k, 0, 20);
		if (kept)
			take(&k, 1, 20);
		assert_int_equal(weir_recv(k.p.d, in, sizeof(in), &n, PATIENT), -ENODEV);
		close_chain(&k);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_order),     cmocka_unit_test(test_salvage),
	    cmocka_unit_test(test_it_lives),  cmocka_unit_test(test_bad_chain),
	    cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
