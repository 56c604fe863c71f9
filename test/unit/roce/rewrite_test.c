/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that writes its memory all the time, while it is sent, sent again and read by the peer:
 * no frame leaves with a wrong ICRC, none is sent again for it, and what others send arrives as it
 * was. The wire checks that a resent frame is the same as the first.
 */
#include "worlds/roce_net.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define BYTES 32768u
#define OPS 512u     /* at least */
#define MET 96u	     /* operations beside which the program wrote */
#define PATIENCE_S 5 /* for those, when the other thread gets no processor */

struct world {
	struct net *net;
	struct net_port *port[2];
	struct nic_qp *mine, *others; /* from node 0 to node 1 */
	_Alignas(8) uint8_t rewritten[2][BYTES];
	uint8_t target[BYTES], receive[BYTES], quiet[BYTES], copy[BYTES];
	struct nic_mr rewritten_mr[2], target_mr, receive_mr, quiet_mr, copy_mr;
};

static _Atomic bool stop;

static void *
rewrite(void *arg)
{
	struct world *w = arg;
	uint64_t x = 88172645463325252u;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		/* mostly where every operation begins: it is there at the right time the more often
		 */
		for (unsigned i = 0; i < 2; i++)
			__atomic_store_n((uint64_t *)(void *)w->rewritten[i] +
					     (x >> (8 + 8 * i)) % (x & 1 ? 32 : BYTES / 8),
					 x, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void
connect_pair(struct world *w, struct nic_qp **qp)
{
	const struct nic_qp_attr rights = {.access = NIC_REMOTE_WRITE | NIC_REMOTE_READ};
	struct nic_qp *end[2] = {net_qp(w->port[0]), net_qp(w->port[1])};

	for (unsigned i = 0; i < 2; i++)
		net_join(end[i], end[!i], rights);
	*qp = end[0];
}

static struct world *
make_world(uint16_t mtu, unsigned loss)
{
	struct roce_config config = {.mtu = mtu};
	struct world *w = calloc(1, sizeof(*w));
	struct nic_device *dev[2];

	w->net = net_create(2, 1, &config, mtu + loss);
	w->net->step = 5 * NET_STEP_NS;
	for (unsigned i = 0; i < 2; i++) {
		w->port[i] = &w->net->node[i].port[0];
		dev[i] = roce_nic_device(w->net->node[i].dev);
		roce_ops.mr_reg(dev[i], w->rewritten[i], BYTES, NIC_LOCAL_WRITE | NIC_REMOTE_READ,
				&w->rewritten_mr[i]);
	}
	roce_ops.mr_reg(dev[0], w->quiet, BYTES, NIC_LOCAL_WRITE, &w->quiet_mr);
	roce_ops.mr_reg(dev[0], w->receive, BYTES, NIC_LOCAL_WRITE, &w->receive_mr);
	roce_ops.mr_reg(dev[1], w->target, BYTES, NIC_REMOTE_WRITE | NIC_LOCAL_WRITE,
			&w->target_mr);
	roce_ops.mr_reg(dev[1], w->copy, BYTES, NIC_REMOTE_WRITE, &w->copy_mr);
	connect_pair(w, &w->mine);
	connect_pair(w, &w->others);
	return w;
}

/* Posts all kinds and sizes, in one piece and in two. */
static void
post_mine(struct world *w, unsigned i)
{
	static const uint8_t kinds[] = {NIC_WRITE, NIC_SEND, NIC_READ, NIC_WRITE_IMM};
	static const uint16_t sizes[] = {8, 61, 64, 200, 1000, 4096, 4099, 20001};
	uint32_t length = sizes[i % 8], half = i / 8 % 2 ? length / 3 : length;
	struct nic_send_wr wr = {.wr_id = i,
				 .opcode = kinds[i / 16 % 4],
				 .flags = NIC_SIGNALED,
				 .sge_count = half == length ? 1 : 2,
				 .remote_address = w->target_mr.address,
				 .rkey = w->target_mr.rkey};
	uint64_t from = w->rewritten_mr[0].address;
	uint32_t key = w->rewritten_mr[0].lkey;

	if (wr.opcode == NIC_READ) {
		wr.remote_address = w->rewritten_mr[1].address;
		wr.rkey = w->rewritten_mr[1].rkey;
		from = w->receive_mr.address;
		key = w->receive_mr.lkey;
	}
	wr.sge[0] = (struct nic_sge){from, half, key};
	wr.sge[1] = (struct nic_sge){from + half, length - half, key};
	if (wr.opcode == NIC_SEND || wr.opcode == NIC_WRITE_IMM)
		net_post_recvs(w->port[1], &w->target_mr, 1, BYTES);
	assert_int_equal(nic_post_send(w->mine, &wr, 1), 1);
}

static void
post_others(struct world *w, unsigned i)
{
	struct nic_send_wr wr = {.wr_id = i,
				 .opcode = NIC_WRITE,
				 .flags = NIC_SIGNALED,
				 .sge_count = 1,
				 .sge = {{w->quiet_mr.address, 9000, w->quiet_mr.lkey}},
				 .remote_address = w->copy_mr.address,
				 .rkey = w->copy_mr.rkey};

	for (unsigned k = 0; k < 9000; k++)
		w->quiet[k] = (uint8_t)(i * 7 + k);
	assert_int_equal(nic_post_send(w->others, &wr, 1), 1);
}

/* Does the program write at this very moment? */
static bool
is_rewritten(const struct world *w)
{
	uint64_t seen[32];

	for (unsigned i = 0; i < 32; i++)
		seen[i] = __atomic_load_n((const uint64_t *)(const void *)w->rewritten[0] + i,
					  __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 32; i++)
		if (seen[i] != __atomic_load_n((const uint64_t *)(const void *)w->rewritten[0] + i,
					       __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Each operation with one of somebody else's beside it. */
static void
run(uint16_t mtu, unsigned loss)
{
	struct world *w = make_world(mtu, loss);
	time_t end = time(NULL) + PATIENCE_S;
	unsigned met = 0;
	pthread_t thread;

	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, rewrite, w), 0);
	net_run(w->net, 10000); /* ARP comes without loss */
	w->net->loss = loss;
	for (unsigned i = 0; i < OPS || (met < MET && time(NULL) < end); i++) {
		uint64_t limit = w->net->now + UINT64_C(10000000000);
		bool beside;

		post_mine(w, i);
		post_others(w, i);
		w->port[0]->wcs = w->port[1]->wcs = 0;
		beside = is_rewritten(w);
		net_turn(w->net); /* the first frames are made */
		met += beside && is_rewritten(w);
		while (w->port[0]->wcs < 2) {
			net_turn(w->net);
			assert_true(w->net->now < limit);
		}
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(w->port[0]->wc[k].status, NIC_WC_SUCCESS);
		assert_memory_equal(w->quiet, w->copy, 9000);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < 2; i++) {
		struct nic_counters c = net_counters(&w->net->node[i]);

		assert_int_equal(c.drop_bad_icrc, 0);
		if (loss == 0)
			assert_int_equal(c.retransmits + c.naks_sent + c.timeouts, 0);
	}
	net_destroy(w->net);
	free(w);
}

static void
nothing_lost(void **state)
{
	run(4096, 0);
	run(1024, 0);
}

static void
some_lost(void **state)
{
	run(1024, 4);
}

#ifdef __x86_64__
static struct world *stepped;
static _Atomic unsigned steps;

/* The program writes between two instructions of whoever reads its memory. */
static void
between(int signal)
{
	static uint64_t x = 88172645463325252u;
	uint64_t *word = (uint64_t *)(void *)stepped->rewritten[0];

	atomic_fetch_add(&steps, 1);
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	word[0] = x;
	word[(x >> 8) % (BYTES / 8)] = x;
}

/* From now on between() runs after each instruction; or no longer. */
static inline void
step(bool on)
{
	/* below the 128 bytes that a leaf function may use */
	if (on)
		__asm__ __volatile__("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; "
				     "lea 128(%%rsp), %%rsp" ::
					 : "memory", "cc");
	else
		__asm__ __volatile__(
		    "lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; "
		    "lea 128(%%rsp), %%rsp" ::
			: "memory", "cc");
}

/* Wherever the program writes while frames are made: no thread has to meet another one for it. */
static void
each_instruction(void **state)
{
	struct sigaction action = {.sa_handler = between}, former;
	struct world *w = stepped = make_world(4096, 0);

	net_run(w->net, 10000);
	assert_int_equal(sigaction(SIGTRAP, &action, &former), 0);
	for (unsigned i = 0; i < 16; i += 3) {
		uint64_t limit = w->net->now + UINT64_C(10000000000);

		post_mine(w, i);
		w->port[0]->wcs = 0;
		atomic_store(&steps, 0);
		step(true);
		net_turn(w->net);
		step(false);
		assert_in_range(atomic_load(&steps), 1000, UINT32_MAX);
		while (w->port[0]->wcs < 1) {
			net_turn(w->net);
			assert_true(w->net->now < limit);
		}
		assert_int_equal(w->port[0]->wc[0].status, NIC_WC_SUCCESS);
	}
	sigaction(SIGTRAP, &former, NULL);
	for (unsigned i = 0; i < 2; i++) {
		struct nic_counters c = net_counters(&w->net->node[i]);

		assert_int_equal(c.drop_bad_icrc, 0);
		assert_int_equal(c.retransmits + c.naks_sent + c.timeouts, 0);
	}
	net_destroy(w->net);
	free(w);
}
#endif

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_lost),
	    cmocka_unit_test(some_lost),
#ifdef __x86_64__
	    cmocka_unit_test(each_instruction),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
