/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Public services: names that programs make known in the whole cluster. The broker tells control
 * all names of this node at each change, and control reports those of each other node. So a lookup
 * asks no other process; without a control it uses the last reports.
 */
#include "control_socket.h"
#include "node.h"
#include "public_services.h"
#include "service.h"
#include "session.h"
#include "state.h"

#include "ipc/invariant.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define INTERVAL_NS (BROKER_SECOND_NS / 10) /* ns between two messages to control */

/* Services of another node, in the order of names. */
struct broker_offers {
	uint64_t incarnation; /* of that node's data plane */
	uint32_t count;
	struct {
		char name[WEIR_SERVICE_MAX];
		uint64_t since;
	} at[];
};

/* ---- of this node ---- */

const struct weir_services *
services_own(const struct broker *b)
{
	static const struct weir_services none;

	return b->draining ? &none : &b->services_public;
}

void
services_tell(struct broker *b)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SERVICES};

	m.services.node = b->node;
	m.services.incarnation = b->config.incarnation;
	m.services.names = *services_own(b);
	m.length = weir_ctl_size(&m);
	b->services_told = broker_now(b);
	b->services_due = UINT64_MAX;
	broker_control_send(b, &m);
}

void
services_changed(struct broker *b)
{
	uint64_t now = broker_now(b), soonest = b->services_told + INTERVAL_NS;

	if (b->services_due == UINT64_MAX)
		b->services_due = now > soonest ? now : soonest;
}

uint64_t
services_timers(struct broker *b, uint64_t now)
{
	if (b->services_due <= now)
		services_tell(b);
	return b->services_due;
}

/* ---- of other nodes ---- */

static int
compare(const void *name, const void *at)
{
	return strcmp(name, at); /* an entry begins with its name */
}

/* NULL: it does not offer the service. */
static const uint64_t *
offered_since(const struct broker_offers *o, const char *name)
{
	const char *at = o ? bsearch(name, o->at, o->count, sizeof(o->at[0]), compare) : NULL;

	return at ? (const uint64_t *)(at + WEIR_SERVICE_MAX) : NULL;
}

/* Whether its services count: connections to it seem possible. */
static bool
offers(const struct broker_node *n)
{
	return n->offers && n->offers->incarnation == n->is.incarnation && !n->is.self &&
	       n->told_up && !n->draining && n->is.state < WEIR_NODE_DOWN;
}

void
services_input(struct broker *b, const struct weir_ctl_msg *m)
{
	const struct weir_services *s = &m->services.names;
	struct broker_node *n = node_find(b, m->services.node);
	struct broker_offers *o = NULL, *old;

	if (!n || n->is.self) {
		b->counters.control_bad++;
		return;
	}
	old = n->offers;
	if (s->count) {
		o = broker_alloc(sizeof(*o) + s->count * sizeof(o->at[0]));
		if (!o) {
			control_restart(b);
			return;
		}
		o->incarnation = m->services.incarnation;
		o->count = s->count;
	}
	for (uint32_t i = 0; i < s->count; i++) {
		const uint64_t *since = offered_since(old, s->name[i]);
		bool same = since && old->incarnation == o->incarnation;

		memcpy(o->at[i].name, s->name[i], WEIR_SERVICE_MAX);
		o->at[i].since = same ? *since : broker_now(b);
	}
	n->offers = o;
	free(old);
}

/* ---- finding ---- */

/* Adds a node that offers the service: index 0 is this one, i + 1 is node_list[i]. */
static bool
add_if_offered(struct broker *b, uint32_t index, const char *name, struct weir_session_msg *r)
{
	const struct broker_node *n = index ? b->node_list[index - 1] : NULL;
	struct weir_address port;
	struct weir_found *f;

	if (n ? !offers(n) || !offered_since(n->offers, name)
	      : !weir_services_has(services_own(b), name))
		return false;
	weir_assert(r->found.count < WEIR_FOUND_MAX);
	f = &r->found.node[r->found.count++];
	node_port(b, n, &port);
	f->node = n ? n->is.id : b->node;
	f->flags = n ? 0 : WEIR_FOUND_LOCAL;
	f->kind = port.kind;
	f->lid = port.id;
	memcpy(f->ip, port.ip, sizeof(f->ip));
	return true;
}

void
find_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker *b = s->b;
	struct weir_session_msg r = session_msg(WEIR_MSG_FOUND);
	const char *name = m->find.service;
	uint32_t begin = b->service_turn;
	bool moved;

	if (!weir_service_ok(name) || m->find.flags & ~WEIR_FIND_BEST) {
		session_refuse(s, EINVAL,
			       "not a service name, or an unknown flag; use letters, digits, '_', "
			       "'-' and '.'");
		return;
	}
	if (!(m->find.flags & WEIR_FIND_BEST)) {
		for (uint32_t i = m->find.from; i <= b->node_count && !r.found.next; i++)
			if (r.found.count == WEIR_FOUND_MAX)
				r.found.next = i;
			else
				add_if_offered(b, i, name, &r);
		session_reply(s, &r, NULL, 0);
		return;
	}
	/* this node, then the others in turns: they begin behind the first one of last time */
	moved = add_if_offered(b, 0, name, &r);
	for (uint32_t i = 0; i < b->node_count && r.found.count < WEIR_FOUND_MAX; i++) {
		uint32_t at = (begin + i) % b->node_count;

		if (!add_if_offered(b, at + 1, name, &r) || moved)
			continue;
		b->service_turn = at + 1;
		moved = true;
	}
	session_reply(s, &r, NULL, 0);
}

/* ---- weirctl ---- */

bool
service_row(const struct broker *b, uint32_t index, struct weir_row_service *r)
{
	uint32_t place = index / WEIR_SERVICES_MAX, i = index % WEIR_SERVICES_MAX;
	const struct broker_node *n = NULL;
	const struct service_listener *l;
	struct weir_address port;

	if (place > b->node_count)
		return false;
	if (place)
		n = b->node_list[place - 1];
	if (n ? !offers(n) || i >= n->offers->count : i >= services_own(b)->count)
		return true;
	memcpy(r->name, n ? n->offers->at[i].name : services_own(b)->name[i], sizeof(r->name));
	if (n) {
		r->node = n->is.id;
		r->age_ms = (broker_now(b) - n->offers->at[i].since) / 1000000;
	} else {
		r->node = b->node;
		r->self = 1;
		l = service_find(&b->services, r->name);
		if (l) {
			r->session = l->session->id;
			memcpy(r->program, l->session->name, sizeof(r->program));
			r->age_ms = (broker_now(b) - l->since) / 1000000;
		}
	}
	node_port(b, n, &port);
	if (port.kind == WEIR_ADDRESS_LID)
		snprintf(r->port, sizeof(r->port), "lid:%u", port.id);
	else if (port.kind != WEIR_ADDRESS_NONE)
		inet_ntop(port.kind == WEIR_ADDRESS_IPV4 ? AF_INET : AF_INET6, port.ip, r->port,
			  sizeof(r->port));
	return true;
}
