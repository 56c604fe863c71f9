/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "message.h"
#include "socket.h"

#include "weir/invoke.h"
#include "weir/stream.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_UNDER_WAY_MAX 65536u /* of a thread */

static int
take_size(void *into, const char *text)
{
	static const struct option_spec one = {.name = "size",
					       .type = OPTION_SIZE,
					       .width = 4,
					       .max = WEIR_STREAM_MESSAGE_MAX,
					       .c_base = true};
	struct perf_options *o = into;
	char error[128];

	if (o->size_count == OPTIONS_SIZES ||
	    option_store(&one, &o->sizes[o->size_count], "", text, error, sizeof(error)))
		return -EINVAL;
	o->size_count++;
	return 0;
}

static int
take_sizes(void *into, const char *text, char *error, size_t size)
{
	struct perf_options *o = into;

	o->size_count = 0;
	return option_list(text, take_size, o);
}

static int
take_test(void *into, const char *text)
{
	struct perf_options *o = into;
	uint32_t t = 0;

	while (t < PERF_TESTS && strcmp(text, perf_test_name(t)) != 0)
		t++;
	if (t == PERF_TESTS || o->test_count == PERF_TESTS)
		return -EINVAL;
	o->tests[o->test_count++] = t;
	return 0;
}

static int
take_tests(void *into, const char *text, char *error, size_t size)
{
	struct perf_options *o = into;

	o->test_count = 0;
	return option_list(text, take_test, o);
}

static const struct {
	const char *name;
	uint32_t flag;
} flag_names[] = {{"RC", WEIR_RC},     {"UD", WEIR_UD},	    {"RING", WEIR_RING},
		  {"SEND", WEIR_SEND}, {"READ", WEIR_READ}, {"WRITE", WEIR_WRITE}};
#define FLAG_NAMES (sizeof(flag_names) / sizeof(flag_names[0]))

static int
take_flag(void *into, const char *text)
{
	struct perf_options *o = into;

	for (uint32_t i = 0; i < FLAG_NAMES; i++)
		if (strcmp(text, flag_names[i].name) == 0) {
			o->flags |= flag_names[i].flag;
			return 0;
		}
	return -EINVAL;
}

/* Names of stream.h without their WEIR_; one operation at most. */
static int
take_flags(void *into, const char *text, char *error, size_t size)
{
	struct perf_options *o = into;
	uint32_t operations;

	o->flags = 0;
	if (option_list(text, take_flag, o) || (o->flags & WEIR_UD && o->flags != WEIR_UD))
		return -EINVAL;
	operations = o->flags & ~WEIR_RC;
	return operations & (operations - 1) ? -EINVAL : 0;
}

const char *
perf_flags_text(const struct perf_options *o)
{
	static char text[32];

	snprintf(text, sizeof(text), o->flags & WEIR_UD ? "UD" : "RC");
	for (uint32_t i = 2; i < FLAG_NAMES; i++)
		if (o->flags & flag_names[i].flag)
			snprintf(text, sizeof(text), "RC,%s", flag_names[i].name);
	return text;
}

/* Messages/s; k and m are powers of ten. */
static int
take_rate(void *into, const char *text, char *error, size_t size)
{
	struct perf_options *o = into;
	size_t n = strlen(text);
	char number[32];
	double unit = 1;

	if (n == 0 || n >= sizeof(number))
		return -EINVAL;
	memcpy(number, text, n + 1);
	if (strchr("kK", number[n - 1]))
		unit = 1e3;
	else if (strchr("mM", number[n - 1]))
		unit = 1e6;
	if (unit > 1)
		number[n - 1] = '\0';
	if (option_real(number, 0, 1e12 / unit, &o->rate))
		return -EINVAL;
	o->rate *= unit;
	return 0;
}

/* Bytes of a piece, and from one piece to the next. */
static int
take_layout(void *into, const char *text, char *error, size_t size)
{
	static const struct option_spec one = {.name = "layout",
					       .type = OPTION_SIZE,
					       .width = 4,
					       .min = 1,
					       .max = PERF_EXTENT_MAX,
					       .c_base = true};
	const char *colon = strchr(text, ':');
	struct perf_options *o = into;
	char block[16] = "";

	if (!colon || (size_t)(colon - text) >= sizeof(block))
		return -EINVAL;
	memcpy(block, text, (size_t)(colon - text));
	if (option_store(&one, &o->block, "", block, error, size) ||
	    option_store(&one, &o->stride, "", colon + 1, error, size) || o->stride < o->block)
		return -EINVAL;
	return 0;
}

static const char *const type_names[] = {
    [WEIR_T_BYTE] = "byte",
    [WEIR_T_BOOL] = "bool",
    [WEIR_T_INT8] = "int8",
    [WEIR_T_UINT8] = "uint8",
    [WEIR_T_INT16] = "int16",
    [WEIR_T_UINT16] = "uint16",
    [WEIR_T_INT32] = "int32",
    [WEIR_T_UINT32] = "uint32",
    [WEIR_T_INT64] = "int64",
    [WEIR_T_UINT64] = "uint64",
    [WEIR_T_FLOAT] = "float",
    [WEIR_T_DOUBLE] = "double",
    [WEIR_T_LONG_DOUBLE] = "long_double",
    [WEIR_T_FLOAT_COMPLEX] = "float_complex",
    [WEIR_T_DOUBLE_COMPLEX] = "double_complex",
    [WEIR_T_LONG_DOUBLE_COMPLEX] = "long_double_complex",
    [WEIR_T_INT16_AT] = "int16_at",
    [WEIR_T_INT32_AT] = "int32_at",
    [WEIR_T_INT64_AT] = "int64_at",
    [WEIR_T_FLOAT_AT] = "float_at",
    [WEIR_T_DOUBLE_AT] = "double_at",
    [WEIR_T_LONG_DOUBLE_AT] = "long_double_at",
};
static const char *const acc_names[] = {
    [WEIR_ACC_SUM] = "sum",	    [WEIR_ACC_PROD] = "prod",	  [WEIR_ACC_MIN] = "min",
    [WEIR_ACC_MAX] = "max",	    [WEIR_ACC_LAND] = "land",	  [WEIR_ACC_LOR] = "lor",
    [WEIR_ACC_LXOR] = "lxor",	    [WEIR_ACC_BAND] = "band",	  [WEIR_ACC_BOR] = "bor",
    [WEIR_ACC_BXOR] = "bxor",	    [WEIR_ACC_MINLOC] = "minloc", [WEIR_ACC_MAXLOC] = "maxloc",
    [WEIR_ACC_REPLACE] = "replace",
};

static int
take_name(const char *const *names, size_t n, const char *text, uint32_t *into)
{
	for (uint32_t i = 0; i < n; i++)
		if (names[i] && strcmp(names[i], text) == 0) {
			*into = i;
			return 0;
		}
	return -EINVAL;
}

static int
take_type(void *into, const char *text, char *error, size_t size)
{
	return take_name(type_names, sizeof(type_names) / sizeof(type_names[0]), text,
			 &((struct perf_options *)into)->type);
}

static int
take_op(void *into, const char *text, char *error, size_t size)
{
	return take_name(acc_names, sizeof(acc_names) / sizeof(acc_names[0]), text,
			 &((struct perf_options *)into)->op);
}

static int
take_all(void *into, const char *text, char *error, size_t size)
{
	struct perf_options *o = into;

	o->size_count = 0;
	for (uint32_t bytes = 8; bytes <= WEIR_STREAM_MESSAGE_MAX; bytes *= 2)
		o->sizes[o->size_count++] = bytes;
	return 0;
}

#define AT(field) OPTION_FIELD(struct perf_options, field)
#define NUMBER(low, high) .min = low, .max = high, .c_base = true

static const struct option_spec specs[] = {
    {"adopt", 0, OPTION_FLAG, AT(adopt), NULL, NULL,
     "bw: send from adopted buffers of the program (4 MiB, 1 to 16); only numbers are written"},
    {"all", 0, OPTION_CALL, 0, 0, NULL, NULL, "sizes 8 B ... 16 MiB, doubling", .take = take_all},
    {"alltoall", 0, OPTION_FLAG, AT(alltoall), NULL, NULL,
     "run a program on each instance in $WEIR_CLUSTER, connected to all others"},
    {"apart", 0, OPTION_FLAG, AT(apart), NULL, NULL,
     "put, get, ...: the data plane stores the bytes, also on one host, where memory is otherwise "
     "mapped"},
    {"batch", 0, OPTION_UNSIGNED, AT(batch), "N", "1",
     "rate: messages per call, each of up to 948 bytes", NUMBER(1, PERF_BATCH_MAX)},
    {"bidirectional", 'b', OPTION_FLAG, AT(both), NULL, NULL,
     "both directions at once (bw, rate, mix)"},
    {"by-engine", 0, OPTION_FLAG, AT(by_engine), NULL, NULL,
     "acc, fop, cas through a window: updates exclude one another, by the target's data plane, or "
     "on one host by turns"},
    {"calibrate", 0, OPTION_FLAG, AT(calibrate), NULL, NULL,
     "measure the machine before and after each run (the default)"},
    {"connections", 0, OPTION_UNSIGNED, AT(connections), "N", "1",
     "connections of each program to each server", NUMBER(1, 1 << 20)},
    {"copy", 0, OPTION_FLAG, AT(copy), NULL, NULL,
     "send from and receive into the program's own buffers"},
    {"count", 'n', OPTION_UNSIGNED, AT(count), "COUNT", NULL,
     "messages of each run over all connections (--alltoall: to each node), instead of -D",
     NUMBER(1, UINT64_MAX >> 8)},
    {"cpu", 0, OPTION_UNSIGNED, AT(cpu), "N", NULL, "pin to CPU N", NUMBER(0, CPU_SETSIZE - 1)},
    {"csv", 0, OPTION_FLAG, AT(format), NULL, NULL, "CSV instead of a table", .set = FORMAT_CSV},
    {"duration", 'D', OPTION_REAL, AT(duration_s), "SECONDS", "1",
     "duration of each run; with -i until it is stopped", .least = 0.001, .most = 86400,
     .expected = "seconds from 0.001 to 86400",
     .given = offsetof(struct perf_options, duration_given)},
    {"flags", 0, OPTION_CALL, 0, 0, "LIST", NULL,
     "transport of messages: RC, and RING, SEND, READ or WRITE (Weir chooses); UD: datagrams",
     .take = take_flags, .expected = "UD, or RC and at most one of RING, SEND, READ and WRITE"},
    {"help", 'h', OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"inside", 0, OPTION_FLAG, AT(inside), NULL, NULL,
     "call, return: between threads of this program"},
    {"instance", 0, OPTION_TEXT, AT(instance), "NAME", "default",
     "name of the data plane to attach to", .env = "WEIR_INSTANCE"},
    {"interactive", 'i', OPTION_FLAG, AT(interactive), NULL, NULL,
     "read commands from standard input; 'help' lists them"},
    {"json", 0, OPTION_FLAG, AT(format), NULL, NULL, "JSON instead of a table", .set = FORMAT_JSON},
    {"large", 0, OPTION_UNSIGNED, AT(large), "COUNT", NULL,
     "mix: number of messages of 64 KiB ... 16 MiB (one in 10000)", NUMBER(0, UINT64_MAX >> 8),
     .given = offsetof(struct perf_options, large_given)},
    {"layout", 0, OPTION_CALL, 0, 0, "BLOCK:STRIDE", NULL,
     "put, get, acc: pieces of BLOCK bytes in the memory, STRIDE apart", .take = take_layout,
     .expected = "bytes of a piece and from one to the next, as in 8:64"},
    {"loop", 0, OPTION_FLAG, AT(loop), NULL, NULL,
     "use the node's own port, also towards a program on this node"},
    {"many", 0, OPTION_FLAG, AT(many), NULL, NULL,
     "call, return: the function runs once for consecutive calls, else once for each"},
    {"mode", 0, OPTION_WORD, AT(mode), NULL, "auto", "call, return: when calls are packed",
     .words = "auto|eager|full|overflow"},
    {"no-calibrate", 0, OPTION_FLAG, AT(no_calibrate), NULL, NULL,
     "do not measure the machine before and after each run"},
    {"op", 0, OPTION_CALL, 0, 0, "NAME", NULL,
     "acc, fop: operation on the elements, with operands of one (sum)", .take = take_op,
     .expected = "sum, prod, min, max, land, lor, lxor, band, bor, bxor, minloc, maxloc or "
		 "replace"},
    {"partners", 0, OPTION_UNSIGNED, AT(partners), "N", NULL,
     "pscw: members that each one starts to (1); lockall: members whose parts it may load and "
     "store",
     NUMBER(1, OPTIONS_NODES)},
    {"patience", 0, OPTION_UNSIGNED, AT(patience_s), "SECONDS", "30",
     "time without progress after which a run has failed", NUMBER(1, 86400)},
    {"pause", 0, OPTION_UNSIGNED, AT(pause_ms), "MS", NULL, "lat: pause before each round trip",
     NUMBER(1, 60000)},
    {"pick", 0, OPTION_WORD, AT(random), NULL, "turn", "choice of the next connection",
     .words = "turn|random"},
    {"programs", 0, OPTION_UNSIGNED, AT(programs), "N", "1", "processes that share the load",
     NUMBER(1, OPTIONS_NODES)},
    {"public", 0, OPTION_FLAG, AT(is_public), NULL, NULL,
     "server: publish the service to all nodes, as service:NAME"},
    {"rate", 0, OPTION_CALL, 0, 0, "N", NULL,
     "bw, rate, mix: maximum of messages per second; k and m may follow", .take = take_rate,
     .expected = "messages per second from 0 to 1000000m; 0: no limit"},
    {"readers", 0, OPTION_UNSIGNED, AT(readers), "N", "0",
     "lock: programs that lock shared, of those that --programs gives", NUMBER(0, OPTIONS_NODES)},
    {"region", 0, OPTION_SIZE, AT(region), "SIZE", "1024m",
     "read: bytes of the server's memory to read from", NUMBER(4096, 1ull << 40)},
    {"seed", 0, OPTION_UNSIGNED, AT(seed), "N", "1", "seed of sizes, contents and --pick random",
     NUMBER(0, UINT64_MAX)},
    {"service", 0, OPTION_TEXT, AT(service), "NAME", NULL,
     "server: name to listen on (perf; TCP: 127.0.0.1:7471)"},
    {"size", 's', OPTION_CALL, 0, 0, "SIZE[,SIZE...]", NULL,
     "bytes; k and m may follow (lat, rate: 64; bw, read: 64k)", .take = take_sizes,
     .expected = "up to 64 sizes from 0 to 16m"},
    {"stats-period", 0, OPTION_REAL, AT(period_s), "SECONDS", NULL,
     "interval between lines of rates on standard error", .most = 86400,
     .expected = "seconds from 0 to 86400"},
    {"target", 0, OPTION_WORD, AT(stop), NULL, "sleep",
     "put, get, ...: the program that owns the memory sleeps or is stopped", .words = "sleep|stop"},
    {"test", 't', OPTION_CALL, 0, 0, "TEST[,TEST...]", NULL, "tests to run", .take = take_tests,
     .expected = "lat, bw, rate, mix, read, message, request, call, return, put, get, "
		 "acc, fop, cas, notify, signal, flag, lock, lockall, fence or pscw"},
    {"threads", 0, OPTION_UNSIGNED, AT(threads), "N", "1",
     "message, request, call, put, get, ...: threads of each program", NUMBER(1, OPTIONS_NODES)},
    {"through", 0, OPTION_WORD, AT(through), NULL, "remote",
     "put, get, ...: as remote memory, or through a window of all programs of the run",
     .words = "remote|window"},
    {"transport", 0, OPTION_WORD, AT(tcp), NULL, "weir", "tcp: use sockets instead of Weir",
     .words = "weir|tcp"},
    {"type", 0, OPTION_CALL, 0, 0, "NAME", NULL, "acc, fop: type of the elements (int64)",
     .take = take_type,
     .expected = "a type of weir/type.h, such as int8, double, float_complex or int32_at"},
    {"verify", 0, OPTION_FLAG, AT(verify), NULL, NULL, "check every byte of every message"},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
    {"wait", 0, OPTION_WORD, AT(sleep), NULL, "poll", "how both programs wait",
     .words = "poll|sleep"},
    {"window", 'w', OPTION_UNSIGNED, AT(window), "COUNT", NULL,
     "maximum of messages in flight (limited by flow control; read: 16); call: each is answered "
     "by a call; return: results outstanding (1)",
     NUMBER(1, UINT32_MAX)},
};

const struct option_table perf_option_table = {
    OPTION_SPECS(specs, struct perf_options),
    .operands = 1,
    .head =
	"weir-perf [--instance NAME] [--service NAME]           serves\n"
	"weir-perf [--instance NAME] ADDRESS -t TEST[,TEST...]  measures against a server\n"
	"weir-perf [--instance NAME] ADDRESS -i                 the same from a prompt\n"
	"weir-perf [--instance NAME] --loop -t TEST             through the node's own port, "
	"alone\n"
	"weir-perf [--instance NAME] --inside -t call,return    between threads of this program\n"
	"weir-perf --alltoall -t TEST                           between all nodes of a "
	"cluster\n"
	"weir-perf --calibrate                                  measures the machine alone\n"
	"TEST: lat (round trips), bw (bytes/s), rate (messages/s), mix (sizes 0 B ... 8 KiB),\n"
	"  read (the server answers from its memory); message model: message, request;\n"
	"  call (of functions, by remote invocation), return (the same with results);\n"
	"  remote memory: put, get, acc (updates elements), fop (fetches and updates them),\n"
	"  cas, notify and signal (puts that the other end answers), lock;\n"
	"  windows: flag (put, flush, put of a word that the other end awaits), lockall, fence,\n"
	"  pscw (post, start, complete, wait)\n"
	"ADDRESS: node:ID, IPv4, [IPv6] ..., with or without :SERVICE (perf); service:SERVICE\n",
};

/* The instances of the cluster in which this program was started. */
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

/* The reason (a format) that rules out one test; NULL: none. Sets the defaults of PERF_MIX. */
static const char *
settle_test(struct perf_options *o, uint32_t test)
{
	bool fits = o->size_count || o->region >= 65536, small = true, bytes = false;
	bool window = perf_in_window(o, test);

	if (test == PERF_MIX) {
		if (!o->count)
			o->count = 100000;
		if (!o->large_given)
			o->large = o->count / 10000;
		if (o->large > o->count)
			return "--large is more than -n; lower it";
	}
	if (test >= PERF_READ && o->tcp)
		return "-t %s is Weir's; leave out --transport";
	if (o->adopt && (test != PERF_BW || o->tcp || o->copy))
		return "--adopt is for -t bw, without --copy and --transport; leave it out";
	for (uint32_t i = 0; i < o->size_count; i++)
		small &= o->sizes[i] <= PERF_SMALL_MAX;
	for (uint32_t i = 0; i < o->size_count; i++)
		bytes |= o->sizes[i];
	if (o->batch > 1 && (test != PERF_RATE || !small || o->tcp || o->window || o->verify ||
			     o->flags & ~(uint32_t)WEIR_RC))
		return "--batch is for -t rate and messages of up to 948 bytes, without "
		       "--transport, --window, --verify and --flags; leave it out";
	if (o->flags & WEIR_UD) {
		if (test > PERF_RATE || o->adopt || o->verify || (o->both && o->count))
			return "--flags UD is for -t lat, bw and rate, without --adopt, --verify, "
			       "and "
			       "-b with -n; leave it out";
		if (test == PERF_BW && !o->size_count)
			return "datagrams have no 64 KiB; give -s to -t %s";
		for (uint32_t i = 0; i < o->size_count; i++)
			if (o->sizes[i] < PERF_UD_MIN)
				return "a datagram of this test carries its number; give 8 bytes "
				       "or "
				       "more to -s";
	}
	/* each piece is larger than its request and lies within the memory */
	for (uint32_t i = 0; i < o->size_count; i++)
		fits &= o->sizes[i] > PERF_READ_REQUEST && o->sizes[i] <= o->region;
	if (test == PERF_READ && !fits)
		return "a size that -t %s can't have; give %u bytes to --region";
	if (test >= PERF_MESSAGES && (o->loop || o->connections > 1))
		return "-t %s makes its connections itself; leave out --loop and --connections";
	if (perf_is_call(test)) {
		for (uint32_t i = 0; i < o->size_count; i++)
			if (o->sizes[i] > WEIR_ARGS_MAX)
				return "the arguments of a -t %s have up to 4096 bytes; lower -s";
		if (o->threads > PERF_CALL_THREADS_MAX / (o->inside || o->alltoall ? 2 : 1))
			return "-t %s goes from up to 64 threads, or 32 with --inside or "
			       "--alltoall; lower --threads";
		if (o->window > CALLS_UNDER_WAY_MAX)
			return "-t %s has up to 65536 calls under way; lower --window";
	} else if (o->mode || o->many || o->inside) {
		return "--mode, --many and --inside are for -t call and -t return; leave them "
		       "out";
	}
	if ((perf_is_remote(test) || perf_is_call(test)) && (o->both || o->rate > 0 || o->flags))
		return "-t %s goes one way, as fast as it can; leave out -b, --rate and --flags";
	if (o->alltoall && (perf_is_answered(test) || (perf_is_serial(test) && !window)))
		return "-t %s goes to one server; leave out --alltoall";
	if (perf_is_remote(test) && o->alltoall && o->count && o->count < o->threads)
		return "-t %s has fewer operations than threads; raise -n";
	for (uint32_t i = 0; i < o->size_count; i++)
		if (perf_is_update(test) &&
		    (!o->sizes[i] ||
		     (test != PERF_ACC && o->sizes[i] != perf_element_size(o->type)) ||
		     o->sizes[i] % perf_element_size(o->type)))
			return test == PERF_ACC
				   ? "-t %s updates whole elements; give multiples of them to -s"
				   : "-t %s is of one element; leave out -s";
	if (test == PERF_LOCK && bytes && !window)
		return "-t %s moves no bytes; leave out -s, or give --through window";
	if (test == PERF_LOCK && bytes && (o->programs > 1 || o->alltoall))
		return "programs contend for one -t %s; leave out -s, or --programs and --alltoall";
	if (perf_is_epoch(test) && o->window)
		return "-t %s has one operation under way; leave out --window";
	if (perf_is_epoch(test) && window && o->threads > 1)
		return "one thread of a program has the epoch of -t %s; leave out --threads";
	if (o->readers && (test != PERF_LOCK || o->readers > o->programs))
		return "--readers are some of the --programs of -t lock; lower it or leave it out";
	if (o->partners && test != PERF_PSCW && test != PERF_LOCKALL)
		return "--partners is for -t pscw and lockall; leave it out";
	if (o->through && !window)
		return "--through is for tests of remote memory; leave it out";
	if (o->by_engine && (!window || !perf_is_update(test)))
		return "--by-engine is for -t acc, fop and cas --through window; leave it out";
	if (window && o->stop && (perf_is_round(test) || o->alltoall))
		return "in -t %s through a window all programs take part; leave out --target stop";
	if ((o->type || o->op) && test != PERF_ACC && test != PERF_FOP)
		return "--type and --op are for -t acc and fop; leave them out";
	if (perf_is_update(test) && !perf_elements_ok(o->type, o->op, 0))
		return "the --type does not have that --op; see weir/type.h";
	if ((o->stop || o->apart) && !perf_is_remote(test))
		return "--target and --apart are for tests of remote memory; leave them out";
	if (o->block && !perf_has_layout(test))
		return "--layout is for -t put, get and acc; leave it out";
	if (o->block && test == PERF_ACC && !perf_pieces_ok(o->type, o->block, o->stride))
		return "-t %s updates whole elements; give multiples of them to --layout";
	for (uint32_t i = 0; o->block && i < o->size_count; i++)
		if (!o->sizes[i] || o->sizes[i] % o->block ||
		    o->sizes[i] / o->block > PERF_EXTENT_MAX / o->stride)
			return "-s and --layout do not fit each other; give multiples of BLOCK to "
			       "-s, within 1 GiB";
	if (o->block && !o->size_count && perf_usual_size(test, o->type) % o->block)
		return "--layout does not divide the usual size; give -s to -t %s";
	if (perf_is_answered(test) && (o->threads > 1 || o->stop || o->window))
		return "-t %s goes to and fro between two threads; leave out --threads, --window "
		       "and --target stop";
	return NULL;
}

/* Checks the options together and sets those that follow from others. */
static enum options_result
settle(struct perf_options *o, char *reason, size_t size)
{
	bool alone = !o->address && (o->loop || o->inside);
	bool serves = !o->address && !alone && !o->alltoall;
	uint64_t least = (uint64_t)o->connections * o->programs * o->threads;
	const char *wrong = NULL;

	if (!o->instance || !*o->instance)
		o->instance = getenv("WEIR_INSTANCE");
	if (!o->instance || !*o->instance)
		o->instance = "default";
	if (!o->service)
		o->service = o->tcp ? PERF_TCP_SERVICE : PERF_SERVICE;
	if (o->no_calibrate && o->calibrate)
		wrong = "--calibrate and --no-calibrate; choose one";
	else if (serves && o->test_count)
		wrong = "-t without an address; name the server, as in node:2 or 10.0.0.2";
	else if (serves && o->interactive)
		wrong = "-i without an address; name the server, as in node:2 or 10.0.0.2";
	else if (o->is_public && (!serves || o->tcp))
		wrong = "--public is for a server of Weir; leave it out";
	else if (!serves && !o->test_count && !o->interactive)
		wrong = "no test; name one with -t, such as -t lat";
	else if (alone && o->loop && o->sleep)
		wrong = "--loop without an address polls; leave out --wait sleep";
	if (o->interactive && !o->test_count)
		o->tests[o->test_count++] = PERF_RATE;
	for (uint32_t i = 0; i < o->test_count && !wrong; i++) {
		const char *format = settle_test(o, o->tests[i]);

		if (format) {
			snprintf(reason, size, format, perf_test_name(o->tests[i]),
				 PERF_READ_REQUEST + 1);
			return OPTIONS_WRONG;
		}
	}
	if (wrong)
		;
	else if (o->alltoall && (o->address || o->loop || o->inside || o->tcp || o->programs > 1 ||
				 o->interactive))
		wrong = "--alltoall goes without an address, --loop, --inside, --transport, "
			"--programs and -i; leave them out";
	else if (o->alltoall && !o->cluster_count && find_cluster(o))
		wrong = "--alltoall finds no instances in WEIR_CLUSTER; run it by "
			"scripts/cluster.sh";
	else if (o->partners > (o->alltoall ? o->cluster_count / 2 : o->programs))
		wrong = "--partners is more than half of the members; lower it, or raise "
			"--programs";
	else if (alone && (o->programs > 1 || o->interactive || o->period_s > 0))
		wrong = "--inside, and --loop without an address, is one program alone; name a "
			"server on this node";
	else if (o->inside && o->address)
		wrong = "--inside has no server; leave out the address";
	else if (o->count && o->count < least && !o->alltoall)
		wrong = "-n is less than there are connections and threads; raise it to %llu";
	else if (o->tcp && (o->loop || o->flags))
		wrong = "--loop and --flags are Weir's; leave out --transport";
	if (wrong) {
		snprintf(reason, size, wrong, (unsigned long long)least);
		return OPTIONS_WRONG;
	}
	if (o->interactive && !o->duration_given)
		o->duration_s = 86400;
	return OPTIONS_RUN;
}

enum options_result
perf_options_parse(int argc, char **argv, struct perf_options *o, char *reason, size_t reason_size)
{
	argc--;
	if (option_defaults(&perf_option_table, o, reason, reason_size))
		return OPTIONS_WRONG;
	o->cpu = -1;
	if (option_parse(&perf_option_table, o, &argc, argv + 1, reason, reason_size))
		return OPTIONS_WRONG;
	if (o->help || o->version)
		return o->help ? OPTIONS_HELP : OPTIONS_VERSION;
	o->address = argc ? argv[1] : NULL;
	return settle(o, reason, reason_size);
}

int
perf_options_set(struct perf_options *o, const char *name, const char *value, char *reason,
		 size_t reason_size)
{
	static const char *const may[] = {
	    "bidirectional", "connections", "copy",   "count",	      "duration", "flags",
	    "large",	     "many",	    "mode",   "pick",	      "programs", "rate",
	    "region",	     "seed",	    "size",   "stats-period", "target",	  "test",
	    "threads",	     "through",	    "verify", "wait",	      "window"};
	struct perf_options changed = *o; /* none of these options keeps a pointer to its text */
	struct option_spec spec = {0};

	for (size_t i = 0; i < sizeof(may) / sizeof(may[0]); i++)
		if (strcmp(name, may[i]) == 0)
			spec = *option_find(&perf_option_table, name, strlen(name));
	if (!spec.name) {
		snprintf(reason, reason_size, "'%s' can't be set; see help", name);
		return -EINVAL;
	}
	/* a flag is turned on and off, 0 takes a limit back */
	if (spec.type == OPTION_FLAG) {
		spec.type = OPTION_WORD;
		spec.words = "off|on";
	}
	if (spec.letter == 'n' || spec.letter == 'w')
		spec.min = 0;
	if (option_store(&spec, &changed, spec.name, value, reason, reason_size) ||
	    settle(&changed, reason, reason_size) != OPTIONS_RUN)
		return -EINVAL;
	*o = changed;
	return 0;
}
