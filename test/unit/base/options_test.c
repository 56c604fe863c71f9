/* SPDX-License-Identifier: BSD-3-Clause */
/* Every option of every program: bounds, duplicates, unknown names, missing values, --help. */
#include "worlds/test.h"

#include "base/options.h"
#include "cluster/options.h"
#include "daemon/options.h"
#include "lend/lend.h"
#include "perf/options.h"
#include "tools/nicperf/options.h"
#include "tools/roce_peer/options.h"
#include "tools/switch/options.h"
#include "weirctl/weirctl.h"

static const struct option_table *const tables[] = {
    &options_table,	&control_option_table, &weirctl_option_table,
    &pki_option_table,	&perf_option_table,    &nicperf_option_table,
    &peer_option_table, &switch_option_table,  &lend_option_table,
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

static void
check_duplicates(const struct option_table *table, const struct option_spec *spec)
{
	char least[32], most[32], name[64];

	if (spec->type != OPTION_UNSIGNED && spec->type != OPTION_SIZE)
		return;
	snprintf(name, sizeof(name), "%s", name_of(spec));
	snprintf(least, sizeof(least), "%llu", (unsigned long long)spec->min);
	snprintf(most, sizeof(most), "%llu", (unsigned long long)spec->max);
	assert_int_equal(parse(table, name, most, name, least), 0);
	assert_true(stored(spec) == spec->min);
}

TEST(test_duplicates)
{
	each(check_duplicates);
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

int
main(void)
{
	for (size_t t = 0; t < TABLES; t++)
		for (size_t i = 0; i < tables[t]->count; i++)
			if (tables[t]->specs[i].env)
				unsetenv(tables[t]->specs[i].env);
	return test_run();
}
