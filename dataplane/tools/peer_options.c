/* SPDX-License-Identifier: BSD-3-Clause */
#include "peer_options.h"

#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct peer_test tests[] = {
    {"rc_pingpong", PEER_PINGPONG, .size = 4096, .count = 1000},
    {"ud_pingpong", PEER_PINGPONG, .ud = true, .size = 2048, .count = 1000},
    {"srq_pingpong", PEER_PINGPONG, .srq = true, .size = 4096, .count = 1000},
    {"send_bw", PEER_SEND, .greets = 4, .size = 65536, .count = 1000},
    {"send_lat", PEER_SEND, .latency = true, .greets = 4, .size = 2, .count = 1000},
    {"ud_send_bw", PEER_SEND, .ud = true, .greets = 4, .size = 1024, .count = 1000},
    {"ud_send_lat", PEER_SEND, .ud = true, .latency = true, .greets = 4, .size = 2, .count = 1000},
    {"write_bw", PEER_WRITE, .greets = 3, .size = 65536, .count = 5000},
    {"write_lat", PEER_WRITE, .latency = true, .greets = 4, .size = 2, .count = 1000},
    {"read_bw", PEER_READ, .greets = 3, .size = 65536, .count = 1000},
    {"read_lat", PEER_READ, .latency = true, .greets = 4, .size = 2, .count = 1000},
    {"atomic_bw", PEER_FADD, .greets = 3, .size = 8, .count = 1000},
    {"atomic_lat", PEER_FADD, .latency = true, .greets = 4, .size = 8, .count = 1000},
    {"cas_bw", PEER_CAS, .greets = 3, .size = 8, .count = 1000},
    {"cas_lat", PEER_CAS, .latency = true, .greets = 4, .size = 8, .count = 1000},
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
	    "  -t RUN[,RUN]       what to do, in this order: TEST[:SIZE], SIZE as there [their "
	    "default]\n"
	    "\n"
	    "Tests: rc_pingpong, ud_pingpong, srq_pingpong;\n"
	    "       send, write, read, atomic, each with _bw or _lat behind it, for ib_send_bw "
	    "...;\n"
	    "       ud_send_bw, ud_send_lat: -c UD there; cas_bw, cas_lat: -A CMP_AND_SWAP there\n",
	    stdout);
}

static const struct peer_test *
find_test(const char *name, size_t length)
{
	for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (strlen(tests[i].name) == length && !strncmp(tests[i].name, name, length))
			return &tests[i];
	return NULL;
}

/* TEST[:SIZE] */
static int
take_run(void *options, const char *text)
{
	struct peer_options *o = options;
	size_t name = strcspn(text, ":");
	struct peer_run *run;

	if (o->runs == PEER_RUNS_MAX)
		return -EINVAL;
	run = &o->run[o->runs++];
	run->test = find_test(text, name);
	if (!run->test)
		return -EINVAL;
	run->size = run->test->size;
	if (!text[name])
		return 0;
	if (tool_parse_small(text + name + 1, 1, PEER_SIZE_MAX, &run->size))
		return -EINVAL;
	return run->test->op >= PEER_FADD && run->size != 8 ? -EINVAL : 0;
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
		return tool_parse_list(value, take_run, o)
			   ? tool_bad(error, size, "-t", value,
				      "give tests of --help, each with :SIZE or without")
			   : 0;
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
	return check(o, error, size);
}
