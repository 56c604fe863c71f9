/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that another program writes: remote board KEYFILE exports a page of 64 lines, writes its
 * key to a file, and prints each line that changes, until SIGINT or SIGTERM. remote post KEYFILE
 * LINE TEXT puts TEXT there, from this host or another one; the board takes no part in it. A key is
 * bytes: whoever may read the file may write the lines.
 */
#include <weir/remote.h>

#include "stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINES 64u
#define LINE_BYTES 64u

static int
show_board(struct weir *w, const char *path)
{
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_export *x;
	static char seen[LINES][LINE_BYTES];
	const struct timespec pause = {.tv_nsec = 10000000};
	const _Atomic char *board;
	struct weir_key key;
	FILE *f;
	int rc = weir_region_alloc(w, LINES * LINE_BYTES, NULL, &region);

	if (!rc)
		rc = weir_export(region, 0, LINES * LINE_BYTES, WEIR_MAY_WRITE, &x, &key);
	if (rc)
		return rc;
	f = fopen(path, "wb");
	if (!f || fwrite(&key, sizeof(key), 1, f) != 1 || fclose(f)) {
		perror(path);
		exit(1);
	}
	weir_region_info(region, &info);
	board = info.base;
	printf("open\n");
	fflush(stdout);
	while (!stop) {
		for (unsigned i = 0; i < LINES; i++) {
			char now[LINE_BYTES];

			for (unsigned k = 0; k < LINE_BYTES; k++)
				now[k] = atomic_load(&board[i * LINE_BYTES + k]);
			now[LINE_BYTES - 1] = '\0';
			if (strcmp(now, seen[i])) {
				printf("%u: %s\n", i, now);
				fflush(stdout);
				memcpy(seen[i], now, sizeof(now));
			}
		}
		nanosleep(&pause, NULL);
	}
	return weir_revoke(x);
}

static int
post(struct weir *w, const char *path, unsigned long line, const char *text)
{
	char bytes[LINE_BYTES] = {0};
	struct weir_remote *r;
	struct weir_key key;
	FILE *f = fopen(path, "rb");
	int rc;

	if (!f || fread(&key, sizeof(key), 1, f) != 1) {
		perror(path);
		exit(1);
	}
	fclose(f);
	snprintf(bytes, sizeof(bytes), "%s", text);
	rc = weir_remote_open(w, &key, WEIR_MAY_WRITE, 0, 1000, &r);
	if (rc)
		return rc;
	rc = weir_remote_put(r, line * LINE_BYTES, bytes, sizeof(bytes), 0);
	if (!rc)
		rc = weir_remote_flush(r, 1000); /* it is there now */
	weir_remote_close(r);
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir *w;
	int rc;

	if (argc != (argc > 1 && !strcmp(argv[1], "post") ? 5 : 3)) {
		fprintf(stderr, "usage: remote board KEYFILE | remote post KEYFILE LINE TEXT\n");
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (rc) {
		fprintf(stderr, "remote: %s\n", weir_reason());
		return 1;
	}
	stop_on_signals(w);
	rc = argc == 3 ? show_board(w, argv[2])
		       : post(w, argv[2], strtoul(argv[3], NULL, 10), argv[4]);
	if (rc)
		fprintf(stderr, "remote: %s\n", weir_reason());
	weir_detach(w);
	return rc ? 1 : 0;
}
