/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "plane_fake_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int
memory(const char *name, uint64_t bytes, uint8_t **base)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	plane_require(fd >= 0 && !ftruncate(fd, (off_t)bytes), "no memory for the fake");
	*base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	plane_require(*base != MAP_FAILED, "no mapping for the fake");
	return fd;
}

static void
hello(struct plane *f, struct session *s, struct weir_session_msg *r, int fds[WEIR_SESSION_FDS])
{
	struct weir_geometry *g = &s->g;

	*g = (struct weir_geometry){.magic = WEIR_ARENA_MAGIC,
				    .version = WEIR_LAYOUT_VERSION,
				    .connections = ENDS,
				    .channels = f->o.channels,
				    .ring_slots = f->o.ring_slots,
				    .recv_blocks = f->o.recv_blocks,
				    .engines = f->o.engines,
				    .send_blocks = f->o.send_blocks};
	g->bytes = WEIR_ALIGN_UP(weir_arena_end(g), 4096);
	s->memory = memory("arena", g->bytes, &s->base);
	weir_blocks_init(&s->blocks, s->map, g->recv_blocks);
	s->out = calloc(g->recv_blocks, 1);
	fds[0] = dup(s->memory);
	r->type = WEIR_MSG_WELCOME;
	r->welcome.version = WEIR_SESSION_VERSION;
	r->welcome.flags = WEIR_WELCOME_MEMBARRIER;
	r->welcome.geometry = *g;
}

static void
add_channel(struct session *s, const struct weir_session_msg *m, struct weir_session_msg *r,
	    int fds[WEIR_SESSION_FDS])
{
	struct channel *ch = &s->channel[s->channels];
	struct weir_slot *slots;
	int pair[2];

	if (s->channels == s->g.channels) {
		r->type = WEIR_MSG_REFUSED;
		r->refused.code = EMFILE;
		return;
	}
	plane_require(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
		      "socketpair");
	ch->used = true;
	ch->engine = m->add_channel.engine == UINT32_MAX ? 0 : m->add_channel.engine;
	plane_require(ch->engine < s->g.engines, "an engine that there isn't");
	ch->bell = pair[0];
	fds[0] = pair[1];
	fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); /* it looks all the time */
	ch->last = &ch->first;
	ch->head = (struct weir_channel_head *)(s->base + weir_arena_channel(&s->g, s->channels));
	slots = (struct weir_slot *)(ch->head + 1);
	weir_ring_init(&ch->tx, slots, s->g.ring_slots, &ch->head->tx_tail, false);
	weir_ring_init(&ch->rx, slots + s->g.ring_slots, s->g.ring_slots, &ch->head->rx_tail, true);
	weir_ring_init(&ch->returns, slots + 2 * s->g.ring_slots, WEIR_RETURN_SLOTS,
		       &ch->head->return_tail, false);
	r->type = WEIR_MSG_CHANNEL;
	r->channel.channel = s->channels++;
	r->channel.engine = ch->engine;
}

static void
do_listen(struct plane *f, uint32_t session, const struct weir_session_msg *m,
	  struct weir_session_msg *r)
{
	struct listener *l = &f->listener[f->listeners];

	for (uint32_t i = 0; i < f->listeners; i++)
		if (f->listener[i].used && !strcmp(f->listener[i].service, m->listen.service) &&
		    (!f->o.nodes || f->listener[i].session == session)) {
			r->type = WEIR_MSG_REFUSED;
			r->refused.code = EADDRINUSE;
			return;
		}
	plane_require(f->listeners < LISTENERS, "listeners");
	*l = (struct listener){true, 256u + f->listeners++, session, m->listen.channel[0]};
	memcpy(l->service, m->listen.service, sizeof(l->service));
	f->listen_flags = m->listen.flags;
	f->listens++;
	r->type = WEIR_MSG_LISTENING;
	r->listening.listener = l->id;
}

static void
do_find(struct plane *f, const struct weir_session_msg *m, struct weir_session_msg *r)
{
	uint32_t from = m->find.from;

	r->type = WEIR_MSG_FOUND;
	f->found_asked++;
	f->found_flags = m->find.flags;
	for (; from < f->found_count && r->found.count < WEIR_FOUND_MAX; from++)
		r->found.node[r->found.count++] = f->found[from];
	if (from < f->found_count && !m->find.flags)
		r->found.next = from;
}

void
fake_found(struct plane *f, const struct weir_found *list, uint32_t n)
{
	f->found = list;
	f->found_count = n;
	f->found_asked = 0;
}

uint32_t
plane_found_asked(const struct plane *f, uint32_t *flags)
{
	*flags = f->found_flags;
	return f->found_asked;
}

uint32_t
plane_listens(const struct plane *f)
{
	return f->listens;
}

uint32_t
plane_listen_flags(const struct plane *f)
{
	return f->listen_flags;
}

static struct segment *
get_segment(struct plane *f, uint32_t s0, uint32_t c0, uint32_t s1, uint32_t c1)
{
	struct segment *g = NULL;
	uint32_t i;

	for (i = 0; i < SEGMENTS; i++) {
		g = &f->segment[i];
		if (g->id && !g->dropped[0] && !g->dropped[1] && g->session[0] == s0 &&
		    g->session[1] == s1 && g->channel[0] == c0 && g->channel[1] == c1)
			return g;
	}
	for (i = 0; i < SEGMENTS && f->segment[i].id; i++)
		;
	plane_require(i < SEGMENTS, "segments");
	g = &f->segment[i];
	*g = (struct segment){.id = i + 100, .session = {s0, s1}, .channel = {c0, c1}};
	g->g = (struct weir_segment_geometry){.magic = WEIR_SEGMENT_MAGIC,
					      .version = WEIR_LAYOUT_VERSION,
					      .ring_slots = 256,
					      .connections = 32,
					      .area_bytes = 65536};
	g->g.bytes = WEIR_ALIGN_UP(weir_segment_end(&g->g), 4096);
	g->memory = memory("segment", g->g.bytes, &g->base);
	/* both kinds of doorbells in turns */
	plane_require(!(i % 2 ? weir_bell_open : weir_bell_open_queues)(g->bell), "bell");
	return g;
}

void
plane_tell_opened(struct plane *f, struct end *x)
{
	struct end *y = x->peer;
	struct packet *p;

	if (!y)
		return;
	x->open = y->open = true;
	p = plane_packet(f, y, WEIR_OP_ACCEPTED);
	p->slot[0].length = y->desc_index;
	p->slot[0].accept = (struct weir_slot_accept){
	    .listener = y->listener,
	    .peer_node = f->o.nodes ? (uint16_t)PLANE_NODE(x->session) : 0,
	    .segment = y->segment,
	    .peer_vqpn = x->vqpn,
	    .conn_index = y->conn_index};
	p = plane_packet(f, x, WEIR_OP_OPENED);
	p->slot[0].extra = f->o.nodes ? PLANE_NODE(y->session) : 0;
	if (!x->local) {
		plane_grant(x);
		plane_grant(y);
	}
}

/* False: the channel leads to an engine whose port does not reach the peer. */
static bool
reaches(const struct plane *f, uint32_t session, const struct weir_session_msg *m,
	struct weir_session_msg *r)
{
	uint32_t engine = f->session[session].channel[m->connect.channel].engine;

	r->connecting.engine = f->o.fickle ? (engine + 1) % f->o.engines : f->o.reaches;
	return engine == r->connecting.engine;
}

static void
do_connect(struct plane *f, uint32_t session, const struct weir_session_msg *m,
	   struct weir_session_msg *r)
{
	bool fails = f->fail_code && m->connect.address.id == f->fail_node;
	struct listener *l = NULL;
	struct end *x, *y;

	if (fails && f->fail_reason) {
		r->type = WEIR_MSG_REFUSED;
		r->refused.code = (int32_t)f->fail_code;
		snprintf(r->refused.reason, sizeof(r->refused.reason), "%s", f->fail_reason);
		return;
	}
	for (uint32_t i = 0; i < f->listeners; i++)
		if (f->listener[i].used &&
		    !strcmp(f->listener[i].service, m->connect.address.service) &&
		    (!f->o.nodes || m->connect.address.id == PLANE_NODE(f->listener[i].session)))
			l = &f->listener[i];
	if (!l && m->connect.address.id == 0) {
		r->type = WEIR_MSG_REFUSED;
		r->refused.code = ECONNREFUSED;
		snprintf(r->refused.reason, sizeof(r->refused.reason), "nobody listens; start it");
		return;
	}
	r->type = WEIR_MSG_CONNECTING;
	if (m->connect.address.id && !reaches(f, session, m, r))
		return;
	x = plane_new_end(f, session, m->connect.channel);
	r->connecting.vqpn = x->vqpn;
	r->connecting.desc = x->desc_index;
	if (!l) { /* remote ends are refused later */
		plane_packet(f, x, WEIR_OP_OPENED)->slot[0].status =
		    fails ? f->fail_code : ECONNREFUSED;
		x->used = false;
		return;
	}
	y = plane_new_end(f, l->session, l->channel);
	y->listener = l->id;
	x->peer = y;
	y->peer = x;
	if (m->connect.address.id == 0) {
		struct segment *g =
		    get_segment(f, session, m->connect.channel, l->session, l->channel);

		x->local = y->local = true;
		x->segment = y->segment = g->id;
		x->conn_index = y->conn_index = g->lines++;
		plane_require(g->lines <= 32, "lines of a segment");
		r->connecting.segment = g->id;
		r->connecting.conn_index = x->conn_index;
		r->connecting.peer_vqpn = y->vqpn;
	}
	if (!f->o.slow_open)
		plane_tell_opened(f, x);
}

static void
map_segment(struct plane *f, uint32_t session, const struct weir_session_msg *m,
	    struct weir_session_msg *r, int fds[WEIR_SESSION_FDS])
{
	struct segment *g = &f->segment[m->segment.segment - 100];

	plane_require(m->segment.segment - 100 < SEGMENTS && g->id == m->segment.segment &&
			  m->segment.side < 2 && g->session[m->segment.side] == session,
		      "a segment of somebody else");
	fds[0] = dup(g->memory);
	fds[1] = dup(g->bell[m->segment.side].wait);
	fds[2] = dup(g->bell[m->segment.side].ring);
	r->type = WEIR_MSG_SEGMENT_MAP;
	r->segment_map.segment = g->id;
	r->segment_map.side = m->segment.side;
	r->segment_map.flags = WEIR_WELCOME_MEMBARRIER;
	r->segment_map.geometry = g->g;
}

static void
drop_segment(struct plane *f, const struct weir_session_msg *m, struct weir_session_msg *r)
{
	struct segment *g = &f->segment[m->segment.segment - 100];

	for (uint32_t i = 0; i < ENDS; i++)
		if (f->end[i].used && f->end[i].segment == g->id) {
			r->type = WEIR_MSG_REFUSED;
			r->refused.code = EBUSY;
			return;
		}
	g->dropped[m->segment.side] = true;
}

static void
do_nodes(struct plane *f, struct session *s, const struct weir_session_msg *m,
	 struct weir_session_msg *r)
{
	uint32_t i = 0;

	plane_require(m->nodes.channel == UINT32_MAX || m->nodes.channel < s->channels,
		      "a channel that there isn't");
	if (m->nodes.channel != UINT32_MAX)
		s->channel[m->nodes.channel].watches = m->nodes.watch;
	r->type = WEIR_MSG_NODE_LIST;
	while (i < f->nodes && f->node[i].changed <= m->nodes.since)
		i++;
	for (; i < f->nodes && r->node_list.count < WEIR_NODES_A_MSG; i++) {
		r->node_list.node[r->node_list.count++] = f->node[i].is;
		r->node_list.upto = f->node[i].changed;
	}
	r->node_list.more = i < f->nodes;
	r->node_list.whole = i == f->nodes && f->synced;
	if (i == f->nodes)
		r->node_list.upto = f->node_changes;
}

int
plane_request(void *user, const struct weir_session_msg *m, struct weir_session_msg *r,
	      int fds[WEIR_SESSION_FDS])
{
	struct session *s = user;
	struct plane *f = s->f;
	uint32_t index = (uint32_t)(s - f->session);

	plane_require(!weir_session_check(m, m->length), "a malformed request");
	if (m->type == WEIR_MSG_LISTEN)
		usleep(f->o.listen_ms * 1000);
	memset(r, 0, sizeof(*r));
	r->type = WEIR_MSG_OK;
	pthread_mutex_lock(&f->lock);
	if (s->evict) {
		s->evict = false;
		plane_evicted(r);
		close(s->socket[1]);
		s->socket[1] = -1;
		pthread_mutex_unlock(&f->lock);
		return 0;
	}
	if (f->o.watched && s->socket[1] < 0) { /* hung up */
		pthread_mutex_unlock(&f->lock);
		return -ENODEV;
	}
	switch (m->type) {
	case WEIR_MSG_HELLO:
		hello(f, s, r, fds);
		break;
	case WEIR_MSG_ADD_CHANNEL:
		add_channel(s, m, r, fds);
		break;
	case WEIR_MSG_LISTEN:
		do_listen(f, index, m, r);
		break;
	case WEIR_MSG_UNLISTEN:
		f->listener[m->listening.listener - 256].used = false;
		break;
	case WEIR_MSG_CONNECT:
		do_connect(f, index, m, r);
		if (f->o.prompt)
			plane_push_all(f);
		break;
	case WEIR_MSG_SEGMENT:
		map_segment(f, index, m, r, fds);
		break;
	case WEIR_MSG_DROP_SEGMENT:
		drop_segment(f, m, r);
		break;
	case WEIR_MSG_NODES:
		do_nodes(f, s, m, r);
		break;
	case WEIR_MSG_FIND:
		do_find(f, m, r);
		break;
	case WEIR_MSG_BYE:
		break;
	default:
		plane_broken("an unknown request");
	}
	pthread_mutex_unlock(&f->lock);
	return 0;
}

void
plane_close_session(void *user)
{
	struct session *s = user;

	if (s->socket[0] >= 0)
		close(s->socket[0]);
}
