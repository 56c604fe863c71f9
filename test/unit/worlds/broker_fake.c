/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "broker_fake.h"

#include <dirent.h>

/* ---- the NIC ---- */

struct fake_device {
	struct nic_device_head head;
	struct fake *f;
};

static int
query(struct nic_device *dev, struct nic_attr *attr)
{
	struct fake *f = ((struct fake_device *)dev)->f;

	*attr = (struct nic_attr){.name = "fake", .mtu = 1024, .numa_socket = -1, .link_up = true};
	attr->gid =
	    (struct nic_gid){{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)f->node}};
	attr->link_up = !f->link_down;
	attr->lid = f->lid;
	return 0;
}

static int
async_event(struct nic_device *dev, struct nic_async_event *event)
{
	struct fake *f = ((struct fake_device *)dev)->f;

	if (f->async_first == f->async_end)
		return -EAGAIN;
	*event = f->async[f->async_first++];
	return 0;
}

static int
mr_reg(struct nic_device *dev, void *addr, size_t length, unsigned access, struct nic_mr *mr)
{
	struct fake *f = ((struct fake_device *)dev)->f;

	*mr = (struct nic_mr){.address = (uintptr_t)addr, .length = length};
	mr->lkey = mr->rkey = ++f->next_key;
	if (mr->rkey <= FAKE_MRS) {
		f->mr[mr->rkey - 1].is = *mr;
		f->mr[mr->rkey - 1].access = access;
	}
	f->live_mrs++;
	return 0;
}

static void
mr_dereg(struct nic_device *dev, struct nic_mr *mr)
{
	assert_true(mr->length);
	((struct fake_device *)dev)->f->live_mrs--;
}

static int
qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp)
{
	struct fake *f = ((struct fake_device *)((struct nic_context_head *)ctx)->dev)->f;
	struct fake_qp *q;

	if (f->qp_fail)
		return f->qp_fail;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->head.ops = ((struct nic_context_head *)ctx)->ops;
	q->head.qpn = ++f->next_qpn;
	q->f = f;
	q->ud = init->type == NIC_UD;
	q->user = init->user;
	q->next = f->qps;
	f->qps = q;
	f->live_qps++;
	*qp = (struct nic_qp *)q;
	return 0;
}

static int
qp_modify(struct nic_qp *qp, const struct nic_qp_attr *attr)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	if (attr->state != NIC_QP_ERR)
		assert_int_equal(attr->state, q->state + 1);
	q->state = attr->state;
	if (attr->state == NIC_QP_RTR) {
		q->qkey = attr->qkey;
		q->remote_qpn = attr->remote_qpn;
		q->remote_psn = attr->remote_psn;
		q->traffic_class = attr->traffic_class;
		q->priority = attr->priority;
	}
	if (attr->state == NIC_QP_RTS)
		q->psn = attr->psn;
	return 0;
}

static void
qp_destroy(struct nic_qp *qp)
{
	struct fake_qp *q = (struct fake_qp *)qp, **at = &q->f->qps;

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	q->f->live_qps--;
	free(q);
}

static int
srq_create(struct nic_context *ctx, uint32_t depth, struct nic_srq **srq)
{
	struct fake *f = ((struct fake_device *)((struct nic_context_head *)ctx)->dev)->f;

	assert_int_equal(depth, ENGINE_DATAGRAMS);
	f->live_srqs++;
	*srq = (struct nic_srq *)f;
	return 0;
}

static void
srq_destroy(struct nic_srq *srq)
{
	((struct fake *)srq)->live_srqs--;
}

static int
ah_create(struct nic_device *dev, const struct nic_ah_attr *attr, struct nic_ah **ah)
{
	struct fake *f = ((struct fake_device *)dev)->f;

	if (f->ah_fail)
		return f->ah_fail;
	f->last_ah = *attr;
	f->live_ahs++;
	*ah = (struct nic_ah *)f;
	return 0;
}

static void
ah_destroy(struct nic_ah *ah)
{
	((struct fake *)ah)->live_ahs--;
}

static void
counters(const struct nic_context *ctx, struct nic_counters *out)
{
	*out = (struct nic_counters){.rx_frames = 7, .tx_frames = 9, .drop_bad_icrc = 3};
}

static const struct nic_ops ops = {
    .driver = "fake",
    .query = query,
    .async_event = async_event,
    .mr_reg = mr_reg,
    .mr_dereg = mr_dereg,
    .qp_create = qp_create,
    .qp_modify = qp_modify,
    .qp_destroy = qp_destroy,
    .srq_create = srq_create,
    .srq_destroy = srq_destroy,
    .ah_create = ah_create,
    .ah_destroy = ah_destroy,
    .counters = counters,
};

struct fake_qp *
fake_qp_find(struct fake *f, uint32_t qpn)
{
	struct fake_qp *q = f->qps;

	while (q && q->head.qpn != qpn)
		q = q->next;
	return q;
}

/* ---- the engines ---- */

static struct engine_counters of_engine = {.lock_waiters = FAKE_LOCK_WAITERS};

const struct engine_counters *
engine_counters(const struct engine *e)
{
	return &of_engine;
}

void *
engine_link_user(struct engine *e, uint32_t link, unsigned index)
{
	return (void *)(uintptr_t)(link * 2 + index + 1);
}

void *
engine_datagram_user(struct engine *e)
{
	return (void *)(uintptr_t)UINT32_MAX;
}

size_t
engine_session_bytes(const struct engine_config *config, const struct weir_geometry *g)
{
	return g->recv_blocks * 8ull;
}

size_t
engine_link_bytes(uint32_t staging_lines)
{
	return staging_lines * 2ull;
}

size_t
engine_staging_bytes(uint32_t staging_lines)
{
	return staging_lines * 2ull;
}

void
fake_emit(struct fake *f, uint32_t engine, const struct engine_event *e)
{
	assert_true(f->event_count < FAKE_EVENTS);
	f->event[f->event_count].engine = engine;
	f->event[f->event_count++].e = *e;
}

void
fake_event(struct fake *f, uint32_t engine, const struct engine_event *e)
{
	fake_emit(f, engine, e);
	fake_run(f);
}

static void
emit_closed(struct fake *f, uint32_t engine, uint32_t vqpn)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED, .conn.vqpn = vqpn};

	fake_emit(f, engine, &e);
}

static void
snapshot(struct fake *f, uint32_t engine, struct engine_snapshot *s)
{
	uint32_t i = s->conn_from;

	while (s->conn_count < s->conn_room && i < f->snapshot_conns) {
		struct engine_conn_record *r = &s->conns[s->conn_count++];

		*r = (struct engine_conn_record){.vqpn = engine << 16 | i, .state = CONN_OPEN};
		i++;
	}
	s->conn_next = i < f->snapshot_conns ? i : UINT32_MAX;
	for (i = 0; i < s->export_count; i++) {
		s->exports[i].openers += FAKE_OPENERS;
		s->exports[i].counters.puts += FAKE_PUTS;
	}
}

/* Does as a real engine does, as far as the broker can tell. */
static void
execute(struct fake *f, uint32_t engine, struct engine_command *c)
{
	c->result = 0;
	if ((int)c->type == f->fail_type) {
		c->result = f->fail_rc;
		return;
	}
	switch (c->type) {
	case ENGINE_CONN_OPEN:
	case ENGINE_CONN_ACCEPT:
	case ENGINE_CONN_LOCAL:
	case ENGINE_CONN_APART:
		c->conn.vqpn =
		    WEIR_VQPN(engine << 16 | (f->next_conn & 0xffff), 1 + f->next_conn / 0x10000);
		f->next_conn++;
		break;
	case ENGINE_CONN_START:
	case ENGINE_CONN_LOCAL_OPENED:
		if (c->conn.status)
			emit_closed(f, engine, c->conn.vqpn);
		break;
	case ENGINE_EXPORT_STOP:
		c->export.keyed = f->keyed;
		break;
	case ENGINE_LINK_ADD:
		f->links++;
		break;
	case ENGINE_LINK_PAUSE:
		c->link.proven = !f->unproven;
		c->link.consumed = f->consumed;
		c->link.received = f->received;
		c->link.rings = f->rings;
		if (!f->rings.ring_lines)
			c->link.rings.ring_lines = c->link.ring_lines;
		break;
	case ENGINE_LINK_FAIL:
		f->links--;
		break;
	case ENGINE_SNAPSHOT:
		snapshot(f, engine, c->snapshot);
		break;
	default:
		break;
	}
}

static int
command(void *user, uint32_t engine, struct engine_command *c)
{
	struct fake *f = user;

	if (f->full)
		return -EAGAIN;
	f->count[c->type]++;
	f->last[c->type] = *c;
	f->last_engine[c->type] = engine;
	if (f->hold || (f->hold_type && f->hold_type == (int)c->type)) {
		assert_true(f->held_count < FAKE_COMMANDS);
		f->held[f->held_count].engine = engine;
		f->held[f->held_count++].c = c;
		return 0;
	}
	execute(f, engine, c);
	broker_completed(f->b, engine, c);
	return 0;
}

static bool
deliver_events(struct fake *f)
{
	uint32_t n = f->event_count, i;

	for (i = 0; i < n; i++)
		broker_event(f->b, f->event[i].engine, &f->event[i].e);
	memmove(f->event, f->event + n, (f->event_count - n) * sizeof(f->event[0]));
	f->event_count -= n;
	return n != 0;
}

void
fake_run(struct fake *f)
{
	do {
		/* as long as there is memory to be made or released */
		for (int i = 0; i < 8 || (i < 10000 && !broker_run(f->b)); i++)
			broker_run(f->b);
	} while (deliver_events(f));
}

void
fake_release(struct fake *f)
{
	while (f->held_count) {
		uint32_t n = f->held_count;

		for (uint32_t i = 0; i < n; i++) {
			execute(f, f->held[i].engine, f->held[i].c);
			broker_completed(f->b, f->held[i].engine, f->held[i].c);
		}
		memmove(f->held, f->held + n, (f->held_count - n) * sizeof(f->held[0]));
		f->held_count -= n;
	}
	fake_run(f);
	if (f->held_count)
		fake_release(f);
}

void
fake_let_go(struct fake *f)
{
	f->hold = false;
	fake_release(f);
}

/* ---- the rest of what the broker asks for ---- */

static uint64_t
quiet_begin(void *user)
{
	struct fake *f = user;

	return ++f->moments;
}

static bool
quiet_passed(void *user, uint64_t moment)
{
	struct fake *f = user;

	assert_in_range(moment, 1, f->moments);
	return !f->in_turn;
}

static int
doorbell_add(void *user, uint32_t engine, uint32_t doorbell, struct weir_bell bell)
{
	struct fake *f = user;

	assert_true(doorbell < 4096 && f->doorbell[doorbell].wait == -1);
	f->doorbell[doorbell] = bell;
	f->live_doorbells++;
	return 0;
}

static void
doorbell_remove(void *user, uint32_t engine, uint32_t doorbell)
{
	struct fake *f = user;

	assert_true(doorbell < 4096 && f->doorbell[doorbell].wait >= 0);
	weir_bell_close(&f->doorbell[doorbell]);
	f->live_doorbells--;
}

static void *
memory_get(void *user, size_t bytes, int numa_socket)
{
	struct fake *f = user;
	void *memory;

	if (f->no_memory)
		return NULL;
	f->live_memory += bytes;
	memory = aligned_alloc(64, WEIR_ALIGN_UP(bytes, 64));

	return memory ? memset(memory, 0, bytes) : NULL;
}

static void
memory_put(void *user, void *memory, size_t bytes)
{
	((struct fake *)user)->live_memory -= bytes;
	free(memory);
}

static uint64_t
now(void *user)
{
	return ((struct fake *)user)->now;
}

static void
output(void *user, const struct weir_ctl_msg *m)
{
	struct fake *f = user;

	assert_int_equal(weir_ctl_check(m, m->length), 0);
	assert_true(f->output_count < FAKE_OUTPUT);
	f->output[f->output_count++] = *m;
}

static void
make_devices(struct fake *f, uint32_t engines)
{
	struct fake_device *dev = calloc(1, sizeof(*dev));

	dev->head.ops = &ops;
	dev->f = f;
	for (uint32_t i = 0; i < engines; i++) {
		struct nic_context_head *ctx = calloc(1, sizeof(*ctx));

		ctx->ops = &ops;
		ctx->dev = (struct nic_device *)dev;
		f->config.engine[i].dev = ctx->dev;
		f->config.engine[i].nic = (struct nic_context *)ctx;
	}
}

struct fake *
fake_open(const struct fake_config *config)
{
	struct fake *f = calloc(1, sizeof(*f));

	f->fail_type = -1;
	f->node = config->node;
	f->lid = config->lid;
	f->link_down = config->link_down;
	f->now = 1000 * BROKER_SECOND_NS;
	f->next_qpn = (config->node & 0xff) * 10000;
	memset(f->doorbell, 0xff, sizeof(f->doorbell));
	f->config = (struct broker_config){
	    .engines = config->engines,
	    .incarnation = config->incarnation ? config->incarnation : 100,
	    .sessions = config->sessions ? config->sessions : 8,
	    .connections = 100000,
	    .channels = config->channels ? config->channels : 8,
	    .session_connections = 4096,
	    .ring_slots = 64,
	    .arena_bytes = 8 << 20,
	    .regions = 4,
	    .exports = 4,
	    .export_keys = 8,
	    .region_bytes = 1 << 20,
	    .adopt_bytes = 1 << 20,
	    .peer_ring_lines = 256,
	    .answers = 128 << 10,
	    .recv_wrs = 64,
	    .links = 8,
	    .repair_timeout_ns = 10 * BROKER_SECOND_NS,
	    .burst_ns = config->burst_ns,
	    .socket_threads = config->socket_threads,
	    .users = config->users,
	    .command = command,
	    .doorbell_add = doorbell_add,
	    .doorbell_remove = doorbell_remove,
	    .memory_get = memory_get,
	    .memory_put = memory_put,
	    .quiet_begin = quiet_begin,
	    .quiet_passed = quiet_passed,
	    .now = now,
	    .user = f,
	};
	if (config->limits) {
		assert_int_equal(users_limit(&f->users, config->limits, f->dir, sizeof(f->dir)), 0);
		f->config.users = &f->users;
	}
	for (uint32_t i = 0; i < config->engines; i++)
		f->config.engine[i].numa_socket = -1;
	if (!config->no_nic)
		make_devices(f, config->engines);
	if (config->sockets) {
		snprintf(f->dir, sizeof(f->dir), "/tmp/weir-broker-XXXXXX");
		assert_non_null(mkdtemp(f->dir));
		f->config.run_dir = f->dir;
	}
	f->b = broker_create(&f->config);
	assert_non_null(f->b);
	if (!config->sockets)
		broker_set_control_output(f->b, output, f);
	if (config->node != UINT32_MAX) {
		struct weir_ctl_msg m = {.type = WEIR_CTL_HELLO};

		m.hello.node = config->node;
		m.hello.role = WEIR_ROLE_CONTROL;
		broker_control_input(f->b, &m);
	}
	fake_run(f);
	f->output_count = 0;
	return f;
}

void
fake_close(struct fake *f)
{
	void *dev = f->config.engine[0].dev;

	broker_destroy(f->b);
	assert_int_equal(f->live_qps, 0);
	assert_int_equal(f->live_mrs, 0);
	assert_int_equal(f->live_srqs, 0);
	assert_int_equal(f->live_ahs, 0);
	assert_int_equal(f->live_memory, 0);
	assert_int_equal(f->live_doorbells, 0);
	for (uint32_t i = 0; i < f->config.engines; i++)
		free(f->config.engine[i].nic);
	free(dev);
	if (f->config.run_dir)
		assert_int_equal(rmdir(f->dir), 0); /* both sockets are gone */
	free(f);
}

void
fake_told(struct fake *f, const struct weir_ctl_msg *m)
{
	broker_control_input(f->b, m);
	fake_run(f);
}

void
fake_stops_exports_first(const struct fake *f)
{
	bool stopped[2] = {false};

	for (uint32_t i = 0; i < f->held_count; i++) {
		if (f->held[i].c->type == ENGINE_EXPORT_STOP)
			stopped[f->held[i].engine] = true;
		if (f->held[i].c->type == ENGINE_REGION_REMOVE)
			assert_true(stopped[f->held[i].engine]);
	}
	assert_true(stopped[0] && stopped[1]);
}

struct weir_ctl_msg
fake_peer_offer(uint32_t node, uint32_t attempt, uint32_t answered)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK, .length = weir_ctl_length(WEIR_CTL_LINK)};

	m.link = (struct weir_link_offer){
	    .node = (uint16_t)node,
	    .peer_node = 1,
	    .layout = WEIR_WIRE_VERSION | WEIR_LITTLE_ENDIAN,
	    .incarnation = 200,
	    .peer_incarnation = 100,
	    .attempt = attempt,
	    .answered = answered,
	    .gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)node},
	    .mtu = 1024,
	    .ring_address = 0x7f0000000000,
	    .credit_address = 0x7f0000100000,
	    .ring_rkey = 5,
	    .credit_rkey = 6,
	    .ring_lines = 1024,
	    .recv_wrs = 64,
	    .answers = 16 << 10,
	};
	return m;
}

void
fake_node(struct fake *f, uint32_t id, uint32_t state, uint64_t incarnation, uint32_t engines)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};

	m.node.id = id;
	m.node.state = state;
	m.node.incarnation = incarnation;
	m.node.engines = engines;
	m.node.address_count = 1;
	m.node.address[0][10] = m.node.address[0][11] = 0xff;
	m.node.address[0][12] = 10;
	m.node.address[0][15] = (uint8_t)id;
	assert_int_equal(weir_ctl_check(&m, m.length), 0);
	fake_told(f, &m);
}

/* ---- sessions without sockets ---- */

static void
on_reply(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct fake_session *s = user;

	if (!reply) {
		s->ended = true;
		s->s = NULL;
		return;
	}
	assert_int_equal(weir_session_check(reply, reply->length), 0);
	memcpy(&s->reply, reply, reply->length);
	s->replies++;
	s->fd_count = fd_count;
	for (unsigned i = 0; i < fd_count; i++)
		/* that of MAPPED is closed once it is sent */
		s->fds[i] = reply->type == WEIR_MSG_MAPPED ? dup(fds[i]) : fds[i];
}

void
fake_attach(struct fake *f, struct fake_session *s)
{
	fake_attach_as(f, s, "test");
}

uint32_t
fake_attach_by(struct fake *f, struct fake_session *s, uint32_t uid, const char *name)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_HELLO);

	memset(s, 0, sizeof(*s));
	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.versions = WEIR_SESSION_VERSIONS;
	m.hello.arena = 4 << 20;
	snprintf(m.hello.name, sizeof(m.hello.name), "%s", name);
	s->s = broker_session_open(f->b, &m, m.length, getpid(), uid, on_reply, s);
	fake_run(f); /* its memory is made */
	return s->reply.type;
}

void
fake_attach_as(struct fake *f, struct fake_session *s, const char *name)
{
	fake_attach_by(f, s, getuid(), name);
	assert_non_null(s->s);
	if (f->hold)
		return;
	assert_int_equal(s->replies, 1);
	assert_int_equal(s->reply.type, WEIR_MSG_WELCOME);
}

int
fake_request(struct fake *f, struct fake_session *s, struct weir_session_msg *m)
{
	int rc;

	m->length = weir_session_length(m->type);
	rc = broker_session_request(s->s, m, m->length);
	fake_run(f);
	return rc;
}

uint32_t
fake_ask(struct fake *f, struct fake_session *s, struct weir_session_msg *m)
{
	assert_int_equal(fake_request(f, s, m), 0);
	return s->reply.type;
}

void
fake_channels(struct fake *f, struct fake_session *s)
{
	for (uint32_t i = 0; i < f->config.engines; i++) {
		struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};

		m.add_channel.engine = i;
		fake_ask(f, s, &m);
		if (f->hold)
			fake_release(f);
		assert_int_equal(s->reply.type, WEIR_MSG_CHANNEL);
		assert_int_equal(s->reply.channel.channel, i);
		assert_int_equal(s->reply.channel.engine, i);
	}
}

void
fake_program(struct fake *f, struct fake_session *s)
{
	fake_attach(f, s);
	fake_channels(f, s);
}

void
fake_leave(struct fake *f, struct fake_session *s)
{
	broker_session_close(s->s);
	fake_run(f);
}

uint32_t
fake_listen(struct fake *f, struct fake_session *s, const char *service, uint32_t backlog)
{
	struct weir_session_msg m = {.type = WEIR_MSG_LISTEN};

	for (uint32_t i = 0; i < f->config.engines; i++)
		m.listen.channel[i] = i;
	m.listen.backlog = backlog;
	snprintf(m.listen.service, sizeof(m.listen.service), "%s", service);
	return fake_ask(f, s, &m);
}

int
fake_listen_as(struct fake *f, struct fake_session *s, const char *service, uint32_t flags)
{
	struct weir_session_msg m = {.type = WEIR_MSG_LISTEN, .listen.flags = flags};

	for (uint32_t i = 0; i < f->config.engines; i++)
		m.listen.channel[i] = i;
	snprintf(m.listen.service, sizeof(m.listen.service), "%s", service);
	return fake_ask(f, s, &m) == WEIR_MSG_REFUSED ? -s->reply.refused.code
						      : (int)s->reply.listening.listener;
}

int
fake_adopt(struct fake *f, struct fake_session *s, uint64_t bytes, uint32_t flags)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADOPT};

	m.adopt.bytes = bytes;
	m.adopt.flags = flags;
	return fake_ask(f, s, &m) == WEIR_MSG_REFUSED ? -s->reply.refused.code : 0;
}

uint32_t
fake_connect(struct fake *f, struct fake_session *s, uint32_t node, const char *service,
	     uint32_t flags)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};

	m.connect.flags = flags;
	m.connect.address.kind = WEIR_ADDRESS_NODE;
	m.connect.address.id = node;
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "%s", service);
	return fake_ask(f, s, &m);
}

unsigned
fake_open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

unsigned
fake_mappings(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	while (fgets(line, sizeof(line), maps))
		n += strstr(line, name) != NULL;
	fclose(maps);
	return n;
}
