/* SPDX-License-Identifier: BSD-3-Clause */
/* A member that lies about others, and what it can cost those: little, and nothing for good. */
#define _GNU_SOURCE
#include "port.h"
#include "rounds.h"
#include "stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROGUE 9u /* its id */
#define INVENTED 47000u
#define DIALS_AT_ONCE 64 /* CONTROL_DIALS, CONTROL_DIAL_MS */
#define DIAL_MS 50

static char at_b[32];

// Node 1 (A) and 2 (B), without a list, are up.
static int
setup(void **state)
{
	fake_setup(state);
	snprintf(at_b, sizeof(at_b), "127.0.0.1:%u", fake_control[B].port);
	for (int i = 0; i < 2; i++) {
		fake_dp_start(i, 100 + i);
		fake_control[i].node = i == A ? "1" : "2";
		fake_control[i].join = at_b;
		fake_control_start(i);
	}
	AWAIT(fake_dp[A].told[2][WEIR_NODE_UP] && fake_dp[B].told[1][WEIR_NODE_UP], LONG);
	return 0;
}

// Connected with B, as a member.
static struct stranger
enter(void)
{
	struct stranger s = knock_as(B, NULL);
	struct control_msg m = hello(ROGUE);
	uint8_t data[4096];

	say_msg(s, &m);
	AWAIT(recv(s.fd, data, sizeof(data), MSG_DONTWAIT) > 0, LONG);
	return s;
}

static void
tell(struct stranger s, const struct control_msg *m)
{
	uint8_t heard[4096];

	say_msg(s, m);
	while (recv(s.fd, heard, sizeof(heard), MSG_DONTWAIT) > 0)
		;
}

// Where the invented nodes are said to be: dials that came in.
static unsigned
dials(int listener)
{
	unsigned n = 0;
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		close(fd);
		n++;
	}
	return n;
}

static int
listen_at(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1024), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	*port = ntohs(at.sin_port);
	return fd;
}

// Tells B of ids from `first` on, all at this port.
static void
invent(struct stranger s, uint16_t first, uint16_t port)
{
	static struct control_msg m;

	m.type = CONTROL_SWIM;
	m.swim.msg = (struct swim_msg){.type = SWIM_SYNC, .count = SWIM_RECORDS};
	for (uint16_t i = 0; i < SWIM_RECORDS; i++) {
		m.swim.msg.record[i] = (struct swim_record){.id = first + i,
							    .status = SWIM_ALIVE,
							    .run = 1 + first + i,
							    .version = SWIM_UP + 1};
		m.swim.info[i] = (struct node_info){.dp.state = DP_UNKNOWN};
		snprintf(m.swim.info[i].control, sizeof(m.swim.info[i].control), "127.0.0.1:%u",
			 port);
	}
	tell(s, &m);
}

// 47,000 nodes that are none: few are taken up, few are dialled, and who is one is let in.
static void
test_invented_nodes(void **state)
{
	uint64_t begin, cpu, passed;
	struct stranger s;
	unsigned n = 0;
	uint16_t port;
	int listener = listen_at(&port);

	s = enter();
	begin = now_ms();
	for (uint32_t id = 1000; id < 1000 + INVENTED; id += SWIM_RECORDS)
		invent(s, (uint16_t)id, port);
	/* the listener's queue is shorter than what may come */
	AWAIT((n += dials(listener),
	       fake_log_count(B,
			      "ignored statements of node 9 about others: too many nodes that have "
			      "not spoken with this one")),
	      LONG);
	cpu = fake_cpu_ms(fake_control[B].pid);
	for (passed = now_ms(); now_ms() - passed < 3000; n += dials(listener))
		fake_pump(50);
	passed = now_ms() - begin;
	printf("control: %llu ms of CPU in 3 s, %u dials in %llu ms\n",
	       (unsigned long long)(fake_cpu_ms(fake_control[B].pid) - cpu), n,
	       (unsigned long long)passed);
	// A has heard of them from B, and dials too.
	assert_in_range(n, 1, 2 * (DIALS_AT_ONCE + passed / DIAL_MS + 1));
	// Another life of node 1 is found as ever.
	fake_control_kill(A, SIGKILL);
	fake_control_start(A);
	AWAIT(fake_log_count(A, "node 2 is up") == 2, LONG);
	leave(s);
	close(listener);
}

static void
lie(struct stranger s, enum swim_status status, uint64_t version)
{
	static struct control_msg m;

	m.type = CONTROL_SWIM;
	m.swim.msg = (struct swim_msg){.type = SWIM_NEWS, .count = 1};
	m.swim.msg.record[0] =
	    (struct swim_record){.id = 1, .status = status, .run = 5, .version = version};
	m.swim.info[0] = (struct node_info){.dp.state = DP_DOWN, .dp.incarnation = 100};
	snprintf(m.swim.info[0].control, sizeof(m.swim.info[0].control), "127.0.0.1:%u",
		 fake_control[A].port);
	tell(s, &m);
}

// Node 1 has left, it says, or has no data plane: the link with it lives, and node 1 says
// otherwise.
static void
test_lies_about_a_node(void **state)
{
	struct weir_ctl_msg offer = fake_offer(B, A, 1, 1);
	struct stranger s;

	fake_dp_send(B, &offer);
	AWAIT(fake_dp[A].links, LONG);
	s = enter();
	lie(s, SWIM_LEFT, SWIM_VERSION_MAX);
	AWAIT(fake_log_count(B,
			     "ignored statements of node 9 about others: its version is far ahead "
			     "of this host's clock"),
	      LONG);
	lie(s, SWIM_LEFT, SWIM_UP + (UINT64_C(1) << 42));
	AWAIT(fake_log_count(B, "node 1: says node 9, it has left; its links live"), LONG);
	AWAIT(fake_dp[B].told[1][WEIR_NODE_SUSPECT] == 1 && fake_dp[B].told[1][WEIR_NODE_UP] == 2,
	      LONG);
	lie(s, SWIM_ALIVE, SWIM_UP + (UINT64_C(1) << 42) + 1000);
	AWAIT(fake_log_count(B, "node 1: says node 9, it has lost its data plane"), LONG);
	fake_pump(1000);
	SURELY(fake_dp[B].told[1][WEIR_NODE_DOWN] == 0);
	SURELY(fake_dp[B].node[1].state == WEIR_NODE_UP && fake_dp[B].node[1].incarnation == 100);
	leave(s);
}

int
main(int argc, char **argv)
{
#define TEST(name) ROUNDS(name, setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_invented_nodes),
	    TEST(test_lies_about_a_node),
	};

	return FAKE_MAIN("control_rogue", tests);
}
