/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MAC addresses of peers: requests and the QPs that wait, for either kind of address; and ARP
 * (RFC 826). For our address and for the peers of our QPs only.
 */
#include "arp.h"
#include "nd.h"
#include "transmit.h"

#define ARP_GAP_NS 2000000u		       /* between requests for one address */
#define ARP_ETHERNET_IP4 0x0001080006040000ull /* hardware, protocol, lengths; operation 0 */

static void
send_arp(struct roce_context *ctx, uint16_t operation, const uint8_t *to_mac, uint32_t to_ip)
{
	static const uint8_t everyone[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	static const uint8_t nobody[6];
	const struct roce_device *dev = ctx->dev;
	uint8_t *data, *arp;
	void *frame = roce_frame_take(ctx);

	if (frame == NULL)
		return;
	data = roce_frame_data(ctx, frame);
	arp = data + ETH_BYTES;
	memset(data, 0, ETH_MIN);
	roce_frame_ethernet(dev, data, to_mac ? to_mac : everyone);
	put16(arp - 2, ETH_TYPE_ARP);
	put64(arp, ARP_ETHERNET_IP4 | operation);
	memcpy(arp + 8, dev->config.mac, 6);
	put32(arp + 14, (uint32_t)dev->address.low);
	memcpy(arp + 18, to_mac ? to_mac : nobody, 6);
	put32(arp + 24, to_ip);
	roce_frame_send(ctx, frame, ETH_MIN, false);
}

void
roce_arp_ask(struct roce_context *ctx, struct neighbour *n, uint64_t now)
{
	uint64_t asked = atomic_load_explicit(&n->asked, memory_order_relaxed);

	if (asked != 0 && now - asked < ARP_GAP_NS)
		return;
	/* `| 1`: the clock may begin at 0. If this fails, another engine has just asked */
	if (!atomic_compare_exchange_strong(&n->asked, &asked, now | 1))
		return;
	if (ctx->dev->headers.six)
		roce_nd_ask(ctx, neighbour_address(n));
	else
		send_arp(ctx, 1, NULL, (uint32_t)neighbour_address(n).low);
}

void
roce_arp_learn(struct roce_context *ctx, struct neighbour *n, struct address ip, const uint8_t *mac)
{
	bool known = neighbour_known(n);
	struct list_node *l, *following;

	roce_neighbour_learn(n, ip, mac);
	if (known)
		return;
	/* QPs of this engine go on at once; others find the MAC at their next timer */
	LIST_EACH (l, following, &ctx->timers) {
		struct roce_qp *qp = LIST_OWNER(l, struct roce_qp, timer);

		if ((qp->ud || qp->neighbour == n) && qp->rq.built != qp->rq.posted &&
		    !qp->rq.rnr_wait)
			roce_requester_wake(qp);
	}
}

enum drop
roce_arp_input(struct roce_context *ctx, const uint8_t *frame)
{
	const uint8_t *arp = frame + ETH_BYTES;
	uint32_t operation, source = get32(arp + 14), own = (uint32_t)ctx->dev->address.low;
	struct address from = {0, source};
	struct neighbour *n;

	operation = (uint32_t)(get64(arp) ^ ARP_ETHERNET_IP4);
	if ((get64(arp) & ~0xffffull) != ARP_ETHERNET_IP4 || operation < 1 || operation > 2)
		return DROP_not_ours;
	n = source == own ? NULL : roce_neighbour_find(&ctx->dev->neighbours, from);
	if (n)
		roce_arp_learn(ctx, n, from, arp + 8);
	if (operation == 1 && get32(arp + 24) == own) {
		/* a group address as sender would make us flood the network */
		if ((arp[8] & 1) == 0)
			send_arp(ctx, 2, arp + 8, source);
		return DROP_NONE;
	}
	return n ? DROP_NONE : DROP_not_ours;
}
