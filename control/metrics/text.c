/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of the data plane in the text format of Prometheus, 0.0.4: family by family. */
#include "metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENGINES, PORTS, SESSIONS, NODES, COUNTERS };
const uint32_t metrics_kind[METRICS_KINDS] = {
    [ENGINES] = WEIR_ROWS_ENGINES, [PORTS] = WEIR_ROWS_PORTS,	    [SESSIONS] = WEIR_ROWS_SESSIONS,
    [NODES] = WEIR_ROWS_NODES,	   [COUNTERS] = WEIR_ROWS_COUNTERS,
};

struct text {
	char *at;
	size_t length, room;
	bool failed; /* out of memory */
};

static void __attribute__((format(printf, 2, 3))) put(struct text *t, const char *format, ...)
{
	va_list args;
	char *more;
	int n;

	for (;;) {
		va_start(args, format);
		n = vsnprintf(t->at + t->length, t->room - t->length, format, args);
		va_end(args);
		if (t->failed || n < 0 || (size_t)n < t->room - t->length)
			break;
		more = realloc(t->at, 2 * t->room + (size_t)n);
		t->failed = !more;
		if (!more)
			return;
		t->at = more;
		t->room = 2 * t->room + (size_t)n;
	}
	t->length += t->failed || n < 0 ? 0 : (size_t)n;
}

static void
family(struct text *t, const char *name, const char *type, const char *help)
{
	put(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value: names come from programs. */
static const char *
label(const char *from, char *to, size_t size)
{
	size_t n = 0;

	for (; *from && n + 2 < size; from++) {
		if (*from == '"' || *from == '\\')
			to[n++] = '\\';
		to[n++] = *from >= ' ' && *from <= '~' ? *from : '?';
	}
	to[n] = 0;
	return to;
}

/* A column of a kind of record that is a family. */
struct column {
	const char *name, *type, *help;
	size_t offset;
	bool wide; /* 64 bits, else 32 */
};
#define WIDE(row, field, name, type, help)                                                         \
	{                                                                                          \
		name, type, help, offsetof(struct row, field), true                                \
	}
#define NARROW(row, field, name, type, help)                                                       \
	{                                                                                          \
		name, type, help, offsetof(struct row, field), false                               \
	}

static uint64_t
value(const struct column *c, const void *record)
{
	uint64_t wide = 0;
	uint32_t narrow = 0;

	if (c->wide)
		memcpy(&wide, (const uint8_t *)record + c->offset, sizeof(wide));
	else
		memcpy(&narrow, (const uint8_t *)record + c->offset, sizeof(narrow));
	return c->wide ? wide : narrow;
}

static void
columns(struct text *t, const struct metrics_rows *rows, size_t bytes, const struct column *c,
	size_t count, void (*labels)(const void *record, char *text, size_t size))
{
	char text[256];

	for (size_t k = 0; k < count; k++) {
		family(t, c[k].name, c[k].type, c[k].help);
		for (uint32_t i = 0; i < rows->count; i++) {
			labels(rows->records + i * bytes, text, sizeof(text));
			put(t, "%s{%s} %" PRIu64 "\n", c[k].name, text,
			    value(&c[k], rows->records + i * bytes));
		}
	}
}
#define COLUMNS(t, rows, row, c, labels)                                                           \
	columns(t, rows, sizeof(struct row), c, sizeof(c) / sizeof((c)[0]), labels)

/* ---- engines ---- */

static void
engine_labels(const void *record, char *text, size_t size)
{
	snprintf(text, size, "engine=\"%u\"", ((const struct weir_row_engine *)record)->engine);
}

static void
seconds(struct text *t, const struct metrics_rows *rows, const char *name, const char *help,
	bool busy)
{
	family(t, name, "counter", help);
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct weir_row_engine *e = (const void *)rows->records;
		double cycles = (double)(busy ? e[i].busy_cycles : e[i].idle_cycles);

		put(t, "%s{engine=\"%u\"} %.6f\n", name, e[i].engine,
		    e[i].tsc_hz ? cycles / (double)e[i].tsc_hz : 0.0);
	}
}

static void
engines(struct text *t, const struct metrics_rows *rows)
{
#define C(field, help) WIDE(weir_row_engine, field, "weir_engine_" #field "_total", "counter", help)
	static const struct column c[] = {
	    C(turns, "Turns of the loop"),
	    C(sleeps, "Sleeps"),
	    C(yields, "Times that the CPU was offered to others"),
	    C(tx_messages, "Messages taken from programs for peers"),
	    C(tx_bytes, "Payload bytes of those"),
	    C(rx_messages, "Messages delivered to programs"),
	    C(rx_bytes, "Payload bytes of those"),
	};
#undef C

	seconds(t, rows, "weir_engine_busy_seconds_total", "Time with work", true);
	seconds(t, rows, "weir_engine_idle_seconds_total", "Time without work, sleep included",
		false);
	COLUMNS(t, rows, weir_row_engine, c, engine_labels);
}

/* ---- ports ---- */

static void
port_labels(const void *record, char *text, size_t size)
{
	const struct weir_row_port *p = record;
	char name[130];

	snprintf(text, size, "port=\"%s\",engine=\"%u\"", label(p->name, name, sizeof(name)),
		 p->engine);
}

static void
ports(struct text *t, const struct metrics_rows *rows)
{
	static const struct column c[] = {
	    NARROW(weir_row_port, link_up, "weir_port_up", "gauge", "1: its link is up"),
	    WIDE(weir_row_port, link_changes, "weir_port_link_changes_total", "counter",
		 "Times that its link went up or down"),
	    NARROW(weir_row_port, mtu, "weir_port_mtu_bytes", "gauge", "Path MTU"),
	    WIDE(weir_row_port, rx_frames, "weir_port_rx_frames_total", "counter",
		 "Frames received"),
	    WIDE(weir_row_port, tx_frames, "weir_port_tx_frames_total", "counter", "Frames sent"),
	    WIDE(weir_row_port, rx_bytes, "weir_port_rx_bytes_total", "counter",
		 "Bytes of frames received"),
	    WIDE(weir_row_port, tx_bytes, "weir_port_tx_bytes_total", "counter",
		 "Bytes of frames sent"),
	};
	const struct weir_row_port *p = (const void *)rows->records;
	char text[256], reason[48];

	COLUMNS(t, rows, weir_row_port, c, port_labels);
	family(t, "weir_port_dropped_frames_total", "counter", "Frames dropped, by reason");
	for (uint32_t i = 0; i < rows->count; i++)
		for (uint32_t k = 0; k < p[i].drop_count; k++) {
			port_labels(&p[i], text, sizeof(text));
			put(t, "weir_port_dropped_frames_total{%s,reason=\"%s\"} %" PRIu64 "\n",
			    text, label(p[i].drops[k].name, reason, sizeof(reason)),
			    p[i].drops[k].count);
		}
}

/* ---- sessions ---- */

static void
session_labels(const void *record, char *text, size_t size)
{
	const struct weir_row_session *s = record;
	char name[66];

	snprintf(text, size, "session=\"%u\",name=\"%s\"", s->session,
		 label(s->name, name, sizeof(name)));
}

static void
sessions(struct text *t, const struct metrics_rows *rows)
{
	static const struct column c[] = {
	    NARROW(weir_row_session, connections, "weir_session_connections", "gauge",
		   "Ends of connections that it has"),
	    NARROW(weir_row_session, handling_ms, "weir_session_handling_milliseconds", "gauge",
		   "How long a message handler of it has been at work, from a second on"),
	    WIDE(weir_row_session, arena_bytes, "weir_session_arena_bytes", "gauge",
		 "Shared memory"),
	    NARROW(weir_row_session, weight, "weir_session_weight", "gauge",
		   "Its part of links that others use too"),
	    WIDE(weir_row_session, rate, "weir_session_rate_bytes_per_second", "gauge",
		 "What it may send to peers, 0: no limit"),
	    WIDE(weir_row_session, tx_messages, "weir_session_tx_messages_total", "counter",
		 "Messages taken from it for peers"),
	    WIDE(weir_row_session, tx_bytes, "weir_session_tx_bytes_total", "counter",
		 "Payload bytes of those"),
	    WIDE(weir_row_session, limited, "weir_session_limited_total", "counter",
		 "Times that it waited for its rate"),
	};

	family(t, "weir_sessions", "gauge", "Attached programs");
	put(t, "weir_sessions %u\n", rows->count);
	COLUMNS(t, rows, weir_row_session, c, session_labels);
}

/* ---- nodes, counters ---- */

static void
nodes(struct text *t, const struct metrics_rows *rows)
{
	const struct weir_ctl_node *n = (const void *)rows->records;

	family(t, "weir_node_state", "gauge", "1: the node is in this state");
	for (uint32_t i = 0; i < rows->count; i++)
		for (uint32_t s = WEIR_NODE_JOINING; s <= WEIR_NODE_DOWN; s++)
			put(t, "weir_node_state{node=\"%u\",state=\"%s\"} %d\n", n[i].id,
			    weir_node_state_name(s), n[i].state == s);
}

/* Counters that are reported per engine, above. */
static bool
told_already(const char *name)
{
	static const char *const told[] = {"engine.turns", "engine.tx_messages", "engine.tx_bytes",
					   "engine.rx_messages", "engine.rx_bytes"};

	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
		if (!strcmp(told[i], name))
			return true;
	return false;
}

static void
counters(struct text *t, const struct metrics_rows *rows)
{
	const struct weir_row_counter *c = (const void *)rows->records;
	char name[80], help[200];

	for (uint32_t i = 0; i < rows->count; i++) {
		if (told_already(c[i].name))
			continue;
		snprintf(name, sizeof(name), "weir_%s_total", c[i].name);
		for (char *at = name; *at; at++)
			if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_", *at))
				*at = '_';
		family(t, name, "counter", label(c[i].help, help, sizeof(help)));
		put(t, "%s %" PRIu64 "\n", name, c[i].value);
	}
}

/* "" while it isn't known. */
static const char *
own_node(const struct metrics_rows *rows, char *text, size_t size)
{
	const struct weir_ctl_node *n = rows ? (const void *)rows[NODES].records : NULL;

	*text = 0;
	for (uint32_t i = 0; n && i < rows[NODES].count; i++)
		if (n[i].self)
			snprintf(text, size, "%u", n[i].id);
	return text;
}

char *
metrics_text(const struct metrics_rows *rows, const char *cluster)
{
	struct text t = {.at = malloc(65536), .room = 65536};
	char number[16];

	if (!t.at)
		return NULL;
	*t.at = 0;
	family(&t, "weir_up", "gauge", "1: the data plane answers");
	put(&t, "weir_up %d\n", rows != NULL);
	family(&t, "weir_info", "gauge", "Which node of which cluster this is");
	put(&t, "weir_info{cluster=\"%s\",node=\"%s\",version=\"" WEIR_VERSION "\"} 1\n", cluster,
	    own_node(rows, number, sizeof(number)));
	if (rows) {
		engines(&t, &rows[ENGINES]);
		ports(&t, &rows[PORTS]);
		sessions(&t, &rows[SESSIONS]);
		nodes(&t, &rows[NODES]);
		counters(&t, &rows[COUNTERS]);
	}
	if (t.failed) {
		free(t.at);
		return NULL;
	}
	return t.at;
}
