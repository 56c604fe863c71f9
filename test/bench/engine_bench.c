/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's cost per message: one engine, a link to itself over a NIC that only copies,
 * programs that fill their channels and empty them between turns, in turns. Times the turns of the
 * engine alone. The NIC and the programs of test/unit/worlds would be measured with it: they check
 * bounds and patterns.
 *
 * engine_bench [SIZE [MESSAGES-PER-TURN [IDLE-CONNECTIONS [PROGRAMS [MESSAGES]]]]]; under callgrind
 * with fewer messages: --toggle-collect=engine_turn
 */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

#define SRQ_DEPTH 256u /* four links' */

static uint8_t recv[SRQ_DEPTH * ENGINE_RECV_BYTES];
static struct engine_event asked;
static bool was_asked;

static bool
on_emit(void *user, const struct engine_event *event)
{
	asked = *event;
	was_asked = event->type == ENGINE_EVENT_CONNECT;
	return true;
}

static uint64_t
on_bell(void *user, uint32_t doorbell, bool cpu_time)
{
	return 0;
}

static struct nic_context ctx = {.head = {&copy_ops, NULL}};
static struct copy_qp qp[2];
static struct engine *e;
static uint64_t now;

#define PROGRAMS_MAX 64u

static struct program {
	struct engine_session session;
	struct weir_ring tx, rx, returns;
	uint32_t vqpn[2], order;
	uint64_t spent, consumed, told;
} programs[PROGRAMS_MAX];

#define LINES 4096u

static void *
memory(size_t bytes)
{
	void *p = aligned_alloc(8192, WEIR_ALIGN_UP(bytes, 8192));

	memset(p, 0, WEIR_ALIGN_UP(bytes, 8192));
	return p;
}

static void
must(struct engine_command *k)
{
	if (!engine_execute(e, k) || k->result) {
		fprintf(stderr, "engine_bench: command %d: %d\n", k->type, k->result);
		exit(1);
	}
}

static void
make_link(void)
{
	struct engine_command k = {.type = ENGINE_LINK_ADD};
	struct engine_link_command *l = &k.link;

	for (unsigned i = 0; i < 2; i++)
		qp[i] = (struct copy_qp){{&copy_ops, i + 1}, &ctx, engine_link_user(e, 0, i)};
	*l = (struct engine_link_command){
	    .qp = {(struct nic_qp *)&qp[0], (struct nic_qp *)&qp[1]},
	    .ring = memory(LINES * 64),
	    .staging = memory(LINES * 64),
	    .ring_lines = LINES,
	    .staging_lines = LINES,
	    .credit = memory(128),
	    .peer_recv_wrs = 64,
	    .recv_wrs = 64,
	    .work = memory(engine_link_bytes(LINES)),
	};
	l->peer_ring_address = (uintptr_t)l->ring;
	l->peer_credit_address = (uintptr_t)l->credit;
	must(&k);
}

static void
make_session(const struct engine_config *config, uint32_t id, uint32_t connections)
{
	struct program *p = &programs[id];
	struct weir_geometry *g = &p->session.geometry;
	struct engine_command k = {.type = ENGINE_SESSION_ADD, .session = &p->session};
	struct weir_channel_head *head;

	p->session.id = id;
	*g = (struct weir_geometry){.connections = connections,
				    .channels = 1,
				    .ring_slots = 4096,
				    .recv_blocks = 4096,
				    .engines = 1,
				    .send_blocks = 64};
	g->bytes = weir_arena_end(g);
	p->session.base = memory(g->bytes);
	p->session.work = memory(engine_session_bytes(config, g));
	must(&k);
	k = (struct engine_command){.type = ENGINE_CHANNEL_ADD, .channel = {.session = id}};
	must(&k);
	head = (void *)(p->session.base + weir_arena_channel(g, 0));
	weir_ring_init(&p->tx, head + 1, g->ring_slots, &head->tx_tail, true);
	weir_ring_init(&p->rx, (uint8_t *)(head + 1) + g->ring_slots * 64, g->ring_slots,
		       &head->rx_tail, false);
	weir_ring_init(&p->returns, (uint8_t *)(head + 1) + g->ring_slots * 128, WEIR_RETURN_SLOTS,
		       &head->return_tail, true);
}

static void
connect_one(struct program *p, uint32_t desc)
{
	struct engine_command k = {.type = ENGINE_CONN_OPEN,
				   .conn = {.session = p->session.id, .desc = desc}};
	struct weir_slot *s;

	must(&k);
	p->vqpn[0] = k.conn.vqpn;
	while (!was_asked)
		engine_turn(e, now += 100);
	was_asked = false;
	k.type = ENGINE_CONN_ACCEPT;
	k.conn = asked.conn;
	k.conn.session = p->session.id;
	k.conn.desc = desc + 1;
	k.conn.listener = 1;
	must(&k);
	p->vqpn[1] = k.conn.vqpn;
	for (unsigned events = 0; events < 2;) {
		engine_turn(e, now += 100);
		while ((s = weir_ring_peek(&p->rx))) {
			weir_ring_pop(&p->rx, 1);
			events++;
		}
	}
}

static struct weir_conn_desc *
desc_of(struct program *p, uint32_t i)
{
	return (struct weir_conn_desc *)(void *)(p->session.base +
						 weir_arena_descs(&p->session.geometry)) +
	       i;
}

static unsigned last; /* descriptor of the connection that is used */

static void
send_some(struct program *p, unsigned n, uint32_t length)
{
	static uint8_t payload[WEIR_INLINE_MAX];
	struct weir_conn_desc *mine = desc_of(p, p == programs ? last : 0);

	weir_ring_refresh(&p->tx);
	while (n-- && weir_ring_room(&p->tx) >= WEIR_INLINE_SLOTS &&
	       atomic_load(&mine->granted) - p->spent >= weir_cost(length)) {
		struct weir_slot *s = weir_ring_at(&p->tx, p->tx.pos);

		s->op = WEIR_OP_INLINE;
		s->flags = 0;
		s->order = (uint16_t)p->order++;
		s->vqpn = p->vqpn[0];
		s->length = length;
		weir_ring_put_inline(&p->tx, payload, length);
		weir_ring_publish(&p->tx, weir_slots_inline(length));
		p->spent += weir_cost(length);
	}
}

static uint64_t
receive_all(struct program *p)
{
	struct weir_conn_desc *theirs = desc_of(p, (p == programs ? last : 0) + 1);
	struct weir_slot *s, consume = {.op = WEIR_OP_CONSUMED, .vqpn = p->vqpn[1]};
	uint64_t n = 0;

	while ((s = weir_ring_peek(&p->rx))) {
		p->consumed += weir_cost(s->length);
		weir_ring_pop(&p->rx, weir_slots_inline(s->length));
		n++;
	}
	if (p->consumed >= atomic_load(&theirs->recv_due) && p->consumed != p->told) {
		consume.value = p->told = p->consumed;
		weir_ring_refresh(&p->returns);
		memcpy((char *)weir_ring_at(&p->returns, p->returns.pos) + 4, (char *)&consume + 4,
		       60);
		weir_ring_publish(&p->returns, 1);
	}
	return n;
}

static uint64_t
clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int
main(int argc, char **argv)
{
	uint32_t length = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 48;
	unsigned batch = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 32;
	uint32_t idle = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	uint32_t count = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1, turn = 0;
	struct engine_config c = {.count = 1,
				  .connections = 65536,
				  .sessions = PROGRAMS_MAX,
				  .links = 4,
				  .session_pending = 8192,
				  .initial_grant = 512,
				  .window = 2 << 20,
				  .threshold = 0.6,
				  .nic = &ctx,
				  .srq = (struct nic_srq *)&ctx,
				  .srq_depth = SRQ_DEPTH,
				  .recv = recv,
				  .ring_doorbell = on_bell,
				  .emit = on_emit};
	uint64_t total = argc > 5 ? strtoull(argv[5], NULL, 10) : 5000000;
	uint64_t got = 0, turns = 0, chunk_got = 0, chunk_ns = 0;
	double best = 1e9;

	if (length > WEIR_INLINE_MAX || !count || count > PROGRAMS_MAX)
		return 2;
	e = engine_create(&c);
	make_link();
	for (uint32_t i = 0; i < count; i++) {
		make_session(&c, i, i ? 64 : 32768);
		connect_one(&programs[i], 0);
	}
	for (uint32_t i = 1; i <= idle; i++)
		connect_one(&programs[0], last = 2 * i);
	while (got < total) {
		uint64_t t, n = 0;

		/* the same load, whoever it comes from */
		for (unsigned i = 0; i < batch; i++)
			send_some(&programs[turn++ % count], 1, length);
		t = clock_ns();
		engine_turn(e, now += 1000);
		chunk_ns += clock_ns() - t;
		turns++;
		for (uint32_t i = 0; i < count; i++)
			n += receive_all(&programs[i]);
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
	printf("%u B, %u a turn, %u idle, %u programs: %.1f ns a message both ways at best, %.1f "
	       "messages a turn\n",
	       length, batch, idle, count, best, (double)got / (double)turns);
	return 0;
}
