/* SPDX-License-Identifier: BSD-3-Clause */
/* GIDs and their addresses. */
#include "address.h"
#include "device.h"

enum address_kind
roce_address(const struct nic_gid *gid, struct address *address)
{
	const struct address mapped = {0, 0xffffull << 32};
	struct address a = get_address(gid->raw);

	if (a.high == mapped.high && (a.low & mapped.low) == mapped.low && a.low >> 48 == 0) {
		*address = (struct address){0, (uint32_t)a.low};
		return address->low != 0 ? ADDRESS_IP4 : ADDRESS_NONE;
	}
	*address = a;
	/* no node has multicast, ::, ::1 and IPv4-compatible addresses */
	return a.high >> 56 == 0xff || a.high == 0 ? ADDRESS_NONE : ADDRESS_IP6;
}

bool
roce_on_link(const struct roce_device *dev, struct address ip)
{
	unsigned bits = dev->config.prefix;

	if (bits == 0)
		return true;
	ip.high ^= dev->address.high;
	ip.low ^= dev->address.low;
	if (!dev->headers.six)
		return ip.low >> (32 - bits) == 0;
	if (bits <= 64)
		return ip.high >> (64 - bits) == 0;
	return ip.high == 0 && ip.low >> (128 - bits) == 0;
}

bool
roce_next_hop(const struct roce_device *dev, const struct nic_gid *gid, struct address *hop)
{
	const struct nic_route *best = NULL;

	roce_address(gid, hop);
	if (roce_on_link(dev, *hop))
		return true;
	for (unsigned i = 0; i < dev->config.route_count; i++) {
		const struct nic_route *r = &dev->config.routes[i];

		if ((!best || r->bits > best->bits) &&
		    nic_gid_same(gid->raw, r->network.raw, r->bits))
			best = r;
	}
	if (best)
		roce_address(&best->gateway, hop);
	return best;
}

unsigned
roce_front(const struct roce_config *config)
{
	struct address ip;
	bool six = roce_address(&config->gid, &ip) == ADDRESS_IP6;

	return (six ? IP6_BYTES - IP_BYTES : 0) + (config->vlan ? VLAN_BYTES : 0);
}
