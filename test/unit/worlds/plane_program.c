/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs of plane.c: their sessions, what the library asks for, what tests see of them. */
#define _GNU_SOURCE
#include "plane_real.h"

#include "broker/export.h"
#include "broker/region.h"
#include "broker/session.h"
#include "broker/set.h"
#include "broker/state.h"
#include "engine/session.h"
#include "engine/state.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define IMPATIENT 100000 /* turns after which a request has no answer */

void
plane_hang_up(struct client *c)
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
		plane_hang_up(c);
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
		plane_turn_locked(c->plane);
	}
	if (m->type == WEIR_MSG_DISOWN) /* engines answer sooner than a socket */
		for (unsigned i = 0; i < 4; i++)
			plane_turn_locked(c->plane);
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

	/* a thread that the child does not have may have held the lock */
	if (getpid() != c->plane->process) {
		if (c->socket[0] >= 0)
			close(c->socket[0]);
		return;
	}
	pthread_mutex_lock(&c->plane->lock);
	if (c->session)
		broker_session_close(c->session);
	c->session = NULL;
	plane_hang_up(c);
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
	plane_hang_up(client_of(p, w));
	pthread_mutex_unlock(&p->lock);
}

/* ---- what tests see of them ---- */

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
