/* SPDX-License-Identifier: BSD-3-Clause */
/* A verbs device: found, opened, checked; memory regions; its asynchronous events. */
#include "internal.h"

#include "base/log.h"
#include "base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NODES "/dev/infiniband"
#define PROBE_BYTES (1u << 20)

void *
vnic_get(struct vnic_device *dev, size_t bytes, int numa_socket)
{
	void *memory = dev->config.memory_get(dev->config.user, bytes, numa_socket);

	if (memory)
		dev->table_bytes += bytes;
	return memory;
}

void
vnic_put(struct vnic_device *dev, void *memory, size_t bytes)
{
	if (!memory)
		return;
	dev->table_bytes -= bytes;
	dev->config.memory_put(dev->config.user, memory, bytes);
}

unsigned
vnic_mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 256u;
}

struct nic_device *
vnic_nic_device(struct vnic_device *dev)
{
	return (struct nic_device *)dev;
}

struct nic_context *
vnic_nic_context(struct vnic_device *dev, unsigned context)
{
	return (struct nic_context *)dev->context[context];
}

/* ---- finding ---- */

static int
open_device(struct vnic_device *dev, char *error, size_t size)
{
	struct ibv_device **list, *device = NULL;
	char names[256] = "none";
	int count = 0, rc;
	size_t at = 0;

	errno = 0;
	list = ibv_get_device_list(&count);
	for (int i = 0; list && i < count; i++) {
		const char *name = ibv_get_device_name(list[i]);

		if (!strcmp(name, dev->name))
			device = list[i];
		if (at < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
					       i ? ", " : "", name);
	}
	errno = 0;
	dev->ctx = device ? ibv_open_device(device) : NULL;
	if (dev->ctx)
		rc = 0;
	else if (device && access(NODES, F_OK))
		rc = fail(error, size, -ENODEV,
			  "verbs:%s: there is no %s; load ib_uverbs, or give the container "
			  "--device=%s",
			  dev->name, NODES, NODES);
	else if (device && (errno == EACCES || errno == EPERM))
		rc = fail(error, size, -EACCES,
			  "verbs:%s: %s/%s can't be opened: %s; let this user read and write it",
			  dev->name, NODES, device->dev_name, strerror(errno));
	else if (device)
		rc = fail(error, size, -ENODEV,
			  "verbs:%s can't be opened: %s; install its provider (rdma-core, "
			  "ibverbs-providers) and see ibv_devinfo",
			  dev->name, strerror(errno ? errno : ENODEV));
	else if (count == 0)
		rc = fail(error, size, -ENODEV,
			  "verbs:%s: there is no %s; load the NIC's driver and ib_uverbs, "
			  "for Soft-RoCE: rdma link add rxe0 type rxe netdev INTERFACE",
			  dev->name, access(NODES, F_OK) ? NODES : "RDMA device");
	else
		rc = fail(error, size, -ENODEV, "there is no RDMA device %s; name one of: %s",
			  dev->name, names);
	if (list)
		ibv_free_device_list(list);
	return rc;
}

/* The requested port, or the first that is up. */
static int
find_port(struct vnic_device *dev, struct ibv_port_attr *attr, char *error, size_t size)
{
	static const char *const states[] = {
	    [IBV_PORT_DOWN] = "down",
	    [IBV_PORT_INIT] = "waiting for a subnet manager",
	    [IBV_PORT_ARMED] = "armed, not active",
	};
	const char *state = NULL;
	uint8_t first = dev->config.port ? dev->config.port : 1;
	uint8_t last = dev->config.port ? first : dev->attr.phys_port_cnt;

	if (first > dev->attr.phys_port_cnt)
		return fail(error, size, -ENODEV, "verbs:%s has no port %u; give port=1 to port=%u",
			    dev->name, first, dev->attr.phys_port_cnt);
	for (uint8_t port = first; port <= last; port++) {
		int rc = ibv_query_port(dev->ctx, port, attr);

		if (rc)
			return fail(error, size, -rc,
				    "verbs:%s port %u can't be queried: %s; is it gone", dev->name,
				    port, strerror(rc));
		if (attr->state == IBV_PORT_ACTIVE) {
			dev->port = port;
			dev->ethernet = attr->link_layer == IBV_LINK_LAYER_ETHERNET;
			return 0;
		}
	}
	if (attr->state < sizeof(states) / sizeof(states[0]))
		state = states[attr->state];
	return fail(error, size, -ENODEV, "verbs:%s port %u is %s; %s", dev->name, last,
		    state ? state : "not active",
		    attr->link_layer == IBV_LINK_LAYER_ETHERNET
			? "bring its interface up (ip link set INTERFACE up), see rdma link"
			: "connect it, or start opensm");
}

static void
explain_memlock(char *text, size_t size)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		snprintf(text, size, "memory can't be pinned; free some");
	else
		snprintf(
		    text, size,
		    "no more than %llu KiB may be locked; raise it with ulimit -l unlimited or "
		    "LimitMEMLOCK=infinity, or grant CAP_IPC_LOCK",
		    (unsigned long long)limit.rlim_cur >> 10);
}

/* Whether memory can be registered at all: an error now, not at the first link. */
static int
probe_memory(struct vnic_device *dev, char *error, size_t size)
{
	char why[192];
	struct ibv_mr *mr;
	void *memory;
	int rc = 0;

	memory = aligned_alloc(4096, PROBE_BYTES);
	if (!memory)
		return fail(error, size, -ENOMEM, "no memory for verbs:%s; free some", dev->name);
	memset(memory, 0, PROBE_BYTES);
	errno = 0;
	mr = ibv_reg_mr(dev->pd, memory, PROBE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (mr) {
		ibv_dereg_mr(mr);
	} else if (errno == ENOMEM || errno == EPERM || errno == EAGAIN) {
		explain_memlock(why, sizeof(why));
		rc = fail(error, size, -ENOMEM, "verbs:%s: %s", dev->name, why);
	} else {
		rc = fail(error, size, -errno,
			  "verbs:%s registers no memory: %s; see the kernel's log", dev->name,
			  strerror(errno));
	}
	free(memory);
	return rc;
}

int
vnic_open(const struct vnic_config *config, struct vnic_device **out, char *error, size_t size)
{
	struct vnic_device *dev = calloc(1, sizeof(*dev));
	struct ibv_port_attr attr = {0};
	unsigned active;
	char path[512];
	int flags, rc;
	FILE *f;

	if (!dev)
		return fail(error, size, -ENOMEM, "no memory for verbs:%s; free some",
			    config->device);
	dev->head.ops = &vnic_ops;
	dev->config = *config;
	snprintf(dev->name, sizeof(dev->name), "%s", config->device);
	rc = open_device(dev, error, size);
	if (rc)
		goto err_close;
	rc = -ibv_query_device(dev->ctx, &dev->attr);
	if (rc) {
		fail(error, size, rc, "verbs:%s can't be queried: %s; is it gone", dev->name,
		     strerror(-rc));
		goto err_close;
	}
	dev->pd = ibv_alloc_pd(dev->ctx);
	flags = fcntl(dev->ctx->async_fd, F_GETFL);
	if (!dev->pd || flags < 0 || fcntl(dev->ctx->async_fd, F_SETFL, flags | O_NONBLOCK)) {
		rc = fail(error, size, -ENOMEM,
			  "verbs:%s gives no protection domain: %s; end other users of it",
			  dev->name, strerror(errno));
		goto err_close;
	}
	if (dev->attr.max_srq <= 0 || dev->attr.max_srq_wr <= 0)
		rc = fail(error, size, -ENODEV,
			  "verbs:%s has no shared receive queues, which links need; use its "
			  "Ethernet port with --nic roce:PORT",
			  dev->name);
	else if (config->recv_depth > (uint32_t)dev->attr.max_srq_wr ||
		 config->recv_depth > (uint32_t)dev->attr.max_cqe)
		rc = fail(error, size, -ENOSPC,
			  "verbs:%s queues %d receives and %d completions, not %u; lower "
			  "--links or --recv-wrs",
			  dev->name, dev->attr.max_srq_wr, dev->attr.max_cqe, config->recv_depth);
	else
		rc = find_port(dev, &attr, error, size);
	if (rc)
		goto err_close;
	active = vnic_mtu_bytes(attr.active_mtu);
	dev->mtu = dev->config.mtu ? dev->config.mtu : (uint16_t)active;
	if (dev->mtu > active) {
		rc =
		    fail(error, size, -EMSGSIZE,
			 "mtu=%u is more than the %u that verbs:%s port %u carries; give mtu=%u or "
			 "raise the MTU of its interface",
			 dev->mtu, active, dev->name, dev->port, active);
		goto err_close;
	}
	rc = vnic_choose_gid(dev, &attr, error, size);
	if (!rc)
		rc = probe_memory(dev, error, size);
	for (unsigned i = 0; i < dev->config.contexts && !rc; i++) {
		rc = vnic_context_create(dev, i);
		if (rc)
			fail(error, size, rc,
			     "verbs:%s: no completion queue of %u entries: %s; lower --links or "
			     "--recv-wrs, or give more memory",
			     dev->name, dev->config.recv_depth, strerror(-rc));
	}
	if (rc)
		goto err_close;
	dev->numa_socket = -1;
	snprintf(path, sizeof(path), "%s/device/numa_node", dev->ctx->device->ibdev_path);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%d", &dev->numa_socket) != 1)
			dev->numa_socket = -1;
		fclose(f);
	}
	vnic_counters_open(dev);
	log_info("verbs:%s: %s, path MTU %u", dev->name, dev->chosen, dev->mtu);
	*out = dev;
	return 0;

err_close:
	vnic_close(dev);
	return rc;
}

void
vnic_close(struct vnic_device *dev)
{
	if (!dev)
		return;
	vnic_counters_close(dev);
	for (unsigned i = 0; i < dev->config.contexts; i++)
		vnic_context_destroy(dev->context[i]);
	if (dev->pd)
		ibv_dealloc_pd(dev->pd);
	if (dev->ctx)
		ibv_close_device(dev->ctx);
	free(dev);
}

void
vnic_describe(const struct vnic_device *dev, struct vnic_info *info)
{
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", dev->name);
	snprintf(info->text, sizeof(info->text), "%s, path MTU %u, NUMA socket %d", dev->chosen,
		 dev->mtu, dev->numa_socket);
	info->numa_socket = dev->numa_socket;
	info->table_bytes = dev->table_bytes;
}

/* ---- control verbs ---- */

static int
query(struct nic_device *ndev, struct nic_attr *attr)
{
	struct vnic_device *dev = (struct vnic_device *)ndev;
	const struct ibv_device_attr *a = &dev->attr;
	struct ibv_port_attr port;
	int rc = ibv_query_port(dev->ctx, dev->port, &port);

	if (rc)
		return -rc;
	memset(attr, 0, sizeof(*attr));
	snprintf(attr->name, sizeof(attr->name), "%s", dev->name);
	attr->gid = dev->gid;
	attr->lid = port.lid;
	attr->mtu = dev->mtu;
	attr->max_qp = (uint32_t)a->max_qp;
	attr->max_sge = a->max_sge < (int)NIC_SGE_MAX ? (uint32_t)a->max_sge : NIC_SGE_MAX;
	attr->max_inline = QP_INLINE_MAX;
	attr->max_wr = (uint32_t)a->max_qp_wr;
	attr->max_srq_wr = (uint32_t)a->max_srq_wr;
	attr->max_rd_atomic = (uint32_t)a->max_qp_rd_atom;
	attr->ack_visible = false; /* the bytes may still be on their way to memory */
	attr->numa_socket = dev->numa_socket;
	attr->link_up = port.state == IBV_PORT_ACTIVE;
	return 0;
}

static int
mr_reg(struct nic_device *ndev, void *addr, size_t length, unsigned access, struct nic_mr *mr)
{
	struct vnic_device *dev = (struct vnic_device *)ndev;
	unsigned flags = (access & NIC_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0u) |
			 (access & NIC_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
			 (access & NIC_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
			 (access & NIC_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
	struct ibv_mr *is;
	char why[192];
	int rc;

	if (access & NIC_REMOTE_INVALIDATE) /* only for memory windows, in verbs */
		return -ENOTSUP;
	if (!length ||
	    ((access & (NIC_REMOTE_WRITE | NIC_REMOTE_ATOMIC)) && !(access & NIC_LOCAL_WRITE)))
		return -EINVAL;
	errno = 0;
	is = ibv_reg_mr(dev->pd, addr, length, flags);
	if (!is) {
		rc = errno ? -errno : -ENOMEM;
		explain_memlock(why, sizeof(why));
		if (rc == -ENOMEM && !dev->memlock_logged)
			log_error("verbs:%s: %zu bytes not registered: %s", dev->name, length, why);
		dev->memlock_logged = rc == -ENOMEM;
		return rc;
	}
	*mr = (struct nic_mr){.address = (uintptr_t)addr,
			      .length = length,
			      .lkey = is->lkey,
			      .rkey = is->rkey,
			      .driver = is};
	return 0;
}

static void
mr_dereg(struct nic_device *dev, struct nic_mr *mr)
{
	if (mr->driver)
		ibv_dereg_mr(mr->driver);
	mr->driver = NULL;
	mr->lkey = mr->rkey = 0;
}

/* ---- asynchronous events ---- */

/* Whether the event is one that users of nic.h get. */
static bool
translate(struct vnic_device *dev, const struct ibv_async_event *from, struct nic_async_event *to)
{
	struct vnic_qp *qp;

	switch (from->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp = from->element.qp->qp_context;
		*to = (struct nic_async_event){NIC_EVENT_QP_FATAL, qp->user};
		return !qp->destroy_called;
	case IBV_EVENT_SQ_DRAINED:
		qp = from->element.qp->qp_context;
		*to = (struct nic_async_event){NIC_EVENT_SQ_DRAINED, qp->user};
		return !qp->destroy_called;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		qp = from->element.qp->qp_context;
		/* partner: the acquire load in vnic_poll() */
		atomic_store_explicit(&qp->flushed, true, memory_order_release);
		return false;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		*to = (struct nic_async_event){from->event_type == IBV_EVENT_PORT_ERR
						   ? NIC_EVENT_LINK_DOWN
						   : NIC_EVENT_LINK_UP,
					       NULL};
		return from->element.port_num == dev->port;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		*to = (struct nic_async_event){NIC_EVENT_DEVICE_FATAL, NULL};
		return true;
	default:
		return false;
	}
}

static int
async_event(struct nic_device *ndev, struct nic_async_event *event)
{
	struct vnic_device *dev = (struct vnic_device *)ndev;
	struct ibv_async_event from;
	bool found = false;

	while (!found && !ibv_get_async_event(dev->ctx, &from)) {
		found = translate(dev, &from, event);
		ibv_ack_async_event(&from);
	}
	for (unsigned i = 0; i < dev->config.contexts; i++)
		if (dev->context[i])
			vnic_qp_reap(dev->context[i]);
	return found ? 0 : -EAGAIN;
}

static void
close_device(struct nic_device *dev)
{
	vnic_close((struct vnic_device *)dev);
}

const struct nic_ops vnic_ops = {
    .driver = "verbs",
    .query = query,
    .mr_reg = mr_reg,
    .mr_dereg = mr_dereg,
    .qp_create = vnic_qp_create,
    .qp_modify = vnic_qp_modify,
    .qp_destroy = vnic_qp_destroy,
    .srq_create = vnic_srq_create,
    .srq_destroy = vnic_srq_destroy,
    .ah_create = vnic_ah_create,
    .ah_destroy = vnic_ah_destroy,
    .async_event = async_event,
    .post_send = vnic_post_send,
    .post_srq_recv = vnic_post_srq_recv,
    .poll = vnic_poll,
    .flush = vnic_flush,
    .arm = vnic_arm,
    .counters = vnic_counters,
    .close = close_device,
};
