/* SPDX-License-Identifier: BSD-3-Clause */
/* The message model over the made-up data plane: programs that are nodes to each other. */
#include "plane_fake.h"

#include "weir/message.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define TYPE_NOTE WEIR_TYPE(1, 1)
#define TYPE_ECHO WEIR_TYPE(1, 2)
#define TYPE_MUTE WEIR_TYPE(1, 3)
#define TYPE_NOBODY WEIR_TYPE(200, 7)
#define A FAKE_NODE(0)
#define B FAKE_NODE(1)

static const struct fake_options plane = {
    .channels = 12, .nodes = true, .recv_blocks = 512, .send_blocks = 512, .ring_slots = 1024};

/* ---- two programs ---- */

struct side {
	struct weir *w;
	struct weir_messenger *m;
	_Atomic uint32_t notes, wrong, created, lost, bytes;
	_Atomic int status;
	uint32_t next[16]; /* number expected of each thread */
};

struct both {
	struct fake *f;
	struct side a, b;
};

static void
fatal(const char *what, int rc)
{
	fprintf(stderr, "%s: %d: %s\n", what, rc, weir_reason());
	abort();
}

#define must(call)                                                                                 \
	do {                                                                                       \
		int must_rc = (call);                                                              \
		if (must_rc)                                                                       \
			fatal(#call, must_rc);                                                     \
	} while (0)

static void
nap(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

#define await(condition)                                                                           \
	do {                                                                                       \
		for (unsigned await_n = 0; !(condition); await_n++) {                              \
			if (await_n == 20000)                                                      \
				fail_msg("never: %s", #condition);                                 \
			nap(1);                                                                    \
		}                                                                                  \
	} while (0)

static void
on_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	struct side *s = user;

	(void)node;
	atomic_fetch_add(event == WEIR_LINK_CREATED ? &s->created : &s->lost, 1);
	if (event == WEIR_LINK_LOST)
		atomic_store(&s->status, status);
}

/* {thread, number, bytes that follow from both} */
static void
fill(uint32_t *buf, uint32_t thread, uint32_t number, size_t length)
{
	buf[0] = thread;
	buf[1] = number;
	for (size_t i = 8; i < length; i++)
		((uint8_t *)buf)[i] = (uint8_t)(number * 7 + i);
}

static bool
is_filled(const uint8_t *data, uint32_t number, size_t length)
{
	for (size_t i = 8; i < length; i++)
		if (data[i] != (uint8_t)(number * 7 + i))
			return false;
	return true;
}

static void
note(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	const uint32_t *v = message->data;
	struct side *s = user;

	(void)m;
	if (message->length < 8 || v[0] >= 16 || v[1] != s->next[v[0]]++ ||
	    !is_filled(message->data, v[1], message->length))
		atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->notes, 1);
}

static void
echo(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	(void)user;
	must(weir_message_respond(m, &message->reply, message->data, message->length));
}

static void
mute(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	(void)m, (void)message;
	atomic_fetch_add(&s->notes, 1);
}

static void
open_side(struct side *s, struct weir_messenger_options *o)
{
	struct weir_handler notes = {.handle = note, .user = s}, echoes = {.handle = echo},
			    mutes = {.handle = mute, .user = s};

	o->link = on_link;
	o->user = s;
	must(weir_messenger_open(s->w, o, &s->m));
	must(weir_message_register(s->m, TYPE_NOTE, &notes));
	must(weir_message_register(s->m, TYPE_ECHO, &echoes));
	must(weir_message_register(s->m, TYPE_MUTE, &mutes));
}

static void
open_both(struct both *p, const struct fake_options *plane_options,
	  const struct weir_messenger_options *options)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS;

	if (options)
		o = *options;
	*p = (struct both){.f = fake_create(plane_options ? plane_options : &plane)};
	p->a.w = fake_attach(p->f);
	p->b.w = fake_attach(p->f);
	fake_run(p->f);
	open_side(&p->a, &o);
	open_side(&p->b, &o);
}

static void
close_both(struct both *p)
{
	weir_messenger_close(p->a.m);
	weir_messenger_close(p->b.m);
	weir_detach(p->a.w);
	weir_detach(p->b.w);
	fake_stop(p->f);
	fake_destroy(p->f);
}

/* ---- messages ---- */

static void
test_messages(void **state)
{
	static const size_t lengths[] = {8, 9, 40, 41, 64, 100, 101, 940, 941, 8184, 8192, 60000};
	uint32_t buf[60000 / 4 + 1];
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	for (uint32_t i = 0; i < 12 * 20; i++) {
		fill(buf, 0, i, lengths[i % 12]);
		must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, lengths[i % 12], 5000));
	}
	await(p.b.notes == 12 * 20);
	assert_int_equal(p.b.wrong, 0);
	await(p.a.created == 1 && p.b.created == 1);
	must(weir_message_disconnect(p.a.m, B));
	await(p.a.lost == 1 && p.b.lost == 1);
	assert_int_equal(p.a.status, 0);
	assert_int_equal(p.b.status, 0);
	close_both(&p);
}

static void
test_requests(void **state)
{
	static const size_t lengths[] = {0, 1, 64, 92, 93, 948, 5000, 20000};
	uint8_t in[20000], out[20000];
	struct both p;
	size_t n;

	(void)state;
	open_both(&p, NULL, NULL);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 13);
	for (unsigned i = 0; i < 200; i++) {
		must(weir_message_request(p.a.m, B, TYPE_ECHO, out, lengths[i % 8], in, sizeof(in),
					  &n, 5000));
		assert_int_equal(n, lengths[i % 8]);
		assert_memory_equal(in, out, n);
	}
	/* too small a buffer: its beginning, and how long it is */
	memset(in, 0, sizeof(in));
	assert_int_equal(weir_message_request(p.a.m, B, TYPE_ECHO, out, 64, in, 10, &n, 5000),
			 -EMSGSIZE);
	assert_int_equal(n, 64);
	assert_memory_equal(in, out, 10);
	assert_int_equal(in[10], 0);
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_NOBODY, out, 1, in, sizeof(in), &n, 5000), -ENOMSG);
	close_both(&p);
}

/* ---- what can go wrong ---- */

static void
test_bad_input(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS, bad;
	struct weir_handler h = {.handle = mute};
	struct weir_messenger_stats stats;
	struct weir_messenger *m;
	uint32_t buf[2] = {0, 0};
	struct weir_draft d;
	struct both p;

	(void)state;
	o.message_max = 2u << 20;
	open_both(&p, NULL, &o);
#define refused(field, value)                                                                      \
	(bad = o, bad.service = "other", bad.field = (value),                                      \
	 assert_int_equal(weir_messenger_open(p.a.w, &bad, &m), -EINVAL))
	refused(connections, 0);
	refused(connections, 65537);
	refused(handler_threads, 0);
	refused(handler_threads, 33);
	refused(receivers, 3);
	refused(lanes, 0);
	refused(window, 1);
	refused(window, (64u << 10) - 1);
	refused(threshold, 0);
	refused(threshold, 91);
	refused(flags, 2);
	refused(message_max, 1000);
	refused(request_timeout_ms, 0);
	refused(service, "");
	refused(service, "a-name-that-is-too-long-by-a-character");
#undef refused
	assert_int_equal(weir_messenger_open(p.a.w, &o, &m), -EADDRINUSE);
	assert_int_equal(weir_message_register(p.a.m, TYPE_MUTE, &h), -EEXIST);
	h.flags = 4;
	assert_int_equal(weir_message_register(p.a.m, TYPE_NOBODY, &h), -EINVAL);
	assert_int_equal(weir_message_unregister(p.a.m, TYPE_NOBODY, 0), -ENOENT);
	/* an unregistered type disturbs nothing */
	must(weir_message_send(p.a.m, B, TYPE_NOBODY, buf, 8, 5000));
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, 5000));
	await(p.b.notes == 1);
	weir_messenger_stats(p.b.m, &stats);
	assert_int_equal(stats.unknown, 1);
	assert_int_equal(weir_message_send(p.a.m, B, TYPE_NOTE, buf, (2u << 20) + 1, 0), -EMSGSIZE);
	assert_int_equal(weir_message_send(p.a.m, FAKE_NODE(7), TYPE_NOTE, buf, 8, 1000),
			 -ECONNREFUSED);
	assert_int_equal(weir_message_disconnect(p.a.m, FAKE_NODE(7)), -ENOTCONN);
	assert_int_equal(weir_message_reserve(p.a.m, B, TYPE_NOTE, (1u << 20) + 1, 0, 0, &d),
			 -EMSGSIZE);
	assert_int_equal(weir_message_reserve(p.a.m, B, TYPE_NOTE, 10, 8, 0, &d), -EINVAL);
	close_both(&p);
}

/* Somebody who connects to the name and is no messenger. */
static void
test_stranger(void **state)
{
	static const uint8_t garbage[][24] = {{0},    {1, 1},	 {9, 0, 1},
					      {4, 9}, {3, 0, 1}, {4, 1, 1, 1}};
	struct weir_messenger_stats stats;
	struct weir_address address;
	uint32_t buf[2] = {0, 0};
	struct weir_conn *c;
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, 5000));
	must(weir_address_parse("node:11:weir.message", &address));
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		char in[64];
		size_t n;
		int rc;

		must(weir_connect(p.a.w, &address, 5000, &c));
		must(weir_send(c, garbage[i], i ? sizeof(garbage[0]) : 3, 1000));
		do {
			rc = weir_recv(c, in, sizeof(in), &n, 5000);
		} while (!rc); /* its hello */
		assert_true(rc == -ESHUTDOWN || rc == -ECONNRESET);
		weir_close(c);
	}
	weir_messenger_stats(p.b.m, &stats);
	assert_int_equal(stats.malformed, 6);
	buf[1] = 1;
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, 5000));
	await(p.b.notes == 2);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

/* ---- requests that end otherwise ---- */

static struct weir_reply kept[8];
static _Atomic uint32_t kept_count;

static void
keep(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	(void)m, (void)user;
	kept[atomic_load(&kept_count) % 8] = message->reply;
	atomic_fetch_add(&kept_count, 1);
}

static void
register_keep(struct side *s)
{
	struct weir_handler h = {.handle = keep};

	atomic_store(&kept_count, 0);
	must(weir_message_register(s->m, WEIR_TYPE(2, 0), &h));
}

static void
test_late(void **state)
{
	struct weir_messenger_stats stats;
	struct weir_request first, second;
	uint64_t one = 1, two = 2, in[2] = {0};
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &first, B, WEIR_TYPE(2, 0), &one, 8, &in[0], 8, 1000));
	await(kept_count == 1);
	assert_int_equal(weir_request_wait(&first, 0), -EAGAIN);
	assert_int_equal(weir_request_wait(&first, 30), -ETIMEDOUT);
	assert_int_equal(weir_request_wait(&first, 30), -ETIMEDOUT);
	/* takes the same slot; the first one's response must not end it */
	must(weir_request_start(p.a.m, &second, B, WEIR_TYPE(2, 0), &two, 8, &in[1], 8, 1000));
	await(kept_count == 2);
	must(weir_message_respond(p.b.m, &kept[0], &one, 8));
	assert_int_equal(weir_request_wait(&second, 50) == -ETIMEDOUT, 1);
	weir_messenger_stats(p.a.m, &stats);
	assert_int_equal(stats.late, 1);
	must(weir_request_start(p.a.m, &second, B, WEIR_TYPE(2, 0), &two, 8, &in[1], 8, 1000));
	await(kept_count == 3);
	must(weir_message_respond(p.b.m, &kept[1], &one, 8)); /* late, too */
	must(weir_message_respond(p.b.m, &kept[2], &two, 8));
	must(weir_request_wait(&second, 5000));
	assert_int_equal(in[1], 2);
	assert_int_equal(in[0], 0);
	/* responding twice completes nothing else */
	must(weir_request_start(p.a.m, &first, B, WEIR_TYPE(2, 0), &two, 8, &in[0], 8, 1000));
	must(weir_message_respond(p.b.m, &kept[2], &two, 8));
	assert_int_equal(weir_request_wait(&first, 30), -ETIMEDOUT);
	assert_int_equal(weir_message_refuse(p.b.m, &kept[2], 0), -EINVAL);
	close_both(&p);
}

static void *
wait_for(void *arg)
{
	return (void *)(intptr_t)weir_request_wait(arg, WEIR_NO_TIMEOUT);
}

static void
test_cancel(void **state)
{
	struct weir_request r[4];
	uint64_t in[4];
	struct both p;
	void *rc;
	pthread_t t;

	(void)state;
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	for (int i = 0; i < 4; i++)
		must(weir_request_start(p.a.m, &r[i], B, WEIR_TYPE(2, 0), "x", 1, &in[i], 8, 1000));
	assert_int_equal(pthread_create(&t, NULL, wait_for, &r[0]), 0);
	nap(5);
	weir_request_cancel(&r[0]);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, -ECANCELED);
	assert_int_equal(pthread_create(&t, NULL, wait_for, &r[1]), 0);
	nap(5);
	assert_int_equal(weir_message_cancel(p.a.m, FAKE_NODE(7)), 0);
	assert_int_equal(weir_message_cancel(p.a.m, B), 3);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, -ECANCELED);
	assert_int_equal(weir_request_wait(&r[2], 100), -ECANCELED);
	/* refused by the program; and the default timeout */
	await(kept_count == 4);
	must(weir_request_start(p.a.m, &r[0], B, WEIR_TYPE(2, 0), "x", 1, in, 8, 1000));
	await(kept_count == 5);
	must(weir_message_refuse(p.b.m, &kept[4], EDOM));
	assert_int_equal(weir_request_wait(&r[0], WEIR_NO_TIMEOUT), -EDOM);
	assert_int_equal(weir_message_request(p.a.m, B, TYPE_MUTE, "x", 1, in, 8, NULL, -1),
			 -ETIMEDOUT);
	close_both(&p);
}

static void
test_death(void **state)
{
	struct weir_request r;
	uint64_t in;
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &r, B, WEIR_TYPE(2, 0), "x", 1, &in, 8, 1000));
	await(kept_count == 1);
	fake_die(p.f, p.b.w);
	assert_int_equal(weir_request_wait(&r, WEIR_NO_TIMEOUT), -EHOSTUNREACH);
	await(p.a.lost == 1);
	assert_int_equal(p.a.status, -ECONNRESET);
	weir_lost(p.b.w);
	assert_int_equal(weir_message_send(p.b.m, A, TYPE_NOTE, "x", 1, 0), -ENODEV);
	close_both(&p);
}

/* A thread that asks and asks and does not look: the responses wait, others don't. */
static void
test_uncollected(void **state)
{
	enum { N = 400 };
	static uint8_t in[N][3000], out[3000];
	static struct weir_request r[N];
	struct both p;
	pthread_t t;
	void *rc;

	(void)state;
	open_both(&p, NULL, NULL);
	for (int i = 0; i < N; i++) {
		memset(out, i, sizeof(out));
		must(weir_request_start(p.a.m, &r[i], B, TYPE_ECHO, out, sizeof(out), in[i],
					sizeof(in[i]), 10000));
	}
	/* another thread may collect */
	assert_int_equal(pthread_create(&t, NULL, wait_for, &r[0]), 0);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, 0);
	for (int i = 1; i < N; i++) {
		must(weir_request_wait(&r[i], 10000));
		assert_int_equal(r[i].length, sizeof(out));
		assert_int_equal(in[i][2999], (uint8_t)i);
	}
	close_both(&p);
}

/* ---- many threads ---- */

struct job {
	struct side *s;
	uint16_t node;
	uint32_t index, count;
};

static void *
send_many(void *arg)
{
	struct job *j = arg;
	uint32_t buf[300];

	for (uint32_t i = 0; i < j->count; i++) {
		size_t length = 8 + i % 1100;

		fill(buf, j->index, i, length);
		must(weir_message_send(j->s->m, j->node, TYPE_NOTE, buf, length, 10000));
	}
	return NULL;
}

static void *
ask_many(void *arg)
{
	struct job *j = arg;
	uint64_t in;
	size_t n;

	for (uint64_t i = 0; i < j->count; i++) {
		uint64_t out = i << 8 | j->index;

		must(weir_message_request(j->s->m, j->node, TYPE_ECHO, &out, 8, &in, 8, &n, 10000));
		if (in != out)
			fatal("another's response", 0);
	}
	return NULL;
}

static void
many(const struct weir_messenger_options *o, const struct fake_options *f, unsigned threads)
{
	struct job jobs[12];
	struct both p;
	pthread_t t[12];

	open_both(&p, f, o);
	for (unsigned i = 0; i < threads; i++) {
		bool asks = i % 3 == 2;

		jobs[i] = (struct job){.s = i % 2 ? &p.b : &p.a,
				       .node = i % 2 ? A : B,
				       .index = i,
				       .count = asks ? 200 : 1500};
		pthread_create(&t[i], NULL, asks ? ask_many : send_many, &jobs[i]);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	await(p.a.notes + p.b.notes == (threads - threads / 3) * 1500);
	assert_int_equal(p.a.wrong + p.b.wrong, 0);
	/* both ends at once: one connection */
	assert_int_equal(p.a.created, 1);
	assert_int_equal(p.b.created, 1);
	close_both(&p);
}

static void
test_threads(void **state)
{
	struct weir_messenger_options shared = WEIR_MESSENGER_OPTIONS,
				      more = WEIR_MESSENGER_OPTIONS;
	struct fake_options few = plane;

	(void)state;
	many(NULL, NULL, 6);
	shared.lanes = 3; /* handler threads have two of them */
	many(&shared, NULL, 6);
	few.channels = 4; /* no more for threads that send */
	many(NULL, &few, 6);
	more.handler_threads = 4;
	more.receivers = 3;
	more.window = 64u << 10;
	more.threshold = 10;
	many(&more, NULL, 6);
}

/* ---- connections ---- */

static void
test_least_recent(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS;
	struct weir_messenger_stats stats;
	struct side side[4] = {0};
	uint32_t buf[2] = {0, 0};
	struct fake *f = fake_create(&plane);

	(void)state;
	o.handler_threads = 1;
	for (int i = 0; i < 4; i++)
		side[i].w = fake_attach(f);
	fake_run(f);
	for (int i = 1; i < 4; i++)
		open_side(&side[i], &o);
	o.connections = 2;
	open_side(&side[0], &o);
	must(weir_message_send(side[0].m, FAKE_NODE(1), TYPE_NOTE, buf, 8, 5000));
	must(weir_message_send(side[0].m, FAKE_NODE(2), TYPE_NOTE, buf, 8, 5000));
	await(side[0].created == 2);
	nap(250); /* what is used is looked at ten times a second */
	/* also those that only receive are in use */
	must(weir_message_request(side[1].m, FAKE_NODE(0), TYPE_ECHO, buf, 8, buf, 8, NULL, 5000));
	buf[1] = 1;
	must(weir_message_send(side[0].m, FAKE_NODE(1), TYPE_NOTE, buf, 8, 5000));
	buf[1] = 0;
	must(weir_message_send(side[0].m, FAKE_NODE(3), TYPE_NOTE, buf, 8, 5000));
	await(side[2].lost == 1);
	assert_int_equal(side[1].lost, 0);
	weir_messenger_stats(side[0].m, &stats);
	assert_int_equal(stats.evicted, 1);
	/* what had been sent arrived; and it can be made again */
	buf[1] = 1;
	must(weir_message_send(side[0].m, FAKE_NODE(2), TYPE_NOTE, buf, 8, 5000));
	await(side[2].notes == 2 && side[1].notes == 2 && side[3].notes == 1);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(side[i].wrong, 0);
		weir_messenger_close(side[i].m);
		weir_detach(side[i].w);
	}
	fake_stop(f);
	fake_destroy(f);
}

static void
test_restart(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS;
	uint32_t buf[2] = {0, 0};
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, 5000));
	await(p.b.notes == 1);
	/* a responses's worth of waiting closes nothing early */
	weir_messenger_close(p.b.m);
	await(p.a.lost == 1);
	assert_int_equal(p.a.status, 0);
	assert_int_equal(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, 5000), -ECONNREFUSED);
	open_side(&p.b, &o);
	buf[1] = 1;
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, 5000));
	await(p.a.created == 2 && p.b.notes == 2);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

static _Atomic uint32_t go, blocked_now;

static void
block(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	(void)m, (void)message, (void)user;
	atomic_fetch_add(&blocked_now, 1);
	while (!atomic_load(&go))
		nap(1);
}

/* Two programs of a node that send only, beside one that listens: none is taken for another. */
static void
test_clients(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS;
	struct weir_messenger *one, *two;
	uint64_t in, out = 5;
	struct weir_request r;
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	o.flags = WEIR_MESSENGER_CLIENT;
	must(weir_messenger_open(p.a.w, &o, &one));
	must(weir_messenger_open(p.a.w, &o, &two));
	must(weir_request_start(one, &r, B, WEIR_TYPE(2, 0), "x", 1, &in, 8, 1000));
	await(kept_count == 1);
	must(weir_message_request(two, B, TYPE_ECHO, "x", 1, &in, 8, NULL, 5000));
	must(weir_message_request(p.a.m, B, TYPE_ECHO, "x", 1, &in, 8, NULL, 5000));
	must(weir_message_request(p.b.m, A, TYPE_ECHO, "x", 1, &in, 8, NULL, 5000));
	nap(250);
	must(weir_message_disconnect(p.a.m, B)); /* not theirs */
	assert_int_equal(p.b.lost, 0);
	must(weir_message_respond(p.b.m, &kept[0], &out, 8));
	must(weir_request_wait(&r, 5000));
	assert_int_equal(in, 5);
	/* the other end closes: they do, too */
	must(weir_message_disconnect(p.b.m, A));
	assert_int_equal(p.b.created, 1);
	must(weir_message_request(two, B, TYPE_ECHO, "x", 1, &in, 8, NULL, 5000));
	weir_messenger_close(one);
	weir_messenger_close(two);
	close_both(&p);
}

/* What is at a handler counts as not consumed, and stays where it is. */
static void
test_consumed_late(void **state)
{
	struct weir_handler h;
	uint8_t buf[6000] = {0};
	struct both p;
	uint32_t free_blocks;

	(void)state;
	open_both(&p, NULL, NULL);
	h = (struct weir_handler){.handle = block};
	must(weir_message_register(p.b.m, WEIR_TYPE(3, 2), &h));
	must(weir_message_request(p.a.m, B, TYPE_ECHO, buf, 6000, buf, 6000, NULL, 5000));
	await(fake_recv_blocks_free(p.f, p.b.w) == 512);
	atomic_store(&go, 0);
	atomic_store(&blocked_now, 0);
	must(weir_message_send(p.a.m, B, WEIR_TYPE(3, 2), buf, 6000, 1000));
	await(blocked_now == 1);
	nap(20);
	free_blocks = fake_recv_blocks_free(p.f, p.b.w);
	atomic_store(&go, 1);
	assert_int_equal(free_blocks, 511);
	await(fake_recv_blocks_free(p.f, p.b.w) == 512);
	close_both(&p);
}

/* Closing in order waits for responses. */
static void *
disconnect(void *arg)
{
	return (void *)(intptr_t)weir_message_disconnect(((struct both *)arg)->a.m, B);
}

static void
test_graceful(void **state)
{
	struct weir_request r;
	uint64_t in = 0, out = 7;
	struct both p;
	pthread_t t;
	void *rc;

	(void)state;
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &r, B, WEIR_TYPE(2, 0), "x", 1, &in, 8, 1000));
	/* the other way there is something too */
	must(weir_message_send(p.b.m, A, TYPE_MUTE, "x", 1, 1000));
	await(kept_count == 1 && p.a.notes == 1);
	assert_int_equal(pthread_create(&t, NULL, disconnect, &p), 0);
	nap(50);
	assert_int_equal(p.a.lost, 0);
	must(weir_message_respond(p.b.m, &kept[0], &out, 8));
	must(weir_request_wait(&r, 5000));
	assert_int_equal(in, 7);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, 0);
	await(p.a.lost == 1 && p.b.lost == 1);
	close_both(&p);
}

/* ---- handlers ---- */

static _Atomic uint32_t inside, inside_most, exclusives;

static void
test_blocked(void **state)
{
	struct weir_handler h = {.handle = block};
	struct weir_messenger_stats stats;
	struct job jobs[6];
	struct both p;
	pthread_t t[6];

	(void)state;
	open_both(&p, NULL, NULL);
	atomic_store(&go, 0);
	atomic_store(&blocked_now, 0);
	must(weir_message_register(p.b.m, WEIR_TYPE(3, 0), &h));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(3, 0), "x", 1, 1000));
	await(blocked_now == 1);
	/* its next one waits for it */
	must(weir_message_send(p.a.m, B, TYPE_MUTE, "x", 1, 1000));
	/* others don't, whichever handler thread they talk to */
	for (unsigned i = 0; i < 6; i++) {
		jobs[i] = (struct job){.s = &p.a, .node = B, .index = i, .count = 300};
		pthread_create(&t[i], NULL, send_many, &jobs[i]);
	}
	for (unsigned i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	await(p.b.notes == 1800);
	nap(10);
	assert_int_equal(p.b.notes, 1800);
	weir_messenger_stats(p.b.m, &stats);
	assert_true(stats.taken_over > 0);
	assert_int_equal(weir_message_unregister(p.b.m, WEIR_TYPE(3, 0), 20), -EAGAIN);
	atomic_store(&go, 1);
	await(p.b.notes == 1801);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

static void
exclusive(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	uint32_t n = atomic_fetch_add(&inside, 1) + 1;

	(void)m, (void)message, (void)user;
	if (n > atomic_load(&inside_most))
		atomic_store(&inside_most, n);
	if (atomic_fetch_add(&exclusives, 1) % 16 == 0)
		sched_yield();
	atomic_fetch_sub(&inside, 1);
}

static void *
send_exclusive(void *arg)
{
	struct job *j = arg;
	uint8_t buf[2000] = {0};

	for (uint32_t i = 0; i < j->count; i++)
		must(weir_message_send(j->s->m, j->node, WEIR_TYPE(4, (uint8_t)(i % 2)), buf,
				       8 + i % 2 * 1500, 10000));
	return NULL;
}

static void
test_exclusive(void **state)
{
	struct weir_handler h = {.handle = exclusive, .flags = WEIR_HANDLER_EXCLUSIVE};
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS;
	struct job jobs[4];
	struct both p;
	pthread_t t[4];

	(void)state;
	o.receivers = 2; /* both have lanes, whatever the CPUs */
	open_both(&p, NULL, &o);
	atomic_store(&inside_most, 0);
	atomic_store(&exclusives, 0);
	must(weir_message_register(p.b.m, WEIR_TYPE(4, 0), &h));
	must(weir_message_register(p.b.m, WEIR_TYPE(4, 1), &h));
	for (unsigned i = 0; i < 4; i++) {
		jobs[i] = (struct job){.s = &p.a, .node = B, .index = i, .count = 2000};
		pthread_create(&t[i], NULL, send_exclusive, &jobs[i]);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	await(exclusives == 8000);
	assert_int_equal(inside_most, 1);
	close_both(&p);
}

/* One sender, two messages at a time where order isn't asked for. */
static void
test_unordered(void **state)
{
	struct weir_handler h = {.handle = block, .flags = WEIR_HANDLER_UNORDERED};
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	atomic_store(&go, 0);
	atomic_store(&blocked_now, 0);
	must(weir_message_register(p.b.m, WEIR_TYPE(3, 1), &h));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(3, 1), "x", 1, 1000));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(3, 1), "x", 1, 1000));
	await(blocked_now == 2);
	atomic_store(&go, 1);
	close_both(&p);
}

static void
test_unregister(void **state)
{
	struct weir_handler h = {.handle = mute};
	struct weir_messenger_stats stats;
	struct job job;
	struct both p;
	pthread_t t;

	(void)state;
	open_both(&p, NULL, NULL);
	h.user = &p.b;
	job = (struct job){.s = &p.a, .node = B, .index = 1, .count = 5000};
	pthread_create(&t, NULL, send_many, &job);
	await(p.b.notes > 100);
	must(weir_message_unregister(p.b.m, TYPE_NOTE, 1000));
	must(weir_message_register(p.b.m, TYPE_NOTE, &h));
	pthread_join(t, NULL);
	await((weir_messenger_stats(p.b.m, &stats), stats.handled + stats.unknown == 5000));
	assert_int_equal(p.b.wrong, 0);
	assert_int_equal(p.b.notes + stats.unknown, 5000);
	close_both(&p);
}

/* ---- large, in place, again, to many ---- */

static uint8_t *placed;

static void *
place(struct weir_messenger *m, const struct weir_message *header, void *user)
{
	struct side *s = user;

	(void)m;
	if (header->length > 4u << 20)
		return NULL;
	atomic_fetch_add(&s->bytes, 1);
	placed = malloc(header->length);
	return placed;
}

static void
large(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;
	const uint8_t *data = message->data;

	(void)m;
	for (size_t i = 0; i < message->length; i++)
		if (data[i] != (uint8_t)(i * 7 + i / 65536))
			atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->notes, 1);
	if (data == placed) {
		free(placed);
		placed = NULL;
	}
}

static void
test_large(void **state)
{
	struct weir_handler h = {.handle = large, .place = place};
	size_t most = 5u << 20, n;
	uint8_t *buf = malloc(most), *in = malloc(most);
	struct weir_messenger_stats stats;
	struct iovec iov[4];
	struct both p;

	(void)state;
	for (size_t i = 0; i < most; i++)
		buf[i] = (uint8_t)(i * 7 + i / 65536);
	open_both(&p, NULL, NULL);
	h.user = &p.b;
	must(weir_message_register(p.b.m, WEIR_TYPE(5, 0), &h));
	h.place = NULL;
	must(weir_message_register(p.b.m, WEIR_TYPE(5, 1), &h));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(5, 0), buf, 3000001, 10000));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(5, 1), buf, (1u << 20) + 1, 10000));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(5, 0), buf, most, 10000)); /* no place */
	for (int i = 0; i < 4; i++)
		iov[i] = (struct iovec){buf + i * 700000, 700000};
	must(weir_message_sendv(p.a.m, B, WEIR_TYPE(5, 1), iov, 4, 10000));
	iov[1].iov_len = 0;
	iov[2] = (struct iovec){buf + 700000, 5};
	must(weir_message_sendv(p.a.m, B, WEIR_TYPE(5, 1), iov, 3, 10000));
	await(p.b.notes == 4);
	assert_int_equal(p.b.wrong, 0);
	assert_int_equal(p.b.bytes, 1);
	weir_messenger_stats(p.b.m, &stats);
	assert_int_equal(stats.oversized, 1);
	must(weir_message_request(p.a.m, B, TYPE_ECHO, buf, 2500000, in, most, &n, 10000));
	assert_int_equal(n, 2500000);
	assert_memory_equal(in, buf, n);
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_ECHO, buf, 2500000, in, 100, &n, 10000), -EMSGSIZE);
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_NOBODY, buf, 2500000, in, 100, &n, 10000), -ENOMSG);
	close_both(&p);
	free(buf);
	free(in);
}

/* The sender's time is over in the middle: the program gets its memory back, then goes on. */
static void
broken(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	(void)m;
	if (!(message->flags & WEIR_MESSAGE_BROKEN) || message->data != placed ||
	    message->length != 3u << 20)
		atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->notes, 1);
	free(placed);
	placed = NULL;
}

static void
test_broken(void **state)
{
	struct weir_handler h = {.handle = broken, .place = place};
	uint8_t *buf = calloc(1, 3u << 20);
	struct fake_options little = plane;
	struct both p;

	(void)state;
	little.send_blocks = 200;
	open_both(&p, &little, NULL);
	h.user = &p.b;
	must(weir_message_register(p.b.m, WEIR_TYPE(5, 2), &h));
	must(weir_message_request(p.a.m, B, TYPE_ECHO, buf, 8, buf, 8, NULL, 5000));
	fake_hold(p.f, true); /* the first piece stays where it is */
	assert_int_equal(weir_message_send(p.a.m, B, WEIR_TYPE(5, 2), buf, 3u << 20, 0), -EAGAIN);
	fake_hold(p.f, false);
	await(p.b.bytes == 1);
	must(weir_message_disconnect(p.a.m, B));
	await(p.b.notes == 1);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
	free(buf);
}

static void
test_drafts(void **state)
{
	static const size_t lengths[] = {8, 60, 100, 900, 1000, 9000};
	uint16_t nodes[3] = {B, FAKE_NODE(7), B};
	struct weir_draft d;
	uint32_t buf[4];
	int results[3];
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	for (uint32_t i = 0; i < 6; i++) {
		must(weir_message_reserve(p.a.m, B, TYPE_NOTE, lengths[i] + 100, 0, 1000, &d));
		fill(d.data, 0, i, lengths[i]);
		must(weir_message_commit(p.a.m, &d, lengths[i], 1000));
	}
	must(weir_message_reserve(p.a.m, B, TYPE_NOTE, 5000, 0, 1000, &d));
	assert_int_equal(weir_message_commit(p.a.m, &d, 5001, 1000), -EINVAL);
	assert_int_equal(weir_message_resend(p.a.m, &d, B, 1000), -EINVAL);
	weir_message_abandon(p.a.m, &d);
	/* kept: sent again as it is */
	must(weir_message_reserve(p.a.m, B, TYPE_MUTE, 5000, WEIR_DRAFT_KEEP, 1000, &d));
	memset(d.data, 1, 5000);
	must(weir_message_commit(p.a.m, &d, 3000, 1000));
	must(weir_message_resend(p.a.m, &d, B, 1000));
	must(weir_message_resend(p.a.m, &d, A, 1000)); /* to itself */
	weir_message_abandon(p.a.m, &d);
	await(p.b.notes == 8 && p.a.notes == 1);
	fill(buf, 1, 0, 16);
	assert_int_equal(weir_message_send_many(p.a.m, nodes, 2, TYPE_NOTE, buf, 16, 1000, results),
			 1);
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], -ECONNREFUSED);
	await(p.b.notes == 9);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_messages),	  cmocka_unit_test(test_requests),
	    cmocka_unit_test(test_bad_input),	  cmocka_unit_test(test_stranger),
	    cmocka_unit_test(test_late),	  cmocka_unit_test(test_cancel),
	    cmocka_unit_test(test_death),	  cmocka_unit_test(test_uncollected),
	    cmocka_unit_test(test_threads),	  cmocka_unit_test(test_least_recent),
	    cmocka_unit_test(test_restart),	  cmocka_unit_test(test_graceful),
	    cmocka_unit_test(test_blocked),	  cmocka_unit_test(test_exclusive),
	    cmocka_unit_test(test_unordered),	  cmocka_unit_test(test_unregister),
	    cmocka_unit_test(test_large),	  cmocka_unit_test(test_broken),
	    cmocka_unit_test(test_drafts),	  cmocka_unit_test(test_clients),
	    cmocka_unit_test(test_consumed_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
