/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which node offers which public services. A node's record (swim.h) carries the digest of its list,
 * so that is spread and compared with everything else; the list itself is asked for, first of who
 * told the digest, then of anybody: whoever has one can prove it by the digest. So a change costs
 * each node one list, wherever it comes from. Pure: records, messages and time in, messages out.
 */
#ifndef WEIR_CONTROL_REGISTRY_H
#define WEIR_CONTROL_REGISTRY_H

#include "ipc/services.h"

#define REGISTRY_ASKS 16u     /* lists asked for in one message */
#define REGISTRY_UNDERWAY 32u /* lists asked for and not answered */
#define REGISTRY_RETRY 200u   /* ms: then another one is asked */

struct registry_ask {
	uint32_t count;
	struct {
		uint16_t node;
		uint64_t digest;
	} of[REGISTRY_ASKS];
};

struct registry_ops {
	/* Both may be lost. */
	void (*ask)(void *user, uint16_t to, const struct registry_ask *ask);
	void (*tell)(void *user, uint16_t to, uint16_t node, const struct weir_services *list);
	/* The services of a node are known, and have changed. */
	void (*changed)(void *user, uint16_t node);
	/* Any other node that lives; false: there is none. */
	bool (*some)(void *user, uint16_t *node);
};

struct registry_node {
	uint16_t id;
	uint64_t wanted, digest;    /* as its record says; of `list` */
	struct weir_services *list; /* only its names are there; NULL: none */
	uint64_t ask_at;	    /* not known: ms, when somebody is asked (again) */
};

struct registry {
	const struct registry_ops *ops;
	void *user;
	uint16_t own;
	struct weir_services list; /* ours */
	uint64_t digest;
	struct registry_node *node; /* the others, by id */
	uint32_t count, room;
	uint32_t wanting; /* of them, those whose list is not known */
	bool news;	  /* one of those has not been asked for */
};

void registry_init(struct registry *r, uint16_t own, const struct registry_ops *ops, void *user);
void registry_fini(struct registry *r);

/* Sets the services that this node offers. */
void registry_own(struct registry *r, const struct weir_services *list);
/* A node's record has this digest. Out of memory: it is left out until the next one. */
void registry_record(struct registry *r, uint16_t id, uint64_t digest, uint64_t now);
void registry_forget(struct registry *r, uint16_t id);
/* Its list; NULL: not known. */
const struct weir_services *registry_list(const struct registry *r, uint16_t id);

/* A message of this node has been handled: what is new by that it is asked for. */
void registry_heard(struct registry *r, uint16_t from, uint64_t now);
/* Asks again for what has not come. */
void registry_tick(struct registry *r, uint64_t now);
/* A node asks. */
void registry_asked(struct registry *r, uint16_t from, const struct registry_ask *ask);
/* A checked list came. */
void registry_take(struct registry *r, uint16_t id, const struct weir_services *list);

#endif
