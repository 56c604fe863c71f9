/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limit of a lone message through an engine: what happens to its bytes whatever engine and
 * protocol do, on the same port that loops as in loop_bench. Slots are copied to lines, lines into
 * a frame with its ICRC, the frame goes through the port, its ICRC is checked, its payload is
 * copied to the ring and from there to slots. There are no checks, states, counters, queues,
 * completions and acknowledgements.
 *
 * bare_bench [SIZE [MESSAGES]]; instructions.sh counts instructions with it.
 */
#include "ipc/wire.h"
#include "nic/roce/icrc.h"

#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

enum {
	HEADERS = BTH_AT + BTH_BYTES + RETH_BYTES + IMM_BYTES - IP_AT, /* IP to the immediate */
	LINES = 1 + WEIR_INLINE_SLOTS,				       /* of the longest frame */
	DESCRIPTORS = 1024,
	MBUFS = 4095,
};

static struct weir_slot from[WEIR_INLINE_SLOTS], staging[LINES], ring[LINES], to[WEIR_INLINE_SLOTS];
static uint8_t template[IP_AT + HEADERS];
static struct rte_mempool *pool;
static uint16_t port;

static void
must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "bare_bench: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void
open_port(void)
{
	static char name[] = "bare_bench", no_huge[] = "--no-huge", no_pci[] = "--no-pci",
		    m[] = "-m", mib[] = "64", vdev[] = "--vdev=net_ring0", cores[] = "-l0",
		    quiet[] = "--log-level=*:error", shared[] = "--no-shconf";
	char *argv[] = {name, no_huge, no_pci, m, mib, vdev, cores, quiet, shared, NULL};
	struct rte_eth_conf conf = {0};

	must(rte_eal_init(9, argv) < 0 ? -EIO : 0, "EAL");
	must(rte_eth_dev_get_port_by_name("net_ring0", &port), "port");
	pool = rte_pktmbuf_pool_create("frames", MBUFS, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, -1);
	must(pool ? 0 : -ENOMEM, "frames");
	must(rte_eth_dev_configure(port, 1, 1, &conf), "configuration");
	must(rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, 0, NULL, pool), "receive queue");
	must(rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, 0, NULL), "transmit queue");
	must(rte_eth_dev_start(port), "start");
}

/* Slots or lines; their number is not known to the compiler, as in an engine. */
static inline void
copy_lines(struct weir_slot *dest, const struct weir_slot *source, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		memcpy(&dest[i], &source[i], sizeof(dest[i]));
}

/* Its instructions are counted. */
static __attribute__((noinline, noclone)) void
counted_message(uint32_t slots)
{
	uint32_t payload = (1 + slots) * WEIR_SLOT_SIZE, length = IP_AT + HEADERS + payload, icrc;
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	uint8_t *frame;

	if (!m)
		abort();
	copy_lines(&staging[1], from, slots);
	frame = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(frame, template, sizeof(template));
	icrc = roce_icrc_copy(frame + IP_AT, HEADERS, staging, payload);
	memcpy(frame + length, &icrc, sizeof(icrc));
	m->data_len = (uint16_t)(length + ICRC_BYTES);
	m->pkt_len = m->data_len;
	if (rte_eth_tx_burst(port, 0, &m, 1) != 1 || rte_eth_rx_burst(port, 0, &m, 1) != 1)
		abort();
	frame = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(&icrc, frame + length, sizeof(icrc));
	if (roce_icrc(frame + IP_AT, length - IP_AT) != icrc)
		abort();
	memcpy(ring, frame + IP_AT + HEADERS, payload);
	copy_lines(to, &ring[1], slots);
	rte_pktmbuf_free(m);
}

int
main(int argc, char **argv)
{
	uint32_t size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
	uint64_t messages = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;

	if (size > WEIR_INLINE_MAX || !messages)
		return 2;
	memset(template, 0x45, sizeof(template));
	open_port();
	for (uint64_t i = 0; i < messages; i++)
		counted_message(weir_slots_inline(size));
	return 0;
}
