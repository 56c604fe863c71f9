/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments as one line, words separated by blanks. */
#ifndef TEST_WORDS_H
#define TEST_WORDS_H

#include <stdio.h>
#include <string.h>

#define WORDS_MAX 32

/* How many there are, the program's name first. They last until the next call. */
static inline int
words_split(const char *program, const char *line, char *argv[WORDS_MAX])
{
	static char copy[1024];
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s %s", program, line);
	for (char *at = copy, *w; argc < WORDS_MAX - 1 && (w = strsep(&at, " "));)
		if (*w)
			argv[argc++] = w;
	argv[argc] = NULL;
	return argc;
}

#endif
