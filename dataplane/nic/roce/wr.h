/* SPDX-License-Identifier: BSD-3-Clause */
/* Work requests in a send queue, and completions before they are polled. */
#ifndef WEIR_ROCE_WR_H
#define WEIR_ROCE_WR_H

#include "nic/qp_orders.h"
#include "roce.h"

struct roce_ah;
struct roce_qp;
struct roce_srq;

#define ROCE_MESSAGE_MAX (1u << 31) /* IBTA volume 1, 9.4.3 */

/* Opcodes of a WR's packets; a MIDDLE follows the FIRST. */
struct wire_form {
	uint8_t first, last, only;
	bool has_imm;
};

/* A work request in the send queue. Counters of PSNs run over 32 bits; the wire has the low 24. */
struct sq_entry {
	uint64_t wr_id;
	union {
		uint64_t remote_address;
		const struct roce_ah *ah; /* UD */
	};
	uint32_t rkey; /* UD: the peer's QPN */
	uint32_t imm;
	uint32_t length;
	union {
		uint32_t last_psn; /* valid once built */
		uint32_t qkey;	   /* UD */
	};
	uint16_t flags;
	uint8_t opcode;
	uint8_t sge_count;
	struct wire_form wire;
	union {
		struct {
			struct nic_sge sge[NIC_SGE_MAX];
			uint64_t compare_add, swap;
		};
		uint8_t data[QP_INLINE_MAX]; /* NIC_INLINE */
	};
};

/* A completion before it is polled; polling frees its WR. */
struct cq_entry {
	struct nic_wc wc;
	struct roce_qp *qp;   /* send: its rq.freed becomes sq_freed; NULL: gone */
	struct roce_srq *srq; /* receive: one of its WRs is free again; NULL: a send */
	uint32_t sq_freed;
};

#endif
