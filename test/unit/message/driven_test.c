/* SPDX-License-Identifier: BSD-3-Clause */
/* Messengers without handler threads: the program's own thread drives them. */
#include "worlds/message_world.h"
#include "worlds/test.h"

#include "weir/stream.h"

#include <dirent.h>
#include <signal.h>
#include <sys/epoll.h>

static const struct weir_messenger_options no_threads = {
    .size = sizeof(no_threads),
    .service = "weir.message",
    .lanes = 64,
    .connections = 10000,
    .threshold = 50,
    .request_timeout_ms = 333,
    .message_max = 1u << 30,
};

/* Both messengers have turns until it is so. */
#define drive(p, condition)                                                                        \
	do {                                                                                       \
		for (unsigned drive_n = 0; !(condition); drive_n++) {                              \
			if (drive_n == 20000)                                                      \
				fail_msg("never: %s", #condition);                                 \
			turn(p);                                                                   \
		}                                                                                  \
	} while (0)

static void
turn(struct both *p)
{
	int n = 0;

	if (p->a.m)
		n |= weir_messenger_progress(p->a.m, 0, 0);
	if (p->b.m)
		n |= weir_messenger_progress(p->b.m, 0, 0);
	if (n < 0)
		fatal("progress", n);
	if (!n)
		nap(1);
}

static unsigned
threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static pthread_t handled_in;
static int nested;

static void
where(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	handled_in = pthread_self();
	nested = weir_messenger_progress(m, 0, 0);
	atomic_fetch_add(&s->notes, 1);
}

TEST(test_same_thread)
{
	struct weir_handler h = WEIR_HANDLER_INIT;
	struct weir_messenger_options o = no_threads;
	struct weir_messenger *m;
	uint64_t in = 0, one = 1;
	struct weir_request r;
	pthread_t closing;
	struct both p;
	unsigned before;

	open_both(&p, NULL, &o);
	before = threads();
	o.service = "other";
	must(weir_messenger_open(p.a.w, &o, &m));
	assert_int_equal(threads(), before);
	weir_messenger_close(m);
	h.handle = where;
	h.user = &p.b;
	must(weir_message_register(p.b.m, WEIR_TYPE(9, 9), &h));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(9, 9), "x", 1, PATIENT));
	stays(p.b.notes == 0); /* until it is driven */
	drive(&p, p.b.notes == 1);
	assert_true(pthread_equal(handled_in, pthread_self()));
	assert_int_equal(nested, -EINVAL);
	must(weir_request_start(p.a.m, &r, B, TYPE_ECHO, &one, 8, &in, 8, PATIENT));
	drive(&p, weir_request_wait(&r, 0) != -EAGAIN);
	must(r.status);
	assert_int_equal(in, 1);
	assert_int_equal(p.a.created + p.b.created, 2);
	/* both close in order */
	assert_int_equal(weir_message_disconnect(p.a.m, PLANE_NODE(7)), -ENOTCONN);
	closing = close_beside(p.a.m);
	p.a.m = NULL;
	drive(&p, p.b.lost == 1);
	pthread_join(closing, NULL);
	assert_int_equal(p.b.status, 0);
	close_both(&p);
}

/* A messenger that closes handles what came on a connection that it had not accepted yet. */
TEST(test_close_before_accept)
{
	struct weir_handler h = WEIR_HANDLER_INIT;
	struct weir_messenger_options o = no_threads;
	pthread_t closing;
	struct both p;

	open_both(&p, NULL, &o);
	h.handle = where;
	h.user = &p.b;
	must(weir_message_register(p.b.m, WEIR_TYPE(9, 9), &h));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(9, 9), "x", 1, PATIENT));
	assert_int_equal(p.b.notes, 0);
	closing = close_beside(p.b.m);
	p.b.m = NULL;
	drive(&p, p.a.lost == 1);
	pthread_join(closing, NULL);
	assert_int_equal(p.b.notes, 1);
	close_both(&p);
}

/* The limit of calls holds; a wait ends with the first call, or with its time. */
TEST(test_limit)
{
	uint32_t buf[4];
	struct both p;
	int n;

	open_both(&p, NULL, &no_threads);
	for (uint32_t i = 0; i < 10; i++) {
		fill(buf, 0, i, 16);
		must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 16, PATIENT));
	}
	/* ten notes, and the call of `link` */
	for (uint32_t got = 0; got < 11; got += (uint32_t)n) {
		n = weir_messenger_progress(p.b.m, 3, PATIENT);
		assert_in_range(n, 1, 3);
		assert_int_equal(p.b.notes + p.b.created, got + (uint32_t)n);
	}
	assert_int_equal(weir_messenger_progress(p.b.m, 0, 5), 0);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

struct late {
	struct both *p;
	uint16_t node;
};

static void *
send_late(void *arg)
{
	const struct late *l = arg;

	nap(30);
	must(weir_message_send(l->p->a.m, l->node, TYPE_MUTE, "x", 1, PATIENT));
	return NULL;
}

/* The thread sleeps on the descriptor, and a message wakes it; so does its wait. */
TEST(test_sleep)
{
	struct epoll_event e = {.events = EPOLLIN};
	struct weir_messenger_options o = no_threads;
	struct late l;
	struct both p;
	pthread_t t;
	int set = epoll_create1(0), fd;

	open_both(&p, NULL, NULL);
	weir_messenger_close(p.b.m);
	open_side(&p.b, &o);
	must(weir_message_connect(p.b.m, A, PATIENT));
	l = (struct late){&p, B};
	fd = weir_messenger_fd(p.b.m);
	assert_true(fd >= 0);
	assert_int_equal(fd, weir_fd(p.b.w));
	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e));
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&t, NULL, send_late, &l), 0);
		while (p.b.notes == i) {
			/* a stop of the process ends it early */
			if (!weir_messenger_arm(p.b.m) && !epoll_wait(set, &e, 1, PATIENT))
				fail_msg("slept until the end");
			weir_messenger_progress(p.b.m, 0, 0);
		}
		pthread_join(t, NULL);
	}
	assert_int_equal(pthread_create(&t, NULL, send_late, &l), 0);
	while (p.b.notes == 3)
		weir_messenger_progress(p.b.m, 1, PATIENT);
	pthread_join(t, NULL);
	close(set);
	close_both(&p);
}

/* Streams and messages on one thread: each sees its own. */
TEST(test_beside_streams)
{
	struct weir_listener *l;
	struct weir_address address;
	struct weir_conn *out, *c = NULL;
	struct weir_event e[8];
	bool messages = false, readable = false;
	char in[8];
	struct both p;
	size_t got;
	int n;

	open_both(&p, NULL, &no_threads);
	must(weir_listen(p.b.w, "svc", 0, &l));
	must(weir_address_parse("node:11:svc", &address));
	must(weir_connect(p.a.w, &address, PATIENT, &out));
	must(weir_message_send(p.a.m, B, TYPE_MUTE, "x", 1, PATIENT));
	must(weir_send(out, "stream", 6, PATIENT));
	for (unsigned i = 0; i < 20000 && (!messages || !readable); i++) {
		weir_messenger_progress(p.a.m, 0, 0);
		n = weir_wait(p.b.w, e, 8, 1);
		for (int k = 0; k < n; k++) {
			messages |= e[k].type == WEIR_EVENT_MESSAGES;
			if (e[k].type == WEIR_EVENT_ACCEPT) {
				assert_ptr_equal(e[k].listener, l);
				must(weir_accept(l, PATIENT, &c));
			}
			if (e[k].type == WEIR_EVENT_READABLE) {
				assert_ptr_equal(e[k].conn, c);
				readable = true;
			}
			if (e[k].type == WEIR_EVENT_MESSAGES)
				weir_messenger_progress(p.b.m, 0, 0);
		}
	}
	assert_true(messages && readable);
	drive(&p, p.b.notes == 1);
	must(weir_recv(c, in, sizeof(in), &got, PATIENT));
	assert_int_equal(got, 6);
	/* nothing is left: no event comes again and again */
	while (weir_messenger_progress(p.b.m, 0, 20))
		;
	while (weir_poll(p.b.w, e, 8) > 0)
		;
	for (unsigned i = 0; i < 20; i++) {
		n = weir_poll(p.b.w, e, 8);
		for (int k = 0; k < n; k++)
			assert_int_not_equal(e[k].type, WEIR_EVENT_MESSAGES);
		nap(1);
	}
	weir_close(c);
	weir_close(out);
	weir_listener_close(l);
	close_both(&p);
}

/* Two messengers of one thread: each handles its own messages. */
TEST(test_two)
{
	struct weir_messenger_options o = no_threads;
	struct weir_handler h = WEIR_HANDLER_INIT;
	struct weir_messenger *b2, *client;
	struct side other = {0};
	pthread_t closing;
	struct both p;

	open_both(&p, NULL, &no_threads);
	o.service = "second";
	h.handle = mute;
	h.user = &other;
	must(weir_messenger_open(p.b.w, &o, &b2));
	must(weir_message_register(b2, TYPE_MUTE, &h));
	o.flags = WEIR_MESSENGER_CLIENT;
	must(weir_messenger_open(p.a.w, &o, &client));
	for (int i = 0; i < 20; i++) {
		must(weir_message_send(p.a.m, B, TYPE_MUTE, "x", 1, PATIENT));
		must(weir_message_send(client, B, TYPE_MUTE, "x", 1, PATIENT));
		must(weir_message_send(client, B, TYPE_MUTE, "x", 1, PATIENT));
		if (i % 2) {
			weir_messenger_progress(b2, 0, 0);
			turn(&p);
		}
	}
	for (int i = 0; i < 20000 && (p.b.notes < 20 || other.notes < 40); i++) {
		weir_messenger_progress(b2, 0, 0);
		turn(&p);
	}
	assert_int_equal(p.b.notes, 20);
	assert_int_equal(other.notes, 40);
	closing = close_beside(client);
	weir_messenger_close(b2);
	pthread_join(closing, NULL);
	close_both(&p);
}

/*
 * A limit of one connected node: the thread that drives makes room itself. Its connection with
 * itself neither takes the room nor makes some: before it has handled its messages, it can't.
 */
TEST(test_evict)
{
	struct weir_messenger_options o = no_threads, other = WEIR_MESSENGER_OPTIONS_INIT;
	struct side c = {0};
	struct both p;

	open_both(&p, NULL, NULL);
	c.w = plane_attach(p.f);
	open_side(&c, &other);
	weir_messenger_close(p.a.m);
	o.connections = 1;
	open_side(&p.a, &o);
	for (int i = 0; i < 3; i++) {
		must(weir_message_send(p.a.m, A, TYPE_MUTE, "x", 1, PATIENT)); /* itself */
		must(weir_message_send(p.a.m, B, TYPE_MUTE, "x", 1, PATIENT));
		must(weir_message_send(p.a.m, PLANE_NODE(2), TYPE_MUTE, "x", 1, PATIENT));
		assert_int_equal(stats_of(&p.a).evicted, 2 * i + 1);
	}
	assert_int_equal(stats_of(&p.a).created, 7);
	assert_int_equal(p.a.notes, 0);
	for (int i = 0; i < 20000 && p.a.notes < 3; i++)
		weir_messenger_progress(p.a.m, 0, 1);
	assert_int_equal(p.a.notes, 3);
	await(p.b.notes == 3 && c.notes == 3);
	must(weir_message_disconnect(p.a.m, A));
	assert_int_equal(weir_message_disconnect(p.a.m, A), -ENOTCONN);
	weir_messenger_close(c.m);
	weir_detach(c.w);
	close_both(&p);
}

/*
 * A wait is over when its time is, however long a tick of housekeeping is. A machine that keeps the
 * thread from its CPU gets more tries. 10 ms: longer than a thread yields before it sleeps. News
 * ends a wait early now and then, so a few short ones prove nothing.
 */
TEST(test_short_wait)
{
	unsigned shorter = 0, longer = 0;
	uint64_t begin, took;
	struct both p;

	open_both(&p, NULL, &no_threads);
	while (weir_messenger_progress(p.b.m, 0, 20)) /* all news */
		;
	while (shorter < 20 && longer < 100) {
		begin = weir_clock();
		assert_int_equal(weir_messenger_progress(p.b.m, 0, 10), 0);
		took = weir_clock() - begin;
		assert_true(took >= 10000000);
		if (took < TICK_NS)
			shorter++;
		else
			longer++;
	}
	assert_int_equal(shorter, 20);
	close_both(&p);
}

static unsigned calls, blocked_calls;

/* A call of the program: may a signal handler run in it? */
static void
look_at_mask(void)
{
	sigset_t set;

	pthread_sigmask(SIG_BLOCK, NULL, &set);
	calls++;
	blocked_calls += sigismember(&set, SIGUSR1) == 1;
}

static void
masked_handle(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	look_at_mask();
}

static void
masked_sent(struct weir_messenger *m, uint16_t node, uint64_t cookie, int status, void *user)
{
	look_at_mask();
}

static void
masked_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	look_at_mask();
}

static void
on_signal(int signal)
{
}

static void *
release_late(void *arg)
{
	nap(30);
	plane_hold(((struct both *)arg)->f, false);
	return NULL;
}

/* A wait blocks signals (guard.h), but the program's own code runs with its own mask. */
TEST(test_signals_in_calls)
{
	struct weir_messenger_options o = no_threads;
	struct sigaction a = {.sa_handler = on_signal}, before;
	struct weir_handler h = WEIR_HANDLER_INIT;
	struct iovec part = {"x", 1};
	struct both p;
	pthread_t t;
	int n = 0;

	assert_int_equal(sigaction(SIGUSR1, &a, &before), 0);
	open_both(&p, NULL, NULL);
	weir_messenger_close(p.b.m);
	o.sent = masked_sent;
	o.link = masked_link;
	must(weir_messenger_open(p.b.w, &o, &p.b.m));
	h.handle = masked_handle;
	must(weir_message_register(p.b.m, TYPE_MUTE, &h));
	must(weir_message_connect(p.b.m, A, PATIENT));
	/* a call of `link` is a call: it ends the wait */
	while (!calls)
		n = weir_messenger_progress(p.b.m, 0, PATIENT);
	assert_int_equal(n, 1);
	for (unsigned i = 0; i < 3; i++) {
		struct late l = {&p, B};

		calls = 0;
		assert_int_equal(pthread_create(&t, NULL, send_late, &l), 0);
		while (!calls)
			weir_messenger_progress(p.b.m, 0, PATIENT);
		pthread_join(t, NULL);
		calls = 0;
		plane_hold(p.f, true);
		must(weir_message_send_notify(p.b.m, A, TYPE_MUTE, &part, 1, 1, PATIENT));
		assert_int_equal(pthread_create(&t, NULL, release_late, &p), 0);
		while (!calls)
			weir_messenger_progress(p.b.m, 0, PATIENT);
		pthread_join(t, NULL);
	}
	assert_int_equal(blocked_calls, 0);
	close_both(&p);
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

/* Closing from a call of the messenger: refused, whoever makes the call and whichever it is. */
static _Atomic int closed_inside[4];

static void
close_handle(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	closed_inside[0] = weir_messenger_close(m);
	atomic_fetch_add(&s->notes, 1);
}

static void
close_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	struct weir_messenger **m = user;

	closed_inside[1] = weir_messenger_close(*m);
}

static void
close_sent(struct weir_messenger *m, uint16_t node, uint64_t cookie, int status, void *user)
{
	closed_inside[2] = weir_messenger_close(m);
}

static void
close_done(struct weir_request *r, void *user)
{
	struct weir_messenger **m = user;

	closed_inside[3] = weir_messenger_close(*m);
}

TEST(test_close_inside)
{
	for (unsigned own_threads = 0; own_threads < 2; own_threads++) {
		struct weir_request_options ro = WEIR_REQUEST_OPTIONS_INIT;
		struct weir_handler h = WEIR_HANDLER_INIT;
		struct weir_messenger_options o = no_threads;
		struct iovec part = {"x", 1};
		struct weir_messenger *other;
		struct weir_request r;
		struct both p;
		uint64_t in;

		memset(closed_inside, 0, sizeof(closed_inside));
		open_both(&p, NULL, NULL);
		weir_messenger_close(p.b.m);
		o.handler_threads = own_threads;
		o.link = close_link;
		o.sent = close_sent;
		o.user = &p.b.m;
		must(weir_messenger_open(p.b.w, &o, &p.b.m));
		h.handle = close_handle;
		h.user = &p.b;
		must(weir_message_register(p.b.m, WEIR_TYPE(9, 9), &h));
		must(weir_message_send(p.a.m, B, WEIR_TYPE(9, 9), "x", 1, PATIENT));
		must(weir_message_send_notify(p.b.m, A, TYPE_MUTE, &part, 1, 1, PATIENT));
		ro.done = close_done;
		ro.user = &p.b.m;
		ro.iov = &part;
		ro.parts = 1;
		ro.response = &in;
		ro.response_size = sizeof(in);
		must(weir_request_start_with(p.b.m, &r, A, TYPE_ECHO, &ro, PATIENT));
		drive(&p, p.b.notes && closed_inside[1] && closed_inside[2] && closed_inside[3]);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(closed_inside[i], -EDEADLK);
		/* another one may be closed there */
		o.service = "other";
		o.handler_threads = 0;
		o.link = NULL;
		must(weir_messenger_open(p.b.w, &o, &other));
		assert_int_equal(weir_messenger_close(other), 0);
		assert_int_equal(weir_messenger_close(p.b.m), 0);
		p.b.m = NULL;
		close_both(&p);
	}
}
