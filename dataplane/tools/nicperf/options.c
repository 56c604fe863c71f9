/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[NICPERF_TESTS] = {"write", "read", "send", "fadd",
						 "cas",	  "lat",  "bare", "verify"};

const char *
nicperf_test_name(uint32_t test)
{
	return names[test];
}

void
nicperf_usage(void)
{
	fputs("Usage: weir-nicperf [EAL options] -- --nic SPEC [--listen | --connect HOST] "
	      "[options]\n"
	      "Measures the NIC layer: no programs, no rings. With neither --listen nor --connect "
	      "both\n"
	      "ends are in this process, on a port that brings back what it sends "
	      "(--vdev=net_ring0).\n"
	      "\n"
	      "  --beside SIZE      lat: a second queue pair does WRITEs of SIZE all the time\n"
	      "  --connect HOST     asks the process that listens there for the other end\n"
	      "  --depth N          work requests of a queue pair under way [128]\n"
	      "  -D SECONDS         duration of each run, may be a fraction [1]\n"
	      "  --help, --version\n"
	      "  --json             JSON instead of a table\n"
	      "  --list N           work requests posted at once [32]\n"
	      "  --listen           answers, until the asking process is done\n"
	      "  -n COUNT           operations of each queue pair, instead of -D\n"
	      "  --nic SPEC         as of weir-dataplane: roce:PORT,ip=ADDR/LEN[,...]\n"
	      "                     or verbs:DEVICE[,...]\n"
	      "  --no-calibrate     doesn't measure the bare machine around each run\n"
	      "  --port N           TCP port of --listen and --connect [18515]\n"
	      "  -q N               queue pairs; with --shared: threads [1]\n"
	      "  -s SIZE[,SIZE]     bytes of an operation, k and m may follow [64]\n"
	      "  --shared           -q threads share one queue pair under a lock\n"
	      "  -t TEST[,TEST]     write, read, send, fadd, cas: rate; lat: ping-pong of WRITEs;\n"
	      "                     bare: ping-pong of frames of the same length;\n"
	      "                     verify: all operations and sizes around the MTU, -n times,\n"
	      "                     every byte looked at [write]\n",
	      stdout);
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
take_size(void *options, const char *text)
{
	struct nicperf_options *o = options;

	if (o->size_count == NICPERF_SIZES_MAX)
		return -EINVAL;
	return tool_parse_small(text, 1, NICPERF_SIZE_MAX, &o->sizes[o->size_count++]);
}

static int
parse_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end == text || *end || !(*seconds > 0) || *seconds > 86400 ? -EINVAL : 0;
}

/* One option with a value. */
static int
take_value(struct nicperf_options *o, int id, const char *value, char *error, size_t size)
{
	uint32_t port;

	switch (id) {
	case 'N':
		return options_parse_nic(&o->nic, value, error, size);
	case 'c':
		o->connect = value;
		return *value ? 0 : tool_bad(error, size, "--connect", value, "give a host");
	case 't':
		o->test_count = 0;
		return tool_parse_list(value, take_test, o)
			   ? tool_bad(error, size, "-t", value,
				      "give write, read, send, fadd, cas, lat, bare or verify")
			   : 0;
	case 's':
		o->size_count = 0;
		return tool_parse_list(value, take_size, o)
			   ? tool_bad(error, size, "-s", value, "give 1 to 16m")
			   : 0;
	case 'n':
		return tool_parse_number(value, 1, 1ull << 40, &o->count)
			   ? tool_bad(error, size, "-n", value, "give a count from 1 on")
			   : 0;
	case 'D':
		return parse_seconds(value, &o->duration)
			   ? tool_bad(error, size, "-D", value, "give seconds")
			   : 0;
	case 'b':
		return tool_parse_small(value, 1, NICPERF_SIZE_MAX, &o->beside)
			   ? tool_bad(error, size, "--beside", value, "give 1 to 16m")
			   : 0;
	case 'q':
		return tool_parse_small(value, 1, NICPERF_QPS_MAX, &o->qps)
			   ? tool_bad(error, size, "-q", value, "give 1 to 1024")
			   : 0;
	case 'd':
		return tool_parse_small(value, 1, NICPERF_DEPTH_MAX, &o->depth) ||
			       o->depth < NICPERF_DEPTH_MIN
			   ? tool_bad(error, size, "--depth", value, "give 4 to 4096")
			   : 0;
	case 'l':
		return tool_parse_small(value, 1, 256, &o->list)
			   ? tool_bad(error, size, "--list", value, "give 1 to 256")
			   : 0;
	case 'p':
		if (tool_parse_small(value, 1, 65535, &port))
			return tool_bad(error, size, "--port", value, "give 1 to 65535");
		o->port = (uint16_t)port;
	}
	return 0;
}

static int
take_option(void *options, int id, const char *value, char *error, size_t size)
{
	struct nicperf_options *o = options;

	switch (id) {
	case 'j':
		o->json = true;
		break;
	case 'L':
		o->listen = true;
		break;
	case 'C':
		o->calibrate = false;
		break;
	case 'S':
		o->shared = true;
		break;
	default:
		return take_value(o, id, value, error, size);
	}
	return 0;
}

static int
check(const struct nicperf_options *o, char *error, size_t size)
{
	const char *why = NULL;

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

static const struct option longs[] = {
    {"beside", required_argument, NULL, 'b'},
    {"connect", required_argument, NULL, 'c'},
    {"depth", required_argument, NULL, 'd'},
    {"help", no_argument, NULL, 'h'},
    {"json", no_argument, NULL, 'j'},
    {"list", required_argument, NULL, 'l'},
    {"listen", no_argument, NULL, 'L'},
    {"nic", required_argument, NULL, 'N'},
    {"no-calibrate", no_argument, NULL, 'C'},
    {"port", required_argument, NULL, 'p'},
    {"shared", no_argument, NULL, 'S'},
    {"version", no_argument, NULL, 'v'},
    {0},
};

int
nicperf_options_parse(struct nicperf_options *o, int argc, char **argv, char *error, size_t size)
{
	int rc;

	*o = (struct nicperf_options){.port = NICPERF_PORT,
				      .tests = {NICPERF_WRITE},
				      .test_count = 1,
				      .sizes = {64},
				      .size_count = 1,
				      .duration = 1,
				      .qps = 1,
				      .depth = 128,
				      .list = 32,
				      .calibrate = true};
	rc = tool_options(argc, argv, "t:s:n:D:q:h", longs, take_option, o, error, size);
	o->help = rc == 'h';
	o->version = rc == 'v';
	if (rc)
		return rc < 0 ? rc : 0;
	return check(o, error, size);
}
