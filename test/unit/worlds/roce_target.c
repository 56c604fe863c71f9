/* SPDX-License-Identifier: BSD-3-Clause */
#include "roce_target.h"

#include "nic/roce/ack.h"

#include "nic/roce/srq.h"

static void
keep_data(struct world *w, const uint8_t *f, uint32_t length)
{
	uint32_t at = EXT_AT + (w->opcode == RC_READ_RESPONSE_MIDDLE ? 0 : AETH_BYTES);
	uint32_t n = length - at - ICRC_BYTES - (f[BTH_AT + 1] >> 4 & 3);

	assert_true(w->data_bytes + n <= sizeof(w->data));
	memcpy(w->data + w->data_bytes, f + at, n);
	w->data_bytes += n;
}

static bool
see(struct net *n, const uint8_t *f, uint32_t length)
{
	struct world *w = n->tap_user;

	if (get16(f + 12) != ETH_TYPE_IP)
		return false;
	w->answers++;
	w->opcode = f[BTH_AT];
	w->psn = get32(f + BTH_AT + 8) & PSN_MASK;
	w->syndrome = f[EXT_AT];
	w->solicited += (f[BTH_AT + 1] & BTH_SOLICITED) != 0;
	if (w->opcode >= RC_READ_RESPONSE_FIRST && w->opcode <= RC_READ_RESPONSE_ONLY)
		keep_data(w, f, length);
	return false;
}

struct world *
world_create(void)
{
	struct roce_config config = {.mtu = MTU, .cq_depth = 2048, .max_wr = 64};
	struct world *w = calloc(1, sizeof(*w));
	struct nic_device *dev;

	w->net = net_create(1, 1, &config, 1);
	w->net->tap = see;
	w->net->tap_user = w;
	w->port = &w->net->node[0].port[0];
	dev = roce_nic_device(w->net->node[0].dev);
	memset(w->memory, FILL, sizeof(w->memory));
	roce_ops.mr_reg(dev, w->memory + MEMORY, MEMORY, ALL, &w->mr);
	roce_ops.mr_reg(dev, w->receive, sizeof(w->receive), NIC_LOCAL_WRITE, &w->receive_mr);
	for (unsigned i = 0; i < MEMORY; i++)
		w->payload[i] = (uint8_t)(i * 11 + 3);
	return w;
}

void
world_destroy(struct world *w)
{
	net_destroy(w->net);
	free(w);
}

void
make_qp(struct world *w, enum nic_qp_state state)
{
	struct nic_qp_init init = {
	    .type = NIC_RC, .send_wrs = 16, .srq = w->port->srq, .user = w->port};
	struct nic_qp_attr attr = {.state = NIC_QP_INIT,
				   .remote_gid = net_gid(net_ip(1)),
				   .remote_qpn = 17,
				   .remote_psn = PSN,
				   .psn = PSN,
				   .access = ALL,
				   .rd_atomic = 4};
	uint8_t mac[6];

	assert_int_equal(roce_ops.qp_create(roce_nic_context(w->port->ctx), &init, &w->qp), 0);
	for (; attr.state <= state && attr.state <= NIC_QP_SQD; attr.state++)
		assert_int_equal(roce_ops.qp_modify(w->qp, &attr), 0);
	if (state >= NIC_QP_RTR) {
		frame_mac(1, mac);
		roce_neighbour_learn(((struct roce_qp *)w->qp)->neighbour, net_address(net_ip(1)),
				     mac);
	}
	if (state == NIC_QP_ERR) {
		attr.state = NIC_QP_ERR;
		assert_int_equal(roce_ops.qp_modify(w->qp, &attr), 0);
	}
	if (state >= NIC_QP_SQD)
		net_turn(w->net);
}

void
end_qp(struct world *w)
{
	struct roce_srq *srq = (struct roce_srq *)w->port->srq;
	struct nic_async_event event;

	roce_ops.qp_destroy(w->qp);
	net_turn(w->net);
	net_turn(w->net);
	while (roce_ops.async_event(roce_nic_device(w->net->node[0].dev), &event) == 0)
		;
	srq->taken = srq->freed = srq->posted;
	w->port->wcs = 0;
	w->answers = w->solicited = 0;
	w->data_bytes = 0;
}

bool
has_reth(uint8_t op)
{
	return op == RC_WRITE_FIRST || op == RC_WRITE_ONLY || op == RC_WRITE_ONLY_IMM ||
	       op == RC_READ_REQUEST;
}

bool
is_atomic(uint8_t op)
{
	return op == RC_CMP_SWAP || op == RC_FETCH_ADD;
}

bool
is_send(uint8_t op)
{
	return op <= RC_SEND_ONLY_IMM || op == RC_SEND_LAST_INV || op == RC_SEND_ONLY_INV;
}

bool
is_write(uint8_t op)
{
	return op >= RC_WRITE_FIRST && op <= RC_WRITE_ONLY_IMM;
}

bool
is_request(uint8_t op)
{
	return is_send(op) || is_write(op) || op == RC_READ_REQUEST || is_atomic(op);
}

bool
begins(uint8_t op)
{
	return op == RC_SEND_FIRST || op == RC_SEND_ONLY || op == RC_SEND_ONLY_IMM ||
	       op == RC_SEND_ONLY_INV || has_reth(op) || is_atomic(op);
}

bool
goes_on(uint8_t op)
{
	return op == RC_SEND_FIRST || op == RC_SEND_MIDDLE || op == RC_WRITE_FIRST ||
	       op == RC_WRITE_MIDDLE;
}

static bool
has_imm(uint8_t op)
{
	return op == RC_SEND_LAST_IMM || op == RC_SEND_ONLY_IMM || op == RC_WRITE_LAST_IMM ||
	       op == RC_WRITE_ONLY_IMM || op == RC_SEND_LAST_INV || op == RC_SEND_ONLY_INV;
}

bool
is_answer(uint8_t op)
{
	return op >= RC_READ_RESPONSE_FIRST && op <= RC_ATOMIC_ACK;
}

bool
is_reserved(uint8_t op)
{
	return op == 0x15 || (op >= 0x18 && op <= 0x1f);
}

bool
is_known(uint8_t op)
{
	return is_reserved(op) || is_request(op) || is_answer(op) || op == UD_SEND_ONLY ||
	       op == UD_SEND_ONLY_IMM || op == ROCE_CNP;
}

struct craft
craft(struct world *w, uint8_t op, uint32_t psn)
{
	struct craft c = net_craft(1, 0, op, nic_qpn(w->qp), psn);

	c.ack_request = true;
	c.payload = w->payload;
	c.length = 64;
	c.reth = has_reth(op);
	c.atomic = is_atomic(op);
	c.swap_add = c.compare = 0x0101010101010101u * FILL;
	c.swap_add ^= 1;
	c.immediate = has_imm(op);
	c.imm = op == RC_SEND_LAST_INV || op == RC_SEND_ONLY_INV ? w->gone.rkey : 0x1234;
	c.aeth = is_answer(op) && op != RC_READ_RESPONSE_MIDDLE;
	c.syndrome = AETH(AETH_ACK, AETH_UNLIMITED);
	c.value = op == RC_ATOMIC_ACK;
	c.address = w->mr.address + 512;
	c.rkey = w->mr.rkey;
	if (goes_on(op) || op == RC_READ_RESPONSE_FIRST || op == RC_READ_RESPONSE_MIDDLE)
		c.length = MTU;
	if (op == RC_READ_REQUEST || c.atomic || op == RC_ACK || op == RC_ATOMIC_ACK)
		c.length = 0;
	c.dma_length = op == RC_WRITE_FIRST ? 2 * MTU + 64 : 64;
	if (op == UD_SEND_ONLY)
		c.length = 64 + 8;
	if (op == UD_SEND_ONLY_IMM)
		c.length = 64 + 12;
	if (op == ROCE_CNP)
		c.length = CNP_BYTES;
	return c;
}

void
give(struct world *w, const struct craft *c, bool spoil)
{
	uint8_t f[ROCE_FRAME_MAX(4096) + 64];
	uint32_t n = craft_frame(c, f);

	if (spoil)
		f[n - 1] ^= 0x10;
	net_inject(w->net, 0, f, n);
	net_turn(w->net);
	net_run(w->net, ROCE_ACK_LAZY_NS); /* all answers have left */
}
