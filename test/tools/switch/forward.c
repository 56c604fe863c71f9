/* SPDX-License-Identifier: BSD-3-Clause */
#include "switch.h"

#include "base/log.h"

#include <rte_ether.h>
#include <rte_mbuf.h>

#define BURST 32u

/* Takes the caller's reference. */
static void
put(struct ether_switch *sw, unsigned to, struct rte_mbuf *m)
{
	struct switch_port *port = &sw->port[to];

	if (!port->up)
		sw->drops.no_link++;
	else if (m->pkt_len > port->frame_max)
		sw->drops.too_long++;
	else if (!switch_queue_push(&port->queue, m))
		port->full++;
	else {
		sw->waiting |= 1u << to;
		return;
	}
	rte_pktmbuf_free(m);
}

/* A frame is only read, so all ports may have the same one. */
static void
flood(struct ether_switch *sw, unsigned from, struct rte_mbuf *m)
{
	sw->flooded++;
	for (unsigned to = 0; to < sw->ports; to++) {
		if (to == from || !sw->port[to].up)
			continue;
		rte_mbuf_refcnt_update(m, 1);
		put(sw, to, m);
	}
	rte_pktmbuf_free(m);
}

static void
forward(struct ether_switch *sw, unsigned from, struct rte_mbuf *m, uint32_t now_s)
{
	const struct rte_ether_hdr *head = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	uint64_t *drop = NULL;
	uint32_t to = SWITCH_BAD;

	if (m->nb_segs > 1) /* longer than one of our buffers */
		drop = &sw->drops.too_long;
	else if (m->data_len < sizeof(*head))
		drop = &sw->drops.runt;
	else
		to = switch_decide(&sw->table, head->dst_addr.addr_bytes, head->src_addr.addr_bytes,
				   from, now_s);
	if (to == SWITCH_BAD && !drop)
		drop = &sw->drops.bad_source;
	if (to == SWITCH_STAY)
		drop = &sw->drops.stayed;
	if (drop) {
		++*drop;
		rte_pktmbuf_free(m);
	} else if (to == SWITCH_FLOOD) {
		flood(sw, from, m);
	} else {
		put(sw, to, m);
	}
}

static unsigned
take(struct ether_switch *sw, unsigned from, uint32_t now_s)
{
	struct switch_port *port = &sw->port[from];
	struct rte_mbuf *burst[BURST];
	unsigned n = rte_eth_rx_burst(port->id, 0, burst, BURST);

	port->rx_frames += n;
	for (unsigned i = 0; i < n; i++) {
		port->rx_bytes += burst[i]->pkt_len;
		forward(sw, from, burst[i], now_s);
	}
	return n;
}

static uint64_t
bytes_of(struct rte_mbuf *const *frames, unsigned n)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += frames[i]->pkt_len;
	return bytes;
}

/* Whoever doesn't take what is for him makes nobody else wait. */
static unsigned
give(struct ether_switch *sw, unsigned to)
{
	struct switch_port *port = &sw->port[to];
	unsigned all = 0, n, sent;
	void **frames;

	while ((n = switch_queue_first(&port->queue, &frames))) {
		struct rte_mbuf **mbufs = (struct rte_mbuf **)frames;
		uint64_t bytes;

		n = RTE_MIN(n, BURST);
		bytes = bytes_of(mbufs, n);
		sent = rte_eth_tx_burst(port->id, 0, mbufs, (uint16_t)n);
		if (sent < n) /* the others are still ours to look at */
			bytes -= bytes_of(mbufs + sent, n - sent);
		switch_queue_pop(&port->queue, sent);
		port->tx_frames += sent;
		port->tx_bytes += bytes;
		all += sent;
		if (sent < n)
			return all;
	}
	sw->waiting &= ~(1u << to);
	return all;
}

unsigned
switch_turn(struct ether_switch *sw, uint64_t now)
{
	uint32_t now_s = (uint32_t)(now / 1000000000u);
	unsigned work = 0, i = sw->first;

	do {
		work += take(sw, i, now_s);
		i = i + 1 < sw->ports ? i + 1 : 0;
	} while (i != sw->first);
	sw->first = i + 1 < sw->ports ? i + 1 : 0; /* full queues are not always the same one's */
	for (uint32_t left = sw->waiting; left; left &= left - 1)
		work += give(sw, (unsigned)__builtin_ctz(left));
	sw->turns++;
	return work;
}

void
switch_empty(struct ether_switch *sw, struct switch_port *port)
{
	void **frames;
	uint32_t n;

	while ((n = switch_queue_first(&port->queue, &frames))) {
		rte_pktmbuf_free_bulk((struct rte_mbuf **)frames, n);
		switch_queue_pop(&port->queue, n);
		sw->drops.no_link += n;
	}
	sw->waiting &= ~(1u << (port - sw->port));
}

void
switch_check_links(struct ether_switch *sw)
{
	for (unsigned i = 0; i < sw->ports; i++) {
		struct switch_port *port = &sw->port[i];
		struct rte_eth_link link;
		bool up = rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status;

		if (up == port->up)
			continue;
		port->up = up;
		log_info("port %s is %s", port->name, up ? "up" : "down");
		if (!up) {
			switch_empty(sw, port);
			switch_table_forget(&sw->table, i);
		}
	}
}
