/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "base/fail.h"
#include "engine/engine.h"
#include "ipc/remote.h"
#include "ipc/slot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define AT(field) OPTION_FIELD(struct options, field)

/* Keeps the text of an option, which replaces that of before unless the option is a list. */
static void
keep(struct options *o, const char *option, const char *text, bool list)
{
	unsigned i = 0;

	while (i < o->texts && (list || strcmp(o->text[i].option, option)))
		i++;
	if (i == OPTIONS_TEXTS)
		return;
	o->text[i].option = option;
	o->text[i].text = text;
	o->texts += i == o->texts;
}

static int
take_instance(void *into, const char *text, char *error, size_t size)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_-.";
	size_t length = strlen(text);
	struct options *o = into;

	o->instance = text;
	keep(o, "instance", text, false);
	return length > 0 && length < OPTIONS_NAME_MAX && text[0] != '.' && text[0] != '-' &&
		       strspn(text, allowed) == length
		   ? 0
		   : -EINVAL;
}

static int
take_run_dir(void *into, const char *text, char *error, size_t size)
{
	struct options *o = into;

	o->run_dir = text;
	keep(o, "run-dir", text, false);
	return text[0] == '/' && strlen(text) <= 60 ? 0 : -EINVAL;
}

static int
take_program_rate(void *into, const char *text, char *error, size_t size)
{
	struct options *o = into;

	keep(o, "program-rate", text, false);
	return rate_parse(text, &o->program_rate);
}

static int
take_nic(void *into, const char *text, char *error, size_t size)
{
	struct options *o = into;

	if (o->nics == OPTIONS_NICS)
		return fail(error, size, -EINVAL, "more than %u --nic; leave some out",
			    OPTIONS_NICS);
	if (options_parse_nic(&o->nic[o->nics], text, error, size))
		return -EINVAL;
	o->nics++;
	keep(o, "nic", text, true);
	return 0;
}

static int
take_allow(void *into, const char *text, char *error, size_t size)
{
	struct options *o = into;

	keep(o, "allow", text, true);
	return users_allow(&o->users, text, error, size);
}

static int
take_user_limit(void *into, const char *text, char *error, size_t size)
{
	struct options *o = into;

	keep(o, "user-limit", text, true);
	return users_limit(&o->users, text, error, size);
}

/* Alphabetical: also the order of --help. */
static const struct option_spec specs[] = {
    {"adopt", 0, OPTION_SIZE, AT(adopt), "SIZE", "256M",
     "memory of the program that a session may adopt, within --memory", .env = "WEIR_ADOPT",
     .max = 1ull << 50},
    {"allow", 0, OPTION_CALL, 0, 0, "WHO", NULL,
     "user:NAME or group:NAME that may attach; all others are refused; may be given several times",
     .take = take_allow},
    {"answers", 0, OPTION_SIZE, AT(answers), "SIZE", "128K",
     "answers to operations on exported memory that an engine of a peer may request at once, a "
     "power of two",
     .env = "WEIR_ANSWERS", .min = WEIR_ANSWERS_LEAST, .max = 16 << 20},
    {"arena", 0, OPTION_SIZE, AT(arena), "SIZE", "64M", "largest shared memory of a session",
     .env = "WEIR_ARENA", .min = 1 << 20, .max = 64ull << 30},
    {"channels", 0, OPTION_UNSIGNED, AT(channels), "N", "32", "channels of a session",
     .env = "WEIR_CHANNELS", .min = 1, .max = 1024},
    {"exports", 0, OPTION_UNSIGNED, AT(exports), "N", "256",
     "ranges of its regions that a session may export", .env = "WEIR_EXPORTS",
     .max = WEIR_EXPORTS_MAX},
    {"help", 'h', OPTION_FLAG, AT(help), NULL, NULL, "print this text"},
    {"idle", 0, OPTION_WORD, AT(idle), NULL, "adaptive",
     "behaviour of an engine without work: keep polling, or spin, yield and sleep",
     .env = "WEIR_IDLE", .words = "poll|adaptive"},
    {"idle-sleep", 0, OPTION_UNSIGNED, AT(idle_sleep_us), "USEC", "2000",
     "longest sleep of an engine whose port can't wake it", .env = "WEIR_IDLE_SLEEP", .min = 50,
     .max = 100000},
    {"idle-spin", 0, OPTION_UNSIGNED, AT(idle_spin_us), "USEC", "100",
     "time without work after which an adaptive engine sleeps", .env = "WEIR_IDLE_SPIN",
     .max = 10000000},
    {"instance", 0, OPTION_CALL, 0, 0, "NAME", "default",
     "name of this data plane; its run directory is RUN-DIR/NAME", .env = "WEIR_INSTANCE",
     .take = take_instance, .expected = "up to 31 letters, digits, '_', '-', '.'"},
    {"link-idle", 0, OPTION_UNSIGNED, AT(link_idle_s), "SEC", "60",
     "time without connections after which a link ends and releases its memory; 0: never",
     .env = "WEIR_LINK_IDLE", .max = 86400},
    {"links", 0, OPTION_UNSIGNED, AT(links), "N", NULL,
     "links from each engine to engines of peers; beyond this number, an unused link makes room "
     "[1171, or as many as fit into 1/32 of the machine's memory, up to 2048]",
     .env = "WEIR_LINKS", .min = 1, .max = ENGINE_LINKS_MOST},
    {"log-format", 0, OPTION_WORD, AT(log_format), NULL, "text",
     "format of log lines: for people, or for programs with time, level and fields",
     .env = "WEIR_LOG_FORMAT", .words = "text|logfmt|json"},
    {"log-level", 0, OPTION_WORD, AT(log_level), NULL, "info",
     "lowest severity to log; weirctl set log.level changes it", .env = "WEIR_LOG_LEVEL",
     .words = "error|warning|info|debug"},
    {"max-connections", 0, OPTION_UNSIGNED, AT(max_connections), "N", "16384",
     "connections of all sessions", .env = "WEIR_MAX_CONNECTIONS", .min = 1, .max = 1 << 20},
    {"max-memory", 0, OPTION_SIZE, AT(max_memory), "SIZE", NULL,
     "shared memory of all programs together: arenas, regions, segments [half of the memory of the "
     "machine or of its control group]",
     .env = "WEIR_MAX_MEMORY", .min = 2 << 20, .max = 1ull << 50},
    {"max-sessions", 0, OPTION_UNSIGNED, AT(max_sessions), "N", "64", "attached programs",
     .env = "WEIR_MAX_SESSIONS", .min = 1, .max = 4096},
    {"memory", 0, OPTION_SIZE, AT(memory), "SIZE", "1G",
     "total size of the regions of a session, allocated or adopted", .env = "WEIR_MEMORY",
     .max = 1ull << 50},
    {"nic", 0, OPTION_CALL, 0, 0, "SPEC", NULL,
     "a port: roce:PORT,ip=ADDR/LEN[,KEY=VALUE...] or verbs:DEVICE[,KEY=VALUE...]; may be given "
     "several times",
     .take = take_nic},
    {"node-timeout", 0, OPTION_UNSIGNED, AT(node_timeout_ms), "MSEC", "1000",
     "time without an answer from a peer on a link after which control is notified",
     .env = "WEIR_NODE_TIMEOUT", .min = 100, .max = 600000},
    {"peer-ring", 0, OPTION_SIZE, AT(peer_ring), "SIZE", "256K",
     "ring into which an engine of a peer writes", .env = "WEIR_PEER_RING", .min = 16 << 10,
     .max = 4 << 20},
    {"program-rate", 0, OPTION_CALL, 0, 0, "RATE", "none",
     "payload bytes per second that a program may send to peers: RATE[,BURST] or none",
     .env = "WEIR_PROGRAM_RATE", .take = take_program_rate, .expected = RATE_WORDS},
    {"program-weight", 0, OPTION_UNSIGNED, AT(program_weight), "N", "10",
     "weight of a program on links that others also use", .env = "WEIR_PROGRAM_WEIGHT", .min = 1,
     .max = 100},
    {"recv-wrs", 0, OPTION_UNSIGNED, AT(recv_wrs), "N", "128",
     "receive work requests granted to each engine of a peer; with many peers fewer, at least 8",
     .env = "WEIR_RECV_WRS", .min = 8, .max = 4096},
    {"regions", 0, OPTION_UNSIGNED, AT(regions), "N", "64",
     "regions that a session may have, allocated or adopted", .env = "WEIR_REGIONS",
     .max = WEIR_REGIONS_MAX},
    {"ring-idle", 0, OPTION_UNSIGNED, AT(ring_idle_s), "SEC", "10",
     "time of little traffic from a peer after which its ring releases its memory until traffic "
     "increases; 0: never",
     .env = "WEIR_RING_IDLE", .max = 86400},
    {"ring-slots", 0, OPTION_UNSIGNED, AT(ring_slots), "N", "1024",
     "slots of each ring of a channel, a power of two", .env = "WEIR_RING_SLOTS", .min = 32,
     .max = 1 << 20},
    {"run-dir", 0, OPTION_CALL, 0, 0, "DIR", "/run/weir",
     "directory of the run directories of all instances", .env = "WEIR_RUN_DIR",
     .take = take_run_dir, .expected = "an absolute path of at most 60 bytes"},
    {"session-connections", 0, OPTION_UNSIGNED, AT(session_connections), "N", "16384",
     "connections of one session; at most one for each KiB of its arena",
     .env = "WEIR_SESSION_CONNECTIONS", .min = 1, .max = 1 << 20},
    {"threshold", 0, OPTION_REAL, AT(threshold), "SHARE", "0.6",
     "share of the window at which credit is returned", .env = "WEIR_THRESHOLD", .most = 1},
    {"tx-frames", 0, OPTION_UNSIGNED, AT(tx_frames), "N", "4096",
     "frames that an engine has sent and that are not yet acknowledged", .env = "WEIR_TX_FRAMES",
     .min = 64, .max = 1 << 20},
    {"user-limit", 0, OPTION_CALL, 0, 0, "LIMIT", NULL,
     "USER:KEY=VALUE[,KEY=VALUE...], limits for all programs of a user together: sessions=, "
     "connections=, services=, memory=, regions=, exports=, segments=, rate=, priority=; USER * is "
     "each user "
     "that is not named; the default of memory, regions and segments is half of the limit for all "
     "users; may be given several times",
     .take = take_user_limit},
    {"version", 0, OPTION_FLAG, AT(version), NULL, NULL, "print the version"},
    {"window", 0, OPTION_SIZE, AT(window), "SIZE", "2M", "flow-control window of a connection",
     .env = "WEIR_WINDOW", .min = 64 << 10, .max = 1 << 30},
};

const struct option_table options_table = {
    OPTION_SPECS(specs, struct options),
    .exact = true,
    .remedy = "see --help, EAL options stand before --",
    .head = "usage: weir-dataplane [EAL options] -- [options]\n\n"
	    "The data plane of a node owns NICs and serves programs over shared memory.\n"
	    "Worker lcores are engines: -l 0,1 starts a main lcore and one engine.\n\n"
	    "Options (an option overrides the environment):\n",
    .tail = "\nKeys of --nic roce:PORT (PORT: DPDK port name or number):\n"
	    "  ip=ADDR/LEN                  address of the port and its network, IPv4 or IPv6\n"
	    "  gw=ADDR, route=NET/LEN@ADDR  gateway to all other networks, or to one; up to 8\n"
	    "  vlan=ID,pcp=N                VLAN tag of all frames and its priority [none, 0]\n"
	    "  pcp_low=N,pcp_high=N         pcp of connections with low, high priority [as pcp=]\n"
	    "  dscp=, dscp_low=, dscp_high= DSCP by priority, 0 to 63 [0, 8, 26]\n"
	    "  mtu=BYTES                    path MTU: 256, 512, 1024, 2048, 4096 [from the port]\n"
	    "  queues=N                     queues of the port to use [one per engine; memif 1]\n"
	    "  timeout=USEC, retry=N        longest wait for an ACK [250000], retries [7]\n"
	    "  rnr=N, rd_atomic=N           RNR retries, 7: no limit [7]; READs in flight\n"
	    "  loss=, dup=, reorder=, corrupt=PERCENT  impairments of transmitted frames [0]\n"
	    "  delay=USEC, jitter=USEC      delay of each transmitted frame, random addition [0]\n"
	    "  rate=MBITS, seed=N           rate limit of each engine [no limit], seed [1]\n"
	    "  fault=MSEC                   interval between queue pair failures [never]\n"
	    "\nKeys of --nic verbs:DEVICE (DEVICE: a name that `rdma link` prints):\n"
	    "  port=N                       port of the device [the first that is up]\n"
	    "  gid=N                        index of the GID [RoCE v2, IPv4 before IPv6]\n"
	    "  ip=ADDR/LEN                  the GID of this address\n"
	    "  sl=, sl_low=, sl_high=       service level by priority, 0 to 15 [0, then as sl=]\n"
	    "  dscp=, dscp_low=, dscp_high=, mtu=, timeout=, retry=, rnr=, rd_atomic=, fault=\n"
	    "                               as above [mtu from the port,\n"
	    "                               timeout 67000]\n"
	    "\nEAL options: see DPDK's documentation. --file-prefix defaults to weir-NAME.\n"
	    "--no-huge -m MB runs without hugepages, --in-memory without root.\n",
};

bool
options_know(const char *word)
{
	return strncmp(word, "--", 2) == 0 &&
	       option_find(&options_table, word + 2, strcspn(word + 2, "="));
}

bool
options_row(const struct options *o, unsigned index, struct weir_row_fact *r)
{
	for (size_t i = 0; i < options_table.count; i++) {
		const struct option_spec *spec = &specs[i];
		bool call = spec->type == OPTION_CALL;

		if (spec->type == OPTION_FLAG)
			continue; /* --help and --version */
		for (unsigned t = 0; t < (call ? o->texts : 1); t++) {
			if ((call && strcmp(o->text[t].option, spec->name)) || index-- != 0)
				continue;
			snprintf(r->name, sizeof(r->name), "%s", spec->name);
			if (call)
				snprintf(r->value, sizeof(r->value), "%s", o->text[t].text);
			else
				option_text(spec, o, r->value, sizeof(r->value));
			snprintf(r->from, sizeof(r->from), "%s",
				 spec->initial && !strcmp(r->value, spec->initial) ? "default"
										   : "set");
			return true;
		}
	}
	return false;
}

int
options_parse(struct options *o, int argc, char **argv, char *error, size_t size)
{
	if (option_defaults(&options_table, o, error, size) ||
	    option_parse(&options_table, o, &argc, argv, error, size))
		return -EINVAL;
	if (o->ring_slots & (o->ring_slots - 1))
		return fail(error, size, -EINVAL,
			    "--ring-slots %llu is not a power of two; give %llu",
			    (unsigned long long)o->ring_slots,
			    1ull << (64 - __builtin_clzll(o->ring_slots)));
	if (o->answers & (o->answers - 1))
		return fail(error, size, -EINVAL, "--answers %llu is not a power of two; give %llu",
			    (unsigned long long)o->answers,
			    1ull << (64 - __builtin_clzll(o->answers)));
	if (o->peer_ring & (o->peer_ring - 1))
		return fail(
		    error, size, -EINVAL, "--peer-ring %llu is not a power of two; give %llu",
		    (unsigned long long)o->peer_ring, 1ull << (64 - __builtin_clzll(o->peer_ring)));
	return 0;
}
