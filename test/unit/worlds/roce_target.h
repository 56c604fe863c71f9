/* SPDX-License-Identifier: BSD-3-Clause */
/* One QP to which frames of any opcode are given, and what it answers. */
#ifndef WEIR_TEST_ROCE_TARGET_H
#define WEIR_TEST_ROCE_TARGET_H

#include "roce_net.h"

#define MTU 256u
#define PSN 0xfffffeu
#define MEMORY 4096u
#define ALL (NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC | NIC_REMOTE_INVALIDATE)
#define FILL 0x5a
#define ACK AETH(AETH_ACK, AETH_UNLIMITED)
#define NAK(code) AETH(AETH_NAK, code)

struct world {
	struct net *net;
	struct net_port *port;
	uint8_t memory[3 * MEMORY]; /* the region is the middle part */
	struct nic_mr mr, gone;
	uint8_t receive[MEMORY];
	struct nic_mr receive_mr;
	uint8_t payload[MEMORY];
	struct nic_qp *qp;
	/* what has left */
	unsigned answers;
	uint8_t opcode, syndrome;
	uint32_t psn;
	unsigned solicited;  /* how many of them had the bit */
	uint32_t data_bytes; /* that answers to READs brought, one behind the other */
	uint8_t data[MEMORY];
};

struct world *world_create(void);
void world_destroy(struct world *w);
/* A QP in that state whose peer is node 1 of the network, as QP 17. */
void make_qp(struct world *w, enum nic_qp_state state);
/* The QP goes, and with it every completion and posted receive. */
void end_qp(struct world *w);

/* Kinds of opcodes. */
bool has_reth(uint8_t op);
bool is_atomic(uint8_t op);
bool is_send(uint8_t op);
bool is_write(uint8_t op);
bool is_request(uint8_t op);
bool begins(uint8_t op);
/* First or in the middle: whole frames only. */
bool goes_on(uint8_t op);
bool is_answer(uint8_t op);
/* Of the range for RC, with no meaning, or one that we do not offer (FLUSH, ATOMIC WRITE). */
bool is_reserved(uint8_t op);
bool is_known(uint8_t op);

/* A sound frame of any opcode. */
struct craft craft(struct world *w, uint8_t op, uint32_t psn);
/* It comes in; `spoil`: with a wrong checksum. */
void give(struct world *w, const struct craft *c, bool spoil);

#endif
