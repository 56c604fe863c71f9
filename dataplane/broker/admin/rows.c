/* SPDX-License-Identifier: BSD-3-Clause */
/* Records that weirctl shows, made page by page. */
#include "arena.h"
#include "command.h"
#include "conn.h"
#include "export.h"
#include "link.h"
#include "local.h"
#include "node.h"
#include "public_services.h"
#include "quota.h"
#include "rows.h"
#include "session.h"
#include "set.h"
#include "state.h"
#include "status.h"
#include "user.h"

#include "base/monotonic.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SNAPSHOTS 2u /* commands of a query: the next is asked for within an answer */
#define ROWS_HEAD offsetof(struct weir_ctl_msg, rows.records)

/* Fills record `index` of a kind; false: there are no more. */
typedef bool row_fn(const struct rows_query *q, uint32_t index, void *record);

static uint64_t
counter(const _Atomic uint64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static bool
node_row(const struct rows_query *q, uint32_t index, void *record)
{
	struct weir_row_node *r = record;

	if (index >= q->b->node_count)
		return false;
	memcpy(&r->is, &q->b->node_list[index]->is, sizeof(r->is));
	node_link_row(q->b, q->b->node_list[index], r);
	return true;
}

static bool
engine_row(const struct rows_query *q, uint32_t index, void *record)
{
	const struct broker *b = q->b;
	const struct engine_counters *c;
	struct weir_row_engine *r = record;

	if (index >= b->config.engines)
		return false;
	if (b->config.engine_row)
		b->config.engine_row(b->config.user, index, r);
	c = engine_counters(broker_engine(b, index)->engine);
	r->engine = index;
	r->lcore = broker_engine(b, index)->lcore;
	r->cpu = broker_engine(b, index)->cpu;
	r->sessions = b->session_count;
#define X(name) r->name = counter(&c->name);
	ENGINE_TRAFFIC(X)
	ENGINE_LEVELS(X)
#undef X
	return true;
}

/* The text of a program, which may hold anything. */
static void
copy_function(char *to, size_t size, const struct weir_handler_line *line)
{
	uint64_t words[sizeof(line->name) / sizeof(line->name[0])];

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		words[i] = atomic_load_explicit(&line->name[i], memory_order_relaxed);
	static_assert(sizeof(words) == sizeof(((struct weir_row_session *)0)->function), "fits");
	memcpy(to, words, size);
	to[size - 1] = '\0';
	for (; *to; to++)
		if (*to < ' ' || *to > '~')
			*to = '?';
}

/* The slowest message handler of the program, if it has been at work for a second. */
static void
handling(const struct broker_session *s, struct weir_row_session *r)
{
	struct weir_arena_head *head = arena_head(&s->arena);
	uint64_t now = monotonic_ns() /* the program's clock, too */, longest = 0;
	const struct weir_handler_line *slowest = NULL;

	for (uint32_t i = 0; i < WEIR_HANDLER_LINES; i++) {
		const struct weir_handler_line *line = &head->handler[i];
		uint64_t since = atomic_load_explicit(&line->since, memory_order_relaxed);

		if (since && since < now && now - since > longest) {
			longest = now - since;
			slowest = line;
		}
	}
	longest /= 1000000;
	if (longest < 1000)
		return;
	r->handling_ms = longest > UINT32_MAX ? UINT32_MAX : (uint32_t)longest;
	copy_function(r->function, sizeof(r->function), slowest);
}

static bool
session_row(const struct rows_query *q, uint32_t index, void *record)
{
	struct weir_row_session *r = record;
	const struct broker_session *s;

	for (uint32_t i = 0; i < q->b->config.sessions; i++) {
		s = q->b->session[i];
		if (!s || index-- != 0)
			continue;
		r->session = s->id;
		r->pid = (uint32_t)s->pid;
		r->uid = s->uid;
		r->channels = s->channel_count;
		r->connections = s->conn_count;
		r->listeners = s->listener_count;
		r->exports = exports_of(s);
		handling(s, r);
		r->arena_bytes = s->arena.geometry.bytes;
		memcpy(r->name, s->name, sizeof(r->name));
		quota_row(s, r);
		return true;
	}
	return false;
}

/* Two queue pairs per link: ring and bulk. */
static bool
qp_row(const struct rows_query *q, uint32_t index, void *record)
{
	const struct engine_link_record *of_engine;
	struct weir_row_qp *r = record;
	const struct broker_link *l = q->b->links;
	uint32_t k = index % 2, skip = index / 2;
	const char *state = "ERR";

	while (l && (!l->qp[0] || !l->qp[1] || skip-- != 0))
		l = l->next;
	if (!l)
		return false;
	r->qpn = nic_qpn(l->qp[k]);
	r->peer_qpn = l->peer_attempt ? l->peer.qpn[k] : 0;
	r->peer_node = l->loop_end ? l->peer.node : l->node;
	r->engine = l->engine;
	r->peer_engine = WEIR_END_ENGINE(l->peer_engine);
	snprintf(r->purpose, sizeof(r->purpose), "%s", k ? "bulk" : "ring");
	if (l->open && k == 0) /* goes on while the other one is repaired */
		state = "RTS";
	else if (l->state == LINK_OFFERED)
		state = "INIT";
	else if (l->state == LINK_ADDING || l->state == LINK_UP)
		state = "RTS";
	snprintf(r->state, sizeof(r->state), "%s", state);
	of_engine = q->links + l->engine * q->b->config.links;
	for (uint32_t i = 0; i < q->link_count[l->engine] && k == 0; i++) {
		const struct engine_link_record *e = &of_engine[i];

		if (e->link != l->id)
			continue;
		r->frames_sent = e->frames_sent;
		r->frames_received = e->frames_received;
		r->ring_used = e->ring_used;
		r->ring_lines = e->ring_lines;
		break;
	}
	return true;
}

static bool
port_row(const struct rows_query *q, uint32_t index, void *record)
{
	const struct broker *b = q->b;
	struct weir_row_port *r = record;
	struct nic_counters c = {0};
	struct nic_attr attr;

	while (index < b->config.engines && !broker_engine(b, index)->dev)
		index++;
	if (index >= b->config.engines)
		return false;
	broker_ops(b, index)->counters(broker_engine(b, index)->nic, &c);
	if (broker_ops(b, index)->query(broker_engine(b, index)->dev, &attr))
		attr = b->attr[index];
	snprintf(r->name, sizeof(r->name), "%s", attr.name);
	snprintf(r->driver, sizeof(r->driver), "%s", broker_ops(b, index)->driver);
	node_gid_text(attr.gid.raw, r->address);
	r->engine = index;
	r->link_up = attr.link_up;
	r->link_changes = b->link_changes[index];
	r->mtu = attr.mtu;
#define X(name, help) r->name = c.name;
	NIC_TRAFFIC(X)
#undef X
#define X(reason, help)                                                                            \
	snprintf(r->drops[r->drop_count].name, sizeof(r->drops[0].name), "%s", #reason);           \
	r->drops[r->drop_count++].count = c.drop_##reason;
	NIC_DROP_REASONS(X)
#undef X
	r->impaired_dup = c.impaired_dup;
	r->impaired_reorder = c.impaired_reorder;
	r->impaired_corrupt = c.impaired_corrupt;
	r->impaired_delay = c.impaired_delay;
	r->impaired_jitter = c.impaired_jitter;
	r->impaired_rate = c.impaired_rate;
	if (b->config.port_row)
		b->config.port_row(b->config.user, index, r);
	return true;
}

/* Links that have memory; loop: both ends. */
static bool
link_row(const struct rows_query *q, uint32_t index, void *record)
{
	static const char *const state[] = {
	    [LINK_DOWN] = "down",	[LINK_OFFERED] = "offered", [LINK_ADDING] = "adding",
	    [LINK_UP] = "up",		[LINK_PAUSING] = "pausing", [LINK_PAUSED] = "paused",
	    [LINK_FAILING] = "failing", [LINK_QUIET] = "quiet"};
	const struct broker_link *l = q->b->links;
	struct weir_row_link *r = record;

	while (l && (l->state == LINK_DOWN || index-- != 0))
		l = l->next;
	if (!l)
		return false;
	r->node = l->loop_end ? q->b->loop->is.id : l->node;
	r->engine = l->engine;
	r->peer_engine = WEIR_END_ENGINE(l->peer_engine);
	r->open = l->open;
	weir_assert(l->state < sizeof(state) / sizeof(state[0]));
	snprintf(r->state, sizeof(r->state), "%s", state[l->state]);
	node_gid_text(q->b->attr[l->engine].gid.raw, r->address);
	if (l->peer_attempt)
		node_gid_text(l->peer.gid, r->peer_address);
	r->memory = link_memory_bytes(l);
	r->attempt = l->attempt;
	r->ring_lines = l->rings.ring_lines;
	return true;
}

static bool
user_row_fn(const struct rows_query *q, uint32_t index, void *record)
{
	return user_row(q->b, index, record);
}

/* Rows that only the data plane around the broker knows: configuration, pools, statistics of
 * drivers. */
static bool
plane_row(const struct rows_query *q, uint32_t index, void *record)
{
	const struct broker_config *config = &q->b->config;

	return config->plane_row && config->plane_row(config->user, q->rows, index, record);
}

static bool
status_row_fn(const struct rows_query *q, uint32_t index, void *record)
{
	return status_row(q->b, index, record);
}

/* Its own first; then those that control has told. */
static bool
version_row(const struct rows_query *q, uint32_t index, void *record)
{
	struct weir_row_fact r = {{0}};
	uint32_t own = 0;

	while (own <= index && plane_row(q, own, &r))
		own++;
	if (own > index) {
		memcpy(record, &r, sizeof(r));
		return true;
	}
	return fact_row(q->b, index - own, true, record);
}

/* Pools of the data plane, then what programs share. */
static bool
memory_row(const struct rows_query *q, uint32_t index, void *record)
{
	struct weir_row_memory *r = record, pool = {{0}};
	uint32_t own = 0;

	while (own <= index && plane_row(q, own, &pool))
		own++;
	if (own > index) {
		memcpy(r, &pool, sizeof(pool));
		return true;
	}
	if (index > own)
		return false;
	snprintf(r->pool, sizeof(r->pool), "shared memory of all programs");
	r->count = 1;
	r->each = r->bytes = q->b->most[USER_MEMORY];
	r->used = q->b->used[USER_MEMORY];
	return true;
}

struct counter_def {
	const char *group, *name, *help;
	size_t at;
};

static const struct counter_def counter_defs[] = {
#define E(name, help) {"engine", #name, help, offsetof(struct engine_counters, name)},
#define N(name, help) {"nic", #name, help, offsetof(struct nic_counters, name)},
#define D(name, help) {"nic", "drop_" #name, help, offsetof(struct nic_counters, drop_##name)},
#define B(name, help) {"broker", #name, help, offsetof(struct broker_counters, name)},
    ENGINE_COUNTERS(E) NIC_COUNTERS(N) NIC_DROP_REASONS(D) BROKER_COUNTERS(B)
#undef E
#undef N
#undef D
#undef B
};

static bool
counter_row(const struct rows_query *q, uint32_t index, void *record)
{
	const struct counter_def *d = &counter_defs[index];
	const struct broker *b = q->b;
	struct weir_row_counter *r = record;
	struct nic_counters nic;
	const char *counters;

	if (index >= sizeof(counter_defs) / sizeof(counter_defs[0]))
		return false;
	snprintf(r->name, sizeof(r->name), "%s.%s", d->group, d->name);
	snprintf(r->help, sizeof(r->help), "%s", d->help);
	if (d->group[0] == 'b')
		r->value = *(const uint64_t *)((const char *)&b->counters + d->at);
	for (uint32_t i = 0; i < b->config.engines; i++) {
		const struct broker_engine *e = broker_engine(b, i);

		if (d->group[0] == 'e') {
			counters = (const char *)engine_counters(e->engine);
			r->value += counter((const _Atomic uint64_t *)(counters + d->at));
		} else if (d->group[0] == 'n' && e->dev) {
			broker_ops(b, i)->counters(e->nic, &nic);
			r->value += *(const uint64_t *)((const char *)&nic + d->at);
		}
	}
	return true;
}

static bool
setting_fn(const struct rows_query *q, uint32_t index, void *record)
{
	return setting_row(q->b, index, record);
}

static bool
service_fn(const struct rows_query *q, uint32_t index, void *record)
{
	return service_row(q->b, index, record);
}

/* As wide as the field, since a million rows may be filled. */
static const char conn_state_name[][sizeof(((struct weir_row_connection *)0)->state_name)] = {
    [CONN_FREE] = "free",	    [CONN_OPENING] = "opening",	  [CONN_OPEN] = "open",
    [CONN_FINISHING] = "finishing", [CONN_FINISHED] = "finished", [CONN_PEER_GONE] = "peer-gone",
    [CONN_LOCAL] = "local",	    [CONN_DEAD] = "dead",
};

static bool
conn_row(const struct rows_query *q, uint32_t index, void *record)
{
	const struct engine_conn_record *e = &q->snapshot.conns[index];
	struct weir_row_connection *r = record;
	const struct broker_conn *c;

	if (index >= q->snapshot.conn_count)
		return false;
	r->vqpn = e->vqpn;
	r->peer_vqpn = e->peer_vqpn;
	r->session = e->session;
	r->engine = q->engine;
	r->window = e->window;
	r->local = e->local;
	r->peer_node = e->peer_node;
	r->state = e->state;
	if (e->state < sizeof(conn_state_name) / sizeof(conn_state_name[0]))
		memcpy(r->state_name, conn_state_name[e->state], sizeof(r->state_name));
	r->datagram = e->kind == CONN_DATAGRAM;
	c = conn_find(q->b, e->vqpn);
	r->class = c ? c->class : WEIR_CLASS_NORMAL;
	r->kind = c ? c->kind : e->kind;
	r->export =
	    e->export_number ? export_id(q->b, e->export_session, e->export_number) : UINT32_MAX;
	r->dropped = e->dropped;
	r->outstanding = e->outstanding;
	r->returned = e->returned;
	r->by_ring = e->by_ring;
	r->by_send = e->by_send;
	r->by_read = e->by_read;
	r->by_write = e->by_write;
	r->bytes = e->bytes;
	if (e->local && e->kind == CONN_MEMORY) { /* the engine executes its operations */
		r->by_local = e->by_ring;
		r->by_ring = 0;
	} else if (e->local)
		r->by_local = local_messages(q->b, e->segment, e->conn_index, &r->bytes);
	return true;
}

static bool
export_row_fn(const struct rows_query *q, uint32_t index, void *record)
{
	return export_row(q->b, index, record);
}

/* Fills the page with records from `from` on. */
static void
fill_page(struct rows_query *q, row_fn *row, uint32_t *from)
{
	struct weir_ctl_msg *m = q->page;
	uint32_t bytes = weir_ctl_record_bytes(q->rows);
	uint32_t room = (WEIR_CTL_MAX - ROWS_HEAD) / bytes;
	char *at = (char *)m->rows.records;

	memset(m, 0, WEIR_CTL_MAX);
	m->type = WEIR_CTL_ROWS;
	m->rows.rows = q->rows;
	m->rows.record_bytes = bytes;
	while (m->rows.count < room && row(q, *from, at)) {
		++*from;
		/* no member any more; no export; a slot without a service, whose record begins with
		 * a name */
		if ((q->rows == WEIR_ROWS_NODES &&
		     ((const struct weir_ctl_node *)at)->state == WEIR_NODE_GONE) ||
		    (q->rows == WEIR_ROWS_EXPORTS &&
		     !*((const struct weir_row_export *)at)->state) ||
		    (q->rows == WEIR_ROWS_SERVICES && !*at))
			continue;
		at += bytes;
		m->rows.count++;
	}
	m->rows.more = m->rows.count == room;
	m->length = (uint32_t)(ROWS_HEAD + m->rows.count * bytes);
}

static void
snapshot_done(struct broker *b, struct broker_command *c)
{
	struct rows_query *q = c->context;

	weir_assert(q->busy);
	q->busy = false;
	if (c->cmd.result) {
		q->snapshot.conn_count = q->snapshot.link_count = 0;
		q->snapshot.conn_next = UINT32_MAX;
	}
	if (q->rows == WEIR_ROWS_QPS)
		q->link_count[q->engine++] = q->snapshot.link_count;
	else if (q->rows == WEIR_ROWS_EXPORTS)
		q->engine++;
	else
		q->filled = true;
	if (q->orphaned)
		rows_close(q);
	else
		q->ready(q);
}

static void
ask_engine(struct rows_query *q)
{
	struct broker_command *c =
	    command_reserved(q->b, q->engine, ENGINE_SNAPSHOT, snapshot_done, q);

	weir_assert(!q->busy && q->engine < q->b->config.engines);
	if (q->rows == WEIR_ROWS_QPS)
		q->snapshot.links = q->links + q->engine * q->b->config.links;
	q->snapshot.conn_from = q->from;
	q->snapshot.conn_count = q->snapshot.link_count = 0;
	q->snapshot.conn_next = UINT32_MAX;
	q->busy = true;
	c->cmd.snapshot = &q->snapshot;
	command_submit(q->b, c);
}

/* A page of exports; each engine in turn adds what it has of them. */
static bool
exports_next(struct rows_query *q)
{
	struct weir_row_export *r = (void *)q->page->rows.records;
	struct engine_export_record *e = q->snapshot.exports;

	if (!q->filled) {
		fill_page(q, export_row_fn, &q->from);
		q->filled = true;
		q->engine = q->page->rows.count ? 0 : q->b->config.engines;
		q->snapshot.export_count = q->page->rows.count;
		for (uint32_t i = 0; i < q->page->rows.count; i++)
			e[i] = export_record(q->b, &r[i]);
	}
	if (q->engine < q->b->config.engines) {
		ask_engine(q);
		return false;
	}
	for (uint32_t i = 0; i < q->page->rows.count; i++) {
		r[i].openers = e[i].openers;
		export_lock_row(q->b, &e[i], &r[i]);
		weir_export_count(&r[i].counters, &e[i].counters);
	}
	q->filled = false;
	return true;
}

bool
rows_next(struct rows_query *q)
{
	static row_fn *const fn[] = {
	    [WEIR_ROWS_NODES] = node_row,	[WEIR_ROWS_ENGINES] = engine_row,
	    [WEIR_ROWS_SESSIONS] = session_row, [WEIR_ROWS_QPS] = qp_row,
	    [WEIR_ROWS_PORTS] = port_row,	[WEIR_ROWS_COUNTERS] = counter_row,
	    [WEIR_ROWS_SETTINGS] = setting_fn,	[WEIR_ROWS_SERVICES] = service_fn,
	    [WEIR_ROWS_XSTATS] = plane_row,	[WEIR_ROWS_STATUS] = status_row_fn,
	    [WEIR_ROWS_VERSION] = version_row,	[WEIR_ROWS_CONFIG] = plane_row,
	    [WEIR_ROWS_MEMORY] = memory_row,	[WEIR_ROWS_LINKS] = link_row,
	    [WEIR_ROWS_USERS] = user_row_fn,
	};

	uint32_t zero = 0;

	if (q->rows == WEIR_ROWS_EXPORTS)
		return exports_next(q);
	if (q->rows == WEIR_ROWS_CONNECTIONS
		? !q->filled
		: q->rows == WEIR_ROWS_QPS && q->engine < q->b->config.engines) {
		ask_engine(q);
		return false;
	}
	if (q->rows != WEIR_ROWS_CONNECTIONS) {
		fill_page(q, fn[q->rows], &q->from);
		return true;
	}
	q->filled = false;
	fill_page(q, conn_row, &zero);
	q->from = q->snapshot.conn_next;
	if (q->from == UINT32_MAX) {
		q->from = 0;
		q->engine++;
	}
	q->page->rows.more = q->engine < q->b->config.engines;
	return true;
}

struct rows_query *
rows_open(struct broker *b, uint32_t rows, void (*ready)(struct rows_query *q), void *user)
{
	struct rows_query *q = broker_alloc(sizeof(*q));
	bool made;

	if (!q)
		return NULL;
	q->b = b;
	q->rows = rows;
	q->ready = ready;
	q->user = user;
	q->page = broker_alloc(WEIR_CTL_MAX);
	made = q->page;
	if (rows == WEIR_ROWS_CONNECTIONS) {
		q->snapshot.conn_room =
		    (uint32_t)((WEIR_CTL_MAX - ROWS_HEAD) / sizeof(struct weir_row_connection));
		q->snapshot.conns =
		    broker_alloc(q->snapshot.conn_room * sizeof(*q->snapshot.conns));
		made &= q->snapshot.conns != NULL;
	} else if (rows == WEIR_ROWS_EXPORTS) {
		q->snapshot.exports =
		    broker_alloc((WEIR_CTL_MAX - ROWS_HEAD) / sizeof(struct weir_row_export) *
				 sizeof(*q->snapshot.exports));
		made &= q->snapshot.exports != NULL;
	} else if (rows == WEIR_ROWS_QPS) {
		q->snapshot.link_room = b->config.links;
		q->links =
		    broker_alloc((size_t)b->config.engines * b->config.links * sizeof(*q->links));
		made &= q->links != NULL;
	}
	if (made && !command_reserve(b, SNAPSHOTS)) {
		q->reserved = SNAPSHOTS;
		return q;
	}
	rows_close(q);
	return NULL;
}

void
rows_abandon(struct rows_query *q)
{
	q->busy = false;
	rows_close(q);
}

void
rows_close(struct rows_query *q)
{
	if (!q)
		return;
	if (q->busy) {
		q->orphaned = true;
		return;
	}
	command_unreserve(q->b, q->reserved);
	free(q->snapshot.conns);
	free(q->snapshot.exports);
	free(q->links);
	free(q->page);
	free(q);
}
