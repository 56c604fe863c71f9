/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork() while other threads use the library: the child has nothing of the parent's, not even its
 * sockets and locks, and may attach.
 */
#include "worlds/stream_pair.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool over;

static void
slowly(struct weir_thread *t)
{
	usleep(200);
}

/* Keeps the lock of all thread objects nearly always. */
static void *
hold_lock(void *arg)
{
	while (!atomic_load(&over)) {
		weir_threads_each(arg, slowly);
		usleep(100); /* mutexes aren't fair: others might never get it */
	}
	return NULL;
}

/* A data plane of the child's own, two programs, a message. */
static int
live(void)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);

	pair_pass(&p, p.c, p.d, 1, 500);
	pair_pass(&p, p.d, p.c, 2, 50000);
	pair_close(&p);
	return 0;
}

/* In the child. */
static int
check_child(struct pair *p, int fd)
{
	char buf[8];
	size_t n;

	alarm(120); /* a lock that nobody gives back */
	if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
		return 2;
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* takes the number that is free now */
	if (weir_recv(p->d, buf, sizeof(buf), &n, -1) != -ENOTCONN ||
	    weir_send(p->c, "x", 1, -1) != -ENOTCONN)
		return 3;
	weir_detach(p->a);
	if (fcntl(fd, F_GETFD) < 0)
		return 4; /* detach closed somebody else's file */
	return live();
}

static void
test_fork(void **state)
{
	static const struct plane_options o = {.watched = true};
	struct pair p = pair_open(PLANE_LOCAL, &o, false);
	int fd = p.a->transport.fd, status;
	pthread_t t;

#ifdef __SANITIZE_ADDRESS__
	/* GCC 12's allocator keeps a lock that another thread holds at fork(): the child hangs */
	pair_close(&p);
	skip();
#endif
	assert_true(fd >= 0);
	assert_int_equal(pthread_create(&t, NULL, hold_lock, p.a), 0);
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(check_child(&p, fd));
		pair_pass(&p, p.c, p.d, (uint32_t)i, 700);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		pair_pass(&p, p.d, p.c, (uint32_t)i, 70000);
	}
	atomic_store(&over, true);
	pthread_join(t, NULL);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	pair_close(&p);
}

/* A session that is gone is not closed once more. */
static void
test_after_detach(void **state)
{
	static const struct plane_options o = {.watched = true};
	struct pair p = pair_open(PLANE_LOCAL, &o, false);
	int fd = p.a->transport.fd, other, status;
	pid_t pid;

	pair_close(&p);
	other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (other != fd)
		assert_int_equal(dup2(other, fd), fd);
	pid = fork();
	if (!pid)
		_exit(fcntl(fd, F_GETFD) < 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_fork),
	    cmocka_unit_test(test_after_detach),
	};

	return cmocka_run_group_tests_name("stream_fork", tests, NULL, NULL);
}
