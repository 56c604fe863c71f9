/* SPDX-License-Identifier: BSD-3-Clause */
/* A QP at each end, with memory that the other may write. */
#ifndef WEIR_TEST_ROCE_PAIR_H
#define WEIR_TEST_ROCE_PAIR_H

#include "roce_net.h"

#define SECOND UINT64_C(1000000000)

#define PAIR_BYTES 400000u
#define PAIR_RIGHTS (NIC_REMOTE_WRITE | NIC_REMOTE_READ | NIC_REMOTE_ATOMIC)

struct pair {
	struct net *net;
	struct net_port *a, *b;
	struct nic_qp *qa, *qb;
	uint8_t memory[2][PAIR_BYTES];
	struct nic_mr mr[2];
	void *user; /* of the test */
};

/* A new QP at each end; `attr`: rights and limits of both. */
static inline void
pair_connect(struct pair *p, uint32_t psn, struct nic_qp_attr attr)
{
	p->qa = net_qp(p->a);
	p->qb = net_qp(p->b);
	attr.psn = attr.remote_psn = psn;
	net_join(p->qa, p->qb, attr);
	net_join(p->qb, p->qa, attr);
}

static inline struct pair *
pair_create_as(const struct roce_config *config, uint64_t seed, uint32_t psn,
	       struct nic_qp_attr attr)
{
	struct pair *p = calloc(1, sizeof(*p));

	p->net = net_create(2, 1, config, seed);
	p->a = &p->net->node[0].port[0];
	p->b = &p->net->node[1].port[0];
	pair_connect(p, psn, attr);
	for (unsigned i = 0; i < 2; i++)
		roce_ops.mr_reg(roce_nic_device(p->net->node[i].dev), p->memory[i], PAIR_BYTES,
				NIC_LOCAL_WRITE | PAIR_RIGHTS, &p->mr[i]);
	return p;
}

static inline struct pair *
pair_create(const struct roce_config *config)
{
	return pair_create_as(config, 3, 100, (struct nic_qp_attr){0});
}

static inline void
pair_destroy(struct pair *p)
{
	net_destroy(p->net);
	free(p);
}

/* A WR of one end, between the beginnings of both memories. */
static inline struct nic_send_wr
pair_wr(struct pair *p, unsigned end, enum nic_opcode opcode, uint64_t id, uint32_t length)
{
	return (struct nic_send_wr){.wr_id = id,
				    .opcode = (uint8_t)opcode,
				    .flags = NIC_SIGNALED,
				    .sge_count = 1,
				    .sge = {{p->mr[end].address, length, p->mr[end].lkey}},
				    .remote_address = p->mr[!end].address,
				    .rkey = p->mr[!end].rkey};
}

static inline struct nic_send_wr
write_wr(struct pair *p, uint64_t id, uint32_t length)
{
	return pair_wr(p, 0, NIC_WRITE, id, length);
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
