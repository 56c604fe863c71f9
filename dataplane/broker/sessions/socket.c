/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.sock: programs come, say HELLO, ask and leave. A client that is slow, silent or sends
 * rubbish is closed; no client can make us wait. One that costs too much waits itself: requests are
 * paced by client, by user and in all; coming and soon leaving again by user. Users that have no
 * session are strangers, who share a twentieth of the time. Half of it is for the door, that is
 * accepting, refusing and closing; half for their sessions, which are made one at a time. Of that a
 * third is kept for those that have cost little lately.
 */
#define _GNU_SOURCE
#include "session.h"
#include "session_socket.h"
#include "state.h"
#include "user.h"
#include "watch.h"
#include "pace.h"
#include "socket_threads.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define DOOR_SHARE 40u /* 1/40 of main's CPU time for accepting, refusing and closing */

#define HELLO_TIMEOUT_NS (5 * BROKER_SECOND_NS)
#define STRANGERS_MAX 64u /* clients beyond the sessions: attaching, or to be told why not */
#define STAND_NS (10 * BROKER_SECOND_NS) /* libraries give up before */
#define SHORT_NS (10 * BROKER_SECOND_NS) /* who stays for so long pays nothing for having come */
#define REQUEST_NS 20000u /* what a request costs beside its handling: main and an engine wake */
#define DOOR_BURST_NS 2000000u
#define HELLO_DOOR_NS                                                                              \
	200000u /* what a HELLO costs the door at most: its user pays for the session */
#define DOOR_PAUSE_NS 10000000u	   /* not accepting, at least: main isn't woken for each */
#define REQUESTS_SMALL_NS 2000000u /* who has asked for no more need not wait for others */
#define UIDS 64u	 /* by low bits; who shares a place by chance shares what it says */
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
	bool stands;	     /* in line, to attach */
	bool owes;	     /* there since its user has cost enough */
	bool turn;	     /* that has come */
	bool greeted;	     /* WELCOME was sent */
	bool ended;	     /* the broker has ended the session, or refused it */
	bool over;	     /* closed when its socket is next looked at */
	bool busy;	     /* `job` is with the threads */
	bool gone;	     /* closed; stays until it is not busy */
	struct socket_job job;
	union {
		struct weir_session_msg m;
		char room[sizeof(struct weir_session_msg) + 1]; /* longer ones show */
	} in;
	struct client *next, **previous;
};

struct session_socket {
	struct broker_watch watch; /* first */
	struct broker *b;
	struct client *clients;
	uint32_t count;
	struct broker_watch done; /* of `threads` */
	struct socket_threads
	    *threads;	       /* NULL: sockets refuse descriptors, main reads and closes */
	uint32_t jobs;	       /* with them */
	uint64_t paused_until; /* not accepting: out of descriptors, or too much came */
	struct pace door;
	uint64_t made_ns;      /* main's CPU time for sessions that HELLOs began: their users pay */
	uint32_t standing;     /* clients */
	uint32_t silent[UIDS]; /* clients without a session, by uid */
};

static uint32_t
place_of(const struct client *c)
{
	return c->peer.uid % UIDS;
}

/* Nobody with a session answers for it. */
static void
door_use(struct session_socket *ss, uint64_t ns)
{
	pace_use(&ss->door, ss->b->config.burst_ns ? DOOR_BURST_NS : 0, ns);
}

/* What its session has cost, unless that was paid for as it was made. */
static void
charge(struct client *c)
{
	if (c->session && !c->session->charged)
		c->cost_ns += c->session->cost_ns;
}

static void
job_submit(struct session_socket *ss, struct socket_job *job)
{
	ss->jobs++;
	socket_threads_submit(ss->threads, job);
}

/* Each end of an accepted socket comes here. Main closes nothing that a program sent along. */
static void
socket_close(struct session_socket *ss, int fd, uid_t uid)
{
	struct socket_job *job;

	if (!ss->threads) {
		close(fd);
		return;
	}
	job = broker_alloc(sizeof(*job));
	if (!job) { /* main may have to wait once for what the program sent along */
		close(fd);
		return;
	}
	job->fd = fd;
	job->uid = uid;
	job_submit(ss, job);
}

static void
stand(struct client *c, bool stands)
{
	c->b->session_socket->standing += (uint32_t)stands - (uint32_t)c->stands;
	c->stands = stands;
}

static void
client_close(struct client *c)
{
	struct session_socket *ss = c->b->session_socket;
	struct broker_user *u = user_find_attached(c->b, c->peer.uid);

	charge(c);
	if (u && broker_now(c->b) - c->since < SHORT_NS)
		user_charge(u, c->cost_ns, false);
	if (c->session)
		broker_session_close(c->session);
	else
		ss->silent[place_of(c)]--;
	stand(c, false);
	broker_watch_remove(c->b, &c->watch);
	*c->previous = c->next;
	if (c->next)
		c->next->previous = c->previous;
	ss->count--;
	c->gone = true;
	if (c->busy)
		return;
	socket_close(ss, c->watch.fd, c->peer.uid);
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
		if (c->session)
			c->b->session_socket->silent[place_of(c)]++;
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
	struct session_socket *ss = c->b->session_socket;
	uint64_t begin = pace_clock(), cost;
	bool stranger = !user_find_attached(c->b, c->peer.uid);
	struct broker_session *s =
	    broker_session_open(c->b, m, length, c->peer.pid, c->peer.uid, on_reply, c);

	stand(c, false);
	c->deadline = UINT64_MAX;
	if (c->ended) /* then s is gone already */
		return;
	c->session = s;
	ss->silent[place_of(c)]--;
	cost = pace_clock() - begin;
	ss->made_ns += cost > HELLO_DOOR_NS ? cost - HELLO_DOOR_NS : 0;
	s->cost_ns += cost;
	if (!stranger && !c->turn)
		return;
	s->charged = true;
	session_in_line(s, true);
	user_charge(s->owner, s->cost_ns, false);
}

/* Main has worked for its requests so long. */
static void
pay(struct client *c, uint64_t ns)
{
	uint64_t burst = c->b->config.burst_ns;

	pace_use(&c->pace, burst / 2, ns);
	pace_use(&c->b->requests, burst, ns);
	user_charge(c->session->owner, ns, true);
}

static void
request(struct client *c, const struct weir_session_msg *m, size_t length)
{
	uint64_t begin = pace_clock();

	if (c->b->stopping && c->session) /* the hang-up answers */
		return;
	if (!c->session || broker_session_request(c->session, m, length) || m->type == WEIR_MSG_BYE)
		client_close(c);
	else if (c->session)
		pay(c, pace_clock() - begin + REQUEST_NS);
}

/* When the requests of a program are heard again; 0: now. */
static uint64_t
requests_due(struct client *c, uint64_t now)
{
	uint64_t burst = c->b->config.burst_ns, all, due;

	pay(c, c->session->request_ns); /* what was made for it meanwhile */
	c->session->request_ns = 0;
	due = pace_due(&c->pace, burst / 2, now);
	if (!due)
		due = pace_due(user_requests(c->session->owner), burst, now);
	all = pace_due(&c->b->requests, burst, now);
	if (!due && all && pace_left(&c->pace, now) > REQUESTS_SMALL_NS)
		due = all;
	return due;
}

/* When it may attach. */
static uint64_t
attach_due(struct client *c, uint64_t now)
{
	struct broker_user *u = user_find_attached(c->b, c->peer.uid);

	if (u)
		return pace_due(user_pace(u), user_burst(c->b), now);
	return stranger_due(c->b, c->peer.uid, now);
}

/* Strangers attach one at a time, and so do those whose user has cost enough: each knows then what
 * the one before has cost. */
static bool
must_stand(struct client *c, uint64_t now)
{
	struct session_socket *ss = c->b->session_socket;

	if (!c->b->config.burst_ns || c->turn)
		return false;
	c->owes = attach_due(c, now) && user_find_attached(c->b, c->peer.uid);
	return c->owes || attach_due(c, now) ||
	       (!user_find_attached(c->b, c->peer.uid) && (c->b->line || ss->standing));
}

/* Whether it, or its user, has cost enough for now: then only its end is noticed. */
static bool
hold(struct client *c)
{
	uint64_t now = broker_now(c->b);

	if (c->session)
		c->held_until = requests_due(c, now);
	else
		stand(c, must_stand(c, now));
	if (!c->held_until && !c->stands)
		return false;
	if (c->deadline != UINT64_MAX)
		c->deadline = now + STAND_NS;
	broker_watch_change(c->b, &c->watch, 0);
	return true;
}

/* What a recv() gave. */
static void
take(struct client *c, ssize_t n)
{
	bool greets = !c->session && c->deadline != UINT64_MAX;

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0)
		client_close(c);
	else if (greets && !may_attach(c))
		refuse_user(c);
	else if (greets)
		hello(c, &c->in.m, (size_t)n);
	else
		request(c, &c->in.m, (size_t)n);
}

static void
handle(struct client *c, uint32_t events)
{
	struct session_socket *ss = c->b->session_socket;
	bool allowed;
	ssize_t n;

	if (events & (EPOLLHUP | EPOLLERR)) { /* whatever it said last, nobody waits for answers */
		client_close(c);
		return;
	}
	allowed = c->session || c->over || c->deadline == UINT64_MAX || may_attach(c);
	if (!c->over && allowed && hold(c))
		return;
	if (c->over) {
		client_close(c);
		return;
	}
	memset(&c->in, 0, sizeof(c->in));
	if (!ss->threads) {
		n = recv(c->watch.fd, &c->in, sizeof(c->in), MSG_DONTWAIT);
		take(c, n < 0 ? -errno : n);
		return;
	}
	broker_watch_change(c->b, &c->watch, 0);
	c->busy = true;
	c->job = (struct socket_job){
	    .fd = c->watch.fd, .uid = c->peer.uid, .room = &c->in, .size = sizeof(c->in)};
	job_submit(ss, &c->job);
}

/* The time that descriptors took is that of the user who sent them. */
static void
job_done(struct session_socket *ss, struct socket_job *job)
{
	struct client *c = (struct client *)((char *)job - offsetof(struct client, job));
	struct broker_user *u = user_find_attached(ss->b, job->uid);

	ss->jobs--;
	if (u)
		user_charge(u, job->ns, job->room != NULL);
	else
		pace_use(&ss->b->strangers, ss->b->config.burst_ns, job->ns);
	if (!job->room) {
		free(job);
		return;
	}
	c->busy = false;
	if (c->gone) {
		socket_close(ss, c->watch.fd, c->peer.uid);
		free(c);
		return;
	}
	broker_watch_change(c->b, &c->watch, EPOLLIN);
	take(c, job->result);
}

static void
jobs_done(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss =
	    (struct session_socket *)((char *)w - offsetof(struct session_socket, done));
	struct socket_job *job;

	(void)events;
	while ((job = socket_threads_take(ss->threads)))
		job_done(ss, job);
}

static void
client_ready(struct broker_watch *w, uint32_t events)
{
	struct client *c = (struct client *)w;
	struct session_socket *ss = c->b->session_socket;
	uint64_t begin = pace_clock() - ss->made_ns;
	bool asks = c->session;

	handle(c, events);
	if (!asks)
		door_use(ss, pace_clock() - ss->made_ns - begin);
}

static void
refuse(struct session_socket *ss, int fd, uid_t uid, int code, const char *reason)
{
	struct weir_session_msg m;

	session_refusal(&m, code, "%s", reason);
	send_message(fd, &m, NULL, 0);
	socket_close(ss, fd, uid);
}

static void
welcome(struct session_socket *ss, int fd, const struct ucred *peer)
{
	struct broker *b = ss->b;
	struct client *c = broker_alloc(sizeof(*c));

	if (!c) {
		refuse(ss, fd, peer->uid, ENOMEM, SESSION_NO_MEMORY);
		return;
	}
	c->b = b;
	c->peer = *peer;
	c->watch = (struct broker_watch){.fd = fd, .ready = client_ready};
	c->since = broker_now(b);
	c->deadline = c->since + HELLO_TIMEOUT_NS;
	if (broker_watch_add(b, &c->watch, EPOLLIN)) {
		socket_close(ss, fd, peer->uid);
		free(c);
		return;
	}
	c->next = ss->clients;
	c->previous = &ss->clients;
	if (c->next)
		c->next->previous = &c->next;
	ss->clients = c;
	ss->count++;
	ss->silent[place_of(c)]++;
}

/*
 * Of the users that have most clients without a session one makes room: who has said nothing for
 * longest, since a greeting comes at once, and silence costs nothing.
 */
static bool
make_room(struct session_socket *ss)
{
	struct client *oldest = NULL;
	uint32_t most = 0;

	if (ss->count < ss->b->config.sessions + STRANGERS_MAX)
		return true;
	for (uint32_t i = 0; i < UIDS; i++)
		most = ss->silent[i] > most ? ss->silent[i] : most;
	for (struct client *c = ss->clients; c; c = c->next) /* newest first */
		if (c->deadline != UINT64_MAX && ss->silent[place_of(c)] == most &&
		    (!oldest || !c->stands || oldest->stands))
			oldest = c;
	if (oldest)
		client_close(oldest);
	return oldest;
}

static void
accept_one(struct session_socket *ss, int fd)
{
	struct ucred peer = {0};
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		socket_close(ss, fd, UINT32_MAX);
	else if (make_room(ss))
		welcome(ss, fd, &peer);
	else
		refuse(ss, fd, peer.uid, EMFILE, "too many programs attach at once; try again");
}

static void
accept_ready(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss = (struct session_socket *)w;
	uint64_t begin = pace_clock(), now = broker_now(ss->b), due;
	int fd = broker_accept(ss->b, w, &ss->paused_until);

	(void)events;
	if (fd < 0)
		return;
	accept_one(ss, fd);
	door_use(ss, pace_clock() - begin);
	due = ss->b->config.burst_ns ? pace_due(&ss->door, DOOR_BURST_NS, now) : 0;
	if (!due)
		return;
	/* those who wait are in the kernel's queue, and don't know it */
	broker_watch_remove(ss->b, w);
	ss->paused_until = due > now + DOOR_PAUSE_NS ? due : now + DOOR_PAUSE_NS;
}

/* One of those who stand in line is heard: of the user whose turn was longest ago the first that
 * may. */
static uint64_t
next_turn(struct session_socket *ss, uint64_t now)
{
	struct client *first = NULL;
	uint64_t due, soonest = UINT64_MAX;

	if (!ss->standing || ss->b->line)
		return UINT64_MAX;			       /* main runs when that has changed */
	for (struct client *c = ss->clients; c; c = c->next) { /* newest first */
		if (!c->stands)
			continue;
		if (c->turn)
			return UINT64_MAX; /* it is being heard */
		due = attach_due(c, now);
		if (due && due < soonest)
			soonest = due;
		if (!due && (!first || stranger_cost(c->b, c->peer.uid, now) <=
					   stranger_cost(c->b, first->peer.uid, now)))
			first = c;
		if (due || c->owes || !user_find_attached(ss->b, c->peer.uid))
			continue;
		/* others of its user were first: it is no stranger any more */
		stand(c, false);
		broker_watch_change(ss->b, &c->watch, EPOLLIN);
		return now;
	}
	if (!first)
		return soonest;
	first->turn = true;
	broker_watch_change(ss->b, &first->watch, EPOLLIN);
	return now;
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

/* All clients have been closed: waits until their sockets are. */
static void
jobs_finish(struct session_socket *ss)
{
	struct pollfd done = {.fd = ss->done.fd, .events = POLLIN};

	while (ss->jobs) {
		poll(&done, 1, SOCKET_KICK_NS / 1000000);
		jobs_done(&ss->done, 0);
		socket_threads_kick(ss->threads);
	}
}

int
session_socket_open(struct broker *b)
{
	struct session_socket *ss = broker_alloc(sizeof(*ss));
	bool listed = b->config.users && b->config.users->allowed_count;
	/* with a list of users it is that which decides */
	int rc, fd = ss ? broker_listen(b, "session.sock", listed ? 0666 : 0660, "weir") : -ENOMEM;

	if (fd < 0) {
		free(ss);
		return fd;
	}
	ss->b = b;
	ss->door.share = DOOR_SHARE;
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
	uint64_t next, turn;

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
	if (ss->threads && socket_threads_kick(ss->threads) && now + SOCKET_KICK_NS < next)
		next = now + SOCKET_KICK_NS;
	turn = next_turn(ss, now);
	return turn < next ? turn : next;
}
