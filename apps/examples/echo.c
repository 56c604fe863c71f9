/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends every message of its clients back, one client after another: echo [SERVICE]. */
#include "stop.h"

#include <weir/stream.h>

#include <stdio.h>

int
main(int argc, char **argv)
{
	struct weir_listener *listener;
	struct weir_conn *c;
	struct weir *w;

	if (weir_attach(NULL, &w) || weir_listen(w, argc > 1 ? argv[1] : "echo", 0, &listener)) {
		fprintf(stderr, "echo: %s\n", weir_reason());
		return 1;
	}
	stop_on_signals(w);
	while (!stop && weir_accept(listener, -1, &c) == 0) {
		struct weir_loan message;
		int rc = 0;

		/* until the client has closed */
		while (!rc && !stop && weir_recv_loan(c, &message, -1) == 0) {
			rc = weir_send(c, message.data, message.length, -1);
			weir_release(w, &message);
		}
		weir_close(c);
	}
	if (!stop)
		fprintf(stderr, "echo: %s\n", weir_reason());
	weir_detach(w);
	return stop ? 0 : 1;
}
