/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * QPs of a link fail, and it goes on with new ones: whoever notices first, whatever is lost, late
 * or repeated meanwhile; and what ends it when it can't.
 */
#include "worlds/broker_net.h"

#include "broker/link.h"
#include "broker/quota.h"
#include "broker/set.h"

/* The engine's word that QP k of the link failed. */
static struct engine_event
qp_failed(const struct broker_link *l, unsigned k)
{
	return (struct engine_event){.type = ENGINE_EVENT_LINK_ERROR,
				     .wc_status = NIC_WC_WR_FLUSH_ERR,
				     .qpn = nic_qpn(l->qp[k]),
				     .conn = {.link = l->id, .status = EIO}};
}

static void
qp_error(struct net *n, unsigned i, unsigned k)
{
	struct engine_event e = qp_failed(the_link(n, i), k);

	fake_event(n->f[i], 0, &e);
}

static void
open_net(struct net *n)
{
	bring_up(n);
	n->f[0]->consumed = 1000;
	n->f[0]->received = 100;
	n->f[1]->consumed = 2000;
	n->f[1]->received = 200;
}

/* The very link went on: engines were told so often, with what the other end said. */
static void
assert_resumed(struct net *n, uint32_t times, uint32_t resumes)
{
	assert_joined(n);
	for (unsigned i = 0; i < 2; i++) {
		const struct fake *f = n->f[i];

		assert_int_equal(f->count[ENGINE_LINK_FAIL], 0);
		assert_int_equal(f->count[ENGINE_LINK_ADD], 1);
		assert_int_equal(f->count[ENGINE_LINK_RESUME], times);
		assert_int_equal(f->count[ENGINE_LINK_GO], times);
		assert_int_equal(f->last[ENGINE_LINK_RESUME].link.resumes, resumes);
		assert_int_equal(f->last[ENGINE_LINK_RESUME].link.consumed, n->f[!i]->consumed);
		assert_int_equal(f->last[ENGINE_LINK_RESUME].link.received, n->f[!i]->received);
		assert_int_equal(f->b->counters.links_repaired, times);
		assert_int_equal(f->b->counters.nodes_down, 0);
		assert_true(the_link(n, i)->open);
	}
}

static void
exchange_and_resume(struct net *n, uint32_t times, uint32_t resumes)
{
	exchange(n);
	assert_resumed(n, times, resumes);
}

TEST_NET_EACH(test_ring, open_net, which, 1, 4)
{
	uint32_t rkey, qpn;

	rkey = the_link(n, 0)->ring.mr.rkey;
	qpn = nic_qpn(the_link(n, 0)->qp[0]);
	for (unsigned i = 0; i < 2; i++)
		if (which & 1u << i)
			qp_error(n, i, 0);
	exchange_and_resume(n, 1, WEIR_RESUME_BOTH);
	assert_int_not_equal(the_link(n, 0)->ring.mr.rkey, rkey);
	assert_int_not_equal(nic_qpn(the_link(n, 0)->qp[0]), qpn);
	pass_time(n, 11 * BROKER_SECOND_NS);
	assert_resumed(n, 1, WEIR_RESUME_BOTH);
}

/* The ring's QP and memory stay as they are, and connections are made meanwhile. */
TEST_NET_EACH(test_bulk, open_net, which, 1, 4)
{
	uint32_t rkey, qpn, bulk;

	rkey = the_link(n, 0)->ring.mr.rkey;
	qpn = nic_qpn(the_link(n, 0)->qp[0]);
	bulk = nic_qpn(the_link(n, 0)->qp[1]);
	for (unsigned i = 0; i < 2; i++)
		if (which & 1u << i)
			qp_error(n, i, 1);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_OPEN].conn.link, the_link(n, 0)->id);
	exchange_and_resume(n, 1, WEIR_RESUME_BULK);
	assert_int_equal(the_link(n, 0)->ring.mr.rkey, rkey);
	assert_int_equal(nic_qpn(the_link(n, 0)->qp[0]), qpn);
	assert_int_not_equal(nic_qpn(the_link(n, 0)->qp[1]), bulk);
}

/* A connection that is asked for while the ring is repaired waits for it. */
TEST_NET(test_connect_meanwhile, open_net)
{
	qp_error(n, 0, 0);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_OPEN].conn.link, ENGINE_LINK_NONE);
	exchange_and_resume(n, 1, WEIR_RESUME_BOTH);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.link, the_link(n, 0)->id);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, 0);
}

/* One end lost both, the other only the second, or both in turns. */
TEST_NET_EACH(test_wider, open_net, order, 0, 4)
{
	qp_error(n, 0, 1);
	if (order & 1)
		exchange(n);
	if (order & 2) /* the same end */
		qp_error(n, 0, 0);
	else
		qp_error(n, 1, 0);
	exchange_and_join(n);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(n->f[i]->count[ENGINE_LINK_FAIL], 0);
		assert_int_equal(n->f[i]->last[ENGINE_LINK_RESUME].link.resumes, WEIR_RESUME_BOTH);
		assert_true(the_link(n, i)->open);
	}
}

/* While the engine is busy with one step the next fault comes. */
TEST_NET_EACH(test_during_steps, open_net, k, 0, 2)
{
	n->f[0]->hold = true;
	qp_error(n, 0, 1); /* PAUSE is held */
	qp_error(n, 0, k);
	fake_let_go(n->f[0]);
	n->f[1]->hold = true;
	exchange(n); /* node 2 pauses */
	fake_release(n->f[1]);
	exchange(n); /* and resumes */
	qp_error(n, 1, 0);
	fake_let_go(n->f[1]);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 0);
	assert_int_equal(n->f[1]->count[ENGINE_LINK_FAIL], 0);
}

/* Message number `lost` of the repair does not arrive. */
TEST_NET_EACH(test_lost_offers, open_net, which, 0, 8)
{
	unsigned lost = which / 2, k = which % 2;

	qp_error(n, 0, k);
	for (unsigned i = 0; n->f[0]->output_count + n->f[1]->output_count; i++) {
		unsigned from = n->f[0]->output_count ? 0 : 1;
		struct weir_ctl_msg m = take_output(n->f[from], 0);

		if (i != lost)
			hand_over(n, from, &m);
	}
	for (unsigned i = 0; i < 4; i++) {
		pass_time(n, BROKER_SECOND_NS / 2);
		exchange(n);
	}
	assert_resumed(n, 1, k ? WEIR_RESUME_BULK : WEIR_RESUME_BOTH);
}

/* All that was ever said comes again, at any time. */
TEST_NET(test_late_offers, open_net_of_two)
{
	struct weir_ctl_msg said[64];
	unsigned from[64], count = 0;

	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	for (unsigned round = 0; round < 3; round++) {
		while (n->f[0]->output_count + n->f[1]->output_count) {
			unsigned i = n->f[0]->output_count ? 0 : 1;

			assert_true(count < 64);
			from[count] = i;
			said[count] = take_output(n->f[i], 0);
			hand_over(n, i, &said[count++]);
		}
		assert_joined(n);
		if (round < 2)
			qp_error(n, round, 0);
	}
	for (unsigned i = 0; i < count; i++) {
		hand_over(n, from[i], &said[i]);
		exchange_and_resume(n, 2, WEIR_RESUME_BOTH);
	}
	qp_error(n, 0, 1);
	for (unsigned i = 0; i < count; i++)
		hand_over(n, from[i], &said[i]);
	exchange_and_resume(n, 3, WEIR_RESUME_BULK);
}

/* The peer has given the link up for good: it ends here too, and a new one comes. */
TEST_NET(test_peer_forgot, open_net)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR};

	e.conn.link = the_link(n, 1)->id;
	e.conn.status = EPROTO;
	fake_emit(n->f[1], 0, &e);
	qp_error(n, 0, 0);
	fake_run(n->f[1]);
	exchange_and_join(n);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(n->f[i]->count[ENGINE_LINK_FAIL], 1);
		assert_int_equal(n->f[i]->count[ENGINE_LINK_ADD], 2);
		assert_int_equal(n->f[i]->last[ENGINE_LINK_FAIL].link.status, ECONNRESET);
	}
}

/* The other end took up our first offer, and its QPs failed before we heard of it. */
TEST_NET(test_never_came_up, open_net_of_two)
{
	struct weir_ctl_msg offer;

	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	offer = take_output(n->f[0], 0);
	hand_over(n, 0, &offer);
	take_output(n->f[1], 0);
	qp_error(n, 1, 0);
	exchange_and_join(n);
}

/* Nobody answers: bounded in time, and said to control meanwhile. */
TEST_NET_EACH(test_given_up, open_net, k, 0, 2)
{
	unsigned silent = 0;

	qp_error(n, 0, k);
	for (unsigned i = 0; i < 21; i++) {
		assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], i == 20);
		pass_time(n, BROKER_SECOND_NS / 2);
		while (n->f[0]->output_count)
			silent += take_output(n->f[0], 0).type == WEIR_CTL_LINK_DOWN;
	}
	assert_int_equal(n->f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 1);
	assert_true(k ? !silent : silent > 10);
	assert_int_equal(the_link(n, 0)->state, LINK_DOWN);
}

/* "No answer" of either queue pair is said to control at once, and before what is offered then. */
TEST_NET_EACH(test_no_answer, open_net, k, 0, 2)
{
	struct engine_event e = qp_failed(the_link(n, 0), k);

	n->f[0]->output_count = 0;
	e.wc_status = NIC_WC_RETRY_EXC_ERR;
	e.conn.status = ETIMEDOUT;
	fake_event(n->f[0], 0, &e);
	assert_true(n->f[0]->output_count >= 1);
	assert_int_equal(n->f[0]->output[0].type, WEIR_CTL_LINK_DOWN);
	assert_int_equal(n->f[0]->output[0].link_down.peer_node, 2);
	for (unsigned i = 0; i < 4; i++) {
		n->f[0]->output_count = 0;
		pass_time(n, BROKER_SECOND_NS / 2);
		assert_int_equal(n->f[0]->output_count, k ? 1 : 2);
		assert_int_equal(n->f[0]->output[k ? 0 : 1].type, WEIR_CTL_LINK);
	}
	exchange_and_join(n);
}

/* It comes up each time, but what was sent never gets through: 10 s from the first fault. */
TEST_NET(test_no_progress, open_net)
{
	unsigned tries = 0;

	for (uint64_t t = 0; t < 12 * BROKER_SECOND_NS; t += BROKER_SECOND_NS / 10) {
		if (the_link(n, 0)->state == LINK_UP) {
			qp_error(n, 0, 0);
			n->f[0]->unproven = true;
			tries++;
		}
		exchange(n);
		pass_time(n, BROKER_SECOND_NS / 10);
		exchange(n);
		if (n->f[0]->count[ENGINE_LINK_FAIL])
			break;
	}
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 1);
	assert_true(tries > 10 && tries < 110); /* nor as fast as it can */
	assert_int_equal(n->f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
}

/* With progress it may go on for ever. */
TEST_NET(test_progress, open_net)
{
	for (uint32_t i = 1; i <= 40; i++) {
		qp_error(n, i % 2, i % 3 == 0);
		exchange(n);
		pass_time(n, BROKER_SECOND_NS / 2);
		assert_resumed(n, i, i % 3 == 0 ? WEIR_RESUME_BULK : WEIR_RESUME_BOTH);
	}
}

/* The room for answers stays what a link began with; the next link has what is set now. */
TEST_NET(test_answers, open_net)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR, .conn = {.status = EPROTO}};
	const struct engine_command *add = &n->f[0]->last[ENGINE_LINK_ADD];
	char reason[160];

	assert_int_equal(setting_set(n->f[0]->b, "limit.answers", "32K", reason, sizeof(reason)),
			 1);
	qp_error(n, 0, 0);
	exchange_and_resume(n, 1, WEIR_RESUME_BOTH);
	assert_int_equal(n->f[0]->last[ENGINE_LINK_RESUME].link.answer_lines, 2048);
	assert_int_equal(n->f[1]->last[ENGINE_LINK_RESUME].link.peer_answers, 128 << 10);
	e.conn.link = the_link(n, 0)->id;
	fake_event(n->f[0], 0, &e); /* the peer broke the rules: another link */
	exchange_and_join(n);
	assert_int_equal(add->link.answer_lines, 512);
	assert_int_equal(add->link.peer_answers, 128 << 10);
	assert_int_equal(n->f[1]->last[ENGINE_LINK_ADD].link.peer_answers, 32 << 10);
}

/* A new incarnation of the peer, or of what control says, in the middle. */
TEST_NET(test_restart, open_net)
{
	qp_error(n, 0, 0);
	n->f[0]->output_count = 0;
	fake_close(n->f[1]);
	n->f[1] = open_node(2, 1, 201);
	fake_node(n->f[1], 1, WEIR_NODE_UP, 100, 1);
	open_session(n, 1);
	fake_node(n->f[0], 2, WEIR_NODE_UP, 201, 1);
	assert_int_equal(n->f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_RESUME], 0);
}

TEST_NET_EACH(test_node_down, open_net, held, 0, 2)
{
	n->f[0]->hold = held;
	qp_error(n, 0, 0);
	fake_node(n->f[0], 2, WEIR_NODE_DOWN, 200, 1);
	fake_let_go(n->f[0]);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 1);
	assert_int_equal(n->f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
	assert_int_equal(the_link(n, 0)->state, LINK_DOWN);
	assert_int_equal(n->f[0]->live_qps, 0);
}

/* Control dies with all that it was told, and comes again. */
TEST_NET(test_control_restarts, open_net)
{
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO, .hello = {.node = 1}};

	qp_error(n, 0, 0);
	n->f[0]->output_count = 0;
	fake_told(n->f[0], &hello);
	link_resync(n->f[0]->b);
	exchange_and_resume(n, 1, WEIR_RESUME_BOTH);
}

/* The driver reports it before the engine does. */
TEST_NET_EACH(test_fatal_event, open_net, k, 0, 2)
{
	struct fake *f;

	f = n->f[0];
	f->async[f->async_end++] = (struct nic_async_event){.type = NIC_EVENT_QP_FATAL,
							    .qp_user = the_link(n, 0)->user[k]};
	pass_time(n, BROKER_SECOND_NS / 10);
	exchange_and_resume(n, 1, k ? WEIR_RESUME_BULK : WEIR_RESUME_BOTH);
}

TEST_NET(test_stale_error, open_net)
{
	struct engine_event e = qp_failed(the_link(n, 0), 0);

	qp_error(n, 0, 0);
	exchange(n);
	fake_event(n->f[0], 0, &e); /* of the QP that is gone */
	exchange_and_resume(n, 1, WEIR_RESUME_BOTH);
}

TEST_NET(test_no_memory, open_net)
{
	n->f[0]->qp_fail = -ENOMEM;
	qp_error(n, 0, 0);
	assert_int_equal(the_link(n, 0)->state, LINK_PAUSED);
	pass_time(n, BROKER_SECOND_NS);
	n->f[0]->qp_fail = 0;
	pass_time(n, BROKER_SECOND_NS / 10);
	exchange_and_resume(n, 1, WEIR_RESUME_BOTH);
}

/* The peer claims to have consumed more than was sent: both begin anew. */
TEST_NET(test_liar, open_net)
{
	n->f[0]->fail_type = ENGINE_LINK_RESUME;
	n->f[0]->fail_rc = -EPROTO;
	qp_error(n, 0, 0);
	exchange(n);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 1);
	assert_int_equal(n->f[0]->last[ENGINE_LINK_FAIL].link.status, ECONNRESET);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	exchange_and_join(n);
}

/* Heard in-band: confirmed without control. */
TEST_NET(test_heard, open_net)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_HEARD};
	struct weir_ctl_msg m;

	qp_error(n, 0, 0);
	m = take_output(n->f[0], 0);
	hand_over(n, 0, &m);
	m = take_output(n->f[1], 0);
	hand_over(n, 1, &m);
	n->f[0]->output_count = 0; /* lost */
	assert_false(the_link(n, 1)->confirmed);
	e.conn.link = the_link(n, 1)->id;
	fake_event(n->f[1], 0, &e); /* of another QP */
	assert_false(the_link(n, 1)->confirmed);
	e.qpn = nic_qpn(the_link(n, 1)->qp[0]);
	fake_event(n->f[1], 0, &e);
	assert_resumed(n, 1, WEIR_RESUME_BOTH);
}

TEST_NET_EACH(test_loop, open_net_of_two, k, 0, 2)
{
	struct engine_event e;
	struct broker_link *l;

	fake_connect(n->f[0], &n->s[0], 1, "echo", WEIR_CONNECT_LOOP);
	l = n->f[0]->b->links;
	e = qp_failed(l, k);
	fake_event(n->f[0], 0, &e);
	assert_int_equal(n->f[0]->links, 2);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_RESUME], 2);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_GO], 2);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 0);
	assert_true(l->open && l->loop_end->open);
	assert_int_equal(((struct fake_qp *)l->qp[k])->remote_qpn, nic_qpn(l->loop_end->qp[k]));
}
