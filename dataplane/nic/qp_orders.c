/* SPDX-License-Identifier: BSD-3-Clause */
#include "qp_orders.h"

#define BIT(state) (1u << NIC_QP_##state)

bool
qp_orders_allow(enum nic_qp_state from, enum nic_qp_state to)
{
	static const uint8_t next[] = {
	    [NIC_QP_RESET] = BIT(RESET) | BIT(INIT) | BIT(ERR),
	    [NIC_QP_INIT] = BIT(RESET) | BIT(RTR) | BIT(ERR),
	    [NIC_QP_RTR] = BIT(RESET) | BIT(RTS) | BIT(ERR),
	    [NIC_QP_RTS] = BIT(RESET) | BIT(SQD) | BIT(ERR),
	    [NIC_QP_SQD] = BIT(RESET) | BIT(RTS) | BIT(ERR),
	    [NIC_QP_ERR] = BIT(RESET) | BIT(ERR),
	};

	return from <= NIC_QP_ERR && to <= NIC_QP_ERR && (next[from] >> to & 1) != 0;
}

int
qp_orders_check(enum nic_qp_state from, const struct nic_qp_attr *attr,
		const struct qp_limits *limits)
{
	uint16_t mtu = attr->mtu ? attr->mtu : limits->mtu;

	if (!qp_orders_allow(from, attr->state))
		return -EINVAL;
	if (attr->state == NIC_QP_RTR &&
	    (mtu < 256 || mtu > limits->mtu || (mtu & (mtu - 1)) != 0 ||
	     attr->remote_qpn > QP_NUMBER_MAX || attr->remote_psn > QP_NUMBER_MAX ||
	     attr->rd_atomic > limits->rd_atomic))
		return -EINVAL;
	if (attr->state == NIC_QP_RTS && from == NIC_QP_RTR &&
	    (attr->psn > QP_NUMBER_MAX || attr->retry > 7 || attr->rnr_retry > 7 ||
	     attr->rd_atomic > limits->rd_atomic))
		return -EINVAL;
	return 0;
}
