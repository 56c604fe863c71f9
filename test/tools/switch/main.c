/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-switch: start, loop, idling, end. See weir-switch(1). */
#define _GNU_SOURCE
#include "switch.h"

#include "base/log.h"
#include "daemon/eal_setup.h"
#include "base/fail.h"
#include "daemon/munmap_guard.h"
#include "tools/tool.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_mbuf.h>
#include <rte_pause.h>
#include <rte_version.h>

#define DESCRIPTORS 1024u
#define FRAMES_MORE 1024u /* beside those in queues: bursts, the pool's cache */
#define POOL_CACHE 256u
#define MEMIF_BUFFER 2048u  /* of memif, unless bsize= says otherwise */
#define FRAME_MIN 1518u	    /* any port carries these */
#define ROOM_MIN 2048u	    /* what drivers want of a buffer */
#define LINK_NS 10000000u   /* looks for ports that came or went so often */
#define SPIN_NS 100000u	    /* ns without frames before it sleeps */
#define YIELD_NS 30000u	    /* others on the CPU run so often */
#define SLEEP_MIN_NS 50000u /* first sleep; doubles */
#define SLEEP_MAX_NS 2000000u
#define EMPTY_TURNS 20u /* at least, before a sleep */

/* Signal handlers set them, the loop clears them. */
static _Atomic bool stop, tell;

static void
on_signal(int number)
{
	atomic_store(number == SIGUSR1 ? &tell : &stop, true);
}

static void
catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- ports ---- */

/* Bytes of the longest frame: a memif's buffer, of which a frame has one. */
static uint32_t
frame_max(const struct rte_eth_dev_info *info)
{
	const struct rte_devargs *devargs = rte_dev_devargs(info->device);
	const char *at = devargs && devargs->args ? strstr(devargs->args, "bsize=") : NULL;

	if (strcmp(info->driver_name, "net_memif"))
		return RTE_MIN(RTE_MAX(info->max_rx_pktlen, FRAME_MIN), 9018u);
	return at ? (uint32_t)strtoul(at + 6, NULL, 0) : MEMIF_BUFFER;
}

/*
 * One size for all. A byte less than memif's own buffers: with equal ones its driver allocates 32
 * for each burst, however short. Longer frames come in pieces, and are dropped.
 */
static int
make_pool(struct ether_switch *sw, char *error, size_t size)
{
	unsigned frames = sw->ports * sw->options->queue + FRAMES_MORE;
	uint32_t room = ROOM_MIN;

	for (unsigned i = 0; i < sw->ports; i++)
		room = RTE_MAX(room, sw->port[i].frame_max);
	room = RTE_MIN(room, (uint32_t)UINT16_MAX - RTE_PKTMBUF_HEADROOM) - 1;
	sw->pool = rte_pktmbuf_pool_create("switch", frames, POOL_CACHE, 0,
					   (uint16_t)(room + RTE_PKTMBUF_HEADROOM), SOCKET_ID_ANY);
	return sw->pool ? 0
			: fail(error, size, -ENOMEM,
			       "no memory for %u frames of %u bytes; give more (-m MB) or lower "
			       "--queue",
			       frames, room);
}

static int
find_ports(struct ether_switch *sw, char *error, size_t size)
{
	uint16_t id;

	RTE_ETH_FOREACH_DEV(id)
	{
		struct switch_port *port = &sw->port[sw->ports];
		struct rte_eth_dev_info info;

		if (rte_eth_dev_info_get(id, &info) || rte_eth_dev_get_name_by_port(id, port->name))
			continue;
		port->id = id;
		port->frame_max = frame_max(&info);
		sw->ports++;
	}
	return sw->ports ? 0
			 : fail(error, size, -ENODEV,
				"there is no port; give --vdev=net_memif0,role=server,... for each "
				"node before --");
}

static int
start_port(struct ether_switch *sw, struct switch_port *port, char *error, size_t size)
{
	struct rte_eth_conf conf = {0};
	uint16_t rx = DESCRIPTORS, tx = DESCRIPTORS;
	uint32_t cells = 1;
	int rc = rte_eth_dev_configure(port->id, 1, 1, &conf);

	if (!rc)
		rc = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx, &tx);
	if (!rc)
		rc = rte_eth_rx_queue_setup(port->id, 0, rx, SOCKET_ID_ANY, NULL, sw->pool);
	if (!rc)
		rc = rte_eth_tx_queue_setup(port->id, 0, tx, SOCKET_ID_ANY, NULL);
	if (!rc)
		rc = rte_eth_dev_start(port->id);
	if (rc)
		return fail(error, size, rc, "port %s does not start: %s; see --log-level=8",
			    port->name, rte_strerror(-rc));
	port->started = true;
	rte_eth_promiscuous_enable(port->id); /* memif needs none and has none */
	while (cells < sw->options->queue)
		cells *= 2;
	port->queue.frames = calloc(cells, sizeof(*port->queue.frames));
	port->queue.cells = cells;
	port->queue.limit = sw->options->queue;
	return port->queue.frames
		   ? 0
		   : fail(error, size, -ENOMEM, "no memory for a queue; lower --queue");
}

static int
open_ports(struct ether_switch *sw, char *error, size_t size)
{
	int rc = find_ports(sw, error, size);

	if (!rc)
		rc = make_pool(sw, error, size);
	for (unsigned i = 0; i < sw->ports && !rc; i++)
		rc = start_port(sw, &sw->port[i], error, size);
	return rc;
}

static void
close_ports(struct ether_switch *sw)
{
	quiet_hold_interrupts();
	for (unsigned i = 0; i < sw->ports; i++) {
		struct switch_port *port = &sw->port[i];

		if (port->queue.frames)
			switch_empty(sw, port);
		if (port->started)
			rte_eth_dev_stop(port->id);
		rte_eth_dev_close(port->id);
		free(port->queue.frames);
	}
	rte_mempool_free(sw->pool);
}

/* ---- the loop ---- */

static void
sleep_for(struct ether_switch *sw)
{
	struct timespec t = {.tv_nsec = (long)sw->sleep_ns};

	rte_rcu_qsbr_thread_offline(sw->quiet, 0);
	nanosleep(&t, NULL);
	rte_rcu_qsbr_thread_online(sw->quiet, 0);
	sw->sleep_ns = RTE_MIN(2 * sw->sleep_ns, (uint64_t)SLEEP_MAX_NS);
	sw->sleeps++;
}

/* Between two turns, as an engine does (loop.c). A yield that finds nobody costs little. */
static void
rest(struct ether_switch *sw, unsigned work, uint64_t now)
{
	if (work) {
		sw->last_work = now;
		sw->empty_turns = 0;
		sw->sleep_ns = SLEEP_MIN_NS;
	} else {
		sw->empty_turns++;
	}
	if (sw->options->poll) {
		rte_pause();
	} else if (!work && sw->empty_turns >= EMPTY_TURNS && now - sw->last_work >= SPIN_NS) {
		sleep_for(sw);
	} else if (!work || now - sw->yielded >= YIELD_NS) {
		sched_yield();
		sw->yielded = clock_now(&sw->clock);
	}
}

static void
run(struct ether_switch *sw)
{
	uint64_t period = sw->options->period * UINT64_C(1000000000), now = clock_now(&sw->clock);

	sw->began = sw->reported = sw->last_work = now;
	sw->began_cpu = sw->reported_cpu = switch_cpu_ns();
	sw->sleep_ns = SLEEP_MIN_NS;
	rte_rcu_qsbr_thread_online(sw->quiet, 0);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		now = clock_now(&sw->clock);
		rest(sw, switch_turn(sw, now), now);
		if (now - sw->link_checked >= LINK_NS) {
			switch_check_links(sw);
			sw->link_checked = now;
		}
		if ((period && now - sw->reported >= period) ||
		    (atomic_load_explicit(&tell, memory_order_relaxed) &&
		     atomic_exchange(&tell, false)))
			switch_report(sw, now, stdout);
		rte_rcu_qsbr_quiescent(sw->quiet, 0);
	}
	rte_rcu_qsbr_thread_offline(sw->quiet, 0);
	switch_report(sw, clock_now(&sw->clock), stdout);
}

static int
start(const struct switch_options *o, int eal_argc, char **argv)
{
	static struct ether_switch sw;
	char instance[32], error[512];
	int rc;

	sw.options = o;
	snprintf(instance, sizeof(instance), "switch-%d", (int)getpid());
	catch_signals();
	rc = eal_setup(instance, eal_argc, argv, error, sizeof(error));
	if (rc)
		goto out;
	clock_start(&sw.clock);
	switch_table_init(&sw.table, o->age);
	sw.quiet = quiet_create(1);
	if (!sw.quiet || rte_rcu_qsbr_thread_register(sw.quiet, 0))
		rc = fail(error, sizeof(error), -ENOMEM, "no memory; give more (-m MB)");
	if (!rc)
		rc = open_ports(&sw, error, sizeof(error));
	if (rc == -ENODEV)
		eal_explain(error, sizeof(error));
	if (!rc) {
		log_info("up, %u port%s", sw.ports, sw.ports == 1 ? "" : "s");
		run(&sw);
	}
	close_ports(&sw);
	if (sw.quiet)
		quiet_destroy(sw.quiet);
	eal_teardown(instance);
out:
	if (rc)
		log_error("%s", error);
	return tool_exit_code(rc);
}

int
main(int argc, char **argv)
{
	static struct switch_options o;
	char error[256];
	int dashes = tool_split(argc, argv), rc;

	rc = switch_options_parse(&o, argc - dashes, argv + dashes, error, sizeof(error));
	if (!rc && o.help) {
		option_print_help(&switch_option_table, stdout);
		return TOOL_OK;
	}
	if (!rc && o.version) {
		printf("weir-switch " WEIR_VERSION " (%s)\n", rte_version());
		return TOOL_OK;
	}
	if (rc) {
		log_error("%s", error);
		return TOOL_USAGE;
	}
	return start(&o, dashes ? dashes : 1, argv);
}
