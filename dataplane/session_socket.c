/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.sock: programs come, say HELLO, ask and leave. A client that is slow, silent or sends
 * rubbish is closed; no client can make us wait.
 */
#define _GNU_SOURCE
#include "broker_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_TIMEOUT_NS (5 * BROKER_SECOND_NS)
#define PAUSE_NS (BROKER_SECOND_NS / 10)
#define STRANGERS_MAX 64u /* clients beyond the sessions: attaching, or to be told why not */

struct client {
	struct broker_watch watch; /* first */
	struct broker *b;
	struct broker_session *session; /* NULL: has not said HELLO, or was closed */
	struct ucred peer;
	uint64_t deadline; /* for HELLO */
	bool greeted;	   /* WELCOME was sent */
	bool ended;	   /* the broker has ended the session, or refused it */
	bool over;	   /* closed when its socket is next looked at */
	struct client *next, **previous;
};

struct session_socket {
	struct broker_watch watch; /* first */
	struct broker *b;
	struct client *clients;
	uint32_t count;
	uint64_t paused_until; /* not accepting: out of descriptors */
};

static void
client_close(struct client *c)
{
	struct session_socket *ss = c->b->session_socket;

	if (c->session)
		broker_session_close(c->session);
	broker_watch_remove(c->b, &c->watch);
	close(c->watch.fd);
	*c->previous = c->next;
	if (c->next)
		c->next->previous = c->previous;
	ss->count--;
	free(c);
}

/* Not closed at once: a caller may still be using it. */
static void
client_end(struct client *c)
{
	c->over = true;
	shutdown(c->watch.fd, SHUT_RDWR);
}

static int
send_message(int fd, const struct weir_session_msg *m, const int *fds, unsigned fd_count)
{
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)m, .iov_len = m->length};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

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

static void
on_reply(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct client *c = user;
	bool refused_hello = reply && reply->type == WEIR_MSG_REFUSED && !c->greeted;

	if (reply && send_message(c->watch.fd, reply, fds, fd_count))
		client_end(c); /* it doesn't read: its own loss */
	if (reply && reply->type == WEIR_MSG_WELCOME)
		c->greeted = true;
	if (!reply || refused_hello) {
		c->session = NULL;
		c->ended = true;
		client_end(c);
	}
}

static void
hello(struct client *c, const struct weir_session_msg *m, size_t length)
{
	struct broker_session *s =
	    broker_session_open(c->b, m, length, c->peer.pid, c->peer.uid, on_reply, c);

	if (!c->ended) /* else s is gone already */
		c->session = s;
	c->deadline = UINT64_MAX;
}

static void
client_ready(struct broker_watch *w, uint32_t events)
{
	struct client *c = (struct client *)w;
	union {
		struct weir_session_msg m;
		char room[sizeof(struct weir_session_msg) + 1]; /* longer ones show */
	} in;
	ssize_t n;

	(void)events;
	memset(&in, 0, sizeof(in));
	/* descriptors that a program sends along are dropped by the kernel: no room for them here
	 */
	n = c->over ? 0 : recv(w->fd, &in, sizeof(in), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(c);
		return;
	}
	if (!c->session && c->deadline != UINT64_MAX)
		hello(c, &in.m, (size_t)n);
	else if (!c->session || broker_session_request(c->session, &in.m, (size_t)n) ||
		 in.m.type == WEIR_MSG_BYE)
		client_close(c);
}

static void
refuse(int fd)
{
	struct weir_session_msg m;

	session_refusal(&m, EMFILE, "too many programs attach at once; try again");
	send_message(fd, &m, NULL, 0);
	close(fd);
}

static void
welcome(struct session_socket *ss, int fd)
{
	struct broker *b = ss->b;
	struct client *c = broker_alloc(sizeof(*c));
	socklen_t length = sizeof(c->peer);

	c->b = b;
	c->watch = (struct broker_watch){.fd = fd, .ready = client_ready};
	c->deadline = broker_now(b) + HELLO_TIMEOUT_NS;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c->peer, &length) ||
	    broker_watch_add(b, &c->watch, EPOLLIN)) {
		close(fd);
		free(c);
		return;
	}
	c->next = ss->clients;
	c->previous = &ss->clients;
	if (c->next)
		c->next->previous = &c->next;
	ss->clients = c;
	ss->count++;
}

static void
accept_ready(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss = (struct session_socket *)w;
	int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)events;
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			/* it would be ready at once again */
			broker_watch_remove(ss->b, w);
			ss->paused_until = broker_now(ss->b) + PAUSE_NS;
		}
		return;
	}
	if (ss->count >= ss->b->config.sessions + STRANGERS_MAX)
		refuse(fd);
	else
		welcome(ss, fd);
}

int
session_socket_open(struct broker *b)
{
	struct session_socket *ss = broker_alloc(sizeof(*ss));
	int rc, fd = broker_listen(b, "session.sock", 0660, "weir");

	if (fd < 0) {
		free(ss);
		return fd;
	}
	ss->b = b;
	ss->watch = (struct broker_watch){.fd = fd, .ready = accept_ready};
	rc = broker_watch_add(b, &ss->watch, EPOLLIN);
	if (rc) {
		close(fd);
		free(ss);
		return rc;
	}
	b->session_socket = ss;
	return 0;
}

void
session_socket_close(struct broker *b)
{
	struct session_socket *ss = b->session_socket;

	if (!ss)
		return;
	while (ss->clients)
		client_close(ss->clients);
	broker_watch_remove(b, &ss->watch);
	broker_unlisten(b, "session.sock", ss->watch.fd);
	free(ss);
	b->session_socket = NULL;
}

uint64_t
session_socket_timers(struct broker *b, uint64_t now)
{
	struct session_socket *ss = b->session_socket;
	uint64_t next = UINT64_MAX;

	if (!ss)
		return next;
	if (ss->paused_until && ss->paused_until <= now)
		ss->paused_until = broker_watch_add(b, &ss->watch, EPOLLIN) ? now + PAUSE_NS : 0;
	if (ss->paused_until)
		next = ss->paused_until;
	for (struct client *c = ss->clients, *after; c; c = after) {
		after = c->next;
		if (c->deadline <= now)
			client_close(c);
		else if (c->deadline < next)
			next = c->deadline;
	}
	return next;
}
