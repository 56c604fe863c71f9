/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RoCEv2 core's cost per operation at both ends: two nodes on a wire that hands frames over as
 * they are. Times whole rounds: posts, frames, ICRC, delivery, acknowledgements. The network of
 * test/unit/worlds would be measured with it: it hashes every frame.
 *
 * roce_bench [SIZE [OPS-PER-ROUND [MiB [OPS [write|read|fadd]]]]]: payload walks through this
 * number of MiB at each end. With a number of operations it only does those: for callgrind with
 * --toggle-collect=rounds (valgrind knows no AVX-512, so the ICRC is counted as pclmul's).
 * WEIR_ICRC names the kernel for ICRCs.
 */
#include "clock.h"

#include "nic/roce/roce.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FRAMES 4096u
#define QUEUE 1024u
#define SIGNAL 64u /* operations per signaled one */

struct frame {
	uint32_t refs, length;
	_Alignas(64) uint8_t shift[10]; /* so that payload begins on a line, as in the shell */
	uint8_t data[ROCE_FRAME_MAX(4096)];
};

struct node {
	struct roce_device *dev;
	struct roce_context *ctx;
	struct nic_context *nic;
	struct nic_srq *srq;
	struct nic_qp *qp;
	struct node *peer;
	struct frame *in[QUEUE]; /* from the peer */
	uint32_t in_first, in_end;
	struct nic_mr mr;
	uint64_t frames_sent;
};

static struct node node[2];
static struct frame *unused[FRAMES];
static uint32_t unused_count;
static uint64_t now = 1;
static uint64_t footprint = 1u << 20;			       /* of each node's memory */
static uint8_t opcode = NIC_WRITE_IMM, awaited = NIC_RECV_IMM; /* of work completions */

static void
put(struct frame *f)
{
	if (--f->refs == 0)
		unused[unused_count++] = f;
}

static unsigned
wire_alloc(void *user, void **frames, unsigned n)
{
	unsigned i;

	for (i = 0; i < n && unused_count; i++) {
		struct frame *f = unused[--unused_count];

		f->refs = 1;
		frames[i] = f;
	}
	return i;
}

static void
wire_drop(void *user, void *const *frames, unsigned n)
{
	while (n--)
		put(*(struct frame *const *)(const void *)frames++);
}

static void
wire_send(void *user, void *frame, uint32_t length, bool keep)
{
	struct node *n = user;
	struct frame *f = frame;

	f->length = length;
	f->refs += keep;
	n->frames_sent++;
	n->peer->in[n->peer->in_end++ % QUEUE] = f;
}

static unsigned
wire_room(void *user)
{
	struct node *peer = ((struct node *)user)->peer;

	return QUEUE / 2 - (peer->in_end - peer->in_first);
}

static unsigned
wire_receive(void *user, struct roce_context *ctx, uint64_t time)
{
	struct node *n = user;
	unsigned i;

	for (i = 0; i < 32 && n->in_first != n->in_end; i++) {
		struct frame *f = n->in[n->in_first++ % QUEUE];

		roce_input(ctx, f->data, f->length, time);
		put(f);
	}
	return i;
}

static void
wire_flush(void *user, uint64_t time)
{
}

static const struct roce_wire wire = {
    .data_offset = offsetof(struct frame, data),
    .alloc = wire_alloc,
    .drop = wire_drop,
    .send = wire_send,
    .room = wire_room,
    .receive = wire_receive,
    .flush = wire_flush,
};

static void
must(int error)
{
	if (error == 0)
		return;
	fprintf(stderr, "roce_bench: %s\n", strerror(-error));
	exit(1);
}

static void
create(struct node *n, uint8_t id)
{
	struct roce_config c = {.gid = nic_gid_ipv4(0x0a000000u + id),
				.prefix = 24,
				.mac = {2, 0, 0, 0, 0, id},
				.mtu = 4096,
				.rd_atomic = 128};
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 512, .user = n};
	void *memory = aligned_alloc(4096, footprint);

	n->dev = roce_device_create(&c);
	if (!memory || !n->dev)
		must(-ENOMEM);
	memset(memory, id, footprint);
	n->peer = &node[n == node];
	n->ctx = roce_context_create(n->dev, 0, &wire, n);
	n->nic = roce_nic_context(n->ctx);
	must(roce_ops.srq_create(n->nic, 512, &n->srq));
	init.srq = n->srq;
	must(roce_ops.qp_create(n->nic, &init, &n->qp));
	must(roce_ops.mr_reg(
	    roce_nic_device(n->dev), memory, footprint,
	    NIC_LOCAL_WRITE | NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC, &n->mr));
}

static void
connect_to_peer(struct node *n)
{
	struct nic_qp_attr attr = {.state = NIC_QP_INIT,
				   .remote_qpn = nic_qpn(n->peer->qp),
				   .access =
				       NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC};
	struct nic_attr peer;

	roce_ops.query(roce_nic_device(n->peer->dev), &peer);
	attr.remote_gid = peer.gid;
	for (; attr.state <= NIC_QP_RTS; attr.state++)
		must(roce_ops.qp_modify(n->qp, &attr));
}

/* Returns how many completions there were of the kind that tells that operations have ended. */
static unsigned
turn(struct node *n)
{
	struct nic_recv_wr refill[32] = {0};
	struct nic_wc wc[32];
	bool busy = false;
	unsigned count = nic_poll(n->nic, wc, 32, now, &busy), ended = 0;

	for (unsigned i = 0; i < count; i++) {
		if (wc[i].status != NIC_WC_SUCCESS)
			must(-EIO);
		ended += wc[i].opcode == awaited;
	}
	if (ended && awaited == NIC_RECV_IMM)
		roce_ops.post_srq_recv(n->srq, refill, ended);
	nic_flush(n->nic, now);
	return ended;
}

/* `batch` operations posted a round, until `total` have ended. */
static __attribute__((noinline, noclone)) uint64_t
rounds(uint64_t total, uint32_t size, unsigned batch)
{
	struct node *a = &node[0], *b = &node[1];
	uint64_t got = 0, posted = 0;

	while (got < total) {
		for (unsigned i = 0; i < batch; i++) {
			uint64_t at = posted * ((size + 63) & ~63u) % (footprint - size);
			struct nic_send_wr wr = {
			    .wr_id = posted,
			    .sge = {{a->mr.address + (at & ~63ull), size, a->mr.lkey}},
			    .sge_count = 1,
			    .opcode = opcode,
			    .flags = posted % SIGNAL == SIGNAL - 1 ? NIC_SIGNALED : 0,
			    .remote_address = b->mr.address + (at & ~63ull),
			    .rkey = b->mr.rkey,
			};

			if (nic_post_send(a->qp, &wr, 1) <= 0)
				break;
			posted++;
		}
		got += turn(a) * SIGNAL; /* its own; each stands for SIGNAL */
		got += turn(b);
		now += 1000;
	}
	return got;
}

int
main(int argc, char **argv)
{
	uint32_t size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
	unsigned batch = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 32;
	uint64_t total = argc > 4 ? strtoull(argv[4], NULL, 10) : 0, got = 0, chunk = 20000;
	struct frame *memory = aligned_alloc(64, FRAMES * sizeof(struct frame));
	struct nic_recv_wr fill[256] = {0};
	double best = 1e12;

	static const struct {
		const char *name;
		uint8_t opcode;
	} kinds[] = {{"WRITE", NIC_WRITE_IMM}, {"READ", NIC_READ}, {"FADD", NIC_FETCH_ADD}};
	const char *name = "WRITE";

	for (unsigned i = 0; i < 3 && argc > 5; i++) {
		if (strcasecmp(argv[5], kinds[i].name) == 0) {
			name = kinds[i].name;
			opcode = kinds[i].opcode;
			awaited = i == 0 ? NIC_RECV_IMM : opcode;
		}
	}
	if (opcode == NIC_FETCH_ADD)
		size = 8;
	if (getenv("WEIR_ICRC"))
		must(roce_icrc_choose(getenv("WEIR_ICRC")));
	if (argc > 3)
		footprint = strtoull(argv[3], NULL, 10) << 20;
	if (size > footprint / 2 || !memory)
		return 2;
	memset(memory, 0, FRAMES * sizeof(struct frame));
	for (unsigned i = 0; i < FRAMES; i++)
		unused[unused_count++] = &memory[i];
	for (uint8_t i = 0; i < 2; i++)
		create(&node[i], i + 1);
	for (unsigned i = 0; i < 2; i++) {
		connect_to_peer(&node[i]);
		roce_ops.post_srq_recv(node[i].srq, fill, 256);
	}
	now += 1000000;
	for (unsigned i = 0; i < 100; i++) { /* ARP */
		rounds(1, size, 1);
		now += 1000000;
	}
	if (total) {
		got = rounds(total, size, batch);
		printf("%llu %ss of %u B\n", (unsigned long long)got, name, size);
		return 0;
	}
	if (size > 4096)
		chunk = 20000 / (size / 4096);
	node[0].frames_sent = node[1].frames_sent = 0;
	for (unsigned i = 0; i < 100; i++) {
		uint64_t t = clock_ns(), n = rounds(chunk, size, batch);
		double ns = (double)(clock_ns() - t) / (double)n;

		got += n;
		if (ns < best)
			best = ns;
	}
	printf("%u B, %u a round: %.1f ns a %s at best, %.2f GB/s, %.2f frames and %.2f answers "
	       "each\n",
	       size, batch, best, name, size / best, (double)node[0].frames_sent / (double)got,
	       (double)node[1].frames_sent / (double)got);
	return 0;
}
