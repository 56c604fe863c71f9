/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shares of programs: weights, rates, numbers of connections, from the options, per program name or
 * per session. weirctl sets them (`set KEY VALUE`); a setting of a name also holds for programs
 * that attach later.
 */
#include "command.h"
#include "quota.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "base/fail.h"
#include "base/options.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMES_MAX 1024u /* programs with settings of their own */

static struct quota_setting *
find(const struct broker *b, const char *name)
{
	struct quota_setting *s = b->quota_settings;

	while (s && strcmp(s->name, name))
		s = s->next;
	return s;
}

static void
merge(struct quota *into, const struct quota *set)
{
	if (set->conn_limit)
		into->conn_limit = set->conn_limit;
	if (set->weight)
		into->weight = set->weight;
	if (set->classed) {
		into->classed = true;
		into->class = set->class;
	}
	if (set->rated) {
		into->rated = true;
		into->rate = set->rate;
	}
}

static void
store(struct broker_session *s)
{
	const struct quota *q = &s->quota;

	atomic_store_explicit(&s->share.weight, q->weight, memory_order_relaxed);
	atomic_store_explicit(&s->share.burst_ns, rate_burst_ns(&q->rate), memory_order_relaxed);
	atomic_store_explicit(&s->share.rate, q->rate.bytes, memory_order_relaxed);
}

void
quota_init(struct broker_session *s)
{
	const struct broker_config *c = &s->b->config;
	const struct quota_setting *set = find(s->b, s->name);

	weir_assert(s->state == SESSION_BUILDING && s->owner);
	s->quota = (struct quota){.weight = c->program_weight ? c->program_weight : ENGINE_WEIGHT,
				  .conn_limit = c->session_connections,
				  .rate = c->program_rate};
	if (set)
		merge(&s->quota, &set->quota);
	s->share.above = &s->owner->share;
	store(s);
}

static void
told(struct broker *b, struct broker_command *c)
{
	session_command_done(c->context);
}

void
quota_tell_engines(struct broker_session *s)
{
	struct broker *b = s->b;

	if (s->state == SESSION_BUILDING) /* engines are told of the session later */
		return;
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct broker_command *c = command_urgent(b, i, ENGINE_SESSION_SHARE, told, s);

		if (!c)
			return; /* the engine sees the new values when it next serves the session */
		c->cmd.session = &s->view[i];
		s->commands++;
		command_submit(b, c);
	}
}

/*
 * Applies a setting to all programs of a name, attached or later ones, or, name NULL, to a session.
 * Number of sessions changed, or -errno.
 */
static int
apply(struct broker *b, const char *name, uint32_t id, const struct quota *to)
{
	struct quota_setting *set = name ? find(b, name) : NULL;
	uint32_t names = 0;
	int n = 0;

	if (name && !set) {
		for (set = b->quota_settings; set; set = set->next)
			names++;
		if (names == NAMES_MAX)
			return -ENOSPC;
		set = broker_alloc(sizeof(*set));
		if (!set)
			return -ENOMEM;
		snprintf(set->name, sizeof(set->name), "%s", name);
		set->next = b->quota_settings;
		b->quota_settings = set;
	}
	if (set)
		merge(&set->quota, to);
	for (uint32_t i = 0; i < b->config.sessions; i++) {
		struct broker_session *s = b->session[i];

		if (!s || session_ends(s) || (name ? strcmp(s->name, name) != 0 : s->id != id))
			continue;
		n++;
		merge(&s->quota, to);
		if (to->weight || to->rated) { /* engines apply these */
			store(s);
			quota_tell_engines(s);
		}
	}
	return n || name ? n : -ESRCH;
}

/* Describes the values of a setting of users, short enough for a reason. */
static const char *
user_values(const char *what)
{
	if (!strcmp(what, "priority"))
		return "normal or high";
	if (!strcmp(what, "rate"))
		return RATE_WORDS;
	if (!strcmp(what, "memory"))
		return "bytes with K, M or G, or none";
	for (enum user_limit i = 0; i < USER_LIMITS; i++)
		if (!strcmp(what, user_limit_name(i)))
			return "a number from 1, or none";
	return "sessions, connections, services, regions, exports, segments, memory, rate or "
	       "priority";
}

/* KEY is user.UID.WHAT, or user.*.WHAT: each user without settings, attached or not. */
static int
set_user(struct broker *b, const char *key, const char *value, char *reason, size_t size)
{
	const char *what = strrchr(key, '.');
	uint64_t uid = USER_OTHERS;
	char number[16];
	int rc;

	snprintf(number, sizeof(number), "%.*s", (int)(what - key - 5), key + 5);
	if (what <= key + 5 || (size_t)(what - key - 5) >= sizeof(number) ||
	    (strcmp(number, "*") && option_number(number, false, 0, UINT32_MAX - 1, &uid)))
		return fail(reason, size, -EINVAL,
			    "'%s' names no user by number; give user.UID.WHAT, or user.*.WHAT",
			    key);
	rc = user_set(b, (uint32_t)uid, what + 1, value);
	if (rc == -ENOSPC)
		return fail(reason, size, -ENOSPC,
			    "too many users have settings; restart the data plane");
	if (rc == -ENOMEM)
		return fail(reason, size, -ENOMEM, SESSION_NO_MEMORY);
	if (rc < 0)
		return fail(reason, size, rc, "invalid value '%.32s' for %s (expected %s)", value,
			    key, user_values(what + 1));
	for (uint32_t i = 0; i < b->config.sessions; i++)
		if (b->session[i] && !session_ends(b->session[i]) &&
		    (uid == USER_OTHERS || b->session[i]->uid == uid))
			quota_tell_engines(b->session[i]);
	return rc;
}

/* KEY is session.ID.WHAT or program.NAME.WHAT, WHAT weight, rate, priority or connections; a name
 * may have dots. */
int
quota_set(struct broker *b, const char *key, const char *value, char *reason, size_t size)
{
	const char *what = strrchr(key, '.'), *from = strchr(key, '.');
	bool by_name = !strncmp(key, "program.", 8), rate, weight, priority;
	uint64_t id = 0, n = 0, most;
	struct quota to = {0};
	char name[WEIR_NAME_MAX];
	int rc;

	if (!strncmp(key, "user.", 5))
		return set_user(b, key, value, reason, size);
	rate = what && !strcmp(what, ".rate");
	weight = what && !strcmp(what, ".weight");
	priority = what && !strcmp(what, ".priority");
	if (!what || what == from || (!by_name && strncmp(key, "session.", 8)) ||
	    !(rate || weight || priority || !strcmp(what, ".connections")))
		return fail(reason, size, -EINVAL,
			    "no setting is called '%s'; weirctl show settings lists them, besides "
			    "program.NAME.weight, .priority, .rate and .connections and user.NAME "
			    "and a limit",
			    key);
	if ((size_t)(what - from) > sizeof(name))
		return fail(reason, size, -EINVAL,
			    "the name in '%s' is longer than names of programs are; see weirctl "
			    "show sessions",
			    key);
	snprintf(name, sizeof(name), "%.*s", (int)(what - from - 1), from + 1);
	if (!by_name && option_number(name, false, 0, UINT32_MAX - 1, &id))
		return fail(reason, size, -EINVAL,
			    "invalid session '%s' (expected a number); see weirctl show sessions",
			    name);
	if (rate && rate_parse(value, &to.rate))
		return option_invalid(key, value, RATE_WORDS, reason, size);
	if (priority && weir_class_named(value, &to.class))
		return option_invalid(key, value, "low, normal or high", reason, size);
	most = weight ? ENGINE_WEIGHT_MAX : b->config.session_connections;
	if (!rate && !priority && option_number(value, false, 1, most, &n))
		return fail(reason, size, -EINVAL, "invalid value '%s' for %s (expected 1 to %u%s)",
			    value, key, (unsigned)most, weight ? "" : ": --session-connections");
	to.rated = rate;
	to.classed = priority;
	if (weight)
		to.weight = (uint32_t)n;
	else
		to.conn_limit = (uint32_t)n; /* 0 beside a rate or priority */
	rc = apply(b, by_name ? name : NULL, (uint32_t)id, &to);
	if (rc == -ENOMEM)
		return fail(reason, size, -ENOMEM, SESSION_NO_MEMORY);
	if (rc == -ESRCH)
		return fail(reason, size, -ESRCH,
			    "there is no session %u; see weirctl show sessions", (unsigned)id);
	if (rc == -ENOSPC)
		return fail(reason, size, -ENOSPC,
			    "%u names of programs have settings; restart the data plane, or set "
			    "session.ID",
			    NAMES_MAX);
	return rc;
}

void
quota_free_all(struct broker *b)
{
	while (b->quota_settings) {
		struct quota_setting *s = b->quota_settings;

		b->quota_settings = s->next;
		free(s);
	}
}

static uint64_t
sum(const struct broker_session *s, size_t at)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->b->config.engines; i++)
		if (s->view[i].work)
			n += atomic_load_explicit(
			    (const _Atomic uint64_t *)((const uint8_t *)s->view[i].work + at),
			    memory_order_relaxed);
	return n;
}

void
quota_row(const struct broker_session *s, struct weir_row_session *r)
{
	r->weight = s->quota.weight;
	r->rate = s->quota.rate.bytes;
	r->burst = s->quota.rate.burst;
	r->tx_messages = sum(s, offsetof(struct engine_session_counters, tx_messages));
	r->tx_bytes = sum(s, offsetof(struct engine_session_counters, tx_bytes));
	r->limited = sum(s, offsetof(struct engine_session_counters, limited));
}
