/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A NIC for tests of engines: WRITEs and READs between contexts of one process, in order, with a
 * delay, SENDs, and datagrams, which are lost, doubled and overtaken as the test wishes. It is
 * strict where hardware is: a WRITE or READ outside its region, a receive without a WR and an
 * overrun send queue are counted, and a test that meets one fails.
 */
#ifndef TEST_ENGINE_NIC_H
#define TEST_ENGINE_NIC_H

#include "nic/nic.h"

#define FAKE_MRS 256
#define FAKE_CQ 65536
#define FAKE_UDS 8
#define FAKE_SRQ 4096

struct fake_packet {
	struct fake_packet *next;
	uint64_t due;
	struct fake_qp *to;
	bool ack, signaled, datagram;
	uint32_t source_qpn;
	struct nic_gid source;
	struct nic_send_wr wr;
	uint32_t length;
	uint8_t data[];
};

struct fake_net {
	struct nic_mr mr[FAKE_MRS];
	unsigned access[FAKE_MRS];
	uint32_t mrs, qps;
	uint64_t delay_ns;
	uint32_t bad_writes, no_recv, overruns; /* must stay 0 */
	uint32_t refuse; /* the n-th WRITE of more than a credit line is refused; 0: none */
	uint64_t writes, write_imms, reads, sends, bytes;
	uint64_t signaled; /* of those WRs */
	/* datagrams */
	struct fake_qp *ud[FAKE_UDS];
	uint32_t uds, seed;
	uint32_t lose, twice, late;	     /* of 1000 */
	uint64_t datagrams, lost, no_buffer; /* sent; for want of luck; of a receive WR */
};

struct fake_srq {
	uint64_t of_datagrams; /* FAKE_SRQ; a context begins with a pointer */
	struct nic_recv_wr wr[FAKE_SRQ];
	uint32_t first, end;
};

struct fake_ah {
	struct nic_gid source; /* who sends by it */
};

struct nic_context {
	struct nic_context_head head;
	struct fake_net *net;
	struct fake_packet *first, **last; /* on their way here */
	struct nic_wc cq[FAKE_CQ];
	uint32_t cq_first, cq_end;
	struct nic_recv_wr recv[FAKE_SRQ]; /* posted ones, a ring */
	uint32_t recv_first, recv_wrs;
	uint64_t now;
	unsigned post_most; /* WRs taken a call, 0: all */
	bool takes_no_recv; /* post_srq_recv() has no room */
};

struct fake_qp {
	struct nic_qp_head head;
	struct nic_context *ctx;
	struct fake_qp *peer;
	void *user;
	uint64_t posted, freed; /* WRs; a WR is free when a signaled one behind it was polled */
	bool dead;
	struct fake_srq *srq; /* of datagrams */
	uint32_t qkey;
	bool hold; /* completions of datagrams are kept */
	uint64_t held[1024];
	uint32_t held_count;
};

void fake_context_init(struct nic_context *c, struct fake_net *net);
void fake_context_fini(struct nic_context *c);
void fake_qp_init(struct fake_qp *q, struct nic_context *ctx, void *user);
void fake_qp_join(struct fake_qp *a, struct fake_qp *b);
/* The completions that were kept come now. */
void fake_ud_release(struct fake_qp *q);
void fake_ud_init(struct fake_qp *q, struct nic_context *ctx, void *user, struct fake_srq *srq,
		  uint32_t qkey);
/* Both ends get an error completion. */
void fake_qp_break(struct fake_qp *q);
/* A receive WR was used up by a message that did not come to its end. */
void fake_receive_fails(struct fake_qp *q);
struct nic_mr fake_mr(struct fake_net *net, void *at, size_t length, unsigned access);
void fake_mr_end(struct fake_net *net, const struct nic_mr *mr);
/* A completion as of a WRITE_IMM of a peer; of a SEND. */
void fake_receive(struct fake_qp *q, uint32_t imm);
void fake_receive_sent(struct fake_qp *q, uint32_t imm, const void *data, uint32_t length);

#endif
