/* SPDX-License-Identifier: BSD-3-Clause */
/* The ethdev shell inside. */
#ifndef WEIR_ROCE_ETHDEV_PORT_H
#define WEIR_ROCE_ETHDEV_PORT_H

#include "roce_port.h"
#include "lcore/spsc.h"

#include <stdatomic.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define ETHDEV_BURST 32u
#define ETHDEV_TX 512u	       /* frames that wait for flush(), per context */
#define ETHDEV_HAND 1024u      /* frames in a ring between two contexts */
#define ETHDEV_LATE_HELD 1024u /* frames that impairments may hold, set while the port runs */
#define ETHDEV_WARM 512u       /* free frames that a context keeps, last used first */
/* Where frames begin, so that the payload of a frame without extended headers is on whole lines. */
#define ETHDEV_SHIFT 10u
#define ETHDEV_FRAME_AT (RTE_PKTMBUF_HEADROOM + ETHDEV_SHIFT)
#define ETHDEV_NO_QUEUE UINT16_MAX

/* From one context to another. Producer and consumer are the two engines. */
struct ethdev_ring {
	struct spsc ring;
	struct rte_mbuf *cells[ETHDEV_HAND];
};

/* One engine's; shared are the `in` rings of others and the read-only port. */
struct ethdev_context {
	struct ethdev_port *port;
	struct roce_context *roce;
	struct nic_counters *counters;
	unsigned id;
	uint16_t frame_at; /* in our mbufs: so that offset 0 of the core is at ETHDEV_FRAME_AT */
	uint16_t rx_queue, tx_queue; /* ETHDEV_NO_QUEUE: none of its own */
	struct rte_mempool *pool;
	struct rte_mbuf *warm[ETHDEV_WARM];
	uint32_t warm_count;
	struct rte_mbuf *tx[ETHDEV_TX];
	uint32_t tx_count;
	uint64_t tx_stuck;   /* since when the port takes nothing, 0 = it does */
	uint32_t tx_offered; /* frames at the start of tx that the port has been offered */
	struct ethdev_ring *rx_in[ETHDEV_CONTEXTS_MAX]; /* received by [i], for us; NULL: never */
	struct ethdev_ring *tx_in[ETHDEV_CONTEXTS_MAX]; /* from [i], to send on our queue */
	struct ethdev_ring *tx_to; /* into the owner of our transmit queue; NULL: own queue */
	/* Partner: ethdev_impair(), which sets it once `impair` is complete; it stays true. */
	_Atomic bool impaired;
	bool checked; /* the port's */
	bool shares;  /* the port has other contexts besides */
	uint64_t now; /* of the turn, for impairments */
	struct impair impair;
	/* sleep */
	int rx_fd;	      /* epoll fd of the queue's interrupt, -1 none */
	bool armed;	      /* the interrupt is on */
	uint16_t early_count; /* received while arming */
	struct rte_mbuf *early[ETHDEV_BURST];
};

struct ethdev_port {
	struct ethdev_config config;
	char name[64];
	uint16_t id, rx_queues, tx_queues, rx_depth, tx_depth;
	struct rte_eth_dev_info info;
	uint8_t mac[6];
	uint16_t mtu;	/* path MTU */
	uint16_t front; /* roce_front() */
	int numa_socket;
	bool started, configured, link_was_up;
	bool checked;	       /* the port verifies checksums of IPv4 headers */
	bool steered;	       /* the port has a rule for the QPs of each queue */
	_Atomic bool captured; /* main sets, the capture's writer clears at its end */
	_Atomic bool parked;   /* main sets while it restarts the port, engines leave it alone */
	struct rte_mempool *pool[ETHDEV_CONTEXTS_MAX]; /* of each context; one per NUMA socket */
	uint32_t frames;
	size_t table_bytes;
	struct roce_device *roce;
	struct rte_flow *rules[ETHDEV_CONTEXTS_MAX];
	struct ethdev_context *context[ETHDEV_CONTEXTS_MAX];
};

static inline uint32_t
ethdev_ethernet(const struct ethdev_port *port)
{
	return RTE_ETHER_HDR_LEN + (port->config.vlan ? RTE_VLAN_HLEN : 0);
}

/* Longest frame, and longest IP packet, with a path MTU. */
static inline uint32_t
ethdev_frame_max(const struct ethdev_port *port, uint32_t mtu)
{
	return mtu + ROCE_OVERHEAD + port->front;
}

static inline uint32_t
ethdev_ip_max(const struct ethdev_port *port, uint32_t mtu)
{
	return ethdev_frame_max(port, mtu) - ethdev_ethernet(port);
}

/* mtu.c: sets port->mtu, and *room, the bytes that a buffer must hold. */
int ethdev_choose_mtu(struct ethdev_port *port, uint32_t *room, char *error, size_t size);

/* Whether the kernel's interface of this index carries frames. */
bool ethdev_interface_up(unsigned index);

/* wire.c: the data path; user is a struct ethdev_context. */
extern const struct roce_wire ethdev_wire;
/* Frees all frames that wait anywhere in the context. */
void ethdev_wire_drain(struct ethdev_context *c);

#endif
