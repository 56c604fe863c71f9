/* SPDX-License-Identifier: BSD-3-Clause */
#include "run.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define NODE_MS 5000
#define TURN_US 200

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
connect_itself(struct run *r)
{
	char address[64], service[WEIR_SERVICE_MAX];
	const char *self = address;
	int rc;

	if (r->node < 0)
		return r->node;
	snprintf(service, sizeof(service), "perf-loop-%d", (int)getpid());
	snprintf(address, sizeof(address), "node:%d:%s", r->node, service);
	rc = server_listen(&r->here, service);
	return rc ? rc : driver_connect(&r->driver, &self, 1);
}

/* --alltoall: listens for the others, and connects to each of them. */
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
	rc = server_listen(&r->here, service);
	if (rc)
		return rc;
	atomic_store(&team->nodes[number], r->node);
	rc = team_arrive(team, TEAM_ATTACHED, NULL, NULL);
	if (rc)
		return rc;
	/* each begins with its successor, so that not all of them begin with the same one */
	for (uint32_t i = 1; i < team->count; i++, n++) {
		snprintf(text[n], sizeof(text[n]), "node:%d:%s",
			 (int)atomic_load(&team->nodes[(number + i) % team->count]), service);
		others[n] = text[n];
	}
	return driver_connect(&r->driver, others, n);
}

static void
look_at_path(struct run *r)
{
	struct weir_address address;
	uint16_t node;
	int local;

	if (!r->weir) {
		r->path = "tcp";
	} else if (r->driver.options->alltoall) {
		r->path = "cluster";
	} else if (weir_conn_peer(r->driver.flow->conn, &node, &local) == 0) {
		r->peer = node;
		r->path = local ? "local" : "remote";
		if (r->driver.options->address &&
		    perf_address_parse(r->driver.options->address, &address) == 0)
			snprintf(r->driver.service, sizeof(r->driver.service), "%s",
				 address.service);
	}
	if (r->driver.options->loop)
		r->path = "loop";
}

static int
connect_all(struct run *r, const struct perf_options *o, struct team *team, uint32_t number)
{
	int rc;

	if (o->alltoall || (o->loop && !o->address)) {
		server_init(&r->here, o, r->weir, &r->driver.idle);
		r->serves = true;
		r->driver.here = &r->here;
	}
	if (o->alltoall)
		rc = connect_cluster(r, team, number);
	else if (r->serves)
		rc = connect_itself(r);
	else
		rc = driver_connect(&r->driver, &o->address, 1);
	return o->loop && (rc == -EHOSTDOWN || rc == -ETIMEDOUT) ? -EXDEV : rc;
}

/* Programs of one node attach in turn: all at once, the last would wait longer than one may. */
static int
attach(struct run *r, const struct perf_options *o, struct team *team, uint32_t number)
{
	struct weir_options options = {.instance = o->instance, .name = "weir-perf"};
	int rc;

	while (team && !o->alltoall && atomic_load(&team->attached) < number) {
		if (atomic_load(&team->failed) || atomic_load(&perf_stop))
			return -ECANCELED;
		usleep(TURN_US);
	}
	rc = weir_attach(&options, &r->weir);
	if (team)
		atomic_fetch_add(&team->attached, 1);
	return rc;
}

int
run_open(struct run *r, const struct perf_options *o, struct team *team, uint32_t number,
	 const char **what)
{
	int rc;

	*r = (struct run){.node = -1, .peer = -1, .path = "unknown"};
	r->driver = (struct driver){.options = o,
				    .idle.epoll = -1,
				    .team = team,
				    .number = number,
				    .random = o->random ? perf_mix(o->seed + number) | 1 : 0,
				    .progress = !team && isatty(STDERR_FILENO)};
	*what = "attaching";
	if (!o->tcp) {
		rc = attach(r, o, team, number);
		if (rc)
			return rc;
		if (o->alltoall || (o->loop && !o->address))
			r->node = await_node(r->weir);
		else
			r->node = weir_node(r->weir);
	}
	perf_idle_init(&r->driver.idle, r->weir, o->sleep);
	if (o->rate > 0)
		r->driver.idle.sleep_ms = 1;
	r->driver.weir = r->weir;
	*what = "connecting";
	rc = connect_all(r, o, team, number);
	if (!rc)
		look_at_path(r);
	return rc;
}

void
run_close(struct run *r)
{
	driver_close(&r->driver);
	if (r->serves)
		server_close(&r->here);
	weir_detach(r->weir);
}

/* The payload must have gone through the ports, or it was not this path that was measured. */
static void
check_ports(const struct perf_info *info, struct perf_result *r)
{
	uint64_t counted = r->test == PERF_READ ? r->ports.rx_bytes : r->ports.tx_bytes;

	if (strcmp(info->path, "local") == 0 || !r->ports_known)
		return;
	/* what a NIC gives to a peer that READs it may not count; the peer's does */
	if (counted < r->payload)
		counted += r->test == PERF_READ ? 0 : r->peer_ports.rx_bytes;
	if (counted >= r->payload)
		return;
	fprintf(stderr,
		"weir-perf: %llu bytes of payload, but the ports counted %llu; is another path in "
		"use?\n",
		(unsigned long long)r->payload, (unsigned long long)counted);
	r->errors++;
}

uint32_t
run_usual_size(uint32_t test)
{
	return test == PERF_BW || test == PERF_READ ? 65536 : test == PERF_MIX ? 0 : 64;
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
				 usual ? run_usual_size(o->tests[t]) : o->sizes[s], &r);
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

/* Says on stderr why, and gives the exit code. */
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
