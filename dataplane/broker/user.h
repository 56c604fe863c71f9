/* SPDX-License-Identifier: BSD-3-Clause */
/* Users: limits and CPU time that all programs of a user id share. */
#ifndef WEIR_BROKER_USER_H
#define WEIR_BROKER_USER_H

#include "broker.h"
#include "pace.h"

#include <sys/queue.h>

struct broker_session;

/* uid of the settings for all users without settings of their own */
#define USER_OTHERS UINT32_MAX

struct broker_user {
	LIST_ENTRY(broker_user) entry;
	struct broker *b;
	uint32_t uid;
	bool kept; /* has settings of its own */
	uint64_t used[USER_LIMITS];
	struct user_limits limits;
	uint64_t built_ns; /* virtual time: CPU time spent on arenas and regions of its programs */
	uint32_t attached; /* sessions that are open */
	uint64_t since;	   /* ns: when `attached` became 1 */
	struct pace pace;  /* main's CPU time for attaching and leaving */
	struct pace requests;	   /* main's CPU time for requests */
	struct engine_share share; /* above those of its sessions */
};

/* ---- life ---- */

/* A session of the user begins: 0, or -EDQUOT and the refusal. */
int user_begin(struct broker *b, uint32_t uid, struct broker_user **user,
	       struct weir_session_msg *no);
/* A session of the user is open. */
void user_attached(struct broker_user *u);
/* A session of the user is no longer open. */
void user_left_one(struct broker_user *u);
/* NULL: the user has no open session, which makes it a stranger. */
struct broker_user *user_find_attached(struct broker *b, uint32_t uid);
int users_begin(struct broker *b);
void user_free_all(struct broker *b);

/* ---- limits ---- */

/* Takes n of the limit: 0, -EDQUOT (limit of the user) or -ENOSPC (limit of all users). */
int user_take(struct broker_user *u, enum user_limit which, uint64_t n);
void user_give(struct broker_user *u, enum user_limit which, uint64_t n);
/*
 * A segment of this size that another user pays for already: it counts for u, but not again for all
 * users. 0 or -EDQUOT.
 */
int user_share_in(struct broker_user *u, uint64_t bytes);
void user_share_out(struct broker_user *u, uint64_t bytes);
/* Number of segments of this size that other users may still share with u. */
uint64_t user_left(const struct broker_user *u, uint64_t bytes);
/* Writes the refusal for the result rc of user_take() of n. */
void user_refusal(const struct broker_user *u, enum user_limit which, uint64_t n, int rc,
		  struct weir_session_msg *no);
/* Sends the refusal as the answer to a request of s. */
void user_refuse(struct broker_session *s, const struct broker_user *u, enum user_limit which,
		 uint64_t n, int rc);
/* Takes an end of a connection. False: the session or user is at its limit. */
bool user_take_conn(struct broker_session *s);
/* Refuses a connection to s, since s or t is at its limit. */
void user_refuse_conn(struct broker_session *s, const struct broker_session *t);
/* Sets KEY of user.UID.KEY. Returns the number of sessions of the user, or -errno. */
int user_set(struct broker *b, uint32_t uid, const char *key, const char *value);
/* Row `index` of the settings of users. False: no such row. */
bool user_setting_row(const struct broker *b, uint32_t index, struct weir_row_setting *r);

/* Row `index` of the users. False: no such row. */
bool user_row(const struct broker *b, uint32_t index, struct weir_row_user *r);

/* ---- CPU time of main ---- */

/* Burst of broker_user.pace, ns. */
uint64_t user_burst(const struct broker *b);
/* Charges the time that main has worked for the user. */
void user_charge(struct broker_user *u, uint64_t ns, bool request);
/* When a user without a session may attach, 0: now. */
uint64_t stranger_due(struct broker *b, uid_t uid, uint64_t now);
/* Time that such a user has cost lately, ns. */
uint64_t stranger_cost(struct broker *b, uid_t uid, uint64_t now);

#endif
