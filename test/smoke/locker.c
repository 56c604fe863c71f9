/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lock of an export, or of a member of a window, for smoke tests.
 *
 *   locker INSTANCE export KEYFILE         exports memory, writes its key, says "ready"
 *   locker INSTANCE hold KEYFILE KIND      locks ("shared" or "exclusive"), says "held RC", and
 *                                          keeps it until it is killed
 *   locker INSTANCE take KEYFILE KIND      locks, says "held RC" with the time, unlocks, ends
 *   locker INSTANCE window NAME RANK       with two others, in a window with that name: 0 has the
 *                                          memory, and is killed; 1 locks it as "hold" does, 2
 *                                          thereafter as "take" does
 */
#include "program.h"

#include "weir/window.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int export(struct weir *w, const char *path)
{
	struct weir_region *region;
	struct weir_export *x;
	struct weir_key key;
	int rc = weir_region_alloc(w, 4096, NULL, &region);

	if (!rc)
		rc = weir_export(region, 0, 4096, WEIR_MAY_READ | WEIR_MAY_LOCK, &x, &key);
	if (rc)
		return failed("export", rc);
	if (write_key(path, &key))
		return 1;
	say("ready");
	for (;;)
		pause();
}

static int
lock(struct weir *w, const char *path, const char *kind, bool keep)
{
	struct weir_remote *r;
	struct weir_key key;
	int rc;

	if (read_key(path, &key))
		return 1;
	rc = weir_remote_open(w, &key, WEIR_MAY_LOCK, 0, PATIENCE_MS, &r);
	if (rc)
		return failed("open", rc);
	rc = weir_remote_lock(r, !strcmp(kind, "shared") ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE,
			      PATIENCE_MS);
	say("held %d", rc);
	if (rc && rc != -EOWNERDEAD)
		return failed("lock", rc);
	while (keep)
		pause();
	rc = weir_remote_unlock(r, PATIENCE_MS);
	weir_remote_close(r);
	return rc ? failed("unlock", rc) : 0;
}

static int
member(struct weir *w, const char *name, uint32_t rank)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct weir_window_options named = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_window *win;
	struct weir_group *g;
	void *base;
	int rc;

	o.rank = rank;
	o.size = 3;
	named.name = name;
	rc = weir_group_join(w, name, &o, PATIENCE_MS, &g);
	if (!rc)
		rc = weir_window_allocate(g, 4096, &named, PATIENCE_MS, &base, &win);
	if (rc)
		return failed("window", rc);
	if (rank == 1)
		rc = weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, PATIENCE_MS);
	if (rank == 1)
		say("held %d", rc);
	if (!rc)
		rc = weir_group_barrier(g, PATIENCE_MS);
	if (rc)
		return failed("lock", rc);
	while (rank < 2)
		pause();
	rc = weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, PATIENCE_MS);
	say("held %d", rc);
	if (rc && rc != -EOWNERDEAD)
		return failed("lock", rc);
	rc = weir_window_unlock(win, 0, PATIENCE_MS);
	return rc ? failed("unlock", rc) : 0;
}

int
main(int argc, char **argv)
{
	struct weir *w;
	int rc;

	if (argc < 4)
		return 2;
	say_when = true;
	if (attach_to(argv[1], "locker", 0, &w))
		return 1;
	if (!strcmp(argv[2], "export"))
		return export(w, argv[3]);
	if (!strcmp(argv[2], "window"))
		return argc > 4 ? member(w, argv[3], (uint32_t)strtoul(argv[4], NULL, 10)) : 2;
	rc = argc > 4 ? lock(w, argv[3], argv[4], !strcmp(argv[2], "hold")) : 2;
	weir_detach(w);
	return rc;
}
