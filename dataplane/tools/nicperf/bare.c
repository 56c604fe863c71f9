/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cost of the port alone: ping-pong of frames of the length that a WRITE has, through the DPDK
 * port that the device is built on, without the NIC layer.
 */
#include "nicperf.h"

#include <errno.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define ETHERTYPE 0x88b5u /* for experiments on a local network (IEEE 802) */
#define FRAMES 1023u
#define BURST 32u
#define WARM 1000u
#define SOCKET_TURNS 1024u
#define TIMEOUT_NS 5000000000ull
#define WRITE_OVERHEAD (20u + 8u + 12u + 16u + 4u) /* IPv4, UDP, BTH, RETH, ICRC */

static int
find(struct nicperf *np, uint16_t *port)
{
	const char *name = np->attr.name;

	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return 0;
	return nicperf_fail(np, -EOPNOTSUPP, "'%s' is not a DPDK port; leave bare out of -t", name);
}

/* The next frame of ours, NULL: none now. Others are dropped: the NIC layer is not polled. */
static struct rte_mbuf *
take(uint16_t port)
{
	struct rte_mbuf *m[BURST], *ours = NULL;
	uint16_t n = rte_eth_rx_burst(port, 0, m, BURST);

	for (uint16_t i = 0; i < n; i++) {
		const struct rte_ether_hdr *h = rte_pktmbuf_mtod(m[i], const void *);

		if (!ours && h->ether_type == rte_cpu_to_be_16(ETHERTYPE))
			ours = m[i];
		else
			rte_pktmbuf_free(m[i]);
	}
	return ours;
}

static int
give(struct nicperf *np, uint16_t port, struct rte_mbuf *m)
{
	uint64_t begin = clock_now(&np->clock);

	while (rte_eth_tx_burst(port, 0, &m, 1) != 1)
		if (clock_now(&np->clock) - begin > TIMEOUT_NS) {
			rte_pktmbuf_free(m);
			return nicperf_fail(np, -EIO, "the port takes no frames; is the link up");
		}
	return 0;
}

static struct rte_mbuf *
new_frame(struct rte_mempool *pool, uint32_t size)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	uint32_t length = sizeof(struct rte_ether_hdr) + WRITE_OVERHEAD + ((size + 3) & ~3u);
	struct rte_ether_hdr *h = m ? (void *)rte_pktmbuf_append(m, (uint16_t)length) : NULL;

	if (!h) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	memset(h, 0, length);
	memset(&h->dst_addr, 0xff, sizeof(h->dst_addr));
	h->src_addr.addr_bytes[0] = 2;
	h->ether_type = rte_cpu_to_be_16(ETHERTYPE);
	return m;
}

static int
round_trips(struct nicperf *np, uint16_t port, struct rte_mempool *pool, struct nicperf_result *r)
{
	const struct nicperf_options *o = np->options;
	uint64_t end = UINT64_MAX, now = 0;
	bool loop = np->end[1];

	for (uint64_t i = 0; o->count ? r->count < o->count : !r->count || now < end; i++) {
		struct rte_mbuf *m = new_frame(pool, r->size);
		uint64_t start = clock_now(&np->clock);
		int rc = m ? give(np, port, m)
			   : nicperf_fail(np, -ENOMEM, "no frame of %u bytes; give a smaller -s",
					  r->size);

		if (i == WARM && !o->count)
			end = start + (uint64_t)(o->duration * 1e9);
		/* on a loopback port the same frame goes both ways */
		for (int way = loop ? 0 : 1; way < 2 && !rc; way++) {
			while (!(m = take(port)))
				if (clock_now(&np->clock) - start > TIMEOUT_NS)
					return nicperf_fail(np, -ETIMEDOUT,
							    "no answer for 5 s; look at the other "
							    "end");
			if (way == 0)
				rc = give(np, port, m);
		}
		if (rc)
			return rc;
		now = clock_now(&np->clock);
		rte_pktmbuf_free(m);
		if (i < WARM)
			continue;
		histogram_record(&r->latency, (now - start) / 2);
		r->seconds += (double)(now - start) / 1e9;
		r->count++;
	}
	return 0;
}

int
nicperf_bare(struct nicperf *np, struct nicperf_result *r)
{
	struct rte_mempool *pool;
	uint16_t port;
	int rc = find(np, &port);

	if (rc)
		return rc;
	if (r->size > np->attr.mtu)
		return nicperf_fail(np, -EINVAL,
				    "bare sends frames, and %u bytes are more than one has; give "
				    "at most %u",
				    r->size, np->attr.mtu);
	pool = rte_pktmbuf_pool_create("nicperf-bare", FRAMES, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE * 3,
				       rte_eth_dev_socket_id(port));
	if (!pool)
		return nicperf_fail(np, -ENOMEM, "no memory for frames; give more with -m MB");
	rc = round_trips(np, port, pool, r);
	/* a pool with frames that the port still holds is freed with the port */
	if (rte_mempool_full(pool))
		rte_mempool_free(pool);
	return rc;
}

int
nicperf_respond_bare(struct nicperf *np)
{
	uint16_t port;
	int rc = find(np, &port);

	for (uint32_t i = 1; !rc; i++) {
		struct rte_mbuf *m = take(port);

		if (m)
			rc = give(np, port, m);
		else if (i % SOCKET_TURNS == 0 && nicperf_readable(np))
			break;
	}
	return rc;
}
