/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct vnic_device *dev;
struct nic_context *ctx;
char error[512];
static size_t memory_held;

static void *
memory_get(void *user, size_t bytes, int socket)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

	memory_held += bytes;
	return memset(memory, 0, bytes);
}

static void
memory_put(void *user, void *memory, size_t bytes)
{
	memory_held -= bytes;
	free(memory);
}

const struct vnic_config defaults = {
    .device = "fake0",
    .gid_index = VNIC_GID_ANY,
    .contexts = 1,
    .recv_depth = 64,
    .memory_get = memory_get,
    .memory_put = memory_put,
};

int
open_with(const struct vnic_config *config)
{
	int rc = vnic_open(config, &dev, error, sizeof(error));

	ctx = rc ? NULL : vnic_nic_context(dev, 0);
	return rc;
}

void
close_all(void)
{
	vnic_close(dev);
	dev = NULL;
	assert_int_equal(fake.qps + fake.srqs + fake.cqs + fake.mrs + fake.ahs + fake.pds +
			     fake.devices + fake.channels,
			 0);
	assert_int_equal(fake.events_unacked + fake.async_unacked, 0);
	assert_int_equal(memory_held, 0);
}

void
roce(void)
{
	fake_reset(false);
	fake_gid(0, IBV_GID_TYPE_ROCE_V1, "fe80::1");
	fake_gid(1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_gid(2, IBV_GID_TYPE_ROCE_V1, "10.0.0.1");
	fake_gid(3, IBV_GID_TYPE_ROCE_V2, "10.0.0.1");
	fake_gid(4, IBV_GID_TYPE_ROCE_V2, "fd00::1");
}

void
open_roce(void)
{
	roce();
	assert_int_equal(open_with(&defaults), 0);
}

struct nic_gid
gid(const char *text)
{
	struct nic_gid g;

	fake.gids = FAKE_GIDS - 1;
	fake_gid(99, IBV_GID_TYPE_ROCE_V1, text);
	memcpy(g.raw, fake.gid[FAKE_GIDS - 1].gid.raw, sizeof(g.raw));
	return g;
}

const struct nic_ops *
ops(void)
{
	return NIC_OPS(ctx);
}

struct ibv_qp *
ibqp(const struct nic_qp *qp)
{
	for (unsigned i = fake.posts; i-- > 0;)
		if (fake.post[i].qp->qp_num == nic_qpn(qp))
			return fake.post[i].qp;
	return NULL;
}

struct nic_qp *
make_qp(enum nic_qp_type type, uint32_t depth, struct nic_srq *srq, void *user)
{
	struct nic_qp_init init = {.type = type, .send_wrs = depth, .srq = srq, .user = user};
	struct nic_qp_attr attr = {.state = NIC_QP_INIT, .rnr_retry = 7};
	struct nic_qp *qp;

	assert_int_equal(ops()->qp_create(ctx, &init, &qp), 0);
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	attr.state = NIC_QP_RTR;
	attr.remote_gid = gid("10.0.0.2");
	attr.remote_lid = 9;
	attr.remote_qpn = 0x77;
	attr.remote_psn = 5;
	attr.psn = 6;
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	attr.state = NIC_QP_RTS;
	assert_int_equal(ops()->qp_modify(qp, &attr), 0);
	return qp;
}

unsigned
poll_all(struct nic_wc *wc, uint64_t now)
{
	bool busy = false;

	return nic_poll(ctx, wc, NIC_POLL_MAX, now, &busy);
}

struct nic_send_wr
write_wr(uint64_t id, unsigned flags)
{
	static uint8_t memory[64];

	return (struct nic_send_wr){.wr_id = id,
				    .sge = {{(uintptr_t)memory, sizeof(memory), 1}},
				    .sge_count = 1,
				    .opcode = NIC_WRITE,
				    .flags = (uint16_t)flags,
				    .remote_address = 0x1000,
				    .rkey = 2};
}

void
post(struct nic_qp *qp, uint64_t id, unsigned flags)
{
	struct nic_send_wr wr = write_wr(id, flags);

	assert_int_equal(nic_post_send(qp, &wr, 1), 1);
}

struct nic_qp *
open_qp(uint32_t depth, void *user)
{
	open_roce();
	return make_qp(NIC_RC, depth, NULL, user);
}

void
complete(struct nic_qp *qp, unsigned i, enum ibv_wc_status status)
{
	struct ibv_wc wc = {.wr_id = fake.post[i].wr.wr_id, .status = status};

	fake_complete(ibqp(qp), true, &wc);
}

void
expect_event(int type, const void *user)
{
	struct nic_async_event event;

	assert_int_equal(ops()->async_event(vnic_nic_device(dev), &event), 0);
	assert_int_equal(event.type, type);
	if (user)
		assert_ptr_equal(event.qp_user, user);
}

void
expect_no_event(void)
{
	struct nic_async_event event;

	assert_int_equal(ops()->async_event(vnic_nic_device(dev), &event), -EAGAIN);
}
