/* SPDX-License-Identifier: BSD-3-Clause */
/* What options mean together. */
#include "options.h"

#include "socket.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum options_result
perf_options_wrong(char *reason, size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, size, format, args);
	va_end(args);
	return OPTIONS_WRONG;
}

/* The instances of the cluster that this program was started in. */
static int
find_cluster(struct perf_options *o)
{
	static char names[4096];
	const char *from = getenv("WEIR_CLUSTER");
	char *rest = names, *name;

	if (!from || strlen(from) >= sizeof(names))
		return -EINVAL;
	memcpy(names, from, strlen(from) + 1);
	while ((name = strsep(&rest, " \t\n"))) {
		if (!*name)
			continue;
		if (o->cluster_count == OPTIONS_NODES)
			return -EINVAL;
		o->cluster[o->cluster_count++] = name;
	}
	return o->cluster_count < 2 ? -EINVAL : 0;
}

/* What of many programs and connections can't go together. */
static enum options_result
settle_crowd(struct perf_options *o, char *reason, size_t size)
{
	uint64_t least = (uint64_t)o->connections * o->programs * o->threads;

	if (o->alltoall && (o->address || o->loop || o->tcp || o->programs > 1 || o->interactive))
		return perf_options_wrong(
		    reason, size,
		    "--alltoall goes without an address, --loop, --transport, --programs "
		    "and -i; leave them out");
	if (o->alltoall && !o->cluster_count && find_cluster(o))
		return perf_options_wrong(
		    reason, size,
		    "--alltoall finds no instances in WEIR_CLUSTER; run it by "
		    "scripts/cluster.sh");
	if (o->loop && !o->address && (o->programs > 1 || o->interactive || o->period_s > 0))
		return perf_options_wrong(
		    reason, size,
		    "--loop without an address is one program alone; name a server on "
		    "this node");
	if (o->count && o->count < least && !o->alltoall)
		return perf_options_wrong(
		    reason, size,
		    "-n is less than there are connections and threads; raise it to %llu",
		    (unsigned long long)least);
	if (o->tcp && (o->loop || o->flags))
		return perf_options_wrong(reason, size,
					  "--loop and --flags are Weir's; leave out --transport");
	if (o->interactive && !o->duration_given)
		o->duration_s = 86400;
	return OPTIONS_RUN;
}

static enum options_result
settle_mix(struct perf_options *o, char *reason, size_t size)
{
	if (!o->count)
		o->count = 100000;
	if (!o->large_given)
		o->large = o->count / 10000;
	if (o->large > o->count)
		return perf_options_wrong(reason, size, "--large is more than -n; lower it");
	return OPTIONS_RUN;
}

/* Each piece that is read lies in the memory, and is more than what asks for it. */
static bool
reads_fit(const struct perf_options *o)
{
	for (uint32_t i = 0; i < o->size_count; i++)
		if (o->sizes[i] <= PERF_READ_REQUEST || o->sizes[i] > o->region)
			return false;
	return o->size_count || o->region >= 65536;
}

/* What can't go together, and what follows from what was said. */
enum options_result
perf_options_settle(struct perf_options *o, char *reason, size_t size)
{
	bool alone = !o->address && !o->loop && !o->alltoall;

	if (!o->instance || !*o->instance)
		o->instance = getenv("WEIR_INSTANCE");
	if (!o->instance || !*o->instance)
		o->instance = "default";
	if (!o->service)
		o->service = o->tcp ? PERF_TCP_SERVICE : PERF_SERVICE;
	if (o->no_calibrate && o->calibrate)
		return perf_options_wrong(reason, size,
					  "--calibrate and --no-calibrate; choose one");
	if (alone && (o->test_count || o->interactive))
		return perf_options_wrong(
		    reason, size,
		    "%s without an address; name the server, as in node:2 or 10.0.0.2",
		    o->test_count ? "-t" : "-i");
	if (o->is_public && (!alone || o->tcp))
		return perf_options_wrong(reason, size,
					  "--public is for a server of Weir; leave it out");
	if (o->interactive && !o->test_count)
		o->tests[o->test_count++] = PERF_RATE;
	if (!alone && !o->test_count)
		return perf_options_wrong(reason, size,
					  "no test; name one with -t, such as -t lat");
	if (o->loop && !o->address && o->sleep)
		return perf_options_wrong(
		    reason, size, "--loop without an address polls; leave out --wait sleep");
	for (uint32_t i = 0; i < o->test_count; i++) {
		if (o->tests[i] == PERF_MIX && settle_mix(o, reason, size))
			return OPTIONS_WRONG;
		if (o->tests[i] >= PERF_READ && o->tcp)
			return perf_options_wrong(reason, size,
						  "-t %s is Weir's; leave out --transport",
						  perf_test_name(o->tests[i]));
		if (o->adopt && (o->tests[i] != PERF_BW || o->tcp || o->copy))
			return perf_options_wrong(reason, size,
						  "--adopt is for -t bw, without --copy and "
						  "--transport; leave it out");
		if (o->tests[i] == PERF_READ && !reads_fit(o))
			return perf_options_wrong(
			    reason, size,
			    "a size that -t read can't have; give %u bytes to --region",
			    PERF_READ_REQUEST + 1);
		if (o->tests[i] >= PERF_CAST && (o->loop || o->connections > 1))
			return perf_options_wrong(reason, size,
						  "-t %s makes its connections itself; leave out "
						  "--loop and --connections",
						  perf_test_name(o->tests[i]));
	}
	return settle_crowd(o, reason, size);
}
