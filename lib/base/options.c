/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/options.h"

#include "base/fail.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELP_LEFT 28   /* columns of the option, before its help */
#define HELP_WIDTH 100 /* columns of a line */
#define NAME_MAX_BYTES 64

/* ---- values ---- */

static int
parse_number(const char *text, int base, bool suffixes, uint64_t min, uint64_t max, uint64_t *value)
{
	static const char letters[] = "KMG";
	unsigned long long n;
	unsigned shift = 0;
	const char *at;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, base);
	if (errno)
		return -EINVAL;
	if (suffixes && *end) {
		at = strchr(letters, *end >= 'a' ? *end - 'a' + 'A' : *end);
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

int
option_number(const char *text, bool suffixes, uint64_t min, uint64_t max, uint64_t *value)
{
	return parse_number(text, 10, suffixes, min, max, value);
}

int
option_real(const char *text, double least, double most, double *value)
{
	double v;
	char *end;

	if ((*text < '0' || *text > '9') && *text != '.')
		return -EINVAL;
	v = strtod(text, &end);
	if (*end || !(v >= least && v <= most))
		return -EINVAL;
	*value = v;
	return 0;
}

int
option_list(const char *text, int (*take)(void *into, const char *word), void *into)
{
	char word[NAME_MAX_BYTES];

	for (;;) {
		size_t n = strcspn(text, ",");

		if (!n || n >= sizeof(word))
			return -EINVAL;
		memcpy(word, text, n);
		word[n] = '\0';
		if (take(into, word))
			return -EINVAL;
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

static int
find_word(const char *words, const char *text, uint64_t *index)
{
	size_t length = strlen(text);

	for (*index = 0;; (*index)++) {
		size_t n = strcspn(words, "|");

		if (n == length && memcmp(words, text, n) == 0)
			return 0;
		if (!words[n])
			return -EINVAL;
		words += n + 1;
	}
}

/* A number as a user would type it; with `suffixes` as few digits as it takes: "64K". */
static void
number_text(uint64_t n, bool suffixes, char *text, size_t size)
{
	static const char letters[] = "KMG";
	unsigned shift = 0;

	while (suffixes && n && n % 1024 == 0 && shift < 3) {
		n /= 1024;
		shift++;
	}
	snprintf(text, size, shift ? "%llu%c" : "%llu", (unsigned long long)n,
		 shift ? letters[shift - 1] : 0);
}

/* "from 1 to 64", "from 1 on", "": any number, or its type has no bounds. */
static void
bounds_text(const struct option_spec *spec, char *text, size_t size)
{
	bool suffixes = spec->type == OPTION_SIZE;
	char min[24], max[24];

	text[0] = '\0';
	if (spec->type == OPTION_REAL)
		snprintf(text, size, "from %g to %g", spec->least, spec->most);
	if (spec->type != OPTION_UNSIGNED && spec->type != OPTION_SIZE)
		return;
	number_text(spec->min, suffixes, min, sizeof(min));
	number_text(spec->max, suffixes, max, sizeof(max));
	if (spec->max < UINT64_MAX >> 8)
		snprintf(text, size, "from %s to %s", min, max);
	else if (spec->min)
		snprintf(text, size, "from %s on", min);
}

static const char *
expected(const struct option_spec *spec, char *buf, size_t size)
{
	const char *words = spec->type == OPTION_WORD ? spec->words : NULL;
	char bounds[64];
	size_t used = 0;

	if (spec->expected)
		return spec->expected;
	while (words && used < size) { /* "poll, sleep or spin" */
		size_t n = strcspn(words, "|");
		const char *next = words[n] ? words + n + 1 : NULL;

		used += (size_t)snprintf(buf + used, size - used, "%.*s%s", (int)n, words,
					 !next		     ? ""
					 : strchr(next, '|') ? ", "
							     : " or ");
		words = next;
	}
	if (spec->type == OPTION_WORD)
		return buf;
	bounds_text(spec, bounds, sizeof(bounds));
	if (spec->type == OPTION_TEXT || spec->type == OPTION_CALL)
		return spec->argument;
	snprintf(buf, size, "a number%s%s%s", *bounds ? " " : "", bounds,
		 spec->type == OPTION_SIZE ? ", K, M or G may follow" : "");
	return buf;
}

int
option_invalid(const char *from, const char *text, const char *why, char *error, size_t size)
{
	return fail(error, size, -EINVAL, "invalid value '%s' for %s (expected %s)", text, from,
		    why);
}

int
option_store(const struct option_spec *spec, void *into, const char *from, const char *text,
	     char *error, size_t size)
{
	void *field = (char *)into + spec->offset;
	char buf[128];
	uint64_t n = spec->set ? spec->set : 1;
	int rc = 0;

	switch (spec->type) {
	case OPTION_FLAG:
	case OPTION_STOP:
		break;
	case OPTION_UNSIGNED:
	case OPTION_SIZE:
		rc = parse_number(text, spec->c_base ? 0 : 10, spec->type == OPTION_SIZE, spec->min,
				  spec->max, &n);
		break;
	case OPTION_WORD:
		rc = find_word(spec->words, text, &n);
		break;
	case OPTION_REAL:
		rc = option_real(text, spec->least, spec->most, field);
		break;
	case OPTION_TEXT:
		*(const char **)field = text;
		if (strlen(text) < spec->min || (spec->max && strlen(text) > spec->max))
			rc = -EINVAL;
		break;
	case OPTION_CALL:
		error[0] = '\0';
		rc = spec->take(into, text, error, size);
		if (rc && error[0])
			return rc;
	}
	if (rc)
		return option_invalid(from, text, expected(spec, buf, sizeof(buf)), error, size);
	if (spec->type != OPTION_REAL && spec->type != OPTION_TEXT && spec->type != OPTION_CALL)
		switch (spec->width) {
		case 1:
			*(uint8_t *)field = (uint8_t)n;
			break;
		case 2:
			*(uint16_t *)field = (uint16_t)n;
			break;
		case 4:
			*(uint32_t *)field = (uint32_t)n;
			break;
		default:
			*(uint64_t *)field = n;
		}
	if (spec->given)
		*(bool *)((char *)into + spec->given) = true;
	return 0;
}

void
option_text(const struct option_spec *spec, const void *from, char *text, size_t size)
{
	const void *field = (const char *)from + spec->offset;
	const char *words = spec->words;
	uint64_t n;

	text[0] = '\0';
	if (spec->type == OPTION_REAL) {
		snprintf(text, size, "%g", *(const double *)field);
		return;
	}
	if (spec->type == OPTION_TEXT) {
		snprintf(text, size, "%s", *(char *const *)field ? *(char *const *)field : "");
		return;
	}
	if (spec->type == OPTION_CALL)
		return;
	switch (spec->width) {
	case 1:
		n = *(const uint8_t *)field;
		break;
	case 2:
		n = *(const uint16_t *)field;
		break;
	case 4:
		n = *(const uint32_t *)field;
		break;
	default:
		n = *(const uint64_t *)field;
	}
	if (spec->type == OPTION_WORD) {
		while (n-- > 0 && strchr(words, '|'))
			words = strchr(words, '|') + 1;
		snprintf(text, size, "%.*s", (int)strcspn(words, "|"), words);
		return;
	}
	number_text(n, spec->type == OPTION_SIZE, text, size);
}

/* As errors name it. */
static void
print_name(const struct option_spec *spec, char *buf, size_t size)
{
	if (spec->name)
		snprintf(buf, size, "--%s", spec->name);
	else
		snprintf(buf, size, "-%c", spec->letter);
}

int
option_defaults(const struct option_table *table, void *into, char *error, size_t size)
{
	weir_assert(table->size && table->count);
	memset(into, 0, table->size);
	for (size_t i = 0; i < table->count; i++) {
		const struct option_spec *spec = &table->specs[i];
		const char *env = spec->env ? getenv(spec->env) : NULL;
		const char *text = env && *env ? env : spec->initial;
		char from[NAME_MAX_BYTES];

		print_name(spec, from, sizeof(from));
		if (text && text == env)
			snprintf(from, sizeof(from), "$%s", spec->env);
		if (text && option_store(spec, into, from, text, error, size))
			return -EINVAL;
		if (spec->given)
			*(bool *)((char *)into + spec->given) = false;
	}
	return 0;
}

/* ---- names ---- */

static bool
has_argument(const struct option_spec *spec)
{
	return spec->argument || spec->words;
}

const struct option_spec *
option_find(const struct option_table *table, const char *name, size_t length)
{
	for (size_t i = 0; i < table->count; i++) {
		const char *known = table->specs[i].name;

		if (known && strlen(known) == length && memcmp(known, name, length) == 0)
			return &table->specs[i];
	}
	return NULL;
}

/* Letters to insert, delete or replace until both are the same (Levenshtein). */
static unsigned
distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	unsigned row[NAME_MAX_BYTES];

	if (a_length >= NAME_MAX_BYTES || b_length >= NAME_MAX_BYTES)
		return NAME_MAX_BYTES;
	for (unsigned j = 0; j <= b_length; j++)
		row[j] = j;
	for (unsigned i = 1; i <= a_length; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= b_length; j++) {
			unsigned above = row[j], least = diagonal + (a[i - 1] != b[j - 1]);

			if (above + 1 < least)
				least = above + 1;
			if (row[j - 1] + 1 < least)
				least = row[j - 1] + 1;
			row[j] = least;
			diagonal = above;
		}
	}
	return row[b_length];
}

static int
unknown(const struct option_table *table, const char *word, size_t length, char *error, size_t size)
{
	const char *remedy = table->remedy ? table->remedy : "see --help";
	unsigned least = 2 + (unsigned)(length - 2) / 6; /* more edits are another word */
	const char *nearest = NULL;

	for (size_t i = 0; word[1] == '-' && i < table->count; i++) {
		const char *known = table->specs[i].name;
		unsigned d =
		    known ? distance(word + 2, length - 2, known, strlen(known)) : NAME_MAX_BYTES;

		if (d < least) {
			least = d;
			nearest = known;
		}
	}
	if (nearest)
		return fail(error, size, -EINVAL, "unknown option '%.*s', the nearest is --%s; %s",
			    (int)length, word, nearest, remedy);
	return fail(error, size, -EINVAL, "unknown option '%.*s'; %s", (int)length, word, remedy);
}

/* ---- the command line ---- */

/* Words not read yet. */
struct words {
	char **next, **end;
};

/*
 * Stores one option; `value` is the text that is attached to it, NULL: none. 1: it ends parsing,
 * 0, or -EINVAL.
 */
static int
take(const struct option_spec *spec, void *into, const char *value, struct words *left, char *error,
     size_t size)
{
	char name[NAME_MAX_BYTES], buf[128];

	print_name(spec, name, sizeof(name));
	if (!has_argument(spec) && value)
		return fail(error, size, -EINVAL, "%s takes no value; leave '=%s' out", name,
			    value);
	if (has_argument(spec) && !value) {
		if (left->next == left->end)
			return fail(error, size, -EINVAL, "missing value for %s (expected %s)",
				    name, expected(spec, buf, sizeof(buf)));
		value = *left->next++;
	}
	if (option_store(spec, into, name, value, error, size))
		return -EINVAL;
	return spec->type == OPTION_STOP;
}

static int
take_long(const struct option_table *table, void *into, const char *word, struct words *left,
	  char *error, size_t size)
{
	size_t length = strcspn(word, "="), found = 0;
	const struct option_spec *spec = option_find(table, word + 2, length - 2);

	if (!spec && !table->exact) /* the only one whose name begins so */
		for (size_t i = 0; i < table->count; i++) {
			const char *known = table->specs[i].name;

			if (known && !strncmp(known, word + 2, length - 2) && !found++)
				spec = &table->specs[i];
		}
	if (!spec || found > 1)
		return unknown(table, word, length, error, size);
	return take(spec, into, word[length] ? word + length + 1 : NULL, left, error, size);
}

/* Letters after one dash: flags, and at the end one that may have its value attached. */
static int
take_letters(const struct option_table *table, void *into, const char *word, struct words *left,
	     char *error, size_t size)
{
	int rc = 0;

	for (const char *at = word + 1; *at && !rc; at++) {
		const struct option_spec *spec = NULL;
		char one[3] = {'-', *at, '\0'};

		for (size_t i = 0; i < table->count && !spec; i++)
			if (table->specs[i].letter == *at)
				spec = &table->specs[i];
		if (!spec)
			return unknown(table, at == word + 1 ? word : one,
				       at == word + 1 ? strlen(word) : 2, error, size);
		if (has_argument(spec))
			return take(spec, into, at[1] ? at + 1 : NULL, left, error, size);
		rc = take(spec, into, NULL, left, error, size);
	}
	return rc;
}

int
option_parse(const struct option_table *table, void *into, int *argc, char **argv, char *error,
	     size_t size)
{
	struct words left = {argv, argv + *argc};
	unsigned operands = 0;
	bool only_operands = false;
	int rc = 0;

	while (left.next < left.end && !rc) {
		char *word = *left.next++;

		if (!only_operands && !strcmp(word, "--"))
			only_operands = true;
		else if (!only_operands && !strncmp(word, "--", 2))
			rc = take_long(table, into, word, &left, error, size);
		else if (!only_operands && word[0] == '-' && word[1])
			rc = take_letters(table, into, word, &left, error, size);
		else if (operands == table->operands)
			return fail(error, size, -EINVAL, "unexpected argument '%s'; %s", word,
				    table->remedy ? table->remedy : "see --help");
		else
			argv[operands++] = word;
		only_operands |= operands && table->command;
	}
	*argc = (int)operands;
	return rc < 0 ? rc : 0;
}

/* ---- --help ---- */

static void
print_wrapped(const char *text, size_t *column, FILE *to)
{
	while (*text) {
		size_t n = strcspn(text, " ");

		if (*column + 1 + n > HELP_WIDTH) {
			fprintf(to, "\n  %*s", HELP_LEFT, "");
			*column = 2 + HELP_LEFT;
		}
		fprintf(to, " %.*s", (int)n, text);
		*column += 1 + n;
		text += n + (text[n] == ' ');
	}
}

void
option_print_help(const struct option_table *table, FILE *to)
{
	if (table->head)
		fputs(table->head, to);
	for (size_t i = 0; i < table->count; i++) {
		const struct option_spec *spec = &table->specs[i];
		const char *argument = spec->argument ? spec->argument : spec->words;
		char name[NAME_MAX_BYTES], bounds[64], note[160];
		size_t column = 2 + HELP_LEFT;

		if (spec->letter && spec->name)
			snprintf(name, sizeof(name), "-%c, --%s", spec->letter, spec->name);
		else
			print_name(spec, name, sizeof(name));
		snprintf(note, sizeof(note), "%s%s%s", name, argument ? " " : "",
			 argument ? argument : "");
		fprintf(to, "  %-*s", HELP_LEFT, note);
		if (strlen(note) > HELP_LEFT)
			fprintf(to, "\n  %*s", HELP_LEFT, "");
		print_wrapped(spec->help, &column, to);
		bounds_text(spec, bounds, sizeof(bounds));
		if (spec->initial || *bounds) {
			snprintf(note, sizeof(note), "[%s%s%s]", spec->initial ? spec->initial : "",
				 spec->initial && *bounds ? ", " : "", bounds);
			print_wrapped(note, &column, to);
		}
		if (spec->env) {
			snprintf(note, sizeof(note), "($%s)", spec->env);
			print_wrapped(note, &column, to);
		}
		putc('\n', to);
	}
	if (table->tail)
		fputs(table->tail, to);
}

/* ---- main() ---- */

static bool
asked_for(const struct option_table *table, const void *into, const char *name)
{
	const struct option_spec *spec = option_find(table, name, strlen(name));

	weir_assert(!spec || spec->width == sizeof(bool));
	return spec && *(const bool *)((const char *)into + spec->offset);
}

int
option_main(const struct option_table *table, void *into, const char *program, const char *version,
	    int *argc, char **argv)
{
	char error[512];

	if (option_defaults(table, into, error, sizeof(error)) ||
	    option_parse(table, into, argc, argv, error, sizeof(error))) {
		fprintf(stderr, "%s: %s\n", program, error);
		return 2;
	}
	if (asked_for(table, into, "help"))
		option_print_help(table, stdout);
	else if (asked_for(table, into, "version"))
		printf("%s %s\n", program, version);
	else
		return -1;
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	fprintf(stderr, "%s: cannot write to stdout; check its target\n", program);
	return 1;
}
