/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the list of nodes comes from. A source says which nodes there are and how their controls
 * are reached; whether they live is not its business: one failure detector (swim.h) serves all
 * sources, and what it spreads is the same for all. A source calls its events from the event loop
 * only, also from inside start().
 */
#ifndef WEIR_CONTROL_SOURCE_H
#define WEIR_CONTROL_SOURCE_H

#include "peers_file.h"

struct event_base;

struct membership_events {
	/* There is this node, or its addresses are others now. Valid during the call. */
	void (*known)(void *user, const struct peer_entry *node);
	/* It is no member any more. */
	void (*gone)(void *user, uint16_t id);
	/* Somebody at this HOST:PORT knows the list: asked until one has told it, and again when
	 * nobody is left. */
	void (*seed)(void *user, const char *address);
	/* Our id, where the source gives ids out (it may take a while). */
	void (*given)(void *user, uint16_t id);
};

struct membership_source {
	/* Only nodes that it has told are let in. If not, a node becomes known by being heard. */
	bool closed;
	/* It gives ids out: --node auto waits for given(). If not, nodes agree among themselves. */
	bool gives_ids;
	/* 0, or -errno after having said why not. Problems that pass are retried for ever. */
	int (*start)(struct membership_source *source, struct event_base *base,
		     const struct membership_events *events, void *user);
	/* Publishes our entry to the others: after start, once our id and addresses are known, and
	 * at each change. */
	void (*publish)(struct membership_source *source, const struct peer_entry *self);
	/* No event afterwards; frees the source. `leave`: the node goes for good; else only its
	 * control stops. */
	void (*stop)(struct membership_source *source, bool leave);
};

#endif
