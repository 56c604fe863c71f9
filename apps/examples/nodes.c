/* SPDX-License-Identifier: BSD-3-Clause */
/* The nodes of the cluster, and then each change, until the data plane ends: nodes. */
#include "stop.h"

#include <weir/node.h>
#include <weir/stream.h>

#include <stdio.h>

static const char *
state_name(uint32_t state)
{
	switch (state) {
	case WEIR_NODE_JOINING:
		return "joining";
	case WEIR_NODE_UP:
		return "up";
	case WEIR_NODE_SUSPECT:
		return "suspect";
	case WEIR_NODE_DOWN:
		return "down";
	default:
		return "gone";
	}
}

int
main(void)
{
	struct weir *w = NULL;
	struct weir_event e;
	int rc = weir_attach(NULL, &w);

	if (!rc) {
		printf("this is node %d\n", weir_node(w));
		/* begins with an "added" for each node that is known already */
		rc = weir_nodes_watch(w, 1);
		stop_on_signals(w);
	}
	while (!rc && !stop) {
		int n = weir_wait(w, &e, 1, -1);

		if (n < 0)
			rc = n;
		if (n <= 0 || e.type != WEIR_EVENT_NODE)
			continue;
		/* an event can report several changes at once, if this thread was slow */
		printf("node %u:%s%s%s%s%s%s%s; now %s\n", (unsigned)e.cookie,
		       e.change & WEIR_CHANGE_ADDED ? " added" : "",
		       e.change & WEIR_CHANGE_UP ? " up" : "",
		       e.change & WEIR_CHANGE_SUSPECT ? " suspect" : "",
		       e.change & WEIR_CHANGE_DOWN ? " down" : "",
		       e.change & WEIR_CHANGE_REMOVED ? " removed" : "",
		       e.change & WEIR_CHANGE_RESTART ? " restarted" : "",
		       e.change & WEIR_CHANGE_ADDRESS ? " address" : "", state_name(e.state));
		fflush(stdout);
	}
	if (stop)
		rc = 0;
	if (rc)
		fprintf(stderr, "nodes: %s\n", weir_reason());
	weir_detach(w);
	return rc ? 1 : 0;
}
