/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: READs and atomics of the peer, new and repeated. */
#ifndef WEIR_ROCE_READ_RESPONDER_H
#define WEIR_ROCE_READ_RESPONDER_H

#include "packet.h"

struct roce_qp;

/* A READ or atomic of the peer, kept after its answer for repetitions. */
struct served {
	uint64_t address; /* READ */
	uint64_t value;	  /* atomic: the old value */
	uint32_t rkey, length, msn;
	uint32_t psn, count; /* PSNs of the answers, 24 bits */
	uint32_t begin, end; /* answers to send: [0, count), or a part when asked again */
	uint32_t sent;	     /* answers that have left; end: none waits */
	uint32_t stop;	     /* READ: end of the bytes to send, from `address` */
	bool atomic;
	bool again; /* all have left once */
};

enum drop roce_read_serve(struct roce_qp *qp, const struct packet *p);
enum drop roce_read_serve_again(struct roce_qp *qp, const struct packet *p);
/* Sends up to *room answers and lowers it. False: some are left. */
bool roce_read_serve_answers(struct roce_qp *qp, unsigned *room);
void roce_read_serve_stop(struct roce_qp *qp);

#endif
