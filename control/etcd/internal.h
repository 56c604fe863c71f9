/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by etcd.c and id.c: the source's state, keys and requests. */
#ifndef WEIR_CONTROL_ETCD_INTERNAL_H
#define WEIR_CONTROL_ETCD_INTERNAL_H

#include "etcd.h"
#include "base/log_once.h"

#define ETCD_RETRY_MAX 5000u /* ms */
#define KEY_MAX 256
#define VALUE_MAX 640
#define ETCD_IDS 65535u

/* How an id is found: the one this address had, or a free one; then it is tried. */
enum look { LOOK_OWN, LOOK_FREE, LOOK_TRY };

struct etcd {
	struct membership_source source; /* first */
	struct etcd_options is;
	const struct membership_events *events;
	void *user;
	struct event_base *base;
	struct etcd_http *http;
	char *urls; /* cut in pieces */
	const char *url[ETCD_URLS];
	unsigned url_count, url_now, retry_ms;
	char token[256];
	uint64_t lease;
	uint32_t id; /* ETCD_NODE_AUTO: not given yet */
	bool claimed, alive, told, listed;
	bool changed;  /* our value, since it was put last */
	bool renewed;  /* our node/ID was not there: what was may be forgotten */
	bool claiming; /* a claim has had no answer: it may have put what the next one finds */
	bool wrong;    /* the answer to a step lacked what etcd would have said */
	bool known[ETCD_IDS];  /* nodes told to `events` that this etcd has shown */
	bool seen[ETCD_IDS];   /* in the last list */
	char value[VALUE_MAX]; /* of our node/ID */
	uint64_t revision;     /* all up to it is known */
	uint64_t owner;	       /* revision of a node/ID that is another's */
	enum look look;
	uint32_t candidate;
	struct etcd_request *step, *watch, *beat;
	struct event *retry, *beat_timer;
	struct log_memory trouble[ETCD_URLS], taken, odd;
};

/* ---- etcd.c ---- */
json_t *etcd_key(const struct etcd *e, const char *kind, const char *name);
json_t *etcd_node_key(const struct etcd *e, const char *kind, uint32_t id);
/* All keys that begin with `from`, which ends in a slash. */
json_t *etcd_range(const char *from);
json_t *etcd_put(json_t *key, json_t *value, uint64_t lease);
/* Not before: nothing is asked until then. */
void etcd_set_retry(struct etcd *e, unsigned ms);
/* 0 ... below - 1 */
unsigned etcd_any(unsigned below);
/* The step under way: what follows is looked at when it is over. */
void etcd_ask(struct etcd *e, const char *path, json_t *body,
	      void (*answer)(void *user, const json_t *answer));

/* ---- id.c ---- */
/* The id that we have, or one for us: until e->claimed. */
void etcd_claim(struct etcd *e);
/* ETCD_NODE_AUTO if the key names no node. */
uint32_t etcd_id_of_key(const json_t *kv);

#endif
