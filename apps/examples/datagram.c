/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams, for data that is worth nothing late: they may be lost or overtaken, and never block
 * the sender. Each message here is a number; the receiver counts the missing ones.
 *
 *   datagram                 receives on the service "samples", one sender after another
 *   datagram ADDRESS COUNT   sends COUNT numbers, for example to node:2:samples
 */
#include "stop.h"

#include <weir/stream.h>

#include <stdio.h>
#include <stdlib.h>

static int
serve(struct weir *w)
{
	struct weir_listener *listener;
	struct weir_conn *c;
	int rc = weir_listen(w, "samples", 0, &listener);

	/* the connecting end chose datagrams: the accepted connection has them too */
	stop_on_signals(w);
	while (!stop && !rc && !(rc = weir_accept(listener, -1, &c))) {
		uint64_t number, highest = 0, received = 0;
		size_t length;

		/* until the sender has closed */
		while (weir_recv(c, &number, sizeof(number), &length, -1) == 0) {
			received++;
			highest = number > highest ? number : highest;
		}
		printf("received %llu of %llu\n", (unsigned long long)received,
		       (unsigned long long)highest);
		fflush(stdout);
		weir_close(c);
	}
	return stop ? 0 : rc;
}

static int
send_numbers(struct weir *w, const struct weir_address *to, uint64_t count)
{
	struct weir_connect_options options = WEIR_CONNECT_OPTIONS_INIT;
	struct weir_conn *c;
	int rc;

	options.flags = WEIR_UD;
	rc = weir_connect_with(w, to, &options, 1000, &c);
	if (rc)
		return rc;
	printf("a datagram has at most %d bytes\n", weir_conn_mtu(c));
	for (uint64_t i = 1; i <= count && !rc; i++)
		rc = weir_send(c, &i, sizeof(i), 1000);
	if (!rc)
		rc = weir_flush(c, 1000); /* they have left; nobody knows whether they arrived */
	weir_close(c);
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir_address to;
	struct weir *w = NULL;
	int rc;

	if (argc != 1 && (argc != 3 || weir_address_parse(argv[1], &to))) {
		fprintf(stderr, "usage: datagram [ADDRESS COUNT]\n");
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (!rc)
		rc = argc == 1 ? serve(w) : send_numbers(w, &to, strtoull(argv[2], NULL, 0));
	if (rc)
		fprintf(stderr, "datagram: %s\n", weir_reason());
	weir_detach(w);
	return rc ? 1 : 0;
}
