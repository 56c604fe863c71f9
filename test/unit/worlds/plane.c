/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "plane.h"

#include "roce_net.h"

#include "broker/broker.h"
#include "broker/export.h"
#include "broker/region.h"
#include "broker/session.h"
#include "broker/set.h"
#include "broker/state.h"
#include "engine/channel.h"
#include "engine/session.h"
#include "engine/state.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENGINES 2u
#define QUEUE 1024u /* commands, events or messages of control under way, power of two */
#define DOORBELLS 64u
#define CLIENTS 16u
#define SRQ 256u
#define START_NS 1000000000ull
#define TURN_NS 10000u
#define QUIET 24u	 /* turns without work after which nothing moves any more */
#define IMPATIENT 100000 /* turns after which a request has no answer */

/* Positions run freely. */
struct queue {
	uint32_t head, tail;
};

struct plane_engine {
	struct node *node;
	uint32_t id;
	struct engine *engine;
	struct engine_config config;
	struct queue commands, replies, events;
	struct engine_command *command[QUEUE], *reply[QUEUE];
	struct engine_event event[QUEUE];
};

struct node {
	struct plane *plane;
	uint32_t id;
	struct broker *broker;
	struct plane_engine engine[ENGINES];
	struct {
		uint32_t id, engine;
		struct weir_bell bell;
		bool used;
	} doorbell[DOORBELLS];
};

/* A message of a data plane to another's. */
struct letter {
	uint32_t to; /* index of the node */
	struct weir_ctl_msg m;
};

struct client {
	struct plane *plane;
	struct node *node;
	struct weir *w;
	struct broker_session *session; /* NULL: not open, or ended */
	bool replied;
	int socket[2]; /* nothing is ever sent on it; [1] closed: hung up */
	struct weir_session_msg reply;
	int fds[WEIR_SESSION_FDS];
};

struct plane {
	struct plane_options o;
	pthread_mutex_t lock; /* of everything; each call and each turn takes it */
	struct net *net;
	uint32_t nodes;
	struct node node[NET_NODES];
	struct client client[CLIENTS];
	uint32_t clients;
	struct queue mail;
	struct letter letter[QUEUE];
	uint8_t *segment;
	struct weir_segment_geometry segment_geometry;
	uint32_t lists, finds, find_flags, listen_flags;
	_Atomic uint32_t listens;
	uint8_t way;
	pthread_t thread;
	bool running, down;
	uint32_t lives; /* starts of the data planes */
	_Atomic bool stop, held;
};

static bool
pending(const struct queue *q)
{
	return q->head != q->tail;
}

static bool
is_full(const struct queue *q)
{
	return q->head - q->tail == QUEUE;
}

static uint32_t
put(struct queue *q)
{
	assert_false(is_full(q));
	return q->head++ % QUEUE;
}

static uint32_t
take(struct queue *q)
{
	return q->tail++ % QUEUE;
}

/* ---- interfaces of engines and broker to the rest of a data plane ---- */

static uint64_t
ring_doorbell(void *user, uint32_t id, bool cpu_time)
{
	struct plane_engine *e = user;

	for (uint32_t i = 0; i < DOORBELLS; i++)
		if (e->node->doorbell[i].used && e->node->doorbell[i].id == id &&
		    e->node->doorbell[i].engine == e->id)
			weir_bell_ring(&e->node->doorbell[i].bell);
	return 0;
}

static bool
emit(void *user, const struct engine_event *event)
{
	struct plane_engine *e = user;

	if (is_full(&e->events))
		return false;
	e->event[put(&e->events)] = *event;
	return true;
}

static int
put_command(void *user, uint32_t engine, struct engine_command *c)
{
	struct plane_engine *e = &((struct node *)user)->engine[engine];

	if (is_full(&e->commands))
		return -EAGAIN;
	e->command[put(&e->commands)] = c;
	return 0;
}

static int
doorbell_add(void *user, uint32_t engine, uint32_t id, struct weir_bell bell)
{
	struct node *n = user;

	for (uint32_t i = 0; i < DOORBELLS; i++) {
		if (n->doorbell[i].used)
			continue;
		n->doorbell[i].id = id;
		n->doorbell[i].engine = engine;
		n->doorbell[i].bell = bell;
		n->doorbell[i].used = true;
		return 0;
	}
	return -ENOSPC;
}

static void
doorbell_remove(void *user, uint32_t engine, uint32_t id)
{
	struct node *n = user;

	for (uint32_t i = 0; i < DOORBELLS; i++)
		if (n->doorbell[i].used && n->doorbell[i].id == id &&
		    n->doorbell[i].engine == engine) {
			weir_bell_close(&n->doorbell[i].bell);
			n->doorbell[i].used = false;
		}
}

static void *
memory_get(void *user, size_t bytes, int numa_socket)
{
	void *memory = aligned_alloc(4096, WEIR_ALIGN_UP(bytes, 4096));

	if (memory)
		memset(memory, 0, bytes);
	return memory;
}

static void
memory_put(void *user, void *memory, size_t bytes)
{
	free(memory);
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
			struct letter *l = &p->letter[put(&p->mail)];

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

	for (; pending(&e->commands); n++) {
		c = e->command[take(&e->commands)];
		if (engine_execute(e->engine, c))
			e->reply[put(&e->replies)] = c;
	}
	while ((c = engine_done(e->engine)))
		e->reply[put(&e->replies)] = c;
	return n;
}

/* The main lcore: events before the answers that follow them. */
static unsigned
run_broker(struct node *n)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < n->plane->o.engines; i++) {
		struct plane_engine *e = &n->engine[i];

		for (; pending(&e->events); count++)
			broker_event(n->broker, i, &e->event[take(&e->events)]);
		for (; pending(&e->replies); count++)
			broker_completed(n->broker, i, e->reply[take(&e->replies)]);
	}
	broker_run(n->broker);
	return count;
}

static unsigned
turn(struct plane *p)
{
	unsigned count;

	if (p->down)
		return 0;
	count = (unsigned)p->net->frames.under_way;
	p->net->now += TURN_NS;
	for (; pending(&p->mail); count++) {
		struct letter l = p->letter[take(&p->mail)];

		broker_control_input(p->node[l.to].broker, &l.m);
	}
	for (uint32_t i = 0; i < p->nodes; i++) {
		struct node *n = &p->node[i];

		for (uint32_t k = 0; k < p->o.engines; k++) {
			count += run_commands(&n->engine[k]);
			look_at_channels(&n->engine[k]);
			if (!atomic_load(&p->held))
				count += engine_turn(n->engine[k].engine, p->net->now);
			count += run_commands(&n->engine[k]);
		}
		count += run_broker(n);
	}
	return count;
}

unsigned
plane_turn(struct plane *p)
{
	unsigned count;

	pthread_mutex_lock(&p->lock);
	count = turn(p);
	pthread_mutex_unlock(&p->lock);
	return count;
}

void
plane_impair(struct plane *p, unsigned loss, unsigned dup, unsigned reorder)
{
	pthread_mutex_lock(&p->lock);
	p->net->loss = loss;
	p->net->dup = dup;
	p->net->reorder = reorder;
	pthread_mutex_unlock(&p->lock);
}

void
plane_settle(struct plane *p)
{
	for (uint32_t quiet = 0; quiet < QUIET; quiet++)
		if (plane_turn(p))
			quiet = 0;
}

static void *
run(void *arg)
{
	struct plane *p = arg;

	while (!atomic_load(&p->stop)) {
		plane_turn(p);
		sched_yield();
	}
	return NULL;
}

void
plane_run(struct plane *p)
{
	atomic_store(&p->stop, false);
	p->running = !pthread_create(&p->thread, NULL, run, p);
}

void
plane_stop(struct plane *p)
{
	if (p->running) {
		atomic_store(&p->stop, true);
		pthread_join(p->thread, NULL);
	}
	p->running = false;
}

void
plane_hold(struct plane *p, bool held)
{
	pthread_mutex_lock(&p->lock); /* no turn goes on that began before */
	atomic_store(&p->held, held);
	pthread_mutex_unlock(&p->lock);
}

/* ---- programs ---- */

static void
hang_up(struct client *c)
{
	if (c->socket[1] >= 0)
		close(c->socket[1]);
	c->socket[1] = -1;
}

static void
on_reply(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct client *c = user;

	if (!reply) {
		c->session = NULL;
		hang_up(c);
		return;
	}
	assert_false(c->replied);
	c->reply = *reply;
	c->replied = true;
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		c->fds[i] = i < fd_count ? dup(fds[i]) : -1;
}

/* Counts the requests that tests look at. */
static void
note(struct client *c, const struct weir_session_msg *m)
{
	struct plane *p = c->plane;

	p->lists += m->type == WEIR_MSG_NODES;
	if (m->type == WEIR_MSG_FIND) {
		p->finds++;
		p->find_flags = m->find.flags;
	} else if (m->type == WEIR_MSG_LISTEN) {
		p->listen_flags = m->listen.flags;
		p->listens++;
	}
	if (c->reply.type == WEIR_MSG_SEGMENT_MAP) {
		if (p->segment)
			munmap(p->segment, p->segment_geometry.bytes);
		p->segment_geometry = c->reply.segment_map.geometry;
		p->segment = mmap(NULL, p->segment_geometry.bytes, PROT_READ | PROT_WRITE,
				  MAP_SHARED, c->fds[0], 0);
		assert_ptr_not_equal(p->segment, MAP_FAILED);
		if (p->o.fence)
			c->reply.segment_map.flags &= ~WEIR_WELCOME_MEMBARRIER;
	} else if (c->reply.type == WEIR_MSG_WELCOME && p->o.fence) {
		c->reply.welcome.flags &= ~WEIR_WELCOME_MEMBARRIER;
	}
}

static int
ask(struct client *c, const struct weir_session_msg *m)
{
	c->replied = false;
	if (c->plane->down)
		return -ENODEV;
	if (m->type == WEIR_MSG_HELLO)
		c->session = broker_session_open(
		    c->node->broker, m, m->length, getpid(),
		    c->plane->o.users ? 1000 + (uid_t)(c - c->plane->client) : 0, on_reply, c);
	else if (!c->session || (c->socket[0] >= 0 && c->socket[1] < 0))
		return -ENODEV;
	else
		assert_int_equal(broker_session_request(c->session, m, m->length), 0);
	for (unsigned i = 0; !c->replied; i++) {
		if (m->type != WEIR_MSG_HELLO && !c->session)
			return -ENODEV;
		assert_true(i < IMPATIENT);
		turn(c->plane);
	}
	if (m->type == WEIR_MSG_DISOWN) /* engines answer sooner than a socket */
		for (unsigned i = 0; i < 4; i++)
			turn(c->plane);
	note(c, m);
	return 0;
}

static int
request(void *user, const struct weir_session_msg *m, struct weir_session_msg *reply,
	int fds[WEIR_SESSION_FDS])
{
	struct client *c = user;
	int rc;

	if (m->type == WEIR_MSG_LISTEN)
		usleep(c->plane->o.listen_ms * 1000);
	pthread_mutex_lock(&c->plane->lock);
	rc = ask(c, m);
	if (!rc) {
		*reply = c->reply;
		memcpy(fds, c->fds, sizeof(c->fds));
	}
	pthread_mutex_unlock(&c->plane->lock);
	return rc;
}

/* The program has detached, or its process has ended. */
static void
close_session(void *user)
{
	struct client *c = user;

	pthread_mutex_lock(&c->plane->lock);
	if (c->session)
		broker_session_close(c->session);
	c->session = NULL;
	hang_up(c);
	if (c->socket[0] >= 0)
		close(c->socket[0]);
	pthread_mutex_unlock(&c->plane->lock);
}

static int reopen(void *user, const char *instance, struct weir_transport *t);

/* A session of w to come. */
static struct client *
new_client(struct plane *p, struct node *n, struct weir_transport *t)
{
	struct client *c = &p->client[p->clients];

	assert_true(p->clients++ < CLIENTS);
	*c = (struct client){.plane = p, .node = n, .socket = {-1, -1}};
	if (p->o.watched)
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c->socket),
				 0);
	*t = (struct weir_transport){.request = request,
				     .close = close_session,
				     .reopen = reopen,
				     .user = c,
				     .fd = c->socket[0]};
	return c;
}

static int
reopen(void *user, const char *instance, struct weir_transport *t)
{
	struct client *c = user;
	int rc = -ENOENT;

	pthread_mutex_lock(&c->plane->lock);
	if (!c->plane->down) {
		new_client(c->plane, c->node, t)->w = c->w;
		rc = 0;
	}
	pthread_mutex_unlock(&c->plane->lock);
	return rc;
}

static struct weir *
attach(struct plane *p, uint32_t node, const struct weir_options *o)
{
	struct weir_transport t;
	struct client *c;

	assert_true(node < p->nodes);
	pthread_mutex_lock(&p->lock); /* plane_run()'s thread looks at all clients */
	c = new_client(p, &p->node[node], &t);
	pthread_mutex_unlock(&p->lock);
	assert_int_equal(weir_attach_with(o, &t, &c->w), 0);
	return c->w;
}

struct weir *
plane_attach_with(struct plane *p, const struct weir_options *o)
{
	return attach(p, p->o.nodes ? p->clients : 0, o);
}

struct weir *
plane_attach(struct plane *p)
{
	return plane_attach_with(p, NULL);
}

struct weir *
plane_attach_at(struct plane *p, uint32_t node)
{
	return attach(p, node, NULL);
}

static struct client *
client_of(struct plane *p, const struct weir *w)
{
	for (uint32_t i = p->clients; i-- > 0;) /* the latest of the handle */
		if (p->client[i].w == w)
			return &p->client[i];
	fail_msg("no such session");
	return NULL;
}

void
plane_set(struct plane *p, const char *key, const char *value)
{
	char why[160] = "";

	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->nodes; i++)
		if (setting_set(p->node[i].broker, key, value, why, sizeof(why)) < 0)
			fail_msg("%s", why);
	pthread_mutex_unlock(&p->lock);
}

int
plane_evict_export(struct plane *p, struct weir *w, uint32_t number)
{
	char why[160];
	int rc;

	pthread_mutex_lock(&p->lock);
	rc = evict(client_of(p, w)->session->b, WEIR_EVICT_EXPORT,
		   export_id(client_of(p, w)->session->b, client_of(p, w)->session->id, number),
		   "in the way", why, sizeof(why));
	pthread_mutex_unlock(&p->lock);
	return rc;
}

uint32_t
plane_lock_waiters(struct plane *p, struct weir *w, uint32_t number)
{
	const struct broker_session *s = client_of(p, w)->session;
	const struct weir_row_export row = {.export = export_id(s->b, s->id, number),
					    .session = s->id};
	uint32_t n = 0;

	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < s->b->config.engines; i++) {
		struct engine_export_record record = export_record(s->b, &row);
		struct engine_snapshot shot = {.exports = &record, .export_count = 1};
		struct engine_command c = {.type = ENGINE_SNAPSHOT, .snapshot = &shot};

		assert_true(engine_execute(s->b->config.engine[i].engine, &c));
		n += record.lock_waiters;
	}
	pthread_mutex_unlock(&p->lock);
	return n;
}

bool
plane_export_is(struct plane *p, struct weir *w, uint32_t number, const char *name)
{
	struct weir_row_export row = {0};
	const struct broker_session *s;

	pthread_mutex_lock(&p->lock);
	s = client_of(p, w)->session;
	assert_true(export_row(s->b, export_id(s->b, s->id, number), &row));
	pthread_mutex_unlock(&p->lock);
	return !strcmp(row.name, name);
}

void
plane_die(struct plane *p, struct weir *w)
{
	struct client *c = client_of(p, w);

	pthread_mutex_lock(&p->lock);
	broker_session_close(c->session);
	c->session = NULL;
	pthread_mutex_unlock(&p->lock);
	weir_lost(w); /* so that weir_detach() awaits nothing */
}

void
plane_cut(struct plane *p, struct weir *w)
{
	pthread_mutex_lock(&p->lock);
	hang_up(client_of(p, w));
	pthread_mutex_unlock(&p->lock);
}

/* ---- what tests see of it ---- */

uint32_t
plane_regions(struct plane *p, struct weir *w)
{
	const struct broker_session *s = client_of(p, w)->session;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->b->config.regions; i++)
		n += s->region[i].state != REGION_FREE;
	return n;
}

/* Receive blocks of the only engine. */
uint32_t
plane_recv_blocks_free(struct plane *p, struct weir *w)
{
	struct client *c = client_of(p, w);
	uint32_t n;

	pthread_mutex_lock(&p->lock);
	n = c->node->engine[0].engine->sessions[c->session->id].blocks.free;
	pthread_mutex_unlock(&p->lock);
	return n;
}

uint32_t
plane_open_ends(struct plane *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->nodes; i++)
		n += p->node[i].broker->conn_count;
	return n;
}

uint32_t
plane_lists(const struct plane *p)
{
	return p->lists;
}

uint32_t
plane_found_asked(const struct plane *p, uint32_t *flags)
{
	*flags = p->find_flags;
	return p->finds;
}

uint32_t
plane_listens(const struct plane *p)
{
	return p->listens;
}

uint32_t
plane_listen_flags(const struct plane *p)
{
	return p->listen_flags;
}

uint8_t
plane_way(const struct plane *p)
{
	return p->way;
}

uint8_t *
plane_segment(struct plane *p, struct weir_segment_geometry *g)
{
	*g = p->segment_geometry;
	return p->segment;
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

static void
create_node(struct plane *p, uint32_t index)
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
	    .memory_get = memory_get,
	    .memory_put = memory_put,
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

static uint32_t or (uint32_t wish, uint32_t otherwise)
{
	return wish ? wish : otherwise;
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

/* The data planes of all nodes begin. */
static void
start(struct plane *p)
{
	const struct roce_config config = {.numa_socket = -1, .mtu = 1024};

	p->lives++;
	p->net = net_create(p->nodes, p->o.engines, &config, p->lives);
	p->net->now = START_NS * p->lives;
	for (uint32_t i = 0; i < p->nodes; i++)
		create_node(p, i);
	if (!p->o.alone)
		plane_join(p);
}

/* They end, whatever they were doing. */
static void
end(struct plane *p)
{
	for (uint32_t i = 0; i < p->nodes; i++) {
		struct node *n = &p->node[i];

		broker_destroy(n->broker);
		for (uint32_t k = 0; k < p->o.engines; k++)
			engine_destroy(n->engine[k].engine);
		for (uint32_t k = 0; k < DOORBELLS; k++)
			if (n->doorbell[k].used)
				weir_bell_close(&n->doorbell[k].bell);
	}
	net_destroy(p->net);
	for (uint32_t i = 0; i < p->nodes; i++) {
		for (uint32_t k = 0; k < p->o.engines; k++)
			free(p->node[i].engine[k].config.recv);
		memset(&p->node[i], 0, sizeof(p->node[i]));
	}
	p->mail = (struct queue){0};
}

struct plane *
plane_create(const struct plane_options *o)
{
	struct plane *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	if (o)
		p->o = *o;
	p->o.ring_slots = or (p->o.ring_slots, 256);
	p->o.recv_blocks = or (p->o.recv_blocks, 64);
	p->o.send_blocks = or (p->o.send_blocks, 64);
	p->o.channels = or (p->o.channels, 8);
	p->o.window = or (p->o.window, 65536);
	p->o.first = or (p->o.first, 512);
	p->o.engines = or (p->o.engines, 1);
	p->o.answers = or (p->o.answers, 128 << 10);
	p->o.links = or (p->o.links, 16);
	pthread_mutex_init(&p->lock, NULL);
	p->nodes = p->o.nodes ? NET_NODES : 2;
	start(p);
	return p;
}

void
plane_destroy(struct plane *p)
{
	plane_stop(p);
	if (!p->down)
		end(p);
	if (p->segment)
		munmap(p->segment, p->segment_geometry.bytes);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void
plane_kill(struct plane *p)
{
	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->clients; i++) {
		p->client[i].session = NULL;
		hang_up(&p->client[i]);
	}
	end(p);
	p->down = true;
	pthread_mutex_unlock(&p->lock);
}

void
plane_come_back(struct plane *p)
{
	pthread_mutex_lock(&p->lock);
	start(p);
	p->down = false;
	pthread_mutex_unlock(&p->lock);
}
