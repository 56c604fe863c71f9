/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of datagram connections, and of options that contradict each other. */
#include "worlds/stream_pair.h"

#include <stdio.h>

static void
refused(int rc, int want, const char *reason)
{
	assert_int_equal(rc, want);
	if (!strstr(weir_reason(), reason))
		fail_msg("'%s' does not say '%s'", weir_reason(), reason);
}

/* At the call, whichever call it is, and nothing is taken. */
static void
test_too_long(void **state)
{
	static const char *const ways[] = {PLANE_LOCAL, PLANE_REMOTE};
	static const struct weir_connect_options ud = {.size = sizeof(ud), .flags = WEIR_UD};
	static uint8_t m[WEIR_STREAM_MESSAGE_MAX + 1];

	for (int way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], NULL, false);
		struct weir_conn *c = p.c, *d = p.d;
		uint32_t mtu;
		char most[40];
		void *buf;

		p.c = pair_connect_with(&p, ways[way], &ud);
		p.d = pair_accept(&p);
		mtu = weir_conn_mtu(p.c);
		assert_in_range(mtu, 500, 8191);
		snprintf(most, sizeof(most), "at most %u bytes", mtu);
		assert_int_equal(weir_conn_mtu(p.d), mtu);
		refused(weir_send(p.c, m, mtu + 1, -1), -EMSGSIZE, most);
		refused(weir_send(p.d, m, sizeof(m) - 1, -1), -EMSGSIZE, "datagram");
		refused(weir_send(p.d, m, sizeof(m), -1), -EMSGSIZE, "bytes");
		refused(weir_send_notify(p.c, m, 8192, WEIR_NOTIFY, 1, 0), -EMSGSIZE, "datagram");
		refused(weir_send_notify(p.c, m, 8, WEIR_RC, 1, 0), -EINVAL, "for datagrams");
		refused(weir_send_notify(p.c, m, 8, WEIR_RING, 1, 0), -EINVAL, "for datagrams");
		assert_int_equal(weir_send_notify(p.c, m, 8, WEIR_UD, 1, 0), 0);
		assert_int_equal(pair_recv(&p, p.d, m, 8, &(size_t){0}), 0);
		refused(weir_send_reserve(p.c, mtu + 1, -1, &buf), -EMSGSIZE, "datagram");
		for (size_t length = 0; length <= mtu; length += 50)
			pair_pass(&p, p.c, p.d, (uint32_t)length, length);
		assert_int_equal(weir_send_reserve(p.c, mtu, 0, &buf), 0);
		memset(buf, 0, mtu);
		assert_int_equal(weir_send_commit(p.c, buf, mtu, 0, 0), 0);
		assert_int_equal(pair_recv(&p, p.d, m, mtu, &(size_t){0}), 0);
		weir_close(c);
		weir_close(d);
		pair_close(&p);
	}
}

static void
test_streams(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_address address;
	struct weir_conn *c;

	assert_int_equal(weir_conn_mtu(p.c), WEIR_STREAM_MESSAGE_MAX);
	assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
	assert_int_equal(weir_connect(p.a, &address, 0, &c), 0);
	assert_int_equal(weir_conn_mtu(c), -EAGAIN); /* not open yet */
	plane_settle(p.f);
	weir_close(c);
	weir_close(pair_accept(&p));
	pair_close(&p);
}

static void
test_options(void **state)
{
	static const uint32_t operations[] = {WEIR_RING, WEIR_READ, WEIR_WRITE};
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_connect_options o = {.size = sizeof(o), .flags = 0x80000000};
	struct weir_address address;
	struct weir_conn *c;

	assert_int_equal(weir_address_parse(PLANE_LOCAL, &address), 0);
	refused(weir_connect_with(p.a, &address, &o, 0, &c), -EINVAL, "flag");
	o.flags = WEIR_UD | WEIR_RC;
	refused(weir_connect_with(p.a, &address, &o, 0, &c), -EINVAL, "either");
	for (unsigned op = 0; op < 3; op++) {
		o.flags = WEIR_UD | operations[op];
		refused(weir_connect_with(p.a, &address, &o, 0, &c), -EINVAL, "operation");
		for (unsigned other = op + 1; other < 3; other++) {
			o.flags = operations[op] | operations[other];
			refused(weir_connect_with(p.a, &address, &o, 0, &c), -EINVAL, "operation");
		}
	}
	refused(weir_send_notify(p.c, "x", 1, WEIR_UD, 0, 0), -EINVAL, "for a stream");
	refused(weir_send_notify(p.c, "x", 1, WEIR_UD | WEIR_RC, 0, 0), -EINVAL, "either");
	assert_int_equal(weir_send_notify(p.c, "x", 1, WEIR_RC, 0, 0), 0);
	o.flags = 0;
	for (o.window = 1; o.window < WEIR_WINDOW_MIN; o.window += 1651)
		refused(weir_connect_with(p.a, &address, &o, 0, &c), -EINVAL, "8256");
	o.window = WEIR_WINDOW_MIN - 1;
	refused(weir_connect_with(p.a, &address, &o, 0, &c), -EINVAL, "8256");
	o.window = WEIR_WINDOW_MIN;
	assert_int_equal(weir_connect_with(p.a, &address, &o, 0, &c), 0);
	plane_settle(p.f);
	weir_close(c);
	weir_close(pair_accept(&p));
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_too_long),
	    cmocka_unit_test(test_streams),
	    cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests_name("stream_datagram", tests, NULL, NULL);
}
