/* SPDX-License-Identifier: BSD-3-Clause */
/* session.sock from the library's side: a data plane that says it is at work is waited for. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/transport.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[64];
static int listener;

/* Reads a request, answers with `waits` times WAIT and then REFUSED. */
static void *
serve(void *arg)
{
	unsigned waits = *(const unsigned *)arg;
	struct weir_session_msg m = {.type = WEIR_MSG_WAIT};
	int fd = accept(listener, NULL, NULL);

	if (recv(fd, &m, sizeof(m), 0) > 0) {
		m.type = WEIR_MSG_WAIT;
		m.length = weir_session_length(m.type);
		while (waits--)
			send(fd, &m, m.length, MSG_NOSIGNAL);
		m = (struct weir_session_msg){.type = WEIR_MSG_REFUSED,
					      .length = weir_session_length(WEIR_MSG_REFUSED)};
		m.refused.code = ENOSPC;
		send(fd, &m, m.length, MSG_NOSIGNAL);
	}
	close(fd);
	return NULL;
}

static void
test_wait_is_no_answer(void **state)
{
	struct weir_session_msg m = {.type = WEIR_MSG_BYE, .length = 8}, r = {0};

	for (unsigned waits = 0; waits < 4; waits++) {
		struct weir_transport t;
		int fds[WEIR_SESSION_FDS] = {-1, -1};
		pthread_t server;

		assert_int_equal(pthread_create(&server, NULL, serve, &waits), 0);
		assert_int_equal(weir_socket_open("one", &t), 0);
		assert_int_equal(t.request(t.user, &m, &r, fds), 0);
		assert_int_equal(r.type, WEIR_MSG_REFUSED);
		assert_int_equal(r.refused.code, ENOSPC);
		/* and when it is gone, it is */
		assert_int_equal(t.request(t.user, &m, &r, fds), -ENODEV);
		pthread_join(server, NULL);
		t.close(t.user);
	}
}

/* It goes before it has read a request, or before one is sent: what it said last is heard. */
static void *
evict(void *arg)
{
	struct weir_session_msg m = {.type = WEIR_MSG_REFUSED,
				     .length = weir_session_length(WEIR_MSG_REFUSED)};
	struct weir_transport *t = arg;
	int fd = accept(listener, NULL, NULL);

	if (t)
		send((int)(intptr_t)t->user, &m, m.length, 0); /* what is never read */
	m.refused.code = ECONNABORTED;
	send(fd, &m, m.length, MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

static void
test_last_word(void **state)
{
	struct weir_session_msg m = {.type = WEIR_MSG_BYE, .length = 8}, r;

	for (int unread = 0; unread < 2; unread++) {
		struct weir_transport t;
		int fds[WEIR_SESSION_FDS] = {-1, -1};
		pthread_t server;

		assert_int_equal(weir_socket_open("one", &t), 0);
		assert_int_equal(pthread_create(&server, NULL, evict, unread ? &t : NULL), 0);
		pthread_join(server, NULL);
		r.type = 0;
		assert_int_equal(t.request(t.user, &m, &r, fds), 0);
		assert_int_equal(r.type, WEIR_MSG_REFUSED);
		assert_int_equal(r.refused.code, ECONNABORTED);
		assert_int_equal(t.request(t.user, &m, &r, fds), -ENODEV);
		t.close(t.user);
	}
}

static int
set_up(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(dir, sizeof(dir), "/tmp/weir-client-XXXXXX");
	if (!mkdtemp(dir) || setenv("WEIR_RUN_DIR", dir, 1))
		return -1;
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/one", dir);
	if (mkdir(a.sun_path, 0700))
		return -1;
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/one/session.sock", dir);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return bind(listener, (struct sockaddr *)&a, sizeof(a)) || listen(listener, 4);
}

static int
tear_down(void **state)
{
	char path[96];

	close(listener);
	snprintf(path, sizeof(path), "%s/one/session.sock", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/one", dir);
	rmdir(path);
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_wait_is_no_answer),
	    cmocka_unit_test(test_last_word),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
