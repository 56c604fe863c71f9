/* SPDX-License-Identifier: BSD-3-Clause */
/* Local: messages sent in fragments, as the segment has room. Worker locked. */
#ifndef WEIR_STREAM_PARTIAL_SEND_H
#define WEIR_STREAM_PARTIAL_SEND_H

#include "conn.h"

/* Pushes the part of c->partial that fits. 0: all is out; -EAGAIN, -EPROTO. */
int weir_partial_push(struct weir_conn *c);
/* The rest waits: in memory of a caller that waits, or in `ours`, which the connection frees. */
void weir_partial_keep(struct weir_conn *c, const struct weir_message_out *lender, uint8_t *ours);
void weir_partial_drop(struct weir_conn *c);
/* Sends END as soon as the segment has room, after a rest. */
void weir_partial_end(struct weir_conn *c);
/* Whether a part of the last message waits. */
static inline bool
weir_partial_left(const struct weir_conn *c)
{
	return c->partial_sent < c->partial_length;
}
/* Pushes the partial messages of all connections of a worker. How many moved. */
unsigned weir_partials_push(struct weir_thread *t);

#endif
