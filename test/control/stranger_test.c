/* SPDX-License-Identifier: BSD-3-Clause */
/* Strangers at the control port are refused, and members do not notice them. */
#define _GNU_SOURCE
#include "port.h"
#include "rounds.h"
#include "stranger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#define MEMORY_KIB (1 << 20) /* what was freed is kept for a while */
#else
#define MEMORY_KIB 8192 /* that strangers, or a member, may have a control take */
#endif

static const char *badge; /* certificates of any node; NULL: plain TCP */

// Node 2 (B) is the one that is dialled; A and B are up while strangers try.
static int
setup(void **state)
{
	fake_setup(state);
	fake_control[A].tls = badge ? certificate_path("1") : NULL;
	fake_control[B].tls = badge ? certificate_path("2") : NULL;
	fake_control[B].metrics = port_take();
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
	fake_teardown(state);
	// Whatever happened: the two have not lost sight of each other.
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_UP], 1);
	return 0;
}

static void
expect_refusal(const struct control_msg *m, const char *why)
{
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(m, data, sizeof(data));
	const char *said = answer_to(B, badge, data, n);

	if (strstr(said, why))
		return;
	// Whether a node is connected may be another matter by now.
	if (!strstr(why, "connected already"))
		rounds_broken();
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
	    "\0\0\0\2\x32\0",	    // a bye before hello
	    "\0\0\4\1",		    // a hello of 1025 bytes
	};
	static const size_t length[] = {27, 4, 5, 5, 6, 4};
	static const char *const why[] = {"not a control message",
					  "not a control message",
					  "it speaks TLS, which is not spoken here",
					  "malformed message",
					  "first message is not hello",
					  "not a control message"};

	for (int i = 0; i < 6; i++) {
		const char *said = answer_to(B, badge, nonsense[i], length[i]);

		if (!strstr(said, why[i])) {
			rounds_broken();
			fail_msg("case %d: '%s'", i, said);
		}
	}
	assert_true(fake_log_count(B, "refused a connection from 127.0.0.1:") >= 1);
}

static void
test_wrong_hello(void **state)
{
	struct control_msg m = hello(1);
	char versions[WEIR_VERSION_WHY];

	m.hello.versions = (struct weir_versions){CONTROL_VERSION + 1, CONTROL_VERSION + 2};
	snprintf(versions, sizeof(versions),
		 "this weir-control speaks version %u of the control protocol, the other version "
		 "%u to %u; upgrade this weir-control, which is older",
		 CONTROL_VERSION, CONTROL_VERSION + 1, CONTROL_VERSION + 2);
	expect_refusal(&m, versions);
	m.hello.versions = (struct weir_versions){CONTROL_VERSION - 1, CONTROL_VERSION - 1};
	expect_refusal(&m, "upgrade the other, which is older");
	// One in common suffices; what is wrong then is something else.
	m = hello(3);
	m.hello.versions = (struct weir_versions){CONTROL_VERSION - 1, CONTROL_VERSION + 1};
	expect_refusal(&m, "node 3 is not in the peers file of node 2");
	m = hello(1);
	snprintf(m.hello.cluster, sizeof(m.hello.cluster), "other");
	expect_refusal(&m, badge ? "node 1 of 'other' shows a certificate of weir://default; "
				   "check its --tls"
				 : "cluster is 'default' here, 'other' there; check --cluster");
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
	struct stranger s = knock_as(B, badge);

	for (size_t i = 0; i < n; i++) {
		say(s, data + i, 1);
		fake_pump(2);
	}
	assert_non_null(strstr(reason(s), "node 3 is not in the peers file"));
}

// How many of them the other end has not closed.
static unsigned
still_open(const int *fds, int count)
{
	unsigned open = 0;

	for (int i = 0; i < count; i++) {
		struct pollfd p = {fds[i], POLLIN, 0};

		open += poll(&p, 1, 0) == 0;
	}
	return open;
}

static void
test_slow_handshake(void **state)
{
	uint64_t begin = now_ms();
	struct stranger s = knock_as(B, badge);

	(void)try_say(s, "\0\0", 2);
	assert_non_null(strstr(reason(s), "handshake not done"));
	assert_in_range(now_ms() - begin, 1500, 6000);
}

// Each byte comes in time, the whole doesn't.
static void
test_trickle(void **state)
{
	struct control_msg m = hello(3);
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(&m, data, sizeof(data));
	uint64_t begin = now_ms();
	struct stranger s = knock_as(B, badge);

	for (size_t i = 0; i + 1 < n && now_ms() - begin < 6000; i++) {
		fake_pump(200);
		if (!try_say(s, data + i, 1))
			break;
	}
	assert_in_range(now_ms() - begin, 1500, 6000);
	leave(s);
}

static void
test_many_half_open(void **state)
{
	enum { MANY = 1000 };
	static int fds[MANY];
	struct control_msg m = hello(3);
	unsigned long before = resident(fake_control[B].pid);
	unsigned open = 0;
	bool soon = false;

	for (int i = 0; i < MANY; i++) {
		fds[i] = knock(B);
		if (i % 16 == 0)
			fake_pump(1);
		// The oldest make room, long before their time is over.
		if (i == 100)
			for (uint64_t end = now_ms() + 1500; !soon && now_ms() < end;) {
				fake_pump(10);
				soon = still_open(fds, 100) <= 32;
			}
	}
	// They don't keep others out.
	expect_refusal(&m, "node 3 is not in the peers file");
	AWAIT((open = still_open(fds, MANY)) <= 32, LONG);
	assert_in_range(open, 1, 32);
	assert_in_range(resident(fake_control[B].pid), 1, before + MEMORY_KIB);
	AWAIT(still_open(fds, MANY) == 0, LONG);
	SURELY(fake_log_count(B, "too many connections wait for their handshake"));
	assert_true(soon);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
}

static int
ask_metrics(int i)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				.sin_port = htons(fake_control[i].metrics)};
	static const char request[] = "GET / HTTP/1.1\r\n\r\n";
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(send(fd, request, sizeof(request) - 1, 0), sizeof(request) - 1);
	return fd;
}

// It says so, doesn't spin, and lets in who waits when there are some again.
static void
test_out_of_descriptors(void **state)
{
	pid_t pid = fake_control[B].pid;
	struct control_msg m = hello(3);
	struct rlimit before, few;
	char answer[32] = {0};
	bool said = false;
	uint64_t cpu;
	int fd[2];

	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
	few = before;
	few.rlim_cur = 3;
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &few, NULL), 0);
	cpu = fake_cpu_ms(pid);
	fd[0] = knock(B);
	fd[1] = ask_metrics(B);
	for (uint64_t end = now_ms() + LONG; !said && now_ms() < end; fake_pump(10))
		said = fake_log_count(B, "cannot accept connections at --listen: Too many open") &&
		       fake_log_count(B, "cannot accept connections at --metrics: Too many open");
	SURELY(said);
	fake_pump(2000);
	assert_in_range(fake_cpu_ms(pid) - cpu, 0, 1000);
	assert_int_equal(still_open(fd, 2), 2);
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &before, NULL), 0);
	AWAIT(still_open(fd + 1, 1) == 0, LONG);
	assert_in_range(recv(fd[1], answer, sizeof(answer) - 1, 0), 1, sizeof(answer));
	assert_non_null(strstr(answer, "HTTP/1.1 404"));
	close(fd[0]);
	close(fd[1]);
	expect_refusal(&m, "node 3 is not in the peers file of node 2");
}

// A member, in A's place, that breaks the rules: B gets rid of it.
static struct stranger
be_member(void)
{
	struct control_msg m = hello(1);
	unsigned nodes = fake_dp[B].told[1][WEIR_NODE_UP];
	struct stranger s;

	assert_int_equal(fake_control_stop(A), 0);
	fake_pump(100);
	s = knock_as(B, badge);
	m.hello.info.dp.incarnation = 101 + nodes;
	say_msg(s, &m);
	AWAIT(fake_dp[B].node[1].incarnation == 101 + nodes, LONG);
	return s;
}

// A returns; resets the counts that teardown looks at.
static void
come_back(void)
{
	unsigned up = fake_log_count(A, "node 2 is up");

	fake_control_start(A);
	AWAIT(fake_log_count(A, "node 2 is up") == up + 1, LONG);
	fake_pump(100);
	fake_dp[B].told[1][WEIR_NODE_SUSPECT] = 0;
	fake_dp[B].told[1][WEIR_NODE_UP] = 1;
	fake_dp[A].told[2][WEIR_NODE_SUSPECT] = 0;
}

static void
test_members_that_misbehave(void **state)
{
	static const uint8_t oversized[] = {0, 1, 0, 1}, garbage[64] = {0, 0, 0, 60, 0xff};
	static const struct control_msg beat = {.type = CONTROL_SWIM, .swim.msg.type = SWIM_NEWS};
	struct control_msg m = hello(1);
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(&m, data, sizeof(data));
	struct stranger s = be_member();

	// a second hello
	say(s, data, n);
	assert_string_equal(reason(s), "a second hello");
	come_back();
	s = be_member();
	say(s, oversized, sizeof(oversized));
	assert_string_equal(reason(s), "not a control message");
	come_back();
	s = be_member();
	say(s, garbage, sizeof(garbage));
	assert_string_equal(reason(s), "malformed message");
	come_back();
	// byte by byte is slow, and nothing more: who is heard is alive
	s = be_member();
	n = control_msg_encode(&beat, data, sizeof(data));
	for (int round = 0; round < 40; round++)
		for (size_t i = 0; i < n; i++) {
			say(s, data + i, 1);
			fake_pump(3);
		}
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_SUSPECT], 0);
	leave(s);
	come_back();
}

// It has B say much and takes nothing of it.
static void
test_member_that_never_reads(void **state)
{
	struct weir_ctl_msg resync = {.type = WEIR_CTL_RESYNC};
	static const struct control_msg beat = {.type = CONTROL_SWIM, .swim.msg.type = SWIM_NEWS};
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(&beat, data, sizeof(data));
	unsigned long before = resident(fake_control[B].pid);
	struct stranger s = be_member();
	unsigned sent = 0;

	resync.link_down.node = 2;
	resync.link_down.peer_node = 1;
	resync.link_down.status = ECONNRESET;
	// On a busy machine it may be noticed first that it doesn't answer either.
	while (!fake_log_count(B, "it reads nothing") &&
	       !fake_log_count(B, "node 1: connection closed after long silence")) {
		(void)try_say(s, data, n);
		for (int i = 0; i < 5000; i++, sent++)
			fake_dp_send(B, &resync);
		assert_in_range(sent, 0, 2000000);
	}
	assert_in_range(resident(fake_control[B].pid), 1, before + MEMORY_KIB);
	leave(s);
	come_back();
}

static void
test_restarted_peer_still_gets_in(void **state)
{
	struct control_msg offer = {.type = CONTROL_LINK_OFFER};
	struct weir_ctl_msg m = fake_offer(A, B, 1, 0);
	uint8_t data[2 * CONTROL_ENCODED_MAX];
	struct control_msg h = hello(1);
	size_t n;
	struct stranger s;

	// In place of A: a member that is let in, and then breaks the rules.
	assert_int_equal(fake_control_stop(A), 0);
	fake_pump(100);
	s = knock_as(B, badge);
	offer.link = m.link;
	n = control_msg_encode(&h, data, sizeof(data));
	n += control_msg_encode(&offer, data + n, sizeof(data) - n);
	say(s, data, n);
	AWAIT(fake_dp[B].links == 1, LONG);
	assert_memory_equal(&fake_dp[B].link, &m.link, sizeof(m.link));
	// Offers of another life of A, or for another life of B, are dropped.
	offer.link.attempt = 2;
	offer.link.incarnation = 99;
	n = control_msg_encode(&offer, data, sizeof(data));
	offer.link = m.link;
	offer.link.attempt = 3;
	offer.link.peer_incarnation = 99;
	n += control_msg_encode(&offer, data + n, sizeof(data) - n);
	offer.link = m.link;
	offer.link.attempt = 4;
	say(s, data, n);
	say_msg(s, &offer);
	AWAIT(fake_dp[B].link.attempt == 4 || fake_dp[B].links > 1, LONG);
	SURELY(fake_dp[B].link.attempt == 4 && fake_dp[B].links == 2);
	offer.link.node = 3;
	say_msg(s, &offer);
	fake_pump(300);
	assert_int_equal(fake_dp[B].links, 2);
	leave(s);
	come_back();
}

#define ANOTHER_USER 12345

static size_t
other_hello(uint8_t *data, size_t size)
{
	struct control_msg m = hello(1);

	m.hello.info.dp.incarnation = 555;
	return control_msg_encode(&m, data, size);
}

// A control's place, while it is away, taken by another user's process: it is dialled and answers.
static void
answer_in_its_place(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint8_t data[CONTROL_ENCODED_MAX], heard[4096];
	size_t n = other_hello(data, sizeof(data));
	int one = 1, fd, dialled;

	at.sin_port = htons(fake_control[A].port);
	assert_int_equal(seteuid(ANOTHER_USER), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1), 0);
	AWAIT((dialled = accept(fd, NULL, NULL)) >= 0, LONG);
	assert_int_equal(seteuid(0), 0);
	AWAIT(recv(dialled, heard, sizeof(heard), MSG_DONTWAIT) > 0, LONG);
	assert_int_equal(send(dialled, data, n, MSG_NOSIGNAL), (ssize_t)n);
	AWAIT(fake_log_count(B, "is not connected: it runs as user 12345"), LONG);
	close(dialled);
	close(fd);
}

// Without certificates whoever can reach the port can say anything: on loopback another user can't.
static void
test_another_user(void **state)
{
	uint8_t data[CONTROL_ENCODED_MAX];
	struct stranger s;

	if (geteuid() || badge)
		skip();
	fake_control_kill(A, SIGKILL);
	AWAIT(fake_log_count(B, "node 1: connection to its control ended"), LONG);
	for (int i = 0; i < 4; i++) {
		size_t n = other_hello(data, sizeof(data));

		// It looks late: no process has the socket by then.
		if (i % 2)
			fake_control_kill(B, SIGSTOP);
		assert_int_equal(seteuid(ANOTHER_USER), 0);
		s.fd = knock(B);
		s.ssl = NULL;
		assert_int_equal(seteuid(0), 0);
		say(s, data, n);
		if (i % 2) {
			leave(s);
			fake_pump(300);
			fake_control_kill(B, SIGCONT);
			AWAIT(fake_log_count(B, "its process has closed the connection already") ||
				  fake_dp[B].node[1].incarnation == 555,
			      LONG);
			SURELY(fake_dp[B].node[1].incarnation == 100);
		} else {
			assert_non_null(strstr(reason(s), "it runs as user 12345, this control "
							  "as user 0; run both as one user"));
		}
	}
	answer_in_its_place();
	SURELY(fake_dp[B].node[1].incarnation == 100);
	come_back();
}

int
main(int argc, char **argv)
{
#define TEST(name) ROUNDS(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_nonsense),
	    TEST(test_wrong_hello),
	    TEST(test_byte_by_byte),
	    TEST(test_slow_handshake),
	    TEST(test_trickle),
	    TEST(test_many_half_open),
	    TEST(test_out_of_descriptors),
	    TEST(test_members_that_misbehave),
	    TEST(test_member_that_never_reads),
	    TEST(test_restarted_peer_still_gets_in),
	    TEST(test_another_user),
	};

	int failed;

	if (argc > 2) {
		make_certificates();
		badge = certificate_path("any");
	}
	failed = FAKE_MAIN("control_stranger", tests);
	if (argc > 2)
		remove_certificates();
	return failed;
}
