/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.sock: programs come, say HELLO, ask and leave. A client that is slow, silent or sends
 * rubbish is closed; no client can make us wait. One that costs too much waits itself: requests are
 * paced by client, coming and soon leaving again by process.
 */
#define _GNU_SOURCE
#include "broker_internal.h"
#include "pace.h"
#include "socket_threads.h"

#include <errno.h>
#include <poll.h>
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
	bool gone;	     /* closed; stays until `job` is done */
	bool busy;	     /* `job` is with the threads */
	struct socket_job job;
	union {
		struct weir_session_msg m;
		char room[sizeof(struct weir_session_msg) + 1]; /* longer ones show */
	} in;
	struct client *next, **previous;
};

struct session_socket {
	struct broker_watch watch; /* first */
	struct broker_watch done;  /* of `threads` */
	struct socket_threads
	    *threads; /* NULL: sockets refuse descriptors, main reads and closes */
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

/* Of what it sent along, main closes nothing. */
static void
drop_socket(struct client *c)
{
	struct session_socket *ss = c->b->session_socket;

	if (!ss->threads) {
		close(c->watch.fd);
		ss->count--;
		free(c);
		return;
	}
	c->gone = c->busy = true;
	c->job = (struct socket_job){.fd = c->watch.fd, .uid = c->peer.uid};
	socket_threads_submit(ss->threads, &c->job);
}

static void
client_close(struct client *c)
{
	charge(c);
	if (broker_now(c->b) - c->since < SHORT_NS)
		pace_use(process_pace(c), c->b->config.burst_ns, c->cost_ns);
	if (c->session)
		broker_session_close(c->session);
	broker_watch_remove(c->b, &c->watch);
	*c->previous = c->next;
	if (c->next)
		c->next->previous = c->previous;
	c->gone = true;
	if (!c->busy)
		drop_socket(c);
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
		char room[CMSG_SPACE(WEIR_SESSION_FDS * sizeof(int))];
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

/* What a recv() gave. */
static void
take(struct client *c, ssize_t n)
{
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0)
		client_close(c);
	else if (c->session || c->deadline == UINT64_MAX)
		request(c, &c->in.m, (size_t)n);
	else if (may_attach(c))
		hello(c, &c->in.m, (size_t)n);
	else
		refuse_user(c);
}

static void
client_ready(struct broker_watch *w, uint32_t events)
{
	struct client *c = (struct client *)w;
	struct session_socket *ss = c->b->session_socket;
	ssize_t n;

	if (events & (EPOLLHUP | EPOLLERR)) { /* whatever it said last, nobody waits for answers */
		client_close(c);
		return;
	}
	if (!c->over && hold(c))
		return;
	if (c->over) {
		client_close(c);
		return;
	}
	memset(&c->in, 0, sizeof(c->in));
	if (ss->threads) {
		c->busy = true;
		c->job = (struct socket_job){
		    .fd = w->fd, .uid = c->peer.uid, .room = &c->in, .size = sizeof(c->in)};
		broker_watch_change(c->b, w, 0);
		socket_threads_submit(ss->threads, &c->job);
		return;
	}
	n = recv(w->fd, &c->in, sizeof(c->in), MSG_DONTWAIT);
	take(c, n < 0 ? -errno : n);
}

/* Time that a program's descriptors took is its own. */
static void
job_done(struct client *c)
{
	c->busy = false;
	if (!c->job.room) {
		pace_use(process_pace(c), c->b->config.burst_ns, c->job.ns);
		c->b->session_socket->count--;
		free(c);
		return;
	}
	c->cost_ns += c->job.ns;
	pace_use(c->session ? &c->pace : process_pace(c), c->b->config.burst_ns / 2, c->job.ns);
	if (c->gone) {
		drop_socket(c);
		return;
	}
	broker_watch_change(c->b, &c->watch, EPOLLIN);
	take(c, c->job.result);
}

static void
jobs_done(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss =
	    (struct session_socket *)((char *)w - offsetof(struct session_socket, done));
	struct socket_job *job;

	(void)events;
	while ((job = socket_threads_take(ss->threads)))
		job_done((struct client *)((char *)job - offsetof(struct client, job)));
}

static void
welcome(struct session_socket *ss, int fd, bool room)
{
	struct broker *b = ss->b;
	struct client *c = broker_alloc(sizeof(*c));
	socklen_t length = sizeof(c->peer);
	struct weir_session_msg no;

	c->b = b;
	c->watch = (struct broker_watch){.fd = fd, .ready = client_ready};
	c->since = broker_now(b);
	c->deadline = c->since + HELLO_TIMEOUT_NS;
	ss->count++;
	if (!room) {
		session_refusal(&no, EMFILE, "too many programs attach at once; try again");
		send_message(fd, &no, NULL, 0);
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c->peer, &length) || !room ||
	    broker_watch_add(b, &c->watch, EPOLLIN)) {
		drop_socket(c);
		return;
	}
	c->next = ss->clients;
	c->previous = &ss->clients;
	if (c->next)
		c->next->previous = &c->next;
	ss->clients = c;
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

/* All clients have been closed: waits until their sockets are. */
static void
jobs_finish(struct session_socket *ss)
{
	struct pollfd done = {.fd = ss->done.fd, .events = POLLIN};

	while (ss->count) {
		poll(&done, 1, SOCKET_KICK_NS / 1000000);
		jobs_done(&ss->done, 0);
		socket_threads_kick(ss->threads);
	}
}

static void
accept_ready(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss = (struct session_socket *)w;
	int fd = broker_accept(ss->b, w, &ss->paused_until);

	(void)events;
	if (fd >= 0)
		welcome(ss, fd, make_room(ss));
}

/* Where the kernel can't keep descriptors away, threads read and close. 0 or -errno. */
static int
keep_descriptors_away(struct session_socket *ss)
{
	if (!ss->b->config.socket_threads && weir_refuse_descriptors(ss->watch.fd))
		return 0;
	ss->threads = socket_threads_open();
	if (!ss->threads)
		return -errno;
	ss->done = (struct broker_watch){.fd = socket_threads_fd(ss->threads), .ready = jobs_done};
	return broker_watch_add(ss->b, &ss->done, EPOLLIN);
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
	rc = keep_descriptors_away(ss);
	if (!rc)
		rc = broker_watch_add(b, &ss->watch, EPOLLIN);
	if (rc) {
		if (ss->threads)
			socket_threads_close(ss->threads);
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
	if (ss->threads) {
		jobs_finish(ss);
		broker_watch_remove(b, &ss->done);
		socket_threads_close(ss->threads);
	}
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
	if (ss->threads && socket_threads_kick(ss->threads) && now + SOCKET_KICK_NS < next)
		next = now + SOCKET_KICK_NS;
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
