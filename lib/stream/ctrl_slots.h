/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots to an engine that carry no message. Worker locked. */
#ifndef WEIR_STREAM_CTRL_SLOTS_H
#define WEIR_STREAM_CTRL_SLOTS_H

#include "conn.h"

#define CTRL_WANT 0x1u
#define CTRL_CONSUMED 0x2u
#define CTRL_CLOSE 0x4u
#define CTRL_POST 0x8u
#define CTRL_ROOM 0x10u
#define CTRL_END 0x20u
#define CTRL_FLUSH 0x40u
#define CTRL_UNLOCK 0x80u

/* Adds slots to the engine, CTRL_*: written as soon as there is room. */
void weir_ctrl_add(struct weir_conn *c, uint8_t control);
void weir_ctrl_release(struct weir_channel *ch, weir_place place);
/*
 * The program took a notice that vqpn brought; the engine is told of several at a time, at once if
 * it is the `last` one there. False: it cannot be noted now, and stays.
 */
bool weir_ctrl_noticed(struct weir_channel *ch, uint32_t vqpn, bool last);
/*
 * Sees to memory for one refusal, before the connection that may be refused is begun or taken out
 * of the ring: else its other end would stay connected to nobody. 0 or -ENOMEM.
 */
int weir_ctrl_may_refuse(struct weir_channel *ch);
/* Closes a connection that cannot be taken, as soon as there is room. */
void weir_ctrl_refuse(struct weir_channel *ch, uint32_t vqpn);
/* c found no room in its channel's ring: WRITABLE is reported when there is. */
void weir_ctrl_need_room(struct weir_conn *c);
/* c needs no room any more. */
void weir_ctrl_room_unneeded(struct weir_conn *c);
/* A WANT of c is answered: if it asked for all that need room, another may ask. */
void weir_ctrl_want_answered(struct weir_conn *c);
/* Reports WRITABLE to connections for which there is room now. */
void weir_ctrl_report_room(struct weir_channel *ch);
/* Writes waiting slots. */
void weir_ctrl_flush(struct weir_channel *ch);
/* Reports all consumption and all released places to the engine. */
void weir_ctrl_report(struct weir_channel *ch);
/* Whether slots or released places wait for room in a ring. */
bool weir_ctrl_pending(const struct weir_channel *ch);
/* If so, wakes the threads that sleep at the worker, which write them later. */
void weir_ctrl_wake(struct weir_channel *ch);

#endif
