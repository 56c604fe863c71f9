/* SPDX-License-Identifier: BSD-3-Clause */
/* The data plane dies under programs, and comes back. */
#include "worlds/stream_pair.h"

#include "stream/conn.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const struct plane_options watched = {.watched = true};

static void
nap(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};

	nanosleep(&ts, NULL);
}

static unsigned
mappings(const char *name)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, name) != NULL;
	fclose(f);
	return n;
}

/* The next event. */
static struct weir_event
next_event(struct weir *w)
{
	struct weir_event e;

	for (int i = 0; i < PATIENT; i++) {
		int rc = weir_poll(w, &e, 1);

		if (rc == 1)
			return e;
		nap(1);
	}
	fail_msg("no event");
	return e;
}

static void
expect(struct weir *w, struct weir_conn *c, uint32_t type, int status)
{
	struct weir_event e = next_event(w);

	assert_int_equal(e.type, type);
	assert_ptr_equal(e.conn, c);
	assert_int_equal(e.status, status);
}

/* Messages that had arrived are received; others complete with an error, once; then the end is
 * reported. */
static void
test_loss(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	size_t n;
	char buf[8];

	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(weir_send_notify(p.c, "abc", 3, WEIR_NOTIFY, i, 0), 0);
		if (i == 1)
			plane_settle(p.f);
	}
	plane_kill(p.f);
	expect(p.a, p.c, WEIR_EVENT_SENT, 0);
	expect(p.a, p.c, WEIR_EVENT_SENT, 0);
	expect(p.a, p.c, WEIR_EVENT_SENT, -ENODEV);
	expect(p.a, p.c, WEIR_EVENT_CLOSED, -ENODEV);
	assert_int_equal(weir_send(p.c, "x", 1, -1), -ENODEV);
	assert_int_equal(weir_recv(p.c, buf, sizeof(buf), &n, -1), -ENODEV);
	assert_int_equal(next_event(p.b).type, WEIR_EVENT_READABLE);
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, -1), 0);
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, -1), 0);
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, -1), -ENODEV);
	expect(p.b, p.d, WEIR_EVENT_CLOSED, -ENODEV);
	assert_int_equal(weir_poll(p.b, &(struct weir_event){0}, 1), -ENODEV);
	weir_close(p.c);
	weir_close(p.d);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* So are those of a long run, which wait in the ring to be received from there. */
static void
test_loss_of_run(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	uint64_t number;
	size_t n;

	p.d->pipe->owner = p.d;
	p.d->pipe->run = 1000;
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(weir_send(p.c, &i, sizeof(i), 0), 0);
		if (i)
			plane_settle(p.f);
	}
	plane_kill(p.f);
	/* else this thread might look at the ring first */
	while (!p.d->remote_end)
		nap(1);
	assert_int_equal(next_event(p.b).type, WEIR_EVENT_READABLE);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(weir_recv(p.d, &number, sizeof(number), &n, -1), 0);
		assert_int_equal(number, i);
	}
	assert_int_equal(weir_recv(p.d, &number, sizeof(number), &n, -1), -ENODEV);
	weir_close(p.c);
	weir_close(p.d);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* Complete messages were received. True: the last one was complete. */
static bool
loss_local(unsigned after_ms)
{
	struct pair p = pair_open(PLANE_LOCAL, &watched, false);
	struct weir_event e;
	bool received;
	size_t n;
	char c;

	assert_int_equal(weir_send(p.c, "1", 1, 0), 0);
	plane_cut(p.f, p.b);
	while (weir_state(p.b) == WEIR_UP)
		nap(1);
	nap(after_ms);
	assert_int_equal(weir_send_notify(p.c, "2", 1, WEIR_NOTIFY, 7, 0), 0);
	plane_kill(p.f);
	assert_int_equal(weir_recv(p.d, &c, 1, &n, -1), 0);
	assert_int_equal(c, '1');
	received = !weir_recv(p.d, &c, 1, &n, -1);
	assert_true(!received || c == '2');
	assert_int_equal(weir_recv(p.d, &c, 1, &n, -1), -ENODEV);
	e = next_event(p.a);
	assert_int_equal(e.type, WEIR_EVENT_SENT);
	assert_int_equal(e.cookie, 7);
	assert_true(e.status == -ENODEV || (!e.status && received));
	expect(p.a, p.c, WEIR_EVENT_CLOSED, -ENODEV);
	weir_close(p.c);
	weir_close(p.d);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
	return received;
}

/*
 * A local peer's messages that it sends after our end are received, until it is too late. A machine
 * that keeps either from its CPU gets another try.
 */
static void
test_loss_local(void **state)
{
	for (int i = 0; i < 50 && !loss_local(0); i++)
		;
	for (int i = 0; i < 20 && loss_local(100); i++)
		;
}

static void
await_end(struct weir *w)
{
	while (weir_state(weir_now(w)) == WEIR_UP)
		nap(1);
}

static void
back(struct pair *p)
{
	await_end(p->a);
	await_end(p->b);
	plane_come_back(p->f);
	assert_int_equal(weir_reattach(p->a, PATIENT), 0);
	assert_int_equal(weir_reattach(p->b, PATIENT), 0);
}

/* One call, and handle, listener and descriptor go on; the connection of before doesn't. */
static void
test_reattach(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	struct weir_conn *c = p.c, *d = p.d;
	int fd = weir_fd(p.b);
	struct weir_event e;

	assert_int_equal(weir_reattach(p.a, 0), 0); /* nothing was lost */
	for (int round = 0; round < 3; round++) {
		plane_kill(p.f);
		await_end(p.a);
		assert_int_equal(weir_reattach(p.a, 20), -ENOENT);
		back(&p);
		assert_int_equal(weir_send(c, "x", 1, 0), -ENODEV);
		assert_int_equal(weir_fd(p.b), fd);
		expect(p.a, c, WEIR_EVENT_CLOSED, -ENODEV);
		p.c = pair_connect(&p, PLANE_REMOTE);
		expect(p.b, d, WEIR_EVENT_CLOSED, -ENODEV);
		e = next_event(p.b);
		assert_int_equal(e.type, WEIR_EVENT_ACCEPT);
		assert_ptr_equal(e.listener, p.l);
		p.d = pair_accept(&p);
		pair_pass(&p, p.c, p.d, 1, 100);
		pair_pass(&p, p.d, p.c, 2, 20000);
		assert_int_equal(mappings("arena"), 2 * 2 + 2 * (round + 2));
		weir_close(c);
		weir_close(d);
		/* the fake's own mappings stay: ours of the former sessions are gone */
		assert_int_equal(mappings("arena"), 2 + 2 * (round + 2));
		c = p.c;
		d = p.d;
	}
	pair_close(&p);
}

/* A loss that the program has heard of elsewhere, and the library has not noticed yet. */
static void
test_unnoticed(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	struct weir_conn *c;

	pthread_mutex_lock(&p.a->request_lock); /* the watcher takes it before it says DEAD */
	plane_kill(p.f);
	plane_come_back(p.f);
	assert_int_equal(weir_reattach(p.a, 0), -ECONNREFUSED);
	assert_int_equal(weir_state(p.a), WEIR_UP);
	pthread_mutex_unlock(&p.a->request_lock);
	assert_int_equal(weir_reattach(p.a, PATIENT), 0);
	assert_int_equal(weir_reattach(p.b, PATIENT), 0);
	c = p.c;
	p.c = pair_connect(&p, PLANE_REMOTE);
	weir_close(c);
	c = p.d;
	p.d = pair_accept(&p);
	weir_close(c);
	pair_pass(&p, p.c, p.d, 1, 100);
	pair_close(&p);
}

/* Memory of the former session stays until the program releases it. */
static void
test_memory(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	uint8_t *m = make_message(5, 3000);
	struct weir_loan loan;
	unsigned before;
	void *to;

	assert_int_equal(weir_send(p.c, m, 3000, 0), 0);
	plane_settle(p.f);
	assert_int_equal(weir_recv_loan(p.d, &loan, 0), 0);
	assert_int_equal(weir_send_reserve(p.c, 3000, 0, &to), 0);
	plane_kill(p.f);
	expect(p.a, p.c, WEIR_EVENT_CLOSED, -ENODEV);
	back(&p);
	before = mappings("arena");
	check_message(loan.data, 5, 3000);
	memcpy(to, m, 3000);
	assert_int_equal(weir_send_commit(p.c, to, 3000, 0, 0), -ENODEV);
	weir_send_abandon(p.c, to);
	assert_int_equal(mappings("arena"), before);
	weir_close(p.c);
	assert_int_equal(mappings("arena"), before - 1);
	weir_close(p.d);
	check_message(loan.data, 5, 3000);
	weir_release(p.b, &loan);
	/* its listener has left it, too */
	assert_int_equal(mappings("arena"), before - 2);
	free(m);
	weir_listener_close(p.l);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* A thread that was in a call all the time finds the former session empty, and no worse. */
static void
test_late(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	struct weir_thread *t = LIST_FIRST(&p.a->threads);
	struct weir_channel *ch = NULL;

	plane_kill(p.f);
	back(&p);
	weir_close(p.c);
	weir_close(p.d);
	assert_true(p.a->shed);
	weir_lock(t);
	assert_int_equal(weir_channel_get(t, UINT32_MAX, &ch), -ENODEV);
	weir_unlock(t);
	assert_int_equal(((const struct weir_arena_head *)p.a->arena)->nodes, 0);
	weir_listener_close(p.l);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* A name that somebody else has by then: the listener says so. */
static void
test_name_taken(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	struct weir_listener *other;
	struct weir_conn *c;
	struct weir_event e;

	plane_kill(p.f);
	await_end(p.a);
	await_end(p.b);
	plane_come_back(p.f);
	assert_int_equal(weir_reattach(p.a, PATIENT), 0);
	assert_int_equal(weir_listen(p.a, "svc", 0, &other), 0);
	assert_int_equal(weir_accept(p.l, 0, &c), -ENODEV);
	assert_int_equal(weir_reattach(p.b, PATIENT), 0);
	do
		e = next_event(p.b);
	while (e.type == WEIR_EVENT_CLOSED);
	assert_int_equal(e.type, WEIR_EVENT_ACCEPT);
	assert_ptr_equal(e.listener, p.l);
	assert_int_equal(weir_accept(p.l, -1, &c), -EADDRINUSE);
	assert_non_null(strstr(weir_reason(), "svc"));
	weir_close(p.c);
	weir_close(p.d);
	weir_listener_close(p.l);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

static void *
kill_soon(void *fake)
{
	nap(30);
	plane_kill(fake);
	return NULL;
}

/* The data plane goes again before the listener listens: it does on the one after that. */
static void
test_gone_again(void **state)
{
	static const struct plane_options slow = {.watched = true, .listen_ms = 100};
	struct pair p = pair_open(PLANE_REMOTE, &slow, false);
	struct weir_conn *c;
	pthread_t t;

	for (int round = 0; round < 2; round++) {
		plane_kill(p.f);
		await_end(p.a);
		await_end(p.b);
		plane_come_back(p.f);
		pthread_create(&t, NULL, kill_soon, p.f);
		weir_reattach(p.b, 1000);
		pthread_join(t, NULL);
		await_end(p.b);
		assert_int_equal(weir_accept(p.l, 0, &c), -ENODEV);
		plane_come_back(p.f);
		assert_int_equal(weir_reattach(p.a, PATIENT), 0);
		assert_int_equal(weir_reattach(p.b, PATIENT), 0);
		assert_int_equal(weir_accept(p.l, 0, &c), -EAGAIN);
		weir_close(p.c);
		weir_close(p.d);
		p.c = pair_connect(&p, PLANE_REMOTE);
		p.d = pair_accept(&p);
		pair_pass(&p, p.c, p.d, 1, 100);
	}
	pair_close(&p);
}

/* A thread that sleeps on the descriptor learns of loss and return; so does one that waits. */
static void
test_sleepers(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, &watched, false);
	struct pollfd fd = {.fd = weir_fd(p.b), .events = POLLIN};

	while (weir_arm(p.b) == -EAGAIN)
		;
	plane_kill(p.f);
	assert_int_equal(poll(&fd, 1, PATIENT), 1);
	expect(p.b, p.d, WEIR_EVENT_CLOSED, -ENODEV);
	back(&p);
	weir_close(p.d);
	while (weir_arm(p.b) == -EAGAIN)
		;
	assert_int_equal(poll(&fd, 1, 0), 0); /* the hang-up is no news any more */
	weir_close(p.c);
	p.c = pair_connect(&p, PLANE_REMOTE);
	assert_int_equal(poll(&fd, 1, PATIENT), 1);
	assert_int_equal(next_event(p.b).type, WEIR_EVENT_ACCEPT);
	p.d = pair_accept(&p);
	pair_close(&p);
}

static void
say(struct plane *f, uint16_t id, uint64_t incarnation)
{
	struct weir_node_info is = {.id = id, .state = WEIR_NODE_UP, .incarnation = incarnation};

	plane_node(f, &is);
}

/* A thread that watches nodes goes on: changes are reported once the new table is whole. */
static void
test_nodes(void **state)
{
	struct plane *f = plane_create(&watched);
	struct weir *w = plane_attach(f);
	struct weir_event e;

	assert_int_equal(weir_nodes_watch(w, 1), 0);
	for (uint16_t i = 1; i <= 3; i++) {
		say(f, i, 1);
		assert_int_equal(next_event(w).cookie, i);
	}
	plane_kill(f);
	await_end(w);
	plane_come_back(f);
	assert_int_equal(weir_reattach(w, PATIENT), 0);
	say(f, 1, 1);
	say(f, 2, 2);
	e = next_event(w);
	assert_int_equal(e.cookie, 2);
	assert_int_equal(e.change, WEIR_CHANGE_RESTART);
	assert_int_equal(weir_poll(w, &e, 1), 0);
	plane_synced(f);
	e = next_event(w);
	assert_int_equal(e.cookie, 3);
	assert_int_equal(e.change, WEIR_CHANGE_REMOVED);
	assert_int_equal(weir_poll(w, &e, 1), 0);
	weir_detach(w);
	plane_destroy(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_loss),       cmocka_unit_test(test_loss_of_run),
	    cmocka_unit_test(test_unnoticed),  cmocka_unit_test(test_loss_local),
	    cmocka_unit_test(test_reattach),   cmocka_unit_test(test_memory),
	    cmocka_unit_test(test_name_taken), cmocka_unit_test(test_sleepers),
	    cmocka_unit_test(test_nodes),      cmocka_unit_test(test_gone_again),
	    cmocka_unit_test(test_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
