/* SPDX-License-Identifier: BSD-3-Clause */
/* Chosen frames are lost: the time until that is noticed, and the window afterwards; frames that
 * may leave at once. */
#include "worlds/roce_pair.h"

#define BYTES 65536u
#define FRAMES (BYTES / 1024)
#define PSN 100u
#define NAMED 4

/* Frames of A with such a PSN, and ACKs and NAKs of B, that are still to be lost. */
struct losses {
	struct {
		uint32_t psn;
		unsigned times;
	} lost[NAMED];
	unsigned acks_lost, naks_lost;
};

static struct losses *
losses(struct pair *p)
{
	return p->user;
}

static bool
fate(struct net *n, const uint8_t *f, uint32_t length)
{
	struct losses *p = n->tap_user;
	uint32_t psn = get32(f + BTH_AT + 8) & PSN_MASK;
	unsigned *times = NULL;

	if (get16(f + 12) != ETH_TYPE_IP)
		return true;
	if (get32(f + IP_AT + 12) == net_ip(1)) {
		times = AETH_TYPE(f[EXT_AT]) == AETH_NAK ? &p->naks_lost : &p->acks_lost;
	} else {
		for (unsigned i = 0; i < NAMED; i++)
			times = p->lost[i].psn == psn ? &p->lost[i].times : times;
	}
	if (times == NULL || *times == 0)
		return true;
	--*times;
	return false;
}

/* After it the round trip is known, and the window lets a message leave whole. */
static struct pair *
create(const struct roce_config *config)
{
	struct pair *p = pair_create_as(
	    config, 3, PSN, (struct nic_qp_attr){.access = NIC_REMOTE_WRITE | NIC_REMOTE_READ});
	struct window *w = &((struct roce_qp *)p->qa)->rq.window;

	p->user = p->net->tap_user = calloc(1, sizeof(struct losses));
	p->net->step = 1000;
	p->net->tap = fate;
	w->size = w->threshold = 4 * BYTES;
	return p;
}

static void
destroy(struct pair *p)
{
	free(p->user);
	pair_destroy(p);
}

static struct window *
window(struct pair *p)
{
	return &((struct roce_qp *)p->qa)->rq.window;
}

/* One message of FRAMES frames; returns how long it took, ns. */
static uint64_t
transfer(struct pair *p, enum nic_opcode opcode)
{
	struct nic_send_wr wr = pair_wr(p, 0, opcode, 0, BYTES);
	unsigned wcs = p->a->wcs;
	uint64_t begun = p->net->now;

	for (unsigned i = 0; i < BYTES; i++)
		p->memory[opcode == NIC_READ][i] = (uint8_t)net_random(p->net);
	assert_int_equal(nic_post_send(p->qa, &wr, 1), 1);
	while (p->a->wcs == wcs && p->net->now - begun < 100000000)
		net_turn(p->net);
	assert_int_equal(p->a->wcs, wcs + 1);
	assert_int_equal(p->a->wc[wcs].status, NIC_WC_SUCCESS);
	assert_memory_equal(p->memory[0], p->memory[1], BYTES);
	return p->net->now - begun;
}

static struct nic_counters
sender(struct pair *p)
{
	return net_counters(&p->net->node[0]);
}

/* A frame, and then the same again twice: each time a NAK tells, none waits for the timer. */
static void
lost_again(void **state)
{
	static const enum nic_opcode opcodes[] = {NIC_WRITE, NIC_SEND};

	for (unsigned i = 0; i < 2; i++) {
		struct pair *p = create(NULL);

		net_post_recvs(p->b, &p->mr[1], 2, BYTES);
		transfer(p, NIC_WRITE);
		losses(p)->lost[0].psn = PSN + FRAMES + 20;
		losses(p)->lost[0].times = 3;
		transfer(p, opcodes[i]);
		assert_int_equal(sender(p).timeouts, 0);
		assert_int_equal(sender(p).naks_received, 3);
		destroy(p);
	}
}

/* The same with an answer to a READ: whoever asked sees it in the answers behind. */
static bool
answer_lost(struct net *n, const uint8_t *f, uint32_t length)
{
	struct losses *p = n->tap_user;

	if (get32(f + IP_AT + 12) != net_ip(1) || p->lost[0].times == 0 ||
	    (get32(f + BTH_AT + 8) & PSN_MASK) != p->lost[0].psn)
		return true;
	p->lost[0].times--;
	return false;
}

static void
answer_lost_again(void **state)
{
	struct pair *p = create(NULL);

	transfer(p, NIC_READ);
	p->net->tap = answer_lost;
	losses(p)->lost[0].psn = PSN + FRAMES + 20;
	losses(p)->lost[0].times = 3;
	transfer(p, NIC_READ);
	assert_int_equal(sender(p).timeouts, 0);
	assert_int_equal(sender(p).retransmits, 3); /* requests */
	destroy(p);
}

/* Nothing comes behind the frame that is lost, or the NAK is: the timer, soon. */
static void
silence_is_short(void **state)
{
	struct pair *p = create(NULL);

	transfer(p, NIC_WRITE);
	losses(p)->lost[0].psn = PSN + 2 * FRAMES - 1;
	losses(p)->lost[0].times = 1;
	assert_true(transfer(p, NIC_WRITE) < 500000);
	assert_int_equal(sender(p).timeouts, 1);
	losses(p)->lost[0].psn = PSN + 2 * FRAMES + 7;
	losses(p)->lost[0].times = losses(p)->naks_lost = 1;
	assert_true(transfer(p, NIC_WRITE) < 500000);
	assert_int_equal(sender(p).timeouts, 2);
	destroy(p);
}

/* Only ACKs were lost: what is sent again is little, and the window is what it was. */
static void
late_acks(void **state)
{
	struct pair *p = create(NULL);
	uint32_t size;

	transfer(p, NIC_WRITE);
	size = window(p)->size;
	losses(p)->acks_lost = 3;
	transfer(p, NIC_WRITE);
	assert_true(sender(p).timeouts > 0);
	assert_true(window(p)->size >= size);
	destroy(p);
}

/*
 * The sender had no CPU for a while, as any turn here is longer than it waits for an answer: the
 * ACK lies behind more than a burst of other frames.
 */
static void
acks_unread(void **state)
{
	struct pair *p = create(NULL);
	struct requester *rq = &((struct roce_qp *)p->qa)->rq;
	struct nic_send_wr one = {.opcode = NIC_WRITE}, many = pair_wr(p, 1, NIC_WRITE, 0, BYTES);
	unsigned turns = 0;

	transfer(p, NIC_WRITE);
	((struct roce_qp *)p->qb)->rq.window.size = 4 * BYTES;
	many.flags = 0;
	p->net->step = 10000000;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(nic_post_send(p->qb, &many, 1), 1);
	assert_int_equal(nic_post_send(p->qa, &one, 1), 1);
	do
		net_turn(p->net);
	while (rq->una != rq->next && ++turns < 20);
	assert_int_equal(sender(p).timeouts, 0);
	assert_in_range(turns, 4, 19);
	destroy(p);
}

/* A NAK that comes twice, as all frames do, makes nobody go back twice. */
static void
told_twice(void **state)
{
	struct pair *p = create(NULL);
	uint64_t before;

	transfer(p, NIC_WRITE);
	before = sender(p).retransmits;
	p->net->dup = 100;
	losses(p)->lost[0].psn = PSN + FRAMES;
	losses(p)->lost[0].times = 1;
	transfer(p, NIC_WRITE);
	assert_true(sender(p).retransmits - before <= FRAMES);
	destroy(p);
}

/* A round trip that is longer than the shortest timeout is learnt: then nothing is sent twice. */
static void
long_way(void **state)
{
	struct pair *p = create(NULL);
	struct nic_send_wr wr = write_wr(p, 0, 64);
	uint64_t before = 0;

	transfer(p, NIC_WRITE); /* the way was short before */
	p->net->step = 1000000;
	for (unsigned i = 0; i < 20; i++) {
		if (i == 10)
			before = sender(p).timeouts;
		assert_int_equal(nic_post_send(p->qa, &wr, 1), 1);
		for (unsigned k = 0; k < 30; k++)
			net_turn(p->net);
		assert_int_equal(p->a->wcs, i + 2);
	}
	assert_true(before > 0);
	assert_int_equal(sender(p).timeouts, before);
	destroy(p);
}

/* Without a queue a loss was chance; with one it is the queue that has no room. */
static void
chance_or_queue(void **state)
{
	struct window w;

	roce_window_init(&w, 4096, 4, 1u << 20);
	w.size = 800000;
	w.rtt = 12000;
	roce_window_lost(&w, 10);
	assert_int_equal(w.size, 700000);
	roce_window_lost(&w, 11); /* of the same window */
	assert_int_equal(w.size, 700000);
	roce_window_acked(&w, 4096, 10, 20, 1);
	w.size = 800000;
	w.rtt = 24000;
	roce_window_lost(&w, 20);
	assert_int_equal(w.size, 400000);
	roce_window_timeout(&w, 20);
	assert_int_equal(w.size, w.floor);
	roce_window_restore(&w);
	assert_int_equal(w.size, 800000);
	roce_window_marked(&w, 20);
	assert_int_equal(w.size, 400000);
}

static unsigned bytes_before_small;
static bool small_seen;

static bool
see_small(struct net *n, const uint8_t *f, uint32_t length)
{
	small_seen |= get16(f + 12) == ETH_TYPE_IP && f[BTH_AT] == RC_WRITE_ONLY;
	bytes_before_small += small_seen ? 0 : length;
	return true;
}

/* However much one QP may have in flight, another one waits for a turn of 64 KiB at most. */
static void
stream_gives_way(void **state)
{
	struct roce_config config = {.mtu = 4096};
	struct pair *p = create(&config);
	struct nic_send_wr wr = write_wr(p, 0, BYTES);
	struct nic_context *nic = roce_nic_context(p->a->ctx);
	struct nic_qp *qa, *qb;
	bool busy = false;

	transfer(p, NIC_WRITE);
	net_connect(p->a, p->b, PSN, &qa, &qb);
	wr.flags = 0;
	window(p)->size = window(p)->threshold = 16 * BYTES;
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(nic_post_send(p->qa, &wr, 1), 1);
	p->net->tap = see_small;
	nic_flush(nic, p->net->now);
	assert_in_range(bytes_before_small, BYTES, 3 * BYTES / 2);
	wr.sge[0].length = 64;
	assert_int_equal(nic_post_send(qa, &wr, 1), 1);
	nic_poll(nic, p->a->wc, 32, p->net->now, &busy);
	assert_true(busy); /* the engine goes on */
	nic_flush(nic, p->net->now);
	assert_true(small_seen);
	assert_in_range(bytes_before_small, BYTES, 2 * BYTES);
	destroy(p);
}

/* A post before the first poll() after a rest: the wait for its ACK begins now. */
static void
sent_after_a_rest(void **state)
{
	struct roce_config config = {.mtu = 1024};
	struct pair *p = create(&config);
	struct nic_send_wr wr = write_wr(p, 0, 64);
	struct nic_context *nic = roce_nic_context(p->a->ctx);
	struct nic_counters c;

	transfer(p, NIC_WRITE);
	net_run(p->net, SECOND / 100);
	NIC_OPS(nic)->counters(nic, &c);
	assert_int_equal(c.timeouts, 0);
	p->net->now += 100 * SECOND;
	nic_set_now(nic, p->net->now);
	assert_int_equal(nic_post_send(p->qa, &wr, 1), 1);
	nic_flush(nic, p->net->now);
	net_run(p->net, SECOND / 100);
	NIC_OPS(nic)->counters(nic, &c);
	assert_int_equal(c.timeouts + c.retransmits, 0);
	destroy(p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lost_again),	cmocka_unit_test(answer_lost_again),
	    cmocka_unit_test(silence_is_short), cmocka_unit_test(late_acks),
	    cmocka_unit_test(acks_unread),	cmocka_unit_test(told_twice),
	    cmocka_unit_test(chance_or_queue),	cmocka_unit_test(long_way),
	    cmocka_unit_test(stream_gives_way), cmocka_unit_test(sent_after_a_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
