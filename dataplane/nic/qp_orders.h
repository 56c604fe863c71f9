/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rules of queue pairs that both drivers keep: which state may follow which, what a change of state
 * must give, what may be posted. SQE is no state here: with either driver a queue pair takes no
 * posts after a failed one.
 */
#ifndef WEIR_NIC_QP_ORDERS_H
#define WEIR_NIC_QP_ORDERS_H

#include "nic.h"

#include <errno.h>
#include <string.h>

#define QP_INLINE_MAX 64u	/* bytes of a WR with NIC_INLINE */
#define QP_NUMBER_MAX 0xffffffu /* QPNs and PSNs have 24 bits */

struct qp_limits { /* of a device */
	uint16_t mtu;
	uint8_t rd_atomic; /* UINT8_MAX: the driver lowers what is too much */
};

/* IBTA volume 1, 10.3.1, without the changes of attributes within a state. */
bool qp_orders_allow(enum nic_qp_state from, enum nic_qp_state to);
/* Whether a queue pair in `from` may change as `attr` says: 0 or -EINVAL. */
int qp_orders_check(enum nic_qp_state from, const struct nic_qp_attr *attr,
		    const struct qp_limits *limits);

/* In SQD posts are taken and wait for RTS. */
static inline bool
qp_orders_may_send(enum nic_qp_state state)
{
	return state == NIC_QP_RTS || state == NIC_QP_SQD;
}

static inline bool
qp_orders_may_receive(enum nic_qp_state state)
{
	return state == NIC_QP_RTR || qp_orders_may_send(state);
}

static inline bool
qp_orders_wr_ok(const struct nic_send_wr *wr)
{
	return wr->opcode <= NIC_SEND_INV && wr->sge_count <= NIC_SGE_MAX;
}

static inline bool
qp_orders_datagram_ok(const struct nic_send_wr *wr)
{
	return wr->opcode <= NIC_SEND_IMM && wr->ah != NULL;
}

/* READs and atomics: their memory is written. */
static inline bool
qp_orders_fetches(uint8_t opcode)
{
	return opcode >= NIC_READ && opcode <= NIC_FETCH_ADD;
}

/* Copies the data of a WR with NIC_INLINE: their length, or -EINVAL. */
static inline int
qp_orders_copy_inline(uint8_t *to, const struct nic_send_wr *wr)
{
	uint32_t length = 0;

	for (unsigned i = 0; i < wr->sge_count; i++) {
		const struct nic_sge *s = &wr->sge[i];

		if (s->length > QP_INLINE_MAX - length)
			return -EINVAL;
		memcpy(to + length, (const void *)(uintptr_t)s->address, s->length);
		length += s->length;
	}
	return (int)length;
}

#endif
