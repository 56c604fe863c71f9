/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All operations at once, chosen by a seed, over a wire that loses, doubles and reorders: a model
 * knows every byte that may be read, the old value of every atomic, and what arrives in which
 * order. Queue pairs are drained and reset meanwhile. SEED=n runs that seed, SEEDS=n runs n seeds.
 */
#include "worlds/roce_net.h"

#define PAIRS 3u
#define SIDES (2 * PAIRS)
#define OPS 100u /* of a side in one life */
#define LIVES 2u
#define AREA 16384u /* of memory that one side works on, at the peer */
#define GUARD 64u
#define BUFFERS 6u
#define EVERYTHING                                                                                 \
	(NIC_LOCAL_WRITE | NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC |                \
	 NIC_REMOTE_INVALIDATE)

struct op {
	struct nic_send_wr wr;
	uint32_t at, length;
	uint64_t old, fresh; /* atomics: what is there before and after */
	bool shared;
	struct nic_mr gone; /* SEND_INV */
	uint8_t *local;	    /* source or answer, GUARD behind it */
};

struct side { /* one direction of a pair */
	struct nic_qp *qp;
	struct net_port *port;
	struct side *other;
	unsigned number;
	uint8_t *area;			/* at the peer */
	uint8_t head[AREA], base[AREA]; /* after all that was posted; after all that completed */
	struct op op[OPS];
	unsigned posted, done, arrived;
	bool sqd;
};

struct end { /* a node */
	struct nic_device *dev;
	uint8_t memory[SIDES * AREA + GUARD];
	uint64_t shared;
	struct nic_mr mr, shared_mr, local_mr;
	uint8_t local[SIDES * OPS][AREA / 2 + GUARD];
	uint8_t buffer[PAIRS][BUFFERS][AREA / 2];
	struct nic_mr buffer_mr;
	bool free[PAIRS][BUFFERS];
	uint8_t seen[SIDES * OPS * LIVES]; /* old values of the shared counter */
	unsigned adds;
	uint8_t key_memory[8];
};

struct world {
	struct net *net;
	uint32_t mtu;
	struct side side[SIDES];
	struct end end[2];
};

static uint64_t seed;

static uint8_t
pattern(const struct side *s, unsigned id, uint32_t i)
{
	return (uint8_t)(s->number * 91 + id * 37 + i * 11 + (i >> 8) * 5 + 1);
}

static struct end *
end_of(struct world *w, const struct side *s)
{
	return &w->end[s->number % 2];
}

static bool
is_atomic(const struct op *op)
{
	return op->wr.opcode == NIC_CMP_SWAP || op->wr.opcode == NIC_FETCH_ADD;
}

static bool
is_write(const struct op *op)
{
	return op->wr.opcode == NIC_WRITE || op->wr.opcode == NIC_WRITE_IMM;
}

static bool
arrives(const struct op *op)
{
	return op->wr.opcode <= NIC_SEND_IMM || op->wr.opcode == NIC_WRITE_IMM ||
	       op->wr.opcode == NIC_SEND_INV;
}

/* ---- the model ---- */

static void
apply(const struct side *s, unsigned id, uint8_t *area)
{
	const struct op *op = &s->op[id];

	if (is_write(op))
		for (uint32_t i = 0; i < op->length; i++)
			area[op->at + i] = pattern(s, id, i);
	if (is_atomic(op) && !op->shared)
		memcpy(area + op->at, &op->fresh, 8);
}

/* Whether a READ may find this byte: as it was, or as a later operation that need not wait for it
 * has left it. */
static bool
may_be(const struct side *s, unsigned id, uint32_t at, uint8_t byte)
{
	if (s->base[at] == byte)
		return true;
	for (unsigned i = id + 1; i < s->posted; i++) {
		const struct op *op = &s->op[i];
		uint32_t in = at - op->at, length = is_atomic(op) ? 8 : op->length;

		if (op->wr.flags & NIC_FENCE)
			return false;
		if (at < op->at || in >= length || op->shared)
			continue;
		if (is_write(op) && pattern(s, i, in) == byte)
			return true;
		if (is_atomic(op) && ((const uint8_t *)&op->fresh)[in] == byte)
			return true;
	}
	return false;
}

#define check(w, s, id, condition)                                                                 \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			print_error("seed %llu: side %u, operation %u (opcode %u): %s\n",          \
				    (unsigned long long)seed, (s)->number, id,                     \
				    (s)->op[id].wr.opcode, #condition);                            \
			fail();                                                                    \
		}                                                                                  \
	} while (0)

/* ---- posting ---- */

static uint32_t
length_of(struct world *w)
{
	const uint32_t sizes[] = {0, 1, 3, 60, w->mtu - 1, w->mtu, w->mtu + 1, 3 * w->mtu + 5};
	uint32_t r = net_random(w->net) % 12, n = r < 8 ? sizes[r] : net_random(w->net) % 2000;

	return n < AREA / 2 ? n : AREA / 2;
}

static void
choose_atomic(struct world *w, struct side *s, struct op *op)
{
	struct end *peer = end_of(w, s->other);

	op->length = 8;
	op->at = net_random(w->net) % (AREA / 8) * 8;
	memcpy(&op->old, s->head + op->at, 8);
	op->wr.swap = (uint64_t)net_random(w->net) << 32 | net_random(w->net);
	op->wr.compare_add = net_random(w->net) % 2 ? op->old : op->old + 1;
	op->fresh = op->wr.opcode == NIC_FETCH_ADD  ? op->old + op->wr.compare_add
		    : op->wr.compare_add == op->old ? op->wr.swap
						    : op->old;
	op->shared = op->wr.opcode == NIC_FETCH_ADD && net_random(w->net) % 2;
	op->wr.remote_address = (uintptr_t)(s->area + op->at);
	if (op->shared) {
		op->wr.compare_add = 1;
		op->wr.remote_address = peer->shared_mr.address;
		op->wr.rkey = peer->shared_mr.rkey;
	}
}

static void
make_op(struct world *w, struct side *s)
{
	unsigned id = s->posted;
	struct op *op = &s->op[id];
	struct end *own = end_of(w, s), *peer = end_of(w, s->other);
	uint32_t half;

	*op = (struct op){.local = own->local[s->number * OPS + id], .length = length_of(w)};
	op->at = net_random(w->net) % (AREA - op->length + 1);
	op->wr.wr_id = id;
	op->wr.opcode = (uint8_t)(net_random(w->net) % (NIC_SEND_INV + 1));
	op->wr.flags = net_random(w->net) % 3 || id == OPS - 1 ? NIC_SIGNALED : 0;
	op->wr.flags |= net_random(w->net) % 8 == 0 ? NIC_FENCE : 0;
	op->wr.imm = 0x1000 * s->number + id;
	op->wr.remote_address = (uintptr_t)(s->area + op->at);
	op->wr.rkey = peer->mr.rkey;
	if (is_atomic(op))
		choose_atomic(w, s, op);
	if (op->wr.opcode == NIC_SEND_INV) {
		assert_int_equal(
		    roce_ops.mr_reg(peer->dev, peer->key_memory, 8, EVERYTHING, &op->gone), 0);
		op->wr.rkey = op->gone.rkey;
	}
	memset(op->local, 0xee, AREA / 2 + GUARD);
	for (uint32_t i = 0; i < op->length && op->wr.opcode != NIC_READ && !is_atomic(op); i++)
		op->local[i] = pattern(s, id, i);
	half = is_atomic(op) ? 8 : net_random(w->net) % (op->length + 1);
	op->wr.sge_count = op->length == 0 ? 0 : half == op->length ? 1 : 2;
	op->wr.sge[0] = (struct nic_sge){(uintptr_t)op->local, half, own->local_mr.lkey};
	op->wr.sge[1] =
	    (struct nic_sge){(uintptr_t)op->local + half, op->length - half, own->local_mr.lkey};
	if (op->length <= QP_INLINE_MAX && op->wr.opcode != NIC_READ && !is_atomic(op) &&
	    net_random(w->net) % 2)
		op->wr.flags |= NIC_INLINE;
}

static void
post_some(struct world *w, struct side *s)
{
	for (unsigned n = net_random(w->net) % 4; n > 0 && s->posted < OPS; n--) {
		struct op *op = &s->op[s->posted];
		int taken;

		make_op(w, s);
		taken = nic_post_send(s->qp, &op->wr, 1);
		if (taken == 0 && op->gone.rkey)
			roce_ops.mr_dereg(end_of(w, s->other)->dev, &op->gone);
		if (taken == 0)
			return;
		check(w, s, s->posted, taken == 1);
		if (op->wr.flags & NIC_INLINE)
			memset(op->local, 0xee, op->length);
		apply(s, s->posted++, s->head);
	}
}

/* ---- what comes ---- */

/* Operation `done` has completed. */
static void
finish(struct world *w, struct side *s)
{
	unsigned id = s->done;
	struct op *op = &s->op[id];
	struct end *peer = end_of(w, s->other);
	uint64_t old;

	memcpy(&old, op->local, 8);
	if (op->wr.opcode == NIC_READ)
		for (uint32_t i = 0; i < op->length; i++)
			check(w, s, id, may_be(s, id, op->at + i, op->local[i]));
	if (is_atomic(op) && !op->shared)
		check(w, s, id, old == op->old);
	if (op->shared) {
		check(w, s, id, old < sizeof(peer->seen) && !peer->seen[old]);
		peer->seen[old] = 1;
		peer->adds++;
	}
	for (uint32_t i = op->length; i < op->length + GUARD; i++)
		check(w, s, id, op->local[i] == 0xee);
	apply(s, id, s->base);
	s->done++;
}

/* A message has come on the other end of `s`: it must be the next one. */
static void
arrive(struct world *w, struct side *s, const struct nic_wc *wc)
{
	struct end *peer = end_of(w, s->other);
	unsigned pair = s->number / 2, id;
	const uint8_t *at = peer->buffer[pair][wc->wr_id];
	struct op *op;

	while (s->arrived < s->posted && !arrives(&s->op[s->arrived]))
		s->arrived++;
	id = s->arrived++;
	op = &s->op[id];
	check(w, s, id, id < s->posted);
	check(w, s, id, wc->length == op->length);
	check(w, s, id,
	      wc->has_imm == (op->wr.opcode == NIC_SEND_IMM || op->wr.opcode == NIC_WRITE_IMM));
	check(w, s, id, !wc->has_imm || wc->imm == op->wr.imm);
	check(w, s, id, wc->invalidated == (op->wr.opcode == NIC_SEND_INV));
	if (op->wr.opcode != NIC_WRITE_IMM)
		for (uint32_t i = 0; i < op->length; i++)
			check(w, s, id, at[i] == pattern(s, id, i));
	if (wc->invalidated) {
		struct mr_table *mrs = &((struct roce_device *)peer->dev)->mrs;

		check(w, s, id, wc->imm == op->gone.rkey);
		check(w, s, id,
		      !mr_check(mrs, op->gone.rkey, op->gone.address, 8, NIC_REMOTE_WRITE));
		roce_ops.mr_dereg(peer->dev, &op->gone);
	}
	peer->free[pair][wc->wr_id] = true;
}

static void
take_completions(struct world *w, struct net_port *port)
{
	for (unsigned i = 0; i < port->wcs; i++) {
		const struct nic_wc *wc = &port->wc[i];
		struct side *s = wc->qp_user;

		if (wc->status != NIC_WC_SUCCESS)
			print_error("seed %llu: side %u: %s\n", (unsigned long long)seed, s->number,
				    nic_wc_status_name(wc->status));
		assert_int_equal(wc->status, NIC_WC_SUCCESS);
		if (wc->opcode == NIC_RECV || wc->opcode == NIC_RECV_IMM) {
			arrive(w, s->other, wc);
			continue;
		}
		check(w, s, (unsigned)wc->wr_id, wc->wr_id < s->posted && wc->wr_id >= s->done);
		while (s->done <= wc->wr_id)
			finish(w, s);
	}
	port->wcs = 0;
}

/* Receives that are free are posted when it pleases: there are times without any. */
static void
post_receives(struct world *w, struct side *s)
{
	struct end *own = end_of(w, s);
	unsigned pair = s->number / 2;

	for (unsigned i = 0; i < BUFFERS; i++) {
		struct nic_recv_wr wr = {
		    .wr_id = i,
		    .sge = {(uintptr_t)own->buffer[pair][i], AREA / 2, own->buffer_mr.lkey}};

		if (!own->free[pair][i] || net_random(w->net) % 4)
			continue;
		assert_int_equal(roce_ops.post_srq_recv(s->port->srq, &wr, 1), 1);
		own->free[pair][i] = false;
	}
}

/* ---- the run ---- */

static void
modify(struct side *s, enum nic_qp_state to)
{
	struct nic_qp_attr attr = {.state = to};

	assert_int_equal(roce_ops.qp_modify(s->qp, &attr), 0);
	s->sqd = to == NIC_QP_SQD;
}

static void
connect_pair(struct world *w, struct side *a)
{
	uint32_t psn[2] = {net_random(w->net) & PSN_MASK, 0xffffff - net_random(w->net) % 64};

	for (unsigned i = 0; i < 2; i++) {
		struct side *s = &a[i];
		net_join(s->qp, s->other->qp,
			 (struct nic_qp_attr){.remote_psn = psn[1 - i],
					      .psn = psn[i],
					      .access = EVERYTHING & ~NIC_LOCAL_WRITE});
		s->posted = s->done = s->arrived = 0;
	}
}

static bool
all_done(const struct world *w)
{
	for (unsigned i = 0; i < SIDES; i++)
		if (w->side[i].done < OPS)
			return false;
	return true;
}

static void
check_end(struct world *w)
{
	for (unsigned i = 0; i < SIDES; i++) {
		struct side *s = &w->side[i];

		while (s->arrived < OPS && !arrives(&s->op[s->arrived]))
			s->arrived++;
		check(w, s, OPS - 1, s->arrived == OPS);
		check(w, s, OPS - 1, memcmp(s->area, s->head, AREA) == 0);
		check(w, s, OPS - 1, memcmp(s->base, s->head, AREA) == 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct end *e = &w->end[i];

		assert_int_equal(e->shared, e->adds);
		for (unsigned k = 0; k < GUARD; k++)
			assert_int_equal(e->memory[SIDES * AREA + k], 0x77);
	}
}

static void
live(struct world *w)
{
	uint64_t limit = w->net->now + UINT64_C(60000000000);

	while (!all_done(w)) {
		struct side *s = &w->side[net_random(w->net) % SIDES];

		post_some(w, s);
		post_receives(w, s);
		if (s->sqd ? net_random(w->net) % 8 == 0 : net_random(w->net) % 256 == 0)
			modify(s, s->sqd ? NIC_QP_RTS : NIC_QP_SQD);
		net_turn(w->net);
		for (unsigned i = 0; i < SIDES; i++)
			take_completions(w, w->side[i].port);
		assert_true(w->net->now < limit);
	}
	/* completions of receives may lag behind those of the sender */
	net_run(w->net, 1000000);
	for (unsigned i = 0; i < SIDES; i++)
		take_completions(w, w->side[i].port);
	check_end(w);
}

static void
make_world(struct world *w)
{
	struct roce_config config = {.mtu = (uint16_t)(256u << seed % 5),
				     .max_wr = 64,
				     .window_frames = 32u << seed % 3,
				     .rd_atomic = (uint8_t)(1 + seed % 7)};
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 48};

	w->mtu = config.mtu;
	w->net = net_create(2, PAIRS, &config, seed * 0x9e3779b97f4a7c15u + 1);
	w->net->step = 5 * NET_STEP_NS;
	w->net->loss = net_random(w->net) % 6;
	w->net->dup = net_random(w->net) % 6;
	w->net->reorder = net_random(w->net) % 20;
	for (unsigned i = 0; i < 2; i++) {
		struct end *e = &w->end[i];

		e->dev = roce_nic_device(w->net->node[i].dev);
		memset(e->memory, 0x77, sizeof(e->memory));
		memset(e->free, true, sizeof(e->free));
		roce_ops.mr_reg(e->dev, e->memory, SIDES * AREA, EVERYTHING, &e->mr);
		roce_ops.mr_reg(e->dev, &e->shared, 8, NIC_REMOTE_ATOMIC, &e->shared_mr);
		roce_ops.mr_reg(e->dev, e->local, sizeof(e->local), NIC_LOCAL_WRITE, &e->local_mr);
		roce_ops.mr_reg(e->dev, e->buffer, sizeof(e->buffer), NIC_LOCAL_WRITE,
				&e->buffer_mr);
	}
	for (unsigned i = 0; i < SIDES; i++) {
		struct side *s = &w->side[i];

		s->number = i;
		s->other = &w->side[i ^ 1];
		s->port = &w->net->node[i % 2].port[i / 2];
		s->area = w->end[1 - i % 2].memory + i * AREA;
		memset(s->head, 0x77, AREA);
		memset(s->base, 0x77, AREA);
		init.srq = s->port->srq;
		init.user = s;
		assert_int_equal(roce_ops.qp_create(roce_nic_context(s->port->ctx), &init, &s->qp),
				 0);
	}
}

static void
one_seed(void)
{
	struct world *w = calloc(1, sizeof(*w));

	make_world(w);
	for (unsigned life = 0; life < LIVES; life++) {
		for (unsigned i = 0; i < SIDES; i += 2)
			connect_pair(w, &w->side[i]);
		live(w);
		for (unsigned i = 0; i < SIDES; i++)
			modify(&w->side[i], NIC_QP_RESET);
		net_run(w->net, 1000000);
	}
	net_destroy(w->net);
	free(w);
}

static void
seeds(void **state)
{
	const char *one = getenv("SEED"), *many = getenv("SEEDS");
	uint64_t from = one ? strtoull(one, NULL, 0) : 1;
	uint64_t n = one ? 1 : many ? strtoull(many, NULL, 0) : 40;

	for (seed = from; seed < from + n; seed++)
		one_seed();
	print_message("seeds %llu ... %llu\n", (unsigned long long)from,
		      (unsigned long long)(from + n - 1));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(seeds)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
