/* SPDX-License-Identifier: BSD-3-Clause */
/* A node of plane.c: engines and a broker, what they ask of their shell, and its control. */
#define _GNU_SOURCE
#include "plane_real.h"

#include "broker/session.h"
#include "broker/state.h"
#include "engine/channel.h"
#include "engine/session.h"
#include "engine/state.h"

#define SRQ 256u

/* ---- what engines and the broker ask of their shell ---- */

static uint64_t
ring_doorbell(void *user, uint32_t id, bool cpu_time)
{
	struct plane_engine *e = user;

	shell_doorbell_ring(&e->node->doorbells, e->id, id);
	return 0;
}

static bool
emit(void *user, const struct engine_event *event)
{
	struct plane_engine *e = user;

	if (ring_full(&e->events))
		return false;
	e->event[ring_put(&e->events)] = *event;
	return true;
}

static int
put_command(void *user, uint32_t engine, struct engine_command *c)
{
	struct plane_engine *e = &((struct node *)user)->engine[engine];

	if (ring_full(&e->commands))
		return -EAGAIN;
	e->command[ring_put(&e->commands)] = c;
	return 0;
}

static int
doorbell_add(void *user, uint32_t engine, uint32_t id, struct weir_bell bell)
{
	return shell_doorbell_add(&((struct node *)user)->doorbells, engine, id, bell);
}

static void
doorbell_remove(void *user, uint32_t engine, uint32_t id)
{
	shell_doorbell_remove(&((struct node *)user)->doorbells, engine, id);
}

static void
wake(void *user, uint32_t engine)
{
}

static void
engine_row(void *user, uint32_t engine, struct weir_row_engine *row)
{
}

static uint64_t
now(void *user)
{
	return ((struct node *)user)->plane->net->now;
}

/* ---- control ---- */

static uint32_t
node_id(const struct plane *p, uint32_t index)
{
	return p->o.nodes ? PLANE_NODE(index) : index;
}

static uint64_t
incarnation(const struct plane *p, uint32_t index)
{
	return 1000 * p->lives + index;
}

/* Messages for peers arrive; those for control itself it would only note. */
static void
control_output(void *user, const struct weir_ctl_msg *m)
{
	struct node *n = user;
	struct plane *p = n->plane;
	uint32_t peer = m->type == WEIR_CTL_LINK ? m->link.peer_node : m->link_down.peer_node;

	if (m->type != WEIR_CTL_LINK && m->type != WEIR_CTL_RESYNC && m->type != WEIR_CTL_SERVICES)
		return;
	for (uint32_t i = 0; i < p->nodes; i++)
		if (m->type == WEIR_CTL_SERVICES ? i != n->id : node_id(p, i) == peer) {
			struct letter *l = &p->letter[ring_put(&p->mail)];

			assert_true(m->length <= sizeof(l->m));
			l->to = i;
			memcpy(&l->m, m, m->length);
		}
}

static void
introduce(struct plane *p, uint32_t to, uint32_t about)
{
	struct weir_ctl_msg m = {
	    .type = WEIR_CTL_NODE,
	    .length = weir_ctl_length(WEIR_CTL_NODE),
	    .node = {.id = node_id(p, about),
		     .state = WEIR_NODE_UP,
		     .incarnation = incarnation(p, about),
		     .engines = p->o.engines,
		     .self = to == about,
		     .address_count = 1},
	};
	struct nic_gid gid = net_gid(net_ip(about));

	memcpy(m.node.address[0], &gid, sizeof(m.node.address[0]));
	broker_control_input(p->node[to].broker, &m);
}

/* Control reports to node 0. */
void
plane_node(struct plane *p, const struct weir_node_info *is)
{
	struct weir_ctl_msg m = {
	    .type = WEIR_CTL_NODE,
	    .length = weir_ctl_length(WEIR_CTL_NODE),
	    .node = {.id = is->id,
		     .state = is->state,
		     .incarnation = is->incarnation,
		     .engines = 1,
		     .address_count = is->address_count},
	};

	memcpy(m.node.address, is->address, sizeof(is->address));
	broker_control_input(p->node[0].broker, &m);
}

void
plane_synced(struct plane *p)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SYNCED,
				 .length = weir_ctl_length(WEIR_CTL_SYNCED)};

	for (uint32_t i = 0; i < p->nodes; i++)
		broker_control_input(p->node[i].broker, &m);
}

void
plane_join(struct plane *p)
{
	for (uint32_t i = 0; i < p->nodes; i++) {
		introduce(p, i, i);
		for (uint32_t k = 0; k < p->nodes; k++)
			if (k != i)
				introduce(p, i, k);
	}
	plane_synced(p);
}

unsigned
plane_mail(struct plane *p)
{
	unsigned count = 0;

	for (; ring_pending(&p->mail); count++) {
		struct letter l = p->letter[ring_take(&p->mail)];

		broker_control_input(p->node[l.to].broker, &l.m);
	}
	return count;
}

/* ---- turns ---- */

/* Keeps the way of the last message in a channel that its engine has not taken yet. */
static void
look_at_channel(struct plane *p, const struct channel *ch)
{
	struct weir_ring r = ch->tx;
	struct weir_slot *s;

	while ((s = weir_ring_peek(&r))) {
		bool is_inline = s->op == WEIR_OP_INLINE;

		if (is_inline || s->op == WEIR_OP_PLACE)
			p->way = s->flags & (WEIR_SLOT_TRANSFERS | WEIR_SLOT_BULK);
		r.pos += is_inline ? weir_slots_inline(s->length) : 1; /* the tail stays */
	}
}

static void
look_at_channels(const struct plane_engine *e)
{
	struct plane *p = e->node->plane;

	for (uint32_t i = 0; i < p->clients; i++) {
		const struct broker_session *s = p->client[i].session;

		if (!s || s->state != SESSION_OPEN || p->client[i].node != e->node)
			continue;
		for (uint32_t k = 0; k < s->channel_count; k++)
			if (e->engine->sessions[s->id].channels[k].session)
				look_at_channel(p, &e->engine->sessions[s->id].channels[k]);
	}
}

static unsigned
run_commands(struct plane_engine *e)
{
	struct engine_command *c;
	unsigned n = 0;

	for (; ring_pending(&e->commands); n++) {
		c = e->command[ring_take(&e->commands)];
		if (engine_execute(e->engine, c))
			e->reply[ring_put(&e->replies)] = c;
	}
	while ((c = engine_done(e->engine)))
		e->reply[ring_put(&e->replies)] = c;
	return n;
}

/* The main lcore: events before the answers that follow them. */
static unsigned
run_broker(struct node *n)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < n->plane->o.engines; i++) {
		struct plane_engine *e = &n->engine[i];

		for (; ring_pending(&e->events); count++)
			broker_event(n->broker, i, &e->event[ring_take(&e->events)]);
		for (; ring_pending(&e->replies); count++)
			broker_completed(n->broker, i, e->reply[ring_take(&e->replies)]);
	}
	broker_run(n->broker);
	return count;
}

unsigned
plane_node_turn(struct node *n)
{
	struct plane *p = n->plane;
	unsigned count = 0;

	for (uint32_t k = 0; k < p->o.engines; k++) {
		count += run_commands(&n->engine[k]);
		look_at_channels(&n->engine[k]);
		if (!atomic_load(&p->held))
			count += engine_turn(n->engine[k].engine, p->net->now);
		count += run_commands(&n->engine[k]);
	}
	return count + run_broker(n);
}

/* ---- what tests see of it ---- */

uint32_t
plane_open_ends(struct plane *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->nodes; i++)
		n += p->node[i].broker->conn_count;
	return n;
}

uint32_t
plane_segments(struct plane *p)
{
	const struct broker *b = p->node[0].broker;
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->segment_top; i++)
		n += b->segment[i] != NULL;
	return n;
}

/* ---- create and destroy ---- */

static void
create_engine(struct plane_engine *e, struct net_port *port)
{
	const struct plane_options *o = &e->node->plane->o;
	struct nic_context *nic = roce_nic_context(port->ctx);
	struct engine_config *c = &e->config;

	*c = (struct engine_config){
	    .id = e->id,
	    .count = o->engines,
	    .connections = 256,
	    .sessions = CLIENTS,
	    .links = o->links,
	    .session_pending = 1024,
	    .regions = 3,
	    .exports = 4,
	    .initial_grant = o->first,
	    .window = o->window,
	    .threshold = 0.6,
	    .nic = nic,
	    .srq = port->srq,
	    .srq_depth = SRQ,
	    .ring_doorbell = ring_doorbell,
	    .emit = emit,
	    .user = e,
	};
	c->recv = calloc(1, engine_recv_bytes(SRQ));
	assert_non_null(c->recv);
	assert_int_equal(NIC_OPS(nic)->mr_reg(roce_nic_device(port->node->dev), c->recv,
					      engine_recv_bytes(SRQ), NIC_LOCAL_WRITE, &c->recv_mr),
			 0);
	e->engine = engine_create(c);
	assert_non_null(e->engine);
}

void
plane_node_create(struct plane *p, uint32_t index)
{
	struct node *n = &p->node[index];
	struct net_node *net = &p->net->node[index];
	uint64_t blocks = p->o.recv_blocks > p->o.send_blocks ? p->o.recv_blocks : p->o.send_blocks;
	struct broker_config c = {
	    .engines = p->o.engines,
	    .incarnation = incarnation(p, index),
	    .sessions = CLIENTS,
	    .connections = 256 * p->o.engines,
	    .channels = p->o.channels,
	    .session_connections = 256,
	    .ring_slots = p->o.ring_slots,
	    .arena_bytes = (2 * blocks + 128) * WEIR_BLOCK_SIZE,
	    .regions = 3,
	    .exports = 4,
	    .export_keys = 8,
	    .region_bytes = 192 << 20,
	    .adopt_bytes = 64 << 20,
	    .peer_ring_lines = 4096,
	    .answers = p->o.answers,
	    .recv_wrs = 64,
	    .links = p->o.links,
	    .repair_timeout_ns = 10000000000ull,
	    .command = put_command,
	    .doorbell_add = doorbell_add,
	    .doorbell_remove = doorbell_remove,
	    .memory_get = shell_memory_get,
	    .memory_put = shell_memory_put,
	    .wake = wake,
	    .engine_row = engine_row,
	    .now = now,
	    .user = n,
	};

	n->plane = p;
	n->id = index;
	for (uint32_t i = 0; i < p->o.engines; i++) {
		struct plane_engine *e = &n->engine[i];

		e->node = n;
		e->id = i;
		create_engine(e, &net->port[i]);
		c.engine[i] = (struct broker_engine){.dev = roce_nic_device(net->dev),
						     .nic = e->config.nic,
						     .srq = e->config.srq,
						     .engine = e->engine,
						     .engine_config = &e->config,
						     .numa_socket = -1};
	}
	n->broker = broker_create(&c);
	assert_non_null(n->broker);
	broker_set_control_output(n->broker, control_output, n);
}

void
plane_node_end(struct node *n)
{
	broker_destroy(n->broker);
	for (uint32_t k = 0; k < n->plane->o.engines; k++)
		engine_destroy(n->engine[k].engine);
	shell_doorbells_fini(&n->doorbells);
}

void
plane_node_free(struct node *n)
{
	for (uint32_t k = 0; k < n->plane->o.engines; k++)
		free(n->engine[k].config.recv);
	memset(n, 0, sizeof(*n));
}
