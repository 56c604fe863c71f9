/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving side of a QP. */
#ifndef WEIR_ROCE_RESPONDER_H
#define WEIR_ROCE_RESPONDER_H

#include "packet.h"
#include "roce.h"

struct roce_qp;
struct served;

struct responder {	   /* engine, but for the initial values */
	uint32_t expected; /* PSN, 24 bits */
	uint32_t msn;
	uint8_t response; /* enum response that waits in the context's responders list */
	uint8_t nak;	  /* enum nak_code of RESPOND_FATAL */
	uint8_t kind;	  /* PACKET_SEND or PACKET_WRITE: message under way; PACKET_NONE: none */
	bool gap; /* a PSN ahead was NAKed; no further NAK until the expected one comes, or the peer
		     has gone back and it is lost again */
	uint8_t lazy;	     /* short messages since the last ACK whose ACK may wait */
	uint32_t seen;	     /* gap: the last PSN */
	uint64_t address;    /* WRITE: where the next byte goes; SEND: in our own memory */
	uint32_t rkey, left; /* WRITE: announced and not yet arrived; SEND: room left */
	uint32_t received;
	struct nic_recv_wr wr; /* SEND */
	uint64_t cnp_next;     /* no congestion notification before */
	/* READs and atomics: counts; those before `serving` are answered */
	uint32_t serving, served_next, served_mask, served_limit;
	struct served *served;
	uint32_t nak_psn; /* of RESPOND_FATAL */
};

/*
 * Where the payload of a packet goes that continues a WRITE, so that it is copied while its ICRC is
 * computed: a packet that turns out to be damaged has then only written where the expected one
 * will. NULL: elsewhere, or not yet known.
 */
uint8_t *roce_responder_place(const struct roce_qp *qp, const struct packet *p);
/* p->payload: in the frame, or in its place. */
enum drop roce_responder_input(struct roce_qp *qp, const struct packet *p);
/* Answers a request by a NAK that ends the QP. */
enum drop roce_responder_refuse(struct roce_qp *qp, enum nak_code code, uint32_t psn);

#endif
