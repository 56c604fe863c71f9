/* SPDX-License-Identifier: BSD-3-Clause */
/* The device, its queue pairs and memory, and a turn of both ends. */
#include "nicperf.h"

#include "daemon/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define RECEIVES_MAX 65536u
#define UD_QPS 2u /* of a verification */

int
nicperf_fail(struct nicperf *np, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(np->error, sizeof(np->error), format, args);
	va_end(args);
	return rc;
}

static uint32_t
receives(const struct nicperf *np)
{
	uint64_t n = 2ull * np->qps * np->depth;

	return n > RECEIVES_MAX ? RECEIVES_MAX : (uint32_t)n;
}

static int
post_receives(struct nicperf *np, unsigned n)
{
	struct nicperf_end *end = np->end[np->end[1] ? 1 : 0];
	struct nic_recv_wr wr[NIC_POLL_MAX];
	unsigned i;

	for (i = 0; i < NIC_POLL_MAX; i++)
		wr[i] = (struct nic_recv_wr){
		    .sge = {(uintptr_t)end->in, (uint32_t)np->stride, end->mr.lkey}};
	while (n) {
		unsigned some = n < NIC_POLL_MAX ? n : NIC_POLL_MAX;
		int rc = NIC_OPS(np->nic)->post_srq_recv(np->srq, wr, some);

		if (rc <= 0)
			return nicperf_fail(np, -EIO,
					    "a receive could not be posted; give a "
					    "smaller --depth");
		n -= (unsigned)rc;
	}
	return 0;
}

static int
make_end(struct nicperf *np, struct nicperf_end **out)
{
	unsigned all = NIC_LOCAL_WRITE | NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC;
	const struct nic_ops *ops = NIC_OPS(np->dev);
	struct nicperf_end *end = calloc(1, sizeof(*end));
	int rc;

	if (!end)
		return nicperf_fail(np, -ENOMEM, "no memory; free some");
	*out = end;
	end->bytes = np->stride * np->qps;
	end->in = memory_get(NULL, 2 * end->bytes, np->attr.numa_socket);
	if (!end->in)
		return nicperf_fail(np, -ENOMEM,
				    "no memory for %llu bytes; give smaller -s or -q, or more with "
				    "-m MB",
				    (unsigned long long)(2 * end->bytes));
	end->out = end->in + end->bytes;
	rc = ops->mr_reg(np->dev, end->in, 2 * end->bytes, all, &end->mr);
	if (rc) /* the driver may lack operations, and then their rights */
		rc = ops->mr_reg(np->dev, end->in, 2 * end->bytes,
				 NIC_LOCAL_WRITE | NIC_REMOTE_WRITE, &end->mr);
	if (rc)
		return nicperf_fail(np, rc,
				    "%llu bytes can't be registered: %s; give smaller -s or -q",
				    (unsigned long long)(2 * end->bytes), strerror(-rc));
	for (uint32_t i = 0; i < np->qps && !rc; i++) {
		struct nic_qp_init init = {
		    .type = NIC_RC, .send_wrs = np->depth, .srq = np->srq, .user = &end->flow[i]};

		rc = NIC_OPS(np->nic)->qp_create(np->nic, &init, &end->qp[i]);
		if (rc)
			nicperf_fail(np, rc, "queue pair %u can't be made: %s; give a smaller -q",
				     i, strerror(-rc));
	}
	return rc;
}

void
nicperf_offer(const struct nicperf *np, const struct nicperf_end *end, struct nicperf_offer *offer)
{
	*offer = (struct nicperf_offer){
	    .rkey = end->mr.rkey,
	    .address = end->mr.address,
	    .gid = np->attr.gid,
	    .lid = np->attr.lid,
	    .mtu = np->attr.mtu,
	};
	for (uint32_t i = 0; i < np->qps; i++)
		offer->qpn[i] = nic_qpn(end->qp[i]);
}

int
nicperf_connect(struct nicperf *np, struct nicperf_end *end)
{
	const struct nic_spec *nic = &np->options->nic;
	const struct nicperf_offer *peer = &end->peer;

	for (uint32_t i = 0; i < np->qps; i++) {
		struct nic_qp_attr attr = {
		    .state = NIC_QP_INIT,
		    .remote_gid = peer->gid,
		    .remote_lid = peer->lid,
		    .mtu = peer->mtu < np->attr.mtu ? peer->mtu : np->attr.mtu,
		    .remote_qpn = peer->qpn[i],
		    .access = NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC |
			      NIC_REMOTE_INVALIDATE,
		    .traffic_class = nic_spec_traffic_class(nic, WEIR_CLASS_NORMAL),
		    .priority = nic_spec_priority(nic, WEIR_CLASS_NORMAL),
		};

		end->flow[i] = (struct nicperf_flow){
		    .qp = end->qp[i],
		    .local = (uintptr_t)end->out + i * np->stride,
		    .remote = peer->address + i * np->stride,
		    .rkey = peer->rkey,
		};
		for (; attr.state <= NIC_QP_RTS; attr.state++) {
			int rc = NIC_OPS(np->nic)->qp_modify(end->qp[i], &attr);

			if (rc)
				return nicperf_fail(np, rc,
						    "queue pair %u can't be connected: %s; look at "
						    "--nic at both ends",
						    i, strerror(-rc));
		}
	}
	return 0;
}

int
nicperf_open(struct nicperf *np)
{
	const struct nicperf_options *o = np->options;
	const struct open_nic_need need = {2 * np->qps + UD_QPS, np->depth, receives(np)};
	int rc;

	clock_start(&np->clock);
	rc = open_nic(&o->nic, &need, &np->open, np->error, sizeof(np->error));
	np->dev = np->open.dev;
	np->nic = np->open.context;
	if (!rc)
		rc = NIC_OPS(np->dev)->query(np->dev, &np->attr);
	if (!rc)
		rc = NIC_OPS(np->nic)->srq_create(np->nic, receives(np), &np->srq);
	if (rc)
		return *np->error ? rc
				  : nicperf_fail(np, rc,
						 "the device can't be used: %s; give a "
						 "smaller -q or --depth",
						 strerror(-rc));
	rc = make_end(np, &np->end[0]);
	if (!rc && !o->connect && !o->listen)
		rc = make_end(np, &np->end[1]);
	if (!rc)
		rc = post_receives(np, receives(np));
	return rc;
}

void
nicperf_close(struct nicperf *np)
{
	for (unsigned e = 0; e < 2 && np->end[e]; e++) {
		struct nicperf_end *end = np->end[e];

		for (uint32_t i = 0; i < np->qps; i++)
			if (end->qp[i])
				NIC_OPS(np->dev)->qp_destroy(end->qp[i]);
		if (end->mr.length)
			NIC_OPS(np->dev)->mr_dereg(np->dev, &end->mr);
		memory_put(NULL, end->in, 2 * end->bytes);
		free(end);
	}
	if (np->srq)
		NIC_OPS(np->dev)->srq_destroy(np->srq);
	if (np->dev)
		NIC_OPS(np->dev)->close(np->dev);
}

int
nicperf_turn(struct nicperf *np)
{
	struct nic_wc wc[NIC_POLL_MAX];
	uint64_t now = clock_now(&np->clock);
	unsigned received = 0, n;
	bool busy = false;
	int rc = 0;

	n = nic_poll(np->nic, wc, NIC_POLL_MAX, now, &busy);
	for (unsigned i = 0; i < n; i++) {
		if (wc[i].status != NIC_WC_SUCCESS)
			rc = nicperf_fail(np, -EIO,
					  "a work request failed: %s; look at both ends and the "
					  "network between them",
					  nic_wc_status_name(wc[i].status));
		else if (wc[i].opcode == NIC_RECV || wc[i].opcode == NIC_RECV_IMM) {
			np->received = wc[i];
			np->receives++;
			received++;
		} else {
			((struct nicperf_flow *)wc[i].qp_user)->done = wc[i].wr_id;
		}
	}
	if (received && !rc)
		rc = post_receives(np, received);
	nic_flush(np->nic, now);
	return rc;
}
