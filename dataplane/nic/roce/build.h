/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine: makes frames. */
#ifndef WEIR_ROCE_BUILD_H
#define WEIR_ROCE_BUILD_H

#include "packet.h"
#include "wr.h"

struct roce_qp;

/*
 * Makes the next frame of the WR under way. more: another frame follows at once, so this one asks
 * for no ACK. Returns its length.
 */
uint32_t roce_build_frame(struct roce_qp *qp, struct sq_entry *wr, uint8_t *frame, bool more);
/* Makes the only frame of a WR with one piece of memory, which asks for an ACK. Its length. */
uint32_t roce_build_only(struct roce_qp *qp, const struct nic_send_wr *wr, struct wire_form form,
			 uint8_t *frame);
/*
 * A packet to the QP's peer. bth: opcode and flags (BTH()); psn: with the flags beside it and
 * beside the QPN; e0 to e2: up to 20 bytes of extended headers as in memory; n bytes of payload,
 * copied. Returns its length.
 */
uint32_t roce_build_packet(struct roce_qp *qp, uint8_t *frame, uint32_t bth, uint64_t psn,
			   uint64_t e0, uint64_t e1, uint64_t e2, uint32_t extended,
			   const void *payload, uint32_t n);

/* A UDP source port per pair of QPs, by which switches and NICs spread flows. */
uint16_t roce_source_port(uint32_t qpn, uint32_t peer_qpn);
/* n bytes of a WR from `offset` on, in one piece: copied together if need be, until the next call.
 */
const void *roce_build_payload(const struct roce_qp *qp, const struct sq_entry *wr, uint32_t offset,
			       uint32_t n);
/* Completes a frame by n bytes of payload, which begins at `at`, and its ICRC. Returns its length.
 */
uint32_t roce_build_copy(const struct roce_qp *qp, uint8_t *frame, uint32_t at, const void *payload,
			 uint32_t n);

#endif
