/* SPDX-License-Identifier: BSD-3-Clause */
/* READs and atomics between two cores, and mixed with everything else. */
#include "worlds/roce_pair.h"

#include <pthread.h>
#include <stdatomic.h>

static struct pair *
create(const struct roce_config *config, uint64_t seed, uint32_t psn, uint8_t rd_atomic)
{
	return pair_create_as(config, seed, psn,
			      (struct nic_qp_attr){.rd_atomic = rd_atomic, .access = PAIR_RIGHTS});
}

static struct nic_send_wr
make_wr(struct pair *p, enum nic_opcode opcode, uint64_t id, uint32_t local, uint32_t remote,
	uint32_t length)
{
	struct nic_send_wr wr = pair_wr(p, 0, opcode, id, length);

	wr.sge[0].address += local;
	wr.remote_address += remote;
	return wr;
}

static void
post_one(struct pair *p, struct nic_send_wr wr)
{
	assert_int_equal(post(p, wr), 1);
}

static void
run_until(struct pair *p, unsigned wcs)
{
	uint64_t limit = p->net->now + UINT64_C(60000000000);

	while (p->a->wcs < wcs) {
		net_turn(p->net);
		assert_true(p->net->now < limit);
	}
}

static void
fill(struct pair *p, unsigned side, unsigned seed)
{
	for (uint32_t i = 0; i < PAIR_BYTES; i++)
		p->memory[side][i] = (uint8_t)(i * 7 + (i >> 8) + seed);
}

/* Every size, in one list and in two, several at once. */
static void
sizes(uint16_t mtu, uint64_t seed, unsigned loss, unsigned dup, unsigned reorder, uint8_t rd_atomic,
      uint32_t psn)
{
	const uint32_t lengths[] = {0,	   1,	  mtu - 1u, mtu, mtu + 1u, 3u * mtu, 10u * mtu + 3,
				    70000, 65536, 4u * mtu};
	struct roce_config config = {.mtu = mtu};
	struct pair *p = create(&config, seed, psn, rd_atomic);
	uint32_t at = 0;

	p->net->loss = loss;
	p->net->dup = dup;
	p->net->reorder = reorder;
	fill(p, 1, (unsigned)seed);
	for (unsigned i = 0; i < 10; i++) {
		uint32_t n = lengths[i], half = i % 2 ? n / 3 : n;
		struct nic_send_wr wr = make_wr(p, NIC_READ, i, at, at, half);

		wr.sge[1] = (struct nic_sge){wr.sge[0].address + half, n - half, wr.sge[0].lkey};
		wr.sge_count = half != n ? 2 : n == 0 ? 0 : 1;
		post_one(p, wr);
		at += n;
	}
	run_until(p, 10);
	for (unsigned i = 0; i < 10; i++) {
		expect_wc(p->a, i, i, NIC_WC_SUCCESS);
		assert_int_equal(p->a->wc[i].opcode, NIC_READ);
		assert_int_equal(p->a->wc[i].length, lengths[i]);
	}
	assert_memory_equal(p->memory[0], p->memory[1], at);
	for (uint32_t i = at; i < PAIR_BYTES; i++)
		assert_int_equal(p->memory[0][i], 0);
	assert_int_equal(net_counters(&p->net->node[0]).read_bytes, at);
	if (loss + dup + reorder == 0) {
		assert_int_equal(net_counters(&p->net->node[0]).retransmits, 0);
		assert_int_equal(net_counters(&p->net->node[1]).drop_duplicate, 0);
	}
	assert_int_equal(p->a->ctx->held, 0);
	assert_int_equal(((struct roce_qp *)p->qa)->rq.unframed, 0);
	assert_int_equal(((struct roce_qp *)p->qa)->rq.special, 0);
	assert_int_equal(((struct roce_qp *)p->qa)->rq.in_flight, 0);
	pair_destroy(p);
}

static void
reads(void **state)
{
	for (uint16_t mtu = 256; mtu <= 4096; mtu *= 2)
		sizes(mtu, mtu, 0, 0, 0, 0, 0x1234);
	sizes(1024, 1, 0, 0, 0, 1, 0xfffffe);
}

static void
reads_on_bad_wire(void **state)
{
	for (unsigned seed = 1; seed <= 30; seed++)
		sizes((uint16_t)(256 << seed % 5), seed, seed % 4 * 2, seed % 3 * 4, seed % 5 * 2,
		      (uint8_t)(seed % 3 * 4), seed % 2 ? 0xfffff0 : seed * 7);
}

/* READs, WRITEs and atomics in turn on a bad wire: each atomic happens once. */
static void
mixed(void **state)
{
	for (unsigned seed = 1; seed <= 20; seed++) {
		struct roce_config config = {.mtu = 512};
		struct pair *p = create(&config, seed, seed * 77, 1 + seed % 5);
		uint64_t counter = 0, swapped = 1000, old;
		unsigned posted = 0;

		p->net->loss = seed % 4 * 3;
		p->net->dup = seed % 3 * 5;
		p->net->reorder = seed % 2 * 5;
		fill(p, 0, seed);
		memcpy(p->memory[1] + 8, &swapped, 8);
		while (posted < 200) {
			unsigned i = posted++;
			uint32_t local = 1024 + i * 1024;
			struct nic_send_wr wr;

			if (i % 4 == 0) {
				wr = make_wr(p, NIC_FETCH_ADD, i, local, 0, 8);
				wr.compare_add = i;
			} else if (i % 4 == 1) {
				wr = make_wr(p, NIC_CMP_SWAP, i, local, 8, 8);
				wr.compare_add = 1000 + i / 4;
				wr.swap = 1001 + i / 4;
			} else if (i % 4 == 2) {
				wr = make_wr(p, NIC_WRITE, i, local, local, 900);
			} else { /* what the WRITE before has brought */
				wr = make_wr(p, NIC_READ, i, local, local - 1024, 900);
				wr.flags |= i % 8 == 3 ? NIC_FENCE : 0;
			}
			for (unsigned turn = 0; nic_post_send(p->qa, &wr, 1) == 0; turn++) {
				assert_true(turn < 1000000); /* 2 s */
				net_turn(p->net);
			}
		}
		run_until(p, 200);
		for (unsigned i = 0; i < 200; i++) {
			uint32_t local = 1024 + i * 1024;

			expect_wc(p->a, i, i, NIC_WC_SUCCESS);
			memcpy(&old, p->memory[0] + local, 8);
			if (i % 4 == 0) {
				assert_int_equal(old, counter);
				counter += i;
			} else if (i % 4 == 1) {
				assert_int_equal(old, 1000 + i / 4);
			} else {
				assert_memory_equal(p->memory[0] + 1024 + (i | 1) * 1024,
						    p->memory[1] + 1024 + (i & ~1u) * 1024, 900);
			}
		}
		assert_memory_equal(p->memory[1], &counter, 8);
		pair_destroy(p);
	}
}

static void
compare_fails(void **state)
{
	struct pair *p = create(NULL, 1, 1, 0);
	uint64_t there = 5, old;
	struct nic_send_wr wr = make_wr(p, NIC_CMP_SWAP, 1, 0, 16, 8);

	memcpy(p->memory[1] + 16, &there, 8);
	wr.compare_add = 4;
	wr.swap = 9;
	post_one(p, wr);
	run_until(p, 1);
	memcpy(&old, p->memory[0], 8);
	assert_int_equal(old, 5);
	assert_memory_equal(p->memory[1] + 16, &there, 8);
	pair_destroy(p);
}

static unsigned most_reads, open_reads;

/* How many requests are under way. */
static bool
count_reads(struct net *n, const uint8_t *f, uint32_t length)
{
	if (get16(f + 12) != ETH_TYPE_IP)
		return true;
	open_reads += f[BTH_AT] == RC_READ_REQUEST || f[BTH_AT] == RC_FETCH_ADD;
	open_reads -= f[BTH_AT] == RC_READ_RESPONSE_LAST || f[BTH_AT] == RC_READ_RESPONSE_ONLY ||
		      f[BTH_AT] == RC_ATOMIC_ACK;
	if (open_reads > most_reads)
		most_reads = open_reads;
	return true;
}

static void
limit_kept(void **state)
{
	for (uint8_t limit = 0; limit <= 16; limit += 4) {
		struct pair *p = create(NULL, 1, 1, limit);

		p->net->tap = count_reads;
		most_reads = open_reads = 0;
		for (unsigned i = 0; i < 40; i++)
			post_one(p, make_wr(p, i % 3 ? NIC_READ : NIC_FETCH_ADD, i, i * 8, 0, 8));
		run_until(p, 40);
		assert_int_equal(most_reads, limit ? limit : 16);
		pair_destroy(p);
	}
}

/* With a fence a WRITE waits for the READ before; without, it leaves at once. */
static unsigned reads_seen, writes_before_answer;
static bool answered;

static bool
see_order(struct net *n, const uint8_t *f, uint32_t length)
{
	if (get16(f + 12) != ETH_TYPE_IP)
		return true;
	reads_seen += f[BTH_AT] == RC_READ_REQUEST;
	answered |= f[BTH_AT] == RC_READ_RESPONSE_ONLY;
	writes_before_answer += f[BTH_AT] == RC_WRITE_ONLY && !answered;
	return true;
}

static void
fences(void **state)
{
	for (unsigned fence = 0; fence < 2; fence++) {
		struct pair *p = create(NULL, 1, 1, 0);
		struct nic_send_wr wr[2] = {make_wr(p, NIC_READ, 1, 0, 0, 100),
					    make_wr(p, NIC_WRITE, 2, 1000, 1000, 100)};

		post_one(p, make_wr(p, NIC_WRITE, 0, 0, 0, 4)); /* MACs */
		run_until(p, 1);
		reads_seen = writes_before_answer = 0;
		answered = false;
		p->net->tap = see_order;
		wr[1].flags |= fence ? NIC_FENCE : 0;
		assert_int_equal(nic_post_send(p->qa, wr, 2), 2);
		run_until(p, 3);
		assert_int_equal(reads_seen, 1);
		assert_int_equal(writes_before_answer, !fence);
		expect_wc(p->a, 1, 1, NIC_WC_SUCCESS);
		expect_wc(p->a, 2, 2, NIC_WC_SUCCESS);
		pair_destroy(p);
	}
}

/* A QP that waits for a fence or for places under way doesn't keep its engine awake. */
static void
waits_asleep(void **state)
{
	struct pair *p = create(NULL, 1, 1, 1);
	int fd;

	post_one(p, make_wr(p, NIC_WRITE, 0, 0, 0, 4));
	run_until(p, 1);
	p->net->loss = 100;
	post_one(p, make_wr(p, NIC_READ, 1, 0, 0, 100));
	post_one(p, make_wr(p, NIC_READ, 2, 0, 0, 100));
	net_turn(p->net);
	net_turn(p->net);
	assert_true(roce_ops.arm(roce_nic_context(p->a->ctx), p->net->now, &fd) > p->net->now);
	p->net->loss = 0;
	run_until(p, 3);
	pair_destroy(p);
}

/* Each kind of refusal ends the right WR with the right status, those before it are done. */
static void
refused(void **state)
{
	for (unsigned i = 0; i < 6; i++) {
		struct pair *p = create(NULL, 1, 1, 0);
		enum nic_wc_status status = NIC_WC_REM_ACCESS_ERR;
		struct nic_send_wr wr =
		    make_wr(p, i < 3 ? NIC_READ : NIC_FETCH_ADD, 2, 0, 0, i < 3 ? 5000 : 8);

		if (i % 3 == 0)
			wr.rkey ^= 0x100000;
		else if (i % 3 == 1)
			wr.remote_address = p->mr[1].address + PAIR_BYTES - (i < 3 ? 4999 : 0);
		else
			wr.sge[0].lkey ^= 0x100000, status = NIC_WC_LOC_PROT_ERR;
		post_one(p, make_wr(p, NIC_READ, 1, 0, 0, 3000));
		if (i % 3 == 2)
			run_until(p, 1);
		post_one(p, wr);
		post_one(p, make_wr(p, NIC_READ, 3, 0, 0, 1));
		post_one(p, make_wr(p, NIC_WRITE, 4, 0, 0, 1));
		run_until(p, 4);
		expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
		expect_wc(p->a, 1, 2, status);
		expect_wc(p->a, 2, 3, NIC_WC_WR_FLUSH_ERR);
		expect_wc(p->a, 3, 4, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(((struct roce_qp *)p->qa)->rq.unframed, 0);
		pair_destroy(p);
	}
}

/* A QP without the right does not offer the operation; a region without it can't be accessed. */
static void
rights(void **state)
{
	static const uint8_t access[] = {NIC_REMOTE_WRITE | NIC_REMOTE_ATOMIC,
					 NIC_REMOTE_WRITE | NIC_REMOTE_READ};

	for (unsigned i = 0; i < 4; i++) {
		struct pair *p = create(NULL, 1, 1, 0);
		struct nic_send_wr wr = make_wr(p, i % 2 ? NIC_FETCH_ADD : NIC_READ, 1, 0, 0, 8);
		struct nic_mr mr;

		if (i < 2) {
			pair_connect(p, 9, (struct nic_qp_attr){.access = access[i]});
		} else {
			roce_ops.mr_reg(roce_nic_device(p->net->node[1].dev), p->memory[1], 64,
					access[i - 2], &mr);
			wr.rkey = mr.rkey;
		}
		post_one(p, wr);
		run_until(p, 1);
		expect_wc(p->a, 0, 1, i < 2 ? NIC_WC_REM_INV_REQ_ERR : NIC_WC_REM_ACCESS_ERR);
		pair_destroy(p);
	}
}

/* The region that is read goes away in the middle; the one that is written to as well. */
static void
gone_midway(void **state)
{
	for (unsigned side = 0; side < 2; side++) {
		struct pair *p = create(NULL, 1, 1, 0);

		post_one(p, make_wr(p, NIC_READ, 1, 0, 0, 300000));
		while (((struct roce_qp *)p->qa)->rq.una < 100)
			net_turn(p->net);
		roce_ops.mr_dereg(roce_nic_device(p->net->node[side].dev), &p->mr[side]);
		run_until(p, 1);
		expect_wc(p->a, 0, 1, side ? NIC_WC_REM_ACCESS_ERR : NIC_WC_LOC_PROT_ERR);
		pair_destroy(p);
	}
}

/* Nobody answers: the READ fails like anything else, and frees everything. */
static void
no_answer(void **state)
{
	struct pair *p = create(NULL, 1, 1, 0);

	p->net->step = 20 * NET_STEP_NS;
	post_one(p, make_wr(p, NIC_WRITE, 0, 0, 0, 4));
	run_until(p, 1);
	p->net->loss = 100;
	post_one(p, make_wr(p, NIC_READ, 1, 0, 0, 100000));
	post_one(p, make_wr(p, NIC_WRITE, 2, 0, 0, 1000));
	run_until(p, 3);
	expect_wc(p->a, 1, 1, NIC_WC_RETRY_EXC_ERR);
	expect_wc(p->a, 2, 2, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(p->a->ctx->held, 0);
	pair_destroy(p);
}

/* Few frames, little room in the port: slower, and no more. */
static void
scarce(void **state)
{
	struct roce_config config = {.mtu = 256, .tx_frames = 6, .window_frames = 8};
	struct pair *p = create(&config, 5, 1, 4);

	net_set_left(p->net, 70);
	p->net->room = 3;
	p->net->loss = 2;
	fill(p, 1, 3);
	for (unsigned i = 0; i < 30; i++)
		post_one(p, make_wr(p, i % 2 ? NIC_WRITE : NIC_READ, i, i / 2 * 3000,
				    i % 2 ? 100000 : i / 2 * 3000, 3000));
	run_until(p, 30);
	assert_memory_equal(p->memory[0], p->memory[1], 45000);
	pair_destroy(p);
}

/* A SEND that takes a key away. */
static void
invalidates(void **state)
{
	for (unsigned i = 0; i < 3; i++) {
		struct pair *p = create(NULL, 1, 1, 0);
		struct nic_send_wr wr = make_wr(p, NIC_SEND_INV, 1, 0, 0, i == 1 ? 3000 : 10);
		struct nic_mr mr;

		roce_ops.mr_reg(roce_nic_device(p->net->node[1].dev), p->memory[1] + 64, 64,
				NIC_REMOTE_WRITE | (i == 2 ? 0 : NIC_REMOTE_INVALIDATE), &mr);
		pair_connect(
		    p, 5, (struct nic_qp_attr){.access = NIC_REMOTE_WRITE | NIC_REMOTE_INVALIDATE});
		net_post_recvs(p->b, &p->mr[1], 4, 4096);
		wr.rkey = mr.rkey;
		post_one(p, wr);
		run_until(p, 1);
		if (i == 2) { /* not every region is for that */
			expect_wc(p->a, 0, 1, NIC_WC_REM_ACCESS_ERR);
			assert_int_equal(p->b->wc[0].status, NIC_WC_LOC_PROT_ERR);
			pair_destroy(p);
			continue;
		}
		expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
		assert_true(p->b->wc[0].invalidated);
		assert_false(p->b->wc[0].has_imm);
		assert_int_equal(p->b->wc[0].imm, mr.rkey);
		wr = make_wr(p, NIC_WRITE, 2, 0, 64, 4);
		wr.rkey = mr.rkey;
		post_one(p, wr);
		run_until(p, 2);
		expect_wc(p->a, 1, 2, NIC_WC_REM_ACCESS_ERR);
		roce_ops.mr_dereg(roce_nic_device(p->net->node[1].dev), &mr);
		assert_int_equal(mr.rkey, 0);
		pair_destroy(p);
	}
}

/* Atomics of the wire against a thread of this process, on one word. */
static _Atomic bool stop;
static uint64_t added;

static void *
add(void *arg)
{
	while (!atomic_load(&stop)) {
		__atomic_fetch_add((uint64_t *)arg, 1, __ATOMIC_RELAXED);
		added++;
	}
	return NULL;
}

static void
against_threads(void **state)
{
	struct pair *p = create(NULL, 1, 1, 16);
	uint64_t sum;
	pthread_t thread;
	unsigned done = 0;
	int rc;

	assert_int_equal(pthread_create(&thread, NULL, add, p->memory[1]), 0);
	while (done < 3000) {
		struct nic_send_wr wr = make_wr(p, NIC_FETCH_ADD, 0, 64, 0, 8);

		wr.compare_add = UINT64_C(1) << 32;
		do
			rc = nic_post_send(p->qa, &wr, 1);
		while (rc == 1);
		if (rc < 0)
			atomic_store(&stop, true);
		assert_int_equal(rc, 0);
		net_turn(p->net);
		done += p->a->wcs;
		p->a->wcs = 0;
	}
	net_run(p->net, 10000000);
	done += p->a->wcs;
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	memcpy(&sum, p->memory[1], 8);
	assert_int_equal(sum >> 32, done);
	assert_int_equal((uint32_t)sum, (uint32_t)added);
	pair_destroy(p);
}

/* One in eight packets arrives with a wrong byte, headers too, before it is sent again. */
static bool
damage(struct net *n, const uint8_t *frame, uint32_t length)
{
	uint8_t copy[ROCE_FRAME_MAX(4096) + 64];
	unsigned *seed = n->tap_user, dice;
	uint32_t at;

	dice = (*seed = *seed * 1103515245u + 12345u) >> 16;
	if (get16(frame + 12) != ETH_TYPE_IP || dice % 8 != 0)
		return true;
	memcpy(copy, frame, length);
	/* low bits of a PSN or QPN: a packet that seems to be another one */
	dice /= 8;
	at = dice % 3 == 0 ? BTH_AT + 11u : dice % 3 == 1 ? BTH_AT + 7u : EXT_AT + dice % 99;
	copy[at % length] ^= (uint8_t)(1u << dice / 4 % 7);
	net_inject(n, get32(frame + IP_AT + 16) - net_ip(0), copy, length);
	return false;
}

/* Payloads are copied while their ICRC is computed: a damaged packet leaves nothing behind. */
static void
damaged(void **state)
{
	enum { BYTES = 150000, AT = 4096 };

	for (unsigned seed = 1; seed <= 6; seed++) {
		struct roce_config config = {.mtu = (uint16_t)(256 << seed % 5)};
		struct pair *p = create(&config, seed, 0xffffe0 + seed, 4);
		unsigned dice = seed, other = seed % 2;

		p->net->tap = damage;
		p->net->tap_user = &dice;
		fill(p, other, seed);
		post_one(p, make_wr(p, other ? NIC_READ : NIC_WRITE, 1, AT, AT, BYTES));
		run_until(p, 1);
		expect_wc(p->a, 0, 1, NIC_WC_SUCCESS);
		net_run(p->net, 100000000);
		assert_memory_equal(p->memory[0] + AT, p->memory[1] + AT, BYTES);
		for (uint32_t i = 0; i < PAIR_BYTES; i++)
			if (i < AT || i >= AT + BYTES)
				assert_int_equal(p->memory[!other][i], 0);
		assert_in_range(net_counters(&p->net->node[!other]).drop_bad_icrc, 5, 1u << 20);
		pair_destroy(p);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(damaged),
	    cmocka_unit_test(reads),
	    cmocka_unit_test(reads_on_bad_wire),
	    cmocka_unit_test(mixed),
	    cmocka_unit_test(compare_fails),
	    cmocka_unit_test(limit_kept),
	    cmocka_unit_test(fences),
	    cmocka_unit_test(waits_asleep),
	    cmocka_unit_test(refused),
	    cmocka_unit_test(rights),
	    cmocka_unit_test(gone_midway),
	    cmocka_unit_test(no_answer),
	    cmocka_unit_test(scarce),
	    cmocka_unit_test(invalidates),
	    cmocka_unit_test(against_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
