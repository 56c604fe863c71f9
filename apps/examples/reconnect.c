/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that survives the end of its peer, of either data plane and of the network: reconnect
 * ADDRESS. It sends a number each 100 ms and prints the answers; the other end: echo.
 */
#include "stop.h"

#include <weir/stream.h>

#include <stdio.h>
#include <string.h>

struct client {
	struct weir_conn *c; /* NULL while there is no connection */
	unsigned number;
};

static void
handle(const struct weir_event *e, struct client *client)
{
	char answer[32];
	size_t length;

	switch (e->type) {
	case WEIR_EVENT_OPENED:
		client->c = e->conn; /* another handle each time */
		printf("connected\n");
		break;
	case WEIR_EVENT_READABLE:
		while (client->c && weir_recv(client->c, answer, sizeof(answer), &length, 0) == 0)
			printf("answer %.*s\n", (int)length, answer);
		break;
	case WEIR_EVENT_LOST: /* the library connects again */
	case WEIR_EVENT_CLOSED:
		printf("%s: %s\n", e->type == WEIR_EVENT_LOST ? "lost" : "closed",
		       strerror(-e->status));
		weir_close(e->conn); /* NULL if it could not be made again in time */
		client->c = NULL;
		break;
	default:
		break;
	}
}

int
main(int argc, char **argv)
{
	struct weir_options options = WEIR_OPTIONS_INIT;
	struct weir_connect_options again = WEIR_CONNECT_OPTIONS_INIT;
	struct client client = {0};
	struct weir_address to;
	struct weir_event e;
	struct weir_conn *c;
	struct weir *w;
	char text[32];
	int n;

	if (argc != 2 || weir_address_parse(argv[1], &to)) {
		fprintf(stderr, "usage: reconnect ADDRESS\n");
		return 2;
	}
	/* calls that wait attach again when the own data plane has been restarted */
	options.flags = WEIR_REATTACH;
	again.reconnect.on = WEIR_AGAIN_RESTART | WEIR_AGAIN_LOSS;
	again.reconnect.first_ms = 10;
	again.reconnect.max_ms = 500;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (weir_attach(&options, &w) || weir_connect_with(w, &to, &again, 1000, &c)) {
		fprintf(stderr, "reconnect: %s\n", weir_reason());
		return 1;
	}
	client.c = c;
	printf("connected\n");
	stop_on_signals(w);
	while (!stop && (n = weir_wait(w, &e, 1, 100)) >= 0) {
		if (n) {
			handle(&e, &client);
			continue;
		}
		/* nothing is sent twice: a number that a lost connection had not completed may be
		 * missing */
		n = snprintf(text, sizeof(text), "%u", ++client.number);
		if (client.c)
			weir_send(client.c, text, (size_t)n, 0);
	}
	if (!stop)
		fprintf(stderr, "reconnect: %s\n", weir_reason());
	weir_detach(w);
	return stop ? 0 : 1;
}
