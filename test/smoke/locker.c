/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lock of an export, for smoke tests.
 *
 *   locker INSTANCE export KEYFILE         exports memory, writes its key, says "ready"
 *   locker INSTANCE hold KEYFILE KIND      locks ("shared" or "exclusive"), says "held RC", and
 *                                          keeps it until it is killed
 *   locker INSTANCE take KEYFILE KIND      locks, says "held RC" with the time, unlocks, ends
 */
#include "program.h"

#include "weir/remote.h"

#include <errno.h>
#include <stdio.h>
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

int
main(int argc, char **argv)
{
	struct weir_options o = {.size = sizeof(o), .name = "locker"};
	struct weir *w;
	int rc;

	if (argc < 4)
		return 2;
	say_when = true;
	o.instance = argv[1];
	rc = weir_attach(&o, &w);
	if (rc)
		return failed("attach", rc);
	if (!strcmp(argv[2], "export"))
		return export(w, argv[3]);
	rc = argc > 4 ? lock(w, argv[3], argv[4], !strcmp(argv[2], "hold")) : 2;
	weir_detach(w);
	return rc;
}
