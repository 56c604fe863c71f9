/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

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

static int
small_number(const char *text, uint32_t max, uint32_t *value)
{
	uint64_t n;

	if (option_number(text, true, 1, max, &n))
		return -EINVAL;
	*value = (uint32_t)n;
	return 0;
}

/*
 * Takes an option behind a '+'. Returns NULL, or the error: "cause; remedy", or without a semicolon
 * the expected values.
 */
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
		return small_number(text + 1, PEER_QPS_MAX, &run->qps) ? "q1 to q256" : NULL;
	} else if (*text == 'D') {
		return small_number(text + 1, PEER_SECONDS_MAX, &run->seconds) ? "D1 to D3600"
									       : NULL;
	} else {
		for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
			if (!strcmp(text, refused[i].name) ||
			    (!strcmp(refused[i].name, "o") && *text == 'o' && text[1] >= '0' &&
			     text[1] <= '9'))
				return refused[i].why;
		return "a, b, qN, DSECONDS or reversed";
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
							: "tests of --help";
	run->size = run->test->size;
	if (size && small_number(size, PEER_SIZE_MAX, &run->size))
		return "sizes from 1 to 8m";
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
	char copy[64]; /* as long as option_list() makes them */
	const char *why;

	if (o->runs == PEER_RUNS_MAX) {
		o->why = "fewer tests";
		return -EINVAL;
	}
	snprintf(copy, sizeof(copy), "%s", text);
	why = read_run(&o->run[o->runs++], copy);
	if (why)
		o->why = why;
	return why ? -EINVAL : 0;
}

static int
take_runs(void *options, const char *text, char *error, size_t size)
{
	struct peer_options *o = options;

	o->runs = 0;
	o->why = "tests of --help, each with :SIZE or without";
	if (!option_list(text, take_run, o))
		return 0;
	if (!strstr(o->why, "; "))
		return option_invalid("-t", text, o->why, error, size);
	snprintf(error, size, "invalid value '%s' for -t: %s", text, o->why);
	return -EINVAL;
}

static int
take_nic(void *options, const char *text, char *error, size_t size)
{
	struct peer_options *o = options;

	return options_parse_nic(&o->nic, text, error, size);
}

static int
take_mtu(void *options, const char *text, char *error, size_t size)
{
	struct peer_options *o = options;
	uint64_t n;

	if (option_number(text, true, 256, 4096, &n) || (n & (n - 1)))
		return -EINVAL;
	o->mtu = (uint32_t)n;
	return 0;
}

#define AT(field) OPTION_FIELD(struct peer_options, field)

static const struct option_spec specs[] = {
    {"connect", 0, OPTION_TEXT, AT(connect), "HOST", NULL,
     "connect to the original servers; run K (from 0) uses TCP port --port + K", .min = 1,
     .expected = "a host"},
    {"help", 'h', OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"listen", 0, OPTION_FLAG, AT(listen), NULL, NULL,
     "wait for the original clients, one per run, all at one port"},
    {NULL, 'm', OPTION_CALL, 0, 0, "BYTES", "1024", "path MTU of the ping-pongs", .take = take_mtu,
     .expected = "256, 512, 1024, 2048 or 4096"},
    {NULL, 'n', OPTION_SIZE, AT(count), "COUNT", NULL,
     "operations of each run, the same at the other end [its default]", .min = 5, .max = 1u << 30},
    {"nic", 0, OPTION_CALL, 0, 0, "SPEC", NULL,
     "as for weir-dataplane: roce:PORT,ip=ADDR/LEN[,...] or verbs:DEVICE[,...]", .take = take_nic},
    {"patience", 0, OPTION_SIZE, AT(patience), "SECONDS", "20", "longest time without progress",
     .min = 1, .max = 86400},
    {"port", 0, OPTION_SIZE, AT(port), "N", "18515", "TCP port", .min = 1,
     .max = 65535 - PEER_RUNS_MAX},
    {NULL, 'q', OPTION_SIZE, AT(qps), "N", "16",
     "queue pairs of srq_pingpong, the same at the other end", .min = 1, .max = PEER_QPS_MAX},
    {NULL, 't', OPTION_CALL, 0, 0, "RUN[,RUN]", NULL,
     "tests in this order: TEST[:SIZE][+OPTION...], SIZE as at the other end [its default]",
     .take = take_runs},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
};

const struct option_table peer_option_table = {
    OPTION_SPECS(specs, struct peer_options),
    .head =
	"Usage: weir-roce-peer [EAL options] -- --nic SPEC {--listen | --connect HOST} -t "
	"RUN[,RUN] [options]\n"
	"Replaces one end of ibv_rc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong and of perftest's "
	"programs,\n"
	"on Weir's NIC layer.\n\n",
    .tail = "\n"
	    "Tests: rc_pingpong, ud_pingpong, srq_pingpong;\n"
	    "       send, write, read, atomic, each with suffix _bw or _lat, for ib_send_bw "
	    "...;\n"
	    "       ud_send_bw, ud_send_lat for -c UD; cas_bw, cas_lat for -A CMP_AND_SWAP\n"
	    "Options of perftest that both ends need: a (all sizes), b (both directions), qN "
	    "(queue\n"
	    "       pairs), DSECONDS (duration), reversed; send_bw:1k+b+q4 for ib_send_bw -s 1k -b "
	    "-q "
	    "4\n"
	    "       Without a counterpart here: -e, -F, -o, -Q, -x, --ipv6, --odp, --use-srq. Not "
	    "offered:\n"
	    "       -c UC, -c XRC, -R, -z\n",
};

static int
check(const struct peer_options *o, char *error, size_t size)
{
	const char *why = NULL;

	if (!o->nic.port[0])
		why = "no --nic; give roce:PORT,ip=ADDR/LEN or verbs:DEVICE";
	else if (o->listen == !!o->connect)
		why = "it is one end of two; give --listen or --connect HOST";
	else if (!o->runs)
		why = "no -t; give the tests to run";
	if (why)
		snprintf(error, size, "%s", why);
	return why ? -EINVAL : 0;
}

int
peer_options_parse(struct peer_options *o, int argc, char **argv, char *error, size_t size)
{
	argc--;
	if (option_defaults(&peer_option_table, o, error, size) ||
	    option_parse(&peer_option_table, o, &argc, argv + 1, error, size))
		return -EINVAL;
	if (o->help || o->version)
		return 0;
	for (uint32_t i = 0; i < o->runs; i++)
		if (o->run[i].test->srq)
			o->run[i].qps = o->qps;
	return check(o, error, size);
}
