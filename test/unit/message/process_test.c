/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that end and start again, and connections that say what no process would. */
#include "worlds/process_pair.h"

/* Everything of a HELLO to a receiver of process 1. */
struct raw {
	struct message_header h;
	struct message_hello hello;
	struct message_hello_process process;
	char secret[sizeof(SECRET)];
} __attribute__((packed));
/* The same of the end that was connected to. */
struct raw_back {
	struct message_header h;
	struct message_hello_process process;
	char secret[sizeof(SECRET)];
} __attribute__((packed));

static struct raw
raw_of(uint32_t process, uint32_t receiver)
{
	struct raw r = {.h = {.kind = KIND_HELLO,
			      .type = MESSAGE_VERSION,
			      .status = MESSAGE_HELLO_STATUS(1, MESSAGE_VERSION),
			      .id = 77},
			.hello = {.key = 5},
			.process = {process, receiver},
			.secret = SECRET};

	return r;
}

static struct weir_conn *
connect_to(struct weir *w, uint16_t node, const char *service)
{
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE, .id = node};
	struct weir_conn *c;

	snprintf(a.service, sizeof(a.service), "%s", service);
	must(weir_connect(w, &a, PATIENT, &c));
	return c;
}

static struct weir_messenger_stats
stats(const struct process *s)
{
	return stats_of(&(struct side){.m = s->m});
}

/* Connections to the handler threads of process 1, and to its guest 2, which this thread is. */
static const char *const names[] = {"calls.1", "calls.1.t2"};
static const uint32_t receivers[] = {MESSAGE_HANDLERS, 2};

static uint32_t
taken_by(const struct process *s, unsigned i)
{
	return s->taken[receiver_index(receivers[i])];
}

/* Until its program has closed it. Returns how many bytes that has said, and the first ones. */
static size_t
drive_end_in(struct process *s, struct weir_conn *c, uint8_t in[256])
{
	size_t n, all = 0;
	int rc;

	do {
		drive(s, (rc = weir_recv(c, in + all, 256 - all, &n, 0)) != -EAGAIN);
		all += rc ? 0 : n;
	} while (!rc);
	weir_close(c);
	return all;
}

static size_t
drive_end(struct process *s, struct weir_conn *c)
{
	uint8_t in[256];

	return drive_end_in(s, c, in);
}

/* A HELLO that is wrong in one place ends its connection, and nothing else. */
TEST(test_hello)
{
	const struct message_tag tag = {.kind = KIND_COUNT, .value = 2};
	struct weir_conn *good[2] = {NULL};
	struct message_lane *lane[2];
	struct message_header h;
	struct process_pair p;
	struct raw_back back;
	uint64_t bad = 0;
	uint8_t in[256];
	uint32_t asked;
	size_t said;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 2));
	for (unsigned i = 0; i < 2; i++) {
		lane[i] = open_lane(&p.a, 1, receivers[i]);
		must(post(lane[i], KIND_COUNT, 0, 8));
		drive(&p.b, taken_by(&p.b, i) == 1);
	}
	for (unsigned i = 0; i < 2 * 11; i++) {
		struct raw r = raw_of(0, receivers[i % 2]);
		size_t length = sizeof(r);
		struct weir_conn *c = connect_to(p.a.w, PLANE_NODE(1), names[i % 2]);

		asked = p.b.greetings;
		r.h.id = p.a.m->incarnation;
		switch (i / 2) {
		case 0: /* no part of processes, as programs say */
			length = sizeof(r.h) + sizeof(r.hello);
			break;
		case 1: /* part of it */
			length = sizeof(r.h) + sizeof(r.hello) + sizeof(r.process) - 1;
			break;
		case 2: /* no such process */
			r.process.process = 3;
			break;
		case 3: /* a number that ends in that of one */
			r.process.process = 1u << 16;
			break;
		case 4: /* a process of another node */
			r.process.process = 2;
			break;
		case 5: /* to another receiver */
			r.process.receiver = 1;
			break;
		case 6: /* of another group */
			r.secret[0] ^= 1;
			break;
		case 7: /* no secret */
			length -= sizeof(r.secret);
			break;
		case 8: /* twice */
			must(weir_send(c, &r, length, PATIENT));
			break;
		case 9: /* a version that nobody speaks yet */
			r.h.type = MESSAGE_VERSION + 1;
			r.h.status = MESSAGE_HELLO_STATUS(1, MESSAGE_VERSION + 1);
			break;
		default: /* nothing is */
			good[i % 2] = c;
		}
		must(weir_send(c, &r, length, PATIENT));
		if (good[i % 2])
			continue;
		said = drive_end_in(&p.b, c, in);
		/* its own hello is for those that have said theirs; versions tell others why */
		assert_int_equal(said, i / 2 == 8   ? sizeof(struct raw_back)
				       : i / 2 == 9 ? HEADER_LONG
						    : 0);
		if (i / 2 == 9) {
			memcpy(&h, in, sizeof(h));
			assert_int_equal(message_hello_versions(&h).highest, MESSAGE_VERSION);
		}
		bad++;
		drive(&p.b, stats(&p.b).malformed == bad);
		/* the model is not asked about what cannot be */
		if (i / 2 <= 5)
			assert_int_equal(p.b.greetings, asked);
	}
	for (unsigned i = 0; i < 2; i++) {
		must(post(lane[i], KIND_COUNT, 1, 8));
		drive(&p.b, taken_by(&p.b, i) == 2);
	}
	for (unsigned i = 0; i < 2; i++) {
		must(weir_send(good[i], &tag, HEADER_SHORT, PATIENT));
		drive(&p.b, taken_by(&p.b, i) == 3);
		must(weir_recv(good[i], &back, sizeof(back), &said, PATIENT));
		assert_int_equal(said, sizeof(back));
		assert_memory_equal(back.secret, SECRET, sizeof(SECRET));
		weir_close(good[i]);
	}
	assert_int_equal(p.a.ends + p.b.wrong, 0);
	assert_int_equal(stats(&p.b).lost + stats(&p.b).evicted, 0);
	assert_int_equal(stats(&p.b).created, 1);
	close_processes(&p);
}

/* Messages that are none, before HELLO or after it. */
TEST(test_messages)
{
	static const uint8_t kinds[] = {0, KIND_BYE + 1, KIND_MODEL - 1, KIND_RESPONSE,
					KIND_REFUSE};
	struct process_pair p;
	uint64_t bad = 0;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 2));
	for (unsigned i = 0; i < 2 * sizeof(kinds); i++) {
		struct raw r = raw_of(0, receivers[i % 2]);
		struct weir_conn *c = connect_to(p.a.w, PLANE_NODE(1), names[i % 2]);
		struct message_header h = {.kind = kinds[i / 2]};

		must(weir_send(c, &r, sizeof(r), PATIENT));
		must(weir_send(c, &h, HEADER_LONG, PATIENT));
		drive_end(&p.b, c);
		bad++;
		drive(&p.b, stats(&p.b).malformed == bad);
	}
	for (unsigned i = 0; i < 4; i++) {
		struct message_header h = {.kind = KIND_ASK};
		struct raw r = raw_of(0, receivers[i % 2]);
		struct weir_conn *c = connect_to(p.a.w, PLANE_NODE(1), names[i % 2]);

		/* without HELLO; shorter than a head */
		if (i >= 2)
			must(weir_send(c, &r, sizeof(r), PATIENT));
		must(weir_send(c, &h, i < 2 ? HEADER_SHORT : HEADER_SHORT - 1, PATIENT));
		drive_end(&p.b, c);
		bad++;
		drive(&p.b, stats(&p.b).malformed == bad);
	}
	assert_int_equal(taken_by(&p.b, 0) + taken_by(&p.b, 1), 0);
	/* those of programs reach nobody, and harm nobody */
	for (unsigned i = 0; i < 2; i++) {
		struct message_header h = {.kind = KIND_MESSAGE};
		struct raw r = raw_of(0, receivers[i]);
		struct weir_conn *c = connect_to(p.a.w, PLANE_NODE(1), names[i]);

		must(weir_send(c, &r, sizeof(r), PATIENT));
		must(weir_send(c, &h, HEADER_SHORT, PATIENT));
		drive(&p.b, stats(&p.b).unknown == 1 + 3 * i);
		h.kind = KIND_REQUEST;
		must(weir_send(c, &h, HEADER_LONG, PATIENT));
		drive(&p.b, stats(&p.b).unknown == 2 + 3 * i);
		must(raw_piece(
		    c, &(struct message_header){.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE},
		    2 * WEIR_MESSAGE_WHOLE, 0, 100));
		drive(&p.b, stats(&p.b).unknown == 3 + 3 * i);
		h.kind = KIND_ASK;
		must(weir_send(c, &h, HEADER_SHORT, PATIENT));
		drive(&p.b, taken_by(&p.b, i) == 1);
		assert_true(raw_lives(c));
		weir_close(c);
	}
	close_processes(&p);
}

#define HELLO_MAX (64u << 10)

/* A HELLO and a message that are a byte too long do not reach the model. */
TEST(test_too_long)
{
	static uint8_t bytes[HEADER_SHORT + WEIR_MESSAGE_WHOLE + 1];
	const struct message_tag tag = {.kind = KIND_ASK};
	struct process_pair p;
	uint64_t bad = 0;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 2));
	for (unsigned i = 0; i < 2 * 2; i++) {
		struct raw r = raw_of(0, receivers[i % 2]);
		struct weir_conn *c = connect_to(p.a.w, PLANE_NODE(1), names[i % 2]);

		if (i < 2) {
			memcpy(bytes, &r, sizeof(r));
			must(weir_send(c, bytes, sizeof(r) - sizeof(r.secret) + HELLO_MAX + 1,
				       PATIENT));
		} else {
			must(weir_send(c, &r, sizeof(r), PATIENT));
			memcpy(bytes, &tag, sizeof(tag));
			must(weir_send(c, bytes, sizeof(bytes), PATIENT));
		}
		drive_end(&p.b, c);
		bad++;
		drive(&p.b, stats(&p.b).malformed == bad);
	}
	assert_int_equal(p.b.longest, sizeof(SECRET));
	assert_int_equal(taken_by(&p.b, 0) + taken_by(&p.b, 1), 0);
	close_processes(&p);
}

static uint32_t
strangers_of(const struct process *s)
{
	uint32_t n;

	pthread_mutex_lock(&s->m->lock);
	n = s->m->strangers->incoming;
	pthread_mutex_unlock(&s->m->lock);
	return n;
}

/* The limit of connected processes. Returns how many there are. */
static uint32_t
limit(const struct process *s, uint32_t connections)
{
	uint32_t n;

	pthread_mutex_lock(&s->m->lock);
	s->m->o.connections = connections;
	n = s->m->connected;
	pthread_mutex_unlock(&s->m->lock);
	return n;
}

/* A node without a process of the group; and strangers, which take no place of processes. */
TEST(test_strangers)
{
	struct weir_conn *c, *silent[20];
	struct message_lane *lane;
	struct process_pair p;
	struct weir *other;

	open_processes(&p, &message_plane, 1);
	other = plane_attach(p.f);
	lane = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	must(post(lane, KIND_COUNT, 0, 8));
	await(p.b.taken[GUESTS] == 1);
	c = connect_to(other, PLANE_NODE(1), names[0]);
	drive_end(&p.b, c);
	assert_int_equal(limit(&p.b, 1), 1);
	for (unsigned i = 0; i < 20; i++)
		silent[i] = connect_to(p.a.w, PLANE_NODE(1), names[0]);
	await(strangers_of(&p.b) == 20);
	assert_int_equal(limit(&p.b, 1), 1);
	for (unsigned i = 0; i < 20; i++)
		assert_true(raw_lives(silent[i]));
	must(post(lane, KIND_COUNT, 1, 8));
	await(p.b.taken[GUESTS] == 2);
	assert_int_equal(stats(&p.b).evicted + p.a.ends, 0);
	for (unsigned i = 0; i < 20; i++)
		weir_close(silent[i]);
	limit(&p.b, 10000);
	weir_detach(other);
	close_processes(&p);
}

/* Strangers that stay silent end, and only a bounded number is let in. */
TEST(test_silent)
{
	struct weir_conn *c[3];
	struct message_lane *lane;
	struct process_pair p;
	struct lane *stranger;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 2));
	for (unsigned i = 0; i < 2; i++)
		c[i] = connect_to(p.a.w, PLANE_NODE(1), names[i]);
	drive(&p.b, strangers_of(&p.b) == 2);
	await_looks(&(struct side){.m = p.b.m});
	for (unsigned i = 0; i < 2; i++)
		assert_true(raw_lives(c[i]));
	pthread_mutex_lock(&p.b.m->lock);
	TAILQ_FOREACH(stranger, &p.b.m->strangers->lanes, in_peer)
	stranger->accepted -= LEAVE_NS;
	pthread_mutex_unlock(&p.b.m->lock);
	drive(&p.b, !strangers_of(&p.b));
	for (unsigned i = 0; i < 2; i++)
		drive_end(&p.b, c[i]);
	/* as if there were as many as may be, but for one */
	pthread_mutex_lock(&p.b.m->lock);
	p.b.m->strangers->incoming += STRANGERS_MAX - 1;
	pthread_mutex_unlock(&p.b.m->lock);
	for (unsigned i = 0; i < 3; i++) {
		c[i] = connect_to(p.a.w, PLANE_NODE(1), names[0]);
		if (!i)
			await(strangers_of(&p.b) == STRANGERS_MAX);
	}
	for (unsigned i = 1; i < 3; i++)
		raw_end(c[i]);
	assert_true(raw_lives(c[0]));
	pthread_mutex_lock(&p.b.m->lock);
	p.b.m->strangers->incoming -= STRANGERS_MAX - 1;
	pthread_mutex_unlock(&p.b.m->lock);
	weir_close(c[0]);
	/* and processes are let in again */
	lane = open_lane(&p.a, 1, 2);
	must(post(lane, KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[2] == 1);
	close_processes(&p);
}

/* A messenger that closes says good-bye to a connection that has said nothing yet, and takes what
 * its process sends before it goes. */
TEST(test_close_beside_stranger)
{
	const struct message_tag said = {.kind = KIND_COUNT};
	struct raw r = raw_of(0, MESSAGE_HANDLERS);
	struct message_header in = {0};
	struct process_pair p;
	struct weir_conn *c;
	pthread_t closing;
	uint8_t buf[256];
	size_t n;

	open_processes(&p, &message_plane, 1);
	c = connect_to(p.a.w, PLANE_NODE(1), names[0]);
	await(strangers_of(&p.b) == 1);
	closing = close_beside(p.b.m);
	while (in.kind != KIND_BYE) {
		must(weir_recv(c, buf, sizeof(buf), &n, PATIENT));
		memcpy(&in, buf, sizeof(in));
	}
	must(weir_send(c, &r, sizeof(r), PATIENT));
	must(weir_send(c, &said, sizeof(said), PATIENT));
	must(weir_shutdown(c));
	raw_end(c);
	pthread_join(closing, NULL);
	assert_int_equal(p.b.taken[GUESTS], 1);
	p.b.m = NULL;
	close_processes(&p);
}

/* The end that listens says what it is not, or replies before it has said anything. */
TEST(test_false_receiver)
{
	struct weir_listener *l;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	must(weir_listen(p.b.w, "calls.1.t0", 0, &l));
	for (unsigned i = 0; i < 7; i++) {
		struct message_lane *lane = open_lane(&p.a, 1, 0);
		struct raw_back r = {.h = raw_of(1, 0).h, .process = {1, 0}, .secret = SECRET};
		struct message_header reply = {.kind = KIND_ASK};
		struct weir_conn *c;

		must(post(lane, KIND_ASK, 0, 8));
		must(weir_accept(l, PATIENT, &c));
		r.process.process = i == 0 ? 2 : 1;
		r.process.receiver = i == 1 ? MESSAGE_HANDLERS : 0;
		r.secret[0] = i == 2 ? 'x' : r.secret[0];
		reply.kind = i == 3 ? KIND_REFUSE : i == 4 ? KIND_MODEL - 1 : KIND_ASK;
		if (i != 5)
			must(weir_send(c, &r, sizeof(r), PATIENT));
		if (i > 2)
			must(weir_send(c, &reply, i == 6 ? HEADER_SHORT - 1 : HEADER_SHORT,
				       PATIENT));
		drive(&p.a, p.a.ends == i + 1);
		assert_int_equal(p.a.status, -EPROTO);
		raw_end(c);
		message_lane_close(lane);
	}
	assert_int_equal(p.a.replies, 0);
	weir_listener_close(l);
	close_processes(&p);
}

/* A process dies: lanes to it end. Another one in its place gets the next messages. */
TEST(test_restart)
{
	struct plane_options plane = message_plane;
	struct message_lane *lane[2];
	struct process_pair p;
	struct process next = {0};

	plane.nodes = false;
	open_processes(&p, &plane, 1);
	must(message_enter(p.b.m, 2));
	for (unsigned i = 0; i < 2; i++) {
		lane[i] = open_lane(&p.a, 1, receivers[i]);
		must(post(lane[i], KIND_COUNT, 0, 8));
		drive(&p.b, taken_by(&p.b, i) == 1);
	}
	/* and a lane back: a sees who is there */
	must(post(open_lane(&p.b, 0, MESSAGE_HANDLERS), KIND_COUNT, 0, 8));
	await(p.a.taken[GUESTS] == 1);
	plane_die(p.f, p.b.w);
	drive(&p.a, p.a.ends == 2);
	assert_int_equal(p.a.status, -EHOSTUNREACH);
	await(stats(&p.a).lost == 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(post(lane[i], KIND_COUNT, 0, 8), -ECONNREFUSED);
	weir_lost(p.b.w);
	next.w = plane_attach(p.f);
	open_process(&p, &next, 1, 1);
	must(message_enter(next.m, 2));
	for (unsigned i = 0; i < 2; i++) {
		must(post(lane[i], KIND_COUNT, 0, 8));
		drive(&next, taken_by(&next, i) == 1);
	}
	assert_int_equal(next.wrong + p.a.wrong, 0);
	weir_messenger_close(next.m);
	weir_detach(next.w);
	close_processes(&p);
}

/* The successor is there before its predecessor's connections have ended: they end. */
TEST(test_successor)
{
	struct weir_conn *c[2];
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	must(message_enter(p.b.m, 2));
	for (unsigned i = 0; i < 2; i++) {
		struct raw r = raw_of(0, receivers[i]);

		c[i] = connect_to(p.a.w, PLANE_NODE(1), names[i]);
		must(weir_send(c[i], &r, sizeof(r), PATIENT));
	}
	drive(&p.b, stats(&p.b).created == 1);
	/* process 0 itself, as its name says, is another one than they claim to be of */
	must(post(open_lane(&p.a, 1, 2), KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[2] == 1);
	for (unsigned i = 0; i < 2; i++)
		drive_end(&p.b, c[i]);
	drive(&p.b, stats(&p.b).lost == 1 && stats(&p.b).created == 2);
	must(post(open_lane(&p.b, 0, MESSAGE_HANDLERS), KIND_COUNT, 0, 8));
	await(p.a.taken[GUESTS] == 1);
	assert_int_equal(p.a.ends, 0);
	close_processes(&p);
}

/* Connections that make room do so in order: nothing is lost, and the lane goes on. */
TEST(test_disconnect)
{
	struct message_lane *lane;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	lane = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	for (uint32_t i = 0; i < 30; i++) {
		must(post(lane, KIND_COUNT, i, 100));
		if (i % 10 == 9) {
			must(weir_message_disconnect(p.a.m, 1));
			assert_int_equal(p.b.taken[GUESTS], i + 1);
			assert_int_equal(p.a.ends, i / 10 + 1);
			assert_int_equal(p.a.status, 0);
		}
	}
	assert_int_equal(p.b.wrong, 0);
	close_processes(&p);
}

/* Arguments out of their ranges. */
TEST(test_arguments)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_handler handler = WEIR_HANDLER_INIT;
	struct message_lane *lane;
	struct message_model bad;
	struct weir_messenger *m;
	struct process_pair p;

	open_processes(&p, &message_plane, 1);
	for (unsigned i = 0; i < 5; i++) {
		struct message_process at[3];

		bad = p.model;
		bad.processes = at;
		memcpy(at, p.at, sizeof(at));
		bad.process_count = i == 0 ? 0 : i == 1 ? 65537 : 3;
		bad.self = i == 2 ? 3 : 0;
		bad.guests = i == 3 ? MESSAGE_GUESTS_MAX + 1 : 0;
		if (i == 4)
			snprintf(at[2].service, sizeof(at[2].service),
				 "a name that has 28 bytes ...");
		assert_int_equal(message_open(p.a.w, &o, &bad, &m), -EINVAL);
	}
	bad = p.model;
	bad.hello_length = 1u << 20;
	assert_int_equal(message_open(p.a.w, &o, &bad, &m), -EINVAL);
	assert_int_equal(message_lane_open(p.a.m, 3, 0, &lane), -EINVAL);
	assert_int_equal(message_lane_open(p.a.m, 1, MESSAGE_GUESTS_MAX, &lane), -EINVAL);
	handler.handle = mute;
	assert_int_equal(weir_message_register(p.a.m, 0, &handler), -EINVAL);
	assert_int_equal(message_reply(p.a.m, &(struct weir_reply){0},
				       &(struct message_tag){.kind = KIND_COUNT}, NULL, 0),
			 -EINVAL);
	/* calls of programs name processes, too */
	for (unsigned process = 3; process <= UINT16_MAX; process += UINT16_MAX - 3) {
		uint16_t to = (uint16_t)process;
		struct weir_request r;

		assert_int_equal(weir_message_connect(p.a.m, to, 0), -EINVAL);
		/* not for a name that lies behind those of the processes */
		assert_non_null(strstr(weir_reason(), "give a number below that"));
		assert_int_equal(weir_message_send(p.a.m, to, 0, "", 0, 0), -EINVAL);
		assert_int_equal(weir_request_start(p.a.m, &r, to, 0, "", 0, NULL, 0, 0), -EINVAL);
		assert_int_equal(weir_message_disconnect(p.a.m, to), -ENOTCONN);
	}
	lane = open_lane(&p.a, 2, 0); /* not open */
	assert_int_equal(post(lane, KIND_COUNT, 0, 8), -ECONNREFUSED);
	close_processes(&p);
}

int
main(void)
{
	return test_run();
}
