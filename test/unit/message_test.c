/* SPDX-License-Identifier: BSD-3-Clause */
/* The message model over the made-up data plane: programs that are nodes to each other. */
#include "plane_fake.h"

#include "weir/message.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define TYPE_NOTE WEIR_TYPE(1, 1)
#define TYPE_ECHO WEIR_TYPE(1, 2)
#define TYPE_MUTE WEIR_TYPE(1, 3)
#define TYPE_NOBODY WEIR_TYPE(200, 7)
#define A FAKE_NODE(0)
#define B FAKE_NODE(1)

static const struct fake_options plane = {
    .channels = 12, .nodes = true, .recv_blocks = 512, .send_blocks = 512, .ring_slots = 1024};

/* ---- two programs ---- */

struct side {
	struct weir *w;
	struct weir_messenger *m;
	_Atomic uint32_t notes, wrong, created, lost, bytes;
	_Atomic int status;
	uint32_t next[16]; /* number expected of each thread */
};

struct both {
	struct fake *f;
	struct side a, b;
};

static void
fatal(const char *what, int rc)
{
	fprintf(stderr, "%s: %d: %s\n", what, rc, weir_reason());
	abort();
}

#define must(call)                                                                                 \
	do {                                                                                       \
		int must_rc = (call);                                                              \
		if (must_rc)                                                                       \
			fatal(#call, must_rc);                                                     \
	} while (0)

static void
nap(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

#define await(condition)                                                                           \
	do {                                                                                       \
		for (unsigned await_n = 0; !(condition); await_n++) {                              \
			if (await_n == 20000)                                                      \
				fail_msg("never: %s", #condition);                                 \
			nap(1);                                                                    \
		}                                                                                  \
	} while (0)

static void
on_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	struct side *s = user;

	(void)node;
	atomic_fetch_add(event == WEIR_LINK_CREATED ? &s->created : &s->lost, 1);
	if (event == WEIR_LINK_LOST)
		atomic_store(&s->status, status);
}

/* {thread, number, bytes that follow from both} */
static void
fill(uint32_t *buf, uint32_t thread, uint32_t number, size_t length)
{
	buf[0] = thread;
	buf[1] = number;
	for (size_t i = 8; i < length; i++)
		((uint8_t *)buf)[i] = (uint8_t)(number * 7 + i);
}

static bool
is_filled(const uint8_t *data, uint32_t number, size_t length)
{
	for (size_t i = 8; i < length; i++)
		if (data[i] != (uint8_t)(number * 7 + i))
			return false;
	return true;
}

static void
note(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	const uint32_t *v = message->data;
	struct side *s = user;

	(void)m;
	if (message->length < 8 || v[0] >= 16 || v[1] != s->next[v[0]]++ ||
	    !is_filled(message->data, v[1], message->length))
		atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->notes, 1);
}

static void
echo(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	(void)user;
	must(weir_message_respond(m, &message->reply, message->data, message->length));
}

static void
mute(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	(void)m, (void)message;
	atomic_fetch_add(&s->notes, 1);
}

static void
open_side(struct side *s, struct weir_messenger_options *o)
{
	struct weir_handler notes = {.handle = note, .user = s}, echoes = {.handle = echo},
			    mutes = {.handle = mute, .user = s};

	o->link = on_link;
	o->user = s;
	must(weir_messenger_open(s->w, o, &s->m));
	must(weir_message_register(s->m, TYPE_NOTE, &notes));
	must(weir_message_register(s->m, TYPE_ECHO, &echoes));
	must(weir_message_register(s->m, TYPE_MUTE, &mutes));
}

static void
open_both(struct both *p, const struct fake_options *plane_options,
	  const struct weir_messenger_options *options)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS;

	if (options)
		o = *options;
	*p = (struct both){.f = fake_create(plane_options ? plane_options : &plane)};
	p->a.w = fake_attach(p->f);
	p->b.w = fake_attach(p->f);
	fake_run(p->f);
	open_side(&p->a, &o);
	open_side(&p->b, &o);
}

static void
close_both(struct both *p)
{
	weir_messenger_close(p->a.m);
	weir_messenger_close(p->b.m);
	weir_detach(p->a.w);
	weir_detach(p->b.w);
	fake_stop(p->f);
	fake_destroy(p->f);
}

/* ---- messages ---- */

static void
test_messages(void **state)
{
	static const size_t lengths[] = {8, 9, 40, 41, 64, 100, 101, 940, 941, 8184, 8192, 60000};
	uint32_t buf[60000 / 4 + 1];
	struct both p;

	(void)state;
	open_both(&p, NULL, NULL);
	for (uint32_t i = 0; i < 12 * 20; i++) {
		fill(buf, 0, i, lengths[i % 12]);
		must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, lengths[i % 12], 5000));
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

static void
test_requests(void **state)
{
	static const size_t lengths[] = {0, 1, 64, 92, 93, 948, 5000, 20000};
	uint8_t in[20000], out[20000];
	struct both p;
	size_t n;

	(void)state;
	open_both(&p, NULL, NULL);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 13);
	for (unsigned i = 0; i < 200; i++) {
		must(weir_message_request(p.a.m, B, TYPE_ECHO, out, lengths[i % 8], in, sizeof(in),
					  &n, 5000));
		assert_int_equal(n, lengths[i % 8]);
		assert_memory_equal(in, out, n);
	}
	/* too small a buffer: its beginning, and how long it is */
	memset(in, 0, sizeof(in));
	assert_int_equal(weir_message_request(p.a.m, B, TYPE_ECHO, out, 64, in, 10, &n, 5000),
			 -EMSGSIZE);
	assert_int_equal(n, 64);
	assert_memory_equal(in, out, 10);
	assert_int_equal(in[10], 0);
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_NOBODY, out, 1, in, sizeof(in), &n, 5000), -ENOMSG);
	close_both(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_messages),
	    cmocka_unit_test(test_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
