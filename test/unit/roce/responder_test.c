/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving side against frames made by hand: in sequence, duplicate, ahead, forbidden,
 * impossible. */
#include "worlds/roce_net.h"

#include "nic/roce/ack.h"

#define MTU 1024u
#define PSN 0xfffffeu /* wraps soon */

/* Node 0 is under test; node 1 exists to have an address; frames come from the test. */
struct bench {
	struct net *net;
	struct net_port *port;
	struct nic_qp *qp, *peer;
	uint8_t memory[8192];
	struct nic_mr mr;
	uint8_t recv[4][2048];
	struct nic_mr recv_mr;
	uint8_t payload[4096];
	/* the last answer that left */
	unsigned answers, notifications;
	uint32_t answer_psn;
	uint8_t syndrome;
};

static bool
see_answer(struct net *n, const uint8_t *f, uint32_t length)
{
	struct bench *b = n->tap_user;

	if (get16(f + 12) != ETH_TYPE_IP)
		return true;
	assert_int_equal(get32(f + IP_AT + 12), net_ip(0));
	assert_int_equal(get32(f + BTH_AT + 4) & QPN_MASK, nic_qpn(b->peer));
	if (f[BTH_AT] == ROCE_CNP) {
		assert_int_equal(f[BTH_AT + 4], BTH_BECN);
		assert_int_equal(length, EXT_AT + CNP_BYTES + ICRC_BYTES);
		b->notifications++;
		return false;
	}
	assert_int_equal(f[BTH_AT], RC_ACK);
	b->answers++;
	b->answer_psn = get32(f + BTH_AT + 8);
	b->syndrome = f[EXT_AT];
	return false;
}

static struct bench *
bench_create(void)
{
	struct bench *b = calloc(1, sizeof(*b));

	b->net = net_create(2, 1, NULL, 1);
	b->net->tap = see_answer;
	b->net->tap_user = b;
	b->port = &b->net->node[0].port[0];
	net_connect(b->port, &b->net->node[1].port[0], PSN, &b->qp, &b->peer);
	roce_ops.mr_reg(roce_nic_device(b->net->node[0].dev), b->memory, sizeof(b->memory),
			NIC_REMOTE_WRITE, &b->mr);
	roce_ops.mr_reg(roce_nic_device(b->net->node[0].dev), b->recv, sizeof(b->recv),
			NIC_LOCAL_WRITE, &b->recv_mr);
	for (unsigned i = 0; i < sizeof(b->payload); i++)
		b->payload[i] = (uint8_t)(i * 13 + 1);
	return b;
}

static void
bench_destroy(struct bench *b)
{
	net_destroy(b->net);
	free(b);
}

static struct craft
craft(struct bench *b, uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct craft c = net_craft(1, 0, opcode, nic_qpn(b->qp), psn);

	c.ack_request = true;
	c.payload = b->payload;
	c.immediate = opcode == RC_SEND_LAST_IMM || opcode == RC_SEND_ONLY_IMM ||
		      opcode == RC_WRITE_LAST_IMM || opcode == RC_WRITE_ONLY_IMM;
	c.reth = opcode == RC_WRITE_FIRST || opcode == RC_WRITE_ONLY || opcode == RC_WRITE_ONLY_IMM;
	c.address = b->mr.address;
	c.rkey = b->mr.rkey;
	c.length = c.dma_length = length;
	return c;
}

static void
give(struct bench *b, const struct craft *c)
{
	net_give(b->net, 0, c);
	net_turn(b->net);
	net_run(b->net, ROCE_ACK_LAZY_NS); /* all answers have left */
}

static void
give_at(struct bench *b, struct craft *c, uint32_t psn)
{
	c->psn = psn & PSN_MASK;
	give(b, c);
}

static void
expect_answer(struct bench *b, unsigned count, uint8_t syndrome, uint32_t psn)
{
	assert_int_equal(b->answers, count);
	assert_int_equal(b->syndrome, syndrome);
	assert_int_equal(b->answer_psn, psn & PSN_MASK);
}

static bool
untouched(const struct bench *b)
{
	for (unsigned i = 0; i < sizeof(b->memory); i++) {
		if (b->memory[i] != 0)
			return false;
	}
	return true;
}

#define ACK AETH(AETH_ACK, AETH_UNLIMITED)
#define NAK(code) AETH(AETH_NAK, code)

static void
in_sequence(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, 100);

	c.address += 50;
	give(b, &c);
	expect_answer(b, 1, ACK, PSN);
	assert_memory_equal(b->memory + 50, b->payload, 100);
	assert_int_equal(b->memory[49] | b->memory[150], 0);
	c = craft(b, RC_WRITE_ONLY, PSN + 1, 0); /* empty: keys don't matter */
	c.rkey = 1;
	c.ack_request = false;
	give(b, &c);
	assert_int_equal(b->answers, 1);
	c = craft(b, RC_WRITE_FIRST, PSN + 2, MTU);
	c.dma_length = 2 * MTU + 1;
	give(b, &c);
	c = craft(b, RC_WRITE_MIDDLE, PSN + 3, MTU);
	give(b, &c);
	c = craft(b, RC_WRITE_LAST, PSN + 4, 1);
	give(b, &c);
	expect_answer(b, 4, ACK, PSN + 4);
	assert_memory_equal(b->memory, b->payload, MTU);
	assert_memory_equal(b->memory + MTU, b->payload, MTU);
	assert_int_equal(b->memory[2 * MTU], b->payload[0]);
	assert_int_equal(b->memory[2 * MTU + 1], 0);
	assert_int_equal(net_counters(&b->net->node[0]).rx_accepted, 5);
	bench_destroy(b);
}

/* One burst, one ACK, for the last PSN. */
static void
acks_coalesced(void **state)
{
	struct bench *b = bench_create();

	for (unsigned i = 0; i < 10; i++) {
		struct craft c = craft(b, RC_WRITE_ONLY, PSN + i, 64);

		net_give(b->net, 0, &c);
	}
	assert_int_equal(b->answers, 0);
	net_turn(b->net);
	expect_answer(b, 1, ACK, PSN + 9);
	bench_destroy(b);
}

static void
duplicates(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, 64);

	give(b, &c);
	c = craft(b, RC_SEND_ONLY, PSN + 1, 64);
	net_post_recvs(b->port, &b->recv_mr, 2, 2048);
	give(b, &c);
	expect_answer(b, 2, ACK, PSN + 1);
	/* the same again, with other contents: acknowledged, and nothing else */
	c = craft(b, RC_WRITE_ONLY, PSN, 64);
	c.payload = b->payload + 1;
	give(b, &c);
	expect_answer(b, 3, ACK, PSN + 1);
	c = craft(b, RC_SEND_ONLY, PSN + 1, 64);
	c.payload = b->payload + 1;
	give(b, &c);
	expect_answer(b, 4, ACK, PSN + 1);
	assert_int_equal(b->port->wcs, 1);
	assert_memory_equal(b->memory, b->payload, 64);
	assert_memory_equal(b->recv[0], b->payload, 64);
	/* the oldest PSN that still counts as past */
	c = craft(b, RC_WRITE_ONLY, PSN + 2 - 0x800000, 64);
	give(b, &c);
	expect_answer(b, 5, ACK, PSN + 1);
	assert_int_equal(net_counters(&b->net->node[0]).drop_duplicate, 3);
	bench_destroy(b);
}

static void
ahead(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_ONLY, PSN + 1, 64);

	give(b, &c);
	expect_answer(b, 1, NAK(NAK_SEQUENCE), PSN);
	give_at(b, &c, PSN + 2);
	give_at(b, &c, PSN + 0x7fffff);	 /* the furthest ahead */
	assert_int_equal(b->answers, 1); /* one gap, one NAK */
	assert_true(untouched(b));
	give_at(b, &c, PSN);
	expect_answer(b, 2, ACK, PSN);
	give_at(b, &c, PSN + 2); /* another gap */
	expect_answer(b, 3, NAK(NAK_SEQUENCE), PSN + 1);
	assert_int_equal(net_counters(&b->net->node[0]).drop_out_of_order, 4);
	bench_destroy(b);
}

/* PSNs that begin anew: the peer went back as told, and the missing one was lost on its way again.
 */
static void
lost_again(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_ONLY, PSN + 1, 64);

	for (unsigned i = 1; i <= 3; i++) {
		give_at(b, &c, PSN + i);
		give(b, &c); /* one that came twice tells nothing */
	}
	expect_answer(b, 1, NAK(NAK_SEQUENCE), PSN);
	for (unsigned i = 1; i <= 5; i++) {
		give_at(b, &c, PSN + i);
	}
	expect_answer(b, 2, NAK(NAK_SEQUENCE), PSN);
	give_at(b, &c, PSN);
	expect_answer(b, 3, ACK, PSN);
	bench_destroy(b);
}

/* A frame ahead and the missing one in the same burst: the NAK names what is expected after both.
 */
static void
ahead_then_expected(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_ONLY, PSN + 1, 64);

	net_give(b->net, 0, &c);
	give_at(b, &c, PSN);
	expect_answer(b, 1, NAK(NAK_SEQUENCE), PSN + 1);
	give_at(b, &c, PSN + 1);
	expect_answer(b, 2, ACK, PSN + 1);
	bench_destroy(b);
}

/* Each on a fresh QP: refused with `syndrome`, the QP is dead, no byte was written. */
static void
refused(struct craft (*make)(struct bench *b, unsigned i), unsigned i, uint8_t syndrome)
{
	struct bench *b = bench_create();
	struct nic_async_event event;
	struct craft c = make(b, i);

	give(b, &c);
	expect_answer(b, 1, syndrome, PSN);
	assert_true(untouched(b));
	assert_int_equal(qp_state((struct roce_qp *)b->qp), NIC_QP_ERR);
	assert_int_equal(net_counters(&b->net->node[0]).drop_bad_request, 1);
	assert_int_equal(roce_ops.async_event(roce_nic_device(b->net->node[0].dev), &event), 0);
	assert_int_equal(event.type, NIC_EVENT_QP_FATAL);
	assert_ptr_equal(event.qp_user, b->port);
	/* even what would have been right before is refused now, silently */
	c = craft(b, RC_WRITE_ONLY, PSN, 64);
	give(b, &c);
	assert_int_equal(b->answers, 1);
	assert_true(untouched(b));
	assert_int_equal(net_counters(&b->net->node[0]).drop_no_qp, 1);
	bench_destroy(b);
}

static struct craft
forbidden(struct bench *b, unsigned i)
{
	static const struct {
		int64_t address;
		uint32_t dma_length, key;
	} cases[] = {
	    {0, 64, 1},			      /* key off by a bit */
	    {0, 64, 0x80000000}, {-1, 64, 0}, /* begins before */
	    {8192 - 63, 64, 0},		      /* ends behind, by one byte */
	    {8192, 1, 0},	 {0, 8193, 0}, {INT64_MAX, 64, 0}, {INT64_MIN, 64, 0},
	};
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, cases[i].dma_length > 64 ? 0 : 64);

	if (cases[i].dma_length > MTU) {
		c.opcode = RC_WRITE_FIRST;
		c.length = MTU;
	} else {
		c.length = cases[i].dma_length;
	}
	c.address += (uint64_t)cases[i].address;
	c.dma_length = cases[i].dma_length;
	c.rkey ^= cases[i].key;
	return c;
}

/* address + length wraps around to something harmless */
static struct craft
wrapping(struct bench *b, unsigned i)
{
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, 64);

	c.address = UINT64_MAX - i;
	return c;
}

static struct craft
without_right(struct bench *b, unsigned i)
{
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, 64);

	if (i == 0) { /* a region that isn't for peers */
		c.address = b->recv_mr.address;
		c.rkey = b->recv_mr.rkey;
	} else if (i == 1) { /* a region that is gone */
		roce_ops.mr_dereg(roce_nic_device(b->net->node[0].dev), &b->mr);
	} else { /* a QP whose peer may not write */
		((struct roce_qp *)b->qp)->access = NIC_REMOTE_READ;
	}
	return c;
}

static void
access_refused(void **state)
{
	for (unsigned i = 0; i < 8; i++)
		refused(forbidden, i, NAK(NAK_REMOTE_ACCESS));
	for (unsigned i = 0; i < 100; i += 9)
		refused(wrapping, i, NAK(NAK_REMOTE_ACCESS));
	for (unsigned i = 0; i < 2; i++)
		refused(without_right, i, NAK(NAK_REMOTE_ACCESS));
	refused(without_right, 2, NAK(NAK_INVALID_REQUEST));
}

static struct craft
invalid(struct bench *b, unsigned i)
{
	static const struct {
		uint8_t opcode;
		uint32_t length, dma_length;
	} cases[] = {
	    {RC_WRITE_ONLY, 64, 65},		/* announced more, */
	    {RC_WRITE_ONLY, 64, 63},		/* or less than came */
	    {RC_WRITE_ONLY, MTU + 4, MTU + 4},	/* longer than the path MTU */
	    {RC_WRITE_FIRST, MTU - 4, 2 * MTU}, /* only the last may be short */
	    {RC_WRITE_FIRST, MTU, MTU},		/* nothing left for a last one */
	    {RC_WRITE_FIRST, MTU, 100},
	    {RC_WRITE_FIRST, MTU, 0x80000001},
	    {RC_WRITE_MIDDLE, MTU, 0}, /* of nothing */
	    {RC_WRITE_LAST, 64, 0},
	    {RC_WRITE_LAST_IMM, 64, 0},
	    {RC_SEND_MIDDLE, MTU, 0},
	    {RC_SEND_LAST, 64, 0},
	    {RC_SEND_FIRST, MTU - 1, 0},
	    {RC_SEND_ONLY, MTU + 4, 0},
	    {RC_READ_REQUEST, 0, 0x80000001},
	};
	struct craft c;

	net_post_recvs(b->port, &b->recv_mr, 1, 2048);
	c = craft(b, cases[i].opcode, PSN, cases[i].length);
	c.dma_length = cases[i].dma_length;
	c.reth = c.reth || c.opcode == RC_READ_REQUEST;
	return c;
}

static void
invalid_refused(void **state)
{
	for (unsigned i = 0; i < 15; i++)
		refused(invalid, i, NAK(NAK_INVALID_REQUEST));
}

/* The region goes away, or the message turns into another, between two packets. */
static void
changes_midway(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		static const uint8_t next[] = {RC_WRITE_MIDDLE, RC_SEND_MIDDLE, RC_WRITE_ONLY,
					       RC_WRITE_LAST};
		struct bench *b = bench_create();
		struct craft c = craft(b, RC_WRITE_FIRST, PSN, MTU);

		c.dma_length = 3 * MTU;
		give(b, &c);
		expect_answer(b, 1, ACK, PSN);
		if (i == 0)
			roce_ops.mr_dereg(roce_nic_device(b->net->node[0].dev), &b->mr);
		c = craft(b, next[i], PSN + 1, MTU);
		give(b, &c);
		expect_answer(b, 2, NAK(i == 0 ? NAK_REMOTE_ACCESS : NAK_INVALID_REQUEST), PSN + 1);
		for (unsigned k = MTU; k < sizeof(b->memory); k++)
			assert_int_equal(b->memory[k], 0);
		bench_destroy(b);
	}
}

static void
wrong_peer(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, 64);

	c.source_ip = net_ip(2);
	give(b, &c);
	assert_int_equal(net_counters(&b->net->node[0]).drop_wrong_peer, 1);
	c = craft(b, RC_WRITE_ONLY, PSN, 64);
	c.dest_ip = net_ip(1);
	give(b, &c);
	c = craft(b, RC_WRITE_ONLY, PSN, 64);
	c.dest_mac[5] ^= 1;
	give(b, &c);
	assert_int_equal(net_counters(&b->net->node[0]).drop_not_ours, 2);
	c = craft(b, RC_WRITE_ONLY, PSN, 64);
	c.qpn += 1u << 20; /* another life of the same index */
	give(b, &c);
	c.qpn = 1;
	give(b, &c);
	assert_int_equal(net_counters(&b->net->node[0]).drop_no_qp, 2);
	assert_int_equal(b->answers, 0);
	assert_true(untouched(b));
	bench_destroy(b);
}

static void
bad_crc(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, 64);
	uint8_t f[2048];
	uint32_t n = craft_frame(&c, f);

	f[EXT_AT + RETH_BYTES + 10] ^= 0x10;
	net_inject(b->net, 0, f, n);
	net_turn(b->net);
	assert_int_equal(net_counters(&b->net->node[0]).drop_bad_icrc, 1);
	assert_int_equal(b->answers, 0);
	assert_true(untouched(b));
	bench_destroy(b);
}

static void
receiver_not_ready(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_SEND_ONLY, PSN, 64);

	give(b, &c);
	expect_answer(b, 1, AETH(AETH_RNR, 6), PSN);
	give_at(b, &c, PSN + 1); /* what follows is ahead, and not worth a word */
	assert_int_equal(b->answers, 1);
	give_at(b, &c, PSN);
	expect_answer(b, 2, AETH(AETH_RNR, 6), PSN);
	c = craft(b, RC_WRITE_ONLY_IMM, PSN, 64);
	give(b, &c);
	expect_answer(b, 3, AETH(AETH_RNR, 6), PSN);
	assert_true(untouched(b));
	net_post_recvs(b->port, &b->recv_mr, 1, 2048);
	give(b, &c);
	expect_answer(b, 4, ACK, PSN);
	assert_int_equal(b->port->wcs, 1);
	assert_int_equal(b->port->wc[0].opcode, NIC_RECV_IMM);
	assert_int_equal(b->port->wc[0].length, 64);
	assert_memory_equal(b->memory, b->payload, 64);
	assert_int_equal(net_counters(&b->net->node[0]).drop_no_buffer, 3);
	bench_destroy(b);
}

/* The last packet of a long WRITE_IMM finds no receive WR; it is not lost for that. */
static void
not_ready_at_the_end(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_WRITE_FIRST, PSN, MTU);

	c.dma_length = MTU + 10;
	give(b, &c);
	c = craft(b, RC_WRITE_LAST_IMM, PSN + 1, 10);
	c.imm = 0x12345678;
	give(b, &c);
	expect_answer(b, 2, AETH(AETH_RNR, 6), PSN + 1);
	net_post_recvs(b->port, NULL, 1, 0);
	give(b, &c);
	expect_answer(b, 3, ACK, PSN + 1);
	assert_int_equal(b->port->wc[0].length, MTU + 10);
	assert_int_equal(b->port->wc[0].imm, 0x12345678);
	assert_memory_equal(b->memory + MTU, b->payload, 10);
	bench_destroy(b);
}

static void
send_too_long(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct bench *b = bench_create();
		struct craft c = craft(b, i ? RC_SEND_FIRST : RC_SEND_ONLY, PSN, i ? MTU : 65);
		uint32_t room = i ? MTU + 9 : 64;

		net_post_recvs(b->port, &b->recv_mr, 2, room);
		give(b, &c);
		if (i) {
			c = craft(b, RC_SEND_LAST, PSN + 1, 10);
			give(b, &c);
		}
		expect_answer(b, 1 + i, NAK(NAK_INVALID_REQUEST), PSN + i);
		assert_int_equal(b->port->wcs, 1);
		assert_int_equal(b->port->wc[0].status, NIC_WC_LOC_LEN_ERR);
		assert_int_equal(b->recv[0][room], 0);
		bench_destroy(b);
	}
}

static void
send_without_memory(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_SEND_ONLY, PSN, 64);
	struct nic_mr wrong = b->recv_mr;

	wrong.lkey ^= 0x40000000;
	net_post_recvs(b->port, &wrong, 1, 2048);
	give(b, &c);
	expect_answer(b, 1, NAK(NAK_REMOTE_OPERATION), PSN);
	assert_int_equal(b->port->wc[0].status, NIC_WC_LOC_PROT_ERR);
	assert_int_equal(b->recv[0][0], 0);
	bench_destroy(b);
}

/* A message under way when its QP fails gives its receive WR back. */
static void
flushed_midway(void **state)
{
	struct bench *b = bench_create();
	struct craft c = craft(b, RC_SEND_FIRST, PSN, MTU);
	struct nic_qp_attr attr = {.state = NIC_QP_ERR};

	net_post_recvs(b->port, &b->recv_mr, 1, 2048);
	give(b, &c);
	assert_int_equal(b->port->wcs, 0);
	assert_int_equal(roce_ops.qp_modify(b->qp, &attr), 0);
	net_turn(b->net);
	assert_int_equal(b->port->wcs, 1);
	assert_int_equal(b->port->wc[0].status, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(b->port->wc[0].opcode, NIC_RECV);
	bench_destroy(b);
}

static void
congestion(void **state)
{
	struct bench *b = bench_create();
	struct roce_qp *qp = (struct roce_qp *)b->qp;
	struct craft c = craft(b, RC_WRITE_ONLY, PSN, 64);
	uint32_t before;

	c.tos = 3;
	give(b, &c);
	give_at(b, &c, PSN + 1);
	assert_int_equal(b->notifications, 1); /* not one a frame */
	assert_int_equal(b->answers, 2);
	net_run(b->net, 60000);
	give_at(b, &c, PSN + 2);
	assert_int_equal(b->notifications, 2);
	/* and the other way: a notification halves our window, once per window */
	before = qp->rq.window.size;
	c = craft(b, ROCE_CNP, 0, 0);
	c.ack_request = false;
	uint8_t f[256] = {0};
	uint32_t n = craft_frame(&c, f) + CNP_BYTES;
	memset(f + EXT_AT, 0, CNP_BYTES + ICRC_BYTES);
	craft_fix(f, n);
	net_inject(b->net, 0, f, n);
	assert_int_equal(qp->rq.window.size, before / 2);
	net_inject(b->net, 0, f, n);
	assert_int_equal(qp->rq.window.size, before / 2);
	bench_destroy(b);
}

/* Answers to requests that were never sent change nothing. */
static void
stray_answers(void **state)
{
	static const uint8_t syndromes[] = {
	    ACK, NAK(0), NAK(1), NAK(2), NAK(3), NAK(9), AETH(AETH_RNR, 5), 0x40, 0x80, 0xff};
	struct bench *b = bench_create();
	struct roce_qp *qp = (struct roce_qp *)b->qp;

	for (unsigned i = 0; i < sizeof(syndromes); i++) {
		for (unsigned k = 0; k < 3; k++) {
			struct craft c = craft(b, RC_ACK, PSN - 1 + k, 0);

			c.aeth = true;
			c.syndrome = syndromes[i];
			give(b, &c);
		}
	}
	assert_int_equal(qp_state(qp), NIC_QP_RTS);
	assert_int_equal(qp->rq.una, PSN);
	assert_int_equal(b->port->wcs, 0);
	bench_destroy(b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(in_sequence),
	    cmocka_unit_test(acks_coalesced),
	    cmocka_unit_test(duplicates),
	    cmocka_unit_test(ahead),
	    cmocka_unit_test(lost_again),
	    cmocka_unit_test(ahead_then_expected),
	    cmocka_unit_test(access_refused),
	    cmocka_unit_test(invalid_refused),
	    cmocka_unit_test(changes_midway),
	    cmocka_unit_test(wrong_peer),
	    cmocka_unit_test(bad_crc),
	    cmocka_unit_test(receiver_not_ready),
	    cmocka_unit_test(not_ready_at_the_end),
	    cmocka_unit_test(send_too_long),
	    cmocka_unit_test(send_without_memory),
	    cmocka_unit_test(flushed_midway),
	    cmocka_unit_test(congestion),
	    cmocka_unit_test(stray_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
