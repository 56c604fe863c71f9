/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every operation in every size around the path MTU, each end as requester in turn; every received
 * byte is checked, and those around it. A step: the responder prepares its memory, the requester
 * works on it, the responder checks it; each sends a message when it is done. Both count the same
 * steps, so messages do not name them.
 */
#include "nicperf.h"

#include <errno.h>
#include <string.h>

#define BURST 8u    /* WRITEs, READs, atomics under way together */
#define SLOT 16384u /* bytes of memory of each */
#define GUARD 64u   /* bytes before and behind that must not change */
#define LARGE ((1u << 20) + 3)
#define BACKGROUND 0xe5
#define QKEY 0x11111111u
#define TRIES 50u /* of a datagram */
#define SOCKET_TURNS 16u
#define TIMEOUT_NS 20000000000ull
#define DATAGRAM_NS 500000000ull /* after which it is lost */

_Static_assert(NICPERF_VERIFY_STRIDE > LARGE + 2 * GUARD + 8, "");
_Static_assert(NICPERF_VERIFY_STRIDE >= BURST * SLOT, "");

struct op {
	const char *name;
	uint8_t opcode;
	bool datagram, receives, in_burst;
};

static const struct op all_ops[] = {
    {"SEND", NIC_SEND, false, true, false},
    {"SEND_IMM", NIC_SEND_IMM, false, true, false},
    {"SEND_INV", NIC_SEND_INV, false, true, false},
    {"WRITE", NIC_WRITE, false, false, true},
    {"WRITE_IMM", NIC_WRITE_IMM, false, true, false},
    {"READ", NIC_READ, false, false, true},
    {"CMP_SWAP", NIC_CMP_SWAP, false, false, true},
    {"FETCH_ADD", NIC_FETCH_ADD, false, false, true},
    {"datagram", NIC_SEND, true, true, false},
    {"datagram with immediate", NIC_SEND_IMM, true, true, false},
};
#define OPS (sizeof(all_ops) / sizeof(all_ops[0]))

struct step {
	const struct op *op;
	uint32_t size, seed;
};

enum status { READY, NOT_OFFERED, DONE, GOOD, LOST, FAILED };

struct word {
	uint32_t status; /* enum status */
	uint32_t rkey;	 /* to be invalidated */
};

struct side {
	struct nicperf_end *end;
	struct nicperf_flow ud;
	struct nic_ah *ah;
	uint32_t ud_qpn; /* the other one's */
};

struct verify {
	struct nicperf *np;
	struct side side[2];
	struct side *requester, *responder; /* NULL: in the other process */
	struct nic_mr doomed;		    /* its key is to be invalidated */
	uint64_t receives;		    /* before the step */
	struct nicperf_result *result;
};

static bool
is_atomic(const struct step *s)
{
	return s->op->opcode == NIC_CMP_SWAP || s->op->opcode == NIC_FETCH_ADD;
}

static unsigned
burst(const struct verify *v, const struct step *s)
{
	unsigned most = v->np->depth < BURST ? v->np->depth : BURST;

	return s->op->in_burst && s->size <= SLOT - 2 * GUARD - 8 ? most : 1;
}

/* Offset of the data of operation i in an area: unaligned, except of atomics and receives. */
static uint64_t
place(const struct step *s, unsigned i)
{
	return (uint64_t)i * SLOT + GUARD + (is_atomic(s) ? 0 : s->seed & 7);
}

static uint64_t
mix(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1342543de82ef95);

	x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

static void
fill(uint8_t *to, uint64_t bytes, uint64_t seed)
{
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = mix(seed, i);

		memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static int
fail(struct verify *v, const struct step *s, const char *what, uint64_t number)
{
	return nicperf_fail(v->np, -EIO,
			    "%s of %u bytes, step %u: %s %llu; one of the two drivers is at fault",
			    s->op->name, s->size, s->seed, what, (unsigned long long)number);
}

/* A turn whose failure names this step. */
static int
turn(struct verify *v, const struct step *s)
{
	int rc = nicperf_turn(v->np);
	char why[sizeof(v->np->error)];

	if (!rc)
		return 0;
	snprintf(why, sizeof(why), "%s", v->np->error);
	return nicperf_fail(v->np, rc, "%s of %u bytes, step %u: %s", s->op->name, s->size, s->seed,
			    why);
}

/* Checks data that were filled with `seed`, and the bytes around them. */
static int
check_bytes(struct verify *v, const struct step *s, const uint8_t *area, uint64_t at, uint64_t seed,
	    uint64_t before)
{
	const uint8_t *data = area + at;

	for (uint64_t i = 0; i < s->size; i += 8) {
		uint64_t word = mix(seed, i);
		size_t n = s->size - i < 8 ? s->size - i : 8;

		if (memcmp(data + i, &word, n))
			return fail(v, s, "wrong bytes from", i);
	}
	for (uint64_t i = 0; i < GUARD; i++)
		if (data[s->size + i] != BACKGROUND ||
		    (i < before && data[-1 - (int)i] != BACKGROUND))
			return fail(v, s, "written outside, distance", i);
	return 0;
}

static void
clear(const struct verify *v, const struct step *s, uint8_t *area)
{
	unsigned n = burst(v, s);

	memset(area, BACKGROUND, n > 1 ? n * SLOT : s->size + 2 * GUARD + 8 + NIC_GRH_BYTES);
}

/* ---- expected results of atomics ---- */

static uint64_t
atomic_begin(const struct step *s)
{
	return mix(s->seed, 0);
}

/* Every other comparison fails, and changes nothing. */
static uint64_t
atomic_next(const struct step *s, unsigned i, uint64_t now, struct nic_send_wr *wr)
{
	uint64_t number = mix(s->seed, i + 1);

	wr->compare_add = number;
	if (s->op->opcode == NIC_FETCH_ADD)
		return now + number;
	wr->compare_add = i % 2 ? ~now : now;
	wr->swap = number;
	return i % 2 ? now : number;
}

/* ---- requester ---- */

static void
describe(const struct verify *v, const struct step *s, unsigned i, uint32_t rkey,
	 struct nic_send_wr *wr)
{
	const struct side *side = v->requester;
	uint32_t length = is_atomic(s) ? 8 : s->size;
	uint64_t at = (uintptr_t)side->end->out + place(s, i);
	uint32_t half = s->seed & 2 && !is_atomic(s) && v->np->attr.max_sge > 1 ? length / 2 : 0;

	*wr = (struct nic_send_wr){
	    .sge = {{at, length - half, side->end->mr.lkey},
		    {at + length - half, half, side->end->mr.lkey}},
	    .sge_count = (uint8_t)((length > 0) + (half > 0)),
	    .opcode = s->op->opcode,
	    .flags = NIC_SIGNALED,
	    .imm = (uint32_t)mix(s->seed, 7),
	    .remote_address = side->end->peer.address + place(s, is_atomic(s) ? 0 : i),
	    .rkey = s->op->opcode == NIC_SEND_INV ? rkey : side->end->peer.rkey,
	};
	if (s->op->datagram) {
		wr->ah = side->ah;
		wr->remote_qpn = side->ud_qpn;
		wr->qkey = QKEY;
	}
	if (s->seed & 4 && s->op->opcode != NIC_READ && !is_atomic(s) &&
	    length <= v->np->attr.max_inline)
		wr->flags |= NIC_INLINE;
}

static int
ask(struct verify *v, const struct step *s, uint32_t rkey)
{
	struct nicperf_flow *flow =
	    s->op->datagram ? &v->requester->ud : &v->requester->end->flow[0];
	uint8_t *area = v->requester->end->out;
	uint64_t now = atomic_begin(s), begin, old;
	struct nic_send_wr wr;
	int rc;

	clear(v, s, area);
	for (unsigned i = 0; i < burst(v, s); i++) {
		if (s->op->opcode != NIC_READ && !is_atomic(s))
			fill(area + place(s, i), s->size, s->seed + i);
		describe(v, s, i, rkey, &wr);
		if (is_atomic(s))
			now = atomic_next(s, i, now, &wr);
		wr.wr_id = ++flow->posted;
		rc = nic_post_send(flow->qp, &wr, 1);
		if (rc != 1)
			return nicperf_fail(
			    v->np, -EIO, "%s of %u bytes can't be posted: %s; see the driver",
			    s->op->name, s->size, rc < 0 ? strerror(-rc) : "queue full");
		if (wr.flags & NIC_INLINE) /* the driver has a copy */
			memset((void *)(uintptr_t)wr.sge[0].address, BACKGROUND, s->size);
	}
	begin = clock_now(&v->np->clock);
	while (flow->done != flow->posted) {
		rc = turn(v, s);
		if (rc)
			return rc;
		if (clock_now(&v->np->clock) - begin > TIMEOUT_NS)
			return fail(v, s, "no completion within s",
				    (clock_now(&v->np->clock) - begin) / 1000000000u);
	}
	now = atomic_begin(s);
	rc = 0;
	for (unsigned i = 0; i < burst(v, s) && !rc; i++) {
		if (s->op->opcode == NIC_READ)
			rc = check_bytes(v, s, area, place(s, i), s->seed + i, GUARD);
		if (!is_atomic(s))
			continue;
		memcpy(&old, area + place(s, i), sizeof(old));
		if (old != now)
			return fail(v, s, "wrong old value of operation", i);
		now = atomic_next(s, i, now, &wr);
	}
	return rc;
}

/* ---- responder ---- */

/* -EAGAIN: the datagram was lost. */
static int
check_receive(struct verify *v, const struct step *s)
{
	uint64_t patience = s->op->datagram ? DATAGRAM_NS : TIMEOUT_NS;
	uint64_t begin = clock_now(&v->np->clock);
	const struct nic_wc *wc = &v->np->received;
	bool invalidates = s->op->opcode == NIC_SEND_INV, writes = s->op->opcode == NIC_WRITE_IMM;
	bool has_imm = s->op->opcode == NIC_SEND_IMM || writes;
	int rc;

	while (v->np->receives == v->receives) {
		rc = turn(v, s);
		if (rc)
			return rc;
		if (clock_now(&v->np->clock) - begin > patience)
			return s->op->datagram ? -EAGAIN : fail(v, s, "receives:", 0);
	}
	/* a network may double a datagram, and deliver the second copy in a later step */
	if (s->op->datagram &&
	    (v->np->receives - v->receives > 1 || wc->length != s->size + NIC_GRH_BYTES ||
	     (has_imm && wc->has_imm && wc->imm != (uint32_t)mix(s->seed, 7))))
		return -EAGAIN;
	if (v->np->receives - v->receives > 1)
		return fail(v, s, "receives:", v->np->receives - v->receives);
	if (wc->opcode != (writes ? NIC_RECV_IMM : NIC_RECV))
		return fail(v, s, "opcode of the receive:", wc->opcode);
	if (wc->length != s->size + (s->op->datagram ? NIC_GRH_BYTES : 0))
		return fail(v, s, "length of the receive:", wc->length);
	if (wc->has_imm != has_imm || (has_imm && wc->imm != (uint32_t)mix(s->seed, 7)))
		return fail(v, s, "immediate of the receive:", wc->has_imm ? wc->imm : 0);
	if (wc->invalidated != invalidates || (invalidates && wc->imm != v->doomed.rkey))
		return fail(v, s, "invalidated by the receive:", wc->invalidated ? wc->imm : 0);
	return 0;
}

static int
check_memory(struct verify *v, const struct step *s)
{
	const uint8_t *area = v->responder->end->in;
	uint64_t now = atomic_begin(s), is;
	struct nic_send_wr wr;
	int rc = 0;

	if (s->op->receives && s->op->opcode != NIC_WRITE_IMM)
		return check_bytes(v, s, area, s->op->datagram ? NIC_GRH_BYTES : 0, s->seed, 0);
	for (unsigned i = 0; i < burst(v, s) && !rc; i++) {
		if (is_atomic(s))
			now = atomic_next(s, i, now, &wr);
		else
			rc = check_bytes(v, s, area, place(s, i), s->seed + i, GUARD);
	}
	if (rc || !is_atomic(s))
		return rc;
	memcpy(&is, area + place(s, 0), sizeof(is));
	return is == now ? 0 : fail(v, s, "wrong last value after operation", burst(v, s) - 1);
}

/* ---- both ---- */

/* Passes `word` to the other process, if there is one; both poll their NIC meanwhile. */
static int
agree(struct verify *v, bool ours, struct word *word)
{
	int rc = 0;

	if (v->np->socket < 0)
		return 0;
	if (ours)
		return nicperf_send(v->np, word, sizeof(*word));
	for (uint32_t i = 1; !rc && (i % SOCKET_TURNS || !nicperf_readable(v->np)); i++)
		rc = nicperf_turn(v->np);
	if (!rc)
		rc = nicperf_receive(v->np, word, sizeof(*word));
	if (!rc && word->status == FAILED)
		rc = nicperf_fail(v->np, -EIO, "the other process has failed; look at its output");
	return rc;
}

/* The same; a failure here is passed on, and returned. */
static int
agree_on(struct verify *v, bool ours, struct word *word, int failure)
{
	int rc;

	if (failure)
		word->status = FAILED;
	rc = failure && !ours ? 0 : agree(v, ours, word);
	return failure ? failure : rc;
}

/* 0, -EAGAIN: a datagram was lost. */
static int
try_step(struct verify *v, const struct step *s)
{
	struct word ready = {READY, 0}, done = {DONE, 0}, found = {GOOD, 0};
	const struct nic_ops *ops = NIC_OPS(v->np->dev);
	uint64_t first = atomic_begin(s);
	int rc = 0;

	if (v->responder) {
		uint8_t *in = v->responder->end->in;

		clear(v, s, in);
		if (is_atomic(s))
			memcpy(in + place(s, 0), &first, sizeof(first));
		for (unsigned i = 0; s->op->opcode == NIC_READ && i < burst(v, s); i++)
			fill(in + place(s, i), s->size, s->seed + i);
		v->receives = v->np->receives;
		if (s->op->opcode == NIC_SEND_INV) {
			if (ops->mr_reg(v->np->dev, in, SLOT,
					NIC_LOCAL_WRITE | NIC_REMOTE_WRITE | NIC_REMOTE_INVALIDATE,
					&v->doomed))
				ready.status = NOT_OFFERED;
			else
				ready.rkey = v->doomed.rkey;
		}
	}
	rc = agree(v, v->responder, &ready);
	if (!rc && ready.status == NOT_OFFERED) {
		v->result->not_offered++;
		return 0;
	}
	if (!rc && v->requester)
		rc = ask(v, s, ready.rkey);
	rc = agree_on(v, v->requester, &done, rc);
	if (!rc && v->responder) {
		rc = s->op->receives ? check_receive(v, s) : 0;
		if (!rc)
			rc = check_memory(v, s);
		if (rc == -EAGAIN) {
			found.status = LOST;
			rc = 0;
		}
	}
	rc = agree_on(v, v->responder, &found, rc);
	if (v->doomed.length)
		ops->mr_dereg(v->np->dev, &v->doomed);
	v->doomed.length = 0;
	v->result->count += !rc && found.status == GOOD ? burst(v, s) : 0;
	return rc ? rc : found.status == LOST ? -EAGAIN : 0;
}

static int
run_step(struct verify *v, struct step *s)
{
	int rc;

	for (unsigned i = 0; i < TRIES; i++) {
		rc = try_step(v, s);
		s->seed++;
		if (rc != -EAGAIN)
			return rc;
		v->result->repeated++;
	}
	return fail(v, s, "lost, times", TRIES);
}

static int
run_sizes(struct verify *v, const struct op *op, uint32_t *seed)
{
	const uint32_t mtu =
	    v->side[0].end->peer.mtu < v->np->attr.mtu ? v->side[0].end->peer.mtu : v->np->attr.mtu;
	const uint32_t sizes[] = {0, 1, mtu - 1, mtu, mtu + 1, LARGE};
	struct step s = {.op = op, .size = 8, .seed = *seed};
	int rc = 0;

	if (is_atomic(&s))
		rc = run_step(v, &s);
	for (unsigned i = 0; !is_atomic(&s) && i < sizeof(sizes) / sizeof(sizes[0]) && !rc; i++) {
		if (op->datagram && sizes[i] > mtu)
			break;
		s.size = sizes[i];
		rc = run_step(v, &s);
	}
	*seed = s.seed;
	return rc;
}

/* ---- datagrams need queue pairs of their own ---- */

static int
make_datagrams(struct verify *v, struct side *side)
{
	struct nic_qp_init init = {
	    .type = NIC_UD, .send_wrs = v->np->depth, .srq = v->np->srq, .user = &side->ud};
	struct nic_qp_attr attr = {.state = NIC_QP_INIT, .qkey = QKEY, .mtu = v->np->attr.mtu};
	const struct nic_spec *nic = &v->np->options->nic;
	struct nic_ah_attr to = {.gid = side->end->peer.gid,
				 .lid = side->end->peer.lid,
				 .traffic_class = nic_spec_traffic_class(nic, WEIR_CLASS_NORMAL),
				 .priority = nic_spec_priority(nic, WEIR_CLASS_NORMAL)};
	int rc = NIC_OPS(v->np->nic)->qp_create(v->np->nic, &init, &side->ud.qp);

	for (; !rc && attr.state <= NIC_QP_RTS; attr.state++)
		rc = NIC_OPS(v->np->nic)->qp_modify(side->ud.qp, &attr);
	if (!rc)
		rc = NIC_OPS(v->np->dev)->ah_create(v->np->dev, &to, &side->ah);
	return rc ? nicperf_fail(v->np, rc, "no queue pair for datagrams: %s; see the driver",
				 strerror(-rc))
		  : 0;
}

int
nicperf_verify(struct nicperf *np, uint32_t rounds, struct nicperf_result *r)
{
	struct verify v = {.np = np, .result = r};
	struct side *side = v.side;
	uint64_t begin = clock_now(&np->clock);
	bool alone = np->socket < 0;
	struct word ours = {READY, 0}, theirs = ours;
	uint32_t seed = 0;
	int rc = 0;

	for (unsigned i = 0; i < 2 && np->end[i] && !rc; i++) {
		v.side[i].end = np->end[i];
		rc = make_datagrams(&v, &v.side[i]);
	}
	if (!rc && alone) {
		side[1].ud_qpn = nic_qpn(side[0].ud.qp);
		side[0].ud_qpn = nic_qpn(side[1].ud.qp);
	} else if (!rc) {
		ours.rkey = nic_qpn(side[0].ud.qp);
		rc = nicperf_send(np, &ours, sizeof(ours));
		if (!rc)
			rc = agree(&v, false, &theirs);
		side[0].ud_qpn = theirs.rkey;
	}
	for (uint32_t i = 0; i < (alone ? rounds : 2 * rounds) && !rc; i++) {
		bool ask = alone || i % 2 == np->options->listen;

		/* data for this process arrive at the last end that it has */
		v.requester = ask ? &side[0] : NULL;
		v.responder = alone ? &side[1] : ask ? NULL : &side[0];
		for (unsigned o = 0; o < OPS && !rc; o++)
			rc = run_sizes(&v, &all_ops[o], &seed);
	}
	for (unsigned i = 0; i < 2; i++) {
		if (side[i].ud.qp)
			NIC_OPS(np->dev)->qp_destroy(side[i].ud.qp);
		if (side[i].ah)
			NIC_OPS(np->dev)->ah_destroy(side[i].ah);
		if (side[i].end)
			side[i].end->flow[0].posted = side[i].end->flow[0].done = 0;
	}
	r->seconds = (double)(clock_now(&np->clock) - begin) / 1e9;
	return rc;
}
