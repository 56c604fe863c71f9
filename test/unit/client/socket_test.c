/* SPDX-License-Identifier: BSD-3-Clause */
/* session.sock from the library's side: data planes at work, gone, or of another version. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/reason.h"
#include "client/transport.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static int listener;

static void
refuse(int fd, uint32_t code)
{
	struct weir_session_msg m = {.type = WEIR_MSG_REFUSED,
				     .length = weir_session_length(WEIR_MSG_REFUSED)};

	m.refused.code = code;
	send(fd, &m, m.length, MSG_NOSIGNAL);
}

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
		refuse(fd, ENOSPC);
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

/* Answers a HELLO with a WELCOME of the version. */
static void *
welcome(void *arg)
{
	struct weir_session_msg m;
	int fd = accept(listener, NULL, NULL);

	if (recv(fd, &m, sizeof(m), 0) > 0) {
		m = (struct weir_session_msg){.type = WEIR_MSG_WELCOME,
					      .length = weir_session_length(WEIR_MSG_WELCOME)};
		m.welcome.version = *(const uint32_t *)arg;
		send(fd, &m, m.length, MSG_NOSIGNAL);
	}
	close(fd);
	return NULL;
}

/* A data plane may choose only what the library has said that it speaks. */
static void
test_version(void **state)
{
	static const char *const older[] = {"upgrade weir-dataplane", "memory", "upgrade libweir"};
	struct weir_options o = {.size = sizeof(o), .instance = "one"};
	uint32_t version = WEIR_SESSION_VERSION - 1;
	struct weir *w;

	for (unsigned i = 0; i < 3; i++, version++) {
		pthread_t server;

		assert_int_equal(pthread_create(&server, NULL, welcome, &version), 0);
		assert_int_equal(weir_attach(&o, &w), -EPROTO);
		pthread_join(server, NULL);
		assert_non_null(strstr(weir_reason(), older[i]));
	}
}

static _Atomic uint32_t handled;
static pthread_t caller;

static void
on_signal(int signal)
{
	handled++;
}

/* Interrupts the caller until its HELLO's socket is closed, or thrice before it answers. */
static void *
interrupt(void *arg)
{
	struct weir_session_msg m = {.type = 0};
	int fd = accept(listener, NULL, NULL), *type = arg;

	if (recv(fd, &m, sizeof(m), 0) > 0) {
		*type = (int)m.type;
		for (int i = 0; m.type == WEIR_MSG_HELLO || i < 3; i++) {
			char byte;

			pthread_kill(caller, SIGUSR1);
			usleep(20000);
			if (!recv(fd, &byte, 1, MSG_DONTWAIT))
				break;
		}
		refuse(fd, ENOSPC);
	}
	close(fd);
	return NULL;
}

/* A handler ends weir_attach(); requests of a session, which have effects, are not interrupted. */
static void
test_interrupted(void **state)
{
	struct weir_session_msg m = {.type = WEIR_MSG_BYE, .length = 8}, r = {0};
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	const struct weir_options o = {.size = sizeof(o), .instance = "one"};
	int fds[WEIR_SESSION_FDS] = {-1, -1}, type = 0;
	struct weir_transport t;
	pthread_t server;
	struct weir *w;

	caller = pthread_self();
	sigaction(SIGUSR1, &a, NULL);
	assert_int_equal(pthread_create(&server, NULL, interrupt, &type), 0);
	assert_int_equal(weir_attach(&o, &w), -EINTR);
	assert_non_null(strstr(weir_reason(), "signal handler"));
	pthread_join(server, NULL);
	assert_int_equal(type, WEIR_MSG_HELLO);
	handled = 0;
	assert_int_equal(pthread_create(&server, NULL, interrupt, &type), 0);
	assert_int_equal(weir_socket_open("one", &t), 0);
	assert_int_equal(t.request(t.user, &m, &r, fds), 0);
	assert_int_equal(r.type, WEIR_MSG_REFUSED);
	assert_true(handled > 0);
	pthread_join(server, NULL);
	t.close(t.user);
}

/* The remedy for another user names the group that can be joined, or says that there is none. */
static void
test_not_admitted(void **state)
{
	static const gid_t group[] = {0, 4711};
	static const char *const remedy[] = {"have group weir made", "of its group (4711)"};
	char path[96];
	int status;

	if (geteuid() != 0)
		skip(); /* only root changes users */
	snprintf(path, sizeof(path), "%s/one", dir);
	assert_int_equal(chmod(dir, 0755) | chmod(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/one/session.sock", dir);
	for (unsigned i = 0; i < 2; i++) {
		pid_t child;

		assert_int_equal(chmod(path, 0660) | chown(path, 0, group[i]), 0);
		child = fork();
		if (!child) {
			struct weir_transport t;

			if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
				_exit(2);
			_exit(weir_socket_open("one", &t) != -EACCES ||
			      !strstr(weir_reason(), remedy[i]));
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
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
	    cmocka_unit_test(test_wait_is_no_answer), cmocka_unit_test(test_last_word),
	    cmocka_unit_test(test_version),	      cmocka_unit_test(test_interrupted),
	    cmocka_unit_test(test_not_admitted),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
