/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that programs send, and their expected fate. A flow is one direction of a connection:
 * end 0 (who connected) sends on flow 0. Lengths and contents follow from seed, connection, flow
 * and number.
 */
#ifndef WEIR_TEST_SIM_ORACLE_H
#define WEIR_TEST_SIM_ORACLE_H

#include "sim.h"

#define SIM_MESSAGE_MAX (1u << 20)

struct sim_flow {
	uint32_t planned;
	uint32_t accepted;  /* weir_send() said 0 */
	uint32_t received;  /* in order, contents verified */
	uint32_t notified;  /* of those sent with WEIR_NOTIFY: how many have been reported */
	uint32_t asked;	    /* sent with WEIR_NOTIFY */
	uint32_t completed; /* messages known complete with status 0: all before this number */
	uint8_t *seen;	    /* datagram connections: bits of those received, which is in no order */
	bool unsent;	    /* a send was refused: the connection has ended */
	bool failed;	    /* a completion came with a status */
	bool receiver_gone; /* died, or closed before it had everything */
	bool sender_gone;
};

uint32_t sim_message_length(const struct sim *s, uint32_t conn, uint32_t flow, uint32_t number);
void sim_message_fill(uint8_t *buf, uint32_t length, uint32_t conn, uint32_t flow, uint32_t number);
bool sim_message_is(const uint8_t *buf, uint32_t length, uint32_t conn, uint32_t flow,
		    uint32_t number);
/* Number of the message, as it says; `otherwise` if it is too short to say. */
uint32_t sim_message_number(const void *buf, size_t length, uint32_t otherwise);
/* Connection that a first message names, or SIM_CONNS_MAX. */
uint32_t sim_message_conn(const void *buf, size_t length);

/* The connection may end early: a program closes too soon or dies, or a node is cut off. */
bool sim_conn_excused(const struct sim *s, uint32_t conn);
struct sim_flow *sim_flow(struct sim *s, uint32_t conn, uint32_t flow);
/* The next message of the flow has arrived. Fails the seed if it isn't that one. */
void sim_received(struct sim *s, uint32_t conn, uint32_t flow, const void *data, size_t length);
/* A completion was reported for message `number`. */
void sim_completed(struct sim *s, uint32_t conn, uint32_t flow, uint32_t number, int status);
/* All before `number` are complete: weir_flush() said so. */
void sim_flushed(struct sim *s, uint32_t conn, uint32_t flow, uint32_t number);
void sim_oracle_create(struct sim *s);
void sim_oracle_destroy(struct sim *s);
/* After the end: completion rules, everything delivered where nothing went wrong. */
void sim_oracle_check(struct sim *s);

#endif
