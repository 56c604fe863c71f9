/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many nodes send to one through a switch: a link of 100 Gbit/s behind a queue that is as long as
 * such queues are. Whether the switch marks or only drops, the link must stay busy with bytes that
 * are new; and a sender that has been told to slow down must come back.
 */
#include "worlds/frame_net.h"

#include "nic/roce/context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SENDERS 32u
#define NODES (SENDERS + 1) /* node 0 receives */
#define BYTES_PER_US 12500u
#define LATENCY_NS 2000u
#define STEP_NS 500u
#define SIZE 65536u
#define ACCESS_ROOM 32u /* frames that a sender's own link takes in a step, plenty */

struct world;

struct node {
	struct frame_port frames; /* first: the wire's user */
	struct world *w;
	struct roce_device *dev;
	struct roce_context *ctx;
	struct nic_context *nic;
	struct nic_qp *qp, *far; /* far: the receiver's for this sender */
	uint8_t *memory;
	struct nic_mr mr;
	uint64_t busy_until; /* of the link to it */
	uint64_t done;	     /* bytes acknowledged */
};

struct world {
	struct node node[NODES];
	struct frame_net frames;
	union {
		struct event_queue queue; /* of frame_deliveries, ns */
		uint64_t now;		  /* the queue's */
	};
	uint64_t dropped, marked;
	uint32_t random, loss; /* one of this many frames is lost by chance; 0: none */
	uint32_t room, mark;   /* bytes, in front of the link */
};

/* A copy, since the sender keeps f. */
static struct frame *
marked(struct world *w, const struct frame *f)
{
	struct frame *copy = frame_new(&w->frames);

	copy->length = f->length;
	memcpy(copy->data, f->data, f->length);
	copy->data[IP_AT + 1] |= 3;
	put16(copy->data + IP_AT + 10, 0);
	put16(copy->data + IP_AT + 10, (uint16_t)~ip_fold(ip_sum(copy->data + IP_AT)));
	return copy;
}

static uint32_t
next_random(struct world *w)
{
	w->random = w->random * 1664525u + 1013904223u;
	return w->random >> 8;
}

static void
carry(struct world *w, struct frame *f, const struct node *from, struct node *to)
{
	uint64_t begin = to->busy_until > w->now ? to->busy_until : w->now;
	uint64_t waiting = (begin - w->now) * BYTES_PER_US / 1000;
	struct frame *copy = NULL;

	if (waiting + f->length > w->room || (w->loss != 0 && next_random(w) % w->loss == 0)) {
		w->dropped++;
		return;
	}
	if (waiting > w->mark && get16(f->data + 12) == ETH_TYPE_IP) {
		w->marked++;
		f = copy = marked(w, f);
	}
	to->busy_until = begin + (uint64_t)f->length * 1000 / BYTES_PER_US;
	queue_push(&w->queue, (struct queued){
				  .at = to->busy_until + LATENCY_NS,
				  .order = w->queue.pushed,
				  .subject = frame_launch(f, from->frames.node, to->frames.node),
			      });
	if (copy)
		frame_put(copy);
}

static void
wire_send(void *user, void *frame, uint32_t length, bool keep)
{
	struct node *n = user;
	struct frame *f = frame;

	frame_sent(f, length);
	for (unsigned i = 0; i < NODES; i++) {
		if (frame_is_to(f, i))
			carry(n->w, f, n, &n->w->node[i]);
	}
	if (!keep)
		frame_put(f);
}

static unsigned
wire_room(void *user)
{
	return ACCESS_ROOM;
}

static unsigned
wire_receive(void *user, struct roce_context *ctx, uint64_t now)
{
	struct world *w = ((struct node *)user)->w;
	struct queued e;

	while (queue_pop(&w->queue, now, &e)) {
		struct frame_delivery *d = e.subject;

		assert_true(frame_arrive(d, &w->node[d->to].frames));
	}
	return frame_port_receive(user, ctx, now);
}

static void
wire_flush(void *user, uint64_t now)
{
}

static const struct roce_wire wire = {
    .data_offset = offsetof(struct frame, data),
    .alloc = frame_port_alloc,
    .drop = frame_port_drop,
    .send = wire_send,
    .room = wire_room,
    .receive = wire_receive,
    .flush = wire_flush,
};

static struct frame_port *
port_of(struct frame_net *f, uint32_t node, uint32_t context)
{
	return &((struct world *)f->user)->node[node].frames;
}

static void
broken(struct frame_net *f, const char *why)
{
	fail_msg("%s", why);
}

static const struct frame_net_ops frame_ops = {.port = port_of, .broken = broken};

static void
make_node(struct world *w, unsigned id, uint16_t mtu)
{
	struct roce_config config = {.gid = nic_gid_ipv4(0x0a000001 + id),
				     .mtu = mtu,
				     .max_qp = 2 * SENDERS,
				     .max_mr = 4,
				     .cq_depth = 4096,
				     .max_wr = 64,
				     .neighbours = 64};
	struct node *n = &w->node[id];

	n->w = w;
	frame_port_init(&n->frames, &w->frames, id, 0);
	frame_mac(id, config.mac);
	n->dev = roce_device_create(&config);
	n->ctx = roce_context_create(n->dev, 0, &wire, n);
	assert_non_null(n->ctx);
	n->nic = roce_nic_context(n->ctx);
	n->memory = calloc(1, SIZE);
	roce_ops.mr_reg(roce_nic_device(n->dev), n->memory, SIZE,
			NIC_LOCAL_WRITE | NIC_REMOTE_WRITE | NIC_REMOTE_READ, &n->mr);
}

static void
join(struct node *a, struct nic_qp *qa, struct node *b, struct nic_qp *qb)
{
	struct nic_qp_attr attr = {.state = NIC_QP_INIT,
				   .remote_qpn = nic_qpn(qb),
				   .access = NIC_REMOTE_WRITE | NIC_REMOTE_READ};
	struct nic_attr peer;

	roce_ops.query(roce_nic_device(b->dev), &peer);
	attr.remote_gid = peer.gid;
	for (; attr.state <= NIC_QP_RTS; attr.state++)
		assert_int_equal(roce_ops.qp_modify(qa, &attr), 0);
}

static struct world *
world_create(uint16_t mtu, uint32_t room, uint32_t mark)
{
	struct world *w = calloc(1, sizeof(*w));

	w->frames = (struct frame_net){.ops = &frame_ops,
				       .user = w,
				       .port_room = UINT32_MAX,
				       .burst = 64,
				       .limit = UINT64_MAX};
	w->room = room;
	w->mark = mark;
	w->now = 1000000;
	for (unsigned i = 0; i < NODES; i++)
		make_node(w, i, mtu);
	for (unsigned i = 1; i < NODES; i++) {
		struct nic_qp_init init = {.send_wrs = 16, .user = &w->node[i]};
		struct node *n = &w->node[i];

		assert_int_equal(roce_ops.qp_create(n->nic, &init, &n->qp), 0);
		assert_int_equal(roce_ops.qp_create(w->node[0].nic, &init, &n->far), 0);
		join(n, n->qp, &w->node[0], n->far);
		join(&w->node[0], n->far, n, n->qp);
	}
	return w;
}

static void
world_destroy(struct world *w)
{
	struct queued e;

	for (unsigned i = 0; i < NODES; i++) {
		frame_port_fini(&w->node[i].frames);
		roce_device_destroy(w->node[i].dev);
		free(w->node[i].memory);
	}
	while (queue_pop(&w->queue, UINT64_MAX, &e))
		frame_end(e.subject);
	queue_free(&w->queue);
	assert_int_equal(w->frames.live, 0);
	free(w);
}

/* WRITEs by the senders, or READs by the receiver: in both cases they go to node 0. */
static void
post_all(struct world *w, unsigned senders, enum nic_opcode opcode)
{
	for (unsigned i = 1; i <= senders; i++) {
		bool read = opcode == NIC_READ;
		struct node *n = &w->node[i], *local = read ? &w->node[0] : n,
			    *remote = read ? n : &w->node[0];
		struct nic_send_wr wr = {.opcode = (uint8_t)opcode,
					 .flags = NIC_SIGNALED,
					 .sge_count = 1,
					 .sge = {{local->mr.address, SIZE, local->mr.lkey}},
					 .remote_address = remote->mr.address,
					 .rkey = remote->mr.rkey};

		while (nic_post_send(read ? n->far : n->qp, &wr, 1) == 1)
			;
	}
}

static void
turns(struct world *w, uint64_t ns, unsigned senders, enum nic_opcode opcode)
{
	for (uint64_t end = w->now + ns; w->now < end; w->now += STEP_NS) {
		post_all(w, senders, opcode);
		/* nobody is always first at the switch */
		for (unsigned i = 0, first = next_random(w) % NODES; i < NODES; i++) {
			struct node *n = &w->node[(first + i) % NODES];
			struct nic_wc wc[32];
			bool busy = false;
			unsigned count = nic_poll(n->nic, wc, 32, w->now, &busy);

			for (unsigned k = 0; k < count; k++) {
				assert_int_equal(wc[k].status, NIC_WC_SUCCESS);
				((struct node *)wc[k].qp_user)->done += SIZE;
			}
			nic_flush(n->nic, w->now);
		}
	}
}

static uint64_t
done(const struct world *w)
{
	uint64_t sum = 0;

	for (unsigned i = 1; i < NODES; i++)
		sum += w->node[i].done;
	return sum;
}

/* Percent of what the link could carry in the time. */
static unsigned
goodput(struct world *w, uint64_t ns, uint16_t mtu, unsigned senders, enum nic_opcode opcode)
{
	uint64_t before = done(w), could = ns * BYTES_PER_US / 1000 * mtu / (mtu + 62);

	turns(w, ns, senders, opcode);
	return (unsigned)((done(w) - before) * 100 / could);
}

static void
incast(uint16_t mtu, uint32_t room, uint32_t mark, enum nic_opcode opcode)
{
	struct world *w = world_create(mtu, room, mark);
	uint64_t least = UINT64_MAX, most = 0;
	unsigned percent;

	turns(w, 3000000, SENDERS, opcode);
	for (unsigned i = 1; i < NODES; i++)
		w->node[i].done = 0;
	w->dropped = w->marked = 0;
	percent = goodput(w, 20000000, mtu, SENDERS, opcode);
	for (unsigned i = 1; i < NODES; i++) {
		least = w->node[i].done < least ? w->node[i].done : least;
		most = w->node[i].done > most ? w->node[i].done : most;
	}
	print_message(
	    "mtu %u queue %u mark %u %s: %u %%, %llu dropped, %llu marked, %llu to %llu KiB each\n",
	    mtu, room >> 10, mark >> 10, opcode == NIC_READ ? "READ" : "WRITE", percent,
	    (unsigned long long)w->dropped, (unsigned long long)w->marked,
	    (unsigned long long)least >> 10, (unsigned long long)most >> 10);
	assert_true(percent >= 80);
	world_destroy(w);
}

static void
incast_marked(void **state)
{
	incast(1024, 1u << 20, 100u << 10, NIC_WRITE);
	incast(4096, 1u << 20, 200u << 10, NIC_WRITE);
	incast(1024, 1u << 20, 100u << 10, NIC_READ);
	incast(4096, 1u << 20, 200u << 10, NIC_READ);
}

static void
incast_dropped(void **state)
{
	incast(1024, 256u << 10, UINT32_MAX, NIC_WRITE);
	incast(1024, 1u << 20, UINT32_MAX, NIC_WRITE);
	incast(4096, 1u << 20, UINT32_MAX, NIC_WRITE);
	incast(1024, 512u << 10, UINT32_MAX, NIC_READ);
	incast(4096, 1u << 20, UINT32_MAX, NIC_READ);
}

/* Thirty-one stop: the one that is left fills the link within milliseconds. */
static void
recovers(void **state)
{
	struct world *w = world_create(4096, 1u << 20, 200u << 10);
	const struct window *window = &((struct roce_qp *)w->node[1].qp)->rq.window;
	uint32_t squeezed;

	turns(w, 5000000, SENDERS, NIC_WRITE);
	squeezed = window->size;
	assert_true(squeezed < 100000);
	turns(w, 5000000, 1, NIC_WRITE);
	assert_true(window->size > 2 * squeezed);
	assert_true(goodput(w, 5000000, 4096, 1, NIC_WRITE) >= 90);
	world_destroy(w);
}

/* One frame in a hundred is lost by chance, in either direction: what counts is how soon that is
 * noticed, and that the window doesn't take it for congestion. */
static void
lossy(uint16_t mtu, enum nic_opcode opcode, unsigned least)
{
	struct world *w = world_create(mtu, 1u << 20, UINT32_MAX);
	unsigned percent;

	w->loss = 100;
	turns(w, 3000000, 1, opcode);
	percent = goodput(w, 20000000, mtu, 1, opcode);
	print_message("mtu %u, 1 %% lost, %s: %u %%\n", mtu, opcode == NIC_READ ? "READ" : "WRITE",
		      percent);
	assert_true(percent >= least);
	world_destroy(w);
}

static void
loss_by_chance(void **state)
{
	lossy(1024, NIC_WRITE, 25);
	lossy(4096, NIC_WRITE, 60);
	lossy(1024, NIC_READ, 12);
	lossy(4096, NIC_READ, 60);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(incast_marked),
	    cmocka_unit_test(incast_dropped),
	    cmocka_unit_test(recovers),
	    cmocka_unit_test(loss_by_chance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
