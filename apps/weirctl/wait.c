/* SPDX-License-Identifier: BSD-3-Clause */
#include "weirctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_NS 50000000

struct condition {
	uint32_t kind;	 /* of the records it looks at */
	uint32_t number; /* node id or number of connections */
	bool own;	 /* own node, whatever its id */
};

static bool
parse_condition(const char *what, struct condition *c)
{
	bool node = !strncmp(what, "node:", 5);
	uint64_t n = 0;

	*c = (struct condition){.kind = WEIR_ROWS_NODES, .own = !strcmp(what, "up")};
	if (c->own)
		return true;
	if (!node && strncmp(what, "connections:", 12))
		return false;
	if (!node)
		c->kind = WEIR_ROWS_CONNECTIONS;
	if (option_number(what + (node ? 5 : 12), false, 0, node ? UINT16_MAX - 1 : UINT32_MAX - 1,
			  &n))
		return false;
	c->number = (uint32_t)n;
	return true;
}

// 0 and *holds, or an exit code and q->reason.
static int
check(struct query *q, const struct condition *c, bool *holds)
{
	struct rows rows;
	int status = query_rows(q, c->kind, &rows);
	uint32_t n = 0; // nodes that are up, or ends of connections that carry data

	if (status)
		return status;
	for (uint32_t i = 0; i < rows.count; i++) {
		const struct weir_ctl_node *node = rows_at(&rows, i);
		const struct weir_row_connection *conn = rows_at(&rows, i);

		if (c->kind == WEIR_ROWS_NODES)
			n += node->state == WEIR_NODE_UP &&
			     (c->own ? node->self : node->id == c->number);
		else
			n +=
			    !strcmp(conn->state_name, "open") || !strcmp(conn->state_name, "local");
	}
	if (c->kind == WEIR_ROWS_NODES) {
		*holds = n > 0;
		snprintf(q->reason, sizeof(q->reason),
			 c->own
			     ? "the data plane answers, but no weir-control has assigned its node"
			     : "node %u is not up; see weirctl show nodes",
			 c->number);
	} else {
		*holds = c->number ? n >= c->number : rows.count == 0;
		snprintf(q->reason, sizeof(q->reason), "%u of %u connections are open", n,
			 c->number);
	}
	free(rows.records);
	return 0;
}

int
wait_for(const struct weirctl_options *o, int argc, char **argv)
{
	static const struct timespec pause = {.tv_nsec = POLL_NS};
	static struct query q = {.c.fd = -1};
	const char *instance = o->instance, *what = argv[0];
	double seconds = o->timeout, end = weirctl_now() + seconds;
	struct condition c;
	char seen[sizeof(q.reason)] = ""; // by the last look that was done
	bool holds = false;

	if (!parse_condition(what, &c))
		return weirctl_fail(
		    WEIRCTL_USAGE, "cannot wait for '%s'; give up, node:ID or connections:K", what);
	for (;;) {
		double left = end - weirctl_now();
		// the first look is a whole one: it may hold already, or why not is to be told
		bool brief = *seen && left < WEIRCTL_ANSWER_SECONDS;
		int status = 0;

		left = brief ? left : WEIRCTL_ANSWER_SECONDS;
		if (q.c.fd < 0)
			status = query_open(&q, instance, left);
		else
			weir_ctl_limit(&q.c, left);
		if (!status)
			status = check(&q, &c, &holds);
		if (holds) {
			weir_ctl_close(&q.c);
			return WEIRCTL_OK;
		}
		// Not there yet is what we wait for; anything else won't get better.
		if (status == WEIRCTL_USAGE || status == WEIRCTL_RESOURCE) {
			weir_ctl_close(&q.c);
			return weirctl_fail(status, "%s", q.reason);
		}
		if (status)
			weir_ctl_close(&q.c);
		// an answer that doesn't come in what is left says nothing of the data plane
		if (!status || !brief || !q.late)
			snprintf(seen, sizeof(seen), "%s", q.reason);
		if (weirctl_now() >= end)
			break;
		nanosleep(&pause, NULL);
	}
	weir_ctl_close(&q.c);
	return weirctl_fail(WEIRCTL_TIMEOUT, "'%s' does not hold after %g s: %s", what, seconds,
			    *seen ? seen : q.reason);
}
