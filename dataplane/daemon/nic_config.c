/* SPDX-License-Identifier: BSD-3-Clause */
#include "nic_config.h"

#include "memory.h"

#include <string.h>

struct ethdev_config
nic_config_ethdev(const struct nic_spec *spec)
{
	struct ethdev_config config = {
	    .port = spec->port,
	    .gid = spec->gid,
	    .prefix = spec->prefix,
	    .route_count = spec->route_count,
	    .vlan = spec->vlan,
	    .pcp = spec->pcp,
	    .mtu = spec->mtu,
	    .queues = spec->queues,
	    .impair = spec->impair,
	    .timeout_ns = spec->timeout_ns,
	    .retry = spec->retry,
	    .rnr_retry = spec->rnr,
	    .rd_atomic = spec->rd_atomic,
	    .memory_get = memory_get,
	    .memory_put = memory_put,
	};

	memcpy(config.routes, spec->routes, sizeof(config.routes));
	return config;
}

struct vnic_config
nic_config_verbs(const struct nic_spec *spec)
{
	return (struct vnic_config){
	    .device = spec->port,
	    .port = spec->port_number,
	    .gid_index = spec->gid_index,
	    .gid = spec->gid,
	    .mtu = spec->mtu,
	    .timeout_ns = spec->timeout_ns,
	    .retry = spec->retry,
	    .rnr_retry = spec->rnr,
	    .rd_atomic = spec->rd_atomic,
	    .memory_get = memory_get,
	    .memory_put = memory_put,
	};
}
