/* SPDX-License-Identifier: BSD-3-Clause */
/* States of a queue pair: which changes there are, draining, the way back from an error. */
#include "worlds/qp_states.h"
#include "worlds/roce_pair.h"

#define DEPTH 64u

static const struct nic_qp_attr rights = {.access = NIC_REMOTE_WRITE | NIC_REMOTE_READ};

static struct pair *
create(void)
{
	return pair_create_as(NULL, 3, 100, rights);
}

static int
post_op(struct pair *p, uint64_t id, enum nic_opcode opcode, uint32_t length)
{
	return post(p, pair_wr(p, 0, opcode, id, length));
}

static int
modify(struct nic_qp *qp, enum nic_qp_state to)
{
	struct nic_qp_attr attr = {.state = to};

	return roce_ops.qp_modify(qp, &attr);
}

static int
event_of(struct pair *p, unsigned node)
{
	struct nic_async_event event;
	int rc = roce_ops.async_event(roce_nic_device(p->net->node[node].dev), &event);

	return rc ? rc : (int)event.type;
}

static void
expect_ids(struct net_port *port, uint64_t first, unsigned n, enum nic_wc_status status)
{
	assert_int_equal(port->wcs, n);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(port->wc[i].wr_id, first + i);
		assert_int_equal(port->wc[i].status, status);
	}
	port->wcs = 0;
}

static void
bring_to(struct net *n, struct nic_qp *qp, enum nic_qp_state state)
{
	if (state >= NIC_QP_RTR)
		assert_int_equal(net_rtr(qp, &n->node[1], 5, 0), 0);
	else if (state == NIC_QP_INIT)
		assert_int_equal(modify(qp, NIC_QP_INIT), 0);
	if (state >= NIC_QP_RTS)
		assert_int_equal(net_rts(qp, 0), 0);
	if (state > NIC_QP_RTS)
		assert_int_equal(modify(qp, state), 0);
	net_turn(n);
}

static void
every_pair(void **state)
{
	struct net *n = net_create(2, 1, NULL, 1);
	struct nic_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}};

	for (unsigned from = 0; from < STATES; from++) {
		for (unsigned to = 0; to <= STATES; to++) {
			struct nic_qp *qp = net_qp(&n->node[0].port[0]);
			struct nic_qp_attr attr = {.state = (enum nic_qp_state)to,
						   .remote_gid = gid};
			bool yes = to < STATES && allowed[from][to] == 'y';
			unsigned is;

			bring_to(n, qp, (enum nic_qp_state)from);
			assert_int_equal(qp_orders_allow(from, to), yes);
			assert_int_equal(roce_ops.qp_modify(qp, &attr), yes ? 0 : -EINVAL);
			net_turn(n);
			/* where it is now shows in where it may go */
			is = yes ? to : from;
			for (unsigned i = 1; i < NIC_QP_ERR; i++) {
				attr.state = (enum nic_qp_state)i;
				if (allowed[is][i] != 'y')
					assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL);
			}
			roce_ops.qp_destroy(qp);
			net_turn(n);
		}
	}
	net_destroy(n);
}

/* WRs that had begun to leave complete, others wait; the peer is served all the time. */
static void
drained(void **state)
{
	struct pair *p = create();
	struct nic_send_wr back = pair_wr(p, 1, NIC_WRITE, 0, 3000);
	unsigned begun;

	p->net->loss = 5;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(post_op(p, i, i % 3 == 2 ? NIC_READ : NIC_WRITE, 40000), 1);
	net_run(p->net, 50000);
	assert_in_range(p->a->wcs, 0, 9);
	assert_int_equal(modify(p->qa, NIC_QP_SQD), 0);
	for (unsigned i = 10; i < DEPTH; i++)
		assert_int_equal(post_op(p, i, NIC_WRITE, 100), 1);
	assert_int_equal(post_op(p, DEPTH, NIC_WRITE, 100), p->a->wcs != 0);
	assert_int_equal(event_of(p, 0), -EAGAIN);
	assert_int_equal(nic_post_send(p->qb, &back, 1), 1);
	net_run(p->net, SECOND / 5);
	assert_int_equal(event_of(p, 0), NIC_EVENT_SQ_DRAINED);
	assert_int_equal(event_of(p, 0), -EAGAIN);
	expect_ids(p->b, 0, 1, NIC_WC_SUCCESS);
	begun = p->a->wcs;
	assert_in_range(begun, 1, 9);
	expect_ids(p->a, 0, begun, NIC_WC_SUCCESS);
	net_run(p->net, SECOND / 5);
	assert_int_equal(p->a->wcs, 0);
	assert_int_equal(modify(p->qa, NIC_QP_RTS), 0);
	net_run(p->net, SECOND);
	expect_ids(p->a, begun, p->a->wcs, NIC_WC_SUCCESS);
	/* nothing is under way: drained at once; to and fro before the engine looks: nothing
	 * happens */
	assert_int_equal(modify(p->qa, NIC_QP_SQD), 0);
	net_turn(p->net);
	assert_int_equal(event_of(p, 0), NIC_EVENT_SQ_DRAINED);
	assert_int_equal(modify(p->qa, NIC_QP_RTS), 0);
	assert_int_equal(modify(p->qa, NIC_QP_SQD), 0);
	assert_int_equal(modify(p->qa, NIC_QP_RTS), 0);
	net_turn(p->net);
	assert_int_equal(event_of(p, 0), -EAGAIN);
	assert_int_equal(post_op(p, 1, NIC_WRITE, 100), 1);
	net_run(p->net, SECOND / 10);
	expect_ids(p->a, 1, 1, NIC_WC_SUCCESS);
	pair_destroy(p);
}

/* All that is outstanding is flushed, what waits in SQD too, in order. */
static void
drained_and_failed(void **state)
{
	struct pair *p = create();

	assert_int_equal(post_op(p, 0, NIC_WRITE, 1), 1);
	net_run(p->net, SECOND / 100);
	expect_ids(p->a, 0, 1, NIC_WC_SUCCESS);
	p->net->loss = 100;
	assert_int_equal(post_op(p, 0, NIC_WRITE, 40000), 1);
	net_turn(p->net);
	assert_int_equal(modify(p->qa, NIC_QP_SQD), 0);
	net_turn(p->net);
	for (unsigned i = 1; i < DEPTH; i++)
		assert_int_equal(post_op(p, i, NIC_WRITE, 100), 1);
	assert_int_equal(modify(p->qa, NIC_QP_ERR), 0);
	net_turn(p->net);
	net_turn(p->net);
	expect_ids(p->a, 0, DEPTH, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(event_of(p, 0), NIC_EVENT_QP_FATAL);
	assert_int_equal(event_of(p, 0), -EAGAIN);
	pair_destroy(p);
}

/* Traffic of all kinds, half of it lost, so that everything is under way. */
static void
make_busy(struct pair *p, unsigned i)
{
	p->net->loss = 50;
	for (unsigned k = 0; k < DEPTH / 2; k++)
		assert_int_equal(post_op(p, k, k % 4 == i % 4 ? NIC_READ : NIC_WRITE, 1 + 977 * k),
				 1);
	net_run(p->net, i * 7000);
	p->net->loss = 0;
}

/* The same QPs, over and over: from RTS or by way of ERR. Nothing of before is seen afterwards. */
static void
used_again(void **state)
{
	struct pair *p = create();
	struct nic_qp_attr again = rights;

	for (unsigned i = 0; i < 40; i++) {
		make_busy(p, i);
		if (i % 2) {
			assert_int_equal(modify(p->qa, NIC_QP_ERR), 0);
			net_turn(p->net);
			net_turn(p->net);
			assert_int_equal(p->a->wcs, DEPTH / 2); /* each WR, flushed or done */
		}
		assert_int_equal(modify(p->qa, NIC_QP_RESET), 0);
		assert_int_equal(modify(p->qb, NIC_QP_RESET), 0);
		assert_int_equal(modify(p->qa, NIC_QP_INIT), -EAGAIN);
		assert_int_equal(modify(p->qa, NIC_QP_ERR), -EAGAIN);
		assert_int_equal(modify(p->qa, NIC_QP_RESET), -EAGAIN);
		net_turn(p->net);
		assert_true(p->a->wcs <= DEPTH / 2);
		p->a->wcs = 0;
		assert_int_equal(p->a->ctx->held, 0);
		while (event_of(p, 0) >= 0)
			;
		net_run(p->net,
			SECOND / 1000); /* frames of before must not be taken for new ones */
		again.psn = again.remote_psn = 1000 * i;
		net_join(p->qa, p->qb, again);
		net_join(p->qb, p->qa, again);
		memset(p->memory[0], (int)i + 1, sizeof(p->memory[0]));
		for (unsigned k = 0; k < DEPTH; k++)
			assert_int_equal(post_op(p, k, NIC_WRITE, 1000), 1);
		assert_int_equal(post_op(p, 0, NIC_WRITE, 1), 0);
		net_run(p->net, SECOND / 50);
		expect_ids(p->a, 0, DEPTH, NIC_WC_SUCCESS);
		assert_memory_equal(p->memory[0], p->memory[1], 1000);
	}
	pair_destroy(p);
}

/* A receive that was in use when the QP was reset comes back; the other QPs of the SRQ need it. */
static void
receive_comes_back(void **state)
{
	struct pair *p = create();
	struct nic_send_wr wr = pair_wr(p, 0, NIC_SEND, 1, 30000);

	net_post_recvs(p->b, &p->mr[1], 1, 32768);
	p->net->room = 4;
	assert_int_equal(nic_post_send(p->qa, &wr, 1), 1);
	while (((struct roce_qp *)p->qb)->rs.kind == PACKET_NONE)
		net_turn(p->net);
	assert_int_equal(modify(p->qb, NIC_QP_RESET), 0);
	net_turn(p->net);
	expect_ids(p->b, 0, 1, NIC_WC_WR_FLUSH_ERR);
	pair_destroy(p);
}

/* Neighbours are given back: there are fewer of them than lives. */
static void
other_peers(void **state)
{
	struct roce_config config = {.neighbours = 2};
	struct net *n = net_create(3, 1, &config, 1);
	struct nic_qp *qp = net_qp(&n->node[0].port[0]);

	for (unsigned i = 0; i < 20; i++) {
		struct nic_qp_attr attr = {
		    .state = NIC_QP_RTR,
		    .remote_gid = {.raw = {[10] = 0xff, [11] = 0xff, 10, 0, 0, (uint8_t)(i + 2)}}};

		assert_int_equal(modify(qp, NIC_QP_INIT), 0);
		assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
		assert_int_equal(modify(qp, NIC_QP_RESET), 0);
		net_turn(n);
	}
	roce_ops.qp_destroy(qp);
	net_turn(n);
	net_destroy(n);
}

struct memory_count {
	unsigned of[NET_CONTEXTS], of_all;
};

static void *
counted_get(void *user, unsigned context, size_t bytes)
{
	struct memory_count *count = user;
	void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

	assert_true(context == ROCE_ALL || context < NET_CONTEXTS);
	(*(context == ROCE_ALL ? &count->of_all : &count->of[context]))++;
	return memset(memory, 0, bytes);
}

static void
counted_put(void *user, void *memory, size_t bytes)
{
	free(memory);
}

/* Whoever gives memory is told whose engine will use it. */
static void
memory_of_an_engine(void **state)
{
	struct memory_count count = {0};
	struct roce_config config = {
	    .memory_get = counted_get, .memory_put = counted_put, .user = &count};
	struct net *n;
	struct nic_qp *qp;

	n = net_create(1, 2, &config, 1);
	assert_int_equal(count.of[0], 4); /* context, completions, queue pairs, SRQ */
	assert_int_equal(count.of[1], 4);
	assert_int_not_equal(count.of_all, 0);
	qp = net_qp(&n->node[0].port[1]);
	assert_int_equal(count.of[0], 4);
	assert_int_equal(count.of[1], 5);
	roce_ops.qp_destroy(qp);
	net_turn(n);
	net_destroy(n);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_pair),	   cmocka_unit_test(drained),
	    cmocka_unit_test(drained_and_failed),  cmocka_unit_test(used_again),
	    cmocka_unit_test(receive_comes_back),  cmocka_unit_test(other_peers),
	    cmocka_unit_test(memory_of_an_engine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
