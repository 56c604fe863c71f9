/* SPDX-License-Identifier: BSD-3-Clause */
#include "run.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define NODE_MS 5000	/* how long the node id may be unknown */
#define NODE_STEP_MS 10 /* between two looks at it */
#define TURN_US 200	/* between two looks whether it is this program's turn to attach */

int
run_exit_code(int rc)
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

void
run_reason(const struct run *r, int rc, const char *doing, char *to, size_t size)
{
	if (rc == -EINTR || rc == -ECANCELED || atomic_load(&perf_stop))
		snprintf(to, size, "interrupted at %s; run it again", doing);
	else if (rc == -ETIMEDOUT)
		snprintf(to, size, "no progress in %s; look at both nodes with weirctl show",
			 doing);
	else if (rc == -EPROTO || rc == -EBADMSG)
		snprintf(to, size,
			 "%s: the peer doesn't speak this version of weir-perf; start the same "
			 "one there",
			 doing);
	else if (rc == -E2BIG)
		snprintf(
		    to, size,
		    "the server has less memory to read; lower --region here or raise it there");
	else if (rc == -EXDEV)
		snprintf(to, size,
			 "the port doesn't hand back what is sent to its own address; for --loop "
			 "use one that does, such as net_ring");
	else if (r->driver.reason[0])
		snprintf(to, size, "%s", r->driver.reason);
	else if (r->driver.options->tcp)
		snprintf(to, size, "%s: %s; look whether the server listens there", doing,
			 strerror(-rc));
	else
		snprintf(to, size, "%s", weir_reason());
}

/* --alltoall: listens for the other nodes and connects to each of them. */
static int
connect_cluster(struct run *r, struct team *team, uint32_t number)
{
	char text[TEAM_MAX][64], service[WEIR_SERVICE_MAX];
	const char *others[TEAM_MAX];
	uint32_t n = 0;
	int rc;

	if (r->node < 0)
		return r->node;
	snprintf(service, sizeof(service), "perf-all-%d", (int)getppid());
	snprintf(r->driver.service, sizeof(r->driver.service), "%s", service);
	rc = server_listen(&r->own_server, service);
	if (rc)
		return rc;
	atomic_store(&team->nodes[number], r->node);
	rc = team_arrive(team, TEAM_ATTACHED, NULL);
	if (rc)
		return rc;
	/* each node begins with its successor, so that not all begin with the same node */
	for (uint32_t i = 1; i < team->count; i++, n++) {
		snprintf(text[n], sizeof(text[n]), "node:%d:%s",
			 (int)atomic_load(&team->nodes[(number + i) % team->count]), service);
		others[n] = text[n];
	}
	return driver_connect(&r->driver, others, n);
}

int
run_open(struct run *r, const struct perf_options *o, struct team *team, uint32_t number,
	 const char **what)
{
	struct weir_options options = {
	    .size = sizeof(options), .instance = o->instance, .name = "weir-perf"};
	char self[64], service[WEIR_SERVICE_MAX];
	const char *address = o->address;
	bool serves = o->alltoall || o->inside || (o->loop && !address);
	struct weir_address parsed;
	uint16_t peer;
	int rc, local;

	*r = (struct run){.node = -1, .peer = -1, .path = "unknown"};
	r->driver = (struct driver){.options = o,
				    .idle.epoll = -1,
				    .team = team,
				    .number = number,
				    .random = o->random ? perf_mix(o->seed + number) | 1 : 0,
				    .progress = !team && isatty(STDERR_FILENO)};
	*what = "attaching";
	if (!o->tcp) {
		/* programs of a node attach in turn: all at once, the last would time out */
		while (team && !o->alltoall && atomic_load(&team->attached) < number) {
			if (atomic_load(&team->failed) || atomic_load(&perf_stop))
				return -ECANCELED;
			usleep(TURN_US);
		}
		rc = weir_attach(&options, &r->weir);
		if (team)
			atomic_fetch_add(&team->attached, 1);
		if (rc)
			return rc;
		for (int waited = 0;
		     (r->node = weir_node(r->weir)) == -EAGAIN && serves && waited < NODE_MS;
		     waited += NODE_STEP_MS)
			usleep(NODE_STEP_MS * 1000);
	}
	perf_idle_init(&r->driver.idle, r->weir, o->sleep);
	if (o->rate > 0)
		r->driver.idle.sleep_ms = 1;
	r->driver.weir = r->weir;
	*what = "connecting";
	if (serves) {
		r->serves = true;
		server_init(&r->own_server, o, r->weir, &r->driver.idle);
		r->driver.own_server = &r->own_server;
	}
	if (o->alltoall) {
		rc = connect_cluster(r, team, number);
	} else if (serves && r->node < 0) {
		rc = r->node;
	} else if (serves) {
		/* --loop without an address: connects to a service of its own through the port; or
		 * --inside */
		snprintf(service, sizeof(service), "perf-loop-%d", (int)getpid());
		snprintf(self, sizeof(self), "node:%d:%s", r->node, service);
		address = self;
		rc = server_listen(&r->own_server, service);
		if (!rc)
			rc = driver_connect(&r->driver, &address, 1);
	} else {
		rc = driver_connect(&r->driver, &address, 1);
	}
	if (o->loop && (rc == -EHOSTDOWN || rc == -ETIMEDOUT))
		rc = -EXDEV;
	if (rc)
		return rc;
	if (!r->weir) {
		r->path = "tcp";
	} else if (o->alltoall) {
		r->path = "cluster";
	} else if (weir_conn_peer(r->driver.flow->conn, &peer, &local) == 0) {
		r->peer = peer;
		r->path = local ? "local" : "remote";
		if (o->address && perf_address_parse(o->address, &parsed) == 0)
			snprintf(r->driver.service, sizeof(r->driver.service), "%s",
				 parsed.service);
	}
	if (o->loop)
		r->path = "loop";
	return 0;
}

void
run_close(struct run *r)
{
	driver_close(&r->driver);
	if (r->serves)
		server_close(&r->own_server);
	weir_detach(r->weir);
}

/* Warns and counts an error unless the payload went through the ports. */
static void
check_ports(const struct perf_info *info, struct perf_result *r)
{
	uint64_t counted = perf_is_fetch(r->test) ? r->ports.rx_bytes : r->ports.tx_bytes;

	if (strcmp(info->path, "local") == 0 || !r->ports_known)
		return;
	/* a NIC need not count what a peer's READ takes, or its WRITE leaves; the peer's NIC does
	 */
	if (counted < r->payload)
		counted += perf_is_fetch(r->test) ? r->peer_ports.tx_bytes : r->peer_ports.rx_bytes;
	if (counted >= r->payload)
		return;
	fprintf(stderr,
		"weir-perf: %llu bytes of payload, but the ports counted %llu; is another path in "
		"use?\n",
		(unsigned long long)r->payload, (unsigned long long)counted);
	r->errors++;
}

int
run_all(const struct perf_info *info, const cpu_set_t *allowed,
	int (*one)(void *arg, uint32_t test, uint32_t size, struct perf_result *r), void *arg)
{
	static struct perf_result r;
	const struct perf_options *o = info->options;
	struct calibration c = {0};
	int code = 0, rc;

	if (!o->no_calibrate)
		c = calibrate(allowed, o->cpu);
	for (uint32_t t = 0; t < o->test_count; t++) {
		bool usual = o->tests[t] == PERF_MIX || !o->size_count;

		for (uint32_t s = 0; s < (usual ? 1 : o->size_count); s++) {
			rc = one(arg, o->tests[t],
				 usual ? perf_usual_size(o->tests[t], o->type) : o->sizes[s], &r);
			if (rc)
				return rc;
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

/* Prints the reason to stderr and returns the exit code. */
static int
failed(const struct run *r, int rc, const char *doing)
{
	char reason[TEAM_REASON];

	run_reason(r, rc, doing, reason, sizeof(reason));
	fprintf(stderr, "weir-perf: %s\n", reason);
	return run_exit_code(rc);
}

static int
one_alone(void *arg, uint32_t test, uint32_t size, struct perf_result *result)
{
	struct run *r = arg;
	const char *what = "";
	int rc = driver_run(&r->driver, test, size, result, &what);

	return rc ? failed(r, rc, what) : 0;
}

int
run_alone(const struct perf_options *o, const cpu_set_t *allowed)
{
	static struct run r;
	const char *what;
	struct perf_info info = {.options = o};
	int rc = run_open(&r, o, NULL, 0, &what);

	if (rc) {
		rc = failed(&r, rc, what);
	} else {
		info.node = r.node;
		info.peer = r.peer;
		info.path = r.path;
		perf_report_begin(&info, stdout);
		rc = run_all(&info, allowed, one_alone, &r);
		perf_report_end(&info, stdout);
	}
	run_close(&r);
	return rc;
}
