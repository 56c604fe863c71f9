/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libibverbs for tests of the verbs driver: one device, whose answers a test sets, and which
 * keeps what it was told. Completions and events come when a test puts them there.
 */
#ifndef VERBS_FAKE_H
#define VERBS_FAKE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_POSTS 1024
#define FAKE_GIDS 8

struct fake_post { /* a WR as it reached the NIC */
	struct ibv_qp *qp;
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
	uint8_t data[64]; /* if inline: as it was then */
	unsigned call;	  /* of ibv_post_send() */
};

struct fake {
	/* what a test sets */
	bool no_device;
	struct ibv_device_attr attr;
	struct ibv_port_attr port[2];
	struct ibv_gid_entry gid[FAKE_GIDS];
	unsigned gids;
	int reg_mr_errno, post_errno;
	unsigned post_refused; /* with post_errno: how many WRs of the call are taken before */
	uint32_t max_inline;

	/* what it keeps */
	struct fake_post post[FAKE_POSTS];
	unsigned posts, calls;
	struct ibv_recv_wr recv[FAKE_POSTS];
	unsigned recvs;
	struct ibv_qp_attr modified;
	int modified_mask;
	struct ibv_ah_attr ah;
	unsigned qps, srqs, cqs, mrs, ahs, pds, devices, channels; /* that exist */
	unsigned notified, events_unacked, async_unacked;
	uint32_t mr_access;
	struct ibv_qp_init_attr qp_init;
};

extern struct fake fake;

/* A device with one active port: RoCE, or InfiniBand with LID 7. */
void fake_reset(bool infiniband);
void fake_gid(unsigned index, enum ibv_gid_type type, const char *text);
/* A completion in the CQ of the QP's sends, or of its receives. */
void fake_complete(struct ibv_qp *qp, bool send, const struct ibv_wc *wc);
/* The completion channel's next event is of this QP's CQ. */
void fake_cq_event(struct ibv_qp *qp, bool send);
void fake_async_event(enum ibv_event_type type, struct ibv_qp *qp);

#endif
