/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs driver against a libibverbs of our own: finding device, port and GID; the way to a
 * peer, by LID too. */
#include "worlds/verbs_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void
infiniband(void)
{
	fake_reset(true);
	fake_gid(0, IBV_GID_TYPE_IB, "fe80::2:c903:1:2");
}

static void
refused(const struct vnic_config *config, int rc, const char *cause)
{
	assert_int_equal(open_with(config), rc);
	assert_non_null(strstr(error, cause));
	assert_non_null(strchr(error, ';'));
	assert_null(strchr(error, '\n'));
	dev = NULL;
	close_all();
}

/* ---- opening ---- */

static void
chosen(const struct vnic_config *config, unsigned index)
{
	struct nic_attr attr;
	struct vnic_info info;
	char text[32];

	assert_int_equal(open_with(config), 0);
	snprintf(text, sizeof(text), "GID index %u ", index);
	vnic_describe(dev, &info);
	assert_non_null(strstr(info.text, text));
	assert_int_equal(ops()->query(vnic_nic_device(dev), &attr), 0);
	assert_memory_equal(attr.gid.raw, fake.gid[index].gid.raw, 16);
	assert_false(attr.ack_visible);
	close_all();
}

static void
gid_is_found(void **state)
{
	struct vnic_config c = defaults;

	roce();
	chosen(&c, 3); /* IPv4, RoCE v2 */
	roce();
	c.gid_index = 4;
	chosen(&c, 4);
	c.gid_index = VNIC_GID_ANY;
	roce();
	c.gid = gid("fd00::1");
	roce();
	chosen(&c, 4);
	c = defaults;
	fake_reset(false);
	fake_gid(0, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_gid(1, IBV_GID_TYPE_ROCE_V2, "fd00::1");
	chosen(&c, 1);
}

static void
gid_is_refused(void **state)
{
	struct vnic_config c = defaults;

	roce();
	c.gid_index = 9;
	refused(&c, -ENODEV, "3 10.0.0.1 (RoCE v2)");
	roce();
	c.gid_index = 2;
	refused(&c, -ENODEV, "RoCE v1");
	c.gid_index = VNIC_GID_ANY;
	c.gid = gid("10.9.9.9");
	roce();
	refused(&c, -ENODEV, "no RoCE v2 GID 10.9.9.9");
	fake_reset(false);
	fake_gid(0, IBV_GID_TYPE_ROCE_V1, "10.0.0.1");
	refused(&defaults, -ENODEV, "no RoCE v2 GID");
}

static void
opening_is_refused(void **state)
{
	struct vnic_config c = defaults;

	roce();
	c.device = "mlx5_0";
	refused(&c, -ENODEV, "no RDMA device mlx5_0; name one of: fake0");
	fake.no_device = true;
	refused(&c, -ENODEV, "mlx5_0");
	roce();
	c = defaults;
	c.port = 3;
	refused(&c, -ENODEV, "no port 3");
	roce();
	c.port = 2;
	refused(&c, -ENODEV, "port 2 is down");
	roce();
	fake.port[0].state = IBV_PORT_INIT;
	refused(&defaults, -ENODEV, "port 2 is down"); /* neither is up */
	roce();
	c = defaults;
	c.mtu = 2048;
	refused(&c, -EMSGSIZE, "more than the 1024");
	roce();
	fake.reg_mr_errno = ENOMEM;
	refused(&defaults, -ENOMEM, "fake0: ");
	roce();
	fake.attr.max_srq = 0;
	refused(&defaults, -ENODEV, "no shared receive queues");
	roce();
	c = defaults;
	c.recv_depth = 5000;
	refused(&c, -ENOSPC, "lower --links");
	infiniband();
	fake.port[0].state = IBV_PORT_INIT;
	c = defaults;
	c.port = 1;
	refused(&c, -ENODEV, "waiting for a subnet manager");
}

static void
memory(void **state)
{
	static uint8_t bytes[4096];
	struct nic_mr mr;

	open_roce();
	assert_int_equal(
	    ops()->mr_reg(vnic_nic_device(dev), bytes, sizeof(bytes),
			  NIC_LOCAL_WRITE | NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC,
			  &mr),
	    0);
	assert_int_equal(fake.mr_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	assert_int_equal(mr.address, (uintptr_t)bytes);
	ops()->mr_dereg(vnic_nic_device(dev), &mr);
	assert_int_equal(fake.mrs, 0);
	assert_int_equal(ops()->mr_reg(vnic_nic_device(dev), bytes, 1, NIC_REMOTE_WRITE, &mr),
			 -EINVAL);
	assert_int_equal(ops()->mr_reg(vnic_nic_device(dev), bytes, 1, NIC_REMOTE_INVALIDATE, &mr),
			 -ENOTSUP);
	fake.reg_mr_errno = ENOMEM;
	assert_int_equal(ops()->mr_reg(vnic_nic_device(dev), bytes, 1, 0, &mr), -ENOMEM);
	close_all();
}

/* ---- ways ---- */

static struct nic_qp *
init_qp(void)
{
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 8};
	struct nic_qp_attr attr = {.state = NIC_QP_INIT};
	struct nic_qp *qp;

	assert_int_equal(ops()->qp_create(ctx, &init, &qp), 0);
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	return qp;
}

static void
way_by_gid(void **state)
{
	const struct ibv_qp_attr *m = &fake.modified;
	struct nic_qp_attr attr = {.state = NIC_QP_RTR, .rnr_retry = 7};
	struct nic_qp *qp;

	open_roce();
	qp = init_qp();
	attr.remote_lid = 9;
	assert_int_equal(ops()->qp_modify(qp, &attr), -EINVAL); /* no GID */
	attr.remote_gid = gid("10.0.0.2");
	attr.mtu = 2048;
	assert_int_equal(ops()->qp_modify(qp, &attr), -EINVAL);
	attr.mtu = 512;
	attr.remote_qpn = 0x77;
	attr.access = NIC_REMOTE_READ;
	attr.traffic_class = 0x68;
	attr.priority = 6; /* 1 + SL */
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	assert_int_equal(m->qp_state, IBV_QPS_RTR);
	assert_int_equal(m->ah_attr.is_global, 1);
	assert_int_equal(m->ah_attr.dlid, 0);
	assert_int_equal(m->ah_attr.grh.sgid_index, 3);
	assert_int_equal(m->ah_attr.grh.traffic_class, 0x68);
	assert_int_equal(m->ah_attr.sl, 5);
	assert_memory_equal(m->ah_attr.grh.dgid.raw, attr.remote_gid.raw, 16);
	assert_int_equal(m->path_mtu, IBV_MTU_512);
	assert_int_equal(m->dest_qp_num, 0x77);
	assert_int_equal(m->qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(m->max_dest_rd_atomic, 8);
	attr.state = NIC_QP_RTS;
	attr.timeout_ns = 5000;
	attr.retry = 3;
	attr.rnr_retry = 2;
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	assert_int_equal(m->timeout, 1); /* 8.2 us */
	assert_int_equal(m->retry_cnt, 3);
	assert_int_equal(m->rnr_retry, 2);
	assert_int_equal(m->max_rd_atomic, 4);
	ops()->qp_destroy(qp);
	close_all();
}

static void
way_by_lid(void **state)
{
	struct nic_qp_attr attr = {.state = NIC_QP_RTR};
	struct nic_ah_attr to = {.lid = 12};
	struct nic_attr is;
	struct nic_ah *ah;
	struct nic_qp *qp;

	infiniband();
	assert_int_equal(open_with(&defaults), 0);
	assert_int_equal(ops()->query(vnic_nic_device(dev), &is), 0);
	assert_int_equal(is.lid, 7);
	qp = init_qp();
	assert_int_equal(ops()->qp_modify(qp, &attr), -EINVAL); /* no LID */
	attr.remote_lid = 9;
	attr.remote_gid = gid("fe80::2:c903:1:3"); /* same subnet */
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	assert_int_equal(fake.modified.ah_attr.is_global, 0);
	assert_int_equal(fake.modified.ah_attr.dlid, 9);
	ops()->qp_destroy(qp);
	qp = init_qp();
	attr.remote_gid = gid("fec0::5"); /* another: by its router */
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	assert_int_equal(fake.modified.ah_attr.is_global, 1);
	assert_int_equal(fake.modified.ah_attr.dlid, 9);
	assert_int_equal(ops()->ah_create(vnic_nic_device(dev), &to, &ah), 0);
	assert_int_equal(fake.ah.dlid, 12);
	assert_int_equal(fake.ah.is_global, 0);
	ops()->ah_destroy(ah);
	ops()->qp_destroy(qp);
	close_all();
}

static void
kinds_of_qp(void **state)
{
	struct nic_qp_init init = {.type = (enum nic_qp_type)2, .send_wrs = 8};
	struct nic_qp *qp;

	open_roce();
	assert_int_equal(ops()->qp_create(ctx, &init, &qp), -EPROTONOSUPPORT); /* UC */
	init = (struct nic_qp_init){.type = NIC_RC, .send_wrs = 5000};
	assert_int_equal(ops()->qp_create(ctx, &init, &qp), -EINVAL);
	close_all();
	/* the send CQs grow with the QPs, and no further than the NIC lets them */
	roce();
	fake.attr.max_cqe = 64;
	assert_int_equal(open_with(&defaults), 0);
	for (unsigned i = 0; i < 6; i++)
		make_qp(NIC_RC, 32, NULL, NULL);
	assert_int_equal(fake.cqs, 1 + 3);
	init.send_wrs = 65;
	assert_int_equal(ops()->qp_create(ctx, &init, &qp), -ENOSPC);
	close_all();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gid_is_found),	  cmocka_unit_test(gid_is_refused),
	    cmocka_unit_test(opening_is_refused), cmocka_unit_test(memory),
	    cmocka_unit_test(way_by_gid),	  cmocka_unit_test(way_by_lid),
	    cmocka_unit_test(kinds_of_qp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
