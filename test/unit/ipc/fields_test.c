/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every field of every row, and every counter, in all outputs: weirctl's tables and JSON,
 * telemetry, Prometheus. DPDK's side of telemetry is played here, and so is control.sock.
 */
#include "worlds/broker_sockets.h"

#include "../apps/weirctl/weirctl.h"
#include "daemon/plane.h"
#include "ipc/fields.h"
#include "metrics/metrics.h"

#include <inttypes.h>
#include <pthread.h>

#include <rte_telemetry.h>

#define ENTRIES 512
#define ROW_MAX 8192

/* ---- DPDK's telemetry ---- */

struct rte_tel_data {
	struct {
		char name[RTE_TEL_MAX_STRING_LEN];
		uint64_t number;
		char text[256];
	} entry[ENTRIES];
	uint32_t count;
};

static struct {
	const char *name;
	telemetry_cb callback;
} command[16];
static uint32_t commands;
static struct rte_tel_data answer;

int
rte_telemetry_register_cmd(const char *cmd, telemetry_cb fn, const char *help)
{
	command[commands].name = cmd;
	command[commands++].callback = fn;
	return 0;
}

int
rte_tel_data_start_array(struct rte_tel_data *d, enum rte_tel_value_type type)
{
	d->count = 0;
	return 0;
}

int
rte_tel_data_start_dict(struct rte_tel_data *d)
{
	d->count = 0;
	return 0;
}

int
rte_tel_data_add_array_u64(struct rte_tel_data *d, uint64_t x)
{
	d->entry[d->count++].number = x;
	return 0;
}

int
rte_tel_data_add_dict_u64(struct rte_tel_data *d, const char *name, uint64_t value)
{
	/* as DPDK checks it */
	assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_/"),
			 strlen(name));
	assert_true(d->count < RTE_TEL_MAX_DICT_ENTRIES);
	for (uint32_t i = 0; i < d->count; i++)
		assert_string_not_equal(d->entry[i].name, name);
	snprintf(d->entry[d->count].name, sizeof(d->entry[0].name), "%s", name);
	d->entry[d->count].text[0] = 0;
	d->entry[d->count++].number = value;
	return 0;
}

int
rte_tel_data_add_dict_string(struct rte_tel_data *d, const char *name, const char *text)
{
	rte_tel_data_add_dict_u64(d, name, 0);
	snprintf(d->entry[d->count - 1].text, sizeof(d->entry[0].text), "%s", text);
	return 0;
}

/* A machine that keeps the other end from its CPU for longer than an answer may take gets more
 * tries. */
static int
ask(const char *cmd, const char *params)
{
	uint32_t i = 0;
	int rc = -EIO;

	while (i < commands && strcmp(command[i].name, cmd))
		i++;
	if (i == commands)
		fail_msg("no endpoint %s", cmd);
	for (int try = 0; try < 20 && rc == -EIO; try++)
		rc = command[i].callback(cmd, params, &answer);
	return rc;
}

static void
told_number(const char *name, uint64_t number)
{
	for (uint32_t i = 0; i < answer.count; i++)
		if (!strcmp(answer.entry[i].name, name)) {
			assert_int_equal(answer.entry[i].number, number);
			return;
		}
	fail_msg("no %s in telemetry", name);
}

static void
told_text(const char *name, const char *text)
{
	for (uint32_t i = 0; i < answer.count; i++)
		if (!strcmp(answer.entry[i].name, name)) {
			assert_string_equal(answer.entry[i].text, text);
			return;
		}
	fail_msg("no %s in telemetry", name);
}

/* ---- control.sock ---- */

static struct rows served; /* of the kind that is asked for */
static int listener;
static char dir[] = "/tmp/weir-fields-XXXXXX";

static void *
serve(void *none)
{
	static union ctl m;
	int fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		while (recv(fd, &m, sizeof(m), 0) > 0) {
			if (m.m.type == WEIR_CTL_QUERY) {
				uint32_t kind = m.m.query.rows;

				memset(&m, 0, sizeof(m));
				m.m.type = WEIR_CTL_ROWS;
				m.m.rows.rows = kind;
				m.m.rows.record_bytes = weir_ctl_record_bytes(kind);
				m.m.rows.count = served.count;
				memcpy(m.m.rows.records, served.records,
				       (size_t)served.count * served.bytes);
			}
			m.m.length = weir_ctl_length(m.m.type) +
				     (m.m.type == WEIR_CTL_ROWS ? served.count * served.bytes : 0);
			if (send(fd, &m, m.m.length, MSG_NOSIGNAL) < 0)
				break;
		}
		close(fd);
	}
	return NULL;
}

/* ---- rows ---- */

static uint64_t
number_of(uint32_t field, const struct weir_field *f)
{
	return f->size == 8 ? 5000000000u + field : 1000003u + field;
}

/* A row whose every number and text differs from all others. */
static const void *
make_row(const struct weir_kind *k)
{
	static _Alignas(8) uint8_t row[ROW_MAX];
	struct weir_row_port *port = (void *)row;

	memset(row, 0, sizeof(row));
	assert_true(k->bytes <= sizeof(row));
	for (uint32_t i = 0; i < k->count; i++) {
		const struct weir_field *f = &k->fields[i];
		uint64_t wide = number_of(i, f);
		uint32_t narrow = (uint32_t)wide;

		if (f->text)
			snprintf((char *)row + f->offset, f->size, "t%u", i);
		else if (!f->make && !f->part && f->size == 8)
			memcpy(row + f->offset, &wide, sizeof(wide));
		else if (!f->make && !f->part && f->size == 4)
			memcpy(row + f->offset, &narrow, sizeof(narrow));
	}
	if (k == weir_kind(WEIR_ROWS_PORTS)) {
		port->drop_count = 2;
		snprintf(port->drops[0].name, sizeof(port->drops[0].name), "bad_icrc");
		snprintf(port->drops[1].name, sizeof(port->drops[1].name), "no_qp");
		port->drops[0].count = 71;
		port->drops[1].count = 72;
	} else if (k == weir_kind(WEIR_ROWS_CONNECTIONS)) {
		struct weir_row_connection *c = (void *)row;

		c->by_ring = 81;
		c->by_local = 82;
	} else if (k == weir_kind(WEIR_ROWS_NODES)) {
		struct weir_ctl_node *n = (void *)row;

		n->id = 3;
		n->state = WEIR_NODE_UP;
	}
	return row;
}

static struct rows
one_row(uint32_t kind)
{
	const struct weir_kind *k = weir_kind(kind);

	return (struct rows){
	    .kind = kind, .count = 1, .bytes = k->bytes, .records = (uint8_t *)make_row(k)};
}

/* A member without a field would be in no output. */
TEST(test_members)
{
	/* counts and numbers that other fields show, and padding */
	static const struct {
		uint32_t kind;
		size_t offset, size;
	} other[] = {
#define OTHER(kind, row, member)                                                                   \
	{kind, offsetof(struct row, member), sizeof(((struct row *)0)->member)}
	    OTHER(WEIR_ROWS_NODES, weir_ctl_node, address_count),
	    OTHER(WEIR_ROWS_NODES, weir_ctl_node, lid),
	    {WEIR_ROWS_NODES, sizeof(struct weir_ctl_node) - 4, 4},	       /* padding */
	    {WEIR_ROWS_QPS, offsetof(struct weir_row_qp, frames_sent) - 4, 4}, /* padding */
	    OTHER(WEIR_ROWS_CONNECTIONS, weir_row_connection, state),
	    OTHER(WEIR_ROWS_PORTS, weir_row_port, drop_count),
	    OTHER(WEIR_ROWS_SERVICES, weir_row_service, reserved),
#undef OTHER
	};

	for (uint32_t kind = WEIR_ROWS_NODES; kind <= WEIR_ROWS_LAST; kind++) {
		const struct weir_kind *k = weir_kind(kind);
		uint8_t *shown = calloc(1, k->bytes);

		assert_int_equal(weir_kind_named(k->name), kind);
		for (uint32_t i = 0; i < k->count; i++)
			memset(shown + k->fields[i].offset, 1, k->fields[i].size);
		for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
			if (other[i].kind == kind)
				memset(shown + other[i].offset, 1, other[i].size);
		for (uint32_t i = 0; i < k->bytes; i++)
			if (!shown[i])
				fail_msg("%s: byte %u belongs to no field", k->name, i);
		free(shown);
	}
	assert_null(weir_kind(0));
	assert_null(weir_kind(WEIR_ROWS_LAST + 1));
	assert_int_equal(weir_kind_named("node"), 0);
}

TEST(test_json)
{
	for (uint32_t kind = WEIR_ROWS_NODES; kind <= WEIR_ROWS_LAST; kind++) {
		const struct weir_kind *k = weir_kind(kind);
		struct rows rows = one_row(kind);
		json_t *array = rows_json(&rows), *o = json_array_get(array, 0);

		for (uint32_t i = 0; i < k->count; i++) {
			const struct weir_field *f = &k->fields[i];
			json_t *value = json_object_get(o, f->name);
			struct weir_value v;
			const char *part;

			if (f->hidden & HIDE_JSON)
				continue;
			if (!value)
				fail_msg("%s: no %s", k->name, f->name);
			for (uint32_t p = 0; f->part && f->part(rows.records, p, &part, &v.number);
			     p++)
				assert_int_equal(json_integer_value(json_object_get(value, part)),
						 v.number);
			if (!f->make && !f->part && f->text)
				assert_string_equal(json_string_value(value),
						    (const char *)rows.records + f->offset);
			else if (f->boolean)
				assert_int_equal(json_boolean_value(value), number_of(i, f) != 0);
			else if (!f->make && !f->part && f->name != k->fields->name)
				assert_int_equal(json_integer_value(value), number_of(i, f));
		}
		json_decref(array);
	}
}

TEST(test_tables)
{
	for (uint32_t kind = WEIR_ROWS_NODES; kind <= WEIR_ROWS_LAST; kind++) {
		const struct weir_kind *k = weir_kind(kind);
		struct rows rows = one_row(kind);
		json_t *array = rows_json(&rows);
		FILE *before = stdout;
		char *text = NULL, word[WEIR_VALUE_TEXT], *at;
		size_t size;

		assert_true(k->count <= ROWS_FIELDS);
		stdout = open_memstream(&text, &size);
		table_print(k->fields, k->count, array);
		fclose(stdout);
		stdout = before;
		at = text;
		for (uint32_t i = 0; i < k->count; i++) {
			const struct weir_field *f = &k->fields[i];

			if (!f->title)
				continue;
			at = strstr(at, f->title);
			if (!at)
				fail_msg("%s: no column %s, or not in order:\n%s", k->name,
					 f->title, text);
			if (f->text && !f->make)
				snprintf(word, sizeof(word), "%s",
					 (const char *)rows.records + f->offset);
			else if (!f->make && !f->part && !f->boolean && f->unit == UNIT_PLAIN)
				snprintf(word, sizeof(word), "%" PRIu64,
					 weir_field_number(f, rows.records));
			else
				continue;
			if (!strstr(strchr(text, '\n'), word))
				fail_msg("%s: no %s '%s' in\n%s", k->name, f->name, word, text);
		}
		free(text);
		json_decref(array);
	}
}

TEST(test_metrics)
{
	struct metrics_rows rows[METRICS_KINDS];
	uint32_t families = 0;
	char line[256], *text;

	for (uint32_t i = 0; i < METRICS_KINDS; i++) {
		const struct weir_kind *k = weir_kind(metrics_kind[i]);

		rows[i] = (struct metrics_rows){1, malloc(k->bytes)};
		memcpy(rows[i].records, make_row(k), k->bytes);
	}
	text = metrics_text(rows, "here", NULL, 0);
	for (uint32_t i = 0; i < METRICS_KINDS; i++) {
		const struct weir_kind *k = weir_kind(metrics_kind[i]);

		for (uint32_t n = 0; n < k->count; n++) {
			const struct weir_field *f = &k->fields[n];
			const char *end, *of = f->metric;

			if (!of)
				continue;
			families++;
			assert_non_null(f->help);
			end = strlen(of) > 6 ? of + strlen(of) - 6 : of;
			snprintf(line, sizeof(line), "\n# TYPE %s%s %s\n%s%s{", k->metric, of,
				 strcmp(end, "_total") ? "gauge" : "counter", k->metric, of);
			if (!strstr(text, line))
				fail_msg("no '%s' in\n%s", line, text);
			if (f->make || f->part)
				continue;
			snprintf(line, sizeof(line), "} %" PRIu64 "\n",
				 weir_field_number(f, rows[i].records));
			if (!strstr(text, line))
				fail_msg("no '%s' of %s in\n%s", line, f->name, text);
		}
	}
	assert_true(families > 20);
	free(text);
	for (uint32_t i = 0; i < METRICS_KINDS; i++)
		free(rows[i].records);
}

/* BUSY is that of the last second: a long life says little of now. */
TEST(test_busy)
{
	struct weir_row_engine row = {.busy_cycles = 300,
				      .idle_cycles = 100,
				      .busy_cycles_per_s = 20,
				      .idle_cycles_per_s = 60};
	const struct weir_kind *k = weir_kind(WEIR_ROWS_ENGINES);
	const struct weir_field *f = weir_field_named(k, "busy_percent", strlen("busy_percent"));
	struct weir_value v;

	weir_field_value(f, &row, &v);
	assert_true(v.type == VALUE_REAL && v.real == 25);
	row = (struct weir_row_engine){.busy_cycles = 300};
	weir_field_value(f, &row, &v);
	assert_true(v.real == 0);
}

/* A lock that may have been left and taken again: not known, rather than a number. */
TEST(test_held)
{
	const struct weir_kind *k = weir_kind(WEIR_ROWS_EXPORTS);
	const struct weir_field *f = weir_field_named(k, "held_ms", strlen("held_ms"));
	struct weir_row_export row = {.held_ms = UINT64_MAX};
	struct weir_value v;

	weir_field_value(f, &row, &v);
	assert_int_equal(v.type, VALUE_NONE);
	row.held_ms = 5;
	weir_field_value(f, &row, &v);
	assert_true(v.type == VALUE_NUMBER && v.number == 5);
}

static void
expect_row(uint32_t kind)
{
	const struct weir_kind *k = weir_kind(kind);
	const uint8_t *row = served.records;

	for (uint32_t i = 0; i < k->count; i++) {
		const struct weir_field *f = &k->fields[i];
		const char *part;
		char name[64];
		uint64_t value;

		if (f->hidden & HIDE_TELEMETRY)
			continue;
		for (uint32_t p = 0; f->part && f->part(row, p, &part, &value); p++) {
			snprintf(name, sizeof(name), "%s%s", f->part_prefix, part);
			told_number(name, value);
		}
		if (f->text)
			told_text(f->name, (const char *)row + f->offset);
		else if (!f->part)
			told_number(f->name, weir_field_number(f, row));
	}
}

TEST(test_telemetry)
{
	static const struct {
		uint32_t kind;
		const char *info, *list;
	} endpoint[] = {{WEIR_ROWS_SESSIONS, "/weir/session/info", "/weir/session/list"},
			{WEIR_ROWS_CONNECTIONS, "/weir/conn/info", "/weir/conn/list"},
			{WEIR_ROWS_EXPORTS, "/weir/export/info", "/weir/export/list"},
			{WEIR_ROWS_PORTS, "/weir/port/stats", NULL}};
	char id[16];

	for (size_t i = 0; i < sizeof(endpoint) / sizeof(endpoint[0]); i++) {
		served = one_row(endpoint[i].kind);
		snprintf(id, sizeof(id), "%u",
			 endpoint[i].list ? *(const uint32_t *)(const void *)served.records : 0);
		assert_int_equal(ask(endpoint[i].info, id), 0);
		expect_row(endpoint[i].kind);
		assert_int_equal(ask(endpoint[i].info, "77"), -ENOENT);
		assert_int_equal(ask(endpoint[i].info, "x"), -EINVAL);
		if (!endpoint[i].list)
			continue;
		assert_int_equal(ask(endpoint[i].list, NULL), 0);
		assert_int_equal(answer.count, 1);
		assert_int_equal(answer.entry[0].number, strtoul(id, NULL, 10));
		assert_int_equal(ask(endpoint[i].list, "4000000000"), 0);
		assert_int_equal(answer.count, 0);
	}
}

/* ---- counters ---- */

struct counter_name {
	const char *group, *name;
};

static const struct counter_name counters[] = {
#define E(name, help) {"engine", #name},
#define N(name, help) {"nic", #name},
#define D(name, help) {"nic", "drop_" #name},
#define B(name, help) {"broker", #name},
    ENGINE_COUNTERS(E) NIC_COUNTERS(N) NIC_DROP_REASONS(D) BROKER_COUNTERS(B)
#undef E
#undef N
#undef D
#undef B
};
#define COUNTERS (sizeof(counters) / sizeof(counters[0]))

/* Whether it rises and falls. */
static bool
is_level(const char *name)
{
#define X(level) #level,
	static const char *const levels[] = {ENGINE_LEVELS(X)};
#undef X

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (!strcmp(name, levels[i]))
			return true;
	return false;
}

/* The broker's rows, each with a value of its own. */
static struct rows
counter_rows(struct fake *f)
{
	struct rows rows = {.kind = WEIR_ROWS_COUNTERS, .bytes = sizeof(struct weir_row_counter)};
	struct weir_ctl_msg m = {.query.rows = WEIR_ROWS_COUNTERS};
	struct weir_row_counter *row;
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in);

	rows.records = calloc(COUNTERS, rows.bytes);
	ctl_send(fd, &m, WEIR_CTL_QUERY);
	do {
		assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
		assert_int_equal(weir_ctl_check(&in.m, in.m.length), 0);
		assert_int_equal(in.m.type, WEIR_CTL_ROWS);
		assert_true(rows.count + in.m.rows.count <= COUNTERS);
		memcpy(rows.records + rows.count * rows.bytes, in.m.rows.records,
		       in.m.rows.count * rows.bytes);
		rows.count += in.m.rows.count;
	} while (in.m.rows.more);
	close(fd);
	row = (void *)rows.records;
	for (uint32_t i = 0; i < rows.count; i++)
		row[i].value = 90000 + i;
	return rows;
}

TEST(test_counters)
{
	struct metrics_rows metrics[METRICS_KINDS] = {0};
	struct weir_row_engine engine = {.engine = 0};
	struct fake *f = fake_open(&with_sockets);
	const struct weir_row_counter *row;
	char name[128], line[192], *text;
	json_t *array;

	served = counter_rows(f);
	assert_int_equal(served.count, COUNTERS);
	row = (const void *)served.records;
	array = rows_json(&served);
	assert_int_equal(ask("/weir/counters", NULL), 0);
	assert_int_equal(answer.count, COUNTERS);
	for (uint32_t i = 0; i < METRICS_KINDS; i++)
		if (metrics_kind[i] == WEIR_ROWS_COUNTERS)
			metrics[i] = (struct metrics_rows){served.count, served.records};
		else if (metrics_kind[i] == WEIR_ROWS_ENGINES)
			metrics[i] = (struct metrics_rows){1, (uint8_t *)&engine};
	text = metrics_text(metrics, "here", NULL, 0);
	for (uint32_t i = 0; i < COUNTERS; i++) {
		json_t *o = json_array_get(array, i);

		snprintf(name, sizeof(name), "%s.%s", counters[i].group, counters[i].name);
		assert_string_equal(row[i].name, name);
		assert_true(row[i].help[0]);
		assert_string_equal(json_string_value(json_object_get(o, "name")), name);
		assert_int_equal(json_integer_value(json_object_get(o, "value")), 90000 + i);
		snprintf(name, sizeof(name), "%s_%s", counters[i].group, counters[i].name);
		told_number(name, 90000 + i);
		/* once: per engine, or the sum */
		snprintf(line, sizeof(line), "# TYPE weir_%s%s\n", name,
			 is_level(counters[i].name) ? " gauge" : "_total counter");
		if (!strstr(text, line))
			fail_msg("no metric %s", name);
		assert_null(strstr(strstr(text, line) + 1, line));
	}
	free(text);
	json_decref(array);
	free(served.records);
	fake_close(f);
}

/* An engine by itself: what it and its loop count, and the rates. */
TEST(test_engine)
{
	assert_int_equal(ask("/weir/engine/list", NULL), 0);
	assert_int_equal(answer.count, 1);
	assert_int_equal(ask("/weir/engine/stats", "1"), -EINVAL);
	assert_int_equal(ask("/weir/engine/stats", "0"), 0);
	told_number("lcore", 5);
	told_number("cpu", 6);
	told_number("tsc_hz", 1000);
	told_number("cpu_shared", 0);
#define X(name) told_number(#name, 11);
	LOOP_COUNTERS(X)
#undef X
#define X(name) told_number(#name "_per_s", 12);
	LOOP_COUNTERS(X)
	X(turns)
	ENGINE_TRAFFIC(X)
#undef X
#define X(name, help) told_number(#name, engine_counters(NULL)->name);
	ENGINE_COUNTERS(X)
#undef X
}

int
main(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct plane *plane = calloc(1, sizeof(*plane));
	struct loop *loop = aligned_alloc(64, (sizeof(*loop) + 63) / 64 * 64);
	pthread_t thread;
	int rc;

	if (!plane || !loop || !mkdtemp(dir))
		return 1;
	memset(loop, 0, sizeof(*loop));
	plane->engines = 1;
	plane->run_dir = dir;
	plane->clock.hz = 1000;
	plane->engine[0].loop = loop;
	plane->engine[0].lcore = 5;
	plane->engine[0].cpu = 6;
#define X(name) loop->stats.name = 11;
	LOOP_COUNTERS(X)
#undef X
#define X(name) plane->engine[0].rates.name = 12;
	LOOP_COUNTERS(X)
	X(turns)
	ENGINE_TRAFFIC(X)
#undef X
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/control.sock", dir);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&a, sizeof(a)) || listen(listener, 8) ||
	    pthread_create(&thread, NULL, serve, NULL))
		return 1;
	telemetry_start(plane);
	rc = test_run();
	shutdown(listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	unlink(a.sun_path);
	rmdir(dir);
	free(loop);
	free(plane);
	return rc;
}
