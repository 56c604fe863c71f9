/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * numa_probe [EAL options] -- ENGINE-NODE SPEC...: opens each NIC for two engines, one on node 0
 * and one on ENGINE-NODE, and asks the kernel (move_pages) on which node their memory lies: frames,
 * tables, rings between engines, queue pairs, shared receive queues.
 */
#define _GNU_SOURCE
#include "daemon/eal_setup.h"
#include "daemon/memory.h"
#include "nic/roce/context.h"
#include "nic/roce_port/internal.h"
#include "nic/verbs/internal.h"
#include "daemon/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENGINES 2u
#define RECEIVES 1024u
#define SENDS 1024u
#define PAGE 4096u

static int nodes[ENGINES];
static unsigned looked_at, wrong;

static void
wake(void *user, unsigned context)
{
}

/* Each page of this memory of the engine. */
static void
look(unsigned engine, const char *what, const void *memory, size_t bytes)
{
	uintptr_t first = (uintptr_t)memory & ~(uintptr_t)(PAGE - 1);
	size_t n = ((uintptr_t)memory + bytes - first + PAGE - 1) / PAGE, elsewhere = 0;

	for (size_t i = 0; i < n; i++) {
		void *page = (void *)(first + i * PAGE);
		int node = -1;

		if (syscall(SYS_move_pages, 0, 1ul, &page, NULL, &node, 0) || node != nodes[engine])
			elsewhere++;
	}
	looked_at++;
	wrong += elsewhere > 0;
	printf("engine %u on node %d: %-28s %6zu pages, %zu of them elsewhere\n", engine,
	       nodes[engine], what, n, elsewhere);
}

static void
look_at_chunk(struct rte_mempool *pool, void *user, struct rte_mempool_memhdr *chunk, unsigned i)
{
	look(*(unsigned *)user, "frames", chunk->addr, chunk->len);
}

static void
look_at_ethdev(const struct ethdev_port *port, unsigned engine)
{
	const struct ethdev_context *c = port->context[engine];

	look(engine, "the shell's context", c, sizeof(*c));
	look(engine, "pool", c->pool, sizeof(*c->pool));
	rte_mempool_mem_iter(c->pool, look_at_chunk, &engine);
	for (unsigned i = 0; i < ENGINES; i++) {
		if (c->rx_in[i])
			look(engine, "ring of received frames", c->rx_in[i], sizeof(*c->rx_in[i]));
		if (c->tx_in[i])
			look(engine, "ring of frames to send", c->tx_in[i], sizeof(*c->tx_in[i]));
	}
	look(engine, "context", c->roce, sizeof(*c->roce));
	look(engine, "completion queue", c->roce->cq_ring, c->roce->cq_ring->bytes);
	look(engine, "table of queue pairs", c->roce->qps, c->roce->qps_bytes);
}

static int
open_ethdev(const struct nic_spec *spec, struct nic_device **dev, struct nic_context **context,
	    char *error, size_t size)
{
	struct ethdev_config config = {
	    .port = spec->port,
	    .gid = spec->gid,
	    .prefix = spec->prefix,
	    .contexts = ENGINES,
	    .max_qp = 64,
	    .cq_depth = 8192,
	    .tx_frames = 1024,
	    .memory_get = memory_get,
	    .memory_put = memory_put,
	    .wake = wake,
	};
	struct ethdev_port *port;
	int rc;

	memcpy(config.numa_socket, nodes, sizeof(nodes));
	rc = ethdev_open(&config, &port, error, size);
	if (rc)
		return rc;
	*dev = ethdev_device(port);
	for (unsigned i = 0; i < ENGINES; i++) {
		context[i] = ethdev_context(port, i);
		look_at_ethdev(port, i);
	}
	return 0;
}

static int
open_verbs(const struct nic_spec *spec, struct nic_device **dev, struct nic_context **context,
	   char *error, size_t size)
{
	struct vnic_config config = {
	    .device = spec->port,
	    .gid_index = spec->gid_index,
	    .contexts = ENGINES,
	    .recv_depth = RECEIVES,
	    .memory_get = memory_get,
	    .memory_put = memory_put,
	};
	struct vnic_device *device;
	int rc;

	memcpy(config.numa_socket, nodes, sizeof(nodes));
	rc = vnic_open(&config, &device, error, size);
	if (rc)
		return rc;
	*dev = vnic_nic_device(device);
	for (unsigned i = 0; i < ENGINES; i++) {
		context[i] = vnic_nic_context(device, i);
		look(i, "context", context[i], sizeof(struct vnic_context));
	}
	return 0;
}

static int
look_at_nic(const struct nic_spec *spec, char *error, size_t size)
{
	struct nic_context *context[ENGINES];
	struct nic_device *dev;
	int rc = spec->verbs ? open_verbs(spec, &dev, context, error, size)
			     : open_ethdev(spec, &dev, context, error, size);

	if (rc)
		return rc;
	printf("driver %s\n", NIC_OPS(dev)->driver);
	for (unsigned i = 0; i < ENGINES && !rc; i++) {
		struct nic_qp_init init = {.type = NIC_RC, .send_wrs = SENDS};
		struct nic_qp *qp;

		rc = NIC_OPS(dev)->srq_create(context[i], RECEIVES, &init.srq);
		if (!rc)
			rc = NIC_OPS(dev)->qp_create(context[i], &init, &qp);
		if (rc)
			break;
		/* each is of one piece, and this the least that it has */
		look(i, "shared receive queue", init.srq, RECEIVES * sizeof(uint64_t));
		look(i, "queue pair", qp, SENDS * sizeof(uint64_t));
		NIC_OPS(dev)->qp_destroy(qp);
		NIC_OPS(dev)->srq_destroy(init.srq);
	}
	NIC_OPS(dev)->close(dev);
	snprintf(error, size, "no queues: %s", strerror(-rc));
	return rc;
}

int
main(int argc, char **argv)
{
	struct nic_spec spec;
	char error[256];
	int dashes = 1, rc;

	while (dashes < argc && strcmp(argv[dashes], "--"))
		dashes++;
	if (argc - dashes < 3)
		return 2;
	rc = eal_setup("numa", dashes, argv, error, sizeof(error));
	nodes[1] = (int)strtoul(argv[dashes + 1], NULL, 10);
	for (int i = dashes + 2; i < argc && !rc; i++) {
		rc = options_parse_nic(&spec, argv[i], error, sizeof(error));
		if (!rc)
			rc = look_at_nic(&spec, error, sizeof(error));
	}
	if (rc)
		fprintf(stderr, "numa_probe: %s\n", error);
	eal_teardown("numa");
	printf("%u looked at, %u wrong\n", looked_at, wrong);
	return rc || wrong;
}
