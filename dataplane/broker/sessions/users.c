/* SPDX-License-Identifier: BSD-3-Clause */
#include "users.h"

#include "base/fail.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT_MAX (1u << 20)
#define MEMORY_MAX (1ull << 50)
#define USER_NAME_MAX 64

/* From 1 on, or none; with `suffixes` K, M, G may follow. */
static int
parse_number(const char *text, bool suffixes, uint64_t max, uint64_t *value)
{
	static const char letters[] = "KMG";
	unsigned long long n;
	const char *letter;
	unsigned shift = 0;
	char *end;

	*value = 0;
	if (!strcmp(text, "none"))
		return 0;
	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	letter = suffixes && *end ? strchr(letters, *end >= 'a' ? *end - 32 : *end) : NULL;
	if (letter) {
		shift = 10 * (unsigned)(letter - letters + 1);
		end++;
	}
	if (errno || *end || !n || n > max >> shift)
		return -EINVAL;
	*value = n << shift;
	return 0;
}

int
user_parse_size(const char *text, uint64_t *value)
{
	return parse_number(text, true, MEMORY_MAX, value);
}

const char *
user_limit_name(enum user_limit which)
{
	static const char *const name[USER_LIMITS] = {"connections", "memory",	 "regions",
						      "segments",    "services", "sessions"};

	return name[which];
}

int
user_limits_set(struct user_limits *l, const char *key, const char *value)
{
	enum user_limit i = 0;
	struct rate rate;
	uint64_t n;
	int rc;

	if (!strcmp(key, "rate")) {
		if (rate_parse(value, &rate))
			return -EINVAL;
		l->rate = rate;
		return 0;
	}
	while (i < USER_LIMITS && strcmp(key, user_limit_name(i)))
		i++;
	if (i == USER_LIMITS)
		return -ENOENT;
	rc = i == USER_MEMORY ? user_parse_size(value, &n)
			      : parse_number(value, false, COUNT_MAX, &n);
	if (rc)
		return rc;
	l->most[i] = n;
	l->given |= 1u << i;
	return 0;
}

void
users_default(struct users *u, enum user_limit which, uint64_t most)
{
	for (unsigned i = 0; i <= u->limited_count; i++) {
		struct user_limits *l = i ? &u->limited[i - 1].limits : &u->others;

		if (!(l->given & 1u << which))
			l->most[which] = most;
	}
}

/* An id by name or number. */
static bool
find_id(const char *name, bool group, uint32_t *id)
{
	const struct group *g;
	const struct passwd *p;
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(name, &end, 10);
	if (*name >= '0' && *name <= '9' && !*end && !errno && n < UINT32_MAX) {
		*id = (uint32_t)n;
		return true;
	}
	if (group) {
		g = getgrnam(name);
		*id = g ? g->gr_gid : 0;
		return g != NULL;
	}
	p = getpwnam(name);
	*id = p ? p->pw_uid : 0;
	return p != NULL;
}

int
users_allow(struct users *u, const char *text, char *error, size_t size)
{
	bool group = !strncmp(text, "group:", 6);
	uint32_t id;

	if (!group && strncmp(text, "user:", 5))
		return fail(error, size, -EINVAL,
			    "--allow '%s' is not good; give user:NAME or group:NAME", text);
	if (u->allowed_count == USERS_ALLOWED_MAX)
		return fail(error, size, -EINVAL, "more than %u --allow; allow a group instead",
			    USERS_ALLOWED_MAX);
	if (!find_id(strchr(text, ':') + 1, group, &id))
		return fail(error, size, -EINVAL,
			    "--allow '%s': there is no such %s on this host; see "
			    "getent %s",
			    text, group ? "group" : "user", group ? "group" : "passwd");
	u->allowed[u->allowed_count].group = group;
	u->allowed[u->allowed_count++].id = id;
	return 0;
}

/* The limits of a user that the text names; NULL: refused. */
static struct user_limits *
named(struct users *u, const char *name, char *error, size_t size)
{
	uint32_t uid;

	if (!strcmp(name, "*"))
		return &u->others;
	if (!find_id(name, false, &uid)) {
		fail(error, size, -EINVAL,
		     "--user-limit: there is no user '%s' on this host; see getent passwd", name);
		return NULL;
	}
	for (unsigned i = 0; i < u->limited_count; i++)
		if (u->limited[i].uid == uid)
			return &u->limited[i].limits;
	if (u->limited_count == USERS_LIMITED_MAX) {
		fail(error, size, -EINVAL,
		     "more than %u users with --user-limit; use * for the rest", USERS_LIMITED_MAX);
		return NULL;
	}
	u->limited[u->limited_count].uid = uid;
	return &u->limited[u->limited_count++].limits;
}

int
users_limit(struct users *u, const char *text, char *error, size_t size)
{
	const char *colon = strchr(text, ':'), *at;
	struct user_limits *l;
	char name[USER_NAME_MAX];

	if (!colon || colon == text || (size_t)(colon - text) >= sizeof(name) || !colon[1])
		return fail(error, size, -EINVAL,
			    "--user-limit '%s' is not good; give USER:KEY=VALUE[,...], KEY=VALUE "
			    "is " USERS_LIMIT_WORDS,
			    text);
	snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text);
	l = named(u, name, error, size);
	if (!l)
		return -EINVAL;
	for (at = colon + 1; *at;) {
		size_t length = strcspn(at, ",");
		char pair[96], *value;

		snprintf(pair, sizeof(pair), "%.*s", (int)length, at);
		value = strchr(pair, '=');
		if (value)
			*value++ = 0;
		if (!value || length >= sizeof(pair) || user_limits_set(l, pair, value))
			return fail(error, size, -EINVAL,
				    "--user-limit '%.*s' is not good; give " USERS_LIMIT_WORDS,
				    (int)length, at);
		at += length + (at[length] == ',');
	}
	return 0;
}

bool
users_may_attach(const struct users *u, uint32_t uid, uint32_t gid, const gid_t *groups,
		 size_t group_count)
{
	if (!u->allowed_count || uid == 0 || uid == geteuid())
		return true;
	for (unsigned i = 0; i < u->allowed_count; i++) {
		uint32_t id = u->allowed[i].id;

		if (id == (u->allowed[i].group ? gid : uid))
			return true;
		for (size_t k = 0; u->allowed[i].group && k < group_count; k++)
			if (groups[k] == id)
				return true;
	}
	return false;
}
