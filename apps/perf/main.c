/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-perf: what messages between programs cost. See docs/man/weir-perf.1. */
#include "driver.h"
#include "ports.h"
#include "server.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_RESOURCE 3
#define CONNECT_MS 5000
#define NODE_MS 5000

/* The connection under test, and with --loop its other end. */
struct ends {
	struct weir_listener *listener;
	struct weir_conn *near, *far;
	struct responder here;
};

static void
on_signal(int signal)
{
	(void)signal;
	atomic_store(&perf_stop, true);
}

static void
catch_signals(void)
{
	struct sigaction a = {.sa_handler = on_signal};

	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int
exit_code(int rc)
{
	switch (rc) {
	case 0:
		return 0;
	case -EINVAL:
		return EXIT_USAGE;
	case -EACCES:
	case -EPERM:
	case -ENOMEM:
	case -EMFILE:
		return EXIT_RESOURCE;
	default:
		return EXIT_FAILED;
	}
}

/* Says why, and gives the exit code. */
static int
failed(int rc, const char *doing)
{
	if (rc == -EINTR || atomic_load(&perf_stop))
		fprintf(stderr, "weir-perf: interrupted at %s; run it again\n", doing);
	else if (rc == -ETIMEDOUT)
		fprintf(stderr,
			"weir-perf: no progress in %s; look at both nodes with weirctl show\n",
			doing);
	else if (rc == -EPROTO || rc == -EBADMSG)
		fprintf(stderr,
			"weir-perf: %s: the peer doesn't speak this version of weir-perf; "
			"start the same one there\n",
			doing);
	else
		fprintf(stderr, "weir-perf: %s\n", weir_reason());
	return exit_code(rc);
}

/* The address with or without a service. */
static int
parse_address(const char *text, struct weir_address *address)
{
	char whole[WEIR_ADDRESS_TEXT_MAX];
	int n;

	if (weir_address_parse(text, address) == 0 && address->service[0])
		return 0;
	n = snprintf(whole, sizeof(whole), "%s:%s", text, PERF_SERVICE);
	if (n < 0 || (size_t)n >= sizeof(whole))
		return -EINVAL;
	return weir_address_parse(whole, address);
}

static int
await_node(struct weir *weir)
{
	int node;

	for (int waited = 0; (node = weir_node(weir)) == -EAGAIN && waited < NODE_MS; waited += 10)
		usleep(10000);
	return node;
}

/* --loop alone: listens on a name of its own and connects to it through the port. */
static int
connect_itself(struct weir *weir, struct ends *ends)
{
	struct weir_connect_options options = {.flags = WEIR_LOOP};
	struct weir_address self = {.kind = WEIR_ADDRESS_NODE};
	int rc, node = await_node(weir);

	if (node < 0)
		return node;
	self.id = (uint32_t)node;
	snprintf(self.service, sizeof(self.service), "perf-loop-%d", (int)getpid());
	rc = weir_listen(weir, self.service, 1, &ends->listener);
	if (!rc)
		rc = weir_connect_with(weir, &self, &options, CONNECT_MS, &ends->near);
	if (!rc)
		rc = weir_accept(ends->listener, CONNECT_MS, &ends->far);
	return rc;
}

static int
connect_ends(struct weir *weir, const struct perf_options *o, const struct weir_address *address,
	     struct driver *d, struct ends *ends)
{
	struct weir_connect_options options = {.flags = o->loop ? WEIR_LOOP : 0};
	int rc;

	if (address)
		rc = weir_connect_with(weir, address, &options, CONNECT_MS, &ends->near);
	else
		rc = connect_itself(weir, ends);
	if (rc)
		return rc;
	perf_flow_init(&d->flow, weir, ends->near);
	if (ends->far) {
		responder_init(&ends->here, o->instance, weir, ends->far);
		d->here = &ends->here;
	}
	return 0;
}

static void
close_ends(struct driver *d, struct ends *ends)
{
	perf_flow_fini(&d->flow);
	responder_fini(&ends->here);
	if (ends->near)
		weir_close(ends->near);
	if (ends->far)
		weir_close(ends->far);
	weir_listener_close(ends->listener);
}

static const char *
path_of(const struct weir_conn *conn, const struct perf_options *o, int *peer)
{
	uint16_t node;
	int local;

	if (weir_conn_peer(conn, &node, &local))
		return "unknown";
	*peer = node;
	if (o->loop)
		return "loop";
	return local ? "local" : "remote";
}

/* The payload must have gone through the ports, or it was not this path that was measured. */
static void
check_ports(const struct perf_info *info, struct perf_result *r)
{
	if (strcmp(info->path, "local") == 0 || !r->ports_known || r->ports.tx_bytes >= r->payload)
		return;
	fprintf(
	    stderr,
	    "weir-perf: %llu bytes of payload, but the ports sent %llu; is another path in use?\n",
	    (unsigned long long)r->payload, (unsigned long long)r->ports.tx_bytes);
	r->errors++;
}

/* Every test with each of its sizes. The exit code. */
static int
run_all(struct driver *d, const struct perf_info *info, const cpu_set_t *allowed)
{
	static const uint32_t usual[PERF_TESTS] = {64, 65536, 64, 0};
	static struct perf_result r;
	const struct perf_options *o = d->options;
	struct calibration c = {0};
	const char *what = "";
	int code = 0;

	if (!o->no_calibrate)
		c = calibrate(allowed, o->cpu);
	for (uint32_t t = 0; t < o->test_count; t++) {
		uint32_t test = o->tests[t],
			 n = test == PERF_MIX || !o->size_count ? 1 : o->size_count;

		for (uint32_t s = 0; s < n; s++) {
			uint32_t size = n == 1 && (test == PERF_MIX || !o->size_count)
					    ? usual[test]
					    : o->sizes[s];
			int rc = driver_run(d, test, size, &r, &what);

			if (rc)
				return failed(rc, what);
			r.before = c;
			if (!o->no_calibrate)
				c = calibrate(allowed, o->cpu);
			r.after = c;
			check_ports(info, &r);
			perf_report(info, &r, stdout);
			if (r.errors)
				code = EXIT_FAILED;
		}
	}
	return code;
}

static int
drive(struct weir *weir, const struct perf_options *o, const struct weir_address *address,
      const cpu_set_t *allowed)
{
	static struct ends ends;
	static struct driver d;
	struct perf_info info = {.options = o, .path = "remote", .node = -1, .peer = -1};
	int rc;

	d = (struct driver){.options = o, .weir = weir, .progress = isatty(STDERR_FILENO)};
	perf_idle_init(&d.idle, weir, o->sleep);
	rc = connect_ends(weir, o, address, &d, &ends);
	if (o->loop && (rc == -EHOSTDOWN || rc == -ETIMEDOUT)) {
		fputs("weir-perf: the port doesn't hand back what is sent to its own address; for "
		      "--loop use one that does, such as net_ring\n",
		      stderr);
		rc = EXIT_FAILED;
	} else if (rc) {
		rc = failed(rc, "connecting");
	} else {
		info.node = weir_node(weir);
		info.path = path_of(ends.near, o, &info.peer);
		perf_report_begin(&info, stdout);
		rc = run_all(&d, &info, allowed);
		perf_report_end(&info, stdout);
	}
	close_ends(&d, &ends);
	return rc;
}

static int
pin(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) == 0)
		return 0;
	fprintf(stderr, "weir-perf: can't run on CPU %d: %s; choose one of this machine\n", cpu,
		strerror(errno));
	return EXIT_RESOURCE;
}

/* With the options understood: everything that needs a data plane. */
static int
run(const struct perf_options *o, const struct weir_address *address, const cpu_set_t *allowed)
{
	struct weir_options options = {.instance = o->instance, .name = "weir-perf"};
	struct weir *weir;
	int rc = weir_attach(&options, &weir);

	if (rc)
		return failed(rc, "attaching");
	if (o->test_count)
		rc = drive(weir, o, address, allowed);
	else
		rc = exit_code(perf_serve(weir, o));
	weir_detach(weir);
	return rc;
}

int
main(int argc, char **argv)
{
	struct perf_options o;
	struct weir_address address;
	struct calibration c;
	cpu_set_t allowed;
	char reason[160];

	switch (perf_options_parse(argc, argv, &o, reason, sizeof(reason))) {
	case OPTIONS_HELP:
		perf_options_usage(stdout);
		return 0;
	case OPTIONS_VERSION:
		puts("weir-perf " WEIR_VERSION);
		return 0;
	case OPTIONS_WRONG:
		fprintf(stderr, "weir-perf: %s\n", reason);
		return EXIT_USAGE;
	case OPTIONS_RUN:
		break;
	}
	if (o.address && parse_address(o.address, &address)) {
		fprintf(stderr,
			"weir-perf: '%s' is no address; write node:ID, an IPv4 or [IPv6] address, "
			"with or "
			"without :SERVICE\n",
			o.address);
		return EXIT_USAGE;
	}
	catch_signals();
	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (o.calibrate && !o.test_count) {
		c = calibrate(&allowed, o.cpu);
		perf_report_calibration(&o, &c, stdout);
		return 0;
	}
	if (o.cpu >= 0 && pin(o.cpu))
		return EXIT_RESOURCE;
	return run(&o, o.address ? &address : NULL, &allowed);
}
