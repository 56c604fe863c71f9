/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoder of control.sock: every type, every length, every count and string. */
#include "ipc/dpctl.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t types[] = {
    WEIR_CTL_HELLO,	WEIR_CTL_LINK,	  WEIR_CTL_NODE,	 WEIR_CTL_SYNCED,
    WEIR_CTL_LINK_DOWN, WEIR_CTL_RESYNC,  WEIR_CTL_QUERY,	 WEIR_CTL_ROWS,
    WEIR_CTL_ERROR,	WEIR_CTL_CAPTURE, WEIR_CTL_CAPTURE_STOP, WEIR_CTL_CAPTURED,
    WEIR_CTL_SET,	WEIR_CTL_DONE,	  WEIR_CTL_EVICT,	 WEIR_CTL_SERVICES,
};

/* A packet in memory of exactly its length, so that a sanitizer sees any read beyond it (and so
 * that the compiler doesn't see it already: noinline). */
static __attribute__((noinline)) struct weir_ctl_msg *
packet(uint32_t type, uint32_t length)
{
	struct weir_ctl_msg *m = calloc(1, length);
	uint32_t head[2] = {type, length};

	assert_non_null(m);
	memcpy(m, head, length < sizeof(head) ? length : sizeof(head));
	return m;
}

static struct weir_ctl_msg *
valid(uint32_t type)
{
	struct weir_ctl_msg *m = packet(type, weir_ctl_length(type));

	if (type == WEIR_CTL_HELLO) {
		m->hello.version = WEIR_CTL_VERSION;
		m->hello.role = WEIR_ROLE_QUERY;
	} else if (type == WEIR_CTL_QUERY) {
		m->query.rows = WEIR_ROWS_QPS;
	} else if (type == WEIR_CTL_ROWS) {
		m->rows.rows = WEIR_ROWS_PORTS;
		m->rows.record_bytes = weir_ctl_record_bytes(WEIR_ROWS_PORTS);
	} else if (type == WEIR_CTL_ERROR) {
		m->error.code = EINVAL;
	} else if (type == WEIR_CTL_EVICT) {
		m->evict.what = WEIR_EVICT_SESSION;
	}
	return m;
}

static void
expect_bad(struct weir_ctl_msg *m)
{
	assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
	free(m);
}

static void
test_exact_lengths(void **state)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		uint32_t right = weir_ctl_length(types[i]);
		struct weir_ctl_msg *m = valid(types[i]);

		assert_int_equal(weir_ctl_check(m, right), 0);
		assert_int_equal(weir_ctl_check(m, right - 1), -EBADMSG);
		m->length++;
		assert_int_equal(weir_ctl_check(m, right), -EBADMSG);
		free(m);
		for (uint32_t length = 8; length < 300; length++) {
			if (length == right)
				continue;
			m = packet(types[i], length);
			assert_int_not_equal(weir_ctl_check(m, length), 0);
			free(m);
		}
	}
}

static void
test_short_and_unknown(void **state)
{
	struct weir_ctl_msg *m = packet(WEIR_CTL_SYNCED, 8);

	for (size_t length = 0; length < 8; length++)
		assert_int_equal(weir_ctl_check(m, length), -EBADMSG);
	assert_int_equal(weir_ctl_check(m, 8), 0);
	m->type = 0;
	assert_int_equal(weir_ctl_check(m, 8), -EBADMSG);
	m->type = UINT32_MAX;
	expect_bad(m);
	assert_int_equal(weir_ctl_length(0), 0);
	assert_int_equal(weir_ctl_length(WEIR_CTL_DONE + 1), 0);
}

static void
test_hello(void **state)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_HELLO);

	m->hello.version = WEIR_CTL_VERSION + 1;
	assert_int_equal(weir_ctl_check(m, m->length), -EPROTO);
	m->hello.version = WEIR_CTL_VERSION;
	m->hello.role = 4;
	expect_bad(m);

	m = valid(WEIR_CTL_HELLO);
	m->hello.address_count = WEIR_CTL_ADDRESSES + 1;
	expect_bad(m);

	m = valid(WEIR_CTL_HELLO);
	memset(m->hello.cluster, 'c', sizeof(m->hello.cluster));
	expect_bad(m);

	// A later version may be longer or shorter: that is a version, not nonsense.
	m = packet(WEIR_CTL_HELLO, 16);
	m->hello.version = 9;
	assert_int_equal(weir_ctl_check(m, 16), -EPROTO);
	free(m);
}

static void
test_node(void **state)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_NODE);

	m->node.id = 65534;
	m->node.state = WEIR_NODE_DOWN;
	m->node.address_count = WEIR_CTL_ADDRESSES;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	m->node.id = 65535;
	expect_bad(m);

	m = valid(WEIR_CTL_NODE);
	m->node.state = WEIR_NODE_GONE + 1;
	expect_bad(m);

	m = valid(WEIR_CTL_NODE);
	m->node.address_count = WEIR_CTL_ADDRESSES + 1;
	expect_bad(m);

	m = valid(WEIR_CTL_NODE);
	memset(m->node.control, '1', sizeof(m->node.control));
	expect_bad(m);
}

static void
test_error_and_query(void **state)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_ERROR);

	memset(m->error.reason, 'r', sizeof(m->error.reason));
	expect_bad(m);
	m = valid(WEIR_CTL_ERROR);
	m->error.code = 0;
	expect_bad(m);
	m = valid(WEIR_CTL_QUERY);
	m->query.rows = 0;
	expect_bad(m);
	m = valid(WEIR_CTL_QUERY);
	m->query.rows = WEIR_ROWS_LAST + 1;
	expect_bad(m);
}

static void
test_capture(void **state)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_CAPTURE);

	memset(m->capture.port, 'p', sizeof(m->capture.port));
	expect_bad(m);
	m = valid(WEIR_CTL_CAPTURED);
	m->captured.over = 1;
	m->captured.code = ENOSPC;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	m->captured.code = -ENOSPC;
	expect_bad(m);
	m = valid(WEIR_CTL_CAPTURED);
	m->captured.over = 2;
	expect_bad(m);
}

static struct weir_ctl_msg *
rows(uint32_t kind, uint32_t count)
{
	uint32_t bytes = weir_ctl_record_bytes(kind);
	struct weir_ctl_msg *m =
	    packet(WEIR_CTL_ROWS, weir_ctl_length(WEIR_CTL_ROWS) + count * bytes);

	m->rows.rows = kind;
	m->rows.record_bytes = bytes;
	m->rows.count = count;
	return m;
}

static void
test_rows_counts(void **state)
{
	for (uint32_t kind = WEIR_ROWS_NODES; kind <= WEIR_ROWS_LAST; kind++) {
		struct weir_ctl_msg *m = rows(kind, 3);

		assert_int_equal(weir_ctl_check(m, m->length), 0);
		m->rows.count = 4;
		assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
		m->rows.count = 2;
		assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
		m->rows.count = 3;
		m->rows.record_bytes--;
		assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
		m->rows.record_bytes = 0;
		assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
		m->rows.record_bytes = weir_ctl_record_bytes(kind);
		m->rows.more = 2;
		expect_bad(m);
	}
	struct weir_ctl_msg *m = rows(WEIR_ROWS_QPS, 2);

	// count * record_bytes wraps round to the right length
	m->rows.count = 0x80000002u;
	expect_bad(m);
	assert_int_equal(weir_ctl_record_bytes(0), 0);
	assert_int_equal(weir_ctl_record_bytes(WEIR_ROWS_LAST + 1), 0);
}

static void
test_rows_strings(void **state)
{
	struct weir_ctl_msg *m = rows(WEIR_ROWS_SESSIONS, 2);
	struct weir_row_session *session = (void *)m->rows.records;
	struct weir_row_connection *conn;
	struct weir_row_counter *counter;
	struct weir_row_port *port;
	struct weir_row_qp *qp;

	memset(session[1].name, 'n', sizeof(session[1].name));
	expect_bad(m);

	m = rows(WEIR_ROWS_CONNECTIONS, 2);
	conn = (void *)m->rows.records;
	memset(conn[1].state_name, 'n', sizeof(conn[1].state_name));
	expect_bad(m);

	m = rows(WEIR_ROWS_COUNTERS, 1);
	counter = (void *)m->rows.records;
	memset(counter->help, 'n', sizeof(counter->help));
	expect_bad(m);

	m = rows(WEIR_ROWS_SETTINGS, 1);
	memset(((struct weir_row_setting *)m->rows.records)->value, 'v',
	       sizeof(struct weir_row_setting) - offsetof(struct weir_row_setting, value));
	expect_bad(m);

	m = rows(WEIR_ROWS_QPS, 1);
	qp = (void *)m->rows.records;
	memset(qp->state, 'n', sizeof(qp->state));
	expect_bad(m);

	m = rows(WEIR_ROWS_PORTS, 1);
	port = (void *)m->rows.records;
	port->drop_count = WEIR_ROW_DROPS;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	memset(port->drops[3].name, 'n', sizeof(port->drops[3].name));
	assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
	port->drop_count = 3;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	port->drop_count = WEIR_ROW_DROPS + 1;
	expect_bad(m);
}

static void
test_set(void **state)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_SET);

	memset(m->set.key, 'k', sizeof(m->set.key));
	expect_bad(m);
	m = valid(WEIR_CTL_SET);
	memset(m->set.value, 'v', sizeof(m->set.value));
	expect_bad(m);
}

static void
test_evict(void **state)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_EVICT);

	memset(m->evict.reason, 'r', sizeof(m->evict.reason));
	expect_bad(m);
	m = valid(WEIR_CTL_EVICT);
	m->evict.what = 0;
	expect_bad(m);
	m = valid(WEIR_CTL_EVICT);
	m->evict.what = WEIR_EVICT_SESSION + 1;
	expect_bad(m);
}

static void
test_names(void **state)
{
	assert_string_equal(weir_node_state_name(WEIR_NODE_SUSPECT), "suspect");
	assert_string_equal(weir_node_state_name(77), "unknown");
}

static struct weir_ctl_msg *
services(uint32_t count, const char *const *names)
{
	uint32_t length = weir_ctl_length(WEIR_CTL_SERVICES) + count * WEIR_SERVICE_MAX;
	struct weir_ctl_msg *m = packet(WEIR_CTL_SERVICES, length);

	m->services.names.count = count;
	for (uint32_t i = 0; i < count; i++)
		memcpy(m->services.names.name[i], names[i], strlen(names[i]));
	return m;
}

static void
test_services(void **state)
{
	static const char *const right[] = {"a", "b", "b-"}, *const twice[] = {"a", "a"},
				 *const order[] = {"b", "a"}, *const word[] = {"a/b"},
				 *const none[] = {""};
	struct weir_ctl_msg *m = services(3, right);

	assert_int_equal(weir_ctl_size(m), m->length);
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	m->services.node = UINT32_MAX;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	m->services.node = UINT16_MAX;
	assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
	m->services.node = 7;
	m->services.names.count = 2; // fewer, more, far more than there are
	assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
	m->services.names.count = 4;
	assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
	m->services.names.count = UINT32_MAX;
	assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
	m->services.names.count = 3;
	memset(m->services.names.name[2], 'x', WEIR_SERVICE_MAX); // no end
	expect_bad(m);
	expect_bad(services(2, twice));
	expect_bad(services(2, order));
	expect_bad(services(1, word));
	expect_bad(services(1, none));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_services),
	    cmocka_unit_test(test_exact_lengths),
	    cmocka_unit_test(test_short_and_unknown),
	    cmocka_unit_test(test_hello),
	    cmocka_unit_test(test_node),
	    cmocka_unit_test(test_error_and_query),
	    cmocka_unit_test(test_rows_counts),
	    cmocka_unit_test(test_rows_strings),
	    cmocka_unit_test(test_names),
	    cmocka_unit_test(test_capture),
	    cmocka_unit_test(test_set),
	    cmocka_unit_test(test_evict),
	};

	return cmocka_run_group_tests_name("dpctl", tests, NULL, NULL);
}
