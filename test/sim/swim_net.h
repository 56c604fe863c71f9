/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Up to a few thousand members (control/swim.h) in one process under a virtual clock: a network
 * that loses and delays, processes that crash, pause and come back, partitions. A place is an
 * address; who sends there reaches whoever runs there now.
 */
#ifndef WEIR_TEST_SWIM_NET_H
#define WEIR_TEST_SWIM_NET_H

#include "swim.h"

#define NET_TIMEOUT 1000u /* ms, the node timeout */
#define NET_PERIOD (NET_TIMEOUT / 5)

struct net_node {
	struct net *net;
	struct swim swim;
	uint32_t place;
	bool running, paused;
	uint32_t side;		       /* of the partition */
	uint64_t life;		       /* counts starts: what was sent to another one is lost */
	uint64_t info;		       /* place, and what is told besides */
	uint64_t sent;		       /* messages */
	uint64_t records;	       /* in them */
	uint64_t settled_at, begun_at; /* us */
	uint32_t beaten;	       /* times that it lost its id */
	int32_t answering;	       /* the node whose message is handled; answers go there */
	uint32_t answers_to;
	uint32_t *met;			     /* by place: the life that we have said hello to */
	struct net_event *held, **held_last; /* came while it was paused */
};

struct net {
	uint64_t now; /* us */
	uint64_t rng, seed;
	uint32_t nodes;
	struct net_node *node; /* by place */
	struct net_event **heap;
	uint32_t heap_count, heap_room;
	uint64_t order;
	uint32_t loss;	   /* of 10,000 messages */
	uint32_t id_space; /* ids are chosen out of so many */
	uint32_t seeds;	   /* the first places are seeds */
	bool given_ids;	   /* place = id, all known from the start: as by a peers file */
	bool partitioned;
	/* watching one node's death */
	uint16_t watched;
	uint64_t first_suspect, first_dead, last_dead; /* us, 0: not yet */
	uint32_t knowers;
	uint64_t hasty;	       /* took an id without having waited for others to claim it */
	uint64_t false_deaths; /* a running node was declared dead */
};

void net_init(struct net *net, uint64_t seed, uint32_t nodes);
void net_fini(struct net *net);
uint64_t net_random(struct net *net, uint64_t limit);
/* Runs until then, ms of virtual time. */
void net_run(struct net *net, uint64_t until);

void net_start(struct net *net, uint32_t place);
void net_crash(struct net *net, uint32_t place);
void net_leave(struct net *net, uint32_t place);
void net_pause(struct net *net, uint32_t place);
void net_resume(struct net *net, uint32_t place);
/* So many of 100 on one side, the others on the other, until net->partitioned is false again. */
void net_part(struct net *net, uint32_t share);

/* Do all who run know exactly those who run, within each side? Else says why not in `why`. */
bool net_agree(struct net *net, char *why, size_t size);
/* Has each node that is up an id of its own, within each side? */
bool net_unique(struct net *net, char *why, size_t size);

#endif
