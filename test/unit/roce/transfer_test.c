/* SPDX-License-Identifier: BSD-3-Clause */
/* Two cores back to back: every kind and size of message arrives once, whole, in order, whatever
 * the wire does. */
#include "worlds/roce_net.h"

#define SIZES 6u
#define KINDS 4u
#define MESSAGES (SIZES * KINDS * 4)

struct transfer {
	struct net *net;
	struct net_port *a, *b;
	struct nic_qp *qa, *qb;
	uint32_t mtu, slot; /* slot: bytes of memory for each message */
	uint8_t *source, *target, *receive;
	struct nic_mr source_mr, target_mr, receive_mr;
	unsigned posted;
	unsigned signal_every;
};

static uint32_t
size_of(const struct transfer *t, unsigned i)
{
	const uint32_t sizes[SIZES] = {0, 1, t->mtu - 1, t->mtu, t->mtu + 1, 10 * t->mtu + 3};

	return sizes[i / KINDS % SIZES];
}

static enum nic_opcode
kind_of(unsigned i)
{
	return (enum nic_opcode)(NIC_SEND + i % KINDS);
}

static void
set_up(struct transfer *t, struct net *n, unsigned a, unsigned b, unsigned context)
{
	struct nic_attr attr;
	size_t bytes;

	*t = (struct transfer){.net = n, .signal_every = 1};
	t->a = &n->node[a].port[context];
	t->b = &n->node[b].port[n->node[b].contexts - 1 - context];
	roce_ops.query(roce_nic_device(n->node[a].dev), &attr);
	t->mtu = attr.mtu;
	t->slot = 10 * t->mtu + 16;
	bytes = (size_t)MESSAGES * t->slot;
	t->source = malloc(bytes);
	t->target = calloc(1, bytes);
	t->receive = calloc(1, bytes);
	for (size_t i = 0; i < bytes; i++)
		t->source[i] = (uint8_t)net_random(n);
	roce_ops.mr_reg(roce_nic_device(n->node[a].dev), t->source, bytes, NIC_LOCAL_WRITE,
			&t->source_mr);
	roce_ops.mr_reg(roce_nic_device(n->node[b].dev), t->target, bytes, NIC_REMOTE_WRITE,
			&t->target_mr);
	roce_ops.mr_reg(roce_nic_device(n->node[b].dev), t->receive, bytes, NIC_LOCAL_WRITE,
			&t->receive_mr);
}

static void
tear_down(struct transfer *t)
{
	free(t->source);
	free(t->target);
	free(t->receive);
}

static void
make_wr(const struct transfer *t, unsigned i, struct nic_send_wr *wr)
{
	uint32_t size = size_of(t, i), half = i % 3 == 0 ? size / 3 : size;
	uint64_t at = t->source_mr.address + (uint64_t)i * t->slot;

	*wr = (struct nic_send_wr){
	    .wr_id = i,
	    .opcode = (uint8_t)kind_of(i),
	    .flags = (i + 1) % t->signal_every == 0 ? NIC_SIGNALED : 0,
	    .imm = 0xdead0000 + i,
	    .remote_address = t->target_mr.address + (uint64_t)i * t->slot,
	    .rkey = t->target_mr.rkey,
	    .sge_count = size == 0	? 0
			 : half == size ? 1
					: 2,
	    .sge = {{at, half, t->source_mr.lkey}, {at + half, size - half, t->source_mr.lkey}}};
	if (size <= QP_INLINE_MAX && i % 5 == 0)
		wr->flags |= NIC_INLINE;
}

static void
post_some(struct transfer *t)
{
	while (t->posted < MESSAGES) {
		struct nic_send_wr wr;
		int taken;

		make_wr(t, t->posted, &wr);
		taken = nic_post_send(t->qa, &wr, 1);
		assert_in_range(taken, 0, 1);
		if (taken == 0)
			return;
		t->posted++;
	}
}

/* The last message is signaled in every case. */
static void
run(struct transfer *t)
{
	unsigned wanted = MESSAGES / t->signal_every;
	uint64_t limit = t->net->now + UINT64_C(30000000000);

	assert_int_equal(MESSAGES % t->signal_every, 0);
	net_post_recvs(t->b, &t->receive_mr, MESSAGES, t->slot);
	while (t->a->wcs < wanted) {
		post_some(t);
		net_turn(t->net);
		assert_true(t->net->now < limit);
	}
	net_run(t->net, 1000000);
}

static void
check_sender(const struct transfer *t)
{
	assert_int_equal(t->a->wcs, MESSAGES / t->signal_every);
	for (unsigned i = 0; i < t->a->wcs; i++) {
		const struct nic_wc *wc = &t->a->wc[i];
		unsigned id = (i + 1) * t->signal_every - 1;

		assert_int_equal(wc->wr_id, id);
		assert_int_equal(wc->status, NIC_WC_SUCCESS);
		assert_int_equal(wc->opcode, kind_of(id));
		assert_int_equal(wc->qpn, nic_qpn(t->qa));
		assert_ptr_equal(wc->qp_user, t->a);
	}
}

static void
check_receiver(const struct transfer *t)
{
	unsigned got = 0;

	for (unsigned i = 0; i < MESSAGES; i++) {
		enum nic_opcode kind = kind_of(i);
		const uint8_t *sent = t->source + (size_t)i * t->slot;
		const uint8_t *place = t->target + (size_t)i * t->slot;
		const struct nic_wc *wc = &t->b->wc[got];
		uint32_t size = size_of(t, i);

		if (kind == NIC_SEND || kind == NIC_SEND_IMM)
			place = t->receive + (size_t)got * t->slot;
		if (size != 0)
			assert_memory_equal(place, sent, size);
		for (uint32_t k = size; k < t->slot; k++) /* and nothing behind it */
			assert_int_equal(place[k], 0);
		if (kind == NIC_WRITE)
			continue;
		assert_int_equal(wc->status, NIC_WC_SUCCESS);
		assert_int_equal(wc->wr_id, got);
		assert_int_equal(wc->length, size);
		assert_int_equal(wc->opcode, kind == NIC_WRITE_IMM ? NIC_RECV_IMM : NIC_RECV);
		assert_int_equal(wc->has_imm, kind != NIC_SEND);
		assert_int_equal(wc->imm, kind != NIC_SEND ? 0xdead0000 + i : 0);
		assert_int_equal(wc->qpn, nic_qpn(t->qb));
		got++;
	}
	assert_int_equal(t->b->wcs, got);
}

/* All messages from one port to another, and the end of the network. */
static void
check_all(struct transfer *t, uint32_t psn)
{
	net_connect(t->a, t->b, psn, &t->qa, &t->qb);
	run(t);
	check_sender(t);
	check_receiver(t);
}

static void
end(struct transfer *t)
{
	net_destroy(t->net);
	tear_down(t);
}

static void
one_case(uint16_t mtu, uint64_t seed, unsigned loss, unsigned dup, unsigned reorder, uint32_t psn)
{
	struct roce_config config = {.mtu = mtu};
	struct net *n = net_create(2, 1, &config, seed);
	struct transfer t;

	n->loss = loss;
	n->dup = dup;
	n->reorder = reorder;
	set_up(&t, n, 0, 1, 0);
	t.signal_every = seed % 4 == 3 ? 8 : 1;
	check_all(&t, psn);
	if (loss + dup + reorder == 0)
		assert_int_equal(net_counters(&n->node[0]).retransmits, 0);
	end(&t);
}

static void
quiet_wire(void **state)
{
	for (uint16_t mtu = 256; mtu <= 4096; mtu *= 2)
		one_case(mtu, mtu / 256, 0, 0, 0, 0x1234);
}

static void
bad_wire(void **state)
{
	for (unsigned seed = 1; seed <= 40; seed++)
		one_case(256 << seed % 3, seed, seed % 4 * 3, seed % 3 * 4, seed % 5 * 3,
			 seed * 991 & PSN_MASK);
}

static void
psn_wraps(void **state)
{
	one_case(256, 1, 0, 0, 0, 0xfffff0);
	one_case(256, 2, 5, 5, 5, 0xfffff0);
	one_case(1024, 3, 5, 0, 5, 0xffffff);
}

/* Both directions at once on one QP pair. */
static void
both_ways(void **state)
{
	struct net *n = net_create(2, 1, NULL, 7);
	struct transfer t, back;

	n->loss = 2;
	n->reorder = 2;
	set_up(&t, n, 0, 1, 0);
	set_up(&back, n, 1, 0, 0);
	net_connect(t.a, t.b, 77, &t.qa, &t.qb);
	back.qa = t.qb;
	back.qb = t.qa;
	net_post_recvs(t.b, &t.receive_mr, MESSAGES, t.slot);
	net_post_recvs(back.b, &back.receive_mr, MESSAGES, back.slot);
	for (unsigned i = 0; i < 200000; i++) {
		post_some(&t);
		post_some(&back);
		net_turn(n);
	}
	/* completions of both kinds are mixed at each end: count them, and look at the bytes */
	assert_int_equal(t.a->wcs, MESSAGES + MESSAGES * 3 / 4);
	assert_int_equal(t.b->wcs, MESSAGES + MESSAGES * 3 / 4);
	for (unsigned i = 0; i < t.a->wcs; i++) {
		assert_int_equal(t.a->wc[i].status, NIC_WC_SUCCESS);
		assert_int_equal(t.b->wc[i].status, NIC_WC_SUCCESS);
	}
	for (unsigned i = 0; i < MESSAGES; i++) {
		size_t at = (size_t)i * t.slot;

		if (kind_of(i) == NIC_WRITE || kind_of(i) == NIC_WRITE_IMM) {
			assert_memory_equal(t.source + at, t.target + at, size_of(&t, i));
			assert_memory_equal(back.source + at, back.target + at, size_of(&t, i));
		}
	}
	net_destroy(n);
	tear_down(&t);
	tear_down(&back);
}

/* A QP connected to another of its own device, through the port and back. */
static void
own_device(void **state)
{
	struct net *n = net_create(1, 2, NULL, 5);
	struct transfer t;

	set_up(&t, n, 0, 0, 0);
	check_all(&t, 1);
	end(&t);
}

/* Frames that arrive at another engine's queue find their QP. */
static void
handed_over(void **state)
{
	struct net *n = net_create(2, 3, NULL, 6);
	struct transfer t;

	n->node[0].rss = 1;
	n->node[1].rss = 1;
	set_up(&t, n, 0, 1, 0);
	check_all(&t, 1);
	assert_int_equal(nic_qpn(t.qa) & 3, 0);
	assert_int_equal(nic_qpn(t.qb) & 3, 2);
	assert_true(net_counters(&n->node[1]).handed_over > MESSAGES);
	end(&t);
}

/* A pool that is nearly empty, and a port that takes little at once, slow things down but no more.
 */
static void
scarce_buffers(void **state)
{
	struct roce_config config = {.mtu = 256, .tx_frames = 6, .window_frames = 8};
	struct net *n = net_create(2, 1, &config, 9);
	struct transfer t;

	net_set_left(n, 80);
	n->room = 3;
	n->loss = 1;
	set_up(&t, n, 0, 1, 0);
	check_all(&t, 1);
	end(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(quiet_wire),     cmocka_unit_test(bad_wire),
	    cmocka_unit_test(psn_wraps),      cmocka_unit_test(both_ways),
	    cmocka_unit_test(own_device),     cmocka_unit_test(handed_over),
	    cmocka_unit_test(scarce_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
