/* SPDX-License-Identifier: BSD-3-Clause */
/* A verbs device with one context on the libibverbs of verbs_fake.h: what its tests share. */
#ifndef VERBS_WORLD_H
#define VERBS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nic/verbs/verbs.h"
#include "verbs_fake.h"

extern struct vnic_device *dev;
extern struct nic_context *ctx;
extern char error[512];
extern const struct vnic_config defaults;

int open_with(const struct vnic_config *config);
/* Everything must have been given back. */
void close_all(void);
/* A RoCE port with GIDs of both versions, addresses of both families; open_roce() opens it. */
void roce(void);
void open_roce(void);
struct nic_gid gid(const char *text);
const struct nic_ops *ops(void);
/* That of a QP that has posted. */
struct ibv_qp *ibqp(const struct nic_qp *qp);
/* In RTS. */
struct nic_qp *make_qp(enum nic_qp_type type, uint32_t depth, struct nic_srq *srq, void *user);
unsigned poll_all(struct nic_wc *wc, uint64_t now);
struct nic_send_wr write_wr(uint64_t id, unsigned flags);
void post(struct nic_qp *qp, uint64_t id, unsigned flags);
/* Opens the RoCE port, and makes a QP without an SRQ there. */
struct nic_qp *open_qp(uint32_t depth, void *user);
/* WR `i` of those that reached the NIC completes. */
void complete(struct nic_qp *qp, unsigned i, enum ibv_wc_status status);
/* The device's next event is this one; user: of its QP, NULL: any. */
void expect_event(int type, const void *user);
void expect_no_event(void);

#endif
