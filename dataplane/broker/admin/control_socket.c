/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.sock: one weir-control, which is told of links and tells of nodes, and some weirctl,
 * which ask. The data plane keeps all that a new control must know. Whoever does not read is
 * closed.
 */
#define _GNU_SOURCE
#include "capture_job.h"
#include "command.h"
#include "control_socket.h"
#include "link.h"
#include "public_services.h"
#include "rows.h"
#include "session.h"
#include "set.h"
#include "state.h"
#include "watch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUERIES_MAX 32u	 /* weirctl */
#define STRANGERS_MAX 8u /* and so many that have not said HELLO: one may be weir-control */
#define PATIENCE_NS (5 * BROKER_SECOND_NS)
#define SEND_BUFFER (4 << 20)

#define UNSENT_MAX 65536u

struct unsent {
	struct unsent *next;
	struct weir_ctl_msg m; /* last: only its length is there */
};

struct client {
	struct broker_watch watch; /* first */
	struct broker *b;
	uint32_t role;			      /* enum weir_ctl_role, 0 before HELLO */
	bool over;			      /* closed when it is next looked at */
	bool page_waits;		      /* q->page could not be sent yet */
	struct unsent *unsent, **unsent_last; /* to control: waits for room in the socket */
	uint32_t unsent_count;
	struct rows_query *q;	     /* being answered: no more is read meanwhile */
	struct capture_job *capture; /* that it asked for and has not heard the end of */
	uint64_t deadline;	     /* for HELLO, or to read a page */
	struct client *next, **previous;
};

struct control_socket {
	struct broker_watch watch; /* first */
	struct broker *b;
	struct client *clients;
	struct client *control; /* the one with that role */
	uint32_t count, queries;
	uint64_t paused_until;	 /* not accepting: out of descriptors */
	struct weir_ctl_msg *in; /* WEIR_CTL_MAX + 8 bytes */
};

static void
drop_unsent(struct client *c)
{
	while (c->unsent) {
		struct unsent *u = c->unsent;

		c->unsent = u->next;
		free(u);
	}
}

static void
client_close(struct client *c)
{
	struct control_socket *cs = c->b->control_socket;

	if (cs->control == c) {
		cs->control = NULL;
		log_info("control has gone; traffic goes on");
	}
	cs->queries -= c->role == WEIR_ROLE_QUERY;
	rows_close(c->q);
	if (c->capture)
		capture_orphan(c->capture);
	drop_unsent(c);
	broker_watch_remove(c->b, &c->watch);
	close(c->watch.fd);
	*c->previous = c->next;
	if (c->next)
		c->next->previous = c->previous;
	cs->count--;
	free(c);
}

static void
client_end(struct client *c)
{
	c->over = true;
	shutdown(c->watch.fd, SHUT_RDWR);
}

static int
client_send(struct client *c, const struct weir_ctl_msg *m)
{
	if (c->over)
		return -EPIPE;
	if (send(c->watch.fd, m, m->length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)m->length)
		return 0;
	return -errno;
}

static void
watch_for(struct client *c, uint32_t events)
{
	broker_watch_remove(c->b, &c->watch);
	if (broker_watch_add(c->b, &c->watch, events))
		client_end(c);
}

static void
keep_unsent(struct client *c, const struct weir_ctl_msg *m)
{
	struct unsent *u;

	if (c->unsent_count == UNSENT_MAX) {
		c->b->counters.control_slow++;
		client_end(c);
		return;
	}
	u = broker_alloc(offsetof(struct unsent, m) + m->length);
	if (!u) {
		client_end(c);
		return;
	}
	memcpy(&u->m, m, m->length);
	if (!c->unsent) {
		c->unsent_last = &c->unsent;
		c->deadline = broker_now(c->b) + PATIENCE_NS;
		watch_for(c, EPOLLIN | EPOLLOUT);
	}
	*c->unsent_last = u;
	c->unsent_last = &u->next;
	c->unsent_count++;
}

/* If control is closed it comes back and is told everything again: nothing is lost by that. */
static void
send_or_keep(struct client *c, const struct weir_ctl_msg *m)
{
	int rc = c->unsent ? -EAGAIN : client_send(c, m);

	if (rc == -EAGAIN)
		keep_unsent(c, m);
	else if (rc)
		client_end(c);
}

static void
send_unsent(struct client *c)
{
	while (c->unsent) {
		struct unsent *u = c->unsent;
		int rc = client_send(c, &u->m);

		if (rc == -EAGAIN)
			return;
		if (rc) {
			client_end(c);
			return;
		}
		c->deadline = broker_now(c->b) + PATIENCE_NS;
		c->unsent = u->next;
		c->unsent_count--;
		free(u);
	}
	c->deadline = UINT64_MAX;
	watch_for(c, EPOLLIN);
}

static void refuse(struct client *c, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void
refuse(struct client *c, int code, const char *format, ...)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_ERROR, .length = weir_ctl_length(WEIR_CTL_ERROR)};
	va_list args;

	m.error.code = code;
	va_start(args, format);
	vsnprintf(m.error.reason, sizeof(m.error.reason), format, args);
	va_end(args);
	client_send(c, &m);
	c->over = true;
}

void
broker_control_send(struct broker *b, const struct weir_ctl_msg *m)
{
	if (b->control_output)
		b->control_output(b->control_output_user, m);
	else if (b->control_socket && b->control_socket->control)
		send_or_keep(b->control_socket->control, m);
}

void
control_restart(struct broker *b)
{
	if (b->control_socket && b->control_socket->control)
		client_end(b->control_socket->control);
}

static void
own_hello(struct broker *b, struct weir_ctl_msg *m)
{
	*m = (struct weir_ctl_msg){.type = WEIR_CTL_HELLO,
				   .length = weir_ctl_length(WEIR_CTL_HELLO)};
	m->hello.version = WEIR_CTL_VERSION;
	m->hello.role = WEIR_ROLE_DATAPLANE;
	m->hello.node = b->node;
	m->hello.engines = b->config.engines;
	m->hello.incarnation = b->config.incarnation;
	m->hello.pid = (uint32_t)getpid();
	m->hello.services = weir_services_digest(services_own(b));
	for (uint32_t i = 0; i < b->config.engines; i++) {
		uint32_t k = 0, n = m->hello.address_count;

		if (!broker_engine(b, i)->dev)
			continue;
		while (k < n && memcmp(m->hello.address[k], b->attr[i].gid.raw, 16))
			k++;
		if (k == n && n < WEIR_CTL_ADDRESSES) {
			memcpy(m->hello.address[n], b->attr[i].gid.raw, 16);
			m->hello.address_count++;
		}
	}
}

void
control_welcome(struct broker *b)
{
	struct weir_ctl_msg m;

	own_hello(b, &m);
	broker_control_send(b, &m);
	services_tell(b);
	operate_tell_control(b);
	link_resync(b);
}

/* A control that was restarted may be faster than the news of its predecessor's end. */
static bool
hung_up(const struct client *c)
{
	char byte;

	ssize_t n = recv(c->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	/* ECONNRESET: it had not read all */
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void
hello(struct client *c, const struct weir_ctl_msg *m)
{
	struct control_socket *cs = c->b->control_socket;
	struct weir_ctl_msg answer;

	if (m->type != WEIR_CTL_HELLO || m->hello.role == WEIR_ROLE_DATAPLANE) {
		refuse(c, EPROTO, "not a greeting of weir-control or weirctl");
		return;
	}
	c->deadline = UINT64_MAX;
	if (m->hello.role == WEIR_ROLE_QUERY && cs->queries == QUERIES_MAX) {
		refuse(c, EBUSY, "%u weirctl are connected already; end some", QUERIES_MAX);
		return;
	}
	if (m->hello.role == WEIR_ROLE_QUERY) {
		c->role = WEIR_ROLE_QUERY;
		cs->queries++;
		own_hello(c->b, &answer);
		send_or_keep(c, &answer);
		return;
	}
	if (cs->control && hung_up(cs->control))
		client_close(cs->control);
	if (cs->control) {
		refuse(c, EBUSY,
		       "another weir-control (of this instance) is connected; stop it first");
		return;
	}
	c->role = WEIR_ROLE_CONTROL;
	cs->control = c;
	broker_control_input(c->b, m);
}

static void pump(struct client *c);

static void
rows_ready(struct rows_query *q)
{
	pump(q->user);
}

/* Sends pages until the socket is full, an engine has to fill the next, or it was the last. */
static void
pump(struct client *c)
{
	while (c->q && !c->over) {
		int rc;

		if (!c->page_waits && !rows_next(c->q)) {
			watch_for(c, 0);
			return;
		}
		rc = client_send(c, c->q->page);
		c->page_waits = rc == -EAGAIN;
		if (c->page_waits) {
			c->deadline = broker_now(c->b) + PATIENCE_NS;
			watch_for(c, EPOLLOUT);
			return;
		}
		c->deadline = UINT64_MAX;
		if (rc) {
			client_end(c);
		} else if (!c->q->page->rows.more) {
			rows_close(c->q);
			c->q = NULL;
			watch_for(c, EPOLLIN);
		}
	}
}

static void
told_of_capture(void *user, const struct weir_ctl_msg *m)
{
	struct client *c = user;

	if (m->captured.over)
		c->capture = NULL;
	send_or_keep(c, m);
}

/* fd: what came with the message, -1 nothing; closed here unless the capture has it now. */
static void
capture_request(struct client *c, const struct weir_ctl_msg *m, int *fd)
{
	char reason[160];
	int rc;

	if (m->type == WEIR_CTL_CAPTURE_STOP) {
		if (c->capture)
			capture_end(c->capture);
		return; /* its end may be on the way already */
	}
	if (c->capture) {
		refuse(c, EBUSY, "a capture is under way here; open another connection");
		return;
	}
	rc = capture_open(c->b, m, *fd, told_of_capture, c, &c->capture, reason, sizeof(reason));
	if (rc)
		refuse(c, -rc, "%s", reason);
	else
		*fd = -1;
}

static void
change(struct client *c, const struct weir_ctl_msg *m)
{
	struct weir_ctl_msg done = {.type = WEIR_CTL_DONE,
				    .length = weir_ctl_length(WEIR_CTL_DONE)};
	char reason[160];
	bool set = m->type == WEIR_CTL_SET;
	int rc =
	    set ? setting_set(c->b, m->set.key, m->set.value, reason, sizeof(reason))
		: evict(c->b, m->evict.what, m->evict.id, m->evict.reason, reason, sizeof(reason));

	if (rc < 0) {
		refuse(c, -rc, "%s", reason);
		return;
	}
	if (set)
		log_info("set %s %s", m->set.key, m->set.value);
	done.done.count = (uint32_t)rc;
	send_or_keep(c, &done);
}

static bool
from_control(uint32_t type)
{
	return type == WEIR_CTL_NODE || type == WEIR_CTL_SYNCED || type == WEIR_CTL_LINK ||
	       type == WEIR_CTL_RESYNC || type == WEIR_CTL_SERVICES;
}

static void
request(struct client *c, const struct weir_ctl_msg *m, int *fd)
{
	if (c->role == WEIR_ROLE_CONTROL && from_control(m->type)) {
		broker_control_input(c->b, m);
	} else if (c->role == WEIR_ROLE_QUERY && m->type == WEIR_CTL_QUERY) {
		c->q = rows_open(c->b, m->query.rows, rows_ready, c);
		if (c->q)
			pump(c);
		else
			refuse(c, ENOMEM, SESSION_NO_MEMORY);
	} else if (c->role == WEIR_ROLE_QUERY &&
		   (m->type == WEIR_CTL_CAPTURE || m->type == WEIR_CTL_CAPTURE_STOP)) {
		capture_request(c, m, fd);
	} else if (c->role == WEIR_ROLE_QUERY &&
		   (m->type == WEIR_CTL_SET || m->type == WEIR_CTL_EVICT)) {
		change(c, m);
	} else if (c->role == WEIR_ROLE_CONTROL && m->type == WEIR_CTL_ERROR) {
		log_info("control says: %s", m->error.reason);
	} else {
		c->b->counters.control_bad++;
		refuse(c, EPROTO, "message type %u is not expected here", m->type);
	}
}

/* A packet, and the descriptor that came with it or -1. */
static ssize_t
receive(int from, void *packet, size_t size, int *fd)
{
	union {
		char bytes[CMSG_LEN(sizeof(int))]; /* not SPACE, where two have room */
		struct cmsghdr align;
	} control;
	struct iovec iov = {packet, size};
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t n = recvmsg(from, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&h);

	*fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	return n;
}

static void
handle(struct client *c, const struct weir_ctl_msg *in, size_t n, int *fd)
{
	int rc = weir_ctl_check(in, n);

	if (rc == -EPROTO) {
		c->b->counters.control_bad++;
		refuse(c, EPROTO,
		       "version %u is spoken there, %u by the data plane; install one release",
		       in->hello.version, WEIR_CTL_VERSION);
	} else if (rc) {
		c->b->counters.control_bad++;
		refuse(c, EBADMSG, "malformed message of %zu bytes", n);
	} else if (!c->role) {
		hello(c, in);
	} else {
		request(c, in, fd);
	}
}

static void
client_ready(struct broker_watch *w, uint32_t events)
{
	struct client *c = (struct client *)w;
	struct weir_ctl_msg *in = c->b->control_socket->in;
	ssize_t n = 0;
	int fd = -1;

	if (c->q && !c->over && !(events & (EPOLLHUP | EPOLLERR))) {
		pump(c);
		return;
	}
	if (events & EPOLLOUT && c->unsent && !c->over) {
		send_unsent(c);
		return;
	}
	if (!c->over && !c->q)
		n = receive(w->fd, in, WEIR_CTL_MAX + 8, &fd);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(c);
		return;
	}
	handle(c, in, (size_t)n, &fd);
	if (fd >= 0)
		close(fd);
	broker_flush(c->b);
	if (c->over)
		client_close(c);
}

static void
accept_ready(struct broker_watch *w, uint32_t events)
{
	struct control_socket *cs = (struct control_socket *)w;
	int fd = broker_accept(cs->b, w, &cs->paused_until), size = SEND_BUFFER;
	struct client *c;

	(void)events;
	if (fd < 0)
		return;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	c = broker_alloc(sizeof(*c));
	if (!c) {
		close(fd);
		return;
	}
	c->b = cs->b;
	c->watch = (struct broker_watch){.fd = fd, .ready = client_ready};
	c->deadline = broker_now(cs->b) + PATIENCE_NS;
	if (cs->count == QUERIES_MAX + STRANGERS_MAX ||
	    broker_watch_add(cs->b, &c->watch, EPOLLIN)) {
		refuse(c, EBUSY, "too many connect at once; try again");
		close(fd);
		free(c);
		return;
	}
	c->next = cs->clients;
	c->previous = &cs->clients;
	if (c->next)
		c->next->previous = &c->next;
	cs->clients = c;
	cs->count++;
}

int
control_socket_open(struct broker *b)
{
	struct control_socket *cs = broker_alloc(sizeof(*cs));
	int rc, fd;

	if (!cs)
		return -ENOMEM;
	cs->in = broker_alloc(WEIR_CTL_MAX + 8);
	fd = cs->in ? broker_listen(b, "control.sock", 0600, NULL) : -ENOMEM;
	if (fd < 0) {
		free(cs->in);
		free(cs);
		return fd;
	}
	cs->b = b;
	cs->watch = (struct broker_watch){.fd = fd, .ready = accept_ready};
	rc = broker_watch_add(b, &cs->watch, EPOLLIN);
	if (rc) {
		close(fd);
		free(cs->in);
		free(cs);
		return rc;
	}
	b->control_socket = cs;
	return 0;
}

void
control_socket_close(struct broker *b)
{
	struct control_socket *cs = b->control_socket;

	if (!cs)
		return;
	while (cs->clients)
		client_close(cs->clients);
	broker_watch_remove(b, &cs->watch);
	broker_unlisten(b, "control.sock", cs->watch.fd);
	free(cs->in);
	free(cs);
	b->control_socket = NULL;
}

uint64_t
control_socket_timers(struct broker *b, uint64_t now)
{
	struct control_socket *cs = b->control_socket;
	uint64_t next;

	if (!cs)
		return UINT64_MAX;
	next = broker_accept_again(b, &cs->watch, &cs->paused_until, now);
	for (struct client *c = cs->clients, *after; c; c = after) {
		after = c->next;
		if (c->deadline <= now) {
			b->counters.control_slow += c->page_waits || c->unsent;
			client_close(c);
		} else if (c->deadline < next) {
			next = c->deadline;
		}
	}
	return next;
}
