/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames into the protocol core. The input is a list of steps: a frame as it is, a frame whose
 * addresses, lengths, key and checksums are made right so that it reaches a QP, a post, time. The
 * QPs are in different states and in the middle of messages.
 */
#include "fuzz.h"

#include "nic/roce/read_requester.h"
#include "nic/roce/transmit.h"
#include "worlds/roce_craft.h"

#include <errno.h>
#include <stdlib.h>

#define QPS 9u
#define EVERYTHING (NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC | NIC_REMOTE_INVALIDATE)
#define STEPS 64u
#define QKEY 0x01020304u
#define BUFFER 4096u

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

struct frame {
	int refs;
	uint8_t data[ROCE_FRAME_MAX(256)];
};

struct world {
	struct roce_device *dev;
	struct roce_context *ctx;
	struct nic_srq *srq;
	struct nic_qp *qp[QPS];
	uint8_t *memory, *receive, *answers;
	struct nic_mr mr, recv_mr, answers_mr;
	uint64_t now;
	int frames;
};

static unsigned
fuzz_alloc(void *user, void **frames, unsigned n)
{
	struct world *w = user;

	for (unsigned i = 0; i < n; i++) {
		struct frame *f = calloc(1, sizeof(*f));

		CHECK(f);
		f->refs = 1;
		w->frames++;
		frames[i] = f;
	}
	return n;
}

static void
fuzz_drop(void *user, void *const *frames, unsigned n)
{
	struct world *w = user;

	for (unsigned i = 0; i < n; i++) {
		struct frame *f = frames[i];

		CHECK(f->refs == 1);
		w->frames--;
		free(f);
	}
}

static void
fuzz_send(void *user, void *frame, uint32_t length, bool keep)
{
	struct world *w = user;
	struct packet p;

	CHECK(length <= sizeof(((struct frame *)frame)->data));
	/* what we send, we must understand ourselves */
	CHECK(roce_packet_decode(((struct frame *)frame)->data, length, &w->dev->headers, &p) ==
	      DROP_NONE);
	if (!keep)
		fuzz_drop(user, &frame, 1);
}

static unsigned
fuzz_room(void *user)
{
	return 64;
}

static unsigned
fuzz_receive(void *user, struct roce_context *ctx, uint64_t now)
{
	return 0;
}

static void
fuzz_flush(void *user, uint64_t now)
{
}

static const struct roce_wire wire = {
    .data_offset = offsetof(struct frame, data),
    .alloc = fuzz_alloc,
    .drop = fuzz_drop,
    .send = fuzz_send,
    .room = fuzz_room,
    .receive = fuzz_receive,
    .flush = fuzz_flush,
};

static struct nic_qp_attr
attr_of(const struct world *w, unsigned i, enum nic_qp_state state)
{
	return (struct nic_qp_attr){.state = state,
				    .remote_gid = craft_gid(w->dev->headers.six, 0x0a000002),
				    .remote_qpn = 17,
				    .remote_psn = i == 1 ? 0xfffffe : 1000,
				    .psn = i == 1 ? 0xffffff : 1000,
				    .qkey = QKEY,
				    .rd_atomic = i == 1 ? 1 : 4,
				    .access = i == 2   ? NIC_REMOTE_READ
					      : i == 3 ? 0
						       : EVERYTHING};
}

static void
make_qp(struct world *w, unsigned i)
{
	static const uint8_t states[QPS] = {NIC_QP_RTS, NIC_QP_RTS,   NIC_QP_RTS,
					    NIC_QP_RTR, NIC_QP_INIT,  NIC_QP_ERR,
					    NIC_QP_RTS, NIC_QP_RESET, NIC_QP_SQD};
	struct nic_qp_init init = {.type = i == 6 ? NIC_UD : NIC_RC, .send_wrs = 8, .srq = w->srq};
	struct nic_qp_attr attr = attr_of(w, i, NIC_QP_INIT);

	CHECK(roce_ops.qp_create(roce_nic_context(w->ctx), &init, &w->qp[i]) == 0);
	while (attr.state <= states[i] && attr.state <= NIC_QP_SQD) {
		CHECK(roce_ops.qp_modify(w->qp[i], &attr) == 0);
		attr.state++;
	}
	if (states[i] == NIC_QP_ERR) {
		attr.state = NIC_QP_ERR;
		CHECK(roce_ops.qp_modify(w->qp[i], &attr) == 0);
	}
}

static void
post(struct world *w, uint8_t how)
{
	struct nic_recv_wr recv = {
	    .sge = {w->recv_mr.address + how, how % 4 * 100u, w->recv_mr.lkey}};
	struct nic_send_wr send = {.opcode = how / 8 % (NIC_SEND_INV + 1),
				   .flags = NIC_SIGNALED | (how & 0x80 ? NIC_FENCE : 0),
				   .sge_count = 2,
				   .remote_address = 8,
				   .rkey = 6};

	/* in two parts, into memory of its own: answers must not reach the rest */
	send.sge[0] = (struct nic_sge){w->answers_mr.address, 8, w->answers_mr.lkey};
	send.sge[1] = (struct nic_sge){w->answers_mr.address + 8, how * 7u, w->answers_mr.lkey};
	if (send.opcode == NIC_CMP_SWAP || send.opcode == NIC_FETCH_ADD)
		send.sge[1].length = 0;

	roce_ops.post_srq_recv(w->srq, &recv, 1);
	nic_post_send(w->qp[how % QPS], &send, 1);
}

/* kind: 1 IPv6, 2 VLAN tag */
static void
make_world(struct world *w, unsigned kind)
{
	struct roce_config config = {.gid = craft_gid(kind & 1, 0x0a000001),
				     .vlan = kind & 2 ? 77 : 0,
				     .mac = {2, 0, 0, 0, 0, 1},
				     .mtu = 256,
				     .max_qp = 16,
				     .max_mr = 4,
				     .rd_atomic = 4,
				     .cq_depth = 256,
				     .max_wr = 8,
				     .window_frames = 16,
				     .neighbours = 4};

	*w = (struct world){.now = 1000};
	w->dev = roce_device_create(&config);
	CHECK(w->dev);
	w->ctx = roce_context_create(w->dev, 0, &wire, w);
	CHECK(w->ctx);
	w->memory = malloc(BUFFER);
	w->receive = malloc(BUFFER);
	CHECK(roce_ops.mr_reg(roce_nic_device(w->dev), w->memory, BUFFER, EVERYTHING, &w->mr) == 0);
	w->answers = malloc(BUFFER);
	CHECK(roce_ops.mr_reg(roce_nic_device(w->dev), w->answers, BUFFER, NIC_LOCAL_WRITE,
			      &w->answers_mr) == 0);
	CHECK(roce_ops.mr_reg(roce_nic_device(w->dev), w->receive, BUFFER, NIC_LOCAL_WRITE,
			      &w->recv_mr) == 0);
	CHECK(roce_ops.srq_create(roce_nic_context(w->ctx), 1, &w->srq) == 0);
	for (unsigned i = 0; i < QPS; i++)
		make_qp(w, i);
	roce_neighbour_learn(((struct roce_qp *)w->qp[0])->neighbour,
			     w->dev->headers.six ? (struct address){0xfe80ull << 48, 0x0a000002}
						 : (struct address){0, 0x0a000002},
			     (const uint8_t[6]){2, 0, 0, 0, 0, 2});
	/* something is under way, and there is room for something */
	for (unsigned i = 0; i < QPS; i++)
		post(w, (uint8_t)(i + 100));
}

static void
end_world(struct world *w)
{
	struct nic_counters c;
	uint64_t drops = 0;

	roce_ops.counters(roce_nic_context(w->ctx), &c);
#define X(name, help) drops += c.drop_##name;
	NIC_DROP_REASONS(X)
#undef X
	drops -= c.drop_impaired + c.drop_tx_full + c.drop_no_neighbour;
	CHECK(c.rx_frames == c.rx_accepted + drops);
	roce_device_destroy(w->dev);
	CHECK(w->frames == 0);
	free(w->memory);
	free(w->answers);
	free(w->receive);
}

/* Everything that a stranger could know is made right; what is left is up to the input. */
static void
make_reachable(struct world *w, uint8_t *f, uint32_t n, uint8_t how)
{
	struct roce_qp *qp = (struct roce_qp *)w->qp[how % QPS];
	uint32_t psn = get32(f + BTH_AT + 8);
	bool answer;

	if ((how & 0x20) && qp->ud) {
		f[BTH_AT] = UD_SEND_ONLY + f[BTH_AT] % 2;
		if (n >= EXT_AT + 8)
			put32(f + EXT_AT, QKEY);
	} else if (how & 0x20) { /* an opcode that there is */
		f[BTH_AT] %= RC_SEND_ONLY_INV + 1;
	}
	answer = f[BTH_AT] >= RC_READ_RESPONSE_FIRST && f[BTH_AT] <= RC_ATOMIC_ACK;
	memcpy(f, w->dev->config.mac, 6);
	put16(f + 12, ETH_TYPE_IP);
	f[IP_AT] = 0x45;
	put16(f + IP_AT + 6, 0);
	f[IP_AT + 9] = 17;
	put32(f + IP_AT + 12, n % 16 == 5 ? 0 : 0x0a000002);
	put32(f + IP_AT + 16, 0x0a000001);
	put16(f + UDP_AT + 2, ROCE_UDP_PORT);
	f[BTH_AT + 1] &= 0xf0;
	put16(f + BTH_AT + 2, ROCE_PKEY);
	put32(f + BTH_AT + 4, qp->head.qpn);
	/* PSNs near what is expected: mostly exactly that; answers to READs, and what was before */
	psn = (answer ? (f[BTH_AT] == RC_ACK ? qp->rq.una : roce_read_next_psn(&qp->rq))
		      : qp->rs.expected) +
	      (psn % 4 == 3   ? psn >> 2
	       : psn % 8 == 2 ? 0u - (psn >> 3) % 8
			      : 0);
	put32(f + BTH_AT + 8, (psn & PSN_MASK) | (uint32_t)f[BTH_AT + 8] << 24);
	if ((how & 0x40) && n >= EXT_AT + RETH_BYTES) {
		uint64_t at = get64(f + EXT_AT) % (BUFFER + 64);

		put64(f + EXT_AT, w->mr.address + (how & 0x10 ? at & ~7ull : at));
		put32(f + EXT_AT + 8, w->mr.rkey);
	}
	if ((how & 0x80) && n >= EXT_AT + RETH_BYTES + ICRC_BYTES)
		put32(f + EXT_AT + 12, n - EXT_AT - RETH_BYTES - ICRC_BYTES);
	craft_fix(f, n);
}

static void
give_frame(struct world *w, const uint8_t *data, uint32_t n, bool reachable, uint8_t how)
{
	uint8_t *f = malloc(n + 1), *dressed, *exact;

	memcpy(f, data, n);
	if (reachable && n >= EXT_AT + ICRC_BYTES)
		make_reachable(w, f, n, how);
	dressed = malloc(n + FRONT_MAX + 1);
	if (reachable)
		n = craft_dress(&w->dev->headers, f, n, dressed);
	else
		memcpy(dressed, f, n);
	exact = malloc(n ? n : 1); /* a sanitizer sees what is read behind its end */
	memcpy(exact, dressed, n);
	CHECK(roce_input(w->ctx, exact, n, w->now) == ROCE_DONE);
	free(exact);
	free(dressed);
	free(f);
}

/* A message of neighbour discovery in which much is right. */
static void
give_nd(struct world *w, const uint8_t *data, uint32_t n, uint8_t how)
{
	uint32_t front = w->dev->headers.front, length = front + UDP_AT + n;
	uint8_t *f = calloc(1, length), *nd = f + front + UDP_AT, *ip = nd - IP6_BYTES;
	struct nic_gid own = craft_gid(true, 0x0a000001), peer = craft_gid(true, 0x0a000002);

	memcpy(nd, data, n);
	roce_frame_ethernet(w->dev, f + front, (const uint8_t[6]){0x33, 0x33, 0xff, 0, 0, 1});
	put32(ip, 6u << 28);
	put16(ip + 4, (uint16_t)n);
	ip[6] = 58;
	ip[7] = how & 1 ? 64 : 255;
	if (how & 2)
		memcpy(ip + 8, peer.raw, 16);
	memcpy(ip + 24, own.raw, 16);
	if (n >= 24) {
		nd[0] = 135 + (how >> 2 & 1);
		nd[1] = 0;
		if (how & 8)
			memcpy(nd + 8, nd[0] == 135 ? own.raw : peer.raw, 16);
		craft_icmp6(ip);
	}
	CHECK(roce_input(w->ctx, f, length, w->now) == ROCE_DONE);
	free(f);
}

static void
turn(struct world *w, uint64_t ns)
{
	struct nic_wc wc[32];
	bool busy = false;

	w->now += ns;
	nic_poll(roce_nic_context(w->ctx), wc, 32, w->now, &busy);
	nic_flush(roce_nic_context(w->ctx), w->now);
}

/* A QP dies, another is made. */
static void
again(struct world *w, unsigned i)
{
	roce_ops.qp_destroy(w->qp[i]);
	turn(w, 1);
	make_qp(w, i);
	turn(w, 1);
}

/* Any state is asked for; what there isn't is refused. */
static void
change(struct world *w, uint8_t how)
{
	struct nic_qp_attr attr = attr_of(w, how % QPS, how / QPS % 7);
	int rc = roce_ops.qp_modify(w->qp[how % QPS], &attr);

	CHECK(rc == 0 || rc == -EINVAL || rc == -EAGAIN);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w;

	make_world(&w, size ? data[size - 1] & 3 : 0);
	turn(&w, 1);
	for (unsigned step = 0; step < STEPS && size >= 3; step++) {
		uint8_t what = data[0], how = data[1];
		uint32_t n = data[2] * 4u + (what >> 6);

		data += 3;
		size -= 3;
		if (n > size)
			n = (uint32_t)size;
		switch (what % 8) {
		case 0:
			give_frame(&w, data, n, false, how);
			break;
		case 1:
			turn(&w, UINT64_C(1) << how % 34);
			n = 0;
			break;
		case 2:
			if (what & 0x80)
				again(&w, how % QPS);
			else if (what & 0x40)
				change(&w, how);
			else
				post(&w, how);
			n = 0;
			break;
		case 3:
			if (w.dev->headers.six) {
				give_nd(&w, data, n, how);
				break;
			}
			/* fall through */
		default:
			give_frame(&w, data, n, true, how);
			break;
		}
		data += n;
		size -= n;
		if (what & 0x20)
			turn(&w, 1000);
	}
	end_world(&w);
	return 0;
}
