/* SPDX-License-Identifier: BSD-3-Clause */
/* Local connections: between programs of this host, over segments. */
#ifndef WEIR_BROKER_LOCAL_H
#define WEIR_BROKER_LOCAL_H

#include "broker.h"

struct broker_command;
struct broker_conn;
struct broker_session;

#define BROKER_SEGMENTS_MAX 65536u   /* low 16 bits of a segment id; 0: no segment */
#define BROKER_SESSION_SEGMENTS 512u /* segments per session */

void local_connect(struct broker_session *s, const struct weir_session_msg *m, uint8_t class);
void local_segment_request(struct broker_session *s, const struct weir_session_msg *m);
void local_drop_request(struct broker_session *s, const struct weir_session_msg *m);
/* Messages of a local connection, by the counters that its programs write; adds their bytes. */
uint64_t local_messages(const struct broker *b, uint32_t segment, uint32_t index, uint64_t *bytes);
/* This end of a local connection releases its entry of the segment. */
void local_line_give(struct broker *b, struct broker_conn *c);
/* Tells the program of c that the other end has ended with status. */
void local_peer_ended(struct broker *b, struct broker_conn *c, bool told, uint32_t status);
/* The program that holds the accepting end y refuses it: tells the connecting program why. */
void local_refuse(struct broker *b, struct broker_conn *y, const char *reason);
/* The `done` of the command by which y's program accepts it: tells the connecting program. */
void local_acceptor_told(struct broker *b, struct broker_command *k);
/* The session has ended: ends its sides of segments. */
void local_session_end(struct broker *b, struct broker_session *s);
/* Frees all segments, after every session has ended. */
void local_free_all(struct broker *b);

#endif
