/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-perf's parts: histogram, plan of sizes and contents, options, control messages. */
#include "calibrate.h"
#include "histogram.h"
#include "message.h"
#include "options.h"
#include "remote.h"
#include "schedule.h"
#include "worlds/words.h"

#include "ipc/apply.h"

#include "weir/invoke.h"
#include "weir/stream.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
test_histogram_buckets(void **state)
{
	uint32_t last = 0;

	for (uint64_t v = 0; v < 1u << 20; v++) {
		uint32_t b = histogram_bucket(v);
		uint64_t middle = histogram_value(b);

		assert_true(b < HISTOGRAM_BUCKETS);
		assert_true(b == last || b == last + 1);
		last = b;
		/* within 1 % of the truth */
		assert_true((middle > v ? middle - v : v - middle) * 100 <= v);
	}
	assert_int_equal(histogram_bucket((1ull << HISTOGRAM_MAX_BITS) - 1), HISTOGRAM_BUCKETS - 1);
	assert_int_equal(histogram_bucket(1ull << HISTOGRAM_MAX_BITS), HISTOGRAM_BUCKETS - 1);
	assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void
test_histogram_percentiles(void **state)
{
	static struct histogram a, b;

	histogram_clear(&a);
	histogram_clear(&b);
	assert_int_equal(histogram_percentile(&a, 0.5), 0);
	for (uint64_t v = 1; v <= 100; v++)
		histogram_record(&a, v);
	assert_int_equal(histogram_percentile(&a, 0.5), 50);
	assert_int_equal(histogram_percentile(&a, 0.99), 99);
	assert_int_equal(histogram_percentile(&a, 0.999), 100);
	assert_int_equal(histogram_percentile(&a, 0), 1);
	assert_true(histogram_mean(&a) == 50.5);
	assert_true(histogram_deviation(&b) == 0);
	/* of 1 ... n: sqrt((n * n - 1) / 12) */
	assert_true(histogram_deviation(&a) > 28.866 && histogram_deviation(&a) < 28.867);
	histogram_record(&b, 1000000);
	histogram_add(&b, &a);
	assert_int_equal(b.count, 101);
	assert_int_equal(b.min, 1);
	assert_int_equal(b.max, 1000000);
	assert_int_equal(histogram_percentile(&b, 0.5), 51);
	/* never more than the largest that was seen */
	assert_int_equal(histogram_percentile(&b, 1), 1000000);
}

static void
test_label(void **state)
{
	static const struct {
		double before, after; /* line_ns; negative: not measured */
		const char *label;
	} cases[] = {
	    {100, 100, "steady"},   {100, 119, "steady"},   {119, 100, "steady"},
	    {100, 121, "unsteady"}, {121, 100, "unsteady"}, {0, 100, "unsteady"},
	    {100, 0, "unsteady"},   {-1, 100, "none"},	    {100, -1, "none"},
	    {-1, -1, "none"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct calibration before = {.valid = cases[i].before >= 0,
					     .line_ns = cases[i].before};
		struct calibration after = {.valid = cases[i].after >= 0,
					    .line_ns = cases[i].after};

		assert_string_equal(calibration_label(&before, &after), cases[i].label);
		assert_int_equal(calibration_mean(&before, &after).valid,
				 strcmp(cases[i].label, "none") != 0);
	}
}

static void
test_contents(void **state)
{
	struct perf_schedule plan = {.test = PERF_BW, .size = 300, .seed = 7}, other = plan;
	uint8_t buf[300];

	other.seed = 8;
	for (size_t length = 0; length <= sizeof(buf); length++) {
		memset(buf, 0, sizeof(buf));
		perf_schedule_fill(&plan, 5, buf, length);
		assert_true(perf_schedule_check(&plan, 5, buf, length));
		if (length < 8)
			continue;
		assert_false(perf_schedule_check(&plan, 6, buf, length));
		assert_false(perf_schedule_check(&other, 5, buf, length));
		for (size_t i = 0; i < length; i += 7) {
			buf[i] ^= 0x10;
			assert_false(perf_schedule_check(&plan, 5, buf, length));
			buf[i] ^= 0x10;
		}
	}
	/* two pieces that changed places */
	perf_schedule_fill(&plan, 5, buf, sizeof(buf));
	for (size_t i = 0; i < 64; i++) {
		uint8_t byte = buf[i];

		buf[i] = buf[64 + i];
		buf[64 + i] = byte;
	}
	assert_false(perf_schedule_check(&plan, 5, buf, sizeof(buf)));
}

static void
test_stamps(void **state)
{
	uint8_t buf[64] = {0};

	for (size_t length = 0; length <= sizeof(buf); length++) {
		perf_schedule_stamp(77, buf, length);
		assert_true(perf_schedule_stamped(77, buf, length));
		if (length >= 8)
			assert_false(perf_schedule_stamped(78, buf, length));
	}
}

static void
test_mixed_sizes(void **state)
{
	struct perf_schedule plan = {.test = PERF_MIX, .count = 100000, .large = 10, .seed = 3};
	uint32_t of_bit[26] = {0}, large = 0, zero = 0;

	for (uint64_t i = 0; i < plan.count; i++) {
		uint32_t size = perf_schedule_size(&plan, i);

		assert_true(size <= 16u << 20);
		assert_int_equal(size, perf_schedule_size(&plan, i));
		assert_true(size <= 8192 || size >= 65536);
		large += size >= 65536;
		zero += size == 0;
		of_bit[size ? 32 - (uint32_t)__builtin_clz(size) : 0]++;
	}
	assert_int_equal(large, 10);
	assert_true(zero > 1000);
	/* every doubling is as likely as the others */
	for (unsigned bit = 2; bit <= 13; bit++)
		assert_in_range(of_bit[bit], 6000, 8300);
	assert_int_equal(perf_schedule_largest(&plan), 16u << 20);
	plan.large = 0;
	assert_int_equal(perf_schedule_largest(&plan), 8192);
}

static char reason[160];

static enum options_result
parse(struct perf_options *o, const char *line)
{
	char *argv[WORDS_MAX];
	int argc = words_split("weir-perf", line, argv);

	reason[0] = '\0';
	enum options_result result = perf_options_parse(argc, argv, o, reason, sizeof(reason));

	/* cause and remedy, in one line */
	if (result == OPTIONS_WRONG)
		assert_true((strstr(reason, "; ") || strstr(reason, " (expected ")) &&
			    !strchr(reason, '\n'));
	return result;
}

static void
test_options(void **state)
{
	struct perf_options o;

	unsetenv("WEIR_INSTANCE");
	assert_int_equal(parse(&o, ""), OPTIONS_RUN);
	assert_string_equal(o.instance, "default");
	setenv("WEIR_INSTANCE", "C", 1); /* which is what it attaches to, and says */
	assert_int_equal(parse(&o, ""), OPTIONS_RUN);
	assert_string_equal(o.instance, "C");
	assert_int_equal(parse(&o, "--instance B"), OPTIONS_RUN);
	assert_string_equal(o.instance, "B");
	assert_int_equal(o.test_count, 0);
	assert_int_equal(
	    parse(&o, "--instance A node:2 -t lat,bw -s 8,64k,1M -n 100 -w 16 -b --wait sleep "
		      "--cpu 1 --verify --seed 9 --json --flags RC"),
	    OPTIONS_RUN);
	assert_string_equal(o.address, "node:2");
	assert_int_equal(o.test_count, 2);
	assert_int_equal(o.tests[1], PERF_BW);
	assert_int_equal(o.size_count, 3);
	assert_int_equal(o.sizes[1], 65536);
	assert_int_equal(o.sizes[2], 1 << 20);
	assert_int_equal(o.count, 100);
	assert_int_equal(o.window, 16);
	assert_true(o.both && o.sleep && o.verify);
	assert_int_equal(o.cpu, 1);
	assert_int_equal(o.seed, 9);
	assert_int_equal(o.format, FORMAT_JSON);
	assert_int_equal(parse(&o, "node:2 -t rate --all -D 0.5"), OPTIONS_RUN);
	assert_int_equal(o.size_count, 22);
	assert_int_equal(o.sizes[21], 16 << 20);
	assert_int_equal(parse(&o, "node:2 -t lat,bw,rate -s 8 --flags UD"), OPTIONS_RUN);
	assert_int_equal(o.flags, WEIR_UD);
	assert_string_equal(perf_flags_text(&o), "UD");
	assert_int_equal(parse(&o, "node:2 -t lat --flags RC,READ"), OPTIONS_RUN);
	assert_string_equal(perf_flags_text(&o), "RC,READ");
	assert_int_equal(parse(&o, "node:2 -t mix -n 1000000"), OPTIONS_RUN);
	assert_int_equal(o.large, 100);
	assert_int_equal(parse(&o, "--loop -t lat"), OPTIONS_RUN);
	assert_int_equal(parse(&o, "--public --service kv"), OPTIONS_RUN);
	assert_true(o.is_public);
	assert_int_equal(parse(&o, "service:kv -t lat"), OPTIONS_RUN);
	assert_int_equal(parse(&o, "--help"), OPTIONS_HELP);
	assert_int_equal(parse(&o, "--version"), OPTIONS_VERSION);
}

static void
test_wrong_options(void **state)
{
	static const char *const wrong[] = {
	    "--bogus",
	    "-x",
	    "-t lat",
	    "node:2",
	    "node:2 -t",
	    "node:2 -t fast",
	    "node:2 -t lat,",
	    "node:2 -t lat -s",
	    "node:2 -t lat -s ,",
	    "node:2 -t lat -s 17m",
	    "node:2 -t lat -s -1",
	    "node:2 -t lat -s 8x",
	    "node:2 -t lat -n 0",
	    "node:2 -t lat -D 0",
	    "node:2 -t lat -D nan",
	    "node:2 -t lat -w 0",
	    "node:2 -t lat --wait rest",
	    "node:2 -t lat --cpu -1",
	    "node:2 node:3 -t lat",
	    "--loop -t lat --wait sleep",
	    "--public node:2 -t lat",
	    "--public --transport tcp",
	    "node:2 -t mix -n 5 --large 6",
	    "node:2 -t mix --flags UD",
	    "node:2 -t read --flags UD",
	    "node:2 -t message --flags UD",
	    "node:2 -t lat --flags UD,RC",
	    "node:2 -t lat --flags UD,SEND",
	    "node:2 -t lat --flags UD --verify",
	    "node:2 -t lat -s 4 --flags UD",
	    "node:2 -t bw --flags UD",
	    "node:2 -t rate -b -n 5 --flags UD",
	    "127.0.0.1 -t rate --transport tcp --flags UD",
	    "node:2 -t lat --seed 1z",
	    "node:2 -t lat --calibrate --no-calibrate",
	    "node:2 -t rate --connections 0",
	    "node:2 -t rate --connections 10 --programs 2 -n 19",
	    "node:2 -t rate --programs 257",
	    "node:2 -t rate --pick any",
	    "node:2 -t rate --rate -1",
	    "node:2 -t rate --rate 5g",
	    "node:2 -t rate --stats-period -1",
	    "node:2 -t read --region 1k",
	    "node:2 -t read -s 16",
	    "node:2 -t read -s 64k --region 32k",
	    "node:2 -t read --transport tcp",
	    "node:2 -t message --loop",
	    "node:2 -t message --connections 2",
	    "node:2 -t request --threads 16 -n 15",
	    "127.0.0.1 -t rate --transport tcp --flags RING",
	    "node:2 -t rate --transport udp",
	    "--loop -t rate --programs 2",
	    "--loop -i",
	    "-i",
	    "node:2 -t lat --adopt",
	    "node:2 -t bw --adopt --copy",
	    "node:2 --alltoall -t rate",
	    "--alltoall --programs 2 -t rate",
	    "node:2 -t put --through door",
	    "node:2 -t lat --through window",
	    "node:2 -t put --by-engine",
	    "node:2 -t acc --by-engine",
	    "node:2 -t put --through window --by-engine",
	    "node:2 -t put,lat --through window",
	    "node:2 -t lock -s 8",
	    "node:2 -t lock -s 8 --through window --programs 2",
	    "node:2 -t lock --through window --threads 2",
	    "node:2 -t fence --threads 2",
	    "node:2 -t fence -w 4",
	    "node:2 -t pscw --target stop",
	    "node:2 -t pscw --partners 0 --programs 2",
	    "node:2 -t pscw --partners 3 --programs 2",
	    "node:2 -t fence --partners 1",
	    "node:2 -t flag --threads 2",
	    "node:2 -t flag -w 4",
	    "node:2 -t flag -s 8 --target stop",
	    "node:2 -t lockall --layout 8:16",
	    "node:2 -t put --readers 1 --programs 2",
	    "node:2 -t lock --readers 2",
	    "node:2 -t signal --through window --threads 2",
	    "127.0.0.1 -t fence --transport tcp",
	    "--loop -t fence",
	    "node:2 -t call -s 4097",
	    "node:2 -t call --threads 65",
	    "--inside -t call --threads 33",
	    "node:2 -t call -w 65537",
	    "node:2 -t call --connections 2",
	    "node:2 -t call --loop",
	    "node:2 -t call -b",
	    "node:2 -t call --rate 5",
	    "node:2 -t call --mode lazy",
	    "127.0.0.1 -t call --transport tcp",
	    "node:2 -t call --inside",
	    "--inside",
	    "--inside -t call --programs 2",
	    "--inside -t call -i",
	    "--inside -t lat",
	    "node:2 -t message --many",
	    "node:2 -t message --mode full",
	};
	struct perf_options o;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (parse(&o, wrong[i]) != OPTIONS_WRONG)
			fail_msg("'%s' was taken", wrong[i]);
	}
}

static void
test_cluster(void **state)
{
	struct perf_options o;

	unsetenv("WEIR_CLUSTER");
	assert_int_equal(parse(&o, "--alltoall -t rate"), OPTIONS_WRONG);
	setenv("WEIR_CLUSTER", "n0", 1);
	assert_int_equal(parse(&o, "--alltoall -t rate"), OPTIONS_WRONG);
	setenv("WEIR_CLUSTER", " n0  n1 n2\n", 1);
	assert_int_equal(parse(&o, "--alltoall -t rate -n 1"), OPTIONS_RUN);
	assert_int_equal(parse(&o, "--alltoall -t notify -n 3"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t lock -n 3"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t lock,lockall,fence,pscw --through window"),
			 OPTIONS_RUN);
	assert_int_equal(parse(&o, "--alltoall -t notify --through window"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t flag"), OPTIONS_WRONG);
	assert_int_equal(
	    parse(&o, "--alltoall -t call,return -w 5 --many --mode full --threads 32"),
	    OPTIONS_RUN);
	assert_int_equal(parse(&o, "--alltoall -t return --threads 33"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t call --inside"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t pscw --partners 2"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t pscw --partners 1"), OPTIONS_RUN);
	assert_int_equal(parse(&o, "--alltoall -t lock -s 8 --through window"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t put --through window --target stop"),
			 OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t put -n 2 --threads 3"), OPTIONS_WRONG);
	assert_int_equal(parse(&o, "--alltoall -t put,cas -n 3 --threads 3"), OPTIONS_RUN);
	assert_int_equal(o.cluster_count, 3);
	assert_string_equal(o.cluster[2], "n2");
}

/* A prompt's settings are checked as the command line is; a wrong one changes nothing. */
static void
test_set(void **state)
{
	struct perf_options o;
	char why[160];

	assert_int_equal(parse(&o, "node:2 -i"), OPTIONS_RUN);
	assert_true(o.duration_s > 3600);
	assert_int_equal(perf_options_set(&o, "size", "128", why, sizeof(why)), 0);
	assert_int_equal(perf_options_set(&o, "size", "256", why, sizeof(why)), 0);
	assert_int_equal(o.size_count, 1);
	assert_int_equal(o.sizes[0], 256);
	assert_int_equal(perf_options_set(&o, "connections", "20", why, sizeof(why)), 0);
	assert_int_equal(perf_options_set(&o, "count", "10", why, sizeof(why)), -EINVAL);
	assert_int_equal(o.count, 0);
	assert_non_null(strstr(why, "raise it to 20"));
	assert_int_equal(perf_options_set(&o, "count", "40", why, sizeof(why)), 0);
	assert_int_equal(perf_options_set(&o, "count", "0", why, sizeof(why)), 0);
	assert_int_equal(o.count, 0);
	assert_int_equal(perf_options_set(&o, "verify", "on", why, sizeof(why)), 0);
	assert_true(o.verify);
	assert_int_equal(perf_options_set(&o, "verify", "perhaps", why, sizeof(why)), -EINVAL);
	assert_int_equal(perf_options_set(&o, "instance", "B", why, sizeof(why)), -EINVAL);
	assert_int_equal(perf_options_set(&o, "test", "fast", why, sizeof(why)), -EINVAL);
	assert_int_equal(o.tests[0], PERF_RATE);
}

/* The option that is wrong is named, wherever it stands. */
static void
test_wrong_names(void **state)
{
	static const struct {
		const char *line, *names;
	} wrong[] = {
	    {"node:2 -t fast", "invalid value 'fast' for --test "},
	    {"node:2 -t lat --window 0", "invalid value '0' for --window "},
	    {"node:2 --seed=x -t lat", "invalid value 'x' for --seed "},
	    {"node:2 -t lat --pause", "missing value for --pause"},
	    {"node:2 -t lat -n", "missing value for --count"},
	    {"node:2 -t lat --bogus", "unknown option '--bogus'"},
	    {"node:2 -t lat -x", "unknown option '-x'"},
	};
	struct perf_options o;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(parse(&o, wrong[i].line), OPTIONS_WRONG);
		if (!strstr(reason, wrong[i].names))
			fail_msg("%s: %s", wrong[i].line, reason);
	}
}

static void
test_messages(void **state)
{
	struct perf_message m = {.magic = PERF_MAGIC,
				 .versions = PERF_VERSIONS,
				 .kind = PERF_REQUEST},
			    out;
	uint8_t buf[PERF_MESSAGE_MAX + 8] = {0};

	memcpy(buf, &m, sizeof(m));
	assert_int_equal(perf_message_read(&out, buf, sizeof(m), PERF_REQUEST), 0);
	assert_int_equal(perf_message_read(&out, buf, PERF_MESSAGE_MAX, PERF_REQUEST), 0);
	assert_int_equal(perf_message_read(&out, buf, sizeof(m), PERF_END), -EBADMSG);
	for (size_t n = 0; n < sizeof(buf); n++) {
		if (n != sizeof(m) && n != PERF_MESSAGE_MAX)
			assert_int_equal(perf_message_read(&out, buf, n, PERF_REQUEST), -EBADMSG);
	}
	m.test = PERF_TESTS;
	memcpy(buf, &m, sizeof(m));
	assert_int_equal(perf_message_read(&out, buf, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.test = PERF_BW;
	m.size = (16u << 20) + 1;
	memcpy(buf, &m, sizeof(m));
	assert_int_equal(perf_message_read(&out, buf, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.size = 8;
	/* lower, higher and overlapping ranges; messages of other versions have any length */
	for (int i = 0; i < 7; i++) {
		static const struct {
			struct weir_versions its;
			int rc;
		} cases[] = {
		    {{PERF_VERSION - 1, PERF_VERSION}, 0},
		    {{PERF_VERSION, PERF_VERSION + 3}, 0},
		    {{PERF_VERSION - 1, PERF_VERSION + 1}, 0},
		    {{PERF_VERSION, 0}, 0}, /* one number, as before there were ranges */
		    {{PERF_VERSION - 1, PERF_REQUEST}, -EPROTONOSUPPORT},
		    {{PERF_VERSION - 2, PERF_VERSION - 1}, -EPROTONOSUPPORT},
		    {{PERF_VERSION + 1, PERF_VERSION + 2}, -EPROTONOSUPPORT},
		};

		m.versions = cases[i].its;
		memcpy(buf, &m, sizeof(m));
		assert_int_equal(perf_message_read(&out, buf, sizeof(m), PERF_REQUEST),
				 cases[i].rc);
		assert_int_equal(perf_message_read(&out, buf, 16, PERF_REQUEST),
				 cases[i].rc ? cases[i].rc : -EBADMSG);
		assert_memory_equal(&out.versions, &cases[i].its, sizeof(out.versions));
	}
	/* what would be read lies in memory; what threads send has some */
	m = (struct perf_message){.magic = PERF_MAGIC,
				  .versions = PERF_VERSIONS,
				  .kind = PERF_REQUEST,
				  .test = PERF_READ,
				  .size = 65536,
				  .region = 65536};
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.region--;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.test = PERF_REQUESTS;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.threads = 257;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.threads = 256;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	/* never the length of a message of the plan */
	for (uint32_t size = 0; size < 1000; size++)
		assert_int_not_equal(perf_message_length(size), size);
}

/* Zero, updated by ones as engines do it, is the number that the target looks for, and no other. */
static void
test_elements(void **state)
{
	_Alignas(32) uint8_t element[PERF_ELEMENT_MAX], one[PERF_ELEMENT_MAX];
	uint32_t pairs = 0;

	for (uint32_t type = WEIR_T_BYTE; type <= WEIR_T_LONG_DOUBLE_AT; type++)
		for (uint32_t op = WEIR_ACC_SUM; op <= WEIR_ACC_NO_OP; op++) {
			if (!perf_elements_ok(type, op, perf_element_size(type)))
				continue;
			memset(element, 0, sizeof(element));
			perf_element_store(type, 1, one);
			for (uint64_t times = 0; times < 5; times++) {
				uint64_t is = perf_element_after(type, op, times);

				assert_true(perf_element_is(type, is, element));
				assert_false(perf_element_is(type, is + 1, element));
				assert_int_equal(weir_apply((enum weir_type)type, (enum weir_acc)op,
							    element, one, NULL, 1),
						 0);
			}
			pairs++;
		}
	/* as many as weir/type.h has, but for NO_OP: 8 integers, 3 floating, 3 complex, 6 pairs */
	assert_int_equal(pairs, 8 * 11 + 3 * 5 + 3 * 3 + 6 * 3 + 4 + 4);
	assert_false(perf_elements_ok(WEIR_T_LONG_DOUBLE, 0, 24));
	assert_false(perf_elements_ok(WEIR_T_LONG_DOUBLE_AT + 1, 0, 64));
	/* a float stops to count; padding is no part of a number, the second number is */
	assert_int_equal(perf_element_after(WEIR_T_FLOAT_COMPLEX, 0, 1 << 25), 1 << 24);
	assert_int_equal(perf_element_after(WEIR_T_DOUBLE_COMPLEX, 0, 1 << 25), 1 << 25);
	perf_element_store(WEIR_T_LONG_DOUBLE_AT, 1, element);
	element[10] = element[31] = 1;
	assert_true(perf_element_is(WEIR_T_LONG_DOUBLE_AT, 1, element));
	element[16]++;
	assert_false(perf_element_is(WEIR_T_LONG_DOUBLE_AT, 1, element));
	perf_element_store(WEIR_T_DOUBLE_COMPLEX, 1, element);
	element[15] = 1;
	assert_false(perf_element_is(WEIR_T_DOUBLE_COMPLEX, 1, element));
}

/* Some tests only windows have; others go through one if that is asked for. */
static void
test_windows(void **state)
{
	struct perf_message out, m = {.magic = PERF_MAGIC,
				      .versions = PERF_VERSIONS,
				      .kind = PERF_REQUEST,
				      .test = PERF_FENCE,
				      .threads = 1,
				      .group = 1,
				      .members = 2,
				      .rank = 1};
	struct perf_options o;

	assert_int_equal(parse(&o, "node:2 -t put,lock,lockall,fence,pscw -s 0"), OPTIONS_RUN);
	assert_false(perf_in_window(&o, PERF_PUT) || perf_in_window(&o, PERF_LOCK));
	assert_true(perf_in_window(&o, PERF_LOCKALL) && perf_in_window(&o, PERF_FENCE) &&
		    perf_in_window(&o, PERF_PSCW) && perf_in_window(&o, PERF_FLAG));
	assert_int_equal(parse(&o, "node:2 -t pscw,lockall --partners 2 --programs 2"),
			 OPTIONS_RUN);
	assert_int_equal(parse(&o, "node:2 -t put,get,acc,fop,cas,lock,notify,signal,lockall,fence,"
				   "pscw --through window --apart --programs 3 --verify"),
			 OPTIONS_RUN);
	assert_true(perf_in_window(&o, PERF_PUT) && perf_in_window(&o, PERF_LOCK));
	assert_false(perf_in_window(&o, PERF_LAT));
	assert_int_equal(parse(&o, "node:2 -t lock,fence -s 0,8 --through window"), OPTIONS_RUN);
	assert_int_equal(parse(&o, "node:2 -t lock --programs 4 --readers 3"), OPTIONS_RUN);
	assert_int_equal(parse(&o, "node:2 -t acc --through window --by-engine"), OPTIONS_RUN);
	assert_int_equal(perf_usual_size(PERF_FENCE, 0), 0);

	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.rank = 2;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.rank = 1;
	m.members = 1 + 2 * PERF_PROGRAMS_MAX;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.members = 1;
	m.rank = 0;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.members = 2;
	m.test = PERF_LAT;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.group = 0;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.test = PERF_PSCW;
	m.partners = 1;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.group = 1;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	/* each has partners, no two of which are one member */
	m.partners = 2;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.partners = 0;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.group = 0;
	m.test = PERF_LOCK;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);

	/* drivers that operate on one part do not overlap */
	m.size = 1000;
	m.threads = 3;
	m.flags = PERF_HERE;
	for (m.rank = 0; m.rank < 3; m.rank++)
		assert_int_equal(remote_base(&m),
				 REMOTE_LINE + m.rank * remote_layout(1000, 3).bytes);
	m.flags = 0;
	assert_int_equal(remote_base(&m), REMOTE_LINE);
}

/* Calls: the options, and requests that a server refuses. */
static void
test_calls(void **state)
{
	struct perf_message out, m = {.magic = PERF_MAGIC,
				      .versions = PERF_VERSIONS,
				      .kind = PERF_REQUEST,
				      .test = PERF_CALLS,
				      .size = 4096,
				      .threads = 64,
				      .mode = WEIR_BATCH_OVERFLOW,
				      .group = 1,
				      .members = 2,
				      .rank = 1};
	struct perf_options o;

	assert_int_equal(parse(&o, "node:2 -t call -s 0,4096 --threads 64 --many -w 65536"),
			 OPTIONS_RUN);
	assert_int_equal(o.mode, WEIR_BATCH_AUTO);
	assert_true(o.many && !o.inside);
	assert_int_equal(parse(&o, "--inside -t call --threads 32 --mode eager --wait sleep"),
			 OPTIONS_RUN);
	assert_int_equal(o.mode, WEIR_BATCH_EAGER);
	assert_int_equal(parse(&o, "node:2 -t call --mode full"), OPTIONS_RUN);
	assert_int_equal(o.mode, WEIR_BATCH_FULL);
	assert_int_equal(parse(&o, "node:2 -t call --mode overflow --programs 2"), OPTIONS_RUN);
	assert_int_equal(o.mode, WEIR_BATCH_OVERFLOW);

	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.size++;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.size = 0;
	m.threads++;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.threads = 0;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.threads = 1;
	m.mode++;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.mode = 0;
	m.members = 1;
	m.rank = 0;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	/* without a group only threads of one program call each other, and these have none */
	m.group = 0;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.flags = PERF_HERE;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	/* as many threads as make calls run those of all others */
	m.group = 1;
	m.members = 3;
	m.threads = 32;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.threads++;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
}

/* To whom a member starts posts to it; of an even number of members each host has every other. */
static void
test_partners(void **state)
{
	for (uint32_t members = 2; members < 9; members++)
		for (uint32_t rank = 0; rank < members; rank++)
			for (uint32_t i = 0; i < members / 2; i++) {
				uint32_t right = remote_partner(rank, members, i, true);

				assert_true(right < members && right != rank);
				assert_int_equal(remote_partner(right, members, i, false), rank);
				assert_true(members % 2 || (right + rank) % 2);
				for (uint32_t k = 0; k < i; k++)
					assert_int_not_equal(remote_partner(rank, members, k, true),
							     right);
			}
}

/* Requests for updates are of whole elements; others are refused. */
static void
test_updates(void **state)
{
	struct perf_message out, m = {.magic = PERF_MAGIC,
				      .versions = PERF_VERSIONS,
				      .kind = PERF_REQUEST,
				      .test = PERF_ACC,
				      .type = WEIR_T_DOUBLE_COMPLEX,
				      .size = 64,
				      .block = 16,
				      .stride = 24,
				      .threads = 1};

	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.stride = 28;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.stride = 24;
	m.block = 8;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.type = 1000;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.type = WEIR_T_INT32;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.block = 0;
	m.test = PERF_FOP;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.size = 4;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	m.block = m.stride = 4;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.block = 0;
	m.test = PERF_CAS;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), -EBADMSG);
	m.type = 0;
	m.size = 8;
	assert_int_equal(perf_message_read(&out, &m, sizeof(m), PERF_REQUEST), 0);
	assert_int_equal(perf_usual_size(PERF_ACC, WEIR_T_LONG_DOUBLE_AT), 32);
	assert_int_equal(perf_usual_size(PERF_ACC, WEIR_T_INT8), 8);
	assert_int_equal(perf_usual_size(PERF_FOP, WEIR_T_INT8), 1);
}

/* Parts of threads and slots do not overlap; the target finds each operation that is not there. */
static void
test_remote(void **state)
{
	static const uint32_t sizes[] = {0, 1, 7, 8, 9, 64, 1000, 65536, 16u << 20};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct perf_message m = {.test = PERF_PUT,
					 .size = sizes[s],
					 .threads = 2,
					 .seed = 5,
					 .flags = PERF_VERIFY};
		struct remote_layout l = remote_layout(m.size, m.threads);
		uint8_t *memory = calloc(1, l.bytes);
		uint64_t count, errors, n = 3 * l.slots + 1;

		assert_int_equal(remote_slot_at(&l, 1, 0) % 8, 0); /* 8 bytes are put whole */
		assert_true(remote_slot_at(&l, 0, l.slots - 1) + m.size <= remote_count_at(&l, 1));
		assert_true(remote_slot_at(&l, 1, l.slots - 1) + m.size <= l.bytes);
		assert_true(l.slots >= 1 && l.slots <= REMOTE_SLOTS_MAX);
		for (uint32_t t = 0; t < m.threads; t++) {
			struct perf_schedule schedule = remote_schedule(&m, t);

			for (uint64_t i = n - l.slots; i < n; i++)
				perf_schedule_fill(&schedule, i, memory + remote_slot_at(&l, t, i),
						   m.size);
			memcpy(memory + remote_count_at(&l, t), &n, sizeof(n));
		}
		remote_check(&m, memory, &count, &errors);
		assert_int_equal(count, 2 * n);
		assert_int_equal(errors, 0);
		if (m.size) {
			memory[remote_slot_at(&l, 1, n - 1) + m.size - 1] ^= 1;
			remote_check(&m, memory, &count, &errors);
			assert_int_equal(errors, 1);
			memory[remote_slot_at(&l, 1, n - 1) + m.size - 1] ^= 1;
			/* the last one of a thread is missing, though it was counted */
			n++;
			memcpy(memory + remote_count_at(&l, 0), &n, sizeof(n));
			remote_check(&m, memory, &count, &errors);
			assert_int_equal(errors, 1);
		}
		free(memory);
	}
	/* gets find what the target has written; updates are counted per element */
	for (uint32_t test = PERF_GET; test <= PERF_CAS; test++) {
		struct perf_message m = {
		    .test = test, .size = test == PERF_ACC ? 32 : 8, .threads = 3};
		struct remote_layout l = remote_layout(m.size, m.threads);
		uint8_t *memory = calloc(1, l.bytes);
		uint64_t count, errors, n = 2 * l.slots + 5;

		if (test == PERF_GET)
			remote_fill(&m, memory);
		for (uint32_t t = 0; t < m.threads; t++) {
			memcpy(memory + remote_count_at(&l, t), &n, sizeof(n));
			for (uint64_t i = 0; perf_is_update(test) && i < n; i++)
				for (uint32_t at = 0; at < m.size; at += 8)
					memory[remote_slot_at(&l, t, i) + at]++;
		}
		remote_check(&m, memory, &count, &errors);
		assert_int_equal(count, 3 * n);
		assert_int_equal(errors, 0);
		memory[remote_slot_at(&l, 2, 4) + m.size - 8]++;
		memory[remote_slot_at(&l, 1, l.slots - 1)]--;
		remote_check(&m, memory, &count, &errors);
		assert_int_equal(errors, 2);
		free(memory);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_histogram_buckets),
	    cmocka_unit_test(test_histogram_percentiles),
	    cmocka_unit_test(test_label),
	    cmocka_unit_test(test_contents),
	    cmocka_unit_test(test_stamps),
	    cmocka_unit_test(test_mixed_sizes),
	    cmocka_unit_test(test_options),
	    cmocka_unit_test(test_wrong_options),
	    cmocka_unit_test(test_wrong_names),
	    cmocka_unit_test(test_cluster),
	    cmocka_unit_test(test_set),
	    cmocka_unit_test(test_messages),
	    cmocka_unit_test(test_remote),
	    cmocka_unit_test(test_elements),
	    cmocka_unit_test(test_updates),
	    cmocka_unit_test(test_windows),
	    cmocka_unit_test(test_calls),
	    cmocka_unit_test(test_partners),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
