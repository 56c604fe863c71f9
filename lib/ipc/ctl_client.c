/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "ctl_client.h"
#include "invariant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LEAST_SECONDS 0.01 /* SO_RCVTIMEO: 0 would mean for ever */

int
weir_ctl_path(const char *instance, char *path, size_t size)
{
	const char *base = getenv("WEIR_RUN_DIR");
	int n = snprintf(path, size, "%s/%s/control.sock", base && *base ? base : "/run/weir",
			 instance);

	return n < 0 || (size_t)n >= sizeof(((struct sockaddr_un *)0)->sun_path) ||
		       (size_t)n >= size
		   ? -ENAMETOOLONG
		   : 0;
}

void
weir_ctl_limit(struct weir_ctl_client *c, double seconds)
{
	double limit = seconds > LEAST_SECONDS ? seconds : LEAST_SECONDS;
	struct timeval tv = {.tv_sec = (time_t)limit,
			     .tv_usec = (suseconds_t)((limit - (double)(time_t)limit) * 1e6)};

	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

int
weir_ctl_connect(struct weir_ctl_client *c, const char *path, double seconds)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int error;

	c->fd = -1;
	if (!*path || strlen(path) >= sizeof(to.sun_path))
		return *path ? -ENAMETOOLONG : -ENOENT;
	memcpy(to.sun_path, path, strlen(path));
	c->fd =
	    socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (seconds > 0 ? 0 : SOCK_NONBLOCK), 0);
	if (c->fd >= 0 && seconds > 0)
		weir_ctl_limit(c, seconds);
	if (c->fd >= 0 && !connect(c->fd, (struct sockaddr *)&to, sizeof(to)))
		return 0;
	error = errno;
	weir_ctl_close(c);
	return -error;
}

void
weir_ctl_close(struct weir_ctl_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

int
weir_ctl_send(struct weir_ctl_client *c, struct weir_ctl_msg *m, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {m, m->length = weir_ctl_size(m)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	weir_assert(c->fd >= 0 && m->length && m->length <= WEIR_CTL_MAX);
	if (fd >= 0) {
		control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
		h.msg_control = control.bytes;
		h.msg_controllen = sizeof(control.bytes);
	}
	if (sendmsg(c->fd, &h, MSG_NOSIGNAL) == (ssize_t)m->length)
		return 0;
	return errno == EINTR ? -EAGAIN : -errno;
}

int
weir_ctl_hello(struct weir_ctl_client *c)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_HELLO};

	m.hello.versions = WEIR_CTL_VERSIONS;
	m.hello.role = WEIR_ROLE_QUERY;
	m.hello.node = UINT32_MAX;
	m.hello.pid = (uint32_t)getpid();
	return weir_ctl_send(c, &m, -1);
}

int
weir_ctl_ask(struct weir_ctl_client *c, uint32_t rows)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_QUERY};

	m.query.rows = c->asked = rows;
	return weir_ctl_send(c, &m, -1);
}

int
weir_ctl_receive(struct weir_ctl_client *c)
{
	ssize_t n;

	weir_assert(c->fd >= 0);
	n = recv(c->fd, c->in.bytes, sizeof(c->in), MSG_TRUNC);

	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	c->length = (size_t)n;
	return n ? weir_ctl_check(&c->in.m, (size_t)n) : -ECONNRESET;
}

int
weir_ctl_expect(struct weir_ctl_client *c, uint32_t type)
{
	int rc = weir_ctl_receive(c);

	if (rc || c->in.m.type == type)
		return rc;
	return c->in.m.type == WEIR_CTL_ERROR ? -EREMOTEIO : -ENOMSG;
}

int
weir_ctl_page(struct weir_ctl_client *c)
{
	int rc = weir_ctl_expect(c, WEIR_CTL_ROWS);

	if (rc)
		return rc;
	return c->in.m.rows.rows != c->asked ? -ENODATA : (int)c->in.m.rows.more;
}

int
weir_ctl_greet(struct weir_ctl_client *c)
{
	int rc = weir_ctl_hello(c);

	return rc ? rc : weir_ctl_expect(c, WEIR_CTL_HELLO);
}
