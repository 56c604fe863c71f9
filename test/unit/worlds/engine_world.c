/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_world.h"

#include "engine/link.h"
#include "weir/memory.h"

static struct world *current;

static struct world_options
defaults(const struct world_options *o)
{
	struct world_options d = o ? *o : (struct world_options){0};

	d.ring_lines = d.ring_lines ? d.ring_lines : 1024;
	d.recv_wrs = d.recv_wrs ? d.recv_wrs : 64;
	d.answers = d.answers ? d.answers : 128 << 10;
	d.ring_slots = d.ring_slots ? d.ring_slots : 256;
	d.recv_blocks = d.recv_blocks ? d.recv_blocks : 1024;
	d.window = d.window ? d.window : 256 << 10;
	d.initial_grant = d.initial_grant ? d.initial_grant : 512;
	d.pending = d.pending ? d.pending : 1024;
	return d;
}

static uint64_t
on_doorbell(void *user, uint32_t doorbell, bool cpu_time)
{
	struct node *n = user;

	for (unsigned i = 0; i < PROGRAMS; i++)
		if (n->program[i] && doorbell / CHANNELS == i) {
			n->program[i]->bells++;
			return cpu_time ? n->program[i]->bell_cpu_ns : n->program[i]->bell_ns;
		}
	return 0;
}

/* Main's answer to a CONNECT. */
static void
answer(struct node *n, const struct engine_conn_command *asked)
{
	struct program *p = n->program[n->listener];
	struct engine_command k = {.type = ENGINE_CONN_ACCEPT, .conn = *asked};
	struct weir_wire_export x;
	struct pconn *c;
	int rc;

	if (n->refuse || !p) {
		k.type = ENGINE_CONN_REJECT;
		k.conn.status = ECONNREFUSED;
		node_command(n, &k);
		return;
	}
	c = program_free_conn(p);
	k.conn.session = p->id;
	k.conn.channel = 0;
	k.conn.desc = c->desc;
	k.conn.listener = 7;
	k.conn.held = n->holds;
	if (asked->kind == CONN_MEMORY) {
		memcpy(&x, asked->service, sizeof(x));
		k.conn.channel = ENGINE_CHANNEL_NONE;
		k.conn.desc = ENGINE_DESC_NONE;
		k.conn.export_session = p->id;
		k.conn.export_number = x.index;
		k.conn.export_generation = x.generation;
		k.conn.rights = x.rights;
		k.key = n->key;
	}
	k.conn.ah = (struct nic_ah *)&n->ah;
	k.conn.mtu = asked->kind == CONN_DATAGRAM ? WORLD_MTU : 0;
	rc = node_command(n, &k);
	c->used = !rc;
	c->vqpn = k.conn.vqpn;
	if (rc && asked->kind == CONN_MEMORY) {
		k = (struct engine_command){.type = ENGINE_CONN_REJECT, .conn = *asked};
		k.conn.status = (uint32_t)-rc;
		node_command(n, &k);
	}
	c->datagram = asked->kind == CONN_DATAGRAM;
}

struct late { /* events are answered outside of the turn */
	struct node *n;
	struct engine_event event;
};
static struct late late[65536];
static uint32_t late_count;

static bool
on_emit(void *user, const struct engine_event *event)
{
	struct node *n = user;

	if (n->full)
		return false;
	assert_true(late_count < 65536);
	late[late_count++] = (struct late){n, *event};
	return true;
}

const struct nic_mr *
node_ring_mr(const struct node *n, bool least)
{
	return least ? &n->link.least.ring_mr : &n->link.ring_mr;
}

/* Main's part: memory that is not used any more can't be written, and is spoilt. */
static void
rings(struct node *n, const struct engine_rings *r)
{
	struct engine_command k = {.link = n->link};
	size_t bytes = (size_t)n->link.ring_lines * 64;

	n->rings_told++;
	/* memory that was given stays until the engine has entered it */
	n->ring_given &= r->ring_least;
	n->staging_given &= r->staging_least;
	if (r->ring_least && !n->ring_out && !n->ring_given) {
		fake_mr_end(&current->net, &n->link.ring_mr);
		memset(n->ring, 0xaa, bytes);
		n->ring_out = true;
	}
	if (r->staging_least && !n->staging_out && !n->staging_given) {
		memset(n->staging, 0xbb, bytes);
		memset(n->work, 0xcc, engine_staging_bytes(n->link.ring_lines));
		n->staging_out = true;
	}
	if (r->ring_wanted) {
		k.type = ENGINE_LINK_RING;
		if (!n->no_memory)
			n->link.ring_mr = fake_mr(&current->net, n->ring, bytes, NIC_REMOTE_WRITE);
		k.link.ring_mr = n->link.ring_mr;
		k.link.ring = n->no_memory ? NULL : n->ring;
		n->ring_out &= n->no_memory;
		n->ring_given = !n->no_memory;
		assert_int_equal(node_command(n, &k), n->no_memory ? -EBUSY : 0);
	}
	if (r->staging_wanted) {
		k.type = ENGINE_LINK_STAGING;
		assert_int_equal(r->staging_wanted, n->link.staging_lines);
		k.link.staging = n->no_memory ? NULL : n->staging;
		n->staging_out &= n->no_memory;
		n->staging_given = !n->no_memory;
		assert_int_equal(node_command(n, &k), n->no_memory ? -EBUSY : 0);
	}
}

static void
handle(struct node *n, const struct engine_event *event)
{
	struct program *p;
	struct pconn *c;

	switch (event->type) {
	case ENGINE_EVENT_CONNECT:
		answer(n, &event->conn);
		break;
	case ENGINE_EVENT_CONN_CLOSED:
		p = n->program[event->conn.session];
		c = p ? program_conn(p, event->conn.vqpn) : NULL;
		if (c)
			c->freed = true;
		break;
	case ENGINE_EVENT_LOCAL_CLOSE:
		n->local_closed++;
		break;
	case ENGINE_EVENT_LINK_ERROR:
		n->link_errors++;
		n->link_error = event->conn.status;
		break;
	case ENGINE_EVENT_LINK_HEARD:
		break;
	case ENGINE_EVENT_LINK_IDLE:
		n->links_idle++;
		break;
	case ENGINE_EVENT_LINK_CLOSED:
		n->links_closed++;
		break;
	case ENGINE_EVENT_LINK_STAYS:
		n->links_stay++;
		break;
	case ENGINE_EVENT_LINK_RINGS:
		if (event->rings.life == n->link.life)
			rings(n, &event->rings);
		break;
	case ENGINE_EVENT_LINK_SILENT:
		n->silences++;
		break;
	case ENGINE_EVENT_DATAGRAM_ERROR:
		n->datagram_errors++;
		break;
	case ENGINE_EVENT_LOCK:
		n->lock_asked = event->lock;
		n->locks_asked++;
		break;
	case ENGINE_EVENT_FULL:
		n->full_told++;
		break;
	case ENGINE_EVENT_VIOLATION:
		assert_true(event->reason && event->reason[0]);
		if (n->program[event->conn.session])
			n->program[event->conn.session]->violated = true;
		break;
	}
}

static void
make_link(struct world *w, unsigned i)
{
	struct node *n = &w->node[i];
	size_t bytes = w->options.ring_lines * 64, least = ENGINE_RING_LEAST * 64;
	uint32_t life = n->link.life;

	n->ring_out = n->staging_out = n->ring_given = n->staging_given = false;
	memset(n->work, 0, engine_link_bytes(w->options.ring_lines));
	memset(n->least + 2 * least, 0, engine_link_bytes(ENGINE_RING_LEAST));
	memset(n->credit, 0, 128);
	n->link = (struct engine_link_command){
	    .life = life + 1,
	    .peer_ring_lines = w->options.ring_lines,
	    .least = {n->least, n->least + least, n->least + 2 * least,
		      fake_mr(&w->net, n->least, least, NIC_REMOTE_WRITE),
		      fake_mr(&w->net, n->least + least, least, 0)},
	    .link = 1,
	    .peer_node = (uint16_t)!i,
	    .peer_gid = nic_gid_ipv4(0x0a000001u + !i),
	    .qp = {(struct nic_qp *)&n->qp[0], (struct nic_qp *)&n->qp[1]},
	    .ring = n->ring,
	    .staging = n->staging,
	    .ring_lines = w->options.ring_lines,
	    .staging_lines = w->options.ring_lines,
	    .ring_mr = fake_mr(&w->net, n->ring, bytes, NIC_REMOTE_WRITE),
	    .staging_mr = fake_mr(&w->net, n->staging, bytes, 0),
	    .credit_mr = fake_mr(&w->net, n->credit, 128, NIC_REMOTE_WRITE),
	    .credit = n->credit,
	    .peer_recv_wrs = w->options.recv_wrs,
	    .recv_wrs = w->options.recv_wrs,
	    .work = n->work,
	    .answers = n->answers,
	    .answer_lines = w->options.answers / WEIR_SLOT_SIZE,
	    .peer_answers = w->options.answers,
	};
}

void
world_link_up(struct world *w)
{
	for (unsigned i = 0; i < WORLD_NODES; i++) {
		struct node *n = &w->node[i];

		for (unsigned k = 0; k < 2; k++)
			fake_qp_init(&n->qp[k], n->nic, engine_link_user(n->engine, 1, k));
		make_link(w, i);
	}
	for (unsigned k = 0; k < 2; k++)
		fake_qp_join(&w->node[0].qp[k], &w->node[1].qp[k]);
	for (unsigned i = 0; i < WORLD_NODES; i++) {
		struct node *n = &w->node[i], *m = &w->node[!i];
		struct engine_command k = {.type = ENGINE_LINK_ADD};

		n->link.peer_ring_address = m->link.ring_mr.address;
		n->link.peer_ring_rkey = m->link.ring_mr.rkey;
		n->link.peer_credit_address = m->link.credit_mr.address;
		n->link.peer_credit_rkey = m->link.credit_mr.rkey;
		k.link = n->link;
		assert_int_equal(node_command(n, &k), 0);
	}
}

void
world_link_fail(struct world *w, unsigned node, uint32_t status)
{
	struct engine_command k = {.type = ENGINE_LINK_FAIL, .link = {.link = 1, .status = status}};

	w->node[node].qp[0].dead = w->node[node].qp[1].dead = true;
	assert_int_equal(node_command(&w->node[node], &k), 0);
}

void
world_links_fail(struct world *w, uint32_t status)
{
	for (unsigned i = 0; i < WORLD_NODES; i++)
		world_link_fail(w, i, status);
}

void
world_datagrams(struct world *w, unsigned node)
{
	struct node *n = &w->node[node];
	struct engine_command k = {.type = ENGINE_DATAGRAM_ADD};
	size_t bytes = 2 * (size_t)ENGINE_DATAGRAMS * ENGINE_DATAGRAM_BYTES;

	if (!n->datagrams.memory) {
		n->datagrams.memory = aligned_alloc(64, bytes);
		n->datagrams.mr = fake_mr(&w->net, n->datagrams.memory, bytes, NIC_LOCAL_WRITE);
	}
	n->ah.source = nic_gid_ipv4(0x0a000001u + node);
	n->datagrams.qkey = 1000 + w->net.qps;
	fake_ud_init(&n->ud, n->nic, engine_datagram_user(n->engine), &n->ud_srq,
		     n->datagrams.qkey);
	n->datagrams.qp = (struct nic_qp *)&n->ud;
	n->datagrams.srq = (struct nic_srq *)&n->ud_srq;
	k.datagram = n->datagrams;
	assert_int_equal(node_command(n, &k), 0);
}

struct world *
world_create(const struct world_options *o)
{
	struct world *w = calloc(1, sizeof(*w));

	world_end(NULL);
	current = w;
	w->options = defaults(o);
	late_count = 0;
	w->now = 1000000;
	w->step_ns = 500;
	w->net.delay_ns = w->options.delay_ns;
	for (unsigned i = 0; i < WORLD_NODES; i++) {
		struct node *n = &w->node[i];
		struct engine_config c = {
		    .id = 0,
		    .count = 1,
		    .connections = 128,
		    .sessions = PROGRAMS,
		    .links = 4,
		    .session_pending = w->options.pending,
		    .regions = REGIONS,
		    .exports = EXPORTS,
		    .initial_grant = w->options.initial_grant,
		    .window = w->options.window,
		    .silence_ns = w->options.silence_ns,
		    .ring_idle_ns = w->options.ring_idle_ns,
		    .threshold = w->options.threshold ? w->options.threshold : 0.6,
		    .srq_depth = 256,
		    .ring_doorbell = on_doorbell,
		    .emit = on_emit,
		    .user = n,
		};

		n->nic = malloc(sizeof(*n->nic));
		fake_context_init(n->nic, &w->net);
		c.nic = n->nic;
		c.srq = (struct nic_srq *)n->nic;
		c.recv = n->recv = aligned_alloc(64, engine_recv_bytes(c.srq_depth));
		c.recv_mr =
		    fake_mr(&w->net, c.recv, engine_recv_bytes(c.srq_depth), NIC_LOCAL_WRITE);
		if (w->options.fence)
			c.fence_mr = fake_mr(&w->net, &n->fence, sizeof(n->fence), NIC_REMOTE_READ);
		n->engine = engine_create(&c);
		assert_non_null(n->engine);
		n->ring = aligned_alloc(64, w->options.ring_lines * 64);
		n->staging = aligned_alloc(64, w->options.ring_lines * 64);
		n->least = aligned_alloc(64, 2 * ENGINE_RING_LEAST * 64 +
						 engine_link_bytes(ENGINE_RING_LEAST));
		n->credit = aligned_alloc(64, 128);
		n->answers = aligned_alloc(64, w->options.answers);
		n->work = aligned_alloc(64, engine_link_bytes(w->options.ring_lines));
		memset(n->ring, 0xee, w->options.ring_lines * 64);
		memset(n->staging, 0xdd, w->options.ring_lines * 64);
	}
	if (!w->options.no_link)
		world_link_up(w);
	return w;
}

void
world_destroy(struct world *w)
{
	current = NULL;
	assert_int_equal(w->net.bad_writes, 0);
	assert_int_equal(w->net.no_recv, 0);
	assert_int_equal(w->net.overruns, 0);
	for (unsigned i = 0; i < WORLD_NODES; i++) {
		struct node *n = &w->node[i];

		engine_destroy(n->engine);
		fake_context_fini(n->nic);
		for (unsigned k = 0; k < PROGRAMS; k++)
			if (n->program[k])
				program_free(n->program[k]);
		free(n->nic);
		free(n->recv);
		free(n->ring);
		free(n->staging);
		free(n->least);
		free(n->credit);
		free(n->answers);
		free(n->work);
		free(n->datagrams.memory);
	}
	free(w);
}

int
world_end(void **state)
{
	if (current)
		world_destroy(current);
	return 0;
}

static void
node_turn(struct world *w, struct node *n)
{
	struct engine_command *k;
	const char *wrong;

	engine_turn(n->engine, w->now);
	wrong = engine_check(n->engine);
	if (wrong)
		fail_msg("node %d at %lu: %s", (int)(n - w->node), (unsigned long)w->now, wrong);
	while ((k = engine_done(n->engine))) {
		struct program *p = k->owner;

		if (k->type == ENGINE_SESSION_REMOVE)
			p->removed = true;
		if (k->type == ENGINE_REGION_REMOVE) /* as main does: what comes later is bad */
			program_end_region(p, k->region.region);
		n->exports_removed += k->type == ENGINE_EXPORT_REMOVE;
		free(k);
	}
}

void
world_events(struct world *w)
{
	for (uint32_t i = 0; i < late_count; i++)
		handle(late[i].n, &late[i].event);
	late_count = 0;
}

void
world_step(struct world *w)
{
	w->now += w->step_ns;
	for (unsigned i = 0; i < WORLD_NODES; i++)
		node_turn(w, &w->node[i]);
	world_events(w);
	for (unsigned i = 0; i < WORLD_NODES; i++)
		for (unsigned k = 0; k < PROGRAMS; k++)
			if (w->node[i].program[k] && !w->node[i].program[k]->stopped)
				program_read(w->node[i].program[k]);
}

void
world_later(struct world *w, uint64_t ns, unsigned steps)
{
	w->now += ns;
	world_run(w, steps);
}

uint64_t
world_sleep(struct world *w, struct engine *e)
{
	uint64_t until = engine_sleep_prepare(e, w->now);

	engine_sleep_cancel(e);
	return until;
}

void
world_turn(struct world *w, unsigned node)
{
	w->now += w->step_ns;
	engine_turn(w->node[node].engine, w->now);
}

void
world_run(struct world *w, unsigned steps)
{
	while (steps--)
		world_step(w);
}

static void
connect_pair(struct program *pa, struct program *pb, bool datagram, struct pconn **a,
	     struct pconn **b)
{
	static uint32_t tag = 1;
	struct world *w = pa->w;

	w->node[pb->node].listener = pb->id;
	*a = datagram ? pconn_connect_datagram(pa) : pconn_connect(pa);
	for (unsigned i = 0; i < 200 && !(*a)->opened; i++)
		world_step(w);
	assert_true((*a)->opened);
	assert_int_equal((*a)->open_status, 0);
	*b = NULL;
	for (unsigned i = 0; i < CONNS; i++)
		if (pb->conn[i].used && pb->conn[i].opened && !pb->conn[i].freed &&
		    pb->conn[i].peer_vqpn == (*a)->vqpn)
			*b = &pb->conn[i];
	assert_non_null(*b);
	(*a)->tag_out = (*b)->tag_in = tag++;
	(*b)->tag_out = (*a)->tag_in = tag++;
}

void
world_connect(struct program *pa, struct program *pb, struct pconn **a, struct pconn **b)
{
	connect_pair(pa, pb, false, a, b);
}

void
world_connect_datagram(struct program *pa, struct program *pb, struct pconn **a, struct pconn **b)
{
	connect_pair(pa, pb, true, a, b);
	assert_int_equal((*a)->mtu, WORLD_MTU);
	assert_int_equal((*b)->mtu, WORLD_MTU);
}

const struct engine_counters *
node_counters(struct world *w, unsigned node)
{
	return engine_counters(w->node[node].engine);
}

int
node_command(struct node *n, struct engine_command *c)
{
	assert_true(engine_execute(n->engine, c));
	return c->result;
}

struct pair
pair_with_honest(void)
{
	struct pair p = PAIR(2);

	p.honest = program_open(p.w, 0, 1);
	world_connect(p.honest, p.pb, &p.x, &p.y);
	return p;
}

void
honest_traffic(struct pair *p)
{
	pconn_stream(p->x, p->y, 400, 0, 20);
	assert_int_equal(p->y->received, p->x->sent);
	assert_false(p->honest->violated || p->pb->violated);
}

struct weir_frame_head
link_next_head(const struct peer_link *l, uint32_t lines)
{
	return (struct weir_frame_head){.version = WEIR_WIRE_VERSION,
					.lines = lines,
					.position = l->rx_pos,
					.consumed = l->tx_posted,
					.wrs = l->wrs_used};
}

void
link_inject(struct peer_link *l, struct fake_qp *qp, const struct weir_slot *lines, uint32_t n,
	    const struct weir_frame_head *lie, uint32_t imm)
{
	struct weir_frame_head head = lie ? *lie : link_next_head(l, n + 1);

	memcpy(&l->ring[l->rx_pos & l->rx_mask], &head, 64);
	for (uint32_t i = 0; i < n; i++)
		memcpy(&l->ring[(l->rx_pos + 1 + i) & l->rx_mask], &lines[i], 64);
	fake_receive(qp, imm ? imm : WEIR_IMM(WEIR_IMM_FRAME, n + 1));
}

uint32_t
next_random(uint32_t *r)
{
	*r ^= *r << 13;
	*r ^= *r >> 17;
	*r ^= *r << 5;
	return *r;
}
