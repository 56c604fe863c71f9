/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs_fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

#define CQ_MAX 1024

struct fake fake;

struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc wc[CQ_MAX];
	unsigned head, tail;
};

static struct ibv_device device = {
    .name = "fake0", .dev_name = "uverbs0", .ibdev_path = "/nowhere"};
static struct ibv_context context;
static struct ibv_cq *cq_event;
static struct ibv_async_event async[8];
static unsigned async_head, async_tail;
static uint32_t next_qpn = 0x11;

/* ---- what tests say ---- */

void
fake_gid(unsigned index, enum ibv_gid_type type, const char *text)
{
	struct ibv_gid_entry *e = &fake.gid[fake.gids++];

	*e = (struct ibv_gid_entry){.gid_index = index, .port_num = 1, .gid_type = type};
	if (strchr(text, ':')) {
		inet_pton(AF_INET6, text, e->gid.raw);
	} else {
		e->gid.raw[10] = e->gid.raw[11] = 0xff;
		inet_pton(AF_INET, text, e->gid.raw + 12);
	}
}

static int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static int fake_notify(struct ibv_cq *cq, int solicited);
static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int fake_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

void
fake_reset(bool infiniband)
{
	memset(&fake, 0, sizeof(fake));
	fake.attr = (struct ibv_device_attr){.max_qp = 1000,
					     .max_qp_wr = 4096,
					     .max_sge = 32,
					     .max_cqe = 32767,
					     .max_srq = 8,
					     .max_srq_wr = 4096,
					     .max_qp_rd_atom = 8,
					     .max_qp_init_rd_atom = 4,
					     .phys_port_cnt = 2};
	for (int i = 0; i < 2; i++)
		fake.port[i] = (struct ibv_port_attr){
		    .state = i == 0 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		    .active_mtu = IBV_MTU_1024,
		    .lid = infiniband ? 7 : 0,
		    .link_layer = infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
		};
	fake.max_inline = 400;
	memset(&context, 0, sizeof(context));
	context.device = &device;
	context.async_fd = eventfd(0, EFD_CLOEXEC);
	context.ops.poll_cq = fake_poll_cq;
	context.ops.req_notify_cq = fake_notify;
	context.ops.post_send = fake_post_send;
	context.ops.post_srq_recv = fake_post_recv;
	cq_event = NULL;
	async_head = async_tail = 0;
}

void
fake_complete(struct ibv_qp *qp, bool send, const struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)(send ? qp->send_cq : qp->recv_cq);

	cq->wc[cq->head % CQ_MAX] = *wc;
	cq->wc[cq->head++ % CQ_MAX].qp_num = qp->qp_num;
}

void
fake_cq_event(struct ibv_qp *qp, bool send)
{
	cq_event = send ? qp->send_cq : qp->recv_cq;
}

void
fake_async_event(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct ibv_async_event *e = &async[async_head++ % 8];

	e->event_type = type;
	if (qp)
		e->element.qp = qp;
	else
		e->element.port_num = 1;
}

/* ---- devices ---- */

struct ibv_device **
ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	*count = !fake.no_device;
	list[0] = fake.no_device ? NULL : &device;
	return list;
}

void
ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *
ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

struct ibv_context *
ibv_open_device(struct ibv_device *d)
{
	fake.devices++;
	return &context;
}

int
ibv_close_device(struct ibv_context *c)
{
	close(c->async_fd);
	fake.devices--;
	return 0;
}

int
ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	*attr = fake.attr;
	return 0;
}

int
ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	memcpy(attr, &fake.port[port - 1], sizeof(fake.port[0]));
	return 0;
}

ssize_t
_ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *entries, size_t max,
		     uint32_t flags, size_t size)
{
	for (unsigned i = 0; i < fake.gids && i < max; i++)
		memcpy((char *)entries + i * size, &fake.gid[i], size);
	return fake.gids;
}

struct ibv_pd *
ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = c;
	fake.pds++;
	return pd;
}

int
ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	fake.pds--;
	return 0;
}

/* ---- memory ---- */

struct ibv_mr *
ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct ibv_mr *mr;

	if (fake.reg_mr_errno) {
		errno = fake.reg_mr_errno;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	*mr = (struct ibv_mr){.pd = pd, .addr = addr, .length = length, .lkey = 0x100 + fake.mrs};
	mr->rkey = mr->lkey | 0x8000;
	fake.mrs++;
	fake.mr_access = access;
	return mr;
}

struct ibv_mr *
ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

int
ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	fake.mrs--;
	return 0;
}

/* ---- queues ---- */

struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));

	channel->context = c;
	channel->fd = eventfd(0, EFD_CLOEXEC);
	fake.channels++;
	return channel;
}

int
ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	fake.channels--;
	return 0;
}

struct ibv_cq *
ibv_create_cq(struct ibv_context *c, int entries, void *user, struct ibv_comp_channel *channel,
	      int vector)
{
	struct fake_cq *cq;

	if (entries > fake.attr.max_cqe) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	cq->cq =
	    (struct ibv_cq){.context = c, .channel = channel, .cq_context = user, .cqe = entries};
	fake.cqs++;
	return &cq->cq;
}

int
ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	fake.cqs--;
	return 0;
}

static int
fake_poll_cq(struct ibv_cq *icq, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)icq;
	int count = 0;

	while (count < n && cq->tail != cq->head)
		wc[count++] = cq->wc[cq->tail++ % CQ_MAX];
	return count;
}

static int
fake_notify(struct ibv_cq *cq, int solicited)
{
	fake.notified++;
	return 0;
}

int
ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
	if (!cq_event)
		return -1;
	*cq = cq_event;
	*user = cq_event->cq_context;
	cq_event = NULL;
	fake.events_unacked++;
	return 0;
}

void
ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	fake.events_unacked -= n;
}

struct ibv_srq *
ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct ibv_srq *srq = calloc(1, sizeof(*srq));

	srq->context = pd->context;
	fake.srqs++;
	return srq;
}

int
ibv_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	fake.srqs--;
	return 0;
}

static int
fake_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		if (fake.recvs == FAKE_POSTS) {
			*bad = wr;
			return ENOMEM;
		}
		fake.recv[fake.recvs++] = *wr;
	}
	return 0;
}

/* ---- queue pairs ---- */

struct ibv_qp *
ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *qp;

	if (init->cap.max_inline_data > fake.max_inline) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	*qp = (struct ibv_qp){.context = pd->context,
			      .qp_context = init->qp_context,
			      .pd = pd,
			      .send_cq = init->send_cq,
			      .recv_cq = init->recv_cq,
			      .srq = init->srq,
			      .qp_num = next_qpn++,
			      .qp_type = init->qp_type};
	init->cap.max_inline_data = fake.max_inline;
	fake.qp_init = *init;
	fake.qps++;
	return qp;
}

int
ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	fake.qps--;
	return 0;
}

int
ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	qp->state = attr->qp_state;
	fake.modified = *attr;
	fake.modified_mask = mask;
	return 0;
}

static int
fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	unsigned taken = 0;

	fake.calls++;
	for (; wr; wr = wr->next) {
		struct fake_post *p = &fake.post[fake.posts % FAKE_POSTS];

		if (fake.post_errno && taken++ == fake.post_refused) {
			*bad = wr;
			return fake.post_errno;
		}
		*p = (struct fake_post){.qp = qp, .wr = *wr, .call = fake.calls};
		for (int i = 0; i < wr->num_sge; i++)
			p->sge[i] = wr->sg_list[i];
		if (wr->send_flags & IBV_SEND_INLINE && wr->num_sge)
			memcpy(p->data, (const void *)(uintptr_t)wr->sg_list[0].addr,
			       wr->sg_list[0].length);
		fake.posts++;
	}
	return 0;
}

struct ibv_ah *
ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = calloc(1, sizeof(*ah));

	ah->pd = pd;
	fake.ah = *attr;
	fake.ahs++;
	return ah;
}

int
ibv_destroy_ah(struct ibv_ah *ah)
{
	free(ah);
	fake.ahs--;
	return 0;
}

/* ---- events ---- */

int
ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	if (async_tail == async_head)
		return -1;
	*event = async[async_tail++ % 8];
	fake.async_unacked++;
	return 0;
}

void
ibv_ack_async_event(struct ibv_async_event *event)
{
	fake.async_unacked--;
}
