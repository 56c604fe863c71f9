/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors that programs send along where nobody expects any: a socket that lingers for an hour
 * in whoever closes it last. Where the kernel lets sockets refuse descriptors, and as before that.
 */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static const struct fake_config plain = {.engines = 2, .sockets = true, .node = 7};
static const struct fake_config threads = {
    .engines = 2, .sockets = true, .node = 7, .socket_threads = true};

static bool
kernel_refuses(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool refuses = weir_refuse_descriptors(fd);

	close(fd);
	return refuses;
}

/* close() takes an hour: what it has sent stays unread. *peer keeps it so. */
static int
lingering(int *peer)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger hour = {.l_onoff = 1, .l_linger = 3600};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, small = 4096;
	socklen_t length = sizeof(a);
	static const char bytes[65536];

	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &length), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	*peer = accept(listener, NULL, NULL);
	close(listener);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
	return fd;
}

/* With its greeting, with a request, unread when it hangs up: nobody else waits. */
static void
try_all(const struct fake_config *config, bool refused)
{
	struct weir_session_msg m = hello(), bye = {.type = WEIR_MSG_BYE};
	unsigned fds_before = fake_open_fds();
	struct fake *f = fake_open(config);
	int honest = attach(f);

	for (unsigned i = 0; i < 9; i++) {
		int peer, fd = lingering(&peer), other;
		int program = i % 3 == 1 ? attach(f) : dial(f, "session.sock");
		int rc = send_descriptor(program, &m, i % 3 == 2 ? 3 : m.length, fd);

		assert_int_equal(rc, refused ? -EPERM : 0);
		if (refused) /* it is still ours */
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){0},
				   sizeof(struct linger));
		close(fd); /* else it is the data plane's now */
		if (i >= 3)
			close(program);
		other = attach(f);
		assert_int_equal(
		    call(f, honest,
			 (struct weir_session_msg){.type = WEIR_MSG_FIND, .find.service = "x"},
			 NULL)
			.type,
		    WEIR_MSG_FOUND);
		assert_int_equal(call(f, other, bye, NULL).type, WEIR_MSG_OK);
		close(other);
		if (i < 3)
			close(program);
		close(peer);
	}
	close(honest);
	fake_close(f);
	assert_int_equal(fake_open_fds(), fds_before);
}

TEST(test_refused)
{
	if (kernel_refuses())
		try_all(&plain, true);
}

TEST(test_threads)
{
	try_all(&threads, false);
}

/* Each end rings the other once, however often, and takes no descriptor. */
static void
try_bell(struct weir_bell bell[2])
{
	for (unsigned i = 0; i < 2; i++) {
		struct weir_bell a = weir_bell_of(bell[i].wait, bell[i].ring);
		struct weir_bell b = bell[1 - i];
		struct pollfd p = {b.wait, POLLIN, 0};

		assert_int_equal(a.queue, b.queue);
		assert_int_equal(poll(&p, 1, 0), 0);
		/* the other end's flags are its own */
		fcntl(b.wait, F_SETFL, fcntl(b.wait, F_GETFL) & ~O_NONBLOCK);
		for (unsigned k = 0; k < 1000; k++)
			weir_bell_ring(&a);
		assert_int_equal(poll(&p, 1, 0), 1);
		fcntl(b.wait, F_SETFL, fcntl(b.wait, F_GETFL) | O_NONBLOCK);
		for (unsigned k = 0; k < 1000 && poll(&p, 1, 0); k++)
			weir_bell_drain(&b);
		assert_int_equal(poll(&p, 1, 0), 0);
		assert_int_equal(send_descriptor(a.ring, "x", 1, 0), a.queue ? -ENOTSOCK : -EPERM);
		assert_int_equal(poll(&p, 1, 0), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		weir_bell_close(&bell[i]);
}

TEST(test_bells)
{
	unsigned fds_before = fake_open_fds();
	struct weir_bell bell[2];

	assert_int_equal(weir_bell_open(bell), 0);
	assert_int_equal(bell[0].queue, !kernel_refuses());
	try_bell(bell);
	assert_int_equal(weir_bell_open_queues(bell), 0);
	assert_true(bell[0].queue && bell[1].queue);
	try_bell(bell);
	assert_int_equal(fake_open_fds(), fds_before);
}

/* A page that never comes, unless it is let go: whoever writes out of it holds the file's inode. */
struct stuck {
	int memory, uffd;
	char *page;
	pthread_t thread;
};

static void *
write_stuck(void *arg)
{
	struct stuck *s = arg;

	assert_int_equal(pwrite(s->memory, s->page, 64, 0), 64);
	return NULL;
}

static bool
stick(struct stuck *s, int memory)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.range.len = 4096, .mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffd_msg fault;

	s->memory = memory;
	s->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (s->uffd < 0)
		return false;
	s->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (uintptr_t)s->page;
	assert_int_equal(ioctl(s->uffd, UFFDIO_API, &api), 0);
	assert_int_equal(ioctl(s->uffd, UFFDIO_REGISTER, &range), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, write_stuck, s), 0);
	/* the fault: it has the inode now */
	assert_int_equal(read(s->uffd, &fault, sizeof(fault)), sizeof(fault));
	return true;
}

static void
let_go(struct stuck *s)
{
	struct uffdio_zeropage zero = {.range = {(uintptr_t)s->page, 4096}};

	assert_int_equal(ioctl(s->uffd, UFFDIO_ZEROPAGE, &zero), 0);
	pthread_join(s->thread, NULL);
	munmap(s->page, 4096);
	close(s->uffd);
}

/* Connections come and go on memory whose inode a program holds. */
TEST(test_locked_inode)
{
	struct fake *f = fake_open(&plain);
	struct weir_session_msg m = {.type = WEIR_MSG_SEGMENT}, r;
	int l = attach(f), c = attach(f), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct stuck s;
	bool stuck;

	add_channels(f, l);
	add_channels(f, c);
	listen_to(f, l);
	r = connect_to(f, c);
	m.segment.segment = r.connecting.segment;
	assert_int_equal(call(f, c, m, fds).type, WEIR_MSG_SEGMENT_MAP);
	stuck = stick(&s, fds[0]);
	for (unsigned i = 0; i < 10; i++)
		connect_to(f, c);
	close(c);
	fake_run(f);
	assert_int_equal(f->b->session_count, 1);
	if (stuck)
		let_go(&s);
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		close(fds[i]);
	close(l);
	fake_close(f);
	if (!stuck)
		skip();
}
