/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which users may attach, and how much each may use, as options say it. Names are looked up here,
 * at start, and never again. No DPDK.
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

/* Of all programs of a user together. 0: no limit. */
struct user_limits {
	uint32_t sessions, connections; /* connections: ends of them on this host */
	uint32_t services;		/* public names, of the node's WEIR_SERVICES_MAX */
	uint64_t memory;		/* bytes of arenas and adopted memory */
	struct rate rate;		/* to peers */
};

struct users {
	unsigned allowed_count; /* 0: whom session.sock's permissions let in */
	struct {
		bool group;
		uint32_t id;
	} allowed[USERS_ALLOWED_MAX];
	unsigned limited_count;
	struct {
		uint32_t uid;
		struct user_limits limits;
	} limited[USERS_LIMITED_MAX];
	struct user_limits others; /* each user that is not named */
};

/* user:NAME or group:NAME; a number is an id. 0, or -EINVAL and a line in error. */
int users_allow(struct users *u, const char *text, char *error, size_t size);
/* USER:KEY=VALUE[,KEY=VALUE...], USER a name, a number, or * for all others. The same return. */
int users_limit(struct users *u, const char *text, char *error, size_t size);
/* sessions, connections, services, memory or rate. -ENOENT: no such key. -EINVAL: no such value. */
int user_limits_set(struct user_limits *l, const char *key, const char *value);
/* Its own; NULL: it has none, those of others go for it. */
const struct user_limits *users_limits(const struct users *u, uint32_t uid);
/* Root and the user that we run as always may. */
bool users_may_attach(const struct users *u, uint32_t uid, uint32_t gid, const gid_t *groups,
		      size_t group_count);

/* What user_limits_set() takes. */
#define USERS_LIMIT_WORDS                                                                          \
	"sessions=N, connections=N, services=N, memory=SIZE (K, M, G: 2^10, 2^20, 2^30) or "       \
	"rate=RATE, a value none is no limit"

#endif
