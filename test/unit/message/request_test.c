/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses of any length, in place and in parts; several requests at once; the ends of messages.
 */
#include "worlds/message_world.h"
#include "worlds/test.h"

#include "client/wait.h"
#include "message/request.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define TYPE_REPLY WEIR_TYPE(6, 0) /* answered with as many bytes as the request says */
#define TYPE_PLACED WEIR_TYPE(6, 1)
#define LARGEST 2500000u

static uint8_t pattern[LARGEST];

/* In place if it can be, in parts otherwise. */
static void
reply(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	uint32_t length, first;
	struct weir_draft d;
	struct iovec parts[3];

	memcpy(&length, message->data, 4);
	memcpy(&first, (const uint8_t *)message->data + 4, 4);
	if (first) {
		must(weir_response_reserve(m, &message->reply, length + 10, PATIENT, &d));
		memcpy(d.data, pattern, length);
		assert_int_equal(weir_message_commit(m, &d, length + 11, 0), -EINVAL);
		must(weir_message_commit(m, &d, length, 0));
		return;
	}
	parts[0] = (struct iovec){pattern, length / 3};
	parts[1] = (struct iovec){pattern + length / 3, 0};
	parts[2] = (struct iovec){pattern + length / 3, length - length / 3};
	assert_int_equal(weir_message_respondv(m, &message->reply, parts, 17), -EINVAL);
	must(weir_message_respondv(m, &message->reply, parts, 3));
}

static void
open_reply(struct both *p, const struct plane_options *plane,
	   const struct weir_messenger_options *o)
{
	struct weir_handler h = WEIR_HANDLER_INIT;

	for (size_t i = 0; i < LARGEST; i++)
		pattern[i] = (uint8_t)(i * 7 + i / 65536);
	open_both(p, plane, o);
	h.handle = reply;
	must(weir_message_register(p->b.m, TYPE_REPLY, &h));
}

/* A response longer than message_max; the rest of it disturbs no later one. */
static void
ask_too_much(struct weir_messenger *m, struct weir_request *r, const struct weir_request_options *o,
	     uint32_t *out)
{
	out[0] = LARGEST;
	must(weir_request_start_with(m, r, B, TYPE_REPLY, o, PATIENT));
	assert_int_equal(weir_request_wait(r, PATIENT), -EMSGSIZE);
	assert_int_equal(r->length, LARGEST);
	assert_null(r->data);
	out[0] = 100;
	must(weir_request_start_with(m, r, B, TYPE_REPLY, o, PATIENT));
	must(weir_request_wait(r, PATIENT));
	assert_memory_equal(r->data, pattern, 100);
}

/* Of a length that the requester does not know, in every way a response can come. */
TEST(test_loan)
{
	static const uint32_t lengths[] = {0,	 1,	32,	 76,	  77,	  900,
					   5000, 60000, 1000000, 1048577, LARGEST};
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	struct weir_request r[11];
	uint32_t out[2], all;
	struct iovec part = {out, 8};
	struct both p;

	open_reply(&p, NULL, NULL);
	must(weir_message_request(p.a.m, B, TYPE_ECHO, "x", 1, out, 8, NULL, PATIENT));
	all = plane_recv_blocks_free(p.f, p.a.w);
	o.flags = WEIR_REQUEST_LOAN;
	o.iov = &part;
	o.parts = 1;
	for (unsigned in_place = 0; in_place < 2; in_place++) {
		unsigned n = in_place ? 9 : 11;

		for (unsigned i = 0; i < n; i++) {
			out[0] = lengths[i];
			out[1] = in_place;
			must(weir_request_start_with(p.a.m, &r[i], B, TYPE_REPLY, &o, PATIENT));
			must(weir_request_wait(&r[i], PATIENT));
			assert_int_equal(r[i].length, lengths[i]);
		}
		/* all are there until they are released */
		for (unsigned i = 0; i < n; i++) {
			assert_memory_equal(r[i].data, pattern, lengths[i]);
			weir_request_release(&r[i]);
			weir_request_release(&r[i]); /* once is enough */
			assert_null(r[i].data);
		}
	}
	await(plane_recv_blocks_free(p.f, p.a.w) == all);
	/* an error lends nothing */
	must(weir_request_start_with(p.a.m, &r[0], B, TYPE_NOBODY, &o, PATIENT));
	assert_int_equal(weir_request_wait(&r[0], PATIENT), -ENOMSG);
	assert_null(r[0].data);
	weir_request_release(&r[0]);
	/* options that make no sense */
	o.response = out;
	assert_int_equal(weir_request_start_with(p.a.m, &r[0], B, TYPE_REPLY, &o, 0), -EINVAL);
	o.response = NULL;
	o.flags = 4;
	assert_int_equal(weir_request_start_with(p.a.m, &r[0], B, TYPE_REPLY, &o, 0), -EINVAL);
	o.flags = WEIR_REQUEST_LOAN | WEIR_REQUEST_GROW;
	assert_int_equal(weir_request_start_with(p.a.m, &r[0], B, TYPE_REPLY, &o, 0), -EINVAL);
	o.flags = WEIR_REQUEST_GROW;
	o.response = out;
	assert_int_equal(weir_request_start_with(p.a.m, &r[0], B, TYPE_REPLY, &o, 0), -EINVAL);
	o.response = NULL;
	o.response_size = 8;
	assert_int_equal(weir_request_start_with(p.a.m, &r[0], B, TYPE_REPLY, &o, 0), -EINVAL);
	o.flags = 0;
	o.parts = 17;
	assert_int_equal(weir_request_start_with(p.a.m, &r[0], B, TYPE_REPLY, &o, 0), -EINVAL);
	o.size = 0;
	assert_int_equal(weir_request_start_with(p.a.m, &r[0], B, TYPE_REPLY, &o, 0), -EINVAL);
	close_both(&p);
}

/* A response that is announced longer than anybody may send: the request fails at once. */
TEST(test_loan_bound)
{
	struct weir_messenger_options mine = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	uint32_t out[2] = {LARGEST, 0};
	struct iovec part = {out, 8};
	struct weir_request r;
	struct both p;

	open_reply(&p, NULL, NULL);
	weir_messenger_close(p.a.m);
	mine.message_max = 2u << 20;
	open_side(&p.a, &mine);
	o.flags = WEIR_REQUEST_LOAN;
	o.iov = &part;
	o.parts = 1;
	ask_too_much(p.a.m, &r, &o, out);
	weir_request_release(&r);
	close_both(&p);
}

/* One buffer, which the library makes larger when a response needs it, and the program frees. */
TEST(test_grow)
{
	static const uint32_t lengths[] = {0, 1, 76, 900, 60000, 50, 1000000, 1048577, 8, LARGEST};
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	struct weir_messenger_options mine = WEIR_MESSENGER_OPTIONS_INIT;
	uint32_t out[2] = {0};
	struct iovec part = {out, 8};
	struct weir_request r;
	struct both p;

	open_reply(&p, NULL, NULL);
	o.flags = WEIR_REQUEST_GROW;
	o.iov = &part;
	o.parts = 1;
	for (unsigned i = 0; i < 10; i++) {
		out[0] = lengths[i];
		must(weir_request_start_with(p.a.m, &r, B, TYPE_REPLY, &o, PATIENT));
		must(weir_request_wait(&r, PATIENT));
		assert_int_equal(r.length, lengths[i]);
		assert_memory_equal(r.data, pattern, lengths[i]);
		if (r.length <= o.response_size) /* it stays where it is */
			assert_ptr_equal(r.data, o.response);
		else
			o.response_size = r.length;
		o.response = (void *)(uintptr_t)r.data;
		if (o.response) /* all of it is the program's */
			memset(o.response, 0xee, o.response_size);
	}
	/* an error leaves it to the program too */
	must(weir_request_start_with(p.a.m, &r, B, TYPE_NOBODY, &o, PATIENT));
	assert_int_equal(weir_request_wait(&r, PATIENT), -ENOMSG);
	assert_ptr_equal(r.data, o.response);
	free(o.response);
	/* not without limit */
	weir_messenger_close(p.a.m);
	mine.message_max = 2u << 20;
	open_side(&p.a, &mine);
	o.response = NULL;
	o.response_size = 0;
	ask_too_much(p.a.m, &r, &o, out);
	free((void *)(uintptr_t)r.data);
	/* given up before the response: the buffer comes back as it was */
	register_keep(&p.b);
	o.response = malloc(8);
	o.response_size = 8;
	must(weir_request_start_with(p.a.m, &r, B, TYPE_KEEP, &o, PATIENT));
	weir_request_cancel(&r);
	assert_int_equal(weir_request_wait(&r, PATIENT), -ECANCELED);
	assert_ptr_equal(r.data, o.response);
	free(o.response);
	close_both(&p);
}

/* Written where it leaves from. */
TEST(test_in_place)
{
	static const size_t lengths[] = {8, 60, 1000, 9000, 1000000};
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	uint8_t *in = malloc(1u << 20);
	struct weir_request r;
	struct weir_draft d;
	struct both p;

	open_reply(&p, NULL, NULL);
	o.response = in;
	o.response_size = 1u << 20;
	for (unsigned i = 0; i < 5; i++) {
		must(weir_request_reserve(p.a.m, B, TYPE_ECHO, lengths[i], PATIENT, &d));
		memcpy(d.data, pattern, lengths[i]);
		assert_int_equal(weir_message_commit(p.a.m, &d, 8, 0), -EINVAL);
		assert_int_equal(weir_request_commit(p.a.m, &d, lengths[i] + 1, &r, &o, PATIENT),
				 -EINVAL);
		must(weir_request_commit(p.a.m, &d, lengths[i], &r, &o, PATIENT));
		must(weir_request_wait(&r, PATIENT));
		assert_int_equal(r.length, lengths[i]);
		assert_ptr_equal(r.data, in);
		assert_memory_equal(in, pattern, lengths[i]);
	}
	must(weir_message_reserve(p.a.m, B, TYPE_NOTE, 100, 0, PATIENT, &d));
	assert_int_equal(weir_request_commit(p.a.m, &d, 8, &r, &o, 0), -EINVAL);
	weir_message_abandon(p.a.m, &d);
	must(weir_request_reserve(p.a.m, B, TYPE_ECHO, 100, PATIENT, &d));
	weir_message_abandon(p.a.m, &d);
	free(in);
	close_both(&p);
}

/* A response composed in place finds no room: it is kept, and others wait behind it. */
TEST(test_in_place_waits)
{
	enum { LENGTH = 900000 };
	struct plane_options little = message_plane;
	uint8_t *in = calloc(4, LENGTH);
	struct weir_request r[4];
	struct weir_draft d;
	struct both p;

	little.recv_blocks = little.send_blocks = 700;
	open_both(&p, &little, NULL);
	register_keep(&p.b);
	for (uint32_t i = 0; i < 4; i++)
		must(weir_request_start(p.a.m, &r[i], B, TYPE_KEEP, &i, 4, in + i * LENGTH, LENGTH,
					PATIENT));
	await(kept_count == 4);
	plane_hold(p.f, true);
	for (uint32_t i = 0; i < 4; i++) {
		must(weir_response_reserve(p.b.m, &kept[i], LENGTH, PATIENT, &d));
		memset(d.data, (int)i + 1, LENGTH);
		must(weir_message_commit(p.b.m, &d, LENGTH, 0));
	}
	plane_hold(p.f, false);
	for (uint32_t i = 0; i < 4; i++) {
		must(weir_request_wait(&r[i], PATIENT));
		assert_int_equal(r[i].length, LENGTH);
		assert_int_equal(in[i * LENGTH], i + 1);
		assert_int_equal(in[(i + 1) * LENGTH - 1], i + 1);
	}
	close_both(&p);
	free(in);
}

TEST(test_wait_any)
{
	struct weir_request r[4], *list[4] = {&r[0], NULL, &r[2], &r[3]};
	uint64_t in[4], out = 9;
	struct both p;

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	for (int i = 0; i < 4; i++)
		must(weir_request_start(p.a.m, &r[i], B, TYPE_KEEP, "x", 1, &in[i], 8, PATIENT));
	await(kept_count == 4);
	assert_int_equal(weir_request_wait_any(list, 4, 0), -EAGAIN);
	assert_int_equal(weir_request_wait_any(list, 4, 10), -EAGAIN);
	must(weir_message_respond(p.b.m, &kept[1], &out, 8)); /* not in the list */
	must(weir_message_respond(p.b.m, &kept[3], &out, 8));
	assert_int_equal(weir_request_wait_any(list, 4, PATIENT), 3);
	must(weir_request_wait(&r[3], 0));
	list[3] = NULL;
	weir_request_cancel(&r[0]);
	assert_int_equal(weir_request_wait_any(list, 4, PATIENT), 0);
	assert_int_equal(r[0].status, -ECANCELED);
	assert_int_equal(weir_request_wait_any(list + 3, 1, 0), -EINVAL);
	/* an end of all of them ends the wait */
	list[0] = NULL;
	plane_die(p.f, p.b.w);
	assert_int_equal(weir_request_wait_any(list, 4, PATIENT), 2);
	assert_int_equal(r[2].status, -EHOSTUNREACH);
	weir_lost(p.b.w);
	close_both(&p);
}

struct another {
	struct both *p;
	struct weir_request r;
};

static void *
start_and_end(void *arg)
{
	struct another *a = arg;
	uint64_t in;

	must(weir_request_start(a->p->a.m, &a->r, B, TYPE_ECHO, "x", 1, &in, 8, PATIENT));
	must(weir_request_wait(&a->r, PATIENT));
	return NULL;
}

/* Whoever started it: a request that has ended ends the wait, beside those that have not. */
TEST(test_wait_any_ended)
{
	struct another other = {0};
	struct weir_request r, *list[2] = {&r, &other.r};
	uint64_t in;
	struct both p;
	pthread_t t;

	open_both(&p, NULL, NULL);
	other.p = &p;
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &r, B, TYPE_KEEP, "x", 1, &in, 8, PATIENT));
	assert_int_equal(pthread_create(&t, NULL, start_and_end, &other), 0);
	pthread_join(t, NULL);
	assert_int_equal(weir_request_wait_any(list, 2, PATIENT), 1);
	weir_request_cancel(&r);
	assert_int_equal(weir_request_wait_any(list, 2, PATIENT), 0);
	close_both(&p);
}

static unsigned done_count;
static int done_status[8];

static void
done(struct weir_request *r, void *user)
{
	assert_int_equal(*(uint32_t *)user, 77);
	done_status[done_count++ % 8] = r->status;
}

/* The end of a request is a call, or an event of weir_wait(). */
TEST(test_done)
{
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	struct weir_request r[3], plain;
	uint64_t in[4], out = 9;
	uint32_t user = 77;
	struct weir_event e;
	bool seen = false;
	struct both p;

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	done_count = 0;
	o.done = done;
	o.user = &user;
	for (int i = 0; i < 3; i++) {
		o.response = &in[i];
		o.response_size = 8;
		must(weir_request_start_with(p.a.m, &r[i], B, TYPE_KEEP, &o, PATIENT));
	}
	must(weir_request_start(p.a.m, &plain, B, TYPE_KEEP, NULL, 0, &in[3], 8, PATIENT));
	await(kept_count == 4);
	assert_int_equal(weir_request_wait(&r[0], 0), -EINVAL);
	assert_int_equal(weir_messenger_progress(p.a.m, 0, 5), 0);
	must(weir_message_respond(p.b.m, &kept[0], &out, 8));
	for (int i = 0; i < 20000 && !seen; i++)
		seen = weir_wait(p.a.w, &e, 1, 1) == 1 && e.type == WEIR_EVENT_MESSAGES;
	assert_true(seen);
	assert_int_equal(weir_messenger_progress(p.a.m, 0, PATIENT), 1);
	assert_int_equal(done_count, 1);
	assert_int_equal(done_status[0], 0);
	assert_int_equal(in[0], 9);
	/* other threads may end them, the calls are this one's */
	weir_request_cancel(&r[1]);
	assert_int_equal(done_count, 1);
	assert_int_equal(weir_messenger_progress(p.a.m, 0, PATIENT), 1);
	assert_int_equal(done_status[1], -ECANCELED);
	/* the last one ends with the messenger */
	weir_messenger_close(p.a.m);
	p.a.m = NULL;
	assert_int_equal(done_count, 3);
	assert_int_equal(done_status[2], -ECANCELED);
	close_both(&p);
}

/* ---- messages with a cookie ---- */

static uint64_t sent_cookie[256];
static int sent_status[256];
static unsigned sent_count;

static void
sent(struct weir_messenger *m, uint16_t node, uint64_t cookie, int status, void *user)
{
	sent_cookie[sent_count] = cookie;
	sent_status[sent_count++] = status;
}

static void
open_sent(struct both *p)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct plane_options plane = message_plane;

	plane.watched = true;

	sent_count = 0;
	o.sent = sent;
	open_both(p, &plane, &o);
}

TEST(test_notify)
{
	static const size_t lengths[] = {8, 100, 5000, 60000, LARGEST};
	uint8_t *buf = calloc(1, LARGEST);
	struct iovec part = {buf, 8};
	struct both p;

	open_sent(&p);
	for (unsigned i = 0; i < 50; i++) {
		part.iov_len = lengths[i % 5];
		must(weir_message_send_notify(p.a.m, B, TYPE_MUTE, &part, 1, 1000 + i, PATIENT));
	}
	for (int i = 0; i < 20000 && sent_count < 50; i++)
		weir_messenger_progress(p.a.m, 0, 1);
	assert_int_equal(sent_count, 50);
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(sent_cookie[i], 1000 + i);
		assert_int_equal(sent_status[i], 0);
	}
	await(p.b.notes == 50);
	/* what did not leave ends with its connection */
	plane_hold(p.f, true);
	part.iov_len = 8;
	must(weir_message_send_notify(p.a.m, B, TYPE_MUTE, &part, 1, 7, PATIENT));
	plane_kill(p.f);
	for (int i = 0; i < 20000 && sent_count < 51; i++)
		weir_messenger_progress(p.a.m, 0, 1);
	plane_hold(p.f, false);
	assert_int_equal(sent_count, 51);
	assert_int_equal(sent_cookie[50], 7);
	assert_int_equal(sent_status[50], -ENODEV);
	assert_int_equal(weir_messenger_progress(p.a.m, 0, 0), -ENODEV);
	assert_int_equal(weir_messenger_flush(p.a.m, B, PATIENT), -ENODEV);
	plane_come_back(p.f);
	must(weir_reattach(p.a.w, PATIENT));
	assert_int_equal(weir_messenger_flush(p.a.m, B, PATIENT), -EHOSTUNREACH);
	must(weir_messenger_flush(p.a.m, B, PATIENT)); /* reported once */
	close_both(&p);
	free(buf);
}

/* A close in order waits until messages with a cookie have ended. */
static void *
disconnect(void *arg)
{
	return (void *)(intptr_t)weir_message_disconnect(((struct both *)arg)->a.m, B);
}

/* A close whose time is over ends messages that have not left. */
TEST(test_notify_late)
{
	struct iovec part = {pattern, 8};
	struct peer *peer;
	bool leaves;
	struct both p;
	pthread_t t;
	void *rc;

	open_sent(&p);
	must(weir_message_connect(p.a.m, B, PATIENT));
	plane_hold(p.f, true);
	must(weir_message_send_notify(p.a.m, B, TYPE_MUTE, &part, 1, 7, PATIENT));
	assert_int_equal(pthread_create(&t, NULL, disconnect, &p), 0);
	do {
		pthread_mutex_lock(&p.a.m->lock);
		peer = p.a.m->peers[B / NODE_PAGE][B % NODE_PAGE];
		leaves = peer->state == PEER_LEAVING;
		if (leaves)
			peer->deadline = 0;
		pthread_mutex_unlock(&p.a.m->lock);
		nap(1);
	} while (!leaves);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, -ETIMEDOUT);
	plane_hold(p.f, false);
	assert_int_equal(weir_messenger_progress(p.a.m, 0, 0), 1);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent_cookie[0], 7);
	assert_int_equal(sent_status[0], -ECANCELED);
	close_both(&p);
}

TEST(test_notify_disconnect)
{
	uint8_t buf[8] = {0};
	struct iovec part = {buf, 8};
	struct both p;
	pthread_t t;
	void *rc;

	open_sent(&p);
	must(weir_message_send(p.a.m, B, TYPE_MUTE, buf, 8, PATIENT));
	await(p.b.notes == 1);
	plane_hold(p.f, true);
	must(weir_message_send_notify(p.a.m, B, TYPE_MUTE, &part, 1, 5, PATIENT));
	assert_int_equal(pthread_create(&t, NULL, disconnect, &p), 0);
	stays(sent_count == 0 && p.a.lost == 0);
	plane_hold(p.f, false);
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, 0);
	assert_int_equal(weir_messenger_progress(p.a.m, 0, PATIENT), 1);
	assert_int_equal(sent_status[0], 0);
	close_both(&p);
}

static void *
send_some(void *arg)
{
	struct both *p = arg;

	for (int i = 0; i < 20; i++)
		must(weir_message_send(p->a.m, B, TYPE_MUTE, "x", 1, PATIENT));
	await(p->b.notes == 25);
	return NULL;
}

/* Of all threads, to a node or to all. */
TEST(test_flush)
{
	struct iovec part = {0};
	struct both p;
	pthread_t t;

	open_both(&p, NULL, NULL);
	assert_int_equal(weir_message_send_notify(p.a.m, B, TYPE_MUTE, &part, 1, 1, 0), -EINVAL);
	must(weir_messenger_flush(p.a.m, WEIR_ALL_NODES, PATIENT));
	must(weir_message_send(p.a.m, B, TYPE_MUTE, "x", 1, PATIENT));
	await(p.b.notes == 1);
	plane_hold(p.f, true);
	for (int i = 0; i < 4; i++)
		must(weir_message_send(p.a.m, B, TYPE_MUTE, "x", 1, PATIENT));
	assert_int_equal(weir_messenger_flush(p.a.m, B, 0), -EAGAIN);
	assert_int_equal(weir_messenger_flush(p.a.m, WEIR_ALL_NODES, 20), -EAGAIN);
	must(weir_messenger_flush(p.a.m, PLANE_NODE(5), 0)); /* nothing goes there */
	assert_int_equal(weir_messenger_flush(p.a.m, 65536, 0), -EINVAL);
	plane_hold(p.f, false);
	assert_int_equal(pthread_create(&t, NULL, send_some, &p), 0);
	must(weir_messenger_flush(p.a.m, B, PATIENT));
	pthread_join(t, NULL);
	must(weir_messenger_flush(p.a.m, WEIR_ALL_NODES, PATIENT));
	await(p.b.notes == 25);
	close_both(&p);
}

/* ---- memory of the program for messages ---- */

static uint8_t *placed_at[8];
static _Atomic unsigned placed, handled, refused;

static void *
place(struct weir_messenger *m, const struct weir_message *header, void *user)
{
	assert_null(header->data);
	if (header->length == 4000) {
		refused++;
		return NULL;
	}
	placed_at[placed % 8] = malloc(header->length);
	return placed_at[placed++ % 8];
}

static void
take_placed(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	if (message->length >= 1000 && message->data != placed_at[(placed - 1) % 8])
		fatal("not the program's memory", 0);
	if (message->length < 1000 && message->data == placed_at[(placed - 1) % 8])
		fatal("the program's memory", 0);
	if (memcmp(message->data, pattern, message->length) != 0)
		fatal("other bytes", 0);
	if (message->length >= 1000)
		free((void *)(uintptr_t)message->data);
	if (message->flags & WEIR_MESSAGE_REQUEST)
		must(weir_message_respond(m, &message->reply, "ok", 2));
	handled++;
}

TEST(test_place_from)
{
	static const size_t lengths[] = {8, 999, 1000, 1001, 60000, 1000000, LARGEST, 4000};
	struct weir_handler h = WEIR_HANDLER_INIT;
	char in[4];
	struct both p;

	open_reply(&p, NULL, NULL);
	placed = handled = refused = 0;
	h.handle = take_placed;
	h.place_from = 1000;
	assert_int_equal(weir_message_register(p.b.m, TYPE_PLACED, &h), -EINVAL);
	h.place = place;
	h.flags = WEIR_HANDLER_EXCLUSIVE;
	must(weir_message_register(p.b.m, TYPE_PLACED, &h));
	for (unsigned i = 0; i < 8; i++)
		must(weir_message_send(p.a.m, B, TYPE_PLACED, pattern, lengths[i], PATIENT));
	await(handled == 7 && refused == 1);
	assert_int_equal(placed, 5);
	assert_int_equal(stats_of(&p.b).oversized, 1);
	must(weir_message_request(p.a.m, B, TYPE_PLACED, pattern, 5000, in, 4, NULL, PATIENT));
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_PLACED, pattern, 4000, in, 4, NULL, PATIENT),
	    -EMSGSIZE);
	assert_int_equal(placed, 6);
	close_both(&p);
}

/* Whether the descriptor was written to since the last look. */
static bool
woken(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == sizeof(count);
}

/* Threads that sleep at one worker: those whose request has ended are woken, and those that wait
 * for anything. */
TEST(who_is_woken)
{
	struct weir_waiter sleeper[4];
	struct weir_request r[3];
	struct weir_thread *t;
	struct sender *s;
	char in[3][8];
	struct both p;
	int rc = 0;

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_message_request(p.a.m, B, TYPE_ECHO, "x", 1, in[0], 8, NULL, PATIENT));
	s = sender_get(p.a.m, &rc);
	assert_non_null(s);
	t = s->worker;
	must(weir_request_start(p.a.m, &r[0], B, TYPE_KEEP, "k", 1, in[0], 8, PATIENT));
	await(atomic_load(&kept_count) == 1);
	weir_lock(t);
	for (int i = 0; i < 4; i++) {
		sleeper[i] = (struct weir_waiter){.fd = eventfd(0, EFD_NONBLOCK),
						  .awaits = i < 3 ? &r[i] : NULL};
		LIST_INSERT_HEAD(&t->waiters, &sleeper[i], next);
	}
	weir_unlock(t);
	for (int i = 1; i < 3; i++)
		must(weir_request_start(p.a.m, &r[i], B, TYPE_ECHO, "x", 1, in[i], 8, PATIENT));
	must(weir_request_wait(&r[1], PATIENT));
	await(request_ended(&r[2]) || !weir_request_wait(&r[2], 0));
	assert_false(woken(sleeper[0].fd));
	assert_true(woken(sleeper[3].fd));
	/* the answer of another one comes while this thread waits for its own */
	must(weir_message_respond(p.b.m, &kept[0], "k", 1));
	must(weir_request_start(p.a.m, &r[1], B, TYPE_ECHO, "x", 1, in[1], 8, PATIENT));
	must(weir_request_wait(&r[1], PATIENT));
	for (int i = 0; i < 1000 && !request_ended(&r[0]); i++) {
		must(weir_request_start(p.a.m, &r[2], B, TYPE_ECHO, "x", 1, in[2], 8, PATIENT));
		must(weir_request_wait(&r[2], PATIENT));
	}
	assert_true(request_ended(&r[0]));
	assert_true(woken(sleeper[0].fd));
	weir_lock(t);
	for (int i = 0; i < 4; i++)
		LIST_REMOVE(&sleeper[i], next);
	weir_unlock(t);
	for (int i = 0; i < 4; i++)
		close(sleeper[i].fd);
	close_both(&p);
}

/*
 * A thread that was woken, and looks at the rings next, passes the ringing on to those that wait
 * for anything: it may say that there is room, which a look at the rings does not find.
 */
TEST(ringing_is_passed_on)
{
	struct weir_waiter looks, anything, request;
	struct weir_bell ends[2];
	struct weir_pipe pipe;
	struct weir_request r[2];
	struct weir_thread *t;
	struct both p;
	char in[8];
	int rc = 0;

	open_both(&p, NULL, NULL);
	must(weir_message_request(p.a.m, B, TYPE_ECHO, "x", 1, in, 8, NULL, PATIENT));
	t = sender_get(p.a.m, &rc)->worker;
	looks = (struct weir_waiter){.fd = eventfd(0, EFD_NONBLOCK), .awaits = &r[0]};
	anything = (struct weir_waiter){.fd = eventfd(0, EFD_NONBLOCK)};
	request = (struct weir_waiter){.fd = eventfd(0, EFD_NONBLOCK), .awaits = &r[1]};
	must(weir_bell_open(ends));
	pipe = (struct weir_pipe){.bell = ends[0]};
	weir_lock(t);
	must(weir_thread_add_bell(t, &pipe));
	weir_thread_arm(t, &looks);
	weir_thread_arm(t, &anything);
	weir_thread_arm(t, &request);
	weir_bell_ring(&ends[1]);
	looks.looks = true;
	weir_thread_disarm(t, &looks);
	assert_true(woken(anything.fd));
	assert_false(woken(request.fd));
	weir_bell_ring(&ends[1]);
	weir_thread_disarm(t, &anything);
	assert_true(woken(request.fd));
	weir_thread_disarm(t, &request);
	weir_thread_remove_bell(t, &pipe);
	weir_unlock(t);
	weir_bell_close(&ends[0]);
	weir_bell_close(&ends[1]);
	close(looks.fd);
	close(anything.fd);
	close(request.fd);
	close_both(&p);
}
