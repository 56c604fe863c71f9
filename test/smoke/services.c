/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Public services, for test/smoke/services.sh:
 *   services INSTANCE offer NAME...   until killed; answers every connection with its node
 *   services INSTANCE find NAME       prints a line per node: id, port, "here"; fails if no node
 *                                     offers it
 *   services INSTANCE ask NAME [N]    connects to service:NAME N times, prints the node that
 * answers
 */
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
offer(struct weir *w, int n, char **names)
{
	static const struct weir_listen_options options = {.size = sizeof(options),
							   .flags = WEIR_LISTEN_PUBLIC};
	struct weir_listener *l;
	struct weir_event ev[16];
	struct weir_conn *c;
	char answer[16];
	int rc = 0;

	for (int i = 0; i < n && !rc; i++)
		rc = weir_listen_with(w, names[i], &options, &l);
	if (rc)
		return failed("listen", rc);
	say("ready");
	while ((rc = weir_wait(w, ev, 16, -1)) >= 0) {
		for (int i = 0; i < rc; i++) {
			if (ev[i].type == WEIR_EVENT_CLOSED)
				weir_close(ev[i].conn);
			while (ev[i].type == WEIR_EVENT_ACCEPT &&
			       weir_accept(ev[i].listener, 0, &c) == 0) {
				snprintf(answer, sizeof(answer), "%d", weir_node(w));
				weir_send(c, answer, strlen(answer), PATIENCE_MS);
			}
		}
	}
	return failed("wait", rc);
}

static int
find(struct weir *w, const char *name)
{
	struct weir_service_entry list[8];
	char text[WEIR_ADDRESS_TEXT_MAX];
	int n = weir_service_find(w, name, list, 8);

	if (n < 0)
		return failed("find", n);
	for (int i = 0; i < n && i < 8; i++) {
		if (weir_address_format(&list[i].port, text, sizeof(text)))
			snprintf(text, sizeof(text), "-");
		printf("%u %s%s\n", list[i].node, text,
		       list[i].flags & WEIR_SERVICE_LOCAL ? " here" : "");
	}
	return !n;
}

static int
ask(struct weir *w, const char *name, int times)
{
	struct weir_address a = {.kind = WEIR_ADDRESS_SERVICE};
	struct weir_conn *c;
	char answer[16];
	size_t length;
	int rc;

	snprintf(a.service, sizeof(a.service), "%s", name);
	for (int i = 0; i < times; i++) {
		rc = weir_connect(w, &a, PATIENCE_MS, &c);
		if (rc)
			return failed("connect", rc);
		rc = weir_recv(c, answer, sizeof(answer) - 1, &length, PATIENCE_MS);
		weir_close(c);
		if (rc)
			return failed("recv", rc);
		printf("%.*s\n", (int)length, answer);
	}
	return 0;
}

int
main(int argc, char **argv)
{
	struct weir *w;
	int rc;

	if (argc < 4)
		return 2;
	if (attach_to(argv[1], NULL, 0, &w))
		return 1;
	if (!strcmp(argv[2], "offer"))
		rc = offer(w, argc - 3, argv + 3);
	else if (!strcmp(argv[2], "find"))
		rc = find(w, argv[3]);
	else
		rc = ask(w, argv[3], argc > 4 ? (int)strtol(argv[4], NULL, 10) : 1);
	weir_detach(w);
	return rc;
}
