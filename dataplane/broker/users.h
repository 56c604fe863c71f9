/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Users that may attach, and their limits, by options. Names are looked up here, at start, and
 * never again. No DPDK.
 */
#ifndef WEIR_USERS_H
#define WEIR_USERS_H

#include "rate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define USERS_ALLOWED_MAX 64u
#define USERS_LIMITED_MAX 64u

/* Limits per user, in the order in which they are shown. */
enum user_limit {
	USER_CONNECTIONS, /* ends of connections on this host */
	USER_EXPORTS,	  /* exported ranges */
	USER_MEMORY,	  /* bytes of arenas and their tables, adopted memory, segments */
	USER_REGIONS,	  /* adopted ranges */
	USER_SEGMENTS,	  /* memory between two threads of local programs */
	USER_SERVICES,	  /* public names, of the node's WEIR_SERVICES_MAX */
	USER_SESSIONS,
	USER_LIMITS
};

/* Limits of all programs of a user together. */
struct user_limits {
	uint64_t most[USER_LIMITS]; /* 0: no limit */
	uint32_t given;		    /* bit i: most[i] was set, by option or weirctl */
	struct rate rate;	    /* to peers */
	uint8_t class; /* enum weir_class: HIGH: programs may connect with that priority */
};

struct users {
	unsigned allowed_count; /* 0: all users that session.sock's permissions let in */
	struct {
		bool group;
		uint32_t id;
	} allowed[USERS_ALLOWED_MAX];
	unsigned limited_count;
	struct {
		uint32_t uid;
		struct user_limits limits;
	} limited[USERS_LIMITED_MAX];
	struct user_limits others; /* for each user that is not named */
};

/* Parses user:NAME or group:NAME; a number is an id. 0, or -EINVAL and a line in error. */
int users_allow(struct users *u, const char *text, char *error, size_t size);
/*
 * Parses USER:KEY=VALUE[,KEY=VALUE...], USER a name, a number, or * for all others. 0, or -EINVAL
 * and a line in error.
 */
int users_limit(struct users *u, const char *text, char *error, size_t size);
/* Sets a limit by user_limit_name(), or rate or priority. -ENOENT: unknown key. -EINVAL: invalid
 * value. */
int user_limits_set(struct user_limits *l, const char *key, const char *value);
const char *user_limit_name(enum user_limit which);
/* Parses 1 or more, for USER_MEMORY with K, M or G, or none, which is 0. 0 or -EINVAL. */
int user_parse_limit(const char *text, enum user_limit which, uint64_t *value);
/* Writes a limit as user_parse_limit() takes it. */
void user_limit_text(uint64_t most, char *text, size_t size);
/* Sets limit `which` of each user for whom no option sets it. */
void users_default(struct users *u, enum user_limit which, uint64_t most);
/* Whether a user may attach; root and the data plane's own user always may. */
bool users_may_attach(const struct users *u, uint32_t uid, uint32_t gid, const gid_t *groups,
		      size_t group_count);

/* Describes the keys and values that user_limits_set() takes. */
#define USERS_LIMIT_WORDS                                                                          \
	"sessions=N, connections=N, services=N, regions=N, exports=N, segments=N, memory=SIZE "    \
	"(K, M, G: "                                                                               \
	"2^10, 2^20, 2^30), rate=RATE or priority=normal|high; none: no limit"

#endif
