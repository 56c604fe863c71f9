/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Users, and the sessions, memory, connections, public services and rate that all their programs
 * use together. Main counts by the credentials of the socket, whether weir-control lives or not.
 */
#include "pace.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NEW_NS                                                                                     \
	(10 * BROKER_SECOND_NS) /* since its first session, a user counts as a stranger too */
#define USER_SHARE 10u /* 1/10 of the time for attaching and leaving, and 1/10 for requests */
/* Parts of a burst: the most that a frugal stranger has cost (10 ms of 1/120 of the time: some
 * sessions per second), and the burst of all frugal strangers. */
#define LITTLE_PART 50u
#define FRUGAL_PART 10u
#define USER_BURSTS 4u	     /* bursts that a user with a session may cost at once */
#define USERS_KEPT_MAX 1024u /* users with settings of their own */

static void
store_rate(struct broker_user *u)
{
	struct engine_share *share = &u->share;

	atomic_store_explicit(&share->burst_ns, rate_burst_ns(&u->limits.rate),
			      memory_order_relaxed);
	atomic_store_explicit(&share->rate, u->limits.rate.bytes, memory_order_relaxed);
}

/*
 * Finds a user, and frees all others without settings that use nothing any more. Traffic has to be
 * paid for before, so that leaving and coming back gains nothing.
 */
static struct broker_user *
find(struct broker *b, uint32_t uid)
{
	struct broker_user *u, *after, *found = NULL;
	uint64_t now = broker_now(b), used;

	for (u = LIST_FIRST(&b->users); u; u = after) {
		after = LIST_NEXT(u, entry);
		if (u->uid == uid) {
			found = u;
			continue;
		}
		used = pace_left(&u->pace, now) | pace_left(&u->requests, now);
		for (unsigned i = 0; i < USER_LIMITS; i++)
			used |= u->used[i];
		if (!u->kept && !used &&
		    atomic_load_explicit(&u->share.paid, memory_order_relaxed) <= now) {
			LIST_REMOVE(u, entry);
			free(u);
		}
	}
	return found;
}

/* NULL: out of memory. */
static struct broker_user *
find_or_make(struct broker *b, uint32_t uid)
{
	struct broker_user *u = find(b, uid);

	if (u)
		return u;
	u = broker_alloc(sizeof(*u));
	if (!u)
		return NULL;
	u->b = b;
	u->uid = uid;
	u->pace.share = u->requests.share = USER_SHARE;
	u->limits = b->user_others;
	store_rate(u);
	LIST_INSERT_HEAD(&b->users, u, entry);
	return u;
}

int
users_begin(struct broker *b)
{
	const struct users *rules = b->config.users;

	if (!rules)
		return 0;
	b->user_others = rules->others;
	for (unsigned i = 0; i < rules->limited_count; i++) {
		struct broker_user *u = find_or_make(b, rules->limited[i].uid);

		if (!u)
			return -ENOMEM;
		u->kept = true;
		u->limits = rules->limited[i].limits;
		store_rate(u);
	}
	return 0;
}

int
user_take(struct broker_user *u, enum user_limit which, uint64_t n)
{
	struct broker *b = u->b;
	uint64_t most = u->limits.most[which], all = b->most[which];

	/* a limit may have been set below what is used */
	if (most && (u->used[which] > most || n > most - u->used[which]))
		return -EDQUOT;
	if (all && (b->used[which] > all || n > all - b->used[which]))
		return -ENOSPC;
	u->used[which] += n;
	b->used[which] += n;
	return 0;
}

void
user_give(struct broker_user *u, enum user_limit which, uint64_t n)
{
	weir_assert(u->used[which] >= n && u->b->used[which] >= n);
	u->used[which] -= n;
	u->b->used[which] -= n;
}

static uint64_t
left(const struct broker_user *u, enum user_limit which)
{
	uint64_t most = u->limits.most[which];

	if (!most)
		return UINT64_MAX;
	return most > u->used[which] ? most - u->used[which] : 0;
}

int
user_share_in(struct broker_user *u, uint64_t bytes)
{
	if (left(u, USER_MEMORY) < bytes || !left(u, USER_SEGMENTS))
		return -EDQUOT;
	u->used[USER_MEMORY] += bytes;
	u->used[USER_SEGMENTS]++;
	return 0;
}

void
user_share_out(struct broker_user *u, uint64_t bytes)
{
	weir_assert(u->used[USER_MEMORY] >= bytes && u->used[USER_SEGMENTS]);
	u->used[USER_MEMORY] -= bytes;
	u->used[USER_SEGMENTS]--;
}

uint64_t
user_left(const struct broker_user *u, uint64_t bytes)
{
	uint64_t own = u->limits.most[USER_MEMORY] / 4, n = left(u, USER_MEMORY);
	uint64_t segments = left(u, USER_SEGMENTS);

	if (n != UINT64_MAX)
		n = n > own ? (n - own) / bytes : 0;
	return n < segments ? n : segments;
}

/* Words of refusals: the unit, and remedies for the user and for all users. */
static const struct {
	const char *what, *remedy, *option;
	unsigned shift;
} about[USER_LIMITS] = {
    [USER_CONNECTIONS] = {"connections", "close some", "--max-connections", 0},
    [USER_EXPORTS] = {"exports", "revoke some", "weirctl set limit.exports", 0},
    [USER_MEMORY] = {"KiB of memory", "ask for less, end a program",
		     "--max-memory, weirctl set limit.memory", 10},
    [USER_REGIONS] = {"regions", "disown or free some",
		      "--regions, --max-sessions, weirctl set limit.regions", 0},
    [USER_SEGMENTS] = {"segments", "use fewer threads",
		       "the limit of open files, weirctl set limit.segments", 0},
    [USER_SERVICES] = {"public services", "close one", NULL, 0},
    [USER_SESSIONS] = {"sessions", "end a program", "--max-sessions", 0},
};

void
user_refusal(const struct broker_user *u, enum user_limit which, uint64_t n, int rc,
	     struct weir_session_msg *no)
{
	unsigned shift = about[which].shift;
	char more[48] = "";
	uint64_t has = rc == -EDQUOT ? u->used[which] : u->b->used[which];
	uint64_t most = rc == -EDQUOT ? u->limits.most[which] : u->b->most[which];

	if (n > 1)
		snprintf(more, sizeof(more), ", %llu more were asked for",
			 (unsigned long long)(n >> shift) + !!(n & ((1ull << shift) - 1)));
	if (rc == -EDQUOT)
		session_refusal(no, EDQUOT,
				"user %u has %llu %s, its limit is %llu%s; %s, or have it raised "
				"(--user-limit %s=)",
				u->uid, (unsigned long long)has >> shift, about[which].what,
				(unsigned long long)most >> shift, more, about[which].remedy,
				user_limit_name(which));
	else
		session_refusal(no, -rc,
				"all programs of this node have %llu %s, the limit is %llu%s; %s, "
				"or have it raised (%s)",
				(unsigned long long)has >> shift, about[which].what,
				(unsigned long long)most >> shift, more, about[which].remedy,
				about[which].option);
}

void
user_refuse(struct broker_session *s, const struct broker_user *u, enum user_limit which,
	    uint64_t n, int rc)
{
	struct weir_session_msg no;

	user_refusal(u, which, n, rc, &no);
	session_reply(s, &no, NULL, 0);
}

int
user_begin(struct broker *b, uint32_t uid, struct broker_user **user, struct weir_session_msg *no)
{
	struct broker_user *u = find_or_make(b, uid);
	int rc;

	if (!u) {
		session_refusal(no, ENOMEM, SESSION_NO_MEMORY);
		return -ENOMEM;
	}
	rc = user_take(u, USER_SESSIONS, 1);
	if (rc)
		user_refusal(u, USER_SESSIONS, 1, rc, no);
	*user = u;
	return rc;
}

bool
user_take_conn(struct broker_session *s)
{
	return !user_take(s->owner, USER_CONNECTIONS, 1);
}

void
user_refuse_conn(struct broker_session *s, const struct broker_session *t)
{
	const struct broker_user *u = s->owner;
	uint64_t most = u->limits.most[USER_CONNECTIONS];

	if (!most || u->used[USER_CONNECTIONS] < most)
		u = t->owner;
	most = u->limits.most[USER_CONNECTIONS];
	if (most && u->used[USER_CONNECTIONS] >= most)
		session_refuse(s, EDQUOT,
			       "user %u has reached its limit of %llu connections, by ends on this "
			       "host; close some, or have it raised (--user-limit connections=)",
			       u->uid, (unsigned long long)most);
	else
		session_refuse(s, EMFILE,
			       "all connections are in use; close some or raise "
			       "--max-connections");
}

uint64_t
user_burst(const struct broker *b)
{
	return USER_BURSTS * b->config.burst_ns;
}

/*
 * A user whose first session is open begins with one burst, and counts as a stranger, too, for a
 * while: many user ids gain nothing.
 */
void
user_attached(struct broker_user *u)
{
	uint64_t used = user_burst(u->b) - u->b->config.burst_ns, now = broker_now(u->b);

	weir_assert(u->attached < u->used[USER_SESSIONS]);
	if (u->attached++)
		return;
	u->since = now;
	if (pace_left(&u->pace, now) < used)
		u->pace.used_ns = used;
}

void
user_left_one(struct broker_user *u)
{
	weir_assert(u->attached);
	u->attached--;
}

struct broker_user *
user_find_attached(struct broker *b, uint32_t uid)
{
	struct broker_user *u = find(b, uid);

	return u && u->attached ? u : NULL;
}

uint64_t
stranger_cost(struct broker *b, uid_t uid, uint64_t now)
{
	return pace_left(&b->stranger[uid % BROKER_STRANGER_PLACES], now);
}

/* ns that a stranger may cost before it is no longer frugal. */
static uint64_t
little_left(struct broker *b, uid_t uid, uint64_t now)
{
	uint64_t little = b->config.burst_ns / LITTLE_PART + 1, cost = stranger_cost(b, uid, now);

	return cost < little ? little - cost : 0;
}

uint64_t
stranger_due(struct broker *b, uid_t uid, uint64_t now)
{
	uint64_t burst = b->config.burst_ns, due = pace_due(&b->strangers, burst, now), frugal;

	if (!due || !little_left(b, uid, now))
		return due;
	frugal = pace_due(&b->frugal, burst / FRUGAL_PART + 1, now);
	return frugal < due ? frugal : due;
}

void
user_charge(struct broker_user *u, uint64_t ns, bool request)
{
	struct broker *b = u->b;
	uint64_t burst = b->config.burst_ns, now = broker_now(b), little;

	if (!u->attached || now - u->since < NEW_NS) {
		little = little_left(b, u->uid, now);
		if (burst)
			pace_use(&b->frugal, burst / FRUGAL_PART + 1, ns < little ? ns : little);
		pace_use(&b->strangers, burst, ns);
		pace_use(&b->stranger[u->uid % BROKER_STRANGER_PLACES], burst, ns);
	}
	if (u->attached && request)
		pace_use(&u->requests, burst, ns);
	else if (u->attached)
		pace_use(&u->pace, user_burst(b), ns);
}

int
user_set(struct broker *b, uint32_t uid, const char *key, const char *value)
{
	struct broker_user *u, *k;
	uint32_t kept = 0;
	int rc;

	if (uid == USER_OTHERS) {
		rc = user_limits_set(&b->user_others, key, value);
		LIST_FOREACH(u, &b->users, entry)
		{
			if (rc < 0 || u->kept)
				continue;
			u->limits = b->user_others;
			store_rate(u);
			rc += (int)u->used[USER_SESSIONS];
		}
		return rc;
	}
	u = find_or_make(b, uid);
	if (!u)
		return -ENOMEM;
	for (k = LIST_FIRST(&b->users); k; k = LIST_NEXT(k, entry))
		kept += k->kept;
	if (!u->kept && kept >= USERS_KEPT_MAX)
		return -ENOSPC;
	rc = user_limits_set(&u->limits, key, value);
	if (rc)
		return rc;
	u->kept = true;
	store_rate(u);
	return (int)u->used[USER_SESSIONS];
}

/* Settings of a user in alphabetical order: the limits, with priority and rate after USER_MEMORY.
 */
#define SETTINGS (USER_LIMITS + 2u)
#define PRIORITY_AT (USER_MEMORY + 1u)
#define RATE_AT (USER_MEMORY + 2u)

static void
limit_row(const char *whose, const struct user_limits *l, uint32_t what, struct weir_row_setting *r)
{
	static const char *const help[USER_LIMITS] = {
	    "ends of connections of all programs of that user",
	    "exports of memory of all programs of that user",
	    "bytes of arenas, regions and segments of all programs of that user",
	    "regions that all programs of that user have allocated or adopted",
	    "segments (memory between two local threads) of all programs of that user",
	    "public services that all programs of that user offer",
	    "attached programs of that user"};
	enum user_limit which = what > RATE_AT ? what - 2 : what;
	bool rate = what == RATE_AT, priority = what == PRIORITY_AT;

	snprintf(r->key, sizeof(r->key), "user.%s.%s", whose,
		 priority ? "priority"
		 : rate	  ? "rate"
			  : user_limit_name(which));
	snprintf(r->help, sizeof(r->help), "%s%s",
		 priority ? "highest priority that programs of that user may connect with"
		 : rate
		     ? "payload bytes/s to peers of all programs of that user, and burst in bytes"
		     : help[which],
		 *whose == '*' ? ", unless it is named" : "");
	if (priority)
		snprintf(r->value, sizeof(r->value), "%s", weir_class_name(l->class));
	else if (rate)
		rate_text(&l->rate, r->value, sizeof(r->value));
	else
		user_limit_text(l->most[which], r->value, sizeof(r->value));
}

bool
user_setting_row(const struct broker *b, uint32_t index, struct weir_row_setting *r)
{
	uint32_t skip = index / SETTINGS;
	const struct broker_user *u = LIST_FIRST(&b->users);
	char uid[16];

	if (skip-- == 0) {
		limit_row("*", &b->user_others, index % SETTINGS, r);
		return true;
	}
	while (u && (!u->kept || skip-- != 0))
		u = LIST_NEXT(u, entry);
	if (!u)
		return false;
	snprintf(uid, sizeof(uid), "%u", u->uid);
	limit_row(uid, &u->limits, index % SETTINGS, r);
	return true;
}

void
user_free_all(struct broker *b)
{
	struct broker_user *u;

	while ((u = LIST_FIRST(&b->users))) {
		LIST_REMOVE(u, entry);
		free(u);
	}
}

bool
user_row(const struct broker *b, uint32_t index, struct weir_row_user *r)
{
	const struct broker_user *u = LIST_FIRST(&b->users);

	while (u && index-- != 0)
		u = LIST_NEXT(u, entry);
	if (!u)
		return false;
	r->uid = u->uid;
	r->named = u->kept;
#define X(member, which)                                                                           \
	r->member = u->used[which];                                                                \
	r->member##_max = u->limits.most[which];
	X(sessions, USER_SESSIONS)
	X(connections, USER_CONNECTIONS)
	X(services, USER_SERVICES)
	X(memory, USER_MEMORY)
	X(regions, USER_REGIONS)
	X(exports, USER_EXPORTS)
	X(segments, USER_SEGMENTS)
#undef X
	r->rate = u->limits.rate.bytes;
	return true;
}
