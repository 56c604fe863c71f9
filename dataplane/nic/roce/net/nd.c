/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbour discovery (RFC 4861): solicitations and advertisements for our address and for the
 * peers of our QPs. Not for routers, redirects and the search for duplicates.
 */
#include "nd.h"
#include "arp.h"
#include "transmit.h"

enum {
	ND_SOLICIT = 135,
	ND_ADVERTISE = 136,
	ND_BYTES = 24,	  /* type, code, checksum, flags, target */
	ND_OPTION = 8,	  /* one with a MAC; all are multiples of it */
	ND_SOURCE = 1,	  /* option: MAC of the asking node */
	ND_TARGET = 2,	  /* option: MAC of the target */
	ND_HOPS = 255,	  /* not passed on by a router */
	ND_PROTOCOL = 58, /* ICMPv6 */
};
#define ND_SOLICITED 0x40000000u
#define ND_OVERRIDE 0x20000000u

static const struct address all_nodes = {0xff02ull << 48, 1};

/* The solicited-node group of an address: of all that end like it. */
static struct address
group_of(struct address ip)
{
	return (struct address){0xff02ull << 48, 0x1ff000000u | (ip.low & 0xffffff)};
}

static bool
is_group(struct address ip)
{
	return ip.high >> 56 == 0xff;
}

/* Checksum over addresses, length, protocol and payload; 0xffff if the packet's own is right. */
static uint16_t
sum_of(const uint8_t *ip)
{
	uint32_t length = get16(ip + 4), end = IP6_BYTES + length, sum = length + ND_PROTOCOL;

	for (uint32_t at = 8; at + 1 < end; at += 2)
		sum += get16(ip + at);
	if (length & 1)
		sum += (uint32_t)ip[end - 1] << 8;
	return ip_fold(sum);
}

static void
send_nd(struct roce_context *ctx, uint8_t type, uint32_t flags, struct address target,
	struct address to, const uint8_t *mac)
{
	uint8_t group[6] = {0x33, 0x33}, *data, *ip, *nd;
	struct roce_device *dev = ctx->dev;
	void *frame = roce_frame_take(ctx);

	if (frame == NULL)
		return;
	data = roce_frame_data(ctx, frame);
	ip = data + IP6_AT;
	nd = data + UDP_AT;
	put32(group + 2, (uint32_t)to.low);
	roce_frame_ethernet(dev, data, is_group(to) ? group : mac);
	put32(ip, 6u << 28);
	put16(ip + 4, ND_BYTES + ND_OPTION);
	ip[6] = ND_PROTOCOL;
	ip[7] = ND_HOPS;
	put_address(ip + 8, dev->address);
	put_address(ip + 24, to);
	put32(nd, (uint32_t)type << 24);
	put32(nd + 4, flags);
	put_address(nd + 8, target);
	nd[ND_BYTES] = type == ND_SOLICIT ? ND_SOURCE : ND_TARGET;
	nd[ND_BYTES + 1] = 1;
	memcpy(nd + ND_BYTES + 2, dev->config.mac, 6);
	put16(nd + 2, (uint16_t)~sum_of(ip));
	roce_frame_send(ctx, frame, UDP_AT + ND_BYTES + ND_OPTION, false);
}

void
roce_nd_ask(struct roce_context *ctx, struct address ip)
{
	send_nd(ctx, ND_SOLICIT, 0, ip, group_of(ip), NULL);
}

/* The MAC in the first option of that type, or NULL. False: malformed options. */
static bool
find_mac(const uint8_t *at, const uint8_t *end, uint8_t type, const uint8_t **mac)
{
	*mac = NULL;
	while (at != end) {
		if (end - at < ND_OPTION || at[1] == 0 || end - at < at[1] * ND_OPTION)
			return false;
		if (at[0] == type && *mac == NULL)
			*mac = at + 2;
		at += at[1] * ND_OPTION;
	}
	return true;
}

static enum drop
solicited(struct roce_context *ctx, const uint8_t *frame, const struct packet *p,
	  struct address target, const uint8_t *mac)
{
	struct roce_device *dev = ctx->dev;
	struct address own = dev->address;
	bool nobody = p->source.low == 0 && p->source.high == 0;
	struct neighbour *n;

	if (nobody && (mac || !address_same(p->dest, group_of(target))))
		return DROP_bad_ip;
	if (!address_same(target, own) || address_same(p->source, own))
		return DROP_not_ours;
	if (nobody) { /* another node is about to take our address */
		send_nd(ctx, ND_ADVERTISE, ND_OVERRIDE, own, all_nodes, NULL);
		return DROP_NONE;
	}
	n = mac ? roce_neighbour_find(&dev->neighbours, p->source) : NULL;
	if (n)
		roce_arp_learn(ctx, n, p->source, mac);
	if (mac == NULL)
		mac = frame - dev->headers.front + 6;
	/* a group address as sender would make us flood the network */
	if ((mac[0] & 1) == 0)
		send_nd(ctx, ND_ADVERTISE, ND_SOLICITED | ND_OVERRIDE, own, p->source, mac);
	return DROP_NONE;
}

enum drop
roce_nd_input(struct roce_context *ctx, const uint8_t *frame, const struct packet *p)
{
	const uint8_t *ip = frame + IP6_AT, *nd = frame + UDP_AT, *mac;
	uint32_t flags = get32(nd + 4), length = get16(ip + 4);
	struct neighbour *n;
	struct address target;

	/* the decoder has checked that `length` bytes are there */
	if (length < ND_BYTES)
		return DROP_too_short;
	if (nd[0] != ND_SOLICIT && nd[0] != ND_ADVERTISE)
		return DROP_not_ours;
	target = get_address(nd + 8);
	if (ip[7] != ND_HOPS || nd[1] != 0 || is_group(target) || sum_of(ip) != 0xffff ||
	    !find_mac(nd + ND_BYTES, nd + length, nd[0] == ND_SOLICIT ? ND_SOURCE : ND_TARGET,
		      &mac))
		return DROP_bad_ip;
	if (nd[0] == ND_SOLICIT)
		return solicited(ctx, frame, p, target, mac);
	if ((flags & ND_SOLICITED) && is_group(p->dest))
		return DROP_bad_ip;
	n = roce_neighbour_find(&ctx->dev->neighbours, target);
	if (n == NULL || address_same(target, ctx->dev->address))
		return DROP_not_ours;
	if (mac && ((flags & ND_OVERRIDE) || !neighbour_known(n)))
		roce_arp_learn(ctx, n, target, mac);
	return DROP_NONE;
}
