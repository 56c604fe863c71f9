/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ownership of ids. node/ID and control/HOST:PORT are put together, if node/ID is free or belongs
 * to an address that has been silent for its lease.
 */
#include "internal.h"

#include "ipc/invariant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ID_FIRST 1u /* of those that are given out */
#define ID_LAST 65534u

// ---- what answers say ----

static const json_t *
kvs_of(const json_t *answer, size_t response)
{
	const json_t *r = json_array_get(json_object_get(answer, "responses"), response);

	return json_object_get(json_object_get(r, "response_range"), "kvs");
}

static uint32_t
id_of(const char *text)
{
	char *end;
	unsigned long id =
	    text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : ETCD_NODE_AUTO;

	return id <= ID_LAST && !*end ? (uint32_t)id : ETCD_NODE_AUTO;
}

uint32_t
etcd_id_of_key(const json_t *kv)
{
	char text[KEY_MAX];
	const char *last;

	if (etcd_text(json_object_get(kv, "key"), text, sizeof(text)))
		return ETCD_NODE_AUTO;
	last = strrchr(text, '/');
	return last ? id_of(last + 1) : ETCD_NODE_AUTO;
}

static uint32_t
id_of_value(const json_t *kv)
{
	char text[12];

	if (etcd_text(json_object_get(kv, "value"), text, sizeof(text)))
		return ETCD_NODE_AUTO;
	return id_of(text);
}

// Owner of the node/ID that a claim has shown. NULL: none.
static const char *
owner_of(const json_t *answer, char owner[VALUE_MAX])
{
	const json_t *kv = json_array_get(kvs_of(answer, 0), 0);

	if (!kv)
		return NULL;
	if (etcd_text(json_object_get(kv, "value"), owner, VALUE_MAX))
		return "a node with an unreadable entry";
	owner[strcspn(owner, " ")] = 0;
	return owner;
}

/* `renewed`: we have put it there. */
static void
claimed(struct etcd *e, uint32_t id, bool renewed)
{
	bool news = e->id == ETCD_NODE_AUTO;

	weir_assert(id <= ID_LAST);
	e->id = id;
	e->renewed |= renewed;
	e->claimed = true;
	e->told = false;
	log_forget(&e->taken);
	if (news)
		e->events->given(e->user, (uint16_t)id);
}

static void
take_claim(void *user, const json_t *answer)
{
	struct etcd *e = user;
	char text[VALUE_MAX];
	const char *owner = owner_of(answer, text);

	e->owner = 0;
	e->claiming = false;
	if (json_is_true(json_object_get(answer, "succeeded")))
		claimed(e, e->id, true);
	else if (!owner)
		return; /* gone meanwhile: once more */
	else if (!strcmp(owner, e->is.control))
		claimed(e, e->id, false); /* ours, of an earlier life */
	else if (json_array_size(kvs_of(answer, 1)) == 0)
		// Its owner is silent: it may be taken over while it stays as it is.
		e->owner = etcd_number(
		    json_object_get(json_array_get(kvs_of(answer, 0), 0), "mod_revision"));
	else {
		log_once_about(
		    &e->taken, LOG_NODE_AT(e->id, owner),
		    "according to etcd node id %u belongs to %s; give each node its own --node",
		    e->id, owner);
		etcd_set_retry(e, e->is.lease * 500);
	}
}

static json_t *
absent(json_t *k)
{
	return json_pack("{s:s, s:s, s:o, s:s}", "target", "VERSION", "result", "EQUAL", "key", k,
			 "version", "0");
}

/* Puts node/ID and control/HOST:PORT where `conditions` hold; otherwise shows node/ID and alive/ID.
 */
static void
claim(struct etcd *e, uint32_t id, json_t *conditions,
      void (*answer)(void *user, const json_t *answer))
{
	char number[12];

	e->renewed |= e->claiming;
	e->claiming = true;
	snprintf(number, sizeof(number), "%u", id);
	etcd_ask(e, "/v3/kv/txn",
		 json_pack("{s:o, s:[{s:o}, {s:o}], s:[{s:{s:o}}, {s:{s:o}}]}", "compare",
			   conditions, "success", "request_put",
			   etcd_put(etcd_node_key(e, "node", id), etcd_bytes(e->is.control), 0),
			   "request_put",
			   etcd_put(etcd_key(e, "control", e->is.control), etcd_bytes(number), 0),
			   "failure", "request_range", "key", etcd_node_key(e, "node", id),
			   "request_range", "key", etcd_node_key(e, "alive", id)),
		 answer);
}

/* ---- an id that etcd gives out: the one this address had, else one of the lowest free ones ----
 */

static void
take_own_id(void *user, const json_t *answer)
{
	struct etcd *e = user;

	e->candidate = id_of_value(json_array_get(json_object_get(answer, "kvs"), 0));
	e->look = e->candidate == ETCD_NODE_AUTO ? LOOK_FREE : LOOK_TRY;
}

static void
mark(uint8_t *used, uint32_t id)
{
	if (id != ETCD_NODE_AUTO)
		used[id / 8] |= (uint8_t)(1u << id % 8);
}

unsigned
etcd_any(unsigned below)
{
	unsigned x = 0;

	if (getrandom(&x, sizeof(x), 0) != (ssize_t)sizeof(x))
		return 0;
	return x % below;
}

// Of all entries of the cluster. `left`: also the ids of addresses that have left are kept for
// them.
static uint32_t
choose_free(const json_t *kvs, bool left)
{
	static uint8_t used[ID_LAST / 8 + 1];
	uint32_t skip = etcd_any(8), found = ETCD_NODE_AUTO; /* many start at once */
	const json_t *kv;
	size_t i;

	memset(used, 0, sizeof(used));
	json_array_foreach(kvs, i, kv)
	{
		mark(used, etcd_id_of_key(kv));
		mark(used, left ? id_of_value(kv) : ETCD_NODE_AUTO);
	}
	for (uint32_t id = ID_FIRST; id <= ID_LAST; id++) {
		if (used[id / 8] & 1u << id % 8)
			continue;
		found = id;
		if (!skip--)
			break;
	}
	return found;
}

static void
take_ids(void *user, const json_t *answer)
{
	struct etcd *e = user;
	const json_t *kvs = json_object_get(answer, "kvs");

	e->candidate = choose_free(kvs, true);
	if (e->candidate == ETCD_NODE_AUTO)
		e->candidate = choose_free(kvs, false);
	if (e->candidate != ETCD_NODE_AUTO) {
		e->look = LOOK_TRY;
	} else {
		log_once(&e->taken, "no node id is free in cluster '%s'; let nodes leave",
			 e->is.cluster);
		e->look = LOOK_OWN;
		etcd_set_retry(e, ETCD_RETRY_MAX);
	}
}

static void
take_try(void *user, const json_t *answer)
{
	struct etcd *e = user;
	char text[VALUE_MAX];
	const char *owner = owner_of(answer, text);
	bool renewed = json_is_true(json_object_get(answer, "succeeded"));

	e->look = LOOK_FREE;
	e->claiming = false;
	if (renewed || (owner && !strcmp(owner, e->is.control)))
		claimed(e, e->candidate, renewed);
}

void
etcd_claim(struct etcd *e)
{
	char all[KEY_MAX], revision[24];
	json_t *conditions;

	if (e->id != ETCD_NODE_AUTO) {
		snprintf(revision, sizeof(revision), "%llu", (unsigned long long)e->owner);
		if (e->owner) /* it has not been heard for its lease, and is still what it was */
			conditions = json_pack(
			    "[o, {s:s, s:s, s:o, s:s}]", absent(etcd_node_key(e, "alive", e->id)),
			    "target", "MOD", "result", "EQUAL", "key",
			    etcd_node_key(e, "node", e->id), "mod_revision", revision);
		else
			conditions = json_pack("[o]", absent(etcd_node_key(e, "node", e->id)));
		claim(e, e->id, conditions, take_claim);
		return;
	}
	/* etcd gives it out: the one this address had, else one of the lowest free ones */
	switch (e->look) {
	case LOOK_OWN:
		etcd_ask(e, "/v3/kv/range",
			 json_pack("{s:o}", "key", etcd_key(e, "control", e->is.control)),
			 take_own_id);
		break;
	case LOOK_FREE:
		snprintf(all, sizeof(all), "/weir/%s/", e->is.cluster);
		etcd_ask(e, "/v3/kv/range", etcd_range(all), take_ids);
		break;
	case LOOK_TRY:
		claim(e, e->candidate,
		      json_pack("[o]", absent(etcd_node_key(e, "node", e->candidate))), take_try);
	}
}
