/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What programs may take: weights, rates, numbers of connections, from the options, by the
 * program's name or for one session. weirctl sets them (`set KEY VALUE`); what is set for a name
 * holds for programs that attach later too.
 */
#include "command.h"
#include "quota.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMES_MAX 1024u /* programs with settings of their own */

static struct share_setting *
find(const struct broker *b, const char *name)
{
	struct share_setting *s = b->share_settings;

	while (s && strcmp(s->name, name))
		s = s->next;
	return s;
}

static void
store(struct broker_session *s)
{
	atomic_store_explicit(&s->share.weight, s->weight, memory_order_relaxed);
	atomic_store_explicit(&s->share.burst_ns, rate_burst_ns(&s->rate), memory_order_relaxed);
	atomic_store_explicit(&s->share.rate, s->rate.bytes, memory_order_relaxed);
}

/* Before engines know it. */
void
share_init(struct broker_session *s)
{
	const struct broker_config *c = &s->b->config;
	const struct share_setting *set = find(s->b, s->name);

	s->weight = c->program_weight ? c->program_weight : ENGINE_WEIGHT;
	s->rate = c->program_rate;
	s->conn_limit = c->session_connections;
	if (set && set->conn_limit)
		s->conn_limit = set->conn_limit;
	if (set && set->weight)
		s->weight = set->weight;
	if (set && set->rated)
		s->rate = set->rate;
	s->share.above = user_share(s->owner);
	store(s);
}

static void
told(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;

	(void)b;
	s->commands--;
	broker_session_release(s);
}

void
share_tell(struct broker_session *s)
{
	struct broker *b = s->b;

	if (s->state == SESSION_BUILDING) /* its engines will see it */
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

static void
change(struct broker_session *s, const struct share_setting *to)
{
	if (to->conn_limit)
		s->conn_limit = to->conn_limit;
	if (to->weight)
		s->weight = to->weight;
	if (to->rated)
		s->rate = to->rate;
	if (!to->weight && !to->rated)
		return; /* no business of engines */
	store(s);
	share_tell(s);
}

/* Keeps it for programs of that name that attach later. */
static int
keep(struct broker *b, const char *name, const struct share_setting *to)
{
	struct share_setting *set = find(b, name);
	uint32_t n = 0;

	for (const struct share_setting *s = b->share_settings; s; s = s->next)
		n++;
	if (!set && n == NAMES_MAX)
		return -ENOSPC;
	if (!set) {
		set = broker_alloc(sizeof(*set));
		if (!set)
			return -ENOMEM;
		snprintf(set->name, sizeof(set->name), "%s", name);
		set->next = b->share_settings;
		b->share_settings = set;
	}
	if (to->conn_limit)
		set->conn_limit = to->conn_limit;
	if (to->weight)
		set->weight = to->weight;
	if (to->rated) {
		set->rated = true;
		set->rate = to->rate;
	}
	return 0;
}

bool
broker_parse_number(const char *text, uint32_t max, uint32_t *value)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	*value = (uint32_t)n;
	return *text >= '0' && *text <= '9' && !*end && !errno && n <= max;
}

/* By name: all of them, and those to come. By number: that session. How many there are, or -errno.
 */
static int
apply(struct broker *b, const char *name, uint32_t id, const struct share_setting *to)
{
	int n = name ? keep(b, name, to) : 0;

	if (n)
		return n;
	for (uint32_t i = 0; i < b->config.sessions; i++) {
		struct broker_session *s = b->session[i];

		if (!s || s->state == SESSION_CLOSING ||
		    (name ? strcmp(s->name, name) != 0 : s->id != id))
			continue;
		change(s, to);
		n++;
	}
	return n || name ? n : -ESRCH;
}

/* KEY is user.UID.WHAT, or user.*.WHAT of each that has no settings: for those that attach later,
 * too. */
static int
set_user(struct broker *b, const char *key, const char *value, char *reason, size_t size)
{
	const char *what = strrchr(key, '.');
	char number[16];
	uint32_t uid = USER_OTHERS;
	int rc;

	snprintf(number, sizeof(number), "%.*s", (int)(what - key - 5), key + 5);
	if (what <= key + 5 || (size_t)(what - key - 5) >= sizeof(number) ||
	    (strcmp(number, "*") && !broker_parse_number(number, UINT32_MAX - 1, &uid)))
		return fail(reason, size, -EINVAL,
			    "'%s' names no user by number; give user.UID.WHAT, or user.*.WHAT",
			    key);
	rc = user_set(b, uid, what + 1, value);
	if (rc == -ENOSPC)
		return fail(reason, size, -ENOSPC,
			    "too many users have settings; restart the data plane");
	if (rc == -ENOMEM)
		return fail(reason, size, -ENOMEM, SESSION_NO_MEMORY);
	if (rc < 0)
		return fail(reason, size, rc, "%s '%s' is not good; give " USERS_LIMIT_WORDS,
			    what + 1, value);
	for (uint32_t i = 0; i < b->config.sessions; i++)
		if (b->session[i] && b->session[i]->state != SESSION_CLOSING &&
		    (uid == USER_OTHERS || b->session[i]->uid == uid))
			share_tell(b->session[i]);
	return rc;
}

/* WHAT and VALUE. 0, or -errno and a reason. */
static int
parse_value(const struct broker *b, const char *what, const char *value, struct share_setting *to,
	    char *reason, size_t size)
{
	uint32_t most = b->config.session_connections;

	if (!strcmp(what, "rate")) {
		to->rated = true;
		return !rate_parse(value, &to->rate)
			   ? 0
			   : fail(reason, size, -EINVAL, "rate '%s' is not good; give " RATE_WORDS,
				  value);
	}
	if (!strcmp(what, "weight")) {
		return broker_parse_number(value, ENGINE_WEIGHT_MAX, &to->weight) && to->weight
			   ? 0
			   : fail(reason, size, -EINVAL, "weight '%s' is not good; give 1 to %u",
				  value, ENGINE_WEIGHT_MAX);
	}
	return broker_parse_number(value, most, &to->conn_limit) && to->conn_limit
		   ? 0
		   : fail(reason, size, -EINVAL,
			  "'%s' is no number of connections; give 1 to %u "
			  "(--session-connections)",
			  value, most);
}

static bool
what_is_known(const char *what)
{
	return !strcmp(what, "weight") || !strcmp(what, "rate") || !strcmp(what, "connections");
}

/* KEY is session.ID.WHAT or program.NAME.WHAT, WHAT weight, rate or connections; a name may hold
 * dots. */
int
share_set(struct broker *b, const char *key, const char *value, char *reason, size_t size)
{
	const char *what = strrchr(key, '.'), *from = strchr(key, '.');
	bool by_name = !strncmp(key, "program.", 8);
	struct share_setting to = {0};
	char name[WEIR_NAME_MAX];
	uint32_t id = 0;
	int rc;

	if (!strncmp(key, "user.", 5))
		return set_user(b, key, value, reason, size);
	if (!what || what == from || (!by_name && strncmp(key, "session.", 8)) ||
	    !what_is_known(what + 1))
		return fail(reason, size, -EINVAL,
			    "no setting is called '%s'; weirctl show settings lists them, besides "
			    "program.NAME.weight, .rate and .connections and user.NAME and a limit",
			    key);
	if ((size_t)(what - from) > sizeof(name))
		return fail(reason, size, -EINVAL,
			    "the name in '%s' is longer than names of programs are; see weirctl "
			    "show sessions",
			    key);
	snprintf(name, sizeof(name), "%.*s", (int)(what - from - 1), from + 1);
	if (!by_name && !broker_parse_number(name, UINT32_MAX - 1, &id))
		return fail(reason, size, -EINVAL,
			    "'%s' is no number of a session; see weirctl show sessions", name);
	rc = parse_value(b, what + 1, value, &to, reason, size);
	if (rc)
		return rc;
	rc = apply(b, by_name ? name : NULL, id, &to);
	if (rc == -ENOMEM)
		return fail(reason, size, -ENOMEM, SESSION_NO_MEMORY);
	if (rc == -ESRCH)
		return fail(reason, size, -ESRCH,
			    "there is no session %u; see weirctl show sessions", id);
	if (rc == -ENOSPC)
		return fail(reason, size, -ENOSPC,
			    "%u names of programs have settings; restart the data plane, or set "
			    "session.ID",
			    NAMES_MAX);
	return rc;
}

void
share_free_all(struct broker *b)
{
	while (b->share_settings) {
		struct share_setting *s = b->share_settings;

		b->share_settings = s->next;
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
share_row(const struct broker_session *s, struct weir_row_session *r)
{
	r->weight = s->weight;
	r->rate = s->rate.bytes;
	r->burst = s->rate.burst;
	r->tx_messages = sum(s, offsetof(struct engine_session_counters, tx_messages));
	r->tx_bytes = sum(s, offsetof(struct engine_session_counters, tx_bytes));
	r->limited = sum(s, offsetof(struct engine_session_counters, limited));
}
