/* SPDX-License-Identifier: BSD-3-Clause */
/* Two samples of a data plane's counters as rates. */
#include "weirctl.h"

#include <stdlib.h>
#include <string.h>

static int
by_vqpn(const void *a, const void *b)
{
	uint32_t x = ((const struct weir_row_connection *)a)->vqpn;
	uint32_t y = ((const struct weir_row_connection *)b)->vqpn;

	return x < y ? -1 : x > y;
}

void
rates_sort(struct rows *conns)
{
	if (conns->count)
		qsort(conns->records, conns->count, conns->bytes, by_vqpn);
}

#define FIELD(as, column, ...)                                                                     \
	{                                                                                          \
		.name = as, .title = column, __VA_ARGS__                                           \
	}
#define TABLE(fields)                                                                              \
	{                                                                                          \
		fields, sizeof(fields) / sizeof((fields)[0])                                       \
	}

static const struct weir_field engine_fields[] = {
    FIELD("engine", "ENGINE"),
    FIELD("lcore", "LCORE"),
    FIELD("cpu", "CPU"),
    FIELD("busy_percent", "BUSY", .unit = UNIT_PERCENT),
    FIELD("tx_messages_per_s", "TX msg/s", .unit = UNIT_COUNT),
    FIELD("rx_messages_per_s", "RX msg/s", .unit = UNIT_COUNT),
    FIELD("tx_bytes_per_s", "TX B/s", .unit = UNIT_COUNT),
    FIELD("rx_bytes_per_s", "RX B/s", .unit = UNIT_COUNT),
    FIELD("sleeps_per_s", "SLEEPS/s", .unit = UNIT_COUNT),
};
static const struct weir_field program_fields[] = {
    FIELD("session", "SESSION"),
    FIELD("name", "PROGRAM"),
    FIELD("pid", "PID"),
    FIELD("connections", "CONNECTIONS"),
    FIELD("messages_per_s", "msg/s", .unit = UNIT_COUNT),
    FIELD("bytes_per_s", "B/s", .unit = UNIT_COUNT),
    FIELD("tx_messages_per_s", "TO PEERS msg/s", .unit = UNIT_COUNT),
    FIELD("tx_bytes_per_s", "TO PEERS B/s", .unit = UNIT_COUNT),
    FIELD("limited_per_s", "LIMITED/s", .unit = UNIT_COUNT),
};
static const struct weir_field conn_fields[] = {
    FIELD("vqpn", "VQPN", .unit = UNIT_HEX),
    FIELD("peer", "PEER"),
    FIELD("transport", "BY"),
    FIELD("session", "SESSION"),
    FIELD("name", "PROGRAM"),
    FIELD("messages_per_s", "msg/s", .unit = UNIT_COUNT),
    FIELD("bytes_per_s", "B/s", .unit = UNIT_COUNT),
    FIELD("outstanding", "OUTSTANDING", .unit = UNIT_BYTES),
};
const struct table top_engines = TABLE(engine_fields), top_programs = TABLE(program_fields),
		   top_connections = TABLE(conn_fields);

static void
put(json_t *o, const char *key, double value)
{
	json_object_set_new(o, key, json_integer((json_int_t)(value + 0.5)));
}

// Of a counter of ours that may have begun anew: then its whole value is new.
static double
rate(uint64_t before, uint64_t now, double seconds)
{
	return seconds > 0 ? (double)(now >= before ? now - before : now) / seconds : 0;
}

// A row now and before as the columns of a table: NAME_per_s is the rate of the field NAME, another
// name a field as it is now.
static json_t *
row_rates(const struct table *table, uint32_t kind, const void *before, const void *now,
	  double seconds)
{
	const struct weir_kind *k = weir_kind(kind);
	json_t *o = json_object();

	for (uint32_t i = 0; i < table->count; i++) {
		const char *name = table->fields[i].name;
		size_t n = strlen(name);
		bool per_s = n > 6 && !strcmp(name + n - 6, "_per_s");
		const struct weir_field *f = weir_field_named(k, name, per_s ? n - 6 : n);

		if (f && per_s)
			put(o, name,
			    rate(weir_field_number(f, before), weir_field_number(f, now), seconds));
		else if (f)
			json_object_set_new(o, name, rows_value(f, now));
		else
			put(o, name, 0); // by the caller
	}
	return o;
}

// ---- engines ----

static bool
engines(const struct sample *before, const struct sample *now, json_t *array)
{
	for (uint32_t i = 0; i < now->engines.count && i < before->engines.count; i++) {
		const struct weir_row_engine *b = rows_at(&before->engines, i);
		const struct weir_row_engine *n = rows_at(&now->engines, i);
		double busy = rate(b->busy_cycles, n->busy_cycles, 1);
		double all = busy + rate(b->idle_cycles, n->idle_cycles, 1);
		json_t *o = row_rates(&top_engines, WEIR_ROWS_ENGINES, b, n, now->at - before->at);

		json_object_set_new(o, "busy_percent", json_real(all > 0 ? 100 * busy / all : 0));
		if (json_array_append_new(array, o))
			return false;
	}
	return true;
}

// ---- connections ----

/* A connection or program, to be ranked. */
struct busy {
	const void *row;
	uint32_t id;
	double messages, bytes;
};

// All messages sent, by whichever primitive.
static uint64_t
messages(const struct weir_row_connection *c)
{
	const struct weir_kind *k = weir_kind(WEIR_ROWS_CONNECTIONS);
	const struct weir_field *f = weir_field_named(k, "by_primitive", strlen("by_primitive"));
	uint64_t n, sum = 0;
	const char *name;

	for (uint32_t i = 0; f->part(c, i, &name, &n); i++)
		sum += n;
	return sum;
}

static const struct weir_row_session *
session_of(const struct rows *sessions, uint32_t id)
{
	for (uint32_t i = 0; i < sessions->count; i++) {
		const struct weir_row_session *s = rows_at(sessions, i);

		if (s->session == id)
			return s;
	}
	return NULL;
}

static int
busiest(const void *a, const void *b)
{
	const struct busy *x = a, *y = b;

	if (x->messages != y->messages)
		return x->messages > y->messages ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static bool
conns(const struct busy *busy, const struct sample *now, json_t *array)
{
	for (uint32_t i = 0; i < now->conns.count && (busy[i].messages > 0 || busy[i].bytes > 0);
	     i++) {
		const struct weir_row_connection *c = busy[i].row;
		const struct weir_row_session *s = session_of(&now->sessions, c->session);
		json_t *o = row_rates(&top_connections, WEIR_ROWS_CONNECTIONS, c, c, 1);

		json_object_set_new(o, "name", rows_text(s ? s->name : ""));
		put(o, "messages_per_s", busy[i].messages);
		put(o, "bytes_per_s", busy[i].bytes);
		if (json_array_append_new(array, o))
			return false;
	}
	return true;
}

// ---- programs ----

static bool
programs(const struct sample *before, const struct sample *now, const struct busy *busy,
	 json_t *array)
{
	static const struct weir_row_session none;
	uint32_t count = now->sessions.count;
	struct busy *p = calloc(count + 1, sizeof(*p));
	bool ok = p != NULL;

	for (uint32_t i = 0; ok && i < count; i++) {
		const struct weir_row_session *s = rows_at(&now->sessions, i);

		p[i].row = s;
		p[i].id = s->session;
		for (uint32_t k = 0; k < now->conns.count; k++) {
			const struct weir_row_connection *c = busy[k].row;

			if (c->session != s->session)
				continue;
			p[i].messages += busy[k].messages;
			p[i].bytes += busy[k].bytes;
		}
	}
	if (ok)
		qsort(p, count, sizeof(*p), busiest);
	for (uint32_t i = 0; ok && i < count; i++) {
		const struct weir_row_session *s = p[i].row;
		const struct weir_row_session *b = session_of(&before->sessions, s->session);
		json_t *o = row_rates(&top_programs, WEIR_ROWS_SESSIONS,
				      b && b->pid == s->pid ? b : &none, s, now->at - before->at);

		put(o, "messages_per_s", p[i].messages);
		put(o, "bytes_per_s", p[i].bytes);
		ok = !json_array_append_new(array, o);
	}
	free(p);
	return ok;
}

bool
rates_make(const struct sample *before, const struct sample *now, struct rates *r)
{
	static const struct weir_row_connection none;
	struct busy *busy = calloc(now->conns.count + 1, sizeof(*busy));
	double s = before->conns_at > 0 ? now->conns_at - before->conns_at : 0;
	bool ok;

	*r = (struct rates){json_array(), json_array(), json_array()};
	for (uint32_t i = 0; busy && i < now->conns.count; i++) {
		const struct weir_row_connection *c = rows_at(&now->conns, i), *b = NULL;

		if (before->conns.count)
			b = bsearch(c, before->conns.records, before->conns.count,
				    before->conns.bytes, by_vqpn);
		b = b ? b : &none;
		busy[i] = (struct busy){c, c->vqpn, rate(messages(b), messages(c), s),
					rate(b->bytes, c->bytes, s)};
	}
	if (busy)
		qsort(busy, now->conns.count, sizeof(*busy), busiest);
	ok = busy && engines(before, now, r->engines) && programs(before, now, busy, r->programs) &&
	     conns(busy, now, r->conns);
	free(busy);
	if (!ok)
		rates_free(r);
	return ok;
}

void
rates_free(struct rates *r)
{
	json_decref(r->engines);
	json_decref(r->programs);
	json_decref(r->conns);
	*r = (struct rates){0};
}
