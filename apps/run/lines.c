/* SPDX-License-Identifier: BSD-3-Clause */
#include "lines.h"

#include "ipc/invariant.h"

#include <stdio.h>
#include <string.h>

void
lines_init(struct lines *l, uint32_t rank)
{
	l->prefix = (size_t)snprintf(l->line, sizeof(l->line), "%u: ", rank);
	l->used = l->prefix;
}

static void
finish(struct lines *l, lines_put *put, void *user)
{
	weir_assert(l->used < sizeof(l->line)); /* room for the newline */
	l->line[l->used++] = '\n';
	put(user, l->line, l->used);
	l->used = l->prefix;
}

void
lines_add(struct lines *l, const char *bytes, size_t n, lines_put *put, void *user)
{
	while (n) {
		const char *newline = memchr(bytes, '\n', n);
		size_t text = newline ? (size_t)(newline - bytes) : n;
		size_t room = sizeof(l->line) - 1 - l->used, fits = text < room ? text : room;

		memcpy(l->line + l->used, bytes, fits);
		l->used += fits;
		bytes += fits;
		n -= fits;
		if (fits == text && newline) {
			bytes++;
			n--;
			finish(l, put, user);
		} else if (n) { /* a full line that goes on */
			finish(l, put, user);
		}
	}
}

void
lines_end(struct lines *l, lines_put *put, void *user)
{
	if (l->used > l->prefix)
		finish(l, put, user);
}
