/* SPDX-License-Identifier: BSD-3-Clause */
/* A QP at each end, with memory that the other may write. */
#ifndef WEIR_TEST_ROCE_PAIR_H
#define WEIR_TEST_ROCE_PAIR_H

#include "roce_craft.h"
#include "roce_net.h"

#define SECOND UINT64_C(1000000000)

struct pair {
	struct net *net;
	struct net_port *a, *b;
	struct nic_qp *qa, *qb;
	uint8_t memory[2][65536];
	struct nic_mr mr[2];
};

static inline struct pair *
pair_create(const struct roce_config *config)
{
	struct pair *p = calloc(1, sizeof(*p));

	p->net = net_create(2, 1, config, 3);
	p->a = &p->net->node[0].port[0];
	p->b = &p->net->node[1].port[0];
	net_connect(p->a, p->b, 100, &p->qa, &p->qb);
	for (unsigned i = 0; i < 2; i++)
		roce_ops.mr_reg(roce_nic_device(p->net->node[i].dev), p->memory[i],
				sizeof(p->memory[i]), NIC_LOCAL_WRITE | NIC_REMOTE_WRITE,
				&p->mr[i]);
	return p;
}

static inline void
pair_destroy(struct pair *p)
{
	net_destroy(p->net);
	free(p);
}

static inline struct nic_send_wr
write_wr(struct pair *p, uint64_t id, uint32_t length)
{
	return (struct nic_send_wr){.wr_id = id,
				    .opcode = NIC_WRITE,
				    .flags = NIC_SIGNALED,
				    .sge_count = 1,
				    .sge = {{p->mr[0].address, length, p->mr[0].lkey}},
				    .remote_address = p->mr[1].address,
				    .rkey = p->mr[1].rkey};
}

static inline int
post(struct pair *p, struct nic_send_wr wr)
{
	return nic_post_send(p->qa, &wr, 1);
}

static inline void
expect_wc(const struct net_port *port, unsigned i, uint64_t id, enum nic_wc_status status)
{
	assert_true(i < port->wcs);
	assert_int_equal(port->wc[i].wr_id, id);
	assert_string_equal(nic_wc_status_name(port->wc[i].status), nic_wc_status_name(status));
}

/* So that both ends know each other's MAC and have sent something. */
static inline void
warm_up(struct pair *p)
{
	assert_int_equal(post(p, write_wr(p, 0, 1)), 1);
	net_run(p->net, 1000000);
	expect_wc(p->a, 0, 0, NIC_WC_SUCCESS);
	p->a->wcs = 0;
}

#endif
