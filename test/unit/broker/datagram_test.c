/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Main makes one queue pair per engine and one address handle per link for datagram connections,
 * when they are needed; it says why it can't, and replaces a queue pair that has failed.
 */
#include "worlds/broker_net.h"

#include "broker/link.h"
#include "ipc/address.h"

#define MTU (1024u - sizeof(struct weir_datagram_head))

static struct fake_qp *
ud_qp(struct fake *f)
{
	struct fake_qp *q = f->qps;

	while (q && !q->ud)
		q = q->next;
	return q;
}

static void
ask(struct net *n)
{
	assert_int_equal(fake_connect(n->f[0], &n->s[0], 2, "echo", WEIR_CONNECT_DATAGRAM),
			 WEIR_MSG_CONNECTING);
	exchange(n);
}

TEST_NET(test_made_once, open_net_of_two)
{
	struct engine_command *k;

	ask(n);
	k = &n->f[0]->last[ENGINE_CONN_START];
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1);
	assert_int_equal(k->conn.status, 0);
	assert_int_equal(k->conn.kind, CONN_DATAGRAM);
	assert_int_equal(k->conn.mtu, MTU);
	assert_non_null(k->conn.ah);
	assert_memory_equal(n->f[0]->last_ah.gid.raw, nic_gid_ipv4(0x0a000002).raw, 16);
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_ADD], 1);
	k = &n->f[0]->last[ENGINE_DATAGRAM_ADD];
	assert_ptr_equal(k->datagram.qp, ud_qp(n->f[0]));
	assert_int_equal(ud_qp(n->f[0])->state, NIC_QP_RTS);
	assert_int_equal(ud_qp(n->f[0])->qkey, k->datagram.qkey);
	assert_int_equal(k->datagram.qkey >> 31, 0);
	/* nothing of it before it is needed, at either end */
	assert_null(ud_qp(n->f[1]));
	assert_int_equal(n->f[1]->live_ahs, 0);

	ask(n); /* the link is up, all is there */
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 2);
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_ADD], 1);
	assert_int_equal(n->f[0]->live_ahs, 1);
	assert_int_equal(n->f[0]->live_qps, 3);
	/* streams are opened in one step, as ever */
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 2);
	/* the handle goes with the link, the queue pair stays */
	fake_node(n->f[0], 2, WEIR_NODE_DOWN, 200, 1);
	assert_int_equal(the_link(n, 0)->state, LINK_DOWN);
	assert_int_equal(n->f[0]->live_ahs, 0);
	assert_int_equal(n->f[0]->live_qps, 1);
}

static void
asked(struct net *n, unsigned i)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT,
				 .conn = {.link = the_link(n, i)->id,
					  .peer_node = (uint16_t)(2 - i),
					  .peer_vqpn = 0x100001,
					  .kind = CONN_DATAGRAM,
					  .to = {77, 88},
					  .service = "echo"}};

	fake_event(n->f[i], 0, &e);
}

TEST_NET(test_accept, bring_up)
{
	struct engine_command *k;

	asked(n, 1);
	k = &n->f[1]->last[ENGINE_CONN_ACCEPT];
	assert_int_equal(n->f[1]->count[ENGINE_CONN_ACCEPT], 1);
	assert_int_equal(k->conn.kind, CONN_DATAGRAM);
	assert_int_equal(k->conn.mtu, MTU);
	assert_non_null(k->conn.ah);
	assert_int_equal(k->conn.to.qpn, 77);
	assert_int_equal(k->conn.to.qkey, 88);
	assert_int_equal(n->f[1]->count[ENGINE_DATAGRAM_ADD], 1);
}

/* A port without datagrams: streams don't notice. */
TEST_NET(test_not_offered, bring_up)
{
	n->f[0]->qp_fail = -EPROTONOSUPPORT;
	ask(n);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, EOPNOTSUPP);
	assert_int_equal(n->f[0]->live_srqs, 0);
	n->f[0]->qp_fail = 0;
	n->f[0]->ah_fail = -ENETUNREACH;
	ask(n);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, ENETUNREACH);
	n->f[0]->ah_fail = 0;
	ask(n);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, 0);

	n->f[1]->qp_fail = -ENOMEM;
	asked(n, 1);
	assert_int_equal(n->f[1]->count[ENGINE_CONN_ACCEPT], 0);
	assert_int_equal(n->f[1]->last[ENGINE_CONN_REJECT].conn.status, ENOMEM);
}

TEST_NET(test_failure, open_net_of_two)
{
	struct engine_event e = {.type = ENGINE_EVENT_DATAGRAM_ERROR};
	struct fake_qp *qp;
	uint32_t qpn;

	ask(n);
	qp = ud_qp(n->f[0]);
	qpn = qp->head.qpn;
	/* the driver tells, the engine hears */
	n->f[0]->async[n->f[0]->async_end++] =
	    (struct nic_async_event){.type = NIC_EVENT_QP_FATAL, .qp_user = qp->user};
	pass_time(n, BROKER_SECOND_NS);
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_FAIL], 1);
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_ADD], 1);
	/* when nothing of it is outstanding: a new one with the same memory */
	e.qpn = qpn;
	fake_event(n->f[0], 0, &e);
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_ADD], 2);
	assert_int_not_equal(ud_qp(n->f[0])->head.qpn, qpn);
	assert_int_equal(n->f[0]->live_qps, 3);
	fake_event(n->f[0], 0, &e); /* late: of the one that is gone */
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_ADD], 2);
	/* none can be made now, but when it is needed */
	e.qpn = ud_qp(n->f[0])->head.qpn;
	n->f[0]->qp_fail = -ENOMEM;
	fake_event(n->f[0], 0, &e);
	assert_null(ud_qp(n->f[0]));
	n->f[0]->qp_fail = 0;
	ask(n);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, 0);
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_ADD], 3);
}

TEST_NET(test_local, open_net_of_two)
{
	assert_int_equal(fake_connect(n->f[0], &n->s[0], 1, "echo", WEIR_CONNECT_DATAGRAM),
			 WEIR_MSG_CONNECTING);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_LOCAL], 2);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_LOCAL].conn.mtu, MTU);
	assert_int_equal(n->f[0]->count[ENGINE_DATAGRAM_ADD], 0);
	fake_connect(n->f[0], &n->s[0], 1, "echo", 0);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_LOCAL].conn.mtu, 0);
}

TEST_NET(test_options, open_net_of_two)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};

	assert_int_equal(weir_address_read("node:1:echo", &m.connect.address, NULL), 0);
	m.connect.window = WEIR_CONNECT_WINDOW_MIN - 1;
	assert_int_equal(fake_ask(n->f[0], &n->s[0], &m), WEIR_MSG_REFUSED);
	assert_int_equal(n->s[0].reply.refused.code, EINVAL);
	assert_non_null(strstr(n->s[0].reply.refused.reason, "window"));
	m.connect.window = WEIR_CONNECT_WINDOW_MIN;
	assert_int_equal(fake_ask(n->f[0], &n->s[0], &m), WEIR_MSG_CONNECTING);
}
