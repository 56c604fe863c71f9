/* SPDX-License-Identifier: BSD-3-Clause */
#include "server.h"

#include "driver.h"

#include <errno.h>
#include <string.h>

#define ACCEPT_MS 100 /* also how late a signal is seen */

/* Serves one connection to its end. 0, or -ENODEV when the data plane is gone. */
static int
serve(struct weir *weir, struct weir_conn *conn, const struct perf_options *o)
{
	static struct responder r;
	struct idle rest, run;
	int rc = 0;

	responder_init(&r, o->instance, weir, conn);
	perf_idle_init(&rest, weir, true);
	perf_idle_init(&run, weir, o->sleep);
	while (!atomic_load_explicit(&perf_stop, memory_order_relaxed)) {
		rc = responder_step(&r);
		if (rc < 0)
			break;
		if (rc) {
			run.empty = 0;
			continue;
		}
		if (r.flow.blocked)
			perf_idle_events(&run, 0);
		run.sleeping = o->sleep || (r.request.flags & PERF_SLEEP);
		/* without a client's wish the CPU is left alone */
		perf_idle(r.state == RESPONDER_RESTING ? &rest : &run);
	}
	if (rc < 0 && rc != -ESHUTDOWN && rc != -ECONNRESET && rc != -ENODEV)
		fprintf(stderr, "weir-perf: a client's connection ended: %s; serving the next\n",
			strerror(-rc));
	responder_fini(&r);
	return rc == -ENODEV ? rc : 0;
}

int
perf_serve(struct weir *weir, const struct perf_options *o)
{
	struct weir_listener *listener;
	struct weir_conn *conn;
	int rc = weir_listen(weir, o->service, 0, &listener), node = weir_node(weir);

	if (rc) {
		fprintf(stderr, "weir-perf: %s\n", weir_reason());
		return rc;
	}
	printf("weir-perf: serving '%s' on instance %s", o->service,
	       o->instance ? o->instance : "default");
	printf(node >= 0 ? ", node %d\n" : "\n", node);
	fflush(stdout);
	while (!atomic_load(&perf_stop)) {
		rc = weir_accept(listener, ACCEPT_MS, &conn);
		if (rc == 0) {
			rc = serve(weir, conn, o);
			weir_close(conn);
		}
		if (rc == -EAGAIN || rc == -ETIMEDOUT || rc == -EINTR)
			rc = 0;
		if (rc) {
			fprintf(stderr, "weir-perf: %s\n", weir_reason());
			break;
		}
	}
	weir_listener_close(listener);
	return rc;
}
