/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of a sender that wait for their responses. */
#ifndef WEIR_MESSAGE_REQUEST_H
#define WEIR_MESSAGE_REQUEST_H

#include "header.h"
#include "public.h"

struct lane;
struct sender;

/* A response has come on an outgoing lane. Worker locked. */
void request_response(struct lane *lane, const struct message_header *h, const uint8_t *data,
		      uint32_t length);
/* False: it is malformed. */
bool request_piece(struct lane *lane, const struct message_header *h, const uint8_t *data,
		   uint32_t length);
/* Ends what waits for the lane. Worker locked. */
void requests_end(struct lane *lane, int status);
/* Ends all of a sender's that go to a node, or to any: UINT32_MAX. How many. */
uint32_t requests_cancel(struct sender *s, uint32_t node);
bool request_ended(const struct weir_request *r);

#endif
