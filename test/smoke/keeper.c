/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exported memory and a user of it, for tests of hostile programs.
 *
 *   keeper INSTANCE export KEYFILE     exports memory for strangers, its key in KEYFILE, and memory
 *                                      for friends, its key in KEYFILE.friends; memory that may be
 *                                      mapped, read-only (KEYFILE.read) and writable
 *                                      (KEYFILE.write); says "ready". "wrong": a byte beside the
 *                                      strangers' memory or of the read-only one has changed, or
 *                                      the writable one, which is made anew ("renewed N") whenever
 *                                      its export ends, has bytes that an earlier one was given
 *   keeper INSTANCE use KEYFILE LANE   counts, puts, gets and locks in lane LANE of the friends'
 *                                      memory, and checks it; says "received N" every 200 rounds
 */
#include "program.h"

#include "weir/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART 16384u /* bytes of the strangers' memory, before it, and behind it */
#define LANE 4096u  /* bytes of a friend */
#define LANES 8u
#define MARK 0xa5
#define LATE 0xee /* stored by strangers after an export's end */

/* Memory that strangers may map. */
struct mapped {
	struct weir_region *region;
	struct weir_export *x;
	struct weir_remote *self; /* to see whether the export has ended */
	unsigned rights, made;
	char path[4096]; /* of its key */
};

/* The key appears whole. */
static int
publish(const char *path, const struct weir_key *key)
{
	char part[4100];

	snprintf(part, sizeof(part), "%s.new", path);
	if (write_key(part, key))
		return 1;
	return rename(part, path) ? failed(path, -errno) : 0;
}

static int
make_mapped(struct weir *w, struct mapped *m)
{
	struct weir_region_info info;
	struct weir_key key;
	int rc = weir_region_alloc(w, PART, NULL, &m->region);

	if (rc)
		return failed("region", rc);
	weir_region_info(m->region, &info);
	memset(info.base, MARK, PART);
	rc = weir_export(m->region, 0, PART, m->rights, &m->x, &key);
	if (!rc)
		rc = weir_remote_open(w, &key, WEIR_MAY_READ, WEIR_OPEN_APART, PATIENCE_MS,
				      &m->self);
	if (rc)
		return failed("mapped export", rc);
	m->made++;
	return publish(m->path, &key);
}

/* Looks at the memory, as a program that has not mapped it. Once the export has ended, makes
 * another. 0; 1: it has said what is wrong. */
static int
tend(struct weir *w, struct mapped *m)
{
	static uint8_t got[PART];
	struct weir_export *again;
	struct weir_key key;
	int rc = weir_remote_get(m->self, 0, got, PART, 0);

	if (!rc)
		rc = weir_remote_flush(m->self, PATIENCE_MS);
	for (unsigned i = 0; !rc && i < PART; i++)
		if (m->rights & WEIR_MAY_WRITE ? got[i] == LATE : got[i] != MARK) {
			say("wrong: a byte of mapped memory is %#x, at %u", got[i], i);
			return 1;
		}
	if (!rc)
		return 0;
	if (rc != -ESTALE || !(m->rights & WEIR_MAY_WRITE))
		return failed("own memory", rc);
	rc = weir_export(m->region, 0, PART, m->rights, &again, &key);
	if (rc != -EFAULT) {
		say("wrong: memory with holes is exported again: %d", rc);
		return 1;
	}
	weir_remote_close(m->self);
	rc = weir_revoke(m->x);
	if (!rc)
		rc = weir_region_free(m->region);
	if (rc)
		return failed("the end of an export", rc);
	rc = make_mapped(w, m);
	say("renewed %u", m->made - 1);
	return rc;
}

static int export(struct weir *w, const char *path)
{
	const unsigned rights =
	    WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY | WEIR_MAY_LOCK;
	struct mapped readable = {.rights = WEIR_MAY_READ | WEIR_MAY_MAP};
	struct mapped writable = {.rights = WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_MAP};
	struct weir_region *strange, *friendly;
	struct weir_export *x, *y;
	struct weir_region_info info;
	struct weir_notice notice;
	struct weir_key key;
	char friends[4096];
	uint8_t *base;
	int rc = weir_region_alloc(w, 3 * PART, NULL, &strange);

	if (!rc)
		rc = weir_region_alloc(w, LANES * LANE, NULL, &friendly);
	if (rc)
		return failed("region", rc);
	weir_region_info(strange, &info);
	base = info.base;
	memset(base, MARK, 3 * PART);
	snprintf(friends, sizeof(friends), "%s.friends", path);
	rc = weir_export(friendly, 0, LANES * LANE, rights, &y, &key);
	if (rc || write_key(friends, &key))
		return failed("export", rc);
	rc = weir_export(strange, PART, PART, rights, &x, &key);
	if (rc || write_key(path, &key))
		return failed("export", rc);
	snprintf(readable.path, sizeof(readable.path), "%s.read", path);
	snprintf(writable.path, sizeof(writable.path), "%s.write", path);
	if (make_mapped(w, &readable) || make_mapped(w, &writable))
		return 1;
	say("ready");
	for (;;) {
		rc = weir_notice_next(w, &notice, 20);
		if (rc && rc != -EAGAIN)
			return failed("notice", rc);
		for (unsigned i = 0; i < PART; i++)
			if (base[i] != MARK || base[2 * PART + i] != MARK) {
				say("wrong: a byte beside the export is %#x, at %u", base[i], i);
				return 1;
			}
		if (tend(w, &readable) || tend(w, &writable))
			return 1;
	}
}

static int
use(struct weir *w, const char *path, uint64_t lane)
{
	uint64_t at = lane * LANE, one = 1, old, n;
	uint8_t put[500], got[500];
	struct weir_remote *r;
	struct weir_key key;
	int rc;

	if (read_key(path, &key))
		return 1;
	rc = weir_remote_open(w, &key,
			      WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_LOCK,
			      WEIR_OPEN_APART, PATIENCE_MS, &r);
	for (n = 0; !rc; n++) {
		memset(put, (int)n, sizeof(put));
		rc = weir_remote_fetch_op(r, at, &one, &old, WEIR_T_UINT64, WEIR_ACC_SUM, 0);
		if (!rc)
			rc = weir_remote_put(r, at + 8, put, sizeof(put), 0);
		if (!rc)
			rc = weir_remote_get(r, at + 8, got, sizeof(got), 0);
		if (!rc)
			rc = weir_remote_flush(r, PATIENCE_MS);
		if (!rc && (old != n || memcmp(put, got, sizeof(got)) != 0)) {
			say("wrong: %llu rounds, and the memory counts %llu", (unsigned long long)n,
			    (unsigned long long)old);
			return 1;
		}
		if (!rc && n % 50 == 0) {
			rc = weir_remote_lock(r, WEIR_LOCK_EXCLUSIVE, PATIENCE_MS);
			if (!rc)
				rc = weir_remote_unlock(r, PATIENCE_MS);
		}
		if (n % 200 == 0)
			say("received %llu", (unsigned long long)n);
		usleep(100);
	}
	return failed("use", rc);
}

int
main(int argc, char **argv)
{
	struct weir *w;

	if (argc < 4)
		return 2;
	if (attach_to(argv[1], "keeper", 0, &w))
		return 1;
	if (!strcmp(argv[2], "export"))
		return export(w, argv[3]);
	return strcmp(argv[2], "use") ? 2 : use(w, argv[3], number_at(argc, argv, 4) % LANES);
}
