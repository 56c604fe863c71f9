/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * QPs of a link fail, and it goes on with new ones: whoever notices first, whatever is lost, late
 * or repeated meanwhile; and what ends it when it can't.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worlds/broker_net.h"

#include "broker/link.h"

#include <errno.h>

/* The engine says that QP k of its end of the link failed. */
static void
qp_error(struct net *n, unsigned i, unsigned k)
{
	struct broker_link *l = the_link(n, i);
	struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR, .wc_status = NIC_WC_WR_FLUSH_ERR};

	e.qpn = nic_qpn(l->qp[k]);
	e.conn.link = l->id;
	e.conn.status = EIO;
	fake_emit(n->f[i], 0, &e);
	fake_run(n->f[i]);
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
test_ring(void **state)
{
	for (unsigned which = 1; which < 4; which++) {
		struct net n;
		uint32_t rkey, qpn;

		open_net(&n);
		rkey = the_link(&n, 0)->ring_mr.rkey;
		qpn = nic_qpn(the_link(&n, 0)->qp[0]);
		for (unsigned i = 0; i < 2; i++)
			if (which & 1u << i)
				qp_error(&n, i, 0);
		exchange(&n);
		assert_resumed(&n, 1, WEIR_RESUME_BOTH);
		assert_int_not_equal(the_link(&n, 0)->ring_mr.rkey, rkey);
		assert_int_not_equal(nic_qpn(the_link(&n, 0)->qp[0]), qpn);
		pass_time(&n, 11 * BROKER_SECOND_NS);
		assert_resumed(&n, 1, WEIR_RESUME_BOTH);
		net_close(&n);
	}
}

/* The ring's QP and memory stay as they are, and connections are made meanwhile. */
static void
test_bulk(void **state)
{
	for (unsigned which = 1; which < 4; which++) {
		struct net n;
		uint32_t rkey, qpn, bulk;

		open_net(&n);
		rkey = the_link(&n, 0)->ring_mr.rkey;
		qpn = nic_qpn(the_link(&n, 0)->qp[0]);
		bulk = nic_qpn(the_link(&n, 0)->qp[1]);
		for (unsigned i = 0; i < 2; i++)
			if (which & 1u << i)
				qp_error(&n, i, 1);
		fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
		assert_int_equal(n.f[0]->last[ENGINE_CONN_OPEN].conn.link, the_link(&n, 0)->id);
		exchange(&n);
		assert_resumed(&n, 1, WEIR_RESUME_BULK);
		assert_int_equal(the_link(&n, 0)->ring_mr.rkey, rkey);
		assert_int_equal(nic_qpn(the_link(&n, 0)->qp[0]), qpn);
		assert_int_not_equal(nic_qpn(the_link(&n, 0)->qp[1]), bulk);
		net_close(&n);
	}
}

/* A connection that is asked for while the ring is repaired waits for it. */
static void
test_connect_meanwhile(void **state)
{
	struct net n;

	open_net(&n);
	qp_error(&n, 0, 0);
	fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
	assert_int_equal(n.f[0]->last[ENGINE_CONN_OPEN].conn.link, ENGINE_LINK_NONE);
	exchange(&n);
	assert_resumed(&n, 1, WEIR_RESUME_BOTH);
	assert_int_equal(n.f[0]->last[ENGINE_CONN_START].conn.link, the_link(&n, 0)->id);
	assert_int_equal(n.f[0]->last[ENGINE_CONN_START].conn.status, 0);
	net_close(&n);
}

/* One end lost both, the other only the second, or both in turns. */
static void
test_wider(void **state)
{
	for (unsigned order = 0; order < 4; order++) {
		struct net n;

		open_net(&n);
		qp_error(&n, 0, 1);
		if (order & 1)
			exchange(&n);
		if (order & 2) /* the same end */
			qp_error(&n, 0, 0);
		else
			qp_error(&n, 1, 0);
		exchange(&n);
		assert_joined(&n);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(n.f[i]->count[ENGINE_LINK_FAIL], 0);
			assert_int_equal(n.f[i]->last[ENGINE_LINK_RESUME].link.resumes,
					 WEIR_RESUME_BOTH);
			assert_true(the_link(&n, i)->open);
		}
		net_close(&n);
	}
}

/* While the engine is busy with one step the next fault comes. */
static void
test_during_steps(void **state)
{
	for (unsigned k = 0; k < 2; k++) {
		struct net n;

		open_net(&n);
		n.f[0]->hold = true;
		qp_error(&n, 0, 1); /* PAUSE is held */
		qp_error(&n, 0, k);
		n.f[0]->hold = false;
		fake_release(n.f[0]);
		n.f[1]->hold = true;
		exchange(&n); /* node 2 pauses */
		fake_release(n.f[1]);
		exchange(&n); /* and resumes */
		qp_error(&n, 1, 0);
		n.f[1]->hold = false;
		fake_release(n.f[1]);
		exchange(&n);
		assert_joined(&n);
		assert_int_equal(n.f[0]->count[ENGINE_LINK_FAIL], 0);
		assert_int_equal(n.f[1]->count[ENGINE_LINK_FAIL], 0);
		net_close(&n);
	}
}

/* Message number `lost` of the repair does not arrive. */
static void
test_lost_offers(void **state)
{
	for (unsigned lost = 0; lost < 4; lost++)
		for (unsigned k = 0; k < 2; k++) {
			struct net n;

			open_net(&n);
			qp_error(&n, 0, k);
			for (unsigned i = 0; n.f[0]->output_count + n.f[1]->output_count; i++) {
				unsigned from = n.f[0]->output_count ? 0 : 1;
				struct weir_ctl_msg m = take_output(n.f[from], 0);

				if (i != lost)
					hand_over(&n, from, &m);
			}
			for (unsigned i = 0; i < 4; i++) {
				pass_time(&n, BROKER_SECOND_NS / 2);
				exchange(&n);
			}
			assert_resumed(&n, 1, k ? WEIR_RESUME_BULK : WEIR_RESUME_BOTH);
			net_close(&n);
		}
}

/* All that was ever said comes again, at any time. */
static void
test_late_offers(void **state)
{
	struct weir_ctl_msg said[64];
	unsigned from[64], count = 0;
	struct net n;

	net_open(&n, 1, 1);
	fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
	for (unsigned round = 0; round < 3; round++) {
		while (n.f[0]->output_count + n.f[1]->output_count) {
			unsigned i = n.f[0]->output_count ? 0 : 1;

			assert_true(count < 64);
			from[count] = i;
			said[count] = take_output(n.f[i], 0);
			hand_over(&n, i, &said[count++]);
		}
		assert_joined(&n);
		if (round < 2)
			qp_error(&n, round, 0);
	}
	for (unsigned i = 0; i < count; i++) {
		hand_over(&n, from[i], &said[i]);
		exchange(&n);
		assert_resumed(&n, 2, WEIR_RESUME_BOTH);
	}
	qp_error(&n, 0, 1);
	for (unsigned i = 0; i < count; i++)
		hand_over(&n, from[i], &said[i]);
	exchange(&n);
	assert_resumed(&n, 3, WEIR_RESUME_BULK);
	net_close(&n);
}

/* The peer has given the link up for good: it ends here too, and a new one comes. */
static void
test_peer_forgot(void **state)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR};
	struct net n;

	open_net(&n);
	e.conn.link = the_link(&n, 1)->id;
	e.conn.status = EPROTO;
	fake_emit(n.f[1], 0, &e);
	qp_error(&n, 0, 0);
	fake_run(n.f[1]);
	exchange(&n);
	assert_joined(&n);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(n.f[i]->count[ENGINE_LINK_FAIL], 1);
		assert_int_equal(n.f[i]->count[ENGINE_LINK_ADD], 2);
		assert_int_equal(n.f[i]->last[ENGINE_LINK_FAIL].link.status, ECONNRESET);
	}
	net_close(&n);
}

/* The other end took up our first offer, and its QPs failed before we heard of it. */
static void
test_never_came_up(void **state)
{
	struct weir_ctl_msg offer;
	struct net n;

	net_open(&n, 1, 1);
	fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
	offer = take_output(n.f[0], 0);
	hand_over(&n, 0, &offer);
	take_output(n.f[1], 0);
	qp_error(&n, 1, 0);
	exchange(&n);
	assert_joined(&n);
	net_close(&n);
}

/* Nobody answers: bounded in time, and said to control meanwhile. */
static void
test_given_up(void **state)
{
	for (unsigned k = 0; k < 2; k++) {
		unsigned silent = 0;
		struct net n;

		open_net(&n);
		qp_error(&n, 0, k);
		for (unsigned i = 0; i < 21; i++) {
			assert_int_equal(n.f[0]->count[ENGINE_LINK_FAIL], i == 20);
			pass_time(&n, BROKER_SECOND_NS / 2);
			while (n.f[0]->output_count)
				silent += take_output(n.f[0], 0).type == WEIR_CTL_LINK_DOWN;
		}
		assert_int_equal(n.f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
		assert_int_equal(n.f[0]->b->counters.nodes_down, 1);
		assert_true(k ? !silent : silent > 10);
		assert_int_equal(the_link(&n, 0)->state, LINK_DOWN);
		net_close(&n);
	}
}

/* "No answer" of either queue pair is said to control at once, and before what is offered then. */
static void
test_no_answer(void **state)
{
	for (unsigned k = 0; k < 2; k++) {
		struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR,
					 .wc_status = NIC_WC_RETRY_EXC_ERR};
		struct net n;

		open_net(&n);
		n.f[0]->output_count = 0;
		e.qpn = nic_qpn(the_link(&n, 0)->qp[k]);
		e.conn.link = the_link(&n, 0)->id;
		e.conn.status = ETIMEDOUT;
		fake_emit(n.f[0], 0, &e);
		fake_run(n.f[0]);
		assert_true(n.f[0]->output_count >= 1);
		assert_int_equal(n.f[0]->output[0].type, WEIR_CTL_LINK_DOWN);
		assert_int_equal(n.f[0]->output[0].link_down.peer_node, 2);
		for (unsigned i = 0; i < 4; i++) {
			n.f[0]->output_count = 0;
			pass_time(&n, BROKER_SECOND_NS / 2);
			assert_int_equal(n.f[0]->output_count, k ? 1 : 2);
			assert_int_equal(n.f[0]->output[k ? 0 : 1].type, WEIR_CTL_LINK);
		}
		exchange(&n);
		assert_joined(&n);
		net_close(&n);
	}
}

/* It comes up each time, but what was sent never gets through: 10 s from the first fault. */
static void
test_no_progress(void **state)
{
	struct net n;
	unsigned tries = 0;

	open_net(&n);
	for (uint64_t t = 0; t < 12 * BROKER_SECOND_NS; t += BROKER_SECOND_NS / 10) {
		if (the_link(&n, 0)->state == LINK_UP) {
			qp_error(&n, 0, 0);
			n.f[0]->unproven = true;
			tries++;
		}
		exchange(&n);
		pass_time(&n, BROKER_SECOND_NS / 10);
		exchange(&n);
		if (n.f[0]->count[ENGINE_LINK_FAIL])
			break;
	}
	assert_int_equal(n.f[0]->count[ENGINE_LINK_FAIL], 1);
	assert_true(tries > 10 && tries < 110); /* nor as fast as it can */
	assert_int_equal(n.f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
	net_close(&n);
}

/* With progress it may go on for ever. */
static void
test_progress(void **state)
{
	struct net n;

	open_net(&n);
	for (uint32_t i = 1; i <= 40; i++) {
		qp_error(&n, i % 2, i % 3 == 0);
		exchange(&n);
		pass_time(&n, BROKER_SECOND_NS / 2);
		assert_resumed(&n, i, i % 3 == 0 ? WEIR_RESUME_BULK : WEIR_RESUME_BOTH);
	}
	net_close(&n);
}

/* A new incarnation of the peer, or of what control says, in the middle. */
static void
test_restart(void **state)
{
	struct net n;

	open_net(&n);
	qp_error(&n, 0, 0);
	n.f[0]->output_count = 0;
	fake_close(n.f[1]);
	n.f[1] = open_node(2, 1, 201);
	fake_node(n.f[1], 1, WEIR_NODE_UP, 100, 1);
	open_session(&n, 1);
	fake_node(n.f[0], 2, WEIR_NODE_UP, 201, 1);
	assert_int_equal(n.f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
	fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
	exchange(&n);
	assert_joined(&n);
	assert_int_equal(n.f[0]->count[ENGINE_LINK_RESUME], 0);
	net_close(&n);
}

static void
test_node_down(void **state)
{
	for (unsigned held = 0; held < 2; held++) {
		struct net n;

		open_net(&n);
		n.f[0]->hold = held;
		qp_error(&n, 0, 0);
		fake_node(n.f[0], 2, WEIR_NODE_DOWN, 200, 1);
		n.f[0]->hold = false;
		fake_release(n.f[0]);
		assert_int_equal(n.f[0]->count[ENGINE_LINK_FAIL], 1);
		assert_int_equal(n.f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
		assert_int_equal(the_link(&n, 0)->state, LINK_DOWN);
		assert_int_equal(n.f[0]->live_qps, 0);
		net_close(&n);
	}
}

/* Control dies with all that it was told, and comes again. */
static void
test_control_restarts(void **state)
{
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO, .hello = {.node = 1}};
	struct net n;

	open_net(&n);
	qp_error(&n, 0, 0);
	n.f[0]->output_count = 0;
	broker_control_input(n.f[0]->b, &hello);
	fake_run(n.f[0]);
	link_resync(n.f[0]->b);
	exchange(&n);
	assert_resumed(&n, 1, WEIR_RESUME_BOTH);
	net_close(&n);
}

/* The driver reports it before the engine does. */
static void
test_fatal_event(void **state)
{
	for (unsigned k = 0; k < 2; k++) {
		struct net n;
		struct fake *f;

		open_net(&n);
		f = n.f[0];
		f->async[f->async_end++] = (struct nic_async_event){
		    .type = NIC_EVENT_QP_FATAL, .qp_user = the_link(&n, 0)->user[k]};
		pass_time(&n, BROKER_SECOND_NS / 10);
		exchange(&n);
		assert_resumed(&n, 1, k ? WEIR_RESUME_BULK : WEIR_RESUME_BOTH);
		net_close(&n);
	}
}

static void
test_stale_error(void **state)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR, .wc_status = NIC_WC_WR_FLUSH_ERR};
	struct net n;

	open_net(&n);
	e.qpn = nic_qpn(the_link(&n, 0)->qp[0]);
	e.conn.link = the_link(&n, 0)->id;
	e.conn.status = EIO;
	qp_error(&n, 0, 0);
	exchange(&n);
	fake_emit(n.f[0], 0, &e); /* of the QP that is gone */
	fake_run(n.f[0]);
	exchange(&n);
	assert_resumed(&n, 1, WEIR_RESUME_BOTH);
	net_close(&n);
}

static void
test_no_memory(void **state)
{
	struct net n;

	open_net(&n);
	n.f[0]->qp_fail = -ENOMEM;
	qp_error(&n, 0, 0);
	assert_int_equal(the_link(&n, 0)->state, LINK_PAUSED);
	pass_time(&n, BROKER_SECOND_NS);
	n.f[0]->qp_fail = 0;
	pass_time(&n, BROKER_SECOND_NS / 10);
	exchange(&n);
	assert_resumed(&n, 1, WEIR_RESUME_BOTH);
	net_close(&n);
}

/* The engine finds that the peer can't have consumed so much: both begin anew. */
static void
test_liar(void **state)
{
	struct net n;

	open_net(&n);
	n.f[0]->fail_type = ENGINE_LINK_RESUME;
	n.f[0]->fail_rc = -EPROTO;
	qp_error(&n, 0, 0);
	exchange(&n);
	assert_int_equal(n.f[0]->count[ENGINE_LINK_FAIL], 1);
	assert_int_equal(n.f[0]->last[ENGINE_LINK_FAIL].link.status, ECONNRESET);
	fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
	exchange(&n);
	assert_joined(&n);
	net_close(&n);
}

/* Heard in-band: confirmed without control. */
static void
test_heard(void **state)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_HEARD};
	struct weir_ctl_msg m;
	struct net n;

	open_net(&n);
	qp_error(&n, 0, 0);
	m = take_output(n.f[0], 0);
	hand_over(&n, 0, &m);
	m = take_output(n.f[1], 0);
	hand_over(&n, 1, &m);
	n.f[0]->output_count = 0; /* lost */
	assert_false(the_link(&n, 1)->confirmed);
	e.conn.link = the_link(&n, 1)->id;
	fake_emit(n.f[1], 0, &e); /* of another QP */
	fake_run(n.f[1]);
	assert_false(the_link(&n, 1)->confirmed);
	e.qpn = nic_qpn(the_link(&n, 1)->qp[0]);
	fake_emit(n.f[1], 0, &e);
	fake_run(n.f[1]);
	assert_resumed(&n, 1, WEIR_RESUME_BOTH);
	net_close(&n);
}

static void
test_loop(void **state)
{
	for (unsigned k = 0; k < 2; k++) {
		struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR,
					 .wc_status = NIC_WC_WR_FLUSH_ERR};
		struct broker_link *l;
		struct net n;

		net_open(&n, 1, 1);
		fake_connect(n.f[0], &n.s[0], 1, "echo", WEIR_CONNECT_LOOP);
		l = n.f[0]->b->links;
		e.qpn = nic_qpn(l->qp[k]);
		e.conn.link = l->id;
		e.conn.status = EIO;
		fake_emit(n.f[0], 0, &e);
		fake_run(n.f[0]);
		assert_int_equal(n.f[0]->links, 2);
		assert_int_equal(n.f[0]->count[ENGINE_LINK_RESUME], 2);
		assert_int_equal(n.f[0]->count[ENGINE_LINK_GO], 2);
		assert_int_equal(n.f[0]->count[ENGINE_LINK_FAIL], 0);
		assert_true(l->open && l->loop_end->open);
		assert_int_equal(((struct fake_qp *)l->qp[k])->remote_qpn,
				 nic_qpn(l->loop_end->qp[k]));
		net_close(&n);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ring),
	    cmocka_unit_test(test_bulk),
	    cmocka_unit_test(test_connect_meanwhile),
	    cmocka_unit_test(test_wider),
	    cmocka_unit_test(test_during_steps),
	    cmocka_unit_test(test_lost_offers),
	    cmocka_unit_test(test_late_offers),
	    cmocka_unit_test(test_peer_forgot),
	    cmocka_unit_test(test_never_came_up),
	    cmocka_unit_test(test_given_up),
	    cmocka_unit_test(test_no_answer),
	    cmocka_unit_test(test_no_progress),
	    cmocka_unit_test(test_progress),
	    cmocka_unit_test(test_restart),
	    cmocka_unit_test(test_node_down),
	    cmocka_unit_test(test_control_restarts),
	    cmocka_unit_test(test_fatal_event),
	    cmocka_unit_test(test_stale_error),
	    cmocka_unit_test(test_no_memory),
	    cmocka_unit_test(test_liar),
	    cmocka_unit_test(test_heard),
	    cmocka_unit_test(test_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
