/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libweir's transport in the simulator: requests go straight to the node's broker. Some answers
 * come only after an engine has done something; meanwhile everybody else goes on, in steps inside
 * the call.
 */
#include "client.h"
#include "node.h"

#include "client/session.h"
#include "client/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_client {
	struct sim_program *p;
	struct broker_session *session; /* NULL: not open, or closed */
	bool replied;
	bool leaving; /* detaches or dies */
	struct weir_session_msg reply;
	int fds[WEIR_SESSION_FDS];
};

static void
on_reply(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct sim_client *c = user;

	if (!reply) { /* the broker has ended the session */
		c->session = NULL;
		if (!c->leaving)
			sim_fail(c->p->s, "program %u: the data plane closed its session",
				 c->p->id);
		return;
	}
	if (c->replied)
		sim_fail(c->p->s, "program %u: two answers to one request", c->p->id);
	c->reply = *reply;
	c->replied = true;
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		c->fds[i] = i < fd_count ? dup(fds[i]) : -1;
}

static int
request(void *user, const struct weir_session_msg *m, struct weir_session_msg *reply,
	int fds[WEIR_SESSION_FDS])
{
	struct sim_client *c = user;
	struct sim *s = c->p->s;
	struct sim_node *n = s->node[c->p->node];
	uint64_t end = s->now + s->options.limit;
	int rc = 0;

	c->replied = false;
	sim_node_listen(n);
	sim_trace(s, "program %u: asks %s", c->p->id, weir_session_type_name(m->type));
	if (m->type == WEIR_MSG_HELLO)
		c->session = broker_session_open(n->broker, m, m->length, 1000 + (pid_t)c->p->id, 0,
						 on_reply, c);
	else
		rc = broker_session_request(c->session, m, m->length);
	if (rc)
		sim_fail(s, "program %u: request %s gives %d", c->p->id,
			 weir_session_type_name(m->type), rc);
	sim_node_kick(n);
	while (!c->replied)
		if (!sim_step(s) || s->now > end)
			sim_fail(s, "program %u: no answer to %s", c->p->id,
				 weir_session_type_name(m->type));
	*reply = c->reply;
	memcpy(fds, c->fds, sizeof(c->fds));
	return 0;
}

static void
close_transport(void *user)
{
}

void
sim_client_start(struct sim_program *p)
{
	char name[WEIR_NAME_MAX];
	struct weir_options options = {
	    .size = sizeof(options), .name = name, .arena = p->s->sc.arena_bytes};
	struct weir_transport t = {.request = request, .close = close_transport, .fd = -1};
	int rc;

	snprintf(name, sizeof(name), "sim.%u", p->id);
	p->client = calloc(1, sizeof(*p->client));
	if (!p->client)
		abort();
	p->client->p = p;
	t.user = p->client;
	rc = weir_attach_with(&options, &t, &p->w);
	if (rc)
		sim_fail(p->s, "program %u: attach gives %d: %s", p->id, rc, weir_reason());
	sim_program_attached(p);
}

static void
end_session(struct sim_program *p)
{
	if (p->client->session)
		broker_session_close(p->client->session);
	sim_node_kick(p->s->node[p->node]);
	free(p->client);
	p->client = NULL;
}

void
sim_client_detach(struct sim_program *p)
{
	p->client->leaving = true;
	weir_detach(p->w);
	p->w = NULL;
	end_session(p);
}

void
sim_client_die(struct sim_program *p)
{
	p->client->leaving = true;
	weir_lost(p->w);
	weir_detach(p->w);
	p->w = NULL;
	end_session(p);
}
