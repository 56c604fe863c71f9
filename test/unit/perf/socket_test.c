/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages over a socket: whole whatever the kernel takes and gives at a time, and lies refused. */
#include "socket.h"

#include "weir/stream.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct perf_socket a, b;

static int
setup(void **state)
{
	int fd[2], small = 4096;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		return -1;
	setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	perf_socket_init(&a, fd[0]);
	perf_socket_init(&b, fd[1]);
	return 0;
}

static int
teardown(void **state)
{
	perf_socket_fini(&a);
	perf_socket_fini(&b);
	return 0;
}

static void
test_messages(void **state)
{
	static const size_t sizes[] = {0, 1, 7, 4096, 100000, 3, (1 << 20) - 16, 0, 65536, 300000};
	static uint8_t out[1 << 20];
	const void *data;
	size_t length, sent = 0, received = 0, n = sizeof(sizes) / sizeof(sizes[0]);
	bool halfway = false;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7 + i / 256);
	while (received < n) {
		if (sent < n) {
			int rc = perf_socket_send(&a, out + sent, sizes[sent]);

			assert_true(rc == 0 || rc == -EAGAIN);
			halfway |= rc && perf_socket_halfway(&a);
			sent += rc == 0;
		}
		while (perf_socket_recv(&b, &data, &length) == 0) {
			assert_int_equal(length, sizes[received]);
			assert_memory_equal(data, out + received, length);
			received++;
		}
	}
	assert_true(halfway);
	assert_int_equal(perf_socket_recv(&b, &data, &length), -EAGAIN);
}

static void
test_ends(void **state)
{
	uint32_t head = 8;
	const void *data;
	size_t length;

	assert_int_equal(perf_socket_send(&a, "last", 4), 0);
	assert_int_equal(shutdown(a.fd, SHUT_WR), 0);
	assert_int_equal(perf_socket_recv(&b, &data, &length), 0);
	assert_int_equal(length, 4);
	assert_int_equal(perf_socket_recv(&b, &data, &length), -ESHUTDOWN);
	/* within a message */
	assert_int_equal(send(b.fd, &head, sizeof(head), 0), sizeof(head));
	assert_int_equal(shutdown(b.fd, SHUT_WR), 0);
	assert_int_equal(perf_socket_recv(&a, &data, &length), -ECONNRESET);
	assert_int_equal(perf_socket_send(&b, "x", 1), -EPIPE);
}

static void
test_longer_than_any(void **state)
{
	uint32_t head = WEIR_STREAM_MESSAGE_MAX + 1;
	const void *data;
	size_t length;

	assert_int_equal(send(a.fd, &head, sizeof(head), 0), sizeof(head));
	assert_int_equal(perf_socket_recv(&b, &data, &length), -EPROTO);
}

static void
test_addresses(void **state)
{
	static const char *const wrong[] = {"", "here:7", "127.0.0.1:x", "[::1", "127.0.0.1:70000"};
	int fd = perf_socket_listen("0");

	assert_true(fd >= 0);
	close(fd);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_true(perf_socket_connect(wrong[i]) < 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_messages, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_longer_than_any, setup, teardown),
	    cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
