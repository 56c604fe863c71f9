/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints /weir/... on DPDK's telemetry socket. They run on threads of DPDK: engines are read by
 * relaxed loads of what they publish; sessions, connections and ports are asked of our own
 * control.sock, as weirctl does, so that main answers between its other work.
 */
#define _GNU_SOURCE
#include "plane.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_telemetry.h>

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

static void
add_engine(struct rte_tel_data *d, const struct plane_engine *e)
{
	const struct loop_stats *s = &e->loop->stats;
	const struct engine_counters *c = engine_counters(e->engine);

	rte_tel_data_add_dict_u64(d, "lcore", e->lcore);
	rte_tel_data_add_dict_u64(d, "cpu", e->cpu);
	rte_tel_data_add_dict_u64(d, "cpu_shared",
				  atomic_load_explicit(&s->cpu_shared, memory_order_relaxed));
	rte_tel_data_add_dict_u64(d, "tsc_hz", plane->clock.hz);
#define ADD(name) rte_tel_data_add_dict_u64(d, #name, get(&s->name))
	ADD(busy_cycles);
	ADD(idle_cycles);
	ADD(sleeps);
	ADD(yields);
#undef ADD
#define ADD(name) rte_tel_data_add_dict_u64(d, #name "_per_s", get(&e->rates.name))
	ADD(busy_cycles);
	ADD(idle_cycles);
	ADD(turns);
	ADD(sleeps);
	ADD(yields);
	ADD(tx_messages);
	ADD(rx_messages);
	ADD(tx_bytes);
	ADD(rx_bytes);
#undef ADD
#define X(name, help) rte_tel_data_add_dict_u64(d, #name, get(&c->name));
	ENGINE_COUNTERS(X)
#undef X
}

static int
engine_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	uint32_t id;
	int rc = -EINVAL;

	if (!parse_id(params, &id))
		return rc;
	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&lock);
	if (plane && id < plane->engines) {
		add_engine(d, &plane->engine[id]);
		rc = 0;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* ---- what control.sock knows ---- */

struct packet {
	union {
		struct weir_ctl_msg m;
		uint8_t bytes[WEIR_CTL_MAX];
	};
};

static int
exchange(int fd, struct packet *packet, uint32_t type, uint32_t answer)
{
	ssize_t n;

	packet->m.type = type;
	packet->m.length = weir_ctl_length(type);
	if (send(fd, packet, packet->m.length, MSG_NOSIGNAL) != (ssize_t)packet->m.length)
		return -EIO;
	n = recv(fd, packet, sizeof(*packet), 0);
	if (n <= 0 || weir_ctl_check(&packet->m, (size_t)n) || packet->m.type != answer)
		return -EIO;
	return 0;
}

static int
open_query(struct packet *packet)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = 1};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), length = -1;

	pthread_mutex_lock(&lock);
	if (plane)
		length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock",
				  plane->run_dir);
	pthread_mutex_unlock(&lock);
	if (fd < 0 || length < 0 || length >= (int)sizeof(address.sun_path))
		goto err;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	memset(packet, 0, sizeof(*packet));
	packet->m.hello.version = WEIR_CTL_VERSION;
	packet->m.hello.role = WEIR_ROLE_QUERY;
	packet->m.hello.node = UINT32_MAX;
	packet->m.hello.pid = (uint32_t)getpid();
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    exchange(fd, packet, WEIR_CTL_HELLO, WEIR_CTL_HELLO))
		goto err;
	return fd;
err:
	if (fd >= 0)
		close(fd);
	return -EIO;
}

/* Calls each() with every record of a kind until it returns false. 0 or -errno. */
static int
for_rows(uint32_t kind, bool (*each)(void *user, const void *row), void *user)
{
	struct packet *packet = calloc(1, sizeof(*packet));
	int fd = packet ? open_query(packet) : -ENOMEM, rc = fd < 0 ? fd : 0;
	bool more = !rc, wanted = true;

	if (!rc) {
		packet->m.query.rows = kind;
		rc = exchange(fd, packet, WEIR_CTL_QUERY, WEIR_CTL_ROWS);
	}
	while (!rc && more) {
		const uint8_t *row = (const uint8_t *)packet->m.rows.records;
		ssize_t n;

		for (uint32_t i = 0; i < packet->m.rows.count && wanted; i++)
			wanted = each(user, row + (size_t)i * packet->m.rows.record_bytes);
		more = packet->m.rows.more && wanted;
		if (!more)
			break;
		n = recv(fd, packet, sizeof(*packet), 0);
		if (n <= 0 || weir_ctl_check(&packet->m, (size_t)n) ||
		    packet->m.type != WEIR_CTL_ROWS)
			rc = -EIO;
	}
	if (fd >= 0)
		close(fd);
	free(packet);
	return rc;
}

struct list {
	struct rte_tel_data *d;
	uint32_t from, count; /* numbers below `from` are left out */
	uint32_t id;	      /* of the record that is wanted */
	bool found;
};

static bool
list_number(struct list *l, uint32_t number)
{
	if (number >= l->from) {
		rte_tel_data_add_array_u64(l->d, number);
		l->count++;
	}
	return l->count < LIST_MAX;
}

/* ,FROM pages: numbers from there on. */
static int
list_rows(uint32_t kind, bool (*each)(void *user, const void *row), const char *params,
	  struct rte_tel_data *d)
{
	struct list l = {.d = d};

	if (params && *params && !parse_id(params, &l.from))
		return -EINVAL;
	rte_tel_data_start_array(d, RTE_TEL_U64_VAL);
	return for_rows(kind, each, &l);
}

static int
find_row(uint32_t kind, bool (*each)(void *user, const void *row), const char *params,
	 struct rte_tel_data *d)
{
	struct list l = {.d = d};
	int rc;

	if (!parse_id(params, &l.id))
		return -EINVAL;
	rte_tel_data_start_dict(d);
	rc = for_rows(kind, each, &l);
	return rc ? rc : l.found ? 0 : -ENOENT;
}

static bool
session_number(void *user, const void *row)
{
	const struct weir_row_session *s = row;

	return list_number(user, s->session);
}

static int
session_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return list_rows(WEIR_ROWS_SESSIONS, session_number, params, d);
}

static bool
session_found(void *user, const void *row)
{
	const struct weir_row_session *s = row;
	struct list *l = user;

	if (s->session != l->id)
		return true;
	l->found = true;
	rte_tel_data_add_dict_string(l->d, "name", s->name);
#define ADD(name) rte_tel_data_add_dict_u64(l->d, #name, s->name)
	ADD(pid);
	ADD(uid);
	ADD(channels);
	ADD(connections);
	ADD(listeners);
	ADD(handling_ms);
	ADD(arena_bytes);
	ADD(weight);
	ADD(rate);
	ADD(burst);
	ADD(tx_messages);
	ADD(tx_bytes);
	ADD(limited);
#undef ADD
	return false;
}

static int
session_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return find_row(WEIR_ROWS_SESSIONS, session_found, params, d);
}

static bool
conn_number(void *user, const void *row)
{
	const struct weir_row_connection *c = row;

	return list_number(user, c->vqpn);
}

static int
conn_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return list_rows(WEIR_ROWS_CONNECTIONS, conn_number, params, d);
}

static bool
conn_found(void *user, const void *row)
{
	const struct weir_row_connection *c = row;
	struct list *l = user;

	if (c->vqpn != l->id)
		return true;
	l->found = true;
	rte_tel_data_add_dict_string(l->d, "state", c->state_name);
#define ADD(name) rte_tel_data_add_dict_u64(l->d, #name, c->name)
	ADD(peer_vqpn);
	ADD(peer_node);
	ADD(session);
	ADD(engine);
	ADD(window);
	ADD(local);
	ADD(datagram);
	ADD(dropped);
	ADD(outstanding);
	ADD(returned);
	ADD(by_ring);
	ADD(by_send);
	ADD(by_read);
	ADD(by_write);
	ADD(by_local);
#undef ADD
	return false;
}

static int
conn_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return find_row(WEIR_ROWS_CONNECTIONS, conn_found, params, d);
}

static bool
port_found(void *user, const void *row)
{
	const struct weir_row_port *r = row;
	struct list *l = user;

	if (l->id--)
		return true;
	l->found = true;
	rte_tel_data_add_dict_string(l->d, "name", r->name);
	rte_tel_data_add_dict_string(l->d, "driver", r->driver);
	rte_tel_data_add_dict_string(l->d, "address", r->address);
#define ADD(name) rte_tel_data_add_dict_u64(l->d, #name, r->name)
	ADD(engine);
	ADD(link_up);
	ADD(link_changes);
	ADD(mtu);
	ADD(rx_frames);
	ADD(tx_frames);
	ADD(rx_bytes);
	ADD(tx_bytes);
#undef ADD
	for (uint32_t i = 0; i < r->drop_count && i < WEIR_ROW_DROPS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "drop_%s", r->drops[i].name);
		rte_tel_data_add_dict_u64(l->d, name, r->drops[i].count);
	}
	return false;
}

static int
port_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return find_row(WEIR_ROWS_PORTS, port_found, params, d);
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
	    {"/weir/engine/list", engine_list, "Engines"},
	    {"/weir/engine/stats", engine_stats, "Cycles, rates, counters. Parameter: engine"},
	    {"/weir/port/stats", port_stats, "Frames, bytes, drops. Parameter: row, from 0"},
	    {"/weir/session/info", session_info, "A session. Parameter: its number"},
	    {"/weir/session/list", session_list, "Sessions. Parameter: first one, optional"},
	};

	pthread_mutex_lock(&lock);
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
