/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of programs: dispatch, channels, listeners. */
#include "arena.h"
#include "command.h"
#include "connect.h"
#include "export.h"
#include "local.h"
#include "node.h"
#include "public_services.h"
#include "region.h"
#include "service.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static void
channel_added(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct weir_session_msg m = session_msg(WEIR_MSG_CHANNEL);
	int fds[2] = {s->program_doorbell};
	uint32_t i;

	session_command_done(s);
	if (s->state != SESSION_OPEN)
		return;
	if (c->cmd.result) {
		/* it is the last channel: a session has one request at a time */
		i = --s->channel_count;
		weir_assert(i == c->cmd.channel.channel);
		b->config.doorbell_remove(b->config.user, s->channel[i].engine,
					  s->id * b->config.channels + i);
		close(s->program_doorbell);
		s->program_doorbell = -1;
		session_refuse(s, -c->cmd.result,
			       "engine %u has no room for another channel; attach with a larger "
			       "arena",
			       c->engine);
		return;
	}
	m.channel.channel = c->cmd.channel.channel;
	m.channel.engine = c->engine;
	fds[1] = s->channel[m.channel.channel].bell.wait;
	s->program_doorbell = -1;
	session_reply(s, &m, fds, 2);
	close(fds[0]);
}

/*
 * Makes the engine's end of a doorbell and the socket that the program waits on. The engine's
 * socket receives nothing and its eventfd is never read, so an engine closes nothing that a program
 * passes along. SO_LOCK_FILTER: sending to the program's socket runs no filter of the program. 0 or
 * -errno.
 */
static int
open_doorbell(struct weir_bell *bell, int *program)
{
	int pair[2] = {-1, -1}, one = 1, rc;

	*bell = (struct weir_bell){.wait = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .ring = -1};
	/* datagrams: when one end is closed, the other is not readable for ever */
	if (bell->wait >= 0 &&
	    !socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) &&
	    !shutdown(pair[0], SHUT_RD) &&
	    !setsockopt(pair[1], SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof(one))) {
		bell->ring = pair[0];
		*program = pair[1];
		return 0;
	}
	rc = -errno;
	bell->ring = pair[0];
	weir_bell_close(bell);
	if (pair[1] >= 0)
		close(pair[1]);
	return rc;
}

static void
add_channel(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker *b = s->b;
	uint32_t engine = m->add_channel.engine, i = s->channel_count;
	uint32_t used[BROKER_ENGINES_MAX] = {0};
	uint32_t id = s->id * b->config.channels + i;
	struct broker_command *c;
	struct weir_bell bell;
	int program = -1, rc;

	if (engine == UINT32_MAX) { /* the one with fewest channels; programs differ in the first */
		for (uint32_t k = 0; k < i; k++)
			used[s->channel[k].engine]++;
		engine = s->id % b->config.engines;
		for (uint32_t k = 1, e; k < b->config.engines; k++) {
			e = (s->id + k) % b->config.engines;
			if (used[e] < used[engine])
				engine = e;
		}
	}
	if (engine >= b->config.engines) {
		session_refuse(s, EINVAL, "no engine %u; there are %u", engine, b->config.engines);
		return;
	}
	if (i == b->config.channels) {
		session_refuse(s, EMFILE,
			       "all %u channels of the session are in use; "
			       "use fewer threads or raise the limit",
			       i);
		return;
	}
	weir_assert(s->program_doorbell < 0 && i < b->config.channels);
	c = command_new(b, engine, ENGINE_CHANNEL_ADD, channel_added, s);
	if (!c) {
		session_refuse_memory(s);
		return;
	}
	rc = open_doorbell(&bell, &program);
	if (rc) {
		command_drop(b, c);
		session_refuse(s, -rc,
			       "no descriptor for a doorbell; raise the data plane's limit");
		return;
	}
	rc = b->config.doorbell_add(b->config.user, engine, id, bell);
	if (rc) {
		command_drop(b, c);
		weir_bell_close(&bell);
		close(program);
		session_refuse(s, -rc, "engine %u takes no doorbell now; try again", engine);
		return;
	}
	s->channel[i] = (struct broker_channel){.engine = engine, .bell = bell};
	s->channel_count++;
	s->program_doorbell = program;
	c->cmd.channel.session = s->id;
	c->cmd.channel.channel = i;
	c->cmd.channel.doorbell = id;
	c->cmd.channel.fence = !s->membarrier;
	s->commands++;
	command_submit(b, c);
}

static void
listen_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct weir_session_msg r = session_msg(WEIR_MSG_LISTENING);
	bool public = m->listen.flags & WEIR_LISTENS_PUBLIC;
	struct service_listener *l;
	uint32_t i, channel;
	int rc = 0;

	if (!weir_service_ok(m->listen.service) || m->listen.flags & ~WEIR_LISTEN_KNOWN) {
		session_refuse(s, EINVAL,
			       "bad service name, or an unknown flag; use letters, digits, '_', "
			       "'-' and '.'");
		return;
	}
	for (i = 0; i < s->b->config.engines; i++) {
		channel = m->listen.channel[i];
		if (channel < s->channel_count && s->channel[channel].engine == i)
			continue;
		session_refuse(s, EINVAL,
			       "a listener needs a channel to each engine; add those first");
		return;
	}
	if (public && s->b->services_public.count == WEIR_SERVICES_MAX) {
		session_refuse(s, ENOSPC,
			       "this node offers %u public services already; close one, or listen "
			       "without WEIR_LISTEN_PUBLIC",
			       WEIR_SERVICES_MAX);
		return;
	}
	i = 0;
	while (i < WEIR_LISTENERS && s->listener[i])
		i++;
	if (i == WEIR_LISTENERS) {
		session_refuse(s, EMFILE, "all %u listeners of the session are in use; free one",
			       i);
		return;
	}
	if (public)
		rc = user_take(s->owner, USER_SERVICES, 1);
	if (rc) {
		user_refuse(s, s->owner, USER_SERVICES, 1, rc);
		return;
	}
	l = broker_alloc(sizeof(*l));
	if (!l) {
		if (public)
			user_give(s->owner, USER_SERVICES, 1);
		session_refuse_memory(s);
		return;
	}
	l->session = s;
	l->public = public;
	l->holding = m->listen.flags & WEIR_LISTENS_HOLDING;
	l->id = i | (s->listener_generation[i]++ & 0x7fffffu) << 8;
	memcpy(l->channel, m->listen.channel, sizeof(l->channel));
	l->backlog = m->listen.backlog ? m->listen.backlog : SERVICE_BACKLOG_DEFAULT;
	memcpy(l->service, m->listen.service, sizeof(l->service));
	if (service_add(&s->b->services, l)) {
		if (l->public)
			user_give(s->owner, USER_SERVICES, 1);
		free(l);
		session_refuse(s, EADDRINUSE,
			       "service %s is taken on this node; choose another name",
			       m->listen.service);
		return;
	}
	s->listener[i] = l;
	s->listener_count++;
	l->since = broker_now(s->b);
	if (l->public) {
		weir_services_add(&s->b->services_public, l->service);
		services_changed(s->b);
	}
	/* the program's from the answer on */
	atomic_store_explicit(&arena_head(&s->arena)->accepted[i], 0, memory_order_relaxed);
	r.listening.listener = l->id;
	session_reply(s, &r, NULL, 0);
}

int
broker_session_request(struct broker_session *s, const struct weir_session_msg *m, size_t length)
{
	struct weir_session_msg ok = session_msg(WEIR_MSG_OK);
	struct broker *b = s->b;
	uint32_t i;

	if (session_ends(s))
		return 0; /* the end of the session is the answer */
	if (weir_session_check(m, length)) {
		b->counters.requests_bad++;
		return -EBADMSG;
	}
	if (s->pending || s->state != SESSION_OPEN) {
		b->counters.requests_bad++;
		return -EBUSY;
	}
	s->pending = true;
	switch (m->type) {
	case WEIR_MSG_ADD_CHANNEL:
		add_channel(s, m);
		break;
	case WEIR_MSG_LISTEN:
		listen_request(s, m);
		break;
	case WEIR_MSG_UNLISTEN:
		i = m->listening.listener % WEIR_LISTENERS;
		if (s->listener[i] && s->listener[i]->id == m->listening.listener) {
			session_unlisten(s, i);
			session_reply(s, &ok, NULL, 0);
		} else {
			session_refuse(s, ENOENT, "no listener %u", m->listening.listener);
		}
		break;
	case WEIR_MSG_CONNECT:
		connect_request(s, m);
		break;
	case WEIR_MSG_SEGMENT:
		local_segment_request(s, m);
		break;
	case WEIR_MSG_DROP_SEGMENT:
		local_drop_request(s, m);
		break;
	case WEIR_MSG_ADOPT:
		adopt_request(s, m);
		break;
	case WEIR_MSG_DISOWN:
		disown_request(s, m);
		break;
	case WEIR_MSG_EXPORT:
		export_request(s, m);
		break;
	case WEIR_MSG_REVOKE:
		revoke_request(s, m);
		break;
	case WEIR_MSG_NAME:
		name_request(s, m);
		break;
	case WEIR_MSG_ATTACH:
		range_attach_request(s, m);
		break;
	case WEIR_MSG_DETACH:
		range_detach_request(s, m);
		break;
	case WEIR_MSG_OPEN:
		open_request(s, m);
		break;
	case WEIR_MSG_MAP:
		map_request(s, m);
		break;
	case WEIR_MSG_NODES:
		nodes_request(s, m);
		break;
	case WEIR_MSG_DECIDE:
		decide_request(s, m);
		break;
	case WEIR_MSG_WHO:
		who_request(s, m);
		break;
	case WEIR_MSG_FIND:
		find_request(s, m);
		break;
	case WEIR_MSG_BYE:
		session_reply(s, &ok, NULL, 0);
		break;
	default: /* HELLO again, or a reply */
		s->pending = false;
		b->counters.requests_bad++;
		return -EBADMSG;
	}
	broker_flush(b);
	return 0;
}
