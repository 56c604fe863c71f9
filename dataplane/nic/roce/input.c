/* SPDX-License-Identifier: BSD-3-Clause */
/* From a received frame to its QP. */
#include "ack.h"
#include "arp.h"
#include "context.h"
#include "decode.h"
#include "icrc.h"
#include "nd.h"
#include "read_requester.h"
#include "ud.h"

#define PLACE_LEAST 256u /* bytes; shorter payloads are copied after the ICRC is checked */

static const uint16_t drop_offsets[] = {
#define X(name, help) offsetof(struct nic_counters, drop_##name),
    NIC_DROP_REASONS(X)
#undef X
};

static inline bool
is_address(struct address a, struct address b, const struct headers *h)
{
	return a.low == b.low && (!h->six || a.high == b.high);
}

static inline __attribute__((always_inline)) enum drop
to_qp(struct roce_qp *qp, const uint8_t *frame, const struct headers *h, struct packet *p,
      uint64_t now)
{
	enum nic_qp_state state = qp_state(qp);

	if (!qp_orders_may_receive(state))
		return DROP_no_qp;
	if (!is_address(p->source, qp->peer, h))
		return qp->ud ? roce_ud_input(qp, frame, p) : DROP_wrong_peer;
	if (!neighbour_known(qp->neighbour)) /* answers go to the MAC that sent the frame */
		roce_neighbour_learn(qp->neighbour, p->source, frame - h->front + 6);
	switch ((enum packet_kind)p->kind) {
	case PACKET_ACK:
		return roce_requester_ack(qp, p, now);
	case PACKET_RESPONSE:
		return roce_read_response(qp, p, now);
	case PACKET_SEND:
	case PACKET_WRITE:
	case PACKET_READ:
	case PACKET_ATOMIC:
	case PACKET_RESERVED:
		if (p->marked)
			roce_ack_congestion(qp, now);
		return roce_responder_input(qp, p);
	case PACKET_CNP:
		if (state == NIC_QP_RTS)
			roce_window_marked(&qp->rq.window, qp->rq.next);
		return DROP_NONE;
	default: /* datagrams to a connected QP */
		return DROP_bad_request;
	}
}

/* Where the payload goes if that is known before the ICRC is; else NULL. */
static __attribute__((noinline)) uint8_t *
find_place(const struct roce_qp *qp, const struct headers *h, const struct packet *p)
{
	enum nic_qp_state state;

	if (qp == NULL || qp->ud || !is_address(p->source, qp->peer, h))
		return NULL;
	state = qp_state(qp);
	if (p->kind == PACKET_RESPONSE && state == NIC_QP_RTS)
		return roce_read_place(qp, p);
	return qp_orders_may_receive(state) ? roce_responder_place(qp, p) : NULL;
}

/* The ICRC; the payload is copied meanwhile if its place is known. */
static inline __attribute__((always_inline)) uint32_t
packet_icrc(bool six, const uint8_t *frame, struct packet *p, uint8_t *place)
{
	const uint8_t *from = p->payload;

	if (place == NULL)
		return frame_icrc(six, frame, p->icrc_at);
	p->payload = place;
	return frame_icrc_place(six, frame, (uint32_t)(from - frame), p->payload_length, place);
}

static inline __attribute__((always_inline)) int
input(struct roce_context *ctx, const uint8_t *data, size_t length, const struct headers *h,
      bool handed, uint64_t now)
{
	const uint8_t *frame = data + h->front;
	struct roce_device *dev = ctx->dev;
	struct packet p;
	struct roce_qp *qp;
	uint8_t *place;
	uint32_t icrc;
	enum drop drop = decode(data, length, h, &p);

	if (drop == DROP_NONE && p.kind == (h->six ? PACKET_ND : PACKET_ARP)) {
		drop = h->six ? roce_nd_input(ctx, frame, &p) : roce_arp_input(ctx, frame);
	} else if (drop == DROP_NONE) {
		unsigned engine = p.qpn & ((1u << dev->engine_bits) - 1);

		if (!is_address(p.dest, dev->address, h) || memcmp(data, dev->config.mac, 6) != 0) {
			drop = DROP_not_ours;
		} else if (engine != ctx->id) {
			if (engine < dev->config.contexts && !handed)
				return (int)engine;
			drop = DROP_no_qp;
		} else {
			qp = find_qp(ctx, p.qpn);
			__builtin_prefetch(qp ? &qp->rs : NULL);
			memcpy(&icrc, frame + p.icrc_at, sizeof(icrc));
			place = p.payload_length >= PLACE_LEAST ? find_place(qp, h, &p) : NULL;
			if (le32toh(icrc) != packet_icrc(h->six, frame, &p, place))
				drop = DROP_bad_icrc;
			else
				drop = qp ? to_qp(qp, frame, h, &p, now) : DROP_no_qp;
		}
	}
	if (drop == DROP_NONE)
		roce_count(&ctx->counters.rx_accepted, 1);
	else
		roce_count((uint64_t *)(void *)((char *)&ctx->counters + drop_offsets[drop]), 1);
	return ROCE_DONE;
}

/* Any headers. */
static __attribute__((noinline)) int
input_any(struct roce_context *ctx, const uint8_t *data, size_t length, bool handed, uint64_t now)
{
	return input(ctx, data, length, &ctx->dev->headers, handed, now);
}

/* IPv4 without a tag is the common case: compiled for it alone. `checked`: a constant. */
static inline __attribute__((always_inline)) int
input_counted(struct roce_context *ctx, const uint8_t *data, size_t length, bool checked,
	      uint64_t now)
{
	static const struct headers plain, trusted = {.checked = true};
	int engine;

	roce_count(&ctx->counters.rx_frames, 1);
	roce_count(&ctx->counters.rx_bytes, length);
	if (__builtin_expect(ctx->front != 0, 0))
		engine = input_any(ctx, data, length, false, now);
	else
		engine = input(ctx, data, length, checked ? &trusted : &plain, false, now);
	if (engine != ROCE_DONE)
		roce_count(&ctx->counters.handed_over, 1);
	return engine;
}

void
roce_prefetch(const struct roce_context *ctx, const void *data, size_t length)
{
	const uint8_t *bth = (const uint8_t *)data + ctx->front + BTH_AT;
	const struct roce_device *dev = ctx->dev;
	const struct roce_qp *qp;

	if (length < ctx->front + (size_t)EXT_AT)
		return;
	/* what is no QP's number names some QP, or none: nothing is read of it */
	qp = atomic_load_explicit(
	    &ctx->qps[get32(bth + 4) >> dev->engine_bits & ((1u << dev->index_bits) - 1)],
	    memory_order_relaxed);
	if (!qp)
		return;
	__builtin_prefetch(&qp->head);
	__builtin_prefetch(&qp->neighbour);
	__builtin_prefetch(&qp->rs);
}

int
roce_input(struct roce_context *ctx, const void *data, size_t length, uint64_t now)
{
	return input_counted(ctx, data, length, false, now);
}

int
roce_input_checked(struct roce_context *ctx, const void *data, size_t length, uint64_t now)
{
	return input_counted(ctx, data, length, true, now);
}

int
roce_input_handed(struct roce_context *ctx, const void *data, size_t length, uint64_t now)
{
	return input_any(ctx, data, length, true, now);
}
