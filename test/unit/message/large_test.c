/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that are large, are packed where they leave from, are sent again or to many. */
#include "worlds/message_world.h"

static uint8_t *placed;

static void *
place(struct weir_messenger *m, const struct weir_message *header, void *user)
{
	struct side *s = user;

	if (header->length > 4u << 20)
		return NULL;
	atomic_fetch_add(&s->bytes, 1);
	placed = malloc(header->length);
	return placed;
}

static void
large(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;
	const uint8_t *data = message->data;

	for (size_t i = 0; i < message->length; i++)
		if (data[i] != (uint8_t)(i * 7 + i / 65536))
			atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->notes, 1);
	if (data == placed) {
		free(placed);
		placed = NULL;
	}
}

static void
test_large(void **state)
{
	struct weir_handler h = {.size = sizeof(h), .handle = large, .place = place};
	size_t most = 5u << 20, n;
	uint8_t *buf = malloc(most), *in = malloc(most);
	struct iovec iov[4];
	struct both p;

	for (size_t i = 0; i < most; i++)
		buf[i] = (uint8_t)(i * 7 + i / 65536);
	open_both(&p, NULL, NULL);
	h.user = &p.b;
	must(weir_message_register(p.b.m, WEIR_TYPE(5, 0), &h));
	h.place = NULL;
	must(weir_message_register(p.b.m, WEIR_TYPE(5, 1), &h));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(5, 0), buf, 3000001, PATIENT));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(5, 1), buf, (1u << 20) + 1, PATIENT));
	must(weir_message_send(p.a.m, B, WEIR_TYPE(5, 0), buf, most, PATIENT)); /* no place */
	for (int i = 0; i < 4; i++)
		iov[i] = (struct iovec){buf + i * 700000, 700000};
	must(weir_message_sendv(p.a.m, B, WEIR_TYPE(5, 1), iov, 4, PATIENT));
	iov[1].iov_len = 0;
	iov[2] = (struct iovec){buf + 700000, 5};
	must(weir_message_sendv(p.a.m, B, WEIR_TYPE(5, 1), iov, 3, PATIENT));
	await(p.b.notes == 4);
	assert_int_equal(p.b.wrong, 0);
	assert_int_equal(p.b.bytes, 1);
	assert_int_equal(stats_of(&p.b).oversized, 1);
	must(weir_message_request(p.a.m, B, TYPE_ECHO, buf, 2500000, in, most, &n, PATIENT));
	assert_int_equal(n, 2500000);
	assert_memory_equal(in, buf, n);
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_ECHO, buf, 2500000, in, 100, &n, PATIENT),
	    -EMSGSIZE);
	assert_int_equal(
	    weir_message_request(p.a.m, B, TYPE_NOBODY, buf, 2500000, in, 100, &n, PATIENT),
	    -ENOMSG);
	close_both(&p);
	free(buf);
	free(in);
}

/* The sender's time is over in the middle: the program gets its memory back, then goes on. */
static void
broken(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	if (!(message->flags & WEIR_MESSAGE_BROKEN) || message->data != placed ||
	    message->length != 3u << 20)
		atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->notes, 1);
	free(placed);
	placed = NULL;
}

static void
test_broken(void **state)
{
	struct weir_handler h = {.size = sizeof(h), .handle = broken, .place = place};
	uint8_t *buf = calloc(1, 3u << 20);
	struct plane_options little = message_plane;
	struct both p;

	little.recv_blocks = little.send_blocks = 200;
	open_both(&p, &little, NULL);
	h.user = &p.b;
	must(weir_message_register(p.b.m, WEIR_TYPE(5, 2), &h));
	must(weir_message_request(p.a.m, B, TYPE_ECHO, buf, 8, buf, 8, NULL, PATIENT));
	plane_hold(p.f, true); /* the first piece stays where it is */
	assert_int_equal(weir_message_send(p.a.m, B, WEIR_TYPE(5, 2), buf, 3u << 20, 0), -EAGAIN);
	plane_hold(p.f, false);
	await(p.b.bytes == 1);
	must(weir_message_disconnect(p.a.m, B));
	await(p.b.notes == 1);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
	free(buf);
}

static void
test_drafts(void **state)
{
	static const size_t lengths[] = {8, 60, 100, 900, 1000, 9000};
	uint16_t nodes[3] = {B, PLANE_NODE(2), B};
	struct weir_draft d, more;
	uint32_t buf[4];
	int results[3];
	struct both p;

	open_both(&p, NULL, NULL);
	for (uint32_t i = 0; i < 6; i++) {
		must(weir_message_reserve(p.a.m, B, TYPE_NOTE, lengths[i] + 100, 0, PATIENT, &d));
		fill(d.data, 0, i, lengths[i]);
		must(weir_message_commit(p.a.m, &d, lengths[i], PATIENT));
	}
	must(weir_message_reserve(p.a.m, B, TYPE_NOTE, 5000, 0, PATIENT, &d));
	assert_int_equal(weir_message_reserve(p.a.m, B, TYPE_NOTE, 10, 0, PATIENT, &more), -EBUSY);
	assert_int_equal(weir_message_commit(p.a.m, &d, 5001, PATIENT), -EINVAL);
	d.room = 6000; /* the library knows better */
	assert_int_equal(weir_message_commit(p.a.m, &d, 5001, PATIENT), -EINVAL);
	assert_int_equal(weir_message_resend(p.a.m, &d, B, PATIENT), -EINVAL);
	weir_message_abandon(p.a.m, &d);
	/* kept: sent again as it is */
	must(weir_message_reserve(p.a.m, B, TYPE_MUTE, 5000, WEIR_DRAFT_KEEP, PATIENT, &d));
	memset(d.data, 1, 5000);
	must(weir_message_commit(p.a.m, &d, 3000, PATIENT));
	must(weir_message_resend(p.a.m, &d, B, PATIENT));
	must(weir_message_resend(p.a.m, &d, A, PATIENT)); /* to itself */
	d.length = 5001;
	assert_int_equal(weir_message_resend(p.a.m, &d, B, PATIENT), -EINVAL);
	weir_message_abandon(p.a.m, &d);
	await(p.b.notes == 8 && p.a.notes == 1);
	fill(buf, 1, 0, 16);
	assert_int_equal(
	    weir_message_send_many(p.a.m, nodes, 2, TYPE_NOTE, buf, 16, PATIENT, results), 1);
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], -ECONNREFUSED);
	await(p.b.notes == 9);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

/* There is no room for responses: they leave, in order, when there is. */
static void
test_responses_wait(void **state)
{
	enum { LENGTH = 900000 };
	struct plane_options little = message_plane;
	uint8_t *in = calloc(8, LENGTH), *out = malloc(LENGTH);
	struct weir_request r[8];
	struct both p;

	little.recv_blocks = little.send_blocks = 200;
	open_both(&p, &little, NULL);
	register_keep(&p.b);
	for (uint32_t i = 0; i < 8; i++)
		must(weir_request_start(p.a.m, &r[i], B, TYPE_KEEP, &i, 4, in + i * LENGTH, LENGTH,
					PATIENT));
	await(kept_count == 8);
	plane_hold(p.f, true);
	for (uint32_t i = 0; i < 8; i++) {
		memset(out, (int)i + 1, LENGTH);
		must(weir_message_respond(p.b.m, &kept[i], out, LENGTH));
	}
	nap(20); /* it tries again, in vain */
	plane_hold(p.f, false);
	for (uint32_t i = 0; i < 8; i++) {
		must(weir_request_wait(&r[i], PATIENT));
		assert_int_equal(r[i].length, LENGTH);
		for (size_t k = i * LENGTH; k < (i + 1) * LENGTH; k++)
			assert_int_equal(in[k], in[i * LENGTH]);
	}
	assert_int_equal(in[0] + in[7 * LENGTH], 9);
	close_both(&p);
	free(in);
	free(out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_large),
	    cmocka_unit_test(test_broken),
	    cmocka_unit_test(test_responses_wait),
	    cmocka_unit_test(test_drafts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
