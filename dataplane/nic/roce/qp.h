/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair; main thread: its verbs. */
#ifndef WEIR_ROCE_QP_H
#define WEIR_ROCE_QP_H

#include "base/list.h"
#include "ipc/invariant.h"
#include "neighbour.h"
#include "nic/qp_orders.h"
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
#define ORDER_MOVE 0x10u /* the context has a larger ring of completions */

struct roce_qp {
	struct nic_qp_head head;
	struct roce_context *ctx;
	void *user;
	bool ud;
	_Atomic uint8_t state; /* enum nic_qp_state, changed by qp_enter(): main to INIT, RTR and
				  RTS, engine to RESET and ERR; SQD is RTS here */
	uint8_t access;
	uint16_t mtu;
	uint32_t peer_qpn;
	struct address peer; /* UD: one that no frame comes from */
	uint32_t qkey;	     /* UD */
	struct neighbour *neighbour;
	struct roce_srq *srq;
	struct list_node sender; /* in ctx->senders: may have something to send */
	struct list_node ack;	 /* in ctx->acks: a response waits */
	struct list_node timer;	 /* in ctx->timers */
	struct headers headers;	 /* the device's */
	uint32_t ip_sum;	 /* IPv4: of the template, without length and checksum */
	/* engine, but for the initial values: where frames end and the MAC that the template has */
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
/* The neighbour of a GID, with one user more: 0 or -errno. */
int roce_peer_find(struct roce_device *dev, const struct nic_gid *gid, struct address *ip,
		   struct neighbour **neighbour);
/* Frees the QPs that the engine has released. */
void roce_qp_reap(struct roce_context *ctx);
void roce_qp_free(struct roce_qp *qp);

/* Partner of the release in qp_enter(). */
static inline enum nic_qp_state
qp_state(const struct roce_qp *qp)
{
	return (enum nic_qp_state)atomic_load_explicit(&qp->state, memory_order_acquire);
}

/*
 * The only place where a state changes. Release: with the state, the QP's fields pass to the thread
 * that reads them in it (qp_state()). False: the other thread was first, *from is what it wrote.
 */
static inline bool
qp_enter(struct roce_qp *qp, uint8_t *from, enum nic_qp_state to)
{
	weir_assert(qp_orders_allow((enum nic_qp_state)from[0], to));
	return atomic_compare_exchange_strong_explicit(&qp->state, from, (uint8_t)to,
						       memory_order_acq_rel, memory_order_acquire);
}

#endif
