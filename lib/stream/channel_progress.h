/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress of a channel: slots that its engine has written. Worker locked. */
#ifndef WEIR_STREAM_CHANNEL_PROGRESS_H
#define WEIR_STREAM_CHANNEL_PROGRESS_H

#include "conn.h"

/* Data of c's message `number`, at `place` as its engine says; NULL: that can't be. */
uint8_t *weir_place_data(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length);
/* Moves the message at the ring's head to the connection's queue. 0, -EPROTO, -ENOMEM. */
int weir_channel_enqueue(struct weir_conn *c, const struct weir_head *h);
unsigned weir_channel_progress(struct weir_channel *ch, struct weir_conn *want);
/*
 * A reply may overtake the end of its vQPN's last life, which is in the ring by then: takes that
 * in, and no slot after it, because that may be about the new life.
 */
void weir_channel_end_life(struct weir_channel *ch, uint32_t vqpn);

#endif
