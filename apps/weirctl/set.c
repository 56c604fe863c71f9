/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl set, evict and drain: what changes a data plane, which knows what there is to change. */
#include "weirctl.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 200

static struct query q;

static int
change(const char *instance, const char *key, const char *value, uint32_t *count)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SET};
	int status;

	if (strlen(key) >= sizeof(m.set.key))
		return weirctl_fail(WEIRCTL_USAGE, "no setting is called '%s'; see show settings",
				    key);
	if (strlen(value) >= sizeof(m.set.value))
		return weirctl_fail(WEIRCTL_USAGE, "invalid value '%s' for %s; see show settings",
				    value, key);
	snprintf(m.set.key, sizeof(m.set.key), "%s", key);
	snprintf(m.set.value, sizeof(m.set.value), "%s", value);
	status = query_change(&q, instance, &m, count);
	return status ? weirctl_fail(status, "%s", q.reason) : WEIRCTL_OK;
}

int
set(const struct weirctl_options *o, int argc, char **argv)
{
	const char *key = argv[0], *what = strrchr(key, '.');
	char named[512], user[64];
	const struct passwd *p;
	size_t length = strlen(key);
	uint32_t count;
	int status;

	if (length >= sizeof(named))
		return weirctl_fail(WEIRCTL_USAGE, "no setting '%s'; see show settings", key);
	memcpy(named, key, length + 1);
	// user.NAME.WHAT becomes user.UID.WHAT: the data plane never looks up names
	if (!strncmp(key, "user.", 5) && what >= key + 6 && key[5] != '*' &&
	    (size_t)(what - key - 5) < sizeof(user) && (key[5] < '0' || key[5] > '9')) {
		snprintf(user, sizeof(user), "%.*s", (int)(what - key - 5), key + 5);
		p = getpwnam(user);
		if (!p)
			return weirctl_fail(WEIRCTL_USAGE,
					    "there is no user '%s' on this host; see getent passwd",
					    user);
		snprintf(named, sizeof(named), "user.%u%s", p->pw_uid, what);
	}
	status = change(o->instance, named, argv[1], &count);
	if (!status && o->json)
		printf("{\"changed\": %u}\n", count);
	else if (!status && !count)
		printf("no program of that %s is attached; it holds for those to come\n",
		       strncmp(named, "user.", 5) ? "name" : "user");
	return status;
}

static bool
parse_id(const char *text, uint32_t *id)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 0);
	*id = (uint32_t)n;
	return *text >= '0' && *text <= '9' && !*end && !errno && n <= UINT32_MAX;
}

int
evict(const struct weirctl_options *o, int argc, char **argv)
{
	static const struct {
		const char *before;
		uint32_t what;
	} victim[] = {{"vqpn.", WEIR_EVICT_CONNECTION},
		      {"session.", WEIR_EVICT_SESSION},
		      {"export.", WEIR_EVICT_EXPORT}};
	struct weir_ctl_msg m = {.type = WEIR_CTL_EVICT};
	const char *reason = o->reason ? o->reason : "";
	uint32_t count;
	int status;

	for (size_t i = 0; i < sizeof(victim) / sizeof(victim[0]); i++) {
		size_t n = strlen(victim[i].before);

		if (!strncmp(argv[0], victim[i].before, n) && parse_id(argv[0] + n, &m.evict.id))
			m.evict.what = victim[i].what;
	}
	if (!m.evict.what)
		return weirctl_fail(WEIRCTL_USAGE,
				    "cannot evict '%s'; give vqpn.N (see show connections), "
				    "session.ID (see show sessions) or export.N (see show exports)",
				    argv[0]);
	if (strlen(reason) >= sizeof(m.evict.reason))
		return weirctl_fail(WEIRCTL_USAGE, "--reason is too long; give at most %zu bytes",
				    sizeof(m.evict.reason) - 1);
	snprintf(m.evict.reason, sizeof(m.evict.reason), "%s", reason);
	status = query_change(&q, o->instance, &m, &count);
	if (!status && o->json)
		printf("{\"changed\": %u}\n", count);
	return status ? weirctl_fail(status, "%s", q.reason) : WEIRCTL_OK;
}

// How many programs and connections are left: of a node, or (negative) of this one. 0 or an exit
// code and q.reason.
static int
count_left(const char *instance, long node, uint32_t *sessions, uint32_t *conns)
{
	struct rows rows;
	int status = query_once(&q, instance, WEIRCTL_ANSWER_SECONDS, WEIR_ROWS_CONNECTIONS, &rows);

	*sessions = *conns = 0;
	if (status)
		return status;
	for (uint32_t i = 0; i < rows.count; i++) {
		const struct weir_row_connection *c = rows_at(&rows, i);

		*conns += node < 0 || (!c->local && c->peer_node == node);
	}
	free(rows.records);
	if (node >= 0)
		return 0;
	status = query_once(&q, instance, WEIRCTL_ANSWER_SECONDS, WEIR_ROWS_SESSIONS, &rows);
	if (status)
		return status;
	*sessions = rows.count;
	free(rows.records);
	return 0;
}

// Says how many are left whenever that changes, until none are.
static int
watch(const struct weirctl_options *o, long node, const char *name, int signals)
{
	double end = weirctl_now() + o->timeout;
	uint32_t sessions, conns, said[2] = {UINT32_MAX, UINT32_MAX};

	for (;;) {
		struct pollfd p = {.fd = signals, .events = POLLIN};
		int status = count_left(o->instance, node, &sessions, &conns);

		if (status)
			return weirctl_fail(status, "%s", q.reason);
		if (sessions == said[0] && conns == said[1])
			;
		else if (o->json && node < 0)
			printf("{\"programs\": %u, \"connections\": %u}\n", sessions, conns);
		else if (o->json)
			printf("{\"connections\": %u}\n", conns);
		else if (node < 0)
			printf("%u program%s, %u end%s of connections left\n", sessions,
			       sessions == 1 ? "" : "s", conns, conns == 1 ? "" : "s");
		else
			printf("%u connection%s left\n", conns, conns == 1 ? "" : "s");
		fflush(stdout);
		said[0] = sessions;
		said[1] = conns;
		if (!sessions && !conns)
			return WEIRCTL_OK;
		if (o->timed && weirctl_now() >= end)
			return weirctl_fail(WEIRCTL_TIMEOUT,
					    "not drained after %g s; evict what is left, or wait",
					    o->timeout);
		if (poll(&p, 1, LOOK_MS) > 0)
			return weirctl_fail(WEIRCTL_FAILED,
					    "it goes on draining; 'drain %s off' undoes that",
					    name);
	}
}

int
drain(const struct weirctl_options *o, int argc, char **argv)
{
	const char *name = argv[0] + (strncmp(argv[0], "node:", 5) ? 0 : 5);
	bool self = !strcmp(argv[0], "self"), off = argc == 2;
	uint32_t id = 0, count;
	sigset_t before;
	char key[32];
	int signals, status;

	if (off && strcmp(argv[1], "off"))
		return weirctl_fail(WEIRCTL_USAGE,
				    "invalid word '%s' after the node (expected off, or nothing)",
				    argv[1]);
	if (!self && (!parse_id(name, &id) || id >= UINT16_MAX))
		return weirctl_fail(WEIRCTL_USAGE,
				    "cannot drain '%s'; give a node's id (see show nodes) or self",
				    argv[0]);
	snprintf(key, sizeof(key), self ? "drain.self" : "drain.%u", id);
	status = change(o->instance, key, off ? "off" : "on", &count);
	if (!status && off && o->json)
		printf("{\"changed\": %u}\n", count);
	if (status || off)
		return status;
	signals = signals_open(&before);
	status = watch(o, self ? -1 : (long)id, argv[0], signals);
	signals_close(signals, &before);
	return status;
}
