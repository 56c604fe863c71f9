/* SPDX-License-Identifier: BSD-3-Clause */
/* The nodes of the cluster, and what happens to them. */
#ifndef WEIR_NODE_H
#define WEIR_NODE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weir;

/*
 * What is said of a node. JOINING: it is a member, and not heard of yet. SUSPECT: its control is
 * silent; connections go on. DOWN: its data plane is dead, or nobody gets there; connections to it
 * have ended. UP with another incarnation: the former data plane is dead too. GONE: it is no member
 * any more; as DOWN, and it has no address until it comes again.
 */
enum weir_node_state {
	WEIR_NODE_JOINING,
	WEIR_NODE_UP,
	WEIR_NODE_SUSPECT,
	WEIR_NODE_DOWN,
	WEIR_NODE_GONE
};

#define WEIR_NODE_ADDRESSES 8

struct weir_node_info {
	uint16_t id;
	uint8_t state;	  /* enum weir_node_state */
	uint8_t self;	  /* 1: this very node */
	uint32_t engines; /* of its data plane, 0: not known yet */
	uint64_t
	    incarnation; /* of its data plane, another one after each start; 0: not known yet */
	uint32_t address_count;
	uint32_t reserved;
	uint8_t address[WEIR_NODE_ADDRESSES][16]; /* of its NICs; IPv4 as ::ffff:a.b.c.d */
};

/* What an event of a node says; several at once if the thread was slow to take them. */
#define WEIR_CHANGE_ADDED 0x1u	 /* it is a member now, or was one when the thread began to watch */
#define WEIR_CHANGE_UP 0x2u	 /* its state is that now */
#define WEIR_CHANGE_SUSPECT 0x4u /* the same */
#define WEIR_CHANGE_DOWN 0x8u	 /* the same */
#define WEIR_CHANGE_REMOVED 0x10u /* it is no member any more */
#define WEIR_CHANGE_RESTART 0x20u /* another incarnation: connections to the former have ended */
#define WEIR_CHANGE_ADDRESS 0x40u /* other addresses */

/*
 * The calling thread gets a WEIR_EVENT_NODE for each change of a node from now on until it ends (on
 * = 0: no more), beginning with an ADDED for each that is known already. Of a thread that doesn't
 * take them they wait one a node, which then says how it differs from what the thread was told
 * last: nothing is lost but what was undone meanwhile. 0, -EOPNOTSUPP (an older data plane),
 * -ENOMEM, -EMFILE.
 */
int weir_nodes_watch(struct weir *w, int on);

/*
 * The present table, by rising id: fills up to n of `list` and returns how many nodes there are, or
 * -errno as above. If the thread watches, its events tell later changes only.
 */
int weir_nodes(struct weir *w, struct weir_node_info *list, unsigned n);

/*
 * What the calling thread's table says of one node: 0, or -ENOENT. Doesn't ask the data plane: the
 * table is that of the last weir_nodes(), weir_poll() or weir_wait() of this thread.
 */
int weir_node_find(struct weir *w, uint16_t id, struct weir_node_info *info);

#ifdef __cplusplus
}
#endif
#endif
