/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl set: changes a setting of a data plane, which knows what there is to set. */
#include "weirctl.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>

/* user.NAME.WHAT becomes user.UID.WHAT: the data plane never looks up names. */
static int
resolve_user(const char *key, char *out, size_t size)
{
	const char *what = strrchr(key, '.');
	const struct passwd *p;
	char name[64];

	if (strncmp(key, "user.", 5) || what < key + 6 ||
	    (size_t)(what - key - 5) >= sizeof(name) || (key[5] >= '0' && key[5] <= '9')) {
		snprintf(out, size, "%s", key);
		return WEIRCTL_OK;
	}
	snprintf(name, sizeof(name), "%.*s", (int)(what - key - 5), key + 5);
	p = getpwnam(name);
	if (!p)
		return weirctl_fail(WEIRCTL_USAGE,
				    "there is no user '%s' on this host; see getent passwd", name);
	snprintf(out, size, "user.%u%s", p->pw_uid, what);
	return WEIRCTL_OK;
}

int
set(const char *instance, const char *key, const char *value)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SET};
	static struct query q;
	char named[512];
	int status;

	status = resolve_user(key, named, sizeof(named));
	if (status)
		return status;
	key = named;
	if (strlen(key) >= sizeof(m.set.key))
		return weirctl_fail(WEIRCTL_USAGE, "no setting is called '%s'; see --help", key);
	if (strlen(value) >= sizeof(m.set.value))
		return weirctl_fail(WEIRCTL_USAGE, "'%s' is no value; see --help", value);
	status = query_open(&q, instance, WEIRCTL_ANSWER_SECONDS);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	snprintf(m.set.key, sizeof(m.set.key), "%s", key);
	snprintf(m.set.value, sizeof(m.set.value), "%s", value);
	status = query_send(&q, &m, -1);
	if (!status)
		status = query_receive(&q, WEIR_CTL_DONE);
	query_close(&q);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	if (!q.in.m.done.count)
		printf("no program of that %s is attached; it holds for those to come\n",
		       strncmp(key, "user.", 5) ? "name" : "user");
	return WEIRCTL_OK;
}
