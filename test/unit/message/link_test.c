/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of the message model: made, lost, evicted, closed in order. */
#include "worlds/message_world.h"
#include "worlds/plane_fake.h"

static void
test_death(void **state)
{
	struct weir_request r;
	uint64_t in;
	struct both p;

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &r, B, TYPE_KEEP, "x", 1, &in, 8, PATIENT));
	await(kept_count == 1);
	plane_die(p.f, p.b.w);
	assert_int_equal(weir_request_wait(&r, WEIR_NO_TIMEOUT), -EHOSTUNREACH);
	await(p.a.lost == 1);
	assert_int_equal(p.a.status, -ECONNRESET);
	weir_lost(p.b.w);
	assert_int_equal(weir_message_send(p.b.m, A, TYPE_NOTE, "x", 1, 0), -ENODEV);
	close_both(&p);
}

/*
 * The data plane goes and comes back: requests under way end, connected nodes are reported as lost,
 * and the messengers go on with their handlers.
 */
static void
test_data_plane(void **state)
{
	struct plane_options plane = message_plane;
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_draft d;
	struct weir_request r;
	uint64_t in = 0;
	struct both p;

	plane.watched = true;
	o.receivers = 2; /* names of both come back */
	open_both(&p, &plane, &o);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &r, B, TYPE_KEEP, "x", 1, &in, 8, PATIENT));
	must(weir_message_reserve(p.a.m, B, TYPE_NOTE, 5000, 0, PATIENT, &d));
	await(kept_count == 1);
	plane_kill(p.f);
	assert_int_equal(weir_request_wait(&r, WEIR_NO_TIMEOUT), -ENODEV);
	assert_non_null(strstr(weir_reason(), "weir_reattach()"));
	await(p.b.lost == 1);
	assert_int_equal(p.b.status, -ENODEV);
	assert_int_equal(weir_message_send(p.a.m, B, TYPE_NOTE, "x", 1, PATIENT), -ENODEV);
	assert_non_null(strstr(weir_reason(), "weir_reattach()"));
	plane_come_back(p.f);
	must(weir_reattach(p.a.w, PATIENT));
	must(weir_reattach(p.b.w, PATIENT));
	/* the fourth session is another node to the replacement; b's handlers are there */
	await(weir_message_request(p.a.m, PLANE_NODE(3), TYPE_ECHO, "again", 6, &in, 8, NULL,
				   PATIENT) != -ECONNREFUSED);
	assert_memory_equal(&in, "again", 6);
	await(p.a.lost == 1 && p.a.created == 2 && p.b.created == 2);
	assert_int_equal(p.a.status, -ENODEV);
	/* what was reserved before leads nowhere, and what was to be answered */
	assert_int_equal(weir_message_commit(p.a.m, &d, 10, PATIENT), -ENODEV);
	weir_message_abandon(p.a.m, &d);
	assert_int_equal(weir_message_respond(p.b.m, &kept[0], "x", 1), -EHOSTUNREACH);
	/* a restart later, and a close without a data plane */
	plane_kill(p.f);
	await(p.a.lost == 2 && p.b.lost == 2);
	plane_come_back(p.f);
	must(weir_reattach(p.b.w, PATIENT));
	must(weir_reattach(p.a.w, PATIENT));
	await(weir_message_request(p.b.m, PLANE_NODE(5), TYPE_ECHO, "twice", 6, &in, 8, NULL,
				   PATIENT) != -ECONNREFUSED);
	assert_memory_equal(&in, "twice", 6);
	plane_kill(p.f);
	await(weir_state(weir_now(p.a.w)) != WEIR_UP);
	weir_messenger_close(p.a.m);
	p.a.m = NULL;
	assert_int_equal(p.a.lost, 3);
	assert_int_equal(p.a.status, -ENODEV);
	close_both(&p);
}

/* Both messengers, which have no handler threads, have a turn. */
static void
turn(struct both *p)
{
	weir_messenger_progress(p->a.m, 0, 0);
	weir_messenger_progress(p->b.m, 0, 1);
}

/* The same without handler threads: the program's next turns go on with the new one. */
static void
test_driven(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct plane_options plane = message_plane;
	uint64_t in = 0;
	struct weir_request r;
	struct both p;
	int rc;

	plane.watched = true;
	o.handler_threads = 0;
	open_both(&p, &plane, &o);
	must(weir_request_start(p.a.m, &r, B, TYPE_ECHO, "once", 5, &in, 8, PATIENT));
	while (weir_request_wait(&r, 0) == -EAGAIN)
		turn(&p);
	plane_kill(p.f);
	/* a has no turn before it attaches again */
	await(weir_messenger_progress(p.b.m, 0, 1) == -ENODEV && p.b.lost);
	assert_int_equal(p.b.lost, 1);
	plane_come_back(p.f);
	must(weir_reattach(p.a.w, PATIENT));
	must(weir_reattach(p.b.w, PATIENT));
	/* b listens again when it has its turn */
	while ((rc = weir_request_start(p.a.m, &r, PLANE_NODE(3), TYPE_ECHO, "again", 6, &in, 8,
					PATIENT)) == -ECONNREFUSED)
		turn(&p);
	must(rc);
	while (weir_request_wait(&r, 0) == -EAGAIN)
		turn(&p);
	must(r.status);
	assert_memory_equal(&in, "again", 6);
	close_both(&p);
}

static void
ask(const struct side *s, uint16_t node)
{
	uint64_t in;

	must(weir_message_request(s->m, node, TYPE_ECHO, "x", 1, &in, 8, NULL, PATIENT));
}

static void
test_least_recent(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct side side[4] = {0};
	uint32_t buf[2] = {0, 0};
	struct plane *f = plane_create(&message_plane);

	o.handler_threads = 1;
	for (int i = 0; i < 4; i++)
		side[i].w = plane_attach(f);
	plane_run(f);
	for (int i = 1; i < 4; i++)
		open_side(&side[i], &o);
	o.connections = 2;
	open_side(&side[0], &o);
	for (; buf[1] < 2; buf[1]++)
		must(weir_message_send(side[0].m, PLANE_NODE(1), TYPE_NOTE, buf, 8, PATIENT));
	ask(&side[1], PLANE_NODE(0));
	buf[1] = 0;
	must(weir_message_send(side[0].m, PLANE_NODE(2), TYPE_NOTE, buf, 8, PATIENT));
	await(side[0].created == 2);
	await_looks(&side[0]);	      /* what is used from now on, is so later */
	ask(&side[1], PLANE_NODE(0)); /* also those that only receive are in use */
	must(weir_message_send(side[0].m, PLANE_NODE(3), TYPE_NOTE, buf, 8, PATIENT));
	await(side[2].lost + side[1].lost);
	assert_int_equal(stats_of(&side[1]).lost, 0);
	assert_int_equal(stats_of(&side[0]).evicted, 1);
	/* what had been sent arrived; and it can be made again */
	buf[1] = 1;
	must(weir_message_send(side[0].m, PLANE_NODE(2), TYPE_NOTE, buf, 8, PATIENT));
	await(side[2].notes == 2 && side[1].notes == 2 && side[3].notes == 1);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(side[i].wrong, 0);
		weir_messenger_close(side[i].m);
		weir_detach(side[i].w);
	}
	plane_stop(f);
	plane_destroy(f);
}

static void
test_restart(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	uint32_t buf[2] = {0, 0};
	struct both p;

	open_both(&p, NULL, NULL);
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, PATIENT));
	await(p.b.notes == 1);
	/* a responses's worth of waiting closes nothing early */
	weir_messenger_close(p.b.m);
	await(p.a.lost == 1);
	assert_int_equal(p.a.status, 0);
	assert_int_equal(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, PATIENT), -ECONNREFUSED);
	open_side(&p.b, &o);
	buf[1] = 1;
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, 8, PATIENT));
	await(p.a.created == 2 && p.b.notes == 2);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

static void *
send_until_heard(void *arg)
{
	struct both *p = arg;
	int rc = -ECONNREFUSED;

	while (rc == -ECONNREFUSED)
		rc = weir_message_send(p->a.m, B, TYPE_MUTE, "x", 1, PATIENT);
	return (void *)(intptr_t)rc;
}

struct early {
	const struct plane *f;
	uint32_t listens; /* when all handler threads are there */
	_Atomic uint32_t created, early;
};

static void
early_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	struct early *e = user;

	atomic_fetch_add(&e->early, plane_listens(e->f) < e->listens);
	atomic_fetch_add(&e->created, event == WEIR_LINK_CREATED);
}

/* Handler threads look at each other: none calls the program before all are there. */
static void
test_none_begins_alone(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_handler h = {.size = sizeof(h), .handle = mute};
	struct plane_options slow = message_plane;
	struct both p;
	pthread_t t;
	void *rc;

	slow.listen_ms = 50;
	open_both(&p, &slow, NULL);
	o.handler_threads = 4;
	o.receivers = 4;
	o.link = early_link;
	for (int i = 0; i < 3; i++) {
		struct early e = {.f = p.f, .listens = plane_listens(p.f) + 4};

		weir_messenger_close(p.b.m);
		assert_int_equal(pthread_create(&t, NULL, send_until_heard, &p), 0);
		o.user = &e;
		h.user = &p.b;
		must(weir_messenger_open(p.b.w, &o, &p.b.m));
		must(weir_message_register(p.b.m, TYPE_MUTE, &h));
		pthread_join(t, &rc);
		assert_int_equal((intptr_t)rc, 0);
		await(e.created > 0);
		assert_int_equal(e.early, 0);
		weir_messenger_close(p.b.m);
		p.b.m = NULL;
	}
	close_both(&p);
}

/* A messenger receives as soon as it listens, before all its handler threads have begun. */
static void
test_early(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct plane_options slow = message_plane;
	struct both p;
	pthread_t t;
	void *rc;

	o.handler_threads = 4;
	o.receivers = 4;
	slow.listen_ms = 10;
	open_both(&p, &slow, &o);
	for (int i = 0; i < 5; i++) {
		weir_messenger_close(p.b.m);
		assert_int_equal(pthread_create(&t, NULL, send_until_heard, &p), 0);
		open_side(&p.b, &o);
		pthread_join(t, &rc);
		assert_int_equal((intptr_t)rc, 0);
	}
	close_both(&p);
}

/* Each call that connects to this node fails so, and its reason has the text. */
static void
none_connects(struct both *p, uint16_t node, int error, const char *why)
{
	struct weir_draft d;
	uint64_t in;

	for (int call = 0; call < 4; call++) {
		int rc;

		weir_fail(0, "of an earlier call");
		if (!call)
			rc = weir_message_send(p->a.m, node, TYPE_NOTE, "x", 1, PATIENT);
		else if (call == 1)
			rc = weir_message_request(p->a.m, node, TYPE_ECHO, "x", 1, &in, 8, NULL,
						  PATIENT);
		else if (call == 2)
			rc = weir_message_reserve(p->a.m, node, TYPE_NOTE, 8, 0, PATIENT, &d);
		else
			rc = weir_message_connect(p->a.m, node, PATIENT);
		if (rc != error || !strstr(weir_reason(), why))
			fail_msg("call %d: %d: %s", call, rc, weir_reason());
	}
}

/* Why no connection to a node comes up is what the data plane says, cause and remedy. */
static void
test_no_way(void **state)
{
	static const char far[] = "node 15 has 10.97.0.2, which is not in 10.91.0.1/24; give both "
				  "a port in one network";
	struct both p;

	open_both(&p, NULL, NULL);
	fake_fail(p.f, PLANE_NODE(5), ENOSPC, NULL);
	none_connects(&p, PLANE_NODE(5), -ENOSPC, "raise its --links");
	fake_fail(p.f, PLANE_NODE(5), EHOSTUNREACH, far);
	none_connects(&p, PLANE_NODE(5), -EHOSTUNREACH, far);
	fake_fail(p.f, PLANE_NODE(5), 0, NULL);
	none_connects(&p, PLANE_NODE(5), -ECONNREFUSED, "no messenger of that name");
	close_both(&p);
}

/* Two programs of a node that send only, beside one that listens: none is taken for another. */
static void
test_clients(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_messenger *one, *two;
	uint64_t in, out = 5;
	struct weir_request r;
	struct both p;

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	o.flags = WEIR_MESSENGER_CLIENT;
	must(weir_messenger_open(p.a.w, &o, &one));
	must(weir_messenger_open(p.a.w, &o, &two));
	must(weir_request_start(one, &r, B, TYPE_KEEP, "x", 1, &in, 8, PATIENT));
	await(kept_count == 1);
	must(weir_message_request(two, B, TYPE_ECHO, "x", 1, &in, 8, NULL, PATIENT));
	ask(&p.a, B);
	ask(&p.b, A);
	await_looks(&p.b);
	must(weir_message_disconnect(p.a.m, B)); /* not theirs */
	assert_int_equal(stats_of(&p.b).lost, 0);
	must(weir_message_respond(p.b.m, &kept[0], &out, 8));
	must(weir_request_wait(&r, PATIENT));
	assert_int_equal(in, 5);
	/* the other end closes: they do, too */
	must(weir_message_disconnect(p.b.m, A));
	assert_int_equal(stats_of(&p.b).created, 1);
	must(weir_message_request(two, B, TYPE_ECHO, "x", 1, &in, 8, NULL, PATIENT));
	weir_messenger_close(one);
	weir_messenger_close(two);
	close_both(&p);
}

/* Closing in order waits for responses. */
static void *
disconnect(void *arg)
{
	return (void *)(intptr_t)weir_message_disconnect(((struct both *)arg)->a.m, B);
}

/* A draft that is neither sent nor abandoned: its connection ends with the messenger. */
static void
test_draft_left(void **state)
{
	struct weir_draft d;
	struct both p;

	open_both(&p, NULL, NULL);
	must(weir_message_reserve(p.a.m, B, TYPE_NOTE, 5000, 0, PATIENT, &d));
	await(p.b.created == 1);
	weir_messenger_close(p.a.m);
	p.a.m = NULL;
	await(p.b.lost == 1);
	close_both(&p);
}

static void
test_graceful(void **state)
{
	struct weir_request r;
	uint64_t in = 0, out = 7;
	struct both p;
	pthread_t t;
	void *rc;

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &r, B, TYPE_KEEP, "x", 1, &in, 8, PATIENT));
	/* the other way there is something too */
	must(weir_message_send(p.b.m, A, TYPE_MUTE, "x", 1, PATIENT));
	await(kept_count == 1 && p.a.notes == 1);
	assert_int_equal(pthread_create(&t, NULL, disconnect, &p), 0);
	stays(p.a.lost == 0);
	must(weir_message_respond(p.b.m, &kept[0], &out, 8));
	must(weir_request_wait(&r, PATIENT));
	assert_int_equal(in, 7);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, 0);
	await(p.a.lost == 1 && p.b.lost == 1);
	close_both(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_death),    cmocka_unit_test(test_least_recent),
	    cmocka_unit_test(test_restart),  cmocka_unit_test(test_early),
	    cmocka_unit_test(test_clients),  cmocka_unit_test(test_draft_left),
	    cmocka_unit_test(test_graceful), cmocka_unit_test(test_data_plane),
	    cmocka_unit_test(test_driven),   cmocka_unit_test(test_none_begins_alone),
	    cmocka_unit_test(test_no_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
