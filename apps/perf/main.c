/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-perf measures messages between programs. See weir-perf(1). */
#include "prompt.h"
#include "run.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

static struct weir *_Atomic serving; /* the server's session, while it may be woken */

static void
on_signal(int signal)
{
	struct weir *weir = atomic_load(&serving);

	atomic_store(&perf_stop, true);
	if (weir)
		weir_wake(weir);
}

static int
serve(const struct perf_options *o)
{
	struct weir_options options = {
	    .size = sizeof(options), .instance = o->instance, .name = "weir-perf"};
	struct weir *weir = NULL;
	int rc = o->tcp ? 0 : weir_attach(&options, &weir);

	if (rc) {
		fprintf(stderr, "weir-perf: %s\n", weir_reason());
		return run_exit_code(rc);
	}
	atomic_store(&serving, weir);
	rc = run_exit_code(perf_serve(weir, o));
	atomic_store(&serving, NULL);
	weir_detach(weir);
	return rc;
}

int
main(int argc, char **argv)
{
	struct sigaction stop = {.sa_handler = on_signal};
	struct perf_options o;
	struct weir_address address;
	struct calibration c;
	cpu_set_t allowed, pinned;
	char reason[160];

	switch (perf_options_parse(argc, argv, &o, reason, sizeof(reason))) {
	case OPTIONS_HELP:
		option_print_help(&perf_option_table, stdout);
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
	if (o.address && !o.tcp && perf_address_parse(o.address, &address)) {
		fprintf(
		    stderr,
		    "weir-perf: invalid address '%s' (expected node:ID, IPv4 or [IPv6], with or "
		    "without :SERVICE)\n",
		    o.address);
		return EXIT_USAGE;
	}
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (o.calibrate && !o.test_count) {
		c = calibrate(&allowed, o.cpu);
		perf_report_calibration(&o, &c, stdout);
		return 0;
	}
	if (o.cpu >= 0) {
		CPU_ZERO(&pinned);
		CPU_SET(o.cpu, &pinned);
		if (sched_setaffinity(0, sizeof(pinned), &pinned)) {
			fprintf(stderr,
				"weir-perf: can't run on CPU %d: %s; choose one of this machine\n",
				o.cpu, strerror(errno));
			return EXIT_RESOURCE;
		}
	}
	if (o.interactive)
		return perf_prompt(&o);
	if (!o.test_count)
		return serve(&o);
	if (o.programs > 1 || o.alltoall || o.period_s > 0)
		return team_run_all(&o, &allowed);
	return run_alone(&o, &allowed);
}
