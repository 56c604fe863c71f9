/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of fields, in the order of weirctl's columns. */
#include "fields.h"
#include "invariant.h"
#include "remote.h"

#include <arpa/inet.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A member of the row. */
#define AT(field) .offset = offsetof(ROW, field), .size = sizeof(((ROW *)0)->field)
#define NUMBER(field, ...)                                                                         \
	{                                                                                          \
		.name = #field, AT(field), __VA_ARGS__                                             \
	}
#define TEXT(field, ...)                                                                           \
	{                                                                                          \
		.name = #field, AT(field), .text = true, __VA_ARGS__                               \
	}
/* Computed from the row, for people: telemetry has the members. */
#define COMPUTED(as, function, ...)                                                                \
	{                                                                                          \
		.name = as, .make = function, .hidden = HIDE_TELEMETRY, __VA_ARGS__                \
	}
#define METRIC(as, about) .metric = as, .help = about
#define METRIC_ONLY(as, function, about, ...)                                                      \
	{                                                                                          \
		.name = as, .make = function, .hidden = HIDE_JSON | HIDE_TELEMETRY,                \
		METRIC(as, about), __VA_ARGS__                                                     \
	}
#define KIND(rows, as, prefix, row, table)                                                         \
	[rows] = {as, prefix, sizeof(row), table, sizeof(table) / sizeof((table)[0])}

static void
put_text(struct weir_value *v, const char *text)
{
	v->type = VALUE_TEXT;
	snprintf(v->text, sizeof(v->text), "%s", text);
}

static void
put_real(struct weir_value *v, double real)
{
	v->type = VALUE_REAL;
	v->real = real;
}

/* A number, or no value. */
static void
put_number(struct weir_value *v, uint64_t number, bool has_value)
{
	v->type = has_value ? VALUE_NUMBER : VALUE_NONE;
	v->number = number;
}

/* ---- nodes ---- */

static void
node_state(const void *row, struct weir_value *v)
{
	const struct weir_ctl_node *r = row;

	put_text(v, weir_node_state_name(r->state));
}

static bool
node_in_state(const void *row, uint32_t i, const char **name, uint64_t *value)
{
	const struct weir_ctl_node *r = row;
	uint32_t state = WEIR_NODE_JOINING + i;

	*name = weir_node_state_name(state);
	*value = r->state == state;
	return state <= WEIR_NODE_DOWN;
}

static void
node_address(const void *row, struct weir_value *v)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const struct weir_ctl_node *r = row;
	size_t n = 0;

	static_assert(sizeof(v->text) > (size_t)WEIR_CTL_ADDRESSES * (INET6_ADDRSTRLEN + 11),
		      "room for all addresses and LIDs");
	put_text(v, "");
	for (uint32_t i = 0; i < r->address_count; i++) {
		const uint8_t *ip = r->address[i];
		bool v4 = !memcmp(ip, mapped, sizeof(mapped));

		if (i)
			v->text[n++] = ',';
		inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + sizeof(mapped) : ip, v->text + n,
			  (socklen_t)(sizeof(v->text) - n));
		n += strlen(v->text + n);
	}
	for (uint32_t i = 0; i < WEIR_CTL_ADDRESSES && r->lid[i]; i++)
		n += (size_t)snprintf(v->text + n, sizeof(v->text) - n, "%slid:%u", n ? "," : "",
				      r->lid[i]);
}

/* The members of control's report begin the row. */
#define ROW struct weir_ctl_node
#define LINK_TEXT(as, member, ...)                                                                 \
	{                                                                                          \
		.name = as, .offset = offsetof(struct weir_row_node, member),                      \
		.size = sizeof(((struct weir_row_node *)0)->member), .text = true, __VA_ARGS__     \
	}
static const struct weir_field node_fields[] = {
    NUMBER(id, .title = "NODE", .label = "node"),
    NUMBER(self, .boolean = true, .hidden = HIDE_TELEMETRY, .title = "SELF"),
    COMPUTED("state", node_state, AT(state), .title = "STATE"),
    METRIC_ONLY("state", NULL, "1: the node is in this state", .part = node_in_state,
		.part_label = "state"),
    LINK_TEXT("link", link, .title = "LINK"),
    LINK_TEXT("link_address", link_address, .title = "BY"),
    COMPUTED("address", node_address, AT(address), .title = "ADDRESS"),
    NUMBER(engines, .title = "ENGINES"),
    TEXT(control, .title = "CONTROL"),
    NUMBER(incarnation, .title = "INCARNATION"),
    LINK_TEXT("link_reason", link_reason, .title = "WHY NOT"),
};
#undef LINK_TEXT
#undef ROW

/* ---- engines ---- */

static void
busy_percent(const void *row, struct weir_value *v)
{
	const struct weir_row_engine *r = row;
	double cycles = (double)r->busy_cycles_per_s + (double)r->idle_cycles_per_s;

	/* of the last second: what it has done since its start says little of now */
	put_real(v, cycles > 0 ? 100.0 * (double)r->busy_cycles_per_s / cycles : 0);
}

static void
busy_seconds(const void *row, struct weir_value *v)
{
	const struct weir_row_engine *r = row;

	put_real(v, r->tsc_hz ? (double)r->busy_cycles / (double)r->tsc_hz : 0);
}

static void
idle_seconds(const void *row, struct weir_value *v)
{
	const struct weir_row_engine *r = row;

	put_real(v, r->tsc_hz ? (double)r->idle_cycles / (double)r->tsc_hz : 0);
}

#define ROW struct weir_row_engine
static const struct weir_field engine_fields[] = {
    NUMBER(engine, .title = "ENGINE", .label = "engine"),
    NUMBER(lcore, .title = "LCORE"),
    NUMBER(cpu, .title = "CPU"),
    COMPUTED("busy_percent", busy_percent, .title = "BUSY", .unit = UNIT_PERCENT),
    NUMBER(busy_cycles),
    NUMBER(idle_cycles),
    NUMBER(busy_cycles_per_s),
    NUMBER(idle_cycles_per_s),
    METRIC_ONLY("busy_seconds_total", busy_seconds, "Time with work"),
    METRIC_ONLY("idle_seconds_total", idle_seconds, "Time without work, sleep included"),
    NUMBER(tsc_hz),
    NUMBER(sessions, .title = "SESSIONS"),
    NUMBER(tx_messages_per_s, .title = "TX msg/s", .unit = UNIT_COUNT),
    NUMBER(rx_messages_per_s, .title = "RX msg/s", .unit = UNIT_COUNT),
    NUMBER(tx_messages, .title = "TX msgs", .unit = UNIT_COUNT,
	   METRIC("tx_messages_total", "Messages taken from programs for peers")),
    NUMBER(rx_messages, .title = "RX msgs", .unit = UNIT_COUNT,
	   METRIC("rx_messages_total", "Messages delivered to programs")),
    NUMBER(tx_bytes, .title = "TX", .unit = UNIT_BYTES,
	   METRIC("tx_bytes_total", "Payload bytes of messages taken from programs")),
    NUMBER(rx_bytes, .title = "RX", .unit = UNIT_BYTES,
	   METRIC("rx_bytes_total", "Payload bytes of messages delivered to programs")),
    NUMBER(turns, .title = "TURNS", .unit = UNIT_COUNT, METRIC("turns_total", "Turns of the loop")),
    NUMBER(yields, .title = "YIELDS", .unit = UNIT_COUNT,
	   METRIC("yields_total", "Times that the CPU was offered to others")),
    NUMBER(sleeps, .title = "SLEEPS", .unit = UNIT_COUNT, METRIC("sleeps_total", "Sleeps")),
    NUMBER(lock_holders, METRIC("lock_holders", "Locks of exports held, but those that programs "
						"hold by words")),
    NUMBER(lock_waiters, METRIC("lock_waiters", "Requests for locks of exports that wait")),
};
#undef ROW

/* ---- sessions ---- */

/* The name that this host has for a uid, else the number. */
static void
user_name(uint32_t uid, char *text, size_t size)
{
	const struct passwd *p = getpwuid(uid);

	if (p)
		snprintf(text, size, "%s", p->pw_name);
	else
		snprintf(text, size, "%u", uid);
}

static void
session_user(const void *row, struct weir_value *v)
{
	const struct weir_row_session *r = row;

	v->type = VALUE_TEXT;
	user_name(r->uid, v->text, sizeof(v->text));
}

#define ROW struct weir_row_session
static const struct weir_field session_fields[] = {
    NUMBER(session, .title = "SESSION", .label = "session"),
    TEXT(name, .title = "NAME", .label = "name"),
    NUMBER(pid, .title = "PID"),
    NUMBER(uid),
    COMPUTED("user", session_user, .title = "USER"),
    NUMBER(channels, .title = "CHANNELS"),
    NUMBER(connections, .title = "CONNECTIONS",
	   METRIC("connections", "Ends of connections that it has")),
    NUMBER(listeners, .title = "LISTENERS"),
    NUMBER(exports, .title = "EXPORTS", METRIC("exports", "Exports of memory that it has")),
    NUMBER(reserved, .hidden = HIDE_JSON | HIDE_TELEMETRY),
    NUMBER(handling_ms, .title = "IN HANDLER ms",
	   METRIC("handling_milliseconds",
		  "How long a message handler of it has been at work, from a second on")),
    TEXT(function, .title = "FUNCTION"),
    NUMBER(arena_bytes, .title = "ARENA", .unit = UNIT_BYTES,
	   METRIC("arena_bytes", "Shared memory")),
    NUMBER(weight, .title = "WEIGHT", METRIC("weight", "Its part of links that others use too")),
    NUMBER(rate, .title = "RATE B/s", .unit = UNIT_RATE,
	   METRIC("rate_bytes_per_second", "What it may send to peers, 0: no limit")),
    NUMBER(burst),
    NUMBER(tx_messages, .title = "TX msgs", .unit = UNIT_COUNT,
	   METRIC("tx_messages_total", "Messages taken from it for peers")),
    NUMBER(tx_bytes, .title = "TX", .unit = UNIT_BYTES,
	   METRIC("tx_bytes_total", "Payload bytes of messages taken from it for peers")),
    NUMBER(limited, .title = "LIMITED", .unit = UNIT_COUNT,
	   METRIC("limited_total", "Times that it waited for its rate")),
};
#undef ROW

/* ---- connections ---- */

static void
conn_peer(const void *row, struct weir_value *v)
{
	const struct weir_row_connection *r = row;

	put_text(v, "local");
	if (!r->local)
		snprintf(v->text, sizeof(v->text), "node:%u", r->peer_node);
}

static void
conn_transport(const void *row, struct weir_value *v)
{
	const struct weir_row_connection *r = row;

	put_text(v, r->local ? "local" : r->datagram ? "ud" : "rc");
}

static void
conn_priority(const void *row, struct weir_value *v)
{
	const struct weir_row_connection *r = row;

	put_text(v, weir_class_name(r->class));
}

static void
conn_kind(const void *row, struct weir_value *v)
{
	static const char *const name[] = {"stream", "datagram", "memory"};
	const struct weir_row_connection *r = row;

	put_text(v, r->kind < sizeof(name) / sizeof(name[0]) ? name[r->kind] : "unknown");
}

static void
conn_export(const void *row, struct weir_value *v)
{
	const struct weir_row_connection *r = row;

	put_number(v, r->export, r->export != UINT32_MAX);
}

static bool
conn_primitive(const void *row, uint32_t i, const char **name, uint64_t *value)
{
	const struct weir_row_connection *r = row;
	const struct {
		const char *name;
		uint64_t value;
	} by[] = {{"ring", r->by_ring},
		  {"send", r->by_send},
		  {"read", r->by_read},
		  {"write", r->by_write},
		  {"local", r->by_local}};

	if (i >= sizeof(by) / sizeof(by[0]))
		return false;
	*name = by[i].name;
	*value = by[i].value;
	return true;
}

#define ROW struct weir_row_connection
static const struct weir_field conn_fields[] = {
    NUMBER(vqpn, .title = "VQPN", .unit = UNIT_HEX),
    COMPUTED("peer", conn_peer, .title = "PEER"),
    NUMBER(peer_vqpn, .title = "PEER VQPN", .unit = UNIT_HEX),
    {.name = "state", AT(state_name), .text = true, .title = "STATE"},
    COMPUTED("transport", conn_transport, .title = "BY"),
    NUMBER(peer_node, .hidden = HIDE_JSON),
    NUMBER(local, .hidden = HIDE_JSON),
    NUMBER(datagram, .hidden = HIDE_JSON),
    COMPUTED("kind", conn_kind, .title = "KIND"),
    NUMBER(kind, .hidden = HIDE_JSON),
    COMPUTED("export", conn_export, .title = "EXPORT"),
    NUMBER(export, .hidden = HIDE_JSON),
    COMPUTED("priority", conn_priority, .title = "PRIORITY"),
    NUMBER(class, .hidden = HIDE_JSON),
    NUMBER(session, .title = "SESSION"),
    NUMBER(engine, .title = "ENGINE"),
    NUMBER(window, .title = "WINDOW", .unit = UNIT_BYTES),
    NUMBER(outstanding, .title = "OUTSTANDING", .unit = UNIT_BYTES),
    NUMBER(returned, .title = "RETURNED", .unit = UNIT_BYTES),
    NUMBER(dropped, .title = "DROPPED", .unit = UNIT_COUNT),
    NUMBER(bytes, .title = "PAYLOAD", .unit = UNIT_BYTES),
    {.name = "by_primitive",
     .title = "MESSAGES",
     .part = conn_primitive,
     .part_prefix = "by_",
     .offset = offsetof(ROW, by_ring),
     .size = sizeof(ROW) - offsetof(ROW, by_ring)},
};
#undef ROW

/* ---- QPs, ports ---- */

#define ROW struct weir_row_qp
static const struct weir_field qp_fields[] = {
    NUMBER(qpn, .title = "QPN", .unit = UNIT_HEX),
    NUMBER(peer_qpn, .title = "PEER QPN", .unit = UNIT_HEX),
    NUMBER(peer_node, .title = "PEER NODE"),
    NUMBER(engine, .title = "ENGINE"),
    NUMBER(peer_engine, .title = "PEER ENGINE"),
    TEXT(purpose, .title = "PURPOSE"),
    TEXT(state, .title = "STATE"),
    NUMBER(frames_sent, .title = "SENT frames", .unit = UNIT_COUNT),
    NUMBER(frames_received, .title = "RECEIVED frames", .unit = UNIT_COUNT),
    NUMBER(ring_used, .title = "RING used"),
    NUMBER(ring_lines, .title = "RING lines"),
};
#undef ROW

static void
port_link(const void *row, struct weir_value *v)
{
	const struct weir_row_port *r = row;

	put_text(v, r->link_up ? "up" : "down");
}

static bool
port_drop(const void *row, uint32_t i, const char **name, uint64_t *value)
{
	const struct weir_row_port *r = row;

	if (i >= r->drop_count || i >= WEIR_ROW_DROPS)
		return false;
	*name = r->drops[i].name;
	*value = r->drops[i].count;
	return true;
}

static bool
port_impairment(const void *row, uint32_t i, const char **name, uint64_t *value)
{
	static const char *const names[] = {"dup", "reorder", "corrupt", "delay", "jitter", "rate"};
	const struct weir_row_port *r = row;
	const uint64_t all[] = {r->impaired_dup,   r->impaired_reorder, r->impaired_corrupt,
				r->impaired_delay, r->impaired_jitter,	r->impaired_rate};

	if (i >= sizeof(all) / sizeof(all[0]))
		return false;
	*name = names[i];
	*value = all[i];
	return true;
}

#define ROW struct weir_row_port
static const struct weir_field port_fields[] = {
    TEXT(name, .title = "PORT", .label = "port"),
    TEXT(driver, .title = "DRIVER"),
    TEXT(address, .title = "ADDRESS"),
    TEXT(mac, .title = "MAC"),
    COMPUTED("link", port_link, .title = "LINK"),
    NUMBER(speed, .title = "Mbit/s", .unit = UNIT_KNOWN,
	   METRIC("speed_mbits", "Speed of its link in Mbit/s, 0: not known")),
    NUMBER(link_up, .hidden = HIDE_JSON, METRIC("up", "1: its link is up")),
    NUMBER(link_changes, METRIC("link_changes_total", "Times that its link went up or down")),
    NUMBER(mtu, .title = "MTU", METRIC("mtu_bytes", "Path MTU")),
    NUMBER(engine, .title = "ENGINE", .label = "engine"),
    NUMBER(rx_queues, .title = "RXQ"),
    NUMBER(rx_depth, .title = "DEPTH"),
    NUMBER(tx_queues, .title = "TXQ"),
    NUMBER(tx_depth, .title = "DEPTH"),
    NUMBER(frames, .title = "POOL", METRIC("pool_frames", "Frames of its pools")),
    NUMBER(frames_free, .title = "FREE", METRIC("pool_free_frames", "Of those, not in use")),
    NUMBER(rx_frames, .title = "RX frames", .unit = UNIT_COUNT,
	   METRIC("rx_frames_total", "Frames received")),
    NUMBER(tx_frames, .title = "TX frames", .unit = UNIT_COUNT,
	   METRIC("tx_frames_total", "Frames sent")),
    NUMBER(rx_bytes, .title = "RX", .unit = UNIT_BYTES,
	   METRIC("rx_bytes_total", "Bytes of frames received")),
    NUMBER(tx_bytes, .title = "TX", .unit = UNIT_BYTES,
	   METRIC("tx_bytes_total", "Bytes of frames sent")),
    {.name = "drops",
     .title = "DROPS",
     AT(drops),
     .part = port_drop,
     .part_prefix = "drop_",
     .part_label = "reason",
     METRIC("dropped_frames_total", "Frames dropped, by reason")},
    TEXT(impaired, .title = "IMPAIRED"),
    NUMBER(reserved, .hidden = HIDE_JSON | HIDE_TELEMETRY),
    {.name = "impairments",
     .title = "IMPAIRED frames",
     .offset = offsetof(ROW, impaired_dup),
     .size = sizeof(ROW) - offsetof(ROW, impaired_dup),
     .part = port_impairment,
     .part_prefix = "impaired_",
     .part_label = "by",
     METRIC("impaired_frames_total", "Frames impaired on purpose, by kind")},
};
#undef ROW

#define ROW struct weir_row_xstat
static const struct weir_field xstat_fields[] = {
    TEXT(port, .title = "PORT"),
    TEXT(name, .title = "STATISTIC"),
    NUMBER(value, .title = "VALUE"),
};
#undef ROW

/* ---- counters, settings, services ---- */

#define ROW struct weir_row_counter
static const struct weir_field counter_fields[] = {
    TEXT(name, .title = "COUNTER"),
    NUMBER(value, .title = "VALUE"),
    TEXT(help, .title = "MEANING"),
};
#undef ROW

/* A setting's key, with a user's name in the place of the number: weirctl set takes both. */
static void
setting_key(const void *row, struct weir_value *v)
{
	const struct weir_row_setting *r = row;
	unsigned uid;
	char name[256];
	int at = 0;

	put_text(v, r->key);
	if (sscanf(r->key, "user.%u%n", &uid, &at) != 1 || r->key[at] != '.')
		return;
	user_name(uid, name, sizeof(name));
	snprintf(v->text, sizeof(v->text), "user.%s%s", name, r->key + at);
}

#define ROW struct weir_row_setting
static const struct weir_field setting_fields[] = {
    {.name = "key", AT(key), .text = true, .make = setting_key, .title = "KEY"},
    TEXT(value, .title = "VALUE"),
    TEXT(help, .title = "MEANING"),
};
#undef ROW

static void
service_node(const void *row, struct weir_value *v)
{
	const struct weir_row_service *r = row;

	put_number(v, r->node, r->node != UINT32_MAX);
}

static void
service_session(const void *row, struct weir_value *v)
{
	const struct weir_row_service *r = row;

	put_number(v, r->session, r->self);
}

/* The data plane knows the age, the reader the time of day. */
static void
service_since(const void *row, struct weir_value *v)
{
	const struct weir_row_service *r = row;
	time_t then = time(NULL) - (time_t)(r->age_ms / 1000);
	struct tm tm;

	put_text(v, "");
	if (gmtime_r(&then, &tm))
		strftime(v->text, sizeof(v->text), "%Y-%m-%dT%H:%M:%SZ", &tm);
}

#define ROW struct weir_row_service
static const struct weir_field service_fields[] = {
    TEXT(name, .title = "SERVICE"),
    COMPUTED("node", service_node, AT(node), .title = "NODE"),
    TEXT(port, .title = "PORT"),
    NUMBER(self, .boolean = true, .hidden = HIDE_TELEMETRY),
    TEXT(program, .title = "PROGRAM"),
    COMPUTED("session", service_session, AT(session), .title = "SESSION"),
    COMPUTED("since", service_since, AT(age_ms), .title = "SINCE"),
};
#undef ROW

/* ---- status, versions, configuration, memory, links, users ---- */

#define ROW struct weir_row_fact
static const struct weir_field fact_fields[] = {
    TEXT(name, .title = "NAME"),
    TEXT(value, .title = "VALUE"),
    TEXT(from, .title = "FROM"),
};
#undef ROW

static void
memory_used(const void *row, struct weir_value *v)
{
	const struct weir_row_memory *r = row;

	put_number(v, r->used, r->used != UINT64_MAX);
}

static void
memory_when(const void *row, struct weir_value *v)
{
	const struct weir_row_memory *r = row;

	put_text(v, r->now ? "now" : "at most");
}

#define ROW struct weir_row_memory
static const struct weir_field memory_fields[] = {
    TEXT(pool, .title = "POOL"),
    NUMBER(count, .title = "COUNT"),
    NUMBER(each, .title = "EACH", .unit = UNIT_BYTES),
    NUMBER(bytes, .title = "BYTES", .unit = UNIT_BYTES),
    COMPUTED("used", memory_used, AT(used), .title = "USED", .unit = UNIT_BYTES),
    COMPUTED("when", memory_when, AT(now), .title = "WHEN"),
    NUMBER(reserved, .hidden = HIDE_JSON),
};
#undef ROW

#define ROW struct weir_row_link
static const struct weir_field link_fields[] = {
    NUMBER(node, .title = "NODE"),
    NUMBER(engine, .title = "ENGINE"),
    NUMBER(peer_engine, .title = "PEER ENGINE"),
    TEXT(state, .title = "STATE"),
    TEXT(address, .title = "FROM"),
    TEXT(peer_address, .title = "TO"),
    NUMBER(open, .boolean = true, .title = "OPEN"),
    NUMBER(attempt, .title = "ATTEMPT"),
    NUMBER(ring_lines, .title = "RING lines"),
    NUMBER(memory, .title = "MEMORY", .unit = UNIT_BYTES),
};
#undef ROW

static void
user_text(const void *row, struct weir_value *v)
{
	const struct weir_row_user *r = row;

	v->type = VALUE_TEXT;
	user_name(r->uid, v->text, sizeof(v->text));
}

/* A limit; 0 is none. */
#define LIMIT(member)                                                                              \
	static void user_##member(const void *row, struct weir_value *v)                           \
	{                                                                                          \
		v->number = ((const struct weir_row_user *)row)->member;                           \
		v->type = v->number ? VALUE_NUMBER : VALUE_NONE;                                   \
	}
LIMIT(sessions_max)
LIMIT(connections_max)
LIMIT(services_max)
LIMIT(memory_max)
LIMIT(regions_max)
LIMIT(exports_max)
LIMIT(segments_max)
#undef LIMIT

#define ROW struct weir_row_user
#define USED(member, of, ...)                                                                      \
	NUMBER(member, .title = of, __VA_ARGS__),                                                  \
	    COMPUTED(#member "_max", user_##member##_max, AT(member##_max), .title = "MAX",        \
		     __VA_ARGS__)
static const struct weir_field user_fields[] = {
    NUMBER(uid, .title = "UID"),
    COMPUTED("user", user_text, .title = "USER"),
    NUMBER(named, .boolean = true, .title = "NAMED"),
    USED(sessions, "SESSIONS", .unit = UNIT_PLAIN),
    USED(connections, "CONNECTIONS", .unit = UNIT_PLAIN),
    USED(services, "SERVICES", .unit = UNIT_PLAIN),
    USED(memory, "MEMORY", .unit = UNIT_BYTES),
    USED(regions, "REGIONS", .unit = UNIT_PLAIN),
    USED(exports, "EXPORTS", .unit = UNIT_PLAIN),
    USED(segments, "SEGMENTS", .unit = UNIT_PLAIN),
    NUMBER(rate, .title = "RATE B/s", .unit = UNIT_RATE),
};
#undef USED
#undef ROW

/* ---- exports ---- */

static void
export_rights(const void *row, struct weir_value *v)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} all[] = {{WEIR_RIGHT_READ, "read"},	  {WEIR_RIGHT_WRITE, "write"},
		   {WEIR_RIGHT_UPDATE, "update"}, {WEIR_RIGHT_NOTIFY, "notify"},
		   {WEIR_RIGHT_LOCK, "lock"},	  {WEIR_RIGHT_MAP, "map"},
		   {WEIR_RIGHT_ALONE, "alone"}};
	const struct weir_row_export *r = row;
	size_t n = 0;

	put_text(v, "");
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (r->rights & all[i].bit)
			n += (size_t)snprintf(v->text + n, sizeof(v->text) - n, "%s%s",
					      n ? "," : "", all[i].name);
}

static void
export_held(const void *row, struct weir_value *v)
{
	const struct weir_row_export *r = row;

	put_number(v, r->held_ms, r->held_ms != UINT64_MAX);
}

#define ROW struct weir_row_export
#define COUNTER(as, column, of_unit)                                                               \
	{.name = #as, AT(counters.as), .title = column, .unit = of_unit},
static const struct weir_field export_fields[] = {
    NUMBER(export, .title = "EXPORT"),
    NUMBER(session, .title = "SESSION"),
    TEXT(program, .title = "PROGRAM"),
    NUMBER(pid, .title = "PID"),
    TEXT(state, .title = "STATE"),
    TEXT(name, .title = "NAME"),
    NUMBER(region, .title = "REGION"),
    NUMBER(offset, .title = "OFFSET", .unit = UNIT_BYTES),
    NUMBER(bytes, .title = "BYTES", .unit = UNIT_BYTES),
    COMPUTED("rights", export_rights, .title = "RIGHTS"),
    NUMBER(rights, .hidden = HIDE_JSON),
    NUMBER(openers, .title = "OPENERS"),
    WEIR_EXPORT_COUNTERS(COUNTER) TEXT(lock, .title = "LOCK"),
    TEXT(holder, .title = "HOLDER"),
    NUMBER(holders, .title = "HOLDERS"),
    COMPUTED("held_ms", export_held, .title = "HELD ms"),
    NUMBER(held_ms, .hidden = HIDE_JSON),
    NUMBER(waiters, .title = "WAITERS"),
    NUMBER(waits_ms, .title = "WAITS ms"),
};
#undef COUNTER
#undef ROW

/* ---- all of them ---- */

static const struct weir_kind kinds[] = {
    KIND(WEIR_ROWS_NODES, "nodes", "weir_node_", struct weir_row_node, node_fields),
    KIND(WEIR_ROWS_ENGINES, "engines", "weir_engine_", struct weir_row_engine, engine_fields),
    KIND(WEIR_ROWS_SESSIONS, "sessions", "weir_session_", struct weir_row_session, session_fields),
    KIND(WEIR_ROWS_CONNECTIONS, "connections", NULL, struct weir_row_connection, conn_fields),
    KIND(WEIR_ROWS_QPS, "qps", NULL, struct weir_row_qp, qp_fields),
    KIND(WEIR_ROWS_PORTS, "ports", "weir_port_", struct weir_row_port, port_fields),
    KIND(WEIR_ROWS_COUNTERS, "counters", NULL, struct weir_row_counter, counter_fields),
    KIND(WEIR_ROWS_SETTINGS, "settings", NULL, struct weir_row_setting, setting_fields),
    KIND(WEIR_ROWS_SERVICES, "services", NULL, struct weir_row_service, service_fields),
    KIND(WEIR_ROWS_XSTATS, "xstats", NULL, struct weir_row_xstat, xstat_fields),
    KIND(WEIR_ROWS_STATUS, "status", NULL, struct weir_row_fact, fact_fields),
    KIND(WEIR_ROWS_VERSION, "version", NULL, struct weir_row_fact, fact_fields),
    KIND(WEIR_ROWS_CONFIG, "config", NULL, struct weir_row_fact, fact_fields),
    KIND(WEIR_ROWS_MEMORY, "memory", NULL, struct weir_row_memory, memory_fields),
    KIND(WEIR_ROWS_LINKS, "links", NULL, struct weir_row_link, link_fields),
    KIND(WEIR_ROWS_USERS, "users", NULL, struct weir_row_user, user_fields),
    KIND(WEIR_ROWS_EXPORTS, "exports", NULL, struct weir_row_export, export_fields),
};

const struct weir_kind *
weir_kind(uint32_t rows)
{
	return rows >= WEIR_ROWS_NODES && rows <= WEIR_ROWS_LAST ? &kinds[rows] : NULL;
}

uint32_t
weir_kind_named(const char *name)
{
	for (uint32_t i = WEIR_ROWS_NODES; i <= WEIR_ROWS_LAST; i++)
		if (!strcmp(kinds[i].name, name))
			return i;
	return 0;
}

const struct weir_field *
weir_field_named(const struct weir_kind *k, const char *name, size_t length)
{
	for (uint32_t i = 0; i < k->count; i++)
		if (!strncmp(k->fields[i].name, name, length) && !k->fields[i].name[length])
			return &k->fields[i];
	return NULL;
}

uint64_t
weir_field_number(const struct weir_field *f, const void *row)
{
	const uint8_t *at = (const uint8_t *)row + f->offset;
	uint64_t wide;
	uint32_t narrow;

	weir_assert(f->size == sizeof(wide) || f->size == sizeof(narrow));
	if (f->size == sizeof(wide)) {
		memcpy(&wide, at, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, at, sizeof(narrow));
	return narrow;
}

void
weir_field_value(const struct weir_field *f, const void *row, struct weir_value *v)
{
	weir_assert(!f->part);
	if (f->make) {
		f->make(row, v);
	} else if (f->text) {
		put_text(v, (const char *)row + f->offset);
	} else {
		v->type = f->boolean ? VALUE_BOOL : VALUE_NUMBER;
		v->number = weir_field_number(f, row);
	}
}
