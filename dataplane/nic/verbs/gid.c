/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GID: the requested one, or of those for RoCE v2 the first IPv4 address, else the first IPv6
 * address, else the link-local one. A wrong index is the most frequent problem of RDMA users, so
 * the choice is logged, and an error lists all GIDs.
 */
#include "internal.h"

#include "base/fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GIDS_MAX 512u

struct gids {
	struct ibv_gid_entry entry[GIDS_MAX];
	unsigned count; /* of our port */
};

static bool
is_v4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static const char *
gid_text(const union ibv_gid *gid, char *text, size_t size)
{
	bool v4 = is_v4(gid);

	return inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid->raw + 12 : gid->raw, text,
			 (socklen_t)size);
}

static const char *
type_text(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return "InfiniBand";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	}
	return "unknown";
}

/* The highest is chosen; 0: unusable. */
static unsigned
merit(const struct vnic_device *dev, const struct ibv_gid_entry *e)
{
	static const struct nic_gid any;
	const struct vnic_config *c = &dev->config;

	if (c->gid_index != VNIC_GID_ANY)
		return e->gid_index == (uint32_t)c->gid_index;
	if (!dev->ethernet)
		return e->gid_index == 0 ? 2 : 1;
	if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
		return 0;
	if (memcmp(&c->gid, &any, sizeof(any)))
		return !memcmp(&c->gid, e->gid.raw, sizeof(c->gid));
	if (is_v4(&e->gid))
		return 3;
	return e->gid.raw[0] == 0xfe && (e->gid.raw[1] & 0xc0) == 0x80 ? 1 : 2;
}

static int
refuse_gid(const struct vnic_device *dev, const struct gids *g, char *error, size_t size)
{
	const struct vnic_config *c = &dev->config;
	char all[256] = "none", text[INET6_ADDRSTRLEN];
	union ibv_gid gid;
	size_t at = 0;

	/* "0 fe80::1 (RoCE v2), 1 10.0.0.1 (RoCE v2)" */
	for (unsigned i = 0; i < g->count && at < sizeof(all); i++)
		at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%u %s (%s)", i ? ", " : "",
				       g->entry[i].gid_index,
				       gid_text(&g->entry[i].gid, text, sizeof(text)),
				       type_text(g->entry[i].gid_type));
	memcpy(gid.raw, c->gid.raw, sizeof(gid.raw));
	if (c->gid_index != VNIC_GID_ANY)
		return fail(error, size, -ENODEV,
			    "verbs:%s port %u has no GID index %d; leave gid= out, or choose "
			    "of: %s",
			    dev->name, dev->port, c->gid_index, all);
	if (!dev->ethernet)
		return fail(error, size, -ENODEV,
			    "verbs:%s port %u has no GID; see that a subnet manager runs",
			    dev->name, dev->port);
	if (c->gid.raw[15] || c->gid.raw[0])
		return fail(error, size, -ENODEV,
			    "verbs:%s port %u has no RoCE v2 GID %s; give its interface that "
			    "address, or choose with gid= of: %s",
			    dev->name, dev->port, gid_text(&gid, text, sizeof(text)), all);
	return fail(error, size, -ENODEV,
		    "verbs:%s port %u has no RoCE v2 GID; give its interface an address "
		    "(ip addr add), it has: %s",
		    dev->name, dev->port, all);
}

int
vnic_choose_gid(struct vnic_device *dev, const struct ibv_port_attr *attr, char *error, size_t size)
{
	const struct ibv_gid_entry *best = NULL;
	static struct gids g; /* main only */
	ssize_t n = ibv_query_gid_table(dev->ctx, g.entry, GIDS_MAX, 0);
	char text[INET6_ADDRSTRLEN], lid[32] = "";

	if (n < 0)
		return fail(error, size, (int)n,
			    "the GIDs of verbs:%s can't be read: %s; update rdma-core", dev->name,
			    strerror((int)-n));
	g.count = 0;
	for (ssize_t i = 0; i < n; i++)
		if (g.entry[i].port_num == dev->port)
			g.entry[g.count++] = g.entry[i];
	for (unsigned i = 0; i < g.count; i++) {
		const struct ibv_gid_entry *e = &g.entry[i];

		if (merit(dev, e) && (!best || merit(dev, e) > merit(dev, best)))
			best = e;
	}
	if (!best)
		return refuse_gid(dev, &g, error, size);
	if (dev->ethernet && best->gid_type != IBV_GID_TYPE_ROCE_V2)
		return fail(error, size, -ENODEV,
			    "verbs:%s: GID index %u is for RoCE v1, which no peer speaks; "
			    "leave gid= out to have one for v2 found",
			    dev->name, best->gid_index);
	dev->gid_index = (int)best->gid_index;
	memcpy(dev->gid.raw, best->gid.raw, sizeof(dev->gid.raw));
	if (!dev->ethernet)
		snprintf(lid, sizeof(lid), "LID %u, ", attr->lid);
	snprintf(dev->chosen, sizeof(dev->chosen), "port %u, %sGID index %u of %u: %s (%s)",
		 dev->port, lid, best->gid_index, g.count, gid_text(&best->gid, text, sizeof(text)),
		 type_text(best->gid_type));
	return 0;
}
