/* SPDX-License-Identifier: BSD-3-Clause */
/* Half a close: this end sends no more and receives, the other end receives the end and sends. */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "stream/conn.h"

#include <sys/wait.h>

static const char *const ways[] = {PLANE_LOCAL, PLANE_REMOTE};

/* A connection begins with a window for some messages. */
static const struct plane_options plane = {.first = 16384};

/* The next event of w, which must be of this type, on this connection. */
static void
event(struct pair *p, struct weir *w, uint32_t type, const struct weir_conn *c, int status)
{
	struct weir_event e = {0};

	/* a send may have waited for a moment */
	for (int i = 0; i < 100 && (weir_poll(w, &e, 1) == 0 ||
				    (e.type == WEIR_EVENT_WRITABLE && e.type != type));
	     i++)
		plane_settle(p->f);
	assert_int_equal(e.type, type);
	assert_ptr_equal(e.conn, c);
	assert_int_equal(e.status, status);
}

static void
quiet(struct pair *p, struct weir *w)
{
	struct weir_event e;

	plane_settle(p->f);
	assert_int_equal(weir_poll(w, &e, 1), 0);
}

static void
send(struct pair *p, struct weir_conn *c, uint32_t seed, size_t length)
{
	uint8_t *m = make_message(seed, length);

	int rc = -EAGAIN;

	for (int i = 0; i < 1000 && rc == -EAGAIN; i++) {
		rc = weir_send(c, m, length, 0);
		if (rc == -EAGAIN)
			plane_settle(p->f);
	}
	assert_int_equal(rc, 0);
	free(m);
}

/* As pair_recv(), also when the other end has been closed. */
static int
receive(struct pair *p, struct weir_conn *c, void *buf, size_t size, size_t *length)
{
	struct weir_conn *other = c == p->c ? p->d : c == p->d ? p->c : NULL;
	struct weir_event e;
	int rc = -EAGAIN;

	if (other)
		return pair_recv(p, c, buf, size, length);
	for (int i = 0; i < 10000 && rc == -EAGAIN; i++) {
		weir_poll(p->a, &e, 0);
		plane_settle(p->f);
		rc = weir_recv(c, buf, size, length, 0);
	}
	return rc;
}

static void
take(struct pair *p, struct weir_conn *c, uint32_t seed, size_t length)
{
	uint8_t *in = malloc(length + 1);
	size_t n = 0;

	assert_int_equal(receive(p, c, in, length, &n), 0);
	assert_int_equal(n, length);
	check_message(in, seed, length);
	free(in);
}

/* No more messages: the end of the stream, as often as it asks, at once. */
static void
end(struct pair *p, struct weir_conn *c)
{
	struct weir_loan loan;
	char buf[8];
	struct iovec many = {buf, 8};
	size_t n;

	assert_int_equal(receive(p, c, buf, sizeof(buf), &n), -ESHUTDOWN);
	assert_int_equal(weir_recv(c, buf, sizeof(buf), &n, -1), -ESHUTDOWN);
	assert_int_equal(weir_recv_loan(c, &loan, -1), -ESHUTDOWN);
	assert_int_equal(weir_peek(c, buf, sizeof(buf), &n, -1), -ESHUTDOWN);
	assert_int_equal(weir_recv_many(c, &many, 1, -1), -ESHUTDOWN);
	assert_non_null(strstr(weir_reason(), "sends no more"));
}

static void
assert_shut(struct weir_conn *c)
{
	struct iovec part = {"x", 1}, parts[2] = {part, part};
	void *buf;

	assert_int_equal(weir_send(c, "x", 1, -1), -EPIPE);
	assert_non_null(strstr(weir_reason(), "weir_shutdown"));
	assert_int_equal(weir_send_notify(c, "x", 1, WEIR_NOTIFY, 3, -1), -EPIPE);
	assert_int_equal(weir_sendv(c, parts, 2, 0, 0, -1), -EPIPE);
	assert_int_equal(weir_send_many(c, parts, 2, -1), -EPIPE);
	assert_int_equal(weir_send_reserve(c, 2000, -1, &buf), -EPIPE);
}

TEST(test_half)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		char buf[8];
		size_t n;

		send(&p, p.c, 1, 20);
		send(&p, p.c, 2, 5000);
		send(&p, p.c, 3, 100000);
		assert_int_equal(weir_shutdown(p.c), 0);
		assert_shut(p.c);
		assert_int_equal(weir_shutdown(p.c), 0); /* again changes nothing */
		take(&p, p.d, 1, 20);
		take(&p, p.d, 2, 5000);
		event(&p, p.b, WEIR_EVENT_READABLE, p.d, 0);
		take(&p, p.d, 3, 100000);
		end(&p, p.d);
		event(&p, p.b, WEIR_EVENT_END, p.d, 0);
		quiet(&p, p.b);
		quiet(&p, p.a);
		assert_int_equal(weir_flush(p.c, 0), 0);
		/* the other way goes on */
		for (uint32_t i = 0; i < 300; i++) {
			send(&p, p.d, i, i * 7919 % 3000);
			take(&p, p.c, i, i * 7919 % 3000);
		}
		send(&p, p.d, 5, 100000);
		take(&p, p.c, 5, 100000);
		assert_int_equal(weir_send_notify(p.d, "last", 4, WEIR_NOTIFY, 55, 0), 0);
		assert_int_equal(weir_shutdown(p.d), 0);
		assert_shut(p.d);
		assert_int_equal(pair_recv(&p, p.c, buf, 8, &n), 0);
		assert_memory_equal(buf, "last", 4);
		end(&p, p.c);
		/* both have ended in order */
		event(&p, p.b, WEIR_EVENT_SENT, p.d, 0);
		event(&p, p.b, WEIR_EVENT_CLOSED, p.d, 0);
		assert_int_equal(weir_flush(p.d, 0), 0);
		assert_shut(p.c);
		assert_shut(p.d);
		assert_int_equal(weir_shutdown(p.c), 0);
		pair_close(&p);
	}
}

/* Both at once, with messages under way: each receives all, and CLOSED. */
TEST(test_both_at_once)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);

		send(&p, p.c, 1, 3000);
		send(&p, p.d, 2, 100000);
		assert_int_equal(weir_shutdown(p.c), 0);
		assert_int_equal(weir_shutdown(p.d), 0);
		take(&p, p.d, 1, 3000);
		take(&p, p.c, 2, 100000);
		end(&p, p.d);
		end(&p, p.c);
		for (int side = 0; side < 2; side++) {
			struct weir *w = side ? p.b : p.a;
			struct weir_event e = {0};

			while (e.type != WEIR_EVENT_CLOSED)
				assert_int_equal(weir_poll(w, &e, 1), 1);
			assert_int_equal(e.status, 0);
			assert_int_equal(weir_poll(w, &e, 1), 0);
		}
		pair_close(&p);
	}
}

/* A thread that waits for room is told that it cannot send any more; what was accepted arrives. */
TEST(test_while_full)
{
	for (unsigned way = 0; way < 2; way++) {
		static const size_t lengths[] = {40, 5000, 32000};

		for (unsigned i = 0; i < 3; i++) {
			struct pair p = pair_open(ways[way], &plane, false);
			uint8_t *m = make_message(7, lengths[i]);
			struct weir_event e;
			uint32_t sent = 0;

			for (int n = 1; n > 0; n = weir_poll(p.a, &e, 1)) {
				for (; weir_send(p.c, m, lengths[i], 0) == 0; sent++)
					assert_true(sent < 100000);
				plane_settle(p.f);
			}
			assert_int_equal(weir_shutdown(p.c), 0);
			event(&p, p.a, WEIR_EVENT_WRITABLE, p.c, 0);
			assert_shut(p.c);
			while (sent--)
				take(&p, p.d, 7, lengths[i]);
			end(&p, p.d);
			pair_pass(&p, p.d, p.c, 5, 2000);
			free(m);
			pair_close(&p);
		}
	}
}

/* The end waits for the rest of a large message, and for room; a sleeping receiver makes some. */
TEST(test_behind_a_rest)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_event e;

	send(&p, p.c, 4, 1 << 20);
	assert_int_equal(weir_shutdown(p.c), 0);
	assert_int_equal(weir_flush(p.c, 0), -EAGAIN);
	assert_true(p.c->end_due);
	while (weir_arm(p.a) == -EAGAIN)
		weir_poll(p.a, &e, 1);
	take(&p, p.d, 4, 1 << 20);
	end(&p, p.d);
	assert_int_equal(weir_flush(p.c, 0), 0);
	pair_pass(&p, p.d, p.c, 5, 2000);
	pair_close(&p);
}

/* An end that waits for room does not count as a message: the messages before it are complete. */
TEST(test_end_is_no_message)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint32_t sent = 0;

	while (weir_send(p.c, "x", 1, 0) == 0)
		sent++;
	assert_int_equal(weir_shutdown(p.c), 0);
	assert_true(p.c->end_due);
	assert_int_equal(weir_flush(p.c, 0), 0);
	/* closing does not wait for it */
	weir_close(p.c);
	p.c = NULL;
	plane_settle(p.f);
	for (; sent; sent--) {
		char buf[1];
		size_t n;

		assert_int_equal(weir_recv(p.d, buf, 1, &n, 0), 0);
	}
	end(&p, p.d);
	event(&p, p.b, WEIR_EVENT_CLOSED, p.d, 0);
	pair_close(&p);
}

TEST(test_then_close)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);

		send(&p, p.c, 1, 3000);
		assert_int_equal(weir_shutdown(p.c), 0);
		weir_close(p.c);
		p.c = NULL;
		plane_settle(p.f);
		event(&p, p.b, WEIR_EVENT_READABLE, p.d, 0);
		take(&p, p.d, 1, 3000);
		end(&p, p.d);
		if (way == 0) /* to another node the end may be said by the close alone */
			event(&p, p.b, WEIR_EVENT_END, p.d, 0);
		for (int i = 0; i < 100 && weir_send(p.d, "x", 1, 0) != -ECONNRESET; i++)
			plane_settle(p.f);
		assert_int_equal(weir_send(p.d, "x", 1, 0), -ECONNRESET);
		assert_int_equal(weir_shutdown(p.d), -ECONNRESET);
		pair_close(&p);
	}
}

/* The peer's stream was whole: that stays so when the peer dies, or its node is lost. */
TEST(test_peer_dies)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);

		send(&p, p.c, 1, 3000);
		assert_int_equal(weir_shutdown(p.c), 0);
		plane_settle(p.f);
		plane_die(p.f, p.a);
		event(&p, p.b, WEIR_EVENT_READABLE, p.d, 0);
		take(&p, p.d, 1, 3000);
		end(&p, p.d);
		event(&p, p.b, WEIR_EVENT_END, p.d, 0);
		event(&p, p.b, WEIR_EVENT_CLOSED, p.d, -ECONNRESET);
		end(&p, p.d);
		assert_int_equal(weir_send(p.d, "x", 1, 0), -ECONNRESET);
		weir_close(p.d);
		weir_lost(p.a); /* it doesn't wait for anything any more */
		weir_detach(p.a);
		weir_detach(p.b);
		plane_destroy(p.f);
	}
}

TEST(test_datagrams)
{
	for (unsigned way = 0; way < 2; way++) {
		struct weir_connect_options o = {.size = sizeof(o), .flags = WEIR_UD};
		struct pair p = pair_open(ways[way], &plane, false);
		struct weir_conn *c = pair_connect_with(&p, ways[way], &o), *d = pair_accept(&p);
		struct weir_event e;

		send(&p, c, 1, 500);
		plane_settle(p.f);
		assert_int_equal(weir_shutdown(c), 0);
		assert_shut(c);
		take(&p, d, 1, 500);
		end(&p, d);
		send(&p, d, 2, 600);
		take(&p, c, 2, 600);
		assert_int_equal(weir_shutdown(d), 0);
		end(&p, c);
		for (e.type = 0; e.type != WEIR_EVENT_CLOSED;)
			assert_int_equal(weir_poll(p.b, &e, 1), 1);
		assert_int_equal(e.status, 0);
		weir_close(c);
		weir_close(d);
		pair_close(&p);
	}
}

/* Before it is open there is nothing to shut; then before it is accepted. */
TEST(test_early)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		struct weir_address address;
		struct weir_conn *c, *d;
		struct weir_event e = {0};

		assert_int_equal(weir_address_parse(ways[way], &address), 0);
		assert_int_equal(weir_connect(p.a, &address, 0, &c), 0);
		assert_int_equal(weir_shutdown(c), -EAGAIN);
		while (e.type != WEIR_EVENT_OPENED) {
			plane_settle(p.f);
			weir_poll(p.a, &e, 1);
		}
		send(&p, c, 1, 300);
		assert_int_equal(weir_shutdown(c), 0);
		plane_settle(p.f);
		weir_poll(p.b, &e, 1);
		assert_int_equal(e.type, WEIR_EVENT_ACCEPT);
		d = pair_accept(&p);
		take(&p, d, 1, 300);
		end(&p, d);
		pair_pass(&p, d, c, 2, 20000);
		weir_close(c);
		weir_close(d);
		pair_close(&p);
	}
}

/* The accepting end sends, and shuts, before the connecting program hears that it is open. */
TEST(test_before_opened)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		struct weir_address address;
		struct weir_conn *c, *d = NULL;
		struct weir_event e = {0};

		assert_int_equal(weir_address_parse(ways[way], &address), 0);
		assert_int_equal(weir_connect(p.a, &address, 0, &c), 0);
		for (int i = 0; i < 1000 && !d; i++) {
			plane_turn(p.f);
			if (weir_accept(p.l, 0, &d))
				d = NULL;
		}
		assert_non_null(d);
		send(&p, d, 1, 300);
		assert_int_equal(weir_shutdown(d), 0);
		weir_poll(p.a, &e, 1);
		while (e.type != WEIR_EVENT_OPENED) {
			plane_settle(p.f);
			weir_poll(p.a, &e, 1);
		}
		take(&p, c, 1, 300);
		end(&p, c);
		pair_pass(&p, c, d, 2, 20000);
		weir_close(c);
		weir_close(d);
		pair_close(&p);
	}
}

/* weir_connect() may find the connection half open already. */
TEST(test_connects_to_an_end)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		struct weir_conn *c = pair_connect(&p, ways[way]), *d = pair_accept(&p);

		assert_int_equal(weir_shutdown(d), 0);
		end(&p, c);
		assert_int_equal(c->state, CONN_HALF);
		assert_int_equal(weir_conn_peer(c, NULL, NULL), 0);
		assert_int_equal(weir_flush(c, 0), 0);
		weir_close(c);
		weir_close(d);
		pair_close(&p);
	}
}

TEST(test_data_plane_gone)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p =
		    pair_open(ways[way], &(struct plane_options){.watched = true}, false);
		char buf[8];
		size_t n;

		assert_int_equal(weir_send(p.c, "last", 4, 0), 0);
		assert_int_equal(weir_shutdown(p.c), 0);
		plane_settle(p.f);
		plane_kill(p.f);
		assert_int_equal(weir_recv(p.d, buf, 8, &n, PATIENT), 0);
		assert_memory_equal(buf, "last", 4);
		assert_int_equal(weir_recv(p.d, buf, 8, &n, PATIENT), -ESHUTDOWN);
		assert_int_equal(weir_recv(p.c, buf, 8, &n, PATIENT), -ENODEV);
		assert_int_equal(weir_shutdown(p.c), -ENODEV);
		while (weir_state(p.b) == WEIR_UP) /* its watcher may be later */
			usleep(1000);
		assert_int_equal(weir_shutdown(p.d), -ENODEV);
		weir_close(p.c);
		weir_close(p.d);
		weir_detach(p.a);
		weir_detach(p.b);
		plane_destroy(p.f);
	}
}

TEST(test_fork)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct iovec part = {"x", 1};
	int status = 1;
	pid_t child;
	char buf[8];
	size_t n;

	child = fork();
	if (!child)
		_exit(weir_shutdown(p.c) == -ENOTCONN &&
			      weir_peek(p.d, buf, 8, &n, -1) == -ENOTCONN &&
			      weir_recvv(p.d, &part, 1, &n, -1) == -ENOTCONN &&
			      weir_sendv(p.c, &part, 1, 0, 0, -1) == -ENOTCONN
			  ? 0
			  : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pair_pass(&p, p.c, p.d, 1, 100);
	pair_close(&p);
}

/* ---- a local peer that lies ---- */

enum lie { END_TWICE, MESSAGE_AFTER, LONG_END, END_IN_MESSAGE, LIES };

TEST(test_hostile_peer)
{
	for (enum lie lie = 0; lie < LIES; lie++) {
		struct pair p = pair_open(PLANE_LOCAL, NULL, false);
		struct weir_segment_geometry g;
		uint8_t *base = plane_segment(p.f, &g), *m = make_message(1, g.area_bytes);
		const size_t length = g.area_bytes;
		struct weir_slot *s =
		    (struct weir_slot *)(void *)(base + weir_segment_ring_at(&g, 0));
		struct weir_event e = {0};
		size_t n;

		assert_int_equal(weir_send(p.c, m, lie == END_IN_MESSAGE ? length : 0, 0), 0);
		if (lie != END_IN_MESSAGE)
			assert_int_equal(weir_send(p.c, m, 0, 0), 0);
		if (lie != END_IN_MESSAGE)
			s[0].op = WEIR_OP_END;
		if (lie == LONG_END)
			s[0].length = 1;
		if (lie == END_TWICE)
			s[1].op = WEIR_OP_END;
		if (lie == END_IN_MESSAGE) {
			s[1].op = WEIR_OP_END;
			s[1].length = 0;
		}
		for (int i = 0; i < 10 && e.type != WEIR_EVENT_CLOSED; i++)
			weir_poll(p.b, &e, 1);
		assert_int_equal(e.type, WEIR_EVENT_CLOSED);
		assert_int_equal(e.status, -EPROTO);
		assert_int_equal(weir_send(p.d, m, 1, 0), -EPROTO);
		/* what came before the end in order is received */
		assert_int_equal(weir_recv(p.d, m, length, &n, 0),
				 lie == END_TWICE || lie == MESSAGE_AFTER ? -ESHUTDOWN : -EPROTO);
		free(m);
		pair_close(&p);
	}
}

/* The window opens behind weir_close(), though CLOSE has not been taken: it may wait behind
 * messages to a program that is waiting to send. */
TEST(test_close_unread)
{
	for (int queued = 0; queued < 2; queued++) {
		struct pair p = pair_open(PLANE_REMOTE, &plane, false);
		struct weir_conn *d = p.d;
		struct weir_event e;

		for (int i = 0; i < 150; i++) /* more than half of the window */
			assert_int_equal(weir_send(p.c, "unread", 6, 0), 0);
		plane_settle(p.f);
		if (queued) /* else they are in the ring */
			assert_int_equal(weir_poll(p.b, &e, 1), 1);
		weir_close(d);
		for (int i = 0; i < 1000; i++)
			weir_poll(p.b, &e, 1);
		/* it is there until the data plane has taken CLOSE */
		assert_int_equal(d->consumed, p.c->spent);
		assert_int_equal(d->returned, d->consumed);
		p.d = NULL;
		pair_close(&p);
	}
}
