/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams: what arrives is whole and for whoever knows the Q_Key; what can't is lost, no more. */
#include "worlds/roce_net.h"

#define QKEY 0x11223344u
#define SLOT 2048u

struct world {
	struct net *net;
	struct net_port *a, *b;
	struct nic_qp *qa, *qb;
	struct nic_ah *ah; /* to node 1 */
	uint8_t source[4096], target[32 * SLOT];
	struct nic_mr source_mr, target_mr;
};

static struct nic_qp *
make_qp(struct net_port *p, uint32_t qkey)
{
	struct nic_qp_init init = {.type = NIC_UD, .send_wrs = 32, .srq = p->srq, .user = p};
	struct nic_qp_attr attr = {.state = NIC_QP_INIT, .qkey = qkey, .psn = 7};
	struct nic_qp *qp;

	assert_int_equal(roce_ops.qp_create(roce_nic_context(p->ctx), &init, &qp), 0);
	for (; attr.state <= NIC_QP_RTS; attr.state++)
		assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
	return qp;
}

static struct nic_ah *
make_ah(struct net *n, unsigned from, uint32_t ip)
{
	struct nic_ah_attr attr = {.gid = net_gid(ip), .traffic_class = 0x68};
	struct nic_ah *ah = NULL;

	assert_int_equal(roce_ops.ah_create(roce_nic_device(n->node[from].dev), &attr, &ah), 0);
	return ah;
}

static struct world *
world_create(void)
{
	struct world *w = calloc(1, sizeof(*w));

	w->net = net_create(2, 1, NULL, 4);
	w->a = &w->net->node[0].port[0];
	w->b = &w->net->node[1].port[0];
	w->qa = make_qp(w->a, 5);
	w->qb = make_qp(w->b, QKEY);
	w->ah = make_ah(w->net, 0, net_ip(1));
	for (unsigned i = 0; i < sizeof(w->source); i++)
		w->source[i] = (uint8_t)(i * 3 + 1);
	roce_ops.mr_reg(roce_nic_device(w->net->node[0].dev), w->source, sizeof(w->source), 0,
			&w->source_mr);
	roce_ops.mr_reg(roce_nic_device(w->net->node[1].dev), w->target, sizeof(w->target),
			NIC_LOCAL_WRITE, &w->target_mr);
	return w;
}

static void
world_destroy(struct world *w)
{
	roce_ops.ah_destroy(w->ah);
	net_destroy(w->net);
	free(w);
}

static struct nic_send_wr
datagram(struct world *w, uint64_t id, uint32_t length, bool imm)
{
	return (struct nic_send_wr){.wr_id = id,
				    .opcode = imm ? NIC_SEND_IMM : NIC_SEND,
				    .flags = NIC_SIGNALED,
				    .imm = 0xabcd0000 + (uint32_t)id,
				    .sge_count = 1,
				    .sge = {{w->source_mr.address + id, length, w->source_mr.lkey}},
				    .ah = w->ah,
				    .remote_qpn = nic_qpn(w->qb),
				    .qkey = QKEY};
}

static void
post(struct world *w, struct nic_send_wr wr)
{
	assert_int_equal(nic_post_send(w->qa, &wr, 1), 1);
}

static uint8_t last_frame[256];

static bool
see(struct net *n, const uint8_t *f, uint32_t length)
{
	if (get16(f + 12) == ETH_TYPE_IP)
		memcpy(last_frame, f, length < 256 ? length : 256);
	return true;
}

static void
all_sizes(void **state)
{
	static const uint32_t lengths[] = {0, 1, 2, 3, 4, 63, 64, 1023, 1024};
	struct world *w = world_create();

	w->net->tap = see;
	net_post_recvs(w->b, &w->target_mr, 18, SLOT);
	for (unsigned i = 0; i < 18; i++) {
		struct nic_send_wr wr = datagram(w, i, lengths[i / 2], i % 2);

		wr.flags |= wr.sge[0].length <= QP_INLINE_MAX && i % 3 == 0 ? NIC_INLINE : 0;
		post(w, wr);
	}
	net_run(w->net, 1000000);
	assert_int_equal(w->a->wcs, 18);
	assert_int_equal(w->b->wcs, 18);
	for (unsigned i = 0; i < 18; i++) {
		const struct nic_wc *wc = &w->b->wc[i];
		const uint8_t *got = w->target + (size_t)i * SLOT;

		assert_int_equal(w->a->wc[i].wr_id, i);
		assert_int_equal(w->a->wc[i].status, NIC_WC_SUCCESS);
		assert_int_equal(wc->status, NIC_WC_SUCCESS);
		assert_int_equal(wc->opcode, NIC_RECV);
		assert_int_equal(wc->length, NIC_GRH_BYTES + lengths[i / 2]);
		assert_int_equal(wc->source_qpn, nic_qpn(w->qa));
		assert_int_equal(wc->has_imm, i % 2);
		assert_int_equal(wc->imm, i % 2 ? 0xabcd0000 + i : 0);
		assert_memory_equal(got + NIC_GRH_BYTES, w->source + i, lengths[i / 2]);
		assert_int_equal(got[NIC_GRH_BYTES + lengths[i / 2]], 0);
		if (net_six()) {
			assert_int_equal(get32(got), 0x60000000 | (0x68 | 2) << 20);
			assert_memory_equal(got + 8, net_gid(net_ip(0)).raw, 16);
			assert_memory_equal(got + 24, net_gid(net_ip(1)).raw, 16);
			continue;
		}
		assert_int_equal(got[20], 0x45); /* the IP header */
		assert_int_equal(got[21], 0x68 | 2);
		assert_int_equal(get32(got + 32), net_ip(0));
		assert_int_equal(get32(got + 36), net_ip(1));
	}
	assert_int_equal(last_frame[BTH_AT], UD_SEND_ONLY_IMM);
	assert_int_equal(get32(last_frame + BTH_AT + 8), 7 + 17);
	assert_int_equal(get32(last_frame + EXT_AT), QKEY);
	assert_int_equal(net_counters(&w->net->node[1]).acks_sent, 0);
	world_destroy(w);
}

static void
refused_posts(void **state)
{
	struct world *w = world_create();
	struct nic_send_wr wr;

	for (unsigned opcode = NIC_WRITE; opcode <= NIC_SEND_INV; opcode++) {
		wr = datagram(w, 1, 8, false);
		wr.opcode = (uint8_t)opcode;
		assert_int_equal(nic_post_send(w->qa, &wr, 1), -EINVAL);
	}
	wr = datagram(w, 1, 1025, false); /* a frame, no more */
	assert_int_equal(nic_post_send(w->qa, &wr, 1), -EINVAL);
	wr = datagram(w, 1, 8, false);
	wr.ah = NULL;
	assert_int_equal(nic_post_send(w->qa, &wr, 1), -EINVAL);
	wr.ah = make_ah(w->net, 1, net_ip(0)); /* another device's */
	assert_int_equal(nic_post_send(w->qa, &wr, 1), -EINVAL);
	wr = datagram(w, 1, 8, false);
	wr.remote_qpn = 1u << 24;
	assert_int_equal(nic_post_send(w->qa, &wr, 1), -EINVAL);
	wr = datagram(w, 1, 8, false);
	wr.sge[0].lkey ^= 1u << 30;
	post(w, wr);
	net_run(w->net, 100000);
	assert_int_equal(w->a->wc[0].status, NIC_WC_LOC_PROT_ERR);
	world_destroy(w);
}

/* Wrong Q_Key, no receive WR, too long for it: counted and lost, and the QP lives. */
static void
lost(void **state)
{
	struct world *w = world_create();
	struct nic_send_wr wr = datagram(w, 1, 100, false);
	struct nic_counters c;

	post(w, wr); /* no receive */
	net_run(w->net, 100000);
	net_post_recvs(w->b, &w->target_mr, 2, NIC_GRH_BYTES + 99);
	wr.qkey = QKEY + 1;
	post(w, wr);
	wr.qkey = 0x80000000; /* stands for the QP's own: 5 */
	post(w, wr);
	post(w, datagram(w, 2, 100, false)); /* too long */
	net_run(w->net, 100000);
	assert_int_equal(w->b->wcs, 0);
	c = net_counters(&w->net->node[1]);
	assert_int_equal(c.drop_no_buffer, 1);
	assert_int_equal(c.drop_bad_qkey, 2);
	assert_int_equal(c.drop_bad_request, 1);
	for (unsigned i = 0; i < w->a->wcs; i++)
		assert_int_equal(w->a->wc[i].status, NIC_WC_SUCCESS);
	assert_int_equal(w->a->wcs, 4);
	post(w, datagram(w, 3, 99, false));
	net_run(w->net, 100000);
	assert_int_equal(w->b->wcs, 1);
	assert_memory_equal(w->target + NIC_GRH_BYTES, w->source + 3, 99);
	world_destroy(w);
}

/* An address that nobody answers for holds a QP up for the timeout, and then costs the datagram. */
static void
nobody_there(void **state)
{
	struct world *w = world_create();
	struct nic_send_wr wr = datagram(w, 1, 10, false);
	struct nic_ah *nowhere = make_ah(w->net, 0, net_ip(77));

	w->net->step = 20 * NET_STEP_NS;
	net_post_recvs(w->b, &w->target_mr, 2, SLOT);
	wr.ah = nowhere;
	post(w, wr);
	post(w, datagram(w, 2, 10, false));
	net_run(w->net, 240000000);
	assert_int_equal(w->a->wcs, 0);
	net_run(w->net, 20000000);
	assert_int_equal(w->a->wcs, 2);
	assert_int_equal(w->a->wc[0].status, NIC_WC_SUCCESS);
	assert_int_equal(net_counters(&w->net->node[0]).drop_no_neighbour, 1);
	assert_int_equal(w->b->wcs, 1);
	roce_ops.ah_destroy(nowhere);
	world_destroy(w);
}

/* Frames of connected QPs to a UD QP, datagrams to a connected one, from nowhere, of any cut. */
static void
wrong_kind(void **state)
{
	struct world *w = world_create();
	struct nic_qp *ra, *rb;
	uint8_t deth[72] = {0};
	unsigned refused = 0;

	net_connect(w->a, w->b, 1, &ra, &rb);
	net_post_recvs(w->b, &w->target_mr, 4, SLOT);
	put32(deth, QKEY);
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		for (unsigned i = 0; i < 3; i++) {
			struct craft c =
			    net_craft(0, 1, (uint8_t)opcode, nic_qpn(i < 2 ? w->qb : rb), 1);

			if (i < 2 && (opcode | 1) == UD_SEND_ONLY_IMM)
				continue; /* that is what it is for */
			if (i == 2 && (opcode & 0xe0) == 0)
				continue; /* so is this */
			c.source_ip = i == 1 ? 0 : c.source_ip;
			c.payload = deth;
			c.length = sizeof(deth);
			net_give(w->net, 1, &c);
			refused++;
		}
	}
	net_run(w->net, 10000);
	assert_int_equal(w->b->wcs, 0);
	assert_int_equal(net_counters(&w->net->node[1]).rx_accepted, 0);
	assert_int_equal(net_counters(&w->net->node[1]).rx_frames, refused);
	assert_int_equal(qp_state((struct roce_qp *)rb), NIC_QP_RTS);
	world_destroy(w);
}

static void
flushed(void **state)
{
	struct world *w = world_create();
	struct nic_qp_attr attr = {.state = NIC_QP_ERR};
	struct nic_send_wr wr = datagram(w, 1, 10, false);

	wr.ah = make_ah(w->net, 0, net_ip(77));
	post(w, wr);
	net_run(w->net, 100000);
	assert_int_equal(roce_ops.qp_modify(w->qa, &attr), 0);
	net_run(w->net, 100000);
	assert_int_equal(w->a->wcs, 1);
	assert_int_equal(w->a->wc[0].status, NIC_WC_WR_FLUSH_ERR);
	wr = datagram(w, 1, 10, false);
	assert_int_equal(nic_post_send(w->qa, &wr, 1), -ENOTCONN);
	roce_ops.qp_destroy(w->qa);
	net_turn(w->net);
	world_destroy(w); /* frees the handle that nobody has destroyed */
}

/* A starved sender goes on when frames come back. */
static void
without_frames(void **state)
{
	struct world *w = world_create();
	unsigned i;

	net_post_recvs(w->b, &w->target_mr, 32, SLOT);
	post(w, datagram(w, 0, 10, false));
	net_run(w->net, 100000);
	net_set_left(w->net, 0);
	for (i = 1; i < 32; i++)
		post(w, datagram(w, i, 10, false));
	for (unsigned k = 0; k < 40; k++)
		net_turn(w->net);
	net_set_left(w->net, 1);
	net_run(w->net, 1000000);
	assert_int_equal(w->a->wcs, 32);
	assert_int_equal(w->b->wcs, 32);
	world_destroy(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_sizes),      cmocka_unit_test(refused_posts),
	    cmocka_unit_test(lost),	      cmocka_unit_test(nobody_there),
	    cmocka_unit_test(wrong_kind),     cmocka_unit_test(flushed),
	    cmocka_unit_test(without_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
