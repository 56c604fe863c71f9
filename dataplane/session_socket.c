/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.sock: programs come, say HELLO, ask and leave. A client that is slow, silent or sends
 * rubbish is closed; no client can make us wait. One that costs too much waits itself: requests are
 * paced by client, coming and soon leaving again by process.
 */
#define _GNU_SOURCE
#include "broker_internal.h"
#include "pace.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_TIMEOUT_NS (5 * BROKER_SECOND_NS)
#define STRANGERS_MAX 64u /* clients beyond the sessions: attaching, or to be told why not */
#define SHORT_NS (10 * BROKER_SECOND_NS) /* who stays for so long pays nothing for having come */
#define REQUEST_NS 20000u /* what a request costs beside its handling: main and an engine wake */
#define PROCESSES 64u
#define GROUPS_MAX 1024u /* of a user, that --allow looks at */

struct client {
	struct broker_watch watch; /* first */
	struct broker *b;
	struct broker_session *session; /* NULL: has not said HELLO, or was closed */
	struct ucred peer;
	uint64_t deadline; /* for HELLO */
	uint64_t since;	   /* that it came */
	uint64_t cost_ns;  /* main's CPU time for it */
	struct pace pace;
	uint64_t held_until; /* not heard before; 0: it is heard */
	bool greeted;	     /* WELCOME was sent */
	bool ended;	     /* the broker has ended the session, or refused it */
	bool over;	     /* closed when its socket is next looked at */
	struct client *next, **previous;
};

struct session_socket {
	struct broker_watch watch; /* first */
	struct broker *b;
	struct client *clients;
	uint32_t count;
	uint64_t paused_until;		/* not accepting: out of descriptors */
	struct pace process[PROCESSES]; /* by pid; who shares one by chance shares the wait */
};

static struct pace *
process_pace(struct client *c)
{
	return &c->b->session_socket->process[(uint32_t)c->peer.pid % PROCESSES];
}

/* Giving its memory back takes up to a third of what making it took. */
static void
charge(struct client *c)
{
	if (c->session)
		c->cost_ns += c->session->cost_ns * 4 / 3;
}

static void
client_close(struct client *c)
{
	struct session_socket *ss = c->b->session_socket;

	charge(c);
	if (broker_now(c->b) - c->since < SHORT_NS)
		pace_use(process_pace(c), c->b->config.burst_ns, c->cost_ns);
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
		charge(c);
		c->session = NULL;
		c->ended = true;
		client_end(c);
	}
}

/* By all groups of the process that connected. */
static bool
may_attach(const struct client *c)
{
	const struct users *rules = c->b->config.users;
	gid_t groups[GROUPS_MAX];
	socklen_t length = sizeof(groups);

	if (!rules || !rules->allowed_count)
		return true;
	if (getsockopt(c->watch.fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length))
		length = 0; /* more groups than we look at: its first one counts */
	return users_may_attach(rules, c->peer.uid, c->peer.gid, groups,
				length / sizeof(groups[0]));
}

static void
refuse_user(struct client *c)
{
	struct weir_session_msg no;

	c->b->counters.sessions_refused++;
	session_refusal(&no, EACCES,
			"user %u may not attach; have weir-dataplane started with --allow user:%u, "
			"or a group of that user",
			(unsigned)c->peer.uid, (unsigned)c->peer.uid);
	on_reply(c, &no, NULL, 0);
}

static void
hello(struct client *c, const struct weir_session_msg *m, size_t length)
{
	uint64_t begin = pace_clock();
	struct broker_session *s =
	    broker_session_open(c->b, m, length, c->peer.pid, c->peer.uid, on_reply, c);

	if (!c->ended) /* else s is gone already */
		c->session = s;
	c->deadline = UINT64_MAX;
	c->cost_ns += (pace_clock() - begin) * 4 / 3;
}

static void
request(struct client *c, const struct weir_session_msg *m, size_t length)
{
	uint64_t begin = pace_clock(), cost;

	if (c->b->stopping && c->session) /* the hang-up answers */
		return;
	if (!c->session || broker_session_request(c->session, m, length) ||
	    m->type == WEIR_MSG_BYE) {
		client_close(c);
		return;
	}
	cost = pace_clock() - begin + REQUEST_NS;
	if (m->type == WEIR_MSG_ADOPT)
		cost += cost / 3; /* giving it back */
	c->cost_ns += cost;
	pace_use(&c->pace, c->b->config.burst_ns / 2, cost);
}

/* Whether it, or its process, has cost enough for now: then only its end is noticed. */
static bool
hold(struct client *c)
{
	uint64_t now = broker_now(c->b), burst = c->b->config.burst_ns;

	c->held_until =
	    c->session ? pace_due(&c->pace, burst / 2, now) : pace_due(process_pace(c), burst, now);
	if (!c->held_until)
		return false;
	if (c->deadline != UINT64_MAX)
		c->deadline = c->held_until + HELLO_TIMEOUT_NS;
	broker_watch_change(c->b, &c->watch, 0);
	return true;
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

	if (events & (EPOLLHUP | EPOLLERR)) { /* whatever it said last, nobody waits for answers */
		client_close(c);
		return;
	}
	if (!c->over && hold(c))
		return;
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
	if (!c->session && c->deadline != UINT64_MAX && !may_attach(c))
		refuse_user(c);
	else if (!c->session && c->deadline != UINT64_MAX)
		hello(c, &in.m, (size_t)n);
	else
		request(c, &in.m, (size_t)n);
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
	c->since = broker_now(b);
	c->deadline = c->since + HELLO_TIMEOUT_NS;
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

/* Who has said nothing for longest makes room: a greeting comes at once, silence costs nothing. */
static bool
make_room(struct session_socket *ss)
{
	struct client *oldest = NULL;

	if (ss->count < ss->b->config.sessions + STRANGERS_MAX)
		return true;
	for (struct client *c = ss->clients; c; c = c->next) /* newest first */
		if (c->deadline != UINT64_MAX)
			oldest = c;
	if (oldest)
		client_close(oldest);
	return oldest;
}

static void
accept_ready(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss = (struct session_socket *)w;
	int fd = broker_accept(ss->b, w, &ss->paused_until);

	(void)events;
	if (fd < 0)
		return;
	if (make_room(ss))
		welcome(ss, fd);
	else
		refuse(fd);
}

int
session_socket_open(struct broker *b)
{
	struct session_socket *ss = broker_alloc(sizeof(*ss));
	bool listed = b->config.users && b->config.users->allowed_count;
	/* with a list of users it is that which decides */
	int rc, fd = broker_listen(b, "session.sock", listed ? 0666 : 0660, "weir");

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
	uint64_t next;

	if (!ss)
		return UINT64_MAX;
	next = broker_accept_again(b, &ss->watch, &ss->paused_until, now);
	for (struct client *c = ss->clients, *after; c; c = after) {
		after = c->next;
		if (c->deadline <= now) {
			client_close(c);
			continue;
		}
		if (c->held_until && c->held_until <= now) {
			c->held_until = 0;
			broker_watch_change(b, &c->watch, EPOLLIN);
		}
		if (c->held_until && c->held_until < next)
			next = c->held_until;
		if (c->deadline < next)
			next = c->deadline;
	}
	return next;
}
