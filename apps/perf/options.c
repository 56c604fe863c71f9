/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "socket.h"

#include "weir/stream.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_ADOPT = 256,
	OPT_ALL,
	OPT_ALLTOALL,
	OPT_CALIBRATE,
	OPT_CONNECTIONS,
	OPT_COPY,
	OPT_CPU,
	OPT_CSV,
	OPT_FLAGS,
	OPT_INSTANCE,
	OPT_JSON,
	OPT_LARGE,
	OPT_LOOP,
	OPT_NO_CALIBRATE,
	OPT_PATIENCE,
	OPT_PAUSE,
	OPT_PICK,
	OPT_PROGRAMS,
	OPT_PUBLIC,
	OPT_RATE,
	OPT_REGION,
	OPT_SEED,
	OPT_SERVICE,
	OPT_STATS,
	OPT_THREADS,
	OPT_TRANSPORT,
	OPT_VERIFY,
	OPT_VERSION,
	OPT_WAIT
};

static const struct option long_options[] = {
    {"adopt", no_argument, NULL, OPT_ADOPT},
    {"all", no_argument, NULL, OPT_ALL},
    {"alltoall", no_argument, NULL, OPT_ALLTOALL},
    {"bidirectional", no_argument, NULL, 'b'},
    {"calibrate", no_argument, NULL, OPT_CALIBRATE},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"copy", no_argument, NULL, OPT_COPY},
    {"count", required_argument, NULL, 'n'},
    {"cpu", required_argument, NULL, OPT_CPU},
    {"csv", no_argument, NULL, OPT_CSV},
    {"duration", required_argument, NULL, 'D'},
    {"flags", required_argument, NULL, OPT_FLAGS},
    {"help", no_argument, NULL, 'h'},
    {"instance", required_argument, NULL, OPT_INSTANCE},
    {"interactive", no_argument, NULL, 'i'},
    {"json", no_argument, NULL, OPT_JSON},
    {"large", required_argument, NULL, OPT_LARGE},
    {"loop", no_argument, NULL, OPT_LOOP},
    {"no-calibrate", no_argument, NULL, OPT_NO_CALIBRATE},
    {"patience", required_argument, NULL, OPT_PATIENCE},
    {"pause", required_argument, NULL, OPT_PAUSE},
    {"pick", required_argument, NULL, OPT_PICK},
    {"programs", required_argument, NULL, OPT_PROGRAMS},
    {"public", no_argument, NULL, OPT_PUBLIC},
    {"rate", required_argument, NULL, OPT_RATE},
    {"region", required_argument, NULL, OPT_REGION},
    {"seed", required_argument, NULL, OPT_SEED},
    {"service", required_argument, NULL, OPT_SERVICE},
    {"size", required_argument, NULL, 's'},
    {"stats-period", required_argument, NULL, OPT_STATS},
    {"test", required_argument, NULL, 't'},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"transport", required_argument, NULL, OPT_TRANSPORT},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"version", no_argument, NULL, OPT_VERSION},
    {"wait", required_argument, NULL, OPT_WAIT},
    {"window", required_argument, NULL, 'w'},
    {NULL, 0, NULL, 0},
};

static int
parse_number(const char *text, uint64_t *value)
{
	char *end;
	unsigned long long n;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 0);
	if (errno || *end)
		return -EINVAL;
	*value = n;
	return 0;
}

int
perf_parse_size(const char *text, uint64_t *value)
{
	size_t n = strlen(text);
	char digits[24];
	unsigned shift = 0;

	if (n == 0 || n >= sizeof(digits))
		return -EINVAL;
	memcpy(digits, text, n + 1);
	if (digits[n - 1] == 'k' || digits[n - 1] == 'K')
		shift = 10;
	else if (digits[n - 1] == 'm' || digits[n - 1] == 'M')
		shift = 20;
	if (shift)
		digits[n - 1] = '\0';
	if (parse_number(digits, value) || *value > UINT64_MAX >> shift)
		return -EINVAL;
	*value <<= shift;
	return 0;
}

/* Takes one piece of a comma list off *list into buf; false: none left, or an empty or long one. */
static bool
next_piece(const char **list, char *buf, size_t size)
{
	size_t n = strcspn(*list, ",");

	if (n == 0 || n >= size)
		return false;
	memcpy(buf, *list, n);
	buf[n] = '\0';
	*list += n + ((*list)[n] == ',' && (*list)[n + 1] != '\0');
	return true;
}

static int
parse_sizes(struct perf_options *o, const char *list)
{
	char piece[24];
	uint64_t size;

	while (*list) {
		if (!next_piece(&list, piece, sizeof(piece)) || perf_parse_size(piece, &size) ||
		    size > WEIR_STREAM_MESSAGE_MAX || o->size_count == OPTIONS_SIZES)
			return -EINVAL;
		o->sizes[o->size_count++] = (uint32_t)size;
	}
	return o->size_count ? 0 : -EINVAL;
}

static int
parse_tests(struct perf_options *o, const char *list)
{
	char piece[8];
	uint32_t t;

	while (*list) {
		if (!next_piece(&list, piece, sizeof(piece)) || o->test_count == PERF_TESTS)
			return -EINVAL;
		for (t = 0; t < PERF_TESTS && strcmp(piece, perf_test_name(t)) != 0; t++)
			;
		if (t == PERF_TESTS)
			return -EINVAL;
		o->tests[o->test_count++] = t;
	}
	return o->test_count ? 0 : -EINVAL;
}

static const struct {
	const char *name;
	uint32_t flag;
} flag_names[] = {{"RC", WEIR_RC},
		  {"RING", WEIR_RING},
		  {"SEND", WEIR_SEND},
		  {"READ", WEIR_READ},
		  {"WRITE", WEIR_WRITE}};
#define FLAG_NAMES (sizeof(flag_names) / sizeof(flag_names[0]))

/* Names of stream.h without their WEIR_; one operation at most. */
static int
parse_flags(struct perf_options *o, const char *list)
{
	uint32_t operations, flags = 0, i;
	char piece[8];

	while (*list) {
		if (!next_piece(&list, piece, sizeof(piece)))
			return -EINVAL;
		for (i = 0; i < FLAG_NAMES && strcmp(piece, flag_names[i].name) != 0; i++)
			;
		if (i == FLAG_NAMES)
			return -EINVAL;
		flags |= flag_names[i].flag;
	}
	operations = flags & ~WEIR_RC;
	o->flags = flags;
	return flags && !(operations & (operations - 1)) ? 0 : -EINVAL;
}

const char *
perf_flags_text(const struct perf_options *o)
{
	static char text[32];

	snprintf(text, sizeof(text), "RC");
	for (uint32_t i = 1; i < FLAG_NAMES; i++)
		if (o->flags & flag_names[i].flag)
			snprintf(text, sizeof(text), "RC,%s", flag_names[i].name);
	return text;
}

static int
parse_bounded(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	return parse_number(text, value) || *value < least || *value > most ? -EINVAL : 0;
}

static int
parse_duration(const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end == text || *end || !(*value >= 0.001) || !(*value <= 86400) ? -EINVAL : 0;
}

static int
parse_rate(const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	if (*end == 'k' || *end == 'K' || *end == 'm' || *end == 'M')
		*value *= *end == 'k' || *end == 'K' ? 1e3 : 1e6, end++;
	return end == text || *end || !(*value >= 0) || !(*value <= 1e12) ? -EINVAL : 0;
}

static int
parse_period(const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end == text || *end || !(*value >= 0) || !(*value <= 86400) ? -EINVAL : 0;
}

/* One of two words: which, or -EINVAL. */
static int
parse_either(const char *text, const char *no, const char *yes, bool *value)
{
	*value = strcmp(text, yes) == 0;
	return *value || strcmp(text, no) == 0 ? 0 : -EINVAL;
}

static int
parse_region(const char *text, uint64_t *value)
{
	return perf_parse_size(text, value) || *value < 4096 || *value > 1ull << 40 ? -EINVAL : 0;
}

static void
all_sizes(struct perf_options *o)
{
	o->size_count = 0;
	for (uint32_t size = 8; size <= WEIR_STREAM_MESSAGE_MAX; size *= 2)
		o->sizes[o->size_count++] = size;
}

/* An option without an argument; false: it is none. */
static bool
take_flag(struct perf_options *o, int option)
{
	switch (option) {
	case OPT_ADOPT:
		return o->adopt = true;
	case OPT_ALL:
		all_sizes(o);
		return true;
	case OPT_ALLTOALL:
		return o->alltoall = true;
	case OPT_CALIBRATE:
		return o->calibrate = true;
	case OPT_NO_CALIBRATE:
		return o->no_calibrate = true;
	case OPT_COPY:
		return o->copy = true;
	case OPT_CSV:
		o->format = FORMAT_CSV;
		return true;
	case OPT_JSON:
		o->format = FORMAT_JSON;
		return true;
	case OPT_LOOP:
		return o->loop = true;
	case OPT_PUBLIC:
		return o->is_public = true;
	case OPT_VERIFY:
		return o->verify = true;
	case 'b':
		return o->both = true;
	case 'i':
		return o->interactive = true;
	}
	return false;
}

/* How many, of what there can be several. 0 or -EINVAL. */
static int
take_crowd(struct perf_options *o, int option, const char *arg)
{
	uint64_t n = 0;
	int rc = -EINVAL;

	switch (option) {
	case OPT_CONNECTIONS:
		rc = parse_bounded(arg, 1, 1 << 20, &n);
		o->connections = (uint32_t)n;
		break;
	case OPT_PROGRAMS:
		rc = parse_bounded(arg, 1, OPTIONS_NODES, &n);
		o->programs = (uint32_t)n;
		break;
	case OPT_THREADS:
		rc = parse_bounded(arg, 1, OPTIONS_NODES, &n);
		o->threads = (uint32_t)n;
		break;
	}
	return rc;
}

/* An option whose argument is a number within bounds. 0 or -EINVAL. */
static int
take_number(struct perf_options *o, int option, const char *arg)
{
	uint64_t n = 0;
	int rc = -EINVAL;

	switch (option) {
	case 'n':
		return parse_bounded(arg, 1, UINT64_MAX >> 8, &o->count);
	case OPT_SEED:
		return parse_bounded(arg, 0, UINT64_MAX, &o->seed);
	case OPT_CPU:
		rc = parse_bounded(arg, 0, CPU_SETSIZE - 1, &n);
		o->cpu = (int)n;
		break;
	case OPT_LARGE:
		o->large_given = true;
		return parse_bounded(arg, 0, UINT64_MAX >> 8, &o->large);
	case OPT_PATIENCE:
		rc = parse_bounded(arg, 1, 86400, &n);
		o->patience_s = (int)n;
		break;
	case OPT_PAUSE:
		rc = parse_bounded(arg, 1, 60000, &n);
		o->pause_ms = (uint32_t)n;
		break;
	case 'w':
		rc = parse_bounded(arg, 1, UINT32_MAX, &n);
		o->window = (uint32_t)n;
		break;
	}
	return rc ? take_crowd(o, option, arg) : 0;
}

/* One option with or without its argument. 0 or -EINVAL. */
static int
take_option(struct perf_options *o, int option, const char *arg)
{
	if (take_flag(o, option))
		return 0;
	switch (option) {
	case OPT_INSTANCE:
		o->instance = arg;
		return 0;
	case OPT_SERVICE:
		o->service = arg;
		return 0;
	case OPT_WAIT:
		return parse_either(arg, "poll", "sleep", &o->sleep);
	case OPT_TRANSPORT:
		return parse_either(arg, "weir", "tcp", &o->tcp);
	case OPT_PICK:
		return parse_either(arg, "turn", "random", &o->random);
	case OPT_RATE:
		return parse_rate(arg, &o->rate);
	case OPT_STATS:
		return parse_period(arg, &o->period_s);
	case OPT_REGION:
		return parse_region(arg, &o->region);
	case 'D':
		o->duration_given = true;
		return parse_duration(arg, &o->duration_s);
	case 's':
		return parse_sizes(o, arg);
	case 't':
		return parse_tests(o, arg);
	case OPT_FLAGS:
		return parse_flags(o, arg);
	}
	return take_number(o, option, arg);
}

/* As it is written; getopt has shuffled argv. */
static const char *
name_of(int option)
{
	static char name[32];

	snprintf(name, sizeof(name), "-%c", option);
	for (const struct option *l = long_options; l->name && option > 255; l++)
		if (l->val == option)
			snprintf(name, sizeof(name), "--%s", l->name);
	return name;
}

enum options_result
perf_options_parse(int argc, char **argv, struct perf_options *o, char *reason, size_t reason_size)
{
	int option;

	*o = (struct perf_options){.duration_s = 1,
				   .seed = 1,
				   .cpu = -1,
				   .patience_s = 30,
				   .connections = 1,
				   .programs = 1,
				   .threads = 1,

				   .region = 1ull << 30};
	opterr = 0;
	optind = 1;
	for (;;) {
		option = getopt_long(argc, argv, ":bD:hin:s:t:w:", long_options, NULL);
		if (option < 0)
			break;
		if (option == 'h')
			return OPTIONS_HELP;
		if (option == OPT_VERSION)
			return OPTIONS_VERSION;
		if (option == '?')
			return perf_options_wrong(reason, reason_size,
						  "unknown option '%s'; see --help",
						  optopt ? name_of(optopt) : argv[optind - 1]);
		if (option == ':')
			return perf_options_wrong(reason, reason_size,
						  "option '%s' needs a value; see --help",
						  name_of(optopt));
		if (take_option(o, option, optarg))
			return perf_options_wrong(reason, reason_size,
						  "invalid value '%s' for %s; see --help",
						  optarg ? optarg : "", name_of(option));
	}
	if (optind < argc)
		o->address = argv[optind++];
	if (optind < argc)
		return perf_options_wrong(reason, reason_size,
					  "'%s' after the address; give one address", argv[optind]);
	return perf_options_settle(o, reason, reason_size);
}

/* Flags that a prompt turns on and off. */
static bool *
switch_of(struct perf_options *o, const char *name)
{
	if (strcmp(name, "verify") == 0)
		return &o->verify;
	if (strcmp(name, "copy") == 0)
		return &o->copy;
	return strcmp(name, "bidirectional") == 0 ? &o->both : NULL;
}

/* Takes an option that may change between runs. 0 or -EINVAL. */
static int
take_named(struct perf_options *o, const char *name, const char *value)
{
	static const char *const may[] = {"connections", "count",   "duration", "flags",
					  "large",	 "pick",    "programs", "rate",
					  "region",	 "seed",    "size",	"stats-period",
					  "test",	 "threads", "wait",	"window"};
	const struct option *l = long_options;
	bool found = false;
	bool *on = switch_of(o, name);

	if (on)
		return parse_either(value, "off", "on", on);
	for (size_t i = 0; i < sizeof(may) / sizeof(may[0]); i++)
		found |= strcmp(name, may[i]) == 0;
	if (!found)
		return -ENOENT;
	while (strcmp(l->name, name) != 0)
		l++;
	/* no longer what was said before */
	if (l->val == 's')
		o->size_count = 0;
	if (l->val == 't')
		o->test_count = 0;
	if (strcmp(value, "0") == 0 && (l->val == 'n' || l->val == 'w')) {
		o->count = l->val == 'n' ? 0 : o->count;
		o->window = l->val == 'w' ? 0 : o->window;
		return 0;
	}
	return take_option(o, l->val, value);
}

int
perf_options_set(struct perf_options *o, const char *name, const char *value, char *reason,
		 size_t reason_size)
{
	struct perf_options changed = *o; /* none of those that may change keeps its text */
	int rc = take_named(&changed, name, value);

	if (rc == -ENOENT)
		perf_options_wrong(reason, reason_size, "'%s' can't be set; see help", name);
	else if (rc)
		perf_options_wrong(reason, reason_size, "invalid value '%s' for %s; see help",
				   value, name);
	else if (perf_options_settle(&changed, reason, reason_size) == OPTIONS_RUN)
		*o = changed;
	else
		rc = -EINVAL;
	return rc ? -EINVAL : 0;
}

/* What options mean together. */

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

void
perf_options_usage(FILE *to)
{
	fputs(
	    "weir-perf [--instance NAME] [--service NAME]           serves\n"
	    "weir-perf [--instance NAME] ADDRESS -t TEST[,TEST...]  measures against a server\n"
	    "weir-perf [--instance NAME] ADDRESS -i                 the same by a prompt\n"
	    "weir-perf [--instance NAME] --loop -t TEST             through the node's own port, "
	    "alone\n"
	    "weir-perf --alltoall -t TEST                           between all nodes of a "
	    "cluster\n"
	    "weir-perf --calibrate                                  the machine without Weir\n"
	    "TEST: lat (round trips), bw (bytes/s), rate (messages/s), mix (sizes 0 B ... 8 KiB),\n"
	    "  read (the server answers out of its memory); of the message model: message, "
	    "request\n"
	    "ADDRESS: node:ID, IPv4, [IPv6] ..., with or without :SERVICE (perf); service:SERVICE\n"
	    "  --adopt               bw: send from own buffers (4 MiB, 1 to 16), adopted; writes "
	    "only numbers\n"
	    "  --all                 sizes 8 B ... 16 MiB, doubling\n"
	    "  --alltoall            a program on each instance in $WEIR_CLUSTER, to each other\n"
	    "  -b, --bidirectional   both directions at once (bw, rate, mix)\n"
	    "  --calibrate           measure the machine before and after each run (the default)\n"
	    "  --connections N       of each program, to each server (1)\n"
	    "  --copy                send from and receive into the program's own buffers\n"
	    "  --cpu N               pin to CPU N\n"
	    "  --csv, --json         instead of a table\n"
	    "  -D, --duration SECONDS  of each run (1; -i: until it is stopped)\n"
	    "  --flags LIST          transport and operation: RC, and RING, SEND, READ or WRITE "
	    "(Weir chooses)\n"
	    "  -i, --interactive     commands from standard input; see its help\n"
	    "  --instance NAME       name of the data plane ($WEIR_INSTANCE, else \"default\")\n"
	    "  --large COUNT         mix: COUNT messages of 64 KiB ... 16 MiB (one in 10000)\n"
	    "  --loop                through the node's own port, also to a program on this node\n"
	    "  -n, --count COUNT     messages of each run instead of -D, of all connections\n"
	    "                        together (--alltoall: to each node)\n"
	    "  --no-calibrate        do not calibrate\n"
	    "  --patience SECONDS    a run fails after this time without progress (30)\n"
	    "  --pause MS            lat: milliseconds of rest before each round trip\n"
	    "  --pick turn|random    choice of the next connection (turn)\n"
	    "  --programs N          processes that share the load (1)\n"
	    "  --public              server: all nodes find it, as service:NAME\n"
	    "  --rate N              bw, rate, mix: at most N messages per second; k and m "
	    "are understood\n"
	    "  --region SIZE         read: bytes of the server's memory (1024m)\n"
	    "  -s, --size SIZE[,SIZE...]  bytes; k and m are understood (lat, rate: 64; bw, read: "
	    "64k)\n"
	    "  --seed N              of sizes, contents and --pick random (1)\n"
	    "  --service NAME        server: name to listen on (perf; TCP: 127.0.0.1:7471)\n"
	    "  --stats-period SECONDS  interval of rates on standard error\n"
	    "  -t, --test TEST[,TEST...]\n"
	    "  --threads N           message, request: of each program that send (1)\n"
	    "  --transport weir|tcp  over sockets instead, without Weir (weir)\n"
	    "  --verify              check every byte of every message\n"
	    "  -w, --window COUNT    messages in flight at most (limit of flow control; read: 16)\n"
	    "  --wait poll|sleep     how both programs wait (poll)\n"
	    "  -h, --help, --version\n",
	    to);
}
