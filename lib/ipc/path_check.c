/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "path_check.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 8 /* symbolic links followed one after another */

struct walk {
	enum path_check how;
	unsigned links;
	char *error;
	size_t size;
};

static bool
others_may_write(const struct stat *st)
{
	return (st->st_mode & 022) && !S_ISLNK(st->st_mode);
}

static int
refuse(const struct walk *w, const char *path, const struct stat *st, bool foreign)
{
	if (foreign)
		snprintf(w->error, w->size,
			 "%s belongs to user %u; let root or user %u make it, or set $WEIR_RUN_DIR "
			 "to another place",
			 path, (unsigned)st->st_uid, (unsigned)geteuid());
	else
		snprintf(w->error, w->size,
			 "others may write to %s (mode %04o); chmod go-w it, or set $WEIR_RUN_DIR "
			 "to another place",
			 path, (unsigned)st->st_mode & 07777);
	return -EACCES;
}

/* Checks one component; `above`: its directory; `last`: the end of the path. 0 or -errno. */
static int
check_one(const struct walk *w, const char *path, const struct stat *above, const struct stat *st,
	  bool last)
{
	bool shared = above && others_may_write(above);
	bool foreign = st->st_uid != 0 && st->st_uid != geteuid();

	if (foreign && (shared || w->how == PATH_OURS))
		return refuse(w, path, st, true);
	if (w->how == PATH_AS_GIVEN && last)
		return 0;
	if (others_may_write(st) && (!(st->st_mode & S_ISVTX) || (w->how == PATH_OURS && last)))
		return refuse(w, path, st, false);
	if (w->how == PATH_OURS && last && !S_ISDIR(st->st_mode)) {
		snprintf(w->error, w->size,
			 "%s is not a directory; remove it, or set $WEIR_RUN_DIR to another place",
			 path);
		return -ENOTDIR;
	}
	return 0;
}

/* Checks each component from the root on; *end: the last one that exists. */
static int
check(struct walk *w, const char *path, struct stat *end)
{
	struct stat st, above;
	char part[PATH_MAX], *to;
	int rc;

	if (lstat("/", end))
		return -errno;
	rc = check_one(w, "/", NULL, end, false);
	for (const char *at = path; !rc && *(at += strspn(at, "/"));) {
		at += strcspn(at, "/");
		snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
		above = *end;
		if (lstat(part, &st))
			return errno == ENOENT ? 0 : -errno;
		rc = check_one(w, part, &above, &st, !at[strspn(at, "/")]);
		*end = st;
		if (rc || !S_ISLNK(st.st_mode))
			continue;
		/* no other user can change the link; its target must pass the same check */
		to = ++w->links > LINKS_MAX ? NULL : realpath(part, NULL);
		rc = to ? check(w, to, end) : -ELOOP;
		free(to);
	}
	return rc;
}

int
path_check(const char *path, enum path_check how, char *error, size_t size)
{
	struct walk w = {.how = how, .error = error, .size = size};
	char here[PATH_MAX], whole[PATH_MAX];
	struct stat end;
	int rc, n;

	error[0] = '\0';
	if (*path == '/')
		*here = '\0';
	else if (!getcwd(here, sizeof(here)))
		return -errno;
	n = snprintf(whole, sizeof(whole), "%s/%s", here, path);
	rc = n < 0 || (size_t)n >= sizeof(whole) ? -ENAMETOOLONG : check(&w, whole, &end);
	if (rc && !*error)
		snprintf(error, size, "%s: %s; set $WEIR_RUN_DIR to another place", path,
			 strerror(-rc));
	return rc;
}
