/* SPDX-License-Identifier: BSD-3-Clause */
/* A local peer that writes what it likes into the shared segment. */
#include "worlds/plane_fake.h"
#include "worlds/stream_pair.h"

#include "stream/conn.h"

/* Fields that the peer overwrites; each costs only its own connection. */
enum scribble {
	OP,
	LENGTH,
	OFFSET,
	BEHIND, /* the end of the area */
	AGAIN,	/* a place that is on loan */
	PIECE,
	UNKNOWN,
	FOREIGN, /* a connection that goes another way */
	TAIL_BACK,
	TAIL_AHEAD,
	AREA_TAIL,
	CONSUMED,
	SCRIBBLES
};

static void
scribble(struct pair *p, enum scribble what, uint32_t slot, const struct weir_conn *other)
{
	struct weir_segment_geometry g;
	uint8_t *base = plane_segment(p->f, &g);
	struct weir_slot *s = (struct weir_slot *)(base + weir_segment_ring_at(&g, 0)) + slot;
	struct weir_segment_side *side1 =
	    (struct weir_segment_side *)(base + weir_segment_side_at(&g, 1));
	struct weir_segment_conn *line =
	    (struct weir_segment_conn *)(base + weir_segment_conns_at(&g, 1));

	switch (what) {
	case OP:
		s->op = WEIR_OP_RELEASE;
		break;
	case LENGTH:
		s->op = WEIR_OP_INLINE;
		s->length = 949;
		break;
	case OFFSET:
		s->place[0] = g.area_bytes - 64;
		break;
	case BEHIND:
		s->place[0] = slot * 5056ull;
		break;
	case AGAIN:
		s->place[0] = 0;
		break;
	case FOREIGN:
		s->vqpn = other->vqpn;
		break;
	case PIECE:
		s->place[1] = 64;
		s->place[2] = 64;
		break;
	case UNKNOWN:
		s->op = WEIR_OP_NONE;
		break;
	case TAIL_BACK:
	case TAIL_AHEAD:
		atomic_store(&side1->tail, what == TAIL_BACK ? UINT64_MAX - 5 : 1000000);
		break;
	case AREA_TAIL:
		atomic_store(&side1->area_tail, 1ull << 40);
		break;
	case CONSUMED:
		atomic_store(&line->consumed, 1ull << 50);
		break;
	case SCRIBBLES:
		break;
	}
}

/* `by_poll`: the message is met by weir_poll() first, not by weir_recv(). */
static void
hostile_peer(enum scribble what, bool by_poll)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_REMOTE), *d2 = pair_accept(&p);
	static uint8_t m[5000], in[5000];
	struct weir_loan loan = {0};
	struct weir_event e[4];
	int rc = -EAGAIN;
	uint32_t slot;
	size_t n;

	/* 12 messages of 5056 bytes leave no room for a thirteenth before the area's end */
	for (slot = 0; slot < (what == BEHIND ? 12 : what == AGAIN ? 1 : 0); slot++) {
		assert_int_equal(weir_send(p.c, m, 5000, 0), 0);
		assert_int_equal(weir_recv_loan(p.d, &loan, 0), 0);
		if (what == BEHIND)
			weir_release(p.b, &loan);
	}
	assert_int_equal(weir_send(p.c, m, 5000, 0), 0);
	scribble(&p, what, slot, d2);
	if (what < TAIL_BACK) {
		if (by_poll)
			while (weir_poll(p.b, e, 4) > 0 && e[0].type != WEIR_EVENT_CLOSED)
				;
		rc = weir_recv(p.d, in, sizeof(in), &n, 0);
	} else {
		/* the sender looks at the words of the other side when it has filled something */
		for (int i = 0; i < 100000 && (rc == 0 || rc == -EAGAIN); i++) {
			rc = weir_send(p.d, m, what == AREA_TAIL ? 5000 : 900, 0);
			if (what == CONSUMED && !rc) {
				weir_recv(p.c, in, sizeof(in), &n, 0);
				scribble(&p, what, 0, d2);
			}
		}
	}
	assert_int_equal(rc, -EPROTO);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -EPROTO);
	assert_int_equal(weir_send(p.d, m, 1, 0), -EPROTO);
	assert_int_equal(by_poll ? 1 : weir_poll(p.b, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	assert_int_equal(e[0].status, -EPROTO);
	/* another connection of the same two programs doesn't notice */
	assert_int_equal(weir_recv(d2, in, sizeof(in), &n, 0), -EAGAIN);
	pair_pass(&p, c2, d2, 5, 500);
	pair_pass(&p, d2, c2, 6, 500);
	weir_release(p.b, &loan);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

static void
test_hostile_peer(void **state)
{
	for (enum scribble what = 0; what < SCRIBBLES; what++) {
		hostile_peer(what, false);
		if (what < TAIL_BACK)
			hostile_peer(what, true);
	}
}

/*
 * Another message, or a fragment of one, follows the first fragment, while weir_recv() has lent its
 * buffer, or after it (`later`).
 */
static void
among_fragments(uint8_t op, bool later, bool many)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_segment_geometry g;
	uint8_t *base = plane_segment(p.f, &g), *m = make_message(1, g.area_bytes);
	struct weir_slot *s = (struct weir_slot *)(void *)(base + weir_segment_ring_at(&g, 0)),
			 forged;
	struct iovec in = {m, g.area_bytes};
	size_t n;

	assert_int_equal(weir_send(p.c, m, g.area_bytes, 0), 0);
	assert_int_equal(s[1].op, WEIR_OP_PLACE);
	s[1].op = op;
	s[1].length = op == WEIR_OP_INLINE ? 200 : 5000;
	s[1].place[1] = op == WEIR_OP_BUNDLE ? 1 : 0;
	s[1].place[2] = 5000;
	if (later) {
		forged = s[1];
		s[1].seq = 0; /* not there yet */
		assert_int_equal(weir_recv(p.d, m, g.area_bytes, &n, 0), -EAGAIN);
		s[1] = forged;
	}
	if (many)
		assert_int_equal(weir_recv_many(p.d, &in, 1, 0), -EPROTO);
	else
		assert_int_equal(weir_recv(p.d, m, g.area_bytes, &n, 0), -EPROTO);
	assert_int_equal(weir_recv(p.d, m, g.area_bytes, &n, 0), -EPROTO);
	free(m);
	pair_close(&p);
}

static void
test_among_fragments(void **state)
{
	static const uint8_t ops[] = {WEIR_OP_INLINE, WEIR_OP_PLACE, WEIR_OP_BUNDLE};

	for (unsigned i = 0; i < 3; i++)
		for (int k = 0; k < 4; k++)
			among_fragments(ops[i], k & 1, k & 2);
}

/* Random bytes in all that the peer may write, while both ends work: no crash, no endless loop. */
static void
test_scribble_at_random(void **state)
{
	uint32_t seed = 1;

	for (int round = 0; round < 200; round++) {
		struct pair p = pair_open(PLANE_LOCAL, NULL, false);
		struct weir_segment_geometry g;
		uint8_t *base = plane_segment(p.f, &g), in[3000] = {0};
		size_t n;

		for (int i = 0; i < 200; i++) {
			uint64_t at;

			seed = seed * 1664525 + 1013904223;
			at = seed % 4
				 ? weir_segment_ring_at(&g, 0) + seed % (uint32_t)(16 * 64)
				 : 4096 + seed % (uint32_t)(weir_segment_ring_at(&g, 2) - 4096);
			base[at] = (uint8_t)(seed >> 24);
			weir_send(p.d, in, seed % 3000, 0);
			weir_send(p.c, in, (seed >> 8) % 3000, 0);
			weir_recv(p.d, in, sizeof(in), &n, 0);
			weir_recv(p.c, in, sizeof(in), &n, 0);
		}
		pair_close(&p);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_hostile_peer),
	    cmocka_unit_test(test_among_fragments),
	    cmocka_unit_test(test_scribble_at_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
