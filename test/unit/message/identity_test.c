/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of a node that pass for its messenger: whoever has the name is believed, and what others
 * say ends nothing but their own connections.
 */
#include "worlds/message_world.h"

static void
ask(const struct side *s, uint16_t node)
{
	uint64_t in;

	must(weir_message_request(s->m, node, TYPE_ECHO, "x", 1, &in, 8, NULL, PATIENT));
}

/* Another program of A says hello to B, with its own number. */
static void
test_hello(void **state)
{
	uint64_t in = 0, out = 5;
	struct weir_request r;
	struct weir_conn *c;
	struct both p;

	for (int both_ways = 0; both_ways < 2; both_ways++) {
		open_both(&p, NULL, NULL);
		register_keep(&p.b);
		must(weir_request_start(p.a.m, &r, B, TYPE_KEEP, "x", 1, &in, 8, PATIENT));
		await(kept_count == 1);
		if (both_ways)
			ask(&p.b, A);
		await_looks(&p.b);
		c = raw_connect(p.a.w, B, 12345, 1);
		raw_end(c); /* A's messenger was asked */
		await_looks(&p.b);
		must(weir_message_respond(p.b.m, &kept[0], &out, 8));
		must(weir_request_wait(&r, PATIENT));
		assert_int_equal(in, 5);
		assert_int_equal(stats_of(&p.a).lost + stats_of(&p.b).lost, 0);
		assert_int_equal(stats_of(&p.b).created, 1);
		close_both(&p);
	}
}

/* One that sends no more, and would take no part in requests: what it sent is handled, it ends. */
static void
test_shut(void **state)
{
	struct weir_conn *c;
	struct both p;

	open_both(&p, NULL, NULL);
	ask(&p.b, A);
	await(stats_of(&p.b).created == 1);
	for (unsigned i = 0; i < 3; i++) {
		c = raw_connect(p.a.w, B, p.a.m->incarnation, 1);
		must(weir_send(c, &(uint64_t){KIND_MESSAGE | (uint64_t)TYPE_MUTE << 16}, 8,
			       PATIENT));
		must(weir_shutdown(c));
		raw_end(c);
		await(p.b.notes == i + 1);
	}
	ask(&p.a, B);
	ask(&p.b, A);
	assert_int_equal(stats_of(&p.b).lost, 0);
	close_both(&p);
}

/* One that says good-bye, also with the number of A's messenger, which is no secret. */
static void
test_bye(void **unused)
{
	struct message_header bye = {.kind = KIND_BYE};
	struct weir_conn *c;
	enum peer_state state;
	struct both p;

	open_both(&p, NULL, NULL);
	ask(&p.b, A);
	await(stats_of(&p.b).created == 1);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t known = p.a.m->incarnation;

		c = raw_connect(p.a.w, B, known, 1);
		bye.id = i == 0 ? 0 : i == 1 ? known : i == 2 ? ~known : UINT64_MAX;
		must(weir_send(c, &bye, HEADER_LONG, PATIENT));
		must(weir_send(c, &(uint64_t){KIND_MESSAGE | (uint64_t)TYPE_MUTE << 16}, 8,
			       PATIENT));
		await(p.b.notes == i + 1);
		await_looks(&p.b);
		pthread_mutex_lock(&p.b.m->lock);
		state = p.b.m->peers[0][A]->state;
		pthread_mutex_unlock(&p.b.m->lock);
		assert_int_equal(state, PEER_OPEN);
		weir_close(c);
	}
	await_looks(&p.b);
	assert_int_equal(stats_of(&p.b).lost, 0);
	/* who may say it, is heard */
	must(weir_message_disconnect(p.a.m, B));
	await(p.b.lost == 1 && p.a.lost == 1);
	close_both(&p);
}

static void *
send_one(void *arg)
{
	struct both *p = arg;

	must(weir_message_send(p->b.m, A, TYPE_MUTE, "x", 1, PATIENT));
	return NULL;
}

/* One that listens where A's messenger would listen if it had more threads, and says that it has.
 */
static void
test_further_name(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_conn *c, *stolen;
	struct weir_listener *l;
	pthread_t t[4];
	struct both p;

	o.receivers = 1;
	open_both(&p, NULL, &o);
	weir_messenger_close(p.b.m);
	o.receivers = 2;
	open_side(&p.b, &o);
	must(weir_listen(p.a.w, "weir.message.1", 0, &l));
	c = raw_connect(p.a.w, B, 12345, 2);
	must(weir_send(c, &(uint64_t){KIND_MESSAGE | (uint64_t)TYPE_MUTE << 16}, 8, PATIENT));
	await(p.b.notes == 1); /* the hello before it was heard */
	/* this thread's sender is the first, so the next one would go to the second name */
	weir_message_send(p.b.m, B, TYPE_MUTE, "x", 1, 0);
	pthread_create(&t[0], NULL, send_one, &p);
	pthread_join(t[0], NULL);
	for (unsigned i = 1; i < 4; i++)
		pthread_create(&t[i], NULL, send_one, &p);
	for (unsigned i = 1; i < 4; i++)
		pthread_join(t[i], NULL);
	await(p.a.notes == 4 || weir_accept(l, 0, &stolen) != -EAGAIN);
	assert_int_equal(p.a.notes, 4);
	assert_int_equal(weir_accept(l, 0, &stolen), -EAGAIN);
	weir_listener_close(l);
	weir_close(c);
	close_both(&p);
}

/* Lanes that an ended program left open end when its successor is there. */
static void
test_successor(void **state)
{
	struct weir_conn *c;
	struct both p;

	open_both(&p, NULL, NULL);
	c = raw_connect(p.a.w, B, 12345, 1);
	await(p.b.created == 1);
	ask(&p.a, B);
	raw_end(c);
	await(p.b.lost == 1 && p.b.created == 2);
	assert_int_equal(p.b.status, -ECONNRESET);
	ask(&p.a, B);
	assert_int_equal(stats_of(&p.a).lost, 0);
	close_both(&p);
}

/* Many claims, and a program that has the name and says nothing: it is asked once at a time, and
 * until it speaks nobody loses anything. */
static void
test_many(void **state)
{
	enum { N = 20 };
	struct message_header h = {
	    .kind = KIND_HELLO, .type = MESSAGE_VERSION, .status = 1, .id = 1};
	struct weir_conn *c[N], *asks, *more;
	struct weir_listener *l;
	struct both p;

	open_both(&p, NULL, NULL);
	weir_messenger_close(p.a.m);
	p.a.m = NULL;
	must(weir_listen(p.a.w, "weir.message", 0, &l));
	for (unsigned i = 0; i < N; i++)
		c[i] = raw_connect(p.a.w, B, i + 1, 1);
	must(weir_accept(l, PATIENT, &asks));
	await_looks(&p.b);
	assert_int_equal(weir_accept(l, 0, &more), -EAGAIN);
	for (unsigned i = 0; i < N; i++)
		assert_true(raw_lives(c[i]));
	must(weir_send(asks, &h, HEADER_LONG, PATIENT));
	for (unsigned i = 1; i < N; i++)
		raw_end(c[i]);
	assert_true(raw_lives(c[0]));
	assert_int_equal(stats_of(&p.b).lost, 0);
	raw_end(asks);
	/* asked again, and while the answer doesn't come those that it is about have gone */
	c[1] = raw_connect(p.a.w, B, 2, 1);
	must(weir_accept(l, PATIENT, &asks));
	weir_close(c[0]);
	weir_close(c[1]);
	await(p.b.lost == 1);
	weir_close(asks);
	weir_listener_close(l);
	close_both(&p);
}

/* A hello is the first message, comes once, and is of this version. */
static void
test_malformed(void **state)
{
	static const uint8_t old[] = {KIND_HELLO, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0};
	struct weir_address address;
	struct weir_conn *c;
	struct both p;

	open_both(&p, NULL, NULL);
	c = raw_connect(p.a.w, B, 1, 0);
	raw_hello(c, 2, 0);
	raw_end(c);
	await(stats_of(&p.b).malformed == 1);
	must(weir_address_parse("node:11:weir.message", &address));
	must(weir_connect(p.a.w, &address, PATIENT, &c));
	must(weir_send(c, old, sizeof(old), PATIENT));
	raw_end(c);
	await(stats_of(&p.b).malformed == 2);
	close_both(&p);
}

/* Lower, higher and overlapping ranges, and one number as it was before ranges; both ways. */
static void
test_versions(void **state)
{
	enum { V = MESSAGE_VERSION };
	static const struct {
		struct weir_versions its;
		const char *why; /* NULL: a common version */
	} cases[] = {
	    {{V - 1, V}, NULL},
	    {{V, V + 2}, NULL},
	    {{V - 1, V + 1}, NULL},
	    {{V, 0}, NULL},
	    {{V - 1, 0}, "upgrade the other node's, which is older"},
	    {{V - 2, V - 1}, "upgrade the other node's, which is older"},
	    {{V + 1, V + 3}, "upgrade the messenger here, which is older"},
	};
	struct weir_address address;
	struct weir_conn *c;
	uint64_t bad = 0;
	struct both p;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct weir_listener *l;
		struct weir_request r;
		uint64_t in;

		/* from a program that connects */
		open_both(&p, NULL, NULL);
		must(weir_address_parse("node:11:weir.message", &address));
		must(weir_connect(p.a.w, &address, PATIENT, &c));
		raw_hello_of(c, cases[i].its);
		bad = !!cases[i].why;
		if (bad) {
			raw_end(c);
			await(stats_of(&p.b).malformed == bad);
		} else {
			await_looks(&p.b);
			assert_true(raw_lives(c));
			assert_int_equal(stats_of(&p.b).malformed, 0);
			weir_close(c);
		}
		/* from one that is connected to */
		weir_messenger_close(p.a.m);
		p.a.m = NULL;
		must(weir_listen(p.a.w, "weir.message", 0, &l));
		must(weir_request_start(p.b.m, &r, A, TYPE_ECHO, "x", 1, &in, 8, PATIENT));
		must(weir_accept(l, PATIENT, &c));
		raw_hello_of(c, cases[i].its);
		if (bad) {
			assert_int_equal(weir_request_wait(&r, PATIENT), -EPROTONOSUPPORT);
			assert_non_null(strstr(weir_reason(), cases[i].why));
		} else {
			await_looks(&p.b);
			assert_true(raw_lives(c));
			weir_close(c);
			assert_int_equal(weir_request_wait(&r, PATIENT), -EHOSTUNREACH);
			c = NULL;
		}
		if (c)
			weir_close(c);
		weir_listener_close(l);
		close_both(&p);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_hello),     cmocka_unit_test(test_bye),
	    cmocka_unit_test(test_shut),      cmocka_unit_test(test_further_name),
	    cmocka_unit_test(test_successor), cmocka_unit_test(test_many),
	    cmocka_unit_test(test_malformed), cmocka_unit_test(test_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
