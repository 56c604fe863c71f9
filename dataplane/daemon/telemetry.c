/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints /weir/... on DPDK's telemetry socket. They run on threads of DPDK: engines are read by
 * relaxed loads of what they publish; sessions, connections and ports are asked of our own
 * control.sock, as weirctl does, so that main answers between its other work.
 */
#define _GNU_SOURCE
#include "plane.h"

#include "base/log.h"
#include "ipc/ctl_client.h"
#include "ipc/fields.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_telemetry.h>

#define ANSWER_SECONDS 1.0
#define LIST_MAX 500u /* of RTE_TEL_MAX_ARRAY_ENTRIES; the answer stays below 16 KiB */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct plane *plane; /* under lock; NULL: not running */

static uint64_t
get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static bool
parse_id(const char *params, uint32_t *id)
{
	char *end;
	unsigned long n;

	if (!params || *params < '0' || *params > '9')
		return false;
	n = strtoul(params, &end, 0);
	*id = (uint32_t)n;
	return *end == '\0' && n <= UINT32_MAX;
}

/* ---- engines ---- */

static int
engine_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	rte_tel_data_start_array(d, RTE_TEL_U64_VAL);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; plane && i < plane->engines; i++)
		rte_tel_data_add_array_u64(d, i);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int
engine_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct plane_engine *e;
	const struct loop_stats *s;
	const struct engine_counters *c;
	uint32_t id;

	if (!parse_id(params, &id))
		return -EINVAL;
	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&lock);
	if (!plane || id >= plane->engines) {
		pthread_mutex_unlock(&lock);
		return -EINVAL;
	}
	e = &plane->engine[id];
	s = &e->loop->stats;
	c = engine_counters(e->engine);
	rte_tel_data_add_dict_u64(d, "lcore", e->lcore);
	rte_tel_data_add_dict_u64(d, "cpu", e->cpu);
	rte_tel_data_add_dict_u64(d, "cpu_shared",
				  atomic_load_explicit(&s->cpu_shared, memory_order_relaxed));
	rte_tel_data_add_dict_u64(d, "tsc_hz", plane->clock.hz);
#define X(name) rte_tel_data_add_dict_u64(d, #name, get(&s->name));
	LOOP_COUNTERS(X)
#undef X
#define X(name) rte_tel_data_add_dict_u64(d, #name "_per_s", get(&e->rates.name));
	LOOP_COUNTERS(X)
	X(turns)
	ENGINE_TRAFFIC(X)
#undef X
#define X(name, help) rte_tel_data_add_dict_u64(d, #name, get(&c->name));
	ENGINE_COUNTERS(X)
#undef X
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ---- what control.sock knows ---- */

/* One question of telemetry about the rows of a kind. */
struct request {
	struct rte_tel_data *d;
	uint32_t kind;
	uint32_t number; /* list: the first one, or the one that is wanted */
	uint32_t count;	 /* of those listed */
	bool found;
};

/* The first field of a kind is what its rows are listed by. False: no more rows are wanted. */
static bool
list_row(struct request *r, const void *row)
{
	uint32_t number = (uint32_t)weir_field_number(weir_kind(r->kind)->fields, row);

	if (number >= r->number) {
		rte_tel_data_add_array_u64(r->d, number);
		r->count++;
	}
	return r->count < LIST_MAX;
}

static bool
find_row(struct request *r, const void *row)
{
	const struct weir_kind *k = weir_kind(r->kind);
	struct weir_value v;

	/* ports have no number: rows are counted */
	if (r->kind == WEIR_ROWS_PORTS ? r->number--
				       : weir_field_number(k->fields, row) != r->number)
		return true;
	r->found = true;
	for (uint32_t i = 0; i < k->count; i++) {
		const struct weir_field *f = &k->fields[i];
		const char *part;
		char name[64];

		if (f->hidden & HIDE_TELEMETRY)
			continue;
		for (uint32_t p = 0; f->part && f->part(row, p, &part, &v.number); p++) {
			snprintf(name, sizeof(name), "%s%s", f->part_prefix, part);
			rte_tel_data_add_dict_u64(r->d, name, v.number);
		}
		if (f->part)
			continue;
		weir_field_value(f, row, &v);
		if (v.type == VALUE_TEXT)
			rte_tel_data_add_dict_string(r->d, f->name, v.text);
		else
			rte_tel_data_add_dict_u64(r->d, f->name, v.number);
	}
	return false;
}

static bool
counter_row(struct request *r, const void *row)
{
	const struct weir_row_counter *c = row;
	char name[sizeof(c->name)];

	snprintf(name, sizeof(name), "%s", c->name);
	for (char *at = name; (at = strchr(at, '.'));)
		*at = '_'; /* DPDK takes no dot */
	rte_tel_data_add_dict_u64(r->d, name, c->value);
	return true;
}

/* Calls each() with every row of r->kind until it returns false. 0 or -errno. */
static int
for_rows(struct request *r, bool (*each)(struct request *r, const void *row))
{
	struct weir_ctl_client *c = calloc(1, sizeof(*c));
	bool wanted = true;
	char path[128] = "";
	int rc;

	if (!c)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	if (plane)
		snprintf(path, sizeof(path), "%s/control.sock", plane->run_dir);
	pthread_mutex_unlock(&lock);
	rc = weir_ctl_connect(c, path, ANSWER_SECONDS);
	if (!rc)
		rc = weir_ctl_greet(c);
	if (!rc)
		rc = weir_ctl_ask(c, r->kind);
	for (bool more = !rc; more; more = rc > 0 && wanted) {
		rc = weir_ctl_page(c);
		for (uint32_t i = 0; rc >= 0 && wanted && i < c->in.m.rows.count; i++)
			wanted = each(r, weir_ctl_row(c, i));
	}
	weir_ctl_close(c);
	free(c);
	return rc < 0 ? -EIO : 0;
}

/* ,FROM pages: numbers from there on. */
static int
list(uint32_t kind, const char *params, struct rte_tel_data *d)
{
	struct request r = {.d = d, .kind = kind};

	if (params && *params && !parse_id(params, &r.number))
		return -EINVAL;
	rte_tel_data_start_array(d, RTE_TEL_U64_VAL);
	return for_rows(&r, list_row);
}

static int
info(uint32_t kind, const char *params, struct rte_tel_data *d)
{
	struct request r = {.d = d, .kind = kind};
	int rc;

	if (!parse_id(params, &r.number))
		return -EINVAL;
	rte_tel_data_start_dict(d);
	rc = for_rows(&r, find_row);
	return rc ? rc : r.found ? 0 : -ENOENT;
}

static int
session_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return list(WEIR_ROWS_SESSIONS, params, d);
}

static int
session_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return info(WEIR_ROWS_SESSIONS, params, d);
}

static int
conn_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return list(WEIR_ROWS_CONNECTIONS, params, d);
}

static int
conn_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return info(WEIR_ROWS_CONNECTIONS, params, d);
}

static int
export_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return list(WEIR_ROWS_EXPORTS, params, d);
}

static int
export_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return info(WEIR_ROWS_EXPORTS, params, d);
}

static int
port_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return info(WEIR_ROWS_PORTS, params, d);
}

static int
counters(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct request r = {.d = d, .kind = WEIR_ROWS_COUNTERS};

	rte_tel_data_start_dict(d);
	return for_rows(&r, counter_row);
}

void
telemetry_start(const struct plane *p)
{
	static const struct {
		const char *command;
		telemetry_cb callback;
		const char *help;
	} endpoints[] = {
	    {"/weir/conn/info", conn_info, "A connection. Parameter: vqpn"},
	    {"/weir/conn/list", conn_list, "vQPNs of connections. Parameter: first one, optional"},
	    {"/weir/counters", counters, "Sums of the counters of engines, NICs and the broker"},
	    {"/weir/engine/list", engine_list, "Engines"},
	    {"/weir/engine/stats", engine_stats, "Cycles, rates, counters. Parameter: engine"},
	    {"/weir/export/info", export_info, "An export. Parameter: its number"},
	    {"/weir/export/list", export_list, "Exports. Parameter: first one, optional"},
	    {"/weir/port/stats", port_stats, "Frames, bytes, drops. Parameter: row, from 0"},
	    {"/weir/session/info", session_info, "A session. Parameter: its number"},
	    {"/weir/session/list", session_list, "Sessions. Parameter: first one, optional"},
	};

	pthread_mutex_lock(&lock);
	weir_assert(!plane);
	plane = p;
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++)
		if (rte_telemetry_register_cmd(endpoints[i].command, endpoints[i].callback,
					       endpoints[i].help))
			log_warning("no telemetry endpoint %s; use weirctl", endpoints[i].command);
}

void
telemetry_stop(void)
{
	pthread_mutex_lock(&lock);
	plane = NULL;
	pthread_mutex_unlock(&lock);
}
