/* SPDX-License-Identifier: BSD-3-Clause */
/* Several threads, waiting and waking, the watcher: everything that a test in one thread can't see.
 */
#include "worlds/stream_pair.h"

#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 3000u

static uint64_t
now_ms(void)
{
	return weir_clock() / 1000000;
}

static void
nap(unsigned ms)
{
	struct timespec ts = {.tv_nsec = (long)ms * 1000000};

	nanosleep(&ts, NULL);
}

static void
fatal(const char *what, int rc)
{
	fprintf(stderr, "%s: %d: %s\n", what, rc, weir_reason());
	abort();
}

struct job {
	struct pair *p;
	struct weir_conn *c;
	pthread_barrier_t *seen;
	uint64_t seen_ms;
	uint32_t rounds, from, delay_ms;
	size_t length;
	int timeout;
	int rc;
};

static pthread_t
start(void *(*f)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, f, arg))
		abort();
	return t;
}

/* ---- ping-pong ---- */

static void *
echo(void *arg)
{
	struct job *j = arg;
	static uint8_t buf[3000];
	size_t n;
	int rc;

	for (uint32_t i = 0; i < j->rounds; i++) {
		rc = weir_recv(j->c, buf, sizeof(buf), &n, j->timeout);
		if (!rc)
			rc = weir_send(j->c, buf, n, j->timeout);
		if (rc)
			fatal("echo", rc);
	}
	return NULL;
}

static void
ping_pong(const char *address, const struct plane_options *o, uint32_t rounds)
{
	struct pair p = pair_open(address, o, false);
	struct job j = {.c = p.d, .rounds = rounds, .timeout = -1};
	uint8_t buf[3000];
	pthread_t t;
	size_t n;

	plane_run(p.f);
	t = start(echo, &j);
	for (uint32_t i = 0; i < rounds; i++) {
		uint8_t *m = make_message(i, (i * 37) % 3000);

		assert_int_equal(weir_send(p.c, m, (i * 37) % 3000, -1), 0);
		if (i % 512 == 0)
			nap(2); /* the other end sleeps */
		assert_int_equal(weir_recv(p.c, buf, sizeof(buf), &n, -1), 0);
		assert_int_equal(n, (i * 37) % 3000);
		check_message(buf, i, n);
		free(m);
	}
	pthread_join(t, NULL);
	plane_stop(p.f);
	pair_close(&p);
}

static void
test_ping_pong(void **state)
{
	static const struct plane_options fences = {.fence = true};

	ping_pong(PLANE_LOCAL, NULL, ROUNDS);
	ping_pong(PLANE_LOCAL, &fences, ROUNDS / 4);
	ping_pong(PLANE_REMOTE, NULL, ROUNDS / 4);
	ping_pong(PLANE_REMOTE, &fences, ROUNDS / 8);
}

/* ---- many senders, one receiver ---- */

static void *
send_many(void *arg)
{
	struct job *j = arg;
	uint32_t m[16] = {j->from};
	int rc;

	for (uint32_t i = 0; i < j->rounds; i++) {
		m[1] = i;
		rc = weir_send(j->c, m, 8 + i % 56, -1);
		if (rc)
			fatal("send", rc);
	}
	return NULL;
}

static void
many_senders(const char *address)
{
	struct pair p = pair_open(address, NULL, false);
	struct job j[3];
	pthread_t t[3];
	uint32_t next[3] = {0}, m[16];
	size_t n;

	plane_run(p.f);
	for (uint32_t i = 0; i < 3; i++) {
		j[i] = (struct job){.c = p.c, .rounds = ROUNDS, .from = i};
		t[i] = start(send_many, &j[i]);
	}
	for (uint32_t i = 0; i < 3 * ROUNDS; i++) {
		int rc = weir_recv(p.d, m, sizeof(m), &n, PATIENT);

		if (rc)
			fatal("recv", rc);
		assert_true(m[0] < 3);
		assert_int_equal(m[1], next[m[0]]);
		assert_int_equal(n, 8 + m[1] % 56);
		next[m[0]]++;
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(weir_recv(p.d, m, sizeof(m), &n, 0), -EAGAIN);
	plane_stop(p.f);
	pair_close(&p);
}

static void
test_many_senders(void **state)
{
	many_senders(PLANE_LOCAL);
	many_senders(PLANE_REMOTE);
}

/* ---- a sender that is faster than its receiver sleeps, and is woken ---- */

static void
slow_receiver(const char *address, size_t length, uint32_t rounds)
{
	struct pair p = pair_open(address, NULL, false);
	struct job j = {.c = p.c, .rounds = rounds};
	uint8_t *buf = calloc(1, length);
	uint64_t start_ms = now_ms();
	pthread_t t;
	size_t n;

	plane_run(p.f);
	j.length = length;
	t = start(send_many, &j);
	for (uint32_t i = 0; i < rounds; i++) {
		int rc;

		if (i % 500 == 0)
			nap(20);
		rc = weir_recv(p.d, buf, length, &n, PATIENT);
		if (rc)
			fatal("recv", rc);
	}
	pthread_join(t, NULL);
	assert_true(now_ms() - start_ms < PATIENT);
	plane_stop(p.f);
	free(buf);
	pair_close(&p);
}

static void
test_slow_receiver(void **state)
{
	slow_receiver(PLANE_LOCAL, 64, ROUNDS);
	slow_receiver(PLANE_REMOTE, 64, ROUNDS);
}

/* ---- timeouts ---- */

static void
test_timeouts(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_event e;
	struct weir_conn *c;
	char buf[900] = {0};
	uint64_t before;
	size_t n;
	int rc;

	before = now_ms();
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 30), -EAGAIN);
	assert_int_equal(weir_accept(p.l, 30, &c), -EAGAIN);
	assert_int_equal(weir_wait(p.b, &e, 1, 30), 0);
	assert_true(now_ms() - before >= 88);
	do
		rc = weir_send(p.c, buf, sizeof(buf), 30);
	while (!rc);
	assert_int_equal(rc, -EAGAIN);
	assert_true(now_ms() - before >= 118);
	assert_true(now_ms() - before < PATIENT);
	pair_close(&p);
}

/* ---- connections that other threads made ---- */

static void *
receive_later(void *arg)
{
	struct job *j = arg;
	char buf[64];
	size_t n;

	j->rc = weir_recv(j->c, buf, sizeof(buf), &n, PATIENT);
	if (!j->rc && memcmp(buf, "to another thread", n))
		j->rc = -EBADMSG;
	return NULL;
}

/* The thread that made it waits for other things meanwhile, and gets them. */
static void
test_receive_elsewhere(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2 = pair_accept(&p);
	struct job j = {.c = p.d};
	struct weir_event e;
	pthread_t t;
	size_t n;
	char buf[64];

	for (int i = 0; i < 20; i++) {
		t = start(receive_later, &j);
		nap(i % 4);
		assert_int_equal(weir_send(c2, "mine", 4, 0), 0);
		assert_int_equal(weir_recv(d2, buf, sizeof(buf), &n, PATIENT), 0);
		assert_int_equal(weir_send(p.c, "to another thread", 17, 0), 0);
		pthread_join(t, NULL);
		assert_int_equal(j.rc, 0);
	}
	while (weir_poll(p.b, &e, 1) > 0)
		;
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

static void *
bind_and_wait(void *arg)
{
	struct job *j = arg;
	struct weir_event e;
	char buf[64];
	size_t n;

	j->rc = weir_conn_bind(j->c);
	for (uint32_t got = 0; !j->rc && got < j->rounds;) {
		int rc = weir_wait(j->p->b, &e, 1, PATIENT);

		if (rc != 1)
			fatal("wait", rc);
		if (e.type != WEIR_EVENT_READABLE || e.conn != j->c)
			continue;
		while (weir_recv(j->c, buf, sizeof(buf), &n, 0) == 0)
			got++;
	}
	return NULL;
}

static void
bound(const char *address)
{
	struct pair p = pair_open(address, NULL, false);
	struct job j = {.p = &p, .c = p.d, .rounds = 200};
	struct weir_event e;
	pthread_t t;

	plane_run(p.f);
	t = start(bind_and_wait, &j);
	for (uint32_t i = 0; i < j.rounds; i++) {
		assert_int_equal(weir_send(p.c, "x", 1, -1), 0);
		if (i % 20 == 0)
			nap(1);
	}
	pthread_join(t, NULL);
	assert_int_equal(j.rc, 0);
	/* that thread has ended: back to us */
	assert_int_equal(weir_conn_bind(p.d), 0);
	assert_int_equal(weir_send(p.c, "y", 1, -1), 0);
	do
		assert_int_equal(weir_wait(p.b, &e, 1, PATIENT), 1);
	while (e.type != WEIR_EVENT_READABLE);
	plane_stop(p.f);
	pair_close(&p);
}

static void
test_bind(void **state)
{
	bound(PLANE_LOCAL);
	bound(PLANE_REMOTE);
}

/* ---- threads come and go: their channels are used again ---- */

static void *
connect_and_close(void *arg)
{
	struct job *j = arg;
	struct weir_address address;
	struct weir_conn *c;

	weir_address_parse(PLANE_REMOTE, &address);
	j->rc = weir_connect(j->p->a, &address, PATIENT, &c);
	if (j->rc)
		return NULL;
	j->rc = weir_send(c, "hello", 5, PATIENT);
	weir_close(c);
	for (int i = 0; i < 1000; i++) {
		struct weir_event e;

		weir_poll(j->p->a, &e, 1);
	}
	return NULL;
}

static void
test_thread_ends(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct job j = {.p = &p};
	struct weir_conn *d;

	plane_run(p.f);
	for (int i = 0; i < 20; i++) { /* there are 8 channels */
		pthread_t t = start(connect_and_close, &j);

		assert_int_equal(weir_accept(p.l, PATIENT, &d), 0);
		pthread_join(t, NULL);
		assert_int_equal(j.rc, 0);
		weir_close(d);
		nap(2);
	}
	plane_stop(p.f);
	pair_close(&p);
}

/* ---- a descriptor for the program's own loop ---- */

static void *
send_later(void *arg)
{
	struct job *j = arg;

	nap(j->delay_ms);
	j->rc = weir_send(j->c, "late", 4, -1);
	return NULL;
}

static void
test_fd(void **state)
{
	static const char *const ways[] = {PLANE_LOCAL, PLANE_REMOTE};

	for (int way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], NULL, false);
		struct job j = {.c = p.c, .delay_ms = 20};
		struct pollfd fd = {.fd = weir_fd(p.b), .events = POLLIN};
		struct weir_event e;
		char buf[8];
		size_t n;

		plane_run(p.f);
		for (int i = 0; i < 10; i++) {
			pthread_t t;

			while (weir_arm(p.b) == -EAGAIN)
				while (weir_poll(p.b, &e, 1) > 0)
					;
			assert_int_equal(poll(&fd, 1, 0), 0);
			t = start(send_later, &j);
			assert_int_equal(poll(&fd, 1, PATIENT), 1);
			while (weir_poll(p.b, &e, 1) != 1)
				;
			assert_int_equal(e.type, WEIR_EVENT_READABLE);
			assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
			assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), -EAGAIN);
			pthread_join(t, NULL);
		}
		plane_stop(p.f);
		pair_close(&p);
	}
}

/* A thread that asks for the descriptor again is still to be woken. */
static void
test_fd_while_armed(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct pollfd fd = {.fd = weir_fd(p.b), .events = POLLIN};
	struct weir_event e;

	while (weir_arm(p.b) == -EAGAIN)
		while (weir_poll(p.b, &e, 1) > 0)
			;
	assert_int_equal(weir_fd(p.b), fd.fd);
	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_int_equal(weir_send(p.c, "now", 3, 0), 0);
	assert_int_equal(poll(&fd, 1, 0), 1);
	assert_int_equal(weir_poll(p.b, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_READABLE);
	pair_close(&p);
}

/* A connection with something to report is bound to a thread that was about to sleep. */
static void *
bind_while_armed(void *arg)
{
	struct job *j = arg;
	struct pollfd fd = {.fd = weir_fd(j->p->b), .events = POLLIN};
	struct weir_event e;

	while (weir_arm(j->p->b) == -EAGAIN)
		;
	j->rc = weir_conn_bind(j->c);
	if (!j->rc && poll(&fd, 1, 0) != 1)
		j->rc = -ENODATA;
	if (!j->rc && (weir_poll(j->p->b, &e, 1) != 1 || e.conn != j->c))
		j->rc = -ENOENT;
	return NULL;
}

static void
test_bind_while_armed(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct job j = {.p = &p, .c = p.d};

	assert_int_equal(weir_send(p.c, "x", 1, 0), 0);
	pthread_join(start(bind_while_armed, &j), NULL);
	assert_int_equal(j.rc, 0);
	assert_int_equal(weir_conn_bind(p.d), 0);
	pair_close(&p);
}

/* ---- the watcher ---- */

static void *
wait_for_end(void *arg)
{
	struct job *j = arg;
	char buf[8];
	size_t n;

	do
		j->rc = weir_recv(j->c, buf, sizeof(buf), &n, j->timeout);
	while (j->rc == -EAGAIN);
	j->seen_ms = now_ms();
	pthread_barrier_wait(j->seen);
	pthread_barrier_wait(j->seen); /* it has been counted how long we waited for a CPU */
	return NULL;
}

/* How long our threads have waited for a CPU, together. 0 where the kernel doesn't count that. */
static uint64_t
starved_ms(void)
{
	DIR *d = opendir("/proc/self/task");
	uint64_t ran, waited, sum = 0;
	const struct dirent *e;
	char path[300];
	FILE *f;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%" SCNu64 " %" SCNu64, &ran, &waited) == 2)
			sum += waited;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return sum / 1000000;
}

/*
 * How long the end took to be seen by a thread that waits or spins, in ms; not for want of a CPU.
 */
static uint64_t
cut_once(bool spinning)
{
	static const struct plane_options o = {.watched = true};
	struct pair p = pair_open(PLANE_LOCAL, &o, false);
	pthread_barrier_t seen;
	struct job j = {.c = p.d, .seen = &seen, .timeout = spinning ? 0 : -1};
	struct pollfd fd = {.fd = weir_fd(p.b), .events = POLLIN};
	uint64_t before, starved, took;
	pthread_t t;

	pthread_barrier_init(&seen, NULL, 2);
	while (weir_arm(p.b) == -EAGAIN)
		;
	t = start(wait_for_end, &j);
	nap(20);
	starved = starved_ms();
	before = now_ms();
	plane_cut(p.f, p.b);
	pthread_barrier_wait(&seen);
	took = j.seen_ms - before;
	starved = starved_ms() - starved;
	took -= starved < took ? starved : took;
	pthread_barrier_wait(&seen);
	pthread_join(t, NULL);
	pthread_barrier_destroy(&seen);
	assert_int_equal(j.rc, -ENODEV);
	assert_int_equal(poll(&fd, 1, PATIENT), 1);
	assert_int_equal(weir_arm(p.b), -ENODEV);
	weir_lost(p.a);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
	return took;
}

/* Within 100 ms; a machine that itself stands still gets more than one try. */
static void
test_cut(void **state)
{
	for (int spinning = 0; spinning < 2; spinning++) {
		uint64_t best = UINT64_MAX;

		for (int try = 0; try < 20 && best >= 100; try++) {
			uint64_t took = cut_once(spinning);

			best = took < best ? took : best;
		}
		assert_true(best < 100);
	}
}

/* Accepted means that it arrives, even if the sender never calls again. */
static void
test_tail_is_pushed(void **state)
{
	static const struct plane_options o = {.watched = true};
	struct pair p = pair_open(PLANE_LOCAL, &o, false);
	size_t length = 3 << 20, n;
	uint8_t *m = make_message(5, length), *in = malloc(length);

	for (int i = 0; i < 2; i++) {
		assert_int_equal(weir_send(p.c, m, length, 0), 0);
		if (i) { /* not even to say more than that */
			weir_close(p.c);
			p.c = NULL;
		}
		assert_int_equal(weir_recv(p.d, in, length, &n, PATIENT), 0);
		assert_int_equal(n, length);
		check_message(in, 5, length);
	}
	free(m);
	free(in);
	for (int i = 0; i < PATIENT && plane_open_ends(p.f) > 1; i++) {
		nap(1);
		plane_settle(p.f);
	}
	pair_close(&p);
}

/* ---- shutdown while others wait ---- */

static void *
send_blocked(void *arg)
{
	struct job *j = arg;
	uint8_t *m = make_message(1, j->length);

	while (!(j->rc = weir_send(j->c, m, j->length, -1)))
		;
	free(m);
	return NULL;
}

static void *
receive_until_end(void *arg)
{
	struct job *j = arg;
	uint8_t in[64];
	size_t n;

	while (!(j->rc = weir_recv(j->c, in, sizeof(in), &n, -1)))
		;
	return NULL;
}

/* Threads that sleep in a send, or in a receive, learn of it. */
static void
test_shutdown_wakes(void **state)
{
	static const char *const ways[] = {PLANE_LOCAL, PLANE_REMOTE};

	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], NULL, false);
		struct job tx = {.c = p.c, .length = 20000}, rx = {.c = p.c};
		uint8_t *in = malloc(tx.length);
		pthread_t t[2];
		size_t n;

		plane_run(p.f);
		t[0] = start(send_blocked, &tx);
		t[1] = start(receive_until_end, &rx);
		nap(200); /* they sleep */
		assert_int_equal(weir_shutdown(p.c), 0);
		pthread_join(t[0], NULL);
		assert_int_equal(tx.rc, -EPIPE);
		assert_int_equal(weir_shutdown(p.d), 0);
		while (!weir_recv(p.d, in, tx.length, &n, PATIENT))
			check_message(in, 1, n);
		pthread_join(t[1], NULL);
		assert_int_equal(rx.rc, -ESHUTDOWN);
		plane_stop(p.f);
		free(in);
		pair_close(&p);
	}
}

/* ---- large messages of several threads ---- */

/* Messages whose length says what they are, some of which the sender leaves to the library. */
static void *
send_large(void *arg)
{
	struct job *j = arg;

	for (uint32_t i = 0; i < j->rounds; i++) {
		uint8_t *m = make_message(j->from + i, j->length + i);
		int rc;

		do
			rc = weir_send(j->c, m, j->length + i, j->timeout);
		while (rc == -EAGAIN);
		if (rc)
			fatal("send", rc);
		memset(m, 0xee, j->length + i);
		free(m);
	}
	return NULL;
}

/* One goes on where the other's message has just ended: neither takes the other's rest for its own.
 */
static void
test_large_senders(void **state)
{
	/* a watcher: it pushes what threads that have ended left to the library */
	static const struct plane_options o = {.watched = true};
	struct pair p = pair_open(PLANE_LOCAL, &o, false);
	struct job j[3] = {{.c = p.c, .from = 1000, .length = 300000, .rounds = 100, .timeout = 1},
			   {.c = p.c, .from = 2000, .length = 400000, .rounds = 100, .timeout = 1},
			   {.c = p.c, .from = 3000, .length = 500000, .rounds = 100, .timeout = 2}};
	uint32_t got[3] = {0};
	uint8_t *in = malloc(1 << 20);
	pthread_t t[3];
	size_t n;

	for (int i = 0; i < 3; i++)
		t[i] = start(send_large, &j[i]);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t of;

		assert_int_equal(weir_recv(p.d, in, 1 << 20, &n, PATIENT), 0);
		of = n / 100000 - 3;
		assert_in_range(of, 0, 2);
		assert_int_equal(n, j[of].length + got[of]);
		check_message(in, j[of].from + got[of]++, n);
		if (i % 3 == 0)
			nap(1 + i % 4);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	free(in);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ping_pong),
	    cmocka_unit_test(test_many_senders),
	    cmocka_unit_test(test_slow_receiver),
	    cmocka_unit_test(test_timeouts),
	    cmocka_unit_test(test_receive_elsewhere),
	    cmocka_unit_test(test_bind),
	    cmocka_unit_test(test_thread_ends),
	    cmocka_unit_test(test_fd),
	    cmocka_unit_test(test_fd_while_armed),
	    cmocka_unit_test(test_bind_while_armed),
	    cmocka_unit_test(test_cut),
	    cmocka_unit_test(test_tail_is_pushed),
	    cmocka_unit_test(test_shutdown_wakes),
	    cmocka_unit_test(test_large_senders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
