/* SPDX-License-Identifier: BSD-3-Clause */
#include "worlds/test.h"
#include "ipc/session_msg.h"

TEST(test_every_type)
{
	unsigned known = 0;

	for (uint32_t type = 0; type < 300; type++) {
		struct weir_session_msg m;
		uint32_t length = weir_session_length(type);

		memset(&m, 0, sizeof(m));
		m.type = type;
		m.length = length;
		assert_non_null(weir_session_type_name(type));
		if (!length) {
			assert_int_equal(weir_session_check(&m, 8), -EBADMSG);
			assert_string_equal(weir_session_type_name(type), "unknown");
			continue;
		}
		known++;
		assert_true(length >= 8 && length <= sizeof(m));
		assert_int_equal(weir_session_check(&m, length), 0);
		assert_int_equal(weir_session_check(&m, length - 1), -EBADMSG);
		assert_int_equal(weir_session_check(&m, length + 1), -EBADMSG);
		m.length++;
		assert_int_equal(weir_session_check(&m, length), -EBADMSG);
		assert_int_equal(weir_session_check(&m, length + 1), -EBADMSG);
	}
	assert_int_equal(known, 35);
	assert_int_equal(weir_session_length(UINT32_MAX), 0);
	assert_string_equal(weir_session_type_name(UINT32_MAX), "unknown");
}

TEST(test_short)
{
	struct weir_session_msg m;

	memset(&m, 0, sizeof(m));
	m.type = WEIR_MSG_OK;
	m.length = 8;
	for (size_t n = 0; n < 8; n++)
		assert_int_equal(weir_session_check(&m, n), -EBADMSG);
}

static void
refuses_open_string(uint32_t type, char *field, size_t room, struct weir_session_msg *m)
{
	memset(m, 0, sizeof(*m));
	m->type = type;
	m->length = weir_session_length(type);
	memset(field, 'x', room);
	assert_int_equal(weir_session_check(m, m->length), -EBADMSG);
	field[room - 1] = '\0';
	assert_int_equal(weir_session_check(m, m->length), 0);
}

TEST(test_strings)
{
	struct weir_session_msg m;

	refuses_open_string(WEIR_MSG_HELLO, m.hello.name, sizeof(m.hello.name), &m);
	refuses_open_string(WEIR_MSG_LISTEN, m.listen.service, sizeof(m.listen.service), &m);
	refuses_open_string(WEIR_MSG_FIND, m.find.service, sizeof(m.find.service), &m);
	refuses_open_string(WEIR_MSG_CONNECT, m.connect.address.service,
			    sizeof(m.connect.address.service), &m);
	refuses_open_string(WEIR_MSG_EXPORT, m.export.name, sizeof(m.export.name), &m);
	refuses_open_string(WEIR_MSG_NAME, m.name.name, sizeof(m.name.name), &m);
	refuses_open_string(WEIR_MSG_DECIDE, m.decide.reason, sizeof(m.decide.reason), &m);
	refuses_open_string(WEIR_MSG_PEER, m.peer.program, sizeof(m.peer.program), &m);
	refuses_open_string(WEIR_MSG_PEER, m.peer.here.service, sizeof(m.peer.here.service), &m);
	refuses_open_string(WEIR_MSG_PEER, m.peer.there.service, sizeof(m.peer.there.service), &m);
	refuses_open_string(WEIR_MSG_REFUSED, m.refused.reason, sizeof(m.refused.reason), &m);
}

/* A count beyond the answer would be read from beyond it. */
TEST(test_found)
{
	struct weir_session_msg m = {.type = WEIR_MSG_FOUND};

	m.length = weir_session_length(m.type);
	m.found.count = WEIR_FOUND_MAX;
	assert_int_equal(weir_session_check(&m, m.length), 0);
	m.found.count++;
	assert_int_equal(weir_session_check(&m, m.length), -EBADMSG);
}
