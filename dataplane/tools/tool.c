/* SPDX-License-Identifier: BSD-3-Clause */
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
tool_exit_code(int rc)
{
	switch (rc) {
	case 0:
		return TOOL_OK;
	case -EINVAL:
		return TOOL_USAGE;
	case -ENOMEM:
	case -EACCES:
	case -EPERM:
	case -ENODEV:
	case -EBUSY:
	case -EMSGSIZE:
		return TOOL_RESOURCE;
	default:
		return TOOL_FAILED;
	}
}

int
tool_split(int argc, char **argv)
{
	int dashes = 1;

	while (dashes < argc && strcmp(argv[dashes], "--"))
		dashes++;
	return dashes < argc ? dashes : 0;
}

int
tool_bad(char *error, size_t size, const char *option, const char *value, const char *remedy)
{
	snprintf(error, size, "%s '%s' is not good; %s", option, value, remedy);
	return -EINVAL;
}

/* getopt's ':' (no value) or '?' at `word`. */
static int
unknown(char *error, size_t size, int id, const char *word)
{
	snprintf(error, size, "%s %s; see --help",
		 id == ':' ? "a value is missing for" : "unknown option", word);
	return -EINVAL;
}

int
tool_options(int argc, char **argv, const char *shorts, const struct option *longs,
	     tool_take_fn *take, void *options, char *error, size_t size)
{
	char with_colon[64]; /* getopt says by it that a value is missing */
	int id, rc;

	snprintf(with_colon, sizeof(with_colon), ":%s", shorts);
	opterr = 0;
	optind = 1;
	while ((id = getopt_long(argc, argv, with_colon, longs, NULL)) != -1) {
		if (id == ':' || id == '?')
			return unknown(error, size, id, argv[optind - 1]);
		if (id == 'h' || id == 'v')
			return id;
		rc = take(options, id, optarg, error, size);
		if (rc)
			return rc;
	}
	if (optind < argc) {
		snprintf(error, size, "'%s' is no option; see --help", argv[optind]);
		return -EINVAL;
	}
	return 0;
}

int
tool_parse_list(const char *text, int (*take)(void *options, const char *word), void *options)
{
	char word[64];

	for (;;) {
		size_t n = strcspn(text, ",");

		if (!n || n >= sizeof(word))
			return -EINVAL;
		memcpy(word, text, n);
		word[n] = '\0';
		if (take(options, word))
			return -EINVAL;
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

int
tool_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (end == text || *text == '-' || errno || *value > high)
		return -EINVAL;
	if (*end == 'k' || *end == 'm') {
		*value <<= *end == 'k' ? 10 : 20;
		end++;
	}
	return *end || *value < low || *value > high ? -EINVAL : 0;
}

int
tool_parse_small(const char *text, uint32_t low, uint32_t high, uint32_t *value)
{
	uint64_t n = 0;
	int rc = tool_parse_number(text, low, high, &n);

	*value = (uint32_t)n;
	return rc;
}
