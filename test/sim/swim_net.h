/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Up to a few thousand members (control/membership/swim.h) in one process under a virtual clock: a
 * network that loses and delays, processes that crash, pause and come back, partitions. A place is
 * an address; who sends there reaches whoever runs there now.
 */
#ifndef WEIR_TEST_SWIM_NET_H
#define WEIR_TEST_SWIM_NET_H

#include "worlds/event_queue.h"

#include "membership/registry.h"
#include "membership/swim.h"

#define NET_TIMEOUT 1000u /* ms, the node timeout */
#define NET_PERIOD (NET_TIMEOUT / 5)

/* Information that is spread about a node. */
struct net_info {
	uint64_t place_life; /* place << 32 | life */
	uint64_t services;   /* digest */
};

struct net_node {
	struct net *net;
	struct swim swim;
	uint32_t place;
	bool running, paused;
	uint32_t side; /* of the partition */
	uint64_t life; /* counts starts: what was sent to another one is lost */
	struct net_info info;
	struct registry registry;
	struct weir_services offered;
	uint64_t lists;		       /* that it told others */
	uint64_t sent;		       /* messages */
	uint64_t records;	       /* in them */
	uint64_t refused;	       /* records of others that it left out */
	uint64_t settled_at, begun_at; /* us */
	uint32_t beaten;	       /* times that it lost its id */
	int32_t answering;	       /* the node whose message is handled; answers go there */
	uint32_t answers_to;
	uint32_t *met;			     /* by place: the life that we have said hello to */
	struct net_event *held, **held_last; /* came while it was paused */
};

struct net {
	union {
		struct event_queue queue; /* of net_events */
		uint64_t now;		  /* the queue's, us */
	};
	struct rng rng;
	uint64_t seed;
	uint32_t nodes;
	struct net_node *node; /* by place */
	uint32_t loss;	       /* of 10,000 messages */
	uint32_t id_space;     /* number of ids to choose from */
	uint32_t seeds;	       /* the first places are seeds */
	bool given_ids;	       /* place = id, all known from the start: as by a peers file */
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
/* Its programs offer something else from now on. */
void net_offer(struct net *net, uint32_t place);
/* `share` of 100 on one side, the others on the other, until net->partitioned is false again. */
void net_part(struct net *net, uint32_t share);

/* Do all who run know exactly those who run, within each side? Else says why not in `why`. */
bool net_agree(struct net *net, char *why, size_t size);
/* Does each node know what each other one offers, within each side? */
bool net_services_agree(struct net *net, char *why, size_t size);
/* Does everybody who runs know what this one offers? */
bool net_service_known(const struct net *net, uint32_t place);
/* Has each node that is up an id of its own, within each side? */
bool net_unique(struct net *net, char *why, size_t size);

/* ---- net_service.c: the registry of services on the same network ---- */

/* A message of the registry. */
struct net_parcel {
	bool is_list;
	union {
		struct registry_ask ask;
		struct {
			uint16_t node;
			struct weir_services names;
		} list;
	};
};

extern const struct registry_ops net_registry_ops;
/* Over the connection to a node, which may lose it. */
void net_carry(struct net_node *n, uint16_t to, const struct net_parcel *parcel);
void net_take_parcel(struct net_node *n, uint16_t from, const struct net_parcel *parcel);
bool net_cut(const struct net *net, uint32_t a, uint32_t b);

#endif
