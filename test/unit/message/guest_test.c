/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the program that receive, and lanes to them. */
#include "worlds/process_pair.h"

#include <poll.h>

static const uint32_t lengths[] = {0, 1, 40, 60, 900, 5000, 8120, 70000, WEIR_MESSAGE_WHOLE};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* Its messages wait for the thread, which takes them in order, and no handler thread does. */
TEST(test_own_thread)
{
	struct message_lane *lane, *other;
	struct process_pair p;
	uint32_t n = 0;

	open_processes(&p, &message_plane, 2);
	must(message_enter(p.b.m, 3));
	lane = open_lane(&p.a, 1, 3);
	other = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	must(post(lane, KIND_COUNT, n++, 8));
	must(post(other, KIND_COUNT, 0, 8));
	await(p.b.taken[GUESTS] == 1);
	assert_int_equal(p.b.enters, -EDEADLK);
	stays(p.b.taken[3] == 0);
	drive(&p.b, p.b.taken[3] == 1);
	for (unsigned i = 0; i < 20 * LENGTHS; i++) {
		must(post(lane, KIND_COUNT, n++, lengths[i % LENGTHS]));
		if (n % 4 == 0 || lengths[i % LENGTHS] > 5000)
			drive(&p.b, p.b.taken[3] == n);
	}
	drive(&p.b, p.b.taken[3] == n);
	assert_true(p.b.by[3] == pthread_self());
	assert_false(p.b.by[GUESTS] == pthread_self());
	assert_int_equal(p.b.nested, -EDEADLK);
	assert_int_equal(p.b.enters, -EDEADLK);
	assert_int_equal(post(lane, KIND_COUNT, n, WEIR_MESSAGE_WHOLE + 1), -EMSGSIZE);
	assert_int_equal(p.b.wrong + p.a.ends, 0);
	message_lane_close(other);
	message_lane_close(lane);
	must(message_leave(p.b.m));
	close_processes(&p);
}

/* A guest does not help handler threads, however long their functions take. */
TEST(test_no_help)
{
	struct message_lane *lane[3], *guest;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	atomic_store(&p.b.holds, 1);
	lane[0] = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	must(post(lane[0], KIND_ASK, 0, 8));
	await(p.b.held == 1);
	lane[1] = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	must(post(lane[1], KIND_ASK, 1, 8));
	guest = open_lane(&p.a, 1, 0);
	for (uint32_t i = 0; i < 50; i++) {
		must(post(guest, KIND_COUNT, i, 8));
		drive(&p.b, p.b.taken[0] == i + 1);
		nap(1);
	}
	assert_int_equal(p.b.taken[GUESTS], 1);
	atomic_store(&p.b.go, 1);
	await(p.b.taken[GUESTS] == 2);
	close_processes(&p);
}

struct taker {
	struct process *s;
	uint32_t guest, most;
	bool leaves;
	int rc;
	pthread_t thread;
	_Atomic bool entered, over;
};

static void *
take_all(void *arg)
{
	struct taker *t = arg;

	t->rc = message_enter(t->s->m, t->guest);
	atomic_store(&t->entered, true);
	while (!t->rc && t->s->taken[t->guest] < t->most && !atomic_load(&t->over))
		if (weir_messenger_progress(t->s->m, 0, 20) < 0)
			fatal("progress", -1);
	if (!t->rc && t->leaves)
		must(message_leave(t->s->m));
	return NULL;
}

static void
start_taker(struct taker *t)
{
	assert_int_equal(pthread_create(&t->thread, NULL, take_all, t), 0);
	await(t->entered);
}

/* The worker is the program's: its events stay. */
TEST(test_node_events)
{
	struct weir_node_event *news = calloc(1, sizeof(*news));
	struct message_lane *lane;
	struct weir_thread *t;
	struct process_pair p;
	struct weir_event e;
	int rc = 0;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	t = weir_thread_own(p.b.w, &rc);
	assert_non_null(t);
	weir_lock(t);
	free(t->nodes);
	news->node = 77;
	t->nodes = news;
	t->node_count = t->node_room = 1;
	weir_unlock(t);
	lane = open_lane(&p.a, 1, 0);
	must(post(lane, KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[0] == 1);
	assert_int_equal(weir_poll(p.b.w, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_NODE);
	close_processes(&p);
}

/* Each of several takes its own, asleep until something comes. */
TEST(test_several)
{
	struct taker t[GUESTS] = {0};
	struct message_lane *lane[GUESTS];
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	for (uint32_t i = 0; i < GUESTS; i++) {
		t[i] = (struct taker){.s = &p.b, .guest = i, .most = 1000, .leaves = true};
		start_taker(&t[i]);
		must(t[i].rc);
		lane[i] = open_lane(&p.a, 1, i);
	}
	for (uint32_t n = 0; n < 1000; n++)
		for (uint32_t i = 0; i < GUESTS; i++)
			must(post(lane[i], KIND_COUNT, n, (n * 7 + i) % 1200));
	for (uint32_t i = 0; i < GUESTS; i++) {
		pthread_join(t[i].thread, NULL);
		assert_int_equal(p.b.taken[i], 1000);
		assert_true(p.b.by[i] == t[i].thread);
	}
	assert_int_equal(p.b.wrong, 0);
	close_processes(&p);
}

/* The thread arms the descriptor, and what comes from then on makes it readable. */
TEST(test_descriptor)
{
	struct message_lane *lane;
	struct process_pair p;
	struct pollfd fd;
	unsigned busy;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 1));
	lane = open_lane(&p.a, 1, 1);
	fd = (struct pollfd){.fd = weir_messenger_fd(p.b.m), .events = POLLIN};
	for (uint32_t i = 0; i < 5; i++) {
		for (busy = 0; weir_messenger_arm(p.b.m) || poll(&fd, 1, 0); busy++) {
			if (busy == PATIENT)
				fail_msg("never sleeps");
			if (!weir_messenger_progress(p.b.m, 0, 0))
				nap(1);
		}
		must(post(lane, KIND_COUNT, i, 8));
		while (p.b.taken[1] == i) {
			if (poll(&fd, 1, PATIENT) != 1)
				fail_msg("slept until the end");
			do
				weir_messenger_progress(p.b.m, 0, 0);
			while (p.b.taken[1] == i && weir_messenger_arm(p.b.m));
		}
	}
	close_processes(&p);
}

TEST(test_enter)
{
	struct taker t;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	assert_int_equal(message_enter(p.b.m, GUESTS), -EINVAL);
	assert_int_equal(message_leave(p.b.m), -ENOENT);
	must(message_enter(p.b.m, 1));
	assert_int_equal(message_enter(p.b.m, 1), -EALREADY);
	assert_int_equal(message_enter(p.b.m, 2), -EALREADY);
	t = (struct taker){.s = &p.b, .guest = 1};
	start_taker(&t);
	pthread_join(t.thread, NULL);
	assert_int_equal(t.rc, -EBUSY);
	/* a thread that failed to enter has changed nothing */
	must(message_leave(p.b.m));
	must(message_enter(p.b.m, 1));
	must(message_leave(p.b.m));
	/* a name that another program has */
	{
		struct weir_listener *l;

		must(weir_listen(p.b.w, "calls.1.t2", 0, &l));
		assert_int_equal(message_enter(p.b.m, 2), -EADDRINUSE);
		weir_listener_close(l);
		must(message_enter(p.b.m, 2));
	}
	close_processes(&p);
}

/* A receiver that leaves, or whose thread ends: lanes to it end, and go on to its successor. */
TEST(test_leave)
{
	struct message_lane *lane, *stays_open;
	struct process_pair p;
	struct taker t;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	stays_open = open_lane(&p.a, 1, 0);
	must(post(stays_open, KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[0] == 1);
	lane = open_lane(&p.a, 1, 2);
	assert_int_equal(post(lane, KIND_COUNT, 0, 8), -ECONNREFUSED);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t ends = p.a.ends;

		t = (struct taker){.s = &p.b, .guest = 2, .most = i + 1, .leaves = i % 2};
		start_taker(&t);
		must(t.rc);
		must(post(lane, KIND_COUNT, i, 8));
		pthread_join(t.thread, NULL);
		await(p.a.ends == ends + 1);
		assert_int_equal(p.a.status, -EHOSTUNREACH);
		assert_int_equal(post(lane, KIND_COUNT, i, 8), -ECONNREFUSED);
	}
	assert_int_equal(p.b.taken[2], 4);
	/* the other receiver's lane has not noticed */
	must(post(stays_open, KIND_COUNT, 1, 8));
	drive(&p.b, p.b.taken[0] == 2);
	assert_int_equal(p.b.wrong, 0);
	assert_int_equal(stats_of(&(struct side){.m = p.a.m}).lost, 0);
	close_processes(&p);
}

static uint32_t
former_lanes(struct process *s)
{
	struct lane *lane;
	uint32_t n = 0;

	pthread_mutex_lock(&s->m->lock);
	SLIST_FOREACH(lane, &s->m->former, spare)
	n++;
	pthread_mutex_unlock(&s->m->lock);
	return n;
}

/* Memory of connections is used again by the next guest of the thread. */
TEST(test_leave_often)
{
	struct message_lane *lane[GUESTS];
	struct process_pair p;
	uint32_t ends = 0;

	open_processes(&p, &message_plane, 1);
	for (uint32_t i = 0; i < GUESTS; i++)
		lane[i] = open_lane(&p.a, 1, i);
	for (uint32_t i = 0; i < 3 * GUESTS; i++) {
		must(message_enter(p.b.m, i % GUESTS));
		must(post(lane[i % GUESTS], KIND_COUNT, i / GUESTS, 8));
		drive(&p.b, p.b.taken[i % GUESTS] == i / GUESTS + 1);
		must(message_leave(p.b.m));
		ends++;
		await(p.a.ends == ends);
		assert_int_equal(former_lanes(&p.b), 1);
	}
	close_processes(&p);
}

/* Messages that nobody has taken when the receiver leaves. */
TEST(test_leave_early)
{
	struct message_lane *lane;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	lane = open_lane(&p.a, 1, 0);
	must(post(lane, KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[0] == 1);
	for (uint32_t i = 0; i < 10; i++)
		must(post(lane, KIND_COUNT, 1 + i, 8));
	must(message_leave(p.b.m));
	await(p.a.ends == 1);
	assert_int_equal(p.a.status, -EHOSTUNREACH);
	assert_int_equal(p.b.taken[0], 1);
	must(message_enter(p.b.m, 0));
	must(post(lane, KIND_COUNT, 1, 8));
	drive(&p.b, p.b.taken[0] == 2);
	assert_int_equal(p.b.wrong, 0);
	close_processes(&p);
}

static void *
disconnect(void *arg)
{
	return (void *)(intptr_t)weir_message_disconnect(arg, 1);
}

/* The receiver takes nothing until the time to close in order is over: that is told. */
TEST(test_late)
{
	struct message_lane *lane;
	struct process_pair p;
	pthread_t closing;
	struct peer *peer;
	bool begun = false;
	void *rc;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	lane = open_lane(&p.a, 1, 0);
	must(post(lane, KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[0] == 1);
	must(post(lane, KIND_COUNT, 1, 8));
	assert_int_equal(pthread_create(&closing, NULL, disconnect, p.a.m), 0);
	for (unsigned i = 0; !begun; i++) {
		pthread_mutex_lock(&p.a.m->lock);
		peer = p.a.m->peers[0][1];
		begun = peer->stepping;
		if (begun)
			peer->deadline = 0;
		pthread_mutex_unlock(&p.a.m->lock);
		if (i == PATIENT)
			fail_msg("never closes");
		nap(1);
	}
	pthread_join(closing, &rc);
	assert_int_equal((intptr_t)rc, -ETIMEDOUT);
	assert_int_equal(p.a.ends, 1);
	assert_int_equal(p.a.status, -EHOSTUNREACH);
	close_processes(&p);
}

/* The receiver over there takes nothing meanwhile: handler threads hear that they have to close,
 * and their lanes end in order. */
TEST(test_bye_beside_guest)
{
	struct message_lane *lane, *back;
	struct process_pair p;
	pthread_t closing;
	void *rc;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	/* the only one that leads there leads to the guest */
	lane = open_lane(&p.a, 1, 0);
	must(post(lane, KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[0] == 1);
	back = open_lane(&p.b, 0, MESSAGE_HANDLERS);
	must(post(back, KIND_COUNT, 0, 8));
	await(p.a.taken[GUESTS] == 1);
	assert_int_equal(pthread_create(&closing, NULL, disconnect, p.a.m), 0);
	await(p.b.ends == 1);
	assert_int_equal(p.b.status, 0);
	drive(&p.b, p.a.ends == 1);
	assert_int_equal(p.a.status, 0);
	pthread_join(closing, &rc);
	assert_int_equal((intptr_t)rc, 0);
	/* its own thread would wait for itself */
	must(post(back, KIND_COUNT, 1, 8));
	assert_int_equal(weir_message_disconnect(p.b.m, 0), -EDEADLK);
	must(message_leave(p.b.m));
	must(weir_message_disconnect(p.b.m, 0));
	assert_int_equal(p.a.taken[GUESTS], 2);
	assert_int_equal(p.b.wrong + p.a.wrong, 0);
	close_processes(&p);
}

/* A thread that receives waits for nothing that it has yet to take itself. */
TEST(test_own_process)
{
	struct message_lane *own, *lane;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	pthread_mutex_lock(&p.b.m->lock);
	p.b.m->o.connections = 1;
	pthread_mutex_unlock(&p.b.m->lock);
	must(message_enter(p.b.m, 0));
	own = open_lane(&p.b, 1, 0);
	must(post(own, KIND_COUNT, 0, 8));
	lane = open_lane(&p.b, 0, MESSAGE_HANDLERS);
	must(post(lane, KIND_COUNT, 0, 8));
	must(post(own, KIND_COUNT, 1, 8));
	drive(&p.b, p.b.taken[0] == 2);
	await(p.a.taken[GUESTS] == 1);
	assert_int_equal(stats_of(&(struct side){.m = p.b.m}).evicted, 0);
	assert_int_equal(p.b.ends + p.b.wrong, 0);
	close_processes(&p);
}

/* Replies of any length come back to the lane, until it is closed. */
TEST(test_replies)
{
	struct message_lane *lane;
	struct process_pair p;
	uint32_t n = 0;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	lane = open_lane(&p.a, 1, 0);
	for (unsigned i = 0; i < LENGTHS; i++) {
		must(post(lane, KIND_ASK, n++, lengths[i]));
		drive(&p.b, p.b.taken[0] == n);
		drive(&p.a, p.a.replies == n);
	}
	must(post(lane, KIND_ASK, n++, 8));
	atomic_store(&p.b.deserted, true);
	message_lane_close(lane);
	drive(&p.b, p.b.taken[0] == n);
	await_looks(&(struct side){.m = p.a.m});
	assert_int_equal(p.a.replies, n - 1);
	assert_int_equal(p.a.ends + p.a.wrong + p.b.wrong, 0);
	close_processes(&p);
}

/* Written in place. */
TEST(test_drafts)
{
	struct message_tag tag = {.kind = KIND_COUNT};
	struct message_lane *lane;
	struct weir_draft draft;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 0));
	lane = open_lane(&p.a, 1, 0);
	for (tag.value = 0; tag.value < 20; tag.value++) {
		must(message_lane_reserve(lane, 8120, PATIENT, &draft));
		for (uint32_t i = 0; i < 8120; i++)
			((uint8_t *)draft.data)[i] = (uint8_t)(tag.value + i);
		assert_int_equal(message_lane_commit(lane, &draft, 8121, &tag, PATIENT), -EINVAL);
		must(message_lane_commit(lane, &draft, 400 * tag.value, &tag, PATIENT));
		must(message_lane_reserve(lane, 100, PATIENT, &draft));
		weir_message_abandon(p.a.m, &draft);
		drive(&p.b, p.b.taken[0] == tag.value + 1);
	}
	assert_int_equal(message_lane_reserve(lane, WEIR_MESSAGE_WHOLE + 1, 0, &draft), -EMSGSIZE);
	/* the draft of a program is none of a model */
	must(weir_message_reserve(p.a.m, 1, 0, 100, 0, PATIENT, &draft));
	assert_int_equal(message_lane_commit(lane, &draft, 8, &tag, PATIENT), -EINVAL);
	weir_message_abandon(p.a.m, &draft);
	/* nor the other way round */
	must(message_lane_reserve(lane, 100, PATIENT, &draft));
	assert_int_equal(weir_message_commit(p.a.m, &draft, 8, PATIENT), -EINVAL);
	weir_message_abandon(p.a.m, &draft);
	assert_int_equal(p.b.wrong, 0);
	assert_int_equal(stats_of(&(struct side){.m = p.b.m}).unknown, 0);
	close_processes(&p);
}

/* A thread that shares its connections with others ends: its lanes end, and theirs go on. */
static void *
post_once(void *arg)
{
	struct message_lane *lane = open_lane(arg, 1, MESSAGE_HANDLERS);

	must(post(lane, KIND_COUNT, 1, 8));
	return NULL;
}

TEST(test_shared_sender)
{
	struct message_lane *lane;
	struct process_pair p;
	pthread_t thread;

	open_processes(&p, &message_plane, 1);
	pthread_mutex_lock(&p.a.m->lock);
	p.a.m->o.lanes = 1;
	pthread_mutex_unlock(&p.a.m->lock);
	lane = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	must(post(lane, KIND_COUNT, 0, 8));
	await(p.b.taken[GUESTS] == 1);
	assert_int_equal(pthread_create(&thread, NULL, post_once, &p.a), 0);
	pthread_join(thread, NULL);
	await(p.a.ends == 1);
	assert_int_equal(p.a.status, 0);
	must(post(lane, KIND_COUNT, 2, 8));
	await(p.b.taken[GUESTS] == 3);
	assert_int_equal(p.a.ends + p.b.wrong, 1);
	close_processes(&p);
}

/* Without handler threads the thread that opened may be a guest, too; processes of one node. */
TEST(test_driven)
{
	struct plane_options plane = message_plane;
	struct message_lane *lane[3];
	struct process_pair p;
	pthread_t closing;

	plane.nodes = false;
	open_processes(&p, &plane, 0);
	must(message_enter(p.b.m, 0));
	lane[0] = open_lane(&p.a, 1, 0);
	lane[1] = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	lane[2] = open_lane(&p.a, 0, MESSAGE_HANDLERS); /* to itself */
	for (uint32_t i = 0; i < 200; i++) {
		must(post(lane[0], KIND_COUNT, i, i));
		must(post(lane[1], KIND_COUNT, i, i));
		must(post(lane[2], KIND_COUNT, i, i));
		if (i % 10 == 9) {
			drive(&p.b, p.b.taken[0] == i + 1 && p.b.taken[GUESTS] == i + 1);
			drive(&p.a, p.a.taken[GUESTS] == i + 1);
		}
	}
	assert_int_equal(p.a.wrong + p.b.wrong, 0);
	assert_int_equal(p.b.nested, -EDEADLK);
	closing = close_beside(p.a.m);
	drive(&p.b, stats_of(&(struct side){.m = p.b.m}).lost == 1);
	pthread_join(closing, NULL);
	p.a.m = NULL;
	close_processes(&p);
}

int
main(void)
{
	return test_run();
}
