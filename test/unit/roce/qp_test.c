/* SPDX-License-Identifier: BSD-3-Clause */
/* Life of queue pairs, errors and their limits, memory regions. */
#include "worlds/roce_pair.h"

static void
states(void **state)
{
	struct net *n = net_create(2, 1, NULL, 1);
	struct nic_qp *qp = net_qp(&n->node[0].port[0]);
	struct nic_send_wr wr = {.opcode = NIC_SEND};
	struct nic_qp_attr attr = {.state = NIC_QP_RTR};
	struct nic_async_event event;

	assert_int_equal(nic_post_send(qp, &wr, 1), -ENOTCONN);
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL); /* RESET to RTR */
	assert_int_equal(net_rts(qp, 1), -EINVAL);
	attr.state = NIC_QP_SQD;
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL);
	assert_int_equal(net_rtr(qp, &n->node[1], 0x1000000, 0), -EINVAL);
	attr = (struct nic_qp_attr){.state = NIC_QP_RTR, .remote_qpn = 5};
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL); /* no IPv4 address */
	attr.remote_gid.raw[10] = attr.remote_gid.raw[11] = 0xff;
	put32(attr.remote_gid.raw + 12, 0x0b000001);
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -ENETUNREACH);
	put32(attr.remote_gid.raw + 12, net_ip(1));
	attr.mtu = 2048; /* device: 1024 */
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL);
	attr.mtu = 500;
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL);
	attr.mtu = 512;
	assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
	assert_int_equal(nic_post_send(qp, &wr, 1), -ENOTCONN);
	assert_int_equal(net_rts(qp, 0x1000000), -EINVAL);
	assert_int_equal(net_rts(qp, 0xffffff), 0);
	assert_int_equal(net_rts(qp, 1), -EINVAL);
	assert_int_equal(nic_post_send(qp, &wr, 1), 1);
	attr.state = NIC_QP_ERR;
	assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
	net_turn(n);
	expect_wc(&n->node[0].port[0], 0, 0, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(nic_post_send(qp, &wr, 1), -ENOTCONN);
	assert_int_equal(net_rts(qp, 1), -EINVAL);
	assert_int_equal(roce_ops.async_event(roce_nic_device(n->node[0].dev), &event), 0);
	assert_int_equal(roce_ops.async_event(roce_nic_device(n->node[0].dev), &event), -EAGAIN);
	net_destroy(n);
}

static void
posts_refused(void **state)
{
	struct pair *p = pair_create(NULL);
	struct nic_send_wr wr[3], ok = write_wr(p, 7, 1);

	for (unsigned opcode = NIC_READ; opcode <= NIC_FETCH_ADD; opcode++) {
		wr[0] = ok;
		wr[0].opcode = (uint8_t)opcode;
		wr[0].flags |= NIC_INLINE; /* answers can't be */
		assert_int_equal(post(p, wr[0]), -EINVAL);
		wr[0].flags = 0;
		wr[0].sge[0].length = opcode == NIC_READ ? ROCE_MESSAGE_MAX + 1 : 7;
		assert_int_equal(post(p, wr[0]), -EINVAL);
		wr[0].sge[0].length = 8;
		wr[0].remote_address += 4;
		if (opcode != NIC_READ)
			assert_int_equal(post(p, wr[0]), -EINVAL);
	}
	wr[0] = ok;
	wr[0].opcode = NIC_RECV;
	assert_int_equal(post(p, wr[0]), -EINVAL);
	wr[0] = ok;
	wr[0].sge_count = NIC_SGE_MAX + 1;
	assert_int_equal(post(p, wr[0]), -EINVAL);
	wr[0] = ok;
	wr[0].flags |= NIC_INLINE;
	wr[0].sge[0].length = QP_INLINE_MAX + 1;
	assert_int_equal(post(p, wr[0]), -EINVAL);
	wr[0] = ok;
	wr[0].sge_count = 2;
	wr[0].sge[0].length = wr[0].sge[1].length = 0xf0000000;
	assert_int_equal(post(p, wr[0]), -EINVAL);
	/* good ones before a bad one are taken */
	wr[0] = wr[1] = wr[2] = ok;
	wr[2].opcode = NIC_RECV;
	assert_int_equal(nic_post_send(p->qa, wr, 3), 2);
	/* the queue has 64 places */
	for (unsigned i = 2; i < 64; i++)
		assert_int_equal(post(p, ok), 1);
	assert_int_equal(post(p, ok), 0);
	net_run(p->net, SECOND / 1000);
	assert_int_equal(p->a->wcs, 64);
	assert_int_equal(post(p, ok), 1);
	net_run(p->net, SECOND / 1000);
	assert_int_equal(p->a->wcs, 65);
	pair_destroy(p);
}

static void
wrong_local_key(void **state)
{
	struct pair *p = pair_create(NULL);
	struct nic_send_wr wr = write_wr(p, 2, 64);

	warm_up(p);
	assert_int_equal(post(p, write_wr(p, 1, 64)), 1);
	wr.sge[0].lkey ^= 0x10000000;
	assert_int_equal(post(p, wr), 1);
	assert_int_equal(post(p, write_wr(p, 3, 64)), 1);
	net_run(p->net, 1000000);
	assert_int_equal(p->a->wcs, 3);
	expect_wc(p->a, 0, 1, NIC_WC_WR_FLUSH_ERR);
	expect_wc(p->a, 1, 2, NIC_WC_LOC_PROT_ERR);
	expect_wc(p->a, 2, 3, NIC_WC_WR_FLUSH_ERR);
	pair_destroy(p);
}

static void
remote_refuses(void **state)
{
	struct pair *p = pair_create(NULL);
	struct nic_send_wr wr = write_wr(p, 2, 64);

	wr.rkey ^= 0x10000000;
	assert_int_equal(post(p, write_wr(p, 1, 64)), 1);
	assert_int_equal(post(p, wr), 1);
	assert_int_equal(post(p, write_wr(p, 3, 64)), 1);
	net_run(p->net, 10000000);
	assert_int_equal(p->a->wcs, 3);
	expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
	expect_wc(p->a, 1, 2, NIC_WC_REM_ACCESS_ERR);
	expect_wc(p->a, 2, 3, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_state((struct roce_qp *)p->qb), NIC_QP_ERR);
	pair_destroy(p);
}

static void
inline_copied(void **state)
{
	struct pair *p = pair_create(NULL);
	struct nic_send_wr wr = write_wr(p, 1, 40);

	memset(p->memory[0], 'a', 40);
	wr.flags |= NIC_INLINE;
	wr.sge[0].lkey = 0; /* not needed */
	assert_int_equal(post(p, wr), 1);
	memset(p->memory[0], 'b', 40);
	net_run(p->net, 100000);
	expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(p->memory[1][i], 'a');
	pair_destroy(p);
}

/* Nothing comes back: after 2 s, not much before nor after, the first WR fails and the others are
 * flushed. */
static void
retries_exceeded(void **state)
{
	struct pair *p = pair_create(NULL);
	uint64_t begun;

	p->net->step = 20 * NET_STEP_NS;
	warm_up(p);
	p->net->loss = 100;
	begun = p->net->now;
	for (unsigned i = 1; i <= 5; i++)
		assert_int_equal(post(p, write_wr(p, i, 5000)), 1);
	while (p->a->wcs == 0 && p->net->now - begun < 3 * SECOND)
		net_turn(p->net);
	assert_in_range(p->net->now - begun, SECOND * 19 / 10, SECOND * 23 / 10);
	net_turn(p->net);
	assert_int_equal(p->a->wcs, 5);
	expect_wc(p->a, 0, 1, NIC_WC_RETRY_EXC_ERR);
	for (unsigned i = 1; i < 5; i++)
		expect_wc(p->a, i, i + 1, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(post(p, write_wr(p, 6, 1)), -ENOTCONN);
	assert_true(net_counters(&p->net->node[0]).timeouts >= 7);
	pair_destroy(p);
}

/* A second without a wire is survived, and traffic goes on soon after. */
static void
outage(void **state)
{
	struct pair *p = pair_create(NULL);

	p->net->step = 20 * NET_STEP_NS;
	warm_up(p);
	p->net->loss = 100;
	assert_int_equal(post(p, write_wr(p, 1, 60000)), 1);
	net_run(p->net, SECOND);
	p->net->loss = 0;
	assert_int_equal(p->a->wcs, 0);
	net_run(p->net, SECOND * 3 / 10);
	expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
	pair_destroy(p);
}

/* A process that was stopped for long gets its retries when it runs again. */
static void
clock_jumps(void **state)
{
	struct pair *p = pair_create(NULL);

	warm_up(p);
	p->net->loss = 100;
	assert_int_equal(post(p, write_wr(p, 1, 100)), 1);
	net_turn(p->net);
	p->net->now += 10 * SECOND;
	p->net->loss = 0;
	net_run(p->net, SECOND / 100);
	assert_int_equal(p->a->wcs, 1);
	expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
	pair_destroy(p);
}

static void
port_stuck(void **state)
{
	struct pair *p = pair_create(NULL);

	p->net->step = 20 * NET_STEP_NS;
	warm_up(p);
	p->net->node[0].stuck = true;
	assert_int_equal(post(p, write_wr(p, 1, 100)), 1);
	net_run(p->net, SECOND * 18 / 10);
	assert_int_equal(p->a->wcs, 0);
	net_run(p->net, SECOND / 2);
	expect_wc(p->a, 0, 1, NIC_WC_RETRY_EXC_ERR);
	pair_destroy(p);
}

static void
options_count(void **state)
{
	struct roce_config config = {.timeout_ns = 10000000, .retry = 2};
	struct pair *p = pair_create(&config);

	warm_up(p);
	p->net->loss = 100;
	assert_int_equal(post(p, write_wr(p, 1, 100)), 1);
	net_run(p->net, 25000000);
	assert_int_equal(p->a->wcs, 0);
	net_run(p->net, 20000000);
	expect_wc(p->a, 0, 1, NIC_WC_RETRY_EXC_ERR);
	pair_destroy(p);
}

static void
not_ready_and_recovery(void **state)
{
	struct pair *p = pair_create(NULL);
	struct nic_send_wr wr = write_wr(p, 1, 3000);

	p->net->step = 20 * NET_STEP_NS;
	wr.opcode = NIC_SEND;
	assert_int_equal(post(p, wr), 1);
	net_run(p->net, 5 * SECOND); /* longer than silence would be borne */
	assert_int_equal(p->a->wcs, 0);
	assert_true(net_counters(&p->net->node[0]).rnr_received > 100);
	net_post_recvs(p->b, &p->mr[1], 1, 4096);
	net_run(p->net, SECOND / 1000);
	expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
	expect_wc(p->b, 0, 0, NIC_WC_SUCCESS);
	assert_int_equal(p->b->wc[0].length, 3000);
	pair_destroy(p);
}

static void
not_ready_limit(void **state)
{
	struct roce_config config = {.rnr_retry = 3};
	struct pair *p = pair_create(&config);
	struct nic_send_wr wr = write_wr(p, 1, 10);

	p->net->step = 20 * NET_STEP_NS;
	wr.opcode = NIC_SEND;
	assert_int_equal(post(p, wr), 1);
	net_run(p->net, SECOND);
	expect_wc(p->a, 0, 1, NIC_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(net_counters(&p->net->node[0]).rnr_received, 4);
	pair_destroy(p);
}

/* Frames of a destroyed QP are given back, its index lives again under another number. */
static void
destroyed_under_load(void **state)
{
	struct roce_config config = {.max_qp = 2};
	struct pair *p = pair_create(&config);
	uint32_t old = nic_qpn(p->qa), live;
	struct nic_qp *again, *other;
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 1};

	warm_up(p);
	p->net->loss = 100;
	for (unsigned i = 1; i < 20; i++)
		assert_int_equal(post(p, write_wr(p, i, 3000)), 1);
	net_run(p->net, 100000);
	assert_true(p->a->ctx->held > 10);
	other = net_qp(p->a);
	assert_int_equal(roce_ops.qp_create(roce_nic_context(p->a->ctx), &init, &again), -ENOSPC);
	roce_ops.qp_destroy(p->qa);
	live = (uint32_t)p->a->wcs;
	net_turn(p->net);
	assert_int_equal(p->a->ctx->held, 0);
	assert_int_equal(p->a->wcs, live); /* nobody wants those any more */
	again = net_qp(p->a);
	assert_int_not_equal(nic_qpn(again), old);
	assert_int_not_equal(nic_qpn(again), nic_qpn(other));
	p->net->loss = 0;
	net_run(p->net, 10000000);
	pair_destroy(p);
}

static void
numbers_differ(void **state)
{
	struct roce_config config = {.max_qp = 64};
	struct net *n = net_create(1, 4, &config, 1);
	uint32_t last = 0;

	for (unsigned i = 0; i < 1000; i++) {
		struct net_port *port = &n->node[0].port[i % 4];
		struct nic_qp *qp = net_qp(port);

		assert_int_equal(nic_qpn(qp) & 3, i % 4);
		assert_in_range(nic_qpn(qp), 2, QPN_MASK);
		assert_int_not_equal(nic_qpn(qp), last);
		last = nic_qpn(qp);
		roce_ops.qp_destroy(qp);
		net_turn(n);
	}
	net_destroy(n);
}

static void
budgets(void **state)
{
	struct roce_config config = {.cq_depth = 1024, .max_wr = 512};
	struct net *n = net_create(1, 1, &config, 1);
	struct nic_context *ctx = roce_nic_context(n->node[0].port[0].ctx);
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 512};
	struct nic_qp *qp, *refused;
	struct nic_srq *srq;
	struct nic_recv_wr wr = {0};

	/* the port's own SRQ has 512 */
	assert_int_equal(roce_ops.qp_create(ctx, &init, &qp), 0);
	init.send_wrs = 1;
	assert_int_equal(roce_ops.qp_create(ctx, &init, &refused), -ENOSPC);
	assert_int_equal(roce_ops.srq_create(ctx, 1, &srq), -ENOSPC);
	roce_ops.qp_destroy(qp);
	net_turn(n);
	assert_int_equal(roce_ops.srq_create(ctx, 3, &srq), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(roce_ops.post_srq_recv(srq, &wr, 1), 1);
	assert_int_equal(roce_ops.post_srq_recv(srq, &wr, 1), 0);
	init = (struct nic_qp_init){.type = NIC_UD + 1, .send_wrs = 1};
	assert_int_equal(roce_ops.qp_create(ctx, &init, &qp), -EINVAL);
	init = (struct nic_qp_init){.type = NIC_RC, .send_wrs = 513};
	assert_int_equal(roce_ops.qp_create(ctx, &init, &qp), -EINVAL);
	init = (struct nic_qp_init){.type = NIC_RC, .send_wrs = 1, .srq = srq};
	assert_int_equal(roce_ops.qp_create(ctx, &init, &qp), 0);
	roce_ops.srq_destroy(srq); /* lives until its last QP is gone */
	roce_ops.qp_destroy(qp);
	net_turn(n);
	net_destroy(n);
}

/* The ring of completions grows with the queue pairs; what it holds moves in its order. */
static void
completions_move(void **state)
{
	struct roce_config config = {.cq_depth = 65536, .max_qp = 64, .max_wr = 512};
	struct net *n = net_create(1, 1, &config, 1);
	struct roce_context *ctx = n->node[0].port[0].ctx;
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 512};
	uint32_t size = ctx->cq_mask + 1, held = size - 3, polled = 0;
	struct nic_qp *qp[20];
	struct nic_wc wc[16];
	bool busy;

	assert_true(size <= 2048);
	assert_int_equal(roce_ops.qp_create(roce_nic_context(ctx), &init, &qp[0]), 0);
	ctx->cq_head = ctx->cq_tail = size / 2 - 1; /* they wrap */
	for (uint32_t i = 0; i < held; i++) {
		struct cq_entry *e = cq_push(ctx, (struct roce_qp *)qp[0]);

		e->qp = (struct roce_qp *)qp[0];
		e->srq = NULL;
		e->sq_freed = 0;
		e->wc.wr_id = i;
	}
	for (uint32_t i = 1; i < 20; i++) /* more than one ring before the engine moves */
		assert_int_equal(roce_ops.qp_create(roce_nic_context(ctx), &init, &qp[i]), 0);
	assert_int_equal(ctx->cq_mask + 1, size);
	while (polled < held) {
		unsigned got = roce_ops.poll(roce_nic_context(ctx), wc, 16, 1000, &busy);

		assert_true(got);
		for (unsigned i = 0; i < got; i++)
			assert_int_equal(wc[i].wr_id, polled++);
	}
	assert_true(ctx->cq_mask + 1 >= ctx->cq_reserved);
	assert_int_equal(ctx->cq_size, ctx->cq_mask + 1);
	for (uint32_t i = 0; i < 20; i++)
		roce_ops.qp_destroy(qp[i]);
	net_turn(n);
	net_destroy(n);
}

/* A port for few queue pairs: what it is given by default fits its completion queue. */
static void
small_port(void **state)
{
	struct roce_config config = {.cq_depth = 2048};
	struct net *n = net_create(1, 1, &config, 1);
	struct nic_attr attr;

	roce_ops.query(roce_nic_device(n->node[0].dev), &attr);
	assert_int_equal(attr.max_wr, 2048);
	assert_true(attr.ack_visible);
	net_destroy(n);
}

static void
regions(void **state)
{
	struct roce_config config = {.max_mr = 100};
	struct net *n = net_create(1, 1, &config, 1);
	struct nic_device *dev = roce_nic_device(n->node[0].dev);
	struct mr_table *t = &n->node[0].dev->mrs;
	static uint8_t memory[100][16];
	struct nic_mr mr[100], more;

	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(roce_ops.mr_reg(dev, memory[i], 16, NIC_REMOTE_READ, &mr[i]), 0);
		assert_int_equal(mr[i].address, (uintptr_t)memory[i]);
		for (unsigned k = 0; k < i; k++)
			assert_int_not_equal(mr[k].rkey, mr[i].rkey);
	}
	assert_int_equal(roce_ops.mr_reg(dev, memory, 16, 0, &more), -ENOSPC);
	for (unsigned i = 0; i < 100; i++) {
		uint32_t key = mr[i].rkey;
		uint64_t at = mr[i].address;

		assert_true(mr_check(t, key, at, 16, NIC_REMOTE_READ));
		assert_true(mr_check(t, key, at + 16, 0, NIC_REMOTE_READ));
		assert_false(mr_check(t, key, at, 17, 0));
		assert_false(mr_check(t, key, at + 1, 16, 0));
		assert_false(mr_check(t, key, at - 1, 2, 0));
		assert_false(mr_check(t, key, at + 8, UINT64_MAX - 4, 0));
		assert_false(mr_check(t, key, at, 1, NIC_REMOTE_READ | NIC_REMOTE_WRITE));
		roce_ops.mr_dereg(dev, &mr[i]);
		assert_int_equal(mr[i].rkey, 0);
		assert_false(mr_check(t, key, at, 1, 0));
	}
	assert_false(mr_check(t, 0, 0, 0, 0));
	assert_int_equal(roce_ops.mr_reg(dev, memory, 0, 0, &more), -EINVAL);
	assert_int_equal(roce_ops.mr_reg(dev, memory, SIZE_MAX, 0, &more), -EINVAL);
	net_destroy(n);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(states),
	    cmocka_unit_test(posts_refused),
	    cmocka_unit_test(wrong_local_key),
	    cmocka_unit_test(remote_refuses),
	    cmocka_unit_test(inline_copied),
	    cmocka_unit_test(retries_exceeded),
	    cmocka_unit_test(outage),
	    cmocka_unit_test(clock_jumps),
	    cmocka_unit_test(port_stuck),
	    cmocka_unit_test(options_count),
	    cmocka_unit_test(not_ready_and_recovery),
	    cmocka_unit_test(not_ready_limit),
	    cmocka_unit_test(destroyed_under_load),
	    cmocka_unit_test(numbers_differ),
	    cmocka_unit_test(completions_move),
	    cmocka_unit_test(budgets),
	    cmocka_unit_test(small_port),
	    cmocka_unit_test(regions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
