/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large messages between memory of the program's own, without a copy by the program or the library
 * at either end. Adopting costs more than copying once: it is for buffers that are used again and
 * again.
 *
 *   adopted                 receives on the service "pictures", one sender after another
 *   adopted ADDRESS COUNT   sends COUNT pictures, for example to node:2:pictures
 */
#include "stop.h"

#include <weir/memory.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PICTURES 4u
#define PICTURE (1u << 20) /* bytes */

/* Each message arrives in the piece that was posted for it, and the piece is posted again. */
static int
receive(struct weir_conn *c, char *memory)
{
	struct weir_placed picture;
	unsigned long count = 0;
	int rc = 0;

	for (unsigned i = 0; i < PICTURES && !rc; i++)
		rc = weir_recv_into(c, memory + i * PICTURE, PICTURE, i);
	while (!rc && !(rc = weir_recv_placed(c, &picture, -1))) {
		printf("picture %lu: %zu bytes in piece %llu, filled with '%c'\n", ++count,
		       picture.length, (unsigned long long)picture.cookie, *(char *)picture.data);
		fflush(stdout);
		rc = weir_recv_into(c, picture.data, PICTURE, picture.cookie);
	}
	return rc == -ESHUTDOWN ? 0 : rc;
}

static int
serve(struct weir *w, char *memory)
{
	struct weir_listener *listener;
	struct weir_region *region;
	struct weir_conn *c;
	int rc = weir_listen(w, "pictures", 0, &listener);

	stop_on_signals(w);
	while (!stop && !rc && !(rc = weir_accept(listener, -1, &c))) {
		rc = weir_adopt(w, memory, PICTURES * PICTURE, WEIR_ADOPT_RECV, &region);
		if (!rc)
			rc = receive(c, memory);
		weir_close(c); /* what is posted still is the program's again */
		if (!rc)
			rc = weir_disown(region);
	}
	return stop ? 0 : rc;
}

static int
send_pictures(struct weir *w, const struct weir_address *to, char *memory, unsigned long count)
{
	struct weir_region *region;
	struct weir_conn *c;
	int rc = weir_adopt(w, memory, PICTURES * PICTURE, WEIR_ADOPT_SEND, &region);

	if (rc)
		return rc;
	rc = weir_connect(w, to, 30000, &c);
	if (rc)
		return rc;
	for (unsigned long i = 0; i < count && !rc; i++) {
		char *picture = memory + i % PICTURES * PICTURE;

		/* its last message has to be complete before it changes */
		if (i % PICTURES == 0)
			rc = weir_flush(c, 30000);
		memset(picture, 'a' + (int)(i % 26), PICTURE);
		if (!rc)
			rc = weir_send_notify(c, picture, PICTURE, WEIR_ZERO_COPY, 0, 30000);
	}
	if (!rc)
		rc = weir_flush(c, 30000);
	weir_close(c);
	return rc ? rc : weir_disown(region);
}

int
main(int argc, char **argv)
{
	/* whole pages, as adopting wants */
	char *memory = mmap(NULL, (size_t)PICTURES * PICTURE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct weir_address to;
	struct weir *w = NULL;
	int rc;

	if (memory == MAP_FAILED ||
	    (argc != 1 && (argc != 3 || weir_address_parse(argv[1], &to)))) {
		fprintf(stderr, "usage: adopted [ADDRESS COUNT]\n");
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (!rc)
		rc = argc == 1 ? serve(w, memory)
			       : send_pictures(w, &to, memory, strtoul(argv[2], NULL, 0));
	if (rc)
		fprintf(stderr, "adopted: %s\n", weir_reason());
	weir_detach(w); /* disowns all that is left */
	return rc ? 1 : 0;
}
