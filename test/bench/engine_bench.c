/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's cost per message: one engine, a link to itself over a NIC that only copies,
 * programs that fill their channels and empty them between turns, in turns. Times the turns of the
 * engine alone. The NIC and the programs of test/unit/worlds would be measured with it: they check
 * bounds and patterns.
 *
 * engine_bench [SIZE [MESSAGES-PER-TURN [IDLE-CONNECTIONS [PROGRAMS [MESSAGES [WORK]]]]]]; under
 * callgrind with fewer messages: --toggle-collect=engine_turn. WORK: message; put, get; add, bytes,
 * wide: additions to integers of 8 bytes, of 1 byte, and to long doubles.
 */
#include "clock.h"
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nic_context {
	struct nic_context_head head;
	struct nic_wc cq[64];
	unsigned cq_first, cq_end;
};

struct copy_qp {
	struct nic_qp_head head;
	struct nic_context *ctx;
	void *user;
};

static void
complete(struct copy_qp *q, struct nic_wc wc)
{
	wc.qp_user = q->user;
	wc.qpn = q->head.qpn;
	q->ctx->cq[q->ctx->cq_end++ % 64] = wc;
}

static int
copy_post_send(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n)
{
	struct copy_qp *q = (struct copy_qp *)qp;

	for (unsigned i = 0; i < n; i++) {
		memcpy((void *)(uintptr_t)wr[i].remote_address,
		       (void *)(uintptr_t)wr[i].sge[0].address, wr[i].sge[0].length);
		if (wr[i].opcode == NIC_WRITE_IMM)
			complete(q, (struct nic_wc){
					.opcode = NIC_RECV_IMM, .has_imm = true, .imm = wr[i].imm});
		if (wr[i].flags & NIC_SIGNALED)
			complete(q, (struct nic_wc){.opcode = NIC_WRITE, .wr_id = wr[i].wr_id});
	}
	return (int)n;
}

static int
copy_post_recv(struct nic_srq *srq, const struct nic_recv_wr *wr, unsigned n)
{
	return (int)n;
}

static unsigned
copy_poll(struct nic_context *c, struct nic_wc *wc, unsigned n, uint64_t now, bool *busy)
{
	unsigned i = 0;

	while (i < n && c->cq_first != c->cq_end)
		wc[i++] = c->cq[c->cq_first++ % 64];
	return i;
}

static void
copy_flush(struct nic_context *c, uint64_t now)
{
}

static const struct nic_ops copy_ops = {
    .driver = "copy",
    .post_send = copy_post_send,
    .post_srq_recv = copy_post_recv,
    .poll = copy_poll,
    .flush = copy_flush,
};

static struct nic_context ctx = {.head = {&copy_ops, NULL}};
static struct copy_qp qp[2];

static struct bench_program programs[BENCH_SESSIONS];
static struct bench_end ends[BENCH_SESSIONS][2]; /* of the connection in use */

static void
make_link(void)
{
	struct engine_command k = {.type = ENGINE_LINK_ADD};
	struct engine_link_command *l = &k.link;

	for (unsigned i = 0; i < 2; i++)
		qp[i] = (struct copy_qp){
		    {&copy_ops, i + 1}, &ctx, engine_link_user(bench_engine, 0, i)};
	*l = (struct engine_link_command){
	    .qp = {(struct nic_qp *)&qp[0], (struct nic_qp *)&qp[1]},
	    .ring = bench_memory(BENCH_LINES * 64),
	    .staging = bench_memory(BENCH_LINES * 64),
	    .ring_lines = BENCH_LINES,
	    .staging_lines = BENCH_LINES,
	    .credit = bench_memory(128),
	    .peer_recv_wrs = 64,
	    .recv_wrs = 64,
	    .answers = bench_memory(BENCH_LINES * 64),
	    .answer_lines = BENCH_LINES,
	    .peer_answers = BENCH_LINES * 64,
	    .work = bench_memory(engine_link_bytes(BENCH_LINES)),
	};
	l->peer_ring_address = (uintptr_t)l->ring;
	l->peer_credit_address = (uintptr_t)l->credit;
	bench_must(&k);
}

static const struct work {
	const char *name;
	void (*run)(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length);
	uint32_t most; /* bytes */
} works[] = {
    {"message", bench_send, WEIR_INLINE_MAX},  {"put", bench_put, WEIR_PUT_MAX},
    {"add", bench_add, WEIR_ACCESS_MAX},       {"bytes", bench_add_bytes, WEIR_ACCESS_MAX},
    {"wide", bench_add_wide, WEIR_ACCESS_MAX}, {"get", bench_get, WEIR_ANSWER_MAX},
};
#define WORKS (sizeof(works) / sizeof(works[0]))

int
main(int argc, char **argv)
{
	uint32_t length = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 48;
	unsigned batch = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 32;
	uint32_t idle = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	uint32_t count = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1, turn = 0;
	uint64_t total = argc > 5 ? strtoull(argv[5], NULL, 10) : 5000000;
	const char *name = argc > 6 ? argv[6] : works[0].name;
	const struct work *work = works;
	const struct engine_counters *counters;
	uint64_t got = 0, turns = 0, chunk_got = 0, chunk_ns = 0;
	double best = 1e9;
	bool remote;

	while (work < works + WORKS && strcmp(work->name, name) != 0)
		work++;
	if (work == works + WORKS || length > work->most || !count || count > BENCH_SESSIONS)
		return 2;
	remote = work != works;
	bench_config.nic = &ctx;
	bench_config.srq = (struct nic_srq *)&ctx;
	bench_engine = engine_create(&bench_config);
	make_link();
	for (uint32_t i = 0; i < count; i++) {
		bench_attach(&programs[i], i, i ? 64 : 32768);
		if (remote) {
			bench_export(&programs[i], WEIR_ANSWER_MAX);
			bench_open(&programs[i], 0, &ends[i][0]);
		} else {
			bench_connect(&programs[i], 0, ends[i]);
		}
	}
	counters = engine_counters(bench_engine);
	for (uint32_t i = 1; i <= idle; i++)
		bench_connect(&programs[0], 2 * i, ends[0]);
	while (got < total) {
		uint64_t t, n = 0;

		/* the same load, whoever it comes from */
		for (unsigned i = 0; i < batch; i++, turn++)
			work->run(&programs[turn % count], &ends[turn % count][0], 1, length);
		t = clock_ns();
		engine_turn(bench_engine, bench_now += 1000);
		chunk_ns += clock_ns() - t;
		turns++;
		for (uint32_t i = 0; i < count && !remote; i++)
			n += bench_receive(&programs[i], &ends[i][1]);
		if (remote)
			n = counters->remote_operations - got;
		got += n;
		chunk_got += n;
		if (turns % 512)
			continue;
		/* the best of many short stretches: what others do to the machine is not the
		 * engine's */
		if (chunk_got && (double)chunk_ns / (double)chunk_got < best)
			best = (double)chunk_ns / (double)chunk_got;
		chunk_got = chunk_ns = 0;
	}
	printf("%u B, %u a turn, %u idle, %u programs: %.1f ns a %s both ways at best, %.1f "
	       "a turn\n",
	       length, batch, idle, count, best, work->name, (double)got / (double)turns);
	return 0;
}
