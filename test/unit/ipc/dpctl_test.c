/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoder of control.sock: every type, every length, every count and string. */
#include "worlds/test.h"
#include "ipc/dpctl.h"

static const uint32_t types[] = {
    WEIR_CTL_HELLO,	   WEIR_CTL_LINK,     WEIR_CTL_NODE, WEIR_CTL_SYNCED, WEIR_CTL_LINK_DOWN,
    WEIR_CTL_RESYNC,	   WEIR_CTL_QUERY,    WEIR_CTL_ROWS, WEIR_CTL_ERROR,  WEIR_CTL_CAPTURE,
    WEIR_CTL_CAPTURE_STOP, WEIR_CTL_CAPTURED, WEIR_CTL_SET,  WEIR_CTL_DONE,   WEIR_CTL_EVICT,
    WEIR_CTL_SERVICES,	   WEIR_CTL_FACT,
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
		m->hello.versions = WEIR_CTL_VERSIONS;
		m->hello.role = WEIR_ROLE_QUERY;
	} else if (type == WEIR_CTL_QUERY) {
		m->query.rows = WEIR_ROWS_QPS;
	} else if (type == WEIR_CTL_ROWS) {
		m->rows.rows = WEIR_ROWS_PORTS;
		m->rows.record_bytes = weir_ctl_record_bytes(WEIR_ROWS_PORTS);
	} else if (type == WEIR_CTL_ERROR) {
		m->error.code = EINVAL;
	} else if (type == WEIR_CTL_FACT) {
		m->fact.name[0] = 'x';
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

TEST(test_exact_lengths)
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

TEST(test_short_and_unknown)
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

TEST(test_hello)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_HELLO);

	m->hello.versions.lowest = m->hello.versions.highest = WEIR_CTL_VERSION + 1;
	assert_int_equal(weir_ctl_check(m, m->length), -EPROTO);
	m->hello.versions.lowest = m->hello.versions.highest = WEIR_CTL_VERSION - 1;
	assert_int_equal(weir_ctl_check(m, m->length), -EPROTO);
	m->hello.versions.highest = WEIR_CTL_VERSION + 1;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	free(m);

	// A later version may be longer or shorter: that is a version, not nonsense.
	m = packet(WEIR_CTL_HELLO, 16);
	m->hello.versions = (struct weir_versions){WEIR_CTL_VERSION + 1, WEIR_CTL_VERSION + 1};
	assert_int_equal(weir_ctl_check(m, 16), -EPROTO);
	free(m);
}

/* One field of a message that is right otherwise. */
static const struct bad_field {
	uint32_t type, offset, size;
	int64_t value;
} bad_fields[] = {
#define NUMBER(type, field, value)                                                                 \
	{                                                                                          \
		type, offsetof(struct weir_ctl_msg, field),                                        \
		    sizeof(((struct weir_ctl_msg *)0)->field), value                               \
	}
#define ENDLESS(type, field) NUMBER(type, field, -1)
    NUMBER(WEIR_CTL_HELLO, hello.role, 4),
    NUMBER(WEIR_CTL_HELLO, hello.address_count, WEIR_CTL_ADDRESSES + 1),
    ENDLESS(WEIR_CTL_HELLO, hello.cluster),
    NUMBER(WEIR_CTL_NODE, node.id, 65535),
    NUMBER(WEIR_CTL_NODE, node.state, WEIR_NODE_GONE + 1),
    NUMBER(WEIR_CTL_NODE, node.address_count, WEIR_CTL_ADDRESSES + 1),
    ENDLESS(WEIR_CTL_NODE, node.control),
    ENDLESS(WEIR_CTL_ERROR, error.reason),
    NUMBER(WEIR_CTL_ERROR, error.code, 0),
    NUMBER(WEIR_CTL_QUERY, query.rows, 0),
    NUMBER(WEIR_CTL_QUERY, query.rows, WEIR_ROWS_LAST + 1),
    ENDLESS(WEIR_CTL_CAPTURE, capture.port),
    NUMBER(WEIR_CTL_CAPTURED, captured.over, 2),
    ENDLESS(WEIR_CTL_SET, set.key),
    ENDLESS(WEIR_CTL_SET, set.value),
    ENDLESS(WEIR_CTL_EVICT, evict.reason),
    NUMBER(WEIR_CTL_EVICT, evict.what, 0),
    NUMBER(WEIR_CTL_EVICT, evict.what, WEIR_EVICT_EXPORT + 1),
};

TEST(test_bad_fields)
{
	for (size_t i = 0; i < sizeof(bad_fields) / sizeof(bad_fields[0]); i++) {
		const struct bad_field *bad = &bad_fields[i];
		struct weir_ctl_msg *m = valid(bad->type);
		uint8_t *field = (uint8_t *)m + bad->offset;

		if (bad->size > sizeof(bad->value))
			memset(field, 'x', bad->size);
		else
			memcpy(field, &bad->value, bad->size);
		if (weir_ctl_check(m, m->length) != -EBADMSG)
			fail_msg("field %zu is taken", i);
		free(m);
	}
}

TEST(test_highest)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_NODE);

	m->node.id = 65534;
	m->node.state = WEIR_NODE_DOWN;
	m->node.address_count = WEIR_CTL_ADDRESSES;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	free(m);
	m = valid(WEIR_CTL_CAPTURED);
	m->captured.over = 1;
	m->captured.code = ENOSPC;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	m->captured.code = -ENOSPC;
	expect_bad(m);
}

/* A line of the status has a name, and texts that end. */
TEST(test_fact)
{
	struct weir_ctl_msg *m = valid(WEIR_CTL_FACT);

	m->fact.name[0] = '\0';
	expect_bad(m);
	m = valid(WEIR_CTL_FACT);
	memset(m->fact.value, 'v', sizeof(m->fact.value));
	expect_bad(m);
	m = valid(WEIR_CTL_FACT);
	memset(m->fact.name, 'n', sizeof(m->fact.name));
	expect_bad(m);
	m = valid(WEIR_CTL_FACT);
	memset(m->fact.from, 'f', sizeof(m->fact.from));
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

TEST(test_rows_counts)
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

/* The text of a row that has no end. */
static void
endless(uint32_t kind, uint32_t row, size_t offset, size_t size)
{
	struct weir_ctl_msg *m = rows(kind, row + 1);

	memset((uint8_t *)m->rows.records + row * weir_ctl_record_bytes(kind) + offset, 'n', size);
	expect_bad(m);
}

TEST(test_rows_strings)
{
	struct weir_ctl_msg *m = rows(WEIR_ROWS_PORTS, 1);
	struct weir_row_port *port = (void *)m->rows.records;

#define ENDLESS_IN(kind, row, type, text)                                                          \
	endless(kind, row, offsetof(struct type, text), sizeof(((struct type *)0)->text))
	ENDLESS_IN(WEIR_ROWS_SESSIONS, 1, weir_row_session, name);
	ENDLESS_IN(WEIR_ROWS_CONNECTIONS, 1, weir_row_connection, state_name);
	ENDLESS_IN(WEIR_ROWS_COUNTERS, 0, weir_row_counter, help);
	ENDLESS_IN(WEIR_ROWS_QPS, 0, weir_row_qp, state);
	endless(WEIR_ROWS_SETTINGS, 0, offsetof(struct weir_row_setting, value),
		sizeof(struct weir_row_setting) - offsetof(struct weir_row_setting, value));
	port->drop_count = WEIR_ROW_DROPS;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	memset(port->drops[3].name, 'n', sizeof(port->drops[3].name));
	assert_int_equal(weir_ctl_check(m, m->length), -EBADMSG);
	port->drop_count = 3;
	assert_int_equal(weir_ctl_check(m, m->length), 0);
	port->drop_count = WEIR_ROW_DROPS + 1;
	expect_bad(m);
}

TEST(test_names)
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

TEST(test_services)
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
