/* SPDX-License-Identifier: BSD-3-Clause */
/* Who knocks at the control port and doesn't belong there: refused, and nobody else notices. */
#include "fake.h"

#include "message.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define A 0
#define B 1
#define LONG 10000

static const char *binary;

// Node 2 (B) is the one that is dialled; A and B are up while strangers try.
static int
setup(void **state)
{
	fake_setup(binary);
	for (int i = 0; i < 2; i++) {
		fake_dp_start(i, 100 + i);
		fake_control_start(i);
	}
	AWAIT(fake_dp[A].told[2][WEIR_NODE_UP] && fake_dp[B].told[1][WEIR_NODE_UP], LONG);
	return 0;
}

static int
teardown(void **state)
{
	// Whatever happened: the two have not lost sight of each other.
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_UP], 1);
	fake_teardown();
	return 0;
}

static int
knock(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_port = htons(fake_control[B].port);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void
say(int fd, const void *data, size_t length)
{
	assert_int_equal(send(fd, data, length, MSG_NOSIGNAL), length);
}

// All that comes until the other end closes; fails if it doesn't. Returns the Error's reason, or
// "".
static const char *
reason(int fd)
{
	static struct control_msg m;
	uint8_t data[4096];
	size_t have = 0, n;
	uint64_t end = fake_now() + LONG;

	for (;;) {
		struct pollfd p = {fd, POLLIN, 0};
		ssize_t got;

		assert_true(fake_now() < end);
		fake_pump(10);
		if (poll(&p, 1, 0) == 0)
			continue;
		got = recv(fd, data + have, sizeof(data) - have, 0);
		if (got <= 0)
			break;
		have += got;
	}
	close(fd);
	if (control_frame_next(data, have, CONTROL_FRAME_MAX, &n) != 1 ||
	    control_msg_decode(data + CONTROL_PREFIX, n, &m) || m.type != CONTROL_ERROR)
		return "";
	return m.reason;
}

static struct control_msg
hello(uint32_t node)
{
	struct control_msg m = {.type = CONTROL_HELLO};

	m.hello.version = CONTROL_VERSION;
	m.hello.node = node;
	snprintf(m.hello.cluster, sizeof(m.hello.cluster), "default");
	m.hello.dp.state = DP_UP;
	m.hello.dp.incarnation = 100;
	return m;
}

static void
expect_refusal(const struct control_msg *m, const char *why)
{
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(m, data, sizeof(data));
	const char *said;
	int fd = knock();

	say(fd, data, n);
	said = reason(fd);
	if (!strstr(said, why))
		fail_msg("refused with '%s', not '%s'", said, why);
}

static void
test_nonsense(void **state)
{
	static const char *const nonsense[] = {
	    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	    "\xff\xff\xff\xff",
	    "\x16\x03\x01\x02\x00", // a TLS hello
	    "\0\0\0\1\377",	    // a message that is none
	    "\0\0\0\2\x2a\0",	    // a heartbeat before hello
	    "\0\0\4\1",		    // a hello of 1025 bytes
	};
	static const size_t length[] = {27, 4, 5, 5, 6, 4};
	static const char *const why[] = {"not a control message",	"not a control message",
					  "not a control message",	"malformed message",
					  "first message is not hello", "not a control message"};

	for (int i = 0; i < 6; i++) {
		int fd = knock();
		const char *said;

		say(fd, nonsense[i], length[i]);
		said = reason(fd);
		if (strcmp(said, why[i]) && !strstr(said, why[i]))
			fail_msg("case %d: '%s'", i, said);
	}
	assert_true(fake_log_count(B, "refused a connection from 127.0.0.1:") >= 1);
}

static void
test_wrong_hello(void **state)
{
	struct control_msg m = hello(1);

	m.hello.version = 2;
	expect_refusal(&m, "protocol version 1 here, 2 there; install one release on all nodes");
	m = hello(1);
	snprintf(m.hello.cluster, sizeof(m.hello.cluster), "other");
	expect_refusal(&m, "cluster is 'default' here, 'other' there; check --cluster");
	m = hello(3);
	expect_refusal(&m, "node 3 is not in the peers file of node 2");
	m = hello(2);
	expect_refusal(&m, "node id 2 is this node's own; give each node its own");
	m = hello(1);
	expect_refusal(&m, "node 1 is connected already; give each node its own id");
	AWAIT(fake_log_count(B, "refused a connection"), LONG);
	// The same again and again is not logged again and again.
	for (int i = 0; i < 50; i++)
		expect_refusal(&m, "connected already");
	assert_in_range(fake_log_count(B, "refused a connection"), 1, 8);
}

static void
test_byte_by_byte(void **state)
{
	struct control_msg m = hello(3);
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(&m, data, sizeof(data));
	int fd = knock();

	for (size_t i = 0; i < n; i++) {
		say(fd, data + i, 1);
		fake_pump(5);
	}
	assert_non_null(strstr(reason(fd), "node 3 is not in the peers file"));
}

static void
test_slow_handshake(void **state)
{
	uint64_t begin = fake_now();
	int fd = knock();

	say(fd, "\0\0", 2);
	assert_non_null(strstr(reason(fd), "handshake not done"));
	assert_in_range(fake_now() - begin, 1500, 6000);
}

static void
test_many_idle_connections(void **state)
{
	int fds[200], open = 0;
	struct control_msg m = hello(3);

	for (int i = 0; i < 200; i++) {
		fds[i] = knock();
		fake_pump(1);
	}
	// They don't keep others out.
	expect_refusal(&m, "node 3 is not in the peers file");
	fake_pump(200);
	for (int i = 0; i < 200; i++) {
		struct pollfd p = {fds[i], POLLIN, 0};

		open += poll(&p, 1, 0) == 0;
	}
	assert_in_range(open, 1, 32);
	fake_pump(2500);
	for (int i = 0; i < 200; i++) {
		struct pollfd p = {fds[i], POLLIN, 0};

		assert_int_equal(poll(&p, 1, 0), 1);
		close(fds[i]);
	}
}

static void
test_restarted_peer_still_gets_in(void **state)
{
	struct control_msg offer = {.type = CONTROL_LINK_OFFER};
	struct weir_ctl_msg m = fake_offer(A, B, 1, 0);
	uint8_t data[2 * CONTROL_ENCODED_MAX];
	struct control_msg h = hello(1);
	size_t n;
	int fd;

	// In place of A: a member that is let in, and then breaks the rules.
	assert_int_equal(fake_control_stop(A), 0);
	fake_pump(100);
	fd = knock();
	offer.link = m.link;
	n = control_msg_encode(&h, data, sizeof(data));
	n += control_msg_encode(&offer, data + n, sizeof(data) - n);
	say(fd, data, n);
	AWAIT(fake_dp[B].links == 1, LONG);
	assert_memory_equal(&fake_dp[B].link, &m.link, sizeof(m.link));
	// What another life of A offered, or meant for another life of B, is nobody's business.
	offer.link.attempt = 2;
	offer.link.incarnation = 99;
	n = control_msg_encode(&offer, data, sizeof(data));
	offer.link = m.link;
	offer.link.attempt = 3;
	offer.link.peer_incarnation = 99;
	n += control_msg_encode(&offer, data + n, sizeof(data) - n);
	offer.link = m.link;
	offer.link.attempt = 4;
	say(fd, data, n);
	n = control_msg_encode(&offer, data, sizeof(data));
	say(fd, data, n);
	AWAIT(fake_dp[B].link.attempt == 4, LONG);
	assert_int_equal(fake_dp[B].links, 2);
	offer.link.node = 3;
	n = control_msg_encode(&offer, data, sizeof(data));
	say(fd, data, n);
	fake_pump(300);
	assert_int_equal(fake_dp[B].links, 2);
	close(fd);
	fake_control_start(A);
	AWAIT(fake_log_count(A, "node 2 is up") == 2, LONG);
	fake_dp[B].told[1][WEIR_NODE_SUSPECT] = 0;
	fake_dp[B].told[1][WEIR_NODE_UP] = 1;
	fake_dp[A].told[2][WEIR_NODE_SUSPECT] = 0;
}

int
main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_nonsense),
	    TEST(test_wrong_hello),
	    TEST(test_byte_by_byte),
	    TEST(test_slow_handshake),
	    TEST(test_many_idle_connections),
	    TEST(test_restarted_peer_still_gets_in),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s PATH-OF-WEIR-CONTROL\n", argv[0]);
		return 2;
	}
	binary = argv[1];
	return cmocka_run_group_tests_name("control_stranger", tests, NULL, NULL);
}
