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
	struct sim *s;
	uint32_t node, program;
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
			sim_fail(c->s, "program %u: the data plane closed its session", c->program);
		return;
	}
	if (c->replied)
		sim_fail(c->s, "program %u: two answers to one request", c->program);
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
	struct sim *s = c->s;
	struct sim_node *n = s->node[c->node];
	uint64_t end = s->now + s->options.limit;
	int rc = 0;

	c->replied = false;
	sim_node_listen(n);
	sim_trace(s, "program %u: asks %s", c->program, weir_session_type_name(m->type));
	if (m->type == WEIR_MSG_HELLO)
		c->session = broker_session_open(n->broker, m, m->length, 1000 + (pid_t)c->program,
						 0, on_reply, c);
	else
		rc = broker_session_request(c->session, m, m->length);
	if (rc)
		sim_fail(s, "program %u: request %s gives %d", c->program,
			 weir_session_type_name(m->type), rc);
	sim_node_kick(n);
	while (!c->replied)
		if (!sim_step(s) || s->now > end)
			sim_fail(s, "program %u: no answer to %s", c->program,
				 weir_session_type_name(m->type));
	*reply = c->reply;
	memcpy(fds, c->fds, sizeof(c->fds));
	return 0;
}

static void
close_transport(void *user)
{
}

struct sim_client *
sim_client_attach(struct sim *s, uint32_t node, uint32_t program, struct weir **w)
{
	char name[WEIR_NAME_MAX];
	struct weir_options options = {
	    .size = sizeof(options), .name = name, .arena = s->sc.arena_bytes};
	struct weir_transport t = {.request = request, .close = close_transport, .fd = -1};
	struct sim_client *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		abort();
	*c = (struct sim_client){.s = s, .node = node, .program = program};
	snprintf(name, sizeof(name), "sim.%u", program);
	t.user = c;
	rc = weir_attach_with(&options, &t, w);
	if (rc)
		sim_fail(s, "program %u: attach gives %d: %s", program, rc, weir_reason());
	return c;
}

static void
end_session(struct sim_client *c)
{
	if (c->session)
		broker_session_close(c->session);
	sim_node_kick(c->s->node[c->node]);
	free(c);
}

void
sim_client_detach(struct sim_client *c, struct weir *w)
{
	c->leaving = true;
	weir_detach(w);
	end_session(c);
}

void
sim_client_die(struct sim_client *c, struct weir *w)
{
	c->leaving = true;
	weir_lost(w);
	weir_detach(w);
	end_session(c);
}
