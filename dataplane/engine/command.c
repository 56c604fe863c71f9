/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands of the main lcore. Most are done at once; some wait for room or for peers. */
#include "channel.h"
#include "command.h"
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "datagram.h"
#include "events.h"
#include "export.h"
#include "link.h"
#include "lock.h"
#include "region.h"
#include "scheduler.h"
#include "session.h"
#include "state.h"

#include <errno.h>

void
engine_complete(struct engine *e, struct engine_command *c, int result)
{
	c->result = result;
	c->next = NULL;
	*e->done_last = c;
	e->done_last = &c->next;
}

struct engine_command *
engine_done(struct engine *e)
{
	struct engine_command *c = e->done;

	if (!c)
		return NULL;
	e->done = c->next;
	if (!e->done)
		e->done_last = &e->done;
	return c;
}

static struct conn *
make_conn(struct engine *e, struct engine_conn_command *k, int *result)
{
	bool passive = k->channel == ENGINE_CHANNEL_NONE;
	struct session *s = session_find(e, k->session);
	struct conn *c;

	weir_assert(!passive || k->kind == CONN_MEMORY);
	*result = -EBUSY;
	if (k->kind == CONN_DATAGRAM && !k->segment && e->datagrams.broken)
		return NULL; /* until main has made another queue pair */
	*result = -ENOENT;
	if (!s || s->remove || s->violated)
		return NULL;
	if (!passive &&
	    (k->channel >= s->shared->geometry.channels || !s->channels[k->channel].session))
		return NULL;
	*result = -EINVAL;
	if (k->kind > CONN_MEMORY || passive != (k->desc == ENGINE_DESC_NONE) ||
	    (!passive && k->desc >= s->shared->geometry.connections))
		return NULL;
	*result = -ENOSPC;
	c = conn_new(e, s, k);
	if (!c)
		return NULL;
	k->vqpn = c->vqpn;
	*result = 0;
	return c;
}

/* Attaches a connection to the link, ours with CONNECT or the peer's with ACCEPT due. */
static void
attach(struct engine *e, struct conn *c, struct peer_link *l, const struct engine_conn_command *k,
       unsigned line)
{
	c->peer_node = l->is.peer_node;
	conn_attach(e, c, l);
	if (c->kind == CONN_DATAGRAM) {
		datagrams_join(l, k);
		c->cold->dgram.mtu = k->mtu;
	} else if (c->kind == CONN_STREAM) {
		credit_first(e, c);
	}
	ctrl_line_due(e, c, line);
}

/* -EAGAIN: all receive memory is promised to peers; some is being reclaimed. */
static int
add_channel(struct engine *e, const struct engine_command *k)
{
	struct session *s = session_find(e, k->channel.session);
	uint64_t slack = WEIR_BLOCK_SIZE;

	if (!s || s->remove || s->violated)
		return -ENOENT;
	if (k->channel.channel >= s->shared->geometry.channels)
		return -EINVAL;
	if (s->channels[k->channel.channel].session)
		return -EBUSY;
	/* the largest message that isn't bulk must still fit beside the reserve */
	if (s->reserve + !s->adding + 2 > s->blocks.count)
		return -ENOSPC;
	for (uint32_t i = 0; i < s->shared->geometry.channels; i++)
		if (s->channels[i].session)
			slack += spill_slack(&s->channels[i]);
	if (s->promised && s->promised + slack > (uint64_t)s->blocks.free * WEIR_BLOCK_SIZE) {
		if (!s->adding)
			s->reserve++;
		if (!s->lacks_memory)
			s->lacks_memory_at = e->now;
		s->adding = s->lacks_memory = true;
		return -EAGAIN;
	}
	if (!s->adding)
		s->reserve++; /* a block for its spills, from now on */
	s->adding = false;
	channel_init(e, s, k->channel.channel, k->channel.doorbell, k->channel.fence);
	return 0;
}

/* 0 or -errno; -EAGAIN: again next turn. */
static int
execute(struct engine *e, struct engine_command *command)
{
	struct engine_conn_command *k = &command->conn;
	struct export *x;
	struct session *s;
	struct conn *c;
	struct peer_link *l;
	int result;

	switch (command->type) {
	case ENGINE_SET_NODE:
		e->node = command->node.id;
		return 0;
	case ENGINE_SESSION_ADD:
		return session_add(e, command->session);
	case ENGINE_SESSION_SHARE:
		s = session_find(e, command->session->id);
		if (!s || s->remove)
			return -ENOENT;
		share_apply(e, s);
		return 0;
	case ENGINE_REGION_ADD:
		return region_add(e, &command->region);
	case ENGINE_REGION_REMOVE:
		return region_remove(e, &command->region);
	case ENGINE_EXPORT_ADD:
		return export_add(e, &command->export);
	case ENGINE_EXPORT_RANGES:
		export_set_ranges(e, &command->export);
		return 0;
	case ENGINE_EXPORT_STOP:
		return export_stop(e, &command->export);
	case ENGINE_EXPORT_REMOVE:
		return export_remove(e, &command->export);
	case ENGINE_CHANNEL_ADD:
		return add_channel(e, command);
	case ENGINE_CONN_OPEN:
		l = link_find(e, k->link);
		if (!l && k->link != ENGINE_LINK_NONE)
			return -EHOSTDOWN;
		if (l && !link_lasts(l)) {
			k->link = ENGINE_LINK_NONE;
			l = NULL;
		}
		c = make_conn(e, k, &result);
		if (!c)
			return result;
		c->listener = ENGINE_LISTENER_NONE;
		memcpy(c->service, k->service, sizeof(c->service));
		if (l)
			attach(e, c, l, k, CTRL_CONNECT);
		return 0;
	case ENGINE_CONN_START:
		c = conn_find(e, k->vqpn);
		if (!c || c->state != CONN_OPENING || c->link || c->user_closed)
			return -ENOENT;
		if (k->status) {
			conn_refused(e, c, k->status);
			return 0;
		}
		l = link_find(e, k->link);
		if (!l)
			return -EHOSTDOWN;
		if (!link_lasts(l))
			return -ENOLINK;
		c->listener = ENGINE_LISTENER_NONE;
		attach(e, c, l, k, CTRL_CONNECT);
		return 0;
	case ENGINE_CONN_ACCEPT:
		l = link_find(e, k->link);
		if (!l || !link_lasts(l)) /* a peer that waits for an answer doesn't end it */
			return -EHOSTDOWN;
		if (!k->peer_vqpn || k->listener == ENGINE_LISTENER_NONE)
			return -EINVAL;
		x = k->kind == CONN_MEMORY ? export_named(e, k) : NULL;
		if (k->kind == CONN_MEMORY && !x)
			return -ESTALE;
		c = make_conn(e, k, &result);
		if (!c)
			return result;
		if (c->kind == CONN_MEMORY)
			export_bind(e, c, x, k->rights, &command->key);
		attach(e, c, l, k, k->held ? 0 : CTRL_ACCEPT);
		if (k->held) {
			c->held = true;
			c->peer_vqpn = k->peer_vqpn;
			c->peer_window = k->granted;
			app_event(e, c, APP_ACCEPTED);
		} else if (c->kind == CONN_DATAGRAM) {
			datagrams_open(e, c, k->peer_vqpn);
		} else {
			conn_opened(e, c, k->peer_vqpn, k->granted, k->granted);
		}
		return 0;
	case ENGINE_CONN_REJECT:
		l = link_find(e, k->link);
		if (!l || !link_lasts(l))
			return -EHOSTDOWN;
		/* it does not wait for the peer: few commands can be under way */
		if (!reject_later(e, l, k->peer_vqpn, k->status ? k->status : ECONNREFUSED))
			link_break(e, l, RING, EPROTO, 0);
		return 0;
	case ENGINE_CONN_LOCAL:
		c = make_conn(e, k, &result);
		if (!c)
			return result;
		conn_enter(c, CONN_LOCAL);
		c->local = true;
		c->peer_vqpn = k->peer_vqpn;
		return 0;
	case ENGINE_CONN_APART:
		x = export_named(e, k);
		if (!x)
			return -ESTALE;
		c = make_conn(e, k, &result);
		if (!c)
			return result;
		export_bind(e, c, x, k->rights, NULL);
		conn_enter(c, CONN_LOCAL);
		c->local = c->local_told = true; /* there is no other end */
		app_event(e, c, APP_OPENED);
		return 0;
	case ENGINE_CONN_LOCAL_OPENED:
		c = conn_find(e, k->vqpn);
		if (!c || c->state != CONN_LOCAL)
			return -ENOENT;
		c->peer_vqpn = k->peer_vqpn;
		if (k->segment)
			c->segment = k->segment;
		c->held = k->held;
		if (k->status) {
			c->local_told = true;
			conn_set_refusal(c, command->refusal);
			conn_refused(e, c, k->status);
		} else {
			app_event(e, c,
				  c->listener == ENGINE_LISTENER_NONE ? APP_OPENED : APP_ACCEPTED);
		}
		return 0;
	case ENGINE_CONN_PEER_CLOSED:
		c = conn_find(e, k->vqpn);
		if (!c || c->state != CONN_LOCAL)
			return -ENOENT;
		conn_local_closed(e, c, k->status);
		return 0;
	case ENGINE_CONN_DECIDE:
		c = conn_find(e, k->vqpn);
		return c ? conn_decide(e, c, k, command->refusal) : -ENOENT;
	case ENGINE_CONN_EVICT:
		c = conn_find(e, k->vqpn);
		if (c && c->state == CONN_LOCAL && c->kind == CONN_MEMORY) {
			conn_local_closed(e, c, k->status);
			return 0;
		}
		if (!c || c->local)
			return -ENOENT;
		if (c->state == CONN_OPENING) /* with a link: until the peer has answered */
			return c->link ? -EAGAIN : -EBUSY;
		if (!conn_is_open(c))
			return -ENOENT;
		conn_abort(e, c, k->status, true);
		return 0;
	case ENGINE_LINK_ADD:
		return link_add(e, &command->link);
	case ENGINE_LINK_PAUSE:
		return link_pause(e, &command->link);
	case ENGINE_LINK_RESUME:
		return link_resume(e, &command->link);
	case ENGINE_LINK_GO:
		return link_go(e, &command->link);
	case ENGINE_LINK_CLOSE:
		return link_close(e, &command->link);
	case ENGINE_LINK_RING:
		return link_ring(e, &command->link);
	case ENGINE_LINK_STAGING:
		return link_staging(e, &command->link);
	case ENGINE_LINK_FAIL:
		return link_fail(e, &command->link);
	case ENGINE_DATAGRAM_ADD:
		return datagrams_add(e, &command->datagram);
	case ENGINE_DATAGRAM_FAIL:
		datagrams_break(e);
		return 0;
	case ENGINE_NODE_EVENT:
		e->node_events[e->node_event_end++ % NODE_EVENTS] =
		    (struct node_event){k->peer_node, k->status};
		node_events_put(e);
		return 0;
	case ENGINE_SNAPSHOT:
		engine_snapshot_fill(e, command->snapshot);
		return 0;
	case ENGINE_QUIET:
		return 0;
	case ENGINE_LOCK:
	case ENGINE_SESSION_REMOVE:
		break; /* in engine_execute() */
	}
	return -EINVAL;
}

bool
engine_execute(struct engine *e, struct engine_command *c)
{
	struct engine_command **last = &e->waiting;

	if (c->type == ENGINE_SESSION_REMOVE) {
		session_remove(e, c);
		return false;
	}
	if (c->type == ENGINE_LOCK)
		return lock_command(e, c);
	c->result = execute(e, c);
	if (c->result != -EAGAIN)
		return true;
	while (*last)
		last = &(*last)->next;
	c->next = NULL;
	*last = c;
	e->rare = true;
	return false;
}

void
commands_retry(struct engine *e)
{
	struct engine_command **at = &e->waiting;

	while (*at) {
		struct engine_command *c = *at;
		int result = execute(e, c);

		if (result == -EAGAIN) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		engine_complete(e, c, result);
	}
}

void
commands_abandon(struct engine *e, const struct session *s)
{
	struct engine_command **at = &e->waiting;

	while (*at) {
		struct engine_command *c = *at;

		if (c->type != ENGINE_CHANNEL_ADD || c->channel.session != s->shared->id) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		engine_complete(e, c, -ENOENT);
	}
}
