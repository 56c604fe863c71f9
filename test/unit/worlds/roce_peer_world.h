/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-roce-peer without a NIC: functions that stand in for its device, and one run of it. */
#ifndef TEST_ROCE_PEER_WORLD_H
#define TEST_ROCE_PEER_WORLD_H

#include "tools/roce_peer/roce_peer.h"

#include "test.h"

#define NIC "--nic roce:net_ring0,ip=10.0.0.1/24 "

extern struct peer p;
extern struct peer_options o;
/* Calls of peer_connect(), peer_move() and peer_linger() since peer_world_begin(). */
extern uint32_t connected, moved, lingered;
/* Of the last parse() that failed. */
extern char reason[256];

/* Parses a command line into o. */
int parse(const char *words);
/* p at the start of `run`, with 10.0.0.1 and an MTU of 4096. */
void peer_world_begin(const char *role, const char *run);

#endif
