/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening sockets of the run directory and their clients. */
#define _GNU_SOURCE
#include "unix_socket.h"
#include "state.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ACCEPT_PAUSE_NS (BROKER_SECOND_NS / 10) /* when descriptors or memory are short */
#define ACCEPT_QUEUE 128 /* connections: short, so that a client at its end is served soon */

static int
socket_path(const struct unix_listener *l, struct sockaddr_un *a)
{
	int n = snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s", l->b->config.run_dir, l->name);

	a->sun_family = AF_UNIX;
	return n > 0 && (size_t)n < sizeof(a->sun_path) ? 0 : -ENAMETOOLONG;
}

/* Removes the socket of a data plane that has died: no process listens on it. 0 or -errno. */
static int
remove_stale(const struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int taken;

	if (fd < 0)
		return -errno;
	taken = !connect(fd, (const struct sockaddr *)a, sizeof(*a)) || errno == EAGAIN;
	close(fd);
	if (taken)
		return -EADDRINUSE;
	return unlink(a->sun_path) && errno != ENOENT ? -errno : 0;
}

/*
 * Binds the socket and listens. The file gets its name last: a program that comes early is told
 * -ENOENT and tries again, while it would take -EACCES as final. 0 or -errno.
 */
static int
bind_and_listen(int fd, const struct sockaddr_un *a, unsigned mode, const char *user,
		const char *group)
{
	struct sockaddr_un making = {.sun_family = AF_UNIX};
	const char *name = strrchr(a->sun_path, '/');
	struct passwd *u;
	struct group *g;
	uid_t uid;
	mode_t mask;
	int rc;

	/* shorter than the final name */
	snprintf(making.sun_path, sizeof(making.sun_path), "%.*s/.new", (int)(name - a->sun_path),
		 a->sun_path);
	if (unlink(making.sun_path) && errno != ENOENT)
		return -errno;
	mask = umask(0177);
	rc = bind(fd, (const struct sockaddr *)&making, sizeof(making)) ? -errno : 0;
	umask(mask);
	if (rc)
		return rc;
	u = user ? getpwnam(user) : NULL;
	uid = u ? u->pw_uid : (uid_t)-1;
	g = group ? getgrnam(group) : NULL;
	/* the mode first: who gives a file away may not change it any more */
	if (chmod(making.sun_path, mode) ||
	    ((u || g) && chown(making.sun_path, uid, g ? g->gr_gid : (gid_t)-1) &&
	     errno != EPERM) ||
	    listen(fd, ACCEPT_QUEUE) || rename(making.sun_path, a->sun_path)) {
		rc = -errno;
		unlink(making.sun_path);
	}
	return rc;
}

int
unix_listen(struct unix_listener *l, unsigned mode, const char *user, const char *group)
{
	struct sockaddr_un a = {0};
	int fd, rc = socket_path(l, &a);

	if (!rc)
		rc = remove_stale(&a);
	if (rc) {
		log_error("%s/%s: %s; %s", l->b->config.run_dir, l->name, strerror(-rc),
			  rc == -EADDRINUSE ? "stop the data plane that has it, or choose another "
					      "--instance"
					    : "choose another run directory: WEIR_RUN_DIR");
		return rc;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = fd < 0 ? -errno : bind_and_listen(fd, &a, mode, user, group);
	if (rc) {
		log_error("%s: %s; make its directory, or choose another: WEIR_RUN_DIR", a.sun_path,
			  strerror(-rc));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	LIST_INIT(&l->clients);
	l->watch.fd = fd;
	rc = broker_watch_add(l->b, &l->watch, EPOLLIN);
	if (rc)
		unix_listener_close(l);
	return rc;
}

void
unix_listener_close(struct unix_listener *l)
{
	struct sockaddr_un a = {0};

	while (!LIST_EMPTY(&l->clients))
		l->close(LIST_FIRST(&l->clients), false);
	weir_assert(!l->count);
	broker_watch_remove(l->b, &l->watch);
	close(l->watch.fd);
	if (!socket_path(l, &a))
		unlink(a.sun_path);
}

int
unix_accept(struct unix_listener *l)
{
	int fd = accept4(l->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	/* the socket would be ready again at once */
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
		unix_accept_pause(l, broker_now(l->b) + ACCEPT_PAUSE_NS);
	return fd;
}

void
unix_accept_pause(struct unix_listener *l, uint64_t until)
{
	weir_assert(!l->paused_until && until);
	broker_watch_remove(l->b, &l->watch);
	l->paused_until = until;
}

uint64_t
unix_listener_timers(struct unix_listener *l, uint64_t now)
{
	uint64_t next;

	if (l->paused_until && l->paused_until <= now)
		l->paused_until =
		    broker_watch_add(l->b, &l->watch, EPOLLIN) ? now + ACCEPT_PAUSE_NS : 0;
	next = l->paused_until ? l->paused_until : UINT64_MAX;
	for (struct unix_client *c = LIST_FIRST(&l->clients), *after; c; c = after) {
		after = LIST_NEXT(c, entry);
		if (c->deadline <= now)
			l->close(c, true);
		else if (c->deadline < next)
			next = c->deadline;
	}
	return next;
}

int
unix_client_add(struct unix_listener *l, struct unix_client *c)
{
	int rc = broker_watch_add(l->b, &c->watch, EPOLLIN);

	weir_assert(c->watch.fd >= 0 && c->watch.ready);
	if (rc)
		return rc;
	c->listener = l;
	LIST_INSERT_HEAD(&l->clients, c, entry);
	l->count++;
	return 0;
}

void
unix_client_remove(struct unix_client *c)
{
	weir_assert(c->listener->count);
	broker_watch_remove(c->listener->b, &c->watch);
	LIST_REMOVE(c, entry);
	c->listener->count--;
}

void
unix_client_end(struct unix_client *c)
{
	c->over = true;
	shutdown(c->watch.fd, SHUT_RDWR);
}

int
unix_send(int fd, const void *message, size_t length, const int *fds, unsigned fd_count)
{
	union {
		char room[CMSG_SPACE(WEIR_SESSION_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)message, .iov_len = length};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	weir_assert(fd_count <= WEIR_SESSION_FDS);
	if (fd_count) {
		h.msg_control = control.room;
		h.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	return sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

ssize_t
unix_receive(int fd, void *room, size_t size, int *passed)
{
	union {
		char bytes[CMSG_LEN(sizeof(int))]; /* not CMSG_SPACE(), which has room for two */
		struct cmsghdr align;
	} control;
	struct iovec iov = {room, size};
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = passed ? control.bytes : NULL,
			   .msg_controllen = passed ? CMSG_LEN(sizeof(int)) : 0};
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&h);

	if (passed)
		*passed = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(passed, CMSG_DATA(c), sizeof(int));
	return n < 0 ? -errno : n;
}
