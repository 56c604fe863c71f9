/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

struct fault_qp {
	struct nic_qp *qp;
	void *user;
	bool sends; /* in RTS */
	TAILQ_ENTRY(fault_qp) entry;
};

struct fault_mr {
	struct nic_mr mr;
	bool revoked; /* its owner still deregisters it */
	LIST_ENTRY(fault_mr) entry;
};

/* The main thread's. The operations stand first: objects lead back here by them. */
struct nic_fault {
	struct nic_ops ops;
	const struct nic_ops *real;
	struct nic_fault_config config;
	struct nic_device *dev;
	TAILQ_HEAD(, fault_qp) qps; /* the one that failed longest ago first */
	LIST_HEAD(, fault_mr) mrs;
	void *event; /* nic_qp_init.user of a QP whose failure is to be reported */
	uint64_t next;
	unsigned kind;
};

static struct nic_fault *
of(const void *object)
{
	return (struct nic_fault *)(uintptr_t)NIC_OPS(object);
}

static int
qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp)
{
	struct nic_fault *f = of(ctx);
	struct fault_qp *q = calloc(1, sizeof(*q));
	int rc = q ? f->real->qp_create(ctx, init, qp) : -ENOMEM;

	if (rc) {
		free(q);
		return rc;
	}
	((struct nic_qp_head *)*qp)->ops = &f->ops;
	q->qp = *qp;
	q->user = init->user;
	TAILQ_INSERT_TAIL(&f->qps, q, entry);
	return 0;
}

static struct fault_qp *
find(const struct nic_fault *f, const struct nic_qp *qp)
{
	struct fault_qp *q = TAILQ_FIRST(&f->qps);

	while (q && q->qp != qp)
		q = TAILQ_NEXT(q, entry);
	return q;
}

static int
qp_modify(struct nic_qp *qp, const struct nic_qp_attr *attr)
{
	struct nic_fault *f = of(qp);
	struct fault_qp *q = find(f, qp);
	int rc = f->real->qp_modify(qp, attr);

	if (q && !rc)
		q->sends = attr->state == NIC_QP_RTS;
	return rc;
}

static void
qp_destroy(struct nic_qp *qp)
{
	struct nic_fault *f = of(qp);
	struct fault_qp *q = find(f, qp);

	if (q) {
		TAILQ_REMOVE(&f->qps, q, entry);
		if (f->event == q->user)
			f->event = NULL;
		free(q);
	}
	f->real->qp_destroy(qp);
}

static int
mr_reg(struct nic_device *dev, void *addr, size_t length, unsigned access, struct nic_mr *mr)
{
	struct nic_fault *f = of(dev);
	int rc = f->real->mr_reg(dev, addr, length, access, mr);
	struct fault_mr *m;

	if (rc || !(access & NIC_REMOTE_WRITE) || length != f->config.region)
		return rc;
	m = calloc(1, sizeof(*m));
	if (!m)
		return 0; /* this one is never revoked */
	m->mr = *mr;
	LIST_INSERT_HEAD(&f->mrs, m, entry);
	return 0;
}

static void
mr_dereg(struct nic_device *dev, struct nic_mr *mr)
{
	struct nic_fault *f = of(dev);
	struct fault_mr *m = LIST_FIRST(&f->mrs);
	bool revoked;

	while (m && (m->mr.lkey != mr->lkey || m->mr.address != mr->address))
		m = LIST_NEXT(m, entry);
	revoked = m && m->revoked;
	if (m)
		LIST_REMOVE(m, entry);
	free(m);
	if (revoked)
		mr->lkey = mr->rkey = 0;
	else
		f->real->mr_dereg(dev, mr);
}

/* The next fault: a QP fails without or with an event, or a region is revoked. */
static void
inject(struct nic_fault *f)
{
	struct nic_qp_attr error = {.state = NIC_QP_ERR};
	struct fault_qp *q = TAILQ_FIRST(&f->qps);
	struct fault_mr *m = LIST_FIRST(&f->mrs);
	struct nic_mr gone;
	unsigned kind;

	while (q && !q->sends)
		q = TAILQ_NEXT(q, entry);
	if (!q)
		return;
	kind = f->kind++ % 3;
	if (kind == 2 && m) {
		while (m && m->revoked)
			m = LIST_NEXT(m, entry);
		if (!m)
			return;
		gone = m->mr;
		m->revoked = true;
		f->real->mr_dereg(f->dev, &gone);
		return;
	}
	TAILQ_REMOVE(&f->qps, q, entry);
	TAILQ_INSERT_TAIL(&f->qps, q, entry);
	q->sends = false;
	f->real->qp_modify(q->qp, &error);
	if (kind == 1)
		f->event = q->user;
}

static int
async_event(struct nic_device *dev, struct nic_async_event *event)
{
	struct nic_fault *f = of(dev);
	uint64_t now = f->config.now();

	if (now >= f->next) {
		f->next = now + f->config.every_ns;
		inject(f);
	}
	if (!f->event)
		return f->real->async_event(dev, event);
	*event = (struct nic_async_event){.type = NIC_EVENT_QP_FATAL, .qp_user = f->event};
	f->event = NULL;
	return 0;
}

struct nic_fault *
nic_fault_attach(struct nic_device *dev, struct nic_context *const *contexts, unsigned count,
		 const struct nic_fault_config *config)
{
	struct nic_fault *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	TAILQ_INIT(&f->qps);
	f->config = *config;
	f->dev = dev;
	f->next = config->now() + config->every_ns;
	f->real = NIC_OPS(dev);
	f->ops = *f->real;
	f->ops.qp_create = qp_create;
	f->ops.qp_modify = qp_modify;
	f->ops.qp_destroy = qp_destroy;
	f->ops.mr_reg = mr_reg;
	f->ops.mr_dereg = mr_dereg;
	f->ops.async_event = async_event;
	((struct nic_device_head *)dev)->ops = &f->ops;
	for (unsigned i = 0; i < count; i++)
		((struct nic_context_head *)contexts[i])->ops = &f->ops;
	return f;
}

void
nic_fault_free(struct nic_fault *f)
{
	struct fault_qp *q;
	struct fault_mr *m;

	if (!f)
		return;
	while ((q = TAILQ_FIRST(&f->qps))) {
		TAILQ_REMOVE(&f->qps, q, entry);
		free(q);
	}
	while ((m = LIST_FIRST(&f->mrs))) {
		LIST_REMOVE(m, entry);
		free(m);
	}
	free(f);
}
