/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics of two engines and of a program's thread on the same words, all at the same time, on
 * wires that lose and double frames: every one is done once.
 */
#include "worlds/roce_net.h"

#include <pthread.h>

#define ENGINES 2u
#define TIMES 5000u
#define FIELD 20u /* bits of the sum for each who adds */

/* ---- shared by all; only ever touched by atomics ---- */
static uint64_t sum, count;

struct engine { /* one thread's, but for the words above */
	struct net *net;
	struct net_port *port;
	struct nic_qp *qp;
	uint64_t old[2];
	struct nic_mr local, word[2];
	unsigned number, won; /* compare and swap: successes */
};

static void
connect_ends(struct engine *e)
{
	struct net_node *node = e->net->node;
	struct nic_qp *qp[2] = {net_qp(&node[0].port[0]), net_qp(&node[1].port[0])};

	for (unsigned i = 0; i < 2; i++)
		net_join(qp[i], qp[!i], (struct nic_qp_attr){.access = NIC_REMOTE_ATOMIC});
	e->qp = qp[0];
}

static void
set_up(struct engine *e, unsigned number)
{
	e->number = number;
	e->net = net_create(2, 1, NULL, 7 + number);
	e->net->step = 20 * NET_STEP_NS;
	e->net->loss = e->net->dup = 3;
	e->port = &e->net->node[0].port[0];
	roce_ops.mr_reg(roce_nic_device(e->net->node[0].dev), e->old, sizeof(e->old),
			NIC_LOCAL_WRITE, &e->local);
	roce_ops.mr_reg(roce_nic_device(e->net->node[1].dev), &sum, 8, NIC_REMOTE_ATOMIC,
			&e->word[0]);
	roce_ops.mr_reg(roce_nic_device(e->net->node[1].dev), &count, 8, NIC_REMOTE_ATOMIC,
			&e->word[1]);
	connect_ends(e);
}

static struct nic_send_wr
atomic_wr(struct engine *e, enum nic_opcode opcode, unsigned word, uint64_t compare_add,
	  uint64_t swap)
{
	return (struct nic_send_wr){.opcode = (uint8_t)opcode,
				    .flags = NIC_SIGNALED,
				    .sge_count = 1,
				    .sge = {{(uintptr_t)&e->old[word], 8, e->local.lkey}},
				    .remote_address = e->word[word].address,
				    .rkey = e->word[word].rkey,
				    .compare_add = compare_add,
				    .swap = swap};
}

/* An addition, and a compare and swap by what was seen last. */
static void *
engine(void *arg)
{
	struct engine *e = arg;
	uint64_t seen = 0;

	for (unsigned i = 0; i < TIMES; i++) {
		struct nic_send_wr wr[2] = {
		    atomic_wr(e, NIC_FETCH_ADD, 0, UINT64_C(1) << e->number * FIELD, 0),
		    atomic_wr(e, NIC_CMP_SWAP, 1, seen, seen + 1),
		};

		e->port->wcs = 0;
		if (nic_post_send(e->qp, wr, 2) != 2)
			return NULL;
		while (e->port->wcs < 2)
			net_turn(e->net);
		if (e->port->wc[0].status || e->port->wc[1].status)
			return NULL;
		e->won += e->old[1] == seen;
		seen = e->old[1] == seen ? seen + 1 : e->old[1];
	}
	return e;
}

static void
together(void **state)
{
	struct engine *e = calloc(ENGINES, sizeof(*e));
	pthread_t thread[ENGINES];
	uint64_t won = 0;
	void *result;

	for (unsigned i = 0; i < ENGINES; i++)
		set_up(&e[i], i);
	for (unsigned i = 0; i < ENGINES; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, engine, &e[i]), 0);
	for (unsigned i = 0; i < TIMES; i++) { /* the program */
		uint64_t seen = __atomic_load_n(&count, __ATOMIC_RELAXED);

		__atomic_fetch_add(&sum, UINT64_C(1) << ENGINES * FIELD, __ATOMIC_RELAXED);
		won += __atomic_compare_exchange_n(&count, &seen, seen + 1, false, __ATOMIC_RELAXED,
						   __ATOMIC_RELAXED);
		if (i % 4 == 0)
			sched_yield();
	}
	for (unsigned i = 0; i < ENGINES; i++) {
		pthread_join(thread[i], &result);
		assert_non_null(result);
		won += e[i].won;
		net_destroy(e[i].net);
	}
	for (unsigned i = 0; i <= ENGINES; i++)
		assert_int_equal(sum >> i * FIELD & ((1u << FIELD) - 1), TIMES);
	assert_int_equal(count, won);
	free(e);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(together)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
