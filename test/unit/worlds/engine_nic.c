/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_nic.h"

#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct nic_ops fake_ops;

void
fake_context_init(struct nic_context *c, struct fake_net *net)
{
	memset(c, 0, sizeof(*c));
	c->head.ops = &fake_ops;
	c->net = net;
	c->last = &c->first;
}

void
fake_context_fini(struct nic_context *c)
{
	while (c->first) {
		struct fake_packet *p = c->first;

		c->first = p->next;
		free(p);
	}
}

void
fake_qp_init(struct fake_qp *q, struct nic_context *ctx, void *user)
{
	*q = (struct fake_qp){.head = {&fake_ops, ++ctx->net->qps}, .ctx = ctx, .user = user};
}

void
fake_qp_join(struct fake_qp *a, struct fake_qp *b)
{
	a->peer = b;
	b->peer = a;
}

void
fake_ud_init(struct fake_qp *q, struct nic_context *ctx, void *user, struct fake_srq *srq,
	     uint32_t qkey)
{
	fake_qp_init(q, ctx, user);
	q->srq = srq;
	srq->of_datagrams = FAKE_SRQ;
	q->qkey = qkey;
	ctx->net->ud[ctx->net->uds++ % FAKE_UDS] = q;
}

static void
complete(struct fake_qp *q, struct nic_wc wc)
{
	struct nic_context *c = q->ctx;

	wc.qp_user = q->user;
	wc.qpn = q->head.qpn;
	c->cq[c->cq_end++ % FAKE_CQ] = wc;
}

void
fake_qp_break(struct fake_qp *q)
{
	q->dead = true;
	complete(q, (struct nic_wc){.status = NIC_WC_RETRY_EXC_ERR, .opcode = NIC_WRITE});
	if (q->peer && !q->peer->dead)
		fake_qp_break(q->peer);
}

static bool
within(const struct fake_net *net, uint32_t key, uint64_t at, uint64_t length, unsigned access)
{
	const struct nic_mr *mr;

	if (!key || key > net->mrs || (net->access[key - 1] & access) != access)
		return false;
	mr = &net->mr[key - 1];
	return at >= mr->address && length <= mr->length && at - mr->address <= mr->length - length;
}

static struct nic_recv_wr
take_recv(struct nic_context *c)
{
	if (!c->recv_wrs) {
		c->net->no_recv++;
		return (struct nic_recv_wr){0};
	}
	c->recv_wrs--;
	return c->recv[c->recv_first++ % FAKE_SRQ];
}

void
fake_receive(struct fake_qp *q, uint32_t imm)
{
	complete(q, (struct nic_wc){.wr_id = take_recv(q->ctx).wr_id,
				    .opcode = NIC_RECV_IMM,
				    .has_imm = true,
				    .imm = imm});
}

void
fake_receive_sent(struct fake_qp *q, uint32_t imm, const void *data, uint32_t length)
{
	struct nic_recv_wr wr = take_recv(q->ctx);

	if (length > wr.sge.length ||
	    !within(q->ctx->net, wr.sge.lkey, wr.sge.address, length, NIC_LOCAL_WRITE))
		q->ctx->net->bad_writes++;
	else
		memcpy((void *)(uintptr_t)wr.sge.address, data, length);
	complete(q, (struct nic_wc){.wr_id = wr.wr_id,
				    .opcode = NIC_RECV,
				    .has_imm = true,
				    .imm = imm,
				    .length = length});
}

void
fake_receive_fails(struct fake_qp *q)
{
	complete(q, (struct nic_wc){.wr_id = take_recv(q->ctx).wr_id,
				    .status = NIC_WC_WR_FLUSH_ERR,
				    .opcode = NIC_RECV});
}

struct nic_mr
fake_mr(struct fake_net *net, void *at, size_t length, unsigned access)
{
	uint32_t key = 0;

	while (key < net->mrs &&
	       (net->mr[key].address != (uintptr_t)at || net->mr[key].length != length))
		key++;
	if (key == net->mrs)
		net->mrs++;
	net->mr[key] = (struct nic_mr){
	    .address = (uintptr_t)at, .length = length, .lkey = key + 1, .rkey = key + 1};
	net->access[key] = access;
	return net->mr[key];
}

void
fake_mr_end(struct fake_net *net, const struct nic_mr *mr)
{
	if (mr->rkey)
		net->mr[mr->rkey - 1].length = 0;
}

static void
send_packet(struct fake_qp *to, struct fake_packet *p, uint64_t now)
{
	struct nic_context *c = to->ctx;

	p->to = to;
	p->due = now + c->net->delay_ns;
	p->next = NULL;
	*c->last = p;
	c->last = &p->next;
}

static uint32_t
per_mille(struct fake_net *net)
{
	net->seed = net->seed * 1664525 + 1013904223;
	return (net->seed >> 10) % 1000;
}

void
fake_ud_release(struct fake_qp *q)
{
	for (uint32_t i = 0; i < q->held_count; i++)
		complete(q,
			 (struct nic_wc){.wr_id = q->held[i],
					 .opcode = NIC_SEND_IMM,
					 .status = q->dead ? NIC_WC_WR_FLUSH_ERR : NIC_WC_SUCCESS});
	q->held_count = 0;
	q->hold = false;
}

/* A copy of it arrives, maybe behind later ones. */
static void
send_datagram(struct fake_net *net, struct fake_qp *to, const struct fake_packet *p, uint64_t now)
{
	struct nic_context *c = to->ctx;
	struct fake_packet **at = &c->first, *copy = malloc(sizeof(*p) + p->length);

	memcpy(copy, p, sizeof(*p) + p->length);
	copy->to = to;
	copy->due = now + net->delay_ns;
	if (per_mille(net) < net->late)
		copy->due += per_mille(net) * 20;
	while (*at && (*at)->due <= copy->due)
		at = &(*at)->next;
	copy->next = *at;
	*at = copy;
	if (!copy->next)
		c->last = &copy->next;
}

static void
post_datagram(struct fake_qp *q, const struct nic_send_wr *wr)
{
	struct fake_net *net = q->ctx->net;
	struct fake_packet *p = calloc(1, sizeof(*p) + wr->sge[0].length);

	if (!within(net, wr->sge[0].lkey, wr->sge[0].address, wr->sge[0].length, 0))
		net->bad_writes++;
	p->wr = *wr;
	p->length = wr->sge[0].length;
	p->datagram = true;
	p->source_qpn = q->head.qpn;
	p->source = ((const struct fake_ah *)wr->ah)->source;
	memcpy(p->data, (void *)(uintptr_t)wr->sge[0].address, p->length);
	net->datagrams++;
	for (uint32_t i = 0; i < FAKE_UDS && i < net->uds; i++) {
		struct fake_qp *to = net->ud[i];

		if (to->head.qpn != wr->remote_qpn)
			continue;
		if (per_mille(net) < net->lose)
			net->lost++;
		else
			send_datagram(net, to, p, q->ctx->now);
		if (per_mille(net) < net->twice)
			send_datagram(net, to, p, q->ctx->now);
	}
	free(p);
	q->held[q->held_count++ % 1024] = wr->wr_id;
	if (!q->hold)
		fake_ud_release(q);
}

static void
post(struct fake_qp *q, const struct nic_send_wr *wr)
{
	struct fake_net *net = q->ctx->net;
	uint32_t length = wr->sge[0].length + (wr->sge_count > 1 ? wr->sge[1].length : 0);
	struct fake_packet *p = calloc(1, sizeof(*p) + length);

	net->overruns += q->posted - q->freed >= ENGINE_SEND_WRS;
	for (unsigned k = 0; k < wr->sge_count; k++) {
		const struct nic_sge *s = &wr->sge[k];

		net->bad_writes += !within(net, s->lkey, s->address, s->length, 0);
		if (wr->opcode != NIC_READ)
			memcpy(p->data + (k ? wr->sge[0].length : 0), (void *)(uintptr_t)s->address,
			       s->length);
	}
	p->wr = *wr;
	p->length = length;
	p->signaled = wr->flags & NIC_SIGNALED;
	net->signaled += p->signaled;
	p->wr.compare_add = ++q->posted;
	net->bytes += length;
	net->reads += wr->opcode == NIC_READ;
	net->sends += wr->opcode == NIC_SEND_IMM;
	net->writes += wr->opcode == NIC_WRITE;
	net->write_imms += wr->opcode == NIC_WRITE_IMM;
	send_packet(q->peer, p, q->ctx->now);
}

static int
fake_post_send(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	if (q->dead)
		return -ENOTCONN;
	if (q->ctx->post_most && n > q->ctx->post_most)
		n = q->ctx->post_most;
	for (unsigned i = 0; i < n; i++)
		(q->srq ? post_datagram : post)(q, &wr[i]);
	return (int)n;
}

static int
fake_post_recv(struct nic_srq *srq, const struct nic_recv_wr *wr, unsigned n)
{
	struct nic_context *c = (struct nic_context *)srq;
	struct fake_srq *s = (struct fake_srq *)srq;

	if (s->of_datagrams == FAKE_SRQ) {
		for (unsigned i = 0; i < n; i++)
			s->wr[s->end++ % FAKE_SRQ] = wr[i];
		return (int)n;
	}
	if (c->takes_no_recv)
		return 0;
	for (unsigned i = 0; i < n; i++) /* the context stands for its SRQ */
		c->recv[(c->recv_first + c->recv_wrs++) % FAKE_SRQ] = wr[i];
	if (c->recv_wrs > FAKE_SRQ)
		c->net->overruns++;
	return (int)n;
}

static void
fake_flush(struct nic_context *c, uint64_t now)
{
	c->now = now;
}

static void
arrive_datagram(struct fake_qp *q, const struct fake_packet *p)
{
	struct fake_net *net = q->ctx->net;
	struct nic_recv_wr wr;
	uint8_t *to;

	if (q->dead || p->wr.qkey != q->qkey)
		return;
	if (q->srq->first == q->srq->end) {
		net->no_buffer++;
		return;
	}
	wr = q->srq->wr[q->srq->first++ % FAKE_SRQ];
	to = (uint8_t *)(uintptr_t)wr.sge.address;
	if (wr.sge.length < NIC_GRH_BYTES + p->length ||
	    !within(net, wr.sge.lkey, wr.sge.address, wr.sge.length, NIC_LOCAL_WRITE))
		net->bad_writes++;
	memset(to, 0, NIC_GRH_BYTES);
	to[20] = 0x45;
	memcpy(to + 32, p->source.raw + 12, 4);
	memcpy(to + NIC_GRH_BYTES, p->data, p->length);
	complete(q, (struct nic_wc){.wr_id = wr.wr_id,
				    .opcode = NIC_RECV,
				    .has_imm = true,
				    .imm = p->wr.imm,
				    .length = NIC_GRH_BYTES + p->length,
				    .source_qpn = p->source_qpn});
}

static void
arrive(struct nic_context *c, struct fake_packet *p, uint64_t now)
{
	struct fake_qp *q = p->to;

	if (p->datagram || p->ack || q->dead) {
		if (p->datagram) {
			arrive_datagram(q, p);
		} else if (!q->dead) {
			if (p->wr.opcode == NIC_READ)
				memcpy((void *)(uintptr_t)p->wr.sge[0].address, p->data, p->length);
			if (p->signaled) {
				complete(q, (struct nic_wc){.wr_id = p->wr.wr_id,
							    .opcode = p->wr.opcode});
				q->freed = p->wr.compare_add;
			}
		}
		free(p);
		return;
	}
	if (p->wr.opcode == NIC_WRITE && p->length > 64 && c->net->refuse && !--c->net->refuse) {
		complete(q->peer, (struct nic_wc){.wr_id = p->wr.wr_id,
						  .status = NIC_WC_REM_INV_REQ_ERR,
						  .opcode = NIC_WRITE});
		q->dead = q->peer->dead = true;
		free(p);
		return;
	}
	if (p->wr.opcode == NIC_SEND_IMM)
		fake_receive_sent(q, p->wr.imm, p->data, p->length);
	else if (!within(c->net, p->wr.rkey, p->wr.remote_address, p->length,
			 p->wr.opcode == NIC_READ ? NIC_REMOTE_READ : NIC_REMOTE_WRITE))
		c->net->bad_writes++;
	else if (p->wr.opcode == NIC_READ)
		memcpy(p->data, (void *)(uintptr_t)p->wr.remote_address, p->length);
	else
		memcpy((void *)(uintptr_t)p->wr.remote_address, p->data, p->length);
	if (p->wr.opcode == NIC_WRITE_IMM)
		fake_receive(q, p->wr.imm);
	if (p->signaled || p->wr.opcode == NIC_READ) {
		p->ack = true;
		send_packet(q->peer, p, now);
	} else {
		free(p);
	}
}

static unsigned
fake_poll(struct nic_context *c, struct nic_wc *wc, unsigned n, uint64_t now, bool *busy)
{
	unsigned i = 0;

	c->now = now;
	while (c->first && c->first->due <= now) {
		struct fake_packet *p = c->first;

		c->first = p->next;
		if (!c->first)
			c->last = &c->first;
		arrive(c, p, now);
		*busy = true;
	}
	while (i < n && c->cq_first != c->cq_end)
		wc[i++] = c->cq[c->cq_first++ % FAKE_CQ];
	return i;
}

static const struct nic_ops fake_ops = {
    .driver = "fake",
    .post_send = fake_post_send,
    .post_srq_recv = fake_post_recv,
    .poll = fake_poll,
    .flush = fake_flush,
};
