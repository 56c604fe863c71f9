/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-nicperf: start, runs one by one, end. See weir-nicperf(1). */
#define _GNU_SOURCE
#include "nicperf.h"

#include "daemon/eal_setup.h"
#include "tools/tool.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <rte_version.h>

static cpu_set_t cpus; /* our affinity before EAL bound us to one CPU */

static bool
has_own_size(uint32_t test)
{
	return test == NICPERF_FADD || test == NICPERF_CAS || test == NICPERF_VERIFY;
}

static int
measure(struct nicperf *np, uint32_t test, uint32_t size)
{
	static struct nicperf_result r;
	uint64_t n = np->options->count ? np->options->count : NICPERF_VERIFY_ROUNDS;
	uint32_t rounds = n > np->stride ? (uint32_t)np->stride : (uint32_t)n;
	int rc;

	memset(&r, 0, sizeof(r));
	histogram_clear(&r.latency);
	r.test = test;
	if (test == NICPERF_FADD || test == NICPERF_CAS)
		r.size = 8;
	else if (!has_own_size(test))
		r.size = size;
	if (!np->options->no_calibrate)
		r.before = calibrate(&cpus, -1);
	/* the other process gets the rounds in the place of a size */
	rc = nicperf_send_run(np, test, test == NICPERF_VERIFY ? rounds : r.size);
	if (rc)
		return rc;
	if (test == NICPERF_VERIFY)
		rc = nicperf_verify(np, rounds, &r);
	else if (test == NICPERF_LAT)
		rc = nicperf_latency(np, &r);
	else if (test == NICPERF_BARE)
		rc = nicperf_bare(np, &r);
	else
		rc = nicperf_stream(np, &r);
	if (!rc)
		rc = nicperf_send_run(np, NICPERF_TESTS, 0);
	/* the other end waits for ACKs of its own WRITEs, then stops polling, as we do */
	if (!rc && np->socket >= 0)
		rc = nicperf_await_run(np, &test, &size);
	if (rc)
		return rc;
	if (!np->options->no_calibrate)
		r.after = calibrate(&cpus, -1);
	nicperf_report(np, &r, stdout);
	return 0;
}

static int
ask(struct nicperf *np)
{
	const struct nicperf_options *o = np->options;
	int rc = 0;

	nicperf_report_begin(np, stdout);
	for (uint32_t t = 0; t < o->test_count && !rc; t++)
		for (uint32_t s = 0; s < o->size_count && !rc; s++) {
			rc = measure(np, o->tests[t], o->sizes[s]);
			if (has_own_size(o->tests[t]))
				break;
		}
	nicperf_report_end(np, stdout);
	return rc;
}

/* Runs one by one, until the asking process is gone: that one prints why. */
static int
respond(struct nicperf *np)
{
	struct nicperf_result all = {0};
	uint32_t test, size;
	int rc = 0;

	while (!rc) {
		rc = nicperf_await_run(np, &test, &size);
		if (!rc && test == NICPERF_VERIFY)
			rc = nicperf_verify(np, size, &all);
		else if (!rc && test == NICPERF_LAT)
			rc = nicperf_respond_latency(np, size);
		else if (!rc && test == NICPERF_BARE)
			rc = nicperf_respond_bare(np);
		/* other tests need only the device */
		if (!rc)
			rc = nicperf_await_run(np, &test, &size);
		if (!rc)
			rc = nicperf_send_run(np, NICPERF_TESTS, 0);
	}
	return rc == -EPIPE ? 0 : rc;
}

int
main(int argc, char **argv)
{
	static struct nicperf_options o;
	static struct nicperf np = {.options = &o, .socket = -1};
	char instance[32];
	int dashes = tool_split(argc, argv), rc;

	rc = nicperf_options_parse(&o, argc - dashes, argv + dashes, np.error, sizeof(np.error));
	if (!rc && o.help) {
		option_print_help(&nicperf_option_table, stdout);
		return TOOL_OK;
	}
	if (!rc && o.version) {
		printf("weir-nicperf " WEIR_VERSION " (%s)\n", rte_version());
		return TOOL_OK;
	}
	if (rc) {
		fprintf(stderr, "weir-nicperf: %s\n", np.error);
		return TOOL_USAGE;
	}
	sched_getaffinity(0, sizeof(cpus), &cpus);
	snprintf(instance, sizeof(instance), "nicperf-%d", (int)getpid());
	rc = eal_setup(instance, dashes ? dashes : 1, argv, np.error, sizeof(np.error));
	if (rc)
		goto out;
	rc = nicperf_agree(&np);
	if (!rc)
		rc = nicperf_open(&np);
	if (rc == -ENODEV)
		eal_explain(np.error, sizeof(np.error));
	if (!rc)
		rc = nicperf_exchange(&np);
	if (!rc)
		rc = open_nic_await_link(&np.open, &np.attr, np.error, sizeof(np.error));
	for (unsigned i = 0; i < 2 && !rc && np.end[i]; i++)
		rc = nicperf_connect(&np, np.end[i]);
	if (!rc)
		rc = o.listen ? respond(&np) : ask(&np);
	if (np.socket >= 0)
		close(np.socket);
	nicperf_close(&np);
	eal_teardown(instance);
out:
	if (rc)
		fprintf(stderr, "weir-nicperf: %s\n", np.error);
	return tool_exit_code(rc);
}
