/* SPDX-License-Identifier: BSD-3-Clause */
/* Two samples of a data plane's counters as rates. */
#include "weirctl.h"

#include <stdio.h>
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

// Of a counter of ours that may have begun anew: then its whole value is new.
static double
rate(uint64_t before, uint64_t now, double seconds)
{
	return seconds > 0 ? (double)(now >= before ? now - before : now) / seconds : 0;
}

static void
put(json_t *o, const char *key, double value)
{
	json_object_set_new(o, key, json_integer((json_int_t)(value + 0.5)));
}

// ---- engines ----

static json_t *
engine_rates(const struct weir_row_engine *b, const struct weir_row_engine *n, double s)
{
	double busy = rate(b->busy_cycles, n->busy_cycles, 1);
	double all = busy + rate(b->idle_cycles, n->idle_cycles, 1);
	json_t *o =
	    json_pack("{s:i, s:i, s:i, s:f}", "engine", (int)n->engine, "lcore", (int)n->lcore,
		      "cpu", (int)n->cpu, "busy_percent", all > 0 ? 100 * busy / all : 0.0);

#define PUT(field) put(o, #field "_per_s", rate(b->field, n->field, s))
	PUT(tx_messages);
	PUT(rx_messages);
	PUT(tx_bytes);
	PUT(rx_bytes);
	PUT(sleeps);
#undef PUT
	return o;
}

static bool
engines(const struct sample *before, const struct sample *now, json_t *array)
{
	for (uint32_t i = 0; i < now->engines.count && i < before->engines.count; i++)
		if (json_array_append_new(array, engine_rates(rows_at(&before->engines, i),
							      rows_at(&now->engines, i),
							      now->at - before->at)))
			return false;
	return true;
}

// ---- connections ----

struct busy {
	const struct weir_row_connection *row;
	double messages, bytes;
};

static uint64_t
messages(const struct weir_row_connection *c)
{
	return c->by_ring + c->by_send + c->by_read + c->by_write + c->by_local;
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

static struct busy
conn_rate(const struct sample *before, const struct sample *now,
	  const struct weir_row_connection *c)
{
	static const struct weir_row_connection none;
	const struct weir_row_connection *b = NULL;
	double s = before->conns_at > 0 ? now->conns_at - before->conns_at : 0;

	if (before->conns.count)
		b = bsearch(c, before->conns.records, before->conns.count, before->conns.bytes,
			    by_vqpn);
	if (!b)
		b = &none;
	return (struct busy){c, rate(messages(b), messages(c), s),
			     rate(b->returned + b->outstanding, c->returned + c->outstanding, s)};
}

static int
busiest(const void *a, const void *b)
{
	const struct busy *x = a, *y = b;

	if (x->messages != y->messages)
		return x->messages > y->messages ? -1 : 1;
	return by_vqpn(x->row, y->row);
}

static json_t *
conn_json(const struct busy *c, const struct rows *sessions)
{
	const struct weir_row_session *s = session_of(sessions, c->row->session);
	json_t *o = json_object();
	char peer[16];

	snprintf(peer, sizeof(peer), "node:%u", c->row->peer_node);
	json_object_set_new(o, "vqpn", json_integer(c->row->vqpn));
	json_object_set_new(o, "peer", json_string(c->row->local ? "local" : peer));
	json_object_set_new(o, "transport",
			    json_string(c->row->local	   ? "local"
					: c->row->datagram ? "ud"
							   : "rc"));
	json_object_set_new(o, "session", json_integer(c->row->session));
	json_object_set_new(o, "name", rows_text(s ? s->name : ""));
	put(o, "messages_per_s", c->messages);
	put(o, "sent_bytes_per_s", c->bytes);
	put(o, "outstanding", (double)c->row->outstanding);
	return o;
}

static bool
conns(const struct busy *busy, const struct sample *now, json_t *array)
{
	for (uint32_t i = 0; i < now->conns.count && (busy[i].messages > 0 || busy[i].bytes > 0);
	     i++)
		if (json_array_append_new(array, conn_json(&busy[i], &now->sessions)))
			return false;
	return true;
}

// ---- programs ----

static json_t *
program_json(const struct weir_row_session *b, const struct weir_row_session *n, double messages,
	     double s)
{
	json_t *o = json_object();

	json_object_set_new(o, "session", json_integer(n->session));
	json_object_set_new(o, "name", rows_text(n->name));
	json_object_set_new(o, "pid", json_integer(n->pid));
	json_object_set_new(o, "connections", json_integer(n->connections));
	put(o, "messages_per_s", messages);
	put(o, "tx_messages_per_s", rate(b->tx_messages, n->tx_messages, s));
	put(o, "tx_bytes_per_s", rate(b->tx_bytes, n->tx_bytes, s));
	put(o, "limited_per_s", rate(b->limited, n->limited, s));
	return o;
}

struct program {
	const struct weir_row_session *row;
	double messages;
};

static int
busiest_program(const void *a, const void *b)
{
	const struct program *x = a, *y = b;

	if (x->messages != y->messages)
		return x->messages > y->messages ? -1 : 1;
	return x->row->session < y->row->session ? -1 : 1;
}

static bool
programs(const struct sample *before, const struct sample *now, const struct busy *busy,
	 json_t *array)
{
	static const struct weir_row_session none;
	uint32_t count = now->sessions.count;
	struct program *p = calloc(count + 1, sizeof(*p));
	bool ok = p != NULL;

	for (uint32_t i = 0; ok && i < count; i++) {
		p[i].row = rows_at(&now->sessions, i);
		for (uint32_t k = 0; k < now->conns.count; k++)
			if (busy[k].row->session == p[i].row->session)
				p[i].messages += busy[k].messages;
	}
	if (ok)
		qsort(p, count, sizeof(*p), busiest_program);
	for (uint32_t i = 0; ok && i < count; i++) {
		const struct weir_row_session *b = session_of(&before->sessions, p[i].row->session);

		ok = !json_array_append_new(
		    array, program_json(b && b->pid == p[i].row->pid ? b : &none, p[i].row,
					p[i].messages, now->at - before->at));
	}
	free(p);
	return ok;
}

bool
rates_make(const struct sample *before, const struct sample *now, struct rates *r)
{
	struct busy *busy = calloc(now->conns.count + 1, sizeof(*busy));
	bool ok;

	*r = (struct rates){json_array(), json_array(), json_array()};
	for (uint32_t i = 0; busy && i < now->conns.count; i++)
		busy[i] = conn_rate(before, now, rows_at(&now->conns, i));
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
