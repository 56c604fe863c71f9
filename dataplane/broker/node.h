/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes: their state, the ports that reach them, and changes that programs are told of. */
#ifndef WEIR_BROKER_NODE_H
#define WEIR_BROKER_NODE_H

#include "broker.h"

#include <sys/queue.h>

struct broker_conn;
struct broker_link;
struct broker_offers;
struct broker_session;

#define BROKER_NODE_UNKNOWN UINT32_MAX
#define BROKER_NODES UINT16_MAX /* ids 0 ... 65534 */

struct broker_node {
	struct weir_ctl_node is;	    /* by control; the incarnation also by offers */
	STAILQ_HEAD(, broker_conn) waiting; /* until a link is up */
	struct broker_link *links;	    /* by next_of_node; those of the loop are not here */
	uint64_t repair_until;	/* when the node counts as lost, 0: its links are well */
	uint64_t unheard_until; /* when it counts as lost unless a new control reports it, or 0 */
	bool told;		/* this control has reported it */
	bool told_up;		/* programs have been told */
	bool draining;		/* no new connections */
	uint64_t changed;	/* number of its latest change visible to programs; 0: none */
	TAILQ_ENTRY(broker_node) in_news;
	struct broker_offers *offers; /* public services, or NULL */
};

struct broker_node *node_find(const struct broker *b, uint32_t id);
/* Makes the loop-back node and tells engines our id: 0 or -ENOMEM. */
int nodes_begin(struct broker *b);
/* The loop-back pseudo node. */
struct broker_node *node_loop(struct broker *b);
bool node_usable(const struct broker_node *n);
/* The node with this address: 0 and *node (NULL: this node), or -EHOSTUNREACH and the like. */
int node_resolve(struct broker *b, const struct weir_address *address, struct broker_node **node);
/* The address of the port by which a node (NULL: this node) is reached; kind NONE: no port. */
void node_port(const struct broker *b, const struct broker_node *n, struct weir_address *port);
/* The address of a port with this GID and LID, 0: none. */
void node_gid_port(struct weir_address *port, const uint8_t gid[16], uint16_t lid);
/* A GID as text: IPv4 as a.b.c.d. "" if it is all 0. */
#define NODE_GID_TEXT 48
void node_gid_text(const uint8_t gid[16], char text[NODE_GID_TEXT]);
/* Whether a port of ours reaches the node; if not, cause and remedy in reason. A node whose
 * addresses are not known counts as reached. */
bool node_reached(const struct broker *b, const struct broker_node *n, char *reason, size_t size);
/* The state of its links, as weirctl shows it. */
void node_link_row(const struct broker *b, const struct broker_node *n, struct weir_row_node *r);
/* The engine with a port that reaches the node: `wish`, if its port does or no port does. */
uint32_t node_engine(const struct broker *b, const struct broker_node *n, uint32_t wish);
void node_set_own(struct broker *b, uint32_t id);
/* Tells engines our id and incarnation. */
void node_tell_engines(struct broker *b);

/* ---- state ---- */

/* A report of control about a node. */
void node_input(struct broker *b, const struct weir_ctl_node *is);
/* Another control has connected: its reports count from now on. */
void nodes_unheard(struct broker *b);
/* Tells programs that the node is up, unless they know. */
void node_up(struct broker *b, struct broker_node *n);
/* The node's data plane is dead or was replaced: ends all that depends on it. */
void node_lost(struct broker *b, struct broker_node *n);
/* Events of engines about links. */
void node_link_silent(struct broker *b, uint32_t engine, const struct engine_event *event);
void node_link_error(struct broker *b, uint32_t engine, const struct engine_event *event);
void node_link_heard(struct broker *b, uint32_t engine, const struct engine_event *event);
/* Tells control that the peer does not answer on this link. */
void node_tell_control(struct broker_link *l, uint32_t status);
/* Returns the next deadline. */
uint64_t node_timers(struct broker *b, uint64_t now);
void node_free_all(struct broker *b);

/* ---- changes, for programs ---- */

/* The node has changed in a way that programs may see. */
void node_news(struct broker *b, struct broker_node *n);
/* Wakes programs that watch nodes. */
void nodes_publish(struct broker *b);
void nodes_request(struct broker_session *s, const struct weir_session_msg *m);

#endif
