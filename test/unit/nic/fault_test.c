/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults on purpose: which queue pairs they strike, and that what stands behind stays as it is. */
#include "nic/inject/fault.h"
#include "nic/qp_orders.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct nic_qp {
	struct nic_qp_head head;
	enum nic_qp_state state;
};

static uint64_t now;
static struct nic_qp qps[2];
static unsigned made, revoked;

static uint64_t
clock_now(void)
{
	return now;
}

static int
qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp)
{
	*qp = &qps[made++];
	**qp = (struct nic_qp){{NIC_OPS(ctx), made}, NIC_QP_RESET};
	return 0;
}

static int
qp_modify(struct nic_qp *qp, const struct nic_qp_attr *attr)
{
	if (!qp_orders_allow(qp->state, attr->state))
		return -EINVAL;
	qp->state = attr->state;
	return 0;
}

static void
qp_destroy(struct nic_qp *qp)
{
	qp->head.qpn = 0;
}

static int
mr_reg(struct nic_device *dev, void *addr, size_t length, unsigned access, struct nic_mr *mr)
{
	*mr = (struct nic_mr){.address = (uintptr_t)addr, .length = length, .lkey = 1, .rkey = 1};
	return 0;
}

static void
mr_dereg(struct nic_device *dev, struct nic_mr *mr)
{
	revoked++;
}

static int
async_event(struct nic_device *dev, struct nic_async_event *event)
{
	return -EAGAIN;
}

static const struct nic_ops fake = {
    .qp_create = qp_create,
    .qp_modify = qp_modify,
    .qp_destroy = qp_destroy,
    .mr_reg = mr_reg,
    .mr_dereg = mr_dereg,
    .async_event = async_event,
};

struct world {
	struct nic_device_head dev;
	struct nic_context_head ctx;
	struct nic_fault *fault;
};

static int
setup(void **state)
{
	static struct world w;
	struct nic_context *ctx = (void *)&w.ctx;
	struct nic_fault_config config = {.every_ns = 100, .region = 64, .now = clock_now};

	now = made = revoked = 0;
	w.dev.ops = w.ctx.ops = &fake;
	w.ctx.dev = (void *)&w.dev;
	w.fault = nic_fault_attach((void *)&w.dev, &ctx, 1, &config);
	*state = &w;
	return w.fault ? 0 : -1;
}

static int
teardown(void **state)
{
	nic_fault_free(((struct world *)*state)->fault);
	return 0;
}

static struct nic_qp *
queue_pair(struct world *w, int *user)
{
	struct nic_qp_init init = {.user = user};
	struct nic_qp *qp;

	assert_int_equal(NIC_OPS(&w->ctx)->qp_create((void *)&w->ctx, &init, &qp), 0);
	return qp;
}

static void
move(struct nic_qp *qp, enum nic_qp_state state)
{
	struct nic_qp_attr attr = {.state = state};

	assert_int_equal(NIC_OPS(qp)->qp_modify(qp, &attr), 0);
}

/* Time for one fault; what is told of it. */
static int
strike(struct world *w, struct nic_async_event *event)
{
	now += 100;
	return NIC_OPS(&w->dev)->async_event((void *)&w->dev, event);
}

/* Found by a node whose first link was said to have failed: its queue pair was struck before it was
 * connected, which was then refused. */
static void
test_not_while_set_up(void **state)
{
	struct world *w = *state;
	struct nic_async_event event;
	int user;
	struct nic_qp *qp = queue_pair(w, &user);

	assert_int_equal(strike(w, &event), -EAGAIN);
	move(qp, NIC_QP_INIT);
	assert_int_equal(strike(w, &event), -EAGAIN);
	move(qp, NIC_QP_RTR);
	assert_int_equal(strike(w, &event), -EAGAIN);
	move(qp, NIC_QP_RTS);
	assert_int_equal(qp->state, NIC_QP_RTS);
	strike(w, &event);
	assert_int_equal(qp->state, NIC_QP_ERR);
	NIC_OPS(qp)->qp_destroy(qp);
}

/* Queue pairs take turns; the kinds too: quietly, with an event, a region revoked. */
static void
test_turns(void **state)
{
	struct world *w = *state;
	struct nic_async_event event;
	uint8_t memory[64];
	struct nic_mr mr;
	int user[2];
	struct nic_qp *qp[2];

	for (int i = 0; i < 2; i++) {
		qp[i] = queue_pair(w, &user[i]);
		for (int s = NIC_QP_INIT; s <= NIC_QP_RTS; s++)
			move(qp[i], s);
	}
	assert_int_equal(
	    NIC_OPS(&w->dev)->mr_reg((void *)&w->dev, memory, 64, NIC_REMOTE_WRITE, &mr), 0);
	assert_int_equal(strike(w, &event), -EAGAIN);
	assert_int_equal(qp[0]->state, NIC_QP_ERR);
	assert_int_equal(qp[1]->state, NIC_QP_RTS);
	assert_int_equal(strike(w, &event), 0);
	assert_int_equal(event.type, NIC_EVENT_QP_FATAL);
	assert_ptr_equal(event.qp_user, &user[1]);
	assert_int_equal(qp[1]->state, NIC_QP_ERR);
	move(qp[0], NIC_QP_RESET);
	for (int s = NIC_QP_INIT; s <= NIC_QP_RTS; s++)
		move(qp[0], s);
	assert_int_equal(strike(w, &event), -EAGAIN);
	assert_int_equal(revoked, 1);
	assert_int_equal(qp[0]->state, NIC_QP_RTS);
	NIC_OPS(&w->dev)->mr_dereg((void *)&w->dev, &mr);
	assert_int_equal(revoked, 1);
	for (int i = 0; i < 2; i++)
		NIC_OPS(qp[i])->qp_destroy(qp[i]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_not_while_set_up, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
	};

	return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
