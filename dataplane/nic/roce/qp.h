/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair; main thread: its verbs. */
#ifndef WEIR_ROCE_QP_H
#define WEIR_ROCE_QP_H

#include "base/list.h"
#include "neighbour.h"
#include "packet.h"
#include "requester.h"
#include "responder.h"
#include "template.h"

struct roce_context;
struct roce_device;
struct roce_srq;

#define ORDER_ERROR 0x1u
#define ORDER_DESTROY 0x2u
#define ORDER_RESET 0x4u
#define ORDER_DRAIN 0x8u /* roce_qp.drain was changed */

struct roce_qp {
	struct nic_qp_head head;
	struct roce_context *ctx;
	void *user;
	bool ud;
	_Atomic uint8_t state; /* enum nic_qp_state, SQD is RTS here; main writes INIT to RTS,
				  engine RESET and ERR */
	uint8_t access;
	uint16_t mtu;
	uint32_t peer_qpn;
	struct address peer; /* UD: what no frame has */
	uint32_t qkey;	     /* UD */
	struct neighbour *neighbour;
	struct roce_srq *srq;
	struct list_node sender; /* in ctx->senders: may have something to send */
	struct list_node answer; /* in ctx->answers: a response waits */
	struct list_node timer;	 /* in ctx->timers */
	struct headers headers;	 /* the device's */
	uint32_t ip_sum;	 /* IPv4: of the template, without length and checksum */
	/* engine, but for the initial values: the template fits frames that end there, to that MAC
	 */
	uint32_t fits_end;
	uint64_t fits_mac;
	_Alignas(CACHE_LINE) uint8_t template[ROCE_TEMPLATE];
	struct requester rq;
	struct responder rs;
	/* main to engine and back */
	_Atomic uint32_t orders;   /* ORDER_*: main sets, engine takes */
	_Atomic bool drain;	   /* SQD is wanted: main sets, engine reads */
	struct roce_qp *mail_next; /* while in ctx->mailbox or ctx->dead */
	/* main */
	struct list_node all;
	size_t bytes;
	uint32_t index, send_wrs;
	bool resetting; /* ordered, and not yet seen in `state` */
};

int roce_qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp);
int roce_qp_modify(struct nic_qp *qp, const struct nic_qp_attr *attr);
void roce_qp_destroy(struct nic_qp *qp);
/* The neighbour that a GID names, with one user more: 0 or -errno. */
int roce_peer_find(struct roce_device *dev, const struct nic_gid *gid, struct address *ip,
		   struct neighbour **neighbour);
/* Frees what the engine has let go. */
void roce_qp_reap(struct roce_context *ctx);
void roce_qp_free(struct roce_qp *qp);

/* Partner of the release stores in roce_qp_modify(). */
static inline enum nic_qp_state
qp_state(const struct roce_qp *qp)
{
	return (enum nic_qp_state)atomic_load_explicit(&qp->state, memory_order_acquire);
}

#endif
