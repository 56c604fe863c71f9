/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: the requester's READs and atomics. */
#ifndef WEIR_ROCE_READ_REQUESTER_H
#define WEIR_ROCE_READ_REQUESTER_H

#include "packet.h"
#include "wr.h"

struct requester;

#define ROCE_READ_BYTES 65536u /* bytes of one READ request, at most */
#define ROCE_RD_MAX 128u

/* A READ or atomic, or a part of a READ, that is not answered yet. */
struct read_part {
	uint32_t psn, end; /* answers have the PSNs [psn, end) */
	uint32_t wr;	   /* a count as requester.posted */
	uint32_t offset;   /* of the WR's bytes */
};

enum read_result { READ_SENT, READ_NONE, READ_WAITS };
/* Checks a READ or atomic; its other fields are in *e already. */
int roce_read_take(struct sq_entry *e, const struct nic_send_wr *wr);
/* The next WR of any kind: sends a request of it; READ_NONE: it is another kind. */
enum read_result roce_read_next(struct roce_qp *qp, struct sq_entry *wr, uint64_t now);
bool roce_read_waits(const struct roce_qp *qp, const struct sq_entry *wr);
/* Repeats the request for the answers from requester.send on. False: no frame. */
bool roce_read_again(struct roce_qp *qp);
/* The next answer's PSN; requester.next if none is missing. No ACK goes beyond it. */
uint32_t roce_read_next_psn(const struct requester *rq);
/* Where the payload of the next answer goes; NULL: it is another one, or in several pieces. */
uint8_t *roce_read_place(const struct roce_qp *qp, const struct packet *p);
enum drop roce_read_response(struct roce_qp *qp, const struct packet *p, uint64_t now);
/* A packet after the next answer came before it. */
enum drop roce_read_lost(struct roce_qp *qp, uint64_t now);

static inline bool
wr_special(const struct sq_entry *wr)
{
	return wr->wire.first >= RC_READ_REQUEST || (wr->flags & NIC_FENCE);
}

#endif
