/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes whose data plane is restarted: guests receive again, and lanes go on. */
#include "worlds/process_pair.h"

static void
start_again(struct process_pair *p)
{
	plane_kill(p->f);
	await(weir_state(weir_now(p->a.w)) != WEIR_UP && weir_state(weir_now(p->b.w)) != WEIR_UP);
}

static void
come_back(struct process_pair *p)
{
	plane_come_back(p->f);
	must(weir_reattach(p->a.w, PATIENT));
	must(weir_reattach(p->b.w, PATIENT));
}

/* Receivers listen again one after another. */
static void
post_again(struct process_pair *p, struct message_lane *lane, uint32_t value)
{
	int rc;

	drive(&p->b, (rc = post(lane, KIND_COUNT, value, 8)) != -ECONNREFUSED);
	must(rc);
}

static void
reattach(uint32_t handler_threads)
{
	struct plane_options plane = message_plane;
	struct message_lane *lane[2];
	struct process_pair p;
	uint32_t ends;

	plane.watched = true;
	plane.nodes = false;
	open_processes(&p, &plane, handler_threads);
	must(message_enter(p.b.m, 2));
	lane[0] = open_lane(&p.a, 1, 2);
	lane[1] = open_lane(&p.a, 1, MESSAGE_HANDLERS);
	for (uint32_t round = 0; round < 3; round++) {
		post_again(&p, lane[0], 2 * round);
		post_again(&p, lane[1], 2 * round);
		drive(&p.b, p.b.taken[2] == 2 * round + 1 && p.b.taken[GUESTS] == 2 * round + 1);
		must(post(lane[0], KIND_COUNT, 2 * round + 1, 8));
		must(post(lane[1], KIND_COUNT, 2 * round + 1, 8));
		drive(&p.b, p.b.taken[2] == 2 * round + 2 && p.b.taken[GUESTS] == 2 * round + 2);
		ends = p.a.ends;
		start_again(&p);
		assert_int_equal(post(lane[0], KIND_COUNT, 0, 8), -ENODEV);
		drive(&p.b, weir_messenger_progress(p.b.m, 0, 0) == -ENODEV);
		come_back(&p);
		drive(&p.a, p.a.ends == ends + 2);
		assert_int_equal(p.a.status, -ENODEV);
	}
	post_again(&p, lane[0], 6);
	drive(&p.b, p.b.taken[2] == 7);
	assert_int_equal(p.a.wrong + p.b.wrong, 0);
	must(message_leave(p.b.m));
	/* a guest whose data plane goes meanwhile may leave, and enter the next session */
	must(message_enter(p.b.m, 1));
	start_again(&p);
	must(message_leave(p.b.m));
	assert_int_equal(message_enter(p.b.m, 1), -ENODEV);
	come_back(&p);
	must(message_enter(p.b.m, 1));
	message_lane_close(lane[0]);
	lane[0] = open_lane(&p.a, 1, 1);
	must(post(lane[0], KIND_COUNT, 0, 8));
	drive(&p.b, p.b.taken[1] == 1);
	start_again(&p);
	close_processes(&p);
}

TEST(test_handler_threads)
{
	reattach(2);
}

TEST(test_driven)
{
	reattach(0);
}

int
main(void)
{
	return test_run();
}
