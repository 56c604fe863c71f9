/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A service that the whole cluster finds by its name, on whichever node it runs.
 *
 *   service offer NAME   offers it: tells each caller the id of its node
 *   service find NAME    lists the nodes that offer it
 *   service call NAME    calls one of them
 */
#include "stop.h"

#include <weir/stream.h>

#include <stdio.h>
#include <string.h>

#define NODES_MAX 64

static int
offer(struct weir *w, const char *name)
{
	struct weir_listen_options options = WEIR_LISTEN_OPTIONS_INIT;
	struct weir_listener *listener;
	struct weir_conn *c;
	char text[32];
	int rc;

	options.flags = WEIR_LISTEN_PUBLIC;
	rc = weir_listen_with(w, name, &options, &listener);
	stop_on_signals(w);
	while (!stop && !rc && !(rc = weir_accept(listener, -1, &c))) {
		snprintf(text, sizeof(text), "node %d", weir_node(w));
		weir_send(c, text, strlen(text), 1000);
		weir_close(c); /* the text still arrives */
	}
	return stop ? 0 : rc;
}

static int
find(struct weir *w, const char *name)
{
	struct weir_service_entry entries[NODES_MAX];
	char port[WEIR_ADDRESS_TEXT_MAX];
	int n = weir_service_find(w, name, entries, NODES_MAX);

	for (int i = 0; i < n && i < NODES_MAX; i++) {
		if (weir_address_format(&entries[i].port, port, sizeof(port)))
			snprintf(port, sizeof(port), "-");
		printf("node %u, port %s%s\n", entries[i].node, port,
		       entries[i].flags & WEIR_SERVICE_LOCAL ? ", this node" : "");
	}
	return n < 0 ? n : 0;
}

static int
call(struct weir *w, const char *name)
{
	struct weir_address to = {.kind = WEIR_ADDRESS_SERVICE};
	struct weir_conn *c;
	char text[32];
	size_t length;
	int rc;

	snprintf(to.service, sizeof(to.service), "%s", name); /* "service:NAME" as text */
	rc = weir_connect(w, &to, 1000, &c);
	if (rc)
		return rc;
	rc = weir_recv(c, text, sizeof(text), &length, 1000);
	if (!rc)
		printf("%.*s answers\n", (int)length, text);
	weir_close(c);
	return rc;
}

int
main(int argc, char **argv)
{
	int (*command)(struct weir * w, const char *name) = NULL;
	struct weir *w = NULL;
	int rc;

	if (argc == 3 && !strcmp(argv[1], "offer"))
		command = offer;
	else if (argc == 3 && !strcmp(argv[1], "find"))
		command = find;
	else if (argc == 3 && !strcmp(argv[1], "call"))
		command = call;
	if (!command) {
		fprintf(stderr, "usage: service offer|find|call NAME\n");
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (!rc)
		rc = command(w, argv[2]);
	if (rc)
		fprintf(stderr, "service: %s\n", weir_reason());
	weir_detach(w);
	return rc ? 1 : 0;
}
