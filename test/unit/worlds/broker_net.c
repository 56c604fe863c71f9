/* SPDX-License-Identifier: BSD-3-Clause */
#include "broker_net.h"

#include "broker/link.h"

struct fake *
open_node(uint32_t node, uint32_t engines, uint64_t incarnation)
{
	struct fake_config c = {.engines = engines, .node = node, .incarnation = incarnation};

	return fake_open(&c);
}

void
know_each_other(struct net *n)
{
	for (unsigned i = 0; i < 2; i++)
		fake_node(n->f[i], 2 - i, WEIR_NODE_UP, n->f[!i]->config.incarnation,
			  n->f[!i]->config.engines);
}

void
open_session(struct net *n, unsigned i)
{
	fake_program(n->f[i], &n->s[i]);
	fake_listen(n->f[i], &n->s[i], "echo", 1000);
}

void
net_open(struct net *n, uint32_t engines, uint32_t peer_engines)
{
	n->f[0] = open_node(1, engines, 100);
	n->f[1] = open_node(2, peer_engines, 200);
	know_each_other(n);
	open_session(n, 0);
	open_session(n, 1);
}

void
open_net_of_two(struct net *n)
{
	net_open(n, 1, 1);
}

void
net_close(struct net *n)
{
	fake_close(n->f[0]);
	fake_close(n->f[1]);
}

/* Takes output i of a node out of its queue. */
struct weir_ctl_msg
take_output(struct fake *f, uint32_t i)
{
	struct weir_ctl_msg m = f->output[i];

	memmove(&f->output[i], &f->output[i + 1], (--f->output_count - i) * sizeof(m));
	return m;
}

void
hand_over(struct net *n, unsigned from, const struct weir_ctl_msg *m)
{
	if (m->type != WEIR_CTL_LINK)
		return; /* LINK_DOWN is for control itself */
	fake_told(n->f[!from], m);
}

/* Control works as it should. Returns how many messages it took. */
unsigned
exchange(struct net *n)
{
	unsigned count = 0;

	while (n->f[0]->output_count + n->f[1]->output_count) {
		for (unsigned i = 0; i < 2; i++)
			if (n->f[i]->output_count) {
				struct weir_ctl_msg m = take_output(n->f[i], 0);

				hand_over(n, i, &m);
				count++;
			}
		assert_true(count < 1000);
	}
	return count;
}

void
pass_time(struct net *n, uint64_t ns)
{
	for (unsigned i = 0; i < 2; i++) {
		n->f[i]->now += ns;
		fake_run(n->f[i]);
	}
}

struct broker_link *
the_link(struct net *n, unsigned i)
{
	return link_find(n->f[i]->b, 0, 2 - i, 0);
}

/* One link, up at both ends, and each end's QPs know the other's. */
void
assert_joined(struct net *n)
{
	struct broker_link *a = the_link(n, 0), *b = the_link(n, 1);

	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(a->state, LINK_UP);
	assert_int_equal(b->state, LINK_UP);
	assert_true(a->confirmed && b->confirmed);
	assert_int_equal(a->peer_attempt, b->attempt);
	assert_int_equal(b->peer_attempt, a->attempt);
	for (unsigned k = 0; k < 2; k++) {
		struct fake_qp *p = (struct fake_qp *)a->qp[k], *q = (struct fake_qp *)b->qp[k];

		assert_int_equal(p->state, NIC_QP_RTS);
		assert_int_equal(p->remote_qpn, q->head.qpn);
		assert_int_equal(q->remote_qpn, p->head.qpn);
		assert_int_equal(p->remote_psn, q->psn);
		assert_int_equal(q->remote_psn, p->psn);
	}
	assert_int_equal(a->peer.ring_rkey, b->ring.mr.rkey);
	assert_int_equal(b->peer.credit_address, a->credit_mr.address);
	assert_int_equal(n->f[0]->links, 1);
	assert_int_equal(n->f[1]->links, 1);
	assert_int_equal(n->f[0]->live_qps, 2);
	assert_int_equal(n->f[1]->live_qps, 2);
}

void
exchange_and_join(struct net *n)
{
	exchange(n);
	assert_joined(n);
}

void
bring_up(struct net *n)
{
	open_net_of_two(n);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	exchange(n);
	assert_joined(n);
}
