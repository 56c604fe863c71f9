/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every opcode in every state: a frame goes in, the answer is what the table of the standard says
 * (here written down once more, on its own), and memory changed exactly where it had to. For the
 * requester: every answer at every place among what is outstanding.
 */
#include "roce_craft.h"
#include "roce_net.h"

#define MTU 256u
#define PSN 0xfffffeu
#define MEMORY 4096u
#define ALL (NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC | NIC_REMOTE_INVALIDATE)
#define FILL 0x5a

enum doing { NOTHING, SENDING, WRITING }; /* the message under way when the frame comes */
enum place { EXPECTED, PAST, LONG_PAST, AHEAD, FAR_AHEAD, PLACES };
enum fault {
	SOUND,
	WRONG_KEY,
	OUTSIDE,
	LONGER, /* announced than there is */
	SHORT,	/* payload, where it may not be */
	EMPTY,
	MISALIGNED,
	WRONG_CRC,
	STRANGER, /* another source address */
	NO_RECEIVE,
	FAULTS
};

struct world {
	struct net *net;
	struct net_port *port;
	uint8_t memory[3 * MEMORY]; /* the region is the middle part */
	struct nic_mr mr, gone;
	uint8_t receive[MEMORY];
	struct nic_mr receive_mr;
	uint8_t payload[MEMORY];
	struct nic_qp *qp;
	/* what has left */
	unsigned answers;
	uint8_t opcode, syndrome;
	uint32_t psn;
};

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
	return false;
}

static struct world *
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

static void
world_destroy(struct world *w)
{
	net_destroy(w->net);
	free(w);
}

static void
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
		net_mac(1, mac);
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

/* The QP goes, and with it every completion and posted receive. */
static void
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
	w->answers = 0;
}

static bool
has_reth(uint8_t op)
{
	return op == RC_WRITE_FIRST || op == RC_WRITE_ONLY || op == RC_WRITE_ONLY_IMM ||
	       op == RC_READ_REQUEST;
}

static bool
is_atomic(uint8_t op)
{
	return op == RC_CMP_SWAP || op == RC_FETCH_ADD;
}

static bool
is_send(uint8_t op)
{
	return op <= RC_SEND_ONLY_IMM || op == RC_SEND_LAST_INV || op == RC_SEND_ONLY_INV;
}

static bool
is_write(uint8_t op)
{
	return op >= RC_WRITE_FIRST && op <= RC_WRITE_ONLY_IMM;
}

static bool
is_request(uint8_t op)
{
	return is_send(op) || is_write(op) || op == RC_READ_REQUEST || is_atomic(op);
}

static bool
begins(uint8_t op)
{
	return op == RC_SEND_FIRST || op == RC_SEND_ONLY || op == RC_SEND_ONLY_IMM ||
	       op == RC_SEND_ONLY_INV || has_reth(op) || is_atomic(op);
}

/* First or in the middle: whole frames only. */
static bool
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

static bool
is_answer(uint8_t op)
{
	return op >= RC_READ_RESPONSE_FIRST && op <= RC_ATOMIC_ACK;
}

static bool
is_known(uint8_t op)
{
	return is_request(op) || is_answer(op) || op == UD_SEND_ONLY || op == UD_SEND_ONLY_IMM ||
	       op == ROCE_CNP;
}

/* A sound frame of any opcode. */
static struct craft
craft(struct world *w, uint8_t op, uint32_t psn)
{
	struct craft c = {.opcode = op,
			  .source_ip = net_ip(1),
			  .dest_ip = net_ip(0),
			  .qpn = nic_qpn(w->qp),
			  .psn = psn & PSN_MASK,
			  .ack_request = true,
			  .payload = w->payload,
			  .length = 64};

	net_mac(0, c.dest_mac);
	net_mac(1, c.source_mac);
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

static void
give(struct world *w, const struct craft *c, bool spoil)
{
	uint8_t f[ROCE_FRAME_MAX(4096) + 64];
	uint32_t n = craft_frame(c, f);

	if (spoil)
		f[n - 1] ^= 0x10;
	net_inject(w->net, 0, f, n);
	net_turn(w->net);
}

/* Whether a fault means anything for an opcode. */
static bool
applies(enum fault fault, uint8_t op)
{
	switch (fault) {
	case WRONG_KEY:
	case OUTSIDE:
		return has_reth(op) || is_atomic(op);
	case LONGER:
		return op == RC_WRITE_ONLY || op == RC_WRITE_ONLY_IMM;
	case SHORT:
		return goes_on(op);
	case EMPTY:
		return op == RC_SEND_LAST || op == RC_SEND_LAST_IMM || op == RC_SEND_LAST_INV ||
		       op == RC_WRITE_LAST || op == RC_WRITE_LAST_IMM;
	case MISALIGNED:
		return is_atomic(op);
	case NO_RECEIVE:
		return is_send(op) || op == RC_WRITE_LAST_IMM || op == RC_WRITE_ONLY_IMM;
	default:
		return true;
	}
}

static void
spoil(struct world *w, struct craft *c, enum fault fault)
{
	switch (fault) {
	case WRONG_KEY:
		c->rkey ^= 1u << 30;
		break;
	case OUTSIDE:
		c->address = w->mr.address + MEMORY - (c->atomic ? 0 : 32);
		break;
	case LONGER:
		c->dma_length += 4;
		break;
	case SHORT:
		c->length -= 4;
		break;
	case EMPTY:
		c->length = 0;
		break;
	case MISALIGNED:
		c->address += 4;
		break;
	case STRANGER:
		c->source_ip = net_ip(2);
		break;
	default:
		break;
	}
}

struct verdict {
	bool answered;
	uint8_t opcode, syndrome;
	uint32_t psn;
	bool ended, written;
	enum drop drop; /* DROP_NONE: taken */
};

#define ACK AETH(AETH_ACK, AETH_UNLIMITED)
#define NAK(code) AETH(AETH_NAK, code)

static struct verdict
silent(enum drop drop)
{
	return (struct verdict){.drop = drop};
}

static struct verdict
nak(uint8_t syndrome, uint32_t expected, enum drop drop)
{
	return (struct verdict){.answered = true,
				.opcode = RC_ACK,
				.syndrome = syndrome,
				.psn = expected & PSN_MASK,
				.ended = drop == DROP_bad_request,
				.drop = drop};
}

/* A request at the expected place. */
static struct verdict
judge_expected(uint8_t op, enum doing doing, enum fault fault, uint32_t expected)
{
	struct verdict v = {.answered = true,
			    .opcode = RC_ACK,
			    .syndrome = ACK,
			    .psn = expected & PSN_MASK,
			    .drop = DROP_NONE};
	bool fits = doing == NOTHING   ? begins(op)
		    : doing == SENDING ? is_send(op) && !begins(op)
				       : is_write(op) && !begins(op);

	if (!fits || fault == SHORT || fault == EMPTY || fault == MISALIGNED || fault == LONGER)
		return nak(NAK(NAK_INVALID_REQUEST), expected, DROP_bad_request);
	if (fault == WRONG_KEY || fault == OUTSIDE)
		return nak(NAK(NAK_REMOTE_ACCESS), expected, DROP_bad_request);
	/* a SEND under way has its receive WR already */
	if (fault == NO_RECEIVE && !(is_send(op) && doing == SENDING))
		return nak(AETH(AETH_RNR, 6), expected, DROP_no_buffer);
	v.written = is_write(op) || is_atomic(op);
	if (op == RC_READ_REQUEST)
		v.opcode = RC_READ_RESPONSE_ONLY;
	if (is_atomic(op))
		v.opcode = RC_ATOMIC_ACK;
	return v;
}

/* In SQD it receives as in RTS. */
static bool
receives(enum nic_qp_state state)
{
	return state == NIC_QP_RTR || state == NIC_QP_RTS || state == NIC_QP_SQD;
}

static struct verdict
judge(uint8_t op, enum nic_qp_state state, enum doing doing, enum place place, enum fault fault)
{
	uint32_t expected = PSN + (doing != NOTHING);

	if (!is_known(op))
		return silent(DROP_bad_bth);
	if (fault == WRONG_CRC)
		return silent(DROP_bad_icrc);
	if (!receives(state))
		return silent(DROP_no_qp);
	if (fault == STRANGER)
		return silent(DROP_wrong_peer);
	if (is_answer(op)) /* to nothing */
		return silent(state == NIC_QP_RTR ? DROP_no_qp : DROP_duplicate);
	if (op == ROCE_CNP)
		return silent(DROP_NONE);
	if (!is_request(op)) /* a datagram */
		return silent(DROP_bad_request);
	if (place == AHEAD || place == FAR_AHEAD)
		return nak(NAK(NAK_SEQUENCE), expected, DROP_out_of_order);
	if (place != EXPECTED && (op == RC_READ_REQUEST || is_atomic(op))) /* not one we know */
		return silent(DROP_duplicate);
	if (place != EXPECTED)
		return nak(ACK, expected - 1, DROP_duplicate);
	return judge_expected(op, doing, fault, expected);
}

static uint64_t
drop_count(const struct nic_counters *c, enum drop drop)
{
	const uint64_t counts[] = {
#define X(name, help) c->drop_##name,
	    NIC_DROP_REASONS(X)
#undef X
	};

	return drop == DROP_NONE ? c->rx_accepted : counts[drop];
}

static bool
untouched(const struct world *w)
{
	for (unsigned i = 0; i < sizeof(w->memory); i++) {
		if (w->memory[i] != FILL)
			return false;
	}
	return true;
}

static void
begin_message(struct world *w, enum doing doing)
{
	struct craft c;

	if (doing == NOTHING)
		return;
	c = craft(w, doing == SENDING ? RC_SEND_FIRST : RC_WRITE_FIRST, PSN);
	c.dma_length = MTU + 64; /* one more is to come */
	give(w, &c, false);
	assert_int_equal(w->answers, 1);
	assert_int_equal(w->syndrome, ACK);
	w->answers = 0;
	memset(w->memory, FILL, sizeof(w->memory));
}

static char label[120]; /* of the case under test */

#define same(got, wanted) same_as((uint64_t)(got), (uint64_t)(wanted), #got, __LINE__)

static void
same_as(uint64_t got, uint64_t wanted, const char *what, int line)
{
	if (got == wanted)
		return;
	print_error("%s: %s is %llu, not %llu\n", label, what, (unsigned long long)got,
		    (unsigned long long)wanted);
	_assert_int_equal(got, wanted, __FILE__, line);
}

static void
one_case(struct world *w, uint8_t op, enum nic_qp_state state, enum doing doing, enum place place,
	 enum fault fault)
{
	static const uint32_t offsets[PLACES] = {0, (uint32_t)-1, 0x800000, 1, 0x7fffff};
	struct nic_counters before, after;
	struct verdict v = judge(op, state, doing, place, fault);
	struct craft c;

	snprintf(label, sizeof(label), "opcode %#x state %d doing %d place %d fault %d", op, state,
		 doing, place, fault);
	roce_ops.mr_reg(roce_nic_device(w->net->node[0].dev), w->receive, 64, ALL, &w->gone);
	make_qp(w, state);
	if (fault != NO_RECEIVE || doing == SENDING)
		net_post_recvs(w->port, &w->receive_mr, 1, 2048);
	begin_message(w, doing);
	c = craft(w, op, PSN + (doing != NOTHING) + offsets[place]);
	/* a WRITE under way can go on with its last packet only: make the one in the middle fit */
	if (doing == WRITING && op == RC_WRITE_MIDDLE)
		((struct roce_qp *)w->qp)->rs.left = 2 * MTU;
	spoil(w, &c, fault);
	before = net_counters(&w->net->node[0]);
	give(w, &c, fault == WRONG_CRC);
	after = net_counters(&w->net->node[0]);
	same(drop_count(&after, v.drop), drop_count(&before, v.drop) + 1);
	same(w->answers, v.answered);
	if (v.answered) {
		same(w->opcode, v.opcode);
		same(w->syndrome, v.syndrome);
		same(w->psn, v.psn);
	}
	same(untouched(w), !v.written);
	memset(w->memory + MEMORY, FILL, MEMORY);
	same(untouched(w), true); /* nothing beyond the region */
	if (receives(state))
		same(qp_state((struct roce_qp *)w->qp), v.ended		      ? NIC_QP_ERR
							: state == NIC_QP_SQD ? NIC_QP_RTS
									      : state);
	end_qp(w);
	roce_ops.mr_dereg(roce_nic_device(w->net->node[0].dev), &w->gone);
}

static void
every_request_in_every_state(void **state)
{
	struct world *w = world_create();
	unsigned cases = 0;

	for (unsigned op = 0; op < 256; op++) {
		for (unsigned s = NIC_QP_RESET; s <= NIC_QP_ERR; s++) {
			for (unsigned d = NOTHING; d <= (receives(s) ? WRITING : NOTHING); d++)
				for (unsigned p = 0; p < PLACES; p++)
					for (unsigned f = 0; f < FAULTS; f++) {
						if (!applies(f, (uint8_t)op) ||
						    (!is_known((uint8_t)op) && (d | p | f)))
							continue;
						one_case(w, (uint8_t)op, s, d, p, f);
						cases++;
					}
		}
	}
	assert_true(cases > 3000);
	world_destroy(w);
}

/* Cut at every byte, with and without lengths and checksums that fit. */
static void
cut_anywhere(void **state)
{
	struct world *w = world_create();
	uint8_t f[ROCE_FRAME_MAX(4096) + 64];

	for (unsigned op = 0; op < 256; op++) {
		uint32_t whole;
		struct craft c;

		if (!is_known((uint8_t)op))
			continue;
		make_qp(w, NIC_QP_RTS);
		c = craft(w, (uint8_t)op, PSN);
		whole = craft_frame(&c, f);
		for (uint32_t n = 0; n < whole; n++) {
			net_inject(w->net, 0, f, n);
			net_turn(w->net);
			assert_int_equal(w->answers, 0);
		}
		assert_int_equal(((struct roce_qp *)w->qp)->rs.expected, PSN);
		end_qp(w);
		for (uint32_t n = EXT_AT + ICRC_BYTES; n < whole; n++) {
			make_qp(w, NIC_QP_RTS);
			net_post_recvs(w->port, &w->receive_mr, 1, 2048);
			c = craft(w, (uint8_t)op, PSN);
			craft_frame(&c, f);
			craft_fix(f, n);
			net_inject(w->net, 0, f, n);
			net_turn(w->net);
			if (!is_send((uint8_t)op)) /* a shorter SEND is as good */
				assert_true(w->answers == 0 || w->syndrome != ACK);
			assert_true(untouched(w));
			end_qp(w);
		}
	}
	world_destroy(w);
}

/* ---- the peer asks again ---- */

static void
asked_again(void **state)
{
	struct world *w = world_create();
	uint64_t value = 7, now;
	struct craft c;

	make_qp(w, NIC_QP_RTR);
	memcpy(w->memory + MEMORY, &value, 8);
	c = craft(w, RC_READ_REQUEST, PSN);
	c.dma_length = 5 * MTU;
	give(w, &c, false);
	assert_int_equal(w->answers, 5);
	assert_int_equal(w->opcode, RC_READ_RESPONSE_LAST);
	assert_int_equal(w->psn, (PSN + 4) & PSN_MASK);
	for (unsigned i = 0; i < 3; i++) {
		c = craft(w, RC_FETCH_ADD, PSN + 5);
		c.address = w->mr.address;
		c.swap_add = 3;
		w->answers = 0;
		give(w, &c, false);
		assert_int_equal(w->answers, 1);
		assert_int_equal(w->opcode, RC_ATOMIC_ACK);
		assert_int_equal(w->psn, (PSN + 5) & PSN_MASK);
		memcpy(&now, w->memory + MEMORY, 8);
		assert_int_equal(now, 10);
	}
	/* the READ from its third answer on; the atomic's answer is not sent again */
	c = craft(w, RC_READ_REQUEST, PSN + 2);
	c.address += 2 * MTU;
	c.dma_length = 3 * MTU;
	w->answers = 0;
	give(w, &c, false);
	assert_int_equal(w->answers, 3);
	assert_int_equal(w->psn, (PSN + 4) & PSN_MASK);
	/* what isn't the same as before gets nothing */
	for (unsigned i = 0; i < 6; i++) {
		c = craft(w, RC_READ_REQUEST, PSN + (i == 5 ? 5 : 2));
		c.address += 2 * MTU + (i == 0 ? 4 : 0);
		c.dma_length = 3 * MTU + (i == 1 ? 1 : i == 2 ? -1u : 0);
		c.rkey ^= i == 3;
		c.opcode = i == 4 ? RC_FETCH_ADD : RC_READ_REQUEST;
		c.atomic = i == 4;
		c.reth = i != 4;
		w->answers = 0;
		give(w, &c, false);
		assert_int_equal(w->answers, 0);
	}
	assert_int_equal(qp_state((struct roce_qp *)w->qp), NIC_QP_RTR);
	end_qp(w);
	world_destroy(w);
}

/* The last rd_atomic (4) are known, older ones are not; more than that at once is too much. */
static void
depth_of_memory(void **state)
{
	struct world *w = world_create();
	struct craft c;
	uint8_t f[512];
	uint64_t value;

	make_qp(w, NIC_QP_RTR);
	memset(w->memory + MEMORY, 0, 8);
	for (unsigned i = 0; i < 6; i++) {
		c = craft(w, RC_FETCH_ADD, PSN + i);
		c.address = w->mr.address;
		c.swap_add = 1;
		give(w, &c, false);
	}
	for (unsigned i = 0; i < 6; i++) {
		c = craft(w, RC_FETCH_ADD, PSN + i);
		w->answers = 0;
		give(w, &c, false);
		assert_int_equal(w->answers, i >= 2);
	}
	memcpy(&value, w->memory + MEMORY, 8);
	assert_int_equal(value, 6);
	/* five at once, and no turn between them: the fifth ends the QP after four answers */
	w->answers = 0;
	for (unsigned i = 6; i < 11; i++) {
		c = craft(w, RC_FETCH_ADD, PSN + i);
		c.address = w->mr.address;
		net_inject(w->net, 0, f, craft_frame(&c, f));
	}
	net_turn(w->net);
	assert_int_equal(w->answers, 5);
	assert_int_equal(w->opcode, RC_ACK);
	assert_int_equal(w->syndrome, NAK(NAK_INVALID_REQUEST));
	assert_int_equal(w->psn, (PSN + 10) & PSN_MASK);
	assert_int_equal(qp_state((struct roce_qp *)w->qp), NIC_QP_ERR);
	end_qp(w);
	world_destroy(w);
}

/* ---- the requester ---- */

#define TARGET 2048u /* of answers in the region */

/* Outstanding: WRITE at 0, READ of three answers at 1, FETCH_ADD at 4, WRITE at 5. */
static void
make_outstanding(struct world *w)
{
	static const uint8_t ops[] = {NIC_WRITE, NIC_READ, NIC_FETCH_ADD, NIC_WRITE};
	static const uint32_t lengths[] = {10, 2 * MTU + 8, 8, 10};

	make_qp(w, NIC_QP_RTS);
	for (unsigned i = 0; i < 4; i++) {
		struct nic_send_wr wr = {.wr_id = i,
					 .opcode = ops[i],
					 .flags = NIC_SIGNALED,
					 .sge_count = 1,
					 .sge = {{(uintptr_t)w->receive + TARGET + i * 8,
						  lengths[i], w->receive_mr.lkey}},
					 .remote_address = 64,
					 .rkey = 1};

		assert_int_equal(nic_post_send(w->qp, &wr, 1), 1);
	}
	net_turn(w->net);
	assert_int_equal(w->answers, 4);
	assert_int_equal(((struct roce_qp *)w->qp)->rq.next, PSN + 6);
	w->answers = 0;
	memset(w->receive, FILL, sizeof(w->receive));
}

static bool
clean(const struct world *w)
{
	for (unsigned i = 0; i < sizeof(w->receive); i++) {
		if (w->receive[i] != FILL)
			return false;
	}
	return true;
}

/* How far the sender gets, and what else happens, by an answer at a distance from the oldest. */
static void
check_answer(struct world *w, uint8_t op, uint8_t syndrome, int32_t distance)
{
	const struct roce_qp *qp = (struct roce_qp *)w->qp;
	uint32_t done = qp->rq.una - PSN;
	unsigned type = syndrome >> 5;
	bool inside = distance >= 0 && distance < 6, ended = qp_state(qp) == NIC_QP_ERR;

	if (op == RC_ACK && type == AETH_NAK && (syndrome & 31) >= 1 && (syndrome & 31) <= 3 &&
	    inside) {
		static const uint8_t wr_at[] = {0, 1, 1, 1, 2, 3};

		assert_true(ended);
		assert_int_equal(w->port->wcs, 4);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(w->port->wc[i].status == NIC_WC_SUCCESS ||
					     w->port->wc[i].status == NIC_WC_WR_FLUSH_ERR,
					 i != wr_at[distance]);
		return;
	}
	if (op != RC_ACK && distance == 1 && (op != RC_READ_RESPONSE_FIRST || type != AETH_ACK)) {
		assert_true(ended); /* in its place, and nothing that can be there */
		assert_int_equal(w->port->wcs, 4);
		assert_int_equal(w->port->wc[1].status, NIC_WC_BAD_RESP_ERR);
		assert_true(clean(w));
		return;
	}
	assert_false(ended);
	if (op == RC_READ_RESPONSE_FIRST && type == AETH_ACK && distance == 1) {
		assert_int_equal(done, 2); /* the only answer that can be the next */
		assert_int_equal(w->port->wcs, 1);
		assert_memory_equal(w->receive + TARGET + 8, w->payload, MTU);
		return;
	}
	/* nothing before the READ's own answers takes it further than to the READ */
	assert_true(done <= 1);
	assert_true(clean(w));
	assert_int_equal(w->port->wcs, done);
	if (op == RC_ACK && type == AETH_ACK && inside)
		assert_int_equal(done, 1);
	if (!inside)
		assert_int_equal(done, distance == 6 && op == RC_ACK && type == AETH_NAK &&
					   (syndrome & 31) == 0);
}

static void
every_answer_everywhere(void **state)
{
	struct world *w = world_create();

	for (unsigned op = RC_READ_RESPONSE_FIRST; op <= RC_ATOMIC_ACK; op++) {
		for (unsigned syndrome = 0; syndrome < 256; syndrome++) {
			for (int32_t distance = -2; distance < 9; distance++) {
				struct craft c;

				if (op == RC_READ_RESPONSE_MIDDLE && syndrome != ACK)
					continue;
				make_outstanding(w);
				c = craft(w, (uint8_t)op, PSN + (uint32_t)distance);
				c.syndrome = (uint8_t)syndrome;
				give(w, &c, false);
				/* a middle one is as good as a first */
				check_answer(w,
					     op == RC_READ_RESPONSE_MIDDLE ? RC_READ_RESPONSE_FIRST
									   : (uint8_t)op,
					     (uint8_t)syndrome, distance);
				end_qp(w);
			}
		}
	}
	world_destroy(w);
}

static void
give_answer(struct world *w, uint8_t op, uint32_t at, uint32_t length)
{
	struct craft c = craft(w, op, PSN + at);

	c.length = op == RC_ATOMIC_ACK ? 0 : length;
	give(w, &c, false);
}

static const uint8_t answer_ops[] = {RC_READ_RESPONSE_FIRST, RC_READ_RESPONSE_MIDDLE,
				     RC_READ_RESPONSE_LAST, RC_READ_RESPONSE_ONLY, RC_ATOMIC_ACK};
static const uint32_t right[][2] = {{RC_ACK, 0},
				    {RC_READ_RESPONSE_FIRST, MTU},
				    {RC_READ_RESPONSE_MIDDLE, MTU},
				    {RC_READ_RESPONSE_LAST, 8},
				    {RC_ATOMIC_ACK, 0},
				    {RC_ACK, 0}};

/* Answers in order complete everything; whatever comes in places of the past changes nothing. */
static void
in_order_with_noise(void **state)
{
	struct world *w = world_create();

	make_outstanding(w);
	for (uint32_t step = 0; step < 6; step++) {
		for (unsigned i = 0; i < sizeof(answer_ops); i++) {
			for (uint32_t n = 0; n <= MTU + 4; n += step % 2 ? 4 : MTU)
				give_answer(w, answer_ops[i], step - 1, n);
		}
		assert_int_equal(((struct roce_qp *)w->qp)->rq.una, PSN + step);
		give_answer(w, (uint8_t)right[step][0], step, right[step][1]);
		give_answer(w, (uint8_t)right[step][0], step, right[step][1]); /* twice */
	}
	assert_int_equal(w->port->wcs, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(w->port->wc[i].status, NIC_WC_SUCCESS);
	assert_memory_equal(w->receive + TARGET + 8, w->payload, 8);
	assert_memory_equal(w->receive + TARGET + 8 + MTU, w->payload, MTU);
	assert_memory_equal(w->receive + TARGET + 8 + 2 * MTU, w->payload, 8);
	assert_int_equal(w->receive[TARGET + 16 + 2 * MTU], FILL);
	assert_int_equal(w->receive[TARGET + 7], FILL);
	end_qp(w);
	world_destroy(w);
}

/* In the place of an answer, and not it: the WR ends, and with it the QP. */
static void
one_wrong_answer(struct world *w, uint32_t step, uint8_t op, uint32_t n)
{
	unsigned wr = step == 4 ? 2 : 1;

	make_outstanding(w);
	for (uint32_t i = 0; i < step; i++)
		give_answer(w, (uint8_t)right[i][0], i, right[i][1]);
	memset(w->receive, FILL, sizeof(w->receive));
	give_answer(w, op, step, n);
	assert_int_equal(qp_state((struct roce_qp *)w->qp), NIC_QP_ERR);
	assert_int_equal(w->port->wcs, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(w->port->wc[i].status, i < wr	  ? NIC_WC_SUCCESS
							: i == wr ? NIC_WC_BAD_RESP_ERR
								  : NIC_WC_WR_FLUSH_ERR);
	assert_true(clean(w));
	end_qp(w);
}

static void
wrong_answers(void **state)
{
	struct world *w = world_create();

	for (uint32_t step = 1; step < 5; step++) {
		for (unsigned i = 0; i < sizeof(answer_ops); i++) {
			uint8_t op = answer_ops[i];
			bool first = op <= RC_READ_RESPONSE_MIDDLE, atomic = op == RC_ATOMIC_ACK;

			for (uint32_t n = 0; n <= MTU + 4; n += 4) {
				if (step == 4	? atomic
				    : step == 3 ? !first && !atomic && n == 8
						: first && n == MTU)
					continue;
				one_wrong_answer(w, step, op, n);
			}
		}
	}
	world_destroy(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_request_in_every_state),
	    cmocka_unit_test(cut_anywhere),
	    cmocka_unit_test(asked_again),
	    cmocka_unit_test(depth_of_memory),
	    cmocka_unit_test(every_answer_everywhere),
	    cmocka_unit_test(in_order_with_noise),
	    cmocka_unit_test(wrong_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
