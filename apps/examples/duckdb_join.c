/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joins and groups two distributed tables with DuckDB: "weir-run -n 4 duckdb_join [LIBRARY]".
 *
 * Each process has a DuckDB of its own, with a part of the orders and a part of the customers. Rows
 * move as Arrow record batches: both tables by a hash of the customer, so that each process joins
 * what it has; then sums per region by a hash of the region; then the result to process 0, which
 * compares it with that of one DuckDB with all rows.
 *
 * LIBRARY is the path of libduckdb.so, otherwise that in DUCKDB_LIBRARY, otherwise where the loader
 * finds it. The program is built without DuckDB.
 */
#include <weir/arrow.h>
#include <weir/group.h>
#include <weir/invoke.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDERS 1000000
#define CUSTOMERS 20000
#define COLUMNS 8	    /* of a table, at most */
#define TO_FIRST UINT32_MAX /* instead of a key: all rows go to process 0 */

/* ---- DuckDB ---- */

/* Its C API, as far as it is used here. */
struct duckdb_result {
	uint64_t columns, rows, changed;
	void *column, *error, *internal;
};
typedef void *handle;

#define DUCKDB(X)                                                                                  \
	X(int, open, (const char *path, handle *database))                                         \
	X(void, close, (handle * database))                                                        \
	X(int, connect, (handle database, handle * connection))                                    \
	X(void, disconnect, (handle * connection))                                                 \
	X(int, query, (handle connection, const char *sql, struct duckdb_result *r))               \
	X(const char *, result_error, (struct duckdb_result * r))                                  \
	X(void, destroy_result, (struct duckdb_result * r))                                        \
	X(uint64_t, column_count, (struct duckdb_result * r))                                      \
	X(const char *, column_name, (struct duckdb_result * r, uint64_t column))                  \
	X(handle, column_logical_type, (struct duckdb_result * r, uint64_t column))                \
	X(void, destroy_logical_type, (handle * type))                                             \
	X(int64_t, value_int64, (struct duckdb_result * r, uint64_t column, uint64_t row))         \
	X(handle, fetch_chunk, (struct duckdb_result r))                                           \
	X(void, destroy_data_chunk, (handle * chunk))                                              \
	X(void, connection_get_arrow_options, (handle connection, handle * options))               \
	X(void, destroy_arrow_options, (handle * options))                                         \
	X(handle, to_arrow_schema,                                                                 \
	  (handle options, handle * types, const char **names, uint64_t n,                         \
	   struct ArrowSchema *schema))                                                            \
	X(handle, data_chunk_to_arrow, (handle options, handle chunk, struct ArrowArray * rows))   \
	X(const char *, error_data_message, (handle error))                                        \
	X(void, destroy_error_data, (handle * error))                                              \
	X(int, arrow_scan, (handle connection, const char *name, struct ArrowArrayStream *stream))

struct duckdb {
	handle library, database, connection;
#define DUCKDB_MEMBER(type, name, parameters) type(*name) parameters;
	DUCKDB(DUCKDB_MEMBER)
};

static const char *const symbols[] = {
#define DUCKDB_NAME(type, name, parameters) "duckdb_" #name,
    DUCKDB(DUCKDB_NAME)};

static int
load_symbols(struct duckdb *d)
{
	void **member[] = {
#define DUCKDB_ADDRESS(type, name, parameters) (void **)&d->name,
	    DUCKDB(DUCKDB_ADDRESS)};
	char missing[128] = "";

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		size_t length = strlen(missing);

		*member[i] = dlsym(d->library, symbols[i]);
		if (!*member[i] && length + strlen(symbols[i]) + 2 < sizeof(missing))
			snprintf(missing + length, sizeof(missing) - length, " %s", symbols[i]);
	}
	if (missing[0])
		return weir_fail(-ENOSYS, "DuckDB's library lacks%s; use release 1.5", missing);
	return 0;
}

static int
run(struct duckdb *d, const char *sql, struct duckdb_result *r)
{
	int rc = 0;

	if (d->query(d->connection, sql, r)) {
		rc = weir_fail(-EIO, "DuckDB: %.160s", d->result_error(r));
		d->destroy_result(r);
	}
	return rc;
}

/* Runs a statement whose result nobody needs. The rest is as printf() has it. */
__attribute__((format(printf, 2, 3))) static int
execute(struct duckdb *d, const char *format, ...)
{
	struct duckdb_result r;
	char sql[1024];
	va_list args;
	int rc;

	va_start(args, format);
	vsnprintf(sql, sizeof(sql), format, args);
	va_end(args);
	rc = run(d, sql, &r);
	if (!rc)
		d->destroy_result(&r);
	return rc;
}

static int
duckdb_start(struct duckdb *d, const char *path)
{
	int rc;

	if (!path)
		path = getenv("DUCKDB_LIBRARY");
	d->library = dlopen(path ? path : "libduckdb.so", RTLD_NOW | RTLD_LOCAL);
	if (!d->library)
		return weir_fail(-ENOENT,
				 "cannot load DuckDB: %.120s; give the path of libduckdb.so",
				 dlerror());
	rc = load_symbols(d);
	if (rc)
		return rc;
	if (d->open(NULL, &d->database) || d->connect(d->database, &d->connection))
		return weir_fail(-EIO, "DuckDB does not open a database in memory");
	/* Streams belong to the calling thread: DuckDB must not read them in others. */
	return execute(d, "SET threads = 1");
}

static void
duckdb_stop(struct duckdb *d)
{
	if (d->connection)
		d->disconnect(&d->connection);
	if (d->database)
		d->close(&d->database);
	/* not dlclose(): the library is not made to be unloaded */
}

/* Takes an error of DuckDB's Arrow functions; NULL: there was none. */
static int
check(struct duckdb *d, handle error)
{
	if (!error)
		return 0;
	weir_fail(-EIO, "DuckDB: %.160s", d->error_data_message(error));
	d->destroy_error_data(&error);
	return -EIO;
}

/* ---- moving a table ---- */

static int
schema_of(struct duckdb *d, struct duckdb_result *r, handle options, struct ArrowSchema *schema)
{
	uint64_t n = d->column_count(r);
	const char *names[COLUMNS];
	handle types[COLUMNS];
	int rc;

	if (n > COLUMNS)
		return weir_fail(-E2BIG, "a table has more than %u columns", COLUMNS);
	for (uint64_t i = 0; i < n; i++) {
		names[i] = d->column_name(r, i);
		types[i] = d->column_logical_type(r, i);
	}
	rc = check(d, d->to_arrow_schema(options, types, names, n, schema));
	for (uint64_t i = 0; i < n; i++)
		d->destroy_logical_type(&types[i]);
	return rc;
}

/* Pushes the rows of a chunk by a column, or all to partition 0. */
static int
push_chunk(struct duckdb *d, struct weir_map *m, handle options, const struct ArrowSchema *schema,
	   handle chunk, uint32_t key)
{
	uint32_t *first = NULL;
	uint64_t progress = 0;
	struct ArrowArray rows;
	int rc = check(d, d->data_chunk_to_arrow(options, chunk, &rows));

	if (rc)
		return rc;
	if (key == TO_FIRST) {
		first = calloc((size_t)rows.length + 1, sizeof(*first));
		rc = first ? 0 : weir_fail(-ENOMEM, "no memory for partitions");
	}
	if (!rc && first)
		rc = weir_map_arrow(m, schema, &rows, first, NULL, 0, -1, &progress);
	else if (!rc)
		rc = weir_map_arrow(m, schema, &rows, NULL, &key, 1, -1, &progress);
	free(first);
	rows.release(&rows);
	return rc;
}

static int
push_rows(struct duckdb *d, struct weir_map *m, struct duckdb_result *r, uint32_t key)
{
	struct ArrowSchema schema;
	handle options, chunk;
	int rc;

	d->connection_get_arrow_options(d->connection, &options);
	rc = schema_of(d, r, options, &schema);
	if (!rc) {
		while (!rc && (chunk = d->fetch_chunk(*r))) {
			rc = push_chunk(d, m, options, &schema, chunk, key);
			d->destroy_data_chunk(&chunk);
		}
		schema.release(&schema);
	}
	d->destroy_arrow_options(&options);
	return rc;
}

/* The map task of this process: the rows of a table. */
static int
push_table(struct duckdb *d, struct weir_shuffle *s, uint32_t task, const char *table, uint32_t key)
{
	struct duckdb_result r;
	struct weir_map *m;
	char sql[128];
	int rc;

	rc = weir_map_begin(s, task, 0, &m);
	if (rc)
		return rc;
	snprintf(sql, sizeof(sql), "SELECT * FROM %s", table);
	rc = run(d, sql, &r);
	if (!rc) {
		rc = push_rows(d, m, &r, key);
		d->destroy_result(&r);
	}
	if (rc) {
		weir_map_end(m, false);
		return rc;
	}
	return weir_map_end(m, true);
}

/* Inserts the rows of a stream, if it has any. */
static int
insert_stream(struct duckdb *d, struct ArrowArrayStream *stream, const char *table)
{
	struct ArrowSchema schema;
	bool empty;
	int rc = -stream->get_schema(stream, &schema);

	if (rc)
		return weir_fail(rc, "%s", stream->get_last_error(stream));
	empty = !schema.n_children;
	schema.release(&schema);
	if (empty)
		return 0;
	if (d->arrow_scan(d->connection, "incoming", stream))
		return weir_fail(-EIO, "DuckDB does not take a stream");
	rc = execute(d, "INSERT INTO %s SELECT * FROM incoming", table);
	return rc ? rc : execute(d, "DROP VIEW incoming");
}

/* Reads the partitions of this process into a table. */
static int
read_table(struct duckdb *d, struct weir_shuffle *s, uint32_t rank, const char *table)
{
	struct ArrowArrayStream stream;
	struct weir_reduce *r;
	int rc = 0;

	for (uint32_t p = 0; !rc && p < weir_shuffle_partitions(s); p++) {
		if (weir_shuffle_owner(s, p).process != rank)
			continue;
		rc = weir_reduce_begin(s, p, 0, 1, &r);
		if (rc)
			break;
		rc = weir_reduce_arrow(r, &stream);
		if (!rc) {
			rc = insert_stream(d, &stream, table);
			if (stream.release)
				stream.release(&stream);
		}
		weir_reduce_end(r, !rc);
	}
	return rc;
}

/* Makes table `to` of the rows of `from` in all processes that have this process's keys. */
static int
move_table(struct duckdb *d, struct weir_invoker *v, uint32_t rank, uint32_t size, const char *from,
	   const char *to, uint32_t key)
{
	struct weir_shuffle_options o = WEIR_SHUFFLE_OPTIONS_INIT;
	struct weir_shuffle *s = NULL;
	int rc;

	o.kind = WEIR_SHUFFLE_STAGE;
	o.maps = size;
	o.partitions = size;
	rc = weir_shuffle_open(v, &o, &s);
	if (rc)
		return rc;
	rc = execute(d, "CREATE TABLE %s AS SELECT * FROM %s LIMIT 0", to, from);
	if (!rc)
		rc = push_table(d, s, rank, from, key);
	if (!rc)
		rc = read_table(d, s, rank, to);
	if (!rc)
		rc = weir_invoker_barrier(v, -1); /* all have read */
	weir_shuffle_close(s);
	return rc;
}

/* ---- the query ---- */

/* Rows of `size` tables together: those of one table with this rank. */
static int
make_tables(struct duckdb *d, const char *suffix, uint32_t rank, uint32_t size)
{
	int rc = execute(d,
			 "CREATE TABLE orders_%s AS SELECT hash(i) %% %u AS customer, "
			 "(hash(i + 1) %% 10000)::BIGINT AS amount, 'order ' || i AS note "
			 "FROM range(%u) r(i) WHERE i %% %u = %u",
			 suffix, CUSTOMERS, ORDERS, size, rank);

	return rc ? rc
		  : execute(d,
			    "CREATE TABLE customers_%s AS SELECT i::UBIGINT AS customer, "
			    "CASE WHEN i %% 50 > 0 THEN 'region ' || (i %% 50) END AS region "
			    "FROM range(%u) r(i) WHERE i %% %u = %u",
			    suffix, CUSTOMERS, size, rank);
}

static int
join(struct duckdb *d, const char *to, const char *suffix)
{
	return execute(d,
		       "CREATE TABLE %s AS SELECT region, count(*) AS orders, "
		       "sum(amount)::BIGINT AS amount, max(note) AS note FROM orders_%s "
		       "JOIN customers_%s USING (customer) GROUP BY region",
		       to, suffix, suffix);
}

/* Returns 0 if both tables have the same rows. */
static int
compare(struct duckdb *d)
{
	struct duckdb_result r;
	int64_t differ, rows;
	int rc = make_tables(d, "all", 0, 1);

	if (!rc)
		rc = join(d, "expected", "all");
	if (!rc)
		rc = run(d,
			 "SELECT (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM result)) + "
			 "(SELECT count(*) FROM (FROM result EXCEPT ALL FROM expected)), "
			 "(SELECT count(*) FROM result)",
			 &r);
	if (rc)
		return rc;
	differ = d->value_int64(&r, 0, 0);
	rows = d->value_int64(&r, 1, 0);
	d->destroy_result(&r);
	if (differ)
		return weir_fail(-EIO, "%lld rows differ from those of one DuckDB",
				 (long long)differ);
	printf("%u orders of %u customers: %lld regions, as in one DuckDB\n", ORDERS, CUSTOMERS,
	       (long long)rows);
	return 0;
}

static int
query(struct duckdb *d, struct weir_invoker *v, uint32_t rank, uint32_t size)
{
	int rc = make_tables(d, "here", rank, size);

	if (!rc)
		rc = move_table(d, v, rank, size, "orders_here", "orders_mine", 0);
	if (!rc)
		rc = move_table(d, v, rank, size, "customers_here", "customers_mine", 0);
	if (!rc)
		rc = join(d, "sums", "mine");
	if (!rc)
		rc = move_table(d, v, rank, size, "sums", "sums_mine", 0);
	if (!rc)
		rc = execute(d, "CREATE TABLE groups AS SELECT region, sum(orders)::BIGINT AS "
				"orders, sum(amount)::BIGINT AS amount, max(note) AS note "
				"FROM sums_mine GROUP BY region");
	if (!rc)
		rc = move_table(d, v, rank, size, "groups", "result", TO_FIRST);
	return rc || rank ? rc : compare(d);
}

static int
work(struct duckdb *d, struct weir_invoker *v, uint32_t rank, uint32_t size)
{
	int rc = weir_invoker_enter(v, 0);

	if (rc)
		return rc;
	rc = weir_invoker_barrier(v, -1); /* all have entered */
	if (!rc)
		rc = query(d, v, rank, size);
	weir_invoker_leave(v);
	return rc;
}

int
main(int argc, char **argv)
{
	static const struct weir_function functions[] = {WEIR_SHUFFLE_FUNCTIONS};
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	struct weir_invoker *v = NULL;
	struct weir_group *g = NULL;
	struct duckdb d = {0};
	struct weir *w = NULL;
	int rc;

	if (argc > 2) {
		fprintf(stderr, "usage: weir-run -n PROCESSES duckdb_join [LIBRARY]\n");
		return 2;
	}
	o.functions = functions;
	o.function_count = sizeof(functions) / sizeof(functions[0]);
	o.threads = 1;
	rc = duckdb_start(&d, argv[1]);
	if (!rc)
		rc = weir_attach(NULL, &w);
	if (!rc)
		rc = weir_group_join(w, NULL, NULL, 30000, &g);
	if (!rc)
		rc = weir_invoker_open(w, g, &o, &v);
	if (!rc)
		rc = work(&d, v, weir_group_rank(g), weir_group_size(g));
	if (rc)
		fprintf(stderr, "duckdb_join: %s\n", weir_reason());
	weir_invoker_close(v);
	weir_group_leave(g);
	weir_detach(w);
	duckdb_stop(&d);
	return rc != 0;
}
