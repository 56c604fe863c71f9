/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Before a sleep everything is reported and seen: threads that sleep at a worker on whose
 * connections others work, and looks that could end too early. weir_arm() puts a thread to sleep;
 * its descriptor says whether it was woken.
 */
#include "worlds/stream_pair.h"

#include "stream/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

/* ---- the allocator: linked with --wrap=realloc ---- */

static bool no_memory;

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);

void *
__wrap_realloc(void *memory, size_t size)
{
	if (!no_memory)
		return __real_realloc(memory, size);
	errno = ENOMEM;
	return NULL;
}

/* ---- threads ---- */

static struct weir_thread *
thread_of(struct weir *w)
{
	struct weir_thread *t = weir_thread_get(w);

	assert_non_null(t);
	return t;
}

/* The calling thread is another one now, as far as w is concerned. */
static struct weir_thread *
become_another(struct weir *w)
{
	struct weir_thread *t = weir_thread_new(w);

	assert_non_null(t);
	return t;
}

static bool
is_woken(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* Takes all events; then sleeps. */
static int
sleep_now(struct weir *w)
{
	struct weir_event e;

	while (weir_poll(w, &e, 1) > 0)
		;
	assert_int_equal(weir_arm(w), 0);
	assert_false(is_woken(weir_fd(w)));
	return weir_fd(w);
}

/* t waits as in a call that blocks, up to the last look before its sleep. */
static void
arm(struct weir_wait *wait, struct weir_thread *t)
{
	weir_wait_init(wait, t, 10000);
	while (!wait->armed)
		assert_int_equal(weir_wait_next(wait), 0);
}

/* How many went; after that it waits for WRITABLE. */
static uint32_t
fill(struct weir_conn *c, size_t length)
{
	uint8_t *m = make_message(1, length);
	uint32_t n = 0;

	while (weir_send(c, m, length, 0) == 0)
		n++;
	free(m);
	return n;
}

static void
drain(struct weir_conn *d)
{
	static uint8_t in[8192];
	size_t n;

	while (weir_recv(d, in, sizeof(in), &n, 0) == 0)
		;
	/* the pause after which it tells */
	for (unsigned i = 0; i < 20; i++)
		weir_recv(d, in, sizeof(in), &n, 0);
}

/* Of many that wait for room the last one has it: its peer told that before anybody wanted to know.
 */
static void
test_last_of_many(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir *b = plane_attach(p.f);
	struct weir_address a;
	struct weir_listener *l;
	struct weir_conn *c[20], *d[20], *other, *end;
	struct weir_event e;

	assert_int_equal(weir_listen(b, "other", 0, &l), 0);
	assert_int_equal(weir_address_parse("node:0:other", &a), 0);
	for (unsigned i = 0; i < 20; i++) {
		c[i] = pair_connect(&p, PLANE_LOCAL);
		d[i] = pair_accept(&p);
	}
	assert_int_equal(weir_connect(p.a, &a, 0, &other), 0);
	plane_settle(p.f);
	while (weir_poll(p.a, &e, 1) > 0)
		;
	assert_int_equal(weir_accept(l, 0, &end), 0);
	fill(p.c, 6000);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(fill(c[i], 6000), 0);
	assert_true(fill(other, 6000) > 0);
	drain(end);
	assert_int_equal(weir_arm(p.a), -EAGAIN);
	assert_int_equal(weir_poll(p.a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_WRITABLE);
	assert_ptr_equal(e.conn, other);
	drain(p.d);
	for (unsigned i = 0; i < 20; i++) {
		weir_close(c[i]);
		weir_close(d[i]);
	}
	weir_close(other);
	weir_close(end);
	weir_listener_close(l);
	for (int i = 0; i < 3; i++) {
		plane_settle(p.f);
		while (weir_poll(b, &e, 1) > 0)
			;
	}
	pair_close(&p);
}

/*
 * The program was told of messages of p.c and leaves them in the ring; one of another connection
 * behind them is reported before the program sleeps. count messages of `length` bytes; 0: as many
 * as the byte area holds.
 */
static void
check_reported_behind(uint32_t count, size_t length)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2 = pair_accept(&p);
	uint8_t *m = make_message(1, length);
	struct weir_event e;
	uint32_t n = 0;

	assert_int_equal(weir_send(p.c, "x", 1, 0), 0);
	sleep_now(p.b);
	assert_int_equal(weir_poll(p.b, &e, 1), 0);
	while ((!count || n < count) && weir_send(p.c, m, length, 0) == 0)
		n++;
	assert_true(count ? n == count : n > 0);
	assert_int_equal(weir_send(c2, "y", 1, 0), 0);
	assert_int_equal(weir_arm(p.b), -EAGAIN);
	assert_int_equal(weir_poll(p.b, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_READABLE);
	assert_ptr_equal(e.conn, d2);
	free(m);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

static void
test_behind_a_large_one(void **state)
{
	check_reported_behind(0, 6000);
}

/* More than one call takes out of the ring. */
static void
test_behind_many(void **state)
{
	check_reported_behind(100, 1);
}

/* One of two who sleep at a worker gives up, and takes the doorbell's ringing with it. */
static void
test_bell_for_two(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_thread *one = thread_of(p.b), *two;
	struct weir_wait wait;
	struct weir_event e;
	int fd = sleep_now(p.b);

	two = become_another(p.b);
	assert_ptr_not_equal(one, two);
	arm(&wait, one);
	assert_int_equal(weir_send(p.c, "x", 1, 0), 0);
	weir_wait_end(&wait);
	assert_true(is_woken(fd));
	weir_thread_use(one);
	assert_int_equal(weir_poll(p.b, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_READABLE);
	pair_close(&p);
}

/* Consumption by a thread while the worker's own sleeps is reported: nobody else would report it.
 */
static void
test_consumed_while_asleep(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_thread *one = thread_of(p.b);
	static uint8_t in[32768];
	struct weir_loan loan;
	struct weir_event e;
	size_t n;
	int fd;

	/* messages that need all of the area but for a little */
	assert_int_equal(fill(p.c, 30000), 2);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
	assert_int_equal(weir_recv_loan(p.d, &loan, 0), 0);
	sleep_now(p.b);
	fill(p.c, 30000);
	fd = sleep_now(p.a);
	become_another(p.b);
	weir_release(p.b, &loan);
	assert_true(is_woken(fd));
	assert_int_equal(weir_poll(p.a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_WRITABLE);
	weir_thread_use(one);
	drain(p.d);

	/* the window: many messages are parked, then consumed before the sender wants to know */
	while (weir_send(p.c, in, 900, 0) == 0)
		while (weir_poll(p.b, &e, 1) > 0)
			;
	sleep_now(p.b);
	become_another(p.b);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
	assert_int_equal(weir_arm(p.a), -EAGAIN);
	weir_thread_use(one);
	drain(p.d);
	pair_close(&p);
}

/*
 * Between arming and sleeping a receiver takes pieces of a message: their room is told before it
 * sleeps, since the sender may sleep already.
 */
static void
test_pieces_while_asleep(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	const size_t length = 200000;
	uint8_t *m = make_message(1, length), *in = malloc(length);
	struct weir_wait wait;
	struct weir_event e;
	size_t n = 0;
	int fd;

	assert_int_equal(weir_send(p.c, m, length, 0), 0);
	fd = sleep_now(p.a);
	arm(&wait, thread_of(p.b));
	assert_int_equal(weir_recv(p.d, in, length, &n, 0), -EAGAIN);
	assert_true(is_woken(fd));
	weir_wait_end(&wait);
	while (weir_recv(p.d, in, length, &n, 0))
		weir_poll(p.a, &e, 1);
	assert_int_equal(n, length);
	check_message(in, 1, length);
	free(in);
	free(m);
	pair_close(&p);
}

/*
 * The same for messages of another connection, which fill the ring: the sender of the message that
 * the receiver waits for may sleep until there are slots.
 */
static void
test_parked_while_asleep(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2 = pair_accept(&p);
	struct weir_wait wait;
	struct weir_event e;
	uint8_t in[8];
	size_t n;
	int fd;

	assert_true(fill(c2, 8) > 0);
	assert_int_equal(weir_send(p.c, "x", 1, 0), -EAGAIN);
	fd = sleep_now(p.a);
	arm(&wait, thread_of(p.b));
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -EAGAIN);
	assert_true(is_woken(fd));
	weir_wait_end(&wait);
	while (weir_poll(p.a, &e, 1) > 0)
		;
	assert_int_equal(weir_send(p.c, "x", 1, 0), 0);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
	drain(d2);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

/*
 * The same over the network: the window, receive blocks, and control slots that found no room in
 * the ring of returns.
 */
static void
test_consumed_by_another_thread(void **state)
{
	static const struct plane_options small = {.window = 1024, .first = 1024};
	struct pair p = pair_open(PLANE_REMOTE, &small, false);
	struct weir_thread *one = thread_of(p.b);
	uint8_t in[512];
	size_t n;

	/* less than the receiver owes a report of, more than the next message has room for */
	assert_int_equal(weir_send(p.c, in, 400, 0), 0);
	assert_int_equal(weir_send(p.c, in, 300, 0), 0);
	assert_int_equal(weir_send(p.c, in, 300, 0), -EAGAIN);
	plane_settle(p.f);
	sleep_now(p.a);
	sleep_now(p.b);
	become_another(p.b);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
	plane_settle(p.f);
	assert_int_equal(weir_arm(p.a), -EAGAIN);
	assert_int_equal(weir_send(p.c, in, 300, 0), 0);
	weir_thread_use(one);
	drain(p.d);
	pair_close(&p);
}

/* Blocks of the send heap that another worker frees wake a thread that waits at this worker. */
static void
test_blocks_of_another_worker(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_thread *one = thread_of(p.a), *two = become_another(p.a), *three, *four;
	struct weir_conn *c2 = pair_connect(&p, PLANE_REMOTE), *d2 = pair_accept(&p);
	uint8_t *m = make_message(1, 8000);
	uint64_t start;
	struct weir_event e;
	struct weir_wait wait;

	while (weir_send_notify(c2, m, 8000, WEIR_WRITE, 0, 0) == 0)
		;
	three = become_another(p.a);
	assert_int_equal(weir_send_notify(p.c, m, 8000, WEIR_WRITE, 0, 0), -EAGAIN);
	weir_wait_init(&wait, one, 5000);
	while (!wait.armed)
		assert_int_equal(weir_wait_next(&wait), 0);
	assert_int_equal(weir_send_notify(p.c, m, 8000, WEIR_WRITE, 0, 0), -EAGAIN);
	/* nor does a thread sleep long that the connection reports to */
	four = become_another(p.a);
	assert_int_equal(weir_conn_bind(p.c), 0);
	assert_int_equal(weir_poll(p.a, &e, 1), 0);
	assert_int_equal(weir_arm(p.a), -EAGAIN);
	weir_thread_use(two);
	plane_settle(p.f);
	while (weir_poll(p.a, &e, 1) > 0)
		;
	weir_thread_use(three);
	start = weir_clock();
	assert_int_equal(weir_wait_next(&wait), 0);
	assert_true(weir_clock() - start < 1000000000u);
	assert_int_equal(weir_send_notify(p.c, m, 8000, WEIR_WRITE, 0, 0), 0);
	weir_wait_end(&wait);
	free(m);
	weir_thread_use(four);
	sleep_now(p.a);
	weir_thread_use(one);
	drain(p.d);
	drain(d2);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

/* Control slots of another thread's calls that find no room in the ring wake a thread to retry. */
static void
test_control_slots_wait(void **state)
{
	static const struct plane_options small = {.ring_slots = 32, .window = 128, .first = 128};
	struct pair p = pair_open(PLANE_REMOTE, &small, false);
	struct weir_conn *c[12] = {p.c}, *d[12] = {p.d};
	struct weir_thread *one = thread_of(p.a);
	int fd;

	for (unsigned i = 1; i < 12; i++) {
		c[i] = pair_connect(&p, PLANE_REMOTE);
		d[i] = pair_accept(&p);
	}
	plane_settle(p.f);
	fd = sleep_now(p.a);
	become_another(p.a);
	plane_hold(p.f, true);
	/* messages leave 8 slots; each of 12 connections asks for its window */
	for (unsigned i = 0; i < 24; i++)
		assert_int_equal(weir_send(c[i % 12], "x", 1, 0), 0);
	for (unsigned i = 0; i < 12; i++)
		assert_int_equal(weir_send(c[i], "x", 1, 0), -EAGAIN);
	assert_true(is_woken(fd));
	plane_hold(p.f, false);
	weir_thread_use(one);
	for (unsigned i = 0; i < 12; i++) {
		plane_settle(p.f);
		drain(d[i]);
	}
	for (unsigned i = 1; i < 12; i++) {
		weir_close(c[i]);
		weir_close(d[i]);
	}
	pair_close(&p);
}

/* Another thread's call finds that the peer broke the rules: the sleeping thread gets the ends. */
static void
test_spoilt_while_asleep(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2 = pair_accept(&p);
	struct weir_thread *one = thread_of(p.a);
	struct weir_segment_geometry g;
	struct weir_event e[2];
	uint8_t *base;
	int fd;

	weir_send(p.c, "x", 1, 0);
	drain(p.d);
	base = plane_segment(p.f, &g);
	fd = sleep_now(p.a);
	become_another(p.a);
	for (uint32_t i = 0; i < 2; i++)
		atomic_store(
		    &((struct weir_segment_side *)(base + weir_segment_side_at(&g, i)))->tail,
		    1ull << 40);
	fill(p.c, 8);
	assert_int_equal(weir_send(p.c, "x", 1, 0), -EPROTO);
	assert_true(is_woken(fd));
	weir_thread_use(one);
	assert_int_equal(weir_poll(p.a, e, 2), 2);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	assert_int_equal(e[1].type, WEIR_EVENT_CLOSED);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

/* A thread finds no room while the one that the event goes to sleeps already. */
static void
test_blocked_while_asleep(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_thread *one = thread_of(p.a);
	struct weir_event e;
	int fd = sleep_now(p.a);

	become_another(p.a);
	assert_true(fill(p.c, 6000) > 0);
	assert_true(is_woken(fd)); /* the peer may have consumed before it was asked to ring */
	weir_thread_use(one);
	sleep_now(p.a);
	drain(p.d);
	assert_true(is_woken(fd));
	assert_int_equal(weir_poll(p.a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_WRITABLE);
	pair_close(&p);
}

/* A program that was stopped sees a message, and long after that what its connection is. */
static void
test_accepted_long_ago(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2;
	uint8_t in[8];
	size_t n;

	assert_int_equal(weir_send(c2, "x", 1, 0), 0);
	WEIR_SEGMENT_OF(p.d->pipe)->unknown_since = 1;
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -EAGAIN);
	d2 = pair_accept(&p);
	assert_int_equal(weir_recv(d2, in, sizeof(in), &n, 0), 0);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

/* A program is told of a connection whose listener has gone. Others on the segment go on. */
static void
test_accepted_too_late(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_address address;
	struct weir_conn *c2;
	struct weir_event e;
	uint8_t in[8];
	size_t n;

	assert_int_equal(weir_address_parse(PLANE_LOCAL, &address), 0);
	assert_int_equal(weir_connect(p.a, &address, 0, &c2), 0);
	weir_listener_close(p.l);
	p.l = NULL;
	plane_settle(p.f);
	assert_int_equal(weir_poll(p.a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_OPENED);
	assert_int_equal(weir_send(c2, "x", 1, 0), 0);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -EAGAIN);
	WEIR_SEGMENT_OF(p.d->pipe)->unknown_since = 1;
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -EAGAIN);
	plane_settle(p.f);
	pair_pass(&p, p.c, p.d, 1, 100);
	assert_int_equal(weir_recv(c2, in, sizeof(in), &n, 0), -ESHUTDOWN);
	weir_close(c2);
	pair_close(&p);
}

/* The same for several, whose ends find no room in the ring; and no memory to note that. */
static void
accepted_too_late(bool with_memory)
{
	enum { CONNS = 24 }; /* more than a first vector of refusals has room for */
	static const struct plane_options small = {.ring_slots = 32, .first = 4096};
	struct pair p = pair_open(PLANE_REMOTE, &small, false);
	struct weir_address address;
	struct weir_conn *c[CONNS];
	unsigned ended = 0;
	struct weir_event e;
	uint8_t in[8];
	size_t n;

	assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
	for (unsigned i = 0; i < CONNS; i++)
		assert_int_equal(weir_connect(p.a, &address, 0, &c[i]), 0);
	weir_listener_close(p.l);
	p.l = NULL;
	plane_hold(p.f, true);
	while (!weir_send(p.d, "x", 1, 0)) /* leaves 8 slots */
		;
	plane_settle(p.f);
	no_memory = !with_memory;
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -EAGAIN);
	no_memory = false;
	plane_hold(p.f, false);
	for (unsigned tries = 0; ended < CONNS && tries < 100; tries++) {
		plane_settle(p.f);
		weir_recv(p.d, in, sizeof(in), &n, 0);
		while (weir_poll(p.a, &e, 1) == 1)
			ended += e.type == WEIR_EVENT_CLOSED;
	}
	assert_int_equal(ended, CONNS);
	for (unsigned i = 0; i < CONNS; i++)
		weir_close(c[i]);
	pair_close(&p);
}

static void
test_many_accepted_too_late(void **state)
{
	accepted_too_late(true);
	accepted_too_late(false);
}

/* A connection that could not be closed again is not begun. */
static void
test_connect_without_memory(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_address address;
	struct weir_thread *one = thread_of(p.a);
	struct weir_conn *c, *d;

	assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
	become_another(p.a); /* with a channel of its own */
	no_memory = true;
	assert_int_equal(weir_connect(p.a, &address, 0, &c), -ENOMEM);
	no_memory = false;
	plane_settle(p.f);
	assert_int_equal(weir_accept(p.l, 0, &d), -EAGAIN);
	assert_int_equal(weir_connect(p.a, &address, 0, &c), 0);
	plane_settle(p.f);
	assert_int_equal(weir_accept(p.l, 0, &d), 0);
	weir_close(c);
	weir_close(d);
	weir_thread_use(one);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_last_of_many),
	    cmocka_unit_test(test_behind_a_large_one),
	    cmocka_unit_test(test_behind_many),
	    cmocka_unit_test(test_bell_for_two),
	    cmocka_unit_test(test_consumed_while_asleep),
	    cmocka_unit_test(test_pieces_while_asleep),
	    cmocka_unit_test(test_parked_while_asleep),
	    cmocka_unit_test(test_consumed_by_another_thread),
	    cmocka_unit_test(test_blocks_of_another_worker),
	    cmocka_unit_test(test_control_slots_wait),
	    cmocka_unit_test(test_spoilt_while_asleep),
	    cmocka_unit_test(test_blocked_while_asleep),
	    cmocka_unit_test(test_accepted_long_ago),
	    cmocka_unit_test(test_accepted_too_late),
	    cmocka_unit_test(test_many_accepted_too_late),
	    cmocka_unit_test(test_connect_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
