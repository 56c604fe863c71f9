/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of the data plane as JSON objects: the one list of fields, for programs and for tables.
 */
#include "weirctl.h"

#include <arpa/inet.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const kind_name[] = {
    [WEIR_ROWS_NODES] = "nodes",       [WEIR_ROWS_ENGINES] = "engines",
    [WEIR_ROWS_SESSIONS] = "sessions", [WEIR_ROWS_CONNECTIONS] = "connections",
    [WEIR_ROWS_QPS] = "qps",	       [WEIR_ROWS_PORTS] = "ports",
    [WEIR_ROWS_COUNTERS] = "counters", [WEIR_ROWS_SETTINGS] = "settings",
    [WEIR_ROWS_SERVICES] = "services",
};

uint32_t
rows_kind(const char *name)
{
	for (uint32_t i = WEIR_ROWS_NODES; i <= WEIR_ROWS_LAST; i++)
		if (!strcmp(kind_name[i], name))
			return i;
	return 0;
}

const char *
rows_name(uint32_t kind)
{
	return kind_name[kind];
}

static void
put(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

// Names come from programs: what isn't UTF-8 loses the bytes that aren't ASCII.
json_t *
rows_text(const char *text)
{
	json_t *value = json_string(text);
	char ascii[128];
	size_t n = 0;

	if (!value) {
		for (; text[n] && n < sizeof(ascii) - 1; n++)
			ascii[n] = text[n] & 0x80 ? '?' : text[n];
		ascii[n] = 0;
		value = json_string(ascii);
	}
	return value;
}

static void
put_text(json_t *o, const char *key, const char *text)
{
	json_object_set_new(o, key, rows_text(text));
}

#define PUT(field) put(o, #field, r->field)

static void
address_text(const uint8_t ip[16], char *text, size_t size)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	if (!memcmp(ip, mapped, sizeof(mapped)))
		inet_ntop(AF_INET, ip + 12, text, size);
	else
		inet_ntop(AF_INET6, ip, text, size);
}

static void
node_json(json_t *o, const struct weir_ctl_node *r)
{
	char text[2 * WEIR_CTL_ADDRESSES * (INET6_ADDRSTRLEN + 1)] = "";
	size_t n = 0;

	for (uint32_t i = 0; i < r->address_count; i++) {
		if (i)
			text[n++] = ',';
		address_text(r->address[i], text + n, sizeof(text) - n);
		n += strlen(text + n);
	}
	for (uint32_t i = 0; i < WEIR_CTL_ADDRESSES && r->lid[i]; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%slid:%u", n ? "," : "",
				      r->lid[i]);
	PUT(id);
	put_text(o, "state", weir_node_state_name(r->state));
	PUT(incarnation);
	put_text(o, "address", text);
	json_object_set_new(o, "self", json_boolean(r->self));
	PUT(engines);
	put_text(o, "control", r->control);
}

static void
engine_json(json_t *o, const struct weir_row_engine *r)
{
	double cycles = (double)r->busy_cycles + (double)r->idle_cycles;

	PUT(engine);
	PUT(lcore);
	PUT(cpu);
	PUT(sessions);
	PUT(busy_cycles);
	PUT(idle_cycles);
	json_object_set_new(o, "busy_percent",
			    json_real(cycles > 0 ? 100.0 * r->busy_cycles / cycles : 0));
	PUT(tsc_hz);
	PUT(turns);
	PUT(sleeps);
	PUT(yields);
	PUT(tx_messages);
	PUT(rx_messages);
	PUT(tx_bytes);
	PUT(rx_bytes);
	PUT(tx_messages_per_s);
	PUT(rx_messages_per_s);
}

/* As this host calls it, else its number. */
static const char *
user_name(uint32_t uid, char number[16])
{
	const struct passwd *p = getpwuid(uid);

	snprintf(number, 16, "%u", uid);
	return p ? p->pw_name : number;
}

static void
session_json(json_t *o, const struct weir_row_session *r)
{
	char number[16];

	PUT(session);
	put_text(o, "name", r->name);
	PUT(pid);
	PUT(uid);
	put_text(o, "user", user_name(r->uid, number));
	PUT(channels);
	PUT(connections);
	PUT(listeners);
	PUT(handling_ms);
	PUT(arena_bytes);
	PUT(weight);
	PUT(rate);
	PUT(burst);
	PUT(tx_messages);
	PUT(tx_bytes);
	PUT(limited);
}

static void
connection_json(json_t *o, const struct weir_row_connection *r)
{
	json_t *ways = json_object();
	char peer[16];

	snprintf(peer, sizeof(peer), "node:%u", r->peer_node);
	PUT(vqpn);
	put_text(o, "peer", r->local ? "local" : peer);
	PUT(peer_vqpn);
	put_text(o, "state", r->state_name);
	put_text(o, "transport", r->local ? "local" : r->datagram ? "ud" : "rc");
	PUT(session);
	PUT(engine);
	PUT(window);
	PUT(outstanding);
	PUT(returned);
	PUT(dropped);
	put(ways, "ring", r->by_ring);
	put(ways, "send", r->by_send);
	put(ways, "read", r->by_read);
	put(ways, "write", r->by_write);
	put(ways, "local", r->by_local);
	json_object_set_new(o, "by_primitive", ways);
}

static void
qp_json(json_t *o, const struct weir_row_qp *r)
{
	PUT(qpn);
	PUT(peer_qpn);
	PUT(peer_node);
	PUT(engine);
	PUT(peer_engine);
	put_text(o, "purpose", r->purpose);
	put_text(o, "state", r->state);
	PUT(frames_sent);
	PUT(frames_received);
	PUT(ring_used);
	PUT(ring_lines);
}

static void
port_json(json_t *o, const struct weir_row_port *r)
{
	json_t *drops = json_object();

	put_text(o, "name", r->name);
	put_text(o, "driver", r->driver);
	put_text(o, "address", r->address);
	PUT(engine);
	put_text(o, "link", r->link_up ? "up" : "down");
	PUT(link_changes);
	PUT(mtu);
	PUT(rx_frames);
	PUT(tx_frames);
	PUT(rx_bytes);
	PUT(tx_bytes);
	for (uint32_t i = 0; i < r->drop_count; i++)
		put(drops, r->drops[i].name, r->drops[i].count);
	json_object_set_new(o, "drops", drops);
}

static void
counter_json(json_t *o, const struct weir_row_counter *r)
{
	put_text(o, "name", r->name);
	PUT(value);
	put_text(o, "help", r->help);
}

const char *
rows_key(const struct weir_row_setting *r, char text[ROWS_KEY])
{
	unsigned uid;
	char number[16];
	int at = 0;

	if (sscanf(r->key, "user.%u%n", &uid, &at) != 1 || r->key[at] != '.')
		return r->key;
	snprintf(text, ROWS_KEY, "user.%s%s", user_name(uid, number), r->key + at);
	return text;
}

static void
setting_json(json_t *o, const struct weir_row_setting *r)
{
	char text[ROWS_KEY];

	put_text(o, "key", rows_key(r, text));
	put_text(o, "value", r->value);
	put_text(o, "help", r->help);
}

// The data plane knows how long ago, we know what time it is.
static void
put_time(json_t *o, const char *key, uint64_t age_ms)
{
	time_t then = time(NULL) - (time_t)(age_ms / 1000);
	char text[32] = "";
	struct tm tm;

	if (gmtime_r(&then, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	put_text(o, key, text);
}

static void
service_json(json_t *o, const struct weir_row_service *r)
{
	put_text(o, "name", r->name);
	json_object_set_new(o, "node", r->node == UINT32_MAX ? json_null() : json_integer(r->node));
	put_text(o, "port", r->port);
	json_object_set_new(o, "self", json_boolean(r->self));
	put_text(o, "program", r->program);
	json_object_set_new(o, "session", r->self ? json_integer(r->session) : json_null());
	put_time(o, "since", r->age_ms);
}

json_t *
rows_json(const struct rows *rows)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < rows->count; i++) {
		const void *record = rows_at(rows, i);
		json_t *o = json_object();

		if (rows->kind == WEIR_ROWS_NODES)
			node_json(o, record);
		else if (rows->kind == WEIR_ROWS_ENGINES)
			engine_json(o, record);
		else if (rows->kind == WEIR_ROWS_SESSIONS)
			session_json(o, record);
		else if (rows->kind == WEIR_ROWS_CONNECTIONS)
			connection_json(o, record);
		else if (rows->kind == WEIR_ROWS_QPS)
			qp_json(o, record);
		else if (rows->kind == WEIR_ROWS_PORTS)
			port_json(o, record);
		else if (rows->kind == WEIR_ROWS_SETTINGS)
			setting_json(o, record);
		else if (rows->kind == WEIR_ROWS_SERVICES)
			service_json(o, record);
		else
			counter_json(o, record);
		if (json_array_append_new(array, o)) {
			json_decref(array);
			array = NULL;
		}
	}
	return array;
}
