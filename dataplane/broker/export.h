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
	EXPORT_LEAVING, /* engines end its connections */
};

struct broker_export {
	enum export_state state;
	uint32_t generation; /* of this life of its number */
	uint32_t region, rights;
	uint64_t offset, length;
	uint8_t secret[WEIR_KEY_SECRET];
	bool revoking;	  /* REVOKE has no answer yet */
	uint32_t waiting; /* engines that have not answered */
	int result;	  /* first error of EXPORT_ADD */
};

void export_request(struct broker_session *s, const struct weir_session_msg *m);
void revoke_request(struct broker_session *s, const struct weir_session_msg *m);
/* Ends all exports of a region: before the engines are told to remove that. */
void exports_leave(struct broker_session *s, uint32_t region);
/* Forgets all of them, once no engine knows the session any more. */
void exports_free(struct broker_session *s);

/*
 * Finds what `wanted` names and fills a CONN_ACCEPT or CONN_APART with it. 0, -EKEYREJECTED (there
 * is none, or the secret is wrong), -EACCES (it does not grant these rights). *owner: its session.
 */
int export_find(struct broker *b, const struct weir_wire_export *wanted,
		struct broker_session **owner, struct engine_conn_command *k);

#endif
