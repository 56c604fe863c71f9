/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every opcode in every state: a frame goes in, the answer is what the table of the standard says
 * (here written down once more, on its own), and memory changed exactly where it had to. The
 * requester: answer_test.c.
 */
#include "worlds/roce_target.h"

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
	NO_RIGHT, /* of the queue pair, though the region has it */
	NO_RIGHT_EMPTY,
	FAULTS
};

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
	case NO_RIGHT:
		return is_write(op) || op == RC_READ_REQUEST || is_atomic(op) ||
		       op == RC_SEND_LAST_INV || op == RC_SEND_ONLY_INV;
	case NO_RIGHT_EMPTY:
		return op == RC_WRITE_ONLY || op == RC_WRITE_ONLY_IMM || op == RC_READ_REQUEST;
	default:
		return true;
	}
}

static uint8_t
right_of(uint8_t op)
{
	if (is_write(op))
		return NIC_REMOTE_WRITE;
	if (is_atomic(op))
		return NIC_REMOTE_ATOMIC;
	return op == RC_READ_REQUEST ? NIC_REMOTE_READ : NIC_REMOTE_INVALIDATE;
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
	case NO_RIGHT_EMPTY:
		c->length = c->dma_length = 0;
		/* fall through */
	case NO_RIGHT:
		((struct roce_qp *)w->qp)->access &= (uint8_t)~right_of(c->opcode);
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

	if (!fits || fault == SHORT || fault == EMPTY || fault == MISALIGNED || fault == LONGER ||
	    fault == NO_RIGHT || fault == NO_RIGHT_EMPTY)
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
	struct verdict v;

	if (!is_known(op))
		return silent(DROP_bad_bth);
	if (fault == WRONG_CRC) {
		v = silent(DROP_bad_icrc);
		/* of a WRITE under way the next packet is copied while its CRC is computed */
		v.written = op == RC_WRITE_MIDDLE && doing == WRITING && place == EXPECTED &&
			    receives(state);
		return v;
	}
	if (!receives(state))
		return silent(DROP_no_qp);
	if (fault == STRANGER)
		return silent(DROP_wrong_peer);
	if (is_answer(op)) /* to nothing */
		return silent(state == NIC_QP_RTR ? DROP_no_qp : DROP_duplicate);
	if (op == ROCE_CNP)
		return silent(DROP_NONE);
	if (!is_request(op) && !is_reserved(op)) /* a datagram */
		return silent(DROP_bad_request);
	if (place == AHEAD || place == FAR_AHEAD)
		return nak(NAK(NAK_SEQUENCE), expected, DROP_out_of_order);
	/* not one we know */
	if (place != EXPECTED && (op == RC_READ_REQUEST || is_atomic(op) || is_reserved(op)))
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
		c.address += 2 * MTU + (i == 0 ? 4 : i == 2 ? -4u : 0);
		c.dma_length = 3 * MTU + (i == 1 ? 1 : 0);
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

/*
 * A copy of a READ comes late: it was answered, and its memory is gone. The QP goes on. A READ that
 * has not been answered whole is refused.
 */
static void
asked_again_too_late(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct world *w = world_create();
		struct craft c;

		make_qp(w, NIC_QP_RTR);
		c = craft(w, RC_READ_REQUEST, PSN);
		c.dma_length = 2 * MTU;
		if (i == 0)
			give(w, &c, false);
		assert_int_equal(w->answers, i == 0 ? 2 : 0);
		roce_ops.mr_dereg(roce_nic_device(w->net->node[0].dev), &w->mr);
		w->answers = 0;
		give(w, &c, false);
		assert_int_equal(w->answers, i);
		assert_int_equal(qp_state((struct roce_qp *)w->qp),
				 i == 0 ? NIC_QP_RTR : NIC_QP_ERR);
		if (i == 0) { /* what is new comes next */
			c = craft(w, RC_WRITE_ONLY, PSN + 2);
			c.length = c.dma_length = 0;
			give(w, &c, false);
			assert_int_equal(w->answers, 1);
			assert_int_equal(w->syndrome, ACK);
		}
		end_qp(w);
		world_destroy(w);
	}
}

/* A READ of 5 * MTU - 8 bytes is asked for again in part: the answers have the PSNs of the whole.
 */
static void
asked_again_in_part(void **state)
{
	static const struct {
		uint32_t skip, bytes, answers;
		uint8_t last;
	} parts[] = {
	    {0, 5 * MTU - 8, 5, RC_READ_RESPONSE_LAST}, /* all of it */
	    {2, MTU, 1, RC_READ_RESPONSE_ONLY},		/* one in the middle */
	    {1, 3 * MTU, 3, RC_READ_RESPONSE_LAST},
	    {0, 2 * MTU, 2, RC_READ_RESPONSE_LAST}, /* the begin */
	    {0, 1, 1, RC_READ_RESPONSE_ONLY},
	    {3, 2 * MTU - 9, 2, RC_READ_RESPONSE_LAST}, /* the end, but for a byte */
	    {4, MTU - 8, 1, RC_READ_RESPONSE_ONLY},
	    {4, MTU - 7, 0, 0}, /* one byte more than there was */
	    {3, 2 * MTU, 0, 0},
	    {0, 5 * MTU, 0, 0},
	};
	struct world *w = world_create();
	struct craft c;

	make_qp(w, NIC_QP_RTS);
	for (unsigned i = 0; i < 2 * MEMORY; i++)
		w->memory[i] = (uint8_t)(i * 7 + (i >> 8));
	c = craft(w, RC_READ_REQUEST, PSN);
	c.dma_length = 5 * MTU - 8;
	give(w, &c, false);
	assert_int_equal(w->answers, 5);
	for (unsigned i = 0; i < 2 * sizeof(parts) / sizeof(parts[0]); i++) {
		uint32_t part = i / 2, skip = parts[part].skip; /* each twice */

		w->answers = w->data_bytes = 0;
		c = craft(w, RC_READ_REQUEST, PSN + skip);
		c.address += (uint64_t)skip * MTU;
		c.dma_length = parts[part].bytes;
		give(w, &c, false);
		assert_int_equal(w->answers, parts[part].answers);
		if (parts[part].answers == 0)
			continue;
		assert_int_equal(w->data_bytes, parts[part].bytes);
		assert_memory_equal(w->data, w->memory + MEMORY + 512 + skip * MTU, w->data_bytes);
		assert_int_equal(w->opcode, parts[part].last);
		assert_int_equal(w->psn, (PSN + skip + parts[part].answers - 1) & PSN_MASK);
	}
	/* what is new comes next, and its answers are whole */
	w->answers = 0;
	c = craft(w, RC_READ_REQUEST, PSN + 5);
	c.dma_length = 2 * MTU;
	give(w, &c, false);
	assert_int_equal(w->answers, 2);
	assert_int_equal(w->psn, (PSN + 6) & PSN_MASK);
	assert_int_equal(qp_state((struct roce_qp *)w->qp), NIC_QP_RTS);
	end_qp(w);
	world_destroy(w);
}

/* Two parts in one turn: the first is answered as it was asked for, then what is asked for after.
 */
static void
asked_again_in_parts(void **state)
{
	struct world *w = world_create();
	struct craft c;

	make_qp(w, NIC_QP_RTS);
	c = craft(w, RC_READ_REQUEST, PSN);
	c.dma_length = 5 * MTU;
	give(w, &c, false);
	w->answers = 0;
	for (unsigned i = 0; i < 2; i++) {
		c = craft(w, RC_READ_REQUEST, PSN + 2 * i);
		c.address += 2 * i * MTU;
		c.dma_length = (i == 0 ? 2 : 3) * MTU;
		net_give(w->net, 0, &c);
	}
	net_turn(w->net);
	assert_int_equal(w->answers, 2);
	assert_int_equal(w->opcode, RC_READ_RESPONSE_LAST);
	assert_int_equal(w->psn, (PSN + 1) & PSN_MASK);
	give(w, &c, false);
	assert_int_equal(w->answers, 5);
	assert_int_equal(w->opcode, RC_READ_RESPONSE_LAST);
	assert_int_equal(w->psn, (PSN + 4) & PSN_MASK);
	end_qp(w);
	world_destroy(w);
}

/* ---- the requester ---- */

static void
post(struct world *w, uint8_t opcode, uint32_t length, uint16_t flags)
{
	struct nic_send_wr wr = {.opcode = opcode,
				 .flags = flags,
				 .sge_count = 1,
				 .sge = {{(uintptr_t)w->receive, length, w->receive_mr.lkey}},
				 .remote_address = 64,
				 .rkey = 1};

	assert_int_equal(nic_post_send(w->qp, &wr, 1), 1);
}

/* The last packet of a message that takes a receive WR has the bit, and no other. */
static void
solicited_event(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t length;
		unsigned solicited;
	} rows[] = {
	    {NIC_SEND, 8, 1},
	    {NIC_SEND, 2 * MTU + 8, 1},
	    {NIC_SEND_IMM, 8, 1},
	    {NIC_SEND_IMM, 2 * MTU + 8, 1},
	    {NIC_SEND_INV, 8, 1},
	    {NIC_SEND_INV, 2 * MTU + 8, 1},
	    {NIC_WRITE_IMM, 8, 1},
	    {NIC_WRITE_IMM, 2 * MTU + 8, 1},
	    {NIC_WRITE, 0, 0},
	    {NIC_WRITE, 8, 0},
	    {NIC_WRITE, 2 * MTU + 8, 0},
	    {NIC_READ, 8, 0},
	    {NIC_CMP_SWAP, 8, 0},
	    {NIC_FETCH_ADD, 8, 0},
	};
	struct world *w = world_create();

	for (unsigned i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		make_qp(w, NIC_QP_RTS);
		post(w, rows[i / 2].opcode, rows[i / 2].length, i % 2 ? NIC_SOLICITED : 0);
		net_turn(w->net);
		assert_true(w->answers >= 1);
		assert_int_equal(w->solicited, i % 2 ? rows[i / 2].solicited : 0);
		end_qp(w);
	}
	world_destroy(w);
}

/* A NAK for the sequence: `frames` leave because of it. */
static void
complain(struct world *w, uint32_t psn, unsigned frames)
{
	struct craft c = craft(w, RC_ACK, psn);

	c.length = 0;
	c.syndrome = NAK(NAK_SEQUENCE);
	w->answers = 0;
	net_give(w->net, 0, &c);
	net_turn(w->net);
	assert_int_equal(w->answers, frames);
}

/*
 * The same NAK again, before a round trip can be over: what it asks for is on its way. `rtt` in
 * turns; 0: none has been measured.
 */
static void
told_again(struct world *w, unsigned rtt)
{
	uint32_t psn = PSN;
	struct craft c;

	make_qp(w, NIC_QP_RTS);
	if (rtt) {
		post(w, NIC_WRITE, 8, 0);
		for (unsigned i = 0; i < rtt; i++)
			net_turn(w->net);
		c = craft(w, RC_ACK, psn++);
		c.length = 0;
		give(w, &c, false);
	}
	for (unsigned i = 0; i < 3; i++)
		post(w, NIC_WRITE, 8, 0);
	net_turn(w->net);
	complain(w, psn, 3);
	for (unsigned i = 0; i < (rtt ? rtt - rtt / 4 : 20); i++)
		complain(w, psn, 0);
	if (rtt) { /* now it is news: what was sent again was lost */
		for (unsigned i = 0; i < rtt / 4; i++)
			net_turn(w->net);
		complain(w, psn, 3);
	}
	complain(w, psn + 1, 2); /* as this is at any time */
	end_qp(w);
}

static void
told_again_at_once(void **state)
{
	struct world *w = world_create();

	told_again(w, 0);
	told_again(w, 40);
	world_destroy(w);
}

/* The last rd_atomic (4) are known, older ones are not; more than that at once is too much. */
static void
depth_of_memory(void **state)
{
	struct world *w = world_create();
	struct craft c;
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
		net_give(w->net, 0, &c);
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_request_in_every_state),
	    cmocka_unit_test(cut_anywhere),
	    cmocka_unit_test(asked_again),
	    cmocka_unit_test(asked_again_too_late),
	    cmocka_unit_test(asked_again_in_part),
	    cmocka_unit_test(asked_again_in_parts),
	    cmocka_unit_test(solicited_event),
	    cmocka_unit_test(told_again_at_once),
	    cmocka_unit_test(depth_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
