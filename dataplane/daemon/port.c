/* SPDX-License-Identifier: BSD-3-Clause */
/* The ports of a data plane: the differences between DPDK ports and verbs devices. */
#include "nic/inject/fault.h"
#include "nic_config.h"
#include "plane.h"
#include "munmap_guard.h"
#include "base/monotonic.h"
#include "ipc/invariant.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RESTART_LOOK_NS 200000000ull /* ns between two looks at a port that is down */

/* A context of a port is engine context * ports + port. */
static void
port_wake(void *user, unsigned context)
{
	struct plane_port *port = user;
	struct plane *p = port->plane;
	unsigned engine = context * p->ports + port->index;

	weir_assert(engine < p->engines);
	loop_wake(p->engine[engine].loop);
}

static int
open_ethdev(struct plane *p, unsigned index, unsigned contexts, char *error, size_t size)
{
	const struct options *o = p->options;
	struct ethdev_config config = nic_config_ethdev(&o->nic[index]);

	config.contexts = contexts;
	config.interrupts = o->idle == IDLE_ADAPTIVE;
	/* during a repair a link has its old QPs beside the new ones; so have datagrams */
	config.max_qp = 4 * (uint32_t)o->links + 2;
	/* adopted memory, exports; arenas: a part per engine, and the send heap; per engine receive
	 * buffers, the word of fences, and datagrams; five of a link */
	config.max_mr =
	    (uint32_t)(o->most[USER_REGIONS] + PLANE_EXPORT_KEYS +
		       o->max_sessions * (contexts + 1) + contexts * (5 * o->links + 3));
	config.cq_depth =
	    4 * (uint32_t)o->links * ENGINE_SEND_WRS + plane_srq_depth(p) + 3 * ENGINE_DATAGRAMS;
	config.tx_frames = (uint32_t)o->tx_frames;
	config.wake = port_wake;
	config.user = &p->port[index];
	for (unsigned c = 0; c < contexts; c++)
		config.numa_socket[c] = p->engine[c * o->nics + index].numa_socket;
	return ethdev_open(&config, &p->port[index].ethdev, error, size);
}

static int
open_verbs(struct plane *p, unsigned index, unsigned contexts, char *error, size_t size)
{
	struct vnic_config config = nic_config_verbs(&p->options->nic[index]);

	config.contexts = contexts;
	config.recv_depth = plane_srq_depth(p) + ENGINE_DATAGRAMS;
	for (unsigned c = 0; c < contexts; c++)
		config.numa_socket[c] = p->engine[c * p->options->nics + index].numa_socket;
	return vnic_open(&config, &p->port[index].verbs, error, size);
}

int
plane_port_open(struct plane *p, unsigned index, char *error, size_t size)
{
	unsigned nics = p->options->nics, contexts = (p->engines - index + nics - 1) / nics;
	struct nic_context *context[PLANE_ENGINES_MAX];
	struct plane_port *port = &p->port[index];
	struct nic_fault_config fault = {
	    .every_ns = p->options->nic[index].fault_ms * UINT64_C(1000000),
	    .region = p->options->peer_ring,
	    .now = monotonic_ns,
	};
	int rc;

	weir_assert(index < nics && contexts && !port->plane);
	port->plane = p;
	port->index = index;
	rc = p->options->nic[index].verbs ? open_verbs(p, index, contexts, error, size)
					  : open_ethdev(p, index, contexts, error, size);
	if (rc)
		return rc;
	if (fault.every_ns) {
		for (unsigned c = 0; c < contexts; c++)
			context[c] = plane_port_context(port, c);
		port->fault = nic_fault_attach(plane_port_device(port), context, contexts, &fault);
		if (!port->fault)
			return -ENOMEM;
	}
	for (unsigned c = 0; c < contexts; c++) {
		p->engine[c * nics + index].port = (int)index;
		p->engine[c * nics + index].context = c;
	}
	return 0;
}

void
plane_port_close(struct plane_port *port)
{
	ethdev_close(port->ethdev);
	vnic_close(port->verbs);
	nic_fault_free(port->fault);
	port->fault = NULL;
	port->ethdev = NULL;
	port->verbs = NULL;
}

struct nic_device *
plane_port_device(const struct plane_port *port)
{
	weir_assert(!port->verbs != !port->ethdev);
	return port->verbs ? vnic_nic_device(port->verbs) : ethdev_device(port->ethdev);
}

struct nic_context *
plane_port_context(const struct plane_port *port, unsigned context)
{
	return port->verbs ? vnic_nic_context(port->verbs, context)
			   : ethdev_context(port->ethdev, context);
}

void
plane_port_describe(const struct plane_port *port, struct plane_port_info *info)
{
	const struct nic_spec *spec = &port->plane->options->nic[port->index];
	bool six = !IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)spec->gid.raw);
	char ip[INET6_ADDRSTRLEN], vlan[32] = "", impaired[96];
	struct vnic_info verbs;
	struct ethdev_info is;

	memset(info, 0, sizeof(*info));
	if (port->verbs) {
		vnic_describe(port->verbs, &verbs);
		snprintf(info->name, sizeof(info->name), "%s", verbs.name);
		snprintf(info->text, sizeof(info->text), "%s, driver verbs, %s", verbs.name,
			 verbs.text);
		info->numa_socket = verbs.numa_socket;
		info->table_bytes = verbs.table_bytes;
		return;
	}
	ethdev_describe(port->ethdev, &is);
	inet_ntop(six ? AF_INET6 : AF_INET, spec->gid.raw + (six ? 0 : 12), ip, sizeof(ip));
	if (spec->vlan)
		snprintf(vlan, sizeof(vlan), ", VLAN %u priority %u", spec->vlan, spec->pcp);
	impair_text(&is.impair, impaired, sizeof(impaired));
	snprintf(info->name, sizeof(info->name), "%s", is.name);
	snprintf(
	    info->text, sizeof(info->text),
	    "%s, driver %s, %s/%u%s, %02x:%02x:%02x:%02x:%02x:%02x, path MTU %u, %u rx and %u tx "
	    "queues, %s, NUMA socket %d%s%s",
	    is.name, is.driver, ip, spec->prefix, vlan, is.mac[0], is.mac[1], is.mac[2], is.mac[3],
	    is.mac[4], is.mac[5], is.mtu, is.rx_queues, is.tx_queues, is.help, is.numa_socket,
	    *impaired ? ", IMPAIRED on purpose: " : "", impaired);
	info->numa_socket = is.numa_socket;
	info->frames = is.frames;
	info->frames_free = is.frames_free;
	info->pool_bytes = is.pool_bytes;
	info->table_bytes = is.table_bytes;
}

uint64_t
plane_restart_ports(struct plane *p)
{
	uint64_t now = clock_now(&p->clock), next = UINT64_MAX;

	for (unsigned i = 0; i < p->ports; i++) {
		struct ethdev_port *port = p->port[i].ethdev;

		if (!port || !ethdev_wants_restart(port))
			continue;
		next = RESTART_LOOK_NS;
		if (now - p->ports_seen < RESTART_LOOK_NS)
			continue;
		ethdev_park(port);
		rte_rcu_qsbr_synchronize(p->quiet, RTE_QSBR_THRID_INVALID);
		/* a handshake of memif on that thread must not meet the restart */
		quiet_hold_interrupts();
		ethdev_restart(port);
		quiet_release_interrupts();
	}
	if (now - p->ports_seen >= RESTART_LOOK_NS)
		p->ports_seen = now;
	return next;
}
