/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that the library makes again, and WEIR_REATTACH. */
#include "worlds/plane_fake.h"
#include "worlds/stream_pair.h"

#include "stream/conn.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static const struct plane_options watched = {.watched = true};
static int who; /* its address is what programs say of their connections */

static void
nap(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};

	nanosleep(&ts, NULL);
}

/* The next event; the plane gets on meanwhile. */
static struct weir_event
next_event(struct pair *p, struct weir *w)
{
	struct weir_event e;

	for (int i = 0; i < PATIENT; i++) {
		if (weir_poll(w, &e, 1) == 1)
			return e;
		plane_settle(p->f);
		nap(1);
	}
	fail_msg("no event");
	return e;
}

static struct weir_event
expect(struct pair *p, struct weir *w, uint32_t type, int status)
{
	struct weir_event e = next_event(p, w);

	assert_int_equal(e.type, type);
	assert_int_equal(e.status, status);
	return e;
}

static struct pair
open_pair(uint32_t on, uint32_t total_ms, const struct weir_options *options)
{
	struct weir_connect_options o = {
	    .size = sizeof(o),
	    .reconnect = {.on = on, .first_ms = 5, .max_ms = 20, .total_ms = total_ms}};
	struct pair p = {.f = plane_create(&watched)};
	struct weir_address to;
	struct weir_event e;

	p.a = plane_attach_with(p.f, options);
	p.b = plane_attach(p.f);
	assert_int_equal(weir_listen(p.b, "svc", 0, &p.l), 0);
	assert_int_equal(weir_address_parse(PLANE_REMOTE, &to), 0);
	assert_int_equal(weir_connect_with(p.a, &to, &o, 0, &p.c), 0);
	weir_conn_set_user(p.c, &who);
	e = expect(&p, p.a, WEIR_EVENT_OPENED, 0);
	assert_ptr_equal(e.conn, p.c);
	p.d = pair_accept(&p);
	return p;
}

static void
await_end(struct weir *w)
{
	while (weir_state(weir_now(w)) == WEIR_UP)
		nap(1);
}

/* c was made again: takes both ends, and passes messages. */
static void
go_on(struct pair *p)
{
	struct weir_event e = expect(p, p->a, WEIR_EVENT_OPENED, 0);

	assert_ptr_not_equal(e.conn, NULL);
	assert_ptr_equal(e.user, &who);
	assert_ptr_equal(weir_conn_user(e.conn), &who);
	p->c = e.conn;
	do
		e = next_event(p, p->b);
	while (e.type != WEIR_EVENT_ACCEPT);
	assert_ptr_equal(e.listener, p->l);
	p->d = pair_accept(p);
	pair_pass(p, p->c, p->d, 3, 100);
	pair_pass(p, p->d, p->c, 4, 3000);
}

/* The end is told as ever, what was under way is not sent again, and then there is another one. */
static void
test_restart(void **state)
{
	struct pair p = open_pair(WEIR_AGAIN_RESTART, 0, NULL);
	struct weir_event e;

	for (int round = 0; round < 2; round++) {
		assert_int_equal(weir_send_notify(p.c, "lost", 4, WEIR_NOTIFY, 9, 0), 0);
		plane_kill(p.f);
		e = expect(&p, p.a, WEIR_EVENT_SENT, -ENODEV);
		assert_int_equal(e.cookie, 9);
		e = expect(&p, p.a, WEIR_EVENT_LOST, -ENODEV);
		assert_ptr_equal(e.conn, p.c);
		weir_close(p.c);
		weir_close(p.d);
		nap(30);
		assert_int_equal(weir_poll(p.a, &e, 1), -ENODEV);
		await_end(p.b);
		plane_come_back(p.f);
		assert_int_equal(weir_reattach(p.a, PATIENT), 0);
		nap(30); /* tries are refused meanwhile */
		assert_int_equal(weir_poll(p.a, &e, 1), 0);
		assert_int_equal(weir_reattach(p.b, PATIENT), 0);
		go_on(&p);
	}
	pair_close(&p);
}

/* The peer's program dies, and another one comes. */
static void
test_peer_lost(void **state)
{
	struct pair p = open_pair(WEIR_AGAIN_LOSS, 0, NULL);
	struct weir *dead = p.b;

	plane_die(p.f, dead);
	assert_ptr_equal(expect(&p, p.a, WEIR_EVENT_LOST, -ECONNRESET).conn, p.c);
	weir_close(p.c);
	weir_listener_close(p.l);
	for (int i = 0; i < 20; i++) {
		struct weir_event e;

		assert_int_equal(weir_poll(p.a, &e, 1), 0);
		plane_settle(p.f);
		nap(2);
	}
	p.b = plane_attach(p.f);
	assert_int_equal(weir_listen(p.b, "svc", 0, &p.l), 0);
	go_on(&p);
	weir_lost(dead);
	weir_detach(dead);
	plane_run(p.f);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* Only what was asked for: neither a restart nor what the peer has closed. */
static void
test_others(void **state)
{
	struct pair p = open_pair(WEIR_AGAIN_LOSS, 0, NULL);

	weir_close(p.d);
	p.d = NULL;
	assert_ptr_equal(expect(&p, p.a, WEIR_EVENT_CLOSED, 0).conn, p.c);
	pair_close(&p);
	p = open_pair(WEIR_AGAIN_LOSS, 0, NULL);
	plane_kill(p.f);
	assert_ptr_equal(expect(&p, p.a, WEIR_EVENT_CLOSED, -ENODEV).conn, p.c);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* When the time is over; a thread that calls later than that has had one try. */
static void
gives_up(unsigned away_ms)
{
	struct pair p = open_pair(WEIR_AGAIN_LOSS, 60, NULL);
	struct weir_event e;

	plane_die(p.f, p.b);
	expect(&p, p.a, WEIR_EVENT_LOST, -ECONNRESET);
	weir_listener_close(p.l);
	nap(away_ms);
	e = expect(&p, p.a, WEIR_EVENT_CLOSED, -ECONNREFUSED);
	assert_null(e.conn);
	assert_ptr_equal(e.user, &who);
	nap(30);
	assert_int_equal(weir_poll(p.a, &e, 1), 0);
	weir_lost(p.b);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

static void
test_gives_up(void **state)
{
	gives_up(0);
	gives_up(70);
}

static void
test_cancel(void **state)
{
	struct pair p = open_pair(WEIR_AGAIN_LOSS, 0, NULL);
	struct weir_event e;

	plane_die(p.f, p.b);
	e = expect(&p, p.a, WEIR_EVENT_LOST, -ECONNRESET);
	weir_listener_close(p.l);
	nap(10);
	assert_int_equal(weir_poll(p.a, &(struct weir_event){0}, 1), 0); /* a try is under way */
	assert_int_equal(weir_reconnect_cancel(p.a, e.cookie + 1), -ENOENT);
	assert_int_equal(weir_reconnect_cancel(p.a, e.cookie), 0);
	assert_int_equal(weir_reconnect_cancel(p.a, e.cookie), -ENOENT);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(weir_poll(p.a, &e, 1), 0);
		plane_settle(p.f);
		nap(2);
	}
	weir_lost(p.b);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* ---- all by itself ---- */

/* The peer attaches again by hand, and takes the next connection. */
static void *
restart(void *arg)
{
	struct pair *p = arg;

	nap(30);
	plane_kill(p->f);
	await_end(p->b);
	weir_close(p->d);
	nap(100);
	plane_come_back(p->f);
	assert_int_equal(weir_reattach(p->b, PATIENT), 0);
	plane_run(p->f);
	assert_int_equal(weir_accept(p->l, PATIENT, &p->d), 0);
	return NULL;
}

static const struct weir_options self_made = {.size = sizeof(self_made), .flags = WEIR_REATTACH};

static void
check_and_close(struct pair *p)
{
	plane_stop(p->f);
	pair_pass(p, p->c, p->d, 3, 100);
	pair_pass(p, p->d, p->c, 4, 3000);
	pair_close(p);
}

/* One loop of weir_wait(), which is told everything and never fails. */
static void
test_wait(void **state)
{
	struct pair p = open_pair(WEIR_AGAIN_RESTART, 0, &self_made);
	struct weir_event e;
	pthread_t t;

	assert_int_equal(weir_wait(p.a, &e, 1, 5), 0);
	pthread_create(&t, NULL, restart, &p);
	assert_int_equal(weir_wait(p.a, &e, 1, PATIENT), 1);
	assert_int_equal(e.type, WEIR_EVENT_LOST);
	weir_close(e.conn);
	if (!weir_wait(p.a, &e, 1, 10)) /* it is still away, if we come that soon */
		assert_int_equal(weir_wait(p.a, &e, 1, PATIENT), 1);
	assert_int_equal(e.type, WEIR_EVENT_OPENED);
	p.c = e.conn;
	pthread_join(t, NULL);
	check_and_close(&p);
}

/* The same with the program's own epoll: it sleeps while there is nothing to do. */
static void
test_arm(void **state)
{
	struct pair p = open_pair(WEIR_AGAIN_RESTART, 0, &self_made);
	struct pollfd fd = {.fd = weir_fd(p.a), .events = POLLIN};
	struct weir_event e = {0};
	uint64_t turns = 0, since = weir_clock();
	pthread_t t;
	int rc;

	pthread_create(&t, NULL, restart, &p);
	while (e.type != WEIR_EVENT_OPENED) {
		rc = weir_poll(p.a, &e, 1);
		assert_true(rc >= 0);
		if (rc && e.type == WEIR_EVENT_LOST)
			weir_close(e.conn);
		if (rc)
			continue;
		rc = weir_arm(p.a);
		assert_true(rc == 0 || rc == -EAGAIN);
		if (!rc)
			assert_int_equal(poll(&fd, 1, PATIENT), 1);
		turns += weir_state(weir_now(p.a)) != WEIR_UP;
		/* twenty tries a second, and what a try has to tell */
		assert_true(turns < 200 + (weir_clock() - since) / 5000000);
	}
	p.c = e.conn;
	pthread_join(t, NULL);
	check_and_close(&p);
}

/*
 * An operator has ended the session: nothing is made again unasked, every call says why. By a call
 * that attaches again the program decides otherwise.
 */
static void
test_evicted(void **state)
{
	static const uint32_t on = WEIR_AGAIN_RESTART | WEIR_AGAIN_LOSS;

	for (int asked = 0; asked < 2; asked++) {
		struct pair p = open_pair(on, 0, &self_made);
		struct weir_listener *l;
		struct weir_event e;
		size_t n;

		assert_int_equal(weir_send_notify(p.c, "lost", 4, WEIR_NOTIFY, 9, 0), 0);
		fake_evict(p.f, p.a, asked);
		if (asked)
			assert_int_equal(weir_listen(p.a, "mine", 0, &l), -ECONNABORTED);
		expect(&p, p.a, WEIR_EVENT_SENT, -ECONNABORTED);
		expect(&p, p.a, WEIR_EVENT_CLOSED, -ECONNABORTED);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(weir_poll(p.a, &e, 1), -ECONNABORTED);
			assert_non_null(strstr(weir_reason(), "too loud"));
			assert_int_equal(weir_wait(p.a, &e, 1, -1), -ECONNABORTED);
			assert_int_equal(weir_arm(p.a), -ECONNABORTED);
			nap(WEIR_REATTACH_MS);
		}
		assert_int_equal(weir_send(p.c, "x", 1, -1), -ECONNABORTED);
		assert_non_null(strstr(weir_reason(), "too loud"));
		assert_int_equal(weir_recv(p.c, &e, 1, &n, -1), -ECONNABORTED);
		assert_non_null(strstr(weir_reason(), "too loud"));
		assert_int_equal(weir_node(p.a), -ECONNABORTED);
		assert_int_equal(weir_listen(p.a, "mine", 0, &l), -ECONNABORTED);
		weir_close(p.c);
		assert_int_equal(weir_reattach(p.a, 0), 0);
		assert_int_equal(weir_poll(p.a, &e, 1), 0);
		assert_int_equal(weir_listen(p.a, "mine", 0, &l), 0);
		weir_listener_close(l);
		weir_lost(p.b);
		weir_close(p.d);
		weir_listener_close(p.l);
		weir_detach(p.a);
		weir_detach(p.b);
		plane_destroy(p.f);
	}
}

/* ---- many threads ---- */

struct crowd {
	struct weir *w;
	struct weir_address to;
	_Atomic bool stop;
	_Atomic unsigned opened;
};

static void *
client(void *arg)
{
	static const struct weir_connect_options o = {
	    .size = sizeof(o),
	    .reconnect = {.on = WEIR_AGAIN_RESTART | WEIR_AGAIN_LOSS, .first_ms = 1, .max_ms = 5}};
	struct crowd *k = arg;
	struct weir_conn *c = NULL;
	bool begun = false, open = false;
	struct weir_event e;

	while (!k->stop) {
		if (!begun)
			begun = !weir_connect_with(k->w, &k->to, &o, 0, &c);
		if (open)
			weir_send(c, "x", 1, 0);
		if (weir_poll(k->w, &e, 1) <= 0 || !e.conn)
			continue;
		if (e.type == WEIR_EVENT_OPENED) {
			c = e.conn;
			open = true;
			k->opened++;
		} else if (e.type == WEIR_EVENT_LOST || e.type == WEIR_EVENT_CLOSED) {
			weir_close(e.conn);
			begun = e.type == WEIR_EVENT_LOST;
			open = false;
			c = NULL;
		}
	}
	weir_close(c);
	return NULL;
}

static void *
server(void *arg)
{
	struct crowd *k = arg;
	struct weir_listener *l;
	struct weir_conn *c;
	struct weir_event e;
	size_t n;
	char in[8];

	weir_listen(k->w, "svc", 0, &l);
	k->opened = 1;
	while (!k->stop) {
		if (weir_wait(k->w, &e, 1, 1) != 1)
			continue;
		if (e.type == WEIR_EVENT_ACCEPT)
			while (!weir_accept(e.listener, 0, &c))
				continue;
		else if (e.type == WEIR_EVENT_READABLE)
			while (!weir_recv(e.conn, in, sizeof(in), &n, 0))
				continue;
		else if (e.type == WEIR_EVENT_CLOSED)
			weir_close(e.conn);
	}
	weir_listener_close(l);
	return NULL;
}

/* Asks what any thread may ask, whoever attaches again. */
static void *
curious(void *arg)
{
	struct crowd *k = arg;
	struct weir_node_info list[4];
	struct weir_event e;

	while (!k->stop) {
		weir_nodes_watch(k->w, 1);
		weir_node(k->w);
		weir_nodes(k->w, list, 4);
		weir_reattach(k->w, 0);
		weir_poll(k->w, &e, 1);
		weir_nodes_watch(k->w, 0);
	}
	return NULL;
}

/* All attach again at once, in whatever call they are, and all come to an end. */
static void
test_crowd(void **state)
{
	struct plane *f = plane_create(&watched);
	struct crowd a = {.w = plane_attach_with(f, &self_made)},
		     b = {.w = plane_attach_with(f, &self_made)};
	unsigned before = 0;
	pthread_t t[5];

	assert_int_equal(weir_address_parse(PLANE_REMOTE, &a.to), 0);
	plane_run(f);
	pthread_create(&t[0], NULL, server, &b);
	while (!b.opened)
		nap(1);
	for (int i = 1; i < 4; i++)
		pthread_create(&t[i], NULL, client, &a);
	pthread_create(&t[4], NULL, curious, &a);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < PATIENT && a.opened < before + 3; i++)
			nap(1);
		assert_true(a.opened >= before + 3);
		before = a.opened;
		plane_kill(f);
		nap(5 * (unsigned)round);
		plane_come_back(f);
	}
	a.stop = b.stop = true;
	for (int i = 0; i < 5; i++)
		pthread_join(t[i], NULL);
	weir_detach(a.w);
	weir_detach(b.w);
	plane_destroy(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_restart), cmocka_unit_test(test_peer_lost),
	    cmocka_unit_test(test_others),  cmocka_unit_test(test_gives_up),
	    cmocka_unit_test(test_cancel),  cmocka_unit_test(test_wait),
	    cmocka_unit_test(test_arm),	    cmocka_unit_test(test_evicted),
	    cmocka_unit_test(test_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
