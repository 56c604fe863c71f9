/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules of queue pairs: every change of state, limits of attributes, posts. */
#include "nic/qp_orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define STATES 6u
#define INVALID (-EINVAL)

static const struct qp_limits limits = {.mtu = 1024, .rd_atomic = 16};

static int
check(enum nic_qp_state from, struct nic_qp_attr attr)
{
	return qp_orders_check(from, &attr, &limits);
}

/* Bits of the states that follow, as ibv_modify_qp(3) lists them, without changes within a state.
 */
static void
every_pair(void **state)
{
	static const uint8_t next[STATES] = {0x23, 0x25, 0x29, 0x31, 0x29, 0x21};

	for (unsigned from = 0; from <= STATES; from++) {
		for (unsigned to = 0; to <= STATES; to++) {
			bool yes = from < STATES && to < STATES && (next[from] >> to & 1) != 0;
			struct nic_qp_attr attr = {.state = (enum nic_qp_state)to};

			assert_int_equal(qp_orders_allow((enum nic_qp_state)from, attr.state), yes);
			assert_int_equal(check((enum nic_qp_state)from, attr), yes ? 0 : INVALID);
		}
	}
}

#define RTR(...) check(NIC_QP_INIT, (struct nic_qp_attr){.state = NIC_QP_RTR, __VA_ARGS__})
#define RTS(from, ...) check(from, (struct nic_qp_attr){.state = NIC_QP_RTS, __VA_ARGS__})

static void
attributes(void **state)
{
	assert_int_equal(RTR(.mtu = 256), 0);
	assert_int_equal(RTR(.mtu = 1024, .remote_qpn = QP_NUMBER_MAX), 0);
	assert_int_equal(RTR(.mtu = 128), INVALID);
	assert_int_equal(RTR(.mtu = 768), INVALID);
	assert_int_equal(RTR(.mtu = 2048), INVALID);
	assert_int_equal(RTR(.remote_qpn = QP_NUMBER_MAX + 1), INVALID);
	assert_int_equal(RTR(.remote_psn = QP_NUMBER_MAX + 1), INVALID);
	assert_int_equal(RTR(.rd_atomic = 16), 0);
	assert_int_equal(RTR(.rd_atomic = 17), INVALID);
	/* RTR does not read what RTS is given, nor the other way round */
	assert_int_equal(RTR(.psn = QP_NUMBER_MAX + 1, .retry = 8, .rnr_retry = 8), 0);
	assert_int_equal(RTS(NIC_QP_RTR, .mtu = 1, .remote_qpn = UINT32_MAX), 0);
	assert_int_equal(RTS(NIC_QP_RTR, .psn = QP_NUMBER_MAX, .retry = 7, .rnr_retry = 7), 0);
	assert_int_equal(RTS(NIC_QP_RTR, .psn = QP_NUMBER_MAX + 1), INVALID);
	assert_int_equal(RTS(NIC_QP_RTR, .retry = 8), INVALID);
	assert_int_equal(RTS(NIC_QP_RTR, .rnr_retry = 8), INVALID);
	assert_int_equal(RTS(NIC_QP_RTR, .rd_atomic = 17), INVALID);
	/* out of SQD nothing is given */
	assert_int_equal(RTS(NIC_QP_SQD, .retry = 8, .rd_atomic = 17), 0);
}

static void
posts(void **state)
{
	static const char may[STATES][3] = {"--", "--", "-r", "sr", "sr", "--"};
	struct nic_ah *ah = (struct nic_ah *)(uintptr_t)8;

	for (unsigned s = 0; s < STATES; s++) {
		assert_int_equal(qp_orders_may_send((enum nic_qp_state)s), may[s][0] == 's');
		assert_int_equal(qp_orders_may_receive((enum nic_qp_state)s), may[s][1] == 'r');
	}
	for (uint8_t op = NIC_SEND; op <= NIC_RECV; op++) {
		struct nic_send_wr wr = {.opcode = op, .sge_count = NIC_SGE_MAX, .ah = ah};
		bool fetches = op == NIC_READ || op == NIC_CMP_SWAP || op == NIC_FETCH_ADD;

		assert_int_equal(qp_orders_wr_ok(&wr), op != NIC_RECV);
		assert_int_equal(qp_orders_datagram_ok(&wr), op <= NIC_SEND_IMM);
		assert_int_equal(qp_orders_fetches(op), fetches);
		wr.ah = NULL;
		wr.sge_count++;
		assert_false(qp_orders_wr_ok(&wr));
		assert_false(qp_orders_datagram_ok(&wr));
	}
}

static void
inline_data(void **state)
{
	uint8_t from[QP_INLINE_MAX + 1], to[QP_INLINE_MAX + 1] = {0};
	struct nic_send_wr wr = {.sge_count = 2, .sge = {{(uintptr_t)from, 40, 0}}};

	for (unsigned i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i + 1);
	wr.sge[1] = (struct nic_sge){(uintptr_t)from + 40, QP_INLINE_MAX - 40, 0};
	assert_int_equal(qp_orders_copy_inline(to, &wr), QP_INLINE_MAX);
	assert_memory_equal(to, from, QP_INLINE_MAX);
	assert_int_equal(to[QP_INLINE_MAX], 0);
	wr.sge[1].length++;
	assert_int_equal(qp_orders_copy_inline(to, &wr), INVALID);
	assert_int_equal(to[QP_INLINE_MAX], 0);
	wr.sge[1].length = UINT32_MAX;
	assert_int_equal(qp_orders_copy_inline(to, &wr), INVALID);
	wr.sge_count = 0;
	assert_int_equal(qp_orders_copy_inline(to, &wr), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_pair),
	    cmocka_unit_test(attributes),
	    cmocka_unit_test(posts),
	    cmocka_unit_test(inline_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
