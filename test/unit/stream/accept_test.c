/* SPDX-License-Identifier: BSD-3-Clause */
/* Whom a connection is with, deciding whether it opens, and the window that either end asks for. */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "stream/conn.h"
#include "stream/partial_send.h"

#include <pthread.h>

static const struct plane_options users = {.users = true};

/* Two programs with a listener of the second; no connection yet. */
static struct pair
strangers(const char *address, uint32_t flags)
{
	struct weir_listen_options o = {.size = sizeof(o), .flags = flags};
	struct weir_options client = {.size = sizeof(client), .name = "client\n"};
	struct pair p = {.f = plane_create(&users)};

	p.a = plane_attach_with(p.f, &client);
	p.b = plane_attach_at(p.f, !strcmp(address, PLANE_REMOTE));
	assert_int_equal(weir_listen_with(p.b, "svc", &o, &p.l), 0);
	return p;
}

/* Begins to connect. */
static struct weir_conn *
knock(struct pair *p, const char *text)
{
	struct weir_address address;
	struct weir_conn *c;
	struct weir_event e;

	assert_int_equal(weir_address_parse(text, &address), 0);
	assert_int_equal(weir_connect(p->a, &address, 0, &c), 0);
	plane_settle(p->f);
	assert_int_equal(weir_poll(p->a, &e, 1), 0);
	return c;
}

static void
expect(struct pair *p, struct weir *w, struct weir_conn *c, uint32_t type, int status)
{
	struct weir_event e = {0};

	plane_settle(p->f);
	assert_int_equal(weir_poll(w, &e, 1), 1);
	assert_int_equal(e.type, type);
	assert_int_equal(e.status, status);
	assert_ptr_equal(e.conn, c);
}

static struct weir_conn *
take_held(struct pair *p)
{
	struct weir_accept_options o = WEIR_ACCEPT_OPTIONS_INIT;
	struct weir_conn *d;

	o.flags = WEIR_ACCEPT_HOLD;
	assert_int_equal(weir_accept_with(p->l, &o, 0, &d), 0);
	return d;
}

static struct weir_conn_info
info_of(struct weir_conn *c)
{
	struct weir_conn_info i = WEIR_CONN_INFO_INIT;

	memset((char *)&i + sizeof(i.size), 0xa5, sizeof(i) - sizeof(i.size));
	assert_int_equal(weir_conn_info(c, &i), 0);
	assert_int_equal(i.size, sizeof(i));
	return i;
}

static void
ends_with_reason(struct weir_conn *c, const char *text)
{
	char in[8];
	size_t n;

	assert_int_equal(weir_recv(c, in, sizeof(in), &n, 0), -ECONNREFUSED);
	assert_true(strlen(weir_reason()) >= strlen(text));
	assert_string_equal(weir_reason() + strlen(weir_reason()) - strlen(text), text);
	assert_int_equal(weir_send(c, in, 1, 0), -ECONNREFUSED);
}

/* ---- weir_conn_info() ---- */

static const char *const places[] = {PLANE_LOCAL, PLANE_REMOTE};

static void
expect_passed(const struct weir_conn_info *from, const struct weir_conn_info *to, uint64_t messages,
	      uint64_t bytes)
{
	assert_int_equal(from->sent_messages, messages);
	assert_int_equal(from->sent_bytes, bytes);
	assert_int_equal(to->recv_messages, messages);
	assert_int_equal(to->recv_bytes, bytes);
}

TEST(test_info_counts)
{
	static const size_t sizes[] = {0, 1, 48, 49, 900, 8192, 20000};

	for (unsigned i = 0; i < 2; i++) {
		struct pair p = pair_open(places[i], &users, false);
		uint64_t bytes = 0, n = 0;
		struct weir_conn_info c, d;

		for (unsigned k = 0; k < 7; k++, n++) {
			pair_pass(&p, p.c, p.d, k, sizes[k]);
			bytes += sizes[k];
		}
		pair_pass(&p, p.d, p.c, 9, 100000);
		c = info_of(p.c);
		d = info_of(p.d);
		expect_passed(&c, &d, n, bytes);
		expect_passed(&d, &c, 1, 100000);
		assert_int_equal(c.mtu, WEIR_STREAM_MESSAGE_MAX);
		assert_true(c.send_window && c.send_window == d.recv_window);
		assert_true(d.send_window && d.send_window == c.recv_window);
		assert_int_equal(c.undecided, 0);
		assert_int_equal(c.send_status, 0);
		assert_int_equal(c.recv_status, 0);
		pair_close(&p);
	}
}

/* Messages of several per call, which share slots, count by their payload too. */
TEST(test_info_counts_many)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p =
		    pair_open(places[i], &(struct plane_options){.first = 32768}, false);
		uint64_t bytes = 0, n = 0;
		uint8_t in[16][64], out[64] = {0};
		struct iovec to[16], from[16];
		struct weir_conn_info c, d;

		for (unsigned turn = 0; turn < 6; turn++) {
			int got = 0, rc = 0;

			for (unsigned k = 0; k < 16; k++) {
				to[k] = (struct iovec){out, k * 4};
				bytes += k * 4;
			}
			n += 16;
			assert_int_equal(weir_send_many(p.c, to, 16, 0), 16);
			for (unsigned wait = 0; got < 16 && wait < 1000; wait++) {
				plane_settle(p.f);
				for (unsigned k = 0; k < 16; k++)
					from[k] = (struct iovec){in[k], sizeof(in[k])};
				rc = weir_recv_many(p.d, from, 16, 0);
				got += rc > 0 ? rc : 0;
			}
			assert_int_equal(got, 16);
		}
		c = info_of(p.c);
		d = info_of(p.d);
		expect_passed(&c, &d, n, bytes);
		pair_close(&p);
	}
}

/* Credentials are those of the attached program, by side, also when it has gone. */
TEST(test_info_local_peer)
{
	struct pair p = strangers(PLANE_LOCAL, 0);
	struct weir_conn_info i;

	p.c = pair_connect(&p, PLANE_LOCAL);
	p.d = pair_accept(&p);
	i = info_of(p.c);
	assert_int_equal(i.local, 1);
	assert_int_equal(i.uid, 1001);
	assert_int_equal(i.pid, getpid());
	assert_true(*i.program);
	assert_int_equal(i.here.kind, WEIR_ADDRESS_IPV4);
	assert_memory_equal(&i.here, &i.there, sizeof(i.here));
	i = info_of(p.d);
	assert_int_equal(i.uid, 1000);
	assert_string_equal(i.program, "client?");
	assert_int_equal(i.node, weir_node(p.b));
	plane_die(p.f, p.a);
	plane_settle(p.f);
	expect(&p, p.b, p.d, WEIR_EVENT_CLOSED, -ECONNRESET);
	i = info_of(p.d);
	assert_int_equal(i.uid, 1000);
	assert_int_equal(i.pid, getpid());
	assert_string_equal(i.program, "client?");
	assert_int_equal(i.recv_status, -ECONNRESET);
	assert_int_equal(i.send_status, -ECONNRESET);
	weir_close(p.d);
	weir_listener_close(p.l);
	weir_detach(p.b);
	weir_detach(p.a);
	plane_destroy(p.f);
}

TEST(test_info_remote_peer)
{
	struct pair p = pair_open(PLANE_REMOTE, &users, false);
	struct weir_conn_info c = info_of(p.c), d = info_of(p.d);

	assert_int_equal(c.local, 0);
	assert_int_equal(c.node, 1);
	assert_int_equal(d.node, 0);
	assert_int_equal(c.pid, 0);
	assert_int_equal(c.uid, UINT32_MAX);
	assert_string_equal(c.program, "");
	assert_int_equal(c.here.kind, WEIR_ADDRESS_IPV4);
	assert_memory_equal(&c.here, &d.there, sizeof(c.here));
	assert_memory_equal(&c.there, &d.here, sizeof(c.here));
	assert_memory_not_equal(&c.here, &c.there, sizeof(c.here));
	weir_close(p.c);
	p.c = NULL;
	plane_settle(p.f);
	expect(&p, p.b, p.d, WEIR_EVENT_CLOSED, 0);
	assert_int_equal(info_of(p.d).recv_status, -ESHUTDOWN);
	pair_close(&p);
}

/* By the data plane's clock, 10 us per turn here, at both ends. */
TEST(test_info_age)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = pair_open(places[i], NULL, false);
		uint64_t c = info_of(p.c).age_ms, d = info_of(p.d).age_ms;

		assert_in_range(c, 0, 10);
		assert_in_range(d, 0, c);
		for (unsigned turn = 0; turn < 5000; turn++)
			plane_turn(p.f);
		assert_in_range(info_of(p.c).age_ms - c, 50, 51);
		assert_in_range(info_of(p.d).age_ms - d, 50, 51);
		pair_close(&p);
	}
}

/* A message received into parts counts as any other. */
TEST(test_info_parts)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = pair_open(places[i], &users, false);
		char a[400], b[700];
		struct iovec parts[] = {{a, sizeof(a)}, {b, sizeof(b)}};
		struct weir_conn_info d;
		size_t n;

		memset(a, 1, sizeof(a));
		memset(b, 2, sizeof(b));
		assert_int_equal(weir_sendv(p.c, parts, 2, 0, 0, 0), 0);
		plane_settle(p.f);
		assert_int_equal(weir_recvv(p.d, parts, 2, &n, 0), 0);
		assert_int_equal(info_of(p.c).sent_bytes, 1100);
		d = info_of(p.d);
		assert_int_equal(d.recv_messages, 1);
		assert_int_equal(d.recv_bytes, 1100);
		pair_close(&p);
	}
}

/* The peer sends no more, and receives. */
TEST(test_info_half_closed)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = pair_open(places[i], &users, false);

		assert_int_equal(info_of(p.d).recv_status, 0);
		assert_int_equal(weir_shutdown(p.c), 0);
		expect(&p, p.b, p.d, WEIR_EVENT_END, 0);
		assert_int_equal(info_of(p.d).recv_status, -ESHUTDOWN);
		assert_int_equal(info_of(p.d).send_status, 0);
		assert_int_equal(info_of(p.c).send_status, -EPIPE);
		assert_int_equal(info_of(p.c).recv_status, 0);
		pair_close(&p);
	}
}

/* A structure of another release: shorter, longer, not initialized. */
TEST(test_info_sizes)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct {
		struct weir_conn_info i;
		uint64_t later[2];
	} longer = {.i = WEIR_CONN_INFO_INIT, .later = {1, 1}};
	struct weir_conn_info i = {.size = offsetof(struct weir_conn_info, uid), .uid = 77};

	assert_int_equal(weir_conn_info(p.c, &i), 0);
	assert_int_equal(i.local, 1);
	assert_int_equal(i.uid, 77);
	longer.i.size = sizeof(longer);
	assert_int_equal(weir_conn_info(p.c, &longer.i), 0);
	assert_int_equal(longer.i.local, 1);
	assert_int_equal(longer.later[1], 0);
	i.size = 0;
	assert_int_equal(weir_conn_info(p.c, &i), -EINVAL);
	assert_int_equal(weir_conn_info(p.c, NULL), -EINVAL);
	pair_close(&p);
}

/* ---- held connections ---- */

/* weir_accept() opens it, not before. */
TEST(test_held)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = strangers(places[i], WEIR_LISTEN_HOLD);
		struct weir_conn_info info = WEIR_CONN_INFO_INIT;
		struct weir_event e;

		p.c = knock(&p, places[i]);
		assert_int_equal(weir_send(p.c, "x", 1, 0), -EAGAIN);
		assert_int_equal(weir_conn_info(p.c, &info), -EAGAIN);
		assert_int_equal(weir_poll(p.b, &e, 1), 1);
		assert_int_equal(e.type, WEIR_EVENT_ACCEPT);
		p.d = pair_accept(&p);
		/* the accepting program may send first */
		assert_int_equal(weir_send(p.d, "first", 5, 0), 0);
		expect(&p, p.a, p.c, WEIR_EVENT_OPENED, 0);
		expect(&p, p.a, p.c, WEIR_EVENT_READABLE, 0);
		assert_int_equal(weir_recv(p.c, &e, sizeof(e), &(size_t){0}, 0), 0);
		pair_pass(&p, p.c, p.d, 1, 5000);
		pair_pass(&p, p.d, p.c, 2, 20000);
		assert_int_equal(weir_poll(p.b, &e, 1), 0); /* no OPENED: the call has said so */
		pair_close(&p);
	}
}

TEST(test_look_then_admit)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = strangers(places[i], WEIR_LISTEN_HOLD);
		struct weir_conn_info info;

		p.c = knock(&p, places[i]);
		p.d = take_held(&p);
		info = info_of(p.d);
		assert_int_equal(info.undecided, 1);
		assert_int_equal(info.uid, i ? UINT32_MAX : 1000);
		assert_int_equal(info.node, weir_node(p.a));
		assert_int_equal(info.send_status, -EAGAIN);
		assert_int_equal(info.recv_status, -EAGAIN);
		assert_int_equal(weir_send(p.d, "x", 1, 0), -EAGAIN);
		plane_settle(p.f);
		assert_int_equal(weir_send(p.c, "x", 1, 0), -EAGAIN);
		assert_int_equal(weir_admit(p.d, NULL), 0);
		assert_int_equal(info_of(p.d).undecided, 0);
		assert_int_equal(weir_admit(p.d, NULL), -EISCONN);
		assert_int_equal(weir_refuse(p.d, NULL), -EISCONN);
		expect(&p, p.a, p.c, WEIR_EVENT_OPENED, 0);
		pair_pass(&p, p.c, p.d, 1, 5000);
		pair_close(&p);
	}
}

TEST(test_refuse)
{
	static const char text[] =
	    "geschlo\u00dfen: not before 18:00 on any day but the seventh; "
	    "the others are listed at https://example.org/hours, and by \u260e 12-345";
	static const char cut[] = "0123456789012345678901234567890123456789012345678901234567890123"
				  "01234567890123456789012345678901234567890123456789012345678901";
	static const char *const shorter[] = {"x", "not before 18:00; see example.org/x",
					      "not before 18:00; see example.org/xy"};
	char longer[256];

	for (unsigned i = 0; i < 2; i++) {
		struct pair p = strangers(places[i], WEIR_LISTEN_HOLD);
		struct weir_event e;

		assert_int_equal(sizeof(text), WEIR_REFUSAL_TEXT_MAX);
		p.c = knock(&p, places[i]);
		p.d = take_held(&p);
		assert_int_equal(weir_refuse(p.d, text), 0);
		expect(&p, p.a, p.c, WEIR_EVENT_CLOSED, -ECONNREFUSED);
		ends_with_reason(p.c, text);
		weir_close(p.c);
		/* too long: cut before the character that does not fit */
		p.c = knock(&p, places[i]);
		snprintf(longer, sizeof(longer), "%s\u20ac and more", cut);
		assert_int_equal(weir_refuse(take_held(&p), longer), 0);
		expect(&p, p.a, p.c, WEIR_EVENT_CLOSED, -ECONNREFUSED);
		ends_with_reason(p.c, cut);
		weir_close(p.c);
		for (unsigned k = 0; k < sizeof(shorter) / sizeof(shorter[0]); k++) {
			p.c = knock(&p, places[i]);
			assert_int_equal(weir_refuse(take_held(&p), shorter[k]), 0);
			expect(&p, p.a, p.c, WEIR_EVENT_CLOSED, -ECONNREFUSED);
			ends_with_reason(p.c, shorter[k]);
			weir_close(p.c);
		}
		/* bytes that could steer a terminal */
		p.c = knock(&p, places[i]);
		assert_int_equal(weir_refuse(take_held(&p), "\033[2Jx\n\xff"), 0);
		expect(&p, p.a, p.c, WEIR_EVENT_CLOSED, -ECONNREFUSED);
		ends_with_reason(p.c, "?[2Jx??");
		weir_close(p.c);
		/* no reason, and not that of the one before */
		p.c = knock(&p, places[i]);
		assert_int_equal(weir_refuse(take_held(&p), NULL), 0);
		expect(&p, p.a, p.c, WEIR_EVENT_CLOSED, -ECONNREFUSED);
		ends_with_reason(p.c, "");
		assert_null(strchr(weir_reason(), '?'));
		plane_settle(p.f);
		assert_int_equal(weir_poll(p.b, &e, 1), 0);
		p.d = NULL;
		pair_close(&p);
	}
}

/* A program that writes END before it may, and goes, keeps no connection from ending. */
TEST(test_end_before_open)
{
	struct pair p = strangers(PLANE_LOCAL, WEIR_LISTEN_HOLD);

	p.c = knock(&p, PLANE_LOCAL);
	p.d = take_held(&p);
	weir_lock(p.c->worker);
	p.c->shut = true;
	weir_partial_end(p.c);
	weir_unlock(p.c->worker);
	weir_close(p.c);
	p.c = NULL;
	expect(&p, p.b, p.d, WEIR_EVENT_CLOSED, 0);
	pair_close(&p);
}

/* Closing it, the listener or the program refuses as well. */
TEST(test_refused_by_close)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned how = 0; how < 4; how++) {
			struct pair p = strangers(places[i], WEIR_LISTEN_HOLD);
			bool gone = how == 2;

			p.c = knock(&p, places[i]);
			if (how == 0)
				weir_close(take_held(&p));
			else if (how == 1)
				weir_listener_close(p.l);
			else if (gone)
				plane_die(p.f, p.b);
			else
				weir_listener_close((take_held(&p), p.l)); /* the taken one stays */
			if (how == 3) {
				struct weir_event e;

				plane_settle(p.f);
				assert_int_equal(weir_poll(p.a, &e, 1), 0);
				plane_run(p.f);
				weir_detach(p.b); /* and goes with its program */
				plane_stop(p.f);
				gone = true;
			}
			expect(&p, p.a, p.c, WEIR_EVENT_CLOSED, -ECONNREFUSED);
			ends_with_reason(p.c, "");
			weir_close(p.c);
			if (how == 0)
				weir_listener_close(p.l);
			plane_settle(p.f);
			assert_int_equal(plane_open_ends(p.f), 0);
			if (how != 3)
				weir_detach(p.b);
			weir_detach(p.a);
			plane_destroy(p.f);
		}
}

/* The connecting program does not wait for the decision. */
TEST(test_given_up)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned died = 0; died < 2; died++)
			for (unsigned refuses = 0; refuses < 2; refuses++) {
				struct pair p = strangers(places[i], WEIR_LISTEN_HOLD);
				char in[8];
				size_t n;
				int rc;

				p.c = knock(&p, places[i]);
				p.d = take_held(&p);
				if (died)
					plane_die(p.f, p.a);
				else
					weir_close(p.c);
				plane_settle(p.f);
				if (refuses) {
					assert_int_equal(weir_refuse(p.d, "late"), 0);
				} else {
					/* a remote one is told when it has opened */
					rc = weir_admit(p.d, NULL);
					plane_settle(p.f);
					if (!rc)
						rc = weir_recv(p.d, in, sizeof(in), &n, 0);
					assert_true(rc == -ECONNRESET || rc == -ESHUTDOWN);
					assert_true(*weir_reason());
					weir_close(p.d);
				}
				weir_listener_close(p.l);
				plane_settle(p.f);
				assert_int_equal(plane_open_ends(p.f), 0);
				weir_detach(p.b);
				weir_detach(p.a);
				plane_destroy(p.f);
			}
}

TEST(test_bad_options)
{
	struct weir_accept_options o = WEIR_ACCEPT_OPTIONS_INIT;
	struct pair p = strangers(PLANE_LOCAL, 0);

	o.flags = WEIR_ACCEPT_HOLD; /* the listener holds none */
	assert_int_equal(weir_accept_with(p.l, &o, 0, &p.d), -EINVAL);
	o.flags = 0x80;
	assert_int_equal(weir_accept_with(p.l, &o, 0, &p.d), -EINVAL);
	o = (struct weir_accept_options){.size = sizeof(o), .window = WEIR_WINDOW_MIN - 1};
	assert_int_equal(weir_accept_with(p.l, &o, 0, &p.d), -EINVAL);
	o = (struct weir_accept_options){0};
	assert_int_equal(weir_accept_with(p.l, &o, 0, &p.d), -EINVAL);
	p.d = NULL;
	pair_close(&p);
}

/* ---- blocking calls ---- */

struct caller {
	struct weir *w;
	const char *address;
	int rc;
	char reason[200];
};

static void *
call(void *user)
{
	struct caller *k = user;
	struct weir_address address;
	struct weir_conn *c;

	assert_int_equal(weir_address_parse(k->address, &address), 0);
	k->rc = weir_connect(k->w, &address, PATIENT, &c);
	snprintf(k->reason, sizeof(k->reason), "%s", weir_reason());
	return NULL;
}

/* weir_connect() itself fails, and its thread reads the reason. */
TEST(test_connect_refused)
{
	for (unsigned i = 0; i < 2; i++) {
		struct weir_accept_options o = WEIR_ACCEPT_OPTIONS_INIT;
		struct pair p = strangers(places[i], WEIR_LISTEN_HOLD);
		struct caller k = {.w = p.a, .address = places[i]};
		pthread_t thread;

		o.flags = WEIR_ACCEPT_HOLD;
		plane_run(p.f);
		assert_int_equal(pthread_create(&thread, NULL, call, &k), 0);
		assert_int_equal(weir_accept_with(p.l, &o, PATIENT, &p.d), 0);
		assert_int_equal(weir_refuse(p.d, "closed today"), 0);
		pthread_join(thread, NULL);
		plane_stop(p.f);
		assert_int_equal(k.rc, -ECONNREFUSED);
		assert_non_null(strstr(k.reason, "closed today"));
		p.d = NULL;
		pair_close(&p);
	}
}

/* ---- windows ---- */

/* Messages of one slot accepted until -EAGAIN, while nobody receives. */
static unsigned
fill(struct pair *p, struct weir_conn *c)
{
	unsigned n = 0;
	int rc;

	while (!(rc = weir_send(c, "x", 1, 0)) && n < 100000) {
		n++;
		if (n % 64 == 0)
			plane_settle(p->f);
	}
	assert_int_equal(rc, -EAGAIN);
	return n;
}

enum { RESERVES = 5, WAYS };

/* One of the ways to send that take a timeout, with 0. */
static int
send_by(struct weir_conn *c, unsigned way)
{
	static char text[400];
	struct iovec v = {text, sizeof(text)};
	void *memory;
	int rc;

	switch (way) {
	case 0:
		return weir_send(c, text, 1, 0);
	case 1:
		return weir_send(c, text, sizeof(text), 0);
	case 2:
		return weir_send_notify(c, text, 1, WEIR_NOTIFY, 7, 0);
	case 3:
		return weir_sendv(c, &v, 1, 0, 0, 0);
	case 4:
		rc = weir_send_many(c, &v, 1, 0);
		return rc == 1 ? 0 : rc;
	}
	rc = weir_send_reserve(c, sizeof(text), 0, &memory);
	if (!rc)
		weir_send_abandon(c, memory);
	return rc;
}

/* A program that only sends, and never waits, hears whether its connection opens. */
TEST(test_only_sends)
{
	for (unsigned i = 0; i < 2 * WAYS * 2; i++) {
		struct pair p = strangers(places[i % 2], WEIR_LISTEN_HOLD);
		struct weir_address address;
		unsigned way = i / 2 % WAYS;
		bool refuses = i < 2 * WAYS;

		assert_int_equal(weir_address_parse(places[i % 2], &address), 0);
		assert_int_equal(weir_connect(p.a, &address, 0, &p.c), 0);
		assert_int_equal(send_by(p.c, way), -EAGAIN);
		plane_settle(p.f);
		assert_int_equal(send_by(p.c, way), -EAGAIN);
		p.d = take_held(&p);
		if (refuses)
			assert_int_equal(weir_refuse(p.d, "full"), 0);
		else
			assert_int_equal(weir_admit(p.d, NULL), 0);
		plane_settle(p.f);
		assert_int_equal(send_by(p.c, way), refuses ? -ECONNREFUSED : 0);
		if (refuses)
			p.d = NULL;
		pair_close(&p);
	}
}

/* Nor does it miss that the other end has closed, and leaves no room. */
TEST(test_only_sends_to_closed)
{
	for (unsigned i = 0; i < 2 * RESERVES; i++) {
		struct pair p = pair_open(places[i % 2], &users, false);
		unsigned n = 0;
		int rc;

		fill(&p, p.c);
		weir_close(p.d);
		p.d = NULL;
		plane_settle(p.f);
		while (!(rc = send_by(p.c, i / 2)) && n++ < 100000)
			;
		assert_int_equal(rc, -ECONNRESET);
		pair_close(&p);
	}
}

static void
drain(struct pair *p, struct weir_conn *c, unsigned n)
{
	char in[8];
	size_t length;

	while (n--)
		assert_int_equal(pair_recv(p, c, in, sizeof(in), &length), 0);
	for (n = 0; n < 100; n++) /* a pause: all consumption is reported */
		assert_int_equal(weir_recv(c, in, sizeof(in), &length, 0), -EAGAIN);
}

TEST(test_window_local)
{
	struct weir_connect_options o = {.size = sizeof(o), .window = WEIR_WINDOW_MIN};
	struct weir_accept_options a = WEIR_ACCEPT_OPTIONS_INIT;

	for (uint32_t held = 0; held < 2; held++) {
		struct pair p = strangers(PLANE_LOCAL, held ? WEIR_LISTEN_HOLD : 0);

		struct weir_address address;

		assert_int_equal(weir_address_parse(PLANE_LOCAL, &address), 0);
		assert_int_equal(weir_connect_with(p.a, &address, &o, 0, &p.c), 0);
		plane_settle(p.f);
		a.window = held ? 2 * WEIR_WINDOW_MIN : 0;
		assert_int_equal(weir_accept_with(p.l, &a, 0, &p.d), 0);
		expect(&p, p.a, p.c, WEIR_EVENT_OPENED, 0);
		assert_int_equal(info_of(p.c).send_window, (1 + held) * WEIR_WINDOW_MIN);
		assert_int_equal(info_of(p.c).recv_window, WEIR_WINDOW_MIN);
		assert_int_equal(info_of(p.d).send_window, WEIR_WINDOW_MIN);
		assert_int_equal(info_of(p.d).recv_window, (1 + held) * WEIR_WINDOW_MIN);
		for (unsigned round = 0; round < 3; round++) {
			assert_int_equal(fill(&p, p.c), (1 + held) * WEIR_WINDOW_MIN / 64);
			assert_int_equal(fill(&p, p.d), WEIR_WINDOW_MIN / 64);
			drain(&p, p.d, (1 + held) * WEIR_WINDOW_MIN / 64);
			drain(&p, p.c, WEIR_WINDOW_MIN / 64);
		}
		/* larger messages go one by one */
		pair_pass(&p, p.c, p.d, 1, 100000);
		pair_pass(&p, p.d, p.c, 2, 100000);
		pair_close(&p);
	}
}

/* Another program's wish alone does not make a program hold more than the default. */
TEST(test_window_local_large)
{
	struct weir_connect_options o = {.size = sizeof(o), .window = 64u << 20};
	struct weir_accept_options a = WEIR_ACCEPT_OPTIONS_INIT;
	struct pair p = strangers(PLANE_LOCAL, 0);
	struct weir_conn_info c;

	p.c = pair_connect_with(&p, PLANE_LOCAL, &o);
	p.d = pair_accept(&p);
	c = info_of(p.c);
	assert_int_equal(c.recv_window, 64u << 20);
	assert_int_equal(c.send_window, 2u << 20);
	assert_int_equal(info_of(p.d).recv_window, 2u << 20);
	weir_close(p.c);
	weir_close(p.d);
	p.c = pair_connect_with(&p, PLANE_LOCAL, &o);
	a.window = 4u << 20;
	assert_int_equal(weir_accept_with(p.l, &a, 0, &p.d), 0);
	assert_int_equal(info_of(p.c).send_window, 4u << 20);
	pair_close(&p);
}

/* Grants grow with traffic: up to the window of the connecting end, or that of the accepting one.
 */
TEST(test_window_remote)
{
	unsigned taken[3];

	for (unsigned i = 0; i < 3; i++) {
		struct weir_connect_options o = {.size = sizeof(o),
						 .window = i ? WEIR_WINDOW_MIN : 0};
		struct weir_accept_options a = WEIR_ACCEPT_OPTIONS_INIT;
		struct pair p = strangers(PLANE_REMOTE, i == 2 ? WEIR_LISTEN_HOLD : 0);
		uint32_t want = i == 0 ? 65536 : i * WEIR_WINDOW_MIN;
		struct weir_address address;

		assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
		assert_int_equal(weir_connect_with(p.a, &address, &o, 0, &p.c), 0);
		plane_settle(p.f);
		a.window = i == 2 ? want : 0;
		assert_int_equal(weir_accept_with(p.l, &a, 0, &p.d), 0);
		expect(&p, p.a, p.c, WEIR_EVENT_OPENED, 0);
		for (unsigned round = 0; round < 40; round++)
			drain(&p, p.d, fill(&p, p.c));
		plane_settle(p.f);
		assert_int_equal(info_of(p.d).recv_window, want);
		assert_int_equal(info_of(p.c).send_window, want);
		taken[i] = fill(&p, p.c);
		drain(&p, p.d, taken[i]);
		pair_close(&p);
	}
	/* at most half a window more, for consumption that is not reported yet */
	assert_in_range(taken[0], 65536 / 64 / 2, 65536 / 64 * 3 / 2);
	assert_in_range(taken[1], WEIR_WINDOW_MIN / 64 / 2, WEIR_WINDOW_MIN / 64 * 3 / 2);
	assert_in_range(taken[2], 2 * WEIR_WINDOW_MIN / 64 / 2, 2 * WEIR_WINDOW_MIN / 64 * 3 / 2);
	assert_true(taken[1] < taken[2] && taken[2] < taken[0]);
}

/* A peer that opens no connection: one that its program holds. Its neighbours open. */
TEST(test_beside_others)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = strangers(places[i], WEIR_LISTEN_HOLD);
		struct weir_conn *c[8], *d[8];

		for (unsigned k = 0; k < 8; k++) {
			c[k] = knock(&p, places[i]);
			d[k] = take_held(&p);
		}
		for (unsigned k = 0; k < 8; k++) {
			if (k % 2)
				assert_int_equal(weir_refuse(d[k], "odd"), 0);
			else
				assert_int_equal(weir_admit(d[k], NULL), 0);
		}
		for (unsigned k = 0; k < 8; k++)
			expect(&p, p.a, c[k], k % 2 ? WEIR_EVENT_CLOSED : WEIR_EVENT_OPENED,
			       k % 2 ? -ECONNREFUSED : 0);
		for (unsigned k = 0; k < 8; k++) {
			p.c = c[k];
			p.d = d[k];
			if (k % 2 == 0) {
				pair_pass(&p, c[k], d[k], k, 700);
				weir_close(d[k]);
			}
			weir_close(c[k]);
		}
		p.c = p.d = NULL;
		pair_close(&p);
	}
}
