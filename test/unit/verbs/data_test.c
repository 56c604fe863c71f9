/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs driver against a libibverbs of our own: posting, completions, the end of a QP, sleep,
 * events. */
#include "worlds/verbs_world.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* ---- sending ---- */

static void
one_doorbell_a_flush(void **state)
{
	struct nic_qp *a, *b;

	open_roce();
	a = make_qp(NIC_RC, 64, NULL, NULL);
	b = make_qp(NIC_RC, 64, NULL, NULL);
	for (unsigned i = 0; i < 4; i++) {
		post(a, i, 0);
		post(b, i, 0);
	}
	assert_int_equal(fake.posts, 0);
	nic_flush(ctx, 0);
	assert_int_equal(fake.posts, 8);
	assert_int_equal(fake.calls, 2);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(fake.post[i].wr.wr_id, i % 4);
	nic_flush(ctx, 0);
	assert_int_equal(fake.calls, 2);
	close_all();
}

static void
opcodes(void **state)
{
	static const enum ibv_wr_opcode expected[] = {IBV_WR_SEND,
						      IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_WRITE_WITH_IMM,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_SEND_WITH_INV};
	struct nic_send_wr wr;
	struct nic_qp *qp;

	qp = open_qp(64, NULL);
	for (uint8_t op = NIC_SEND; op <= NIC_SEND_INV; op++) {
		wr = write_wr(op, NIC_FENCE);
		wr.opcode = op;
		wr.imm = 0x01020304;
		wr.sge[0].length = 8;
		if (op == NIC_CMP_SWAP || op == NIC_FETCH_ADD) {
			wr.compare_add = 3;
			wr.swap = 4;
		}
		assert_int_equal(nic_post_send(qp, &wr, 1), 1);
	}
	nic_flush(ctx, 0);
	for (unsigned op = 0; op <= NIC_SEND_INV; op++) {
		assert_int_equal(fake.post[op].wr.opcode, expected[op]);
		assert_true(fake.post[op].wr.send_flags & IBV_SEND_FENCE);
	}
	assert_int_equal(fake.post[NIC_SEND_IMM].wr.imm_data, htobe32(0x01020304));
	assert_int_equal(fake.post[NIC_WRITE].wr.wr.rdma.remote_addr, 0x1000);
	assert_int_equal(fake.post[NIC_READ].wr.wr.rdma.rkey, 2);
	assert_int_equal(fake.post[NIC_CMP_SWAP].wr.wr.atomic.compare_add, 3);
	assert_int_equal(fake.post[NIC_CMP_SWAP].wr.wr.atomic.swap, 4);
	assert_int_equal(fake.post[NIC_SEND_INV].wr.invalidate_rkey, 2);
	wr = write_wr(0, 0);
	wr.opcode = NIC_RECV;
	assert_int_equal(nic_post_send(qp, &wr, 1), -EINVAL);
	wr.opcode = NIC_FETCH_ADD; /* of 64 bytes */
	assert_int_equal(nic_post_send(qp, &wr, 1), -EINVAL);
	wr = write_wr(0, 0);
	wr.sge_count = 3;
	assert_int_equal(nic_post_send(qp, &wr, 1), -EINVAL);
	close_all();
}

static void
inline_data(void **state)
{
	uint8_t bytes[128] = "as it was";
	struct nic_send_wr wr = write_wr(1, NIC_INLINE);
	struct nic_qp *qp;

	for (int i = 0; i < 6; i++) {
		static const uint8_t opcode[] = {NIC_WRITE, NIC_SEND_IMM, NIC_SEND_INV};
		bool bare = i % 2;

		wr.opcode = opcode[i / 2];
		roce();
		fake.max_inline = bare ? 32 : 400;
		assert_int_equal(open_with(&defaults), 0);
		qp = make_qp(NIC_RC, 8, NULL, NULL);
		wr.sge[0] = (struct nic_sge){(uintptr_t)bytes, 64, 0};
		memcpy(bytes, "as it was", 10);
		assert_int_equal(nic_post_send(qp, &wr, 1), 1);
		memcpy(bytes, "otherwise", 10);
		nic_flush(ctx, 0);
		assert_int_equal(!(fake.post[0].wr.send_flags & IBV_SEND_INLINE), bare);
		assert_string_equal((const char *)(uintptr_t)fake.post[0].sge[0].addr, "as it was");
		if (bare)
			assert_int_not_equal(fake.post[0].sge[0].lkey, 0);
		wr.sge[0].length = 65;
		assert_int_equal(nic_post_send(qp, &wr, 1), -EINVAL);
		close_all();
	}
}

static void
selective_signaling(void **state)
{
	struct nic_send_wr wr[10];
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_qp *qp;
	int user;

	qp = open_qp(8, &user);
	for (unsigned i = 0; i < 10; i++)
		wr[i] = write_wr(100 + i, 0);
	assert_int_equal(nic_post_send(qp, wr, 10), 8);
	assert_int_equal(nic_post_send(qp, wr, 1), 0);
	nic_flush(ctx, 0);
	for (unsigned i = 0; i < 8; i++) /* one in two, of a queue of eight */
		assert_int_equal(!!(fake.post[i].wr.send_flags & IBV_SEND_SIGNALED), i % 2);
	complete(qp, 5, IBV_WC_SUCCESS);
	assert_int_equal(poll_all(wc, 0), 0);	       /* nobody asked for it, */
	assert_int_equal(nic_post_send(qp, wr, 8), 6); /* but six places are free */
	nic_flush(ctx, 0);
	complete(qp, 13, IBV_WC_SUCCESS);
	complete(qp, 7, IBV_WC_SUCCESS); /* of long ago: means nothing */
	assert_int_equal(poll_all(wc, 0), 0);
	post(qp, 55, NIC_SIGNALED);
	nic_flush(ctx, 0);
	complete(qp, 14, IBV_WC_SUCCESS);
	assert_int_equal(poll_all(wc, 0), 1);
	assert_int_equal(wc[0].wr_id, 55);
	assert_int_equal(wc[0].opcode, NIC_WRITE);
	assert_int_equal(wc[0].status, NIC_WC_SUCCESS);
	assert_int_equal(wc[0].qpn, nic_qpn(qp));
	assert_ptr_equal(wc[0].qp_user, &user);
	close_all();
}

static void
a_failure_flushes(void **state)
{
	struct ibv_wc failed = {.status = IBV_WC_RETRY_EXC_ERR};
	struct nic_send_wr wr = write_wr(1, 0);
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_qp *qp;

	qp = open_qp(8, NULL);
	for (unsigned i = 0; i < 3; i++)
		post(qp, i, 0);
	nic_flush(ctx, 0);
	for (unsigned i = 0; i < 3; i++) {
		failed.wr_id = fake.post[i].wr.wr_id;
		failed.opcode = (enum ibv_wc_opcode)0x55; /* undefined on error */
		fake_complete(ibqp(qp), true, &failed);
		failed.status = IBV_WC_WR_FLUSH_ERR;
	}
	assert_int_equal(poll_all(wc, 0), 3); /* all of them, wanted or not */
	assert_int_equal(wc[0].status, NIC_WC_RETRY_EXC_ERR);
	assert_int_equal(wc[1].status, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(wc[2].wr_id, 2);
	assert_int_equal(wc[2].opcode, NIC_WRITE);
	assert_int_equal(nic_post_send(qp, &wr, 1), -ENOTCONN);
	close_all();
}

static void
the_nic_refuses(void **state)
{
	struct nic_send_wr wr = write_wr(1, 0);
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_qp *qp;
	int fd;

	qp = open_qp(16, NULL);
	for (unsigned i = 0; i < 4; i++)
		post(qp, i, NIC_SIGNALED);
	fake.post_errno = ENOMEM;
	fake.post_refused = 1;
	nic_flush(ctx, 0);
	assert_int_equal(fake.posts, 1);
	assert_int_equal(ops()->arm(ctx, 7, &fd), 7); /* there is something to say */
	assert_int_equal(poll_all(wc, 0), 3);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(wc[0].status, NIC_WC_FATAL_ERR);
	assert_int_equal(wc[2].wr_id, 3);
	assert_int_equal(wc[2].status, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(nic_post_send(qp, &wr, 1), -ENOTCONN);
	complete(qp, 0, IBV_WC_SUCCESS); /* what it had taken goes on */
	assert_int_equal(poll_all(wc, 0), 1);
	assert_int_equal(wc[0].wr_id, 0);
	assert_int_equal(poll_all(wc, 0), 0);
	close_all();
}

/* ---- receiving ---- */

static void
receives(void **state)
{
	struct nic_recv_wr wr[70];
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_srq *srq;
	struct nic_qp *qp;
	struct ibv_wc in;
	struct ibv_qp *is;

	open_roce();
	assert_int_equal(ops()->srq_create(ctx, 65, &srq), -ENOSPC); /* than the CQ holds */
	assert_int_equal(ops()->srq_create(ctx, 48, &srq), 0);
	qp = make_qp(NIC_RC, 8, srq, NULL);
	for (unsigned i = 0; i < 70; i++)
		wr[i] = (struct nic_recv_wr){.wr_id = UINT64_MAX - i};
	assert_int_equal(ops()->post_srq_recv(srq, wr, 70), 48);
	assert_int_equal(fake.recvs, 48);
	assert_int_equal(fake.recv[0].num_sge, 0);
	post(qp, 1, 0);
	nic_flush(ctx, 0);
	is = ibqp(qp);
	in = (struct ibv_wc){.wr_id = fake.recv[40].wr_id,
			     .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
			     .wc_flags = IBV_WC_WITH_IMM,
			     .imm_data = htobe32(0xabcd),
			     .byte_len = 77};
	fake_complete(is, false, &in);
	in = (struct ibv_wc){.wr_id = fake.recv[3].wr_id,
			     .opcode = IBV_WC_RECV,
			     .wc_flags = IBV_WC_WITH_INV,
			     .invalidated_rkey = 0x55,
			     .src_qp = 0x99};
	fake_complete(is, false, &in);
	in = (struct ibv_wc){.wr_id = fake.recv[4].wr_id, .status = IBV_WC_WR_FLUSH_ERR};
	fake_complete(is, false, &in);
	assert_int_equal(poll_all(wc, 0), 3);
	assert_int_equal(wc[0].opcode, NIC_RECV_IMM);
	assert_int_equal(wc[0].wr_id, UINT64_MAX - 40);
	assert_true(wc[0].has_imm);
	assert_int_equal(wc[0].imm, 0xabcd);
	assert_int_equal(wc[0].length, 77);
	assert_int_equal(wc[1].opcode, NIC_RECV);
	assert_true(wc[1].invalidated);
	assert_int_equal(wc[1].imm, 0x55);
	assert_int_equal(wc[1].source_qpn, 0x99);
	assert_int_equal(wc[2].opcode, NIC_RECV);
	assert_int_equal(wc[2].status, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(ops()->post_srq_recv(srq, wr, 70), 3);
	close_all();
}

static void
datagrams(void **state)
{
	struct nic_ah_attr to = {.traffic_class = 4, .priority = 3};
	struct nic_send_wr wr;
	struct nic_ah *ah;
	struct nic_qp *qp;

	open_roce();
	qp = make_qp(NIC_UD, 8, NULL, NULL);
	assert_int_equal(fake.modified_mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
	assert_int_equal(ops()->ah_create(vnic_nic_device(dev), &to, &ah), -EINVAL);
	to.gid = gid("10.0.0.9");
	assert_int_equal(ops()->ah_create(vnic_nic_device(dev), &to, &ah), 0);
	assert_int_equal(fake.ah.is_global, 1);
	assert_int_equal(fake.ah.grh.traffic_class, 4);
	assert_int_equal(fake.ah.sl, 2);
	wr = write_wr(1, 0);
	assert_int_equal(nic_post_send(qp, &wr, 1), -EINVAL);
	wr.opcode = NIC_SEND_IMM;
	wr.ah = ah;
	wr.remote_qpn = 0x42;
	wr.qkey = 0x1234;
	assert_int_equal(nic_post_send(qp, &wr, 1), 1);
	nic_flush(ctx, 0);
	assert_ptr_equal(fake.post[0].wr.wr.ud.ah, ah);
	assert_int_equal(fake.post[0].wr.wr.ud.remote_qpn, 0x42);
	assert_int_equal(fake.post[0].wr.wr.ud.remote_qkey, 0x1234);
	ops()->ah_destroy(ah);
	close_all();
}

/* ---- the end, sleep, events ---- */

/* A NIC that flushes slowly: the receive goes on waiting for others that use its SRQ. */
static void
receive_of_a_qp_that_is_gone(void **state)
{
	struct ibv_wc wc = {.opcode = IBV_WC_RECV, .status = IBV_WC_WR_FLUSH_ERR};
	struct nic_recv_wr recv = {.wr_id = 5, .sge = {0x1000, 64, 3}};
	struct nic_qp *stays, *goes;
	struct nic_wc out[NIC_POLL_MAX];
	struct nic_srq *srq;
	struct ibv_qp *is;
	uint32_t stays_qpn;

	open_roce();
	assert_int_equal(ops()->srq_create(ctx, 8, &srq), 0);
	stays = make_qp(NIC_RC, 8, srq, NULL);
	goes = make_qp(NIC_RC, 8, srq, NULL);
	post(stays, 1, 0);
	nic_flush(ctx, 0);
	is = ibqp(stays);
	assert_int_equal(ops()->post_srq_recv(srq, &recv, 1), 1);
	wc.wr_id = fake.recv[0].wr_id;
	stays_qpn = is->qp_num;
	is->qp_num = nic_qpn(goes);
	ops()->qp_destroy(goes);
	assert_int_equal(poll_all(out, 1000), 0);
	assert_int_equal(poll_all(out, 1000000000), 0); /* forgotten */
	fake_complete(is, false, &wc);
	assert_int_equal(poll_all(out, 1000000001), 0);
	assert_int_equal(fake.recvs, 2);
	assert_int_equal(fake.recv[1].wr_id, wc.wr_id);
	assert_int_equal(fake.recv[1].num_sge, 1);
	assert_int_equal(fake.recv[1].sg_list->addr, 0x1000);
	assert_int_equal(fake.recv[1].sg_list->length, 64);
	/* its place is taken: the SRQ is not deeper by it */
	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(ops()->post_srq_recv(srq, &recv, 1), 1);
	assert_int_equal(ops()->post_srq_recv(srq, &recv, 1), 0);
	is->qp_num = stays_qpn;
	wc.status = IBV_WC_SUCCESS;
	fake_complete(is, false, &wc);
	assert_int_equal(poll_all(out, 1000000002), 1);
	assert_int_equal(out[0].wr_id, 5);
	assert_int_equal(out[0].status, NIC_WC_SUCCESS);
	ops()->qp_destroy(stays);
	ops()->srq_destroy(srq);
	poll_all(out, 2000000000);
	poll_all(out, 3000000000);
	close_all();
}

static void
the_end_of_a_qp(void **state)
{
	struct ibv_wc late = {.opcode = IBV_WC_RECV, .status = IBV_WC_WR_FLUSH_ERR};
	struct nic_recv_wr recv = {.wr_id = 5};
	struct nic_async_event event;
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_srq *srq;
	struct nic_qp *qp;
	struct ibv_qp *is;
	int fd;

	open_roce();
	assert_int_equal(ops()->srq_create(ctx, 8, &srq), 0);
	assert_int_equal(ops()->post_srq_recv(srq, &recv, 1), 1);
	for (int told = 0; told < 2; told++) {
		qp = make_qp(NIC_RC, 8, srq, NULL);
		post(qp, 1, 0);
		nic_flush(ctx, 0);
		is = ibqp(qp);
		ops()->qp_destroy(qp);
		assert_int_equal(is->state, IBV_QPS_ERR);
		assert_int_equal(ops()->arm(ctx, 5, &fd), 5);
		assert_int_equal(poll_all(wc, 1000), 0);
		expect_no_event();
		assert_int_equal(fake.qps, 1); /* the NIC may still have something */
		if (told) {
			fake_async_event(IBV_EVENT_QP_LAST_WQE_REACHED, is);
			expect_no_event();
		}
		late.wr_id = fake.recv[0].wr_id;
		fake_complete(is, false, &late);
		/* what is in the CQ is handed out before the QP is forgotten */
		assert_int_equal(poll_all(wc, told ? 2000 : 1000000000), 1);
		assert_int_equal(wc[0].wr_id, 5);
		expect_no_event();
		assert_int_equal(fake.qps, 0);
		assert_int_equal(ops()->post_srq_recv(srq, &recv, 1), 1);
		memmove(&fake.recv[0], &fake.recv[1], sizeof(fake.recv[0]));
		fake.recvs = 1;
		fake.posts = 0;
	}
	/* an SRQ goes with its last QP */
	qp = make_qp(NIC_RC, 8, srq, NULL);
	ops()->srq_destroy(srq);
	assert_int_equal(fake.srqs, 1);
	ops()->qp_destroy(qp);
	poll_all(wc, 2000000000);
	poll_all(wc, 3000000000);
	ops()->async_event(vnic_nic_device(dev), &event);
	assert_int_equal(fake.srqs, 0);
	close_all();
}

static void
sleep_and_wake(void **state)
{
	struct nic_qp *qp;
	int fd;

	qp = open_qp(8, NULL);
	post(qp, 1, 0);
	nic_flush(ctx, 0);
	assert_int_equal(ops()->arm(ctx, 10, &fd), 10); /* armed now: look once more */
	assert_int_equal(fake.notified, 2);
	assert_true(fd >= 0);
	assert_true(ops()->arm(ctx, 20, &fd) == UINT64_MAX);
	assert_true(ops()->arm(ctx, 30, &fd) == UINT64_MAX);
	assert_int_equal(fake.notified, 2);
	fake_cq_event(ibqp(qp), true);
	assert_int_equal(ops()->arm(ctx, 40, &fd), 40); /* an event disarms */
	assert_int_equal(fake.notified, 4);
	assert_true(ops()->arm(ctx, 50, &fd) == UINT64_MAX);
	for (unsigned i = 0; i < 100; i++) { /* acknowledged in batches */
		fake_cq_event(ibqp(qp), false);
		ops()->arm(ctx, 60, &fd);
	}
	assert_true(fake.events_unacked < 100);
	close_all();
}

static void
events(void **state)
{
	struct nic_qp *qp;
	int user;

	qp = open_qp(8, &user);
	post(qp, 1, 0);
	nic_flush(ctx, 0);
	fake_async_event(IBV_EVENT_COMM_EST, ibqp(qp));
	fake_async_event(IBV_EVENT_QP_ACCESS_ERR, ibqp(qp));
	expect_event(NIC_EVENT_QP_FATAL, &user);
	fake_async_event(IBV_EVENT_PORT_ERR, NULL);
	expect_event(NIC_EVENT_LINK_DOWN, NULL);
	fake_async_event(IBV_EVENT_PORT_ACTIVE, NULL);
	expect_event(NIC_EVENT_LINK_UP, NULL);
	fake_async_event(IBV_EVENT_DEVICE_FATAL, NULL);
	expect_event(NIC_EVENT_DEVICE_FATAL, NULL);
	expect_no_event();
	close_all();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_doorbell_a_flush),
	    cmocka_unit_test(opcodes),
	    cmocka_unit_test(inline_data),
	    cmocka_unit_test(selective_signaling),
	    cmocka_unit_test(a_failure_flushes),
	    cmocka_unit_test(the_nic_refuses),
	    cmocka_unit_test(receives),
	    cmocka_unit_test(datagrams),
	    cmocka_unit_test(receive_of_a_qp_that_is_gone),
	    cmocka_unit_test(the_end_of_a_qp),
	    cmocka_unit_test(sleep_and_wake),
	    cmocka_unit_test(events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
