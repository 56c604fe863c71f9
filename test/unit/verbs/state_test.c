/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs driver: states of a queue pair, draining, the way back to RESET. */
#include "worlds/qp_states.h"
#include "worlds/verbs_world.h"

static int
modify(struct nic_qp *qp, unsigned to)
{
	struct nic_qp_attr attr = {.state = (enum nic_qp_state)to,
				   .remote_gid = gid("10.0.0.2"),
				   .remote_qpn = 0x77,
				   .rnr_retry = 7};

	return ops()->qp_modify(qp, &attr);
}

static void
every_pair(void **state)
{
	static const uint8_t way[STATES][5] = {
	    {NIC_QP_RESET},
	    {NIC_QP_INIT},
	    {NIC_QP_INIT, NIC_QP_RTR},
	    {NIC_QP_INIT, NIC_QP_RTR, NIC_QP_RTS},
	    {NIC_QP_INIT, NIC_QP_RTR, NIC_QP_RTS, NIC_QP_SQD},
	    {NIC_QP_INIT, NIC_QP_RTR, NIC_QP_RTS, NIC_QP_ERR},
	};
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 4};
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_qp *qp;

	open_roce();
	for (unsigned from = 0; from < STATES; from++) {
		for (unsigned to = 0; to <= STATES; to++) {
			bool yes = to < STATES && allowed[from][to] == 'y';
			unsigned is = yes ? to : from;

			assert_int_equal(ops()->qp_create(ctx, &init, &qp), 0);
			for (unsigned i = 0; i < 5 && way[from][i]; i++)
				assert_int_equal(modify(qp, way[from][i]), 0);
			assert_int_equal(modify(qp, to), yes ? 0 : -EINVAL);
			poll_all(wc, 0);
			for (unsigned i = 1; i < NIC_QP_ERR; i++)
				if (allowed[is][i] != 'y')
					assert_int_equal(modify(qp, i), -EINVAL);
			ops()->qp_destroy(qp);
			poll_all(wc, 0);
			poll_all(wc, 1000000000);
		}
	}
	close_all();
}

/* Posts are taken meanwhile, they are for the NIC to keep. */
static void
drained(void **state)
{
	struct nic_qp *qp;
	int user;

	qp = open_qp(8, &user);
	post(qp, 1, 0);
	nic_flush(ctx, 0);
	assert_int_equal(modify(qp, NIC_QP_SQD), 0);
	assert_int_equal(fake.modified.qp_state, IBV_QPS_SQD);
	assert_int_equal(fake.modified_mask, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
	assert_int_equal(fake.modified.en_sqd_async_notify, 1);
	post(qp, 2, 0);
	nic_flush(ctx, 0);
	assert_int_equal(fake.posts, 2);
	fake_async_event(IBV_EVENT_SQ_DRAINED, ibqp(qp));
	expect_event(NIC_EVENT_SQ_DRAINED, &user);
	assert_int_equal(modify(qp, NIC_QP_RTS), 0);
	assert_int_equal(fake.modified_mask, IBV_QP_STATE);
	close_all();
}

/* Outstanding WRs are forgotten, their places are free; late completions are ignored. */
static void
used_again(void **state)
{
	struct ibv_wc late = {.status = IBV_WC_WR_FLUSH_ERR};
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_qp *qp;
	int fd;

	qp = open_qp(4, NULL);
	for (unsigned life = 0; life < 3; life++) {
		for (unsigned i = 0; i < 4; i++)
			post(qp, i, NIC_SIGNALED);
		if (life != 1) /* in the second they are still in our hands */
			nic_flush(ctx, 0);
		late.wr_id = fake.post[0].wr.wr_id;
		if (life == 2)
			assert_int_equal(modify(qp, NIC_QP_ERR), 0);
		assert_int_equal(modify(qp, NIC_QP_RESET), 0);
		assert_int_equal(fake.modified.qp_state, IBV_QPS_RESET);
		assert_int_equal(modify(qp, NIC_QP_INIT), -EAGAIN);
		assert_int_equal(modify(qp, NIC_QP_ERR), -EAGAIN);
		assert_int_equal(ops()->arm(ctx, 5, &fd), 5);
		fake.post_errno = EINVAL; /* such is a QP in RESET */
		poll_all(wc, 0);
		nic_flush(ctx, 0);
		poll_all(wc, 0);
		fake.post_errno = 0;
		fake.posts = 0;
		assert_int_equal(modify(qp, NIC_QP_INIT), 0);
		assert_int_equal(modify(qp, NIC_QP_RTR), 0);
		assert_int_equal(modify(qp, NIC_QP_RTS), 0);
		for (unsigned i = 0; i < 4; i++)
			post(qp, 10 + i, NIC_SIGNALED);
		nic_flush(ctx, 0);
		assert_int_equal(fake.posts, 4);
		fake_complete(ibqp(qp), true, &late);
		assert_int_equal(poll_all(wc, 0), 0);
		for (unsigned i = 0; i < 4; i++)
			complete(qp, i, IBV_WC_SUCCESS);
		assert_int_equal(poll_all(wc, 0), 4);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(wc[i].wr_id, 10 + i);
		fake.posts = 0;
	}
	close_all();
}

/* Destroyed while it is on the way to RESET, before and after its engine has heard of that. */
static void
reset_and_destroyed(void **state)
{
	struct nic_async_event event;
	struct nic_wc wc[NIC_POLL_MAX];

	open_roce();
	for (unsigned heard = 0; heard < 2; heard++) {
		struct nic_qp *qp = make_qp(NIC_RC, 4, NULL, NULL);

		post(qp, 1, 0);
		nic_flush(ctx, 0);
		assert_int_equal(modify(qp, NIC_QP_RESET), 0);
		if (heard) { /* the CQ isn't empty: it stays on the way */
			struct ibv_wc done = {.wr_id = fake.post[0].wr.wr_id};
			bool busy = false;

			fake_complete(ibqp(qp), true, &done);
			nic_poll(ctx, wc, 0, 0, &busy);
		}
		ops()->qp_destroy(qp);
		poll_all(wc, 0);
		assert_int_equal(fake.qps, 1);
		poll_all(wc, 1000000000);
		ops()->async_event(vnic_nic_device(dev), &event);
		assert_int_equal(fake.qps, 0);
		fake.posts = 0;
	}
	close_all();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_pair),
	    cmocka_unit_test(drained),
	    cmocka_unit_test(used_again),
	    cmocka_unit_test(reset_and_destroyed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
