/* SPDX-License-Identifier: BSD-3-Clause */
/* Every option of every program: bounds, duplicates, unknown names, missing values, --help. */
#include "worlds/test.h"

#include "base/options.h"
#include "cluster/options.h"
#include "daemon/options.h"
#include "hex/options.h"
#include "lend/lend.h"
#include "perf/options.h"
#include "run/run.h"
#include "tools/nicperf/options.h"
#include "tools/roce_peer/options.h"
#include "tools/switch/options.h"
#include "weirctl/weirctl.h"

#include <unistd.h>

static const struct option_table *const tables[] = {
    &options_table,	&control_option_table, &weirctl_option_table, &pki_option_table,
    &perf_option_table, &nicperf_option_table, &peer_option_table,    &switch_option_table,
    &lend_option_table, &run_option_table,     &hex_option_table,
};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

static _Alignas(64) char into[1 << 20];
static char error[512];

/* Only options are of interest here, not the words of its messages. */
int
weirctl_fail(int code, const char *format, ...)
{
	return code;
}

/* Defaults, and then up to four words. */
static int
parse(const struct option_table *table, const char *a, const char *b, const char *c, const char *d)
{
	const char *words[] = {a, b, c, d};
	char *argv[4];
	int argc = 0;

	while (argc < 4 && words[argc]) {
		argv[argc] = (char *)words[argc];
		argc++;
	}
	assert_true(table->size <= sizeof(into));
	error[0] = '\0';
	assert_int_equal(option_defaults(table, into, error, sizeof(error)), 0);
	return option_parse(table, into, &argc, argv, error, sizeof(error));
}

static const char *
name_of(const struct option_spec *spec)
{
	static char name[64];

	if (spec->name)
		snprintf(name, sizeof(name), "--%s", spec->name);
	else
		snprintf(name, sizeof(name), "-%c", spec->letter);
	return name;
}

static bool
has_argument(const struct option_spec *spec)
{
	return spec->argument || spec->words;
}

static uint64_t
stored(const struct option_spec *spec)
{
	uint64_t n = 0;

	memcpy(&n, into + spec->offset, spec->width);
	return n;
}

static void
accepted(const struct option_table *table, const struct option_spec *spec, const char *value)
{
	if (parse(table, name_of(spec), value, NULL, NULL))
		fail_msg("%s %s: %s", name_of(spec), value, error);
}

static void
refused(const struct option_table *table, const struct option_spec *spec, const char *value)
{
	char begin[128];

	if (parse(table, name_of(spec), value, NULL, NULL) != -EINVAL)
		fail_msg("%s takes '%s'", name_of(spec), value);
	snprintf(begin, sizeof(begin), "invalid value '%s' for %s (expected ", value,
		 name_of(spec));
	if (spec->type != OPTION_CALL && strncmp(error, begin, strlen(begin)))
		fail_msg("%s", error);
	if (!strstr(error, "; ") && !strstr(error, " (expected "))
		fail_msg("neither a remedy nor expected values: %s", error);
}

/* Calls check() per option of all programs. */
static void
each(void (*check)(const struct option_table *table, const struct option_spec *spec))
{
	for (size_t t = 0; t < TABLES; t++)
		for (size_t i = 0; i < tables[t]->count; i++)
			check(tables[t], &tables[t]->specs[i]);
}

static void
check_declaration(const struct option_table *table, const struct option_spec *spec)
{
	assert_true(spec->name || spec->letter);
	assert_true(spec->help && *spec->help);
	assert_true(spec->min <= spec->max || spec->type == OPTION_TEXT);
	assert_true(spec->least <= spec->most);
	assert_true(spec->offset + spec->width <= table->size);
	assert_true((spec->type == OPTION_CALL) == (spec->take != NULL));
	assert_true((spec->type == OPTION_WORD) == (spec->words != NULL));
	for (const struct option_spec *other = table->specs; other < spec; other++) {
		assert_true(!spec->letter || other->letter != spec->letter);
		if (spec->name && other->name)
			assert_true(strcmp(other->name, spec->name) < 0);
	}
}

TEST(test_declarations)
{
	each(check_declaration);
}

static void
check_bounds(const struct option_table *table, const struct option_spec *spec)
{
	bool size = spec->type == OPTION_SIZE;
	char text[64];

	if (spec->type != OPTION_UNSIGNED && !size)
		return;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->min);
	accepted(table, spec, text);
	assert_true(stored(spec) == spec->min);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->max);
	accepted(table, spec, text);
	assert_true(stored(spec) == spec->max);
	if (spec->min) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->min - 1);
		refused(table, spec, text);
	}
	if (spec->max < UINT64_MAX) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->max + 1);
		refused(table, spec, text);
	}
	if (size && spec->min <= 1 << 20 && spec->max >= 1 << 20) {
		accepted(table, spec, "1024k");
		assert_true(stored(spec) == 1 << 20);
		accepted(table, spec, "1M");
		assert_true(stored(spec) == 1 << 20);
	}
	if (!size)
		refused(table, spec, "1k");
	refused(table, spec, "18446744073709551616");
	refused(table, spec, "17592186044416M"); /* 2^64 */
	refused(table, spec, "7x");
	refused(table, spec, "1kk");
	refused(table, spec, "-1");
	refused(table, spec, " 1");
	refused(table, spec, "");
}

static void
check_real(const struct option_table *table, const struct option_spec *spec)
{
	char text[64];

	if (spec->type != OPTION_REAL)
		return;
	snprintf(text, sizeof(text), "%.17g", spec->least);
	accepted(table, spec, text);
	snprintf(text, sizeof(text), "%.17g", spec->most);
	accepted(table, spec, text);
	assert_true(*(double *)(into + spec->offset) == spec->most);
	snprintf(text, sizeof(text), "%.17g", spec->most * 1.001);
	refused(table, spec, text);
	if (spec->least > 0)
		refused(table, spec, "0");
	refused(table, spec, "nan");
	refused(table, spec, "inf");
	refused(table, spec, "-1");
	refused(table, spec, "1s");
	refused(table, spec, "");
}

static void
check_words(const struct option_table *table, const struct option_spec *spec)
{
	char copy[128], *rest = copy, *word;
	uint64_t index = 0;

	if (spec->type != OPTION_WORD)
		return;
	snprintf(copy, sizeof(copy), "%s", spec->words);
	while ((word = strsep(&rest, "|"))) {
		accepted(table, spec, word);
		assert_true(stored(spec) == index++);
		refused(table, spec, "sometimes");
		assert_non_null(strstr(error, word)); /* all words are named */
	}
	refused(table, spec, "");
	refused(table, spec, spec->words);
}

static void
check_others(const struct option_table *table, const struct option_spec *spec)
{
	if (spec->type == OPTION_CALL && has_argument(spec))
		refused(table, spec, "?");
	if (spec->type == OPTION_TEXT) {
		accepted(table, spec, "text");
		assert_string_equal(*(const char **)(into + spec->offset), "text");
		if (spec->min)
			refused(table, spec, "");
	}
	if (spec->type == OPTION_FLAG || spec->type == OPTION_STOP) {
		assert_int_equal(parse(table, NULL, NULL, NULL, NULL), 0);
		assert_false(stored(spec));
		accepted(table, spec, NULL);
		assert_true(stored(spec));
	}
}

TEST(test_values)
{
	each(check_bounds);
	each(check_real);
	each(check_words);
	each(check_others);
}

static void
check_missing(const struct option_table *table, const struct option_spec *spec)
{
	char begin[128];

	if (has_argument(spec)) {
		assert_int_equal(parse(table, name_of(spec), NULL, NULL, NULL), -EINVAL);
		snprintf(begin, sizeof(begin), "missing value for %s (expected ", name_of(spec));
	} else {
		snprintf(begin, sizeof(begin), "%s=on", name_of(spec));
		assert_int_equal(parse(table, begin, NULL, NULL, NULL), -EINVAL);
		snprintf(begin, sizeof(begin), "%s takes no value; ", name_of(spec));
	}
	if (strncmp(error, begin, strlen(begin)))
		fail_msg("%s", error);
}

TEST(test_missing)
{
	each(check_missing);
}

static void
check_unknown(const struct option_table *table, const struct option_spec *spec)
{
	char word[64], nearest[256];

	if (!spec->name)
		return;
	snprintf(word, sizeof(word), "--%sx", spec->name);
	assert_int_equal(parse(table, word, NULL, NULL, NULL), -EINVAL);
	snprintf(nearest, sizeof(nearest), "unknown option '%s', the nearest is --%s; ", word,
		 spec->name);
	if (strncmp(error, nearest, strlen(nearest)))
		fail_msg("%s", error);
	assert_int_equal(parse(table, "--colourless", NULL, NULL, NULL), -EINVAL);
	assert_non_null(strstr(error, "unknown option '--colourless'; "));
	assert_int_equal(parse(table, "-?", NULL, NULL, NULL), -EINVAL);
	assert_non_null(strstr(error, "unknown option '-?'; "));
	if (!table->operands) {
		assert_int_equal(parse(table, "more", NULL, NULL, NULL), -EINVAL);
		assert_non_null(strstr(error, "unexpected argument 'more'; "));
	}
}

TEST(test_unknown)
{
	each(check_unknown);
}

/* Of two values on one command line the last stands, unless the option is a list. */
static void
twice(const struct option_table *table, const struct option_spec *spec, const char *first,
      const char *last, bool list)
{
	static char alone[sizeof(into)];
	char name[64];

	snprintf(name, sizeof(name), "%s", name_of(spec));
	accepted(table, spec, last);
	memcpy(alone, into, table->size);
	if (first ? parse(table, name, first, name, last) : parse(table, name, name, NULL, NULL))
		fail_msg("%s twice: %s", name, error);
	if (list != (memcmp(alone, into, table->size) != 0))
		fail_msg("%s twice: %s", name, list ? "one value is lost" : "not the last stands");
}

static void
check_duplicates(const struct option_table *table, const struct option_spec *spec)
{
	char least[64], most[64];

	switch (spec->type) {
	case OPTION_FLAG:
	case OPTION_STOP:
		twice(table, spec, NULL, NULL, false);
		return;
	case OPTION_UNSIGNED:
	case OPTION_SIZE:
		snprintf(least, sizeof(least), "%llu", (unsigned long long)spec->min);
		snprintf(most, sizeof(most), "%llu", (unsigned long long)spec->max);
		break;
	case OPTION_REAL:
		snprintf(least, sizeof(least), "%.17g", spec->least);
		snprintf(most, sizeof(most), "%.17g", spec->most);
		break;
	case OPTION_TEXT:
		snprintf(least, sizeof(least), "text");
		snprintf(most, sizeof(most), "word");
		break;
	case OPTION_WORD:
		snprintf(least, sizeof(least), "%.*s", (int)strcspn(spec->words, "|"), spec->words);
		snprintf(most, sizeof(most), "%s", strrchr(spec->words, '|') + 1);
		break;
	case OPTION_CALL: /* test_calls */
		if (!has_argument(spec))
			twice(table, spec, NULL, NULL, false);
		return;
	}
	twice(table, spec, least, most, false);
	twice(table, spec, most, least, false);
}

TEST(test_duplicates)
{
	each(check_duplicates);
}

#define EIGHT "1,1,1,1,1,1,1,1,"
#define SIXTY_FOUR EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT "1,1,1,1,1,1,1,1"
#define THIRTY_TWO EIGHT EIGHT EIGHT "1,1,1,1,1,1,1,1"
#define TESTS(name) name "," name "," name "," name "," name ","
#define THIRTY "123456789012345678901234567890"

/* Options with a grammar of their own: both ends of their values, and those just outside. */
static const struct call {
	const struct option_table *table;
	const char *name; /* or letter */
	bool list;
	const char *good[2];
	const char *bad[8];
} calls[] = {
    {&options_table,
     "allow",
     true,
     {"user:0", "group:4294967294"},
     {"user:4294967295", "user:-1", "user:", "0"}},
    {&options_table, "instance", false, {"a", THIRTY "1"}, {THIRTY "12", "", ".a", "-a", "a/b"}},
    {&options_table,
     "nic",
     true,
     {"roce:0,ip=10.0.0.1/1,vlan=1", "roce:0,ip=10.0.0.1/32,vlan=4094"},
     {"roce:0,ip=10.0.0.1/0", "roce:0,ip=10.0.0.1/33", "roce:0,ip=224.0.0.1/24",
      "roce:0,ip=10.0.0.1/24,vlan=0", "roce:0,ip=10.0.0.1/24,vlan=4095",
      "roce:0,ip=10.0.0.1/24,mtu=1000", "roce:,ip=10.0.0.1/24", "verbs:"}},
    {&options_table,
     "program-rate",
     false,
     {"1000", "1000G"},
     {"999", "1001G", "18446744074G", "-1", "1000,", "1T", ""}},
    {&options_table,
     "run-dir",
     false,
     {"/", "/" THIRTY "12345678901234567890123456789"},
     {"/" THIRTY THIRTY, "run", ""}},
    {&options_table,
     "user-limit",
     true,
     {"0:sessions=1", "*:connections=1048576"},
     {"0:sessions=0", "0:connections=1048577", "0:memory=1125899906842625", "0:doors=1",
      ":sessions=1", "0:"}},
    {&control_option_table,
     "join",
     false,
     {"a:1", "[::1]:65535,b:2"},
     {"a:0", "a:65536", "a", "a:1,", "::1:5", ""}},
    {&control_option_table, "node", false, {"0", "65534"}, {"65535", "-1", "automatic", ""}},
    {&control_option_table,
     "node-timeout",
     false,
     {"100", "3600s"},
     {"99", "99ms", "3600001", "3601s", "0s", "1m", "s", ""}},
    {&perf_option_table,
     "flags",
     false,
     {"UD", "RC,WRITE"},
     {"RC,UD", "RING,SEND", "rc", "RC,", ""}},
    {&perf_option_table,
     "layout",
     false,
     {"1:1", "1073741824:1073741824"},
     {"0:1", "2:1", "1:1073741825", "1:", ":1", "1"}},
    {&perf_option_table, "op", false, {"sum", "replace"}, {"summ", "SUM", ""}},
    {&perf_option_table,
     "rate",
     false,
     {"0", "1000000m"},
     {"1000001m", "1000000000001", "-1", "nan", "1g", "k", ""}},
    {&perf_option_table,
     "size",
     false,
     {"0", SIXTY_FOUR},
     {SIXTY_FOUR ",1", "16777217", "17m", "-1", "8,", ""}},
    {&perf_option_table,
     "test",
     false,
     {"lat", "pscw"},
     {TESTS("lat") TESTS("lat") TESTS("lat") TESTS("lat") "lat,lat", "latency", "lat,", ""}},
    {&perf_option_table, "type", false, {"byte", "long_double_at"}, {"int", "BYTE", ""}},
    {&nicperf_option_table,
     "nic",
     false,
     {"roce:0,ip=10.0.0.1/1", "verbs:a"},
     {"roce:0,ip=10.0.0.1/0", "verbs:", "net:0"}},
    {&nicperf_option_table,
     "s",
     false,
     {"16m", THIRTY_TWO},
     {THIRTY_TWO ",1", "0", "16777217", "-1", "8,", ""}},
    {&nicperf_option_table,
     "t",
     false,
     {"write", "verify"},
     {TESTS("lat") "lat,lat,lat,lat", "latency", "lat,", ""}},
    {&run_option_table,
     "instances",
     false,
     {THIRTY "1", "a,b,c"},
     {THIRTY "12", "a,,b", "a,", ".a", "-a", "a/b", SIXTY_FOUR ",1", ""}},
    {&hex_option_table,
     "virtual",
     false,
     {"1x1", "4x256"},
     {"0x1", "1x0", "1025x1", "4x257", "x4", "4x", "4", ""}},
    {&peer_option_table, "m", false, {"256", "4096"}, {"128", "255", "1000", "8k", ""}},
    {&peer_option_table,
     "nic",
     false,
     {"roce:0,ip=10.0.0.1/1", "verbs:a"},
     {"roce:0,ip=10.0.0.1/0", "verbs:", "net:0"}},
    {&peer_option_table,
     "t",
     false,
     {"send_bw:1", "write_bw:8m+q256"},
     {"send_bw:0", "send_bw:8388609", "send_bw+q0", "send_bw+q257", "send_bw+D0", "send_bw+D3601",
      "send_bw,", ""}},
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void
check_calls(const struct option_table *table, const struct option_spec *spec)
{
	char name[2] = {spec->letter};
	const struct call *c = calls;

	if (spec->type != OPTION_CALL || !has_argument(spec))
		return;
	while (c < calls + CALLS &&
	       (c->table != table || strcmp(c->name, spec->name ? spec->name : name)))
		c++;
	if (c == calls + CALLS)
		fail_msg("%s is not among the calls; add it", name_of(spec));
	for (size_t i = 0; i < 8 && c->bad[i]; i++)
		refused(table, spec, c->bad[i]);
	accepted(table, spec, c->good[0]);
	twice(table, spec, c->good[0], c->good[1], c->list);
}

TEST(test_calls)
{
	each(check_calls);
}

static void
check_environment(const struct option_table *table, const struct option_spec *spec)
{
	char text[32];

	if (!spec->env)
		return;
	if (spec->type == OPTION_UNSIGNED || spec->type == OPTION_SIZE) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->min);
		setenv(spec->env, text, 1);
		assert_int_equal(parse(table, NULL, NULL, NULL, NULL), 0);
		assert_true(stored(spec) == spec->min);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->max);
		accepted(table, spec, text);
		assert_true(stored(spec) == spec->max);
	}
	setenv(spec->env, "", 1); /* as if it were not there */
	assert_int_equal(parse(table, NULL, NULL, NULL, NULL), 0);
	if (spec->type != OPTION_TEXT) {
		setenv(spec->env, "?", 1);
		assert_int_equal(option_defaults(table, into, error, sizeof(error)), -EINVAL);
		snprintf(text, sizeof(text), "for $%s ", spec->env);
		assert_non_null(strstr(error, text));
	}
	unsetenv(spec->env);
}

TEST(test_environment)
{
	each(check_environment);
}

/* One space for each run of white space. */
static void
join_lines(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++)
		if (*from != ' ' && *from != '\n')
			*to++ = *from;
		else if (to > text && to[-1] != ' ')
			*to++ = ' ';
	*to = '\0';
}

TEST(test_help)
{
	for (size_t t = 0; t < TABLES; t++) {
		char *text, *copy, *line, *rest;
		size_t size;
		FILE *to = open_memstream(&text, &size);

		option_print_help(tables[t], to);
		fclose(to);
		rest = copy = strdup(text);
		while ((line = strsep(&rest, "\n")))
			if (strlen(line) > 100)
				fail_msg("more than 100 columns: %s", line);
		free(copy);
		join_lines(text);
		for (size_t i = 0; i < tables[t]->count; i++) {
			const struct option_spec *spec = &tables[t]->specs[i];
			char word[128];

			snprintf(word, sizeof(word), "%s%s%s", name_of(spec),
				 has_argument(spec) ? " " : "",
				 spec->argument ? spec->argument
				 : spec->words	? spec->words
						: "");
			assert_non_null(strstr(text, word));
			snprintf(word, sizeof(word), "[%s", spec->initial ? spec->initial : "");
			assert_true(!spec->initial || strstr(text, word));
			snprintf(word, sizeof(word), "from %llu to %llu]",
				 (unsigned long long)spec->min, (unsigned long long)spec->max);
			assert_true(spec->type != OPTION_UNSIGNED || spec->max >= UINT64_MAX >> 8 ||
				    strstr(text, word));
			assert_true(!spec->env || strstr(text, spec->env));
		}
		free(text);
	}
}

TEST(test_spelling)
{
	const struct perf_options *o = (struct perf_options *)into;
	char *argv[] = {(char *)"-bn5",	  (char *)"node:2", (char *)"--win=7",
			(char *)"-s8,1k", (char *)"--",	    (char *)"-x"};
	int argc = 6;

	/* letters together, values attached, names abbreviated, operands in between */
	assert_int_equal(option_defaults(&perf_option_table, into, error, sizeof(error)), 0);
	assert_int_equal(option_parse(&perf_option_table, into, &argc, argv, error, sizeof(error)),
			 -EINVAL);
	assert_non_null(strstr(error, "unexpected argument '-x'; "));
	assert_true(o->both && o->count == 5 && o->window == 7 && o->size_count == 2);
	assert_int_equal(parse(&perf_option_table, "-bn", "6", "--", "-y"), 0);
	assert_true(o->both && o->count == 6);
	assert_int_equal(parse(&perf_option_table, "--al", NULL, NULL, NULL), -EINVAL);
	assert_non_null(strstr(error, "unknown option '--al'"));
	assert_int_equal(parse(&perf_option_table, "--all", NULL, NULL, NULL), 0);
	/* of weir-perf and no other program */
	assert_int_equal(parse(&perf_option_table, "--window", "0x10", "-n", "010"), 0);
	assert_true(o->window == 16 && o->count == 8);
	assert_int_equal(parse(&options_table, "--windo", "1M", NULL, NULL), -EINVAL);
	assert_int_equal(parse(&options_table, "--links", "0x10", NULL, NULL), -EINVAL);
	/* what stands behind --help is not read */
	assert_int_equal(parse(&perf_option_table, "--help", "--colourless", NULL, NULL), 0);
	assert_true(o->help);
}

/* A program follows, with options of its own. */
TEST(test_command)
{
	static const char *const words[] = {"program", "-t", "--", "--help"};
	const struct run_options *o = (struct run_options *)into;
	char *argv[] = {(char *)"-n", (char *)"3",  (char *)"program",
			(char *)"-t", (char *)"--", (char *)"--help"};
	int argc = 6;

	assert_int_equal(option_defaults(&run_option_table, into, error, sizeof(error)), 0);
	assert_int_equal(option_parse(&run_option_table, into, &argc, argv, error, sizeof(error)),
			 0);
	assert_true(o->processes == 3 && !o->threads && !o->help);
	assert_int_equal(argc, 4);
	for (int i = 0; i < argc; i++)
		assert_string_equal(argv[i], words[i]);
	/* the first "--" is weir-run's */
	assert_int_equal(parse(&run_option_table, "--", "-n", "--", NULL), 0);
	assert_int_equal(o->processes, 0);
}

/* The result of weir-run's main() for these words; `text` receives all that is printed to `fd`. */
static int
run_main(const char *a, const char *b, int fd, char *text, size_t size)
{
	char *argv[] = {(char *)a, (char *)b};
	int argc = b ? 2 : 1, kept = dup(fd), rc;
	FILE *file = tmpfile();

	assert_true(file && kept >= 0);
	fflush(stdout);
	dup2(fileno(file), fd);
	rc = option_main(&run_option_table, into, "weir-run", "1.2", &argc, argv);
	fflush(stdout);
	dup2(kept, fd);
	close(kept);
	rewind(file);
	text[fread(text, 1, size - 1, file)] = '\0';
	fclose(file);
	return rc;
}

TEST(test_main)
{
	const struct run_options *o = (struct run_options *)into;
	char text[8192], *help;
	size_t size;
	FILE *to = open_memstream(&help, &size);

	option_print_help(&run_option_table, to);
	fclose(to);
	assert_int_equal(run_main("-h", "--version", STDOUT_FILENO, text, sizeof(text)), 0);
	assert_string_equal(text, help);
	free(help);
	assert_int_equal(run_main("--version", "--help", STDOUT_FILENO, text, sizeof(text)), 0);
	assert_string_equal(text, "weir-run 1.2\n");
	assert_int_equal(run_main("-n", "x", STDOUT_FILENO, text, sizeof(text)), 2);
	assert_string_equal(text, "");
	assert_int_equal(run_main("-n", "x", STDERR_FILENO, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "weir-run: invalid value 'x' for "));
	assert_int_equal(run_main("-n", "7", STDOUT_FILENO, text, sizeof(text)), -1);
	assert_string_equal(text, "");
	assert_int_equal(o->processes, 7);
}

/* Consecutive ranks at each data plane. */
TEST(test_instances)
{
	static const char *const by_rank[] = {"a", "a", "b", "b", "c"};
	const struct run_options *o = (struct run_options *)into;

	assert_int_equal(parse(&run_option_table, "--instances", "a,b,c", "-n", "5"), 0);
	for (uint32_t rank = 0; rank < 5; rank++)
		assert_string_equal(run_instance(o, rank), by_rank[rank]);
	assert_int_equal(parse(&run_option_table, "-n", "1024", NULL, NULL), 0);
	assert_string_equal(run_instance(o, 1023), "default");
}

int
main(void)
{
	for (size_t t = 0; t < TABLES; t++)
		for (size_t i = 0; i < tables[t]->count; i++)
			if (tables[t]->specs[i].env)
				unsetenv(tables[t]->specs[i].env);
	return test_run();
}
