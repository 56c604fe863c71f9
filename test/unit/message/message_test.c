/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, requests and how these end, and what strangers and programs get wrong. */
#include "worlds/message_world.h"

static void
test_messages(void **state)
{
	static const size_t lengths[] = {8, 9, 40, 41, 64, 100, 101, 940, 941, 8184, 8192, 60000};
	uint32_t buf[60000 / 4 + 1];
	struct both p;

	open_both(&p, NULL, NULL);
	for (uint32_t i = 0; i < 12 * 20; i++) {
		fill(buf, 0, i, lengths[i % 12]);
		must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, lengths[i % 12], PATIENT));
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

/* Far more than the window holds, one small message right behind the other: each counts as
 * consumed. */
static void
test_run(void **state)
{
	uint32_t buf[16];
	struct both p;

	open_both(&p, NULL, NULL);
	for (uint32_t i = 0; i < 20000; i++) {
		fill(buf, 0, i, 8 + i % 2 * 56);
		must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8 + i % 2 * 56, PATIENT));
	}
	await(p.b.notes == 20000);
	assert_int_equal(p.b.wrong, 0);
	assert_int_equal(stats_of(&p.b).handled, 20000);
	close_both(&p);
}

static void
test_requests(void **state)
{
	static const size_t lengths[] = {0, 1, 64, 92, 93, 948, 5000, 20000};
	uint8_t in[20000], out[20000];
	struct both p;
	size_t n;

	open_both(&p, NULL, NULL);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 13);
	for (unsigned i = 0; i < 200; i++) {
		must(weir_message_request(p.a.m, B, TYPE_ECHO, out, lengths[i % 8], in, sizeof(in),
					  &n, PATIENT));
		assert_int_equal(n, lengths[i % 8]);
		assert_memory_equal(in, out, n);
	}
	/* too small a buffer: its beginning, and how long it is */
	memset(in, 0, sizeof(in));
	assert_int_equal(weir_message_request(p.a.m, B, TYPE_ECHO, out, 64, in, 10, &n, PATIENT),
			 -EMSGSIZE);
	assert_int_equal(n, 64);
	assert_memory_equal(in, out, 10);
	assert_int_equal(in[10], 0);
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_NOBODY, out, 1, in, sizeof(in), &n, PATIENT),
	    -ENOMSG);
	close_both(&p);
}

static void
test_bad_input(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT, bad;
	struct weir_handler h = {.size = sizeof(h), .handle = mute};
	struct weir_messenger *m;
	uint32_t buf[2] = {0, 0};
	struct weir_draft d;
	struct both p;

	o.message_max = 2u << 20;
	open_both(&p, NULL, &o);
#define refused(field, value)                                                                      \
	(bad = o, bad.service = "other", bad.field = (value),                                      \
	 assert_int_equal(weir_messenger_open(p.a.w, &bad, &m), -EINVAL))
	refused(connections, 0);
	refused(connections, 65537);
	refused(handler_threads, 33);
	refused(receivers, 3);
	refused(lanes, 0);
	refused(window, 1);
	refused(window, (64u << 10) - 1);
	refused(threshold, 0);
	refused(threshold, 91);
	refused(flags, 4);
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
	must(weir_message_send(p.a.m, B, TYPE_NOBODY, buf, 8, PATIENT));
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, PATIENT));
	await(p.b.notes == 1);
	assert_int_equal(stats_of(&p.b).unknown, 1);
	assert_int_equal(weir_message_send(p.a.m, B, TYPE_NOTE, buf, (2u << 20) + 1, 0), -EMSGSIZE);
	assert_int_equal(weir_message_send(p.a.m, PLANE_NODE(2), TYPE_NOTE, buf, 8, PATIENT),
			 -ECONNREFUSED);
	assert_int_equal(weir_message_disconnect(p.a.m, PLANE_NODE(2)), -ENOTCONN);
	assert_int_equal(weir_message_reserve(p.a.m, B, TYPE_NOTE, (1u << 20) + 1, 0, 0, &d),
			 -EMSGSIZE);
	assert_int_equal(weir_message_reserve(p.a.m, B, TYPE_NOTE, 10, 8, 0, &d), -EINVAL);
	close_both(&p);
}

/* The whole cluster knows a messenger's name if it is to. */
static void
test_public(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_messenger *m;
	struct both p;

	open_both(&p, NULL, &o);
	assert_int_equal(plane_listen_flags(p.f), 0);
	o.service = "known";
	o.flags = WEIR_MESSENGER_PUBLIC;
	o.handler_threads = o.receivers = 1;
	must(weir_messenger_open(p.a.w, &o, &m));
	assert_int_equal(plane_listen_flags(p.f), WEIR_LISTEN_PUBLIC);
	weir_messenger_close(m);
	close_both(&p);
}

/* Somebody who connects to the name and is no messenger. */
static void
test_stranger(void **state)
{
	static const uint8_t garbage[][24] = {{0},    {1, 1},	 {9, 0, 1},
					      {4, 9}, {3, 0, 1}, {4, 1, 1, 1}};
	struct weir_address address;
	uint32_t buf[2] = {0, 0};
	struct weir_conn *c;
	struct both p;

	open_both(&p, NULL, NULL);
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, PATIENT));
	must(weir_address_parse("node:11:weir.message", &address));
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		char in[64];
		size_t n;
		int rc;

		must(weir_connect(p.a.w, &address, PATIENT, &c));
		must(weir_send(c, garbage[i], i ? sizeof(garbage[0]) : 3, PATIENT));
		do {
			rc = weir_recv(c, in, sizeof(in), &n, PATIENT);
		} while (!rc); /* its hello */
		assert_true(rc == -ESHUTDOWN || rc == -ECONNRESET);
		weir_close(c);
	}
	assert_int_equal(stats_of(&p.b).malformed, 6);
	buf[1] = 1;
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, PATIENT));
	await(p.b.notes == 2);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

/* The n-th response that comes too late has come, and has not ended `other`. */
static void
await_late(const struct side *s, uint64_t n, struct weir_request *other)
{
	await(weir_request_wait(other, 0) != -EAGAIN || stats_of(s).late == n);
	assert_int_equal(weir_request_wait(other, 0), -EAGAIN);
}

static void
test_late(void **state)
{
	struct weir_request first, second;
	uint64_t one = 1, two = 2, in[2] = {0};
	struct both p;

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &first, B, TYPE_KEEP, &one, 8, &in[0], 8, PATIENT));
	await(kept_count == 1);
	assert_int_equal(weir_request_wait(&first, 0), -EAGAIN);
	assert_int_equal(weir_request_wait(&first, 30), -ETIMEDOUT);
	assert_int_equal(weir_request_wait(&first, 30), -ETIMEDOUT);
	/* takes the same slot; the first one's response must not end it */
	must(weir_request_start(p.a.m, &second, B, TYPE_KEEP, &two, 8, &in[1], 8, PATIENT));
	await(kept_count == 2);
	must(weir_message_respond(p.b.m, &kept[0], &one, 8));
	await_late(&p.a, 1, &second);
	assert_int_equal(weir_request_wait(&second, 1), -ETIMEDOUT);
	must(weir_request_start(p.a.m, &second, B, TYPE_KEEP, &two, 8, &in[1], 8, PATIENT));
	await(kept_count == 3);
	must(weir_message_respond(p.b.m, &kept[1], &one, 8)); /* late, too */
	must(weir_message_respond(p.b.m, &kept[2], &two, 8));
	must(weir_request_wait(&second, PATIENT));
	assert_int_equal(in[1], 2);
	assert_int_equal(in[0], 0);
	/* responding twice completes nothing else */
	must(weir_request_start(p.a.m, &first, B, TYPE_KEEP, &two, 8, &in[0], 8, PATIENT));
	must(weir_message_respond(p.b.m, &kept[2], &two, 8));
	await_late(&p.a, 3, &first);
	assert_int_equal(weir_request_wait(&first, 1), -ETIMEDOUT);
	assert_int_equal(weir_message_refuse(p.b.m, &kept[2], 0), -EINVAL);
	close_both(&p);
}

static void
refuse_as_asked(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	weir_message_refuse(m, &message->reply, *(const int *)message->data);
}

/* Also with errors that the call itself returns. */
static void
test_errors_of_handlers(void **state)
{
	static const int errors[] = {EAGAIN, EINTR, ETIMEDOUT, ENODEV, EDOM, 4095};
	struct weir_handler h = WEIR_HANDLER_INIT;
	struct both p;
	uint64_t in;

	open_both(&p, NULL, NULL);
	h.handle = refuse_as_asked;
	must(weir_message_register(p.b.m, TYPE_KEEP, &h));
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		assert_int_equal(weir_message_request(p.a.m, B, TYPE_KEEP, &errors[i],
						      sizeof(errors[i]), &in, 8, NULL, PATIENT),
				 -errors[i]);
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

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	for (int i = 0; i < 4; i++)
		must(weir_request_start(p.a.m, &r[i], B, TYPE_KEEP, "x", 1, &in[i], 8, PATIENT));
	assert_int_equal(pthread_create(&t, NULL, wait_for, &r[0]), 0);
	nap(5);
	weir_request_cancel(&r[0]);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, -ECANCELED);
	assert_int_equal(pthread_create(&t, NULL, wait_for, &r[1]), 0);
	nap(5);
	assert_int_equal(weir_message_cancel(p.a.m, PLANE_NODE(2)), 0);
	assert_int_equal(weir_message_cancel(p.a.m, B), 3);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, -ECANCELED);
	assert_int_equal(weir_request_wait(&r[2], 100), -ECANCELED);
	/* refused by the program; and the default timeout */
	await(kept_count == 4);
	must(weir_request_start(p.a.m, &r[0], B, TYPE_KEEP, "x", 1, in, 8, PATIENT));
	await(kept_count == 5);
	must(weir_message_refuse(p.b.m, &kept[4], EDOM));
	assert_int_equal(weir_request_wait(&r[0], WEIR_NO_TIMEOUT), -EDOM);
	assert_int_equal(weir_message_request(p.a.m, B, TYPE_MUTE, "x", 1, in, 8, NULL, -1),
			 -ETIMEDOUT);
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

	open_both(&p, NULL, NULL);
	for (int i = 0; i < N; i++) {
		memset(out, i, sizeof(out));
		must(weir_request_start(p.a.m, &r[i], B, TYPE_ECHO, out, sizeof(out), in[i],
					sizeof(in[i]), PATIENT));
	}
	/* another thread may collect */
	assert_int_equal(pthread_create(&t, NULL, wait_for, &r[0]), 0);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, 0);
	for (int i = 1; i < N; i++) {
		must(weir_request_wait(&r[i], PATIENT));
		assert_int_equal(r[i].length, sizeof(out));
		assert_int_equal(in[i][2999], (uint8_t)i);
	}
	close_both(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_messages),  cmocka_unit_test(test_requests),
	    cmocka_unit_test(test_run),	      cmocka_unit_test(test_requests),
	    cmocka_unit_test(test_bad_input), cmocka_unit_test(test_stranger),
	    cmocka_unit_test(test_late),      cmocka_unit_test(test_errors_of_handlers),
	    cmocka_unit_test(test_cancel),    cmocka_unit_test(test_uncollected),
	    cmocka_unit_test(test_public),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
