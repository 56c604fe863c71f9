/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects of datagram connections besides a link: a UD queue pair with buffers of its own per
 * engine, made with the first such connection, and an address handle per link.
 */
#include "datagram.h"
#include "link.h"
#include "state.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <sys/random.h>

#define BYTES (2 * (size_t)ENGINE_DATAGRAMS * ENGINE_DATAGRAM_BYTES)
#define QKEY_MASK 0x7fffffffu /* with the highest bit a sender would use its own QKEY */

static int
make_qp(struct broker *b, uint32_t engine)
{
	const struct broker_engine *e = broker_engine(b, engine);
	const struct nic_ops *ops = broker_ops(b, engine);
	struct engine_datagram_command *d = &b->datagrams[engine];
	struct nic_qp_init init = {.type = NIC_UD,
				   .send_wrs = ENGINE_DATAGRAMS,
				   .srq = d->srq,
				   .user = engine_datagram_user(e->engine)};
	struct nic_qp_attr attr = {.state = NIC_QP_INIT, .mtu = b->attr[engine].mtu};
	struct broker_command *k;
	int rc;

	weir_assert(d->memory && d->srq && !d->qp);
	if (getrandom(&d->qkey, sizeof(d->qkey), 0) != (ssize_t)sizeof(d->qkey))
		return -EIO;
	d->qkey = attr.qkey = d->qkey & QKEY_MASK;
	k = command_new(b, engine, ENGINE_DATAGRAM_ADD, NULL, NULL);
	if (!k)
		return -ENOMEM;
	rc = ops->qp_create(e->nic, &init, &d->qp);
	for (; !rc && attr.state <= NIC_QP_RTS; attr.state++)
		rc = ops->qp_modify(d->qp, &attr);
	if (rc) {
		if (d->qp)
			ops->qp_destroy(d->qp);
		d->qp = NULL;
		command_drop(b, k);
		return rc;
	}
	k->cmd.datagram = *d;
	command_submit(b, k);
	return 0;
}

static void
take_apart(struct broker *b, uint32_t engine)
{
	struct engine_datagram_command *d = &b->datagrams[engine];
	const struct nic_ops *ops = d->memory ? broker_ops(b, engine) : NULL;

	if (d->qp)
		ops->qp_destroy(d->qp);
	if (d->srq)
		ops->srq_destroy(d->srq);
	if (d->mr.length)
		ops->mr_dereg(broker_engine(b, engine)->dev, &d->mr);
	if (d->memory)
		b->config.memory_put(b->config.user, d->memory, BYTES);
	*d = (struct engine_datagram_command){0};
}

int
datagrams_fill(struct broker *b, struct broker_link *l, struct engine_conn_command *k)
{
	const struct broker_engine *e = broker_engine(b, l->engine);
	const struct nic_ops *ops = broker_ops(b, l->engine);
	struct engine_datagram_command *d = &b->datagrams[l->engine];
	uint16_t mtu = b->attr[l->engine].mtu;
	struct nic_ah_attr attr = {
	    .lid = l->peer.lid,
	    .traffic_class = e->mark[link_class(l)].traffic_class,
	    .priority = e->mark[link_class(l)].priority,
	};
	int rc = 0;

	if (!d->memory) {
		/* the engine is told of it when it is complete */
		d->memory = b->config.memory_get(b->config.user, BYTES, e->numa_socket);
		if (!d->memory)
			return -ENOMEM;
		rc = ops->mr_reg(e->dev, d->memory, BYTES, NIC_LOCAL_WRITE, &d->mr);
		if (!rc)
			rc = ops->srq_create(e->nic, ENGINE_DATAGRAMS, &d->srq);
		if (!rc)
			rc = make_qp(b, l->engine);
		if (rc == -EPROTONOSUPPORT)
			rc = -EOPNOTSUPP;
		if (rc) {
			log_info("engine %u gets no queue pair for datagrams: %s; see what its "
				 "port offers",
				 l->engine, strerror(-rc));
			take_apart(b, l->engine);
		}
	} else if (!d->qp) {
		rc = make_qp(b, l->engine); /* it failed, and no new one could be made then */
	}
	memcpy(attr.gid.raw, l->peer.gid, sizeof(attr.gid.raw));
	if (!rc && !l->ah)
		rc = ops->ah_create(e->dev, &attr, &l->ah);
	if (rc)
		return rc;
	k->ah = l->ah;
	k->mtu =
	    (uint16_t)((l->peer.mtu < mtu ? l->peer.mtu : mtu) - sizeof(struct weir_datagram_head));
	return 0;
}

uint16_t
datagrams_local_mtu(const struct broker *b, uint32_t engine)
{
	uint16_t mtu = broker_engine(b, engine)->dev ? b->attr[engine].mtu : 4096;

	return (uint16_t)(mtu - sizeof(struct weir_datagram_head));
}

bool
datagrams_qp_fatal(struct broker *b, const void *qp_user)
{
	struct broker_command *k;

	for (uint32_t i = 0; i < b->config.engines; i++) {
		if (!b->datagrams[i].qp ||
		    engine_datagram_user(broker_engine(b, i)->engine) != qp_user)
			continue;
		k = command_urgent(b, i, ENGINE_DATAGRAM_FAIL, NULL, NULL);
		if (k)
			command_submit(b, k);
		return true;
	}
	return false;
}

/* The engine no longer uses its queue pair: makes a new one with the same buffers. */
void
datagrams_error(struct broker *b, uint32_t engine, uint32_t qpn)
{
	struct engine_datagram_command *d = &b->datagrams[engine];
	int rc;

	if (!d->qp || nic_qpn(d->qp) != qpn)
		return;
	log_info("queue pair of engine %u for datagrams failed; its connections have ended",
		 engine);
	broker_ops(b, engine)->qp_destroy(d->qp);
	d->qp = NULL;
	rc = b->stopping ? 0 : make_qp(b, engine);
	if (rc)
		log_info("engine %u gets no new queue pair for datagrams: %s; the next connection "
			 "tries again",
			 engine, strerror(-rc));
}

void
datagrams_free_all(struct broker *b)
{
	for (uint32_t i = 0; i < b->config.engines; i++)
		take_apart(b, i);
}
