/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of a sender. */
#ifndef WEIR_MESSAGE_REQUEST_H
#define WEIR_MESSAGE_REQUEST_H

#include "header.h"
#include "public.h"

struct lane;
struct sender;

struct weir_taken;

/* A response was received on an outgoing lane; a request with WEIR_REQUEST_LOAN keeps its memory.
 * Worker locked. */
void request_response(struct lane *lane, const struct message_header *h, const uint8_t *data,
		      uint32_t length, struct weir_taken *taken);
/* The same for a fragment of one. False: it is malformed. */
bool request_piece(struct lane *lane, const struct message_header *h, const uint8_t *data,
		   uint32_t length);
/* Ends the requests sent on the lane. Worker locked. */
void requests_end(struct lane *lane, int status);
/* Ends a sender's requests to a node, or to all: UINT32_MAX. How many. */
uint32_t requests_cancel(struct sender *s, uint32_t node);
bool request_ended(const struct weir_request *r);

/* Reads options over the defaults. 0, or why they are refused. */
int request_options(struct weir_request_options *own, const struct weir_request_options *given);
/* Fills r for a lane of s, which gives it *id. 0 or -errno. Worker locked. */
int request_begin(struct lane *lane, struct weir_request *r,
		  const struct weir_request_options *options, uint64_t *id);
/* r was not sent, because of rc. Returns rc, or 0: r had ended before, and `done` reports that. */
int request_undo(struct lane *lane, struct weir_request *r, uint64_t id, int rc);

/* Of a request with `done`: the next one that has ended, and the call. */
struct weir_request **request_next(struct weir_request *r);
void request_report(struct weir_request *r);

#endif
