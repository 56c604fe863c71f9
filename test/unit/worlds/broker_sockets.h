/* SPDX-License-Identifier: BSD-3-Clause */
/* The other end of a broker's session.sock and control.sock. */
#ifndef TEST_BROKER_SOCKETS_H
#define TEST_BROKER_SOCKETS_H

#include "broker_fake.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

/* With other members of fake_config. */
#define WITH_SOCKETS(...)                                                                          \
	((const struct fake_config){.engines = 2, .sockets = true, .node = 7, __VA_ARGS__})

static const struct fake_config with_sockets = {.engines = 2, .sockets = true, .node = 7};

static inline int
dial(struct fake *f, const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", f->dir, name);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	fake_run(f);
	return fd;
}

/* Takes the next message: bytes, 0 = closed, -EAGAIN = nothing. Descriptors go to fds. */
static inline ssize_t
get(struct fake *f, int fd, void *m, size_t room, int fds[WEIR_SESSION_FDS])
{
	union {
		char room[CMSG_SPACE(WEIR_SESSION_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = m, .iov_len = room};
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof(control.room)};
	struct cmsghdr *c;
	ssize_t n;

	fake_run(f);
	n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	c = CMSG_FIRSTHDR(&h);
	if (fds && c)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

static inline struct weir_session_msg
hello(void)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_HELLO);

	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.versions = WEIR_SESSION_VERSIONS;
	m.hello.arena = 4 << 20;
	snprintf(m.hello.name, sizeof(m.hello.name), "prog");
	return m;
}

static inline struct weir_session_msg
call(struct fake *f, int fd, struct weir_session_msg m, int fds[WEIR_SESSION_FDS])
{
	struct weir_session_msg r = {0};
	ssize_t n;

	m.length = weir_session_length(m.type);
	assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
	while ((n = get(f, fd, &r, sizeof(r), fds)) == -EAGAIN) {
		poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1);
		f->now += 1000000; /* kicks of socket threads are due by this clock */
	}
	assert_true(n > 0);
	assert_int_equal(weir_session_check(&r, r.length), 0);
	return r;
}

static inline int
attach(struct fake *f)
{
	int fd = dial(f, "session.sock"), fds[WEIR_SESSION_FDS] = {-1, -1, -1};

	assert_int_equal(call(f, fd, hello(), fds).type, WEIR_MSG_WELCOME);
	close(fds[0]);
	return fd;
}

/* A channel per engine, for which the program keeps no bell. */
static inline void
add_channels(struct fake *f, int fd)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};
	int fds[WEIR_SESSION_FDS];

	for (; m.add_channel.engine < 2; m.add_channel.engine++) {
		assert_int_equal(call(f, fd, m, fds).type, WEIR_MSG_CHANNEL);
		close(fds[0]);
		close(fds[1]);
	}
}

/* Listens as service "s". */
static inline void
listen_to(struct fake *f, int fd)
{
	struct weir_session_msg m = {
	    .type = WEIR_MSG_LISTEN,
	    .listen = {.channel = {0, 1}, .backlog = 1000, .service = "s"}};

	assert_int_equal(call(f, fd, m, NULL).type, WEIR_MSG_LISTENING);
}

/* Connects to service "s" of this node. */
static inline struct weir_session_msg
connect_to(struct fake *f, int fd)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT}, r;

	m.connect.address =
	    (struct weir_address){.kind = WEIR_ADDRESS_NODE, .id = 7, .service = "s"};
	r = call(f, fd, m, NULL);
	assert_int_equal(r.type, WEIR_MSG_CONNECTING);
	return r;
}

/* Something to close for whoever takes it: 0 or -errno. */
static inline int
send_descriptor(int fd, const void *bytes, size_t length, int passed)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr head;
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec iov = {(void *)(uintptr_t)bytes, length};
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof(control.room)};

	memcpy(CMSG_DATA(&control.head), &passed, sizeof(passed));
	return sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* ---- what vandals send ---- */

static uint64_t seed;

static inline uint32_t
below(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

/* ---- control.sock ---- */

union ctl {
	struct weir_ctl_msg m;
	uint64_t room[WEIR_CTL_MAX / 8];
};

static inline void
ctl_send(int fd, struct weir_ctl_msg *m, uint32_t type)
{
	m->type = type;
	m->length = weir_ctl_length(type);
	assert_int_equal(send(fd, m, m->length, MSG_NOSIGNAL), m->length);
}

static inline int
ctl_open(struct fake *f, uint32_t role, union ctl *answer)
{
	int fd = dial(f, "control.sock");
	struct weir_ctl_msg m = {
	    .hello.versions = WEIR_CTL_VERSIONS, .hello.role = role, .hello.node = 7};

	ctl_send(fd, &m, WEIR_CTL_HELLO);
	assert_true(get(f, fd, answer, sizeof(*answer), NULL) > 0);
	assert_int_equal(weir_ctl_check(&answer->m, answer->m.length), 0);
	return fd;
}

#endif
