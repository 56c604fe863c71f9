/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "plane_fake_internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

struct plane *
plane_create(const struct plane_options *o)
{
	struct plane *f = calloc(1, sizeof(*f));

	if (o)
		f->o = *o;
	f->o.ring_slots = f->o.ring_slots ? f->o.ring_slots : 256;
	f->o.recv_blocks = f->o.recv_blocks ? f->o.recv_blocks : 64;
	f->o.send_blocks = f->o.send_blocks ? f->o.send_blocks : 64;
	f->o.engines = f->o.engines ? f->o.engines : 1;
	f->o.channels = f->o.channels ? f->o.channels : 8;
	f->o.window = f->o.window ? f->o.window : 65536;
	f->o.first = f->o.first ? f->o.first : 512;
	pthread_mutex_init(&f->lock, NULL);
	return f;
}

static void
free_session(struct session *s)
{
	for (uint32_t k = 0; k < CHANNELS; k++) {
		struct packet *p;

		while ((p = s->channel[k].first)) {
			s->channel[k].first = p->next;
			free(p);
		}
		if (s->channel[k].used)
			close(s->channel[k].bell);
	}
	munmap(s->base, s->g.bytes);
	close(s->memory);
	free(s->out);
	if (s->socket[1] >= 0)
		close(s->socket[1]);
}

void
plane_destroy(struct plane *f)
{
	plane_stop(f);
	for (uint32_t i = 0; i < SESSIONS; i++)
		if (f->session[i].used)
			free_session(&f->session[i]);
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		struct segment *g = &f->segment[i];

		if (!g->id)
			continue;
		munmap(g->base, g->g.bytes);
		close(g->memory);
		weir_bell_close(&g->bell[0]);
		weir_bell_close(&g->bell[1]);
	}
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static int reopen(void *user, const char *instance, struct weir_transport *t);

static struct session *
new_session(struct plane *f, struct weir_transport *t)
{
	struct session *s;
	uint32_t i = 0;

	pthread_mutex_lock(&f->lock);
	while (i < SESSIONS && f->session[i].used)
		i++;
	plane_require(i < SESSIONS, "sessions of the fake");
	s = &f->session[i];
	s->used = true;
	s->socket[0] = s->socket[1] = -1;
	if (f->o.watched)
		plane_require(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->socket),
			      "socketpair");
	s->f = f;
	pthread_mutex_unlock(&f->lock);
	*t = (struct weir_transport){.request = plane_request,
				     .close = plane_close_session,
				     .reopen = reopen,
				     .user = s,
				     .fd = s->socket[0]};
	return s;
}

static int
reopen(void *user, const char *instance, struct weir_transport *t)
{
	struct plane *f = ((struct session *)user)->f;
	bool down;

	pthread_mutex_lock(&f->lock);
	down = f->down;
	pthread_mutex_unlock(&f->lock);
	if (down)
		return -ENOENT;
	new_session(f, t);
	return 0;
}

struct weir *
plane_attach_with(struct plane *f, const struct weir_options *o)
{
	struct weir_transport t;
	struct session *s = new_session(f, &t);
	struct weir *w;

	assert_int_equal(weir_attach_with(o, &t, &w), 0);
	s->w = w;
	return w;
}

struct weir *
plane_attach(struct plane *f)
{
	return plane_attach_with(f, NULL);
}

struct weir *
plane_attach_at(struct plane *f, uint32_t node)
{
	return plane_attach(f);
}

void
plane_kill(struct plane *f)
{
	pthread_mutex_lock(&f->lock);
	f->down = true;
	f->nodes = 0;
	f->node_changes = 0;
	f->synced = false;
	for (uint32_t i = 0; i < LISTENERS; i++)
		f->listener[i].used = false;
	for (uint32_t i = 0; i < ENDS; i++)
		f->end[i].used = false;
	for (uint32_t i = 0; i < SESSIONS; i++) {
		f->session[i].dead = true;
		if (f->session[i].used && f->session[i].socket[1] >= 0)
			close(f->session[i].socket[1]);
		f->session[i].socket[1] = -1;
	}
	pthread_mutex_unlock(&f->lock);
}

void
plane_come_back(struct plane *f)
{
	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < SESSIONS; i++)
		if (!f->session[i].used)
			f->session[i].dead = false;
	f->down = false;
	pthread_mutex_unlock(&f->lock);
}

static struct session *
session_of(struct plane *f, struct weir *w)
{
	for (uint32_t i = 0; i < SESSIONS; i++)
		if (f->session[i].used && f->session[i].w == w)
			return &f->session[i];
	fail_msg("no such session");
	return NULL;
}

void
plane_hold(struct plane *f, bool held)
{
	f->held = held;
}

void
fake_open(struct plane *f)
{
	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && !f->end[i].open && !f->end[i].listener)
			plane_tell_opened(f, &f->end[i]);
	pthread_mutex_unlock(&f->lock);
}

void
fake_fail(struct plane *f, uint32_t node, uint32_t code, const char *reason)
{
	pthread_mutex_lock(&f->lock);
	f->fail_node = node;
	f->fail_code = code;
	f->fail_reason = reason;
	pthread_mutex_unlock(&f->lock);
}

void
plane_die(struct plane *f, struct weir *w)
{
	struct session *s = session_of(f, w);

	pthread_mutex_lock(&f->lock);
	s->dead = true;
	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && &f->session[f->end[i].session] == s)
			plane_end_peer(f, &f->end[i], ECONNRESET);
	pthread_mutex_unlock(&f->lock);
}

void
plane_cut(struct plane *f, struct weir *w)
{
	struct session *s = session_of(f, w);

	close(s->socket[1]);
	s->socket[1] = -1;
}

void
plane_evicted(struct weir_session_msg *m)
{
	*m = weir_message(WEIR_MSG_REFUSED);
	m->refused.code = ECONNABORTED;
	snprintf(m->refused.reason, sizeof(m->refused.reason),
		 "evicted by an operator: too loud; attach again if you may");
}

void
fake_evict(struct plane *f, struct weir *w, bool asked)
{
	struct session *s = session_of(f, w);
	struct weir_session_msg m;

	plane_evicted(&m);
	pthread_mutex_lock(&f->lock);
	s->dead = true;
	s->evict = asked;
	if (!asked) {
		plane_require(send(s->socket[1], &m, m.length, 0) == m.length, "send");
		close(s->socket[1]);
		s->socket[1] = -1;
	}
	pthread_mutex_unlock(&f->lock);
}

uint32_t
plane_recv_blocks_free(struct plane *f, struct weir *w)
{
	struct session *s = session_of(f, w);
	uint32_t n;

	pthread_mutex_lock(&f->lock);
	n = s->blocks.free;
	pthread_mutex_unlock(&f->lock);
	return n;
}

uint32_t
plane_open_ends(struct plane *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ENDS; i++)
		n += f->end[i].used;
	return n;
}

uint8_t *
plane_segment(struct plane *f, struct weir_segment_geometry *g)
{
	*g = f->segment[0].g;
	return f->segment[0].base;
}

uint32_t
plane_segments(struct plane *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < SEGMENTS; i++)
		n += f->segment[i].id && !(f->segment[i].dropped[0] && f->segment[i].dropped[1]);
	return n;
}

void
fake_node_event(struct plane *f, uint16_t node, uint32_t status)
{
	struct end any = {0};
	struct packet *p;

	pthread_mutex_lock(&f->lock);
	p = plane_packet(f, &any, WEIR_OP_NODE);
	p->slot[0].value = node;
	p->slot[0].status = status;
	pthread_mutex_unlock(&f->lock);
}

static void
publish_nodes(struct plane *f)
{
	for (uint32_t i = 0; i < SESSIONS; i++) {
		struct session *s = &f->session[i];

		if (!s->used || s->dead || !s->base)
			continue;
		atomic_store(&((struct weir_arena_head *)s->base)->nodes, f->node_changes);
		for (uint32_t k = 0; k < s->channels; k++)
			if (s->channel[k].watches)
				send(s->channel[k].bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

void
plane_node(struct plane *f, const struct weir_node_info *is)
{
	uint32_t i = 0;

	pthread_mutex_lock(&f->lock);
	while (i < f->nodes && f->node[i].is.id != is->id)
		i++;
	plane_require(i < NODES, "nodes of the fake");
	if (i < f->nodes) /* the latest change comes last */
		memmove(&f->node[i], &f->node[i + 1], (--f->nodes - i) * sizeof(f->node[0]));
	f->node[f->nodes].is = *is;
	f->node[f->nodes++].changed = ++f->node_changes;
	publish_nodes(f);
	pthread_mutex_unlock(&f->lock);
}

void
plane_synced(struct plane *f)
{
	pthread_mutex_lock(&f->lock);
	f->synced = true;
	f->node_changes++;
	publish_nodes(f);
	pthread_mutex_unlock(&f->lock);
}
