/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions: attaching, replies, ending. Every session ends in the same steps: it is marked; at the
 * end of the turn its names and segments go, local peers are told, and engines remove it; at the
 * end of the turn in which the last command for it returns, its memory is freed.
 */
#include "arena.h"
#include "command.h"
#include "conn.h"
#include "connect.h"
#include "export.h"
#include "local.h"
#include "memfd.h"
#include "node.h"
#include "pace.h"
#include "public_services.h"
#include "quota.h"
#include "region.h"
#include "release.h"
#include "service.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"
#include "ipc/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SHARED_MEMORY "shared memory (free some, or reserve huge pages: scripts/setup_hugepages.sh)"

struct weir_session_msg
session_msg(uint32_t type)
{
	return (struct weir_session_msg){.type = type, .length = weir_session_length(type)};
}

static void
refusal_text(struct weir_session_msg *m, int code, const char *format, va_list args)
{
	*m = session_msg(WEIR_MSG_REFUSED);
	m->refused.code = code;
	vsnprintf(m->refused.reason, sizeof(m->refused.reason), format, args);
}

void
session_refusal(struct weir_session_msg *reply, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	refusal_text(reply, code, format, args);
	va_end(args);
}

void
session_reply(struct broker_session *s, struct weir_session_msg *reply, const int *fds,
	      unsigned fd_count)
{
	if (!s->pending)
		return;
	s->pending = false;
	if (reply->type == WEIR_MSG_REFUSED)
		s->b->counters.requests_refused++;
	else
		s->b->counters.requests++;
	if (s->reply)
		s->reply(s->user, reply, fds, fd_count);
}

void
session_refuse(struct broker_session *s, int code, const char *format, ...)
{
	struct weir_session_msg m;
	va_list args;

	va_start(args, format);
	refusal_text(&m, code, format, args);
	va_end(args);
	session_reply(s, &m, NULL, 0);
}

void
session_refuse_memory(struct broker_session *s)
{
	session_refuse(s, ENOMEM, SESSION_NO_MEMORY);
}

void
session_set_serial(struct broker_session *s, bool serial)
{
	weir_assert(s->b->serial_sessions >= s->serial);
	s->b->serial_sessions += (uint32_t)serial - (uint32_t)s->serial;
	s->serial = serial;
}

static size_t
work_bytes(const struct broker_session *s, uint32_t i)
{
	return engine_session_bytes(broker_engine(s->b, i)->engine_config, &s->view[i].geometry);
}

static void
session_free(struct broker_session *s)
{
	struct broker *b = s->b;

	weir_assert(s->state == SESSION_BUILDING || s->state == SESSION_CLOSING);
	weir_assert(b->session[s->id] == s && !s->serial && !s->waiting && !s->commands);
	while (!LIST_EMPTY(&s->conns))
		conn_gone(b, LIST_FIRST(&s->conns));
	if (s->farewell)
		s->farewell(s->user, NULL, NULL, 0);
	for (uint32_t i = 0; i < s->channel_count; i++)
		b->config.doorbell_remove(b->config.user, s->channel[i].engine,
					  s->id * b->config.channels + i);
	if (s->program_doorbell >= 0)
		close(s->program_doorbell);
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct nic_device *dev = broker_engine(b, i)->dev;
		struct engine_session *v = &s->view[i];

		if (v->work)
			b->config.memory_put(b->config.user, v->work, work_bytes(s, i));
		if (dev && v->recv_mr.length)
			broker_ops(b, i)->mr_dereg(dev, &v->recv_mr);
		if (dev && s->view_owned[i])
			broker_ops(b, i)->mr_dereg(dev, &v->send_mr);
	}
	exports_free(s);
	regions_free(s);
	release_memory(b, s->release, &s->arena.memory, s->arena.guard, s->owner, s->charged_bytes,
		       USER_MEMORY);
	command_unreserve(b, s->reserved);
	b->session[s->id] = NULL;
	b->session_count--;
	free(s->view);
	free(s->view_owned);
	free(s->region);
	free(s->export);
	free(s->channel);
	free(s->free_desc);
	user_give(s->owner, USER_SESSIONS, 1);
	free(s);
}

/* A command that *count counts has returned: the last one leaves a closing session to be freed. */
static void
returned(struct broker_session *s, uint32_t *count)
{
	weir_assert(*count);
	--*count;
	if (s->state == SESSION_CLOSING && !s->waiting && !s->commands)
		TAILQ_INSERT_TAIL(&s->b->sessions_marked, s, in_marked);
}

void
session_command_done(struct broker_session *s)
{
	returned(s, &s->commands);
}

static void
removed(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;

	weir_assert(s->state == SESSION_CLOSING);
	returned(s, &s->waiting);
}

void
session_unlisten(struct broker_session *s, uint32_t index)
{
	struct service_listener *l = s->listener[index];

	weir_assert(l && l->session == s && s->listener_count);
	service_remove(l);
	if (l->public) {
		weir_services_remove(&s->b->services_public, l->service);
		user_give(s->owner, USER_SERVICES, 1);
		services_changed(s->b);
	}
	s->listener[index] = NULL;
	s->listener_count--;
	free(l);
}

static void
session_enter(struct broker_session *s, enum session_state to)
{
	static const uint8_t legal[] = {
	    [SESSION_BUILDING] = 1u << SESSION_ADDING | 1u << SESSION_CLOSING,
	    [SESSION_ADDING] = 1u << SESSION_OPEN | 1u << SESSION_ENDING,
	    [SESSION_OPEN] = 1u << SESSION_ENDING,
	    [SESSION_ENDING] = 1u << SESSION_CLOSING,
	    [SESSION_CLOSING] = 0,
	};

	weir_enter(legal, s->state, to);
}

/* The program has had its last reply. */
static void
stop_replies(struct broker_session *s)
{
	s->reply = NULL;
	s->pending = false;
}

/* Nothing begins for the session any more; broker_sessions_settle() does the rest. */
static void
mark(struct broker_session *s)
{
	if (s->state == SESSION_OPEN)
		user_left_one(s->owner);
	session_set_serial(s, false);
	build_leave(&s->build);
	adopt_stop_waiting(s);
	/* no engine knows one that is being built */
	session_enter(s, s->state == SESSION_BUILDING ? SESSION_CLOSING : SESSION_ENDING);
	TAILQ_INSERT_TAIL(&s->b->sessions_marked, s, in_marked);
}

void
session_end(struct broker_session *s)
{
	struct broker *b = s->b;

	if (session_ends(s))
		return;
	b->counters.sessions_closed++;
	broker_blame_user(b, s->uid, "sessions", LOG_LEVEL_DEBUG, SESSION_FIELDS(s),
			  "session %u (pid %d, %s) ends", s->id, (int)s->pid, s->name);
	mark(s);
}

static void
close_session(struct broker_session *s)
{
	struct broker *b = s->b;
	struct broker_conn *c;

	session_enter(s, SESSION_CLOSING);
	for (uint32_t i = 0; i < WEIR_LISTENERS; i++)
		if (s->listener[i])
			session_unlisten(s, i);
	LIST_FOREACH(c, &s->conns, entry)
	{
		connect_forget(c);
		/* the engine ends an open one: the program may have closed it before */
		if (!c->opened || !c->peer || !c->peer->opened)
			conn_tell_peer(b, c, ECONNRESET);
	}
	local_session_end(b, s);
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct broker_command *k =
		    command_reserved(b, i, ENGINE_SESSION_REMOVE, removed, s);

		k->cmd.session = &s->view[i];
		s->waiting++;
		command_submit(b, k);
	}
}

void
broker_sessions_settle(struct broker *b)
{
	struct broker_session *s;

	/* closing one may mark another */
	while ((s = TAILQ_FIRST(&b->sessions_marked))) {
		TAILQ_REMOVE(&b->sessions_marked, s, in_marked);
		if (s->reply)
			s->reply(s->user, NULL, NULL, 0);
		stop_replies(s);
		if (s->state == SESSION_ENDING)
			close_session(s);
		else
			session_free(s);
	}
}

void
sessions_free_all(struct broker *b)
{
	for (uint32_t i = 0; b->session && i < b->config.sessions; i++)
		if (b->session[i])
			broker_session_close(b->session[i]);
	broker_sessions_settle(b);
	for (uint32_t i = 0; b->session && i < b->config.sessions; i++) {
		struct broker_session *s = b->session[i];

		if (!s)
			continue;
		s->waiting = s->commands = 0;
		session_free(s);
	}
}

void
broker_session_close(struct broker_session *s)
{
	struct broker *b = s->b;

	s->farewell = NULL;
	stop_replies(s);
	session_end(s);
	broker_flush(b);
}

void
session_leave(struct broker_session *s)
{
	if (s->state == SESSION_OPEN) {
		s->farewell = s->reply;
		stop_replies(s);
	}
	session_end(s);
}

/* Sends the reason, whether a request waits or not: the library does not attach again by itself. */
static void
end_with(struct broker_session *s, struct weir_session_msg *reason)
{
	if (s->reply) {
		s->reply(s->user, reason, NULL, 0);
		s->reply(s->user, NULL, NULL, 0);
	}
	stop_replies(s);
	session_end(s);
}

void
session_spoil(struct broker_session *s, const char *reason)
{
	struct weir_session_msg m;

	if (session_ends(s))
		return;
	s->b->counters.sessions_spoilt++;
	broker_blame_user(s->b, s->uid, "sessions closed", LOG_LEVEL_WARNING, SESSION_FIELDS(s),
			  "session %u (pid %d, %s, uid %u) closed: %s", s->id, (int)s->pid, s->name,
			  (unsigned)s->uid, reason);
	session_refusal(&m, ECONNABORTED, "ended by the data plane: %s; correct the program",
			reason);
	end_with(s, &m);
}

void
session_evict(struct broker_session *s, const char *reason)
{
	struct weir_session_msg m;

	if (session_ends(s))
		return;
	s->b->counters.evicted++;
	session_refusal(&m, ECONNABORTED, "evicted by an operator%s%s; attach again if you may",
			*reason ? ": " : "", reason);
	end_with(s, &m);
}

void
session_full(struct broker *b, uint32_t id)
{
	const struct broker_session *s = id < b->config.sessions ? b->session[id] : NULL;

	if (s && s->state == SESSION_OPEN)
		broker_blame_user(
		    b, s->uid, "full receive memory", LOG_LEVEL_WARNING, SESSION_FIELDS(s),
		    "session %u (pid %d, %s): its receive memory is full and peers wait; it "
		    "should receive faster, or attach with a larger arena",
		    s->id, (int)s->pid, s->name);
}

static void
welcome(struct broker_session *s)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_WELCOME);

	weir_assert(s->pending && !s->waiting);
	session_enter(s, SESSION_OPEN);
	session_set_serial(s, false);
	user_attached(s->owner);
	s->b->counters.sessions_opened++;
	broker_blame_user(s->b, s->uid, "sessions", LOG_LEVEL_DEBUG, SESSION_FIELDS(s),
			  "session %u (pid %d, %s) is attached", s->id, (int)s->pid, s->name);
	m.welcome.version = s->version;
	m.welcome.flags = s->b->membarrier ? WEIR_WELCOME_MEMBARRIER : 0;
	m.welcome.session = s->id;
	m.welcome.node = s->b->node;
	m.welcome.geometry = s->arena.geometry;
	session_reply(s, &m, &s->arena.memory.fd, 1);
}

static void
added(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;

	returned(s, &s->waiting);
	if (c->cmd.result && !s->result)
		s->result = c->cmd.result;
	if (s->waiting || session_ends(s))
		return;
	if (!s->result) {
		welcome(s);
		return;
	}
	b->counters.sessions_refused++;
	session_refuse(s, -s->result,
		       "an engine has no room for another session; raise the data plane's limits");
	stop_replies(s);
	session_end(s);
}

/*
 * Charges the arena and makes its head; the rest is made in pieces. 0, or -errno and the kind of
 * memory that is short, NULL: the user's limit.
 */
static int
begin_arena(struct broker_session *s, uint64_t wish, uint64_t *bytes, const char **what)
{
	const struct broker_config *c = &s->b->config;
	struct arena_limits limits = {c->session_connections, c->channels, c->ring_slots,
				      c->engines, c->arena_bytes};
	int numa[BROKER_ENGINES_MAX];
	struct weir_geometry g;
	int rc = arena_geometry(&limits, wish, &g);

	*what = "an arena (allow larger ones: --arena)";
	if (rc)
		return rc;
	/* of the arena, and of the tables that main and the engines have of the session */
	*bytes = g.bytes + sizeof(*s) + c->regions * sizeof(*s->region) +
		 c->exports * sizeof(*s->export) + c->channels * sizeof(*s->channel) +
		 g.connections * sizeof(*s->free_desc);
	for (uint32_t i = 0; i < c->engines; i++) {
		numa[i] = c->engine[i].numa_socket;
		*bytes += sizeof(*s->view) + sizeof(*s->view_owned) +
			  engine_session_bytes(broker_engine(s->b, i)->engine_config, &g);
	}
	rc = user_take(s->owner, USER_MEMORY, *bytes);
	if (rc) {
		*what = NULL;
		return rc;
	}
	s->charged_bytes = *bytes;
	*what = SHARED_MEMORY;
	return arena_begin(&g, numa, s->b->fault_fd, &s->arena);
}

static struct broker_session *
session_of(struct broker_build *e)
{
	return (struct broker_session *)((char *)e - offsetof(struct broker_session, build));
}

static int
make_piece(struct broker_build *e)
{
	return arena_go_on(&session_of(e)->arena);
}

static void
charge(struct broker_build *e, uint64_t ns)
{
	struct broker_session *s = e->session;

	s->cost_ns += ns;
	if (s->charged)
		user_charge(s->owner, ns, false);
}

/*
 * The arena is complete: gives each engine work memory, its receive blocks and the send heap as
 * memory regions of its device, and tells it of the session.
 */
static int
add_to_engines(struct broker_build *e)
{
	struct broker_session *s = session_of(e);
	const struct weir_geometry *g = &s->arena.geometry;
	uint8_t *base = arena_base(&s->arena);
	uint64_t offset, bytes, begin = pace_clock();
	struct broker *b = s->b;
	int rc;

	weir_assert(s->state == SESSION_BUILDING && s->arena.guard >= 0);
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct nic_device *dev = broker_engine(b, i)->dev;
		struct engine_session *v = &s->view[i];
		uint32_t k = 0;

		v->id = s->id;
		v->base = base;
		v->geometry = *g;
		v->share = &s->share;
		v->work = b->config.memory_get(b->config.user, work_bytes(s, i),
					       broker_engine(b, i)->numa_socket);
		if (!v->work)
			return -ENOMEM;
		if (!dev)
			continue;
		arena_recv_part(g, i, &offset, &bytes);
		rc = broker_ops(b, i)->mr_reg(dev, base + offset, bytes,
					      NIC_LOCAL_WRITE | NIC_REMOTE_WRITE, &v->recv_mr);
		if (rc)
			return rc;
		while (broker_engine(b, k)->dev != dev)
			k++;
		if (k < i) { /* the send heap is registered once per device */
			v->send_mr = s->view[k].send_mr;
			continue;
		}
		rc = broker_ops(b, i)->mr_reg(dev, base + weir_arena_send(g),
					      (uint64_t)g->send_blocks * WEIR_BLOCK_SIZE,
					      NIC_LOCAL_WRITE | NIC_REMOTE_READ, &v->send_mr);
		s->view_owned[i] = !rc;
		if (rc)
			return rc;
	}
	s->free_desc = broker_alloc(g->connections * sizeof(*s->free_desc));
	if (!s->free_desc)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->connections; i++)
		s->free_desc[i] = g->connections - 1 - i;
	s->free_desc_count = g->connections;
	charge(e, pace_clock() - begin);
	session_enter(s, SESSION_ADDING);
	s->waiting = b->config.engines;
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct broker_command *c = command_reserved(b, i, ENGINE_SESSION_ADD, added, s);

		c->cmd.session = &s->view[i];
		command_submit(b, c);
	}
	return 0;
}

static void
refuse_memory(struct weir_session_msg *no, int rc, const char *what)
{
	session_refusal(no, -rc, "no memory for %s: %s", what, strerror(-rc));
}

static void
not_built(struct broker_build *e, int rc)
{
	struct broker_session *s = session_of(e);
	struct weir_session_msg no;

	s->b->counters.sessions_refused++;
	refuse_memory(&no, rc,
		      s->arena.guard < 0 ? SHARED_MEMORY
					 : "memory regions (raise the limit of locked memory or of "
					   "regions)");
	s->reply(s->user, &no, NULL, 0);
	stop_replies(s);
	mark(s);
}

static const struct build_kind arena_kind = {make_piece, add_to_engines, not_built, charge};

/*
 * A session in the next free slot: slots are used in turns, so that the number of a doorbell is not
 * used again soon. NULL: out of memory.
 */
static struct broker_session *
session_new(struct broker *b)
{
	const struct broker_config *c = &b->config;
	struct broker_session *s = broker_alloc(sizeof(*s));
	uint32_t id = b->session_next % c->sessions;

	if (!s)
		return NULL;
	weir_assert(b->session_count < c->sessions);
	while (b->session[id])
		id = (id + 1) % c->sessions;
	s->b = b;
	s->id = id;
	s->state = SESSION_BUILDING;
	s->program_doorbell = -1;
	s->arena = (struct arena){.memory = {.fd = -1, .base = (void *)-1}, .guard = -1};
	s->view = broker_alloc(c->engines * sizeof(*s->view));
	s->view_owned = broker_alloc(c->engines * sizeof(*s->view_owned));
	s->region = broker_alloc(c->regions * sizeof(*s->region));
	s->export = broker_alloc(c->exports * sizeof(*s->export));
	s->channel = broker_alloc(c->channels * sizeof(*s->channel));
	s->release = release_new();
	if (!s->view || !s->view_owned || (!s->region && c->regions) ||
	    (!s->export && c->exports) || !s->channel || !s->release ||
	    command_reserve(b, 2 * c->engines)) {
		free(s->view);
		free(s->view_owned);
		free(s->region);
		free(s->export);
		free(s->channel);
		free(s->release);
		free(s);
		return NULL;
	}
	s->reserved = 2 * c->engines; /* SESSION_ADD and SESSION_REMOVE */
	b->session_next = id + 1;
	b->session[id] = s;
	b->session_count++;
	return s;
}

/* Whether the program may attach; else the refusal. */
static bool
hello_acceptable(struct broker *b, const struct weir_session_msg *m, size_t length,
		 struct weir_session_msg *no)
{
	size_t head = offsetof(struct weir_session_msg, hello.flags);
	char why[WEIR_VERSION_WHY];

	if (length < head || m->type != WEIR_MSG_HELLO || m->hello.magic != WEIR_SESSION_MAGIC) {
		session_refusal(no, EPROTO,
				"not a greeting of libweir; use the library of this version");
		return false;
	}
	if (!weir_version_choose(WEIR_SESSION_VERSIONS, m->hello.versions, "session.sock",
				 "weir-dataplane", "libweir", why)) {
		session_refusal(no, EPROTO, "%s", why);
		return false;
	}
	if (weir_session_check(m, length)) {
		session_refusal(no, EPROTO, "malformed greeting; use the library of this version");
		return false;
	}
	if (b->stopping) {
		session_refusal(no, ECONNREFUSED, "the data plane is stopping; attach again later");
		return false;
	}
	if (b->draining) {
		b->counters.drained++;
		session_refusal(no, ECONNREFUSED,
				"this node is being drained: no new programs; attach again later");
		return false;
	}
	if (b->session_count >= b->session_limit) {
		session_refusal(no, EMFILE,
				"all %u sessions are in use; close a program or raise the limit",
				b->session_limit);
		return false;
	}
	return true;
}

struct broker_session *
broker_session_open(struct broker *b, const struct weir_session_msg *hello, size_t length,
		    pid_t pid, uid_t uid, broker_reply_fn *reply, void *user)
{
	struct weir_session_msg no;
	struct broker_session *s;
	struct broker_user *owner;
	const char *what;
	uint64_t bytes = 0;
	int rc;

	if (!hello_acceptable(b, hello, length, &no) || user_begin(b, uid, &owner, &no)) {
		b->counters.sessions_refused++;
		reply(user, &no, NULL, 0);
		return NULL;
	}
	s = session_new(b);
	if (!s) {
		b->counters.sessions_refused++;
		user_give(owner, USER_SESSIONS, 1);
		session_refusal(&no, ENOMEM, SESSION_NO_MEMORY);
		reply(user, &no, NULL, 0);
		return NULL;
	}
	s->pid = pid;
	s->uid = uid;
	s->owner = owner;
	s->version =
	    weir_version_choose(WEIR_SESSION_VERSIONS, hello->hello.versions, "", "", "", NULL);
	s->membarrier = b->membarrier && hello->hello.flags & WEIR_HELLO_MEMBARRIER;
	weir_text_copy(s->name, hello->hello.name, sizeof(s->name));
	quota_init(s);
	rc = begin_arena(s, hello->hello.arena, &bytes, &what);
	if (rc) {
		b->counters.sessions_refused++;
		if (!what)
			user_refusal(s->owner, USER_MEMORY, bytes, rc, &no);
		else
			refuse_memory(&no, rc, what);
		session_free(s);
		reply(user, &no, NULL, 0);
		return NULL;
	}
	atomic_store_explicit(&arena_head(&s->arena)->node,
			      b->node == BROKER_NODE_UNKNOWN ? 0 : b->node + 1,
			      memory_order_relaxed);
	atomic_store_explicit(&arena_head(&s->arena)->nodes, b->node_changes, memory_order_relaxed);
	s->reply = reply;
	s->user = user;
	s->pending = true;
	build_enter(&s->build, &arena_kind, s, &s->arena.memory);
	return s;
}

void
session_publish_node(struct broker *b)
{
	for (uint32_t i = 0; i < b->config.sessions; i++)
		if (b->session[i] && !session_ends(b->session[i]))
			atomic_store_explicit(&arena_head(&b->session[i]->arena)->node, b->node + 1,
					      memory_order_relaxed);
}
