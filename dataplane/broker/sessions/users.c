/* SPDX-License-Identifier: BSD-3-Clause */
#include "users.h"

#include "base/fail.h"
#include "base/options.h"
#include "ipc/class.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COUNT_MAX (1u << 20)
#define MEMORY_MAX (1ull << 50)
#define USER_NAME_MAX 64

int
user_parse_limit(const char *text, enum user_limit which, uint64_t *value)
{
	bool size = which == USER_MEMORY;

	*value = 0;
	return strcmp(text, "none")
		   ? option_number(text, size, 1, size ? MEMORY_MAX : COUNT_MAX, value)
		   : 0;
}

void
user_limit_text(uint64_t most, char *text, size_t size)
{
	if (most)
		snprintf(text, size, "%llu", (unsigned long long)most);
	else
		snprintf(text, size, "none");
}

const char *
user_limit_name(enum user_limit which)
{
	static const char *const name[USER_LIMITS] = {
	    "connections", "exports", "memory", "regions", "segments", "services", "sessions"};

	return name[which];
}

int
user_limits_set(struct user_limits *l, const char *key, const char *value)
{
	enum user_limit i = 0;
	struct rate rate;
	uint8_t class;
	uint64_t n;

	if (!strcmp(key, "priority")) {
		if (weir_class_named(value, &class) || class == WEIR_CLASS_LOW)
			return -EINVAL;
		l->class = class;
		return 0;
	}
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
	if (user_parse_limit(value, i, &n))
		return -EINVAL;
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

/* Finds the id of a user or group given by name or number. */
static bool
find_id(const char *name, bool group, uint32_t *id)
{
	const struct group *g;
	const struct passwd *p;
	uint64_t n;

	if (!option_number(name, false, 0, UINT32_MAX - 1, &n)) {
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
		return option_invalid("--allow", text, "user:NAME or group:NAME", error, size);
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

int
users_limit(struct users *u, const char *text, char *error, size_t size)
{
	static const char expected[] =
	    "USER:KEY=VALUE[,KEY=VALUE...], KEY=VALUE is " USERS_LIMIT_WORDS;
	const char *colon = strchr(text, ':'), *at;
	struct user_limits *l = &u->others;
	char name[USER_NAME_MAX];
	unsigned i = 0;
	uint32_t uid;

	if (!colon || colon == text || (size_t)(colon - text) >= sizeof(name) || !colon[1])
		return option_invalid("--user-limit", text, expected, error, size);
	snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text);
	if (strcmp(name, "*")) {
		if (!find_id(name, false, &uid))
			return fail(
			    error, size, -EINVAL,
			    "--user-limit: there is no user '%s' on this host; see getent passwd",
			    name);
		while (i < u->limited_count && u->limited[i].uid != uid)
			i++;
		if (i == USERS_LIMITED_MAX)
			return fail(error, size, -EINVAL,
				    "more than %u users with --user-limit; use * for the rest",
				    USERS_LIMITED_MAX);
		if (i == u->limited_count)
			u->limited[u->limited_count++].uid = uid;
		l = &u->limited[i].limits;
	}
	for (at = colon + 1; *at;) {
		size_t length = strcspn(at, ",");
		char pair[96], *value;

		snprintf(pair, sizeof(pair), "%.*s", (int)length, at);
		value = strchr(pair, '=');
		if (value)
			*value++ = 0;
		if (!value || length >= sizeof(pair) || user_limits_set(l, pair, value)) {
			snprintf(pair, sizeof(pair), "%.*s", (int)length, at);
			return option_invalid("--user-limit", pair, USERS_LIMIT_WORDS, error, size);
		}
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
