/* SPDX-License-Identifier: BSD-3-Clause */
/* Local connections: bytes go by a segment between two programs, which don't trust each other. */
#include "worlds/stream_pair.h"

#include "stream/conn.h"

#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t sizes[] = {0,     1,     8,	    47,	    48,	     49,      108,   109,
			       947,   948,   949,   4096,   8192,    8193,    32767, 32768,
			       32769, 65536, 65537, 200000, 1 << 20, 16 << 20};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void
test_sizes(void **state)
{
	for (int self = 0; self < 2; self++) {
		struct pair p = pair_open(PLANE_LOCAL, NULL, self);

		for (size_t i = 0; i < COUNT(sizes); i++) {
			pair_pass(&p, p.c, p.d, (uint32_t)i, sizes[i]);
			pair_pass(&p, p.d, p.c, (uint32_t)i + 100, sizes[i]);
		}
		/* wraps of ring and area */
		for (uint32_t i = 0; i < 3000; i++)
			pair_pass(&p, p.c, p.d, i, (i * 7919) % 3000);
		pair_close(&p);
	}
}

/* A message that lies whole in the segment is complete, with WEIR_NOTIFY or without. */
static void
test_flush(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	size_t length = 40000; /* goes in pieces: the area has 64 KiB */
	uint8_t *m = make_message(1, length);

	assert_int_equal(weir_flush(p.c, 0), 0);
	assert_int_equal(weir_send(p.c, m, 64, 0), 0);
	assert_int_equal(weir_flush(p.c, 0), 0);
	assert_int_equal(weir_send(p.c, m, length, 0), 0);
	assert_int_equal(weir_flush(p.c, 0), 0);
	/* the rest of this one waits for room */
	assert_int_equal(weir_send(p.c, m, length, 0), 0);
	assert_int_equal(weir_flush(p.c, 0), -EAGAIN);
	assert_int_equal(weir_recv(p.d, m, 64, &length, 0), 0);
	assert_int_equal(weir_recv(p.d, m, 40000, &length, 0), 0);
	assert_int_equal(weir_recv(p.d, m, 40000, &length, 0), -EAGAIN);
	assert_int_equal(weir_flush(p.c, 0), 0);
	assert_int_equal(weir_recv(p.d, m, 40000, &length, 0), 0);
	check_message(m, 1, length);
	free(m);
	pair_close(&p);
}

/* How many messages there were is told to the data plane, once there is a pause. */
static void
test_counted(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_segment_geometry g;
	const uint8_t *base = plane_segment(p.f, &g);
	const struct weir_segment_conn *line = (const void *)(base + weir_segment_conns_at(&g, 0));
	struct weir_event e;

	for (uint32_t i = 0; i < 40; i++)
		pair_pass(&p, p.c, p.d, i, i * 997);
	for (unsigned i = 0; i < 20; i++)
		weir_poll(p.b, &e, 1);
	assert_int_equal(line[p.c->conn_index].received, 40);
	pair_close(&p);
}

static void
test_too_long(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);

	assert_int_equal(weir_send(p.c, "", WEIR_STREAM_MESSAGE_MAX + 1ul, 0), -EMSGSIZE);
	assert_int_equal(weir_send(p.c, "", 1ul << 32, 0), -EMSGSIZE);
	assert_true(*weir_reason());
	pair_close(&p);
}

/* A buffer too small leaves the message where it is, whatever its way. */
static void
test_small_buffer(void **state)
{
	static const size_t lengths[] = {1, 49, 948, 949, 8193, 100000};
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);

	for (size_t i = 0; i < COUNT(lengths); i++) {
		size_t length = lengths[i], n = 0;
		uint8_t *m = make_message(1, length), *in = malloc(length);

		assert_int_equal(weir_send(p.c, m, length, 0), 0);
		assert_int_equal(pair_recv(&p, p.d, in, length - 1, &n), -EMSGSIZE);
		assert_int_equal(n, length);
		assert_int_equal(weir_recv(p.d, in, 0, &n, 0), -EMSGSIZE);
		assert_int_equal(weir_recv(p.d, in, length, &n, 0), 0);
		check_message(in, 1, length);
		free(m);
		free(in);
	}
	pair_close(&p);
}

/* Sends until full, then takes all out: nothing is lost, doubled or reordered, and it is writable
 * again. */
static void
fill_and_drain(struct pair *p, size_t length)
{
	uint32_t sent = pair_fill(p, length);
	uint8_t *in = malloc(length + 1);
	struct weir_event e;
	size_t n;

	assert_int_equal(weir_poll(p->a, &e, 1), 0);
	pair_drain(p, sent, length);
	assert_int_equal(weir_recv(p->d, in, length, &n, 0), -EAGAIN);
	assert_int_equal(weir_poll(p->a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_WRITABLE);
	assert_ptr_equal(e.conn, p->c);
	assert_int_equal(weir_poll(p->a, &e, 1), 0);
	free(in);
}

static void
test_full(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);

	for (int round = 0; round < 3; round++) {
		fill_and_drain(&p, 0);
		fill_and_drain(&p, 64);
		fill_and_drain(&p, 948);
		fill_and_drain(&p, 5000);
		fill_and_drain(&p, 32768);
		fill_and_drain(&p, 100000);
	}
	pair_close(&p);
}

/* A program that receives on one connection only stalls the others within their window, and loses
 * none of their messages. */
static void
test_slow_neighbour(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2 = pair_accept(&p);
	static uint8_t big[6000];
	uint32_t sent = 0, got = 0;
	uint64_t bytes = 0;
	size_t n;

	assert_int_equal(plane_segments(p.f), 1);
	/* much more than ring and area hold goes to the slow one, between messages to the other */
	for (uint32_t i = 0; i < 20000; i++) {
		size_t length = i % 3 ? 100 : sizeof(big);

		memcpy(big, &sent, sizeof(sent));
		if (weir_send(p.c, big, length, 0) == 0) {
			bytes += weir_segment_cost((uint32_t)length);
			sent++;
		}
		if (weir_send(c2, &i, sizeof(i), 0) == 0) {
			uint32_t in;

			assert_int_equal(weir_recv(d2, &in, sizeof(in), &n, 0), 0);
			assert_int_equal(in, i);
		} else {
			fail_msg("the fast connection is stalled at %u", i);
		}
	}
	assert_true(bytes > WEIR_SEGMENT_WINDOW - 8192 && bytes <= WEIR_SEGMENT_WINDOW);
	for (; weir_recv(p.d, big, sizeof(big), &n, 0) == 0; got++)
		assert_memory_equal(big, &got, sizeof(got));
	assert_int_equal(got, sent);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

static void
test_events(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_event e[8];
	char buf[8];
	size_t n;

	weir_conn_set_user(p.d, &p);
	assert_int_equal(weir_poll(p.b, e, 8), 0);
	assert_int_equal(weir_send(p.c, "one", 3, 0), 0);
	assert_int_equal(weir_send(p.c, "two", 3, 0), 0);
	assert_int_equal(weir_poll(p.b, e, 8), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_READABLE);
	assert_ptr_equal(e[0].conn, p.d);
	assert_ptr_equal(e[0].user, &p);
	/* once, until recv has found nothing */
	assert_int_equal(weir_send(p.c, "three", 5, 0), 0);
	assert_int_equal(weir_poll(p.b, e, 8), 0);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
	assert_int_equal(weir_poll(p.b, e, 8), 0);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
	assert_memory_equal(buf, "three", 5);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), -EAGAIN);
	assert_int_equal(weir_send(p.c, "four", 4, 0), 0);
	assert_int_equal(weir_poll(p.b, e, 8), 1);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
	/* sent ones with a cookie: at once */
	assert_int_equal(weir_send_notify(p.c, "five", 4, WEIR_NOTIFY, 55, 0), 0);
	assert_int_equal(weir_poll(p.a, e, 8), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_SENT);
	assert_int_equal(e[0].status, 0);
	assert_int_equal(e[0].cookie, 55);
	assert_int_equal(weir_send_notify(p.c, "x", 1, 1u << 31, 0, 0), -EINVAL);
	pair_close(&p);
}

/* Large messages are reported before they are copied; all of several arrive. */
static void
test_large_events(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2 = pair_accept(&p);
	uint8_t *m = make_message(3, 5000), in[5000];
	unsigned seen = 0, polls = 0;
	struct weir_event e[4];
	size_t n;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(weir_send(p.c, m, 5000, 0), 0);
		assert_int_equal(weir_send(c2, m, 5000, 0), 0);
	}
	while (seen < 6 && polls++ < 100) {
		int got = weir_poll(p.b, e, 4);

		for (int i = 0; i < got; i++) {
			assert_int_equal(e[i].type, WEIR_EVENT_READABLE);
			while (weir_recv(e[i].conn, in, sizeof(in), &n, 0) == 0) {
				check_message(in, 3, 5000);
				seen++;
			}
		}
	}
	assert_int_equal(seen, 6);
	free(m);
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

static void
test_close(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_event e[4];
	uint8_t *m = make_message(9, 3000), in[3000];
	size_t n;

	assert_int_equal(weir_send(p.c, "last", 4, 0), 0);
	assert_int_equal(weir_send(p.c, m, 3000, 0), 0);
	weir_close(p.c);
	p.c = NULL;
	plane_settle(p.f);
	/* queued data first, then one event */
	assert_int_equal(weir_poll(p.b, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_READABLE);
	assert_int_equal(weir_recv(p.d, in, 3000, &n, 0), 0);
	assert_int_equal(n, 4);
	assert_int_equal(weir_poll(p.b, e, 4), 0);
	assert_int_equal(weir_recv(p.d, in, 3000, &n, 0), 0);
	check_message(in, 9, 3000);
	assert_int_equal(weir_recv(p.d, in, 3000, &n, 0), -ESHUTDOWN);
	assert_int_equal(weir_poll(p.b, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	assert_int_equal(e[0].status, 0);
	assert_int_equal(weir_poll(p.b, e, 4), 0);
	assert_int_equal(weir_send(p.d, "x", 1, 0), -ECONNRESET);
	assert_int_equal(weir_recv(p.d, in, 3000, &n, -1), -ESHUTDOWN);
	free(m);
	pair_close(&p);
}

/* The rest of a large message that was accepted goes before the end. */
static void
test_close_with_a_rest(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint8_t *m = make_message(4, 1 << 20), *in = malloc(1 << 20);
	struct weir_event e;
	int rc = -EAGAIN;
	size_t n = 0;

	assert_int_equal(weir_send(p.c, m, 1 << 20, 0), 0);
	weir_close(p.c);
	p.c = NULL;
	for (int i = 0; i < 1000 && rc == -EAGAIN; i++) {
		plane_settle(p.f);
		weir_poll(p.a, &e, 1);
		rc = weir_recv(p.d, in, 1 << 20, &n, 0);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(n, 1 << 20);
	check_message(in, 4, n);
	weir_poll(p.a, &e, 1);
	plane_settle(p.f);
	assert_int_equal(weir_recv(p.d, in, 1 << 20, &n, 0), -ESHUTDOWN);
	free(m);
	free(in);
	pair_close(&p);
}

/* A receive that ends before its message is whole has no part in the buffer any more. */
static void
test_buffer_taken_back(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint8_t *m = make_message(5, 1 << 20), *in = malloc(1 << 20);
	struct weir_event e;
	int rc = -EAGAIN;
	size_t n = 0;

	assert_int_equal(weir_send(p.c, m, 1 << 20, 0), 0);
	for (int i = 0; i < 1000 && rc == -EAGAIN; i++) {
		memset(in, 0xee, 1 << 20);
		rc = weir_recv(p.d, in, 1 << 20, &n, i % 2);
		weir_poll(p.a, &e, 1);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(n, 1 << 20);
	check_message(in, 5, n);
	assert_int_equal(weir_recv(p.d, in, 1 << 20, &n, 0), -EAGAIN);
	free(m);
	free(in);
	pair_close(&p);
}

/* The sender dies in the middle of a message: the receive ends, and nothing is written later. */
static void
test_peer_dies_in_a_message(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint8_t *m = make_message(5, 1 << 20), *in = malloc(1 << 20);
	size_t n = 0;

	assert_int_equal(weir_send(p.c, m, 1 << 20, 0), 0);
	assert_int_equal(weir_recv(p.d, in, 1 << 20, &n, 0), -EAGAIN);
	plane_die(p.f, p.a);
	plane_turn(p.f);
	memset(in, 0xee, 1 << 20);
	assert_int_equal(weir_recv(p.d, in, 1 << 20, &n, -1), -ECONNRESET);
	for (int i = 0; i < 1 << 20; i++)
		assert_int_equal(in[i], 0xee);
	free(m);
	free(in);
	weir_close(p.d);
	weir_lost(p.a); /* it doesn't wait for anything any more */
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

static void
test_peer_dies(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_event e[4];
	char buf[8];
	size_t n;

	assert_int_equal(weir_send(p.c, "last", 4, 0), 0);
	plane_die(p.f, p.a);
	plane_turn(p.f);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), -ECONNRESET);
	assert_int_equal(weir_send(p.d, "x", 1, 0), -ECONNRESET);
	assert_int_equal(weir_poll(p.b, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	assert_int_equal(e[0].status, -ECONNRESET);
	weir_close(p.d);
	weir_lost(p.a); /* it doesn't wait for anything any more */
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

/* Accepting comes long after data and end have come. */
static void
test_late_accept(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2;
	struct weir_event e[4];
	char buf[8];
	size_t n;

	assert_int_equal(weir_send(c2, "early", 5, 0), 0);
	weir_close(c2);
	plane_settle(p.f);
	/* the other connection of the same segment gets on meanwhile */
	pair_pass(&p, p.c, p.d, 1, 100);
	assert_int_equal(weir_poll(p.b, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_ACCEPT);
	assert_ptr_equal(e[0].listener, p.l);
	d2 = pair_accept(&p);
	assert_int_equal(weir_recv(d2, buf, 8, &n, 0), 0);
	assert_memory_equal(buf, "early", 5);
	assert_int_equal(weir_recv(d2, buf, 8, &n, 0), -ESHUTDOWN);
	weir_close(d2);
	assert_int_equal(weir_accept(p.l, 0, &d2), -EAGAIN);
	pair_close(&p);
}

static void
test_loans(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	static const size_t lengths[] = {3000, 20, 0, 9000, 949, 30000};
	struct weir_loan loan[COUNT(lengths)];

	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < COUNT(lengths); i++) {
			uint8_t *m = make_message((uint32_t)i, lengths[i]);

			assert_int_equal(weir_send(p.c, m, lengths[i], 0), 0);
			free(m);
		}
		for (size_t i = 0; i < COUNT(lengths); i++) {
			assert_int_equal(weir_recv_loan(p.d, &loan[i], 0), 0);
			assert_int_equal(loan[i].length, lengths[i]);
		}
		assert_int_equal(weir_recv_loan(p.d, &loan[0], 0), -EAGAIN);
		for (size_t k = 0; k < COUNT(lengths); k++) {
			size_t i = (k * 5 + (size_t)round) % COUNT(lengths);

			check_message(loan[i].data, (uint32_t)i, lengths[i]);
			weir_release(p.b, &loan[i]);
			weir_release(p.b, &loan[i]); /* again does nothing */
		}
	}
	/* one that is kept beyond the connection */
	assert_int_equal(
	    weir_send(p.c, "kept and large enough for the area ...................", 40, 0), 0);
	assert_int_equal(weir_recv_loan(p.d, &loan[0], 0), 0);
	weir_close(p.d);
	p.d = NULL;
	assert_memory_equal(loan[0].data, "kept", 4);
	weir_release(p.b, &loan[0]);
	pair_close(&p);
}

static void
test_zero_copy(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint8_t in[40000];
	void *buf;
	size_t n;

	for (uint32_t i = 0; i < 300; i++) {
		size_t length = i % 2 ? 100 : 20000 + i;
		uint8_t *m = make_message(i, length);

		assert_int_equal(weir_send_reserve(p.c, length + 50, 0, &buf), 0);
		memcpy(buf, m, length);
		if (i % 7 == 0) {
			weir_send_abandon(p.c, buf);
		} else {
			assert_int_equal(weir_send_commit(p.c, buf, length, 0, 0), 0);
			assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
			assert_int_equal(n, length);
			check_message(in, i, length);
		}
		free(m);
	}
	assert_int_equal(weir_send_commit(p.c, in, 10, 0, 0), -EINVAL);
	assert_int_equal(weir_send_reserve(p.c, 65ul * 8192, 0, &buf), -EMSGSIZE);
	pair_close(&p);
}

/* A sender that sleeps is rung when there is room for the rest of what goes in pieces. */
static void
test_rest_of_pieces(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	const size_t length = 200000;
	uint8_t *m = make_message(1, length), *in = malloc(length);
	struct pollfd fd = {.fd = weir_fd(p.a), .events = POLLIN};
	struct weir_event e;
	size_t n = 0;
	int rc = -EAGAIN;

	for (int i = 0; i < 100; i++) /* the receiver has been at rest for long */
		assert_int_equal(weir_recv(p.d, in, length, &n, 0), -EAGAIN);
	assert_int_equal(weir_send(p.c, m, length, 0), 0);
	for (int round = 0; rc && round < 20; round++) {
		while (weir_arm(p.a) == -EAGAIN)
			weir_poll(p.a, &e, 1);
		for (int i = 0; rc && i < 100; i++)
			rc = weir_recv(p.d, in, length, &n, 0);
		assert_true(!rc || poll(&fd, 1, 0) == 1);
		weir_poll(p.a, &e, 1);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(n, length);
	check_message(in, 1, length);
	free(in);
	free(m);
	pair_close(&p);
}

/* A place is kept while others send around it for laps of the byte area, and goes out as it is. */
static void
test_reservation_is_kept(void **state)
{
	static const size_t others[] = {1000, 8000, 15000, 31000};
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_conn *c2 = pair_connect(&p, PLANE_LOCAL), *d2 = pair_accept(&p);
	uint8_t in[40000];
	size_t n;

	for (uint32_t round = 0; round < 24; round++) {
		size_t length = 2000 + 577 * round;
		uint8_t *m = make_message(round, length);
		void *buf, *second;

		assert_int_equal(weir_send_reserve(p.c, length, 0, &buf), 0);
		memcpy(buf, m, length);
		/* one of another connection lies elsewhere */
		assert_int_equal(weir_send_reserve(c2, length, 0, &second), 0);
		memcpy(second, m, length);
		for (uint32_t i = 0; i < round * 5; i++) {
			size_t other = others[i % 4];
			uint8_t *o = make_message(i, other);

			assert_int_equal(weir_send(p.c, o, other, 0), 0);
			/* its second piece may not fit at once */
			assert_int_equal(pair_recv(&p, p.d, in, sizeof(in), &n), 0);
			assert_int_equal(n, other);
			check_message(in, i, other);
			free(o);
		}
		check_message(buf, round, length);
		if (round % 5 == 4) {
			weir_send_abandon(p.c, buf);
		} else {
			assert_int_equal(weir_send_commit(p.c, buf, length - round, 0, 0), 0);
			assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
			assert_int_equal(n, length - round);
			assert_memory_equal(in, m, n);
			assert_int_equal(weir_send_commit(p.c, buf, 10, 0, 0), -EINVAL);
		}
		assert_int_equal(weir_send_commit(c2, second, length, 0, 0), 0);
		assert_int_equal(weir_recv(d2, in, sizeof(in), &n, 0), 0);
		check_message(in, round, length);
		free(m);
	}
	weir_close(c2);
	weir_close(d2);
	pair_close(&p);
}

/* ---- how much of the byte area is used ---- */

#define MOST 3000ul /* bytes of a message; 3008 in the area */

/* Direction d of the byte area, all of it 0xee. */
static uint8_t *
area_marked(struct pair *p, uint32_t d, size_t *size)
{
	struct weir_segment_geometry g;
	uint8_t *area = plane_segment(p->f, &g);

	area += weir_segment_area_at(&g, d);
	*size = g.area_bytes;
	memset(area, 0xee, *size);
	return area;
}

/* Bytes from the start of the area to the last that was written. */
static size_t
area_used(const uint8_t *area, size_t size)
{
	while (size && area[size - 1] == 0xee)
		size--;
	return size;
}

/* c sends message i, copied or in place. */
static void
send_one(struct weir_conn *c, uint32_t i, size_t length)
{
	uint8_t *m = make_message(i, length);
	void *buf;

	m[length - 1] = 1; /* to be told from 0xee */
	if (i % 3) {
		assert_int_equal(weir_send(c, m, length, 0), 0);
	} else {
		assert_int_equal(weir_send_reserve(c, length, 0, &buf), 0);
		memcpy(buf, m, length);
		assert_int_equal(weir_send_commit(c, buf, length, 0, 0), 0);
	}
	free(m);
}

static void
recv_one(struct weir_conn *c, uint32_t i, size_t length)
{
	uint8_t in[MOST];
	size_t n;

	assert_int_equal(weir_recv(c, in, sizeof(in), &n, 0), 0);
	assert_int_equal(n, length);
	check_message(in, i, length - 1);
}

/* A pair that keeps up uses an eighth of the area and one message, in pauses or without. */
static void
test_few_pages(void **state)
{
	for (uint32_t pause = 0; pause < 12; pause += 3) {
		struct pair p = pair_open(PLANE_LOCAL, NULL, false);
		size_t size, length, n;
		uint8_t *area[2] = {area_marked(&p, 0, &size), area_marked(&p, 1, &size)}, in[1];

		for (uint32_t i = 0; i < 1000; i++) {
			length = 1000 + i * 577 % (MOST - 999);
			send_one(p.c, i, length);
			recv_one(p.d, i, length);
			for (uint32_t k = 0; k < i % 16 * pause; k++)
				assert_int_equal(weir_recv(p.d, in, 1, &n, 0), -EAGAIN);
			if (i % 4)
				continue;
			send_one(p.d, i, length);
			recv_one(p.c, i, length);
		}
		for (int d = 0; d < 2; d++) {
			n = area_used(area[d], size);
			assert_in_range(n, size / 8 + 1, size / 8 + WEIR_ALIGN_UP(MOST, 64));
		}
		pair_close(&p);
	}
}

/* c sends messages from `first` on until there is no room: the number of the first unsent one. */
static uint32_t
send_until_full(struct pair *p, uint32_t first)
{
	uint8_t *m;
	uint32_t i = first;
	int rc = 0;

	for (; !rc; i++) {
		m = make_message(i, MOST);
		rc = weir_send(p->c, m, MOST, 0);
		free(m);
	}
	assert_int_equal(rc, -EAGAIN);
	return i - 1;
}

/* A peer that is one message behind does not begin again, and has room as ever. */
static void
test_room_of_a_late_peer(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	const size_t step = WEIR_ALIGN_UP(MOST, 64);
	uint32_t sent = 0, got = 0;
	size_t size, n;
	uint8_t *area = area_marked(&p, 0, &size), in[MOST];

	send_one(p.c, sent++, MOST);
	for (; sent < 500; got++) {
		send_one(p.c, sent++, MOST);
		recv_one(p.d, got, MOST);
	}
	assert_true(area_used(area, size) > size - step);
	sent = send_until_full(&p, sent);
	/* all but the end, where none fits, and an eighth that is not reported yet */
	assert_true((sent - got + 2) * step + size / 8 > size);
	for (; got < sent; got++) {
		assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
		check_message(in, got, MOST - 1);
	}
	pair_close(&p);
}

/* d takes messages from `first` on until the next one begins again: the number of that. */
static uint32_t
exchange_an_eighth(struct pair *p, uint32_t first, const uint8_t *area, size_t size)
{
	for (; area_used(area, size) < size / 8; first++) {
		send_one(p->c, first, MOST);
		recv_one(p->d, first, MOST);
	}
	return first;
}

/* A peer that has kept up, and stops, leaves room in all of the area. */
static void
test_room_from_the_start(void **state)
{
	for (uint32_t first = 0; first < 2; first++) { /* copied, and in place */
		struct pair p = pair_open(PLANE_LOCAL, NULL, false);
		size_t size;
		uint8_t *area = area_marked(&p, 0, &size);
		uint32_t got = exchange_an_eighth(&p, first, area, size), sent = got;

		send_one(p.c, sent++, MOST);
		sent = send_until_full(&p, sent);
		assert_int_equal(sent - got, size / WEIR_ALIGN_UP(MOST, 64));
		for (; got < sent; got++)
			recv_one(p.d, got, MOST);
		pair_close(&p);
	}
}

/* A loan of the message that begins again leaves the peer the rest of the area. */
static void
test_loan_at_the_start(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	const size_t step = WEIR_ALIGN_UP(MOST, 64);
	struct weir_loan loan[64];
	size_t size;
	uint8_t *area = area_marked(&p, 0, &size);
	uint32_t got = exchange_an_eighth(&p, 0, area, size), sent = got, kept = 0;

	while (sent - got < size / step) {
		send_one(p.c, sent++, MOST);
		assert_int_equal(weir_recv_loan(p.d, &loan[kept++], 0), 0);
	}
	got = sent;
	assert_memory_equal(loan[0].data, area, MOST);
	while (kept) {
		check_message(loan[--kept].data, --got, MOST - 1);
		weir_release(p.b, &loan[kept]);
	}
	pair_close(&p);
}

/* ---- the end of the data plane, forks ---- */

static void
test_data_plane_gone(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_event e[4];
	struct weir_conn *c;
	char buf[8];
	size_t n;

	assert_int_equal(weir_send(p.c, "whole", 5, 0), 0);
	weir_lost(p.a);
	weir_lost(p.b);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, -1), 0);
	assert_int_equal(n, 5);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, -1), -ENODEV);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), -ENODEV);
	assert_int_equal(weir_send(p.c, "x", 1, -1), -ENODEV);
	assert_int_equal(weir_flush(p.c, -1), -ENODEV);
	assert_int_equal(weir_accept(p.l, -1, &c), -ENODEV);
	weir_poll(p.a, e, 4);
	assert_int_equal(weir_poll(p.a, e, 4), -ENODEV);
	assert_int_equal(weir_wait(p.a, e, 4, -1), -ENODEV);
	assert_int_equal(weir_arm(p.a), -ENODEV);
	assert_int_equal(weir_node(p.a), -ENODEV);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

static void
test_fork(void **state)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_event e;
	struct weir_conn *c;
	struct weir_loan loan;
	struct weir_address address;
	char buf[8];
	int status;
	size_t n;
	void *b;
	pid_t child;

	assert_int_equal(weir_send(p.c, "parent", 6, 0), 0);
	weir_address_parse(PLANE_LOCAL, &address);
	child = fork();
	if (!child) {
		bool ok = weir_send(p.c, "x", 1, 0) == -ENOTCONN &&
			  weir_recv(p.d, buf, 8, &n, 0) == -ENOTCONN &&
			  weir_recv_loan(p.d, &loan, -1) == -ENOTCONN &&
			  weir_poll(p.a, &e, 1) == -ENOTCONN && weir_fd(p.a) == -ENOTCONN &&
			  weir_arm(p.a) == -ENOTCONN && weir_flush(p.c, 0) == -ENOTCONN &&
			  weir_connect(p.a, &address, 0, &c) == -ENOTCONN &&
			  weir_accept(p.l, 0, &c) == -ENOTCONN &&
			  weir_send_reserve(p.c, 10, 0, &b) == -ENOTCONN &&
			  weir_conn_bind(p.c) == -ENOTCONN && weir_node(p.a) == -ENOTCONN;

		weir_close(p.c);
		weir_listener_close(p.l);
		weir_detach(p.a);
		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sizes),
	    cmocka_unit_test(test_too_long),
	    cmocka_unit_test(test_flush),
	    cmocka_unit_test(test_counted),
	    cmocka_unit_test(test_small_buffer),
	    cmocka_unit_test(test_full),
	    cmocka_unit_test(test_slow_neighbour),
	    cmocka_unit_test(test_events),
	    cmocka_unit_test(test_large_events),
	    cmocka_unit_test(test_close),
	    cmocka_unit_test(test_close_with_a_rest),
	    cmocka_unit_test(test_buffer_taken_back),
	    cmocka_unit_test(test_peer_dies),
	    cmocka_unit_test(test_peer_dies_in_a_message),
	    cmocka_unit_test(test_late_accept),
	    cmocka_unit_test(test_loans),
	    cmocka_unit_test(test_zero_copy),
	    cmocka_unit_test(test_reservation_is_kept),
	    cmocka_unit_test(test_rest_of_pieces),
	    cmocka_unit_test(test_few_pages),
	    cmocka_unit_test(test_room_of_a_late_peer),
	    cmocka_unit_test(test_room_from_the_start),
	    cmocka_unit_test(test_loan_at_the_start),
	    cmocka_unit_test(test_data_plane_gone),
	    cmocka_unit_test(test_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
