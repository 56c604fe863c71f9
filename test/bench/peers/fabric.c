/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric: tagged messages of an RDM endpoint, provider shm within a host, tcp as between two
 * nodes. */
#include "peer.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdlib.h>
#include <string.h>

#define TAG 1u
#define NAME_MAX_BYTES 512u /* of an endpoint's address */

struct operation {
	struct fi_context2 context; /* first: the provider returns its address */
	bool done;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;
static fi_addr_t other;
static struct operation sends[PEER_SLOTS], recvs[PEER_SLOTS];

static void
check(long rc, const char *what)
{
	if (rc < 0)
		peer_die(what, fi_strerror((int)-rc));
}

static void
progress(void)
{
	struct fi_cq_entry entries[16];
	ssize_t n = fi_cq_read(cq, entries, 16);

	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = {0};

		fi_cq_readerr(cq, &error, 0);
		peer_die("completion", fi_strerror(error.err));
	}
	if (n != -FI_EAGAIN)
		check(n, "fi_cq_read");
	for (ssize_t i = 0; i < n; i++)
		((struct operation *)entries[i].op_context)->done = true;
}

static int
open_fabric(int rank, int pipe, bool nodes)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .size = 4 * PEER_SLOTS};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	static char own[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
	size_t length = sizeof(own);

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = 0;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(nodes ? "tcp;ofi_rxm" : "shm");
	check(fi_getinfo(FI_VERSION(1, 17), nodes ? "127.0.0.1" : NULL, NULL, nodes ? FI_SOURCE : 0,
			 hints, &info),
	      "fi_getinfo");
	fi_freeinfo(hints);
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	check(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
	check(fi_enable(ep), "fi_enable");
	check(fi_getname(&ep->fid, own, &length), "fi_getname");
	peer_exchange(pipe, own, name, sizeof(own));
	if (fi_av_insert(av, name, 1, &other, 0, NULL) != 1)
		peer_die("fi_av_insert", NULL);
	return rank;
}

static void
await(struct operation *o)
{
	while (!o->done)
		progress();
}

static void
send_fabric(unsigned slot, const void *buf, size_t size)
{
	ssize_t rc;

	sends[slot].done = false;
	while ((rc = fi_tsend(ep, buf, size, NULL, other, TAG, &sends[slot])) == -FI_EAGAIN)
		progress();
	check(rc, "fi_tsend");
}

static void
sent_fabric(unsigned slot)
{
	await(&sends[slot]);
}

static void
recv_fabric(unsigned slot, void *buf, size_t size)
{
	ssize_t rc;

	recvs[slot].done = false;
	while ((rc = fi_trecv(ep, buf, size, NULL, other, TAG, 0, &recvs[slot])) == -FI_EAGAIN)
		progress();
	check(rc, "fi_trecv");
}

static void
received_fabric(unsigned slot)
{
	await(&recvs[slot]);
}

static void
close_fabric(void)
{
	fi_close(&ep->fid);
	fi_close(&av->fid);
	fi_close(&cq->fid);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	fi_freeinfo(info);
}

const struct peer peer = {false,       open_fabric,	send_fabric, sent_fabric,
			  recv_fabric, received_fabric, close_fabric};
