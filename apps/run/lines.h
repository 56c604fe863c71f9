/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of a process as whole lines, with its rank in front of each: "3: text". */
#ifndef WEIR_RUN_LINES_H
#define WEIR_RUN_LINES_H

#include <stddef.h>
#include <stdint.h>

#define LINES_LONGEST 4096u /* bytes of a line, with rank and newline; longer ones are cut */

struct lines {
	size_t prefix, used; /* bytes of `line` */
	char line[LINES_LONGEST];
};

typedef void lines_put(void *user, const char *line, size_t length);

void lines_init(struct lines *l, uint32_t rank);
/* The process has written n bytes: calls put() per line that is complete. */
void lines_add(struct lines *l, const char *bytes, size_t n, lines_put *put, void *user);
/* It writes no more: a last line without newline gets one. */
void lines_end(struct lines *l, lines_put *put, void *user);

#endif
