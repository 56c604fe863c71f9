/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of a lone message through an engine, all stages but the library's: a program, an engine,
 * two links between them over the RoCEv2 core and a DPDK port that loops. Two ends of a connection
 * answer each other, one message of SIZE bytes under way: loop_bench [SIZE [MESSAGES]]. SIZE 0:
 * they rest, for MESSAGES turns. instructions.sh counts instructions with it.
 */
#include "program.h"

#include "daemon/memory.h"
#include "daemon/nic_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

enum { TURN_NS = 150 }; /* between two turns of a busy engine */

static struct engine_link_command ends[2];
static struct bench_program program;
static uint64_t turns;

static void
must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "loop_bench: %s: %s\n", what, strerror(rc < 0 ? -rc : rc));
	exit(1);
}

static void
wake(void *user, unsigned context)
{
}

static struct nic_device *
open_port(void)
{
	static char name[] = "loop_bench", no_huge[] = "--no-huge", no_pci[] = "--no-pci",
		    m[] = "-m", mib[] = "64", vdev[] = "--vdev=net_ring0", cores[] = "-l0",
		    quiet[] = "--log-level=*:error", shared[] = "--no-shconf";
	char *argv[] = {name, no_huge, no_pci, m, mib, vdev, cores, quiet, shared, NULL};
	struct ethdev_port *port;
	struct ethdev_config c;
	struct nic_spec spec;
	char error[256] = "";

	if (rte_eal_init(9, argv) < 0)
		must(-EIO, "EAL");
	must(options_parse_nic(&spec, "roce:net_ring0,ip=10.0.0.1/24", error, sizeof(error)),
	     error);
	c = nic_config_ethdev(&spec);
	c.queues = c.contexts = 1;
	c.numa_socket[0] = -1;
	c.max_qp = 16;
	c.tx_frames = 1024;
	c.wake = wake;
	must(ethdev_open(&c, &port, error, sizeof(error)), error);
	bench_config.nic = ethdev_context(port, 0);
	return ethdev_device(port);
}

static void *
registered(struct nic_device *dev, size_t bytes, struct nic_mr *mr)
{
	void *memory = bench_memory(bytes);

	must(NIC_OPS(dev)->mr_reg(dev, memory, bytes, NIC_LOCAL_WRITE | NIC_REMOTE_WRITE, mr),
	     "memory region");
	return memory;
}

static void
make_end(struct nic_device *dev, uint32_t id)
{
	struct engine_link_command *l = &ends[id];
	struct nic_context *nic = bench_config.nic;

	*l = (struct engine_link_command){
	    .link = id,
	    .ring_lines = BENCH_LINES,
	    .staging_lines = BENCH_LINES,
	    .peer_recv_wrs = 64,
	    .recv_wrs = 64,
	    .work = bench_memory(engine_link_bytes(BENCH_LINES)),
	};
	l->ring = registered(dev, BENCH_LINES * 64, &l->ring_mr);
	l->staging = registered(dev, BENCH_LINES * 64, &l->staging_mr);
	l->credit = registered(dev, 128, &l->credit_mr);
	for (unsigned i = 0; i < 2; i++) {
		struct nic_qp_init init = {.type = NIC_RC,
					   .send_wrs = ENGINE_SEND_WRS,
					   .srq = bench_config.srq,
					   .user = engine_link_user(bench_engine, id, i)};

		must(NIC_OPS(nic)->qp_create(nic, &init, &l->qp[i]), "queue pair");
	}
}

static void
connect_end(struct nic_device *dev, uint32_t id)
{
	struct engine_command k = {.type = ENGINE_LINK_ADD};
	struct engine_link_command *l = &ends[id], *peer = &ends[!id];
	struct nic_attr device;

	must(NIC_OPS(dev)->query(dev, &device), "query");
	for (unsigned i = 0; i < 2; i++) {
		struct nic_qp_attr attr = {.state = NIC_QP_INIT,
					   .remote_gid = device.gid,
					   .remote_qpn = nic_qpn(peer->qp[i])};

		for (; attr.state <= NIC_QP_RTS; attr.state++)
			must(NIC_OPS(dev)->qp_modify(l->qp[i], &attr), "state of a queue pair");
	}
	l->peer_ring_address = (uintptr_t)peer->ring;
	l->peer_ring_rkey = peer->ring_mr.rkey;
	l->peer_credit_address = (uintptr_t)peer->credit;
	l->peer_credit_rkey = peer->credit_mr.rkey;
	k.link = *l;
	bench_must(&k);
}

static void
turn(void)
{
	engine_turn(bench_engine, bench_now += TURN_NS);
	turns++;
}

/* Its instructions are counted. */
static __attribute__((noinline, noclone)) void
counted_turn(void)
{
	turn();
}

/* Messages back and forth, one at a time. */
static inline void
back_and_forth(struct bench_end conn[2], uint64_t n, uint32_t length, void (*turn_once)(void))
{
	for (uint64_t i = 0; i < n; i++) {
		bench_send(&program, &conn[i % 2], 1, length);
		do
			turn_once();
		while (!bench_receive(&program, &conn[!(i % 2)]));
	}
}

static void
lone_messages(struct bench_end conn[2], uint64_t n, uint32_t length)
{
	struct nic_counters before, after;

	NIC_OPS(bench_config.nic)->counters(bench_config.nic, &before);
	turns = 0;
	back_and_forth(conn, n, length, counted_turn);
	NIC_OPS(bench_config.nic)->counters(bench_config.nic, &after);
	printf("%u B: per message %.2f turns, %.2f frames, %.2f acknowledgements; %llu credit "
	       "writes in all\n",
	       length, (double)turns / (double)n,
	       (double)(after.tx_frames - before.tx_frames) / (double)n,
	       (double)(after.acks_sent - before.acks_sent) / (double)n,
	       (unsigned long long)engine_counters(bench_engine)->credit_writes);
}

int
main(int argc, char **argv)
{
	uint32_t length = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
	uint64_t total = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
	struct nic_device *dev = open_port();
	struct bench_end conn[2];

	if (length > WEIR_INLINE_MAX || !total)
		return 2;
	must(NIC_OPS(bench_config.nic)->srq_create(bench_config.nic, BENCH_SRQ, &bench_config.srq),
	     "shared receive queue");
	must(NIC_OPS(dev)->mr_reg(dev, bench_config.recv, engine_recv_bytes(BENCH_SRQ),
				  NIC_LOCAL_WRITE, &bench_config.recv_mr),
	     "receive buffers");
	bench_engine = engine_create(&bench_config);
	for (uint32_t id = 0; id < 2; id++)
		make_end(dev, id);
	for (uint32_t id = 0; id < 2; id++)
		connect_end(dev, id);
	bench_attach(&program, 0, 64);
	bench_connect(&program, 0, conn);
	for (unsigned i = 0; i < 1000; i++) { /* windows grow, the port's address is learnt */
		back_and_forth(conn, 2, length, turn);
		bench_now += 1000;
	}
	if (length) {
		lone_messages(conn, total, length);
	} else {
		bench_now += 1000000; /* credit and ACKs that waited leave */
		for (unsigned i = 0; i < 1000; i++)
			turn();
		for (uint64_t i = 0; i < total; i++)
			counted_turn();
	}
	return 0;
}
