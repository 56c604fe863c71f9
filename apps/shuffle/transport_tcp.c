/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records by TCP, written as well as possible: epoll, gathered writes, no delay, large buffers. A
 * record or block goes to its socket at once; what the socket does not take queues up, and leaves
 * in as few writes as possible. Small frames are read many at a time, large ones into their own
 * memory.
 *
 * A hub is the set of sockets that a thread waits for: per thread, with a socket for each pair of
 * threads of two processes; or one per process, whose threads share a socket for each other
 * process. One of the threads that wait in a hub leads: it waits for its sockets and reads for all.
 * All processes are on one machine, as weir-run starts them, and meet on its loopback.
 */
#include "raw.h"

#include "shuffle/format/record.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SOCKET_BYTES (4 << 20)	 /* of each direction's buffer in the kernel */
#define OUT_MAX (256u << 10)	 /* bytes that queue up for a socket */
#define STAGE_BYTES (128u << 10) /* of small frames that are read at a time */
#define LARGE 4096u		 /* bytes of a frame that is read into its own memory */
#define EVENTS 64
#define IOVECS 32
#define HELLO_S 30 /* until a process says hello on its socket */

struct tcp;

struct peer_socket {
	struct hub *hub;
	int fd;
	uint32_t process;
	pthread_mutex_t lock; /* of these */
	struct chunks out;
	uint64_t waiters; /* bits of the threads that wait for room */
	bool armed;	  /* epoll tells when it is writable */
	/* the leader's */
	uint8_t tail[LARGE + sizeof(struct frame_head)]; /* the beginning of a small frame */
	uint32_t tail_bytes;
	struct chunk *large; /* a large frame of which a part has come */
	uint32_t ends;	     /* still to come */
	bool over;
};

struct hub {
	struct tcp *tcp;
	uint32_t first, threads; /* those that wait here */
	int epoll, bell;
	struct peer_socket *sockets; /* of process p, the peer's hub h: p * hubs + h */
	uint8_t *stage;		     /* the leader's */
	pthread_mutex_t lock;	     /* of these */
	bool led;
	uint64_t followers; /* bits of the threads that wait for the lead */
};

struct tcp {
	struct raw raw;
	uint32_t hub_count;
	struct hub *hubs;
	_Atomic int error;	  /* the job has failed: 0 or -errno */
	_Atomic uint32_t culprit; /* the process because of which */
};

static struct tcp *
tcp_of(struct raw_thread *th)
{
	return (struct tcp *)raw_of(th);
}

static struct hub *
hub_of(struct raw_thread *th)
{
	struct tcp *t = tcp_of(th);

	return &t->hubs[th->base.index * t->hub_count / raw_of(th)->t.o.threads];
}

/* ---- errors: the first one ends the job ---- */

static int
failed(struct tcp *t)
{
	int rc = atomic_load_explicit(&t->error, memory_order_acquire);

	if (!rc)
		return 0;
	if (rc == -EPROTO)
		return weir_fail(rc, "process %u sent an invalid frame; see its output",
				 t->culprit);
	return weir_fail(rc, "process %u has ended its connection; see its output", t->culprit);
}

static int
fail_job(struct tcp *t, int rc, uint32_t process)
{
	if (!atomic_load(&t->error)) {
		atomic_store(&t->culprit, process);
		atomic_store(&t->error, rc);
	}
	for (uint32_t i = 0; i < t->raw.t.o.threads; i++)
		inbox_wake(&t->raw.threads[i].inbox);
	return failed(t);
}

/* ---- sending ---- */

static void
arm(struct peer_socket *s, bool out)
{
	struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = s};

	if (s->armed == out)
		return;
	s->armed = out;
	epoll_ctl(s->hub->epoll, EPOLL_CTL_MOD, s->fd, &e);
}

/* Bytes that a socket takes now. -EAGAIN: none; -errno. */
static ssize_t
write_some(struct peer_socket *s, struct iovec *iov, size_t count)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = count};
	ssize_t n;

	do
		n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void
drop_sent(struct chunks *out, size_t n)
{
	struct chunk *c;

	while ((c = out->head) && n >= c->used - c->done) {
		n -= c->used - c->done;
		free(chunks_pop(out));
	}
	if (c)
		c->done += (uint32_t)n;
}

/* Writes what has queued up. 0: all; -EAGAIN: the socket takes no more; or another error. */
static int
flush_locked(struct peer_socket *s)
{
	struct iovec iov[IOVECS];

	while (s->out.head) {
		size_t count = 0;
		ssize_t n;

		for (struct chunk *c = s->out.head; c && count < IOVECS; c = c->next)
			iov[count++] = (struct iovec){c->data + c->done, c->used - c->done};
		n = write_some(s, iov, count);
		if (n == -EAGAIN)
			arm(s, true);
		if (n < 0)
			return (int)n;
		drop_sent(&s->out, (size_t)n);
	}
	arm(s, false);
	return 0;
}

/* Wakes those that wait for room, if there is. */
static void
give_room(struct peer_socket *s)
{
	struct raw *raw = &s->hub->tcp->raw;
	uint64_t waiters = s->out.bytes < OUT_MAX ? s->waiters : 0;

	if (!waiters)
		return;
	s->waiters = 0;
	for (uint32_t i = 0; i < raw->t.o.threads; i++)
		if (waiters >> i & 1)
			inbox_wake(&raw->threads[i].inbox);
}

/* 0: more may queue up; -EAGAIN: the thread is woken when it may; or another error. */
static int
make_room(struct raw_thread *th, struct peer_socket *s)
{
	int rc = 0;

	if (s->out.bytes >= OUT_MAX)
		rc = flush_locked(s);
	if (rc == -EAGAIN && s->out.bytes < OUT_MAX)
		rc = 0;
	if (rc == -EAGAIN)
		s->waiters |= UINT64_C(1) << th->base.index;
	return rc;
}

/* A frame for a socket for which none waits. */
static int
write_frame(struct peer_socket *s, struct frame_head head, const struct weir_record *r)
{
	uint8_t start[512];
	uint32_t bytes = frame_size(r), n = bytes;
	struct iovec iov[3] = {{start, bytes}};
	size_t count = 1;
	ssize_t rc;

	if (bytes <= sizeof(start)) {
		frame_write(start, head, r);
	} else {
		head.bytes = bytes - (uint32_t)sizeof(head);
		memcpy(start, &head, sizeof(head));
		n = (uint32_t)sizeof(head);
		n += compact_write(start + n, r->key_length);
		n += compact_write(start + n, r->value_length);
		iov[0].iov_len = n;
		iov[1] = (struct iovec){(void *)(uintptr_t)r->key, r->key_length};
		iov[2] = (struct iovec){(void *)(uintptr_t)r->value, r->value_length};
		count = 3;
	}
	rc = write_some(s, iov, count);
	if (rc == bytes)
		return 0;
	if (rc < 0 && rc != -EAGAIN)
		return (int)rc;
	if (!chunks_room(&s->out, bytes))
		return -ENOMEM;
	frame_write(s->out.head->data, head, r);
	s->out.head->done = rc < 0 ? 0 : (uint32_t)rc;
	arm(s, true);
	return 0;
}

static int
queue_frame(struct peer_socket *s, struct frame_head head, const struct weir_record *r)
{
	uint8_t *at = chunks_room(&s->out, frame_size(r));

	if (!at)
		return -ENOMEM;
	frame_write(at, head, r);
	return 0;
}

static struct peer_socket *
socket_to(struct raw_thread *th, struct weir_to to)
{
	struct tcp *t = tcp_of(th);
	uint32_t hub = to.thread * t->hub_count / t->raw.t.o.threads;

	return &hub_of(th)->sockets[to.process * t->hub_count + hub];
}

static int
told(struct tcp *t, struct peer_socket *s, int rc)
{
	if (!rc || rc == -EAGAIN)
		return rc;
	if (rc == -ENOMEM)
		return weir_fail(rc, "no memory for a record; free some");
	return fail_job(t, -ECONNRESET, s->process);
}

static int
tcp_send(struct raw_thread *th, struct weir_to to, const struct weir_record *r)
{
	struct tcp *t = tcp_of(th);
	struct frame_head head = {.from = (uint16_t)th->base.index, .to = (uint16_t)to.thread};
	struct peer_socket *s;
	int rc;

	if (to.process == t->raw.rank)
		return raw_local_send(th, to.thread, r);
	s = socket_to(th, to);
	pthread_mutex_lock(&s->lock);
	if (!s->out.head)
		rc = write_frame(s, head, r);
	else if (!(rc = make_room(th, s)))
		rc = queue_frame(s, head, r);
	pthread_mutex_unlock(&s->lock);
	return told(t, s, rc);
}

static int
tcp_push(struct raw_thread *th, struct weir_to to, struct chunk *c, bool always)
{
	struct tcp *t = tcp_of(th);
	struct peer_socket *s;
	int rc;

	if (to.process == t->raw.rank)
		return raw_local_push(th, to.thread, c, always);
	s = socket_to(th, to);
	pthread_mutex_lock(&s->lock);
	rc = always ? 0 : make_room(th, s);
	if (!rc) {
		chunks_push(&s->out, c);
		rc = flush_locked(s);
		/* the socket has it, whatever becomes of that */
		if (rc == -EAGAIN)
			rc = 0;
		else if (rc)
			fail_job(t, -ECONNRESET, s->process);
		rc = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return told(t, s, rc);
}

static int
tcp_drain(struct raw_thread *th)
{
	struct tcp *t = tcp_of(th);
	struct hub *h = hub_of(th);
	int rc = 0;

	for (uint32_t i = 0; i < t->raw.processes * t->hub_count; i++) {
		struct peer_socket *s = &h->sockets[i];
		int one;

		if (s->fd < 0)
			continue;
		pthread_mutex_lock(&s->lock);
		one = s->out.head ? flush_locked(s) : 0;
		give_room(s);
		pthread_mutex_unlock(&s->lock);
		if (one && one != -EAGAIN)
			return told(t, s, one);
		rc = one ? one : rc;
	}
	return rc;
}

/* ---- receiving: the leader of a hub ---- */

static bool
is_valid(const struct hub *h, const struct frame_head *head)
{
	return head->bytes <= FRAME_MAX && head->from < h->tcp->raw.t.o.threads &&
	       head->to >= h->first && head->to - h->first < h->threads;
}

/* Gives a thread its frames of the first `bytes` of the stage. 0 or -ENOMEM. */
static int
deliver(struct hub *h, uint32_t thread, uint32_t bytes)
{
	struct inbox *in = &h->tcp->raw.threads[thread].inbox;
	struct frame_head head;
	int rc = 0;

	pthread_mutex_lock(&in->lock);
	for (uint32_t at = 0, size; at < bytes && !rc; at += size) {
		uint8_t *to;

		memcpy(&head, h->stage + at, sizeof(head));
		size = (uint32_t)sizeof(head) + head.bytes;
		if (head.to != thread)
			continue;
		to = chunks_room(&in->list, size);
		if (to)
			memcpy(to, h->stage + at, size);
		else
			rc = -ENOMEM;
	}
	if (in->list.head && in->asleep)
		inbox_wake_locked(in);
	pthread_mutex_unlock(&in->lock);
	return rc;
}

static void
deliver_large(struct hub *h, struct peer_socket *s)
{
	struct frame_head head;
	struct inbox *in;

	memcpy(&head, s->large->data, sizeof(head));
	in = &h->tcp->raw.threads[head.to].inbox;
	pthread_mutex_lock(&in->lock);
	chunks_push(&in->list, s->large);
	if (in->asleep)
		inbox_wake_locked(in);
	pthread_mutex_unlock(&in->lock);
	s->large = NULL;
}

/* Frames in the stage, of which the last one may be cut. 0 or -errno. */
static int
take_stage(struct hub *h, struct peer_socket *s, uint32_t bytes)
{
	struct frame_head head;
	uint64_t receivers = 0;
	uint32_t at = 0;
	int rc = 0;

	while (bytes - at >= sizeof(head)) {
		memcpy(&head, h->stage + at, sizeof(head));
		if (!is_valid(h, &head) || (!head.bytes && !s->ends))
			return -EPROTO;
		if (bytes - at - sizeof(head) < head.bytes)
			break;
		s->ends -= !head.bytes;
		receivers |= UINT64_C(1) << head.to;
		at += (uint32_t)sizeof(head) + head.bytes;
	}
	for (uint32_t i = h->first; i < h->first + h->threads && !rc; i++)
		if (receivers >> i & 1)
			rc = deliver(h, i, at);
	if (rc)
		return rc;
	bytes -= at;
	if (bytes >= sizeof(head) && head.bytes > LARGE) {
		s->large = chunk_new((uint32_t)sizeof(head) + head.bytes);
		if (!s->large)
			return -ENOMEM;
		memcpy(s->large->data, h->stage + at, bytes);
		s->large->used = bytes;
		bytes = 0;
	}
	memcpy(s->tail, h->stage + at, bytes);
	s->tail_bytes = bytes;
	return 0;
}

/* Reads once. Above 0: there may be more; 0: there is not; -errno: the job fails. */
static int
read_some(struct hub *h, struct peer_socket *s)
{
	struct chunk *c = s->large;
	struct iovec iov[2];
	struct msghdr m = {0};
	uint32_t rest = c ? c->room - c->used : 0, have = s->tail_bytes, room;
	ssize_t n;
	int rc;

	memcpy(h->stage, s->tail, have);
	/* behind a large frame only the next head: most often another large one follows */
	room = c ? (uint32_t)sizeof(struct frame_head) : STAGE_BYTES - have;
	iov[0] = (struct iovec){c ? c->data + c->used : NULL, rest};
	iov[1] = (struct iovec){h->stage + have, room};
	m.msg_iov = iov + !c;
	m.msg_iovlen = c ? 2 : 1;
	do
		n = recvmsg(s->fd, &m, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -ECONNRESET;
	if (!n) {
		s->over = true;
		epoll_ctl(h->epoll, EPOLL_CTL_DEL, s->fd, NULL);
		return s->ends ? -ECONNRESET : 0;
	}
	if (c && (size_t)n < rest) {
		c->used += (uint32_t)n;
		return 0;
	}
	if (c) {
		c->used = c->room;
		deliver_large(h, s);
	}
	rc = take_stage(h, s, have + (uint32_t)n - rest);
	return rc ? rc : (size_t)n == rest + room;
}

static int
handle(struct hub *h, const struct epoll_event *e)
{
	struct peer_socket *s = e->data.ptr;
	uint64_t count;
	int rc;

	if (!s) {
		(void)!read(h->bell, &count, sizeof(count));
		return 0;
	}
	if (e->events & EPOLLOUT) {
		pthread_mutex_lock(&s->lock);
		rc = flush_locked(s);
		give_room(s);
		pthread_mutex_unlock(&s->lock);
		if (rc && rc != -EAGAIN)
			return fail_job(h->tcp, -ECONNRESET, s->process);
	}
	if (!(e->events & ~(uint32_t)EPOLLOUT) || s->over)
		return 0;
	rc = read_some(h, s);
	/* a large frame, and then the next one, as long as they keep coming */
	for (int i = 0; rc > 0 && i < 4; i++)
		rc = read_some(h, s);
	return rc < 0 ? fail_job(h->tcp, rc, s->process) : 0;
}

/* Whether another thread of the hub has more than INBOX_MAX bytes to read; `th` is woken when it
 * has fewer. The thread's own inbox is empty. */
static bool
is_full(struct hub *h, struct raw_thread *th)
{
	bool full = false;

	for (uint32_t i = h->first; i < h->first + h->threads && !full; i++) {
		struct inbox *in = &h->tcp->raw.threads[i].inbox;

		if (i == th->base.index)
			continue;
		pthread_mutex_lock(&in->lock);
		full = inbox_is_full(in, th->base.index);
		pthread_mutex_unlock(&in->lock);
	}
	return full;
}

static bool
take_lead(struct hub *h, struct raw_thread *th, bool follow)
{
	bool mine;

	pthread_mutex_lock(&h->lock);
	mine = !h->led;
	if (mine)
		h->led = true;
	else if (follow)
		h->followers |= UINT64_C(1) << th->base.index;
	pthread_mutex_unlock(&h->lock);
	return mine;
}

/* Wakes a thread that waits for the lead, if nobody has it. */
static void
pass_on(struct hub *h, bool led)
{
	uint64_t follower = 0;

	pthread_mutex_lock(&h->lock);
	if (led)
		h->led = false;
	if (!h->led)
		follower = h->followers & -h->followers;
	h->followers &= ~follower;
	pthread_mutex_unlock(&h->lock);
	if (follower)
		inbox_wake(&h->tcp->raw.threads[__builtin_ctzll(follower)].inbox);
}

/* Sleeps until another thread has read something for this one. True: it has passed the lead on, and
 * there is nothing to read. */
static bool
follow(struct hub *h, struct raw_thread *th, int timeout_ms)
{
	uint64_t bit = UINT64_C(1) << th->base.index;
	bool chosen, empty;

	inbox_sleep(&th->inbox, timeout_ms);
	pthread_mutex_lock(&h->lock);
	chosen = !(h->followers & bit);
	h->followers &= ~bit;
	pthread_mutex_unlock(&h->lock);
	pthread_mutex_lock(&th->inbox.lock);
	empty = !th->inbox.list.head;
	pthread_mutex_unlock(&th->inbox.lock);
	if (chosen && !empty)
		pass_on(h, false);
	return chosen && empty;
}

/* Waits for sockets until the thread has something to do. 0 or -errno. */
static int
lead(struct hub *h, struct raw_thread *th, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	int n, rc = 0;

	do {
		if (timeout_ms && !inbox_doze(&th->inbox))
			return 0;
		n = epoll_wait(h->epoll, events, EVENTS, timeout_ms);
		if (timeout_ms)
			inbox_rise(&th->inbox);
		for (int i = 0; i < n && !rc; i++)
			rc = handle(h, &events[i]);
	} while (!rc && n > 0 && timeout_ms && !is_full(h, th));
	return rc;
}

static int
tcp_wait(struct raw_thread *th, int timeout_ms)
{
	struct tcp *t = tcp_of(th);
	struct hub *h = hub_of(th);
	bool full;
	int rc = failed(t);

	if (rc)
		return rc;
	while (!take_lead(h, th, timeout_ms))
		if (!timeout_ms || !follow(h, th, timeout_ms))
			return failed(t);
	full = is_full(h, th);
	if (!full)
		rc = lead(h, th, timeout_ms);
	pass_on(h, true);
	if (full && timeout_ms)
		inbox_sleep(&th->inbox, timeout_ms);
	return rc ? rc : failed(t);
}

/* ---- opening: the process with the higher rank connects ---- */

struct meeting {
	uint64_t word;
	uint32_t port;
	uint32_t reserved;
};

struct hello {
	uint64_t word;
	uint32_t process, from, to; /* hubs */
	uint32_t reserved;
};

static void
set_size(int fd, int option, int force)
{
	int bytes = SOCKET_BYTES;

	if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof(bytes));
}

static int
new_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		return weir_fail(-errno, "no socket: %s; raise ulimit -n", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	set_size(fd, SO_SNDBUF, SO_SNDBUFFORCE);
	set_size(fd, SO_RCVBUF, SO_RCVBUFFORCE);
	return fd;
}

static int
listen_somewhere(uint32_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(a);
	int fd = new_socket(), rc;

	if (fd < 0)
		return fd;
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 4096) ||
	    getsockname(fd, (struct sockaddr *)&a, &length)) {
		rc = weir_fail(-errno, "cannot listen on 127.0.0.1: %s", strerror(errno));
		close(fd);
		return rc;
	}
	*port = ntohs(a.sin_port);
	return fd;
}

/* Makes a connected socket one of the hub's. 0 or -errno. */
static int
adopt(struct hub *h, uint32_t process, uint32_t peer_hub, int fd)
{
	struct tcp *t = h->tcp;
	struct peer_socket *s = &h->sockets[process * t->hub_count + peer_hub];
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
	uint32_t each = t->raw.t.o.threads / t->hub_count;

	if (s->fd >= 0)
		return weir_fail(-EPROTO, "process %u connects twice; see its output", process);
	s->fd = fd;
	s->ends = each * each;
	if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &e))
		return weir_fail(-errno, "epoll_ctl: %s", strerror(errno));
	return 0;
}

static int
connect_to(struct hub *h, uint32_t process, const struct meeting *m, uint32_t peer_hub)
{
	struct tcp *t = h->tcp;
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)m->port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct hello hello = {.word = t->raw.word,
			      .process = t->raw.rank,
			      .from = (uint32_t)(h - t->hubs),
			      .to = peer_hub};
	int fd = new_socket(), rc;

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    write(fd, &hello, sizeof(hello)) != sizeof(hello)) {
		rc = weir_fail(-errno, "cannot connect to process %u: %s; see its output", process,
			       strerror(errno));
		close(fd);
		return rc;
	}
	rc = adopt(h, process, peer_hub, fd);
	if (rc)
		close(fd);
	return rc;
}

/* 0; -EACCES: another program has connected, which is ignored; or another -errno. */
static int
accept_one(struct tcp *t, int listener)
{
	struct timeval limit = {.tv_sec = HELLO_S};
	struct hello hello;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), rc, one = 1;

	if (fd < 0)
		return weir_fail(-errno, "cannot accept a connection: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello) ||
	    hello.word != t->raw.word || hello.process >= t->raw.processes ||
	    hello.process <= t->raw.rank || hello.from >= t->hub_count || hello.to >= t->hub_count)
		rc = -EACCES;
	else
		rc = adopt(&t->hubs[hello.to], hello.process, hello.from, fd);
	if (rc)
		close(fd);
	return rc;
}

static int
connect_all(struct tcp *t, const struct meeting *all, int listener)
{
	uint32_t hubs = t->hub_count;
	uint32_t expected = (t->raw.processes - 1 - t->raw.rank) * hubs * hubs;
	struct timeval limit = {.tv_sec = HELLO_S};
	int rc = 0;

	for (uint32_t p = 0; p < t->raw.rank; p++)
		for (uint32_t i = 0; i < hubs * hubs && !rc; i++)
			rc = connect_to(&t->hubs[i / hubs], p, &all[p], i % hubs);
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	while (expected && !rc) {
		rc = accept_one(t, listener);
		expected -= !rc;
		if (rc == -EACCES)
			rc = 0;
	}
	return rc;
}

static int
meet(struct tcp *t)
{
	struct meeting mine = {0}, *all = calloc(t->raw.processes, sizeof(*all));
	int listener, rc;

	if (!all)
		return weir_fail(-ENOMEM, "no memory for %u processes", t->raw.processes);
	listener = listen_somewhere(&mine.port);
	rc = listener < 0 ? listener : 0;
	if (!rc && getrandom(&mine.word, sizeof(mine.word), 0) != sizeof(mine.word))
		rc = weir_fail(-EIO, "no random number: %s", strerror(errno));
	if (!rc)
		rc = crew_gather(t->raw.t.crew, &mine, sizeof(mine), all);
	t->raw.word = all[0].word;
	if (!rc)
		rc = connect_all(t, all, listener);
	if (listener >= 0)
		close(listener);
	free(all);
	return rc;
}

static int
open_hub(struct tcp *t, struct hub *h)
{
	uint32_t count = t->raw.processes * t->hub_count;
	struct epoll_event e = {.events = EPOLLIN};

	h->tcp = t;
	h->threads = t->raw.t.o.threads / t->hub_count;
	h->first = (uint32_t)(h - t->hubs) * h->threads;
	pthread_mutex_init(&h->lock, NULL);
	h->epoll = epoll_create1(EPOLL_CLOEXEC);
	h->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h->stage = malloc(STAGE_BYTES);
	h->sockets = calloc(count, sizeof(*h->sockets));
	for (uint32_t i = 0; h->sockets && i < count; i++) {
		h->sockets[i].hub = h;
		h->sockets[i].fd = -1;
		h->sockets[i].process = i / t->hub_count;
		pthread_mutex_init(&h->sockets[i].lock, NULL);
	}
	if (h->epoll < 0 || h->bell < 0 || !h->stage || !h->sockets ||
	    epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->bell, &e))
		return weir_fail(-ENOMEM, "no memory or descriptor for sockets; raise ulimit -n");
	for (uint32_t i = h->first; i < h->first + h->threads; i++)
		t->raw.threads[i].inbox.bell = h->bell;
	return 0;
}

static void
close_hub(struct hub *h)
{
	struct tcp *t = h->tcp;

	for (uint32_t i = 0; h->sockets && i < t->raw.processes * t->hub_count; i++) {
		struct peer_socket *s = &h->sockets[i];

		if (s->fd >= 0)
			close(s->fd);
		chunks_free(&s->out);
		free(s->large);
		pthread_mutex_destroy(&s->lock);
	}
	free(h->sockets);
	free(h->stage);
	if (h->bell >= 0)
		close(h->bell);
	if (h->epoll >= 0)
		close(h->epoll);
	pthread_mutex_destroy(&h->lock);
}

static void
tcp_close(struct transport *transport)
{
	struct tcp *t = (struct tcp *)transport;

	for (uint32_t i = 0; i < t->hub_count && t->hubs[i].tcp; i++)
		close_hub(&t->hubs[i]);
	free(t->hubs);
	raw_close(&t->raw);
	free(t);
}

static const struct raw_ops ops = {tcp_send, tcp_push, tcp_wait, tcp_drain, tcp_close};

int
transport_tcp_open(struct crew *crew, const struct transport_options *o,
		   struct transport **transport)
{
	struct tcp *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return weir_fail(-ENOMEM, "no memory for a transport; free some");
	rc = raw_open(&t->raw, crew, o, &ops, 0);
	if (rc) {
		free(t);
		return rc;
	}
	t->hub_count = o->per_process ? 1 : o->threads;
	t->hubs = calloc(t->hub_count, sizeof(*t->hubs));
	if (!t->hubs)
		rc = weir_fail(-ENOMEM, "no memory for %u hubs", t->hub_count);
	for (uint32_t i = 0; i < t->hub_count && !rc; i++)
		rc = open_hub(t, &t->hubs[i]);
	if (!rc)
		rc = meet(t);
	if (rc) {
		tcp_close(&t->raw.t);
		return rc;
	}
	*transport = &t->raw.t;
	return 0;
}
