/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Users, and what their programs use together: sessions, memory, connections, public services, a
 * rate. Counted here, on main, by the credentials of the socket: it holds whether control lives or
 * not.
 */
#include "broker_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define USERS_KEPT_MAX 1024u /* with settings of their own */

struct broker_user {
	struct broker_user *next;
	uint32_t uid;
	bool kept; /* has settings of its own */
	uint32_t sessions, conns, services;
	uint64_t memory;
	struct user_limits limits;
	struct engine_share share; /* above those of its sessions */
};

static void
store_rate(struct broker_user *u)
{
	struct engine_share *share = &u->share;

	atomic_store_explicit(&share->burst_ns, rate_burst_ns(&u->limits.rate),
			      memory_order_relaxed);
	atomic_store_explicit(&share->rate, u->limits.rate.bytes, memory_order_relaxed);
}

/* Nothing of it is left; what it sent is paid for, so that leaving and coming back gains nothing.
 */
static bool
forgettable(struct broker *b, struct broker_user *u)
{
	return !u->kept && !u->sessions &&
	       atomic_load_explicit(&u->share.paid, memory_order_relaxed) <= broker_now(b);
}

/* Looks through all, and forgets those that may be forgotten. */
static struct broker_user *
find(struct broker *b, uint32_t uid)
{
	struct broker_user **at = &b->users, *u, *found = NULL;

	while ((u = *at)) {
		if (u->uid == uid) {
			found = u;
		} else if (forgettable(b, u)) {
			*at = u->next;
			free(u);
			continue;
		}
		at = &u->next;
	}
	return found;
}

static struct broker_user *
find_or_make(struct broker *b, uint32_t uid)
{
	struct broker_user *u = find(b, uid);

	if (u)
		return u;
	u = broker_alloc(sizeof(*u));
	u->uid = uid;
	u->limits = b->user_others;
	store_rate(u);
	u->next = b->users;
	b->users = u;
	return u;
}

void
users_begin(struct broker *b)
{
	const struct users *rules = b->config.users;

	if (!rules)
		return;
	b->user_others = rules->others;
	for (unsigned i = 0; i < rules->limited_count; i++) {
		struct broker_user *u = find_or_make(b, rules->limited[i].uid);

		u->kept = true;
		u->limits = rules->limited[i].limits;
		store_rate(u);
	}
}

/* A session of this user begins: 0, or -EDQUOT and the refusal. */
int
user_begin(struct broker *b, uint32_t uid, struct broker_user **user, struct weir_session_msg *no)
{
	struct broker_user *u = find_or_make(b, uid);

	if (u->limits.sessions && u->sessions >= u->limits.sessions) {
		session_refusal(no, EDQUOT,
				"user %u has %u sessions, its limit is %u; end a program, or have "
				"the limit raised (--user-limit sessions=)",
				uid, u->sessions, u->limits.sessions);
		return -EDQUOT;
	}
	u->sessions++;
	*user = u;
	return 0;
}

void
user_end(struct broker_session *s)
{
	struct broker_user *u = s->owner;

	if (!u)
		return;
	u->sessions--;
	u->memory -= s->memory;
	s->owner = NULL;
}

/* It wants so many bytes: 0, or -EDQUOT. */
int
user_take_memory(struct broker_session *s, uint64_t bytes)
{
	struct broker_user *u = s->owner;

	if (u->limits.memory &&
	    (u->memory > u->limits.memory || bytes > u->limits.memory - u->memory))
		return -EDQUOT;
	u->memory += bytes;
	s->memory += bytes;
	return 0;
}

void
user_give_memory(struct broker_session *s, uint64_t bytes)
{
	s->owner->memory -= bytes;
	s->memory -= bytes;
}

void
user_refuse_memory(const struct broker_session *s, struct weir_session_msg *no)
{
	const struct broker_user *u = s->owner;

	session_refusal(no, EDQUOT,
			"user %u has %llu KiB of memory, its limit is %llu; ask for less, end a "
			"program, or have it raised (--user-limit memory=)",
			u->uid, (unsigned long long)u->memory >> 10,
			(unsigned long long)u->limits.memory >> 10);
}

bool
user_take_conn(struct broker_session *s)
{
	struct broker_user *u = s->owner;

	if (u->limits.connections && u->conns >= u->limits.connections)
		return false;
	u->conns++;
	return true;
}

void
user_give_conn(struct broker_session *s)
{
	s->owner->conns--;
}

/* No connection for s, since it, or t, has none left. */
void
user_refuse_conn(struct broker_session *s, const struct broker_session *t)
{
	const struct broker_user *u = s->owner;

	if (!u->limits.connections || u->conns < u->limits.connections)
		u = t->owner;
	if (u->limits.connections && u->conns >= u->limits.connections)
		session_refuse(s, EDQUOT,
			       "user %u has reached its limit of %u connections, by ends on this "
			       "host; close some, or have it raised (--user-limit connections=)",
			       u->uid, u->limits.connections);
	else
		session_refuse(s, EMFILE,
			       "all connections are in use; close some or raise "
			       "--max-connections");
}

/* Whether it may offer one more public service; refused, if not. */
bool
user_may_offer(struct broker_session *s)
{
	struct broker_user *u = s->owner;

	if (u->limits.services && u->services >= u->limits.services) {
		session_refuse(s, EDQUOT,
			       "user %u offers %u public services, its limit is %u; close one, or "
			       "have it raised (--user-limit services=)",
			       u->uid, u->services, u->limits.services);
		return false;
	}
	return true;
}

void
user_count_offers(struct broker_session *s, int more)
{
	s->owner->services += (uint32_t)more;
}

struct engine_share *
user_share(struct broker_user *u)
{
	return &u->share;
}

static int
set_others(struct broker *b, const char *key, const char *value)
{
	int rc = user_limits_set(&b->user_others, key, value);

	for (struct broker_user *u = b->users; u && rc >= 0; u = u->next) {
		if (u->kept)
			continue;
		u->limits = b->user_others;
		store_rate(u);
		rc += (int)u->sessions;
	}
	return rc;
}

int
user_set(struct broker *b, uint32_t uid, const char *key, const char *value)
{
	struct broker_user *u;
	uint32_t kept = 0;
	int rc;

	if (uid == USER_OTHERS)
		return set_others(b, key, value);
	u = find_or_make(b, uid);
	for (const struct broker_user *k = b->users; k; k = k->next)
		kept += k->kept;
	if (!u->kept && kept >= USERS_KEPT_MAX)
		return -ENOSPC;
	rc = user_limits_set(&u->limits, key, value);
	if (rc)
		return rc;
	u->kept = true;
	store_rate(u);
	return (int)u->sessions;
}

static void
count_text(uint64_t n, char *text, size_t size)
{
	if (n)
		snprintf(text, size, "%llu", (unsigned long long)n);
	else
		snprintf(text, size, "none");
}

#define LIMITS 5u

/* `what` is below LIMITS. */
static void
limit_row(const char *whose, const struct user_limits *l, uint32_t what, struct weir_row_setting *r)
{
	static const char *const name[] = {"connections", "memory", "rate", "services", "sessions"};
	static const char *const help[] = {
	    "ends of connections of all programs of that user",
	    "bytes of arenas and adopted memory of all programs of that user",
	    "payload bytes/s to peers of all programs of that user, and burst in bytes",
	    "public services that all programs of that user offer",
	    "attached programs of that user"};
	const uint64_t count[] = {l->connections, l->memory, 0, l->services, l->sessions};

	snprintf(r->key, sizeof(r->key), "user.%s.%s", whose, name[what]);
	snprintf(r->help, sizeof(r->help), "%s%s", help[what],
		 *whose == '*' ? ", unless it is named" : "");
	if (what == 2)
		rate_text(&l->rate, r->value, sizeof(r->value));
	else
		count_text(count[what], r->value, sizeof(r->value));
}

bool
user_setting_row(const struct broker *b, uint32_t index, struct weir_row_setting *r)
{
	uint32_t skip = index / LIMITS;
	const struct broker_user *u = b->users;
	char uid[16];

	if (skip-- == 0) {
		limit_row("*", &b->user_others, index % LIMITS, r);
		return true;
	}
	while (u && (!u->kept || skip-- != 0))
		u = u->next;
	if (!u)
		return false;
	snprintf(uid, sizeof(uid), "%u", u->uid);
	limit_row(uid, &u->limits, index % LIMITS, r);
	return true;
}

void
user_free_all(struct broker *b)
{
	while (b->users) {
		struct broker_user *u = b->users;

		b->users = u->next;
		free(u);
	}
}
