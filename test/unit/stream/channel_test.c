/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections over an engine: the fake one fails the test when a rule of the channel is broken. */
#include "worlds/plane_fake.h"
#include "worlds/stream_pair.h"

#include "ipc/wire.h"
#include "stream/conn.h"

#include <poll.h>
#include <time.h>

static const size_t sizes[] = {0, 1, 48, 49, 947, 948, 949, 4096, 8192, 8193, 16384, 65536, 300000};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* All receive blocks are back, all send blocks too. */
static void
check_memory(struct pair *p)
{
	struct weir_event e;

	for (int i = 0; i < 200; i++) { /* what is due is told after some empty polls */
		weir_poll(p->a, &e, 1);
		weir_poll(p->b, &e, 1);
		plane_settle(p->f);
	}
	assert_int_equal(plane_recv_blocks_free(p->f, p->a), 64);
	assert_int_equal(plane_recv_blocks_free(p->f, p->b), 64);
	assert_int_equal(p->a->heap.blocks.free + p->a->threads.lh_first->cache_count, 64);
}

static void
test_sizes(void **state)
{
	for (int self = 0; self < 2; self++) {
		struct pair p = pair_open(PLANE_REMOTE, NULL, self);

		(void)state;
		for (int round = 0; round < 30; round++) {
			/* the fake engine doesn't look past a message that waits for memory */
			for (size_t i = 0; i < COUNT(sizes) - (size_t)self; i++) {
				pair_pass(&p, p.c, p.d, (uint32_t)i, sizes[i]);
				pair_pass(&p, p.d, p.c, (uint32_t)i + 100, sizes[i]);
			}
		}
		check_memory(&p);
		pair_close(&p);
	}
}

static void
test_too_long(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = calloc(1, 65 * 8192);
	void *buf;

	assert_int_equal(weir_send(p.c, m, WEIR_STREAM_MESSAGE_MAX + 1ul, 0), -EMSGSIZE);
	assert_int_equal(weir_send(p.c, m, 64 * 8192 + 1, 0), -EMSGSIZE);
	assert_int_equal(weir_send_reserve(p.c, 64 * 8192 + 1, 0, &buf), -EMSGSIZE);
	assert_int_equal(weir_send(p.c, m, 64 * 8192, 0), 0);
	free(m);
	plane_settle(p.f);
	pair_close(&p);
}

static void
fill_and_drain(struct pair *p, size_t length)
{
	uint32_t sent = pair_fill(p, length);
	uint8_t *in = malloc(length + 1);
	struct weir_event e;
	size_t n;

	assert_true(sent > 0);
	pair_drain(p, sent, length);
	for (unsigned i = 0; i < 200; i++) {
		weir_recv(p->d, in, length, &n, 0);
		plane_settle(p->f);
	}
	assert_int_equal(weir_poll(p->a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_WRITABLE);
	assert_ptr_equal(e.conn, p->c);
	assert_int_equal(weir_poll(p->a, &e, 1), 0);
	free(in);
}

/* However many messages wait, what gives credit and memory back finds room in the ring. */
static void
test_room_for_control(void **state)
{
	static const struct plane_options o = {.ring_slots = 64, .first = 65536};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);
	const struct weir_ring *tx = &p.c->pipe->tx;
	unsigned sent = 0;

	plane_hold(p.f, true);
	while (weir_send(p.c, "x", 1, 0) == 0)
		sent++;
	assert_in_range(sent, 40, 64 - WEIR_CONTROL_RESERVE);
	/* WANT has taken one */
	assert_true(weir_ring_room(tx) >= WEIR_CONTROL_RESERVE - 1);
	plane_hold(p.f, false);
	plane_settle(p.f);
	pair_close(&p);
}

#define CROWD 120

struct member {
	struct weir_conn *c, *d;
	unsigned sent;
	bool ready;
};

/* One message on each that can go on, after what has come; how many left. */
static unsigned
crowd_turn(struct pair *p, struct member *m, unsigned first)
{
	unsigned sent = 0;
	struct weir_event e[CROWD];
	int n = weir_poll(p->a, e, CROWD);

	for (int i = 0; i < n; i++)
		if (e[i].type == WEIR_EVENT_WRITABLE && e[i].user)
			((struct member *)e[i].user)->ready = true;
	for (unsigned i = 0; i < CROWD; i++) {
		struct member *at = &m[(first + i) % CROWD];

		if (!at->ready)
			continue;
		at->ready = weir_send(at->c, "x", 1, 0) == 0;
		at->sent += at->ready;
		sent += at->ready;
	}
	return sent;
}

/* Many connections that find the ring full don't fill it with questions when it is empty. */
static void
test_crowded_ring(void **state)
{
	static const struct plane_options o = {.ring_slots = 64, .first = 65536};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);
	struct member m[CROWD];

	for (unsigned i = 0; i < CROWD; i++) {
		m[i] = (struct member){.c = pair_connect(&p, PLANE_REMOTE), .ready = true};
		m[i].d = pair_accept(&p);
		weir_conn_set_user(m[i].c, &m[i]);
	}
	for (unsigned round = 0; round < 40; round++) {
		assert_true(crowd_turn(&p, m, round * 32) >= 16);
		plane_turn(p.f);
	}
	for (unsigned i = 0; i < CROWD; i++)
		assert_true(m[i].sent >= 3);
	for (unsigned i = 0; i < CROWD; i++) {
		weir_close(m[i].c);
		weir_close(m[i].d);
	}
	pair_close(&p);
}

/* The connection that asked for all goes away: the others are told of the room, asleep. */
static void
test_asker_leaves(void **state)
{
	static const struct plane_options o = {.ring_slots = 64, .first = 65536};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);
	struct weir_conn *other = pair_connect(&p, PLANE_REMOTE);
	struct pollfd fd = {.fd = weir_fd(p.a), .events = POLLIN};
	struct weir_event e;

	plane_hold(p.f, true);
	while (weir_send(p.c, "x", 1, 0) == 0)
		;
	assert_int_equal(weir_send(other, "x", 1, 0), -EAGAIN);
	assert_ptr_equal(p.c->channel->asking, p.c);
	weir_close(p.c);
	p.c = NULL;
	assert_ptr_equal(other->channel->asking, other);
	assert_int_equal(weir_arm(p.a), 0);
	assert_int_equal(poll(&fd, 1, 0), 0);
	plane_hold(p.f, false);
	plane_settle(p.f);
	assert_int_equal(poll(&fd, 1, 0), 1);
	assert_int_equal(weir_poll(p.a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_WRITABLE);
	assert_ptr_equal(e.conn, other);
	weir_close(other);
	weir_close(pair_accept(&p));
	pair_close(&p);
}

static void
test_full(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);

	for (int round = 0; round < 3; round++) {
		fill_and_drain(&p, 0);
		fill_and_drain(&p, 64);
		fill_and_drain(&p, 948);
		fill_and_drain(&p, 5000);
		fill_and_drain(&p, 20000);
	}
	check_memory(&p);
	pair_close(&p);
}

/* A large message was refused, then a small one: the small one need not wait for the large one's
 * window. */
static void
test_want_less(void **state)
{
	static const struct plane_options o = {.first = 512, .window = 512};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);
	uint8_t m[400] = {0}, in[400];
	struct weir_event e;
	size_t n;

	for (int i = 0; i < 8; i++)
		assert_int_equal(weir_send(p.c, m, 48, 0), 0);
	assert_int_equal(weir_send(p.c, m, 400, 0), -EAGAIN);
	plane_settle(p.f);
	assert_int_equal(weir_send(p.c, m, 48, 0), -EAGAIN);
	plane_settle(p.f);
	assert_int_equal(weir_poll(p.a, &e, 1), 0);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
	for (int i = 0; i < 200; i++) {
		weir_poll(p.b, &e, 1); /* tells what was consumed */
		plane_settle(p.f);
	}
	assert_int_equal(weir_poll(p.a, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_WRITABLE);
	assert_int_equal(weir_send(p.c, m, 48, 0), 0);
	plane_settle(p.f);
	while (weir_recv(p.d, in, sizeof(in), &n, 0) == 0)
		plane_settle(p.f);
	pair_close(&p);
}

/* With the smallest of everything. */
static void
test_narrow(void **state)
{
	static const struct plane_options o = {.ring_slots = 32, .first = 64, .window = 128};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);

	for (uint32_t i = 0; i < 500; i++)
		pair_pass(&p, i % 2 ? p.c : p.d, i % 2 ? p.d : p.c, i, (i * 131) % 2000);
	fill_and_drain(&p, 10);
	fill_and_drain(&p, 900);
	check_memory(&p);
	pair_close(&p);
}

static void
test_completion(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_event e[4];
	uint8_t *m = make_message(1, 5000);

	plane_hold(p.f, true);
	assert_int_equal(weir_send_notify(p.c, "a", 1, WEIR_NOTIFY, 100, 0), 0);
	assert_int_equal(weir_send(p.c, "b", 1, 0), 0);
	assert_int_equal(weir_send_notify(p.c, m, 5000, WEIR_NOTIFY, 200, 0), 0);
	plane_settle(p.f);
	assert_int_equal(weir_flush(p.c, 0), -EAGAIN);
	assert_int_equal(weir_poll(p.a, e, 4), 0);
	plane_hold(p.f, false);
	plane_settle(p.f);
	assert_int_equal(weir_flush(p.c, 0), 0);
	assert_int_equal(weir_poll(p.a, e, 4), 2);
	assert_int_equal(e[0].type, WEIR_EVENT_SENT);
	assert_int_equal(e[0].cookie, 100);
	assert_int_equal(e[1].cookie, 200);
	assert_int_equal(e[1].status, 0);
	/* what never completes is told as well, once */
	plane_hold(p.f, true);
	assert_int_equal(weir_send_notify(p.c, m, 5000, WEIR_NOTIFY, 300, 0), 0);
	plane_die(p.f, p.b);
	plane_hold(p.f, false);
	plane_turn(p.f);
	plane_turn(p.f);
	assert_int_equal(weir_poll(p.a, e, 1), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_SENT);
	assert_int_equal(e[0].cookie, 300);
	assert_int_equal(e[0].status, -ECONNRESET);
	assert_int_equal(weir_poll(p.a, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	assert_int_equal(e[0].status, -ECONNRESET);
	assert_int_equal(weir_flush(p.c, -1), -ECONNRESET);
	free(m);
	weir_lost(p.a);
	weir_lost(p.b);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

static void
test_zero_copy(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t in[40000];
	void *buf;
	size_t n;

	for (uint32_t i = 0; i < 300; i++) {
		size_t length = i % 2 ? 100 : 6000 + i * 20;
		uint8_t *m = make_message(i, length);

		assert_int_equal(weir_send_reserve(p.c, length + 50, 0, &buf), 0);
		memcpy(buf, m, length);
		if (i % 7 == 0) {
			weir_send_abandon(p.c, buf);
		} else {
			assert_int_equal(weir_send_commit(p.c, buf, length, 0, 0), 0);
			assert_int_equal(pair_recv(&p, p.d, in, sizeof(in), &n), 0);
			check_message(in, i, length);
		}
		free(m);
	}
	/* committed twice, or longer than reserved */
	assert_int_equal(weir_send_reserve(p.c, 100, 0, &buf), 0);
	assert_int_equal(weir_send_commit(p.c, buf, 8193, 0, 0), -EINVAL);
	assert_int_equal(weir_send_commit(p.c, (char *)buf + 1, 8, 0, 0), -EINVAL);
	weir_send_abandon(p.c, buf);
	check_memory(&p);
	pair_close(&p);
}

static void
test_loans(void **state)
{
	static const size_t lengths[] = {3000, 20, 0, 9000, 949, 30000};
	static const struct plane_options o = {.first = 65536};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);
	struct weir_loan loan[COUNT(lengths)];

	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < COUNT(lengths); i++) {
			uint8_t *m = make_message((uint32_t)i, lengths[i]);

			assert_int_equal(weir_send(p.c, m, lengths[i], 0), 0);
			free(m);
			plane_settle(p.f);
		}
		for (size_t i = 0; i < COUNT(lengths); i++)
			assert_int_equal(weir_recv_loan(p.d, &loan[i], 0), 0);
		for (size_t k = 0; k < COUNT(lengths); k++) {
			size_t i = (k * 5 + (size_t)round) % COUNT(lengths);

			check_message(loan[i].data, (uint32_t)i, lengths[i]);
			weir_release(p.b, &loan[i]);
		}
		check_memory(&p);
	}
	pair_close(&p);
}

static void
test_close_with_data(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = make_message(4, 7000), in[7000];
	struct weir_event e[4];
	size_t n;

	assert_int_equal(weir_send(p.c, m, 7000, 0), 0);
	assert_int_equal(weir_send(p.c, "end", 3, 0), 0);
	weir_close(p.c);
	p.c = NULL;
	plane_settle(p.f);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
	check_message(in, 4, 7000);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
	assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -ESHUTDOWN);
	assert_int_equal(weir_poll(p.b, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	/* what arrives for a closed one gives its memory back */
	weir_close(p.d);
	p.d = NULL;
	p.c = pair_connect(&p, PLANE_REMOTE);
	p.d = pair_accept(&p);
	assert_int_equal(weir_send(p.c, m, 7000, 0), 0);
	plane_settle(p.f);
	weir_close(p.d);
	p.d = NULL;
	plane_settle(p.f);
	check_memory(&p);
	free(m);
	pair_close(&p);
}

/* Every failing call says why, and what to do, in its own words. */
static void
test_reasons(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t in[8];
	size_t n;

	assert_int_equal(weir_connect(p.a, NULL, 0, NULL), -EINVAL);
	assert_non_null(strstr(weir_reason(), "; see weir/stream.h"));
	assert_int_equal(weir_recv(p.c, in, sizeof(in), &n, 1), -EAGAIN);
	assert_non_null(strstr(weir_reason(), "the time is over; "));
	weir_close(p.d);
	p.d = NULL;
	plane_settle(p.f);
	/* the send itself finds the end in the ring */
	assert_int_equal(weir_send(p.c, "x", 1, 0), -ECONNRESET);
	assert_non_null(strstr(weir_reason(), "the peer has gone; "));
	assert_int_equal(weir_recv(p.c, in, sizeof(in), &n, 0), -ESHUTDOWN);
	assert_non_null(strstr(weir_reason(), "end of the stream"));
	assert_non_null(strstr(weir_reason(), "; "));
	assert_int_equal(weir_send(p.c, "x", 1, 0), -ECONNRESET);
	assert_non_null(strstr(weir_reason(), "the peer has gone; "));
	pair_close(&p);
}

static void
test_open_refused(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_address address;
	struct weir_event e[4];
	struct weir_conn *c;

	assert_int_equal(weir_address_parse("node:0:nobody", &address), 0);
	assert_int_equal(weir_connect(p.a, &address, 0, &c), -ECONNREFUSED);
	assert_string_equal(weir_reason(), "nobody listens; start it");
	assert_int_equal(weir_address_parse("node:1:nobody", &address), 0);
	assert_int_equal(weir_connect(p.a, &address, 0, &c), 0);
	assert_int_equal(weir_send(c, "x", 1, 0), -EAGAIN);
	plane_settle(p.f);
	assert_int_equal(weir_poll(p.a, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	assert_int_equal(e[0].status, -ECONNREFUSED);
	assert_int_equal(weir_send(c, "x", 1, 0), -ECONNREFUSED);
	weir_close(c);
	plane_run(p.f);
	assert_int_equal(weir_connect(p.a, &address, 1000, &c), -ECONNREFUSED);
	plane_stop(p.f);
	pair_close(&p);
}

static uint32_t
channels(const struct weir *w)
{
	const struct weir_channel *ch;
	uint32_t n = 0;

	SLIST_FOREACH(ch, &w->threads.lh_first->channels, next)
	n++;
	return n;
}

/* The data plane names the engine whose port reaches the peer: asked again by a channel to that. */
static void
test_other_port(void **state)
{
	static const struct plane_options o = {.engines = 2, .reaches = 1};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);
	struct weir_conn *c, *d;

	assert_int_equal(WEIR_CHANNEL_OF(p.c->pipe)->engine, 1);
	assert_int_equal(channels(p.a), 2);
	pair_pass(&p, p.c, p.d, 1, 60);
	pair_pass(&p, p.d, p.c, 2, 9000);
	/* as often as it is asked, over the same */
	c = pair_connect(&p, PLANE_REMOTE);
	d = pair_accept(&p);
	assert_ptr_equal(c->pipe, p.c->pipe);
	assert_int_equal(channels(p.a), 2);
	pair_pass(&p, c, d, 3, 60);
	weir_close(c);
	weir_close(d);
	pair_close(&p);
}

/* One that names none, or another each time, is not asked for ever. */
static void
test_no_port(void **state)
{
	static const struct plane_options o[] = {{.engines = 2, .reaches = 2},
						 {.engines = 2, .fickle = true}};

	for (size_t i = 0; i < COUNT(o); i++) {
		struct plane *f = plane_create(&o[i]);
		struct weir *w = plane_attach(f);
		struct weir_address address;
		struct weir_conn *c;

		assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
		assert_int_equal(weir_connect(w, &address, 0, &c), -EPROTO);
		assert_non_null(strstr(weir_reason(), "names no engine"));
		assert_int_equal(plane_open_ends(f), 0);
		weir_detach(w);
		plane_destroy(f);
	}
}

static void
test_open_late(void **state)
{
	static const struct plane_options o = {.slow_open = true};
	struct plane *f = plane_create(&o);
	struct weir *a = plane_attach(f), *b = plane_attach(f);
	struct weir_listener *l, *l2;
	struct weir_address address;
	struct weir_conn *c, *d;
	struct weir_event e[4];

	assert_int_equal(weir_listen(b, "svc", 0, &l), 0);
	assert_int_equal(weir_listen(a, "svc", 0, &l2), -EADDRINUSE);
	assert_int_equal(weir_listen(a, "", 0, &l2), -EINVAL);
	assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
	assert_int_equal(weir_connect(a, &address, 20, &c), -ETIMEDOUT);
	plane_settle(f);
	assert_int_equal(weir_connect(a, &address, 0, &c), 0);
	assert_int_equal(weir_send(c, "x", 1, 0), -EAGAIN);
	assert_int_equal(weir_poll(a, e, 4), 0);
	fake_open(f);
	plane_settle(f);
	assert_int_equal(weir_poll(a, e, 4), 1);
	assert_int_equal(e[0].type, WEIR_EVENT_OPENED);
	assert_int_equal(weir_send(c, "x", 1, 0), 0);
	assert_int_equal(weir_accept(l, 0, &d), 0);
	weir_close(c);
	weir_close(d);
	plane_run(f);
	weir_detach(a);
	weir_detach(b);
	plane_destroy(f);
}

/* All of the last life of a vQPN and of the next lies in the ring when connect() gets its reply. */
static void
test_two_lives_in_ring(void **state)
{
	static const struct plane_options o = {.prompt = true};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);
	struct weir_address nobody, svc;
	struct weir_conn *first, *second, *d;
	struct weir_event e[4];

	assert_int_equal(weir_address_parse("node:1:nobody", &nobody), 0);
	assert_int_equal(weir_address_parse(PLANE_REMOTE, &svc), 0);
	assert_int_equal(weir_connect(p.a, &nobody, 0, &first), 0);
	assert_int_equal(weir_connect(p.a, &svc, 0, &second), 0);
	assert_int_equal(WEIR_VQPN_INDEX(first->vqpn), WEIR_VQPN_INDEX(second->vqpn));
	assert_int_equal(weir_poll(p.a, e, 4), 2);
	assert_int_equal(e[0].type, WEIR_EVENT_CLOSED);
	assert_ptr_equal(e[0].conn, first);
	assert_int_equal(e[1].type, WEIR_EVENT_OPENED);
	assert_ptr_equal(e[1].conn, second);
	assert_int_equal(weir_accept(p.l, 0, &d), 0);
	pair_pass(&p, second, d, 1, 100);
	weir_close(first);
	weir_close(second);
	weir_close(d);
	pair_close(&p);
}

static void
test_nodes(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_event e[4];

	fake_node_event(p.f, 7, 0);
	fake_node_event(p.f, 9, 0);
	fake_node_event(p.f, 7, EHOSTDOWN); /* the later one counts */
	plane_settle(p.f);
	assert_int_equal(weir_poll(p.a, e, 4), 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(e[i].type, WEIR_EVENT_NODE);
		assert_int_equal(e[i].status, e[i].cookie == 7 ? -EHOSTDOWN : 0);
	}
	pair_close(&p);
}

/* Events while a program sleeps in detach: the first time another one detaches, the third time
 * the engine goes on. */
static struct {
	struct plane *f;
	struct weir *other;
	unsigned count;
} naps;

int
nanosleep(const struct timespec *wanted, struct timespec *left)
{
	struct weir *other = naps.other;

	if (!naps.f)
		return clock_nanosleep(CLOCK_REALTIME, 0, wanted, left);
	naps.other = NULL;
	if (other)
		weir_detach(other);
	plane_hold(naps.f, ++naps.count < 3);
	plane_settle(naps.f);
	return 0;
}

/* A detach waits for its own session's ends, whoever else detaches meanwhile. */
static void
test_detach_during_detach(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	size_t n;
	char c;

	naps.f = p.f;
	naps.other = plane_attach(p.f);
	plane_hold(p.f, true);
	assert_int_equal(weir_send(p.c, "x", 1, 0), 0);
	weir_close(p.c);
	weir_detach(p.a);
	naps.f = NULL;
	assert_int_equal(naps.count, 3);
	plane_settle(p.f);
	assert_int_equal(weir_recv(p.d, &c, 1, &n, 0), 0);
	assert_int_equal(weir_recv(p.d, &c, 1, &n, 0), -ESHUTDOWN);
	weir_close(p.d);
	plane_run(p.f);
	weir_detach(p.b);
	plane_destroy(p.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sizes),
	    cmocka_unit_test(test_too_long),
	    cmocka_unit_test(test_room_for_control),
	    cmocka_unit_test(test_crowded_ring),
	    cmocka_unit_test(test_asker_leaves),
	    cmocka_unit_test(test_full),
	    cmocka_unit_test(test_want_less),
	    cmocka_unit_test(test_narrow),
	    cmocka_unit_test(test_completion),
	    cmocka_unit_test(test_zero_copy),
	    cmocka_unit_test(test_loans),
	    cmocka_unit_test(test_close_with_data),
	    cmocka_unit_test(test_open_refused),
	    cmocka_unit_test(test_other_port),
	    cmocka_unit_test(test_no_port),
	    cmocka_unit_test(test_open_late),
	    cmocka_unit_test(test_two_lives_in_ring),
	    cmocka_unit_test(test_detach_during_detach),
	    cmocka_unit_test(test_nodes),
	    cmocka_unit_test(test_reasons),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
