/* SPDX-License-Identifier: BSD-3-Clause */
/* When acknowledgements leave, what they let leave, and how long one may sleep. */
#include "worlds/roce_pair.h"

#include "nic/roce/ack.h"

static void
window_moves(void **state)
{
	struct pair *p = pair_create(NULL);
	struct window *w = &((struct roce_qp *)p->qa)->rq.window;
	uint64_t id = 0, done = 0;

	for (unsigned round = 0; round < 12000; round++) {
		p->net->loss = round / 3000 == 1 ? 20 : 0;
		while (post(p, write_wr(p, ++id, 60000)) == 1)
			;
		id--;
		net_turn(p->net);
		done += p->a->wcs;
		p->a->wcs = 0;
		assert_in_range(w->size, ROCE_MIN_FRAMES * ROCE_FRAME_MAX(1024), 1 << 20);
		if (round == 2999)
			assert_int_equal(w->size, 1 << 20);
		if (round == 5999)
			assert_true(w->size < 100000);
	}
	assert_true(w->size > 200000); /* it has recovered */
	assert_true(done > 100);
	pair_destroy(p);
}

static void
sleep_times(void **state)
{
	struct pair *p = pair_create(NULL);
	struct nic_context *ctx = roce_nic_context(p->a->ctx);
	uint64_t next;
	int fd = 0;

	warm_up(p);
	assert_int_equal(roce_ops.arm(ctx, p->net->now, &fd), UINT64_MAX);
	assert_int_equal(fd, -1);
	p->net->loss = 100;
	assert_int_equal(post(p, write_wr(p, 1, 10)), 1);
	assert_int_equal(roce_ops.arm(ctx, p->net->now, &fd), p->net->now);
	net_turn(p->net);
	next = roce_ops.arm(ctx, p->net->now, &fd);
	assert_in_range(next, p->net->now + 1, p->net->now + 1000000);
	p->net->loss = 0;
	/* sleeping until the time that it says, it sends again; a wake-up in vain is allowed */
	for (unsigned i = 0; i < 2 && p->a->wcs == 0; i++) {
		p->net->now = roce_ops.arm(ctx, p->net->now, &fd) - NET_STEP_NS;
		for (unsigned turn = 0; turn < 4; turn++) /* there, and its ACK a turn later */
			net_turn(p->net);
	}
	expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
	pair_destroy(p);
}

static bool
see_order(struct net *n, const uint8_t *f, uint32_t length)
{
	char *order = n->tap_user;
	size_t seen = strlen(order);

	if (get32(f + IP_AT + 12) == net_ip(1) && seen < 8)
		order[seen] = f[BTH_AT] == RC_ACK ? 'a' : 'w';
	return true;
}

/* An ACK lets the answer in earnest go first. */
static void
ack_after_answer(void **state)
{
	struct pair *p = pair_create(NULL);
	struct nic_send_wr wr = write_wr(p, 1, 10);
	char order[9] = "";

	warm_up(p);
	p->net->step = 100;
	p->net->tap = see_order;
	p->net->tap_user = order;
	p->memory[0][0] = 7;
	assert_int_equal(post(p, wr), 1);
	for (unsigned i = 0; i < 10 && p->memory[1][0] != 7; i++)
		net_turn(p->net);
	wr = pair_wr(p, 1, NIC_WRITE, 1, 10);
	assert_int_equal(nic_post_send(p->qb, &wr, 1), 1);
	nic_flush(roce_nic_context(p->b->ctx), p->net->now);
	for (unsigned i = 0; i < 5; i++)
		net_turn(p->net);
	assert_string_equal(order, "wa");
	assert_int_equal(p->a->wcs, 1);
	assert_int_equal(p->b->wcs, 1);
	pair_destroy(p);
}

/* While frames keep coming one ACK stands for many, and none waits for ever. */
static void
acks_gathered(void **state)
{
	struct pair *p = pair_create(NULL);
	uint64_t before;

	warm_up(p);
	p->net->step = 100;
	before = net_counters(&p->net->node[1]).acks_sent;
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(post(p, write_wr(p, i, 10)), 1);
		net_turn(p->net);
	}
	assert_in_range(net_counters(&p->net->node[1]).acks_sent - before,
			100 * 100 / ROCE_ACK_WAIT_NS - 2, 100 * 100 / ROCE_ACK_WAIT_NS + 2);
	for (unsigned i = 0; i < 3; i++)
		net_turn(p->net);
	assert_int_equal(p->a->wcs, 100);
	pair_destroy(p);
}

/* Short messages that take receive WRs, a turn apart; the turns until an ACK of the last one left.
 */
static unsigned
turns_until_ack(struct pair *p, enum nic_opcode opcode, uint32_t length, unsigned messages)
{
	uint64_t before = net_counters(&p->net->node[1]).acks_sent;
	unsigned turns = 0;

	net_post_recvs(p->b, &p->mr[1], messages, 1024);
	for (unsigned i = 0; i < messages; i++) {
		struct nic_send_wr wr = pair_wr(p, 0, opcode, i, length);

		assert_int_equal(post(p, wr), 1);
		for (unsigned k = 0; k < 2; k++) /* one for the frame to arrive, one at rest */
			net_turn(p->net);
		if (i + 1 < messages)
			assert_int_equal(net_counters(&p->net->node[1]).acks_sent, before);
	}
	for (; net_counters(&p->net->node[1]).acks_sent == before; turns++) {
		net_turn(p->net);
		assert_in_range(turns, 0, 1000);
	}
	net_run(p->net, 100000);
	assert_int_equal(net_counters(&p->net->node[1]).acks_sent, before + 1);
	assert_int_equal(p->a->wcs, messages);
	p->a->wcs = p->b->wcs = 0;
	return turns;
}

/* A message that the program will answer is acknowledged late, with others; the rest at once. */
static void
acks_of_short_messages(void **state)
{
	struct pair *p = pair_create(NULL);
	const unsigned wait = ROCE_ACK_LAZY_NS / 100;

	warm_up(p);
	p->net->step = 100;
	assert_in_range(turns_until_ack(p, NIC_SEND, 64, 1), wait - 3, wait + 3);
	assert_in_range(turns_until_ack(p, NIC_WRITE_IMM, ROCE_ACK_LAZY_BYTES, 1), wait - 3,
			wait + 3);
	/* the wait begins with the first one */
	assert_in_range(turns_until_ack(p, NIC_SEND_IMM, 0, 3), wait - 8, wait - 2);
	assert_in_range(turns_until_ack(p, NIC_SEND, 64, ROCE_ACK_LAZY), 0, 2);
	assert_in_range(turns_until_ack(p, NIC_WRITE, 64, 1), 0, 2);
	assert_in_range(turns_until_ack(p, NIC_SEND, ROCE_ACK_LAZY_BYTES + 1, 1), 0, 2);
	/* a WRITE behind it ends the wait of both */
	net_post_recvs(p->b, &p->mr[1], 1, 1024);
	assert_int_equal(post(p, pair_wr(p, 0, NIC_SEND, 1, 64)), 1);
	for (unsigned i = 0; i < 3; i++)
		net_turn(p->net);
	assert_int_equal(p->a->wcs, 0);
	assert_int_equal(post(p, write_wr(p, 2, 64)), 1);
	for (unsigned i = 0; i < 4; i++)
		net_turn(p->net);
	assert_int_equal(p->a->wcs, 2);
	p->a->wcs = p->b->wcs = 0;
	assert_in_range(turns_until_ack(p, NIC_SEND, 64, 1), wait - 3, wait + 3);
	pair_destroy(p);
}

/* An ACK that waits does not die with its QP: the message has arrived. */
static void
ack_before_the_end(void **state)
{
	struct nic_qp_attr attr = {.state = NIC_QP_ERR};
	struct pair *p = pair_create(NULL);

	warm_up(p);
	p->net->step = 100;
	net_post_recvs(p->b, &p->mr[1], 1, 1024);
	assert_int_equal(post(p, pair_wr(p, 0, NIC_SEND, 1, 64)), 1);
	for (unsigned i = 0; i < 100 && p->b->wcs == 0; i++)
		net_turn(p->net);
	assert_int_equal(p->b->wcs, 1);
	assert_int_equal(p->a->wcs, 0);
	assert_int_equal(roce_ops.qp_modify(p->qb, &attr), 0);
	for (unsigned i = 0; i < 4; i++)
		net_turn(p->net);
	expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
	pair_destroy(p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(window_moves),	      cmocka_unit_test(sleep_times),
	    cmocka_unit_test(ack_after_answer),	      cmocka_unit_test(acks_gathered),
	    cmocka_unit_test(acks_of_short_messages), cmocka_unit_test(ack_before_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
