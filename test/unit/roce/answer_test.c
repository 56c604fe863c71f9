/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester: every answer at every place among what is outstanding. */
#include "worlds/roce_target.h"

#define TARGET 2048u /* of answers in the region */

/* Outstanding: WRITE at 0, READ of three answers at 1, FETCH_ADD at 4, WRITE at 5. */
static void
make_outstanding(struct world *w)
{
	static const uint8_t ops[] = {NIC_WRITE, NIC_READ, NIC_FETCH_ADD, NIC_WRITE};
	static const uint32_t lengths[] = {10, 2 * MTU + 8, 8, 10};

	make_qp(w, NIC_QP_RTS);
	for (unsigned i = 0; i < 4; i++) {
		struct nic_send_wr wr = {.wr_id = i,
					 .opcode = ops[i],
					 .flags = NIC_SIGNALED,
					 .sge_count = 1,
					 .sge = {{(uintptr_t)w->receive + TARGET + i * 8,
						  lengths[i], w->receive_mr.lkey}},
					 .remote_address = 64,
					 .rkey = 1};

		assert_int_equal(nic_post_send(w->qp, &wr, 1), 1);
	}
	net_turn(w->net);
	assert_int_equal(w->answers, 4);
	assert_int_equal(((struct roce_qp *)w->qp)->rq.next, PSN + 6);
	w->answers = 0;
	memset(w->receive, FILL, sizeof(w->receive));
}

static bool
clean(const struct world *w)
{
	for (unsigned i = 0; i < sizeof(w->receive); i++) {
		if (w->receive[i] != FILL)
			return false;
	}
	return true;
}

/* How far the sender gets, and what else happens, by an answer at a distance from the oldest. */
static void
check_answer(struct world *w, uint8_t op, uint8_t syndrome, int32_t distance)
{
	const struct roce_qp *qp = (struct roce_qp *)w->qp;
	uint32_t done = qp->rq.una - PSN;
	unsigned type = syndrome >> 5;
	bool inside = distance >= 0 && distance < 6, ended = qp_state(qp) == NIC_QP_ERR;

	if (op == RC_ACK && type == AETH_NAK && (syndrome & 31) >= 1 && (syndrome & 31) <= 3 &&
	    inside) {
		static const uint8_t wr_at[] = {0, 1, 1, 1, 2, 3};

		assert_true(ended);
		assert_int_equal(w->port->wcs, 4);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(w->port->wc[i].status == NIC_WC_SUCCESS ||
					     w->port->wc[i].status == NIC_WC_WR_FLUSH_ERR,
					 i != wr_at[distance]);
		return;
	}
	if (op != RC_ACK && distance == 1 && (op != RC_READ_RESPONSE_FIRST || type != AETH_ACK)) {
		assert_true(ended); /* in its place, and nothing that can be there */
		assert_int_equal(w->port->wcs, 4);
		assert_int_equal(w->port->wc[1].status, NIC_WC_BAD_RESP_ERR);
		assert_true(clean(w));
		return;
	}
	assert_false(ended);
	if (op == RC_READ_RESPONSE_FIRST && type == AETH_ACK && distance == 1) {
		assert_int_equal(done, 2); /* the only answer that can be the next */
		assert_int_equal(w->port->wcs, 1);
		assert_memory_equal(w->receive + TARGET + 8, w->payload, MTU);
		return;
	}
	/* nothing before the READ's own answers takes it further than to the READ */
	assert_true(done <= 1);
	assert_true(clean(w));
	assert_int_equal(w->port->wcs, done);
	if (op == RC_ACK && type == AETH_ACK && inside)
		assert_int_equal(done, 1);
	if (!inside)
		assert_int_equal(done, distance == 6 && op == RC_ACK && type == AETH_NAK &&
					   (syndrome & 31) == 0);
}

static void
every_answer_everywhere(void **state)
{
	struct world *w = world_create();

	for (unsigned op = RC_READ_RESPONSE_FIRST; op <= RC_ATOMIC_ACK; op++) {
		for (unsigned syndrome = 0; syndrome < 256; syndrome++) {
			for (int32_t distance = -2; distance < 9; distance++) {
				struct craft c;

				if (op == RC_READ_RESPONSE_MIDDLE && syndrome != ACK)
					continue;
				make_outstanding(w);
				c = craft(w, (uint8_t)op, PSN + (uint32_t)distance);
				c.syndrome = (uint8_t)syndrome;
				give(w, &c, false);
				/* a middle one is as good as a first */
				check_answer(w,
					     op == RC_READ_RESPONSE_MIDDLE ? RC_READ_RESPONSE_FIRST
									   : (uint8_t)op,
					     (uint8_t)syndrome, distance);
				end_qp(w);
			}
		}
	}
	world_destroy(w);
}

static void
give_answer(struct world *w, uint8_t op, uint32_t at, uint32_t length)
{
	struct craft c = craft(w, op, PSN + at);

	c.length = op == RC_ATOMIC_ACK ? 0 : length;
	give(w, &c, false);
}

static const uint8_t answer_ops[] = {RC_READ_RESPONSE_FIRST, RC_READ_RESPONSE_MIDDLE,
				     RC_READ_RESPONSE_LAST, RC_READ_RESPONSE_ONLY, RC_ATOMIC_ACK};
static const uint32_t right[][2] = {{RC_ACK, 0},
				    {RC_READ_RESPONSE_FIRST, MTU},
				    {RC_READ_RESPONSE_MIDDLE, MTU},
				    {RC_READ_RESPONSE_LAST, 8},
				    {RC_ATOMIC_ACK, 0},
				    {RC_ACK, 0}};

/* Answers in order complete everything; whatever comes in places of the past changes nothing. */
static void
in_order_with_noise(void **state)
{
	struct world *w = world_create();

	make_outstanding(w);
	for (uint32_t step = 0; step < 6; step++) {
		for (unsigned i = 0; i < sizeof(answer_ops); i++) {
			for (uint32_t n = 0; n <= MTU + 4; n += step % 2 ? 4 : MTU)
				give_answer(w, answer_ops[i], step - 1, n);
		}
		assert_int_equal(((struct roce_qp *)w->qp)->rq.una, PSN + step);
		give_answer(w, (uint8_t)right[step][0], step, right[step][1]);
		give_answer(w, (uint8_t)right[step][0], step, right[step][1]); /* twice */
	}
	assert_int_equal(w->port->wcs, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(w->port->wc[i].status, NIC_WC_SUCCESS);
	assert_memory_equal(w->receive + TARGET + 8, w->payload, 8);
	assert_memory_equal(w->receive + TARGET + 8 + MTU, w->payload, MTU);
	assert_memory_equal(w->receive + TARGET + 8 + 2 * MTU, w->payload, 8);
	assert_int_equal(w->receive[TARGET + 16 + 2 * MTU], FILL);
	assert_int_equal(w->receive[TARGET + 7], FILL);
	end_qp(w);
	world_destroy(w);
}

/* In the place of an answer, and not it: the WR ends, and with it the QP. */
static void
one_wrong_answer(struct world *w, uint32_t step, uint8_t op, uint32_t n)
{
	unsigned wr = step == 4 ? 2 : 1;

	make_outstanding(w);
	for (uint32_t i = 0; i < step; i++)
		give_answer(w, (uint8_t)right[i][0], i, right[i][1]);
	memset(w->receive, FILL, sizeof(w->receive));
	give_answer(w, op, step, n);
	assert_int_equal(qp_state((struct roce_qp *)w->qp), NIC_QP_ERR);
	assert_int_equal(w->port->wcs, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(w->port->wc[i].status, i < wr	  ? NIC_WC_SUCCESS
							: i == wr ? NIC_WC_BAD_RESP_ERR
								  : NIC_WC_WR_FLUSH_ERR);
	assert_true(clean(w));
	end_qp(w);
}

static void
wrong_answers(void **state)
{
	struct world *w = world_create();

	for (uint32_t step = 1; step < 5; step++) {
		for (unsigned i = 0; i < sizeof(answer_ops); i++) {
			uint8_t op = answer_ops[i];
			bool first = op <= RC_READ_RESPONSE_MIDDLE, atomic = op == RC_ATOMIC_ACK;

			for (uint32_t n = 0; n <= MTU + 4; n += 4) {
				if (step == 4	? atomic
				    : step == 3 ? !first && !atomic && n == 8
						: first && n == MTU)
					continue;
				one_wrong_answer(w, step, op, n);
			}
		}
	}
	world_destroy(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_answer_everywhere),
	    cmocka_unit_test(in_order_with_noise),
	    cmocka_unit_test(wrong_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
