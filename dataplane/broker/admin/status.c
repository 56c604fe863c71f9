/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl show status: how the node is, line by line. */
#include "control_socket.h"
#include "link.h"
#include "node.h"
#include "state.h"
#include "status.h"

#include "base/monotonic.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NAMED_MAX 4u /* nodes of which the status says why they are not reached */

/* A list under way: the row that is wanted, and how many have passed. */
struct status {
	const struct broker *b;
	struct weir_row_fact *r;
	uint32_t wanted, at;
};

static void line(struct status *s, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void
line(struct status *s, const char *name, const char *format, ...)
{
	va_list args;

	if (s->at++ != s->wanted)
		return;
	snprintf(s->r->name, sizeof(s->r->name), "%s", name);
	snprintf(s->r->from, sizeof(s->r->from), "weir-dataplane");
	va_start(args, format);
	vsnprintf(s->r->value, sizeof(s->r->value), format, args);
	va_end(args);
}

static void
ports(struct status *s)
{
	const struct broker *b = s->b;
	uint32_t count = 0, up = 0;

	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct weir_row_port row = {.name = ""};
		bool seen = !broker_engine(b, i)->dev;

		for (uint32_t k = 0; k < i && !seen; k++)
			seen = broker_engine(b, k)->dev == broker_engine(b, i)->dev;
		if (seen)
			continue;
		count++;
		up += b->attr[i].link_up;
		if (b->config.port_row)
			b->config.port_row(b->config.user, i, &row);
		if (row.impaired[0])
			line(s, "impaired", "port %s: %s; weirctl set port.%s.KEY 0 ends it",
			     b->attr[i].name, row.impaired, b->attr[i].name);
	}
	line(s, "ports", "%u of %u have a link", up, count);
}

static void
nodes(struct status *s)
{
	uint32_t count[WEIR_NODE_GONE + 1] = {0}, named = 0;
	char reason[WEIR_REASON_MAX];

	for (uint32_t i = 0; i < s->b->node_count; i++) {
		const struct broker_node *n = s->b->node_list[i];

		if (n->is.self || n->is.state > WEIR_NODE_GONE)
			continue;
		count[n->is.state]++;
		if (n->is.state < WEIR_NODE_DOWN && named < NAMED_MAX &&
		    !node_reached(s->b, n, reason, sizeof(reason))) {
			line(s, "unreachable", "%s", reason);
			named++;
		}
	}
	line(s, "other nodes", "%u up, %u suspect, %u joining, %u down", count[WEIR_NODE_UP],
	     count[WEIR_NODE_SUSPECT], count[WEIR_NODE_JOINING], count[WEIR_NODE_DOWN]);
}

static void
links(struct status *s)
{
	uint32_t open = 0, count = 0;

	for (const struct broker_link *l = s->b->links; l; l = l->next) {
		count += l->state != LINK_DOWN;
		open += l->open && l->state == LINK_UP;
	}
	line(s, "links", "%u of %u are up", open, count);
}

bool
fact_row(const struct broker *b, uint32_t index, bool version, struct weir_row_fact *r)
{
	for (uint32_t i = 0; i < b->fact_count; i++) {
		if ((strcmp(b->fact[i].name, "weir-control") == 0) != version || index-- != 0)
			continue;
		*r = b->fact[i];
		return true;
	}
	return false;
}

bool
status_row(const struct broker *b, uint32_t index, struct weir_row_fact *r)
{
	struct status s = {.b = b, .r = r, .wanted = index};
	uint64_t up = (broker_now(b) - b->started) / BROKER_SECOND_NS;
	time_t started = time(NULL) - (time_t)up;
	char text[32] = "";
	struct tm tm;

	if (gmtime_r(&started, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	line(&s, "state", "%s",
	     b->stopping   ? "stopping"
	     : b->draining ? "draining: neither programs nor connections are taken"
			   : "serving");
	line(&s, "instance", "%s", b->config.instance ? b->config.instance : "");
	line(&s, "pid", "%d", (int)getpid());
	line(&s, "started", "%s", text);
	line(&s, "uptime", "%" PRIu64 " d %02u:%02u:%02u", up / 86400, (unsigned)(up / 3600 % 24),
	     (unsigned)(up / 60 % 60), (unsigned)(up % 60));
	if (b->node == BROKER_NODE_UNKNOWN)
		line(&s, "node", "not known: weir-control gives it");
	else
		line(&s, "node", "%u", b->node);
	line(&s, "incarnation", "%" PRIu64, b->config.incarnation);
	line(&s, "control", "%s",
	     control_connected(b) ? "connected" : "not connected; start weir-control");
	nodes(&s);
	links(&s);
	line(&s, "engines", "%u", b->config.engines);
	ports(&s);
	line(&s, "programs", "%u of %u", b->session_count, b->session_limit);
	line(&s, "connections", "%u of %u", b->conn_count, b->conn_limit);
	return s.at > index || fact_row(b, index - s.at, false, r);
}

void
fact_input(struct broker *b, const struct weir_row_fact *fact)
{
	uint32_t i = 0;

	while (i < b->fact_count && strcmp(b->fact[i].name, fact->name))
		i++;
	if (!fact->value[0]) {
		if (i < b->fact_count)
			b->fact[i] = b->fact[--b->fact_count];
		return;
	}
	if (i == BROKER_FACTS)
		return; /* more lines than a control of ours has */
	b->fact[i] = *fact;
	b->fact_count += i == b->fact_count;
}

void
facts_forget(struct broker *b)
{
	b->fact_count = 0;
}
