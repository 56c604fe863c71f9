/* SPDX-License-Identifier: BSD-3-Clause */
#include "roce_net.h"

#include "nic/roce/address.h"

uint32_t
net_random(struct net *n)
{
	n->random ^= n->random << 13;
	n->random ^= n->random >> 7;
	n->random ^= n->random << 17;
	return (uint32_t)(n->random >> 16);
}

uint32_t
net_ip(unsigned node)
{
	return 0x0a000001 + node;
}

bool
net_six(void)
{
	const char *kind = getenv("WEIR_NET");

	return kind && strstr(kind, "six");
}

static bool
has_vlan(void)
{
	const char *kind = getenv("WEIR_NET");

	return kind && strstr(kind, "vlan");
}

struct nic_gid
net_gid(uint32_t ip)
{
	return craft_gid(net_six(), ip);
}

struct address
net_address(uint32_t ip)
{
	struct nic_gid gid = net_gid(ip);
	struct address address;

	assert_int_not_equal(roce_address(&gid, &address), ADDRESS_NONE);
	return address;
}

#define TAG (0x6000u | 77u)

/* The other way round, without checksums. */
static uint32_t
undress(const uint8_t *f, uint32_t n, uint8_t *plain)
{
	uint32_t tag = has_vlan() ? 4 : 0;
	const uint8_t *ip = f + ETH_BYTES + tag;

	memcpy(plain, f, 12);
	if (tag) {
		assert_int_equal(get16(f + 12), ETH_TYPE_VLAN);
		assert_int_equal(get16(f + 14), TAG);
	}
	if (!net_six() || get16(ip - 2) != ETH_TYPE_IP6 || ip[6] != 17) {
		memcpy(plain + 12, ip - 2, n - 12 - tag);
		return n - tag;
	}
	memset(plain + 12, 0, UDP_AT - 12);
	put16(plain + 12, ETH_TYPE_IP);
	plain[IP_AT] = 0x45;
	plain[IP_AT + 1] = (uint8_t)(get16(ip) >> 4);
	put16(plain + IP_AT + 2, (uint16_t)(get16(ip + 4) + IP_BYTES));
	plain[IP_AT + 9] = ip[6];
	put32(plain + IP_AT + 12, get32(ip + 20));
	put32(plain + IP_AT + 16, get32(ip + 36));
	memcpy(plain + UDP_AT, ip + IP6_BYTES, n - ETH_BYTES - tag - IP6_BYTES);
	return n - tag - 20;
}

static bool
show_tap(struct net *n, const struct frame *f)
{
	uint8_t plain[sizeof(f->data)];

	return !n->tap || n->tap(n, plain, undress(f->data, f->length, plain));
}

static struct frame_port *
port_of(struct frame_net *f, uint32_t node, uint32_t context)
{
	struct net *n = f->user;

	assert_in_range(context, 0, n->node[node].contexts - 1);
	return &n->node[node].port[context].frames;
}

static void
broken(struct frame_net *f, const char *why)
{
	fail_msg("%s", why);
}

static const struct frame_net_ops frame_ops = {.port = port_of, .broken = broken};

/* The frame arrives in the next turn, before the last ones that are under way, `ahead` of them. */
static void
launch(struct net *n, struct frame *f, const struct net_node *from, unsigned to, unsigned ahead)
{
	uint64_t place = 2 * (n->queue.pushed - ahead) - (ahead > 0);

	assert_true(n->frames.under_way < NET_QUEUE);
	queue_push(&n->queue, (struct queued){.at = n->now + 1,
					      .order = place,
					      .subject = frame_launch(f, from->id, to)});
}

static void
wire_send(void *user, void *frame, uint32_t length, bool keep)
{
	const struct net_node *node = ((struct net_port *)user)->node;
	struct net *n = node->net;
	struct frame *f = frame;

	assert_true(f->refs > 0);
	assert_true(length >= EXT_AT + ICRC_BYTES && length <= sizeof(f->data));
	frame_sent(f, length);
	if (show_tap(n, f) && net_random(n) % 100 >= n->loss) {
		for (unsigned i = 0; i < n->nodes; i++) {
			unsigned ahead = 0;

			if (!frame_is_to(f, i))
				continue;
			if (net_random(n) % 100 < n->reorder && n->frames.under_way >= 8)
				ahead = net_random(n) % 8;
			launch(n, f, node, i, ahead);
			if (net_random(n) % 100 < n->dup)
				launch(n, f, node, i, 0);
		}
	}
	if (!keep)
		frame_put(f);
}

static unsigned
wire_room(void *user)
{
	struct net_port *p = user;

	return p->node->stuck ? 0 : p->node->net->room;
}

static unsigned
wire_receive(void *user, struct roce_context *ctx, uint64_t now)
{
	struct net_port *p = user;
	struct net *n = p->node->net;
	struct queued e;

	assert_ptr_equal(p->ctx, ctx);
	while (queue_pop(&n->queue, now, &e)) {
		struct frame_delivery *d = e.subject;
		struct net_node *to = &n->node[d->to];

		assert_true(frame_arrive(d, &to->port[to->rss].frames));
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

static void
create_node(struct net *n, unsigned id, unsigned contexts, const struct roce_config *config)
{
	struct net_node *node = &n->node[id];
	struct roce_config c = config ? *config : (struct roce_config){0};

	c.gid = net_gid(net_ip(id));
	c.prefix = net_six() ? 120 : 24;
	c.vlan = has_vlan() ? TAG & VLAN_ID_MASK : 0;
	c.pcp = has_vlan() ? TAG >> 13 : 0;
	c.contexts = contexts;
	frame_mac(id, c.mac);
	node->net = n;
	node->id = id;
	node->contexts = contexts;
	node->dev = roce_device_create(&c);
	assert_non_null(node->dev);
	for (unsigned i = 0; i < contexts; i++) {
		struct net_port *p = &node->port[i];

		frame_port_init(&p->frames, &n->frames, id, i);
		p->node = node;
		p->ctx = roce_context_create(node->dev, i, &wire, p);
		assert_non_null(p->ctx);
		assert_int_equal(roce_ops.srq_create(roce_nic_context(p->ctx), 512, &p->srq), 0);
	}
}

struct net *
net_create(unsigned nodes, unsigned contexts, const struct roce_config *config, uint64_t seed)
{
	struct net *n = calloc(1, sizeof(*n));

	assert_non_null(n);
	n->nodes = nodes;
	n->random = seed * 0x9e3779b97f4a7c15u + 1;
	n->room = 1024;
	n->step = NET_STEP_NS;
	n->frames = (struct frame_net){.ops = &frame_ops,
				       .user = n,
				       .port_room = NET_QUEUE,
				       .burst = 32,
				       .strict = true,
				       .limit = UINT64_MAX};
	for (unsigned i = 0; i < nodes; i++)
		create_node(n, i, contexts, config);
	return n;
}

void
net_destroy(struct net *n)
{
	struct queued e;

	for (unsigned i = 0; i < n->nodes; i++) {
		net_check_sum(&n->node[i]);
		roce_ops.close(roce_nic_device(n->node[i].dev));
		for (unsigned k = 0; k < n->node[i].contexts; k++)
			frame_port_fini(&n->node[i].port[k].frames);
	}
	while (queue_pop(&n->queue, UINT64_MAX, &e))
		frame_end(e.subject);
	queue_free(&n->queue);
	assert_int_equal(n->frames.live, 0);
	free(n);
}

void
net_set_left(struct net *n, uint64_t frames)
{
	n->frames.limit = n->frames.live + frames;
}

void
net_turn(struct net *n)
{
	n->now += n->step;
	for (unsigned i = 0; i < n->nodes * NET_CONTEXTS; i++) {
		struct net_port *p = &n->node[i / NET_CONTEXTS].port[i % NET_CONTEXTS];
		bool busy = false;

		if (!p->ctx)
			continue;
		p->wcs += nic_poll(roce_nic_context(p->ctx), p->wc + p->wcs,
				   NET_WCS - p->wcs < 32 ? NET_WCS - p->wcs : 32, n->now, &busy);
		assert_true(p->wcs < NET_WCS);
		nic_flush(roce_nic_context(p->ctx), n->now);
	}
}

void
net_run(struct net *n, uint64_t ns)
{
	uint64_t end = n->now + ns;

	while (n->now < end)
		net_turn(n);
}

void
net_inject(struct net *n, unsigned node, const uint8_t *frame, uint32_t length)
{
	struct net_node *to = &n->node[node];
	struct frame f;
	int owner;

	f.net = &n->frames;
	f.length = 0;
	frame_sent(&f, craft_dress(&to->dev->headers, frame, length, f.data));
	owner = frame_input(to->port[to->rss].ctx, &f, false, n->now);
	if (owner != ROCE_DONE) {
		assert_in_range(owner, 0, to->contexts - 1);
		assert_int_equal(frame_input(to->port[owner].ctx, &f, true, n->now), ROCE_DONE);
	}
}

struct nic_qp *
net_qp(struct net_port *p)
{
	struct nic_qp_init init = {.type = NIC_RC, .send_wrs = 64, .srq = p->srq, .user = p};
	struct nic_qp *qp;

	assert_int_equal(roce_ops.qp_create(roce_nic_context(p->ctx), &init, &qp), 0);
	return qp;
}

int
net_rtr(struct nic_qp *qp, struct net_node *peer, uint32_t remote_qpn, uint32_t psn)
{
	struct nic_qp_attr attr = {.state = NIC_QP_INIT};
	struct nic_attr device;
	int error = roce_ops.qp_modify(qp, &attr);

	if (error)
		return error;
	roce_ops.query(roce_nic_device(peer->dev), &device);
	attr.state = NIC_QP_RTR;
	attr.remote_gid = device.gid;
	attr.remote_qpn = remote_qpn;
	attr.remote_psn = psn;
	return roce_ops.qp_modify(qp, &attr);
}

int
net_rts(struct nic_qp *qp, uint32_t psn)
{
	struct nic_qp_attr attr = {.state = NIC_QP_RTS, .psn = psn};

	return roce_ops.qp_modify(qp, &attr);
}

void
net_connect(struct net_port *a, struct net_port *b, uint32_t psn, struct nic_qp **qa,
	    struct nic_qp **qb)
{
	*qa = net_qp(a);
	*qb = net_qp(b);
	assert_int_equal(net_rtr(*qa, b->node, nic_qpn(*qb), psn), 0);
	assert_int_equal(net_rtr(*qb, a->node, nic_qpn(*qa), psn), 0);
	assert_int_equal(net_rts(*qa, psn), 0);
	assert_int_equal(net_rts(*qb, psn), 0);
}

void
net_join(struct nic_qp *qp, struct nic_qp *peer, struct nic_qp_attr attr)
{
	attr.remote_gid = ((struct roce_qp *)peer)->ctx->dev->config.gid;
	attr.remote_qpn = nic_qpn(peer);
	for (attr.state = NIC_QP_INIT; attr.state <= NIC_QP_RTS; attr.state++)
		assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
}

struct craft
net_craft(unsigned from, unsigned to, uint8_t opcode, uint32_t qpn, uint32_t psn)
{
	struct craft c = {.opcode = opcode,
			  .source_ip = net_ip(from),
			  .dest_ip = net_ip(to),
			  .qpn = qpn,
			  .psn = psn & PSN_MASK};

	frame_mac(from, c.source_mac);
	frame_mac(to, c.dest_mac);
	return c;
}

void
net_give(struct net *n, unsigned node, const struct craft *c)
{
	uint8_t f[ROCE_FRAME_MAX(4096) + 64];

	net_inject(n, node, f, craft_frame(c, f));
}

void
net_post_recvs(struct net_port *p, const struct nic_mr *mr, unsigned count, uint32_t each)
{
	for (unsigned i = 0; i < count; i++) {
		struct nic_recv_wr wr = {
		    .wr_id = i,
		    .sge = {.address = mr ? mr->address + (uint64_t)i * each : 0,
			    .length = mr ? each : 0,
			    .lkey = mr ? mr->lkey : 0}};

		assert_int_equal(roce_ops.post_srq_recv(p->srq, &wr, 1), 1);
	}
}

struct nic_counters
net_counters(struct net_node *node)
{
	struct nic_counters sum = {0}, one;

	for (unsigned i = 0; i < node->contexts; i++) {
		roce_ops.counters(roce_nic_context(node->port[i].ctx), &one);
		for (size_t k = 0; k < sizeof(one) / 8; k++)
			((uint64_t *)&sum)[k] += ((uint64_t *)&one)[k];
	}
	return sum;
}

void
net_check_sum(struct net_node *node)
{
	struct nic_counters c = net_counters(node);
	uint64_t drops = 0;

#define X(name, help) drops += c.drop_##name;
	NIC_DROP_REASONS(X)
#undef X
	drops -= c.drop_impaired + c.drop_tx_full + c.drop_no_neighbour;
	assert_int_equal(c.rx_frames, c.rx_accepted + drops);
}
