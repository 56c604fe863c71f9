/* SPDX-License-Identifier: BSD-3-Clause */
/* Control verbs on the main thread while an engine runs: QPs come and go under traffic, regions
 * too. */
#include "worlds/roce_net.h"

#include <pthread.h>
#include <stdatomic.h>

static struct net *net;
static _Atomic(struct nic_qp *) active;	  /* main writes; the engine posts on it */
static _Atomic uint64_t turns, completed; /* the engine writes */
static _Atomic bool stop;
static _Atomic uint32_t rkey, lkey;
static uint8_t memory[2][4096];

static void *
engine(void *arg)
{
	struct net_port *p = &net->node[0].port[0];

	while (!atomic_load(&stop)) {
		struct nic_qp *qp = atomic_load(&active);
		struct nic_send_wr wr = {.opcode = NIC_WRITE,
					 .flags = NIC_SIGNALED,
					 .sge_count = 1,
					 .sge = {{(uintptr_t)memory[0], 100, atomic_load(&lkey)}},
					 .remote_address = (uintptr_t)memory[1],
					 .rkey = atomic_load(&rkey)};

		if (qp)
			nic_post_send(qp, &wr, 1);
		net_turn(net);
		for (unsigned i = 0; i < p->wcs; i++)
			atomic_fetch_add(&completed, p->wc[i].status == NIC_WC_SUCCESS);
		p->wcs = 0;
		atomic_fetch_add(&turns, 1);
	}
	return NULL;
}

/* Until the engine has gone once around. */
static void
quiet_turn(void)
{
	uint64_t seen = atomic_load(&turns);

	while (atomic_load(&turns) < seen + 2)
		sched_yield();
}

static void
modify(struct nic_qp *qp, enum nic_qp_state to)
{
	struct nic_qp_attr attr = {.state = to};

	assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
}

static void
wait_for_five(void)
{
	uint64_t before = atomic_load(&completed);

	while (atomic_load(&completed) < before + 5)
		sched_yield();
}

/* Under load: stopped for a while, then back to the beginning. */
static void
second_life(struct nic_qp *a, struct nic_qp *b, uint32_t psn)
{
	struct net_node *node = &net->node[0];

	modify(a, NIC_QP_SQD);
	quiet_turn();
	modify(a, NIC_QP_RTS);
	wait_for_five();
	modify(a, NIC_QP_RESET);
	modify(b, NIC_QP_RESET);
	quiet_turn();
	assert_int_equal(net_rtr(a, node, nic_qpn(b), psn), 0);
	assert_int_equal(net_rtr(b, node, nic_qpn(a), psn), 0);
	assert_int_equal(net_rts(a, psn), 0);
	assert_int_equal(net_rts(b, psn), 0);
	wait_for_five();
}

static void
one_life(unsigned i)
{
	struct net_port *p = &net->node[0].port[0];
	struct nic_device *dev = roce_nic_device(net->node[0].dev);
	struct nic_qp_attr error = {.state = NIC_QP_ERR};
	struct nic_async_event event;
	struct nic_qp *a, *b;
	struct nic_mr mr[2];

	assert_int_equal(roce_ops.mr_reg(dev, memory[0], 4096, 0, &mr[0]), 0);
	assert_int_equal(roce_ops.mr_reg(dev, memory[1], 4096, NIC_REMOTE_WRITE, &mr[1]), 0);
	atomic_store(&lkey, mr[0].lkey);
	atomic_store(&rkey, mr[1].rkey);
	net_connect(p, p, i, &a, &b);
	atomic_store(&active, a);
	wait_for_five();
	if (i % 2)
		second_life(a, b, 100000 + i);
	if (i % 3 == 0) /* the peer's region goes: the QPs end in errors */
		roce_ops.mr_dereg(dev, &mr[1]);
	if (i % 3 == 1)
		roce_ops.qp_modify(i % 2 ? a : b, &error);
	quiet_turn();
	atomic_store(&active, NULL);
	quiet_turn();
	roce_ops.qp_destroy(a);
	roce_ops.qp_destroy(b);
	roce_ops.mr_dereg(dev, &mr[0]);
	roce_ops.mr_dereg(dev, &mr[1]);
	quiet_turn();
	while (roce_ops.async_event(dev, &event) == 0)
		;
}

static void
lives(void **state)
{
	struct roce_config config = {.max_qp = 8};
	pthread_t thread;

	net = net_create(1, 1, &config, 1);
	assert_int_equal(pthread_create(&thread, NULL, engine, NULL), 0);
	for (unsigned i = 0; i < 300; i++)
		one_life(i);
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&completed) >= 1500);
	assert_int_equal(net->node[0].port[0].ctx->held, 0);
	net_destroy(net);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(lives)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
