/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of a received frame to its QP. */
#include "core.h"
#include "decode.h"
#include "icrc.h"

static void
count_drop(struct nic_counters *c, enum drop drop)
{
	static const uint16_t offsets[] = {
#define X(name, help) offsetof(struct nic_counters, drop_##name),
	    NIC_DROP_REASONS(X)
#undef X
	};

	roce_count((uint64_t *)(void *)((char *)c + offsets[drop]), 1);
}

static bool
icrc_ok(const uint8_t *frame, uint32_t icrc_at)
{
	uint32_t stored;

	memcpy(&stored, frame + icrc_at, sizeof(stored));
	return le32toh(stored) == roce_icrc(frame + IP_AT, icrc_at - IP_AT);
}

static enum drop
to_qp(struct roce_qp *qp, const uint8_t *frame, struct packet *p, uint64_t now)
{
	enum nic_qp_state state = qp_state(qp);

	if (state != NIC_QP_RTR && state != NIC_QP_RTS)
		return DROP_no_qp;
	if (p->source_ip != qp->peer_ip)
		return qp->ud ? roce_ud_input(qp, frame, p) : DROP_wrong_peer;
	if (!neighbour_known(qp->neighbour)) /* answers go back the way that the frame came */
		roce_neighbour_learn(qp->neighbour, p->source_ip, frame + 6);
	switch ((enum packet_kind)p->kind) {
	case PACKET_ACK:
		return roce_requester_ack(qp, p, now);
	case PACKET_RESPONSE:
		return roce_fetch_response(qp, p, now);
	case PACKET_SEND:
	case PACKET_WRITE:
	case PACKET_READ:
	case PACKET_ATOMIC:
		if (p->marked)
			roce_answer_congestion(qp, now);
		return roce_responder_input(qp, p);
	case PACKET_CNP:
		if (state == NIC_QP_RTS)
			roce_window_lost(&qp->rq.window, qp->rq.next);
		return DROP_NONE;
	default: /* datagrams to a connected QP */
		return DROP_bad_request;
	}
}

static int
input(struct roce_context *ctx, const uint8_t *frame, size_t length, bool handed, uint64_t now)
{
	struct roce_device *dev = ctx->dev;
	struct packet p;
	struct roce_qp *qp;
	enum drop drop = decode(frame, length, &p);

	if (drop == DROP_NONE && p.kind == PACKET_ARP) {
		drop = roce_arp_input(ctx, frame, now);
	} else if (drop == DROP_NONE) {
		unsigned engine = p.qpn & ((1u << dev->engine_bits) - 1);

		if (p.dest_ip != dev->config.ip || memcmp(frame, dev->config.mac, 6) != 0) {
			drop = DROP_not_ours;
		} else if (engine != ctx->id) {
			if (engine < dev->config.contexts && !handed)
				return (int)engine;
			drop = DROP_no_qp;
		} else {
			qp = find_qp(ctx, p.qpn);
			__builtin_prefetch(qp ? &qp->rs : NULL);
			if (!icrc_ok(frame, p.icrc_at))
				drop = DROP_bad_icrc;
			else
				drop = qp ? to_qp(qp, frame, &p, now) : DROP_no_qp;
		}
	}
	if (drop == DROP_NONE)
		roce_count(&ctx->counters.rx_accepted, 1);
	else
		count_drop(&ctx->counters, drop);
	return ROCE_DONE;
}

int
roce_input(struct roce_context *ctx, const void *data, size_t length, uint64_t now)
{
	int engine;

	roce_count(&ctx->counters.rx_frames, 1);
	roce_count(&ctx->counters.rx_bytes, length);
	engine = input(ctx, data, length, false, now);
	if (engine != ROCE_DONE)
		roce_count(&ctx->counters.handed_over, 1);
	return engine;
}

int
roce_input_handed(struct roce_context *ctx, const void *data, size_t length, uint64_t now)
{
	return input(ctx, data, length, true, now);
}
