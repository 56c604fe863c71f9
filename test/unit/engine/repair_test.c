/* SPDX-License-Identifier: BSD-3-Clause */
/* A link whose QPs fail goes on with new ones, and the programs on it don't notice. */

#include "answers.h"

#include "engine/rndv.h"
#include "engine/state.h"

#define ROUNDS 256

/* QPs of a world by round, node, index: packets may name old ones. */
static struct fake_qp made[ROUNDS][2][2];
static unsigned rounds_made;
static struct engine_link_command paused[2];

/* Two programs with two channels; rings change at any time. */
#define REPAIRED(...) (rounds_made = 0, PAIR(2, .ring_idle_ns = 7000, __VA_ARGS__))

static struct nic_qp *
qp_of(struct pair *p, unsigned i, unsigned k)
{
	return p->w->node[i].link.qp[k];
}

static void
pause_end(struct pair *p, unsigned i, uint32_t resumes)
{
	struct engine_command k = {.type = ENGINE_LINK_PAUSE, .link = p->w->node[i].link};

	for (unsigned q = resumes == WEIR_RESUME_BOTH ? 0 : 1; q < 2; q++)
		((struct fake_qp *)qp_of(p, i, q))->dead = true;
	k.link.resumes = resumes;
	assert_int_equal(node_command(&p->w->node[i], &k), 0);
	paused[i] = k.link;
}

static void
pause_both(struct pair *p, uint32_t resumes)
{
	pause_end(p, 0, resumes);
	pause_end(p, 1, resumes);
}

/* New QPs, joined. */
static void
make_qps(struct pair *p, uint32_t resumes)
{
	assert_true(rounds_made < ROUNDS);
	for (unsigned k = resumes == WEIR_RESUME_BOTH ? 0 : 1; k < 2; k++) {
		for (unsigned i = 0; i < 2; i++) {
			struct node *n = &p->w->node[i];
			struct fake_qp *q = &made[rounds_made][i][k];

			fake_qp_init(q, n->nic, engine_link_user(n->engine, 1, k));
			n->link.qp[k] = (struct nic_qp *)q;
		}
		fake_qp_join(&made[rounds_made][0][k], &made[rounds_made][1][k]);
	}
	rounds_made++;
}

static int
resume_end(struct pair *p, unsigned i, uint32_t resumes)
{
	struct engine_command k = {.type = ENGINE_LINK_RESUME, .link = p->w->node[i].link};
	const struct nic_mr *mr;

	k.link.resumes = resumes;
	k.link.consumed = paused[!i].consumed;
	k.link.received = paused[!i].received;
	k.link.ring_mr = *node_ring_mr(&p->w->node[i], paused[i].rings.ring_least);
	mr = node_ring_mr(&p->w->node[!i], paused[!i].rings.ring_least);
	k.link.peer_ring_address = mr->address;
	k.link.peer_ring_rkey = mr->rkey;
	k.link.peer_ring_lines = paused[!i].rings.ring_lines;
	return node_command(&p->w->node[i], &k);
}

/* Both ends, with new QPs. */
static void
resume_both(struct pair *p, uint32_t resumes)
{
	make_qps(p, resumes);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(resume_end(p, i, resumes), 0);
}

/* Ten messages have left and not arrived. */
static void
pause_behind_ten(struct pair *p)
{
	pconn_sends(p->a, 48, 0, 10);
	world_run(p->w, 1);
	pause_both(p, WEIR_RESUME_BOTH);
}

/* A WRITE of a message of 500,000 bytes is under way. */
static void
pause_bulk_in_flight(struct pair *p)
{
	const struct peer_link *l = &p->w->node[0].engine->links[1];

	assert_true(pconn_send(p->a, 500000, 0));
	STEP_WHILE(p->w, !l->flight_bytes);
	pause_both(p, WEIR_RESUME_BULK);
}

static void
go(struct pair *p, unsigned i)
{
	struct engine_command k = {.type = ENGINE_LINK_GO, .link = p->w->node[i].link};

	assert_int_equal(node_command(&p->w->node[i], &k), 0);
}

static void
repair(struct pair *p, uint32_t resumes)
{
	pause_end(p, 0, resumes);
	world_run(p->w, 2);
	pause_end(p, 1, resumes);
	resume_both(p, resumes);
	go(p, 0);
	go(p, 1);
}

static uint32_t
any_length(unsigned i)
{
	static const uint32_t lengths[] = {0, 48, 49, 948, 949, 5000, 8192, 8193, 65536, 300000};

	return lengths[i * 7 % (sizeof(lengths) / sizeof(lengths[0]))];
}

static bool
send_any(struct pconn *c, unsigned i)
{
	static const unsigned ways[] = {0, WEIR_SLOT_BULK | WEIR_SLOT_READ,
					WEIR_SLOT_BULK | WEIR_SLOT_WRITE, 0, 0};

	if (i % 5 == 3 && any_length(i) <= 1920)
		return pconn_send(c, any_length(i), WEIR_SLOT_SEND);
	return pconn_send(c, any_length(i), ways[i % 5]);
}

/* Both ways, all sizes, a fault every few microseconds. The programs check what they receive. */
static void
test_streams(void **state)
{
	for (uint32_t resumes = WEIR_RESUME_BULK; resumes <= WEIR_RESUME_BOTH; resumes++) {
		struct pair p = REPAIRED(.delay_ns = 3000, .ring_lines = 256);
		unsigned sent[2] = {0};

		for (unsigned step = 0; step < 4000; step++) {
			for (unsigned i = 0; i < 2; i++)
				if (sent[i] < 500 && send_any(i ? p.b : p.a, sent[i]))
					sent[i]++;
			world_step(p.w);
			if (step % 37 == 36 && rounds_made < 50)
				repair(&p, resumes);
		}
		assert_receives(p.b, 20000, p.a->sent);
		assert_int_equal(p.a->received, p.b->sent);
		assert_int_equal(pconn_completed(p.a), p.a->sent);
		assert_int_equal(pconn_completed(p.b), p.b->sent);
		assert_true(p.a->sent > 100 && rounds_made == 50);
		assert_true(node_counters(p.w, 0)->bulk_replayed > 0);
		assert_true(node_counters(p.w, 0)->fetched > 10);
	}
}

/* The bulk QP is gone: messages of the ring go on. */
static void
test_bulk_alone(void **state)
{
	struct pair p = REPAIRED(.delay_ns = 2000);

	world_connect(p.pa, p.pb, &p.x, &p.y);
	pause_bulk_in_flight(&p);
	for (unsigned i = 0; i < 200; i++) {
		assert_true(pconn_send(p.x, 48, 0));
		world_run(p.w, 30);
	}
	assert_int_equal(p.y->received, 200);
	assert_int_equal(p.b->received, 0);
	resume_both(&p, WEIR_RESUME_BULK);
	assert_receives(p.b, 200, 0); /* held back */
	go(&p, 0);
	assert_receives(p.b, 200, 1);
}

/* An end that has resumed says nothing until it knows that the other one has. */
static void
test_held_back(void **state)
{
	for (unsigned heard = 0; heard < 2; heard++) {
		struct pair p = REPAIRED(.delay_ns = 2000, .initial_grant = 4096);
		uint64_t writes;

		pause_behind_ten(&p);
		resume_both(&p, WEIR_RESUME_BOTH);
		writes = p.w->net.writes + p.w->net.write_imms;
		world_run(p.w, 3000);
		assert_int_equal(p.w->net.writes + p.w->net.write_imms, writes);
		assert_int_equal(p.b->received, 0);
		go(&p, heard); /* node 1 has nothing to say but its credit, and that is heard */
		assert_receives(p.b, 200, 10);
		assert_int_equal(pconn_completed(p.a), 10);
	}
}

/*
 * Credit that arrived behind lost frames doesn't count until they have arrived again: they may say
 * that messages which it covers were refused.
 */
static void
test_credit_of_lost_frames(void **state)
{
	struct pair p = REPAIRED(.delay_ns = 2000, .initial_grant = 4096);
	const struct peer_link *l;

	pause_behind_ten(&p);
	l = &p.w->node[0].engine->links[1];
	atomic_store(&p.w->node[0].credit[0].consumed, l->tx_posted);
	atomic_store(&p.w->node[0].credit[0].wrs, l->wrs_used);
	make_qps(&p, WEIR_RESUME_BOTH);
	assert_int_equal(resume_end(&p, 0, WEIR_RESUME_BOTH), 0);
	go(&p, 0);
	for (unsigned i = 0; i < 50; i++)
		world_turn(p.w, 0);
	assert_int_equal(pconn_completed(p.a), 0);
	assert_int_equal(resume_end(&p, 1, WEIR_RESUME_BOTH), 0);
	assert_receives(p.b, 200, 10);
	assert_int_equal(pconn_completed(p.a), 10);
}

/* Impossible positions of the peer are refused. */
static void
test_liar(void **state)
{
	for (unsigned lie = 0; lie < 6; lie++) {
		struct pair p = REPAIRED(.delay_ns = 2000, .initial_grant = 4096);
		struct engine_link_command *said = &paused[1];

		pause_behind_ten(&p);
		said->consumed += lie == 0 ? 1 : lie == 1 ? 1000 : 0;
		said->consumed -= lie == 2 ? 1 : 0;
		said->received += lie == 3 ? 1000 : lie == 4 ? UINT64_MAX / 2 : 0;
		said->received = lie == 5 ? UINT64_MAX : said->received;
		make_qps(&p, WEIR_RESUME_BOTH);
		assert_int_equal(resume_end(&p, 0, WEIR_RESUME_BOTH), -EPROTO);
		world_run(p.w, 10);
		world_links_fail(p.w, ECONNRESET);
		world_run(p.w, 10);
		assert_true(p.a->done && p.b->done);
		assert_int_equal(p.a->close_status, ECONNRESET);
	}
}

/* Reports the oldest WR of bulk messages of end i as failed; returns its connection's entry. */
static struct conn *
fail_oldest(struct pair *p, unsigned i, uint8_t status)
{
	struct peer_link *l = &p->w->node[i].engine->links[1];
	struct nic_wc wc = {.status = status,
			    .opcode = i ? NIC_READ : NIC_WRITE,
			    .wr_id = l->sq_done[BULK] + 1,
			    .qp_user = &l->user[1],
			    .qpn = nic_qpn(qp_of(p, i, 1))};
	struct conn *c = l->flights->wrs[wc.wr_id % FLIGHT_WRS].conn;

	p->w->node[i].nic->cq[p->w->node[i].nic->cq_end++ % FAKE_CQ] = wc;
	((struct fake_qp *)qp_of(p, 0, 1))->dead = true;
	((struct fake_qp *)qp_of(p, 1, 1))->dead = true;
	world_run(p->w, 3);
	return c;
}

/* Two connections with a large message each in flight: WRITEs of node 0, or READs of node 1. */
static struct pair
two_in_flight(unsigned i)
{
	unsigned way = WEIR_SLOT_BULK | (i ? WEIR_SLOT_READ : WEIR_SLOT_WRITE);
	struct pair p = REPAIRED(.delay_ns = 2000);
	struct peer_link *l = &p.w->node[i].engine->links[1];

	world_connect(p.pa, p.pb, &p.x, &p.y);
	assert_true(pconn_send(p.a, 500000, way));
	world_run(p.w, 1);
	assert_true(pconn_send(p.x, 500000, way));
	STEP_WHILE(p.w, l->flight_bytes + FLIGHT_SEGMENT <= FLIGHT_BYTES);
	return p;
}

/*
 * A NIC refuses a WRITE, or a READ: it leaves again, a few times. Then that connection ends, and
 * the other goes on.
 */
static void
test_refused(void **state)
{
	static const uint8_t statuses[] = {NIC_WC_REM_ACCESS_ERR, NIC_WC_LOC_PROT_ERR,
					   NIC_WC_LOC_LEN_ERR,	  NIC_WC_REM_INV_REQ_ERR,
					   NIC_WC_REM_OP_ERR,	  NIC_WC_BAD_RESP_ERR};

	for (unsigned k = 0; k < 24; k++) {
		unsigned i = k % 2, refusals = k < 12 ? 1 + k % FLIGHT_DOUBTS : FLIGHT_DOUBTS + 1;
		uint8_t status = statuses[k / 2 % 6];
		struct pair p = two_in_flight(i);
		struct peer_link *l = &p.w->node[i].engine->links[1];
		struct conn *c = fail_oldest(&p, i, status);
		bool ends = refusals > FLIGHT_DOUBTS;

		assert_int_equal(p.w->node[i].link_errors, 1);
		repair(&p, WEIR_RESUME_BULK);
		for (unsigned n = 1; n < refusals; n++) {
			STEP_WHILE(p.w, l->sq_done[BULK] == l->sq_posted[BULK]);
			while (l->flights->wrs[(l->sq_done[BULK] + 1) % FLIGHT_WRS].conn != c)
				world_step(p.w);
			assert_int_equal(c->bulk_doubts, n);
			assert_ptr_equal(fail_oldest(&p, i, status), c);
			repair(&p, WEIR_RESUME_BULK);
		}
		p.x = c->vqpn == (i ? p.b : p.a)->vqpn ? p.x : p.a;
		world_run(p.w, 500);
		assert_false(p.x->done);
		assert_int_equal(pconn_completed(p.x), 1);
		assert_int_equal(p.a->done + p.b->done, ends && p.x != p.a ? 2 : 0);
		assert_int_equal(p.b->received + p.y->received, ends ? 1 : 2);
		/* one succeeded: the next refusal is the first one again */
		assert_true(ends || !c->bulk_doubts);
	}
}

/* The fourth WRITE is refused each time. The three before it, none of them signaled, count. */
static void
test_refused_behind_others(void **state)
{
	struct pair p = REPAIRED(.delay_ns = 2000);

	for (unsigned k = 1; k <= 2 * (FLIGHT_DOUBTS + 1); k++) {
		pconn_sends(p.a, 300, WEIR_SLOT_BULK | WEIR_SLOT_WRITE, k == 1 ? 8 : 3);
		p.w->net.refuse = 4;
		STEP_WHILE(p.w, p.w->node[0].link_errors < k);
		assert_false(p.a->done);
		repair(&p, WEIR_RESUME_BULK);
	}
	world_run(p.w, 400);
	assert_complete(p.a, p.b);
}

/* Small ones in flight, of which few are signaled, and some that the driver has not taken yet. */
static void
test_small(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		unsigned reader = i & 1;
		struct pair p = REPAIRED(.delay_ns = 5000);
		struct peer_link *l = &p.w->node[reader].engine->links[1];

		world_connect(p.pa, p.pb, &p.x, &p.y);
		p.w->node[reader].nic->post_most = i & 2 ? 1 : 0;
		for (unsigned k = 0; k < 10; k++) {
			unsigned way = WEIR_SLOT_BULK | (reader ? WEIR_SLOT_READ : WEIR_SLOT_WRITE);

			pconn_sends(p.a, 300, way, 8);
			pconn_sends(p.x, 300, way, 8);
			STEP_WHILE(p.w, l->sq_posted[BULK] - l->sq_done[BULK] < 8);
			if (i & 2)
				STEP_MOST(p.w, 20, !l->burst);
			repair(&p, WEIR_RESUME_BULK);
			assert_int_equal(l->burst, 0); /* all of them are repeated */
			world_run(p.w, 400);
			assert_complete(p.a, p.b);
			assert_complete(p.x, p.y);
		}
		assert_true(node_counters(p.w, reader)->bulk_replayed >= 80);
	}
}

/*
 * The place of a bulk message is the peer's again when we say RESET: not while a WRITE may come. So
 * is the memory that we read: not while a READ may go there.
 */
static void
test_reset_waits(void **state)
{
	struct pair p = REPAIRED(.delay_ns = 2000);

	pause_bulk_in_flight(&p);
	program_die(p.pa);
	p.w->step_ns = 1000000;
	world_run(p.w, 1000);
	p.w->step_ns = 500;
	assert_false(p.b->done);
	assert_false(p.pa->removed);
	resume_both(&p, WEIR_RESUME_BULK);
	world_run(p.w, 200);
	assert_true(p.b->done);
	pconn_close(p.b);
	world_run(p.w, 200);
	assert_true(p.pa->removed);
}

/* The QPs fail before or after LINK_LEFT has come: the peer's `consumed` says which. */
static void
test_ring_left(void **state)
{
	for (unsigned steps = 0; steps < 24; steps++) {
		struct pair p = REPAIRED(.delay_ns = 4000, .ring_lines = 512);
		const struct peer_link *l = &p.w->node[0].engine->links[1];

		STEP_MOST(p.w, 1000, l->way != WAY_LEFT);
		assert_int_equal(l->way, WAY_LEFT);
		world_run(p.w, steps);
		repair(&p, WEIR_RESUME_BOTH);
		pconn_stream(p.a, p.b, 900, 0, 100);
		pconn_stream(p.b, p.a, 900, 0, 100);
		assert_int_equal(p.w->node[0].link_errors + p.w->node[1].link_errors, 0);
	}
}

/* ---- remote memory ---- */

#define NOTICES 1u    /* channel of the exporting thread */
#define PUT_AT 4096u  /* of a put by WRITE in the export */
#define PUT_OF 10000u /* bytes of it */

static void
notify(struct pconn *c, uint32_t tag)
{
	const struct weir_cell_notice n = {
	    .handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_DELIVER, .tag = tag};
	struct weir_slot s = {.op = WEIR_OP_NOTICE, .order = (uint16_t)c->sent, .vqpn = c->vqpn};

	memcpy(s.data, &n, sizeof(n));
	program_slot(c->p, 0, &s);
	c->sent++;
}

/* Takes a notice, and returns its window. False: there is none. */
static bool
take_notice(struct program *p, uint32_t *tag)
{
	struct weir_slot *s = weir_ring_peek(&p->rx[NOTICES]);
	struct weir_slot back = {.op = WEIR_OP_NOTICED, .length = 1};
	struct weir_slot_notice n;

	if (!s)
		return false;
	assert_int_equal(s->op, WEIR_OP_NOTICE);
	memcpy(&n, s->data, sizeof(n));
	*tag = n.tag;
	back.place[0] = s->vqpn | UINT64_C(1) << 32;
	weir_ring_pop(&p->rx[NOTICES], 1);
	weir_ring_publish_tail(&p->rx[NOTICES]);
	ring_put(&p->returns[NOTICES], &back);
	return true;
}

/* Both programs have region 1; pb exports a part of it, also to WRITEs, and reads its rings itself.
 */
static struct pconn *
open_for_notices(struct pair *p)
{
	struct engine_command k = {.type = ENGINE_EXPORT_ADD,
				   .export = the_export(p->pb, ALL | WEIR_RIGHT_NOTIFY)};
	struct nic_mr mr;

	k.export.channel = NOTICES;
	rounds_made = 0;
	program_adopt(p->pa, 1, BYTES, WEIR_ADOPT_SEND | WEIR_ADOPT_RECV);
	program_adopt(p->pb, 1, BYTES, WEIR_ADOPT_SEND | WEIR_ADOPT_RECV);
	memset(p->pb->region[0].base, 0, BYTES);
	assert_int_equal(program_command(p->pb, &k), 0);
	mr = fake_mr(&p->w->net, p->pb->region[0].base + START, LENGTH,
		     NIC_REMOTE_WRITE | NIC_REMOTE_READ);
	p->w->node[1].key = (struct engine_export_key){mr.address, mr.rkey};
	p->pb->stopped = true;
	return open_remote(p->pa, ALL | WEIR_RIGHT_NOTIFY);
}

/* Whether the place of a put by WRITE has this in each byte. */
static bool
is_put(const struct program *p, uint8_t value)
{
	const uint8_t *at = p->region[0].base + START + PUT_AT;

	return at[0] == value && !memcmp(at, at + 1, PUT_OF - 1);
}

/*
 * Updates, fetches, puts and notices, a fault every few microseconds: each takes effect once, in
 * its order, also if the target had executed it and not said so. A put by WRITE is there when its
 * notice comes, and never again afterwards.
 */
static void
test_memory(void **state)
{
	enum { ALL_ROUNDS = 2000, WORDS = 32, EACH = 4, WRITTEN = 8 };
	struct pair p = pair_programs(
	    &(struct world_options){.delay_ns = 3000, .ring_lines = 256, .ring_idle_ns = 7000}, 2);
	struct pconn *c = open_for_notices(&p);
	const struct peer_link *from = link_of(p.w, 0), *to = link_of(p.w, 1);
	uint32_t begun = 0, seen = 0, came = 0, since = 0, unsaid = 0, tag;
	const int64_t three = 3;

	for (unsigned step = 0; step < 100000 && came < ALL_ROUNDS; step++) {
		/* one put by WRITE at a time: both programs use its memory */
		if (begun < ALL_ROUNDS && begun < seen + WORDS / EACH && begun < came + WRITTEN &&
		    (begun % WRITTEN || begun == came) &&
		    pconn_granted(c) >= (begun + 1) * (uint64_t)WEIR_NOTICE_COST) {
			struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
						     .type = WEIR_T_INT64,
						     .acc = WEIR_ACC_SUM,
						     .offset = 8,
						     .count = 1};

			add(c, 0, 1, begun % WORDS);
			push(c, WEIR_OP_UPDATE, &a, &three, sizeof(three));
			if (begun % WRITTEN) {
				put(c, 16 + begun % WORDS * 8, begun);
			} else {
				const struct weir_cell_transfer t = {.place = WEIR_PLACE(1, 0),
								     .handle = WEIR_HANDLE_FIRST,
								     .offset = PUT_AT};
				struct weir_slot s = {.op = WEIR_OP_TRANSFER,
						      .order = (uint16_t)c->sent,
						      .vqpn = c->vqpn,
						      .length = PUT_OF};

				memset(p.pa->region[0].base, (int)(begun / WRITTEN) + 1, PUT_OF);
				memcpy(s.data, &t, sizeof(t));
				program_slot(c->p, 0, &s);
				c->sent++;
			}
			notify(c, begun++);
		}
		world_step(p.w);
		/* a result is the number of those before it */
		while (seen < begun && pconn_completed(c) > (uint64_t)EACH * seen) {
			assert_int_equal(result_word(p.pa, seen % WORDS), seen);
			seen++;
		}
		while (take_notice(p.pb, &tag)) {
			assert_int_equal(tag, came);
			assert_true(word_at(p.pb, 0) > came && word_at(p.pb, 8) > 3 * (int)came);
			if (came % WRITTEN) {
				assert_int_equal(word_at(p.pb, 16 + came % WORDS * 8), came);
			} else {
				assert_true(is_put(p.pb, (uint8_t)(came / WRITTEN + 1)));
				memset(p.pb->region[0].base + START + PUT_AT, 0, PUT_OF);
			}
			came++;
		}
		assert_true(came % WRITTEN == 0 || is_put(p.pb, 0));
		/* best when the target has executed something and the other end does not know */
		if (++since > 30 && (since > 60 || to->rx_pos != from->credited)) {
			unsaid += to->rx_pos != from->credited;
			repair(&p, rounds_made % 4 ? WEIR_RESUME_BOTH : WEIR_RESUME_BULK);
			since = 0;
		}
	}
	flush(c, 2000);
	assert_true(unsaid > 10);
	assert_int_equal(came, ALL_ROUNDS);
	assert_false(take_notice(p.pb, &tag));
	assert_int_equal(word_at(p.pb, 0), ALL_ROUNDS);
	assert_int_equal(word_at(p.pb, 8), 3 * ALL_ROUNDS);
	assert_true(is_put(p.pb, 0));
	assert_int_equal(node_counters(p.w, 1)->remote_updates, 2 * ALL_ROUNDS);
	assert_int_equal(node_counters(p.w, 1)->remote_notices, ALL_ROUNDS);
	assert_false(p.pa->violated || p.pb->violated || c->done);
}

ENGINE_TESTS(TEST(test_streams), TEST(test_bulk_alone), TEST(test_held_back),
	     TEST(test_credit_of_lost_frames), TEST(test_liar), TEST(test_refused),
	     TEST(test_refused_behind_others), TEST(test_small), TEST(test_reset_waits),
	     TEST(test_ring_left), TEST(test_memory))
