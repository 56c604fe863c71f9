/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of programs, remote and local, from CONNECT until the engine has freed its entry. */
#ifndef WEIR_BROKER_CONN_H
#define WEIR_BROKER_CONN_H

#include "broker.h"
#include "command.h"

#include <sys/queue.h>

struct broker_node;
struct broker_session;
struct segment;

#define BROKER_CONN_TABLE (1u << 20) /* vqpn index: 20 bits */

struct broker_conn {
	struct broker_session *session; /* NULL once it has ended */
	uint32_t desc;
	uint32_t vqpn;	   /* 0 until the engine has the connection */
	uint32_t listener; /* accepting end: its listener, else ENGINE_LISTENER_NONE */
	uint32_t window;
	uint16_t commands; /* under way, and point here */
	uint16_t channel;
	uint8_t engine;
	bool gone;	     /* the engine's entry is free */
	bool loop;	     /* remote */
	uint8_t kind;	     /* enum engine_conn_kind, local ones too */
	bool opened;	     /* local: the program was told the result of opening */
	bool replied;	     /* local, connecting end: CONNECTING has been sent */
	uint8_t class;	     /* enum weir_class */
	bool held;	     /* accepting end: its program has not decided yet */
	uint32_t node, link; /* remote */
	uint32_t conn_index; /* local */
	/* remote */
	struct broker_node *waiting_for; /* node in whose list it is until a link is up */
	uint64_t since;			 /* ns: when it was requested, or came */
	/* local */
	struct broker_conn *peer; /* other end, NULL once either end is gone */
	struct segment *segment;
	LIST_ENTRY(broker_conn) entry; /* of the session, or of those that are gone */
	STAILQ_ENTRY(broker_conn) in_waiting;
};

static_assert(sizeof(struct broker_conn) <= 104, "idle connections are many");

/* Takes a descriptor of the session. 0, -EMFILE (none is free) or -ENOMEM; then *conn is NULL. */
int broker_conn_new(struct broker_session *s, uint32_t channel, struct broker_conn **conn);
/* The accepting end of a memory connection, without descriptor and channel. The same results. */
int broker_conn_new_passive(struct broker_session *s, uint32_t engine, struct broker_conn **conn);
/* The engine has made its entry. False: the entry is gone already. */
bool conn_made(struct broker *b, struct broker_conn *c, uint32_t vqpn);
struct broker_conn *conn_find(const struct broker *b, uint32_t vqpn);
/* The engine's entry is free, or was never made. *c stays until broker_conns_settle(). */
void conn_gone(struct broker *b, struct broker_conn *c);
/*
 * A command whose context is the connection. NULL: out of memory. The caller refuses a connection
 * that the engine does not have yet; the session of another one ends (session_end()).
 */
struct broker_command *conn_command(struct broker *b, struct broker_conn *c,
				    enum engine_command_type type, command_done_fn *done);
/* Each `done` of a conn_command() calls this. */
void conn_command_done(struct broker *b, struct broker_conn *c);
/* Frees connections that are gone. Only broker_flush() calls it, when no function holds one. */
void broker_conns_settle(struct broker *b);
/* Tells the other end of a local connection that this end has ended. */
void conn_tell_peer(struct broker *b, struct broker_conn *c, uint32_t status);
void conn_reply_connecting(struct broker_conn *c);

/* The kind that a program asks for by the flags of CONNECT. */
static inline enum engine_conn_kind
conn_kind(uint32_t flags)
{
	return flags & WEIR_CONNECT_DATAGRAM ? CONN_DATAGRAM : CONN_STREAM;
}

#endif
