/* SPDX-License-Identifier: BSD-3-Clause */
/* The session socket: one packet out, one packet with descriptors in. */
#define _GNU_SOURCE
#include "reason.h"
#include "transport.h"
#include "wait.h"
#include "wake.h"

#include "ipc/path_check.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_NS 5000000000ull /* time limit of one answer */

/* Waits for events of fd. 0, -ETIMEDOUT, -errno; -EINTR only if `interruptible`. */
static int
wait_for(int fd, short events, uint64_t deadline, bool interruptible)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		uint64_t now = weir_clock();
		int n;

		if (now >= deadline)
			return -ETIMEDOUT;
		n = poll(&p, 1, (int)((deadline - now) / 1000000) + 1);
		if (n > 0)
			return 0;
		if (n < 0 && (errno != EINTR || interruptible))
			return -errno;
	}
}

static int
receive_packet(int fd, struct weir_session_msg *m, int fds[WEIR_SESSION_FDS], uint64_t deadline,
	       bool interruptible)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WEIR_SESSION_FDS * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;
	int rc;

	do {
		rc = wait_for(fd, POLLIN, deadline, interruptible);
		if (rc)
			return rc;
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		/* ECONNRESET is reported once, before the last message */
	} while (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET));
	if (n <= 0)
		return -ENODEV;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int received;

			memcpy(&received, CMSG_DATA(c) + i * sizeof(received), sizeof(received));
			if (i < WEIR_SESSION_FDS && fds[i] < 0)
				fds[i] = received;
			else
				close(received);
		}
	}
	if (!weir_session_check(m, (size_t)n))
		return 0;
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
	return -EPROTO;
}

static int
request(void *user, const struct weir_session_msg *m, struct weir_session_msg *reply,
	int fds[WEIR_SESSION_FDS])
{
	int fd = (int)(intptr_t)user;
	uint64_t deadline = weir_clock() + ANSWER_NS;
	/* a session that is not made yet ends with its socket; other requests have effects */
	bool interruptible = m->type == WEIR_MSG_HELLO;
	int rc = 0;

	while (!rc && send(fd, m, m->length, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)m->length) {
		if (errno == EINTR)
			continue;
		if (errno == EPIPE || errno == ECONNRESET)
			break; /* hung up: a last message may still be there */
		rc = errno == EAGAIN ? wait_for(fd, POLLOUT, deadline, interruptible) : -ENODEV;
	}
	while (!rc) {
		rc = receive_packet(fd, reply, fds, deadline, interruptible);
		if (rc || reply->type != WEIR_MSG_WAIT)
			break;
		deadline = weir_clock() + ANSWER_NS; /* the data plane is working on it */
	}
	/* a late answer would be taken for that to the next request */
	if (rc == -ETIMEDOUT)
		shutdown(fd, SHUT_RDWR);
	return rc;
}

static void
close_socket(void *user)
{
	close((int)(intptr_t)user);
}

static int
reopen(void *user, const char *instance, struct weir_transport *transport)
{
	return weir_socket_open(instance, transport);
}

/* Refuses by the permissions of the socket: the remedy follows from the group that owns it. */
static int
not_admitted(int rc, const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return weir_fail(rc, "%s: %s; ask for access to its directory", path,
				 strerror(-rc));
	if (st.st_gid == 0)
		return weir_fail(rc,
				 "%s: %s; it belongs to group root: have group weir made and "
				 "weir-dataplane restarted, or started with --allow user:%u",
				 path, strerror(-rc), (unsigned)geteuid());
	return weir_fail(rc, "%s: %s; ask for membership of its group (%u)", path, strerror(-rc),
			 (unsigned)st.st_gid);
}

int
weir_socket_open(const char *instance, struct weir_transport *transport)
{
	const char *dir =
	    secure_getenv("WEIR_RUN_DIR"); /* not set by the user of a set-uid program */
	char why[192];
	struct timeval patience = {.tv_sec = ANSWER_NS / 1000000000u};
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd, n, rc;

	n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s/session.sock",
		     dir && *dir ? dir : "/run/weir", instance);
	if (n < 0 || (size_t)n >= sizeof(a.sun_path))
		return weir_fail(-ENAMETOOLONG,
				 "the path of the session socket is too long; set a shorter "
				 "WEIR_RUN_DIR or instance name");
	rc = path_check(a.sun_path, PATH_AS_GIVEN, why, sizeof(why));
	if (rc)
		return weir_fail(rc, "%s", why);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return weir_fail(-errno, "no socket: %s; raise the limit of open files",
				 strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		rc = errno == EAGAIN ? -ETIMEDOUT : -errno; /* EAGAIN: its queue stayed full */
		close(fd);
		if (rc == -EINTR)
			return weir_interrupted();
		/* a killed data plane leaves a socket on which no process listens */
		if (rc == -ENOENT || rc == -ECONNREFUSED)
			return weir_fail(-ENOENT, "no data plane at %s; start weir-dataplane",
					 a.sun_path);
		if (rc == -EACCES || rc == -EPERM)
			return not_admitted(rc, a.sun_path);
		return weir_fail(rc, "%s: %s; see whether the data plane is stopped or overloaded",
				 a.sun_path, strerror(-rc));
	}
	*transport = (struct weir_transport){.request = request,
					     .close = close_socket,
					     .reopen = reopen,
					     .user = (void *)(intptr_t)fd,
					     .fd = fd};
	return 0;
}
