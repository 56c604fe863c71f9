/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending side of a QP. */
#ifndef WEIR_ROCE_REQUESTER_H
#define WEIR_ROCE_REQUESTER_H

#include "packet.h"
#include "psn_window.h"
#include "wr.h"

struct read_part;
struct roce_context;
struct roce_qp;

#define ROCE_QUANTUM 32u       /* frames of one QP per pass, at most */
#define ROCE_TURN_BYTES 65536u /* of all QPs per turn of the engine */
#define ROCE_MIN_FRAMES 4u     /* the smallest window; AckReq is set as often */

struct requester { /* engine, but for the initial values */
	struct sq_entry *sq;
	uint32_t sq_mask, sq_depth;
	uint32_t posted, built, retired, freed; /* counts of WRs, each <= the one before */
	uint32_t parked;			/* SQD: WRs behind `posted`, for RTS */
	uint32_t offset;			/* of WR `built`: bytes already in frames */
	/* PSNs: [una, next) are in frames that we hold, [una, send) of them count as in flight */
	uint32_t una, send, next;
	uint32_t in_flight; /* bytes of frames in [una, send) */
	uint32_t frame_mask;
	void **frames;	   /* by PSN */
	uint16_t *lengths; /* by PSN */
	struct window window;
	uint64_t deadline; /* of the timer, valid while `timer` is in the list */
	uint64_t progress; /* when something was last acknowledged, or the wait began */
	uint64_t timeout_ns;
	uint64_t went_back;	/* when the loss of `una` was last noticed; 0: not yet */
	uint32_t answer;	/* last PSN of an answer that came out of order */
	bool out_of_frames;	/* a request could not be repeated for lack of a frame */
	bool draining, drained; /* SQD; nothing is under way, and that is reported */
	bool rnr_wait;		/* the peer asked to wait until deadline */
	uint8_t retry, retries; /* limit, so far */
	uint8_t rnr_retry, rnr_left;
	/* READs and atomics */
	uint32_t special;  /* WRs posted and not built that are one, or have a fence */
	uint32_t unframed; /* PSNs of [una, next) that stand for answers: no frame is held */
	uint32_t reads_first, reads_next, reads_mask, reads_limit;
	struct read_part *reads;
};

int roce_post_send(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n);
void roce_requester_flush(struct roce_context *ctx, uint64_t now);
enum drop roce_requester_ack(struct roce_qp *qp, const struct packet *p, uint64_t now);
/* Restarts from the oldest unacknowledged frame. */
void roce_requester_go_back(struct roce_qp *qp);
void roce_requester_wake(struct roce_qp *qp);
/* Everything before `to` has arrived, requests and answers. */
void roce_requester_advance(struct roce_qp *qp, uint32_t to, uint64_t now);
/* The oldest frame, or its answer, was lost; the peer may report it repeatedly. */
void roce_requester_lost(struct roce_qp *qp, uint64_t now);

#endif
