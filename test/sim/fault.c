/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults of QPs, round the NIC's operations: at moments that the seed chooses one fails in one of
 * the ways in which QPs fail. Programs must not notice.
 */
#include "fault.h"

#include "node.h"

#include "engine/flight.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QPS (2 * SIM_LINKS * SIM_ENGINES_MAX)
#define MRS 256u
#define EVENTS 16u

enum kind {
	FAULT_QUIET,  /* ERR; nobody says so */
	FAULT_EVENT,  /* ERR, and an asynchronous event */
	FAULT_POST,   /* the next post fails */
	FAULT_MUTE,   /* successes are no longer reported, then ERR: their outcome is unknown */
	FAULT_REVOKE, /* the key of a ring is no longer valid */
	FAULT_REFUSE, /* the next success is an "invalid request" of the peer, then ERR */
	FAULT_KINDS
};

struct qp {
	struct nic_qp *is; /* NULL: free */
	void *user;
	bool post_fails, mute, refused;
	bool datagrams; /* never mute: that all has completed is what its memory waits for */
};

/* Stands where nic.h expects the operations: found by them again. */
struct sim_fault {
	struct nic_ops ops;
	const struct nic_ops *real;
	struct sim_node *n;
	uint32_t struck;   /* faults so far */
	uint32_t refusals; /* at most FLIGHT_DOUBTS, which connections survive in a row */
	struct qp qp[QPS];
	const void *user[QPS]; /* that had a QP */
	uint32_t users;
	struct {
		struct nic_device *dev;
		struct nic_mr is;
		bool revoked;
	} mr[MRS]; /* of rings */
	uint32_t mrs;
	void *event[EVENTS];
	uint32_t event_first, event_end;
};

static struct sim_fault *
of(const void *object)
{
	return (struct sim_fault *)(uintptr_t)NIC_OPS(object);
}

static struct qp *
find(struct sim_fault *f, const struct nic_qp *qp)
{
	for (uint32_t i = 0; i < QPS; i++)
		if (f->qp[i].is == qp)
			return &f->qp[i];
	sim_fail(f->n->s, "node %u: an unknown QP is used", f->n->id);
}

static void
break_qp(struct sim_fault *f, struct qp *q)
{
	struct nic_qp_attr error = {.state = NIC_QP_ERR};

	f->real->qp_modify(q->is, &error);
	sim_engine_wake(f->n->s, f->n->id,
			nic_qpn(q->is) & (f->n->engines > 1 ? f->n->engines - 1 : 0));
}

/* A link that is being repaired: only those may wait until there is memory again. */
static bool
had_one(struct sim_fault *f, const void *user)
{
	for (uint32_t i = 0; i < f->users; i++)
		if (f->user[i] == user)
			return true;
	f->user[f->users++] = user;
	return false;
}

static int
qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp)
{
	struct sim_fault *f = of(ctx);
	struct nic_qp_head *head;
	struct qp *q;
	int rc;

	if (had_one(f, init->user) && f->struck && rng_chance(&f->n->s->rng, 50))
		return -ENOMEM;
	rc = f->real->qp_create(ctx, init, qp);
	if (rc)
		return rc;
	q = find(f, NULL);
	*q = (struct qp){.is = *qp, .user = init->user, .datagrams = init->type == NIC_UD};
	head = (struct nic_qp_head *)*qp;
	head->ops = &f->ops;
	return 0;
}

static void
qp_destroy(struct nic_qp *qp)
{
	struct sim_fault *f = of(qp);

	find(f, qp)->is = NULL;
	f->real->qp_destroy(qp);
}

static int
post_send(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n)
{
	struct sim_fault *f = of(qp);
	struct qp *q = find(f, qp);

	if (q->post_fails) {
		break_qp(f, q);
		return -ENOTCONN;
	}
	return f->real->post_send(qp, wr, n);
}

/* The rest of them has not been done, as far as its owner will ever know. */
static void
refuse(struct sim_fault *f, struct qp *q, struct nic_wc *wc)
{
	wc->status = NIC_WC_REM_INV_REQ_ERR;
	f->n->s->counts.refused++;
	q->refused = false;
	q->mute = true;
	break_qp(f, q);
}

/* Sends vanish. A receive must be given back all the same: it failed. */
static unsigned
poll(struct nic_context *ctx, struct nic_wc *wc, unsigned n, uint64_t now, bool *busy)
{
	struct sim_fault *f = of(ctx);
	unsigned count = f->real->poll(ctx, wc, n, now, busy), kept = 0;

	for (unsigned i = 0; i < count; i++) {
		bool received = wc[i].opcode == NIC_RECV || wc[i].opcode == NIC_RECV_IMM;
		struct qp *q = NULL;

		for (uint32_t k = 0; k < QPS && !q; k++)
			if (f->qp[k].is && nic_qpn(f->qp[k].is) == wc[i].qpn)
				q = &f->qp[k];
		if (q && q->refused && !received && wc[i].status == NIC_WC_SUCCESS) {
			refuse(f, q, &wc[i]);
		} else if (q && q->mute && wc[i].status == NIC_WC_SUCCESS) {
			f->n->s->counts.muted++;
			if (!received)
				continue;
			wc[i].status = NIC_WC_WR_FLUSH_ERR;
		}
		wc[kept++] = wc[i];
	}
	return kept;
}

static int
mr_reg(struct nic_device *dev, void *addr, size_t length, unsigned access, struct nic_mr *mr)
{
	struct sim_fault *f = of(dev);
	int rc = f->real->mr_reg(dev, addr, length, access, mr);

	if (!rc && access & NIC_REMOTE_WRITE && f->mrs < MRS &&
	    length == (size_t)f->n->s->sc.ring_lines[f->n->id] * 64) {
		f->mr[f->mrs].dev = dev;
		f->mr[f->mrs].revoked = false;
		f->mr[f->mrs++].is = *mr;
	}
	return rc;
}

static void
mr_dereg(struct nic_device *dev, struct nic_mr *mr)
{
	struct sim_fault *f = of(dev);
	bool revoked = false;

	/* the keys of one that was revoked may be those of another one by now */
	for (uint32_t i = 0; i < f->mrs; i++) {
		if (f->mr[i].is.lkey != mr->lkey || f->mr[i].is.address != mr->address)
			continue;
		revoked = f->mr[i].revoked;
		f->mr[i--] = f->mr[--f->mrs];
	}
	if (!revoked)
		f->real->mr_dereg(dev, mr);
}

static int
async_event(struct nic_device *dev, struct nic_async_event *event)
{
	struct sim_fault *f = of(dev);

	if (f->event_first == f->event_end)
		return f->real->async_event(dev, event);
	*event = (struct nic_async_event){.type = NIC_EVENT_QP_FATAL,
					  .qp_user = f->event[f->event_first++ % EVENTS]};
	return 0;
}

static void
revoke(struct sim_fault *f)
{
	uint32_t i = rng_below(&f->n->s->rng, f->mrs);
	struct nic_mr is = f->mr[i].is;

	if (f->mr[i].revoked)
		return;
	f->mr[i].revoked = true;
	f->real->mr_dereg(f->mr[i].dev, &is);
	f->n->s->counts.revoked++;
}

static void
strike(struct sim_fault *f, struct qp *q)
{
	struct sim *s = f->n->s;
	enum kind kind = (enum kind)rng_below(&s->rng, FAULT_KINDS);

	sim_trace(s, "node %u: fault %u of QP %06x", f->n->id, kind, nic_qpn(q->is));
	s->counts.faults++;
	switch (kind) {
	case FAULT_EVENT:
		if (f->event_end - f->event_first < EVENTS)
			f->event[f->event_end++ % EVENTS] = q->user;
		sim_node_kick(f->n);
		/* fall through */
	case FAULT_QUIET:
		break_qp(f, q);
		break;
	case FAULT_POST:
		q->post_fails = true;
		break;
	case FAULT_MUTE:
		if (q->datagrams)
			break_qp(f, q);
		q->mute = !q->datagrams;
		break;
	case FAULT_REFUSE:
		if (q->datagrams || f->refusals == FLIGHT_DOUBTS) {
			break_qp(f, q);
		} else {
			f->refusals++;
			q->refused = true;
		}
		break;
	default:
		if (f->mrs)
			revoke(f);
	}
}

/* The mute one's time is over. */
static void
end_mute(struct sim_fault *f)
{
	for (uint32_t i = 0; i < QPS; i++)
		if (f->qp[i].is && f->qp[i].mute)
			break_qp(f, &f->qp[i]);
}

static void
run(struct sim *s, void *arg)
{
	struct sim_fault *f = arg;
	uint32_t alive[QPS], count = 0;

	end_mute(f);
	for (uint32_t i = 0; i < QPS; i++)
		if (f->qp[i].is)
			alive[count++] = i;
	if (count && f->struck < s->sc.faults) {
		f->struck++;
		strike(f, &f->qp[alive[rng_below(&s->rng, count)]]);
	} else if (f->struck && f->struck++ > s->sc.faults) {
		return; /* what was mute has ended */
	}
	sim_call(s, s->now + rng_log(&s->rng, SIM_US, s->sc.fault_every), run, f);
}

struct sim_fault *
sim_fault_create(struct sim_node *n, struct nic_device *dev, struct nic_context *const *ctx)
{
	struct sim_fault *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->n = n;
	f->real = NIC_OPS(dev);
	f->ops = *f->real;
	f->ops.qp_create = qp_create;
	f->ops.qp_destroy = qp_destroy;
	f->ops.post_send = post_send;
	f->ops.poll = poll;
	f->ops.mr_reg = mr_reg;
	f->ops.mr_dereg = mr_dereg;
	f->ops.async_event = async_event;
	((struct nic_device_head *)dev)->ops = &f->ops;
	for (uint32_t i = 0; i < n->engines; i++)
		((struct nic_context_head *)ctx[i])->ops = &f->ops;
	sim_call(n->s, SIM_START + rng_log(&n->s->rng, 100 * SIM_US, 20 * SIM_MS), run, f);
	return f;
}
