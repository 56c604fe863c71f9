/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of a sender. */
#ifndef WEIR_MESSAGE_REQUEST_H
#define WEIR_MESSAGE_REQUEST_H

#include "header.h"
#include "public.h"

struct lane;
struct sender;

/* A response was received on an outgoing lane. Worker locked. */
void request_response(struct lane *lane, const struct message_header *h, const uint8_t *data,
		      uint32_t length);
/* The same for a fragment of one. False: it is malformed. */
bool request_piece(struct lane *lane, const struct message_header *h, const uint8_t *data,
		   uint32_t length);
/* Ends the requests sent on the lane. Worker locked. */
void requests_end(struct lane *lane, int status);
/* Ends a sender's requests to a node, or to all: UINT32_MAX. How many. */
uint32_t requests_cancel(struct sender *s, uint32_t node);
bool request_ended(const struct weir_request *r);

#endif
