/* SPDX-License-Identifier: BSD-3-Clause */
#include "rate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An engine that does not run for some ms loses nothing of a rate by the default burst. */
#define BURST_SHARE 50u	 /* 1/50 of the bytes of a second */
#define BURST_MIN 65536u /* bytes: a segment of a bulk message */
#define SECOND_NS 1000000000u

/* Reads a number, K, M or G may follow; *end is the rest of the text. */
static int
parse_bytes(const char *text, const char **end, uint64_t *value)
{
	static const char letters[] = "KMG";
	unsigned long long n;
	const char *letter;
	char *rest;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &rest, 10);
	if (errno || n > RATE_MAX)
		return -EINVAL;
	letter = *rest ? strchr(letters, *rest >= 'a' ? *rest - 32 : *rest) : NULL;
	for (long i = letter ? letter - letters + 1 : 0; i; i--) {
		if (n > RATE_MAX / 1000)
			return -EINVAL;
		n *= 1000;
	}
	*end = rest + (letter != NULL);
	*value = n;
	return 0;
}

int
rate_parse(const char *text, struct rate *r)
{
	const char *end;

	*r = (struct rate){0};
	if (strcmp(text, "none") == 0)
		return 0;
	if (parse_bytes(text, &end, &r->bytes) || r->bytes < RATE_MIN || r->bytes > RATE_MAX)
		return -EINVAL;
	r->burst = r->bytes / BURST_SHARE > BURST_MIN ? r->bytes / BURST_SHARE : BURST_MIN;
	if (!*end)
		return 0;
	if (*end != ',' || parse_bytes(end + 1, &end, &r->burst) || *end ||
	    r->burst < RATE_BURST_MIN || r->burst > RATE_BURST_MAX)
		return -EINVAL;
	return 0;
}

void
rate_text(const struct rate *r, char *text, size_t size)
{
	if (r->bytes)
		snprintf(text, size, "%llu,%llu", (unsigned long long)r->bytes,
			 (unsigned long long)r->burst);
	else
		snprintf(text, size, "none");
}

uint64_t
rate_burst_ns(const struct rate *r)
{
	if (!r->bytes)
		return 0;
	return (uint64_t)((unsigned __int128)r->burst * SECOND_NS / r->bytes);
}
