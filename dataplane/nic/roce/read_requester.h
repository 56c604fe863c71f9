/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: the requester's READs and atomics. */
#ifndef WEIR_ROCE_READ_REQUESTER_H
#define WEIR_ROCE_READ_REQUESTER_H

#include "packet.h"
#include "wr.h"

struct requester;

#define ROCE_READ_BYTES 65536u /* that one READ request asks for at most */
#define ROCE_RD_MAX 128u

/* A READ or atomic, or a part of a READ, that is not answered yet. */
struct fetch {
	uint32_t psn, end; /* answers have the PSNs [psn, end) */
	uint32_t wr;	   /* a count as requester.posted */
	uint32_t offset;   /* of the WR's bytes */
};

enum fetch_result { FETCH_SENT, FETCH_ORDINARY, FETCH_WAITS };
/* Checks such a WR, whose other fields are in *e already. */
int roce_fetch_take(struct sq_entry *e, const struct nic_send_wr *wr);
/* The next WR, of whatever kind: sends a request of it, or says that it isn't one, or must wait. */
enum fetch_result roce_fetch_next(struct roce_qp *qp, struct sq_entry *wr, uint64_t now);
bool roce_fetch_waits(const struct roce_qp *qp, const struct sq_entry *wr);
/* Sends again what asks for the answers from requester.send on. False: no frame. */
bool roce_fetch_again(struct roce_qp *qp);
/* The next answer's PSN; requester.next if none is missing. No ACK goes beyond it. */
uint32_t roce_fetch_bound(const struct requester *rq);
enum drop roce_fetch_response(struct roce_qp *qp, const struct packet *p, uint64_t now);
/* Something after the next answer came before it. */
enum drop roce_fetch_lost(struct roce_qp *qp, uint64_t now);

static inline bool
fetch_special(const struct sq_entry *wr)
{
	return wr->wire.first >= RC_READ_REQUEST || (wr->flags & NIC_FENCE);
}

#endif
