/* SPDX-License-Identifier: BSD-3-Clause */
#include "internal.h"
#include "flow.h"

#include "base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rte_epoll.h>
#include <rte_malloc.h>

#define RX_DESCRIPTORS 1024u
#define TX_DESCRIPTORS 1024u
#define POOL_CACHE 256u

static void *
core_memory_get(void *user, unsigned context, size_t bytes)
{
	struct ethdev_port *port = user;
	int socket = context == ROCE_ALL ? port->numa_socket : port->config.numa_socket[context];
	void *memory = port->config.memory_get(port->config.user, bytes, socket);

	if (memory)
		port->table_bytes += bytes;
	return memory;
}

static void
core_memory_put(void *user, void *memory, size_t bytes)
{
	struct ethdev_port *port = user;

	port->config.memory_put(port->config.user, memory, bytes);
}

static bool
core_link_up(void *user)
{
	struct ethdev_port *port = user;
	struct rte_eth_link link;

	if (port->info.if_index && !ethdev_interface_up(port->info.if_index))
		return false;
	return rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status;
}

static int
core_async_event(void *user, struct nic_async_event *event)
{
	struct ethdev_port *port = user;
	bool up = core_link_up(port);

	if (up == port->link_was_up)
		return -EAGAIN;
	port->link_was_up = up;
	event->type = up ? NIC_EVENT_LINK_UP : NIC_EVENT_LINK_DOWN;
	event->qp_user = NULL;
	return 0;
}

static void
core_close(void *user)
{
	ethdev_close(user);
}

static int
find_port(struct ethdev_port *port, char *error, size_t size)
{
	const char *name = port->config.port;
	char list[256] = "", one[RTE_ETH_NAME_MAX_LEN], *end;
	unsigned long number;
	uint16_t id;

	if (rte_eth_dev_get_port_by_name(name, &port->id) == 0)
		return 0;
	number = strtoul(name, &end, 10);
	if (*name >= '0' && *name <= '9' && !*end && number < RTE_MAX_ETHPORTS &&
	    rte_eth_dev_is_valid_port((uint16_t)number)) {
		port->id = (uint16_t)number;
		return 0;
	}
	RTE_ETH_FOREACH_DEV(id)
	{
		size_t used = strlen(list);

		if (rte_eth_dev_get_name_by_port(id, one) == 0)
			snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", one);
	}
	if (*list)
		return fail(error, size, -ENODEV,
			    "no DPDK port '%s'; give one of %s, or make it with --vdev or -a", name,
			    list);
	return fail(error, size, -ENODEV,
		    "no DPDK port '%s'; make it with --vdev=%s,... or -a PCI-ADDRESS; if that "
		    "is there, --log-level=pmd:8 says what the driver lacks",
		    name, name);
}

static int
make_pools(struct ethdev_port *port, uint32_t room, char *error, size_t size)
{
	uint32_t each =
	    port->config.tx_frames + ETHDEV_TX + ETHDEV_HAND + ETHDEV_WARM + 2 * POOL_CACHE;
	char name[RTE_MEMPOOL_NAMESIZE];

	if (impair_wanted(&port->config.impair))
		each += IMPAIR_HELD;
	room += RTE_PKTMBUF_HEADROOM;
	for (unsigned i = 0; i < port->config.contexts; i++) {
		int numa_socket = port->config.numa_socket[i];
		uint32_t frames = port->tx_queues * TX_DESCRIPTORS;

		for (unsigned j = 0; j < i && !port->pool[i]; j++)
			if (port->config.numa_socket[j] == numa_socket)
				port->pool[i] = port->pool[j];
		if (port->pool[i])
			continue;
		/* frames that contexts on this NUMA socket may have in use; any of them may wait in
		 * a transmit queue */
		for (unsigned j = 0; j < port->config.contexts; j++)
			if (port->config.numa_socket[j] == numa_socket)
				frames += each + (j < port->rx_queues ? RX_DESCRIPTORS : 0);
		port->frames += frames;
		snprintf(name, sizeof(name), "weir-frames-%u-%d", port->id, numa_socket);
		port->pool[i] = rte_pktmbuf_pool_create(name, frames, POOL_CACHE, 0, (uint16_t)room,
							numa_socket);
		if (!port->pool[i] && numa_socket != SOCKET_ID_ANY)
			port->pool[i] = rte_pktmbuf_pool_create(name, frames, POOL_CACHE, 0,
								(uint16_t)room, SOCKET_ID_ANY);
		if (!port->pool[i])
			return fail(
			    error, size, -ENOMEM,
			    "no memory for %u frames of %u bytes of port %s; give more (-m MB, "
			    "hugepages) or lower --tx-frames",
			    frames, room, port->name);
	}
	return 0;
}

static bool
is_six(const struct ethdev_port *port)
{
	return port->front > RTE_VLAN_HLEN;
}

static int
configure(struct ethdev_port *port)
{
	struct rte_eth_conf conf = {0};
	uint16_t rx = RX_DESCRIPTORS, tx = TX_DESCRIPTORS;
	uint64_t types = is_six(port) ? RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_UDP
				      : RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_UDP;
	int rc;

	types &= port->info.flow_type_rss_offloads;
	if (port->rx_queues >= 2 && types) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = types;
	}
	/* The port neither adds nor removes tags: they are in the template of each QP's headers,
	 * and captures see them. */
	conf.rxmode.offloads = (is_six(port) ? 0 : RTE_ETH_RX_OFFLOAD_IPV4_CKSUM) |
			       (port->config.vlan ? RTE_ETH_RX_OFFLOAD_VLAN_FILTER : 0);
	conf.rxmode.offloads &= port->info.rx_offload_capa;
	port->checked = conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
	conf.intr_conf.rxq = port->config.interrupts;
	rc = rte_eth_dev_configure(port->id, port->rx_queues, port->tx_queues, &conf);
	if (rc && port->config.interrupts) {
		conf.intr_conf.rxq = 0;
		rc = rte_eth_dev_configure(port->id, port->rx_queues, port->tx_queues, &conf);
	}
	if (rc)
		return rc;
	port->configured = true;
	rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx, &tx);
	port->rx_depth = rx;
	port->tx_depth = tx;
	for (uint16_t q = 0; q < port->rx_queues && !rc; q++)
		rc = rte_eth_rx_queue_setup(port->id, q, rx, port->config.numa_socket[q], NULL,
					    port->pool[q]);
	for (uint16_t q = 0; q < port->tx_queues && !rc; q++)
		rc = rte_eth_tx_queue_setup(port->id, q, tx, port->config.numa_socket[q], NULL);
	return rc;
}

static bool
is_memif_client(const struct ethdev_port *port)
{
	const struct rte_devargs *devargs = rte_dev_devargs(port->info.device);

	/* client is the default role */
	return strcmp(port->info.driver_name, "net_memif") == 0 && devargs &&
	       (!devargs->args || !strstr(devargs->args, "role=server"));
}

bool
ethdev_wants_restart(const struct ethdev_port *port)
{
	return is_memif_client(port) && !core_link_up((void *)(uintptr_t)port);
}

void
ethdev_park(struct ethdev_port *port)
{
	/* partner: parked() in wire.c */
	atomic_store(&port->parked, true);
}

void
ethdev_restart(struct ethdev_port *port)
{
	if (port->started)
		rte_eth_dev_stop(port->id);
	port->started = rte_eth_dev_start(port->id) == 0;
	atomic_store(&port->parked, false);
}

static int
start(struct ethdev_port *port, char *error, size_t size)
{
	struct ethdev_flow_config flow = {.engines = port->config.contexts,
					  .queues = port->rx_queues,
					  .six = is_six(port),
					  .vlan = port->config.vlan != 0};
	const uint8_t *raw = port->config.gid.raw;
	struct rte_ether_addr group = {{0x33, 0x33, 0xff, raw[13], raw[14], raw[15]}};
	uint16_t mtu;
	int rc = configure(port);

	if (rc)
		return fail(error, size, rc, "port %s can't be set up: %s; see --log-level=8",
			    port->name, rte_strerror(-rc));
	/* a NIC: frames of the path MTU must fit */
	if (!port->info.if_index && port->config.mtu && rte_eth_dev_get_mtu(port->id, &mtu) == 0 &&
	    mtu < ethdev_ip_max(port, port->mtu) &&
	    port->info.max_rx_pktlen > ethdev_frame_max(port, port->mtu))
		rte_eth_dev_set_mtu(port->id, (uint16_t)ethdev_ip_max(port, port->mtu));
	rc = rte_eth_dev_start(port->id);
	if (rc && is_memif_client(port))
		return 0; /* its server may come later */
	if (rc)
		return fail(error, size, rc, "port %s does not start: %s; see --log-level=8",
			    port->name, rte_strerror(-rc));
	port->started = true;
	/*
	 * Requests that only a started port takes; all are optional. Neighbour discovery asks a
	 * group that our address belongs to; a port without any of these calls has no filter.
	 */
	if (is_six(port) && rte_eth_dev_set_mc_addr_list(port->id, &group, 1) &&
	    rte_eth_allmulticast_enable(port->id))
		rte_eth_promiscuous_enable(port->id);
	if (port->config.vlan && (port->info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER))
		rte_eth_dev_vlan_filter(port->id, port->config.vlan, 1);
	port->steered = ethdev_flow_create(port->id, &flow, port->rules);
	for (unsigned i = 0; i < port->config.contexts; i++) {
		port->context[i]->checked = port->checked;
		port->context[i]->shares = port->config.contexts > 1;
	}
	return 0;
}

static struct ethdev_ring *
make_ring(struct ethdev_port *port, unsigned to)
{
	struct ethdev_ring *r = core_memory_get(port, to, sizeof(*r));

	if (r)
		spsc_init(&r->ring, r->cells, ETHDEV_HAND);
	return r;
}

/* Event fd of the context's receive queue; -1 where the port has no interrupts. */
static int
open_interrupt(struct ethdev_port *port, uint16_t queue)
{
	int fd, rc, log = rte_log_register("lib.ethdev"), level = rte_log_get_level(log);

	if (!port->config.interrupts || queue == ETHDEV_NO_QUEUE)
		return -1;
	fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0)
		return -1;
	/* a port without them is no reason to log */
	rte_log_set_level(log, RTE_LOG_CRIT);
	rc = rte_eth_dev_rx_intr_ctl_q(port->id, queue, fd, RTE_INTR_EVENT_ADD, NULL);
	rte_log_set_level(log, level);
	if (rc) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The context holds back up to `room` frames from now on. 0 or -ENOMEM. */
static int
begin_impair(struct ethdev_context *c, uint32_t room)
{
	struct impair_frame *held = core_memory_get(c->port, c->id, IMPAIR_HELD * sizeof(*held));

	if (!held)
		return -ENOMEM;
	impair_init(&c->impair, &c->port->config.impair, c->id, held, room);
	atomic_store_explicit(&c->impaired, true, memory_order_release);
	return 0;
}

int
ethdev_impair(struct ethdev_port *port, const struct impair_config *impair)
{
	int rc = 0;

	port->config.impair = *impair;
	for (unsigned i = 0; i < port->config.contexts && !rc; i++) {
		struct ethdev_context *c = port->context[i];

		if (atomic_load_explicit(&c->impaired, memory_order_relaxed))
			impair_set(&c->impair, impair);
		else if (impair_wanted(impair))
			rc = begin_impair(c, ETHDEV_LATE_HELD);
	}
	return rc;
}

/* Contexts, and rings between them: from each receive queue's owner to all, to each transmit
 * queue's owner. */
static int
make_contexts(struct ethdev_port *port)
{
	for (unsigned id = 0; id < port->config.contexts; id++) {
		struct ethdev_context *c = core_memory_get(port, id, sizeof(*c));

		if (!c)
			return -ENOMEM;
		port->context[id] = c;
		c->port = port;
		c->id = id;
		c->frame_at = (uint16_t)(ETHDEV_FRAME_AT - port->front);
		c->rx_queue = id < port->rx_queues ? (uint16_t)id : ETHDEV_NO_QUEUE;
		c->tx_queue = id < port->tx_queues ? (uint16_t)id : ETHDEV_NO_QUEUE;
		c->rx_fd = -1;
		c->pool = port->pool[id];
		if (impair_wanted(&port->config.impair) && begin_impair(c, IMPAIR_HELD))
			return -ENOMEM;
	}
	for (unsigned to = 0; to < port->config.contexts; to++)
		for (unsigned from = 0; from < port->rx_queues; from++)
			if (from != to && !(port->context[to]->rx_in[from] = make_ring(port, to)))
				return -ENOMEM;
	for (unsigned from = port->tx_queues; from < port->config.contexts; from++) {
		struct ethdev_context *owner = port->context[from % port->tx_queues];

		owner->tx_in[from] = make_ring(port, owner->id);
		if (!owner->tx_in[from])
			return -ENOMEM;
		port->context[from]->tx_to = owner->tx_in[from];
	}
	return 0;
}

static int
make_core(struct ethdev_port *port)
{
	const struct ethdev_config *config = &port->config;
	struct roce_wire wire = ethdev_wire;
	struct roce_config core = {
	    .gid = config->gid,
	    .prefix = config->prefix,
	    .route_count = config->route_count,
	    .vlan = config->vlan,
	    .pcp = config->pcp,
	    .mtu = port->mtu,
	    .contexts = config->contexts,
	    .numa_socket = port->numa_socket,
	    .max_qp = config->max_qp,
	    .max_mr = config->max_mr,
	    .neighbours = config->max_qp > 2048 ? config->max_qp / 2 : 0, /* 2 QPs per peer */
	    .cq_depth = config->cq_depth,
	    .tx_frames = config->tx_frames,
	    .timeout_ns = config->timeout_ns,
	    .retry = config->retry,
	    .rnr_retry = config->rnr_retry,
	    .rd_atomic = config->rd_atomic,
	    .memory_get = core_memory_get,
	    .memory_put = core_memory_put,
	    .link_up = core_link_up,
	    .async_event = core_async_event,
	    .close = core_close,
	    .user = port,
	};

	memcpy(core.routes, config->routes, sizeof(core.routes));
	wire.data_offset -= port->front;
	memcpy(core.name, port->name, sizeof(core.name));
	memcpy(core.mac, port->mac, sizeof(core.mac));
	port->roce = roce_device_create(&core);
	if (!port->roce)
		return -errno;
	for (unsigned i = 0; i < config->contexts; i++) {
		struct ethdev_context *c = port->context[i];

		c->roce = roce_context_create(port->roce, i, &wire, c);
		if (!c->roce)
			return -errno;
		c->counters = roce_counters(c->roce);
	}
	return 0;
}

int
ethdev_open(const struct ethdev_config *config, struct ethdev_port **out, char *error, size_t size)
{
	struct ethdev_port *port = calloc(1, sizeof(*port));
	unsigned queues = config->queues ? config->queues : config->contexts;
	const char *icrc = getenv("WEIR_ICRC"); /* for tests and measurements */
	struct rte_ether_addr address;
	uint32_t room;
	bool memif;
	int rc;

	if (!port)
		return fail(error, size, -ENOMEM, "no memory for port %s; free some", config->port);
	port->config = *config;
	port->front =
	    (uint16_t)roce_front(&(struct roce_config){.gid = config->gid, .vlan = config->vlan});
	port->link_was_up = true; /* else the first event would say so */
	rc = icrc ? roce_icrc_choose(icrc) : 0;
	if (rc == -EINVAL)
		fail(error, size, rc,
		     "invalid value '%s' for WEIR_ICRC (expected avx512, vpclmul, pclmul or isal)",
		     icrc);
	else if (rc)
		fail(error, size, rc, "this CPU lacks the instructions of WEIR_ICRC=%s; unset it",
		     icrc);
	if (rc)
		goto err_close;
	rc = find_port(port, error, size);
	if (rc)
		goto err_close;
	rte_eth_dev_get_name_by_port(port->id, port->name);
	rc = rte_eth_dev_info_get(port->id, &port->info);
	if (rc) {
		fail(error, size, rc, "port %s can't be queried: %s; is it gone", port->name,
		     rte_strerror(-rc));
		goto err_close;
	}
	port->numa_socket = rte_eth_dev_socket_id(port->id);
	memif = strcmp(port->info.driver_name, "net_memif") == 0;
	/*
	 * Ports without an address get one made of the IP address; memif too, whose own changes at
	 * each start, so that peers would have to ask for it first.
	 */
	if (!memif && rte_eth_macaddr_get(port->id, &address) == 0 &&
	    !rte_is_zero_ether_addr(&address)) {
		memcpy(port->mac, address.addr_bytes, sizeof(port->mac));
	} else {
		port->mac[0] = 0x02;
		memcpy(port->mac + 2, config->gid.raw + 12, 4);
	}
	/*
	 * One queue per engine if the port has enough. memif has one unless asked for more: the
	 * peer decides later how many rings there are, and a ring that it lacks would swallow
	 * frames.
	 */
	if (!config->queues && memif)
		queues = 1;
	queues = RTE_MIN(queues, config->contexts);
	port->rx_queues = (uint16_t)RTE_MIN(queues, port->info.max_rx_queues);
	port->tx_queues = (uint16_t)RTE_MIN(queues, port->info.max_tx_queues);
	rc = ethdev_choose_mtu(port, &room, error, size);
	if (!rc)
		rc = make_pools(port, room, error, size);
	if (rc)
		goto err_close;
	rc = make_contexts(port);
	if (!rc)
		rc = make_core(port);
	if (rc) {
		fail(error, size, rc,
		     "no memory for the tables of port %s: %s; give more (-m MB, hugepages)",
		     port->name, strerror(-rc));
		goto err_close;
	}
	rc = start(port, error, size);
	if (rc)
		goto err_close;
	for (unsigned i = 0; i < config->contexts; i++)
		port->context[i]->rx_fd = open_interrupt(port, port->context[i]->rx_queue);
	*out = port;
	return 0;

err_close:
	ethdev_close(port);
	return rc;
}

void
ethdev_close(struct ethdev_port *port)
{
	if (!port)
		return;
	for (unsigned i = 0; i < port->config.contexts; i++) {
		struct ethdev_context *c = port->context[i];

		if (!c)
			continue;
		ethdev_wire_drain(c);
		if (c->rx_fd >= 0)
			close(c->rx_fd);
	}
	roce_device_destroy(port->roce);
	if (port->started)
		rte_eth_dev_stop(port->id);
	if (port->configured)
		rte_eth_dev_close(port->id);
	for (unsigned i = 0; i < port->config.contexts; i++) {
		struct ethdev_context *c = port->context[i];
		struct rte_mempool *pool = port->pool[i];

		for (unsigned j = 0; c && j < ETHDEV_CONTEXTS_MAX; j++) {
			if (c->rx_in[j])
				core_memory_put(port, c->rx_in[j], sizeof(*c->rx_in[j]));
			if (c->tx_in[j])
				core_memory_put(port, c->tx_in[j], sizeof(*c->tx_in[j]));
		}
		if (c && c->impair.held)
			core_memory_put(port, c->impair.held,
					IMPAIR_HELD * sizeof(*c->impair.held));
		if (c)
			core_memory_put(port, c, sizeof(*c));
		for (unsigned j = i; pool && j < port->config.contexts; j++)
			if (port->pool[j] == pool)
				port->pool[j] = NULL;
		rte_mempool_free(pool);
	}
	free(port);
}

struct nic_device *
ethdev_device(const struct ethdev_port *port)
{
	return roce_nic_device(port->roce);
}

struct nic_context *
ethdev_context(const struct ethdev_port *port, unsigned context)
{
	return roce_nic_context(port->context[context]->roce);
}

bool
ethdev_xstat(const struct ethdev_port *port, unsigned index, char *name, size_t size,
	     uint64_t *value)
{
	struct rte_eth_xstat_name names;
	int count = rte_eth_xstats_get_names(port->id, NULL, 0);
	uint64_t id = index;

	if (count < 0 || index >= (unsigned)count ||
	    rte_eth_xstats_get_names_by_id(port->id, &names, 1, &id) != 1 ||
	    rte_eth_xstats_get_by_id(port->id, &id, value, 1) != 1)
		return false;
	snprintf(name, size, "%s", names.name);
	return true;
}

void
ethdev_describe(const struct ethdev_port *port, struct ethdev_info *info)
{
	const struct rte_mempool *pool = port->pool[0];
	struct rte_eth_link link;

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", port->name);
	snprintf(info->driver, sizeof(info->driver), "%s", port->info.driver_name);
	memcpy(info->mac, port->mac, sizeof(info->mac));
	info->mtu = port->mtu;
	info->rx_queues = port->rx_queues;
	info->tx_queues = port->tx_queues;
	info->numa_socket = port->numa_socket;
	snprintf(info->help, sizeof(info->help), "%s%sICRC by %s",
		 port->checked ? "checks IP checksums, " : "",
		 port->steered ? "steers queue pairs, " : "", roce_icrc_name());
	info->rx_depth = port->rx_depth;
	info->tx_depth = port->tx_depth;
	info->frames = port->frames;
	for (unsigned i = 0; i < port->config.contexts; i++) {
		bool seen = false;

		for (unsigned j = 0; j < i && !seen; j++)
			seen = port->pool[j] == port->pool[i];
		if (!seen)
			info->frames_free += rte_mempool_avail_count(port->pool[i]);
	}
	if (rte_eth_link_get_nowait(port->id, &link) == 0 &&
	    link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		info->speed = link.link_speed;
	info->impair = port->config.impair;
	info->pool_bytes =
	    (size_t)port->frames * (pool->elt_size + pool->header_size + pool->trailer_size);
	info->table_bytes = port->table_bytes;
}
