/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages without a head: expected, of the wrong length, not expected, kept, of another
 * connection. */
#include "worlds/process_pair.h"

#include <errno.h>

#define KIND_EXPECT (MESSAGE_KIND_FIRST + 2) /* {value}: a bare message of this length */

static struct weir_messenger_stats
stats(const struct process *s)
{
	return stats_of(&(struct side){.m = s->m});
}

static uint32_t came, last_length, dropped;
static uint8_t last_first, last_last;
static bool keeps;
static struct weir_loan held_back;
static int mark; /* the state of the connection */

static bool
take_bare(struct weir_messenger *m, const struct message_taken *taken, void *user)
{
	const uint8_t *data = taken->data;

	if (taken->tag.kind == KIND_EXPECT) {
		assert_true(!*message_state(&taken->reply) ||
			    *message_state(&taken->reply) == &mark);
		*message_state(&taken->reply) = &mark;
		message_expect(&taken->reply, taken->tag.value);
		return true;
	}
	if (taken->tag.kind != MESSAGE_BARE)
		return take(m, taken, user);
	came++;
	last_length = taken->length;
	last_first = data[0];
	last_last = data[taken->length - 1];
	assert_int_equal((uintptr_t)data % 8, 0);
	if (keeps)
		message_keep(&taken->reply, &held_back);
	return true;
}

static void
note_dropped(void *state, void *user)
{
	assert_ptr_equal(state, &mark);
	dropped++;
}

static void
open_pair(struct process_pair *p, bool nodes)
{
	struct plane_options plane = message_plane;

	plane.nodes = nodes;
	came = dropped = 0;
	keeps = false;
	*p = (struct process_pair){0};
	open_processes_with(p, &plane, 1, take_bare, note_dropped);
	must(message_enter(p->b.m, 2));
}

/* Sends without waiting: the other process has turns meanwhile. */
static int
send_bare(struct process_pair *p, struct message_lane *lane, uint64_t connection,
	  const uint8_t *data, uint32_t length)
{
	int rc;

	while ((rc = message_lane_send_bare(lane, connection, data, length)) == -EAGAIN)
		weir_messenger_progress(p->b.m, 0, 0);
	return rc;
}

static uint8_t data[300000];

static void
exchange(bool nodes)
{
	static const uint32_t lengths[] = {MESSAGE_BARE_MIN, 5000, 8192, 8193, 262144};
	struct message_lane *lane;
	struct process_pair p;
	uint32_t n = 0;

	open_pair(&p, nodes);
	lane = open_lane(&p.a, 1, 2);
	assert_int_equal(message_lane_connection(lane), 0);
	drive(&p.b, !message_lane_connect(lane, 0));
	for (uint32_t i = 0; i < 2 * sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t length = lengths[i / 2];

		/* as a message with a head begins, and as one of the library's does */
		memset(data, 0, sizeof(data));
		data[0] = i % 2 ? KIND_REFUSE : KIND_MESSAGE;
		data[length - 1] = (uint8_t)i;
		must(post(lane, KIND_EXPECT, length, 0));
		assert_int_not_equal(message_lane_connection(lane), 0);
		/* one with a head may come between them */
		must(post(lane, KIND_COUNT, n, 3));
		must(send_bare(&p, lane, message_lane_connection(lane), data, length));
		n++;
		drive(&p.b, came == n);
		assert_int_equal(p.b.taken[2], n);
		assert_int_equal(last_length, length);
		assert_int_equal(last_first, data[0]);
		assert_int_equal(last_last, i);
	}
	/* kept, it outlives the next one */
	keeps = true;
	data[9] = 77;
	must(post(lane, KIND_EXPECT, 8193, 0));
	must(send_bare(&p, lane, message_lane_connection(lane), data, 8193));
	drive(&p.b, came == n + 1);
	keeps = false;
	data[9] = 78;
	must(post(lane, KIND_EXPECT, 8193, 0));
	must(send_bare(&p, lane, message_lane_connection(lane), data, 8193));
	drive(&p.b, came == n + 2);
	assert_int_equal(((const uint8_t *)held_back.data)[9], 77);
	assert_int_equal(held_back.length, 8193);
	weir_release(p.b.w, &held_back);
	/* on no other connection than the present one */
	assert_int_equal(
	    message_lane_send_bare(lane, message_lane_connection(lane) + 1, data, 8193),
	    -EHOSTUNREACH);
	assert_int_equal(p.b.wrong, 0);
	message_lane_close(lane);
	drive(&p.b, dropped == 1);
	assert_int_equal(stats(&p.b).malformed, 0);
	message_leave(p.b.m);
	close_processes(&p);
}

TEST(test_exchange)
{
	exchange(true);
	exchange(false);
}

/* One that is not expected, or of another length, is a message with a head or nothing. */
TEST(test_lies)
{
	struct message_lane *lane;
	struct process_pair p;

	open_pair(&p, true);
	for (uint32_t i = 0; i < 3; i++) {
		lane = open_lane(&p.a, 1, 2);
		memset(data, 0, sizeof(data));
		drive(&p.b, !message_lane_connect(lane, 0));
		must(post(lane, i ? KIND_EXPECT : KIND_COUNT, i ? 9000 : 0, i ? 0 : 1));
		must(send_bare(&p, lane, message_lane_connection(lane), data,
			       i == 2 ? 9001
			       : i    ? 8999
				      : 9000));
		drive(&p.b, stats(&p.b).malformed == i + 1);
		drive(&p.a, p.a.ends == i + 1);
		assert_int_equal(came, 0);
		message_lane_close(lane);
		p.b.taken[2] = 0;
	}
	drive(&p.b, dropped == 2);
	message_leave(p.b.m);
	close_processes(&p);
}
