/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of nodes in etcd (3.3 and later, by its HTTP/JSON gateway), for clusters whose nodes
 * come and go. Below /weir/CLUSTER/:
 *
 * - node/ID: "HOST:PORT NIC-ADDR[,NIC-ADDR...]", as in a peers file; until the node leaves
 * - control/HOST:PORT: ID; who has this address keeps its id, however often it restarts
 * - alive/ID: HOST:PORT, on a lease; while it is there nobody else may take the id
 *
 * A lease that runs out says that etcd didn't hear a node, not that it is dead: no node goes for
 * that. etcd may be gone for as long as it likes; what was known stays known.
 */
#ifndef WEIR_CONTROL_ETCD_H
#define WEIR_CONTROL_ETCD_H

#include "http.h"
#include "membership/source.h"

#define ETCD_NODE_AUTO UINT32_MAX
#define ETCD_URLS 8u
#define ETCD_LEASE 10u /* s: how long an id stays that of a node which etcd doesn't hear */

struct etcd_options {
	const char *urls; /* http://HOST:PORT or https://..., separated by commas: tried in turn */
	const char *cluster;
	const char *user, *password; /* NULL: etcd asks nobody who they are */
	struct etcd_access access;
	const char *control; /* HOST:PORT at which our control is reached */
	uint32_t node;	     /* our id, or ETCD_NODE_AUTO */
	unsigned lease;	     /* s */
};

/* Strings in `o` must stay valid, and may be written until start(). stop() frees. NULL: no memory,
 * or no URL among `urls`. */
struct membership_source *etcd_source_create(const struct etcd_options *o);

#endif
