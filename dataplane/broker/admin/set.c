/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changes by operators through weirctl: settings, draining, evictions. They are main's and last
 * until the data plane stops; weir-control has no part in them.
 */
#include "command.h"
#include "conn.h"
#include "connect.h"
#include "control_socket.h"
#include "export.h"
#include "local.h"
#include "node.h"
#include "public_services.h"
#include "quota.h"
#include "session.h"
#include "set.h"
#include "state.h"
#include "user.h"

#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "ipc/remote.h"

#include <errno.h>
#include <stdio.h>

/* ---- settings of the data plane ---- */

enum setting_kind {
	SETTING_DRAIN, /* bool: on or off */
	SETTING_COUNT, /* uint32_t: 1 to the value of an option */
	SETTING_MOST,  /* uint64_t: limit `user` of all users together, 0 is none */
	SETTING_BYTES, /* uint32_t: a power of two from WEIR_ANSWERS_LEAST to the option's value */
	SETTING_LEVEL, /* of the log */
};

static const struct setting {
	const char *key, *help;
	enum setting_kind kind;
	size_t at, most; /* offsets in struct broker: of the value and of its upper bound */
	const char *option;
	enum user_limit user;
} settings[] = {
    {"drain.self", "on: neither new programs nor new connections are taken (weirctl drain self)",
     SETTING_DRAIN, offsetof(struct broker, draining)},
    {"limit.answers", "bytes per link for answers, of links from now on, at most --answers",
     SETTING_BYTES, offsetof(struct broker, answers), offsetof(struct broker, config.answers),
     "--answers"},
    {"limit.connections", "connections of all programs, at most --max-connections", SETTING_COUNT,
     offsetof(struct broker, conn_limit), offsetof(struct broker, config.connections),
     "--max-connections"},
    {"limit.exports", "ranges that all programs export", SETTING_MOST,
     offsetof(struct broker, most[USER_EXPORTS]), .user = USER_EXPORTS},
    {"limit.memory", "bytes of arenas, regions and segments of all programs", SETTING_MOST,
     offsetof(struct broker, most[USER_MEMORY]), .user = USER_MEMORY},
    {"limit.regions", "regions of all programs", SETTING_MOST,
     offsetof(struct broker, most[USER_REGIONS]), .user = USER_REGIONS},
    {"limit.segments", "memory between threads of local programs, of all programs", SETTING_MOST,
     offsetof(struct broker, most[USER_SEGMENTS]), .user = USER_SEGMENTS},
    {"limit.sessions", "attached programs, at most --max-sessions", SETTING_COUNT,
     offsetof(struct broker, session_limit), offsetof(struct broker, config.sessions),
     "--max-sessions"},
    {"log.level", "what data plane and control log: error, warning, info or debug", SETTING_LEVEL},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

void
setting_tell_control(struct broker *b)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SET, .length = weir_ctl_length(WEIR_CTL_SET)};

	if (!b->level_set)
		return;
	snprintf(m.set.key, sizeof(m.set.key), "log.level");
	snprintf(m.set.value, sizeof(m.set.value), "%s", log_level_name(log_level()));
	broker_control_send(b, &m);
}

static int
set_switch(bool *is, const char *key, const char *value, char *reason, size_t size)
{
	if (strcmp(value, "on") && strcmp(value, "off"))
		return option_invalid(key, value, "on or off", reason, size);
	*is = !strcmp(value, "on");
	return 1;
}

static int
drain_node(struct broker *b, const char *key, const char *value, char *reason, size_t size)
{
	const char *id = key + strlen("drain.");
	struct broker_node *n;
	uint64_t number;

	if (option_number(id, false, 0, UINT16_MAX - 1, &number))
		return option_invalid("a node to drain", id, "drain.ID or drain.self", reason,
				      size);
	n = node_find(b, (uint32_t)number);
	if (!n || n->is.self)
		return fail(reason, size, -ESRCH, "%s; see weirctl show nodes",
			    n ? "that is this node: drain.self" : "there is no such node");
	return set_switch(&n->draining, key, value, reason, size);
}

/* port.NAME.KEY: names of PCI devices have dots in them. */
static int
set_port(struct broker *b, const char *key, const char *value, char *reason, size_t size)
{
	const char *name = key + strlen("port."), *what = strrchr(name, '.');
	char port[sizeof(((struct weir_row_port *)NULL)->name)];

	if (!what || what == name || (size_t)(what - name) >= sizeof(port) || !b->config.port_set)
		return fail(reason, size, -EINVAL,
			    "no setting is called '%s'; give port.NAME.KEY, see show ports", key);
	snprintf(port, sizeof(port), "%.*s", (int)(what - name), name);
	return b->config.port_set(b->config.user, port, what + 1, value, reason, size);
}

int
setting_set(struct broker *b, const char *key, const char *value, char *reason, size_t size)
{
	const struct setting *s = settings;
	enum log_level level;
	uint32_t most;
	uint64_t n;
	int rc = 1;

	while (s < settings + SETTINGS && strcmp(s->key, key))
		s++;
	if (s == settings + SETTINGS && !strncmp(key, "port.", 5))
		return set_port(b, key, value, reason, size);
	if (s == settings + SETTINGS)
		return strncmp(key, "drain.", 6) ? quota_set(b, key, value, reason, size)
						 : drain_node(b, key, value, reason, size);
	switch (s->kind) {
	case SETTING_DRAIN:
		rc = set_switch(&b->draining, key, value, reason, size);
		services_changed(b);
		break;
	case SETTING_COUNT:
		most = *(const uint32_t *)((const char *)b + s->most);
		if (option_number(value, false, 1, most, &n))
			return fail(reason, size, -EINVAL,
				    "invalid value '%s' for %s (expected 1 to %u: %s)", value, key,
				    most, s->option);
		*(uint32_t *)((char *)b + s->at) = (uint32_t)n;
		break;
	case SETTING_BYTES:
		most = *(const uint32_t *)((const char *)b + s->most);
		if (option_number(value, true, WEIR_ANSWERS_LEAST, most, &n) || n & (n - 1))
			return fail(reason, size, -EINVAL,
				    "invalid value '%s' for %s (expected a power of two, %u to "
				    "%u: %s)",
				    value, key, WEIR_ANSWERS_LEAST, most, s->option);
		*(uint32_t *)((char *)b + s->at) = (uint32_t)n;
		break;
	case SETTING_MOST:
		if (user_parse_limit(value, s->user, &n))
			return option_invalid(key, value,
					      s->user == USER_MEMORY
						  ? "bytes, K, M or G may follow, or none"
						  : "1 or more, or none",
					      reason, size);
		*(uint64_t *)((char *)b + s->at) = n;
		break;
	case SETTING_LEVEL:
		if (!log_level_parse(value, &level))
			return option_invalid(key, value, "error, warning, info or debug", reason,
					      size);
		log_set_level(level);
		b->level_set = true;
		setting_tell_control(b);
		break;
	}
	return rc;
}

bool
draining(struct broker *b, const struct broker_node *n)
{
	return b->draining || (n && n->draining);
}

/* ---- rows ---- */

#define QUOTAS 4u
/* Setting `what`, below QUOTAS, of a session or of programs by name. */
static void
quota_setting_row(struct weir_row_setting *r, const char *prefix, uint32_t what,
		  const struct quota *q)
{
	static const char *const name[QUOTAS] = {"connections", "priority", "rate", "weight"};
	static const char *const help[QUOTAS] = {
	    "that it may have at a time", "of connections that ask for none: low, normal or high",
	    "payload bytes/s to peers, and burst in bytes",
	    "its part of links that others use too, 1 to 100"};

	snprintf(r->key, sizeof(r->key), "%s.%s", prefix, name[what]);
	snprintf(r->help, sizeof(r->help), "%s", help[what]);
	if (what == 1)
		snprintf(r->value, sizeof(r->value), "%s", weir_class_name(q->class));
	else if (what == 2)
		rate_text(&q->rate, r->value, sizeof(r->value));
	else
		snprintf(r->value, sizeof(r->value), "%u", what ? q->weight : q->conn_limit);
}

bool
setting_row(const struct broker *b, uint32_t index, struct weir_row_setting *r)
{
	char prefix[WEIR_NAME_MAX + 16];

	if (index < SETTINGS) {
		const struct setting *s = &settings[index];
		const void *at = (const char *)b + s->at;

		snprintf(r->key, sizeof(r->key), "%s", s->key);
		snprintf(r->help, sizeof(r->help), "%s", s->help);
		if (s->kind == SETTING_COUNT || s->kind == SETTING_BYTES)
			snprintf(r->value, sizeof(r->value), "%u", *(const uint32_t *)at);
		else if (s->kind == SETTING_MOST)
			user_limit_text(*(const uint64_t *)at, r->value, sizeof(r->value));
		else
			snprintf(r->value, sizeof(r->value), "%s",
				 s->kind == SETTING_LEVEL ? log_level_name(log_level())
				 : b->draining		  ? "on"
							  : "off");
		return true;
	}
	index -= SETTINGS;
	for (uint32_t i = 0; i < b->node_count; i++) {
		const struct broker_node *n = b->node_list[i];

		if (!n->draining || index-- != 0)
			continue;
		snprintf(r->key, sizeof(r->key), "drain.%u", n->is.id);
		snprintf(r->value, sizeof(r->value), "on");
		snprintf(r->help, sizeof(r->help), "no new connections to or from that node");
		return true;
	}
	if (index < QUOTAS * b->session_count) {
		uint32_t skip = index / QUOTAS, i = 0;

		while (i < b->config.sessions && (!b->session[i] || skip-- != 0))
			i++;
		snprintf(prefix, sizeof(prefix), "session.%u", i);
		quota_setting_row(r, prefix, index % QUOTAS, &b->session[i]->quota);
		return true;
	}
	index -= QUOTAS * b->session_count;
	if (b->config.port_setting) {
		uint32_t ports = 0;

		while (ports <= index && b->config.port_setting(b->config.user, ports, r))
			ports++;
		if (ports > index)
			return true;
		memset(r, 0, sizeof(*r));
		index -= ports;
	}
	for (const struct quota_setting *s = b->quota_settings; s; s = s->next) {
		bool has[QUOTAS] = {s->quota.conn_limit != 0, s->quota.classed, s->quota.rated,
				    s->quota.weight != 0};

		for (uint32_t what = 0; what < QUOTAS; what++) {
			if (!has[what] || index-- != 0)
				continue;
			snprintf(prefix, sizeof(prefix), "program.%s", s->name);
			quota_setting_row(r, prefix, what, &s->quota);
			return true;
		}
	}
	return user_setting_row(b, index, r);
}

/* ---- evict ---- */

static void
evicted(struct broker *b, struct broker_command *k)
{
	conn_command_done(b, k->context); /* -ENOENT: the connection had ended */
}

int
evict(struct broker *b, uint32_t what, uint32_t id, const char *why, char *reason, size_t size)
{
	struct broker_command *k;
	struct broker_session *s;
	struct broker_conn *c;

	if (what == WEIR_EVICT_EXPORT)
		return export_evict(b, id, why, reason, size);
	if (what == WEIR_EVICT_CONNECTION) {
		c = conn_find(b, id);
		if (!c || !id)
			return fail(reason, size, -ESRCH,
				    "there is no connection 0x%x; see weirctl show connections",
				    id);
		if (c->segment && (!c->opened || (c->peer && !c->peer->opened)))
			return fail(reason, size, -EBUSY, "it is being set up; try again");
		if (c->segment) {
			conn_tell_peer(b, c, ECONNABORTED);
			local_peer_ended(b, c, true, ECONNABORTED);
		} else if (c->waiting_for) {
			connect_give_up(b, c, ECONNABORTED);
		} else {
			k = conn_command(b, c, ENGINE_CONN_EVICT, evicted);
			if (!k)
				return fail(reason, size, -ENOMEM, SESSION_NO_MEMORY);
			k->cmd.conn.status = ECONNABORTED;
			command_submit(b, k);
		}
		b->counters.evicted++;
		log_info("connection 0x%x evicted%s%s", id, *why ? ": " : "", why);
		return 1;
	}
	s = id < b->config.sessions ? b->session[id] : NULL;
	if (!s || session_ends(s))
		return fail(reason, size, -ESRCH,
			    "there is no session %u; see weirctl show sessions", id);
	log_event(LOG_LEVEL_INFO, SESSION_FIELDS(s), "session %u (pid %d, %s) evicted%s%s", s->id,
		  (int)s->pid, s->name, *why ? ": " : "", why);
	session_evict(s, why);
	return 1;
}
