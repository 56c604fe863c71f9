/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports: ranges of regions that programs with a key connect to. */
#ifndef WEIR_BROKER_EXPORT_H
#define WEIR_BROKER_EXPORT_H

#include "broker.h"

#include "ipc/key.h"

struct broker_session;

enum export_state {
	EXPORT_FREE,
	EXPORT_ADDING, /* engines are being told; EXPORT has no answer yet */
	EXPORT_OPEN,
	EXPORT_STOPPING, /* engines end its connections */
	EXPORT_LEAVING,	 /* peers may have WRITEs and READs of it under way */
	EXPORT_EVICTED,	 /* ended by an operator; its program has not revoked it yet */
};

/* READ, WRITE, or both: at an index of those bits - 1. */
enum { EXPORT_KEYS = (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE) };

struct broker_export {
	enum export_state state;
	uint32_t generation;	  /* of this life of its number */
	char name[WEIR_NAME_MAX]; /* for operators; may be empty */
	uint32_t region, rights;  /* region 0: dynamic */
	uint64_t offset, length;
	uint64_t lock_offset; /* of the words of its lock; lock_region 0: none */
	uint32_t lock_region, lock_members;
	/* dynamic: as engines know them, or are being told; else NULL */
	struct engine_ranges *ranges;
	uint8_t secret[WEIR_KEY_SECRET];
	bool revoking;	/* REVOKE has no answer yet */
	uint32_t keyed; /* STOPPING: connections whose peers have its key */
	/* keys of its memory that peers were told: per engine, of the first on its device, and by
	 * rights; NULL: none. Empty ones are not registered */
	struct nic_mr (*keys)[EXPORT_KEYS];
	bool evicted;	  /* an operator ended it */
	char *why;	  /* as the operator said; NULL: no reason */
	uint32_t waiting; /* engines that have not answered */
	int result;	  /* first error of EXPORT_ADD */
	uint64_t refused; /* keys with a wrong secret, or that lack the rights */
};

/* Whether a key names an export of this data plane, if of any: it was made here, in this run, also
 * before the node had an id. */
bool export_key_is_ours(const struct broker *b, const struct weir_key_fields *key);

void export_request(struct broker_session *s, const struct weir_session_msg *m);
void map_request(struct broker_session *s, const struct weir_session_msg *m);
void revoke_request(struct broker_session *s, const struct weir_session_msg *m);
void name_request(struct broker_session *s, const struct weir_session_msg *m);
/* ATTACH and DETACH. */
void range_attach_request(struct broker_session *s, const struct weir_session_msg *m);
void range_detach_request(struct broker_session *s, const struct weir_session_msg *m);
/* Whether memory of the region is attached to the export. */
bool ranges_have(const struct broker_export *x, uint32_t region);
/* Bytes that are attached to it. */
uint64_t ranges_bytes(const struct broker_export *x);
/* The session's region, if this range of it can be exported; else NULL, and the refusal. */
struct broker_region *export_region(struct broker_session *s, uint32_t region, uint64_t offset,
				    uint64_t length);
/* Ends all exports of a region: before the engines are told to remove that. */
void exports_leave(struct broker_session *s, uint32_t region);
/* weirctl evict: 1, or -errno and a reason. `id`: as in a row. */
int export_evict(struct broker *b, uint32_t id, const char *why, char *reason, size_t size);
/* Number of exports of a session, those included that are set up or end. */
uint32_t exports_of(const struct broker_session *s);
/*
 * Row `id` of the exports, without what engines count. False: there are no more. An export that
 * does not exist gives a row without a state.
 */
bool export_row(const struct broker *b, uint32_t id, struct weir_row_export *r);
/* The question to engines that fills the counters of that row. */
struct engine_export_record export_record(const struct broker *b, const struct weir_row_export *r);
/* The row of an export of that session, as engines number them. */
uint32_t export_id(const struct broker *b, uint32_t session, uint32_t number);
/* An engine asks the owner engine of an export's lock. */
void export_lock(struct broker *b, const struct engine_lock *asked);
/* Fills the row with the lock as the owner engine has it. */
void export_lock_row(const struct broker *b, const struct engine_export_record *e,
		     struct weir_row_export *r);
/* Forgets all of them, once no engine knows the session any more. */
void exports_free(struct broker_session *s);

/*
 * Finds what `wanted` names and fills a CONN_ACCEPT or CONN_APART with it. 0, -EKEYREJECTED (there
 * is none, or the secret is wrong), -EACCES (it does not grant these rights). *owner: its session.
 */
int export_find(struct broker *b, const struct weir_wire_export *wanted,
		struct broker_session **owner, struct engine_conn_command *k);
/*
 * The key with which a peer of engine `engine` may WRITE and READ what export_find() found, as far
 * as the rights of the connection say. rkey 0: there is none, and operations are cells.
 */
struct engine_export_key export_key(struct broker *b, uint32_t engine,
				    const struct engine_conn_command *k);

#endif
