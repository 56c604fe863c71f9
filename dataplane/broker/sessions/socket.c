/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.sock: programs attach by HELLO, send requests and leave. Main waits for no client: one
 * that is slow, silent or malformed is closed. Clients wait for main's CPU time instead. Requests
 * are paced per client, per user and in total; attaching and soon leaving again per user. Users
 * without a session are strangers and share a twentieth of the time: half of it for admission, that
 * is accepting, refusing and closing, and half for their sessions, which are made one at a time. A
 * third of the latter is kept for strangers that have cost little lately.
 */
#define _GNU_SOURCE
#include "session.h"
#include "session_socket.h"
#include "state.h"
#include "unix_socket.h"
#include "user.h"
#include "pace.h"
#include "socket_threads.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADMISSION_SHARE 40u	     /* 1/40 of main's CPU time */
#define ADMISSION_BURST_NS 2000000u  /* CPU time */
#define ADMISSION_PAUSE_NS 10000000u /* shortest: main is not woken for each connection */
#define HELLO_ADMISSION_NS 200000u   /* most that a HELLO costs admission: its user pays the rest */
#define HELLO_TIMEOUT_NS (5 * BROKER_SECOND_NS)
#define STRANGERS_MAX 64u /* clients beyond the sessions: attaching, or to be refused */
#define QUEUE_TIMEOUT_NS (10 * BROKER_SECOND_NS) /* for its turn; libraries give up before */
#define SHORT_NS                                                                                   \
	(10 * BROKER_SECOND_NS) /* a client that stays longer pays nothing for attaching           \
				 */
#define REQUEST_NS 20000u	/* cost of a request beside its handling: main and an engine wake */
#define REQUESTS_SMALL_NS 2000000u /* a client whose requests cost no more waits for no other */
#define UIDS 64u		   /* buckets of uids by their low bits */
#define GROUPS_MAX 1024u	   /* groups of a user that --allow looks at */

struct client {
	struct unix_client socket; /* first; its deadline is for HELLO and for the queue */
	struct broker *b;
	struct broker_session *session; /* NULL: has not said HELLO, or was closed */
	struct ucred peer;
	uint64_t since;	  /* when it connected */
	uint64_t cost_ns; /* main's CPU time for it */
	struct pace pace;
	uint64_t held_until; /* not heard before; 0: it is heard */
	bool queued;	     /* waits to attach */
	bool user_paced;     /* queued because its user has used up its CPU time */
	bool admitted;	     /* its turn in the queue has come */
	bool welcomed;	     /* WELCOME was sent */
	bool busy;	     /* `job` is with the threads */
	bool gone;	     /* closed; freed when it is not busy */
	struct socket_job job;
	union {
		struct weir_session_msg m;
		char room[sizeof(struct weir_session_msg) + 1]; /* longer messages are noticed */
	} in;
};

struct session_socket {
	struct unix_listener listener; /* first */
	struct broker *b;
	struct broker_watch done; /* of `threads` */
	/* NULL: sockets refuse descriptors, main reads and closes */
	struct socket_threads *threads;
	uint32_t jobs; /* with the threads */
	struct pace admission;
	uint64_t made_ns; /* main's CPU time for sessions that HELLOs began: their users pay */
	uint32_t queued;  /* clients */
	uint32_t unattached[UIDS]; /* clients without a session, per bucket of uids */
};

static struct client *
next_client(struct client *c)
{
	return (struct client *)LIST_NEXT(&c->socket, entry);
}

static struct client *
newest_client(struct session_socket *ss)
{
	return (struct client *)LIST_FIRST(&ss->listener.clients);
}

static uint32_t *
unattached(struct client *c)
{
	return &c->b->session_socket->unattached[c->peer.uid % UIDS];
}

/* Charges work for clients without a session to all of them. */
static void
admission_use(struct session_socket *ss, uint64_t ns)
{
	pace_use(&ss->admission, ss->b->config.burst_ns ? ADMISSION_BURST_NS : 0, ns);
}

/* Adds the cost of its session, unless its user has paid that already. */
static void
add_session_cost(struct client *c)
{
	if (c->session && !c->session->charged)
		c->cost_ns += c->session->cost_ns;
}

static void
job_submit(struct session_socket *ss, struct socket_job *job)
{
	weir_assert(ss->threads);
	ss->jobs++;
	socket_threads_submit(ss->threads, job);
}

/*
 * Closes an accepted socket; threads do, if there may be descriptors of programs in it. Out of
 * memory, main closes it and may have to wait.
 */
static void
socket_close(struct session_socket *ss, int fd, uid_t uid)
{
	struct socket_job *job = ss->threads ? broker_alloc(sizeof(*job)) : NULL;
	if (!job) {
		close(fd);
		return;
	}
	job->fd = fd;
	job->uid = uid;
	job_submit(ss, job);
}

static void
set_queued(struct client *c, bool queued)
{
	c->b->session_socket->queued += (uint32_t)queued - (uint32_t)c->queued;
	c->queued = queued;
}

static void
client_free(struct client *c)
{
	weir_assert(c->gone && !c->busy);
	socket_close(c->b->session_socket, c->socket.watch.fd, c->peer.uid);
	free(c);
}

static void
client_close(struct client *c)
{
	struct broker_user *u = user_find_attached(c->b, c->peer.uid);

	weir_assert(!c->gone && (c->session || *unattached(c)));
	add_session_cost(c);
	if (u && broker_now(c->b) - c->since < SHORT_NS)
		user_charge(u, c->cost_ns, false);
	if (c->session)
		broker_session_close(c->session);
	else
		--*unattached(c);
	set_queued(c, false);
	unix_client_remove(&c->socket);
	c->gone = true;
	if (!c->busy)
		client_free(c);
}

static void
close_client(struct unix_client *c, bool expired)
{
	client_close((struct client *)c);
}

static void
on_reply(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct client *c = user;
	bool refused_hello = reply && reply->type == WEIR_MSG_REFUSED && !c->welcomed;

	if (reply && unix_send(c->socket.watch.fd, reply, reply->length, fds, fd_count))
		unix_client_end(&c->socket); /* the program does not read */
	if (reply && reply->type == WEIR_MSG_WELCOME)
		c->welcomed = true;
	if (!reply || refused_hello) {
		add_session_cost(c);
		if (c->session)
			++*unattached(c);
		c->session = NULL;
		unix_client_end(&c->socket);
	}
}

/* Applies --allow to the user and all groups of the process that connected. */
static bool
may_attach(const struct client *c)
{
	const struct users *rules = c->b->config.users;
	gid_t groups[GROUPS_MAX];
	socklen_t length = sizeof(groups);

	if (!rules || !rules->allowed_count)
		return true;
	if (getsockopt(c->socket.watch.fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length))
		length = 0; /* more than GROUPS_MAX: only the primary group counts */
	return users_may_attach(rules, c->peer.uid, c->peer.gid, groups,
				length / sizeof(groups[0]));
}

static void
hello(struct client *c, const struct weir_session_msg *m, size_t length)
{
	struct session_socket *ss = c->b->session_socket;
	uint64_t begin = pace_clock(), cost;
	bool stranger = !user_find_attached(c->b, c->peer.uid);
	struct broker_session *s =
	    broker_session_open(c->b, m, length, c->peer.pid, c->peer.uid, on_reply, c);

	set_queued(c, false);
	c->socket.deadline = UINT64_MAX;
	if (!s)
		return;
	c->session = s;
	--*unattached(c);
	cost = pace_clock() - begin;
	ss->made_ns += cost > HELLO_ADMISSION_NS ? cost - HELLO_ADMISSION_NS : 0;
	s->cost_ns += cost;
	if (!stranger && !c->admitted)
		return;
	s->charged = true;
	session_set_serial(s, true);
	user_charge(s->owner, s->cost_ns, false);
}

/* Charges ns of main's CPU time for requests. */
static void
pay(struct client *c, uint64_t ns)
{
	uint64_t burst = c->b->config.burst_ns;

	pace_use(&c->pace, burst / 2, ns);
	pace_use(&c->b->requests, burst, ns);
	user_charge(c->session->owner, ns, true);
}

/* When the client may attach; 0: now. */
static uint64_t
attach_due(struct client *c, uint64_t now)
{
	struct broker_user *u = user_find_attached(c->b, c->peer.uid);

	if (u)
		return pace_due(&u->pace, user_burst(c->b), now);
	return stranger_due(c->b, c->peer.uid, now);
}

/*
 * Whether the client has to wait, since it or its user has used up its CPU time: then main notices
 * only its end. Strangers attach one at a time, and so do clients whose user has used up its time:
 * the cost of each is known before the next one begins.
 */
static bool
hold(struct client *c)
{
	struct session_socket *ss = c->b->session_socket;
	uint64_t now = broker_now(c->b), burst = c->b->config.burst_ns, all, due;
	bool stranger;

	if (c->session) {
		pay(c, c->session->request_ns); /* regions made for it since */
		c->session->request_ns = 0;
		due = pace_due(&c->pace, burst / 2, now);
		if (!due)
			due = pace_due(&c->session->owner->requests, burst, now);
		all = pace_due(&c->b->requests, burst, now);
		if (!due && all && pace_left(&c->pace, now) > REQUESTS_SMALL_NS)
			due = all;
		c->held_until = due;
	} else if (burst && !c->admitted) {
		stranger = !user_find_attached(c->b, c->peer.uid);
		due = attach_due(c, now);
		c->user_paced = due && !stranger;
		set_queued(c, due || (stranger && (c->b->serial_sessions || ss->queued)));
	} else {
		set_queued(c, false);
	}
	if (!c->held_until && !c->queued)
		return false;
	if (c->socket.deadline != UINT64_MAX)
		c->socket.deadline = now + QUEUE_TIMEOUT_NS;
	broker_watch_change(c->b, &c->socket.watch, 0);
	return true;
}

/* Handles the result of receiving: n bytes in c->in, 0 at the end, or -errno. */
static void
received(struct client *c, ssize_t n)
{
	const struct weir_session_msg *m = &c->in.m;
	struct weir_session_msg no;
	uint64_t begin;

	weir_assert(!c->busy && !c->gone);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n > 0 && !c->session && c->socket.deadline != UINT64_MAX) {
		if (may_attach(c)) {
			hello(c, m, (size_t)n);
			return;
		}
		c->b->counters.sessions_refused++;
		session_refusal(&no, EACCES,
				"user %u may not attach; have weir-dataplane started with --allow "
				"user:%u, or a group of that user",
				(unsigned)c->peer.uid, (unsigned)c->peer.uid);
		on_reply(c, &no, NULL, 0);
		return;
	}
	if (n > 0 && c->b->stopping && c->session) /* the end of the connection answers */
		return;
	begin = pace_clock();
	if (n <= 0 || !c->session || broker_session_request(c->session, m, (size_t)n) ||
	    m->type == WEIR_MSG_BYE)
		client_close(c);
	else if (c->session)
		pay(c, pace_clock() - begin + REQUEST_NS);
}

static void
jobs_done(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss =
	    (struct session_socket *)((char *)w - offsetof(struct session_socket, done));
	struct socket_job *job;

	while ((job = socket_threads_take(ss->threads))) {
		struct client *c = (struct client *)((char *)job - offsetof(struct client, job));
		struct broker_user *u = user_find_attached(ss->b, job->uid);

		weir_assert(ss->jobs);
		ss->jobs--;
		/* the user that sent descriptors pays for the time to close them */
		if (u)
			user_charge(u, job->ns, job->room != NULL);
		else
			pace_use(&ss->b->strangers, ss->b->config.burst_ns, job->ns);
		if (!job->room) {
			free(job);
			continue;
		}
		c->busy = false;
		if (c->gone) {
			client_free(c);
		} else {
			broker_watch_change(c->b, &c->socket.watch, EPOLLIN);
			received(c, job->result);
		}
	}
}

static void
client_ready(struct broker_watch *w, uint32_t events)
{
	struct client *c = (struct client *)w;
	struct session_socket *ss = c->b->session_socket;
	uint64_t begin = pace_clock() - ss->made_ns;
	bool attached = c->session, said_hello = attached || c->socket.deadline == UINT64_MAX;

	if (events & (EPOLLHUP | EPOLLERR) || c->socket.over) {
		/* requests that were not read need no answer any more */
		client_close(c);
	} else if ((!said_hello && !may_attach(c)) || !hold(c)) {
		memset(&c->in, 0, sizeof(c->in));
		if (ss->threads) {
			broker_watch_change(c->b, w, 0);
			c->busy = true;
			c->job = (struct socket_job){
			    .fd = w->fd, .uid = c->peer.uid, .room = &c->in, .size = sizeof(c->in)};
			job_submit(ss, &c->job);
		} else {
			received(c, unix_receive(w->fd, &c->in, sizeof(c->in), NULL));
		}
	}
	if (!attached)
		admission_use(ss, pace_clock() - ss->made_ns - begin);
}

/*
 * Closes a client if there are too many: of the users with most clients that have no session, the
 * one that has been silent for longest, since a library says HELLO at once. False: there is none.
 */
static bool
make_room(struct session_socket *ss)
{
	struct client *oldest = NULL;
	uint32_t most = 0;

	if (ss->listener.count < ss->b->config.sessions + STRANGERS_MAX)
		return true;
	for (uint32_t i = 0; i < UIDS; i++)
		most = ss->unattached[i] > most ? ss->unattached[i] : most;
	for (struct client *c = newest_client(ss); c; c = next_client(c))
		if (c->socket.deadline != UINT64_MAX && *unattached(c) == most &&
		    (!oldest || !c->queued || oldest->queued))
			oldest = c;
	if (oldest)
		client_close(oldest);
	return oldest;
}

static void
accept_client(struct session_socket *ss, int fd, uint64_t now)
{
	struct ucred peer = {0};
	socklen_t length = sizeof(peer);
	struct weir_session_msg no;
	struct client *c = NULL;
	int code = EMFILE;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length)) {
		socket_close(ss, fd, UINT32_MAX);
		return;
	}
	if (make_room(ss)) {
		code = ENOMEM;
		c = broker_alloc(sizeof(*c));
	}
	if (!c) {
		session_refusal(&no, code, "%s",
				code == ENOMEM ? SESSION_NO_MEMORY
					       : "too many programs attach at once; try again");
		unix_send(fd, &no, no.length, NULL, 0);
		socket_close(ss, fd, peer.uid);
		return;
	}
	c->b = ss->b;
	c->peer = peer;
	c->since = now;
	c->socket.watch = (struct broker_watch){.fd = fd, .ready = client_ready};
	c->socket.deadline = now + HELLO_TIMEOUT_NS;
	if (unix_client_add(&ss->listener, &c->socket)) {
		socket_close(ss, fd, peer.uid);
		free(c);
		return;
	}
	++*unattached(c);
}

static void
accept_ready(struct broker_watch *w, uint32_t events)
{
	struct session_socket *ss = (struct session_socket *)w;
	uint64_t begin = pace_clock(), now = broker_now(ss->b), due;
	int fd = unix_accept(&ss->listener);

	if (fd < 0)
		return;
	accept_client(ss, fd, now);
	admission_use(ss, pace_clock() - begin);
	due = ss->b->config.burst_ns ? pace_due(&ss->admission, ADMISSION_BURST_NS, now) : 0;
	if (due)
		unix_accept_pause(&ss->listener,
				  due > now + ADMISSION_PAUSE_NS ? due : now + ADMISSION_PAUSE_NS);
}

/*
 * Admits a queued client: the first that may attach, of the user that has cost least lately.
 * Returns when to be called again.
 */
static uint64_t
admit_next(struct session_socket *ss, uint64_t now)
{
	struct client *first = NULL;
	uint64_t due, soonest = UINT64_MAX;

	if (!ss->queued || ss->b->serial_sessions)
		return UINT64_MAX; /* main runs when that has changed */
	for (struct client *c = newest_client(ss); c; c = next_client(c)) {
		if (!c->queued)
			continue;
		if (c->admitted)
			return UINT64_MAX; /* main reads its HELLO next */
		due = attach_due(c, now);
		if (due && due < soonest)
			soonest = due;
		if (!due && (!first || stranger_cost(c->b, c->peer.uid, now) <=
					   stranger_cost(c->b, first->peer.uid, now)))
			first = c;
		if (due || c->user_paced || !user_find_attached(ss->b, c->peer.uid))
			continue;
		/* its user has a session by now: it is no stranger any more */
		set_queued(c, false);
		broker_watch_change(ss->b, &c->socket.watch, EPOLLIN);
		return now;
	}
	if (!first)
		return soonest;
	first->admitted = true;
	broker_watch_change(ss->b, &first->socket.watch, EPOLLIN);
	return now;
}

int
session_socket_open(struct broker *b)
{
	struct session_socket *ss = broker_alloc(sizeof(*ss));
	bool listed = b->config.users && b->config.users->allowed_count;
	int rc;

	if (!ss)
		return -ENOMEM;
	ss->b = b;
	ss->admission.share = ADMISSION_SHARE;
	ss->listener.watch.ready = accept_ready;
	ss->listener.b = b;
	ss->listener.name = "session.sock";
	ss->listener.close = close_client;
	/* with --allow, its list decides instead of the mode */
	rc = unix_listen(&ss->listener, listed ? 0666 : 0660, NULL, "weir");
	if (rc) {
		free(ss);
		return rc;
	}
	b->session_socket = ss;
	/* where the kernel cannot keep descriptors away, threads read and close */
	if (!b->config.socket_threads && weir_refuse_descriptors(ss->listener.watch.fd))
		return 0;
	ss->threads = socket_threads_open();
	rc = ss->threads ? 0 : -errno;
	if (!rc) {
		ss->done =
		    (struct broker_watch){.fd = socket_threads_fd(ss->threads), .ready = jobs_done};
		rc = broker_watch_add(b, &ss->done, EPOLLIN);
	}
	if (rc)
		session_socket_close(b);
	return rc;
}

void
session_socket_close(struct broker *b)
{
	struct session_socket *ss = b->session_socket;

	if (!ss)
		return;
	unix_listener_close(&ss->listener);
	while (ss->jobs) { /* until the threads have closed all sockets */
		poll(&(struct pollfd){.fd = ss->done.fd, .events = POLLIN}, 1,
		     SOCKET_KICK_NS / 1000000);
		jobs_done(&ss->done, 0);
		socket_threads_kick(ss->threads);
	}
	if (ss->threads) {
		broker_watch_remove(b, &ss->done);
		socket_threads_close(ss->threads);
	}
	free(ss);
	b->session_socket = NULL;
}

uint64_t
session_socket_timers(struct broker *b, uint64_t now)
{
	struct session_socket *ss = b->session_socket;
	uint64_t next, due;

	if (!ss)
		return UINT64_MAX;
	next = unix_listener_timers(&ss->listener, now);
	for (struct client *c = newest_client(ss); c; c = next_client(c)) {
		if (c->held_until && c->held_until <= now) {
			c->held_until = 0;
			broker_watch_change(b, &c->socket.watch, EPOLLIN);
		}
		if (c->held_until && c->held_until < next)
			next = c->held_until;
	}
	if (ss->threads && socket_threads_kick(ss->threads) && now + SOCKET_KICK_NS < next)
		next = now + SOCKET_KICK_NS;
	due = admit_next(ss, now);
	return due < next ? due : next;
}
