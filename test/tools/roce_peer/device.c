/* SPDX-License-Identifier: BSD-3-Clause */
/* The device with its memory, and the queue pairs of a run. */
#include "roce_peer.h"

#include "daemon/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MAX 512u
#define SLOTS_MIN 16u
#define SLOTS_MIN_UD 64u /* datagrams wait for no room: more than come at a time */
#define SLOTS_BYTES (32u << 20)
#define PSN 0xfffff8u /* a few packets on, numbers begin anew */

int
peer_fail(struct peer *p, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(p->error, sizeof(p->error), format, args);
	va_end(args);
	return rc;
}

static uint64_t
memory_bytes(const struct peer *p)
{
	return p->slots * (uint64_t)p->slot_bytes + 2 * (p->out_bytes + PEER_MARGIN);
}

static int
get_memory(struct peer *p)
{
	const struct peer_options *o = p->options;
	uint32_t qps = 1, least = SLOTS_MIN;

	for (uint32_t i = 0; i < o->runs; i++) {
		const struct peer_run *run = &o->run[i];
		uint32_t bytes = (NIC_GRH_BYTES + run->size + 63) / 64 * 64;
		/* the ping-pongs have one message for all */
		uint64_t out = run->test->srq ? 1 : run->qps;

		if (bytes > p->slot_bytes)
			p->slot_bytes = bytes;
		if (run->qps > qps)
			qps = run->qps;
		if (run->test->ud)
			least = SLOTS_MIN_UD;
		out *= bytes + PEER_CYCLE_MAX;
		if (out > p->out_bytes)
			p->out_bytes = out;
	}
	p->slots = SLOTS_BYTES / p->slot_bytes;
	if (p->slots > SLOTS_MAX)
		p->slots = SLOTS_MAX;
	if (p->slots < least)
		p->slots = least;
	if (p->slots < qps) /* each READ has one */
		p->slots = qps;
	p->slot = memory_get(NULL, memory_bytes(p), p->attr.numa_socket);
	if (!p->slot)
		return peer_fail(p, -ENOMEM,
				 "no memory for %llu bytes; give smaller sizes to -t, or more with "
				 "-m MB before the --",
				 (unsigned long long)memory_bytes(p));
	p->out = p->slot + (uint64_t)p->slots * p->slot_bytes;
	p->region = p->out + p->out_bytes + PEER_MARGIN;
	return 0;
}

static int
register_memory(struct peer *p, void *memory, uint64_t bytes, unsigned access, struct nic_mr *mr)
{
	int rc = NIC_OPS(p->nic.dev)->mr_reg(p->nic.dev, memory, bytes, access, mr);

	if (!rc)
		return 0;
	mr->length = 0;
	return peer_fail(p, rc, "%llu bytes can't be registered: %s; give smaller sizes to -t",
			 (unsigned long long)bytes, strerror(-rc));
}

static int
post_receives(struct peer *p)
{
	int rc = NIC_OPS(p->nic.context)->srq_create(p->nic.context, p->slots, &p->srq);

	if (rc)
		return peer_fail(p, rc,
				 "no shared receive queue of %u: %s; give smaller sizes to -t",
				 p->slots, strerror(-rc));
	for (uint32_t i = 0; i < p->slots && !rc; i++)
		rc = peer_reuse(p, &(struct nic_wc){.wr_id = i});
	return rc;
}

int
peer_open(struct peer *p)
{
	const struct peer_options *o = p->options;
	const struct open_nic_need need = {PEER_QPS_MAX + 1, PEER_DEPTH, SLOTS_MAX};
	int rc;

	peer_start_clock();
	p->patience_ns = o->patience * 1000000000ull;
	rc = open_nic(&o->nic, &need, &p->nic, p->error, sizeof(p->error));
	if (!rc)
		rc = open_nic_await_link(&p->nic, &p->attr, p->error, sizeof(p->error));
	if (!rc)
		rc = get_memory(p);
	if (!rc)
		rc = register_memory(p, p->slot, (uint64_t)p->slots * p->slot_bytes + p->out_bytes,
				     NIC_LOCAL_WRITE, &p->local);
	return rc ? rc : post_receives(p);
}

void
peer_close(struct peer *p)
{
	if (p->srq)
		NIC_OPS(p->nic.dev)->srq_destroy(p->srq);
	if (p->local.length)
		NIC_OPS(p->nic.dev)->mr_dereg(p->nic.dev, &p->local);
	memory_put(NULL, p->slot, memory_bytes(p));
	if (p->nic.dev)
		NIC_OPS(p->nic.dev)->close(p->nic.dev);
}

static int
make_qp(struct peer *p, uint32_t i)
{
	struct nic_qp_init init = {.type = p->run.test->ud ? NIC_UD : NIC_RC,
				   .send_wrs = PEER_DEPTH,
				   .srq = p->srq,
				   .user = &p->qp[i]};
	int rc;

	memset(&p->qp[i], 0, sizeof(p->qp[i]));
	rc = NIC_OPS(p->nic.context)->qp_create(p->nic.context, &init, &p->qp[i].qp);
	return rc ? peer_fail(p, rc, "queue pair %u can't be made: %s; give a smaller -q", i,
			      strerror(-rc))
		  : 0;
}

int
peer_prepare(struct peer *p, unsigned access)
{
	int rc = 0;

	p->qps = 0;
	p->verified = 0;
	p->region_bytes = p->cycle > peer_step(p) ? p->cycle : peer_step(p);
	NIC_OPS(p->nic.context)->counters(p->nic.context, &p->before);
	if (access) {
		peer_prime(p);
		rc = register_memory(p, p->region, (uint64_t)p->region_bytes * p->run.qps,
				     NIC_LOCAL_WRITE | access, &p->remote);
	}
	while (p->qps < p->run.qps && !rc) {
		rc = make_qp(p, p->qps);
		if (!rc)
			p->qps++;
	}
	return rc;
}

void
peer_release(struct peer *p)
{
	for (uint32_t i = 0; i < p->qps; i++) {
		NIC_OPS(p->nic.dev)->qp_destroy(p->qp[i].qp);
		if (p->qp[i].ah)
			NIC_OPS(p->nic.dev)->ah_destroy(p->qp[i].ah);
	}
	p->qps = 0;
	for (uint32_t i = 0; i < p->stashed; i++)
		if (p->stash[i].opcode == NIC_RECV)
			peer_reuse(p, &p->stash[i]);
	p->stashed = 0;
	if (p->remote.length)
		NIC_OPS(p->nic.dev)->mr_dereg(p->nic.dev, &p->remote);
	p->remote.length = 0;
}

void
peer_own_address(const struct peer *p, uint32_t i, struct peer_address *a)
{
	*a = (struct peer_address){.lid = p->attr.lid, .psn = PSN, .gid = p->attr.gid};
	a->out_reads = p->attr.max_rd_atomic ? p->attr.max_rd_atomic : 1;
	if (i < p->qps)
		a->qpn = nic_qpn(p->qp[i].qp);
	if (p->remote.length) {
		a->rkey = p->remote.rkey;
		a->vaddr = p->remote.address + peer_region(p, &p->qp[i]);
	}
}

static int
make_ah(struct peer *p, struct peer_qp *q)
{
	struct nic_ah_attr attr = {.gid = q->remote.gid, .lid = (uint16_t)q->remote.lid};

	return NIC_OPS(p->nic.dev)->ah_create(p->nic.dev, &attr, &q->ah);
}

int
peer_connect(struct peer *p, uint32_t i)
{
	struct peer_qp *q = &p->qp[i];
	uint32_t own = p->attr.max_rd_atomic, reads = q->remote.out_reads;
	struct nic_qp_attr attr = {
	    .state = NIC_QP_INIT,
	    .remote_gid = q->remote.gid,
	    .remote_lid = (uint16_t)q->remote.lid,
	    .mtu = (uint16_t)p->mtu,
	    .remote_qpn = q->remote.qpn,
	    .remote_psn = q->remote.psn,
	    .psn = PSN,
	    .rnr_retry = 7,
	    .access = NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC,
	    .qkey = p->run.test->ud ? PEER_QKEY : 0,
	};
	int rc = p->run.test->ud ? make_ah(p, q) : 0;

	for (; !rc && attr.state <= NIC_QP_RTS; attr.state++) {
		/* each end bears as many READs as it has said, and begins as many as the other
		 * bears */
		attr.rd_atomic = (uint8_t)(attr.state == NIC_QP_RTS && reads < own ? reads : own);
		rc = NIC_OPS(p->nic.context)->qp_modify(q->qp, &attr);
	}
	return rc ? peer_fail(p, rc,
			      "queue pair %u can't be connected: %s; look at the addresses and "
			      "the MTU at both ends",
			      i, strerror(-rc))
		  : 0;
}
