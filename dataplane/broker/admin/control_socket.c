/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.sock: one weir-control, which is told of links and sends news of nodes, and a few
 * weirctl, which ask. The data plane keeps everything that a new weir-control must know. A client
 * that does not read is closed.
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
#include "status.h"
#include "unix_socket.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUERIES_MAX 32u	 /* weirctl */
#define STRANGERS_MAX 8u /* clients beyond those, before HELLO: one may be weir-control */
#define PATIENCE_NS (5 * BROKER_SECOND_NS) /* to send HELLO, or to read the next message */
#define SEND_BUFFER (4 << 20)		   /* bytes */
#define UNSENT_MAX 65536u		   /* messages to weir-control that wait */

struct unsent {
	STAILQ_ENTRY(unsent) entry;
	struct weir_ctl_msg m; /* last: only m.length bytes are there */
};

struct client {
	struct unix_client socket; /* first; its deadline is for HELLO, or to read */
	struct broker *b;
	uint32_t role;	 /* enum weir_ctl_role, 0 before HELLO */
	bool operates;	 /* root's or our own user's: may change what there is, and capture */
	bool page_waits; /* q->page found no room in the socket */
	STAILQ_HEAD(, unsent) unsent; /* wait for room in the socket */
	uint32_t unsent_count;
	struct rows_query *q;	     /* being answered: main reads nothing meanwhile */
	struct capture_job *capture; /* its capture, until it was told of the end */
};

struct control_socket {
	struct unix_listener listener; /* first */
	struct broker *b;
	struct client *control;	 /* the weir-control */
	uint32_t queries;	 /* weirctl */
	struct weir_ctl_msg *in; /* WEIR_CTL_MAX + 8 bytes */
};

static void
client_close(struct unix_client *socket, bool expired)
{
	struct client *c = (struct client *)socket;
	struct control_socket *cs = c->b->control_socket;
	struct unsent *u;

	if (expired && (c->page_waits || !STAILQ_EMPTY(&c->unsent)))
		c->b->counters.control_slow++;
	if (cs->control == c) {
		cs->control = NULL;
		facts_forget(c->b);
		log_info("control has gone; traffic goes on");
	}
	if (c->role == WEIR_ROLE_QUERY) {
		weir_assert(cs->queries);
		cs->queries--;
	}
	rows_close(c->q);
	if (c->capture)
		capture_orphan(c->capture);
	while ((u = STAILQ_FIRST(&c->unsent))) {
		STAILQ_REMOVE_HEAD(&c->unsent, entry);
		free(u);
	}
	unix_client_remove(socket);
	close(socket->watch.fd);
	free(c);
}

static int
client_send(struct client *c, const struct weir_ctl_msg *m)
{
	return c->socket.over ? -EPIPE : unix_send(c->socket.watch.fd, m, m->length, NULL, 0);
}

static void
watch_for(struct client *c, uint32_t events)
{
	broker_watch_remove(c->b, &c->socket.watch);
	if (broker_watch_add(c->b, &c->socket.watch, events))
		unix_client_end(&c->socket);
}

/*
 * Sends a message, or keeps it until the socket has room. A weir-control that is closed loses
 * nothing by that: it connects again and is told everything.
 */
static void
send_or_keep(struct client *c, const struct weir_ctl_msg *m)
{
	int rc = STAILQ_EMPTY(&c->unsent) ? client_send(c, m) : -EAGAIN;
	struct unsent *u = NULL;

	if (!rc)
		return;
	if (rc == -EAGAIN && c->unsent_count < UNSENT_MAX)
		u = broker_alloc(offsetof(struct unsent, m) + m->length);
	else if (rc == -EAGAIN)
		c->b->counters.control_slow++;
	if (!u) {
		unix_client_end(&c->socket);
		return;
	}
	memcpy(&u->m, m, m->length);
	if (STAILQ_EMPTY(&c->unsent)) {
		c->socket.deadline = broker_now(c->b) + PATIENCE_NS;
		watch_for(c, EPOLLIN | EPOLLOUT);
	}
	STAILQ_INSERT_TAIL(&c->unsent, u, entry);
	c->unsent_count++;
}

static void
send_unsent(struct client *c)
{
	struct unsent *u;
	int rc;

	while ((u = STAILQ_FIRST(&c->unsent))) {
		rc = client_send(c, &u->m);
		if (rc == -EAGAIN)
			return;
		if (rc) {
			unix_client_end(&c->socket);
			return;
		}
		c->socket.deadline = broker_now(c->b) + PATIENCE_NS;
		weir_assert(c->unsent_count);
		STAILQ_REMOVE_HEAD(&c->unsent, entry);
		c->unsent_count--;
		free(u);
	}
	c->socket.deadline = UINT64_MAX;
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
	c->socket.over = true;
}

void
broker_control_send(struct broker *b, const struct weir_ctl_msg *m)
{
	if (b->control_output)
		b->control_output(b->control_output_user, m);
	else if (b->control_socket && b->control_socket->control)
		send_or_keep(b->control_socket->control, m);
}

bool
control_connected(const struct broker *b)
{
	return b->control_socket && b->control_socket->control;
}

void
control_restart(struct broker *b)
{
	if (b->control_socket && b->control_socket->control)
		unix_client_end(&b->control_socket->control->socket);
}

static void
own_hello(struct broker *b, struct weir_ctl_msg *m)
{
	*m = (struct weir_ctl_msg){.type = WEIR_CTL_HELLO,
				   .length = weir_ctl_length(WEIR_CTL_HELLO)};
	m->hello.versions = WEIR_CTL_VERSIONS;
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
	setting_tell_control(b);
	link_resync(b);
}

static void
hello(struct client *c, const struct weir_ctl_msg *m)
{
	struct control_socket *cs = c->b->control_socket;
	struct weir_ctl_msg answer;
	ssize_t n;
	char byte;

	weir_assert(!c->role && cs->queries <= QUERIES_MAX);
	if (m->type != WEIR_CTL_HELLO || m->hello.role == WEIR_ROLE_DATAPLANE) {
		refuse(c, EPROTO, "not a greeting of weir-control or weirctl");
		return;
	}
	c->socket.deadline = UINT64_MAX;
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
	if (cs->control) {
		/*
		 * A restarted weir-control may come before main handles the end of the one before.
		 * ECONNRESET: that one has not read everything.
		 */
		n = recv(cs->control->socket.watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			client_close(&cs->control->socket, false);
	}
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
	while (c->q && !c->socket.over) {
		int rc;

		if (!c->page_waits && !rows_next(c->q)) {
			watch_for(c, 0);
			return;
		}
		rc = client_send(c, c->q->page);
		c->page_waits = rc == -EAGAIN;
		if (c->page_waits) {
			c->socket.deadline = broker_now(c->b) + PATIENCE_NS;
			watch_for(c, EPOLLOUT);
			return;
		}
		c->socket.deadline = UINT64_MAX;
		if (rc) {
			unix_client_end(&c->socket);
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

/* fd: the descriptor that came with the message, or -1; *fd is -1 if a capture owns it now. */
static void
request(struct client *c, const struct weir_ctl_msg *m, int *fd)
{
	char reason[160];
	int rc;

	if (c->role == WEIR_ROLE_CONTROL) {
		switch (m->type) {
		case WEIR_CTL_NODE:
		case WEIR_CTL_SYNCED:
		case WEIR_CTL_LINK:
		case WEIR_CTL_RESYNC:
		case WEIR_CTL_SERVICES:
			broker_control_input(c->b, m);
			return;
		case WEIR_CTL_FACT:
			fact_input(c->b, &m->fact);
			return;
		case WEIR_CTL_ERROR:
			log_info("control says: %s", m->error.reason);
			return;
		default:
			break;
		}
	} else {
		switch (m->type) {
		case WEIR_CTL_QUERY:
			c->q = rows_open(c->b, m->query.rows, rows_ready, c);
			if (c->q)
				pump(c);
			else
				refuse(c, ENOMEM, SESSION_NO_MEMORY);
			return;
		case WEIR_CTL_CAPTURE:
		case WEIR_CTL_SET:
		case WEIR_CTL_EVICT:
			if (!c->operates) {
				refuse(c, EPERM,
				       "only root and the data plane's user may do that; run "
				       "weirctl as one of them");
				return;
			}
			if (m->type != WEIR_CTL_CAPTURE) {
				change(c, m);
				return;
			}
			if (c->capture) {
				refuse(c, EBUSY,
				       "a capture is under way here; open another connection");
				return;
			}
			rc = capture_open(c->b, m, *fd, told_of_capture, c, &c->capture, reason,
					  sizeof(reason));
			if (rc)
				refuse(c, -rc, "%s", reason);
			else
				*fd = -1;
			return;
		case WEIR_CTL_CAPTURE_STOP:
			if (c->capture) /* else its end is on the way */
				capture_end(c->capture);
			return;
		default:
			break;
		}
	}
	c->b->counters.control_bad++;
	refuse(c, EPROTO, "message type %u is not expected here", m->type);
}

static void
client_ready(struct broker_watch *w, uint32_t events)
{
	struct client *c = (struct client *)w;
	struct weir_ctl_msg *in = c->b->control_socket->in;
	char why[WEIR_VERSION_WHY];
	ssize_t n = 0;
	int rc, fd = -1;

	if (c->q && !c->socket.over && !(events & (EPOLLHUP | EPOLLERR))) {
		pump(c);
		return;
	}
	if (events & EPOLLOUT && !STAILQ_EMPTY(&c->unsent) && !c->socket.over) {
		send_unsent(c);
		return;
	}
	if (!c->socket.over && !c->q)
		n = unix_receive(w->fd, in, WEIR_CTL_MAX + 8, &fd);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0) {
		client_close(&c->socket, false);
		return;
	}
	rc = weir_ctl_check(in, (size_t)n);
	if (rc == -EPROTO) {
		c->b->counters.control_bad++;
		weir_version_choose(WEIR_CTL_VERSIONS, in->hello.versions, "control.sock",
				    "weir-dataplane", "its client", why);
		refuse(c, EPROTO, "%s", why);
	} else if (rc) {
		c->b->counters.control_bad++;
		refuse(c, EBADMSG, "malformed message of %zd bytes", n);
	} else if (!c->role) {
		hello(c, in);
	} else {
		request(c, in, &fd);
	}
	if (fd >= 0)
		close(fd);
	broker_flush(c->b);
	if (c->socket.over)
		client_close(&c->socket, false);
}

static void
accept_ready(struct broker_watch *w, uint32_t events)
{
	struct control_socket *cs = (struct control_socket *)w;
	int fd = unix_accept(&cs->listener), size = SEND_BUFFER;
	socklen_t length = sizeof(struct ucred);
	struct ucred peer;
	struct client *c;

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
	STAILQ_INIT(&c->unsent);
	c->operates = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) &&
		      (!peer.uid || peer.uid == geteuid());
	c->socket.watch = (struct broker_watch){.fd = fd, .ready = client_ready};
	c->socket.deadline = broker_now(cs->b) + PATIENCE_NS;
	if (cs->listener.count == QUERIES_MAX + STRANGERS_MAX ||
	    unix_client_add(&cs->listener, &c->socket)) {
		refuse(c, EBUSY, "too many connect at once; try again");
		close(fd);
		free(c);
	}
}

int
control_socket_open(struct broker *b)
{
	struct control_socket *cs = broker_alloc(sizeof(*cs));
	int rc = -ENOMEM;

	if (!cs)
		return rc;
	cs->b = b;
	cs->listener.watch.ready = accept_ready;
	cs->listener.b = b;
	cs->listener.name = "control.sock";
	cs->listener.close = client_close;
	cs->in = broker_alloc(WEIR_CTL_MAX + 8);
	if (cs->in)
		rc = unix_listen(&cs->listener, 0600, "weir", NULL);
	if (rc) {
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
	unix_listener_close(&cs->listener);
	free(cs->in);
	free(cs);
	b->control_socket = NULL;
}

uint64_t
control_socket_timers(struct broker *b, uint64_t now)
{
	return b->control_socket ? unix_listener_timers(&b->control_socket->listener, now)
				 : UINT64_MAX;
}
