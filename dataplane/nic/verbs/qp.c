/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs and address handles on the main thread. */
#include "internal.h"

#include <errno.h>
#include <string.h>

#define TIMEOUT_DEFAULT 14u /* 4.096 us << 14 = 67 ms */
#define RNR_TIMER 12u	    /* 0.64 ms */
#define RD_ATOMIC_DEFAULT 16u
#define HOP_LIMIT 64u

static int
last_error(void)
{
	return errno ? -errno : -EIO;
}

/* ---- making ---- */

static int
create(struct vnic_qp *qp, const struct nic_qp_init *init)
{
	struct ibv_qp_init_attr attr = {
	    .qp_context = qp,
	    .send_cq = qp->cq->cq,
	    .recv_cq = qp->ctx->recv_cq.cq,
	    .srq = qp->srq ? qp->srq->srq : NULL,
	    .cap = {.max_send_wr = init->send_wrs,
		    .max_send_sge = NIC_SGE_MAX,
		    .max_recv_wr = qp->srq ? 0 : 1,
		    .max_recv_sge = qp->srq ? 0 : 1,
		    .max_inline_data = QP_INLINE_MAX},
	    .qp_type = init->type == NIC_RC ? IBV_QPT_RC : IBV_QPT_UD,
	};
	struct ibv_qp_init_attr bare = attr;
	size_t bytes = (size_t)(qp->mask + 1) * QP_INLINE_MAX;

	errno = 0;
	qp->qp = ibv_create_qp(qp->ctx->dev->pd, &attr);
	if (qp->qp && attr.cap.max_inline_data >= QP_INLINE_MAX)
		return 0;
	if (qp->qp) {
		ibv_destroy_qp(qp->qp);
		qp->qp = NULL;
	} else if (errno != EINVAL && errno != ENOMEM && errno != EOPNOTSUPP) {
		return last_error();
	}
	/* the NIC takes less inline: copies in memory of ours instead */
	qp->bounce = vnic_get(qp->ctx->dev, bytes, qp->ctx->dev->config.numa_socket[qp->ctx->id]);
	if (!qp->bounce)
		return -ENOMEM;
	qp->bounce_mr = ibv_reg_mr(qp->ctx->dev->pd, qp->bounce, bytes, 0);
	if (!qp->bounce_mr)
		return last_error();
	bare.cap.max_inline_data = 0;
	qp->qp = ibv_create_qp(qp->ctx->dev->pd, &bare);
	return qp->qp ? 0 : last_error();
}

static struct vnic_qp *
allocate(struct vnic_context *ctx, const struct nic_qp_init *init)
{
	uint32_t size = 1;
	struct vnic_qp *qp;
	size_t bytes;

	while (size < init->send_wrs)
		size *= 2;
	bytes = sizeof(*qp) + size * sizeof(qp->sent[0]);
	qp = vnic_get(ctx->dev, bytes, ctx->dev->config.numa_socket[ctx->id]);
	if (!qp)
		return NULL;
	qp->bytes = bytes;
	qp->ctx = ctx;
	qp->user = init->user;
	qp->type = (uint8_t)init->type;
	qp->sent = (struct vnic_sent *)(qp + 1);
	qp->depth = init->send_wrs;
	qp->mask = size - 1;
	qp->signal_every = init->send_wrs < 4 ? 1 : init->send_wrs / 4;
	qp->refused = UINT64_MAX;
	qp->srq = (struct vnic_srq *)init->srq;
	if (qp->srq)
		qp->srq->users++;
	LIST_INSERT_HEAD(&ctx->all, qp, in_all);
	return qp;
}

int
vnic_qp_create(struct nic_context *nctx, const struct nic_qp_init *init, struct nic_qp **out)
{
	struct vnic_context *ctx = (struct vnic_context *)nctx;
	_Atomic(struct vnic_qp *) *page;
	struct vnic_qp *qp;
	uint32_t at;
	int rc;

	if (init->type != NIC_RC && init->type != NIC_UD)
		return -EPROTONOSUPPORT;
	if (!init->send_wrs || init->send_wrs > (uint32_t)ctx->dev->attr.max_qp_wr)
		return -EINVAL;
	vnic_qp_reap(ctx);
	qp = allocate(ctx, init);
	if (!qp)
		return -ENOMEM;
	qp->cq = vnic_send_cq(ctx, init->send_wrs);
	rc = qp->cq ? 0 : last_error();
	if (rc)
		goto err_free;
	qp->cq->reserved += qp->depth;
	rc = create(qp, init);
	if (rc)
		goto err_free;
	qp->head = (struct nic_qp_head){.ops = &vnic_ops, .qpn = qp->qp->qp_num};
	/* into the table: from now on completions find the QP */
	at = qp->head.qpn >> VNIC_QPN_BITS;
	page = atomic_load_explicit(&ctx->qps[at], memory_order_relaxed);
	if (!page) {
		page = vnic_get(ctx->dev, VNIC_QPN_PAGE * sizeof(*page),
				ctx->dev->config.numa_socket[ctx->id]);
		rc = -ENOMEM;
		if (!page)
			goto err_free;
		/* partner: the acquire load in entry_of() */
		atomic_store_explicit(&ctx->qps[at], page, memory_order_release);
	}
	/* partner: the acquire load in poll_cq() */
	atomic_store_explicit(&page[qp->head.qpn & (VNIC_QPN_PAGE - 1)], qp, memory_order_release);
	*out = (struct nic_qp *)qp;
	return 0;

err_free:
	vnic_qp_free(qp);
	return rc;
}

/* Neither the engine nor the NIC uses the QP any more. */
void
vnic_qp_free(struct vnic_qp *qp)
{
	struct vnic_device *dev = qp->ctx->dev;

	if (qp->qp)
		ibv_destroy_qp(qp->qp);
	if (qp->bounce_mr)
		ibv_dereg_mr(qp->bounce_mr);
	vnic_put(dev, qp->bounce, (size_t)(qp->mask + 1) * QP_INLINE_MAX);
	LIST_REMOVE(qp, in_all);
	weir_assert(!qp->cq || qp->cq->reserved <= qp->cq->entries);
	if (qp->cq)
		qp->cq->reserved -= qp->depth;
	if (qp->srq && --qp->srq->users == 0 && qp->srq->destroy_called)
		vnic_srq_free(qp->srq);
	vnic_put(dev, qp, qp->bytes);
}

void
vnic_qp_reap(struct vnic_context *ctx)
{
	/* partner: the release push in end_ready() */
	struct vnic_qp *qp = atomic_exchange_explicit(&ctx->dead, NULL, memory_order_acquire);

	while (qp) {
		struct vnic_qp *next = qp->mail_next;

		vnic_qp_free(qp);
		qp = next;
	}
}

static void
order(struct vnic_qp *qp, uint32_t what)
{
	struct vnic_context *ctx = qp->ctx;
	struct vnic_qp *head;

	/* partner: the exchange in take_orders(). Orders before it: the QP is in the mailbox */
	if (atomic_fetch_or_explicit(&qp->orders, what, memory_order_acq_rel) != 0)
		return;
	head = atomic_load_explicit(&ctx->mailbox, memory_order_relaxed);
	do {
		qp->mail_next = head;
		/* partner: the acquire exchange in take_orders() */
	} while (!atomic_compare_exchange_weak_explicit(
	    &ctx->mailbox, &head, qp, memory_order_release, memory_order_relaxed));
}

void
vnic_qp_destroy(struct nic_qp *nqp)
{
	struct vnic_qp *qp = (struct vnic_qp *)nqp;
	struct nic_qp_attr error = {.state = NIC_QP_ERR};
	struct vnic_context *ctx;

	if (!qp)
		return;
	ctx = qp->ctx;
	qp->destroy_called = true;
	vnic_qp_modify(nqp, &error);
	order(qp, VNIC_ORDER_DESTROY);
	vnic_qp_reap(ctx);
}

/* ---- states ---- */

static unsigned
access_flags(unsigned access)
{
	return (access & NIC_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
	       (access & NIC_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
	       (access & NIC_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

/* Addresses a GID (RoCE, or another InfiniBand subnet) or a LID. */
static int
way_to(const struct vnic_device *dev, const struct nic_gid *gid, uint16_t lid, uint8_t class,
       uint8_t priority, struct ibv_ah_attr *ah)
{
	static const struct nic_gid none;
	bool has_gid = memcmp(gid, &none, sizeof(none)) != 0;
	/* the upper half of a GID is its subnet's; a LID counts within one subnet only */
	bool away = has_gid && memcmp(gid->raw, dev->gid.raw, 8) != 0;

	*ah = (struct ibv_ah_attr){.port_num = dev->port,
				   .dlid = dev->ethernet ? 0 : lid,
				   .sl = priority ? priority - 1 : 0};
	if (dev->ethernet ? !has_gid : !lid)
		return -EINVAL;
	if (!dev->ethernet && !away)
		return 0;
	ah->is_global = 1;
	memcpy(ah->grh.dgid.raw, gid->raw, sizeof(gid->raw));
	ah->grh.sgid_index = (uint8_t)dev->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = class;
	return 0;
}

static unsigned
rd_atomic(const struct vnic_device *dev, const struct nic_qp_attr *attr, int most)
{
	unsigned n = attr->rd_atomic	     ? attr->rd_atomic
		     : dev->config.rd_atomic ? dev->config.rd_atomic
					     : RD_ATOMIC_DEFAULT;

	return most < (int)n ? (unsigned)(most > 0 ? most : 0) : n;
}

/* Fills *to and returns the mask of ibv_modify_qp() for a legal change; or -errno. */
static int
fill(struct vnic_qp *qp, const struct nic_qp_attr *attr, uint8_t from, struct ibv_qp_attr *to)
{
	const struct vnic_device *dev = qp->ctx->dev;
	const struct vnic_config *config = &dev->config;
	uint64_t timeout = attr->timeout_ns ? attr->timeout_ns : config->timeout_ns;
	unsigned mtu = attr->mtu ? attr->mtu : dev->mtu;
	int rc;

	switch (attr->state) {
	case NIC_QP_INIT:
		to->port_num = dev->port;
		to->qp_access_flags = access_flags(NIC_REMOTE_WRITE);
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (qp->type == NIC_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case NIC_QP_RTR:
		if (qp->type == NIC_UD) {
			to->qkey = attr->qkey;
			return IBV_QP_STATE | IBV_QP_QKEY;
		}
		rc = way_to(dev, &attr->remote_gid, attr->remote_lid, attr->traffic_class,
			    attr->priority, &to->ah_attr);
		if (rc)
			return rc;
		to->path_mtu = IBV_MTU_256;
		while (to->path_mtu < IBV_MTU_4096 && vnic_mtu_bytes(to->path_mtu) < mtu)
			to->path_mtu++;
		to->dest_qp_num = attr->remote_qpn;
		to->rq_psn = attr->remote_psn;
		to->max_dest_rd_atomic = (uint8_t)rd_atomic(dev, attr, dev->attr.max_qp_rd_atom);
		to->min_rnr_timer = RNR_TIMER;
		to->qp_access_flags = access_flags(attr->access ? attr->access : NIC_REMOTE_WRITE);
		return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
		       IBV_QP_ACCESS_FLAGS;
	case NIC_QP_RTS:
		if (from == NIC_QP_SQD)
			return IBV_QP_STATE;
		to->sq_psn = attr->psn;
		if (qp->type == NIC_UD)
			return IBV_QP_STATE | IBV_QP_SQ_PSN;
		/* 4.096 us << code is at least `timeout` */
		to->timeout = timeout ? 1 : TIMEOUT_DEFAULT;
		while (to->timeout < 31 && (UINT64_C(4096) << to->timeout) < timeout)
			to->timeout++;
		to->retry_cnt = attr->retry ? attr->retry : config->retry ? config->retry : 7;
		to->rnr_retry = attr->rnr_retry	    ? attr->rnr_retry
				: config->rnr_retry ? config->rnr_retry
						    : 7;
		to->max_rd_atomic = (uint8_t)rd_atomic(dev, attr, dev->attr.max_qp_init_rd_atom);
		return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	case NIC_QP_SQD:
		to->en_sqd_async_notify = 1;
		return IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
	default:
		return IBV_QP_STATE;
	}
}

int
vnic_qp_modify(struct nic_qp *nqp, const struct nic_qp_attr *attr)
{
	static const enum ibv_qp_state states[] = {
	    [NIC_QP_RESET] = IBV_QPS_RESET, [NIC_QP_INIT] = IBV_QPS_INIT,
	    [NIC_QP_RTR] = IBV_QPS_RTR,	    [NIC_QP_RTS] = IBV_QPS_RTS,
	    [NIC_QP_SQD] = IBV_QPS_SQD,	    [NIC_QP_ERR] = IBV_QPS_ERR,
	};
	struct vnic_qp *qp = (struct vnic_qp *)nqp;
	struct ibv_qp_attr to = {.qp_state = IBV_QPS_RESET};
	/* too many READs and atomics are lowered to what the NIC can */
	struct qp_limits limits = {.mtu = qp->ctx->dev->mtu, .rd_atomic = UINT8_MAX};
	uint8_t from = vnic_qp_state(qp);
	int mask, rc;

	/* partner: the release store in end_ready() */
	if (atomic_load_explicit(&qp->resetting, memory_order_acquire))
		return -EAGAIN;
	rc = qp_orders_check((enum nic_qp_state)from, attr, &limits);
	if (rc)
		return rc;
	if (from == NIC_QP_RESET && attr->state == NIC_QP_RESET)
		return 0;
	mask = fill(qp, attr, from, &to);
	if (mask < 0)
		return mask;
	to.qp_state = states[attr->state];
	/* from RESET the kernel allows only INIT; a QP in RESET does as little as one in ERR */
	rc = from == NIC_QP_RESET && attr->state != NIC_QP_INIT ? 0
								: ibv_modify_qp(qp->qp, &to, mask);
	if (rc)
		return rc > 0 ? -rc : last_error();
	if (attr->state == NIC_QP_RESET) {
		atomic_store_explicit(&qp->flushed, false, memory_order_relaxed);
		atomic_store_explicit(&qp->resetting, true, memory_order_relaxed);
	}
	/* the only place where a state changes; release: partner is vnic_qp_state() */
	atomic_store_explicit(&qp->state, (uint8_t)attr->state, memory_order_release);
	if (attr->state == NIC_QP_RESET)
		order(qp, VNIC_ORDER_RESET);
	return 0;
}

/* ---- datagrams ---- */

int
vnic_ah_create(struct nic_device *ndev, const struct nic_ah_attr *attr, struct nic_ah **ah)
{
	struct vnic_device *dev = (struct vnic_device *)ndev;
	struct ibv_ah_attr to;
	int rc = way_to(dev, &attr->gid, attr->lid, attr->traffic_class, attr->priority, &to);

	if (rc)
		return rc;
	*ah = (struct nic_ah *)ibv_create_ah(dev->pd, &to);
	return *ah ? 0 : last_error();
}

void
vnic_ah_destroy(struct nic_ah *ah)
{
	if (ah)
		ibv_destroy_ah((struct ibv_ah *)ah);
}
