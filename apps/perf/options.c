/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "weir/stream.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_ALL = 256,
	OPT_CALIBRATE,
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
	OPT_SEED,
	OPT_SERVICE,
	OPT_VERIFY,
	OPT_VERSION,
	OPT_WAIT
};

static const struct option long_options[] = {
    {"all", no_argument, NULL, OPT_ALL},
    {"bidirectional", no_argument, NULL, 'b'},
    {"calibrate", no_argument, NULL, OPT_CALIBRATE},
    {"copy", no_argument, NULL, OPT_COPY},
    {"count", required_argument, NULL, 'n'},
    {"cpu", required_argument, NULL, OPT_CPU},
    {"csv", no_argument, NULL, OPT_CSV},
    {"duration", required_argument, NULL, 'D'},
    {"flags", required_argument, NULL, OPT_FLAGS},
    {"help", no_argument, NULL, 'h'},
    {"instance", required_argument, NULL, OPT_INSTANCE},
    {"json", no_argument, NULL, OPT_JSON},
    {"large", required_argument, NULL, OPT_LARGE},
    {"loop", no_argument, NULL, OPT_LOOP},
    {"no-calibrate", no_argument, NULL, OPT_NO_CALIBRATE},
    {"patience", required_argument, NULL, OPT_PATIENCE},
    {"pause", required_argument, NULL, OPT_PAUSE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"service", required_argument, NULL, OPT_SERVICE},
    {"size", required_argument, NULL, 's'},
    {"test", required_argument, NULL, 't'},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"version", no_argument, NULL, OPT_VERSION},
    {"wait", required_argument, NULL, OPT_WAIT},
    {"window", required_argument, NULL, 'w'},
    {NULL, 0, NULL, 0},
};

void
perf_options_usage(FILE *to)
{
	fputs(
	    "weir-perf [--instance NAME] [--service NAME]           serves\n"
	    "weir-perf [--instance NAME] ADDRESS -t TEST[,TEST...]  measures against a server\n"
	    "weir-perf [--instance NAME] --loop -t TEST             through the node's own port, "
	    "alone\n"
	    "weir-perf --calibrate                                  the machine without Weir\n"
	    "TEST: lat (round trips), bw (bytes/s), rate (messages/s), mix (sizes 0 B ... 8 KiB)\n"
	    "ADDRESS: node:ID, IPv4, [IPv6] ..., with or without :SERVICE (perf)\n"
	    "  --all                 sizes 8 B ... 16 MiB, doubling\n"
	    "  -b, --bidirectional   both directions at once (not lat)\n"
	    "  --calibrate           measure the machine before and after each run (the default)\n"
	    "  --copy                send from and receive into the program's own buffers\n"
	    "  --cpu N               pin to CPU N\n"
	    "  --csv, --json         instead of a table\n"
	    "  -D, --duration SECONDS  of each run (1)\n"
	    "  --flags LIST          how messages go: RC, and RING, SEND, READ or WRITE (Weir "
	    "chooses)\n"
	    "  --instance NAME       which Weir of this host ($WEIR_INSTANCE, else \"default\")\n"
	    "  --large COUNT         mix: so many messages of 64 KiB ... 16 MiB (one in 10000)\n"
	    "  --loop                through the node's own port, also to a program on this node\n"
	    "  -n, --count COUNT     messages of each run instead of -D\n"
	    "  --no-calibrate        leave that out\n"
	    "  --patience SECONDS    without progress until a run has failed (30)\n"
	    "  --pause MS            lat: rest so long before each round trip\n"
	    "  -s, --size SIZE[,SIZE...]  bytes; k and m are understood (lat, rate: 64; bw: 64k)\n"
	    "  --seed N              of sizes and contents (1)\n"
	    "  --service NAME        server: what to listen on (perf)\n"
	    "  -t, --test TEST[,TEST...]\n"
	    "  --verify              check every byte of every message\n"
	    "  -w, --window COUNT    messages under way at most (as many as flow control lets)\n"
	    "  --wait poll|sleep     how both programs wait (poll)\n"
	    "  -h, --help, --version\n",
	    to);
}

__attribute__((format(printf, 3, 4))) static enum options_result
wrong(char *reason, size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, size, format, args);
	va_end(args);
	return OPTIONS_WRONG;
}

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

/* Names of stream.h without their WEIR_; one operation at most. */
static int
parse_flags(struct perf_options *o, const char *list)
{
	static const struct {
		const char *name;
		uint32_t flag;
	} known[] = {{"RC", WEIR_RC},
		     {"RING", WEIR_RING},
		     {"SEND", WEIR_SEND},
		     {"READ", WEIR_READ},
		     {"WRITE", WEIR_WRITE}};
	const uint32_t count = sizeof(known) / sizeof(known[0]);
	char piece[8];
	uint32_t i, operations;

	while (*list) {
		if (!next_piece(&list, piece, sizeof(piece)))
			return -EINVAL;
		for (i = 0; i < count && strcmp(piece, known[i].name) != 0; i++)
			;
		if (i == count)
			return -EINVAL;
		o->flags |= known[i].flag;
	}
	operations = o->flags & ~WEIR_RC;
	return o->flags && !(operations & (operations - 1)) ? 0 : -EINVAL;
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
parse_wait(struct perf_options *o, const char *text)
{
	o->sleep = strcmp(text, "sleep") == 0;
	return o->sleep || strcmp(text, "poll") == 0 ? 0 : -EINVAL;
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
	case OPT_ALL:
		all_sizes(o);
		return true;
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
	case OPT_VERIFY:
		return o->verify = true;
	case 'b':
		return o->both = true;
	}
	return false;
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
	return rc;
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
		return parse_wait(o, arg);
	case 'D':
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

/* What can't go together, and what follows from what was said. */
static enum options_result
settle(struct perf_options *o, char *reason, size_t size)
{
	bool alone = !o->address && !o->loop;

	if (o->no_calibrate && o->calibrate)
		return wrong(reason, size, "--calibrate and --no-calibrate; choose one");
	if (alone && o->test_count)
		return wrong(reason, size,
			     "-t without an address; name the server, as in node:2 or 10.0.0.2");
	if (!alone && !o->test_count)
		return wrong(reason, size, "no test; name one with -t, such as -t lat");
	if (o->loop && !o->address && o->sleep)
		return wrong(reason, size,
			     "--loop without an address polls; leave out --wait sleep");
	for (uint32_t i = 0; i < o->test_count; i++) {
		if (o->tests[i] != PERF_MIX)
			continue;
		if (!o->count)
			o->count = 100000;
		if (!o->large_given)
			o->large = o->count / 10000;
		if (o->large > o->count)
			return wrong(reason, size, "--large is more than -n; lower it");
	}
	return OPTIONS_RUN;
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

	*o = (struct perf_options){
	    .service = PERF_SERVICE, .duration_s = 1, .seed = 1, .cpu = -1, .patience_s = 30};
	opterr = 0;
	optind = 1;
	for (;;) {
		option = getopt_long(argc, argv, ":bD:hn:s:t:w:", long_options, NULL);
		if (option < 0)
			break;
		if (option == 'h')
			return OPTIONS_HELP;
		if (option == OPT_VERSION)
			return OPTIONS_VERSION;
		if (option == '?')
			return wrong(reason, reason_size, "unknown option '%s'; see --help",
				     optopt ? name_of(optopt) : argv[optind - 1]);
		if (option == ':')
			return wrong(reason, reason_size, "option '%s' needs a value; see --help",
				     name_of(optopt));
		if (take_option(o, option, optarg))
			return wrong(reason, reason_size, "'%s' is no value for '%s'; see --help",
				     optarg ? optarg : "", name_of(option));
	}
	if (optind < argc)
		o->address = argv[optind++];
	if (optind < argc)
		return wrong(reason, reason_size, "'%s' after the address; give one address",
			     argv[optind]);
	return settle(o, reason, reason_size);
}
