/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "ipc/slot.h"
#include "base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
	KIND_NUMBER,
	KIND_SIZE,
	KIND_SHARE,
	KIND_NAME,
	KIND_PATH,
	KIND_IDLE,
	KIND_RATE,
	KIND_LEVEL,
	KIND_FORMAT,
	KIND_NIC,
	KIND_ALLOW,
	KIND_USER
};

struct row {
	const char *name, *env, *argument;
	enum kind kind;
	size_t offset;
	uint64_t min, max;
	const char *initial; /* default, as one would type it; NULL: none */
	const char *help;
};

#define RECV_WRS_MAX (8u << 20) /* of an engine: what its completion queue can take */

#define AT(field) offsetof(struct options, field)

/* Alphabetical: also the order of --help. */
static const struct row rows[] = {
    {"adopt", "WEIR_ADOPT", "SIZE", KIND_SIZE, AT(adopt), 0, 64ull << 30, "256M",
     "memory of its own that a session may adopt"},
    {"allow", NULL, "WHO", KIND_ALLOW, 0, 0, 0, NULL,
     "user:NAME or group:NAME that may attach, others may not; may be given several times"},
    {"arena", "WEIR_ARENA", "SIZE", KIND_SIZE, AT(arena), 1 << 20, 64ull << 30, "64M",
     "largest shared memory of a session"},
    {"channels", "WEIR_CHANNELS", "N", KIND_NUMBER, AT(channels), 1, 1024, "32",
     "channels of a session"},
    {"idle", "WEIR_IDLE", "poll|adaptive", KIND_IDLE, AT(idle), 0, 0, "adaptive",
     "what an engine without work does: poll on, or spin, yield and sleep"},
    {"idle-sleep", "WEIR_IDLE_SLEEP", "USEC", KIND_NUMBER, AT(idle_sleep_us), 50, 100000, "2000",
     "longest sleep while the port can't wake its engine"},
    {"idle-spin", "WEIR_IDLE_SPIN", "USEC", KIND_NUMBER, AT(idle_spin_us), 0, 10000000, "100",
     "time without work after which an adaptive engine sleeps"},
    {"instance", "WEIR_INSTANCE", "NAME", KIND_NAME, AT(instance), 0, 0, "default",
     "name of this data plane; its run directory is RUN-DIR/NAME"},
    {"links", "WEIR_LINKS", "N", KIND_NUMBER, AT(links), 1, 4096, "64",
     "links of each engine to engines of peers"},
    {"log-format", "WEIR_LOG_FORMAT", "text|logfmt|json", KIND_FORMAT, AT(log_format), 0, 0, "text",
     "lines of the log: for people, or with time, level and fields for programs"},
    {"log-level", "WEIR_LOG_LEVEL", "error|warning|info|debug", KIND_LEVEL, AT(log_level), 0, 0,
     "info", "what is logged; weirctl set log.level changes it"},
    {"max-connections", "WEIR_MAX_CONNECTIONS", "N", KIND_NUMBER, AT(max_connections), 1, 1 << 20,
     "16384", "connections of all sessions"},
    {"max-sessions", "WEIR_MAX_SESSIONS", "N", KIND_NUMBER, AT(max_sessions), 1, 4096, "64",
     "attached programs"},
    {"memory", "WEIR_MEMORY", "SIZE", KIND_SIZE, AT(memory), 2 << 20, 1ull << 50, NULL,
     "shared memory of all programs together: arenas, what they adopt, segments [half of the "
     "machine's, or of what its control group may have]"},
    {"nic", NULL, "SPEC", KIND_NIC, 0, 0, 0, NULL,
     "a port: roce:PORT,ip=ADDR/LEN[,KEY=VALUE...] or verbs:DEVICE[,KEY=VALUE...]; may be given "
     "several times"},
    {"node-timeout", "WEIR_NODE_TIMEOUT", "MSEC", KIND_NUMBER, AT(node_timeout_ms), 100, 600000,
     "1000", "time without an answer of a peer on a link after which control is told"},
    {"peer-ring", "WEIR_PEER_RING", "SIZE", KIND_SIZE, AT(peer_ring), 16 << 10, 4 << 20, "256K",
     "ring into which an engine of a peer writes"},
    {"program-rate", "WEIR_PROGRAM_RATE", "RATE", KIND_RATE, AT(program_rate), 0, 0, "none",
     "payload bytes/s that a program may send to peers: RATE[,BURST] or none"},
    {"program-weight", "WEIR_PROGRAM_WEIGHT", "N", KIND_NUMBER, AT(program_weight), 1, 100, "10",
     "a program's part of links that others use too"},
    {"recv-wrs", "WEIR_RECV_WRS", "N", KIND_NUMBER, AT(recv_wrs), 8, 4096, "128",
     "receive work requests granted to each engine of a peer"},
    {"regions", "WEIR_REGIONS", "N", KIND_NUMBER, AT(regions), 0, WEIR_REGIONS_MAX, "64",
     "ranges of memory that a session may adopt"},
    {"ring-slots", "WEIR_RING_SLOTS", "N", KIND_NUMBER, AT(ring_slots), 32, 1 << 20, "1024",
     "slots of each ring of a channel, a power of two"},
    {"run-dir", "WEIR_RUN_DIR", "DIR", KIND_PATH, AT(run_dir), 0, 0, "/run/weir",
     "run directories of all instances lie here"},
    {"session-connections", "WEIR_SESSION_CONNECTIONS", "N", KIND_NUMBER, AT(session_connections),
     1, 1 << 20, "16384", "connections of one session; one for each KiB of its arena at most"},
    {"threshold", "WEIR_THRESHOLD", "SHARE", KIND_SHARE, AT(threshold), 0, 1, "0.6",
     "share of the window at which credit is returned"},
    {"tx-frames", "WEIR_TX_FRAMES", "N", KIND_NUMBER, AT(tx_frames), 64, 1 << 20, "4096",
     "frames of an engine sent and not yet acknowledged"},
    {"user-limit", NULL, "LIMIT", KIND_USER, 0, 0, 0, NULL,
     "USER:KEY=VALUE[,KEY=VALUE...], what all programs of a user may use together: sessions=, "
     "connections=, services=, memory=, regions=, segments=, rate=; USER * is each that isn't "
     "named; memory, regions and segments are half of all unless given; may be given several "
     "times"},
    {"window", "WEIR_WINDOW", "SIZE", KIND_SIZE, AT(window), 64 << 10, 1 << 30, "2M",
     "flow-control window of a connection"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* A number; with `suffixes` K, M, G may follow. */
static int
parse_number(const char *text, bool suffixes, uint64_t min, uint64_t max, uint64_t *value)
{
	char *end;
	unsigned long long n;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (suffixes && *end) {
		static const char letters[] = "KMG";
		const char *at = strchr(letters, *end >= 'a' ? *end - 32 : *end);

		if (!at)
			return -EINVAL;
		shift = 10 * (unsigned)(at - letters + 1);
		end++;
	}
	if (*end || n > UINT64_MAX >> shift || n << shift < min || n << shift > max)
		return -EINVAL;
	*value = n << shift;
	return 0;
}

static int
parse_real(const char *text, double min, double max, double *value)
{
	char *end;
	double v;

	if ((*text < '0' || *text > '9') && *text != '.')
		return -EINVAL;
	v = strtod(text, &end);
	if (*end || !(v >= min && v <= max))
		return -EINVAL;
	*value = v;
	return 0;
}

static bool
name_is_good(const char *name)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_-.";
	size_t length = strlen(name);

	return length > 0 && length < OPTIONS_NAME_MAX && name[0] != '.' && name[0] != '-' &&
	       strspn(name, allowed) == length;
}

static int
set_idle(enum idle_mode *idle, const char *text)
{
	if (strcmp(text, "poll") == 0)
		*idle = IDLE_POLL;
	else if (strcmp(text, "adaptive") == 0)
		*idle = IDLE_ADAPTIVE;
	else
		return -EINVAL;
	return 0;
}

static int
set_nic(struct options *o, const char *text, char *error, size_t size)
{
	if (o->nics == OPTIONS_NICS)
		return fail(error, size, -EINVAL, "more than %u --nic; leave some out",
			    OPTIONS_NICS);
	if (options_parse_nic(&o->nic[o->nics], text, error, size))
		return -EINVAL;
	o->nics++;
	return 0;
}

static const char *
expected(const struct row *row, char *buf, size_t size)
{
	switch (row->kind) {
	case KIND_NAME:
		return "up to 31 letters, digits, '_', '-', '.'";
	case KIND_PATH:
		return "an absolute path of at most 60 bytes";
	case KIND_IDLE:
		return "poll or adaptive";
	case KIND_RATE:
		return RATE_WORDS;
	case KIND_LEVEL:
		return "error, warning, info or debug";
	case KIND_FORMAT:
		return "text, logfmt or json";
	case KIND_SIZE:
		snprintf(buf, size, "bytes from %llu to %llu, K, M or G may follow",
			 (unsigned long long)row->min, (unsigned long long)row->max);
		return buf;
	default:
		snprintf(buf, size, "a number from %llu to %llu", (unsigned long long)row->min,
			 (unsigned long long)row->max);
		return buf;
	}
}

/* Sets the option of `row` from text; `from` says where the text stood. */
static int
set_row(struct options *o, const struct row *row, const char *from, const char *text, char *error,
	size_t size)
{
	void *field = (char *)o + row->offset;
	char buf[96];
	int rc = 0;

	switch (row->kind) {
	case KIND_NUMBER:
	case KIND_SIZE:
		rc = parse_number(text, row->kind == KIND_SIZE, row->min, row->max, field);
		break;
	case KIND_SHARE:
		rc = parse_real(text, row->min, row->max, field);
		break;
	case KIND_NAME:
		rc = name_is_good(text) ? 0 : -EINVAL;
		*(const char **)field = text;
		break;
	case KIND_PATH:
		rc = text[0] == '/' && strlen(text) <= 60 ? 0 : -EINVAL;
		*(const char **)field = text;
		break;
	case KIND_IDLE:
		rc = set_idle(field, text);
		break;
	case KIND_RATE:
		rc = rate_parse(text, field);
		break;
	case KIND_LEVEL:
		rc = log_level_parse(text, field) ? 0 : -EINVAL;
		break;
	case KIND_FORMAT:
		rc = log_format_parse(text, field) ? 0 : -EINVAL;
		break;
	case KIND_NIC:
		return set_nic(o, text, error, size);
	case KIND_ALLOW:
		return users_allow(&o->users, text, error, size);
	case KIND_USER:
		return users_limit(&o->users, text, error, size);
	}
	if (rc)
		return fail(error, size, -EINVAL, "%s '%s' is not good; give %s", from, text,
			    expected(row, buf, sizeof(buf)));
	return 0;
}

static const struct row *
find_row(const char *name, size_t length)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strlen(rows[i].name) == length && strncmp(rows[i].name, name, length) == 0)
			return &rows[i];
	return NULL;
}

bool
options_know(const char *word)
{
	return strncmp(word, "--", 2) == 0 && find_row(word + 2, strcspn(word + 2, "="));
}

/* Takes one option and its argument; returns how many words that were, or -EINVAL. */
static int
take_option(struct options *o, int argc, char **argv, char *error, size_t size)
{
	const char *word = argv[0], *equals = strchr(word, '='), *value;
	size_t length = equals ? (size_t)(equals - word) : strlen(word);
	const struct row *row;
	char from[64];

	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		o->help = true;
		return 1;
	}
	if (strcmp(word, "--version") == 0) {
		o->version = true;
		return 1;
	}
	row = strncmp(word, "--", 2) == 0 ? find_row(word + 2, length - 2) : NULL;
	if (!row)
		return fail(error, size, -EINVAL,
			    "unknown option '%s'; see --help, EAL options stand before --", word);
	value = equals ? equals + 1 : argc > 1 ? argv[1] : NULL;
	if (!value)
		return fail(error, size, -EINVAL, "option %s lacks its argument; give --%s %s",
			    word, row->name, row->argument);
	snprintf(from, sizeof(from), "--%s", row->name);
	if (set_row(o, row, from, value, error, size))
		return -EINVAL;
	return equals ? 1 : 2;
}

static int
check_together(const struct options *o, char *error, size_t size)
{
	if (o->ring_slots & (o->ring_slots - 1))
		return fail(error, size, -EINVAL, "--ring-slots %llu is no power of two; give %llu",
			    (unsigned long long)o->ring_slots,
			    1ull << (64 - __builtin_clzll(o->ring_slots)));
	if (o->peer_ring & (o->peer_ring - 1))
		return fail(error, size, -EINVAL, "--peer-ring %llu is no power of two; give %llu",
			    (unsigned long long)o->peer_ring,
			    1ull << (64 - __builtin_clzll(o->peer_ring)));
	if (o->links * o->recv_wrs > RECV_WRS_MAX)
		return fail(error, size, -EINVAL,
			    "--links %llu with --recv-wrs %llu are %llu receive work requests; "
			    "lower one, at most %u are possible",
			    (unsigned long long)o->links, (unsigned long long)o->recv_wrs,
			    (unsigned long long)(o->links * o->recv_wrs), RECV_WRS_MAX);
	return 0;
}

int
options_parse(struct options *o, int argc, char **argv, char *error, size_t size)
{
	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < ROWS; i++) {
		const char *env = rows[i].env ? getenv(rows[i].env) : NULL;
		const char *text = env && *env ? env : rows[i].initial;

		if (text && set_row(o, &rows[i], text == env ? rows[i].env : rows[i].name, text,
				    error, size))
			return -EINVAL;
	}
	for (int i = 0; i < argc;) {
		int taken = take_option(o, argc - i, argv + i, error, size);

		if (taken < 0)
			return taken;
		i += taken;
	}
	return check_together(o, error, size);
}

void
options_usage(void)
{
	printf("usage: weir-dataplane [EAL options] -- [options]\n\n"
	       "The data plane of a node: owns NICs, serves programs over shared memory.\n"
	       "Worker lcores are engines: -l 0,1 is a main lcore and one engine.\n\n"
	       "Options (a flag wins over the environment):\n");
	for (size_t i = 0; i < ROWS; i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s %s", rows[i].name, rows[i].argument);
		printf("  %-28s %s", left, rows[i].help);
		if (rows[i].initial)
			printf(" [%s]", rows[i].initial);
		if (rows[i].env)
			printf(" ($%s)", rows[i].env);
		putchar('\n');
	}
	printf("  %-28s %s\n  %-28s %s\n", "-h, --help", "this text", "--version", "the version");
	printf(
	    "\nKeys of --nic roce:PORT (PORT: DPDK port name or number):\n"
	    "  ip=ADDR/LEN                  address of the port and its network, IPv4 or IPv6\n"
	    "  vlan=ID,pcp=N                VLAN tag of all frames and its priority [none, 0]\n"
	    "  mtu=BYTES                    path MTU: 256, 512, 1024, 2048, 4096 [from the port]\n"
	    "  queues=N                     queues of the port to use [one an engine; memif 1]\n"
	    "  timeout=USEC, retry=N        longest wait for an ACK [250000], repetitions [7]\n"
	    "  rnr=N, rd_atomic=N           RNR repetitions, 7 without limit [7]; READs under way\n"
	    "  loss=, dup=, reorder=PERCENT impairments of transmitted frames [0]\n"
	    "  delay=USEC, seed=N           delay of each transmitted frame [0], seed [1]\n"
	    "  fault=MSEC                   a queue pair fails so often [never]\n"
	    "\nKeys of --nic verbs:DEVICE (DEVICE: as `rdma link` names it):\n"
	    "  port=N                       port of the device [the first that is up]\n"
	    "  gid=N                        index of the GID [RoCE v2, IPv4 before IPv6]\n"
	    "  ip=ADDR/LEN                  the GID of this address\n"
	    "  mtu=, timeout=, retry=, rnr=, rd_atomic=, fault=   as above [mtu from the port,\n"
	    "                               timeout 67000]\n"
	    "\nEAL options: see dpdk's documentation; --file-prefix is weir-NAME unless given,\n"
	    "--no-huge -m MB runs without hugepages, --in-memory without root.\n");
}
