/* SPDX-License-Identifier: BSD-3-Clause */
/* The nodes of the cluster: listing them, and watching them change. */
#ifndef WEIR_NODE_H
#define WEIR_NODE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weir;

/*
 * State of a node, as this node sees it.
 *   JOINING  the node is a member, but nothing has been heard from it yet
 *   UP       its data plane runs; with a new incarnation, the previous data plane is dead
 *   SUSPECT  its control process is silent; connections continue
 *   DOWN     its data plane is dead or unreachable; connections to it have ended
 *   GONE     the node is no longer a member; as DOWN, and without addresses until it returns
 */
enum weir_node_state {
	WEIR_NODE_JOINING,
	WEIR_NODE_UP,
	WEIR_NODE_SUSPECT,
	WEIR_NODE_DOWN,
	WEIR_NODE_GONE
};

#define WEIR_NODE_ADDRESSES 8 /* addresses per node */

struct weir_node_info {
	uint16_t id;
	uint8_t state;	  /* enum weir_node_state */
	uint8_t self;	  /* 1: this node */
	uint32_t engines; /* number of engines of its data plane; 0: not known yet */
	/* Changes with each start of the node's data plane; 0: not known yet. */
	uint64_t incarnation;
	uint32_t address_count; /* valid entries of address */
	/* IPv6 addresses of its NICs in network byte order; IPv4 as ::ffff:a.b.c.d */
	uint8_t address[WEIR_NODE_ADDRESSES][16];
	uint32_t reserved[11]; /* 0 */
};

/* Changes that a WEIR_EVENT_NODE reports; one event carries several if the thread was slow. */
#define WEIR_CHANGE_ADDED 0x1u	  /* became a member, or was one when the thread began to watch */
#define WEIR_CHANGE_UP 0x2u	  /* state is now UP */
#define WEIR_CHANGE_SUSPECT 0x4u  /* state is now SUSPECT */
#define WEIR_CHANGE_DOWN 0x8u	  /* state is now DOWN */
#define WEIR_CHANGE_REMOVED 0x10u /* is no longer a member */
#define WEIR_CHANGE_RESTART                                                                        \
	0x20u			  /* new incarnation: connections to the previous one have ended   \
				   */
#define WEIR_CHANGE_ADDRESS 0x40u /* addresses have changed */

/*
 * Starts or stops watching nodes on the calling thread. A watching thread receives a
 * WEIR_EVENT_NODE from weir_poll() or weir_wait() for each change of a node, beginning with ADDED
 * for each known node. Events not yet taken merge into one per node, which reports the difference
 * from what the thread saw last: only changes that were undone meanwhile are lost.
 *
 * @w   session handle
 * @on  1: watch; 0: stop watching
 *
 * Returns 0, or
 *   -EOPNOTSUPP  the data plane is older than the library
 *   -ENOMEM      no memory
 *   -EMFILE      no file descriptor or channel left
 *   and the errors of every call (weir/stream.h).
 * Any thread. May block until the data plane answers.
 */
int weir_nodes_watch(struct weir *w, int on);

/*
 * Lists the nodes of the cluster in ascending order of id. If the thread watches nodes, its
 * pending events are absorbed: it receives only changes later than this list.
 *
 * @w     session handle
 * @list  receives up to n nodes
 * @n     entries of list
 *
 * Returns the number of nodes, which may exceed n, or an error as weir_nodes_watch(). Any thread.
 * May block until the data plane answers.
 */
int weir_nodes(struct weir *w, struct weir_node_info *list, unsigned n);

/*
 * Looks up one node in the calling thread's table, as of the thread's last weir_nodes(),
 * weir_poll() or weir_wait(). Does not ask the data plane.
 *
 * @w     session handle
 * @id    node id
 * @info  filled on success
 *
 * Returns 0, or -ENOENT if the table has no such node, or an error as weir_nodes_watch().
 * Any thread; does not block.
 */
int weir_node_find(struct weir *w, uint16_t id, struct weir_node_info *info);

#ifdef __cplusplus
}
#endif
#endif
