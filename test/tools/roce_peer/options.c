/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct peer_test tests[] = {
    {"rc_pingpong", PEER_PINGPONG, .size = 4096, .count = 1000},
    {"ud_pingpong", PEER_PINGPONG, .ud = true, .size = 2048, .count = 1000},
    {"srq_pingpong", PEER_PINGPONG, .srq = true, .size = 4096, .count = 1000},
    {"send_bw", PEER_SEND, .size = 65536, .count = 1000},
    {"send_lat", PEER_SEND, .latency = true, .size = 2, .count = 1000},
    {"ud_send_bw", PEER_SEND, .ud = true, .size = 1024, .count = 1000},
    {"ud_send_lat", PEER_SEND, .ud = true, .latency = true, .size = 2, .count = 1000},
    {"write_bw", PEER_WRITE, .size = 65536, .count = 5000},
    {"write_lat", PEER_WRITE, .latency = true, .size = 2, .count = 1000},
    {"read_bw", PEER_READ, .size = 65536, .count = 1000},
    {"read_lat", PEER_READ, .latency = true, .size = 2, .count = 1000},
    {"atomic_bw", PEER_FADD, .size = 8, .count = 1000},
    {"atomic_lat", PEER_FADD, .latency = true, .size = 8, .count = 1000},
    {"cas_bw", PEER_CAS, .size = 8, .count = 1000},
    {"cas_lat", PEER_CAS, .latency = true, .size = 8, .count = 1000},
};

void
peer_usage(void)
{
	fputs(
	    "Usage: weir-roce-peer [EAL options] -- --nic SPEC {--listen | --connect HOST} "
	    "-t RUN[,RUN] [options]\n"
	    "The other end of ibv_rc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong and of perftest's "
	    "programs,\n"
	    "on Weir's NIC layer.\n"
	    "\n"
	    "  --connect HOST     asks their servers: run K (from 0) that at TCP port --port + K\n"
	    "  --help, --version\n"
	    "  --listen           waits for their clients, one a run, all at one port\n"
	    "  -m BYTES           path MTU of the pingpongs [1024]\n"
	    "  -n COUNT           operations of each run, the same there [their default]\n"
	    "  --nic SPEC         as of weir-dataplane: roce:PORT,ip=ADDR/LEN[,...]\n"
	    "                     or verbs:DEVICE[,...]\n"
	    "  --patience SECONDS how long nothing may happen [20]\n"
	    "  --port N           TCP port [18515]\n"
	    "  -q N               queue pairs of srq_pingpong, the same there [16]\n"
	    "  -t RUN[,RUN]       what to do, in this order: TEST[:SIZE][+OPTION...], SIZE as "
	    "there "
	    "[their\n"
	    "                     default]\n"
	    "\n"
	    "Tests: rc_pingpong, ud_pingpong, srq_pingpong;\n"
	    "       send, write, read, atomic, each with _bw or _lat behind it, for ib_send_bw "
	    "...;\n"
	    "       ud_send_bw, ud_send_lat: -c UD there; cas_bw, cas_lat: -A CMP_AND_SWAP there\n"
	    "Options of perftest that both ends need: a (all sizes), b (both directions), qN "
	    "(queue\n"
	    "       pairs), DSECONDS (duration), reversed; send_bw:1k+b+q4 for ib_send_bw -s 1k -b "
	    "-q "
	    "4\n"
	    "       Not to be said here: -e, -F, -o, -Q, -x, --ipv6, --odp, --use-srq. Not "
	    "offered:\n"
	    "       -c UC, -c XRC, -R, -z\n",
	    stdout);
}

static const struct peer_test *
find_test(const char *name)
{
	for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(tests[i].name, name))
			return &tests[i];
	return NULL;
}

/* Why an option of theirs is not taken; the remedy is to leave it out. */
static const struct {
	const char *name, *why;
} refused[] = {
    {"cUC", "UC is not offered; leave -c UC out there, too: RC is theirs by default"},
    {"cXRC", "XRC is not offered; leave -c XRC out there, too: RC is theirs by default"},
    {"cDC", "DC is not offered; leave -c DC out there, too: RC is theirs by default"},
    {"cSRD", "SRD is not offered; leave -c SRD out there, too: RC is theirs by default"},
    {"cUD", "datagrams are tests of their own; give ud_send_bw or ud_send_lat"},
    {"cRC", "RC is the default; leave it out"},
    {"R", "rdma_cm is not offered; leave -R out there, too: addresses go over TCP"},
    {"z", "rdma_cm is not offered; leave -z out there, too: addresses go over TCP"},
    {"odp", "ODP is about their memory; leave it out here"},
    {"t", "timestamps of completions are not offered; leave it out here"},
    {"e", "how the other program waits is its own affair; leave it out here"},
    {"o", "the other program says how many it bears; leave it out here"},
    {"ipv6", "the address is that of --nic; leave it out here, give ip=ADDR/LEN with an IPv6 one"},
};

/* How an option may be combined; NULL: as it is. */
static const char *
clash(const struct peer_run *run)
{
	const struct peer_test *test = run->test;

	if (run->test->op == PEER_PINGPONG && (run->all || run->both || run->seconds ||
					       run->reversed || (run->qps != 1 && !test->srq)))
		return "the ping-pongs of rdma-core know no such option; leave it out";
	if (test->latency && (run->both || run->reversed || run->qps != 1))
		return "tests of latency know neither -b, -q nor --reversed; leave it out";
	if (run->all && (test->op >= PEER_FADD || run->seconds))
		return "-a is not for atomics, nor with -D; leave it out";
	if (run->both && run->reversed)
		return "-b and --reversed exclude each other; give one";
	if (test->op >= PEER_FADD && run->size != 8)
		return "an atomic has 8 bytes; leave the size out";
	return NULL;
}

/* What stands behind a '+'. NULL, or why not. */
static const char *
take_run_option(struct peer_run *run, const char *text)
{
	if (!strcmp(text, "a")) {
		run->all = true;
		run->size = PEER_SIZE_MAX;
	} else if (!strcmp(text, "b")) {
		run->both = true;
	} else if (!strcmp(text, "reversed")) {
		run->reversed = true;
	} else if (*text == 'q') {
		return tool_parse_small(text + 1, 1, PEER_QPS_MAX, &run->qps) ? "give q1 to q256"
									      : NULL;
	} else if (*text == 'D') {
		return tool_parse_small(text + 1, 1, PEER_SECONDS_MAX, &run->seconds)
			   ? "give D1 to D3600"
			   : NULL;
	} else {
		for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
			if (!strcmp(text, refused[i].name) ||
			    (!strcmp(refused[i].name, "o") && *text == 'o' && text[1] >= '0' &&
			     text[1] <= '9'))
				return refused[i].why;
		return "give a, b, qN, DSECONDS or reversed";
	}
	return NULL;
}

/* TEST[:SIZE][+OPTION...] */
static const char *
read_run(struct peer_run *run, char *text)
{
	char *rest = strchr(text, '+'), *size, *option;
	const char *why = NULL;

	if (rest)
		*rest++ = '\0';
	size = strchr(text, ':');
	if (size)
		*size++ = '\0';
	*run = (struct peer_run){.test = find_test(text), .qps = 1};
	if (!run->test)
		return strcmp(text, "uc_pingpong") == 0 ? "UC is not offered; give rc_pingpong"
							: "give tests of --help";
	run->size = run->test->size;
	if (size && tool_parse_small(size, 1, PEER_SIZE_MAX, &run->size))
		return "a size is 1 to 8m";
	while (rest && !why) {
		option = rest;
		rest = strchr(option, '+');
		if (rest)
			*rest++ = '\0';
		why = take_run_option(run, option);
	}
	if (!why && size && run->all)
		why = "-a has all sizes; leave :SIZE out";
	return why ? why : clash(run);
}

static int
take_run(void *options, const char *text)
{
	struct peer_options *o = options;
	char copy[64]; /* as long as tool_parse_list() makes them */
	const char *why;

	if (o->runs == PEER_RUNS_MAX) {
		o->why = "give fewer tests";
		return -EINVAL;
	}
	snprintf(copy, sizeof(copy), "%s", text);
	why = read_run(&o->run[o->runs++], copy);
	if (why)
		o->why = why;
	return why ? -EINVAL : 0;
}

static int
take_option(void *options, int id, const char *value, char *error, size_t size)
{
	struct peer_options *o = options;
	uint32_t port;

	switch (id) {
	case 'L':
		o->listen = true;
		break;
	case 'N':
		return options_parse_nic(&o->nic, value, error, size);
	case 'c':
		o->connect = value;
		return *value ? 0 : tool_bad(error, size, "--connect", value, "give a host");
	case 't':
		o->runs = 0;
		o->why = "give tests of --help, each with :SIZE or without";
		if (!tool_parse_list(value, take_run, o))
			return 0;
		if (!strstr(o->why, "; "))
			return tool_bad(error, size, "-t", value, o->why);
		snprintf(error, size, "-t '%s': %s", value, o->why);
		return -EINVAL;
	case 'n':
		return tool_parse_number(value, 5, 1u << 30, &o->count)
			   ? tool_bad(error, size, "-n", value, "give a count from 5 on")
			   : 0;
	case 'q':
		return tool_parse_small(value, 1, PEER_QPS_MAX, &o->qps)
			   ? tool_bad(error, size, "-q", value, "give 1 to 256")
			   : 0;
	case 'm':
		return tool_parse_small(value, 256, 4096, &o->mtu) || (o->mtu & (o->mtu - 1))
			   ? tool_bad(error, size, "-m", value, "give 256, 512, 1024, 2048 or 4096")
			   : 0;
	case 'P':
		return tool_parse_small(value, 1, 86400, &o->patience)
			   ? tool_bad(error, size, "--patience", value, "give seconds")
			   : 0;
	case 'p':
		if (tool_parse_small(value, 1, 65535 - PEER_RUNS_MAX, &port))
			return tool_bad(error, size, "--port", value, "give 1 to 65279");
		o->port = (uint16_t)port;
	}
	return 0;
}

static int
check(const struct peer_options *o, char *error, size_t size)
{
	const char *why = NULL;

	if (!o->nic.port[0])
		why = "no --nic; give roce:PORT,ip=ADDR/LEN or verbs:DEVICE";
	else if (o->listen == !!o->connect)
		why = "it is one end of two; give --listen or --connect HOST";
	else if (!o->runs)
		why = "no -t; give what to do";
	if (why)
		snprintf(error, size, "%s", why);
	return why ? -EINVAL : 0;
}

int
peer_options_parse(struct peer_options *o, int argc, char **argv, char *error, size_t size)
{
	static const struct option longs[] = {
	    {"connect", required_argument, NULL, 'c'},	{"help", no_argument, NULL, 'h'},
	    {"listen", no_argument, NULL, 'L'},		{"nic", required_argument, NULL, 'N'},
	    {"patience", required_argument, NULL, 'P'}, {"port", required_argument, NULL, 'p'},
	    {"version", no_argument, NULL, 'v'},	{0},
	};
	int rc;

	*o = (struct peer_options){.port = PEER_PORT, .qps = 16, .mtu = 1024, .patience = 20};
	rc = tool_options(argc, argv, "t:n:q:m:h", longs, take_option, o, error, size);
	o->help = rc == 'h';
	o->version = rc == 'v';
	if (rc)
		return rc < 0 ? rc : 0;
	for (uint32_t i = 0; i < o->runs; i++)
		if (o->run[i].test->srq)
			o->run[i].qps = o->qps;
	return check(o, error, size);
}
