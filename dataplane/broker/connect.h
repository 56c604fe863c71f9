/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting: requests of programs and of peers, and connections that wait for a link. */
#ifndef WEIR_BROKER_CONNECT_H
#define WEIR_BROKER_CONNECT_H

#include "broker.h"

struct broker_conn;
struct broker_node;
struct broker_session;
struct service_listener;

#define BROKER_CONNECT_TIMEOUT_NS 5000000000ull /* ns that a connection waits for its link */

void connect_request(struct broker_session *s, const struct weir_session_msg *m);
/* A program connects to an export. */
void open_request(struct broker_session *s, const struct weir_session_msg *m);
/* A program decides about a connection that it holds, or sets the window of one it accepted. */
void decide_request(struct broker_session *s, const struct weir_session_msg *m);
/* A program asks who is at the other end. */
void who_request(struct broker_session *s, const struct weir_session_msg *m);
/* A peer asks for a connection. */
void connect_event(struct broker *b, uint32_t engine, const struct engine_event *event);
/* Continues connections that wait for this node, or ends them if it is down. */
void connect_kick(struct broker *b, struct broker_node *n);
/* Ends a connection that waits for a link. */
void connect_give_up(struct broker *b, struct broker_conn *c, uint32_t status);
/* Takes a connection out of its node's list. */
void connect_forget(struct broker_conn *c);
/* Ends connections that have waited too long. Returns the next deadline. */
uint64_t connect_timers(struct broker *b, uint64_t now);
/* The listener that takes one more connection, or NULL. */
struct service_listener *connect_listener(struct broker *b, const char *service);
/* The engine refused an accepting end, which no longer counts against the backlog. */
void connect_not_accepted(struct broker_conn *c);

#endif
