/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MAC addresses that a switch has learnt: where they were last seen. Of fixed size; what finds no
 * room is flooded. One thread. No DPDK.
 */
#ifndef WEIR_SWITCH_TABLE_H
#define WEIR_SWITCH_TABLE_H

#include <stdint.h>

#define SWITCH_BUCKET_BITS 10
#define SWITCH_BUCKETS (1u << SWITCH_BUCKET_BITS)
#define SWITCH_WAYS 4u
#define SWITCH_NOWHERE UINT32_MAX

/* The fate of a frame, if not the number of the port that it leaves by. */
#define SWITCH_FLOOD UINT32_MAX	     /* to all other ports */
#define SWITCH_STAY (UINT32_MAX - 1) /* its station is where it comes from */
#define SWITCH_BAD (UINT32_MAX - 2)  /* no station has this source address */

struct switch_entry {
	uint64_t mac;  /* 0: free */
	uint32_t seen; /* s */
	uint32_t port;
};

struct switch_table {
	struct switch_entry bucket[SWITCH_BUCKETS][SWITCH_WAYS];
	uint32_t age;			 /* s; what was not seen for longer is forgotten */
	uint64_t learnt, moved, crowded; /* crowded: no room in their bucket */
};

enum switch_learnt { SWITCH_KNOWN, SWITCH_NEW, SWITCH_MOVED, SWITCH_CROWDED };

/* The six bytes of an address as a number; never 0 for one that may be learnt. */
uint64_t switch_mac(const uint8_t bytes[6]);
void switch_table_init(struct switch_table *t, uint32_t age);
/* `mac`, of one station, came in at `port`, at `now` seconds. */
enum switch_learnt switch_table_learn(struct switch_table *t, uint64_t mac, uint32_t port,
				      uint32_t now);
/* Its port, or SWITCH_NOWHERE. */
uint32_t switch_table_find(const struct switch_table *t, uint64_t mac, uint32_t now);
/* Learns from a frame that came in at `port`, and says what becomes of it. */
uint32_t switch_decide(struct switch_table *t, const uint8_t destination[6],
		       const uint8_t source[6], uint32_t port, uint32_t now);
/* A port is down: what is behind it may come back elsewhere. */
void switch_table_forget(struct switch_table *t, uint32_t port);
/* How many are known. */
uint32_t switch_table_count(const struct switch_table *t, uint32_t now);

#endif
