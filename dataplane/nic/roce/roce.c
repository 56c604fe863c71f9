/* SPDX-License-Identifier: BSD-3-Clause */
/* The device: configuration, tables that all engines share, and the table of operations. */
#include "roce.h"
#include "address.h"
#include "context.h"
#include "read_requester.h"
#include "srq.h"
#include "ud.h"

#include <errno.h>
#include <stdlib.h>

void *
roce_memory_get(struct roce_device *dev, unsigned context, size_t bytes)
{
	void *memory;

	if (dev->config.memory_get)
		return dev->config.memory_get(dev->config.user, context, bytes);
	bytes = (bytes + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
	memory = aligned_alloc(CACHE_LINE, bytes);
	if (memory)
		memset(memory, 0, bytes);
	return memory;
}

void
roce_memory_put(struct roce_device *dev, void *memory, size_t bytes)
{
	if (memory == NULL)
		return;
	if (dev->config.memory_put)
		dev->config.memory_put(dev->config.user, memory, bytes);
	else
		free(memory);
}

static uint32_t
log2_up(uint32_t n)
{
	return n <= 1 ? 0 : 32 - (uint32_t)__builtin_clz(n - 1);
}

#define DEFAULT(field, value) (c.field = c.field ? c.field : (value))

static bool
config_ok(const struct roce_config *c)
{
	struct address ip;
	enum address_kind kind = roce_address(&c->gid, &ip);

	return kind != ADDRESS_NONE && c->prefix <= (kind == ADDRESS_IP4 ? 32 : 128) &&
	       c->vlan < VLAN_ID_MASK && c->pcp <= 7 && (c->mac[0] & 1) == 0 && c->mtu >= 256 &&
	       c->mtu <= 4096 && (c->mtu & (c->mtu - 1)) == 0 && c->contexts <= ROCE_CONTEXTS_MAX &&
	       c->max_qp <= 65536 && c->max_mr <= 1u << 24 && c->cq_depth <= 1u << 24 &&
	       c->max_wr <= c->cq_depth && c->window_frames >= 2 * ROCE_MIN_FRAMES &&
	       c->window_frames <= 1u << 20 && (c->window_frames & (c->window_frames - 1)) == 0 &&
	       c->window_bytes <= 1u << 30 && c->neighbours <= 1u << 20 && c->retry <= 7 &&
	       c->rd_atomic <= ROCE_RD_MAX && c->rnr_retry <= 7 && c->rnr_timer <= 31 &&
	       c->timeout_ns <= UINT64_C(1000000000000) && c->route_count <= NIC_ROUTES;
}

/* Gateways are of the port's own kind and network. */
static bool
routes_ok(const struct roce_device *dev)
{
	for (unsigned i = 0; i < dev->config.route_count; i++) {
		const struct nic_route *r = &dev->config.routes[i];
		struct address ip;

		if (roce_address(&r->gateway, &ip) !=
			(dev->headers.six ? ADDRESS_IP6 : ADDRESS_IP4) ||
		    !roce_on_link(dev, ip) || r->bits > 128)
			return false;
	}
	return true;
}

struct roce_device *
roce_device_create(const struct roce_config *config)
{
	struct roce_config c = *config;
	struct roce_device *dev;

	DEFAULT(mtu, 1024);
	DEFAULT(contexts, 1);
	DEFAULT(max_qp, 256);
	DEFAULT(max_mr, 4096);
	DEFAULT(cq_depth, 65536);
	DEFAULT(max_wr, c.cq_depth < 8192 ? c.cq_depth : 8192);
	DEFAULT(tx_frames, 4096);
	DEFAULT(window_bytes, 1u << 20);
	DEFAULT(window_frames, 512);
	DEFAULT(neighbours, 1024);
	DEFAULT(timeout_ns, 250000000u);
	DEFAULT(rd_atomic, 16);
	DEFAULT(retry, 7);
	DEFAULT(rnr_retry, 7);
	DEFAULT(rnr_timer, 6);
	if (!config_ok(&c)) {
		errno = EINVAL;
		return NULL;
	}
	dev = calloc(1, sizeof(*dev));
	if (dev == NULL)
		return NULL;
	dev->head.ops = &roce_ops;
	list_init(&dev->all_ahs);
	dev->config = c;
	dev->headers = (struct headers){
	    .front = (uint8_t)roce_front(&c),
	    .six = roce_address(&c.gid, &dev->address) == ADDRESS_IP6,
	    .vlan = c.vlan,
	    .tag = (uint16_t)(c.pcp << 13 | c.vlan),
	};
	if (!routes_ok(dev)) {
		free(dev);
		errno = EINVAL;
		return NULL;
	}
	dev->engine_bits = log2_up(c.contexts);
	dev->index_bits = log2_up(c.max_qp);
	dev->mrs.limit = c.max_mr;
	dev->mrs.mask = (2u << log2_up(c.max_mr)) - 1;
	dev->mrs.mrs = roce_memory_get(dev, ROCE_ALL, (dev->mrs.mask + 1) * sizeof(struct mr));
	dev->neighbours.count = c.neighbours;
	dev->neighbours.entries =
	    roce_memory_get(dev, ROCE_ALL, c.neighbours * sizeof(struct neighbour));
	if (dev->mrs.mrs == NULL || dev->neighbours.entries == NULL) {
		roce_device_destroy(dev);
		errno = ENOMEM;
		return NULL;
	}
	return dev;
}

void
roce_device_destroy(struct roce_device *dev)
{
	if (dev == NULL)
		return;
	for (unsigned i = 0; i < dev->config.contexts; i++) {
		if (dev->contexts[i])
			roce_context_destroy(dev->contexts[i]);
	}
	while (!list_empty(&dev->all_ahs))
		roce_ah_destroy(
		    (struct nic_ah *)LIST_OWNER(dev->all_ahs.next, struct roce_ah, all));
	roce_memory_put(dev, dev->neighbours.entries,
			dev->config.neighbours * sizeof(struct neighbour));
	roce_memory_put(dev, dev->mrs.mrs, (dev->mrs.mask + 1) * sizeof(struct mr));
	free(dev);
}

static int
query(struct nic_device *ndev, struct nic_attr *attr)
{
	struct roce_device *dev = (struct roce_device *)ndev;
	const struct roce_config *c = &dev->config;

	memset(attr, 0, sizeof(*attr));
	memcpy(attr->name, c->name, sizeof(attr->name));
	attr->name[sizeof(attr->name) - 1] = '\0';
	attr->gid = c->gid;
	if (c->prefix)
		attr->prefix = (uint8_t)(c->prefix + (dev->headers.six ? 0 : 96));
	attr->routes = c->routes;
	attr->route_count = c->route_count;
	attr->mtu = c->mtu;
	attr->max_qp = c->max_qp;
	attr->max_sge = NIC_SGE_MAX;
	attr->max_inline = QP_INLINE_MAX;
	attr->max_wr = c->max_wr;
	attr->max_rd_atomic = c->rd_atomic;
	attr->ack_visible = true; /* the responder copies, then it answers */
	attr->max_srq_wr = c->cq_depth;
	attr->numa_socket = c->numa_socket;
	attr->link_up = c->link_up ? c->link_up(c->user) : true;
	return 0;
}

static int
mr_reg(struct nic_device *dev, void *addr, size_t length, unsigned access, struct nic_mr *mr)
{
	return roce_mr_register(&((struct roce_device *)dev)->mrs, addr, length, access, mr);
}

static void
mr_dereg(struct nic_device *dev, struct nic_mr *mr)
{
	roce_mr_remove(&((struct roce_device *)dev)->mrs, mr->lkey);
	mr->lkey = mr->rkey = 0;
}

static int
async_event(struct nic_device *ndev, struct nic_async_event *event)
{
	struct roce_device *dev = (struct roce_device *)ndev;

	for (unsigned i = 0; i < dev->config.contexts; i++) {
		struct roce_context *ctx = dev->contexts[i];
		struct roce_qp *qp = NULL;
		uint32_t tail, word = 0;

		if (ctx == NULL)
			continue;
		tail = atomic_load_explicit(&ctx->events_tail, memory_order_relaxed);
		/* partner: the release store in report() of qp_poll.c. Events of QPs that are gone
		 * are skipped */
		while (qp == NULL &&
		       tail != atomic_load_explicit(&ctx->events_head, memory_order_acquire)) {
			word = ctx->events[tail++ % ROCE_EVENTS];
			qp = find_qp(ctx, word & QPN_MASK);
		}
		/* partner: the acquire load in report() */
		atomic_store_explicit(&ctx->events_tail, tail, memory_order_release);
		if (qp) {
			*event = (struct nic_async_event){.type = word >> 24, .qp_user = qp->user};
			return 0;
		}
	}
	return dev->config.async_event ? dev->config.async_event(dev->config.user, event) : -EAGAIN;
}

static void
close_device(struct nic_device *ndev)
{
	struct roce_device *dev = (struct roce_device *)ndev;

	if (dev->config.close)
		dev->config.close(dev->config.user);
	else
		roce_device_destroy(dev);
}

const struct nic_ops roce_ops = {
    .driver = "roce",
    .query = query,
    .mr_reg = mr_reg,
    .mr_dereg = mr_dereg,
    .qp_create = roce_qp_create,
    .qp_modify = roce_qp_modify,
    .qp_destroy = roce_qp_destroy,
    .srq_create = roce_srq_create,
    .srq_destroy = roce_srq_destroy,
    .ah_create = roce_ah_create,
    .ah_destroy = roce_ah_destroy,
    .async_event = async_event,
    .post_send = roce_post_send,
    .post_srq_recv = roce_post_srq_recv,
    .poll = roce_context_poll,
    .flush = roce_context_flush,
    .arm = roce_context_arm,
    .counters = roce_context_counters,
    .close = close_device,
};
