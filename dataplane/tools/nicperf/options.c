/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

static const char *const names[NICPERF_TESTS] = {"write", "read", "send", "fadd",
						 "cas",	  "lat",  "bare", "verify"};

const char *
nicperf_test_name(uint32_t test)
{
	return names[test];
}

static int
take_test(void *options, const char *name)
{
	struct nicperf_options *o = options;
	uint32_t test = 0;

	while (test < NICPERF_TESTS && strcmp(names[test], name))
		test++;
	if (test == NICPERF_TESTS || o->test_count == NICPERF_TESTS)
		return -EINVAL;
	o->tests[o->test_count++] = test;
	return 0;
}

static int
take_tests(void *options, const char *text, char *error, size_t size)
{
	struct nicperf_options *o = options;

	o->test_count = 0;
	return option_list(text, take_test, o);
}

static int
take_size(void *options, const char *text)
{
	struct nicperf_options *o = options;
	uint64_t n;

	if (o->size_count == NICPERF_SIZES_MAX ||
	    option_number(text, true, 1, NICPERF_SIZE_MAX, &n))
		return -EINVAL;
	o->sizes[o->size_count++] = (uint32_t)n;
	return 0;
}

static int
take_sizes(void *options, const char *text, char *error, size_t size)
{
	struct nicperf_options *o = options;

	o->size_count = 0;
	return option_list(text, take_size, o);
}

static int
take_nic(void *options, const char *text, char *error, size_t size)
{
	struct nicperf_options *o = options;

	return options_parse_nic(&o->nic, text, error, size);
}

#define AT(field) OPTION_FIELD(struct nicperf_options, field)

static const struct option_spec specs[] = {
    {"beside", 0, OPTION_SIZE, AT(beside), "SIZE", NULL,
     "lat: keep WRITEs of SIZE in flight on a second queue pair", .min = 1,
     .max = NICPERF_SIZE_MAX},
    {"connect", 0, OPTION_TEXT, AT(connect), "HOST", NULL,
     "connect to the process that listens on this host", .min = 1, .expected = "a host"},
    {"depth", 0, OPTION_SIZE, AT(depth), "N", "128", "work requests in flight per queue pair",
     .min = NICPERF_DEPTH_MIN, .max = NICPERF_DEPTH_MAX},
    {NULL, 'D', OPTION_REAL, AT(duration), "SECONDS", "1",
     "duration of each run; fractions are allowed", .least = DBL_TRUE_MIN, .most = 86400,
     .expected = "seconds, more than 0 and at most 86400"},
    {"help", 'h', OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"json", 0, OPTION_FLAG, AT(json), NULL, NULL, "JSON instead of a table"},
    {"list", 0, OPTION_SIZE, AT(list), "N", "32", "work requests posted at once", .min = 1,
     .max = 256},
    {"listen", 0, OPTION_FLAG, AT(listen), NULL, NULL,
     "respond until the connecting process is done"},
    {NULL, 'n', OPTION_SIZE, AT(count), "COUNT", NULL, "operations per queue pair, instead of -D",
     .min = 1, .max = 1ull << 40},
    {"nic", 0, OPTION_CALL, 0, 0, "SPEC", NULL,
     "as for weir-dataplane: roce:PORT,ip=ADDR/LEN[,...] or verbs:DEVICE[,...]", .take = take_nic},
    {"no-calibrate", 0, OPTION_FLAG, AT(no_calibrate), NULL, NULL,
     "do not measure the bare machine before and after each run"},
    {"port", 0, OPTION_SIZE, AT(port), "N", "18515", "TCP port of --listen and --connect", .min = 1,
     .max = 65535},
    {NULL, 'q', OPTION_SIZE, AT(qps), "N", "1", "queue pairs; with --shared: threads", .min = 1,
     .max = NICPERF_QPS_MAX},
    {NULL, 's', OPTION_CALL, 0, 0, "SIZE[,SIZE]", "64", "bytes per operation; k and m may follow",
     .take = take_sizes, .expected = "up to 32 sizes from 1 to 16m"},
    {"shared", 0, OPTION_FLAG, AT(shared), NULL, NULL,
     "-q threads share one queue pair under a lock"},
    {NULL, 't', OPTION_CALL, 0, 0, "TEST[,TEST]", "write",
     "write, read, send, fadd, cas: rate; lat: ping-pong of WRITEs; bare: ping-pong of frames of "
     "the same length; verify: all operations, sizes around the MTU, -n rounds, every byte checked",
     .take = take_tests, .expected = "write, read, send, fadd, cas, lat, bare or verify"},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
};

const struct option_table nicperf_option_table = {
    OPTION_SPECS(specs, struct nicperf_options),
    .head =
	"Usage: weir-nicperf [EAL options] -- --nic SPEC [--listen | --connect HOST] [options]\n"
	"Measures the NIC layer without programs and rings. With neither --listen nor --connect\n"
	"both ends are in this process, on a port that loops back its frames "
	"(--vdev=net_ring0).\n\n",
};

int
nicperf_options_parse(struct nicperf_options *o, int argc, char **argv, char *error, size_t size)
{
	const char *why = NULL;

	argc--;
	if (option_defaults(&nicperf_option_table, o, error, size) ||
	    option_parse(&nicperf_option_table, o, &argc, argv + 1, error, size))
		return -EINVAL;
	if (o->help || o->version)
		return 0;
	if (!o->nic.port[0])
		why = "no --nic; give roce:PORT,ip=ADDR/LEN or verbs:DEVICE";
	else if (o->listen && o->connect)
		why = "--listen and --connect are for two processes; give one of them";
	else if (o->beside && o->shared)
		why = "--beside needs a queue pair of its own; leave --shared out";
	else if (o->shared && o->qps > NICPERF_THREADS_MAX)
		why = "more than 64 threads; give a smaller -q with --shared";
	else if (o->list > o->depth)
		why = "--list is more than --depth; post fewer at once";
	if (why)
		snprintf(error, size, "%s", why);
	return why ? -EINVAL : 0;
}
