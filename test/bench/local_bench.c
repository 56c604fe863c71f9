/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of a small message between programs of one host, in instructions: one thread sends and
 * receives on both ends of a connection, so that nothing but the calls counts. The message of
 * each call is there, or there is room.
 *
 * local_bench SIZE [MESSAGES]; under callgrind with --toggle-collect=send_messages or
 * --toggle-collect=receive_messages
 */
#include "worlds/stream_pair.h"

#include <stdio.h>

#define BURST 32u /* messages sent before the first is received */

static char buffer[4096];

static __attribute__((noinline)) void
send_messages(struct weir_conn *c, size_t size)
{
	for (unsigned i = 0; i < BURST; i++)
		if (weir_send(c, buffer, size, 0))
			abort();
}

static __attribute__((noinline)) void
receive_messages(struct weir_conn *c)
{
	size_t length;

	for (unsigned i = 0; i < BURST; i++)
		if (weir_recv(c, buffer, sizeof(buffer), &length, 0))
			abort();
}

int
main(int argc, char **argv)
{
	size_t size = argc > 1 ? strtoul(argv[1], NULL, 0) : 64;
	unsigned long messages = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000000;
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);

	if (size > sizeof(buffer))
		return 2;
	for (unsigned long i = 0; i < messages; i += BURST) {
		send_messages(p.c, size);
		receive_messages(p.d);
	}
	pair_close(&p);
	return 0;
}
